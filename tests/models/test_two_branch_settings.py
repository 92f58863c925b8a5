"""The settings of two branches."""

from typing import Any

import pytest

from deepmf.errors import BadSetting
from deepmf.models.two_branch_settings import TwoBranchSettings


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
