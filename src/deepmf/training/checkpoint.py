"""Checkpoints: the state of a training in a file, which any number of ranks can continue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.errors import BadModelFile, BadSetting, CannotSave, check_count, warn
from deepmf.matrix.arrays import Array, fetch
from deepmf.nn.group import decide_on_first, find_ranks, is_first
from deepmf.storage.model_file import read_file, write_file
from deepmf.storage.parts import Form, Part
from deepmf.training.history import History
from deepmf.training.loop import Loop, TrainingState

if TYPE_CHECKING:
    from deepmf.nn.parallel import Division
    from deepmf.nn.ranks import Ranks

_CHECKPOINT = Form(Part("fingerprint", "object"), Part("state", "object"))


@dataclass(frozen=True)
class Checkpoint:
    """The state of one training, identified by `fingerprint`, in a file.

    `divided` has the divisions of the tensors that ranks divide, by name; they are stored whole.
    """

    path: Path
    fingerprint: dict[str, Any]
    divided: Mapping[str, Division] = field(default_factory=dict)

    def run(self, loop: Loop, *, every: int) -> History:
        """Run a training from its stored state, or from its start, and write the state after every
        `every` epochs.

        The final state is written too, so that a process killed before it has saved the model loses
        nothing. If a state cannot be written, training continues with one warning for each cause.
        """
        check_count("checkpoint_every", every)
        if not self.path.parent.is_dir():  # noticed now and not after the first epochs
            raise BadSetting(
                f"the checkpoint {self.path} needs a folder {self.path.parent}, which does not exist"
            )
        state = self.read()
        if state is not None:
            try:
                loop.restore(state)
            except BadModelFile as error:
                raise BadModelFile(f"{self.path}: {error}; delete it to start again") from error
        warned: set[str] = set()

        def keep(state: TrainingState) -> None:
            try:
                self.write(state)
            except CannotSave as error:
                if str(error) not in warned:
                    warned.add(str(error))
                    warn(f"{error}; training continues without this checkpoint")

        return loop.run(keep=keep, keep_every=every)

    def write(self, state: TrainingState) -> None:
        """Replace the stored state, whole or not at all; the first of several ranks writes it."""
        tensors = {}
        for name, share in state.tensors.items():
            tensor = self._gather(name, share)
            if is_first():  # the others need no memory for whole tensors
                tensors[name] = tensor
        content = {"fingerprint": self.fingerprint, "state": state.content}
        decide_on_first(
            lambda: write_file(self.path, kind="checkpoint", content=content, tensors=tensors)
        )

    def read(self) -> TrainingState | None:
        """Return the stored state, None if there is none; refuse the state of another run."""
        if not decide_on_first(self.path.exists):
            return None
        stored = read_file(self.path, kind="checkpoint")
        try:
            fingerprint, content = _CHECKPOINT.read(stored.content).values()
        except BadModelFile as error:
            raise error.locate(str(self.path)) from error
        # a tuple becomes a list
        names = list_differences(json.loads(json.dumps(self.fingerprint)), fingerprint)
        if names:
            raise BadModelFile(
                f"{self.path} is the checkpoint of another run (its {', '.join(names)} differ); "
                "delete it to start again, or give another name"
            )
        tensors = {name: self._take_share(name, array) for name, array in stored.tensors.items()}
        return TrainingState(content, tensors)

    def _gather(self, name: str, share: Array) -> Array:
        """Return the lines of all ranks."""
        division, ranks = self._find_division(name)
        if division is None or ranks is None:
            return share
        import torch

        return fetch(division.gather_whole(torch.from_numpy(share).to(ranks.device), ranks))

    def _take_share(self, name: str, whole: Array) -> Array:
        """Return a copy of the lines of this rank; an array of another shape stays as it is, and is
        refused later."""
        division, ranks = self._find_division(name)
        is_divided = division is not None and len(whole) == division.n_inputs * division.n_channels
        if division is None or ranks is None or not is_divided:
            return whole.copy()
        import torch

        return fetch(division.take_share(torch.from_numpy(whole.copy()), ranks))

    def _find_division(self, name: str) -> tuple[Division | None, Ranks | None]:
        """Return how ranks divide a tensor, if they do; the best weights are divided as the last
        ones."""
        last = f"learned.{name.removeprefix('good.')}" if name.startswith("good.") else name
        return self.divided.get(last), find_ranks()


def list_differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names that only one of two fingerprints has, or that have other values."""
    return [
        name
        for name in one | other
        if name not in one or name not in other or one[name] != other[name]
    ]


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a complete training; warn if that fails."""
    try:
        if is_first():
            path.unlink(missing_ok=True)
    except OSError as error:
        warn(f"the checkpoint {path} could not be removed ({error.strerror})")
