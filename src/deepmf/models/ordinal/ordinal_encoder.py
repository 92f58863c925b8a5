"""The encoder of OrdinalDMF: views of the entries of rows and columns, refined by the entries themselves."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.arrays import LatentArray
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.entry_store import AxisEntries, EntryStore
from deepmf.matrix.scale import Scale
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkEncoder, sparse_vectors
from deepmf.models.ordinal.landmarks import Landmarks, landmarks_among
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.models.ordinal.penalties import HeldOutSide, Penalties, best_penalty
from deepmf.models.ordinal.refinement import Refinement, column_side, layout_with, row_side
from deepmf.storage.packed import Packed
from deepmf.training.matrix_blocks import MatrixBlocks
from deepmf.training.validation import ValidationEntries

# Rows are refined by columns and columns by rows this many times; a third round gains half of what the second does.
_ROUNDS = 2


class OrdinalEncoder(NetworkEncoder):
    """Views of the entries by the network, averaged, and refined along landmarks and along rows.

    landmarks: the directions (landmarks, direction) that give the features of columns in the refinement of rows.
    refinement_columns: the latents of the trained columns that rows are refined by, a round behind the final ones.
    penalties: the ridge penalties of the refinement of rows and of columns.
    """

    network: OrdinalNetwork

    def __init__(
        self,
        network: OrdinalNetwork,
        scale: Scale,
        *,
        landmarks: LatentArray,
        refinement_columns: LatentArray,
        penalties: Penalties,
    ) -> None:
        super().__init__(network)
        self.landmarks, self.refinement_columns, self.penalties = landmarks, refinement_columns, penalties
        self._scale = scale

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

    def encode_rows(self, vectors: SparseVectors) -> LatentArray:
        """Return the latents of rows as vectors."""
        return _numpy(self.row_refinement().latents(vectors.to(self._device), self.penalties.rows))

    def encode_columns(self, vectors: SparseVectors, row_latents: LatentArray) -> LatentArray:
        """Return the latents of columns as vectors, by the latents of the trained rows."""
        return _numpy(self.column_refinement(row_latents).latents(vectors.to(self._device), self.penalties.columns))

    def row_refinement(self) -> Refinement:
        """Return the refinement of rows, by the columns that are kept for it."""
        response = self.layout.response

        def own_response(latents: Tensor, others: Tensor) -> Tensor:
            return latents[:, None, response].expand(-1, others.shape[1], -1)

        columns = torch.from_numpy(self.refinement_columns).to(self._device)
        return Refinement(self.network.head, row_side(self.network, self._landmarks()), columns, own_response)

    def column_refinement(self, row_latents: LatentArray) -> Refinement:
        """Return the refinement of columns, by the latents of the trained rows."""
        response = self.layout.response

        def others_response(latents: Tensor, others: Tensor) -> Tensor:
            return others[..., response]

        rows = torch.from_numpy(row_latents).to(self._device)
        return Refinement(self.network.head, column_side(self.network, self._landmarks()), rows, others_response)

    def pack(self) -> Packed:
        """Return the network, the landmarks and the columns that rows are refined by."""
        packed = super().pack()
        learned = {"refinement.columns": self.refinement_columns, "refinement.landmarks": self.landmarks}
        return Packed(packed.content, packed.tensors | learned)

    @property
    def _device(self) -> torch.device:
        return self.network.head.scale.device

    def _landmarks(self) -> Landmarks:
        return Landmarks(torch.from_numpy(self.landmarks).to(self._device))

    def _vectors(self, entries: AxisEntries) -> SparseVectors:
        return sparse_vectors(entries, ENCODINGS["scaled"].encode(self._scale, entries.values))


def trained_encoder(
    network: OrdinalNetwork,
    source: MatrixBlocks,
    entries: EntryStore,
    validation: ValidationEntries | None,
    *,
    n_landmarks: int,
    row_penalty: float | None,
    column_penalty: float | None,
    seed: int,
) -> tuple[OrdinalEncoder, Latents, Latents]:
    """Return the encoder of a trained network, and the latents of all rows and columns.

    Columns start as the branch has them; then rows are refined by columns and these by rows, in rounds. Penalties that
    are not given are chosen on validation entries, or on training entries that the refinement does not see meanwhile.
    """
    viewed = network.viewed_column_latents(source.columns)
    directions = viewed[:, network.layout.direction]
    chosen = directions[landmarks_among(directions, n_landmarks)]
    start = column_side(network, Landmarks(chosen)).placed(viewed[:, None])[:, 0]
    encoder = OrdinalEncoder(
        network,
        entries.scale,
        landmarks=_numpy(chosen),
        refinement_columns=_numpy(start),
        penalties=Penalties(row_penalty or math.inf, column_penalty or math.inf),
    )
    n_rows, n_columns = entries.train.shape
    row_vectors = encoder._vectors(entries.row_entries(np.arange(n_rows)))
    column_vectors = encoder._vectors(entries.column_entries(np.arange(n_columns)))
    if row_penalty is None or column_penalty is None:
        held_out = validation
        of_rows = HeldOutSide(held_out.rows, held_out.columns, held_out.values, own_are_rows=True)
        of_columns = HeldOutSide(held_out.columns, held_out.rows, held_out.values, own_are_rows=False)
        if row_penalty is None:
            row_penalty = best_penalty(encoder.row_refinement(), row_vectors, of_rows, encoder.layout, seed=seed)
            encoder.penalties = encoder.penalties._replace(rows=row_penalty)
        if column_penalty is None:
            row_latents = encoder.encode_rows(row_vectors)
            column_penalty = best_penalty(
                encoder.column_refinement(row_latents), column_vectors, of_columns, encoder.layout, seed=seed
            )
            encoder.penalties = encoder.penalties._replace(columns=column_penalty)
    column_latents = encoder.refinement_columns
    for _ in range(_ROUNDS):
        encoder.refinement_columns = column_latents
        row_latents = encoder.encode_rows(row_vectors)
        column_latents = encoder.encode_columns(column_vectors, row_latents)
    return encoder, Latents(row_latents), Latents(column_latents)


def _numpy(latents: Tensor) -> LatentArray:
    array: LatentArray = latents.cpu().numpy()
    return array
