"""Masking: how much is hidden, that nothing tells what is, that both branches agree; and which
inputs views see."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from deepmf.nn.branch import use_generator
from deepmf.nn.inputs import FeatureBatch
from deepmf.nn.masking import Masking, draw_views

N_ROWS, N_COLUMNS = 600, 500
every_share = pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.6, 0.95])


def new_masking(share: float, seed: int = 0) -> Masking:
    module = Masking(share)
    use_generator(module, torch.Generator().manual_seed(seed))
    return module


def block(
    module: Masking, drawn: Tensor, n_rows: int = N_ROWS, n_columns: int = N_COLUMNS
) -> Tensor:
    return module.is_masked(torch.arange(n_rows)[:, None], torch.arange(n_columns), drawn)


def standard(hidden: Tensor, share: float) -> npt.NDArray[np.float64]:
    """What is hidden as numbers of mean 0 and variance 1, if it is hidden with that probability."""
    return (hidden.double().numpy() - share) / np.sqrt(share * (1 - share))


@every_share
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_share_is_right_in_all_and_in_every_row_and_column(share: float, seed: int) -> None:
    module = new_masking(share, seed)
    numbers = standard(block(module, module.draw_step_seed()), share)
    assert abs(numbers.sum()) / numbers.size**0.5 < 4
    # sums over independent draws have variance 1: neither all alike nor too different
    for axis in (0, 1):
        sums = numbers.sum(axis) / numbers.shape[axis] ** 0.5
        assert abs(sums.var() - 1) < 5 * (2 / sums.size) ** 0.5
        assert np.abs(sums).max() < 6


@every_share
def test_rows_tell_nothing_of_rows_and_columns_nothing_of_columns(share: float) -> None:
    module = new_masking(share)
    numbers = standard(block(module, module.draw_step_seed()), share)
    for table in (numbers, numbers.T):
        products = table @ table.T / table.shape[1] ** 0.5
        pairs = products[np.triu_indices(len(table), 1)]
        assert abs(pairs.sum()) / pairs.size**0.5 < 4
        # The mean square of all pairs is about entries in rectangles: two rows, two columns, four
        # draws.
        assert (pairs**2).mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("axis", ["row", "column"])
def test_of_cold_rows_and_columns_more_is_hidden_by_degrees(rate: float, axis: str) -> None:
    module = Masking(0.6, **{f"cold_{axis}_rate": rate})
    use_generator(module, torch.Generator().manual_seed(0))
    over = 1 if axis == "row" else 0
    first, second = (
        block(module, module.draw_step_seed()).double().mean(over).numpy() for _ in range(2)
    )
    chosen = first > 0.7  # the first degree shows a fifth
    assert chosen.mean() == pytest.approx(rate, abs=4 * (rate / first.size) ** 0.5)
    assert np.all(np.abs(first[~chosen] - 0.6) < 0.1)
    # half of them empty, or nearly so
    assert (first[chosen] == 1).mean() == pytest.approx(0.55, abs=0.2)
    for shown in (0.2, 0.1, 0.05, 0.025):
        assert np.any(np.abs(1 - first[chosen] - shown) < 0.2 * shown + 0.01)
    assert (chosen & (second > 0.7)).mean() < rate  # others in another step


def test_every_cold_row_shows_at_most_half_of_what_others_show() -> None:
    module = Masking(0.6, cold_row_rate=1.0)
    use_generator(module, torch.Generator().manual_seed(0))
    shown = 1 - block(module, module.draw_step_seed()).double().mean(1)
    assert 0.15 < shown.max() < 0.25


def test_cold_rows_and_columns_are_hidden_no_less_than_the_others() -> None:
    module = Masking(0.99, cold_row_rate=0.5, cold_column_rate=0.5)
    use_generator(module, torch.Generator().manual_seed(0))
    hidden = block(module, module.draw_step_seed()).double()
    assert hidden.mean() > 0.99 and hidden.mean(1).min() > 0.96


def test_features_are_hidden_at_their_rate_apart_from_entries_and_anew_in_every_step() -> None:
    module = Masking(0.6, cold_row_rate=0.5, feature_mask_rate=0.25)
    use_generator(module, torch.Generator().manual_seed(0))
    ids, ones = torch.arange(4000), torch.ones(4000, 3)
    features = FeatureBatch(torch.zeros(4000, 3, dtype=torch.int64), ones)
    steps = []
    for drawn in (module.draw_step_seed(), module.draw_step_seed()):
        visible = module.mask_features(features, ids, drawn)
        assert visible is not None
        hidden = visible.weights.sum(1) == 0
        # all of a row's features, or none
        assert bool((hidden | (visible.weights.sum(1) == 3)).all())
        assert hidden.double().mean().item() == pytest.approx(0.25, abs=0.03)
        cold = block(module, drawn, 4000, 50).double().mean(1) > 0.85
        assert (hidden & cold).double().mean().item() == pytest.approx(
            hidden.double().mean().item() * cold.double().mean().item(), abs=0.02
        )
        steps.append(hidden)
    assert (steps[0] & steps[1]).double().mean().item() == pytest.approx(0.0625, abs=0.02)
    assert module.mask_features(None, ids, drawn) is None
    assert Masking(0.6, feature_mask_rate=0.0).mask_features(features, ids, drawn) is features


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_row_with_a_columns_number_is_not_hidden_as_that_column(share: float) -> None:
    module = new_masking(share)
    square = standard(block(module, module.draw_step_seed(), 500, 500), share)
    products = (square * square.T)[np.triu_indices(500, 1)]
    assert abs(products.sum()) / products.size**0.5 < 4
    assert abs(np.diag(square).sum()) / 500**0.5 < 4


@every_share
def test_another_step_hides_others(share: float) -> None:
    module = new_masking(share)
    drawn = [module.draw_step_seed() for _ in range(3)]
    assert len({number.item() for number in drawn}) == 3
    first, second, third = (standard(block(module, number), share) for number in drawn)
    for one, other in ((first, second), (first, third), (second, third)):
        assert abs((one * other).sum()) / one.size**0.5 < 4


def test_both_branches_agree_and_places_do_not_matter() -> None:
    module = new_masking(0.4)
    drawn = module.draw_step_seed()
    whole = block(module, drawn)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(N_ROWS, (5000,), generator=generator)
    columns = torch.randint(N_COLUMNS, (5000,), generator=generator)
    # Entry by entry, in any order, as 32-bit positions, and as a block of some rows and columns.
    assert torch.equal(module.is_masked(rows, columns, drawn), whole[rows, columns])
    assert torch.equal(module.is_masked(rows.int(), columns.int(), drawn), whole[rows, columns])
    some_rows, some_columns = rows[:7], columns[:5]
    as_column_vectors = module.is_masked(some_rows, some_columns[:, None], drawn)
    assert torch.equal(as_column_vectors.T, whole[some_rows][:, some_columns])


@pytest.mark.parametrize("cold_row_rate", [0.0, 0.25])
def test_numbers_that_are_looked_up_mask_the_same(cold_row_rate: float) -> None:
    module = Masking(0.4, cold_row_rate=cold_row_rate, cold_column_rate=cold_row_rate)
    use_generator(module, torch.Generator().manual_seed(0))
    drawn, generator = module.draw_step_seed(), torch.Generator().manual_seed(3)
    rows = torch.randint(N_ROWS, (5000,), generator=generator)
    columns = torch.randint(N_COLUMNS, (5000,), generator=generator).int()
    numbers = module.hash_positions(torch.arange(N_ROWS), torch.arange(N_COLUMNS), drawn)
    assert {tensor.dtype for tensor in numbers if tensor is not None} == {torch.int32}
    assert torch.equal(numbers.is_masked(rows, columns), module.is_masked(rows, columns, drawn))


def test_positions_of_millions_are_hidden_like_others() -> None:
    module, share = new_masking(0.3), 0.3
    far = torch.arange(2**31 - 400, 2**31)
    numbers = standard(module.is_masked(far[:, None], far, module.draw_step_seed()), share)
    assert abs(numbers.sum()) / numbers.size**0.5 < 4


def test_draws_from_its_own_generator_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = new_masking(0.5, 7), new_masking(0.5, 7), new_masking(0.5, 8)
    drawn = [one.draw_step_seed().item() for _ in range(3)]
    assert [same.draw_step_seed().item() for _ in range(3)] == drawn
    assert [other.draw_step_seed().item() for _ in range(3)] != drawn
    assert one.draw_step_seed().dtype == torch.int32
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "n_views, share, n_seen",
    [(32, 0.6, 13), (8, 0.3, 6), (8, 0.95, 1), (10, 1e-3, 10), (1, 0.6, 1), (2, 0.9, 1)],
)
def test_every_input_is_seen_by_as_many_views(n_views: int, share: float, n_seen: int) -> None:
    seen = draw_views(n_views, 700, mask_rate=share, generator=torch.Generator().manual_seed(0))
    assert seen.shape == (n_views, 700) and seen.dtype == torch.bool
    assert set(seen.sum(0).tolist()) == {n_seen}
    # No view is favoured: each sees its part of all inputs.
    part = n_seen / n_views
    assert bool(
        ((seen.double().mean(1) - part).abs() <= 5 * (part * (1 - part) / 700) ** 0.5).all()
    )


def test_one_view_sees_everything() -> None:
    for share in (0.1, 0.6, 0.95):
        assert bool(draw_views(1, 50, mask_rate=share, generator=torch.Generator()).all())


def test_inputs_are_seen_together_by_chance_only() -> None:
    seen = (
        draw_views(16, 400, mask_rate=0.5, generator=torch.Generator().manual_seed(1))
        .double()
        .numpy()
    )
    # Of two inputs that 8 of 16 views see each, 4 see both on average: hypergeometric.
    together = (seen.T @ seen)[np.triu_indices(400, 1)]
    assert together.mean() == pytest.approx(4, abs=0.02)
    assert together.var() == pytest.approx(8 * 8 * 8 * 8 / (16**2 * 15), rel=0.05)


def test_the_generator_alone_decides_the_views() -> None:
    before = torch.get_rng_state()
    one, same, other = (
        draw_views(8, 30, mask_rate=0.4, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)
