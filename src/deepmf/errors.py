"""Every error and warning of deepmf, as one tree.

DeepMFError
├── UserError                   the user can fix it; the message is one sentence, safe to show
│   ├── BadSetting              (ValueError)           an argument or setting that makes no sense
│   ├── BadEntries              (ValueError)           values, ids or shapes that form no matrix
│   │   ├── OffScale            a value outside the scale
│   │   └── DuplicateEntries    the same (row, column) twice
│   ├── BadFeatures             (ValueError)           features that cannot be used
│   ├── BadSplit                (ValueError)           sizes that cannot be cut out of this matrix
│   ├── UnreadableFile          (ValueError)           a file that does not hold what it should
│   │   └── BadModelFile        a model file that is truncated, foreign, tampered with or too new
│   ├── FileAbsent              (FileNotFoundError)    no file there
│   ├── CannotSave              (OSError)              a file that could not be written
│   ├── DatasetUnavailable      (OSError)              a data set neither stored nor available
│   ├── UnknownLabel            (KeyError)             a row or column that is not known
│   ├── NotFitted               (RuntimeError)         predict before fit
│   ├── CannotExtend            (NotImplementedError)  the method cannot predict there
│   ├── TrainingDiverged        (ArithmeticError)      the loss is no longer a number
│   ├── DeviceUnavailable       (RuntimeError)         a GPU that is not there
│   ├── NotEnoughMemory         (MemoryError)          a fit that needs more memory than is free
│   ├── ServiceError            (RuntimeError)         a service that refused or does not answer
│   ├── RankLost                (RuntimeError)         another process of a training has ended
│   └── MissingDependency       (ImportError)          an optional package is not installed
└── (any other exception is a bug of deepmf)

DeepMFWarning (UserWarning)
├── NothingObserved             a new row or column without usable entries
├── TrainingInterrupted         Ctrl-C ended training early
├── NotBetterThanMeans          a fit whose validation error is not below that of the shrunk means
├── MeansOffLevels              means of repeated entries, rounded to the nearest level
├── GuessedColumns              columns of a table taken for rows, columns or values by their place
└── ConstantValues              all entries are equal, so every prediction is that value
"""

import difflib
import math
import reprlib
import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from numbers import Integral, Number, Real
from types import FrameType
from typing import Any, NamedTuple, Self


class DeepMFError(Exception):
    """The root of every error deepmf raises on purpose."""


class Hint(NamedTuple):
    """What would solve a problem, for a caller in Python and for a user of the command line."""

    python: str
    command: str


class UserError(DeepMFError):
    """Something the user can fix; the message says what was given and what would be right.

    Parameters
    ----------
    message : what is wrong.
    hint : an argument or option that would help; `str(error)` ends with the hint for Python, and
        the command line prints its own instead.
    """

    def __init__(self, message: str = "", *, hint: Hint | None = None) -> None:
        super().__init__(message if hint is None else f"{message}; {hint.python}")
        self.message = message
        self.hint = hint

    def locate(self, place: str) -> Self:
        """Return the same error with the place of the problem, such as a file and a line, in front
        of it."""
        return type(self)(f"{place}: {self.message}", hint=self.hint)


class BadSetting(UserError, ValueError):
    """An argument or setting that makes no sense."""


class BadEntries(UserError, ValueError):
    """Values, ids or shapes that do not form a matrix; `position` is the offending entry's, counted
    from 0."""

    def __init__(
        self, message: str = "", *, position: int | None = None, hint: Hint | None = None
    ) -> None:
        super().__init__(message if position is None else f"entry {position}: {message}", hint=hint)
        self.message = message
        self.position = position


class OffScale(BadEntries):
    """A value outside the scale."""


class DuplicateEntries(BadEntries):
    """The same (row, column) pair more than once."""


class BadFeatures(UserError, ValueError):
    """Features of rows or columns that cannot be used."""


class BadSplit(UserError, ValueError):
    """Split sizes that cannot be cut out of this matrix."""


class UnreadableFile(UserError, ValueError):
    """A file that exists but does not hold what it should."""


class BadModelFile(UnreadableFile):
    """A model file that is truncated, foreign, tampered with or newer than this version."""


class FileAbsent(UserError, FileNotFoundError):
    """No file at the given path."""


class CannotSave(UserError, OSError):
    """A file that could not be written; nothing was changed."""


class DatasetUnavailable(UserError, OSError):
    """A data set that is neither stored here nor available for download."""


class UnknownLabel(UserError, KeyError):
    """A row or column label that the matrix or model does not have."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0]) if self.args else ""


class NotFitted(UserError, RuntimeError):
    """A model asked to predict before it was fitted."""


class CannotExtend(UserError, NotImplementedError):
    """A method asked to predict for rows or columns that it cannot cover without training."""


class TrainingDiverged(UserError, ArithmeticError):
    """The loss is no longer a finite number; the model keeps its last good weights."""


class DeviceUnavailable(UserError, RuntimeError):
    """A device that this machine does not have."""


class NotEnoughMemory(UserError, MemoryError):
    """A fit, or a completed matrix, that needs more memory than is left."""


class RankLost(UserError, RuntimeError):
    """Another process of a distributed training has ended."""


class ServiceError(UserError, RuntimeError):
    """A service that refused a request or does not answer; `code` is for programs, `status` is that
    of HTTP, if any."""

    def __init__(self, message: str = "", *, code: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class MissingDependency(UserError, ImportError):
    """An optional package that this call needs is not installed."""


class DeepMFWarning(UserWarning):
    """The root of every warning deepmf gives."""


class NothingObserved(DeepMFWarning):
    """A new row or column without usable entries."""


class TrainingInterrupted(DeepMFWarning):
    """Training was ended early by Ctrl-C; the model has the best weights so far."""


class NotBetterThanMeans(DeepMFWarning):
    """A model does not predict validation entries better than the shrunk means of rows and
    columns."""


class MeansOffLevels(DeepMFWarning):
    """Means of repeated entries lie between levels and were rounded to the nearest level."""


class GuessedColumns(DeepMFWarning):
    """Columns of a table were taken for rows, columns or values although nothing but their order
    says so."""


class ConstantValues(DeepMFWarning):
    """All entries are equal: every prediction will be that value."""


def warn(message: str, category: type[DeepMFWarning] = DeepMFWarning) -> None:
    """Give a warning that points to the line outside deepmf which led to it."""
    frame: FrameType | None = sys._getframe(1)
    level, passed = 2, ("deepmf", "functools", "contextlib")
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in passed:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def import_optional(module: str, *, what: str, install: str) -> Any:
    """Import a module of an optional package; raise `MissingDependency` where it is not installed.

    what: what needs which package. install: what pip installs.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependency(f"{what}: pip install {install}") from error


def check_count(name: str, given: object, *, least: int = 1) -> None:
    """Refuse an argument that is not a whole number of at least `least`."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise BadSetting(
            f"{name} must be a whole number of at least {least}; got {show_value(given)}"
        )


def check_number(name: str, given: object, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse an argument that is not a finite number within bounds."""
    try:
        number = (
            math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
        )
    except OverflowError:  # a whole number beyond all floats
        number = math.inf
    if not math.isfinite(number) or not low <= number <= high:
        bounds = f" from {low} to {high}" if math.isfinite(high) else ""
        raise BadSetting(f"{name} must be a number{bounds}; got {show_value(given)}")


def check_choice(name: str, given: object, choices: Iterable[str | None]) -> None:
    """Refuse an argument that is none of the choices; None is a choice only if it is listed."""
    words = list(choices)
    if not (given is None or isinstance(given, str)) or given not in words:
        raise BadSetting(f"{name} must be {' or '.join(map(repr, words))}; got {show_value(given)}")


def check_flag(name: str, given: object) -> None:
    """Refuse an argument that is neither True nor False; a boolean of numpy is either."""
    is_scalar = getattr(given, "dtype", None) == "bool" and getattr(given, "shape", None) == ()
    if not isinstance(given, bool) and not is_scalar:
        raise BadSetting(f"{name} must be True or False; got {show_value(given)}")


def show_value(value: object) -> str:
    """Return a value as messages repeat it: shortened, a number of numpy as a plain one.

    >>> show_value(10**400), show_value("long " * 20)
    ('100000000000000000...0000000000000000000', "'long long lo...ng long long '")
    """
    if isinstance(value, Number) and hasattr(value, "item"):
        value = value.item()
    try:
        return reprlib.repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return f"{type(value).__name__} of thousands of digits"


def suggest_name(given: object, known: Iterable[str]) -> str:
    """Suggest the known name that is nearest to an unknown one, or list all known names.

    >>> suggest_name("epoch", ["epochs", "seed"])
    "did you mean 'epochs'?"
    >>> suggest_name("xyzzy", ["epochs", "seed"])
    'there are epochs, seed'
    """
    names = list(known)
    near = [
        name
        for text in (str(given), str(given).lower())
        for name in difflib.get_close_matches(text, names, n=1)
    ]
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


def __dir__() -> list[str]:
    own_names = (
        name for name, value in globals().items() if getattr(value, "__module__", None) == __name__
    )
    return sorted([*own_names, *(name for name in globals() if name.startswith("__"))])
