"""Shims that stand in for the compiler while a build runs, and the run of that build.

A folder of small shell scripts comes first on PATH, under every name by which a build may call its C or C++ compiler,
and CC and CXX name two of them. Each runs the one clang that was chosen (see ``shim.sh``). Outside of such a run they
only run that clang, so that paths that a build remembered, for example in a CMakeCache.txt, stay valid, also when the
corpus has moved.

Static libraries get llvm-ar, llvm-ranlib and llvm-nm. If LLVM's plugin for GNU's tools is installed, these mistake an
object with embedded bitcode for one of an LTO build and find no symbols in it, so that the link fails. A linker that
the build calls itself (``ld -r``) is recorded, too; compilers do not meet its shim.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from mlgo_corpus.compilers.driver import ARCHIVERS, Drivers, is_native, target_option
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.engine.signals import signal_of, signals_as_interrupts
from mlgo_corpus.engine.threads import INTERRUPTIBLE_S
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.commands.driverline import is_cxx_compiler
from mlgo_corpus.formats.commands.linkwords import LINKERS

# Names the shims of the build that runs. A tree may be configured with those of another corpus, which then turn into
# these: else another compiler would run, or the compile would be recorded there.
_SHIMS_VARIABLE = "MLGO_CORPUS_SHIMS"
# The program in a folder of shims that does what each kind of shim does, where that is not named after its kind.
_USUAL_NAMES = {"c": "clang", "c++": "clang++"}
# Time for a build, after Ctrl-C, to wait for its compilers and to remove unfinished files.
_INTERRUPT_GRACE_S = 10.0

_SCRIPT = Path(__file__).with_name("shim.sh")
_COMPILER = re.compile(
    r"(?:(?P<triple>[\w.]+-[\w.-]+)-)?(?P<name>cc|c\+\+|gcc|g\+\+|clang|clang\+\+|c89|c99|c11|c17|CC)(?P<version>-[\d.]+)?"
)
USUAL_COMPILERS: Final = ("cc", "c++", "gcc", "g++", "clang", "clang++", "c89", "c99")
"""Names of compilers that each build has, whether this machine has them or not."""
# A word of a shell's line, with its quotes.
_WORD = re.compile(r"""(?:[^ \t\r\n'"\\]|'[^']*'|"(?:[^"\\]|\\.)*"|\\.)+""", re.DOTALL)
# Paths that make and configure read as one word.
_PLAIN_PATH = re.compile(r"[\w./+,:@%=-]+", re.ASCII)
# Settings that stop launchers from taking an object from a cache or compiling it elsewhere.
_NO_LAUNCHERS = {"CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1", "DISTCC_HOSTS": "localhost", "ICECC": "no"}


def compiler_in(command: str) -> tuple[list[str], int] | None:
    """Split a CC or CXX; return its words and the index of the compiler, behind launchers; None if there is none."""
    with suppress(ValueError):
        words = shlex.split(command)
        for index, word in enumerate(words):
            if _COMPILER.fullmatch(os.path.basename(word)):
                return words, index
    return None


def shims_folder(corpus: Path) -> Path:
    """Return the folder for the shims of a corpus's builds: outside of the corpus, because configured trees name it.

    It is in the cache, and depends on the corpus's path only, so that it is found again by the next build.
    """
    return cache_folder() / "shims" / sha256(os.fsencode(os.path.realpath(corpus))).hexdigest()[:16]


def make_shims(folder: Path, run_folder: Path, drivers: Drivers, *, keep_checks: bool) -> None:
    """Write the shims into ``folder``, which is replaced; compiles are recorded in ``run_folder`` while it exists.

    Raises:
        OSError: they cannot be written.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shell = shutil.which("dash") or "/bin/sh"  # other shells start more slowly
    script = _SCRIPT.read_text(encoding="utf-8")
    copy = shlex.join(_copy_command())

    def program(name: str, text: str) -> None:
        path = folder / name
        path.write_bytes(os.fsencode(f"#!{shell}\n{text}"))
        path.chmod(0o755)

    def recording(name: str, driver: str, command: Sequence[str]) -> None:
        words = shlex.join(command)
        usual = f'"${_SHIMS_VARIABLE}/{_USUAL_NAMES.get(driver, driver)}"'
        settings = (
            f"_mlgo_shims={shlex.quote(str(folder))}",
            f'[ "${{{_SHIMS_VARIABLE}-$_mlgo_shims}}" = "$_mlgo_shims" ] || [ ! -x {usual} ] || exec {usual} "$@"',
            f"{_SHIMS_VARIABLE}=",  # of another build around this one, it would come back to us
            f'_mlgo_compile() {{ {words} "$@"; }}',
            f'_mlgo_become() {{ exec {words} "$@"; }}',
            f"_mlgo_driver={driver}",
            f"_mlgo_run={shlex.quote(str(run_folder))}",
            f"_mlgo_copy={shlex.quote(copy)}",
            f"_mlgo_keep_checks={'1' if keep_checks else ''}",
        )
        program(name, "\n".join((*settings, script)))

    on_path = _names_on_path()
    for name in _compiler_names(on_path):
        is_cxx = is_cxx_compiler(name)
        recording(name, "c++" if is_cxx else "c", drivers.cxx if is_cxx else drivers.c)
    if sys.platform != "darwin":  # its ar has no plugins
        recorded = ("ar", *LINKERS)
        for kind, names in (*ARCHIVERS.items(), *((name, (name,)) for name in LINKERS)):
            for name in _native_names(names, on_path):
                tool = drivers.archivers.get(kind)
                if tool is None and kind in recorded and (found := shutil.which(name)) is not None:
                    tool = (found,)
                if tool is not None and kind in recorded:
                    recording(name, kind, tool)
                elif tool is not None:
                    program(name, f'exec {shlex.join(tool)} "$@"\n')


def build_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a build finds the shims.

    Options and launchers in CC and CXX are kept, and a compiler for another machine becomes clang's target. If the
    folder's path cannot be a single word in a makefile, they name the shim without a path, so that it is found on PATH.
    """
    made = {**environment, **_NO_LAUNCHERS, _SHIMS_VARIABLE: str(folder)}
    made["PATH"] = os.pathsep.join((str(folder), environment.get("PATH") or os.defpath))
    for variable, name in (("CC", "clang"), ("CXX", "clang++")):
        shim = str(folder / name) if _PLAIN_PATH.fullmatch(str(folder)) else name
        command = environment.get(variable, "")
        found = compiler_in(command)
        if found is None:
            made[variable] = shim
        else:
            words, index = found
            begin, end = [word.span() for word in _WORD.finditer(command)][index]
            # The rest stays as it is written: with quotes, and with what make or a shell will expand.
            made[variable] = command[:begin] + " ".join((shim, *_target(words[index]))) + command[end:]
    return made


def run_build(command: Sequence[str], environment: Mapping[str, str], *, stdout: int | None = None) -> int:
    """Run a build with our stdin, stdout (or another) and stderr; return its exit code as a shell does.

    With a terminal the build stays in our process group, so that Ctrl-C reaches all of it. Without one it has a group
    of its own, which gets the signal that ends us, and is killed as a whole after that.

    Raises:
        UsageError: it cannot be started.
        KeyboardInterrupt: Ctrl-C, or another signal that ends us; the build has ended.
    """
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise UsageError(f"{command[0]}: no such program; name the build's command behind --")
    shared = _has_terminal()
    try:
        process = subprocess.Popen(
            command,
            executable=program,
            env=dict(environment),
            stdout=stdout,
            process_group=None if shared else 0,
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{command[0]}: cannot be run: {os_reason(error)}") from None
    try:
        with signals_as_interrupts():
            while (status := process.poll()) is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(INTERRUPTIBLE_S)
    except BaseException as error:
        _end(process, signal_of(error), shared=shared)
        raise
    return 128 - status if status < 0 else status


def _end(process: subprocess.Popen[bytes], number: int, *, shared: bool) -> None:
    """End a build with the signal that we got, then SIGTERM, then SIGKILL. Another Ctrl-C skips the waiting."""

    def send(which: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if shared:
                process.send_signal(which)
            else:
                os.killpg(process.pid, which)

    try:
        # The terminal has sent its Ctrl-C to the build already.
        for which in (0 if shared and number == signal.SIGINT else number, signal.SIGTERM):
            send(which)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_INTERRUPT_GRACE_S)
                return
    finally:
        send(signal.SIGKILL)
        process.wait()


def _has_terminal() -> bool:
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    return False


def _compiler_names(on_path: Sequence[str]) -> tuple[str, ...]:
    """List the names by which a build may call a compiler for this machine: the usual ones and those on PATH."""
    names = dict.fromkeys(USUAL_COMPILERS)
    for name in on_path:
        found = _COMPILER.fullmatch(name)
        if found and (found["triple"] is None or is_native(found["triple"])):
            names[name] = None
    return tuple(names)


def _native_names(names: Sequence[str], on_path: Sequence[str]) -> tuple[str, ...]:
    """List the names of a tool, and those of programs on PATH that have a target that is this machine before one."""
    endings = tuple(f"-{name}" for name in names)
    found = dict.fromkeys(names)
    for program in on_path:
        if program.endswith(endings) and any(is_native(program.removesuffix(ending)) for ending in endings):
            found[program] = None
    return tuple(found)


def _names_on_path() -> tuple[str, ...]:
    found: dict[str, None] = {}
    for folder in os.get_exec_path():
        with suppress(OSError):
            found |= dict.fromkeys(os.listdir(folder or "."))
    return tuple(found)


def _target(compiler: str) -> tuple[str, ...]:
    found = _COMPILER.fullmatch(os.path.basename(compiler))
    return target_option(None if found is None else found["triple"])


def _copy_command() -> tuple[str, ...]:
    """Return the command that copies files, with sharing of blocks if it supports that."""
    program = shutil.which("cp") or "/bin/cp"
    sharing = (program, "-c") if sys.platform == "darwin" else (program, "--reflink=auto")
    with scratch_folder() as folder, suppress(ToolError, OSError):
        (folder / "a").write_bytes(b"a")
        run_tool((*sharing, "--", str(folder / "a"), str(folder / "b")), timeout=10)
        return sharing
    return (program,)
