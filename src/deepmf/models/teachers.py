"""Teachers: models trained before another one, which learns from what they agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from deepmf.models.latents import Latents
from deepmf.networks.ordinal_head import OrdinalHead
from deepmf.networks.two_branches import inner_products
from deepmf.training.machine import Machine


class Teacher(NamedTuple):
    """What a trained model knows of all rows and columns."""

    row_latents: Latents
    column_latents: Latents


class Teachers:
    """Teachers on a device, ready to be asked for blocks; their answer is the mean of theirs.

    A single model errs by chance too, and the mean of several less. What they say about pairs that nobody observed
    holds a student in place far better than the few entries of a block alone.
    """

    def __init__(self, teachers: Sequence[Teacher], machine: Machine) -> None:
        self._latents = [
            tuple(torch.from_numpy(latents.whole()).to(machine.device) for latents in teacher) for teacher in teachers
        ]

    def exceeded(self, head: OrdinalHead, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the chance of more than each answer (rows, columns, answers - 1) in a block."""
        chances = []
        for row_latents, column_latents in self._latents:
            of_rows = row_latents[rows]
            marks = of_rows[:, None, -head.n_marks :]
            chances.append(head.logits(inner_products(of_rows, column_latents[columns]), marks).sigmoid())
        return torch.stack(chances).mean(0)
