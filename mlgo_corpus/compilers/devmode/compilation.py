"""Compile LLVM's development mode and link it with the installed static libraries.

Our objects are first on the link line. They define all symbols of the library members of the same names, so the linker
never takes those: nothing has to be removed from the libraries.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mlgo_corpus.compilers.devmode.installed import Installed
from mlgo_corpus.compilers.devmode.record import Embedded
from mlgo_corpus.compilers.devmode.sources import ANALYSIS, CODEGEN, DRIVER, LLC, OPT
from mlgo_corpus.compilers.failures import says_disk_full
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.engine.threads import in_threads
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.formats.commands.languages import clang_names
from mlgo_corpus.formats.logs.tasks import GROWTH_LIMIT, INLINING, find_task

EVALUATOR = Path(__file__).with_name("model_evaluator.cpp")

TOOLS = ("clang", "opt", "llc")

# A file takes up to seven seconds, a link four; a machine may be slow, busy and short of memory.
_COMPILE_TIMEOUT_S = 1800.0
_LINK_TIMEOUT_S = 1800.0

# LLVM_HAVE_TFLITE enables development mode. Assertions are off in Debian's libraries, and so here.
# Two thirds of the time is parsing headers: -O0 would save four seconds in thirty and make a slower compiler.
OWN_FLAGS = ("-DLLVM_HAVE_TFLITE", "-DNDEBUG", "-O2", "-ffunction-sections", "-fdata-sections", "-w")
# A position-independent clang has half a million relocations, a third of the time that it takes for a small module.
LINK_FLAGS = ("-fuse-ld=lld", "-no-pie", "-Wl,--gc-sections", "-Wl,--as-needed", "-s")

# LLVM's CMake generates config.h in the build's own folder, and no package has it. These files need none of its
# definitions but those of llvm-config.h.
CONFIG_HEADER = '#include "llvm/Config/llvm-config.h"\n'

# Where the headers of models are, among what is generated.
_MODELS = "models"

# The main that CMake generates for the driver (llvm/cmake/modules/llvm-driver-template.cpp.in): since LLVM 17, and
# before.
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

# The files that take longest are compiled first, so that no processor is idle in the end.
_SLOW = ("NewPMDriver.cpp", "cc1_main.cpp", "driver.cpp", "llc.cpp", "MLRegAllocEvictAdvisor.cpp", "cc1as_main.cpp")

_Item = TypeVar("_Item")


# clang's cc1 with a model that is on for -Os and -Oz: LLVM's own function has another name then.
_CC1_NAME = "mlgo_plain_cc1_main"
_CC1_MAIN = """\
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
int @plain@(llvm::ArrayRef<const char *>, const char *, void *);
int cc1_main(llvm::ArrayRef<const char *> Argv, const char *Argv0, void *MainAddr) {
  llvm::SmallVector<const char *, 256> Words(Argv.begin(), Argv.end());
  bool ForSize = false, IsChosen = false, IsLimited = !@grows@, IsDecided = @all@;
  llvm::StringRef Before;
  for (llvm::StringRef Word : Argv) {
    if (Word.starts_with("-O"))
      ForSize = Word == "-Os" || Word == "-Oz";
    IsChosen |= Word.starts_with("@option@");
    IsLimited |= Word.starts_with("@growth@") || Word.starts_with("-@growth@");
    if (Before == "-x")
      for (llvm::StringRef Language : {@languages@})
        IsDecided |= Word == Language;
    Before = Word;
  }
  if (ForSize && IsDecided && !IsChosen) {
    Words.push_back("-mllvm");
    Words.push_back("@option@=release");
    if (!IsLimited) { // else a policy is asked nothing more once a module has doubled
      Words.push_back("-mllvm");
      Words.push_back("@growth@=1e9");
    }
  }
  return @plain@(Words, Argv0, MainAddr);
}
"""
_CC1_FILE = "policy-cc1_main.cpp"


@dataclass(frozen=True, slots=True)
class _Unit:
    """A file to compile; ``tool`` is the only tool that is linked with it, empty for all tools.

    ``flags`` are its own, and ``beside`` is another text that it is made from.
    """

    name: str
    tool: str
    source: Path
    flags: tuple[str, ...] = ()
    beside: str = ""


@dataclass(frozen=True, slots=True)
class _Object:
    """A unit, and the path of its compiled object, whose name identifies what it was made from."""

    unit: _Unit
    path: Path


def list_units(
    source: Path, generated: Path, *, has_opt_library: bool, embedded: Embedded | None = None
) -> list[_Unit]:
    """Return the files to compile of an LLVM's kept sources and of ``generated``, the slow ones first.

    ``has_opt_library``: whether most of opt is in a library (libLLVMOptDriver.a, since LLVM 19). ``embedded``: the
    model to compile, instead of development mode.
    """
    units = [_Unit("clang-main", "clang", generated / "clang-main.cpp")]
    if embedded is None:
        units.append(_Unit("model_evaluator", "", EVALUATOR))
        units += [_Unit(path.stem, "", path) for path in _of_development_mode(source)]
    else:
        path = source / embedded.source
        # The tools' own files are compiled as for development mode, so that these objects are made once.
        with_model = ("-ULLVM_HAVE_TFLITE", f"-DLLVM_HAVE_TF_AOT_{embedded.model.upper()}")
        headers = f"-I{generated / _MODELS / embedded.digest[:16]}"
        units.append(_Unit(path.stem, "", path, (*with_model, headers), embedded.header))
    is_wrapped = embedded is not None and embedded.default_on
    if is_wrapped:
        units.append(_Unit("policy-cc1_main", "clang", generated / _CC1_FILE))
    for folder, tool in ((OPT, "opt"), (LLC, "llc"), (DRIVER, "clang")):
        for path in sorted((source / folder).glob("*.cpp")):
            if tool != "opt" or not has_opt_library or path.name == "opt.cpp":
                renamed = (f"-Dcc1_main={_CC1_NAME}",) if is_wrapped and path.name == "cc1_main.cpp" else ()
                units.append(_Unit(f"{tool}-{path.stem}", tool, path, renamed))
    order = {name: place for place, name in enumerate(_SLOW)}
    return sorted(units, key=lambda unit: order.get(unit.source.name, len(order)))


def _of_development_mode(source: Path) -> list[Path]:
    paths = [path for folder in (ANALYSIS, CODEGEN) for path in sorted((source / folder).glob("*.cpp"))]
    return [path for path in paths if b"LLVM_HAVE_TFLITE" in path.read_bytes()]


def write_generated(folder: Path, source: Path, embedded: Embedded | None = None) -> None:
    """Write the files that LLVM's CMake would generate, and those of a model.

    Raises:
        OSError: they cannot be written.
    """
    config = folder / "include" / "llvm" / "Config" / "config.h"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(CONFIG_HEADER, encoding="utf-8")
    driver = (source / DRIVER / "driver.cpp").read_text(encoding="utf-8", errors="replace")
    (folder / "clang-main.cpp").write_text(CLANG_MAIN if "ToolContext" in driver else CLANG_MAIN_16, encoding="utf-8")
    if embedded is not None:
        model = folder / _MODELS / embedded.digest[:16] / f"{embedded.model}.h"
        model.parent.mkdir(parents=True, exist_ok=True)
        model.write_text(embedded.header, encoding="utf-8")
        text = _CC1_MAIN.replace("@plain@", _CC1_NAME).replace("@option@", find_task(embedded.task).advisor)
        text = text.replace("@growth@", GROWTH_LIMIT)
        text = text.replace("@grows@", "true" if embedded.task == INLINING else "false")
        names = ", ".join(f'"{name}"' for name in clang_names(embedded.languages))
        text = text.replace("@all@", "false" if embedded.languages else "true").replace("@languages@", names)
        (folder / _CC1_FILE).write_text(text, encoding="utf-8")


class ToolCompiler:
    """The installed LLVM's clang++, with the flags and folders of a build.

    ``generated`` is the folder of `write_generated`, ``objects`` the folder of the objects. A file with an object's
    name is complete, so that a build that failed goes on from there.
    """

    def __init__(self, installed: Installed, generated: Path, objects: Path) -> None:
        self.installed = installed
        self.generated = generated
        self.objects = objects
        self.flags = (*installed.compile_flags(), *OWN_FLAGS)

    def objects_of(self, units: Iterable[_Unit]) -> list[_Object]:
        """Return each unit's object, named by a digest of its source, the headers beside it, the LLVM and the flags.

        Raises:
            OSError: a file cannot be read.
        """
        made_with = json.dumps([self.installed.version, self.installed.packages, self.flags, CONFIG_HEADER])
        objects = []
        for unit in units:
            own = json.dumps([unit.flags, unit.beside]) if unit.flags or unit.beside else ""
            digest = hashlib.sha256(f"{made_with}{own}".encode())
            for file in (unit.source, *sorted(unit.source.parent.glob("*.h"))):
                digest.update(file.read_bytes())
            objects.append(_Object(unit, self.objects / f"{unit.name}-{digest.hexdigest()[:16]}.o"))
        return objects

    def compile(self, objects: Sequence[_Object], jobs: int, progress: Callable[[int, int], None]) -> int:
        """Compile the objects that do not exist, ``jobs`` at a time; return the number of files compiled.

        Raises:
            ToolError: one failed; the others are stopped, and finished ones stay.
            UsageError: the disk is full.
            OSError: an object cannot be written.
        """
        self.objects.mkdir(parents=True, exist_ok=True)
        for left_behind in self.objects.glob("*.part"):  # left by a killed build: the caller holds a lock
            left_behind.unlink(missing_ok=True)
        missing = [item for item in objects if not item.path.exists()]
        there = len(objects) - len(missing)
        progress(there, len(objects))
        _run_all(self._compile_one, missing, jobs, lambda done: progress(there + done, len(objects)))
        return len(missing)

    def _compile_one(self, item: _Object, stop: threading.Event) -> None:
        source = item.unit.source
        folders = ("-isystem", str(self.installed.headers), f"-I{self.generated / 'include'}")
        command = (*self.flags, *item.unit.flags, *folders, "-c", str(source))
        self._run(command, item.path, f"compile {source.name}", _COMPILE_TIMEOUT_S, stop)

    def link(self, objects: Sequence[_Object], tools: Path, jobs: int, progress: Callable[[int, int], None]) -> None:
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
            self._run(command, tools / tool, f"link {tool}", _LINK_TIMEOUT_S, stop)

        progress(0, len(TOOLS))
        _run_all(link_one, TOOLS, jobs, lambda done: progress(done, len(TOOLS)))

    def _libraries_of(self, tool: str) -> tuple[str, ...]:
        folder = self.installed.libraries
        if tool == "clang":
            names = sorted(path.name.removeprefix("lib").removesuffix(".a") for path in folder.glob("libclang*.a"))
            # They depend on each other in cycles.
            return ("-Wl,--start-group", *(f"-l{name}" for name in names), "-Wl,--end-group")
        return ("-lLLVMOptDriver",) if tool == "opt" and has_opt_library(self.installed) else ()

    def _run(self, command: tuple[str, ...], output: Path, what: str, timeout: float, stop: threading.Event) -> None:
        """Run clang++ so that ``output`` is complete or absent."""
        part = output.with_name(f"{output.name}.{os.getpid()}.part")
        argv = (str(self.installed.clangxx), *command, "-o", str(part))
        try:
            run_tool(argv, env={**os.environ, "LC_ALL": "C"}, timeout=timeout, stop=stop)
            part.replace(output)
        except ToolError as error:
            if says_disk_full(error.stderr, links=True):
                raise disk_full(output.parent) from None
            raise ToolError((*argv[:1], what), error.returncode, self._explained(error)) from None
        finally:
            part.unlink(missing_ok=True)

    def _explained(self, error: ToolError) -> str:
        """Return stderr with the first error and LLVM's version as the last line, which a `ToolError` shows."""
        lines = [line.strip() for line in error.stderr.splitlines() if "error:" in line]
        if not lines:
            return error.stderr
        return f"{error.stderr.rstrip()}\nLLVM {self.installed.version}: {lines[0]}"


def has_opt_library(installed: Installed) -> bool:
    """Return True if opt's own code is in a library."""
    return (installed.libraries / "libLLVMOptDriver.a").exists()


def disk_full(folder: Path) -> UsageError:
    """Return the error for a full disk, which says that nothing is lost."""
    return UsageError(
        f"{folder}: no space left on the disk; a build takes 600 MB there: make room and run the same command again,"
        " it goes on from where it was"
    )


def _run_all(
    work: Callable[[_Item, threading.Event], None],
    items: Sequence[_Item],
    jobs: int,
    progress: Callable[[int], None],
) -> None:
    """Call ``work`` with each item, ``jobs`` at a time; ``progress`` is called with the number done.

    If an item fails, or the wait is interrupted, the event is set; see `in_threads`.
    """
    stop = threading.Event()
    for done, _ in enumerate(in_threads(lambda item: work(item, stop), items, jobs=jobs, stop=stop), 1):
        progress(done)
