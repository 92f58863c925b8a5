"""miceforest: chained equations with gradient boosted trees; the mean of several completed
tables."""

from typing import Any, NamedTuple

import exchange
import miceforest
import numpy as np
import pandas


class Completed(NamedTuple):
    """The mean of the completed tables."""

    table: exchange.Floats


def fit(task: exchange.Task, settings: exchange.Settings) -> Completed:
    """Complete the table as many times as asked for, and take the mean."""
    table = np.full(task.shape, np.nan)
    known = task.known
    table[known.rows, known.columns] = known.values
    frame = pandas.DataFrame(table, columns=[f"c{at}" for at in range(task.shape[1])])
    options: dict[str, Any] = {"num_datasets": settings["datasets"], "random_state": 0}
    kernel = miceforest.ImputationKernel(frame, **options)
    kernel.mice(settings["iterations"])
    tables = [
        kernel.complete_data(dataset=at).to_numpy(dtype=np.float64)
        for at in range(settings["datasets"])
    ]
    return Completed(np.mean(tables, axis=0))


def reply(model: Completed, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
    """Read the hidden cells off the completed table."""
    return exchange.Answer(model.table[question.rows, question.columns])


if __name__ == "__main__":
    exchange.main(fit, reply, packages=["miceforest", "lightgbm", "numpy"])
