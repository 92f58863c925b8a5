"""The readout of OrdinalDMF: expected values and distributions from scores and the rows' response parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.scale import Scale
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.ordinal_head import OrdinalHead
from deepmf.models.predictive_distribution import PredictiveDistribution
from deepmf.models.readout import Readout


class OrdinalReadout(Readout):
    """Scores are expected values; a row's response parameters are its cutpoints and the logarithm of its slope.

    linear_share: how much of the logits belongs to the linear part. linear_cutpoints: its cutpoints (none:
    those of no row in particular).
    coverages: those stated by intervals that hold evenly spaced shares of held-out values; None: the shares.
    """

    gives_distribution = True
    ranks_by_products = True

    def __init__(
        self,
        scale: Scale,
        head: OrdinalHead,
        layout: LatentLayout,
        linear_share: float = 0.0,
        linear_cutpoints: LatentArray | None = None,
        coverages: FloatArray | None = None,
    ) -> None:
        super().__init__(scale)
        self.linear_share, self.coverages = linear_share, coverages
        self._cutpoints: LatentArray = (
            head.cutpoints.detach().cpu().numpy() if linear_cutpoints is None else linear_cutpoints
        )
        self.row_fields = layout.response
        self._support: FloatArray = head.support.cpu().numpy()
        self._unit_boundaries: npt.NDArray[np.float32] = head.boundaries.cpu().numpy()

    @property
    def support(self) -> FloatArray:
        """The levels, or the mean values of the bins."""
        return self._support

    @property
    def unit_boundaries(self) -> npt.NDArray[np.float32]:
        """The boundaries between neighbouring values, in units of [-1, 1]."""
        return self._unit_boundaries

    def scores(self, products: npt.NDArray[Any], row_fields: LatentArray) -> FloatArray:
        """Return the expected value of each product, boundary by boundary, in memory of the size of the products."""
        slanted, cutpoints = self._mixed(products, row_fields)
        expected = np.full(slanted.shape, self._support[0])
        for number, step in enumerate(np.diff(self._support)):
            expected += step * expit(slanted - cutpoints[..., number])
        return expected

    def distribution(self, products: npt.NDArray[Any], row_fields: LatentArray) -> PredictiveDistribution:
        """Return the distribution over the support of each product."""
        slanted, cutpoints = self._mixed(products, row_fields)
        exceedance = expit(slanted[:, None] - cutpoints).astype(np.float64)
        found = PredictiveDistribution(self._support, self.scale.from_unit(self._unit_boundaries), exceedance)
        return found if self.coverages is None else found.calibrated(self.coverages)

    def _mixed(self, products: npt.NDArray[Any], row_fields: LatentArray) -> tuple[npt.NDArray[Any], LatentArray]:
        """Return products times slopes, and cutpoints, as the network and the linear part share them."""
        share = np.float32(self.linear_share)  # of the network there is the rest
        slanted = products * ((1 - share) * np.exp(row_fields[..., -1]))
        cutpoints: LatentArray = (1 - share) * row_fields[..., :-1] + share * self._cutpoints
        return slanted, cutpoints


def check_support(head: OrdinalHead, scale: Scale) -> None:
    """Refuse a stored support that is not that of a scale, or boundaries that do not lie between its values."""
    support, boundaries = head.support.numpy(), head.boundaries.numpy()
    if scale.levels is not None and not np.array_equal(support, scale.levels):
        raise BadModelFile(f"the stored support is not the levels of {scale}")
    falls = np.any(np.diff(support) < 0) or np.any(np.diff(boundaries) < 0)
    # A support of one value has no boundaries.
    if falls or not (scale.low <= support.min() and support.max() <= scale.high and np.all(np.abs(boundaries) <= 1.0)):
        raise BadModelFile(f"the stored support does not rise from one end of {scale} to the other")
