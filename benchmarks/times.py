"""What dates gain: models with `times="auto"` and without, on MovieLens-100K.

    python benchmarks/times.py [--models means,als,dmf-o] [--tasks u1,later] [--half-lives 30d,180d]

`u1` is the published split: random entries, whose dates the models are asked for. `later` trains on the first 80 % of
the entries by time and tests on the last 20 %. A twentieth of the training entries, of `later` the latest, is for
validation. NDCG@10 ranks all columns for the rows of the test; recent popularity ranks them by their entries, which
count by their age with the half-life that `times="auto"` chooses. With half-lives, models without `times` whose entries
count by their age are measured, too.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from deepmf import ObservedMatrix, split_entries, split_time
from deepmf.datasets import load, load_split
from deepmf.evaluation import evaluate, evaluate_ranking
from deepmf.matrix.entries import EntryStore
from deepmf.metrics import score_lists
from deepmf.models.recency import learn_recency
from deepmf.models.registry import model_class


def split_task(task: str) -> tuple[ObservedMatrix, ObservedMatrix, ObservedMatrix]:
    """Return training, validation and test entries."""
    if task == "u1":
        published = load_split("ml-100k")
        parts = split_entries(published.train, train=0.95, validation=0.05, test=0.0, seed=0)
        return parts.train, parts.validation, published.test
    parts = split_time(load("ml-100k"), validation=0.04, test=0.2)
    return parts.train, parts.validation, parts.test


def rank_recent(train: ObservedMatrix, test: ObservedMatrix, relevant: float) -> float:
    """Return the NDCG@10 of the columns with the most recent entries, without those that a row knows."""
    recency, store = learn_recency(train), EntryStore.of(train)
    counts = store.column_counts.astype(float) if recency is None else recency.count_entries(store)
    known = train.to_sparse().astype(bool).toarray()
    wanted = np.zeros(test.shape, dtype=bool)
    wanted[test.entry_rows, test.by_row.columns] = test.values >= relevant
    rows = np.flatnonzero(wanted.any(axis=1))
    keys = np.where(known[rows], -np.inf, counts)
    best = np.argsort(-keys, axis=1, kind="stable")[:, :10]
    hits = np.take_along_axis(wanted[rows], best, axis=1)
    return float(np.mean(score_lists(hits, wanted[rows].sum(axis=1), n=10).ndcg))


def measure(name: str, task: str, of_times: dict[str, object], settings: dict[str, object]) -> str:
    """Fit a model, and return a line of the table."""
    train, validation, test = split_task(task)
    begin = time.process_time()
    model = model_class(name)(seed=0, **of_times, **settings).fit(train, validation, progress=False)
    seconds = time.process_time() - begin
    error = evaluate(model, test)[-1].rmse
    ranking = evaluate_ranking(model, test)
    named = " ".join(f"{setting}={value}" for setting, value in of_times.items()) or "none"
    cells = [task, name, named, f"{error:.4f}", f"{ranking.model.ndcg:.4f}", f"{seconds:.1f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="means,als,bayesian,dmf-o")
    parser.add_argument("--tasks", default="u1,later")
    parser.add_argument("--half-lives", default="")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| split | model | times | RMSE | NDCG@10 | seconds of a processor |\n| --- | --- | --- | --- | --- | --- |")
    for task in chosen.tasks.split(","):
        train, _, test = split_task(task)
        print(f"| {task} | recent popularity | | | {rank_recent(train, test, 4.0):.4f} | |", flush=True)
        for name in chosen.models.split(","):
            settings: dict[str, object] = {"effort": "quick", "device": "cpu"} if name == "dmf-o" else {}
            ages = [{"half_life": each} for each in chosen.half_lives.split(",") if each]
            for of_times in ({}, {"times": "auto"}, *ages):
                print(measure(name, task, of_times, settings), flush=True)


if __name__ == "__main__":
    main()
