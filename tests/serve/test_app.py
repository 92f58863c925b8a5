"""The application: its description, its errors, and the page that documents its routes."""

import re

from fastapi.testclient import TestClient
from tests.serve.conftest import StartClient

from deepmf.serve import KeyRing


def test_the_docs_page_loads_only_files_of_the_service(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    loaded = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert "/swagger/swagger-ui-bundle.js" in loaded
    assert all(client.get(path).status_code == 200 for path in loaded)


def test_keys_are_described_if_they_are_needed(start_client: StartClient) -> None:
    without = start_client().get("/openapi.json").json()
    assert "security" not in without["paths"]["/v1/model"]["get"]
    assert "securitySchemes" not in without["components"]
    needed = start_client(keys=KeyRing([])).get("/openapi.json").json()
    assert needed["paths"]["/v1/model"]["get"]["security"]


def test_an_unknown_path_or_method_is_refused(client: TestClient) -> None:
    assert client.get("/v2/nothing").json()["error"]["code"] == "no_such_path"
    answer = client.delete("/v1/model")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "no_such_method")
    assert client.get("/page/../service.py").status_code == 404
    assert client.get("/swagger/../core.py").status_code == 404
