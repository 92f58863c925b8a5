"""Settings: every bad one is refused with a sentence that says what would be right."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from deepmf.errors import BadSetting
from deepmf.models.dmf.dmf_settings import DMFSettings
from deepmf.training.settings import TrainingSettings

NAN, INFINITY = float("nan"), float("inf")

WHOLE = [("epochs", 1), ("validate_every", 1), ("patience", 1), ("seed", 0)]


def test_the_defaults_are_the_papers_codes() -> None:
    settings = DMFSettings()
    assert (settings.learning_rate, settings.decay, settings.decay_every, settings.epochs) == (1e-2, 0.65, 50, 1000)
    assert (settings.block_rows, settings.block_columns) == (300, 200)


@pytest.mark.parametrize("name", ["block_rows", "block_columns"])
def test_a_block_is_at_least_2_x_2(name: str) -> None:
    for bad in (1, 0, 2.0, True):
        with pytest.raises(BadSetting, match=f"^{name} must be a whole number of at least 2; got {bad!r}$"):
            DMFSettings(**{name: bad})


@pytest.mark.parametrize("name, low", WHOLE)
def test_whole_numbers(name: str, low: int) -> None:
    for value in (low, 10**6):
        assert getattr(TrainingSettings(**{name: value}), name) == value
    for bad in (low - 1, -5, 2.0, 2.5, "3", True, NAN, [3]):
        with pytest.raises(BadSetting) as caught:
            TrainingSettings(**{name: bad})
        assert str(caught.value) == f"{name} must be a whole number of at least {low}; got {bad!r}"


def test_every_number_has_an_end() -> None:
    for name in ("epochs", "validate_every", "patience", "decay_every"):
        assert getattr(TrainingSettings(**{name: 10**9}), name) == 10**9
        message = f"^{name} must be a whole number of at least 1 and at most 1000000000; got 1000000001$"
        with pytest.raises(BadSetting, match=message):
            TrainingSettings(**{name: 10**9 + 1})
    # As much as numpy draws where no seed is given.
    assert TrainingSettings(seed=2**128 - 1).seed == 2**128 - 1
    with pytest.raises(BadSetting, match=f"^seed must be a whole number of at least 0 and at most {2**128 - 1}; got"):
        TrainingSettings(seed=2**128)
    assert TrainingSettings(learning_rate=1e38).learning_rate == 1e38
    with pytest.raises(BadSetting, match="^learning_rate must be a number above 0; got"):
        TrainingSettings(learning_rate=-(10**400))
    assert DMFSettings(hidden_sizes=(1,) * 100).hidden_sizes == (1,) * 100
    with pytest.raises(BadSetting, match="^hidden_sizes must be at most 100 numbers; got 101$"):
        DMFSettings(hidden_sizes=(1,) * 101)


@pytest.mark.parametrize("name", [name for name, _ in WHOLE if name != "patience"])
def test_only_patience_may_be_none(name: str) -> None:
    assert TrainingSettings(patience=None).patience is None
    with pytest.raises(BadSetting, match=f"^{name} must be a whole number of at least [012]; got None$"):
        TrainingSettings(**{name: None})


@pytest.mark.parametrize("bad", [0, 0.0, -1e-3, NAN, INFINITY, -INFINITY, "0.1", None, True])
def test_bad_learning_rates(bad: Any) -> None:
    with pytest.raises(BadSetting) as caught:
        TrainingSettings(learning_rate=bad)
    assert str(caught.value) == f"learning_rate must be a number above 0; got {bad!r}"


@pytest.mark.parametrize("bad", [0, -0.5, 1.0001, 2, NAN, INFINITY, "1", None, True])
def test_bad_decays(bad: Any) -> None:
    with pytest.raises(BadSetting) as caught:
        TrainingSettings(decay=bad)
    assert str(caught.value) == f"decay must be a number above 0 and at most 1; got {bad!r}"


@pytest.mark.parametrize("bad", [0, -5, 2.0, 2.5, "3", True, NAN, None])
def test_bad_numbers_of_epochs_between_decays(bad: Any) -> None:
    with pytest.raises(BadSetting) as caught:
        TrainingSettings(decay_every=bad)
    assert str(caught.value) == f"decay_every must be a whole number of at least 1; got {bad!r}"


@pytest.mark.parametrize("bad", [(0, 5), (3, 3), (5, 2), (1.0,), ("3",), (True,), [4, 1]])
def test_bad_epochs_of_decay(bad: Any) -> None:
    with pytest.raises(BadSetting) as caught:
        TrainingSettings(decay_every=bad)
    expected = f"decay_every must be increasing epochs from 1 on, such as (24, 36); got {tuple(bad)!r}"
    assert str(caught.value) == expected


def test_the_learning_rate_decays_every_so_many_epochs_or_at_those_given() -> None:
    every = TrainingSettings(learning_rate=0.8, decay=0.5, decay_every=3)
    assert [every.learning_rate_at(epoch) for epoch in range(7)] == [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2]
    given = TrainingSettings(learning_rate=0.8, decay=0.5, decay_every=(1, 4, 5))
    assert [given.learning_rate_at(epoch) for epoch in range(7)] == [0.8, 0.4, 0.4, 0.4, 0.2, 0.1, 0.1]
    assert TrainingSettings(decay_every=()).learning_rate_at(10**6) == 1e-2
    # As read from a file, which knows lists alone.
    assert TrainingSettings.from_names(given.to_dict() | {"decay_every": [1, 4, 5]}) == given


def test_along_a_cosine_the_learning_rate_goes_down_to_nothing() -> None:
    settings = TrainingSettings(learning_rate=0.8, schedule="cosine", epochs=6, decay=0.1, decay_every=1)
    rates = [settings.learning_rate_at(epoch) for epoch in range(6)]
    root = 3**0.5 / 2
    assert rates == pytest.approx([0.8 * (1 + wave) / 2 for wave in (1, root, 0.5, 0, -0.5, -root)])
    assert settings.learning_rate_at(6) == pytest.approx(0, abs=1e-15)  # the end that no epoch reaches
    assert TrainingSettings(learning_rate=0.8, schedule="cosine", epochs=1).learning_rate_at(0) == 0.8


@pytest.mark.parametrize("name, good", [("learning_rate", 1), ("learning_rate", 1e-9), ("decay", 1), ("decay", 1e-3)])
def test_good_numbers(name: str, good: float) -> None:
    assert getattr(TrainingSettings(**{name: good}), name) == good


@pytest.mark.parametrize(
    ("name", "bad", "bounds"),
    [
        ("learning_rate", 1e300, "a number above 0 and at most 1e+38"),
        ("learning_rate", 10**400, "a number above 0 and at most 1e+38"),
        ("epochs", 10**12, "a whole number of at least 1 and at most 1000000000"),
        ("latent_size", 10**7, "a whole number of at least 1 and at most 1000000"),
        ("hidden_sizes", (8, 10**7), "whole numbers of at least 1 and at most 1000000, such as (2048,)"),
    ],
)
def test_what_is_too_large_is_told_the_bound(name: str, bad: Any, bounds: str) -> None:
    with pytest.raises(BadSetting) as caught:
        DMFSettings(**{name: bad})
    assert str(caught.value) == f"{name} must be {bounds}; got {bad!r}"


@pytest.mark.parametrize(
    "name, choices",
    [
        ("device", ["auto", "cpu", "cuda"]),
        ("precision", ["auto", "single", "half"]),
        ("schedule", ["steps", "cosine"]),
    ],
)
def test_choices(name: str, choices: list[str]) -> None:
    for choice in choices:
        assert getattr(TrainingSettings(**{name: choice}), name) == choice
    for bad in ("gpu", "", "CPU", None, 1, ["cpu"]):
        with pytest.raises(BadSetting) as caught:
            TrainingSettings(**{name: bad})
        assert str(caught.value) == f"{name} must be {' or '.join(map(repr, choices))}; got {bad!r}"


@pytest.mark.parametrize(
    "name, nearest", [("epoch", "epochs"), ("learningrate", "learning_rate"), ("decayevery", "decay_every")]
)
def test_an_unknown_name_gets_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(BadSetting) as caught:
        TrainingSettings.from_names({name: 3})
    assert str(caught.value) == f"there is no setting {name!r}; did you mean {nearest!r}?"


def test_an_unknown_name_without_a_near_one_gets_them_all() -> None:
    with pytest.raises(BadSetting, match="^there is no setting 'xyzzy'; there are seed, epochs, .*precision$"):
        TrainingSettings.from_names({"xyzzy": 3})


def test_from_names_checks_and_keeps() -> None:
    settings = TrainingSettings.from_names({"epochs": 7, "seed": 3})
    assert settings == TrainingSettings(epochs=7, seed=3)
    assert TrainingSettings.from_names(settings.to_dict()) == settings
    with pytest.raises(BadSetting, match="^epochs must be"):
        TrainingSettings.from_names({"epochs": 0})


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        TrainingSettings().epochs = 3  # type: ignore[misc]
