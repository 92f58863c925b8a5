"""The service over a model of interactions: entries are counts, histories need no values, and
predict refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.models.test_interactions import make_clicks, own_kind
from tests.recommend.test_next_ridge import walk
from tests.serve.conftest import Caller, StartClient, refusal

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.serve.schemas import GivenEntry
from deepmf.serve.snapshot import export_data
from deepmf.serve.writer import EntryWrite


@pytest.fixture(scope="module")
def walking() -> ALS:
    """A model of rows that walk from each column to the next."""
    return ALS(seed=0).fit(ObservedMatrix.from_sequences(walk(np.random.default_rng(0))))


@pytest.fixture
def client(start_client: StartClient) -> Caller:
    return start_client(ALS(seed=0).fit(make_clicks()))


def test_histories_need_no_values(client: Caller) -> None:
    assert client.get("/v1/model").json()["has_values"] is False
    history = [{"column": "i0"}, {"column": "i2", "value": 3}]
    best = client.ask("recommend", history=history, n=3, reasons=2)["best"]
    assert own_kind("u0", [one["column"] for one in best])
    chances = [one["expected"] for one in best]
    assert all(0 < chance < 1 for chance in chances)
    assert chances == sorted(chances, reverse=True)
    assert all({reason["column"] for reason in one["reasons"]} == {"i0", "i2"} for one in best)
    why = client.ask("explain", history=history, column=best[0]["column"])
    assert why["expected"] == pytest.approx(chances[0], rel=1e-4)
    assert why["presence"][0]["effect"] > 0 and why["entries"][0]["column"] in ("i0", "i2")


def test_unknown_rows_get_popular_columns_and_their_shares(client: Caller) -> None:
    clicks = make_clicks()
    shares = (clicks.column_counts / clicks.shape[0]).tolist()
    share_of = dict(zip(clicks.column_labels.tolist(), shares, strict=True))
    best = client.ask("recommend", row="nobody", n=3, fallback="popular")["best"]
    assert [one["expected"] for one in best] == sorted(shares, reverse=True)[:3]
    assert all(one["expected"] == share_of[one["column"]] for one in best)


def test_a_written_row_is_recommended_to(client: Caller) -> None:
    assert client.write("new", {"i1": 1, "i3": 2}).is_success
    assert own_kind("u1", client.best(row="new", n=3))
    assert client.write("new", {"i5": 1}, method="PATCH").is_success
    similar = client.ask("similar", row="new", n=2)["similar"]
    assert own_kind("u1", ["i" + one["id"][1:] for one in similar])
    assert client.write("new", {"i1": 0}).status_code == 422
    assert client.forget("new").is_success


@pytest.mark.parametrize(
    "body",
    [
        {"pairs": [{"row": "u0", "column": "i0"}]},
        {"pairs": [{"row": "nobody", "column": "i0"}], "unknown": "fallback"},
        {"history": [{"column": "i0"}], "columns": ["i2"]},
    ],
)
def test_questions_about_values_are_refused(client: Caller, body: dict[str, Any]) -> None:
    assert refusal(client.post("/v1/predict", json=body)) == (409, "no_values")


def test_histories_are_in_order_and_writes_move_what_comes_next_at_once(
    start_client: StartClient, walking: ALS
) -> None:
    client = start_client(walking)

    def ask(**row: Any) -> tuple[str, str]:
        answer = client.ask("recommend", **row, n=1, reasons=1)
        assert answer["rank_by"] == "next"
        return answer["best"][0]["column"], answer["best"][0]["presence_reasons"][0]["column"]

    for first, last, following in (("03", "20", "21"), ("20", "03", "04")):
        history = [{"column": f"column {place}"} for place in (first, last)]
        assert ask(history=history) == (f"column {following}", f"column {last}")
    for place, following in ((20, 21), (3, 4), (11, 12)):
        assert client.write("new", {f"column {place:02d}": 1}, method="PATCH").is_success
        assert ask(row="new")[0] == f"column {following:02d}"
    assert client.write("new", {"column 11": None}, method="PATCH").is_success
    assert ask(row="new")[0] == "column 04"
    places = ("20", "03", "20")  # in bulk, an entry has the place of its last line
    lines = [{"row": "bulk", "column": f"column {place}", "value": 1} for place in places]
    answer = client.post("/v1/entries/bulk", content="\n".join(map(json.dumps, lines)))
    assert answer.json()["n_changed"] == 2
    assert ask(row="bulk")[0] == "column 21"


def test_writes_that_are_committed_together_keep_their_order(
    start_client: StartClient, walking: ALS
) -> None:
    client, given = start_client(walking), (("20", 1), ("03", 1), ("20", 2))
    entries = [GivenEntry(column=f"column {place}", value=value) for place, value in given]
    writes = [EntryWrite("row", "new", "patch", (entry,)) for entry in entries]
    client.app.state.service._perform_writes(writes)  # type: ignore[attr-defined]
    assert client.best(row="new", n=1) == ["column 21"]


def test_what_comes_next_is_the_same_after_a_restart_and_on_another_worker(
    start_client: StartClient, walking: ALS, url: str
) -> None:
    client, other = start_client(walking, url=url), start_client(walking, url=url)

    def write(row: str, *columns: str, value: int | None = 1) -> None:
        entry = {"value": value, "time": "2026-05-01"}
        entries = {f"column {column}": entry for column in columns}
        assert client.write(row, entries, method="PATCH").is_success

    def ask(client: Caller) -> dict[str, str]:
        return {row: client.best(row=row, n=1)[0][-2:] for row in rows}

    write("one write", "20", "03")
    for column in ("20", "03"):
        write("two writes", column)
    write("there and back", "03", "20")
    write("forgotten", "03", "20")
    rows = {"one write": "04", "two writes": "04", "there and back": "21", "forgotten": "21"}
    assert ask(client) == rows
    assert ask(other) == rows
    for value in (2, 1):
        write("there and back", "03", value=value)
        write("forgotten", "03", value=None if value == 2 else 1)
    rows |= {"there and back": "04", "forgotten": "04"}
    assert ask(client) == rows
    assert ask(other) == rows
    assert ask(start_client(walking, url=url)) == rows
    lines = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
    order = {row: [line["column"][-2:] for line in lines if line["row"] == row] for row in rows}
    assert set(map(tuple, order.values())) == {("20", "03")}
    rows_of, columns, _ = export_data(walking, url).entries
    assert all(columns[rows_of == row].tolist() == ["column 20", "column 03"] for row in rows)
