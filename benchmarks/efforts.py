"""What each effort of OrdinalDMF costs and gives: RMSE of entries that the fit did not see, and
seconds of the fit.

    python benchmarks/efforts.py --data ml-1m --device cpu
    python benchmarks/efforts.py --data ml-100k --parts 1 2 3 4 5 --efforts quick
    python benchmarks/efforts.py --data ml-1m-90 --parts 0 --efforts normal best --features --on
    validation python benchmarks/efforts.py --data generated --device cuda --efforts normal

ml-1m has the authors' split; ml-100k the folds u1 to u5, which are consecutive blocks of `u.data`;
ml-1m-90 tests on a tenth of all entries, and validates on 2 %; "generated" has 10^7 entries of rank
12 with noise 1. Validation entries choose, and are read at test time. `--on validation` measures on
held-out training entries, which no choice saw, instead of test entries. Prints a JSON line for each
effort and part, with the estimate of seconds that the fit printed.
"""

import argparse
import io
import json
import re
import time
from contextlib import redirect_stderr
from typing import Any

import numpy as np
import numpy.typing as npt
from workload import machine

from deepmf import Features, OrdinalDMF
from deepmf.data import Split, split_entries
from deepmf.datasets import fetch_file, generate, load, load_split
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error


def make_split(data: str, part: int, *, on: str) -> Split:
    """Return the entries to learn from, to choose by, and to measure on."""
    split = make_parts(data, part)
    if on == "test":
        return split
    left = split_entries(split.train, train=0.95, validation=0.0, test=0.05, seed=part)
    return Split(left.train, split.validation, left.test)


def make_parts(data: str, part: int) -> Split:
    """Return a published split, a fold without validation entries, or a random split."""
    if data == "ml-1m":
        return load_split(data)
    if data == "ml-1m-90":
        return split_entries(load("ml-1m"), train=0.88, validation=0.02, test=0.10, seed=part)
    if data == "generated":
        matrix = generate(
            70_000, 10_700, n_entries=10_000_000, rank=12, noise=1.0, named=False, seed=5 + part
        ).matrix
        return split_entries(matrix, train=0.88, validation=0.02, test=0.10, seed=part)
    lines = np.loadtxt(fetch_file("ml-100k", "ml-100k/u.data"), dtype=np.int64)
    size = len(lines) // 5
    in_test = np.arange(len(lines)) // size == part - 1
    train, test = (make_matrix(lines[chosen]) for chosen in (~in_test, in_test))
    return Split(train, train.take_entries(np.zeros(0, dtype=np.int64)), test)


def make_matrix(lines: npt.NDArray[np.int64]) -> ObservedMatrix:
    """Return the entries of lines of `u.data`: user, film, stars and seconds."""
    rows, columns, values, times = lines.T
    return ObservedMatrix.from_entries(rows, columns, values.astype(float), times=times)


def read_features(data: str) -> dict[str, Features]:
    """Return what MovieLens says of its users and films."""
    from movielens_features import film_features, user_features

    name = data.removesuffix("-90")
    return {
        "row_features": Features.from_frame(user_features(name).drop("post_code"), label="user"),
        "column_features": Features.from_frame(film_features(name), label="film"),
    }


def measure(split: Split, effort: str, device: str, features: dict[str, Any]) -> dict[str, Any]:
    """Fit once; return the error and the seconds."""
    validation = split.validation if split.validation.n_entries else None
    rows, columns, values = split.test.entries()
    shown = io.StringIO()
    start, used = time.perf_counter(), time.process_time()
    with redirect_stderr(shown):
        model = OrdinalDMF(effort=effort, seed=0, device=device).fit(
            split.train, validation, progress=True, **features
        )
    seconds = {"fit_s": time.perf_counter() - start, "fit_cpu_s": time.process_time() - used}
    known = model if validation is None else model.extend(validation)
    rmse = rmse_error(known.predict(rows, columns, unknown="fallback"), values)
    told = re.search(r"; (about [^\n]*)", shown.getvalue())
    found = {"rmse": float(rmse), **seconds, "estimate": None if told is None else told[1]}
    return found | {"stages": dict(model.history_.stages), "chosen": model.chosen_}


def main() -> None:
    """Fit each effort to each part once, and measure it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", default="ml-1m", choices=("ml-1m", "ml-1m-90", "ml-100k", "generated")
    )
    parser.add_argument(
        "--parts", type=int, nargs="+", default=[1], help="folds, or seeds of random splits"
    )
    parser.add_argument("--on", default="test", choices=("test", "validation"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--efforts", nargs="+", default=["quick", "normal", "best"])
    parser.add_argument("--features", action="store_true")
    options = parser.parse_args()
    features = read_features(options.data) if options.features else {}
    about = {
        "data": options.data,
        "on": options.on,
        "device": options.device,
        "features": options.features,
    }
    for part in options.parts:
        split = make_split(options.data, part, on=options.on)
        for effort in options.efforts:
            line = {"benchmark": "effort", "effort": effort, "part": part} | about
            found = measure(split, effort, options.device, features)
            print(json.dumps(line | found | machine(), default=str), flush=True)


if __name__ == "__main__":
    main()
