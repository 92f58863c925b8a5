"""The records of finished runs: one JSON file for each peer, task and seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepmf.files import write_atomically
from peers.declared import Peer

Record = dict[str, Any]


class Records:
    """The records under one folder; what is there with the same settings is not run again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"

    def path(self, peer: str, task: str, seed: int) -> Path:
        """Return where the record of a run lies."""
        return self.folder / task / f"{peer}-{seed}.json"

    def is_finished(self, peer: Peer, task: str, seed: int) -> bool:
        """Say whether a run was made with the settings that are declared; one that failed was made
        too."""
        path = self.path(peer.name, task, seed)
        if not path.exists():
            return False
        declared = json.loads(json.dumps(peer.settings))
        return bool(json.loads(path.read_text(encoding="utf-8"))["settings"] == declared)

    def add(self, record: Record) -> None:
        """Write the record of a run, whole or not at all."""
        path = self.path(record["peer"], record["task"], record["seed"])
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1) + "\n"
        write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    def all(self) -> Iterator[Record]:
        """Yield every record, in the order of tasks, peers and seeds."""
        for path in sorted(self.folder.glob("*/*.json")):
            yield json.loads(path.read_text(encoding="utf-8"))
