"""Neighbours: a column is predicted by the columns that are most correlated with it.

The inputs of a row are its values less the means of their columns, 0 where it has no entry. Column
j has the K columns with the largest |correlation| n / (n + 200), for n common entries, and ridge
weights w on them over the rows with an entry in j:

    (A'A + penalty) w = A'z,    A the inputs of these rows in the K columns, z what is to be
    predicted, and the penalty in variances of the inputs.

Where most cells have entries, as in genotypes, z are values, and neighbours are a member of a blend.
Further passes fill missing inputs with the predictions of the pass before. Elsewhere, as in ratings,
z are the residuals of the other members, and predictions are added to theirs: parts of a series
belong together in a way that no low rank holds. Held-out entries choose K, the penalty, the passes
and the share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import scipy.sparse

from deepmf.errors import BadModelFile
from deepmf.linalg.positive import solve_positive
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, IndexPair, LatentArray
from deepmf.matrix.axis_entries import NOTHING, Axis, AxisEntries, locate
from deepmf.matrix.entries import EntryStore
from deepmf.models.members import Conversion, MemberFit, MemberInputs
from deepmf.scoring.encoders import Scores
from deepmf.scoring.factors import Positions
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, not_negative, positions_of
from deepmf.training.holdout import HeldOut, choose

Sparse: TypeAlias = scipy.sparse.csr_array

# Common entries at which a correlation counts half: those by few entries look better than they are.
_HALF_TRUSTED = 200.0

# From this share of the cells on, a table of all cells takes no more memory than a few times the
# entries.
LEAST_DENSE = 1 / 8

# Cells that exist at a time: 32 MB.
_CELLS_AT_A_TIME = 1 << 23

# Products of entries that exist at a time: 100 MB with what sorts them.
_PRODUCTS_AT_A_TIME = 1 << 21

# Inputs that are looked up for a choice among ridges of residuals: two seconds.
_MOST_LOOKED_UP = 1.5e7


class NearRidge(NamedTuple):
    """The number of neighbours, and the penalty on the squares of their weights, in variances of
    the inputs: in entries that say that there is no correlation."""

    n_near: int
    penalty: float


# Ridges that are compared on held-out entries, of values and of residuals. Residuals are mostly
# noise: more neighbours need a larger penalty.
VALUE_RIDGES = (NearRidge(60, 50.0), NearRidge(20, 25.0), NearRidge(5, 10.0))
RESIDUAL_RIDGES = (NearRidge(3, 3.0), NearRidge(10, 10.0), NearRidge(30, 60.0))


@dataclass(frozen=True)
class Neighbours:
    """Weights by which the entries of a row predict its columns.

    source: the entries that rows are read from.
    means: of trained columns, (trained,); inputs are values less these.
    near, weights: the neighbours of each column, and their weights, (columns, K).
    centres: what is predicted without entries, (columns,).
    fill_near, fill: the neighbours of trained columns, and their weights in earlier passes,
        (trained, K) and (passes, trained, K); empty where nothing is filled.
    penalty: by which columns were solved for.
    predicts_residuals: whether residuals are predicted, of which new columns have none.
    forgotten: trained columns without entries, which are predicted like new ones without entries.
    """

    source: EntryStore | AxisEntries
    means: LatentArray
    near: IndexArray
    weights: LatentArray
    centres: LatentArray
    fill_near: IndexArray
    fill: LatentArray
    penalty: float = 0.0
    predicts_residuals: bool = False
    forgotten: IndexArray = field(default_factory=lambda: NOTHING)

    @classmethod
    def start(cls, seen: EntryStore, n_near: int, *, predicts_residuals: bool) -> Neighbours:
        """Return neighbours of all trained columns, without weights."""
        train = seen.train
        means = _average_columns(train.by_row.columns, train.values, train.mean, train.shape[1])
        near = np.empty((train.shape[1], 0), dtype=np.int32)
        weights = np.empty(near.shape, dtype=np.float32)
        centres = np.zeros_like(means) if predicts_residuals else means
        empty = cls(
            seen,
            means,
            near,
            weights,
            centres,
            fill_near=near[:0],
            fill=weights[None][:0, :0],
            predicts_residuals=predicts_residuals,
        )
        inputs = empty._centre(empty._gather(np.arange(train.shape[0])))
        return replace(empty, near=find_near(inputs, inputs, n_near, are_same=True))

    def learn(
        self, columns: AxisEntries, targets: FloatArray, ridges: Sequence[NearRidge]
    ) -> list[Neighbours]:
        """Return neighbours with weights for targets (entries,) of columns, one for each ridge."""
        rows, renumbered = columns.renumber_others()
        inputs = self._read(rows)
        input_values = inputs[inputs != 0] if isinstance(inputs, np.ndarray) else inputs.data
        variance = (
            float(np.square(input_values, dtype=np.float64).mean()) if input_values.size else 0.0
        )
        scaled = [ridge._replace(penalty=ridge.penalty * (variance or 1.0)) for ridge in ridges]
        weight_lists = regress(inputs, renumbered, targets, self.near, scaled)
        learned = []
        for weights, ridge in zip(weight_lists, ridges, strict=True):
            near = self.near[:, : weights.shape[1]]
            learned.append(replace(self, near=near, weights=weights, penalty=ridge.penalty))
        return learned

    def fill_inputs(self) -> Neighbours:
        """Return neighbours whose inputs are filled with what these predict."""
        filled = (
            np.concatenate([self.fill, self.weights[None]])
            if len(self.fill)
            else self.weights[None]
        )
        return replace(self, fill=filled, fill_near=self.near)

    def score_pairs(self, rows: IndexArray, columns: IndexArray) -> Scores:
        """Return the values (or residuals) of pairs of positions."""
        weights, centres = self._current
        location = centres[columns]
        order, width = np.argsort(rows, kind="stable"), max(self.near.shape[1], 1)
        if len(self.fill):
            width = self.means.size
        at_a_time = max(1, _CELLS_AT_A_TIME // width)
        for start in range(0, order.size, at_a_time):
            part = order[start : start + at_a_time]
            used, row_of = np.unique(rows[part], return_inverse=True)
            cells = make_lookup(self._read(used))(row_of[:, None], self.near[columns[part]])
            location[part] += np.einsum("pk,pk->p", cells, weights[columns[part]])
        return Scores.of_values(location)

    def score_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the values (or residuals) of all pairs of some positions, (rows, columns)."""
        weights, centres = self._current
        products = _to_dense(self._read(rows) @ self._lay_out(self.near, weights)[:, columns])
        block: LatentArray = products + centres[columns]
        return block

    def read_rows(self, rows: IndexArray) -> LatentArray:
        """Return nothing: a readout reads no fields."""
        return np.empty((rows.size, 0), dtype=np.float32)

    def extend(
        self,
        entries: EntryStore,
        rows: IndexArray,
        columns: IndexArray,
        crossed: IndexPair = (NOTHING, NOTHING),
    ) -> Self:
        """Return neighbours that read rows from more entries, and solve for changed new columns."""
        n_new = len(entries.columns) - self.centres.size
        widths = ((0, n_new), (0, 0))
        extended = replace(
            self,
            source=entries,
            forgotten=find_forgotten(entries),
            near=np.pad(self.near, widths),
            weights=np.pad(self.weights, widths),
            centres=np.pad(self.centres, (0, n_new)),
        )
        # a new column is solved for by all that its rows say
        of_rows = entries.added.of_rows(np.union1d(rows, crossed[0])).columns
        changed = np.unique(np.concatenate([columns, crossed[1], of_rows]))
        changed = changed[changed >= self.means.size]
        if changed.size:
            new_columns = extended._solve_new(entries.all_entries("column", changed))
            for name in ("near", "weights", "centres"):
                getattr(extended, name)[changed] = getattr(new_columns, name)
        return extended

    def forget(self, axis: Axis, positions: IndexArray) -> Self:
        """Return neighbours without some new columns."""
        if axis == "row":
            return self
        gone = positions[positions >= self.means.size]
        return replace(
            self,
            near=np.delete(self.near, gone, axis=0),
            weights=np.delete(self.weights, gone, axis=0),
            centres=np.delete(self.centres, gone),
        )

    def fold_in(self, axis: Axis, entries: AxisEntries) -> Self:
        """Return neighbours whose only rows (or columns) have these entries."""
        return replace(self, source=entries) if axis == "row" else self._solve_new(entries)

    def take_rows(self, rows: IndexArray) -> Self:
        """Return neighbours of some rows alone."""
        return replace(self, source=self._gather(rows))

    def pack(self) -> Packed:
        """Return the neighbours for a model file."""
        return _NEIGHBOURS.pack(self)

    @classmethod
    def load(cls, content: Any, tensors: Tensors, entries: EntryStore) -> Neighbours:
        """Return the stored neighbours; impossible ones raise `BadModelFile`."""
        n_columns, n_trained = len(entries.columns), entries.train.shape[1]
        stored = _NEIGHBOURS.read(content, tensors, columns=n_columns, trained=n_trained)
        if len(stored["fill"]) and len(stored["fill_near"]) != n_trained:
            raise BadModelFile("the stored neighbours must fill every trained column")
        return cls(source=entries.as_read, forgotten=find_forgotten(entries), **stored)

    def _solve_new(self, columns: AxisEntries) -> Self:
        """Return neighbours whose only columns are new, and have these entries."""
        n_near, n_new = self.near.shape[1], columns.starts.size - 1
        if self.predicts_residuals:
            nothing = np.zeros((n_new, n_near), dtype=np.float32)
            return replace(
                self,
                near=nothing.astype(np.int32),
                weights=nothing,
                centres=nothing[:, 0],
                forgotten=NOTHING,
            )
        mean = float(self.means.mean())
        centres = _average_columns(columns.group_of, columns.values, mean, n_new)
        targets = columns.values - centres[columns.group_of]
        rows, renumbered = columns.renumber_others()
        inputs = self._centre(self._gather(rows))
        of_columns = Sparse(
            (targets.astype(np.float32), renumbered.others, columns.starts),
            shape=(n_new, rows.size),
        )
        near = find_near(Sparse(of_columns.T), inputs, n_near, are_same=False)
        new = replace(self, near=near, centres=centres)
        (solved,) = new.learn(columns, targets, [NearRidge(n_near, self.penalty)])
        return replace(self, near=near, weights=solved.weights, centres=centres, forgotten=NOTHING)

    @cached_property
    def _current(self) -> tuple[LatentArray, LatentArray]:
        """The weights and centres of all columns, of forgotten ones those of a new column."""
        if self.forgotten.size == 0:
            return self.weights, self.centres
        weights, centres = self.weights.copy(), self.centres.copy()
        weights[self.forgotten] = 0.0
        centres[self.forgotten] = 0.0 if self.predicts_residuals else self.means.mean()
        return weights, centres

    def _gather(self, rows: IndexArray) -> AxisEntries:
        if isinstance(self.source, EntryStore):
            return self.source.all_entries("row", rows)
        return self.source.take(rows)

    def _centre(self, entries: AxisEntries) -> Sparse:
        """Return the inputs (rows, trained) that are known."""
        trained_entries = entries.below(self.means.size)
        values = (trained_entries.values - self.means[trained_entries.others]).astype(np.float32)
        shape = trained_entries.starts.size - 1, self.means.size
        return Sparse((values, trained_entries.others, trained_entries.starts), shape=shape)

    def _read(self, rows: IndexArray) -> LatentArray | Sparse:
        """Return the inputs (rows, trained) of some rows, filled by the earlier passes."""
        entry_inputs = self._centre(self._gather(rows))
        inputs = entry_inputs.toarray() if is_dense(entry_inputs) else entry_inputs
        for weights in self.fill:
            filled = _to_dense(inputs @ self._lay_out(self.fill_near, weights))
            row_of = np.repeat(np.arange(rows.size), np.diff(entry_inputs.indptr))
            filled[row_of, entry_inputs.indices] = entry_inputs.data
            inputs = filled
        return inputs

    def _lay_out(self, near: IndexArray, weights: LatentArray) -> scipy.sparse.csc_array:
        """Return weights (columns, K) of neighbours as a sparse matrix (trained, columns)."""
        n_columns, n_near = weights.shape
        starts = np.arange(n_columns + 1) * n_near
        shape = self.means.size, n_columns
        return scipy.sparse.csc_array((weights.ravel(), near.ravel(), starts), shape=shape)


_NEIGHBOURS = Form(
    Part("penalty", "number", (), not_negative),
    Part("predicts_residuals", "flag"),
    Part("means", "float32", ("trained",)),
    Part("near", "int32", ("columns", "neighbours"), positions_of("trained")),
    Part("weights", "float32", ("columns", "neighbours")),
    Part("centres", "float32", ("columns",)),
    Part("fill_near", "int32", ("filled", "filling"), positions_of("trained")),
    Part("fill", "float32", ("passes", "filled", "filling")),
)


class Block(NamedTuple):
    """The column that most others are predicted by with those nearest to it, and some rows.

    rows, columns: positions. values: entries (rows, columns), NaN where there is none.
    """

    rows: IndexArray
    columns: IndexArray
    values: FloatArray


def find_block(neighbours: Neighbours, entries: EntryStore, *, n_rows: int) -> Block:
    """Return a block with the rows that lack the fewest of its entries, but some; rows that are
    alike lie together."""
    centre = int(np.bincount(neighbours.near.ravel()).argmax())
    columns = np.append(centre, neighbours.near[centre]).astype(np.int64)
    read = entries.all_entries("column", columns)
    table = np.full((len(entries.rows), columns.size), np.nan)
    table[read.others, read.group_of] = read.values
    n_missing = np.isnan(table).sum(axis=1)
    rows = np.lexsort([n_missing, n_missing == 0])[:n_rows]
    deviations = np.nan_to_num(table[rows] - np.nanmean(table, axis=0))
    rows = rows[np.argsort(np.linalg.svd(deviations)[0][:, 0])]
    return Block(rows, columns, table[rows])


def find_forgotten(entries: EntryStore) -> IndexArray:
    """Return the trained columns that had entries and have none left."""
    counts = entries.column_counts[: entries.train.shape[1]]
    return np.flatnonzero((counts == 0) & (entries.train.column_counts > 0))


def find_near(targets: Sparse, inputs: Sparse, n_near: int, *, are_same: bool) -> IndexArray:
    """Return the columns of inputs that are most correlated with each target, (targets, K).

    targets, inputs: values less means, (rows, targets) and (rows, columns). are_same: whether
        column j is target j, which is no neighbour of its own. Where fewer columns have common
        entries, others stand in for them.
    """
    n_columns = inputs.shape[1]
    n_near = max(min(n_near, n_columns - are_same), 0)
    lines = Sparse(targets.T)
    counts = np.maximum(np.bincount(inputs.indices, minlength=n_columns), 1)
    squares = np.bincount(inputs.indices, np.square(inputs.data), minlength=n_columns)
    deviations = np.sqrt(np.maximum(squares / counts, np.finfo(np.float32).tiny))
    # products of each line: at least as many as columns with common entries
    n_products = np.add.reduceat(
        np.append(np.diff(inputs.indptr)[lines.indices], 0), lines.indptr[:-1]
    ) * (np.diff(lines.indptr) > 0)
    if n_products.sum() < LEAST_DENSE * len(n_products) * n_columns:
        return _find_near_sparse(lines, inputs, deviations, n_near, n_products, are_same=are_same)
    multiply = _multiply_lines(lines, inputs)
    count = _multiply_lines(_mark(lines), _mark(inputs))
    near = np.empty((targets.shape[1], n_near), dtype=np.int32)
    at_a_time = max(1, _CELLS_AT_A_TIME // n_columns)
    for start in range(0, len(near), at_a_time):
        span = slice(start, start + at_a_time)
        similarities = np.abs(multiply(span))
        similarities /= deviations * (count(span) + _HALF_TRUSTED)
        if are_same:
            at = np.arange(len(similarities))
            similarities[at, start + at] = -1.0
        best = np.argpartition(-similarities, min(n_near, n_columns - 1), axis=1)[:, :n_near]
        order = np.argsort(-np.take_along_axis(similarities, best, axis=1), axis=1, kind="stable")
        near[span] = np.take_along_axis(best, order, axis=1)
    return near


def _find_near_sparse(
    lines: Sparse,
    inputs: Sparse,
    deviations: FloatArray,
    n_near: int,
    n_products: IndexArray,
    *,
    are_same: bool,
) -> IndexArray:
    """Return the same as `find_near` from columns with common entries alone."""
    # where fewer columns have common entries, those that follow stand in for them
    beside = np.arange(len(n_products))[:, None] + np.arange(1, n_near + 1)
    near: IndexArray = (beside % inputs.shape[1]).astype(np.int32)
    # One product has both sums: that of values, and a unit for each common entry, which is larger
    # and a power of 2, so that it leaves no rounding errors.
    largest = np.abs(lines.data).max(initial=0) * np.abs(inputs.data).max(initial=0)
    most = 4.0 * largest * np.diff(lines.indptr).max(initial=0)
    root = 2.0 ** np.ceil(0.5 * np.log2(most)) if most > 0 else 1.0
    unit = root**2
    left = Sparse(scipy.sparse.hstack([lines, root * _mark(lines)], dtype=np.float64))
    right = Sparse(scipy.sparse.vstack([inputs, root * _mark(inputs)], dtype=np.float64))
    ends = np.cumsum(n_products) // _PRODUCTS_AT_A_TIME
    for at in np.split(np.arange(len(near)), np.flatnonzero(np.diff(ends)) + 1):
        products = left[at] @ right
        line_of = np.repeat(np.arange(at.size), np.diff(products.indptr))
        is_other = products.indices != at[line_of] if are_same else np.ones(line_of.size, bool)
        columns, line_of = products.indices[is_other], line_of[is_other]
        counts = np.rint(products.data[is_other] / unit)
        similarities = np.abs(products.data[is_other] - unit * counts)
        similarities /= deviations[columns] * (counts + _HALF_TRUSTED)
        # bits of numbers that are not negative have their order
        falling = ~similarities.astype(np.float32).view(np.uint32)
        order = np.argsort((line_of.astype(np.uint64) << np.uint64(32)) | falling)
        starts = np.searchsorted(line_of, np.arange(at.size))
        place_in_line = np.arange(order.size) - starts[line_of]
        is_near = place_in_line < n_near
        near[at[line_of[is_near]], place_in_line[is_near]] = columns[order[is_near]]
    return near


def _multiply_lines(lines: Sparse, columns: Sparse) -> Callable[[slice], LatentArray]:
    """Return the products of some lines (targets, rows) with all columns (rows, columns)."""
    from deepmf.recommend.column_gram import MOST_FULL, multiply_columns

    if columns.shape[1] <= MOST_FULL and lines.shape == columns.shape[::-1]:
        products = multiply_columns(columns, None)
        return lambda span: products[span]
    if is_dense(columns):
        table = columns.toarray()
        return lambda span: lines[span].toarray() @ table
    return lambda span: _to_dense(lines[span] @ columns)


def regress(
    inputs: LatentArray | Sparse,
    columns: AxisEntries,
    targets: FloatArray,
    near: IndexArray,
    ridges: Sequence[NearRidge],
) -> list[LatentArray]:
    """Return the weights (columns, K) of the first K neighbours, for each ridge.

    inputs: (rows, trained). columns: their entries, by rows of the inputs. targets: (entries,).
    near: (columns, neighbours), the nearest first.
    """
    from deepmf.linalg.ridge import Limits, lay_out, run_batches

    sizes = [min(ridge.n_near, near.shape[1]) for ridge in ridges]
    weight_lists = [np.zeros((len(near), size), dtype=np.float32) for size in sizes]
    widest = max(sizes)
    limits = Limits(entries_at_a_time=max(1, _CELLS_AT_A_TIME // 8 // max(widest, 1)))
    n_rows = columns.others.max(initial=0) + 1
    take_cells = make_lookup(inputs)

    def solve(batch: Any) -> None:
        for group in batch.groups:
            at, rows = np.asarray(group.positions), np.asarray(group.others)
            values = np.asarray(group.values)
            is_entry = (rows < n_rows).astype(np.float32)
            roots = is_entry if group.roots is None else np.asarray(group.roots)
            places = np.minimum(rows, n_rows - 1)[:, None]
            cells = take_cells(places, near[at, :widest, None]) * roots[:, None]
            grams = cells @ cells.mT
            sums = np.einsum("cke,ce->ck", cells, values * roots)
            for weights, size, ridge in zip(weight_lists, sizes, ridges, strict=True):
                equations = grams[:, :size, :size] + ridge.penalty * np.eye(size, dtype=np.float32)
                weights[at], _ = solve_positive(equations, sums[:, :size])

    run_batches(solve, lay_out(columns, targets, n_others=n_rows, limits=limits))
    return weight_lists


class SparseCells(NamedTuple):
    """The cells of a sparse matrix, by increasing keys: column * rows + row."""

    keys: IndexArray
    values: LatentArray
    n_rows: int

    @classmethod
    def of(cls, matrix: Sparse) -> SparseCells:
        """Return the cells of a matrix."""
        by_column = matrix.tocsc()
        by_column.sort_indices()
        n_rows, n_columns = matrix.shape
        column_of = np.repeat(np.arange(n_columns), np.diff(by_column.indptr))
        return cls(column_of * n_rows + by_column.indices, by_column.data, n_rows)

    def take(self, rows: IndexArray, columns: IndexArray) -> LatentArray:
        """Return the cells at some rows and columns; 0 where there is none.

        Rows that increase along the last axis are found several times as fast.
        """
        cell_keys = columns.astype(np.int64) * self.n_rows + rows
        if self.keys.size == 0:
            return np.zeros(cell_keys.shape, dtype=np.float32)
        at, is_known = locate(self.keys, cell_keys)
        return np.where(is_known, self.values[at], np.float32(0.0))


def make_lookup(inputs: LatentArray | Sparse) -> Callable[[IndexArray, IndexArray], LatentArray]:
    """Return how the cells at some rows and columns, which are broadcast, are taken."""
    if isinstance(inputs, np.ndarray):
        return lambda rows, columns: inputs[rows, columns]
    return SparseCells.of(inputs).take


def _average_columns(
    columns: IndexArray, values: Array, mean: float, n_columns: int
) -> LatentArray:
    """Return the means of columns; those without entries have the overall mean."""
    counts = np.bincount(columns, minlength=n_columns)
    sums = np.bincount(columns, values, minlength=n_columns)
    means: LatentArray = np.where(counts > 0, sums / np.maximum(counts, 1), mean)
    return means.astype(np.float32)


def is_dense(matrix: Any) -> bool:
    """Return whether a table of all cells takes hardly more memory than the entries."""
    return bool(matrix.nnz >= LEAST_DENSE * matrix.shape[0] * matrix.shape[1])


def _mark(matrix: Sparse) -> Sparse:
    """Return a matrix with 1 for each of its entries."""
    ones = np.ones(matrix.nnz, dtype=np.float32)
    return Sparse((ones, matrix.indices, matrix.indptr), shape=matrix.shape)


def _to_dense(matrix: Any) -> LatentArray:
    dense: LatentArray = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return dense


class NeighbourFit(NamedTuple):
    """Neighbours given all entries, and what they say of held-out entries given the others."""

    fitted: Neighbours
    location: LatentArray


def fit_to_values(seen: EntryStore, entries: EntryStore, held_out: HeldOut) -> NeighbourFit | None:
    """Return neighbours that predict values; None where few cells have entries."""
    train = seen.train
    if train.n_entries < LEAST_DENSE * train.shape[0] * train.shape[1]:
        return None
    most_near = max(ridge.n_near for ridge in VALUE_RIDGES)
    start = Neighbours.start(seen, most_near, predicts_residuals=False)
    if start.near.shape[1] == 0:
        return None
    columns = seen.all_entries("column", np.arange(train.shape[1]))
    targets = columns.values - start.means[columns.group_of]

    def locate_held_out(neighbours: Neighbours) -> NeighbourFit:
        scores = neighbours.score_pairs(held_out.rows, held_out.columns)
        return NeighbourFit(neighbours, scores.location)

    def repeat(fit: NeighbourFit) -> NeighbourFit:
        """Return what another pass learns, over inputs that this one fills."""
        last = fit.fitted
        filled = last.fill_inputs()
        ridge = NearRidge(last.near.shape[1], last.penalty)
        return locate_held_out(*filled.learn(columns, targets, [ridge]))

    def measure(fit: NeighbourFit) -> FloatArray:
        return np.square(fit.location - held_out.values)

    first = [
        locate_held_out(neighbours) for neighbours in start.learn(columns, targets, VALUE_RIDGES)
    ]
    fits = [choose([fit, repeat(fit)], measure).candidate for fit in first]
    best = choose(fits, measure).candidate
    if len(best.fitted.fill):
        best = choose([best, repeat(best)], measure).candidate
    return best._replace(fitted=replace(best.fitted, source=entries))


def fit_to_residuals(
    seen: EntryStore, entries: EntryStore, held_out: HeldOut, predictor: Predictor
) -> list[MemberFit]:
    """Return neighbours that predict the residuals of a predictor, one for each ridge.

    The predictor has seen the held-out entries, but their residuals are not among the targets.
    """
    train = seen.train
    most_near = max(RESIDUAL_RIDGES[0].n_near, int(_MOST_LOOKED_UP / train.n_entries))
    ridges = [ridge for ridge in RESIDUAL_RIDGES if ridge.n_near <= most_near]
    start = Neighbours.start(seen, ridges[-1].n_near, predicts_residuals=True)
    if start.near.shape[1] == 0:
        return []
    rows, columns = train.entry_rows, train.by_row.columns
    residuals = np.empty(train.n_entries)
    for first in range(0, train.n_entries, _PREDICTED_AT_A_TIME):
        span = slice(first, first + _PREDICTED_AT_A_TIME)
        residuals[span] = train.values[span] - predictor.read_units(rows[span], columns[span])
    by_column = seen.column_entries(np.arange(train.shape[1]))
    learned = start.learn(by_column, residuals[train.by_column.entries], ridges)
    return [
        MemberFit(
            replace(neighbours, source=entries),
            neighbours.score_pairs(held_out.rows, held_out.columns),
            stands_alone=False,
            adds=True,
        )
        for neighbours in learned
    ]


# Pairs that are predicted at a time: 32 MB for 32 cutpoints.
_PREDICTED_AT_A_TIME = 1 << 18


class NeighbourMember:
    """Neighbours as a member of a blend, where most cells have entries."""

    def fit(self, inputs: MemberInputs) -> MemberFit | None:
        """Return the fitted neighbours; None where few cells have entries."""
        if inputs.held_out is None:
            return None
        fit = fit_to_values(inputs.seen, inputs.entries, inputs.held_out)
        if fit is None:
            return None
        blind = replace(fit.fitted, source=inputs.seen)

        def see(rows: AxisEntries, columns: AxisEntries) -> Neighbours:
            return blind.fold_in("column", columns).fold_in("row", rows)

        units = Conversion(centre=inputs.entries.train.mean)
        scores = Scores.of_values(fit.location)
        return MemberFit(fit.fitted, scores, units=units, blind=see, stands_alone=False)

    def load(self, content: Any, tensors: Tensors, entries: EntryStore) -> Neighbours:
        """Return the stored neighbours."""
        return Neighbours.load(content, tensors, entries)
