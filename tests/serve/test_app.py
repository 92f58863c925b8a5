"""The application: its description, its errors, and the page that documents its routes."""

import json
import re
from urllib.parse import quote

import pytest
from tests.serve.conftest import Caller, StartClient, refusal

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.serve import KeyRing


def test_the_docs_page_loads_only_files_of_the_service(client: Caller) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    loaded = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert "/swagger/swagger-ui-bundle.js" in loaded
    assert all(client.get(path).status_code == 200 for path in loaded)


@pytest.mark.slow
def test_keys_are_described_if_they_are_needed(start_client: StartClient) -> None:
    without = start_client().get("/openapi.json").json()
    assert "security" not in without["paths"]["/v1/model"]["get"]
    assert "securitySchemes" not in without["components"]
    needed = start_client(keys=KeyRing([])).get("/openapi.json").json()
    assert needed["paths"]["/v1/model"]["get"]["security"]


def test_an_unknown_path_or_method_is_refused(client: Caller) -> None:
    for path in ("/v2/nothing", "/v1/planets/Mars/entries"):
        assert client.get(path).json()["error"]["code"] == "no_such_path"
    assert refusal(client.delete("/v1/model")) == (405, "no_such_method")
    assert client.get("/page/../service.py").status_code == 404
    assert client.get("/swagger/../core.py").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("method", ["get", "post"])
def test_examples_of_the_api_page_can_be_tried(
    start_client: StartClient, featured: Model, method: str
) -> None:
    client = start_client(featured)
    description = client.get("/openapi.json").json()
    schemas, tried = description["components"]["schemas"], 0
    for path, operations in description["paths"].items():
        if method not in operations or path == "/v1/model":
            continue
        operation = operations[method]
        for parameter in operation.get("parameters", ()):
            for example in parameter.get("examples", {}).values():
                path = path.replace(f"{{{parameter['name']}}}", quote(example["value"]))
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        (example,) = schemas.get(body.get("schema", {}).get("$ref", "").rpartition("/")[2], {}).get(
            "examples", [None]
        )
        if "{" not in path and ("requestBody" not in operation or example is not None):
            answer = client.request(method, path, json=example)
            assert answer.status_code == 200, (path, answer.json())
            tried += 1
    assert tried >= 4


def test_a_missing_content_type_is_named(client: Caller) -> None:
    for headers, word in (({}, "no Content-Type"), ({"Content-Type": "text/plain"}, "text/plain")):
        answer = client.post("/v1/recommend", content=b'{"history": []}', headers=headers)
        assert refusal(answer) == (422, "content_type")
        assert word in answer.json()["error"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("n_others", [0, 3])
def test_examples_do_not_show_the_ids_of_visitors(
    start_client: StartClient, is_text: bool, n_others: int
) -> None:
    visitors = [f"guest-{number:032x}" if is_text else 2**62 + number for number in (3, 4, 5)]
    rows = [*visitors, *[f"r{number}" if is_text else number for number in range(n_others)]]
    pairs = [(row, column) for row in rows for column in (("a", "b") if is_text else (1, 2))]
    matrix = ObservedMatrix.from_entries(*zip(*pairs, strict=True), [1.0, 2.0] * len(rows))
    shown = start_client(ALS(latent_size=2, epochs=2).fit(matrix)).get("/openapi.json").text
    assert "guest-" not in shown
    assert str(2**62)[:16] not in shown
    assert n_others == 0 or f'"value":{json.dumps("r0" if is_text else 0)}' in shown
