"""The build stage: run a build with compilers that embed bitcode and record compiles, then extract the result."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus import __version__
from mlgo_corpus.builds.compiles import COMPILE_COMMANDS_NAME, Compile, CompileCounts, CompileStore
from mlgo_corpus.builds.inputs import BuildObject
from mlgo_corpus.builds.leftovers import find_leftovers
from mlgo_corpus.builds.objects import Reason
from mlgo_corpus.compilers.choose import choose_for_build
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.groups import unoptimised_hint
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.text import option_key, os_reason
from mlgo_corpus.runs.builds.shims import build_environment, compiler_in, drivers_of, make_shims, run_build
from mlgo_corpus.runs.extract.journal import open_journal
from mlgo_corpus.runs.extract.module import Settings
from mlgo_corpus.runs.extract.run import ExtractionRun, ExtractReport, digest_of
from mlgo_corpus.runs.report import Report

__all__ = ["BuildReport", "build_corpus"]


@dataclass(slots=True)
class BuildReport(Report):
    """The result of a build and of the extraction after it.

    Attributes:
        output: the corpus.
        command: the build's command.
        compiler: the words of the command that runs the clang of the build.
        vendor: the version line of that clang.
        build_exit_code: the exit code of the build; 128 plus the signal's number if a signal ended it.
        build_seconds: wall time of the build.
        counts: the compiles of this build.
        leftovers: objects and libraries that this build links or archives, and that an earlier one left: neither this
            build nor one before it of this corpus compiled them.
        compile_commands: the compilation database of this build and the earlier ones; None if nothing was compiled.
        extract: the report of the extraction; None if there are no objects.
        hints: advice for the user, most important first.
    """

    _properties: ClassVar = ("exit_code",)

    output: Path
    command: tuple[str, ...]
    compiler: tuple[str, ...]
    vendor: str
    build_exit_code: int = 0
    build_seconds: float = 0.0
    counts: CompileCounts = field(default_factory=CompileCounts)
    leftovers: tuple[str, ...] = ()
    compile_commands: Path | None = None
    extract: ExtractReport | None = None
    hints: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The build's own exit code if it failed; else 1 if an object failed or there is no module, else 0."""
        if self.build_exit_code:
            return self.build_exit_code
        return 1 if self.extract is None else self.extract.exit_code

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; the counts of compiles stand beside the other fields."""
        counts = {
            "compiles": self.counts.compiles,
            "failed_compiles": self.counts.failed,
            "checks": self.counts.checks,
            "kept_objects": self.counts.kept,
            "kept_bytes": self.counts.kept_bytes,
            "gone_objects": self.counts.gone,
        }
        values: dict[str, Any] = {}
        for name, value in Report.as_json(self).items():
            values |= counts if name == "counts" else {name: value}
        return values


def build_corpus(
    command: Sequence[str],
    output: Path | str,
    *,
    compiler: str | None = None,
    build_dir: Path | str | None = None,
    keep_checks: bool = False,
    jobs: int | None = None,
    force: bool = False,
    stdout: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BuildReport:
    """Run a build with a clang that embeds bitcode, record its compiles, and extract a corpus from its objects.

    The build runs in the current folder, with our stdin and stderr. If it fails, what it compiled until then is
    extracted. Another call after a partial rebuild brings the corpus up to date.

    Args:
        command: the build's command, such as ``("make", "-j8")``; it is not passed through a shell.
        output: the corpus.
        compiler: a clang, perhaps with options; by default that of ``MLGO_CORPUS_COMPILER``, of CC, or the best found.
        build_dir: the folder that module names are relative to; the current folder by default.
        keep_checks: also extract what configure, CMake and similar tools compile to probe the compiler.
        jobs: worker processes of the extraction; by default the CPUs this process may use.
        force: replace the content of ``output``.
        stdout: a descriptor for the build's stdout instead of ours.
        progress: called with (objects extracted, objects in all).

    Raises:
        UsageError: the build cannot be run, or the corpus cannot be written; nothing was run.
        MlgoCorpusError: the corpus cannot be written.
        KeyboardInterrupt: interrupted; the build has ended, and the next call uses what was compiled.
    """
    if not command:
        raise UsageError("expected a build's command behind --, such as -- make -j8")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: no such program; name the build's command behind --")
    check_count("jobs", jobs)
    output = Path(output)
    folder = os.path.realpath("." if build_dir is None else build_dir)
    if not os.path.isdir(folder):
        raise UsageError(f"{build_dir}: expected the folder that modules' names are relative to, found none")
    chosen = choose_for_build(compiler, _named_by_environment())
    header = {
        "version": __version__,
        "options": {option_key("keep_checks"): keep_checks},
        "inputs": digest_of(("build", folder)),
    }
    journal = open_journal(output, header, force=force)  # also locks the corpus while the build runs
    report = BuildReport(output, tuple(command), chosen.driver, chosen.vendor)
    try:
        store = CompileStore(output, force=force)
        drivers = drivers_of(chosen)
        make_shims(store.shims, store.run, drivers, keep_checks=keep_checks)
        _run_build(report, store, stdout)
        compiles, links, report.counts = store.update(
            lambda driver: drivers.cxx if driver == "c++" else drivers.c, keep_checks=keep_checks
        )
        known = [(one.path, one.digest) for one in compiles if one.digest is not None]
        report.leftovers = find_leftovers(links, known, folder, store.began_ns)
        if compiles:
            report.compile_commands = store.write_compile_commands(compiles)
        else:
            (output / COMPILE_COMMANDS_NAME).unlink(missing_ok=True)
        if any(one.digest is not None for one in compiles):
            # A linked program repeats the modules of its objects: dedup keeps one of each.
            run = ExtractionRun(output, journal, Settings(), dedup=True, jobs=jobs or available_cpus())
            _extract(run, header, store.iter_objects(compiles, folder), compiles, progress)
            report.extract = run.report
    except OSError as error:
        what = f"cannot write {error.filename or output}: {os_reason(error)}"
        raise MlgoCorpusError(f"{what}; what is whole is kept, and the same command goes on") from error
    finally:
        journal.close()
    report.hints = tuple(_hints(report))
    return report


def _run_build(report: BuildReport, store: CompileStore, stdout: int | None) -> None:
    begin = time.perf_counter()
    store.open_run()
    try:
        environment = build_environment(store.shims, store.run, os.environ)
        report.build_exit_code = run_build(report.command, environment, stdout=stdout)
    finally:
        store.close_run()
        report.build_seconds = time.perf_counter() - begin


def _extract(
    run: ExtractionRun,
    header: dict[str, Any],
    objects: Iterator[BuildObject],
    compiles: Sequence[Compile],
    progress: Callable[[int, int], None] | None,
) -> None:
    begin = time.perf_counter()
    total = sum(one.digest is not None for one in compiles)
    try:
        run.extract(objects, (lambda done: progress(done, total)) if progress is not None else lambda _: None)
        run.finish(header, lambda _: None)
    finally:
        run.close()
    run.report.seconds = time.perf_counter() - begin


def _named_by_environment() -> str | None:
    """Return the compiler that CC names if it is a clang, else None."""
    found = compiler_in(os.environ.get("CC", ""))
    if found is None:
        return None
    words, index = found
    word = words[index]
    return word if os.path.basename(word).startswith("clang") and shutil.which(word) else None


def _hints(report: BuildReport) -> Iterator[str]:
    counts = report.counts
    extract = report.extract
    if report.build_exit_code:
        kept = "; what it compiled until then is in the corpus, and the same command goes on" if extract else ""
        yield f"the build failed (exit code {report.build_exit_code}){kept}"
    elif counts.compiles == 0:
        was = "the build compiled nothing that could be seen" if not counts.checks else "only checks were compiled"
        yield (
            f"{was}: was it up to date (clean it first), or does it call a compiler by its path? Name none, or the "
            "plain name: make CC=cc CXX=c++; for CMake and Meson, configure a fresh build folder under this command"
        )
    if left := len(report.leftovers):
        were = "object was" if left == 1 else "objects were"
        such = os.path.relpath(report.leftovers[0])
        yield (
            f"{left} {were} linked or archived that an earlier build left, such as {such}: the corpus lacks "
            f"{'it' if left == 1 else 'them'}; clean first (make clean), and build again"
        )
    if counts.gone:
        are = "object of an earlier build is" if counts.gone == 1 else "objects of earlier builds are"
        yield f"{counts.gone} {are} gone, and no longer in the corpus"
    if extract is None:
        return
    found = extract.counts
    if found.get(Reason.RAW_LTO):
        yield (
            f"of an LTO build: {found[Reason.RAW_LTO]}; their objects are bitcode, and have no command: build without "
            "-flto for a corpus that can be replayed"
        )
    if found.get(Reason.POST_OPT_IR):
        yield f"optimised IR: {found[Reason.POST_OPT_IR]}; take -fembed-bitcode out of the build's own flags"
    if extract.unoptimised:
        yield unoptimised_hint(extract.unoptimised, extract.modules)
    if any(found.get(reason) for reason in (Reason.TRUNCATED, Reason.MALFORMED, Reason.UNPAIRED_COMMAND)):
        yield "mlgo-corpus explain OBJECT says more about a single file"
