"""The errors that this package raises on purpose.

::

    MlgoCorpusError
    ├── UsageError               the request cannot be carried out as it stands; nothing was written
    ├── FormatError              bytes that are not what they claim to be, with their place
    │   ├── TruncatedError       ... because they end too early
    │   └── UnsupportedError     ... or a valid variant that this package does not read
    ├── CorpusError              a corpus folder, or one of its modules
    ├── ToolError                a compiler or another program failed
    ├── ProtocolError            the other side of a live session broke the protocol
    └── WorkerError              a worker process died or ran past its deadline
        ├── ConstructorError     a shared worker could not be made; the cause has the reason
        ├── HostDiedError        the process that hosted a shared worker is gone
        └── UnknownWorkerError   a host has no worker of this id: released, lost, or another caller's

Each message is one line: what was read, what was expected, what was found, and where.
All errors survive pickling, because they cross process boundaries.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class MlgoCorpusError(Exception):
    """The root of the tree above; its text is one line that can be shown to a user."""


class UsageError(MlgoCorpusError):
    """The request cannot be carried out as it stands (exit code 2); nothing was written.

    A parameter is named as in Python; the command line shows it as its option. Within a message, parameters stand in
    backticks: ``is there already; `force` replaces it``.

    Args:
        message: what was expected, what was found, what to do.
        option: the parameter at fault, by its name in Python.
        value: the value of that parameter.
    """

    def __init__(self, message: str, *, option: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.option = option
        self.value = None if value is None else str(value)

    def __str__(self) -> str:
        return self.shown(self.option)

    def shown(self, option: str | None) -> str:
        """Return the error as one line, with the parameter at fault under another name."""
        if option is None:
            return self.message
        return f"{option if self.value is None else f'{option} {self.value}'}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_usage_error, (type(self), self.message, self.option, self.value))


def _rebuild_usage_error(kind: type[UsageError], message: str, option: str | None, value: str | None) -> UsageError:
    return kind(message, option=option, value=value)


class FormatError(MlgoCorpusError):
    """Bytes that break their format: ``path: byte offset: message``.

    ``formats`` works on bytes in memory and knows no path; the code that opened the file adds it with `at`.
    """

    def __init__(self, message: str, *, offset: int | None = None, path: Path | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.path = path

    def at(self, path: Path | None) -> FormatError:
        """Return the same error with the path of the file that it was found in, or with none."""
        return type(self)(self.message, offset=self.offset, path=path)

    def __str__(self) -> str:
        where = [str(self.path)] if self.path is not None else []
        if self.offset is not None:
            where.append(f"byte {self.offset}")
        return ": ".join([*where, self.message])

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_format_error, (type(self), self.message, self.offset, self.path))


def _rebuild_format_error(kind: type[FormatError], message: str, offset: int | None, path: Path | None) -> FormatError:
    return kind(message, offset=offset, path=path)


class TruncatedError(FormatError):
    """The bytes end before the structure that they begin."""


class UnsupportedError(FormatError):
    """A file of another kind, or a valid variant that this package does not read."""


class CorpusError(MlgoCorpusError):
    """A corpus folder, or the module named, cannot be used."""

    def __init__(self, message: str, module: str | None = None) -> None:
        super().__init__(message, module)
        self.message = message
        self.module = module

    def __str__(self) -> str:
        return f"{self.module}: {self.message}" if self.module is not None else self.message


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a program used: wall-clock and CPU seconds, and peak memory (None if unknown).

    ``cpu_s`` includes the program and those of its children that it waited for.
    """

    wall_s: float
    cpu_s: float
    max_rss_bytes: int | None


class ToolError(MlgoCorpusError):
    """A program failed: its argv, exit code (negative: the signal that ended it) and the tail of its stderr.

    ``usage`` is None only if the program could not be started.
    """

    def __init__(
        self, argv: Sequence[str], returncode: int | None, stderr: str = "", usage: Usage | None = None
    ) -> None:
        super().__init__(tuple(argv), returncode, stderr, usage)
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stderr = stderr
        self.usage = usage

    @property
    def outcome(self) -> str:
        """How it ended: ``exit code 1``, ``ended by signal 9`` or ``did not finish in time``."""
        if self.returncode is None:
            return "did not finish in time"
        return f"ended by signal {-self.returncode}" if self.returncode < 0 else f"exit code {self.returncode}"

    @property
    def first_error(self) -> str:
        """The first line of its stderr that reports an error; without one, how it ended."""
        return next((line.strip() for line in self.stderr.splitlines() if "error:" in line), self.outcome)

    def __str__(self) -> str:
        return _one_line(self.argv, self.outcome, self.stderr)


class ProtocolError(MlgoCorpusError):
    """A program broke the protocol of a live session: what was expected and found, and the tail of its stderr."""

    def __init__(self, message: str, argv: Sequence[str], stderr: str = "", usage: Usage | None = None) -> None:
        super().__init__(message, tuple(argv), stderr, usage)
        self.message = message
        self.argv = tuple(argv)
        self.stderr = stderr
        self.usage = usage

    def __str__(self) -> str:
        return _one_line(self.argv, self.message, self.stderr)


def _one_line(argv: Sequence[str], outcome: str, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return f"{shlex.join(argv)}: {outcome}{f': {lines[-1]}' if lines else ''}"


class WorkerError(MlgoCorpusError):
    """A worker process died, or was killed at its deadline, while it worked on one item."""


class ConstructorError(WorkerError):
    """A shared worker's constructor failed, or cannot run where it was asked to; the cause is what it raised."""


class HostDiedError(WorkerError):
    """The process that hosted a shared worker is gone, and with it the worker; ``host`` names it."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message, host)
        self.message = message
        self.host = host

    def __str__(self) -> str:
        return f"{self.host}: {self.message}"


class UnknownWorkerError(WorkerError):
    """A host has no worker of this id for this caller: it was released, was lost, or belongs to another caller."""
