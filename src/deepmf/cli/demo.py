"""`deepmf demo`: every step on generated ratings, from a matrix to recommendations for a new
row."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepmf.cli.options import Json, option
from deepmf.cli.output import check_writable, say, show_json, show_table

if TYPE_CHECKING:
    from deepmf.data.splits import AreaSplit
    from deepmf.data.synthetic import Generated
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model
    from deepmf.recommend.ranking import Ranking

# Less noise than the default of `generate` (1.3, where tastes spread by 1): with more, so few
# ratings tell little.
RATINGS: dict[str, Any] = {"n_rows": 1500, "n_columns": 700, "density": 0.1, "noise": 0.8}
SETTINGS: dict[str, Any] = {"effort": "quick"}
BEST = "OrdinalDMF"
NEWCOMER = "You"
NEWCOMER_STARS = (5, 1, 4, 5, 2, 1, 4, 5)


def demo(
    seed: Annotated[int, option("--seed N", "Random seed of the ratings.")] = 0,
    report: Annotated[Path, option("--report FILE", "Report to write.")] = Path("deepmf-demo.html"),
    as_json: Json = False,
) -> None:
    """Show every step on generated ratings.

    In a minute and offline, the demo fits means and OrdinalDMF, adds new rows and columns without
    training, compares the errors in all four areas with the lowest possible ones, recommends films
    to a new person, and writes a report.

    Example: deepmf demo --seed 1
    """
    from deepmf.data.splits import split_areas
    from deepmf.data.synthetic import generate
    from deepmf.evaluation.comparison import join_tests
    from deepmf.report.page import write_report
    from deepmf.training.threads import use_threads

    check_writable(report, inputs=())
    start = time.perf_counter()
    generated = generate(**RATINGS, seed=seed)
    split = split_areas(generated.matrix, new_rows=0.2, new_columns=0.2, seed=seed)
    if not as_json:
        say(
            "Generated ratings of made-up people and films "
            f"(spread of tastes 1, of noise {RATINGS['noise']:g}):\n\n"
            f"{generated.matrix.describe()}\n\n{_AREAS.format(**_count_entries(split))}"
        )
    # a network this small gains little from a second, and waits for it if it is busy
    with use_threads(1):
        best_model, methods = _fit_both(split, generated, seed=seed, quiet=as_json)
    entries = _rate_films(split.train)
    arrival = time.perf_counter()
    best = best_model.extend(entries).recommend(NEWCOMER, n=5, rank_by="relevance")
    milliseconds = 1000 * (time.perf_counter() - arrival)
    test = join_tests(list(split.test.values()))
    write_report(best_model, test, report, title=f"{BEST} on generated ratings")
    if as_json:
        show_json(
            {
                "seed": seed,
                "ratings": generated.matrix.describe().to_dict(),
                "entries": _count_entries(split),
                "generator": RATINGS,
                "settings": {BEST: SETTINGS},
                "report": str(report),
                "methods": methods,
                "newcomer": {
                    "entries": dict(entries.to_frame().select("column", "value").rows()),
                    "best": dict(zip(best.labels.tolist(), best.values.tolist(), strict=True)),
                    "milliseconds": milliseconds,
                },
                "seconds": time.perf_counter() - start,
            }
        )
        return
    lines = [[method["name"], *method["errors"].values()] for method in methods]
    heads = ["", *(f"area {area}" for area in split.test)]
    show_table(heads, lines, title="RMSE on test entries")
    say("\nThe error of the truth is the noise alone: no method can do better.\n")
    _show_newcomer(entries, best, milliseconds=milliseconds)
    say(f"\nThe report on {BEST} is in {report}: open it in a browser.\n{_NEXT_STEPS}")


def _fit_both(
    split: AreaSplit, generated: Generated, *, seed: int, quiet: bool
) -> tuple[Model, list[dict[str, Any]]]:
    """Fit and extend both models; return the better one, and the RMSE by area and the seconds of
    each method."""
    from deepmf.evaluation.areas import evaluate
    from deepmf.metrics import rmse_error
    from deepmf.models.means import Means
    from deepmf.models.ordinal.model import OrdinalDMF

    methods: list[dict[str, Any]] = []
    models: dict[str, Model] = {
        "means": Means(presence=None),  # only the best model recommends
        BEST: OrdinalDMF(**SETTINGS, seed=seed, device="cpu"),
    }
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(split.train, split.validation)
        seconds = time.perf_counter() - start
        extended = model.extend(split.extension)
        errors = {area: evaluate(extended, test)[0].rmse for area, test in split.test.items()}
        methods.append({"name": name, "errors": errors, "seconds": seconds})
        if not quiet:
            say(f"fitted {name} in {seconds:.1f} s")
    # The errors of the true means are the noise, which no model can predict.
    noise = {
        area: rmse_error(generated.truth.mean(*test.entries()[:2]), test.entries().values)
        for area, test in split.test.items()
    }
    return extended, [*methods, {"name": "the truth itself", "errors": noise, "seconds": 0.0}]


def _rate_films(train: ObservedMatrix) -> ObservedMatrix:
    import numpy as np

    from deepmf.matrix.matrix import ObservedMatrix

    popular = np.argsort(-train.column_counts, kind="stable")[: len(NEWCOMER_STARS)]
    films = train.column_labels[popular]
    return ObservedMatrix.from_entries(
        [NEWCOMER] * films.size, films, NEWCOMER_STARS[: films.size], train.scale
    )


def _count_entries(split: AreaSplit) -> dict[str, int]:
    parts = {"train": split.train, "validation": split.validation, "extension": split.extension}
    parts |= {f"test {area}": part for area, part in split.test.items()}
    return {name: part.n_entries for name, part in parts.items()}


_AREAS = """\
The four areas: {test I:,} entries to predict are in area I, of known rows and columns; {test II:,} in area II, of new \
rows; {test III:,} in area III, of new columns; {test IV:,} in area IV, where both are new.
Models train on {train:,} entries of area I; {validation:,} more are for early stopping.
Afterwards {extension:,} entries of areas II and III add new rows and columns, without training.
Entries of area IV are never inputs.
"""


def _show_newcomer(entries: ObservedMatrix, best: Ranking, *, milliseconds: float) -> None:
    films, stars = entries.column_labels.tolist(), entries.values.tolist()
    show_table(
        ["film", "stars"], zip(films, map(int, stars), strict=True), title="A new row: your ratings"
    )
    assert best.presence is not None and best.liked is not None  # as it is ranked by relevance
    lines = zip(
        best.labels.tolist(),
        best.values.tolist(),
        (best.presence * best.liked).tolist(),
        strict=True,
    )
    show_table(
        ["film", "stars predicted", "probability that you rate it and like it"],
        sorted(lines, key=lambda line: -line[2]),  # relevance may weigh liking differently
        title=f"Recommended by {BEST} after {milliseconds:.0f} ms, without training; ordered by the last column",
    )


_NEXT_STEPS = """
With your own file (a row, a column and a value per line):
  deepmf fit ratings.csv -o model.safetensors
  deepmf evaluate model.safetensors test.csv --report report.html
  deepmf predict model.safetensors pairs.csv -o predictions.csv --extend new_rows.csv
  deepmf recommend model.safetensors --row alice -n 10
  deepmf recommend model.safetensors --history me.csv -n 10
Or try it in a browser: deepmf serve --demo"""
