"""Imputers of other libraries, and softImpute, that the benchmarks of tables compare with.

miceforest and HyperImpute are optional: `find_imputers` leaves out a library that is not installed.
They have their own defaults, but for the sizes below, which keep a table at seconds to minutes.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

Array = npt.NDArray[np.float64]
MICE_ITERATIONS = MICE_TABLES = 5
TREES = 30
FOREST_ITERATIONS = 5
PENALTIES = np.geomspace(0.7, 0.01, 15)  # of softImpute, as shares of the largest singular value


class SoftImpute:
    """SVDs with shrunk singular values (Mazumder, Hastie and Tibshirani, 2010), for standardised
    columns.

    The shrinkage is that which predicts a tenth of the cells best.
    """

    def fit_transform(self, table: Array) -> Array:
        """Return the completed table."""
        known = ~np.isnan(table)
        held_out = known & (np.random.default_rng(0).random(table.shape) < 0.1)
        largest = float(np.linalg.norm(np.nan_to_num(table), 2))
        filled, errors = np.zeros_like(table), []
        for penalty in largest * PENALTIES:
            filled = self._complete(np.where(held_out, np.nan, table), penalty, filled)
            errors.append(np.mean(np.square(filled - table)[held_out]))
        filled = self._complete(table, largest * PENALTIES[int(np.argmin(errors))], filled)
        return np.where(known, table, filled)

    def _complete(self, table: Array, penalty: float, filled: Array) -> Array:
        known = ~np.isnan(table)
        for _ in range(200):
            left, values, right = np.linalg.svd(np.where(known, table, filled), full_matrices=False)
            last, filled = filled, (left * np.maximum(values - penalty, 0.0)) @ right
            if np.sqrt(np.mean(np.square(filled - last))) < 1e-3:
                break
        return np.asarray(filled)


class MiceForest:
    """Chained equations with boosted trees; the mean of several completed tables."""

    def fit_transform(self, table: Array) -> Array:
        """Return the completed table."""
        return np.asarray(
            np.mean(draw_by_miceforest(pd.DataFrame(table), MICE_TABLES, seed=0), axis=0)
        )


class HyperImpute:
    """HyperImpute with its defaults."""

    def fit_transform(self, table: Array) -> Array:
        """Return the completed table."""
        from hyperimpute.plugins.imputers import Imputers

        completed = Imputers().get("hyperimpute", random_state=0).fit_transform(pd.DataFrame(table))
        return np.asarray(completed, dtype=np.float64)


def make_forest(*, seed: int = 0) -> IterativeImputer:
    """Return a missForest-like imputer: chained random trees."""
    trees = ExtraTreesRegressor(TREES, random_state=seed)
    return IterativeImputer(
        trees, max_iter=FOREST_ITERATIONS, keep_empty_features=True, random_state=seed
    )


def draw_by_miceforest(frame: pd.DataFrame, m: int, *, seed: int) -> list[Array]:
    """Return completed tables with numbers, drawn by mean matching."""
    import miceforest

    named = frame.set_axis([f"c{at}" for at in range(frame.shape[1])], axis=1)
    kernel = miceforest.ImputationKernel(named, num_datasets=m, random_state=seed)
    kernel.mice(MICE_ITERATIONS, num_threads=1)
    return [kernel.complete_data(dataset=at).to_numpy(dtype=np.float64) for at in range(m)]


def find_imputers() -> dict[str, Callable[[], Any]]:
    """Return the imputers that are installed by name; each call makes one."""
    found: dict[str, Callable[[], Any]] = {"missForest-like": make_forest, "softImpute": SoftImpute}
    optional: dict[str, Callable[[], Any]] = {"miceforest": MiceForest, "HyperImpute": HyperImpute}
    return found | {
        name: make for name, make in optional.items() if importlib.util.find_spec(name.lower())
    }
