"""Which engine does the work, and what it says of its workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.remote import parse_place

PathText = TypeVar("PathText", Path, str, Path | str)
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
