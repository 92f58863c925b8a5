"""Ranking metrics: how relevant the first n columns of each row are, compared with a ranking by popularity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, Hint
from deepmf.evaluation.areas import check_test_known, select_known_entries
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import ListScores, score_lists
from deepmf.models.base import Model
from deepmf.models.pairs import Unknown, check_unknown
from deepmf.models.ranking import batches, best_positions, check_min_entries, check_n, leave_out

MEASURES = ("precision", "recall", "ndcg", "hit_rate")

# Maps row positions to scores (rows, columns); larger is better, minus infinity excludes a column.
Score = Callable[[IndexArray], FloatArray]


@dataclass(frozen=True)
class RankingScores:
    """The ranking metrics at n, averaged over rows.

    `margins` are the standard errors of the averages; None for a single row.
    """

    name: str
    precision: float
    recall: float
    ndcg: float
    hit_rate: float
    margins: dict[str, float | None]


@dataclass(frozen=True)
class RankingEvaluation:
    """The ranking metrics of a model, and of popularity as the baseline.

    Attributes
    ----------
    n
        Length of the ranked lists.
    relevant_from
        Test entries of at least this value are relevant.
    n_rows
        Number of rows evaluated, all of which have a relevant test entry.
    n_without
        Number of test rows left out because they have no relevant entry.
    n_not_drawn
        Number of rows left out by `most_rows`.
    n_relevant
        Number of relevant test entries of the rows evaluated.
    model, popularity
        The scores of both rankings.
    min_entries
        Columns with fewer entries were not ranked.
    """

    n: int
    relevant_from: float
    n_rows: int
    n_without: int
    n_not_drawn: int
    n_relevant: int
    model: RankingScores
    popularity: RankingScores
    min_entries: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def evaluate_ranking(
    model: Model,
    test: ObservedMatrix,
    *,
    n: int = 10,
    relevant_from: float | None = None,
    min_entries: int = 0,
    unknown: Unknown = "error",
    most_rows: int | None = None,
    seed: int = 0,
) -> RankingEvaluation:
    """Measure how relevant the n columns are that a model ranks first for each row of a test.

    The candidates of a row are the columns for which the model has no entry of it. Ties go to the column that came
    first, as in `recommend`. Rows without a relevant test entry are left out, and so are test entries that the model
    has seen. Popularity ranks columns by their number of entries.

    Parameters
    ----------
    model
        A fitted model.
    test
        The test entries.
    n
        Length of the ranked lists.
    relevant_from
        Smallest relevant value; default: the lowest level above the mean of the training entries.
    min_entries
        Columns with fewer entries are not ranked; their relevant test entries count as missed.
    unknown
        Entries whose row or column the model does not know raise `UnknownLabel` ("error") or are left out.
    most_rows
        Evaluate at most this many rows, drawn at random.
    seed
        Seed of the draw.

    >>> from deepmf import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [5], train.scale)
    >>> evaluation = evaluate_ranking(Means().fit(train), test, n=1, relevant_from=4)
    >>> evaluation.model.precision, evaluation.n_rows
    (1.0, 1)
    """
    check_n(n)
    check_min_entries(min_entries)
    check_unknown(unknown)
    if unknown == "error":
        check_test_known(model, test)
    seen = model.entries_
    level = _check_relevance(seen, relevant_from)
    relevant = _find_relevant(seen, select_known_entries(model, test), level)
    counted = relevant.draw(most_rows, seed=seed)
    columns = np.arange(len(seen.columns))
    popularity = seen.column_counts.astype(np.float64)
    few = np.flatnonzero(seen.column_counts < min_entries)

    def by_model(rows: IndexArray) -> FloatArray:
        scores = model.predictor_.score_block(rows, columns).astype(np.float64)
        scores[:, few] = -np.inf
        return scores

    def by_popularity(rows: IndexArray) -> FloatArray:
        scores = np.tile(popularity, (rows.size, 1))
        scores[:, few] = -np.inf
        return scores

    return RankingEvaluation(
        n=int(n),
        relevant_from=level,
        n_rows=int(counted.rows.size),
        n_without=relevant.n_without,
        n_not_drawn=int(relevant.rows.size - counted.rows.size),
        n_relevant=int(counted.keys.size),
        model=_score_ranking(type(model).__name__, by_model, seen, counted, int(n)),
        popularity=_score_ranking("popularity", by_popularity, seen, counted, int(n)),
        min_entries=int(min_entries),
    )


def choose_relevance(scale: Scale, mean: float) -> float:
    """Return the lowest level above a mean, or the highest level if none is above.

    >>> choose_relevance(Scale([1, 2, 3, 4, 5]), 3.6)
    4.0
    """
    if scale.levels is None:
        raise BadSetting(
            f"the scale {scale} has no levels, so the lowest relevant value must be given",
            hint=Hint("set relevant_from", "set --relevant-from"),
        )
    above = int(np.searchsorted(scale.levels, mean, side="right"))
    return float(scale.levels[min(above, scale.levels.size - 1)])


@dataclass(frozen=True)
class _Relevant:
    """Relevant pairs: sorted row positions, the pairs of each, and the sorted keys `row * n_columns + column`."""

    rows: IndexArray
    counts: IndexArray
    keys: IndexArray
    n_columns: int
    n_without: int

    def draw(self, most_rows: int | None, *, seed: int) -> _Relevant:
        """Return the pairs of at most `most_rows` rows, drawn at random."""
        if most_rows is None or self.rows.size <= most_rows:
            return self
        which = np.sort(np.random.default_rng(seed).choice(self.rows.size, size=most_rows, replace=False))
        rows = self.rows[which]
        keys = self.keys[np.isin(self.keys // self.n_columns, rows)]
        return _Relevant(rows, self.counts[which], keys, self.n_columns, self.n_without)

    def mark(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[np.bool_]:
        """Return whether columns (rows, places) are relevant for their rows."""
        wanted = rows[:, None] * self.n_columns + columns
        places = np.minimum(np.searchsorted(self.keys, wanted), self.keys.size - 1)
        return np.asarray(self.keys[places] == wanted)


def _find_relevant(seen: EntryStore, test: ObservedMatrix, level: float) -> _Relevant:
    """Return the relevant test pairs that the model has not seen."""
    row_of = seen.rows.find(test.row_labels)[test.entry_rows].astype(np.int64)
    column_of = seen.columns.find(test.column_labels)[test.by_row.columns].astype(np.int64)
    new = np.isnan(seen.values_at(row_of, column_of))
    good = new & (test.values >= level)
    if not np.any(good):
        any_good = np.any(test.values >= level)
        why = "the model has seen all test entries of" if any_good else "no test entry has a value of"
        raise BadEntries(f"no row can be ranked: {why} at least {level:g}")
    n_columns = len(seen.columns)
    rows, counts = np.unique(row_of[good], return_counts=True)
    n_without = np.unique(row_of).size - rows.size
    return _Relevant(rows, counts, np.sort(row_of[good] * n_columns + column_of[good]), n_columns, int(n_without))


def _score_ranking(name: str, score: Score, seen: EntryStore, relevant: _Relevant, n: int) -> RankingScores:
    """Return the metrics of one ranking, computed in batches of rows."""
    columns = np.arange(relevant.n_columns)
    parts, done = [], 0
    for rows in batches(relevant.rows, width=columns.size):
        scores = score(rows)
        leave_out(scores, seen.seen_columns(rows), columns, columns.size)
        best, taken = best_positions(scores, n)
        counts = relevant.counts[done : done + rows.size]
        parts.append(score_lists(relevant.mark(rows, best) & (taken > -np.inf), counts, n=n))
        done += rows.size
    by_row = ListScores(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    means = {measure: float(np.mean(getattr(by_row, measure))) for measure in MEASURES}
    return RankingScores(name, **means, margins={measure: _margin(getattr(by_row, measure)) for measure in MEASURES})


def _margin(numbers: FloatArray) -> float | None:
    """Return the standard error of a mean; None for a single number."""
    return float(np.std(numbers, ddof=1) / math.sqrt(numbers.size)) if numbers.size > 1 else None


def _check_relevance(seen: EntryStore, relevant_from: float | None) -> float:
    scale = seen.scale
    if relevant_from is None:
        return choose_relevance(scale, seen.train.mean)
    if isinstance(relevant_from, bool) or not isinstance(relevant_from, int | float | np.number):
        raise BadSetting(f"relevant_from must be a number; got {relevant_from!r}")
    if scale.is_bounded and not scale.low <= relevant_from <= scale.high:
        raise BadSetting(f"relevant_from must lie on the scale, which is {scale}; got {relevant_from:g}")
    return float(relevant_from)
