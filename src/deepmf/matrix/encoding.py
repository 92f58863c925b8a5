"""Encodings: how the values of entries become the inputs of a branch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepmf.matrix.scale import Scale


@dataclass(frozen=True)
class Encoding:
    """A rule that turns the values of entries into inputs; what is missing is 0 under every rule.

    >>> stars = Scale(levels=[1, 2, 3, 4, 5])
    >>> ENCODINGS["scaled"].encode(stars, [1, 3, 5])
    array([-1.,  0.,  1.])
    >>> ENCODINGS["raw"].encode(stars, [1, 3, 5])
    array([1., 3., 5.])
    """

    name: str
    encode: Callable[[Scale, npt.ArrayLike], npt.NDArray[np.float64]]


def _scaled(scale: Scale, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return scale.to_unit(values)


def _raw(_: Scale, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


# "scaled" is the paper's footnote 1: missing looks like the middle of the scale, and new rows are predicted well. "raw"
# is what the authors' code does: which entries exist is plain to see; known rows are predicted better, new ones worse.
ENCODINGS = {rule.name: rule for rule in (Encoding("scaled", _scaled), Encoding("raw", _raw))}
