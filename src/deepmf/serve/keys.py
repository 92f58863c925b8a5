"""API keys: who may read, write and administer; only hashes are stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.files.atomic import write_atomically
from deepmf.files.locks import lock_folder

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
