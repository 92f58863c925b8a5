"""Bodies: read for known keys alone, and not too many at once."""

import asyncio
from typing import Any

import pytest
from tests.serve.conftest import StartClient

from deepmf.serve.auth import ApiKey, KeyRing, hash_key
from deepmf.serve.service import ServiceLimits

KEYS = KeyRing([ApiKey("phone", "read", hash_key("right"))])
BODY = b'{"column": "nothing"}'


async def post(app: Any, receive: Any, **headers: str) -> tuple[int, dict[bytes, bytes]]:
    """Send a POST whose body is received by a function; return the status and the headers of the
    response."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    raw = {
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        **headers,
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/similar",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in raw.items()],
    }
    await app(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


async def receive_whole() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY}


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic right", "right"])
def test_the_body_of_a_request_without_a_known_key_is_not_read(
    start_client: StartClient, header: str
) -> None:
    n_read = 0

    async def receive() -> dict[str, Any]:
        nonlocal n_read
        n_read += 1
        return await receive_whole()

    app = start_client(keys=KEYS).app
    status, headers = asyncio.run(post(app, receive, authorization=header))
    assert (status, n_read, headers[b"connection"]) == (401, 0, b"close")
    assert asyncio.run(post(app, receive, authorization="Bearer right"))[0] == 404
    assert n_read == 1


@pytest.mark.parametrize("headers", [{}, {"content-length": "?", "transfer-encoding": "chunked"}])
def test_the_bodies_of_all_requests_together_are_bounded(
    start_client: StartClient, headers: dict[str, str]
) -> None:
    limits = ServiceLimits(body_bytes=100, all_bodies_bytes=2 * (100 if headers else len(BODY)))
    app = start_client(service={"limits": limits}).app

    async def send_together() -> list[int]:
        arrived = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await arrived.wait()
            return await receive_whole()

        waiting = [asyncio.create_task(post(app, receive, **headers)) for _ in range(2)]
        await asyncio.sleep(0)
        status, more = await post(app, receive_whole, **headers)
        assert more[b"retry-after"] == b"1"
        arrived.set()
        return [
            status,
            *[(await each)[0] for each in waiting],
            (await post(app, receive_whole, **headers))[0],
        ]

    assert asyncio.run(send_together()) == [503, 404, 404, 404]
