"""Errors of imputers on cells hidden from the tables that come with scikit-learn and from generated
ones.

Errors are root mean squares in standard deviations of the column, over two draws of the hidden
cells; the table of docs/sklearn.md is made of them. scikit-learn's imputers have their own
defaults, as ours have, and see standardised columns. Generated tables are of low rank, their
columns in units that differ by powers of ten, or a survey.

python benchmarks/imputers.py                        scikit-learn's imputers and our models
python benchmarks/imputers.py --others               IterativeImputer, other libraries (as far as
installed), and ours python benchmarks/imputers.py --large                time and peak memory at
100,000 rows x 200 columns python benchmarks/imputers.py --files FOLDER         absolute errors on
its csv files, by the protocol of GRAPE
"""

import argparse
import json
import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from other_imputers import find_imputers
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler
from workload import QUICK, machine

from deepmf.datasets import generate
from deepmf.metrics import rmse_error
from deepmf.sklearn.imputer import DMFImputer
from sklearn import datasets

SEEDS = (0, 1)
OURS = ("als", "dmf-o", "gaussian", "trees", "auto")
SETS = ("iris", "wine", "breast_cancer", "diabetes", "digits")
HIDDEN = 0.2  # of the cells of these
MOST_SECONDS = 300  # of a processor for a table by an imputer of another library


class Table(NamedTuple):
    """A full table, and the share of its cells that is hidden."""

    name: str
    cells: npt.NDArray[np.float64]
    hidden: float


class Standardised:
    """An imputer that sees standardised columns, and gives back the table's units."""

    def __init__(self, imputer: Any) -> None:
        self.imputer, self.scaler = imputer, StandardScaler()

    def fit_transform(self, table: npt.NDArray[Any]) -> Any:
        return self.scaler.inverse_transform(
            self.imputer.fit_transform(self.scaler.fit_transform(table))
        )


def imputers() -> dict[str, Any]:
    """Return every imputer by its name, not fitted; our own by the name of the model."""
    return {
        "SimpleImputer": SimpleImputer(keep_empty_features=True),
        "KNNImputer": Standardised(KNNImputer(keep_empty_features=True)),
        "IterativeImputer": Standardised(
            IterativeImputer(keep_empty_features=True, random_state=0)
        ),
    } | {name: DMFImputer(name, keep_empty_features=True, random_state=0) for name in OURS}


def other_imputers() -> dict[str, Any]:
    """Return imputers of other libraries beside IterativeImputer and our own, not fitted."""
    others = {name: Standardised(make()) for name, make in find_imputers().items()}
    return {name: imputers()[name] for name in ("auto", "IterativeImputer")} | others


def tables() -> Iterator[Table]:
    """Yield scikit-learn's tables, then generated ones."""
    for name in SETS:
        yield Table(name, getattr(datasets, f"load_{name}")().data, HIDDEN)
    for n_rows, n_columns, noise, hidden in ((1000, 20, 0.3, 0.5), (150, 30, 0.7, 0.4)):
        cells = generate_table(n_rows, n_columns, noise=noise, levels=None)
        units = 10.0 ** np.random.default_rng(0).uniform(-2, 4, n_columns)
        yield Table(f"generated, {n_rows} x {n_columns}", cells * units, hidden)
    yield Table(
        "generated survey, 400 x 60",
        generate_table(400, 60, noise=1.0, levels=(1, 2, 3, 4, 5)),
        0.8,
    )


def generate_table(
    n_rows: int, n_columns: int, *, noise: float, levels: Any
) -> npt.NDArray[np.float64]:
    """Return a full table of low rank."""
    settings: dict[str, Any] = {
        "rank": 3,
        "row_effect": 0.3,
        "popularity": 0.0,
        "selection": 0.0,
        "named": False,
    }
    made = generate(n_rows, n_columns, density=1.0, noise=noise, levels=levels, seed=0, **settings)
    return made.matrix.to_array()


class Measured(NamedTuple):
    """The error of an imputer, the seconds and the processor's seconds it took, and the model that
    it chose."""

    error: float
    seconds: float
    processor_seconds: float
    chosen: str


def measure(imputer: Any, table: Table, seed: int) -> Measured:
    """Hide cells, complete the table, and compare."""
    hidden = np.random.default_rng(seed).random(table.cells.shape) < table.hidden
    start, started = time.perf_counter(), time.process_time()
    completed = imputer.fit_transform(np.where(hidden, np.nan, table.cells))
    seconds, processor_seconds = time.perf_counter() - start, time.process_time() - started
    spreads = table.cells.std(axis=0)
    asked = hidden & (spreads > 0)
    units = np.where(spreads > 0, spreads, 1.0)
    error = rmse_error((completed / units)[asked], (table.cells / units)[asked])
    return Measured(error, seconds, processor_seconds, getattr(imputer, "chosen_model_", ""))


def measure_apart(imputer: Any, table: Table, seed: int) -> Measured | None:
    """Measure in a process of its own; None if it takes more than `MOST_SECONDS`, or fails."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        sender.send(measure(imputer, table, seed))

    process = context.Process(target=work)
    process.start()
    sender.close()
    try:
        return receiver.recv()  # type: ignore[no-any-return]
    except EOFError:
        return None
    finally:
        process.join()


def mean_of(runs: list[Measured], name: str, digits: int) -> float:
    """Return the mean of a field."""
    return round(float(np.mean([getattr(each, name) for each in runs])), digits)


def measure_large(
    n_rows: int = 100_000, n_columns: int = 200, share: float = 0.3
) -> dict[str, Any]:
    """Return seconds and peak memory of `fit`, `transform` and one table of `impute_many` on a
    table of rank 8."""
    random = np.random.default_rng(0)
    table = random.normal(size=(n_rows, 8)) @ random.normal(size=(8, n_columns))
    table += random.normal(size=table.shape)
    hidden = random.random(table.shape) < share
    truth, table[hidden] = table[hidden], np.nan
    imputer, seconds, processor_seconds = DMFImputer(random_state=0), {}, {}
    found: dict[str, float] = {"table_mb": round(table.nbytes / 2**20), "start_mb": _peak_mb()}
    runs: dict[str, Callable[[], Any]] = {
        "fit": lambda: imputer.fit(table),
        "transform": lambda: imputer.transform(table),
        "draw": lambda: next(imputer.impute_many(table, 1)),
    }
    for name, run in runs.items():
        start, started = time.perf_counter(), time.process_time()
        result = run()
        seconds[name] = round(time.perf_counter() - start, 1)
        processor_seconds[name] = round(time.process_time() - started, 1)
        found[f"{name}_mb"] = _peak_mb()
        if name == "transform":
            found["error"] = round(rmse_error(result[hidden], truth), 3)
    named = {"benchmark": "large_table", "rows": n_rows, "columns": n_columns, "hidden": share}
    costs = {"seconds": seconds, "processor_seconds": processor_seconds}
    return named | costs | {"weights": imputer.weights_} | found | machine()


def _peak_mb() -> float:
    """Return the peak memory of the process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure_file(path: Path, *, draws: int = 5, share: float = 0.3) -> dict[str, Any]:
    """Return mean absolute errors by the protocol of GRAPE (You et al., 2020), and processor
    seconds.

    Columns are scaled to [0, 1], and a share of all cells is hidden. "new rows" are 30 % of the
    rows that the fit does not see; "known rows" are the same rows when it sees all rows, and
    "known, fewer" when it sees them and as many rows as it does without them, so that rows are as
    many as for new ones.
    """
    cells = np.genfromtxt(path, delimiter=",", skip_header=1)
    cells = (cells - cells.min(axis=0)) / np.maximum(np.ptp(cells, axis=0), 1e-12)
    errors: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(draws):
        random = np.random.default_rng(seed)
        hidden = random.random(cells.shape) < share
        new = random.random(len(cells)) < 0.3
        table = np.where(hidden, np.nan, cells)
        for name, imputer in (
            ("mae", DMFImputer(metric="mae", random_state=0)),
            ("default", DMFImputer(random_state=0)),
            ("IterativeImputer", IterativeImputer(random_state=0)),
        ):
            started = time.process_time()
            off = np.abs(imputer.fit_transform(table) - cells)
            seconds.setdefault(name, []).append(time.process_time() - started)
            errors.setdefault(name, []).append(float(off[hidden].mean()))
            if name == "mae":
                errors.setdefault("known rows", []).append(float(off[new][hidden[new]].mean()))
        fewer = np.append(
            np.flatnonzero(new), random.permutation(np.flatnonzero(~new))[new.sum() :]
        )
        for name, rows in (("new rows", np.flatnonzero(~new)), ("known, fewer", np.sort(fewer))):
            extended = (
                DMFImputer(metric="mae", random_state=0).fit(table[rows]).transform(table[new])
            )
            errors.setdefault(name, []).append(
                float(np.abs(extended - cells[new])[hidden[new]].mean())
            )
    found = {
        "benchmark": "imputers_files",
        "table": path.stem,
        "shape": cells.shape,
        "draws": draws,
    }
    mean = {name: round(float(np.mean(each)), 4) for name, each in errors.items()}
    return found | {
        "mae": mean,
        "processor_seconds": {name: round(float(np.mean(e)), 2) for name, e in seconds.items()},
    }


def main() -> None:
    """Print a line of errors, and one for the record, for each table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--files", type=Path, metavar="FOLDER")
    parser.add_argument("--imputers", nargs="*", help="some of them")
    parser.add_argument("--tables", nargs="*", help="words in the names of some tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # the iterative imputer says where it has not converged
    torch.set_num_threads(1)
    if options.large:
        print(json.dumps(measure_large()))
        return
    if options.files:
        for path in sorted(options.files.glob("*.csv")):
            print(json.dumps(measure_file(path) | machine()), flush=True)
        return
    make, benchmark = (
        (other_imputers, "other_imputers") if options.others else (imputers, "imputers")
    )
    for table in tables():
        if QUICK and table.name != "iris":
            continue
        if options.tables and not any(word in table.name for word in options.tables):
            continue
        names = [name for name in make() if not options.imputers or name in options.imputers]
        measure_table = measure_apart if options.others else measure
        ended = {}
        for name in names:
            runs: list[Measured] = []
            for seed in SEEDS:
                found = measure_table(make()[name], table, seed)
                if found is None:
                    break
                runs.append(found)
            else:
                ended[name] = runs
        errors = {name: mean_of(runs, "error", 3) for name, runs in ended.items()}
        seconds = {name: mean_of(runs, "seconds", 2) for name, runs in ended.items()}
        processor_seconds = {
            name: mean_of(runs, "processor_seconds", 2) for name, runs in ended.items()
        }
        chosen = [each.chosen for each in ended.get("auto", [])]
        result = {
            "benchmark": benchmark,
            "table": table.name,
            "shape": table.cells.shape,
            "hidden": table.hidden,
        }
        result |= {
            "errors": errors,
            "seconds": seconds,
            "processor_seconds": processor_seconds,
            "chosen": chosen,
        }
        if unfinished := [name for name in names if name not in ended]:
            result |= {"unfinished": unfinished, "most_seconds": MOST_SECONDS}
        print(
            f"{table.name}: "
            + "  ".join(f"{name} {errors[name]:.3f} ({seconds[name]} s)" for name in ended)
        )
        print(json.dumps(result | machine()), flush=True)


if __name__ == "__main__":
    main()
