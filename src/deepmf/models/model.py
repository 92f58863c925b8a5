"""The face of every model: fit, predict, extend, complete, recommend, save."""

from __future__ import annotations

import copy
import reprlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from deepmf.errors import (
    BadEntries,
    BadModelFile,
    BadSetting,
    CannotExtend,
    NotFitted,
    NothingObserved,
    TrainingDiverged,
)
from deepmf.matrix.areas import AREAS
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.completion import complete_array, complete_frame, complete_to
from deepmf.models.fallback import Fallback
from deepmf.models.label_pairs import LabelPairs, Unknown, find_pairs
from deepmf.models.ranking import Ranking, batches, best_positions, most_similar
from deepmf.storage.label_tensors import check_storable
from deepmf.storage.matrix_tensors import pack_matrix, unpack_matrix
from deepmf.storage.model_file import write_file
from deepmf.storage.packed import Packed, Tensors, field, refusing
from deepmf.training.checkpoint import remove_checkpoint
from deepmf.training.declarations import signature_of
from deepmf.training.history import History
from deepmf.training.loop import Callback
from deepmf.training.settings import Settings

LEVEL_METRICS = ("rmse", "mae", "accuracy")


class Model(ABC):
    """What every model can do once it is fitted; subclasses learn and score.

    The constructor stores settings, `fit` learns, names that end in `_` are learned.
    """

    settings_class: ClassVar[type[Settings]]
    predicts: ClassVar[tuple[str, ...]] = AREAS  # the areas it can predict in
    cannot: ClassVar[str] = ""  # why not in the others
    answers_levels: ClassVar[bool] = False  # whether `predict` answers in levels

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "settings_class" in vars(cls):
            cls.__signature__ = signature_of(cls.settings_class)  # type: ignore[attr-defined]  # what help() shows

    def __init__(self, /, **settings: Any) -> None:
        self.settings = self.settings_class.from_names(settings)
        self.observations_: EntryStore | None = None
        self._last_fallback: Fallback | None = None
        self.history_ = History()

    def fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 25,
        keep_checkpoint: bool = False,
    ) -> Self:
        """Learn from a matrix; validation entries choose the best epoch, never teach.

        With `checkpoint`, the state of training is kept in that file every so many epochs; a fit that finds the file
        of a run like itself that was killed continues it to the same result, and removes it at the end. With
        `keep_checkpoint` it stays, for the caller to remove once the model is saved: until then, a fit that is run
        again goes straight to the same model. A fit that was interrupted always leaves it.
        """
        _check_trainable(train)
        _check_validation(train, validation)
        path = None if checkpoint is None else Path(checkpoint)
        over = False
        try:
            self._fit(train, validation, callbacks=callbacks, checkpoint=path, checkpoint_every=checkpoint_every)
            over = self.history_.stopped != "interrupted"
        except TrainingDiverged:
            over = True
            raise
        finally:
            if over and path is not None and not keep_checkpoint:
                remove_checkpoint(path)
        return self

    @abstractmethod
    def _fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        *,
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        checkpoint_every: int,
    ) -> None:
        """Learn, and set what is learned."""

    def extend(self, new: ObservedMatrix) -> Self:
        """Return a model that also covers new rows, new columns and new entries, without training.

        This model stays as it is. A new row is described by its entries over the trained columns, a new column by
        its entries over the trained rows; entries of area IV are never inputs. A row or column without any such
        entry is predicted from an empty description, and a `NothingObserved` warning names it. What a method cannot
        predict for is refused with the reason (`CannotExtend`).
        """
        seen = self._seen
        _check_matrix(new, "extend")
        if self.predicts == ("I",):
            raise CannotExtend(f"{type(self).__name__} cannot be extended: {self.cannot}")
        observations, rows, columns = seen.extended(new)
        self._refuse_new("II", "row", seen.rows, observations.rows)
        self._refuse_new("III", "column", seen.columns, observations.columns)
        model = copy.copy(self)
        model.observations_ = observations
        _warn_of_nothing(observations, "row", rows, observations.row_entries(rows).starts)
        _warn_of_nothing(observations, "column", columns, observations.column_entries(columns).starts)
        model._extend(rows, columns)
        return model

    @abstractmethod
    def _extend(self, rows: IndexArray, columns: IndexArray) -> None:
        """Describe the rows and columns at these positions anew, sharing everything else with the old model."""

    def predict(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> FloatArray:
        """Return the prediction for each pair of a row and a column, in the scale's units.

        `unknown` says what becomes of a pair whose row or column the model does not know, here and wherever pairs are
        asked for: "error" refuses all pairs and names it, "nan" answers NaN, and "fallback" answers by the means of
        what is known (as `Means` does: the overall mean, plus the effect of the row or of the column that is known).
        """
        of_means = self.scale_.nearest_level if self.answers_levels else self.scale_.clip
        return self._answered(rows, columns, unknown, self._to_values, of_means)

    def predict_levels(
        self, rows: Iterable[Any], columns: Iterable[Any], *, metric: str = "rmse", unknown: Unknown = "error"
    ) -> FloatArray:
        """Return a legal level for each pair of a row and a column.

        `metric` is what the levels should be best by ("rmse", "mae" or "accuracy"), for models that answer with a
        distribution; the others have one answer for all. By `unknown="fallback"`, it is the level nearest the means.
        """
        self._check_levels(metric)
        return self._answered(rows, columns, unknown, self._to_levels, self.scale_.nearest_level)

    def scores(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> FloatArray:
        """Return the real-valued score of each pair in the scale's units, also where predictions are levels."""
        return self._answered(rows, columns, unknown, self._to_units, self.scale_.clip)

    def areas(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> npt.NDArray[np.str_]:
        """Return the area of each pair: "I" trained row and column, "II" new row, "III" new column, "IV" both new.

        A pair with an unknown row or column lies in none: where that is no error, its area is "".
        """
        pairs = self._pairs(rows, columns, unknown)
        return np.where(pairs.known, self._seen.areas(pairs.rows, pairs.columns), "")

    def row_counts(self, rows: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Return how many entries describe each of some rows: those over the trained columns."""
        distinct, which = np.unique(self._seen.rows.positions(rows), return_inverse=True)
        counts: npt.NDArray[np.int64] = np.diff(self._seen.row_entries(distinct).starts)[which]
        return counts

    def recommend(
        self,
        rows: Any,
        n: int = 10,
        *,
        columns: Iterable[Any] | None = None,
        include_observed: bool = False,
    ) -> Ranking:
        """Return the n best columns of one row, or of each of a list of rows, without those it has entries for.

        `columns` restricts the choice. Where many rows are asked for and one has fewer columns left, its line is
        filled up with values of NaN.
        """
        seen = self._seen
        single = _is_label(rows, seen.rows)
        row_positions = seen.rows.positions([rows] if single else rows)
        column_positions = np.arange(len(seen.columns)) if columns is None else seen.columns.distinct_positions(columns)
        parts = []
        for some in batches(row_positions, width=column_positions.size):
            scores = self._score_block(some, column_positions).astype(np.float64)
            if not include_observed:
                self._hide_observed(scores, some, column_positions)
            best, best_scores = best_positions(scores, n)
            left_over = best_scores == -np.inf
            values = np.where(left_over, np.nan, self._to_values(np.where(left_over, 0.0, best_scores)))
            parts.append(Ranking(seen.columns.array[column_positions[best]], values))
        labels, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Ranking(labels[0], values[0]).without_missing() if single else Ranking(labels, values)

    def complete(self) -> FloatArray:
        """Return the whole matrix (rows, columns): observed entries as they are, the others predicted."""
        return complete_array(self)

    def complete_frame(self) -> Any:
        """Return every missing entry as a long polars frame with the columns row, column, value."""
        return complete_frame(self)

    def complete_to(self, path: str | Path) -> int:
        """Write every missing entry to a Parquet file, in batches of bounded memory; return how many there were."""
        return complete_to(self, path)

    def similar_rows(self, row: Any, n: int = 10) -> Ranking:
        """Return the n rows most like one row, and how alike they are (the cosine of their latents)."""
        return most_similar(self._row_directions(), self._seen.rows, row, n)

    def similar_columns(self, column: Any, n: int = 10) -> Ranking:
        """Return the n columns most like one column, and how alike they are (the cosine of their latents)."""
        return most_similar(self._column_directions(), self._seen.columns, column, n)

    @abstractmethod
    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return a score for each pair of positions: larger is better."""

    @abstractmethod
    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return the scores (rows, columns) of all pairs of some positions."""

    def _answered(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        of_scores: Callable[[npt.NDArray[Any]], FloatArray],
        of_means: Callable[[npt.NDArray[Any]], FloatArray],
    ) -> FloatArray:
        """Return what becomes of the score of each pair of labels, or of the means where one of them is unknown."""
        return self._pairs(rows, columns, unknown).answered(
            lambda *pairs: of_scores(self._score_pairs(*pairs)), lambda *pairs: of_means(self._means_of_known(*pairs))
        )

    def _means_of_known(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the mean of what is known of each pair of positions, where -1 is unknown."""
        return self._fallback.means(rows, columns)

    @property
    def _fallback(self) -> Fallback:
        if self._last_fallback is None or self._last_fallback.seen is not self._seen:
            self._last_fallback = Fallback(self._seen)
        return self._last_fallback

    def _to_units(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return scores in the scale's units; they are those already, if not inside its ends."""
        return self.scale_.clip(scores)

    def _to_values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return predictions in the scale's units."""
        return self._to_units(scores)

    def _to_levels(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return legal levels."""
        return self.scale_.nearest_level(self._to_values(scores))

    def _row_directions(self) -> npt.NDArray[np.float32]:
        raise BadSetting(f"{type(self).__name__} has no latents, so rows cannot be compared")

    def _column_directions(self) -> npt.NDArray[np.float32]:
        raise BadSetting(f"{type(self).__name__} has no latents, so columns cannot be compared")

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all."""
        seen = self._seen
        parts = {"train": pack_matrix(seen.train, "train"), "learned": self._learned()}
        if seen.extension is not None:
            parts["extension"] = pack_matrix(seen.extension, "extension")
        content = {
            "class": type(self).__name__,
            "settings": self.settings.to_dict(),
            "history": self.history_.to_dict(),
        } | {name: part.content for name, part in parts.items()}
        tensors = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
        write_file(path, kind="model", content=content, tensors=tensors)

    @classmethod
    def from_stored(cls, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> Self:
        """Return the model that `save` wrote; anything that could not have been one raises `BadModelFile`."""
        settings = field(content, "settings")
        if not isinstance(settings, dict):
            raise BadModelFile(f"the stored settings must have names; got {reprlib.repr(settings)}")
        with refusing("settings"):
            model = cls(**settings)
        train = unpack_matrix("train", field(content, "train"), tensors)
        added = unpack_matrix("extension", content["extension"], tensors) if "extension" in content else None
        with refusing("extension"):
            if added is not None and model.predicts == ("I",):
                raise CannotExtend(f"{cls.__name__} cannot be extended: {model.cannot}")
            observations = EntryStore.stored(train, added)
            model._refuse_new("II", "row", train.rows, observations.rows)
            model._refuse_new("III", "column", train.columns, observations.columns)
        model.observations_ = observations
        model.history_ = History.from_dict(field(content, "history"))
        with refusing(cls.__name__):
            model._set_learned(field(content, "learned"), tensors)
        return model

    @abstractmethod
    def _learned(self) -> Packed:
        """Return what was learned as JSON content and tensors."""

    @abstractmethod
    def _set_learned(self, content: Any, tensors: Tensors) -> None:
        """Set what `_learned` returned; anything that could not have been returned raises `BadModelFile`."""

    @property
    def scale_(self) -> Scale:
        """The scale of the matrix that was fitted."""
        return self._seen.scale

    @property
    def row_labels_(self) -> npt.NDArray[Any]:
        """All rows that can be predicted for."""
        return self._seen.rows.array

    @property
    def column_labels_(self) -> npt.NDArray[Any]:
        """All columns that can be predicted for."""
        return self._seen.columns.array

    @property
    def _seen(self) -> EntryStore:
        if self.observations_ is None:
            raise NotFitted(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.observations_

    def _check_levels(self, metric: str) -> None:
        if self.scale_.levels is None:
            raise BadSetting(f"the scale {self.scale_} has no levels; predict gives real values")
        if metric not in LEVEL_METRICS:
            raise BadSetting(f"metric must be {' or '.join(map(repr, LEVEL_METRICS))}; got {metric!r}")

    def _pairs(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> LabelPairs:
        return find_pairs(self._seen.rows, self._seen.columns, rows, columns, unknown)

    def _refuse_new(self, area: str, axis: str, known: Labels, labels: Labels) -> None:
        """Refuse new rows (area II) or new columns (area III) where the method cannot predict for them."""
        if area in self.predicts or len(labels) == len(known):
            return
        first = labels.array[len(known) :].tolist()[0]
        raise CannotExtend(f"{type(self).__name__} cannot predict for new {axis}s, such as {first!r}: {self.cannot}")

    def _hide_observed(self, scores: FloatArray, rows: IndexArray, columns: IndexArray) -> None:
        """Put what is observed already at the end of every ranking."""
        seen = self._seen.seen_columns(rows)
        place = np.full(len(self._seen.columns), -1)
        place[columns] = np.arange(columns.size)
        row_of, column_of = np.repeat(np.arange(rows.size), np.diff(seen.starts)), place[seen.others]
        inside = column_of >= 0
        scores[row_of[inside], column_of[inside]] = -np.inf


def _check_matrix(given: Any, taker: str) -> None:
    if not isinstance(given, ObservedMatrix):
        raise BadEntries(
            f"{taker} takes an ObservedMatrix; got {type(given).__name__} (from_array and others make one)"
        )


def _check_trainable(train: ObservedMatrix) -> None:
    _check_matrix(train, "fit")
    for labels in (train.rows, train.columns):
        check_storable(labels)  # known now rather than when the model is saved
    if train.n_entries == 0:
        raise BadEntries("there is nothing to learn: the matrix has no entries")


def _check_validation(train: ObservedMatrix, validation: ObservedMatrix | None) -> None:
    if validation is None:
        return
    _check_matrix(validation, "validation")
    rows, columns, values = validation.entries()
    train.rows.positions(rows)
    train.columns.positions(columns)
    if not np.all(train.scale.holds(values)):
        raise BadEntries(f"validation has the scale {validation.scale}; the training matrix has {train.scale}")


def _is_label(rows: Any, labels: Labels) -> bool:
    """Say whether one row was asked for: a tuple is one where labels are tuples, otherwise several."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        return True
    return isinstance(rows, tuple) and rows in labels


def _warn_of_nothing(seen: EntryStore, axis: str, positions: IndexArray, starts: IndexArray) -> None:
    empty = positions[np.diff(starts) == 0]
    if empty.size:
        labels = (seen.rows if axis == "row" else seen.columns).array[empty[:3]].tolist()
        other = "columns" if axis == "row" else "rows"
        shown = ", ".join(map(repr, labels)) + (", ..." if empty.size > 3 else "")
        warnings.warn(
            f"{empty.size} {axis}(s) have no entry over the trained {other} ({shown}): "
            "they are predicted from an empty description",
            NothingObserved,
            stacklevel=3,
        )
