"""A method, which every model derives from: its settings, what it can do, and how it learns; what a new one defines."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from deepmf.errors import BadSetting, NotFitted, TrainingDiverged
from deepmf.matrix.areas import AREAS
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.fitting import Fitting, fingerprint_of
from deepmf.models.predicted_areas import PredictedAreas
from deepmf.models.predictor import Predictor
from deepmf.models.settings_choice import settings_with_choice
from deepmf.models.warm_start import WarmStart, check_settings
from deepmf.storage.packed import Tensors
from deepmf.training.fit_plan import FitPlan
from deepmf.training.history import History
from deepmf.training.loop import Task
from deepmf.training.settings import LoopSettings, Settings
from deepmf.training.threads import training_threads
from deepmf.training.validation import ValidationEntries


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

    def __init__(self, /, **settings: Any) -> None:
        self.settings = self.settings_class.from_names(settings)
        self._given = frozenset(settings)
        self.chosen_: dict[str, Any] = {}
        self.history_ = History()
        self._fitted: Fitted | None = None

    @abstractmethod
    def _task(self, entries: EntryStore, validation: ValidationEntries | None) -> Any:
        """Return the task that the loop runs to learn from a matrix and the features of its rows and columns."""

    @abstractmethod
    def _predictor(self, task: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        """Return the predictor of a task that has run; the fit is told of stages that follow the epochs."""

    @abstractmethod
    def _restored(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        """Return the predictor that packed itself as this content and these tensors."""

    def _warm_task(self, entries: EntryStore, validation: ValidationEntries | None, start: WarmStart) -> Any:
        """Return the task of a warm fit, which begins with what a fitted model has learned."""
        task = self._task(entries, validation)
        self._begin_from(task, start)
        return task

    def _begin_from(self, task: Any, start: WarmStart) -> None:
        """Let a task begin with what a fitted model has learned."""
        raise NotImplementedError(f"{type(self).__name__} is not learned in epochs")

    def _chosen_for(self, train: ObservedMatrix, earlier: Settings | None) -> dict[str, Any]:
        """Return settings that suit a matrix and the machine; those of an earlier model take their place."""
        return {}

    def _check_memory(self, entries: EntryStore) -> None:
        """Refuse a fit that would need more memory than is free."""
        return  # means need little beside the matrix

    def _work(self, train: ObservedMatrix, epochs: int) -> str:
        """Say in a few words what is computed."""
        return f"{epochs} epochs"

    def _share_after(self, train: ObservedMatrix) -> float:
        """Return about how long it takes after the epochs, as a share of their time."""
        return 0.0

    @property
    def _on_gpu(self) -> bool:
        """Whether it is trained on a GPU."""
        return False

    def _learn(self, entries: EntryStore, validation: ValidationEntries | None, fitting: Fitting) -> None:
        """Learn, and set what is learned."""
        with training_threads(getattr(self.settings, "device", "cpu")) as threads:
            settings, start = self.settings, fitting.start
            fingerprint = fingerprint_of(type(self).__name__, settings, entries, validation, start)
            with _refusing_unsolvable():
                task: Task = (
                    self._task(entries, validation) if start is None else self._warm_task(entries, validation, start)
                )
            if start is not None:
                settings = start.shortened(settings)
            self.history_ = replace(fitting, threads=threads).run(task, settings, fingerprint)  # type: ignore[arg-type]
            if self.history_.best_epoch is None and self.history_.stopped == "diverged":
                return
            with _refusing_unsolvable():
                self._set_fitted(entries, self._predictor(task, entries, fitting))

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
        model.settings, model.chosen_ = settings_with_choice(
            self.settings, self._given, self._chosen_for(train, earlier), earlier
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
        settings = WarmStart.shortened(self.settings) if warm else self.settings
        if not isinstance(settings, LoopSettings):
            return None
        effort = getattr(settings, "effort", None)
        name = type(self).__name__ + ("" if effort is None else f" (effort {effort})")
        text = f"fitting {name} to {train.n_entries:,} entries: {self._work(train, settings.epochs)}"
        return FitPlan(text, settings.epochs, self._share_after(train), n_slow=int(self._on_gpu))

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
