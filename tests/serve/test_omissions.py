"""Hidden and expiring columns, and columns that rows dismissed: never recommended, kept, and
forgotten with the row."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import StartClient

from deepmf.errors import BadSetting
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.serve.omissions import ColumnState, Omissions

PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00+02:00"


def best(client: TestClient, row: str, **asked: Any) -> list[str]:
    answer = client.post("/v1/recommend", json={"row": row, "n": 40, **asked})
    assert answer.status_code == 200, answer.text
    return [one["column"] for one in answer.json()["best"]]


@pytest.fixture
def row(ratings: ObservedMatrix) -> str:
    return str(ratings.row_labels[0])


def put_state(client: TestClient, column: str, **state: Any) -> None:
    answer = client.put(f"/v1/columns/{column}/state", json=state)
    assert answer.status_code == 200, answer.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "is_shown"),
    [
        ({"visible": False}, False),
        ({"visible": False, "from": PAST}, False),
        ({"until": PAST}, False),
        ({"from": FUTURE}, False),
        ({"from": PAST}, True),
        ({"until": FUTURE}, True),
        ({"from": PAST, "until": FUTURE}, True),
        ({}, True),
    ],
)
def test_hidden_columns_are_never_recommended_and_still_predicted(
    client: TestClient, row: str, state: dict[str, Any], is_shown: bool
) -> None:
    before = best(client, row)
    column = before[0]
    put_state(client, column, **state)
    shown = before if is_shown else before[1:]
    assert best(client, row) == shown
    assert best(client, row, exclude=before[1:2]) == [one for one in shown if one != before[1]]
    assert best(client, row, among=before[:3]) == shown[: 3 if is_shown else 2]
    assert len(best(client, row, n=2)) == 2
    history = [{"column": before[-1], "value": 4}]
    guest = client.post("/v1/recommend", json={"history": history, "n": 40}).json()["best"]
    assert (column in [one["column"] for one in guest]) == is_shown
    similar = client.post("/v1/similar", json={"column": before[1], "n": 39}).json()["similar"]
    assert (column in [one["id"] for one in similar]) == is_shown
    found = client.get("/v1/columns", params={"limit": 1000}).json()
    assert (column in [one["column"] for one in found["columns"]], found["total"]) == (
        is_shown,
        39 + is_shown,
    )
    listed = client.get("/v1/columns", params={"search": column, "include_hidden": True}).json()[
        "columns"
    ]
    assert [one["shown"] for one in listed if one["column"] == column] == [is_shown]
    assert (
        client.post("/v1/predict", json={"pairs": [{"row": row, "column": column}]}).status_code
        == 200
    )
    client.patch(f"/v1/rows/{row}/entries", json={"entries": [{"column": column, "value": 3}]})
    assert client.get(f"/v1/rows/{row}/entries").json()["entries"]
    assert client.get(f"/v1/columns/{column}/state").json()["shown"] == is_shown
    client.delete(f"/v1/columns/{column}/state")
    client.patch(f"/v1/rows/{row}/entries", json={"entries": [{"column": column, "value": None}]})
    assert best(client, row) == before


def test_times_are_those_that_were_given(client: TestClient, ratings: ObservedMatrix) -> None:
    path = f"/v1/columns/{ratings.column_labels[0]}/state"
    assert client.get(path).json()["visible"]
    client.put(path, json={"visible": True, "from": "2026-05-01T12:00:00+02:00"})
    found = client.get(path).json()
    assert datetime.fromisoformat(found["from"]) == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert found["until"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"visible": "no"},
        {"from": "soon"},
        {"until": "0001-01-01T00:00:00+14:00"},
        {"from": FUTURE, "until": PAST},
        {"hidden": True},
    ],
)
def test_bad_states_change_nothing(client: TestClient, row: str, body: dict[str, Any]) -> None:
    column = best(client, row)[0]
    assert client.put(f"/v1/columns/{column}/state", json=body).status_code == 422
    assert best(client, row)[0] == column


def test_a_column_is_hidden_before_it_is_known(client: TestClient, row: str) -> None:
    for method in ("GET", "DELETE"):
        assert client.request(method, "/v1/columns/Premiere/state").status_code == 404
    put_state(client, "Premiere", visible=False)
    client.patch(f"/v1/rows/{row}/entries", json={"entries": [{"column": "Premiere", "value": 5}]})
    client.put(
        "/v1/rows/Wilma/entries", json={"entries": [{"column": best(client, row)[0], "value": 5}]}
    )
    assert "Premiere" not in best(client, "Wilma")
    client.delete("/v1/columns/Premiere/state")
    assert "Premiere" in best(client, "Wilma")


def test_columns_that_a_row_dismissed_are_not_recommended_to_it(
    client: TestClient, ratings: ObservedMatrix
) -> None:
    row, other = map(str, ratings.row_labels[:2])
    before, others = best(client, row), best(client, other)
    path = f"/v1/rows/{row}/dismissed"
    assert client.get(path).json()["columns"] == []
    written = client.patch(path, json={"add": before[:2]}).json()
    assert (written["n_entries"], written["n_changed"], written["n_forgotten"]) == (2, 2, 0)
    assert best(client, row) == before[2:]
    assert best(client, row, among=before[1:3], exclude=before[3:4]) == before[2:3]
    assert best(client, other) == others
    assert (
        client.patch(path, json={"remove": before[:1], "add": before[2:3]}).json()["n_forgotten"]
        == 1
    )
    assert client.get(path).json()["columns"] == sorted(before[1:3])
    assert client.patch(path, json={"remove": before[1:3]}).json()["n_forgotten"] == 2
    assert best(client, row) == before


def test_dismissed_columns_and_their_rows_are_known(client: TestClient, row: str) -> None:
    refused = client.patch(f"/v1/rows/{row}/dismissed", json={"add": ["nobody's"]})
    assert refused.json()["error"]["code"] == "unknown_column"
    assert client.get("/v1/rows/nobody/dismissed").status_code == 404


def test_dismissals_are_forgotten_with_the_row(
    start_client: StartClient, ratings: ObservedMatrix, tmp_path: Path
) -> None:
    client = start_client(url=str(tmp_path / "own.sqlite"))
    film, row = str(ratings.column_labels[0]), "a very private row"
    for entries in ([{"column": film, "value": 5}], []):
        client.put(f"/v1/rows/{row}/entries", json={"entries": entries})
        client.patch(f"/v1/rows/{row}/dismissed", json={"add": [film]})
        assert client.delete(f"/v1/rows/{row}/entries").status_code == 200
        assert client.get(f"/v1/rows/{row}/dismissed").status_code == 404
    client.__exit__(None, None, None)
    assert b"very private" not in (tmp_path / "own.sqlite").read_bytes()


@pytest.mark.slow
def test_a_restart_another_process_and_another_model_keep_them(
    start_client: StartClient, ratings: ObservedMatrix, als: ALS, row: str, url: str
) -> None:
    first, second = start_client(url=url), start_client(url=url)
    before = best(first, row)
    put_state(first, before[0], visible=False)
    put_state(first, before[3], until=PAST)
    first.delete(f"/v1/columns/{before[3]}/state")
    first.patch(f"/v1/rows/{row}/dismissed", json={"add": before[1:3]})
    first.patch(f"/v1/rows/{row}/dismissed", json={"remove": before[2:3]})
    # A write sees all others first, whatever process they came by.
    assert second.patch(f"/v1/rows/{row}/dismissed", json={}).json()["version"]["data"] == 5
    third, other = (
        start_client(url=url),
        start_client(ALS(latent_size=2, seed=1).fit(ratings), url=url),
    )
    for client in (first, second, third):
        assert best(client, row) == before[2:]
        assert not client.get(f"/v1/columns/{before[0]}/state").json()["visible"]
    assert sorted(best(other, row)) == sorted(before[2:])


def test_states_of_another_models_columns_are_refused(start_client: StartClient) -> None:
    put_state(start_client(), "Premiere", visible=False)
    numbers = ObservedMatrix.from_entries([1, 1, 2, 2], [1, 2, 1, 3], [1, 2, 3, 4])
    with pytest.raises(BadSetting, match="together"):
        start_client(ALS(latent_size=1, epochs=1, seed=0).fit(numbers))


def test_many_states_are_found_once_for_the_same_columns() -> None:
    columns = Labels([f"c{at}" for at in range(1000)], axis="column")
    states = {f"c{at}": ColumnState(stop=at) for at in range(0, 1000, 2)} | {
        "unknown": ColumnState(False)
    }
    omissions = Omissions({("state", column): state for column, state in states.items()})
    assert omissions.find_hidden(columns, now=501.0).tolist() == list(range(0, 502, 2))
    assert omissions.find_hidden(columns, now=-1.0).size == 0
    longer = Labels(["unknown", *columns], axis="column")
    assert omissions.find_hidden(longer, now=-1.0).tolist() == [0]
    assert omissions.change({("row", "ann"): None}) is omissions
    assert omissions.change({("state", "c0"): None}).find_hidden(columns, now=1.0).tolist() == []
