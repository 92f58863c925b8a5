"""Parts of every fit: checks of matrices, choice of settings, held-out entries, checkpoints and how
it ended."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from deepmf.errors import (
    BadEntries,
    BadFeatures,
    BadSetting,
    GuessedColumns,
    NotBetterThanMeans,
    NothingObserved,
    TrainingDiverged,
    TrainingInterrupted,
    UnknownLabel,
    check_choice,
    warn,
)
from deepmf.formatting import format_quantity
from deepmf.matrix.arrays import Array, iterate_pieces
from deepmf.matrix.axis_entries import NOTHING, OTHER_AXIS, Axis, AxisEntries, PlacedEntries
from deepmf.matrix.entries import Conflicts, EntryStore
from deepmf.matrix.extras import NO_TIME, Extras, format_time
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import ObservedMatrix, check_matrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.scoring.pairs import Fallback, PredictedAreas
from deepmf.training.history import Callback, History
from deepmf.training.settings import (
    OF_TIMES,
    RECOMMENDATION,
    LoopSettings,
    Settings,
    TrainingSettings,
)
from deepmf.training.threads import Threads

if TYPE_CHECKING:
    from deepmf.nn.parallel import Division
    from deepmf.training.holdout import HeldOut
    from deepmf.training.loop import Task


def keep_known(train: ObservedMatrix, validation: Any) -> ObservedMatrix:
    """Return the validation entries whose row and column are in training; warn of the others,
    refuse if none is left.

    The rows of a later period are often new, and without training entries every epoch predicts them
    alike.
    """
    check_matrix(validation, "validation")
    known: ObservedMatrix = validation.take_known(train.rows, train.columns)
    n_all, n_unknown = validation.n_entries, validation.n_entries - known.n_entries
    if n_unknown:
        message = f"{n_unknown:,} of {n_all:,} validation entries are in rows or columns without training entries"
        if n_unknown == n_all:
            rows, columns, _ = validation.entries()
            row, column = rows[:1].tolist()[0], columns[:1].tolist()[0]
            raise UnknownLabel(
                f"{message}, such as row {row!r}, column {column!r}; at least one is needed"
            )
        warn(f"{message}; they are left out")
    return known


def find_asked(prepared: Prepared, given: Any) -> ObservedMatrix:
    """Return the asked cells that are neither training nor validation entries, which people
    chose."""
    check_matrix(given, "asked")
    asked: ObservedMatrix = given
    train = prepared.entries.train
    if not train.has_values or not asked.has_values:
        raise BadSetting(
            "asked cells calibrate the values of predictions, and interactions have none; leave out asked"
        )
    if train.scale.levels is not None and not np.all(train.scale.holds(asked.values)):
        raise BadEntries(
            f"the asked cells have the scale {asked.scale}; the training matrix has {train.scale}"
        )
    rows, columns = asked.find_in(train.rows, train.columns)
    are_known = (rows >= 0) & (columns >= 0)
    are_free = ~are_known
    are_free[are_known] = prepared.entries.train_places(rows[are_known], columns[are_known]) < 0
    if (held_out := prepared.held_out) is not None:
        n_columns = train.shape[1]
        are_held_out = np.isin(
            rows * n_columns + columns, held_out.rows * n_columns + held_out.columns
        )
        are_free &= ~(are_known & are_held_out)
    if not np.any(are_free & are_known):
        raise BadEntries(
            f"none of the {asked.n_entries:,} asked cells can calibrate the model: their row or column has no training "
            "entries, or they are training or validation entries themselves"
        )
    return asked.take_entries(are_free)


def keep_extendable(
    areas: PredictedAreas, entries: EntryStore, cells: ObservedMatrix
) -> ObservedMatrix | None:
    """Return the cells whose entries a model can be extended by, if any; warn of others in new rows
    and columns."""
    rows = entries.rows.join(cells.rows) if areas.covers_new("row") else entries.rows
    columns = entries.columns.join(cells.columns) if areas.covers_new("column") else entries.columns
    covered = cells.take_known(rows, columns)
    n_left_out = cells.n_entries - covered.n_entries
    if n_left_out:
        warn(
            f"{n_left_out:,} of {cells.n_entries:,} asked cells are in new rows or columns, for which {areas.method} "
            "cannot predict; they are left out"
        )
    return None if areas.areas == ("I",) or covered.n_entries == 0 else covered


def check_weighted(name: str, entries: ObservedMatrix, *, able: bool) -> None:
    """Refuse weights of entries that a model would ignore."""
    if entries.weights is not None and not able:
        raise BadSetting(
            f"{name} does not use weights of entries; leave them out, or choose a model that does"
        )


def warn_of_constant_times(train: ObservedMatrix) -> None:
    """Warn of dates that are all the same."""
    dates = NOTHING if train.times is None else train.times[train.times != NO_TIME]
    if dates.size and dates.min() == dates.max():
        warn(f"all entries have the time {format_time(dates[0])}, so times teach nothing")


def check_trainable(train: Any) -> None:
    """Refuse a matrix that a model cannot learn from, or cannot be saved with."""
    from deepmf.matrix.stored import check_storable

    check_matrix(train, "fit")
    for labels in (train.rows, train.columns):
        check_storable(labels)  # before training rather than when the model is saved
    if train.n_entries == 0:
        raise BadEntries("there is nothing to learn: the matrix has no entries")


def to_matrix(given: Any, scale: Scale | None = None) -> Any:
    """Return the matrix of a long frame whose columns have usual names; everything else as it is.

    A frame whose columns would have to be guessed is refused.
    """
    if (
        isinstance(given, ObservedMatrix)
        or not hasattr(given, "columns")
        or not hasattr(given, "shape")
    ):
        return given
    with warnings.catch_warnings():
        warnings.simplefilter("error", GuessedColumns)
        try:
            return ObservedMatrix.from_frame(given, scale=scale)
        except GuessedColumns as error:
            raise BadEntries(
                f"the columns of the frame are not clear: {error}, in ObservedMatrix.from_frame"
            ) from error


def check_features(**given: Any) -> None:
    """Refuse anything but `Features`, or None."""
    for name, features in given.items():
        if not isinstance(features, Features | None):
            kind = type(features).__name__
            raise BadFeatures(
                f"{name} must be Features (Features.from_frame makes them); got {kind}"
            )


def gather_entries(
    train: ObservedMatrix,
    row_features: Features | None,
    column_features: Features | None,
    *,
    method: str,
    able: bool,
) -> EntryStore:
    """Return the entries of a matrix with the features of its rows and columns; refuse features it
    cannot use."""
    check_features(row_features=row_features, column_features=column_features)
    if not able and not (row_features is column_features is None):
        raise BadFeatures(
            f"{method} reads entries alone, no features; models such as ALS and OrdinalDMF do"
        )
    return EntryStore.of(
        train,
        None
        if row_features is None
        else AxisFeatures.of(train.rows, row_features, train.row_counts),
        None
        if column_features is None
        else AxisFeatures.of(train.columns, column_features, train.column_counts),
    )


def check_extension(
    new: Any, row_features: Features | None, column_features: Features | None, conflicts: Conflicts
) -> None:
    """Refuse arguments of `extend` that no model accepts."""
    if new is not None or (row_features is None and column_features is None):
        check_matrix(new, "extend")
    check_choice("conflicts", conflicts, ("error", "replace"))
    check_features(row_features=row_features, column_features=column_features)


def warn_of_nothing(axis: Axis, inputs: AxisEntries, labels: Array | None = None) -> None:
    """Warn of rows, or columns, without entries or features; name them where they have labels."""
    n_empty = int(np.count_nonzero(inputs.are_empty))
    if n_empty:
        empty = [] if labels is None else labels[inputs.are_empty][:3].tolist()
        shown = f" ({', '.join(map(repr, empty))}{', ...' if n_empty > 3 else ''})" if empty else ""
        warn(
            f"{format_quantity(n_empty, axis)} without an entry over the trained {OTHER_AXIS[axis]}s{shown}, "
            "predicted from an empty description",
            NothingObserved,
        )


class Prepared(NamedTuple):
    """What a fit learns from.

    entries: the training entries, with features and names.
    held_out: the validation entries by position; extras: their times and weights.
    row_features, column_features: those of all labels, also of labels without entries.
    """

    entries: EntryStore
    held_out: HeldOut | None
    extras: Extras
    row_features: Features | None
    column_features: Features | None

    @property
    def held_out_entries(self) -> PlacedEntries | None:
        """The validation entries, with their times and weights."""
        return None if self.held_out is None else PlacedEntries(*self.held_out, self.extras)


# The settings that most often help a fit that is no better than the means.
_TO_TRY = ("epochs", "learning_rate", "dropout", "penalty", "latent_size")


@dataclass(frozen=True)
class Fitting:
    """The arguments of `fit` beside the matrices."""

    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None
    checkpoint_every: int = 25
    threads: Threads | None = None

    def run(
        self, task: Task, settings: LoopSettings, identify: Callable[[], dict[str, Any]]
    ) -> History:
        """Run the loop on a task, from its checkpoint if there is one with the fingerprint that
        `identify` returns."""
        from deepmf.nn.group import find_ranks
        from deepmf.training.loop import Loop

        loop, ranks = (
            Loop(task, settings, callbacks=self.callbacks, threads=self.threads),
            find_ranks(),
        )
        if self.checkpoint is None and ranks is None:
            return loop.run()
        fingerprint = identify()
        check_alike(fingerprint)
        if self.checkpoint is None:
            return loop.run()
        from deepmf.training.checkpoint import Checkpoint

        divided: Mapping[str, Division] = {}
        if ranks is not None:
            from deepmf.training.trainer import Trainer

            if isinstance(task, Trainer):  # ranks divide the weights of networks alone
                divided = task.find_divided()
        return Checkpoint(self.checkpoint, fingerprint, divided).run(
            loop, every=self.checkpoint_every
        )

    def show_stage(self, name: str) -> None:
        """Show the name of a stage after the epochs, if progress is shown."""
        from deepmf.training.progress import EpochDisplay

        for callback in self.callbacks:
            if isinstance(callback, EpochDisplay):
                callback.show_stage(name)


@contextmanager
def remove_checkpoint_when_over(
    path: Path | None, *, is_over: Callable[[], bool]
) -> Iterator[None]:
    """Remove a checkpoint when training is over or has diverged; otherwise it stays, to continue
    from."""
    over = False
    try:
        yield
        over = is_over()
    except TrainingDiverged:
        over = True
        raise
    finally:
        if over and path is not None:
            from deepmf.training.checkpoint import remove_checkpoint

            remove_checkpoint(path)


def check_ranks(model: str, train: ObservedMatrix, *, able: bool) -> None:
    """Refuse a fit that several processes cannot share."""
    from deepmf.nn.group import find_ranks

    ranks = find_ranks()
    if ranks is None:
        return
    if not able:
        raise BadSetting(
            f"{model} is fitted by one process, and {ranks.size} were started together; models such as OrdinalDMF "
            "and BayesianMF are fitted by several"
        )
    if train.weights is not None:
        raise BadSetting(
            "several processes cannot fit weighted entries together; leave out weights"
        )
    n_rows, n_columns = train.shape
    if ranks.size > min(train.shape):
        raise BadSetting(
            f"{ranks.size} processes cannot divide {n_rows} rows x {n_columns} columns among them; "
            f"start at most {min(train.shape)}"
        )


def check_alike(fingerprint: dict[str, Any]) -> None:
    """Refuse to train on several processes that were given different entries or settings."""
    from deepmf.nn.group import find_ranks

    ranks = find_ranks()
    if ranks is None:
        return
    first, *other_fingerprints = ranks.collect(fingerprint)
    for rank, fingerprint_there in enumerate(other_fingerprints, 1):
        names = first | fingerprint_there
        differing = [name for name in names if first.get(name) != fingerprint_there.get(name)]
        if differing:
            raise BadSetting(
                f"all processes must fit the same model, and process {rank} differs from process 0 in its "
                f"{', '.join(differing)}; give every process the same files and settings"
            )


def report_ending(history: History, settings: Settings) -> None:
    """Raise if training diverged; warn if it was interrupted, or if the means predict as well."""
    epoch, best = len(history), history.best_epoch
    error, means_error = history.best_error, history.means_error
    if history.stopped == "diverged":
        ending = "" if best is None else f"; the model keeps what it had learned in epoch {best}"
        hint = "; try a smaller learning_rate" if isinstance(settings, TrainingSettings) else ""
        raise TrainingDiverged(
            f"the loss of epoch {epoch}, or its validation error, is not a finite number{ending}{hint}"
        )
    if history.stopped == "interrupted":
        so_far = "" if error is None else f"; the validation RMSE is {error:.4f}"
        warn(f"training was interrupted in epoch {epoch}{so_far}", TrainingInterrupted)
    is_no_better = error is not None and means_error is not None and error >= means_error > 0
    if history.stopped in ("epochs", "patience") and is_no_better:
        named = ", ".join(name for name in _TO_TRY if name in settings.to_dict())
        warn(
            f"the validation RMSE of {error:.4f} is not below that of the means, {means_error:.4f}: try other settings "
            f"({named}) or another model",
            NotBetterThanMeans,
        )


def measure_means(seen: EntryStore, held_out: HeldOut) -> float:
    """Return the root mean squared error of the means on entries that a fit holds out itself."""
    means = Fallback(seen).means(held_out.rows, held_out.columns)
    return rmse_error(seen.scale.clip(means), held_out.values)


def identify_training(
    method: str, settings: Settings, entries: EntryStore, validation: HeldOut | None
) -> dict[str, Any]:
    """Return the fingerprint of a training, so that it is continued only from its own
    checkpoint."""
    fingerprint = {
        "model": method,
        **{
            name: value
            for name, value in settings.to_dict().items()
            if name not in RECOMMENDATION and (name not in OF_TIMES or value is not None)
        },
        "training entries": digest(entries.train),
        "validation entries": None if validation is None else validation.digest(),
    }
    for name, features in (
        ("row features", entries.row_features),
        ("column features", entries.column_features),
    ):
        if features is not None:
            fingerprint[name] = features.digest()
    return fingerprint


def digest(matrix: ObservedMatrix) -> str:
    """Return a short fingerprint of a matrix's entries."""
    digest = hashlib.sha256(repr(matrix.scale).encode())
    for array in (matrix.by_row.starts, matrix.by_row.columns, matrix.values, *matrix.extras):
        for piece in () if array is None else iterate_pieces(array):
            digest.update(np.ascontiguousarray(piece).data)
    digest.update(repr((matrix.rows[:1000].tolist(), matrix.columns[:1000].tolist())).encode())
    return digest.hexdigest()[:16]
