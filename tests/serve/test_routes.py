"""The routes of entries, predictions and operation: writes count at once, survive a restart, and
can be forgotten."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import PATIENT, StartClient
from tests.waiting import wait_until

from deepmf.datasets import generate
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.low_rank import OptSpace, RankK
from deepmf.serve.app import create_app
from deepmf.serve.database import open_database
from deepmf.serve.queries import check_history
from deepmf.serve.schemas import ApiError, HistoryEntry
from deepmf.serve.service import Service
from deepmf.storage.model_file import compute_digest

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


def test_a_new_row_counts_in_the_very_next_answer(
    client: TestClient, als: ALS, ratings: ObservedMatrix
) -> None:
    films = ratings.column_labels[:3].tolist()
    answer = client.put("/v1/rows/Wilma/entries", json=entries(*zip(films, [5, 1, 4], strict=True)))
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
    found = client.post("/v1/recommend", json={"row": "Wilma", "n": 4}).json()
    assert found["version"]["data"] == 1
    assert [one["column"] for one in found["best"]] == als.fold_in(films, [5, 1, 4]).recommend(
        4
    ).labels.tolist()
    assert {one["area"] for one in found["best"]} == {"II"}


def test_values_are_replaced_added_and_forgotten(
    client: TestClient, ratings: ObservedMatrix
) -> None:
    one, two, three = ratings.column_labels[:3].tolist()
    client.put("/v1/rows/Wilma/entries", json=entries((one, 5), (two, 1)))
    changed = client.patch(
        "/v1/rows/Wilma/entries", json=entries((one, 2), (two, None), (three, 3))
    ).json()
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


def test_a_trained_row_is_forgotten_and_stays_so(
    start_client: StartClient, ratings: ObservedMatrix
) -> None:
    row = ratings.row_labels[0]
    assert (
        start_client().delete(f"/v1/rows/{row}/entries").json()["n_forgotten"]
        == ratings.row_counts[0]
    )
    found = start_client().get(f"/v1/rows/{row}/entries").json()
    assert found["entries"] == []
    assert found["trained"]


def test_a_new_row_that_is_forgotten_is_gone_from_the_database(
    start_client: StartClient, ratings: ObservedMatrix, tmp_path: Path
) -> None:
    client, (trained, film) = start_client(), (ratings.row_labels[0], ratings.column_labels[0])
    client.put("/v1/rows/Wilma/entries", json=entries((film, 5), ("New film", 3)))
    client.delete("/v1/rows/Wilma/entries")
    client.delete(f"/v1/rows/{trained}/entries")
    with (
        closing(open_database(str(tmp_path / "entries.sqlite"))) as database,
        database.begin_read() as transaction,
    ):
        # which the model's file has
        assert {row for row, _ in transaction.read_entries()} == {trained}


def test_columns_are_written_likewise(
    client: TestClient, als: ALS, ratings: ObservedMatrix
) -> None:
    rows = ratings.row_labels[:4].tolist()
    body = {
        "entries": [
            {"row": row, "value": value} for row, value in zip(rows, [5, 4, 5, 1], strict=True)
        ]
    }
    assert client.put("/v1/columns/Premiere/entries", json=body).json()["axis"] == "column"
    other = ratings.row_labels[9]
    (found,) = client.post(
        "/v1/predict", json={"pairs": [{"row": other, "column": "Premiere"}]}
    ).json()["predictions"]
    assert found["area"] == "III"
    assert found["expected"] == pytest.approx(
        als.fold_in_column(rows, [5, 4, 5, 1]).predict([other])[0], rel=1e-5
    )
    assert (
        client.get("/v1/columns", params={"search": "premi"}).json()["columns"][0]["n_entries"] == 4
    )
    client.patch(
        "/v1/columns/Premiere/entries", json={"entries": [{"row": rows[0], "value": None}]}
    )
    assert client.get("/v1/columns/Premiere/entries").json()["n_entries"] == 3
    client.delete("/v1/columns/Premiere/entries")
    assert client.get("/v1/columns/Premiere/entries").status_code == 404
    assert client.get("/v1/columns", params={"search": "premi"}).json()["columns"] == []


def test_a_restart_brings_every_latent_back(
    start_client: StartClient, ratings: ObservedMatrix, url: str
) -> None:
    first = start_client(url=url)
    films, people = ratings.column_labels.tolist(), ratings.row_labels.tolist()
    first.put("/v1/rows/Wilma/entries", json=entries((films[0], 5), (films[5], 2), ("New film", 3)))
    first.put("/v1/rows/Fred/entries", json=entries((films[1], 1), (films[5], 2)))
    first.patch(f"/v1/rows/{people[3]}/entries", json=entries((films[2], 5), ("New film", 4)))
    first.delete(f"/v1/rows/{people[4]}/entries")
    first.delete("/v1/rows/Fred/entries")
    asked = {
        "pairs": [
            {"row": row, "column": column}
            for row in ["Wilma", *people[:6]]
            for column in films[:20]
        ]
    }
    before, after = (
        one.post("/v1/predict", json=asked).json() for one in (first, start_client(url=url))
    )
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


@pytest.mark.slow
def test_nothing_of_a_row_stays_in_any_file_of_the_database(
    start_client: StartClient, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    films = ratings.column_labels.tolist()
    private = "a very private name"
    client = start_client(service={"limits": replace(PATIENT, keep_changes=0.2)})

    def write(row: str, *pairs: tuple[object, object]) -> None:
        client.put(
            f"/v1/rows/{row}/entries",
            json=entries(*pairs),
            headers={"Idempotency-Key": f"put {row}"},
        )

    for number in random.Random(0).sample(range(12), 12):
        kind = private if number % 3 else "other"
        write(f"{number:02} {kind}", *((film, 3) for film in films))
    assert holds(tmp_path, private)
    for number in range(12):
        headers = {"Idempotency-Key": f"delete {number}"}
        client.delete(f"/v1/rows/{number:02} {private}/entries", headers=headers)
    wait_until(lambda: holds(tmp_path, private) == [])
    assert holds(tmp_path, "03 other")
    again = client.delete(f"/v1/rows/01 {private}/entries", headers={"Idempotency-Key": "delete 1"})
    assert (again.status_code, again.json()["id"]) == (200, f"01 {private}")
    assert again.headers["idempotency-replayed"] == "true"


def test_nothing_of_a_row_stays_where_the_service_stops_at_once(tmp_path: Path, als: ALS) -> None:
    service = Service(als, open_database(str(tmp_path / "entries.sqlite")))
    with TestClient(create_app(service), base_url="http://localhost") as client:
        client.put(
            "/v1/rows/somebody/entries", json=entries(("a", 5)), headers={"Idempotency-Key": "1"}
        )
        client.delete("/v1/rows/somebody/entries", headers={"Idempotency-Key": "2"})
        assert holds(tmp_path, "somebody")
    assert holds(tmp_path, "somebody") == []


def test_the_second_of_two_writers_is_told(client: TestClient, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    tag = client.put("/v1/rows/Wilma/entries", json=entries((film, 5))).headers["etag"]
    assert client.get("/v1/rows/Wilma/entries").headers["etag"] == tag
    written = client.put(
        "/v1/rows/Wilma/entries", json=entries((film, 4)), headers={"If-Match": tag}
    )
    assert written.status_code == 200
    late = client.put("/v1/rows/Wilma/entries", json=entries((film, 3)), headers={"If-Match": tag})
    assert (late.status_code, late.json()["error"]["code"]) == (412, "changed_meanwhile")
    assert client.get("/v1/rows/Wilma/entries").json()["entries"][0]["value"] == 4
    assert (
        client.put(
            "/v1/rows/Betty/entries", json=entries((film, 3)), headers={"If-Match": "*"}
        ).status_code
        == 412
    )


@pytest.mark.slow
def test_ids_survive_untouched(start_client: StartClient, url: str) -> None:
    first = start_client(url=url)
    paths = {name: f"/v1/rows/{quote(name, safe='')}/entries" for name in HOSTILE}
    for name, path in paths.items():
        assert first.put(path, json=entries((name, 5))).json()["id"] == name
    again = start_client(url=url)
    for name, path in paths.items():
        assert again.get(path).json()["entries"] == [{"column": name, "value": 5}]
        assert again.post("/v1/recommend", json={"row": name, "n": 1}).json()["row"] == name
        found = again.get("/v1/columns", params={"search": name, "limit": 1000}).json()["columns"]
        assert name in [one["column"] for one in found]
        assert again.delete(path).json()["n_forgotten"] == 1


def test_ids_that_are_numbers_are_numbers(start_client: StartClient) -> None:
    client = start_client(
        ALS(latent_size=2, seed=0).fit(generate(20, 15, density=0.4, named=False, seed=0).matrix)
    )
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


def test_a_model_that_cannot_learn_says_so(
    start_client: StartClient, ratings: ObservedMatrix
) -> None:
    client = start_client(OptSpace(epochs=2, seed=0).fit(ratings))
    answer = client.put("/v1/rows/Wilma/entries", json=entries((ratings.column_labels[0], 5)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "cannot_extend")


def test_entries_come_in_pages(client: TestClient, ratings: ObservedMatrix) -> None:
    row = ratings.row_labels[0]
    first = client.get(f"/v1/rows/{row}/entries", params={"limit": 2}).json()
    assert (len(first["entries"]), first["next_offset"], first["n_entries"]) == (
        2,
        2,
        ratings.row_counts[0],
    )


def test_health_is_told(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_requests_entries_and_versions_are_counted(
    client: TestClient, ratings: ObservedMatrix
) -> None:
    film = ratings.column_labels[0]
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    client.post("/v1/recommend", json={"history": [{"column": film, "value": 5}]})
    client.get("/v1/rows/nobody/entries")
    lines = client.get("/metrics").text.splitlines()
    assert 'deepmf_requests_total{route="PUT /v1/rows/{label}/entries",status="200"} 1.0' in lines
    assert 'deepmf_requests_total{route="GET /v1/rows/{label}/entries",status="404"} 1.0' in lines
    assert 'deepmf_request_seconds_count{route="POST /v1/recommend"} 1.0' in lines
    assert "deepmf_entries_learned_total 1.0" in lines
    assert "deepmf_latents_recomputed_total 2.0" in lines
    assert "deepmf_histories_embedded_total 1.0" in lines
    assert "deepmf_data_version 1.0" in lines
    found = client.get("/v1/operator").json()
    assert (found["n_requests"], found["n_failed"], found["n_learned"]) == (4, 0, 1)


def test_a_new_model_takes_over_with_all_entries(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = start_client(service={"source": path, "digest": compute_digest(path)})
    films = ratings.column_labels[:3].tolist()
    client.put(
        "/v1/rows/Wilma/entries",
        json={
            "entries": [
                {"column": film, "value": value}
                for film, value in zip(films, [5, 1, 4], strict=True)
            ]
        },
    )
    assert client.post("/v1/model").json()["version"]["model"] == 1  # the same file
    other = ALS(latent_size=2, seed=1).fit(ratings)
    other.save(path)
    assert client.post("/v1/model").json()["version"] == {"model": 2, "data": 1}
    found = client.post("/v1/recommend", json={"row": "Wilma", "n": 3}).json()
    assert [one["column"] for one in found["best"]] == other.fold_in(films, [5, 1, 4]).recommend(
        3
    ).labels.tolist()
    path.write_bytes(b"no model")
    refused = client.post("/v1/model")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "bad_model")
    assert str(tmp_path) not in refused.text
    assert client.post("/v1/recommend", json={"row": "Wilma"}).json()["version"]["model"] == 2


def test_a_memory_mapped_model_is_served_and_replaced(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "ratings.model"
    als.save(path)
    client = start_client(load(path), service={"source": path, "digest": compute_digest(path)})
    assert client.post("/v1/model").json()["version"]["model"] == 1
    films = ratings.column_labels[:3].tolist()
    entries = [
        {"column": film, "value": value} for film, value in zip(films, [5, 1, 4], strict=True)
    ]
    found = client.post("/v1/recommend", json={"history": entries, "n": 3}).json()["best"]
    assert [one["column"] for one in found] == als.fold_in(films, [5, 1, 4]).recommend(
        3
    ).labels.tolist()
    client.put("/v1/rows/Wilma/entries", json={"entries": entries})
    other = ALS(latent_size=2, seed=1).fit(ratings)
    other.save(path)
    assert client.post("/v1/model").json()["version"] == {"model": 2, "data": 1}
    found = client.post("/v1/recommend", json={"row": "Wilma", "n": 3}).json()["best"]
    assert [one["column"] for one in found] == other.fold_in(films, [5, 1, 4]).recommend(
        3
    ).labels.tolist()
    client.post("/v1/model")  # the same header: the same version, nothing is read
    assert client.post("/v1/recommend", json={"row": "Wilma"}).json()["version"]["model"] == 2


def test_what_was_forgotten_does_not_come_back_with_a_model_trained_on_it(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    from deepmf.serve.snapshot import export_data

    path = tmp_path / "model.safetensors"
    als.save(path)
    client = start_client(service={"source": path, "digest": compute_digest(path)})
    film = ratings.column_labels[0]
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    rows, columns, values = export_data(als, str(tmp_path / "entries.sqlite")).entries
    assert rows.size == ratings.n_entries + 1
    client.delete("/v1/rows/Wilma/entries")
    trained = ALS(latent_size=2, seed=0).fit(
        ObservedMatrix.from_entries(rows, columns, values, ratings.scale)
    )
    trained.save(path)
    client.post("/v1/model")
    assert client.get("/v1/rows/Wilma/entries").json()["entries"] == []


def test_what_is_forgotten_stays_so_where_the_next_model_had_it_in_its_own_data(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = start_client(service={"source": path, "digest": compute_digest(path)})
    film = ratings.column_labels[0]
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    rows, columns, values = (part.tolist() for part in ratings.entries())
    matrix = ObservedMatrix.from_entries(
        [*rows, "Wilma"], [*columns, film], [*values, 5.0], ratings.scale
    )
    trained = ALS(latent_size=2, seed=0).fit(matrix)
    trained.save(path)
    client.post("/v1/model")
    other = start_client(trained, service={"source": path, "digest": compute_digest(path)})
    assert client.delete("/v1/rows/Wilma/entries").json()["n_forgotten"] == 1
    # sees all writes
    assert other.patch("/v1/rows/Wilma/entries", json={"entries": []}).json()["n_entries"] == 0
    restarted = start_client(trained, service={"source": path, "digest": compute_digest(path)})
    for each in (client, other, restarted):
        assert each.get("/v1/rows/Wilma/entries").json()["entries"] == []


def test_features_that_are_forgotten_do_not_come_back_with_a_model_that_has_them(
    start_client: StartClient, tmp_path: Path, featured: Model, ratings: ObservedMatrix
) -> None:
    from deepmf.serve.snapshot import export_data

    client = start_client(featured)
    client.put("/v1/rows/Wilma/features", json={"features": {"age": 30}})
    assert export_data(featured, str(tmp_path / "entries.sqlite")).row_features is not None
    client.delete("/v1/rows/Wilma/features")
    people = Features.from_columns(
        [*ratings.row_labels, "Wilma"], {"age": np.arange(20, 21 + len(ratings.row_labels))}
    )
    trained = ALS(latent_size=3, epochs=4, seed=0).fit(ratings, row_features=people)
    assert trained.entries_.rows.find(["Wilma"])[0] >= 0
    assert start_client(trained).get("/v1/rows/Wilma/features").status_code == 404


def test_a_database_that_is_away_is_no_fault_to_operators(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = start_client(service={"source": path, "digest": compute_digest(path)})
    ALS(latent_size=2, seed=1).fit(ratings).save(path)
    for file in tmp_path.glob("entries.sqlite*"):
        file.unlink()
    for answer in (client.post("/v1/model"), client.get("/readyz")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_database")
        assert answer.headers["retry-after"] == "1"
    assert client.get("/v1/model").json()["version"]["model"] == 1
    assert client.get("/metrics").status_code == 200


@pytest.mark.slow
def test_figures_of_dead_workers_are_dropped(tmp_path: Path) -> None:
    def show(version: int) -> str:
        code = f"""
from types import SimpleNamespace
from deepmf.serve.metrics import ServiceMetrics
metrics = ServiceMetrics()
metrics.set_versions(SimpleNamespace(model_version=1, data_version={version}))
metrics.learned.inc()
print(metrics.to_text().decode())
"""
        environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "deepmf_data_version 3.0" in show(3)
    again = show(7)
    assert "deepmf_data_version 7.0" in again
    assert "deepmf_entries_learned_total 2.0" in again  # what was counted stays


def test_predictions_are_the_models(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    rows, columns = ratings.row_labels[:3].tolist(), ratings.column_labels[:3].tolist()
    pairs = [{"row": row, "column": column} for row, column in zip(rows, columns, strict=True)]
    answer = client.post("/v1/predict", json={"pairs": pairs})
    assert answer.status_code == 200
    found = answer.json()
    assert [one["expected"] for one in found["predictions"]] == als.predict(rows, columns).tolist()
    assert [one["level"] for one in found["predictions"]] == als.predict_levels(
        rows, columns
    ).tolist()
    assert {one["area"] for one in found["predictions"]} == {"I"}
    assert found["version"] == {"model": 1, "data": 0}
    assert found["predictions"][0]["distribution"] is None


def test_distributions_and_intervals_are_the_models(
    start_client: StartClient, ordinal: OrdinalDMF, ratings: ObservedMatrix
) -> None:
    row, column = ratings.row_labels[0], ratings.column_labels[0]
    found = (
        start_client(ordinal)
        .post("/v1/predict", json={"pairs": [{"row": row, "column": column}]})
        .json()
    )
    (one,) = found["predictions"]
    assert [chance["level"] for chance in one["distribution"]] == ordinal.support_.tolist()
    np.testing.assert_allclose(
        [chance["probability"] for chance in one["distribution"]],
        ordinal.predict_distribution([row], [column])[0],
    )
    low, high = ordinal.predict_interval([row], [column], coverage=0.9)
    assert one["interval"] == {"low": low[0], "high": high[0], "coverage": 0.9}


def test_unknown_pairs_get_what_was_asked_for(
    client: TestClient, als: ALS, ratings: ObservedMatrix
) -> None:
    pairs = [{"row": "nobody", "column": ratings.column_labels[0]}]
    refused = client.post("/v1/predict", json={"pairs": pairs})
    assert refused.status_code == 404
    assert refused.json() == {
        "error": {"code": "unknown_row", "message": "row 'nobody' is not known"}
    }
    (empty,) = client.post("/v1/predict", json={"pairs": pairs, "unknown": "nan"}).json()[
        "predictions"
    ]
    assert (empty["expected"], empty["level"], empty["area"]) == (None, None, None)
    (mean,) = client.post("/v1/predict", json={"pairs": pairs, "unknown": "fallback"}).json()[
        "predictions"
    ]
    assert (
        mean["expected"]
        == als.predict(["nobody"], ratings.column_labels[:1], unknown="fallback")[0]
    )


def test_a_known_row_gets_the_best_columns(
    client: TestClient, als: ALS, ratings: ObservedMatrix
) -> None:
    row = ratings.row_labels[0]
    found = client.post("/v1/recommend", json={"row": row, "n": 5}).json()
    best = als.recommend(row, 5)
    assert [one["column"] for one in found["best"]] == best.labels.tolist()
    np.testing.assert_allclose([one["expected"] for one in found["best"]], best.values, rtol=1e-5)
    assert found["row"] == row


def test_a_history_gets_what_its_fold_in_says(
    client: TestClient, als: ALS, ratings: ObservedMatrix
) -> None:
    films = ratings.column_labels[:3].tolist()
    history = [
        {"column": film, "value": value} for film, value in zip(films, [5, 1, 4], strict=True)
    ]
    guest = als.fold_in(films, [5, 1, 4])
    found = client.post("/v1/recommend", json={"history": history, "n": 3, "reasons": 2}).json()
    np.testing.assert_allclose(
        [one["expected"] for one in found["best"]], guest.recommend(3).values, rtol=1e-5
    )
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


@pytest.mark.parametrize("known", [True, False])
def test_options_choose_the_columns(
    client: TestClient, als: ALS, ratings: ObservedMatrix, known: bool
) -> None:
    films = ratings.column_labels[:10].tolist()
    row: dict[str, Any] = (
        {"row": ratings.row_labels[0]} if known else {"history": [{"column": films[0], "value": 5}]}
    )
    least = int(np.median(ratings.column_counts))
    for options in (
        {"min_entries": least},
        {"among": films, "exclude": films[:2], "include_observed": True},
        {"among": films[:1], "exclude": films[:1]},  # nothing is left
        {"rank_by": "value"},
        {"popularity": 0.5, "rank_by": "relevance"},
    ):
        found = client.post("/v1/recommend", json={**row, "n": 20, **options}).json()["best"]
        best = (
            als.recommend(row["row"], 20, **options)
            if known
            else als.fold_in(films[:1], [5]).recommend(20, **options)
        )
        assert [one["column"] for one in found] == best.labels.tolist()
    assert client.post("/v1/recommend", json={**row, "min_entries": -1}).status_code == 422


def test_explanations_are_the_models(client: TestClient, als: ALS, ratings: ObservedMatrix) -> None:
    row, column = ratings.row_labels[1], ratings.column_labels[2]
    found = client.post("/v1/explain", json={"row": row, "column": column, "n": 3}).json()
    explained = als.explain(row, column, 3)
    assert [one["column"] for one in found["entries"]] == explained.labels.tolist()
    np.testing.assert_allclose(
        [one["effect"] for one in found["entries"]], explained.effects, rtol=1e-4
    )
    assert found["expected"] == pytest.approx(explained.prediction)


@pytest.mark.parametrize("axis", ["row", "column"])
def test_similar_is_the_models(
    client: TestClient, als: ALS, ratings: ObservedMatrix, axis: str
) -> None:
    label = (ratings.row_labels if axis == "row" else ratings.column_labels)[3]
    found = client.post("/v1/similar", json={axis: label, "n": 4}).json()
    best = (als.similar_rows if axis == "row" else als.similar_columns)(label, 4)
    assert [one["id"] for one in found["similar"]] == best.labels.tolist()
    np.testing.assert_allclose([one["cosine"] for one in found["similar"]], best.values)
    if axis == "column":
        nothing = client.post("/v1/similar", json={"column": label, "min_entries": 10**6}).json()
        assert nothing["similar"] == []


def test_columns_are_found_by_their_beginning_then_by_a_part(
    client: TestClient, ratings: ObservedMatrix
) -> None:
    labels = ratings.column_labels.tolist()
    part = labels[0][1:4].upper()
    found = client.get("/v1/columns", params={"search": part, "limit": 1000}).json()
    wanted = {label for label in labels if part.casefold() in label.casefold()}
    assert {one["column"] for one in found["columns"]} == wanted
    assert found["total"] == len(wanted)
    starts = [one["column"].casefold().startswith(part.casefold()) for one in found["columns"]]
    assert starts == sorted(starts, reverse=True)


def test_columns_come_in_pages_the_most_entries_first(
    client: TestClient, ratings: ObservedMatrix
) -> None:
    first = client.get("/v1/columns", params={"limit": 25}).json()
    rest = client.get("/v1/columns", params={"limit": 25, "offset": first["next_offset"]}).json()
    counts = [one["n_entries"] for one in first["columns"] + rest["columns"]]
    assert counts == sorted(ratings.column_counts.tolist(), reverse=True)
    assert rest["next_offset"] is None


def test_the_model_says_what_it_is(client: TestClient, ratings: ObservedMatrix) -> None:
    found = client.get("/v1/model").json()
    assert found["model"] == "ALS"
    assert found["scale"] == {"levels": [1, 2, 3, 4, 5], "low": 1, "high": 5}
    assert (found["n_rows"], found["n_columns"], found["n_entries"]) == (
        *ratings.shape,
        ratings.n_entries,
    )
    assert found["ids"] == {"row": "text", "column": "text"}


def test_what_a_model_cannot_do_is_said(start_client: StartClient, ratings: ObservedMatrix) -> None:
    client = start_client(Means().fit(ratings))
    answer = client.post("/v1/similar", json={"column": ratings.column_labels[0]})
    assert answer.status_code == 409
    assert "no latents" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "known row"),
        ({"row": "a", "history": [{"column": "b", "value": 1}]}, "known row"),
        ({"row": "a", "n": 0}, "body.n"),
        ({"row": "a", "n": 10**6}, "body.n"),
        ({"row": True}, "body.row"),
        ({"row": "a", "more": 1}, "body.more"),
        ({"history": []}, "history is empty"),
    ],
)
def test_bad_bodies_are_refused_in_a_sentence(client: TestClient, body: object, said: str) -> None:
    answer = client.post("/v1/recommend", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]


def test_a_body_that_is_not_json_is_refused(client: TestClient) -> None:
    cut = client.post(
        "/v1/recommend", content=b"{bad", headers={"Content-Type": "application/json"}
    )
    assert cut.status_code == 422
    assert "not JSON" in cut.json()["error"]["message"]


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
    named = [
        {"column": one["column"] or ratings.column_labels[0], "value": one["value"]}
        for one in history
    ]
    answer = client.post("/v1/recommend", json={"history": named})
    assert answer.status_code in (404, 422)
    assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize("kind", [ALS, RankK, Means])
def test_unknown_rows_and_empty_histories_get_popular_columns(
    start_client: StartClient, ratings: ObservedMatrix, kind: type[Model]
) -> None:
    settings: dict[str, Any] = {} if kind is Means else {"latent_size": 2, "epochs": 2}
    model = kind(**settings).fit(ratings)
    client, counts = start_client(model), ratings.column_counts
    order = ratings.column_labels[np.argsort(-counts, kind="stable")].tolist()
    client.put(f"/v1/columns/{order[0]}/state", json={"visible": False})
    asked = {"n": 3, "exclude": [order[2]], "reasons": 2, "fallback": "popular"}
    for row in ({"row": "nobody"}, {"history": []}):
        found = client.post("/v1/recommend", json={**row, **asked}).json()
        assert (found["row"], found["rank_by"]) == (row.get("row"), "popularity")
        columns = [order[1], order[3], order[4]]
        assert [one["column"] for one in found["best"]] == columns
        expected = model.scores(["nobody"] * 3, columns, unknown="fallback")
        np.testing.assert_allclose([one["expected"] for one in found["best"]], expected)
    among = {"among": order[-3:], "min_entries": int(np.sort(counts)[1]), "n": 9}
    found = client.post(
        "/v1/recommend", json={"row": "nobody", **asked, "exclude": None, **among}
    ).json()
    assert [one["column"] for one in found["best"]] == order[-3:-1]
    known = {"row": ratings.row_labels[0], "n": 5}
    plain, falling_back = (
        client.post("/v1/recommend", json=known | more).json()
        for more in ({}, {"fallback": "popular"})
    )
    assert plain == falling_back


def test_a_long_history_with_a_duplicate_is_refused_quickly() -> None:
    labels = Labels(np.arange(40_000), axis="column")
    store = SimpleNamespace(columns=labels, train=SimpleNamespace(has_values=True))
    snapshot: Any = SimpleNamespace(model=SimpleNamespace(predicts=("I", "II"), entries_=store))
    history = [HistoryEntry(column=column, value=3) for column in [*range(40_000), 39_999]]
    start = time.thread_time()
    with pytest.raises(ApiError, match="39999 was given twice"):
        check_history(snapshot, history, None)
    assert time.thread_time() - start < 3


def test_a_model_that_cannot_explain_says_so(
    start_client: StartClient, ratings: ObservedMatrix
) -> None:
    client = start_client(RankK(latent_size=2, epochs=2).fit(ratings))
    row, column = ratings.row_labels[1], ratings.column_labels[2]
    for route, asked in (("explain", {"column": column}), ("recommend", {"reasons": 1})):
        answer = client.post(f"/v1/{route}", json={"row": row, **asked})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "cannot")
        assert answer.json()["error"]["message"].startswith("RankK cannot explain")
    assert client.post("/v1/recommend", json={"row": row}).status_code == 200


def test_names_are_in_answers_and_found_by_the_search(start_client: StartClient, als: ALS) -> None:
    first, second = als.column_labels_[:2].tolist()
    client = start_client(als.with_names(columns={first: "Zebra crossing", second: "A zebra"}))
    row = als.row_labels_[0]
    found = client.get("/v1/columns", params={"search": "zebra"}).json()["columns"]
    assert [column["column_name"] for column in found] == ["Zebra crossing", "A zebra"]
    similar = client.post("/v1/similar", json={"column": first, "n": 39}).json()
    assert similar["name"] == "Zebra crossing"
    assert {line["id"]: line.get("name") for line in similar["similar"]}[second] == "A zebra"
    body = {"row": row, "n": 1, "among": [first], "include_observed": True}
    assert (
        client.post("/v1/recommend", json=body).json()["best"][0]["column_name"] == "Zebra crossing"
    )
    assert (
        client.post("/v1/explain", json={"row": row, "column": second}).json()["column_name"]
        == "A zebra"
    )
    client.put("/v1/rows/new/entries", json={"entries": [{"column": first, "value": 3}]})
    assert (
        client.get("/v1/rows/new/entries").json()["entries"][0]["column_name"] == "Zebra crossing"
    )
    assert client.get("/v1/model").json()["nouns"] == {"row": "row", "column": "column"}
