"""Map a function over many items in worker processes: results in order, and no item takes the run down.

`parallel_map` hands chunks of items to ``jobs`` workers and yields their results in the items' order. A worker that
dies (a crash in a native library, the kernel's out-of-memory killer) or exceeds its time is replaced. The items it
held are tried again one by one; the item that kills its worker a second time, alone, gives a `Lost` in its place.

The workers are processes of this machine, or a Ray cluster's (`mlgo_corpus.run.rayengine`): an `EngineChoice` says.
Results, their order and what a `Lost` says are the same.

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
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from mlgo_corpus.errors import UsageError
from mlgo_corpus.run.tasks import Queue, Task, chunks
from mlgo_corpus.run.worker import encode_message, end_with, read_message, serve, write_message
from mlgo_corpus.store.remote import in_use, parse_place

Item = TypeVar("Item")
Result = TypeVar("Result")
PathText = TypeVar("PathText", Path, str, Path | str)

_CHUNKS_AHEAD_PER_WORKER = 4
# One item may take as long as so many others, which must not wait for it.
_LONG_CHUNKS_AHEAD_PER_WORKER = 1000
# A worker has its next chunk at hand while we take its answer. That chunk must fit into the pipe (64 KiB): a worker
# that waits for us to read its answer, while we wait for it to read its next chunk, would wait for ever.
_CHUNKS_AT_HAND = 2
_AT_HAND_BYTES = 16 << 10
_RETRIES_ALONE = 1
_MOST_RETRIES = 100

LOCAL: Final = "local"
RAY: Final = "ray"
ENGINES: Final = (LOCAL, RAY)


@dataclass(slots=True)
class WorkerFigures:
    """What one worker of a cluster did: the seconds are those that it was at work on its items."""

    host: str
    pid: int
    items: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class EngineStatus:
    """What a cluster is at: workers at hand, items under way or waiting for those before them; and all there were."""

    workers: int = 0
    under_way: int = 0
    figures: list[WorkerFigures] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Where work is done. It is chosen once, and handed down.

    Attributes:
        kind: ``local`` or ``ray``.
        address: of a Ray cluster, ``HOST:PORT``; by default what ``RAY_ADDRESS`` says, or this machine's.
        retries: how often an item is tried again that took its worker down; by default once, on a cluster twice.
        status: of a cluster, for whoever wants to show it.

    Raises:
        UsageError: there is no such engine, or the options do not go together.
    """

    kind: str = LOCAL
    address: str | None = None
    retries: int | None = None
    status: EngineStatus = field(default_factory=EngineStatus, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in ENGINES:
            raise UsageError(f"--engine {self.kind}: expected one of {', '.join(ENGINES)}")
        if self.address is not None and self.kind != RAY:
            raise UsageError(f"--ray-address {self.address}: belongs to --engine ray")
        if self.retries is not None and not 0 <= self.retries <= _MOST_RETRIES:
            bound = "at least 0" if self.retries < 0 else f"at most {_MOST_RETRIES}"
            raise UsageError(f"--retries {self.retries}: expected {bound}")

    def place(self, path: PathText) -> PathText:
        """Give a path as workers are told it: absolute where they are elsewhere. A URL stays."""
        if self.kind == LOCAL or not isinstance(place := parse_place(path), Path):
            return path
        return type(path)(place.absolute())


HERE: Final = EngineChoice()
"""This machine."""


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
    jobs: int | None,
    limit: float,
    weigh: Callable[[Item], float] = lambda _: 0.0,
    long_items: bool = False,
    engine: EngineChoice = HERE,
    needs: Sequence[Path | str] = (),
) -> Iterator[Result | Lost]:
    """Yield ``function(item)`` for each item, in order, computed by up to ``jobs`` worker processes.

    Args:
        function: picklable by name (or a partial of such); what it returns is pickled back.
        items: consumed as the work goes on, a few chunks ahead of what was yielded.
        jobs: the number of workers, at least 1; None for one on each CPU there is.
        limit: seconds that one item may take.
        weigh: an item's share of a chunk (a chunk ends where the shares reach 1); by default only the count matters.
        long_items: whether items take long and their results are small: then none waits behind another at a worker,
            and many more are done before the first of them is yielded.
        engine: whose processes they are.
        needs: what has to be there for the work, absolute paths: a machine of a cluster that lacks one is left out.

    Raises:
        Exception: what ``function`` raised; the remaining items are abandoned.
        UsageError: there is no such cluster, or none of its machines has what is needed.
    """
    ahead = _LONG_CHUNKS_AHEAD_PER_WORKER if long_items else _CHUNKS_AHEAD_PER_WORKER
    at_hand = 1 if long_items else _CHUNKS_AT_HAND
    if engine.kind == RAY:
        from mlgo_corpus.run.rayengine import ray_map

        chunked = chunks(items, weigh)
        yield from ray_map(function, chunked, engine, jobs, limit, at_hand=at_hand, ahead=ahead, needs=needs)
        return
    retries = _RETRIES_ALONE if engine.retries is None else engine.retries
    pool: Pool[Any] = Pool(function, jobs or available_cpus(), limit, retries, at_hand=at_hand, ahead=ahead)
    try:
        yield from pool.run(chunks(items, weigh))
    finally:
        pool.close()


def resumed_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    known: Sequence[Result | None],
    *,
    jobs: int | None,
    limit: float,
    lost: Callable[[Item, Lost], Result],
    engine: EngineChoice = HERE,
    needs: Sequence[Path | str] = (),
) -> Iterator[Result]:
    """Yield a result for each item, in order: the one that is known already, else ``function(item)``, computed.

    For items that take long and whose results are small: runs of a compiler, each of one module.

    Args:
        function: as for `parallel_map`, and ``jobs``, ``limit``, ``engine`` and ``needs`` too.
        items: all of them.
        known: the result that each has from an earlier run, or None.
        jobs: the number of workers, at least 1.
        limit: seconds that one item may take.
        lost: makes a result of an item whose worker died.
        engine: whose processes do it.
        needs: what has to be there for it.

    Raises:
        Exception: what ``function`` raised; the remaining items are abandoned.
    """
    missing = [item for item, result in zip(items, known, strict=True) if result is None]
    made = parallel_map(
        function,
        missing,
        jobs=jobs,
        limit=limit,
        weigh=lambda _: 1.0,
        long_items=True,
        engine=engine,
        needs=needs,
    )
    for item, there in zip(items, known, strict=True):
        result = next(made) if there is None else there
        yield lost(item, result) if isinstance(result, Lost) else result
    for _ in made:
        raise AssertionError("as many results as items")


class Pool(Generic[Item]):
    """Worker processes of this machine: for one run, or for several, one after the other.

    Args:
        function: what they do.
        jobs: how many there are at most.
        limit: seconds that one item may take.
        retries: how often an item is tried again that took its worker down, alone.
        at_hand: how many chunks a worker has at hand.
        ahead: how many chunks for each worker are under way or wait to be yielded.
    """

    def __init__(
        self,
        function: Callable[[Item], Any],
        jobs: int,
        limit: float,
        retries: int = _RETRIES_ALONE,
        *,
        at_hand: int = _CHUNKS_AT_HAND,
        ahead: int = _CHUNKS_AHEAD_PER_WORKER,
    ) -> None:
        self._function = function
        self._jobs = jobs
        self._limit = limit
        self._retries = retries
        self._at_hand = at_hand
        self._ahead = ahead
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def run(self, chunked: Iterator[list[Item]]) -> Iterator[Any]:
        """Yield the results of all items, in order.

        Raises:
            Exception: what the function raised.
        """
        queue = Queue(chunked, self._jobs * self._ahead)
        while True:
            while self._has_room() and (task := queue.next()) is not None and self._give(task, queue):
                pass
            if not any(worker.tasks for worker in self._workers):
                return
            self._wait(queue)
            yield from queue.take()

    def _has_room(self) -> bool:
        return len(self._workers) < self._jobs or any(len(worker.tasks) < self._at_hand for worker in self._workers)

    def _give(self, task: Task[Item], queue: Queue[Item]) -> bool:
        """Give a task to the worker that has least to do; False where it is too large to lie at hand for a busy one."""
        encoded = encode_message((self._function, task.items, self._limit))
        worker = min(self._workers, key=lambda worker: len(worker.tasks), default=None)
        if worker is None or (worker.tasks and len(self._workers) < self._jobs):
            worker = _start_worker()
            self._workers.append(worker)
            self._selector.register(worker.replies, selectors.EVENT_READ, worker)
        if worker.tasks and len(encoded) > _AT_HAND_BYTES:
            queue.retries.appendleft(task)
            return False
        worker.tasks.append(task)
        # A worker that died while idle shows itself as the end of its replies, like any other.
        with contextlib.suppress(BrokenPipeError):
            write_message(worker.requests, encoded)
        return True

    def _wait(self, queue: Queue[Item]) -> None:
        for key, _ in self._selector.select():
            worker: _Worker = key.data
            try:
                answer = read_message(worker.replies)
            except EOFError:
                self._bury(worker, queue)
                continue
            if isinstance(answer, Exception):
                raise answer
            queue.put(worker.tasks.popleft(), answer)

    def _bury(self, worker: _Worker, queue: Queue[Item]) -> None:
        """Reap a dead worker; split the chunk it was at to find the culprit, or give the culprit up."""
        self._selector.unregister(worker.replies)
        self._workers.remove(worker)
        signal_number = worker.end()
        if not worker.tasks:
            return
        task, *untouched = worker.tasks
        queue.retries.extend(untouched)
        if len(task.items) > 1:
            queue.retries.extend(task.alone())
            return
        timed_out = signal_number == signal.SIGALRM
        task.tries += 1
        if task.tries <= self._retries and not timed_out:
            queue.retries.append(task)
            return
        if timed_out:
            detail = f"not done after {self._limit:g} seconds"
        else:
            detail = f"the worker process ended by {_signal_name(signal_number)}"
        queue.put(task, [Lost(timed_out, detail)])

    def close(self) -> None:
        """End the workers."""
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
    tasks: deque[Task[Any]] = field(default_factory=deque)

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
