"""The candidates: which suit a table of which shape, and that each can be fitted by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.matrix.scale import Scale
from deepmf.models import registry
from deepmf.models.registry import model_class
from deepmf.sklearn.blend import WHOLE_ROWS, Choice
from deepmf.sklearn.candidates import AUTO, MODELS, NEIGHBOURS, choose, list_candidates
from deepmf.sklearn.completers import ByMeans, ByModel, Completer
from deepmf.sklearn.table import ColumnUnits, TableEntries


def test_no_name_is_also_that_of_a_model() -> None:
    assert not set(WHOLE_ROWS) & set(registry.MODELS)
    assert set(MODELS) <= set(registry.MODELS)


WIDE = ("means", "als", NEIGHBOURS)


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "share", "own_units", "expected"),
    [
        (8, 500, 0.5, True, (AUTO,)),
        (100, 600, 0.8, True, (AUTO,)),
        (600, 1_300, 0.9, True, (AUTO,)),
        (1_000, 1_300, 0.5, True, WIDE),  # half of the cells to solve for in each row
        (8, 2_600, 0.5, True, WIDE),
        (400, 2_600, 0.1, True, MODELS),
        (8, 5, 0.5, False, MODELS),
    ],
)
def test_the_blend_is_for_tables_whose_covariance_is_learned_in_seconds(
    n_rows: int, n_columns: int, share: float, own_units: bool, expected: tuple[str, ...]
) -> None:
    observed = np.random.default_rng(0).random((n_rows, n_columns)) < share
    entries = TableEntries.of(np.where(observed, 1.0, np.nan))
    sources = np.arange(n_columns)
    assert list_candidates(AUTO, entries, sources, own_units=own_units) == expected
    assert list_candidates("als", entries, sources, own_units=own_units) == ("als",)
    if expected == WIDE:  # cells of several columns have no neighbours
        assert list_candidates(AUTO, entries, sources // 2, own_units=own_units) == MODELS


UNITS = Scale(low=-4, high=4)

QUICK: dict[str, dict[str, Any]] = {
    "dmf-o": {"epochs": 1, "hidden_sizes": (4,), "latent_size": 2, "views": 1, "linear_size": 0}
}


def fit(name: str, entries: TableEntries) -> Completer:
    matrix = entries.matrix(UNITS, column_labels=[f"x{at}" for at in range(entries.shape[1])])
    return ByModel(model_class(name)(**QUICK.get(name, {})).fit(matrix))


def choose_for(
    candidates: tuple[str, ...], entries: TableEntries, sources: Any, fit: Any
) -> Choice:
    return choose(
        candidates,
        entries,
        sources,
        fit,
        units=ColumnUnits.from_shared_scale(entries, UNITS),
        seed=0,
    )


def low_rank(n_rows: int, n_columns: int) -> npt.NDArray[np.float64]:
    random = np.random.default_rng(0)
    table = np.outer(random.normal(size=n_rows), np.linspace(-1, 1, n_columns))
    return np.clip(table, -4, 4)


@pytest.mark.slow
def test_the_model_that_predicts_hidden_cells_best_is_chosen() -> None:
    entries = TableEntries.of(low_rank(80, 8))
    choice = choose_for(("means", "als", "dmf-o"), entries, np.arange(8), fit)
    assert list(choice.errors) == ["means", "als", "dmf-o"]
    (best,) = choice.weights
    assert choice.errors[best] == min(choice.errors.values())
    two = choose_for(("means", "als"), entries, np.arange(8), fit)
    assert list(two.weights) == ["als"] and isinstance(two.completer, ByModel)
    assert two.completer.model.entries_.n_entries == entries.rows.size  # fitted to all in the end
    assert choice.residuals is not None
    assert choice.residuals.values.size == 128  # a fifth
    assert np.sqrt(np.mean(choice.residuals.values**2)) == choice.errors[best]


@pytest.mark.slow
def test_no_network_is_tried_on_few_cells() -> None:
    few = TableEntries.of(low_rank(20, 5))
    assert list(choose_for(("means", "als", "dmf-o"), few, np.arange(5), fit).errors) == [
        "means",
        "als",
    ]
    # asked for by name
    assert choose_for(("dmf-o",), few, np.arange(5), fit).weights == {"dmf-o": 1.0}


def test_the_columns_of_one_cell_are_hidden_together() -> None:
    table = low_rank(60, 6)
    sources = np.array([0, 0, 0, 1, 2, 3])

    def checking(name: str, entries: TableEntries) -> Completer:
        if entries.rows.size == table.size:  # the last fit
            return fit(name, entries)
        seen = np.zeros(table.shape, dtype=bool)
        seen[entries.rows, entries.columns] = True
        assert 0 < seen[:, 0].sum() < 60
        assert np.array_equal(seen[:, 0], seen[:, 1]) and np.array_equal(seen[:, 0], seen[:, 2])
        return fit(name, entries)

    choose_for(("means",), TableEntries.of(table), sources, checking)


def test_no_row_or_column_is_hidden_whole() -> None:
    table = np.where(np.random.default_rng(0).random((40, 8)) < 0.8, np.nan, low_rank(40, 8))
    entries = TableEntries.of(table)

    def checking(name: str, left: TableEntries) -> Completer:
        assert np.array_equal(np.unique(left.rows), np.unique(entries.rows))
        assert np.array_equal(np.unique(left.columns), np.unique(entries.columns))
        return fit(name, left)

    choose_for(("means",), entries, np.arange(8), checking)
    diagonal = TableEntries.of(np.where(np.eye(3) == 1, 1.0, np.nan))
    choice = choose_for(("means", "als"), diagonal, np.arange(3), fit)
    assert (choice.errors, choice.residuals) == ({}, None)


def test_a_fifth_is_hidden_and_of_large_tables_what_tells_enough() -> None:
    hidden = []  # by the first fit, and by that to all cells

    def noting(name: str, left: TableEntries) -> Completer:
        hidden.append(np.prod(left.shape) - left.rows.size)
        return ByMeans(np.zeros(left.shape[1]))

    for shape in ((40, 20), (4_000, 20)):
        choose_for(("means",), TableEntries.of(low_rank(*shape)), np.arange(shape[1]), noting)
    assert hidden == [160, 0, 10_000, 0]
