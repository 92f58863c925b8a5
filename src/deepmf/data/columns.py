"""Which columns of a file hold rows, columns and values, and reading them: delimited text, Parquet,
JSON lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deepmf.data.delimited import SAMPLE_LINES, drop_blank_end, parse_numbers, parse_time_texts
from deepmf.data.excel import CELL_BYTES, read_excel
from deepmf.data.layout import (
    EITHER,
    INTERACTIONS,
    ColumnOptions,
    LineKind,
    look_at,
    recognise_layout,
    refuse_wide,
)
from deepmf.data.source import (
    check_expansion,
    locate_errors,
    prepare_path,
    prepare_text,
    translate_polars_errors,
)
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.files import check_path, import_polars
from deepmf.matrix.column_roles import (
    Content,
    assign_roles,
    describe_roles,
    detect_time,
    find_extra_columns,
    find_roles,
    is_guess,
    is_uncertain,
    pin_column,
)
from deepmf.matrix.table_form import DETECT

if TYPE_CHECKING:
    import polars as pl

_FORMATS = {".parquet": "Parquet", ".pq": "Parquet", ".xlsx": "Excel", ".xlsm": "Excel"}
_FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "JSON lines")
_BEGINNING = 1024  # bytes in which a JSON array shows


@dataclass(frozen=True)
class ColumnRoles:
    """Which column of a file holds which role.

    Parameters
    ----------
    columns : the name of each column in the file by role, such as row, column, value; its position
        without names.
    has_names : whether the file names its columns.
    remark : in words, which columns were taken for which role; None where nothing was guessed or
        detected.
    time_remark : in words, which column was recognised as the times; None where none was.
    is_uncertain : whether a guess among named columns may well be wrong.
    first_line : the number of the first line after the header, counted from 1; None where a file
        has no lines.
    typed : roles whose ids have the type that the file says; in text, unquoted digits may be
        numbers.
    """

    columns: dict[str, str]
    has_names: bool
    remark: str | None
    time_remark: str | None
    is_uncertain: bool
    first_line: int | None
    typed: frozenset[str]

    @property
    def names(self) -> dict[str, str]:
        """The names of the columns as they are read: without names in the file, those of the
        roles."""
        return self.columns if self.has_names else {role: role for role in self.columns}

    @property
    def n_needed(self) -> int:
        """The number of fields that no line may lack: the row, the column, and the value or count
        if there is one."""
        return sum(role not in ("time", "weight") for role in self.columns)

    def locate(self, at: int) -> str:
        """Return in words where a line of the frame stands in the file."""
        return f"entry {at}" if self.first_line is None else f"line {at + self.first_line}"


class ReadColumns(NamedTuple):
    """The columns of some roles, in this order, and how they were chosen."""

    frame: pl.DataFrame
    choice: ColumnRoles


def read_columns(path: str | Path, kind: LineKind, options: ColumnOptions) -> ReadColumns:
    """Read the columns that lines of a kind need.

    Those that are not asked for are recognised by usual names, and where there are none the first
    columns are taken. Where a file decides the type of its ids, texts of rows and columns become
    categories, in 4 bytes a line.
    """
    path = check_path(path)
    if is_typed_file(path):
        with translate_polars_errors(path, name_format(path)):
            lazy, choice = _scan_typed_columns(path, kind, options)
    else:
        lazy, choice = _scan_text_columns(path, kind, options)
    with translate_polars_errors(path, name_format(path)):
        frame = (_encode_ids(lazy) if kind.defines_ids else lazy).collect(engine="streaming")
    # which does not say whether digits are numbers or texts
    is_text = choice.first_line is not None
    if is_text and kind.defines_ids:
        frame = _convert_numbers(path, drop_blank_end(frame), choice, options.decimal)
    elif is_text:
        frame = frame.filter(~import_polars().all_horizontal(import_polars().all().is_null()))
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no {kind.content}")
    return ReadColumns(frame, choice)


def _encode_ids(lazy: pl.LazyFrame) -> pl.LazyFrame:
    """Turn the texts of the first two columns, the rows and the columns, into categories."""
    polars = import_polars()
    texts = (polars.String, polars.Categorical, polars.Enum)
    names = [name for name, kind in list(lazy.collect_schema().items())[:2] if kind in texts]
    return lazy.with_columns(
        polars.col(name).cast(polars.String).cast(polars.Categorical(polars.Categories.random()))
        for name in names
    )


def _convert_numbers(
    path: Path, frame: pl.DataFrame, choice: ColumnRoles, decimal: str
) -> pl.DataFrame:
    """Turn texts of values, counts, weights and times into numbers; the first that is none is an
    error."""
    columns = frame.get_columns()
    for at, (role, name) in enumerate(choice.names.items()):
        try:
            if role in ("value", "count", "weight"):
                columns[at] = parse_numbers(columns[at], decimal=decimal)
            elif role == "time":
                columns[at] = parse_time_texts(columns[at])
        except BadEntries as error:
            assert error.position is not None
            raise error.locate(
                f"{path}, {choice.locate(error.position)}, column {name!r}"
            ) from error
    converted: pl.DataFrame = import_polars().DataFrame(columns)
    return converted


def _scan_text_columns(
    path: Path, kind: LineKind, options: ColumnOptions
) -> tuple[pl.LazyFrame, ColumnRoles]:
    layout = recognise_layout(path, kind, options)
    if _may_be_wide(kind, options):
        refuse_wide(path, layout.names if layout.has_header else layout.sample[0], layout.sample)
    content = look_at(
        layout.names, layout.sample, has_names=layout.has_header, decimal=options.decimal
    )
    with locate_errors(lambda _: str(path)):
        choice = _choose(kind, layout.names, options, content, first_line=layout.first_line)
    lazy = layout.scan(ignore_more=not kind.defines_ids).select(choice.columns.values())
    lazy = lazy.rename({choice.columns[role]: name for role, name in choice.names.items()})
    typed = frozenset(role for role, name in choice.columns.items() if name in layout.quoted)
    return lazy, replace(choice, typed=typed)


def is_typed_file(path: Path) -> bool:
    """Whether a file carries the types of its columns: Parquet, JSON lines, Excel."""
    return path.suffix.lower() in _FORMATS


def name_format(path: Path) -> str:
    """Return the name of a file's format, for messages."""
    return _FORMATS.get(path.suffix.lower(), "text")


def read_typed_file(path: Path) -> pl.DataFrame:
    """Read all columns of a typed file."""
    with translate_polars_errors(path, name_format(path)):
        lazy = _scan_typed_file(path)
        _check_n_lines(path, lazy, len(lazy.collect_schema()))
        return lazy.collect()


def _scan_typed_columns(
    path: Path, kind: LineKind, options: ColumnOptions
) -> tuple[pl.LazyFrame, ColumnRoles]:
    lazy = _scan_typed_file(path)
    names = lazy.collect_schema().names()
    head = lazy.head(SAMPLE_LINES).collect().rows()
    sample = [
        [
            "" if cell is None else str(int(cell) if isinstance(cell, bool) else cell)
            for cell in line
        ]
        for line in head
    ]
    if _may_be_wide(kind, options):
        refuse_wide(path, names, sample)
    with locate_errors(lambda _: str(path)):
        choice = _choose(
            kind, names, options, look_at(names, sample, has_names=True), first_line=None
        )
    _check_n_lines(path, lazy, len(choice.columns))
    return lazy.select(choice.columns.values()), choice


def _scan_typed_file(path: Path) -> pl.LazyFrame:
    polars = import_polars()
    lazy: pl.LazyFrame
    if name_format(path) == "Excel":
        lazy = read_excel(path).lazy()
    elif name_format(path) == "JSON lines":
        source = prepare_text(path)
        with path.open("rb") as file:
            if file.read(_BEGINNING).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
                raise UnreadableFile(
                    f"{path} holds a JSON array; JSON lines are read: an object in each line, no commas"
                )
        if isinstance(source, Path) and any(sign in str(source) for sign in "*?["):
            source = path.read_bytes()  # polars would take the name for a pattern
        # Types come from all lines: a first null, or a first whole number, says nothing of the
        # lines that follow.
        lazy = polars.scan_ndjson(source, infer_schema_length=None)
    else:
        # Neither the name of the file nor that of its folder is a pattern or describes the content.
        lazy = polars.scan_parquet(prepare_path(path), glob=False, hive_partitioning=False)
    return lazy


def _check_n_lines(path: Path, lazy: pl.LazyFrame, n_columns: int) -> None:
    """Refuse a Parquet file of far more lines than its size suggests."""
    if name_format(path) != "Parquet":
        return
    # Runs of one value take no room in the file: a few bytes may stand for 10^12 lines.
    n_lines = lazy.select(import_polars().len()).collect().item()
    check_expansion(path, n_lines * n_columns * CELL_BYTES)


def _may_be_wide(kind: LineKind, options: ColumnOptions) -> bool:
    return kind.defines_ids and all(
        each is None for role, each in options.wanted.items() if role != "row"
    )


def _choose(
    kind: LineKind,
    names: list[str],
    options: ColumnOptions,
    content: Content,
    *,
    first_line: int | None,
) -> ColumnRoles:
    asked, time, usual_count = options.asked, options.time, options.usual_count
    named = find_extra_columns(names, time=time, weight=asked.get("weight"))
    left = [name for name in names if name not in named.values()]
    asked = {role: pin_column(names, each) for role, each in asked.items()}
    wanted = {role: asked.get(role) for role in kind.roles}
    if kind in (EITHER, INTERACTIONS):
        if asked.get("count") is None and kind is INTERACTIONS and usual_count in left:
            asked["count"] = usual_count
        known = left if content.has_names else ["" for _ in left]
        wanted = find_roles(known, asked, value=DETECT if kind is EITHER else None)
    columns = assign_roles(left, wanted, content)
    detected = (
        detect_time(names, [*columns.values(), *named.values()], content) if time is DETECT else {}
    )
    named |= detected
    columns |= {role: named[role] for role in ("time", "weight") if role in named}
    words = {
        role: repr(name) if content.has_names else f"field {name}" for role, name in columns.items()
    }
    remark: str | None = describe_roles({role: words[role] for role in wanted})
    if kind is EITHER and "value" not in wanted:
        remark = f"interactions without values: {remark}"
    elif not is_guess(left, wanted):
        remark = None
    return ColumnRoles(
        columns=columns,
        has_names=content.has_names,
        remark=remark,
        time_remark=f"{words['time']} is taken as the time" if detected else None,
        is_uncertain=content.has_names and is_uncertain(left, wanted),
        first_line=first_line,
        typed=frozenset(columns if first_line is None else ()),
    )
