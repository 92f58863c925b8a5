"""The rule by which candidates are compared on held-out entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepmf.training.holdout import choose, draw_some

NOISE = np.random.default_rng(0).standard_normal(400)


@pytest.mark.parametrize(
    "losses, options, chosen",
    [
        ([3.0, 1.0, 2.0], {}, 1),
        ([1.0, 1.0, 1.0], {"usual": 2}, 2),  # as good is not better
        ([2.0, 1.0, 1.0], {}, 1),  # the first of the best
        ([1.0, 0.999], {"at_least": 2e-3}, 0),
        ([1.0, 0.997], {"at_least": 2e-3}, 1),
        ([np.inf, 1.0], {}, 1),
        ([1.0, np.nan], {}, 0),
        ([NOISE, NOISE - 0.01], {"at_least": 2.0}, 1),  # every one falls: there is no doubt
        ([0 * NOISE, NOISE - NOISE.mean() - 1.9 * NOISE.std() / 20], {"at_least": 2.0}, 0),
        ([0 * NOISE, NOISE - NOISE.mean() - 2.1 * NOISE.std() / 20], {"at_least": 2.0}, 1),
    ],
)
def test_the_lowest_loss_is_chosen_if_it_is_lower_than_the_usual_by_enough(
    losses: list[Any], options: dict[str, Any], chosen: int
) -> None:
    found = choose(range(len(losses)), losses.__getitem__, **options)
    assert found.candidate == chosen and found.loss is losses[chosen]


def test_a_sample_has_its_places_in_order_and_its_seed() -> None:
    places = np.arange(100, 200)
    first, again, other = (draw_some(places, 20, seed=seed) for seed in (0, 0, 1))
    assert np.all(np.diff(first) > 0) and np.all(np.isin(first, places)) and first.size == 20
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert draw_some(places, 100, seed=0) is places
