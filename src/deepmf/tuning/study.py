"""A study: settings of a model tried one after another on validation entries, kept in a file to resume from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from deepmf.errors import (
    BadFeatures,
    BadSetting,
    NotBetterThanMeans,
    TrainingDiverged,
    TrainingInterrupted,
    nearest_name,
)
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.fitting import digest
from deepmf.models.given_entries import check_features
from deepmf.models.registry import model_class
from deepmf.training.history import EpochRecord, History
from deepmf.training.loop import Callback
from deepmf.tuning.space import Choice, Dimension, Factors, Space, completed, space_of, space_with_features, with_values
from deepmf.tuning.study_file import not_a_study, open_study

if TYPE_CHECKING:
    import optuna

# With fewer completed trials, importances are noise.
FEWEST_FOR_IMPORTANCE = 10

_DIVERGED = "diverged"


@dataclass(frozen=True)
class Tried:
    """One trial: all settings that the model was given, and its root mean squared error on validation entries.

    `ended` is "completed", "pruned" (stopped early beside better ones) or "diverged"; only the first has an error.
    """

    settings: dict[str, Any]
    error: float | None
    ended: str
    seconds: float


class Study:
    """A search for the settings of a model that predict validation entries best (a tree-structured Parzen estimator).

    `settings` are fixed and no part of the search; `space` is what the rest is chosen from, `space_of` the model
    unless given (with features: `space_with_features`). With a `file`, every trial is kept there: a study that finds
    the file of one like itself goes on from it.

    >>> from deepmf.data.splits import split_entries
    >>> from deepmf.data.synthetic import generate
    >>> split = split_entries(generate(60, 40, density=0.3, seed=0).matrix, seed=0)
    >>> study = Study("means", split.train, split.validation).run(5)
    >>> len(study.tried), list(study.best.settings)
    (5, ['shrinkage'])
    """

    def __init__(
        self,
        model: str,
        train: ObservedMatrix,
        validation: ObservedMatrix,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        settings: Mapping[str, Any] | None = None,
        space: Space | None = None,
        file: str | Path | None = None,
    ) -> None:
        self._model_class = model_class(model)
        if not validation.n_entries:
            raise BadSetting("settings are compared on validation entries; there are none")
        self.train, self.validation = train, validation
        given = {"row_features": row_features, "column_features": column_features}
        self.features: dict[str, Any] = {name: each for name, each in given.items() if each is not None}
        if self.features and not self._model_class.takes_features:
            raise BadFeatures(f"{model!r} reads entries alone, no features; tune it without, or another model")
        self.fixed = dict(settings or {})
        self.defaults = self._model_class(**self.fixed).settings_for(train).to_dict()
        own = space_with_features if self.features else space_of
        searched = own(model) if space is None else completed(space, model)
        free = _free_part(searched, self.defaults, self.fixed, model)
        self.space = with_values(free, self.defaults) if space is None else free
        self._study, self._held = open_study(None if file is None else Path(file), self._fingerprint(model))
        if file is not None:
            self._check_trials(Path(file))

    def run(self, n_trials: int, *, callbacks: Sequence[Callback] = ()) -> Self:
        """Try settings until n have been tried in all, those in the file included; the defaults come first.

        Callbacks see every epoch of every trial. After Ctrl-C (`KeyboardInterrupt`) all trials but the one under way
        are kept, and another `run` goes on to the same result as if there had been no pause. While another process
        runs the trials of the same file, this is refused.
        """
        with self.held():
            for number in range(len(self.tried), n_trials):
                self._try(number, callbacks)
        return self

    def held(self) -> AbstractContextManager[None]:
        """Return the context in which no other process may run trials of the same file; `run` needs no other."""
        return self._held()

    @property
    def tried(self) -> list[Tried]:
        """All trials so far, in order."""
        from optuna.trial import TrialState

        trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        return [self._tried(trial) for trial in trials]

    @property
    def best(self) -> Tried:
        """The completed trial with the smallest error, the first of several."""
        tried = self.tried
        completed = [(trial.error, number) for number, trial in enumerate(tried) if trial.error is not None]
        if not completed:
            raise TrainingDiverged(f"none of {len(tried)} trials was completed, so none is the best")
        return tried[min(completed)[1]]

    def importances(self) -> dict[str, float]:
        """Return how much each setting decides whether a trial is among the best tenth, as shares of 1 (PED-ANOVA).

        The most important first; nothing where too few trials were completed, or all have the same error.
        """
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        errors = [trial.error for trial in self.tried if trial.error is not None]
        if len(errors) < FEWEST_FOR_IMPORTANCE or min(errors) == max(errors):
            return {}
        return get_param_importances(self._study, evaluator=PedAnovaImportanceEvaluator())

    def _check_trials(self, file: Path) -> None:
        """Refuse a file with trials that this search cannot have made."""
        try:
            are_ours = all(map(self._could_have_made, self._study.get_trials(deepcopy=False)))
        except Exception as error:  # their values may be anything
            raise not_a_study(file) from error
        if not are_ours:
            raise not_a_study(file)

    def _could_have_made(self, trial: optuna.trial.FrozenTrial) -> bool:
        searched = {name: _distribution(dimension) for name, dimension in self.space.items()}
        asked = trial.system_attrs.get("fixed_params", {})
        for name, value in [*asked.items(), *trial.params.items()]:
            if not searched[name]._contains(searched[name].to_internal_repr(value)):
                return False
        if any(searched[name] != each for name, each in trial.distributions.items()):
            return False
        reported = trial.intermediate_values.items()
        if not all(isinstance(step, int) and isinstance(error, int | float) for step, error in reported):
            return False
        if trial.state.name not in ("COMPLETE", "PRUNED"):
            return True
        tried = self._tried(trial)
        return trial.distributions.keys() == searched.keys() and (tried.error is None or math.isfinite(tried.error))

    def _try(self, number: int, callbacks: Sequence[Callback]) -> None:
        """Run the next trial; what it tries depends on the seed and on the trials that have ended, not on pauses."""
        from optuna import TrialPruned
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        state = np.random.SeedSequence([self.defaults["seed"], number]).generate_state(1)
        self._study.sampler = TPESampler(seed=int(state[0]))
        self._study.pruner = _pruner(self.defaults.get("epochs", 1))
        if number == 0 and not self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            self._study.enqueue_trial(_first(self.space, self.defaults))
        trial = self._study.ask({name: _distribution(dimension) for name, dimension in self.space.items()})
        try:
            error = self._error_of(trial, callbacks)
        except TrialPruned:
            self._study.tell(trial, state=TrialState.PRUNED)
        except TrainingDiverged:
            trial.set_user_attr(_DIVERGED, True)
            self._study.tell(trial, state=TrialState.PRUNED)
        except BaseException:
            self._study.tell(trial, state=TrialState.FAIL)  # of which neither we nor the sampler take notice
            raise
        else:
            self._study.tell(trial, error)

    def _error_of(self, trial: optuna.Trial, callbacks: Sequence[Callback]) -> float:
        from optuna import TrialPruned

        def prune(record: EpochRecord, _: History) -> None:
            if record.validation_error is not None:
                trial.report(record.validation_error, record.epoch + 1)
                if trial.should_prune():
                    raise TrialPruned

        model = self._model_class(**self._settings(trial.params))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingInterrupted)  # it is raised instead
            warnings.simplefilter("ignore", NotBetterThanMeans)  # one of many
            model.fit(self.train, self.validation, **self.features, callbacks=[*callbacks, prune], progress=False)
        if model.history_.stopped == "interrupted":
            raise KeyboardInterrupt
        if model.history_.best_error is not None:
            return model.history_.best_error
        rows, columns, values = self.validation.entries()  # a model that is not learned in epochs
        return rmse_error(model.predict(rows, columns), values)

    def _settings(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return self.fixed | {name: _value(dimension, stored[name]) for name, dimension in self.space.items()}

    def _tried(self, trial: optuna.trial.FrozenTrial) -> Tried:
        completed = trial.state.name == "COMPLETE"
        ended = "completed" if completed else "diverged" if _DIVERGED in trial.user_attrs else "pruned"
        seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
        return Tried(self._settings(trial.params), trial.value if completed else None, ended, seconds)

    def _fingerprint(self, model: str) -> dict[str, Any]:
        """Return what tells this study from others; it may go on where there is another device."""
        given = {name: value for name, value in self.defaults.items() if name != "device"}
        return {
            "model": model,
            **given,
            "search space": {name: repr(dimension) for name, dimension in self.space.items()},
            "training entries": digest(self.train),
            "validation entries": digest(self.validation),
            **{name.replace("_", " "): self._features_digest(name) for name in self.features},
        }

    def _features_digest(self, name: str) -> str:
        """Return a fingerprint of the features of rows or columns; those that no model could read are refused."""
        check_features(self.features[name], name)
        train, features = self.train, self.features[name]
        if name == "row_features":
            return AxisFeatures.of(train.rows, features, train.row_counts).digest()
        return AxisFeatures.of(train.columns, features, train.column_counts).digest()


def _free_part(space: Space, defaults: Mapping[str, Any], fixed: Mapping[str, Any], model: str) -> Space:
    """Return what is left of a space beside the fixed settings."""
    for name in space:
        if name not in defaults:
            raise BadSetting(f"{model!r} has no setting {name!r} to tune; {nearest_name(name, defaults)}")
    free = {name: dimension for name, dimension in space.items() if name not in fixed}
    if not free:
        known = f"all of {', '.join(space)} are fixed" if space else "it has no search space"
        raise BadSetting(f"nothing is left to tune of {model!r}: {known}")
    return free


def _first(space: Space, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults as a trial stores them, where the space holds them."""
    inside = {name: dimension for name, dimension in space.items() if dimension.holds(defaults[name])}
    return {
        name: repr(defaults[name]) if isinstance(dimension, Choice) else defaults[name]
        for name, dimension in inside.items()
    }


def _distribution(dimension: Dimension) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(tuple(map(repr, dimension.options)))  # tuples could not be stored
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=isinstance(dimension, Factors))
    return FloatDistribution(dimension.low, dimension.high, log=isinstance(dimension, Factors))


def _value(dimension: Dimension, stored: Any) -> Any:
    """Return the value of a setting; four digits of a real number are enough, and can be typed."""
    if isinstance(dimension, Choice):
        return next(option for option in dimension.options if repr(option) == stored)
    return stored if dimension.whole else float(f"{stored:.4g}")


def _pruner(epochs: int) -> optuna.pruners.BasePruner:
    """Stop a trial whose best error so far is above the median that five or more others had after as many epochs."""
    from optuna.pruners import MedianPruner

    return MedianPruner(n_startup_trials=5, n_warmup_steps=epochs // 5)
