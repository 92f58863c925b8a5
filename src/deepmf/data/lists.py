"""Lists: text with a line for each row, `row column column ...`, as LightGCN publishes its data
sets."""

from __future__ import annotations

import re
from pathlib import Path

from deepmf.data.delimited import SAMPLE_LINES, DelimitedFile, check_separator, parse_ids
from deepmf.errors import UnreadableFile
from deepmf.files import polars

LISTS = "each line is a row and a list of its columns"  # what is guessed of a file

_LIST = re.compile(rb"(?:0|[1-9][0-9]*)(?:[ \t](?:0|[1-9][0-9]*))*[ \t]?")


def are_lists(path: Path) -> bool:
    """Whether a plain text can only be lists: lines of different lengths, of row ids and columns
    that do not repeat.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "train.txt")
    >>> path.write_text("0 7 3 5 4 1\\n1 3\\n2 5 7\\n") and are_lists(path)
    True
    >>> path.write_text("0 7 3\\n1 3 5\\n2 5 4\\n") and are_lists(path)
    False
    """
    with path.open("rb") as file:
        head = file.read(1 << 16)
    *lines, last = head.split(b"\n")[: SAMPLE_LINES + 1]
    lines = [
        line.removesuffix(b"\r")
        for line in ([*lines, last] if len(head) < 1 << 16 and last else lines)
    ]
    if len(lines) < 2 or not all(map(_LIST.fullmatch, lines)):
        return False
    rows = [line.split() for line in lines]
    lengths = {len(row) for row in rows}
    # an entry with a value, a time and a weight has fewer than five fields
    if len(lengths) == 1 or max(lengths) < 5 or len({row[0] for row in rows}) < len(rows):
        return False
    return all(len(set(row[1:])) == len(row) - 1 for row in rows)


def read_lists(
    path: Path, *, separator: str | None = None, encoding: str | None = None
) -> polars.DataFrame:
    """Read the row and the column of each entry, in the order of the file; a row without columns
    has no entry.

    Fields are separated by tabs if the first line has one, otherwise by spaces. Empty fields are
    left out.
    """
    file = DelimitedFile(path, encoding)
    if separator is None:
        first = next(filter(None, file.read_head()))
        separator = "\t" if "\t" in first else " "
    check_separator(separator)
    lines = polars.Series(file.read_lines(), dtype=polars.String)
    fields = lines.str.split(separator).list.eval(polars.element().str.strip_chars())
    lists = polars.DataFrame({"row": fields.list.first(), "column": fields.list.slice(1)})
    entries = lists.explode("column").filter(polars.col("column") != "")
    if entries.height == 0 or (entries["row"] == "").any():
        raise UnreadableFile(
            f"{path} holds no lists, or a line without a row; a line is a row and its columns, "
            f"separated by {separator!r}"
        )
    return polars.DataFrame(list(map(parse_ids, entries.get_columns())))
