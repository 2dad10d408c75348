"""Find compilers, and the binary that does the work behind each.

Names are not trusted. A compiler may be a shell script, a link to ccache, or a driver that starts another program;
``clang -###`` prints the command that it would run, and that command's first word is the compiler. Running it without
what stands before it is exact (the command is complete) and quick.

What a compiler can do is another question: `mlgo_corpus.compilers.probe` answers it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.corpus.links import cache_folder as cache_folder
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular

COMPILER_VARIABLE: Final = "MLGO_CORPUS_COMPILER"
"""The environment variable that names the compiler to use."""

"""The environment variable that names the folder for what can be made again: toolchains, sources, probe results."""

TOOLCHAINS_FOLDER: Final = "toolchains"
BUILT_NAME: Final = "built.json"

IDENTIFY_TIMEOUT_S: Final = 20.0
"""Printing a command takes a driver 20 ms, behind a wrapper in Python 200 ms."""

# Where package managers put LLVM without putting it on PATH: Debian, Homebrew on two processors, MacPorts, FreeBSD.
_USUAL_FOLDERS = (
    "/usr/lib/llvm-*/bin",
    "/opt/homebrew/opt/llvm*/bin",
    "/usr/local/opt/llvm*/bin",
    "/opt/local/libexec/llvm-*/bin",
    "/usr/local/llvm*/bin",
)
_CLANG_NAME = re.compile(r"clang(?:-[1-9][0-9]*)?")
_VERSION = re.compile(r"\bclang version (\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program that may be a compiler: the words that run it, and how it was found.

    ``origin`` is ``option``, ``environment``, ``built``, ``PATH`` or ``ziglang``.
    """

    words: tuple[str, ...]
    origin: str


@dataclass(frozen=True, slots=True)
class Compiler:
    """A clang.

    Attributes:
        driver: the words that run it as a build does.
        origin: how it was found, see `Candidate`.
        binary: the file that compiles, behind wrappers.
        cc1: the words to put before ``-cc1``.
        version: LLVM's, such as ``19.1.7``.
        vendor: the line that says so, with the distributor's name.
        compile_words: ``-cc1`` and the options that compile ``../probe.c`` at -O2 to ``probe.o``.
    """

    driver: tuple[str, ...]
    origin: str
    binary: Path
    cc1: tuple[str, ...]
    version: str
    vendor: str
    compile_words: tuple[str, ...]

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.partition(".")[0])


def built_toolchains(cache: Path) -> Sequence[Path]:
    """List the toolchains that were built: those in the cache, and those that were put elsewhere."""
    found: list[Path] = []
    with suppress(OSError, ValueError, RecursionError):
        named = json.loads(read_regular(cache / BUILT_NAME, MAX_NOTE_BYTES))
        found += [Path(name) for name in named if isinstance(name, str)] if isinstance(named, list) else []
    with suppress(OSError):
        found += sorted((cache / TOOLCHAINS_FOLDER).iterdir())
    return tuple(dict.fromkeys(found))


def find_zig() -> tuple[str, ...] | None:
    """Find the clang in the ``ziglang`` package: the words that come before ``cc``, or None."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return (sys.executable, "-m", "ziglang")


def named_compiler(named: str, origin: str) -> Candidate:
    """Make a candidate of what a user names: a program, a name on PATH, a toolchain's folder, a command.

    Raises:
        UsageError: there is no such program.
    """
    where = f" (from {COMPILER_VARIABLE})" if origin == "environment" else ""
    words = _words_of(named, where)
    first = words[0]
    folder = Path(first)
    found = _which(first)
    if found is None and folder.is_dir():
        inside = next((path for path in (folder / "bin" / "clang", folder / "clang") if _is_program(path)), None)
        if inside is None:
            raise UsageError(f"{first}: expected a compiler, found a folder without bin/clang{where}")
        return Candidate((str(inside.absolute()), *words[1:]), origin)
    if found is None:
        what = "not a program that can be run" if folder.exists() else "no such program"
        raise UsageError(f"{first}: {what}{where}{_others(first)}")
    return Candidate(_as_clang((found, *words[1:])), origin)


def _others(first: str) -> str:
    """Say which compilers there are where one of a usual name is not: Debian has clang-19 and no clang."""
    if not _CLANG_NAME.fullmatch(first):
        return ""
    known = find_compilers(environment={"PATH": os.environ.get("PATH", "")})
    found = [candidate.words[0] for candidate in known if candidate.origin == "PATH"]
    return f"; there is {', '.join(map(short_name, found))}" if found else ""


def short_name(program: str) -> str:
    """Give what to type for a program: its name where PATH leads to it, else its path."""
    name = os.path.basename(program)
    return name if _which(name) == program else program


def _words_of(named: str, where: str) -> list[str]:
    """Split a command as a shell does; a path with blanks in it is one word."""
    if os.path.exists(named):
        return [named]
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"{named}: not a compiler or its command: {error}{where}") from None
    if not words:
        raise UsageError(f"expected a compiler, got an empty name{where}")
    return words


def find_compilers(
    named: str | None = None,
    *,
    built: Iterable[Path] = (),
    environment: Mapping[str, str] = os.environ,
) -> tuple[Candidate, ...]:
    """List the programs that may be compilers, the likeliest to be meant first; whether they work is not looked at.

    ``named`` comes first, then `COMPILER_VARIABLE`, then the toolchains of ``built`` (folders), ``clang`` and
    ``clang-N`` on PATH and where package managers keep them, and the ``ziglang`` package's.

    Raises:
        UsageError: ``named``, or what the variable names, is not there.
    """
    return tuple(_distinct(_iter_compilers(named, built, environment)))


def _iter_compilers(named: str | None, built: Iterable[Path], environment: Mapping[str, str]) -> Iterator[Candidate]:
    if named is not None:
        yield named_compiler(named, "option")
    if by_variable := environment.get(COMPILER_VARIABLE, "").strip():
        yield named_compiler(by_variable, "environment")
    for folder in built:
        if _is_program(folder / "bin" / "clang"):
            yield Candidate((str(folder / "bin" / "clang"),), "built")
    folders = [Path(name) for name in os.get_exec_path(dict(environment)) if name]
    for pattern in _USUAL_FOLDERS:
        folders += sorted(Path("/").glob(pattern[1:]))
    for folder in folders:
        names: list[str] = []
        with suppress(OSError):
            names = [name for name in os.listdir(folder) if _CLANG_NAME.fullmatch(name)]
        for name in sorted(names, key=lambda name: (len(name), name)):
            if _is_program(folder / name):
                yield Candidate((str((folder / name).absolute()),), "PATH")
    zig = find_zig()
    if zig is not None:
        yield Candidate(_as_clang((*zig, "clang")), "ziglang")


def _distinct(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Leave out what is the same file as one before it. A link to a program of another name (ccache) is not."""
    seen = set()
    for candidate in candidates:
        real = os.path.realpath(candidate.words[0])
        is_clang = os.path.basename(real).startswith("clang")
        key = (real if is_clang else candidate.words[0], *candidate.words[1:])
        if key not in seen:
            seen.add(key)
            yield candidate


def _as_clang(words: tuple[str, ...]) -> tuple[str, ...]:
    """Name zig's clang as it is: ``zig cc`` and ``python -m ziglang cc`` are another driver around it."""
    if words[1:3] == ("-m", "ziglang"):
        spec = importlib.util.find_spec("ziglang")
        program = None if spec is None or spec.origin is None else Path(spec.origin).with_name("zig")
        # Python starts it in 40 ms more.
        first = words[:3] if program is None or not _is_program(program) else (str(program),)
        return (*first, "clang")
    if os.path.basename(words[0]) == "zig":
        return (words[0], "clang")
    return words


def identify(
    candidate: Candidate,
    folder: Path,
    *,
    timeout: float = IDENTIFY_TIMEOUT_S,
    stop: threading.Event | None = None,
) -> Compiler:
    """Find the binary behind a candidate, and its version, by asking what it would run. Nothing is compiled.

    ``folder`` is where the command would run: one that exists, beside ``probe.c``.
    Another thread ends it by ``stop``.

    Raises:
        ToolError: it cannot be run, fails, or hangs.
        UsageError: it is no clang.
    """
    argv = (*candidate.words, "-###", "-O2", "-c", "../probe.c", "-o", "probe.o")
    said = run_tool(argv, cwd=folder, timeout=timeout, stop=stop)
    text = said.stderr + said.stdout.decode(errors="replace")
    version = _VERSION.search(text)
    command = next((line for line in text.splitlines() if ' "-cc1" ' in line), "")
    words: tuple[str, ...] = ()
    with suppress(ValueError):  # an open quote
        words = tuple(shlex.split(command))
    if version is None or "-cc1" not in words[1:]:
        raise UsageError("not a clang, or not one that prints its commands with -###")
    binary, arguments = words[0], words[words.index("-cc1") :]
    # A compiler that calls itself by what it was called: the clang in a toolchain's folder may be a link.
    binary = _which(binary) or binary
    return Compiler(
        driver=candidate.words,
        origin=candidate.origin,
        binary=Path(binary),
        cc1=words[: words.index("-cc1")],
        version=".".join(number or "0" for number in version.groups()),
        vendor=version.string[: version.end()].rpartition("\n")[2].strip(),
        compile_words=arguments,
    )


def find_beside(compiler: Compiler, name: str) -> Path | None:
    """Find another program of the same LLVM: in the binary's folder, or the driver's, there with a version perhaps."""
    binary, driver = compiler.binary, Path(compiler.driver[0])
    suffix = driver.name.removeprefix("clang") if _CLANG_NAME.fullmatch(driver.name) else ""
    places = (binary.with_name(name), binary.resolve().with_name(name), driver.with_name(name + suffix))
    return next((path for path in places if _is_program(path)), None)


def one_line(error: Exception) -> str:
    """Say in one line, without a command that fills the screen, why a program could not be used."""
    if isinstance(error, ToolError):
        said = [line.strip() for line in error.stderr.splitlines() if line.strip()]
        errors = [line for line in said if "error:" in line or "Unknown command line argument" in line]
        last = (errors or said or [""])[-1]
        return ": ".join(filter(None, (error.outcome, last[:300])))
    return str(error)


def _which(name: str) -> str | None:
    """Find a program by its path, or by its name on PATH."""
    if os.sep in name:
        return os.path.abspath(name) if _is_program(Path(name)) else None
    for folder in os.get_exec_path():
        if _is_program(path := Path(folder) / name):
            return os.path.abspath(path)
    return None


def _is_program(path: Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
