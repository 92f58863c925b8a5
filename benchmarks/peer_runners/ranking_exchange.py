"""What a runner that ranks shares with the driver: it reads a task, tunes on validation entries,
fits, and ranks.

A task has no test entries in it: the driver keeps those, and scores the lists. Every peer learns
from the positions of entries, from those of all values or from those of liked values alone (`on`),
whichever is better on validation entries.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from exchange import Cannot, Entries, Floats, Positions, Settings, join, measure_peak_memory_mb

ROWS_AT_A_TIME = 500


@dataclass(frozen=True)
class RankingTask:
    """What a peer is given.

    train : entries to learn from.
    validation_given, validation : entries to choose settings by: those given of rows held out whole
        (none if rows are known), and those to rank.
    given : entries of the rows to rank, given after the fit (none if rows are known).
    rows : the rows to rank.
    n : the length of the lists.
    liked : the smallest value of a liked entry.
    """

    shape: tuple[int, int]
    train: Entries
    validation_given: Entries
    validation: Entries
    given: Entries
    rows: Positions
    n: int
    liked: float

    @property
    def known(self) -> Entries:
        """All entries that the final fit may learn from."""
        return join(self.train, self.validation_given, self.validation)

    def positions(self, entries: Entries, on: str) -> scipy.sparse.csr_matrix:
        """Return ones at the positions of entries, of all or of liked ones."""
        some = entries.take(entries.values >= self.liked) if on == "liked" else entries
        ones = np.ones(some.rows.size, dtype=np.float32)
        return scipy.sparse.csr_matrix((ones, (some.rows, some.columns)), shape=self.shape)


Fit = Callable[[scipy.sparse.csr_matrix, Settings], Any]  # the positions of entries, and settings
# From a fitted model, rows (None: rows it was not fitted to) and the positions of their entries to
# (rows, columns).
Score = Callable[[Any, Positions | None, scipy.sparse.csr_matrix], npt.NDArray[Any]]


def read_ranking_task(path: Path) -> RankingTask:
    """Return the task of a file."""
    with np.load(path) as file:
        parts = {
            name: Entries(*(file[f"{name}_{part}"] for part in Entries._fields))
            for name in ("train", "validation_given", "validation", "given")
        }
        shape = int(file["shape"][0]), int(file["shape"][1])
        return RankingTask(
            shape, **parts, rows=file["rows"], n=int(file["n"]), liked=float(file["liked"])
        )


def rank_rows(
    task: RankingTask,
    model: Any,
    score: Score,
    known: Entries,
    given: Entries,
    rows: Positions,
    on: str,
) -> Positions:
    """Return the best columns (rows, n) of rows without those of known and given entries; -1 where
    there are none."""
    histories, seen = (
        task.positions(join(known, given), on),
        task.positions(join(known, given), "all"),
    )
    are_new = given.rows.size > 0
    lists = np.full((rows.size, task.n), -1)
    for start in range(0, rows.size, ROWS_AT_A_TIME):
        some = rows[start : start + ROWS_AT_A_TIME]
        scores = np.array(
            score(model, None if are_new else some, histories[some]), dtype=np.float32
        )
        scores[np.isnan(scores)] = -np.inf
        scores[seen[some].nonzero()] = -np.inf
        kept = np.sort(np.argpartition(-scores, task.n, axis=1)[:, : task.n], axis=1)
        order = np.argsort(-np.take_along_axis(scores, kept, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(kept, order, axis=1)
        is_filled = np.take_along_axis(scores, best, axis=1) > -np.inf
        lists[start : start + some.size] = np.where(is_filled, best, -1)
    return lists


def ndcg(task: RankingTask, rows: Positions, lists: Positions, test: Entries, n: int = 10) -> float:
    """Return the mean NDCG at n of lists (rows, places), of rows with a liked test entry."""
    liked = task.positions(test, "liked")[rows]
    lines, columns = liked.nonzero()
    first = lists[:, :n]
    keys = np.arange(rows.size)[:, None] * liked.shape[1] + first
    hits = np.isin(keys, lines * liked.shape[1] + columns) & (first >= 0)
    discounts = 1 / np.log2(np.arange(2, n + 2))
    counts = np.minimum(np.diff(liked.indptr), n)
    gains, best = hits @ discounts, np.concatenate([[0.0], np.cumsum(discounts)])[counts]
    return float(np.mean(gains[counts > 0] / best[counts > 0]))


def main(fit: Fit, score: Score, *, packages: Sequence[str]) -> None:
    """Run a task: `runner.py TASK OUT SETTINGS`; SETTINGS has fixed settings and the `trials` to
    choose from."""
    task, out, settings = (
        read_ranking_task(Path(sys.argv[1])),
        Path(sys.argv[2]),
        json.loads(sys.argv[3]),
    )
    fixed = {name: value for name, value in settings.items() if name != "trials"}
    some_are_liked = bool(np.any(task.train.values < task.liked))
    rows = np.unique(task.validation.rows)
    tried = []
    start = time.perf_counter()
    for trial in settings["trials"]:
        if trial["on"] == "liked" and not some_are_liked:
            continue  # the same as all
        own = fixed | trial
        model = fit(task.positions(task.train, own["on"]), own)
        try:
            lists = rank_rows(
                task, model, score, task.train, task.validation_given, rows, own["on"]
            )
        except Cannot as reason:
            write(out, {}, {"refused": {"ranking": str(reason)}}, packages=packages)
            return
        tried.append(
            {"ndcg": round(ndcg(task, rows, lists, task.validation), 5), "settings": trial}
        )
    tuning_seconds = time.perf_counter() - start
    chosen = max(tried, key=lambda each: float(each["ndcg"]))["settings"]
    own = fixed | chosen
    start, processor = time.perf_counter(), time.process_time()
    model = fit(task.positions(task.known, own["on"]), own)
    fit_seconds = time.perf_counter() - start
    start = time.perf_counter()
    lists = rank_rows(task, model, score, task.known, task.given, task.rows, own["on"])
    report = {
        "fit_seconds": round(fit_seconds, 3),
        "question_seconds": {"ranking": round(time.perf_counter() - start, 3)},
        "processor_seconds": round(time.process_time() - processor, 3),
        "noted": {"chosen": chosen, "tried": tried, "tuning_seconds": round(tuning_seconds, 1)},
    }
    write(out, {"lists": lists}, report, packages=packages)


def write(
    out: Path, lists: dict[str, Positions], report: dict[str, Any], *, packages: Sequence[str]
) -> None:
    """Write lists and what they took."""
    nothing = {
        "fit_seconds": 0.0,
        "question_seconds": {},
        "processor_seconds": 0.0,
        "refused": {},
        "noted": {},
    }
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    with out.with_suffix(".npz").open("wb") as file:
        arrays: dict[str, Any] = {name: each.astype(np.int32) for name, each in lists.items()}
        np.savez(file, **arrays)
    whole = nothing | report | {"peak_memory_mb": measure_peak_memory_mb(), "versions": versions}
    out.with_suffix(".json").write_text(json.dumps(whole))


__all__ = [
    "Cannot",
    "Floats",
    "Positions",
    "RankingTask",
    "Settings",
    "main",
    "rank_rows",
    "read_ranking_task",
    "write",
]
