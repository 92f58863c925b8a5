"""The OpenAPI description is true: hostile requests get documented answers, and never a fault."""

import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from tests.serve.conftest import StartClient
from tests.waiting import wait_until

from deepmf.models.base import Model
from deepmf.serve.app import create_app
from deepmf.serve.database import open_database
from deepmf.serve.routes import router
from deepmf.serve.service import Service


def list_routes() -> list[tuple[str, str]]:
    """Return every route of the description."""
    routes = [
        route for route in router.routes if isinstance(route, APIRoute) and route.include_in_schema
    ]
    return sorted((method, route.path_format) for route in routes for method in route.methods)


@pytest.fixture(scope="module")
def app(featured: Model, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    path = tmp_path_factory.mktemp("database") / "entries.sqlite"
    return create_app(Service(featured, open_database(str(path))))


@pytest.fixture
def client(start_client: StartClient, featured: Model) -> TestClient:
    return start_client(featured)


@pytest.fixture(scope="module")
def address(app: FastAPI) -> Iterator[str]:
    """The application on a free port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started, between=0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def schema(address: str) -> Any:
    """The description of the application, as schemathesis reads it."""
    import schemathesis  # slow to import

    schemathesis.serializer.alias("application/x-ndjson", "text/plain")
    return schemathesis.openapi.from_url(f"{address}/openapi.json")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), list_routes())
def test_requests_get_documented_answers(schema: Any, method: str, path: str) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    expected = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.response_headers_conformance,
        checks.negative_data_rejection,
        checks.ignored_auth,
    ]
    operation = schema[path][method]

    @settings(max_examples=25, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(checks=expected)

    check()


ids = (
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
    | st.integers()
    | st.sampled_from(["..", "\x00", "%2F"])
)
odd = (
    ids
    | st.just("\ud800")
    | st.none()
    | st.booleans()
    | st.floats()
    | st.lists(st.integers(), max_size=2)
)
entries = st.lists(st.fixed_dictionaries({"column": odd, "value": odd}), max_size=3)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "entries": entries,
        "history": entries,
        "row": odd,
        "column": odd,
        "n": odd,
        "pairs": entries,
        "among": odd,
        "features": st.dictionaries(
            st.sampled_from(["group", "age", "likes", "other"]), odd, max_size=3
        )
        | odd,
    },
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=ids, body=bodies, route=st.sampled_from(list_routes()))
def test_no_body_and_no_id_makes_a_fault(
    client: TestClient, name: object, body: Any, route: tuple[str, str]
) -> None:
    method, path = route
    quoted = quote(str(name), safe="")
    answer = client.request(
        method,
        path.replace("{row}", quoted).replace("{column}", quoted),
        content=json.dumps(body),  # with what JSON does not have, too: NaN, Infinity
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert answer.json()["error"]["message"]
        assert "Traceback" not in answer.text
        assert "/" not in answer.json()["error"]["message"].replace(repr(name), "").replace(
            "/docs", ""
        )
