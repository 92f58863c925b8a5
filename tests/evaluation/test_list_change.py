"""What another model would change in the list of one row."""

from __future__ import annotations

import polars as pl

from deepmf.datasets import generate
from deepmf.evaluation import compare_lists
from deepmf.models.als import ALS
from deepmf.models.means import Means


def test_two_models_side_by_side_for_one_row() -> None:
    ratings = generate(60, 40, density=0.3, seed=0).matrix
    row, models = ratings.row_labels[3], (Means(seed=0).fit(ratings), ALS(seed=0).fit(ratings))
    change = compare_lists(*models, row, n=6, rank_by="value")
    first, second = (
        set(model.recommend(row, n=6, rank_by="value").labels.tolist()) for model in models
    )
    assert (set(change.kept), set(change.gone), set(change.new)) == (
        first & second,
        first - second,
        second - first,
    )
    assert (
        change.new and change.gone and f"{len(change.kept)} of 6" in change.describe("means", "als")
    )
    frame = change.to_frame().filter(pl.col("place_after") == 1)
    assert (
        frame["column"].item() == change.after.labels[0]
        and frame["value_after"].item() == change.after.values[0]
    )
    places, before, after = zip(*change.list_cells(), strict=True)
    assert places == tuple("123456") and sum("(gone)" in cell for cell in before) == len(
        change.gone
    )
    assert sum("(new)" in cell for cell in after) == len(change.new) and after[0].startswith(
        change.after.labels[0]
    )


def test_the_same_model_changes_nothing_and_names_are_shown() -> None:
    ratings = generate(60, 40, density=0.3, seed=0).matrix
    row, model = ratings.row_labels[3], Means(seed=0).fit(ratings)
    first = model.recommend(row, n=1).labels[0]
    change = compare_lists(model, model.with_names(columns={first: "The first"}), row)
    assert not change.gone and not change.new and change.kept == change.after.labels.tolist()
    lines = change.list_cells()
    assert lines[0] == ["1", first, "The first"] and all(
        before == after for _, before, after in lines[1:]
    )
