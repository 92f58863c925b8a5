"""What every model shares, and no contract can say: messages that name the way out."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from deepmf.data.synthetic.generator import generate
from deepmf.errors import BadEntries, BadSetting
from deepmf.models.factorization.als import ALS
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


def test_latents_are_arrays_in_the_order_of_the_labels() -> None:
    matrix = generate(40, 30, density=0.5, seed=0).matrix
    model = ALS(latent_size=3).fit(matrix)
    assert model.row_latents_.shape == (40, 3) and model.column_latents_.shape == (30, 3)
    row = model.row_labels_.tolist().index(matrix.row_labels[7])
    cosines = model.row_latents_ @ model.row_latents_[row]
    cosines /= np.linalg.norm(model.row_latents_, axis=1) * np.linalg.norm(model.row_latents_[row])
    cosines[row] = -2
    assert model.similar_rows(matrix.row_labels[7], n=1).labels[0] == model.row_labels_[np.argmax(cosines)]
    with pytest.raises(ValueError, match="read-only"):
        model.row_latents_[0, 0] = 1.0
    model.predictor_.rows.base[0, 0] += 0.0  # the model's own stay as they are
    with pytest.raises(BadSetting, match="this model has no latents"):
        Means().fit(matrix).row_latents_  # noqa: B018
