"""scikit-surprise: SVD, SVD++ and nearest neighbours on known rows and columns."""

from collections import defaultdict
from typing import Any

import exchange
import numpy as np
import surprise
from surprise.trainset import Trainset


def fit(task: exchange.Task, settings: exchange.Settings) -> Any:
    """Fit the algorithm that the settings name."""
    options = {name: value for name, value in settings.items() if name != "algorithm"}
    algorithm = getattr(surprise, settings["algorithm"])(**options)
    return algorithm.fit(trainset(task))


def trainset(task: exchange.Task) -> Trainset:
    """Return the entries as Surprise holds them; rows and columns without any stay unknown to
    it."""
    known = task.known
    row_ids, rows = np.unique(known.rows, return_inverse=True)
    column_ids, columns = np.unique(known.columns, return_inverse=True)
    by_row, by_column = defaultdict(list), defaultdict(list)
    for row, column, value in zip(
        rows.tolist(), columns.tolist(), known.values.tolist(), strict=True
    ):
        by_row[row].append((column, value))
        by_column[column].append((row, value))
    inner = ({label: at for at, label in enumerate(ids.tolist())} for ids in (row_ids, column_ids))
    scale = float(task.levels[0]), float(task.levels[-1])
    return Trainset(
        by_row, by_column, row_ids.size, column_ids.size, known.values.size, scale, *inner
    )


def reply(model: Any, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Predict the pairs whose row and column have training entries; Surprise folds nothing in."""
    inside = np.isin(question.rows, task.known.rows) & np.isin(question.columns, task.known.columns)
    if not inside.any():
        raise exchange.Cannot("it covers only the rows and columns that it was trained on")
    values = np.full(question.rows.size, np.nan)
    pairs = zip(question.rows[inside].tolist(), question.columns[inside].tolist(), strict=True)
    values[inside] = [model.predict(row, column).est for row, column in pairs]
    return exchange.Answer(values)


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["scikit-surprise", "numpy"])
