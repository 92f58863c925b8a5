"""A thread with a queue that runs waiting jobs in batches."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from deepmf.serve.schemas import ApiError

Job = TypeVar("Job")
Result = TypeVar("Result")

MAX_WAITING = 1_000


class Batcher(Generic[Job, Result]):
    """One thread that runs jobs: all that wait when it is free, in one call.

    Jobs do not wait for others to arrive: a job that finds the thread free runs at once, alone.

    Parameters
    ----------
    run_batch : takes jobs and returns a result or an exception for each.
    timeout : seconds that `run` waits for a result.
    max_batch : the largest number of jobs in one call.
    late : the message for a job that has started and takes longer than `timeout`.
    """

    def __init__(
        self,
        run_batch: Callable[[Sequence[Job]], Sequence[Result | Exception]],
        *,
        name: str,
        timeout: float,
        max_batch: int = 64,
        late: str = "this took too long; ask for less",
    ) -> None:
        self._run_batch = run_batch
        self._timeout = timeout
        self._max_batch = max_batch
        self._late = late
        self._waiting: queue.Queue[tuple[Job, Future[Result]] | None] = queue.Queue()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run_batches, name=name, daemon=True)
        self._thread.start()

    async def run(self, job: Job, *, timeout: float | None = None) -> Result:
        """Run a job and return its result; raise `ApiError` if it takes too long or too many jobs
        wait.

        `timeout` replaces that of the batcher for this job.
        """
        if self._is_closed.is_set():
            raise ApiError(503, "stopping", "the service is stopping")
        if self._waiting.qsize() >= MAX_WAITING:
            raise ApiError(503, "busy", "the service is too busy; try again in a second")
        future: Future[Result] = Future()
        self._waiting.put((job, future))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout or self._timeout)
        except TimeoutError as error:
            if future.cancel():
                reason = "this waited too long for other requests, and nothing was done; try again"
                raise ApiError(503, "too_slow", reason) from error
            raise ApiError(503, "unfinished", self._late) from error

    def close(self) -> None:
        """Run the jobs that wait, then stop; a job that hangs is not waited for longer than the
        timeout."""
        self._is_closed.set()
        self._waiting.put(None)
        self._thread.join(self._timeout)

    def _run_batches(self) -> None:
        is_stopping = False
        while not is_stopping:
            batch = [self._waiting.get()]
            # only this thread takes jobs
            while len(batch) < self._max_batch and not self._waiting.empty():
                batch.append(self._waiting.get())
            is_stopping = None in batch
            jobs = [
                item
                for item in batch
                if item is not None and item[1].set_running_or_notify_cancel()
            ]
            if not jobs:
                continue
            try:
                results = self._run_batch([job for job, _ in jobs])
            except Exception as error:  # noqa: BLE001 (the thread must live on; callers get the error)
                results = [error] * len(jobs)
            for (_, future), result in zip(jobs, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
