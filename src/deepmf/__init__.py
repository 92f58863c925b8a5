"""Matrices with missing entries: deep matrix factorization that extends to new rows and columns."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.data.features import read_features
    from deepmf.data.packing import pack
    from deepmf.data.read import read_matrix
    from deepmf.data.splits import (
        split_areas,
        split_entries,
        split_folds,
        split_from_masks,
        split_last,
        split_rows,
        split_time,
    )
    from deepmf.evaluation.comparison import compare
    from deepmf.matrix.features import Features
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.scale import Scale
    from deepmf.models.als import ALS, ALSSettings
    from deepmf.models.bayesian import BayesianMF, BayesianMFSettings
    from deepmf.models.dmf import DMF, DMFSettings
    from deepmf.models.dmfd import DMFD, DMFDSettings
    from deepmf.models.loading import load
    from deepmf.models.means import Means, MeansSettings
    from deepmf.models.ordinal.model import OrdinalDMF
    from deepmf.models.ordinal.settings import OrdinalDMFSettings
    from deepmf.models.paper.autorec import (
        AutoRecSettings,
        DeepAutoRecSettings,
        DeepUAutoRec,
        IAutoRec,
        UAutoRec,
        UAutoRecSettings,
    )
    from deepmf.models.paper.cfnade import ICFNADE, UCFNADE, CFNADESettings, UCFNADESettings
    from deepmf.models.paper.low_rank import RDMC, OptSpace, OptSpaceSettings, RankK, RankKSettings, RDMCSettings
    from deepmf.models.paper.odmc import ODMC, ODMCSettings

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
    "split_last",
    "split_rows",
    "split_time",
]

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.data.features": ["read_features"],
        "deepmf.data.packing": ["pack"],
        "deepmf.data.read": ["read_matrix"],
        "deepmf.data.splits": [
            "split_areas",
            "split_entries",
            "split_folds",
            "split_from_masks",
            "split_last",
            "split_rows",
            "split_time",
        ],
        "deepmf.evaluation.comparison": ["compare"],
        "deepmf.matrix.features": ["Features"],
        "deepmf.matrix.matrix": ["ObservedMatrix"],
        "deepmf.matrix.scale": ["Scale"],
        "deepmf.models.als": ["ALS", "ALSSettings"],
        "deepmf.models.paper.autorec": [
            "AutoRecSettings",
            "DeepAutoRecSettings",
            "DeepUAutoRec",
            "IAutoRec",
            "UAutoRec",
            "UAutoRecSettings",
        ],
        "deepmf.models.bayesian": ["BayesianMF", "BayesianMFSettings"],
        "deepmf.models.paper.cfnade": ["ICFNADE", "UCFNADE", "CFNADESettings", "UCFNADESettings"],
        "deepmf.models.dmf": ["DMF", "DMFSettings"],
        "deepmf.models.dmfd": ["DMFD", "DMFDSettings"],
        "deepmf.models.loading": ["load"],
        "deepmf.models.paper.low_rank": [
            "RDMC",
            "OptSpace",
            "OptSpaceSettings",
            "RankK",
            "RankKSettings",
            "RDMCSettings",
        ],
        "deepmf.models.means": ["Means", "MeansSettings"],
        "deepmf.models.paper.odmc": ["ODMC", "ODMCSettings"],
        "deepmf.models.ordinal.model": ["OrdinalDMF"],
        "deepmf.models.ordinal.settings": ["OrdinalDMFSettings"],
    },
)
