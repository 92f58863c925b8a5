"""The follower: an answer is read after the question, and a source that fails or hangs keeps
nobody."""

import threading
import time
from collections.abc import Callable
from itertools import count

from tests.waiting import PATIENCE, wait_until

from deepmf.serve.follower import Follower


def test_what_is_returned_was_read_after_the_question() -> None:
    reads_began, may_end = threading.Semaphore(0), threading.Semaphore(0)
    numbers = count(1)

    def read(_: Callable[[], None]) -> int:
        number = next(numbers)
        reads_began.release()
        assert may_end.acquire(timeout=PATIENCE)
        return number

    follower = Follower(read, report=lambda _: None, patience=PATIENCE, longest=PATIENCE)
    found: list[int | None] = []
    threads = [threading.Thread(target=lambda: found.append(follower.wait())) for _ in range(2)]
    threads[0].start()
    assert reads_began.acquire(timeout=PATIENCE)
    threads[1].start()  # the first reading has begun: it may miss what this one must see
    may_end.release()
    threads[0].join(PATIENCE)
    may_end.release()
    threads[1].join(PATIENCE)
    assert found == [1, 2]
    follower.close()


def test_a_source_that_fails_keeps_nobody_and_is_asked_again() -> None:
    failures, reports = [OSError("first"), OSError("second")], list[Exception]()

    def read(_: Callable[[], None]) -> str:
        if failures:
            raise failures.pop(0)
        return "state"

    follower = Follower(
        read, report=reports.append, patience=PATIENCE, longest=PATIENCE, pause=0.01
    )
    assert follower.wait() is None
    wait_until(lambda: follower.wait() == "state")
    assert [str(error) for error in reports] == ["first", "second"]
    follower.close()


def test_a_source_that_hangs_keeps_only_the_first() -> None:
    may_go_on = threading.Event()
    follower = Follower(
        lambda _: may_go_on.wait(), report=lambda _: None, patience=0.1, longest=PATIENCE
    )
    assert [follower.wait() for _ in range(1000)] == [None] * 1000
    may_go_on.set()
    wait_until(follower.wait)
    follower.close()


def ask_a_slow_learner() -> str | None:
    """Ask a source that answers at once and learns for ten times the patience."""

    def read(report_answer: Callable[[], None]) -> str:
        report_answer()
        time.sleep(0.5)
        return "state"

    follower = Follower(read, report=lambda _: None, patience=0.05, longest=PATIENCE)
    state = follower.wait()
    follower.close()
    return state


def test_an_answer_that_takes_long_to_learn_is_waited_for() -> None:
    wait_until(ask_a_slow_learner)  # on a busy machine, the source may answer late
