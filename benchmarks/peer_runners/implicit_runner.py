"""implicit: weighted ALS and BPR on the positions of entries. ALS folds in rows, BPR does not."""

from typing import Any

import numpy as np
import numpy.typing as npt
import ranking_exchange
import scipy.sparse
from implicit.cpu.als import AlternatingLeastSquares
from implicit.cpu.bpr import BayesianPersonalizedRanking

MODELS = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}


def fit(positions: scipy.sparse.csr_matrix, settings: ranking_exchange.Settings) -> Any:
    """Train the model that the settings name."""
    options = {
        name: value for name, value in settings.items() if name not in ("model", "on", "seed")
    }
    model = MODELS[settings["model"]](
        **options, random_state=settings.get("seed", 0), num_threads=2
    )
    model.fit(positions, show_progress=False)
    return model


def score(
    model: Any, rows: ranking_exchange.Positions | None, histories: scipy.sparse.csr_matrix
) -> npt.NDArray[np.float32]:
    """Return products of factors; new rows are solved for."""
    if rows is None and not isinstance(model, AlternatingLeastSquares):
        raise ranking_exchange.Cannot("BPR has factors of the rows it was trained on alone")
    factors = (
        model.recalculate_user(np.arange(histories.shape[0]), histories)
        if rows is None
        else model.user_factors[rows]
    )
    products: npt.NDArray[np.float32] = factors @ model.item_factors.T
    return products


if __name__ == "__main__":
    ranking_exchange.main(fit, score, packages=["implicit", "numpy"])
