"""What DMF and DMF-D minimise: equations 1 and 5, restated in float64."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.models.contract import additive

from deepmf.models.dmf.dmf import DMF
from deepmf.models.dmf.dmfd import DMFD
from deepmf.training.runtime import Runtime

SIZES: dict[str, Any] = {"hidden_sizes": (6,), "latent_size": 4, "device": "cpu", "dropout": 0.0}
ROWS, COLUMNS = torch.tensor([4, 0, 7, 2]), torch.tensor([3, 1, 9])


def parts(model: DMF) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the objective in eval mode, the cosines of a block, and its units with NaN where nothing is observed."""
    matrix = additive()
    objective = model._objective(matrix, None, Runtime("cpu"))
    objective.network.eval()
    with torch.no_grad():
        cosines = objective.network(objective.blocks.rows.take(ROWS), objective.blocks.columns.take(COLUMNS))
    units = matrix.scale.to_unit(matrix.to_array()[np.ix_(ROWS.numpy(), COLUMNS.numpy())])
    assert 0 < np.isnan(units).sum() < units.size
    return objective, cosines.double().numpy(), units


@pytest.mark.parametrize("gamma", [0.0, 0.3])
@pytest.mark.parametrize("loss", ["root", "mean"])
def test_equation_1(loss: str, gamma: float) -> None:
    objective, cosines, units = parts(DMF(**SIZES, loss=loss, gamma=gamma))
    expected = np.nanmean((cosines - units) ** 2)
    expected = np.sqrt(expected) if loss == "root" else expected
    branches = (objective.network.rows, objective.network.columns)
    weights = [weight.detach().double() for branch in branches for weight in branch.weights()]
    expected += gamma * sum(float(weight.square().sum()) for weight in weights)
    assert len(weights) == 4
    assert objective.loss(ROWS, COLUMNS).item() == pytest.approx(expected, rel=1e-5)


def test_equation_5() -> None:
    objective, cosines, units = parts(DMFD(**SIZES, gamma_boundaries=0.7, sharpness=2.0, sharpness_growth=1.1))
    objective.begin_epoch(3)
    with torch.no_grad():
        objective.network.quantizer.free_boundaries += torch.tensor([0.1, -0.2, 0.3, 0.0])
    boundaries = np.array([1.6, 2.3, 3.8, 4.5])
    scores, values = 3 + 2 * cosines, 3 + 2 * units
    lower = np.clip(np.floor(scores), 1, 4)
    soft = lower + 1 / (1 + np.exp(-2.0 * 1.1**3 * (scores - boundaries[lower.astype(int) - 1])))
    expected = np.sqrt(np.nanmean((soft - values) ** 2)) + 0.7 * np.mean([0.1**2, 0.2**2, 0.3**2, 0.0])
    assert objective.loss(ROWS, COLUMNS).item() == pytest.approx(expected, rel=1e-5)


def test_a_block_without_entries_costs_nothing_and_has_a_gradient() -> None:
    objective, cosines, _ = parts(DMF(**SIZES))
    predictions = torch.tensor(cosines, requires_grad=True)
    error = objective.squared_error(predictions, torch.full(cosines.shape, float("nan"), dtype=torch.float64))
    error.backward()
    assert error.item() < 1e-5
    assert predictions.grad is not None and torch.equal(predictions.grad, torch.zeros_like(predictions))
