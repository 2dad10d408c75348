"""Check that a development-mode clang, opt and llc work, on a few lines of C."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from mlgo_corpus.compilers.devmode.record import Embedded
from mlgo_corpus.compilers.probe import PROBE_DATA
from mlgo_corpus.compilers.process import ToolResult, run_tool
from mlgo_corpus.errors import FormatError, ToolError
from mlgo_corpus.formats.commands.languages import clang_names
from mlgo_corpus.formats.logs.events import LogReader, Observation
from mlgo_corpus.formats.logs.tasks import TASKS, Task, find_task, for_clang

# Each of the probe's programs takes a tenth of a second.
_PROBE_TIMEOUT_S = 120.0

INLINING, EVICTION, PRIORITY = TASKS

_ESTIMATE = re.compile(r"^\[InlineSizeEstimatorAnalysis\] size estimate for .*: (\d+)$", re.MULTILINE)


def probe_tools(tools: Path, *, version: str, stock_clang: Path, scratch: Path) -> Mapping[str, int]:
    """Compile a few lines with each training log; return the number of observations by tool and log.

    ``tools`` is the folder of clang, opt and llc, ``version`` the LLVM version they must have, ``stock_clang`` the
    clang of the same LLVM, whose object theirs must equal: logging the default heuristics' decisions changes none of
    them. Files are made in the folder ``scratch``.

    Raises:
        ToolError: a tool failed, or its output is wrong.
        OSError: ``scratch`` cannot be used.
    """
    probe = _Probe(tools, scratch)
    probe.check_versions(version)
    # The file has calls to inline, and more values live at a time than there are registers.
    shutil.copyfile(PROBE_DATA / "probe.c", scratch / "probe.c")
    found = probe.clang_logs(stock_clang)
    probe.run("clang", "-O2", "-c", "probe.c", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", "probe.bc")
    found["opt inlining"] = probe.log(
        "opt", INLINING, "-passes=default<O2>", *INLINING.log_options("opt.log"), "probe.bc", "-o", "opt.bc"
    )
    for task in (EVICTION, PRIORITY):
        options = task.log_options("llc.log")
        found[f"llc {task.name}"] = probe.log("llc", task, "-O2", *options, "-filetype=obj", "opt.bc", "-o", "llc.o")
    found["opt ir2native rows"] = probe.vectors()
    return found


def probe_release(tools: Path, embedded: Embedded, *, version: str, scratch: Path) -> None:
    """Compile a few lines with a model that is linked in.

    Raises:
        ToolError: a tool failed, or its output is wrong.
        OSError: ``scratch`` cannot be used.
    """
    probe = _Probe(tools, scratch)
    probe.check_versions(version)
    shutil.copyfile(PROBE_DATA / "probe.c", scratch / "probe.c")
    release = for_clang((f"{find_task(embedded.task).advisor}=release",))
    source = ("-x", clang_names(embedded.languages)[0], "probe.c")
    for options in (release, ()):
        probe.run("clang", *options, "-Oz", "-c", *source, "-o", f"{len(options)}.o")
    objects = [(scratch / f"{len(options)}.o").read_bytes() for options in (release, ())]
    if embedded.default_on and objects[0] != objects[1]:
        raise probe.wrong("clang", "the policy is not on by default")


class _Probe:
    """Runs the tools in a folder, on its files."""

    def __init__(self, tools: Path, folder: Path) -> None:
        self.tools = tools.absolute()
        self.folder = folder

    def run(self, tool: str, *words: str) -> ToolResult:
        environment = {**os.environ, "LC_ALL": "C"}
        argv = (str(self.tools / tool), *words)
        return run_tool(argv, cwd=self.folder, env=environment, timeout=_PROBE_TIMEOUT_S)

    def check_versions(self, version: str) -> None:
        for tool in ("clang", "opt", "llc"):
            if version not in self.run(tool, "--version").stdout.decode(errors="replace"):
                raise self.wrong(tool, f"expected LLVM {version}, --version names another")

    def wrong(self, tool: str, what: str) -> ToolError:
        return ToolError((str(self.tools / tool),), 0, f"probe: {what}")

    def clang_logs(self, stock_clang: Path) -> dict[str, int]:
        """Compile once for each log; compare the objects with the stock clang's."""
        command = ("-O2", "-c", "probe.c", "-o")
        run_tool((str(stock_clang), *command, "stock.o"), cwd=self.folder, timeout=_PROBE_TIMEOUT_S)
        stock = (self.folder / "stock.o").read_bytes()
        found = {}
        for task in TASKS:
            options = for_clang(task.log_options("clang.log"))
            found[f"clang {task.name}"] = self.log("clang", task, *options, *command, "own.o")
            if (self.folder / "own.o").read_bytes() != stock:
                raise self.wrong("clang", f"with the {task.name} log, the object differs from {stock_clang}'s")
        return found

    def log(self, tool: str, task: Task, *words: str) -> int:
        """Run a tool that writes ``TOOL.log``, and count the log's observations."""
        log = self.folder / f"{tool}.log"
        log.unlink(missing_ok=True)
        self.run(tool, *words)
        try:
            with log.open("rb") as stream:
                count = sum(isinstance(event, Observation) for event in LogReader(stream))
        except FileNotFoundError:
            raise self.wrong(tool, f"it wrote no {task.name} log") from None
        except FormatError as error:
            raise self.wrong(tool, f"its {task.name} log is damaged: {error}") from None
        if count == 0:
            raise self.wrong(tool, f"its {task.name} log holds no observation")
        return count

    def vectors(self) -> int:
        """Have opt write the IR2Native vector of each function; return their number."""
        done = self.run(
            "opt",
            "-passes=function(print<inliner-size-estimator>)",
            "-ml-inliner-ir2native-model=vectors",
            "-ml-inliner-ir2native-number-rows",
            "opt.bc",
            "-o",
            "vectors.bc",
        )
        named = [int(number) for number in _ESTIMATE.findall(done.stderr)]
        try:
            rows = len((self.folder / "vectors").read_text(encoding="utf-8").splitlines()) - 1
        except FileNotFoundError:
            raise self.wrong("opt", "it wrote no IR2Native vectors") from None
        if rows < 1 or named != list(range(rows)):
            raise self.wrong("opt", f"{rows} IR2Native vectors, but {len(named)} functions named")
        return rows
