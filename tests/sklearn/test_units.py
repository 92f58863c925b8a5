"""The units of columns: what a model sees, and what its answers mean."""

import numpy as np
import pytest

from deepmf.errors import ConstantValues
from deepmf.matrix.scale import Scale
from deepmf.sklearn.observed_table import TableEntries
from deepmf.sklearn.units import REACH, ColumnUnits

RANDOM = np.random.default_rng(0)
TABLE = np.column_stack([RANDOM.normal(50, 7, 30), RANDOM.integers(1, 4, 30), np.full(30, 0.1)])
TABLE[3, 0] = TABLE[5, 1] = np.nan
ENTRIES = TableEntries.of(TABLE)


def test_a_model_sees_standardised_columns() -> None:
    seen = ColumnUnits.own(ENTRIES).seen(ENTRIES)
    spreads = np.nanstd(TABLE, axis=0)
    expected = (TABLE - np.nanmean(TABLE, axis=0)) / np.where(spreads < 1e-9, 1, spreads)
    np.testing.assert_allclose(seen.values, TableEntries.of(expected).values, atol=1e-12)


def test_values_undo_what_a_model_sees() -> None:
    units = ColumnUnits.own(ENTRIES)
    np.testing.assert_allclose(units.values(units.seen(ENTRIES).values, ENTRIES.columns), ENTRIES.values, rtol=1e-12)
    other = units.seen(TableEntries((1, 3), np.array([0]), np.array([2]), np.array([0.3])))
    np.testing.assert_allclose(other.values, [0.2])  # not infinitely far from the column's only value
    constant = units.values(np.array([-3.0, 3.0]), np.array([2, 2]))
    assert constant.tolist() == [0.1, 0.1]


def test_what_lies_far_out_is_seen_at_the_end() -> None:
    units = ColumnUnits.own(ENTRIES)
    far = TableEntries((1, 3), np.array([0, 0]), np.array([0, 1]), np.array([1e9, -1e9]))
    assert units.seen(far).values.tolist() == [REACH, -REACH]
    ends = np.array([REACH, -REACH])
    assert units.values(ends, np.array([0, 0])).tolist() == [np.nanmax(TABLE[:, 0]), np.nanmin(TABLE[:, 0])]


def test_columns_have_levels_where_values_repeat() -> None:
    real, levels, constant = ColumnUnits.own(ENTRIES).column_scales
    assert real == Scale(low=np.nanmin(TABLE[:, 0]), high=np.nanmax(TABLE[:, 0]))
    assert levels == Scale([1, 2, 3])
    assert constant == Scale([0.1])
    nearest = ColumnUnits.own(ENTRIES).levels(np.array([1.4, 51.25, 2.6]), np.array([1, 0, 1]))
    assert nearest.tolist() == [1, 51.25, 3]


def test_a_shared_scale_leaves_values_as_they_are() -> None:
    stars = TableEntries.of(np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 4.0]]))
    units = ColumnUnits.shared(stars, None)
    assert units.scale == Scale([1, 2, 3, 4, 5])
    assert units.means.tolist() == [2, 4.5]
    np.testing.assert_array_equal(units.seen(stars).values, stars.values)
    assert ColumnUnits.shared(stars, Scale([1, 2, 3, 4, 5, 6])).scale.high == 6
    with pytest.warns(ConstantValues):
        ColumnUnits.shared(TableEntries.of(np.full((2, 2), 3.0)), None)
