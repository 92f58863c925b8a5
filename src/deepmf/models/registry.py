"""The registry: every model by its name in commands and recipes. It imports a model only when asked for its class."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from deepmf.errors import BadSetting, suggest_name

if TYPE_CHECKING:
    from deepmf.models.base import Model


class Registration(NamedTuple):
    """Where a model's class is defined, and what the model is in one line."""

    module: str
    class_name: str
    summary: str


MODELS = {
    "dmf": Registration("deepmf.models.dmf", "DMF", "two branches and a cosine; extends to new rows and columns"),
    "dmf-d": Registration("deepmf.models.dmfd", "DMFD", "DMF with a learned quantizer; predicts levels"),
    "dmf-o": Registration(
        "deepmf.models.ordinal.model",
        "OrdinalDMF",
        "two branches trained on masked entries; predicts a distribution over the levels",
    ),
    "i-autorec": Registration("deepmf.models.paper.autorec", "IAutoRec", "autoencoder on columns, one hidden layer"),
    "u-autorec": Registration("deepmf.models.paper.autorec", "UAutoRec", "autoencoder on rows, one hidden layer"),
    "deep-u-autorec": Registration(
        "deepmf.models.paper.autorec", "DeepUAutoRec", "deep autoencoder on rows with dense re-feeding"
    ),
    "i-cf-nade": Registration("deepmf.models.paper.cfnade", "ICFNADE", "autoregressive, ordinal, on columns"),
    "u-cf-nade": Registration("deepmf.models.paper.cfnade", "UCFNADE", "autoregressive, ordinal, on rows"),
    "optspace": Registration(
        "deepmf.models.paper.low_rank", "OptSpace", "low rank by descent over the row space and the column space"
    ),
    "rankk": Registration("deepmf.models.paper.low_rank", "RankK", "least absolute error at exact rank k"),
    "rdmc": Registration(
        "deepmf.models.paper.low_rank", "RDMC", "least absolute error and nuclear norm over matrices of levels"
    ),
    "odmc": Registration("deepmf.models.paper.odmc", "ODMC", "low rank with learned boundaries between levels"),
    "als": Registration(
        "deepmf.models.als",
        "ALS",
        "matrix factorisation with effects by alternating least squares; extends by one solve",
    ),
    "bayesian": Registration(
        "deepmf.models.bayesian",
        "BayesianMF",
        "matrix factorisation by Gibbs sampling; predicts distributions and extends by one solve",
    ),
    "means": Registration("deepmf.models.means", "Means", "shrunk row and column means, the control"),
}


def model_class(name: str) -> type[Model]:
    """Return the class of a model by its name; an unknown name raises `BadSetting` and suggests the nearest one.

    >>> model_class("dmf-d").__name__
    'DMFD'
    >>> model_class("dmf-d").settings_class.__name__
    'DMFDSettings'
    """
    if name not in MODELS:
        raise BadSetting(f"there is no model {name!r}; {suggest_name(name, MODELS)}")
    return _import_class(MODELS[name])


def find_class(class_name: str) -> type[Model] | None:
    """Return the model class with a class name, as model files store it; None if there is none."""
    for registration in MODELS.values():
        if registration.class_name == class_name:
            return _import_class(registration)
    return None


def _import_class(registration: Registration) -> type[Model]:
    found: type[Model] = getattr(import_module(registration.module), registration.class_name)
    return found
