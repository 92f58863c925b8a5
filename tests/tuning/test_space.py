"""Search spaces: every model has one, of settings it has and values it takes, around its defaults."""

from typing import Any

import pytest

from deepmf.errors import BadSetting
from deepmf.models.means_settings import MeansSettings
from deepmf.models.registry import HOMES, model_class, settings_class
from deepmf.training.declarations import rule_of
from deepmf.tuning.space import (
    SEARCHED,
    Choice,
    Dimension,
    Factors,
    Range,
    Space,
    completed,
    space_of,
    space_with_features,
)
from deepmf.tuning.study import _value

SPACES: dict[str, Space] = {model: space_of(model) for model in SEARCHED}
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


@pytest.mark.parametrize(("model", "name"), DIMENSIONS)
def test_no_end_of_a_setting_is_written_twice(model: str, name: str) -> None:
    written, ends = SEARCHED[model][name], rule_of(settings_class(model), name).to_dict()
    if isinstance(written, Choice):
        assert list(written.options) != ends.get("choices")
    else:
        assert written.low != ends.get("low") and written.high != ends["high"]


@pytest.mark.parametrize(
    ("model", "name", "given", "expected"),
    [
        ("odmc", "margin", Range(), Range(0.0, 0.5)),
        ("dmf", "dropout", Range(high=0.5), Range(0.0, 0.5)),
        ("dmf", "dropout", Range(low=0.5), Range(0.5, 0.99)),
        ("als", "latent_size", Factors(high=8), Factors(1, 8)),
        ("dmf-o", "bins", Range(), Range(2, 1 << 16)),
        ("u-cf-nade", "normalise", Choice(), Choice(("none", "root", "count"))),
        ("u-cf-nade", "normalise", Choice(("root",)), Choice(("root",))),
    ],
)
def test_what_is_left_out_is_the_settings_own(model: str, name: str, given: Dimension, expected: Dimension) -> None:
    found = completed({name: given}, model)[name]
    assert found == expected
    assert not isinstance(found, Range) or not isinstance(expected, Range) or found.whole == expected.whole


@pytest.mark.parametrize(
    ("model", "space", "message"),
    [
        ("als", {"penalty": Range(high=1.0)}, "penalty can only be searched between two ends, as in Range(0.0, 10.0)"),
        ("als", {"epochs": Range(1)}, "epochs can only be searched between two ends, as in Range(0.0, 10.0)"),
        (
            "als",
            {"count_power": Factors()},
            "count_power can only be searched between two ends, above 0, as in",
        ),
        ("dmf", {"hidden_sizes": Choice()}, "hidden_sizes has no words of its own to choose from; give values"),
        ("dmf", {"dropout": Range(0.0, 2.0)}, "dropout must be a number at least 0 and at most 0.99; got 2.0"),
        ("dmf", {"latent_size": Range(1.0, 9.0)}, "latent_size must be a whole number of at least 1; got 1.0"),
        ("dmf", {"loss": Choice(("root", "sum"))}, "loss must be 'root' or 'mean'; got 'sum'"),
    ],
)
def test_spaces_that_cannot_be_searched(model: str, space: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        completed(space, model)
    assert str(caught.value).startswith(message)


def test_what_a_dimension_holds() -> None:
    assert Range(1, 5).whole
    assert not Range(1.0, 5).whole
    assert [Range(1, 5).holds(value) for value in (1, 5, 0, 2.5, None)] == [True, True, False, False, False]
    assert [Factors(0.1, 5.0).holds(value) for value in (0.1, 2, 6.0)] == [True, True, False]
    assert [Choice(((1,), (2, 3))).holds(value) for value in ((2, 3), 1)] == [True, False]


def test_what_features_weigh_is_searched_where_it_is_a_setting() -> None:
    assert space_with_features("als") == {**space_of("als"), "feature_penalty": Factors(0.3, 300.0)}
    assert space_with_features("dmf-o") == space_of("dmf-o")
    assert space_with_features("means")["feature_penalty"].holds(MeansSettings().feature_penalty)
