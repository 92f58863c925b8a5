"""The peers as `peers.toml` declares them: what is installed for each, how it is run, with which
settings."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = "deepmf"  # the environment that is there already


@dataclass(frozen=True)
class Environment:
    """A virtual environment of a library: what pip installs into it."""

    name: str
    requirements: tuple[str, ...]
    before: tuple[str, ...] = ()  # for a build without isolation
    options: tuple[str, ...] = ()  # of pip, for the requirements


@dataclass(frozen=True)
class Peer:
    """One way to run a library: a point of the pictures, a row of the tables."""

    name: str
    title: str
    family: str
    environment: str
    runner: str
    settings: dict[str, Any]
    tasks: tuple[str, ...]
    source: str  # where the settings come from
    seconds: int = 600
    seeded: str = ""


@dataclass(frozen=True)
class Absent:
    """A library that is not run, and why."""

    title: str
    reason: str


def _read_declarations() -> dict[str, list[dict[str, Any]]]:
    found = tomllib.loads(Path(__file__).with_name("peers.toml").read_text(encoding="utf-8"))
    return {
        kind: [
            {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in one.items()
            }
            for one in all_
        ]
        for kind, all_ in found.items()
    }


_FOUND = _read_declarations()
ENVIRONMENTS = tuple(Environment(**one) for one in _FOUND["environment"])
PEERS = tuple(Peer(**one) for one in _FOUND["peer"])
ABSENT = tuple(Absent(**one) for one in _FOUND["absent"])
