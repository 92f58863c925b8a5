"""Bulk writes and exports: each line by itself, all of them at once, and nothing without limits."""

import gzip
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.serve.conftest import PATIENT, Caller, StartClient, refusal

from deepmf.datasets import generate
from deepmf.errors import TrainingDiverged
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.paper.low_rank import RankK
from deepmf.serve.auth import add_key, read_keys
from deepmf.serve.bulk import export_lines, parse_bulk
from deepmf.serve.schemas import MAX_LINES, EntryLine


def write(client: Caller, *lines: Any, compress: bool = False, **headers: str) -> Any:
    """Send lines, given as JSON content or as bytes."""
    content = b"\n".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines
    )
    if compress:
        content, headers["content-encoding"] = gzip.compress(content), "gzip"
    return client.post("/v1/entries/bulk", content=content, headers=headers)


def entry(row: Any, column: Any, value: Any) -> dict[str, Any]:
    return {"row": row, "column": column, "value": value}


def export(client: Caller) -> dict[tuple[Any, Any], float]:
    lines = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
    assert len({(line["row"], line["column"]) for line in lines}) == len(lines)
    return {(line["row"], line["column"]): line["value"] for line in lines}


@pytest.mark.parametrize("compress", [False, True])
def test_lines_become_entries_at_once_for_all_workers(
    start_client: StartClient, url: str, als: ALS, ratings: ObservedMatrix, compress: bool
) -> None:
    client, other = start_client(url=url), start_client(url=url)
    films = ratings.column_labels[:3].tolist()
    lines = [entry("Wilma", film, value) for film, value in zip(films, [5, 1, 4], strict=True)]
    answer = write(client, *lines, entry("Fred", "A new film", 2), compress=compress)
    assert answer.json() == {
        "n_lines": 4,
        "n_changed": 4,
        "n_forgotten": 0,
        "n_refused": 0,
        "refused": [],
        "version": {"model": 1, "data": 1},
    }
    best = als.fold_in(films, [5, 1, 4]).recommend(4).labels.tolist()
    assert client.best(row="Wilma", n=4, exclude=["A new film"]) == best
    assert client.read("Fred") == {"A new film": 2}
    write(client, *(entry(f"person {at}", films[at % 3], 1 + at % 5) for at in range(30)))
    write(client, *(entry("person 0", f"new {at}", 3) for at in range(30)))
    assert other.write("other", method="PATCH").status_code == 200  # a write sees all others
    assert export(other) == export(client)


@pytest.mark.slow
def test_bulk_and_single_writes_lead_to_the_same_model(
    start_client: StartClient, ratings: ObservedMatrix, tmp_path: Any
) -> None:
    rows, columns, _ = ratings.entries()
    dice = np.random.default_rng(1)
    at = dice.choice(rows.size, 60, replace=False)
    lines = [entry(str(rows[one]), str(columns[one]), [None, 1, 5][one % 3]) for one in at]
    lines += [entry(f"new {number % 7}", f"film {number}", 1 + number % 5) for number in range(40)]
    bulk, single = start_client(), start_client(url=str(tmp_path / "other.sqlite"))
    assert write(bulk, *lines).json()["n_refused"] == 0
    for line in lines:
        change = {line["column"]: line["value"]}
        assert single.write(line["row"], change, method="PATCH").status_code == 200
    assert export(bulk) == export(single)
    pairs = [f"new {at % 7}" for at in range(20)], [str(column) for column in columns[:20]]
    np.testing.assert_allclose(bulk.predict(*pairs), single.predict(*pairs), rtol=1e-5)


def test_each_line_is_judged_by_itself(client: Caller, ratings: ObservedMatrix) -> None:
    film = str(ratings.column_labels[0])
    answer = write(
        client,
        entry("Wilma", film, 5),
        entry("Wilma", film, 7),
        b"{not JSON",
        b"",
        {"row": "Wilma", "column": film},
        entry(None, film, 3),
        entry("Wilma", film, "5"),
        {**entry("Wilma", film, 3), "more": 1},
        b'{"row": "Wilma", "column": "x", "value": NaN}',
        entry("Fred", film, 1),
    ).json()
    assert [(one["line"], one["code"]) for one in answer["refused"]] == [
        (2, "off_scale"),
        *((line, "invalid") for line in (3, 5, 6, 7, 8, 9)),
    ]
    assert (answer["n_lines"], answer["n_changed"], answer["n_refused"]) == (9, 2, 7)
    assert "Wilma" not in json.dumps(answer["refused"])
    assert export(client)["Wilma", film] == 5


ENTRY = b'{"row": "A", "column": "c", "value": 1}'


def test_lines_that_the_model_cannot_learn_are_refused_alone(
    start_client: StartClient, ratings: ObservedMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend = ALS.extend

    def refuse_threes(model: ALS, new: ObservedMatrix | None = None, **options: Any) -> ALS:
        if new is not None and (new.values == 3).any():
            raise TrainingDiverged("what was learned is too large")
        return extend(model, new, **options)

    monkeypatch.setattr(ALS, "extend", refuse_threes)
    client, (one, two) = start_client(), ratings.column_labels[:2].tolist()
    values = {
        ("Wilma", one): [4, 3],
        ("Wilma", two): [3, 5],
        ("Fred", one): [3],
        ("Fred", two): [2],
    }
    lines = [entry(*pair, value) for pair, given in values.items() for value in given]
    key = {"Idempotency-Key": "once"}
    answer = write(client, *lines, b"no JSON", **key).json()
    assert [(line["line"], line["code"]) for line in answer["refused"]] == [
        (2, "refused"),
        (5, "refused"),
        (7, "invalid"),
    ]
    assert (answer["n_lines"], answer["n_changed"], answer["n_refused"]) == (7, 3, 3)
    stored = {("Wilma", one): 4, ("Wilma", two): 5, ("Fred", two): 2}
    for worker in (client, start_client()):
        exported = export(worker)
        assert {pair: exported.get(pair) for pair in values} == {**dict.fromkeys(values), **stored}
    assert write(client, *lines, b"no JSON", **key).json() == answer


@pytest.mark.parametrize(
    "lines",
    [
        [ENTRY + b"," + ENTRY, b'{"row": "A", "column": "c"', b'"value": 1}'],
        [ENTRY + b"],[" + ENTRY, b'{"row": "A', b'B", "column": "c", "value": 1}'],
        [b'{"row": [[1', b'2]], "column": "c", "value": 1}'],
        [b"[1", ENTRY + b"]"],
        [b'{"row": "\\ud800", "column": "c", "value": 1}'],
        [
            b'{"row": "A", "column": "c", "value": 1e999}',
            b'{"row": true, "column": "c", "value": 1}',
        ],
        [
            b'{"row": 9223372036854775808, "column": "c", "value": 1}',
            b"null",
            b'"A"',
            b"[]",
            b'"A",1',
        ],
    ],
    ids=["joined", "bracketed", "nested", "array", "surrogate", "values", "others"],
)
def test_an_entry_is_one_line(lines: list[bytes]) -> None:
    whole = {"max_bytes": 10_000, "key": ""}
    written = parse_bulk(
        b"\n".join([ENTRY, *lines, b'{"value": 2, "column": 3, "row": "B"}']), "", **whole
    )
    assert written.entries == {
        1: EntryLine(row="A", column="c", value=1.0),
        len(lines) + 2: EntryLine(row="B", column=3, value=2.0),
    }
    assert sorted(line for found in written.refused.values() for line in found) == list(
        range(2, len(lines) + 2)
    )


def test_later_lines_replace_earlier_ones_and_null_forgets(
    client: Caller, ratings: ObservedMatrix
) -> None:
    row, film = (str(part[0]) for part in ratings.entries()[:2])
    answer = write(
        client,
        entry("A", film, 1),
        entry("A", film, 5),
        entry("B", film, 3),
        entry("B", film, None),
    ).json()
    assert (answer["n_changed"], answer["n_forgotten"]) == (1, 0)
    assert export(client)["A", film] == 5
    assert client.get("/v1/rows/B/entries").status_code == 404
    assert write(client, entry(row, film, None)).json()["n_forgotten"] == 1
    assert (row, film) not in export(client)
    again = write(client, entry(row, film, None), entry("A", film, 5)).json()
    assert (again["n_changed"], again["n_forgotten"], again["version"]["data"]) == (0, 0, 2)


def test_same_key_writes_once_and_recalls_what_was_refused(
    client: Caller, ratings: ObservedMatrix
) -> None:
    film = str(ratings.column_labels[0])
    lines = [entry("Wilma", film, 5), entry("Wilma", film, 9)]
    first = write(client, *lines, **{"idempotency-key": "one"})
    write(client, entry("Wilma", film, 1))
    again = write(client, *lines, compress=True, **{"idempotency-key": "one"})
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert export(client)["Wilma", film] == 1
    other = write(client, lines[0], **{"idempotency-key": "one"})
    assert refusal(other) == (422, "key_reused")


def test_models_that_cannot_extend_refuse_bulk_writes(
    start_client: StartClient, ratings: ObservedMatrix
) -> None:
    client = start_client(RankK(latent_size=2, epochs=2, seed=0).fit(ratings))
    row, film = str(ratings.row_labels[0]), str(ratings.column_labels[0])
    answer = write(client, entry(row, film, 5), entry("new", film, 5))
    assert refusal(answer) == (409, "cannot_extend")


def test_numeric_ids_are_checked_line_by_line(start_client: StartClient) -> None:
    matrix = generate(20, 15, density=0.4, named=False, seed=0).matrix
    client = start_client(ALS(latent_size=2, epochs=2, seed=0).fit(matrix))
    ids = [(1, 2), ("1", "3"), ("x", 1), (1, "01"), (2**62, 1), ("-0", 1)]
    answer = write(client, *(entry(row, column, 4) for row, column in ids)).json()
    refused = [(one["line"], one["code"]) for one in answer["refused"]]
    assert refused == [(3, "bad_id"), (4, "bad_id"), (6, "bad_id")]
    assert (client.read(1)[2], client.read(1)[3], client.read(2**62)) == (4, 4, {1: 4})


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", {}, 422),
        (b"x" * 2_000, {}, 413),
        (gzip.compress(b" " * 1_000_000, mtime=0), {"content-encoding": "gzip"}, 413),
        (b"not gzip", {"content-encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0)[:-9], {"content-encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0) + b"more", {"content-encoding": "gzip"}, 400),
        (2 * gzip.compress(b" " * 600, mtime=0), {"content-encoding": "gzip"}, 413),
        (gzip.compress(b"{}", mtime=0)[:-8] + bytes(8), {"content-encoding": "gzip"}, 400),
        (b"{}", {"content-encoding": "br"}, 400),
    ],
    ids=range(9),
)
def test_bodies_have_limits(
    start_client: StartClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    client = start_client(service={"limits": replace(PATIENT, bulk_bytes=1_000)})
    answer = client.post("/v1/entries/bulk", content=content, headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("line", [b"{}", b""])
def test_number_of_lines_is_limited(client: Caller, line: bytes) -> None:
    assert write(client, *[line] * (MAX_LINES + 2)).status_code == 413


def test_all_members_of_a_gzip_file_are_read() -> None:
    body = (
        gzip.compress(ENTRY + b"\n") + gzip.compress(b"") + gzip.compress(ENTRY.replace(b"A", b"B"))
    )
    assert [
        one.row for one in parse_bulk(body, "gzip", max_bytes=1_000, key="").entries.values()
    ] == ["A", "B"]


def test_a_long_line_is_refused_and_the_others_are_read() -> None:
    escaped = b"\\ud83d\\ude00" * 1_000  # the longest id
    longest = b'{"row": "%b", "column": "%b", "value": 1}' % (escaped, escaped)
    body = b"\n".join([ENTRY, b"[%b]" % (b"{}," * 20_000), *[longest] * 30, ENTRY])
    written = parse_bulk(body, "", max_bytes=len(body), key="")
    assert [(code, lines) for (code, _), lines in written.refused.items()] == [("too_long", [2])]
    assert list(written.entries) == [1, *range(3, 34)]
    assert written.entries[7].row == "\U0001f600" * 1_000


def test_bulk_needs_a_key_before_its_body_is_read(start_client: StartClient, tmp_path: Any) -> None:
    keys = {
        role: add_key(tmp_path / "keys", name=role, role=role)
        for role in ("read", "write", "rows", "admin")
    }
    client = start_client(keys=read_keys(tmp_path / "keys"))

    packed = {"content-encoding": "gzip"}
    answer = client.post("/v1/entries/bulk", content=b"not gzip", headers=packed)
    assert answer.status_code == 401
    for role, key in keys.items():
        headers = {"authorization": f"Bearer {key}"}
        assert (write(client, entry("A", "B", 3), **headers).status_code == 200) == (role != "read")
        assert (client.get("/v1/export", headers=headers).status_code == 200) == (role == "admin")


def test_export_is_gzip_where_the_client_takes_it(client: Caller, ratings: ObservedMatrix) -> None:
    plain = client.get("/v1/export", headers={"accept-encoding": "identity"})
    packed = client.get("/v1/export", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.text == packed.text
    assert len(plain.text.splitlines()) == ratings.n_entries


def test_an_export_is_made_in_small_pieces() -> None:
    matrix = generate(300, 90, density=0.7, seed=0).matrix
    model = ALS(latent_size=2, epochs=1, presence=None, seed=0).fit(matrix)
    pieces = list(export_lines(model))
    assert b"".join(pieces).count(b"\n") == matrix.n_entries
    assert max(map(len, pieces)) < 300_000  # each slow reader holds one


def test_export_leaves_visitors_out_and_marks_what_it_contains(
    client: Caller, ratings: ObservedMatrix
) -> None:
    film, guest = str(ratings.column_labels[0]), "guest-" + "0" * 32
    write(client, entry(guest, film, 5), entry("Wilma", film, 5))
    found = export(client)
    assert ("Wilma", film) in found
    assert (guest, film) not in found
    # A model may be trained on the export: forgetting the entry must leave a mark for that model.
    write(client, entry("Wilma", film, None))
    service = client.app.state.service  # type: ignore[attr-defined]
    with service._database.begin_read() as transaction:
        assert transaction.read_entries().get(("Wilma", film), "no mark") is None
