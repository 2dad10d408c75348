"""The engine's workers on a Ray cluster: actors, each with a worker process of its own that does the work.

An actor runs the engine with one worker (`mlgo_corpus.engine.pool.Pool`): an item that kills the worker process, or
exceeds its time, does not end the actor, and the signal is known, as on one machine. The kernel ends the worker process
with the actor, and the compilers with the worker process, so that nothing is left after an actor is killed; Ray itself
would not end children.

The driver (this process) sends tasks, one or two to an actor, and receives small results. An item that killed its
worker is tried again on another machine, and is given up after some attempts. If an actor died, its items are tried
again one by one; the loss of a whole machine does not count as an attempt. A machine that lacks required paths, or on
which one item after another fails while others work, is left out: its actor stays, idle, in order to hold the place.
"""

from __future__ import annotations

import os
import pickle
import queue
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from mlgo_corpus import __version__
from mlgo_corpus.engine.choice import EngineChoice, Lost, WorkerFigures
from mlgo_corpus.engine.cluster import connected
from mlgo_corpus.engine.pool import Pool
from mlgo_corpus.engine.queue import Queue, Task
from mlgo_corpus.errors import UsageError, WorkerError

_RETRIES = 2
# The loss of a machine is not an item's fault, but an item after which machine after machine is lost has to end.
_MOST_LOST_MACHINES = 10
# A machine is left out after this many lost workers in a row, with this many different items.
_STRIKES, _STRIKING_ITEMS = 5, 3
# An actor that does not answer for this long beyond its items' time is stuck: its machine or file system hangs.
_GRACE_S = 120.0
_TICK_S = 1.0
_LOOK_AT_CLUSTER_S = 5.0
# Other work on the cluster may hold its CPUs, or more machines may be starting; the driver must not wait for ever.
_WITHOUT_WORKERS_S = 900.0
_CLOSE_S = 10.0
# A driver sends a thousand tasks a second. Up to this number of workers, a task is one item; with n times as many
# workers, it is n items.
_WORKERS_BY_ITEM = 128


class _About(NamedTuple):
    """A started actor: its place, and the problem that keeps it from working, or ''."""

    host: str
    pid: int
    machine: str
    problem: str


class _Done(NamedTuple):
    """An actor's answer: results, or the exception that the function raised, and the seconds it took."""

    results: list[Any]
    error: Exception | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _Shipped:
    """A function as its cloudpickle: the worker process needs Ray only for a function that a script defines."""

    pickled: bytes

    def __call__(self, item: Any) -> Any:
        return _unpickled(self.pickled)(item)


@lru_cache(maxsize=4)
def _unpickled(pickled: bytes) -> Callable[[Any], Any]:
    made: Callable[[Any], Any] = pickle.loads(pickled)  # noqa: S301 - from our own driver
    return made


class _Job(NamedTuple):
    """The settings for every actor of a map."""

    function: _Shipped
    limit: float
    folder: str
    path: tuple[str, ...]
    version: str
    needs: tuple[str, ...]


class _Actor:
    """The remote side."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._pool: Pool[Any] = Pool(job.function, 1, job.limit, 0)
        sys.path.extend(entry for entry in job.path if entry not in sys.path)
        if os.path.isdir(job.folder):
            os.chdir(job.folder)

    def about(self) -> _About:
        """Return the actor's place, and whether it can work."""
        import ray

        host = socket.gethostname()
        problem = ""
        if missing := next((path for path in self._job.needs if not os.path.exists(path)), None):
            problem = f"{missing} does not exist there: all machines of a cluster have to share the storage"
        if self._job.version != __version__:
            problem = f"mlgo-corpus {__version__} is installed there, and {self._job.version} here"
        problem = f"{host}: {problem}" if problem else ""
        return _About(host, os.getpid(), ray.get_runtime_context().get_node_id(), problem)

    def run(self, items: list[Any]) -> _Done:
        """Process the items; the result of one that killed the worker process is a `Lost`."""
        began = time.monotonic()
        try:
            return _Done(list(self._pool.run(iter([items]))), None, time.monotonic() - began)
        except Exception as error:  # it is raised again on the driver's side
            return _Done([], error, time.monotonic() - began)


def ray_map(
    function: Callable[[Any], Any],
    chunked: Iterator[list[Any]],
    choice: EngineChoice,
    jobs: int | None,
    limit: float,
    *,
    at_hand: int,
    ahead: int,
    needs: Sequence[Path | str],
) -> Iterator[Any]:
    """Yield the results of all items of the chunks, in order; see `mlgo_corpus.engine.map.parallel_map`.

    Args:
        function: as there; a function that a script defines is sent by value.
        chunked: the chunks.
        choice: of the cluster.
        jobs: the number of actors; None for one for each CPU of the cluster, also while it grows.
        limit: seconds that one item may take.
        at_hand: the number of chunks that an actor has.
        ahead: the number of chunks for each actor that are under way or wait to be yielded.
        needs: the required paths.

    Raises:
        Exception: the exception that the function raised.
        UsageError: Ray is not installed, there is no such cluster, or no machine of it has the required paths.
        WorkerError: no worker became available for a long time.
    """
    first = next(chunked, None)
    if first is None:  # nothing to do
        return
    with connected(choice.address):
        from ray import cloudpickle

        job = _Job(
            _Shipped(cloudpickle.dumps(function)),
            limit,
            os.getcwd(),
            tuple(map(os.path.abspath, sys.path)),
            __version__,
            tuple(str(path) for path in needs if os.path.isabs(path)),
        )
        driver = _Driver(job, choice, jobs, at_hand)
        try:
            chunked = chain([first], chunked)
            grouped = in_groups(chunked, lambda: driver.wanted) if at_hand == 1 else chunked
            yield from driver.run(Queue(grouped, ahead), ahead)
        finally:
            driver.close()


def in_groups(chunked: Iterator[list[Any]], workers: Callable[[], int]) -> Iterator[list[Any]]:
    """Join chunks if there are too many workers for the driver to send chunks one by one."""
    for chunk in chunked:
        while len(chunk) < workers() // _WORKERS_BY_ITEM and (more := next(chunked, None)) is not None:
            chunk += more
        yield chunk


@dataclass(eq=False, slots=True)
class _Worker:
    """The driver's side of an actor: its tasks, and its place once it has started."""

    actor: Any
    about: _About | None = None
    idle: bool = False
    tasks: list[Task[Any]] = field(default_factory=list)
    deadline: float = 0.0
    figures: WorkerFigures | None = None
    stuck: bool = False


class _Event(NamedTuple):
    """The end of an actor's call: of `run` for a task, or of `about` if the task is None."""

    worker: _Worker
    task: Task[Any] | None
    future: Future[Any]


class _Driver:
    """The driver's side of one map.

    Attributes:
        wanted: the target number of workers.
    """

    def __init__(self, job: _Job, choice: EngineChoice, jobs: int | None, at_hand: int) -> None:
        import ray

        self._ray = ray
        self._remote = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Actor)
        self._job = ray.put(job)
        self._limit = job.limit
        self._status = choice.status
        self._retries = _RETRIES if choice.retries is None else choice.retries
        self._jobs = jobs
        self._at_hand = at_hand
        self._workers: list[_Worker] = []
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._calls = 0
        self._problems: dict[str, str] = {}
        self._strikes: Counter[str] = Counter()
        self._striking: dict[str, set[tuple[int, int]]] = {}
        self._looked = -_LOOK_AT_CLUSTER_S
        self._last_seen = time.monotonic()
        self.wanted = 0

    def run(self, tasks: Queue[Any], ahead: int) -> Iterator[Any]:
        """Process all tasks; yield their results."""
        while True:
            self._start_workers()
            tasks.most = max(1, self.wanted) * ahead
            self._hand_out(tasks)
            self._status.workers = len(self._ready())
            self._status.under_way = len(tasks)
            if tasks.exhausted and not len(tasks):
                return
            self._take_events(tasks)
            yield from tasks.take()

    def close(self) -> None:
        """Kill the actors, and wait for their end."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        end = time.monotonic() + _CLOSE_S
        while self._calls and (left := end - time.monotonic()) > 0:
            try:
                self._events.get(timeout=left)
            except queue.Empty:
                break
            self._calls -= 1
        self._workers.clear()
        self._status.workers = self._status.under_way = 0

    def _ready(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.about is not None and not worker.idle]

    def _start_workers(self) -> None:
        """Start actors up to the target number, besides those that hold a place."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_AT_CLUSTER_S:
            self._looked = now
            cpus = int(self._ray.cluster_resources().get("CPU", 0))
            self.wanted = cpus if self._jobs is None else self._jobs
            held = sum(worker.idle for worker in self._workers)
            if self._jobs is None:
                self.wanted = max(0, cpus - held)
            self._check_hope(cpus, held)
        while sum(not worker.idle for worker in self._workers) < self.wanted:
            worker = _Worker(self._remote.remote(self._job))
            self._workers.append(worker)
            self._call(worker, None, worker.actor.about.remote())

    def _check_hope(self, cpus: int, held: int) -> None:
        """Raise an error if the map cannot make progress any more."""
        if self._ready():
            self._last_seen = time.monotonic()
            return
        if self._problems and held >= cpus:
            problem = next(iter(self._problems.values()))
            message = f"no machine of the cluster can do the work; {problem}"
            raise UsageError(message, option="engine", value="ray")
        if time.monotonic() - self._last_seen > _WITHOUT_WORKERS_S:
            raise WorkerError(
                f"no worker became available within {_WITHOUT_WORKERS_S:.0f} seconds (the cluster has {cpus} CPUs); "
                "finished work is kept, and the same command continues"
            )

    def _call(self, worker: _Worker, task: Task[Any] | None, reference: Any) -> None:
        self._calls += 1
        future: Future[Any] = reference.future()
        future.add_done_callback(lambda done: self._events.put(_Event(worker, task, done)))

    def _hand_out(self, tasks: Queue[Any]) -> None:
        """Send the available tasks to the workers."""
        for round_ in range(self._at_hand):
            for worker in self._ready():
                if len(worker.tasks) <= round_ and (task := self._next_for(worker, tasks)) is not None:
                    if not worker.tasks:
                        worker.deadline = self._deadline(task)
                    worker.tasks.append(task)
                    self._call(worker, task, worker.actor.run.remote(task.items))

    def _next_for(self, worker: _Worker, tasks: Queue[Any]) -> Task[Any] | None:
        """Choose a task. A repeated one goes to a machine where it has not failed yet, if there is such a machine."""
        machine = self._machine(worker)
        machines = {self._machine(other) for other in self._ready()}
        for index, task in enumerate(tasks.retries):
            if machine not in task.avoid or machines <= task.avoid:
                del tasks.retries[index]
                return task
        return tasks.next_new()

    def _deadline(self, task: Task[Any]) -> float:
        """Return the time by which the actor itself would have given up the task, so that an answer is due."""
        return time.monotonic() + 2 * len(task.items) * self._limit + _GRACE_S

    def _take_events(self, tasks: Queue[Any]) -> None:
        try:
            event: _Event | None = self._events.get(timeout=_TICK_S)
        except queue.Empty:
            event = None
        while event is not None:
            self._calls -= 1
            self._take(event, tasks)
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                event = None
        now = time.monotonic()
        for worker in self._workers:
            if worker.tasks and now > worker.deadline and not worker.stuck:
                worker.stuck = True
                self._ray.kill(worker.actor)  # then it is handled as an actor that died

    def _take(self, event: _Event, tasks: Queue[Any]) -> None:
        worker, task, future = event
        error = future.exception()
        if error is not None:
            if worker in self._workers:
                self._bury(worker, error, tasks)
            return
        if worker not in self._workers:  # its last answer came after its end: the task is with another worker already
            return
        if task is None:
            self._welcome(worker, future.result())
            return
        self._finish(worker, task, future.result(), tasks)

    def _welcome(self, worker: _Worker, about: _About) -> None:
        worker.about = about
        problem = about.problem or self._problems.get(about.machine, "")
        if problem:
            self._problems[about.machine] = problem
            worker.idle = True
            self._looked = -_LOOK_AT_CLUSTER_S
            return
        worker.figures = WorkerFigures(about.host, about.pid)
        self._status.figures.append(worker.figures)

    def _finish(self, worker: _Worker, task: Task[Any], done: _Done, tasks: Queue[Any]) -> None:
        worker.tasks.remove(task)
        if worker.tasks:
            worker.deadline = self._deadline(worker.tasks[0])
        if done.error is not None:
            raise done.error
        machine = self._machine(worker)
        killed = 0
        for index, result in enumerate(done.results):
            one = task if len(task.items) == 1 else Task(task.number, [task.items[index]], task.first + index)
            if isinstance(result, Lost) and not result.timed_out:
                killed += 1
                self._try_again(one, machine, result, tasks)
            else:
                tasks.put(one, [result])
        if killed < len(done.results):
            self._strikes[machine] = 0
            self._striking.pop(machine, None)
        if worker.figures is not None:
            worker.figures.items += len(done.results) - killed
            worker.figures.seconds += done.seconds

    def _try_again(self, task: Task[Any], machine: str, lost: Lost, tasks: Queue[Any]) -> None:
        """Try an item again that killed its worker while it was alone, or give it up."""
        task.tries += 1
        task.avoid |= {machine}
        if task.tries > self._retries:
            tasks.put(task, [lost])
        else:
            tasks.retries.append(task)
        self._strike(machine, task)

    def _strike(self, machine: str, task: Task[Any]) -> None:
        """Leave out a machine on which one item after another fails, if there is another machine."""
        self._strikes[machine] += 1
        items = self._striking.setdefault(machine, set())
        items.add((task.number, task.first))
        others = any(self._machine(worker) != machine for worker in self._ready())
        if self._strikes[machine] >= _STRIKES and len(items) >= _STRIKING_ITEMS and others:
            self._problems[machine] = f"{self._strikes[machine]} worker processes in a row ended without a result"
            for worker in self._workers:
                if self._machine(worker) == machine:
                    worker.idle = True
            self._looked = -_LOOK_AT_CLUSTER_S

    def _bury(self, worker: _Worker, error: BaseException, tasks: Queue[Any]) -> None:
        """Remove an actor that has ended, and give its tasks to others."""
        self._workers.remove(worker)
        self._ray.kill(worker.actor)  # it may only be unreachable
        if worker.about is None:
            self._check_start(error)
            return
        lost_machine = self._is_lost(self._machine(worker))
        for place, task in enumerate(worker.tasks):
            if lost_machine:
                task.lost_machines += 1
            if place > 0:  # it was waiting, untouched
                tasks.retries.append(task)
            elif len(task.items) > 1:
                tasks.retries.extend(task.alone())
            elif lost_machine and task.lost_machines <= _MOST_LOST_MACHINES:
                tasks.retries.append(task)
            elif worker.stuck:
                tasks.put(task, [Lost(True, f"the worker did not answer after {self._limit:g} seconds")])
            else:
                detail = "the worker's machine was lost" if lost_machine else "the worker was killed"
                self._try_again(task, self._machine(worker), Lost(False, detail), tasks)

    def _check_start(self, error: BaseException) -> None:
        """Raise an error if an actor could not be made at all, for example because its machine lacks the package."""
        if isinstance(error, self._ray.exceptions.ActorDiedError) and "Error" in str(error).partition("\n")[2]:
            last = [line for line in str(error).splitlines() if line.strip()][-1].strip()
            if "died" not in last:
                message = f"a worker cannot be started: {last}"
                raise UsageError(message, option="engine", value="ray") from error

    def _machine(self, worker: _Worker) -> str:
        return "" if worker.about is None else worker.about.machine

    def _is_lost(self, machine: str) -> bool:
        return not any(node["NodeID"] == machine and node["Alive"] for node in self._ray.nodes())
