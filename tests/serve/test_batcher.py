"""Batching: jobs that wait are answered together, each with its own answer or error."""

import asyncio
import threading
from collections.abc import Iterable, Sequence

import pytest

from deepmf.serve.batcher import MAX_WAITING, Batcher
from deepmf.serve.schemas import ApiError


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    seconds_ahead = 0.0

    def time(self) -> float:
        """Return the seconds of its clock."""
        return super().time() + self.seconds_ahead


class Slow:
    """Negates jobs, but only once it may; odd jobs above 100 fail."""

    def __init__(self) -> None:
        self.is_busy, self.may = threading.Event(), threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, jobs: Sequence[int]) -> list[int | Exception]:
        self.is_busy.set()
        self.may.wait()
        self.batches.append(list(jobs))
        return [ValueError(job) if job > 100 and job % 2 else -job for job in jobs]


def run_all(
    batcher: Batcher[int, int], slow: Slow, jobs: Iterable[int]
) -> list[int | BaseException]:
    """Run a job 0 that occupies the thread, then jobs that wait for it; return the results of the
    latter."""

    async def run() -> list[int | BaseException]:
        first = asyncio.ensure_future(batcher.run(0))
        await asyncio.to_thread(slow.is_busy.wait)
        waiting = [asyncio.ensure_future(batcher.run(job)) for job in jobs]
        await asyncio.sleep(0)  # all are queued
        slow.may.set()
        assert await first == 0
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(run())


def test_waiting_jobs_run_together_and_have_their_own_results() -> None:
    slow = Slow()
    batcher = Batcher(slow, name="test", timeout=30)
    jobs = range(1, 64 + 2)
    *results, failed = run_all(batcher, slow, [*jobs, 101])
    assert results == [-job for job in jobs]
    assert isinstance(failed, ValueError)
    assert list(map(len, slow.batches)) == [1, 64, 2]
    batcher.close()


def test_too_many_jobs_are_refused_and_waiting_jobs_run_at_the_end() -> None:
    slow = Slow()
    batcher = Batcher(slow, name="test", timeout=30)
    *results, refused = run_all(batcher, slow, [1] * (MAX_WAITING + 1))
    assert isinstance(refused, ApiError) and (refused.status, refused.code) == (503, "busy")
    assert results == [-1] * MAX_WAITING
    batcher.close()
    with pytest.raises(ApiError, match="stopping"):
        asyncio.run(batcher.run(1))


def test_a_batch_has_a_largest_size() -> None:
    slow = Slow()
    batcher = Batcher(slow, name="test", timeout=30, max_batch=2)
    assert run_all(batcher, slow, (4, 6, 5, 50, 1)) == [-4, -6, -5, -50, -1]
    assert slow.batches == [[0], [4, 6], [5, 50], [1]]
    batcher.close()


def test_a_late_job_is_given_up_unless_it_has_started() -> None:
    slow, clock = Slow(), Clock()
    batcher = Batcher(slow, name="test", timeout=3600, late="it may still be written")

    async def ask() -> list[int | BaseException]:
        first = asyncio.ensure_future(batcher.run(1))
        await asyncio.to_thread(slow.is_busy.wait)
        second = asyncio.ensure_future(batcher.run(2))
        await asyncio.sleep(0)  # it is queued
        clock.seconds_ahead = 3601
        return await asyncio.gather(first, second, return_exceptions=True)

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        started, waiting = runner.run(ask())
    slow.may.set()
    batcher.close()
    assert isinstance(started, ApiError)
    assert (started.status, started.code, str(started)) == (
        503,
        "unfinished",
        "it may still be written",
    )
    assert isinstance(waiting, ApiError)
    assert (waiting.status, waiting.code) == (503, "too_slow")
    assert slow.batches == [[1]]
