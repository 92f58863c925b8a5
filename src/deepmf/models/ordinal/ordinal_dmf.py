"""OrdinalDMF: two branches that learn to predict masked entries, and answer with a distribution over the levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from torch import Tensor

from deepmf.errors import BadModelFile, BadSetting
from deepmf.layers.branch import Branch
from deepmf.layers.input_channels import N_SUMMARY_FEATURES
from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.entry_store import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.label_pairs import Unknown
from deepmf.models.latents import Latents
from deepmf.models.network_model import sparse_vectors
from deepmf.models.ordinal.landmarks import Landmarks, landmarks_among
from deepmf.models.ordinal.masking import Masking, views
from deepmf.models.ordinal.ordinal_head import OrdinalHead
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.models.ordinal.ordinal_objective import OrdinalObjective
from deepmf.models.ordinal.ordinal_settings import OrdinalDMFSettings
from deepmf.models.ordinal.predictive_distribution import PredictiveDistribution, ordinal_support
from deepmf.models.ordinal.refinement import RefinedSide, Refinement, column_side, row_side
from deepmf.models.two_branch_model import TwoBranchModel
from deepmf.storage.packed import Packed, Tensors, numbers
from deepmf.training.loop import Callback
from deepmf.training.runtime import Runtime, private_generator
from deepmf.training.settings import Settings
from deepmf.training.trainer import Trainer

# The largest logarithm of a slope: that of some 10^34.
_STEEPEST = 80.0
# Rows are refined by columns and columns by rows so many times; a third round gains half of what the second does.
_ROUNDS = 2


class Interval(NamedTuple):
    """The lower and upper ends of prediction intervals, both included."""

    lower: FloatArray
    upper: FloatArray


class OrdinalDMF(TwoBranchModel):
    """DMF thought further: trained on entries it cannot see, it answers with a distribution over the levels.

    `predict` gives the expected value. On a scale without levels the same head answers for bins of equal frequency,
    and the expected value is a mean of what lies in them. Settings are keyword arguments; `OrdinalDMFSettings`
    explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = OrdinalDMF(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=60, views=4, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    >>> model.predict_distribution([0], [0]).round()
    array([[0., 1.]])
    """

    settings_class: ClassVar[type[Settings]] = OrdinalDMFSettings
    settings: OrdinalDMFSettings
    network_: OrdinalNetwork
    refinement_column_latents_: (
        LatentArray  # the trained columns as rows are refined by them, a round behind `column_latents_`
    )
    landmarks_: LatentArray  # the directions by which columns are known to the refinement of rows

    @property
    def support_(self) -> FloatArray:
        """What the columns of a distribution stand for: the levels, or the mean values of the bins."""
        self._seen  # noqa: B018 (says that the model is not fitted, where it is not)
        answers: FloatArray = self.network_.head.answers.cpu().numpy()
        return answers

    @property
    def extra_columns(self) -> int:  # type: ignore[override]
        """How many of a latent's last numbers are for landmarks, effects, thresholds and a slope."""
        return len(self.landmarks_) + 2 + self.network_.head.n_marks

    def predict_levels(
        self, rows: Iterable[Any], columns: Iterable[Any], *, metric: str = "rmse", unknown: Unknown = "error"
    ) -> FloatArray:
        """Return a level for each pair: nearest the mean ("rmse"), the median ("mae") or the mode ("accuracy").

        The fallback's median and mode are those of its distribution.
        """
        self._check_levels(metric)
        if metric == "rmse":
            return super().predict_levels(rows, columns, unknown=unknown)
        return self._said(rows, columns, unknown, lambda answers: answers.best(metric))

    def predict_distribution(
        self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error"
    ) -> FloatArray:
        """Return the probability of each level (pairs, levels); without levels, of each bin (see `support_`).

        By `unknown="fallback"`, it is how frequent each level is among the entries of the row or column that is known,
        mixed with five entries of how frequent it is in training; where neither is known, the latter alone.
        """
        return self._said(rows, columns, unknown, lambda answers: answers.distribution)

    def predict_interval(
        self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9, unknown: Unknown = "error"
    ) -> Interval:
        """Return intervals that hold the true value with about this probability.

        Of levels, those around the likeliest one whose probability is nearest to the coverage; without levels,
        what lies between two tails of equal weight.
        """
        if not isinstance(coverage, int | float) or not 0.0 < coverage < 1.0:
            raise BadSetting(f"coverage must be between 0 and 1; got {coverage!r}")

        def ends(answers: PredictiveDistribution) -> FloatArray:
            if self.scale_.levels is not None:
                return np.stack(answers.interval(coverage), axis=1)
            tails = [answers.quantiles((1.0 + side * coverage) / 2.0) for side in (-1, 1)]
            return self.scale_.clip(np.stack(tails, axis=1))

        return Interval(*self._said(rows, columns, unknown, ends).T)

    def _fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        *,
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        checkpoint_every: int,
    ) -> None:
        super()._fit(train, validation, callbacks=callbacks, checkpoint=checkpoint, checkpoint_every=checkpoint_every)
        if validation is not None and self.history_.best_error is not None:  # by all views, and refined
            rows, columns, values = validation.entries()
            self.history_.best_error = rmse_error(self.predict(rows, columns), values)

    def _new_network(self, train: ObservedMatrix) -> OrdinalNetwork:
        n_rows, n_columns = train.shape
        with torch.device("cpu"):  # of a network without weights, too: what can be answered is known
            head = OrdinalHead(*ordinal_support(train, n_bins=self.settings.bins))
        generator = private_generator(self.settings.seed, "weights")
        row_sizes, column_sizes = self.settings.branch_sizes
        return OrdinalNetwork(
            self._branch(n_columns, row_sizes, head.n_row_outputs, generator),
            self._branch(n_rows, column_sizes, head.n_column_outputs, generator),
            head,
            Masking(self.settings.mask_rate, self.settings.cold_row_rate),
            row_views=self._views(n_columns),
            column_views=self._views(n_rows),
        )

    def _branch(self, n_inputs: int, sizes: Sequence[int], n_beside: int, generator: torch.Generator) -> Branch:
        """Return a branch with fresh weights and some outputs beside the direction."""
        sizes = (*sizes[:-1], sizes[-1] + n_beside)
        return Branch(
            2 * n_inputs,
            sizes,
            dropout=self.settings.dropout,
            generator=generator,
            n_summary_features=N_SUMMARY_FEATURES,
        )

    def _views(self, n_inputs: int) -> Tensor:
        generator = private_generator(self.settings.seed, "views")
        return views(self.settings.views, n_inputs, mask_rate=self.settings.mask_rate, generator=generator)

    def _objective(
        self, train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime
    ) -> OrdinalObjective:
        return OrdinalObjective(self._new_network(train), train, validation, runtime)

    def _adopt(self, task: Trainer) -> None:
        super()._adopt(task)
        self.network_.to(task.runtime.device)  # views and solves of what comes later are far faster on a GPU

    def _set_latents(self, objective: OrdinalObjective) -> None:
        """Compute all latents: columns as the branch has them, and twice rows refined by columns and these by those."""
        n_rows, n_columns = self._seen.train.shape
        rows = self._vectors(self._seen.row_entries(np.arange(n_rows)), n_columns)
        columns = self._vectors(self._seen.column_entries(np.arange(n_columns)), n_rows)
        viewed = objective.network.viewed_column_latents(objective.blocks.columns)
        directions = viewed[:, : self.settings.latent_size]
        most = 0 if self.settings.row_penalty is None else self.settings.landmarks
        self.landmarks_ = _numpy(directions[landmarks_among(directions, most)])
        latents = _numpy(column_side(self.network_, self._landmarks()).placed(viewed[:, None])[:, 0])
        both = None not in (self.settings.row_penalty, self.settings.column_penalty)
        for _ in range(_ROUNDS if both else 1):
            self.refinement_column_latents_ = latents
            self.row_latents_ = Latents(self._row_latents(rows))
            latents = self._column_latents(columns)
        self.column_latents_ = Latents(latents)

    def _row_latents(self, vectors: SparseVectors) -> LatentArray:
        side = row_side(self.network_, self._landmarks())
        return self._refined(side, vectors, self.refinement_column_latents_, self.settings.row_penalty, self._own_marks)

    def _column_latents(self, vectors: SparseVectors) -> LatentArray:
        side = column_side(self.network_, self._landmarks())
        return self._refined(side, vectors, self.row_latents_.base, self.settings.column_penalty, self._others_marks)

    def _landmarks(self) -> Landmarks:
        return Landmarks(torch.from_numpy(self.landmarks_).to(self._device))

    @property
    def _device(self) -> torch.device:
        return self.network_.head.scale.device

    def _refined(
        self,
        side: RefinedSide,
        vectors: SparseVectors,
        others: LatentArray,
        penalty: float | None,
        marks_of: Callable[[Tensor, Tensor], Tensor],
    ) -> LatentArray:
        """Return the latents of some rows or columns, refined by the other side as they meet it."""
        known = torch.from_numpy(others).to(self._device)
        return _numpy(Refinement(self.network_.head, side, known, marks_of, penalty).latents(vectors.to(self._device)))

    def _own_marks(self, latents: Tensor, others: Tensor) -> Tensor:
        return latents[:, None, -self.network_.head.n_marks :].expand(-1, others.shape[1], -1)

    def _others_marks(self, latents: Tensor, others: Tensor) -> Tensor:
        return others[..., -self.network_.head.n_marks :]

    def _vectors(self, entries: AxisEntries, n_inputs: int) -> SparseVectors:
        return sparse_vectors(entries, ENCODINGS["scaled"].encode(self.scale_, entries.values))

    def _width(self) -> int:
        return self.settings.latent_size + self.extra_columns

    def _learned(self) -> Packed:
        learned = super()._learned()
        known = {"latents.columns.met": self.refinement_column_latents_, "latents.landmarks": self.landmarks_}
        return Packed(learned.content, learned.tensors | known)

    def _set_learned(self, content: Any, tensors: Tensors) -> None:
        self.landmarks_ = numbers(tensors, "latents.landmarks", "float32", (None, self.settings.latent_size))
        if not Landmarks(torch.from_numpy(self.landmarks_)).are_apart():
            raise BadModelFile("the stored landmarks are no directions that differ")
        super()._set_learned(content, tensors)
        self.refinement_column_latents_ = numbers(
            tensors, "latents.columns.met", "float32", self.column_latents_.base.shape
        )
        check_answers(self.network_.head, self.scale_)
        if self._marks(np.arange(len(self.row_latents_)))[:, -1].max() > _STEEPEST:
            raise BadModelFile("the stored slopes of rows are so steep that they are not finite")

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._expected(super()._score_pairs(rows, columns), self._marks(rows))

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._expected(super()._score_block(rows, columns), self._marks(rows)[:, None])

    def _expected(self, scores: npt.NDArray[Any], marks: LatentArray) -> FloatArray:
        """Return the expected answer of each score, boundary by boundary, in memory of the size of the scores."""
        scores = scores * np.exp(marks[..., -1])
        expected = np.full(scores.shape, self.support_[0])
        for number, step in enumerate(np.diff(self.support_)):
            expected += step * expit(scores - marks[..., number])
        return expected

    def _said(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        say: Callable[[PredictiveDistribution], FloatArray],
    ) -> FloatArray:
        """Return what is to be said of the distribution of each pair of labels."""
        return self._pairs(rows, columns, unknown).answered(
            lambda *pairs: say(self._answers(*pairs)), lambda *pairs: say(self._fallback_answers(*pairs))
        )

    def _answers(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return what the network makes of each pair of positions."""
        marks = self._marks(rows)
        scores = super()._score_pairs(rows, columns) * np.exp(marks[:, -1])
        return PredictiveDistribution(
            self.support_, self._boundaries, expit(scores[:, None] - marks[:, :-1]).astype(np.float64)
        )

    def _fallback_answers(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return what is known of each pair of positions, where -1 is unknown."""
        frequencies = self._fallback.distribution(rows, columns, self.network_.head.boundaries.cpu().numpy())
        return PredictiveDistribution(self.support_, self._boundaries, 1.0 - np.cumsum(frequencies, axis=1)[:, :-1])

    @property
    def _boundaries(self) -> FloatArray:
        return self.scale_.from_unit(self.network_.head.boundaries.cpu().numpy())

    def _marks(self, rows: IndexArray) -> LatentArray:
        """Return the thresholds and the logarithm of the slope of some rows."""
        return self.row_latents_.whole()[rows, -self.network_.head.n_marks :]


def check_answers(head: OrdinalHead, scale: Scale) -> None:
    """Refuse stored answers that are not those of a scale, or boundaries that do not lie between them."""
    answers, boundaries = head.answers.numpy(), head.boundaries.numpy()
    if scale.levels is not None and not np.array_equal(answers, scale.levels):
        raise BadModelFile(f"the stored answers are not the levels of {scale}")
    falls = np.any(np.diff(answers) < 0) or np.any(np.diff(boundaries) < 0)
    if falls or not (scale.low <= answers.min() and answers.max() <= scale.high and np.abs(boundaries).max() <= 1.0):
        raise BadModelFile(f"the stored answers do not rise from one end of {scale} to the other")


def _numpy(latents: Tensor) -> LatentArray:
    array: LatentArray = latents.cpu().numpy()
    return array
