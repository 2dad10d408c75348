"""What was asked of a build, and what it did: shared by its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PHASES = ("look", "packages", "wait", "sources", "unpack", "compile", "link", "probe")

ALREADY_THERE = "already there"

# Called with the phase, and how much of it is done and to be done: things, or bytes in "sources" and "unpack".
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a build, the seconds it took, and what there is to say of it (``17 files``)."""

    name: str
    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, as in `mlgo_corpus.compilers.devmode.build.build_devmode`; paths are absolute."""

    llvm_config: str | None
    llvm_source: Path | None
    cache: Path
    install: bool
    jobs: int
    force: bool
    progress: Progress

    def counter(self, phase: str) -> Callable[[int, int], None]:
        """Give the function that a phase tells its progress."""
        return lambda done, total: self.progress(phase, done, total)


@dataclass(slots=True)
class Record:
    """Measures the phases as they pass."""

    begin: float = field(default_factory=time.monotonic)
    phases: list[Phase] = field(default_factory=list)
    fetched_bytes: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[list[str]]:
        """Measure a phase; the block puts into the list what there is to say of it."""
        begin = time.monotonic()
        detail: list[str] = []
        yield detail
        self.phases.append(Phase(name, time.monotonic() - begin, ", ".join(detail)))


def count(number: int, thing: str) -> str:
    """Write ``1 file`` or ``2 files``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
