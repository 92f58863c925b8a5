"""Reading 20 million lines of CSV into a matrix, against polars' own bare read_csv of the same
file.

Target: at most twice polars' time plus 3 s. Prints a table and a JSON line.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from workload import QUICK, machine

from deepmf.data import read_matrix


def write_ratings(path: Path, *, n_lines: int, text_ids: bool, seed: int) -> None:
    """Write distinct (user, item) pairs with half-star ratings, in random order."""
    generator = np.random.default_rng(seed)
    n_columns = 30_000
    n_rows = max(n_lines // 145, 1)  # as many entries per row as ml-20m has
    cells = generator.choice(n_rows * 200, size=n_lines, replace=False)
    users, items = cells // 200, (cells % 200) * 149 + generator.integers(0, 149, n_lines)
    frame = pl.DataFrame(
        {
            "userId": users + 1,
            "movieId": np.minimum(items, n_columns) + 1,
            "rating": generator.integers(1, 11, n_lines) / 2,
            "timestamp": generator.integers(800_000_000, 1_500_000_000, n_lines),
        }
    )
    if text_ids:
        frame = frame.with_columns(
            pl.format("user-{}", "userId").alias("userId"),
            pl.format("film-{}", "movieId").alias("movieId"),
        )
    frame.write_csv(path)


def best_seconds(path: Path) -> dict[str, float]:
    """Time polars' reader and ours in turn, twice; return the better time of each, and that of all
    processors."""
    taken: dict[str, list[float]] = {}
    for _ in range(2):
        for name, read in (("polars", pl.read_csv), ("deepmf", read_matrix)):
            start = time.perf_counter(), time.process_time()
            read(path)
            taken.setdefault(f"{name}_seconds", []).append(time.perf_counter() - start[0])
            taken.setdefault(f"{name}_processor_seconds", []).append(time.process_time() - start[1])
    return {name: round(min(seconds), 2) for name, seconds in taken.items()}


def main() -> None:
    """Time both readers on ids that are numbers and on ids that are text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000 if QUICK else 20_000_000)
    lines = parser.parse_args().lines
    print(
        f"{'ids':<8}{'lines':>12}{'polars s':>10}{'deepmf s':>10}{'limit s':>10}{'entries/s':>14}"
    )
    for text_ids in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ratings.csv")
            write_ratings(path, n_lines=lines, text_ids=text_ids, seed=0)
            seconds = best_seconds(path)
        result = {
            "benchmark": "reading",
            "ids": "text" if text_ids else "ints",
            "lines": lines,
            **seconds,
            "limit_seconds": round(2 * seconds["polars_seconds"] + 3, 2),
            "polars": pl.__version__,
        }
        print(
            f"{result['ids']:<8}{lines:>12,}{result['polars_seconds']:>10}{result['deepmf_seconds']:>10}"
            f"{result['limit_seconds']:>10}{lines / seconds['deepmf_seconds']:>14,.0f}"
        )
        print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
