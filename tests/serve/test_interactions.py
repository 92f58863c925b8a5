"""The service over a model of interactions: entries are counts, histories need no values, and
predict refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.models.test_interactions import make_clicks, own_kind
from tests.recommend.test_next_ridge import walk

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.serve.snapshot import export_data


@pytest.fixture(scope="module")
def walking() -> ALS:
    """A model of rows that walk from each column to the next."""
    return ALS(seed=0).fit(ObservedMatrix.from_sequences(walk(np.random.default_rng(0))))


@pytest.fixture
def client(start_client: Any) -> Any:
    return start_client(ALS(seed=0).fit(make_clicks()))


def test_histories_need_no_values(client: Any) -> None:
    assert client.get("/v1/model").json()["has_values"] is False
    history = [{"column": "i0"}, {"column": "i2", "value": 3}]
    best = client.post("/v1/recommend", json={"history": history, "n": 3, "reasons": 2}).json()[
        "best"
    ]
    assert own_kind("u0", [each["column"] for each in best])
    assert all(0 < each["expected"] < 1 for each in best)
    assert all({reason["column"] for reason in each["reasons"]} == {"i0", "i2"} for each in best)
    asked = {"history": history, "column": best[0]["column"]}
    why = client.post("/v1/explain", json=asked).json()
    assert why["expected"] == pytest.approx(best[0]["expected"], rel=1e-4)
    assert why["presence"][0]["effect"] > 0 and why["entries"][0]["column"] in ("i0", "i2")
    assert [each["expected"] for each in best] == sorted(
        (each["expected"] for each in best), reverse=True
    )


def test_unknown_rows_get_popular_columns_and_their_shares(client: Any) -> None:
    clicks = make_clicks()
    shares = dict(
        zip(
            clicks.column_labels.tolist(),
            (clicks.column_counts / clicks.shape[0]).tolist(),
            strict=True,
        )
    )
    best = client.post(
        "/v1/recommend", json={"row": "nobody", "n": 3, "fallback": "popular"}
    ).json()["best"]
    assert [each["expected"] for each in best] == sorted(shares.values(), reverse=True)[:3]
    assert all(each["expected"] == shares[each["column"]] for each in best)


def test_a_written_row_is_recommended_to(client: Any) -> None:
    entries = [{"column": "i1", "value": 1}, {"column": "i3", "value": 2}]
    assert client.put("/v1/rows/new/entries", json={"entries": entries}).status_code in (200, 201)
    best = client.post("/v1/recommend", json={"row": "new", "n": 3}).json()["best"]
    assert own_kind("u1", [each["column"] for each in best])
    assert client.patch(
        "/v1/rows/new/entries", json={"entries": [{"column": "i5", "value": 1}]}
    ).is_success
    similar = client.post("/v1/similar", json={"row": "new", "n": 2}).json()["similar"]
    assert own_kind("u1", ["i" + each["id"][1:] for each in similar])
    assert (
        client.put(
            "/v1/rows/new/entries", json={"entries": [{"column": "i1", "value": 0}]}
        ).status_code
        == 422
    )
    assert client.delete("/v1/rows/new/entries").is_success


@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/predict", {"pairs": [{"row": "u0", "column": "i0"}]}),
        ("/v1/predict", {"pairs": [{"row": "nobody", "column": "i0"}], "unknown": "fallback"}),
        ("/v1/predict", {"history": [{"column": "i0"}], "columns": ["i2"]}),
    ],
)
def test_questions_about_values_are_refused(client: Any, path: str, body: dict[str, Any]) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "no_values"
    assert "interactions" in answer.json()["error"]["message"]


def test_a_model_of_values_needs_them(start_client: Any, als: ALS) -> None:
    column = als.column_labels_.tolist()[0]
    answer = start_client(als).post("/v1/recommend", json={"history": [{"column": column}]})
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "value_missing"


def test_histories_are_in_order_and_writes_move_what_comes_next_at_once(
    start_client: Any, walking: ALS
) -> None:
    client = start_client(walking)

    def ask(**row: Any) -> tuple[str, str]:
        answer = client.post("/v1/recommend", json=row | {"n": 1, "reasons": 1}).json()
        assert answer["rank_by"] == "next"
        return answer["best"][0]["column"], answer["best"][0]["presence_reasons"][0]["column"]

    for first, last, following in (("03", "20", "21"), ("20", "03", "04")):
        history = [{"column": f"column {place}"} for place in (first, last)]
        assert ask(history=history) == (f"column {following}", f"column {last}")
    for place, following in ((20, 21), (3, 4), (11, 12)):
        entry = {"column": f"column {place:02d}", "value": 1}
        assert client.patch("/v1/rows/new/entries", json={"entries": [entry]}).is_success
        assert ask(row="new")[0] == f"column {following:02d}"
    assert client.patch(
        "/v1/rows/new/entries", json={"entries": [{"column": "column 11", "value": None}]}
    ).is_success
    assert ask(row="new")[0] == "column 04"


def test_what_comes_next_is_the_same_after_a_restart_and_on_another_worker(
    start_client: Any, walking: ALS, url: str
) -> None:
    client, other = start_client(walking, url=url), start_client(walking, url=url)

    def write(row: str, *columns: str, value: int | None = 1) -> None:
        entries = [
            {"column": f"column {column}", "value": value, "time": "2026-05-01"}
            for column in columns
        ]
        answer = client.patch(f"/v1/rows/{row}/entries", json={"entries": entries})
        assert answer.is_success, answer.text

    def ask(client: Any) -> dict[str, str]:
        best = [client.post("/v1/recommend", json={"row": row, "n": 1}).json() for row in rows]
        return dict(zip(rows, (one["best"][0]["column"][-2:] for one in best), strict=True))

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
