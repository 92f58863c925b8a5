"""What DMF and DMF-D minimise: equations 1 and 5, restated in float64."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.models.contract import additive

from deepmf.matrix.entry_store import EntryStore
from deepmf.models.dmf.dmf import DMF
from deepmf.models.dmf.dmf_objective import DMFObjective
from deepmf.models.dmf.dmfd import DMFD
from deepmf.training.matrix_blocks import Block, MatrixBlocks
from deepmf.training.trainer import Trainer

SIZES: dict[str, Any] = {"hidden_sizes": (6,), "latent_size": 4, "device": "cpu", "dropout": 0.0}
ROWS, COLUMNS = torch.tensor([4, 0, 7, 2]), torch.tensor([3, 1, 9])


def parts(model: DMF) -> tuple[Trainer, np.ndarray, np.ndarray]:
    """Return the trainer in eval mode, the cosines of a block, and its units with NaN where nothing is observed."""
    matrix = additive()
    trainer = model._task(EntryStore.of(matrix), None)
    trainer.network.eval()
    block = block_of(trainer)
    with torch.no_grad():
        cosines = trainer.network(block.rows, block.columns)
    units = matrix.scale.to_unit(matrix.to_array()[np.ix_(ROWS.numpy(), COLUMNS.numpy())])
    assert 0 < np.isnan(units).sum() < units.size
    return trainer, cosines.double().numpy(), units


def block_of(trainer: Trainer) -> Block:
    assert isinstance(trainer.source, MatrixBlocks)
    return trainer.source.block(ROWS, COLUMNS)


def loss_of(trainer: Trainer) -> float:
    return trainer.objective.loss(trainer.network, block_of(trainer)).item()


@pytest.mark.parametrize("gamma", [0.0, 0.3])
@pytest.mark.parametrize("loss", ["root", "mean"])
def test_equation_1(loss: str, gamma: float) -> None:
    trainer, cosines, units = parts(DMF(**SIZES, loss=loss, gamma=gamma))
    expected = np.nanmean((cosines - units) ** 2)
    expected = np.sqrt(expected) if loss == "root" else expected
    network: Any = trainer.network
    branches = (network.rows, network.columns)
    weights = [weight.detach().double() for branch in branches for weight in branch.weights()]
    expected += gamma * sum(float(weight.square().sum()) for weight in weights)
    assert len(weights) == 4
    assert loss_of(trainer) == pytest.approx(expected, rel=1e-5)


def test_equation_5() -> None:
    trainer, cosines, units = parts(DMFD(**SIZES, gamma_boundaries=0.7, sharpness=2.0, sharpness_growth=1.1))
    trainer.objective.begin_epoch(3)
    network: Any = trainer.network
    with torch.no_grad():
        network.quantizer.free_boundaries += torch.tensor([0.1, -0.2, 0.3, 0.0])
    boundaries = np.array([1.6, 2.3, 3.8, 4.5])
    scores, values = 3 + 2 * cosines, 3 + 2 * units
    lower = np.clip(np.floor(scores), 1, 4)
    soft = lower + 1 / (1 + np.exp(-2.0 * 1.1**3 * (scores - boundaries[lower.astype(int) - 1])))
    expected = np.sqrt(np.nanmean((soft - values) ** 2)) + 0.7 * np.mean([0.1**2, 0.2**2, 0.3**2, 0.0])
    assert loss_of(trainer) == pytest.approx(expected, rel=1e-5)


def test_a_block_without_entries_costs_nothing_and_has_a_gradient() -> None:
    trainer, cosines, _ = parts(DMF(**SIZES))
    assert isinstance(trainer.objective, DMFObjective)
    predictions = torch.tensor(cosines, requires_grad=True)
    error = trainer.objective.squared_error(predictions, torch.full(cosines.shape, float("nan"), dtype=torch.float64))
    error.backward()
    assert error.item() < 1e-5
    assert predictions.grad is not None and torch.equal(predictions.grad, torch.zeros_like(predictions))
