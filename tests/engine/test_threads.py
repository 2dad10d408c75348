"""Tests of mlgo_corpus.engine.threads, and of waits that a signal has to end."""

import queue
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.engine.threads import in_threads, result_of, results_in_threads


@contextmanager
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    """Send Ctrl-C so that no system call of the main thread ends by it, as if it had come just before that call."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def test_results_come_with_their_indexes_as_they_end() -> None:
    first_may_end = threading.Event()

    def work(item: str) -> str:
        if item == "a":
            first_may_end.wait()
        return item * 2

    stop = threading.Event()
    found = in_threads(work, "abc", jobs=2, stop=stop)
    assert [next(found), next(found)] == [(1, "bb"), (2, "cc")]
    first_may_end.set()
    assert list(found) == [(0, "aa")]
    assert not stop.is_set()
    assert list(in_threads(work, "", jobs=0, stop=stop)) == []
    assert results_in_threads(work, "abcde", jobs=3, stop=stop) == ["aa", "bb", "cc", "dd", "ee"]


def test_no_error_of_a_call_is_lost() -> None:
    def work(item: int) -> None:
        raise queue.Empty(item)  # what the wait itself looks for

    stop = threading.Event()
    with pytest.raises(queue.Empty, match="0"):
        list(in_threads(work, range(1), jobs=1, stop=stop))
    assert stop.is_set()


def test_an_error_ends_the_others_and_begins_no_more() -> None:
    begun, stop = [], threading.Event()

    def work(item: int) -> bool:
        begun.append(item)
        if item == 1:
            raise ValueError("bad")
        return stop.wait()

    with pytest.raises(ValueError, match="bad"):
        list(in_threads(work, range(9), jobs=2, stop=stop))
    assert sorted(begun)[:2] == [0, 1]
    assert len(begun) == 2


def test_closing_ends_the_calls() -> None:
    ends, begun, stop = [], threading.Event(), threading.Event()

    def work(item: int) -> int:
        if item == 0:
            begun.wait()
        else:
            begun.set()
            ends.append(stop.wait())
        return item

    with closing(in_threads(work, range(9), jobs=2, stop=stop)) as found:
        assert next(found) == (0, 0)
    assert 1 <= len(ends) <= 2


def test_an_interrupt_that_ends_no_system_call_ends_the_wait() -> None:
    ends, waiting, stop = [], threading.Event(), threading.Event()

    def work(item: int) -> None:
        if item == 1:
            waiting.wait()
            interrupt()
            ends.append(stop.wait(600))

    def wait_for_all() -> None:
        for _ in in_threads(work, range(2), jobs=2, stop=stop):
            waiting.set()

    with interruptible(), pytest.raises(KeyboardInterrupt):
        wait_for_all()
    assert ends == [True]


def test_an_interrupt_that_ends_no_system_call_ends_the_wait_for_one_call() -> None:
    waiting, stop = threading.Event(), threading.Event()

    def work() -> bool:
        waiting.wait()
        interrupt()
        return stop.wait(600)

    def wait_for(future: Future[bool]) -> None:
        waiting.set()
        result_of(future)

    with interruptible(), ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        with pytest.raises(KeyboardInterrupt):
            wait_for(future)
        stop.set()
    assert future.result()


def sleep(started: Path) -> None:
    started.touch()
    time.sleep(600)


def test_an_interrupt_that_ends_no_system_call_ends_a_map(tmp_path: Path) -> None:
    started = tmp_path / "started"

    def send() -> None:
        while not started.exists():
            time.sleep(0.01)
        interrupt()

    sender = threading.Thread(target=send)
    sender.start()
    begin = time.monotonic()
    with interruptible(), pytest.raises(KeyboardInterrupt):
        list(parallel_map(sleep, [started], jobs=1, limit=600))
    sender.join()
    assert time.monotonic() - begin < 300
