"""Batching: jobs that wait are answered together, each with its own answer or error."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from deepmf.serve.errors import Refusal
from deepmf.serve.writer import MOST_TOGETHER, MOST_WAITING, Batcher


class Slow:
    """Answers n by -n, but not before it may; odd ones above 100 fail."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, jobs: Sequence[int]) -> list[int | Exception]:
        self.may.wait()
        self.batches.append(list(jobs))
        return [ValueError(job) if job > 100 and job % 2 else -job for job in jobs]


def test_what_waits_is_answered_together_and_apart() -> None:
    slow = Slow()
    batcher = Batcher(slow, name="test")
    first = batcher.submit(0)
    while batcher._waiting.qsize():
        pass
    futures = [batcher.submit(number) for number in range(1, MOST_TOGETHER + 2)]
    failing = batcher.submit(101)
    slow.may.set()
    assert first.result() == 0
    assert [future.result() for future in futures] == [-number for number in range(1, MOST_TOGETHER + 2)]
    with pytest.raises(ValueError, match="101"):
        failing.result()
    assert list(map(len, slow.batches)) == [1, MOST_TOGETHER, 2]
    batcher.close()


def test_too_many_are_refused_and_those_that_wait_are_answered_at_the_end() -> None:
    slow = Slow()
    batcher = Batcher(slow, name="test")
    futures = [batcher.submit(1)]
    while batcher._waiting.qsize():
        pass
    futures += [batcher.submit(1) for _ in range(MOST_WAITING)]
    with pytest.raises(Refusal, match="too busy") as refused:
        batcher.submit(1)
    assert refused.value.status == 503
    slow.may.set()
    batcher.close()
    assert all(future.result() == -1 for future in futures)
    with pytest.raises(Refusal, match="stopping"):
        batcher.submit(1)


def test_a_batch_is_bounded_by_what_its_jobs_cost() -> None:
    slow = Slow()
    batcher = Batcher(slow, name="test", cost=lambda job: job, most=10)
    first = batcher.submit(0)
    while batcher._waiting.qsize():
        pass
    futures = [batcher.submit(number) for number in (4, 6, 5, 50, 1, 2)]
    slow.may.set()
    assert [future.result() for future in (first, *futures)] == [0, -4, -6, -5, -50, -1, -2]
    assert slow.batches == [[0], [4, 6], [5], [50], [1, 2]]
    batcher.close()


def test_a_job_that_is_late_is_given_up_or_may_still_be_done() -> None:
    slow = Slow()
    batcher = Batcher(slow, name="test", late="it may still be written")

    async def ask() -> list[int | BaseException]:
        first = asyncio.ensure_future(batcher.answer(1, timeout=0.3))
        await asyncio.sleep(0.1)
        return await asyncio.gather(first, batcher.answer(2, timeout=0.1), return_exceptions=True)

    begun, waiting = asyncio.run(ask())
    slow.may.set()
    batcher.close()
    assert isinstance(begun, Refusal)
    assert (begun.status, begun.code, str(begun)) == (503, "unfinished", "it may still be written")
    assert isinstance(waiting, Refusal)
    assert (waiting.status, waiting.code) == (503, "too_slow")
    assert "nothing was done" in str(waiting)
    assert slow.batches == [[1]]
