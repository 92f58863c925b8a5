"""The choice of settings: those that were given stay; the others suit the matrix, or are those of an earlier model."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Set
from dataclasses import fields, replace
from typing import Any, NamedTuple

from deepmf.errors import BadModelFile
from deepmf.training.settings import LoopSettings, Settings


class SettingsChoice(NamedTuple):
    """The settings of a fit, and those of them that were chosen, by name."""

    settings: Settings
    chosen: dict[str, Any]


def settings_with_choice(
    settings: Settings, given: Set[str], suitable: Mapping[str, Any], earlier: Settings | None
) -> SettingsChoice:
    """Return settings in which those that were not given are the suitable ones, or those of an earlier model."""
    if earlier is not None:
        # Epochs that are given have a schedule of their own.
        kept = {each.name for each in fields(LoopSettings)} if "epochs" in given else set()
        known = earlier.to_dict()
        suitable = {name: value if name in kept else known[name] for name, value in suitable.items()}
    chosen = {name: value for name, value in suitable.items() if name not in given}
    return SettingsChoice(replace(settings, **chosen), chosen)


def settings_without_choice(settings: Settings, given: Set[str]) -> dict[str, Any]:
    """Return the settings that no fit chooses, by name."""
    chosen = set(settings.chosen_at_fit) - given
    return {name: value for name, value in settings.to_dict().items() if name not in chosen}


def stored_choice(names: Any, settings: Settings) -> dict[str, Any]:
    """Return the settings that were chosen, by their stored names; anything else raises `BadModelFile`."""
    known = settings.to_dict()
    if not isinstance(names, list) or not all(isinstance(name, str) and name in known for name in names):
        raise BadModelFile(f"the stored choice must name settings; got {reprlib.repr(names)}")
    return {name: known[name] for name in names}
