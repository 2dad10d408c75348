"""The build that ``mlgo-corpus demo`` works on: real C and C++ that the ``ziglang`` wheel carries.

Parts of musl, libc++ and libc++abi are compiled for x86-64 Linux on any host, each file by a separate
``python -m ziglang cc`` that embeds the bitcode, as a build system would do it: one
compile_commands.json, relative outputs and dependency files, one folder tree of objects.

An object gets its final name when it is complete, and all objects of a folder were made by the compiler
and commands that the file `STATE_NAME` records; so a second call compiles only what is missing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgo_corpus.compilers.find import find_zig
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.engine.threads import in_threads
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.atomic import write_atomically

COMMANDS_NAME = "compile_commands.json"
STATE_NAME = ".demo-build.json"

# The largest file takes five seconds; a machine may be slow and busy.
_COMPILE_TIMEOUT_S = 300.0

_TARGET = ("-target", "x86_64-linux-musl", "-Oz", "-Xclang", "-fembed-bitcode=all", "-w")

# Folders of musl's src with substantial code; the rest is mostly one-line system calls.
_MUSL_FOLDERS = (
    "crypt", "ctype", "locale", "math", "misc", "multibyte", "prng", "regex", "search", "stdio", "stdlib",
    "string", "time",
)  # fmt: skip

# As in musl's Makefile and configure.
_MUSL_FLAGS = (
    "-std=c99", "-ffreestanding", "-fexcess-precision=standard", "-frounding-math", "-fno-strict-aliasing",
    "-fomit-frame-pointer", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
    "-ffunction-sections", "-fdata-sections", "-D_XOPEN_SOURCE=700",
)  # fmt: skip
_MUSL_INCLUDES = (
    "libc/musl/arch/x86_64", "libc/musl/arch/generic", "libc/musl/src/include", "libc/musl/src/internal",
    "libc/musl/include", "libc/include/x86_64-linux-musl", "libc/include/generic-musl",
)  # fmt: skip

# `zig c++` adds libc++'s headers and configuration itself; its own build of libc++ adds these flags.
_LIBCXX_FLAGS = (
    "-std=c++23", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-D_LIBCPP_BUILDING_LIBRARY",
    "-D_LIBCXXABI_BUILDING_LIBRARY", "-DLIBCXX_BUILDING_LIBCXXABI",
    "-DLIBC_NAMESPACE=__llvm_libc_common_utils",
)  # fmt: skip
_LIBCXX_INCLUDES = ("libcxx/src", "libcxx/libc", "libcxxabi/include", "libcxxabi/src")


@dataclass(frozen=True, slots=True)
class DemoBuild:
    """The result of `build_demo_objects`.

    ``failed`` pairs an object with a line of its compiler's error.
    """

    compile_commands: Path
    compiled: int
    reused: int
    failed: tuple[tuple[str, str], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Unit:
    """One file to compile: the object's path inside the build folder, and the command."""

    output: str
    source: Path
    command: tuple[str, ...]

    def argv(self, output: str) -> tuple[str, ...]:
        """Return the command that writes ``output``; what it embeds does not depend on that name."""
        dependencies = ("-MD", "-MT", self.output, "-MF", f"{self.output}.d")
        return (*self.command, *dependencies, "-o", output, "-c", str(self.source))


def build_demo_objects(
    folder: Path,
    *,
    jobs: int,
    progress: Callable[[int, int], None],
    only: Callable[[str], bool] | None = None,
    force: bool = False,
) -> DemoBuild:
    """Compile the demo's files into ``folder``, ``jobs`` at a time.

    ``progress`` is called with the number of finished objects and the number of all. ``only`` selects
    objects by their path (``musl/regex/regcomp.o``); the default is all. ``force`` compiles everything
    again.

    Files that do not compile are returned, not raised. Raises `UsageError` if there is no ``ziglang``
    package, or if ``folder`` holds a compile_commands.json that the demo did not write.
    """
    begin = time.monotonic()
    folder = folder.absolute()
    units = [unit for unit in _all_units() if only is None or only(unit.output)]
    commands = [
        {"directory": str(folder), "file": str(unit.source), "arguments": unit.argv(unit.output)} for unit in units
    ]
    _prepare(folder, units, commands, force=force)

    missing = [unit for unit in units if not (folder / unit.output).exists()]
    reused = len(units) - len(missing)
    progress(reused, len(units))
    failed: list[tuple[str, str]] = []
    if missing:
        # zig caches what it compiles; this keeps the cache inside the folder, and removes it afterwards.
        with (
            _scratch_folder(folder) as scratch,
            closing(_iter_compiled(folder, Path(scratch), missing, jobs)) as results,
        ):
            for done, (unit, error) in enumerate(results, 1):
                if error is not None:
                    failed.append((unit.output, error))
                progress(reused + done, len(units))
    return DemoBuild(
        compile_commands=folder / COMMANDS_NAME,
        compiled=len(missing) - len(failed),
        reused=reused,
        failed=tuple(sorted(failed)),
        seconds=time.monotonic() - begin,
    )


def _all_units() -> list[_Unit]:
    """List the files to compile, with the slow ones (C++) spread evenly among the others for even progress."""
    zig = find_zig()
    spec = importlib.util.find_spec("ziglang")
    if zig is None or spec is None or spec.origin is None:
        raise UsageError("the demo needs a compiler: pip install ziglang")
    library = Path(spec.origin).parent / "lib"

    def options(*flags: str, includes: tuple[str, ...]) -> tuple[str, ...]:
        return (*_TARGET, *flags, *(f"-I{library / name}" for name in includes))

    def units(name: str, sources: Path, patterns: tuple[str, ...], command: tuple[str, ...]) -> list[_Unit]:
        return [
            _Unit((name / path.relative_to(sources)).with_suffix(".o").as_posix(), path, command)
            for pattern in patterns
            for path in sorted(sources.glob(pattern))
        ]

    cxx = (*zig, "c++", *options(*_LIBCXX_FLAGS, includes=_LIBCXX_INCLUDES))
    c = (*zig, "cc", *options(*_MUSL_FLAGS, includes=_MUSL_INCLUDES))
    slow = units("libcxx", library / "libcxx" / "src", ("*.cpp", "filesystem/*.cpp"), cxx)
    slow += units("libcxxabi", library / "libcxxabi" / "src", ("*.cpp",), cxx)
    quick = units("musl", library / "libc" / "musl" / "src", tuple(f"{name}/*.c" for name in _MUSL_FOLDERS), c)
    placed = [(index / len(group), unit) for group in (slow, quick) for index, unit in enumerate(group)]
    return [unit for _, unit in sorted(placed, key=lambda pair: pair[0])]


def _prepare(folder: Path, units: list[_Unit], commands: list[dict[str, Any]], *, force: bool) -> None:
    """Make the folders, write compile_commands.json, and remove objects of other commands or compilers."""
    database = folder / COMMANDS_NAME
    state_path = folder / STATE_NAME
    if database.exists() and not state_path.exists() and not force:
        raise UsageError(f"{database}: not written by the demo; name another `output`, or add `force` to replace it")
    text = json.dumps(commands, indent=1).encode() + b"\n"
    version = importlib.metadata.version("ziglang")
    state = json.dumps({"ziglang": version, "commands": hashlib.sha256(text).hexdigest()}).encode()
    try:
        for parent in {(folder / unit.output).parent for unit in units}:
            parent.mkdir(parents=True, exist_ok=True)
        for left_behind in folder.glob(".demo-*/"):
            shutil.rmtree(left_behind, ignore_errors=True)
        if force or not state_path.exists() or state_path.read_bytes() != state:
            # Empty until all files are consistent, so that the call after an interrupted one starts over.
            write_atomically(state_path, b"")
            for unit in units:
                (folder / unit.output).unlink(missing_ok=True)
            write_atomically(database, text)
            write_atomically(state_path, state)
    except OSError as error:
        raise _unwritable(error) from error


def _scratch_folder(folder: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix=".demo-", dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> UsageError:
    return UsageError(f"{error.filename}: cannot write there: {error.strerror}")


def _iter_compiled(
    folder: Path, scratch: Path, units: list[_Unit], jobs: int
) -> Generator[tuple[_Unit, str | None], None, None]:
    """Compile the units; yield each with its error or None, in order of completion.

    If the generator is closed early, for example after Ctrl-C, the running compilers are ended.
    """
    cache = str(scratch / "zig")
    environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": cache, "ZIG_GLOBAL_CACHE_DIR": cache}
    stop = threading.Event()

    def compile_unit(index: int) -> str | None:
        unit, temporary = units[index], scratch / f"{index}.o"
        try:
            run_tool(unit.argv(str(temporary)), cwd=folder, env=environment, timeout=_COMPILE_TIMEOUT_S, stop=stop)
            temporary.replace(folder / unit.output)
        except ToolError as error:
            return error.first_error
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        return None

    for index, reason in in_threads(compile_unit, range(len(units)), jobs=jobs, stop=stop):
        yield units[index], reason
