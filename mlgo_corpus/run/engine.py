"""Map a function over many items in worker processes: results in order, and no item takes the run down.

`parallel_map` hands chunks of items to ``jobs`` workers and yields their results in the items' order. A worker that
dies (a crash in a native library, the kernel's out-of-memory killer) or exceeds its time is replaced. The items it
held are tried again one by one; the item that kills its worker a second time, alone, gives a `Lost` in its place.

At most a few chunks per worker are under way or waiting to be yielded, so that memory does not grow with the number
of items. However the iteration ends (exhausted, closed, Ctrl-C, an exception of the function's), no worker is left.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from mlgo_corpus.run.worker import encode_message, end_with, read_message, serve, write_message
from mlgo_corpus.store.remote import in_use

Item = TypeVar("Item")
Result = TypeVar("Result")

# A chunk amortises one round trip (about 50 microseconds) over its items, and is what one crash makes us repeat.
_CHUNK = 32
_CHUNKS_AHEAD_PER_WORKER = 4
# One item may take as long as so many others, which must not wait for it.
_LONG_CHUNKS_AHEAD_PER_WORKER = 1000
# A worker has its next chunk at hand while we take its answer. That chunk must fit into the pipe (64 KiB): a worker
# that waits for us to read its answer, while we wait for it to read its next chunk, would wait for ever.
_CHUNKS_AT_HAND = 2
_AT_HAND_BYTES = 16 << 10
_TRIES_ALONE = 2


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the result of an item whose worker died, or ran out of time, while it worked on it alone."""

    timed_out: bool
    detail: str


def available_cpus() -> int:
    """The CPUs this process may use: the default of ``--jobs``."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    jobs: int,
    limit: float,
    weigh: Callable[[Item], float] = lambda _: 0.0,
    long_items: bool = False,
) -> Iterator[Result | Lost]:
    """Yield ``function(item)`` for each item, in order, computed by up to ``jobs`` worker processes.

    Args:
        function: picklable by name (or a partial of such); what it returns is pickled back.
        items: consumed as the work goes on, a few chunks ahead of what was yielded.
        jobs: the number of workers, at least 1.
        limit: seconds that one item may take.
        weigh: an item's share of a chunk (a chunk ends where the shares reach 1); by default only the count matters.
        long_items: whether items take long and their results are small: then none waits behind another at a worker,
            and many more are done before the first of them is yielded.

    Raises:
        Exception: what ``function`` raised; the remaining items are abandoned.
    """
    pool: _Pool[Any] = _Pool(function, jobs, limit)
    if long_items:
        pool.at_hand, pool.ahead = 1, _LONG_CHUNKS_AHEAD_PER_WORKER
    try:
        yield from pool.run(_chunks(items, weigh))
    finally:
        pool.close()


def resumed_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    known: Sequence[Result | None],
    *,
    jobs: int,
    limit: float,
    lost: Callable[[Item, Lost], Result],
) -> Iterator[Result]:
    """Yield a result for each item, in order: the one that is known already, else ``function(item)``, computed.

    For items that take long and whose results are small: runs of a compiler, each of one module.

    Args:
        function: as for `parallel_map`, and ``jobs`` and ``limit`` too.
        items: all of them.
        known: the result that each has from an earlier run, or None.
        jobs: the number of workers, at least 1.
        limit: seconds that one item may take.
        lost: makes a result of an item whose worker died.

    Raises:
        Exception: what ``function`` raised; the remaining items are abandoned.
    """
    missing = [item for item, result in zip(items, known, strict=True) if result is None]
    made = parallel_map(function, missing, jobs=jobs, limit=limit, weigh=lambda _: 1.0, long_items=True)
    for item, there in zip(items, known, strict=True):
        result = next(made) if there is None else there
        yield lost(item, result) if isinstance(result, Lost) else result
    for _ in made:
        raise AssertionError("as many results as items")


def _chunks(items: Iterable[Item], weigh: Callable[[Item], float]) -> Iterator[list[Item]]:
    chunk: list[Item] = []
    weight = 0.0
    for item in items:
        chunk.append(item)
        weight += weigh(item)
        if len(chunk) == _CHUNK or weight >= 1:
            yield chunk
            chunk, weight = [], 0.0
    if chunk:
        yield chunk


@dataclass(slots=True)
class _Task(Generic[Item]):
    """A chunk under way: its place in the order, and the results of those of its items that were tried alone."""

    number: int
    items: list[Item]
    first: int = 0
    tries: int = 0


@dataclass(slots=True)
class _Slot:
    """The results of one chunk, until all before it were yielded."""

    results: list[Any]
    missing: int


class _Pool(Generic[Item]):
    def __init__(self, function: Callable[[Item], Any], jobs: int, limit: float) -> None:
        self._function = function
        self._jobs = jobs
        self._limit = limit
        self.at_hand = _CHUNKS_AT_HAND
        self.ahead = _CHUNKS_AHEAD_PER_WORKER
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._retries: deque[_Task[Item]] = deque()

    def run(self, chunks: Iterator[list[Item]]) -> Iterator[Any]:
        slots: dict[int, _Slot] = {}
        numbers = count()
        next_out = 0

        def next_task() -> _Task[Item] | None:
            if self._retries:
                return self._retries.popleft()
            if len(slots) >= self._jobs * self.ahead:
                return None
            chunk = next(chunks, None)
            if chunk is None:
                return None
            task = _Task(next(numbers), chunk)
            slots[task.number] = _Slot([None] * len(chunk), len(chunk))
            return task

        while True:
            while self._has_room() and (task := next_task()) is not None and self._give(task):
                pass
            if not any(worker.tasks for worker in self._workers):
                return
            for done, results in self._wait():
                slot = slots[done.number]
                slot.results[done.first : done.first + len(results)] = results
                slot.missing -= len(results)
            while next_out in slots and slots[next_out].missing == 0:
                yield from slots.pop(next_out).results
                next_out += 1

    def _has_room(self) -> bool:
        return len(self._workers) < self._jobs or any(len(worker.tasks) < self.at_hand for worker in self._workers)

    def _give(self, task: _Task[Item]) -> bool:
        """Give a task to the worker that has least to do; False where it is too large to lie at hand for a busy one."""
        encoded = encode_message((self._function, task.items, self._limit))
        worker = min(self._workers, key=lambda worker: len(worker.tasks), default=None)
        if worker is None or (worker.tasks and len(self._workers) < self._jobs):
            worker = _start_worker()
            self._workers.append(worker)
            self._selector.register(worker.replies, selectors.EVENT_READ, worker)
        if worker.tasks and len(encoded) > _AT_HAND_BYTES:
            self._retries.appendleft(task)
            return False
        worker.tasks.append(task)
        # A worker that died while idle shows itself as the end of its replies, like any other.
        with contextlib.suppress(BrokenPipeError):
            write_message(worker.requests, encoded)
        return True

    def _wait(self) -> Iterator[tuple[_Task[Item], list[Any]]]:
        for key, _ in self._selector.select():
            worker: _Worker = key.data
            try:
                answer = read_message(worker.replies)
            except EOFError:
                yield from self._bury(worker)
                continue
            if isinstance(answer, Exception):
                raise answer
            yield worker.tasks.popleft(), answer

    def _bury(self, worker: _Worker) -> Iterator[tuple[_Task[Item], list[Any]]]:
        """Reap a dead worker; split the chunk it was at to find the culprit, or give the culprit up."""
        self._selector.unregister(worker.replies)
        self._workers.remove(worker)
        signal_number = worker.end()
        if not worker.tasks:
            return
        task, *untouched = worker.tasks
        self._retries.extend(untouched)
        if len(task.items) > 1:
            for index, item in enumerate(task.items):
                self._retries.append(_Task(task.number, [item], task.first + index))
            return
        timed_out = signal_number == signal.SIGALRM
        task.tries += 1
        if task.tries < _TRIES_ALONE and not timed_out:
            self._retries.append(task)
            return
        if timed_out:
            detail = f"not done after {self._limit:g} seconds"
        else:
            detail = f"the worker process ended by {_signal_name(signal_number)}"
        yield task, [Lost(timed_out, detail)]

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._selector.close()


def _signal_name(number: int | None) -> str:
    if number is None:
        return "itself"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(slots=True)
class _Worker:
    """One worker process, our ends of its pipes, and what it was given: first what it is at, then what lies at hand."""

    pid: int
    requests: int
    replies: int
    process: subprocess.Popen[bytes] | None = None
    tasks: deque[_Task[Any]] = field(default_factory=deque)

    def end(self) -> int | None:
        """Kill and reap the process; give the signal that ended it, None if it left by itself."""
        os.close(self.requests)
        os.close(self.replies)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # too late for one that is dead already: its own signal is reported
        if self.process is not None:
            code = self.process.wait()
        else:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return -code if code < 0 else None


def _start_worker() -> _Worker:
    parent = str(os.getpid())
    child_requests, requests = os.pipe()
    replies, child_replies = os.pipe()
    try:
        if _may_fork():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # on threads, see _may_fork
                pid = os.fork()
            if pid == 0:
                _run_forked(child_requests, child_replies, int(parent))
            return _Worker(pid, requests, replies)
        package = str(Path(__file__).parents[2])
        process = subprocess.Popen(
            (sys.executable, "-m", "mlgo_corpus.run.worker", str(child_requests), str(child_replies), parent),
            pass_fds=(child_requests, child_replies),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([package, *sys.path])},
            start_new_session=True,
        )
        return _Worker(process.pid, requests, replies, process)
    finally:
        os.close(child_requests)
        os.close(child_replies)


def _may_fork() -> bool:
    """Forking costs milliseconds where a new interpreter costs a hundred, but wants one Python thread.

    Another's locks would stay locked in the child for ever. Threads of native libraries (numpy's, Arrow's) do no harm:
    the child runs none of their code, and the C library and OpenSSL look after their own locks. What talks to an object
    store does: its sockets would be shared, and its threads are missed.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and not in_use()


def _run_forked(requests: int, replies: int, parent: int) -> None:
    """Be the worker, with nothing of the parent's open but the standard streams and our own pipes.

    Another worker's pipe held open here would keep it from seeing the parent's end, and a lock of the parent's would
    outlive the parent.
    """
    code = 1
    try:
        os.setpgid(0, 0)
        end_with(parent)
        gc.disable()  # it would write to, and so copy, every page that is shared with the parent
        first, second = sorted((requests, replies))
        os.closerange(3, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, _highest_descriptor() + 1)
        serve(requests, replies)
        code = 0
    finally:
        os._exit(code)


def _highest_descriptor() -> int:
    return max(map(int, os.listdir("/proc/self/fd")))
