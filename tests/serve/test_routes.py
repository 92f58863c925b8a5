"""The routes of entries, predictions and operation: writes count at once, survive a restart, and
can be forgotten."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from tests.serve.conftest import PATIENT, Caller, StartClient, list_history, refusal, serve_file
from tests.waiting import wait_until

from deepmf.datasets import generate
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.low_rank import OptSpace, RankK
from deepmf.serve.snapshot import export_data

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


def test_a_new_row_counts_in_the_very_next_answer(
    client: Caller, als: ALS, ratings: ObservedMatrix
) -> None:
    films = ratings.column_labels[:3].tolist()
    answer = client.write("Wilma", zip(films, [5, 1, 4], strict=True))
    assert answer.json() == {
        "axis": "row",
        "id": "Wilma",
        "n_entries": 3,
        "n_changed": 3,
        "n_forgotten": 0,
        "etag": answer.headers["etag"],
        "version": {"model": 1, "data": 1},
    }
    answer = client.ask("recommend", row="Wilma", n=4)
    best = als.fold_in(films, [5, 1, 4]).recommend(4).labels.tolist()
    assert [one["column"] for one in answer["best"]] == best
    assert {one["area"] for one in answer["best"]} == {"II"}
    assert answer["version"]["data"] == 1


def test_values_are_replaced_added_and_forgotten(client: Caller, ratings: ObservedMatrix) -> None:
    one, two, three = ratings.column_labels[:3].tolist()
    client.write("Wilma", {one: 5, two: 1})
    changed = client.write("Wilma", {one: 2, two: None, three: 3}, method="PATCH").json()
    assert (changed["n_entries"], changed["n_changed"], changed["n_forgotten"]) == (2, 2, 1)
    assert client.read("Wilma") == {one: 2, three: 3}
    client.write("Wilma", {two: 4})
    page = client.get("/v1/rows/Wilma/entries").json()
    assert (page["entries"], page["trained"]) == ([{"column": two, "value": 4}], False)
    gone = client.forget("Wilma").json()
    assert (gone["n_entries"], gone["n_forgotten"]) == (0, 1)
    assert client.get("/v1/rows/Wilma/entries").status_code == 404
    assert client.forget("Wilma").status_code == 404


def test_what_is_forgotten_stays_so_and_only_what_the_file_has_leaves_a_mark(
    start_client: StartClient, ratings: ObservedMatrix
) -> None:
    client, (trained, film) = start_client(), (ratings.row_labels[0], ratings.column_labels[0])
    client.write("Wilma", {film: 5, "New film": 3})
    client.forget("Wilma")
    assert client.forget(trained).json()["n_forgotten"] == ratings.row_counts[0]
    page = start_client().get(f"/v1/rows/{trained}/entries").json()
    assert (page["entries"], page["trained"]) == ([], True)
    with client.app.state.service._database.begin_write() as transaction:  # type: ignore[attr-defined]
        transaction.prune(2)
        assert {row for row, _ in transaction.read_entries()} == {trained}


def test_columns_are_written_likewise(client: Caller, als: ALS, ratings: ObservedMatrix) -> None:
    rows, path = ratings.row_labels[:4].tolist(), "/v1/columns/Premiere/entries"
    values = dict(zip(rows, [5, 4, 5, 1], strict=True))
    entries = [{"row": row, "value": value} for row, value in values.items()]
    assert client.put(path, json={"entries": entries}).json()["axis"] == "column"
    other = ratings.row_labels[9]
    (one,) = client.ask("predict", pairs=[{"row": other, "column": "Premiere"}])["predictions"]
    assert one["area"] == "III"
    folded = als.fold_in_column(rows, [5, 4, 5, 1])
    assert one["expected"] == pytest.approx(folded.predict([other])[0], rel=1e-5)
    search = {"search": "premi"}
    assert client.get("/v1/columns", params=search).json()["columns"][0]["n_entries"] == 4
    client.patch(path, json={"entries": [{"row": rows[0], "value": None}]})
    assert client.get(path).json()["n_entries"] == 3
    client.delete(path)
    assert client.get(path).status_code == 404
    assert client.get("/v1/columns", params=search).json()["columns"] == []


def test_a_restart_brings_every_latent_back(
    start_client: StartClient, ratings: ObservedMatrix, url: str
) -> None:
    first = start_client(url=url)
    films, people = ratings.column_labels.tolist(), ratings.row_labels.tolist()
    first.write("Wilma", {films[0]: 5, films[5]: 2, "New film": 3})
    first.write("Fred", {films[1]: 1, films[5]: 2})
    first.write(people[3], {films[2]: 5, "New film": 4}, method="PATCH")
    first.forget(people[4])
    first.forget("Fred")
    rows = np.repeat(["Wilma", *people[:6]], 20).tolist()
    before, after = (one.predict(rows, films[:20] * 7) for one in (first, start_client(url=url)))
    np.testing.assert_allclose(before, after, rtol=1e-5)


def test_a_repeated_request_writes_once(client: Caller, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    first = client.write("Wilma", {film: 5}, key="once")
    client.forget("Wilma")
    again = client.write("Wilma", {film: 5}, key="once")
    assert (first.json(), first.headers["etag"]) == (again.json(), again.headers["etag"])
    assert again.headers["idempotency-replayed"] == "true"
    assert client.get("/v1/rows/Wilma/entries").status_code == 404
    assert refusal(client.write("Wilma", {film: 4}, key="once")) == (422, "key_reused")


def holds(folder: Path, text: str) -> list[str]:
    """Return the files of a folder that have a text somewhere in their bytes."""
    return [path.name for path in folder.iterdir() if text.encode() in path.read_bytes()]


@pytest.mark.slow
def test_nothing_of_a_row_stays_in_any_file_of_the_database(
    start_client: StartClient, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    private = "a very private name"
    client = start_client(service={"limits": replace(PATIENT, keep_changes=0.2)})
    for number in random.Random(0).sample(range(12), 12):
        row = f"{number:02} {private if number % 3 else 'other'}"
        client.write(row, dict.fromkeys(ratings.column_labels.tolist(), 3), key=f"put {row}")
    assert holds(tmp_path, private)
    for number in range(12):
        client.forget(f"{number:02} {private}", key=f"delete {number}")
    wait_until(lambda: holds(tmp_path, private) == [])
    assert holds(tmp_path, "03 other")
    again = client.forget(f"01 {private}", key="delete 1")
    assert (again.status_code, again.json()["id"]) == (200, f"01 {private}")
    assert again.headers["idempotency-replayed"] == "true"


def test_nothing_of_a_row_stays_where_the_service_stops_at_once(
    start_client: StartClient, tmp_path: Path
) -> None:
    client = start_client()
    client.write("somebody", {"a": 5}, key="1")
    client.forget("somebody", key="2")
    assert holds(tmp_path, "somebody")
    client.__exit__(None, None, None)
    assert holds(tmp_path, "somebody") == []


def test_the_second_of_two_writers_is_told(client: Caller, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    tag = client.write("Wilma", {film: 5}).headers["etag"]
    assert client.get("/v1/rows/Wilma/entries").headers["etag"] == tag
    assert client.write("Wilma", {film: 4}, if_match=tag).status_code == 200
    late = client.write("Wilma", {film: 3}, if_match=tag)
    assert refusal(late) == (412, "changed_meanwhile")
    assert client.read("Wilma") == {film: 4}
    assert client.write("Betty", {film: 3}, if_match="*").status_code == 412


@pytest.mark.slow
def test_ids_survive_untouched(start_client: StartClient, url: str) -> None:
    first = start_client(url=url)
    for name in HOSTILE:
        assert first.write(quote(name, safe=""), {name: 5}).json()["id"] == name
    again = start_client(url=url)
    for name in HOSTILE:
        row = quote(name, safe="")
        assert again.read(row) == {name: 5}
        assert again.ask("recommend", row=name, n=1)["row"] == name
        search = {"search": name, "limit": 1000}
        columns = again.get("/v1/columns", params=search).json()["columns"]
        assert name in [one["column"] for one in columns]
        assert again.forget(row).json()["n_forgotten"] == 1


def test_ids_that_are_numbers_are_numbers(start_client: StartClient) -> None:
    matrix = generate(20, 15, density=0.4, named=False, seed=0).matrix
    client = start_client(ALS(latent_size=2, seed=0).fit(matrix))
    assert client.get("/v1/model").json()["ids"] == {"row": "number", "column": "number"}
    assert client.write(1000, {3: 5}).json()["id"] == 1000
    assert client.read(1000) == {3: 5}
    assert client.ask("recommend", row="1000")["row"] == 1000
    for wrong in ("ann", "1.5", "007", str(2**63)):
        assert refusal(client.write(wrong, {3: 5})) == (422, "bad_id")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"entries": [{"column": "a", "value": 7}]}, "off_scale"),
        ({"entries": [{"column": "a", "value": 1}, {"column": "a", "value": 2}]}, "given_twice"),
        ({"entries": [{"column": "a", "value": "5"}]}, "invalid"),
        ({"entries": [{"column": "a", "value": True}]}, "invalid"),
        ({"entries": [{"column": "a"}]}, "invalid"),
        ({"entries": [{"row": "a", "value": 1}]}, "invalid"),
        ({"entries": [{"column": "x" * 2000, "value": 1}]}, "invalid"),
        ({}, "invalid"),
        ([], "invalid"),
    ],
)
def test_bad_entries_change_nothing(client: Caller, body: object, code: str) -> None:
    assert refusal(client.put("/v1/rows/Wilma/entries", json=body)) == (422, code)
    assert client.get("/v1/rows/Wilma/entries").status_code == 404


def test_entries_come_in_pages(client: Caller, ratings: ObservedMatrix) -> None:
    page = client.get(f"/v1/rows/{ratings.row_labels[0]}/entries", params={"limit": 2}).json()
    assert (len(page["entries"]), page["next_offset"]) == (2, 2)
    assert page["n_entries"] == ratings.row_counts[0]


def test_requests_entries_and_versions_are_counted(client: Caller, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    client.write("Wilma", {film: 5})
    client.ask("recommend", history=list_history({film: 5}))
    client.get("/v1/rows/nobody/entries")
    lines = client.get("/metrics").text.splitlines()
    for line in (
        'deepmf_requests_total{route="PUT /v1/rows/{row}/entries",status="200"} 1.0',
        'deepmf_requests_total{route="GET /v1/rows/{row}/entries",status="404"} 1.0',
        'deepmf_request_seconds_count{route="POST /v1/recommend"} 1.0',
        "deepmf_entries_learned_total 1.0",
        "deepmf_latents_recomputed_total 2.0",
        "deepmf_histories_embedded_total 1.0",
        "deepmf_data_version 1.0",
    ):
        assert line in lines
    totals = client.get("/v1/operator").json()
    assert (totals["n_requests"], totals["n_failed"], totals["n_learned"]) == (4, 0, 1)
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


@pytest.mark.parametrize("name", ["model.safetensors", "ratings.model"])
def test_a_new_model_takes_over_with_all_entries(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix, name: str
) -> None:
    path = tmp_path / name  # the second is memory-mapped
    als.save(path)
    client = start_client(load(path), service=serve_file(path))
    films = ratings.column_labels[:3].tolist()
    values = dict(zip(films, [5, 1, 4], strict=True))
    best = als.fold_in(films, [5, 1, 4]).recommend(3).labels.tolist()
    assert client.best(history=list_history(values), n=3) == best
    client.write("Wilma", values)
    assert client.ask("model")["version"]["model"] == 1  # the same file
    other = ALS(latent_size=2, seed=1).fit(ratings)
    other.save(path)
    assert client.ask("model")["version"] == {"model": 2, "data": 1}
    best = other.fold_in(films, [5, 1, 4]).recommend(3).labels.tolist()
    assert client.best(row="Wilma", n=3) == best
    client.ask("model")  # the same header: the same version, nothing is read
    assert client.ask("recommend", row="Wilma")["version"]["model"] == 2


def test_what_was_exported_and_forgotten_does_not_come_back_with_the_next_model(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = start_client(service=serve_file(path))
    client.write("Wilma", {ratings.column_labels[0]: 5})
    exported = export_data(als, str(tmp_path / "entries.sqlite")).entries
    assert exported.rows.size == ratings.n_entries + 1
    client.forget("Wilma")
    matrix = ObservedMatrix.from_entries(*exported, ratings.scale)
    ALS(latent_size=2, seed=0).fit(matrix).save(path)
    client.ask("model")
    assert client.read("Wilma") == {}


def test_what_is_forgotten_stays_so_where_the_next_model_had_it_in_its_own_data(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix
) -> None:
    path, film = tmp_path / "model.safetensors", ratings.column_labels[0]
    als.save(path)
    client = start_client(service=serve_file(path))
    client.write("Wilma", {film: 5})
    rows, columns, values = (part.tolist() for part in ratings.entries())
    matrix = ObservedMatrix.from_entries(
        [*rows, "Wilma"], [*columns, film], [*values, 5.0], ratings.scale
    )
    trained = ALS(latent_size=2, seed=0).fit(matrix)
    trained.save(path)
    client.ask("model")
    other = start_client(trained, service=serve_file(path))
    assert client.forget("Wilma").json()["n_forgotten"] == 1
    for caller in (client, other, start_client(trained, service=serve_file(path))):
        assert caller.read("Wilma") == {}


def test_features_that_are_forgotten_do_not_come_back_with_a_model_that_has_them(
    start_client: StartClient, tmp_path: Path, featured: Model, ratings: ObservedMatrix
) -> None:
    client = start_client(featured)
    client.put("/v1/rows/Wilma/features", json={"features": {"age": 30}})
    assert export_data(featured, str(tmp_path / "entries.sqlite")).row_features is not None
    client.delete("/v1/rows/Wilma/features")
    people = [*ratings.row_labels, "Wilma"]
    ages = Features.from_columns(people, {"age": np.arange(20, 20 + len(people))})
    trained = ALS(latent_size=3, epochs=4, seed=0).fit(ratings, row_features=ages)
    assert trained.entries_.rows.find(["Wilma"])[0] >= 0
    assert start_client(trained).get("/v1/rows/Wilma/features").status_code == 404


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
        command = [sys.executable, "-c", code]
        return subprocess.check_output(command, env=environment, text=True)

    assert "deepmf_data_version 3.0" in show(3)
    again = show(7)
    assert "deepmf_data_version 7.0" in again
    assert "deepmf_entries_learned_total 2.0" in again  # what was counted stays


def test_predictions_are_the_models(client: Caller, als: ALS, ratings: ObservedMatrix) -> None:
    rows, columns = ratings.row_labels[:3].tolist(), ratings.column_labels[:3].tolist()
    assert client.predict(rows, columns) == als.predict(rows, columns).tolist()
    answer = client.ask("predict", pairs=[{"row": rows[0], "column": columns[0]}])
    (one,) = answer["predictions"]
    assert one["level"] == als.predict_levels(rows[:1], columns[:1])[0]
    assert (one["area"], one["distribution"]) == ("I", None)
    assert answer["version"] == {"model": 1, "data": 0}


def test_distributions_and_intervals_are_the_models(
    start_client: StartClient, ordinal: OrdinalDMF, ratings: ObservedMatrix
) -> None:
    row, column = ratings.row_labels[0], ratings.column_labels[0]
    answer = start_client(ordinal).ask("predict", pairs=[{"row": row, "column": column}])
    (one,) = answer["predictions"]
    assert [chance["level"] for chance in one["distribution"]] == ordinal.support_.tolist()
    chances = [chance["probability"] for chance in one["distribution"]]
    np.testing.assert_allclose(chances, ordinal.predict_distribution([row], [column])[0])
    low, high = ordinal.predict_interval([row], [column], coverage=0.9)
    assert one["interval"] == {"low": low[0], "high": high[0], "coverage": 0.9}


def test_unknown_pairs_get_what_was_asked_for(
    client: Caller, als: ALS, ratings: ObservedMatrix
) -> None:
    film = ratings.column_labels[0]
    pairs = [{"row": "nobody", "column": film}]
    refused = client.post("/v1/predict", json={"pairs": pairs})
    assert refused.status_code == 404
    message = "row 'nobody' is not known"
    assert refused.json() == {"error": {"code": "unknown_row", "message": message}}
    (empty,) = client.ask("predict", pairs=pairs, unknown="nan")["predictions"]
    assert (empty["expected"], empty["level"], empty["area"]) == (None, None, None)
    mean = als.predict(["nobody"], [film], unknown="fallback").tolist()
    assert client.predict(["nobody"], [film], unknown="fallback") == mean


def test_a_known_row_gets_the_best_columns(
    client: Caller, als: ALS, ratings: ObservedMatrix
) -> None:
    row = ratings.row_labels[0]
    answer, best = client.ask("recommend", row=row, n=5), als.recommend(row, 5)
    assert [one["column"] for one in answer["best"]] == best.labels.tolist()
    values = [one["expected"] for one in answer["best"]]
    np.testing.assert_allclose(values, best.values, rtol=1e-5)
    assert answer["row"] == row


def test_a_history_gets_what_its_fold_in_says(
    client: Caller, als: ALS, ratings: ObservedMatrix
) -> None:
    films, other = ratings.column_labels[:3].tolist(), ratings.column_labels[7]
    history = list_history(zip(films, [5, 1, 4], strict=True))
    guest = als.fold_in(films, [5, 1, 4])
    best = client.ask("recommend", history=history, n=3, reasons=2)["best"]
    values = [one["expected"] for one in best]
    np.testing.assert_allclose(values, guest.recommend(3).values, rtol=1e-5)
    assert {one["area"] for one in best} == {"II"}
    reasons, explained = best[0]["reasons"], guest.explain(best[0]["column"], 2)
    assert [one["column"] for one in reasons] == explained.labels.tolist()
    np.testing.assert_allclose([one["effect"] for one in reasons], explained.effects, rtol=1e-4)
    (one,) = client.ask("predict", history=history, columns=[other])["predictions"]
    np.testing.assert_allclose(one["expected"], guest.predict([other])[0])
    assert client.get("/v1/model").json()["version"]["data"] == 0


@pytest.mark.parametrize("known", [True, False])
def test_options_choose_the_columns(
    client: Caller, als: ALS, ratings: ObservedMatrix, known: bool
) -> None:
    films, first = ratings.column_labels[:10].tolist(), ratings.row_labels[0]
    row: dict[str, Any] = {"history": list_history({films[0]: 5})}
    recommend: Any = als.fold_in(films[:1], [5]).recommend
    if known:
        row, recommend = {"row": first}, partial(als.recommend, first)
    for options in (
        {"min_entries": int(np.median(ratings.column_counts))},
        {"among": films, "exclude": films[:2], "include_observed": True},
        {"among": films[:1], "exclude": films[:1]},  # nothing is left
        {"rank_by": "value"},
        {"popularity": 0.5, "rank_by": "relevance"},
    ):
        assert client.best(**row, n=20, **options) == recommend(20, **options).labels.tolist()
    assert client.post("/v1/recommend", json={**row, "min_entries": -1}).status_code == 422


def test_explanations_are_the_models(client: Caller, als: ALS, ratings: ObservedMatrix) -> None:
    row, column = ratings.row_labels[1], ratings.column_labels[2]
    answer, explained = (
        client.ask("explain", row=row, column=column, n=3),
        als.explain(row, column, 3),
    )
    assert [one["column"] for one in answer["entries"]] == explained.labels.tolist()
    effects = [one["effect"] for one in answer["entries"]]
    np.testing.assert_allclose(effects, explained.effects, rtol=1e-4)
    assert answer["expected"] == pytest.approx(explained.prediction)


@pytest.mark.parametrize("axis", ["row", "column"])
def test_similar_is_the_models(
    client: Caller, als: ALS, ratings: ObservedMatrix, axis: str
) -> None:
    label = (ratings.row_labels if axis == "row" else ratings.column_labels)[3]
    similar = client.ask("similar", **{axis: label}, n=4)["similar"]
    best = (als.similar_rows if axis == "row" else als.similar_columns)(label, 4)
    assert [one["id"] for one in similar] == best.labels.tolist()
    np.testing.assert_allclose([one["cosine"] for one in similar], best.values)
    if axis == "column":
        assert client.ask("similar", column=label, min_entries=10**6)["similar"] == []


def test_columns_are_found_by_their_beginning_then_by_a_part(
    client: Caller, ratings: ObservedMatrix
) -> None:
    labels = ratings.column_labels.tolist()
    part = labels[0][1:4].upper()
    answer = client.get("/v1/columns", params={"search": part, "limit": 1000}).json()
    columns = [one["column"] for one in answer["columns"]]
    wanted = {label for label in labels if part.casefold() in label.casefold()}
    assert (set(columns), answer["total"]) == (wanted, len(wanted))
    starts = [column.casefold().startswith(part.casefold()) for column in columns]
    assert starts == sorted(starts, reverse=True)


def test_columns_come_in_pages_the_most_entries_first(
    client: Caller, ratings: ObservedMatrix
) -> None:
    page = client.get("/v1/columns", params={"limit": 25}).json()
    following = {"limit": 25, "offset": page["next_offset"]}
    last = client.get("/v1/columns", params=following).json()
    counts = [one["n_entries"] for one in page["columns"] + last["columns"]]
    assert counts == sorted(ratings.column_counts.tolist(), reverse=True)
    assert last["next_offset"] is None


def test_the_model_says_what_it_is(client: Caller, ratings: ObservedMatrix) -> None:
    answer = client.get("/v1/model").json()
    assert answer["model"] == "ALS"
    assert answer["scale"] == {"levels": [1, 2, 3, 4, 5], "low": 1, "high": 5}
    assert [answer[f"n_{part}"] for part in ("rows", "columns")] == list(ratings.shape)
    assert answer["n_entries"] == ratings.n_entries
    assert answer["ids"] == {"row": "text", "column": "text"}
    assert answer["nouns"] == {"row": "row", "column": "column"}


def test_what_a_model_cannot_do_is_said(start_client: StartClient, ratings: ObservedMatrix) -> None:
    row, column = ratings.row_labels[1], ratings.column_labels[0]
    means = start_client(Means().fit(ratings))
    assert refusal(means.post("/v1/similar", json={"column": column})) == (409, "cannot")
    client = start_client(OptSpace(epochs=2, seed=0).fit(ratings))
    assert refusal(client.write("Wilma", {column: 5})) == (409, "cannot_extend")
    client = start_client(RankK(latent_size=2, epochs=2).fit(ratings))
    for route, asked in (("explain", {"column": column}), ("recommend", {"reasons": 1})):
        answer = client.post(f"/v1/{route}", json={"row": row, **asked})
        assert refusal(answer) == (409, "cannot")
        assert answer.json()["error"]["message"].startswith("RankK cannot explain")
    assert client.post("/v1/recommend", json={"row": row}).status_code == 200


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
def test_bad_bodies_are_refused_in_a_sentence(client: Caller, body: object, said: str) -> None:
    answer = client.post("/v1/recommend", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]


def test_a_body_that_is_not_json_is_refused(client: Caller) -> None:
    headers = {"Content-Type": "application/json"}
    cut = client.post("/v1/recommend", content=b"{bad", headers=headers)
    assert cut.status_code == 422
    assert "not JSON" in cut.json()["error"]["message"]


def test_bad_histories_are_refused(client: Caller, ratings: ObservedMatrix) -> None:
    film = ratings.column_labels[0]
    for history, refused in (
        (list_history({"no such film": 1}), (404, "unknown_column")),
        (list_history({film: 9}), (422, "off_scale")),
        (list_history({film: 3}) * 2, (422, "given_twice")),
        ([{"column": film}], (422, "value_missing")),
    ):
        assert refusal(client.post("/v1/recommend", json={"history": history})) == refused


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
        answer = client.ask("recommend", **row, **asked)
        assert (answer["row"], answer["rank_by"]) == (row.get("row"), "popularity")
        columns = [order[1], order[3], order[4]]
        assert [one["column"] for one in answer["best"]] == columns
        expected = model.scores(["nobody"] * 3, columns, unknown="fallback")
        np.testing.assert_allclose([one["expected"] for one in answer["best"]], expected)
    among = {"among": order[-3:], "min_entries": int(np.sort(counts)[1]), "n": 9}
    assert client.best(**{"row": "nobody", **asked, "exclude": None, **among}) == order[-3:-1]
    known = {"row": ratings.row_labels[0], "n": 5}
    assert client.ask("recommend", **known) == client.ask("recommend", **known, fallback="popular")


def test_names_are_in_answers_and_found_by_the_search(start_client: StartClient, als: ALS) -> None:
    first, second = als.column_labels_[:2].tolist()
    client = start_client(als.with_names(columns={first: "Zebra crossing", second: "A zebra"}))
    row = als.row_labels_[0]
    columns = client.get("/v1/columns", params={"search": "zebra"}).json()["columns"]
    assert [column["column_name"] for column in columns] == ["Zebra crossing", "A zebra"]
    similar = client.ask("similar", column=first, n=39)
    assert similar["name"] == "Zebra crossing"
    assert {line["id"]: line.get("name") for line in similar["similar"]}[second] == "A zebra"
    (best,) = client.ask("recommend", row=row, n=1, among=[first], include_observed=True)["best"]
    assert best["column_name"] == "Zebra crossing"
    assert client.ask("explain", row=row, column=second)["column_name"] == "A zebra"
    client.write("new", {first: 3})
    (entry,) = client.get("/v1/rows/new/entries").json()["entries"]
    assert entry["column_name"] == "Zebra crossing"
