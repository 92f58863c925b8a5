"""Settings: every bad one is refused with a sentence that says what would be right."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from deepmf.errors import BadSetting
from deepmf.models.dmf import DMFSettings
from deepmf.training.settings import (
    LARGEST,
    LARGEST_COUNT,
    WIDEST,
    Setting,
    Settings,
    StepDecaySettings,
    TrainingSettings,
    list_settings,
    setting,
    settings_dataclass,
)

NAN, INFINITY = float("nan"), float("inf")


def test_the_defaults_are_the_papers_codes() -> None:
    settings = DMFSettings()
    assert (settings.learning_rate, settings.decay, settings.decay_every, settings.epochs) == (
        1e-2,
        0.65,
        50,
        1000,
    )
    assert (settings.block_rows, settings.block_columns) == (300, 200)


def test_the_learning_rate_decays_every_so_many_epochs_or_at_those_given() -> None:
    every = StepDecaySettings(learning_rate=0.8, decay=0.5, decay_every=3)
    assert [every.find_learning_rate(epoch) for epoch in range(7)] == [
        0.8,
        0.8,
        0.8,
        0.4,
        0.4,
        0.4,
        0.2,
    ]
    given = StepDecaySettings(learning_rate=0.8, decay=0.5, decay_every=(1, 4, 5))
    assert [given.find_learning_rate(epoch) for epoch in range(7)] == [
        0.8,
        0.4,
        0.4,
        0.4,
        0.2,
        0.1,
        0.1,
    ]
    assert StepDecaySettings(decay_every=()).find_learning_rate(10**6) == 1e-2
    # As read from a file, which knows lists alone.
    assert StepDecaySettings.from_names(given.to_dict() | {"decay_every": [1, 4, 5]}) == given


def test_along_a_cosine_the_learning_rate_goes_down_to_nothing() -> None:
    settings = TrainingSettings(learning_rate=0.8, epochs=6)
    rates = [settings.find_learning_rate(epoch) for epoch in range(6)]
    root = 3**0.5 / 2
    assert rates == pytest.approx([0.8 * (1 + wave) / 2 for wave in (1, root, 0.5, 0, -0.5, -root)])
    # the end that no epoch reaches
    assert settings.find_learning_rate(6) == pytest.approx(0, abs=1e-15)
    assert TrainingSettings(learning_rate=0.8, epochs=1).find_learning_rate(0) == 0.8


@pytest.mark.parametrize(
    "name, nearest",
    [("epoch", "epochs"), ("learningrate", "learning_rate"), ("decayevery", "decay_every")],
)
def test_an_unknown_name_gets_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(BadSetting) as caught:
        StepDecaySettings.from_names({name: 3})
    assert str(caught.value) == f"there is no setting {name!r}; did you mean {nearest!r}?"


def test_from_names_checks_and_keeps() -> None:
    settings = TrainingSettings.from_names({"epochs": 7, "seed": 3})
    assert settings == TrainingSettings(epochs=7, seed=3)
    assert TrainingSettings.from_names(settings.to_dict()) == settings
    with pytest.raises(BadSetting, match="^epochs"):
        TrainingSettings.from_names({"epochs": 0})


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        TrainingSettings().epochs = 3  # type: ignore[misc]


@settings_dataclass
class Bread(Settings):
    """How bread is baked."""

    loaves: int = setting(3, "Number of loaves.", low=1, high=12)
    guests: int = setting(3, "Number of guests.", low=1)
    ovens: int | None = setting(None, "Number of ovens.", low=2, high=9)
    water: float = setting(0.7, "Water per flour.", low=0.0)
    rye: float = setting(0.2, "Share of rye.", low=0.0, high=0.5)
    heat: float = setting(200.0, "Temperature.", above=0.0)
    salt: float | None = setting(0.02, "Share of salt (none: to taste).", above=0.0, high=1.0)
    flour: str = setting("rye", "Kind of flour.", choices=("rye", "wheat"))
    folds: tuple[int, ...] = setting((2, 4), "Number of folds on each day.")
    layers: tuple[int, ...] = setting((1,), "Sizes of layers.", fewest=1)
    turn_every: int | tuple[int, ...] = setting(50, "Epochs between turns.", low=1)


@settings_dataclass
class Rolls(Bread):
    """How rolls are baked."""

    loaves: int = 8
    salt: float | None = None
    flour: str = setting("wheat", "Kind of flour for rolls.", choices=("wheat", "spelt"))


BREAD: dict[str, Setting] = {each.name: each for each in list_settings(Bread)}


@pytest.mark.parametrize(
    ("name", "values", "bounds"),
    [
        ("guests", "whole, 1 or more", {"low": 1, "high": LARGEST_COUNT}),
        ("ovens", "whole, 2 to 9, or none", {"low": 2, "high": 9}),
        ("water", "0 or more", {"low": 0.0, "high": LARGEST}),
        ("rye", "0 to 0.5", {"low": 0.0, "high": 0.5}),
        ("heat", "above 0", {"above": 0.0, "high": LARGEST}),
        ("salt", "above 0, at most 1, or none", {"above": 0.0, "high": 1.0}),
        ("flour", "rye, wheat", {"choices": ["rye", "wheat"]}),
        (
            "layers",
            "whole numbers, 1 to 1000000",
            {"low": 1, "high": WIDEST, "fewest": 1, "most": 100},
        ),
        ("turn_every", "whole, 1 or more, or increasing epochs", {"low": 1, "high": LARGEST_COUNT}),
    ],
)
def test_allowed_values_as_words_and_bounds(name: str, values: str, bounds: dict[str, Any]) -> None:
    assert BREAD[name].values == values
    assert BREAD[name].to_dict() == bounds


@pytest.mark.parametrize("name", BREAD)
def test_only_optional_settings_may_be_none(name: str) -> None:
    if name in ("ovens", "salt"):
        assert BREAD[name].check(None) is None
    else:
        with pytest.raises(BadSetting, match=f"^{name}"):
            BREAD[name].check(None)


@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("ovens", 9, 9),
        ("heat", 1, 1),
        ("flour", "wheat", "wheat"),
        ("folds", 7, (7,)),
        ("folds", [7, 8], (7, 8)),
        ("folds", (), ()),
        ("turn_every", 50, 50),
        ("turn_every", [24, 36], (24, 36)),
    ],
)
def test_good_values_are_stored(name: str, given: Any, stored: Any) -> None:
    assert BREAD[name].check(given) == stored


@pytest.mark.parametrize(
    ("name", "bad", "right"),
    [
        *(("ovens", bad, "whole, 2 to 9, or none") for bad in (1, 10, 2.0, "3", True, NAN, [3])),
        *(("heat", bad, "above 0") for bad in (NAN, "0.1", True, 0.0)),
        *(("heat", bad, "above 0, at most 1e+38") for bad in (1e39, INFINITY)),
        ("seed", 2**128, "whole, 0 or more, at most 3.40282e+38"),
        ("guests", 10**10, "whole, 1 or more, at most 1e+09"),
        *(("layers", bad, "whole numbers, 1 to 1000000") for bad in ((True,), (), (0,), 10**7)),
        *(
            ("turn_every", bad, "whole, 1 or more, or increasing epochs")
            for bad in (0, (1.0,), (0, 1), (3, 3))
        ),
        ("rye", 0.6, "0 to 0.5"),
        ("flour", "spelt", "one of rye, wheat"),
    ],
)
def test_bad_values_are_refused(name: str, bad: Any, right: str) -> None:
    with pytest.raises(BadSetting) as caught:
        BREAD[name].check(bad)
    assert str(caught.value) == f"{name} must be {right}; got {bad!r}"


def test_too_many_layers_are_counted() -> None:
    with pytest.raises(BadSetting) as caught:
        BREAD["layers"].check((1,) * 101)
    assert str(caught.value) == "layers must be at most 100 numbers; got 101"


def test_a_default_may_change_alone() -> None:
    assert (Rolls().loaves, Rolls().salt, Rolls(loaves=12).loaves) == (8, None, 12)
    assert {each.name: each for each in list_settings(Rolls)}["loaves"] == replace(
        BREAD["loaves"], default=8
    )
    with pytest.raises(BadSetting, match="loaves"):
        Rolls(loaves=13)


def test_the_nearest_declaration_holds() -> None:
    assert Rolls(flour="spelt").flour == "spelt"
    with pytest.raises(BadSetting, match="spelt"):
        Rolls(flour="rye")
    assert Bread(flour="rye", folds=[1]).folds == (1,)  # type: ignore[arg-type]


def test_a_bad_default_is_noticed() -> None:
    @settings_dataclass
    class NoBread(Bread):
        loaves: int = 0

    with pytest.raises(BadSetting, match="^loaves"):
        NoBread()


def test_a_setting_without_a_description_is_refused() -> None:
    with pytest.raises(TypeError, match="Slow.hours"):

        @settings_dataclass
        class Slow(Settings):
            hours: int = 3


def test_all_settings_are_listed() -> None:
    found = {each.name: each for each in list_settings(Rolls)}
    assert list(found) == list(BREAD)
    assert list(BREAD)[:2] == ["seed", "loaves"]
    assert [found[name].type for name in ("loaves", "salt", "folds")] == [
        "int",
        "float | None",
        "tuple[int, ...]",
    ]
    assert (found["loaves"].default, found["loaves"].description) == (8, "Number of loaves.")


def test_the_docstring_lists_every_setting_as_a_parameter() -> None:
    lines = (Rolls.__doc__ or "").splitlines()
    assert lines[:4] == ["How rolls are baked.", "", "Parameters", "----------"]
    for each in list_settings(Rolls):
        (place,) = (
            at for at, line in enumerate(lines) if line.startswith(f"{each.name} : {each.type}")
        )
        assert each.values in lines[place]
        assert lines[place + 1].strip() == each.description


def test_the_signature_has_types_and_defaults() -> None:
    shown = inspect.signature(Rolls, eval_str=True).parameters
    assert {name: (each.annotation, each.default) for name, each in shown.items()} == {
        each.name: (each.annotation, each.default) for each in list_settings(Rolls)
    }
