"""Similarities of labels: square tables, frames, sparse matrices, new labels, and bad ones."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from deepmf import Features
from deepmf.errors import BadFeatures, BadSetting, DeepMFWarning
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.labels import Labels

DRUGS = ["a", "b", "c"]
TABLE = np.array([[2.0, 1.0, 0.5], [1.0, 2.0, 0.0], [0.5, 0.0, 2.0]])


def encode(features: Features, like: Features) -> Any:
    return features.encode(like.learn_encoding()).to_sparse().toarray()


@pytest.fixture
def drugs() -> Features:
    return Features.from_similarity(DRUGS, TABLE)


def test_inputs_are_similarities_to_others_in_units_of_that_to_itself(drugs: Features) -> None:
    others = [[0, 0.5, 0.25], [0.5, 0, 0], [0.25, 0, 0]]
    expected = np.column_stack([np.ones(3), others, np.ones(3)])
    np.testing.assert_allclose(encode(drugs, drugs), expected)


@pytest.mark.parametrize(
    "table",
    [
        scipy.sparse.csr_array(TABLE),
        TABLE.tolist(),
        pd.DataFrame(TABLE, DRUGS, DRUGS).loc[[*"cab"], [*"bca"]],
        pl.DataFrame({"drug": [*"cab"]} | dict(zip(DRUGS, TABLE[[2, 0, 1]].T, strict=True))),
        pd.DataFrame(TABLE, columns=DRUGS),
    ],
    ids=["sparse", "lists", "pandas", "polars", "in order"],
)
def test_every_form_gives_the_same_features(table: Any, drugs: Features) -> None:
    same = Features.from_similarity(DRUGS, table)
    assert np.array_equal(encode(same, drugs), encode(drugs, drugs))


def test_new_labels_are_similar_to_known_ones(drugs: Features) -> None:
    new = Features.from_similarity(["z"], [[0.0, 1.0]], to=["c", "b"])
    as_dict = Features.from_columns(["z"], {"similarity": [{"b": 1.0, "unknown": 2.0}]})
    assert as_dict.kinds == {"similarity": "similarity"}
    for features in (new, as_dict):
        np.testing.assert_allclose(encode(features, drugs), [[1, 0, 0.5, 0, 1]])


def test_a_table_with_two_sides_is_their_mean(drugs: Features) -> None:
    skew = TABLE + np.array([[0, 0.25, 0], [-0.25, 0, 0], [0, 0, 0]])
    with pytest.warns(DeepMFWarning, match=r"not symmetric.*0\.5"):
        features = Features.from_similarity(DRUGS, skew)
    assert np.array_equal(encode(features, drugs), encode(drugs, drugs))


@pytest.mark.parametrize(
    ("labels", "table", "word"),
    [
        (DRUGS, TABLE[:2], r"\(3, 3\); got \(2, 3\)"),
        (["a", "b", "b"], TABLE, "repeats, such as 'b'"),
        (DRUGS, np.where(TABLE == 1.0, np.nan, TABLE), "'a' and 'b' is nan"),
        ([*"abx"], pd.DataFrame(TABLE, DRUGS, DRUGS), "no line for 'x'"),
        (DRUGS, [["much"] * 3] * 3, "numbers"),
    ],
)
def test_a_bad_table_is_refused_in_a_sentence(labels: list[str], table: Any, word: str) -> None:
    with pytest.raises(BadFeatures, match=word):
        Features.from_similarity(labels, table)


def test_similarities_to_strangers_and_conditions_are_refused(drugs: Features) -> None:
    encoding = drugs.learn_encoding()
    with pytest.raises(BadFeatures, match="does not know"):
        Features.from_similarity(["z"], [[1.0]], to=["y"]).encode(encoding)
    with pytest.raises(BadSetting, match="no conditions"):
        encoding.match({"similarity": 1}, drugs.encode(encoding))
    wrong = Features.from_columns(["z"], {"similarity": ["3"]})
    with pytest.raises(BadFeatures, match="dict"):
        wrong.encode(encoding)


def test_only_labels_with_entries_are_inputs_and_the_most_similar_are_shown() -> None:
    rows = Labels([*"abc"], axis="row")
    features = AxisFeatures.of(rows, Features.from_similarity(DRUGS, TABLE), np.array([3, 0, 1]))
    (column,) = features.encoding.columns
    assert column.labels == ("a", "c")  # type: ignore[attr-defined]
    assert features.encoding.decode(features.take(np.array([1]))) == {"similarity": ["a"]}


def test_features_join_others_of_other_labels(drugs: Features) -> None:
    sizes = Features.from_columns(["c", "d"], {"size": [1.5, 2.5]})
    both = sizes.join(drugs)
    assert both.labels.tolist() == ["c", "d", "a", "b"]
    assert both.kinds == {"size": "number", "similarity": "similarity"}
    assert np.array_equal(both.values("size"), [1.5, 2.5, np.nan, np.nan], equal_nan=True)
    assert [item is None for item in both.values("similarity")] == [False, True, False, False]
    with pytest.raises(BadFeatures, match="'size'"):
        both.join(sizes)
