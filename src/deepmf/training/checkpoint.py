"""The file in which a training keeps its state, so that a killed run continues."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deepmf.errors import BadModelFile, BadSetting, CannotSave, DeepMFWarning
from deepmf.layers.ranks import ranks_here
from deepmf.storage.model_file import read_file, write_file
from deepmf.training.history import History
from deepmf.training.loop import Loop, TrainingState

# In the folder of a state that several ranks keep, the file of everything but tensors.
CONTENT = "content"


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
        content = self._content_of_run(stored.content)
        return TrainingState(content, {name: torch.from_numpy(each.copy()) for name, each in stored.tensors.items()})

    def _content_of_run(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return what is stored of a training beside tensors; another run than this one is refused."""
        kept, state = (content.get(name) for name in ("fingerprint", "state"))
        if not isinstance(kept, dict) or not isinstance(state, dict):
            raise BadModelFile(f"{self.path} is a checkpoint without the state of a training")
        own = json.loads(json.dumps(self.fingerprint))  # a tuple becomes a list
        if kept != own:
            differing = [name for name in own | kept if name not in own or name not in kept or own[name] != kept[name]]
            raise BadModelFile(
                f"{self.path} is the checkpoint of another run (its {', '.join(differing)} differ); "
                "delete it to start afresh, or give another name"
            )
        return state


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a training that is complete; where that fails, warn."""
    ranks = ranks_here()
    if ranks is not None and ranks.index:
        return  # the first removes it for all
    try:
        if path.is_dir():
            for state in numbered_states(path).values():
                shutil.rmtree(state)
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"the checkpoint {path} could not be removed ({error.strerror})", DeepMFWarning, stacklevel=2)


def numbered_states(path: Path) -> dict[int, Path]:
    """Return the folders of states in the folder in which several ranks keep them, by number; none in other folders."""
    found = path.iterdir() if path.is_dir() else ()
    return {int(each.name): each for each in found if each.name.isdecimal() and (each / CONTENT).is_file()}
