"""Hidden and expiring columns, and columns that rows dismissed: never recommended, kept, and
forgotten with the row."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import Caller, StartClient, list_history

from deepmf.errors import BadSetting
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.serve.omissions import ColumnState, Omissions

PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00+02:00"


@pytest.fixture
def row(ratings: ObservedMatrix) -> str:
    return str(ratings.row_labels[0])


def put_state(client: Caller, column: str, **state: Any) -> None:
    answer = client.put(f"/v1/columns/{column}/state", json=state)
    assert answer.status_code == 200, answer.text


def dismiss(client: Caller, row: str, **columns: list[str]) -> Any:
    return client.patch(f"/v1/rows/{row}/dismissed", json=columns).json()


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
    client: Caller, row: str, state: dict[str, Any], is_shown: bool
) -> None:
    best = partial(client.best, row=row)
    before = best(n=40)
    column = before[0]
    put_state(client, column, **state)
    shown = before if is_shown else before[1:]
    assert best(n=40) == shown
    assert best(n=40, exclude=before[1:2]) == [one for one in shown if one != before[1]]
    assert best(n=40, among=before[:3]) == shown[: 3 if is_shown else 2]
    assert len(best(n=2)) == 2
    guest = client.best(history=list_history({before[-1]: 4}), n=40)
    assert (column in guest) == is_shown
    similar = client.ask("similar", column=before[1], n=39)["similar"]
    assert (column in [one["id"] for one in similar]) == is_shown
    page = client.get("/v1/columns", params={"limit": 1000}).json()
    assert (column in [one["column"] for one in page["columns"]]) == is_shown
    assert page["total"] == 39 + is_shown
    search = {"search": column, "include_hidden": True}
    listed = client.get("/v1/columns", params=search).json()["columns"]
    assert [one["shown"] for one in listed if one["column"] == column] == [is_shown]
    assert client.predict([row], [column])
    client.write(row, {column: 3}, method="PATCH")
    assert client.read(row)[column] == 3
    assert client.get(f"/v1/columns/{column}/state").json()["shown"] == is_shown
    client.delete(f"/v1/columns/{column}/state")
    client.write(row, {column: None}, method="PATCH")
    assert best(n=40) == before


def test_times_are_those_that_were_given(client: Caller, ratings: ObservedMatrix) -> None:
    path = f"/v1/columns/{ratings.column_labels[0]}/state"
    assert client.get(path).json()["visible"]
    client.put(path, json={"visible": True, "from": "2026-05-01T12:00:00+02:00"})
    state = client.get(path).json()
    assert datetime.fromisoformat(state["from"]) == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert state["until"] is None


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
def test_bad_states_change_nothing(client: Caller, row: str, body: dict[str, Any]) -> None:
    column = client.best(row=row)[0]
    assert client.put(f"/v1/columns/{column}/state", json=body).status_code == 422
    assert client.best(row=row)[0] == column


def test_a_column_is_hidden_before_it_is_known(client: Caller, row: str) -> None:
    for method in ("GET", "DELETE"):
        assert client.request(method, "/v1/columns/Premiere/state").status_code == 404
    put_state(client, "Premiere", visible=False)
    client.write(row, {"Premiere": 5}, method="PATCH")
    client.write("Wilma", {client.best(row=row)[0]: 5})
    assert "Premiere" not in client.best(row="Wilma", n=40)
    client.delete("/v1/columns/Premiere/state")
    assert "Premiere" in client.best(row="Wilma", n=40)


def test_columns_that_a_row_dismissed_are_not_recommended_to_it(
    client: Caller, ratings: ObservedMatrix
) -> None:
    row, other = map(str, ratings.row_labels[:2])
    before, best_of_other = client.best(row=row, n=40), client.best(row=other, n=40)
    path = f"/v1/rows/{row}/dismissed"
    assert client.get(path).json()["columns"] == []
    written = dismiss(client, row, add=before[:2])
    assert (written["n_entries"], written["n_changed"], written["n_forgotten"]) == (2, 2, 0)
    assert client.best(row=row, n=40) == before[2:]
    assert client.best(row=row, among=before[1:3], exclude=before[3:4]) == before[2:3]
    assert client.best(row=other, n=40) == best_of_other
    assert dismiss(client, row, remove=before[:1], add=before[2:3])["n_forgotten"] == 1
    assert client.get(path).json()["columns"] == sorted(before[1:3])
    assert dismiss(client, row, remove=before[1:3])["n_forgotten"] == 2
    assert client.best(row=row, n=40) == before
    assert dismiss(client, row, add=["nobody's"])["error"]["code"] == "unknown_column"
    assert client.get("/v1/rows/nobody/dismissed").status_code == 404


def test_dismissals_are_forgotten_with_the_row(
    start_client: StartClient, ratings: ObservedMatrix, tmp_path: Path
) -> None:
    client = start_client(url=str(tmp_path / "own.sqlite"))
    film, row = str(ratings.column_labels[0]), "a very private row"
    for entries in ({film: 5}, {}):
        client.write(row, entries)
        dismiss(client, row, add=[film])
        assert client.forget(row).status_code == 200
        assert client.get(f"/v1/rows/{row}/dismissed").status_code == 404
    client.__exit__(None, None, None)
    assert b"very private" not in (tmp_path / "own.sqlite").read_bytes()


@pytest.mark.slow
def test_a_restart_another_process_and_another_model_keep_them(
    start_client: StartClient, ratings: ObservedMatrix, row: str, url: str
) -> None:
    first, second = start_client(url=url), start_client(url=url)
    before = first.best(row=row, n=40)
    put_state(first, before[0], visible=False)
    put_state(first, before[3], until=PAST)
    first.delete(f"/v1/columns/{before[3]}/state")
    dismiss(first, row, add=before[1:3])
    dismiss(first, row, remove=before[2:3])
    # A write sees all others first, whatever process they came by.
    assert dismiss(second, row)["version"]["data"] == 5
    other = start_client(ALS(latent_size=2, seed=1).fit(ratings), url=url)
    for client in (first, second, start_client(url=url)):
        assert client.best(row=row, n=40) == before[2:]
        assert not client.get(f"/v1/columns/{before[0]}/state").json()["visible"]
    assert sorted(other.best(row=row, n=40)) == sorted(before[2:])


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
