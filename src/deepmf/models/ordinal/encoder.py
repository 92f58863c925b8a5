"""The network of OrdinalDMF as a member of a blend: latents of rows and columns from their entries,
and how `fit` makes them.

The latent of a row is the mean of the branch's latents over views, and one refinement step on the
row's own entries; so for columns. Landmarks and penalties are chosen after the network is trained,
on held-out entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import BoolArray, IndexArray, LatentArray, fetch
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.library import place_beside
from deepmf.matrix.scale import Scale
from deepmf.models.members import MemberFit, MemberInputs
from deepmf.models.network_model import TrainedEncoder
from deepmf.models.ordinal.head import LatentLayout
from deepmf.models.ordinal.refinement import (
    ColumnRefinement,
    Landmarks,
    Penalties,
    Refinement,
    RowRefinement,
    TrainedOrdinal,
    choose_landmarks,
    choose_penalty,
)
from deepmf.models.ordinal.settings import OrdinalDMFSettings
from deepmf.scoring.encoders import SolvingEncoder, split_by_entries
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check
from deepmf.storage.parts import Form, Part, below, positive
from deepmf.training.holdout import HeldOut

# Columns are refined given rows and rows given columns this many times; a third round gains half of
# the second.
_ROUNDS = 2

# The penalties without held-out entries: those that were best on MovieLens.
_DEFAULT_PENALTIES = Penalties(3.0, 40.0)

# The largest penalty, and logarithm of a slope, of which exp is still finite in float32, that a
# model file may hold.
_LARGEST_PENALTY, _LARGEST_LOG_SLOPE = 1e12, 80.0


class OrdinalEncoder(TrainedEncoder, SolvingEncoder):
    """Encodes rows and columns: views through the branches, averaged and refined.

    Parameters
    ----------
    landmarks : directions of the Nyström landmarks, (landmarks, direction).
    refinement_columns : latents of the trained columns that rows are refined by, one round behind
        the final latents.
    penalties : ridge penalties of the refinement of rows and of columns.
    """

    network: TrainedOrdinal

    def __init__(
        self,
        network: TrainedOrdinal,
        scale: Scale,
        *,
        landmarks: LatentArray,
        refinement_columns: LatentArray,
        penalties: Penalties,
    ) -> None:
        super().__init__(network)
        self.scale = scale
        self.landmarks, self.refinement_columns = landmarks, refinement_columns
        self.penalties = penalties
        self.sides = self.layout.response

    @property
    def layout(self) -> LatentLayout:
        """The fields of latents."""
        return replace(self.network.layout, n_landmarks=len(self.landmarks))

    def read_location(self, products: LatentArray, row_sides: LatentArray) -> LatentArray:
        """Return the products (rows, ...) times the slopes of rows."""
        slopes = np.exp(row_sides[:, -1])
        located: LatentArray = products * slopes.reshape(-1, *[1] * (products.ndim - 1))
        return located

    def read_fields(
        self, row_sides: LatentArray, column_sides: LatentArray | None = None
    ) -> LatentArray:
        """Return the cutpoints of rows."""
        return row_sides[:, :-1]

    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the latents of rows (or columns)."""
        if axis == "row":
            return self.refine(self.make_row_refinement(others), entries)
        return self.refine(self.make_column_refinement(others.base, others), entries)

    def refine_all(self, refinement: Refinement, entries: EntryStore) -> LatentArray:
        """Return the latents of all trained rows, or columns, a part of them at a time."""
        if refinement.axis == "row":
            counts, take = entries.train.row_counts, entries.row_entries
        else:
            counts, take = entries.train.column_counts, entries.column_entries
        return np.concatenate(
            [self.refine(refinement, take(part)) for part in split_by_entries(counts)]
        )

    def make_row_refinement(self, columns: Latents | None = None) -> RowRefinement:
        """Return the refinement of rows, given `refinement_columns` and the latents of new
        columns."""
        return RowRefinement(
            network=self.network,
            scale=self.scale,
            layout=self.layout,
            others=self.send(self.refinement_columns),
            penalty=self.penalties.rows,
            new=self._take_new(columns),
        )

    def make_column_refinement(
        self, row_latents: LatentArray, rows: Latents | None = None
    ) -> ColumnRefinement:
        """Return the refinement of columns, given the latents of the trained rows and of new
        ones."""
        return ColumnRefinement(
            network=self.network,
            scale=self.scale,
            layout=self.layout,
            others=self.send(row_latents),
            penalty=self.penalties.columns,
            new=self._take_new(rows),
            landmarks=Landmarks(self.send(self.landmarks)),
        )

    def pack(self) -> Packed:
        """Return the network, the landmarks, the refinement columns, and the penalties."""
        network = super().pack()
        refinement = _REFINEMENT.pack(columns=self.refinement_columns, landmarks=self.landmarks)
        penalties = {
            axis: penalty if math.isfinite(penalty) else None
            for axis, penalty in self.penalties._asdict().items()
        }
        return Packed(
            _PENALTIES.pack(penalties=penalties).content, network.tensors | refinement.tensors
        )

    def refine(self, refinement: Refinement, entries: AxisEntries) -> LatentArray:
        """Return latents; all vectors without entries and features share one."""
        is_first, places = share_empty(entries.are_empty)
        return refinement.refine(entries.take(is_first))[places]

    def _take_new(self, others: Latents | None) -> Any:
        """Return the latents of new rows, or columns; None where there are none."""
        if others is None or not len(others.extra):
            return None
        return self.send(np.ascontiguousarray(others.extra[:, : self.layout.width]))

    def leave_gpu(self) -> OrdinalEncoder:
        """Return the encoder after the fit: it answers on the CPU."""
        weights = {name: fetch(numbers) for name, numbers in self.network.weights.items()}
        self.network = TrainedOrdinal(weights, self.network.head.groups)
        return self

    def send(self, latents: LatentArray) -> Any:
        """Return latents where the network is: an array, or a tensor on a GPU."""
        return place_beside(latents, self.network.head.scale)


def share_empty(are_empty: BoolArray) -> tuple[IndexArray, IndexArray]:
    """Return the vectors to encode, the first empty one among them, and the place of each vector's
    latent there.

    >>> share_empty(np.array([False, True, False, True]))
    (array([0, 1, 2]), array([0, 1, 2, 1]))
    """
    is_first, first = ~are_empty, np.flatnonzero(are_empty)[:1]
    is_first[first] = True
    places = np.cumsum(is_first) - 1
    places[are_empty] = places[first]
    return np.flatnonzero(is_first), places


_PENALTY = (), positive, below(_LARGEST_PENALTY)

_PENALTIES = Form(
    Part(
        "penalties",
        Form(
            Part("rows", "number", *_PENALTY, optional=True),
            Part("columns", "number", *_PENALTY, optional=True),
        ),
    )
)

_REFINEMENT = Form(
    Part("landmarks", "float32", ("landmarks", "directions")),
    Part("columns", "float32", ("columns", "beside + landmarks")),
    prefix="refinement",
)


@dataclass
class NetworkMember:
    """The trained network, refined.

    load_network: returns the network whose weights are stored.
    network: the trained network. seen: the entries that it was trained on.
    """

    settings: OrdinalDMFSettings
    load_network: Callable[[EntryStore, Tensors], TrainedOrdinal]
    network: TrainedOrdinal | None = None

    def fit(self, inputs: MemberInputs) -> MemberFit:
        """Return the refined latents of all rows and columns."""
        assert self.network is not None
        training, entries, held_out, _ = inputs
        encoder = _start_encoder(self.network, training, entries, self.settings)
        start = encoder.refinement_columns
        if held_out is None:
            factors = _refine_in_rounds(encoder, None, entries)
            encoder.leave_gpu()
            return MemberFit(factors, None)
        rows = _choose_penalties(encoder, training, held_out, self.settings)
        blind = _refine_in_rounds(encoder, rows, training)
        scores = blind.score_pairs(held_out.rows, held_out.columns)

        def encode_blind(rows: AxisEntries, columns: AxisEntries) -> Factors:
            folded_columns = blind.fold_in("column", columns).columns
            return replace(blind.fold_in("row", rows), columns=folded_columns)

        if training is entries:
            encoder.leave_gpu()
            return MemberFit(blind, scores, blind=encode_blind)
        refined = OrdinalEncoder(
            encoder.network,
            encoder.scale,
            landmarks=encoder.landmarks,
            refinement_columns=start,
            penalties=encoder.penalties,
        )
        factors = _refine_in_rounds(refined, None, entries)
        encoder.network = refined.leave_gpu().network
        return MemberFit(factors, scores, blind=encode_blind)

    def load(self, content: Any, tensors: Tensors, entries: EntryStore) -> Factors:
        """Return the stored factors; anything that no network could have raises `BadModelFile`."""
        network = self.load_network(entries, tensors)
        penalties = _PENALTIES.read(content)["penalties"].values()
        layout = network.layout
        stored = _REFINEMENT.read(
            {},
            tensors,
            beside=layout.width,
            directions=layout.n_direction,
            columns=entries.train.shape[1],
        )
        if not Landmarks(stored["landmarks"]).are_independent():
            raise BadModelFile("the stored landmarks must be different directions")
        encoder = OrdinalEncoder(
            network,
            entries.scale,
            landmarks=stored["landmarks"],
            refinement_columns=stored["columns"],
            penalties=Penalties(
                *(math.inf if penalty is None else penalty for penalty in penalties)
            ),
        )
        rows, columns = unpack_latents(tensors, entries, width=encoder.layout.width)
        is_checked = has_values_to_check(tensors) and len(rows) > 0
        if is_checked and rows.whole()[:, -1].max() > _LARGEST_LOG_SLOPE:
            raise BadModelFile(
                "the stored slopes of rows are too steep: they are not finite numbers"
            )
        factors = Factors(rows, columns, encoder, encoder.layout.n_beside)
        return factors.with_arrived(tensors, entries)


def _start_encoder(
    network: TrainedOrdinal, seen: EntryStore, entries: EntryStore, settings: OrdinalDMFSettings
) -> OrdinalEncoder:
    """Return an encoder with landmarks chosen among the columns, which are not refined yet."""
    nothing = np.zeros((0, network.layout.width), dtype=np.float32)
    plain = OrdinalEncoder(
        network,
        entries.scale,
        landmarks=nothing[:, network.layout.direction],
        refinement_columns=nothing,
        penalties=Penalties(math.inf, math.inf),
    )
    encoded = plain.refine_all(plain.make_column_refinement(nothing), seen)
    directions = encoded[:, network.layout.direction]
    encoder = OrdinalEncoder(
        network,
        entries.scale,
        landmarks=directions[choose_landmarks(directions, settings.landmarks)],
        refinement_columns=nothing,
        penalties=Penalties(
            settings.row_penalty or _DEFAULT_PENALTIES.rows,
            settings.column_penalty or _DEFAULT_PENALTIES.columns,
        ),
    )
    counts = seen.train.column_counts.astype(np.float32)
    latents = encoder.send(encoded), encoder.send(counts)
    encoder.refinement_columns = fetch(
        encoder.make_column_refinement(nothing).add_landmarks(*latents)
    )
    return encoder


def _choose_penalties(
    encoder: OrdinalEncoder, seen: EntryStore, held_out: HeldOut, settings: OrdinalDMFSettings
) -> LatentArray:
    """Choose the penalties that the settings leave open; return the latents of rows, refined
    once."""

    def choose(refinement: Refinement, take: Callable[[IndexArray], AxisEntries]) -> float:
        return choose_penalty(refinement, take, held_out, seed=settings.seed)

    if settings.row_penalty is None:
        penalty = choose(encoder.make_row_refinement(), seen.row_entries)
        encoder.penalties = encoder.penalties._replace(rows=penalty)
    rows = encoder.refine_all(encoder.make_row_refinement(), seen)
    if settings.column_penalty is None:
        penalty = choose(encoder.make_column_refinement(rows), seen.column_entries)
        encoder.penalties = encoder.penalties._replace(columns=penalty)
    return rows


def _refine_in_rounds(
    encoder: OrdinalEncoder, rows: LatentArray | None, entries: EntryStore
) -> Factors:
    """Refine columns given rows that were refined once, then rows given columns, in rounds.

    rows: None where they were not refined yet.
    """
    if rows is None:
        rows = encoder.refine_all(encoder.make_row_refinement(), entries)
    columns = encoder.refine_all(encoder.make_column_refinement(rows), entries)
    for _ in range(_ROUNDS - 1 if math.isfinite(max(encoder.penalties)) else 0):
        encoder.refinement_columns = columns
        rows = encoder.refine_all(encoder.make_row_refinement(), entries)
        columns = encoder.refine_all(encoder.make_column_refinement(rows), entries)
    return Factors(Latents(rows), Latents(columns), encoder, encoder.layout.n_beside)
