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
    """

    def __init__(self, answer: Callable[[Sequence[Job]], Sequence[Answer | Exception]], *, name: str) -> None:
        self._answer = answer
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
        """Return the answer to a job; one that takes too long is given up."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.submit(job)), timeout)
        except TimeoutError as error:
            raise Refusal(503, "too_slow", "this took too long; ask for less", retry_after=1) from error

    def close(self) -> None:
        """Answer what waits, then stop."""
        self._closed.set()
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            taken = [self._waiting.get()]
            while len(taken) < MOST_TOGETHER:
                try:
                    taken.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            stopping = None in taken
            jobs = [one for one in taken if one is not None and one[1].set_running_or_notify_cancel()]
            if jobs:
                self._answer_together(jobs)

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
