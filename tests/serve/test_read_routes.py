"""Routes that answer: they say what the library says, and where, and of which version."""

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import Started

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.factorization.rankk import RankK
from deepmf.models.means import Means
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF


def test_predictions_are_the_models(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    rows, columns = ratings.row_labels[:3].tolist(), ratings.column_labels[:3].tolist()
    pairs = [{"row": row, "column": column} for row, column in zip(rows, columns, strict=True)]
    answer = client.post("/v1/predict", json={"pairs": pairs})
    assert answer.status_code == 200
    found = answer.json()
    assert [one["expected"] for one in found["predictions"]] == als.predict(rows, columns).tolist()
    assert [one["level"] for one in found["predictions"]] == als.predict_levels(rows, columns).tolist()
    assert {one["area"] for one in found["predictions"]} == {"I"}
    assert found["version"] == {"model": 1, "data": 0}
    assert found["predictions"][0]["distribution"] is None


def test_distributions_and_intervals_are_the_models(
    started: Started, ordinal: OrdinalDMF, ratings: ObservedMatrix
) -> None:
    row, column = ratings.row_labels[0], ratings.column_labels[0]
    found = started(ordinal).post("/v1/predict", json={"pairs": [{"row": row, "column": column}]}).json()
    (one,) = found["predictions"]
    assert [chance["level"] for chance in one["distribution"]] == ordinal.support_.tolist()
    np.testing.assert_allclose(
        [chance["probability"] for chance in one["distribution"]], ordinal.predict_distribution([row], [column])[0]
    )
    low, high = ordinal.predict_interval([row], [column], coverage=0.9)
    assert one["interval"] == {"low": low[0], "high": high[0], "coverage": 0.9}


def test_unknown_pairs_get_what_was_asked_for(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    pairs = [{"row": "nobody", "column": ratings.column_labels[0]}]
    refused = client.post("/v1/predict", json={"pairs": pairs})
    assert refused.status_code == 404
    assert refused.json() == {"error": {"code": "unknown_row", "message": "row 'nobody' is not known"}}
    (empty,) = client.post("/v1/predict", json={"pairs": pairs, "unknown": "nan"}).json()["predictions"]
    assert (empty["expected"], empty["level"], empty["area"]) == (None, None, None)
    (mean,) = client.post("/v1/predict", json={"pairs": pairs, "unknown": "fallback"}).json()["predictions"]
    assert mean["expected"] == als.predict(["nobody"], ratings.column_labels[:1], unknown="fallback")[0]


def test_a_known_row_gets_the_best_columns(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    row = ratings.row_labels[0]
    found = client.post("/v1/recommend", json={"row": row, "n": 5}).json()
    best = als.recommend(row, 5)
    assert [one["column"] for one in found["best"]] == best.labels.tolist()
    np.testing.assert_allclose([one["expected"] for one in found["best"]], best.values, rtol=1e-5)
    assert found["row"] == row


def test_a_history_gets_what_its_fold_in_says(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    films = ratings.column_labels[:3].tolist()
    history = [{"column": film, "value": value} for film, value in zip(films, [5, 1, 4], strict=True)]
    guest = als.fold_in(films, [5, 1, 4])
    found = client.post("/v1/recommend", json={"history": history, "n": 3, "reasons": 2}).json()
    np.testing.assert_allclose([one["expected"] for one in found["best"]], guest.recommend(3).values, rtol=1e-5)
    assert {one["area"] for one in found["best"]} == {"II"}
    reasons = found["best"][0]["reasons"]
    explained = guest.explain(found["best"][0]["column"], 2)
    assert [one["column"] for one in reasons] == explained.labels.tolist()
    np.testing.assert_allclose([one["effect"] for one in reasons], explained.effects, rtol=1e-4)
    other = ratings.column_labels[7]
    asked = {"history": history, "columns": [other]}
    (predicted,) = client.post("/v1/predict", json=asked).json()["predictions"]
    np.testing.assert_allclose(predicted["expected"], guest.predict([other])[0])
    assert client.get("/v1/model").json()["version"]["data"] == 0


def test_choices_of_columns_are_kept(client: TestClient, ratings: ObservedMatrix) -> None:
    row, films = ratings.row_labels[0], ratings.column_labels[:10].tolist()
    asked = {"row": row, "n": 20, "among": films, "exclude": films[:2], "include_observed": True}
    found = [one["column"] for one in client.post("/v1/recommend", json=asked).json()["best"]]
    assert sorted(found) == sorted(films[2:])


@pytest.mark.parametrize("known", [True, False])
def test_columns_with_few_entries_are_left_out(
    client: TestClient, als: ALS, ratings: ObservedMatrix, known: bool
) -> None:
    row, least = ratings.row_labels[0], int(np.median(ratings.column_counts))
    history = [{"column": ratings.column_labels[0], "value": 5}]
    asked = {"row": row} if known else {"history": history}
    answer = client.post("/v1/recommend", json={**asked, "n": 20, "min_entries": least}).json()
    model = als if known else als.fold_in([history[0]["column"]], [5])
    given: list[Any] = [row] if known else []
    expected = model.recommend(*given, n=20, min_entries=least).labels.tolist()  # type: ignore[call-overload]
    assert [one["column"] for one in answer["best"]] == expected
    wrong = client.post("/v1/recommend", json={"row": row, "min_entries": -1})
    assert wrong.status_code == 422


def test_where_nothing_is_left_nothing_is_best(client: TestClient, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    history = [{"column": film, "value": 5}]
    for asked in ({"among": [film], "exclude": [film]}, {"among": [film]}):
        assert client.post("/v1/recommend", json={"history": history, **asked}).json()["best"] == []


def test_explanations_are_the_models(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    row, column = ratings.row_labels[1], ratings.column_labels[2]
    found = client.post("/v1/explain", json={"row": row, "column": column, "n": 3}).json()
    explained = als.explain(row, column, 3)
    assert [one["column"] for one in found["entries"]] == explained.labels.tolist()
    np.testing.assert_allclose([one["effect"] for one in found["entries"]], explained.effects, rtol=1e-4)
    assert found["expected"] == pytest.approx(explained.prediction)


@pytest.mark.parametrize("axis", ["row", "column"])
def test_similar_is_the_models(client: TestClient, als: ALS, ratings: ObservedMatrix, axis: str) -> None:
    label = (ratings.row_labels if axis == "row" else ratings.column_labels)[3]
    found = client.post("/v1/similar", json={axis: label, "n": 4}).json()
    best = (als.similar_rows if axis == "row" else als.similar_columns)(label, 4)
    assert [one["id"] for one in found["similar"]] == best.labels.tolist()
    np.testing.assert_allclose([one["cosine"] for one in found["similar"]], best.values)


def test_columns_are_found_by_their_beginning_then_by_a_part(client: TestClient, ratings: ObservedMatrix) -> None:
    labels = ratings.column_labels.tolist()
    part = labels[0][1:4].upper()
    found = client.get("/v1/columns", params={"search": part, "limit": 1000}).json()
    wanted = {label for label in labels if part.casefold() in label.casefold()}
    assert {one["column"] for one in found["columns"]} == wanted
    assert found["total"] == len(wanted)
    starts = [one["column"].casefold().startswith(part.casefold()) for one in found["columns"]]
    assert starts == sorted(starts, reverse=True)


def test_columns_come_in_pages_the_most_entries_first(client: TestClient, ratings: ObservedMatrix) -> None:
    first = client.get("/v1/columns", params={"limit": 25}).json()
    rest = client.get("/v1/columns", params={"limit": 25, "offset": first["next_offset"]}).json()
    counts = [one["n_entries"] for one in first["columns"] + rest["columns"]]
    assert counts == sorted(ratings.column_counts.tolist(), reverse=True)
    assert rest["next_offset"] is None


def test_the_model_says_what_it_is(client: TestClient, ratings: ObservedMatrix) -> None:
    found = client.get("/v1/model").json()
    assert found["model"] == "ALS"
    assert found["scale"] == {"levels": [1, 2, 3, 4, 5], "low": 1, "high": 5}
    assert (found["n_rows"], found["n_columns"], found["n_entries"]) == (*ratings.shape, ratings.n_entries)
    assert found["ids"] == {"row": "text", "column": "text"}


def test_a_row_lies_on_the_map_where_its_history_does(client: TestClient, ratings: ObservedMatrix) -> None:
    drawn = client.get("/v1/map").json()
    assert len(drawn["columns"]) == ratings.shape[1]
    assert len(drawn["rows"]) == ratings.shape[0]
    row = ratings.row_labels[0]
    place = client.post("/v1/map", json={"row": row}).json()
    assert (place["x"], place["y"]) == pytest.approx(drawn["rows"][0], abs=1e-6)
    entries = client.get(f"/v1/rows/{row}/entries").json()["entries"]
    again = client.post("/v1/map", json={"history": entries}).json()
    assert (again["x"], again["y"]) == pytest.approx((place["x"], place["y"]), abs=0.05)


def test_what_a_model_cannot_do_is_said(started: Started, ratings: ObservedMatrix) -> None:
    client = started(Means().fit(ratings))
    assert client.get("/v1/map").status_code == 409
    answer = client.post("/v1/similar", json={"column": ratings.column_labels[0]})
    assert answer.status_code == 409
    assert "no latents" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "either row"),
        ({"row": "a", "history": [{"column": "b", "value": 1}]}, "either row"),
        ({"row": "a", "n": 0}, "body.n"),
        ({"row": "a", "n": 10**6}, "body.n"),
        ({"row": True}, "body.row"),
        ({"row": "a", "more": 1}, "body.more"),
        ({"history": []}, "body.history"),
    ],
)
def test_bad_bodies_are_refused_in_a_sentence(client: TestClient, body: object, said: str) -> None:
    answer = client.post("/v1/recommend", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]


def test_what_is_wrong_is_told_in_words_of_the_service(client: TestClient) -> None:
    neither = client.post("/v1/recommend", json={"n": 1}).json()["error"]["message"]
    assert neither == (
        "body: give either row, which is known, or history, the entries of a new row, with or without its features"
    )
    cut = client.post("/v1/recommend", content=b"{bad", headers={"Content-Type": "application/json"})
    assert (cut.status_code, cut.json()["error"]["message"]) == (422, "the body is not JSON, from its character 1 on")


@pytest.mark.parametrize(
    ("history", "code"),
    [
        ([{"column": "no such film", "value": 1}], "unknown_column"),
        ([{"column": None, "value": 9}], "off_scale"),
        ([{"column": None, "value": 3}] * 2, "given_twice"),
    ],
)
def test_bad_histories_are_refused(
    client: TestClient, ratings: ObservedMatrix, history: list[dict[str, object]], code: str
) -> None:
    named = [{"column": one["column"] or ratings.column_labels[0], "value": one["value"]} for one in history]
    answer = client.post("/v1/recommend", json={"history": named})
    assert answer.status_code in (404, 422)
    assert answer.json()["error"]["code"] == code


def test_a_model_that_cannot_explain_says_so(started: Started, ratings: ObservedMatrix) -> None:
    client = started(RankK(latent_size=2, epochs=2).fit(ratings))
    row, column = ratings.row_labels[1], ratings.column_labels[2]
    for route, asked in (("explain", {"column": column}), ("recommend", {"reasons": 1})):
        answer = client.post(f"/v1/{route}", json={"row": row, **asked})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "cannot")
        assert answer.json()["error"]["message"].startswith("RankK cannot explain by the entries of a row: ")
    assert client.post("/v1/recommend", json={"row": row}).status_code == 200
