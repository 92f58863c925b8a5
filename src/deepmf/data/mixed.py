"""Reading a mixed table: a line per row, with columns of numbers, whole numbers and text, and gaps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.data.columns import is_typed_file, read_typed_file
from deepmf.data.delimited import check_decimal
from deepmf.data.features import infer_type, read_texts
from deepmf.data.layout import FEATURES, recognise_layout
from deepmf.data.source import check_path
from deepmf.errors import UnreadableFile

if TYPE_CHECKING:
    import polars as pl


def read_mixed_table(
    path: str | Path, *, separator: str | None = None, decimal: str = ".", encoding: str | None = None
) -> pl.DataFrame:
    """Read a table from delimited text (also `.gz`, `.zst`), Parquet or JSON lines, with null for gaps.

    A text column that holds only numbers becomes a column of numbers, of whole numbers if it has no decimals; numbers
    with leading zeros are text. Fields of a file without a header are called `field 1`, `field 2` and so on, from 0.

    Parameters
    ----------
    path
        The file.
    separator
        Field separator; recognised from the first lines by default.
    decimal
        Decimal mark of numbers, a point or a comma.
    encoding
        Encoding of text; recognised by default.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "plants.csv")
    >>> _ = path.write_text("light,height,leaves\\nsun,1.5,3\\n,NA,4\\n")
    >>> read_mixed_table(path).rows()
    [('sun', 1.5, 3), (None, None, 4)]
    """
    path = check_path(path)
    check_decimal(decimal)
    if is_typed_file(path):
        frame = read_typed_file(path)
    else:
        layout = recognise_layout(path, FEATURES, separator=separator, decimal=decimal, encoding=encoding)
        texts = read_texts(layout)
        if not layout.has_header:
            texts = texts.rename({name: f"field {name}" for name in layout.names})
        frame = texts.select(infer_type(series, decimal=decimal) for series in texts.get_columns())
    if frame.height == 0 or frame.width == 0:
        raise UnreadableFile(f"{path} holds no rows")
    return frame
