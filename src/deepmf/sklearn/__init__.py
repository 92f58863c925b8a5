"""Imputation with scikit-learn's interface: an imputer, and scores on masked entries to choose one by."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepmf.errors import MissingDependency

if TYPE_CHECKING:
    from deepmf.sklearn.imputer import DMFImputer
    from deepmf.sklearn.pooling import PooledEstimates, pool
    from deepmf.sklearn.scores import HiddenScore, hidden_entries_score, imputation_scores
    from deepmf.sklearn.splitters import AreaSplitter, EntrySplitter, MaskedTable, mask_entries

__all__ = [
    "AreaSplitter",
    "DMFImputer",
    "EntrySplitter",
    "HiddenScore",
    "MaskedTable",
    "PooledEstimates",
    "hidden_entries_score",
    "imputation_scores",
    "mask_entries",
    "pool",
]

# Names are looked up when first used, so that a missing scikit-learn is an error that says what to install.
_HOMES = {
    "AreaSplitter": "deepmf.sklearn.splitters",
    "DMFImputer": "deepmf.sklearn.imputer",
    "EntrySplitter": "deepmf.sklearn.splitters",
    "HiddenScore": "deepmf.sklearn.scores",
    "MaskedTable": "deepmf.sklearn.splitters",
    "PooledEstimates": "deepmf.sklearn.pooling",
    "hidden_entries_score": "deepmf.sklearn.scores",
    "imputation_scores": "deepmf.sklearn.scores",
    "mask_entries": "deepmf.sklearn.splitters",
    "pool": "deepmf.sklearn.pooling",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deepmf.sklearn' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise MissingDependency(f"{name} needs scikit-learn: pip install 'deepmf[sklearn]'") from error


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
