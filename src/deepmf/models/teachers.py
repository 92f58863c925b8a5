"""Teachers: models trained before another one, which learns from what they agree on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.models.latents import LatentArray
from deepmf.networks.ordinal_head import OrdinalHead
from deepmf.networks.two_branches import inner_products
from deepmf.storage.model_file import read_file, write_file
from deepmf.training.machine import Machine


class Teacher(NamedTuple):
    """What a trained model knows of all rows and columns: their latents."""

    rows: LatentArray
    columns: LatentArray

    def keep(self, path: Path, fingerprint: dict[str, Any]) -> None:
        """Write the teacher to a file, whole or not at all; `fingerprint` tells its training from others."""
        write_file(path, kind="teacher", content={"fingerprint": fingerprint}, tensors=self._asdict())

    @classmethod
    def kept(cls, path: Path, fingerprint: dict[str, Any]) -> Teacher | None:
        """Return the teacher that such a file holds, None where there is none; that of another run is refused."""
        if not path.exists():
            return None
        stored = read_file(path, kind="teacher")
        if stored.content["fingerprint"] != json.loads(json.dumps(fingerprint)):  # a tuple becomes a list
            raise BadModelFile(f"{path} is a teacher of another run; delete it to start afresh")
        return cls(stored.tensors["rows"], stored.tensors["columns"])


class Teachers:
    """Teachers on a device, ready to be asked for blocks; their answer is the mean of theirs.

    A single model errs by chance too, and the mean of several less. What they say about pairs that nobody observed
    holds a student in place far better than the few entries of a block alone.
    """

    def __init__(self, teachers: Sequence[Teacher], machine: Machine) -> None:
        self._latents = [
            tuple(torch.from_numpy(latents).to(machine.device) for latents in teacher) for teacher in teachers
        ]

    def exceeded(self, head: OrdinalHead, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the chance of more than each answer (rows, columns, answers - 1) in a block."""
        chances = []
        for row_latents, column_latents in self._latents:
            of_rows = row_latents[rows]
            marks = of_rows[:, None, -head.n_marks :]
            chances.append(head.logits(inner_products(of_rows, column_latents[columns]), marks).sigmoid())
        return torch.stack(chances).mean(0)
