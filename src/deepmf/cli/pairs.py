"""The pairs to predict: a row and a column per line of a text or Parquet file, or of standard input."""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.cli.inputs import Reading, name_or_position
from deepmf.cli.output import STANDARD
from deepmf.errors import BadEntries, BadSetting, FileAbsent, UnknownLabel, UnreadableFile

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.models.model import Model

# Tried in this order; the first that cuts all of the first lines into at least two fields is taken.
_SEPARATORS = ("::", "\t", ",", ";", "|", " ")
_SAMPLE_LINES = 200
_WHOLE_LINE = "\x1f"  # a separator that no text contains
_WHOLE_NUMBER = r"^-?(0|[1-9]\d{0,17})$"


class Pairs(NamedTuple):
    """Row and column labels of one length, of the kinds that the model has."""

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]


@dataclass(frozen=True)
class _Source:
    """A file, or what came through standard input, and what to call it."""

    name: str
    content: Path | bytes

    def opened(self) -> Path | BytesIO:
        return BytesIO(self.content) if isinstance(self.content, bytes) else self.content


def read_pairs(path: str, model: Model, reading: Reading) -> Pairs:
    """Read pairs; what else a line holds is ignored.

    In text, a first line that is made of names rather than of ids is the header: one that has usual names (user,
    item, ...), or neither numbers nor an id that the model knows.
    """
    source = _source(path)
    if isinstance(source.content, Path) and source.content.suffix in (".parquet", ".pq"):
        frame = _parquet(source, reading)
    else:
        frame = _text(source, model, reading)
    if frame.height == 0:
        raise UnreadableFile(f"{source.name} holds no pairs")
    rows, columns = frame.get_columns()
    return Pairs(
        _labels(rows, model.row_labels_, source, axis="row"),
        _labels(columns, model.column_labels_, source, axis="column"),
    )


def _source(path: str) -> _Source:
    if path == STANDARD:
        content = sys.stdin.buffer.read()
        if not content.strip():
            raise UnreadableFile("standard input is empty; pairs of a row and a column are needed")
        return _Source("standard input", content)
    file = Path(path)
    if file.is_dir():
        raise UnreadableFile(f"{file} is a directory; a file of pairs is needed")
    try:
        with file.open("rb") as opened:
            if not opened.read(1):
                raise UnreadableFile(f"{file} is empty")
    except FileNotFoundError as error:
        raise FileAbsent(f"there is no file {file}") from error
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror}") from error
    return _Source(str(file), file)


def _parquet(source: _Source, reading: Reading) -> pl.DataFrame:
    import polars

    try:
        lazy = polars.scan_parquet(source.opened())
        chosen = _chosen(lazy.collect_schema().names(), source, reading)
        return lazy.select(chosen).collect()
    except (polars.exceptions.PolarsError, OSError) as error:
        raise UnreadableFile(f"{source.name} is not a whole Parquet file ({_first_line(error)})") from error


def _text(source: _Source, model: Model, reading: Reading) -> pl.DataFrame:
    """Read both ids as texts."""
    import polars

    try:
        lines = _lines(source, n_rows=_SAMPLE_LINES)
        if not lines:
            raise UnreadableFile(f"{source.name} is empty")
        separator = _separator(lines, source, reading)
        first = _fields(lines[:1], separator)[0]
        names = first if _is_header(first, model, reading) else [str(at) for at in range(len(first))]
        if len(set(names)) < len(names):
            raise UnreadableFile(f"{source.name}: the header {lines[0][:80]!r} names a column twice")
        chosen = _chosen(names, source, reading)
        frame = _split(source, separator, names, n_skipped=1 if names is first else 0)
    except polars.exceptions.PolarsError as error:
        raise UnreadableFile(f"{source.name} cannot be read as text ({_first_line(error)})") from error
    return frame.select(chosen).filter(~polars.all_horizontal(polars.all().is_null()))  # blank lines


def _lines(source: _Source, *, n_rows: int | None = None) -> list[str]:
    import polars

    frame = polars.read_csv(
        source.opened(),
        has_header=False,
        separator=_WHOLE_LINE,
        quote_char=None,
        infer_schema=False,
        n_rows=n_rows,
        truncate_ragged_lines=True,
    )
    return [line.removesuffix("\r") for line in frame.to_series().drop_nulls().to_list() if line.strip()]


def _split(source: _Source, separator: str, names: list[str], *, n_skipped: int) -> pl.DataFrame:
    import polars

    if separator == "::":  # polars separates at one byte
        fields = _fields(_lines(source)[n_skipped:], separator)
        columns = {name: [line[at] if at < len(line) else None for line in fields] for at, name in enumerate(names)}
        return polars.DataFrame(columns, schema=dict.fromkeys(names, polars.String))
    return polars.read_csv(
        source.opened(),
        separator=separator,
        has_header=False,
        skip_rows=n_skipped,
        schema=dict.fromkeys(names, polars.String),
        quote_char=None if separator == "\t" else '"',
        truncate_ragged_lines=True,
    )


def _separator(lines: list[str], source: _Source, reading: Reading) -> str:
    if reading.separator is not None:
        given = "\t" if reading.separator == "\\t" else reading.separator
        if len(given) != 1 and given != "::":
            raise BadSetting(f"separator must be one character or '::'; got {given!r}")
        return given
    found = next((s for s in _SEPARATORS if min(map(len, _fields(lines, s))) >= 2), None)
    if found is None:
        raise UnreadableFile(f"{source.name}: line 1 {lines[0][:80]!r} has one column; a row and a column are needed")
    return found


def _fields(lines: list[str], separator: str) -> list[list[str]]:
    if separator == "::":
        return [line.split(separator) for line in lines]
    if separator == "\t":
        return list(csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE))
    return list(csv.reader(lines, delimiter=separator))


def _is_header(first: list[str], model: Model, reading: Reading) -> bool:
    from deepmf.matrix.frames import USUAL_NAMES

    if any(isinstance(name_or_position(name), str) for name in (reading.row, reading.column)):
        return True
    plain = {name.lower().replace("_", "").replace(" ", "") for name in first}
    if plain & set(USUAL_NAMES["row"]) and plain & set(USUAL_NAMES["column"]):
        return True
    seen = model.observations_
    assert seen is not None, "a loaded model is fitted"
    return not any(re.match(_WHOLE_NUMBER, field) or field in seen.rows or field in seen.columns for field in first)


def _chosen(names: list[str], source: _Source, reading: Reading) -> list[str]:
    """Return the names of the row's and the column's column, chosen as for entries; a value need not be there."""
    from deepmf.matrix.frames import choose_columns

    missing_value = "\x1fvalue"
    asked = {"row": name_or_position(reading.row), "column": name_or_position(reading.column)}
    if len(names) < 2:
        raise BadEntries(f"{source.name}: a row and a column are needed; got {len(names)} column(s): {names[0]!r}")
    try:
        # The value must not be taken for an id, so it is chosen too; where there is none, a stand-in is.
        if len(names) == 2:
            chosen = choose_columns([*names, missing_value], **asked, value=missing_value)
        else:
            chosen = choose_columns(names, **asked, value=None)
    except BadEntries as error:
        raise BadEntries(f"{source.name}: {error.message}".replace(f", {missing_value!r}", "")) from error
    return [chosen["row"], chosen["column"]]


def _labels(ids: pl.Series, known: npt.NDArray[Any], source: _Source, *, axis: str) -> npt.NDArray[Any]:
    """Return ids as labels of the kind that the model has."""
    import numpy as np
    import polars

    if ids.null_count():
        raise BadEntries(f"{source.name}: pair {ids.is_null().arg_max()} has no {axis} id")
    try:
        texts = ids.cast(polars.String)
    except polars.exceptions.PolarsError as error:
        raise BadEntries(f"{source.name}: the {axis} ids are of type {ids.dtype}; ints or texts are needed") from error
    if known.size == 0 or isinstance(known[0], str):
        return np.array(texts.to_list(), dtype=object)
    kind = "whole numbers" if known.dtype.kind == "i" else "numbers"
    wrong = (
        ~texts.str.contains(_WHOLE_NUMBER)
        if known.dtype.kind == "i"
        else texts.cast(polars.Float64, strict=False).is_null()
    )
    if wrong.any():
        raise UnknownLabel(f"{axis} {texts.filter(wrong)[0]!r} is not known; the model's {axis}s are {kind}")
    return texts.cast(polars.Int64 if known.dtype.kind == "i" else polars.Float64).to_numpy()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
