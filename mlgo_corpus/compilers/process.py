"""Run another program and wait for it.

`run_tool` starts a program and waits for it; a live session uses the same `Child`. The program leads a
process group of its own, has a deadline, and its pipes are drained while it runs. However the call ends
(success, failure, deadline, Ctrl-C), by then the whole group is dead and the program is reaped.

If the system can report a program's end (``pidfd_open``, Linux 5.3), one call waits for that and for its
pipes; elsewhere the end is polled between naps of at most `POLL_S`.

Peak memory is not simply the ``ru_maxrss`` of a dead child. Linux charges a program with the peak of the
process that it replaced when it was executed, which is ours, even after a ``vfork``: a Python of 300 MB
that runs ``/bin/true`` gets 300 MB back. So ``ru_maxrss`` is used only if it is above our own peak after
the start (by a megabyte, since the kernel's counters are inexact). Otherwise the peak is the largest
sample of ``VmHWM`` in ``/proc/PID/status``, taken while the program ran, after `_FIRST_NAP_S` and then at
growing intervals of up to `POLL_S`; memory taken after the last sample is missing. Without any sample (a
program of a few milliseconds, or no ``/proc``, as on macOS) the peak is None.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mlgo_corpus.compilers.walls import Launched, LauncherError, Limit, Walls, can_launch
from mlgo_corpus.errors import ToolError, Usage, UsageError

# Expected output of compilers is far smaller; a runaway one must not fill the memory.
STDOUT_LIMIT = 64 << 20
# The error is in the last lines of stderr; nothing before them is kept.
STDERR_TAIL = 64 << 10
# On SIGTERM compilers remove their temporary files, in milliseconds. SIGKILL follows.
_TERM_GRACE_S = 1.0
# The longest wait before looking at `stop`, at a child whose pipes outlive it, and at its memory.
POLL_S = 0.05
# The first of these waits; each is twice as long as the one before.
_FIRST_NAP_S = 0.001
# Linux's largest pipe, so no more can be left in one whose writers are dead.
PIPE_CAPACITY = 1 << 20

_CHUNK = 1 << 16
_SETPRIV = shutil.which("setpriv") if sys.platform == "linux" else None
if _SETPRIV is not None and os.path.basename(os.path.realpath(_SETPRIV)) == "busybox":  # it lacks --pdeathsig
    _SETPRIV = None
_IF_WE_LIVE = '[ "$PPID" = "$0" ] && exec "$@"'
# The unit of ru_maxrss: kilobytes, but bytes on macOS.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
# Linux counts pages per CPU and adds them up from time to time, so two readings of one peak differ slightly.
_MAXRSS_SLACK = 1 << 20


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output and the resource usage of a program that succeeded.

    ``stderr`` holds its last `STDERR_TAIL` bytes only.
    """

    argv: tuple[str, ...]
    stdout: bytes
    stderr: str
    usage: Usage


def run_tool(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float,
    stop: threading.Event | None = None,
    memory_limit: int | None = None,
    file_limit: int | None = None,
    walls: Walls | None = None,
    stderr: Path | None = None,
) -> ToolResult:
    """Run a program to its end, without a shell and without stdin, and return its output.

    It runs in ``cwd`` with ``env`` as its whole environment (default: ours). It is ended after ``timeout``
    seconds, or once another thread sets ``stop``. ``memory_limit`` is the address space in bytes that it and
    each of its children may have, ``file_limit`` the size of a file that they may write; ``walls`` are their
    other rights, which need a ``cwd`` (`mlgo_corpus.compilers.walls`). ``stderr`` is a file for everything
    written to stderr; it is made or replaced.

    Raises:
        ToolError: the program failed or was ended by a signal, ran past its deadline (return code None), was
            stopped, wrote more than `STDOUT_LIMIT` bytes to stdout, or could not be started (return codes 126
            and 127, as in a shell).
        UsageError: a limit was given on a system that cannot limit other processes (Linux can).
    """
    begin = time.monotonic()
    with Child(
        argv, cwd=cwd, env=env, memory_limit=memory_limit, file_limit=file_limit, walls=walls, stderr=stderr
    ) as child:
        child.wait(begin + timeout, stop)
    return child.result()


def tied_to_us(argv: tuple[str, ...], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return a command that is killed when the thread that starts it ends; without setpriv, the same command.

    Without this, a compiler outlives a killed worker, and one that waits for advice then spins for ever. util-linux's
    setpriv sets the kernel's PR_SET_PDEATHSIG in a millisecond; Python's own way, ``preexec_fn``, is not safe with
    threads. If we ended before it was set, it has no effect, so a shell checks that we still run, in another
    millisecond. A program that cannot be started is left as it is, so that its own error appears.
    """
    if _SETPRIV is None:
        return argv
    path = (os.environ if env is None else env).get("PATH")
    program = argv[0] if os.sep not in argv[0] or cwd is None else os.path.join(cwd, argv[0])
    if shutil.which(program, path=path) is None:
        return argv
    return (_SETPRIV, "--pdeathsig", "KILL", "--", "/bin/sh", "-c", _IF_WE_LIVE, str(os.getpid()), *argv)


def _limits(memory_limit: int | None, file_limit: int | None) -> tuple[Limit, ...]:
    """Return limits for `resource.setrlimit`, at most our own hard ones, which a child cannot exceed."""
    found = []
    for which, most in ((resource.RLIMIT_AS, memory_limit), (resource.RLIMIT_FSIZE, file_limit)):
        if most is not None:
            hard = resource.getrlimit(which)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            found.append((which, (most, most)))
    return tuple(found)


class Child:
    """A program: entering its context starts it, leaving it ends its process group and reaps it.

    Attributes:
        argv: the program and its arguments.
        stdout: its output so far.
        returncode: its exit code, negative for a signal; None until it is reaped.
        usage: the resources it used; None until it is reaped.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        memory_limit: int | None = None,
        file_limit: int | None = None,
        walls: Walls | None = None,
        stderr: Path | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self.stdout = bytearray()
        self.returncode: int | None = None
        self.usage: Usage | None = None
        self._stderr = bytearray()
        self._cwd = cwd
        self._env = env
        self._limits = _limits(memory_limit, file_limit)
        self._walls = walls if can_launch() else None
        self._stderr_path = stderr
        self._closed = False
        self._pipes: dict[int, bytearray] = {}
        self._poller = select.poll()
        self._poll = self._poller.poll
        self._watched = -1
        self._pidfd = -1
        self._status = -1
        self._own_peak = 0
        self._sampled_peak = 0
        self._nap = _FIRST_NAP_S
        self._wake = 0.0

    def __enter__(self) -> Child:
        if self._limits and not hasattr(resource, "prlimit"):
            raise UsageError("a memory or file limit for a compiler needs Linux")
        self._begin = time.monotonic()
        file = None if self._stderr_path is None else self._stderr_path.open("wb")
        try:
            self._process = self._start(file)
        except LauncherError as error:
            raise ToolError(self.argv, 126, str(error)) from None
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            name = self.argv[0] if error.filename == _SETPRIV else error.filename
            raise ToolError(self.argv, 127 if missing else 126, f"{name}: {error.strerror}") from None
        except ValueError as error:  # an invalid argument, such as one with a NUL byte
            raise ToolError(self.argv, 126, f"{self.argv[0]}: {error}") from None
        finally:
            if file is not None:
                file.close()
        try:
            self._attach()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, stderr: IO[bytes] | None) -> subprocess.Popen[bytes] | Launched:
        if self._walls is not None:
            return Launched(
                self.argv,
                cwd=Path.cwd() if self._cwd is None else self._cwd.absolute(),
                env=os.environ if self._env is None else self._env,
                limits=self._limits,
                walls=self._walls,
                stderr=None if stderr is None else stderr.fileno(),
            )
        return subprocess.Popen(
            tied_to_us(self.argv, self._cwd, self._env),
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr is None else stderr,
            start_new_session=True,
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self.close()
        if isinstance(error, ToolError) and error.usage is None:
            error.usage = self.usage

    def wait(self, deadline: float, stop: threading.Event | None = None) -> bool:
        """Read both pipes until the program itself has ended, even if another process holds them open.

        Returns:
            True if the watched descriptor is ready, False if the program has ended.

        Raises:
            ToolError: the deadline (of ``time.monotonic``) has passed, ``stop`` is set, or stdout is too long.
        """
        while True:
            now = time.monotonic()
            if now >= self._wake:
                self._look(now)
            if now >= deadline:
                # We may be late ourselves: what it has said until now is its own.
                if self._take_events(self._poll(0)) or self._ended():
                    return False
                raise ToolError(self.argv, None, self.stderr_text())
            if stop is not None and stop.is_set():
                raise ToolError(self.argv, -signal.SIGTERM, "stopped")
            events = self._poll(((deadline if deadline < self._wake else self._wake) - now) * 1000)
            if len(events) == 1 and events[0][0] == self._watched:
                return True
            if self._take_events(events):
                return False

    def awaited(self) -> tuple[list[int], float]:
        """Return what `wait` has to be called for besides the watched descriptor: others, and a time.

        Returns:
            The descriptors that become ready when the program says something or ends, and the time (of
            ``time.monotonic``) of the next look at its memory.
        """
        ended = [self._pidfd] if self._pidfd >= 0 else []
        return [*self._pipes, *ended], self._wake

    def watch(self, descriptor: int, events: int) -> None:
        """Make `wait` return also when one of ``events`` (``select.POLLIN``, ...) occurs on this one descriptor."""
        if self._watched >= 0:
            self._poller.unregister(self._watched)
        self._watched = descriptor
        self._poller.register(descriptor, events)

    def stderr_text(self) -> str:
        """Return the tail of its stderr so far."""
        if self._stderr_path is not None:
            with self._stderr_path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - STDERR_TAIL))
                return file.read().decode(errors="replace")
        return self._stderr[-STDERR_TAIL:].decode(errors="replace")

    def result(self) -> ToolResult:
        """Return the output of a program that was reaped.

        Raises:
            ToolError: the program failed.
        """
        if self.returncode is None or self.usage is None:
            raise RuntimeError("the program is not reaped yet")
        if self.returncode != 0:
            raise ToolError(self.argv, self.returncode, self.stderr_text(), self.usage)
        return ToolResult(self.argv, bytes(self.stdout), self.stderr_text(), self.usage)

    def close(self) -> None:
        """End the process group and reap the program; keep what is left in its pipes. Further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._ended():
                self._ask_to_end()
        finally:
            # The group first: until its leader is reaped, its id cannot be reused.
            self._signal_group(signal.SIGKILL)
            try:
                self._reap(0)
                self._drain()
            finally:
                for pipe in (self._process.stdout, self._process.stderr):
                    if pipe is not None:
                        pipe.close()
                for descriptor in (self._pidfd, self._status):
                    if descriptor >= 0:
                        os.close(descriptor)

    def _attach(self) -> None:
        """Set limits and start watching a program that was just executed."""
        pid = self._process.pid
        if isinstance(self._process, Launched):
            self._own_peak = self._process.launcher_peak
        else:
            # Read after the start: the peak that the program was charged with is at most this.
            self._own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
            for which, limit in self._limits:
                resource.prlimit(pid, which, limit)
        for pipe, kept in ((self._process.stdout, self.stdout), (self._process.stderr, self._stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._pipes[pipe.fileno()] = kept
                self._poller.register(pipe.fileno(), select.POLLIN)
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):  # an older kernel, or a sandbox that does not know the call
                self._pidfd = os.pidfd_open(pid)
                self._poller.register(self._pidfd, select.POLLIN)
        with suppress(OSError):
            self._status = os.open(f"/proc/{pid}/status", os.O_RDONLY)
        self._wake = time.monotonic() + self._nap

    def _take_events(self, events: list[tuple[int, int]]) -> bool:
        """Read the pipes that are ready, if any; return True if the program has ended."""
        ended = False
        for descriptor, _ in events:
            if descriptor in self._pipes:
                self._take(descriptor)
            elif descriptor == self._pidfd:
                ended = True
        if len(self.stdout) > STDOUT_LIMIT:
            raise ToolError(self.argv, -signal.SIGKILL, f"more than {STDOUT_LIMIT} bytes on stdout")
        return ended or (self._pidfd < 0 and self._ended())

    def _look(self, now: float) -> None:
        """Sample the program's peak memory, and set the time of the next sample."""
        self._nap = min(2 * self._nap, POLL_S)
        self._wake = now + self._nap
        if self._status < 0:
            return
        with suppress(OSError, ValueError):  # a program that has ended has no VmHWM
            _, _, rest = os.pread(self._status, 4096, 0).partition(b"\nVmHWM:")
            self._sampled_peak = max(self._sampled_peak, int(rest.partition(b" kB")[0]) * 1024)

    def _ended(self) -> bool:
        """Return True if the program has ended; reap it only if the system cannot tell otherwise."""
        if self._process.returncode is not None:
            return True
        if isinstance(self._process, Launched):  # a child of another process
            return bool(select.select([self._pidfd], [], [], 0)[0])
        if hasattr(os, "waitid"):
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, flags) is not None
        return self._reap(os.WNOHANG)

    def _reap(self, flags: int) -> bool:
        """Wait for the program with ``os.wait4``, which unlike Popen's own methods returns its usage."""
        if self._process.returncode is None and isinstance(self._process, Launched):
            self.returncode, cpu_s, reaped_peak = self._process.reap()
            self._set_usage(cpu_s, reaped_peak)
        elif self._process.returncode is None:
            pid, status, used = os.wait4(self._process.pid, flags)
            if pid == 0:
                return False
            self.returncode = os.waitstatus_to_exitcode(status)
            self._set_usage(used.ru_utime + used.ru_stime, used.ru_maxrss * _MAXRSS_UNIT)
        return True

    def _set_usage(self, cpu_s: float, charged_peak: int) -> None:
        """Set the program's usage."""
        self._process.returncode = self.returncode
        is_own = charged_peak > self._own_peak + _MAXRSS_SLACK
        self.usage = Usage(
            time.monotonic() - self._begin, cpu_s, charged_peak if is_own else self._sampled_peak or None
        )

    def _ask_to_end(self) -> None:
        self._signal_group(signal.SIGTERM)
        end = time.monotonic() + _TERM_GRACE_S
        while not self._ended() and time.monotonic() < end:
            time.sleep(0.002)

    def _signal_group(self, number: int) -> None:
        # PermissionError: on macOS, a group of zombies only.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _drain(self) -> None:
        for descriptor in list(self._pipes):
            for _ in range(PIPE_CAPACITY // _CHUNK):
                if not self._take(descriptor):
                    break

    def _take(self, descriptor: int) -> bool:
        """Read one chunk from a pipe; return False if there is nothing more for now, or at all."""
        kept = self._pipes[descriptor]
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._poller.unregister(descriptor)
            del self._pipes[descriptor]
            self._nap, self._wake = _FIRST_NAP_S, 0.0  # a program that closed its pipes is about to end
            return False
        kept += chunk
        if kept is self._stderr and len(kept) > 2 * STDERR_TAIL:
            del kept[:-STDERR_TAIL]
        return True
