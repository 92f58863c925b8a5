"""Entries over HTTP: what is written counts at once, survives a restart, and is forgotten when asked."""

import random
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import Started

from deepmf.data.synthetic.generator import generate
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.factorization.optspace import OptSpace
from deepmf.serve.application import create_app
from deepmf.serve.database import open_database
from deepmf.serve.entry_database import EntryDatabase
from deepmf.serve.service import Service, ServiceLimits

# Ids that have broken something somewhere.
HOSTILE = [
    "Łódź 🎬",
    "a/b/entries",
    "..%2F..",
    "' OR 1=1; --",
    "<script>alert(1)</script>",
    "nul\x00inside",
    "\u202edlrow",
    "%",
    "a?b#c&d=e",
    " ",
    "\ufeff",
    "line\nbreak",
    "e\u0301",
    "\u00e9",
    "5",
]


def entries(*pairs: tuple[object, object]) -> dict[str, object]:
    return {"entries": [{"column": column, "value": value} for column, value in pairs]}


def test_a_new_row_counts_in_the_very_next_answer(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    films = ratings.column_labels[:3].tolist()
    answer = client.put("/v1/rows/Wilma/entries", json=entries(*zip(films, [5, 1, 4], strict=True)))
    assert answer.status_code == 200
    assert answer.json() == {
        "axis": "row",
        "id": "Wilma",
        "n_entries": 3,
        "n_changed": 3,
        "n_forgotten": 0,
        "version": {"model": 1, "data": 1},
    }
    found = client.post("/v1/recommend", json={"row": "Wilma", "n": 4}).json()
    assert found["version"]["data"] == 1
    assert [one["column"] for one in found["best"]] == als.fold_in(films, [5, 1, 4]).recommend(4).labels.tolist()
    assert {one["area"] for one in found["best"]} == {"II"}


def test_values_are_replaced_added_and_forgotten(client: TestClient, ratings: ObservedMatrix) -> None:
    one, two, three = ratings.column_labels[:3].tolist()
    client.put("/v1/rows/Wilma/entries", json=entries((one, 5), (two, 1)))
    changed = client.patch("/v1/rows/Wilma/entries", json=entries((one, 2), (two, None), (three, 3))).json()
    assert (changed["n_entries"], changed["n_changed"], changed["n_forgotten"]) == (2, 2, 1)
    found = client.get("/v1/rows/Wilma/entries").json()
    assert {entry["column"]: entry["value"] for entry in found["entries"]} == {one: 2, three: 3}
    assert not found["trained"]
    client.put("/v1/rows/Wilma/entries", json=entries((two, 4)))
    assert client.get("/v1/rows/Wilma/entries").json()["entries"] == [{"column": two, "value": 4}]
    gone = client.delete("/v1/rows/Wilma/entries").json()
    assert (gone["n_entries"], gone["n_forgotten"]) == (0, 1)
    assert client.get("/v1/rows/Wilma/entries").status_code == 404
    assert client.delete("/v1/rows/Wilma/entries").status_code == 404


def test_a_trained_row_is_forgotten_and_stays_so(started: Started, ratings: ObservedMatrix) -> None:
    row = ratings.row_labels[0]
    assert started().delete(f"/v1/rows/{row}/entries").json()["n_forgotten"] == ratings.row_counts[0]
    found = started().get(f"/v1/rows/{row}/entries").json()
    assert found["entries"] == []
    assert found["trained"]


def test_a_new_row_that_is_forgotten_is_gone_from_the_database(
    started: Started, ratings: ObservedMatrix, tmp_path: Path
) -> None:
    client, (trained, film) = started(), (ratings.row_labels[0], ratings.column_labels[0])
    client.put("/v1/rows/Wilma/entries", json=entries((film, 5), ("New film", 3)))
    client.delete("/v1/rows/Wilma/entries")
    client.delete(f"/v1/rows/{trained}/entries")
    with EntryDatabase(open_database(str(tmp_path / "entries.sqlite"))).reading() as transaction:
        assert {row for row, _ in transaction.all_entries()} == {trained}  # which the model's file has


def test_columns_are_written_likewise(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    rows = ratings.row_labels[:4].tolist()
    body = {"entries": [{"row": row, "value": value} for row, value in zip(rows, [5, 4, 5, 1], strict=True)]}
    assert client.put("/v1/columns/Premiere/entries", json=body).json()["axis"] == "column"
    other = ratings.row_labels[9]
    (found,) = client.post("/v1/predict", json={"pairs": [{"row": other, "column": "Premiere"}]}).json()["predictions"]
    assert found["area"] == "III"
    assert found["expected"] == pytest.approx(als.fold_in_column(rows, [5, 4, 5, 1]).predict([other])[0], rel=1e-5)
    assert client.get("/v1/columns", params={"search": "premi"}).json()["columns"][0]["n_entries"] == 4
    client.patch("/v1/columns/Premiere/entries", json={"entries": [{"row": rows[0], "value": None}]})
    assert client.get("/v1/columns/Premiere/entries").json()["n_entries"] == 3
    client.delete("/v1/columns/Premiere/entries")
    assert client.get("/v1/columns/Premiere/entries").status_code == 404
    assert client.get("/v1/columns", params={"search": "premi"}).json()["columns"] == []


def test_a_restart_brings_every_latent_back(started: Started, ratings: ObservedMatrix, url: str) -> None:
    first = started(url=url)
    films, people = ratings.column_labels.tolist(), ratings.row_labels.tolist()
    first.put("/v1/rows/Wilma/entries", json=entries((films[0], 5), (films[5], 2), ("New film", 3)))
    first.put("/v1/rows/Fred/entries", json=entries((films[1], 1), (films[5], 2)))
    first.patch(f"/v1/rows/{people[3]}/entries", json=entries((films[2], 5), ("New film", 4)))
    first.delete(f"/v1/rows/{people[4]}/entries")
    first.delete("/v1/rows/Fred/entries")
    asked = {"pairs": [{"row": row, "column": column} for row in ["Wilma", *people[:6]] for column in films[:20]]}
    before, after = (one.post("/v1/predict", json=asked).json() for one in (first, started(url=url)))
    assert before["version"] == after["version"]
    np.testing.assert_allclose(
        [one["expected"] for one in before["predictions"]],
        [one["expected"] for one in after["predictions"]],
        rtol=1e-5,
    )


def test_a_repeated_request_writes_once(client: TestClient, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    header = {"Idempotency-Key": "once"}
    first = client.put("/v1/rows/Wilma/entries", json=entries((film, 5)), headers=header)
    client.delete("/v1/rows/Wilma/entries")
    again = client.put("/v1/rows/Wilma/entries", json=entries((film, 5)), headers=header)
    assert (first.json(), first.headers["etag"]) == (again.json(), again.headers["etag"])
    assert again.headers["idempotency-replayed"] == "true"
    assert client.get("/v1/rows/Wilma/entries").status_code == 404
    other = client.put("/v1/rows/Wilma/entries", json=entries((film, 4)), headers=header)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "key_reused")


def holds(folder: Path, text: str) -> list[str]:
    """Return the files of a folder that have a text somewhere in their bytes."""
    return [path.name for path in folder.iterdir() if text.encode() in path.read_bytes()]


def test_nothing_of_a_row_stays_in_any_file_of_the_database(
    started: Started, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    films = ratings.column_labels.tolist()
    private = "a very private name"
    client = started(service={"limits": ServiceLimits(keep_changes=0.2)})

    def write(row: str, *pairs: tuple[object, object]) -> None:
        client.put(f"/v1/rows/{row}/entries", json=entries(*pairs), headers={"Idempotency-Key": f"put {row}"})

    for number in random.Random(0).sample(range(12), 12):
        kind = private if number % 3 else "other"
        write(f"{number:02} {kind}", *((film, 3) for film in films))
    assert holds(tmp_path, private)
    for number in range(12):
        headers = {"Idempotency-Key": f"delete {number}"}
        client.delete(f"/v1/rows/{number:02} {private}/entries", headers=headers)
    deadline = time.monotonic() + 20
    while holds(tmp_path, private) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert holds(tmp_path, private) == []
    assert holds(tmp_path, "03 other")
    again = client.delete(f"/v1/rows/01 {private}/entries", headers={"Idempotency-Key": "delete 1"})
    assert (again.status_code, again.json()["id"]) == (200, f"01 {private}")
    assert again.headers["idempotency-replayed"] == "true"


def test_nothing_of_a_row_stays_where_the_service_stops_at_once(tmp_path: Path, als: ALS) -> None:
    service = Service(als, EntryDatabase(open_database(str(tmp_path / "entries.sqlite"))))
    with TestClient(create_app(service), base_url="http://localhost") as client:
        client.put("/v1/rows/somebody/entries", json=entries(("a", 5)), headers={"Idempotency-Key": "1"})
        client.delete("/v1/rows/somebody/entries", headers={"Idempotency-Key": "2"})
        assert holds(tmp_path, "somebody")
    assert holds(tmp_path, "somebody") == []


def test_the_second_of_two_writers_is_told(client: TestClient, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    tag = client.put("/v1/rows/Wilma/entries", json=entries((film, 5))).headers["etag"]
    assert client.get("/v1/rows/Wilma/entries").headers["etag"] == tag
    written = client.put("/v1/rows/Wilma/entries", json=entries((film, 4)), headers={"If-Match": tag})
    assert written.status_code == 200
    late = client.put("/v1/rows/Wilma/entries", json=entries((film, 3)), headers={"If-Match": tag})
    assert (late.status_code, late.json()["error"]["code"]) == (412, "changed_meanwhile")
    assert client.get("/v1/rows/Wilma/entries").json()["entries"][0]["value"] == 4
    assert client.put("/v1/rows/Betty/entries", json=entries((film, 3)), headers={"If-Match": "*"}).status_code == 412


def test_ids_survive_untouched(started: Started, url: str) -> None:
    first = started(url=url)
    paths = {name: f"/v1/rows/{quote(name, safe='')}/entries" for name in HOSTILE}
    for name, path in paths.items():
        assert first.put(path, json=entries((name, 5))).json()["id"] == name
    again = started(url=url)
    for name, path in paths.items():
        assert again.get(path).json()["entries"] == [{"column": name, "value": 5}]
        assert again.post("/v1/recommend", json={"row": name, "n": 1}).json()["row"] == name
        found = again.get("/v1/columns", params={"search": name, "limit": 1000}).json()["columns"]
        assert name in [one["column"] for one in found]
        assert again.delete(path).json()["n_forgotten"] == 1


def test_ids_that_are_numbers_are_numbers(started: Started) -> None:
    client = started(ALS(latent_size=2, seed=0).fit(generate(20, 15, density=0.4, named=False, seed=0).matrix))
    assert client.get("/v1/model").json()["ids"] == {"row": "number", "column": "number"}
    assert client.put("/v1/rows/1000/entries", json=entries((3, 5))).json()["id"] == 1000
    assert client.get("/v1/rows/1000/entries").json()["entries"] == [{"column": 3, "value": 5}]
    assert client.post("/v1/recommend", json={"row": "1000"}).json()["row"] == 1000
    for wrong in ("ann", "1.5", "007", str(2**63)):
        refused = client.put(f"/v1/rows/{wrong}/entries", json=entries((3, 5)))
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_id")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"entries": [{"column": "a", "value": 7}]}, "off_scale"),
        ({"entries": [{"column": "a", "value": 1}, {"column": "a", "value": 2}]}, "given_twice"),
        ({"entries": [{"column": "a", "value": "5"}]}, "invalid"),
        ({"entries": [{"column": "a", "value": True}]}, "invalid"),
        ({"entries": [{"column": "a"}]}, "invalid"),
        ({"entries": [{"column": "x" * 2000, "value": 1}]}, "invalid"),
        ({}, "invalid"),
        ([], "invalid"),
    ],
)
def test_bad_entries_change_nothing(client: TestClient, body: object, code: str) -> None:
    answer = client.put("/v1/rows/Wilma/entries", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
    assert client.get("/v1/rows/Wilma/entries").status_code == 404


def test_a_model_that_cannot_learn_says_so(started: Started, ratings: ObservedMatrix) -> None:
    client = started(OptSpace(epochs=2, seed=0).fit(ratings))
    answer = client.put("/v1/rows/Wilma/entries", json=entries((ratings.column_labels[0], 5)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "cannot_extend")


def test_entries_come_in_pages(client: TestClient, ratings: ObservedMatrix) -> None:
    row = ratings.row_labels[0]
    first = client.get(f"/v1/rows/{row}/entries", params={"limit": 2}).json()
    assert (len(first["entries"]), first["next_offset"], first["n_entries"]) == (2, 2, ratings.row_counts[0])
