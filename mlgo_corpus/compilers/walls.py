"""What a compiler may do on this machine, and the processes that see to it.

Commands and bitcode come from anybody. What a command may say is checked word by word
(`mlgo_corpus.formats.commands.replay`); what stands here does not depend on that: the kernel keeps a compiler from all
but its work, also one that a damaged module has taken over. `mlgo_corpus.compilers.launcher` tells which walls there
are and how they are put up; this says where:

- it writes in the folder of its own run, and nowhere else;
- it reads what it is given to compile, itself and the system's libraries: not what users keep in their homes;
- it executes itself, and no other program;
- it has no network, and reaches no other process.
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

# Where systems keep libraries, and what the loader and the C library ask on the way. No user's data is here.
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
# A program's libraries are beside it, or as in a prefix.
_BESIDE: Final = (".", "../lib", "../lib64", "../libexec", "../share")
_ANYTHING: Final = "/"
_ELF_MAGIC: Final = b"\x7fELF"
_PT_INTERP: Final = 3
# It ends by itself when its socket does, in a millisecond.
_LEAVE_S: Final = 5.0


# What `resource.setrlimit` takes: which limit, and the soft and the hard one.
Limit = tuple[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Walls:
    """What a program may do besides writing in its own folder.

    Attributes:
        programs: what it may execute: itself, and the loader of each.
        readable: files and folders that it may read.
    """

    programs: tuple[str, ...]
    readable: tuple[str, ...]

    def rules(self) -> tuple[tuple[int, bytes], ...]:
        """Return them as `launcher.restrict_files` takes them."""
        run = [(launcher.RUN, os.fsencode(path)) for path in self.programs]
        return (*run, *((launcher.READ, os.fsencode(path)) for path in self.readable))

    def reading(self, paths: Iterable[str | Path]) -> Walls:
        """Return walls with doors to more files."""
        return Walls(self.programs, (*self.readable, *map(str, paths)))


def walls_around(*programs: str) -> Walls:
    """Return the walls for programs, named by their paths. A script may read and execute what it wants."""
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

    Where the program is a script, whatever it needs: then nothing that is executed is forbidden.
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
class Standing:
    """Which walls this machine has: the version of Landlock (0: none), and whether sockets can be forbidden."""

    landlock: int
    seccomp: bool


def standing() -> Standing:
    """Return which walls stand on this machine."""
    return Standing(launcher.landlock_version(), launcher.has_seccomp())


class LauncherError(Exception):
    """The launcher itself has ended: killed, perhaps, where memory is short."""


class Launched:
    """A program that a launcher has started, as far as possible like a `subprocess.Popen`.

    Attributes:
        pid: its number, also that of its process group; not another's before `reap`.
        launcher_peak: the peak memory in bytes of the process that it replaced.
        stdout, stderr: our ends of its pipes; None for what goes to a file.
        returncode: None until it is reaped.

    Raises:
        OSError: it cannot be started; ``filename`` is what is concerned.
        LauncherError: the launcher cannot be had.
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
        except BaseException:  # Ctrl-C, too: what a launcher says next could be taken for an answer to something else
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
        except LauncherError:  # it took the program with it
            return -signal.SIGKILL, 0.0, 0
        except BaseException:
            self._launcher.close()
            raise
        _give_back(self._launcher)
        return os.waitstatus_to_exitcode(status), cpu_s, peak * 1024


def _find(program: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Return a program's path, looked for as the system does."""
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
        """Return whether it has not been killed while it had nothing to do."""
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
        """End it, and what it started."""
        self._socket.close()
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# Launchers without a program, of this process.
_idle: list[_Launcher] = []
# Modules of one corpus read the same files, or none: walls hardly ever differ. Threads want one each.
_MOST_IDLE: Final = 8
os.register_at_fork(after_in_child=_idle.clear)


def _take(walls: Walls) -> _Launcher:
    for one in tuple(_idle):
        if one.walls == walls:
            with suppress(ValueError):  # another thread was quicker
                _idle.remove(one)
                if one.is_alive():
                    return one
                one.close()
    return _Launcher(walls)


def _give_back(one: _Launcher) -> None:
    _idle.append(one)
    if len(_idle) > _MOST_IDLE:
        _idle.pop(0).close()


def close_launchers() -> None:
    """End the launchers of this process that have no program; they end with this process, too."""
    while _idle:
        _idle.pop().close()


atexit.register(close_launchers)


def can_launch() -> bool:
    """Return whether programs can be started behind walls here: on Linux since 5.3."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and bool(sys.executable)
