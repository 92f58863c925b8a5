"""Refusals: what the service does not do, as a status, a code for programs and a sentence for people."""

from __future__ import annotations

from typing import NamedTuple

from deepmf.errors import UserError

MOST_SAID = 200  # characters of a sentence, and so of what it repeats of a request


def shorten(message: str) -> str:
    """Return a sentence that fits: of a long one, its beginning and its end."""
    return message if len(message) <= MOST_SAID else f"{message[: MOST_SAID - 83]}...{message[-80:]}"


class Refusal(UserError):
    """A request that is refused; the sentence names nothing but what the request itself gave."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(shorten(message))
        self.status = status
        self.code = code
        self.retry_after = retry_after


class RefusalKind(NamedTuple):
    """A status that refusals have, and when."""

    status: int
    meaning: str


KINDS = {
    kind.status: kind.meaning
    for kind in (
        RefusalKind(400, "The request is no valid HTTP, JSON or UTF-8."),
        RefusalKind(401, "No API key, or one that is not known."),
        RefusalKind(403, "The role of the API key does not allow this, or the host is not this one."),
        RefusalKind(404, "A row or column that is not known, or no such path."),
        RefusalKind(405, "The path does not have this method."),
        RefusalKind(409, "The model cannot do this."),
        RefusalKind(412, "The entries are no longer those that If-Match names."),
        RefusalKind(413, "The body is too large."),
        RefusalKind(422, "The body or a parameter is not what it should be."),
        RefusalKind(429, "Too many requests with this API key."),
        RefusalKind(500, "A fault of the service; its log says more."),
        RefusalKind(503, "The service is starting, stopping or too busy; try again."),
    )
}
