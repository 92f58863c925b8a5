"""Batching: jobs that wait are answered together, each with its own answer or error."""

import threading
from collections.abc import Sequence

import pytest

from deepmf.serve.batching import MOST_TOGETHER, MOST_WAITING, Batcher
from deepmf.serve.refusals import Refusal


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
