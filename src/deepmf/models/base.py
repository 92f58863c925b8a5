"""Loading a model of any class from its file, or from its folder."""

from __future__ import annotations

import copy
import inspect
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadModelFile, BadSetting, NotFitted, TrainingDiverged
from deepmf.formatting import format_count
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entries import EntryStore, Pairs, forget, plan_forget
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.completion import complete_array, complete_frame, complete_to
from deepmf.models.distribution import Interval, check_coverage
from deepmf.models.explanation import Axis, Explanation, check_axis, explain_pair
from deepmf.models.fitting import (
    Conflicts,
    Fitting,
    check_extension,
    check_matrix,
    check_ranks,
    check_trainable,
    drop_chosen_settings,
    fill_settings,
    gather_entries,
    identify_training,
    read_choice,
    removing_checkpoint,
    report_ending,
    warn_of_nothing,
)
from deepmf.models.fold_in import FeatureValues, FoldedColumns, FoldedRows, fold_in_column, fold_in_rows
from deepmf.models.pairs import Fallback, PairPredictions, PredictedAreas, Unknown
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import (
    ColumnNeighbours,
    Ranking,
    Recommendations,
    choose_columns,
    is_label,
    most_similar,
    rank_columns,
)
from deepmf.models.warm_start import WarmStart, check_settings
from deepmf.plots import build_notebook_view
from deepmf.storage.features import pack_features, unpack_features
from deepmf.storage.matrices import pack_mapped_matrix, pack_matrix, unpack_any_matrix
from deepmf.storage.model_file import (
    Packed,
    Tensors,
    has_values_to_check,
    read_field,
    read_numbers,
    refuse_stored,
    write_file,
)
from deepmf.storage.model_folder import LARGEST_FILE, goes_to_folder, write_folder
from deepmf.training.history import Callback, History, describe_errors, describe_training, list_curves
from deepmf.training.loop import Task, ValidationEntries
from deepmf.training.progress import FitPlan, show_epochs
from deepmf.training.runtime import limit_threads
from deepmf.training.settings import LoopSettings, Settings, list_settings


def write_model(
    path: str | Path,
    description: dict[str, Any],
    entries: EntryStore,
    learned: Packed,
    *,
    largest_file: int,
    check: Callable[[Path], object],
) -> None:
    """Write a model to one file, or to a folder where its name or its size asks for one, whole or not at all.

    description: its class, settings, choice and history, by these names.
    check: called with what is written before it takes its name.
    """
    n_bytes = entries.train.nbytes + sum(tensor.nbytes for tensor in learned.tensors.values())
    in_folder = goes_to_folder(path, n_bytes, largest_file=largest_file)
    parts = _parts(entries, learned, in_folder=in_folder)
    content = description | {name: part.content for name, part in parts.items()}
    tensors = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
    (write_folder if in_folder else write_file)(path, kind="model", content=content, tensors=tensors, check=check)


def _parts(entries: EntryStore, learned: Packed, *, in_folder: bool) -> dict[str, Packed]:
    """Return the parts of a file, or of a folder, by name: those of a model's entries, and what it has learned."""
    pack = pack_mapped_matrix if in_folder else pack_matrix
    parts = {"train": pack(entries.train, "train"), "learned": learned}
    if entries.extension is not None:
        parts["extension"] = pack(entries.extension, "extension")
    for name, features in (("row_features", entries.row_features), ("column_features", entries.column_features)):
        if features is not None:
            parts[name] = pack_features(features, name)
    if entries.dropped.size:
        parts["dropped"] = Packed({}, {"dropped.entries": entries.dropped})
    return parts


def read_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Return the stored settings by name."""
    settings = read_field(content, "settings")
    if not isinstance(settings, dict):
        raise BadModelFile(f"the stored settings must have names; got {reprlib.repr(settings)}")
    return settings


def read_entries(
    content: dict[str, Any], tensors: Tensors, areas: PredictedAreas, *, takes_features: bool
) -> EntryStore:
    """Return the stored entries and features; any that a method cannot have raise `BadModelFile`."""
    train = unpack_any_matrix("train", read_field(content, "train"), tensors)
    added = unpack_any_matrix("extension", content["extension"], tensors) if "extension" in content else None
    dropped = read_numbers(tensors, "dropped.entries", "int64", (None,)) if "dropped" in content else NOTHING
    with refuse_stored("extension"):
        if added is not None:
            areas.check_extends()
        stored = EntryStore.from_parts if has_values_to_check(tensors) else EntryStore.from_trusted_parts
        entries = unpack_features(stored(train, added, dropped), content, tensors)
        if not takes_features and (entries.row_features or entries.column_features):
            raise BadModelFile(f"the stored model has features, and {areas.method} reads none")
        areas.check_new("row", train.rows, entries.rows)
        areas.check_new("column", train.columns, entries.columns)
    return entries


class Fitted(NamedTuple):
    """The state of a fitted model: the entries it knows, and its predictor."""

    entries: EntryStore
    predictor: Predictor


class Method(ABC):
    """A method: the task that learns, the predictor built from it, and the settings of both.

    The constructor stores settings; names that end in `_` are learned.
    """

    settings_class: ClassVar[type[Settings]]
    predicts: ClassVar[tuple[str, ...]] = AREAS  # the areas it can predict in
    cannot: ClassVar[str] = ""  # why not in the others
    takes_features: ClassVar[bool] = False  # of rows and columns
    holds_out: ClassVar[bool] = False  # whether `fit` without validation entries sets some aside to choose by
    fits_on_ranks: ClassVar[bool] = False  # whether several processes fit it together
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Show the settings in the signature of the class, for `help` and editors."""
        super().__init_subclass__(**arguments)
        if hasattr(cls, "settings_class"):
            cls.__signature__ = inspect.signature(cls.settings_class, eval_str=True)

    def __init__(self, /, **settings: Any) -> None:
        self.settings = self.settings_class.from_names(settings)
        self._given = frozenset(settings)
        self.chosen_: dict[str, Any] = {}
        self.history_ = History()
        self._fitted: Fitted | None = None

    @abstractmethod
    def _make_task(self, entries: EntryStore, validation: ValidationEntries | None) -> Any:
        """Return the task that the loop runs to learn from a matrix and the features of its rows and columns."""

    @abstractmethod
    def _make_predictor(self, task: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        """Return the predictor of a task that has run; the fit is told of stages that follow the epochs."""

    @abstractmethod
    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        """Return the predictor that packed itself as this content and these tensors."""

    def _make_warm_task(self, entries: EntryStore, validation: ValidationEntries | None, start: WarmStart) -> Any:
        """Return the task of a warm fit, which begins with what a fitted model has learned."""
        task = self._make_task(entries, validation)
        self._begin_from(task, start)
        return task

    def _begin_from(self, task: Any, start: WarmStart) -> None:
        """Let a task begin with what a fitted model has learned."""
        raise NotImplementedError(f"{type(self).__name__} is not learned in epochs")

    def _choose_settings(self, train: ObservedMatrix, earlier: Settings | None) -> dict[str, Any]:
        """Return settings that suit a matrix and the machine; those of an earlier model take their place."""
        return {}

    def _check_memory(self, entries: EntryStore) -> None:
        """Refuse a fit that would need more memory than is free."""
        return  # means need little beside the matrix

    def _describe_work(self, train: ObservedMatrix, epochs: int) -> str:
        """Say in a few words what is computed."""
        return f"{epochs} epochs"

    def _estimate_share_after(self, train: ObservedMatrix) -> float:
        """Return about how long it takes after the epochs, as a share of their time."""
        return 0.0

    @property
    def _on_gpu(self) -> bool:
        """Whether it is trained on a GPU."""
        return False

    def _learn(self, entries: EntryStore, validation: ValidationEntries | None, fitting: Fitting) -> None:
        """Learn, and set what is learned."""
        with limit_threads(getattr(self.settings, "device", "cpu")) as threads:
            settings, start = self.settings, fitting.start
            fingerprint = identify_training(type(self).__name__, settings, entries, validation, start)
            with _refusing_unsolvable():
                task: Task = (
                    self._make_task(entries, validation)
                    if start is None
                    else self._make_warm_task(entries, validation, start)
                )
            if start is not None:
                settings = start.shorten(settings)
            self.history_ = replace(fitting, threads=threads).run(task, settings, fingerprint)  # type: ignore[arg-type]
            if self.history_.best_epoch is None and self.history_.stopped == "diverged":
                return
            with _refusing_unsolvable():
                self._set_fitted(entries, self._make_predictor(task, entries, fitting))

    def _set_fitted(self, entries: EntryStore, predictor: Predictor) -> None:
        """Take what was learned, unless its numbers, or their products, leave the range of their type."""
        if not predictor.rows.products_are_finite(predictor.columns):
            self._fitted = None
            raise TrainingDiverged(
                f"what was learned is too large: latents or their products are not finite numbers (the scale is "
                f"{entries.scale}; divide the values by a constant)"
            )
        self._fitted = Fitted(entries, predictor)

    def _with_choice(self, train: ObservedMatrix, start_from: Method | None) -> Self:
        """Return this model with the settings that were not given chosen: for a matrix, or as in a model to start from.

        This model stays as it is: a fitted one needs the settings that it was fitted with until it is fitted anew.
        """
        earlier = start_from.settings if type(start_from) is type(self) else None
        model = copy.copy(self)
        model.settings, model.chosen_ = fill_settings(
            self.settings, self._given, self._choose_settings(train, earlier), earlier
        )
        return model

    @contextmanager
    def _by_settings_of(self, chosen: Self) -> Iterator[None]:
        """Take the settings of a fit; where it learns nothing, what was learned earlier stays, with those it had."""
        before = self.settings, self.chosen_, self._fitted
        self.settings, self.chosen_ = chosen.settings, chosen.chosen_
        try:
            yield
        finally:
            if self._fitted is before[2]:
                self.settings, self.chosen_, _ = before

    def _plan(self, train: ObservedMatrix, *, warm: bool) -> FitPlan | None:
        """Return what a fit with these settings is going to do."""
        settings = WarmStart.shorten(self.settings) if warm else self.settings
        if not isinstance(settings, LoopSettings):
            return None
        effort = getattr(settings, "effort", None)
        name = type(self).__name__ + ("" if effort is None else f" (effort {effort})")
        text = f"fitting {name} to {train.n_entries:,} entries: {self._describe_work(train, settings.epochs)}"
        return FitPlan(text, settings.epochs, self._estimate_share_after(train), n_slow=int(self._on_gpu))

    def _warm_start(self, start_from: Method, new: EntryStore, validation: ValidationEntries | None) -> WarmStart:
        """Return what a fitted model hands on to a fit; a model that does not fit is refused."""
        if type(start_from) is not type(self):
            given = type(start_from).__name__
            raise BadSetting(f"start_from must be a fitted {type(self).__name__}; got {given}")
        entries, predictor = start_from._known
        check_settings(self.settings, start_from.settings)
        if entries.scale != new.scale:
            raise BadSetting(f"start_from was fitted to the scale {entries.scale}; the matrix has {new.scale}")
        start = WarmStart(entries, predictor, new.train, new.row_features, new.column_features)
        start.check(validation)
        return start

    @property
    def _areas(self) -> PredictedAreas:
        return PredictedAreas(type(self).__name__, self.predicts, self.cannot)

    @property
    def _known(self) -> Fitted:
        if self._fitted is None:
            raise NotFitted(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._fitted


@contextmanager
def _refusing_unsolvable() -> Iterator[None]:
    """Say that values are too large where linear algebra finds no solution because of them."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise TrainingDiverged(f"the values are too large, or too far apart, for this method ({error})") from error


_MOST_FEATURES = 12  # that are listed


class ModelView(NamedTuple):
    """What is shown of a model.

    own: the settings that it was made with.
    chosen: those that were chosen for its matrix and the machine.
    entries: those that it knows; None before it is fitted.
    """

    name: str
    own: Settings
    chosen: dict[str, Any]
    entries: EntryStore | None
    history: History

    def text(self) -> str:
        """Return the model as it is made, or in two lines: what it knows, how well it predicts, and its settings."""
        entries = self.entries
        if entries is None:
            return f"{self.name}({self._changed})"
        known = [
            f"{format_count(len(entries.rows))} x {format_count(len(entries.columns))}",
            f"{format_count(entries.n_entries)} entries",
        ]
        said = ", ".join(filter(None, [*known, describe_errors(self.history)]))
        choice = f"; {format_count(len(self.chosen))} chosen (see chosen_)" if self.chosen else ""
        return f"{self.name}({said})\n  settings: {self._settings}{choice}"

    def html(self) -> str:
        """Return the model as a notebook shows it, with its learning curves once it is fitted."""
        if self.entries is None:
            return build_notebook_view(self.name, {"settings": self._settings, "fitted": "not yet"}, {})
        return build_notebook_view(self.name, self._facts(self.entries), list_curves(self.history))

    def _facts(self, entries: EntryStore) -> dict[str, str]:
        """Return what is told of a fitted model, by name."""
        facts = {
            "matrix": f"{format_count(len(entries.rows))} rows x {format_count(len(entries.columns))} columns, "
            f"{format_count(entries.n_entries)} entries",
            "scale": str(entries.scale),
            "settings": self._settings,
        }
        if self.chosen:
            facts["chosen"] = _listed(self.chosen)
        for axis, features in (("row", entries.row_features), ("column", entries.column_features)):
            if features is not None:
                facts[f"{axis} features"] = _features(features)
        if len(self.history):
            facts["training"] = describe_training(self.history)
        if self.history.best_error is not None:
            facts["validation RMSE"] = describe_errors(self.history).removeprefix("validation RMSE ")
        return facts

    @property
    def _settings(self) -> str:
        return self._changed or "all by default"

    @property
    def _changed(self) -> str:
        """The own settings that are not the default ones, as they are given."""
        given = self.own.to_dict()
        return _listed(
            {each.name: given[each.name] for each in list_settings(type(self.own)) if given[each.name] != each.default}
        )


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _features(features: AxisFeatures) -> str:
    """Return the features of an axis by name and kind, some of them where there are many."""
    known = features.encoding.columns
    listed = ", ".join(f"{column.name} ({column.kind})" for column in known[:_MOST_FEATURES])
    more = len(known) - _MOST_FEATURES
    return listed if more <= 0 else f"{listed} and {format_count(more)} more"


Missing = Literal["error", "ignore"]


class Model(Method):
    """The base class of every model; a subclass defines the task that learns and the predictor built from it.

    The constructor stores settings, `fit` learns, names that end in `_` are learned.
    """

    def __init__(self, /, **settings: Any) -> None:
        super().__init__(**settings)
        self._last_fallback: Fallback | None = None

    def fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None = None,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        start_from: Model | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 25,
        keep_checkpoint: bool = False,
        progress: bool | None = None,
    ) -> Self:
        """Learn from a matrix; validation entries choose the best epoch, never teach.

        Settings that were not given are chosen for the matrix and the machine by models that can; `chosen_` has them.
        A fit that needs more memory than is free is refused before it allocates any (`NotEnoughMemory`).

        `row_features` and `column_features` are what is known of rows and columns beside the entries; either may lack
        some of them. Labels that have features and no entries become known rows and columns too, as by `extend`.
        Models that cannot read features refuse them.

        With validation entries, `history_` has the validation error of the shrunk means (`Means`) beside that of the
        best epoch; a model that is not better warns (`NotBetterThanMeans`).

        With `start_from`, a fitted model of the same kind, settings and scale, what it has learned is where this fit
        starts: weights and factors of rows and columns by label, those of labels it does not know are fresh, those of
        labels that are gone are dropped. An interval that was inferred is that of `start_from`. A warm fit has half the
        epochs; that of a network enters its schedule where the step size has fallen to half. Validation entries should
        be none that `start_from` was trained on; there is a warning where they are. Where there are none, what is
        chosen on held-out entries is chosen on new ones.

        With `checkpoint`, the state of training is saved to that file every `checkpoint_every` epochs; a fit that finds
        the file of the same run, killed earlier, continues it to the same result, and removes it at the end. With
        `keep_checkpoint` it stays, for the caller to remove once the model is saved: until then, a fit that is run
        again goes straight to the same model. A fit that was interrupted always leaves it.

        `progress` shows what is going to be done, about how long it takes, and then each epoch in one line on standard
        error: always (True), never (False), or where that is a terminal and in notebooks (None). Ctrl-C ends training
        early, with the best epoch so far.

        In a process group of torch.distributed with several processes, all of which call `fit` with the same arguments,
        those that can (OrdinalDMF, DMF, DMFD) fit one model together, which each of them has in the end: the tables of
        first layers are divided among them, and so is the work of every step. The first alone shows progress. The
        checkpoint is then a folder, to which each adds its part.
        """
        name = type(self).__name__
        check_trainable(train)
        if isinstance(start_from, Model) and start_from.is_fitted and not start_from.scale_.is_bounded:
            train = train if train.scale.is_bounded else train.with_scale(start_from.scale_)
        check_ranks(name, train, self.settings, able=self.fits_on_ranks)
        if validation is not None:
            check_matrix(validation, "validation")
        aligned = ValidationEntries.of(train, validation)
        entries = gather_entries(train, row_features, column_features, method=name, takes_features=self.takes_features)
        chosen = self._with_choice(train, start_from)
        chosen._check_memory(entries)
        start = None if start_from is None else chosen._warm_start(start_from, entries, aligned)
        path = None if checkpoint is None else Path(checkpoint)
        with (
            removing_checkpoint(
                None if keep_checkpoint else path, is_over=lambda: self.history_.stopped != "interrupted"
            ),
            self._by_settings_of(chosen),
        ):
            plan = self._plan(train, warm=start is not None)
            epochs = None if plan is None else plan.epochs
            with show_epochs(f"fitting {name}", epochs, progress, plan) as shown:
                self._learn(entries, aligned, Fitting([*shown, *callbacks], path, checkpoint_every, start=start))
            if aligned is not None and self.history_.best_error is not None:
                self.history_.means_error = self._means_error(aligned)
            self._add_described(row_features, column_features)
            report_ending(self.history_, self.settings)
        return self

    def _add_described(self, row_features: Features | None, column_features: Features | None) -> None:
        """Add the rows and columns that have features and no entries."""
        if self._fitted is None:
            return
        rows, columns = self._fitted.entries.rows, self._fitted.entries.columns
        new_rows = None if row_features is None else row_features.take_unknown(rows)
        new_columns = None if column_features is None else column_features.take_unknown(columns)
        if new_rows is not None or new_columns is not None:
            self._fitted = self.extend(row_features=new_rows, column_features=new_columns)._fitted

    def plan(self, train: ObservedMatrix, *, start_from: Model | None = None) -> FitPlan | None:
        """Return what `fit` is going to do with a matrix, in words; None for a model that is not learned in epochs."""
        return self._with_choice(train, start_from)._plan(train, warm=start_from is not None)

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings that no fit chooses: a model of the same class with these is this one, not fitted yet."""
        return drop_chosen_settings(self.settings, self._given)

    def settings_for(self, train: ObservedMatrix) -> Settings:
        """Return the settings that `fit` takes for a matrix: those that were given, and those chosen for it."""
        return self._with_choice(train, None).settings

    def extend(
        self,
        new: ObservedMatrix | None = None,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        conflicts: Conflicts = "error",
    ) -> Self:
        """Return a model that also covers new rows, new columns, new entries and new features, without training.

        A row, or a column, with features and no entry is one too; features of a known one take the place of the old.

        `conflicts` says what becomes of an entry that is known with another value, from training too: "error" refuses
        all, "replace" lets the new value take its place (what the weights learned of the old one stays until the next
        fit). This model stays as it is. A new row is described by its entries over the trained columns, a new column by
        its entries over the trained rows; entries of area IV are never inputs. A row or column without any such
        entry is predicted from an empty description, and a `NothingObserved` warning names it. What a method cannot
        predict for is refused with the reason (`CannotExtend`).
        """
        known, predictor = self._known
        check_extension(new, row_features, column_features, conflicts)
        areas = self._areas
        areas.check_extends()
        entries, rows, columns = known.extend(
            new, conflicts=conflicts, row_features=row_features, column_features=column_features
        )
        areas.check_new("row", known.rows, entries.rows)
        areas.check_new("column", known.columns, entries.columns)
        warn_of_nothing(entries, "row", rows)
        warn_of_nothing(entries, "column", columns)
        return self._described_anew(entries, predictor, rows, columns)

    def forget(
        self,
        rows: Iterable[Any] | None = None,
        columns: Iterable[Any] | None = None,
        entries: Pairs | None = None,
        *,
        row_features: Iterable[Any] | None = None,
        column_features: Iterable[Any] | None = None,
        missing: Missing = "error",
    ) -> Self:
        """Return a model without some rows, columns or entries (a matrix, or a pair of rows and columns).

        A row, or a column, is forgotten with its features; `row_features` and `column_features` are labels whose
        features alone are.

        This model stays as it is. What came by `extend` is gone as if it had never come: from descriptions, rankings,
        completions and from the file that `save` writes; a row or column that came by `extend` is no longer known.
        What was trained on is gone from descriptions, rankings and completions: a trained row or column stays known,
        is predicted from what is left of its entries, from an empty description where nothing is left (also where
        everything is forgotten). What the weights learned from it stays until the next fit, and the training matrix
        stays in the file: to be rid of both, fit again without it. By `missing="ignore"`, what is not there is no
        error.
        """
        known, predictor = self._known
        plan = plan_forget(known, rows, columns, entries, row_features, column_features, missing=missing)
        found = forget(known, plan)
        left = predictor.without(found.gone_rows, found.gone_columns)
        return self._described_anew(found.store, left, found.rows, found.columns)

    def _described_anew(self, entries: EntryStore, predictor: Predictor, rows: IndexArray, columns: IndexArray) -> Self:
        """Return this model with other entries, which describe some rows and columns anew."""
        model = copy.copy(self)
        encoded_rows = rows if self._areas.covers_new("row") else rows[:0]
        encoded_columns = columns if self._areas.covers_new("column") else columns[:0]
        model._fitted = Fitted(entries, predictor.extend(entries, encoded_rows, encoded_columns))
        return model

    def fold_in(
        self, columns: Iterable[Any] = (), values: Iterable[float] = (), *, features: FeatureValues | None = None
    ) -> FoldedRows:
        """Return a row with these entries that is stored nowhere: it predicts and ranks like a row of `extend`.

        Nothing is kept and no label is needed; the cost is that of one row, however many rows are known. `features`
        has values by name, of a model that was fitted with row features; with them a row needs no entries.
        """
        return self._folded([(columns, values)], None if features is None else [features], single=True)

    def fold_in_many(
        self,
        histories: Sequence[tuple[Iterable[Any], Iterable[float]]],
        *,
        features: Sequence[FeatureValues | None] | None = None,
    ) -> FoldedRows:
        """Return one row for each history, a pair of columns and values, in one pass; nothing is kept."""
        return self._folded(histories, features, single=False)

    def fold_in_column(
        self, rows: Iterable[Any] = (), values: Iterable[float] = (), *, features: FeatureValues | None = None
    ) -> FoldedColumns:
        """Return a column with these entries that is stored nowhere: it predicts like a column of `extend`."""
        entries, predictor = self._known
        self._areas.check_folds_in("column")
        return fold_in_column(entries, predictor, (rows, values), features)

    def _folded(
        self,
        histories: Sequence[tuple[Iterable[Any], Iterable[float]]],
        features: Sequence[FeatureValues | None] | None,
        *,
        single: bool,
    ) -> FoldedRows:
        entries, predictor = self._known
        self._areas.check_folds_in("row")
        if not histories:
            raise BadEntries("there is no history to fold in")
        return fold_in_rows(entries, predictor, histories, features, single=single)

    def predict(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> FloatArray:
        """Return the prediction for each pair of a row and a column, in the scale's units.

        `unknown` sets how a pair with an unknown row or column is treated, here and in every other method that takes
        pairs: "error" refuses all pairs and names the unknown label, "nan" returns NaN, and "fallback" predicts by
        `Means`: the overall mean, plus the effect of the row or column that is known.
        """
        return self._of_pairs.values(rows, columns, unknown)

    def predict_levels(
        self, rows: Iterable[Any], columns: Iterable[Any], *, metric: str = "rmse", unknown: Unknown = "error"
    ) -> FloatArray:
        """Return a legal level for each pair of a row and a column.

        `metric` is the criterion that the levels optimise ("rmse", "mae" or "accuracy") for models that predict a
        distribution; for the others it makes no difference. With `unknown="fallback"`, the level is the one nearest
        to the fallback's mean.
        """
        return self._of_pairs.levels(rows, columns, unknown, metric=metric)

    def predict_distribution(
        self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error"
    ) -> FloatArray:
        """Return the probability of each level (pairs, levels); without levels, of each bin (see `support_`).

        With `unknown="fallback"`, it is the frequency of each level among the entries of the known row or column,
        smoothed by five entries at the frequencies of training; where neither is known, the latter alone. A model
        that predicts only values raises `BadSetting`.
        """
        return self._of_pairs.distributions(rows, columns, unknown, lambda found: found.probabilities)

    def predict_interval(
        self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9, unknown: Unknown = "error"
    ) -> Interval:
        """Return intervals that hold the true value with about this probability, where there is a distribution.

        Of levels, those around the likeliest one whose probability is nearest to the coverage; without levels,
        what lies between two tails of equal weight.
        """
        check_coverage(coverage)
        ends = self._of_pairs.distributions(rows, columns, unknown, lambda found: found.ends(coverage, self.scale_))
        return Interval(*ends.T)

    @property
    def support_(self) -> FloatArray:
        """What the columns of a distribution stand for: the levels, or the mean values of the bins."""
        return self.predictor_.support

    def scores(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> FloatArray:
        """Return the real-valued score of each pair in the scale's units, also where predictions are levels."""
        return self._of_pairs.scores(rows, columns, unknown)

    def areas(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> npt.NDArray[np.str_]:
        """Return the area of each pair: "I" trained row and column, "II" new row, "III" new column, "IV" both new.

        A pair with an unknown row or column lies in none: where that is no error, its area is "".
        """
        return self._of_pairs.areas(rows, columns, unknown)

    def row_counts(self, rows: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Return how many entries describe each of some rows: those over the trained columns."""
        distinct, which = np.unique(self.entries_.rows.positions(rows), return_inverse=True)
        counts: npt.NDArray[np.int64] = np.diff(self.entries_.row_entries(distinct).starts)[which]
        return counts

    def recommend(
        self,
        rows: Any,
        n: int = 10,
        *,
        among: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        min_entries: int = 0,
        include_observed: bool = False,
        neighbours: ColumnNeighbours | None = None,
    ) -> Ranking:
        """Return the n best columns of one row, or of each of a list of rows, without those it has entries for.

        `among` restricts the choice to some columns and `exclude` leaves some out, by labels or by a mask over all
        columns; `min_entries` leaves out those with fewer entries, whose predictions are uncertain. Where several rows
        are given and one has fewer columns left, its line is filled up with values of NaN. Rankings are exact, unless
        `neighbours` (see `column_neighbours`) are given: then the best are looked for among the columns near a row.
        """
        entries, predictor = self._known
        single = is_label(rows, entries.rows)
        row_positions = entries.rows.positions([rows] if single else rows)
        choice = choose_columns(entries, among, exclude, min_entries)
        observed = None if include_observed else entries.seen_columns
        best = rank_columns(
            predictor, entries.columns, row_positions, choice, n, observed=observed, neighbours=neighbours
        )
        return Ranking(best.labels[0], best.values[0]).without_missing() if single else best

    def column_neighbours(self) -> ColumnNeighbours:
        """Return an index of the trained columns, by which `recommend` takes milliseconds where there are millions.

        It needs the extra `ann`, and seconds for every million columns. It says how many of the ten best columns it
        finds (`recall`), and serves all models that come of this one by `extend` and `forget`.
        """
        return ColumnNeighbours(self.predictor_)

    def recommend_to(
        self,
        path: str | Path,
        rows: Iterable[Any] | None = None,
        n: int = 10,
        *,
        among: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        min_entries: int = 0,
        include_observed: bool = False,
    ) -> int:
        """Write the n best columns of some rows, or of all, to a file in bounded memory; return how many lines it has.

        The name ends in .csv, .tsv, .jsonl or .parquet; a line has the row, the rank from 1, the column and the
        prediction. The choice of columns is that of `recommend`.
        """
        entries, predictor = self._known
        found = Recommendations.of(
            entries,
            predictor,
            [rows] if rows is not None and is_label(rows, entries.rows) else rows,
            n,
            among=among,
            exclude=exclude,
            min_entries=min_entries,
            include_observed=include_observed,
        )
        return found.write(path)

    def explain(self, row: Any, column: Any, n: int = 5, *, axis: Axis = "row") -> Explanation:
        """Return the n entries of the row that pulled its prediction for the column up or down the most.

        By `axis="column"`, the entries of the column. An entry's effect is the prediction with all entries less the
        one without this one, the other side as it is; entries that describe nothing (those over new columns, or of
        new rows) have none. In a row of more than 256 entries, only those that stand out most are tried. Where the
        model was fitted with features, those of the row are left out in turn as well.
        """
        entries, predictor = self._known
        check_axis(axis)
        self._areas.check_explains(axis)
        return explain_pair(entries, predictor, row, column, n, axis=axis)

    def complete(self) -> FloatArray:
        """Return the whole matrix (rows, columns): observed entries as they are, the others predicted."""
        return complete_array(*self._known)

    def complete_frame(self) -> Any:
        """Return every missing entry as a long polars frame: row, column and value, under the names of training."""
        return complete_frame(*self._known)

    def complete_to(self, path: str | Path) -> int:
        """Write every missing entry to a file, in batches of bounded memory; return how many there were.

        The name ends in .csv, .tsv, .jsonl or .parquet; a line has the row, the column and the value.
        """
        return complete_to(*self._known, path)

    def similar_rows(self, row: Any, n: int = 10) -> Ranking:
        """Return the n rows most similar to one row, and their similarities (the cosines of their latents)."""
        return most_similar(self.predictor_.directions(self.predictor_.rows), self.entries_.rows, row, n)

    def similar_columns(self, column: Any, n: int = 10) -> Ranking:
        """Return the n columns most similar to one column, and their similarities (the cosines of their latents)."""
        return most_similar(self.predictor_.directions(self.predictor_.columns), self.entries_.columns, column, n)

    def save(
        self,
        path: str | Path,
        *,
        largest_file: int = LARGEST_FILE,
        check: Callable[[Path], object] = lambda _: None,
    ) -> None:
        """Write the model to one file or to a folder, whole or not at all.

        The same entries, settings and seed give the same bytes: how long training took, and by how many threads, is not
        written.

        It is a folder, of shards that `load` maps into memory, where the name ends in ".model", where a model folder
        stands there already, or where arrays take more than `largest_file` bytes. A folder takes the place of a file,
        or of another model folder; a folder of anything else is refused. `check` is called with the file or folder
        before it takes its name: where that raises, nothing is changed.
        """
        entries, predictor = self._known
        description = {
            "class": type(self).__name__,
            "settings": self.settings.to_dict(),
            "chosen": sorted(self.chosen_),
            "history": self.history_.without_times().to_dict(),
        }
        write_model(path, description, entries, predictor.pack(), largest_file=largest_file, check=check)

    @classmethod
    def from_stored(cls, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> Self:
        """Return the model that `save` wrote; anything that could not have been one raises `BadModelFile`."""
        settings = read_settings(content)
        with refuse_stored("settings"):
            model = cls(**settings)
        model.chosen_ = read_choice(read_field(content, "chosen"), model.settings)
        model._given -= model.chosen_.keys()
        entries = read_entries(content, tensors, model._areas, takes_features=cls.takes_features)
        model.history_ = History.from_dict(read_field(content, "history"))
        with refuse_stored(cls.__name__):
            model._fitted = Fitted(entries, model._load_predictor(entries, read_field(content, "learned"), tensors))
        return model

    @property
    def is_fitted(self) -> bool:
        """Whether it has learned anything."""
        return self._fitted is not None

    @property
    def chosen_on_entries_(self) -> dict[str, float]:
        """What was chosen on held-out entries, beside the best epoch."""
        return {}

    @property
    def gives_distribution(self) -> bool:
        """Whether the model predicts distributions, and so intervals."""
        return self.predictor_.gives_distribution

    @property
    def entries_(self) -> EntryStore:
        """The entries that the model knows: those of training, and those it was extended by."""
        return self._known.entries

    @property
    def predictor_(self) -> Predictor:
        """The predictor: latents, the encoder that computes them, and their readout."""
        return self._known.predictor

    @property
    def scale_(self) -> Scale:
        """The scale of the matrix that was fitted."""
        return self.entries_.scale

    @property
    def row_labels_(self) -> npt.NDArray[Any]:
        """All rows that can be predicted for."""
        return self.entries_.rows.array

    @property
    def column_labels_(self) -> npt.NDArray[Any]:
        """All columns that can be predicted for."""
        return self.entries_.columns.array

    @property
    def row_latents_(self) -> LatentArray:
        """The latents of all rows (rows, latent), in the order of `row_labels_`, without effects and means."""
        return self.predictor_.proper(self.predictor_.rows)

    @property
    def column_latents_(self) -> LatentArray:
        """The latents of all columns (columns, latent), in the order of `column_labels_`."""
        return self.predictor_.proper(self.predictor_.columns)

    def __repr__(self) -> str:
        return self._view.text()

    def _repr_html_(self) -> str:
        return self._view.html()

    @property
    def _view(self) -> ModelView:
        own = self.settings_class.from_names(self.own_settings)
        entries = None if self._fitted is None else self._fitted.entries
        return ModelView(type(self).__name__, own, self.chosen_, entries, self.history_)

    @property
    def _of_pairs(self) -> PairPredictions:
        """The predictions for pairs of labels."""
        entries, predictor = self._known
        return PairPredictions(type(self).__name__, entries, predictor, lambda: self._fallback, self._predict_means)

    def _predict_means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the fallback's mean for each pair of positions, where -1 is unknown."""
        return self._fallback.means(rows, columns)

    def _means_error(self, validation: ValidationEntries) -> float:
        """Return the root mean squared error of the means on validation entries."""
        return self._of_pairs.means_error(validation)

    @property
    def _fallback(self) -> Fallback:
        if self._last_fallback is None or self._last_fallback.seen is not self.entries_:
            self._last_fallback = Fallback(self.entries_)
        return self._last_fallback
