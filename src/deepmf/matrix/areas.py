"""The four areas: I known row and column, II new row, III new column, IV both new."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

AREAS = ("I", "II", "III", "IV")


def area_codes(row_is_new: npt.NDArray[np.bool_], column_is_new: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Return the position in `AREAS` of each pair: new rows are II, new columns III, both IV."""
    return row_is_new.astype(np.int8) + 2 * column_is_new.astype(np.int8)
