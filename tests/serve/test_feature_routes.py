"""The routes of features: they count at once, survive a restart, and can be forgotten."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import StartClient

from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means

ANN: dict[str, Any] = {"group": "low", "age": 30, "likes": ["Drama", "Comedy"]}


@pytest.fixture
def client(start_client: StartClient, featured: Model) -> TestClient:
    return start_client(featured)


def predicted(client: TestClient, row: str, columns: list[str]) -> list[float]:
    pairs = [{"row": row, "column": column} for column in columns]
    answer = client.post("/v1/predict", json={"pairs": pairs})
    assert answer.status_code == 200, answer.text
    return [one["expected"] for one in answer.json()["predictions"]]


def of(client: TestClient, row: str) -> dict[str, Any]:
    answer = client.get(f"/v1/rows/{row}/features")
    assert answer.status_code == 200, answer.text
    features: dict[str, Any] = answer.json()["features"]
    return features


def test_a_row_with_features_alone_counts_in_the_very_next_answer(
    client: TestClient, featured: Model, ratings: ObservedMatrix
) -> None:
    films = ratings.column_labels[:5].tolist()
    assert client.get("/v1/rows/Wilma/features").status_code == 404
    answer = client.put("/v1/rows/Wilma/features", json={"features": ANN})
    assert answer.status_code == 200
    assert answer.json() == {
        "axis": "row",
        "id": "Wilma",
        "n_entries": 3,
        "n_changed": 3,
        "n_forgotten": 0,
        "etag": answer.headers["etag"],
        "version": {"model": 1, "data": 1},
    }
    guest = featured.fold_in(features=ANN)
    np.testing.assert_allclose(predicted(client, "Wilma", films), guest.predict(films), rtol=1e-5)
    assert of(client, "Wilma") == {"group": "low", "age": 30.0, "likes": ["Comedy", "Drama"]}
    found = client.post("/v1/recommend", json={"row": "Wilma", "n": 3}).json()
    assert [one["column"] for one in found["best"]] == guest.recommend(3).labels.tolist()
    client.patch("/v1/rows/Wilma/entries", json={"entries": [{"column": films[0], "value": 5}]})
    with_entry = featured.fold_in(films[:1], [5], features=ANN)
    np.testing.assert_allclose(
        predicted(client, "Wilma", films), with_entry.predict(films), rtol=1e-5
    )


def test_a_guest_may_have_features(
    client: TestClient, featured: Model, ratings: ObservedMatrix
) -> None:
    films = ratings.column_labels[:4].tolist()
    history = [{"column": films[0], "value": 5}, {"column": films[1], "value": 1}]
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"features": ANN}, featured.fold_in(features=ANN)),
        ({"history": history, "features": ANN}, featured.fold_in(films[:2], [5, 1], features=ANN)),
        ({"history": history}, featured.fold_in(films[:2], [5, 1])),
    ]
    for asked, guest in cases:
        answer = client.post("/v1/predict", json={**asked, "columns": films}).json()
        np.testing.assert_allclose(
            [one["expected"] for one in answer["predictions"]], guest.predict(films), rtol=1e-5
        )
        best = client.post("/v1/recommend", json={**asked, "n": 2, "reasons": 2}).json()["best"]
        assert [one["column"] for one in best] == guest.recommend(2).labels.tolist()
        said = client.post("/v1/explain", json={**asked, "column": films[3], "n": 9}).json()
        explained = guest.explain(films[3], 9)
        assert [one["column"] for one in said["entries"]] == explained.labels.tolist()
        assert [(one["name"], one["value"]) for one in said["features"]] == [
            each[:2] for each in explained.features
        ]
        np.testing.assert_allclose(
            [one["effect"] for one in said["features"]],
            [each.effect for each in explained.features],
            atol=1e-5,
        )
        assert len(best[0]["feature_reasons"]) == min(2, len(explained.features))
    assert client.get("/v1/model").json()["version"]["data"] == 0


def test_reasons_of_a_known_row_count_its_features(
    client: TestClient, featured: Model, ratings: ObservedMatrix
) -> None:
    row = ratings.row_labels[0]
    best = client.post("/v1/recommend", json={"row": row, "n": 2, "reasons": 3}).json()["best"]
    for one in best:
        found = featured.explain(row, one["column"], 3)
        assert [reason["column"] for reason in one["reasons"]] == found.labels.tolist()
        np.testing.assert_allclose(
            [reason["effect"] for reason in one["reasons"]], found.effects, atol=1e-5
        )
        assert [reason["value"] for reason in one["feature_reasons"]] == [
            each.value for each in found.features
        ]
    cold = client.post("/v1/explain", json={"row": "cold", "column": best[0]["column"]}).json()
    assert cold["entries"] == [] and {one["name"] for one in cold["features"]} == {
        "group",
        "age",
        "likes",
    }


def test_a_category_that_the_model_does_not_tell_apart(client: TestClient) -> None:
    path = "/v1/rows/Wilma/features"
    assert client.put(path, json={"features": {"group": "unheard of"}}).json()["n_entries"] == 0
    assert client.get(path).json()["features"] == {}
    assert client.put("/v1/rows/Wilma/entries", json={"entries": []}).status_code == 200
    assert client.get(path).status_code == 200  # it has features, if only such
    client.delete(path)
    assert client.get(path).status_code == 404


def test_columns_have_features_too(
    client: TestClient, featured: Model, ratings: ObservedMatrix
) -> None:
    people = ratings.row_labels[:3].tolist()
    values = {"genre": "a", "year": 1977}
    assert (
        client.put("/v1/columns/Opening/features", json={"features": values}).json()["axis"]
        == "column"
    )
    found = client.get("/v1/columns", params={"search": "openi"}).json()["columns"][0]
    assert found == {
        "column": "Opening",
        "n_entries": 0,
        "trained": False,
        "shown": True,
        "features": {"genre": "a", "year": 1977.0},
    }
    guest = featured.fold_in_column(features=values)
    pairs = [{"row": row, "column": "Opening"} for row in people]
    answer = client.post("/v1/predict", json={"pairs": pairs}).json()
    np.testing.assert_allclose(
        [one["expected"] for one in answer["predictions"]], guest.predict(people), rtol=1e-5
    )
    assert client.delete("/v1/columns/Opening/features").json()["n_entries"] == 0
    assert client.get("/v1/columns/Opening/features").status_code == 404


def test_features_of_trained_rows_are_replaced_and_forgotten(
    client: TestClient, featured: Model, ratings: ObservedMatrix
) -> None:
    row, films = ratings.row_labels[0], ratings.column_labels[:5].tolist()
    before, known = predicted(client, row, films), of(client, row)
    assert set(known) == {"group", "age", "likes"}
    other = {"group": "high" if known["group"] == "low" else "low"}
    client.put(f"/v1/rows/{row}/features", json={"features": other})
    assert of(client, row) == other and predicted(client, row, films) != before
    client.delete(f"/v1/rows/{row}/features")
    expected = featured.forget(row_features=[row]).predict([row] * 5, films)
    np.testing.assert_allclose(predicted(client, row, films), expected, rtol=1e-5)
    assert of(client, row) == {}
    again = client.delete(f"/v1/rows/{row}/features").json()  # there is nothing left to forget
    assert again["version"]["data"] == 2


@pytest.mark.slow
def test_a_restart_and_another_process_see_them(
    start_client: StartClient, featured: Model, ratings: ObservedMatrix, url: str
) -> None:
    first, second = start_client(featured, url=url), start_client(featured, url=url)
    row, films = ratings.row_labels[3], ratings.column_labels[:5].tolist()
    first.put("/v1/rows/Wilma/features", json={"features": ANN})
    first.put(
        "/v1/rows/Fred/features", json={"features": {"likes": ["Drama", "Comedy"], "age": None}}
    )
    first.put("/v1/columns/Opening/features", json={"features": {"year": 1990}})
    first.put(f"/v1/rows/{row}/features", json={"features": {"age": 70.5}})
    first.delete(f"/v1/rows/{ratings.row_labels[4]}/features")
    first.delete("/v1/rows/cold/entries")
    first.delete("/v1/rows/Fred/features")
    # A write sees all others first, whatever process they came by.
    assert (
        second.patch("/v1/rows/Wilma/entries", json={"entries": []}).json()["version"]["data"] == 7
    )
    for client in (second, start_client(featured, url=url)):
        np.testing.assert_allclose(
            predicted(client, row, films), predicted(first, row, films), rtol=1e-5
        )
        np.testing.assert_allclose(
            predicted(client, "Wilma", films), predicted(first, "Wilma", films), rtol=1e-5
        )
        assert of(client, "Wilma") == of(first, "Wilma") and of(client, row) == {"age": 70.5}
        assert of(client, ratings.row_labels[4]) == {}
        for gone in ("Fred", "cold"):
            assert client.get(f"/v1/rows/{gone}/features").status_code == 404
        assert client.get("/v1/columns/Opening/features").json()["features"] == {"year": 1990.0}


def test_they_are_forgotten_with_the_row(client: TestClient, ratings: ObservedMatrix) -> None:
    film, row = ratings.column_labels[0], ratings.row_labels[0]
    client.put("/v1/rows/Wilma/features", json={"features": ANN})
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    client.put("/v1/rows/Wilma/entries", json={"entries": []})
    assert of(client, "Wilma")["group"] == "low"  # it is known by its features
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    client.delete("/v1/rows/Wilma/features")
    assert client.get("/v1/rows/Wilma/entries").json()["n_entries"] == 1  # and by its entries
    client.put("/v1/rows/Wilma/features", json={"features": ANN})
    client.delete("/v1/rows/Wilma/entries")
    assert client.get("/v1/rows/Wilma/features").status_code == 404
    client.delete(f"/v1/rows/{row}/entries")
    assert of(client, row) == {}


def test_nothing_of_them_stays_in_the_file(
    start_client: StartClient, featured: Model, tmp_path: Any
) -> None:
    client = start_client(featured, url=str(tmp_path / "own.sqlite"))
    client.put("/v1/rows/Wilma/features", json={"features": {"group": "a very private group"}})
    client.delete("/v1/rows/Wilma/entries")
    client.__exit__(None, None, None)
    assert b"very private" not in (tmp_path / "own.sqlite").read_bytes()


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"features": {"hair": "red"}}, "bad_features", "'hair'; it knows group, age"),
        ({"features": {"age": "old"}}, "bad_features", "'age' cannot be read as numbers"),
        ({"features": {"age": ["old"]}}, "bad_features", "'age' cannot be read as numbers"),
        ({"features": {"group": ["a", "b"]}}, "bad_features", "'group' cannot be read"),
        (
            {"features": {"age": {"years": 3}}},
            "invalid",
            "body.features.age: Input should be a number, a text, a list",
        ),
        ({"features": {"likes": [True]}}, "invalid", "body.features.likes"),
        ({"features": {}}, "invalid", "at least 1"),
        ({"features": {"likes": ["x"] * 2000}}, "invalid", "at most 1000"),
        ({"features": {"group": "x" * 2000}}, "invalid", "at most 1000"),
        ({"features": [["age", 3]]}, "invalid", "valid dictionary"),
        ({}, "invalid", "required"),
    ],
    ids=range(11),
)
def test_bad_features_change_nothing(
    client: TestClient, body: Any, code: str, message: str
) -> None:
    answer = client.put("/v1/rows/Wilma/features", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, code), answer.text
    assert message in answer.json()["error"]["message"]
    assert client.get("/v1/rows/Wilma/features").status_code == 404
    assert client.get("/v1/model").json()["version"]["data"] == 0


def test_bad_questions(client: TestClient, ratings: ObservedMatrix) -> None:
    film, row = ratings.column_labels[0], ratings.row_labels[0]
    for path, body in (
        ("recommend", {"row": row, "features": ANN}),
        ("explain", {"row": row, "features": ANN, "column": film}),
        ("predict", {"pairs": [{"row": row, "column": film}], "features": ANN}),
        ("predict", {"features": ANN}),
        ("recommend", {"features": {"hair": 1}}),
    ):
        answer = client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 422, answer.text


def test_a_model_without_features_says_so(
    start_client: StartClient, als: ALS, ratings: ObservedMatrix
) -> None:
    client = start_client(als)
    for answer in (
        client.put("/v1/rows/Wilma/features", json={"features": ANN}),
        client.post("/v1/recommend", json={"features": ANN}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_features")
    assert client.get(f"/v1/rows/{ratings.row_labels[0]}/features").json()["features"] == {}
    model = client.get("/v1/model").json()
    assert model["row_features"] == model["column_features"] == []
    assert client.get("/v1/columns").json()["columns"][0]["features"] is None


def test_the_model_lists_its_features(client: TestClient) -> None:
    model = client.get("/v1/model").json()
    assert model["row_features"] == [
        {"name": "group", "kind": "category", "categories": ["high", "low"], "n_categories": 2},
        {"name": "age", "kind": "number", "categories": None, "n_categories": None},
        {"name": "likes", "kind": "list", "categories": ["Comedy", "Drama"], "n_categories": 2},
    ]
    assert [each["name"] for each in model["column_features"]] == ["genre", "year"]


@pytest.mark.slow
def test_the_next_model_reads_what_it_can(
    start_client: StartClient,
    featured: Model,
    als: ALS,
    ratings: ObservedMatrix,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start_client(featured).put("/v1/rows/Wilma/features", json={"features": ANN})
    with caplog.at_level(logging.WARNING, logger="deepmf.serve"):
        assert start_client(als).get("/v1/rows/Wilma/features").status_code == 404
    assert "does not read" in caplog.text
    ages = Features.from_columns(
        ratings.row_labels, {"age": np.arange(ratings.shape[0]) * 1.5, "group": np.arange(60)}
    )
    client = start_client(Means().fit(ratings, row_features=ages))
    assert of(client, "Wilma") == {"age": 30.0}
    assert of(start_client(featured), "Wilma")["group"] == "low"  # nothing is lost


def test_conditions_on_column_features_choose_the_columns(
    client: TestClient, featured: Model
) -> None:
    row = str(featured.row_labels_[0])
    request = {"row": row, "n": 5, "where": {"genre": {"any": ["a"]}, "year": {"min": 1970}}}
    found = client.post("/v1/recommend", json=request).json()["best"]
    wanted = featured.recommend(row, 5, where={"genre": "a", "year": {"min": 1970}})
    assert [one["column"] for one in found] == wanted.labels.tolist()
    for where, status in (
        ({"colour": {"any": ["red"]}}, 422),
        ({"genre": {"any": ["z"]}}, 422),
        ({"genre": {"min": 3}}, 422),
        ({"year": {}}, 422),
        ({"year": {"low": 3}}, 422),
        ({}, 422),
    ):
        assert client.post("/v1/recommend", json={"row": row, "where": where}).status_code == status


def test_conditions_need_a_model_with_features(start_client: StartClient, als: Model) -> None:
    request = {"row": str(als.row_labels_[0]), "where": {"year": {"min": 3}}}
    assert start_client(als).post("/v1/recommend", json=request).status_code == 409
