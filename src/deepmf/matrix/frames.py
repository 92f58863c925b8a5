"""Conversion between entries and frames of any library (pandas, polars, arrow, ...), through narwhals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadFeatures, MissingDependency
from deepmf.files import import_polars
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.scale import Scale
from deepmf.matrix.text_labels import encode_texts

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl


# Types of integer ids that labels hold as int64.
WHOLE_TYPES = ("Int8", "Int16", "Int32", "UInt8", "UInt16", "UInt32", "UInt64")


class TableForm(NamedTuple):
    """How a matrix is written as a table; it does not affect equality of matrices.

    Parameters
    ----------
    row, column, value
        Names of the fields.
    wide
        Whether there is one line per row instead of one per entry.
    row_type, column_type
        One of `WHOLE_TYPES` for integer ids of another type than int64; otherwise None.
    """

    row: str = "row"
    column: str = "column"
    value: str = "value"
    wide: bool = False
    row_type: str | None = None
    column_type: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the form as JSON content, without types that are None."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @classmethod
    def from_dict(cls, content: Any) -> TableForm | None:
        """Return the form of JSON content; None if the content is wrong."""
        if not isinstance(content, dict):
            return None
        kinds = {"row": str, "column": str, "value": str, "wide": bool}
        types = {name: content[name] for name in content.keys() & {"row_type", "column_type"}}
        named = content.keys() - types.keys() == kinds.keys()
        if not named or not all(isinstance(content[name], kind) for name, kind in kinds.items()):
            return None
        return cls(**content) if all(each in WHOLE_TYPES for each in types.values()) else None

    @property
    def names(self) -> tuple[str, str, str]:
        """Distinct names of row, column and value in a long table."""
        return *self.name_ids_beside([self.value]), self.value

    def has_names_of(self, other: TableForm | None) -> bool:
        """Whether another form has the same names and layout; types of ids may differ."""
        return other is not None and self[:4] == other[:4]

    def name_ids_beside(self, taken: Collection[str]) -> tuple[str, str]:
        """Return names of row and column ids that are not taken by other fields of a table.

        >>> TableForm("user", "area").name_ids_beside(["prediction", "area"])
        ('user', 'column')
        """
        row = "row" if self.row in taken else self.row
        column = "column" if self.column in taken else self.column
        return (row, column) if row != column else ("row", "column")


PLAIN = TableForm()


# Usual names of the three columns, in lower case without separators.
USUAL_NAMES = {
    "row": "row rowid user userid uid customer customerid person respondent sample".split(),
    "column": (
        "column columnid col item itemid iid movie movieid film product productid book bookid isbn question marker "
        "sensor track artist"
    ).split(),
    "value": "value rating ratings score stars level answer response".split(),
}


# Usual names of the labels of features, beside those of rows and of columns.
_USUAL_LABELS = ("id", "label", "key")


_COUNTS = {2: "two", 3: "three"}


class LongEntries(NamedTuple):
    """The three columns of a long frame, and their names."""

    rows: Labelled
    columns: Labelled
    values: npt.NDArray[Any]
    form: TableForm


class WideTable(NamedTuple):
    """A wide frame as an array with NaN for missing entries, and its labels; row_labels: None for 0, 1, 2, ..."""

    array: npt.NDArray[np.float64]
    row_labels: Sequence[Any] | None
    column_labels: list[Any]
    form: TableForm


def choose_columns(names: Sequence[str], asked: Mapping[str, str | int | None]) -> dict[str, str]:
    """Choose a column for each role: as asked for, by a usual name, or the first columns left.

    With more columns than roles, a column with the usual name of a role that is not needed is not used for another one.
    """
    roles = list(asked)
    if len(names) < len(roles):
        shown = ", ".join(map(str, names))
        needed = "is needed" if len(roles) == 1 else f"need at least {_COUNTS[len(roles)]} columns"
        raise BadEntries(f"{join_roles(roles)} {needed}; got {len(names)}: {shown}")
    chosen = {role: _find_column(names, wanted, role) for role, wanted in asked.items() if wanted is not None}
    plain = {_normalise(name): name for name in reversed(names)}
    for role in USUAL_NAMES if len(names) > len(roles) else roles:
        matches = [plain[word] for word in USUAL_NAMES[role] if word in plain and plain[word] not in chosen.values()]
        if role not in chosen and matches:
            chosen[role] = matches[0]
    left = iter(name for name in names if name not in chosen.values())
    chosen = {role: chosen[role] if role in chosen else next(left) for role in roles}
    if len(set(chosen.values())) < len(roles):
        listed = join_roles(roles, article="")
        shown = ", ".join(map(str, chosen.values()))
        raise BadEntries(f"{listed} must be {_COUNTS[len(roles)]} different columns; got {shown}")
    return chosen


def choose_label(names: Sequence[str], label: str | int | None, known_as: Sequence[str] = ()) -> str:
    """Choose the column of labels: as given, by a name known elsewhere, by a usual name, or the first.

    >>> choose_label(["year", "item_id", "title"], None), choose_label(["title", "year"], None)
    ('item_id', 'title')
    """
    if label is not None:
        return _find_column(names, label, "labels")
    plain = {_normalise(name): name for name in reversed(names)}
    usual = (*USUAL_NAMES["row"], *USUAL_NAMES["column"], *_USUAL_LABELS)
    found = [name for name in known_as if name in names] or [plain[word] for word in usual if word in plain]
    return [*found, *names][0]


def is_guess(names: Sequence[str], asked: Mapping[str, str | int | None]) -> bool:
    """Whether a role that was not asked for has none or several columns with a usual name."""
    plain = list(map(_normalise, names))
    return any(
        wanted is None and sum(name in USUAL_NAMES[role] for name in plain) != 1 for role, wanted in asked.items()
    )


def join_roles(roles: Sequence[str], *, article: str = "a ") -> str:
    """Join roles as words.

    >>> join_roles(["row", "column", "value"])
    'a row, a column and a value'
    """
    *before, last = (f"{article}{role}" for role in roles)
    return f"{', '.join(before)} and {last}" if before else last


def has_usual_names(names: Sequence[str], roles: Sequence[str]) -> bool:
    """Whether each role has a column with a usual name."""
    plain = set(map(_normalise, names))
    return all(not plain.isdisjoint(USUAL_NAMES[role]) for role in roles)


def read_long_frame(
    frame: Any, *, row: str | int | None, column: str | int | None, value: str | int | None
) -> LongEntries:
    """Read the row, column and value columns of a long frame."""
    table = _collect(frame)
    chosen = choose_columns(table.columns, {"row": row, "column": column, "value": value})
    values = table.get_column(chosen["value"])
    if not (values.dtype.is_numeric() or str(values.dtype) == "Boolean"):
        raise BadEntries(f"column {chosen['value']!r} holds values of type {values.dtype}; numbers are needed")
    _check_no_null(values, "the value")
    with ThreadPoolExecutor(2) as pool:  # numpy and polars release the interpreter lock
        rows, columns = pool.map(lambda axis: _gather(table.get_column(chosen[axis]), axis=axis), ("row", "column"))
    return LongEntries(
        rows,
        columns,
        _to_numpy(values),
        TableForm(
            str(chosen["row"]),
            str(chosen["column"]),
            str(chosen["value"]),
            row_type=_find_integer_type(table.get_column(chosen["row"])),
            column_type=_find_integer_type(table.get_column(chosen["column"])),
        ),
    )


def read_wide_frame(frame: Any, *, row: str | None) -> WideTable:
    """Read the values and the labels of a wide frame."""
    table = _collect(frame)
    labels, row_type = None, None
    if row is not None:
        ids = table.get_column(_find_column(table.columns, row, "row"))
        labels, row_type = ids.to_list(), _find_integer_type(ids)
        table = table.drop(row)
    elif (index := getattr(frame, "index", None)) is not None:
        labels = index.tolist()
    for name in table.columns:
        dtype = table.get_column(name).dtype
        if not (dtype.is_numeric() or str(dtype) == "Boolean"):
            raise BadEntries(f"column {name!r} holds values of type {dtype}; numbers are needed (or row={name!r})")
    columns = [_to_numpy(table.get_column(name)).astype(np.float64) for name in table.columns]
    array = np.column_stack(columns) if columns else np.empty((len(table), 0))
    return WideTable(array, labels, list(table.columns), TableForm(row or PLAIN.row, wide=True, row_type=row_type))


def read_feature_columns(frame: Any, label: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the labels of a frame of features, and the values of all other columns by name."""
    try:
        index = getattr(frame, "index", None)
        if label is not None and getattr(index, "name", None) == label and label not in frame.columns:
            frame = frame.reset_index()
        table = _collect(frame)
        labels = table.get_column(_find_column(table.columns, label, "labels"))
        _check_no_null(labels, "the label")
    except BadEntries as error:
        raise BadFeatures(f"the frame of features is wrong: {error}") from error
    columns: dict[str, Any] = {}
    for name in table.columns:
        if name == labels.name:
            continue
        series = table.get_column(name)
        plain = series.dtype.is_integer() or series.dtype.is_float()
        plain = plain and not _is_beyond_numpy(series) and not series.null_count()
        columns[name] = series.to_numpy() if plain else series.to_list()
    return labels.to_list(), columns


def build_long_frame(
    row_labels: npt.NDArray[Any],
    column_labels: npt.NDArray[Any],
    row_of: IndexArray,
    column_of: IndexArray,
    values: npt.NDArray[Any],
    scale: Scale,
    form: TableForm,
) -> pl.DataFrame:
    """Return entries as a long polars frame, from labels and the positions of each entry among them."""
    columns = [
        build_label_series(row_labels, form.row_type).gather(row_of),
        build_label_series(column_labels, form.column_type).gather(column_of),
        build_value_series(values, scale),
    ]
    frame: pl.DataFrame = import_polars().DataFrame(
        [series.alias(name) for name, series in zip(form.names, columns, strict=True)]
    )
    return frame


def build_wide_frame(
    row_labels: npt.NDArray[Any],
    column_labels: npt.NDArray[Any],
    array: npt.NDArray[np.float64],
    scale: Scale,
    form: TableForm,
) -> pl.DataFrame:
    """Return an array (rows, columns) as a wide polars frame, with row labels in its first column."""
    names = name_wide_columns(form.row, column_labels)
    columns = [build_value_series(column, scale) for column in array.T]
    rows = build_label_series(row_labels, form.row_type)
    frame: pl.DataFrame = import_polars().DataFrame(
        [series.alias(name) for name, series in zip(names, [rows, *columns], strict=True)]
    )
    return frame


def name_wide_columns(row: str, columns: npt.NDArray[Any]) -> list[str]:
    """Return the column names of a wide table: the name of row ids, then all column labels as text."""
    names = [row, *map(str, columns.tolist())]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadEntries(f"a wide table would have two columns called {twice!r}; write a long table instead")
    return names


def build_label_series(labels: npt.NDArray[Any], whole: str | None = None) -> pl.Series:
    """Return labels as a polars series; labels of a type that polars lacks become text.

    whole: one of `WHOLE_TYPES`, used if it holds all labels.
    """
    polars = import_polars()
    items = labels.tolist()
    dtype = find_whole_type(labels, whole) if items else polars.String
    series: pl.Series = polars.Series(items, dtype=dtype)
    return polars.Series(list(map(str, items))) if series.dtype == polars.Object else series


def find_whole_type(labels: npt.NDArray[Any], whole: str | None) -> Any:
    """Return the polars type of one of `WHOLE_TYPES`; None if later labels do not fit into it."""
    if whole is None or labels.dtype.kind != "i":
        return None
    bounds = np.iinfo(whole.lower())
    inside = labels.size == 0 or (bounds.min <= int(labels.min()) and int(labels.max()) <= bounds.max)
    return getattr(import_polars(), whole) if inside else None


def build_value_series(values: npt.NDArray[Any], scale: Scale) -> pl.Series:
    """Return values as a polars series with null for NaN; integers if all levels of the scale are integers."""
    polars = import_polars()
    series: pl.Series = polars.Series(values.astype(np.float64)).fill_nan(None)
    return series.cast(polars.Int64) if scale.is_whole else series


def _collect(frame: Any) -> nw.DataFrame[Any]:
    try:
        import narwhals as nw
    except ImportError as error:
        raise MissingDependency("frames need narwhals: pip install narwhals") from error
    try:
        table = nw.from_native(frame)
        names = table.collect_schema().names()
    except TypeError as error:
        raise BadEntries(f"a frame (pandas, polars, arrow, ...) is needed; got {type(frame).__name__}") from error
    except nw.exceptions.DuplicateError as error:
        raise BadEntries("the frame has columns of the same name; rename or drop them") from error
    if len(set(names)) < len(names):
        raise BadEntries("the frame has columns of the same name; rename or drop them")
    return table.collect() if isinstance(table, nw.LazyFrame) else table


def _find_column(names: Sequence[str], wanted: str | int, role: str) -> str:
    if isinstance(wanted, int):
        if not 0 <= wanted < len(names):
            raise BadEntries(f"{role} column {wanted} does not exist; there are columns 0 to {len(names) - 1}")
        return names[wanted]
    if wanted not in names:
        raise BadEntries(f"there is no column {wanted!r} for the {role}; there are {', '.join(map(repr, names))}")
    return wanted


def _normalise(name: object) -> str:
    return str(name).lower().replace("_", "").replace(" ", "")


def _check_no_null(series: nw.Series[Any], what: str) -> None:
    if series.null_count():
        position = int(series.is_null().arg_true()[0])
        raise BadEntries(f"{what} is missing", position=position)


def _gather(series: nw.Series[Any], *, axis: str) -> Labelled:
    _check_no_null(series, f"the {axis} id")
    if series.implementation.is_polars() and str(series.dtype) == "String":
        return _gather_texts(series, axis=axis)
    if series.dtype.is_integer() and not _is_beyond_numpy(series):
        return Labels.gather(series.to_numpy(), axis=axis)
    return Labels.gather(series.to_list(), axis=axis)


def _find_integer_type(series: nw.Series[Any]) -> str | None:
    """Return the type of integer ids if it is one of `WHOLE_TYPES`."""
    name = str(series.dtype)
    return name if name in WHOLE_TYPES else None


def _to_numpy(series: nw.Series[Any]) -> npt.NDArray[Any]:
    import narwhals as nw

    return (series.cast(nw.Float64) if _is_beyond_numpy(series) else series).to_numpy()


def _is_beyond_numpy(series: nw.Series[Any]) -> bool:
    """Whether a column holds 128-bit integers, which numpy lacks."""
    return str(series.dtype) in ("Int128", "UInt128")


def _gather_texts(series: nw.Series[Any], *, axis: str) -> Labelled:
    """Gather polars strings without a Python string for each entry."""
    distinct, positions = encode_texts(series.to_native())
    return Labelled(Labels(distinct.to_list(), axis=axis), positions)
