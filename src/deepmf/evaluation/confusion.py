"""The confusion matrix of levels: how often each level was predicted for each true level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.model import Model


def confusion(model: Model, test: ObservedMatrix) -> npt.NDArray[np.int64]:
    """Return counts (true level, predicted level) over test entries.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> confusion(Means(shrinkage=0).fit(train), test)
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 0, 0]])
    """
    scale = model.scale_
    if scale.levels is None:
        raise BadSetting(f"the scale {scale} has no levels to confuse")
    rows, columns, values = test.entries()
    true, predicted = scale.level_positions(values), scale.level_positions(model.predict_levels(rows, columns))
    size = scale.levels.size
    return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)
