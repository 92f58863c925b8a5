"""Frames of predictions, written in chunks to standard output or to a file in the format of its extension."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from itertools import chain
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from deepmf.cli.output import STANDARD, check_writable, put_out, say, show_json, visible
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    import polars as pl

_TEXTS: dict[str, Callable[[Any, Any, bool], Any]] = {
    ".csv": lambda frame, file, header: frame.write_csv(file, include_header=header),
    ".tsv": lambda frame, file, header: frame.write_csv(file, include_header=header, separator="\t"),
    ".jsonl": lambda frame, file, header: frame.write_ndjson(file),
}
_PARQUET = ".parquet"
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
    if ending not in (*_TEXTS, _PARQUET):
        endings = ", ".join([*_TEXTS, _PARQUET])
        raise BadSetting(f"the name of the output must end in {endings}; got {target!r}")
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
    from deepmf.files.atomic import write_atomically

    ending = Path(target).suffix.lower()
    if target == STANDARD:
        for piece in _pieces(frames, schema, standard_format):
            put_out(_visible_piece(piece) if sys.stdout is not None and sys.stdout.isatty() else piece)
    elif ending == _PARQUET:
        write_atomically(target, lambda temporary: _write_parquet(frames, schema, temporary))
    else:
        write_atomically(target, lambda temporary: _write_text(_pieces(frames, schema, ending), temporary))


def _pieces(frames: Iterable[pl.DataFrame], schema: Mapping[str, Any], ending: str) -> Iterator[memoryview]:
    """Yield the header, then each frame, as bytes."""
    import polars

    for number, frame in enumerate(chain([polars.DataFrame(schema=schema)], frames)):
        content = BytesIO()
        _TEXTS[ending](frame, content, number == 0)
        yield content.getbuffer()


def _visible_piece(piece: memoryview) -> memoryview:
    """Return what may go to a terminal."""
    return memoryview(visible(str(piece, "utf-8"), kept="\n\t").encode())


def _without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    import polars

    return frame.with_columns(polars.col(polars.String).str.replace(_FORMULA, "'${0}"))


def _write_text(pieces: Iterable[memoryview], path: Path) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)


def _write_parquet(frames: Iterable[pl.DataFrame], schema: Mapping[str, Any], path: Path) -> None:
    import polars

    try:
        polars.io.plugins.register_io_source(lambda *_: iter(frames), schema=schema).sink_parquet(path)
    except polars.exceptions.PolarsError as error:
        raise OSError(str(error)) from error  # such as that of a full disk


class _Stopped(Exception):
    """Ends the writing after Ctrl-C."""
