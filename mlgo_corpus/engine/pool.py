"""Worker processes of this machine, which run tasks and are replaced if they die.

`mlgo_corpus.engine.map` describes what happens to their items.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.engine.queue import CHUNKS_AHEAD, CHUNKS_AT_HAND, Queue, Task
from mlgo_corpus.engine.signals import ASKING_TO_END
from mlgo_corpus.engine.threads import INTERRUPTIBLE_S
from mlgo_corpus.engine.worker import encode_message, end_with, read_message, serve, write_message
from mlgo_corpus.files.remote import in_use

Item = TypeVar("Item")
Result = TypeVar("Result")

_AT_HAND_BYTES = 16 << 10
_RETRIES_ALONE = 1


class Pool(Generic[Item]):
    """Worker processes of this machine: for one run, or for several, one after the other.

    Args:
        function: the function that they run.
        jobs: the maximum number of processes.
        limit: seconds that one item may take.
        retries: the number of times that an item is tried again, alone, after its worker died.
        at_hand: the number of chunks that a worker has.
        ahead: the number of chunks for each worker that are under way or wait to be yielded.
        may_fork: whether they may be forks of this process, where that is safe for our own code.
    """

    def __init__(
        self,
        function: Callable[[Item], Any],
        jobs: int,
        limit: float,
        retries: int | None = None,
        *,
        at_hand: int = CHUNKS_AT_HAND,
        ahead: int = CHUNKS_AHEAD,
        may_fork: bool = True,
    ) -> None:
        self._function = function
        self._forks = may_fork
        self._jobs = jobs
        self._limit = limit
        self._retries = _RETRIES_ALONE if retries is None else retries
        self._at_hand = at_hand
        self._ahead = ahead
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def run(self, chunked: Iterator[list[Item]]) -> Iterator[Any]:
        """Yield the results of all items, in order.

        Raises:
            Exception: the exception that the function raised.
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
        """Send a task to the worker with the fewest tasks; return False if it is too large to queue at a busy one."""
        encoded = encode_message((self._function, task.items, self._limit))
        worker = min(self._workers, key=lambda worker: len(worker.tasks), default=None)
        if worker is None or (worker.tasks and len(self._workers) < self._jobs):
            worker = _start_worker(forked=self._forks and _may_fork())
            self._workers.append(worker)
            self._selector.register(worker.replies, selectors.EVENT_READ, worker)
        if worker.tasks and len(encoded) > _AT_HAND_BYTES:
            queue.retries.appendleft(task)
            return False
        worker.tasks.append(task)
        # The death of an idle worker shows as the end of its replies, like any other.
        with contextlib.suppress(BrokenPipeError):
            write_message(worker.requests, encoded)
        return True

    def _wait(self, queue: Queue[Item]) -> None:
        for key, _ in self._selector.select(INTERRUPTIBLE_S):
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
        """Reap a dead worker; split the chunk that it worked on to find the culprit, or give up the culprit."""
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
    """One worker process, our ends of its pipes, and its tasks: first the one that it works on, then the next ones."""

    pid: int
    requests: int
    replies: int
    process: subprocess.Popen[bytes] | None = None
    tasks: deque[Task[Any]] = field(default_factory=deque)

    def end(self) -> int | None:
        """Kill and reap the process; return the signal that ended it, None if it exited by itself."""
        os.close(self.requests)
        os.close(self.replies)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # no effect on a dead process, whose own signal is reported
        if self.process is not None:
            code = self.process.wait()
        else:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return -code if code < 0 else None


def _start_worker(*, forked: bool) -> _Worker:
    parent = str(os.getpid())
    child_requests, requests = os.pipe()
    replies, child_replies = os.pipe()
    try:
        if forked:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # on threads, see _may_fork
                # A child that a signal met before it is one of its own would clean up in its parent's name.
                mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *ASKING_TO_END})
                try:
                    pid = os.fork()
                    if pid == 0:
                        _run_forked(child_requests, child_replies, int(parent), mask)
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return _Worker(pid, requests, replies)
        package = str(Path(__file__).parents[2])
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "mlgo_corpus.engine.worker", str(child_requests), str(child_replies), parent),
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
    """Return True if forking is safe for our own code. It takes milliseconds instead of a new interpreter's hundred.

    It requires that this is the only Python thread: another one's locks would stay locked in the child for ever.
    Threads of native libraries (numpy's, Arrow's) are harmless: the child runs none of their code, and the C library
    and OpenSSL handle their own locks. Clients of an object store are not: their sockets would be shared, and their
    threads would be missing.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and not in_use()


def _run_forked(requests: int, replies: int, parent: int, mask: set[signal.Signals | int]) -> None:
    """Run the worker in a forked child. Close all of the parent's files except the standard streams and our own pipes.

    Another worker's pipe, open here, would keep that worker from noticing the parent's end, and a lock of the parent's
    would outlive the parent.
    """
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
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
