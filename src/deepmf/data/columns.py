"""Which columns of a file hold rows, columns and values, and reading them: delimited text, Parquet, JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deepmf.data.delimited import (
    SAMPLE_LINES,
    are_canonical,
    drop_blank_end,
    is_number,
    is_whole,
    parse_ids,
    parse_numbers,
    parse_time_texts,
)
from deepmf.data.excel import read_excel
from deepmf.data.layout import (
    EITHER,
    FILLER,
    INTERACTIONS,
    ColumnOptions,
    LineKind,
    TextLayout,
    look_at,
    recognise_layout,
    refuse_wide,
)
from deepmf.data.source import (
    check_expansion,
    check_path,
    prepare_path,
    prepare_text,
    translate_polars_errors,
)
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.files import import_polars
from deepmf.matrix.column_roles import (
    COUNT,
    DETECT,
    Content,
    assign_roles,
    describe_roles,
    detect_time,
    find_extra_columns,
    find_roles,
    has_index,
    is_guess,
    is_uncertain,
    pin_column,
)

if TYPE_CHECKING:
    import polars as pl

_PARQUET = (".parquet", ".pq")
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_EXCEL = (".xlsx", ".xlsm")
_CELL_BYTES = 8
_BEGINNING = 1024  # bytes in which a JSON array shows


@dataclass(frozen=True)
class ColumnRoles:
    """Which column of a file holds which role.

    Parameters
    ----------
    roles : such as row, column, value.
    names : the columns by role, under their names in the file; under the names of the roles where it has none.
    places : the positions of the columns in the file.
    has_names : whether the file names its columns.
    is_guess : whether some column was neither asked for nor the only one under a usual name.
    is_uncertain : whether a guess among named columns may well be wrong.
    is_detected : whether the file may have held values, and was recognised as interactions.
    is_time_detected : whether a column was recognised as the times of the entries.
    first_line : the number of the first line after the header, counted from 1; None where a file has no lines.
    """

    roles: tuple[str, ...]
    names: tuple[str, ...]
    places: tuple[int, ...]
    has_names: bool
    is_guess: bool
    is_uncertain: bool
    is_detected: bool
    is_time_detected: bool
    first_line: int | None

    @property
    def are_interactions(self) -> bool:
        """Whether no column holds values."""
        return "value" not in self.roles

    @property
    def value_name(self) -> str:
        """The name of the values or of the counts."""
        return self.names[2] if self.n_needed > 2 else COUNT

    @property
    def n_needed(self) -> int:
        """The number of fields that no line may lack: the row, the column, and the value or count if there is one."""
        return sum(role not in ("time", "weight") for role in self.roles)

    def find(self, role: str) -> int | None:
        """Return the place of a role among those that are read; None where the file lacks it."""
        return self.roles.index(role) if role in self.roles else None

    def describe(self) -> str:
        """Return in words which column is taken for which role."""
        words = describe_roles(dict(list(self._shown.items())[: self.n_needed]))
        return f"interactions without values: {words}" if self.is_detected else words

    @property
    def _shown(self) -> dict[str, str]:
        """The columns in words, by role."""
        names = map(repr, self.names) if self.has_names else (f"field {place}" for place in self.places)
        return dict(zip(self.roles, names, strict=True))

    @property
    def time_remark(self) -> str | None:
        """In words, which column was recognised as the times; None where none was."""
        return f"{self._shown['time']} is taken as the time" if self.is_time_detected else None

    @property
    def remark(self) -> str | None:
        """What a user should know about the choice, in words; None where nothing was guessed or detected."""
        return self.describe() if self.is_guess or self.is_detected else None

    def locate(self, at: int) -> str:
        """Return in words where a line of the frame stands in the file."""
        return f"entry {at}" if self.first_line is None else f"line {at + self.first_line}"


class ReadColumns(NamedTuple):
    """The columns of some roles, in this order, and how they were chosen."""

    frame: pl.DataFrame
    choice: ColumnRoles


class ColumnScan(NamedTuple):
    """The columns of some roles as a lazy frame; columns of a text file are all text.

    are_typed: for each column, whether the file decides the type of its ids. In text, unquoted digits may be numbers.
    """

    lazy: pl.LazyFrame
    choice: ColumnRoles
    is_text: bool
    are_typed: tuple[bool, ...]


def read_columns(path: str | Path, kind: LineKind, options: ColumnOptions) -> ReadColumns:
    """Read the columns that lines of a kind need.

    Those that are not asked for are recognised by usual names, and where there are none the first columns are taken.
    """
    path = check_path(path)
    if is_typed_file(path):
        with translate_polars_errors(path, name_format(path)):
            scan = _scan_typed_columns(path, kind, options)
            read = ReadColumns(scan.lazy.collect(), scan.choice)
    else:
        layout = recognise_layout(path, kind, options)
        choice = _choose_from_text(layout, kind, options)
        chosen = [layout.names[place] for place in choice.places]
        roles = dict(zip(choice.roles, chosen, strict=True))
        frame = _read_entries(layout, roles, options.decimal) if kind.defines_ids else _read_texts(layout, chosen)
        read = ReadColumns(frame.rename(dict(zip(chosen, choice.names, strict=True))), choice)
    if read.frame.height == 0:
        raise UnreadableFile(f"{path} holds no {kind.content}")
    return read


def scan_columns(path: Path, kind: LineKind, options: ColumnOptions) -> ColumnScan:
    """Choose columns as `read_columns` does, for a file that is read some lines at a time."""
    if is_typed_file(path):
        with translate_polars_errors(path, name_format(path)):
            return _scan_typed_columns(path, kind, options)
    layout = recognise_layout(path, kind, options)
    choice = _choose_from_text(layout, kind, options)
    chosen = [layout.names[place] for place in choice.places]
    lazy = layout.scan().select(chosen).rename(dict(zip(chosen, choice.names, strict=True)))
    return ColumnScan(lazy, choice, is_text=True, are_typed=tuple(name in layout.quoted for name in chosen))


def is_typed_file(path: Path) -> bool:
    """Whether a file carries the types of its columns: Parquet, JSON lines, Excel."""
    return path.suffix.lower() in (*_PARQUET, *_JSON_LINES, *_EXCEL)


def name_format(path: Path) -> str:
    """Return the name of a typed file's format."""
    ending = path.suffix.lower()
    return "JSON lines" if ending in _JSON_LINES else "Excel" if ending in _EXCEL else "Parquet"


def read_typed_file(path: Path) -> pl.DataFrame:
    """Read all columns of a typed file."""
    with translate_polars_errors(path, name_format(path)):
        lazy = _scan_typed_file(path)
        _check_n_lines(path, lazy, len(lazy.collect_schema()))
        return lazy.collect()


def _scan_typed_columns(path: Path, kind: LineKind, options: ColumnOptions) -> ColumnScan:
    lazy = _scan_typed_file(path)
    names = lazy.collect_schema().names()
    head = lazy.head(SAMPLE_LINES).collect().rows()
    sample = [
        ["" if cell is None else str(int(cell) if isinstance(cell, bool) else cell) for cell in line] for line in head
    ]
    if _may_be_wide(kind, options):
        refuse_wide(path, names, sample)
    choice = _choose(path, kind, names, options, look_at(names, sample, has_names=True), first_line=None)
    _check_n_lines(path, lazy, len(choice.names))
    return ColumnScan(lazy.select(choice.names), choice, is_text=False, are_typed=(True,) * len(choice.names))


def _scan_typed_file(path: Path) -> pl.LazyFrame:
    polars = import_polars()
    lazy: pl.LazyFrame
    if path.suffix.lower() in _EXCEL:
        lazy = read_excel(path).lazy()
    elif path.suffix.lower() in _JSON_LINES:
        source = prepare_text(path)
        with path.open("rb") as file:
            if file.read(_BEGINNING).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
                raise UnreadableFile(
                    f"{path} holds a JSON array; JSON lines are read: an object in each line, no commas"
                )
        if isinstance(source, Path) and any(sign in str(source) for sign in "*?["):
            source = path.read_bytes()  # polars would take the name for a pattern
        # Types come from all lines: a first null, or a first whole number, says nothing of the lines that follow.
        lazy = polars.scan_ndjson(source, infer_schema_length=None)
    else:
        # Neither the name of the file nor that of its folder is a pattern or describes the content.
        lazy = polars.scan_parquet(prepare_path(path), glob=False, hive_partitioning=False)
    return lazy


def _check_n_lines(path: Path, lazy: pl.LazyFrame, n_columns: int) -> None:
    """Refuse a Parquet file of far more lines than its size suggests."""
    if path.suffix.lower() not in _PARQUET:
        return
    # Runs of one value take no room in the file: a few bytes may stand for 10^12 lines.
    n_lines = lazy.select(import_polars().len()).collect().item()
    check_expansion(path, n_lines * n_columns * _CELL_BYTES)


def _choose_from_text(layout: TextLayout, kind: LineKind, options: ColumnOptions) -> ColumnRoles:
    path = layout.file.path
    if _may_be_wide(kind, options):
        refuse_wide(path, layout.names if layout.has_header else layout.sample[0], layout.sample)
    content = look_at(layout.names, layout.sample, has_names=layout.has_header, decimal=options.decimal)
    return _choose(path, kind, layout.names, options, content, first_line=layout.first_line)


def _may_be_wide(kind: LineKind, options: ColumnOptions) -> bool:
    others = {role: each for role, each in options.asked.items() if role != "row"}
    return kind.defines_ids and all(each is None for each in replace(options, asked=others).wanted_columns)


def _choose(
    path: Path,
    kind: LineKind,
    names: list[str],
    options: ColumnOptions,
    content: Content,
    *,
    first_line: int | None,
) -> ColumnRoles:
    asked, time, usual_count = options.asked, options.time, options.usual_count
    try:
        named = find_extra_columns(names, time=time, weight=asked.get("weight"))
    except BadEntries as error:
        raise error.locate(str(path)) from error
    left = [name for name in names if name not in named.values()]
    if has_index(names) and not {"", 0} & set(asked.values()):
        left.remove(names[0])
    asked = {role: pin_column(names, each) for role, each in asked.items()}
    wanted = {role: asked.get(role) for role in kind.roles}
    if kind in (EITHER, INTERACTIONS):
        count = asked.get("count")
        if count is None and kind is INTERACTIONS and usual_count in left:
            count = usual_count
        shown = left if content.has_names else ["" for _ in left]
        value = DETECT if kind is EITHER else None
        wanted = find_roles(shown, row=asked.get("row"), column=asked.get("column"), value=value, count=count)
    try:
        chosen = list(assign_roles(left, wanted, content).values())
    except BadEntries as error:
        raise error.locate(str(path)) from error
    detected = detect_time(names, [*chosen, *named.values()], content) if time is DETECT else {}
    named |= detected
    extra = [role for role in ("time", "weight") if role in named]
    chosen += [named[role] for role in extra]
    roles = (*wanted, *extra)
    return ColumnRoles(
        roles=roles,
        names=tuple(chosen) if content.has_names else roles,
        places=tuple(map(names.index, chosen)),
        has_names=content.has_names,
        is_guess=is_guess(left, wanted),
        is_uncertain=content.has_names and is_uncertain(left, wanted),
        is_detected=kind is EITHER and "value" not in roles,
        is_time_detected=bool(detected),
        first_line=first_line,
    )


def _read_texts(layout: TextLayout, chosen: Sequence[str]) -> pl.DataFrame:
    """Read columns as text, without blank lines."""
    polars = import_polars()
    file, n_skipped = layout.file, layout.first_line - 1
    if layout.separator == "::":
        frame = layout.split_colons(ignore_more=True).select(chosen)
    else:
        with translate_polars_errors(file.path, "text"):
            lazy = file.scan(layout.names, layout.separator, n_skipped=n_skipped, ignore_more=True)
            frame = lazy.select(chosen).collect()
    return frame.filter(~polars.all_horizontal(polars.all().is_null()))


def _read_entries(layout: TextLayout, roles: Mapping[str, str], decimal: str) -> pl.DataFrame:
    """Read the columns of some roles with types that suit all lines; a missing field is null."""
    chosen, ids = list(roles.values()), [roles["row"], roles["column"]]
    numbers = [name for role, name in roles.items() if role in ("value", "count", "weight")]
    polars = import_polars()
    with translate_polars_errors(layout.file.path, "text"):
        if decimal == "." and not any(_look_float(layout, name) for name in ids):
            # Where a field breaks the promise of the first lines, text is read below, to find out which.
            with suppress(polars.exceptions.PolarsError):
                whole = [name for name in ids if _looks_whole(layout, name)]
                # The lengths of ids reveal texts such as 007, which an int would not keep.
                lengths = {name: f"{FILLER}{name}" for name in whole}
                typed = layout.scan(dict.fromkeys(numbers, polars.Float64)).select(
                    *(polars.col(name).cast(polars.Int64) if name in whole else polars.col(name) for name in chosen),
                    *(polars.col(name).str.len_bytes().sum().alias(length) for name, length in lengths.items()),
                )
                frame = typed.collect()
                if frame.height == 0 or all(are_canonical(frame[name], frame[lengths[name]][0]) for name in whole):
                    return _parse_time_column(drop_blank_end(frame.select(chosen)), roles)
        texts = drop_blank_end(layout.scan().select(chosen).collect())
    return _convert_entries(layout, texts, roles, decimal)


def _parse_time_column(frame: pl.DataFrame, roles: Mapping[str, str]) -> pl.DataFrame:
    return frame.with_columns(parse_time_texts(frame[roles["time"]])) if "time" in roles else frame


def _look_float(layout: TextLayout, name: str) -> bool:
    """Whether ids are whole numbers that were written as floats, such as 17850.0."""
    at = layout.names.index(name)
    filled = [fields[at] for fields in layout.sample if at < len(fields) and fields[at]]
    return bool(filled) and all(is_number(text) and text.endswith(".0") for text in filled)


def _looks_whole(layout: TextLayout, name: str) -> bool:
    at = layout.names.index(name)
    if name in layout.quoted:
        return False
    return all(is_whole(fields[at]) for fields in layout.sample if at < len(fields))


def _convert_entries(layout: TextLayout, texts: pl.DataFrame, roles: Mapping[str, str], decimal: str) -> pl.DataFrame:
    """Turn text columns into ids and numbers; the first value that is not a number is an error."""
    columns = []
    for role, name in roles.items():
        try:
            if role in ("value", "count", "weight"):
                columns.append(parse_numbers(texts[name], decimal=decimal))
            else:
                columns.append(texts[name] if role == "time" or name in layout.quoted else parse_ids(texts[name]))
        except BadEntries as error:
            assert error.position is not None
            place = f"line {error.position + layout.first_line}, column {name!r}"
            raise error.locate(f"{layout.file.path}, {place}") from error
    return _parse_time_column(import_polars().DataFrame(columns), roles)
