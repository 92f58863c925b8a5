"""Deep U-AutoRec: the contract, its loss restated, and dense re-feeding step by step."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.models.autoencoders.test_autorec import loss_of, same, thinned
from tests.models.contract import ModelContract, additive
from torch import Tensor
from torch.nn import functional

from deepmf.data.splits import split_entries
from deepmf.errors import BadSetting
from deepmf.matrix.entry_store import EntryStore
from deepmf.models.autoencoders.autoencoder_network import Autoencoder
from deepmf.models.autoencoders.deep_autorec import DeepUAutoRec
from deepmf.training.loop import Loop, TrainingState
from deepmf.training.optimisers import SGD
from deepmf.training.trainer import Evaluate
from deepmf.training.validation import ValidationEntries

QUICK: dict[str, Any] = {
    "hidden_sizes": (16, 12),
    "dropout": 0.1,
    "epochs": 60,
    "learning_rate": 0.02,
    "batch_size": 10,
    "device": "cpu",
}


class TestDeepUAutoRec(ModelContract):
    model = DeepUAutoRec
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.7
    permutation_error = 0.3


def trainer_of(*, dense: bool = True, **changes: Any) -> Any:
    trainer = DeepUAutoRec(**QUICK | {"dropout": 0.0} | changes)._task(
        EntryStore.of(thinned(additive(), dense=dense)), None
    )
    assert trainer.source.dense is dense
    return trainer


def rows_with_entries(*, dense: bool = True) -> Tensor:
    return torch.from_numpy(np.flatnonzero(thinned(additive(), dense=dense).row_counts))


def passes_of(trainer: Any, ids: Tensor) -> Sequence[Evaluate]:
    passes: Sequence[Evaluate] = trainer.objective.passes(trainer.network, trainer.source.block(ids))
    return passes


def inputs_of(ids: Tensor, *, dense: bool = True) -> tuple[Tensor, Tensor]:
    """Return rows with 0 where nothing is observed, and with NaN there."""
    array = torch.tensor(thinned(additive(), dense=dense).to_array()[ids.numpy()], dtype=torch.float32)
    return array.nan_to_num(0.0), array


def masked_error(network: Autoencoder, ids: Tensor, *, dense: bool = True) -> Tensor:
    inputs, targets = inputs_of(ids, dense=dense)
    observed = ~targets.isnan()
    return (network(inputs)[observed] - targets[observed]).square().mean()


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_the_loss_is_the_mean_squared_error_on_observed_entries(dense: bool) -> None:
    trainer, ids = trainer_of(dense=dense), rows_with_entries(dense=dense)[[4, 0, 2]]
    expected = masked_error(trainer.network, ids, dense=dense).item()
    assert loss_of(trainer, ids).item() == pytest.approx(expected, rel=1e-5)
    assert passes_of(trainer, ids)[0]().item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("refeeds", [0, 1, 2])
def test_a_step_is_one_on_the_batch_and_one_on_each_answer(dense: bool, refeeds: int) -> None:
    ours, theirs = (trainer_of(dense=dense, refeeds=refeeds) for _ in range(2))
    ids = rows_with_entries(dense=dense)[:5]
    optimiser = SGD(ours.network.parameters(), 0.01, momentum=0.9)
    for evaluate in passes_of(ours, ids):
        optimiser.step(lambda evaluate=evaluate: _differentiated(evaluate()))  # type: ignore[misc]

    network = theirs.network
    reference = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    fed = network(inputs_of(ids, dense=dense)[0]).detach()  # what it answered before its first step
    reference.zero_grad()
    masked_error(network, ids, dense=dense).backward()
    reference.step()
    for _ in range(refeeds):
        reference.zero_grad()
        outputs = network(fed)
        functional.mse_loss(outputs, fed).backward()
        reference.step()
        fed = outputs.detach()
    for one, other in zip(ours.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def _differentiated(loss: Tensor) -> Tensor:
    loss.backward()
    return loss.detach()


def test_answers_are_fed_back_as_they_were_with_dropout() -> None:
    trainer, ids = trainer_of(dropout=0.5), torch.arange(5)
    network = trainer.network
    network.dropout.generator = torch.Generator().manual_seed(0)
    fed: list[Tensor] = []
    network.register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0]))
    first, again = passes_of(trainer, ids)
    first()
    again()
    network.dropout.generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        expected = network(inputs_of(ids)[0])
    torch.testing.assert_close(fed[0], expected)
    assert not fed[0].requires_grad


def test_the_trainer_counts_the_loss_of_the_first_pass() -> None:
    trainer = trainer_of(batch_size=30)
    before = masked_error(trainer.network, rows_with_entries()).item()
    assert trainer.run_epoch(0).loss == pytest.approx(before, rel=1e-5)


def test_an_epoch_steps_with_the_momentum_of_the_settings() -> None:
    settings = {"refeeds": 0, "batch_size": None, "momentum": 0.7, "decay_every": ()}
    ours, theirs = trainer_of(**settings), trainer_of(**settings).network
    reference = torch.optim.SGD(theirs.parameters(), lr=QUICK["learning_rate"], momentum=0.7)
    for epoch in range(3):
        ours.run_epoch(epoch)
        reference.zero_grad()
        masked_error(theirs, rows_with_entries()).backward()
        reference.step()
    for one, other in zip(ours.network.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_refeeding_makes_answers_stay_as_they_are() -> None:
    moved = []
    for refeeds in (0, 1):
        model = DeepUAutoRec(**QUICK | {"refeeds": refeeds, "dropout": 0.0}).fit(additive())
        with torch.no_grad():
            answers = model.network_(inputs_of(torch.arange(30))[0])
            moved.append((model.network_(answers) - answers).square().mean().item())
    assert moved[1] < 0.5 * moved[0]


def test_the_shape_of_the_network_and_the_settings_of_the_paper() -> None:
    model = DeepUAutoRec(device="cpu")
    assert model.settings.layer_sizes == (512, 512, 1024, 512, 512)
    network = model._new_network(EntryStore.of(additive()))
    assert [layer.get_parameter("weight").shape for layer in network.others] == [
        (512, 512),
        (1024, 512),
        (512, 1024),
        (512, 512),
    ]
    assert network.last.weight.shape == (25, 512)
    assert (model.settings.decay, model.settings.decay_every) == (0.5, (24, 36, 48, 66, 72))
    assert DeepUAutoRec(hidden_sizes=8).settings.layer_sizes == (8,)


def test_scores_are_activated_products() -> None:
    model = DeepUAutoRec(**QUICK).fit(additive())
    rows, columns = model.predictor_.rows.whole(), model.predictor_.columns.whole()
    products = rows.astype(np.float64) @ columns.astype(np.float64).T
    scores = model.predictor_.score_block(np.arange(30), np.arange(25))
    np.testing.assert_allclose(scores, functional.selu(torch.tensor(products)).numpy(), rtol=1e-4)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_four_and_three_epochs_are_seven_to_the_bit(dense: bool) -> None:
    split = split_entries(thinned(additive(), dense=dense), train=0.8, validation=0.2, test=0, seed=0)
    model = DeepUAutoRec(**QUICK | {"epochs": 7, "dropout": 0.4, "decay_every": (2, 5)})
    states: list[TrainingState] = []
    validation = ValidationEntries.of(split.train, split.validation)
    whole = Loop(model._task(EntryStore.of(split.train), validation), model.settings)
    whole.run(keep=states.append)
    rest = Loop(model._task(EntryStore.of(split.train), validation), model.settings)
    rest.restore(states[3])
    later: list[TrainingState] = []
    rest.run(keep=later.append)
    assert len(later) == 3
    assert all(same(one.tensors, other.tensors) for one, other in zip(later, states[4:], strict=True))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_sizes": (0,)}, r"hidden_sizes must be whole numbers of at least 1.*got \(0,\)"),
        ({"hidden_sizes": []}, r"hidden_sizes must be whole numbers of at least 1.*got \[\]"),
        ({"dropout": 1.0}, "dropout must be a number at least 0 and at most 0.99; got 1.0"),
        ({"refeeds": -1}, "refeeds must be a whole number of at least 0; got -1"),
        ({"momentum": 1.0}, "momentum must be a number at least 0 and at most 0.999; got 1.0"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        DeepUAutoRec(**changes)
