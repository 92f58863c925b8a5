"""What operators see: health, figures that add up, live errors, a replaced model, the page of routes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import Started

from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.load import load
from deepmf.models.model import Model
from deepmf.serve.keys import KeyRing
from deepmf.storage.model_folder import model_digest


def test_health_is_told(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_requests_entries_and_versions_are_counted(client: TestClient, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    client.post("/v1/recommend", json={"history": [{"column": film, "value": 5}]})
    client.get("/v1/rows/nobody/entries")
    lines = client.get("/metrics").text.splitlines()
    assert 'deepmf_requests_total{route="PUT /v1/rows/{row}/entries",status="200"} 1.0' in lines
    assert 'deepmf_requests_total{route="GET /v1/rows/{row}/entries",status="404"} 1.0' in lines
    assert 'deepmf_request_seconds_count{route="POST /v1/recommend"} 1.0' in lines
    assert "deepmf_entries_learned_total 1.0" in lines
    assert "deepmf_latents_recomputed_total 2.0" in lines
    assert "deepmf_histories_embedded_total 1.0" in lines
    assert "deepmf_data_version 1.0" in lines
    found = client.get("/v1/operator").json()
    assert (found["n_requests"], found["n_failed"], found["n_learned"]) == (4, 0, 1)
    refused = next(route for route in found["routes"] if route["route"] == "GET /v1/rows/{row}/entries")
    assert refused["n_refused"] == 1
    assert 0 < refused["seconds"]["p50"] <= refused["seconds"]["p99"]


def test_live_errors_are_those_of_what_was_predicted_before(
    client: TestClient, als: ALS, ratings: ObservedMatrix
) -> None:
    row = ratings.row_labels[0]
    films = als.recommend(row, 3).labels.tolist()
    predicted = als.predict([row] * 3, films)
    body = {"entries": [{"column": film, "value": 1} for film in films]}
    client.patch(f"/v1/rows/{row}/entries", json=body)
    (error,) = client.get("/v1/operator").json()["live_errors"]
    assert error["area"] == "I"
    assert error["n_entries"] == 3
    assert error["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - 1) ** 2)), rel=1e-5)
    assert error["mae"] == pytest.approx(np.mean(np.abs(predicted - 1)), rel=1e-5)
    # What is known is no test, and of a row that nobody knew nothing was predicted.
    client.patch(f"/v1/rows/{row}/entries", json={"entries": [{"column": films[0], "value": 2}]})
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": films[0], "value": 2}]})
    assert client.get("/v1/operator").json()["live_errors"] == [error]
    client.patch("/v1/rows/Wilma/entries", json={"entries": [{"column": films[1], "value": 2}]})
    assert [one["area"] for one in client.get("/v1/operator").json()["live_errors"]] == ["I", "II"]


def test_a_new_model_takes_over_with_all_entries(
    started: Started, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = started(service={"source": path, "digest": model_digest(path)})
    films = ratings.column_labels[:3].tolist()
    client.put(
        "/v1/rows/Wilma/entries",
        json={"entries": [{"column": film, "value": value} for film, value in zip(films, [5, 1, 4], strict=True)]},
    )
    assert client.post("/v1/model").json()["version"]["model"] == 1  # the same file
    other = ALS(latent_size=2, seed=1).fit(ratings)
    other.save(path)
    assert client.post("/v1/model").json()["version"] == {"model": 2, "data": 1}
    found = client.post("/v1/recommend", json={"row": "Wilma", "n": 3}).json()
    assert [one["column"] for one in found["best"]] == other.fold_in(films, [5, 1, 4]).recommend(3).labels.tolist()
    path.write_bytes(b"no model")
    refused = client.post("/v1/model")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "bad_model")
    assert str(tmp_path) not in refused.text
    assert client.post("/v1/recommend", json={"row": "Wilma"}).json()["version"]["model"] == 2


def test_a_model_folder_is_served_and_replaced(
    started: Started, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "ratings.model"
    als.save(path)
    client = started(load(path), service={"source": path, "digest": model_digest(path)})
    assert client.post("/v1/model").json()["version"]["model"] == 1
    films = ratings.column_labels[:3].tolist()
    entries = [{"column": film, "value": value} for film, value in zip(films, [5, 1, 4], strict=True)]
    found = client.post("/v1/recommend", json={"history": entries, "n": 3}).json()["best"]
    assert [one["column"] for one in found] == als.fold_in(films, [5, 1, 4]).recommend(3).labels.tolist()
    client.put("/v1/rows/Wilma/entries", json={"entries": entries})
    other = ALS(latent_size=2, seed=1).fit(ratings)
    other.save(path)
    assert client.post("/v1/model").json()["version"] == {"model": 2, "data": 1}
    found = client.post("/v1/recommend", json={"row": "Wilma", "n": 3}).json()["best"]
    assert [one["column"] for one in found] == other.fold_in(films, [5, 1, 4]).recommend(3).labels.tolist()
    (path / "00001.safetensors").unlink()
    client.post("/v1/model")  # the same manifest: the same version, nothing is read
    assert client.post("/v1/recommend", json={"row": "Wilma"}).json()["version"]["model"] == 2


def test_what_was_forgotten_does_not_come_back_with_a_model_trained_on_it(
    started: Started, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    from deepmf.serve.exported import exported

    path = tmp_path / "model.safetensors"
    als.save(path)
    client = started(service={"source": path, "digest": model_digest(path)})
    film = ratings.column_labels[0]
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    rows, columns, values = exported(als, str(tmp_path / "entries.sqlite")).entries
    assert rows.size == ratings.n_entries + 1
    client.delete("/v1/rows/Wilma/entries")
    trained = ALS(latent_size=2, seed=0).fit(ObservedMatrix.from_entries(rows, columns, values, ratings.scale))
    trained.save(path)
    client.post("/v1/model")
    assert client.get("/v1/rows/Wilma/entries").json()["entries"] == []


def test_what_is_forgotten_stays_so_where_the_next_model_had_it_in_its_own_data(
    started: Started, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = started(service={"source": path, "digest": model_digest(path)})
    film = ratings.column_labels[0]
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    rows, columns, values = (part.tolist() for part in ratings.entries())
    matrix = ObservedMatrix.from_entries([*rows, "Wilma"], [*columns, film], [*values, 5.0], ratings.scale)
    trained = ALS(latent_size=2, seed=0).fit(matrix)
    trained.save(path)
    client.post("/v1/model")
    other = started(trained, service={"source": path, "digest": model_digest(path)})
    assert client.delete("/v1/rows/Wilma/entries").json()["n_forgotten"] == 1
    assert other.patch("/v1/rows/Wilma/entries", json={"entries": []}).json()["n_entries"] == 0  # sees all writes
    restarted = started(trained, service={"source": path, "digest": model_digest(path)})
    for each in (client, other, restarted):
        assert each.get("/v1/rows/Wilma/entries").json()["entries"] == []


def test_features_that_are_forgotten_do_not_come_back_with_a_model_that_has_them(
    started: Started, tmp_path: Path, described: Model, ratings: ObservedMatrix
) -> None:
    from deepmf.serve.exported import exported

    client = started(described)
    client.put("/v1/rows/Wilma/features", json={"features": {"age": 30}})
    assert exported(described, str(tmp_path / "entries.sqlite")).row_features is not None
    client.delete("/v1/rows/Wilma/features")
    people = Features.from_columns([*ratings.row_labels, "Wilma"], {"age": np.arange(20, 21 + len(ratings.row_labels))})
    trained = ALS(latent_size=3, epochs=4, seed=0).fit(ratings, row_features=people)
    assert trained.entries_.rows.find(["Wilma"])[0] >= 0
    assert started(trained).get("/v1/rows/Wilma/features").status_code == 404


def test_the_page_of_routes_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for route in client.get("/openapi.json").json()["paths"]:
        assert route in page.text
    assert "http" not in page.text.replace("HTTP", "")
    assert "<script" not in page.text


def test_keys_are_described_where_they_are_needed(started: Started) -> None:
    without = started().get("/openapi.json").json()
    assert "security" not in without["paths"]["/v1/model"]["get"]
    assert "securitySchemes" not in without["components"]
    needed = started(keys=KeyRing([])).get("/openapi.json").json()
    assert needed["paths"]["/v1/model"]["get"]["security"]


def test_a_path_that_is_not_there_is_refused(client: TestClient) -> None:
    assert client.get("/v2/nothing").json()["error"]["code"] == "no_such_path"
    answer = client.delete("/v1/model")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "no_such_method")
    assert client.get("/page/../service.py").status_code == 404


def test_a_database_that_is_away_is_no_fault_to_operators(
    started: Started, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = started(service={"source": path, "digest": model_digest(path)})
    ALS(latent_size=2, seed=1).fit(ratings).save(path)
    for file in tmp_path.glob("entries.sqlite*"):
        file.unlink()
    for answer in (client.get("/v1/operator"), client.post("/v1/model"), client.get("/readyz")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_database")
        assert answer.headers["retry-after"] == "1"
    assert client.get("/v1/model").json()["version"]["model"] == 1
    assert client.get("/metrics").status_code == 200


@pytest.mark.slow
def test_figures_of_dead_workers_are_dropped(tmp_path: Path) -> None:
    def show(version: int) -> str:
        code = f"""
from types import SimpleNamespace
from deepmf.serve.service_metrics import ServiceMetrics
metrics = ServiceMetrics()
metrics.show(SimpleNamespace(model_version=1, data_version={version}))
metrics.learned(1, 1)
print(metrics.text().decode())
"""
        environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert "deepmf_data_version 3.0" in show(3)
    again = show(7)
    assert "deepmf_data_version 7.0" in again
    assert "deepmf_entries_learned_total 2.0" in again  # what was counted stays
