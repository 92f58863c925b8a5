"""Features from a file: a line per row, or per column, with its label and what else is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deepmf.data.delimited import MISSING_WORDS, DelimitedFile, checked_path, reading, whole_or_text
from deepmf.data.roles import (
    ENDINGS,
    FEATURES,
    Column,
    TextLayout,
    read_typed,
    recognise,
    scan_typed,
    without_blank_end,
)
from deepmf.errors import BadEntries, BadFeatures, UnreadableFile
from deepmf.files import import_polars
from deepmf.matrix.features import Features
from deepmf.matrix.frames import choose_label

if TYPE_CHECKING:
    import polars as pl


# A number as files write it, but not 007: leading zeros are those of a code.
_NUMBER = r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"

_WHOLE = r"^[+-]?[0-9]{1,18}$"

_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"


class FeatureReading(NamedTuple):
    """Features, and how their file was read.

    label: the name of the column with the labels.
    guessed: whether that was neither given nor known.
    """

    features: Features
    label: str
    guessed: bool


def read_features(
    path: str | Path,
    *,
    label: Column = None,
    kinds: Mapping[str, str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
) -> Features:
    """Read features from a file: delimited text (also `.gz`, `.zst`), Parquet or JSON lines (`.jsonl`).

    There is a line per label.

    `label` is the name, or the position, of the column with the labels; left out, usual names (user, item, id, ...) are
    recognised, otherwise the first column is taken. In text, a column of nothing but numbers is one of numbers (those
    with leading zeros are codes), where NA, null and the like are gaps; in other columns only empty fields are. Fields
    of a file without a header are called `field 1`, `field 2` and so on, counted from 0.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "films.csv")
    >>> _ = path.write_text("film,year,genres\\nAlien,1979,Horror|Sci-Fi\\nBig,NA,Comedy\\n")
    >>> read_features(path)
    Features(2 labels: year (number), genres (list))
    """
    return read_file_of_features(path, label=label, kinds=kinds, separator=separator, header=header).features


def read_file_of_features(
    path: str | Path,
    *,
    label: Column = None,
    known_as: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
) -> FeatureReading:
    """Read features as `read_features` does, and say which column was taken for the labels.

    known_as: names that the labels are known by elsewhere, which are looked for before the usual ones.
    """
    path = checked_path(path)
    if path.suffix.lower() in ENDINGS:
        frame, first_line = read_typed(path, lambda lazy: lazy.collect_schema().names()), None
    else:
        file = DelimitedFile(path)
        header = True if isinstance(label, str) and header is None else header
        layout = recognise(file, FEATURES, separator=separator, header=header, is_known=lambda _: False)
        frame, first_line = _texts(file, layout), layout.first_line
        if not layout.has_header:
            frame = frame.rename({name: f"field {name}" for name in layout.names})
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no {FEATURES.content}")
    try:
        chosen = choose_label(frame.columns, label, known_as)
        _check_labels(frame[chosen], first_line)
        if first_line is not None:
            frame = frame.select(
                whole_or_text(series) if series.name == chosen else _typed(series) for series in frame.get_columns()
            )
        return FeatureReading(
            Features.from_frame(frame, chosen, kinds=kinds), chosen, label is None and chosen not in known_as
        )
    except (BadEntries, BadFeatures) as error:
        raise BadFeatures(f"{path}: {error}") from error


def _texts(file: DelimitedFile, layout: TextLayout) -> pl.DataFrame:
    """Read all columns as text."""
    polars = import_polars()
    if layout.separator != "::":
        with reading(file.path, "text"):
            return without_blank_end(scan_typed(file, layout, {}).select(layout.names).collect())
    # Polars separates at one byte, and a title may hold a colon.
    lines = file.fields(file.lines()[layout.first_line - 1 :], "::")
    if max(map(len, lines), default=0) > len(layout.names):
        raise UnreadableFile(f"{file.path} has lines with more columns than line 1")
    columns = {
        name: [line[at] if at < len(line) and line[at] else None for line in lines]
        for at, name in enumerate(layout.names)
    }
    return without_blank_end(polars.DataFrame(columns, schema=dict.fromkeys(layout.names, polars.String)))


def _check_labels(labels: pl.Series, first_line: int | None) -> None:
    if labels.null_count():
        at = int(labels.is_null().arg_true()[0])
        place = f"entry {at}" if first_line is None else f"line {at + first_line}"
        raise BadFeatures(f"{place}: the label is missing")


def _typed(texts: pl.Series) -> pl.Series:
    """Return texts as numbers where nothing else is among them but gaps, as dates with gaps, or as they are."""
    polars = import_polars()
    plain = texts.str.strip_chars()
    is_gap = plain.str.to_lowercase().is_in(MISSING_WORDS).fill_null(True)
    known = plain.filter(~is_gap)
    if known.is_empty():
        return plain.set(is_gap, None)
    if known.str.contains(_NUMBER).all():
        whole = known.str.contains(_WHOLE).all()
        return plain.set(is_gap, None).cast(polars.Int64 if whole else polars.Float64)
    if known.str.contains(_DATE).all():
        return plain.set(is_gap, None)
    return plain.set((plain == "").fill_null(False), None)
