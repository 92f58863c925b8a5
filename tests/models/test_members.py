"""Members of a blend: their shares are chosen on held-out entries; the sampler; one more member."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from deepmf.data import split_areas
from deepmf.datasets import generate
from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import calibration_error, rmse_error
from deepmf.models.blending import (
    Blend,
    HeldOutValues,
    Objective,
    Share,
    ValueErrors,
    choose_blend,
    choose_few_count,
    make_blind,
)
from deepmf.models.gibbs.chain import Units
from deepmf.models.gibbs.encoder import NOTHING_NEW, SampleEncoder
from deepmf.models.gibbs.member import SamplerMember, bound_width
from deepmf.models.loading import load
from deepmf.models.members import BlendPredictor, Conversion, Member, MemberFit, MemberInputs
from deepmf.models.ordinal.head import OrdinalReadout
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.scoring.confidence import Confidence, Histories, Trust
from deepmf.scoring.distribution import Frequencies
from deepmf.scoring.encoders import Scores
from deepmf.scoring.factors import list_positions
from deepmf.scoring.predictor import Blended, Link
from deepmf.storage.model_file import Packed, read_file
from deepmf.training.holdout import HeldOut

SUPPORT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
BOUNDARIES = SUPPORT[1:] - 0.5
N = 400


def say_values(values: npt.NDArray[Any]) -> MemberFit:
    """A member of values whose mean is 3."""
    scores = Scores.of_values(values.astype(np.float32))
    return MemberFit(None, scores, units=Conversion(centre=3.0))  # type: ignore[arg-type]


def say_logits(values: npt.NDArray[Any], steepness: float) -> MemberFit:
    """A member of logits, whose expected values are the nearer to some values the steeper they
    are."""
    cutpoints = np.tile(steepness * BOUNDARIES, (values.size, 1)).astype(np.float32)
    location = (steepness * values).astype(np.float32)
    return MemberFit(None, Scores(location, cutpoints))  # type: ignore[arg-type]


def hold_out(values: npt.NDArray[Any]) -> HeldOutValues:
    return HeldOutValues(values, SUPPORT, BOUNDARIES, has_repeats=True)


def choose_alone(
    fits: dict[str, MemberFit], objective: Objective
) -> tuple[Blend, npt.NDArray[Any]]:
    """Return the blend of members with one fit each, and its squared errors."""
    blend, stages = choose_blend({name: [fit] for name, fit in fits.items()}, objective)
    errors = objective.measure(blend)
    assert list(stages) == list(fits)
    assert [*stages.values()][-1] == pytest.approx(np.sqrt(errors.mean()))
    return blend, errors


def test_a_perfect_network_is_left_alone() -> None:
    values = np.random.default_rng(0).choice(SUPPORT, N)
    noise = np.random.default_rng(1).standard_normal(N)
    fits = {"sampler": say_values(3.0 + noise), "network": say_logits(values, 50.0)}
    blend, errors = choose_alone(fits, hold_out(values))
    assert blend == {"network": Share(fits["network"], 1.0)} and errors.max() < 1e-6


def test_a_network_that_may_help_by_chance_takes_no_part() -> None:
    dice = np.random.default_rng(1)
    predicted = 3.0 + dice.uniform(-1.8, 1.8, N)
    values = np.clip(np.round(predicted + dice.normal(scale=0.7, size=N)), 1, 5)
    chance = 3.0 + dice.standard_normal(N), predicted + 0.7 * dice.standard_normal(N)
    for network in chance:
        fits = {"sampler": say_values(predicted), "network": say_logits(network, 3.0)}
        blend, errors = choose_alone(fits, hold_out(values))
        assert list(blend) == ["sampler"] and blend["sampler"].share == 1.0
        assert np.sqrt(errors.mean()) < 1.05 * rmse_error(predicted, values)
    knows = predicted + 0.9 * (values - predicted)  # most of what the sampler does not know
    fits = {"sampler": say_values(predicted), "network": say_logits(knows, 3.0)}
    blend, errors = choose_alone(fits, hold_out(values))
    assert blend["network"].share > 0.1
    assert np.sqrt(errors.mean()) < 0.6 * rmse_error(predicted, values)


def test_levels_that_are_almost_certain_have_steep_logits() -> None:
    """A line overshoots the outer levels, so a slope by the spread of its errors would be too
    flat."""
    dice = np.random.default_rng(0)
    position, support = dice.normal(size=4000), np.arange(3.0)
    noisy = position[:, None] + 0.2 * dice.normal(size=(4000, 1))
    values = (noisy > [-0.6, 0.6]).sum(axis=1).astype(float)
    predicted = (1.0 + 0.7 * position).astype(np.float32)
    fit = MemberFit(None, Scores.of_values(predicted), units=Conversion(centre=1.0))  # type: ignore[arg-type]
    held_out = HeldOutValues(values, support, np.array([0.5, 1.5]), has_repeats=True)
    blend, _ = choose_alone({"sampler": fit}, held_out)
    above = expit(held_out.mix_logits(blend))
    padded = np.pad(above, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
    assert calibration_error(-np.diff(padded, axis=1), values, scale_levels=support) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_errors_are_those_of_the_mixed_logits_and_hardly_above_those_of_a_member_alone(
    seed: int,
) -> None:
    dice = np.random.default_rng(seed)
    values = dice.choice(SUPPORT, N)
    network = say_logits(values + dice.normal(scale=seed / 2, size=N), 1.0)
    fits = {"sampler": say_values(values + dice.normal(scale=2 - seed / 3, size=N))}
    fits["network"] = network
    blend, errors = choose_alone(fits, hold_out(values))
    alone = hold_out(values).measure({"network": Share(network, 1.0)})
    assert np.sqrt(errors.mean()) <= 1.02 * np.sqrt(alone.mean())
    assert sum(part.share for part in blend.values()) == pytest.approx(1.0)
    mixed = np.zeros((N, 4))
    for fit, share, link in blend.values():
        location, cutpoints, _ = fit.held_out_scores
        if link is not None:
            location, cutpoints = link.slope * (location - 3.0), np.array(link.cutpoints)
        mixed += share * (location[:, None].astype(float) - cutpoints)
    expected = 1.0 + expit(mixed).sum(1)
    assert np.sqrt(errors.mean()) == pytest.approx(rmse_error(expected, values), rel=1e-5)


@pytest.mark.parametrize("support", [np.arange(2.0), SUPPORT])
@pytest.mark.parametrize("n_held_out", [100, 400])
def test_a_link_by_few_entries_predicts_hardly_worse_than_the_values(
    support: npt.NDArray[Any], n_held_out: int
) -> None:
    """The mean of levels is known for each entry; others than the held-out ones are predicted."""
    boundaries, ratios = (support[1:] + support[:-1]) / 2, []
    for seed in range(8):
        dice = np.random.default_rng(seed)
        position = 0.6 + 0.2 * dice.standard_normal(20_000)
        means = support[0] + np.ptp(support) * position.clip(0, 1)
        noise = (
            dice.uniform(size=means.size) if support.size == 2 else dice.normal(0.5, 1, means.size)
        )
        values = np.floor(means + noise).clip(support[0], support[-1])
        fit = MemberFit(
            None,  # type: ignore[arg-type]
            Scores.of_values(means[:n_held_out].astype(np.float32)),
            units=Conversion(centre=float(values.mean())),
        )
        held_out = HeldOutValues(values[:n_held_out], support, boundaries, has_repeats=True)
        link = choose_alone({"sampler": fit}, held_out)[0]["sampler"].link
        assert link is not None
        logits = link.locate(means)[:, None] - np.array(link.cutpoints)
        expected = support[0] + expit(logits).sum(1)
        ratios.append(rmse_error(expected, values) / rmse_error(means, values))
    assert np.mean(ratios) < 1.005


def test_a_further_member_joins_where_it_knows_more() -> None:
    dice = np.random.default_rng(5)
    values = dice.choice(SUPPORT, 4 * N)
    fits = {name: say_values(values + dice.normal(size=4 * N)) for name in ("sampler", "another")}
    blend, errors = choose_alone(fits, hold_out(values))
    assert 0.2 < blend["another"].share < 0.8
    alone = choose_alone({"sampler": fits["sampler"]}, hold_out(values))[1]
    assert errors.mean() < 0.8 * alone.mean()


@pytest.mark.slow
def test_on_real_values_a_link_is_the_logistic_distribution_of_the_errors() -> None:
    dice = np.random.default_rng(2)
    predicted, noise = 7.0 + 3 * dice.standard_normal(4000), dice.standard_normal(4000)
    values = predicted + 0.5 * noise
    support = np.quantile(values, np.arange(0.5, 256) / 256)
    boundaries = (support[1:] + support[:-1]) / 2
    held_out = HeldOutValues(values, support, boundaries, has_repeats=False)
    fit = MemberFit(
        None,  # type: ignore[arg-type]
        Scores.of_values(predicted.astype(np.float32)),
        units=Conversion(centre=7.0),
    )
    blend, errors = choose_alone({"sampler": fit}, held_out)
    link = blend["sampler"].link
    assert link is not None
    np.testing.assert_allclose(link.cutpoints, link.slope * (boundaries - 7.0))
    assert np.sqrt(errors.mean()) < 1.05 * rmse_error(predicted, values)
    assert link.slope >= 0.9 * np.pi / np.sqrt(3) / 0.5


def test_values_are_compared_as_they_are_where_these_are_blended() -> None:
    dice = np.random.default_rng(6)
    values = dice.uniform(1.0, 5.0, 4 * N)
    fits = {name: say_values(values + dice.normal(size=4 * N)) for name in ("sampler", "another")}
    objective = ValueErrors(Scale(low=1.0, high=5.0), values)
    blend, errors = choose_alone(fits, objective)
    sampler, another = (fit.held_out_scores.location for fit in fits.values())
    share = blend["another"].share
    expected = np.clip((1.0 - share) * sampler + share * another, 1.0, 5.0)
    assert 0.3 < share < 0.7
    np.testing.assert_allclose(errors, np.square(expected - values), atol=1e-5)


def test_residuals_join_where_they_are_residuals_and_others_keep_their_shares() -> None:
    dice = np.random.default_rng(7)
    values = dice.choice(SUPPORT, 4 * N)
    noise = dice.normal(size=4 * N)
    sampler, held_out = say_values(values + noise), hold_out(values)
    blend = choose_alone({"sampler": sampler}, held_out)[0]
    said, unrelated = (
        say_values(residuals)._replace(adds=True, stands_alone=False)
        for residuals in (-noise, dice.normal(size=4 * N))
    )
    joined, stages = choose_blend({"neighbours": [unrelated, said]}, held_out, blend)
    assert joined["sampler"].share == 1.0 and joined["neighbours"].fit is said
    assert stages["neighbours"] < 0.7 * held_out.compute_rmse(blend)
    assert choose_blend({"neighbours": [unrelated]}, held_out, blend).blend == blend


def test_one_value_needs_no_choice() -> None:
    values = HeldOutValues(np.full(N, 3.0), np.array([3.0]), np.empty(0), has_repeats=True)
    blend, errors = choose_alone({"sampler": say_values(np.zeros(N))}, values)
    assert blend["sampler"].share == 1.0 and not errors.any()


class KnownPairs:
    """A member that knows what it says of some pairs: the place of a pair is its column."""

    def __init__(self, scores: Scores) -> None:
        self.scores = scores

    def score_pairs(self, rows: Any, columns: Any) -> Scores:
        fields = self.scores.fields[columns]
        return Scores(self.scores.location[columns], fields)


@pytest.mark.parametrize(
    ("of_few", "of_many", "chosen"), [(0.3, 0.3, {0.0}), (3.0, 0.3, {12.0, 25.0})]
)
def test_columns_with_few_entries_lose_the_sampler_where_that_is_worse_on_them(
    of_few: float, of_many: float, chosen: set[float]
) -> None:
    dice, n = np.random.default_rng(0), 4 * N
    values, counts = dice.choice(SUPPORT, n), dice.choice([2, 5, 50, 200], n)
    noise = np.where(counts < 10, of_few, of_many) * dice.standard_normal(n)
    fits = {
        "network": say_logits(values + 0.8 * dice.standard_normal(n), 1.0),
        "sampler": say_values(values + noise),
    }
    blind = {
        name: fit._replace(blind=lambda *_, fit=fit: KnownPairs(fit.scores))  # type: ignore[misc]
        for name, fit in fits.items()
    }
    blend: Blend = {
        "network": Share(blind["network"], 0.5),
        "sampler": Share(blind["sampler"], 0.5, Link(1.0, 3.0, (-1.5, -0.5, 0.5, 1.5))),
    }
    scale = ObservedMatrix.from_array([[1.0, 5.0]]).scale
    readout = OrdinalReadout(scale, SUPPORT, BOUNDARIES.astype(np.float32))
    make = make_blind(blend, readout)
    assert make is not None
    arrived = replace(make(None, None), confidence=count_entries(readout, counts))  # type: ignore[arg-type]
    pairs = np.zeros(n, dtype=np.int64), np.arange(n)
    rehearsal: Any = SimpleNamespace(pairs=pairs, few_columns=slice(0, n), values=values)
    assert choose_few_count(arrived, rehearsal) in chosen


def test_a_member_that_cannot_be_blind_leaves_nothing_to_rehearse() -> None:
    scale = ObservedMatrix.from_array([[1.0, 5.0]]).scale
    readout = OrdinalReadout(scale, SUPPORT, BOUNDARIES.astype(np.float32))
    assert make_blind({"sampler": Share(say_values(SUPPORT), 1.0)}, readout) is None


def count_entries(readout: OrdinalReadout, counts: npt.NDArray[Any]) -> Confidence:
    """Return the numbers of entries of columns, with full trust."""
    n_boundaries = readout.support.size - 1
    one = Histories(np.array([1]), np.zeros((1, n_boundaries), dtype=np.float32))
    columns = Histories(counts, np.zeros((counts.size, n_boundaries), dtype=np.float32))
    shares = np.full(readout.support.size, 1.0 / readout.support.size)
    frequencies = Frequencies(readout.scale, readout.unit_boundaries, shares)
    shape = 1, counts.size
    return Confidence(Trust.make_full(), frequencies, shape, one, columns)


def split_low_rank(n_held_out: int = 400) -> tuple[EntryStore, HeldOut]:
    """Return a matrix of rank 2 with noise, and entries that are held out."""
    dice = np.random.default_rng(4)
    signal = dice.normal(size=(60, 2)) @ dice.normal(size=(2, 50))
    values = signal + 0.5 * dice.normal(size=(60, 50)) + 3.0
    rows, columns = np.divmod(dice.permutation(3000)[:1800], 50)
    held_out = HeldOut(*(each[:n_held_out] for each in (rows, columns, values[rows, columns])))
    table = np.full((60, 50), np.nan)
    table[rows[n_held_out:], columns[n_held_out:]] = values[rows[n_held_out:], columns[n_held_out:]]
    return EntryStore.of(ObservedMatrix.from_array(table)), held_out


def fit_sampler(
    size: int | None = 3, iterations: int = 30, n_samples: int = 10
) -> tuple[MemberFit | None, EntryStore, HeldOut]:
    seen, held_out = split_low_rank()
    inputs = MemberInputs(seen, seen, held_out, "cpu")
    return SamplerMember(size, iterations, n_samples, 16, 0).fit(inputs), seen, held_out


@pytest.mark.slow
def test_samples_predict_what_they_have_not_seen() -> None:
    sampled, _, held_out = fit_sampler()
    assert sampled is not None and sampled.scores is not None
    targets, encoder = sampled.units.convert(held_out.values), sampled.fitted.encoder  # type: ignore[attr-defined]
    assert rmse_error(sampled.scores.location, targets) < 0.6 * np.std(targets)
    assert (encoder.size, encoder.samples.n_samples) == (3, 10)
    width = sampled.fitted.rows.base.shape[1]  # type: ignore[attr-defined]
    assert bound_width(size=3, n_samples=10, is_gpu=False) >= width
    assert fit_sampler(size=0)[0] is None and bound_width(size=0, n_samples=10, is_gpu=False) == 0
    # Predictions of all iterations, without the shrinkage of prior means.
    found = sampled.fitted.score_pairs(held_out.rows, held_out.columns).location
    assert rmse_error(found, sampled.scores.location) < 0.2 * np.std(found)


def test_scores_have_no_heavy_tails() -> None:
    counts = np.floor(np.exp(2.0 * np.random.default_rng(0).normal(size=(60, 50))))
    train = ObservedMatrix.from_array(counts)
    raw, scores = (
        units.standardise(train.values) for units in (Units.of(train), Units.by_scores(train))
    )
    assert raw.max() > 10 and np.abs(scores).max() < 5 and np.std(scores) == pytest.approx(1.0)
    order = np.argsort(train.values, kind="stable")
    assert np.all(np.diff(scores[order]) >= 0)


@pytest.mark.slow
def test_the_fitted_sampler_is_given_all_entries_and_the_blind_one_is_not() -> None:
    train = split_low_rank(1)[0].train
    seen, held_out = HeldOut.split(train, seed=0, one_in=10)
    assert held_out is not None
    inputs = MemberInputs(EntryStore.of(seen), EntryStore.of(train), held_out, "cpu")
    member = SamplerMember(3, 12, 5, 16, 0)
    sampled = member.fit(inputs)
    assert sampled is not None and sampled.blind is not None
    assert member.chain is not None and member.chain.n_run == 4  # of few entries, a third is blind
    rows = inputs.seen.row_entries(held_out.rows)
    blind = sampled.blind(rows, inputs.seen.column_entries(held_out.columns))
    every = np.arange(held_out.values.size)
    targets = sampled.units.convert(held_out.values)
    errors = [
        rmse_error(sampled.fitted.score_pairs(held_out.rows, held_out.columns).location, targets),
        rmse_error(blind.score_pairs(every, every).location, targets),
    ]
    assert errors[0] < errors[1]  # it has seen these entries


@pytest.mark.slow
def test_the_factors_of_many_samples_are_projected() -> None:
    sampled, seen, _ = fit_sampler(size=16, iterations=120, n_samples=20)
    assert sampled is not None
    factors: Any = sampled.fitted
    assert factors.rows.base.shape[1] <= bound_width(size=16, n_samples=20, is_gpu=False) < 20 * 16
    whole = SampleEncoder(factors.encoder.units, factors.encoder.samples)
    rows = whole.encode("row", seen.row_entries(np.arange(60)), NOTHING_NEW)
    columns = whole.encode("column", seen.column_entries(np.arange(50)), NOTHING_NEW)
    found = factors.score_block(np.arange(60), slice(0, 50))
    # 50 columns need no more
    np.testing.assert_allclose(found, rows @ columns.T, atol=1e-4)


@dataclass(frozen=True)
class ColumnMeans:
    """A fitted member: the mean of each column's entries, shrunk by five at the overall mean."""

    mean: float
    columns: npt.NDArray[Any]

    def score_pairs(self, rows: Any, columns: Any) -> Scores:
        return Scores.of_values(self.columns[columns])

    def score_block(self, rows: Any, columns: Any) -> Any:
        return np.tile(self.columns[list_positions(columns)], (rows.size, 1))

    def read_rows(self, rows: Any) -> Any:
        return np.empty((rows.size, 0), dtype=np.float32)

    def extend(self, entries: EntryStore, rows: Any, columns: Any, crossed: Any) -> Self:
        return self.fold_in(
            "column", entries.all_entries("column", np.arange(len(entries.columns)))
        )

    def forget(self, axis: Any, positions: Any) -> Self:
        return (
            replace(self, columns=np.delete(self.columns, positions)) if axis == "column" else self
        )

    def fold_in(self, axis: Any, entries: Any) -> Self:
        if axis == "row":
            return self
        counts = np.diff(entries.starts)
        sums = np.bincount(entries.group_of, entries.values - self.mean, minlength=counts.size)
        return replace(self, columns=(self.mean + sums / (counts + 5.0)).astype(np.float32))

    def take_rows(self, rows: Any) -> Self:
        return self

    def pack(self) -> Packed:
        return Packed({}, {"means": self.columns})


class ColumnMember:
    """A member for `ColumnMeans`."""

    def fit(self, inputs: MemberInputs) -> MemberFit:
        def compute(store: EntryStore) -> ColumnMeans:
            means = ColumnMeans(store.train.mean, np.empty(0))
            return means.fold_in("column", store.column_entries(np.arange(store.train.shape[1])))

        held_out, train = inputs.held_out, inputs.entries.train
        assert held_out is not None
        scores = compute(inputs.seen).score_pairs(held_out.rows, held_out.columns)
        units = Conversion(centre=train.mean)
        return MemberFit(compute(inputs.entries), scores, units=units, stands_alone=False)

    def load(self, content: Any, tensors: Any, entries: EntryStore) -> ColumnMeans:
        return ColumnMeans(entries.train.mean, tensors["means"])


class WithColumnMeans(OrdinalDMF):
    """OrdinalDMF with a further member."""

    def _make_members(self) -> dict[str, Member]:
        return super()._make_members() | {"means": ColumnMember()}


@pytest.mark.slow
def test_a_member_joins_extends_folds_in_forgets_and_is_saved(tmp_path: Path) -> None:
    matrix = generate(
        60, 40, density=0.3, rank=1, noise=0.5, row_effect=0.0, column_effect=2.0, seed=2
    ).matrix
    parts = split_areas(matrix, seed=0)
    settings: dict[str, Any] = {"linear_size": 1, "linear_iterations": 1, "linear_samples": 1}
    settings |= {"networks": 0, "neighbours": None, "presence": None, "device": "cpu"}
    model = WithColumnMeans(**settings).fit(parts.train)
    shares = model.chosen_["members"]
    assert shares["means"] > 0.05 and sum(shares.values()) == pytest.approx(1.0)
    more = model.extend(parts.extension)
    rows, columns, _ = parts.test["IV"].entries()
    predicted = more.predict(rows, columns)
    model_file = tmp_path / "model"
    more.save(model_file)
    np.testing.assert_array_equal(load(model_file).predict(rows, columns), predicted)
    entries = parts.train.entries()
    mine = entries[0] == entries[0][0]
    folded = model.fold_in(entries[1][mine], entries[2][mine]).predict(model.column_labels_)
    whole = model.predict([entries[0][0]] * folded.size, model.column_labels_)
    np.testing.assert_allclose(folded, whole, atol=1e-4)
    less = more.forget(columns=[columns[0]])
    assert columns[0] not in less.column_labels_
    known = more.column_labels_ != columns[0]
    found, expected = less.complete(), more.complete()[:, known]
    assert found.shape == expected.shape
    ranked = more.recommend(rows[0], n=3, rank_by="value", include_observed=True)
    best = more.predict([rows[0]] * len(more.column_labels_), more.column_labels_)
    np.testing.assert_allclose(ranked.values, np.sort(best)[::-1][:3], atol=1e-5)
    stored = read_file(model_file, kind="model")
    content = stored.content
    content["learned"]["members"]["means"]["share"] = 0.123
    with pytest.raises(BadModelFile, match="shares"):
        WithColumnMeans.from_stored(content, stored.tensors)
    with pytest.raises(BadModelFile, match="members"):
        OrdinalDMF.from_stored(content, stored.tensors)


def test_a_blend_adds_its_members_and_few_entries_of_a_column_shrink_a_share() -> None:
    links = {"one": Link(2.0, 3.0, (-1.0, 1.0)), "other": None}
    one = ColumnMeans(3.0, np.array([2.0, 3.0, 4.0], dtype=np.float32))
    scale = ObservedMatrix.from_array([[1.0, 2.0, 3.0]]).scale

    class Logits(ColumnMeans):
        """A member of logits."""

        def score_pairs(self, rows: Any, columns: Any) -> Scores:
            return Scores(self.columns[columns], self.read_rows(rows))

        def read_rows(self, rows: Any) -> Any:
            return np.tile(np.array([0.0, 0.5], dtype=np.float32), (rows.size, 1))

    other = Logits(0.0, np.array([-1.0, 0.0, 1.0], dtype=np.float32))
    members = {"one": Blended(one, 0.25, links["one"]), "other": Blended(other, 0.75, None)}
    readout = OrdinalReadout(scale, np.array([1.0, 2.0, 3.0]), np.array([-0.5, 0.5], np.float32))
    counts = np.array([0, 10, 10**6])
    for few_count, kept in ((0.0, np.ones(3)), (10.0, np.array([0.5, 0.75, 1.0]))):
        confidence = count_entries(readout, counts)
        blend = BlendPredictor(members, readout, confidence).with_few_count(few_count)
        share = 0.25 * kept
        expected = share * 2.0 * (one.columns - 3.0) + (1.0 - share) * other.columns
        pairs = np.zeros(3, dtype=np.int64), np.arange(3)
        scores = blend.score(*pairs)
        np.testing.assert_allclose(scores.location, expected, rtol=1e-6)
        np.testing.assert_allclose(
            blend.locate_block(pairs[0][:1], slice(0, 3))[0], expected, rtol=1e-6
        )
        np.testing.assert_allclose(scores.fields, np.tile([-0.25, 0.625], (3, 1)), rtol=1e-6)
        logits = expected[:, None] - [-0.25, 0.625]
        np.testing.assert_allclose(
            blend.score_pairs(*pairs), 1.0 + expit(logits).sum(axis=1), rtol=1e-6
        )


@pytest.mark.slow
def test_without_networks_the_sampler_is_all(tmp_path: Path) -> None:
    matrix = generate(40, 30, density=0.4, seed=0).matrix
    model = OrdinalDMF(networks=0, linear_iterations=10, device="cpu", presence=None).fit(matrix)
    assert model.chosen_["members"] == {"sampler": 1.0}
    with pytest.raises(BadSetting, match="network"):
        _ = model.network_
    model.save(tmp_path / "model")
    assert not any(
        "network" in name for name in read_file(tmp_path / "model", kind="model").tensors
    )
    np.testing.assert_array_equal(load(tmp_path / "model").complete(), model.complete())
    few = generate(8, 6, density=0.5, seed=0).matrix  # too few entries to hold any out
    small = OrdinalDMF(networks=0, linear_iterations=5, device="cpu", presence=None).fit(few)
    assert np.isfinite(small.complete()).all()
    with pytest.raises(BadSetting, match="member"):
        OrdinalDMF(networks=0, linear_size=0, device="cpu").fit(matrix)
