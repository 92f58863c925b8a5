"""Rankings of a wide catalogue without values: LightGCN's split of Gowalla, or any split stored as two sparse matrices.

    python benchmarks/wide.py --folder data/gowalla --model als
    python benchmarks/wide.py --folder data/gowalla --validation

The folder has `train.npz` and `test.npz`, scipy matrices of the same shape. All columns without a training entry are
ranked for every row with a test entry. With `--validation`, a tenth of the training entries is hidden and measured
instead, and test entries are not read. Prints a JSON line: recall@20, NDCG@20, seconds of the fit and the real peak of
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


def main() -> None:
    """Fit a model and rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", default="als")
    parser.add_argument("--validation", action="store_true")
    arguments = parser.parse_args()
    train = read(arguments.folder / "train.npz")
    if arguments.validation:
        split = split_entries(train, train=0.9, validation=0.0, test=0.1, seed=0)
        train, test = split.train, split.test
    else:
        test = read(arguments.folder / "test.npz")
    start, used = time.perf_counter(), time.process_time()
    model = model_class(arguments.model)(seed=0).fit(train)
    seconds = {"fit_s": time.perf_counter() - start, "fit_cpu_s": time.process_time() - used}
    start = time.perf_counter()
    found = evaluate_ranking(model, test, n=20).model
    line = {
        "benchmark": "wide",
        "data": arguments.folder.name,
        "model": arguments.model,
        "part": "validation" if arguments.validation else "test",
        "recall": found.recall,
        "ndcg": found.ndcg,
        "chosen": model.chosen_on_entries_,
        "near": int(np.diff(model.rankers_.presence.model.weights.tocsc().indptr).max()),  # type: ignore[union-attr]
        "ranking_s": time.perf_counter() - start,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(line | seconds | machine()), flush=True)


if __name__ == "__main__":
    main()
