"""The choice of the engine that does the work, and the status of its workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.remote import parse_place

_PathText = TypeVar("_PathText", Path, str, Path | str)
_MOST_RETRIES = 100
LOCAL: Final = "local"
RAY: Final = "ray"
_ENGINES = (LOCAL, RAY)


@dataclass(slots=True)
class WorkerFigures:
    """The work of one worker of a cluster; ``seconds`` is the time that it spent on its items."""

    host: str
    pid: int
    items: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _EngineStatus:
    """The state of a cluster.

    Attributes:
        workers: the number of available workers.
        under_way: the number of chunks that are being processed, or wait for those before them.
        figures: of all workers so far.
    """

    workers: int = 0
    under_way: int = 0
    figures: list[WorkerFigures] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The place where work is done. It is chosen once, and passed down.

    Attributes:
        kind: ``local`` or ``ray``.
        address: of a Ray cluster, ``HOST:PORT``; by default ``RAY_ADDRESS``, or this machine's cluster.
        retries: the number of times that an item is tried again after its worker died; by default once, on a cluster
            twice.
        status: of a cluster, for progress displays.
        may_fork: whether workers on this machine may be forks of this process. Those that run the user's own code may
            not: the threads of its libraries would be missing there (LightGBM's and polars' wait for them for ever).

    Raises:
        UsageError: there is no such engine, or the parameters contradict each other.
    """

    kind: str = LOCAL
    address: str | None = None
    retries: int | None = None
    status: _EngineStatus = field(default_factory=_EngineStatus, compare=False)
    may_fork: bool = True

    def __post_init__(self) -> None:
        if self.kind not in _ENGINES:
            raise UsageError(f"expected one of {', '.join(_ENGINES)}", option="engine", value=self.kind)
        if self.address is not None and self.kind != RAY:
            raise UsageError("belongs to `engine` ray", option="ray_address", value=self.address)
        if self.retries is not None and not 0 <= self.retries <= _MOST_RETRIES:
            bound = "at least 0" if self.retries < 0 else f"at most {_MOST_RETRIES}"
            raise UsageError(f"expected {bound}", option="retries", value=self.retries)

    def place(self, path: _PathText) -> _PathText:
        """Return a path for the workers: absolute if they are on other machines. A URL is unchanged."""
        if self.kind == LOCAL or not isinstance(place := parse_place(path), Path):
            return path
        return type(path)(place.absolute())


HERE: Final = EngineChoice()
"""This machine."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The result of an item whose worker died, or exceeded its time, while it worked on this item alone."""

    timed_out: bool
    detail: str


def available_cpus() -> int:
    """Return the number of CPUs that this process may use: the default of ``jobs``."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
