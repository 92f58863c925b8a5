"""How often pooled 95 % intervals hold the truth: means, correlations and coefficients of tables with missing values.

Tables are drawn from a Gaussian of known parameters; "ordinal" cuts its columns into five levels, "mixed" makes one of
them a category. The columns of "curved" are curves of the first, which no Gaussian has; "skewed" has a lognormal column
x1, and x0 is x1 + x2 + x3 and noise. In each repetition some of the
cells of every column but the first are hidden, the table is completed m times, and the estimates of the tables
are pooled by Rubin's rules. Beside them: the complete tables before cells are hidden, whose intervals show chance in
this many repetitions; independent draws of each cell from one fit; "refits", draws around predictions of a model that
is fitted to a bootstrap sample for each table; scikit-learn's IterativeImputer with sample_posterior; chained trees
with m seeds, and miceforest.

The table of docs/sklearn.md is made of the lines that this prints, in results/benchmarks.jsonl.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from other_imputers import draw_by_miceforest, make_forest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from workload import machine

from deepmf.sklearn import DMFImputer, mask_entries, pool

KINDS = ("gaussian", "ordinal", "mixed", "curved", "skewed")
MECHANISMS = {"mcar": 1.0, "mar": 1.0, "mnar": 0.25}  # and the slope; that of values missing not at random is light
METHODS = ("complete", "impute_many", "independent", "refits", "IterativeImputer", "missForest-like", "miceforest")
N_COLUMNS = 6
CUTS = (-1.2, -0.4, 0.5, 1.3)
CATEGORIES = ("low", "middle", "high")

Estimates = dict[str, tuple[float, float]]  # each with its variance


def draw_table(kind: str, n_rows: int, random: np.random.Generator) -> pd.DataFrame:
    """Return a complete table of a kind; correlations fall with the distance of columns."""
    places = np.arange(N_COLUMNS)
    cells = random.multivariate_normal(np.zeros(N_COLUMNS), 0.6 ** np.abs(places[:, None] - places), size=n_rows)
    if kind == "curved":
        cause = random.uniform(-1.7, 1.7, n_rows)
        curves = [cause**2, np.sin(2 * cause), np.abs(cause), cause**3 / 3, np.cos(2 * cause)]
        cells = np.column_stack([cause, np.transpose(curves) + 0.3 * random.standard_normal((n_rows, len(curves)))])
    if kind == "skewed":
        cells[:, 1] = np.exp(cells[:, 1])
        cells[:, 0] = cells[:, 1:4].sum(axis=1) + random.standard_normal(n_rows)
    if kind == "ordinal":
        cells = np.digitize(cells, CUTS).astype(np.float64)
    table = pd.DataFrame(cells, columns=[f"x{number}" for number in range(N_COLUMNS)])
    if kind == "mixed":
        table["x2"] = np.array(CATEGORIES)[np.digitize(cells[:, 2], (-0.5, 0.6))]
    return table


def estimate(kind: str, table: pd.DataFrame) -> Estimates:
    """Return means (shares of a category), correlations (by Fisher's z) and coefficients.

    Coefficients are those of x0 on x1, x2 and x3; of curved tables, of x1 on x0 and its square.
    """
    n_rows = len(table)
    columns = {}
    for name in table.columns:
        if table[name].dtype.kind == "f":
            columns[name] = table[name].to_numpy()
        else:
            columns |= {f"{name} {each}": (table[name] == each).to_numpy(float) for each in ("low", "high")}
    found = {f"mean {name}": (float(x.mean()), float(x.var(ddof=1) / n_rows)) for name, x in columns.items()}
    del found["mean x0"]  # nothing is missing there
    for one, other in (("x0", "x1"), ("x1", "x3"), ("x3", "x4"), ("x4", "x5")):
        z = np.arctanh(np.corrcoef(columns[one], columns[other])[0, 1])
        found[f"correlation {one} {other}"] = float(z), 1.0 / (n_rows - 3)
    effect, causes = "x0", [name for name in columns if name[:2] in ("x1", "x2", "x3")]
    if kind == "curved":
        effect, causes, columns["x0 squared"] = "x1", ["x0", "x0 squared"], columns["x0"] ** 2
    design = np.column_stack([np.ones(n_rows), *(columns[name] for name in causes)])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ columns[effect]
    noise = np.sum(np.square(columns[effect] - design @ coefficients)) / (n_rows - design.shape[1])
    for place, name in enumerate(causes, start=1):
        found[f"coefficient {name}"] = float(coefficients[place]), float(noise * inverse[place, place])
    return found


def complete_many(method: str, model: str, table: pd.DataFrame, m: int, seed: int) -> Iterator[pd.DataFrame]:
    """Yield completed tables by a method; none where it cannot read the table."""
    if method == "complete":
        yield from (table, table)
    elif method == "impute_many":
        yield from DMFImputer(model, random_state=seed).fit(table).impute_many(table, m, seed=seed)
    elif method == "independent":
        imputer = DMFImputer(model, random_state=seed).fit(table)
        yield from (
            draw_independently(imputer, table, np.random.default_rng([17, seed, number])) for number in range(m)
        )
    elif table["x2"].dtype.kind != "f":
        return  # they read numbers alone
    elif method == "refits":
        gaussian = DMFImputer("gaussian", random_state=seed).fit(table)
        yield from (
            draw_around_refit(model, gaussian, table, np.random.default_rng([17, seed, number])) for number in range(m)
        )
    elif method == "miceforest":
        yield from (pd.DataFrame(each, columns=table.columns) for each in draw_by_miceforest(table, m, seed=seed))
    else:
        for number in range(m):
            own = 1000 * seed + number
            chained = IterativeImputer(sample_posterior=True, random_state=own)
            imputer = chained if method == "IterativeImputer" else make_forest(seed=own)
            yield pd.DataFrame(imputer.fit_transform(table), columns=table.columns)


def draw_independently(imputer: DMFImputer, table: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Return a table whose missing cells are predictions plus an error, each drawn by itself: no multiple imputation.

    Errors are those on cells that are hidden from the fitted imputer; for a predicted category, the category that was
    hidden there.
    """
    predicted = pd.DataFrame(imputer.transform(table), columns=table.columns)
    known = table.notna() & (random.random(table.shape) < 0.2)
    guessed = pd.DataFrame(imputer.transform(table.mask(known)), columns=table.columns)
    for name in table.columns:
        asked, tried = table[name].isna().to_numpy(), known[name].to_numpy()
        if predicted[name].dtype.kind == "f":
            errors = (table[name] - guessed[name]).to_numpy()[tried]
            predicted.loc[asked, name] += random.choice(errors, asked.sum())
            continue
        for category in predicted.loc[asked, name].unique():
            own = asked & (predicted[name] == category).to_numpy()
            hidden = table[name].to_numpy()[tried & (guessed[name] == category).to_numpy()]
            predicted.loc[own, name] = random.choice(hidden if hidden.size else [category], own.sum())
    return predicted


def draw_around_refit(
    model: str, gaussian: DMFImputer, table: pd.DataFrame, random: np.random.Generator
) -> pd.DataFrame:
    """Return a table of numbers completed by a model that is fitted to a bootstrap sample of the rows.

    To its predictions are added the errors that draws of a Gaussian have, those of a row together. Cells hidden in rows
    outside of the sample tell how large the errors of the model are beside those of the Gaussian.
    """
    sampled = random.integers(len(table), size=len(table))
    refit = DMFImputer(model, random_state=int(random.integers(1 << 31))).fit(table.iloc[sampled])
    fresh = table.drop(index=table.index[np.unique(sampled)])
    hidden = fresh.notna() & (random.random(fresh.shape) < 0.25)
    spreads = [((each.transform(fresh.mask(hidden)) - fresh)[hidden] ** 2).mean() for each in (refit, gaussian)]
    ratios = np.sqrt(spreads[0] / spreads[1]).fillna(1.0)
    drawn = next(gaussian.impute_many(table, 1, seed=int(random.integers(1 << 31))))
    expected, predicted = (pd.DataFrame(each.transform(table), columns=table.columns) for each in (gaussian, refit))
    return table.fillna(predicted + ratios * (drawn - expected))


def hide_cells(table: pd.DataFrame, mechanism: str, share: float, seed: int) -> pd.DataFrame:
    """Hide cells of all columns but the first; a category is hidden by its place in the order of categories."""
    codes = table.copy()
    if codes["x2"].dtype.kind != "f":
        codes["x2"] = codes["x2"].map({name: float(place) for place, name in enumerate(CATEGORIES)})
    hidden = mask_entries(codes, mechanism, share, slope=MECHANISMS[mechanism], seed=seed).hidden
    hidden[:, 0] = False
    return table.mask(hidden)


def measure(
    kind: str, mechanism: str, method: str, truth: dict[str, float], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the share of intervals that hold the truth, their width, and the bias in standard errors.

    Coverage is that of each estimate and the mean of each sort of estimates. Wide intervals hold the truth whatever the
    draws are, so coverage alone says little.
    """
    held: dict[str, list[bool]] = {name: [] for name in truth}
    errors, widths = ({name: list[float]() for name in truth} for _ in range(2))
    start = time.perf_counter()
    for repetition in range(options.repetitions):
        full = draw_table(kind, options.rows, np.random.default_rng([options.seed, repetition]))
        table = full if method == "complete" else hide_cells(full, mechanism, options.share, repetition)
        found = [
            estimate(kind, each) for each in complete_many(method, options.model, table, options.tables, repetition)
        ]
        if not found:
            return {}
        for name, value in truth.items():
            estimates, variances = zip(*(each[name] for each in found), strict=True)
            pooled = pool(estimates, variances, complete_df=options.rows - N_COLUMNS)
            lower, upper = pooled.interval(0.95)
            held[name].append(bool(lower <= value <= upper))
            errors[name].append(float((pooled.estimate - value) / pooled.standard_error))
            widths[name].append(float(upper - lower))
    shares = {name: float(np.mean(each)) for name, each in held.items()}
    sorts = {
        sort: float(np.mean([share for name, share in shares.items() if name.startswith(sort)]))
        for sort in ("mean", "correlation", "coefficient")
    }
    bias, width = ({name: float(np.mean(each)) for name, each in found.items()} for found in (errors, widths))
    seconds = time.perf_counter() - start
    return {"coverage": sorts, "estimates": shares, "bias": bias, "width": width, "seconds": seconds}


def main() -> None:
    """Print a line for every kind, mechanism and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.3, help="of the cells that are hidden")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="gaussian", help="auto compares candidates, which takes longer")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--mechanisms", nargs="*", default=list(MECHANISMS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = {name: getattr(options, name) for name in ("repetitions", "rows", "tables", "share", "model", "seed")}
    for kind in options.kinds:
        large = estimate(kind, draw_table(kind, 2_000_000, np.random.default_rng(99)))
        truth = {name: value for name, (value, _) in large.items()}
        for mechanism in options.mechanisms:
            for method in options.methods:
                if line := measure(kind, mechanism, method, truth, options):
                    named = {"benchmark": "coverage", "kind": kind, "mechanism": mechanism, "method": method}
                    print(json.dumps(named | sizes | line | machine()), flush=True)


if __name__ == "__main__":
    main()
