"""The encoder of OrdinalDMF: views of the entries of rows and columns, refined by the entries themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.entry_store import AxisEntries, EntryStore
from deepmf.matrix.scale import Scale
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkEncoder, sparse_vectors
from deepmf.models.ordinal.landmarks import Landmarks, landmarks_among
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.models.ordinal.refinement import RefinedSide, Refinement, column_side, layout_with, row_side
from deepmf.storage.packed import Packed
from deepmf.training.matrix_blocks import MatrixBlocks

# Rows are refined by columns and columns by rows this many times; a third round gains half of what the second does.
_ROUNDS = 2


class OrdinalEncoder(NetworkEncoder):
    """Views of the entries by the network, averaged, and refined along landmarks and along rows.

    landmarks: the directions (landmarks, direction) that give the features of columns in the refinement of rows.
    refinement_columns: the latents of the trained columns that rows are refined by, a round behind the final ones.
    row_penalty, column_penalty: the ridge penalty of the refinement of each side (None: no refinement).
    """

    network: OrdinalNetwork

    def __init__(
        self,
        network: OrdinalNetwork,
        scale: Scale,
        *,
        landmarks: LatentArray,
        refinement_columns: LatentArray,
        row_penalty: float | None,
        column_penalty: float | None,
    ) -> None:
        super().__init__(network)
        self.landmarks, self.refinement_columns = landmarks, refinement_columns
        self._scale, self._row_penalty, self._column_penalty = scale, row_penalty, column_penalty

    @property
    def layout(self) -> LatentLayout:
        """The fields of latents."""
        return layout_with(self.network, self._landmarks())

    @torch.no_grad()
    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of rows."""
        return self.encode_rows(self._vectors(entries))

    @torch.no_grad()
    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents of columns."""
        return self.encode_columns(self._vectors(entries), rows.base)

    @torch.no_grad()
    def rows_without_each(self, entries: AxisEntries, left_out: IndexArray, columns: Latents) -> LatentArray:
        """Return the latents of a single row without each of some of its entries."""
        return _numpy(self.row_refinement().without_each(self._vectors(entries), torch.from_numpy(left_out)))

    @torch.no_grad()
    def columns_without_each(self, entries: AxisEntries, left_out: IndexArray, rows: Latents) -> LatentArray:
        """Return the latents of a single column without each of some of its entries."""
        refinement = self.column_refinement(rows.base)
        return _numpy(refinement.without_each(self._vectors(entries), torch.from_numpy(left_out)))

    def encode_rows(self, vectors: SparseVectors) -> LatentArray:
        """Return the latents of rows as vectors."""
        return self._encoded(self.row_refinement(), vectors)

    def encode_columns(self, vectors: SparseVectors, row_latents: LatentArray) -> LatentArray:
        """Return the latents of columns as vectors, by the latents of the trained rows."""
        return self._encoded(self.column_refinement(row_latents), vectors)

    def row_refinement(self) -> Refinement:
        """Return the refinement of rows by the trained columns."""
        side, response = row_side(self.network, self._landmarks()), self.layout.response

        def own_response(latents: Tensor, others: Tensor) -> Tensor:
            return latents[:, None, response].expand(-1, others.shape[1], -1)

        return self._refinement(side, self.refinement_columns, own_response, self._row_penalty)

    def column_refinement(self, row_latents: LatentArray) -> Refinement:
        """Return the refinement of columns by the latents of the trained rows."""
        side, response = column_side(self.network, self._landmarks()), self.layout.response

        def others_response(latents: Tensor, others: Tensor) -> Tensor:
            return others[..., response]

        return self._refinement(side, row_latents, others_response, self._column_penalty)

    def pack(self) -> Packed:
        """Return the network, the landmarks and the columns that rows are refined by."""
        packed = super().pack()
        learned = {"refinement.columns": self.refinement_columns, "refinement.landmarks": self.landmarks}
        return Packed(packed.content, packed.tensors | learned)

    def _refinement(
        self,
        side: RefinedSide,
        others: LatentArray,
        response_of: Callable[[Tensor, Tensor], Tensor],
        penalty: float | None,
    ) -> Refinement:
        known = torch.from_numpy(others).to(self.network.head.scale.device)
        return Refinement(self.network.head, side, known, response_of, penalty)

    def _encoded(self, refinement: Refinement, vectors: SparseVectors) -> LatentArray:
        return _numpy(refinement.latents(vectors.to(self.network.head.scale.device)))

    def _landmarks(self) -> Landmarks:
        return Landmarks(torch.from_numpy(self.landmarks).to(self.network.head.scale.device))

    def _vectors(self, entries: AxisEntries) -> SparseVectors:
        return sparse_vectors(entries, ENCODINGS["scaled"].encode(self._scale, entries.values))


def trained_encoder(
    network: OrdinalNetwork,
    source: MatrixBlocks,
    entries: EntryStore,
    *,
    n_landmarks: int,
    row_penalty: float | None,
    column_penalty: float | None,
) -> tuple[OrdinalEncoder, Latents, Latents]:
    """Return the encoder of a trained network, and the latents of all rows and columns.

    Columns start as the branch has them; then rows are refined by columns and these by rows, in rounds.
    """
    viewed = network.viewed_column_latents(source.columns)
    directions = viewed[:, network.layout.direction]
    chosen = directions[landmarks_among(directions, 0 if row_penalty is None else n_landmarks)]
    start = column_side(network, Landmarks(chosen)).placed(viewed)
    encoder = OrdinalEncoder(
        network,
        entries.scale,
        landmarks=_numpy(chosen),
        refinement_columns=_numpy(start),
        row_penalty=row_penalty,
        column_penalty=column_penalty,
    )
    n_rows, n_columns = entries.train.shape
    row_vectors = encoder._vectors(entries.row_entries(np.arange(n_rows)))
    column_vectors = encoder._vectors(entries.column_entries(np.arange(n_columns)))
    column_latents = encoder.refinement_columns
    for _ in range(1 if None in (row_penalty, column_penalty) else _ROUNDS):
        encoder.refinement_columns = column_latents
        row_latents = encoder.encode_rows(row_vectors)
        column_latents = encoder.encode_columns(column_vectors, row_latents)
    return encoder, Latents(row_latents), Latents(column_latents)


def _numpy(latents: Tensor) -> LatentArray:
    array: LatentArray = latents.cpu().numpy()
    return array
