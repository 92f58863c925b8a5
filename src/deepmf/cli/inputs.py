"""What commands read: matrices, columns and models, with ids of the kind that the model knows."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, cast

from deepmf.cli.options import Column, Decimal, Duplicates, MissingValues, Row, Separator, Value, Wide
from deepmf.cli.output import STANDARD, say
from deepmf.errors import ConstantValues, OffScale, UnknownLabel, UnreadableFile, UserError
from deepmf.matrix.table_form import TableForm

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.cli.feature_files import FeatureFiles
    from deepmf.data.missing_values import Missing
    from deepmf.data.role_columns import RoleColumns
    from deepmf.data.roles import IsKnown, Role
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.scale import Scale
    from deepmf.matrix.sorting import Duplicates as DuplicatesRule
    from deepmf.models.model import Model


@dataclass(frozen=True)
class Reading:
    """How the files of one command are read: a group of options; a field given as digits is a position."""

    row: Row = None
    column: Column = None
    value: Value = None
    separator: Separator = None
    duplicates: Duplicates = "error"
    missing: MissingValues = "error"
    decimal: Decimal = "."
    wide: Wide = False
    beside: TableForm | None = None  # a table that is known already: the same names are no guess

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
        from deepmf.data.read import read_file_of_entries

        with local_file(path) as file, in_options():
            read = read_file_of_entries(
                file,
                asked=self.asked,
                separator=self.field_separator,
                scale=scale,
                duplicates=cast("DuplicatesRule", self.duplicates),
                missing=cast("Missing", self.missing),
                decimal=self.decimal,
                wide=self.wide,
            )
        guessed = read.guessed if not read.matrix.form.is_called(self.beside) else None
        tell_reading(path, guessed, read.n_dropped, wide=read.matrix.form.wide)
        return read.matrix

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
                raise OffScale(f"{error} (fit --scale names levels that its file lacks)") from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstantValues)  # nothing is learned from them
            return self.matrix(path)

    def columns(self, path: Path, role: Role, *, is_known: IsKnown = lambda _: False) -> pl.DataFrame:
        """Read the columns of a role with these names; in text all fields stay text."""
        return self.role_columns(path, role, is_known=is_known).frame

    def role_columns(self, path: Path, role: Role, *, is_known: IsKnown = lambda _: False) -> RoleColumns:
        """Read the columns of a role, and whether the file has names for them."""
        from deepmf.data.role_columns import read_columns

        asked = {name: self.asked[name] for name in role.columns}
        with local_file(path) as file:
            return read_columns(file, role, asked=asked, separator=self.field_separator, is_known=is_known)


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
        with _silent_panics():
            yield path
        return
    from deepmf.files.leftovers import temporary_folder

    with temporary_folder(Path(gettempdir())) as folder:
        file = folder / called(path)
        _keep_standard_input(file)
        try:
            with _silent_panics():
                yield file
        except UserError as error:
            raise type(error)(str(error).replace(f"{folder}{os.sep}", "")) from error


def load_model(
    path: Path, *, extensions: Iterable[Path], reading: Reading, features: FeatureFiles | None = None
) -> Model:
    """Load a model, and extend it by files of features, and by the entries of each file in turn."""
    from deepmf.models.load import load

    with local_file(path) as file:
        model = load(file)
    if features is not None:
        model = features.extended(model)
    for extension in extensions:
        entries = reading.like(model.entries_.train.form).matrix(extension, scale=model.scale_)
        try:
            model = model.extend(like_model(entries, model))
        except UserError as error:
            raise type(error)(f"{called(extension)}: {error}") from error
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
        from deepmf.evaluation.area_evaluation import EXTEND_HINT

        raise UnknownLabel(f"{error}; {EXTEND_HINT}") from error


def like_label(text: str, known: Labels, *, axis: str) -> Any:
    """Return an id from the command line as a label of the kind that the model has."""
    from deepmf.data.delimited import is_number
    from deepmf.data.ids import is_whole

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


@contextmanager
def in_options() -> Iterator[None]:
    """Say what would help as the command line says it."""
    try:
        yield
    except UserError as error:
        from deepmf.data.messy_numbers import DECIMAL_HINT
        from deepmf.data.missing_values import MISSING_HINT
        from deepmf.data.text_layout import WIDE_HINT
        from deepmf.matrix.sorting import DUPLICATES_HINT

        options = {
            DECIMAL_HINT: "--decimal , reads decimal commas",
            MISSING_HINT: "--missing drop leaves them out",
            DUPLICATES_HINT: "--duplicates first, last or mean would merge them",
            WIDE_HINT: "--wide reads it so; if each line is one entry, --column and --value say which fields hold the "
            "column ids and the values",
            "so wide=True takes no": "so --wide takes no",
        }
        said = str(error)
        for python, option in options.items():
            said = said.replace(python, option)
        if said == str(error):
            raise
        raise type(error)(said) from error


@contextmanager
def _silent_panics() -> Iterator[None]:
    """Keep off the terminal what polars itself writes there when it panics over a damaged file.

    It writes to the descriptor, past Python: that is led into a file, and what else came is shown afterwards.
    """
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or not a stream of the system
        yield
        return
    with TemporaryFile() as kept:
        sys.stderr.flush()
        before = os.dup(descriptor)
        os.dup2(kept.fileno(), descriptor)
        panicked = False
        try:
            yield
        except UnreadableFile as error:
            panicked = type(error.__cause__).__name__ == "PanicException"
            raise
        finally:
            sys.stderr.flush()
            os.dup2(before, descriptor)
            os.close(before)
            kept.seek(0)
            if not panicked:
                shutil.copyfileobj(kept, sys.stderr.buffer)
                sys.stderr.flush()


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
