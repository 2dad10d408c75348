"""Run another program and wait for it.

`run_tool` is the one place that starts a program and waits for it. The program leads a process
group of its own, has a deadline, and its pipes are drained while it runs. However the call ends
(success, failure, deadline, Ctrl-C), the whole group is dead and the program is reaped by then.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mlgo_corpus.errors import ToolError

# What we ask a compiler to print is far smaller; a runaway one must not fill the memory.
STDOUT_LIMIT = 64 << 20
# The error is in the last lines of stderr; of a flood before them nothing is kept.
STDERR_TAIL = 64 << 10
# On SIGTERM compilers remove their temporary files, in milliseconds. SIGKILL follows.
TERM_GRACE_S = 1.0
# The longest wait before looking at `stop`, and at a child whose pipes outlive it.
POLL_S = 0.05
# Linux lets no pipe hold more, so this is all that can be left in one whose writers are dead.
PIPE_CAPACITY = 1 << 20

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a program that succeeded wrote, and the seconds it took.

    Of stderr, only the last `STDERR_TAIL` bytes are here.
    """

    argv: tuple[str, ...]
    stdout: bytes
    stderr: str
    wall_s: float


def run_tool(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float,
    stop: threading.Event | None = None,
) -> ToolResult:
    """Run a program to its end, without a shell and without stdin, and return what it wrote.

    It runs in ``cwd`` with ``env`` as its whole environment (default: ours). After ``timeout``
    seconds, or once another thread sets ``stop``, it is ended.

    Raises `ToolError` when it failed or was ended by a signal, ran past its deadline (return code
    None), was stopped, wrote more than `STDOUT_LIMIT` bytes to stdout, or could not be started
    (return codes 126 and 127, as in a shell).
    """
    argv = tuple(argv)
    begin = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise ToolError(argv, 127 if missing else 126, f"{error.filename}: {error.strerror}") from None
    with _Child(argv, process) as child:
        child.wait(begin + timeout, stop)
    if process.returncode != 0:
        raise ToolError(argv, process.returncode, child.stderr_text())
    return ToolResult(argv, bytes(child.stdout), child.stderr_text(), time.monotonic() - begin)


class _Child:
    """A started program; leaving its context ends its process group and reaps it."""

    def __init__(self, argv: tuple[str, ...], process: subprocess.Popen[bytes]) -> None:
        self.argv = argv
        self.process = process
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> _Child:
        for pipe, kept in ((self.process.stdout, self.stdout), (self.process.stderr, self.stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self.selector.register(pipe, selectors.EVENT_READ, kept)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self._ask_to_end()
        finally:
            # The group first: until its leader is reaped, its number cannot be another group's.
            self._signal_group(signal.SIGKILL)
            self.process.wait()
            self._drain()
            self.selector.close()
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()

    def wait(self, deadline: float, stop: threading.Event | None) -> None:
        """Read both pipes until the program itself has ended, whoever else holds them open."""
        nap = 0.0005  # a program that closed its pipes is about to end
        while not self._ended():
            left = deadline - time.monotonic()
            if left <= 0:
                raise ToolError(self.argv, None, self.stderr_text())
            if stop is not None and stop.is_set():
                raise ToolError(self.argv, -signal.SIGTERM, "stopped")
            if self.selector.get_map():
                self._read(min(left, POLL_S))
            else:
                time.sleep(min(left, nap))
                nap = min(2 * nap, POLL_S)

    def stderr_text(self) -> str:
        return self.stderr[-STDERR_TAIL:].decode(errors="replace")

    def _ended(self) -> bool:
        """Tell whether the program has ended, without reaping it where the system can tell."""
        if hasattr(os, "waitid"):
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, flags) is not None
        return self.process.poll() is not None

    def _ask_to_end(self) -> None:
        self._signal_group(signal.SIGTERM)
        end = time.monotonic() + TERM_GRACE_S
        while not self._ended() and time.monotonic() < end:
            time.sleep(0.005)

    def _signal_group(self, number: int) -> None:
        # PermissionError: on macOS, a group in which only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _read(self, timeout: float) -> None:
        for key, _ in self.selector.select(timeout):
            self._take(key)
        if len(self.stdout) > STDOUT_LIMIT:
            raise ToolError(self.argv, -signal.SIGKILL, f"more than {STDOUT_LIMIT} bytes on stdout")

    def _drain(self) -> None:
        for key in list(self.selector.get_map().values()):
            for _ in range(PIPE_CAPACITY // _CHUNK):
                if not self._take(key):
                    break

    def _take(self, key: selectors.SelectorKey) -> bool:
        """Move one chunk out of a pipe; False when there is nothing more for now, or for ever."""
        pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
        kept: bytearray = key.data
        try:
            chunk = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.selector.unregister(pipe)
            return False
        kept += chunk
        if kept is self.stderr and len(kept) > 2 * STDERR_TAIL:
            del kept[:-STDERR_TAIL]
        return True
