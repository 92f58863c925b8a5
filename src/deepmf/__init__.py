"""Matrices with missing entries: deep matrix factorization that extends to new rows and columns."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.data.features import read_features as read_features
    from deepmf.data.packing import pack as pack
    from deepmf.data.read import read_matrix as read_matrix
    from deepmf.data.splits import (
        split_areas as split_areas,
        split_entries as split_entries,
        split_folds as split_folds,
        split_from_masks as split_from_masks,
        split_last as split_last,
        split_rows as split_rows,
        split_time as split_time,
    )
    from deepmf.evaluation.comparison import compare as compare
    from deepmf.matrix.features import Features as Features
    from deepmf.matrix.matrix import ObservedMatrix as ObservedMatrix
    from deepmf.matrix.scale import Scale as Scale
    from deepmf.models.als import ALS as ALS, ALSSettings as ALSSettings
    from deepmf.models.bayesian import BayesianMF as BayesianMF, BayesianMFSettings as BayesianMFSettings
    from deepmf.models.dmf import DMF as DMF, DMFSettings as DMFSettings
    from deepmf.models.dmfd import DMFD as DMFD, DMFDSettings as DMFDSettings
    from deepmf.models.loading import load as load
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

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
