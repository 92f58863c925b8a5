"""The fields of OrdinalDMF's latents: one after another, without gaps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.matrix.scale import Scale
from deepmf.models.ordinal.head import LatentLayout, OrdinalReadout, check_support
from deepmf.models.ordinal.network import OrdinalHead


def test_the_fields_of_a_small_latent() -> None:
    layout = LatentLayout(n_direction=3, n_landmarks=2, n_response=4)
    latent = np.array(["d", "d", "d", "l", "l", "row", "column", "cut", "cut", "cut", "slope"])
    assert layout.width == latent.size == 11
    assert latent[layout.direction].tolist() == ["d"] * 3
    assert latent[layout.landmarks].tolist() == ["l"] * 2
    assert latent[layout.factors].tolist() == ["d"] * 3 + ["l"] * 2
    assert (latent[layout.row_effect], latent[layout.column_effect]) == ("row", "column")
    assert latent[layout.response].tolist() == ["cut"] * 3 + ["slope"]
    assert latent[-layout.n_beside :].tolist() == latent[3:].tolist()


@pytest.mark.parametrize("n_direction", [1, 16])
@pytest.mark.parametrize("n_landmarks", [0, 1, 7])
@pytest.mark.parametrize("n_response", [1, 5])
def test_every_number_is_in_one_field(n_direction: int, n_landmarks: int, n_response: int) -> None:
    layout = LatentLayout(n_direction, n_landmarks, n_response)
    taken = np.zeros(layout.width, dtype=int)
    fields = (
        layout.direction,
        layout.landmarks,
        layout.row_effect,
        layout.column_effect,
        layout.response,
    )
    for field in fields:
        taken[field] += 1
    assert taken.tolist() == [1] * layout.width
    assert taken[layout.factors].size == n_direction + n_landmarks
    assert taken[layout.response].size == n_response


Array = npt.NDArray[np.float64]


# What a branch's outputs for effects and cutpoints are multiplied by.
EFFECT = 0.3


HEADS: dict[str, tuple[list[float], list[float], list[float]]] = {
    "five stars": ([1, 2, 3, 4, 5], [-0.75, -0.25, 0.25, 0.75], [0.95, 0.8, 0.5, 0.2]),
    "half stars, uneven": ([0.5, 1, 3.5], [-0.7, 0.3], [0.9, 0.15]),
    "two levels": ([0, 1], [0.0], [0.3]),
    "a level nobody used": ([1, 2, 3, 4], [-0.5, 0.0, 0.5], [0.8, 0.4, 0.3999]),
    "one level": ([3], [], []),
}

every_head = pytest.mark.parametrize("name", HEADS)


def new_head(name: str = "five stars") -> OrdinalHead:
    return OrdinalHead(*HEADS[name])


def moved(head: OrdinalHead) -> OrdinalHead:
    """A head whose parameters are as if learned."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += torch.randn(parameter.shape, generator=generator)
    return head


def outputs(n: int, size: int, *, seed: int = 0) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def sigmoid(numbers: Array) -> Array:
    return 1 / (1 + np.exp(-numbers))


def restated_response(head: OrdinalHead, beside: Array) -> tuple[Array, Array]:
    """Cutpoints (rows, answers - 1) and slopes (rows,), from a row's outputs for them."""
    first, gaps = head.first_cutpoint.detach().double().numpy(), head.gaps.detach().double().numpy()
    offsets = EFFECT * beside[:, :-1]
    steps = np.log1p(np.exp(gaps + offsets[:, 1:]))
    start = first + offsets[:, :1]
    return np.concatenate([start, start + np.cumsum(steps, axis=1)], axis=1), np.exp(
        EFFECT * beside[:, -1]
    )


def row_latents(head: OrdinalHead, outputs: Tensor) -> Tensor:
    return head.join_groups(head.make_row_latents(outputs))


def column_latents(head: OrdinalHead, outputs: Tensor) -> Tensor:
    return head.join_groups(head.make_column_latents(outputs))


@every_head
def test_latents_are_scaled_cosines_effects_and_offset(name: str) -> None:
    head = moved(new_head(name))
    row_outputs, column_outputs = (
        outputs(6, 5 + head.n_row_outputs),
        outputs(4, 5 + head.n_column_outputs, seed=1),
    )
    rows, columns = row_latents(head, row_outputs), column_latents(head, column_outputs)
    assert rows.shape == (6, 5 + 2 + head.n_response) and columns.shape == (
        4,
        5 + 2 + head.n_response,
    )
    of_rows, of_columns = row_outputs.double().numpy(), column_outputs.double().numpy()
    scores = (rows @ columns.T).detach()
    scale, offset = head.scale.item(), head.offset.item()
    for i, row in enumerate(of_rows):
        for j, column in enumerate(of_columns):
            cosine = row[:5] @ column[:5] / np.linalg.norm(row[:5]) / np.linalg.norm(column[:5])
            expected = scale * cosine + EFFECT * row[5] + EFFECT * column[5] + offset
            assert scores[i, j].item() == pytest.approx(expected, abs=1e-5)


@every_head
def test_response_parameters_are_cutpoints_and_the_logarithm_of_a_slope(name: str) -> None:
    head = moved(new_head(name))
    row_outputs = outputs(6, 5 + head.n_row_outputs)
    response = row_latents(head, row_outputs)[:, -head.n_response :].detach().double().numpy()
    cutpoints, slopes = restated_response(head, row_outputs[:, 6:].double().numpy())
    assert cutpoints.shape == (6, len(HEADS[name][1]))
    np.testing.assert_allclose(response[:, :-1], cutpoints, atol=1e-5)
    np.testing.assert_allclose(np.exp(response[:, -1]), slopes, rtol=1e-5)


@every_head
def test_scores_and_responses_of_several_networks_are_means(name: str) -> None:
    n_groups, n_direction = 3, 5
    head = moved(OrdinalHead(*HEADS[name], groups=n_groups))
    row_outputs = outputs(6, n_groups * (n_direction + head.n_row_outputs))
    column_outputs = outputs(4, n_groups * (n_direction + head.n_column_outputs), seed=1)
    rows, columns = row_latents(head, row_outputs), column_latents(head, column_outputs)
    assert rows.shape == (6, n_groups * n_direction + 2 + head.n_response)
    one = moved(new_head(name))
    each_row = [row_latents(one, part) for part in row_outputs.chunk(n_groups, dim=1)]
    each_column = [column_latents(one, part) for part in column_outputs.chunk(n_groups, dim=1)]
    beside = n_direction + 2
    scores = [
        row[:, :beside] @ column[:, :beside].T
        for row, column in zip(each_row, each_column, strict=True)
    ]
    joined = rows[:, : -head.n_response] @ columns[:, : -head.n_response].T
    torch.testing.assert_close(joined, torch.stack(scores).mean(0))
    responses = torch.stack([row[:, beside:] for row in each_row])
    torch.testing.assert_close(rows[:, -head.n_response :], responses.mean(0))
    torch.testing.assert_close(columns[:, : n_groups * n_direction].norm(dim=1), torch.ones(4))
    torch.testing.assert_close(head.make_row_latents(row_outputs), torch.stack(each_row, dim=1))


@every_head
def test_logits_loss_and_expectation(name: str) -> None:
    head = moved(new_head(name))
    answers = np.array(HEADS[name][0], dtype=float)
    n_boundaries = answers.size - 1
    scores, response = outputs(3, 4, seed=2) * 2, outputs(3, head.n_response, seed=3)
    response[:, :-1] = response[:, :-1].sort(1).values
    logits = head.logits(scores, response[:, None])
    assert logits.shape == (3, 4, n_boundaries)
    slopes, cutpoints = np.exp(response[:, -1].double().numpy()), response[:, :-1].double().numpy()
    expected = slopes[:, None, None] * scores.double().numpy()[..., None] - cutpoints[:, None]
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    exceeded = sigmoid(expected)
    at_least = np.concatenate([np.ones((3, 4, 1)), exceeded, np.zeros((3, 4, 1))], axis=-1)
    probabilities = at_least[..., :-1] - at_least[..., 1:]
    assert probabilities.min() >= 0
    np.testing.assert_allclose(
        head.expectation(logits), (probabilities * answers).sum(-1), atol=1e-5
    )
    for level in range(answers.size):  # the loss of each answer, as of yes or no at every boundary
        above = np.arange(n_boundaries) < level
        losses = -np.log(np.where(above, exceeded, 1 - exceeded)).sum(-1)
        given = torch.from_numpy(above).float().expand(3, 4, -1)
        np.testing.assert_allclose(head.loss(logits, given), losses, atol=1e-5)


@every_head
def test_targets_exceed_the_boundaries_below_them(name: str) -> None:
    head = new_head(name)
    levels, boundaries, _ = HEADS[name]
    low, high = levels[0], levels[-1]
    units = [0.0 if high == low else (2 * level - low - high) / (high - low) for level in levels]
    assert torch.equal(
        head.mark_exceeded(torch.tensor(units)), torch.ones(len(levels), len(boundaries)).tril(-1)
    )
    # on a boundary is not above it
    assert not head.mark_exceeded(torch.tensor(boundaries)).diagonal().any()
    assert not head.mark_exceeded(torch.tensor([float("nan")])).any()
    assert head.mark_exceeded(torch.zeros(2, 3)).shape == (2, 3, len(boundaries))


@every_head
def test_before_training_the_answer_is_the_marginal_distribution(name: str) -> None:
    head = new_head(name)
    rows, columns = (
        torch.zeros(1, 5 + head.n_row_outputs),
        torch.zeros(1, 5 + head.n_column_outputs),
    )
    latents = row_latents(head, rows)
    score = (latents @ column_latents(head, columns).T)[0]
    exceeded = (
        head.logits(score, latents[:, -head.n_response :])[0].sigmoid().detach().double().numpy()
    )
    expected = np.array(HEADS[name][2])
    if name != "a level nobody used":
        np.testing.assert_allclose(exceeded, expected, atol=1e-6)
        return
    # A gap of nothing could not be learned from: there is a little room for it.
    np.testing.assert_allclose(exceeded[:2], expected[:2], atol=1e-6)
    assert 0.001 < exceeded[1] - exceeded[2] < 0.02


@given(
    st.sampled_from(["five stars", "two levels", "a level nobody used"]),
    st.floats(0, 20),
    st.integers(0, 1000),
)
@settings(max_examples=40)
def test_cutpoints_increase_whatever_the_branch_says(name: str, size: float, seed: int) -> None:
    head = moved(new_head(name))
    row_outputs = outputs(8, 3 + head.n_row_outputs, seed=seed) * size
    cutpoints = row_latents(head, row_outputs)[:, -head.n_response : -1]
    assert bool((cutpoints.diff(dim=1) >= 0).all())
    if size <= 5:
        assert bool((cutpoints.diff(dim=1) > 0).all())


def test_every_parameter_learns() -> None:
    head = new_head()
    rows = row_latents(head, outputs(4, 5 + head.n_row_outputs))
    scores = rows @ column_latents(head, outputs(3, 5 + head.n_column_outputs, seed=1)).T
    logits = head.logits(scores, rows[:, None, -head.n_response :])
    head.loss(logits, head.mark_exceeded(torch.linspace(-1, 1, 12).reshape(4, 3))).mean().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None and bool((parameter.grad != 0).all()), name


def test_the_support_is_kept_to_the_last_digit() -> None:
    head = OrdinalHead([0.1, 1 / 3, 1e9 + 0.1], [0.0, 0.5], [0.5, 0.25])
    assert head.support.tolist() == [0.1, 1 / 3, 1e9 + 0.1]
    assert set(head.state_dict()) == {
        "support",
        "boundaries",
        "scale",
        "offset",
        "first_cutpoint",
        "gaps",
    }


def test_half_precision_outputs_make_single_precision_latents() -> None:
    head = new_head()
    latents = row_latents(head, outputs(4, 5 + head.n_row_outputs).bfloat16())
    assert latents.dtype == torch.float32
    assert column_latents(head, outputs(4, 6).bfloat16()).dtype == torch.float32


LEVELS = [1.0, 2.0, 5.0]

SCALE = Scale(LEVELS)


def readout() -> OrdinalReadout:
    return OrdinalReadout(SCALE, np.array(LEVELS), np.array([-0.75, 0.25], dtype=np.float32))


def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Locations, and the cutpoints of rows."""
    dice = np.random.default_rng(0)
    cutpoints = np.sort(dice.normal(size=(n, 2)), axis=1)
    return dice.normal(size=n).astype(np.float32), cutpoints.astype(np.float32)


def restated(locations: np.ndarray, cutpoints: np.ndarray) -> np.ndarray:
    """The probability of more than each level but the last."""
    logits = locations.astype(float)[:, None] - cutpoints.astype(float)
    exceedance: np.ndarray = 1 / (1 + np.exp(-logits))
    return exceedance


def test_scores_are_expected_values() -> None:
    products, fields = drawn(50)
    exceedance = restated(products, fields)
    expected = 1 + exceedance @ [1.0, 3.0]  # the steps from level to level
    found = readout().scores(products, fields)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(
        readout().distribution(products, fields).probabilities @ LEVELS, expected, rtol=1e-5
    )


def test_a_block_is_read_as_its_pairs() -> None:
    products, fields = drawn(12)
    table = np.stack([products, products[::-1], 3 * products], axis=1)  # (rows, columns)
    block = readout().scores(table, fields[:, None])
    for column in range(3):
        np.testing.assert_allclose(
            block[:, column], readout().scores(table[:, column].copy(), fields), rtol=1e-6
        )


def test_distributions_are_the_formula() -> None:
    products, fields = drawn(50)
    found = readout().distribution(products, fields)
    assert found.exceedance.dtype == np.float64
    np.testing.assert_allclose(found.exceedance, restated(products, fields), rtol=1e-5)
    assert found.support.tolist() == LEVELS
    np.testing.assert_allclose(found.boundaries, [1.5, 3.5])  # in the scale's units


def test_a_stored_support_of_the_scale() -> None:
    boundaries = np.array([-0.75, 0.25], dtype=np.float32)
    check_support(np.array(LEVELS), boundaries, SCALE)
    # bins may have one mean
    check_support(np.array([0.5, 0.5, 4.0]), boundaries, Scale(low=0, high=4))
    for support in ([1.0, 2.0, 4.0], [5.0, 2.0, 1.0]):
        with pytest.raises(BadModelFile, match="support"):
            check_support(np.array(support), boundaries, SCALE)
