"""The registry: every model by its name in commands and recipes. It imports a model only when asked
for its class."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.errors import BadSetting, suggest_name
from deepmf.lazy import read_exports

if TYPE_CHECKING:  # the public classes, which `deepmf` offers, and their modules
    from deepmf.models.als import ALS as ALS, ALSSettings as ALSSettings
    from deepmf.models.base import Model
    from deepmf.models.bayesian import (
        BayesianMF as BayesianMF,
        BayesianMFSettings as BayesianMFSettings,
    )
    from deepmf.models.dmf import DMF as DMF, DMFSettings as DMFSettings
    from deepmf.models.dmfd import DMFD as DMFD, DMFDSettings as DMFDSettings
    from deepmf.models.means import Means as Means, MeansSettings as MeansSettings
    from deepmf.models.ordinal.model import OrdinalDMF as OrdinalDMF
    from deepmf.models.ordinal.settings import OrdinalDMFSettings as OrdinalDMFSettings
    from deepmf.models.paper.autorec import (
        AutoRecSettings as AutoRecSettings,
        DeepAutoRecSettings as DeepAutoRecSettings,
        DeepUAutoRec as DeepUAutoRec,
        IAutoRec as IAutoRec,
        UAutoRec as UAutoRec,
        UAutoRecSettings as UAutoRecSettings,
    )
    from deepmf.models.paper.cfnade import (
        ICFNADE as ICFNADE,
        UCFNADE as UCFNADE,
        CFNADESettings as CFNADESettings,
        UCFNADESettings as UCFNADESettings,
    )
    from deepmf.models.paper.low_rank import (
        RDMC as RDMC,
        OptSpace as OptSpace,
        OptSpaceSettings as OptSpaceSettings,
        RankK as RankK,
        RankKSettings as RankKSettings,
        RDMCSettings as RDMCSettings,
    )
    from deepmf.models.paper.odmc import ODMC as ODMC, ODMCSettings as ODMCSettings

_MODULES = read_exports(__file__)  # by class name


class Registration(NamedTuple):
    """The class of a model, and what the model is in one line."""

    class_name: str
    summary: str

    @property
    def module(self) -> str | None:
        """The module of a public class; None for a class of the user's own."""
        return _MODULES.get(self.class_name)


MODELS = {
    "dmf": Registration("DMF", "two branches and a cosine; extends to new rows and columns"),
    "dmf-d": Registration("DMFD", "DMF with a learned quantizer; predicts levels"),
    "dmf-o": Registration(
        "OrdinalDMF",
        "two branches trained on masked entries; predicts a distribution over the levels",
    ),
    "i-autorec": Registration("IAutoRec", "autoencoder on columns, one hidden layer"),
    "u-autorec": Registration("UAutoRec", "autoencoder on rows, one hidden layer"),
    "deep-u-autorec": Registration(
        "DeepUAutoRec", "deep autoencoder on rows with dense re-feeding"
    ),
    "i-cf-nade": Registration("ICFNADE", "autoregressive, ordinal, on columns"),
    "u-cf-nade": Registration("UCFNADE", "autoregressive, ordinal, on rows"),
    "optspace": Registration(
        "OptSpace", "low rank by descent over the row space and the column space"
    ),
    "rankk": Registration("RankK", "least absolute error at exact rank k"),
    "rdmc": Registration("RDMC", "least absolute error and nuclear norm over matrices of levels"),
    "odmc": Registration("ODMC", "low rank with learned boundaries between levels"),
    "als": Registration(
        "ALS",
        "matrix factorisation with effects by alternating least squares; extends by one solve",
    ),
    "bayesian": Registration(
        "BayesianMF",
        "matrix factorisation by Gibbs sampling; predicts distributions and extends by one solve",
    ),
    "means": Registration("Means", "shrunk row and column means, the control"),
}


def model_class(name: str) -> type[Model]:
    """Return the class of a model by its name; an unknown name raises `BadSetting` and suggests the
    nearest one.

    >>> model_class("dmf-d").__name__
    'DMFD'
    >>> model_class("dmf-d").settings_class.__name__
    'DMFDSettings'
    """
    if name not in MODELS:
        raise BadSetting(f"there is no model {name!r}; {suggest_name(name, MODELS)}")
    model = find_class(MODELS[name].class_name)
    assert model is not None
    return model


def find_class(class_name: str) -> type[Model] | None:
    """Return the model class with a class name, as model files store it; None if there is none.

    A class of the user's own is found once it is defined or imported.
    """
    if class_name in _MODULES and class_name in (entry.class_name for entry in MODELS.values()):
        found: type[Model] = getattr(import_module(_MODULES[class_name]), class_name)
        return found
    from deepmf.models.base import Model

    return _find_defined(class_name, Model)


def _find_defined(class_name: str, base: Any) -> type[Model] | None:
    for subclass in base.__subclasses__():
        model = subclass if subclass.__name__ == class_name else _find_defined(class_name, subclass)
        if model is not None and not inspect.isabstract(model) and hasattr(model, "settings_class"):
            return model
    return None


def find_name(model: type[Model]) -> str:
    """Return the registered name of a model class, or the name of the class itself."""
    home = model.__module__, model.__name__
    return next(
        (name for name, entry in MODELS.items() if (entry.module, entry.class_name) == home),
        model.__name__,
    )
