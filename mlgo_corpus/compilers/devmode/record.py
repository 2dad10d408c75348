"""The request and the record of a build, shared by its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mlgo_corpus.errors import UsageError

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
class Embedded:
    """A model that is linked into the tools: for release mode, instead of development mode.

    Attributes:
        name: of its policy.
        digest: what identifies it.
        task: whose decisions it makes.
        model: LLVM's class for it; a header of this name is included.
        header: the text of that header.
        features: what it decides by.
        default_on: whether clang uses it for -Os and -Oz without being told.
        languages: in whose sources it does so; in all if empty.
    """

    name: str
    digest: str
    task: str
    model: str
    header: str
    features: tuple[str, ...]
    default_on: bool = False
    languages: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """LLVM's file that includes the header.

        Raises:
            UsageError: there is none.
        """
        if self.model not in _USERS:
            raise UsageError(f"LLVM has no place for a policy for {self.task} in a compiler", option="policy")
        return _USERS[self.model]


# The files of LLVM's sources that a model is compiled into.
_USERS: Final = {
    "InlinerSizeModel": "llvm/lib/Analysis/MLInlineAdvisor.cpp",
    "RegAllocEvictModel": "llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp",
}


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
    embedded: Embedded | None = None

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
