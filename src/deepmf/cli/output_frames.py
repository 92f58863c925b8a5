"""Frames of predictions: written in pieces, to a file in the format of its ending or to standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from itertools import chain
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import typer

from deepmf.cli.output import STANDARD, check_writable, put_out, show_json
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    import polars as pl

_TEXTS: dict[str, Callable[[Any, Any, bool], Any]] = {
    ".csv": lambda frame, file, header: frame.write_csv(file, include_header=header),
    ".tsv": lambda frame, file, header: frame.write_csv(file, include_header=header, separator="\t"),
    ".jsonl": lambda frame, file, header: frame.write_ndjson(file),
}
_PARQUET = ".parquet"


def check_frame_target(target: str) -> None:
    """Refuse a file whose ending says no format, or that cannot be written."""
    if target == STANDARD:
        return
    if Path(target).suffix.lower() not in (*_TEXTS, _PARQUET):
        endings = ", ".join([*_TEXTS, _PARQUET])
        raise BadSetting(f"the name of the output must end in {endings}; got {target!r}")
    check_writable(Path(target))


def write_frames(
    frames: Iterable[pl.DataFrame], schema: Mapping[str, Any], target: str, *, standard_format: str = ".csv"
) -> None:
    """Write frames one after the other, whole or not at all; `-` is standard output.

    It is done in another thread, which Ctrl-C cannot tear apart: inside polars it would come twice, and so in the
    middle of cleaning up.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    stopped = Event()
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(_write, _until(stopped, frames), schema, target, standard_format)
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
        typer.echo(f"{told} in {target}")


def _until(stopped: Event, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    for frame in frames:
        if stopped.is_set():
            raise _Stopped
        yield frame


def _write(frames: Iterable[pl.DataFrame], schema: Mapping[str, Any], target: str, standard_format: str) -> None:
    from deepmf.storage.atomic import write_atomically

    ending = Path(target).suffix.lower()
    if target == STANDARD:
        for piece in _pieces(frames, schema, standard_format):
            put_out(piece)
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
