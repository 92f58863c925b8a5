"""How often pooled 95 % intervals hold the truth: means, correlations and coefficients of tables with missing values.

Tables are drawn from a Gaussian of known parameters; "ordinal" cuts its columns into five levels, "mixed" makes one of
them a category. In each repetition three tenths of the cells of every column but the first are hidden, the table is
completed m times, and the estimates of the completed tables are pooled by Rubin's rules. Beside them: independent
draws of each cell from one fit, and scikit-learn's IterativeImputer with sample_posterior.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from workload import machine

from deepmf.sklearn import DMFImputer, mask_entries, pool

KINDS = ("gaussian", "ordinal", "mixed")
MECHANISMS = {"mcar": 1.0, "mar": 1.0, "mnar": 0.25}  # and the slope; that of values missing not at random is light
SHARE = 0.3
CUTS = (-1.2, -0.4, 0.5, 1.3)
METHODS = ("impute_many", "independent", "IterativeImputer")

Estimates = dict[str, tuple[float, float]]  # each with its variance


def covariance(n_columns: int) -> npt.NDArray[np.float64]:
    """Return correlations that fall with the distance of columns."""
    places = np.arange(n_columns)
    return np.asarray(0.6 ** np.abs(places[:, None] - places))


def draw_table(kind: str, n_rows: int, n_columns: int, random: np.random.Generator) -> pd.DataFrame:
    """Return a complete table of a kind."""
    cells = random.multivariate_normal(np.zeros(n_columns), covariance(n_columns), size=n_rows)
    if kind == "ordinal":
        cells = np.digitize(cells, CUTS).astype(np.float64)
    table = pd.DataFrame(cells, columns=[f"x{number}" for number in range(n_columns)])
    if kind == "mixed":
        table["x2"] = np.array(["low", "middle", "high"])[np.digitize(cells[:, 2], (-0.5, 0.6))]
    return table


def estimate(table: pd.DataFrame) -> Estimates:
    """Return the mean of x1, the correlation of x3 and x4 (by Fisher's z), and the coefficients of x0 on x1, x2, x3."""
    n_rows = len(table)
    x0, x1, x3, x4 = (table[name].to_numpy(dtype=np.float64) for name in ("x0", "x1", "x3", "x4"))
    if table["x2"].dtype.kind == "f":
        x2 = [table["x2"].to_numpy()]
    else:
        x2 = [(table["x2"] == name).to_numpy(dtype=np.float64) for name in ("low", "high")]
    design = np.column_stack([np.ones(n_rows), x1, *x2, x3])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ x0
    noise = np.sum(np.square(x0 - design @ coefficients)) / (n_rows - design.shape[1])
    found = {
        "mean": (float(x1.mean()), float(x1.var(ddof=1) / n_rows)),
        "correlation": (float(np.arctanh(np.corrcoef(x3, x4)[0, 1])), 1.0 / (n_rows - 3)),
    }
    for number in range(1, design.shape[1]):
        found[f"coefficient {number}"] = (float(coefficients[number]), float(noise * inverse[number, number]))
    return found


def complete_many(method: str, model: str, table: pd.DataFrame, m: int, seed: int) -> Iterator[pd.DataFrame]:
    """Yield completed tables by a method."""
    if method == "impute_many":
        yield from DMFImputer(model, random_state=seed).fit(table).impute_many(table, m, seed=seed)
    elif method == "independent":
        imputer = DMFImputer(model, sample=True, random_state=seed).fit(table)
        yield from (draw_independently(imputer, table, np.random.default_rng([seed, number])) for number in range(m))
    else:
        coded = table.copy()
        if coded["x2"].dtype.kind != "f":
            return  # it reads numbers alone
        for number in range(m):
            imputer = IterativeImputer(sample_posterior=True, random_state=1000 * seed + number)
            yield pd.DataFrame(imputer.fit_transform(coded), columns=coded.columns)


def draw_independently(imputer: DMFImputer, table: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Return a table completed by one draw of each cell, from one fit: no multiple imputation."""
    joint, imputer._draws = imputer._draws, None
    try:
        drawn = imputer._complete(table, imputer._read(table, reset=False), random, None)
    finally:
        imputer._draws = joint
    return drawn if isinstance(drawn, pd.DataFrame) else pd.DataFrame(drawn, columns=table.columns)


def hide_cells(table: pd.DataFrame, mechanism: str, seed: int) -> pd.DataFrame:
    """Hide cells of all columns but the first; a category is hidden by its place in the order of categories."""
    codes = table.copy()
    if codes["x2"].dtype.kind != "f":
        codes["x2"] = codes["x2"].map({"low": 0.0, "middle": 1.0, "high": 2.0})
    hidden = mask_entries(codes, mechanism, SHARE, slope=MECHANISMS[mechanism], seed=seed).hidden
    hidden[:, 0] = False
    return table.mask(hidden)


def measure(kind: str, mechanism: str, method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the share of intervals that hold the truth, of each estimate."""
    truth = {
        name: value
        for name, (value, _) in estimate(
            draw_table(kind, 1_000_000, options.columns, np.random.default_rng(99))
        ).items()
    }
    held: dict[str, list[bool]] = {name: [] for name in truth}
    widths: dict[str, list[float]] = {name: [] for name in truth}
    start = time.perf_counter()
    for repetition in range(options.repetitions):
        random = np.random.default_rng([7, repetition])
        full = draw_table(kind, options.rows, options.columns, random)
        table = hide_cells(full, mechanism, repetition)
        found = [estimate(each) for each in complete_many(method, options.model, table, options.tables, repetition)]
        if not found:
            return {}
        for name, value in truth.items():
            estimates, variances = zip(*(each[name] for each in found), strict=True)
            lower, upper = pool(estimates, variances, complete_df=options.rows - len(truth)).interval(0.95)
            held[name].append(bool(lower <= value <= upper))
            widths[name].append(float(upper - lower))
    shares = {name: float(np.mean(each)) for name, each in held.items()}
    return {
        "kind": kind,
        "mechanism": mechanism,
        "method": method,
        "coverage": shares,
        "mean coverage": float(np.mean(list(shares.values()))),
        "width": {name: float(np.mean(each)) for name, each in widths.items()},
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    """Print a line for every kind, mechanism and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument(
        "--model", default="gaussian", help="auto chooses among candidates, which takes ten times as long"
    )
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--mechanisms", nargs="*", default=list(MECHANISMS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(json.dumps({"benchmark": "coverage", **machine(), **vars(options)}))
    for kind in options.kinds:
        for mechanism in options.mechanisms:
            for method in options.methods:
                line = measure(kind, mechanism, method, options)
                if line:
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
