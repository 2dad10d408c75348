"""A process that hosts many objects for many drivers: the host's side of `mlgo_corpus.engine.shared.workers`.

A driver opens a session, which separates its objects and calls from those of others, and renews it every second or so.
A driver that is silent for a lease is dead: its waiting calls are dropped and its objects are freed. A host without
sessions ends itself after the same time again.

The host runs calls in one thread for each of its slots. Threads suffice, because the time is spent in compilers, which
are processes. The threads live as long as the host, and compilers are tied to the thread that starts them
(`mlgo_corpus.compilers.process.tied_to_us`), so that none outlives a host.

Of the waiting calls, those of the driver that has waited longest, by its own account, run first, on all hosts alike.
Equal shares would be worse for all: two experiments that begin to compile at the same time would finish at the same
time, and then train at the same time, while the hosts idle. One after the other, the first trains while the second
compiles, and so on. The length of a driver's turn is limited by the driver: see `mlgo_corpus.engine.shared.workers`.

`Host` does not use Ray, and works within one process; `HostActor` is the class of which Ray makes a process.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple

# The kinds of replies: a pickled result, a pickled exception, the text of one that cannot be pickled, or no answer,
# because there is no such object, or the call was cancelled before it began.
RESULT: Final = "result"
RAISED: Final = "raised"
TOLD: Final = "told"
UNKNOWN: Final = "unknown"
CANCELLED: Final = "cancelled"

# The number of expired sessions that a host remembers, to name the reason in errors.
_REMEMBERED = 1000


class Reply(NamedTuple):
    """A host's answer.

    ``body`` is pickled, ``text`` describes an error, ``seconds`` is the time that the call occupied its slot, and
    ``others`` is the weight of other drivers' calls, running and waiting.
    """

    kind: str
    body: bytes
    text: str
    others: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of a host.

    Attributes:
        name: the host's name.
        node: the machine's address.
        pid: its process there.
        alive: whether it answers; if not, the figures are its last.
        slots: the number of calls that it runs at a time.
        drivers: the number of attached drivers.
        objects: the number of worker objects.
        running: the number of running calls, without priority calls, which need no slot.
        waiting: the number of calls that wait for a slot, without those that still wait at their driver.
        up_s: the seconds since it began.
        busy_s: the seconds that its slots were occupied, summed over them.
        cpu_s: the CPU seconds of the host and of all its compilers that have ended.
    """

    name: str
    node: str
    pid: int
    alive: bool
    slots: int
    drivers: int
    objects: int
    running: int
    waiting: int
    up_s: float
    busy_s: float
    cpu_s: float


@dataclass(slots=True, eq=False)
class _Object:
    """A worker object; it is freed after its release and the end of its last running call."""

    instance: Any
    weight: float
    running: int = 0
    released: bool = False


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits or runs, or a constructor, which has no ``target``."""

    session: str
    number: int
    target: _Object | None
    weight: float
    since: float
    run: Callable[[], Any]
    future: Future[Reply] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Session:
    """A driver's objects and calls on this host."""

    seen: float
    objects: dict[str, _Object] = field(default_factory=dict)
    waiting: deque[_Call] = field(default_factory=deque)
    weight: float = 0.0  # of the calls that run and wait
    last: int = 0  # the highest number of its calls that arrived
    refused: set[int] = field(default_factory=set)  # calls that were cancelled before they arrived
    lapsed: bool = False  # whether it has returned after it was assumed dead


class Host:
    """Objects, their calls, and threads to run these.

    Args:
        name: the host's name in errors.
        slots: the number of calls to run at a time.
        lease: the seconds after which a silent driver is assumed dead.
        dumps: pickles results and exceptions.
        end: ends this process when no driver needs it any more; by default the process continues.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        lease: float,
        *,
        dumps: Callable[[Any], bytes] = pickle.dumps,
        end: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self.slots = slots
        self.lease = lease
        self._dumps = dumps
        self._end = end
        self._begin = self._left = time.monotonic()
        self._busy = 0.0
        self._counted = self._begin
        self._sessions: dict[str, _Session] = {}
        self._expired: dict[str, None] = {}
        self._running: set[_Call] = set()
        self._changed = threading.Condition()
        self._closed = False
        for target in (*[self._serve] * slots, self._watch):
            threading.Thread(target=target, name=f"{name}: {target.__name__}", daemon=True).start()

    def renew(self, session: str) -> float:
        """Begin or prolong a driver's session; return the weight of the other drivers' calls."""
        with self._changed:
            self._session(session)
            return self._others(session)

    def close_session(self, session: str) -> int:
        """Free a driver's objects and drop its calls; return the number of remaining drivers."""
        with self._changed:
            dropped = self._drop(session)
            left = len(self._sessions)
        _free(dropped)
        return left

    def create(self, session: str, object_id: str, factory: bytes, weight: float) -> Future[Reply]:
        """Make an object with a pickled ``(callable, args, kwargs)``; the result is None.

        This needs no slot: an experiment can begin while another one occupies all of them.
        """

        def construct() -> None:
            make, args, kwargs = pickle.loads(factory)  # noqa: S301 - every user of the cluster may run code on it
            made = _Object(make(*args, **kwargs), weight)
            with self._changed:
                found = self._sessions.get(session)
                if found is not None:
                    found.objects[object_id] = made
            if found is None:  # its driver is gone
                _free([made])

        with self._changed:
            self._session(session).weight += weight
        call = _Call(session, -1, None, weight, 0.0, construct)
        threading.Thread(target=self._perform, args=(call,), name=f"{self.name}: create", daemon=True).start()
        return call.future

    def call(self, session: str, object_id: str, number: int, request: bytes, since: float = 0.0) -> Future[Reply]:
        """Call an object's method, a pickled ``(name, args, kwargs)``, in a slot.

        ``number`` is the driver's number of the call, and ``since`` the time since which the driver has waited.
        """
        with self._changed:
            found = self._sessions.get(session)
            target = None if found is None else found.objects.get(object_id)
            if found is None or target is None:
                return self._unknown(session, object_id)
            found.last = max(found.last, number)
            call = _Call(session, number, target, target.weight, since, partial(_call_method, target, request))
            self._enqueue(call)
            if number in found.refused:
                found.refused.remove(number)
                self._forget(call, CANCELLED, "")
            return call.future

    def call_now(self, session: str, object_id: str, request: bytes) -> Future[Reply]:
        """Call an object's method as `call` does, but at once: it needs no slot, and cannot be cancelled."""
        with self._changed:
            found = self._sessions.get(session)
            target = None if found is None else found.objects.get(object_id)
            if found is None or target is None:
                return self._unknown(session, object_id)
            target.running += 1
            found.weight += target.weight
        call = _Call(session, -1, target, target.weight, 0.0, partial(_call_method, target, request))
        threading.Thread(target=self._perform, args=(call,), name=f"{self.name}: call now", daemon=True).start()
        return call.future

    def cancel(self, session: str, number: int) -> bool:
        """Cancel a call that waits, or has not arrived yet; return False if it runs or has ended."""
        with self._changed:
            found = self._sessions.get(session)
            if found is None:
                return False
            if number > found.last:
                found.refused.add(number)
                return True
            call = next((call for call in found.waiting if call.number == number), None)
            if call is not None:
                self._forget(call, CANCELLED, "")
            return call is not None

    def release(self, session: str, object_id: str) -> Reply:
        """Free an object after its running calls; answer the waiting ones that the worker was released."""
        with self._changed:
            found = self._sessions.get(session)
            target = None if found is None else found.objects.pop(object_id, None)
            if found is None or target is None:
                return self._unknown(session, object_id).result()
            for call in [call for call in found.waiting if call.target is target]:
                self._forget(call, UNKNOWN, f"{self.name}: the worker {object_id} was released before the call began")
            target.released = True
            freed = [] if target.running else [target]
        _free(freed)
        return Reply(RESULT, self._dumps(None), "", 0.0)

    def state(self) -> HostState:
        """Return the host's state."""
        with self._changed:
            self._count_busy()
            used = os.times()
            return HostState(
                name=self.name,
                node="",
                pid=os.getpid(),
                alive=True,
                slots=self.slots,
                drivers=len(self._sessions),
                objects=sum(len(session.objects) for session in self._sessions.values()),
                running=len(self._running),
                waiting=sum(len(session.waiting) for session in self._sessions.values()),
                up_s=time.monotonic() - self._begin,
                busy_s=self._busy,
                cpu_s=used.user + used.system + used.children_user + used.children_system,
            )

    def close(self) -> None:
        """Free everything, and end each thread after its call (a process of its own just ends)."""
        with self._changed:
            self._closed = True
            freed = [target for session in list(self._sessions) for target in self._drop(session)]
            self._changed.notify_all()
        _free(freed)

    # The following methods, up to `_serve`, require that the lock is held.

    def _session(self, session: str) -> _Session:
        found = self._sessions.setdefault(session, _Session(0.0))
        found.seen = time.monotonic()
        if session in self._expired:
            del self._expired[session]
            found.lapsed = True
        return found

    def _others(self, session: str) -> float:
        return sum(other.weight for name, other in self._sessions.items() if name != session)

    def _enqueue(self, call: _Call) -> None:
        session = self._sessions[call.session]
        session.waiting.append(call)
        session.weight += call.weight
        self._changed.notify()

    def _unknown(self, session: str, object_id: str) -> Future[Reply]:
        why = f"there is no worker {object_id} here: it was released, or is another driver's, or on another host"
        if session in self._expired or (session in self._sessions and self._sessions[session].lapsed):
            why = f"the worker {object_id} was freed, because its driver was silent for {self.lease:g} seconds"
        done: Future[Reply] = Future()
        done.set_result(Reply(UNKNOWN, b"", f"{self.name}: {why}", self._others(session)))
        return done

    def _forget(self, call: _Call, kind: str, text: str) -> None:
        """Answer a call that waits instead of running it."""
        session = self._sessions[call.session]
        session.waiting.remove(call)
        session.weight -= call.weight
        call.future.set_result(Reply(kind, b"", text, self._others(call.session)))

    def _drop(self, session: str) -> list[_Object]:
        """Drop a session; return the objects to free, some of which may have running calls."""
        found = self._sessions.get(session)
        if found is None:
            return []
        for call in list(found.waiting):
            self._forget(call, CANCELLED, "")
        del self._sessions[session]
        if not self._sessions:
            self._left = time.monotonic()
        for target in found.objects.values():
            target.released = True
        return list(found.objects.values())

    def _count_busy(self) -> None:
        now = time.monotonic()
        self._busy += len(self._running) * (now - self._counted)
        self._counted = now

    def _take(self) -> _Call | None:
        """Return the call whose turn it is, and mark it as running; None if no call waits."""
        with_calls = [(session.waiting[0].since, name) for name, session in self._sessions.items() if session.waiting]
        if not with_calls:
            return None
        _, name = min(with_calls)
        call = self._sessions[name].waiting.popleft()
        if call.target is not None:
            call.target.running += 1
        self._count_busy()
        self._running.add(call)
        return call

    def _over(self, call: _Call) -> list[_Object]:
        """Mark a call as ended; return its object if it can be freed now."""
        self._count_busy()
        self._running.discard(call)
        if (session := self._sessions.get(call.session)) is not None:
            session.weight -= call.weight
        target = call.target
        if target is None:
            return []
        target.running -= 1
        return [target] if target.released and not target.running else []

    def _serve(self) -> None:
        """Run calls: the loop of one thread."""
        while True:
            with self._changed:
                while (call := self._take()) is None:
                    if self._closed:
                        return
                    self._changed.wait()
            self._perform(call)
            del call

    def _perform(self, call: _Call) -> None:
        """Run a call and answer it."""
        begin = time.monotonic()
        kind, body, text = self._run(call)
        with self._changed:
            freed = self._over(call)
            reply = Reply(kind, body, text, self._others(call.session), time.monotonic() - begin)
        call.target, call.run = None, lambda: None  # a reference to the future must not keep the object alive
        _free(freed)
        call.future.set_result(reply)

    def _run(self, call: _Call) -> tuple[str, bytes, str]:
        """Run a call; return its result or its exception as the answer's kind, body and text."""
        try:
            result = call.run()
        except BaseException as error:  # also SystemExit, which would end the thread
            told = "".join(traceback.format_exception(type(error), error, _below_ours(error.__traceback__)))
            traceback.clear_frames(error.__traceback__)  # they refer to the object
            return (*self._pickled_error(error.with_traceback(None)), told)
        try:
            return RESULT, self._dumps(result), ""
        except Exception as error:  # its __reduce__ may raise anything
            why = f"{self.name}: the result, a {type(result).__name__}, cannot be pickled: {error}".splitlines()[0]
            return TOLD, why.encode(), ""

    def _pickled_error(self, error: BaseException) -> tuple[str, bytes]:
        if isinstance(error, Exception):
            with suppress(Exception):  # some exceptions can be pickled, but not unpickled
                body = self._dumps(error)
                if type(pickle.loads(body)) is type(error):  # noqa: S301 - pickled a line above
                    return RAISED, body
        return TOLD, f"{self.name}: {type(error).__name__}: {error}".strip().splitlines()[0].encode()

    def _watch(self) -> None:
        """Drop the sessions of silent drivers, and end the host when it has no driver left."""
        nap = self.lease / 4
        while not self._closed:
            time.sleep(nap)
            now = time.monotonic()
            freed = []
            with self._changed:
                for name in [name for name, session in self._sessions.items() if now - session.seen > self.lease]:
                    freed += self._drop(name)
                    self._expired[name] = None
                    if len(self._expired) > _REMEMBERED:
                        del self._expired[next(iter(self._expired))]
                alone = not self._sessions and now - self._left > self.lease
            _free(freed)
            if alone and self._end is not None:
                self._end()


def _call_method(target: _Object, request: bytes) -> Any:
    method, args, kwargs = pickle.loads(request)  # noqa: S301 - every user of the cluster may run code on it
    return getattr(target.instance, method)(*args, **kwargs)


def _below_ours(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of `Host._run` and the function it calls: the frames of the worker's code are below them."""
    for _ in range(2):
        frames = None if frames is None else frames.tb_next
    return frames


def _free(objects: list[_Object]) -> None:
    """Free objects that no driver can use any more.

    An object with a method ``close`` is closed first. An object that still runs calls has lost its driver; if it has a
    method ``stop``, that is called so that these end soon, and the object is freed after them.
    """
    for target in objects:
        busy = target.running > 0
        method = getattr(target.instance, "stop" if busy else "close", None)
        if callable(method) and not isinstance(target.instance, type):
            with suppress(Exception):  # no driver waits for it
                method()
        if not busy:
            target.instance = None
        del method
    if objects:
        gc.collect()  # objects in reference cycles would stay until enough others are made


class HostActor:
    """A `Host` in a process of Ray's; methods that may take long are awaited, so that others can answer meanwhile."""

    def __init__(self, name: str, slots: int, lease: float) -> None:
        from ray import cloudpickle

        self._host = Host(name, slots, lease, dumps=cloudpickle.dumps, end=partial(os._exit, 0))

    async def begin(self) -> tuple[int, float, str]:
        """Return the slots, the lease, and the machine's address."""
        import ray

        return self._host.slots, self._host.lease, str(ray.util.get_node_ip_address())

    async def renew(self, session: str) -> float:
        """See `Host.renew`."""
        return self._host.renew(session)

    async def state(self) -> HostState:
        """See `Host.state`."""
        return self._host.state()

    async def cancel(self, session: str, number: int) -> bool:
        """See `Host.cancel`."""
        return self._host.cancel(session, number)

    async def create(self, session: str, object_id: str, factory: bytes, weight: float) -> Reply:
        """See `Host.create`."""
        return await asyncio.wrap_future(self._host.create(session, object_id, factory, weight))

    async def call(self, session: str, object_id: str, number: int, request: bytes, since: float) -> Reply:
        """See `Host.call`."""
        return await asyncio.wrap_future(self._host.call(session, object_id, number, request, since))

    async def call_now(self, session: str, object_id: str, request: bytes) -> Reply:
        """See `Host.call_now`."""
        return await asyncio.wrap_future(self._host.call_now(session, object_id, request))

    async def release(self, session: str, object_id: str) -> Reply:
        """See `Host.release`."""
        return await asyncio.to_thread(self._host.release, session, object_id)

    async def close_session(self, session: str) -> int:
        """See `Host.close_session`."""
        return await asyncio.to_thread(self._host.close_session, session)
