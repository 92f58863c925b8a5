"""DMF-D: DMF with a learned quantizer, which predicts levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from deepmf.matrix.arrays import Array, FloatArray, SingleArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmf import DMF, CosineReadout, DMFSettings
from deepmf.models.trained_network import TrainedNetwork
from deepmf.training.settings import Settings, setting, settings_dataclass

if TYPE_CHECKING:
    from deepmf.models.dmfd_network import DMFDNetwork, DMFDObjective


@settings_dataclass
class DMFDSettings(DMFSettings):
    """The settings of DMF-D: those of DMF, and those of the quantizer."""

    sharpness: float = setting(
        0.1, "Sharpness of the quantizer in the first epoch (lambda in equation 4).", above=0.0
    )
    sharpness_growth: float = setting(1.015, "Factor on the sharpness after each epoch.", low=1.0)
    gamma_boundaries: float = setting(
        0.1,
        "Weight of the penalty that keeps boundaries near the uniform quantizer (gamma_2 in equation 5).",
        low=0.0,
    )


class QuantizedReadout(CosineReadout):
    """Predictions are levels, chosen by the learned quantizer."""

    predicts_levels = True

    def __init__(self, scale: Scale, boundaries: SingleArray) -> None:
        super().__init__(scale)
        self.boundaries = boundaries

    def values(self, scores: Array) -> FloatArray:
        levels = self.scale.require_levels("DMF-D")
        units = self.units(scores).astype(self.boundaries.dtype)
        interval = np.searchsorted(levels[1:-1].astype(units.dtype), units, side="right")
        chosen: FloatArray = levels[interval + (units >= self.boundaries[interval])]
        return chosen


def bound(boundaries: SingleArray, levels: FloatArray) -> SingleArray:
    """Return boundaries, each strictly between its two levels, as in training."""
    levels = levels.astype(boundaries.dtype)
    least, most = np.nextafter(levels[:-1], np.inf), np.nextafter(levels[1:], -np.inf)
    return np.clip(boundaries, least, most)


class DMFD(DMF):
    """Discrete DMF: a quantizer from scores to levels is trained together with the branches.

    Predictions are levels; rankings use the scores. The scale needs at least two levels. Settings
    are keyword arguments, see `DMFDSettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DMFD(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=100, seed=0, device="cpu").fit(board)
    >>> model.predict([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = DMFDSettings
    settings: DMFDSettings

    @property
    def boundaries_(self) -> FloatArray:
        """The learned boundaries between neighbouring levels."""
        readout = self.predictor_.readout
        assert isinstance(readout, QuantizedReadout)
        return readout.boundaries.astype(np.float64)

    def _make_objective(self, train: ObservedMatrix) -> DMFDObjective:
        from deepmf.models.dmfd_network import DMFDObjective

        return DMFDObjective(train, self.settings)

    def _new_network(self, entries: EntryStore) -> DMFDNetwork:
        import torch

        from deepmf.models.dmfd_network import DMFDNetwork, Quantizer

        levels = entries.scale.require_levels("DMF-D").tolist()
        # also for a network on the meta device, because the levels are known
        with torch.device("cpu"):
            quantizer = Quantizer(levels)
        return DMFDNetwork(*self._make_branches(entries), quantizer)

    def _describe_weights(self, entries: EntryStore) -> dict[str, Any]:
        n_boundaries = entries.scale.require_levels("DMF-D").size - 1
        boundaries = {"quantizer.free_boundaries": ("float32", (n_boundaries,))}
        return super()._describe_weights(entries) | boundaries

    def _make_readout(self, network: TrainedNetwork, scale: Scale) -> QuantizedReadout:
        levels = scale.require_levels("DMF-D")
        return QuantizedReadout(scale, bound(network.weights["quantizer.free_boundaries"], levels))
