"""Metrics: requests, latencies and learned entries, for Prometheus; their totals are on the
operator's page."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

if TYPE_CHECKING:
    from deepmf.serve.snapshot import Snapshot

# Upper limits in seconds, dense where most requests end.
BUCKETS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # set if several workers count together


class ServiceMetrics:
    """The counters of one process; if workers share a folder, totals are over all of them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry, multiprocess_mode="livemin")
        self.requests = counter(
            "deepmf_requests_total", "Requests by route and status.", ["route", "status"]
        )
        self.seconds = Histogram(
            "deepmf_request_seconds",
            "Seconds by route.",
            ["route"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self.learned = counter("deepmf_entries_learned_total", "Entries learned.")
        self.latents = counter("deepmf_latents_recomputed_total", "Latents recomputed.")
        self.histories = counter(
            "deepmf_histories_embedded_total", "Histories embedded that are not stored."
        )
        self._model_version = gauge("deepmf_model_version", "The model version.")
        self._data_version = gauge("deepmf_data_version", "The data version.")

    def set_versions(self, snapshot: Snapshot) -> None:
        """Set the versions to those of a snapshot."""
        self._model_version.set(snapshot.model_version)
        self._data_version.set(snapshot.data_version)

    def to_text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._collect())

    def read_totals(self) -> dict[str, int]:
        """Return the numbers of requests, of those that failed, and of entries learned since the
        start."""
        collected = self._collect()
        samples = [sample for family in collected.collect() for sample in family.samples]
        requests = [sample for sample in samples if sample.name == "deepmf_requests_total"]
        failed = [sample for sample in requests if sample.labels["status"].startswith("5")]
        return {
            "n_requests": int(sum(sample.value for sample in requests)),
            "n_failed": int(sum(sample.value for sample in failed)),
            "n_learned": int(collected.get_sample_value("deepmf_entries_learned_total") or 0),
        }

    def _collect(self) -> CollectorRegistry:
        folder = os.environ.get(SHARED_FOLDER)
        if not folder:
            return self._registry
        for file in Path(folder).glob("gauge_live*_*.db"):
            number = int(file.stem.rpartition("_")[2])
            try:
                os.kill(number, 0)
            except ProcessLookupError:  # the worker is dead
                mark_process_dead(number, folder)  # type: ignore[no-untyped-call]
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together
