"""The candidates: which suit a table of which shape, and that each can be fitted by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.matrix.scale import Scale
from deepmf.models import registry
from deepmf.models.registry import model_class
from deepmf.sklearn.candidates import (
    MODELS,
    MOST_COLUMNS,
    WHOLE_ROWS,
    Residuals,
    blend,
    choose,
    explain_left_out,
    fit_whole_rows,
    list_suitable,
)
from deepmf.sklearn.completers import ByMeans, ByModel, Completer, Gaussians, WholeRows
from deepmf.sklearn.table import TableEntries


def test_two_gaussians_need_rows_enough_and_wide_tables_are_for_models() -> None:
    assert list_suitable((80, 10)) == WHOLE_ROWS
    assert set(WHOLE_ROWS) - set(list_suitable((79, 10))) == {"mixture"}
    assert list_suitable((10_000, 200)) == WHOLE_ROWS
    assert set(WHOLE_ROWS) - set(list_suitable((10_000, MOST_COLUMNS))) == {"mixture"}
    assert list_suitable((10_000, MOST_COLUMNS + 1)) == ()


@pytest.mark.parametrize("shape", [(80, 10), (79, 10), (10_000, 201), (10_000, MOST_COLUMNS + 1)])
def test_what_does_not_suit_is_left_out_with_a_reason(shape: tuple[int, int]) -> None:
    assert set(explain_left_out(shape)) == set(WHOLE_ROWS) - set(list_suitable(shape))
    assert all(str(shape[0]) in reason or str(shape[1]) in reason for reason in explain_left_out(shape).values())


def test_no_name_is_also_that_of_a_model() -> None:
    assert not set(WHOLE_ROWS) & set(registry.MODELS)
    assert set(MODELS) <= set(registry.MODELS)


@pytest.mark.parametrize("name", WHOLE_ROWS)
def test_each_completes_rows(name: str) -> None:
    column = np.linspace(-1.5, 1.5, 40)
    table = np.column_stack([column, 2 * column, -column])
    table[::4, 1] = np.nan
    completed = fit_whole_rows(name, table, seed=0).complete(table)
    np.testing.assert_allclose(completed[~np.isnan(table)], table[~np.isnan(table)])
    error = np.sqrt(np.mean(np.square(completed[::4, 1] - 2 * column[::4])))
    assert error == pytest.approx(np.std(2 * column), rel=0.1) if name == "column-means" else error < 0.6


UNITS = Scale(low=-4, high=4)

QUICK: dict[str, dict[str, Any]] = {"dmf-o": {"epochs": 1, "hidden_sizes": (4,), "latent_size": 2, "views": 1}}


def fit(name: str, entries: TableEntries, fitted: Any = None) -> Completer:
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
    (chosen,) = choice.weights
    assert choice.errors[chosen] == min(choice.errors.values())
    assert choose(("means", "als"), entries, np.arange(8), fit, seed=0).weights == {"als": 1.0}
    assert choice.residuals is not None
    assert choice.residuals.values.size == 128  # a fifth
    assert np.sqrt(np.mean(choice.residuals.values**2)) == choice.errors[chosen]


@pytest.mark.slow
def test_few_cells_are_hidden_in_turns_and_no_network_is_tried() -> None:
    tried = []

    def noting(name: str, entries: TableEntries, fitted: Any = None) -> Completer:
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

    def checking(name: str, entries: TableEntries, fitted: Any = None) -> Completer:
        seen = np.zeros(table.shape, dtype=bool)
        seen[entries.rows, entries.columns] = True
        assert 0 < seen[:, 0].sum() < 60
        assert np.array_equal(seen[:, 0], seen[:, 1]) and np.array_equal(seen[:, 0], seen[:, 2])
        return fit(name, entries)

    choose(("means",), TableEntries.of(table), sources, checking, seed=0)


def test_no_row_or_column_is_hidden_whole() -> None:
    table = np.where(np.random.default_rng(0).random((40, 8)) < 0.8, np.nan, low_rank(40, 8))
    entries = TableEntries.of(table)

    def checking(name: str, left: TableEntries, fitted: Any = None) -> Completer:
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

    def noting(name: str, left: TableEntries, fitted: Any = None) -> Completer:
        hidden.append(50 - np.bincount(left.rows))
        return ByMeans()

    choose(("means",), entries, np.arange(50), noting, seed=0)
    (counts,) = hidden
    assert counts.sum() == pytest.approx(10_000, rel=0.05)
    # Half of the rows lose a cell on average, and .98^50 of these lose none.
    assert counts[counts > 0].size == pytest.approx(10_000 * (1 - 0.98**50), rel=0.05)


def test_fewer_cells_of_larger_tables_are_hidden() -> None:
    shares = []

    def noting(name: str, left: TableEntries, fitted: Any = None) -> Completer:
        shares.append(1.0 - left.rows.size / np.prod(left.shape))
        return ByMeans()

    for shape in ((40, 20), (1_000, 20), (2_000, 50)):
        choose(("means",), TableEntries.of(low_rank(*shape)), np.arange(shape[1]), noting, seed=0)
    assert shares == pytest.approx([0.2, 0.1, 0.05], rel=0.05)


class Noisy(WholeRows):
    """Knows the whole table, and is off by its own noise."""

    def __init__(self, truth: npt.NDArray[np.float64], noise: npt.NDArray[np.float64]) -> None:
        self.truth, self.noise = truth, noise

    def complete(self, table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        same = (self.truth[None] == table[:, None]).any(axis=2)  # values are all different
        return (self.truth + self.noise)[same.argmax(axis=1)]


def test_a_blend_has_the_weights_that_predict_hidden_cells_best() -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=(300, 10))
    noises = {"one": 0.5 * random.normal(size=truth.shape), "two": 1.0 * random.normal(size=truth.shape)}
    noises["worse"] = noises["two"] + random.normal(size=truth.shape)

    def known(name: str, entries: TableEntries, fitted: Any = None) -> Completer:
        return Noisy(truth, noises[name])

    choice = blend(tuple(noises), TableEntries.of(truth), np.arange(10), known, seed=0)
    # The mean of two independent errors is least with weights by the inverse of their variances: 4 to 1.
    assert list(choice.weights) == ["one", "two"]
    assert choice.weights["one"] == pytest.approx(0.8, abs=0.04)
    assert sum(choice.weights.values()) == pytest.approx(1.0)
    assert choice.residuals is not None and choice.residuals.values.size == 1200  # 600 in each of two turns
    assert np.sqrt(np.mean(choice.residuals.values**2)) < 0.95 * choice.errors["one"]


def test_a_blend_of_what_cannot_be_compared_is_the_first_candidate() -> None:
    diagonal = TableEntries.of(np.where(np.eye(3) == 1, 1.0, np.nan))
    choice = blend(("means", "als"), diagonal, np.arange(3), fit, seed=0)
    assert (choice.weights, choice.errors, choice.residuals) == ({"means": 1.0}, {}, None)


def test_a_column_with_many_residuals_has_its_own() -> None:
    residuals = Residuals(np.repeat([0, 1, 2], [100, 100, 3]), np.repeat([0.1, 5.0, 9.0], [100, 100, 3]), np.zeros(203))
    np.testing.assert_array_equal(residuals.quantiles(np.array([1, 0, 0]), 0.5), [5.0, 0.1, 0.1])
    assert residuals.quantiles(np.array([2]), 1.0) == 9.0
    assert residuals.quantiles(np.array([2]), 0.0) == 0.1  # of all columns
    assert set(residuals.draw(np.array([1, 1]), np.random.default_rng(0))) == {5.0}


@pytest.mark.parametrize("n_parts", [1, 2])
def test_gaussians_of_similar_rows_save_passes(n_parts: int) -> None:
    random = np.random.default_rng(0)
    table = random.normal(size=(300, 2)) @ random.normal(size=(2, 6)) + 0.5 * random.normal(size=(300, 6))
    table[random.random(table.shape) < 0.3] = np.nan
    shown = np.where(random.random(table.shape) < 0.1, np.nan, table)
    options: dict[str, Any] = {"n_parts": n_parts, "shrinkage": 0.6}
    alone, start = Gaussians.fit(table, **options), Gaussians.fit(shown, **options)
    warm = Gaussians.fit(table, **options, start=start)
    assert warm.passes < alone.passes
    assert np.sqrt(np.mean(np.square(warm.complete(table) - alone.complete(table)))) < 0.1


def test_no_candidate_starts_from_another_turn_which_saw_the_hidden_cells() -> None:
    given: list[list[str]] = []

    def noting(name: str, entries: TableEntries, fitted: Any = None) -> Completer:
        given.append(list(fitted))
        return ByMeans()

    choice = blend(("one", "two"), TableEntries.of(low_rank(20, 5)), np.arange(5), noting, seed=0)
    assert given == [[], ["one"]] * 5
    assert list(choice.fitted) == ["one", "two"]
