"""What models of two branches share: what they walk over, and extension as a forward pass."""

from typing import Any

import numpy as np
import pytest
from deepmf.models.two_branch_model import TwoBranchModel
from tests.models.contract import additive

from deepmf.errors import BadEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmf.dmf import DMF
from deepmf.models.dmf.dmfd import DMFD
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF

SMALL: dict[str, Any] = {"hidden_sizes": (6,), "latent_size": 4, "epochs": 2, "device": "cpu"}
every_model = pytest.mark.parametrize("model", [DMF, DMFD, OrdinalDMF])


@every_model
def test_branches_are_as_wide_as_asked(model: type[TwoBranchModel]) -> None:
    fitted = model(**SMALL | {"hidden_sizes": (9, 5), "column_hidden_sizes": (8,)}).fit(additive())
    network: Any = fitted.network_
    assert [norm.num_features for norm in network.rows.norms][:2] == [9, 5] and len(network.rows.norms) == 3
    assert [norm.num_features for norm in network.columns.norms][:1] == [8] and len(network.columns.norms) == 2
    assert network.rows.dropout.fraction == network.columns.dropout.fraction == 0.8


@every_model
@pytest.mark.parametrize("shape, found", [((1, 4), "1 and 4"), ((5, 1), "5 and 1")])
def test_too_small_to_learn_from(model: type[TwoBranchModel], shape: tuple[int, int], found: str) -> None:
    matrix = ObservedMatrix.from_array(np.arange(np.prod(shape)).reshape(shape) % 5 + 1.0, Scale([1, 2, 3, 4, 5]))
    message = f"^{model.__name__} learns from at least two rows and two columns with entries; got {found}$"
    with pytest.raises(BadEntries, match=message):
        model(**SMALL).fit(matrix)


def test_the_walk_leaves_out_what_has_no_entries() -> None:
    array = np.full((5, 4), np.nan)
    array[1, 0] = array[1, 3] = array[4, 3] = 2
    rows, columns = OrdinalDMF(block_rows=3, block_columns=7)._axes(ObservedMatrix.from_array(array, Scale([1, 2])))
    assert rows.positions.tolist() == [1, 4] and columns.positions.tolist() == [0, 3]
    assert (rows.block, columns.block) == (3, 7)


@every_model
def test_known_rows_and_columns_are_described_anew(model: type[TwoBranchModel]) -> None:
    matrix = additive()
    fitted = model(**SMALL).fit(matrix)
    row, column = np.argwhere(np.isnan(matrix.to_array()))[0]
    labels = [matrix.row_labels[row]], [matrix.column_labels[column]]
    more = fitted.extend(ObservedMatrix.from_entries(*labels, [5], matrix.scale))
    for one, other, touched in (
        (more.row_latents_, fitted.row_latents_, row),
        (more.column_latents_, fitted.column_latents_, column),
    ):
        moved = np.abs(one.whole() - other.whole()).max(axis=1)
        assert np.flatnonzero(moved > 1e-4).tolist() == [touched]


@every_model
def test_extension_computes_what_is_new_and_nothing_else(model: type[TwoBranchModel]) -> None:
    matrix = additive()
    fitted = model(**SMALL).fit(matrix)
    before = {name: tensor.clone() for name, tensor in fitted.network_.state_dict().items()}
    new = ObservedMatrix.from_entries(
        ["row 3", "new", "new"], ["unheard of", "column 1", "column 2"], [2, 4, 5], matrix.scale
    )
    more = fitted.extend(new)
    assert more.network_ is fitted.network_
    assert all((tensor == before[name]).all() for name, tensor in more.network_.state_dict().items())
    assert more.row_latents_.base is fitted.row_latents_.base and len(more.row_latents_) == 31
    # Row 3 has an entry of a new column, which is no input of it.
    np.testing.assert_allclose(more.row_latents_.whole()[:30], fitted.row_latents_.whole(), atol=1e-5)
    np.testing.assert_array_equal(more.column_latents_.whole()[:25], fitted.column_latents_.whole())
