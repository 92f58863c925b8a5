"""Running trials: one after another or several at once, each kept as it ends."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch

from deepmf.errors import BadSetting, UserError
from deepmf.experiments.results import Results
from deepmf.experiments.trial import Record, Trial

Work = Callable[[Trial], list[Record]]


@dataclass(frozen=True)
class Progress:
    """How far a run is: the trial that has just ended, how many have and how many will, and seconds to go."""

    records: list[Record]
    n_done: int
    n_trials: int
    seconds_left: float


def run(work: Work, trials: Sequence[Trial], results: Results, *, jobs: int = 1) -> Iterator[Progress]:
    """Run the trials that are not in the results yet, keep each as it ends, and yield how far it is.

    One that fails does not stop the others; what went wrong first is raised at the end.
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise BadSetting(f"jobs must be a whole number of at least 1; got {jobs!r}")
    missing = results.missing(trials)
    results.check_writable(missing)
    start = time.perf_counter()
    failed: list[Failure] = []
    for number, outcome in enumerate(_finished(_Guarded(work), missing, min(jobs, len(missing))), start=1):
        if isinstance(outcome, Failure):
            failed.append(outcome)
            continue
        results.add(outcome)
        seconds_left = (time.perf_counter() - start) / number * (len(missing) - number)
        yield Progress(outcome, len(trials) - len(missing) + number, len(trials), seconds_left)
    if failed:
        first = failed[0]
        raise type(first.error)(f"{len(failed)} of {len(missing)} fits failed, first {first.name}: {first.error}")


@dataclass(frozen=True)
class Failure:
    """A trial that failed because of its settings or data."""

    name: str
    error: UserError


@dataclass(frozen=True)
class _Guarded:
    """Work that returns its failure instead of raising it."""

    work: Work

    def __call__(self, trial: Trial) -> list[Record] | Failure:
        try:
            return self.work(trial)
        except UserError as error:
            return Failure(f"{trial.recipe.name}, split {trial.seed}", error)


def _finished(work: _Guarded, trials: Sequence[Trial], jobs: int) -> Iterator[list[Record] | Failure]:
    if jobs <= 1:
        yield from map(work, trials)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    # A fresh process for each trial: its peak memory is its own, and a GPU's memory is given back.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, _set_threads, (threads,), max_tasks_per_child=1) as pool:
        try:
            yield from (done.result() for done in as_completed([pool.submit(work, trial) for trial in trials]))
        except BrokenProcessPool as error:
            raise BadSetting(f"a fit was killed, perhaps out of memory; fewer --jobs than {jobs} need less") from error
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():  # Ctrl-C reaches them too, but other signals do not
                child.terminate()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _set_threads(count: int) -> None:
    torch.set_num_threads(count)
