"""Every model by its name in commands and recipes: the modules of its class and settings, and a description.

Nothing heavy is imported, not even with the settings."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepmf.errors import BadSetting, nearest_name

if TYPE_CHECKING:
    from deepmf.models.base import Model
    from deepmf.training.settings import Settings


# name: (module, class)
HOMES = {
    "dmf": ("deepmf.models.dmf", "DMF"),
    "dmf-d": ("deepmf.models.dmfd", "DMFD"),
    "dmf-o": ("deepmf.models.ordinal.model", "OrdinalDMF"),
    "i-autorec": ("deepmf.models.autorec", "IAutoRec"),
    "u-autorec": ("deepmf.models.autorec", "UAutoRec"),
    "deep-u-autorec": ("deepmf.models.autorec", "DeepUAutoRec"),
    "i-cf-nade": ("deepmf.models.cfnade", "ICFNADE"),
    "u-cf-nade": ("deepmf.models.cfnade", "UCFNADE"),
    "optspace": ("deepmf.models.low_rank", "OptSpace"),
    "rankk": ("deepmf.models.low_rank", "RankK"),
    "rdmc": ("deepmf.models.low_rank", "RDMC"),
    "odmc": ("deepmf.models.odmc", "ODMC"),
    "als": ("deepmf.models.als", "ALS"),
    "means": ("deepmf.models.means", "Means"),
}


# name: (module, class) of its settings
SETTINGS_HOMES = {
    "dmf": ("deepmf.models.dmf", "DMFSettings"),
    "dmf-d": ("deepmf.models.dmfd", "DMFDSettings"),
    "dmf-o": ("deepmf.models.ordinal.settings", "OrdinalDMFSettings"),
    "i-autorec": ("deepmf.models.autorec", "AutoRecSettings"),
    "u-autorec": ("deepmf.models.autorec", "UAutoRecSettings"),
    "deep-u-autorec": ("deepmf.models.autorec", "DeepAutoRecSettings"),
    "i-cf-nade": ("deepmf.models.cfnade", "CFNADESettings"),
    "u-cf-nade": ("deepmf.models.cfnade", "UCFNADESettings"),
    "optspace": ("deepmf.models.low_rank", "OptSpaceSettings"),
    "rankk": ("deepmf.models.low_rank", "RankKSettings"),
    "rdmc": ("deepmf.models.low_rank", "RDMCSettings"),
    "odmc": ("deepmf.models.odmc", "ODMCSettings"),
    "als": ("deepmf.models.als", "ALSSettings"),
    "means": ("deepmf.models.means", "MeansSettings"),
}


# name: description
SUMMARIES = {
    "dmf": "two branches and a cosine; extends to new rows and columns",
    "dmf-d": "DMF with a learned quantizer; predicts levels",
    "dmf-o": "two branches trained on masked entries; predicts a distribution over the levels",
    "i-autorec": "autoencoder on columns, one hidden layer",
    "u-autorec": "autoencoder on rows, one hidden layer",
    "deep-u-autorec": "deep autoencoder on rows with dense re-feeding",
    "i-cf-nade": "autoregressive, ordinal, on columns",
    "u-cf-nade": "autoregressive, ordinal, on rows",
    "optspace": "low rank by descent over the row space and the column space",
    "rankk": "least absolute error at exact rank k",
    "rdmc": "least absolute error and nuclear norm over matrices of levels",
    "odmc": "low rank with learned boundaries between levels",
    "als": "matrix factorisation with effects by alternating least squares; extends by one solve",
    "means": "shrunk row and column means, the control",
}


def model_class(name: str) -> type[Model]:
    """Return the class of a model by its name; a name that does not exist is an error that says the nearest.

    >>> model_class("dmf-d").__name__
    'DMFD'
    """
    _check_known(name)
    found: type[Model] = _imported(*HOMES[name])
    return found


def settings_class(name: str) -> type[Settings]:
    """Return the class of a model's settings by the model's name, without importing the model.

    >>> settings_class("dmf-d").__name__
    'DMFDSettings'
    """
    _check_known(name)
    found: type[Settings] = _imported(*SETTINGS_HOMES[name])
    return found


def find_class(class_name: str) -> type[Model] | None:
    """Return the class that a model file names, or None where there is none."""
    for module, name in HOMES.values():
        if name == class_name:
            found: type[Model] = _imported(module, name)
            return found
    return None


def _check_known(name: str) -> None:
    if name not in HOMES:
        raise BadSetting(f"there is no model {name!r}; {nearest_name(name, HOMES)}")


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
