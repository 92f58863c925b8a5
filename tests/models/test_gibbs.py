"""The Gibbs sampler: each conditional against its closed form, and calibration of the whole."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats

from deepmf.linalg.backend import NUMPY, Backend
from deepmf.linalg.ridge import AxisSolver, RowFit
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.gibbs.chain import (
    Chain,
    GibbsSampler,
    NoiseBound,
    Parameters,
    Units,
    compute_effective_size,
    compute_r_hat,
    draw_alpha,
    draw_reliabilities,
    run_chain,
)
from deepmf.models.gibbs.encoder import NOTHING_NEW, SampleEncoder, find_projection
from deepmf.models.gibbs.prior import (
    DenseInputs,
    Inputs,
    Prior,
    draw_lambdas,
    draw_mean_and_precision,
    draw_weights,
)
from deepmf.training.holdout import HeldOut

# A matrix of 4 rows x 3 columns; row 3 and nothing else is empty.
ROWS, COLUMNS = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 2, 0, 1, 2, 1])
VALUES = np.array([0.5, -1.0, 0.2, 1.4, -0.3, 0.9])


def by_row() -> AxisEntries:
    return AxisEntries(np.array([0, 2, 5, 6, 6]), COLUMNS, VALUES)


def by_column() -> AxisEntries:
    order = np.lexsort((ROWS, COLUMNS))
    return AxisEntries(np.array([0, 2, 4, 6]), ROWS[order], VALUES[order])


def dense_inputs() -> Any:
    """Return F of the rows in double precision."""
    present = np.zeros((4, 3))
    present[ROWS, COLUMNS] = 1.0
    return shrink(present)


def shrink(present: Any) -> Any:
    """Return which columns each row has entries in, over sqrt(n), shrunk to the average as if by 5
    entries."""
    counts = present.sum(axis=1, keepdims=True)
    inputs = present / np.sqrt(np.maximum(counts, 1))
    average = (counts * inputs).sum(axis=0) / counts.sum()
    return (counts * inputs + 5 * average) / (counts + 5)


def random_precision(size: int, seed: int = 0) -> Any:
    table = np.random.default_rng(seed).standard_normal((size + 3, size))
    return table.T @ table


def test_a_row_has_the_posterior_of_a_bayesian_regression() -> None:
    generator = np.random.default_rng(1)
    columns, priors = generator.standard_normal((3, 3)), generator.standard_normal((4, 3))
    precision, alpha = random_precision(3), 2.5
    moment = columns.T @ columns
    reliabilities, own_reliabilities = np.array([0.5, 2.0, 1.3]), np.array([1.0, 0.4, 3.0, 1.0])
    solver = AxisSolver(by_row(), VALUES, n_others=3)

    def draw(noise: Any) -> Any:
        return solver.draw(
            columns,
            priors,
            precision,
            alpha,
            noise=None if noise is None else noise,
            moment=moment,
            reliabilities=own_reliabilities,
            other_reliabilities=reliabilities,
        )

    found = draw(np.zeros((4, 3)))
    # The draws are linear in the noise: their covariance is that of the images of unit vectors.
    steps = [draw(np.tile(unit, (4, 1))).draws - found.means for unit in np.eye(3)]
    for row in range(4):
        own = row == ROWS
        table = np.column_stack([columns[COLUMNS[own], :-1], np.ones(own.sum())])
        targets, of_entries = VALUES[own] - columns[COLUMNS[own], -1], reliabilities[COLUMNS[own]]
        strengths = alpha * own_reliabilities[row] * of_entries[:, None]
        covariance = np.linalg.inv(table.T @ (strengths * table) + precision)
        mean = covariance @ (table.T @ (strengths[:, 0] * targets) + precision @ priors[row])
        np.testing.assert_allclose(found.means[row], mean, rtol=1e-6)
        images = np.stack([step[row] for step in steps], axis=1)
        np.testing.assert_allclose(images @ images.T, covariance, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.variances[row], np.trace(covariance @ moment), rtol=1e-4)
        squared_error = float((of_entries * np.square(targets - table @ mean)).sum())
        np.testing.assert_allclose(
            found.fit.squared_errors[row], squared_error, rtol=1e-5, atol=1e-9
        )
        np.testing.assert_allclose(found.fit.totals[row], of_entries.sum(), rtol=1e-6)
    np.testing.assert_allclose(draw(None).means, found.means, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_leading", [0, 2])
@pytest.mark.parametrize("featured", [False, True])
def test_weights_have_the_posterior_of_a_regression_of_the_factors_on_the_inputs(
    featured: bool, n_leading: int
) -> None:
    entries, table = by_row(), dense_inputs()
    if featured:
        labels = ["a", "b", "c", "d"]
        features = Features.from_columns(labels, {"size": [1.0, 2.0, 4.0, 3.0]})
        vectors = features.encode(features.learn_encoding())
        # features of the others say nothing about factors
        has_entries = np.diff(entries.starts)[:, None] > 0
        table = np.hstack([table, has_entries * vectors.to_sparse().toarray()])
        entries = entries._replace(features=vectors)
    inputs = Inputs(entries, by_column(), n_others=3, n_leading=n_leading)
    assert sum(inputs.blocks) == table.shape[1]
    generator = np.random.default_rng(2)
    deviations, precision = generator.standard_normal((4, 2)), random_precision(2)
    lambdas = np.concatenate(
        [np.full(size, 1.5 + block) for block, size in enumerate(inputs.blocks)]
    )[:, None]

    def draw(row_noise: Any, input_noise: Any) -> Any:
        return draw_weights(
            *(deviations, inputs, lambdas, precision), row_noise, input_noise, steps=20
        )

    nothing = np.zeros((4, 2)), np.zeros((table.shape[1], 2))
    mean = draw(*nothing)
    inverse = np.linalg.inv(table.T @ table + np.diag(lambdas[:, 0]))
    np.testing.assert_allclose(mean, inverse @ table.T @ deviations, atol=1e-5)
    images = []
    for which, shape in enumerate((deviations.shape, mean.shape)):
        for at in np.ndindex(*shape):
            noise = [each.copy() for each in nothing]
            noise[which][at] = 1.0
            images.append((draw(*noise) - mean).ravel())
    # narrow and wide, one lambda each
    for blocks, part in ((inputs.blocks, table), ([4], table.T)):
        system = DenseInputs(part.copy(), blocks)
        # between the lambdas at which the system is inverted, and far away
        for factor in (1.0, 1.04, 3.0, 1.0):
            strengths = factor * (lambdas if blocks is inputs.blocks else np.full((4, 1), 0.7))
            target = generator.standard_normal((part.shape[1], 2))
            near = system.invert_near(strengths)
            solved = system.solve(near, target, strengths)[0]
            np.testing.assert_allclose(
                part.T @ part @ solved + strengths * solved, target, atol=2e-5
            )
    # Rows and inputs: (F'F + lambda)^-1 over inputs, precision^-1 over factors.
    expected = np.kron(inverse, np.linalg.inv(precision))
    np.testing.assert_allclose(np.stack(images, 1) @ np.stack(images), expected, atol=1e-5)
    np.testing.assert_allclose(inputs.multiply(mean), table @ mean, atol=1e-6)


@pytest.mark.slow
def test_mean_and_precision_follow_the_normal_wishart_posterior() -> None:
    generator, numbers = np.random.default_rng(5), np.random.default_rng(6)
    factors = generator.standard_normal((40, 2)) @ np.array([[1.0, 0.3], [0.0, 0.5]]) + [1.0, -2.0]
    weights, strength = generator.standard_normal((10, 2)), 3.0
    drawn = [
        draw_mean_and_precision(
            40,
            factors.mean(0),
            factors.T @ factors,
            strength * weights.T @ weights,
            len(weights),
            numbers,
        )
        for _ in range(4000)
    ]
    # Prior: mean ~ Normal(0, (2 precision)^-1), precision ~ Wishart(2, I), weights ~ Normal(0, (3
    # precision)^-1).
    average = 40 / 42 * factors.mean(0)
    scale = (
        np.eye(2)
        + factors.T @ factors
        - 42 * np.outer(average, average)
        + strength * weights.T @ weights
    )
    expected = scipy.stats.wishart(2 + 40 + 10, np.linalg.inv(scale))
    precisions, means = np.stack([each[1] for each in drawn]), np.stack([each[0] for each in drawn])
    np.testing.assert_allclose(
        precisions.mean(0), expected.mean(), atol=0.03 * expected.mean().max()
    )
    np.testing.assert_allclose(precisions.var(0), expected.var(), atol=0.12 * expected.var().max())
    np.testing.assert_allclose(means.mean(0), average, atol=0.02)
    of_means = scale / (52 - 3) / 42  # E[precision^-1] / 42
    np.testing.assert_allclose(np.cov(means.T), of_means, atol=0.1 * of_means.max())


@pytest.mark.slow
def test_alpha_and_lambda_follow_their_gamma_posteriors() -> None:
    numbers = np.random.default_rng(7)
    alphas = np.array([draw_alpha(30, 12.0, numbers) for _ in range(4000)])
    assert (
        scipy.stats.kstest(alphas, scipy.stats.gamma(1 + 15, scale=1 / (1 + 6.0)).cdf).pvalue > 1e-3
    )
    fit = RowFit(np.array([3.0, 0.0], np.float32), np.ones(2))
    reliabilities = np.stack(
        [draw_reliabilities(fit, np.array([8.0, 0.0]), 2.0, numbers) for _ in range(2000)]
    )
    for row, (count, error) in enumerate(((8, 3.0), (0, 0.0))):
        expected = scipy.stats.gamma((100 + count) / 2, scale=2 / (100 + 2.0 * error))
        assert scipy.stats.kstest(reliabilities[:, row], expected.cdf).pvalue > 1e-3
    extremes = RowFit(np.array([1e9, 0.0], np.float32), np.ones(2))
    found = draw_reliabilities(extremes, np.array([5.0, 1e7]), 2.0, numbers).astype(np.float16)
    assert found.tolist() == pytest.approx([1e-3, 1e3], rel=1e-3)
    weights, precision = (np.random.default_rng(0).standard_normal((6, 2)), random_precision(2))
    drawn = np.stack([draw_lambdas(weights, precision, [4, 2], numbers) for _ in range(2000)])
    for block, part in enumerate((weights[:4], weights[4:])):
        rate = 0.1 + np.trace(part @ precision @ part.T) / 2
        expected = scipy.stats.gamma(1 + part.size / 2, scale=1 / rate)
        assert scipy.stats.kstest(drawn[:, block], expected.cdf).pvalue > 1e-3


# A sampler that draws from the prior, when entries are drawn anew before each sweep (Geweke,
# "Getting it right: joint distribution tests of posterior simulators", 2004).
N_FACTORS = 2
PRESENT = np.random.default_rng(8).random((5, 4)) < 0.6
INPUTS = shrink(PRESENT), shrink(PRESENT.T)


class State(NamedTuple):
    """The factors of rows and of columns, and the parameters of a chain."""

    factors: tuple[Any, Any]
    parameters: Parameters


def to_single(array: Any) -> Any:
    return np.asarray(array, dtype=np.float32)


def draw_axis(
    inputs: Any,
    dice: np.random.Generator,
    *,
    degrees: float = N_FACTORS,
    mean_count: float = 2.0,
    lambda_rate: float = 0.1,
) -> tuple[Any, Prior]:
    """Draw the prior of one axis from its own, and then factors."""
    strength = dice.gamma(1.0, 1.0 / lambda_rate)
    precision = scipy.stats.wishart(degrees, np.eye(N_FACTORS)).rvs(random_state=dice)
    spread = np.linalg.inv(np.linalg.cholesky(precision))
    mean = dice.standard_normal(N_FACTORS) @ spread / np.sqrt(mean_count)
    weights = dice.standard_normal((inputs.shape[1], N_FACTORS)) @ spread / np.sqrt(strength)
    noise = dice.standard_normal((len(inputs), N_FACTORS)) @ spread
    prior = Prior(*map(to_single, (mean, precision, weights, [strength])))
    return mean + inputs @ weights + noise, prior


def draw_state(
    dice: np.random.Generator, *, alpha_rate: float = 1.0, count: float = 100.0, **of_axes: float
) -> State:
    """Draw everything but the entries from the prior, or from a changed one."""
    (rows, row_prior), (columns, column_prior) = (
        draw_axis(inputs, dice, **of_axes) for inputs in INPUTS
    )
    reliabilities = [to_single(dice.gamma(count / 2, 2 / count, size)) for size in PRESENT.shape]
    alpha = dice.gamma(1.0, 1.0 / alpha_rate)
    return State((rows, columns), Parameters(row_prior, column_prior, alpha, *reliabilities))


def draw_entries(state: State, dice: np.random.Generator) -> EntryStore:
    """Draw entries given everything else."""
    (rows, row_biases), (columns, column_biases) = (
        (factors[:, :-1], factors[:, -1]) for factors in state.factors
    )
    _, _, alpha, of_rows, of_columns = state.parameters
    precisions = alpha * np.outer(of_rows, of_columns)
    means = rows @ columns.T + row_biases[:, None] + column_biases
    values = means + dice.standard_normal(PRESENT.shape) / np.sqrt(precisions)
    table = np.where(PRESENT, values, np.nan)
    return EntryStore.of(ObservedMatrix.from_array(table, scale=Scale(low=-1e12, high=1e12)))


def describe(state: State) -> list[float]:
    """Return numbers that a wrong draw would shift, spread or make depend on each other.

    Sums of squares have tails so heavy that only their logarithms and ranks can be compared.
    """
    *priors, alpha, of_rows, of_columns = state.parameters
    noise, of_row, of_column = (
        np.log(alpha),
        float(np.log(of_rows[0])),
        float(np.log(of_columns[0])),
    )
    numbers = [noise, of_row, of_column, float(np.log(of_rows).mean() + np.log(of_columns).mean())]
    numbers += [of_row * noise, of_column * noise, of_row * of_column]
    numbers.append(state.factors[0][0] @ state.factors[1][0])
    for factors, prior, inputs in zip(state.factors, priors, INPUTS, strict=True):
        mean, precision, weights, (strength,) = (np.asarray(part, dtype=float) for part in prior)
        residuals = factors - mean - inputs @ weights
        square = np.log(np.trace(weights @ precision @ weights.T))
        numbers += [np.log(strength), np.log(strength) + square, np.log(strength) * square]
        numbers += [np.linalg.slogdet(precision)[1], np.log(np.trace(precision)), precision[0, 1]]
        numbers += [*mean, weights[0, 0], weights[-1, -1], factors[0, 0], factors[-1, -1]]
        numbers += [np.log(mean @ precision @ mean), np.log(np.square(factors).sum())]
        numbers += [np.log(np.trace(residuals @ precision @ residuals.T))]
        numbers += [factors[0, 0] * weights[0, 0], noise * np.log(factors[0] @ factors[0])]
    return numbers


def measure_changes(n_chains: int, n_sweeps: int = 4, **prior: float) -> Any:
    """Return by how many standard errors sweeps change the ranks of what they should keep.

    Each chain starts from a draw of its own, so that the changes are independent.
    """
    dice, sampler, before, after = np.random.default_rng(8), None, [], []
    for chain_number in range(n_chains):
        state = draw_state(dice, **prior)
        before.append(describe(state))
        for sweep in range(n_sweeps):
            entries = draw_entries(state, dice)
            if sampler is None:
                sampler = GibbsSampler(entries, Units(0.0, 1.0), latent_size=N_FACTORS - 1, seed=0)
            sampler.set_entries(entries)
            sampler.row_factors, sampler.column_factors = map(to_single, state.factors)
            sampler.parameters = state.parameters
            sampler.iterate(n_sweeps * chain_number + sweep)
            factors = sampler.row_factors, sampler.column_factors
            state = State(factors, sampler.parameters)
        after.append(describe(state))
    ranks = scipy.stats.rankdata(np.concatenate([before, after]), axis=0) / (2 * n_chains) - 0.5
    ranks_before, ranks_after = np.split(ranks, 2)
    shifts, spreads = ranks_after - ranks_before, np.abs(ranks_after) - np.abs(ranks_before)
    changes = np.hstack([shifts, spreads])
    return np.abs(changes.mean(axis=0)) / (changes.std(axis=0) / np.sqrt(n_chains))


@pytest.mark.slow
def test_sweeps_between_draws_of_entries_keep_the_prior() -> None:
    scores = measure_changes(300)
    assert scores.max() < 4.0, scores


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        {"degrees": 6.0},
        {"mean_count": 0.2},
        {"lambda_rate": 0.01},
        {"alpha_rate": 0.02},
        {"count": 12.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_sampler_of_another_prior_is_found(wrong: dict[str, float]) -> None:
    assert measure_changes(60, **wrong).max() > 5.0


def test_an_iteration_draws_columns_and_noise_given_all_reliabilities() -> None:
    dice = np.random.default_rng(3)
    noises = np.where(np.arange(90) < 30, 4.0, 0.3)[:, None] * np.where(
        np.arange(60) < 20, 3.0, 0.5
    )
    table = dice.normal(size=(90, 1)) + dice.normal(size=60) + noises * dice.normal(size=(90, 60))
    rows, columns = (dice.random(table.shape) < 0.8).nonzero()
    weights = dice.uniform(1.0, 3.0, rows.size)
    matrix = ObservedMatrix.from_entries(rows, columns, table[rows, columns], weights=weights)
    sampler = GibbsSampler(EntryStore.of(matrix), Units(0.0, 1.0), latent_size=2, seed=0)
    sampler.start()
    for epoch in range(4):
        before = sampler.parameters.column_reliabilities
        iteration = sampler.iterate(epoch)
    _, prior, alpha, of_rows, _ = iteration.parameters
    own, given = of_rows, iteration.rows.draws
    assert own.max() > 5 * own.min() and before.max() > 5 * before.min()
    means = prior.mean + sampler.column_inputs.multiply(prior.weights)
    precision = prior.precision
    for column in (0, 40):
        at = columns == column
        lines = np.column_stack([given[rows[at], :-1], np.ones(at.sum())])
        strengths = alpha * before[column] * weights[at] * own[rows[at]]
        targets = table[rows[at], column] - given[rows[at], -1]
        system = lines.T @ (strengths[:, None] * lines) + precision
        expected = np.linalg.solve(
            system, lines.T @ (strengths * targets) + precision @ means[column]
        )
        np.testing.assert_allclose(iteration.columns.means[column], expected, rtol=1e-3, atol=1e-4)
    drawn = iteration.columns.draws
    errors = table - given[:, :-1] @ drawn[:, :-1].T - given[:, -1:] - drawn[:, -1]
    others = sampler.parameters.column_reliabilities
    squares = weights * (own[:, None] * others * np.square(errors))[rows, columns]
    assert sampler.parameters.alpha == pytest.approx(weights.sum() / squares.sum(), rel=0.06)


@pytest.mark.parametrize("weighted", [False, True])
def test_numpy_and_torch_draw_the_same_chain(weighted: bool) -> None:
    dice = np.random.default_rng(4)
    rows, columns = np.divmod(dice.choice(60 * 40, 900, replace=False), 40)
    weights = dice.uniform(0.5, 2.0, 900) if weighted else None
    features = Features.from_columns(range(61), {"size": dice.normal(size=61).tolist()})
    matrix = ObservedMatrix.from_entries(rows, columns, dice.normal(size=900), weights=weights)
    entries = EntryStore.of(matrix, AxisFeatures.of(matrix.rows, features, matrix.row_counts))
    draws, latents, samples = [], [], None
    for backend in (NUMPY, Backend("torch")):
        sampler = GibbsSampler(entries, Units.of(matrix), latent_size=5, seed=0, backend=backend)
        chain = Chain(sampler, range(4), burn_in=0, n_samples=2)
        for epoch in chain.epochs:
            iteration = chain.run_epoch(epoch)
        draws.append((*iteration.rows[:2], iteration.parameters.columns.weights))
        samples = samples or chain.find_samples()  # in half precision, which rounds too coarsely
        encoder = SampleEncoder(Units.of(matrix), samples, backend)
        latents.append(encoder.encode("row", entries.row_entries(np.arange(9)), NOTHING_NEW))
    for by_numpy, by_torch in zip(*draws, strict=True):
        np.testing.assert_allclose(by_numpy, by_torch, atol=1e-5)
    np.testing.assert_allclose(*latents, atol=1e-5)


def test_diagnostics_know_independent_numbers_from_a_walk() -> None:
    numbers = np.random.default_rng(13)
    walk = np.cumsum(numbers.standard_normal(500))
    assert compute_effective_size(walk) < 20 and compute_r_hat(walk) > 1.2
    assert compute_effective_size(numbers.standard_normal(500)) > 300


@pytest.mark.parametrize(
    ("n_rows", "rank", "most"), [(90, 5, 20), (90, 60, 20), (12, 30, 20), (30, 0, 20)]
)
def test_a_projection_keeps_the_products_as_the_best_low_rank_part_does(
    n_rows: int, rank: int, most: int
) -> None:
    dice = np.random.default_rng(0)
    rows, columns = (
        dice.normal(size=(n, rank)) @ dice.normal(size=(rank, 200)) for n in (n_rows, 70)
    )
    rows *= np.geomspace(1, 100, 200)
    projection = find_projection(*(each.astype(np.float32) for each in (rows, columns)), most=most)
    products = rows @ columns.T
    values = np.linalg.svd(products, compute_uv=False)
    left_out = np.sqrt(np.square(values[most:]).sum())
    found = (rows @ projection.rows) @ (columns @ projection.columns).T
    assert np.linalg.norm(products - found) <= 1.05 * left_out + 1e-3 * values[0]
    assert projection.rows.shape[1] == projection.columns.shape[1] <= most


@pytest.mark.slow
def test_a_chain_of_mostly_equal_values_does_not_learn_its_entries_by_heart() -> None:
    dice = np.random.default_rng(0)
    rows, columns = np.divmod(dice.choice(150 * 80, 4000, replace=False), 80)
    values = np.where(dice.random(4000) < 0.04, dice.choice([1.0, 2.0, 3.0, 5.0], 4000), 4.0)
    seen, held_out = HeldOut.split(
        ObservedMatrix.from_entries(rows, columns, values), seed=0, one_in=5
    )
    assert held_out is not None
    units = Units.of(seen)
    sampler = GibbsSampler(EntryStore.of(seen), units, latent_size=16, seed=0)
    bound = NoiseBound(held_out, units)
    part = run_chain(sampler, range(100), burn_in=40, n_samples=2, bound=bound)
    errors = part.predictions - units.standardise(held_out.values)
    assert np.sqrt(np.mean(errors**2)) < 1.1 * np.std(held_out.values) / units.deviation
