"""The settings of two branches, and what the models that have them make of these."""

from typing import Any

import numpy as np
import pytest
from tests.models.contract import additive

from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmf.dmf import DMF
from deepmf.models.dmf.dmfd import DMFD
from deepmf.models.network_model import NetworkModel
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.models.two_branch_settings import TwoBranchSettings
from deepmf.training.matrix_blocks import MatrixBlocks

SMALL: dict[str, Any] = {"hidden_sizes": (6,), "latent_size": 4, "epochs": 2, "device": "cpu"}
every_model = pytest.mark.parametrize("model", [DMF, DMFD, OrdinalDMF])


def test_the_sizes_of_both_branches() -> None:
    assert TwoBranchSettings().branch_sizes == ((2048, 1024), (2048, 1024))
    own = TwoBranchSettings(hidden_sizes=(5, 4), column_hidden_sizes=(7,), latent_size=3)
    assert own.branch_sizes == ((5, 4, 3), (7, 3))
    assert TwoBranchSettings(hidden_sizes=(), column_hidden_sizes=(7,), latent_size=3).branch_sizes == ((3,), (7, 3))
    assert TwoBranchSettings(hidden_sizes=(5,), column_hidden_sizes=(), latent_size=3).branch_sizes == ((5, 3), (3,))
    assert TwoBranchSettings(hidden_sizes=[5, 4]).hidden_sizes == (5, 4)  # type: ignore[arg-type]
    assert TwoBranchSettings(hidden_sizes=5).hidden_sizes == (5,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name, bad, rule",
    [
        ("hidden_sizes", (8, 0), "must be whole numbers of at least 1, such as (2048,)"),
        ("hidden_sizes", None, "must be whole numbers of at least 1, such as (2048,)"),
        ("column_hidden_sizes", (2.5,), "must be whole numbers of at least 1, such as (2048,)"),
        ("latent_size", 0, "must be a whole number of at least 1"),
        ("block_rows", 1, "must be a whole number of at least 2"),
        ("block_columns", 1, "must be a whole number of at least 2"),
        ("dropout", -0.1, "must be a number at least 0 and at most 0.99"),
        ("dropout", 1, "must be a number at least 0 and at most 0.99"),
    ],
)
def test_bad_settings(name: str, bad: Any, rule: str) -> None:
    with pytest.raises(BadSetting) as caught:
        TwoBranchSettings(**{name: bad})
    assert str(caught.value) == f"{name} {rule}; got {bad!r}"


@every_model
def test_branches_are_as_wide_as_asked(model: type[NetworkModel]) -> None:
    fitted = model(**SMALL | {"hidden_sizes": (9, 5), "column_hidden_sizes": (8,), "dropout": 0.7}).fit(additive())
    network: Any = fitted.network_
    assert [norm.num_features for norm in network.rows.norms][:2] == [9, 5] and len(network.rows.norms) == 3
    assert [norm.num_features for norm in network.columns.norms][:1] == [8] and len(network.columns.norms) == 2
    assert network.rows.dropout.fraction == network.columns.dropout.fraction == 0.7


@every_model
@pytest.mark.parametrize("shape, found", [((1, 4), "1 and 4"), ((5, 1), "5 and 1")])
def test_too_small_to_learn_from(model: type[NetworkModel], shape: tuple[int, int], found: str) -> None:
    matrix = ObservedMatrix.from_array(np.arange(np.prod(shape)).reshape(shape) % 5 + 1.0, Scale([1, 2, 3, 4, 5]))
    message = f"^a model with two branches learns from at least two rows and two columns with entries; got {found}$"
    with pytest.raises(BadEntries, match=message):
        model(**SMALL).fit(matrix)


@every_model
def test_blocks_are_as_large_as_asked(model: type[NetworkModel]) -> None:
    source = model(**SMALL, block_rows=3, block_columns=7)._task(EntryStore.of(additive()), None).source
    assert isinstance(source, MatrixBlocks)
    assert [axis.block for axis in source._axes()] == [3, 7]
    assert source.next_block().targets.shape == (3, 7)
