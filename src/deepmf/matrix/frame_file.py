"""Polars frames in a file, written one after another in the format of its ending, whole or not at
all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from deepmf.errors import BadEntries, BadSetting
from deepmf.files import polars, write_atomically
from deepmf.matrix.arrays import Array
from deepmf.matrix.feature_values import SEPARATOR, write_similarities
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
        if kind == "similarity":
            values = [item and write_similarities(item) for item in values]
        column = polars.Series(name, values, dtype=types.get(kind), strict=False)
        columns.append(column.fill_nan(None) if column.dtype.is_float() else column)
    return polars.DataFrame(columns)


def join_lists(frame: polars.DataFrame) -> polars.DataFrame:
    """Join the items of lists with bars, for delimited text."""
    lists = polars.col(polars.List(polars.String), polars.List(polars.Float64))
    return frame.with_columns(lists.cast(polars.List(polars.String)).list.join(SEPARATOR))


_PARQUET = (".parquet", ".pq")
ENDINGS = (".csv", ".tsv", ".jsonl", *_PARQUET)


def check_ending(path: str | Path, *others: str) -> None:
    """Refuse a path without the ending of a known format, or another one."""
    if Path(path).suffix.lower() not in (*ENDINGS, *others):
        endings = ", ".join([*ENDINGS[:-1], *others])
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
    frames: Iterable[polars.DataFrame],
    schema: Mapping[str, Any],
    ending: str,
    *,
    decimal_comma: bool = False,
) -> Iterator[bytes]:
    """Yield the header, then each frame, as bytes of a text format.

    Beside decimal commas, the fields of .csv are separated by semicolons. Texts of .csv are quoted
    if a column of texts begins with numbers alone, and no field of .tsv is.
    """
    style: Any = {".tsv": "never"}.get(ending, "necessary")
    separator = {".tsv": "\t"}.get(ending, ";" if decimal_comma else ",")
    is_first = ending == ".csv"
    for number, frame in enumerate(chain([polars.DataFrame(schema=schema)], frames)):
        content = BytesIO()
        if ending == ".jsonl":
            frame.write_ndjson(content)
            yield content.getvalue()
            continue
        texts = join_lists(frame)
        if ending == ".tsv":
            _refuse_tabs(texts)
        if is_first and frame.height:
            is_first = False
            style = "non_numeric" if _holds_number_texts(texts) else style
        texts.write_csv(
            content,
            include_header=number == 0,
            separator=separator,
            quote_style=style,
            decimal_comma=decimal_comma,
        )
        yield content.getvalue()


def _refuse_tabs(frame: polars.DataFrame) -> None:
    """Refuse tabs and line ends in texts: quotation marks have no special meaning in .tsv."""
    texts = frame.select(polars.col(polars.String)).get_columns()
    for series in (polars.Series(frame.columns, dtype=polars.String), *texts):
        wrong = series.filter(series.str.contains(r"[\t\r\n]"))
        if wrong.len():
            raise BadEntries(
                f"{wrong[0]!r} has a tab or a line end, which no .tsv file can hold; write .csv"
            )


def _holds_number_texts(frame: polars.DataFrame) -> bool:
    """Whether a column of texts holds only integers, as 7 or 7.0."""
    texts = (series.drop_nulls() for series in frame if series.dtype == polars.String)
    integer = r"^(0|-?[1-9][0-9]*)(\.0)?$"
    return any(series.len() > 0 and series.str.contains(integer).all() for series in texts)


def find_label_type(labels: Array) -> Any:
    """Return the polars type of labels, independent of the labels in a single frame."""
    return polars.Series(labels[:1].tolist()).dtype


def _write_parquet(frames: Iterator[Any], schema: Mapping[str, Any], file: BinaryIO) -> None:
    try:
        polars.io.plugins.register_io_source(lambda *_: frames, schema=schema).sink_parquet(file)
    except polars.exceptions.PolarsError as error:
        raise OSError(str(error)) from error  # a full disk, for example
