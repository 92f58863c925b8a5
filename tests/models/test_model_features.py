"""Features given to models: what cannot be used is refused in a sentence, and nothing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.datasets import Generated, generate
from deepmf.errors import BadEntries, BadFeatures, BadModelFile, DeepMFWarning
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.autorec import UAutoRec
from deepmf.storage.model_file import read_file, write_file

ZOE = Features(["Zoe"], {"age": [31], "occupation": ["nurse"]})


@pytest.fixture(scope="module")
def rated() -> Generated:
    return generate(40, 30, density=0.3, explained=0.5, seed=0)


@pytest.fixture(scope="module", params=["means", "als"])
def model(request: pytest.FixtureRequest, rated: Generated) -> Model:
    new = Means() if request.param == "means" else ALS(epochs=3, latent_size=3)
    return new.fit(
        rated.matrix, row_features=rated.row_features, column_features=rated.column_features
    )


def refused(act: Callable[[], Any], said: str) -> None:
    with pytest.raises(BadFeatures, match=said) as error:
        act()
    assert "\n" not in str(error.value)


def test_bad_features_leave_an_unfitted_model_unfitted(rated: Generated) -> None:
    labels = rated.matrix.row_labels[:2].tolist()
    for features, said in (
        (Features(["nobody"], {"age": [3]}), "label"),
        (Features([1, 2], {"age": [3, 4]}), r"1 \(int\)"),
        (Features(labels, {"age": [None, None]}), "value"),
        (Features(labels, {"age": [1.0, np.inf]}), "infinite"),
        (Features(labels, {"age": ["a", "b"]}, kinds={"age": "number"}), "numbers"),
        ({"age": [1, 2]}, "dict"),
    ):
        means = Means()
        refused(
            lambda means=means, features=features: means.fit(rated.matrix, row_features=features),
            said,
        )  # type: ignore[misc]
        assert not means.is_fitted


def test_a_model_that_reads_none_refuses_them(rated: Generated) -> None:
    network = UAutoRec(hidden_size=4, epochs=1, device="cpu")
    refused(lambda: network.fit(rated.matrix, row_features=rated.row_features), "UAutoRec")
    assert not network.is_fitted


def test_features_that_fit_did_not_have(model: Model, rated: Generated) -> None:
    before = model.complete()
    height = Features(["Zoe"], {"age": [31], "height": [170]})
    said = "'height'"
    refused(lambda: model.extend(row_features=height), said)
    entries = ObservedMatrix.from_entries(
        ["Zoe"], rated.matrix.column_labels[:1], [4], rated.matrix.scale
    )
    refused(lambda: model.extend(entries, row_features=height), said)
    refused(lambda: model.fold_in(features={"height": 170}), said)
    refused(lambda: model.fold_in_column(features={"age": 3}), "'age'")
    refused(lambda: model.extend(row_features=Features(["Zoe"], {"age": ["old"]})), "numbers")
    assert "Zoe" not in model.row_labels_
    np.testing.assert_array_equal(model.complete(), before)


def test_ids_of_another_kind(model: Model) -> None:
    with pytest.raises(BadEntries, match="strs"):
        model.extend(row_features=Features([7], {"age": [31]}))


def test_features_where_fit_had_none(rated: Generated) -> None:
    plain = Means().fit(rated.matrix, column_features=rated.column_features)
    refused(lambda: plain.extend(row_features=ZOE), "without")
    refused(lambda: plain.fold_in(features={"age": 31}), "without")
    assert plain.fold_in_column(features={"year": 1979}).predict(plain.row_labels_[:1]).size == 1


def test_a_row_by_features_alone_is_the_same_however_it_comes(
    model: Model, rated: Generated, tmp_path: Path
) -> None:
    columns = model.column_labels_
    guest = model.fold_in(features={"age": 31, "occupation": "nurse"}).predict(columns)
    more = model.extend(row_features=ZOE)
    np.testing.assert_array_equal(more.predict(["Zoe"] * columns.size, columns), guest)
    more.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.complete(), more.complete())
    assert "Zoe" not in again.forget(rows=["Zoe"]).row_labels_
    row = rated.matrix.row_labels[0]
    assert rated.row_features is not None
    later = again.extend(row_features=rated.row_features.take(np.array([1])).relabel([row]))
    assert not np.array_equal(
        later.predict([row] * columns.size, columns), again.predict([row] * columns.size, columns)
    )
    assert [effect.name for effect in again.explain("Zoe", columns[0]).features] != []


def test_no_features_at_all_change_nothing_at_extend(model: Model) -> None:
    empty = Features([], {"age": []})
    np.testing.assert_array_equal(model.extend(row_features=empty).complete(), model.complete())


def test_warnings_come_from_the_call_of_fit(rated: Generated) -> None:
    names = rated.matrix.row_labels.tolist()
    with pytest.warns(DeepMFWarning) as told:
        Means().fit(
            rated.matrix, row_features=Features(names, {"name": names, "same": ["x"] * len(names)})
        )
    assert [warning.filename for warning in told] == [__file__] * 2


@pytest.mark.parametrize(
    "new",
    [
        Means(),
        ALS(epochs=3, latent_size=3),
        BayesianMF(epochs=5, latent_size=3, samples=2, device="cpu"),
        OrdinalDMF(epochs=2, device="cpu", hidden_sizes=(8,), latent_size=4, linear_iterations=4),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize(
    "in_matrix", [False, True], ids=["features alone", "empty row of the matrix"]
)
@pytest.mark.slow
def test_features_of_new_rows_do_not_move_predictions_of_known_ones(
    rated: Generated, new: Model, in_matrix: bool
) -> None:
    rows, columns, values = rated.matrix.entries()
    labels = [
        *rated.matrix.row_labels.tolist(),
        *(["new 1", "new 2", "new 3"] if in_matrix else []),
    ]
    train = ObservedMatrix.from_entries(
        rows, columns, values, rated.matrix.scale, row_labels=labels
    )
    assert rated.row_features is not None
    ages, jobs = (rated.row_features.values(name).tolist() for name in ("age", "occupation"))

    def predictions(new_ages: list[float], new_jobs: list[str]) -> Any:
        people = [*rated.row_features.labels.tolist(), "new 1", "new 2", "new 3"]  # type: ignore[union-attr]
        features = Features(people, {"age": [*ages, *new_ages], "occupation": [*jobs, *new_jobs]})
        return (
            type(new)(**new.own_settings)
            .fit(train, row_features=features, progress=False)
            .predict(rows, columns)
        )

    expected = predictions([30, 40, 50], [jobs[0]] * 3)
    found = predictions([300, 4000.5, 50000], ["astronaut"] * 3)
    # samples have half precision
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 if in_matrix else 0)


@pytest.mark.slow
def test_many_categories_and_constant_ones_are_learned_from_with_a_warning(
    rated: Generated,
) -> None:
    names = [*rated.matrix.row_labels.tolist(), *(f"person {number}" for number in range(100_000))]
    described = Features(
        names, {"name": names, "same": [1] * len(names), "age": np.arange(len(names)) % 70}
    )
    with pytest.warns(DeepMFWarning) as told:
        means = Means().fit(rated.matrix, row_features=described)
    said = [str(warning.message) for warning in told]
    assert any("'name'" in each and "too rare" in each for each in said)
    assert any("'same'" in each for each in said)
    assert len(means.row_labels_) == len(names)


def test_a_file_of_a_model_that_reads_none_has_none(rated: Generated, tmp_path: Path) -> None:
    path = tmp_path / "model"
    Means().fit(rated.matrix, row_features=rated.row_features).save(path)
    described = read_file(path, kind="model")
    UAutoRec(hidden_size=4, epochs=1, device="cpu").fit(rated.matrix).save(path)
    plain = read_file(path, kind="model")
    content = plain.content | {"row_features": described.content["row_features"]}
    features = {
        name: tensor
        for name, tensor in described.tensors.items()
        if name.startswith("row_features.")
    }
    write_file(path, kind="model", content=content, tensors=plain.tensors | features)
    with pytest.raises(BadModelFile, match="UAutoRec"):
        load(path)
