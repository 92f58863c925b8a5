"""Output of commands: lines, tables, JSON and progress on the terminal; frames of predictions in
files.

Text from files is escaped wherever it could steer a terminal. Files are written whole or not at
all.
"""

from __future__ import annotations

import json
import math
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import typer

from deepmf.errors import BadSetting, CannotSave
from deepmf.files import Progress, polars

if TYPE_CHECKING:
    from deepmf.recommend.ranking import Ranking

STANDARD = "-"  # standard input or output


# Lines, tables, JSON


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines of text, with control characters escaped."""
    typer.echo(escape_controls(text, kept="\n"), err=err)


def escape_controls(text: str, *, kept: str = "") -> str:
    r"""Return a text with control characters, and characters that reorder text, written as escapes.

    >>> escape_controls("Alien\x1b[2J\u202e")
    'Alien\\x1b[2J\\u202e'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in kept or not _is_control(c) else ascii(c)[1:-1] for c in text)


def _is_control(character: str) -> bool:
    """Whether a character acts on a terminal instead of being shown; joiners of emoji and letters
    do not."""
    return (
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and character not in "\u200c\u200d"
    )


def show_json(content: dict[str, Any]) -> None:
    """Print one JSON object; numbers that JSON lacks become null."""
    text = json.dumps(_clear_infinite(content), ensure_ascii=False, allow_nan=False)
    # Control characters occur only inside strings, which have JSON's own escapes.
    typer.echo("".join(json.dumps(c)[1:-1] if _is_control(c) else c for c in text))


def _clear_infinite(item: Any) -> Any:
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {str(key): _clear_infinite(value) for key, value in item.items()}
    return [_clear_infinite(value) for value in item] if isinstance(item, list | tuple) else item


def show_result(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print facts as JSON, or as text."""
    if as_json:
        show_json(facts)
    else:
        say(text)


def show_written(facts: dict[str, Any], text: str, target: str, *, as_json: bool) -> None:
    """Print what a file of frames holds, as text or as JSON; nothing if it is standard output."""
    if target != STANDARD:
        show_result(facts | {"file": target}, f"{text} in {target}", as_json=as_json)


def show_table(
    names: Sequence[str], lines: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Print a table: text on the left, numbers on the right with four decimals, None as an empty
    cell."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    cells = [list(line) for line in lines]
    table = Table()
    for at, name in enumerate(names):
        is_text = all(isinstance(line[at], str) for line in cells)
        table.add_column(
            escape(escape_controls(name)), justify="left" if is_text else "right", overflow="fold"
        )
    for line in cells:
        table.add_row(*(escape(escape_controls(_format_cell(cell))) for cell in line))
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console.width = 120
    if title is not None:  # printed above: the table may be narrower
        console.print(escape_controls(title), style="bold", markup=False, highlight=False)
    console.print(table)


def list_records(ranking: Ranking, label: str, value: str) -> list[dict[str, Any]]:
    """Return the fields of each label of a ranking, best first, under these names; no field is
    None."""
    lines = replace(ranking, fields=("row", label, value)).to_frame().drop("rank").to_dicts()
    return [{name: cell for name, cell in line.items() if cell is not None} for line in lines]


def give_name(axis: str, name: str | None) -> dict[str, str]:
    """Return the field of JSON content for the name of a row or column; none if it has no name."""
    return {} if name is None else {f"{axis}_name": name}


def show_records(heads: Mapping[str, str], records: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of records, whose fields have these titles; ids come first.

    Ids and names that no record has are left out.
    """
    texts = ("row", "column", "row_name", "column_name")
    shown = [name for name in heads if name not in texts or any(name in line for line in records)]
    lines = [[line.get(name, "") for name in shown] for line in records]
    show_table([heads[name] for name in shown], [[str(line[0]), *line[1:]] for line in lines])


def _format_cell(cell: Any) -> str:
    if cell is None or cell != cell:  # NaN
        return ""
    if isinstance(cell, float):
        return f"{cell:z.4f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


@contextmanager
def show_share(title: str) -> Iterator[Progress]:
    """Yield a function that shows how much is done of a total (None: unknown); it does nothing off
    a terminal."""
    from deepmf.training.progress import is_terminal

    if not is_terminal():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


# Checks before the work


def check_writable(path: Path, *, inputs: Iterable[Path | None]) -> None:
    """Raise now what writing to a path would raise after the work; nothing is left behind.

    Parameters
    ----------
    inputs : all other files of the command (None: not given), which must not be overwritten.
    """
    if str(path) == STANDARD:
        raise BadSetting("this output cannot go to standard output; give the name of a file")
    check_distinct(path, inputs)
    from deepmf.files import write_atomically

    def stop(_: Path) -> None:
        raise _TrialEnded

    with suppress(_TrialEnded):
        write_atomically(path, stop)


class _TrialEnded(Exception):
    """Ends a trial write where it would fill its temporary file, before anything is renamed."""


def check_distinct(path: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse to overwrite a file that the command uses, under any name or link."""
    for input_path in inputs:
        if (
            input_path is not None
            and str(input_path) != STANDARD
            and _is_same_file(path, input_path)
        ):
            raise BadSetting(
                f"{path} would overwrite {input_path}, which this command uses too; write to another file"
            )


def check_frame_target(target: str, *, inputs: Iterable[Path | None]) -> None:
    """Refuse a file of an unknown format, a file that cannot be written, and one of the inputs."""
    if target == STANDARD:
        return
    from deepmf.matrix.frame_file import check_ending

    check_ending(target)
    check_writable(Path(target), inputs=inputs)


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them does not exist yet, or is not a file
        return os.path.realpath(one) == os.path.realpath(other)


# Frames and bytes


def write_frames(
    frames: Iterable[polars.DataFrame],
    schema: Mapping[str, Any],
    target: str,
    *,
    as_json: bool = False,
    digits: int | None = None,
    decimal: str = ".",
) -> None:
    """Write frames one after the other to a file in the format of its extension, or to standard
    output.

    Another thread writes them, which Ctrl-C cannot interrupt: inside polars it would be raised
    twice, the second time during the clean-up.

    Parameters
    ----------
    as_json : write JSON lines instead of csv to standard output.
    digits : the number of digits after the decimal mark to which numbers are rounded; None: all.
    decimal : the decimal mark of csv and tsv; a comma puts semicolons between the fields of csv.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    from deepmf.matrix.frame_file import encode_frames, write_frame_file

    stopped, decimal_comma = Event(), decimal == ","

    def prepare_frames() -> Iterator[polars.DataFrame]:
        for frame in frames:
            if stopped.is_set():
                raise _StoppedByUser
            if digits is not None:
                frame = frame.with_columns(polars.col(polars.Float64).round(digits))
            yield frame

    def write() -> None:
        if target != STANDARD:
            write_frame_file(prepare_frames(), schema, target, decimal_comma=decimal_comma)
            return
        steers = sys.stdout is not None and sys.stdout.isatty()
        ending = ".jsonl" if as_json else ".csv"
        for piece in encode_frames(prepare_frames(), schema, ending, decimal_comma=decimal_comma):
            write_bytes(escape_controls(piece.decode(), kept="\n\t").encode() if steers else piece)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            # once polars has run, Ctrl-C does not end a long wait
            while not wait([writing], timeout=0.1).done:
                pass
            writing.result()
        finally:
            stopped.set()


class _StoppedByUser(Exception):
    """Ends the writing thread after Ctrl-C."""


def write_bytes(content: bytes) -> None:
    """Write bytes to standard output."""
    if sys.stdout is None:
        raise CannotSave("standard output is closed; give -o FILE")
    unwritten = memoryview(content)
    while unwritten:  # where Python runs unbuffered, a pipe may take only a part
        unwritten = unwritten[sys.stdout.buffer.write(unwritten) :]
    sys.stdout.flush()
