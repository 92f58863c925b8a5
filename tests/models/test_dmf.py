"""DMF: the contract, and the paper's formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from tests.models.contract import FullContract
from torch import Tensor

from deepmf.datasets import checkerboard
from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.library import normalise
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmf import DMF, DMFSettings
from deepmf.models.dmf_network import DMFNetwork, DMFObjective
from deepmf.models.dmfd import DMFD
from deepmf.models.network_model import NetworkModel
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.nn.branch import Branch, compute_inner_products
from deepmf.testing import additive
from deepmf.training.blocks import Block, MatrixBlocks
from deepmf.training.trainer import Trainer

QUICK: dict[str, Any] = {
    "hidden_sizes": (32,),
    "latent_size": 16,
    "dropout": 0.1,
    "epochs": 80,
    "block_rows": 15,
    "block_columns": 12,
    "device": "cpu",
}


class TestDMF(FullContract):
    model = DMF
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.12

    @pytest.mark.slow
    def test_a_checkerboard(self) -> None:
        board = checkerboard(24, 20, observed=0.6, seed=0)
        model = DMF(**QUICK | {"dropout": 0.0}).fit(board.matrix)
        rows, columns = np.divmod(np.arange(24 * 20), 20)
        np.testing.assert_array_equal(
            model.predict_levels(rows, columns), board.truth.mean(rows, columns)
        )

    @pytest.mark.slow
    def test_predictions_are_cosines_of_the_branches(self) -> None:
        matrix = additive()
        model = DMF(**QUICK).fit(matrix)
        dense = np.nan_to_num(matrix.scale.to_unit(matrix.to_array()))
        with torch.no_grad():
            rows = model.network_.rows(torch.tensor(dense, dtype=torch.float32)).double()
            columns = model.network_.columns(torch.tensor(dense.T, dtype=torch.float32)).double()
        cosines = (rows @ columns.T) / (rows.norm(dim=1)[:, None] * columns.norm(dim=1))
        expected = 3 + 2 * cosines.numpy()
        missing = np.isnan(matrix.to_array())
        np.testing.assert_allclose(model.complete()[missing], expected[missing], atol=1e-4)

    @pytest.mark.slow
    def test_raw_inputs_are_the_values_themselves(self) -> None:
        matrix = additive()
        model = DMF(**QUICK | {"inputs": "raw"}).fit(matrix)
        raw = torch.tensor(np.nan_to_num(matrix.to_array()), dtype=torch.float32)
        with torch.no_grad():
            expected = torch.nn.functional.normalize(model.network_.rows(raw), dim=1)
        np.testing.assert_allclose(model.predictor_.rows.whole(), expected.numpy(), atol=1e-5)


SMALL: dict[str, Any] = {"hidden_sizes": (6,), "latent_size": 4, "epochs": 2, "device": "cpu"}

every_model = pytest.mark.parametrize("model", [DMF, DMFD, OrdinalDMF])


@every_model
@pytest.mark.parametrize("shape, found", [((1, 4), "1 and 4"), ((5, 1), "5 and 1")])
def test_too_small_to_learn_from(
    model: type[NetworkModel], shape: tuple[int, int], found: str
) -> None:
    matrix = ObservedMatrix.from_array(
        np.arange(np.prod(shape)).reshape(shape) % 5 + 1.0, Scale([1, 2, 3, 4, 5])
    )
    with pytest.raises(BadEntries, match=found):
        model(**SMALL).fit(matrix)


def network(*, n_rows: int = 9, n_columns: int = 7) -> DMFNetwork:
    generator = torch.Generator().manual_seed(0)
    rows = Branch(n_columns, (6, 5, 4), dropout=0.0, generator=generator)
    columns = Branch(n_rows, (8, 4), dropout=0.0, generator=generator)
    return DMFNetwork(rows, columns)


def table(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 6), st.floats(-3, 3), st.integers(0, 9))
def test_cosines_are_bounded_and_ignore_lengths(n_latents: int, power: float, seed: int) -> None:
    rows, columns = table(4, n_latents, seed), table(3, n_latents, seed + 100)
    found = compute_inner_products(normalise(rows), normalise(columns))
    assert found.abs().max().item() <= 1 + 1e-6
    torch.testing.assert_close(
        compute_inner_products(normalise(rows * 10**power), normalise(columns)),
        found,
        rtol=0,
        atol=1e-5,
    )


def test_cosines_stay_in_single_precision_under_autocast() -> None:
    two, rows, columns = network().eval(), table(3, 7, 1), table(5, 9, 2)
    rough = two(rows, columns)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        latents = two.rows(rows), two.columns(columns)
        found = two(rows, columns)
    assert found.dtype == torch.float32
    assert torch.equal(found, normalise(latents[0]) @ normalise(latents[1]).T)
    torch.testing.assert_close(found, rough, rtol=0, atol=0.05)


SIZES: dict[str, Any] = {"hidden_sizes": (6,), "latent_size": 4, "device": "cpu", "dropout": 0.0}

ROWS, COLUMNS = torch.tensor([4, 0, 7, 2]), torch.tensor([3, 1, 9])


def parts(model: DMF) -> tuple[Trainer, np.ndarray, np.ndarray]:
    """Return the trainer in eval mode, the cosines of a block, and its units with NaN where nothing
    is observed."""
    matrix = additive()
    trainer = model._make_task(EntryStore.of(matrix), None)
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
    weights = [weight.detach().double() for branch in branches for weight in branch.list_weights()]
    expected += gamma * sum(float(weight.square().sum()) for weight in weights)
    assert len(weights) == 4
    assert loss_of(trainer) == pytest.approx(expected, rel=1e-5)


def test_equation_5() -> None:
    trainer, cosines, units = parts(
        DMFD(**SIZES, gamma_boundaries=0.7, sharpness=2.0, sharpness_growth=1.1)
    )
    trainer.objective.begin_epoch(3)
    network: Any = trainer.network
    with torch.no_grad():
        network.quantizer.free_boundaries += torch.tensor([0.1, -0.2, 0.3, 0.0])
    boundaries = np.array([1.6, 2.3, 3.8, 4.5])
    scores, values = 3 + 2 * cosines, 3 + 2 * units
    lower = np.clip(np.floor(scores), 1, 4)
    soft = lower + 1 / (1 + np.exp(-2.0 * 1.1**3 * (scores - boundaries[lower.astype(int) - 1])))
    expected = np.sqrt(np.nanmean((soft - values) ** 2)) + 0.7 * np.mean(
        [0.1**2, 0.2**2, 0.3**2, 0.0]
    )
    assert loss_of(trainer) == pytest.approx(expected, rel=1e-5)


def test_a_block_without_entries_costs_nothing_and_has_a_gradient() -> None:
    trainer, cosines, _ = parts(DMF(**SIZES))
    assert isinstance(trainer.objective, DMFObjective)
    predictions = torch.tensor(cosines, requires_grad=True)
    nothing = torch.full(cosines.shape, float("nan"), dtype=torch.float64)
    error = trainer.objective.compute_squared_error(
        predictions, nothing, replace(block_of(trainer), observed=nothing)
    )
    error.backward()
    assert error.item() < 1e-5
    assert predictions.grad is not None and torch.equal(
        predictions.grad, torch.zeros_like(predictions)
    )


def test_sizes_of_layers_may_be_an_array() -> None:
    assert DMF(hidden_sizes=np.array([3, 4])).settings.hidden_sizes == (3, 4)
    assert DMFSettings(hidden_sizes=np.array([3]), latent_size=np.array(4)).layer_sizes == (3, 4)
    with pytest.raises(BadSetting, match="hidden_sizes"):
        DMF(hidden_sizes=np.array([[3]]))
