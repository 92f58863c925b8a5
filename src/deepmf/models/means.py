"""Shrunk means: the baseline that every other model must beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg

from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.models.base import Model
from deepmf.models.estimator import check_products
from deepmf.models.fitted import Fitted
from deepmf.models.fitting import Fitting
from deepmf.models.traits import Recommends
from deepmf.scoring.effects import SHRINKAGE, Effects, compute_effects
from deepmf.scoring.encoders import SolvingEncoder
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part
from deepmf.training.history import History
from deepmf.training.settings import RecommendationSettings, Settings, setting, settings_dataclass

if TYPE_CHECKING:
    from deepmf.training.holdout import HeldOut


@settings_dataclass
class MeansSettings(RecommendationSettings):
    """The settings of the shrunk means."""

    shrinkage: float = setting(
        SHRINKAGE,
        "Number of entries at the overall mean that are added to each row and column.",
        low=0.0,
    )
    feature_penalty: float = setting(
        10.0, "Ridge penalty on the weights of features, as a number of rows or columns.", above=0.0
    )


class FeatureWeights(NamedTuple):
    """The weights (inputs, width) of the features of rows and of columns; None where there are no
    features."""

    rows: Array | None = None
    columns: Array | None = None

    def list_tensors(self) -> dict[str, Array]:
        """Return the weights under their names in a model file."""
        return {
            f"features.{axis}": table for axis, table in self._asdict().items() if table is not None
        }


NO_WEIGHTS = FeatureWeights()


def load_feature_weights(
    entries: EntryStore, tensors: Tensors, *, width: int, kind: str
) -> FeatureWeights:
    """Return the stored weights; weights that do not fit the features raise `BadModelFile`."""
    axes = (("rows", entries.row_features), ("columns", entries.column_features))
    parts = (
        Part(axis, kind, (features.n_inputs, width))
        for axis, features in axes
        if features is not None
    )
    return FeatureWeights(**Form(*parts, prefix="features").read({}, tensors))


def compute_prior(entries: AxisEntries, weights: Array | None) -> Array | None:
    """Return the predictions from the features of rows (or columns), (vectors, width); None without
    features."""
    if weights is None or entries.features is None:
        return None
    return entries.features.product(weights)


class FeatureRidge:
    """The ridge regression of numbers of rows (or columns) on their features, laid out once.

    precisions: the weight of each vector, (vectors,). penalty: in vectors of average weight.
    """

    def __init__(self, features: FeatureVectors, precisions: FloatArray, penalty: float) -> None:
        table = features.to_sparse().astype(np.float64)
        self._weighted = table.multiply(precisions[:, None]).T.tocsr()
        gram = (self._weighted @ table).toarray()
        counted = precisions[precisions > 0]
        gram[np.diag_indices_from(gram)] += penalty * (counted.mean() if counted.size else 1.0)
        self._factor = scipy.linalg.cho_factor(gram)

    def weights(self, targets: Array) -> FloatArray:
        """Return the weights (inputs, width) for numbers (vectors, width)."""
        solved: FloatArray = scipy.linalg.cho_solve(
            self._factor, self._weighted @ targets.astype(np.float64)
        )
        return solved


# of a latent: both its numbers, (mean + row effect, 1) and (1, column effect), in double precision
_N_BESIDE = 2


class EffectEncoder(SolvingEncoder):
    """The effect of a column is its shrunk mean minus the overall mean, that of a row the shrunk
    mean of its residuals.

    With features, effects are shrunk to the predictions from features instead of 0.
    """

    factor_type = "float64"

    def __init__(
        self, mean: float, shrinkage: float, feature_weights: FeatureWeights = NO_WEIGHTS
    ) -> None:
        self.mean, self._shrinkage, self.feature_weights = mean, shrinkage, feature_weights

    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> Any:
        """Return (mean + effect, 1) of each row, or (1, effect) of each column, from its own
        entries alone."""
        if axis == "row":
            effects = self._estimate_effects(
                entries, self.row_deviations(entries, others), self.feature_weights.rows
            )
            return np.column_stack([self.mean + effects, np.ones(effects.size)])
        effects = self._estimate_effects(
            entries, entries.values - self.mean, self.feature_weights.columns
        )
        return np.column_stack([np.ones(effects.size), effects])

    def row_deviations(self, entries: AxisEntries, columns: Latents) -> FloatArray:
        """Return the entries by row minus the mean and the column effects."""
        return entries.values - self.mean - columns.take(entries.others)[:, 1]

    def pack(self) -> Packed:
        return Packed({}, self.feature_weights.list_tensors())

    def _estimate_effects(
        self, entries: AxisEntries, deviations: FloatArray, weights: FloatArray | None
    ) -> FloatArray:
        prior = compute_prior(entries, weights)
        if prior is None:
            return compute_effects(entries, deviations, self._shrinkage)
        residuals = deviations - prior[entries.group_of, 0]
        return prior[:, 0] + compute_effects(entries, residuals, self._shrinkage)


class Means(Recommends, Model):
    """Overall mean + column effect + row effect, each shrunk to 0 where there are few entries;
    covers all four areas.

    The effect of a column is the mean of its entries minus the overall mean; the effect of a row is
    the mean of its residuals.

    >>> from deepmf.matrix.matrix import ObservedMatrix
    >>> model = Means(shrinkage=0).fit(ObservedMatrix.from_array([[1, 2], [3, np.nan]]))
    >>> model.predict([1], [1])
    array([3.])
    """

    settings_class: ClassVar[type[Settings]] = MeansSettings
    settings: MeansSettings
    takes_features: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True

    @property
    def mean_(self) -> float:
        """The mean of all training entries."""
        return self.rankers_.entries.train.mean

    @property
    def row_effects_(self) -> FloatArray:
        """The effect of each row."""
        return np.asarray(self.predictor_.rows.whole()[:, 0] - self.mean_, dtype=np.float64)

    @property
    def column_effects_(self) -> FloatArray:
        """The effect of each column."""
        return np.asarray(self.predictor_.columns.whole()[:, 1], dtype=np.float64)

    def _learn(self, entries: EntryStore, validation: HeldOut | None, fitting: Fitting) -> Fitted:
        self._fitted = check_products(Fitted(entries, self._make_predictor(None, entries, fitting)))
        self.history_ = History(
            best_error=None if validation is None else self._measure_means(validation)
        )
        return self._fitted

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> Any:
        raise NotImplementedError("there is nothing to learn in epochs")

    def _make_predictor(self, task: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        n_rows, n_columns = entries.train.shape
        encoder = EffectEncoder(entries.train.mean, self.settings.shrinkage)
        no_rows = Latents(np.empty((0, 2)))  # type: ignore[arg-type]
        by_column, by_row = (
            entries.column_entries(np.arange(n_columns)),
            entries.row_entries(np.arange(n_rows)),
        )
        weights = self._learn_feature_weights(by_column, by_column.values - encoder.mean)
        encoder.feature_weights = FeatureWeights(columns=weights)
        columns = Latents(encoder.encode("column", by_column, no_rows))
        weights = self._learn_feature_weights(by_row, encoder.row_deviations(by_row, columns))
        encoder.feature_weights = encoder.feature_weights._replace(rows=weights)
        rows = Latents(encoder.encode("row", by_row, columns))
        return Predictor.of(Factors(rows, columns, encoder, _N_BESIDE), Readout(entries.scale))

    def _learn_feature_weights(
        self, entries: AxisEntries, deviations: FloatArray
    ) -> FloatArray | None:
        """Return the weights (inputs, 1) by which features say what effects are; None where there
        are none.

        Every entry counts the same, because a new row or column is evaluated at its entries, and
        popular ones have more.
        """
        if entries.features is None:
            return None
        means = compute_effects(entries, deviations, 0.0)
        ridge = FeatureRidge(
            entries.features, entries.totals.astype(np.float64), self.settings.feature_penalty
        )
        return ridge.weights(means[:, None])

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        latents = unpack_latents(tensors, entries, width=_N_BESIDE, kind="float64")
        weights = load_feature_weights(entries, tensors, width=1, kind="float64")
        encoder = EffectEncoder(entries.train.mean, self.settings.shrinkage, weights)
        factors = Factors(*latents, encoder, _N_BESIDE).with_arrived(tensors, entries)
        return Predictor.of(factors, Readout(entries.scale))

    def _predict_means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        return Effects(self.row_effects_, self.column_effects_).evaluate(rows, columns, self.mean_)
