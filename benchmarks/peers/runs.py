"""The runs: every peer on every task in a process of its own, scored by the driver, recorded as
each ends."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from deepmf.experiments.source import find_commit
from peers.declared import ENVIRONMENTS, OURS, Environment, Peer
from peers.environments import Installed, ensure_installed, ours, variables
from peers.problem import Problem
from peers.ranking import RankingProblem
from peers.records import Record, Records
from peers.scoring import scores
from peers.tasks import Task

RUNNERS = Path(__file__).parents[1] / "peer_runners"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One peer on one task and seed."""

    peer: Peer
    task: Task
    seed: int

    @property
    def name(self) -> str:
        """What the run is called in messages."""
        return f"{self.peer.name} on {self.task.name}, seed {self.seed}"


@dataclass(frozen=True)
class Bench:
    """Where runs are made: the folder of environments, that of records, and what a run may use."""

    build: Path
    records: Records
    threads: int
    most_seconds: int | None = None
    questions: Sequence[str] | None = None  # those that are asked, by name; all by default
    runners: Path = RUNNERS
    environments: Sequence[Environment] = ENVIRONMENTS

    def environment(self, name: str) -> Installed:
        """Return an environment, made if need be."""
        if name == OURS:
            return ours()
        return ensure_installed(
            next(each for each in self.environments if each.name == name), self.build
        )


def list_wanted(
    peers: Sequence[Peer], tasks: Sequence[Task], seeds: Sequence[int] | None
) -> Iterator[Run]:
    """Yield the runs of some peers on the tasks they are for, task by task, so that a problem is
    made once."""
    for task in tasks:
        for seed in task.seeds if seeds is None else [seed for seed in task.seeds if seed in seeds]:
            yield from (
                Run(peer, task, seed) for peer in peers if set(peer.tasks) & set(task.kinds)
            )


def run_all(runs: Sequence[Run], bench: Bench, say: Say, *, again: bool = False) -> None:
    """Make every run that is not recorded yet, and record each as it ends."""
    missing = [
        each
        for each in runs
        if again or not bench.records.is_finished(each.peer, each.task.name, each.seed)
    ]
    say(f"{len(runs) - len(missing)} of {len(runs)} runs are recorded; {len(missing)} to make")
    made: tuple[tuple[str, int], Problem | RankingProblem] | None = None
    for each in missing:
        environment = bench.environment(each.peer.environment)
        if environment.python is None:
            bench.records.add(
                _common(each, bench) | {"failure": f"not installed: {environment.failure}"}
            )
            say(f"{each.name}: not installed: {environment.failure}")
            continue
        key = each.task.name, each.seed
        if made is None or made[0] != key:
            made = key, each.task.problem(each.seed).keep_questions(bench.questions)
        record = run_one(each, made[1], environment.python, bench)
        bench.records.add(record)
        say(f"{each.name}: {describe_run(record)}")


def describe_run(record: Record) -> str:
    """Return what came of a run in one line."""
    if record["failure"]:
        return str(record["failure"])
    metric = "ndcg" if any("ndcg" in found for found in record["scores"].values()) else "rmse"
    errors = ", ".join(f"{group} {found[metric]:.4f}" for group, found in record["scores"].items())
    return f"{record['seconds']:.1f} s, {record['peak_memory_mb']} MiB, {metric.upper()} {errors}"


def run_one(run: Run, problem: Problem | RankingProblem, python: Path, bench: Bench) -> Record:
    """Run a peer in a process of its own, and return its scores or why there are none."""
    record = _common(run, bench)
    limit = run.peer.seconds if bench.most_seconds is None else bench.most_seconds
    with TemporaryDirectory() as folder:
        task, out = Path(folder) / "task.npz", Path(folder) / "out"
        problem.write(task)
        settings = run.peer.settings | ({run.peer.seeded: run.seed} if run.peer.seeded else {})
        command = [
            str(python),
            str(bench.runners / f"{run.peer.runner}.py"),
            str(task),
            str(out),
            json.dumps(settings),
        ]
        start = time.perf_counter()
        failure = _run_command(
            command, variables(run.peer.environment, threads=bench.threads), limit
        )
        record["wall_seconds"] = round(time.perf_counter() - start, 2)
        if failure:
            return record | {"failure": failure}
        report: dict[str, Any] = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
        if isinstance(problem, RankingProblem) and report["refused"]:
            return record | {"failure": next(iter(report["refused"].values()))}
        with np.load(out.with_suffix(".npz")) as file:
            answers = {name: file[name] for name in file.files}
            found = (
                problem.score(answers)
                if isinstance(problem, RankingProblem)
                else scores(problem, answers)
            )
    first = next(iter(report["question_seconds"].values()), 0.0)
    seconds = round(report["fit_seconds"] + first, 3)  # of the fit and of the test entries
    return record | report | {"seconds": seconds, "scores": found, "failure": None}


def _run_command(command: list[str], environment: dict[str, str], limit: int) -> str:
    """Run a command to its end or to the limit; return "" or what went wrong. What it starts ends
    with it."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        command, env=environment, start_new_session=True, text=True, **pipes
    ) as process:  # type: ignore[call-overload]
        try:
            _, said = process.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"ended after {limit} s, at a load of {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
            raise
    lines = said.strip().splitlines()
    return (
        ""
        if process.returncode == 0
        else f"status {process.returncode}: {lines[-1][:300] if lines else ''}"
    )


def _common(run: Run, bench: Bench) -> Record:
    """Return what is known of a run before it is made."""
    requirements = next(
        (each.requirements for each in bench.environments if each.name == run.peer.environment), ()
    )
    return {
        "peer": run.peer.name,
        "title": run.peer.title,
        "family": run.peer.family,
        "task": run.task.name,
        "seed": run.seed,
        "settings": run.peer.settings,
        "settings_from": run.peer.source,
        "requirements": list(requirements),
        "commit": find_commit(),
        "hardware": f"{platform.machine()}, {os.cpu_count()} CPU cores",
        "threads": bench.threads,
        "questions": None if bench.questions is None else list(bench.questions),
        "load_before": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
