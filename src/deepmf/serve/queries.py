"""Queries to a snapshot: predict, recommend, explain, find similar, search columns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadFeatures, BadSetting, CannotExtend
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.models.base import Model
from deepmf.models.explanation import Explanation, explain_predictions
from deepmf.models.fold_in import FoldedRows
from deepmf.recommend.column_choice import choose_columns
from deepmf.recommend.ranking import Ranking
from deepmf.recommend.request import Request, list_options
from deepmf.scoring.pairs import NO_VALUES, Unknown
from deepmf.scoring.predictor import PairPredictor
from deepmf.serve import schemas as s
from deepmf.serve.changes import FeatureValues, check_features, compute_etag, read_features
from deepmf.serve.ids import (
    convert_id,
    convert_ids,
    find_label,
    find_labels,
    invent_label,
    is_visitor,
    quote_id,
)
from deepmf.serve.schemas import ApiError
from deepmf.serve.snapshot import Snapshot, check_value
from deepmf.serve.writer import describe_state

AreaArray = npt.NDArray[np.str_]

COVERAGE = 0.9  # of intervals
MAX_EXPLAINED = 10  # of the recommended columns


def predict(
    request: s.PredictRequest, snapshot: Snapshot, new_row: FoldedRows | None
) -> s.PredictResponse:
    """Predict pairs, or some columns for a new row."""
    model, moment = snapshot.model, find_moment(request.at, snapshot)
    entries = model.entries_
    if entries.scale.is_interactions:
        raise ApiError(409, "no_values", NO_VALUES)
    if new_row is not None:
        columns = find_labels(request.columns or (), entries.columns)
        rows: list[Any] = [None] * len(columns)
        described = _predict_row(model, new_row, None, columns, moment)
    else:
        is_known = request.unknown == "error"
        convert = find_labels if is_known else convert_ids
        rows = convert([pair.row for pair in request.pairs or ()], entries.rows)
        columns = convert([pair.column for pair in request.pairs or ()], entries.columns)
        if is_known:
            described = _predict_known(model, rows, columns, moment)
        else:
            described = _predict_pairs(model, rows, columns, moment, request.unknown)
    predictions = [
        s.PairPrediction(row=row, column=column, **fields_of_pair)
        for row, column, fields_of_pair in zip(
            rows, columns, _list_fields(model, *described), strict=True
        )
    ]
    return s.PredictResponse(predictions=predictions, version=snapshot.version)


def recommend(
    request: s.RecommendRequest, snapshot: Snapshot, new_row: FoldedRows | None
) -> s.RecommendResponse:
    """Recommend columns to a known row or a new row."""
    model, entries = snapshot.model, snapshot.model.entries_
    options = _read_request(request, snapshot)
    row = None if request.row is None else convert_id(request.row, entries.rows)
    reasons: list[dict[str, Any]] = []
    ranked_by: Any = options.rank_by
    if request.fallback and not new_row and (row is None or row not in entries.rows):
        best, ranked_by = _rank_popular(entries, options), "popularity"
        numbers, areas = _predict_popular(model, best, options.at)
    else:
        row = _find_row(request, model)
        best = new_row.answer(options) if new_row else model.answer(row, options)
        columns = best.labels.tolist()
        numbers, areas = _predict_row(model, new_row, row, columns, options.at)
        if request.reasons:
            explained = columns[:MAX_EXPLAINED]
            explanations = find_reasons(model, new_row, row, explained, request.reasons)
            reasons = [_list_reasons(explanation) for explanation in explanations]
    if not entries.train.has_values:
        numbers[:, 0] = best.values
    return s.RecommendResponse(
        row=row,
        rank_by=ranked_by,
        relevant=best.relevant,
        best=_describe_best(model, best, reasons, _list_fields(model, numbers, areas)),
        version=snapshot.version,
    )


def _describe_best(
    model: Model,
    best: Ranking,
    reasons: Sequence[Mapping[str, Any]],
    fields_of_columns: Iterable[dict[str, Any]],
) -> list[s.RecommendedColumn]:
    """Return the recommended columns with their predictions, chances, features and reasons."""
    columns = best.labels.tolist()
    nothing = [None] * len(columns)
    parts = zip(
        columns,
        nothing if best.presence is None else best.presence.tolist(),
        nothing if best.liked is None else best.liked.tolist(),
        [*reasons, *[{}] * (len(columns) - len(reasons))],
        fields_of_columns,
        strict=True,
    )
    return [
        s.RecommendedColumn(
            column=column,
            column_name=model.column_names_.get(column),
            features=read_features(model, "column", column) or None,
            presence=presence,
            liked=liked,
            reasons=why.get("entries"),
            feature_reasons=why.get("features"),
            presence_reasons=why.get("presence"),
            **fields,
        )
        for column, presence, liked, why, fields in parts
    ]


def _rank_popular(entries: EntryStore, request: Request) -> Ranking:
    """Return the columns with most entries among those of a request, and their shares of the
    rows."""
    columns = choose_columns(entries, request).positions
    columns = columns[np.argsort(-entries.column_counts[columns], kind="stable")][: request.n]
    return Ranking(entries.columns[columns], entries.column_counts[columns] / len(entries.rows))


def _read_request(given: s.RecommendRequest, snapshot: Snapshot) -> Request:
    columns = snapshot.model.entries_.columns
    options = {option.name: getattr(given, option.name) for option in list_options(Request)}
    options["rank_by"] = options["rank_by"] or snapshot.model.rankers_.rank_by
    return Request(
        **options,
        n=given.n,
        at=find_moment(given.at, snapshot),
        among=find_labels(given.among or (), columns) or None,
        exclude=_find_omitted(given, snapshot),
        where=given.where and _read_conditions(given.where, snapshot),
    )


def find_moment(at: int | None, snapshot: Snapshot) -> int | None:
    """Return the time that a question is about: now unless one is given; None for a model that
    learned no times."""
    if not snapshot.model.has_drift and snapshot.model.rankers_.recency is None:
        if at is not None:
            raise ApiError(
                409,
                "no_times",
                "the model has learned nothing from times and cannot answer for a time",
            )
        return None
    return int(time.time()) if at is None else at


def _find_omitted(
    request: s.RecommendRequest, snapshot: Snapshot
) -> npt.NDArray[np.bool_] | list[Any]:
    """Return the columns to leave out: those that the request excludes, hidden ones, and those the
    row dismissed."""
    columns, omissions = snapshot.model.entries_.columns, snapshot.omissions
    excluded = find_labels(request.exclude or (), columns)
    omitted = [omissions.find_hidden(columns)]
    if request.row is not None:
        omitted.append(
            omissions.find_dismissed(convert_id(request.row, snapshot.model.entries_.rows), columns)
        )
    if not any(positions.size for positions in omitted):
        return excluded
    mask = np.zeros(len(columns), dtype=bool)
    for positions in (*omitted, columns.positions(excluded)):
        mask[positions] = True
    return mask


def _read_conditions(where: Mapping[str, s.FeatureCondition], snapshot: Snapshot) -> dict[str, Any]:
    """Return conditions as the library takes them; raise `ApiError` for those that it would
    refuse."""
    column_features = snapshot.model.entries_.column_features
    if column_features is None:
        raise ApiError(409, "no_features", "the model was fitted without column features")
    conditions = {
        name: condition.model_dump(exclude_none=True) for name, condition in where.items()
    }
    try:
        column_features.check_conditions(conditions)
    except (BadFeatures, BadSetting) as error:
        raise ApiError(422, "bad_condition", str(error)) from error
    return conditions


def explain(
    request: s.ExplainRequest, snapshot: Snapshot, new_row: FoldedRows | None
) -> s.ExplainResponse:
    """Explain a prediction by the entries and features of the row that raise or lower it most."""
    model, moment = snapshot.model, find_moment(request.at, snapshot)
    column = find_label(request.column, model.entries_.columns)
    row = _find_row(request, model)
    numbers, areas = _predict_row(model, new_row, row, [column], moment)
    (explanation,) = find_reasons(model, new_row, row, [column], request.n)
    if not model.entries_.train.has_values:
        numbers[:, 0] = explanation.prediction
    (fields,) = _list_fields(model, numbers, areas)
    return s.ExplainResponse(
        row=row,
        column=column,
        column_name=model.column_names_.get(column),
        **_list_reasons(explanation),
        version=snapshot.version,
        **fields,
    )


def find_similar(
    request: s.SimilarRequest, snapshot: Snapshot, _: object = None
) -> s.SimilarResponse:
    """Find the columns or rows most similar to one; hidden columns and visitors of the page are
    left out."""
    model = snapshot.model
    if request.column is not None:
        label, names = find_label(request.column, model.entries_.columns), model.column_names_
        columns = model.entries_.columns
        hidden = set(columns[snapshot.omissions.find_hidden(columns)].tolist())
        find = partial(model.similar_columns, label, min_entries=request.min_entries)
        pairs = _select_similar(find, request.n, len(columns), hidden.__contains__)
    else:
        assert request.row is not None
        label, names = find_label(request.row, model.entries_.rows), model.row_names_
        pairs = _select_similar(
            partial(model.similar_rows, label), request.n, len(model.entries_.rows), is_visitor
        )
    return s.SimilarResponse(
        axis="row" if request.column is None else "column",
        id=label,
        name=names.get(label),
        similar=[
            s.SimilarId(id=similar_id, name=names.get(similar_id), cosine=cosine)
            for similar_id, cosine in pairs
        ],
        version=snapshot.version,
    )


def _select_similar(
    find: Callable[[int], Ranking], n: int, n_labels: int, is_omitted: Callable[[Any], bool]
) -> list[tuple[Any, float]]:
    """Return the n most similar labels that are not omitted; ask for more as long as too few are
    left."""
    n_wanted = n
    while True:
        best = find(n_wanted)
        pairs = zip(best.labels.tolist(), best.values.tolist(), strict=True)
        selected = [(label, cosine) for label, cosine in pairs if not is_omitted(label)]
        if len(selected) >= n or n_wanted >= n_labels:
            return selected[:n]
        n_wanted = min(4 * n_wanted, n_labels)


def list_entries(
    axis: s.Axis, given: s.Id, snapshot: Snapshot, _: object = None, *, offset: int, limit: int
) -> s.EntriesResponse:
    """List a page of the entries of a row by column, or of a column by row."""
    labels = snapshot.model.entries_.get_labels(axis)
    label = convert_id(given, labels)
    entries = snapshot.read_entries(axis, label)
    if not entries:
        find_label(given, labels)
    trained = snapshot.model.entries_.train
    names, listed = snapshot.model.column_names_, []
    for other_label, entry in sorted(entries.items())[offset : offset + limit]:
        if axis == "column":
            named: dict[str, Any] = {"row": None if is_visitor(other_label) else other_label}
        else:
            named = {"column": other_label, "column_name": names.get(other_label)}
        listed.append(s.ListedEntry(**named, **entry.describe()))
    return s.EntriesResponse(
        axis=axis,
        id=label,
        trained=label in (trained.rows if axis == "row" else trained.columns),
        n_entries=len(entries),
        next_offset=offset + limit if offset + limit < len(entries) else None,
        entries=listed,
        etag=compute_etag(entries),
        version=snapshot.version,
    )


def list_unused(snapshot: Snapshot) -> list[s.UnusedEntry]:
    """List the first of the stored entries that the model cannot use."""
    return [
        s.UnusedEntry(row=None if is_visitor(row) else row, column=column, reason=line.reason)
        for (row, column), line in islice(snapshot.unused.items(), s.MAX_CONDITIONS)
    ]


def list_features(
    axis: s.Axis, given: s.Id, snapshot: Snapshot, _: object = None
) -> s.FeaturesResponse:
    """List the features of a row or column as the model encodes them."""
    label = find_label(given, snapshot.model.entries_.get_labels(axis))
    features = read_features(snapshot.model, axis, label)
    etag = compute_etag(features)
    return s.FeaturesResponse(
        axis=axis, id=label, features=features, etag=etag, version=snapshot.version
    )


def get_state(given: s.Id, snapshot: Snapshot, _: object = None) -> s.StateResponse:
    """Return the state of a column; a known column without a state is visible."""
    column = convert_id(given, snapshot.model.entries_.columns)
    state = snapshot.omissions.states.get(column)
    if state is None:
        find_label(given, snapshot.model.entries_.columns)
    fields = describe_state(state)
    return s.StateResponse.model_validate(
        {
            "column": column,
            "visible": fields["visible"],
            "from": _to_datetime(fields["start"]),
            "until": _to_datetime(fields["stop"]),
            "shown": state is None or state.is_shown(time.time()),
            "etag": compute_etag(fields),
            "version": snapshot.version,
        }
    )


def _to_datetime(seconds: int | None) -> datetime | None:
    if seconds is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def list_dismissed(given: s.Id, snapshot: Snapshot, _: object = None) -> s.DismissedResponse:
    """List the columns that a row has dismissed."""
    row = convert_id(given, snapshot.model.entries_.rows)
    columns = snapshot.omissions.dismissals.get(row)
    if columns is None:
        find_label(given, snapshot.model.entries_.rows)
    dismissed = sorted(columns or ())
    etag = compute_etag(dict.fromkeys(dismissed, True))
    return s.DismissedResponse(row=row, columns=dismissed, etag=etag, version=snapshot.version)


# Rows that are not stored


class History(NamedTuple):
    """A new row that is not stored: its entries by column, their times (None without any), and its
    features."""

    columns: list[Any]
    values: list[float]
    times: list[int | None] | None
    features: FeatureValues | None


def check_history(
    snapshot: Snapshot, entries: Sequence[s.HistoryEntry], features: FeatureValues | None
) -> History:
    """Return the history of a new row; raise `ApiError` if it cannot be folded in."""
    if "II" not in snapshot.model.predicts:
        raise ApiError(
            409, "cannot_extend", f"{type(snapshot.model).__name__} cannot predict for new rows"
        )
    columns = find_labels([entry.column for entry in entries], snapshot.model.entries_.columns)
    given_values = [entry.value for entry in entries]
    if snapshot.model.entries_.train.has_values and None in given_values:
        raise ApiError(422, "value_missing", "every entry of a history needs a value")
    values = [1.0 if value is None else value for value in given_values]  # one interaction
    twice = [label for label, count in Counter(columns).items() if count > 1]
    if twice:
        raise ApiError(422, "given_twice", f"column {quote_id(twice[0])} was given twice")
    off_scale = np.flatnonzero(~snapshot.model.scale_.holds(values))
    if off_scale.size:
        check_value(snapshot, values[off_scale[0]])
    if features is not None:
        check_features(snapshot.model, "row", features)
    times = [entry.time for entry in entries]
    return History(columns, values, None if set(times) <= {None} else times, features)


def fold_in(snapshot: Snapshot, histories: Sequence[History]) -> FoldedRows:
    """Fold in histories together."""
    features = [history.features for history in histories]
    has_features = any(values is not None for values in features)
    entries = [(history.columns, history.values, history.times) for history in histories]
    return snapshot.model.fold_in_many(
        entries, ordered=True, features=features if has_features else None
    )


# Predictions and their reasons


def _find_row(request: s.RowOrHistory, model: Model) -> Any:
    """Return the label of the row that a request names; None for a new row."""
    return None if request.row is None else find_label(request.row, model.entries_.rows)


def _predict_row(
    model: Model, new_row: FoldedRows | None, row: Any, columns: Sequence[Any], at: int | None
) -> tuple[FloatArray, AreaArray]:
    """Return what `describe_pairs` says of columns for a new row, or a known one, and their areas."""
    if new_row is None:
        return _predict_known(model, [row] * len(columns), columns, at)
    entries = model.entries_
    columns_at = entries.columns.positions(columns)
    rows_at = np.zeros(columns_at.size, dtype=np.int64)
    areas = entries.areas(rows_at + len(entries.rows), columns_at)
    return describe_pairs(new_row.predictor_at(at), rows_at, columns_at), areas


def find_reasons(
    model: Model, new_row: FoldedRows | None, row: Any, columns: Sequence[Any], n: int
) -> list[Explanation]:
    """Return for each column the n entries and features of a row with the largest effects on its
    prediction."""
    targets = model.entries_.columns.positions(columns)
    if new_row is not None:
        position, predictor, observed = 0, new_row.predictor, new_row.observed
    elif "II" in model.predicts:
        at = model.entries_.rows.positions([row])
        position, predictor = int(at[0]), model.predictor_
        observed = model.entries_.all_entries("row", at)
    else:
        name = type(model).__name__
        raise CannotExtend(f"{name} cannot explain by the entries of a row: {model.cannot}")
    return explain_predictions(model.rankers_, predictor, "row", observed, position, targets, n)


def describe_pairs(predictor: PairPredictor, rows: IndexArray, columns: IndexArray) -> FloatArray:
    """Return of each pair the expected value, the level, the ends of an interval and the
    probabilities of all levels, (pairs, 4 + levels); NaN, and no probabilities, where there are
    none."""
    readout, scale = predictor.readout, predictor.readout.scale
    described = np.full((rows.size, 4), np.nan)
    described[:, 0] = predictor.predict_units(rows, columns)
    if scale.levels is not None:
        described[:, 1] = predictor.predict_levels(rows, columns, metric="rmse")
    if not readout.gives_distribution:
        return described
    distribution = predictor.distribution(rows, columns)
    described[:, 2:] = distribution.ends(COVERAGE, scale)
    return np.hstack([described, np.clip(distribution.probabilities, 0.0, 1.0)])


def _predict_known(
    model: Model, rows: Sequence[Any], columns: Sequence[Any], at: int | None
) -> tuple[FloatArray, AreaArray]:
    """Return what `describe_pairs` says of pairs of known labels, and their areas."""
    entries = model.entries_
    pairs = entries.rows.positions(rows), entries.columns.positions(columns)
    return describe_pairs(model.predictor_at(at), *pairs), entries.areas(*pairs)


def _predict_pairs(
    model: Model, rows: list[Any], columns: list[Any], at: int | None, unknown: Unknown
) -> tuple[FloatArray, AreaArray]:
    """Return what `describe_pairs` says of pairs of labels, and their areas."""
    areas = model.areas(rows, columns, unknown=unknown)
    return model.ask(rows, columns, at, unknown, describe_pairs), areas


def _predict_popular(model: Model, best: Ranking, at: int | None) -> tuple[FloatArray, AreaArray]:
    """Return the same of the best columns for a row that the model does not know."""
    if model.scale_.is_interactions:
        return np.full((best.labels.size, 4), np.nan), np.full(best.labels.size, "")
    rows = [invent_label(model.entries_.rows)] * best.labels.size
    return _predict_pairs(model, rows, best.labels.tolist(), at, "fallback")


def _list_fields(model: Model, numbers: FloatArray, areas: AreaArray) -> list[dict[str, Any]]:
    """Return the fields of `Prediction` for what `describe_pairs` says; NaN becomes null."""
    levels = model.support_.tolist() if model.gives_distribution else []
    described = numbers.astype(object)
    described[np.isnan(numbers)] = None
    fields = []
    for line, area in zip(described.tolist(), areas.tolist(), strict=True):
        expected, level, low, high, *probabilities = line
        interval = distribution = None
        if low is not None:
            interval = {"low": low, "high": high, "coverage": COVERAGE}
        if low is not None and probabilities:
            chances = zip(levels, probabilities, strict=True)
            distribution = [{"level": name, "probability": chance} for name, chance in chances]
        fields.append(
            {
                "expected": expected,
                "level": level,
                "distribution": distribution,
                "interval": interval,
                "area": area or None,
            }
        )
    return fields


def _list_reasons(found: Explanation) -> dict[str, Any]:
    names = [None] * found.labels.size if found.names is None else found.names.tolist()
    listed = zip(
        found.labels.tolist(), found.values.tolist(), found.effects.tolist(), names, strict=True
    )
    entries, presence = (
        [
            s.EntryReason(column=column, value=value, effect=effect, column_name=name)
            for column, value, effect, name in reasons
        ]
        for reasons in (listed, found.presence)
    )
    features = [
        s.FeatureReason(name=name, value=value, effect=effect)
        for name, value, effect in found.features
    ]
    return {"entries": entries, "features": features, "presence": presence}


# Search


class ColumnIndex:
    """The names and ids of all columns in lower case, ordered by their number of entries, largest
    first."""

    def __init__(self, entries: EntryStore) -> None:
        self.columns = entries.columns
        self._order: list[int] = np.argsort(-entries.column_counts, kind="stable").tolist()
        labels = entries.columns.array.tolist()
        self._texts = [str(labels[at]).casefold() for at in self._order]
        names = (
            [None] * len(labels)
            if entries.column_names is None
            else entries.column_names.find(labels)
        )
        self._names = [(names[at] or "").casefold() for at in self._order]

    def search(self, text: str) -> list[int]:
        """Return the positions of the columns whose name or id starts with a text, then of those
        that contain it."""
        prefix = text.casefold()
        if not prefix:
            return self._order
        prefixed: list[int] = []
        containing: list[int] = []
        for at, label, name in zip(self._order, self._texts, self._names, strict=True):
            if prefix in label or prefix in name:
                is_prefix = label.startswith(prefix) or name.startswith(prefix)
                (prefixed if is_prefix else containing).append(at)
        return prefixed + containing


def search_columns(
    snapshot: Snapshot,
    index: ColumnIndex,
    text: str,
    *,
    offset: int,
    limit: int,
    include_hidden: bool = False,
) -> s.ColumnsResponse:
    """Return a page of the columns whose names or ids start with a text, or contain it."""
    entries = snapshot.model.entries_
    positions = index.search(text)
    hidden = set(snapshot.omissions.find_hidden(entries.columns).tolist())
    if hidden and not include_hidden:
        positions = [at for at in positions if at not in hidden]
    page = positions[offset : offset + limit]
    counts, n_trained = entries.column_counts, entries.train.shape[1]
    end = offset + len(page)
    return s.ColumnsResponse(
        columns=[
            s.ColumnSummary(
                column=label,
                column_name=snapshot.model.column_names_.get(label),
                n_entries=int(counts[at]),
                trained=at < n_trained,
                shown=at not in hidden,
                features=read_features(snapshot.model, "column", label) or None,
            )
            for at, label in zip(page, index.columns[np.array(page, dtype=np.int64)], strict=True)
        ],
        total=len(positions),
        next_offset=end if end < len(positions) else None,
        version=snapshot.version,
    )
