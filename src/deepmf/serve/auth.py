"""API keys: their file, their roles, their rate limit, and the dependency that checks them."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.files import lock_folder, read_text_file, write_atomically
from deepmf.serve.errors import ApiError

KeyRole = Literal["read", "write", "rows", "admin"]
ROLES: tuple[KeyRole, ...] = get_args(KeyRole)  # each includes those before it

_SHA256 = re.compile("[0-9a-f]{64}")


class ApiKey(NamedTuple):
    """A key: its name in logs, its role, and the SHA-256 of its text."""

    name: str
    role: KeyRole
    digest: str

    def allows(self, role: KeyRole) -> bool:
        """Whether the role of the key includes another role."""
        return ROLES.index(self.role) >= ROLES.index(role)


class KeyRing:
    """All keys of a service.

    >>> ring = KeyRing([])
    >>> ring.find("x") is None
    True
    """

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self.keys = list(keys)

    def find(self, text: str) -> ApiKey | None:
        """Return the key with this text; all keys are compared, each in constant time."""
        digest = hash_key(text)
        found = None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def hash_key(text: str) -> str:
    """Return the hash of a key; keys are random and long, so that a single fast hash is enough."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> KeyRing:
    """Read a file of keys: a name, a role, and a SHA-256 per line."""
    try:
        lines = read_text_file(path).splitlines()
    except FileAbsent as error:
        raise FileAbsent(f"{error}; deepmf api-key creates a key file") from error
    return KeyRing(
        _parse_line(line, path, number)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    )


def add_key(path: Path, *, name: str, role: str) -> str:
    """Create a key, add its hash to a file, and return its text, which is stored nowhere."""
    if role not in ROLES:
        raise BadSetting(f"the role of a key must be {', '.join(ROLES)}; got {role!r}")
    if not name or not name.isprintable() or name.startswith("#") or any(c.isspace() for c in name):
        raise BadSetting(f"the name of a key must be one printable word; got {name!r}")
    text = secrets.token_urlsafe(32)
    with lock_folder(path.resolve().parent):  # another process may add a key at the same time
        known = read_keys(path).keys if path.exists() else []
        if any(key.name == name for key in known):
            raise BadSetting(f"{path} already has a key named {name!r}; choose another name, or remove its line")
        _write_keys(path, [*known, ApiKey(name, role, hash_key(text))])
    return text


def _write_keys(path: Path, keys: Iterable[ApiKey]) -> None:
    content = "".join(f"{' '.join(key)}\n" for key in keys)

    def write(temporary: Path) -> None:
        temporary.touch()
        temporary.chmod(0o600)
        temporary.write_text(f"# name, role and SHA-256 of each API key\n{content}", encoding="utf-8")

    write_atomically(path, write)


def _parse_line(line: str, path: Path, number: int) -> ApiKey:
    words = line.split()
    if len(words) != 3 or words[1] not in ROLES or not _SHA256.fullmatch(words[2].lower()):
        raise UnreadableFile(f"{path}, line {number}: expected a name, a role ({', '.join(ROLES)}) and a SHA-256")
    return ApiKey(words[0], words[1], words[2].lower())


class RateLimit:
    """A token bucket for each key: a request takes a token, and tokens return at a steady rate.

    >>> now = 0.0
    >>> limit = RateLimit(per_second=1, clock=lambda: now)
    >>> [limit.take("ann") for _ in range(3)]
    [True, True, False]
    >>> now = 1.0
    >>> limit.take("ann")
    True
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, 2.0 * per_second)
        self._clock = clock
        self.retry_seconds = math.ceil(min(1 / per_second, 86_400))  # until the next token
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def take(self, key: str) -> bool:
        """Take a token; return whether there was one."""
        now = self._clock()
        tokens, counted = self._buckets.get(key, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - counted) * self._per_second)
        self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1


_BEARER = HTTPBearer(auto_error=False, description="An API key, made by deepmf api-key.")
_ANYONE = ApiKey("anyone", "admin", "")  # without a key file, which is for this machine only


class Access:
    """The keys of a service and their rate limit; without keys, everybody may do everything."""

    def __init__(self, keys: KeyRing | None, rate: RateLimit | None) -> None:
        self.keys = keys
        self._rate = rate

    def identify(self, text: str | None) -> ApiKey:
        """Return the key with a text; raise `ApiError` if it is unknown."""
        if self.keys is None:
            return _ANYONE
        key = self.keys.find(text) if text else None
        if key is None:
            message = "this API key is not known" if text else "an API key is needed: Authorization: Bearer ..."
            raise ApiError(401, "no_key", message)
        return key

    def check(self, text: str | None, role: KeyRole) -> ApiKey:
        """Return the key of a request; raise `ApiError` if it is unknown, over its rate limit, or lacks the role."""
        key = self.identify(text)
        if key is not _ANYONE and self._rate is not None and not self._rate.take(key.name):
            wait = self._rate.retry_seconds
            message = f"too many requests with this API key; try again in {wait} second{'s' * (wait > 1)}"
            raise ApiError(429, "too_often", message, retry_after=wait)
        check_role(key, role)
        return key


def read_bearer(header: str) -> str | None:
    """Return the API key of an Authorization header."""
    scheme, _, text = header.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


def check_role(key: ApiKey, role: KeyRole) -> None:
    """Raise `ApiError` if a key lacks a role."""
    if not key.allows(role):
        raise ApiError(403, "role", f"this needs an API key with the role {role}; this key has the role {key.role}")


@cache
def require_role(role: KeyRole) -> Callable[..., Awaitable[ApiKey]]:
    """Return the FastAPI dependency that checks the API key of a request for a role."""

    async def check_request(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
    ) -> ApiKey:
        access: Access = request.app.state.access
        key = access.check(None if credentials is None else credentials.credentials, role)
        request.scope["deepmf.key"] = key.name
        return key

    return check_request
