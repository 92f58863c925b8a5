"""DMF: two branches and a cosine, which predict for new rows and columns without training."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from deepmf.errors import BadEntries, BadModelFile, BadSetting, TrainingDiverged, TrainingInterrupted
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.row_order import IndexArray
from deepmf.models.latents import LatentArray, Latents, pair_products
from deepmf.models.model import Model
from deepmf.models.objective import DMFObjective, all_directions
from deepmf.models.observations import AxisEntries, Observations
from deepmf.networks.branch import Branch
from deepmf.networks.encoding import ENCODINGS
from deepmf.networks.summary import Summary
from deepmf.networks.two_branches import TwoBranches
from deepmf.networks.vectors import DenseVectors, SparseVectors, Vectors
from deepmf.storage.checkpoint import Checkpoint
from deepmf.storage.matrix_tensors import Packed
from deepmf.training.machine import Machine, private_generator
from deepmf.training.settings import TrainingSettings
from deepmf.training.trainer import Callback, Trainer

# The convolution's widths in the authors' code, for rows and for columns.
_SUMMARY_WIDTHS = (20, 10)


@dataclass(frozen=True, kw_only=True)
class DMFSettings(TrainingSettings):
    """The settings of DMF; the defaults are those of the paper and its code on MovieLens-1M.

    hidden_sizes, latent_size: the widths of a branch (h_X and h_Y in section 2 of the paper); `column_hidden_sizes`
        where the branch for columns has others.
    dropout: the fraction dropped after every hidden layer.
    gamma: the weight of the L2 penalty in equation 1.
    loss: "root" (the root of a block's mean squared error, as in the authors' code) or "mean" (equation 1).
    inputs: "scaled" (to [-1, 1], the paper's footnote 1) or "raw" (as they are); what is missing is 0.
    summary_filters: filters of a convolution before each branch, for very wide vectors (0: none; 32 in the code).
    """

    hidden_sizes: tuple[int, ...] = (2048,)
    column_hidden_sizes: tuple[int, ...] | None = None
    latent_size: int = 1024
    dropout: float = 0.8
    gamma: float = 0.0
    loss: str = "root"
    inputs: str = "scaled"
    summary_filters: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden_sizes", "column_hidden_sizes"):
            sizes = getattr(self, name)
            if sizes is not None:
                object.__setattr__(self, name, _checked_sizes(name, sizes))
        self.check_whole("latent_size", low=1)
        self.check_number("dropout", low=0.0, high=0.99)
        self.check_number("gamma", low=0.0)
        self.check_choice("loss", ("root", "mean"))
        self.check_choice("inputs", tuple(ENCODINGS))
        self.check_whole("summary_filters", low=0)

    @property
    def branch_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The widths of all layers of the branch for rows, and of the branch for columns."""
        own = self.hidden_sizes if self.column_hidden_sizes is None else self.column_hidden_sizes
        return (*self.hidden_sizes, self.latent_size), (*own, self.latent_size)


class DMF(Model):
    """Deep matrix factorization: the cosine of what two branches make of a row's and of a column's entries.

    Settings are keyword arguments; `DMFSettings` explains them. A row or column without any entry is predicted from
    what its branch makes of an empty vector.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DMF(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=100, seed=0, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[TrainingSettings]] = DMFSettings
    settings: DMFSettings
    network_: TwoBranches
    row_latents_: Latents
    column_latents_: Latents

    def _fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        *,
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        checkpoint_every: int,
    ) -> None:
        machine = Machine(self.settings.device, self.settings.precision)
        rows, columns = np.flatnonzero(train.row_counts), np.flatnonzero(train.column_counts)
        if rows.size < 2 or columns.size < 2:
            raise BadEntries(
                f"{type(self).__name__} learns from at least two rows and two columns with entries; "
                f"got {rows.size} and {columns.size}"
            )
        objective = self._objective(train, validation, machine)
        trainer = Trainer(
            objective,
            self.settings,
            machine,
            rows=torch.from_numpy(rows),
            columns=torch.from_numpy(columns),
            callbacks=callbacks,
        )
        if checkpoint is None:
            self.history_ = trainer.run()
        else:
            kept = Checkpoint(checkpoint, self._fingerprint(train, validation))
            self.history_ = kept.run(trainer, every=checkpoint_every)
        self._finish(train, objective)

    def _finish(self, train: ObservedMatrix, objective: DMFObjective) -> None:
        """Compute all latents once, and say what ended training if it was not its own end."""
        stopped, epoch, best = self.history_.stopped, len(self.history_), self.history_.best_epoch
        if best is not None or stopped != "diverged":
            self.observations_ = Observations.of(train)
            network = objective.network.eval()
            with torch.no_grad():
                self.row_latents_ = _latents(network.rows, objective.blocks.rows)
                self.column_latents_ = _latents(network.columns, objective.blocks.columns)
            self.network_ = network.to("cpu")
        if stopped == "diverged":
            kept = "" if best is None else f"; the model keeps the weights of epoch {best}"
            raise TrainingDiverged(
                f"the loss of epoch {epoch} is not a finite number{kept}; try a smaller learning_rate"
            )
        if stopped == "interrupted":
            warnings.warn(f"training was interrupted in epoch {epoch}", TrainingInterrupted, stacklevel=4)

    def _objective(self, train: ObservedMatrix, validation: ObservedMatrix | None, machine: Machine) -> DMFObjective:
        return DMFObjective(self._new_network(train), train, validation, self.settings, machine)

    def _new_network(self, train: ObservedMatrix) -> TwoBranches:
        return TwoBranches(*self._branches(train))

    def _branches(self, train: ObservedMatrix) -> tuple[Branch, Branch]:
        """Return a branch that reads rows, and one that reads columns, with fresh weights."""
        generator = private_generator(self.settings.seed, "weights")
        n_filters = self.settings.summary_filters
        branches: list[Branch] = []
        for n_inputs, sizes, width in zip(
            reversed(train.shape), self.settings.branch_sizes, _SUMMARY_WIDTHS, strict=True
        ):
            summary = Summary(n_inputs, n_filters=n_filters, width=width, generator=generator) if n_filters else None
            branches.append(
                Branch(n_inputs, sizes, dropout=self.settings.dropout, generator=generator, summary=summary)
            )
        rows, columns = branches
        return rows, columns

    def _extend(self, rows: IndexArray, columns: IndexArray) -> None:
        seen = self._seen
        n_rows, n_columns = seen.train.shape
        with torch.no_grad():
            if rows.size:
                vectors = self._vectors(seen.row_entries(rows), n_columns)
                latents = _latents(self.network_.rows, vectors).base
                self.row_latents_ = self.row_latents_.changed(rows, latents, count=len(seen.rows))
            if columns.size:
                vectors = self._vectors(seen.column_entries(columns), n_rows)
                latents = _latents(self.network_.columns, vectors).base
                self.column_latents_ = self.column_latents_.changed(columns, latents, count=len(seen.columns))

    def _vectors(self, entries: AxisEntries, n_inputs: int) -> Vectors:
        inputs = ENCODINGS[self.settings.inputs].encode(self.scale_, entries.values).astype(np.float32)
        starts, others, weights = (torch.from_numpy(np.array(array)) for array in (*entries[:2], inputs))
        if not self.settings.summary_filters:
            return SparseVectors(starts, others, weights)
        table = torch.zeros(starts.numel() - 1, n_inputs)
        table[torch.repeat_interleave(torch.arange(len(table)), starts.diff().long()), others.long()] = weights
        return DenseVectors(table)

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return np.clip(pair_products(self.row_latents_, self.column_latents_, rows, columns), -1.0, 1.0)

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        every = columns.size == len(self.column_latents_) and np.array_equal(columns, np.arange(columns.size))
        column_latents = self.column_latents_.whole() if every else self.column_latents_.take(columns)
        cosines: LatentArray = self.row_latents_.take(rows) @ column_latents.T
        return np.clip(cosines, -1.0, 1.0, out=cosines)

    def _row_directions(self) -> LatentArray:
        return self.row_latents_.whole()

    def _column_directions(self) -> LatentArray:
        return self.column_latents_.whole()

    def _fingerprint(self, train: ObservedMatrix, validation: ObservedMatrix | None) -> dict[str, Any]:
        """Return what tells this training run from others."""
        return {
            "model": type(self).__name__,
            **self.settings.to_dict(),
            "training entries": _digest(train),
            "validation entries": None if validation is None else _digest(validation),
        }

    def _learned(self) -> Packed:
        tensors = {f"network.{name}": tensor.numpy() for name, tensor in self.network_.state_dict().items()}
        for axis, latents in (("rows", self.row_latents_), ("columns", self.column_latents_)):
            tensors |= {f"latents.{axis}.{part}": getattr(latents, part) for part in ("base", "extra", "slots")}
        return Packed({}, tensors)

    def _set_learned(self, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> None:
        self.network_ = self._new_network(self._seen.train).eval()
        weights = {
            name.removeprefix("network."): torch.from_numpy(tensor.copy())
            for name, tensor in tensors.items()
            if name.startswith("network.")
        }
        try:
            self.network_.load_state_dict(weights)
            self.row_latents_ = self._stored_latents(tensors, "rows", len(self._seen.rows))
            self.column_latents_ = self._stored_latents(tensors, "columns", len(self._seen.columns))
        except (RuntimeError, KeyError) as error:
            raise BadModelFile(f"the stored weights do not fit the stored settings ({error})") from error

    def _stored_latents(self, tensors: dict[str, npt.NDArray[Any]], axis: str, count: int) -> Latents:
        base, extra, slots = (tensors[f"latents.{axis}.{part}"] for part in ("base", "extra", "slots"))
        width, n_slots = self.settings.latent_size, base.shape[0] + extra.shape[0]
        if base.shape[1:] != (width,) or extra.shape[1:] != (width,) or slots.shape != (count,):
            raise BadModelFile(f"the stored latents of {axis} are not of the shape ({count}, {width})")
        if base.dtype != np.float32 or extra.dtype != np.float32 or slots.dtype != np.int64:
            raise BadModelFile(f"the stored latents of {axis} are of another type than float32")
        if count and not 0 <= slots.min() <= slots.max() < n_slots:
            raise BadModelFile(f"the stored latents of {axis} are not all there")
        return Latents(base, extra, slots)


def _latents(branch: Branch, vectors: Vectors) -> Latents:
    return Latents(all_directions(branch, vectors, single_precision=True).cpu().numpy())


def _checked_sizes(name: str, sizes: Any) -> tuple[int, ...]:
    given = tuple(sizes) if isinstance(sizes, list | tuple) else (sizes,)
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in given):
        raise BadSetting(f"{name} must be whole numbers of at least 1, such as (2048,); got {sizes!r}")
    return given


def _digest(matrix: ObservedMatrix) -> str:
    """Return a short fingerprint of a matrix's entries."""
    digest = hashlib.sha256(repr(matrix.scale).encode())
    for array in (matrix.by_row.starts, matrix.by_row.columns, matrix.values):
        digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((matrix.row_labels.tolist()[:1000], matrix.column_labels.tolist()[:1000])).encode())
    return digest.hexdigest()[:16]
