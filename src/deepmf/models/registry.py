"""Every model by the name that commands and recipes give it, and where its class lives; nothing heavy is imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from deepmf.errors import BadSetting, nearest_name

if TYPE_CHECKING:
    from deepmf.models.model import Model

# name: (module, class)
HOMES = {
    "dmf": ("deepmf.models.dmf.dmf", "DMF"),
    "dmf-d": ("deepmf.models.dmf.dmfd", "DMFD"),
    "dmf-o": ("deepmf.models.ordinal.ordinal_dmf", "OrdinalDMF"),
    "i-autorec": ("deepmf.models.autoencoders.autorec", "IAutoRec"),
    "u-autorec": ("deepmf.models.autoencoders.autorec", "UAutoRec"),
    "deep-u-autorec": ("deepmf.models.autoencoders.deep_autorec", "DeepUAutoRec"),
    "i-cf-nade": ("deepmf.models.autoencoders.cfnade", "ICFNADE"),
    "u-cf-nade": ("deepmf.models.autoencoders.cfnade", "UCFNADE"),
    "optspace": ("deepmf.models.factorization.optspace", "OptSpace"),
    "rankk": ("deepmf.models.factorization.rankk", "RankK"),
    "rdmc": ("deepmf.models.factorization.rdmc", "RDMC"),
    "odmc": ("deepmf.models.factorization.odmc", "ODMC"),
    "als": ("deepmf.models.factorization.als", "ALS"),
    "means": ("deepmf.models.means", "Means"),
}


def model_class(name: str) -> type[Model]:
    """Return the class of a model by its name; a name that does not exist is an error that says the nearest.

    >>> model_class("dmf-d").__name__
    'DMFD'
    """
    if name not in HOMES:
        raise BadSetting(f"there is no model {name!r}; {nearest_name(name, HOMES)}")
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
