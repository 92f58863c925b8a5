"""A catalogue of 200,000 columns in the service: memory and the slowest answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attack.target import Outcome, measure_latencies, serve
from deepmf.datasets import generate
from deepmf.models.als import ALS

_ROWS, _COLUMNS, _ENTRIES, _REQUESTS = 20_000, 200_000, 1_000_000, 200


def attack(folder: Path) -> Iterator[Outcome]:
    """Ask a service over a large model, and write to it."""
    path = folder / "model.safetensors"
    matrix = generate(_ROWS, _COLUMNS, n_entries=_ENTRIES, seed=0).matrix
    model = ALS(latent_size=16, epochs=2, presence=None, seed=0).fit(matrix)
    model.save(path)
    row, columns = model.row_labels_[0], model.column_labels_[:20].tolist()
    history = [{"column": column, "value": 4} for column in columns]
    questions: dict[str, dict[str, Any]] = {
        "recommend": {"method": "POST", "url": "/v1/recommend", "json": {"row": row}},
        "a history of 20": {"method": "POST", "url": "/v1/recommend", "json": {"history": history}},
        "search": {"method": "GET", "url": f"/v1/columns?search={columns[0]}"},
        "write": {"method": "PUT", "url": "/v1/rows/new/entries", "json": {"entries": history}},
    }
    with serve(folder, path) as target:
        latencies = {
            name: measure_latencies(target.client, _REQUESTS, **question)
            for name, question in questions.items()
        }
        memory = target.measure_memory()
    slowest = ", ".join(
        f"{name} {1000 * seconds[int(0.99 * _REQUESTS)]:.0f} ms"
        for name, seconds in latencies.items()
    )
    n_failed = sum(second == float("inf") for seconds in latencies.values() for second in seconds)
    yield Outcome(
        f"a catalogue of {_COLUMNS:,} columns",
        f"{len(latencies) * _REQUESTS} requests",
        n_failed,
        f"{memory / 2**20:.0f} MiB; p99: {slowest}",
    )
