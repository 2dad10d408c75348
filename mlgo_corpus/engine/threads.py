"""Call a function with many items in threads, where the work is another program's and a thread only waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NoReturn, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

INTERRUPTIBLE_S: Final = 0.1
"""The longest wait of a main thread, in seconds.

A signal that arrives just before Python begins to wait does not end that wait: Ctrl-C would be noticed only when what
is waited for is there.
"""


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, stop: threading.Event
) -> Generator[tuple[int, Result], None, None]:
    """Yield each item's index with the function's result, in order of completion, computed by up to ``jobs`` threads.

    However the iteration ends early (closed, Ctrl-C, an exception of the function's), ``stop`` is set, which tells
    running calls to end, no further one is begun, and none runs any more when this returns.

    Raises:
        Exception: the exception that ``work`` raised.
    """
    ended: SimpleQueue[tuple[int, Callable[[], Result]]] = SimpleQueue()
    over = threading.Event()

    def call(index: int) -> None:
        if over.is_set():
            return
        try:
            result = work(items[index])
        except BaseException as error:
            ended.put((index, partial(_raise, error)))
            over.set()  # this thread is about to take the next item
        else:
            ended.put((index, lambda: result))

    with ThreadPoolExecutor(max(1, jobs), thread_name_prefix="wait") as pool:
        try:
            for index in range(len(items)):
                pool.submit(call, index)
            for _ in items:
                index, result = _next(ended)
                yield index, result()
        except BaseException:
            over.set()  # before the calls that this ends
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _raise(error: BaseException) -> NoReturn:
    raise error


def results_in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, stop: threading.Event
) -> list[Result]:
    """Return the function's results in the order of the items; see `in_threads`.

    Raises:
        Exception: the exception that ``work`` raised.
    """
    found = dict(in_threads(work, items, jobs=jobs, stop=stop))
    return [found[index] for index in range(len(items))]


def _next(ended: SimpleQueue[Item]) -> Item:
    while True:
        with suppress(Empty):
            return ended.get(timeout=INTERRUPTIBLE_S)


class LinkedEvent(threading.Event):
    """An event that also counts as set when another one is."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Return True if this one or the other one is set."""
        return super().is_set() or self._other.is_set()


def result_of(future: Future[Result]) -> Result:
    """Return a call's result, when it has ended; Ctrl-C ends the wait.

    Raises:
        Exception: the exception that the call raised.
    """
    while not wait((future,), INTERRUPTIBLE_S).done:
        pass
    return future.result()
