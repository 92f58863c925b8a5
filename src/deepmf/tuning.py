"""A study: settings of a model tried one after another on validation entries, kept in a file to resume from."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np

from deepmf.errors import (
    BadFeatures,
    BadSetting,
    CannotSave,
    DeepMFWarning,
    MissingDependency,
    NotBetterThanMeans,
    TrainingDiverged,
    TrainingInterrupted,
    UnreadableFile,
    UserError,
    nearest_name,
)
from deepmf.files import try_lock
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.fitting import check_features, digest
from deepmf.models.registry import model_class
from deepmf.training.history import EpochRecord, History
from deepmf.training.loop import Callback
from deepmf.training.settings import LARGEST, LARGEST_COUNT, Setting, list_settings

if TYPE_CHECKING:
    import optuna


_SEAL = b'{"check":"'

_DIGITS = 16  # of a checksum

_LONGEST = 1 << 24  # bytes of a line; ours are far shorter


class Journal:
    """What optuna asks of the file behind a study, which one process at a time may write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs: list[dict[str, Any]] = []
        self._end = 0  # of the last whole line, in bytes
        self._check = b""  # of the last whole line
        self._handle: int | None = None  # while the journal is held
        self._read_on()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the journal for this process, and cut off a torn last line; while another has it this is refused."""
        if self._handle is not None:
            yield
            return
        handle = self._opened()
        try:
            if try_lock(handle) == "another's":
                raise CannotSave(
                    f"{self.path} is in use: another process runs the trials of this study; "
                    "wait until it ends, or give another file"
                )
            self._read_on()
            self._cut_off_rest(handle)
            self._handle = handle
            yield
        finally:
            self._handle = None
            os.close(handle)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return all steps from a number on."""
        self._read_on()
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append steps, all of them or none."""
        with self.held():
            assert self._handle is not None
            if os.fstat(self._handle).st_nlink == 0:
                raise CannotSave(f"{self.path} could not be written (it was deleted while the study ran)")
            self._read_on()
            self._cut_off_rest(self._handle)  # what an interrupt left
            lines, check = [], self._check
            for log in logs:
                body = json.dumps(log, separators=(",", ":")).encode()
                check = _checksum(check, body)
                lines.append(_SEAL + check + b'",' + body[1:] + b"\n")
            self._append(self._handle, b"".join(lines))

    def _append(self, handle: int, content: bytes) -> None:
        try:
            while content:
                content = content[os.write(handle, content) :]
            os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, self._end)
            raise CannotSave(
                f"{self.path} could not be written ({error.strerror}); the trials before this one are kept"
            ) from error

    def _read_on(self) -> None:
        """Read the whole lines behind those that were read already."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise CannotSave(f"{self.path} cannot hold a study ({error.strerror})") from error
        with file:
            file.seek(self._end)
            while (line := file.readline(_LONGEST)).endswith(b"\n"):
                self._take(line)
        if len(line) == _LONGEST or (not self._end and not _is_beginning(line)):
            raise self._unreadable()

    def _take(self, line: bytes) -> None:
        check, body = line[len(_SEAL) : len(_SEAL) + _DIGITS], b"{" + line[len(_SEAL) + _DIGITS + 2 : -1]
        if line != _SEAL + check + b'",' + body[1:] + b"\n" or check != _checksum(self._check, body):
            raise self._unreadable()
        try:
            log = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._unreadable() from error
        self._logs.append(log)
        self._end += len(line)
        self._check = check

    def _unreadable(self) -> UnreadableFile:
        n_read = len(self._logs)
        if not n_read:
            return UnreadableFile(f"{self.path} is not a study of deepmf, or damaged; give another file")
        return UnreadableFile(
            f"{self.path} is damaged in line {n_read + 1}; give another file, or go on from its first {n_read} lines"
        )

    def _cut_off_rest(self, handle: int) -> None:
        """Remove a last line that was torn, and say so."""
        n_torn = os.fstat(handle).st_size - self._end
        if n_torn > 0:
            os.ftruncate(handle, self._end)
            warnings.warn(
                f"the last line of {self.path} was torn and is cut off ({n_torn} bytes); the trials before it are kept",
                DeepMFWarning,
                stacklevel=4,
            )

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise CannotSave(f"{self.path} cannot hold a study ({error.strerror})") from error


def _is_beginning(torn: bytes) -> bool:
    """Say whether bytes may be the beginning of a journal's first line."""
    return torn.startswith(_SEAL) or _SEAL.startswith(torn)


def _checksum(before: bytes, body: bytes) -> bytes:
    return hashlib.sha256(before + body).hexdigest()[:_DIGITS].encode()


@dataclass(frozen=True)
class Range:
    """All numbers between two ends, both included; whole ones where both ends are whole.

    An end that is not given is that of the values which the setting may have.
    """

    low: float = -math.inf
    high: float = math.inf

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Say whether a value lies in the range."""
        return isinstance(value, int if self.whole else int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Factors(Range):
    """A range in which what counts is by which factor two numbers differ: 1 to 10 is as far as 10 to 100."""


@dataclass(frozen=True)
class Choice:
    """One of some values; all words that the setting may have, where none are given."""

    options: tuple[Any, ...] = ()

    def holds(self, value: Any) -> bool:
        """Say whether a value is one of the options."""
        return value in self.options


Dimension = Range | Choice

Space = Mapping[str, Dimension]


def space_of(model: str) -> Space:
    """Return the space that a model's settings are searched in, by the model's name.

    >>> space_of("als")["count_power"]
    Range(low=0.0, high=1.0)
    """
    return completed(SEARCHED.get(model, {}), model)


def space_with_features(model: str) -> Space:
    """Return the space of a model that is fitted with features: what they weigh is searched, too, where it is set."""
    has_weight = any(setting.name in _OF_FEATURES for setting in list_settings(model_class(model).settings_class))
    return {**space_of(model), **(completed(_OF_FEATURES, model) if has_weight else {})}


def completed(space: Space, model: str) -> Space:
    """Return a space with the ends and options that it leaves open; each must be a value which the setting may have.

    What the model does not have as a setting is left as it is.
    """
    settings = {setting.name: setting for setting in list_settings(model_class(model).settings_class)}
    return {
        name: _completed(dimension, settings[name]) if name in settings else dimension
        for name, dimension in space.items()
    }


def with_values(space: Space, values: Mapping[str, Any]) -> Space:
    """Return a space that also holds some values: settings that were chosen for a matrix may lie outside.

    >>> with_values({"width": Choice((512,)), "rate": Range(0.1, 0.5)}, {"width": 128, "rate": 0.7})
    {'width': Choice(options=(512, 128)), 'rate': Range(low=0.1, high=0.7)}
    """
    return {name: _with_value(dimension, values[name]) for name, dimension in space.items()}


def _with_value(dimension: Dimension, value: Any) -> Dimension:
    if value is None or dimension.holds(value):
        return dimension
    if isinstance(dimension, Choice):
        return Choice((*dimension.options, value))
    return replace(dimension, low=min(dimension.low, value), high=max(dimension.high, value))


def _completed(dimension: Dimension, setting: Setting) -> Dimension:
    if isinstance(dimension, Choice):
        options = dimension.options or setting.choices
        if not options:
            raise BadSetting(
                f"{setting.name} has no words of its own to choose from; give values, as in Choice((1, 2))"
            )
        for option in options:
            setting.check(option)
        return Choice(options)
    low = _low(setting) if dimension.low == -math.inf else dimension.low
    high = _high(setting) if dimension.high == math.inf else dimension.high
    if math.isinf(low) or math.isinf(high) or (low <= 0 and isinstance(dimension, Factors)):
        example = "above 0, as in Factors(0.1, 10.0)" if isinstance(dimension, Factors) else "as in Range(0.0, 10.0)"
        raise BadSetting(f"{setting.name} can only be searched between two ends, {example}; got {dimension}")
    for end in (low, high):
        setting.check(end)
    return replace(dimension, low=low, high=high)


def _low(setting: Setting) -> float:
    """Return the smallest value of a setting; minus infinity where it has none."""
    return setting.low if setting.kind in ("whole", "number") else -math.inf


def _high(setting: Setting) -> float:
    """Return the largest value of a setting; infinity where its bound only catches typing errors."""
    bounds = {"whole": LARGEST_COUNT, "number": LARGEST}
    return setting.high if setting.high < bounds.get(setting.kind, -math.inf) else math.inf


# The settings of training length are no part of any space: validation entries choose the best epoch. Neither is
# `inputs`: validation entries are of known rows and columns, which "raw" predicts better, and new ones far worse.
_BRANCHES: Space = {
    "hidden_sizes": Choice(((128,), (512,), (2048,), (512, 256))),
    "latent_size": Factors(16, 1024),
    "dropout": Range(high=0.9),
}

_DMF: Space = {**_BRANCHES, "learning_rate": Factors(1e-3, 3e-2), "decay_every": Factors(10, 100)}

_AUTOREC: Space = {
    "hidden_size": Factors(50, 1000),
    "gamma": Factors(0.3, 1000.0),
    "learning_rate": Factors(5e-4, 3e-2),
    "initial": Factors(0.1, 2.0),
}

_CFNADE: Space = {
    "hidden_size": Factors(50, 1000),
    "gamma": Factors(1e-3, 0.3),
    "learning_rate": Factors(3e-4, 2e-2),
    "normalise": Choice(),
}


_OF_FEATURES: Space = {"feature_penalty": Factors(0.3, 300.0)}


# By the names of the registry; `space_of` completes the ends that a setting has of its own.
SEARCHED: Mapping[str, Space] = {
    "dmf": _DMF,
    "dmf-d": {
        **_DMF,
        "sharpness": Factors(0.03, 3.0),
        "sharpness_growth": Range(high=1.05),
        "gamma_boundaries": Factors(1e-2, 1.0),
    },
    # Penalties are chosen on held-out entries in every fit.
    "dmf-o": {
        **_BRANCHES,
        "hidden_sizes": Choice(((64,), (128,), (512,), (1024,), (2048,))),
        "learning_rate": Factors(3e-4, 1e-2),
        "mask_rate": Range(0.2, 0.9),
    },
    "i-autorec": _AUTOREC,
    "u-autorec": _AUTOREC,
    "deep-u-autorec": {
        "hidden_sizes": Choice(((64, 64, 128), (128, 128, 256), (256, 256, 512), (512, 512, 1024))),
        "dropout": Range(high=0.9),
        "learning_rate": Factors(2e-3, 0.1),
        "batch_size": Factors(32, 512),
        "refeeds": Range(high=2),
    },
    "i-cf-nade": _CFNADE,
    "u-cf-nade": _CFNADE,
    "optspace": {"latent_size": Factors(high=50), "trimming": Range(high=5.0)},
    "rankk": {
        "latent_size": Factors(high=50),
        "penalty": Factors(0.01, 10.0),
        "penalty_growth": Range(high=1.1),
    },
    "rdmc": {
        "latent_size": Factors(2, 50),
        "gamma": Factors(0.05, 3.0),
        "penalty": Factors(0.03, 3.0),
        "penalty_growth": Range(high=1.1),
        "level_penalty": Factors(1e-5, 1e-2),
        "level_penalty_growth": Range(high=1.2),
    },
    "odmc": {
        "latent_size": Factors(2, 100),
        "gamma": Factors(0.3, 30.0),
        "alpha": Factors(0.1, 10.0),
        "margin": Range(),
        "learning_rate": Factors(1e-3, 3e-2),
    },
    "als": {
        "latent_size": Factors(2, 200),
        "penalty": Factors(0.03, 3.0),
        "count_power": Range(),
        "effect_penalty": Factors(0.3, 30.0),
    },
    "means": {"shrinkage": Factors(0.1, 100.0)},
}


_NAME = "deepmf"  # of the only study in a file

_MADE_FOR = "made for"


class OpenStudy(NamedTuple):
    """A study, and the context in which no other process runs its trials."""

    study: optuna.Study
    held: Callable[[], AbstractContextManager[None]]


def open_study(file: Path | None, made_for: dict[str, Any]) -> OpenStudy:
    """Return a new study, or the one in the file; `made_for` tells its search from others, which are refused."""
    try:
        import optuna
    except ImportError as error:
        raise MissingDependency("tuning needs optuna: pip install 'deepmf[tune]'") from error
    if file is None:
        return OpenStudy(_study(optuna.storages.InMemoryStorage(), file, made_for), nullcontext)
    journal = Journal(file)
    try:
        storage = optuna.storages.JournalStorage(cast("Any", journal))  # it has all that is asked of a backend
        return OpenStudy(_study(storage, file, made_for), journal.held)
    except UserError:
        raise
    except Exception as error:  # every line is whole, but they make no study: optuna may raise anything
        raise not_a_study(file) from error


def not_a_study(file: Path) -> UnreadableFile:
    """Return the error of a file whose lines make no study."""
    return UnreadableFile(f"{file} is not a study of deepmf, or damaged; give another file")


def _study(storage: optuna.storages.BaseStorage, file: Path | None, made_for: dict[str, Any]) -> optuna.Study:
    import optuna

    if _NAME in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=_NAME, storage=storage)
    else:
        with _quietly():
            study = optuna.create_study(study_name=_NAME, storage=storage)
    own = json.loads(json.dumps(made_for))  # a tuple becomes a list
    kept = study.user_attrs.get(_MADE_FOR)
    if kept is not None and not isinstance(kept, dict):
        raise TypeError(f"a study is made for settings by name; got {type(kept).__name__}")
    if kept is None:
        study.set_user_attr(_MADE_FOR, own)
    elif kept != own:
        differing = [name for name in own | kept if name not in own or name not in kept or own[name] != kept[name]]
        raise BadSetting(
            f"{file} is the study of another search (its {', '.join(differing)} differ); "
            "give another file, or delete it to start from scratch"
        )
    return study


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep optuna from telling that there is a new study."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


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

    >>> from deepmf.data import split_entries
    >>> from deepmf.datasets import generate
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
