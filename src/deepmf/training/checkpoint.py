"""The folder in which several ranks keep the state of their training, each its part of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from deepmf.errors import BadModelFile, BadSetting, CannotSave, DeepMFWarning
from deepmf.files import temporary_folder
from deepmf.nn.parallel import Division
from deepmf.nn.ranks import find_ranks, report_lost_ranks
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
    ranks = find_ranks()
    if ranks is not None and ranks.index:
        return  # the first removes it for all
    try:
        if path.is_dir():
            for state in find_states(path).values():
                shutil.rmtree(state)
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"the checkpoint {path} could not be removed ({error.strerror})", DeepMFWarning, stacklevel=2)


def find_states(path: Path) -> dict[int, Path]:
    """Return the folders of states in the folder in which several ranks keep them, by number; none in other folders."""
    found = path.iterdir() if path.is_dir() else ()
    return {int(each.name): each for each in found if each.name.isdecimal() and (each / CONTENT).is_file()}


Decision = TypeVar("Decision")


_SHARDS = "*.safetensors"


@dataclass(frozen=True)
class ShardedCheckpoint(Checkpoint):
    """The state of one training in a folder, written and read by `torch.distributed.checkpoint`, as safetensors.

    A state is a numbered folder in it: each rank's shard, and a file with everything else. It is made under another
    name and renamed when it is whole; only then the one before it goes. Any number of ranks continues from it, also
    one process alone.

    divided: the tensors of which each rank has some lines, and how these are divided. They are stored as (channels,
        inputs, ...), of which a rank's part is one range of inputs.
    """

    divided: Mapping[str, Division] = field(default_factory=dict)

    def write(self, state: TrainingState) -> None:
        """Keep a state, replacing the one before it whole or not at all."""
        with ExitStack() as stack, report_lost_ranks():
            stack.callback(self._remove_if_empty)  # after a write that failed, of the first state
            folder = _decide(lambda: stack.enter_context(temporary_folder(self._make_folder())))
            stored = {name: self._by_channel(name, tensor) for name, tensor in state.tensors.items()}
            self._save(folder, {name: self._distribute(name, tensor) for name, tensor in stored.items()})
            _decide(lambda: self._finish(folder, state.content))

    def read(self) -> TrainingState | None:
        """Return the state kept last, None where there is none; that of another run is refused."""
        with report_lost_ranks():
            found = _decide(self._last_content)
            if found is None:
                return None
            folder, content = found
            return TrainingState(content, self._load(folder))

    def _make_folder(self) -> Path:
        with _name_checkpoint(self.path):
            self.path.mkdir(exist_ok=True)
        return self.path

    def _remove_if_empty(self) -> None:
        with suppress(OSError):  # it is not, mostly
            self.path.rmdir()

    def _save(self, folder: Path, tensors: dict[str, Tensor]) -> None:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one process alone is no mistake
                save(tensors, storage_writer=writer, no_dist=find_ranks() is None)
        except CheckpointException as error:
            cause = _find_cause(error)
            if not isinstance(cause, OSError):
                raise cause from error
            raise _make_error(self.path, cause) from error

    def _finish(self, folder: Path, content: dict[str, Any]) -> None:
        """Add what is no tensor, give the folder its number, and remove the state before it."""
        before = find_states(self.path)
        with _name_checkpoint(self.path):
            shards = {file.name: _compute_checksum(file) for file in folder.glob(_SHARDS)}
            write_file(
                folder / CONTENT,
                kind="checkpoint",
                content={"fingerprint": self.fingerprint, "state": content, "shards": shards},
                tensors={},
            )
            folder.rename(self.path / f"{1 + max(before, default=0):08d}")
            _flush(self.path)
        for old in before.values():
            shutil.rmtree(old, ignore_errors=True)

    def _last_content(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder of the state kept last, with its content, once its shards are known to be whole."""
        if self.path.is_file():
            raise BadModelFile(
                f"{self.path} is the checkpoint of a training in one process, which several cannot continue; "
                "continue it with one process, or give another name"
            )
        numbered = find_states(self.path)
        if not numbered:
            return None
        folder = numbered[max(numbered)]
        stored = read_file(folder / CONTENT, kind="checkpoint").content
        content, shards = self._content_of_run(stored), stored.get("shards")
        present = {file.name for file in folder.glob(_SHARDS)}
        if not isinstance(shards, dict) or present != shards.keys():
            raise BadModelFile(f"{folder} lacks shards, or has more than it was written with; delete it")
        for name, checksum in shards.items():
            if _compute_checksum(folder / name) != checksum:
                raise BadModelFile(f"{folder / name} was changed since it was written; delete {folder}")
        return folder, content

    def _load(self, folder: Path) -> dict[str, Tensor]:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        from torch.distributed.checkpoint.state_dict_loader import load

        reader = HuggingFaceStorageReader(str(folder))
        try:
            described: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
            local = {name: self._empty(name, each) for name, each in described.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                placed = {name: self._distribute(name, tensor) for name, tensor in local.items()}
                load(placed, storage_reader=reader, no_dist=find_ranks() is None)
        except BadModelFile:
            raise
        except Exception as error:  # a shard may hold anything, and torch raise anything of it
            cause = _find_cause(error) if isinstance(error, CheckpointException) else error
            raise BadModelFile(f"{folder} could not be read ({cause}); delete it") from error
        return {
            name: tensor if self._division(name) is None else tensor.flatten(0, 1) for name, tensor in local.items()
        }

    def _empty(self, name: str, described: Any) -> Tensor:
        """Return a tensor for what this rank holds of a stored one."""
        shape, division, ranks = list(described.size), self._division(name), find_ranks()
        if division is not None:
            if tuple(shape[:2]) != (division.n_channels, division.n_inputs):
                raise BadModelFile(f"{self.path} holds {name} of shape {tuple(shape)}, which does not fit; delete it")
            if ranks is not None:
                own = ranks.find_lines(division.n_inputs)
                shape[1] = own.stop - own.start
        return torch.empty(shape, dtype=described.properties.dtype)

    def _by_channel(self, name: str, tensor: Tensor) -> Tensor:
        """Return a tensor as it is stored."""
        division = self._division(name)
        return tensor if division is None else division.by_channel(tensor)

    def _distribute(self, name: str, tensor: Tensor) -> Tensor:
        """Return a stored tensor as torch has one that is divided over ranks; the others as they are."""
        division, ranks = self._division(name), find_ranks()
        if division is None or ranks is None:
            return tensor
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = init_device_mesh("cpu", (ranks.size,))
        whole = torch.empty(division.n_channels, division.n_inputs, *tensor.shape[2:], device="meta")
        return DTensor.from_local(tensor, mesh, [Shard(1)], run_check=False, shape=whole.shape, stride=whole.stride())

    def _division(self, name: str) -> Division | None:
        """Return how a tensor is divided; None for others. The best weights are as the last ones."""
        return self.divided.get(f"learned.{name.removeprefix('good.')}" if name.startswith("good.") else name)


def _decide(decide: Callable[[], Decision]) -> Decision:
    """Return what the first rank decides, or this process alone."""
    ranks = find_ranks()
    return decide() if ranks is None else ranks.decide_on_first(decide)


def _find_cause(error: Any) -> BaseException:
    """Return what went wrong on the first of the ranks on which something did."""
    cause: BaseException = error.failures[min(error.failures)][0]
    return cause


@contextmanager
def _name_checkpoint(path: Path) -> Iterator[None]:
    """Name the checkpoint, not the temporary folder, where something cannot be written."""
    try:
        yield
    except OSError as error:
        cause = error.__cause__ if isinstance(error, CannotSave) else error
        raise _make_error(path, cause if isinstance(cause, OSError) else error) from error


def _make_error(path: Path, error: OSError) -> CannotSave:
    return CannotSave(f"{path} could not be written ({error.strerror or error}); nothing was changed")


def _compute_checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _flush(folder: Path) -> None:
    """Have the system put the rename on the disk, where it can."""
    with suppress(OSError):  # the state is in place either way
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
