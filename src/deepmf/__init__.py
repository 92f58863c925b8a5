"""Matrices with missing entries: deep matrix factorization that extends to new rows and columns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.data.features import read_features
    from deepmf.data.packing import pack
    from deepmf.data.read import read_matrix
    from deepmf.data.splits import split_areas, split_entries, split_folds, split_from_masks, split_rows
    from deepmf.evaluation.comparison import compare
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
    from deepmf.models.bayesian import BayesianMF, BayesianMFSettings
    from deepmf.models.cfnade import ICFNADE, UCFNADE, CFNADESettings, UCFNADESettings
    from deepmf.models.dmf import DMF, DMFSettings
    from deepmf.models.dmfd import DMFD, DMFDSettings
    from deepmf.models.loading import load
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
    "BayesianMF",
    "BayesianMFSettings",
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
    "split_rows",
]

# A name is imported when it is first used, so that `import deepmf` and `deepmf --help` load nothing heavy.
_EXPORTS = {
    "deepmf.data.features": ["read_features"],
    "deepmf.data.packing": ["pack"],
    "deepmf.data.read": ["read_matrix"],
    "deepmf.data.splits": ["split_areas", "split_entries", "split_folds", "split_from_masks", "split_rows"],
    "deepmf.evaluation.comparison": ["compare"],
    "deepmf.matrix.features": ["Features"],
    "deepmf.matrix.matrix": ["ObservedMatrix"],
    "deepmf.matrix.scale": ["Scale"],
    "deepmf.models.als": ["ALS", "ALSSettings"],
    "deepmf.models.autorec": [
        "AutoRecSettings",
        "DeepAutoRecSettings",
        "DeepUAutoRec",
        "IAutoRec",
        "UAutoRec",
        "UAutoRecSettings",
    ],
    "deepmf.models.bayesian": ["BayesianMF", "BayesianMFSettings"],
    "deepmf.models.cfnade": ["ICFNADE", "UCFNADE", "CFNADESettings", "UCFNADESettings"],
    "deepmf.models.dmf": ["DMF", "DMFSettings"],
    "deepmf.models.dmfd": ["DMFD", "DMFDSettings"],
    "deepmf.models.loading": ["load"],
    "deepmf.models.low_rank": ["RDMC", "OptSpace", "OptSpaceSettings", "RankK", "RankKSettings", "RDMCSettings"],
    "deepmf.models.means": ["Means", "MeansSettings"],
    "deepmf.models.odmc": ["ODMC", "ODMCSettings"],
    "deepmf.models.ordinal.model": ["OrdinalDMF"],
    "deepmf.models.ordinal.settings": ["OrdinalDMFSettings"],
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'deepmf' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
