"""Readers: whatever matrix is written in whatever dialect is read as it was."""

import csv
import gzip
import io
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
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
    pair = st.tuples(st.sampled_from(draw(IDS)), st.sampled_from(draw(IDS)))
    rows, columns = zip(*draw(st.lists(pair, min_size=2, unique=True)), strict=True)
    values = np.resize(STARS.levels, len(rows))
    return pl.DataFrame({"user": rows, "item": columns, "rating": values})


@st.composite
def texts(draw: Any, frame: pl.DataFrame) -> tuple[str, bytes, dict[str, Any]]:
    """The name, the bytes and the options of a text file that holds a frame."""
    separator = draw(st.sampled_from([",", ";", "|"]))
    order = draw(st.permutations(["user", "item", "rating"]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    header = draw(st.booleans())
    target = io.StringIO()
    writer = csv.writer(target, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([order] * header + frame.select(order).rows())
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    blank = end * draw(st.integers(0, 2))
    content = (blank + target.getvalue() + blank).encode(encoding)
    ending, compress = draw(st.sampled_from([("", bytes), (".gz", gzip.compress)]))
    options: dict[str, Any] = {NAMES[name]: place for place, name in enumerate(order)}
    options |= {"separator": separator, "header": header}
    options |= {} if encoding.startswith("utf-8") else {"encoding": encoding}
    return f"r.csv{ending}", compress(content), options


@settings(max_examples=8, phases=[Phase.generate])
@given(frame=frames(), data=st.data())
def test_text_in_any_dialect(frame: pl.DataFrame, data: Any) -> None:
    name, content, options = data.draw(texts(frame))
    expected = ObservedMatrix.from_frame(frame, scale=STARS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        assert read_matrix(path, scale=STARS, **options) == expected
        assert pack(path, path.with_name("packed.store"), scale=STARS, **options) == expected
