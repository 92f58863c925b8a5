"""A case beyond one machine, on engines that exist: clicks are packed, fitted by two processes,
ranked by Ray, Spark.

python benchmarks/cluster.py --entries 1e7 --rows 20000
python benchmarks/cluster.py --entries 1e8 --rows 20000 --folder /where/there/is/room

Interactions are generated (by taste, popular columns first), packed into a store, and fitted by
`deepmf fit` in one process and by `torchrun` in two, which divide the columns (gloo; on several
machines: the same line on each). Some rows are then ranked by one process, by two actors of Ray
Data and by two partitions of Spark, which map the same file. The files of all three must be the
same. Prints seconds, seconds of all processors, and the peak memory of the largest process; seconds
of all processors do not count the workers of engines, which are no children of the script. Ray and
Spark are left out where they are not installed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl
from workload import QUICK, machine

from deepmf.datasets import generate

SHAPES = {
    20_000: (500, 300),
    10**6: (10_000, 4_000),
    10**7: (70_000, 10_700),
    10**8: (480_000, 17_770),
}
DEEPMF = [sys.executable, "-m", "deepmf"]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "-m",
    "deepmf",
]
FIT = ["fit", "clicks.store", "--device", "cpu", "--seed", "0", "-o"]

ALONE = """
import polars
from deepmf.batch import Scorer
rows = polars.read_parquet("rows.parquet")["row"].to_numpy()
scorer = Scorer("one.model", n=10)
parts = [polars.DataFrame(scorer({"row": rows[at : at + 4096]})) for at in range(0, rows.size, 4096)]
polars.concat(parts).write_parquet("alone.parquet")
"""
RAY = """
import ray
from deepmf.batch import Scorer
ray.init(num_cpus=3, include_dashboard=False, logging_level="error")
rows = ray.data.read_parquet("rows.parquet").repartition(4)
options = {"model": str(__import__("pathlib").Path("one.model").absolute()), "n": 10}
top = rows.map_batches(Scorer, fn_constructor_kwargs=options, concurrency=2, batch_size=4096, batch_format="pyarrow")
top.write_parquet(str(__import__("pathlib").Path("ray").absolute()))
"""
SPARK = """
from pathlib import Path
from pyspark.sql import SparkSession
from deepmf.batch import Scorer
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
scorer = Scorer(str(Path("one.model").absolute()), n=10)
rows = spark.read.parquet("rows.parquet").repartition(2)
rows.mapInArrow(scorer.iterate, scorer.spark_schema).write.mode("overwrite").parquet("spark")
"""


def write_clicks(path: Path, n_entries: int) -> int:
    """Write the pairs of a generated matrix; return the number of rows."""
    n_rows, n_columns = SHAPES[n_entries]
    matrix = generate(n_rows, n_columns, n_entries=n_entries, named=False, seed=0).matrix
    pl.DataFrame({"user": matrix.entry_rows, "item": matrix.by_row.columns}).write_parquet(path)
    return n_rows


def measure(command: list[str], folder: Path) -> dict[str, float]:
    """Run a command in a folder; return its seconds, those of all processors, and the memory of its
    largest process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command[:6])} ended with {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "largest_gib": round(usage.ru_maxrss / 2**20, 2),
    }


def read_ranks(folder: Path) -> pl.DataFrame:
    """Return the recommendations of some files in the order of rows and ranks."""
    files = sorted(folder.rglob("*.parquet")) if folder.is_dir() else [folder]
    columns = ["row", "rank", "column"]
    return pl.concat([pl.read_parquet(file, columns=columns) for file in files]).sort("row", "rank")


def main() -> None:
    """Generate, pack, fit, rank and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=float, default=2e4 if QUICK else 1e7)
    parser.add_argument("--rows", type=int, default=200 if QUICK else 20_000, help="rows to rank")
    parser.add_argument("--folder", help="where there is room")
    options = parser.parse_args()
    n_entries, found = int(options.entries), dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder = Path(place)
        # A process of its own: the memory of this one would count as that of the steps, which it
        # starts.
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            n_rows = other.submit(write_clicks, folder / "clicks.parquet", n_entries).result()
        rows = np.random.default_rng(0).choice(n_rows, min(options.rows, n_rows), replace=False)
        pl.DataFrame({"row": np.sort(rows)}).write_parquet(folder / "rows.parquet")

        def step(name: str, command: list[str], check: Callable[[], bool] = lambda: True) -> None:
            found[name] = measure(command, folder)
            print(f"{name:<20}", found[name], flush=True)
            assert check(), name

        step("pack", [*DEEPMF, "pack", "clicks.parquet", "--no-values", "-o", "clicks.store"])
        step("fit, one process", [*DEEPMF, *FIT, "one.model"])
        step("fit, two processes", [*TORCHRUN, *FIT, "two.model"])
        step("rank, one process", [sys.executable, "-c", ALONE])
        alone = read_ranks(folder / "alone.parquet")
        for name, module, script in (("ray", "ray", RAY), ("spark", "pyspark", SPARK)):
            if find_spec(module) is not None:
                same = lambda name=name: read_ranks(folder / name).equals(alone)  # noqa: E731
                step(f"rank, {name}", [sys.executable, "-c", script], same)
        step(
            "rank, two processes' model",
            [sys.executable, "-c", ALONE.replace("one.model", "two.model")],
        )
        assert read_ranks(folder / "alone.parquet").equals(alone), "the models differ"
    record = {
        "benchmark": "cluster",
        "entries": n_entries,
        "rows": int(rows.size),
        "shape": SHAPES[n_entries],
    }
    print(json.dumps(record | {"steps": found} | machine()))


if __name__ == "__main__":
    main()
