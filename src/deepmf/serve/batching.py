"""Batching: requests that arrive while others are answered wait together, and are answered together."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from deepmf.serve.refusals import Refusal

Job = TypeVar("Job")
Answer = TypeVar("Answer")

MOST_TOGETHER = 64
MOST_WAITING = 1_000


class Batcher(Generic[Job, Answer]):
    """One thread that answers jobs: all that wait when it is free, in one call.

    Nothing waits for others to come: a job that finds the thread free is answered alone, at once.

    cost, most: jobs are answered together as long as their costs add up to no more than this.
    late: what is said of a job that was begun and takes too long.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Job]], Sequence[Answer | Exception]],
        *,
        name: str,
        cost: Callable[[Job], int] = lambda _: 0,
        most: int = 0,
        late: str = "this took too long; ask for less",
    ) -> None:
        self._answer = answer
        self._cost, self._most, self._late = cost, most, late
        self._waiting: queue.Queue[tuple[Job, Future[Answer]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = threading.Event()
        self._thread.start()

    def submit(self, job: Job) -> Future[Answer]:
        """Queue a job; where too many wait already, or the service is stopping, it is refused."""
        if self._closed.is_set():
            raise Refusal(503, "stopping", "the service is stopping", retry_after=1)
        if self._waiting.qsize() >= MOST_WAITING:
            raise Refusal(503, "busy", "the service is too busy; try again in a second", retry_after=1)
        future: Future[Answer] = Future()
        self._waiting.put((job, future))
        return future

    async def answer(self, job: Job, *, timeout: float) -> Answer:
        """Return the answer to a job; one that takes too long is given up, unless it was begun."""
        future = self.submit(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except TimeoutError as error:
            if future.cancel():
                reason = "this waited too long for others, and nothing was done; try again"
                raise Refusal(503, "too_slow", reason, retry_after=1) from error
            raise Refusal(503, "unfinished", self._late, retry_after=1) from error

    def close(self) -> None:
        """Answer what waits, then stop."""
        self._closed.set()
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            taken = self._take()
            stopping = None in taken
            jobs = [one for one in taken if one is not None and one[1].set_running_or_notify_cancel()]
            if jobs:
                self._answer_together(jobs)

    def _take(self) -> list[tuple[Job, Future[Answer]] | None]:
        """Wait for a job; return it, and those behind it that may go along."""
        taken = [self._waiting.get()]
        left = self._most - self._cost_of(taken[0])
        while len(taken) < MOST_TOGETHER and self._waiting.queue:
            left -= self._cost_of(self._waiting.queue[0])  # nobody else takes any
            if left < 0:
                break
            taken.append(self._waiting.get())
        return taken

    def _cost_of(self, one: tuple[Job, Future[Answer]] | None) -> int:
        return 0 if one is None else self._cost(one[0])

    def _answer_together(self, jobs: list[tuple[Job, Future[Answer]]]) -> None:
        try:
            answers = self._answer([job for job, _ in jobs])
        except Exception as error:  # noqa: BLE001 (the thread must live on; whoever waits gets the error)
            answers = [error] * len(jobs)
        for (_, future), result in zip(jobs, answers, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
