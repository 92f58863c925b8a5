"""deepmf's own rankings, by relevance and by value: it chooses its settings itself, so nothing is
tuned here."""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import ranking_exchange
from exchange import Entries

import deepmf
from deepmf.errors import DeepMFWarning
from deepmf.recommend.ranking import Search, rank_batches
from deepmf.recommend.request import Request


def main() -> None:
    """Fit, extend by what is given, and rank; the lists by value are written beside those by
    relevance."""
    warnings.simplefilter("ignore", DeepMFWarning)
    task = ranking_exchange.read_ranking_task(Path(sys.argv[1]))
    settings = json.loads(sys.argv[3])
    model = getattr(deepmf, settings.pop("model"))(**settings)
    start, processor = time.perf_counter(), time.process_time()
    fitted = fit(model, task)
    fit_seconds = time.perf_counter() - start
    start = time.perf_counter()
    extended = fitted.extend(matrix(task, task.given)) if task.given.rows.size else fitted
    lists = {"lists": rank(extended, task, "relevance")}
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    if fitted.entries_.train.has_values:
        lists["lists_by_value"] = rank(extended, task, "value")
    chosen = {
        name: value
        for name, value in fitted.chosen_.items()
        if isinstance(value, int | float | str)
    }
    report = {
        "fit_seconds": round(fit_seconds, 3),
        "question_seconds": {"ranking": round(seconds, 3)},
        "processor_seconds": round(processor, 3),
        "noted": {"chosen": chosen},
    }
    ranking_exchange.write(Path(sys.argv[2]), lists, report, packages=["deepmf", "torch", "numpy"])


def fit(model: Any, task: ranking_exchange.RankingTask) -> Any:
    """Fit to all known entries: validation entries of known rows are for early stopping, and then
    become known."""
    if task.given.rows.size or not has_values(task):
        return model.fit(matrix(task, task.known), progress=False)
    model.fit(matrix(task, task.train), matrix(task, task.validation), progress=False)
    return model.extend(matrix(task, task.validation))


def rank(
    model: Any, task: ranking_exchange.RankingTask, rank_by: Any
) -> ranking_exchange.Positions:
    """Return the best columns of each row, as `recommend` ranks them, without the probabilities
    beside them."""
    entries, request = (
        model.entries_,
        Request(rank_by=rank_by, relevant=task.liked if has_values(task) else None, n=task.n),
    )
    search = Search.of(entries, model.make_ranker(request), entries.seen_columns, request)
    parts = list(rank_batches(search, entries.rows.positions(task.rows)))
    columns, values = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("columns", "values")
    )
    return np.where(np.isnan(values), -1, entries.columns[columns.ravel()].reshape(columns.shape))


def has_values(task: ranking_exchange.RankingTask) -> bool:
    """Return whether values differ; otherwise entries are interactions."""
    return np.unique(task.known.values).size > 1


def matrix(task: ranking_exchange.RankingTask, entries: Entries) -> deepmf.ObservedMatrix:
    """Return entries as a matrix of their rows and of all columns."""
    columns = np.arange(task.shape[1])
    rows = np.unique(entries.rows) if task.given.rows.size else np.arange(task.shape[0])
    if not has_values(task):
        return deepmf.ObservedMatrix.from_interactions(
            entries.rows, entries.columns, row_labels=rows, column_labels=columns
        )
    scale = deepmf.Scale(levels=np.unique(task.known.values))
    return deepmf.ObservedMatrix.from_entries(
        *entries, scale=scale, row_labels=rows, column_labels=columns
    )


if __name__ == "__main__":
    main()
