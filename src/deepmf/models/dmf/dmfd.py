"""DMF-D: DMF with a learned quantizer, which predicts legal levels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.branch import Branch
from deepmf.layers.masking import Masking
from deepmf.layers.ranks import Total, itself
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmf.dmf import DMF, CosineReadout
from deepmf.models.dmf.dmf_network import DMFNetwork
from deepmf.models.dmf.dmf_objective import DMFObjective
from deepmf.models.dmf.dmf_settings import DMFDSettings
from deepmf.models.dmf.quantizer import Quantizer, sharpness_at
from deepmf.training.declarations import takes_settings
from deepmf.training.settings import Settings


class DMFDNetwork(DMFNetwork):
    """Two branches, and the quantizer that is trained with them."""

    def __init__(self, rows: Branch, columns: Branch, quantizer: Quantizer, masking: Masking | None = None) -> None:
        super().__init__(rows, columns, masking)
        self.quantizer = quantizer


class DMFDObjective(DMFObjective):
    """Equation 5: the error of the softly quantized scores, plus the penalty that holds the boundaries near uniform."""

    sharpness: Tensor  # a buffer, so that it lies where a captured graph reads it

    def __init__(self, scale: Scale, settings: DMFDSettings) -> None:
        super().__init__(scale, root=settings.loss == "root", gamma=settings.gamma)
        self._start, self._growth = settings.sharpness, settings.sharpness_growth
        self._gamma_boundaries = settings.gamma_boundaries
        self.register_buffer("sharpness", torch.zeros((), dtype=torch.float32), persistent=False)

    def error(  # type: ignore[override]
        self, network: DMFDNetwork, cosines: Tensor, targets: Tensor, total: Total = itself
    ) -> Tensor:
        """Return the error in the scale's units, with the bracket of equation 5 where it belongs: (G(F) - M)^2."""
        in_scale = self.scale.unit_map.from_unit
        quantized = network.quantizer.soft(in_scale(cosines), self.sharpness)
        error = self.squared_error(quantized, in_scale(targets), total)
        return error + self._gamma_boundaries * network.quantizer.penalty()

    def begin_epoch(self, epoch: int) -> None:
        """Sharpen the quantizer."""
        self.sharpness.fill_(sharpness_at(epoch, start=self._start, growth=self._growth))

    def notes(self, network: DMFDNetwork) -> dict[str, Any]:
        """Return the sharpness and the boundaries after an epoch."""
        boundaries = network.quantizer.boundaries.detach().cpu().tolist()
        return {"sharpness": self.sharpness.item(), "boundaries": boundaries}

    def read(self, network: DMFDNetwork, cosines: Tensor) -> Tensor:  # type: ignore[override]
        """Return the level of each cosine."""
        return network.quantizer.hard(super().read(network, cosines))


class QuantizedReadout(CosineReadout):
    """Predictions are levels, chosen by the learned quantizer."""

    predicts_levels = True

    def __init__(self, scale: Scale, quantizer: Quantizer) -> None:
        super().__init__(scale)
        self._quantizer = quantizer

    def values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        return self.levels(scores)

    def levels(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        levels = self.scale.levels
        assert levels is not None
        units = torch.from_numpy(self.units(scores).astype(np.float32))
        chosen: FloatArray = levels[self._quantizer.positions(units).numpy()]
        return chosen


class DMFD(DMF):
    """Discrete DMF: the quantizer between scores and levels is learned together with the branches.

    Predictions are legal levels; rankings go by the scores underneath. For matrices with at least two levels.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DMFD(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=100, seed=0, device="cpu").fit(board)
    >>> model.predict([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = DMFDSettings
    settings: DMFDSettings

    @takes_settings(DMFDSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    @property
    def boundaries_(self) -> FloatArray:
        """The learned boundaries between neighbouring levels."""
        boundaries: Tensor = self.network_.quantizer.boundaries
        return boundaries.detach().numpy().astype(np.float64)

    def _objective(self, train: ObservedMatrix) -> DMFDObjective:
        return DMFDObjective(train.scale, self.settings)

    def _new_network(self, entries: EntryStore) -> DMFDNetwork:
        levels = entries.scale.levels_for("DMF-D").tolist()
        with torch.device("cpu"):  # of a network without weights, too: the levels are known
            quantizer = Quantizer(levels)
        return DMFDNetwork(*self._branches(entries), quantizer, self._masking(entries))

    def _readout(self, network: DMFDNetwork, scale: Scale) -> QuantizedReadout:
        return QuantizedReadout(scale, network.quantizer)
