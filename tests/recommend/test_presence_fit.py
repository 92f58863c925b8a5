"""How presence is chosen: which entries of rows are hidden."""

import numpy as np

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import Means
from deepmf.recommend.presence_fit import HiddenRows


def test_every_row_of_two_entries_hides_one() -> None:
    rows, columns = np.repeat(np.arange(60), 2), np.arange(120) % 7
    model = Means(presence=None).fit(ObservedMatrix.from_entries(rows, columns, columns % 5 + 1.0))
    hidden = HiddenRows.from_training(model.entries_, model.predictor_, seed=0)
    assert hidden is not None
    assert np.bincount(hidden.hidden.rows).tolist() == [1] * 60
    assert np.diff(hidden.visible.starts).tolist() == [1] * 60
