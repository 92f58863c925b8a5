"""The network of OrdinalDMF: latents of visible entries, and their mean over views, restated vector
by vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from deepmf.data import split_entries
from deepmf.matrix.axis_entries import Axis
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.ordinal.network import (
    OrdinalHead,
    OrdinalNetwork,
    OrdinalObjective,
    split_by_entries,
)
from deepmf.nn.branch import Branch, use_generator
from deepmf.nn.inputs import DenseVectors, SparseVectors, Vectors, make_channels
from deepmf.nn.masking import Masking, draw_views
from deepmf.nn.summaries import N_SUMMARY_FEATURES
from deepmf.testing import additive
from deepmf.training import blocks as blocks_module
from deepmf.training.blocks import MatrixBlocks
from deepmf.training.holdout import HeldOut
from deepmf.training.trainer import Trainer

N_ROWS, N_COLUMNS, N_VIEWS = 8, 6, 4


def network(*, n_views: int = N_VIEWS) -> OrdinalNetwork:
    """A small network with running statistics as if learned."""
    generator = torch.Generator().manual_seed(0)
    head = OrdinalHead([1, 2, 3], [-0.5, 0.5], [0.7, 0.2])
    rows = Branch(
        2 * N_COLUMNS,
        (7, 4 + head.n_row_outputs),
        dropout=0.5,
        generator=generator,
        n_summary_features=N_SUMMARY_FEATURES,
    )
    columns = Branch(
        2 * N_ROWS,
        (5, 4 + head.n_column_outputs),
        dropout=0.5,
        generator=generator,
        n_summary_features=N_SUMMARY_FEATURES,
    )
    for norm in (*rows.norms, *columns.norms):
        assert isinstance(norm, nn.BatchNorm1d)
        for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            assert tensor is not None
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.25)
    seen = [
        draw_views(n_views, size, mask_rate=0.5, generator=generator)
        for size in (N_COLUMNS, N_ROWS)
    ]
    return OrdinalNetwork(
        rows, columns, head, Masking(0.5), row_views=seen[0], column_views=seen[1]
    ).eval()


def table() -> Tensor:
    """A matrix with NaN where nothing is observed; two equal rows, and one without entries."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randint(-1, 2, (N_ROWS, N_COLUMNS), generator=generator).float()
    values[torch.rand(N_ROWS, N_COLUMNS, generator=generator) < 0.5] = float("nan")
    values[5] = values[2]
    values[6] = float("nan")
    return values


def sparse(values: Tensor) -> SparseVectors:
    observed = ~values.isnan()
    at = observed.nonzero(as_tuple=True)
    return SparseVectors(
        torch.nn.functional.pad(observed.sum(1).cumsum(0), (1, 0)), at[1].int(), values[at]
    )


def viewed(
    two: OrdinalNetwork, axis: Axis, vectors: Vectors, *, n_views: int | None = None
) -> Tensor:
    return two.encode_views(axis, vectors, n_views=n_views).detach()


def restated(two: OrdinalNetwork, axis: Axis, values: Tensor, n_views: int) -> Tensor:
    """The mean over views of the latents of what each view sees, one vector and one view at a
    time."""
    means = []
    for vector in values:
        latents = []
        for view in two.get_views(axis)[:n_views]:
            visible = torch.where(view, vector, float("nan"))[None]
            latents.append(
                two.make_latents(
                    axis, two.get_branch(axis)(make_channels(visible, vector.numel()))
                )[0]
            )
        means.append(torch.stack(latents).double().mean(0))
    return torch.stack(means).detach()


AXES: dict[Axis, Tensor] = {"row": table(), "column": table().T.contiguous()}

every_axis = pytest.mark.parametrize("axis", AXES)


@every_axis
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n_views", [None, 1, 3])
def test_latents_are_means_over_views(axis: Axis, kind: str, n_views: int | None) -> None:
    two, values = network(), AXES[axis]
    vectors = DenseVectors(values) if kind == "dense" else sparse(values)
    found = viewed(two, axis, vectors, n_views=n_views)
    expected = restated(two, axis, values, n_views or N_VIEWS)
    assert found.shape == (len(values), 4 + 2 + two.head.n_response)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@every_axis
def test_vectors_in_parts_are_many_at_once(axis: Axis) -> None:
    two, vectors = network(), sparse(AXES[axis])
    many = torch.arange(3000) % len(vectors)  # three parts
    torch.testing.assert_close(
        two.encode_views(axis, vectors, many).detach(),
        viewed(two, axis, vectors)[many],
        rtol=0,
        atol=1e-6,
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_parts_hold_every_position_once_and_few_entries(dtype: type) -> None:
    counts = np.random.default_rng(0).integers(0, 30, 500).astype(dtype)
    counts[7] = 1000  # more than a part may hold
    parts = split_by_entries(counts, most_entries=100)
    assert np.array_equal(np.concatenate(parts), np.arange(500))
    sums = np.array([counts[part].sum() for part in parts])
    assert sorted(sums)[-2] <= 100 + 30 and np.median(sums) > 50
    assert max(part.size for part in split_by_entries(counts, most_vectors=7)) == 7


@every_axis
def test_one_view_is_a_look_at_all_of_it(axis: Axis) -> None:
    two, values = network(n_views=1), AXES[axis]
    torch.testing.assert_close(
        viewed(two, axis, sparse(values)), two.encode(axis, values).detach(), rtol=0, atol=1e-6
    )


def test_a_vector_without_entries_has_the_latent_of_nothing() -> None:
    two, nothing = network(), torch.full((3, N_COLUMNS), float("nan"))
    expected = two.encode("row", nothing[:1]).detach()[0]
    for vectors in (DenseVectors(nothing), sparse(nothing)):
        latents = viewed(two, "row", vectors)
        assert bool(latents.isfinite().all())
        torch.testing.assert_close(latents, expected.expand(3, -1), rtol=0, atol=1e-6)


Array = npt.NDArray[np.float64]


SEED = 5

SIZES: dict[str, Any] = {
    "hidden_sizes": (6,),
    "latent_size": 4,
    "dropout": 0.0,
    "mask_rate": 0.4,
    "views": 6,
    "device": "cpu",
}

ROWS, COLUMNS = torch.tensor([4, 0, 7, 2, 11]), torch.tensor([3, 1, 9, 12])

BLOCK = np.ix_(ROWS.numpy(), COLUMNS.numpy())

BOUNDARIES = np.array([-0.75, -0.25, 0.25, 0.75])


either_kind = pytest.mark.parametrize("kind", ["dense", "sparse"], indirect=True)


@pytest.fixture
def matrix() -> ObservedMatrix:
    return additive()


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Lie on the side of the rule that makes tables dense, or on the other."""
    monkeypatch.setattr(
        blocks_module, "DENSE_SHARE_ON_CPU", {"dense": 0.0, "sparse": 2.0}[request.param]
    )
    kind: str = request.param
    return kind


def new_network(matrix: ObservedMatrix, **settings: Any) -> OrdinalNetwork:
    """A fresh network for a matrix, always with the same dice."""
    network = OrdinalDMF(**SIZES | settings)._new_network(EntryStore.of(matrix))
    use_generator(network, torch.Generator().manual_seed(SEED))
    return network


class Step:
    """A fresh network, and its losses on the block of a matrix."""

    def __init__(self, matrix: ObservedMatrix, **settings: Any) -> None:
        self.network = new_network(matrix, **settings)
        self.objective = OrdinalObjective()
        self.source = source_of(matrix)

    def loss(self) -> Tensor:
        return self.objective.loss(self.network, self.source.block(ROWS, COLUMNS))


def source_of(matrix: ObservedMatrix) -> MatrixBlocks:
    """The blocks of a matrix, as the model would have them; with validation entries, nothing is set
    aside."""
    validation = HeldOut(np.array([0]), np.array([0]), np.array([matrix.scale.low]))
    source = OrdinalDMF(**SIZES)._make_task(EntryStore.of(matrix), validation).source
    assert isinstance(source, MatrixBlocks)
    return source


def hidden_of(step: Step, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """What the first step of a fresh network hides of the whole matrix."""
    own = step.network.masking
    masking = Masking(
        own.mask_rate, cold_row_rate=own.cold_row_rate, cold_column_rate=own.cold_column_rate
    )
    use_generator(masking, torch.Generator().manual_seed(SEED))
    return masking.is_masked(
        torch.arange(shape[0])[:, None], torch.arange(shape[1]), masking.draw_step_seed()
    ).numpy()


def latents_of(step: Step, matrix: ObservedMatrix) -> tuple[Array, Array]:
    """The latents of the block's rows and columns from what is visible of the whole matrix."""
    units = matrix.scale.to_unit(matrix.to_array())
    visible = torch.tensor(
        np.where(hidden_of(step, matrix.shape), np.nan, units), dtype=torch.float32
    )
    with torch.no_grad():
        rows = step.network.encode("row", visible[ROWS])
        columns = step.network.encode("column", visible.T[COLUMNS])
    return rows.double().numpy(), columns.double().numpy()


def chances_of(row_latents: Array, column_latents: Array) -> Array:
    """The chance of more than each level but the last (rows, columns, levels - 1); a row's last 5
    are its response."""
    scores = row_latents @ column_latents.T
    logits = np.exp(row_latents[:, None, -1:]) * scores[..., None] - row_latents[:, None, -5:-1]
    return 1 / (1 + np.exp(-logits))


def mean_loss(chances: Array, wanted: Array, asked: npt.NDArray[np.bool_]) -> float:
    losses = -(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances)).sum(-1)
    return float(losses[asked].mean())


def block_of(step: Step, matrix: ObservedMatrix) -> tuple[Array, Array, Array]:
    """Which boundaries the block's values exceed, which of its places are observed, and which
    hidden."""
    units = matrix.scale.to_unit(matrix.to_array())[BLOCK]
    return (
        (units[..., None] > BOUNDARIES).astype(float),
        ~np.isnan(units),
        hidden_of(step, matrix.shape)[BLOCK],
    )


@either_kind
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_loss_is_that_of_hidden_entries_alone(
    matrix: ObservedMatrix, kind: str, mode: str
) -> None:
    step = Step(matrix)
    assert step.source.dense is (kind == "dense")
    step.network.train(mode == "train")
    above, observed, hidden = block_of(step, matrix)
    asked = observed & hidden
    assert 2 < asked.sum() < observed.sum() < observed.size
    expected = mean_loss(chances_of(*latents_of(step, matrix)), above, asked)
    assert step.loss().item() == pytest.approx(expected, rel=1e-4)


@either_kind
def test_each_of_several_networks_has_a_loss_of_its_own(matrix: ObservedMatrix, kind: str) -> None:
    step = Step(matrix, networks=3)
    step.network.eval()
    above, observed, hidden = block_of(step, matrix)
    units = matrix.scale.to_unit(matrix.to_array())
    visible = torch.tensor(
        np.where(hidden_of(step, matrix.shape), np.nan, units), dtype=torch.float32
    )
    network, head = step.network, step.network.head
    with torch.no_grad():
        rows = head.make_row_latents(network.run_branch("row", visible[ROWS])).double().numpy()
        columns = (
            head.make_column_latents(network.run_branch("column", visible.T[COLUMNS]))
            .double()
            .numpy()
        )
    losses = [
        mean_loss(chances_of(rows[:, group], columns[:, group]), above, observed & hidden)
        for group in range(3)
    ]
    assert np.ptp(losses) > 0.01
    assert step.loss().item() == pytest.approx(np.mean(losses), rel=1e-4)


def test_dense_and_sparse_steps_are_the_same(
    matrix: ObservedMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, gradients = [], []
    for share in (0.0, 2.0):
        monkeypatch.setattr(blocks_module, "DENSE_SHARE_ON_CPU", share)
        step = Step(matrix)
        assert step.source.dense is (share == 0.0)
        steps = [step.loss() for _ in range(3)]
        sum(steps).backward()  # type: ignore[union-attr]
        losses.append([loss.item() for loss in steps])
        gradients.append(
            {name: parameter.grad for name, parameter in step.network.named_parameters()}
        )
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(set(losses[0])) == 3  # each step hides others
    for name, gradient in gradients[0].items():
        assert gradient is not None and gradients[1][name] is not None
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-3, atol=1e-5, msg=name)


def changed(matrix: ObservedMatrix, row: int, column: int) -> ObservedMatrix:
    """The matrix with another level at one of its entries."""
    array = matrix.to_array()
    array[row, column] = 6 - array[row, column] + (array[row, column] == 3)
    return ObservedMatrix.from_array(
        array, matrix.scale, row_labels=matrix.row_labels, column_labels=matrix.column_labels
    )


def recorded(step: Step) -> tuple[float, Tensor, Tensor]:
    """A step's loss, and the latents that it computed."""
    network, kept = step.network, []
    plain = network.run_branch

    def keep(axis: Axis, batch: Any, features: Any) -> Tensor:
        kept.append(plain(axis, batch, features))
        return kept[-1]  # type: ignore[no-any-return]

    network.run_branch = keep  # type: ignore[assignment, method-assign]
    loss = step.loss().item()
    return (
        loss,
        network.make_latents("row", kept[0]).detach(),
        network.make_latents("column", kept[1]).detach(),
    )


@either_kind
@pytest.mark.parametrize("where", ["hidden", "visible"])
def test_no_branch_sees_what_is_asked_for(matrix: ObservedMatrix, kind: str, where: str) -> None:
    step = Step(matrix)
    _, observed, hidden = block_of(step, matrix)
    i, j = np.argwhere(observed & (hidden if where == "hidden" else ~hidden))[0]
    other = changed(matrix, int(ROWS[i]), int(COLUMNS[j]))
    loss, rows, columns = recorded(step)
    other_step = Step(matrix)
    other_step.source = source_of(other)
    other_loss, other_rows, other_columns = recorded(other_step)
    assert other_loss != loss
    if where == "hidden":
        assert torch.equal(rows, other_rows) and torch.equal(columns, other_columns)
        return
    # A visible entry is an input of its row and of its column. Batch norm hands it on to the
    # others.
    assert not torch.equal(rows[i], other_rows[i]) and not torch.equal(columns[j], other_columns[j])
    # It is no target: the difference in loss is that of the latents.
    above, _, _ = block_of(step, matrix)
    expected = mean_loss(
        chances_of(other_rows.double().numpy(), other_columns.double().numpy()),
        above,
        observed & hidden,
    )
    assert other_loss == pytest.approx(expected, rel=1e-4)


@either_kind
def test_a_step_that_asks_for_nothing_costs_nothing_and_has_a_gradient(
    matrix: ObservedMatrix, kind: str
) -> None:
    step = Step(matrix, mask_rate=1e-9)
    loss = step.loss()
    loss.backward()
    assert loss.item() == 0
    for parameter in step.network.parameters():
        assert parameter.grad is not None and not parameter.grad.any()


@either_kind
def test_the_validation_error_is_that_of_a_few_views(matrix: ObservedMatrix, kind: str) -> None:
    split = split_entries(matrix, train=0.8, validation=0.2, test=0.0, seed=0)
    model = OrdinalDMF(**SIZES | {"views": 6})
    trainer = model._make_task(
        EntryStore.of(split.train), HeldOut.of(split.train, split.validation)
    )
    assert isinstance(trainer, Trainer) and isinstance(trainer.network, OrdinalNetwork)
    network = trainer.network.eval()
    units = torch.tensor(split.train.scale.to_unit(split.train.to_array()), dtype=torch.float32)
    with torch.no_grad():
        found = trainer.validation_error()
        views = [(network.row_views[k], network.column_views[k]) for k in range(4)]
        nothing = torch.tensor(float("nan"))
        rows = sum(network.encode("row", units.where(seen, nothing)) for seen, _ in views) / 4
        columns = (
            sum(network.encode("column", units.T.where(seen, nothing)) for _, seen in views) / 4
        )
    assert isinstance(rows, Tensor) and isinstance(columns, Tensor)
    expected = 1 + chances_of(rows.double().numpy(), columns.double().numpy()).sum(-1)
    labels = split.validation.entries()
    at = split.train.rows.positions(labels.rows), split.train.columns.positions(labels.columns)
    assert found == pytest.approx(rmse_error(expected[at], labels.values), rel=1e-5)


@pytest.mark.parametrize(
    "scale",
    [
        Scale([1, 2, 3, 4, 5]),
        Scale(np.arange(1, 11) / 2),
        Scale([-1, 0, 0.1, 1000]),
        Scale(low=-7, high=1e4),
    ],
    ids=str,
)
@either_kind
def test_single_precision_puts_no_value_on_the_wrong_side_of_a_boundary(
    kind: str, scale: Scale
) -> None:
    dice = np.random.default_rng(0)
    # Real values often repeat one another, and then bins are cut exactly at a value.
    reals = np.concatenate(
        [dice.normal(size=400), dice.integers(-3, 3, 400) / 3, 900 + dice.normal(size=100)]
    )
    values = dice.choice(reals if scale.levels is None else scale.levels, size=(40, 30))
    matrix = ObservedMatrix.from_array(
        np.where(dice.random(values.shape) < 0.5, values, np.nan), scale
    )
    step = Step(matrix)
    targets = step.source.block(torch.arange(40), torch.arange(30)).targets
    above = step.network.head.mark_exceeded(targets).sum((0, 1)).numpy()
    observed = matrix.values.astype(np.float64)
    if scale.levels is None:
        tail = 0.5 ** np.arange(1, 5) / 24
        boundaries = np.unique(
            np.quantile(observed, np.concatenate([tail, np.arange(1, 24) / 24, 1 - tail]))
        )
    else:
        boundaries = (scale.levels[1:] + scale.levels[:-1]) / 2
    np.testing.assert_array_equal(above, (observed[:, None] > boundaries).sum(0))


@either_kind
def test_validation_encodes_the_rows_and_columns_that_it_needs(
    matrix: ObservedMatrix, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(matrix)
    network = step.network.eval()
    rows, columns = torch.tensor([4, 0, 4, 7]), torch.tensor([3, 3, 9, 1])
    taken: dict[str, list[int]] = {}
    for name, vectors in (("rows", step.source.rows), ("columns", step.source.columns)):

        def watched(ids: Tensor, *, name: str = name, take: Any = vectors.take) -> Any:
            taken.setdefault(name, []).extend(ids.unique().tolist())
            return take(ids)

        monkeypatch.setattr(vectors, "take", watched)
    found = OrdinalObjective().predictions(network, step.source, rows, columns)
    assert {name: sorted(ids) for name, ids in taken.items()} == {
        "rows": [0, 4, 7],
        "columns": [1, 3, 9],
    }
    alone = [
        OrdinalObjective().predictions(network, step.source, rows[[at]], columns[[at]]).item()
        for at in range(4)
    ]
    np.testing.assert_allclose(found.detach(), alone, rtol=1e-5)
