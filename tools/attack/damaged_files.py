"""Files that are damaged or cut off: the log and the journal of SQLite, workbooks, configurations."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from tests.fuzz import fuzz

from attack.target import (
    Outcome,
    Record,
    Target,
    save_small_model,
    wait_for_writes,
    write_meanwhile,
)
from deepmf.errors import DeepMFError
from deepmf.models.loading import load
from deepmf.serve import Service, open_database

_N_LOGS, _N_FILES = 150, 2_000
Damage = Callable[[bytes, np.random.Generator], bytes]


def attack(folder: Path) -> Iterator[Outcome]:
    """Open damaged variants of files."""
    model = save_small_model(folder)
    order = _write_and_kill(folder, model)
    damages: dict[str, tuple[str, Damage]] = {
        "its log cut off": ("-wal", _cut),
        "a bit of its log flipped": ("-wal", _flip),
        "noise in the place of its journal": ("-journal", _make_noise),
    }
    for what, (ending, damage) in damages.items():
        yield _open_variants(folder, model, order, what, ending, damage)
    for kind in ("excel", "configuration"):
        counts, wrong = fuzz(kind, range(_N_FILES))
        told = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        yield Outcome(f"damaged files: {kind}", f"{counts.total():,} variants", len(wrong), told)


def _write_and_kill(folder: Path, model: Path) -> list[str]:
    """Leave a database whose log holds the last writes; return its rows in their order."""
    record, target = Record(), Target(folder, model, "--database", str(folder / "whole.sqlite"))
    with write_meanwhile(target.client.base_url, record, n_writers=1):
        wait_for_writes(record, 120)
        target.kill()
    return list(record.values)


def _open_variants(
    folder: Path, model: Path, order: list[str], what: str, ending: str, damage: Damage
) -> Outcome:
    """Open damaged copies: what is there must be the first writes, whole and in their order."""
    dice, counts, n_wrong, path = (
        np.random.default_rng(0),
        Counter[str](),
        0,
        folder / "copy.sqlite",
    )
    loaded = load(model)
    for _ in range(_N_LOGS):
        for part in ("", "-wal", "-shm", "-journal"):
            Path(f"{path}{part}").unlink(missing_ok=True)
            if Path(f"{folder / 'whole.sqlite'}{part}").exists():
                shutil.copy(f"{folder / 'whole.sqlite'}{part}", f"{path}{part}")
        broken = Path(f"{path}{ending}")
        broken.write_bytes(damage(broken.read_bytes() if broken.exists() else b"", dice))
        try:
            Service(loaded, open_database(str(path))).close()
        except DeepMFError as error:
            counts["refused"] += 1
            n_wrong += "\n" in str(error)
            continue
        rows = _read_rows(path)
        counts["all there" if len(rows) >= len(order) else "the first writes there"] += 1
        n_wrong += not set(order[: len(rows)]) <= rows and not set(order) <= rows
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return Outcome(f"a SQLite database, {what}", f"{_N_LOGS} variants", n_wrong, told)


def _read_rows(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {line[0][1:].decode() for line in connection.execute("SELECT row_id FROM entries")}


def _cut(content: bytes, dice: np.random.Generator) -> bytes:
    return content[: int(dice.integers(len(content)))]


def _flip(content: bytes, dice: np.random.Generator) -> bytes:
    changed = bytearray(content)
    changed[int(dice.integers(len(content)))] ^= 1 << int(dice.integers(8))
    return bytes(changed)


def _make_noise(content: bytes, dice: np.random.Generator) -> bytes:
    return bytes(dice.integers(256, size=int(dice.integers(1, 20_000)), dtype=np.uint8))
