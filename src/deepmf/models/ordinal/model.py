"""OrdinalDMF: a blend of a network and a sampler, whose predictions are distributions over the
levels."""

from __future__ import annotations

import copy
import math
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from deepmf.errors import BadSetting, warn
from deepmf.files import special
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import ENCODINGS
from deepmf.models.blending import (
    Blend,
    HeldOutValues,
    Share,
    choose_blend,
    choose_few_count,
    explain_members,
    find_own_link,
    make_blind,
)
from deepmf.models.estimator import check_products, refuse_unsolvable
from deepmf.models.fitted import Fitted
from deepmf.models.fitting import Fitting, check_alike, identify_training, measure_means
from deepmf.models.gibbs.chain import estimate_chain_bytes
from deepmf.models.gibbs.encoder import SampleEncoder
from deepmf.models.gibbs.member import (
    FEW_ENTRIES,
    MOST_SAMPLED,
    SampledChain,
    SamplerMember,
    bound_width,
)
from deepmf.models.members import Member, MemberFit, MemberInputs, load_members
from deepmf.models.neighbours import NeighbourMember, fit_to_residuals
from deepmf.models.network_model import NetworkModel
from deepmf.models.ordinal.encoder import NetworkMember, OrdinalEncoder
from deepmf.models.ordinal.head import OrdinalReadout, describe_head, load_readout
from deepmf.models.ordinal.refinement import TrainedOrdinal
from deepmf.models.ordinal.settings import Facts, OrdinalDMFSettings, choose_settings
from deepmf.models.positions.member import PositionsMember
from deepmf.models.similarity import SimilarityMember
from deepmf.models.trained_network import describe_branch, load_weights, read_weights
from deepmf.models.traits import Recommends
from deepmf.nn.group import find_ranks
from deepmf.nn.summaries import N_SUMMARY_FEATURES
from deepmf.scoring.confidence import Trust, load_confidence
from deepmf.scoring.distribution import PredictiveDistribution, find_support
from deepmf.scoring.factors import Factors
from deepmf.scoring.predictor import Blended, Predictor
from deepmf.scoring.rehearsal import Rehearsal, fit_trust, make_confidence
from deepmf.storage.model_file import Tensors
from deepmf.training.devices import find_device, has_torch
from deepmf.training.history import History
from deepmf.training.holdout import HeldOut
from deepmf.training.settings import EFFORTS, Settings
from deepmf.training.threads import keep_numpy_to_one_thread, limit_threads, measure_slowness

if TYPE_CHECKING:
    import torch

    from deepmf.models.ordinal.network import OrdinalNetwork
    from deepmf.nn.branch import Branch
    from deepmf.training.memory import FitBytes
    from deepmf.training.trainer import Trainer

# Members in the order in which they join: a network has to lower the error of the sampler, and
# others that of both. Some read features alone.
_TURNS = ("sampler", "network", "positions", "similarity", "neighbours")
_OF_FEATURES = ("positions", "similarity")

# One entry in this many is held out, of many entries and of few.
_ONE_IN = {False: 20, True: 10}

# Seconds of one idle core: of an iteration of the sampler for each entry, for each row and column,
# and beside these; of a network for each entry that a step reads and hidden unit, and for each
# entry and view afterwards; of the presence part for each column. Those of a GPU: beside the
# sampler, and of an iteration, without and for each entry.
_SAMPLER_SECONDS, _NETWORK_SECONDS, _PRESENCE_SECONDS = (3.2e-7, 5e-6, 1.05e-2), (4e-9, 5e-6), 4e-3
_GPU_SECONDS = 3.0, 0.02, 1.8e-8


class OrdinalDMF(Recommends, NetworkModel):
    """DMF with an ordinal head: trained on masked entries, it predicts a distribution over the
    levels.

    `predict` returns expected values. On a scale without levels, the same head predicts bins of
    equal frequency, and the expected value is a mean of the bins' means. Settings are keyword
    arguments, see `OrdinalDMFSettings`; `fit` chooses sizes, schedule and blocks for the matrix and
    the machine unless they are given.

    It is a blend of members: a network and a sampler of a factorisation (`gibbs/`). Validation
    entries choose the best epoch, the penalties of the refinement, and the shares of the members;
    a member that lowers no error beyond doubt is left out. Without validation entries, `fit` holds
    out 5 % of the entries for these choices, or 10 % of up to 20,000. `networks=0` trains no
    network.

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
    _chain: SampledChain | None = None  # that the sampler of this fit goes on from, or has run
    _keeps_chain = False

    @property
    def chosen_(self) -> dict[str, Any]:
        """The settings that `fit` chose; "members" says which member has which share, "parts" which
        were fitted, and why."""
        if self._fitted is None or self.scale_.is_interactions:
            return super().chosen_
        shares = {name: member.share for name, member in self.predictor_.members.items()}
        return super().chosen_ | {"members": shares, "parts": self._explain_members(shares)}

    @property
    def chosen_on_entries_(self) -> dict[str, float]:
        """The choices on held-out entries: penalties (infinity: no refinement) and the sampler.

        Of the sampler: latent size, number of samples and share.

        Without held-out entries, the penalties have default values, and one member is all.
        """
        network, sampler = self._get_factors("network"), self._get_factors("sampler")
        choices = dict(super().chosen_on_entries_)
        if network is not None:
            assert isinstance(network.encoder, OrdinalEncoder)
            choices["row_penalty"] = network.encoder.penalties.rows
            choices["column_penalty"] = network.encoder.penalties.columns
        choices |= {"linear_size": 0, "linear_samples": 0, "linear_share": 0.0}
        if sampler is not None:
            assert isinstance(sampler.encoder, SampleEncoder)
            choices["linear_size"] = sampler.encoder.size
            choices["linear_samples"] = sampler.encoder.samples.n_samples
            choices["linear_share"] = self.predictor_.members["sampler"].share
        return choices

    @property
    def network_(self) -> OrdinalNetwork:
        """The trained network."""
        network = self._get_factors("network")
        if network is None:
            raise BadSetting("this OrdinalDMF has no network: the sampler alone predicts")
        assert isinstance(network.encoder, OrdinalEncoder)
        module: OrdinalNetwork = self._find_module(network.encoder.network)
        return module

    def _get_factors(self, name: str) -> Factors | None:
        member = self.predictor_.members.get(name)
        return member.fitted if member and isinstance(member.fitted, Factors) else None

    def _explain_members(self, shares: dict[str, float]) -> dict[str, str]:
        """Say for each member whether it was fitted and takes part, and what its error is."""
        stages, settings = self.history_.stages, self.settings
        reasons = {"sampler": "its chain has no posterior"}
        if settings.linear_size == 0:
            reasons["sampler"] = "linear_size is 0"
        reasons["network"] = "networks=0, or torch was not installed"
        if settings.effort == EFFORTS[0]:
            reasons["network"] = "it takes longer than this effort allows"
        turns = {name: stages[name] for name in _TURNS if name in stages}
        explained = explain_members(shares, turns)
        for name, reason in reasons.items():
            explained.setdefault(name, f"not fitted: {reason}")
        explained["refinement"] = self._explain_refinement()
        names = ["sampler", "network", "refinement", *_OF_FEATURES, "neighbours"]
        return {name: explained[name] for name in names if name in explained}

    def _explain_refinement(self) -> str:
        stages, network = self.history_.stages, self._get_factors("network")
        if not self.settings.networks:
            return "not fitted: no network to refine"
        if "refined" not in stages:
            return "fitted; no entries were held out"
        if network is not None:
            assert isinstance(network.encoder, OrdinalEncoder)
            if not math.isfinite(min(network.encoder.penalties)):
                return "left out: it does not lower the network's held-out error"
        steps = {name: stages[name] for name in ("branches", "refined")}
        return explain_members({"refined": 1.0, "branches": 1.0}, steps)["refined"]

    @property
    def _latent_width(self) -> int:
        settings = self.settings
        size, n_samples = settings.linear_size, settings.linear_samples
        sampled = bound_width(size=size, n_samples=n_samples, is_gpu=self._on_gpu)
        return settings.networks * settings.latent_size + settings.landmarks + sampled

    def _estimate_bytes(self, entries: EntryStore) -> FitBytes:
        if self.settings.networks:
            return super()._estimate_bytes(entries)
        settings = self.settings
        size = settings.linear_size or MOST_SAMPLED[self._on_gpu]
        return estimate_chain_bytes(entries.train, settings.linear_samples, size)

    def _describe_work(self, epochs: int) -> str:
        if self.settings.networks:
            return super()._describe_work(epochs)
        iterations = f"{self.settings.linear_iterations} iterations"
        return f"the sampler alone, {iterations} on the {'GPU' if self._on_gpu else 'CPU'}"

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
        iteration_seconds = (
            _SAMPLER_SECONDS[0] * n
            + _SAMPLER_SECONDS[1] * (n_rows + n_columns)
            + _SAMPLER_SECONDS[2]
        )
        work = self._count_iterations(train) * iteration_seconds
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
        """Return the iterations of the sampler in all chains: of few entries, two are compared."""
        if self.settings.linear_size == 0:
            return 0.0
        n_iterations = float(self.settings.linear_iterations)
        if train.n_entries <= FEW_ENTRIES:
            n_iterations *= 4.0 / 3.0  # the blind third is run twice
        return n_iterations

    def _choose_settings(self, train: ObservedMatrix) -> dict[str, Any]:
        if self.settings.effort != EFFORTS[0] and self._lacks_torch():
            warn("torch is not installed: without the network; pip install torch")
        if "networks" in self._given and self.settings.networks:
            super()._choose_settings(train)
        return self._choose_for(train, self.settings.effort)

    def _choose_for(self, train: ObservedMatrix, effort: str) -> dict[str, Any]:
        facts = Facts(*train.shape, train.n_entries, find_device(self.settings.device) != "cpu")
        epochs = self.settings.epochs if "epochs" in self._given else None
        choices = choose_settings(facts, effort, epochs=epochs)
        if choices["networks"] and self._lacks_torch():
            choices["networks"] = 0
        return choices

    def _lacks_torch(self) -> bool:
        """Whether a network is not asked for, and cannot be trained."""
        return "networks" not in self._given and not has_torch()

    def _learn(
        self, entries: EntryStore, validation: HeldOut | None, fitting: Fitting
    ) -> Fitted | None:
        """Learn; with effort "best", what effort "normal" would learn comes first and stays if it
        predicts better."""
        if not self.settings.networks and self.settings.linear_size == 0:
            raise BadSetting("networks=0 and linear_size=0 leave no member to predict with")
        normal = self._make_normal(entries.train)
        first = None if normal is None else normal._learn_once(entries, validation, Fitting())
        if normal is None or first is None or normal.history_.best_error is None:
            return self._learn_once(entries, validation, fitting)
        fitted = None
        if normal.history_.stopped != "interrupted":
            self._chain = normal._chain
            try:
                fitted = self._learn_once(entries, validation, fitting)
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

    def _learn_once(
        self, entries: EntryStore, validation: HeldOut | None, fitting: Fitting
    ) -> Fitted | None:
        """Learn by these settings: a network is trained in epochs, and other members are fitted
        afterwards, or beside it on a GPU."""
        if self.settings.networks:
            return super()._learn(entries, validation, fitting)
        device, settings = find_device(self.settings.device), self.settings
        if find_ranks() is not None:
            check_alike(identify_training(type(self).__name__, settings, entries, validation))
        self.history_ = History(stopped="epochs")
        limited = limit_threads(settings.device, n_entries=entries.train.n_entries)
        with limited, keep_numpy_to_one_thread(), refuse_unsolvable():
            training, held_out = self._hold_out(entries, validation)
            inputs = gather_inputs(entries, training, held_out, settings.seed, device)
            predictor = self._fit_members(inputs, self._make_members(), fitting)
        return check_products(Fitted(entries, predictor))

    def _make_members(self) -> dict[str, Member]:
        """Return the members that the settings ask for, not fitted; a network comes first."""
        settings = self.settings
        members: dict[str, Member] = {}
        if settings.networks:
            members["network"] = NetworkMember(settings, self._load_weights)
        if settings.linear_size != 0:
            members["sampler"] = SamplerMember(
                settings.linear_size,
                settings.linear_iterations,
                settings.linear_samples,
                settings.bins,
                settings.seed,
                earlier=self._chain,
            )
        members["positions"] = PositionsMember(settings.seed)
        members["similarity"] = SimilarityMember()
        if settings.neighbours is not None:
            members["neighbours"] = NeighbourMember()
        return members

    def _hold_out(
        self, entries: EntryStore, validation: HeldOut | None
    ) -> tuple[ObservedMatrix, HeldOut | None]:
        """Return the entries that are learned from, and those that are held out."""
        if validation is not None:
            return entries.train, validation
        one_in = _ONE_IN[entries.train.n_entries <= FEW_ENTRIES]
        return HeldOut.split(entries.train, seed=self.settings.seed, one_in=one_in)

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> Trainer:
        return self._make_trainer(entries, *self._hold_out(entries, validation))

    def _make_trainer(
        self, entries: EntryStore, seen: ObservedMatrix, validation: HeldOut | None
    ) -> Trainer:
        """Return the trainer of a new network, which is trained on the entries of `seen`."""
        from deepmf.models.ordinal.network import OrdinalObjective
        from deepmf.models.ordinal.trainer import OrdinalTrainer, fit_on_device
        from deepmf.training.blocks import MatrixBlocks

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
        members = self._make_members()
        learn = partial(gather_inputs, entries, seen, validation, settings.seed)
        fit_sampler = None
        if validation is not None and "sampler" in members:
            fit_sampler = partial(fit_on_device, members["sampler"], learn)
        return OrdinalTrainer(
            network,
            objective,
            source,
            settings,
            members=members,
            fit_sampler=fit_sampler,
            validation=validation,
        )

    def _new_network(self, entries: EntryStore) -> OrdinalNetwork:
        import torch

        from deepmf.models.ordinal.network import OrdinalHead, OrdinalNetwork
        from deepmf.nn.branch import Branch
        from deepmf.nn.masking import Masking, draw_views
        from deepmf.training.runtime import make_generator

        settings, (n_rows, n_columns) = self.settings, entries.train.shape
        # the support has values even where a network is made without weights
        with torch.device("cpu"):
            support = find_support(entries.train, n_bins=settings.bins)
            head = OrdinalHead(*support, groups=settings.networks)
        generator = make_generator(settings.seed, "weights")

        def make_branch(n_inputs: int, n_effects: int, features: AxisFeatures | None) -> Branch:
            return Branch(
                2 * n_inputs,
                (*settings.hidden_sizes, settings.latent_size + n_effects),
                dropout=settings.dropout,
                generator=generator,
                n_summary_features=N_SUMMARY_FEATURES,
                n_features=0 if features is None else features.n_inputs,
                groups=settings.networks,
            )

        def draw(n_inputs: int) -> torch.Tensor:
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

    def _load_weights(self, entries: EntryStore, tensors: Tensors) -> TrainedOrdinal:
        """Return the network with the stored weights."""
        settings, (n_rows, n_columns) = self.settings, entries.train.shape
        n_boundaries = len(find_support(entries.train, n_bins=settings.bins).boundaries)
        weights = describe_head(n_boundaries)
        for axis, n_inputs, features, n_effects in (
            ("row", n_columns, entries.row_features, n_boundaries + 2),
            ("column", n_rows, entries.column_features, 1),
        ):
            weights |= describe_branch(
                f"{axis}s",
                2 * n_inputs,
                (*settings.hidden_sizes, settings.latent_size + n_effects),
                n_summary_features=N_SUMMARY_FEATURES,
                n_features=0 if features is None else features.n_inputs,
                groups=settings.networks,
            )
            weights[f"{axis}_views"] = "bool", (settings.views, n_inputs)
        return TrainedOrdinal(load_weights(weights, tensors), settings.networks)

    def _wrap_network(self, trainer: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        members, source = trainer.members, trainer.source
        network = TrainedOrdinal(read_weights(trainer.network), self.settings.networks)
        members["network"] = NetworkMember(self.settings, self._load_weights, network)
        seed, device = self.settings.seed, trainer.runtime.device
        inputs = gather_inputs(entries, source.matrix, trainer.validation, seed, device)
        return self._fit_members(inputs, members, fitting, trainer.sampler_fit)

    def _fit_members(
        self,
        inputs: MemberInputs,
        members: dict[str, Member],
        fitting: Fitting,
        sampler_fit: Future[MemberFit | None] | None = None,
    ) -> Predictor:
        """Return the blend of all members, whose shares held-out entries choose.

        sampler_fit: that of the sampler, where it is fitted beside the network.
        """
        fits: dict[str, MemberFit] = {}
        entries = inputs.entries
        has_features = bool(entries.row_features or entries.column_features)
        for name, member in members.items():
            if inputs.held_out is None and fits:
                break  # nothing could choose shares
            if name in _OF_FEATURES and not has_features:
                continue
            fitting.show_stage("refining" if name == "network" else name)
            is_beside = name == "sampler" and sampler_fit is not None
            fit = sampler_fit.result() if is_beside and sampler_fit else member.fit(inputs)
            if fit is not None:
                fits[name] = fit
        if not any(fit.stands_alone for fit in fits.values()):
            raise np.linalg.LinAlgError("the chain of the sampler has no posterior")
        sampler = members.get("sampler")
        if self._keeps_chain and isinstance(sampler, SamplerMember):
            self._chain = sampler.chain
        return self._blend(inputs, fits)

    def _blend(self, inputs: MemberInputs, fits: dict[str, MemberFit]) -> Predictor:
        train, settings = inputs.entries.train, self.settings
        support = find_support(train, n_bins=settings.bins)
        boundaries = np.array(support.boundaries, dtype=np.float32)
        readout = OrdinalReadout(train.scale, np.array(support.values), boundaries)
        if inputs.held_out is None:
            ((name, fit),) = fits.items()
            link = None
            if name != "network":
                link = find_own_link(fit, train.scale.from_unit(boundaries.astype(np.float64)))
            return Predictor({name: Blended(fit.fitted, 1.0, link)}, readout)
        predictor, stages = self._choose_shares(inputs, fits, readout)
        if inputs.seen is not inputs.entries:
            self.history_.means_error = measure_means(inputs.seen, inputs.held_out)
        if self.history_.best_error is not None:
            stages = {"branches": self.history_.best_error} | stages
        if self.history_.best_error is not None or not settings.networks:
            self.history_.stages, self.history_.best_error = stages, list(stages.values())[-1]
        return predictor

    def _choose_shares(
        self, inputs: MemberInputs, fits: dict[str, MemberFit], readout: OrdinalReadout
    ) -> tuple[Predictor, dict[str, float]]:
        """Return the blend, and the held-out error of each stage."""
        held_out, train = inputs.held_out, inputs.entries.train
        assert held_out is not None
        counts = inputs.seen.train.column_counts[held_out.columns]
        values = HeldOutValues.of(held_out, train, n_bins=self.settings.bins, column_counts=counts)
        names = [*_TURNS, *(name for name in fits if name not in _TURNS)]
        blend, stages = choose_blend({name: [fits[name]] for name in names if name in fits}, values)
        trust = Trust.make_full()
        blind = make_blind(blend, readout)
        if blind is not None and values.support.size > 1:
            rehearsal = Rehearsal.of(inputs.seen, held_out, seed=0)
            histories = rehearsal.read_histories(inputs.seen, readout.unit_boundaries)
            arrived = replace(blind(rehearsal.rows, rehearsal.columns), confidence=histories)
            if train.scale.levels is not None and "network" in blend and len(blend) > 1:
                few_count = choose_few_count(arrived, rehearsal)
                arrived = arrived.with_few_count(few_count)
                blend = {
                    name: part._replace(link=part.link and part.link._replace(few_count=few_count))
                    for name, part in blend.items()
                }
                stages[next(reversed(stages))] = values.compute_rmse(blend)
            trust = fit_trust(rehearsal, arrived.score(*rehearsal.pairs), readout, histories)
        if "network" in fits:
            network = {"network": Share(fits["network"], 1.0)}
            stages = {"refined": values.compute_rmse(network)} | stages
        predictor = trust_blend(blend, readout, inputs, trust, values)
        if self.settings.neighbours is not None and "neighbours" not in blend:
            residual_fits = fit_to_residuals(inputs.seen, inputs.entries, held_out, predictor)
            blend, later_stages = choose_blend({"neighbours": residual_fits}, values, blend)
            predictor = trust_blend(blend, readout, inputs, trust, values)
            stages.pop("neighbours", None)  # of values
            stages |= later_stages
        return predictor, stages

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        readout = load_readout(entries.scale, tensors)
        members = load_members(
            content, tensors, entries, self._make_members(), n_cutpoints=readout.support.size - 1
        )
        return Predictor(members, readout, load_confidence(entries, tensors, readout))


def trust_blend(
    blend: Blend, readout: OrdinalReadout, inputs: MemberInputs, trust: Trust, values: HeldOutValues
) -> Predictor:
    """Return the predictor of a blend, whose intervals are calibrated on held-out entries."""
    members = {name: part.to_blended() for name, part in blend.items()}
    if "network" in members:  # by which rows and columns are compared, so it comes first
        members = {"network": members["network"]} | members
    predictor = Predictor(members, readout)
    if readout.support.size < 2:
        return predictor
    assert inputs.held_out is not None
    unit_boundaries, stores = readout.unit_boundaries, (inputs.seen, inputs.entries)
    learned = PredictiveDistribution(
        readout.support,
        readout.scale.from_unit(unit_boundaries),
        special.expit(values.mix_logits(blend)).astype(np.float64),
    )
    confidence = make_confidence(trust, learned, inputs.held_out, stores, unit_boundaries)
    return replace(predictor, confidence=confidence)


def gather_inputs(
    entries: EntryStore, seen: ObservedMatrix, held_out: HeldOut | None, seed: int, device: Any
) -> MemberInputs:
    """Return what members learn from: a sample of the held-out entries is enough to choose by."""
    store = entries
    if seen is not entries.train:
        store = EntryStore.of(seen, entries.row_features, entries.column_features)
    held_out = None if held_out is None else held_out.sample(seed=seed)
    return MemberInputs(store, entries, held_out, device)
