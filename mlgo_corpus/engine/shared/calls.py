"""What a driver of shared workers keeps: its hosts, its workers, its calls, and what becomes of a host's reply."""

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

# The concurrency group of what a host answers at once.
CONTROL: Final = "control"
# A host has its next calls at hand while it answers.
_AHEAD_PER_SLOT = 2


@dataclass(slots=True, eq=False)
class HostHandle:
    """A host, as this driver sees it."""

    name: str
    actor: Any
    node: str = ""
    slots: int = 1
    lease: float = 0.0
    count: int = 0  # of our calls under way there
    weight: float = 0.0  # and their weight
    others: float = 0.0  # the weight of others' calls when it last answered
    objects: float = 0.0  # the weight of our objects there
    died: str = ""
    last: HostState | None = None

    @property
    def load(self) -> tuple[float, float]:
        """How much a slot has to do: the calls' weight, and among equals that of our objects."""
        return (self.weight + self.others) / self.slots, self.objects / self.slots

    @property
    def has_room(self) -> bool:
        """Whether to send it another call."""
        return not self.died and self.count < _AHEAD_PER_SLOT * self.slots

    def ask(self, method: str, *arguments: Any) -> Any:
        """Ask what is answered at once, even where the host has all slots taken."""
        return getattr(self.actor, method).options(concurrency_group=CONTROL).remote(*arguments)


class Call(Future[Any]):
    """What a worker's method will give: a future of ``concurrent.futures``, so that its functions wait for it.

    ``result`` raises what the method raised, with the traceback on the host among its notes; `HostDiedError` where the
    host died, so that nobody knows how far the method came; `UnknownWorkerError` where the worker was released.
    """

    def __init__(self, number: int, request: bytes, take_back: Callable[[Call], bool]) -> None:
        super().__init__()
        self.number = number  # the driver's, by which a host takes it back
        self.request = request  # until it is sent
        self.host: HostHandle | None = None  # from then on
        self._take_back = take_back
        self._told = threading.Lock()

    def cancel(self) -> bool:
        """Take the call back if it has not begun; False if it runs, or is over."""
        if self.cancelled():
            return True
        if self.done() or (self.host is not None and not self._take_back(self)):
            return False
        return self.give_up()

    def give_up(self) -> bool:
        """Be a call that was cancelled; False if it is over."""
        if not super().cancel():
            return False
        if self._told.acquire(blocking=False):  # once, whoever is first
            self.set_running_or_notify_cancel()  # which tells those who wait
        return True

    def succeed(self, result: Any) -> None:
        """Give the result to those who wait, unless the call was cancelled meanwhile."""
        with suppress(InvalidStateError):
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Raise an exception where they wait."""
        with suppress(InvalidStateError):
            self.set_exception(error)


@dataclass(slots=True, eq=False)
class Work:
    """What makes a worker, where it is, and its calls that are not sent yet."""

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
    """Pickle what goes to a host: what is defined in the driver's script goes by value."""
    from ray import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def drained(calls: deque[Call]) -> Iterator[Call]:
    """Take calls out of a queue."""
    while calls:
        yield calls.popleft()


def death_of(work: Work) -> HostDiedError:
    """Say that a worker is gone with its last host."""
    host, why = work.end
    return HostDiedError(f"{why}, and with it {work.title} {work.object_id}", host)


def settle_call(call: Call, reply: Reply, host: str) -> None:
    """Make of a host's reply what the caller gets."""
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
    except Exception as error:  # its module is not here
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
    """Give what an exception says on one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def why_dead(error: Exception) -> str:
    """Say in a few words what Ray takes ten lines for."""
    text = str(error)
    if "node has died" in text or "node was terminated" in text or "node is dead" in text:
        return "its machine is gone"
    return "its process died"
