"""Imputation with scikit-learn's interface: an imputer, and scores on masked entries to choose one by."""

from typing import TYPE_CHECKING, Any

from deepmf.errors import MissingDependency
from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.sklearn.diagnostics import (
        CategoryShares,
        ImputedValues,
        MissingPatterns,
        category_shares,
        imputed_values,
        missing_patterns,
    )
    from deepmf.sklearn.imputer import DMFImputer
    from deepmf.sklearn.pooling import PooledEstimates, pool
    from deepmf.sklearn.scores import (
        GenotypeScores,
        HiddenScore,
        genotype_scores,
        hidden_entries_score,
        imputation_scores,
    )
    from deepmf.sklearn.splitters import AreaSplitter, EntrySplitter, MaskedTable, mask_entries

__all__ = [
    "AreaSplitter",
    "CategoryShares",
    "DMFImputer",
    "EntrySplitter",
    "GenotypeScores",
    "HiddenScore",
    "ImputedValues",
    "MaskedTable",
    "MissingPatterns",
    "PooledEstimates",
    "category_shares",
    "genotype_scores",
    "hidden_entries_score",
    "imputation_scores",
    "imputed_values",
    "mask_entries",
    "missing_patterns",
    "pool",
]

# Names are looked up when first used, so that a missing scikit-learn is an error that says what to install.
_get_name, __dir__ = export_names(
    __name__,
    {
        "deepmf.sklearn.diagnostics": [
            "CategoryShares",
            "ImputedValues",
            "MissingPatterns",
            "category_shares",
            "imputed_values",
            "missing_patterns",
        ],
        "deepmf.sklearn.imputer": ["DMFImputer"],
        "deepmf.sklearn.pooling": ["PooledEstimates", "pool"],
        "deepmf.sklearn.scores": [
            "GenotypeScores",
            "HiddenScore",
            "genotype_scores",
            "hidden_entries_score",
            "imputation_scores",
        ],
        "deepmf.sklearn.splitters": ["AreaSplitter", "EntrySplitter", "MaskedTable", "mask_entries"],
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _get_name(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise MissingDependency(f"{name} needs scikit-learn: pip install 'deepmf[sklearn]'") from error
