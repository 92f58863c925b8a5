"""Scales: levels and intervals, to the unit interval and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from deepmf.errors import BadEntries, BadSetting, ConstantValues, OffScale
from deepmf.matrix.scale import ENCODINGS, MOST_LEVELS, Scale, UnitMap

finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)

levels = st.lists(finite, min_size=2, max_size=12, unique=True).map(sorted)


@given(levels)
def test_units_lie_inside_exact_at_both_ends_and_come_back(values: list[float]) -> None:
    scale = Scale(values)
    units = scale.to_unit(values)
    assert (units[0], units[-1]) == (-1.0, 1.0) and np.all(np.abs(units) <= 1)
    assert scale.from_unit([-1.0, 1.0]).tolist() == [values[0], values[-1]]
    tolerance = 1e-12 * max(values[-1] - values[0], 1.0) + 1e-9 * abs(values[0])
    np.testing.assert_allclose(scale.from_unit(units), values, atol=tolerance)
    np.testing.assert_array_equal(scale.nearest_level(scale.levels), scale.levels)


@pytest.mark.parametrize("low, high", [(1, 5), (0.5, 5), (-10, 10), (0, 2), (0.1, 0.7)])
def test_the_middle_is_zero(low: float, high: float) -> None:
    assert abs(Scale(low=low, high=high).to_unit((low + high) / 2)) < 1e-15


def test_halfway_goes_to_the_higher_level() -> None:
    scale = Scale([1, 2, 4])
    assert scale.nearest_level([1.5, 3.0, 1.4999, 2.9999]).tolist() == [2, 4, 1, 2]
    assert scale.nearest_level([-100, 100, np.inf, -np.inf]).tolist() == [1, 4, 4, 1]


@given(levels, st.lists(finite, min_size=1, max_size=20))
def test_nearest_level_is_nearest(values: list[float], points: list[float]) -> None:
    chosen = Scale(values).nearest_level(points)
    distances = np.abs(np.subtract.outer(points, values))
    np.testing.assert_allclose(np.abs(np.array(points) - chosen), distances.min(axis=1), atol=1e-9)


def test_inference() -> None:
    assert Scale.infer([5, 1, 3, 3]) == Scale([1, 3, 5])
    assert Scale.infer(np.arange(MOST_LEVELS)).levels is not None
    more = np.random.default_rng(0).permutation(np.arange(MOST_LEVELS + 1.0))
    assert Scale.infer(more) == Scale(low=0, high=MOST_LEVELS, bounded=False)
    late = np.ones(3_000_000)
    late[-1] = 2
    assert Scale.infer(late) == Scale([1, 2])
    late[-100:] = np.arange(100)
    late[5] = -7
    assert Scale.infer(late) == Scale(low=-7, high=99, bounded=False)
    with pytest.raises(BadEntries, match="entries"):
        Scale.infer([])


def test_one_value_is_allowed_with_a_warning() -> None:
    with pytest.warns(ConstantValues, match="value 3"):
        scale = Scale.infer([3, 3])
    assert scale.to_unit([3]).tolist() == [0.0]
    assert scale.from_unit([-1.0, 0.3, 1.0]).tolist() == [3.0, 3.0, 3.0]


def test_level_positions() -> None:
    assert Scale([0.5, 1, 4]).level_positions([4, 0.5, 1]).tolist() == [2, 0, 1]
    with pytest.raises(OffScale, match="level"):
        Scale([0.5, 1, 4]).level_positions([2])
    with pytest.raises(BadSetting, match="levels"):
        Scale(low=0, high=1).level_positions([0.5])


def test_holds() -> None:
    assert Scale([1, 2, 4]).holds([0, 1, 3, 4, 5]).tolist() == [False, True, False, True, False]
    inside = Scale(low=0, high=1).holds([-0.1, 0, 1, 1.1, np.nan])
    assert inside.tolist() == [False, True, True, False, False]


def test_words() -> None:
    assert str(Scale([1, 2, 3])) == "1 to 3 in steps of 1"
    assert str(Scale([0.5, 1.0, 1.5])) == "0.5 to 1.5 in steps of 0.5"
    assert str(Scale([1, 2, 5])) == "one of 1, 2, 5"
    assert str(Scale(low=-1, high=2.5)) == "-1 to 2.5"


def test_equality_and_immutability() -> None:
    assert Scale([1, 2]) == Scale([1.0, 2.0]) != Scale(low=1, high=2)
    assert len({Scale([1, 2]), Scale([1, 2])}) == 1
    with pytest.raises(AttributeError, match="immutable"):
        Scale([1, 2]).low = 0
    with pytest.raises(AttributeError, match="immutable"):
        Scale([1, 2]).lowest = 0  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="read-only"):
        Scale([1, 2]).levels[0] = 9  # type: ignore[index]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"levels": []}, "level"),
        ({"levels": np.arange(90.0)[::-1]}, "increase; got [^\n]*$"),
        ({"levels": [1, 1e308]}, "1e\\+307"),
        ({"low": -1e308, "high": 1e308}, "1e\\+307"),
        ({"levels": [1, 1]}, "increase"),
        ({"levels": [2, 1]}, "increase"),
        ({"levels": [1, np.nan]}, "finite"),
        ({"levels": ["a"]}, "numbers"),
        ({"levels": [1, 2], "low": 1}, "levels"),
        ({}, "levels="),
        ({"low": 2, "high": 1}, "low < high"),
        ({"low": 1}, "got 1 and None"),
        ({"low": "a", "high": 3}, "'a' and 3"),
        ({"low": np.int64(3), "high": np.timedelta64(4, "D")}, "got 3 and"),
        ({"levels": [[1, 2], [3]]}, "numbers"),
        ({"levels": [1, 2], "bounded": False}, "bounded"),
        ({"low": 0, "high": 1, "bounded": 0}, "bounded"),
    ],
)
def test_bad_scales(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        Scale(**arguments)  # type: ignore[arg-type]


def test_an_inferred_interval_bounds_nothing() -> None:
    values = np.random.default_rng(0).normal(size=500)
    scale = Scale.infer(values)
    assert scale == Scale(low=values.min(), high=values.max(), bounded=False)
    assert scale != Scale(low=scale.low, high=scale.high) and not scale.is_bounded
    assert scale.holds([-1e6, 0, 1e6, np.nan, np.inf]).tolist() == [True, True, True, False, False]
    assert scale.clip([-50, 50]).tolist() == scale.nearest_level([-50, 50]).tolist() == [-50, 50]
    assert scale.to_unit([-50, scale.low, scale.high, 50]).tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize("n_values", [80, 2000, (1 << 20) + 5])
def test_outliers_do_not_stretch_an_inferred_interval(n_values: int) -> None:
    values = np.random.default_rng(0).normal(size=n_values)
    clean = Scale.infer(values)
    assert (clean.low, clean.high) == pytest.approx((values.min(), values.max()), rel=0.1)
    values[0], values[-1] = -1e6, 100
    with_outliers = Scale.infer(values)
    assert -7 < with_outliers.low < -2 and 2 < with_outliers.high < 7


def test_a_tail_is_no_outlier() -> None:
    exponential = np.random.default_rng(0).exponential(size=1000)
    assert Scale.infer(exponential).high == exponential.max()
    mostly_zero = np.append(np.zeros(10_000), np.arange(1.0, 100.0))
    assert Scale.infer(mostly_zero) == Scale(low=0, high=99, bounded=False)


def test_inferring_again() -> None:
    inferred, some = Scale(low=0, high=100, bounded=False), np.array([3.0, 4.0, 7.0])
    assert inferred.infer_again(some) == Scale(low=3, high=7, bounded=False)
    assert (
        inferred.infer_again(np.array([3.0, 3.0])) == inferred.infer_again(np.array([])) == inferred
    )
    for law in (Scale(low=0, high=100), Scale([3, 4, 7, 9])):
        assert law.infer_again(some) is law


either = pytest.mark.parametrize("kind", [np.array, torch.tensor])


@either
def test_arrays_and_tensors_are_mapped_as_the_scale_maps(kind: Any) -> None:
    scale, values = Scale(levels=[1, 2, 5]), [1.0, 2.0, 3.0, 5.0]
    units = scale.unit_map.to_unit(kind(values))
    assert units.tolist() == pytest.approx(scale.to_unit(values).tolist()) == [-1.0, -0.5, 0.0, 1.0]
    assert scale.unit_map.from_unit(units).tolist() == pytest.approx(values)


@either
def test_a_single_value_is_0_and_comes_back(kind: Any) -> None:
    only = Scale(levels=[2]).unit_map
    assert only.to_unit(kind([2.0, 7.0])).tolist() == [0.0, 0.0]
    assert only.from_unit(kind([-1.0, 0.3, 1.0])).tolist() == [2.0, 2.0, 2.0]


@either
@pytest.mark.parametrize("high", [1.0, 5.0])
def test_what_is_missing_stays_missing(kind: Any, high: float) -> None:
    assert np.isnan(UnitMap(1.0, high).to_unit(kind([float("nan")])).tolist()).all()


STARS = Scale(levels=[1, 2, 3, 4, 5])


def test_scaled_is_the_papers_footnote() -> None:
    # (value - mu) / ((beta - alpha) / 2) with mu the middle of the scale.
    scale, values = Scale(low=-40, high=60), [-40.0, -15.0, 10.0, 22.5, 60.0]
    expected = [(value - 10.0) / 50.0 for value in values]
    assert ENCODINGS["scaled"](scale, values).tolist() == expected == [-1.0, -0.5, 0.0, 0.25, 1.0]
    assert ENCODINGS["scaled"](STARS, [1, 2, 3, 4, 5]).tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
