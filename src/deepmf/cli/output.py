"""Frames of predictions, written in chunks to standard output or to a file in the format of its extension."""

from __future__ import annotations

import json
import math
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from threading import Event
from typing import TYPE_CHECKING, Any

import typer

from deepmf.errors import BadSetting, CannotSave, DeepMFError

if TYPE_CHECKING:
    import polars as pl

    from deepmf.matrix.scale import Scale
    from deepmf.models.base import Model


@contextmanager
def show_share(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield what shows how much is done of how much (None: unknown), and the time left; nothing where unseen."""
    from deepmf.training.progress import is_terminal

    if not is_terminal():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


STANDARD = "-"  # standard input or output

_ASKED = 8  # pairs that are predicted when a saved model is read back


def visible(text: str, *, kept: str = "") -> str:
    r"""Return a text with what would steer a terminal written out: control characters, and those that reorder text.

    >>> visible("Alien\x1b[2J\u202e")
    'Alien\\x1b[2J\\u202e'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in kept or not _steers(c) else ascii(c)[1:-1] for c in text)


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines of text; what would steer a terminal is written out."""
    typer.echo(visible(text, kept="\n"), err=err)


def show_json(content: dict[str, Any]) -> None:
    """Print one JSON object; numbers that JSON does not have become null."""
    text = json.dumps(_plain(content), ensure_ascii=False, allow_nan=False)
    # All that is left to write out stands in strings, where JSON has its own way for it.
    typer.echo("".join(json.dumps(c)[1:-1] if _steers(c) else c for c in text))


def show_table(names: Sequence[str], lines: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a table: text to the left, numbers to the right with four digits, nothing where there is none."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    cells = [list(line) for line in lines]
    table = Table()
    for at, name in enumerate(names):
        is_text = all(isinstance(line[at], str) for line in cells)
        table.add_column(escape(visible(name)), justify="left" if is_text else "right", overflow="fold")
    for line in cells:
        table.add_row(*(escape(visible(_shown(cell))) for cell in line))
    console = Console()
    if not console.is_terminal:
        console.width = 120  # a file or a pipe has no width of its own
    if title is not None:
        console.print(visible(title), style="bold", markup=False, highlight=False)  # above: the table may be narrower
    console.print(table)


def scale_content(scale: Scale) -> dict[str, Any]:
    """Return a scale as JSON has it."""
    levels = None if scale.levels is None else scale.levels.tolist()
    return {"low": scale.low, "high": scale.high, "levels": levels}


def scale_words(content: dict[str, Any]) -> str:
    """Return a scale that JSON has in words."""
    if content["levels"] is None:
        return f"{content['low']:g} to {content['high']:g}"
    return "levels " + " ".join(f"{level:g}" for level in content["levels"])


def check_writable(path: Path, *, inputs: Iterable[Path | None]) -> None:
    """Raise now what writing to this path would raise after the work is done; nothing is left behind.

    `inputs` are all other files of the command (None: not given): none of them may be overwritten.
    """
    if str(path) == STANDARD:
        raise BadSetting("this cannot be written to standard output; give it the name of a file")
    check_distinct(path, inputs)
    from deepmf.files import write_atomically

    with suppress(_TriedOut):
        write_atomically(path, _try_out)


def check_distinct(path: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse to write to a file that the command needs for something else, under whatever name or link."""
    for given in inputs:
        if given is not None and str(given) != STANDARD and _is_same_file(path, given):
            raise BadSetting(f"{path} would overwrite {given}, which this command uses too; give another file to write")


def check_model_target(path: Path, *, inputs: Iterable[Path | None]) -> None:
    """Refuse now what `save_model` would refuse after training."""
    if str(path) == STANDARD:
        if sys.stdout is None or sys.stdout.isatty():
            raise BadSetting("a model file is not for a terminal; pass it on by > or |, or name a file by -o FILE")
        return
    from deepmf.files import write_folder_atomically
    from deepmf.storage.model_folder import goes_to_folder, is_replaceable

    if goes_to_folder(path, n_bytes=0):
        check_distinct(path, inputs)
        with suppress(_TriedOut):
            write_folder_atomically(path, _try_out, replaces=is_replaceable)
    else:
        check_writable(path, inputs=inputs)


def save_model(model: Model, path: Path) -> None:
    """Write a model file or folder, whole or not at all; `-` is standard output, to which a file goes of any size.

    What is written is read back before it takes its name: a model that could not be loaded, or answers otherwise then,
    leaves everything as it was.
    """
    check = partial(_check_answers, model)
    if str(path) != STANDARD:
        model.save(path, check=check)
        return
    from deepmf.files import temporary_folder

    with temporary_folder(Path(gettempdir())) as folder:
        file = folder / "model.safetensors"
        model.save(file, largest_file=sys.maxsize, check=check)
        put_out(memoryview(file.read_bytes()))


def _check_answers(model: Model, file: Path) -> None:
    """Refuse a file from which a model cannot be loaded that predicts what the one in memory does."""
    import numpy as np

    from deepmf.models.loading import load

    rows, columns = model.entries_.rows, model.entries_.columns
    n_asked = min(_ASKED, max(len(rows), len(columns)))
    pairs = rows[np.arange(n_asked) % len(rows)], columns[np.arange(n_asked) % len(columns)]
    try:
        answers = load(file).predict(*pairs)
    except Exception as error:
        raise DeepMFError(f"the model that was fitted cannot be read back ({error}); it is not saved") from error
    if not np.isfinite(answers).all() or not np.allclose(answers, model.predict(*pairs), rtol=1e-5):
        raise DeepMFError("the model that was fitted answers otherwise when it is read back; it is not saved")


def put_out(content: memoryview) -> None:
    """Write bytes to standard output."""
    if sys.stdout is None:
        raise CannotSave("standard output is closed; -o FILE writes to a file")
    while content:  # where Python runs unbuffered, a pipe may take only a part
        content = content[sys.stdout.buffer.write(content) :]
    sys.stdout.flush()


def _steers(character: str) -> bool:
    """Say whether a character acts on a terminal instead of being shown; the two that join emoji and letters do not."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\u200c\u200d"


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is not there yet, or no file at all
        return os.path.realpath(one) == os.path.realpath(other)


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


def _try_out(temporary: Path) -> None:
    temporary.touch()
    raise _TriedOut


class _TriedOut(Exception):
    """Ends a trial before anything is renamed."""


_SPREADSHEETS = (".csv", ".tsv")

_FORMULA = r"^[=+\-@\t\r]"  # how a field begins that a spreadsheet takes for a formula


def check_frame_target(
    target: str, *, inputs: Iterable[Path | None], safe_csv: bool = False, as_json: bool = False
) -> None:
    """Refuse a file whose ending says no format, that cannot be written, or that is one of the inputs."""
    ending = (".jsonl" if as_json else ".csv") if target == STANDARD else Path(target).suffix.lower()
    if safe_csv and ending not in _SPREADSHEETS:
        raise BadSetting(f"--safe-csv is for csv and tsv; got {'--json' if target == STANDARD else repr(target)}")
    if target == STANDARD:
        return
    from deepmf.storage.frame_file import check_ending

    check_ending(target)
    check_writable(Path(target), inputs=inputs)


def write_frames(
    frames: Iterable[pl.DataFrame],
    schema: Mapping[str, Any],
    target: str,
    *,
    standard_format: str = ".csv",
    safe_csv: bool = False,
) -> None:
    """Write frames one after the other, whole or not at all; `-` is standard output.

    With `safe_csv`, an apostrophe goes before a text that a spreadsheet would take for a formula.

    It is done in another thread, which Ctrl-C cannot tear apart: inside polars it would come twice, and so in the
    middle of cleaning up.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    stopped = Event()
    with ThreadPoolExecutor(1) as threads:
        safe = map(_without_formulas, frames) if safe_csv else frames
        writing = threads.submit(_write, _until(stopped, safe), schema, target, standard_format)
        try:
            while not wait([writing], timeout=0.1).done:  # once polars has run, Ctrl-C does not end a long wait
                pass
            writing.result()
        finally:
            stopped.set()


def show_predicted(counts: Mapping[str, int], target: str, *, as_json: bool, n_unknown: int = 0) -> None:
    """Say how many pairs of each area, and unknown ones, are in a file; nothing where it is standard output."""
    if target == STANDARD:
        return
    n_predictions = sum(counts.values()) + n_unknown
    if as_json:
        found = {"predictions": n_predictions, "areas": dict(counts)} | ({"unknown": n_unknown} if n_unknown else {})
        show_json(found | {"file": target})
    else:
        shown = [f"{count:,} in area {area}" for area, count in counts.items()] + [f"{n_unknown:,} unknown"] * (
            n_unknown > 0
        )
        told = f"{n_predictions:,} predictions ({', '.join(shown)})" if shown else "no predictions"
        say(f"{told} in {target}")


def _until(stopped: Event, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    for frame in frames:
        if stopped.is_set():
            raise _Stopped
        yield frame


def _write(frames: Iterable[pl.DataFrame], schema: Mapping[str, Any], target: str, standard_format: str) -> None:
    from deepmf.storage.frame_file import encode_frames, write_frame_file

    if target != STANDARD:
        write_frame_file(frames, schema, target)
        return
    for piece in encode_frames(frames, schema, standard_format):
        put_out(_visible_piece(piece) if sys.stdout is not None and sys.stdout.isatty() else piece)


def _visible_piece(piece: memoryview) -> memoryview:
    """Return what may go to a terminal."""
    return memoryview(visible(str(piece, "utf-8"), kept="\n\t").encode())


def _without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    import polars

    return frame.with_columns(polars.col(polars.String).str.replace(_FORMULA, "'${0}"))


class _Stopped(Exception):
    """Ends the writing after Ctrl-C."""
