"""Packing generated entries into a store, against polars sorting the same files by row and by
column.

Target: 10^8 entries in at most 4 GiB, and in at most three times polars' time. Every measurement is
a process of its own, whose peak memory is what the system says (VmHWM). Prints a table and a JSON
line for each size.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from workload import machine

SHAPES = {10**6: (20_000, 8_000), 10**7: (70_000, 10_700), 10**8: (480_000, 17_770)}
LINES = 5_000_000  # of a file

PACK = """
pack(sorted(Path(sys.argv[1]).glob("*.parquet")), sys.argv[2])
"""
SORT = """
for by in (["user", "item"], ["item", "user"]):
    pl.read_parquet(sys.argv[1] + "/*.parquet").sort(by)
"""
OPEN = """
matrix = read_matrix(sys.argv[2])
print(matrix, matrix.by_row.columns[:10].sum(), matrix.values[:10], file=sys.stderr)
"""
SPLIT = """
print(split_entries(read_matrix(sys.argv[2]), seed=0).train, file=sys.stderr)
"""
MEASURED = """
import json, sys, time
from pathlib import Path
import polars as pl
from deepmf.data import pack
from deepmf.data import read_matrix
from deepmf.data import split_entries
start = time.perf_counter(), time.process_time()
{code}
seconds = [time.perf_counter() - start[0], time.process_time() - start[1]]
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(json.dumps([*seconds, int(peak) / 2**20]))
"""


class Step(NamedTuple):
    """What a step took: seconds, seconds of all processors together, and the peak of memory in
    GiB."""

    seconds: float
    processor_seconds: float
    gib: float


def write_entries(folder: Path, n_entries: int, *, text_ids: bool) -> None:
    """Write distinct pairs in random order with values of 1 to 5, some at a time."""
    n_rows, n_columns = SHAPES[n_entries]
    # coprime to the number of cells: no cell comes twice
    step = int(0.6180339887 * n_rows * n_columns) | 1
    while np.gcd(step, n_rows * n_columns) != 1:
        step += 2
    for number, start in enumerate(range(0, n_entries, LINES)):
        places = np.arange(start, min(start + LINES, n_entries), dtype=np.uint64)
        cells = _product_modulo(places, step, n_rows * n_columns)
        values = (cells * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)) % np.uint64(
            5
        ) + np.uint64(1)
        frame = pl.DataFrame(
            {
                "user": (cells // np.uint64(n_columns)).astype(np.int64),
                "item": (cells % np.uint64(n_columns)).astype(np.int64),
                "rating": values.astype(np.float32),
            }
        )
        if text_ids:
            frame = frame.with_columns(
                pl.format("user-{}", "user").alias("user"), pl.format("{}", "item").alias("item")
            )
        frame.write_parquet(folder / f"{number:04}.parquet")


def _product_modulo(places: np.ndarray, step: int, n_cells: int) -> np.ndarray:
    """Return places * step modulo the number of cells, in 64 bits: places are cut in two."""
    high, low = places >> np.uint64(15), places & np.uint64(0x7FFF)
    shifted = np.uint64((step << 15) % n_cells)
    return (
        high * shifted % np.uint64(n_cells) + low * np.uint64(step) % np.uint64(n_cells)
    ) % np.uint64(n_cells)


def measure(code: str, folder: Path, store: Path) -> Step:
    """Run code in a process of its own."""
    command = [sys.executable, "-c", MEASURED.format(code=code), str(folder), str(store)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Step(*json.loads(out.splitlines()[-1]))


def main() -> None:
    """Generate, sort, pack, open and split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--text", action="store_true", help="row ids are texts")
    parser.add_argument("--folder", help="where there is room")
    options = parser.parse_args()
    print(f"{'entries':>14} {'step':<6}{'seconds':>9}{'processor':>11}{'GiB':>7}")
    for n_entries in map(int, options.entries):
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            folder, store = Path(place, "files"), Path(place, "ratings.store")
            folder.mkdir()
            start = time.perf_counter()
            write_entries(folder, n_entries, text_ids=options.text)
            generated = time.perf_counter() - start
            codes = {"sort": SORT, "pack": PACK, "open": OPEN, "split": SPLIT}
            steps = {name: measure(code, folder, store) for name, code in codes.items()}
            n_bytes = store.stat().st_size
        for name, step in steps.items():
            print(
                f"{n_entries:>14,} {name:<6}{step.seconds:>9.1f}{step.processor_seconds:>11.1f}{step.gib:>7.2f}"
            )
        result = {
            "benchmark": "pack",
            "entries": n_entries,
            "shape": SHAPES[n_entries],
            "row_ids": "text" if options.text else "ints",
            "generated_seconds": round(generated, 1),
            **{
                f"{name}_{what}": round(taken, 2)
                for name, step in steps.items()
                for what, taken in step._asdict().items()
            },
            "store_bytes": n_bytes,
            "polars": pl.__version__,
        }
        result["times_polars"] = round(steps["pack"].seconds / steps["sort"].seconds, 2)
        print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
