"""DMF: two branches and a cosine, which predict for new rows and columns without training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from deepmf.errors import BadSetting
from deepmf.layers.branch import Branch
from deepmf.layers.convolution import Convolution
from deepmf.layers.masking import Masking
from deepmf.layers.vectors import DenseVectors, Vectors
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmf.dmf_network import DMFNetwork
from deepmf.models.dmf.dmf_objective import DMFObjective, all_directions
from deepmf.models.dmf.dmf_settings import DMFSettings
from deepmf.models.fitting import Fitting
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkEncoder, NetworkModel, sparse_vectors
from deepmf.models.predictor import Predictor, unpack_latents
from deepmf.models.readout import Readout
from deepmf.models.warm_start import TWO_BRANCHES, LineOf, WarmStart
from deepmf.storage.packed import Tensors
from deepmf.training.declarations import takes_settings
from deepmf.training.matrix_blocks import MatrixBlocks
from deepmf.training.runtime import private_generator
from deepmf.training.settings import Settings
from deepmf.training.trainer import Trainer
from deepmf.training.validation import ValidationEntries

# Where there are features: the share of rows, or of columns, of which a step masks most or all entries.
COLD_RATE = 0.125
# The convolution's widths in the authors' code, for rows and for columns.
_SUMMARY_WIDTHS = (20, 10)


class CosineReadout(Readout):
    """Products are cosines: from [-1, 1] to the scale."""

    def scores(self, products: npt.NDArray[Any], row_fields: LatentArray) -> npt.NDArray[Any]:
        """Return cosines without what rounding added."""
        return np.clip(products, -1.0, 1.0, out=products)

    def units(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return cosines in the scale's units."""
        return self.scale.from_unit(scores)


class BranchEncoder(NetworkEncoder):
    """Latents are the directions that the two branches give the entries of a row, and of a column."""

    def __init__(self, network: DMFNetwork, train: ObservedMatrix, settings: DMFSettings) -> None:
        super().__init__(network)
        self._scale: Scale = train.scale
        self._n_rows, self._n_columns = train.shape
        self._encoding = ENCODINGS[settings.inputs]
        self._reads_tables = settings.summary_filters > 0

    @torch.no_grad()
    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of rows."""
        return self.directions(self.network.rows, self._vectors(entries, self._n_columns))

    @torch.no_grad()
    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents of columns."""
        return self.directions(self.network.columns, self._vectors(entries, self._n_rows))

    def directions(self, branch: Branch, vectors: Vectors) -> LatentArray:
        """Return a branch's latents of vectors."""
        directions: LatentArray = all_directions(branch, vectors, single_precision=True).cpu().numpy()
        return directions

    def _vectors(self, entries: AxisEntries, n_inputs: int) -> Vectors:
        vectors = sparse_vectors(entries, self._encoding.encode(self._scale, entries.values))
        if not self._reads_tables:
            return vectors
        table = torch.zeros(len(vectors), n_inputs, dtype=torch.float32)
        table[torch.repeat_interleave(torch.arange(len(table)), vectors.starts.diff()), vectors.indices.long()] = (
            vectors.weights
        )
        return DenseVectors(table, vectors.features)


class DMF(NetworkModel):
    """Deep matrix factorization: the cosine of two branches' latents of a row's and of a column's entries.

    Settings are keyword arguments; `DMFSettings` explains them. A row or column without any entry is predicted from
    its branch's latent of an empty vector.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DMF(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=100, seed=0, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = DMFSettings
    fits_on_ranks: ClassVar[bool] = True
    settings: DMFSettings
    takes_features: ClassVar[bool] = True
    lines: ClassVar[Mapping[str, LineOf]] = TWO_BRANCHES

    @takes_settings(DMFSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _steps_of(self, train: ObservedMatrix) -> int:
        blocks = zip(train.shape, (self.settings.block_rows, self.settings.block_columns), strict=True)
        return min(-(-n // block) for n, block in blocks)

    @property
    def _latent_width(self) -> int:
        return self.settings.latent_size

    def _task(self, entries: EntryStore, validation: ValidationEntries | None) -> Trainer:
        train, settings = entries.train, self.settings
        row_features, column_features = entries.trained_features()
        source = MatrixBlocks(
            train,
            ENCODINGS[settings.inputs],
            block_rows=settings.block_rows,
            block_columns=settings.block_columns,
            force_dense=True if settings.summary_filters else None,
            row_features=row_features,
            column_features=column_features,
        )
        return Trainer(self._new_network(entries), self._objective(train), source, settings, validation=validation)

    def _begin_from(self, task: Trainer, start: WarmStart) -> None:
        if self.settings.summary_filters and not start.same_labels:
            raise BadSetting(
                "with summary_filters, which read places, start_from must be of the same rows and columns in the same "
                "order; this matrix has others"
            )
        super()._begin_from(task, start)

    def _objective(self, train: ObservedMatrix) -> DMFObjective:
        return DMFObjective(train.scale, root=self.settings.loss == "root", gamma=self.settings.gamma)

    def _new_network(self, entries: EntryStore) -> DMFNetwork:
        return DMFNetwork(*self._branches(entries), self._masking(entries))

    def _masking(self, entries: EntryStore) -> Masking | None:
        """Return what steps mask, where there are features; without any, all entries are always read."""
        rates = [0.0 if features is None else COLD_RATE for features in (entries.row_features, entries.column_features)]
        return Masking(0.0, cold_row_rate=rates[0], cold_column_rate=rates[1]) if any(rates) else None

    def _branches(self, entries: EntryStore) -> tuple[Branch, Branch]:
        """Return a branch that reads rows, and one that reads columns, with fresh weights."""
        generator = private_generator(self.settings.seed, "weights")
        n_filters = self.settings.summary_filters
        branches: list[Branch] = []
        features = entries.row_features, entries.column_features
        for n_inputs, sizes, width, known in zip(
            reversed(entries.train.shape), self.settings.branch_sizes, _SUMMARY_WIDTHS, features, strict=True
        ):
            summary = (
                Convolution(n_inputs, n_filters=n_filters, width=width, generator=generator) if n_filters else None
            )
            branches.append(
                Branch(
                    n_inputs,
                    sizes,
                    dropout=self.settings.dropout,
                    generator=generator,
                    summary=summary,
                    n_features=0 if known is None else known.n_inputs,
                )
            )
        rows, columns = branches
        return rows, columns

    def _trained(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        network, source = trainer.network, trainer.source
        assert isinstance(network, DMFNetwork) and isinstance(source, MatrixBlocks)
        encoder = BranchEncoder(network, entries.train, self.settings)
        rows = Latents(encoder.directions(network.rows, source.rows))
        columns = Latents(encoder.directions(network.columns, source.columns))
        network.to("cpu")
        return Predictor(rows, columns, encoder, self._readout(network, entries.scale))

    def _restored(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = self._stored_network(entries, tensors)
        rows, columns = unpack_latents(tensors, entries, width=self.settings.latent_size)
        encoder = BranchEncoder(network, entries.train, self.settings)
        return Predictor(rows, columns, encoder, self._readout(network, entries.scale))

    def _readout(self, network: Any, scale: Scale) -> Readout:
        return CosineReadout(scale)
