"""LightFM: sums of feature embeddings, trained by its logistic loss on high (+1) and low (-1)
values.

It has no loss for values, so its scores are mapped to them by a line fitted on validation entries.
"""

from typing import Any, NamedTuple

import exchange
import numpy as np
import scipy.sparse
from lightfm import LightFM


class Fitted(NamedTuple):
    """A fitted model, the features of all rows and columns, and the line from scores to values."""

    model: Any
    rows: scipy.sparse.csr_matrix
    columns: scipy.sparse.csr_matrix
    line: exchange.Floats


def fit(task: exchange.Task, settings: exchange.Settings) -> Fitted:
    """Train on signs of the distance to the mean, weighted by it; then fit the line."""
    model = LightFM(
        no_components=settings["components"], loss="logistic", random_state=settings.get("seed", 0)
    )
    rows = _identify(task.train.rows, task.shape[0], task.row_features)
    columns = _identify(task.train.columns, task.shape[1], task.column_features)
    away = task.train.values - task.train.values.mean()
    places = task.train.rows, task.train.columns
    signs = scipy.sparse.coo_matrix((np.sign(away), places), shape=task.shape)
    weights = scipy.sparse.coo_matrix((np.abs(away), places), shape=task.shape)
    model.fit(
        signs,
        user_features=rows,
        item_features=columns,
        sample_weight=weights,
        epochs=settings["epochs"],
        num_threads=2,
    )
    chosen = task.validation
    scores = _scores(model, rows, columns, chosen.rows, chosen.columns)
    return Fitted(model, rows, columns, np.polyfit(scores, chosen.values, 1))


def reply(fitted: Fitted, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Predict by features; entries that come later are no part of them."""
    if question.extension.rows.size and question.name != "areas":
        raise exchange.Cannot(
            "it folds no entries in: new rows and columns have their features alone"
        )
    scores = _scores(fitted.model, fitted.rows, fitted.columns, question.rows, question.columns)
    return exchange.Answer(np.polyval(fitted.line, scores).astype(np.float64))


def _scores(
    model: Any,
    rows: scipy.sparse.csr_matrix,
    columns: scipy.sparse.csr_matrix,
    at_rows: exchange.Positions,
    at_columns: exchange.Positions,
) -> exchange.Floats:
    scores: exchange.Floats = model.predict(
        at_rows.astype(np.int32),
        at_columns.astype(np.int32),
        user_features=rows,
        item_features=columns,
        num_threads=2,
    )
    return scores


def _identify(
    trained: exchange.Positions, count: int, features: scipy.sparse.csr_matrix | None
) -> scipy.sparse.csr_matrix:
    """Return the id of each row that has training entries, beside its features."""
    ids = scipy.sparse.diags(np.isin(np.arange(count), trained).astype(np.float64))
    parts = [ids] if features is None else [ids, features]
    return scipy.sparse.hstack(parts, format="csr").astype(np.float32)


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["lightfm", "numpy"])
