"""The routes of features: they count at once, survive a restart, and can be forgotten."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from tests.serve.conftest import Caller, StartClient, list_history, refusal

from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.means import Means

ANN: dict[str, Any] = {"group": "low", "age": 30, "likes": ["Drama", "Comedy"]}


@pytest.fixture
def client(start_client: StartClient, featured: Model) -> Caller:
    return start_client(featured)


@pytest.fixture
def films(ratings: ObservedMatrix) -> list[str]:
    names: list[str] = ratings.column_labels[:5].tolist()
    return names


def put(client: Caller, place: str, **features: Any) -> Any:
    return client.put(f"/v1/{place}/features", json={"features": features})


def read(client: Caller, row: str) -> Any:
    answer = client.get(f"/v1/rows/{row}/features")
    assert answer.status_code == 200, answer.text
    return answer.json()["features"]


def assert_predicts(client: Caller, row: str, films: list[str], expected: Any) -> None:
    values = client.predict([row] * len(films), films)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_a_row_with_features_alone_counts_in_the_very_next_answer(
    client: Caller, featured: Model, films: list[str]
) -> None:
    assert client.get("/v1/rows/Wilma/features").status_code == 404
    answer = put(client, "rows/Wilma", **ANN)
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
    assert_predicts(client, "Wilma", films, guest.predict(films))
    assert read(client, "Wilma") == {"group": "low", "age": 30.0, "likes": ["Comedy", "Drama"]}
    assert client.best(row="Wilma", n=3) == guest.recommend(3).labels.tolist()
    client.write("Wilma", {films[0]: 5}, method="PATCH")
    with_entry = featured.fold_in(films[:1], [5], features=ANN)
    assert_predicts(client, "Wilma", films, with_entry.predict(films))


def test_a_guest_may_have_features(client: Caller, featured: Model, films: list[str]) -> None:
    history = list_history({films[0]: 5, films[1]: 1})
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"features": ANN}, featured.fold_in(features=ANN)),
        ({"history": history, "features": ANN}, featured.fold_in(films[:2], [5, 1], features=ANN)),
        ({"history": history}, featured.fold_in(films[:2], [5, 1])),
    ]
    for asked, guest in cases:
        predictions = client.ask("predict", **asked, columns=films)["predictions"]
        values = [one["expected"] for one in predictions]
        np.testing.assert_allclose(values, guest.predict(films), rtol=1e-5)
        best = client.ask("recommend", **asked, n=2, reasons=2)["best"]
        assert [one["column"] for one in best] == guest.recommend(2).labels.tolist()
        answer = client.ask("explain", **asked, column=films[3], n=9)
        explained = guest.explain(films[3], 9)
        assert [one["column"] for one in answer["entries"]] == explained.labels.tolist()
        named = [(one["name"], one["value"]) for one in answer["features"]]
        assert named == [reason[:2] for reason in explained.features]
        effects = [one["effect"] for one in answer["features"]]
        expected = [reason.effect for reason in explained.features]
        np.testing.assert_allclose(effects, expected, atol=1e-5)
        assert len(best[0]["feature_reasons"]) == min(2, len(explained.features))
    assert client.get("/v1/model").json()["version"]["data"] == 0


def test_reasons_of_a_known_row_count_its_features(
    client: Caller, featured: Model, ratings: ObservedMatrix
) -> None:
    row = ratings.row_labels[0]
    best = client.ask("recommend", row=row, n=2, reasons=3)["best"]
    for one in best:
        explained = featured.explain(row, one["column"], 3)
        assert [reason["column"] for reason in one["reasons"]] == explained.labels.tolist()
        effects = [reason["effect"] for reason in one["reasons"]]
        np.testing.assert_allclose(effects, explained.effects, atol=1e-5)
        values = [reason["value"] for reason in one["feature_reasons"]]
        assert values == [reason.value for reason in explained.features]
    cold = client.ask("explain", row="cold", column=best[0]["column"])
    assert cold["entries"] == []
    assert {one["name"] for one in cold["features"]} == {"group", "age", "likes"}


def test_a_new_column_comes_by_its_similarity(
    start_client: StartClient, ratings: ObservedMatrix
) -> None:
    places = np.random.default_rng(0).normal(size=(len(ratings.column_labels), 2))
    similar = np.exp(-np.square(places[:, None] - places).sum(axis=2))
    features = Features.from_similarity(ratings.column_labels, similar)
    model = Means(presence=None).fit(ratings, column_features=features)
    client = start_client(model)
    near = dict(zip(ratings.column_labels[:3].tolist(), [0.9, 0.2, 0.1], strict=True))
    assert put(client, "columns/Sequel", similarity=near).status_code == 200
    answer = client.get("/v1/columns/Sequel/features").json()
    assert answer["features"] == {"similarity": list(near)}
    people = ratings.row_labels[:3].tolist()
    expected = model.fold_in_column(features={"similarity": near}).predict(people)
    np.testing.assert_allclose(client.predict(people, ["Sequel"] * 3), expected, rtol=1e-5)
    refused = put(client, "columns/Stranger", similarity={"nobody": 1.0})
    assert refusal(refused) == (422, "bad_features")


def test_a_category_that_the_model_does_not_tell_apart(client: Caller) -> None:
    path = "/v1/rows/Wilma/features"
    assert put(client, "rows/Wilma", group="unheard of").json()["n_entries"] == 0
    assert read(client, "Wilma") == {}
    assert client.write("Wilma").status_code == 200
    assert client.get(path).status_code == 200  # it has features, if only such
    client.delete(path)
    assert client.get(path).status_code == 404


def test_columns_have_features_too(
    client: Caller, featured: Model, ratings: ObservedMatrix
) -> None:
    people, values = ratings.row_labels[:3].tolist(), {"genre": "a", "year": 1977}
    assert put(client, "columns/Opening", **values).json()["axis"] == "column"
    (column,) = client.get("/v1/columns", params={"search": "openi"}).json()["columns"]
    assert column == {
        "column": "Opening",
        "n_entries": 0,
        "trained": False,
        "shown": True,
        "features": {"genre": "a", "year": 1977.0},
    }
    expected = featured.fold_in_column(features=values).predict(people)
    np.testing.assert_allclose(client.predict(people, ["Opening"] * 3), expected, rtol=1e-5)
    assert client.delete("/v1/columns/Opening/features").json()["n_entries"] == 0
    assert client.get("/v1/columns/Opening/features").status_code == 404


def test_features_of_trained_rows_are_replaced_and_forgotten(
    client: Caller, featured: Model, ratings: ObservedMatrix, films: list[str]
) -> None:
    row = ratings.row_labels[0]
    before, known = client.predict([row] * 5, films), read(client, row)
    assert set(known) == {"group", "age", "likes"}
    other = {"group": "high" if known["group"] == "low" else "low"}
    put(client, f"rows/{row}", **other)
    assert read(client, row) == other and client.predict([row] * 5, films) != before
    client.delete(f"/v1/rows/{row}/features")
    forgotten = featured.forget(row_features=[row])
    assert_predicts(client, row, films, forgotten.predict([row] * 5, films))
    assert read(client, row) == {}
    again = client.delete(f"/v1/rows/{row}/features").json()  # there is nothing left to forget
    assert again["version"]["data"] == 2


@pytest.mark.slow
def test_a_restart_and_another_process_see_them(
    start_client: StartClient, featured: Model, ratings: ObservedMatrix, films: list[str], url: str
) -> None:
    first, second = start_client(featured, url=url), start_client(featured, url=url)
    row, bare = ratings.row_labels[3:5].tolist()
    put(first, "rows/Wilma", **ANN)
    put(first, "rows/Fred", likes=["Drama", "Comedy"], age=None)
    put(first, "columns/Opening", year=1990)
    put(first, f"rows/{row}", age=70.5)
    first.delete(f"/v1/rows/{bare}/features")
    first.forget("cold")
    first.delete("/v1/rows/Fred/features")
    # A write sees all others first, whatever process they came by.
    assert second.write("Wilma", method="PATCH").json()["version"]["data"] == 7
    for client in (second, start_client(featured, url=url)):
        for name in (row, "Wilma"):
            assert_predicts(client, name, films, first.predict([name] * 5, films))
        assert read(client, "Wilma") == read(first, "Wilma")
        assert (read(client, row), read(client, bare)) == ({"age": 70.5}, {})
        for gone in ("Fred", "cold"):
            assert client.get(f"/v1/rows/{gone}/features").status_code == 404
        assert client.get("/v1/columns/Opening/features").json()["features"] == {"year": 1990.0}


def test_they_are_forgotten_with_the_row(
    client: Caller, ratings: ObservedMatrix, films: list[str]
) -> None:
    row = ratings.row_labels[0]
    put(client, "rows/Wilma", **ANN)
    client.write("Wilma", {films[0]: 5})
    client.write("Wilma")
    assert read(client, "Wilma")["group"] == "low"  # it is known by its features
    client.write("Wilma", {films[0]: 5})
    client.delete("/v1/rows/Wilma/features")
    assert client.read("Wilma") == {films[0]: 5}  # and by its entries
    put(client, "rows/Wilma", **ANN)
    client.forget("Wilma")
    assert client.get("/v1/rows/Wilma/features").status_code == 404
    client.forget(row)
    assert read(client, row) == {}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"features": {"hair": "red"}}, "bad_features", "'hair'; it knows group, age"),
        ({"features": {"age": "old"}}, "bad_features", "'age'"),
        ({"features": {"age": ["old"]}}, "bad_features", "'age'"),
        ({"features": {"group": ["a", "b"]}}, "bad_features", "'group'"),
        ({"features": {"age": {"years": 3}}}, "bad_features", "'age'"),
        ({"features": {"age": {"years": "x"}}}, "invalid", "body.features.age"),
        ({"features": {"likes": [True]}}, "invalid", "body.features.likes"),
        ({"features": {}}, "invalid", "at least 1"),
        ({"features": {"likes": ["x"] * 2000}}, "invalid", "at most 1000"),
        ({"features": {"group": "x" * 2000}}, "invalid", "at most 1000"),
        ({"features": [["age", 3]]}, "invalid", "valid dictionary"),
        ({}, "invalid", "required"),
    ],
    ids=range(12),
)
def test_bad_features_change_nothing(client: Caller, body: Any, code: str, message: str) -> None:
    answer = client.put("/v1/rows/Wilma/features", json=body)
    assert refusal(answer) == (422, code)
    assert message in answer.json()["error"]["message"]
    assert client.get("/v1/rows/Wilma/features").status_code == 404
    assert client.get("/v1/model").json()["version"]["data"] == 0


def test_bad_questions(client: Caller, ratings: ObservedMatrix, films: list[str]) -> None:
    film, row = films[0], ratings.row_labels[0]
    for path, body in (
        ("recommend", {"row": row, "features": ANN}),
        ("explain", {"row": row, "features": ANN, "column": film}),
        ("predict", {"pairs": [{"row": row, "column": film}], "features": ANN}),
        ("predict", {"features": ANN}),
        ("recommend", {"features": {"hair": 1}}),
    ):
        assert client.post(f"/v1/{path}", json=body).status_code == 422


def test_a_model_without_features_says_so(
    start_client: StartClient, ratings: ObservedMatrix
) -> None:
    client, row = start_client(), ratings.row_labels[0]
    for answer in (
        put(client, "rows/Wilma", **ANN),
        client.post("/v1/recommend", json={"features": ANN}),
        client.post("/v1/recommend", json={"row": row, "where": {"year": {"min": 3}}}),
    ):
        assert refusal(answer) == (409, "no_features")
    assert read(client, row) == {}
    model = client.get("/v1/model").json()
    assert model["row_features"] == model["column_features"] == []
    assert client.get("/v1/columns").json()["columns"][0]["features"] is None


def test_the_model_lists_its_features(client: Caller) -> None:
    model = client.get("/v1/model").json()
    assert model["row_features"] == [
        {"name": "group", "kind": "category", "categories": ["high", "low"], "n_categories": 2},
        {"name": "age", "kind": "number", "categories": None, "n_categories": None},
        {"name": "likes", "kind": "list", "categories": ["Comedy", "Drama"], "n_categories": 2},
    ]
    assert [one["name"] for one in model["column_features"]] == ["genre", "year"]


@pytest.mark.slow
def test_the_next_model_reads_what_it_can(
    start_client: StartClient,
    featured: Model,
    ratings: ObservedMatrix,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(start_client(featured), "rows/Wilma", **ANN)
    with caplog.at_level(logging.WARNING, logger="deepmf.serve"):
        assert start_client().get("/v1/rows/Wilma/features").status_code == 404
    assert "does not read" in caplog.text
    ages = {"age": np.arange(ratings.shape[0]) * 1.5, "group": np.arange(60)}
    people = Features.from_columns(ratings.row_labels, ages)
    client = start_client(Means().fit(ratings, row_features=people))
    assert read(client, "Wilma") == {"age": 30.0}
    assert read(start_client(featured), "Wilma")["group"] == "low"  # nothing is lost


def test_conditions_on_column_features_choose_the_columns(client: Caller, featured: Model) -> None:
    row = str(featured.row_labels_[0])
    best = client.best(row=row, n=5, where={"genre": {"any": ["a"]}, "year": {"min": 1970}})
    wanted = featured.recommend(row, 5, where={"genre": "a", "year": {"min": 1970}})
    assert best == wanted.labels.tolist()
    for where in (
        {"colour": {"any": ["red"]}},
        {"genre": {"any": ["z"]}},
        {"genre": {"min": 3}},
        {"year": {}},
        {"year": {"low": 3}},
        {},
    ):
        assert client.post("/v1/recommend", json={"row": row, "where": where}).status_code == 422
