"""Rankings: what a peer that ranks is given, the test entries that the driver keeps, and the scores
of its lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.data import split_entries, split_rows
from deepmf.datasets import generate, load, load_split
from deepmf.files import write_atomically
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import score_lists, self_information
from peers.problem import Entries

LIKED = 4.0  # stars
LENGTH = 20  # of the lists
NEW_ROWS = 0.2  # held out for the test, and as many of the others for validation
GROUPS = {"lists": "ranking", "lists_by_value": "ranking by value"}


@dataclass(frozen=True)
class RankingProblem:
    """What a peer that ranks is given (see `peer_runners/ranking_exchange.py`), and the test
    entries."""

    shape: tuple[int, int]
    train: Entries
    validation_given: Entries
    validation: Entries
    given: Entries
    test: Entries

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The rows that have a liked test entry."""
        return np.unique(self.test.rows[self.test.values >= LIKED])

    def keep_questions(self, names: Sequence[str] | None) -> RankingProblem:
        """Return the problem, which has one question."""
        return self

    def write(self, path: Path) -> None:
        """Write what a peer may see: everything but the test entries."""
        arrays: dict[str, Any] = {
            "shape": np.array(self.shape),
            "rows": self.rows,
            "n": LENGTH,
            "liked": LIKED,
        }
        for name in ("train", "validation_given", "validation", "given"):
            arrays |= {
                f"{name}_{part}": array for part, array in getattr(self, name)._asdict().items()
            }

        def save(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)

        write_atomically(path, save)

    def score(self, answers: dict[str, npt.NDArray[Any]]) -> dict[str, dict[str, Any]]:
        """Return the scores of each list of a peer."""
        return {
            group: self._score_lists(answers[name])
            for name, group in GROUPS.items()
            if name in answers
        }

    def _score_lists(self, lists: npt.NDArray[Any]) -> dict[str, Any]:
        if lists.shape != (self.rows.size, LENGTH):
            raise ValueError(
                f"there are {self.rows.size} rows with {LENGTH} places; got lists of shape {lists.shape}"
            )
        known = Entries.join(self.train, self.validation_given, self.validation, self.given)
        is_good = self.test.values >= LIKED
        n_columns = self.shape[1]
        keys = self.rows[:, None] * n_columns + lists
        is_filled = lists >= 0
        if np.isin(keys[is_filled], known.rows * n_columns + known.columns).any():
            raise ValueError("a list has a column that the row has an entry for")
        hits = (
            np.isin(keys, self.test.rows[is_good] * n_columns + self.test.columns[is_good])
            & is_filled
        )
        counts = np.bincount(self.test.rows[is_good], minlength=self.shape[0])[self.rows]
        at_10, at_20 = score_lists(hits[:, :10], counts, n=10), score_lists(hits, counts, n=LENGTH)
        fitted = Entries.join(self.train, self.validation_given, self.validation)
        popularity = np.bincount(fitted.columns, minlength=n_columns)
        n_rows = np.unique(fitted.rows).size
        listed = lists[:, :10][is_filled[:, :10]]
        return {
            "n_rows": int(self.rows.size),
            **{name: round(float(values.mean()), 5) for name, values in at_10._asdict().items()},
            "recall_20": round(float(at_20.recall.mean()), 5),
            "ndcg_20": round(float(at_20.ndcg.mean()), 5),
            "n_distinct": int(np.unique(listed).size),
            "novelty": round(float(self_information(popularity, n_rows)[listed].mean()), 3),
        }


def known_rows(matrix: ObservedMatrix, seed: int) -> RankingProblem:
    """Return held-out entries of known rows: 75 / 5 / 20 %."""
    split = split_entries(matrix, train=0.75, validation=0.05, test=0.2, seed=seed)
    train, validation, test = (
        Entries.of(part, matrix.rows, matrix.columns) for part in vars(split).values()
    )
    return RankingProblem(matrix.shape, train, Entries.none(), validation, Entries.none(), test)


def new_rows(matrix: ObservedMatrix, seed: int) -> RankingProblem:
    """Return strong generalisation: a fifth of the rows held out, 80 % of their entries given."""

    def positions(part: ObservedMatrix) -> Entries:
        return Entries.of(part, matrix.rows, matrix.columns)

    outer = split_rows(matrix, new_rows=NEW_ROWS, validation=0.0, seed=seed)
    inner = split_rows(outer.train, new_rows=NEW_ROWS, validation=0.0, seed=seed)
    return RankingProblem(
        matrix.shape,
        *(
            positions(part)
            for part in (inner.train, inner.given, inner.test, outer.given, outer.test)
        ),
    )


def load_known(name: str, seed: int) -> RankingProblem:
    """Return held-out entries of the known rows of a data set."""
    return known_rows(load(name), seed)


def load_new(name: str, seed: int) -> RankingProblem:
    """Return the rows of a data set that are held out whole."""
    return new_rows(load(name), seed)


def published_lists(name: str, seed: int) -> RankingProblem:
    """Return a published split of interactions: a tenth of its training entries is for
    validation."""
    split = load_split(name)
    parts = split_entries(split.train, train=0.9, validation=0.1, test=0.0, seed=seed)
    rows, columns = split.train.rows, split.train.columns
    train, validation, test = (
        Entries.of(each, rows, columns) for each in (parts.train, parts.validation, split.test)
    )
    every = (
        each._replace(values=np.full(each.rows.size, LIKED)) for each in (train, validation, test)
    )
    train, validation, test = every
    return RankingProblem(
        split.train.shape, train, Entries.none(), validation, Entries.none(), test
    )


def generated(seed: int) -> RankingProblem:
    """Return the rows of a small generated matrix that are held out whole."""
    return new_rows(generate(120, 80, density=0.15, named=False, seed=0).matrix, seed)
