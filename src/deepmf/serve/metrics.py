"""What the service counts and times, for Prometheus and for the operator's page."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from deepmf.errors import BadSetting
from deepmf.serve.snapshot import Snapshot

LEVELS = ("info", "warning", "error")


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON: time, level, what happened, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; of an exception, only its kind: what it says may hold ids."""
        content = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            content["error"] = record.exc_info[0].__name__
        return json.dumps(content)


def configure_log(level: str) -> None:
    """Let the service and its server write to standard error, from a level on."""
    if level not in LEVELS:
        raise BadSetting(f"--log-level must be {', '.join(LEVELS)}; got {level!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("deepmf.serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())


BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # set where several workers count together


class RouteFigures(NamedTuple):
    """The requests of one route: how many, how many refused or failed, and quantiles of their seconds."""

    route: str
    n_requests: int
    n_refused: int
    n_failed: int
    quantiles: dict[str, float]


class ServiceMetrics:
    """The counters of one process; where several share a folder, what is shown is of all."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "deepmf_requests_total", "Requests by route and status.", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "deepmf_request_seconds", "Seconds by route.", ["route"], buckets=BUCKETS, registry=self._registry
        )
        self._learned = Counter("deepmf_entries_learned_total", "Entries learned.", registry=self._registry)
        self._latents = Counter("deepmf_latents_recomputed_total", "Latents recomputed.", registry=self._registry)
        self._embedded = Counter(
            "deepmf_histories_embedded_total", "Histories embedded that are not stored.", registry=self._registry
        )
        self._model_version = Gauge(
            "deepmf_model_version", "The model version.", registry=self._registry, multiprocess_mode="livemin"
        )
        self._data_version = Gauge(
            "deepmf_data_version", "The data version.", registry=self._registry, multiprocess_mode="livemin"
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def learned(self, n_entries: int, n_latents: int) -> None:
        """Count entries that were learned, and the rows and columns that were computed anew for them."""
        self._learned.inc(n_entries)
        self._latents.inc(n_latents)

    def embedded(self, n_histories: int) -> None:
        """Count histories."""
        self._embedded.inc(n_histories)

    def show(self, snapshot: Snapshot) -> None:
        """Show the versions of a snapshot."""
        self._model_version.set(snapshot.model_version)
        self._data_version.set(snapshot.data_version)

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self._shared())

    def n_learned(self) -> int:
        """Return how many entries were learned since the start."""
        return int(self._shared().get_sample_value("deepmf_entries_learned_total") or 0)

    def routes(self) -> list[RouteFigures]:
        """Return the figures of each route that was asked."""
        counts: dict[str, dict[str, int]] = {}
        buckets: dict[str, dict[float, float]] = {}
        for family in self._shared().collect():
            for sample in family.samples:
                route = sample.labels.get("route", "")
                if sample.name == "deepmf_requests_total":
                    status = sample.labels["status"]
                    counts.setdefault(route, {})[status] = int(sample.value)
                elif sample.name == "deepmf_request_seconds_bucket":
                    buckets.setdefault(route, {})[float(sample.labels["le"])] = sample.value
        return [
            RouteFigures(
                route,
                sum(by_status.values()),
                sum(count for status, count in by_status.items() if status.startswith("4")),
                sum(count for status, count in by_status.items() if status.startswith("5")),
                {
                    name: quantile(buckets.get(route, {}), share)
                    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
                },
            )
            for route, by_status in sorted(counts.items())
        ]

    def _shared(self) -> CollectorRegistry:
        folder = os.environ.get(SHARED_FOLDER)
        if not folder:
            return self._registry
        _drop_dead(Path(folder))
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together


def _drop_dead(folder: Path) -> None:
    """Remove what workers that are no more say of the present; what they counted stays."""
    for file in folder.glob("gauge_live*_*.db"):
        number = file.stem.rpartition("_")[2]
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            mark_process_dead(int(number), str(folder))  # type: ignore[no-untyped-call]


def quantile(buckets: dict[float, float], share: float) -> float:
    """Return a quantile from the cumulative counts of a histogram, linear within a bucket.

    >>> quantile({0.01: 50, 0.02: 100, float("inf"): 100}, 0.75)
    0.015
    """
    edges = sorted(buckets.items())
    total = edges[-1][1] if edges else 0
    low, below = 0.0, 0.0
    for edge, count in edges:
        if total and count >= share * total:
            if edge == float("inf"):
                return low
            return low + (edge - low) * (share * total - below) / (count - below)
        low, below = edge, count
    return 0.0
