"""The columns of a file before its lines are read: their names, the first lines, and a lazy scan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from deepmf.data.delimited import SAMPLE_LINES, drop_blank_end
from deepmf.data.excel import CELL_BYTES, read_excel
from deepmf.data.source import (
    COMPRESSED_ENDINGS,
    check_expansion,
    prepare_path,
    prepare_text,
    translate_polars_errors,
)
from deepmf.errors import UnreadableFile
from deepmf.files import polars

_FORMATS = {".parquet": "Parquet", ".pq": "Parquet", ".xlsx": "Excel", ".xlsm": "Excel"}
_JSON_LINES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class FileTable:
    """The columns of a file: their names, the first lines as text, and a lazy scan of all lines.

    Parameters
    ----------
    path : the file.
    names : the names of the columns; their positions where the file does not name them.
    has_names : whether the file names its columns.
    head : the first lines, in the types that they show.
    lines : all columns; fields of delimited text are text, without the spaces around them.
    first_line : the number of the first line after the header, counted from 1; None where the file
        carries the types of its columns, and has no lines.
    quoted : columns of text in quotation marks beside others without: digits there are text.
    separator : what separates the fields of text.
    types : the types in a header of RecBole, such as token and float, by name.
    """

    path: Path
    names: list[str]
    has_names: bool
    head: polars.DataFrame
    lines: polars.LazyFrame
    first_line: int | None = None
    quoted: frozenset[str] = frozenset()
    separator: str | None = None
    types: Mapping[str, str] | None = None

    @property
    def is_text(self) -> bool:
        """Whether the file is text, whose fields have no types."""
        return self.first_line is not None

    def locate(self, position: int | None) -> str:
        """Return in words where a line of the frame stands in the file."""
        assert position is not None
        if self.first_line is None:
            return f"entry {position}"
        return f"line {position + self.first_line}"

    def collect(self, selected: polars.LazyFrame) -> polars.DataFrame:
        """Read all lines of this table, or of the columns that are selected from it."""
        file_format = name_format(self.path)
        with translate_polars_errors(self.path, file_format):
            if file_format == "Parquet":
                # Runs of one value take no room: a few bytes may stand for 10^12 lines.
                n_lines = self.lines.select(polars.len()).collect().item()
                n_cells = n_lines * len(selected.collect_schema())
                check_expansion(self.path, n_cells * CELL_BYTES)
            frame = selected.collect(engine="streaming")
        return drop_blank_end(frame) if self.is_text else frame


def is_typed_file(path: Path) -> bool:
    """Whether a file carries the types of its columns: Parquet, JSON lines, Excel."""
    return name_format(path) != "text"


def name_format(path: Path) -> str:
    """Return the name of a file's format, for messages."""
    *_, inner, ending = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    if ending in _JSON_LINES or (inner in _JSON_LINES and ending in COMPRESSED_ENDINGS):
        return "JSON lines"
    return _FORMATS.get(ending, "text")


def open_typed_table(path: Path) -> FileTable:
    """Open a file that carries the types of its columns."""
    file_format = name_format(path)
    with translate_polars_errors(path, file_format):
        if file_format == "Excel":
            lines = read_excel(path).lazy()
        elif file_format == "JSON lines":
            source = prepare_text(path)
            if isinstance(source, Path) and any(sign in str(source) for sign in "*?["):
                source = path.read_bytes()  # polars would take the name for a pattern
            _refuse_json_array(path, source)
            # Types come from all lines: a first null, or a first whole number, says nothing of
            # the lines that follow.
            lines = polars.scan_ndjson(source, infer_schema_length=None)
        else:
            # Neither the name of the file nor that of its folder is a pattern or describes the
            # content.
            lines = polars.scan_parquet(prepare_path(path), glob=False, hive_partitioning=False)
        head = lines.head(SAMPLE_LINES).collect()
    return FileTable(path, head.columns, True, head, lines)


def _refuse_json_array(path: Path, source: Path | bytes) -> None:
    with source.open("rb") if isinstance(source, Path) else BytesIO(source) as file:
        beginning = file.read(1024)
    if beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        raise UnreadableFile(
            f"{path} holds a JSON array; JSON lines are read: an object in each line, no commas"
        )
