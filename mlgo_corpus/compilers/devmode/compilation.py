"""Compile LLVM's development mode and link it with the installed static libraries.

Our objects stand first on the link line. They define all that the library members of the same names define, so the
linker never takes those: nothing has to be removed from the libraries.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mlgo_corpus.compilers.devmode.installed import Installed
from mlgo_corpus.compilers.devmode.sources import ANALYSIS, CODEGEN, DRIVER, LLC, OPT
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.errors import ToolError, UsageError

EVALUATOR = Path(__file__).with_name("model_evaluator.cpp")

TOOLS = ("clang", "opt", "llc")

# A file takes up to seven seconds, a link four; a machine may be slow, busy and short of memory.
COMPILE_TIMEOUT_S = 1800.0
LINK_TIMEOUT_S = 1800.0

# LLVM_HAVE_TFLITE is what switches development mode on. Assertions are off in Debian's libraries, so here, too.
# Two thirds of the time is parsing headers: -O0 would save four seconds in thirty and give a slower compiler.
OWN_FLAGS = ("-DLLVM_HAVE_TFLITE", "-DNDEBUG", "-O2", "-ffunction-sections", "-fdata-sections", "-w")
LINK_FLAGS = ("-fuse-ld=lld", "-Wl,--gc-sections", "-Wl,--as-needed", "-s")

# LLVM's CMake generates it into the build's own folder, and no package has it. Of what it defines beyond
# llvm-config.h, these files need nothing.
CONFIG_HEADER = '#include "llvm/Config/llvm-config.h"\n'

# What CMake generates around the driver (llvm/cmake/modules/llvm-driver-template.cpp.in): since LLVM 17, and before.
CLANG_MAIN = """\
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/LLVMDriver.h"
int clang_main(int argc, char **argv, const llvm::ToolContext &);
int main(int argc, char **argv) {
  llvm::InitLLVM Init(argc, argv);
  return clang_main(argc, argv, {argv[0], nullptr, false});
}
"""
CLANG_MAIN_16 = """\
int clang_main(int argc, char **argv);
int main(int argc, char **argv) { return clang_main(argc, argv); }
"""

# The files that take longest come first, so that no processor is idle in the end.
_SLOW = ("NewPMDriver.cpp", "cc1_main.cpp", "driver.cpp", "llc.cpp", "MLRegAllocEvictAdvisor.cpp", "cc1as_main.cpp")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Unit:
    """A file to compile; ``tool`` is the only one that is linked with it, empty for all of them."""

    name: str
    tool: str
    source: Path


@dataclass(frozen=True, slots=True)
class Object:
    """A unit, and where its object is when it is compiled: the name says of what it was made."""

    unit: Unit
    path: Path


def list_units(source: Path, generated: Path, *, has_opt_library: bool) -> list[Unit]:
    """List what is to be compiled of an LLVM's kept sources and of ``generated``, the slow files first.

    ``has_opt_library`` says that most of opt is in a library (libLLVMOptDriver.a, since LLVM 19).
    """
    units = [
        Unit("model_evaluator", "", EVALUATOR),
        Unit("clang-main", "clang", generated / "clang-main.cpp"),
    ]
    for folder, tool in ((ANALYSIS, ""), (CODEGEN, ""), (OPT, "opt"), (LLC, "llc"), (DRIVER, "clang")):
        for path in sorted((source / folder).glob("*.cpp")):
            if tool != "opt" or not has_opt_library or path.name == "opt.cpp":
                units.append(Unit(f"{tool}-{path.stem}" if tool else path.stem, tool, path))
    order = {name: place for place, name in enumerate(_SLOW)}
    return sorted(units, key=lambda unit: order.get(unit.source.name, len(order)))


def write_generated(folder: Path, source: Path) -> None:
    """Write the files that LLVM's CMake would generate.

    Raises:
        OSError: they cannot be written.
    """
    config = folder / "include" / "llvm" / "Config" / "config.h"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(CONFIG_HEADER, encoding="utf-8")
    driver = (source / DRIVER / "driver.cpp").read_text(encoding="utf-8", errors="replace")
    (folder / "clang-main.cpp").write_text(CLANG_MAIN if "ToolContext" in driver else CLANG_MAIN_16, encoding="utf-8")


class Compiler:
    """The installed LLVM's clang++, with the flags and folders of a build.

    ``generated`` is the folder of `write_generated`, ``objects`` is where the objects are kept. What ran under an
    object's name is whole, so a build that failed goes on where it was.
    """

    def __init__(self, installed: Installed, generated: Path, objects: Path) -> None:
        self.installed = installed
        self.generated = generated
        self.objects = objects
        self.flags = (*installed.compile_flags(), *OWN_FLAGS)

    def objects_of(self, units: Iterable[Unit]) -> list[Object]:
        """Name the object of each unit, by its source, the headers beside it, the LLVM and the flags.

        Raises:
            OSError: a file cannot be read.
        """
        made_with = json.dumps([self.installed.version, self.installed.packages, self.flags, CONFIG_HEADER])
        objects = []
        for unit in units:
            digest = hashlib.sha256(made_with.encode())
            for file in (unit.source, *sorted(unit.source.parent.glob("*.h"))):
                digest.update(file.read_bytes())
            objects.append(Object(unit, self.objects / f"{unit.name}-{digest.hexdigest()[:16]}.o"))
        return objects

    def compile(self, objects: Sequence[Object], jobs: int, progress: Callable[[int, int], None]) -> int:
        """Compile what is not there yet, ``jobs`` files at a time; give the number of files compiled.

        Raises:
            ToolError: one failed; the others are stopped, and those that were done stay.
            UsageError: the disk is full.
            OSError: an object cannot be written.
        """
        self.objects.mkdir(parents=True, exist_ok=True)
        for left_behind in self.objects.glob("*.part"):  # of a build that was killed: the caller holds a lock
            left_behind.unlink(missing_ok=True)
        missing = [item for item in objects if not item.path.exists()]
        there = len(objects) - len(missing)
        progress(there, len(objects))
        run_all(self._compile_one, missing, jobs, lambda done: progress(there + done, len(objects)))
        return len(missing)

    def _compile_one(self, item: Object, stop: threading.Event) -> None:
        source = item.unit.source
        folders = ("-isystem", str(self.installed.headers), f"-I{self.generated / 'include'}")
        command = (*self.flags, *folders, "-c", str(source))
        self._run(command, item.path, f"compile {source.name}", COMPILE_TIMEOUT_S, stop)

    def link(self, objects: Sequence[Object], tools: Path, jobs: int, progress: Callable[[int, int], None]) -> None:
        """Link the three tools into the folder ``tools``.

        Raises:
            ToolError: a link failed.
            UsageError: the disk is full.
            OSError: a tool cannot be written.
        """
        libraries = self.installed.ask("--link-static", "--libs", "all")
        system = self.installed.ask("--link-static", "--system-libs")
        tools.mkdir(parents=True, exist_ok=True)

        def link_one(tool: str, stop: threading.Event) -> None:
            own = [str(item.path) for item in objects if item.unit.tool in ("", tool)]
            folder = f"-L{self.installed.libraries}"
            command = (*LINK_FLAGS, folder, *own, *self._libraries_of(tool), *libraries, *system)
            self._run(command, tools / tool, f"link {tool}", LINK_TIMEOUT_S, stop)

        progress(0, len(TOOLS))
        run_all(link_one, TOOLS, jobs, lambda done: progress(done, len(TOOLS)))

    def _libraries_of(self, tool: str) -> tuple[str, ...]:
        folder = self.installed.libraries
        if tool == "clang":
            names = sorted(path.name.removeprefix("lib").removesuffix(".a") for path in folder.glob("libclang*.a"))
            # They need each other in no order that a list could give.
            return ("-Wl,--start-group", *(f"-l{name}" for name in names), "-Wl,--end-group")
        return ("-lLLVMOptDriver",) if tool == "opt" and has_opt_library(self.installed) else ()

    def _run(self, command: tuple[str, ...], output: Path, what: str, timeout: float, stop: threading.Event) -> None:
        """Run clang++ so that ``output`` is whole or not there."""
        part = output.with_name(f"{output.name}.{os.getpid()}.part")
        argv = (str(self.installed.clangxx), *command, "-o", str(part))
        try:
            run_tool(argv, env={**os.environ, "LC_ALL": "C"}, timeout=timeout, stop=stop)
            part.replace(output)
        except ToolError as error:
            # lld writes to memory that is mapped to its output: where that cannot grow, it is a bus error.
            if "No space left on device" in error.stderr or "Bus error" in error.stderr:
                raise disk_full(output.parent) from None
            raise ToolError((*argv[:1], what), error.returncode, self._explained(error)) from None
        finally:
            part.unlink(missing_ok=True)

    def _explained(self, error: ToolError) -> str:
        """Put the line that says what is wrong last, where a `ToolError` shows it; with it, the LLVM."""
        lines = [line.strip() for line in error.stderr.splitlines() if "error:" in line]
        if not lines:
            return error.stderr
        return f"{error.stderr.rstrip()}\nLLVM {self.installed.version}: {lines[0]}"


def has_opt_library(installed: Installed) -> bool:
    """Tell whether opt's own code is in a library."""
    return (installed.libraries / "libLLVMOptDriver.a").exists()


def disk_full(folder: Path) -> UsageError:
    """Say that the disk is full, and that nothing is lost."""
    return UsageError(
        f"{folder}: no space left on the disk; a build takes 600 MB there: make room and run the same command again,"
        " it goes on from where it was"
    )


def run_all(
    work: Callable[[Item, threading.Event], None],
    items: Sequence[Item],
    jobs: int,
    progress: Callable[[int], None],
) -> None:
    """Call ``work`` with each item, ``jobs`` at a time; ``progress`` is called with the number done.

    The event is set when one fails, or the wait is interrupted: no further item is begun, those in work should end,
    and the first error is raised when they have.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, jobs), thread_name_prefix="build") as pool:
        running = [pool.submit(work, item, stop) for item in items]
        try:
            for done, future in enumerate(as_completed(running), 1):
                future.result()
                progress(done)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
