"""Weighted ALS, a presence model of latents.

Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", 2008, with the settings of Rendle et
al., "Revisiting the performance of iALS", 2021: latents u_i, v_j that minimise

    sum over entries of (1 - u_i'v_j)^2 + unobserved_weight * sum over all pairs of (u_i'v_j)^2
    + penalty * (sum of a_i |u_i|^2 + sum of b_j |v_j|^2)

where a_i is the number of entries of a row plus unobserved_weight times the number of columns, b_j likewise.

The squared error of an entry with the count c and the weight w has the weight w (1 + count_weight * log(c)). In a_i and
b_j, too, an entry counts w, so that an entry of weight 2 counts twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg.lapack import sposv
from torch import Tensor
from torch.nn import functional

from deepmf.errors import BadModelFile
from deepmf.linalg.ridge import Batch, compute_grams, lay_out, run_batches
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, gather, group
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.recommend.presence_model import CPU, PAIRS_AT_A_TIME, Numbers, PresenceModel, weigh_counts
from deepmf.storage.model_file import Tensors, read_numbers

LatentSolver = Callable[[Tensor, float], Tensor]  # from latents of columns and a penalty to latents of rows

# The latent size, the sweeps, and the weight of pairs without an entry. On held-out entries of one split of
# MovieLens-1M, a latent size of 128 and weights of 1 and 3 rank no better.
_LATENT_SIZE, _SWEEPS, _UNOBSERVED_WEIGHT = 64, 8, 0.3

_ENTRIES_AT_A_TIME = 1 << 15  # entries of a row whose latents are gathered together

# Rows with at most this share of the latent size as entries are solved for by systems of their own size; outside of a
# fit, where at least this number of rows have the same number of entries.
_SHORT_AT_FIT, _SHORT, _MANY_SHORT = 0.5, 0.25, 16


@dataclass(frozen=True)
class WeightedALS(PresenceModel):
    """Weighted ALS: latents of columns. The latents of a row are solved for from its entries.

    columns: the latents (columns, latent) of trained columns, then those of new columns.
    row_gram: the weighted sum of the outer products of all trained rows' latents, from which new columns are solved.
    """

    columns: LatentArray
    row_gram: LatentArray
    penalty: float
    n_rows: int
    n_columns: int
    count_weight: float = 0.0

    kind: ClassVar[str] = "weighted-als"

    @property
    def n_trained(self) -> int:
        """The number of trained columns."""
        return self.n_columns

    @classmethod
    def prepare(cls, train: ObservedMatrix, count_weight: float = 0.0, device: torch.device = CPU) -> PreparedALS:
        """Return solvers of all rows and of all columns."""
        n_rows, n_columns = train.shape
        values = np.asarray(train.values, dtype=np.float64) if count_weight else np.ones(train.n_entries)
        order, extras = train.by_column.entries, Extras(weights=train.weights)
        by_row = AxisEntries(train.by_row.starts, train.by_row.columns, values, extras=extras)
        of_columns = values[order] if count_weight else values
        by_column = AxisEntries(train.by_column.starts, train.by_column.rows, of_columns, extras=extras.take(order))
        solve_rows = _make_solver(by_row, n_columns, count_weight, device)
        return PreparedALS(
            train, count_weight, device, solve_rows, _make_solver(by_column, n_rows, count_weight, device)
        )

    @classmethod
    def narrow(cls, prepared: PreparedALS, columns: IndexArray) -> PreparedALS:
        """Return the prepared data of some columns of the matrix."""
        train = prepared.train.take(np.arange(prepared.train.shape[0]), columns)
        return cls.prepare(train, prepared.count_weight, prepared.device)

    @classmethod
    def fit_prepared(cls, prepared: PreparedALS, penalty: float) -> Self:
        """Return the model after a number of sweeps from random latents."""
        n_rows, n_columns = prepared.train.shape
        size = min(_LATENT_SIZE, n_rows, n_columns)
        start = np.random.default_rng(0).standard_normal((n_columns, size), dtype=np.float32)
        columns = torch.from_numpy(start * np.float32(0.1 / np.sqrt(size))).to(prepared.device)
        for _ in range(_SWEEPS):
            rows = prepared.solve_rows(columns, penalty)
            columns = prepared.solve_columns(rows, penalty)
        row_gram = _weigh_gram(rows).cpu().numpy()
        return cls(columns.cpu().numpy(), row_gram, penalty, n_rows, n_columns, prepared.count_weight)

    @classmethod
    def list_penalties(cls, train: ObservedMatrix) -> list[float]:
        """Return penalties for each entry."""
        return [0.01, 0.003]

    def encode_rows(self, entries: AxisEntries) -> LatentArray:
        """Return the latents (rows, latent) of rows with these entries over the trained columns."""
        trained = self.columns[: self.n_columns]
        return _solve(entries, trained, self._column_gram, self.penalty, self.n_columns, self.count_weight)

    def score_block(self, encoded: LatentArray, columns: slice | IndexArray) -> npt.NDArray[Any]:
        """Return the products (rows, columns) of latents."""
        products: npt.NDArray[Any] = encoded @ self.columns[columns].T
        return products

    def score_pairs(self, encoded: LatentArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return the products (rows, n) of row latents with the latents of columns (rows, n), n for each row."""
        products = np.empty(columns.shape, dtype=np.float32)
        step = max(PAIRS_AT_A_TIME // max(len(columns), 1), 1)
        for start in range(0, columns.shape[1], step):
            some = slice(start, start + step)
            np.einsum("rd,rnd->rn", encoded, self.columns[columns[:, some]], out=products[:, some])
        return products

    def send(self, columns: IndexArray, device: torch.device) -> DeviceALS:
        """Return the model of some columns on a device."""
        columns_and_trained = (self.columns[columns], self.columns[: self.n_columns])
        return DeviceALS(self, *(torch.from_numpy(each).to(device) for each in columns_and_trained))

    def find_effects(self, entries: AxisEntries, column: int) -> FloatArray:
        """Return v_j' A^-1 w_k v_k for each entry k of the row, where A^-1 sum of w_k v_k are its latents."""
        own = self.columns[entries.others].astype(np.float64)
        weighted = own * _weigh_errors(entries, self.count_weight)[:, None]
        ridge = self.penalty * (entries.totals[0] + _UNOBSERVED_WEIGHT * self.n_columns)
        equations = weighted.T @ own + self._column_gram + ridge * np.eye(own.shape[1])
        return np.asarray(weighted @ np.linalg.solve(equations, self.columns[column].astype(np.float64)))

    def extend(self, entries: EntryStore, columns: IndexArray) -> WeightedALS:
        """Return a model in which the new columns among some positions are solved for from their trained rows."""
        changed = columns[columns >= self.n_columns]
        if changed.size == 0:
            return self
        used, found = entries.column_entries(changed).renumber_others()
        extras = Extras(weights=entries.train.weights)
        of_rows = group(used.size, gather(used, *entries.train.by_row, entries.train.values, extras=extras))
        rows = self.encode_rows(of_rows)
        solved = _solve(found, rows, self.row_gram, self.penalty, self.n_rows, self.count_weight)
        table = np.zeros((len(entries.columns), self.columns.shape[1]), dtype=np.float32)
        table[: len(self.columns)] = self.columns
        table[changed] = solved
        return replace(self, columns=table)

    def without_columns(self, columns: IndexArray) -> WeightedALS:
        """Return a model without some new columns."""
        return self if columns.size == 0 else replace(self, columns=np.delete(self.columns, columns, axis=0))

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the latents of trained columns, and the sum over rows."""
        return {"presence.columns": self.columns[: self.n_columns], "presence.row_gram": self.row_gram}

    @classmethod
    def unpack(cls, tensors: Tensors, entries: EntryStore, penalty: float, count_weight: float = 0.0) -> WeightedALS:
        """Return the stored model with the new columns of a store."""
        n_rows, n_columns = entries.train.shape
        columns = read_numbers(tensors, "presence.columns", "float32", (n_columns, None))
        gram = read_numbers(tensors, "presence.row_gram", "float32", (columns.shape[1], columns.shape[1]))
        if penalty <= 0:
            raise BadModelFile(f"the stored presence must have a positive penalty; got {penalty:g}")
        model = cls(columns, gram, penalty, n_rows, n_columns, count_weight)
        return model.extend(entries, np.arange(n_columns, len(entries.columns)))

    @cached_property
    def _column_gram(self) -> LatentArray:
        return _weigh_gram(self.columns[: self.n_columns])


class DeviceALS(NamedTuple):
    """Weighted ALS on a device: the latents of the columns to score, and those of all trained columns."""

    model: WeightedALS
    columns: Tensor
    trained: Tensor

    def score(self, entries: AxisEntries) -> Tensor:
        """Return the scores (rows, columns) of rows with these entries over the trained columns."""
        solve = _make_solver(entries, self.model.n_columns, self.model.count_weight, self.trained.device)
        return solve(self.trained, self.model.penalty) @ self.columns.T


class PreparedALS(NamedTuple):
    """A matrix, the weight of its counts, the device to fit on, and the solvers of all rows and columns there."""

    train: ObservedMatrix
    count_weight: float
    device: torch.device
    solve_rows: LatentSolver
    solve_columns: LatentSolver


def _weigh_gram(latents: Numbers) -> Numbers:
    """Return the sum of outer products, (latent, latent), times the weight of pairs without an entry."""
    gram: Numbers = _UNOBSERVED_WEIGHT * (latents.T @ latents)
    return gram


def _make_solver(entries: AxisEntries, n_others: int, count_weight: float, device: torch.device) -> LatentSolver:
    """Return a function that does what `_solve` does, for many rows again and again, on a device.

    Latents are rotated to the eigenvectors of the gram, which makes it diagonal like the ridges.
    """
    units = torch.from_numpy(_compute_ridges(entries, 1.0, n_others)).to(device)
    weights = _weigh_errors(entries, count_weight) if count_weight or entries.extras.weights is not None else None
    weighted = entries._replace(extras=Extras(weights=weights))
    one_group = 1 if device.type == "cpu" else None  # whose width decides how it is solved
    ones = np.ones(entries.others.size)
    batches = lay_out(weighted, ones, n_others=n_others, device=device, rows_at_a_time=one_group)

    def solve(others: Tensor, penalty: float) -> Tensor:
        values, turns = torch.linalg.eigh(_weigh_gram(others.double()))
        values, turns = values.float(), turns.float()
        table = functional.pad(others @ turns, (0, 1, 0, 1))  # (v, 0), and zeros for padding; ones are added as values
        solved, ridges = others.new_zeros(len(units), others.shape[1]), penalty * units

        def solve_batch(batch: Batch) -> None:
            diagonals, width = values + ridges[batch.positions, None], batch.groups[0].others.shape[1]
            is_short = device.type == "cpu" and width <= _SHORT_AT_FIT * others.shape[1]
            find = _solve_wide if is_short else _solve_grams
            solved[batch.positions] = find(batch, table, diagonals)

        run_batches(solve_batch, batches, device)
        found: Tensor = solved @ turns.mT
        return found

    return solve


def _solve_grams(batch: Batch, table: Tensor, diagonals: Tensor) -> Tensor:
    """Return the latents u (rows, latent) with (sum of w v v' + diagonal) u = sum of w v, from Gram matrices of (v, 1).

    The last line of the Cholesky factor of a whole matrix is L^-1 (sum of w v), where L is the factor of the equations.
    """
    grams = compute_grams(batch, table)
    entries = grams.diagonal(dim1=1, dim2=2)  # a view
    entries[:, :-1] += diagonals
    entries[:, -1] = 1.01 * entries[:, -1] + 1.0  # any number that rounding cannot bring below the squared line
    lower, failed = torch.linalg.cholesky_ex(grams)
    solved = torch.linalg.solve_triangular(lower[:, :-1, :-1].mT, lower[:, -1, :-1, None], upper=True)
    bad = failed > 0  # not positive definite in single precision
    if bool(bad.any()):
        equations = grams[bad].double()
        solved[bad] = torch.linalg.solve(equations[:, :-1, :-1], equations[:, :-1, -1:]).float()
    found: Tensor = solved[..., 0]
    return found


def _solve_wide(batch: Batch, table: Tensor, diagonals: Tensor) -> Tensor:
    """Solve for rows with few entries, by systems the size of a row instead of a latent.

    With the diagonal D and the lines sqrt(w) v as V, u = D^-1 V' (1 + V D^-1 V')^-1 sqrt(w).
    """
    (group,) = batch.groups
    lines, roots = table[group.others][..., :-1], group.values
    if group.roots is not None:
        lines, roots = lines * group.roots[..., None], roots * group.roots
    scaled = lines / diagonals[:, None]
    small = scaled @ lines.mT
    small.diagonal(dim1=1, dim2=2).add_(1.0)
    shares = torch.cholesky_solve(roots[..., None], torch.linalg.cholesky_ex(small).L)
    return (scaled * shares).sum(dim=1)


def _compute_ridges(entries: AxisEntries, penalty: float, n_others: int) -> LatentArray:
    """Return ridges that grow with the number of entries plus the weighted number of all columns (Rendle et al.)."""
    return (penalty * (entries.totals + _UNOBSERVED_WEIGHT * n_others)).astype(np.float32)


def _solve(
    entries: AxisEntries, others: LatentArray, gram: LatentArray, penalty: float, n_others: int, count_weight: float
) -> LatentArray:
    """Return the latents (rows, latent) of rows with these entries, given the column latents.

    They solve (sum over entries of w v v' + gram + ridge I) u = sum over entries of w v, where w is the weight of an
    entry.
    """
    counts, size = np.diff(entries.starts), others.shape[1]
    ridges = _compute_ridges(entries, penalty, n_others)
    weights = _weigh_errors(entries, count_weight) if count_weight or entries.extras.weights is not None else None
    solved = np.zeros((counts.size, size), dtype=np.float32)
    is_left = counts > 0
    if entries.extras.weights is None:  # then the ridge of a row goes by its number of entries
        lengths, numbers = np.unique(counts[counts <= _SHORT * size], return_counts=True)
        for length in lengths[(lengths > 0) & (numbers >= _MANY_SHORT)].tolist():
            rows = np.flatnonzero(counts == length)
            is_left[rows] = False
            for start in range(0, rows.size, _ENTRIES_AT_A_TIME // length):
                some = rows[start : start + _ENTRIES_AT_A_TIME // length]
                at = entries.starts[some, None] + np.arange(length)
                own = weigh_counts(entries.values[at], count_weight)
                solved[some] = _solve_short(others[entries.others[at]], own, gram, ridges[some[0]])
    equations = np.empty((size, size), dtype=np.float32)
    diagonal = np.einsum("ii->i", equations)  # a view
    # One row after the other: LAPACK takes half the time of numpy's solver of many systems, and nothing is padding.
    for row in np.flatnonzero(is_left).tolist():
        equations[:], sums = gram, np.zeros(size, dtype=np.float32)
        diagonal += ridges[row]
        for start in range(entries.starts[row], entries.starts[row + 1], _ENTRIES_AT_A_TIME):
            part = slice(start, min(start + _ENTRIES_AT_A_TIME, int(entries.starts[row + 1])))
            own = weighted = np.take(others, entries.others[part], axis=0)
            if weights is not None:
                weighted = own * weights[part, None]
            equations += weighted.T @ own
            sums += weighted.sum(axis=0)
        *_, solved[row], failed = sposv(equations, sums)
        if failed:  # not positive definite in single precision
            solved[row] = np.linalg.solve(equations, sums)
    return solved


def _solve_short(gathered: LatentArray, weights: LatentArray, gram: LatentArray, ridge: np.float32) -> LatentArray:
    """Return the latents (rows, latent) of rows with few entries, given the latents (rows, entries, latent) of these.

    With B = gram + ridge I and the entries' latents V, (B + V'WV)^-1 V'W 1 = B^-1 V' (W^-1 + V B^-1 V')^-1 1: systems
    the size of a row instead of a latent.
    """
    inverse = np.linalg.inv(gram.astype(np.float64) + ridge * np.eye(len(gram))).astype(np.float32)
    projected = gathered @ inverse
    small, diagonal = projected @ gathered.mT, np.arange(weights.shape[1])
    small[:, diagonal, diagonal] += 1 / weights
    shares = np.linalg.solve(small, np.ones_like(weights)[..., None])
    solved: LatentArray = (projected * shares).sum(axis=1)
    return solved


def _weigh_errors(entries: AxisEntries, count_weight: float) -> LatentArray:
    """Return the weights of the squared errors of weighted ALS: weighed counts, times the weights of entries."""
    counts = weigh_counts(entries.values, count_weight)
    weights = entries.extras.weights
    return counts if weights is None else counts * weights.astype(np.float32)
