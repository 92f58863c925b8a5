"""LightFM: factors trained by WARP on the positions of entries. It does not fold in rows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import ranking_exchange
import scipy.sparse
from lightfm import LightFM


def fit(positions: scipy.sparse.csr_matrix, settings: ranking_exchange.Settings) -> Any:
    """Train by WARP."""
    options = {
        name: settings[name]
        for name in ("no_components", "learning_rate", "item_alpha")
        if name in settings
    }
    model = LightFM(loss="warp", random_state=settings.get("seed", 0), **options)
    return model.fit(positions.tocoo(), epochs=settings["epochs"], num_threads=2)


def score(
    model: Any, rows: ranking_exchange.Positions | None, histories: scipy.sparse.csr_matrix
) -> npt.NDArray[np.float32]:
    """Return products of factors and the biases of columns."""
    if rows is None:
        raise ranking_exchange.Cannot("LightFM has factors of the rows it was trained on alone")
    products: npt.NDArray[np.float32] = (
        model.user_embeddings[rows] @ model.item_embeddings.T + model.item_biases
    )
    return products


if __name__ == "__main__":
    ranking_exchange.main(fit, score, packages=["lightfm", "numpy"])
