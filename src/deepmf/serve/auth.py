"""API keys: their file, their roles, and the dependency that checks them."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from fastapi import Request, Security
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from deepmf.errors import BadSetting, CannotSave, FileAbsent, UnreadableFile
from deepmf.files import read_text_file
from deepmf.serve.schemas import ApiError

KeyRole = Literal["read", "write", "rows", "admin"]
ROLES: tuple[KeyRole, ...] = get_args(KeyRole)  # each includes those before it

_SHA256 = re.compile("[0-9a-f]{64}")


class ApiKey(NamedTuple):
    """A key: its name in logs, its role, and the SHA-256 of its text."""

    name: str
    role: KeyRole
    digest: str

    def has(self, role: KeyRole) -> bool:
        """Whether the role of the key is, or includes, a role."""
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
        matches = [key for key in self.keys if hmac.compare_digest(key.digest, digest)]
        return matches[-1] if matches else None


def hash_key(text: str) -> str:
    """Return the hash of a key; keys are random and long, so that a single fast hash is enough."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> KeyRing:
    """Read a file of keys: a name, a role, and a SHA-256 per line."""
    try:
        lines = read_text_file(path).splitlines()
    except FileAbsent as error:
        raise FileAbsent(f"{error}; deepmf api-key creates a key file") from error
    keys = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and not line.startswith("#"):
            if len(words) != 3 or words[1] not in ROLES or not _SHA256.fullmatch(words[2].lower()):
                expected = f"expected a name, a role ({', '.join(ROLES)}) and a SHA-256"
                raise UnreadableFile(f"{path}, line {number}: {expected}")
            keys.append(ApiKey(words[0], words[1], words[2].lower()))
    return KeyRing(keys)


def add_key(path: Path, *, name: str, role: str) -> str:
    """Create a key, add its hash to a file, and return its text, which is stored nowhere."""
    if role not in ROLES:
        raise BadSetting(f"the role of a key must be {', '.join(ROLES)}; got {role!r}")
    if not name or not name.isprintable() or name.startswith("#") or any(c.isspace() for c in name):
        raise BadSetting(f"the name of a key must be one printable word; got {name!r}")
    text = secrets.token_urlsafe(32)
    is_new = not path.exists()
    if any(key.name == name for key in ([] if is_new else read_keys(path).keys)):
        raise BadSetting(
            f"{path} already has a key named {name!r}; choose another name, or remove its line"
        )
    line = f"{name} {role} {hash_key(text)}\n"
    if is_new:
        line = f"# name, role and SHA-256 of each API key\n{line}"
    elif not path.read_bytes().endswith(b"\n"):
        line = f"\n{line}"
    try:  # a single write: another process may add a key at the same time
        with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(line.encode())
    except OSError as error:
        raise CannotSave(f"{path} could not be written ({error.strerror})") from error
    return text


_BEARER = HTTPBearer(auto_error=False, description="An API key, made by deepmf api-key.")
_ANYONE = ApiKey("anyone", "admin", "")  # without a key file, which is for this machine only


def identify(keys: KeyRing | None, authorization: str) -> ApiKey | None:
    """Return the key in an Authorization header; without keys, one that may do everything."""
    if keys is None:
        return _ANYONE
    scheme, text = get_authorization_scheme_param(authorization)
    return keys.find(text) if scheme.lower() == "bearer" else None


def check_role(key: ApiKey | None, role: KeyRole) -> ApiKey:
    """Return a key; raise `ApiError` if there is none, or if it lacks a role."""
    if key is None:
        raise ApiError(401, "no_key", "a known API key is needed: Authorization: Bearer KEY")
    if not key.has(role):
        message = f"this needs an API key with the role {role}; this key has the role {key.role}"
        raise ApiError(403, "role", message)
    return key


@cache
def require_role(role: KeyRole) -> Callable[..., Awaitable[ApiKey]]:
    """Return the FastAPI dependency that checks the API key of a request for a role."""

    # the guard has read the header; the bearer scheme is for the OpenAPI description
    async def check_request(request: Request, _: Annotated[Any, Security(_BEARER)]) -> ApiKey:
        return check_role(request.scope["deepmf.key"], role)

    return check_request


async def may_see_rows(request: Request) -> bool:
    """Whether the API key of a request, if it has one, may see which rows exist."""
    key: ApiKey | None = request.scope["deepmf.key"]
    return key is not None and key.has("rows")
