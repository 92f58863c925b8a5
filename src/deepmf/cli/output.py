"""What commands put out: tables and JSON on standard output, frames in files by their ending."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from deepmf.errors import BadSetting

if TYPE_CHECKING:
    import polars as pl

STANDARD = "-"  # standard input or output

_WRITERS: dict[str, Callable[[Any, Any], Any]] = {
    ".csv": lambda frame, file: frame.write_csv(file),
    ".tsv": lambda frame, file: frame.write_csv(file, separator="\t"),
    ".parquet": lambda frame, file: frame.write_parquet(file),
    ".jsonl": lambda frame, file: frame.write_ndjson(file),
}


def show_json(content: dict[str, Any]) -> None:
    """Print one JSON object; numbers that JSON does not have become null."""
    typer.echo(json.dumps(_plain(content), ensure_ascii=False, allow_nan=False))


def show_table(names: Sequence[str], lines: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a table: text to the left, numbers to the right with four digits, nothing where there is none."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    cells = [list(line) for line in lines]
    table = Table()
    for at, name in enumerate(names):
        is_text = all(isinstance(line[at], str) for line in cells)
        table.add_column(escape(name), justify="left" if is_text else "right", overflow="fold")
    for line in cells:
        table.add_row(*(escape(_shown(cell)) for cell in line))
    console = Console()
    if not console.is_terminal:
        console.width = 120  # a file or a pipe has no width of its own
    if title is not None:
        console.print(title, style="bold", markup=False, highlight=False)  # above: the table may be narrower
    console.print(table)


def check_writable(path: Path) -> None:
    """Raise now what writing to this path would raise after the work is done; nothing is left behind."""
    from deepmf.storage.atomic import write_atomically

    def try_out(temporary: Path) -> None:
        temporary.touch()
        raise _TriedOut

    with suppress(_TriedOut):
        write_atomically(path, try_out)


def check_frame_target(target: str) -> None:
    """Refuse a file whose ending says no format, or that cannot be written."""
    if target == STANDARD:
        return
    if Path(target).suffix not in _WRITERS:
        raise BadSetting(f"the name of the output must end in {', '.join(_WRITERS)}; got {target!r}")
    check_writable(Path(target))


def write_frame(frame: pl.DataFrame, target: str, *, standard_format: str = ".csv") -> None:
    """Write a frame, whole or not at all, in the format of its file's ending; `-` is standard output."""
    from deepmf.storage.atomic import write_atomically

    if target == STANDARD:
        content = BytesIO()
        _WRITERS[standard_format](frame, content)
        left = content.getbuffer()
        while left:  # where Python runs unbuffered, a pipe may take only a part
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.flush()
    else:
        write = _WRITERS[Path(target).suffix]
        write_atomically(target, lambda temporary: write(frame, temporary))


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _plain(item: Any) -> Any:
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {str(key): _plain(value) for key, value in item.items()}
    return [_plain(value) for value in item] if isinstance(item, list | tuple) else item


class _TriedOut(Exception):
    """Ends a trial before anything is renamed."""
