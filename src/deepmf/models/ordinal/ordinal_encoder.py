"""The encoder of OrdinalDMF: views of the entries of rows and columns, refined by the entries themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.scale import Scale
from deepmf.models.factorization.factorization_settings import ALSSettings
from deepmf.models.feature_ridge import stored_weights
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkEncoder, sparse_vectors
from deepmf.models.ordinal.entry_parts import entry_parts
from deepmf.models.ordinal.landmarks import Landmarks
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.linear_part import Blend, LinearPart, SolvedLinear
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.models.ordinal.penalties import Penalties
from deepmf.models.ordinal.refinement import Refinement, column_side, row_side
from deepmf.storage.packed import Packed, Tensors, field

# The largest penalty or weight that a file may hold.
_LARGEST = 1e12


class OrdinalEncoder(NetworkEncoder):
    """Views of the entries by the network, averaged, and refined along landmarks and along rows.

    landmarks: the directions (landmarks, direction) that give the features of columns in the refinement of rows.
    refinement_columns: the latents of the trained columns that rows are refined by, a round behind the final ones;
        those of the linear part are the ones that it begins with.
    penalties: the ridge penalties of the refinement of rows and of columns.
    linear: the linear part, where there is one.
    coverages: those stated by intervals that hold evenly spaced shares of held-out values; None: the shares.
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
        linear: LinearPart | None = None,
        coverages: FloatArray | None = None,
    ) -> None:
        super().__init__(network)
        self.linear, self.coverages = linear, coverages
        self.landmarks, self.refinement_columns, self.penalties = landmarks, refinement_columns, penalties
        self.scale = scale

    @property
    def layout(self) -> LatentLayout:
        """The fields of latents."""
        return replace(
            self.network.layout,
            n_landmarks=len(self.landmarks),
            n_linear=0 if self.linear is None else self.linear.width,
        )

    @property
    def linear_share(self) -> float:
        """How much of the logits belongs to the linear part."""
        return 0.0 if self.linear is None else self.linear.blend.share

    @property
    def linear_cutpoints(self) -> LatentArray | None:
        """The cutpoints of the linear part, where there is one."""
        return None if self.linear is None else self.linear.cutpoints(self.network.head)

    @torch.no_grad()
    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of rows."""
        return self._with_linear_rows(self._refined(self.row_refinement(), entries), entries)

    @torch.no_grad()
    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents of columns."""
        refined = self._refined(self.column_refinement(rows.base), entries)
        return self._with_linear_columns(refined, entries, rows)

    @torch.no_grad()
    def rows_without_each(self, entries: AxisEntries, left_out: IndexArray, columns: Latents) -> LatentArray:
        """Return the latents of a single row without each of some of its entries."""
        refined = self.row_refinement().without_each(*self._to_leave_out(entries, left_out))
        return self._with_linear_rows(as_numpy(refined), entries.without_each(left_out))

    @torch.no_grad()
    def columns_without_each(self, entries: AxisEntries, left_out: IndexArray, rows: Latents) -> LatentArray:
        """Return the latents of a single column without each of some of its entries."""
        refined = self.column_refinement(rows.base).without_each(*self._to_leave_out(entries, left_out))
        return self._with_linear_columns(as_numpy(refined), entries.without_each(left_out), rows)

    def trained_rows(self, entries: EntryStore) -> LatentArray:
        """Return the latents of all trained rows without the linear part, computed in parts that fit into memory."""
        refinement, parts = self.row_refinement(), entry_parts(entries.train.row_counts)
        return np.concatenate([self._refined(refinement, entries.row_entries(part)) for part in parts])

    def trained_columns(self, entries: EntryStore, row_latents: LatentArray) -> LatentArray:
        """Return those of all trained columns, by the latents of the trained rows."""
        refinement, parts = self.column_refinement(row_latents), entry_parts(entries.train.column_counts)
        return np.concatenate([self._refined(refinement, entries.column_entries(part)) for part in parts])

    def _refined(self, refinement: Refinement, entries: AxisEntries) -> LatentArray:
        """Return the latents of rows, or of columns, without the linear part."""
        return as_numpy(refinement.latents(self.vectors(entries).to(self._device)))

    def row_refinement(self) -> Refinement:
        """Return the refinement of rows, by the columns that are kept for it."""
        response = self.layout.response

        def own_response(latents: Tensor, viewed: Tensor) -> Tensor:
            return latents[:, None, response].expand(-1, viewed.shape[1], -1)

        columns, side = self._on_device(self.refinement_columns), row_side(self.network, self.layout)
        return Refinement(self.network.head, side, columns, own_response, self.penalties.rows)

    def column_refinement(self, row_latents: LatentArray) -> Refinement:
        """Return the refinement of columns, by the latents of the trained rows."""
        n_response = self.layout.n_response

        def others_response(latents: Tensor, viewed: Tensor) -> Tensor:
            return viewed[..., -n_response:]

        side = column_side(self.network, self._landmarks(), self.layout)
        rows = self._on_device(row_latents)
        return Refinement(self.network.head, side, rows, others_response, self.penalties.columns)

    def join(
        self, part: LinearPart, begin: LatentArray, solved: SolvedLinear, rows: LatentArray, columns: LatentArray
    ) -> tuple[LatentArray, LatentArray]:
        """Take a linear part that begins with some columns; return the latents of all rows and columns with it."""
        start = self.layout.linear.start

        def placed(latents: LatentArray, linear: LatentArray) -> LatentArray:
            return np.hstack([latents[:, :start], linear, latents[:, start:]])

        self.linear, self.refinement_columns = part, placed(self.refinement_columns, begin)
        return placed(rows, part.weighted(solved.rows, rows[:, -1])), placed(columns, solved.columns)

    def _with_linear_rows(self, latents: LatentArray, entries: AxisEntries) -> LatentArray:
        """Return latents of rows, whose fields of the linear part are set."""
        if self.linear is not None:
            fields = self.layout.linear
            latents[:, fields] = self.linear.rows(entries, self.refinement_columns[:, fields], latents[:, -1])
        return latents

    def _with_linear_columns(self, latents: LatentArray, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return latents of columns, whose fields of the linear part are set."""
        if self.linear is not None:
            fields = self.layout.linear
            latents[:, fields] = self.linear.columns(entries, rows.base[:, fields], rows.base[:, -1])
        return latents

    def pack(self) -> Packed:
        """Return the network, landmarks, the columns that rows are refined by, and what held-out entries chose."""
        packed = super().pack()
        learned = {"refinement.columns": self.refinement_columns, "refinement.landmarks": self.landmarks}
        content = {
            "penalties": [penalty if math.isfinite(penalty) else None for penalty in self.penalties],
            "linear": None if self.linear is None else self.linear.pack(),
        }
        content |= {} if self.coverages is None else {"coverages": self.coverages.tolist()}
        of_features = {} if self.linear is None else self.linear.feature_weights.tensors()
        return Packed(packed.content | content, packed.tensors | learned | of_features)

    @property
    def _device(self) -> torch.device:
        return self.network.head.scale.device

    def _on_device(self, latents: LatentArray) -> Tensor:
        return torch.from_numpy(latents).to(self._device)

    def _to_leave_out(self, entries: AxisEntries, left_out: IndexArray) -> tuple[SparseVectors, Tensor]:
        return self.vectors(entries).to(self._device), torch.from_numpy(left_out).to(self._device)

    def _landmarks(self) -> Landmarks:
        return Landmarks(self._on_device(self.landmarks))

    def vectors(self, entries: AxisEntries) -> SparseVectors:
        """Return entries as the branches read them."""
        return sparse_vectors(entries, ENCODINGS["scaled"].encode(self.scale, entries.values))


def as_numpy(latents: Tensor) -> LatentArray:
    array: LatentArray = latents.cpu().numpy()
    return array


def stored_parts(content: Any, entries: EntryStore, tensors: Tensors) -> dict[str, Any]:
    """Return what an encoder packed of what was chosen on held-out entries; anything else raises `BadModelFile`."""
    train = entries.train
    penalties, linear = field(content, "penalties"), field(content, "linear")
    if not isinstance(penalties, list) or len(penalties) != 2:
        raise BadModelFile("the stored penalties must be two")
    kept = Penalties(*(math.inf if each is None else _positive(each, "penalty") for each in penalties))
    part = None
    if linear is not None:
        size = field(linear, "size")
        if type(size) is not int or not 1 <= size <= min(train.shape):
            raise BadModelFile(f"the stored size of the linear part must be 1 to {min(train.shape)}")
        share = _positive(field(linear, "share"), "share of the linear part", below=1.0)
        width = train.scale.high - train.scale.low or 1.0
        slope = _positive(field(linear, "slope"), "slope of the linear part", below=_LARGEST / width)
        weights = stored_weights(entries, tensors, width=size + 1, kind="float32")
        # Files of earlier versions have neither: their parts have the usual penalty on every scale.
        penalty = _positive(linear.get("penalty", ALSSettings().penalty), "penalty of the linear part")
        in_values = linear.get("in_values", False)
        if type(in_values) is not bool or (in_values and train.scale.levels is not None):
            raise BadModelFile("the linear part can be in values only on a scale without levels")
        settings = ALSSettings(latent_size=size, penalty=penalty)
        part = LinearPart(train, settings, Blend(share, slope, in_values), weights)
    coverages = _coverages(content["coverages"]) if "coverages" in content else None
    return {"penalties": kept, "linear": part, "coverages": coverages}


def _coverages(content: Any) -> FloatArray:
    """Return stored coverages, which rise from 0 to 1."""
    if not isinstance(content, list) or not all(type(each) in (int, float) for each in content):
        raise BadModelFile("the stored coverages must be a list of numbers")
    coverages = np.array(content, dtype=np.float64)
    if coverages.size < 2 or coverages[0] != 0 or coverages[-1] != 1 or not np.all(np.diff(coverages) > 0):
        raise BadModelFile("the stored coverages must rise from 0 to 1")
    return coverages


def _positive(value: Any, name: str, *, below: float = _LARGEST) -> float:
    if type(value) not in (int, float) or not 0.0 < value < below:
        raise BadModelFile(f"the stored {name} must be a number above 0 and below {below:g}")
    return float(value)
