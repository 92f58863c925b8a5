"""LensKit: weighted ALS and item-item neighbours on the positions of entries; both read the entries
of a new row."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas
import ranking_exchange
import scipy.sparse
from lenskit.als import ImplicitMFScorer
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.knn import ItemKNNScorer
from lenskit.training import TrainingOptions

SCORERS = {"implicit-mf": ImplicitMFScorer, "item-knn": ItemKNNScorer}


class Fitted(NamedTuple):
    """A trained scorer, and the columns that it knows."""

    scorer: Any
    known: ranking_exchange.Positions


def fit(positions: scipy.sparse.csr_matrix, settings: ranking_exchange.Settings) -> Fitted:
    """Train the scorer that the settings name."""
    options = {
        name: value for name, value in settings.items() if name not in ("scorer", "on", "seed")
    }
    scorer = SCORERS[settings["scorer"]](**options)
    rows, columns = positions.nonzero()
    frame = pandas.DataFrame({"user_id": rows, "item_id": columns})
    scorer.train(from_interactions_df(frame), TrainingOptions(rng=settings.get("seed", 0)))
    return Fitted(scorer, np.unique(columns))


def score(
    fitted: Fitted, rows: ranking_exchange.Positions | None, histories: scipy.sparse.csr_matrix
) -> npt.NDArray[np.float32]:
    """Score the columns that the scorer knows row by row; NaN for others."""
    scores = np.full(histories.shape, np.nan, dtype=np.float32)
    items = ItemList(item_ids=fitted.known)
    for at in range(histories.shape[0]):
        history = ItemList(item_ids=np.intersect1d(histories[at].indices, fitted.known))
        query = RecQuery(user_id=None if rows is None else int(rows[at]), user_items=history)
        scores[at, fitted.known] = np.asarray(
            fitted.scorer(query, items).scores(), dtype=np.float32
        )
    return scores


if __name__ == "__main__":
    ranking_exchange.main(fit, score, packages=["lenskit", "numpy"])
