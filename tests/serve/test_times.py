"""Times and weights in the service: entries keep theirs, and questions are answered for a time."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from tests.serve.conftest import Caller, StartClient, list_history, refusal

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


def read(client: Caller, row: str) -> list[dict[str, Any]]:
    return list(client.get(f"/v1/rows/{row}/entries").json()["entries"])


def test_entries_keep_their_times_and_weights(
    start_client: StartClient, als: ALS, url: str
) -> None:
    client, (one, two) = start_client(als, url=url), als.column_labels_[:2].tolist()
    dated = {"value": 5, "time": "2024-05-01T14:30:00+02:00", "weight": 2.5}
    first = client.write("Wilma", {one: dated, two: {"value": 1, "time": START}}).json()
    shown = [
        {"column": one, "value": 5, "time": "2024-05-01T12:30:00Z", "weight": 2.5},
        {"column": two, "value": 1, "time": "2023-11-14T22:13:20Z"},
    ]
    again = start_client(als, url=url)  # replays the database
    assert read(client, "Wilma") == read(again, "Wilma") == shown
    assert again.get("/v1/rows/Wilma/entries").headers["etag"] == first["etag"]
    lines = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
    exported = [line for line in lines if line["row"] == "Wilma"]
    assert exported == [{"row": "Wilma", **entry} for entry in reversed(shown)]  # earliest first
    by_row = client.get(f"/v1/columns/{one}/entries").json()["entries"]
    entry = {"row": "Wilma", "value": 5, "time": "2024-05-01T12:30:00Z", "weight": 2.5}
    assert [line for line in by_row if line["row"] == "Wilma"] == [entry]


def test_weights_count_in_the_next_answer(client: Caller, als: ALS) -> None:
    one, two, three = als.column_labels_[:3].tolist()
    expected = []
    for high, low in ((1, 0.1), (0.1, 1)):
        client.write("Wilma", {one: {"value": 5, "weight": high}, two: {"value": 1, "weight": low}})
        expected += client.predict(["Wilma"], [three])
    assert expected[0] > expected[1]


def test_what_is_left_out_stays_and_what_is_reset_goes(client: Caller, als: ALS) -> None:
    film = als.column_labels_[0]
    given = {film: {"value": 5, "time": "2024-05-01", "weight": 2}}
    first = client.write("Wilma", given).json()
    assert client.write("Wilma", {film: 5}).json()["n_changed"] == 0
    assert client.get("/v1/rows/Wilma/entries").headers["etag"] == first["etag"]
    reset = client.write("Wilma", {film: {"value": 5, "time": None, "weight": 1}}).json()
    assert (reset["n_changed"], read(client, "Wilma")) == (1, [{"column": film, "value": 5}])
    assert reset["etag"] != first["etag"]
    client.write("Wilma", given)
    client.write("Wilma", {film: 4})
    assert read(client, "Wilma") == [{"column": film, "value": 4}]


def test_a_trained_entry_gets_another_weight_and_its_own_back(client: Caller, als: ALS) -> None:
    row = als.row_labels_[0]
    path = f"/v1/rows/{row}/entries"
    before = client.get(path).json()
    first = before["entries"][0]

    def weigh(weight: float) -> Any:
        entry = {"value": first["value"], "weight": weight}
        return client.write(row, {first["column"]: entry}, method="PATCH").json()

    assert weigh(3)["n_changed"] == 1
    assert client.get(path).json()["entries"][0] == {**first, "weight": 3}
    assert weigh(1)["etag"] == before["etag"]


def test_an_entry_of_a_dated_model_is_of_now_unless_it_says_when(
    start_client: StartClient, moving: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, entries = start_client(moving), {"c0": 5, "c1": {"value": 1, "time": None}}
    monkeypatch.setattr(time, "time", lambda: START + 400.7 * DAY)
    first = client.write("Wilma", entries, key="once").json()
    dated, undated = read(client, "Wilma")
    moment = np.datetime64(dated["time"].rstrip("Z"), "s").astype(int)
    assert moment == int(START + 400.7 * DAY)
    assert "time" not in undated
    monkeypatch.setattr(time, "time", lambda: START + 401 * DAY)
    assert client.write("Wilma", entries, key="once").json() == first
    assert client.write("Wilma", {"c0": 5, "c1": 1}).json()["n_changed"] == 0


def test_answers_are_for_a_time(
    start_client: StartClient, moving: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, pairs = start_client(moving), (["r0", "r0"], ["c0", "c1"])
    early, late = (START + day * DAY for day in (20, 345))
    history = list_history({"c2": 3})
    for at in (early, late):
        expected = moving.predict(*pairs, at=at)
        assert np.allclose(client.predict(*pairs, at=at), expected)
        assert np.allclose(client.predict(*pairs, at=at, unknown="fallback"), expected)
        answer = client.ask("predict", history=history, columns=["c0"], at=at)
        folded = moving.fold_in(["c2"], [3]).predict(["c0"], at=at)[0]
        assert answer["predictions"][0]["expected"] == pytest.approx(folded)
    assert client.predict(*pairs, at=early)[0] < client.predict(*pairs, at=late)[0]
    monkeypatch.setattr(time, "time", lambda: late + 0.5)
    assert np.allclose(client.predict(*pairs), client.predict(*pairs, at=late))
    day: Any = {"at": "2024-05-01"}
    best = client.ask("recommend", row="r0", n=3, **day)["best"]
    columns = [one["column"] for one in best]
    assert columns == moving.recommend("r0", 3, **day).labels.tolist()
    expected = moving.predict(["r0"] * 3, columns, **day)
    assert np.allclose([one["expected"] for one in best], expected)
    explained = client.ask("explain", row="r0", column="c0", at=late)
    assert explained["expected"] == pytest.approx(client.predict(*pairs, at=late)[0])


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
    client, pairs = start_client(model), [{"row": "r0", "column": "c0"}]
    for unknown in ("error", "nan"):
        answer = client.ask("predict", pairs=pairs, at=START + 300 * DAY, unknown=unknown)
        (one,) = answer["predictions"]
        mean = sum(chance["level"] * chance["probability"] for chance in one["distribution"])
        assert mean == pytest.approx(one["expected"], abs=0.05)


def test_what_the_model_cannot_use_is_refused(client: Caller, als: ALS) -> None:
    film = als.column_labels_[0]
    body = {"row": als.row_labels_[0], "at": "2024-05-01"}
    assert refusal(client.post("/v1/recommend", json=body)) == (409, "no_times")
    for wrong in (
        {"time": "soon"},
        {"time": "0000-01-01"},
        {"time": True},
        {"time": 1e300},
        {"weight": 0},
        {"weight": -1},
    ):
        assert refusal(client.write("Wilma", {film: {"value": 5, **wrong}})) == (422, "invalid")


def test_a_model_without_weights_refuses_new_ones_and_ignores_old_ones(
    start_client: StartClient,
    als: ALS,
    ratings: ObservedMatrix,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
) -> None:
    film = als.column_labels_[0]
    start_client(als, url=url).write("Wilma", {film: {"value": 5, "weight": 2}})
    plain = Means().fit(ratings)
    monkeypatch.setattr(Means, "takes_weights", False)
    client = start_client(plain, url=url)
    assert read(client, "Wilma") == [{"column": film, "value": 5}]
    refused = client.write("Wilma", {film: {"value": 5, "weight": 3}})
    assert refusal(refused) == (409, "no_weights")
    line = json.dumps({"row": "Betty", "column": film, "value": 5, "weight": 2})
    (line_refused,) = client.post("/v1/entries/bulk", content=line).json()["refused"]
    assert line_refused["code"] == "no_weights"


def test_bulk_lines_have_times_and_weights(client: Caller, als: ALS) -> None:
    dated = {"time": "2024-05-01T00:00:00Z", "weight": 2.0}
    line = {"row": "Wilma", "column": als.column_labels_[0], "value": 5, **dated}
    lines = [line, {**line, "row": "Betty", "time": "soon"}, {**line, "row": "Fred", "weight": 0}]
    answer = client.post("/v1/entries/bulk", content="\n".join(map(json.dumps, lines))).json()
    assert (answer["n_changed"], [one["line"] for one in answer["refused"]]) == (1, [2, 3])
    exported = [text for text in client.get("/v1/export").text.splitlines() if "Wilma" in text]
    assert [json.loads(text) for text in exported] == [line]
    assert client.post("/v1/entries/bulk", content=exported[0]).json()["n_changed"] == 0
