"""What OrdinalDMF minimises, restated in float64: hidden entries are asked for, visible ones are read."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.models.contract import additive
from torch import Tensor

from deepmf.data.splits import split_entries
from deepmf.layers.dropout import use_generator
from deepmf.layers.masking import Masking
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.ordinal import ordinal_objective
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.models.ordinal.ordinal_objective import OrdinalObjective
from deepmf.training import block_source as blocks_module
from deepmf.training.matrix_blocks import MatrixBlocks
from deepmf.training.trainer import Trainer
from deepmf.training.validation import ValidationEntries

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
    monkeypatch.setattr(blocks_module, "DENSE_SHARE_ON_CPU", {"dense": 0.0, "sparse": 2.0}[request.param])
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
    """The blocks of a matrix, as the model would have them; with validation entries, nothing is set aside."""
    validation = ValidationEntries(np.array([0]), np.array([0]), np.array([matrix.scale.low]))
    source = OrdinalDMF(**SIZES)._task(EntryStore.of(matrix), validation).source
    assert isinstance(source, MatrixBlocks)
    return source


def hidden_of(step: Step, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """What the first step of a fresh network hides of the whole matrix."""
    own = step.network.masking
    masking = Masking(own.mask_rate, cold_row_rate=own.cold_row_rate, cold_column_rate=own.cold_column_rate)
    use_generator(masking, torch.Generator().manual_seed(SEED))
    return masking.masked(torch.arange(shape[0])[:, None], torch.arange(shape[1]), masking.draw()).numpy()


def latents_of(step: Step, matrix: ObservedMatrix) -> tuple[Array, Array]:
    """The latents of the block's rows and columns from what is visible of the whole matrix."""
    units = matrix.scale.to_unit(matrix.to_array())
    visible = torch.tensor(np.where(hidden_of(step, matrix.shape), np.nan, units), dtype=torch.float32)
    with torch.no_grad():
        rows = step.network.row_latents(visible[ROWS])
        columns = step.network.column_latents(visible.T[COLUMNS])
    return rows.double().numpy(), columns.double().numpy()


def chances_of(row_latents: Array, column_latents: Array) -> Array:
    """The chance of more than each level but the last (rows, columns, levels - 1); a row's last 5 are its response."""
    scores = row_latents @ column_latents.T
    logits = np.exp(row_latents[:, None, -1:]) * scores[..., None] - row_latents[:, None, -5:-1]
    return 1 / (1 + np.exp(-logits))


def mean_loss(chances: Array, wanted: Array, asked: npt.NDArray[np.bool_]) -> float:
    losses = -(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances)).sum(-1)
    return float(losses[asked].mean())


def block_of(step: Step, matrix: ObservedMatrix) -> tuple[Array, Array, Array]:
    """Which boundaries the block's values exceed, which of its places are observed, and which hidden."""
    units = matrix.scale.to_unit(matrix.to_array())[BLOCK]
    return (units[..., None] > BOUNDARIES).astype(float), ~np.isnan(units), hidden_of(step, matrix.shape)[BLOCK]


@either_kind
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_loss_is_that_of_hidden_entries_alone(matrix: ObservedMatrix, kind: str, mode: str) -> None:
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
    visible = torch.tensor(np.where(hidden_of(step, matrix.shape), np.nan, units), dtype=torch.float32)
    network, head = step.network, step.network.head
    with torch.no_grad():
        rows = head.row_latents_by_group(network.row_outputs(visible[ROWS])).double().numpy()
        columns = head.column_latents_by_group(network.column_outputs(visible.T[COLUMNS])).double().numpy()
    losses = [mean_loss(chances_of(rows[:, group], columns[:, group]), above, observed & hidden) for group in range(3)]
    assert np.ptp(losses) > 0.01
    assert step.loss().item() == pytest.approx(np.mean(losses), rel=1e-4)


def test_dense_and_sparse_steps_are_the_same(matrix: ObservedMatrix, monkeypatch: pytest.MonkeyPatch) -> None:
    losses, gradients = [], []
    for share in (0.0, 2.0):
        monkeypatch.setattr(blocks_module, "DENSE_SHARE_ON_CPU", share)
        step = Step(matrix)
        assert step.source.dense is (share == 0.0)
        steps = [step.loss() for _ in range(3)]
        sum(steps).backward()  # type: ignore[union-attr]
        losses.append([loss.item() for loss in steps])
        gradients.append({name: parameter.grad for name, parameter in step.network.named_parameters()})
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
    for name in ("row_outputs", "column_outputs"):
        plain = getattr(network, name)

        def keep(batch: Any, features: Any, plain: Any = plain) -> Tensor:
            kept.append(plain(batch, features))
            return kept[-1]  # type: ignore[no-any-return]

        setattr(network, name, keep)
    loss = step.loss().item()
    return loss, network.head.row_latents(kept[0]).detach(), network.head.column_latents(kept[1]).detach()


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
    # A visible entry is an input of its row and of its column. Batch norm hands it on to the others.
    assert not torch.equal(rows[i], other_rows[i]) and not torch.equal(columns[j], other_columns[j])
    # It is no target: the difference in loss is that of the latents.
    above, _, _ = block_of(step, matrix)
    expected = mean_loss(
        chances_of(other_rows.double().numpy(), other_columns.double().numpy()), above, observed & hidden
    )
    assert other_loss == pytest.approx(expected, rel=1e-4)


@either_kind
def test_a_step_that_asks_for_nothing_costs_nothing_and_has_a_gradient(matrix: ObservedMatrix, kind: str) -> None:
    step = Step(matrix, mask_rate=1e-9)
    loss = step.loss()
    loss.backward()
    assert loss.item() == 0
    for parameter in step.network.parameters():
        assert parameter.grad is not None and not parameter.grad.any()


@either_kind
def test_the_validation_error_is_that_of_a_few_views(
    matrix: ObservedMatrix, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordinal_objective, "_VIEWS_TO_VALIDATE", 3)
    split = split_entries(matrix, train=0.8, validation=0.2, test=0.0, seed=0)
    model = OrdinalDMF(**SIZES)
    trainer = model._task(EntryStore.of(split.train), ValidationEntries.of(split.train, split.validation))
    assert isinstance(trainer, Trainer) and isinstance(trainer.network, OrdinalNetwork)
    network = trainer.network.eval()
    units = torch.tensor(split.train.scale.to_unit(split.train.to_array()), dtype=torch.float32)
    with torch.no_grad():
        found = trainer.validation_error()
        views = [(network.row_views[k], network.column_views[k]) for k in range(3)]
        nothing = torch.tensor(float("nan"))
        rows = sum(network.row_latents(units.where(seen, nothing)) for seen, _ in views) / 3
        columns = sum(network.column_latents(units.T.where(seen, nothing)) for _, seen in views) / 3
    assert isinstance(rows, Tensor) and isinstance(columns, Tensor)
    expected = 1 + chances_of(rows.double().numpy(), columns.double().numpy()).sum(-1)
    labels = split.validation.entries()
    at = split.train.rows.positions(labels.rows), split.train.columns.positions(labels.columns)
    assert found == pytest.approx(rmse_error(expected[at], labels.values), rel=1e-5)


@pytest.mark.parametrize(
    "scale",
    [Scale([1, 2, 3, 4, 5]), Scale(np.arange(1, 11) / 2), Scale([-1, 0, 0.1, 1000]), Scale(low=-7, high=1e4)],
    ids=str,
)
@either_kind
def test_single_precision_puts_no_value_on_the_wrong_side_of_a_boundary(kind: str, scale: Scale) -> None:
    dice = np.random.default_rng(0)
    # Real values often repeat one another, and then bins are cut exactly at a value.
    reals = np.concatenate([dice.normal(size=400), dice.integers(-3, 3, 400) / 3, 900 + dice.normal(size=100)])
    values = dice.choice(reals if scale.levels is None else scale.levels, size=(40, 30))
    matrix = ObservedMatrix.from_array(np.where(dice.random(values.shape) < 0.5, values, np.nan), scale)
    step = Step(matrix)
    targets = step.source.block(torch.arange(40), torch.arange(30)).targets
    above = step.network.head.above(targets).sum((0, 1)).numpy()
    observed = matrix.values.astype(np.float64)
    if scale.levels is None:
        tail = 0.5 ** np.arange(1, 5) / 24
        boundaries = np.unique(np.quantile(observed, np.concatenate([tail, np.arange(1, 24) / 24, 1 - tail])))
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
    assert {name: sorted(ids) for name, ids in taken.items()} == {"rows": [0, 4, 7], "columns": [1, 3, 9]}
    alone = [OrdinalObjective().predictions(network, step.source, rows[[at]], columns[[at]]).item() for at in range(4)]
    np.testing.assert_allclose(found.detach(), alone, rtol=1e-5)
