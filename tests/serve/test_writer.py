"""Writes: what a request gives and leaves out, what tells requests apart, and what receipts
keep."""

import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import Caller, StartClient, refusal

from deepmf.matrix.extras import NO_TIME
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.serve.changes import Entry, compute_etag
from deepmf.serve.omissions import ColumnState
from deepmf.serve.schemas import GivenEntry
from deepmf.serve.writer import DismissalWrite, EntryWrite, FeatureWrite, StateWrite, resolve

KNOWN = Entry(5.0, 100, 2.0)


@pytest.mark.parametrize(
    "given, known, stored",
    [
        (GivenEntry(value=5.0), KNOWN, KNOWN),
        (GivenEntry(value=5.0, time=200), KNOWN, Entry(5.0, 200, 2.0)),
        (GivenEntry(value=5.0, weight=3.0), KNOWN, Entry(5.0, 100, 3.0)),
        (GivenEntry(value=5.0, time=None, weight=3.0), KNOWN, Entry(5.0, NO_TIME, 3.0)),
        (GivenEntry(value=4.0), KNOWN, Entry(4.0, 999, 1.0)),
        (GivenEntry(value=4.0, time=200), KNOWN, Entry(4.0, 200, 1.0)),
        (GivenEntry(value=4.0, weight=3.0), None, Entry(4.0, 999, 3.0)),
        (GivenEntry(value=None), KNOWN, None),
    ],
)
def test_time_and_weight_stay_with_the_value(
    given: GivenEntry, known: Entry | None, stored: Entry | None
) -> None:
    assert resolve(given, known, 999) == stored


def test_every_part_of_a_request_tells_it_from_others_with_the_same_key() -> None:
    given = [{}, {"value": 4.0}, {"column": "b"}, {"time": 7}, {"time": None}, {"weight": 2.0}]
    entries = [(GivenEntry(**{"column": "a", "value": 5.0} | each),) for each in given]
    columns = [(), ("a",), ("b",)]
    writes = [
        *(
            EntryWrite(*parts, key="k")
            for parts in product(("row", "column"), "xy", ("put", "patch"), entries)
        ),
        *(EntryWrite(axis, "x", "delete", key="k") for axis in ("row", "column")),
        *(
            FeatureWrite(*parts, key="k")
            for parts in product(("row", "column"), "xy", ({"a": 1}, {"a": 2}, None))
        ),
        *(
            StateWrite(*parts, key="k")
            for parts in product("xy", (None, ColumnState(), ColumnState(visible=False)))
        ),
        *(DismissalWrite(*parts, key="k") for parts in product("xy", columns, columns)),
        EntryWrite("row", "x", "put", entries[0], key="another"),
    ]
    assert len({write.digest() for write in writes}) == len(writes)


@pytest.mark.parametrize(
    ("method", "path", "body", "other"),
    [
        ("PUT", "/v1/rows/Wilma/features", {"features": {"age": 30}}, {"features": {"age": 40}}),
        ("PUT", "/v1/columns/{column}/state", {"visible": False}, {"visible": True}),
        ("PATCH", "/v1/rows/{row}/dismissed", {"add": ["{column}"]}, {"remove": ["{column}"]}),
    ],
    ids=["features", "state", "dismissed"],
)
def test_a_write_of_any_kind_has_an_etag_and_is_done_once(
    start_client: StartClient, featured: Model, method: str, path: str, body: Any, other: Any
) -> None:
    client = start_client(featured)
    names = {"row": featured.row_labels_[0], "column": featured.column_labels_[0]}
    path = path.format(**names)
    body, other = (
        {name: [names["column"]] if isinstance(part, list) else part for name, part in one.items()}
        for one in (body, other)
    )
    before = client.get(path).headers.get("etag")  # none for features of an unknown row
    once = {"Idempotency-Key": "once"} | ({"If-Match": before} if before else {})
    first = client.request(method, path, json=body, headers=once)
    etag = first.headers["etag"]
    assert etag == client.get(path).headers["etag"] != before
    assert client.request(method, path, json=other).status_code == 200
    again = client.request(method, path, json=body, headers=once)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert client.get(path).headers["etag"] != etag
    reused = client.request(method, path, json=other, headers=once)
    assert refusal(reused) == (422, "key_reused")
    late = client.request(method, path, json=body, headers={"If-Match": etag})
    assert refusal(late) == (412, "changed_meanwhile")


def test_a_receipt_does_not_tell_what_was_forgotten(
    client: Caller, tmp_path: Path, als: ALS
) -> None:
    film = als.column_labels_[0]
    etag = client.write("Wilma", {film: 5}, key="5f0c").headers["etag"]
    # nothing else is in it: anyone can try them all
    assert etag == compute_etag({film: Entry(5.0)})
    client.forget("Wilma")
    with closing(sqlite3.connect(tmp_path / "entries.sqlite")) as connection:
        ((answer,),) = connection.execute("SELECT answer FROM receipts")
    assert etag.strip('"').encode() not in answer
    again = client.write("Wilma", {film: 5}, key="5f0c")
    assert (again.headers["idempotency-replayed"], again.headers["etag"]) == ("true", etag)
