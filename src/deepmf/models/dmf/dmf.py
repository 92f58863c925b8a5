"""DMF: two branches and a cosine, which predict for new rows and columns without training."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from deepmf.layers.branch import Branch
from deepmf.layers.convolution import Convolution
from deepmf.layers.vectors import DenseVectors, Vectors
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.entry_store import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmf_network import DMFNetwork
from deepmf.models.dmf.dmf_objective import DMFObjective, all_directions
from deepmf.models.dmf.dmf_settings import DMFSettings
from deepmf.models.network_model import sparse_vectors
from deepmf.models.two_branch_model import TwoBranchModel
from deepmf.training.runtime import Runtime, private_generator
from deepmf.training.settings import Settings

# The convolution's widths in the authors' code, for rows and for columns.
_SUMMARY_WIDTHS = (20, 10)


class DMF(TwoBranchModel):
    """Deep matrix factorization: the cosine of what two branches make of a row's and of a column's entries.

    Settings are keyword arguments; `DMFSettings` explains them. A row or column without any entry is predicted from
    what its branch makes of an empty vector.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DMF(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=100, seed=0, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = DMFSettings
    settings: DMFSettings
    network_: DMFNetwork

    def _objective(self, train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime) -> DMFObjective:
        return DMFObjective(self._new_network(train), train, validation, self.settings, runtime)

    def _new_network(self, train: ObservedMatrix) -> DMFNetwork:
        return DMFNetwork(*self._branches(train))

    def _branches(self, train: ObservedMatrix) -> tuple[Branch, Branch]:
        """Return a branch that reads rows, and one that reads columns, with fresh weights."""
        generator = private_generator(self.settings.seed, "weights")
        n_filters = self.settings.summary_filters
        branches: list[Branch] = []
        for n_inputs, sizes, width in zip(
            reversed(train.shape), self.settings.branch_sizes, _SUMMARY_WIDTHS, strict=True
        ):
            summary = (
                Convolution(n_inputs, n_filters=n_filters, width=width, generator=generator) if n_filters else None
            )
            branches.append(
                Branch(n_inputs, sizes, dropout=self.settings.dropout, generator=generator, summary=summary)
            )
        rows, columns = branches
        return rows, columns

    def _width(self) -> int:
        return self.settings.latent_size

    def _row_latents(self, vectors: Vectors) -> LatentArray:
        return _directions(self.network_.rows, vectors)

    def _column_latents(self, vectors: Vectors) -> LatentArray:
        return _directions(self.network_.columns, vectors)

    def _vectors(self, entries: AxisEntries, n_inputs: int) -> Vectors:
        vectors = sparse_vectors(entries, ENCODINGS[self.settings.inputs].encode(self.scale_, entries.values))
        if not self.settings.summary_filters:
            return vectors
        table = torch.zeros(len(vectors), n_inputs, dtype=torch.float32)
        table[torch.repeat_interleave(torch.arange(len(table)), vectors.starts.diff()), vectors.indices.long()] = (
            vectors.weights
        )
        return DenseVectors(table)

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        cosines: LatentArray = super()._score_pairs(rows, columns)
        return np.clip(cosines, -1.0, 1.0, out=cosines)

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        cosines: LatentArray = super()._score_block(rows, columns)
        return np.clip(cosines, -1.0, 1.0, out=cosines)

    def _to_units(self, scores: npt.NDArray[Any]) -> FloatArray:
        return self.scale_.from_unit(scores)


def _directions(branch: Branch, vectors: Vectors) -> LatentArray:
    directions: LatentArray = all_directions(branch, vectors, single_precision=True).cpu().numpy()
    return directions
