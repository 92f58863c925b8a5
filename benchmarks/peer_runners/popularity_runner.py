"""Popularity: columns by their number of entries, the same for every row."""

import numpy as np
import numpy.typing as npt
import ranking_exchange
import scipy.sparse


def fit(
    positions: scipy.sparse.csr_matrix, settings: ranking_exchange.Settings
) -> npt.NDArray[np.float32]:
    """Return the number of entries of each column."""
    counts: npt.NDArray[np.float32] = np.asarray(positions.sum(axis=0), dtype=np.float32)
    return counts


def score(
    counts: npt.NDArray[np.float32],
    rows: ranking_exchange.Positions | None,
    histories: scipy.sparse.csr_matrix,
) -> npt.NDArray[np.float32]:
    """Return the counts for every row."""
    return np.repeat(counts.reshape(1, -1), histories.shape[0], axis=0)


if __name__ == "__main__":
    ranking_exchange.main(fit, score, packages=["numpy"])
