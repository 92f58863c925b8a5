"""The client: its calls are those of the OpenAPI description, sent again where needed and written
once."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import numpy as np
import pytest
from tests.conftest import StartService
from tests.waiting import PATIENCE

from deepmf.client import Client
from deepmf.datasets import generate
from deepmf.errors import BadSetting, ServiceError
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.serve.auth import add_key, read_keys

SERVING_PAGE = Path(__file__).parents[1] / "docs" / "serving.md"

# the service shows no warnings
pytestmark = pytest.mark.filterwarnings("ignore::deepmf.errors.NothingObserved")


@pytest.fixture(scope="module")
def model() -> ALS:
    ratings = generate(40, 30, density=0.4, seed=0).matrix
    rows, columns, values = ratings.entries()
    people = np.where(rows == ratings.row_labels[0], "ann", rows)
    films = np.where(columns == ratings.column_labels[0], "Alien", columns)
    films = np.where(columns == ratings.column_labels[1], "Big", films)
    ratings = ObservedMatrix.from_entries(people, films, values, ratings.scale)
    ages = Features.from_columns(ratings.row_labels, {"age": np.arange(40.0)})
    years = Features.from_columns(ratings.column_labels, {"year": np.arange(30.0)})
    return ALS(latent_size=3, epochs=4, seed=0).fit(
        ratings, row_features=ages, column_features=years
    )


@pytest.fixture(scope="module")
def url(start_service: StartService, model: ALS) -> str:
    return start_service(model)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


# The calls and the OpenAPI description

ARGUMENTS: dict[str, Any] = {
    "row": "ann",
    "column": "Alien",
    "pairs": [("ann", "Alien")],
    "history": {"Alien": 5.0},
    "features": {"age": 34},
    "columns": ["Big"],
    "among": ["Big"],
    "exclude": ["Alien"],
    "where": {"year": {"min": 5}},
    "entries": {"Alien": 5.0},
    "search": "A",
    "from_": datetime(2026, 5, 1, tzinfo=UTC),
    "until": datetime(2026, 6, 1, tzinfo=UTC),
    "add": ["Big"],
    "remove": ["Alien"],
    "key": "a key",
    "at": "2026-05-01",
    "fallback": "popular",
    "min_entries": 1,
}
OPTIONS: dict[str, Any] = {
    **{name: ARGUMENTS[name] for name in ("among", "exclude", "where", "at", "min_entries")},
    **{"rank_by": "value", "relevant": 4, "popularity": 1.0, "balance": "genres"},
    **{"explore": 0.1, "explore_seed": 1, "include_observed": True},
}
ROUTES = [
    name
    for name, found in vars(Client).items()
    if not name.startswith(("_", "iterate")) and name != "close" and callable(found)
]


@pytest.fixture(scope="module")
def description(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{url}/openapi.json", timeout=60).json()
    return found


class Sent(Exception):
    """A request that would have been sent."""


Answer = Callable[[httpx2.Request], httpx2.Response]


def answer_by(answer: Answer, **options: Any) -> Client:
    """Return a client whose requests a function answers."""
    return Client("http://x", transport=httpx2.MockTransport(answer), **options)


def send_fully(name: str) -> httpx2.Request:
    """Call a method with every argument set; return the request that it sends."""
    method = getattr(Client, name)
    given = {
        argument: ARGUMENTS.get(argument, parameter.default)
        for argument, parameter in list(inspect.signature(method).parameters.items())[1:]
    }
    if name == "write_entries":
        given["entries"] = [("ann", "Alien", 5.0)]
    if given.pop("options", None):
        given |= OPTIONS
    if given.pop("given", None):
        given |= {"if_match": '"tag"', "key": "a key"}

    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise Sent(request)

    with answer_by(refuse) as client, pytest.raises(Sent) as caught:
        answer = method(client, **given)
        list(answer)  # of an iterator, which sends nothing before
    request: httpx2.Request = caught.value.args[0]
    return request


def find_template(request: httpx2.Request) -> str:
    """Return the path of a request as the description has it."""
    return request.url.path.replace("/ann/", "/{row}/").replace("/Alien/", "/{column}/")


def test_every_route_is_a_method(description: dict[str, Any]) -> None:
    paths = description["paths"].items()
    described = {(method, path) for path, operations in paths for method in operations}
    requests = map(send_fully, ROUTES)
    assert {(sent.method.lower(), find_template(sent)) for sent in requests} == described


@pytest.mark.parametrize("name", ROUTES)
def test_request_is_as_the_description_says(name: str, description: dict[str, Any]) -> None:
    sent = send_fully(name)
    operation = description["paths"][find_template(sent)][sent.method.lower()]
    parameters = operation.get("parameters", ())
    known = {(one["in"], one["name"].lower()) for one in parameters if one["in"] != "path"}
    headers = {("header", name) for name in ("if-match", "idempotency-key") if name in sent.headers}
    assert {("query", query.lower()) for query in sent.url.params} | headers == known
    assert ("requestBody" in operation) == bool(sent.content)
    if sent.content:
        content = operation["requestBody"]["content"][sent.headers["content-type"]]
    if sent.headers.get("content-type") == "application/json":
        schema = description["components"]["schemas"][content["schema"]["$ref"].rsplit("/", 1)[1]]
        body = json.loads(sent.content)
        assert schema["properties"].keys() == body.keys()
        whole = {**schema, "components": description["components"]}
        jsonschema_rs.validator_for(whole).validate(body)
    answer = operation["responses"]["200"]["content"]
    if "application/json" in answer:
        result = inspect.signature(getattr(Client, name)).return_annotation.removeprefix("s.")
        assert answer["application/json"]["schema"]["$ref"].rsplit("/", 1)[1] == result


# Against a service


def test_queries_and_writes_reach_the_service(client: Client) -> None:
    written = client.put_row_entries("Wilma", {"Alien": 5, "Big": np.float32(2)})
    assert (written.n_entries, written.n_changed) == (2, 2)
    entries = {one.column: one.value for one in client.iterate_row_entries("Wilma")}
    assert entries == {"Alien": 5, "Big": 2}
    changed = client.patch_row_entries("Wilma", {"Big": None}, if_match=written.etag)
    assert (changed.n_entries, changed.n_forgotten) == (1, 1)
    with pytest.raises(ServiceError) as caught:
        client.patch_row_entries("Wilma", {"Big": 3}, if_match=written.etag)
    assert (caught.value.status, caught.value.code) == (412, "changed_meanwhile")
    (pair,) = client.predict([("Wilma", "Big")]).predictions
    (same,) = client.predict(history={"Alien": 5}, columns=["Big"]).predictions
    assert pair.expected == pytest.approx(same.expected)
    best = client.recommend("Wilma", n=3, exclude=["Big"]).best
    assert len(best) == 3
    assert {"Alien", "Big"}.isdisjoint(one.column for one in best)
    assert client.put_column_features("Cube", {"year": 12}).n_entries == 1
    assert client.get_column_features("Cube").features == {"year": 12.0}
    assert client.delete_row_entries("Wilma").n_forgotten == 1
    assert "deepmf_" in client.get_metrics()


def test_ids_of_any_characters_travel_in_paths(client: Client) -> None:
    for name in ("a/b", "50%2F?x=1#y", "Ærø 🜨", "a+b c"):
        client.put_row_entries(name, {"Alien": 4})
        assert client.get_row_entries(name).id == name
    with pytest.raises(BadSetting, match="'..'"):
        client.get_row_entries("..")


def test_all_pages_are_read(client: Client) -> None:
    given = {f"film {number:04}": float(1 + number % 5) for number in range(1_001)}
    client.put_row_entries("Fan", given)
    assert {one.column: one.value for one in client.iterate_row_entries("Fan")} == given
    assert sum(1 for _ in client.iterate_columns("film ")) == len(given)
    assert client.get_row_entries("Fan").next_offset == 1_000


@pytest.mark.parametrize(
    "send",
    [
        lambda client: client.put_row_entries("ann", {"Alien": float("nan")}),
        lambda client: client.put_row_entries("ann", {"Alien": 10**5000}),
        lambda client: client.put_row_entries("ann", {"Alien": {1, 2}}),
        lambda client: client.put_row_entries("ann", ["Alien"]),
        lambda client: client.put_row_entries(10**400, {"Alien": 5}),
        lambda client: client.put_row_entries("ann", {"Alien": 5}, key=5),
        lambda client: client.recommend(history=np.array([5.0])),
        lambda client: client.predict([("ann",)]),
        lambda client: client.predict(5),
        lambda client: client.predict([("ann", "Alien")], at=1j),
        lambda client: client.write_entries([("ann", "Alien")]),
        lambda client: client.write_entries(None),
    ],
)
def test_what_json_lacks_is_refused_before_it_is_sent(send: Any) -> None:
    with answer_by(lambda _: pytest.fail("it was sent")) as client, pytest.raises(BadSetting):
        send(client)


def test_arrays_and_dates_of_numpy_are_lists_and_texts() -> None:
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        raise httpx2.ConnectError("enough")

    with answer_by(answer, retries=0) as client, suppress(ServiceError):
        client.recommend("ann", among=np.array(["Big"]), at=np.datetime64("2024-05-01T10", "ns"))
    assert (sent[0]["among"], sent[0]["at"]) == (["Big"], "2024-05-01T10:00:00.000000000")


def test_entries_travel_in_bulk(client: Client) -> None:
    given = [("Bulk", f"film {number}", float(1 + number % 5)) for number in range(100)]
    written = client.write_entries([*given, ("Bulk", "Alien", 99)])
    assert (written.n_lines, written.n_changed, written.n_refused) == (101, 100, 1)
    assert (written.refused[0].line, written.refused[0].code) == (101, "off_scale")
    exported = [(one.row, one.column, one.value) for one in client.export_entries()]
    assert sorted(line for line in exported if line[0] == "Bulk") == sorted(given)
    assert len(exported) == client.get_model().n_entries


def test_keys_are_sent(start_service: StartService, model: ALS, tmp_path: Path) -> None:
    text = add_key(tmp_path / "keys", name="reader", role="read")
    address = start_service(model, keys=read_keys(tmp_path / "keys"))
    with Client(address, api_key=text) as client:
        assert client.get_model().model == "ALS"
        with pytest.raises(ServiceError, match="role") as caught:
            client.put_row_entries("ann", {"Alien": 5})
    assert caught.value.status == 403
    with Client(address) as stranger, pytest.raises(ServiceError, match="key"):
        stranger.get_model()


# Failures


class Unreliable(httpx2.HTTPTransport):
    """A transport that loses the first responses after the service has sent them."""

    def __init__(self, n_lost: int) -> None:
        super().__init__()
        self.n_lost = n_lost
        self.keys: list[str | None] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        self.keys.append(request.headers.get("idempotency-key"))
        if len(self.keys) <= self.n_lost:
            raise httpx2.ReadError("lost")
        return response


def test_write_whose_response_is_lost_is_written_once(url: str) -> None:
    with Client(url, transport=(transport := Unreliable(n_lost=2))) as client:
        before = client.get_model().version.data
        transport.keys.clear()
        written = client.patch_row_entries("Lost", {"Alien": 3})
        assert len(transport.keys) == 3
        assert len(set(transport.keys)) == 1
        # the receipt of the first attempt; a second write would change nothing
        assert written.n_changed == 1
        assert client.get_model().version.data == before + 1


def test_writes_have_keys_of_their_own_unless_given(client: Client) -> None:
    assert send_fully("put_row_entries").headers["Idempotency-Key"] == "a key"
    seen: list[str] = []
    written = client.patch_row_entries("Lost", {"Alien": 3})

    def record(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers["Idempotency-Key"])
        return httpx2.Response(200, content=written.model_dump_json())

    with answer_by(record) as other:
        for _ in range(10):
            other.delete_row_entries("ann")
    assert len(set(seen)) == 10


def test_busy_service_is_asked_again_and_a_refusal_is_final() -> None:
    error = {"code": "unknown_row", "message": "row 'x' is not known"}
    answers = [
        httpx2.Response(503, headers={"retry-after": "0"}),
        httpx2.Response(200, json={"status": "ready"}),
        httpx2.Response(404, json={"error": error}),
    ]
    with answer_by(lambda _: answers.pop(0)) as client:
        assert client.get_readiness().status == "ready"
        with pytest.raises(ServiceError) as caught:
            client.recommend("x")
    assert {"code": caught.value.code, "message": str(caught.value)} == error


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_waits_grow_until_the_last_busy_answer_is_the_error(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    asked = ["", "7", "600", "soon", "", "", "", "", "", ""]
    given = iter(asked)

    def refuse(_: httpx2.Request) -> httpx2.Response:
        error = {"error": {"code": "busy", "message": "try again"}}
        return httpx2.Response(status, json=error, headers={"retry-after": next(given)})

    with answer_by(refuse, retries=9) as client, pytest.raises(ServiceError) as caught:
        client.get_model()
    assert (caught.value.status, caught.value.code) == (status, "busy")
    assert next(given, None) is None
    own = np.array(waits) - [0, 7, 60, 0, 0, 0, 0, 0, 0]
    shares = own / [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert np.all((shares >= 0.5 - 1e-9) & (shares <= 1 + 1e-9))
    assert np.ptp(shares) > 0.01  # clients that failed together do not return together


def test_answers_of_other_programs_are_errors() -> None:
    for status in (200, 400):
        page = httpx2.Response(status, html="<p>Welcome</p>")
        client = answer_by(lambda _, page=page: page)
        with client, pytest.raises(ServiceError) as caught:
            client.get_model()
        assert caught.value.code == "not_understood"


def test_service_that_is_not_there_is_named() -> None:
    client = Client("http://127.0.0.1:9", retries=1)
    with client, pytest.raises(ServiceError, match="2 tries"):
        client.get_model()
    for wrong in ("127.0.0.1:9", "ftp://x", None, 8000):
        with pytest.raises(BadSetting, match="http://"):
            Client(wrong)


# The page


def test_the_page_names_the_method_of_every_route() -> None:
    lines = re.findall(
        r"^\| (`.*/v1/.*|`GET /healthz.*) \|$", SERVING_PAGE.read_text(), re.MULTILINE
    )
    named = {name for line in lines for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])}
    assert named == set(ROUTES)


def read_block(language: str) -> str:
    (found,) = re.findall(
        rf"^```{language}\n(.*?)^```$", SERVING_PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "command"), [("py", [sys.executable, "-c"]), ("bash", ["bash", "-ec"])]
)
def test_examples_of_the_page_run(url: str, language: str, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    script = read_block(language).replace("http://127.0.0.1:8000", url)
    done = subprocess.run([*command, script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "Alien" not in done.stdout
    assert len(done.stdout) > 10
