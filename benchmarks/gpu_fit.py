"""Wall time of `fit` with the paper's whole schedule (1000 epochs, 2048 -> 1024) on a GPU; says so where there is none.

Target: at most 40 s on one H200, alone on the machine. Prints a table and a JSON line.
"""

import json
import time

import torch
from workload import machine, ml_1m

from deepmf.data import split_entries
from deepmf.models.dmf import DMF


def main() -> None:
    """Fit once and print how long it took."""
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return
    name, matrix = ml_1m()
    split = split_entries(matrix, seed=0)
    start = time.perf_counter()
    model = DMF(inputs="raw", device="cuda").fit(split.train, split.validation)
    seconds = time.perf_counter() - start
    n_epochs = len(model.history_)
    print(f"{name}\n{'epochs':>8}{'fit s':>10}{'ms per epoch':>14}")
    print(f"{n_epochs:>8}{seconds:>10.1f}{1000 * (model.history_.seconds or 0.0) / n_epochs:>14.2f}")
    result = {
        "benchmark": "gpu_fit",
        "epochs": n_epochs,
        "fit_seconds": round(seconds, 2),
        "epoch_milliseconds": round(1000 * (model.history_.seconds or 0.0) / n_epochs, 3),
        "data": name,
    }
    print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
