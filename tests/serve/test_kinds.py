"""Kinds of feedback: they stand for values in single writes, in bulk and in histories."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import StartClient

from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.paper.low_rank import RankK
from deepmf.serve.kinds import FeedbackKind, check_kinds, read_kinds

KINDS = {"view": FeedbackKind(2.0), "like": FeedbackKind(4.0, 0.5), "purchase": FeedbackKind(5.0)}


@pytest.fixture
def client(start_client: StartClient) -> TestClient:
    return start_client(service={"kinds": KINDS})


@pytest.fixture
def films(ratings: ObservedMatrix) -> list[str]:
    found: list[str] = ratings.column_labels[:3].tolist()
    return found


def read(client: TestClient, row: str) -> dict[str, float]:
    return {one["column"]: one["value"] for one in client.get(f"/v1/rows/{row}/entries").json()["entries"]}


def test_kinds_stand_for_their_values(client: TestClient, films: list[str]) -> None:
    described = client.get("/v1/model").json()
    assert described["kinds"] == {"view": 2.0, "like": 4.0, "purchase": 5.0}
    assert described["kind_weights"] == {"like": 0.5}
    first = [{"column": films[0], "kind": "purchase"}, {"column": films[1], "value": 3}]
    assert client.put("/v1/rows/Wilma/entries", json={"entries": first}).status_code == 200
    changes = [{"column": films[1], "kind": "view"}, {"column": films[0], "value": None}]
    assert client.patch("/v1/rows/Wilma/entries", json={"entries": changes}).status_code == 200
    client.patch(f"/v1/columns/{films[2]}/entries", json={"entries": [{"row": "Wilma", "kind": "like"}]})
    assert read(client, "Wilma") == {films[1]: 2.0, films[2]: 4.0}
    client.put(f"/v1/columns/{films[2]}/entries", json={"entries": [{"row": "Wilma", "kind": "purchase"}]})
    assert read(client, "Wilma")[films[2]] == 5.0


def test_kinds_travel_in_bulk(client: TestClient, films: list[str]) -> None:
    lines = [
        f'{{"row": "Wilma", "column": "{films[0]}", "kind": "like"}}',
        f'{{"row": "Wilma", "column": "{films[1]}", "kind": "gaze"}}',
        f'{{"row": "Wilma", "column": "{films[1]}", "kind": "like", "value": 3}}',
        f'{{"row": "Wilma", "column": "{films[1]}"}}',
        f'{{"row": "Wilma", "column": "{films[2]}", "value": 1}}',
    ]
    answer = client.post("/v1/entries/bulk", content="\n".join(lines)).json()
    assert [(one["line"], one["code"]) for one in answer["refused"]] == [
        (2, "unknown_kind"),
        (3, "invalid"),
        (4, "invalid"),
    ]
    assert read(client, "Wilma") == {films[0]: 4.0, films[2]: 1.0}


def test_kinds_have_weights_unless_the_request_has_one(client: TestClient, films: list[str]) -> None:
    entries = [{"column": films[0], "kind": "like"}, {"column": films[1], "kind": "purchase"}]
    client.put("/v1/rows/Wilma/entries", json={"entries": entries})
    line = f'{{"row": "Wilma", "column": "{films[2]}", "kind": "like", "weight": 2, "time": "2024-05-01"}}'
    assert client.post("/v1/entries/bulk", content=line).json()["n_refused"] == 0
    found = client.get("/v1/rows/Wilma/entries").json()["entries"]
    assert {one["column"]: one.get("weight", 1) for one in found} == {films[0]: 0.5, films[1]: 1, films[2]: 2}
    client.patch("/v1/rows/Wilma/entries", json={"entries": [{"column": films[0], "kind": "purchase"}]})
    found = client.get("/v1/rows/Wilma/entries").json()["entries"]
    assert {one["column"]: one.get("weight", 1) for one in found}[films[0]] == 1


def test_kinds_count_in_histories(client: TestClient, films: list[str]) -> None:
    def recommend(**entry: Any) -> Any:
        return client.post("/v1/recommend", json={"history": [{"column": films[0], **entry}]}).json()["best"]

    assert recommend(kind="purchase") == recommend(value=5)
    answer = client.post("/v1/recommend", json={"history": [{"column": films[0], "kind": "gaze"}]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unknown_kind")


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"kind": "gaze"}, "unknown_kind"),
        ({"kind": "like", "value": 4}, "invalid"),
        ({"kind": 4}, "invalid"),
        ({"kind": None}, "invalid"),
        ({}, "invalid"),
    ],
)
def test_bad_kinds_change_nothing(client: TestClient, films: list[str], entry: dict[str, Any], code: str) -> None:
    for method in ("PUT", "PATCH"):
        answer = client.request(method, "/v1/rows/Wilma/entries", json={"entries": [{"column": films[0], **entry}]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
    assert client.get("/v1/rows/Wilma/entries").status_code == 404


def test_a_service_without_kinds_says_so(start_client: StartClient, films: list[str]) -> None:
    body = {"entries": [{"column": films[0], "kind": "like"}]}
    answer = start_client().patch("/v1/rows/Wilma/entries", json=body)
    assert answer.json()["error"]["code"] == "unknown_kind"
    assert "no kinds" in answer.json()["error"]["message"]


@pytest.mark.slow
def test_kinds_are_read_and_checked(tmp_path: Path, als: ALS) -> None:
    file = tmp_path / "kinds.toml"
    with pytest.raises(FileAbsent, match="kinds.toml"):
        read_kinds(file)
    file.write_text("view = 2\nlike = {value = 4, weight = 0.5}\npurchase = {value = 5.0}\n")
    assert read_kinds(file) == KINDS
    for text, kind in (
        ("view = [", UnreadableFile),
        (f"view = {'[' * 5000}", UnreadableFile),
        ("view = 1979-13-32", UnreadableFile),
        (f"view = {'9' * 5000}", UnreadableFile),
        (f"view = {'9' * 400}", BadSetting),
        ("view = true", BadSetting),
        ("view = nan", BadSetting),
        ("view = {weight = 2}", BadSetting),
        ("view = {value = 2, weight = 1e-9}", BadSetting),
        ("view = {value = 2, wait = 1}", BadSetting),
    ):
        file.write_text(text)
        with pytest.raises(kind, match="view|TOML"):
            read_kinds(file)
    with pytest.raises(BadSetting, match="gaze"):
        check_kinds({"gaze": FeedbackKind(17.0)}, als)
    with pytest.raises(BadSetting, match="weight"):
        check_kinds({"view": FeedbackKind(2.0, 0.5)}, RankK().fit(als.entries_.train))
