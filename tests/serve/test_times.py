"""Times and weights in the service: entries keep theirs, and questions are answered for a time."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import StartClient

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF

DAY = 86400
START = 1_700_000_000


@pytest.fixture(scope="module")
def dated() -> ObservedMatrix:
    """Entries of a year in which even columns rise from 1 to 5, and odd ones fall."""
    rng = np.random.default_rng(0)
    rows, columns = np.divmod(rng.permutation(60 * 20)[:700], 20)
    days = rng.integers(0, 365, 700)
    trend = np.where(columns % 2 == 0, days / 365, 1 - days / 365)
    values = np.clip(np.round(1 + 4 * trend + 0.5 * rng.standard_normal(700)), 1, 5)
    labels = (
        np.char.add(letter, part.astype(str)) for letter, part in (("r", rows), ("c", columns))
    )
    return ObservedMatrix.from_entries(
        *labels, values, Scale(levels=[1, 2, 3, 4, 5]), times=START + DAY * days
    )


@pytest.fixture(scope="module")
def moving(dated: ObservedMatrix) -> Model:
    model = ALS(latent_size=2, epochs=3, times="auto", seed=0).fit(dated)
    assert model.has_drift
    return model


def write(client: TestClient, row: str, *entries: dict[str, Any], **options: Any) -> dict[str, Any]:
    answer = client.put(f"/v1/rows/{row}/entries", json={"entries": list(entries)}, **options)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def read(client: TestClient, row: str) -> list[dict[str, Any]]:
    return list(client.get(f"/v1/rows/{row}/entries").json()["entries"])


def test_entries_keep_their_times_and_weights(
    start_client: StartClient, als: ALS, url: str
) -> None:
    client, (one, two) = start_client(als, url=url), als.column_labels_[:2].tolist()
    given = [
        {"column": one, "value": 5, "time": "2024-05-01T14:30:00+02:00", "weight": 2.5},
        {"column": two, "value": 1, "time": START},
    ]
    shown = [
        {"column": one, "value": 5, "time": "2024-05-01T12:30:00Z", "weight": 2.5},
        {"column": two, "value": 1, "time": "2023-11-14T22:13:20Z"},
    ]
    first = write(client, "Wilma", *given)
    assert read(client, "Wilma") == shown
    again = start_client(als, url=url)  # replays the database
    assert read(again, "Wilma") == shown
    assert again.get("/v1/rows/Wilma/entries").headers["etag"] == first["etag"]
    lines = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
    assert [line for line in lines if line["row"] == "Wilma"] == [
        {"row": "Wilma", **entry}
        for entry in reversed(shown)  # earliest first
    ]
    by_row = [{"row": "Wilma", "value": 5, "time": "2024-05-01T12:30:00Z", "weight": 2.5}]
    found = client.get(f"/v1/columns/{one}/entries").json()["entries"]
    assert [entry for entry in found if entry["row"] == "Wilma"] == by_row


def test_weights_count_in_the_next_answer(start_client: StartClient, als: ALS) -> None:
    client, (one, two, three) = start_client(als), als.column_labels_[:3].tolist()
    found = []
    for high, low in ((1, 0.1), (0.1, 1)):
        write(
            client,
            "Wilma",
            {"column": one, "value": 5, "weight": high},
            {"column": two, "value": 1, "weight": low},
        )
        answer = client.post("/v1/predict", json={"pairs": [{"row": "Wilma", "column": three}]})
        found.append(answer.json()["predictions"][0]["expected"])
    assert found[0] > found[1]


def test_what_is_left_out_stays_and_what_is_reset_goes(start_client: StartClient, als: ALS) -> None:
    client, film = start_client(als), als.column_labels_[0]
    first = write(client, "Wilma", {"column": film, "value": 5, "time": "2024-05-01", "weight": 2})
    assert write(client, "Wilma", {"column": film, "value": 5})["n_changed"] == 0
    assert client.get("/v1/rows/Wilma/entries").headers["etag"] == first["etag"]
    reset = write(client, "Wilma", {"column": film, "value": 5, "time": None, "weight": 1})
    assert (reset["n_changed"], read(client, "Wilma")) == (1, [{"column": film, "value": 5}])
    assert reset["etag"] != first["etag"]
    write(client, "Wilma", {"column": film, "value": 5, "time": "2024-05-01", "weight": 2})
    write(client, "Wilma", {"column": film, "value": 4})
    assert read(client, "Wilma") == [{"column": film, "value": 4}]


def test_a_trained_entry_gets_another_weight_and_its_own_back(
    start_client: StartClient, als: ALS
) -> None:
    client, row = start_client(als), als.row_labels_[0]
    before = client.get(f"/v1/rows/{row}/entries").json()
    first = before["entries"][0]
    path, change = f"/v1/rows/{row}/entries", {"column": first["column"], "value": first["value"]}
    assert client.patch(path, json={"entries": [{**change, "weight": 3}]}).json()["n_changed"] == 1
    assert client.get(path).json()["entries"][0] == {**first, "weight": 3}
    assert (
        client.patch(path, json={"entries": [{**change, "weight": 1}]}).json()["etag"]
        == before["etag"]
    )


def test_an_entry_of_a_dated_model_is_of_now_unless_it_says_when(
    start_client: StartClient, moving: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start_client(moving)
    monkeypatch.setattr(time, "time", lambda: START + 400.7 * DAY)
    key = {"Idempotency-Key": "once"}
    first = write(
        client,
        "Wilma",
        {"column": "c0", "value": 5},
        {"column": "c1", "value": 1, "time": None},
        headers=key,
    )
    dated, undated = read(client, "Wilma")
    moment = np.datetime64(dated["time"].rstrip("Z"), "s").astype(int)
    assert moment == int(START + 400.7 * DAY)
    assert "time" not in undated
    monkeypatch.setattr(time, "time", lambda: START + 401 * DAY)
    again = write(
        client,
        "Wilma",
        {"column": "c0", "value": 5},
        {"column": "c1", "value": 1, "time": None},
        headers=key,
    )
    assert again == first
    assert (
        write(client, "Wilma", {"column": "c0", "value": 5}, {"column": "c1", "value": 1})[
            "n_changed"
        ]
        == 0
    )


def test_answers_are_for_a_time(
    start_client: StartClient, moving: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start_client(moving)
    body = {"pairs": [{"row": "r0", "column": "c0"}, {"row": "r0", "column": "c1"}]}

    def predict(at: Any = None, **more: Any) -> list[float]:
        found = client.post(
            "/v1/predict", json=body | more | ({} if at is None else {"at": at})
        ).json()
        return [one["expected"] for one in found["predictions"]]

    early, late = (START + day * DAY for day in (20, 345))
    for at in (early, late):
        expected = moving.predict(["r0", "r0"], ["c0", "c1"], at=at)
        assert np.allclose(predict(at), expected)
        assert np.allclose(predict(at, unknown="fallback"), expected)
    assert predict(early)[0] < predict(late)[0]
    monkeypatch.setattr(time, "time", lambda: late + 0.5)
    assert np.allclose(predict(), predict(late))
    history = {"history": [{"column": "c2", "value": 3}], "columns": ["c0"]}
    for at in (early, late):
        found = client.post("/v1/predict", json={**history, "at": at}).json()["predictions"][0][
            "expected"
        ]
        assert found == pytest.approx(moving.fold_in(["c2"], [3]).predict(["c0"], at=at)[0])
    best = client.post("/v1/recommend", json={"row": "r0", "n": 3, "at": "2024-05-01"}).json()[
        "best"
    ]
    assert [one["column"] for one in best] == moving.recommend(
        "r0", 3, at="2024-05-01"
    ).labels.tolist()
    expected = moving.predict(["r0"] * 3, [one["column"] for one in best], at="2024-05-01")
    assert np.allclose([one["expected"] for one in best], expected)
    explained = client.post("/v1/explain", json={"row": "r0", "column": "c0", "at": late})
    assert explained.json()["expected"] == pytest.approx(predict(late)[0])


@pytest.mark.slow
def test_distributions_agree_with_the_expected_value(
    start_client: StartClient, dated: ObservedMatrix
) -> None:
    settings: dict[str, Any] = {
        "hidden_sizes": (8,),
        "latent_size": 4,
        "epochs": 3,
        "views": 2,
        "device": "cpu",
    }
    model = OrdinalDMF(seed=0, linear_iterations=4, times="auto", **settings).fit(dated)
    client = start_client(model)
    for unknown in ("error", "nan"):
        body = {
            "pairs": [{"row": "r0", "column": "c0"}],
            "at": START + 300 * DAY,
            "unknown": unknown,
        }
        (found,) = client.post("/v1/predict", json=body).json()["predictions"]
        mean = sum(one["level"] * one["probability"] for one in found["distribution"])
        assert mean == pytest.approx(found["expected"], abs=0.05)


def test_what_the_model_cannot_use_is_refused(
    start_client: StartClient, ratings: ObservedMatrix, als: ALS
) -> None:
    client, film = start_client(als), als.column_labels_[0]
    answer = client.post("/v1/recommend", json={"row": als.row_labels_[0], "at": "2024-05-01"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_times")
    path = "/v1/rows/Wilma/entries"
    for wrong in (
        {"time": "soon"},
        {"time": "0000-01-01"},
        {"time": True},
        {"time": 1e300},
        {"weight": 0},
        {"weight": -1},
    ):
        answer = client.put(path, json={"entries": [{"column": film, "value": 5, **wrong}]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid"), wrong


def test_a_model_without_weights_refuses_new_ones_and_ignores_old_ones(
    start_client: StartClient,
    als: ALS,
    ratings: ObservedMatrix,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
) -> None:
    film = als.column_labels_[0]
    weighted = {"column": film, "value": 5, "weight": 2}
    write(start_client(als, url=url), "Wilma", weighted)
    plain = Means().fit(ratings)
    monkeypatch.setattr(Means, "takes_weights", False)
    client = start_client(plain, url=url)
    assert read(client, "Wilma") == [{"column": film, "value": 5}]
    answer = client.put("/v1/rows/Wilma/entries", json={"entries": [{**weighted, "weight": 3}]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_weights")
    line = json.dumps({"row": "Betty", **weighted})
    (refused,) = client.post("/v1/entries/bulk", content=line).json()["refused"]
    assert refused["code"] == "no_weights"


def test_bulk_lines_have_times_and_weights(start_client: StartClient, als: ALS) -> None:
    client, film = start_client(als), als.column_labels_[0]
    line = {
        "row": "Wilma",
        "column": film,
        "value": 5,
        "time": "2024-05-01T00:00:00Z",
        "weight": 2.0,
    }
    lines = [line, {**line, "row": "Betty", "time": "soon"}, {**line, "row": "Fred", "weight": 0}]
    answer = client.post("/v1/entries/bulk", content="\n".join(map(json.dumps, lines))).json()
    assert (answer["n_changed"], [one["line"] for one in answer["refused"]]) == (1, [2, 3])
    exported = [text for text in client.get("/v1/export").text.splitlines() if "Wilma" in text]
    assert [json.loads(text) for text in exported] == [line]
    assert client.post("/v1/entries/bulk", content=exported[0]).json()["n_changed"] == 0
