"""Chunks of items under way, and their results in order: shared by the local engine and the Ray engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

CHUNKS_AHEAD = 4
"""The number of chunks for each worker that are under way, or wait to be yielded."""

# A worker has its next chunk already while we read its answer. That chunk must fit into the pipe (64 KiB): a worker
# that waits for us to read its answer, while we wait for it to read its next chunk, would wait for ever.
CHUNKS_AT_HAND = 2
"""The number of chunks that a worker has: the one that it works on, and the next ones."""

# A chunk amortises one round trip (about 50 microseconds) over its items, and is repeated after a crash.
_CHUNK = 32


def chunks(items: Iterable[Item], weigh: Callable[[Item], float]) -> Iterator[list[Item]]:
    """Divide items into chunks, as described for `parallel_map`."""
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
class Task(Generic[Item]):
    """A chunk under way, or one item of a chunk that is tried alone.

    Attributes:
        number: the chunk's.
        items: the items to process.
        first: the first item's position in the chunk.
        tries: the number of times that its worker died while it had this task alone.
        lost_machines: the number of times that its machine was lost.
        avoid: the machines on which its worker died.
    """

    number: int
    items: list[Item]
    first: int = 0
    tries: int = 0
    lost_machines: int = 0
    avoid: frozenset[str] = frozenset()

    def alone(self) -> Iterator[Task[Item]]:
        """Yield a task for each item."""
        for index, item in enumerate(self.items):
            yield Task(self.number, [item], self.first + index)


@dataclass(slots=True)
class _Slot:
    """The results of one chunk, until all before it were yielded."""

    results: list[Any]
    missing: int


class Queue(Generic[Item]):
    """Chunks to process, and results that wait until all before them were yielded.

    Attributes:
        retries: the tasks to repeat, before any new one.
        most: the number of chunks that may be under way or wait to be yielded.
        exhausted: whether a request for a chunk found no more.
    """

    def __init__(self, chunked: Iterator[list[Item]], most: int) -> None:
        self.most = most
        self.exhausted = False
        self.retries: deque[Task[Item]] = deque()
        self._chunks = chunked
        self._slots: dict[int, _Slot] = {}
        self._numbers = count()
        self._next_out = 0

    def __len__(self) -> int:
        return len(self._slots)

    def next(self) -> Task[Item] | None:
        """Return the next task; None if there is none, or if too many chunks are under way or wait already."""
        return self.retries.popleft() if self.retries else self.next_new()

    def next_new(self) -> Task[Item] | None:
        """Return the next task that was not tried yet, or None likewise."""
        if len(self._slots) >= self.most:
            return None
        chunk = next(self._chunks, None)
        if chunk is None:
            self.exhausted = True
            return None
        task = Task(next(self._numbers), chunk)
        self._slots[task.number] = _Slot([None] * len(chunk), len(chunk))
        return task

    def put(self, task: Task[Item], results: Sequence[Any]) -> None:
        """Store a task's results."""
        slot = self._slots[task.number]
        slot.results[task.first : task.first + len(results)] = results
        slot.missing -= len(results)

    def take(self) -> Iterator[Any]:
        """Yield the results that are next in order."""
        while (slot := self._slots.get(self._next_out)) is not None and slot.missing == 0:
            del self._slots[self._next_out]
            self._next_out += 1
            yield from slot.results
