"""Imputation with scikit-learn's interface: an imputer, and scores on masked entries to choose one
by."""

from typing import TYPE_CHECKING, Any

from deepmf.errors import MissingDependency
from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.sklearn.diagnostics import (
        ImputedValues as ImputedValues,
        MissingPatterns as MissingPatterns,
        imputed_values as imputed_values,
        missing_patterns as missing_patterns,
    )
    from deepmf.sklearn.imputer import DMFImputer as DMFImputer
    from deepmf.sklearn.pooling import (
        PooledEstimates as PooledEstimates,
        pool as pool,
        with_imputed as with_imputed,
    )
    from deepmf.sklearn.scores import (
        HiddenScore as HiddenScore,
        MaskedTable as MaskedTable,
        hidden_entries_score as hidden_entries_score,
        imputation_scores as imputation_scores,
        mask_entries as mask_entries,
    )

# Names are looked up when first used, so that a missing scikit-learn is an error that says what to
# install.
_get_name, __dir__, __all__ = export_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _get_name(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise MissingDependency(
            f"{name} needs scikit-learn: pip install 'deepmf[sklearn]'"
        ) from error
