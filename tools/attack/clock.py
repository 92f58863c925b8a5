"""The clock of the machine jumps, while a service answers, writes and starts again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fastapi.testclient import TestClient

from attack.target import Outcome, are_alike, recommend, save_small_model
from deepmf.models.loading import load
from deepmf.serve import Service, create_app, open_database

_HOUR, _TEN_YEARS = 3600.0, 10 * 365.25 * 24 * 3600.0
_JUMPS = {"an hour back": -_HOUR, "ten years back": -_TEN_YEARS, "ten years forward": _TEN_YEARS}
_N_WRITES = 50


def attack(folder: Path) -> Iterator[Outcome]:
    """Let the clock jump between writes, and compare what is read before and after restarts."""
    model = load(save_small_model(folder))
    for name, seconds in _JUMPS.items():
        yield _jump(model, folder / f"{name}.sqlite", name, seconds)


def _jump(model: Any, database: Path, name: str, seconds: float) -> Outcome:
    columns, n_wrong = model.column_labels_.tolist(), 0
    with _open(model, database) as client:
        receipts = {number: _write(client, number, columns) for number in range(_N_WRITES)}
    now = time.time
    with mock.patch("time.time", lambda: now() + seconds), _open(model, database) as client:
        # requests that are sent again must not be written twice, unless their keys have expired
        for number, receipt in receipts.items():
            n_wrong += seconds < 0 and _write(client, number, columns) != receipt
        for number in range(_N_WRITES, 2 * _N_WRITES):
            receipts[number] = _write(client, number, columns)
        n_wrong += _count_wrong(client, columns)
        lists = [recommend(client, f"row {number}") for number in receipts]
        n_wrong += client.get("/readyz").status_code != 200
    with _open(model, database) as client:
        n_wrong += _count_wrong(client, columns)
        for number, earlier in zip(receipts, lists, strict=True):
            n_wrong += not are_alike(recommend(client, f"row {number}"), earlier)
    return Outcome(
        f"the clock jumps {name}",
        f"{2 * _N_WRITES} writes before and after it, {_N_WRITES} sent again, two restarts",
        n_wrong,
    )


@contextmanager
def _open(model: Any, database: Path) -> Iterator[TestClient]:
    app = create_app(Service(model, open_database(str(database))))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def _write(client: TestClient, number: int, columns: list[str]) -> Any:
    """Write an entry once; return the answer to it."""
    entry = {"column": columns[number % len(columns)], "value": 1 + number % 5}
    answer = client.put(
        f"/v1/rows/row {number}/entries",
        json={"entries": [entry]},
        headers={"Idempotency-Key": f"write {number}"},
    )
    return answer.status_code, answer.json()["version"], answer.json()["etag"]


def _count_wrong(client: TestClient, columns: list[str]) -> int:
    n_wrong = 0
    for number in range(2 * _N_WRITES):
        answer = client.get(f"/v1/rows/row {number}/entries").json()
        wanted = {"column": columns[number % len(columns)], "value": 1 + number % 5}
        n_wrong += [{**entry, "time": None} for entry in answer.get("entries", [])] != [
            {**wanted, "time": None}
        ]
    return n_wrong
