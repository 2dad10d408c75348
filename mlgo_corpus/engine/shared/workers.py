"""Worker objects on the machines of a Ray cluster, several to a process, shared by several experiments.

An experiment compiles, then trains, then compiles again: its machines idle while it trains. If several experiments
share hosts, one compiles while another trains::

    with SharedWorkers(hosts=2, name="ours") as shared:  # elsewhere: SharedWorkers.attach("ours")
        worker = shared.create_everywhere(Tracer, "/shared/corpus", "clang-22")
        calls = [worker.call("trace", name) for name in names]
        rows = [call.result(timeout=120).row for call in calls]
        worker.release()

A host is one process with one slot for calls for each of its CPUs (`mlgo_corpus.engine.shared.host`). Only its creator
can use an object. It is made on the host with the least load, measured by the calls of all drivers that run and wait
there, each with its object's weight. A call is sent when its host is about to have room for it; until then it waits
here, and can be cancelled. Calls of one object run in parallel: its methods must be thread-safe.

Hosts first serve the driver that has waited longest, until it has all its results. Then its turn ends; or after the
work of all slots for a minute, so that a driver that never stops sending leaves the others their turns.

Callables, arguments and results are pickled, by cloudpickle: definitions of the driver's own script by value, those of
a module by name, so that hosts must be able to import it. Every user of the cluster may run code on it: that is Ray's
design, and nothing here makes it safer.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mlgo_corpus.engine.shared.actors import actor_handles, connect, leave, start_actors
from mlgo_corpus.engine.shared.calls import (
    CONTROL,
    Call,
    HostHandle,
    Work,
    death_of,
    drained,
    first_line,
    pickled,
    settle_call,
    why_dead,
)
from mlgo_corpus.engine.shared.host import HostActor, HostState, Reply
from mlgo_corpus.errors import ConstructorError, HostDiedError, UnknownWorkerError, UsageError, WorkerError

# The time of every slot that a turn may take, in seconds.
_TURN_S = 60.0
# The interval at which a driver renews its session, and the least number of renewals in a lease.
_RENEW_S = 1.0
_RENEWALS_PER_LEASE = 4
# A worker that would be made more often than this is assumed to kill its hosts.
_MOST_LIVES = 3
_ANSWER_S = 30.0
# The number of calls that begin at once and cannot be cancelled: constructors and priority calls.
_NO_NUMBER = -1


class SharedWorker:
    """A worker object on a host, or one on each of several hosts: `SharedWorkers.create` makes it.

    As a context manager it is released at the end.
    """

    def __init__(self, shared: SharedWorkers, work: Work) -> None:
        self._shared = shared
        self._work = work

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its hosts."""
        return tuple(host.name for host in self._work.homes)

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Call:
        """Call a method; if the worker is on several hosts, on the one with the least load."""
        return self._shared._call(self._work, (method, args, kwargs))

    def call_now(self, method: str, /, *args: Any, **kwargs: Any) -> Call:
        """Call a method as `call` does, but at once: it waits neither for a slot nor behind other calls.

        This is a priority call, for methods that are short: to ask an object how far it is, or to stop it. It cannot be
        cancelled.
        """
        return self._shared._call_now(self._work, (method, args, kwargs))

    def release(self) -> None:
        """Free the objects on their hosts after their running calls; waiting calls fail.

        Raises:
            UnknownWorkerError: the worker was released already.
        """
        self._shared._release(self._work)

    def __enter__(self) -> SharedWorker:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._work.released:
            self.release()

    def __repr__(self) -> str:
        return f"<SharedWorker {self._work.title} on {', '.join(self.hosts) or 'no host'}>"


class SharedWorkers:
    """Hosts for worker objects; see the module's docstring. As a context manager it is closed at the end.

    Hosts with a name live as long as any driver is attached to them. Others end with their driver.

    Args:
        hosts: the number of processes; by default one for each machine of the cluster.
        address: of a Ray cluster; by default the one this machine is part of, or else one on this machine alone, for as
            long as this is open. If Ray is in use already in this process, that cluster is used.
        threads_per_host: the number of calls that a host runs at a time; by default one for each of its CPUs.
        cpus_per_host: the CPUs that a host reserves on the cluster; by default the number of threads, or else an equal
            share of all.
        name: the name by which other drivers can `attach`.
        lease: the seconds after which a silent driver is assumed dead, and its objects are freed.
        timeout: the seconds in which the hosts have to start.

    Raises:
        UsageError: Ray is not installed or cannot be reached, there is no room for the hosts, or the name is taken.
    """

    def __init__(
        self,
        hosts: int | None = None,
        *,
        address: str | None = None,
        threads_per_host: int | None = None,
        cpus_per_host: int | None = None,
        name: str | None = None,
        lease: float = 30.0,
        timeout: float = 60.0,
    ) -> None:
        counts = {"hosts": hosts, "threads_per_host": threads_per_host, "cpus_per_host": cpus_per_host, "lease": lease}
        for option, value in counts.items():
            if value is not None and value <= 0:
                raise UsageError("expected more than 0", option=option, value=value)
        self._ours = connect(address)
        try:
            actors = start_actors(
                HostActor, name, hosts, threads_per_host, cpus_per_host, lease=lease, timeout=timeout, control=CONTROL
            )
            self._open(name, actors, timeout)
        except BaseException:
            leave(self._ours)
            raise

    @classmethod
    def attach(cls, name: str, *, address: str | None = None, timeout: float = 60.0) -> SharedWorkers:
        """Attach to the hosts that another driver started under this name; arguments are as for the class itself.

        Raises:
            UsageError: there are none.
        """
        self = cls.__new__(cls)
        self._ours = connect(address)
        try:
            self._open(name, actor_handles(name), timeout)
        except BaseException:
            leave(self._ours)
            raise
        return self

    def _open(self, name: str | None, actors: dict[str, Any], timeout: float) -> None:
        import ray

        self.name = name
        self._session = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._all = [HostHandle(title, actor) for title, actor in actors.items()]
        self._works: dict[str, Work] = {}
        self._sent: set[Call] = set()
        self._number = 0
        self._since = time.time()  # our turn, in wall-clock time, because it is compared with other drivers'
        self._served = 0.0
        self._closed = threading.Event()
        self._replies: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        end = time.monotonic() + timeout
        for host in self._all:
            try:
                limit = max(0.1, end - time.monotonic())
                host.slots, host.lease, host.node = ray.get(host.ask("begin"), timeout=limit)
                host.others = ray.get(host.ask("renew", self._session), timeout=limit)
            except ray.exceptions.RayError as error:
                raise UsageError(f"{host.name}: cannot be reached: {first_line(error)}") from None
        self._threads = [
            threading.Thread(target=target, name=f"shared workers: {target.__name__}", daemon=True)
            for target in (self._settle_replies, self._keep_alive)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> SharedWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def create(
        self, make: Callable[..., Any], /, *args: Any, recreate: bool = False, weight: float = 1.0, **kwargs: Any
    ) -> SharedWorker:
        """Make a worker, ``make(*args, **kwargs)``, on the host with the least load.

        Args:
            make: a class, or a function that returns an object. If the object has a method ``close``, it is called
                before the object is freed. If it has a method ``stop``, it is called if the object still runs calls
                after its driver has gone.
            args: positional arguments of ``make``.
            recreate: if the host dies, make the worker again on another one, up to three times in all. Calls under way
                fail; calls that waited here go to the new host.
            weight: the load of one call of the worker, compared to 1 by default.
            kwargs: named arguments of ``make``; use ``functools.partial`` for names that this method has too.

        Raises:
            ConstructorError: ``make`` failed; the error's cause is its exception.
            HostDiedError: the host died meanwhile, or all are dead.
        """
        work = self._new_work((make, args, kwargs), recreate=recreate, weight=weight)
        self._refresh()
        self._make(work, self._least_loaded(work))
        return SharedWorker(self, work)

    def create_everywhere(
        self, make: Callable[..., Any], /, *args: Any, recreate: bool = False, weight: float = 1.0, **kwargs: Any
    ) -> SharedWorker:
        """Make such a worker on each host; each of its calls goes to the host with the least load.

        Arguments and errors are as for `create`. If a host dies, the others continue; ``recreate`` applies after the
        last one died.
        """
        work = self._new_work((make, args, kwargs), recreate=recreate, weight=weight)
        self._least_loaded(work)
        calls = [(host, self._send_create(work, host)) for host in self._all if not host.died]
        errors = []
        for host, call in calls:
            try:
                self._made(work, host, call)
            except WorkerError as error:
                errors.append(error)
        if errors and (not work.homes or not all(isinstance(error, HostDiedError) for error in errors)):
            self._release(work)
            raise errors[0]
        return SharedWorker(self, work)

    def hosts(self) -> tuple[HostState, ...]:
        """Return the state of each host; for a dead one, its last known state."""
        self._refresh()
        return tuple(
            replace(host.last, node=host.node, alive=not host.died)
            if host.last is not None
            else HostState(host.name, host.node, 0, not host.died, host.slots, 0, 0, 0, 0, 0.0, 0.0, 0.0)
            for host in self._all
        )

    def close(self) -> None:
        """Release all workers, fail their waiting and running calls, and end hosts that no other driver uses."""
        import ray

        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            works, self._works = list(self._works.values()), {}
            left = [*self._sent, *(call for work in works for call in work.waiting)]
            self._sent.clear()
            for work in works:
                work.released = True
                work.waiting.clear()
        for call in left:
            call.fail(UnknownWorkerError("the shared workers were closed before the call ended"))
        self._replies.put(None)
        alive = [host for host in self._all if not host.died] if ray.is_initialized() else []
        for host, ref in [(host, host.ask("close_session", self._session)) for host in alive]:
            with suppress(ray.exceptions.RayError):
                if self.name is None or ray.get(ref, timeout=_ANSWER_S) == 0:
                    ray.kill(host.actor)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_ANSWER_S)
        leave(self._ours)

    def _new_work(self, factory: tuple[Any, ...], *, recreate: bool, weight: float) -> Work:
        if self._closed.is_set():
            raise UsageError("the shared workers are closed")
        if not weight > 0:
            raise UsageError("expected more than 0", option="weight", value=weight)
        title = getattr(factory[0], "__qualname__", repr(factory[0]))
        try:
            data = pickled(factory)
        except Exception as error:  # whatever their __reduce__ does
            raise ConstructorError(f"{title}: it or its arguments cannot be pickled: {first_line(error)}") from error
        return Work(data, title, weight, recreate, uuid.uuid4().hex[:16])

    def _least_loaded(self, work: Work) -> HostHandle:
        with self._lock:
            alive = [host for host in self._all if not host.died]
            if not alive:
                raise HostDiedError(f"{self._all[-1].died}, and no other host is left", self._all[-1].name)
            if not work.reviving:
                self._works[work.object_id] = work
            return min(alive, key=lambda host: host.load)

    def _make(self, work: Work, host: HostHandle) -> None:
        try:
            self._made(work, host, self._send_create(work, host))
        except WorkerError:
            with self._lock:
                self._works.pop(work.object_id, None)
            raise

    def _send_create(self, work: Work, host: HostHandle) -> Call:
        call = Call(_NO_NUMBER, work.factory, lambda _: False)
        with self._lock:
            self._send(work, host, call, "create", work.factory, work.weight)
        return call

    def _made(self, work: Work, host: HostHandle, call: Call) -> None:
        """Wait for a constructor, and add its host to the worker's."""
        try:
            call.result()
        except HostDiedError:
            raise
        except Exception as error:
            message = f"{host.name}: {work.title}: {type(error).__name__}: {first_line(error)}"
            raise ConstructorError(message) from error
        with self._lock:
            if not host.died and not work.released:
                work.homes.append(host)
                host.objects += work.weight
                return
        if host.died:
            raise HostDiedError(host.died, host.name)

    def _call(self, work: Work, request: tuple[Any, ...]) -> Call:
        data = _pickled_request(work, request)
        with self._lock:
            self._number += 1
            call = Call(self._number, data, self._take_back)
            if work.released:
                call.fail(_released(work))
            elif not work.homes and not work.reviving and not self._revive(work):
                call.fail(death_of(work))
            else:
                work.waiting.append(call)
                self._pump(work)
        return call

    def _call_now(self, work: Work, request: tuple[Any, ...]) -> Call:
        data = _pickled_request(work, request)
        with self._lock:
            call = Call(_NO_NUMBER, data, lambda _: False)
            if work.released:
                call.fail(_released(work))
            elif not work.homes:
                call.fail(death_of(work))
            else:
                host = min(work.homes, key=lambda home: home.load)
                self._send(work, host, call, "call_now", data)
        return call

    def _pump(self, work: Work) -> None:
        """Send all calls that can be sent; the lock is held."""
        while work.waiting:
            host = min((home for home in work.homes if home.has_room), key=lambda home: home.load, default=None)
            if host is None:
                return
            call = work.waiting.popleft()
            if not call.done():  # cancelled
                self._send(work, host, call, "call", call.number, call.request, self._turn())

    def _turn(self) -> float:
        """Return the time at which our turn began, and begin a new turn if it has ended; the lock is held."""
        waited_for = any(call.number != _NO_NUMBER for call in self._sent)
        if not waited_for or self._served > _TURN_S * sum(host.slots for host in self._all):
            self._since, self._served = time.time(), 0.0
        return self._since

    def _send(self, work: Work, host: HostHandle, call: Call, method: str, *arguments: Any) -> None:
        call.host = host
        call.request = b""
        host.count += 1
        host.weight += work.weight
        self._sent.add(call)
        ref = getattr(host.actor, method).remote(self._session, work.object_id, *arguments)
        # The callback runs in one of Ray's threads, which must not wait.
        ref.future().add_done_callback(
            lambda done: self._replies.put(lambda: self._answered(work, host, call, done, is_call=method == "call"))
        )

    def _answered(self, work: Work, host: HostHandle, call: Call, done: Future[Reply], *, is_call: bool) -> None:
        with self._lock:
            host.count -= 1
            host.weight -= work.weight
            self._sent.discard(call)
        try:
            reply = done.result()
        except Exception as error:  # Ray's: the host died, or the result or the connection was lost
            self._perhaps_died(host, error)
            died = HostDiedError(f"{host.died}, while a call of {work.title} was under way", host.name)
            call.fail(died if host.died else WorkerError(f"{host.name}: no result: {first_line(error)}"))
        else:
            host.others = reply.others
            self._served += reply.seconds if is_call else 0.0
            settle_call(call, reply, host.name)
        with self._lock:
            for other in list(self._works.values()):
                if other.waiting:
                    self._pump(other)

    def _take_back(self, call: Call) -> bool:
        import ray

        host = call.host
        if host is None:
            return True
        with suppress(ray.exceptions.RayError):
            return bool(ray.get(host.ask("cancel", self._session, call.number), timeout=_ANSWER_S))
        return False

    def _release(self, work: Work) -> None:
        import ray

        with self._lock:
            if work.released:
                raise UnknownWorkerError(f"{work.title} {work.object_id}: the worker was released already")
            work.released = True
            self._works.pop(work.object_id, None)
            waiting, work.waiting = work.waiting, deque()
            homes, work.homes = work.homes, []
            for host in homes:
                host.objects -= work.weight
        for call in waiting:
            message = f"{work.title} {work.object_id}: the worker was released before the call began"
            call.fail(UnknownWorkerError(message))
        for ref in [host.ask("release", self._session, work.object_id) for host in homes]:
            with suppress(ray.exceptions.RayError):  # a dead host has nothing to release
                ray.get(ref, timeout=_ANSWER_S)

    def _perhaps_died(self, host: HostHandle, error: Exception) -> None:
        """Mark a host as dead if an error means that, and not only that the host is unreachable."""
        import ray

        unavailable = ray.exceptions.ActorUnavailableError
        if isinstance(error, ray.exceptions.RayActorError) and not isinstance(error, unavailable):
            self._host_died(host, error)

    def _host_died(self, host: HostHandle, error: Exception) -> None:
        """Mark a host as dead, and update its workers."""
        with self._lock:
            if host.died:
                return
            host.died = why_dead(error)
            for work in [work for work in self._works.values() if host in work.homes]:
                work.homes.remove(host)
                work.end = (host.name, host.died)
                if not work.homes and not self._revive(work):
                    for call in drained(work.waiting):
                        call.fail(death_of(work))

    def _revive(self, work: Work) -> bool:
        """Begin to make a worker again whose hosts are dead, if it is to be recreated; the lock is held."""
        if not work.recreate or work.lives >= _MOST_LIVES or all(host.died for host in self._all):
            return False
        work.lives += 1
        work.reviving = True
        threading.Thread(target=self._make_again, args=(work,), name="shared workers: recreate", daemon=True).start()
        return True

    def _make_again(self, work: Work) -> None:
        error: Exception = _released(work)
        try:
            host = self._least_loaded(work)
            self._made(work, host, self._send_create(work, host))
        except Exception as raised:  # raised by the worker's waiting calls
            error = raised
        with self._lock:
            work.reviving = False
            again = isinstance(error, HostDiedError) and self._revive(work)
            failed = list(drained(work.waiting)) if not work.homes and not again else []
            self._pump(work)
        for call in failed:
            call.fail(error)

    def _refresh(self) -> None:
        """Request the state of all hosts."""
        import ray

        asked = [(host, host.ask("state"), host.ask("renew", self._session)) for host in self._all if not host.died]
        for host, state, others in asked:
            try:
                host.last, host.others = ray.get([state, others], timeout=_ANSWER_S)
            except ray.exceptions.RayError as error:
                self._perhaps_died(host, error)

    def _settle_replies(self) -> None:
        while (settle := self._replies.get()) is not None:
            with suppress(Exception):  # an error in one answer must not block the others
                settle()
            del settle

    def _keep_alive(self) -> None:
        import ray

        nap = min(_RENEW_S, min(host.lease for host in self._all) / _RENEWALS_PER_LEASE)
        while not self._closed.wait(nap) and ray.is_initialized():  # otherwise a request would start another cluster
            asked = {host.ask("renew", self._session): host for host in self._all if not host.died}
            answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=nap) if asked else ((), ())
            for ref in answered:  # a busy host may answer the next request
                host = asked[ref]
                try:
                    host.others = ray.get(ref)
                except Exception as error:
                    self._perhaps_died(host, error)


def _pickled_request(work: Work, request: tuple[Any, ...]) -> bytes:
    try:
        return pickled(request)
    except Exception as error:  # whatever their __reduce__ does
        message = f"{work.title}.{request[0]}: its arguments cannot be pickled: {first_line(error)}"
        raise WorkerError(message) from error


def _released(work: Work) -> UnknownWorkerError:
    return UnknownWorkerError(f"{work.title} {work.object_id}: the worker was released")
