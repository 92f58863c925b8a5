"""The interface of every model: fit, predict, extend, fold in, complete, recommend, save."""

from __future__ import annotations

import copy
import reprlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from deepmf.errors import (
    BadEntries,
    BadFeatures,
    BadModelFile,
    BadSetting,
    CannotExtend,
    NotFitted,
    NothingObserved,
    TrainingDiverged,
)
from deepmf.matrix.areas import AREAS
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.features import Features
from deepmf.matrix.forgetting import Pairs, asked_to_forget, without
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.column_choice import choice_of
from deepmf.models.column_neighbours import ColumnNeighbours
from deepmf.models.completion import complete_array, complete_frame, complete_to
from deepmf.models.explanation import Axis, Explanation, explained
from deepmf.models.fallback import Fallback
from deepmf.models.fitting import Fitting, check_ranks, digest, tell_ending
from deepmf.models.folded import FeatureValues, FoldedColumns, FoldedRows, folded_column, folded_rows
from deepmf.models.label_pairs import LabelPairs, Unknown, find_pairs
from deepmf.models.model_view import ShownSettings, fitted_html, fitted_lines, model_line, not_fitted_html
from deepmf.models.predictive_distribution import Interval, PredictiveDistribution, check_coverage
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import Ranking, most_similar, ranked
from deepmf.models.readout import check_levels
from deepmf.models.recommendations import Recommendations
from deepmf.models.warm_start import WarmStart, check_settings
from deepmf.storage.feature_tensors import pack_features, unpack_features
from deepmf.storage.label_tensors import check_storable
from deepmf.storage.matrix_tensors import pack_matrix
from deepmf.storage.model_file import write_file
from deepmf.storage.model_folder import LARGEST_FILE, goes_to_folder, write_folder
from deepmf.storage.ordered_matrix import pack_ordered, unpack_either
from deepmf.storage.packed import Packed, Tensors, field, has_values_to_check, numbers, refusing
from deepmf.training.checkpoint import remove_checkpoint
from deepmf.training.epoch_progress import show_epochs
from deepmf.training.fit_plan import FitPlan
from deepmf.training.history import History
from deepmf.training.loop import Callback, Task
from deepmf.training.settings import LoopSettings, Settings
from deepmf.training.threads import training_threads
from deepmf.training.validation import ValidationEntries

Conflicts = Literal["error", "replace"]
Missing = Literal["error", "ignore"]


class Fitted(NamedTuple):
    """The state of a fitted model: the entries it knows, and its predictor."""

    entries: EntryStore
    predictor: Predictor


class Model(ABC):
    """The base class of every model; a subclass defines the task that learns and the predictor built from it.

    The constructor stores settings, `fit` learns, names that end in `_` are learned.
    """

    settings_class: ClassVar[type[Settings]]
    predicts: ClassVar[tuple[str, ...]] = AREAS  # the areas it can predict in
    cannot: ClassVar[str] = ""  # why not in the others
    takes_features: ClassVar[bool] = False  # of rows and columns
    holds_out: ClassVar[bool] = False  # whether `fit` without validation entries sets some aside to choose by
    fits_on_ranks: ClassVar[bool] = False  # whether several processes fit it together

    def __init__(self, /, **settings: Any) -> None:
        self.settings = self.settings_class.from_names(settings)
        self._given = frozenset(settings)
        self.chosen_: dict[str, Any] = {}
        self.history_ = History()
        self._fitted: Fitted | None = None
        self._last_fallback: Fallback | None = None

    @abstractmethod
    def _task(self, entries: EntryStore, validation: ValidationEntries | None) -> Any:
        """Return the task that the loop runs to learn from a matrix and the features of its rows and columns."""

    @abstractmethod
    def _predictor(self, task: Any, entries: EntryStore) -> Predictor:
        """Return the predictor of a task that has run."""

    def _warm_task(self, entries: EntryStore, validation: ValidationEntries | None, start: WarmStart) -> Any:
        """Return the task of a warm fit, which begins with what a fitted model has learned."""
        task = self._task(entries, validation)
        self._begin_from(task, start)
        return task

    def _begin_from(self, task: Any, start: WarmStart) -> None:
        """Let a task begin with what a fitted model has learned."""
        raise NotImplementedError(f"{type(self).__name__} is not learned in epochs")

    @abstractmethod
    def _restored(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        """Return the predictor that packed itself as this content and these tensors."""

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
        labels that are gone are dropped. A warm fit has half the epochs; that of a network enters its schedule where
        the step size has fallen to half. Validation entries should be none that `start_from` was trained on; there is
        a warning where they are. Where there are none, what is chosen on held-out entries is chosen on new ones.

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
        _check_trainable(train)
        check_ranks(type(self).__name__, train, self.settings, able=self.fits_on_ranks)
        if validation is not None:
            _check_matrix(validation, "validation")
        aligned = ValidationEntries.of(train, validation)
        entries = self._described(train, row_features, column_features)
        chosen = self._with_choice(train, start_from)
        chosen._check_memory(entries)
        start = None if start_from is None else chosen._warm_start(start_from, entries, aligned)
        path = None if checkpoint is None else Path(checkpoint)
        over, before = False, (self.settings, self.chosen_, self._fitted)
        self.settings, self.chosen_ = chosen.settings, chosen.chosen_
        try:
            plan = self._plan(train, warm=start is not None)
            epochs = None if plan is None else plan.epochs
            with show_epochs(f"fitting {type(self).__name__}", epochs, progress, plan) as shown:
                self._learn(entries, aligned, Fitting([*shown, *callbacks], path, checkpoint_every, start=start))
            if aligned is not None and self.history_.best_error is not None:
                self.history_.means_error = self._means_error(aligned)
            self._add_described(row_features, column_features)
            tell_ending(self.history_, self.settings)
            over = self.history_.stopped != "interrupted"
        except TrainingDiverged:
            over = True
            raise
        finally:
            if self._fitted is before[2]:  # what was learned earlier stays, with the settings that it was learned by
                self.settings, self.chosen_, _ = before
            if over and path is not None and not keep_checkpoint:
                remove_checkpoint(path)
        return self

    def _described(
        self, train: ObservedMatrix, row_features: Features | None, column_features: Features | None
    ) -> EntryStore:
        """Return the entries of a matrix with the features of its rows and columns."""
        given = {"row_features": row_features, "column_features": column_features}
        for name, features in given.items():
            if features is None:
                continue
            check_features(features, name)
            if not self.takes_features:
                raise BadFeatures(
                    f"{type(self).__name__} reads entries alone, no features; Means, ALS, DMF, DMFD and OrdinalDMF do"
                )
        return EntryStore.of(
            train,
            None if row_features is None else AxisFeatures.of(train.rows, row_features),
            None if column_features is None else AxisFeatures.of(train.columns, column_features),
        )

    def _add_described(self, row_features: Features | None, column_features: Features | None) -> None:
        """Add the rows and columns that have features and no entries."""
        if self._fitted is None:
            return
        rows, columns = self._fitted.entries.rows, self._fitted.entries.columns
        new_rows = None if row_features is None else row_features.beyond(rows)
        new_columns = None if column_features is None else column_features.beyond(columns)
        if new_rows is not None or new_columns is not None:
            self._fitted = self.extend(row_features=new_rows, column_features=new_columns)._fitted

    def plan(self, train: ObservedMatrix, *, start_from: Model | None = None) -> FitPlan | None:
        """Return what `fit` is going to do with a matrix, in words; None for a model that is not learned in epochs."""
        return self._with_choice(train, start_from)._plan(train, warm=start_from is not None)

    def _plan(self, train: ObservedMatrix, *, warm: bool) -> FitPlan | None:
        """Return what a fit with these settings is going to do."""
        settings = WarmStart.shortened(self.settings) if warm else self.settings
        if not isinstance(settings, LoopSettings):
            return None
        effort = getattr(settings, "effort", None)
        name = type(self).__name__ + ("" if effort is None else f" (effort {effort})")
        text = f"fitting {name} to {train.n_entries:,} entries: {self._work(train, settings.epochs)}"
        return FitPlan(text, settings.epochs, self._share_after(train), n_slow=int(self._on_gpu))

    def _work(self, train: ObservedMatrix, epochs: int) -> str:
        """Say in a few words what is computed."""
        return f"{epochs} epochs"

    def _share_after(self, train: ObservedMatrix) -> float:
        """Return about how long it takes after the epochs, as a share of their time."""
        return 0.0

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings that no fit chooses: a model of the same class with these is this one, not fitted yet."""
        chosen = set(self.settings_class.chosen_at_fit) - self._given
        return {name: value for name, value in self.settings.to_dict().items() if name not in chosen}

    def settings_for(self, train: ObservedMatrix) -> Settings:
        """Return the settings that `fit` takes for a matrix: those that were given, and those chosen for it."""
        return self._with_choice(train, None).settings

    def _with_choice(self, train: ObservedMatrix, start_from: Model | None) -> Self:
        """Return this model with the settings that were not given chosen: for a matrix, or as in a model to start from.

        This model stays as it is: a fitted one needs the settings that it was fitted with until it is fitted anew.
        """
        chosen = self._chosen_for(train)
        if type(start_from) is type(self):
            # Epochs that are given have a schedule of their own.
            kept = {each.name for each in fields(LoopSettings)} if "epochs" in self._given else set()
            earlier = start_from.settings.to_dict()
            chosen = {name: value if name in kept else earlier[name] for name, value in chosen.items()}
        model = copy.copy(self)
        model.chosen_ = {name: value for name, value in chosen.items() if name not in self._given}
        model.settings = replace(self.settings, **model.chosen_)
        return model

    def _note_chosen(self, names: Any) -> None:
        """Take some settings as chosen, not given."""
        known = self.settings.to_dict()
        if not isinstance(names, list) or not all(isinstance(name, str) and name in known for name in names):
            raise BadModelFile(f"the stored choice must name settings; got {reprlib.repr(names)}")
        self.chosen_ = {name: known[name] for name in names}
        self._given -= self.chosen_.keys()

    def _check_memory(self, entries: EntryStore) -> None:
        """Refuse a fit that would need more memory than is free."""
        return  # means need little beside the matrix

    def _chosen_for(self, train: ObservedMatrix) -> dict[str, Any]:
        """Return settings that suit a matrix and the machine."""
        return {}

    def _learn(self, entries: EntryStore, validation: ValidationEntries | None, fitting: Fitting) -> None:
        """Learn, and set what is learned."""
        with training_threads(getattr(self.settings, "device", "cpu")) as threads:
            fingerprint, settings, start = self._fingerprint(entries, validation), self.settings, fitting.start
            task: Task = (
                self._task(entries, validation) if start is None else self._warm_task(entries, validation, start)
            )
            if start is not None:
                fingerprint["start"] = start.digest()
                settings = start.shortened(settings)
            self.history_ = replace(fitting, threads=threads).run(task, settings, fingerprint)  # type: ignore[arg-type]
            if self.history_.best_epoch is None and self.history_.stopped == "diverged":
                return
            predictor = self._predictor(task, entries)
            if not (predictor.rows.are_finite() and predictor.columns.are_finite()):
                self._fitted = None
                raise TrainingDiverged("what was learned is too large: latents are not finite numbers")
            self._fitted = Fitted(entries, predictor)

    def _warm_start(self, start_from: Model, new: EntryStore, validation: ValidationEntries | None) -> WarmStart:
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

    def _fingerprint(self, entries: EntryStore, validation: ValidationEntries | None) -> dict[str, Any]:
        """Return the fingerprint that identifies this training run."""
        return {
            "model": type(self).__name__,
            **self.settings.to_dict(),
            "training entries": digest(entries.train),
            "validation entries": None if validation is None else validation.digest(),
        } | {
            name: features.digest()
            for name, features in (("row features", entries.row_features), ("column features", entries.column_features))
            if features is not None
        }

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
        if new is not None or (row_features is None and column_features is None):
            _check_matrix(new, "extend")
        if conflicts not in ("error", "replace"):
            raise BadSetting(f"conflicts must be 'error' or 'replace'; got {conflicts!r}")
        for name, features in (("row_features", row_features), ("column_features", column_features)):
            if features is not None:
                check_features(features, name)
        self._check_extends()
        entries, rows, columns = known.extended(
            new, conflicts=conflicts, row_features=row_features, column_features=column_features
        )
        self._refuse_new("II", "row", known.rows, entries.rows)
        self._refuse_new("III", "column", known.columns, entries.columns)
        _warn_of_nothing(entries, "row", rows, entries.row_entries(rows))
        _warn_of_nothing(entries, "column", columns, entries.column_entries(columns))
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
        asked = asked_to_forget(known, rows, columns, entries, row_features, column_features, missing=missing)
        found = without(known, asked)
        left = predictor.without(found.gone_rows, found.gone_columns)
        return self._described_anew(found.store, left, found.rows, found.columns)

    def _described_anew(self, entries: EntryStore, predictor: Predictor, rows: IndexArray, columns: IndexArray) -> Self:
        """Return this model with other entries, which describe some rows and columns anew."""
        model = copy.copy(self)
        encoded_rows = rows if "II" in self.predicts else rows[:0]
        encoded_columns = columns if "III" in self.predicts else columns[:0]
        model._fitted = Fitted(entries, predictor.extended(entries, encoded_rows, encoded_columns))
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
        if "III" not in self.predicts:
            raise CannotExtend(f"{type(self).__name__} cannot predict for new columns: {self.cannot}")
        return folded_column(entries, predictor, (rows, values), features)

    def _folded(
        self,
        histories: Sequence[tuple[Iterable[Any], Iterable[float]]],
        features: Sequence[FeatureValues | None] | None,
        *,
        single: bool,
    ) -> FoldedRows:
        entries, predictor = self._known
        if "II" not in self.predicts:
            raise CannotExtend(f"{type(self).__name__} cannot predict for new rows: {self.cannot}")
        if not histories:
            raise BadEntries("there is no history to fold in")
        return folded_rows(entries, predictor, histories, features, single=single)

    def predict(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> FloatArray:
        """Return the prediction for each pair of a row and a column, in the scale's units.

        `unknown` sets how a pair with an unknown row or column is treated, here and in every other method that takes
        pairs: "error" refuses all pairs and names the unknown label, "nan" returns NaN, and "fallback" predicts by
        `Means`: the overall mean, plus the effect of the row or column that is known.
        """
        return self._read(rows, columns, unknown, self.predictor_.readout.values, self._of_means)

    def predict_levels(
        self, rows: Iterable[Any], columns: Iterable[Any], *, metric: str = "rmse", unknown: Unknown = "error"
    ) -> FloatArray:
        """Return a legal level for each pair of a row and a column.

        `metric` is the criterion that the levels optimise ("rmse", "mae" or "accuracy") for models that predict a
        distribution; for the others it makes no difference. With `unknown="fallback"`, the level is the one nearest
        to the fallback's mean.
        """
        check_levels(self.scale_, metric)
        predictor = self.predictor_
        if metric != "rmse" and predictor.gives_distribution:
            return self._read_distribution(rows, columns, unknown, lambda found: found.best(metric))
        return self._read(rows, columns, unknown, predictor.readout.levels, self.scale_.nearest_level)

    def predict_distribution(
        self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error"
    ) -> FloatArray:
        """Return the probability of each level (pairs, levels); without levels, of each bin (see `support_`).

        With `unknown="fallback"`, it is the frequency of each level among the entries of the known row or column,
        smoothed by five entries at the frequencies of training; where neither is known, the latter alone. A model
        that predicts only values raises `BadSetting`.
        """
        return self._read_distribution(rows, columns, unknown, lambda found: found.probabilities)

    def predict_interval(
        self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9, unknown: Unknown = "error"
    ) -> Interval:
        """Return intervals that hold the true value with about this probability, where there is a distribution.

        Of levels, those around the likeliest one whose probability is nearest to the coverage; without levels,
        what lies between two tails of equal weight.
        """
        check_coverage(coverage)
        ends = self._read_distribution(rows, columns, unknown, lambda found: found.ends(coverage, self.scale_))
        return Interval(*ends.T)

    @property
    def support_(self) -> FloatArray:
        """What the columns of a distribution stand for: the levels, or the mean values of the bins."""
        return self.predictor_.support

    def scores(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> FloatArray:
        """Return the real-valued score of each pair in the scale's units, also where predictions are levels."""
        return self._read(rows, columns, unknown, self.predictor_.readout.units, self.scale_.clip)

    def areas(self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error") -> npt.NDArray[np.str_]:
        """Return the area of each pair: "I" trained row and column, "II" new row, "III" new column, "IV" both new.

        A pair with an unknown row or column lies in none: where that is no error, its area is "".
        """
        pairs = self._pairs(rows, columns, unknown)
        return np.where(pairs.known, self.entries_.areas(pairs.rows, pairs.columns), "")

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
        single = _is_label(rows, entries.rows)
        row_positions = entries.rows.positions([rows] if single else rows)
        choice = choice_of(entries, among, exclude, min_entries)
        observed = None if include_observed else entries.seen_columns
        best = ranked(predictor, entries.columns, row_positions, choice, n, observed=observed, neighbours=neighbours)
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
            [rows] if rows is not None and _is_label(rows, entries.rows) else rows,
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
        if axis not in ("row", "column"):
            raise BadSetting(f"axis must be 'row' or 'column'; got {axis!r}")
        if ("II" if axis == "row" else "III") not in self.predicts:
            raise CannotExtend(f"{type(self).__name__} cannot explain by the entries of a {axis}: {self.cannot}")
        at = entries.rows.positions([row]), entries.columns.positions([column])
        described = entries.row_entries(at[0]) if axis == "row" else entries.column_entries(at[1])
        others, features = (
            (entries.columns, entries.row_features) if axis == "row" else (entries.rows, entries.column_features)
        )
        pair = int(at[0][0]), int(at[1][0])
        return explained(
            predictor, axis, described, others, pair, n, encoding=None if features is None else features.encoding
        )

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

    def save(self, path: str | Path, *, largest_file: int = LARGEST_FILE) -> None:
        """Write the model to one file or to a folder, whole or not at all.

        It is a folder, of shards that `load` maps into memory, where the name ends in ".model", where a model folder
        stands there already, or where arrays take more than `largest_file` bytes. A folder takes the place of a file,
        or of another model folder; a folder of anything else is refused.
        """
        entries, predictor = self._known
        learned = predictor.pack()
        n_bytes = entries.train.nbytes + sum(tensor.nbytes for tensor in learned.tensors.values())
        in_folder = goes_to_folder(path, n_bytes, largest_file=largest_file)
        pack, write = (pack_ordered, write_folder) if in_folder else (pack_matrix, write_file)
        parts = {"train": pack(entries.train, "train"), "learned": learned}
        if entries.extension is not None:
            parts["extension"] = pack(entries.extension, "extension")
        for name, features in (("row_features", entries.row_features), ("column_features", entries.column_features)):
            if features is not None:
                parts[name] = pack_features(features, name)
        if entries.dropped.size:
            parts["dropped"] = Packed({}, {"dropped.entries": entries.dropped})
        content = {
            "class": type(self).__name__,
            "settings": self.settings.to_dict(),
            "chosen": sorted(self.chosen_),
            "history": self.history_.to_dict(),
        } | {name: part.content for name, part in parts.items()}
        tensors = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
        write(path, kind="model", content=content, tensors=tensors)

    @classmethod
    def from_stored(cls, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> Self:
        """Return the model that `save` wrote; anything that could not have been one raises `BadModelFile`."""
        settings = field(content, "settings")
        if not isinstance(settings, dict):
            raise BadModelFile(f"the stored settings must have names; got {reprlib.repr(settings)}")
        with refusing("settings"):
            model = cls(**settings)
        model._note_chosen(field(content, "chosen"))
        train = unpack_either("train", field(content, "train"), tensors)
        added = unpack_either("extension", content["extension"], tensors) if "extension" in content else None
        dropped = numbers(tensors, "dropped.entries", "int64", (None,)) if "dropped" in content else NOTHING
        with refusing("extension"):
            if added is not None:
                model._check_extends()
            stored = EntryStore.stored if has_values_to_check(tensors) else EntryStore.opened
            entries = unpack_features(stored(train, added, dropped), content, tensors)
            if not cls.takes_features and (entries.row_features or entries.column_features):
                raise BadModelFile(f"the stored model has features, and {cls.__name__} reads none")
            model._refuse_new("II", "row", train.rows, entries.rows)
            model._refuse_new("III", "column", train.columns, entries.columns)
        model.history_ = History.from_dict(field(content, "history"))
        with refusing(cls.__name__):
            model._fitted = Fitted(entries, model._restored(entries, field(content, "learned"), tensors))
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
    def _on_gpu(self) -> bool:
        """Whether it is trained on a GPU."""
        return False

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
        name = type(self).__name__
        if self._fitted is None:
            return model_line(name, self._shown_settings)
        return fitted_lines(name, self._shown_settings, self._fitted.entries, self.history_)

    def _repr_html_(self) -> str:
        name = type(self).__name__
        if self._fitted is None:
            return not_fitted_html(name, self._shown_settings)
        return fitted_html(name, self._shown_settings, self._fitted.entries, self.history_)

    @property
    def _shown_settings(self) -> ShownSettings:
        return ShownSettings(self.settings_class.from_names(self.own_settings), self.chosen_)

    @property
    def _known(self) -> Fitted:
        if self._fitted is None:
            raise NotFitted(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._fitted

    def _read(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        of_scores: Callable[[npt.NDArray[Any]], FloatArray],
        of_means: Callable[[npt.NDArray[Any]], FloatArray],
    ) -> FloatArray:
        """Return `of_scores` of the score of each pair of labels, or `of_means` of the mean where one is unknown."""
        score_pairs = self.predictor_.score_pairs
        return self._pairs(rows, columns, unknown).evaluate(
            lambda *pairs: of_scores(score_pairs(*pairs)), lambda *pairs: of_means(self._means_of_known(*pairs))
        )

    def _read_distribution(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        read: Callable[[PredictiveDistribution], FloatArray],
    ) -> FloatArray:
        """Return `read` of the predictive distribution of each pair of labels."""
        predictor = self.predictor_
        if not predictor.gives_distribution:
            raise BadSetting(
                f"{type(self).__name__} predicts a value, not a distribution; OrdinalDMF, ICFNADE and UCFNADE do both"
            )

        def of_known(rows: IndexArray, columns: IndexArray) -> FloatArray:
            frequencies = self._fallback.distribution(rows, columns, predictor.unit_boundaries)
            exceedance = 1.0 - np.cumsum(frequencies, axis=1)[:, :-1]
            boundaries = self.scale_.from_unit(predictor.unit_boundaries)
            return read(PredictiveDistribution(predictor.support, boundaries, exceedance))

        return self._pairs(rows, columns, unknown).evaluate(
            lambda *pairs: read(predictor.distribution(*pairs)), of_known
        )

    def _means_of_known(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the fallback's mean for each pair of positions, where -1 is unknown."""
        return self._fallback.means(rows, columns)

    @property
    def _of_means(self) -> Callable[[npt.NDArray[Any]], FloatArray]:
        """What makes a prediction of means: as legal as those of the model."""
        return self.scale_.nearest_level if self.predictor_.readout.predicts_levels else self.scale_.clip

    def _means_error(self, validation: ValidationEntries) -> float:
        """Return the root mean squared error of the means on validation entries."""
        means = self._means_of_known(validation.rows, validation.columns)
        return rmse_error(self._of_means(means), validation.values)

    @property
    def _fallback(self) -> Fallback:
        if self._last_fallback is None or self._last_fallback.seen is not self.entries_:
            self._last_fallback = Fallback(self.entries_)
        return self._last_fallback

    def _pairs(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> LabelPairs:
        return find_pairs(self.entries_.rows, self.entries_.columns, rows, columns, unknown)

    def _check_extends(self) -> None:
        """Refuse where the method predicts in area I alone."""
        if self.predicts == ("I",):
            raise CannotExtend(f"{type(self).__name__} cannot be extended: {self.cannot}")

    def _refuse_new(self, area: str, axis: str, known: Labels, labels: Labels) -> None:
        """Refuse new rows (area II) or new columns (area III) where the method cannot predict for them."""
        if area in self.predicts or len(labels) == len(known):
            return
        first = labels[len(known) : len(known) + 1].tolist()[0]
        raise CannotExtend(f"{type(self).__name__} cannot predict for new {axis}s, such as {first!r}: {self.cannot}")


def _check_matrix(given: Any, taker: str) -> None:
    if not isinstance(given, ObservedMatrix):
        raise BadEntries(f"{taker} takes an ObservedMatrix; got {type(given).__name__} ({_makes_one(given)})")


def check_features(given: Any, name: str) -> None:
    """Refuse what is no features."""
    if not isinstance(given, Features):
        kind = type(given).__name__
        raise BadFeatures(f"{name} must be Features (Features.from_frame makes them); got {kind}")


def _makes_one(given: Any) -> str:
    """Say what makes a matrix of something else."""
    if isinstance(given, str | Path):
        return "read_matrix reads one from a file"
    kinds = {"from_frame, or from_table for a wide one,": "columns", "from_sparse": "tocoo", "from_array": "__array__"}
    makers = [maker for maker, attribute in kinds.items() if hasattr(given, attribute)]
    return f"ObservedMatrix.{makers[0] if makers else 'from_entries'} makes one"


def _check_trainable(train: ObservedMatrix) -> None:
    _check_matrix(train, "fit")
    for labels in (train.rows, train.columns):
        check_storable(labels)  # known now rather than when the model is saved
    if train.n_entries == 0:
        raise BadEntries("there is nothing to learn: the matrix has no entries")


def _is_label(rows: Any, labels: Labels) -> bool:
    """Return whether a single row is meant: a tuple is one row where labels are tuples, otherwise several."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        return True
    return isinstance(rows, tuple) and rows in labels


def _warn_of_nothing(seen: EntryStore, axis: str, positions: IndexArray, entries: AxisEntries) -> None:
    nothing = np.diff(entries.starts) == 0
    if entries.features is not None:
        nothing &= ~entries.features.are_known
    empty = positions[nothing]
    if empty.size:
        labels = (seen.rows if axis == "row" else seen.columns)[empty[:3]].tolist()
        other = "columns" if axis == "row" else "rows"
        shown = ", ".join(map(repr, labels)) + (", ..." if empty.size > 3 else "")
        warnings.warn(
            f"{empty.size} {axis}(s) have no entry over the trained {other} ({shown}): "
            "they are predicted from an empty description",
            NothingObserved,
            stacklevel=3,
        )
