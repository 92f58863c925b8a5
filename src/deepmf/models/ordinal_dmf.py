"""OrdinalDMF: two branches that learn to foretell hidden entries, and answer with a distribution over the levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from torch import Tensor

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.row_order import IndexArray
from deepmf.matrix.scale import FloatArray
from deepmf.models.answers import Answers, answers_of
from deepmf.models.latent_model import digest
from deepmf.models.latents import LatentArray
from deepmf.models.load import load
from deepmf.models.network_model import sparse_vectors
from deepmf.models.observations import AxisEntries
from deepmf.models.ordinal_objective import OrdinalObjective
from deepmf.models.teachers import Teacher, Teachers
from deepmf.models.two_branch_model import TwoBranchModel, TwoBranchSettings
from deepmf.networks.branch import Branch
from deepmf.networks.channels import N_FACTS
from deepmf.networks.encoding import ENCODINGS
from deepmf.networks.hiding import Hiding, views
from deepmf.networks.ordinal_branches import OrdinalBranches
from deepmf.networks.ordinal_head import OrdinalHead
from deepmf.networks.vectors import Vectors
from deepmf.training.loop import Callback
from deepmf.training.machine import Machine, private_generator
from deepmf.training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class OrdinalDMFSettings(TwoBranchSettings):
    """The settings of OrdinalDMF beside those of its branches.

    hiding: the share of all entries that each step hides from both branches, and asks for.
    views: how many partial looks at a row or column make its latent; more are better and slower (1: one at all of it).
    bins: in how many bins of equal frequency the values of a scale without levels are cut.
    teachers: how many models are trained first, of which this one then learns what they agree on: more accurate, for
        so many times the time.
    """

    epochs: int = 800
    validate_every: int = 20
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    hiding: float = 0.6
    views: int = 32
    bins: int = 32
    teachers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_number("hiding", above=0.0, high=0.95)
        self.check_whole("views", low=1)
        self.check_whole("bins", low=2)
        self.check_whole("teachers", low=0)


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
    >>> model.predict_distribution([0], [0]).round(1)
    array([[0., 1.]])
    """

    settings_class: ClassVar[type[Settings]] = OrdinalDMFSettings
    settings: OrdinalDMFSettings
    network_: OrdinalBranches

    @property
    def answers_(self) -> FloatArray:
        """What the columns of a distribution stand for: the levels, or the mean values of the bins."""
        self._seen  # noqa: B018 (says that the model is not fitted, where it is not)
        answers: FloatArray = self.network_.head.answers.numpy()
        return answers

    @property
    def extra_columns(self) -> int:  # type: ignore[override]
        """How many of a latent's last numbers are effects, thresholds and a slope."""
        return 2 + self.network_.head.n_marks

    def predict_levels(self, rows: Iterable[Any], columns: Iterable[Any], *, metric: str = "rmse") -> FloatArray:
        """Return a level for each pair: nearest the mean ("rmse"), the median ("mae") or the mode ("accuracy")."""
        self._check_levels(metric)
        if metric == "rmse":
            return self.scale_.nearest_level(self.predict(rows, columns))
        return self._answers(rows, columns).best(metric)

    def predict_distribution(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the probability of each level (pairs, levels); without levels, of each bin (see `answers_`)."""
        return self._answers(rows, columns).distribution

    def predict_interval(self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9) -> Interval:
        """Return intervals that hold the true value with about this probability.

        Of levels, those around the likeliest one whose probability is nearest to the coverage; without levels,
        what lies between two tails of equal weight.
        """
        if not 0.0 < coverage < 1.0:
            raise BadSetting(f"coverage must be between 0 and 1; got {coverage!r}")
        answers = self._answers(rows, columns)
        if self.scale_.levels is None:
            ends = (answers.quantiles((1.0 + side * coverage) / 2.0) for side in (-1, 1))
            return Interval(*map(self.scale_.clip, ends))
        return Interval(*answers.interval(coverage))

    def _fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        *,
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        checkpoint_every: int,
    ) -> None:
        files = [checkpoint and checkpoint.with_name(f"{checkpoint.name}.teacher-{n}") for n in self._teacher_numbers]
        self._taught_by = [
            self._teacher(number, file, train, validation, callbacks=callbacks, checkpoint_every=checkpoint_every)
            for number, file in zip(self._teacher_numbers, files, strict=True)
        ]
        super()._fit(train, validation, callbacks=callbacks, checkpoint=checkpoint, checkpoint_every=checkpoint_every)
        self._taught_by = []
        for file in files:
            if file is not None and self.history_.stopped != "interrupted":
                file.unlink(missing_ok=True)

    @property
    def _teacher_numbers(self) -> range:
        return range(self.settings.teachers)

    def _teacher(
        self,
        number: int,
        file: Path | None,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        *,
        callbacks: Sequence[Callback],
        checkpoint_every: int,
    ) -> Teacher:
        """Train a teacher; with a file, keep it there until the student is trained, and take it from there."""
        seed = np.random.SeedSequence([self.settings.seed, number]).generate_state(1)
        model = type(self)(**self.settings.to_dict() | {"teachers": 0, "seed": int(seed[0])})
        if file is not None and file.exists():
            kept = load(file)
            if kept.settings != model.settings or digest(kept._seen.train) != digest(train):
                raise BadModelFile(f"{file} is a teacher of another run; delete it to start afresh")
            assert isinstance(kept, OrdinalDMF)
            return kept._as_teacher()
        training = None if file is None else file.with_name(f"{file.name}.checkpoint")
        model.fit(train, validation, callbacks=callbacks, checkpoint=training, checkpoint_every=checkpoint_every)
        if model.history_.stopped == "interrupted":
            raise KeyboardInterrupt
        if file is not None:
            model.save(file)
        return model._as_teacher()

    def _as_teacher(self) -> Teacher:
        return Teacher(self.row_latents_, self.column_latents_)

    def _new_network(self, train: ObservedMatrix) -> OrdinalBranches:
        n_rows, n_columns = train.shape
        head = OrdinalHead(*answers_of(train, n_bins=self.settings.bins))
        generator = private_generator(self.settings.seed, "weights")
        row_sizes, column_sizes = self.settings.branch_sizes
        return OrdinalBranches(
            self._branch(n_columns, row_sizes, head.n_row_outputs, generator),
            self._branch(n_rows, column_sizes, head.n_column_outputs, generator),
            head,
            Hiding(self.settings.hiding),
            row_views=self._views(n_columns),
            column_views=self._views(n_rows),
        )

    def _branch(self, n_inputs: int, sizes: Sequence[int], n_beside: int, generator: torch.Generator) -> Branch:
        """Return a branch with fresh weights and some outputs beside the direction."""
        sizes = (*sizes[:-1], sizes[-1] + n_beside)
        return Branch(2 * n_inputs, sizes, dropout=self.settings.dropout, generator=generator, n_facts=N_FACTS)

    def _views(self, n_inputs: int) -> Tensor:
        generator = private_generator(self.settings.seed, "views")
        return views(self.settings.views, n_inputs, share=self.settings.hiding, generator=generator)

    def _objective(
        self, train: ObservedMatrix, validation: ObservedMatrix | None, machine: Machine
    ) -> OrdinalObjective:
        teachers = Teachers(self._taught_by, machine) if self._taught_by else None
        return OrdinalObjective(self._new_network(train), train, validation, machine, teachers=teachers)

    def _row_latents(self, vectors: Vectors) -> LatentArray:
        latents: LatentArray = self.network_.viewed_row_latents(vectors).cpu().numpy()
        return latents

    def _column_latents(self, vectors: Vectors) -> LatentArray:
        latents: LatentArray = self.network_.viewed_column_latents(vectors).cpu().numpy()
        return latents

    def _vectors(self, entries: AxisEntries, n_inputs: int) -> Vectors:
        return sparse_vectors(entries, ENCODINGS["scaled"].encode(self.scale_, entries.values))

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._expected(super()._score_pairs(rows, columns), self._marks(rows))

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._expected(super()._score_block(rows, columns), self._marks(rows)[:, None])

    def _expected(self, scores: npt.NDArray[Any], marks: LatentArray) -> FloatArray:
        """Return the expected answer of each score, boundary by boundary, in memory of the size of the scores."""
        scores = scores * np.exp(marks[..., -1])
        expected = np.full(scores.shape, self.answers_[0])
        for number, step in enumerate(np.diff(self.answers_)):
            expected += step * expit(scores - marks[..., number])
        return expected

    def _answers(self, rows: Iterable[Any], columns: Iterable[Any]) -> Answers:
        """Return what can be said about each pair of labels."""
        row_positions, column_positions = self._positions(rows, columns)
        marks = self._marks(row_positions)
        scores = super()._score_pairs(row_positions, column_positions) * np.exp(marks[:, -1])
        exceeded = expit(scores[:, None] - marks[:, :-1]).astype(np.float64)
        boundaries = self.scale_.from_unit(self.network_.head.boundaries.numpy())
        return Answers(self.answers_, boundaries, exceeded)

    def _marks(self, rows: IndexArray) -> LatentArray:
        """Return the thresholds and the logarithm of the slope of some rows."""
        return self.row_latents_.whole()[rows, -self.network_.head.n_marks :]
