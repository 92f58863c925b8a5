"""Exact top ten of all rows of 480,000 x 17,770 in one process, with the probabilities that files
contain.

A model is fitted to generated rows of 208 entries each, by settings for the whole matrix but one
epoch: time does not depend on weights. All 480,000 rows are scored by repeating those of the model,
or a few rows with `--share`.

`scored` is the time of scoring alone, `written` includes a Parquet file (if polars is installed).
Seconds are elapsed time with as many threads as OMP_NUM_THREADS (`wall`) and processor time
(`cpu`), extrapolated to 480,000 rows.

    OMP_NUM_THREADS=2 python benchmarks/scoring.py --rows 2000 --share 0.004
    OMP_NUM_THREADS=2 python benchmarks/scoring.py --model ordinal --rows 2000 --share 0.004
    python benchmarks/scoring.py --model ordinal --device cuda --rows 10000
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from workload import machine

from deepmf.datasets import generate
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.ordinal.settings import Facts, choose_settings
from deepmf.recommend.ranking import Recommendations, Search, rank_batches
from deepmf.recommend.request import Request

ALL_ROWS, N_COLUMNS, ENTRIES_A_ROW, N = 480_000, 17_770, 208, 10


def main() -> None:
    """Measure, and print a JSON line for each order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["als", "ordinal"], default="als")
    parser.add_argument(
        "--rows", type=int, default=2_000, help="rows that are generated and fitted"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the 480,000 rows that is scored"
    )
    parser.add_argument("--device", help="where keys are computed, such as cuda; default: numpy")
    options = parser.parse_args()
    matrix = generate(
        options.rows,
        N_COLUMNS,
        n_entries=ENTRIES_A_ROW * options.rows,
        popularity=1.0,
        named=False,
        seed=0,
    ).matrix
    start = time.perf_counter()
    model = make_model(options.model, on_gpu=options.device == "cuda").fit(matrix, progress=False)
    fitted = time.perf_counter() - start
    rows = np.resize(np.arange(options.rows), round(options.share * ALL_ROWS))
    for rank_by in ("value", "relevance"):  # entries have no order
        found: dict[str, Any] = {
            "model": options.model,
            "rank_by": rank_by,
            "device": options.device,
        }
        found |= {
            "width": model.predictor_.columns.base.shape[1],
            "fitted_rows": options.rows,
            "rows": rows.size,
        }
        found |= {"has_distributions": model.gives_distribution, "seconds_to_fit": round(fitted)}
        found |= {"torch_threads": torch.get_num_threads()} | measure(
            model, rank_by, rows, options.device
        )
        print(json.dumps({"benchmark": "scoring"} | found | machine()), flush=True)


def make_model(name: str, *, on_gpu: bool) -> Model:
    """Return a model with the width that its settings have for the whole matrix."""
    if name == "als":
        return ALS(latent_size=64, epochs=1, penalty=1.0, seed=0)
    facts = Facts(ALL_ROWS, N_COLUMNS, ALL_ROWS * ENTRIES_A_ROW, on_gpu=on_gpu)
    chosen = choose_settings(facts, "normal", epochs=1)
    for of_blocks in ("block_rows", "block_columns"):  # those of the rows that are fitted
        del chosen[of_blocks]
    return OrdinalDMF(seed=0, device="cuda" if on_gpu else "cpu", **chosen)


def measure(model: Model, rank_by: Any, rows: Any, device: str | None) -> dict[str, Any]:
    """Return the seconds for all rows."""
    request = Request(rank_by=rank_by, n=N, device=device)
    search = Search.of(
        model.entries_, model.make_ranker(request), model.entries_.seen_columns, request
    )
    every = Recommendations(search, rows)

    def score(rows: Any) -> None:
        for _ in rank_batches(search, rows, threads=torch.get_num_threads()):
            pass

    score(rows[:128])  # to warm up
    found = {
        f"scored_{kind}": seconds
        for kind, seconds in time_it(lambda: score(rows), rows.size).items()
    }
    if importlib.util.find_spec("polars") is None:
        return found
    with tempfile.TemporaryDirectory() as folder:
        times = time_it(lambda: every.write(Path(folder) / "top.parquet"), rows.size)
    return found | {f"written_{kind}": seconds for kind, seconds in times.items()}


def time_it(work: Callable[[], Any], n_rows: int) -> dict[str, float]:
    """Return the elapsed and the processor seconds of some work, extrapolated to all rows."""
    before = time.perf_counter(), time.process_time()
    work()
    after = time.perf_counter(), time.process_time()
    return {
        f"{kind}_seconds": round((end - start) / n_rows * ALL_ROWS, 1)
        for kind, start, end in zip(("wall", "cpu"), before, after, strict=True)
    }


if __name__ == "__main__":
    main()
