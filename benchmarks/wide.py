"""Rankings of a wide catalogue without values: LightGCN's split of Gowalla, or any split stored as
two sparse matrices.

    python benchmarks/wide.py --folder data/gowalla --model als
    python benchmarks/wide.py --folder data/gowalla --validation
    python benchmarks/wide.py --model means --columns 1050000

The folder has `train.npz` and `test.npz`, scipy matrices of the same shape. All columns without a
training entry are ranked for every row with a test entry. With `--validation`, a tenth of the
training entries is hidden and measured instead, and test entries are not read. With `--columns`,
about as many columns are generated, with five entries each, and a tenth of the entries of 1,000
rows is measured. Prints a JSON line: recall@20, NDCG@20, seconds of the fit and the real peak of
memory.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from workload import machine

from deepmf.data import split_entries
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.registry import model_class


def read(path: Path) -> ObservedMatrix:
    """Return the interactions of a stored matrix."""
    cells = scipy.sparse.load_npz(path).tocoo()
    return ObservedMatrix.from_interactions(cells.row, cells.col)


def draw(n_columns: int) -> tuple[ObservedMatrix, ObservedMatrix]:
    """Return generated interactions of a long tail whose rows prefer columns of their own kind, and
    hidden ones."""
    numbers, n_entries = np.random.default_rng(0), 5 * n_columns
    rows = numbers.integers(0, n_columns // 2, n_entries)
    columns = (n_columns * numbers.random(n_entries) ** (1 / 0.3)).astype(np.int64)
    alike = columns // 200 * 200 + rows % 200
    columns = np.where(numbers.random(n_entries) < 0.7, alike, columns) % n_columns
    split = split_entries(
        ObservedMatrix.from_interactions(rows, columns), train=0.9, validation=0.0, test=0.1, seed=0
    )
    hidden = split.test.take_known(split.train.rows, split.train.columns)
    return split.train, hidden.take(
        np.flatnonzero(hidden.row_counts)[:1000], np.arange(hidden.shape[1])
    )


def main() -> None:
    """Fit a model and rank."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--columns", type=int, help="generate as many instead of reading a folder")
    parser.add_argument("--model", default="als")
    parser.add_argument("--validation", action="store_true")
    arguments = parser.parse_args()
    if (arguments.folder is None) == (arguments.columns is None):
        parser.error("give either --folder or --columns")
    if arguments.columns:
        train, test = draw(arguments.columns)
    elif arguments.validation:
        train = read(arguments.folder / "train.npz")
        split = split_entries(train, train=0.9, validation=0.0, test=0.1, seed=0)
        train, test = split.train, split.test
    else:
        train, test = (read(arguments.folder / f"{part}.npz") for part in ("train", "test"))
    start, used = time.perf_counter(), time.process_time()
    model = model_class(arguments.model)(seed=0).fit(train)
    seconds = {"fit_s": time.perf_counter() - start, "fit_cpu_s": time.process_time() - used}
    start = time.perf_counter()
    found = evaluate_ranking(model, test, n=20).model
    weights = model.rankers_.presence.model.weights  # type: ignore[union-attr]
    line = {
        "benchmark": "wide",
        "data": arguments.folder.name
        if arguments.folder
        else f"generated, {train.shape[1]} columns",
        "model": arguments.model,
        "part": "validation" if arguments.validation else "test",
        "recall": found.recall,
        "ndcg": found.ndcg,
        "chosen": model.chosen_on_entries_,
        "near": int(np.diff(scipy.sparse.csc_array(weights).indptr).max()),
        "ranking_s": time.perf_counter() - start,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(line | seconds | machine()), flush=True)


if __name__ == "__main__":
    main()
