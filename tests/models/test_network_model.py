"""Models that train a network: new rows and columns are a forward pass, and copies share no
weights."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.network_model import NetworkModel
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.autorec import DeepUAutoRec, IAutoRec
from deepmf.models.paper.cfnade import UCFNADE
from deepmf.nn.branch import RandomModule
from deepmf.testing import additive

SMALL: dict[str, Any] = {
    "hidden_sizes": (6,),
    "latent_size": 4,
    "epochs": 2,
    "device": "cpu",
    "presence": None,
}
two_branches = pytest.mark.parametrize("model", [DMF, DMFD, OrdinalDMF])
every_model = pytest.mark.parametrize(
    "model",
    [
        DMF(**SMALL),
        DMFD(**SMALL),
        OrdinalDMF(**SMALL, linear_size=0),
        IAutoRec(hidden_size=4, epochs=2, device="cpu"),
        DeepUAutoRec(hidden_sizes=(4,), epochs=2, device="cpu"),
        UCFNADE(hidden_size=4, epochs=2, device="cpu"),
    ],
    ids=lambda model: type(model).__name__,
)


def refitted(model: NetworkModel) -> NetworkModel:
    return type(model)(**model.settings.to_dict()).fit(additive())


@every_model
def test_the_trained_network_draws_from_nothing(model: NetworkModel) -> None:
    network = refitted(model).network_
    assert not network.training
    assert {
        module.generator for module in network.modules() if isinstance(module, RandomModule)
    } <= {None}


@every_model
def test_copies_predict_the_same_and_share_no_weights(model: NetworkModel) -> None:
    fitted = refitted(model)
    expected = fitted.complete()
    copies = [copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))]  # noqa: S301
    with torch.no_grad():
        for parameter in fitted.network_.parameters():
            parameter.zero_()
    for again in copies:
        np.testing.assert_array_equal(again.complete(), expected)
        assert any(parameter.abs().sum() > 0 for parameter in again.network_.parameters())


@two_branches
@pytest.mark.slow
def test_known_rows_and_columns_are_described_anew(model: type[NetworkModel]) -> None:
    matrix = additive()
    fitted = model(**SMALL).fit(matrix)
    row, column = np.argwhere(np.isnan(matrix.to_array()))[0]
    labels = [matrix.row_labels[row]], [matrix.column_labels[column]]
    more = fitted.extend(ObservedMatrix.from_entries(*labels, [5], matrix.scale))
    for one, other, touched in (
        (more.predictor_.rows, fitted.predictor_.rows, row),
        (more.predictor_.columns, fitted.predictor_.columns, column),
    ):
        moved = np.abs(one.whole() - other.whole()).max(axis=1)
        assert np.flatnonzero(moved > 1e-4).tolist() == [touched]


@two_branches
@pytest.mark.slow
def test_extension_computes_what_is_new_and_nothing_else(model: type[NetworkModel]) -> None:
    matrix = additive()
    alone = {"linear_size": 0} if model is OrdinalDMF else {}  # a sampler would replace the network
    fitted = model(**SMALL, **alone).fit(matrix)
    before = {name: tensor.clone() for name, tensor in fitted.network_.state_dict().items()}
    new = ObservedMatrix.from_entries(
        ["row 3", "new", "new"], ["unheard of", "column 1", "column 2"], [2, 4, 5], matrix.scale
    )
    more = fitted.extend(new)
    assert more.network_ is fitted.network_
    assert all(
        (tensor == before[name]).all() for name, tensor in more.network_.state_dict().items()
    )
    assert (
        more.predictor_.rows.base is fitted.predictor_.rows.base and len(more.predictor_.rows) == 31
    )
    # Row 3 has an entry of a new column, which is no input of it.
    np.testing.assert_allclose(
        more.predictor_.rows.whole()[:30], fitted.predictor_.rows.whole(), atol=1e-5
    )
    np.testing.assert_array_equal(
        more.predictor_.columns.whole()[:25], fitted.predictor_.columns.whole()
    )
