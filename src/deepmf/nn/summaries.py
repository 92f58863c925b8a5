"""The numbers that summarise the entries of a vector, as arrays or as tensors."""

from __future__ import annotations

from typing import Any

from deepmf.matrix.library import find_library

N_SUMMARY_FEATURES = 2

# Entries of value 0 that are added to each mean, so that the mean of few entries is trusted less.
_SHRINKAGE = 2.0


def summarise(sums: Any, counts: Any) -> Any:
    """Return the shrunk means and the numbers of entries (..., 2), on the scale of an input."""
    # Rows of MovieLens have 20 to 2000 entries, for which log(count + 1) / 4 - 1 is between -.3 and
    # 1.
    library = find_library(sums)
    means = 2.0 * sums / (counts + _SHRINKAGE)
    return library.stack((means, library.log(counts + 1.0) / 4.0 - 1.0), -1)
