"""What every model shares, and no contract can say: messages that name the way out."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from deepmf.errors import BadEntries
from deepmf.models.means import Means

TABLE = np.array([[1.0, 2.0], [3.0, np.nan]])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (pd.DataFrame(TABLE), "got DataFrame (ObservedMatrix.from_frame, or from_table for a wide one, makes one)"),
        (pl.DataFrame(TABLE), "got DataFrame (ObservedMatrix.from_frame, or from_table for a wide one, makes one)"),
        (TABLE, "got ndarray (ObservedMatrix.from_array makes one)"),
        (scipy.sparse.csr_array(TABLE), "got csr_array (ObservedMatrix.from_sparse makes one)"),
        ([("ann", "Alien", 5)], "got list (ObservedMatrix.from_entries makes one)"),
        ("ratings.csv", "got str (read_matrix reads one from a file)"),
        (Path("ratings.csv"), "got PosixPath (read_matrix reads one from a file)"),
    ],
    ids=lambda given: type(given).__module__,
)
def test_what_is_no_matrix_is_told_how_to_become_one(given: Any, told: str) -> None:
    with pytest.raises(BadEntries) as refused:
        Means().fit(given)
    assert str(refused.value) == f"fit takes an ObservedMatrix; {told}"
