"""The candidates: which suit a table of which shape, and that each can be fitted by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.matrix.scale import Scale
from deepmf.models import registry
from deepmf.models.registry import model_class
from deepmf.sklearn.blend import MOST_COLUMNS, MOST_COLUMNS_OF_TREES, WHOLE_ROWS
from deepmf.sklearn.candidates import MODELS, choose, explain_left_out
from deepmf.sklearn.completers import ByMeans, ByModel, Completer
from deepmf.sklearn.table import TableEntries


@pytest.mark.parametrize(
    ("n_columns", "left_out"),
    [(MOST_COLUMNS_OF_TREES, set()), (MOST_COLUMNS, {"trees"}), (MOST_COLUMNS + 1, set(WHOLE_ROWS))],
)
def test_what_does_not_suit_is_left_out_with_a_reason(n_columns: int, left_out: set[str]) -> None:
    reasons = explain_left_out((1000, n_columns))
    assert set(reasons) == left_out
    assert all(str(n_columns) in reason for reason in reasons.values())


def test_no_name_is_also_that_of_a_model() -> None:
    assert not set(WHOLE_ROWS) & set(registry.MODELS)
    assert set(MODELS) <= set(registry.MODELS)


UNITS = Scale(low=-4, high=4)

QUICK: dict[str, dict[str, Any]] = {"dmf-o": {"epochs": 1, "hidden_sizes": (4,), "latent_size": 2, "views": 1}}


def fit(name: str, entries: TableEntries) -> Completer:
    matrix = entries.matrix(UNITS, column_labels=[f"x{at}" for at in range(entries.shape[1])])
    return ByModel(model_class(name)(**QUICK.get(name, {})).fit(matrix))


def low_rank(n_rows: int, n_columns: int) -> npt.NDArray[np.float64]:
    random = np.random.default_rng(0)
    table = np.outer(random.normal(size=n_rows), np.linspace(-1, 1, n_columns))
    return np.clip(table, -4, 4)


@pytest.mark.slow
def test_the_model_that_predicts_hidden_cells_best_is_chosen() -> None:
    entries = TableEntries.of(low_rank(80, 8))
    choice = choose(("means", "als", "dmf-o"), entries, np.arange(8), fit, seed=0)
    assert list(choice.errors) == ["means", "als", "dmf-o"]
    assert choice.errors[choice.name] == min(choice.errors.values())
    assert choose(("means", "als"), entries, np.arange(8), fit, seed=0).name == "als"
    assert choice.residuals is not None
    assert choice.residuals.values.size == 128  # a fifth
    assert np.sqrt(np.mean(choice.residuals.values**2)) == choice.errors[choice.name]


@pytest.mark.slow
def test_few_cells_are_hidden_in_turns_and_no_network_is_tried() -> None:
    tried = []

    def noting(name: str, entries: TableEntries) -> Completer:
        tried.append((name, entries.values.size))
        return fit(name, entries)

    choice = choose(("means", "als", "dmf-o"), TableEntries.of(low_rank(20, 5)), np.arange(5), noting, seed=0)
    assert tried == [("means", 80), ("als", 80)] * 5
    assert choice.residuals is not None and choice.residuals.values.size == 100
    tried.clear()
    choose(("dmf-o",), TableEntries.of(low_rank(6, 5)), np.arange(5), noting, seed=0)
    assert {name for name, _ in tried} == {"dmf-o"}  # asked for by name


def test_the_columns_of_one_cell_are_hidden_together() -> None:
    table = low_rank(60, 6)
    sources = np.array([0, 0, 0, 1, 2, 3])

    def checking(name: str, entries: TableEntries) -> Completer:
        seen = np.zeros(table.shape, dtype=bool)
        seen[entries.rows, entries.columns] = True
        assert 0 < seen[:, 0].sum() < 60
        assert np.array_equal(seen[:, 0], seen[:, 1]) and np.array_equal(seen[:, 0], seen[:, 2])
        return fit(name, entries)

    choose(("means",), TableEntries.of(table), sources, checking, seed=0)


def test_no_row_or_column_is_hidden_whole() -> None:
    table = np.where(np.random.default_rng(0).random((40, 8)) < 0.8, np.nan, low_rank(40, 8))
    entries = TableEntries.of(table)

    def checking(name: str, left: TableEntries) -> Completer:
        assert np.array_equal(np.unique(left.rows), np.unique(entries.rows))
        assert np.array_equal(np.unique(left.columns), np.unique(entries.columns))
        return fit(name, left)

    choose(("means",), entries, np.arange(8), checking, seed=0)
    diagonal = TableEntries.of(np.where(np.eye(3) == 1, 1.0, np.nan))
    choice = choose(("means", "als"), diagonal, np.arange(3), fit, seed=0)
    assert (choice.errors, choice.residuals) == ({}, None)


@pytest.mark.slow
def test_a_large_table_hides_cells_of_some_rows() -> None:
    """A fiftieth of the cells of these rows, and no more of them than tells enough."""
    entries, hidden = TableEntries.of(low_rank(20_000, 50)), []

    def noting(name: str, left: TableEntries) -> Completer:
        hidden.append(50 - np.bincount(left.rows))
        return ByMeans(np.zeros(left.shape[1]))

    choose(("means",), entries, np.arange(50), noting, seed=0)
    (counts,) = hidden
    assert counts.sum() == pytest.approx(10_000, rel=0.05)
    # Half of the rows lose a cell on average, and .98^50 of these lose none.
    assert counts[counts > 0].size == pytest.approx(10_000 * (1 - 0.98**50), rel=0.05)


def test_fewer_cells_of_larger_tables_are_hidden() -> None:
    shares = []

    def noting(name: str, left: TableEntries) -> Completer:
        shares.append(1.0 - left.rows.size / np.prod(left.shape))
        return ByMeans(np.zeros(left.shape[1]))

    for shape in ((40, 20), (1_000, 20), (2_000, 50)):
        choose(("means",), TableEntries.of(low_rank(*shape)), np.arange(shape[1]), noting, seed=0)
    assert shares == pytest.approx([0.2, 0.1, 0.05], rel=0.05)
