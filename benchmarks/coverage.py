"""How often pooled 95 % intervals hold the truth: means, correlations and coefficients of tables
with missing values.

Tables are drawn from a Gaussian of known parameters; "ordinal" cuts its columns into five levels,
"mixed" makes one of them a category, rows of "heavy" have the tails of Student's t (5), and those
of "clustered" share effects by tens. The columns of "curved" are curves of the first, which no
Gaussian has; "skewed" has a lognormal column x1, and x0 is x1 + x2 + x3 and noise. In each
repetition some of the cells of every column but the first are hidden, the table is completed m
times, and the estimates of the tables are pooled by Rubin's rules. Beside them: the complete tables
before cells are hidden, whose intervals show chance in this many repetitions; scikit-learn's
IterativeImputer with sample_posterior; chained trees with m seeds, and miceforest.

The table of docs/sklearn.md is made of the lines that this prints, in results/benchmarks.jsonl.
"""

import argparse
import itertools
import json
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from other_imputers import draw_by_miceforest, make_forest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from workload import machine

from deepmf.sklearn import DMFImputer, mask_entries, pool

KINDS = ("gaussian", "ordinal", "mixed", "curved", "skewed", "heavy", "clustered")
# and the slope; that of values missing not at random is light
MECHANISMS = {"mcar": 1.0, "mar": 1.0, "mnar": 0.25}
METHODS = ("complete", "impute_many", "IterativeImputer", "missForest-like", "miceforest")
N_COLUMNS = 6
CLUSTER = 10  # rows of a cluster
CUTS = (-1.2, -0.4, 0.5, 1.3)
CATEGORIES = ("low", "middle", "high")

Estimates = dict[str, tuple[float, float]]  # each with its variance


def draw_table(kind: str, n_rows: int, random: np.random.Generator) -> pd.DataFrame:
    """Return a complete table of a kind; correlations fall with the distance of columns."""
    places = np.arange(N_COLUMNS)
    cells = random.multivariate_normal(
        np.zeros(N_COLUMNS), 0.6 ** np.abs(places[:, None] - places), size=n_rows
    )
    if kind == "curved":
        cause = random.uniform(-1.7, 1.7, n_rows)
        curves = [cause**2, np.sin(2 * cause), np.abs(cause), cause**3 / 3, np.cos(2 * cause)]
        cells = np.column_stack(
            [cause, np.transpose(curves) + 0.3 * random.standard_normal((n_rows, len(curves)))]
        )
    if kind == "skewed":
        cells[:, 1] = np.exp(cells[:, 1])
        cells[:, 0] = cells[:, 1:4].sum(axis=1) + random.standard_normal(n_rows)
    if kind == "heavy":
        cells *= np.sqrt(5 / random.chisquare(5, size=(n_rows, 1)))
    if kind == "clustered":
        cells += np.repeat(
            0.5 * random.standard_normal((n_rows // CLUSTER, N_COLUMNS)), CLUSTER, axis=0
        )
    if kind == "ordinal":
        cells = np.digitize(cells, CUTS).astype(np.float64)
    table = pd.DataFrame(cells, columns=[f"x{number}" for number in range(N_COLUMNS)])
    if kind == "mixed":
        table["x2"] = np.array(CATEGORIES)[np.digitize(cells[:, 2], (-0.5, 0.6))]
    return table


def estimate(kind: str, table: pd.DataFrame) -> Estimates:
    """Return means (shares of a category), correlations (by Fisher's z) and coefficients.

    Coefficients are those of x0 on x1, x2 and x3; of curved tables, of x1 on x0 and its square.
    Variances are those of influence functions, summed by cluster, so that they hold for all kinds
    (White; Liang and Zeger).
    """
    columns = {}
    for name in table.columns:
        if table[name].dtype.kind == "f":
            columns[name] = table[name].to_numpy()
        else:
            columns |= {
                f"{name} {each}": (table[name] == each).to_numpy(float) for each in ("low", "high")
            }
    width = CLUSTER if kind == "clustered" else 1

    def with_variance(
        value: float, influences: npt.NDArray[np.float64], n_parameters: int
    ) -> tuple[float, float]:
        sums = influences.reshape(-1, width).sum(axis=1)
        share = len(sums) / (len(sums) - 1) * len(influences) / (len(influences) - n_parameters)
        return float(value), float(share * np.sum(np.square(sums)) / len(influences) ** 2)

    found = {
        f"mean {name}": with_variance(x.mean(), x - x.mean(), 1) for name, x in columns.items()
    }
    del found["mean x0"]  # nothing is missing there
    for one, other in (("x0", "x1"), ("x1", "x3"), ("x3", "x4"), ("x4", "x5")):
        u, v = (
            (columns[name] - columns[name].mean()) / columns[name].std() for name in (one, other)
        )
        r = np.mean(u * v)
        influences = (u * v - r * (u**2 + v**2) / 2) / (1 - r**2)
        found[f"correlation {one} {other}"] = with_variance(np.arctanh(r), influences, 3)
    effect, causes = "x0", [name for name in columns if name[:2] in ("x1", "x2", "x3")]
    if kind == "curved":
        effect, causes, columns["x0 squared"] = "x1", ["x0", "x0 squared"], columns["x0"] ** 2
    design = np.column_stack([np.ones(len(table)), *(columns[name] for name in causes)])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ columns[effect]
    # Residuals of influential rows are too small; those of HC3 are as if the row had been left out.
    residuals = (columns[effect] - design @ coefficients) / (
        1 - np.sum(design @ inverse * design, axis=1)
    )
    for place, name in enumerate(causes, start=1):
        influences = len(table) * residuals * (design @ inverse[place])
        found[f"coefficient {name}"] = with_variance(coefficients[place], influences, 0)
    return found


def complete_many(
    method: str, model: str, table: pd.DataFrame, m: int, seed: int
) -> Iterator[pd.DataFrame]:
    """Yield completed tables by a method; none where it cannot read the table."""
    if method == "complete":
        yield from (table, table)
    elif method == "impute_many":
        yield from DMFImputer(model, random_state=seed).fit(table).impute_many(table, m, seed=seed)
    elif table["x2"].dtype.kind != "f":
        return  # they read numbers alone
    elif method == "miceforest":
        yield from (
            pd.DataFrame(each, columns=table.columns)
            for each in draw_by_miceforest(table, m, seed=seed)
        )
    else:
        for number in range(m):
            own = 1000 * seed + number
            chained = IterativeImputer(sample_posterior=True, random_state=own)
            imputer = chained if method == "IterativeImputer" else make_forest(seed=own)
            yield pd.DataFrame(imputer.fit_transform(table), columns=table.columns)


def hide_cells(table: pd.DataFrame, mechanism: str, share: float, seed: int) -> pd.DataFrame:
    """Hide cells of all columns but the first; a category is hidden by its place in the order of
    categories."""
    codes = table.copy()
    if codes["x2"].dtype.kind != "f":
        codes["x2"] = codes["x2"].map({name: float(place) for place, name in enumerate(CATEGORIES)})
    hidden = mask_entries(codes, mechanism, share, slope=MECHANISMS[mechanism], seed=seed).hidden
    hidden[:, 0] = False
    return table.mask(hidden)


def pool_once(
    kind: str, mechanism: str, method: str, options: argparse.Namespace, repetition: int
) -> dict[str, tuple[float, float, float, float]]:
    """Return the pooled estimates of a repetition, each with its standard error and the ends of its
    interval."""
    full = draw_table(kind, options.rows, np.random.default_rng([options.seed, repetition]))
    table = full if method == "complete" else hide_cells(full, mechanism, options.share, repetition)
    found = [
        estimate(kind, each)
        for each in complete_many(method, options.model, table, options.tables, repetition)
    ]
    complete_df = options.rows / CLUSTER - 1 if kind == "clustered" else options.rows - N_COLUMNS
    pooled = {}
    for name in found[0] if found else ():
        estimates, variances = zip(*(each[name] for each in found), strict=True)
        result = pool(estimates, variances, complete_df=complete_df)
        lower, upper = result.interval(0.95)
        pooled[name] = (
            float(result.estimate),
            float(result.standard_error),
            float(lower),
            float(upper),
        )
    return pooled


def measure(
    kind: str, mechanism: str, method: str, truth: dict[str, float], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the share of intervals that hold the truth, their width, and the bias in standard
    errors.

    Coverage is that of each estimate and the mean of each sort of estimates. Wide intervals hold
    the truth whatever the draws are, so coverage alone says little.
    """
    start = time.perf_counter()
    repeat = partial(pool_once, kind, mechanism, method, options)
    if options.processes > 1:
        with multiprocessing.get_context("fork").Pool(options.processes) as workers:
            runs = workers.map(repeat, range(options.repetitions), chunksize=1)
    else:
        runs = [repeat(repetition) for repetition in range(options.repetitions)]
    if not all(runs):
        return {}
    held, errors, widths = ({name: list[float]() for name in truth} for _ in range(3))
    for run, (name, value) in itertools.product(runs, truth.items()):
        estimated, error, lower, upper = run[name]
        held[name].append(float(lower <= value <= upper))
        errors[name].append((estimated - value) / error)
        widths[name].append(upper - lower)
    shares = {name: float(np.mean(each)) for name, each in held.items()}
    sorts = {
        sort: float(np.mean([share for name, share in shares.items() if name.startswith(sort)]))
        for sort in ("mean", "correlation", "coefficient")
    }
    bias, width = (
        {name: float(np.mean(each)) for name, each in found.items()} for found in (errors, widths)
    )
    seconds = time.perf_counter() - start
    return {
        "coverage": sorts,
        "estimates": shares,
        "bias": bias,
        "width": width,
        "seconds": seconds,
    }


def main() -> None:
    """Print a line for every kind, mechanism and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.3, help="of the cells that are hidden")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="auto")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--mechanisms", nargs="*", default=list(MECHANISMS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sizes = {
        name: getattr(options, name)
        for name in ("repetitions", "rows", "tables", "share", "model", "seed")
    }
    for kind in options.kinds:
        large = estimate(kind, draw_table(kind, 2_000_000, np.random.default_rng(99)))
        truth = {name: value for name, (value, _) in large.items()}
        for mechanism in options.mechanisms:
            for method in options.methods:
                if line := measure(kind, mechanism, method, truth, options):
                    named = {
                        "benchmark": "coverage",
                        "kind": kind,
                        "mechanism": mechanism,
                        "method": method,
                    }
                    print(json.dumps(named | sizes | line | machine()), flush=True)


if __name__ == "__main__":
    main()
