"""The file in which a training keeps its state, so that a killed run continues."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deepmf.errors import BadModelFile, BadSetting, CannotSave, DeepMFWarning
from deepmf.storage.model_file import read_file, write_file
from deepmf.training.history import History
from deepmf.training.loop import Loop, TrainingState


@dataclass(frozen=True)
class Checkpoint:
    """The file of the state of one training run, which `fingerprint` identifies."""

    path: Path
    fingerprint: dict[str, Any]

    def run(self, loop: Loop, *, every: int) -> History:
        """Run a training from where it was killed, or from its start, saving its state after every `every` epochs.

        The state at its end is kept too, so that a process killed before it has saved the model loses nothing: the next
        run goes straight to the same result. A state that cannot be written is warned of, once for each cause, and
        training goes on without it.
        """
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise BadSetting(f"checkpoint_every must be a whole number of at least 1; got {every!r}")
        if not self.path.parent.is_dir():  # known now rather than when the first state is due
            raise BadSetting(f"the checkpoint {self.path} needs a folder {self.path.parent}, which does not exist")
        state = self.read()
        if state is not None:
            self._restore(loop, state)
        warned: set[str] = set()

        def keep(state: TrainingState) -> None:
            try:
                self.write(state)
            except CannotSave as error:
                if str(error) not in warned:
                    warned.add(str(error))
                    warnings.warn(f"{error}; training goes on without this checkpoint", DeepMFWarning, stacklevel=2)

        return loop.run(keep=keep, keep_every=every)

    def _restore(self, loop: Loop, state: TrainingState) -> None:
        try:
            loop.restore(state)
        except BadModelFile as error:
            raise BadModelFile(f"{self.path}: {error}; delete it to start afresh") from error

    def write(self, state: TrainingState) -> None:
        """Keep a state, replacing the one before it whole or not at all."""
        tensors = {name: tensor.numpy() for name, tensor in state.tensors.items()}
        content = {"fingerprint": self.fingerprint, "state": state.content}
        write_file(self.path, kind="checkpoint", content=content, tensors=tensors)

    def read(self) -> TrainingState | None:
        """Return the state kept last, None where there is none; that of another run is refused."""
        if not self.path.exists():
            return None
        stored = read_file(self.path, kind="checkpoint")
        kept, state = (stored.content.get(name) for name in ("fingerprint", "state"))
        if not isinstance(kept, dict) or not isinstance(state, dict):
            raise BadModelFile(f"{self.path} is a checkpoint without the state of a training")
        own = json.loads(json.dumps(self.fingerprint))  # a tuple becomes a list
        if kept != own:
            differing = [name for name in own | kept if name not in own or name not in kept or own[name] != kept[name]]
            raise BadModelFile(
                f"{self.path} is the checkpoint of another run (its {', '.join(differing)} differ); "
                "delete it to start afresh, or give another name"
            )
        tensors = {name: torch.from_numpy(tensor.copy()) for name, tensor in stored.tensors.items()}
        return TrainingState(state, tensors)


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a training that is complete; where that fails, warn."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"the checkpoint {path} could not be removed ({error.strerror})", DeepMFWarning, stacklevel=2)
