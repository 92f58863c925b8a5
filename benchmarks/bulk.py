"""Entries written in bulk: JSON lines parsed, committed to SQLite and learned by ALS, at the size of MovieLens-1M.

A fifth of the rows are new. Prints the lines per second of processor time for each request: after the first, the model
carries the entries of the requests before.

    OMP_NUM_THREADS=1 python benchmarks/bulk.py --lines 50000
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from workload import machine

from deepmf.datasets import generate
from deepmf.models.als import ALS
from deepmf.serve.bulk import parse_bulk
from deepmf.serve.database import open_database
from deepmf.serve.service import Service
from deepmf.serve.writer import commit_writes

N_ROWS, N_NEW_ROWS, N_COLUMNS, N_ENTRIES = 6040, 1500, 3706, 1_000_000


def main() -> None:
    """Measure, and print a JSON line for each request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--requests", type=int, default=4)
    options = parser.parse_args()
    matrix = generate(N_ROWS, N_COLUMNS, n_entries=N_ENTRIES, named=False, seed=0).matrix
    model = ALS(epochs=1, seed=0).fit(matrix, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(str(Path(folder) / "entries.sqlite"))
        snapshot = Service(model, database).current
        for number in range(options.requests):
            body = make_lines(options.lines, seed=number)
            start = time.process_time()
            write = parse_bulk(body, "", max_bytes=len(body), key=str(number))
            parsed = time.process_time()
            snapshot = commit_writes(database, snapshot, [write]).snapshot
            end = time.process_time()
            result = {
                "request": number,
                "lines": options.lines,
                "parse_per_second": round(options.lines / (parsed - start)),
            }
            result |= {"lines_per_second": round(options.lines / (end - start))}
            print(json.dumps({"benchmark": "bulk"} | result | machine()), flush=True)


def make_lines(n_lines: int, *, seed: int) -> bytes:
    """Return random entries of known and new rows as JSON lines."""
    generator = np.random.default_rng(seed)
    rows, columns, values = (
        generator.integers(low, high, n_lines).tolist()
        for low, high in ((0, N_ROWS + N_NEW_ROWS), (0, N_COLUMNS), (1, 6))
    )
    lines = (
        json.dumps({"row": row, "column": column, "value": value})
        for row, column, value in zip(rows, columns, values, strict=True)
    )
    return "\n".join(lines).encode()


if __name__ == "__main__":
    main()
