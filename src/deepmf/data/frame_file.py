"""Polars frames in a file, written one after another in the format of its ending, whole or not at
all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from deepmf.errors import BadSetting
from deepmf.files import holds_number_texts, polars, write_atomically, write_csv, write_tsv
from deepmf.matrix.arrays import Array
from deepmf.matrix.feature_values import SEPARATOR
from deepmf.matrix.features import Features
from deepmf.matrix.frames import build_label_series


def make_feature_frame(features: Features, label: str) -> polars.DataFrame:
    """Return features as a polars frame; its first column has the labels under a name, and missing
    values are null."""
    types: dict[str, Any] = {
        "number": polars.Float64,
        "date": polars.Date,
        "vector": polars.List(polars.Float64),
    }
    types |= {"category": polars.String, "list": polars.List(polars.String)}
    columns = [build_label_series(features.labels).alias(label)]
    for name, kind in features.kinds.items():
        # dates as such, None where one is missing
        values: list[Any] = features.values(name).tolist()
        column = polars.Series(name, values, dtype=types.get(kind), strict=False)
        columns.append(column.fill_nan(None) if column.dtype.is_float() else column)
    return polars.DataFrame(columns)


def join_lists(frame: polars.DataFrame) -> polars.DataFrame:
    """Join the items of lists with bars, for delimited text."""
    lists = polars.col(polars.List(polars.String), polars.List(polars.Float64))
    return frame.with_columns(lists.cast(polars.List(polars.String)).list.join(SEPARATOR))


_TEXTS = (".csv", ".tsv", ".jsonl")
_PARQUET = (".parquet", ".pq")


def check_ending(path: str | Path) -> None:
    """Refuse a path without the ending of a known format."""
    if Path(path).suffix.lower() not in (*_TEXTS, *_PARQUET):
        endings = ", ".join([*_TEXTS, _PARQUET[0]])
        raise BadSetting(f"the name of the output must end in {endings}; got {str(path)!r}")


def write_frame_file(
    frames: Iterable[Any],
    schema: Mapping[str, Any],
    path: str | Path,
    *,
    decimal_comma: bool = False,
) -> int:
    """Write polars frames of one schema to a file one after another, in bounded memory; return the
    number of lines."""
    check_ending(path)
    ending = Path(path).suffix.lower()
    n_lines = 0

    def count_lines() -> Iterator[Any]:
        nonlocal n_lines
        for frame in frames:
            n_lines += frame.height
            yield frame

    def write(temporary: Path) -> None:
        # Parquet, too: after an error, polars may still create a file at a path
        with temporary.open("wb") as file:
            if ending in _PARQUET:
                _write_parquet(count_lines(), schema, file)
            else:
                file.writelines(
                    encode_frames(count_lines(), schema, ending, decimal_comma=decimal_comma)
                )

    write_atomically(path, write)
    return n_lines


def encode_frames(
    frames: Iterable[Any], schema: Mapping[str, Any], ending: str, *, decimal_comma: bool = False
) -> Iterator[bytes]:
    """Yield the header, then each frame, as bytes of a text format."""
    quoted: bool | None = None  # decided by the first lines, as readers do
    for number, frame in enumerate(chain([polars.DataFrame(schema=schema)], frames)):
        content = BytesIO()
        if quoted is None and frame.height:
            quoted = holds_number_texts(frame)
        shared = {"header": number == 0, "decimal_comma": decimal_comma}
        if ending == ".csv":
            write_csv(join_lists(frame), content, quoted=quoted or False, **shared)
        elif ending == ".tsv":
            write_tsv(join_lists(frame), content, **shared)
        else:
            frame.write_ndjson(content)
        yield content.getvalue()


def find_label_type(labels: Array) -> Any:
    """Return the polars type of labels, independent of the labels in a single frame."""
    return polars.Series(labels[:1].tolist()).dtype


def _write_parquet(frames: Iterator[Any], schema: Mapping[str, Any], file: BinaryIO) -> None:
    try:
        polars.io.plugins.register_io_source(lambda *_: frames, schema=schema).sink_parquet(file)
    except polars.exceptions.PolarsError as error:
        raise OSError(str(error)) from error  # a full disk, for example
