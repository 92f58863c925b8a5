"""Checkpoints: the state of a training in a file, or in a folder that several ranks write together."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from deepmf.errors import BadModelFile, BadSetting, CannotSave, check_count, warn
from deepmf.files import flush_folder, temporary_folder
from deepmf.nn.parallel import Division
from deepmf.nn.ranks import find_ranks, report_lost_ranks
from deepmf.storage.model_file import read_file, write_file
from deepmf.training.history import History
from deepmf.training.loop import Loop, TrainingState

# The file with everything but tensors, in the folder of a state of several ranks.
CONTENT = "content"


@dataclass(frozen=True)
class Checkpoint:
    """The state of one training, identified by `fingerprint`, in a file."""

    path: Path
    fingerprint: dict[str, Any]

    def run(self, loop: Loop, *, every: int) -> History:
        """Run a training from its stored state, or from its start, and write the state after every `every` epochs.

        The final state is written too, so that a process killed before it has saved the model loses nothing. If a state
        cannot be written, training continues with one warning for each cause.
        """
        check_count("checkpoint_every", every)
        if not self.path.parent.is_dir():  # noticed now and not after the first epochs
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
                    warn(f"{error}; training continues without this checkpoint")

        return loop.run(keep=keep, keep_every=every)

    def _restore(self, loop: Loop, state: TrainingState) -> None:
        try:
            loop.restore(state)
        except BadModelFile as error:
            raise BadModelFile(f"{self.path}: {error}; delete it to start again") from error

    def write(self, state: TrainingState) -> None:
        """Replace the stored state, whole or not at all."""
        tensors = {name: tensor.numpy() for name, tensor in state.tensors.items()}
        content = {"fingerprint": self.fingerprint, "state": state.content}
        write_file(self.path, kind="checkpoint", content=content, tensors=tensors)

    def read(self) -> TrainingState | None:
        """Return the stored state, None if there is none; refuse the state of another run."""
        if not self.path.exists():
            return None
        stored = read_file(self.path, kind="checkpoint")
        content = self._check_content(stored.content)
        return TrainingState(content, {name: torch.from_numpy(each.copy()) for name, each in stored.tensors.items()})

    def _check_content(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the stored state without tensors; refuse the state of another run."""
        kept, state = (content.get(name) for name in ("fingerprint", "state"))
        if not isinstance(kept, dict) or not isinstance(state, dict):
            raise BadModelFile(f"{self.path} is a checkpoint without the state of a training")
        own = json.loads(json.dumps(self.fingerprint))  # a tuple becomes a list
        if kept != own:
            raise BadModelFile(
                f"{self.path} is the checkpoint of another run (its {', '.join(list_differences(own, kept))} differ); "
                "delete it to start again, or give another name"
            )
        return state


def list_differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names that only one of two fingerprints has, or that have other values."""
    return [name for name in one | other if name not in one or name not in other or one[name] != other[name]]


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a complete training; warn if that fails."""
    ranks = find_ranks()
    if ranks is not None and ranks.index:
        return  # the first rank removes it
    try:
        if path.is_dir():
            for state in find_states(path).values():
                shutil.rmtree(state)
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        warn(f"the checkpoint {path} could not be removed ({error.strerror})")


def find_states(path: Path) -> dict[int, Path]:
    """Return the folders of states in the checkpoint folder of several ranks, by number; empty for other paths."""
    found = path.iterdir() if path.is_dir() else ()
    return {int(each.name): each for each in found if each.name.isdecimal() and (each / CONTENT).is_file()}


Decision = TypeVar("Decision")


_SHARDS = "*.safetensors"


@dataclass(frozen=True)
class ShardedCheckpoint(Checkpoint):
    """The state of one training in a folder of safetensors shards, by `torch.distributed.checkpoint`.

    A state is a numbered subfolder with the shard of each rank and a file with everything else. It is written under a
    temporary name and renamed when it is whole; then the state before it is removed. Any number of ranks can continue
    from it, including a single process.

    `divided` has the divisions of tensors by name. Divided tensors are stored as (channels, inputs, ...), so that the
    part of a rank is one range of inputs.
    """

    divided: Mapping[str, Division] = field(default_factory=dict)

    def write(self, state: TrainingState) -> None:
        """Replace the stored state, whole or not at all."""
        with ExitStack() as stack, report_lost_ranks():
            stack.callback(self._remove_if_empty)  # if writing the first state failed
            folder = _decide(lambda: stack.enter_context(temporary_folder(self._make_folder())))
            stored = {name: self._by_channel(name, tensor) for name, tensor in state.tensors.items()}
            self._save(folder, {name: self._distribute(name, tensor) for name, tensor in stored.items()})
            _decide(lambda: self._finish(folder, state.content))

    def read(self) -> TrainingState | None:
        """Return the stored state, None if there is none; refuse the state of another run."""
        with report_lost_ranks():
            found = _decide(self._read_last_content)
            if found is None:
                return None
            folder, content = found
            return TrainingState(content, self._load(folder))

    def _make_folder(self) -> Path:
        with _name_checkpoint(self.path):
            self.path.mkdir(exist_ok=True)
        return self.path

    def _remove_if_empty(self) -> None:
        with suppress(OSError):  # not empty
            self.path.rmdir()

    def _save(self, folder: Path, tensors: dict[str, Tensor]) -> None:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of a single process
                save(tensors, storage_writer=writer, no_dist=find_ranks() is None)
        except CheckpointException as error:
            cause = _find_cause(error)
            if not isinstance(cause, OSError):
                raise cause from error
            raise _make_error(self.path, cause) from error

    def _finish(self, folder: Path, content: dict[str, Any]) -> None:
        """Add the content file, give the folder its number, and remove the state before it."""
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
            flush_folder(self.path)
        for old in before.values():
            shutil.rmtree(old, ignore_errors=True)

    def _read_last_content(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder of the last state and its content, after checking its shards."""
        if self.path.is_file():
            raise BadModelFile(
                f"{self.path} is the checkpoint of a single process, and several processes cannot continue it; "
                "continue it with one process, or give another name"
            )
        numbered = find_states(self.path)
        if not numbered:
            return None
        folder = numbered[max(numbered)]
        stored = read_file(folder / CONTENT, kind="checkpoint").content
        content, shards = self._check_content(stored), stored.get("shards")
        present = {file.name for file in folder.glob(_SHARDS)}
        if not isinstance(shards, dict) or present != shards.keys():
            raise BadModelFile(f"{folder} has other shards than it was written with; delete it")
        for name, checksum in shards.items():
            if _compute_checksum(folder / name) != checksum:
                raise BadModelFile(f"{folder / name} was changed after it was written; delete {folder}")
        return folder, content

    def _load(self, folder: Path) -> dict[str, Tensor]:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        from torch.distributed.checkpoint.state_dict_loader import load

        reader = HuggingFaceStorageReader(str(folder))
        try:
            stored: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
            local = {name: self._make_empty(name, each) for name, each in stored.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                placed = {name: self._distribute(name, tensor) for name, tensor in local.items()}
                load(placed, storage_reader=reader, no_dist=find_ranks() is None)
        except BadModelFile:
            raise
        except Exception as error:  # torch may raise anything for a damaged shard
            cause = _find_cause(error) if isinstance(error, CheckpointException) else error
            raise BadModelFile(f"{folder} could not be read ({cause}); delete it") from error
        return {
            name: tensor if self._find_division(name) is None else tensor.flatten(0, 1)
            for name, tensor in local.items()
        }

    def _make_empty(self, name: str, stored: Any) -> Tensor:
        """Return an empty tensor for the part of a stored tensor that this rank holds."""
        shape, division, ranks = list(stored.size), self._find_division(name), find_ranks()
        if division is not None:
            if tuple(shape[:2]) != (division.n_channels, division.n_inputs):
                raise BadModelFile(f"{self.path} holds {name} of shape {tuple(shape)}, which does not fit; delete it")
            if ranks is not None:
                own = ranks.find_lines(division.n_inputs)
                shape[1] = own.stop - own.start
        return torch.empty(shape, dtype=stored.properties.dtype)

    def _by_channel(self, name: str, tensor: Tensor) -> Tensor:
        division = self._find_division(name)
        return tensor if division is None else division.by_channel(tensor)

    def _distribute(self, name: str, tensor: Tensor) -> Tensor:
        """Return a divided tensor as a DTensor, and other tensors unchanged."""
        division, ranks = self._find_division(name), find_ranks()
        if division is None or ranks is None:
            return tensor
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = init_device_mesh("cpu", (ranks.size,))
        whole = torch.empty(division.n_channels, division.n_inputs, *tensor.shape[2:], device="meta")
        return DTensor.from_local(tensor, mesh, [Shard(1)], run_check=False, shape=whole.shape, stride=whole.stride())

    def _find_division(self, name: str) -> Division | None:
        """Return the division of a tensor, None if it is whole; the best weights are divided as the last ones."""
        return self.divided.get(f"learned.{name.removeprefix('good.')}" if name.startswith("good.") else name)


def _decide(decide: Callable[[], Decision]) -> Decision:
    """Return the decision of the first rank, or of a single process."""
    ranks = find_ranks()
    return decide() if ranks is None else ranks.decide_on_first(decide)


def _find_cause(error: Any) -> BaseException:
    """Return the error of the first rank that failed."""
    cause: BaseException = error.failures[min(error.failures)][0]
    return cause


@contextmanager
def _name_checkpoint(path: Path) -> Iterator[None]:
    """Name the checkpoint instead of the temporary folder in errors of writing."""
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
