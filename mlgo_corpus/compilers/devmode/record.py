"""The request and the record of a build, shared by its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PHASES = ("look", "packages", "wait", "sources", "unpack", "compile", "link", "probe")

ALREADY_THERE = "already there"

# Called with the phase, the amount done and the total: items, or bytes in "sources" and "unpack".
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a build, the seconds it took, and a detail (``17 files``)."""

    name: str
    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `mlgo_corpus.compilers.devmode.build.build_devmode`, with absolute paths."""

    llvm_config: str | None
    llvm_source: Path | None
    cache: Path
    install: bool
    jobs: int
    force: bool
    progress: Progress

    def counter(self, phase: str) -> Callable[[int, int], None]:
        """Return the function that reports the progress of a phase."""
        return lambda done, total: self.progress(phase, done, total)


@dataclass(slots=True)
class Record:
    """Measures the phases of a build."""

    begin: float = field(default_factory=time.monotonic)
    phases: list[Phase] = field(default_factory=list)
    fetched_bytes: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[list[str]]:
        """Measure a phase; yield a list to which the block adds details."""
        begin = time.monotonic()
        detail: list[str] = []
        yield detail
        self.phases.append(Phase(name, time.monotonic() - begin, ", ".join(detail)))


def count(number: int, thing: str) -> str:
    """Return ``1 file`` or ``2 files``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
