"""Similarities: a kernel ridge on both sides, fitted where rows or columns have similarities.

Rows i and k are as much alike as their kernel says,

    K_ik = s_ik / 2 + exp(-g |y_i - y_k|^2) / 2 + 1 / 2,    g = 1 / mean |y|^2,

for the similarity s and profiles y: entries less their mean, 0 where there is none. A row without
entries has the mean profile of the five most similar rows. A side without similarities has profiles
alone. Columns likewise. With K = F F', values less their mean are F_rows W F_columns', where W
minimises squared errors of entries plus a penalty on its squares. Where all cells have entries Y,
these are, by K = U diag(l) U',

    U_rows [(U_rows' Y U_columns) * L / (L + penalty)] U_columns',    L = l_rows l_columns'.

F has as many columns as there are rows, or the leading eigenvectors of many rows (Nystroem).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, cg

from deepmf.linalg.products import multiply_entries
from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import OTHER_AXIS, Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import SimilarityEncoding
from deepmf.models.members import Conversion, MemberFit, MemberInputs
from deepmf.models.neighbours import is_dense
from deepmf.scoring.encoders import Encoder
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Check, Form, Part, not_negative, positions_of, positive
from deepmf.training.holdout import HeldOut, choose

Sparse: TypeAlias = scipy.sparse.csr_array

AXES: tuple[Axis, Axis] = ("row", "column")

# The part of the kernel that all rows share, so that a row may be high in all columns.
_CONSTANT = 0.5

# The kernel of a row with itself.
_VARIANCE = 1.0 + _CONSTANT

# Rows without entries have the mean profile of this many others.
_N_NEAR = 5

# Rows that others are compared with, evenly chosen, and the eigenvectors of their kernel.
_MOST_COMPARED, _MOST_SIZE = 2000, 512

# Eigenvalues are 0 below this share of the largest one; so are prior variances below this number.
_ROUNDING, _LEAST_VARIANCE = 1e-6, 1e-3

# Penalties that are compared; the first one is usual.
_PENALTIES = (1.0, 0.3, 0.1)

# The share of the blend without evidence: more than known rows need, as it is new ones that are
# predicted by their similarity.
_USUAL_SHARE = 0.9

# Few entries are held out by turns: how many these are, how often, and one in how many.
_FEW_ENTRIES, _N_TURNS, _ONE_IN = 20_000, 5, 5

# Rows that have the lowest value alone can be left out where this many entries have another one.
_FEWEST_ABOVE = 20

# The usual option changes where that lowers the squared error by this many standard errors.
_LEAST_FALL = 1.0

# Least squares are solved up to this relative residual, in at most this many steps.
_TOLERANCE, _MOST_STEPS = 1e-5, 200


class SimilarInputs(NamedTuple):
    """Where the features of an axis have similarities.

    others: the input of the similarity to each trained row (or column), -1 where there is none.
    itself: the input of the similarity of a row to itself.
    """

    others: IndexArray
    itself: int

    @classmethod
    def find(cls, entries: EntryStore, axis: Axis) -> SimilarInputs | None:
        """Return the inputs of the similarities of an axis; None without any."""
        features, labels = entries.row_features, entries.train.rows
        if axis == "column":
            features, labels = entries.column_features, entries.train.columns
        for first, encoding in () if features is None else features.encoding.locate_columns():
            if isinstance(encoding, SimilarityEncoding):
                input_of = {label: first + at for at, label in enumerate(encoding.labels)}
                inputs = [input_of.get(str(label), -1) for label in labels.array.tolist()]
                return cls(np.array(inputs), first + len(input_of))
        return None


class Profiles(NamedTuple):
    """The trained rows (or columns) that others are compared with.

    compared: their positions. inputs: where similarities to them are; None without any. known: the
    entries of these rows, less their mean, (compared, others). filled: the same, filled with those
    of similar rows. rate: g.
    """

    compared: IndexArray
    inputs: SimilarInputs | None
    known: Sparse
    filled: Sparse
    rate: float

    @classmethod
    def of(
        cls, entries: AxisEntries, compared: IndexArray, n_others: int, inputs: SimilarInputs | None
    ) -> Profiles:
        """Return the profiles of some rows by the entries of all trained ones."""
        entries = entries.take(compared)
        known = _lay_out(entries, n_others)
        plain = cls(compared, inputs, known, known, 1.0)
        filled = plain.fill(entries, plain.read_similarities(entries))
        return plain._replace(filled=filled, rate=1.0 / (float(_sum_squares(filled).mean()) or 1.0))

    def compare(self, entries: AxisEntries) -> FloatArray:
        """Return the kernel (rows, compared) of rows with these entries and features."""
        similarities = self.read_similarities(entries)
        filled = self.fill(entries, similarities)
        distances = _sum_squares(filled)[:, None] + _sum_squares(self.filled)
        distances -= 2.0 * _multiply(filled, self.filled)
        alike: FloatArray = np.exp(-self.rate * np.maximum(distances, 0.0))
        if self.inputs is not None:
            alike = 0.5 * (alike + similarities)
        return alike + _CONSTANT

    def fill(self, entries: AxisEntries, similarities: FloatArray) -> Sparse:
        """Return the profiles (rows, others) of rows, whose missing cells have the mean of the most
        similar rows."""
        known = _lay_out(entries, self.known.shape[1])
        filling = Sparse(_weight_nearest(similarities) @ self.known)
        are_known = Sparse((np.ones(known.nnz), known.indices, known.indptr), shape=known.shape)
        return Sparse(known + filling - filling.multiply(are_known))

    def read_similarities(self, entries: AxisEntries) -> FloatArray:
        """Return the similarities (rows, compared) that features say; 0 where they say none."""
        if entries.features is None or self.inputs is None:
            return np.zeros((entries.starts.size - 1, self.compared.size))
        inputs = self.inputs.others[self.compared]
        table = entries.features.to_sparse()[:, np.maximum(inputs, 0)].toarray()
        return np.where(inputs >= 0, table, 0.0).astype(np.float64)


class Kernel(NamedTuple):
    """The kernel of an axis: vectors whose products are similarities.

    basis: from what profiles compare to vectors, (compared, size). vectors: F of trained rows,
    (rows, size). sizes: the squared lengths of its columns, (size,).
    """

    profiles: Profiles
    basis: LatentArray
    vectors: LatentArray
    sizes: LatentArray

    @classmethod
    def learn(cls, entries: AxisEntries, n_others: int, inputs: SimilarInputs | None) -> Kernel:
        """Return the kernel of all trained rows by their entries, which are less their mean."""
        known = np.flatnonzero(np.diff(entries.starts))
        compared = known[:: -(-known.size // _MOST_COMPARED)]
        profiles = Profiles.of(entries, compared, n_others, inputs)
        table = profiles.compare(entries)
        if inputs is not None and entries.features is not None:
            selves = entries.features.take(compared).read_input(inputs.itself)
            table[compared, np.arange(compared.size)] += 0.5 * selves
        lengths, directions = np.linalg.eigh(table[compared])
        leading = np.flatnonzero(lengths > _ROUNDING * lengths[-1])[-_MOST_SIZE:]
        basis = directions[:, leading] / np.sqrt(lengths[leading])
        vectors = table @ basis
        sizes, rotation = np.linalg.eigh(vectors[known].T @ vectors[known])
        return cls(
            profiles,
            basis=(basis @ rotation).astype(np.float32),
            vectors=(vectors @ rotation).astype(np.float32),
            sizes=np.maximum(sizes, 0.0).astype(np.float32),
        )

    def encode(self, entries: AxisEntries) -> FloatArray:
        """Return the vectors (rows, size) of rows with these entries and features."""
        vectors: FloatArray = self.profiles.compare(entries) @ self.basis.astype(np.float64)
        return vectors


@dataclass(frozen=True)
class KernelEncoder(Encoder):
    """Compares rows (or columns) with trained ones; what their entries say beyond that moves them.

    Latents are (F W + moves, F, mean) of rows and (F, moves, 1) of columns, with moves of 0 of
    trained ones. weights: W, (row size, column size). floor: a row that has this value alone says
    nothing; none is NaN. fullness: the share of cells with entries.
    """

    kernels: Mapping[Axis, Kernel]
    weights: LatentArray
    mean: float
    penalty: float
    floor: float
    fullness: float

    def encode_all(self) -> Factors:
        """Return the factors of all trained rows and columns."""
        latents: dict[Axis, Latents] = {}
        for axis in AXES:
            vectors, others = self.kernels[axis].vectors, self.kernels[OTHER_AXIS[axis]].vectors
            moves = np.zeros((len(vectors), others.shape[1]))
            latents[axis] = Latents(self._join(axis, vectors.astype(np.float64), moves))
        return Factors(latents["row"], latents["column"], self, 1)

    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        entries = entries.below(len(self.kernels[OTHER_AXIS[axis]].vectors))
        entries = entries.select(_say_something(entries, self.floor)[entries.group_of])
        entries = entries._replace(values=entries.values - self.mean)
        vectors = self.kernels[axis].encode(entries)
        return self._join(axis, vectors, self._find_moves(axis, vectors, entries))

    def _join(self, axis: Axis, vectors: FloatArray, moves: FloatArray) -> LatentArray:
        ends = np.full((len(vectors), 1), self.mean if axis == "row" else 1.0)
        parts = [vectors, moves, ends]
        if axis == "row":
            parts = [vectors @ self.weights + moves, vectors, ends]
        return np.hstack(parts).astype(np.float32)

    def _find_moves(self, axis: Axis, vectors: FloatArray, entries: AxisEntries) -> FloatArray:
        """Return the posterior means of what is left, given the entries of each row.

        Given trained rows, the weight of a row on a column of F has this prior variance:
        K_ii - sum_a f_a^2 L_a / (L_a + penalty / fullness), where |f|^2 is at most K_ii.
        """
        kernel, others = self.kernels[axis], self.kernels[OTHER_AXIS[axis]]
        weights = self.weights if axis == "row" else self.weights.T
        implied = vectors @ weights
        sizes = np.outer(kernel.sizes, others.sizes)
        squares = np.square(vectors)
        squares /= np.maximum(squares.sum(axis=1, keepdims=True) / _VARIANCE, 1.0)
        explained = squares @ (sizes / (sizes + self.penalty / self.fullness))
        variances = np.maximum(_VARIANCE - explained, _LEAST_VARIANCE)
        roots = np.sqrt(entries.weights)
        moves = np.zeros_like(implied)
        for at in np.flatnonzero(np.diff(entries.starts)):
            span = slice(*entries.starts[at : at + 2])
            factors = roots[span, None] * others.vectors[entries.others[span]]
            residuals = roots[span] * entries.values[span] - factors @ implied[at]
            scaled = factors * np.sqrt(variances[at])
            solved = _solve_ridge(scaled, residuals, self.penalty)
            moves[at] = np.sqrt(variances[at]) * solved
        return moves

    def pack(self) -> Packed:
        """Return the kernels and the weights."""
        floor = None if np.isnan(self.floor) else self.floor
        described = {
            axis: kernel._asdict() | {"compared": kernel.profiles.compared}
            for axis, kernel in self.kernels.items()
        }
        return _ENCODER.pack(self, floor=floor, row=described["row"], column=described["column"])


_not_empty = Check("not be empty", lambda found, _: found.size > 0)


def _declare_kernel(axis: Axis) -> Part:
    form = Form(
        Part("compared", "int64", ("compared",), positions_of(f"{axis}s"), _not_empty),
        Part("basis", "float32", ("compared", f"{axis}_size")),
        Part("sizes", "float32", (f"{axis}_size",), not_negative),
    )
    return Part(axis, form)


_ENCODER = Form(
    Part("mean", "number"),
    Part("penalty", "number", (), positive),
    Part("floor", "number", optional=True),
    Part("fullness", "number", (), positive),
    Part("weights", "float32", ("row_size", "column_size")),
    _declare_kernel("row"),
    _declare_kernel("column"),
)


class KernelRidge(NamedTuple):
    """The kernels of both axes, and the entries, by row and less their mean, that weights are
    learned from."""

    kernels: dict[Axis, Kernel]
    entries: AxisEntries
    mean: float
    floor: float

    @classmethod
    def of(cls, store: EntryStore, floor: float) -> KernelRidge:
        """Return the ridge of the training entries of a store."""
        mean, entries = _gather(store, floor)
        kernels: dict[Axis, Kernel] = {}
        for axis, n_others in zip(AXES, reversed(store.train.shape), strict=True):
            inputs = SimilarInputs.find(store, axis)
            kernels[axis] = Kernel.learn(entries[axis], n_others, inputs)
        return cls(kernels, entries["row"], mean, floor)

    def solve(self, penalty: float) -> KernelEncoder:
        """Return the encoder with the weights of the least squares, by conjugate gradients.

        Were entries spread evenly over the cells, W would be sums / (fullness * L + penalty).
        """
        rows, columns = (self.kernels[axis].vectors.astype(np.float64) for axis in AXES)
        cells, weights = (self.entries.group_of, self.entries.others), self.entries.weights
        shape = rows.shape[1], columns.shape[1]
        fullness = weights.size / math.prod(np.unique(places).size for places in cells)

        def add_up(values: FloatArray) -> FloatArray:
            table = Sparse((weights * values, cells), shape=(len(rows), len(columns)))
            return np.ravel(rows.T @ (table @ columns))

        def apply(solution: FloatArray) -> FloatArray:
            factors = rows @ solution.reshape(shape)
            return add_up(multiply_entries(factors, columns, *cells)) + penalty * solution

        sizes = np.outer(*(self.kernels[axis].sizes.astype(np.float64) for axis in AXES))
        evenly = 1.0 / (fullness * sizes.ravel() + penalty)
        system, guess = (
            LinearOperator((evenly.size, evenly.size), matvec=multiply, dtype=np.float64)
            for multiply in (apply, evenly.__mul__)
        )
        sums = add_up(self.entries.values)
        solution, _ = cg(system, sums, rtol=_TOLERANCE, maxiter=_MOST_STEPS, M=guess)
        solved = solution.reshape(shape).astype(np.float32)
        return KernelEncoder(self.kernels, solved, self.mean, penalty, self.floor, fullness)


class SimilarityMember:
    """Kernel ridge by similarities as a member of a blend."""

    def fit(self, inputs: MemberInputs) -> MemberFit | None:
        """Return the fitted kernel ridge; None without similarities, or without held-out
        entries."""
        seen, entries, held_out = inputs.seen, inputs.entries, inputs.held_out
        if held_out is None or not any(SimilarInputs.find(entries, axis) for axis in AXES):
            return None
        floor, penalty = _choose_ridge(seen, held_out)
        blind = KernelRidge.of(seen, floor).solve(penalty).encode_all()
        fitted = blind
        if seen is not entries:
            fitted = KernelRidge.of(entries, floor).solve(penalty).encode_all()
        scores = blind.score_pairs(held_out.rows, held_out.columns)
        noise = float(np.sqrt(np.mean(np.square(held_out.values - scores.location))))

        def see(rows: AxisEntries, columns: AxisEntries) -> Factors:
            return blind.fold_in("row", rows).fold_in("column", columns)

        units = Conversion(centre=float(entries.train.mean))
        return MemberFit(fitted, scores, noise, units, see, usual_share=_USUAL_SHARE)

    def load(self, content: Any, tensors: Tensors, entries: EntryStore) -> Factors:
        """Return the stored factors; impossible ones raise `BadModelFile`."""
        train = entries.train
        stored = _ENCODER.read(content, tensors, rows=train.shape[0], columns=train.shape[1])
        floor = stored.pop("floor")
        stored["floor"] = np.nan if floor is None else floor
        sizes = stored["weights"].shape
        latents = unpack_latents(tensors, entries, width=sum(sizes) + 1)
        vectors = latents[0].base[:, sizes[1] : -1], latents[1].base[:, : sizes[1]]
        _, known = _gather(EntryStore.of(train), stored["floor"])
        features = {"row": entries.row_features, "column": entries.column_features}
        kernels: dict[Axis, Kernel] = {}
        for axis, n_others, table in zip(AXES, reversed(train.shape), vectors, strict=True):
            fields, described = stored.pop(axis), features[axis]
            trained = known[axis]._replace(features=None if described is None else described.base)
            inputs = SimilarInputs.find(entries, axis)
            profiles = Profiles.of(trained, fields.pop("compared"), n_others, inputs)
            kernels[axis] = Kernel(profiles, vectors=table, **fields)
        return Factors(*latents, KernelEncoder(kernels, **stored), 1)


class RidgeOption(NamedTuple):
    """The value below which a row says nothing, and a penalty."""

    floor: float
    penalty: float


def _choose_ridge(seen: EntryStore, held_out: HeldOut) -> RidgeOption:
    """Return the option that predicts held-out entries best: of few entries, by turns."""
    lowest, floors = float(seen.train.values.min()), [np.nan]
    says = [_say_something(_get_entries(seen, axis), lowest) for axis in AXES]
    n_above = np.count_nonzero(seen.train.values != lowest)
    if n_above >= _FEWEST_ABOVE and not np.concatenate(says).all():
        floors = [lowest, np.nan]  # mostly, such rows were not looked at
    options = [RidgeOption(floor, penalty) for floor in floors for penalty in _PENALTIES]
    errors: dict[RidgeOption, list[FloatArray]] = {option: [] for option in options}
    for store, hidden in list(_hold_out(seen)) or [(seen, held_out)]:
        ridges = {floor: KernelRidge.of(store, floor) for floor in floors}
        for option in options:
            factors = ridges[option.floor].solve(option.penalty).encode_all()
            predicted = factors.score_pairs(hidden.rows, hidden.columns).location
            errors[option].append(np.square(predicted - hidden.values))
    losses = {option: np.concatenate(parts) for option, parts in errors.items()}
    return choose(options, losses.__getitem__, at_least=_LEAST_FALL).candidate


def _hold_out(seen: EntryStore) -> Iterator[tuple[EntryStore, HeldOut]]:
    """Yield the entries that are left and those that are held out, by turns; nothing of many
    entries."""
    if seen.train.n_entries > _FEW_ENTRIES:
        return
    for turn in range(_N_TURNS):
        left, hidden = HeldOut.split(seen.train, seed=turn, one_in=_ONE_IN)
        if hidden is not None:
            yield EntryStore.of(left, seen.row_features, seen.column_features), hidden


def _gather(store: EntryStore, floor: float) -> tuple[float, dict[Axis, AxisEntries]]:
    """Return the mean of the training entries that say something, and these less it, by row and
    by column."""
    whole = {axis: _get_entries(store, axis) for axis in AXES}
    says = {axis: _say_something(whole[axis], floor) for axis in AXES}
    known: dict[Axis, AxisEntries] = {}
    for axis, entries in whole.items():
        both = says[axis][entries.group_of] & says[OTHER_AXIS[axis]][entries.others]
        known[axis] = entries.select(both)
    mean = float(known["row"].values.sum() / max(known["row"].values.size, 1))
    return mean, {
        axis: entries._replace(values=entries.values - mean) for axis, entries in known.items()
    }


def _get_entries(store: EntryStore, axis: Axis) -> AxisEntries:
    return store.read_trained(axis, np.arange(store.train.shape[axis == "column"]))


def _say_something(entries: AxisEntries, floor: float) -> BoolArray:
    """Return whether each row has a value beside the floor."""
    n_rows = entries.starts.size - 1
    says: BoolArray = np.bincount(entries.group_of, entries.values != floor, n_rows) > 0
    return says


def _lay_out(entries: AxisEntries, n_others: int) -> Sparse:
    shape = entries.starts.size - 1, n_others
    return Sparse((entries.values, entries.others, entries.starts), shape=shape)


def _sum_squares(table: Sparse) -> FloatArray:
    squares: FloatArray = np.asarray(table.multiply(table).sum(axis=1)).ravel()
    return squares


def _multiply(rows: Sparse, others: Sparse) -> FloatArray:
    """Return the products (rows, others) of sparse rows, which may be full."""
    if is_dense(rows) and is_dense(others):
        dense: FloatArray = rows.toarray() @ others.toarray().T
        return dense
    products: FloatArray = (rows @ others.T).toarray()
    return products


def _weight_nearest(similarities: FloatArray) -> Sparse:
    """Return the weights (rows, compared) of the most similar rows, which add up to 1."""
    n_rows, n_compared = similarities.shape
    n_near = min(_N_NEAR, n_compared)
    near = np.argpartition(-similarities, n_near - 1, axis=1)[:, :n_near]
    weights = np.maximum(np.take_along_axis(similarities, near, axis=1), 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    starts = np.arange(n_rows + 1) * n_near
    return Sparse((weights.ravel(), near.ravel(), starts), shape=similarities.shape)


def _solve_ridge(inputs: FloatArray, targets: FloatArray, penalty: float) -> FloatArray:
    """Return the weights of a ridge regression, by the smaller one of its two systems."""
    n_entries, size = inputs.shape
    if n_entries < size:
        kernel = inputs @ inputs.T + penalty * np.eye(n_entries)
        return np.asarray(inputs.T @ scipy.linalg.solve(kernel, targets, assume_a="pos"))
    gram = inputs.T @ inputs + penalty * np.eye(size)
    return np.asarray(scipy.linalg.solve(gram, inputs.T @ targets, assume_a="pos"))
