"""DMF-D: DMF that learns its own quantizer and answers in legal levels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.branch import Branch
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmf import DMF
from deepmf.models.dmf.dmf_network import DMFNetwork
from deepmf.models.dmf.dmf_objective import DMFObjective, in_units_of
from deepmf.models.dmf.dmf_settings import DMFDSettings
from deepmf.models.dmf.quantizer import Quantizer, sharpness_at
from deepmf.training.runtime import Runtime
from deepmf.training.settings import Settings


class DMFDNetwork(DMFNetwork):
    """Two branches, and the quantizer that is trained with them."""

    def __init__(self, rows: Branch, columns: Branch, quantizer: Quantizer) -> None:
        super().__init__(rows, columns)
        self.quantizer = quantizer


class DMFDObjective(DMFObjective):
    """Equation 5: the error of the softly quantized scores, plus the penalty that holds the boundaries near uniform."""

    network: DMFDNetwork

    def __init__(
        self,
        network: DMFDNetwork,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        settings: DMFDSettings,
        runtime: Runtime,
    ) -> None:
        super().__init__(network, train, validation, settings, runtime)
        self._discrete = settings
        # On the device, where a recorded graph reads it.
        self._sharpness = torch.zeros((), dtype=torch.float32, device=runtime.device)

    def error(self, cosines: Tensor, targets: Tensor) -> Tensor:
        """Return the error in the scale's units, with the bracket of equation 5 where it belongs: (G(F) - M)^2."""
        low, high = self.scale.low, self.scale.high
        quantized = self.network.quantizer.soft(in_units_of(low, high, cosines), self._sharpness)
        error = self.squared_error(quantized, in_units_of(low, high, targets))
        return error + self._discrete.gamma_boundaries * self.network.quantizer.penalty()

    def begin_epoch(self, epoch: int) -> None:
        """Sharpen the quantizer."""
        self._sharpness.fill_(
            sharpness_at(epoch, start=self._discrete.sharpness, growth=self._discrete.sharpness_growth)
        )

    def notes(self) -> dict[str, Any]:
        """Return the sharpness and the boundaries after an epoch."""
        boundaries = self.network.quantizer.boundaries.detach().cpu().tolist()
        return {"sharpness": self._sharpness.item(), "boundaries": boundaries}

    def predictions(self, cosines: Tensor) -> Tensor:
        """Return the level of each score."""
        return self.network.quantizer.hard(super().predictions(cosines))


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
    answers_levels: ClassVar[bool] = True
    network_: DMFDNetwork

    @property
    def boundaries_(self) -> FloatArray:
        """The learned boundaries between neighbouring levels."""
        self._seen  # noqa: B018 (says that the model is not fitted, where it is not)
        return self.network_.quantizer.boundaries.detach().numpy().astype(np.float64)

    def _objective(self, train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime) -> DMFDObjective:
        return DMFDObjective(self._new_network(train), train, validation, self.settings, runtime)

    def _new_network(self, train: ObservedMatrix) -> DMFDNetwork:
        levels = train.scale.levels_for("DMF-D").tolist()
        with torch.device("cpu"):  # of a network without weights, too: the levels are known
            quantizer = Quantizer(levels)
        return DMFDNetwork(*self._branches(train), quantizer)

    def _to_values(self, scores: npt.NDArray[Any]) -> FloatArray:
        return self._to_levels(scores)

    def _to_levels(self, scores: npt.NDArray[Any]) -> FloatArray:
        levels = self.scale_.levels
        assert levels is not None
        units = torch.from_numpy(self._to_units(scores).astype(np.float32))
        chosen: FloatArray = levels[self.network_.quantizer.positions(units).numpy()]
        return chosen
