"""How values enter a branch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.scale import Scale

STARS = Scale(levels=[1, 2, 3, 4, 5])


def test_the_rules_by_name() -> None:
    assert list(ENCODINGS) == ["scaled", "raw"]
    assert all(rule.name == name for name, rule in ENCODINGS.items())


def test_scaled_is_the_papers_footnote() -> None:
    # (value - mu) / ((beta - alpha) / 2) with mu the middle of the scale.
    scale, values = Scale(low=-40, high=60), [-40.0, -15.0, 10.0, 22.5, 60.0]
    expected = [(value - 10.0) / 50.0 for value in values]
    assert ENCODINGS["scaled"].encode(scale, values).tolist() == expected == [-1.0, -0.5, 0.0, 0.25, 1.0]
    assert ENCODINGS["scaled"].encode(STARS, [1, 2, 3, 4, 5]).tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


@pytest.mark.parametrize("scale", [STARS, Scale(low=-40, high=60)])
def test_raw_is_the_value_itself(scale: Scale) -> None:
    values = np.array([1.0, 3.0, 5.0], dtype=np.float32)
    encoded = ENCODINGS["raw"].encode(scale, values)
    assert encoded.tolist() == [1.0, 3.0, 5.0]


@pytest.mark.parametrize("name", ENCODINGS)
def test_doubles_of_the_same_shape_and_the_values_stay(name: str) -> None:
    values = np.array([[1, 2, 3], [3, 4, 5]])
    encoded = ENCODINGS[name].encode(STARS, values)
    assert encoded.dtype == np.float64 and encoded.shape == (2, 3)
    assert values.tolist() == [[1, 2, 3], [3, 4, 5]]
    assert ENCODINGS[name].encode(STARS, []).shape == (0,)


@given(st.lists(st.floats(-7.25, 11.5), max_size=20))
def test_scaled_stays_in_the_interval_and_keeps_the_order(values: list[float]) -> None:
    encoded = ENCODINGS["scaled"].encode(Scale(low=-7.25, high=11.5), sorted(values))
    assert np.all(np.abs(encoded) <= 1) and np.all(np.diff(encoded) >= 0)


def test_a_scale_of_one_value_is_its_own_middle() -> None:
    assert ENCODINGS["scaled"].encode(Scale(levels=[4]), [4, 4]).tolist() == [0.0, 0.0]
