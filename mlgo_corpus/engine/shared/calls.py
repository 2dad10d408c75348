"""The state of a driver of shared workers: its hosts, its workers, its calls, and the handling of a host's reply."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from mlgo_corpus.engine.shared.host import CANCELLED, RAISED, RESULT, TOLD, UNKNOWN, HostState, Reply
from mlgo_corpus.errors import HostDiedError, UnknownWorkerError, WorkerError

# The concurrency group of requests that a host answers at once.
CONTROL: Final = "control"
# The number of calls for each slot that are sent to a host, so that it has its next calls while it answers.
_AHEAD_PER_SLOT = 2


@dataclass(slots=True, eq=False)
class HostHandle:
    """A host from this driver's point of view."""

    name: str
    actor: Any
    node: str = ""
    slots: int = 1
    lease: float = 0.0
    count: int = 0  # the number of our calls under way there
    weight: float = 0.0  # the weight of these calls
    others: float = 0.0  # the weight of others' calls when it last answered
    objects: float = 0.0  # the weight of our objects there
    died: str = ""
    last: HostState | None = None

    @property
    def load(self) -> tuple[float, float]:
        """The load of a slot: the calls' weight and, for equal ones, our objects' weight."""
        return (self.weight + self.others) / self.slots, self.objects / self.slots

    @property
    def has_room(self) -> bool:
        """Whether another call can be sent to it."""
        return not self.died and self.count < _AHEAD_PER_SLOT * self.slots

    def ask(self, method: str, *arguments: Any) -> Any:
        """Send a request that is answered at once, even if all of the host's slots are occupied."""
        return getattr(self.actor, method).options(concurrency_group=CONTROL).remote(*arguments)


class Call(Future[Any]):
    """The future result of a worker's method: a future of ``concurrent.futures``, whose functions can wait for it.

    ``result`` raises the method's exception, with the traceback on the host among its notes; `HostDiedError` if the
    host died, so that it is unknown how far the method came; `UnknownWorkerError` if the worker was released.
    """

    def __init__(self, number: int, request: bytes, take_back: Callable[[Call], bool]) -> None:
        super().__init__()
        self.number = number  # the driver's, which identifies it when a host cancels it
        self.request = request  # until it is sent
        self.host: HostHandle | None = None  # after it is sent
        self._take_back = take_back
        self._notified = threading.Lock()

    def cancel(self) -> bool:
        """Cancel the call if it has not begun; return False if it runs, or has ended."""
        if self.cancelled():
            return True
        if self.done() or (self.host is not None and not self._take_back(self)):
            return False
        return self.give_up()

    def give_up(self) -> bool:
        """Mark the call as cancelled; return False if it has ended."""
        if not super().cancel():
            return False
        if self._notified.acquire(blocking=False):  # only the first caller
            self.set_running_or_notify_cancel()  # this notifies the waiting functions
        return True

    def succeed(self, result: Any) -> None:
        """Set the result, unless the call was cancelled meanwhile."""
        with suppress(InvalidStateError):
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Set an exception, unless the call was cancelled meanwhile."""
        with suppress(InvalidStateError):
            self.set_exception(error)


@dataclass(slots=True, eq=False)
class Work:
    """A worker: its factory, its hosts, and its calls that are not sent yet."""

    factory: bytes
    title: str
    weight: float
    recreate: bool
    object_id: str
    homes: list[HostHandle] = field(default_factory=list)
    waiting: deque[Call] = field(default_factory=deque)
    lives: int = 1
    reviving: bool = False
    released: bool = False
    end: tuple[str, str] = ("", "")  # the last host that it died with, and why


def pickled(value: Any) -> bytes:
    """Pickle a value for a host; definitions of the driver's script are pickled by value."""
    from ray import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def drained(calls: deque[Call]) -> Iterator[Call]:
    """Remove all calls from a queue and yield them."""
    while calls:
        yield calls.popleft()


def death_of(work: Work) -> HostDiedError:
    """Return the error for a worker that was lost with its last host."""
    host, why = work.end
    return HostDiedError(f"{why}, and with it {work.title} {work.object_id}", host)


def settle_call(call: Call, reply: Reply, host: str) -> None:
    """Set a call's outcome from a host's reply."""
    if reply.kind == CANCELLED:
        call.give_up()
        return
    if reply.kind == UNKNOWN:
        call.fail(UnknownWorkerError(reply.text))
        return
    if reply.kind == TOLD:
        call.fail(_noted(WorkerError(reply.body.decode()), reply.text, host))
        return
    try:
        value = pickle.loads(reply.body)  # noqa: S301 - from our own object's host
    except Exception as error:  # for example, its module is missing here
        call.fail(WorkerError(f"{host}: the answer cannot be unpickled here: {first_line(error)}"))
        return
    if reply.kind == RAISED:
        call.fail(_noted(value, reply.text, host))
    elif reply.kind == RESULT:
        call.succeed(value)


def _noted(error: Exception, text: str, host: str) -> Exception:
    if text:
        error.add_note(f"on {host}:\n{text.rstrip()}")
    return error


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or the name of its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def why_dead(error: Exception) -> str:
    """Summarise Ray's message of ten lines in a few words."""
    text = str(error)
    if "node has died" in text or "node was terminated" in text or "node is dead" in text:
        return "its machine is gone"
    return "its process died"
