"""The reasons why runs fail, in a closed vocabulary, found from errors and from compilers' messages."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from mlgo_corpus.compilers.process import STDERR_TAIL
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.tracetable import ESCAPES
from mlgo_corpus.errors import ProtocolError, ToolError
from mlgo_corpus.files.text import is_disk_full, os_reason
from mlgo_corpus.formats.commands.replay import required_files

# Reasons that may not recur: the machine may have been out of memory, or busy.
_MAY_PASS = frozenset({RunReason.SIGNAL, RunReason.TIMEOUT, RunReason.PROTOCOL_ERROR})

# Messages of clang 17 to 22 (lib/Bitcode/Reader, lib/Support/CommandLine.cpp, clang/lib/Frontend).
_MESSAGES = (
    (re.compile(r"Unknown command line argument|unknown argument|unknown target CPU"), RunReason.UNKNOWN_OPTION),
    (re.compile(r"Unknown attribute kind|Incompatible epoch|Unsupported version"), RunReason.NEWER_BITCODE),
    (
        re.compile(
            r"file doesn't start with bitcode header|Invalid bitcode|Malformed|Unexpected end|Expected a single module"
            r"|expected top-level entity|Corrupted|can't (?:skip|enter)|Invalid (?:record|value|abbrev)"
            r"|Invalid (?:encoding|metadata)|Abbrev record|invalid LLVM IR input|Broken module found|Unknown bitcode"
        ),
        RunReason.UNREADABLE_BITCODE,
    ),
)
# The bitcode reader adds the versions to most errors; only they distinguish damage from newer bitcode.
_VERSIONS = re.compile(r"\(Producer: 'LLVM(\d+)\.[^']*' Reader: 'LLVM (\d+)\.")
# A program prints "terminate called without" if it cannot even allocate the exception. The messages from "failed to
# map" on are those of glibc's loader if the limit is too small for the program (its elf/dl-load.c). Text of a module
# does not count: IR has its strings behind a quote, and a stack dump its functions behind a tab.
_OUT_OF_MEMORY = re.compile(
    r"^[^\"\t\n]*?(?:"
    r"[Oo]ut of memory|std::bad_alloc|[Cc]annot allocate memory|terminate called without"
    r"|failed to map segment|cannot map zero-fill|cannot change memory protections|failed to allocate memory"
    r"|error while loading shared libraries: .*cannot create|cannot make segment writable)",
    re.MULTILINE,
)
_LONGEST = 300
# The start of a message about a place in a file, in all of clang's formats (-fdiagnostics-format=), or in a macro of an
# assembler, whose arguments may come from a file; a place in the module's own assembly does not match.
_PLACE_IN_A_FILE = re.compile(
    r"^(?:In file i|I)ncluded from "
    r"|^(?!<inline asm>:|<unknown>:).*?\S"
    r"(?:\(\d+(?:,\d+)?\)|:\d+(?::\d+)?(?::(?:\{[-\d:]+\})+)?| \+\d+(?::\d+)?)\s*:?\s*"
    r"(?:fatal )?(?:error|warning|note|remark)\b"
    r"|\"artifactLocation\"",
    re.MULTILINE,
)
_NOT_KEPT = "error: (the message quotes a file of this machine and is not kept; `trust_corpus` keeps it)"


def without_quotes(stderr: str, command: Sequence[str], *, trusted: bool) -> str:
    """Return a compiler's stderr without text that it may have read from a file of this machine.

    Rows are published, and the corpus is untrusted: its commands name files (a list, a profile) of which LLVM quotes
    the line that it cannot parse, and a module's assembly may include any file. ThinLTO's indexes are not quoted.

    Args:
        stderr: the compiler's stderr.
        command: its cc1 options.
        trusted: whether the corpus is trusted: then all is kept.
    """
    if trusted or not stderr:
        return stderr
    names_files = any(not option.startswith("-fthinlto-index") for option, _ in required_files(command))
    # If stderr was cut, the beginning of its first message may be missing, and with it the place.
    if names_files or "-fno-show-source-location" in command or len(stderr.encode()) >= STDERR_TAIL:
        return _NOT_KEPT
    text = ESCAPES.sub("", stderr)
    place = _PLACE_IN_A_FILE.search(text)
    return stderr if place is None else text[: text.rfind("\n", 0, place.start()) + 1] + _NOT_KEPT


class RunFailure(Exception):  # noqa: N818 - it becomes a row, not an error
    """A run failed, for this reason; ``may_pass`` if it may succeed the next time."""

    def __init__(self, reason: RunReason, detail: str, *, may_pass: bool | None = None) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = " ".join(detail.split())
        self.may_pass = reason in _MAY_PASS if may_pass is None else may_pass


def classify(
    error: ToolError | ProtocolError | OSError,
    *,
    limited: bool = False,
    timeout: float | None = None,
    kept: str | None = None,
) -> tuple[RunReason, str]:
    """Return the reason that fits an error, and one line about it.

    Args:
        error: the error of a compile, or of the system.
        limited: whether the compile had a memory limit.
        timeout: its time limit in seconds.
        kept: the part of its stderr that may be quoted (`without_quotes`); by default all.
    """
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return (RunReason.DISK_FULL if is_disk_full(error) else RunReason.MISSING_FILE), where + os_reason(error)
    said = _said(error.stderr)
    shown = said if kept is None else _said(kept)
    if isinstance(error, ProtocolError):
        return RunReason.PROTOCOL_ERROR, error.message
    if error.returncode is None:
        return RunReason.TIMEOUT, "not done" if timeout is None else f"not done after {timeout:g} seconds"
    if says_disk_full(said):
        return RunReason.DISK_FULL, shown
    if limited and _OUT_OF_MEMORY.search(error.stderr):
        return RunReason.MEMORY_LIMIT, shown
    if error.returncode == -signal.SIGXFSZ:
        return RunReason.SIGNAL, "the compiler wrote more into one file than it may"
    if error.returncode < 0:
        return RunReason.SIGNAL, f"{error.outcome}: {shown}" if shown else error.outcome
    if versions := _VERSIONS.search(said):
        newer = int(versions[1]) > int(versions[2])
        return RunReason.NEWER_BITCODE if newer else RunReason.UNREADABLE_BITCODE, shown
    for pattern, reason in _MESSAGES:
        if pattern.search(said):
            return reason, shown
    return RunReason.COMPILER_ERROR, shown or error.outcome


def says_disk_full(said: str, *, links: bool = False) -> bool:
    """Return True if a tool says that the disk is full.

    lld writes to memory that is mapped to its output: of a tool that links, a bus error means that, too.
    """
    texts = ("No space left on device", "Disk quota exceeded", *(("Bus error",) if links else ()))
    return any(text in said for text in texts)


def module_failure(error: OSError) -> RunFailure:
    """Return the failure of a module of which a file cannot be read or written.

    Raises:
        OSError: the disk is full, and it is so for the other modules, too.
    """
    reason, detail = classify(error)
    if reason is RunReason.DISK_FULL:
        raise error
    return RunFailure(reason, detail)


def _said(stderr: str) -> str:
    """Return the first line with an error, else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "LLVM ERROR" in line or "Unknown command line" in line]
    return (errors or lines or [""])[0 if errors else -1][:_LONGEST]
