"""The restrictions on compilers on this machine, and the processes that start compilers under them.

Commands and bitcode are untrusted. The words of a command are checked one by one
(`mlgo_corpus.formats.commands.replay`); the walls here do not depend on that: the kernel keeps even a compiler that a
damaged module has taken over from anything but its work. `mlgo_corpus.compilers.launcher` describes the walls and
implements them; this module sets their limits. A compiler

- writes in the folder of its own run, and nowhere else;
- reads its input, itself and the system's libraries, but not users' homes;
- executes itself, and no other program;
- has no network, and reaches no other process.
"""

from __future__ import annotations

import atexit
import marshal
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.compilers import launcher

# The folders of systems' libraries, and files that the loader and the C library read. They hold no user's data.
_SYSTEM: Final = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/sys/vm",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
)
# A program's libraries are beside it, or in the folders of the same prefix.
_BESIDE: Final = (".", "../lib", "../lib64", "../libexec", "../share")
_ANYTHING: Final = "/"
_ELF_MAGIC: Final = b"\x7fELF"
_PT_INTERP: Final = 3
# A launcher ends within a millisecond after its socket is closed.
_LEAVE_S: Final = 5.0


# The arguments of `resource.setrlimit`: which limit, and its soft and hard value.
Limit = tuple[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Walls:
    """The rights of a program besides writing in its own folder.

    Attributes:
        programs: files that it may execute: the programs themselves, and the loader of each.
        readable: files and folders that it may read.
    """

    programs: tuple[str, ...]
    readable: tuple[str, ...]

    def rules(self) -> tuple[tuple[int, bytes], ...]:
        """Return the rights as rules for `launcher.restrict_files`."""
        run = [(launcher.RUN, os.fsencode(path)) for path in self.programs]
        return (*run, *((launcher.READ, os.fsencode(path)) for path in self.readable))

    def reading(self, paths: Iterable[str | Path]) -> Walls:
        """Return walls that allow reading more files."""
        return Walls(self.programs, (*self.readable, *map(str, paths)))


def walls_around(*programs: str) -> Walls:
    """Return the walls for programs, given by their paths. A script may read and execute everything."""
    found = []
    readable = list(_SYSTEM)
    readable += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    for program in programs:
        real = os.path.realpath(program)
        readable += [os.path.normpath(os.path.join(os.path.dirname(real), place)) for place in _BESIDE]
        found += [real, *_loader(real)]
    if _ANYTHING in found:
        readable = [_ANYTHING]
    return Walls(tuple(dict.fromkeys(found)), tuple(dict.fromkeys(readable)))


def _loader(program: str) -> list[str]:
    """Return the dynamic loader that an ELF program names, which the kernel executes for it.

    For a script, return ``/``: it may execute any program.
    """
    try:
        with open(program, "rb") as file:
            head = file.read(4096)
    except OSError:
        return []
    if not head.startswith(_ELF_MAGIC):
        return [_ANYTHING]
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    (table,) = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)
    size, count = struct.unpack_from(f"{order}HH", head, 54 if wide else 42)
    for at in range(table, table + size * count, size):
        if at + size <= len(head) and struct.unpack_from(f"{order}I", head, at) == (_PT_INTERP,):
            start, length = struct.unpack_from(order + ("Q16xQ" if wide else "I8xI"), head, at + (8 if wide else 4))
            return [os.fsdecode(head[start : start + length].rstrip(b"\0"))]
    return []


@dataclass(frozen=True, slots=True)
class _Standing:
    """The walls that this machine has: the version of Landlock (0: none), and whether sockets can be forbidden."""

    landlock: int
    seccomp: bool


def standing() -> _Standing:
    """Return the walls that this machine has."""
    return _Standing(launcher.landlock_version(), launcher.has_seccomp())


class LauncherError(Exception):
    """The launcher itself has ended; it may have been killed because memory ran out."""


class Launched:
    """A program that a launcher has started, with an interface like that of `subprocess.Popen`.

    Attributes:
        pid: its process id, which is also its process group's; not reused before `reap`.
        launcher_peak: the peak memory in bytes of the process that it replaced.
        stdout, stderr: our ends of its pipes; None for a stream that goes to a file.
        returncode: None until it is reaped.

    Raises:
        OSError: it cannot be started; ``filename`` is the path concerned.
        LauncherError: the launcher cannot be started, or has ended.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        limits: Sequence[Limit],
        walls: Walls,
        stderr: int | None,
    ) -> None:
        self.returncode: int | None = None
        program = _find(argv[0], cwd, env)
        words = [os.fsencode(word) for word in (program, *argv[1:])]
        if any(b"\0" in word for word in words):
            raise ValueError("embedded null byte")
        environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        message = (words, os.fsencode(cwd), environment, tuple(limits))
        ours: list[Any] = []
        theirs: list[int] = []
        taken = None
        try:
            for given in (None, stderr):
                if given is None:
                    reading, writing = os.pipe()
                    ours.append(open(reading, "rb", buffering=0))  # noqa: SIM115 - closed with the program
                    theirs.append(writing)
            ends = (theirs[0], theirs[-1] if stderr is None else stderr)
            taken = _take(walls)
            self.pid, number, name = taken.start(message, ends)
            if not self.pid:
                _give_back(taken)
                taken = None
                raise OSError(number, os.strerror(number), os.fsdecode(name))
        except BaseException:  # also Ctrl-C: the launcher's next answer could be taken for one to another message
            for pipe in ours:
                pipe.close()
            if taken is not None:
                taken.close()
            raise
        finally:
            for writing in theirs:
                os.close(writing)
        self._launcher = taken
        self.launcher_peak = number * 1024
        self.stdout = ours[0]
        self.stderr = ours[1] if stderr is None else None

    def reap(self) -> tuple[int, float, int]:
        """Kill what is left of its group and whatever else it started; return exit code, CPU seconds, peak memory."""
        try:
            status, cpu_s, peak = self._launcher.reap()
        except LauncherError:  # the program ended with it
            return -signal.SIGKILL, 0.0, 0
        except BaseException:
            self._launcher.close()
            raise
        _give_back(self._launcher)
        return os.waitstatus_to_exitcode(status), cpu_s, peak * 1024


def _find(program: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Return a program's path, searched as the system does."""
    if os.sep in program:
        return os.path.join(cwd, program)
    return shutil.which(program, path=env.get("PATH")) or program


class _Launcher:
    """A process that starts programs behind these walls, and our end of its socket."""

    def __init__(self, walls: Walls) -> None:
        self.walls = walls
        self._socket, theirs = socket.socketpair()
        rules = marshal.dumps(list(walls.rules())).hex()
        command = (sys.executable, "-I", "-S", launcher.__file__, str(theirs.fileno()), str(os.getpid()), rules)
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._socket.close()
            raise LauncherError(f"{sys.executable}: {error.strerror}") from error
        finally:
            theirs.close()

    def is_alive(self) -> bool:
        """Return False if it was killed while idle."""
        return self._process.poll() is None

    def start(self, message: tuple[Any, ...], descriptors: tuple[int, int]) -> tuple[int, int, bytes]:
        self._send(message, descriptors)
        pid, number, name = self._answer()
        return pid, number, name

    def reap(self) -> tuple[int, float, int]:
        self._send(())
        status, cpu_s, peak = self._answer()
        return status, cpu_s, peak

    def _send(self, message: tuple[Any, ...], descriptors: tuple[int, ...] = ()) -> None:
        try:
            launcher.send(self._socket, message, descriptors)
        except OSError as error:
            self.close()
            raise LauncherError("the process that starts compilers has ended") from error

    def _answer(self) -> Any:
        try:
            answer, _ = launcher.receive(self._socket)
        except (EOFError, OSError) as error:
            self.close()
            raise LauncherError("the process that starts compilers has ended") from error
        return answer

    def close(self) -> None:
        """End it and the programs that it started."""
        self._socket.close()
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# This process's launchers that run no program.
_idle: list[_Launcher] = []
# Modules of one corpus read the same files, or none, so walls rarely differ. Each thread needs its own launcher.
_MOST_IDLE: Final = 8
os.register_at_fork(after_in_child=_idle.clear)


def _take(walls: Walls) -> _Launcher:
    for one in tuple(_idle):
        if one.walls == walls:
            with suppress(ValueError):  # another thread has taken it
                _idle.remove(one)
                if one.is_alive():
                    return one
                one.close()
    return _Launcher(walls)


def _give_back(one: _Launcher) -> None:
    _idle.append(one)
    if len(_idle) > _MOST_IDLE:
        with suppress(IndexError):  # another thread may have taken them
            _idle.pop(0).close()


def close_launchers() -> None:
    """End this process's idle launchers; they also end with this process."""
    with suppress(IndexError):  # other threads may end some, too
        while True:
            _idle.pop().close()


atexit.register(close_launchers)


def can_launch() -> bool:
    """Return True if programs can be started behind walls here: on Linux since 5.3."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and bool(sys.executable)
