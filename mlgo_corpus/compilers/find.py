"""Find compilers, and the binary that does the work behind each.

Names are not trusted. A compiler may be a shell script, a link to ccache, or a driver that starts another program;
``clang -###`` prints the command that it would run, and that command's first word is the compiler. Running that command
directly is exact (the command is complete) and fast.

`mlgo_corpus.compilers.probe` finds what a compiler can do.
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
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.folder import read_note
from mlgo_corpus.files.scratch import scratch_folder

COMPILER_VARIABLE: Final = "MLGO_CORPUS_COMPILER"
"""The environment variable that names the compiler to use."""

BUILT_NAME: Final = "built.json"

PLUGIN_OPTION: Final = "-fpass-plugin="
"""The option of clang that loads a plugin, which may change what it makes of code."""

_TOOLCHAINS_FOLDER: Final = "toolchains"
# A driver prints a command in 20 ms, behind a wrapper in Python in 200 ms.
_IDENTIFY_TIMEOUT_S: Final = 20.0
# Folders for LLVM that are not on PATH, by package manager: Debian, Homebrew on two processors, MacPorts, FreeBSD.
_USUAL_FOLDERS = (
    "/usr/lib/llvm-*/bin",
    "/opt/homebrew/opt/llvm*/bin",
    "/usr/local/opt/llvm*/bin",
    "/opt/local/libexec/llvm-*/bin",
    "/usr/local/llvm*/bin",
)
_CLANG_NAME = re.compile(r"clang(?:-[1-9][0-9]*)?")
# Folders in which package managers keep an LLVM of one version.
_VERSIONED_FOLDER = re.compile(r"/llvm[-@]?(\d+)/bin$")
VERSION_LINE: Final = re.compile(r"\bclang version (\d+)\.(\d+)(?:\.(\d+))?")
"""What a clang says of itself: LLVM's version."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program that may be a compiler: the words of the command that runs it, and how it was found.

    ``origin`` is ``option``, ``environment``, ``built``, ``PATH`` or ``ziglang``.
    """

    words: tuple[str, ...]
    origin: str


@dataclass(frozen=True, slots=True)
class Compiler:
    """A clang.

    Attributes:
        driver: the words of the command that runs it as a build does.
        origin: how it was found, see `Candidate`.
        binary: the file that compiles, behind wrappers.
        cc1: the words to put before ``-cc1``.
        version: LLVM's, such as ``19.1.7``.
        vendor: its version line, with the distributor's name.
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

    @property
    def is_zig(self) -> bool:
        """Whether it is zig's clang, which finds headers and a linker only as ``zig cc``."""
        return os.path.basename(self.driver[0]) == "zig" or "ziglang" in self.driver


def built_toolchains(cache: Path) -> Sequence[Path]:
    """Return the toolchains that this package built: those in the cache, and those built elsewhere."""
    found = noted_folders(cache / BUILT_NAME)
    with suppress(OSError):
        found += sorted((cache / _TOOLCHAINS_FOLDER).iterdir())
    return tuple(dict.fromkeys(found))


def noted_folders(path: Path) -> list[Path]:
    """Return the folders in a list in the cache, see `note_folder`."""
    said = read_note(path)
    return [Path(name) for name in said if isinstance(name, str)] if isinstance(said, list) else []


def note_folder(path: Path, folder: Path) -> None:
    """Add a folder to a list in the cache, from which those go that are gone."""
    kept = [one for one in noted_folders(path) if one.is_dir() and one != folder]
    with suppress(OSError):  # then it is not listed
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps([*map(str, kept), str(folder)], indent=1).encode())


def find_zig() -> tuple[str, ...] | None:
    """Return the words before ``cc`` that run the clang of the ``ziglang`` package; None if it is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return (sys.executable, "-m", "ziglang")


def named_compiler(named: Path | str, origin: str) -> Candidate:
    """Make a candidate from what a user names: a program, a name on PATH, a toolchain's folder, a command.

    Where packages install ``clang-22``, ``clang`` means the newest of those.

    Raises:
        UsageError: there is no such program.
    """
    where = f" (from {COMPILER_VARIABLE})" if origin == "environment" else ""
    words = _words_of(str(named), where)
    first = words[0]
    folder = Path(first)
    found = _which(first) or (_newest_clang() if first == "clang" else None)
    if found is None and folder.is_dir():
        inside = next((path for path in (folder / "bin" / "clang", folder / "clang") if is_program(path)), None)
        if inside is None:
            raise UsageError(f"{first}: expected a compiler, found a folder without bin/clang{where}")
        return Candidate((str(inside.absolute()), *words[1:]), origin)
    if found is None:
        what = "not an executable program" if folder.exists() else "no such program"
        raise UsageError(f"{first}: {what}{where}{_others(first)}")
    return Candidate(_as_clang((found, *words[1:])), origin)


def _others(first: str) -> str:
    """Return a hint at the compilers that exist instead of a usual name."""
    found = [candidate.words[0] for candidate in _installed()] if _CLANG_NAME.fullmatch(first) else []
    return f"; there is {', '.join(map(short_name, found))}" if found else ""


def _newest_clang() -> str | None:
    return next((candidate.words[0] for candidate in newest_first(_installed())), None)


def _installed() -> list[Candidate]:
    known = find_compilers(environment={"PATH": os.environ.get("PATH", "")})
    return [candidate for candidate in known if candidate.origin == "PATH"]


def newest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort compilers as a user expects them: a plain ``clang`` on PATH, then the newest.

    Those on PATH come before those in package managers' folders, and zig's, another compiler around it, comes last.
    """

    def key(candidate: Candidate) -> tuple[bool, bool, bool, int]:
        folder, name = os.path.split(candidate.words[0])
        version = name.partition("-")[2]
        is_meant = folder in os.get_exec_path()
        if not version and not is_meant and (kept := _VERSIONED_FOLDER.search(folder)):  # /usr/lib/llvm-22/bin/clang
            version = kept[1]
        return candidate.origin != "PATH", not is_meant, version != "", -int(version) if version.isdigit() else 0

    return sorted(candidates, key=key)


def short_name(program: str) -> str:
    """Return what to type for a program: its name if PATH leads to it, else its path."""
    name = os.path.basename(program)
    return name if _which(name) == program else program


def _words_of(named: str, where: str) -> list[str]:
    """Split a command as a shell does; an existing path with blanks is one word."""
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
    """Return the programs that may be compilers, the likeliest first; none of them is run.

    ``named`` comes first, then `COMPILER_VARIABLE`, then the toolchains of ``built`` (folders), ``clang`` and
    ``clang-N`` on PATH and in package managers' folders, and the ``ziglang`` package's.

    Raises:
        UsageError: ``named``, or the program that the variable names, does not exist.
    """
    return tuple(_distinct(_iter_compilers(named, built, environment)))


def _iter_compilers(named: str | None, built: Iterable[Path], environment: Mapping[str, str]) -> Iterator[Candidate]:
    if named is not None:
        yield named_compiler(named, "option")
    if by_variable := environment.get(COMPILER_VARIABLE, "").strip():
        yield named_compiler(by_variable, "environment")
    for folder in built:
        if is_program(folder / "bin" / "clang"):
            yield Candidate((str(folder / "bin" / "clang"),), "built")
    folders = [Path(name) for name in os.get_exec_path(dict(environment)) if name]
    for pattern in _USUAL_FOLDERS:
        folders += sorted(Path("/").glob(pattern[1:]))
    for folder in folders:
        names: list[str] = []
        with suppress(OSError):
            names = [name for name in os.listdir(folder) if _CLANG_NAME.fullmatch(name)]
        for name in sorted(names, key=lambda name: (len(name), name)):
            if is_program(folder / name):
                yield Candidate((str((folder / name).absolute()),), "PATH")
    zig = find_zig()
    if zig is not None:
        yield Candidate(_as_clang((*zig, "clang")), "ziglang")


def _distinct(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Skip a candidate that is the same file as an earlier one. A link to a program of another name (ccache) is not."""
    seen = set()
    for candidate in candidates:
        real = os.path.realpath(candidate.words[0])
        is_clang = os.path.basename(real).startswith("clang")
        key = (real if is_clang else candidate.words[0], *candidate.words[1:])
        if key not in seen:
            seen.add(key)
            yield candidate


def _as_clang(words: tuple[str, ...]) -> tuple[str, ...]:
    """Replace zig's driver by its clang: ``zig cc`` and ``python -m ziglang cc`` are another driver around it."""
    if words[1:3] == ("-m", "ziglang"):
        spec = importlib.util.find_spec("ziglang")
        program = None if spec is None or spec.origin is None else Path(spec.origin).with_name("zig")
        # Starting it through Python takes 40 ms more.
        first = words[:3] if program is None or not is_program(program) else (str(program),)
        return (*first, "clang")
    if os.path.basename(words[0]) == "zig":
        return (words[0], "clang")
    return words


def loads_plugin(words: Iterable[str]) -> bool:
    """Return True if a compiler's own words load a plugin, as an extended clang's do."""
    return any(word.startswith(PLUGIN_OPTION) for word in words)


def identify(
    candidate: Candidate, *, timeout: float = _IDENTIFY_TIMEOUT_S, stop: threading.Event | None = None
) -> Compiler:
    """Find the binary behind a candidate, and its version, by asking what it would run. Nothing is compiled.

    Another thread can end it by ``stop``.

    Raises:
        ToolError: it cannot be run, fails, or hangs.
        UsageError: it is not a clang.
    """
    argv = (*candidate.words, "-###", "-O2", "-c", "../probe.c", "-o", "probe.o")
    with scratch_folder() as scratch:
        (scratch / "probe.c").touch()
        (scratch / "folder").mkdir()
        said = run_tool(argv, cwd=scratch / "folder", timeout=timeout, stop=stop)
    text = said.stderr + said.stdout.decode(errors="replace")
    version = VERSION_LINE.search(text)
    command = next((line for line in text.splitlines() if ' "-cc1" ' in line), "")
    words: tuple[str, ...] = ()
    with suppress(ValueError):  # an open quote
        words = tuple(shlex.split(command))
    if version is None or "-cc1" not in words[1:]:
        raise UsageError("not a clang, or not one that prints its commands with -###")
    before, arguments = words[: words.index("-cc1")], words[words.index("-cc1") :]
    if loads_plugin(arguments):
        # The commands of a corpus have no such option: only this driver adds it, so it has to run them.
        before = candidate.words
    # A compiler may print the name by which it was called: the clang in a toolchain's folder may be a link.
    binary = _which(before[0]) or before[0]
    return Compiler(
        driver=candidate.words,
        origin=candidate.origin,
        binary=Path(binary),
        cc1=before,
        version=".".join(number or "0" for number in version.groups()),
        vendor=version.string[: version.end()].rpartition("\n")[2].strip(),
        compile_words=arguments,
    )


def find_beside(compiler: Compiler, name: str) -> Path | None:
    """Find another program of the same LLVM in the binary's folder, or in the driver's, where it may have a suffix."""
    binary, driver = compiler.binary, Path(compiler.driver[0])
    suffix = driver.name.replace("clang++", "clang", 1).partition("clang")[2]
    places = (binary.with_name(name), binary.resolve().with_name(name), driver.with_name(name + suffix))
    return next((path for path in places if is_program(path)), None)


def one_line(error: Exception) -> str:
    """Return in one line, without the whole command, why a program could not be used."""
    if isinstance(error, ToolError):
        said = [line.strip() for line in error.stderr.splitlines() if line.strip()]
        errors = [line for line in said if "error:" in line or "Unknown command line argument" in line]
        last = (errors or said or [""])[-1]
        return ": ".join(filter(None, (error.outcome, last[:300])))
    return str(error)


def _which(name: str) -> str | None:
    """Return the absolute path of a program, given by its path or by its name on PATH; None if there is none."""
    if os.sep in name:
        return os.path.abspath(name) if is_program(Path(name)) else None
    for folder in os.get_exec_path():
        if is_program(path := Path(folder) / name):
            return os.path.abspath(path)
    return None


def is_program(path: Path) -> bool:
    """Return True if a file is there that can be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
