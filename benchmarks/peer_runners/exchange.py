"""What a runner shares with the driver: it reads a task, fits, answers every question, and writes
what it measured.

A runner runs in its peer's environment, so this file needs numpy and scipy alone. A task has no
test values in it: the driver keeps those, and scores the answers.
"""

import json
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Settings = dict[str, Any]


class Cannot(Exception):
    """What a peer cannot answer, and why."""


class Entries(NamedTuple):
    """Rows, columns and values of some entries, by position."""

    rows: Positions
    columns: Positions
    values: Floats

    def take(self, which: npt.NDArray[np.bool_]) -> "Entries":
        """Return some of the entries."""
        return Entries(self.rows[which], self.columns[which], self.values[which])

    def sparse(self, shape: tuple[int, int]) -> scipy.sparse.coo_matrix:
        """Return the entries as a sparse matrix."""
        return scipy.sparse.coo_matrix((self.values, (self.rows, self.columns)), shape=shape)


@dataclass(frozen=True)
class Question:
    """Pairs to predict, after entries that describe rows and columns without training entries have
    become known."""

    name: str
    extension: Entries
    rows: Positions
    columns: Positions


@dataclass(frozen=True)
class Task:
    """What a peer is given: entries to learn from, those to choose by, features where there are
    any, and questions.

    Positions count over all rows and columns, those that come later included. `levels` is empty for
    real values. Features are 0 or 1, a line for each row (column); the sizes of their groups say
    which belong together.
    """

    shape: tuple[int, int]
    levels: Floats
    train: Entries
    validation: Entries
    questions: list[Question]
    row_features: scipy.sparse.csr_matrix | None
    column_features: scipy.sparse.csr_matrix | None
    row_groups: list[int]
    column_groups: list[int]
    raw: dict[str, npt.NDArray[Any]]

    @property
    def known(self) -> Entries:
        """Training and validation entries together, for a peer that chooses nothing by the
        latter."""
        return join(self.train, self.validation)


class Answer(NamedTuple):
    """Predictions (pairs,), NaN where the peer has none; and the probability of each level (pairs,
    levels), if any."""

    values: Floats
    distribution: Floats | None = None


Fit = Callable[[Task, Settings], Any]
Reply = Callable[[Any, Task, Question], Answer]


def join(*parts: Entries) -> Entries:
    """Return the entries of several parts."""
    return Entries(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def read_task(path: Path) -> Task:
    """Return the task of a file."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    names = [str(name) for name in arrays["questions"]]
    return Task(
        shape=(int(arrays["shape"][0]), int(arrays["shape"][1])),
        levels=arrays["levels"],
        train=_entries(arrays, "train"),
        validation=_entries(arrays, "validation"),
        questions=[
            Question(
                name,
                _entries(arrays, f"question{at}"),
                arrays[f"question{at}_rows"],
                arrays[f"question{at}_columns"],
            )
            for at, name in enumerate(names)
        ],
        row_features=_features(arrays, "row", int(arrays["shape"][0])),
        column_features=_features(arrays, "column", int(arrays["shape"][1])),
        row_groups=arrays.get("row_groups", np.empty(0)).astype(int).tolist(),
        column_groups=arrays.get("column_groups", np.empty(0)).astype(int).tolist(),
        raw={name: array for name, array in arrays.items() if name.startswith("raw_")},
    )


def _entries(arrays: dict[str, npt.NDArray[Any]], name: str) -> Entries:
    return Entries(
        arrays[f"{name}_entry_rows"],
        arrays[f"{name}_entry_columns"],
        arrays[f"{name}_entry_values"],
    )


def _features(
    arrays: dict[str, npt.NDArray[Any]], axis: str, count: int
) -> scipy.sparse.csr_matrix | None:
    if f"{axis}_groups" not in arrays:
        return None
    places = arrays[f"{axis}_feature_lines"], arrays[f"{axis}_feature_columns"]
    shape = count, int(arrays[f"{axis}_groups"].sum())
    return scipy.sparse.csr_matrix((np.ones(places[0].size), places), shape=shape)


def main(
    fit: Fit,
    reply: Reply,
    *,
    packages: Sequence[str],
    prepare: Callable[[Settings], object] = lambda settings: None,
) -> None:
    """Run a task: `runner.py TASK OUT SETTINGS`; writes OUT.npz with the answers and OUT.json with
    what they took.

    `prepare` imports what the settings ask for: the time of imports does not count.
    """
    task, out, settings = read_task(Path(sys.argv[1])), Path(sys.argv[2]), json.loads(sys.argv[3])
    prepare(settings)
    start, processor = time.perf_counter(), time.process_time()
    model = fit(task, settings)
    fit_seconds = time.perf_counter() - start
    answers: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    for at, question in enumerate(task.questions):
        start = time.perf_counter()
        try:
            answer = reply(model, task, question)
        except Cannot as reason:
            refused[question.name] = str(reason)
            continue
        seconds[question.name] = round(time.perf_counter() - start, 3)
        if len(seconds) == 1:
            processor = time.process_time() - processor
        answers[f"values{at}"] = np.asarray(answer.values, dtype=np.float64)
        if answer.distribution is not None:
            answers[f"distribution{at}"] = np.asarray(answer.distribution, dtype=np.float32)
    report = {
        "fit_seconds": round(fit_seconds, 3),
        "question_seconds": seconds,
        # of all threads, for the fit and the first question
        "processor_seconds": round(processor, 3),
        "refused": refused,
        "peak_memory_mb": measure_peak_memory_mb(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in packages},
        "noted": getattr(model, "noted", {}),
    }
    with out.with_suffix(".npz").open("wb") as file:
        np.savez(file, **answers)
    out.with_suffix(".json").write_text(json.dumps(report))


def measure_peak_memory_mb() -> int:
    """Return the most memory that this process has held, in MiB.

    What `getrusage` says on Linux counts what the driver held when it started this process; `/proc`
    does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) >> 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (
        20 if sys.platform == "darwin" else 10
    )
