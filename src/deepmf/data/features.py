"""Reading tables with columns of several types: features with a line per label, and mixed
tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deepmf.data.columns import open_table
from deepmf.data.delimited import DECIMAL_MARKS, infer_type, parse_ids, remove_marks
from deepmf.data.layout import FEATURES, ColumnOptions, NameOrPosition
from deepmf.errors import BadEntries, BadFeatures, UnreadableFile, check_choice
from deepmf.files import check_path, polars
from deepmf.matrix.column_roles import choose_label
from deepmf.matrix.features import Features


def read_features(
    path: str | Path,
    *,
    label: NameOrPosition = None,
    kinds: Mapping[str, str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
) -> Features:
    """Read features from a file with a line per label: delimited text (also `.gz`), Parquet, JSON
    lines.

    A text column that holds only numbers becomes a column of numbers; numbers with leading zeros
    are codes. NA, null and the like are missing; among texts, "none" and "nil" are not. Fields of a
    file without a header are called `field 1`, `field 2` and so on, counted from 0.

    Parameters
    ----------
    label : name or position of the column with the labels. By default usual names (user, item, id,
        ...) are recognised, otherwise the first column is taken.
    kinds : the kind of a feature by its name, as in `Features`; recognised from the values by
        default.
    separator, header : recognised from the first lines by default.
    encoding : the encoding of text, recognised by default as in `read_matrix`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "films.csv")
    >>> _ = path.write_text("film,year,genres\\nAlien,1979,Horror|Sci-Fi\\nBig,NA,Comedy\\n")
    >>> read_features(path)
    Features(2 labels: year (number), genres (list))
    """
    options = ColumnOptions(
        asked={"label": label}, separator=separator, header=header, encoding=encoding
    )
    return read_feature_file(path, options, kinds=kinds).features


def read_mixed_table(
    path: str | Path,
    *,
    separator: str | None = None,
    decimal: str = ".",
    encoding: str | None = None,
    missing_values: Sequence[str] = (),
) -> polars.DataFrame:
    """Read a table from delimited text (also `.gz`), Parquet or JSON lines, with null for gaps.

    A text column that holds only numbers becomes a column of numbers, of whole numbers if it has no
    decimals; numbers with leading zeros are text. NA, null and the like are gaps in every column;
    among texts, "none" and "nil" are not. Fields of a file without a header are called `field 1`,
    `field 2` and so on, from 0.

    Parameters
    ----------
    path : the file.
    separator : field separator; recognised from the first lines by default.
    decimal : decimal mark of numbers, a point or a comma.
    encoding : encoding of text; recognised by default.
    missing_values : further texts and numbers that mark a gap, in any column.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "plants.csv")
    >>> _ = path.write_text("light,height,leaves\\nsun,1.5,3\\nNA,NA,-99\\n")
    >>> read_mixed_table(path, missing_values=["-99"]).rows()
    [('sun', 1.5, 3), (None, None, None)]
    """
    path = check_path(path)
    check_choice("decimal", decimal, DECIMAL_MARKS)
    frame, first_line = _read_table(
        path, ColumnOptions(separator=separator, decimal=decimal, encoding=encoding)
    )
    if first_line is not None:
        frame = frame.select(
            infer_type(series, decimal, missing_values) for series in frame.get_columns()
        )
    frame = frame.select(remove_marks(series, missing_values) for series in frame.get_columns())
    if frame.height == 0 or frame.width == 0:
        raise UnreadableFile(f"{path} holds no rows")
    return frame


class FeatureFile(NamedTuple):
    """The features of a file, and how they were read.

    label: the name of the column with the labels.
    is_guess: whether this name was neither given nor known.
    """

    features: Features
    label: str
    is_guess: bool


def read_feature_file(
    path: str | Path,
    options: ColumnOptions,
    *,
    known_as: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
) -> FeatureFile:
    """Read features as `read_features` does, and note which column was taken for the labels.

    known_as: names of the label column in other files, which are looked for before the usual ones.
    """
    path = check_path(path)
    label = options.asked.get("label")
    frame, first_line = _read_table(path, options)
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no {FEATURES.content}")
    try:
        label_name = choose_label(frame.columns, label, known_as)
        labels = frame[label_name]
        if labels.null_count():
            at = int(labels.is_null().arg_true()[0])
            place = f"entry {at}" if first_line is None else f"line {at + first_line}"
            raise BadFeatures(f"{place}: the label is missing")
        if first_line is not None:
            frame = frame.select(
                parse_ids(series) if series.name == label_name else infer_type(series)
                for series in frame.get_columns()
            )
        features = Features.from_frame(frame, label_name, kinds=kinds)
    except (BadEntries, BadFeatures) as error:
        raise BadFeatures(f"{path}: {error}") from error
    return FeatureFile(features, label_name, label is None and label_name not in known_as)


def _read_table(path: Path, options: ColumnOptions) -> tuple[polars.DataFrame, int | None]:
    """Read all columns, those of delimited text as text; also return the number of its first
    line."""
    table = open_table(path, FEATURES, options)
    frame = table.collect(table.lines)
    if table.separator == "::" and frame[table.names[-1]].str.contains("::", literal=True).any():
        raise UnreadableFile(f"{path} has lines with more columns than line 1")
    if not table.has_names:
        frame = frame.rename({name: f"field {name}" for name in table.names})
    return frame, table.first_line
