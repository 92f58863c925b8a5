"""Settings and `fit`, which all models share, and the few methods that a new model defines."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from deepmf.errors import BadSetting, Hint, NotFitted, TrainingDiverged
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import PlacedEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import PLAIN_EXTRAS
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.fitted import Fitted
from deepmf.models.fitting import (
    Fitting,
    Prepared,
    check_ranks,
    check_trainable,
    check_weighted,
    find_asked,
    gather_entries,
    identify_training,
    keep_extendable,
    keep_known,
    remove_checkpoint_when_over,
    report_ending,
    to_matrix,
    warn_of_constant_times,
)
from deepmf.models.parts import Parts, fit_parts
from deepmf.recommend.request import RankBy
from deepmf.scoring.asked import Calibration
from deepmf.scoring.effects import assign_folds
from deepmf.scoring.learning import AskedCells, Learning
from deepmf.scoring.pairs import FallbackPredictor, PairFunction, PredictedAreas
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Tensors
from deepmf.training.devices import find_device
from deepmf.training.history import Callback, History
from deepmf.training.settings import RECOMMENDATION, LoopSettings, Settings
from deepmf.training.threads import keep_numpy_to_one_thread, limit_threads

if TYPE_CHECKING:
    from deepmf.matrix.names import GivenNames
    from deepmf.training.holdout import HeldOut
    from deepmf.training.loop import Task
    from deepmf.training.memory import FitBytes


# Entries from which on a GPU, if there is one, fits the parts of a model without a device of its
# own.
_MANY_ENTRIES = 1 << 17


class Estimator(ABC):
    """Settings and `fit`.

    The constructor stores settings, `fit` learns, and names that end in `_` are learned. A model
    class declares the class variables below and defines `_make_task`, `_make_predictor` and
    `_load_predictor`.
    """

    settings_class: ClassVar[type[Settings]]
    predicts: ClassVar[tuple[str, ...]] = AREAS  # the areas in which the model predicts
    cannot: ClassVar[str] = ""  # the reason why it does not predict in the others
    takes_features: ClassVar[bool] = False  # of rows and columns
    takes_weights: ClassVar[bool] = False  # of entries
    # whether `fit` holds out validation entries when none are given
    holds_out: ClassVar[bool] = False
    fits_on_ranks: ClassVar[bool] = False  # whether several processes can fit it together
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Show the settings in the signature of the class, for `help` and editors."""
        super().__init_subclass__(**arguments)
        if hasattr(cls, "settings_class"):
            cls.__signature__ = inspect.signature(cls.settings_class, eval_str=True)

    def __init__(self, /, **settings: Any) -> None:
        self.settings = self.settings_class.from_names(settings)
        self._given = frozenset(
            name
            for name, value in settings.items()
            if name not in RECOMMENDATION or value != "auto"
        )
        self._chosen: dict[str, Any] = {}
        self.history_ = History()
        self._fitted: Fitted | None = None

    def fit(
        self,
        train: ObservedMatrix | Any,
        validation: ObservedMatrix | Any | None = None,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        row_names: GivenNames | None = None,
        column_names: GivenNames | None = None,
        asked: ObservedMatrix | Any | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 25,
        keep_checkpoint: bool = False,
        progress: bool | None = None,
    ) -> Self:
        """Learn from a matrix.

        Models that can choose settings for the matrix and the machine do so for all settings that
        were not given; `chosen_` lists them. A fit that needs more memory than is free raises
        `NotEnoughMemory` before it allocates any. Ctrl-C ends training early and keeps the best
        epoch so far.

        Parameters
        ----------
        train : the entries to learn from: a matrix, or a long frame with usual names (user, item,
            rating).
        validation : entries that are used only for early stopping. With them, `history_` also has
            the validation error of the shrunk means (`Means`), and a model that does not beat it
            warns (`NotBetterThanMeans`). Entries of rows and columns that `train` lacks, as after
            `split_time`, are left out with a warning.
        row_features, column_features : features of rows and of columns; some rows and columns may
            have none. Labels that have features but no entries become known rows and columns, as
            after `extend`. Models that cannot use features raise `BadFeatures`.
        row_names, column_names : names that are shown beside ids, as in `with_names`; or the name
            of one of the features, which is then not learned from.
        asked : entries of cells that nobody chose, drawn at random: a survey, a forced rating, an
            audit. They calibrate the level, slope and noise of predictions, which are then for any
            cell rather than for cells that a row would choose, and are added as `extend` adds
            entries, where the model can be extended. Cells that `train` or `validation` has are
            left out; `asked_` tells what changed. Rankings by relevance, which are about chosen
            cells, keep their order.
        callbacks : functions that are called after each epoch with its record and the history.
        checkpoint : a file to which the state of training is saved. A fit that finds a checkpoint
            of the same training continues it to the same result. The file is removed when training
            is over; an interrupted fit leaves it.
        checkpoint_every : the number of epochs between checkpoints.
        keep_checkpoint : leave the checkpoint at the end, so that the caller can remove it after
            saving the model.
        progress : show a plan and one line of progress on standard error: always (True), never
            (False), or in terminals and notebooks (None).

        Returns
        -------
        The model itself.

        Notes
        -----
        In a process group of torch.distributed, some models (`fits_on_ranks`), such as OrdinalDMF,
        are fitted by all processes together: they call `fit` with the same arguments and end with
        the same model. Only the first shows progress, and the checkpoint is a folder.
        """
        from deepmf.training.progress import show_epochs

        features, names = (row_features, column_features), (row_names, column_names)
        prepared = self._prepare(to_matrix(train), validation, features, names)
        cells = (
            None
            if asked is None
            else find_asked(prepared, to_matrix(asked, prepared.entries.scale))
        )
        entries, held_out = prepared.entries, prepared.held_out
        if not entries.train.has_values:
            return self._fit_interactions(prepared)
        suitable = self._with_choice(entries.train)
        suitable._check_memory(entries)
        path = None if checkpoint is None else Path(checkpoint)
        with (
            remove_checkpoint_when_over(
                None if keep_checkpoint else path,
                is_over=lambda: self.history_.stopped != "interrupted",
            ),
            self._use_settings_of(suitable),
        ):
            epochs = self.settings.epochs if isinstance(self.settings, LoopSettings) else None
            plan = partial(self._plan_epochs, entries.train)
            with show_epochs(f"fitting {type(self).__name__}", epochs, progress, plan) as shown:
                fitted = self._learn(
                    entries, held_out, Fitting([*shown, *callbacks], path, checkpoint_every)
                )
            if fitted is not None:
                self._fitted = fitted
                if held_out is not None and self.history_.best_error is not None:
                    self.history_.means_error = self._measure_means(held_out)
                fitted = self._fit_parts(fitted, prepared, cells)
                fitted = self._add_featured_labels(fitted, prepared)
                self._fitted = self._add_asked(fitted, cells)
            report_ending(self.history_, self.settings)
        return self

    def plan(self, train: ObservedMatrix) -> str | None:
        """Describe what `fit` would do for a matrix; None for a model that is not trained in
        epochs.

        OrdinalDMF also tells about how long that takes: a rough figure, which ignores early
        stopping, and what other programs will do.
        """
        return self._with_choice(train)._plan_epochs(train)

    def fill_settings(self, train: ObservedMatrix) -> Settings:
        """Return the settings that `fit` uses for a matrix: the given ones, and those chosen for
        it."""
        return self._with_choice(train).settings

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings that no fit chooses: a new model of this class with them is this model
        before `fit`."""
        chosen_names = set(self.settings.chosen_at_fit) - self._given
        return {
            name: value
            for name, value in self.settings.to_dict().items()
            if name not in chosen_names
        }

    @property
    def chosen_(self) -> dict[str, Any]:
        """The settings that `fit` chose."""
        return dict(self._chosen)

    @property
    def is_fitted(self) -> bool:
        """Whether the model has learned anything."""
        return self._fitted is not None

    @property
    def entries_(self) -> EntryStore:
        """The entries that the model knows: those of training, and those added by `extend`."""
        return self._require_fitted().entries

    @property
    def predictor_(self) -> Predictor:
        """The predictor: latents, the encoder that computes them, and their readout."""
        return self._require_fitted().predictor

    @property
    def scale_(self) -> Scale:
        """The scale of the training matrix."""
        return self.entries_.scale

    # The methods that a model class defines.

    @abstractmethod
    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> Any:
        """Return the `Task` that the training loop runs on these entries and features."""

    @abstractmethod
    def _make_predictor(self, task: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        """Return the predictor of a finished task; `fitting.show_stage` shows stages that follow
        the epochs."""

    @abstractmethod
    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        """Return the predictor whose `pack` gave this content and these tensors."""

    # The methods that a model class may define.

    def _choose_settings(self, train: ObservedMatrix) -> dict[str, Any]:
        """Return settings that suit a matrix and the machine."""
        return {}

    def _estimate_bytes(self, entries: EntryStore) -> FitBytes | None:
        """Return the least memory of a fit; None for a model that needs little beside the
        matrix."""
        return None

    def _describe_work(self, epochs: int) -> str:
        """Describe the computation in a few words, for the plan of a fit."""
        place = "" if self._device is None else f" on the {'GPU' if self._on_gpu else 'CPU'}"
        return f"{epochs} epochs{place}"

    def _estimate_seconds(self, train: ObservedMatrix) -> float | None:
        """Return about how long a fit takes on this machine now; None for a model without an
        estimate."""
        return None

    def _predict_means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the fallback's mean for each pair of positions; -1 is an unknown row or column."""
        return self._require_fitted().fallback.means(rows, columns)

    # The methods that the trait `Recommends` defines (`models/traits.py`).

    @property
    def _learns_times(self) -> bool:
        """Whether predictions and rankings may depend on the time they are for."""
        return False

    def _choose_parts(self, train: ObservedMatrix) -> dict[str, Any]:
        """Return settings of the parts that suit a matrix."""
        return {}

    def _choose_order(self, fitted: Fitted) -> Fitted:
        """Return the state of a model with parts in its order of ranking columns."""
        return fitted

    def _fit_interactions(self, prepared: Prepared) -> Self:
        raise BadSetting(
            f"{type(self).__name__} has no presence part, and interactions have no values to learn; fit ALS or "
            "another model with presence='auto'"
        )

    def _choose_rank_by(self, parts: Parts) -> RankBy:
        """Return the order in which columns are ranked unless another is asked for."""
        return "value"

    # Internals.

    @property
    def _device(self) -> str | None:
        """The setting `device`; None for a model without it, which is fitted on a CPU."""
        return self.settings.to_dict().get("device")

    @property
    def _on_gpu(self) -> bool:
        return find_device(self._device or "cpu") != "cpu"

    def _check_memory(self, entries: EntryStore) -> None:
        from deepmf.training.memory import check_memory

        needed, train, settings = (
            self._estimate_bytes(entries),
            entries.train,
            self.settings.to_dict(),
        )
        if needed is None:
            return
        smaller = [
            name for name in ("hidden_sizes", "hidden_size", "latent_size") if name in settings
        ]
        by_effort = ', effort="quick"' if "effort" in settings else ""
        instead = f"a smaller {' or '.join(smaller)}{by_effort} or a simpler model, such as Means (means), needs less"
        check_memory(
            needed,
            find_device(self._device or "cpu"),
            what=f"fitting {type(self).__name__} to {train.n_entries:,} entries in {train.shape[0]:,} rows x "
            f"{train.shape[1]:,} columns",
            instead=instead,
        )

    def _prepare(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | Any | None,
        features: tuple[Features | None, Features | None],
        names: tuple[GivenNames | None, GivenNames | None],
    ) -> Prepared:
        from deepmf.matrix.names import take_names_from
        from deepmf.training.holdout import HeldOut

        method = type(self).__name__
        check_trainable(train)
        check_weighted(method, train, able=self.takes_weights)
        if self._learns_times:
            warn_of_constant_times(train)
        if validation is not None:
            validation = keep_known(train, to_matrix(validation, train.scale))
        row_features, row_names = take_names_from(features[0], names[0])
        column_features, column_names = take_names_from(features[1], names[1])
        if train.has_values:
            self._check_ranks(train)
        else:
            _refuse_for_interactions(row_features=row_features, column_features=column_features)
        held_out = HeldOut.of(train, validation)
        entries = gather_entries(
            train, row_features, column_features, method=method, able=self.takes_features
        )
        extras = PLAIN_EXTRAS if validation is None else validation.extras
        return Prepared(
            entries.with_names(row_names, column_names),
            held_out,
            extras,
            row_features,
            column_features,
        )

    def _check_ranks(self, train: ObservedMatrix) -> None:
        check_ranks(type(self).__name__, train, able=self.fits_on_ranks)

    def _learn(
        self, entries: EntryStore, validation: HeldOut | None, fitting: Fitting
    ) -> Fitted | None:
        """Run the training loop and set the history; return what was learned, or None if no epoch
        had a finite loss."""
        n_entries = entries.train.n_entries
        with (
            limit_threads(self._device or "cpu", n_entries=n_entries) as threads,
            keep_numpy_to_one_thread(),
        ):
            settings = self.settings
            identify = partial(
                identify_training, type(self).__name__, settings, entries, validation
            )
            with refuse_unsolvable():
                task: Task = self._make_task(entries, validation)
            self.history_ = replace(fitting, threads=threads).run(task, settings, identify)  # type: ignore[arg-type]
            if self.history_.best_epoch is None and self.history_.stopped == "diverged":
                return None
            with refuse_unsolvable():
                return check_products(Fitted(entries, self._make_predictor(task, entries, fitting)))

    def _require_fitted(self) -> Fitted:
        if self._fitted is None:
            raise NotFitted(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._fitted

    @property
    def _areas(self) -> PredictedAreas:
        return PredictedAreas(type(self).__name__, self.predicts, self.cannot)

    def _with_choice(self, train: ObservedMatrix) -> Self:
        """Return a copy in which settings that were not given are chosen for a matrix.

        A fitted model needs its settings until it is fitted again, so this model stays as it is.
        """
        model = copy.copy(self)
        with refuse_unsolvable():
            suitable = self._choose_settings(train)
        suitable |= model._choose_parts(train)
        model._chosen = {name: value for name, value in suitable.items() if name not in self._given}
        model.settings = replace(self.settings, **model._chosen)
        return model

    @contextmanager
    def _use_settings_of(self, chosen: Self) -> Iterator[None]:
        """Take the settings of a fit; if it learns nothing, restore the earlier ones."""
        before = self.settings, self._chosen, self._fitted
        self.settings, self._chosen = chosen.settings, chosen._chosen
        try:
            yield
        finally:
            if self._fitted is before[2]:
                self.settings, self._chosen, _ = before

    def _plan_epochs(self, train: ObservedMatrix) -> str | None:
        if not isinstance(self.settings, LoopSettings) or not train.has_values:
            return None
        from deepmf.training.progress import describe_duration

        effort = self.settings.to_dict().get("effort")
        name = type(self).__name__ + ("" if effort is None else f" (effort {effort})")
        plan = f"fitting {name} to {train.n_entries:,} entries: {self._describe_work(self.settings.epochs)}"
        seconds = self._estimate_seconds(train)
        return plan if seconds is None else f"{plan}; {describe_duration(seconds)}"

    def _add_featured_labels(self, fitted: Fitted, prepared: Prepared) -> Fitted:
        rows, columns = prepared.row_features, prepared.column_features
        new_rows = None if rows is None else rows.take_unknown(fitted.entries.rows)
        new_columns = None if columns is None else columns.take_unknown(fitted.entries.columns)
        if new_rows is new_columns is None:
            return fitted
        return fitted.extend(
            None, self._areas, row_features=new_rows, column_features=new_columns
        ).fitted

    def _fit_parts(
        self, fitted: Fitted, prepared: Prepared, asked: ObservedMatrix | None = None
    ) -> Fitted:
        """Return the state of a model that has learned to predict with its other parts."""
        n_entries = fitted.entries.train.n_entries
        device = self._device or ("auto" if n_entries >= _MANY_ENTRIES else "cpu")
        learning = Learning(
            fitted.entries,
            fitted.predictor,
            prepared.held_out_entries,
            None if asked is None else self._fold_asked(fitted, asked),
            self.settings.to_dict(),
            folds_in=self._areas.covers_new("row"),
            device=device,
        )
        with limit_threads(device, n_entries=n_entries), refuse_unsolvable():
            parts = fit_parts(learning)
        return self._choose_order(replace(fitted, parts=parts))

    def _fold_asked(self, fitted: Fitted, asked: ObservedMatrix) -> AskedCells:
        """Return the asked cells of trained rows and columns, and how each fold is predicted."""
        entries = fitted.entries
        cells = asked.take_known(entries.train.rows, entries.train.columns)
        rows, columns, values = cells.entries()
        row_at, column_at = entries.rows.positions(rows), entries.columns.positions(columns)
        # sums come out the same whatever the order of entries
        order = np.lexsort((column_at, row_at))
        placed = PlacedEntries(row_at[order], column_at[order], values[order])
        fold_of = assign_folds(order.size)

        def predict_fold(number: int) -> tuple[Predictor, PairFunction]:
            other_cells = np.sort(order[fold_of != number])
            model = copy.copy(self)
            model._fitted = fitted
            if self._areas.areas != ("I",) and other_cells.size:
                model._fitted = fitted.extend(cells.take_entries(other_cells), self._areas).fitted
            return model._fitted.predictor, model._predict_means

        return AskedCells(placed, fold_of, predict_fold)

    def _add_asked(self, fitted: Fitted, asked: ObservedMatrix | None) -> Fitted:
        """Add the entries of asked cells where the model can be extended."""
        if asked is None:
            return fitted
        extension = keep_extendable(self._areas, fitted.entries, asked)
        return fitted if extension is None else fitted.extend(extension, self._areas).fitted

    @property
    def _fallback(self) -> FallbackPredictor:
        """The predictor of pairs with an unknown row or column."""
        fitted = self._require_fitted()
        predictor, asked = fitted.predictor, fitted.parts.get("asked")
        calibrate = asked.means.apply if isinstance(asked, Calibration) else _keep_means
        return FallbackPredictor(
            predictor.readout,
            self._predict_means,
            fitted.fallback,
            calibrate,
            predictor.drift,
            predictor.effects,
        )

    def _measure_means(self, validation: HeldOut) -> float:
        from deepmf.metrics import rmse_error

        return rmse_error(
            self._fallback.predict(validation.rows, validation.columns), validation.values
        )


def _keep_means(means: FloatArray) -> FloatArray:
    return means


def _refuse_for_interactions(**given: Any) -> None:
    names = [name for name, argument in given.items() if argument is not None]
    if names:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in names)
        raise BadSetting(
            "interactions are learned from their positions alone",
            hint=Hint(
                f"leave out {' and '.join(names)}; column_names= shows names, recommend(among=) filters columns",
                f"leave out {options}; --column-names shows names, recommend --among FILE filters columns",
            ),
        )


@contextmanager
def refuse_unsolvable() -> Iterator[None]:
    """Raise `TrainingDiverged` if linear algebra finds no solution because the values are too
    large."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise TrainingDiverged(
            f"the values are too large, or too far apart, for this method ({error})"
        ) from error


def check_products(fitted: Fitted) -> Fitted:
    """Refuse a predictor whose latents or their products leave the range of their type."""
    if not fitted.predictor.products_are_finite():
        raise TrainingDiverged(
            f"what was learned is too large: latents or their products are not finite numbers (the scale is "
            f"{fitted.entries.scale}; divide the values by a constant)"
        )
    return fitted
