"""Search spaces: every model has one, of settings it has and values it takes, around its defaults."""

import pytest

from deepmf.models.registry import HOMES, model_class
from deepmf.tuning.space import SPACES, Choice, Factors, Range
from deepmf.tuning.study import _value

DIMENSIONS = [(model, name) for model, space in SPACES.items() for name in space]


def test_every_model_has_a_space() -> None:
    assert SPACES.keys() == HOMES.keys()
    assert all(SPACES.values())


@pytest.mark.parametrize(("model", "name"), DIMENSIONS)
def test_the_model_takes_every_end_and_option(model: str, name: str) -> None:
    dimension = SPACES[model][name]
    values = dimension.options if isinstance(dimension, Choice) else (dimension.low, dimension.high)
    for value in values:
        assert getattr(model_class(model)(**{name: value}).settings, name) == value


@pytest.mark.parametrize(("model", "name"), DIMENSIONS)
def test_the_default_is_inside_and_is_not_rounded_away(model: str, name: str) -> None:
    dimension, default = SPACES[model][name], getattr(model_class(model)().settings, name)
    assert dimension.holds(default)
    assert _value(dimension, repr(default) if isinstance(dimension, Choice) else default) == default


def test_what_a_dimension_holds() -> None:
    assert Range(1, 5).whole
    assert not Range(1.0, 5).whole
    assert [Range(1, 5).holds(value) for value in (1, 5, 0, 2.5, None)] == [True, True, False, False, False]
    assert [Factors(0.1, 5.0).holds(value) for value in (0.1, 2, 6.0)] == [True, True, False]
    assert [Choice(((1,), (2, 3))).holds(value) for value in ((2, 3), 1)] == [True, False]
