"""Access: which key a request came with, whether its role is enough, and whether it asks too often."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.files import lock_folder, write_atomically
from deepmf.serve.errors import Refusal

KeyRole = Literal["read", "write", "rows", "admin"]

_SHA256 = re.compile("[0-9a-f]{64}")

ROLES: tuple[KeyRole, ...] = get_args(KeyRole)  # each may do what those before it may


class ApiKey(NamedTuple):
    """A key: what it is called in logs, what it may do, and the SHA-256 of its text."""

    name: str
    role: KeyRole
    digest: str

    def allows(self, role: KeyRole) -> bool:
        """Say whether it may do what a role may."""
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
        """Return the key with this text; all are compared, each in constant time."""
        digest = digest_of_key(text)
        found = None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def digest_of_key(text: str) -> str:
    """Return the hash of a key; keys are random and long, so that one fast hash is enough."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> KeyRing:
    """Read a file of keys: a name, a role and a hash per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise FileAbsent(f"no file of keys at {path}; deepmf api-key makes one") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"the file of keys {path} cannot be read") from error
    return KeyRing(_parsed(line, path, number) for number, line in enumerate(lines, 1) if _counts(line))


def add_key(path: Path, *, name: str, role: str) -> str:
    """Make a key, add its hash to a file, and return its text, which is stored nowhere."""
    if role not in ROLES:
        raise BadSetting(f"the role of a key must be {', '.join(ROLES)}; got {role!r}")
    if not name or not name.isprintable() or name.startswith("#") or any(c.isspace() for c in name):
        raise BadSetting(f"the name of a key must be one printable word; got {name!r}")
    text = secrets.token_urlsafe(32)
    with lock_folder(path.resolve().parent):  # another command may add one at the same time
        known = read_keys(path).keys if path.exists() else []
        if any(key.name == name for key in known):
            raise BadSetting(f"{path} has a key called {name!r} already; take another name, or remove its line")
        _write_keys(path, [*known, ApiKey(name, role, digest_of_key(text))])
    return text


def _write_keys(path: Path, keys: Iterable[ApiKey]) -> None:
    content = "".join(f"{key.name} {key.role} {key.digest}\n" for key in keys)

    def write(temporary: Path) -> None:
        temporary.touch()
        temporary.chmod(0o600)
        temporary.write_text(f"# name, role and SHA-256 of each API key\n{content}", encoding="utf-8")

    write_atomically(path, write)


def _counts(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _parsed(line: str, path: Path, number: int) -> ApiKey:
    words = line.split()
    if len(words) != 3 or words[1] not in ROLES or not _SHA256.fullmatch(words[2].lower()):
        raise UnreadableFile(f"{path}, line {number}: a name, a role ({', '.join(ROLES)}) and a SHA-256 are needed")
    return ApiKey(words[0], words[1], words[2].lower())


class RateLimit:
    """A bucket of tokens for each key: a request takes one, and they come back at a steady rate.

    >>> now = 0.0
    >>> limit = RateLimit(per_second=1, clock=lambda: now)
    >>> [limit.allows("ann") for _ in range(3)]
    [True, True, False]
    >>> now = 1.0
    >>> limit.allows("ann")
    True
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, 2.0 * per_second)
        self._clock = clock
        self.retry_seconds = math.ceil(min(1 / per_second, 86_400))  # after which there is a token again
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def allows(self, key: str) -> bool:
        """Take a token; say whether there was one."""
        now = self._clock()
        tokens, counted = self._buckets.get(key, (self._most, now))
        tokens = min(self._most, tokens + (now - counted) * self._per_second)
        self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1


_BEARER = HTTPBearer(auto_error=False, description="An API key; none is needed where the service has no file of keys.")


EVERYBODY = ApiKey("anyone", "admin", "")  # without a file of keys, on this machine alone


class Access:
    """Who may do what: the keys, and how often each may ask; without keys, everybody may do everything."""

    def __init__(self, keys: KeyRing | None, rate: RateLimit | None) -> None:
        self.keys = keys
        self._rate = rate

    def check(self, given: str | None, role: KeyRole) -> ApiKey:
        """Return the key of a request that is allowed, or refuse it."""
        if self.keys is None:
            return EVERYBODY
        key = self.keys.find(given) if given else None
        if key is None:
            reason = "an API key is needed: Authorization: Bearer ..." if not given else "this API key is not known"
            raise Refusal(401, "no_key", reason)
        if self._rate is not None and not self._rate.allows(key.name):
            wait = self._rate.retry_seconds
            said = f"too many requests with this API key; try again in {wait} second{'s' * (wait > 1)}"
            raise Refusal(429, "too_often", said, retry_after=wait)
        check_role(key, role)
        return key


def check_role(key: ApiKey, role: KeyRole) -> None:
    """Refuse what the role of a key does not allow."""
    if not key.allows(role):
        raise Refusal(403, "role", f"this needs an API key of the role {role}; this one has the role {key.role}")


def needs(role: KeyRole) -> Callable[..., Awaitable[ApiKey]]:
    """Return the dependency that lets requests with a role pass."""

    async def check_request(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
    ) -> ApiKey:
        access: Access = request.app.state.access
        key = access.check(None if credentials is None else credentials.credentials, role)
        request.scope["deepmf.key"] = key.name
        return key

    return check_request
