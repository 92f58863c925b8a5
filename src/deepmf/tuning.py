"""Tuning: search for the settings of a model that predict or rank validation entries best, with
optuna."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from deepmf.errors import (
    BadFeatures,
    BadSetting,
    CannotSave,
    NotBetterThanMeans,
    TrainingDiverged,
    TrainingInterrupted,
    UnreadableFile,
    UserError,
    check_count,
    import_optional,
    suggest_name,
)
from deepmf.evaluation.ranking import ROW_METRICS, evaluate_ranking, fix_order
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.fitting import check_features, digest, keep_known
from deepmf.models.registry import model_class
from deepmf.recommend.request import OrderOptions
from deepmf.training.checkpoint import list_differences
from deepmf.training.history import Callback, EpochRecord, History
from deepmf.training.search_space import (
    Choice as Choice,
    Dimension,
    LogRange as LogRange,
    Range as Range,
    Space,
)
from deepmf.training.settings import list_settings

if TYPE_CHECKING:
    import optuna

# User attributes of the study and of a trial.
_FINGERPRINT = "made for"
_DIVERGED = "diverged"

_FIRST_BYTES = b'{"op_code":0,'  # of optuna's journals

_OF_FEATURES: Space = {"feature_penalty": LogRange(0.3, 300.0)}


@dataclass(frozen=True)
class Trial:
    """One trial: the settings of the model, and its error on the validation entries.

    The error is the root mean squared error, or 1 minus the ranking metric of the study. `ended` is
    "completed", "pruned" (stopped early because other trials were better) or "diverged"; only a
    completed trial has an error.
    """

    settings: dict[str, Any]
    error: float | None
    ended: str
    seconds: float


class Study:
    """A search for the settings of a model that predict validation entries best (a tree-structured
    Parzen estimator).

    Parameters
    ----------
    model : name of the model, such as "als".
    train, validation : entries to fit each trial on, and entries to compare the trials on.
    row_features, column_features : side information that every trial is fitted with.
    settings : settings that are fixed.
    space : what the other settings are chosen from; default: `search_space` of the model.
    metric : "rmse", or a ranking metric: "ndcg", "recall", "precision", "mrr", "map" or "hit_rate",
        whose trials are never pruned.
    n, order : for a ranking metric: the length of the lists, and the order of the columns
        (`relevant`, `rank_by`), as in `evaluate_ranking`.
    file : file that keeps every trial. A study continues from the file of the same search.

    >>> from deepmf.data import split_entries
    >>> from deepmf.datasets import generate
    >>> split = split_entries(generate(60, 40, density=0.3, seed=0).matrix, seed=0)
    >>> study = Study("means", split.train, split.validation).run(5)
    >>> len(study.trials), list(study.best.settings)
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
        metric: str = "rmse",
        n: int = 10,
        file: str | Path | None = None,
        **order: Unpack[OrderOptions],
    ) -> None:
        self._model_class = model_class(model)
        if not train.has_values:
            raise BadSetting(
                "interactions are learned by the presence part, which fit tunes itself; leave out tuning"
            )
        self.metric, self._ranking = metric, _check_metric(metric, train, n, order)
        if not validation.n_entries:
            raise BadSetting("settings are compared on validation entries; there are none")
        self.train, self.validation = train, keep_known(train, validation)
        given = {"row_features": row_features, "column_features": column_features}
        self.features: dict[str, Any] = {
            name: each for name, each in given.items() if each is not None
        }
        if self.features and not self._model_class.takes_features:
            raise BadFeatures(
                f"{model!r} reads entries alone, no features; tune it without, or another model"
            )
        self.fixed = dict(settings or {})
        self.defaults = self._model_class(**self.fixed).settings_for(train).to_dict()
        if space is None:  # settings that were chosen for a matrix may lie outside
            own, default = search_space(model, with_features=bool(self.features)), self.defaults
            space = {
                name: each if default[name] is None else each.include(default[name])
                for name, each in own.items()
            }
        self.space: Space = _drop_fixed(space, self.defaults, self.fixed, model)
        self._distributions = {
            name: self._make_distribution(name, each) for name, each in self.space.items()
        }
        self._file = None if file is None else Path(file)
        self._study = _open_study(self._file, self._make_fingerprint(model))

    def run(self, n_trials: int, *, callbacks: Sequence[Callback] = ()) -> Self:
        """Run trials until there are n in all, those in the file included; the first tries the
        defaults.

        Callbacks see every epoch of every trial. Ctrl-C (`KeyboardInterrupt`) keeps all trials but
        the current one, and another `run` continues to the same result as without the pause.
        """
        try:
            for number in range(len(self.trials), n_trials):
                self._run_trial(number, callbacks)
        except OSError as error:
            if isinstance(error, UserError):
                raise
            reason = f"{self._file} could not be written ({error.strerror})"
            raise CannotSave(f"{reason}; finished trials are kept") from error
        return self

    @property
    def trials(self) -> list[Trial]:
        """All trials so far, in order."""
        from optuna.trial import TrialState

        trials = self._study.get_trials(
            deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)
        )
        return [self._read_trial(trial) for trial in trials]

    @property
    def best(self) -> Trial:
        """The completed trial with the smallest error, the first of several."""
        completed = [trial for trial in self.trials if trial.error is not None]
        if not completed:
            raise TrainingDiverged(
                f"none of {len(self.trials)} trials was completed, so none is the best"
            )
        return min(completed, key=lambda trial: trial.error or 0.0)

    def _make_distribution(
        self, name: str, dimension: Dimension
    ) -> optuna.distributions.BaseDistribution:
        """Return the values of a setting for optuna, after the model has checked the ends or
        options."""
        for value in (
            dimension.options if isinstance(dimension, Choice) else (dimension.low, dimension.high)
        ):
            self._model_class(**self.fixed | {name: value})
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        try:
            if isinstance(dimension, Choice):
                return CategoricalDistribution(tuple(map(dimension.encode, dimension.options)))
            is_log = isinstance(dimension, LogRange)
            if dimension.is_whole:
                return IntDistribution(int(dimension.low), int(dimension.high), log=is_log)
            return FloatDistribution(dimension.low, dimension.high, log=is_log)
        except ValueError as error:
            raise BadSetting(f"{name} cannot be searched in {dimension}: {error}") from error

    def _run_trial(self, number: int, callbacks: Sequence[Callback]) -> None:
        """Run the next trial; its settings depend on the seed and on the finished trials, not on
        pauses."""
        from optuna import TrialPruned
        from optuna.pruners import MedianPruner
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        state = np.random.SeedSequence([self.defaults["seed"], number]).generate_state(1)
        self._study.sampler = TPESampler(seed=int(state[0]))
        # Stops a trial whose best error is above the median of five or more others at that epoch.
        self._study.pruner = MedianPruner(
            n_startup_trials=5, n_warmup_steps=self.defaults.get("epochs", 1) // 5
        )
        if number == 0 and not self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            given = ((name, each, self.defaults[name]) for name, each in self.space.items())
            inside = {
                name: each.encode(at)
                for name, each, at in given
                if at is not None and each.include(at) == each
            }
            self._study.enqueue_trial(inside)
        trial = self._study.ask(self._distributions)
        try:
            error = self._fit_trial(trial, callbacks)
        except (TrialPruned, TrainingDiverged) as ended:
            if isinstance(ended, TrainingDiverged):
                trial.set_user_attr(_DIVERGED, True)
            self._study.tell(trial, state=TrialState.PRUNED)
        except BaseException:
            # ignored by this class and by the sampler
            self._study.tell(trial, state=TrialState.FAIL)
            raise
        else:
            self._study.tell(trial, error)

    def _fit_trial(self, trial: optuna.Trial, callbacks: Sequence[Callback]) -> float:
        from optuna import TrialPruned

        def prune(record: EpochRecord, _: History) -> None:
            if record.validation_error is not None and not self._ranking:
                trial.report(record.validation_error, record.epoch + 1)
                if trial.should_prune():
                    raise TrialPruned

        model = self._model_class(**self._decode_settings(trial.params))
        with warnings.catch_warnings(action="ignore", category=TrainingInterrupted):  # raised below
            warnings.simplefilter("ignore", NotBetterThanMeans)  # the study compares trials anyway
            model.fit(
                self.train,
                self.validation,
                **self.features,
                callbacks=[*callbacks, prune],
                progress=False,
            )
        if model.history_.stopped == "interrupted":
            raise KeyboardInterrupt
        if self._ranking:
            found = evaluate_ranking(model, self.validation, unknown="nan", **self._ranking).model
            return 1.0 - float(getattr(found, self.metric))
        if model.history_.best_error is not None:
            return model.history_.best_error
        rows, columns, values = self.validation.entries()  # the model is not trained in epochs
        return rmse_error(model.predict(rows, columns), values)

    def _decode_settings(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return self.fixed | {
            name: dimension.decode(stored[name]) for name, dimension in self.space.items()
        }

    def _read_trial(self, trial: optuna.trial.FrozenTrial) -> Trial:
        completed = trial.state.name == "COMPLETE"
        ended = (
            "completed" if completed else "diverged" if _DIVERGED in trial.user_attrs else "pruned"
        )
        seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
        return Trial(
            self._decode_settings(trial.params), trial.value if completed else None, ended, seconds
        )

    def _make_fingerprint(self, model: str) -> dict[str, Any]:
        """Return the properties that tell this search from others; the device is not one of
        them."""
        check_features(**self.features)
        labels = {"row_features": self.train.rows, "column_features": self.train.columns}
        own = {
            name: AxisFeatures.of(labels[name], features)
            for name, features in self.features.items()
        }
        return {
            "model": model,
            **{name: value for name, value in self.defaults.items() if name != "device"},
            "search space": {name: repr(dimension) for name, dimension in self.space.items()},
            "training entries": digest(self.train),
            "validation entries": digest(self.validation),
            **({"metric": self.metric} | self._ranking if self._ranking else {}),
            **{name.replace("_", " "): features.digest() for name, features in own.items()},
        }


def _check_metric(
    metric: str, train: ObservedMatrix, n: int, order: OrderOptions
) -> dict[str, Any]:
    """Return the arguments of `evaluate_ranking` for a metric; none for "rmse"."""
    known = ["rmse", *ROW_METRICS]
    if metric not in known:
        raise BadSetting(
            f"there is no metric {metric!r} to tune for; {suggest_name(str(metric), known)}"
        )
    if metric == "rmse":
        return {}
    check_count("n", n)
    fixed = fix_order(train, order)
    return {"n": int(n), "relevant": fixed.relevant, "rank_by": fixed.rank_by} | fixed.given


def _drop_fixed(
    space: Space, defaults: Mapping[str, Any], fixed: Mapping[str, Any], model: str
) -> Space:
    for name in space:
        if name not in defaults:
            raise BadSetting(
                f"{model!r} has no setting {name!r} to tune; {suggest_name(name, defaults)}"
            )
    free = {name: dimension for name, dimension in space.items() if name not in fixed}
    if not free:
        reason = f"all of {', '.join(space)} are fixed" if space else "it has no search space"
        raise BadSetting(f"{model!r} has no setting left to tune: {reason}")
    return free


def search_space(model: str, *, with_features: bool = False) -> Space:
    """Return the default search space of a model; with features, their penalty is part of it where
    it is a setting.

    >>> search_space("als")["count_power"]
    Range(low=0.0, high=1.0)
    """
    settings = model_class(model).settings_class
    space = dict(settings.searched)
    if with_features:
        names = {setting.name for setting in list_settings(settings)}
        space |= {name: dimension for name, dimension in _OF_FEATURES.items() if name in names}
    return space


def _open_study(path: Path | None, fingerprint: dict[str, Any]) -> optuna.Study:
    import_optional("optuna", what="tuning needs optuna", install="'deepmf[tune]'")
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # says that it creates or continues a study
    try:
        content = path.read_bytes() if path is not None and path.exists() else b""
        if content and not content.startswith(_FIRST_BYTES):
            raise ValueError("a journal begins with the creation of its study")
        storage: Any = None
        if path is not None:
            if content:  # without a line that a killed process left incomplete
                os.truncate(path, content.rfind(b"\n") + 1)
            storage = optuna.storages.JournalStorage(
                JournalFileBackend(str(path), JournalFileOpenLock(str(path)))
            )
        open_study = optuna.load_study if content else optuna.create_study
        study = open_study(study_name="deepmf", storage=storage)
    except OSError as error:
        raise CannotSave(f"{path} cannot hold a study ({error.strerror})") from error
    except Exception as error:  # optuna may raise anything for lines that make no study
        raise UnreadableFile(
            f"{path} is not a study of deepmf, or is damaged; give another file"
        ) from error
    finally:
        optuna.logging.set_verbosity(verbosity)
    own = json.loads(json.dumps(fingerprint))  # tuples become lists, as in the file
    stored = study.user_attrs.get(_FINGERPRINT)
    if stored is None:
        study.set_user_attr(_FINGERPRINT, own)
    elif stored != own:
        raise BadSetting(
            f"{path} is the study of another search (its {', '.join(list_differences(own, stored))} differ); "
            "give another file, or delete it to start from scratch"
        )
    return study
