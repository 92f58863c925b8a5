"""Facts about generated matrices: exact counts, known truth, the same entries for the same seed."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from deepmf.data.synthetic import invent_names
from deepmf.datasets import Generated, Truth, checkerboard, generate
from deepmf.errors import BadSetting, UnknownLabel
from deepmf.matrix.matrix import Entries
from deepmf.matrix.scale import Scale
from deepmf.metrics import mae_error, rmse_error

# Sums of position x row, column, value: change them only where the entries are meant to change.
REFERENCE = (26644206489, 101301205948, 728051810.0)


def draw(*shape: int, **settings: Any) -> Entries:
    return generate(*shape, named=False, **settings).matrix.entries()


def all_pairs(truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = truth.rows.array, truth.columns.array
    return np.repeat(rows, columns.size), np.tile(columns, rows.size)


def squared_floor(generated: Generated) -> float:
    entries = generated.matrix.entries()
    return rmse_error(generated.truth.mean(entries.rows, entries.columns), entries.values)


@pytest.mark.parametrize("n_entries", [1, 39, 1000, 1999, 2000])
@pytest.mark.parametrize("popularity", [0.0, 0.6, 2.0])
def test_exactly_as_many_different_entries_as_asked(n_entries: int, popularity: float) -> None:
    entries = draw(50, 40, n_entries=n_entries, popularity=popularity)
    cells = entries.rows * 40 + entries.columns
    assert cells.size == n_entries
    assert np.all(np.diff(cells) > 0)  # in row order, none twice
    assert 0 <= cells.min() <= cells.max() < 2000


def test_entries_are_those_of_any_other_machine() -> None:
    rows, columns, values = draw(200, 1000, n_entries=20_000, popularity=1.0, selection=2.0, seed=0)
    weights = np.arange(1, 20_001)
    assert (weights @ rows, weights @ columns, weights @ values) == REFERENCE


def test_later_entries_do_not_repeat_earlier_ones() -> None:
    columns = draw(16_384, 1000, n_entries=131_072, popularity=0.0, selection=0.0).columns
    first, second = columns.reshape(2, -1)  # as many rows, as many entries
    assert np.mean(first == second) < 0.01


def test_without_noise_entries_are_the_truth() -> None:
    generated = generate(400, 300, n_entries=9000, noise=0.0, named=False, seed=2)
    rows, columns, values = generated.matrix.entries()
    assert np.array_equal(generated.truth.median(rows, columns), values)


# Rows with two columns of 60 draw them; of 6, they go by keys. Both must be successive
# sampling: P(j) = p_j + sum over i other than j of p_i p_j / (1 - p_i).
@pytest.mark.parametrize("n_columns", [60, 6])
def test_columns_are_drawn_in_proportion_to_a_power_law(n_columns: int) -> None:
    matrix = generate(
        40_000, n_columns, n_entries=120_000, popularity=0.9, selection=0, named=False
    ).matrix
    pairs = matrix.take(np.flatnonzero(matrix.row_counts == 2), np.arange(n_columns))
    assert pairs.shape[0] > 5000
    steps = np.arange(1, n_columns + 2) ** 0.1
    share = np.diff(steps) / (steps[-1] - steps[0])
    wanted = share * (1 + np.sum(share / (1 - share)) - share / (1 - share))
    seen = np.sort(pairs.column_counts)[::-1] / pairs.shape[0]
    assert np.all(np.abs(seen - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / pairs.shape[0]))


def test_people_rate_what_they_like_when_selection_is_on() -> None:
    def gain(selection: float) -> float:
        generated = generate(400, 300, selection=selection, named=False, seed=1)
        return (
            generated.matrix.entries().values.mean()
            - generated.truth.mean(*all_pairs(generated.truth)).mean()
        )

    assert abs(gain(0)) < 0.15
    assert gain(1) > 0.25
    assert gain(3) > gain(1) + 0.1


@pytest.mark.parametrize("n_columns", [500, 5])  # drawn, by keys
def test_the_chance_of_a_cell_is_logistic_in_how_much_it_is_liked(n_columns: int) -> None:
    # One entry a row and columns that are equally popular: a column's chance is its share of
    # the row's weights.
    generated = generate(
        5000, n_columns, n_entries=5000, popularity=0, selection=2, noise=0, named=False
    )
    truth, rows = generated.truth, np.arange(5000)
    assert np.all(generated.matrix.row_counts == 1)
    liking = (
        truth.signal_at(rows[:, None], np.arange(len(truth.columns))) - truth.row_effects[:, None]
    )
    chance = 1 / (1 + np.exp(-2 * liking))
    chance /= chance.sum(axis=1, keepdims=True)
    expected = np.sum(chance * liking, axis=1)
    spread = np.sqrt(np.mean(np.sum(chance * liking**2, axis=1) - expected**2))
    seen = liking[rows, generated.matrix.by_row.columns]
    assert seen.mean() == pytest.approx(expected.mean(), abs=4 * spread / np.sqrt(5000))
    assert seen.mean() > liking.mean() + 0.3


LEVELS: list[Any] = [(0, 1), (-1, 0, 1), (1, 2, 3, 4, 5), (1, 2, 4, 8, 100)]
LEVELS += [tuple(np.arange(1, 11) / 2), tuple(range(40))]


@pytest.mark.parametrize("levels", LEVELS)
def test_every_level_is_used_and_high_ones_more(levels: tuple[float, ...]) -> None:
    matrix = generate(levels=levels, n_entries=20_000).matrix
    assert matrix.scale == Scale(levels)
    counts = np.array(list(matrix.describe().histogram.values()))
    assert counts.min() > 0
    assert counts[counts.size // 2 :].sum() > 0.55 * counts.sum()


@pytest.mark.slow
@pytest.mark.parametrize("levels", LEVELS)
def test_answers_agree_with_simulation(levels: tuple[float, ...]) -> None:
    truth = generate(30, 20, levels=levels, seed=5).truth
    rows, columns = truth.rows.array[:20], truth.columns.array
    noise = truth.noise * np.random.default_rng(0).standard_normal((40_000, 1))
    shown = truth.convert(truth.signal(rows, columns) + noise)
    spread = shown.std(axis=0).max()
    assert truth.mean(rows, columns) == pytest.approx(shown.mean(axis=0), abs=5 * spread / 200)
    shares = np.stack([(shown == level).mean(axis=0) for level in levels], axis=1)
    distribution = truth.distribution(rows, columns)
    assert distribution == pytest.approx(shares, abs=5 * 0.5 / 200)
    assert distribution.sum(axis=1) == pytest.approx(1)
    assert np.mean(truth.median(rows, columns) == np.median(shown, axis=0)) >= 0.95


def test_signal_is_the_formula() -> None:
    truth = generate(7, 5, n_entries=10, rank=3, named=False).truth
    products = truth.row_factors.T @ truth.column_factors
    dense = products + truth.row_effects[:, None] + truth.column_effects
    assert np.array_equal(truth.signal(*all_pairs(truth)), dense.ravel())
    some = truth.signal_at(np.array([[4], [0]]), np.arange(len(truth.columns)))
    assert np.array_equal(some, dense[[4, 0]])
    assert truth.row_factors.shape == (3, 7)
    with pytest.raises(UnknownLabel, match="99"):
        truth.mean([99], [0])


@pytest.mark.parametrize("seed", range(3))
def test_floor_is_below_means_of_rows_and_columns_below_the_mean(seed: int) -> None:
    generated = generate(1000, 400, seed=seed, named=False)
    rows, columns, values = generated.matrix.entries()
    mean_error = values.std()
    column_means = np.bincount(columns, values) / np.bincount(columns)
    rest = values - column_means[columns]
    means_error = (rest - (np.bincount(rows, rest) / np.bincount(rows))[rows]).std()
    floor = squared_floor(generated)
    assert 0.74 < floor < 0.82
    assert floor + 0.08 < means_error < mean_error - 0.1
    assert 1.0 < mean_error < 1.2


def test_median_has_the_lower_absolute_error() -> None:
    generated = generate(500, 400, named=False)
    rows, columns, values = generated.matrix.entries()
    expected = generated.truth.mean(rows, columns)
    median = generated.truth.median(rows, columns)
    assert mae_error(median, values) < mae_error(expected, values)
    assert rmse_error(median, values) > rmse_error(expected, values)


def test_real_values_are_signal_plus_noise() -> None:
    generated = generate(500, 300, levels=None, noise=0.5, selection=0, named=False)
    rows, columns, values = generated.matrix.entries()
    assert generated.matrix.scale.levels is None
    assert np.unique(values).size > 0.99 * values.size
    assert values.mean() == pytest.approx(0, abs=0.2)
    assert values.std() == pytest.approx(1, abs=0.1)
    unit = np.sqrt(1 + 0.5**2 + 2 * 0.9**2)
    assert squared_floor(generated) == pytest.approx(0.5 / unit, rel=0.02)
    truth = generated.truth
    assert np.array_equal(truth.median(rows, columns), truth.mean(rows, columns))
    with pytest.raises(BadSetting, match="levels"):
        truth.distribution(rows, columns)


@pytest.mark.parametrize("shape", [(20, 20), (7, 12), (31, 4), (2, 2)])
def test_values_are_the_parity_of_row_and_column(shape: tuple[int, int]) -> None:
    board = checkerboard(*shape, observed=0.5, seed=1)
    rows, columns, values = board.matrix.entries()
    assert np.array_equal(values, np.where((rows + columns) % 2, 1, 5))
    assert np.array_equal(board.truth.mean(rows, columns), values)
    assert np.array_equal(board.truth.median(rows, columns), values)
    assert board.matrix.n_entries == round(0.5 * shape[0] * shape[1])
    assert board.matrix.scale == Scale([1, 5])


@pytest.mark.parametrize(
    ("shape", "observed"), [((20, 20), 0.1), ((7, 12), 26 / 84), ((31, 4), 0.5)]
)
def test_rows_and_columns_keep_both_values_from_the_smallest_share_on(
    shape: tuple[int, int], observed: float
) -> None:
    array = checkerboard(*shape, observed=observed, seed=2).matrix.to_array()
    for value in (1, 5):
        assert np.all(np.any(array == value, axis=0))
        assert np.all(np.any(array == value, axis=1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_rows": 0}, "n_rows"),
        ({"n_columns": 2.5}, "n_columns"),
        ({"n_entries": 60_001}, "60001"),
        ({"n_entries": 0}, "n_entries"),
        ({"density": 0.0}, "density"),
        ({"density": 1.5}, "density"),
        ({"density": float("nan")}, "density"),
        ({"rank": 0}, "rank"),
        ({"levels": (3, 2, 1)}, "increase"),
        ({"levels": (1,)}, "levels"),
        ({"levels": "stars"}, "'stars'"),
        ({"noise": -1}, "noise"),
        ({"row_effect": "big"}, "row_effect"),
        ({"column_effect": float("inf")}, "column_effect"),
        ({"popularity": 3}, "popularity"),
        ({"selection": -0.5}, "selection"),
        ({"seed": -1}, "seed"),
        ({"seed": None}, "seed"),
    ],
)
def test_bad_settings_are_repeated_with_what_is_right(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(BadSetting, match=message):
        generate(**settings)
    if "density" in settings:
        with pytest.raises(BadSetting, match="observed"):
            checkerboard(observed=settings["density"])  # type: ignore[arg-type]


@pytest.mark.parametrize("axis", ["row", "column"])
def test_names_are_unique_and_plain_while_they_last(axis: str) -> None:
    names = invent_names(axis, 100_000)
    assert len(names) == len(set(names)) == 100_000
    assert not any(character.isdigit() for name in names[:3500] for character in name)
    words = [set(name.split()) - {"The"} for name in names[:3500]]
    assert not any(first & second for first, second in pairwise(words))
