"""A class of settings: defaults may change below, rules stay; all of them are explained and checked."""

import inspect

import pytest

from deepmf.errors import BadSetting
from deepmf.training.declarations import declared, rule_of, settings_dataclass, signature_of
from deepmf.training.setting_rules import Whole, choice, number, sizes, whole
from deepmf.training.settings import Settings


@settings_dataclass
class Bread(Settings):
    """How bread is baked."""

    loaves: int = whole(3, low=1, high=12, meaning="How many loaves.")
    salt: float | None = number(0.02, low=0.0, optional=True, meaning="The share of salt (none: to taste).")
    flour: str = choice("rye", of=("rye", "wheat"), meaning="What it is made of.")
    folds: tuple[int, ...] = sizes((2, 4), meaning="How often it is folded each day.")


@settings_dataclass
class Rolls(Bread):
    """How rolls are baked."""

    loaves: int = 8
    salt: float | None = None
    flour: str = choice("wheat", of=("wheat", "spelt"), meaning="What rolls are made of.")


def test_a_default_may_change_alone() -> None:
    assert (Rolls().loaves, Rolls().salt, Rolls(loaves=12).loaves) == (8, None, 12)
    assert rule_of(Rolls, "loaves") is rule_of(Bread, "loaves")
    with pytest.raises(BadSetting, match="^loaves must be a whole number of at least 1 and at most 12; got 13$"):
        Rolls(loaves=13)


def test_the_nearest_rule_holds() -> None:
    assert Rolls(flour="spelt").flour == "spelt"
    with pytest.raises(BadSetting, match="^flour must be 'wheat' or 'spelt'; got 'rye'$"):
        Rolls(flour="rye")
    assert Bread(flour="rye", folds=[1]).folds == (1,)  # type: ignore[arg-type]


def test_a_bad_default_is_noticed() -> None:
    @settings_dataclass
    class NoBread(Bread):
        loaves: int = 0

    with pytest.raises(BadSetting, match="^loaves must be"):
        NoBread()


def test_a_setting_without_a_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="^the setting 'hours' of Slow has no rule; declare it as by whole"):

        @settings_dataclass
        class Slow(Settings):
            hours: int = 3


def test_what_is_declared() -> None:
    found = {setting.name: setting for setting in declared(Rolls)}
    assert list(found) == ["seed", "loaves", "salt", "flour", "folds"]
    assert [setting.type for setting in found.values()] == ["int", "int", "float | None", "str", "tuple[int, ...]"]
    assert found["loaves"].default == 8
    assert found["loaves"].rule == Whole("How many loaves.", low=1, high=12)


def test_help_explains_every_setting() -> None:
    lines = (Rolls.__doc__ or "").splitlines()
    assert lines[:2] == ["How rolls are baked.", ""]
    for line, meaning in [
        ("seed: int = 0 (whole, 0 or more)", "The seed of all that is random."),
        ("loaves: int = 8 (whole, 1 to 12)", "How many loaves."),
        ("salt: float | None = None (0 or more, or none)", "The share of salt (none: to taste)."),
        ("flour: str = 'wheat' (wheat, spelt)", "What rolls are made of."),
        ("folds: tuple[int, ...] = (2, 4) (whole numbers, 1 to 1000000)", "How often it is folded each day."),
    ]:
        assert lines[lines.index(line) + 1] == f"    {meaning}"


def test_the_signature_has_types_and_defaults() -> None:
    shown = (
        "(*, seed: int = 0, loaves: int = 8, salt: float | None = None, flour: str = 'wheat', "
        "folds: tuple[int, ...] = (2, 4))"
    )
    assert str(inspect.signature(Rolls)) == str(signature_of(Rolls)) == shown
