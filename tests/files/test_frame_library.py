"""Polars is imported when it is needed; where it is missing, the error says what to install."""

import sys

import numpy as np
import polars
import pytest

from deepmf.errors import MissingDependency
from deepmf.files.frame_library import import_polars
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.storage.frame_file import label_type
from deepmf.training.history import History


def test_polars_is_imported_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert import_polars() is polars
    monkeypatch.setitem(sys.modules, "polars", None)
    matrix = ObservedMatrix.from_array(np.ones((2, 2)) * [1, 2])
    for need in (import_polars, History().to_frame, matrix.to_frame, lambda: label_type(matrix.row_labels)):
        with pytest.raises(MissingDependency, match="frames and files of entries need polars: pip install polars"):
            need()
