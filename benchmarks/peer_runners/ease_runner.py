"""EASE as in its paper (Steck 2019), in numpy: item-item weights in closed form, which read the
entries of any row."""

import numpy as np
import numpy.typing as npt
import ranking_exchange
import scipy.linalg
import scipy.sparse


def fit(
    positions: scipy.sparse.csr_matrix, settings: ranking_exchange.Settings
) -> npt.NDArray[np.float32]:
    """Return the weights B = I - P diag(1 / diag P), P = (X'X + penalty I)^-1."""
    gram = (positions.T @ positions).toarray()
    gram[np.diag_indices_from(gram)] += settings["penalty"]
    inverse = scipy.linalg.inv(gram, overwrite_a=True)
    weights: npt.NDArray[np.float32] = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    return weights


def score(
    weights: npt.NDArray[np.float32],
    rows: ranking_exchange.Positions | None,
    histories: scipy.sparse.csr_matrix,
) -> npt.NDArray[np.float32]:
    """Return sums of the weights of a row's entries."""
    scores: npt.NDArray[np.float32] = histories @ weights
    return scores


if __name__ == "__main__":
    ranking_exchange.main(fit, score, packages=["numpy", "scipy"])
