"""The page of routes: everything that the description has, in words, styled by the service itself."""

import re

from fastapi.testclient import TestClient

from deepmf.serve.app import kind_of


def words(schema: dict[str, object]) -> str:
    return "".join(part.text for part in kind_of(schema))


def test_what_a_value_is_in_words() -> None:
    assert words({"type": "integer", "minimum": 1, "maximum": 1000}) == "a whole number (1 to 1,000)"
    assert words({"type": "integer", "minimum": -(2**53), "maximum": 2**53}) == "a whole number"
    assert words({"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]}) == (
        "a text (at most 9 characters) or null"
    )
    assert words({"enum": ["row", "column"]}) == '"row" or "column"'
    assert words({"type": "array", "items": {"$ref": "#/components/schemas/Pair"}, "minItems": 1}) == (
        "a list (at least 1) of Pair"
    )
    assert words({"type": "object", "additionalProperties": {"type": "number"}}) == (
        "an object, under each name a number"
    )
    assert words({}) == "anything"


def test_every_route_field_and_link_is_there(client: TestClient) -> None:
    page = client.get("/docs").text
    description = client.get("/openapi.json").json()
    anchors = set(re.findall(r' id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= anchors
    for path, operations in description["paths"].items():
        assert {f"{method}{path}" for method in operations} <= anchors
    for name, schema in description["components"]["schemas"].items():
        section = page[page.index(f'id="{name}"') :].partition("</section>")[0]
        assert all(f"<code>{field}</code>" in section for field in schema.get("properties", {}))
    assert "whether the service runs" in page.lower()


def test_it_is_styled_by_files_of_the_service_alone(client: TestClient) -> None:
    answer = client.get("/docs")
    sheets = re.findall(r'<link rel="stylesheet" href="([^"]+)">', answer.text)
    assert sheets == ["/page/style.css", "/page/docs.css"]
    assert all(client.get(sheet).headers["content-type"].startswith("text/css") for sheet in sheets)
    assert "style-src 'self'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text and " style=" not in answer.text
