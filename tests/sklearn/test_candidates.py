"""The candidates: which suit a table of which shape, and that each can be fitted by its name."""

import numpy as np
import pytest

from deepmf.models.registry import HOMES
from deepmf.sklearn.candidates import MODELS, MOST_COLUMNS, WHOLE_ROWS, fitted, left_out, suitable


def test_two_gaussians_need_rows_enough_and_wide_tables_are_for_models() -> None:
    assert suitable((80, 10)) == WHOLE_ROWS
    assert set(WHOLE_ROWS) - set(suitable((79, 10))) == {"mixture"}
    assert suitable((10_000, 200)) == WHOLE_ROWS
    assert set(WHOLE_ROWS) - set(suitable((10_000, MOST_COLUMNS))) == {"mixture"}
    assert suitable((10_000, MOST_COLUMNS + 1)) == ()


@pytest.mark.parametrize("shape", [(80, 10), (79, 10), (10_000, 201), (10_000, MOST_COLUMNS + 1)])
def test_what_does_not_suit_is_left_out_with_a_reason(shape: tuple[int, int]) -> None:
    assert set(left_out(shape)) == set(WHOLE_ROWS) - set(suitable(shape))
    assert all(str(shape[0]) in reason or str(shape[1]) in reason for reason in left_out(shape).values())


def test_no_name_is_also_that_of_a_model() -> None:
    assert not set(WHOLE_ROWS) & set(HOMES)
    assert set(MODELS) <= set(HOMES)


@pytest.mark.parametrize("name", WHOLE_ROWS)
def test_each_completes_rows(name: str) -> None:
    column = np.linspace(-1.5, 1.5, 40)
    table = np.column_stack([column, 2 * column, -column])
    table[::4, 1] = np.nan
    completed = fitted(name, table, seed=0).completed(table)
    np.testing.assert_allclose(completed[~np.isnan(table)], table[~np.isnan(table)])
    error = np.sqrt(np.mean(np.square(completed[::4, 1] - 2 * column[::4])))
    assert error == pytest.approx(np.std(2 * column), rel=0.1) if name == "column-means" else error < 0.6
