"""The map to [-1, 1] and back: arrays and tensors alike."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepmf.matrix.scale import Scale
from deepmf.matrix.unit_map import UnitMap

finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)
either = pytest.mark.parametrize("kind", [np.array, torch.tensor])


@given(st.tuples(finite, finite).filter(lambda ends: ends[0] < ends[1]))
def test_both_ends_are_exact(ends: tuple[float, float]) -> None:
    for numbers in (np.array(ends), torch.tensor(ends, dtype=torch.float64)):
        units: Any = UnitMap(*ends).to_unit(numbers)
        assert units.tolist() == [-1.0, 1.0]
        assert UnitMap(*ends).from_unit(units).tolist() == list(ends)


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
