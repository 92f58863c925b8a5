"""The types of arrays, named by what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]  # values, in the scale's units
IndexArray = npt.NDArray[np.integer[Any]]  # positions on an axis, or in an array
LatentArray = npt.NDArray[np.float32]  # latents (rows or columns, latent)
