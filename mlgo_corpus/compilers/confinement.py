"""The confinement of compilers that run on an untrusted corpus: walls, and limits with defaults.

With ``trust_corpus`` the corpus is the user's own: then there are no walls, and only the limits that the user sets.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.compilers.walls import Walls, can_launch, close_launchers, standing, walls_around
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import ToolError

FILE_LIMIT: Final = 2 << 30
"""Bytes that a compiler may write into one file: objects with debug information have tens of megabytes."""

# The smallest default for a compiler's address space: its libraries alone take half a gigabyte of it.
_LEAST_MEMORY: Final = 4 << 30
_TRY_S: Final = 20.0
# The exit codes of the launcher and the C library's loader.
_NOT_STARTED: Final = (126, 127)


@dataclass(frozen=True, slots=True)
class Confinement:
    """The limits and walls of a program.

    Attributes:
        memory_limit: bytes of address space; None for no limit.
        file_limit: bytes of a file that it writes; None for no limit.
        walls: what it may read, write and execute; None for anything.
    """

    memory_limit: int | None
    file_limit: int | None
    walls: Walls | None

    def keywords(self) -> dict[str, Any]:
        """Return these as arguments of `run_tool` and `InteractiveSession`."""
        return {"memory_limit": self.memory_limit, "file_limit": self.file_limit, "walls": self.walls}


def confine(
    programs: Iterable[str], readable: Iterable[Path], *, memory_limit: int | None, trusted: bool
) -> Confinement:
    """Return the confinement of programs that compile a module.

    Args:
        programs: the paths of all programs that will be run.
        readable: the files and folders of the module, and of its run.
        memory_limit: the user's limit in bytes; None for `machine_share`.
        trusted: whether the corpus is the user's own.
    """
    if trusted or not hasattr(resource, "prlimit"):  # only Linux can limit other processes
        return Confinement(memory_limit, None, None)
    walls = try_walls(tuple(programs)).reading(readable) if can_launch() else None
    return Confinement(memory_limit or machine_share(), FILE_LIMIT, walls)


def machine_share() -> int | None:
    """Return the bytes of address space that a compiler may have by default: the machine's memory, shared among CPUs.

    None if the system does not report its memory.
    """
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return max(memory // available_cpus(), _LEAST_MEMORY)


@lru_cache
def try_walls(programs: tuple[str, ...]) -> Walls:
    """Return walls behind which these programs start. If one needs libraries in unusual places, it may read everything.

    Workers that are forked later inherit the cached result.
    """
    walls = walls_around(*programs)
    if standing().landlock and not all(_starts(program, walls) for program in programs):
        walls = Walls(walls.programs, ("/",))
    close_launchers()
    return walls


def _starts(program: str, walls: Walls) -> bool:
    try:
        run_tool((program, "--version"), cwd=Path("/"), timeout=_TRY_S, walls=walls)
    except ToolError as error:
        return error.returncode not in _NOT_STARTED
    return True
