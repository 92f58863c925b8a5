"""Fold-in: rows and columns that are not stored, but predict and rank by the latents of their
entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, Unpack

import numpy as np

from deepmf.errors import BadEntries, BadFeatures, BadSetting, OffScale, check_flag, show_value
from deepmf.matrix.arrays import FloatArray, IndexArray, to_numbers
from deepmf.matrix.axis_entries import OTHER_AXIS, Axis, AxisEntries, PlacedEntries, group
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras, parse_time, parse_times
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.explanation import Explanation, explain_predictions
from deepmf.models.extension import refuse_divergence
from deepmf.models.fitting import warn_of_nothing
from deepmf.recommend.ranker import Ranker, Rankers
from deepmf.recommend.ranking import Ranking, Search, rank_columns
from deepmf.recommend.request import DEFAULT_REQUEST, Request, RequestOptions
from deepmf.scoring.distribution import Interval, check_coverage
from deepmf.scoring.pairs import Question, check_has_values
from deepmf.scoring.predictor import Predictor

# Labels, the values that a row (or column) has there, and optionally their times.
History = (
    tuple[Iterable[Any], Iterable[float]]
    | tuple[Iterable[Any], Iterable[float], Iterable[Any] | None]
)

FeatureValues = Mapping[str, Any]  # features of a row (or column) by name
ManyFeatures = Sequence[FeatureValues | None]  # of several rows; None for one without


@dataclass(frozen=True)
class Folded:
    """Rows, or columns, that are not stored: their entries, and a predictor of these alone.

    Methods take labels of the other axis and return arrays (folded, labels, ...), without the first
    axis if a single row or column was folded in.
    """

    entries: EntryStore
    predictor: Predictor
    observed: AxisEntries
    single: bool
    rankers: Rankers

    axis: ClassVar[Axis]  # of what was folded in

    @classmethod
    def of(
        cls,
        rankers: Rankers,
        predictor: Predictor,
        histories: Sequence[History],
        features: ManyFeatures | None = None,
        *,
        single: bool,
        ordered: bool = False,
    ) -> Self:
        """Return the rows (or columns) that have these entries over known columns (or rows), and
        these features.

        ordered: whether entries are given first to last.
        """
        check_histories(histories)
        observed = _read_histories(
            rankers.entries, histories, features, of=cls.axis, ordered=ordered
        )
        encoded = _encode(rankers.entries, predictor, cls.axis, observed)
        return cls(rankers.entries, encoded, observed, single, rankers)

    def predict(self, labels: Iterable[Any], /, *, at: Any = None) -> FloatArray:
        """Return the predictions for some labels of the other axis, at a time as in
        `Model.predict`."""
        return self._ask(labels, at, lambda predictor, *pairs: predictor.predict(*pairs))

    def predict_levels(
        self, labels: Iterable[Any], /, *, at: Any = None, metric: str = "rmse"
    ) -> FloatArray:
        """Return the legal levels that are best by a metric."""
        return self._ask(
            labels, at, lambda predictor, *pairs: predictor.predict_levels(*pairs, metric=metric)
        )

    def predict_distribution(self, labels: Iterable[Any], /, *, at: Any = None) -> FloatArray:
        """Return the probability of each level."""
        return self._ask(
            labels, at, lambda predictor, *pairs: predictor.distribution(*pairs).probabilities
        )

    def predict_interval(
        self, labels: Iterable[Any], /, *, at: Any = None, coverage: float = 0.9
    ) -> Interval:
        """Return intervals that contain the true value with about this probability."""
        check_coverage(coverage)
        scale = self.entries.scale
        ends = self._ask(
            labels,
            at,
            lambda predictor, *pairs: predictor.distribution(*pairs).ends(coverage, scale),
        )
        return Interval(ends[..., 0], ends[..., 1])

    def predictor_at(self, at: Any = None) -> Predictor:
        """Return the predictor for a time; the default is that of the latest training entry."""
        return self.predictor.at(self._read_time(at))

    def _ask(self, labels: Iterable[Any], at: Any, question: Question) -> FloatArray:
        check_has_values(self.entries.scale)
        positions = self.entries.get_labels(OTHER_AXIS[self.axis]).positions(labels)
        pairs = np.repeat(np.arange(len(self)), positions.size), np.tile(positions, len(self))
        answers = question(self.predictor_at(at), *(pairs if self.axis == "row" else pairs[::-1]))
        return answers if self.single else answers.reshape(len(self), -1, *answers.shape[1:])

    def _read_time(self, at: Any) -> int | None:
        """Return a time as Unix seconds; refuse a time that the model would ignore."""
        if at is not None and self.predictor.drift is None and self.rankers.recency is None:
            raise BadSetting(
                f"the model has learned nothing from times and cannot answer for at={at!r}"
            )
        return None if at is None else parse_time(at)

    def explain(self, label: Any, /, n: int = 5) -> Explanation:
        """Return the n entries that moved the prediction for a label the most, as `Model.explain`
        does."""
        if not self.single:
            raise BadSetting(
                f"explain needs a single {self.axis}; {len(self)} were folded in together"
            )
        targets = self.entries.get_labels(OTHER_AXIS[self.axis]).positions([label])
        return explain_predictions(
            self.rankers, self.predictor, self.axis, self.observed, 0, targets, n
        )[0]

    def __len__(self) -> int:
        return int(self.observed.starts.size) - 1


class FoldedRows(Folded):
    """Rows that are not stored; they predict for columns, and rank them."""

    axis: ClassVar[Axis] = "row"

    def row(self, number: int) -> FoldedRows:
        """Return one of the rows, numbered from 0, as if it had been folded in alone."""
        one, whole = np.array([number]), self.predictor
        observed = self.observed.take(one)
        drift = whole.drift and whole.drift.fold_in(observed)
        predictor = replace(whole.take_rows(one), drift=drift)
        return FoldedRows(self.entries, predictor, observed, single=True, rankers=self.rankers)

    def predict_at(self, rows: IndexArray, columns: Iterable[Any]) -> FloatArray:
        """Return the prediction for each pair of a row, numbered from 0, and a column."""
        return self.predictor.predict(rows, self.entries.columns.positions(columns))

    def recommend(self, n: int = 10, **options: Unpack[RequestOptions]) -> Ranking:
        """Return the n best columns; the arguments are those of `Model.recommend`."""
        return self.answer(Request(n=n, **options))

    def answer(self, request: Request) -> Ranking:
        """Return the columns that are requested, as `recommend` does."""
        rows = np.arange(len(self))
        search = Search.of(self.entries, self.make_ranker(request), self.observed.take, request)
        return rank_columns(search, rows, None if self.single else rows)

    def make_ranker(self, request: Request = DEFAULT_REQUEST) -> Ranker:
        """Return the ranker of the rows, as `Model.make_ranker` does."""
        if (
            not self.observed.extras.are_ordered
            and (request.rank_by or self.rankers.rank_by) == "next"
        ):
            if request.rank_by is not None:
                raise BadSetting(
                    "the entries of this row have no order, so nothing comes next; give times=, or ordered=True"
                )
            request = replace(request, rank_by="relevance")
        return self.rankers.make(
            self.predictor, self.observed.take, request, self._read_time(request.at)
        )


class FoldedColumns(Folded):
    """A column that is not stored; it predicts for rows."""

    axis: ClassVar[Axis] = "column"


def fold_in_matrix(rankers: Rankers, predictor: Predictor, matrix: ObservedMatrix) -> FoldedRows:
    """Return the rows of a matrix, whatever their labels, folded in without features; its columns
    must be known."""
    entries = rankers.entries
    if not np.all(entries.scale.holds(matrix.values)):
        raise OffScale(f"the entries have the scale {matrix.scale}; the model's is {entries.scale}")
    columns = entries.columns.positions(matrix.column_labels)[matrix.by_row.columns]
    observed = AxisEntries(
        matrix.by_row.starts.astype(np.int64), columns, matrix.values.astype(np.float64)
    )
    encoded = _encode(entries, predictor, "row", observed)
    return FoldedRows(entries, encoded, observed, False, rankers)


def _encode(
    store: EntryStore, predictor: Predictor, axis: Axis, observed: AxisEntries
) -> Predictor:
    inputs = predictor.factors.select_inputs(axis, store.limits.bound(observed))
    warn_of_nothing(axis, inputs)
    with refuse_divergence():
        return predictor.with_only(axis, inputs)


def _encode_features(
    known: AxisFeatures | None, many_features: ManyFeatures | None, count: int, *, of: str
) -> FeatureVectors | None:
    """Encode the features of rows or columns; None if the model was fitted without."""
    if known is None:
        if many_features is not None:
            raise BadFeatures(f"the model was fitted without {of} features, and cannot read any")
        return None
    many_features = [None] * count if many_features is None else many_features
    if len(many_features) != count:
        raise BadFeatures(
            f"features are given for {len(many_features)} {of}s, and entries for {count}"
        )
    vectors = FeatureVectors.empty(0, known.n_inputs)
    for values in many_features:
        vectors = vectors.join(known.encode_one(values))
    return vectors


def check_histories(histories: Any) -> None:
    """Refuse anything but a list with columns, values and optional times for each row."""
    if isinstance(histories, np.ndarray) or not isinstance(histories, Sequence):
        raise BadEntries(f"histories must be a list of histories; got {show_value(histories)}")
    if not histories:
        raise BadEntries("there is no history to fold in")
    for number, history in enumerate(histories):
        if not isinstance(history, list | tuple) or len(history) not in (2, 3):
            raise BadEntries(
                "each history must be a tuple (columns, values) or (columns, values, times); "
                f"history {number} is {show_value(history)}"
            )


def _read_histories(
    entries: EntryStore,
    histories: Sequence[History],
    given: ManyFeatures | None,
    *,
    of: Axis,
    ordered: bool,
) -> AxisEntries:
    """Return the entries of some histories by position on the other axis, with features."""
    check_flag("ordered", ordered)
    others, known = entries.get_labels(OTHER_AXIS[of]), entries.get_features(of)
    scale, features = entries.scale, _encode_features(known, given, len(histories), of=of)
    have_features = np.zeros(len(histories), dtype=bool) if features is None else features.are_known
    parts = []
    for number, (labels, given_values, *given_times) in enumerate(histories):
        positions, values = others.positions(labels), to_numbers(given_values)
        dated = bool(given_times) and given_times[0] is not None
        extras = Extras(parse_times(given_times[0], positions.size).seconds if dated else None)
        if ordered or dated:
            extras = extras._replace(places=np.arange(positions.size, dtype=np.int32))
        if scale.is_interactions:
            positions, values, extras = _count_interactions(positions, values, extras)
        if positions.size or values.size or not have_features[number]:
            _check_history(
                others, scale, positions, values, of=of, or_features=features is not None
            )
        order = np.argsort(positions)  # as in a matrix: sums come out the same to the bit
        row_of = np.full(positions.size, number)
        parts.append(
            PlacedEntries(
                row_of, positions[order].astype(np.int64), values[order], extras.take(order)
            )
        )
    return group(len(histories), *parts)._replace(features=features)


def _count_interactions(
    positions: IndexArray, counts: FloatArray, extras: Extras
) -> tuple[IndexArray, FloatArray, Extras]:
    """Return distinct positions, the sums of their counts (each of which is 1 if none are given),
    and the latest."""
    counts = np.ones(positions.size) if counts.size == 0 else counts
    if counts.size != positions.size or counts.size == 0:
        return positions, counts, extras  # refused below
    order = np.argsort(positions, kind="stable")
    distinct, firsts = np.unique(positions[order], return_index=True)
    return (
        distinct,
        np.add.reduceat(counts[order], firsts),
        extras.take(order).merge(counts[order], firsts, None),
    )


def _check_history(
    others: Labels,
    scale: Scale,
    positions: IndexArray,
    values: FloatArray,
    *,
    of: str,
    or_features: bool,
) -> None:
    axis = others.axis
    if positions.size != values.size:
        raise BadEntries(
            f"{axis}s and values must have the same length; got {positions.size} and {values.size}"
        )
    if positions.size == 0:
        raise BadEntries(
            f"a {of} needs at least one entry{', or features,' if or_features else ''} to be folded in"
        )
    distinct, counts = np.unique(positions, return_counts=True)
    if distinct.size < positions.size:
        twice = others[int(distinct[counts > 1][0])]
        raise BadEntries(f"the {axis} {show_value(twice)} was given twice")
    wrong = np.flatnonzero(~scale.holds(values))
    if wrong.size:
        label = others[int(positions[wrong[0]])]
        raise OffScale(
            f"{axis} {show_value(label)} has value {values[wrong[0]]:g}; the scale is {scale}"
        )
