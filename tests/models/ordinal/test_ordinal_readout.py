"""The readout of OrdinalDMF: expected values and distributions by a row's own cutpoints and slope."""

import numpy as np
import pytest
import torch

from deepmf.errors import BadModelFile
from deepmf.matrix.scale import Scale
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.ordinal_head import OrdinalHead
from deepmf.models.ordinal.ordinal_readout import OrdinalReadout, check_support

LAYOUT = LatentLayout(n_direction=4, n_landmarks=2, n_linear=0, n_response=3)
LEVELS = [1.0, 2.0, 5.0]
SCALE = Scale(LEVELS)


def new_head() -> OrdinalHead:
    return OrdinalHead(LEVELS, [-0.75, 0.25], [0.7, 0.2])


def readout() -> OrdinalReadout:
    return OrdinalReadout(SCALE, new_head(), LAYOUT)


def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Products, and the cutpoints and log slopes of rows."""
    dice = np.random.default_rng(0)
    fields = np.column_stack([np.sort(dice.normal(size=(n, 2)), axis=1), dice.normal(size=n) / 2])
    return dice.normal(size=n).astype(np.float32), fields.astype(np.float32)


def restated(products: np.ndarray, fields: np.ndarray) -> np.ndarray:
    """The probability of more than each level but the last."""
    slopes = np.exp(fields[:, -1].astype(float))
    logits = (slopes * products.astype(float))[:, None] - fields[:, :-1].astype(float)
    exceedance: np.ndarray = 1 / (1 + np.exp(-logits))
    return exceedance


def test_scores_are_expected_values() -> None:
    products, fields = drawn(50)
    exceedance = restated(products, fields)
    expected = 1 + exceedance @ [1.0, 3.0]  # the steps from level to level
    found = readout().scores(products, fields)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(readout().distribution(products, fields).probabilities @ LEVELS, expected, rtol=1e-5)


def test_a_share_of_the_logits_is_the_linear_parts() -> None:
    products, fields = drawn(50)
    head, share = new_head(), 0.3
    # What the linear part adds to products is weighted so that the slope, and the share of the network, cancel out.
    slopes = np.exp(fields[:, -1].astype(float))
    linear, slope = np.random.default_rng(1).normal(size=50), 2.0
    added = share * slope / (1 - share) * linear / slopes
    logits = (1 - share) * ((slopes * products)[:, None] - fields[:, :-1])
    logits += share * (slope * linear[:, None] - head.cutpoints.detach().double().numpy())
    exceedance = 1 / (1 + np.exp(-logits))
    shared = OrdinalReadout(SCALE, head, LAYOUT, share)
    found = shared.scores((products + added).astype(np.float32), fields)
    np.testing.assert_allclose(found, 1 + exceedance @ [1.0, 3.0], rtol=1e-5)
    table = shared.distribution((products + added).astype(np.float32), fields)
    np.testing.assert_allclose(table.exceedance, exceedance, rtol=1e-4)


def test_a_block_is_read_as_its_pairs() -> None:
    products, fields = drawn(12)
    table = np.stack([products, products[::-1], 3 * products], axis=1)  # (rows, columns)
    block = readout().scores(table, fields[:, None])
    for column in range(3):
        np.testing.assert_allclose(block[:, column], readout().scores(table[:, column].copy(), fields), rtol=1e-6)


def test_distributions_are_the_formula() -> None:
    products, fields = drawn(50)
    found = readout().distribution(products, fields)
    assert found.exceedance.dtype == np.float64
    np.testing.assert_allclose(found.exceedance, restated(products, fields), rtol=1e-5)
    assert found.support.tolist() == LEVELS
    np.testing.assert_allclose(found.boundaries, [1.5, 3.5])  # in the scale's units


def test_what_it_reads_of_rows_and_what_it_answers() -> None:
    one = readout()
    assert one.gives_distribution and not one.predicts_levels and one.row_fields == LAYOUT.response
    assert one.support.tolist() == LEVELS and one.unit_boundaries.tolist() == [-0.75, 0.25]
    assert one.values(np.array([0.5, 2.2, 9.0])).tolist() == [1, 2.2, 5]
    assert one.levels(np.array([1.4, 4.0])).tolist() == [1, 5]
    assert one.pack() == {}  # the support is the head's, and stored with it


def stored(support: list[float], boundaries: list[float]) -> OrdinalHead:
    head = new_head()
    head.support, head.boundaries = torch.tensor(support).double(), torch.tensor(boundaries)
    return head


@pytest.mark.parametrize(
    "scale, support, boundaries, message",
    [
        (SCALE, [1.0, 2.0, 4.0], [-0.75, 0.25], "the stored support is not the levels of one of 1, 2, 5"),
        (SCALE, [1.0, 2.0], [-0.75, 0.25], "the stored support is not the levels"),
        (SCALE, LEVELS, [0.25, -0.75], "does not rise from one end of one of 1, 2, 5 to the other"),
        (SCALE, LEVELS, [-0.75, 1.5], "does not rise"),
        (Scale(low=0, high=4), LEVELS, [-0.75, 0.25], "does not rise from one end of 0 to 4"),
        (Scale(low=1, high=5), [2.0, 1.0, 5.0], [-0.75, 0.25], "does not rise"),
    ],
)
def test_a_stored_support_that_is_not_of_the_scale(
    scale: Scale, support: list[float], boundaries: list[float], message: str
) -> None:
    with pytest.raises(BadModelFile, match=message):
        check_support(stored(support, boundaries), scale)


def test_a_stored_support_of_the_scale() -> None:
    check_support(new_head(), SCALE)
    check_support(stored([0.5, 0.5, 4.0], [-1.0, 1.0]), Scale(low=0, high=4))  # bins may have one mean
