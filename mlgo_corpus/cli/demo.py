"""``mlgo-corpus demo``: run a real build, extract its corpus, record decisions, and convert a training log."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from mlgo_corpus.cli.console import (
    finish,
    out,
    percent_change,
    progress_bar,
    show_failures,
    show_how_to_read,
    table,
    verb,
)
from mlgo_corpus.cli.options import JsonOutput, jobs_option
from mlgo_corpus.files.text import counted, human_bytes
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:
    from mlgo_corpus.extract import ExtractReport
    from mlgo_corpus.logs import LogsReport
    from mlgo_corpus.runs.builds.demo import DemoBuild
    from mlgo_corpus.runs.evaluate.sums import EvaluationReport
    from mlgo_corpus.runs.rebuild.run import RebuildReport
    from mlgo_corpus.runs.search.run import SearchReport
    from mlgo_corpus.runs.trace.run import TraceReport
    from mlgo_corpus.stats import CorpusStats
    from mlgo_corpus.train import TrainReport

# Modules of libc++ in which much can be gained in a few compiles.
_SEARCHED = (
    r"libcxx/(any|barrier|call_once|condition_variable|functional|future|mutex|shared_mutex|strstream|thread|"
    r"valarray|vector)\.o$"
)
_SEARCH_BUDGET = 10
# Others that compile fast, for a policy that learned from the search of those.
_UNSEEN = (
    r"libcxx/(atomic|chrono|hash|ios|memory_resource|random_shuffle|regex|stdexcept|system_error|"
    r"filesystem/directory_entry|filesystem/filesystem_error)\.o$"
)

# A module with a telling name; every release of musl has it.
_SAMPLE = "musl/regex/regcomp.o"
# Options that appear by the dozen in every command, and take a value.
_BULK = ("-target-feature", "-isystem", "-I", "-D")
_COMMAND_WIDTH = 300
_FAILED_SHOWN = 5

# Written by development-mode LLVM 19 for Lua's lvm.c at -Oz: a log of 84 inlining decisions, part of the package.
TRAINING_LOGS = Path(__file__).parents[1] / "data" / "training-logs"
_LOG_COLUMNS = ("cost_estimate", "callee_users", "inlining_decision")
_LOG_ROWS = 3


@verb
def demo(
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The folder to write, with build, corpus, decisions and inlining in it.",
        ),
    ] = "mlgo-demo",
    jobs: Annotated[int | None, jobs_option("How many compilers to run at once.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run every step again, replacing earlier results.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Build real C and C++ with the compiler from pip, and extract a corpus from it.

    Compiles parts of musl and libc++ (some 500 files from the ziglang package), then extracts them just as it would
    your own build. Converts a training log of real inlining decisions to Parquet, records the compiler's decisions
    on the whole corpus, searches a few modules for better ones, and trains a policy on these, which it evaluates on
    others. Takes two minutes the first time, a few seconds after that.
    """
    from mlgo_corpus.engine.choice import available_cpus
    from mlgo_corpus.extract import extract_corpus
    from mlgo_corpus.files.remote import output_here
    from mlgo_corpus.logs import convert_logs
    from mlgo_corpus.runs.builds.demo import build_demo_objects
    from mlgo_corpus.stats import corpus_stats

    folder = output_here(output, "a demo", "a folder")
    jobs = jobs or available_cpus()
    with progress_bar("compiling") as progress:
        build = build_demo_objects(folder / "build", jobs=jobs, progress=progress, force=force)
    show_failures(build.failed[:_FAILED_SHOWN], len(build.failed))
    corpus = folder / "corpus"
    with progress_bar("extracting") as progress:
        report = extract_corpus([build.compile_commands], corpus, jobs=jobs, force=force, progress=progress)
    logs = convert_logs(TRAINING_LOGS, folder / "decisions", jobs=1, force=force)
    certificate = trace = search = None
    learning = _Learning()
    if report.modules:
        is_new = force or build.compiled > 0 or report.unchanged < report.objects
        certificate = _certificate(corpus, build.compile_commands.parent, jobs=jobs, is_new=is_new)
        trace = _trace(corpus, folder / "inlining", jobs=jobs, force=force)
        search = _search(corpus, folder / "found", jobs=jobs, force=force)
        if search is not None:
            learning = _learn(corpus, folder, jobs=jobs, force=force)

    stats = corpus_stats(corpus, by="language")
    rows = folder_rows(corpus)
    summary = _DemoSummary(folder, build, report, rows, stats, certificate, logs, trace, search, learning)
    finish(summary, _show, as_json=json_output)


def _zig() -> str:
    """Return the command of the compiler from pip."""
    from mlgo_corpus.compilers.find import find_zig

    return shlex.join((*(find_zig() or ()), "cc"))


def _certificate(corpus: Path, build: Path, *, jobs: int, is_new: bool) -> RebuildReport | None:
    """Rebuild every module with its own command, or read the certificate of an earlier rebuild."""
    from mlgo_corpus.files.names import CERTIFICATE_NAME
    from mlgo_corpus.runs.rebuild.run import read_report
    from mlgo_corpus.verify import verify_corpus

    if not is_new and (corpus / CERTIFICATE_NAME).is_file():
        return read_report(corpus / CERTIFICATE_NAME)
    with progress_bar("rebuilding") as progress:
        return verify_corpus(
            corpus,
            rebuild=True,
            build_dirs=[build],
            compiler=_zig(),
            jobs=jobs,
            force=True,
            rebuild_progress=lambda done, _, total: progress(done, total),
        ).rebuild


def _trace(corpus: Path, output: Path, *, jobs: int, force: bool) -> TraceReport:
    """Record the inlining decisions of the compiler from pip on all modules."""
    from mlgo_corpus.trace import trace_corpus

    with progress_bar("tracing") as progress:
        return trace_corpus(
            corpus,
            output,
            via="interactive",
            compiler=_zig(),
            jobs=jobs,
            force=force,
            progress=lambda done, _, decisions, total: progress(done, total, f"{decisions} decisions"),
        )


def _search(corpus: Path, output: Path, *, jobs: int, force: bool) -> SearchReport | None:
    """Search a few modules for better decisions, with the same compiler."""
    from mlgo_corpus.corpus.open import open_corpus
    from mlgo_corpus.search import search_corpus

    if not any(re.search(_SEARCHED, name) for name in open_corpus(corpus).names):
        return None
    with progress_bar("searching") as progress:
        return search_corpus(
            corpus,
            output,
            budget=_SEARCH_BUDGET,
            also=(),  # what is learned from this is its own
            module_filter=_SEARCHED,
            compiler=_zig(),
            jobs=jobs,
            force=force,
            progress=lambda done, _, saved, total: progress(done, total, f"{human_bytes(max(0, saved))} saved"),
        )


@dataclass(frozen=True, slots=True)
class _Learning(Report):
    """The result of training.

    Attributes:
        trained: the policy, None if there is none.
        evaluated: its sizes on modules that were not searched.
        missing: why nothing was trained: the missing library and how to install it.
    """

    trained: TrainReport | None = None
    evaluated: EvaluationReport | None = None
    missing: str = ""

    @property
    def exit_code(self) -> int:
        """1 if a module could not be measured, else 0."""
        return 0 if self.evaluated is None else self.evaluated.exit_code


def _learn(corpus: Path, output: Path, *, jobs: int, force: bool) -> _Learning:
    """Train a policy on what the search found, and evaluate it on modules that were not searched."""
    from mlgo_corpus.corpus.select import ModuleChoice
    from mlgo_corpus.errors import UsageError
    from mlgo_corpus.evaluate import evaluate_corpus
    from mlgo_corpus.learn.boosting import need_lightgbm
    from mlgo_corpus.train import train_policy

    try:
        need_lightgbm()
    except UsageError as error:
        return _Learning(missing=str(error))
    policy = output / "policy"
    with progress_bar("training") as progress:
        trained = train_policy(
            [output / "found"],
            policy,
            jobs=jobs,
            force=True,  # it takes a second
            progress=lambda _, done, total, __: progress(done, total),
        )
    with progress_bar("evaluating") as progress:
        evaluated = evaluate_corpus(
            corpus,
            output / "sizes",
            policies=[str(policy)],
            choice=ModuleChoice(module_filter=_UNSEEN),
            compiler=_zig(),
            jobs=jobs,
            force=force,
            progress=lambda done, _, total, __: progress(done, total),
        )
    return _Learning(trained, evaluated)


@dataclass(frozen=True, slots=True)
class _FolderRow:
    """The modules of one folder of the build.

    ``median_options`` is the median number of cc1 options of its modules' commands.
    """

    folder: str
    modules: int
    bitcode_bytes: int
    cmd_bytes: int
    median_options: int


@dataclass(frozen=True, slots=True)
class _DemoSummary(Report):
    """The results of the demo."""

    _properties: ClassVar = ("corpus", "exit_code")

    output: Path
    build: DemoBuild
    extract: ExtractReport
    folders: tuple[_FolderRow, ...]
    stats: CorpusStats
    certificate: RebuildReport | None
    decisions: LogsReport
    trace: TraceReport | None
    search: SearchReport | None
    learning: _Learning

    @property
    def corpus(self) -> Path:
        """The corpus's folder."""
        return self.output / "corpus"

    @property
    def exit_code(self) -> int:
        """1 if a file was not compiled, extracted, rebuilt the same, traced or measured, else 0."""
        parts = (self.extract, self.certificate, self.trace, self.search, self.learning)
        return 1 if self.build.failed or any(part.exit_code for part in parts if part is not None) else 0


def folder_rows(corpus: Path) -> tuple[_FolderRow, ...]:
    """Sum up a corpus's ``modules.parquet`` and commands by module folder."""
    import statistics

    import pyarrow.parquet as pq

    from mlgo_corpus.corpus.open import open_corpus
    from mlgo_corpus.files.names import MODULES_NAME

    options = {module.name: len(module.command()) for module in open_corpus(corpus)}
    modules = pq.read_table(corpus / MODULES_NAME, columns=["module", "status", "bitcode_bytes", "cmd_bytes"])
    by_folder: dict[str, list[dict[str, int]]] = defaultdict(list)
    for row in modules.to_pylist():
        if row["status"] == "ok":
            by_folder[row["module"].rpartition("/")[0]].append({**row, "options": options[row["module"]]})
    return tuple(
        _FolderRow(
            folder=folder,
            modules=len(rows),
            bitcode_bytes=sum(row["bitcode_bytes"] for row in rows),
            cmd_bytes=sum(row["cmd_bytes"] for row in rows),
            median_options=int(statistics.median(row["options"] for row in rows)),
        )
        for folder, rows in sorted(by_folder.items())
    )


def shorten_command(options: Sequence[str]) -> str:
    """Return a cc1 command in shell quoting, without bulky options, cut to about ``_COMMAND_WIDTH`` characters."""
    kept: list[str] = []
    words = iter(options)
    for word in words:
        if word in _BULK:
            next(words, None)
        else:
            kept.append(shlex.quote(word))
    text = ""
    while kept and len(text) + len(kept[0]) < _COMMAND_WIDTH:
        text += kept.pop(0) + " "
    return f"{text}... ({len(options)} options)"


def _show(summary: _DemoSummary) -> None:
    from mlgo_corpus.cli.search import show_report as show_search
    from mlgo_corpus.cli.stats import show_stats
    from mlgo_corpus.cli.trace import show_report as show_trace
    from mlgo_corpus.cli.verify import show_certificate
    from mlgo_corpus.files.names import MODULES_NAME

    corpus = summary.corpus
    console = out()
    rows = table("folder", "modules", "bitcode", "command lines", "options (median)")
    for row in summary.folders:
        sizes = (human_bytes(row.bitcode_bytes), human_bytes(row.cmd_bytes))
        rows.add_row(row.folder, str(row.modules), *sizes, str(row.median_options))
    rows.add_section()
    sizes = (human_bytes(summary.extract.bitcode_bytes), human_bytes(summary.extract.cmd_bytes))
    rows.add_row("all", str(summary.extract.modules), *sizes, "")
    console.print(rows)

    def say(text: str) -> None:
        console.print(text, markup=False)

    build = summary.build
    say(
        f"compiled {build.compiled} files in {build.seconds:.1f} s ({build.reused} were there, "
        f"{len(build.failed)} failed); extracted {summary.extract.modules} modules "
        f"in {summary.extract.seconds:.1f} s"
    )
    say(f"the corpus is in {corpus}")
    from mlgo_corpus.corpus.open import open_corpus

    modules = {module.name: module for module in open_corpus(corpus)}
    if not modules:
        return
    sample = _SAMPLE if _SAMPLE in modules else min(modules)
    say(f"\nThe command of {sample}, as the compiler embedded it:")
    say(f"  {shorten_command(modules[sample].command())}")

    say("\nWhat is in the corpus (mlgo-corpus stats):")
    show_stats(summary.stats)
    if summary.certificate is not None:
        say("\nEvery module compiled again, and compared with its object (mlgo-corpus verify --rebuild):")
        show_certificate(summary.certificate)

    _show_decisions(summary.decisions)
    if summary.trace is not None:
        say("\nThe same compiler, asked for each of its inlining decisions over the whole corpus:")
        show_trace(summary.trace)
    if summary.search is not None:
        say("\nBetter decisions than its own, for a few modules (mlgo-corpus search):")
        show_search(summary.search)
        saved = summary.search.baseline_text_size - summary.search.text_size
        say(f"saved {saved} bytes of {summary.search.baseline_text_size}, with the same compiler")
        _show_learning(summary.learning)

    program = _runnable("mlgo-corpus", Path(sys.argv[0]))
    python = _runnable("python", Path(sys.executable))
    table_path = json.dumps(str(corpus / MODULES_NAME))
    code = f'import pyarrow.parquet as pq; print(*pq.read_table({table_path}).to_pylist()[:3], sep="\\n")'
    say("\nNext:")
    say(f"  {program} explain {shlex.quote(str(summary.output / 'build' / sample))}")
    if summary.trace is not None:
        page = shlex.join(["report", str(corpus), str(summary.output / "inlining")])
        say(f"  {program} {page}")
        if find_spec("vl_convert") is None:
            say("    (pip install 'mlgo-corpus[report]' first)")
    say(f"  {program} extract YOUR_BUILD/compile_commands.json --output corpus")
    say("    (built with clang, and -Xclang -fembed-bitcode=all in CFLAGS and CXXFLAGS)")
    say(f"  {python} -c {shlex.quote(code)}")


def _show_learning(learning: _Learning) -> None:
    """Show in two lines what a policy learned, and what it makes of modules that it has not seen."""
    say = functools.partial(out().print, markup=False)
    if learning.missing:
        say(f"no policy was trained: {learning.missing}")
    trained, evaluated = learning.trained, learning.evaluated
    if trained is None or evaluated is None:
        return
    (sizes,) = evaluated.policies
    say(f"\nA policy that learned from {trained.decisions} of these decisions (mlgo-corpus train, evaluate):")
    say(
        f"{trained.output}: {trained.model}; {sizes.objects.size} bytes of {sizes.objects.baseline} "
        f"({percent_change(sizes.objects.size, sizes.objects.baseline)}) in "
        f"{counted(sizes.objects.modules, 'other module')}, {sizes.grew} of which grew"
    )


def _show_decisions(report: LogsReport) -> None:
    """Show the first rows of the converted training log, and a DuckDB query for more."""
    import pyarrow.parquet as pq

    from mlgo_corpus.cli.logs import example_query
    from mlgo_corpus.dataset.folder import rows_place

    console = out()
    decisions = pq.read_table(Path(report.output, "observations"))
    console.print(
        f"\nA training log, as development-mode clang wrote it, is a table now: {decisions.num_rows} inlining "
        f"decisions, {decisions.num_columns} columns:",
        markup=False,
    )
    rows = table("module", "observation", *_LOG_COLUMNS)
    for row in decisions.slice(0, _LOG_ROWS).to_pylist():
        rows.add_row(row["module"], *(str(row[name]) for name in ("observation", *_LOG_COLUMNS)))
    console.print(rows)
    show_how_to_read(example_query(report), rows_place(report.output))


def _runnable(name: str, path: Path) -> str:
    """Return what a user types to run this program: its name if PATH finds it, else its path."""
    found = shutil.which(name)
    if not path.name.startswith(name) or (found is not None and Path(found) == path):
        return name
    return shlex.quote(os.path.relpath(path))
