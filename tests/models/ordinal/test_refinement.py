"""Refinement: one vector restated by hand, views, landmarks, penalties."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from deepmf.data import split_areas, split_entries
from deepmf.datasets import generate
from deepmf.errors import TrainingDiverged
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.network_model import make_sparse_vectors
from deepmf.models.ordinal.encoder import OrdinalEncoder
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.ordinal.network import OrdinalHead
from deepmf.models.ordinal.refinement import (
    CONSTANT_SIZE,
    LANDMARK_STEP_SIZE,
    PENALTY_CANDIDATES,
    Landmarks,
    NewtonStep,
    PaddedEntries,
    ReadVectors,
    Refinement,
    choose_landmarks,
    choose_penalty,
    compute_penalty_errors,
    encode_views,
    solve_refinement,
    split_by_length,
)
from deepmf.models.trained_network import TrainedBranch, read_weights
from deepmf.nn.branch import Branch
from deepmf.nn.inputs import SparseVectors, apply_mask, make_channels
from deepmf.nn.masking import draw_views
from deepmf.nn.summaries import N_SUMMARY_FEATURES
from deepmf.training.holdout import HeldOut

SMALL: dict[str, Any] = {
    "hidden_sizes": (16,),
    "latent_size": 6,
    "dropout": 0.1,
    "epochs": 30,
    "learning_rate": 1e-2,
    "views": 5,
    "landmarks": 64,
    "row_penalty": 3.0,
    "column_penalty": 20.0,
    "linear_size": 0,
    "device": "cpu",
    "presence": None,
}


@pytest.fixture(scope="module")
def model() -> OrdinalDMF:
    split = split_entries(
        generate(40, 30, density=0.4, seed=0).matrix, train=0.95, validation=0.05, test=0, seed=0
    )
    return OrdinalDMF(**SMALL).fit(split.train, split.validation)


class Side(NamedTuple):
    """The refinement of rows, or of columns, in a model, and their vectors."""

    refinement: Refinement
    vectors: AxisEntries

    @property
    def as_tensors(self) -> SparseVectors:
        """The vectors as the torch module reads them."""
        return make_sparse_vectors(self.vectors, self.refinement.scale.to_unit(self.vectors.values))


def encoder_of(model: OrdinalDMF) -> OrdinalEncoder:
    encoder = model.predictor_.encoder
    assert isinstance(encoder, OrdinalEncoder)
    return encoder


def landmarks_of(model: OrdinalDMF) -> Landmarks:
    return Landmarks(model.predictor_.encoder.landmarks)


def sides(model: OrdinalDMF) -> dict[str, Side]:
    seen, encoder = model.entries_, encoder_of(model)
    n_rows, n_columns = seen.train.shape
    rows, columns = seen.row_entries(np.arange(n_rows)), seen.column_entries(np.arange(n_columns))
    return {
        "row": Side(encoder.make_row_refinement(), rows),
        "column": Side(encoder.make_column_refinement(model.predictor_.rows.base), columns),
    }


def by_hand(model: OrdinalDMF, axis: str, position: int, penalty: float) -> np.ndarray[Any, Any]:
    """Return the refined latent of one vector, restated plainly in double precision."""
    side = sides(model)[axis]
    batch, others = side.as_tensors.take(torch.tensor([position])), side.refinement.others
    views = side.refinement.views.astype(bool)
    indices, units = batch.indices.long().numpy(), batch.weights.double().numpy()
    n_response, n_landmarks, scale = (
        model.network_.head.n_response,
        len(model.predictor_.encoder.landmarks),
        model.network_.head.scale.item(),
    )
    n_directions, n_moves = model.settings.latent_size, model.settings.latent_size + n_landmarks
    with torch.no_grad():
        seen = [apply_mask(batch, torch.from_numpy(view[indices])) for view in views]
        by_view = np.stack([model.network_.encode(axis, one)[0].double().numpy() for one in seen])
    direction = by_view[:, :n_directions].mean(0)[None].astype(np.float32)
    trust = 0.0 if axis == "row" else indices.size / (indices.size + 5)
    between = trust * landmarks_of(model).features(direction)[0]
    by_view = np.insert(
        by_view, [n_directions], np.broadcast_to(between, (len(views), n_landmarks)), axis=1
    )
    latent, met = by_view.mean(0), others.astype(np.float64)[indices]
    lines, wanted = [], []
    for place, index in enumerate(indices):
        blind = [view for view in range(len(views)) if not views[view, index]] or list(
            range(len(views))
        )
        score = np.mean([by_view[view] @ met[place] for view in blind])
        response = latent[-n_response:] if axis == "row" else met[place][-n_response:]
        slope = np.exp(response[-1])
        chances = 1 / (1 + np.exp(-(slope * score - response[:-1])))
        exceeded = units[place] > model.network_.head.boundaries.numpy()
        gradient, curvature = (
            (slope * (exceeded - chances)).sum(),
            (slope**2 * chances * (1 - chances)).sum(),
        )
        feature = met[place][n_directions:n_moves]
        if axis == "column":
            feature = np.append(met[place][:n_directions] / scale, LANDMARK_STEP_SIZE * feature)
        lines.append(np.sqrt(curvature) * np.append(feature, CONSTANT_SIZE))
        wanted.append(gradient / np.sqrt(curvature))
    design = np.array(lines)
    *move, offset = np.linalg.solve(
        design.T @ design + penalty * np.eye(design.shape[1]), design.T @ np.array(wanted)
    )
    if axis == "row":
        latent[n_directions:n_moves] = move
    else:
        latent[:n_directions] += np.array(move[:n_directions]) / scale
        latent[n_directions:n_moves] += LANDMARK_STEP_SIZE * np.array(move[n_directions:])
    latent[n_moves + (axis == "column")] += CONSTANT_SIZE * offset
    return latent


@pytest.mark.parametrize(("axis", "penalty"), [("row", 3.0), ("column", 20.0)])
@pytest.mark.parametrize("position", [0, 7])
def test_one_vector_by_hand(model: OrdinalDMF, axis: str, penalty: float, position: int) -> None:
    found = (model.predictor_.rows if axis == "row" else model.predictor_.columns).base[position]
    np.testing.assert_allclose(found, by_hand(model, axis, position, penalty), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("axis, penalty", [("row", 3.0), ("column", 20.0)])
def test_an_entry_that_every_view_sees_is_predicted_by_all(axis: str, penalty: float) -> None:
    model = OrdinalDMF(**SMALL | {"views": 1}).fit(generate(40, 30, density=0.4, seed=0).matrix)
    assert np.all(sides(model)[axis].refinement.views == 1)
    found = (model.predictor_.rows if axis == "row" else model.predictor_.columns).base[3]
    np.testing.assert_allclose(found, by_hand(model, axis, 3, penalty), atol=2e-4)


def test_an_entry_predicted_with_certainty_gives_a_finite_step() -> None:
    head = OrdinalHead([1.0, 2.0, 3.0], [-0.5, 0.5], [0.6, 0.3])
    response = torch.tensor([-1.0, 1.0, 0.0])
    features = torch.tensor([[[0.7, 0.3]]])
    for n_copies in (1, 5):  # fewer entries than features, and more: solved either way
        # so sure of the lowest answer that all chances are 0 in float32
        scores = torch.full((1, n_copies), -400.0)
        units, real = torch.ones(1, n_copies), torch.ones(1, n_copies, dtype=torch.bool)
        responses, many = response.expand(1, n_copies, 3), features.expand(1, n_copies, 2)
        step = NewtonStep.from_scores(
            head, scores, responses, PaddedEntries(units.long(), units, real), many
        )
        found = step.take(3.0).numpy()[0]
        # Two boundaries are exceeded against all expectation: a slope of 2, and the least curvature
        # there is.
        line = features[0, 0].double().numpy()
        gram = n_copies * 1e-6 * np.outer(line, line) + 3.0 * np.eye(2)
        np.testing.assert_allclose(found, np.linalg.solve(gram, n_copies * 2.0 * line), rtol=1e-4)


def test_latents_beyond_all_measure_are_refused() -> None:
    with pytest.raises(TrainingDiverged, match="large"):
        solve_refinement(-np.eye(2, dtype=np.float32)[None], np.ones((1, 2), dtype=np.float32))


@torch.no_grad()
def encode_by_torch(model: OrdinalDMF, axis: Axis) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the mean latents over views that the torch module makes, and the numbers of entries."""
    vectors = sides(model)[axis].as_tensors
    return model.network_.encode_views(axis, vectors).numpy(), vectors.counts.numpy()


def test_both_sides_are_refined_twice(model: OrdinalDMF) -> None:
    (row, rows), (column, columns) = sides(model).values()
    latents = column.add_landmarks(*encode_by_torch(model, "column"))
    for _ in range(2):
        met = latents
        of_rows = replace(row, others=met).refine(rows)
        latents = replace(column, others=of_rows).refine(columns)
    np.testing.assert_allclose(encoder_of(model).refinement_columns, met, atol=1e-4)
    np.testing.assert_allclose(model.predictor_.rows.base, of_rows, atol=1e-4)
    np.testing.assert_allclose(model.predictor_.columns.base, latents, atol=1e-4)


@pytest.mark.slow
def test_fewer_entries_than_features_are_solved_the_other_way() -> None:
    few = OrdinalDMF(**SMALL | {"landmarks": 5}).fit(generate(40, 30, density=0.4, seed=0).matrix)
    many = OrdinalDMF(**SMALL | {"landmarks": 30}).fit(few.entries_.train)
    counts = np.diff(few.entries_.train.by_row.starts)
    assert (
        len(few.predictor_.encoder.landmarks) < counts[3] < len(many.predictor_.encoder.landmarks)
    )
    for model in (few, many):
        np.testing.assert_allclose(
            model.predictor_.rows.base[3], by_hand(model, "row", 3, 3.0), atol=2e-4
        )


def test_an_infinite_penalty_is_no_step_and_a_heavy_one_almost_none(model: OrdinalDMF) -> None:
    for refinement, vectors in sides(model).values():
        alone = refinement.add_landmarks(*encode_by_torch(model, refinement.axis))
        light, heavy, none = refinement.refine_by_penalty(vectors, [3.0, 1e9, math.inf])
        np.testing.assert_allclose(none, alone, atol=1e-5)
        np.testing.assert_allclose(heavy, none, atol=1e-5)
        assert not np.allclose(light, none, atol=1e-2)
        only = replace(refinement, penalty=math.inf).refine(vectors)
        np.testing.assert_array_equal(only, none)


def test_penalties_together_are_each_alone(model: OrdinalDMF) -> None:
    refinement, vectors = encoder_of(model).make_row_refinement(), sides(model)["row"].vectors
    together = refinement.refine_by_penalty(vectors, [1.0, math.inf, 30.0])
    for penalty, found in zip((1.0, math.inf, 30.0), together, strict=True):
        np.testing.assert_array_equal(found, replace(refinement, penalty=penalty).refine(vectors))


@pytest.mark.slow
def test_new_rows_are_predicted_better() -> None:
    split = split_areas(generate(300, 150, density=0.2, noise=0.8, seed=0).matrix, seed=0)
    errors = {}
    for penalty in (1e9, 3.0):
        sizes: dict[str, Any] = {"hidden_sizes": (64,), "latent_size": 16, "epochs": 40}
        settings = SMALL | sizes | {"row_penalty": penalty, "column_penalty": 1e9}
        more = OrdinalDMF(**settings).fit(split.train, split.validation).extend(split.extension)
        rows, columns, values = split.test["II"].entries()
        errors[penalty] = rmse_error(more.predict(rows, columns), values)
    assert errors[3.0] < 0.98 * errors[1e9]


def test_parts_hold_every_vector_once_and_fit() -> None:
    counts = np.random.default_rng(0).integers(0, 3000, 500)
    order = np.argsort(counts, kind="stable")
    parts = split_by_length(order, counts, most_vectors=32, most_entries=8192)
    np.testing.assert_array_equal(np.concatenate(parts), order)
    assert all(
        part.size <= 32 and (part.size == 1 or part.size * counts[part].max() <= 8192)
        for part in parts
    )


def directions(n: int, n_numbers: int, *, seed: int = 0) -> npt.NDArray[Any]:
    drawn = np.random.default_rng(seed).standard_normal((n, n_numbers)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def similarity(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A broad part and a sharp one."""
    less = one @ other.T - 1.0
    return 0.6 * np.exp(less) + 0.4 * np.exp(10.0 * less)


def test_with_a_landmark_for_each_the_similarity_is_exact() -> None:
    known, new = directions(40, 8), directions(10, 8, seed=1)
    landmarks = Landmarks(known[choose_landmarks(known, 40)])
    assert len(landmarks) == 40
    features = landmarks.features(known)
    np.testing.assert_allclose(features @ features.T, similarity(known, known), atol=1e-4)
    np.testing.assert_allclose(
        landmarks.features(new) @ features.T, similarity(new, known), atol=1e-4
    )


def test_few_landmarks_explain_most() -> None:
    known = directions(500, 3)
    landmarks = Landmarks(known[choose_landmarks(known, 40)])
    features = landmarks.features(known)
    missed = similarity(known, known) - features @ features.T
    assert features.shape == (500, 40) and np.abs(missed).max() < 0.3
    at_random = Landmarks(known[:40]).features(known)
    assert missed.diagonal().mean() < 0.7 * (1.0 - np.square(at_random).sum(1)).mean()


def test_of_very_many_some_are_candidates() -> None:
    chosen = choose_landmarks(directions(105, 8), 50, most_candidates=10)
    assert 5 < len(chosen) <= 10 and all(int(position) % 11 == 0 for position in chosen)


N_COLUMNS, N_ROWS = 60, 200

UNTRAINED: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 6,
    "epochs": 2,
    "views": 4,
    "landmarks": 12,
    "linear_size": 0,
    "device": "cpu",
    "presence": None,
}


def fit_encoder(matrix: ObservedMatrix, **settings: Any) -> OrdinalEncoder:
    encoder = OrdinalDMF(**UNTRAINED | settings).fit(matrix).predictor_.encoder
    assert isinstance(encoder, OrdinalEncoder)
    return encoder


@pytest.fixture(scope="module")
def encoder() -> OrdinalEncoder:
    """One whose branches have learned almost nothing."""
    return fit_encoder(generate(80, N_COLUMNS, density=0.4, seed=0).matrix)


def hold_out(levels: npt.NDArray[Any]) -> tuple[ReadVectors, HeldOut]:
    """Of the levels of some rows on all columns, a part as the entries of the rows, another held
    out."""
    lot = np.random.default_rng(1).random(levels.shape)
    rows, columns = np.nonzero(lot < 0.5)
    starts = np.concatenate([[0], np.cumsum((lot < 0.5).sum(1))])
    vectors = AxisEntries(starts, columns, levels[rows, columns].astype(np.float64))
    own, others = np.nonzero(lot > 0.8)
    return vectors.take, HeldOut(own, others, levels[own, others].astype(float))


def noise(seed: int) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).choice([1.0, 2.0, 3.0, 4.0, 5.0], size=(N_ROWS, N_COLUMNS))


def structure(encoder: OrdinalEncoder) -> npt.NDArray[Any]:
    """Rows that like the columns around directions of their own, and no others."""
    columns = encoder.refinement_columns[:, encoder.layout.direction]
    liked = (
        np.random.default_rng(0).standard_normal((N_ROWS, columns.shape[1]))
        @ (columns - columns.mean(0)).T
    )
    return np.where(liked > 0, 5.0, 1.0)


@pytest.mark.slow
def test_noise_is_no_reason_for_a_step() -> None:
    encoder = fit_encoder(ObservedMatrix.from_array(noise(1)[:80]), epochs=30, dropout=0.5)
    found = choose_penalty(encoder.make_row_refinement(), *hold_out(noise(2)), seed=0)
    assert found >= 25.0  # which leaves hardly anything of a step


@torch.no_grad()
def test_strong_structure_is_worth_a_large_step(encoder: OrdinalEncoder) -> None:
    held_out = hold_out(structure(encoder))
    errors = compute_penalty_errors(encoder.make_row_refinement(), *held_out, seed=0)
    assert choose_penalty(encoder.make_row_refinement(), *held_out, seed=0) <= 6.0
    assert errors.min() < 0.8 * errors[-1]  # the last is without a step


@torch.no_grad()
@pytest.mark.parametrize("place", [0, 4, -1])
def test_errors_are_those_of_the_refined_latents(encoder: OrdinalEncoder, place: int) -> None:
    read_vectors, held_out = hold_out(structure(encoder))
    refinement, head = encoder.make_row_refinement(), encoder.network.head
    penalty = PENALTY_CANDIDATES[place]
    alone = replace(refinement, penalty=penalty)
    rows = alone.refine(read_vectors(np.arange(N_ROWS)))[held_out.rows].astype(np.float64)
    columns = refinement.others[held_out.columns].astype(np.float64)
    expected = head.expectation(
        head.logits((rows * columns).sum(1), rows[:, encoder.layout.response])
    )
    errors = compute_penalty_errors(refinement, read_vectors, held_out, seed=0)
    assert errors[place] == pytest.approx(
        np.sqrt(np.mean((expected - held_out.values) ** 2)), rel=1e-4
    )


@torch.no_grad()
def test_some_vectors_are_enough_and_always_the_same(encoder: OrdinalEncoder) -> None:
    read_vectors, held_out = hold_out(structure(encoder))

    def compute_errors(held_out: HeldOut, **options: int) -> npt.NDArray[Any]:
        return compute_penalty_errors(
            encoder.make_row_refinement(), read_vectors, held_out, **options
        )

    first, again, other = (
        compute_errors(held_out, seed=seed, most_vectors=20) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    few = held_out.rows < 20
    of_few = HeldOut(*(each[few] for each in held_out))
    np.testing.assert_array_equal(
        compute_errors(of_few, seed=9, most_vectors=20), compute_errors(of_few, seed=0)
    )


N_INPUTS = 9

VIEWS = draw_views(5, N_INPUTS, mask_rate=0.6, generator=torch.Generator().manual_seed(1))

VECTORS = AxisEntries(
    np.array([0, 4, 4, 5, 11]), np.array([0, 3, 5, 8, 2, 0, 1, 3, 4, 6, 7]), np.linspace(-1, 1, 11)
)


@pytest.fixture(scope="module")
def branch() -> Branch:
    generator = torch.Generator().manual_seed(0)
    branch = Branch(
        2 * N_INPUTS,
        (7, 4),
        dropout=0.5,
        generator=generator,
        n_summary_features=N_SUMMARY_FEATURES,
    )
    with torch.no_grad():
        for norm in branch.norms:
            norm.running_mean.normal_(generator=generator)  # type: ignore[operator, union-attr]
    return branch.eval().requires_grad_(False)


def one_by_one(branch: Branch, vectors: AxisEntries, position: int) -> Tensor:
    """What the branch gives for each view of a vector, (views, outputs)."""
    batch = make_sparse_vectors(vectors, vectors.values).take(torch.tensor([position]))
    seen = [apply_mask(batch, view[batch.indices]) for view in VIEWS]
    return torch.cat([branch(make_channels(each, N_INPUTS)) for each in seen])


@pytest.mark.parametrize("at_a_time", [1, 5, 8192])
def test_every_view_is_what_the_branch_makes_of_what_it_sees(
    branch: Branch, at_a_time: int
) -> None:
    weights = {f"rows.{name}": weight for name, weight in read_weights(branch).items()}
    trained, views = TrainedBranch.of(weights, "rows"), VIEWS.numpy().astype(np.float32)
    units = VECTORS.values.astype(np.float32)
    for ids in ([0, 1, 2, 3], [3], [1], [2, 0]):
        entries = PaddedEntries.of(VECTORS, units, np.array(ids))
        found = encode_views(trained, views, entries, at_a_time=at_a_time)
        assert found.shape == (len(ids), 5, 4)
        for outputs, position in zip(found, ids, strict=True):
            expected = one_by_one(branch, VECTORS, position).numpy()
            np.testing.assert_allclose(outputs, expected, atol=1e-5, rtol=1e-5)
