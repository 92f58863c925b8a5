"""Questions to a snapshot: predict, recommend, explain, similar, search; bodies in, bodies out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import CannotExtend
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.models.base import Model
from deepmf.models.explanation import explain_targets
from deepmf.models.fold_in import FoldedRows
from deepmf.models.latents import Latents
from deepmf.models.pairs import Unknown
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import ColumnNeighbours, Ranking
from deepmf.serve.changes import Given, check_features, features_of
from deepmf.serve.errors import Refusal
from deepmf.serve.ids import Id, as_labels, is_visitors, known_label, known_labels, shown
from deepmf.serve.schemas import (
    BestColumn,
    BestColumns,
    ColumnValue,
    ExplainedPrediction,
    ExplainRequest,
    FeatureReason,
    FoundColumn,
    FoundColumns,
    PairPrediction,
    Place,
    Predictions,
    PredictRequest,
    Reason,
    RecommendRequest,
    RowOrHistory,
    SimilarLabel,
    SimilarLabels,
    SimilarRequest,
)
from deepmf.serve.snapshot import Snapshot


class FoundPage(NamedTuple):
    """The positions of one page of what was found, and how many there are on all pages."""

    positions: list[int]
    total: int


class ColumnIndex:
    """The ids of all columns as text without case, those with most entries first."""

    def __init__(self, entries: EntryStore) -> None:
        self.columns = entries.columns
        self.order: list[int] = np.argsort(-entries.column_counts, kind="stable").tolist()
        labels = entries.columns.array.tolist()
        self._texts = [str(labels[at]).casefold() for at in self.order]

    def search(self, text: str, *, offset: int, limit: int) -> FoundPage:
        """Return a page of the columns that begin with a text, then of those that contain it elsewhere."""
        wanted = text.casefold()
        if not wanted:
            return FoundPage(self.order[offset : offset + limit], len(self.order))
        first: list[int] = []
        later: list[int] = []
        for at, known in zip(self.order, self._texts, strict=True):
            if wanted in known:
                (first if known.startswith(wanted) else later).append(at)
        found = first + later
        return FoundPage(found[offset : offset + limit], len(found))


MOST_ROWS = MOST_COLUMNS = 1_000  # shown


@dataclass(frozen=True)
class Projection:
    """The plane that a map shows, made once of a model as its file has it, and what lies on it.

    columns: labels of the columns with most entries, and where they are (columns, 2).
    rows: where some rows are, evenly chosen (rows, 2).
    """

    centre: FloatArray
    plane: FloatArray  # (latent, 2)
    columns: list[Any]
    column_places: FloatArray
    rows: FloatArray

    @classmethod
    def of(cls, model: Model) -> Projection:
        """Return the map of a model; one without latents is refused (`BadSetting`)."""
        entries, predictor = model.entries_, model.predictor_
        row_at = np.linspace(0, len(entries.rows) - 1, min(len(entries.rows), MOST_ROWS)).astype(np.int64)
        column_at = np.argsort(-entries.column_counts, kind="stable")[:MOST_COLUMNS]
        rows = predictor.directions(Latents(predictor.rows.take(row_at))).astype(np.float64)
        columns = predictor.directions(Latents(predictor.columns.take(column_at))).astype(np.float64)
        together = np.concatenate([rows, columns])
        centre = together.mean(axis=0)
        _, _, axes = np.linalg.svd(together - centre, full_matrices=False)
        plane = np.zeros((together.shape[1], 2))
        plane[:, : min(2, len(axes))] = axes[:2].T
        plane *= np.where(plane.sum(axis=0) < 0, -1.0, 1.0)  # an axis has no direction of its own
        labels = entries.columns[column_at].tolist()
        return cls(centre, plane, labels, (columns - centre) @ plane, (rows - centre) @ plane)

    def place(self, predictor: Predictor, row: int) -> tuple[float, float]:
        """Return where a row of a predictor lies, by its position."""
        directions = predictor.directions(Latents(predictor.rows.take(np.array([row])))).astype(np.float64)
        x, y = ((directions[0] - self.centre) @ self.plane).tolist()
        return x, y


COVERAGE = 0.9


@dataclass(frozen=True)
class PairFigures:
    """The expected values of pairs, their areas, and what else the model has: all are (pairs, ...)."""

    expected: FloatArray
    areas: npt.NDArray[np.str_]
    levels: FloatArray | None
    support: FloatArray | None
    probabilities: FloatArray | None
    ends: FloatArray | None  # (pairs, 2)

    @classmethod
    def at(
        cls, predictor: Predictor, rows: IndexArray, columns: IndexArray, areas: npt.NDArray[np.str_]
    ) -> PairFigures:
        """Return what a predictor says of pairs of positions."""
        scores, readout = predictor.score_pairs(rows, columns), predictor.readout
        levels = None if readout.scale.levels is None else readout.levels(scores)
        if not predictor.gives_distribution:
            return cls(readout.units(scores), areas, levels, None, None, None)
        found = predictor.distribution(rows, columns)
        ends = found.ends(COVERAGE, readout.scale)
        return cls(readout.units(scores), areas, levels, predictor.support, found.probabilities, ends)

    @classmethod
    def of_pairs(cls, model: Model, rows: Sequence[Any], columns: Sequence[Any], unknown: Unknown) -> PairFigures:
        """Return what a model says of pairs of labels, some of which may be unknown."""
        expected = model.scores(rows, columns, unknown=unknown)
        areas = model.areas(rows, columns, unknown=unknown)
        levels = None if model.scale_.levels is None else model.predict_levels(rows, columns, unknown=unknown)
        if not model.gives_distribution:
            return cls(expected, areas, levels, None, None, None)
        probabilities = model.predict_distribution(rows, columns, unknown=unknown)
        ends = np.stack(model.predict_interval(rows, columns, coverage=COVERAGE, unknown=unknown), axis=1)
        return cls(expected, areas, levels, model.support_, probabilities, ends)

    def fields(self) -> list[dict[str, Any]]:
        """Return what is said of each pair, by the names that bodies have; what is not a number is null."""
        expected, n_pairs = self.expected.tolist(), self.expected.size
        parts = zip(
            expected,
            [None] * n_pairs if self.levels is None else self.levels.tolist(),
            [None] * n_pairs if self.probabilities is None else self._distributions(self.probabilities),
            [None] * n_pairs if self.ends is None else self._intervals(self.ends),
            self.areas.tolist(),
            strict=True,
        )
        names = ("expected", "level", "distribution", "interval")
        return [
            # NaN is what an unknown pair may be asked to give
            (dict(zip(names, said, strict=True)) if said[0] == said[0] else dict.fromkeys(names))
            | {"area": area or None}
            for *said, area in parts
        ]

    def _distributions(self, probabilities: FloatArray) -> list[Any]:
        assert self.support is not None
        levels = self.support.tolist()
        return [
            [{"level": level, "probability": chance} for level, chance in zip(levels, chances, strict=True)]
            for chances in np.nan_to_num(np.clip(probabilities, 0.0, 1.0)).tolist()
        ]

    def _intervals(self, ends: FloatArray) -> list[Any]:
        return [{"low": low, "high": high, "coverage": COVERAGE} for low, high in ends.tolist()]


class Reasons(NamedTuple):
    """The entries and the features with the largest effects on a prediction, largest first."""

    entries: list[Reason]
    features: list[FeatureReason]


def reasons_of(snapshot: Snapshot, guest: FoldedRows | None, row: Any, columns: Sequence[Any], n: int) -> list[Reasons]:
    """Return for each column the n entries, and features, of a guest or of a known row with the largest effects."""
    model, entries = snapshot.model, snapshot.model.entries_
    targets = entries.columns.positions(columns)
    if guest is not None:
        own, predictor, described = 0, guest.predictor, guest.observed.below(entries.train.shape[1])
    elif "II" in model.predicts:
        at = entries.rows.positions([row])
        own, predictor, described = int(at[0]), model.predictor_, entries.row_entries(at)
    else:
        raise CannotExtend(f"{type(model).__name__} cannot explain by the entries of a row: {model.cannot}")
    encoding = None if entries.row_features is None else entries.row_features.encoding
    found = explain_targets(predictor, "row", described, entries.columns, own, targets, n, encoding=encoding)
    return [
        Reasons(
            [
                Reason(column=label, value=value, effect=effect)
                for label, value, effect in zip(
                    each.labels.tolist(), each.values.tolist(), each.effects.tolist(), strict=True
                )
            ],
            [FeatureReason(name=name, value=value, effect=effect) for name, value, effect in each.features],
        )
        for each in found
    ]


MOST_EXPLAINED = 10  # of the best columns


class Guest(NamedTuple):
    """A row that is not stored: its entries by column, and its features."""

    columns: list[Any]
    values: list[float]
    features: Given | None


def guest_of(snapshot: Snapshot, history: Sequence[ColumnValue], features: Given | None) -> Guest:
    """Return the row that a history and features make; what cannot be folded in is refused."""
    entries = snapshot.model.entries_
    if "II" not in snapshot.model.predicts:
        raise Refusal(409, "cannot_extend", f"{type(snapshot.model).__name__} cannot predict for new rows")
    columns = known_labels([entry.column for entry in history], entries.columns)
    values = [entry.value for entry in history]
    if len(set(columns)) < len(columns):
        twice = next(label for at, label in enumerate(columns) if label in columns[:at])
        raise Refusal(422, "given_twice", f"column {shown(twice)} was given twice")
    wrong = np.flatnonzero(~snapshot.model.scale_.holds(values))
    if wrong.size:
        check_value(snapshot, values[wrong[0]])
    if features is not None:
        check_features(snapshot.model, "row", features)
    return Guest(columns, values, features)


def check_value(snapshot: Snapshot, value: float) -> None:
    """Refuse a value that is not on the scale."""
    if not snapshot.model.scale_.holds(value):
        raise Refusal(422, "off_scale", f"the value {value:g} is not on the scale, which is {snapshot.model.scale_}")


def fold_in(snapshot: Snapshot, guests: Sequence[Guest]) -> FoldedRows:
    """Return the rows of guests, embedded together."""
    features = [guest.features for guest in guests]
    described = any(each is not None for each in features)
    histories = [(guest.columns, guest.values) for guest in guests]
    return snapshot.model.fold_in_many(histories, features=features if described else None)


def predict(snapshot: Snapshot, asked: PredictRequest, guest: FoldedRows | None) -> Predictions:
    """Return the predictions of pairs, or of a guest for some columns."""
    entries = snapshot.model.entries_
    if guest is not None:
        columns = known_labels(asked.columns or (), entries.columns)
        figures = _figures(guest, entries.columns.positions(columns))
        said = zip(columns, figures.fields(), strict=True)
        found = [PairPrediction(row=None, column=column, **fields) for column, fields in said]
        return Predictions(predictions=found, version=snapshot.version)
    labels = known_labels if asked.unknown == "error" else as_labels
    rows = labels([pair.row for pair in asked.pairs or ()], entries.rows)
    columns = labels([pair.column for pair in asked.pairs or ()], entries.columns)
    if asked.unknown == "error":
        at = entries.rows.positions(rows), entries.columns.positions(columns)
        figures = PairFigures.at(snapshot.model.predictor_, *at, entries.areas(*at))
    else:
        figures = PairFigures.of_pairs(snapshot.model, rows, columns, asked.unknown)
    pairs = zip(rows, columns, figures.fields(), strict=True)
    found = [PairPrediction(row=row, column=column, **fields) for row, column, fields in pairs]
    return Predictions(predictions=found, version=snapshot.version)


def recommend(
    snapshot: Snapshot,
    asked: RecommendRequest,
    guest: FoldedRows | None,
    neighbours: ColumnNeighbours | None = None,
) -> BestColumns:
    """Return the best columns of a known row, or of a guest; of those near it where there are very many."""
    entries, predictor = snapshot.model.entries_, snapshot.model.predictor_
    choice: dict[str, Any] = {
        "among": _labels(snapshot, asked.among),
        "exclude": _labels(snapshot, asked.exclude),
        "min_entries": asked.min_entries,
        "include_observed": asked.include_observed,
        "neighbours": neighbours,
    }
    if guest is not None:
        row = None
        best: Ranking = guest.recommend(asked.n, **choice)
        figures = _figures(guest, entries.columns.positions(best.labels))
    else:
        row = _row(snapshot, asked)
        best = snapshot.model.recommend(row, asked.n, **choice)
        columns = entries.columns.positions(best.labels)
        rows = np.repeat(entries.rows.positions([row]), columns.size)
        figures = PairFigures.at(predictor, rows, columns, entries.areas(rows, columns))
    labels = best.labels.tolist()
    reasons: list[Reasons | None] = [None] * len(labels)
    if asked.reasons:
        reasons[:MOST_EXPLAINED] = reasons_of(snapshot, guest, row, labels[:MOST_EXPLAINED], asked.reasons)
    lines = zip(labels, reasons, figures.fields(), strict=True)
    found = [
        BestColumn(
            column=label,
            reasons=None if why is None else why.entries,
            feature_reasons=None if why is None else why.features,
            **fields,
        )
        for label, why, fields in lines
    ]
    return BestColumns(row=row, best=found, version=snapshot.version)


def explain(snapshot: Snapshot, asked: ExplainRequest, guest: FoldedRows | None) -> ExplainedPrediction:
    """Return a prediction and the entries and features of the row that pulled it up or down the most."""
    entries = snapshot.model.entries_
    column = known_label(asked.column, entries.columns)
    at = entries.columns.positions([column])
    row = None if guest is not None else _row(snapshot, asked)
    if guest is not None:
        figures = _figures(guest, at)
    else:
        row_at = entries.rows.positions([row])
        figures = PairFigures.at(snapshot.model.predictor_, row_at, at, entries.areas(row_at, at))
    (reasons,) = reasons_of(snapshot, guest, row, [column], asked.n)
    return ExplainedPrediction(
        row=row,
        column=column,
        entries=reasons.entries,
        features=reasons.features,
        version=snapshot.version,
        **figures.fields()[0],
    )


def similar(snapshot: Snapshot, asked: SimilarRequest) -> SimilarLabels:
    """Return the columns, or rows, most similar to one; of rows, those of visitors of the page are left out."""
    model = snapshot.model
    if asked.column is not None:
        label = known_label(asked.column, model.entries_.columns)
        found = _pairs(model.similar_columns(label, asked.n))
    else:
        label = _row(snapshot, asked)
        found = _similar_rows(model, label, asked.n)
    return SimilarLabels(
        axis="row" if asked.column is None else "column",
        id=label,
        similar=[SimilarLabel(id=other, cosine=cosine) for other, cosine in found],
        version=snapshot.version,
    )


def _similar_rows(model: Model, label: Any, n: int) -> list[tuple[Any, float]]:
    n_asked, n_rows = n, len(model.entries_.rows)
    while True:
        found = [pair for pair in _pairs(model.similar_rows(label, n_asked)) if not is_visitors(pair[0])]
        if len(found) >= n or n_asked >= n_rows:
            return found[:n]
        n_asked = min(4 * n_asked, n_rows)


def _pairs(best: Ranking) -> list[tuple[Any, float]]:
    return list(zip(best.labels.tolist(), best.values.tolist(), strict=True))


def search_columns(snapshot: Snapshot, index: ColumnIndex, text: str, *, offset: int, limit: int) -> FoundColumns:
    """Return a page of the columns whose id begins with a text, or contains it."""
    entries = snapshot.model.entries_
    page = index.search(text, offset=offset, limit=limit)
    counts, n_trained = entries.column_counts, entries.train.shape[1]
    end = offset + len(page.positions)
    return FoundColumns(
        columns=[
            FoundColumn(
                column=label,
                n_entries=int(counts[at]),
                trained=at < n_trained,
                features=features_of(snapshot.model, "column", label) or None,
            )
            for at, label in zip(page.positions, index.columns[np.array(page.positions, dtype=np.int64)], strict=True)
        ],
        total=page.total,
        next_offset=end if end < page.total else None,
        version=snapshot.version,
    )


def place(snapshot: Snapshot, projection: Projection, asked: RowOrHistory, guest: FoldedRows | None) -> Place:
    """Return where a known row, or a guest, lies on the map."""
    if guest is not None:
        x, y = projection.place(guest.predictor, 0)
    else:
        at = snapshot.model.entries_.rows.positions([_row(snapshot, asked)])[0]
        x, y = projection.place(snapshot.model.predictor_, int(at))
    return Place(x=x, y=y, version=snapshot.version)


def _row(snapshot: Snapshot, asked: RowOrHistory | SimilarRequest) -> Any:
    assert asked.row is not None
    return known_label(asked.row, snapshot.model.entries_.rows)


def _labels(snapshot: Snapshot, ids: Sequence[Id] | None) -> list[Any] | None:
    return None if ids is None else known_labels(ids, snapshot.model.entries_.columns)


def _figures(guest: FoldedRows, columns: IndexArray) -> PairFigures:
    entries, rows = guest.entries, np.zeros(columns.size, dtype=np.int64)
    areas = np.where(columns < entries.train.shape[1], "II", "IV")
    return PairFigures.at(guest.predictor, rows, columns, areas)
