"""A model of a comparison measured in a process of its own, so that its peak memory is its own.

`python -m deepmf.evaluation.comparison_process JOB` is that process: it reads a file with the matrix, the model and the
plan, and writes a JSON line for each split, and one at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import gettempdir
from threading import Thread
from typing import IO, Any, NamedTuple

import torch

from deepmf.errors import UserError
from deepmf.evaluation.peak_memory import peak_memory_mb
from deepmf.evaluation.split_errors import SplitErrors, measure
from deepmf.evaluation.split_plan import SplitPlan
from deepmf.files.leftovers import temporary_folder
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.model import Model
from deepmf.models.registry import HOMES, model_class
from deepmf.storage.matrix_tensors import pack_matrix, unpack_matrix
from deepmf.storage.model_file import read_file, write_file
from deepmf.storage.raw_feature_tensors import pack_raw_features, unpack_raw_features

_KIND = "comparison"
_MATRIX = "matrix"
_FEATURES = "features"


class ProcessOutcome(NamedTuple):
    """The errors on each split, the peak memory of the process, and why there are none, if it failed."""

    splits: tuple[SplitErrors, ...]
    peak_memory_mb: int | None
    failure: str | None


def registered_name(model: Model) -> str | None:
    """Return the name of a model in commands; None where another process could not find its class."""
    home = (type(model).__module__, type(model).__name__)
    return next((name for name, found in HOMES.items() if found == home), None)


def in_own_process(
    model: Model,
    matrix: ObservedMatrix,
    plan: SplitPlan,
    show: Callable[[int], None],
    features: Mapping[str, Features] | None = None,
) -> ProcessOutcome:
    """Measure a model on every split in another process; `show` is told how many are done."""
    with temporary_folder(Path(gettempdir())) as folder:
        job = folder / "job"
        packed = pack_matrix(matrix, _MATRIX)
        described = {name: pack_raw_features(each, name) for name, each in (features or {}).items()}
        content = {
            "model": registered_name(model),
            "settings": model.own_settings,
            "plan": asdict(plan),
            "threads": torch.get_num_threads(),
            _MATRIX: packed.content,
            _FEATURES: {name: part.content for name, part in described.items()},
        }
        tensors = {name: each for part in (packed, *described.values()) for name, each in part.tensors.items()}
        write_file(job, kind=_KIND, content=content, tensors=tensors)
        command = [sys.executable, "-m", __name__, str(job)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
            assert process.stdout is not None
            try:
                found = _followed(process.stdout, show)
            except BaseException:
                process.terminate()
                raise
    return _judged(found, process.returncode)


def _environment() -> dict[str, str]:
    """Return the environment of the process, in which deepmf is found where this one found it."""
    home = str(Path(__file__).parents[2])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


def _followed(lines: IO[str], show: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return what each line says; `show` is told of those that hold the errors of a split."""
    waiting: SimpleQueue[str | None] = SimpleQueue()
    Thread(target=_pass_on, args=(lines, waiting), daemon=True).start()
    found: list[dict[str, Any]] = []
    while True:
        try:
            line = waiting.get(timeout=0.1)  # once polars has run, Ctrl-C does not end a long wait
        except Empty:
            continue
        if line is None:
            return found
        found.append(json.loads(line))
        if "areas" in found[-1]:
            show(len(found))


def _pass_on(lines: IO[str], waiting: SimpleQueue[str | None]) -> None:
    for line in lines:
        waiting.put(line)
    waiting.put(None)


def _judged(found: list[dict[str, Any]], code: int) -> ProcessOutcome:
    if code < 0 or (code == 137 and not found):
        return ProcessOutcome((), None, f"its process was ended by signal {abs(code)}, perhaps for want of memory")
    if code > 0 or not found or "peak_memory_mb" not in found[-1]:
        raise RuntimeError(f"the process that compares a model ended with status {code}")
    *splits, end = found
    if end["failure"] is not None:
        return ProcessOutcome((), end["peak_memory_mb"], end["failure"])
    return ProcessOutcome(tuple(map(SplitErrors.from_dict, splits)), end["peak_memory_mb"], None)


def run_job(path: Path, out: IO[str]) -> None:
    """Measure the model of a file on every split of its matrix, and write what comes of it."""
    stored = read_file(path, kind=_KIND)
    content = stored.content
    torch.set_num_threads(content["threads"])
    model = model_class(content["model"])(**content["settings"])
    matrix = unpack_matrix(_MATRIX, content[_MATRIX], stored.tensors)
    features = {
        name: unpack_raw_features(name, part, stored.tensors) for name, part in content.get(_FEATURES, {}).items()
    }
    failure = None
    try:
        for problem in SplitPlan(**content["plan"]).problems(matrix):
            print(json.dumps(measure(model, problem, **features).to_dict()), file=out, flush=True)
    except UserError as error:
        failure = str(error)
    print(json.dumps({"peak_memory_mb": peak_memory_mb(), "failure": failure}), file=out, flush=True)


if __name__ == "__main__":
    # What a library prints goes to standard error, so that standard output holds the results alone.
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        run_job(Path(sys.argv[1]), results)
    except KeyboardInterrupt:
        sys.exit(130)
