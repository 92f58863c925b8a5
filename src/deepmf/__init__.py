"""Matrices with missing entries: deep matrix factorization that extends to new rows and columns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepmf.models.registry import HOMES as _MODELS
from deepmf.models.registry import SETTINGS_HOMES as _SETTINGS

if TYPE_CHECKING:
    from deepmf.data.features import read_features
    from deepmf.data.packing import pack
    from deepmf.data.read import read_matrix
    from deepmf.data.splits import split_areas, split_entries, split_folds, split_from_masks
    from deepmf.evaluation.compare import compare
    from deepmf.matrix.features import Features
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.scale import Scale
    from deepmf.models.als import ALS, ALSSettings
    from deepmf.models.autorec import (
        AutoRecSettings,
        DeepAutoRecSettings,
        DeepUAutoRec,
        IAutoRec,
        UAutoRec,
        UAutoRecSettings,
    )
    from deepmf.models.base import load
    from deepmf.models.cfnade import ICFNADE, UCFNADE, CFNADESettings, UCFNADESettings
    from deepmf.models.dmf import DMF, DMFSettings
    from deepmf.models.dmfd import DMFD, DMFDSettings
    from deepmf.models.low_rank import RDMC, OptSpace, OptSpaceSettings, RankK, RankKSettings, RDMCSettings
    from deepmf.models.means import Means, MeansSettings
    from deepmf.models.odmc import ODMC, ODMCSettings
    from deepmf.models.ordinal.model import OrdinalDMF
    from deepmf.models.ordinal.settings import OrdinalDMFSettings

__version__ = "0.1.0"

__all__ = [
    "ALS",
    "DMF",
    "DMFD",
    "ICFNADE",
    "ODMC",
    "RDMC",
    "UCFNADE",
    "ALSSettings",
    "AutoRecSettings",
    "CFNADESettings",
    "DMFDSettings",
    "DMFSettings",
    "DeepAutoRecSettings",
    "DeepUAutoRec",
    "Features",
    "IAutoRec",
    "Means",
    "MeansSettings",
    "ODMCSettings",
    "ObservedMatrix",
    "OptSpace",
    "OptSpaceSettings",
    "OrdinalDMF",
    "OrdinalDMFSettings",
    "RDMCSettings",
    "RankK",
    "RankKSettings",
    "Scale",
    "UAutoRec",
    "UAutoRecSettings",
    "UCFNADESettings",
    "compare",
    "load",
    "pack",
    "read_features",
    "read_matrix",
    "split_areas",
    "split_entries",
    "split_folds",
    "split_from_masks",
]

# Names are looked up when first used, so that `import deepmf` and `deepmf --help` load nothing heavy.
_HOMES = {
    "compare": "deepmf.evaluation.compare",
    "load": "deepmf.models.base",
    "Features": "deepmf.matrix.features",
    "ObservedMatrix": "deepmf.matrix.matrix",
    "Scale": "deepmf.matrix.scale",
    "pack": "deepmf.data.packing",
    "read_features": "deepmf.data.features",
    "read_matrix": "deepmf.data.read",
    "split_areas": "deepmf.data.splits",
    "split_entries": "deepmf.data.splits",
    "split_folds": "deepmf.data.splits",
    "split_from_masks": "deepmf.data.splits",
} | {name: module for module, name in (*_MODELS.values(), *_SETTINGS.values())}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deepmf' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
