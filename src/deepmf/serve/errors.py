"""The error that the service answers a request with: a status, a code for programs and a sentence for people."""

from __future__ import annotations

from deepmf.errors import UserError

MAX_MESSAGE = 200  # characters, which also limits how much of a request a message repeats

# The statuses of errors, as the OpenAPI description explains them.
STATUS_MEANINGS = {
    400: "The request is not valid HTTP, JSON or UTF-8.",
    401: "The API key is missing or unknown.",
    403: "The role of the API key does not allow this, or the host or origin is not allowed.",
    404: "The row, the column or the path does not exist.",
    405: "The path does not support this method.",
    409: "The model cannot do this.",
    412: "The entries have changed since the ETag in If-Match.",
    413: "The body is too large.",
    422: "The body or a parameter is invalid.",
    500: "The service failed; its log says more.",
    503: "The service is starting, stopping or too busy; try again.",
}


class ApiError(UserError):
    """A request that fails with an HTTP status; the message names only what the request itself contains."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(shorten(message))
        self.status = status
        self.code = code


def shorten(message: str) -> str:
    """Return a message of at most `MAX_MESSAGE` characters: the start and the end of a longer one."""
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 83]}...{message[-80:]}"
