"""The drivers of a clang, and the cc1 line that they make of a line (`mlgo_corpus.formats.commands.driver`)."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.compilers.confinement import confine
from mlgo_corpus.compilers.failures import RunFailure, classify
from mlgo_corpus.compilers.find import Compiler, find_beside, is_program
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.formats.commands.driver import driver_words

_TIMEOUT_S: Final = 60.0
# Input and output come before the line's own words, so that none of these takes one as its value. The input may
# be anything of the kind. A machine's configuration, and the folder, would make it another line elsewhere.
_QUESTION: Final = ("-###", "--no-default-config", "-ffile-compilation-dir=.", "-c", "-o", "module.o", "-x", "ir", "-")
# Each word of a command that clang prints is in quotes, with a backslash before what would end them.
_COMMAND = re.compile(r'^ "[^"]*"(?: "(?:[^"\\]|\\.)*")+$', re.MULTILINE | re.DOTALL)
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
ARCHIVERS: Final = {
    "ar": ("ar", "gcc-ar", "llvm-ar"),
    "ranlib": ("ranlib", "gcc-ranlib", "llvm-ranlib"),
    "nm": ("nm", "gcc-nm", "llvm-nm"),
}
"""The names by which a build may call each tool for archives that comes with a clang."""


@dataclass(frozen=True, slots=True)
class Drivers:
    """The commands that run the compiler, and its archivers if it has any.

    Attributes:
        c: the C compiler.
        cxx: the C++ compiler.
        archivers: those of ``ar``, ``ranlib`` and ``nm`` that come with the compiler.
    """

    c: tuple[str, ...]
    cxx: tuple[str, ...]
    archivers: Mapping[str, tuple[str, ...]]


def drivers_of(compiler: Compiler) -> Drivers:
    """Find the C and the C++ driver of a clang, and its archivers, which know bitcode."""
    words = compiler.driver
    program = Path(words[0])
    if compiler.is_zig:
        zig = words[:-1]
        return Drivers((*zig, "cc"), (*zig, "c++"), {name: (*zig, name) for name in ("ar", "ranlib")})
    # A user may name either driver of a pair. Wrappers (Nix's, ccache's links) come in pairs, too, so prefer the one
    # beside the driver to the one beside the binary.
    is_cxx = "clang++" in program.name
    c_name = program.name.replace("clang++", "clang", 1)
    name, usual, mode = (
        (c_name, "clang", "gcc") if is_cxx else (c_name.replace("clang", "clang++", 1), "clang++", "g++")
    )
    beside: tuple[Path, ...] = ()
    if all(word.startswith("-") for word in words[1:2]):  # else the program only starts the clang, as ccache does
        beside = (program.with_name(name), compiler.binary.with_name(usual))
    found = next((path for path in beside if path.name != program.name and is_program(path)), None)
    other = (*words, f"--driver-mode={mode}") if found is None else (str(found.absolute()), *words[1:])
    beside_it = {name: find_beside(compiler, f"llvm-{name}") for name in ARCHIVERS}
    archivers = {name: (str(path),) for name, path in beside_it.items() if path is not None}
    return Drivers(*((other, words) if is_cxx else (words, other)), archivers)


def is_native(triple: str) -> bool:
    """Return True if a target such as ``x86_64-pc-linux-gnu`` is this machine: its processor, system and C library."""
    libc = "gnu" if platform.libc_ver()[0] == "glibc" else "musl"
    system = rf"{re.escape(platform.machine())}-(?:\w+-)?{platform.system().lower()}[\d.]*(?:-{libc})?"
    return re.fullmatch(system, triple) is not None


def target_option(triple: str | None) -> tuple[str, ...]:
    """Return clang's option for the target that a compiler's name has, if it has one and that is not this machine."""
    return () if triple is None or is_native(triple) else (f"--target={triple}",)


@lru_cache(maxsize=64)
def cc1_line(line: tuple[str, ...], cc1: tuple[str, ...], *, trusted: bool) -> tuple[str, ...]:
    """Return the cc1 options that a clang makes of a driver's line. Nothing is compiled.

    Args:
        line: the driver's options.
        cc1: the words of the clang that are put before ``-cc1``.
        trusted: give it any option, without walls.

    Raises:
        RunFailure: it must not be given an option, does not know one, or would do more than one compile.
    """
    try:
        words = line if trusted else driver_words(line)
    except UsageError as error:
        raise RunFailure(RunReason.REFUSED_OPTION, f"{error}; `trust_corpus` runs it") from None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        limits = confine(cc1[:1], [folder], memory_limit=None, trusted=trusted).keywords()
        env = {**os.environ, "TMPDIR": name}
        try:
            commands = ask_driver((*cc1, *_QUESTION, *words), cwd=folder, env=env, timeout=_TIMEOUT_S, **limits)
        except ToolError as error:
            raise RunFailure(*classify(error, timeout=_TIMEOUT_S)) from None
    if len(commands) != 1 or "-cc1" not in commands[0]:
        detail = f"expected options that make one object by one compile, found {len(commands)} commands"
        raise RunFailure(RunReason.REFUSED_OPTION, detail)
    return commands[0][commands[0].index("-cc1") :]


def ask_driver(argv: Sequence[str], **how: Any) -> list[tuple[str, ...]]:
    """Ask a driver, whose options have ``-###``, what it would run; ``how`` is for `run_tool`.

    What it says is read from a file: with each of some thousand objects, a link's command is longer than the tail of
    stderr that is kept otherwise.

    Raises:
        ToolError: it fails.
        OSError: it says more than 64 MiB.
    """
    with scratch_folder() as folder:
        run_tool(argv, stderr=folder / "said", **how)
        said = read_regular(folder / "said", MAX_NOTE_BYTES).decode("utf-8", "surrogateescape")
    return [_split(found[0]) for found in _COMMAND.finditer(said)]


def _split(command: str) -> tuple[str, ...]:
    return tuple(re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL) for word in _WORD.findall(command))
