"""Access: keys, roles, rates, hosts, bounds and headers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.serve.conftest import Caller, StartClient, refusal

from deepmf.datasets import generate
from deepmf.errors import BadSetting, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.serve.auth import ROLES, ApiKey, KeyRing, add_key, hash_key, read_keys
from deepmf.serve.guard import HEADERS

KEYS = KeyRing([ApiKey(role, role, hash_key(f"the {role} key")) for role in ROLES])
BODY = {"entries": [{"column": "a", "value": 5}]}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_those_before_it_may(
    start_client: StartClient, ratings: ObservedMatrix, role: str
) -> None:
    client, rank = start_client(keys=KEYS), ROLES.index(role)  # type: ignore[arg-type]
    client.headers.update(bearer(f"the {role} key"))
    row, column = ratings.row_labels[0], ratings.column_labels[0]
    of_column = f"/v1/columns/{column}/entries"
    for needed, answer, status in (
        ("read", client.get("/v1/model"), 200),
        ("read", client.get(f"/v1/rows/{row}/entries"), 200),
        ("read", client.post("/v1/similar", json={"column": column}), 200),
        ("write", client.put("/v1/rows/w/entries", json=BODY), 200),
        ("write", client.put("/v1/rows/w/features", json={"features": {"age": 1}}), 409),
        ("write", client.delete("/v1/rows/x/features"), 404),
        ("write", client.patch(of_column, json={"entries": [{"row": row, "value": 5}]}), 200),
        ("rows", client.get(of_column), 200),
        ("rows", client.post("/v1/similar", json={"row": row}), 200),
        # forgets the entries of rows that it does not name
        ("rows", client.put(of_column, json={"entries": []}), 200),
        ("rows", client.delete(of_column), 200),
        ("admin", client.post("/v1/model"), 409),  # there is no file to read anew
    ):
        may = rank >= ROLES.index(needed)  # type: ignore[arg-type]
        assert answer.status_code == (status if may else 403), answer.request.url


@pytest.mark.parametrize(
    "header", [{}, bearer("wrong"), {"Authorization": "Basic the admin key"}, bearer("")]
)
def test_without_a_known_key_nothing_is_said(
    start_client: StartClient, header: dict[str, str]
) -> None:
    client = start_client(keys=KEYS)
    for path in (
        "/v1/model",
        "/v1/columns",
        "/v1/rows/x/entries",
        "/v1/rows/x/features",
        "/v1/operator",
        "/metrics",
    ):
        answer = client.get(path, headers=header)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert client.get("/healthz").status_code == 200


def test_without_keys_only_this_machine_is_answered(start_client: StartClient) -> None:
    client = start_client()
    for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"):
        assert client.get("/healthz", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:8000"):
        assert client.get("/healthz", headers={"Host": host}).status_code == 403


@pytest.mark.slow
def test_every_answer_has_the_headers(client: Caller) -> None:
    for path in ("/healthz", "/v1/nothing", "/docs", "/openapi.json", "/v1/model"):
        answer = client.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert "access-control-allow-origin" not in answer.headers
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}
    assert client.options("/v1/rows/x/entries", headers=asked).status_code == 405


def test_a_long_body_is_refused_whether_it_says_so_or_not(client: Caller) -> None:
    long = b'{"row": "' + b"x" * (1 << 20) + b'"}'
    kind = {"Content-Type": "application/json"}
    pieces = (long[at : at + 65536] for at in range(0, len(long), 65536))
    for content in (long, pieces):
        answer = client.post("/v1/recommend", content=content, headers=kind)
        assert refusal(answer) == (413, "too_large")


@pytest.mark.parametrize(
    "path", ["/v1/rows/%ff/entries", "/v1/columns?search=%ff", "/v1/rows/%ed%a0%80/entries"]
)
def test_what_is_not_utf8_is_refused(client: Caller, path: str) -> None:
    assert refusal(client.get(path)) == (400, "not_utf8")


def test_a_fault_shows_nothing(
    client: Caller,
    ratings: ObservedMatrix,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("ann has 5")

    monkeypatch.setattr("deepmf.serve.queries.find_similar", fail)
    answer = client.post("/v1/similar", json={"column": ratings.column_labels[0]})
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert error["code"] == "fault" and "log" in error["message"]
    fault = next(record for record in caplog.records if record.getMessage() == "fault")
    assert fault.fields["error"] == "RuntimeError"  # type: ignore[attr-defined]
    assert "ann" not in str(vars(fault))


def test_logs_hold_neither_ids_nor_values(client: Caller, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="deepmf.serve"):
        client.write("somebody", {"something": 5})
        client.get("/v1/rows/nobody/entries")
    requests = [vars(one)["fields"] for one in caplog.records if one.getMessage() == "request"]
    assert [fields["status"] for fields in requests] == [200, 404]
    assert requests[0]["route"] == "PUT /v1/rows/{row}/entries"
    logged = str([vars(record) for record in caplog.records])
    assert not [name for name in ("somebody", "something", "nobody") if name in logged]


def test_keys_are_made_shown_once_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    text = add_key(path, name="phone", role="write")
    other = add_key(path, name="desk", role="read")
    ring = read_keys(path)
    assert ring.find(text) == ApiKey("phone", "write", hash_key(text))
    assert ring.find(other).role == "read"  # type: ignore[union-attr]
    assert ring.find("") is None
    assert text not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    for name, role in (("phone", "read"), ("x", "king"), ("a b", "read")):
        with pytest.raises(BadSetting):
            add_key(path, name=name, role=role)


def test_keys_made_at_once_are_all_kept(tmp_path: Path) -> None:
    path, names = tmp_path / "keys.txt", [f"key{at}" for at in range(16)]
    with ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(lambda name: add_key(path, name=name, role="read"), names))
    ring = read_keys(path)
    assert [getattr(ring.find(text), "name", None) for text in texts] == names


@pytest.mark.parametrize("digest", ["", "é" * 64, "g" * 64, "１" * 64])
def test_a_hash_that_is_none_is_refused_when_keys_are_read(tmp_path: Path, digest: str) -> None:
    (tmp_path / "keys").write_text(f"shop read {digest}\n", encoding="utf-8")
    with pytest.raises(UnreadableFile, match="line 1"):
        read_keys(tmp_path / "keys")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "https://proxied.example", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_pages_of_other_origins_change_nothing(
    client: Caller, headers: dict[str, str], status: int
) -> None:
    assert client.put("/v1/rows/Wilma/entries", json=BODY, headers=headers).status_code == status
    assert client.post("/v1/similar", json={"row": "nobody"}, headers=headers).status_code == (
        404 if status == 200 else 403
    )
    assert client.get("/v1/model", headers=headers).status_code == 200


def test_a_refusal_repeats_no_more_than_some_characters(client: Caller) -> None:
    long = "x" * 5_000
    answers = [
        client.post("/v1/recommend", json={long: 1}),
        client.post("/v1/recommend", json={"row": "x" * 900}),
        client.put("/v1/rows/Wilma/features", json={"features": {"x" * 150: {"y" * 900: 1}}}),
        client.get("/v1/columns", params={"limit": long}),
        client.get(f"/v1/rows/{long}/entries"),
    ]
    for answer in answers:
        assert answer.status_code >= 400
        assert 0 < len(answer.json()["error"]["message"]) <= 200


def test_a_path_names_all_methods_that_it_has(client: Caller) -> None:
    allowed = {
        "/v1/rows/a%2Fb/entries": "DELETE, GET, PATCH, PUT",
        "/v1/rows/x/features": "DELETE, GET, PUT",
        "/v1/model": "GET, POST",
        "/v1/predict": "POST",
        "/page/app.js": "GET, HEAD",
    }
    for path, methods in allowed.items():
        answer = client.request("TRACE", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods)


VISITORS = {"text": f"guest-{0xABC:032x}", "number": str(2**62 + 12345)}


@pytest.mark.parametrize("kind", VISITORS)
def test_visitors_of_the_page_are_never_listed(start_client: StartClient, kind: str) -> None:
    is_text, visitor = kind == "text", VISITORS[kind]
    matrix = generate(20, 15, density=0.4, named=is_text, seed=0).matrix
    client = start_client(ALS(latent_size=3, seed=0).fit(matrix))
    column, known = matrix.column_labels[:1].tolist()[0], matrix.row_labels[:1].tolist()[0]
    client.write(visitor, {**client.read(known), column: 5})
    assert client.read(visitor)[column] == 5  # the holder
    listed = client.get(f"/v1/columns/{column}/entries")
    assert visitor not in listed.text
    assert [one["row"] for one in listed.json()["entries"]].count(None) == 1
    similar = client.post("/v1/similar", json={"row": known, "n": 19})
    assert visitor not in similar.text
    assert len(similar.json()["similar"]) == 19
