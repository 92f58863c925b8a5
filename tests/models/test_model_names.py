"""Names in models: shown by rankings and explanations, stored, extended and forgotten with their
ids."""

from pathlib import Path

import numpy as np
import polars
import pytest

from deepmf import ALS, Features, Means, ObservedMatrix, load
from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.names import Names
from deepmf.matrix.stored import pack_names, unpack_names

TITLES = {column: f"Film {column}" for column in range(12)}


@pytest.fixture(scope="module")
def matrix() -> ObservedMatrix:
    dice = np.random.default_rng(0)
    rows, columns = np.nonzero(dice.random((30, 12)) < 0.5)
    return ObservedMatrix.from_entries(rows, columns, dice.integers(1, 6, rows.size))


@pytest.fixture(scope="module")
def model(matrix: ObservedMatrix) -> ALS:
    return ALS(latent_size=3, epochs=3, seed=0).fit(
        matrix, column_names=TITLES, row_names={0: "Ann"}
    )


def test_names_lie_beside_ids(model: ALS) -> None:
    found = model.recommend([0, 1], n=3)
    assert found.names is not None
    assert found.names.tolist() == [
        [TITLES[label] for label in line] for line in found.labels.tolist()
    ]
    explained = model.explain(0, 3)
    for named in (
        model.recommend(0),
        model.fold_in([1, 2], [5, 4]).recommend(),
        model.similar_columns(3),
        explained,
    ):
        assert named.names is not None
        assert named.names.tolist() == [TITLES[label] for label in named.labels.tolist()]
    assert [each.name for each in explained.presence] == [
        TITLES[each.label] for each in explained.presence
    ]
    others = model.similar_rows(1, n=29)
    assert others.names is not None and others.names[others.labels == 0].tolist() == ["Ann"]


def test_files_of_recommendations_have_names(model: ALS, tmp_path: Path) -> None:
    model.recommend_to(tmp_path / "top.parquet", [0, 1], n=2)
    frame = polars.read_parquet(tmp_path / "top.parquet")
    assert frame["row_name"].to_list() == ["Ann", "Ann", None, None]
    assert frame["column_name"].to_list() == [TITLES[column] for column in frame["column"]]


@pytest.mark.parametrize("name", ["model.safetensors", "folder.model"])
def test_names_are_stored(model: ALS, tmp_path: Path, name: str) -> None:
    model.save(tmp_path / name)
    again = load(tmp_path / name)
    assert dict(again.column_names_) == TITLES
    assert dict(again.row_names_) == {0: "Ann"}


def test_names_are_kept_by_extensions_and_forgotten_with_their_rows(
    model: ALS, matrix: ObservedMatrix
) -> None:
    more = model.extend(ObservedMatrix.from_entries([99], [3], [5], scale=matrix.scale)).with_names(
        rows={99: "Zoe"}
    )
    assert dict(more.row_names_) == {0: "Ann", 99: "Zoe"}
    assert dict(model.row_names_) == {0: "Ann"}
    assert dict(more.forget(rows=[99]).row_names_) == {0: "Ann"}
    assert dict(more.forget(rows=[0, 99]).row_names_) == {}


def test_a_feature_may_hold_the_names(matrix: ObservedMatrix) -> None:
    films = Features.from_columns(
        range(12), {"title": [f"T{k}" for k in range(12)], "year": range(1990, 2002)}
    )
    model = Means(seed=0).fit(matrix, column_features=films, column_names="title")
    assert model.column_names_[4] == "T4"
    assert model.entries_.column_features is not None
    assert model.entries_.column_features.encoding.names == ("year",)


def test_interactions_have_names() -> None:
    clicks = ObservedMatrix.from_interactions(["a", "a", "b", "c"], [1, 2, 2, 3])
    model = ALS(latent_size=2, seed=0).fit(clicks, column_names={3: "Three"})
    found = model.recommend("a", n=1)
    assert found.names is not None and found.names.tolist() == ["Three"]


def test_wrong_names_are_refused_before_training(matrix: ObservedMatrix) -> None:
    model = Means(seed=0)
    with pytest.raises(BadSetting, match="'x'"):
        model.fit(matrix, column_names={"x": "y"})
    assert not model.is_fitted


def test_damaged_names_are_refused() -> None:
    packed = pack_names(Names({1: "a", 2: "b"}, axis="row"), "n")
    packed.tensors["n.starts"] = np.array([0, 2])
    with pytest.raises(BadModelFile, match="n.starts"):
        unpack_names("n", *packed, axis="row")
