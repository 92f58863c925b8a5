"""Readers: whatever matrix is written in whatever dialect is read as it was."""

import csv
import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import polars as pl
import pytest
from hypothesis import Phase, given, settings

from deepmf.data import pack, read_matrix
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale

STARS = Scale([1, 2, 2.5, 4, 5])
# No words that pass for numbers, gaps or names of columns; quotation marks, separators and letters
# of other scripts.
WORDS = st.text("abÄß7 ,;|\"'", min_size=1, max_size=6).map(lambda text: f"x{text}y")
IDS = st.one_of(
    st.lists(st.integers(0, 10**12), min_size=2, max_size=5, unique=True),
    st.lists(WORDS, min_size=2, max_size=5, unique=True),
)
NAMES = {"user": "row", "item": "column", "rating": "value"}


@st.composite
def frames(draw: Any) -> pl.DataFrame:
    """Entries in any order, of at least two rows, columns and values; ids are numbers or texts."""
    rows, columns = draw(IDS), draw(IDS)
    pairs = draw(
        st.lists(
            st.tuples(st.sampled_from(rows), st.sampled_from(columns)), min_size=2, unique=True
        )
    )
    values = [STARS.levels[k % 5] for k in range(len(pairs))]
    return pl.DataFrame(
        {"user": [row for row, _ in pairs], "item": [c for _, c in pairs], "rating": values}
    )


@st.composite
def texts(draw: Any, frame: pl.DataFrame) -> tuple[str, bytes, dict[str, Any]]:
    """The name, the bytes and the options of a text file that holds a frame."""
    separator = draw(st.sampled_from([",", ";", "|"]))
    order = draw(st.permutations(["user", "item", "rating"]))
    target = io.StringIO()
    end, quoting = (
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
    )
    writer = csv.writer(target, delimiter=separator, lineterminator=end, quoting=quoting)
    header = draw(st.booleans())
    writer.writerows(
        ([order] if header else []) + [list(line) for line in frame.select(order).rows()]
    )
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    blank = end * draw(st.integers(0, 2))
    content = (blank + target.getvalue() + blank).encode(encoding)
    ending, compress = draw(st.sampled_from([("", bytes), (".gz", gzip.compress)]))
    options: dict[str, Any] = {NAMES[name]: place for place, name in enumerate(order)}
    options |= {"separator": separator, "header": header}
    options |= {} if encoding.startswith("utf-8") else {"encoding": encoding}
    return f"r.csv{ending}", compress(content), options


def check(path: Path, frame: pl.DataFrame, **options: Any) -> None:
    """Check that a file is read, and packed, as the matrix of a frame."""
    expected = ObservedMatrix.from_frame(frame, scale=STARS)
    assert read_matrix(path, scale=STARS, **options) == expected
    assert pack(path, path.with_name("packed.store"), scale=STARS, **options) == expected


@settings(max_examples=8, phases=[Phase.generate])
@given(frame=frames(), data=st.data())
def test_text_in_any_dialect(frame: pl.DataFrame, data: Any) -> None:
    name, content, options = data.draw(texts(frame))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_bytes(content)
        check(Path(folder, name), frame, **options)


@pytest.mark.parametrize("name", ["r.parquet", "r*[1]?.jsonl", "r.csv", "r.tsv", "~.store"])
@settings(max_examples=2, phases=[Phase.generate])
@given(frame=frames())
def test_other_formats_and_names_that_look_like_patterns(name: str, frame: pl.DataFrame) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        if path.suffix == ".parquet":
            frame.write_parquet(path)
        elif path.suffix == ".jsonl":
            path.write_text(
                "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in frame.to_dicts())
            )
        elif path.suffix in (".csv", ".tsv"):
            frame = frame.with_columns(pl.col(pl.String).str.replace_all('"', "'"))
            if frame.select("user", "item").is_duplicated().any():
                return
            frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
        else:
            ObservedMatrix.from_frame(frame, scale=STARS).write(path)
        check(path, frame)
