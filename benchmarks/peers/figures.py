"""The figures of a comparison: means and spreads over seeds of what was recorded, by task, peer and
group."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from peers.declared import PEERS
from peers.records import Record


class Clock(Enum):
    """What seconds are counted by; the value is their name in a record."""

    PROCESSOR = "processor_seconds"  # of all threads: the same on a busy machine
    WALL = "seconds"

    @property
    def title(self) -> str:
        """The head of a column."""
        return self.value.replace("_", " ")


@dataclass(frozen=True)
class Line:
    """All runs of one peer on one task, the first seed first."""

    peer: str
    title: str
    family: str
    runs: tuple[Record, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds it was run on."""
        return [int(record["seed"]) for record in self.runs]

    def mean(self, group: str, metric: str) -> float | None:
        """Return the mean of a score over all seeds, None where one has none."""
        each = [record["scores"].get(group, {}).get(metric) for record in self.runs]
        return None if not each or None in each else float(statistics.mean(each))

    def spread(self, group: str, metric: str) -> float | None:
        """Return the standard deviation of a score over seeds, where there are two and more."""
        if len(self.runs) < 2 or self.mean(group, metric) is None:
            return None
        return float(statistics.stdev(record["scores"][group][metric] for record in self.runs))

    def cost(self, name: str) -> float:
        """Return the median of seconds or memory over seeds."""
        return float(statistics.median(record[name] for record in self.runs))

    @property
    def is_ours(self) -> bool:
        """Whether it is deepmf's."""
        return self.family.startswith("deepmf")


def lines_of(records: Iterable[Record], task: str) -> list[Line]:
    """Return the lines of a task, in the order in which peers are declared."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record["task"] == task and not record["failure"]:
            found.setdefault(record["peer"], []).append(record)
    order = {peer.name: at for at, peer in enumerate(PEERS)}
    named = sorted(found, key=lambda name: order.get(name, len(order)))
    return [
        _line(name, sorted(found[name], key=lambda record: int(record["seed"]))) for name in named
    ]


def on_first(lines: Sequence[Line]) -> list[Line]:
    """Return the lines on the first split alone, which nearly all were run on: errors of different
    splits differ."""
    first = min((min(line.seeds) for line in lines), default=0)
    own = [
        replace(line, runs=tuple(run for run in line.runs if run["seed"] == first))
        for line in lines
    ]
    return [line for line in own if line.runs]


def on_most(lines: Sequence[Line]) -> list[Line]:
    """Return those lines that were run on the most splits; none where that is one, or where there
    is one such line."""
    most = max((line.seeds for line in lines), key=len, default=[])
    found = [line for line in lines if line.seeds == most]
    return found if len(most) > 1 and len(found) > 1 else []


def _line(name: str, runs: list[Record]) -> Line:
    declared = next((peer for peer in PEERS if peer.name == name), None)
    title, family = (
        (runs[-1]["title"], runs[-1]["family"])
        if declared is None
        else (declared.title, declared.family)
    )
    return Line(name, title, family, tuple(runs))


def failures(records: Iterable[Record]) -> list[tuple[str, str, str]]:
    """Return the title, the task and the reason of every run that failed, each reason once for a
    peer and a task."""
    found = {
        (record["title"], record["task"], record["failure"])
        for record in records
        if record["failure"]
    }
    return sorted(found)


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return lines as plain values: every score's mean and spread, and the costs."""
    written = []
    for line in lines:
        groups: dict[str, Any] = {}
        for group, scores in line.runs[0]["scores"].items():
            groups[group] = {
                metric: {"mean": line.mean(group, metric), "spread": line.spread(group, metric)}
                for metric in scores
                if metric not in ("n_entries", "n_rows", "filled")
            }
        costs = {
            name: line.cost(name) for name in (*(clock.value for clock in Clock), "peak_memory_mb")
        }
        written.append(
            {"peer": line.peer, "title": line.title, "seeds": line.seeds, "scores": groups} | costs
        )
    return written
