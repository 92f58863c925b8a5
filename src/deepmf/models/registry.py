"""Every model by the name that commands and recipes give it, and where its class lives; nothing heavy is imported."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from deepmf.errors import BadSetting

if TYPE_CHECKING:
    from deepmf.models.model import Model

# name: (module, class)
HOMES = {
    "dmf": ("deepmf.models.dmf", "DMF"),
    "dmf-d": ("deepmf.models.dmfd", "DMFD"),
    "means": ("deepmf.models.means", "Means"),
}


def model_class(name: str) -> type[Model]:
    """Return the class of a model by its name; a name that does not exist is an error that says the nearest.

    >>> model_class("dmf-d").__name__
    'DMFD'
    """
    if name not in HOMES:
        near = difflib.get_close_matches(name.lower(), HOMES, n=1)
        hint = f"did you mean {near[0]!r}? All" if near else "all"
        raise BadSetting(f"there is no model {name!r}; {hint}: {', '.join(HOMES)}")
    return _imported(*HOMES[name])


def class_named(class_name: str) -> type[Model] | None:
    """Return the class that a model file names, or None where there is none."""
    for module, name in HOMES.values():
        if name == class_name:
            return _imported(module, name)
    return None


def _imported(module: str, name: str) -> type[Model]:
    found: type[Model] = getattr(import_module(module), name)
    return found
