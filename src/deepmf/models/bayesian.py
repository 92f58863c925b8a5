"""BayesianMF: matrix factorisation by Gibbs sampling (`gibbs/`), with priors that know which
entries exist."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from deepmf.errors import BadSetting, check_count
from deepmf.files import special
from deepmf.linalg.backend import Backend
from deepmf.matrix.arrays import AnyArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.blending import ValueErrors, choose_blend, explain_members
from deepmf.models.fitting import Fitting, measure_means
from deepmf.models.gibbs.chain import (
    START_LAMBDA,
    Chain,
    GibbsSampler,
    NoiseBound,
    Parameters,
    Samples,
    Units,
    compute_effective_size,
    compute_r_hat,
    estimate_chain_bytes,
)
from deepmf.models.gibbs.encoder import SampleEncoder
from deepmf.models.gibbs.member import SamplerMember
from deepmf.models.gibbs.prior import Prior
from deepmf.models.gibbs.readout import (
    HeldOutPredictions,
    SampleReadout,
    calibrate,
    combine_spreads,
    load_readout,
    make_readout,
    predict_held_out,
)
from deepmf.models.members import Member, MemberFit, MemberInputs, load_members
from deepmf.models.neighbours import NeighbourMember, fit_to_residuals
from deepmf.models.positions.member import PositionsMember
from deepmf.models.similarity import SimilarityMember
from deepmf.models.traits import Recommends
from deepmf.nn.group import find_ranks
from deepmf.scoring.confidence import Confidence, load_confidence
from deepmf.scoring.encoders import Scores
from deepmf.scoring.pairs import check_has_values, find_pairs
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.rehearsal import Rehearsal, fit_trust, make_confidence
from deepmf.storage.model_file import Tensors
from deepmf.training.devices import find_device
from deepmf.training.holdout import HeldOut
from deepmf.training.loop import Epoch
from deepmf.training.memory import FitBytes
from deepmf.training.settings import (
    EFFORTS,
    RECOMMENDATION,
    WIDEST,
    LoopSettings,
    RecommendationSettings,
    Settings,
    setting,
    settings_dataclass,
)


@settings_dataclass
class BayesianMFSettings(LoopSettings, RecommendationSettings):
    """The settings of BayesianMF; `fit` chooses the size and the length of the chain unless they
    are given."""

    chosen_at_fit: ClassVar[Collection[str]] = (
        "epochs",
        "burn_in",
        "samples",
        "latent_size",
        "validate_every",
        *RECOMMENDATION,
    )

    effort: str = setting(
        "normal",
        "Time to spend on accuracy; it decides the length of the chain and the samples.",
        choices=EFFORTS,
    )
    epochs: int = setting(300, "Number of iterations of the sampler.", low=1)
    validate_every: int = 10
    burn_in: int = setting(
        100, "Number of iterations before the first sample that predictions use.", low=0
    )
    samples: int = setting(
        16, "Number of samples to keep, evenly spaced after the burn-in.", low=1, high=WIDEST
    )
    latent_size: int = setting(
        32,
        "Latent size without the effect; at most the smaller side of the matrix.",
        low=1,
        high=WIDEST,
    )
    bins: int = setting(
        32,
        "Number of bins for values on a scale without levels; most bins have equal frequency.",
        low=2,
        high=1 << 16,
    )
    neighbours: str | None = setting(
        "auto",
        "Predict a column also by the columns that are correlated with it (none: never).",
        choices=("auto",),
    )
    device: str = setting(
        "auto",
        'Device to sample on; "auto" is a GPU if there is one.',
        choices=("auto", "cpu", "cuda"),
    )


class GibbsTask:
    """The chain as a task of the training loop: an epoch is an iteration, and what is learned are
    the kept samples.

    If the fit holds out entries of its own, these check and calibrate the first part of the chain,
    and then join the others.
    """

    def __init__(
        self,
        seen: EntryStore,
        entries: EntryStore,
        validation: HeldOut | None,
        settings: BayesianMFSettings,
        backend: Backend,
    ) -> None:
        epochs = settings.epochs
        self.units, self._backend, self._validation = Units.of(entries.train), backend, validation
        self.sampler = GibbsSampler(
            seen,
            self.units,
            latent_size=settings.latent_size,
            seed=settings.seed,
            backend=backend,
            ranks=find_ranks(),
            start_lambda=choose_start_lambda(seen.train, epochs),
        )
        self._bound = None
        if validation is not None:
            self._bound = NoiseBound(validation, self.units, backend)
        self.chain = Chain(
            self.sampler,
            range(epochs),
            burn_in=settings.burn_in,
            n_samples=settings.samples,
            bound=self._bound,
        )
        self._seen, self._entries, self._n_bins = seen, entries, settings.bins
        self._seed = settings.seed
        burn_share = min(1.0, settings.burn_in / epochs)
        self._join_at = None if seen is entries else choose_join(epochs, burn_share)
        self.rehearsal = None
        n_held_out = n_rehearsed = 0
        if validation is not None:
            self.rehearsal = Rehearsal.of(seen, validation, seed=0)
            n_held_out, n_rehearsed = validation.values.size, self.rehearsal.pairs[0].size
        # Means and spreads of held-out entries, and of rehearsed ones, by the first part of the
        # chain.
        self._held_out = np.zeros((3, n_held_out), dtype=np.float32)
        self._rehearsed = np.zeros((3, n_rehearsed), dtype=np.float32)

    def run_epoch(self, epoch: int) -> Epoch:
        """Run one iteration, and keep it where it is the turn of a sample."""
        if self._join_at is not None and epoch >= self._join_at and self.chain.bound is not None:
            self._join(first=epoch == self._join_at)
        try:
            iteration = self.chain.run_epoch(epoch, is_kept=epoch in (0, self._join_at))
        except np.linalg.LinAlgError:
            # no posterior, or none that can be drawn
            return Epoch(math.nan)
        rows, columns, alpha, *_ = self.sampler.parameters
        notes = {
            "alpha": alpha,
            "row_lambda": float(rows.lambdas[0]),
            "column_lambda": float(columns.lambdas[0]),
            "row_size": float((self.sampler.row_factors[:, :-1] ** 2).mean()),
        }
        return Epoch(math.sqrt(iteration.mean_squared_error) * self.units.deviation, notes=notes)

    def validation_error(self) -> float | None:
        if self._validation is None or self.chain.bound is None:
            return None
        predicted = self.chain.predicted[self.chain.find_usable()].mean(axis=0, dtype=np.float64)
        values = self.units.mean + self.units.deviation * predicted
        return rmse_error(self._seen.scale.clip(values), self._validation.values)

    def get_learned(self) -> dict[str, AnyArray]:
        predicted = {"held_out": self._held_out, "rehearsed": self._rehearsed}
        return {**self.chain.arrays, **predicted}

    def set_learned(self, learned: Mapping[str, AnyArray]) -> None:
        for name, array in self.get_learned().items():
            array[...] = learned[name]

    def state(self) -> dict[str, AnyArray]:
        """Return the current factors and parameters of the chain."""
        sampler = self.sampler
        rows, columns, alpha, row_reliabilities, column_reliabilities = sampler.parameters
        state = {
            "row_factors": sampler.row_factors,
            "column_factors": sampler.column_factors,
            **{f"rows.{name}": array for name, array in rows._asdict().items()},
            **{f"columns.{name}": array for name, array in columns._asdict().items()},
            "row_reliabilities": row_reliabilities,
            "column_reliabilities": column_reliabilities,
            "alpha": np.array(alpha),
            "predicted": self.chain.predicted,
        }
        if self._bound is not None:
            state["bound"] = self._bound.mean
        return state

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        sampler = self.sampler
        sampler.row_factors, sampler.column_factors = state["row_factors"], state["column_factors"]
        rows, columns = (
            Prior(*(state[f"{axis}.{name}"] for name in Prior._fields))
            for axis in ("rows", "columns")
        )
        sampler.parameters = Parameters(
            rows,
            columns,
            float(state["alpha"]),
            state["row_reliabilities"],
            state["column_reliabilities"],
        )
        self.chain.predicted[...] = state["predicted"]
        if self._bound is not None:
            self._bound.mean = state["bound"]
            sampler.most_alpha = self._bound.find_most_alpha()

    def find_held_out(self, predictor: Predictor) -> HeldOutPredictions | None:
        """Return predictions of entries that the chain was not given: of the validation, or by its
        first part."""
        if self._validation is None:
            return None
        if self._join_at is None or self.chain.n_run <= self._join_at:
            self._predict_unseen(predictor)
        means, *spreads = self._held_out.astype(np.float64)
        return HeldOutPredictions(means, np.column_stack(spreads), self._validation.values)

    def make_confidence(
        self, readout: SampleReadout, held_out: HeldOutPredictions
    ) -> Confidence | None:
        """Return how far distributions can be trusted; None for a single value."""
        if readout.support.size < 2:
            return None
        assert self.rehearsal is not None and self._validation is not None
        boundaries = readout.unit_boundaries
        histories = self.rehearsal.read_histories(self._seen, boundaries)
        means, *spreads = self._rehearsed.astype(np.float64)
        scores = Scores(means, np.column_stack(spreads))
        trust = fit_trust(self.rehearsal, scores, readout, histories)
        learned = readout.distribution(held_out.means, held_out.spreads)
        stores = self._seen, self._entries
        return make_confidence(trust, learned, self._validation, stores, boundaries)

    def find_means_error(self) -> float | None:
        """Return the error of the means on entries that the fit itself held out; None without
        any."""
        if self._validation is None or self._seen is self._entries:
            return None
        return measure_means(self._seen, self._validation)

    def make_predictor(self, entries: EntryStore, samples: Samples) -> Predictor:
        """Return the predictor of all trained rows and columns, not calibrated."""
        readout = make_readout(entries, self.units, samples, n_bins=self._n_bins)
        encoder = SampleEncoder(self.units, samples, self._backend).narrow(entries)
        return Predictor.of(encoder.encode_all(entries), readout)

    def blend(
        self, predictor: Predictor, held_out: HeldOutPredictions, *, uses_neighbours: bool
    ) -> tuple[Predictor, HeldOutPredictions, dict[str, float]]:
        """Return a blend of the sampler with the members that features bring, or with neighbours;
        what it predicts for held-out entries; and the error after each member."""
        assert self._validation is not None
        objective = ValueErrors(self._seen.scale, held_out.values)
        inputs = MemberInputs(self._seen, self._entries, self._validation, "cpu")
        sampler = MemberFit(predictor.factors, Scores.of_values(held_out.means))
        fits = {"sampler": [sampler]}
        for name, member in list_members(self._seed).items():
            if fit := member.fit(inputs):
                fits[name] = [fit]
        blend, stages = choose_blend(fits, objective)
        if uses_neighbours and len(blend) == 1:
            fits = {"neighbours": self._fit_neighbours(inputs, predictor)}
            blend, later_stages = choose_blend(fits, objective, blend)
            stages |= later_stages
        if len(blend) > 1:
            # fields are spreads, which the sampler alone has
            members = {
                name: part.to_blended()._replace(adds=name != "sampler")
                for name, part in blend.items()
            }
            predictor = replace(predictor, members=members)
        return predictor, held_out._replace(means=objective.predict(blend)), stages

    def _fit_neighbours(self, inputs: MemberInputs, predictor: Predictor) -> list[MemberFit]:
        """Return neighbours of residuals, and of values where most cells have entries."""
        assert self._validation is not None
        fits = fit_to_residuals(self._seen, self._entries, self._validation, predictor)
        by_values = NeighbourMember().fit(inputs)
        return fits if by_values is None else [*fits, by_values]

    def _join(self, *, first: bool) -> None:
        """Predict the held-out entries, then sample given all entries."""
        if first:
            samples = self.chain.find_samples().take_last(_CALIBRATION_SAMPLES)
            self._predict_unseen(self.make_predictor(self._seen, samples))
            self.chain.drop_samples()
        self.sampler.set_entries(self._entries)
        self.chain.bound = None

    def _predict_unseen(self, predictor: Predictor) -> None:
        """Predict the held-out entries, and those of rehearsed arrivals."""
        assert self._validation is not None and self.rehearsal is not None
        held_out = predict_held_out(predictor, self._validation)
        self._held_out[...] = held_out.means, *held_out.spreads.T
        rehearsal = self.rehearsal
        arrived = predictor.with_only("row", rehearsal.rows).with_only("column", rehearsal.columns)
        scores = arrived.score(*rehearsal.pairs)
        self._rehearsed[...] = scores.location, *scores.fields.T


def list_members(seed: int) -> dict[str, Member]:
    """Return the members that features bring, not fitted."""
    return {"positions": PositionsMember(seed), "similarity": SimilarityMember()}


# Samples whose posterior spreads calibrate intervals in the first part of a chain.
_CALIBRATION_SAMPLES = 4


def choose_join(epochs: int, burn_share: float) -> int | None:
    """Return the iteration in which held-out entries join the others; None where the chain is too
    short."""
    join_at = round(min(burn_share, 0.5) * epochs)
    return join_at if join_at >= 2 else None


class BayesianMF(Recommends, Model):
    """Mean + row effect + column effect + u_i'v_j, averaged over samples of the posterior; covers
    all four areas.

    Predictions are distributions, which are narrower the more entries the row and the column have.
    A new row is the posterior mean of its factors given its entries and features, in each kept
    sample. Settings are keyword arguments, see `BayesianMFSettings`.

    `predict` returns the posterior mean, clipped to the scale. `predict_distribution` is calibrated
    on its own, so that each level is as frequent as among held-out entries, and its mean may differ
    from `predict`.

    Validation entries calibrate the distributions. Without validation entries, `fit` holds out 5 %
    of the entries for the first part of the chain, and samples given all entries afterwards.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = BayesianMF(epochs=30, latent_size=4, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = BayesianMFSettings
    settings: BayesianMFSettings
    takes_features: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    holds_out: ClassVar[bool] = True
    fits_on_ranks: ClassVar[bool] = True

    @property
    def chosen_(self) -> dict[str, Any]:
        """The settings that `fit` chose; "members" says which member has which share, "parts" what
        it gains on held-out entries."""
        if self._fitted is None or self.scale_.is_interactions:
            return super().chosen_
        members = self.predictor_.members.items()
        shares = {name or "sampler": member.share for name, member in members}
        steps = explain_members(shares, self.history_.stages)
        return super().chosen_ | {"members": shares, "parts": steps}

    def draw(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        n: int = 10,
        *,
        seed: int = 0,
        of: str = "entries",
    ) -> FloatArray:
        """Draw the values of pairs jointly from the posterior.

        Within a draw, all pairs of a row share one draw of its factors, and so do all pairs of a
        column. Different draws belong to different kept samples as far as there are enough.

        Parameters
        ----------
        rows, columns : the labels of the pairs, of one length.
        n : the number of draws.
        seed : seed of the draws.
        of : "entries" draws values with their noise, on the scale; "means" draws expected values.

        Returns
        -------
        The draws, (n, pairs).
        """
        if of not in ("entries", "means"):
            raise BadSetting(f"of must be 'entries' or 'means'; got {of!r}")
        check_count("n", n)
        check_count("seed", seed, least=0)
        entries, predictor = self.entries_.as_read, self.predictor_
        check_has_values(entries.scale)
        encoder, readout = predictor.encoder, predictor.readout.as_chosen
        assert isinstance(encoder, SampleEncoder) and isinstance(readout, SampleReadout)
        pairs = find_pairs(entries, rows, columns, "error")
        numbers = np.random.default_rng(seed)
        order = numbers.permutation(encoder.samples.n_samples).tolist()
        which = [order[number % len(order)] for number in range(n)]
        row_at, row_of = np.unique(pairs.rows, return_inverse=True)
        column_at, column_of = np.unique(pairs.columns, return_inverse=True)
        row_entries = predictor.factors.read_entries("row", entries, row_at)
        solved_columns = predictor.factors.solve_by("column")
        row_draws = encoder.draw("row", row_entries, solved_columns, which, numbers)
        column_draws = self._draw_columns(column_at, which, numbers)
        draws = np.empty((n, pairs.rows.size))
        scores = predictor.score(pairs.rows, pairs.columns)
        for line, sample, rows_of_draw, columns_of_draw in zip(
            draws, which, row_draws, column_draws, strict=True
        ):
            line[...] = _multiply_factors(rows_of_draw[row_of], columns_of_draw[column_of])
            if of == "entries":
                deviation = float(encoder.samples.alphas[sample]) ** -0.5
                noise = numbers.standard_normal(line.size)
                line += deviation * noise * scores.fields[:, 1]
        draws = encoder.units.mean + encoder.units.deviation * draws
        by_factors = predictor.factors.score_pairs(pairs.rows, pairs.columns).location
        draws += scores.location.astype(np.float64) - by_factors
        if of == "means":
            return draws
        learned = readout.distribution(scores.location, scores.fields)
        trusted = predictor.trust(learned, pairs.rows, pairs.columns)
        deviations = combine_spreads(readout.noise, scores.fields)
        shares = special.ndtr((draws - scores.location) / deviations)
        return np.stack([trusted.sample(share, self.scale_) for share in shares])

    def _draw_columns(
        self, at: IndexArray, which: Sequence[int], numbers: np.random.Generator
    ) -> LatentArray:
        """Return columns (draws, columns, D): trained ones as the samples drew them, others from
        their posterior."""
        entries, predictor = self.entries_.as_read, self.predictor_
        encoder = predictor.encoder
        assert isinstance(encoder, SampleEncoder)
        samples = encoder.samples.columns
        is_trained = (at < entries.train.shape[1]) & entries.are_as_trained("column", at)
        draws = np.empty((len(which), at.size, samples.means.shape[1]), dtype=np.float32)
        for line, sample in zip(draws, which, strict=True):
            line[is_trained] = samples.draws[sample][at[is_trained]]
        if not is_trained.all():
            column_entries = predictor.factors.read_entries("column", entries, at[~is_trained])
            solved_rows = predictor.factors.solve_by("row")
            draws[:, ~is_trained] = encoder.draw(
                "column", column_entries, solved_rows, which, numbers
            )
        return draws

    @property
    def diagnostics_(self) -> dict[str, dict[str, float]]:
        """Effective sample size and split R-hat of parameters of the chain after the burn-in, by
        name.

        An R-hat above 1.1 says that the two halves of the chain differ: run more epochs.
        """
        records = self.history_.records
        share = min(1.0, self.settings.burn_in / self.settings.epochs)
        after = [record.notes for record in records[math.floor(share * len(records)) :]]
        if len(after) < 4:
            return {}
        series = {
            name: np.array([notes[name] for notes in after], dtype=np.float64) for name in after[0]
        }
        return {
            name: {"effective_size": compute_effective_size(values), "r_hat": compute_r_hat(values)}
            for name, values in series.items()
        }

    def _choose_settings(self, train: ObservedMatrix) -> dict[str, Any]:
        epochs = self.settings.epochs if "epochs" in self._given else None
        return choose_settings(train, self._on_gpu, self.settings.effort, epochs=epochs)

    def _estimate_bytes(self, entries: EntryStore) -> FitBytes:
        settings = self.settings
        return estimate_chain_bytes(entries.train, settings.samples, settings.latent_size)

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> GibbsTask:
        settings, seen = self.settings, entries
        if validation is not None:
            validation = validation.sample(seed=settings.seed)
        elif choose_join(settings.epochs, min(1.0, settings.burn_in / settings.epochs)) is not None:
            training, validation = HeldOut.split(entries.train, seed=settings.seed)
            if validation is not None:
                seen = EntryStore.of(training, entries.row_features, entries.column_features)
        return GibbsTask(
            seen, entries, validation, settings, Backend.of(find_device(settings.device))
        )

    def _make_predictor(self, task: GibbsTask, entries: EntryStore, fitting: Fitting) -> Predictor:
        fitting.show_stage("encoding all rows and columns in each sample")
        predictor = task.make_predictor(entries, task.chain.find_samples())
        held_out = task.find_held_out(predictor)
        if (means_error := task.find_means_error()) is not None:
            self.history_.means_error = means_error
        if held_out is None:
            return predictor
        fitting.show_stage("further members")
        uses_neighbours = self.settings.neighbours is not None
        predictor, held_out, stages = task.blend(
            predictor, held_out, uses_neighbours=uses_neighbours
        )
        self.history_.stages, self.history_.best_error = stages, [*stages.values()][-1]
        plain = predictor.readout
        assert isinstance(plain, SampleReadout)
        readout = calibrate(plain, held_out)
        confidence = task.make_confidence(readout, held_out)
        return replace(predictor, readout=readout, confidence=confidence)

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        settings, readout = self.settings, load_readout(entries.scale, tensors)
        confidence = load_confidence(entries, tensors, readout)
        sampler = SamplerMember(
            settings.latent_size, settings.epochs, settings.samples, settings.bins, settings.seed
        )
        if "members" not in content:
            alone = Predictor.of(sampler.load(content, tensors, entries), readout)
            return replace(alone, confidence=confidence)
        kinds: dict[str, Member] = {"sampler": sampler, "neighbours": NeighbourMember()}
        kinds |= list_members(settings.seed)
        members = load_members(content, tensors, entries, kinds, n_cutpoints=0)
        return Predictor(members, readout, confidence)


def _multiply_factors(rows: LatentArray, columns: LatentArray) -> FloatArray:
    """Return u'v + b + c of pairs with the factors (u, b) and (v, c)."""
    products: FloatArray = (rows[:, :-1] * columns[:, :-1]).sum(axis=1, dtype=np.float64)
    return products + rows[:, -1] + columns[:, -1]


class Effort(NamedTuple):
    """What an effort spends: iterations on a CPU and on a GPU, for the usual number of entries, and
    samples kept.

    Matrices with fewer entries take more iterations, up to `most`; those with many take half, and
    fewer samples.
    """

    iterations: tuple[int, int]
    most: int
    samples: int


_EFFORTS = {
    "quick": Effort((40, 100), most=400, samples=32),
    "normal": Effort((120, 300), most=400, samples=32),
    "best": Effort((360, 900), most=1200, samples=64),
}
_USUAL_ENTRIES, _MANY_ENTRIES, _FEWEST_SAMPLES = 300_000, 3_000_000, 8

# lambda moves slowly from its start. A long chain over many entries comes to better factors from
# the prior mean of lambda, any other from less.
_LONG_CHAIN, _LONG_START_LAMBDA = 200, 10.0

_FEWEST_LATENTS, _MOST_LATENTS = 4, (16, 32)


def choose_start_lambda(train: ObservedMatrix, epochs: int) -> float:
    """Return the lambda from which a chain starts."""
    is_long = epochs >= _LONG_CHAIN and train.n_entries >= _USUAL_ENTRIES
    return _LONG_START_LAMBDA if is_long else START_LAMBDA


def choose_settings(
    train: ObservedMatrix, on_gpu: bool, effort: str, *, epochs: int | None
) -> dict[str, Any]:
    """Return the settings for a matrix on a machine; the others suit the epochs where these are
    given.

    Few entries for each row and column need few latents and, since they start farther from the
    posterior, more iterations, which cost little there.
    """
    n_entries, mean_count = train.n_entries, 2 * train.n_entries / sum(train.shape)
    spent, has_many = _EFFORTS[effort], n_entries >= _MANY_ENTRIES
    if epochs is None:
        fewer = math.sqrt(_USUAL_ENTRIES / max(n_entries, 1))
        usual = spent.iterations[on_gpu]
        epochs = usual // 2 if has_many else round(min(spent.most, usual * max(1.0, fewer)))
    burn_in = epochs // 3
    samples = _FEWEST_SAMPLES if has_many else spent.samples
    return {
        "epochs": epochs,
        "burn_in": burn_in,
        "samples": max(1, min(samples, epochs - burn_in)),
        "latent_size": max(_FEWEST_LATENTS, min(_MOST_LATENTS[on_gpu], round(mean_count))),
        "validate_every": max(1, epochs // 12),
    }
