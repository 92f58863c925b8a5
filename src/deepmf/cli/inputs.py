"""The entries that a command learns from, and those that choose the best epoch and settings."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from deepmf.cli.options import (
    VALIDATION_SHARE,
    Column,
    DecimalOption,
    Duplicates,
    MissingValues,
    Row,
    Separator,
    Value,
    Wide,
)
from deepmf.cli.output import STANDARD, say
from deepmf.errors import (
    BadEntries,
    BadSetting,
    BadSplit,
    ConstantValues,
    DeepMFWarning,
    DuplicateEntries,
    Hint,
    OffScale,
    UnknownLabel,
    UnreadableFile,
    UserError,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.cli.feature_files import FeatureFiles
    from deepmf.data.columns import ReadColumns
    from deepmf.data.layout import IsKnown, LineKind
    from deepmf.data.read import Missing, ReadOptions
    from deepmf.matrix.frames import TableForm
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.scale import Scale
    from deepmf.matrix.sorting import Duplicates as DuplicatesRule
    from deepmf.models.base import Model
    from deepmf.models.fold_in import FoldedRows


_EXTEND_HINT = Hint("extend adds new rows and columns", "--extend adds new rows and columns")
_SCALE_HINT = Hint("fit with a scale of all levels", "fit with --scale and all levels, also those that its file lacks")


@dataclass(frozen=True)
class Reading:
    """How the files of one command are read: a group of options; a field given as digits is a position."""

    row: Row = None
    column: Column = None
    value: Value = None
    separator: Separator = None
    duplicates: Duplicates = "error"
    missing: MissingValues = "error"
    decimal: DecimalOption = "."
    wide: Wide = False
    beside: Any = None  # a table that is known already: the same names are no guess

    @property
    def asked(self) -> dict[str, str | int | None]:
        """The names or positions of the fields; None where they are to be recognised."""
        return {role: name_or_position(getattr(self, role)) for role in ("row", "column", "value")}

    @property
    def field_separator(self) -> str | None:
        """What separates fields; None where it is to be recognised."""
        return unescaped(self.separator)

    def matrix(self, path: Path, *, scale: Scale | None = None) -> ObservedMatrix:
        """Read a matrix with these names; what was guessed or left out is told in a line."""
        from deepmf.data.read import read_entry_file

        with local_file(path) as file:
            read = read_entry_file(file, self.options(scale))
        guess = read.guess if not read.matrix.form.has_names_of(self.beside) else None
        tell_reading(path, guess, read.n_dropped, wide=read.matrix.form.wide)
        return read.matrix

    def options(self, scale: Scale | None) -> ReadOptions:
        """Return the options as `read_entry_file` and `pack_files` take them."""
        from deepmf.data.read import ReadOptions

        return ReadOptions(
            row=self.asked["row"],
            column=self.asked["column"],
            value=self.asked["value"],
            separator=self.field_separator,
            scale=scale,
            duplicates=cast("DuplicatesRule", self.duplicates),
            missing=cast("Missing", self.missing),
            decimal=self.decimal,
            wide=self.wide,
        )

    def like(self, form: TableForm) -> Reading:
        """Return how files beside a table of this form are read: beside a wide one they are wide, unless told apart."""
        wide = self.wide or (form.wide and self.column is None and self.value is None)
        return replace(self, wide=wide, beside=form)

    def held_out(self, path: Path, scale: Scale) -> ObservedMatrix:
        """Read entries that are predicted; an interval is only what training showed, so they may lie beyond it."""
        if scale.levels is not None:
            try:
                return self.matrix(path, scale=scale)
            except OffScale as error:
                raise OffScale(error.message, hint=_SCALE_HINT) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstantValues)  # nothing is learned from them
            return self.matrix(path)

    def columns(self, path: Path, kind: LineKind, *, is_known: IsKnown = lambda _: False) -> pl.DataFrame:
        """Read the columns that lines of a kind need; in text all fields stay text."""
        return self.read_columns(path, kind, is_known=is_known).frame

    def read_columns(self, path: Path, kind: LineKind, *, is_known: IsKnown = lambda _: False) -> ReadColumns:
        """Read the columns that lines of a kind need, and how they were chosen."""
        from deepmf.data.columns import read_columns

        asked = {name: self.asked[name] for name in kind.roles}
        with local_file(path) as file:
            return read_columns(file, kind, asked=asked, separator=self.field_separator, is_known=is_known)


def tell_reading(path: Path, guessed: str | None, n_dropped: int, *, wide: bool) -> None:
    """Tell in a line each what was guessed about a file, and how many lines of it were left out."""
    if guessed is not None:
        others = "--row says" if wide else "--row, --column and --value say"
        say(f"deepmf: {called(path)}: {guessed} ({others} otherwise)", err=True)
    if n_dropped:
        lines = "1 line without a value is" if n_dropped == 1 else f"{n_dropped:,} lines without a value are"
        say(f"deepmf: {called(path)}: {lines} left out", err=True)


def called(path: Path) -> str:
    """Return what a file is called in messages."""
    return "standard input" if str(path) == STANDARD else str(path)


@contextmanager
def local_file(path: Path) -> Iterator[Path]:
    """Yield a file to read: the given one, or for `-` one that holds standard input and is called so in errors."""
    if str(path) != STANDARD:
        yield path
        return
    from deepmf.files import temporary_folder

    with temporary_folder(Path(gettempdir())) as folder:
        file = folder / called(path)
        _keep_standard_input(file)
        try:
            yield file
        except UserError as error:
            raise type(error)(error.message.replace(f"{folder}{os.sep}", ""), hint=error.hint) from error


def load_model(
    path: Path, *, extensions: Iterable[Path], reading: Reading, features: FeatureFiles | None = None
) -> Model:
    """Load a model, and extend it by files of features, and by the entries of each file in turn."""
    from deepmf.models.loading import load

    with local_file(path) as file:
        model = load(file)
    if features is not None:
        model = features.extended(model)
    for extension in extensions:
        entries = reading.like(model.entries_.train.form).matrix(extension, scale=model.scale_)
        try:
            model = model.extend(like_model(entries, model))
        except UserError as error:
            raise error.locate(called(extension)) from error
    return model


def like_model(matrix: ObservedMatrix, model: Model) -> ObservedMatrix:
    """Return the matrix with ids of the model's kind: a file with nothing but digits reads as ints."""
    return like_labels(matrix, model.row_labels_, model.column_labels_)


def like_labels(matrix: ObservedMatrix, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> ObservedMatrix:
    """Return the matrix with its ids as strings where known labels are strings."""
    return relabelled(matrix, _like(matrix.row_labels, rows), _like(matrix.column_labels, columns))


def relabelled(matrix: ObservedMatrix, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> ObservedMatrix:
    """Return the matrix with other ids for all of its rows and columns."""
    from deepmf.matrix.labels import Labelled, Labels
    from deepmf.matrix.matrix import ObservedMatrix

    if rows is matrix.row_labels and columns is matrix.column_labels:
        return matrix
    return ObservedMatrix.from_positions(
        Labelled(Labels(rows, axis="row"), matrix.entry_rows),
        Labelled(Labels(columns, axis="column"), matrix.by_row.columns),
        matrix.entries().values,
        scale=matrix.scale,
        form=matrix.form,
    )


@contextmanager
def hinting_at_extension() -> Iterator[None]:
    """Say of an unknown id that `--extend` would make it known."""
    try:
        yield
    except UnknownLabel as error:
        raise UnknownLabel(error.message, hint=_EXTEND_HINT) from error


def like_label(text: str, known: Labels, *, axis: str) -> Any:
    """Return an id from the command line as a label of the kind that the model has."""
    from deepmf.data.delimited import is_number, is_whole

    kind = type(known[:1].tolist()[0]) if len(known) else str
    if kind is str or (kind is int and is_whole(text)) or (kind is float and is_number(text)):
        return kind(text)
    raise UnknownLabel(f"{axis} {text!r} is not known; the model's {axis}s are {kind.__name__}s")


def name_or_position(text: str | None) -> str | int | None:
    """Return a position for digits, otherwise the name."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def unescaped(separator: str | None) -> str | None:
    """Return a separator as typed in a shell, where a tab is hard to type."""
    return "\t" if separator == "\\t" else separator


def _keep_standard_input(file: Path) -> None:
    if sys.stdin is None:
        raise UnreadableFile("standard input is closed")
    try:
        with file.open("wb") as opened:
            shutil.copyfileobj(sys.stdin.buffer, opened)
    except OSError as error:
        raise UnreadableFile(f"standard input cannot be read or kept in {file.parent} ({error.strerror})") from error
    if file.stat().st_size == 0:
        raise UnreadableFile("standard input is empty (a command reads it only once)")


def _like(labels: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import numpy as np

    if labels.dtype.kind != "i" or known.size == 0 or not isinstance(known[0], str):
        return labels
    return np.array([str(label) for label in labels.tolist()], dtype=object)


_OUTCOMES = {"nan": "have no prediction", "fallback": "are predicted by the means of what is known"}


class Ids(NamedTuple):
    """The ids of one field of a file.

    labels: of the kind that the model has.
    shown: as they are written, typed as in the file: of text the labels, or all as text where some are not such.
    """

    labels: npt.NDArray[Any]
    shown: pl.Series


def ids_of(ids: pl.Series, known: npt.NDArray[Any], source: str, *, axis: str, unknown: str) -> Ids:
    """Return ids as labels of the kind that the model has.

    One that is not of that kind is unknown: an error, or a label that nobody has.
    """
    import numpy as np
    import polars

    from deepmf.data.delimited import parse_whole_numbers

    if ids.null_count():
        raise BadEntries(f"{source}: pair {ids.is_null().arg_max()} has no {axis} id")
    try:
        texts = ids.cast(polars.String)
    except polars.exceptions.PolarsError as error:
        raise BadEntries(f"{source}: the {axis} ids are of type {ids.dtype}; ints or texts are needed") from error
    plain = np.array(texts.to_list(), dtype=object)
    typed = texts if ids.dtype == polars.String else ids
    if known.size == 0 or isinstance(known[0], str):
        return Ids(plain, typed)
    is_whole = known.dtype.kind == "i"
    numbers = parse_whole_numbers(texts) if is_whole else texts.cast(polars.Float64, strict=False)
    wrong = numbers.is_null()
    if not wrong.any():
        return Ids(numbers.to_numpy(), numbers if typed is texts else ids)
    if unknown == "error":
        n_more = texts.filter(wrong).n_unique() - 1
        more = f" (and {n_more} more)" if n_more else ""
        kind = "whole numbers" if is_whole else "numbers"
        raise UnknownLabel(f"{axis} {texts.filter(wrong)[0]!r} is not known{more}; the model's {axis}s are {kind}")
    lowest = min([*numbers.filter(~wrong).to_list(), *known.tolist()])
    beyond = lowest - texts.rank("dense").cast(numbers.dtype)  # below all numbers: nobody has such a label
    return Ids(polars.select(polars.when(wrong).then(beyond).otherwise(numbers)).to_series().to_numpy(), typed)


def with_ids_like(
    matrix: ObservedMatrix, rows: npt.NDArray[Any], columns: npt.NDArray[Any], path: Path, *, unknown: str
) -> ObservedMatrix:
    """Return entries with ids of the kind of known labels: numbers too, where a text among them made all ids texts."""
    import polars

    matrix = like_labels(matrix, rows, columns)
    ids = []
    for axis, labels, known in (("row", matrix.row_labels, rows), ("column", matrix.column_labels, columns)):
        are_texts = labels.dtype.kind == "O" and labels.size > 0 and isinstance(labels[0], str)
        if are_texts and not (known.size and isinstance(known[0], str)):
            ids.append(ids_of(polars.Series(labels.tolist()), known, called(path), axis=axis, unknown=unknown).labels)
        else:
            ids.append(labels)
    return relabelled(matrix, *ids)


@contextmanager
def refused_by_file(path: Path) -> Iterator[None]:
    """Say of unknown ids in which file they are, and which options would accept them."""
    try:
        yield
    except UnknownLabel as error:
        from deepmf.evaluation.areas import UNKNOWN_HINT

        raise UnknownLabel(f"{called(path)}: {error.message}", hint=UNKNOWN_HINT) from error


def tell_unknown(model: Model, path: Path, rows: npt.NDArray[Any], columns: npt.NDArray[Any], unknown: str) -> int:
    """Tell in one line how many pairs of a file have an unknown row or column, and return that number."""
    counts = UnknownCounts.of(model.entries_.rows, model.entries_.columns, rows, columns)
    if counts.n_pairs:
        counts.tell(path, "the model does not know", f"pairs {_OUTCOMES[unknown]}")
    return counts.n_pairs


@dataclass(frozen=True)
class UnknownCounts:
    """How many of some pairs have an unknown row or column, and how many rows and columns that are."""

    n_all: int
    n_pairs: int
    n_rows: int
    n_columns: int

    @classmethod
    def of(
        cls, known_rows: Labels, known_columns: Labels, rows: npt.NDArray[Any], columns: npt.NDArray[Any]
    ) -> UnknownCounts:
        """Count the pairs of rows and columns that are not all among the known labels."""
        import numpy as np

        from deepmf.matrix.labels import count_distinct

        new_rows, new_columns = known_rows.find(rows) < 0, known_columns.find(columns) < 0
        return cls(
            n_all=rows.size,
            n_pairs=int(np.count_nonzero(new_rows | new_columns)),
            n_rows=count_distinct(rows[new_rows]),
            n_columns=count_distinct(columns[new_columns]),
        )

    def tell(self, path: Path, who: str, outcome: str) -> None:
        """Tell in one line of warning which file has them, and what comes of them."""
        warnings.warn(
            f"{called(path)}: {who} {self}; {self.n_pairs:,} of {self.n_all:,} {outcome}", DeepMFWarning, stacklevel=1
        )

    def __str__(self) -> str:
        counts = {"row": self.n_rows, "column": self.n_columns}
        return " and ".join(f"{count:,} {axis}{'s' * (count > 1)}" for axis, count in counts.items() if count)


def read_column_list(path: Path, model: Model) -> npt.NDArray[Any]:
    """Read columns that the model knows; what else a line holds is ignored."""
    from deepmf.data.layout import COLUMNS

    return _read(path, COLUMNS, model.entries_.columns)


def read_row_list(path: Path, model: Model) -> npt.NDArray[Any]:
    """Read rows that the model knows; what else a line holds is ignored."""
    from deepmf.data.layout import ROWS

    return _read(path, ROWS, model.entries_.rows)


def _read(path: Path, kind: LineKind, labels: Labels) -> npt.NDArray[Any]:
    known = {str(label) for label in labels.array.tolist()}
    frame = Reading().columns(path, kind, is_known=lambda field: field in known)
    try:
        ids = ids_of(frame.to_series(), labels.array, called(path), axis=labels.axis, unknown="error")
        labels.positions(ids.labels)
    except UnknownLabel as error:
        raise error.locate(called(path)) from error
    return ids.labels


class Pairs(NamedTuple):
    """Rows and columns of one length, and what their file calls them (None: nothing)."""

    rows: Ids
    columns: Ids
    names: tuple[str, str] | None

    @property
    def labels(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The pairs as the model is asked for them."""
        return self.rows.labels, self.columns.labels


def read_pairs(path: Path, model: Model, reading: Reading, *, unknown: str = "error") -> Pairs:
    """Read pairs with ids of the model's kind; a first line with an id that the model knows is no header."""
    from deepmf.data.layout import PAIRS

    seen = model.entries_
    read = reading.read_columns(path, PAIRS, is_known=lambda field: field in seen.rows or field in seen.columns)
    rows, columns = read.frame.get_columns()
    if read.choice.is_guess and (rows.name, columns.name) != seen.train.form[:2]:
        say(f"deepmf: {called(path)}: {read.choice.describe()} (--row and --column say otherwise)", err=True)
    return Pairs(
        ids_of(rows, model.row_labels_, called(path), axis="row", unknown=unknown),
        ids_of(columns, model.column_labels_, called(path), axis="column", unknown=unknown),
        (rows.name, columns.name) if read.choice.has_names else None,
    )


_NAMED_AT_MOST = 5


def check_row(row: str | None, history: Path | None, features: str | None) -> None:
    """Refuse both a known row and a new one, and neither."""
    if (row is None) == (history is None and features is None):
        raise BadSetting("give either --row ID, which the model knows, or --history FILE or --features, for a new row")


def folded_in(model: Model, history: Path | None, features: dict[str, str] | None) -> FoldedRows:
    """Return the new row that has a history, or features, or both."""
    entries = {} if history is None else read_history(history, model)
    return model.fold_in(list(entries), list(entries.values()), features=features)


def read_history(path: Path, model: Model) -> dict[Any, float]:
    """Read the values of a new row by column; columns that the model does not know are left out with a warning."""
    from deepmf.data.layout import HISTORY

    return _entries(Reading().columns(path, HISTORY), called(path), model)


def _entries(frame: pl.DataFrame, source: str, model: Model) -> dict[Any, float]:
    """Return the values by the model's own column labels, without the columns that it does not know."""
    known = {str(label): label for label in model.column_labels_.tolist()}
    entries: dict[Any, float] = {}
    unknown = []
    for column, text in frame.iter_rows():
        if column is None or text is None:
            raise BadEntries(f"{source}: a column and a value are needed in each line; one has {column!r} and {text!r}")
        value = _checked_value(text, column, source, model)
        if str(column) not in known:
            unknown.append(column)
        elif known[str(column)] in entries:
            raise DuplicateEntries(f"{source}: the column {column!r} occurs twice")
        else:
            entries[known[str(column)]] = value
    shown = ", ".join(map(repr, unknown[:_NAMED_AT_MOST])) + (", ..." if len(unknown) > _NAMED_AT_MOST else "")
    if not entries:
        raise UnknownLabel(f"{source}: the model knows none of the {len(unknown)} columns: {shown}")
    if unknown:
        message = f"{source}: the model does not know {len(unknown)} of the columns, which are left out: {shown}"
        warnings.warn(message, DeepMFWarning, stacklevel=1)
    return entries


def _checked_value(text: Any, column: Any, source: str, model: Model) -> float:
    if not _is_number(text):
        raise BadEntries(f"{source}: the column {column!r} has the value {text!r}, which is not a number")
    value = float(text)
    if not model.scale_.holds(value):
        raise OffScale(f"{source}: the column {column!r} has the value {value:g}; the scale is {model.scale_}")
    return value


def _is_number(value: Any) -> bool:
    from deepmf.data.delimited import is_number

    return is_number(value) if isinstance(value, str) else isinstance(value, int | float | Decimal)


def split_off(
    entries: ObservedMatrix, validation: Path | None, share: float | None, reading: Reading, *, seed: int
) -> tuple[ObservedMatrix, ObservedMatrix | None]:
    """Return the entries to learn from, and those that choose the best epoch and settings."""
    if validation is not None:
        if share is not None:
            raise BadSetting("give --validation or --validation-share, not both")
        return entries, _known_validation(validation, entries, reading)
    from deepmf.data.splits import split_entries

    share = VALIDATION_SHARE if share is None else share
    split = split_entries(entries, train=1.0 - share, validation=share, test=0.0, seed=seed)
    return split.train, split.validation if split.validation.n_entries else None


def split_off_unseen(
    entries: ObservedMatrix, start: Model, share: float | None, *, seed: int
) -> tuple[ObservedMatrix, ObservedMatrix | None]:
    """Return entries to learn from, and some that the model to start from was not trained on, at most half of those."""
    import numpy as np

    from deepmf.data.random_numbers import RandomStream
    from deepmf.models.warm_start import WarmStart

    share = VALIDATION_SHARE if share is None else share
    if not 0 <= share <= 1:
        raise BadSplit(f"validation must be a share between 0 and 1; got {share!r}")
    warm = WarmStart(start.entries_, start.predictor_, entries)
    unseen = np.flatnonzero(warm.are_unseen(entries.entry_rows, entries.by_row.columns))
    n_wanted = min(round(share * entries.n_entries), unseen.size // 2)
    chosen = unseen[RandomStream(seed).order(unseen.size)[:n_wanted]]
    left = np.setdiff1d(np.arange(entries.n_entries), chosen, assume_unique=True)
    return entries.take_entries(left), entries.take_entries(chosen) if n_wanted else None


def with_split_off(model: Model, held_out: ObservedMatrix | None) -> Model:
    """Return a fitted model that knows the entries split off for validation, too; as it is where it cannot extend."""
    if held_out is None or not model.is_fitted or model.predicts == ("I",):
        return model
    return model.extend(held_out)


def _known_validation(path: Path, train: ObservedMatrix, reading: Reading) -> ObservedMatrix:
    """Read validation entries; those whose row or column training lacks are counted, told and left out.

    Only the fallback could predict them, in every epoch alike.
    """
    read = reading.like(train.form).held_out(path, train.scale)
    validation = with_ids_like(read, train.row_labels, train.column_labels, path, unknown="fallback")
    known = validation.take_known(train.rows, train.columns)
    if known.n_entries < validation.n_entries:
        counts = UnknownCounts.of(train.rows, train.columns, *validation.entries()[:2])
        if known.n_entries == 0:
            raise UnknownLabel(f"{called(path)}: training lacks {counts}, so no entry is left to validate by")
        counts.tell(path, "training lacks", "entries are left out: they would tell no epoch from another")
    return known
