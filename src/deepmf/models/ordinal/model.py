"""OrdinalDMF: two branches trained to predict masked entries; predictions are distributions over
the levels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import ENCODINGS
from deepmf.models.fitted import Fitted
from deepmf.models.fitting import Fitting, measure_means
from deepmf.models.network_model import NetworkModel
from deepmf.models.ordinal.encoder import (
    REFINEMENT,
    OrdinalEncoder,
    build_encoder,
    explain_parts,
    load_choices,
)
from deepmf.models.ordinal.head import OrdinalHead, OrdinalReadout, check_support
from deepmf.models.ordinal.linear_part import (
    FEW_ENTRIES,
    Chain,
    LinearFit,
    bound_linear_width,
    fit_beside,
    fit_linear,
)
from deepmf.models.ordinal.network import OrdinalNetwork, OrdinalObjective
from deepmf.models.ordinal.refinement import Landmarks
from deepmf.models.ordinal.settings import Facts, OrdinalDMFSettings, choose_settings
from deepmf.models.traits import Recommends
from deepmf.nn.branch import Branch
from deepmf.nn.inputs import N_SUMMARY_FEATURES
from deepmf.nn.masking import Masking, draw_views
from deepmf.scoring.distribution import find_support
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor, unpack_latents
from deepmf.storage.model_file import Tensors, has_values_to_check
from deepmf.training.blocks import MatrixBlocks
from deepmf.training.holdout import HeldOut
from deepmf.training.loop import Epoch
from deepmf.training.runtime import Runtime, make_generator, measure_slowness
from deepmf.training.settings import EFFORTS, Settings
from deepmf.training.trainer import Trainer

# One entry in this many is held out, of many entries and of few.
_ONE_IN = {False: 20, True: 10}

# The largest stored logarithm of a slope, of which exp is still finite in float32.
_LARGEST_LOG_SLOPE = 80.0

# Seconds of one idle core: of an iteration of the sampler for each entry, for each row and column,
# and beside these; of a network for each entry that a step reads and hidden unit, and for each
# entry and view afterwards; of the presence part for each column. Those of a GPU: beside the
# sampler, and of an iteration, without and for each entry.
_SAMPLER_SECONDS, _NETWORK_SECONDS, _PRESENCE_SECONDS = (3.2e-7, 5e-6, 1.05e-2), (4e-9, 5e-6), 4e-3
_GPU_SECONDS = 3.0, 0.02, 1.8e-8


class OrdinalTrainer(Trainer):
    """Trains the network; on a GPU, `fit_linear` is called beside it, with the device, for what is
    `linear_fit`."""

    def __init__(
        self,
        *given: Any,
        fit_linear: Callable[[torch.device], LinearFit | None] | None,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._fit_linear = fit_linear
        self.linear_fit: Future[LinearFit | None] | None = None

    def run_epoch(self, epoch: int) -> Epoch:
        """Take a step on every block; fit the linear part beside the epochs once no step is left to
        record."""
        outcome = super().run_epoch(epoch)
        if self.replays_steps and self.linear_fit is None and self._fit_linear is not None:
            device = self.runtime.device
            self.linear_fit = fit_beside(partial(self._fit_linear, device), device)
        return outcome


class OrdinalDMF(Recommends, NetworkModel):
    """DMF with an ordinal head: trained on masked entries, it predicts a distribution over the
    levels.

    `predict` returns expected values. On a scale without levels, the same head predicts bins of
    equal frequency, and the expected value is a mean of the bins' means. Settings are keyword
    arguments, see `OrdinalDMFSettings`; `fit` chooses sizes, schedule and blocks for the matrix and
    the machine unless they are given.

    Validation entries choose the best epoch, the penalties of the refinement, and the shares of its
    parts. Without validation entries, `fit` holds out 5 % of the entries for these choices, or 10 %
    of up to 20,000.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = OrdinalDMF(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=60, views=4, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    >>> model.predict_distribution([0], [0]).round()
    array([[0., 1.]])
    """

    settings_class: ClassVar[type[Settings]] = OrdinalDMFSettings
    fits_on_ranks: ClassVar[bool] = True
    settings: OrdinalDMFSettings
    takes_features: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    holds_out: ClassVar[bool] = True
    _chain: Chain | None = None  # that the sampler of this fit goes on from, or has run
    _keeps_chain = False

    @property
    def chosen_(self) -> dict[str, Any]:
        """The settings that `fit` chose; "parts" says which parts were fitted, and why."""
        encoder = None if self._fitted is None else self._fitted.predictor.encoder
        if not isinstance(encoder, OrdinalEncoder):
            return super().chosen_
        return super().chosen_ | {
            "parts": explain_parts(encoder, self.history_.stages, self.settings)
        }

    @property
    def chosen_on_entries_(self) -> dict[str, float]:
        """The choices on held-out entries: penalties (infinity: no refinement) and the linear part.

        Of the linear part: latent size, number of samples and share.

        Without held-out entries, the penalties have default values and there is no linear part.
        """
        encoder = self.predictor_.encoder
        assert isinstance(encoder, OrdinalEncoder)
        return super().chosen_on_entries_ | {
            "row_penalty": encoder.penalties.rows,
            "column_penalty": encoder.penalties.columns,
            "linear_size": 0 if encoder.linear is None else encoder.linear.model.size,
            "linear_samples": 0
            if encoder.linear is None
            else encoder.linear.model.samples.n_samples,
            "linear_share": encoder.linear_share,
        }

    @property
    def _n_networks(self) -> int:
        # without networks, one stays as it is drawn and takes no part
        return max(1, self.settings.networks)

    @property
    def _latent_width(self) -> int:
        settings = self.settings
        size, n_samples = settings.linear_size, settings.linear_samples
        linear = bound_linear_width(size=size, n_samples=n_samples, is_gpu=self._on_gpu)
        return self._direction_size + settings.landmarks + linear

    @property
    def _direction_size(self) -> int:
        return self._n_networks * self.settings.latent_size

    def _describe_work(self, epochs: int) -> str:
        if self.settings.networks:
            return super()._describe_work(epochs)
        iterations = f"{self.settings.linear_iterations} iterations"
        return f"the linear part alone, {iterations} on the {'GPU' if self._on_gpu else 'CPU'}"

    def _estimate_seconds(self, train: ObservedMatrix) -> float:
        """Return about how long a fit takes now; on a GPU, the sampler runs beside the network and
        takes longer."""
        if not self._on_gpu:
            return self._estimate_work(train) * measure_slowness(train.n_entries)
        return _GPU_SECONDS[0] + self._count_iterations(train) * (
            _GPU_SECONDS[1] + _GPU_SECONDS[2] * train.n_entries
        )

    def _estimate_work(self, train: ObservedMatrix) -> float:
        """Return the seconds of a fit on one idle core."""
        settings, n, (n_rows, n_columns) = self.settings, train.n_entries, train.shape
        each = (
            _SAMPLER_SECONDS[0] * n
            + _SAMPLER_SECONDS[1] * (n_rows + n_columns)
            + _SAMPLER_SECONDS[2]
        )
        work = self._count_iterations(train) * each
        if settings.networks:
            n_steps = max(
                -(-n_rows // settings.block_rows), -(-n_columns // settings.block_columns)
            )
            n_read = settings.epochs * n_steps * self._count_read(train)
            work += _NETWORK_SECONDS[0] * n_read * sum(settings.hidden_sizes) * settings.networks
            work += _NETWORK_SECONDS[1] * n * settings.views
        if settings.presence is not None:
            work += _PRESENCE_SECONDS * n_columns * (1.0 + 2.0 * train.extras.are_ordered)
        normal = self._make_normal(train)
        return work if normal is None else work + normal._estimate_work(train)

    def _count_iterations(self, train: ObservedMatrix) -> float:
        """Return the iterations of the sampler in all chains: for few entries, it also runs on
        parts of them."""
        n_chains = 2.5 if train.n_entries <= FEW_ENTRIES else 1.0
        return 0.0 if self.settings.linear_size == 0 else n_chains * self.settings.linear_iterations

    def _choose_settings(self, train: ObservedMatrix) -> dict[str, Any]:
        return self._choose_for(train, self.settings.effort)

    def _choose_for(self, train: ObservedMatrix, effort: str) -> dict[str, Any]:
        facts = Facts(*train.shape, train.n_entries, Runtime(self.settings.device).is_gpu)
        epochs = self.settings.epochs if "epochs" in self._given else None
        return choose_settings(facts, effort, epochs=epochs)

    def _learn(
        self, entries: EntryStore, validation: HeldOut | None, fitting: Fitting
    ) -> Fitted | None:
        """Learn; with effort "best", what effort "normal" would learn comes first and stays if it
        predicts better."""
        normal = self._make_normal(entries.train)
        first = (
            None if normal is None else NetworkModel._learn(normal, entries, validation, Fitting())
        )
        if normal is None or first is None or normal.history_.best_error is None:
            return super()._learn(entries, validation, fitting)
        fitted = None
        if normal.history_.stopped != "interrupted":
            self._chain = normal._chain
            try:
                fitted = super()._learn(entries, validation, fitting)
            finally:
                self._chain = None
        error = self.history_.best_error
        if fitted is None or error is None or error >= normal.history_.best_error:
            self.settings, self._chosen, self.history_ = (
                normal.settings,
                normal._chosen,
                normal.history_,
            )
            return first
        return fitted

    def _make_normal(self, train: ObservedMatrix) -> OrdinalDMF | None:
        """Return this model with the settings of effort "normal" where they were not given; None if
        it has them."""
        if self.settings.effort != EFFORTS[-1]:
            return None
        usual = self._choose_for(train, "normal")
        usual = {name: value for name, value in usual.items() if name in self._chosen}
        normal = copy.copy(self)
        normal._keeps_chain = True
        normal.settings, normal._chosen = replace(self.settings, **usual), self._chosen | usual
        return None if normal.settings == self.settings else normal

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> Trainer:
        if validation is not None:
            return self._make_trainer(entries, entries.train, validation)
        one_in = _ONE_IN[entries.train.n_entries <= FEW_ENTRIES]
        return self._make_trainer(
            entries, *HeldOut.split(entries.train, seed=self.settings.seed, one_in=one_in)
        )

    def _make_trainer(
        self, entries: EntryStore, seen: ObservedMatrix, validation: HeldOut | None
    ) -> Trainer:
        """Return the trainer of a new network, which is trained on the entries of `seen`."""
        settings = self.settings
        source = MatrixBlocks(
            seen,
            ENCODINGS["scaled"],
            block_rows=settings.block_rows,
            block_columns=settings.block_columns,
            whole_epochs=True,
            missing=float("nan"),
            row_features=None if entries.row_features is None else entries.row_features.base,
            column_features=None
            if entries.column_features is None
            else entries.column_features.base,
        )
        network, objective = self._new_network(entries), OrdinalObjective()
        fit = (
            None
            if validation is None
            else partial(fit_linear, seen, entries, validation, settings, self._chain)
        )
        return OrdinalTrainer(
            network, objective, source, settings, fit_linear=fit, validation=validation
        )

    def _new_network(self, entries: EntryStore) -> OrdinalNetwork:
        settings, (n_rows, n_columns) = self.settings, entries.train.shape
        # the support has values even where a network is made without weights
        with torch.device("cpu"):
            support = find_support(entries.train, n_bins=settings.bins)
            head = OrdinalHead(*support, groups=self._n_networks)
        generator = make_generator(settings.seed, "weights")

        def make_branch(n_inputs: int, n_effects: int, features: AxisFeatures | None) -> Branch:
            return Branch(
                2 * n_inputs,
                (*settings.hidden_sizes, settings.latent_size + n_effects),
                dropout=settings.dropout,
                generator=generator,
                n_summary_features=N_SUMMARY_FEATURES,
                n_features=0 if features is None else features.n_inputs,
                groups=self._n_networks,
            )

        def draw(n_inputs: int) -> Tensor:
            of_views = make_generator(settings.seed, "views")
            return draw_views(
                settings.views, n_inputs, mask_rate=settings.mask_rate, generator=of_views
            )

        return OrdinalNetwork(
            make_branch(n_columns, head.n_row_outputs, entries.row_features),
            make_branch(n_rows, head.n_column_outputs, entries.column_features),
            head,
            Masking(
                settings.mask_rate,
                cold_row_rate=settings.cold_row_rate,
                cold_column_rate=settings.cold_column_rate,
            ),
            row_views=draw(n_columns),
            column_views=draw(n_rows),
        )

    def _wrap_network(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        network, source = trainer.network, trainer.source
        assert isinstance(network, OrdinalNetwork) and isinstance(source, MatrixBlocks)
        assert isinstance(trainer, OrdinalTrainer)
        encoder, rows, columns, stages, chain = build_encoder(
            network,
            source,
            entries,
            trainer.validation,
            self.settings,
            linear_fit=trainer.linear_fit,
            earlier=self._chain,
            tell=fitting.show_stage,
        )
        if self._keeps_chain:
            self._chain = chain
        if trainer.validation is not None and source.matrix is not entries.train:
            self.history_.means_error = measure_means(
                EntryStore.of(source.matrix), trainer.validation
            )
        if stages and self.history_.best_error is not None:
            self.history_.stages = {"branches": self.history_.best_error} | stages
            self.history_.best_error = list(stages.values())[-1]
        return self._wrap_encoder(encoder, rows, columns)

    def _wrap_encoder(self, encoder: OrdinalEncoder, rows: Latents, columns: Latents) -> Predictor:
        layout = encoder.layout
        readout = OrdinalReadout(
            encoder.scale,
            encoder.network.head,
            layout,
            encoder.linear_share,
            encoder.linear_cutpoints,
            coverages=encoder.coverages,
        )
        return Predictor(rows, columns, encoder, readout, n_beside=layout.n_beside)

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = self._load_network(entries, tensors)
        check_support(network.head, entries.scale)
        choices = load_choices(
            content, entries, tensors, n_cutpoints=network.head.boundaries.numel()
        )
        n_linear = 0 if choices["linear"] is None else choices["linear"].model.width
        sizes: dict[str, Any] = {
            "directions": self._direction_size,
            "columns": entries.train.shape[1],
        }
        stored = REFINEMENT.read({}, tensors, beside=network.layout.width + n_linear, **sizes)
        if not Landmarks(torch.from_numpy(stored["landmarks"])).are_independent():
            raise BadModelFile("the stored landmarks must be different directions")
        encoder = OrdinalEncoder(
            network,
            entries.scale,
            landmarks=stored["landmarks"],
            refinement_columns=stored["columns"],
            **choices,
        )
        layout = encoder.layout
        rows, columns = unpack_latents(tensors, entries, width=layout.width)
        if (
            has_values_to_check(tensors)
            and len(rows)
            and rows.whole()[:, layout.response][:, -1].max() > _LARGEST_LOG_SLOPE
        ):
            raise BadModelFile(
                "the stored slopes of rows are too steep: they are not finite numbers"
            )
        return self._wrap_encoder(encoder, rows, columns)
