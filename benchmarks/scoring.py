"""Exact top ten of many rows in one process, by value and by relevance, with the probabilities that files contain.

A part of the rows of 480,000 x 17,770 is generated with 208 entries a row; ALS with 64 factors is fitted for one sweep,
as time does not depend on weights. Times are processor time of one thread a row, and extrapolated to 480,000 rows.
`written` includes a Parquet file; its elapsed time (`wall`) is that of as many threads as OMP_NUM_THREADS.

    OMP_NUM_THREADS=1 python benchmarks/scoring.py --rows 3000
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from workload import machine

from deepmf.datasets import generate
from deepmf.models.als import ALS
from deepmf.models.ranking import choose_columns, rank_batches
from deepmf.models.relevance import RANK_BY

ALL_ROWS, N_COLUMNS, ENTRIES_A_ROW, N = 480_000, 17_770, 208, 10


def main() -> None:
    """Measure, and print a JSON line for each order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000)
    n_rows = parser.parse_args().rows
    matrix = generate(n_rows, N_COLUMNS, n_entries=ENTRIES_A_ROW * n_rows, named=False, seed=0).matrix
    model = ALS(latent_size=64, epochs=1, penalty=1.0, seed=0).fit(matrix, progress=False)
    entries, choice = model.entries_, choose_columns(model.entries_)
    for rank_by in RANK_BY:
        ranker = model.make_ranker(rank_by)
        for rows in (np.arange(128), np.arange(n_rows)):  # the first warm up
            start = time.process_time()
            for _ in rank_batches(ranker, rows, choice, N, observed=entries.seen_columns):
                pass
            seconds = time.process_time() - start
        with tempfile.TemporaryDirectory() as folder:
            start, wall = time.process_time(), time.perf_counter()
            model.recommend_to(Path(folder) / "top.parquet", rank_by=rank_by)
            written, wall = time.process_time() - start, time.perf_counter() - wall
        result = {"rank_by": rank_by, "rows": n_rows, "microseconds_a_row": round(1e6 * seconds / n_rows)}
        result |= {f"seconds_for_{ALL_ROWS}": round(seconds / n_rows * ALL_ROWS)}
        result |= {f"written_seconds_for_{ALL_ROWS}": round(written / n_rows * ALL_ROWS)}
        result |= {f"wall_seconds_for_{ALL_ROWS}": round(wall / n_rows * ALL_ROWS), "threads": torch.get_num_threads()}
        print(json.dumps({"benchmark": "scoring"} | result | machine()), flush=True)


if __name__ == "__main__":
    main()
