"""Questions to a snapshot: predict, recommend, explain, similar, search; bodies in, bodies out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from deepmf.matrix.arrays import IndexArray
from deepmf.models.column_neighbours import ColumnNeighbours
from deepmf.models.folded import FoldedRows
from deepmf.models.model import Model
from deepmf.models.ranking import Ranking
from deepmf.serve.column_index import ColumnIndex
from deepmf.serve.entry_bodies import ColumnValue
from deepmf.serve.latent_map import Projection
from deepmf.serve.model_bodies import FoundColumn, FoundColumns, Place
from deepmf.serve.prediction_bodies import (
    BestColumn,
    BestColumns,
    ExplainedPrediction,
    ExplainRequest,
    PairPrediction,
    Predictions,
    PredictRequest,
    RecommendRequest,
    RowOrHistory,
    SimilarLabel,
    SimilarLabels,
    SimilarRequest,
)
from deepmf.serve.predictions import PairFigures
from deepmf.serve.reasons import Reasons, reasons_of
from deepmf.serve.refusals import Refusal
from deepmf.serve.served_features import Given, check_features, features_of
from deepmf.serve.snapshot import Snapshot
from deepmf.serve.wire_ids import Id, as_labels, is_visitors, known_label, known_labels, shown

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
