"""Entries written in bulk: JSON lines parsed, committed and learned by ALS, at the size of
MovieLens-1M.

A fifth of the rows are new. Prints the lines per second of processor time for each request: after
the first, the model carries the entries of the requests before. `follow` is what another worker of
the service takes to catch up.

    OMP_NUM_THREADS=1 python benchmarks/bulk.py --lines 50000 --database postgresql://user@host/name
"""

from __future__ import annotations

import argparse
import gc
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
from deepmf.serve.service import Service, ServiceLimits
from deepmf.serve.snapshot import catch_up
from deepmf.serve.writer import commit_writes

N_ROWS, N_NEW_ROWS, N_COLUMNS, N_ENTRIES = 6040, 1500, 3706, 1_000_000


def main() -> None:
    """Measure, and print a JSON line for each request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--database", help="a PostgreSQL database; default: a new SQLite file")
    options = parser.parse_args()
    matrix = generate(N_ROWS, N_COLUMNS, n_entries=N_ENTRIES, named=False, seed=0).matrix
    model = ALS(epochs=1, seed=0).fit(matrix, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(options.database or str(Path(folder) / "entries.sqlite"))
        # it does not follow the writes
        service = Service(model, database, limits=ServiceLimits(staleness=3600.0))
        snapshot = follower = service.current
        gc.collect()
        gc.freeze()  # as the server does
        for number in range(options.requests):
            body = make_lines(options.lines, seed=number)
            times = [time.process_time()]
            write = parse_bulk(body, "", max_bytes=len(body), key="")
            times.append(time.process_time())
            snapshot = commit_writes(database, snapshot, [write]).snapshot
            times.append(time.process_time())
            with database.begin_read() as transaction:
                follower = catch_up(follower, transaction)
            times.append(time.process_time())
            parse, commit, follow = np.diff(times)
            result = {
                "request": number,
                "lines": options.lines,
                "database": database.engine.dialect.name,
            }
            result |= {
                f"{name}_per_second": round(options.lines / seconds)
                for name, seconds in (
                    ("parse", parse),
                    ("lines", parse + commit),
                    ("follow", follow),
                )
            }
            print(json.dumps({"benchmark": "bulk"} | result | machine()), flush=True)
        service.close()


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
