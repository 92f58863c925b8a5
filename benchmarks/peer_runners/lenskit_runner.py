"""LensKit: biased matrix factorisation by alternating least squares, and FlexMF for explicit
values.

The former folds in a new row from its entries; neither covers new columns.
"""

from typing import Any

import exchange
import numpy as np
import pandas
from lenskit.als import BiasedMFScorer
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.flexmf import FlexMFExplicitScorer
from lenskit.training import TrainingOptions

SCORERS = {"als": BiasedMFScorer, "flexmf": FlexMFExplicitScorer}


def fit(task: exchange.Task, settings: exchange.Settings) -> Any:
    """Train the scorer that the settings name."""
    options = {name: value for name, value in settings.items() if name not in ("scorer", "seed")}
    scorer = SCORERS[settings["scorer"]](**options)
    known = task.known
    frame = pandas.DataFrame(
        {"user_id": known.rows, "item_id": known.columns, "rating": known.values}
    )
    scorer.train(from_interactions_df(frame), TrainingOptions(rng=settings.get("seed", 0)))
    return scorer


def reply(scorer: Any, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Score row by row; a new row is described by its entries in trained columns."""
    known = task.known
    new = ~np.isin(question.rows, known.rows)
    if new.any() and new.all() and isinstance(scorer, FlexMFExplicitScorer):
        raise exchange.Cannot("FlexMF covers only the rows and columns that it was trained on")
    entries = question.extension.sparse(task.shape).tocsr()
    values = np.full(question.rows.size, np.nan)
    order = np.argsort(question.rows, kind="stable")
    rows, starts = np.unique(question.rows[order], return_index=True)
    is_new = set(rows[~np.isin(rows, known.rows)].tolist())
    for row, places in zip(rows.tolist(), np.split(order, starts[1:]), strict=True):
        history = entries[row]
        items = ItemList(item_ids=question.columns[places])
        query = RecQuery(user_id=row)
        if row in is_new and history.nnz:
            query = RecQuery(
                user_id=row, user_items=ItemList(item_ids=history.indices, rating=history.data)
            )
        values[places] = np.asarray(scorer(query, items).scores(), dtype=np.float64)
    if np.isnan(values).all():
        raise exchange.Cannot(
            "it has no prediction for columns that it was not trained on, or for rows without entries"
        )
    return exchange.Answer(values)


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["lenskit", "torch", "numpy"])
