"""The build stage: compile with a clang that embeds bitcode, then extract the result.

Either a build runs, with compilers that record what they compile, or the commands of a compilation database.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus import __version__
from mlgo_corpus.builds.compiles import Compile, CompileCounts, CompileStore
from mlgo_corpus.builds.configured import Advice, advise
from mlgo_corpus.builds.inputs import BuildObject
from mlgo_corpus.builds.leftovers import find_uncompiled
from mlgo_corpus.builds.objects import Reason
from mlgo_corpus.compilers.choose import choose_for_build
from mlgo_corpus.compilers.driver import Drivers, drivers_of
from mlgo_corpus.compilers.find import loads_plugin
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.assemble import local_output
from mlgo_corpus.corpus.groups import unoptimised_hint
from mlgo_corpus.corpus.products import record_links
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.names import LINKS_NAME
from mlgo_corpus.files.text import counted, option_key, several
from mlgo_corpus.formats.commands.buildfiles import CompileCommand
from mlgo_corpus.runs.builds.database import compile_entries, read_database
from mlgo_corpus.runs.builds.shims import (
    USUAL_COMPILERS,
    build_environment,
    compiler_in,
    make_shims,
    run_build,
    shims_folder,
)
from mlgo_corpus.runs.extract.journal import open_journal
from mlgo_corpus.runs.extract.module import Settings
from mlgo_corpus.runs.extract.run import ExtractionRun, ExtractReport, digest_of
from mlgo_corpus.runs.report import Report

__all__ = ["BuildReport", "build_corpus"]

# How many options to show in a hint.
_SHOWN = 8


@dataclass(slots=True)
class BuildReport(Report):
    """The result of a build and of the extraction after it.

    Attributes:
        output: the corpus.
        command: the build's command; empty if a compilation database was compiled.
        compiler: the words of the command that runs the clang of the build.
        vendor: the version line of that clang.
        build_exit_code: the exit code of the build; 128 plus the signal's number if a signal ended it.
        build_seconds: wall time of the build.
        counts: the compiles of this build.
        left_out: options that clang lacks, and without which commands of a database were compiled.
        problem: the first error of a database's commands; empty without errors.
        leftovers: objects and libraries that this build links or archives, and that an earlier one left: neither this
            build nor one before it of this corpus compiled them.
        unseen: objects of a C or C++ compiler that this build links or archives, whose compiles were not seen.
        links: the links and archives of this build and the earlier ones that the corpus has a record of.
        lost_links: why it has none of earlier builds: their record could not be read.
        compile_commands: the compilation database of this build and the earlier ones; None if nothing was compiled.
        extract: the report of the extraction; None if there are no objects.
        advice: why a build compiled nothing that was seen, and the command that helps; None if nothing is known.
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
    left_out: tuple[str, ...] = ()
    problem: str = ""
    leftovers: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    links: int = 0
    lost_links: str | None = None
    compile_commands: Path | None = None
    extract: ExtractReport | None = None
    advice: Advice | None = None
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
            "lost_objects": len(self.counts.lost),
            "checks": self.counts.checks,
            "kept_objects": self.counts.kept,
            "kept_bytes": self.counts.kept_bytes,
            "gone_objects": self.counts.gone,
            "replaced_objects": self.counts.replaced,
        }
        values: dict[str, Any] = {}
        for name, value in Report.as_json(self).items():
            values |= counts if name == "counts" else {name: value}
        return values


def build_corpus(
    command: Sequence[str] | str,
    output: Path | str,
    *,
    database: Path | str | None = None,
    compiler: str | None = None,
    build_dir: Path | str | None = None,
    keep_checks: bool = False,
    jobs: int | None = None,
    force: bool = False,
    stdout: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    compiling: Callable[[int, int], None] | None = None,
) -> BuildReport:
    """Run a build with a clang that embeds bitcode, record its compiles, and extract a corpus from its objects.

    The build runs in the current folder, with our stdin and stderr. If it fails, what it compiled until then is
    extracted. Another call after a partial rebuild brings the corpus up to date.

    With a compilation database no build runs: each of its commands is compiled, whichever compiler it names, and the
    tree that it is from stays as it is. Another call compiles all of them again.

    Args:
        command: the build's command, such as ``("make", "-j8")``; it is not passed through a shell. Empty with
            ``database``.
        output: the corpus.
        database: a ``compile_commands.json``, or the folder that has one.
        compiler: a clang, perhaps with options; by default that of ``MLGO_CORPUS_COMPILER``, of CC, or the best found.
        build_dir: the folder that module names are relative to; the current folder by default.
        keep_checks: also extract what configure, CMake and similar tools compile to probe the compiler.
        jobs: worker processes of the extraction, and compilers of a database to run at once; by default the CPUs
            this process may use.
        force: replace the content of ``output``.
        stdout: a descriptor for the build's stdout instead of ours.
        progress: called with (objects extracted, objects in all).
        compiling: called with (commands of the database compiled, commands in all).

    Raises:
        UsageError: the build cannot be run, the database cannot be read, or the corpus cannot be written; nothing was
            run.
        MlgoCorpusError: the corpus cannot be written.
        KeyboardInterrupt: interrupted; the build has ended, and the next call uses what was compiled (not of a
            database).
    """
    command = several(command)
    if bool(command) == (database is not None):
        what = "a build's command behind --, such as -- make -j8, or a compilation database with `database`"
        raise UsageError(f"expected {what}, got {'both' if command else 'neither'}")
    if keep_checks and database is not None:
        raise UsageError("only a build that runs has checks, not a database", option="keep_checks")
    if command and command[0] not in USUAL_COMPILERS and shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: no such program; name the build's command behind --")
    check_count("jobs", jobs)
    output = local_output(output)
    named = "." if build_dir is None else os.fspath(build_dir)
    folder = os.path.realpath(named)
    if not os.path.isdir(folder):
        made = "" if database is not None else f"; if the build makes it, make it first: mkdir -p {shlex.quote(named)}"
        raise UsageError(f"{named}: expected the folder that modules' names are relative to, found none{made}")
    entries = None if database is None else read_database(database)
    chosen = choose_for_build(compiler, _named_by_environment())
    if loads_plugin(chosen.compile_words):
        # It would be in all commands of the corpus, which are to run anywhere.
        raise UsageError("it loads a plugin; build with the clang behind it", option="compiler", value=chosen.driver[0])
    inputs = ("build", folder) if database is None else ("database", folder, os.path.realpath(database))
    header = {
        "version": __version__,
        "options": {option_key("keep_checks"): keep_checks},
        "inputs": digest_of(inputs),
    }
    journal = open_journal(output, header, force=force)  # also locks the corpus while the build runs
    report = BuildReport(output, tuple(command), chosen.driver, chosen.vendor)
    ours = _command_for(output, compiler, build_dir)
    store = None
    compiles: tuple[Compile, ...] = ()
    with writing(output, kept=True), closing(journal):
        try:
            store = CompileStore(output, force=force)
            if force:
                (output / LINKS_NAME).unlink(missing_ok=True)
            drivers, workers = drivers_of(chosen), jobs or available_cpus()
            if entries is None:
                objects, compiles = _run_build(
                    report, store, drivers, folder, ours, keep_checks=keep_checks, stdout=stdout
                )
            else:
                objects = _compile(report, store, drivers, folder, entries, workers, compiling)
            if objects:
                # A linked program repeats the modules of its objects: dedup keeps one of each.
                run = ExtractionRun(output, journal, Settings(), dedup=True, jobs=workers)
                _extract(run, header, objects, progress)
                report.extract = run.report
                if entries is None:
                    links = store.pending_links()
                    report.links, report.lost_links = record_links(output, links, compiles, folder, chosen.vendor)
                    store.forget_links()
        except KeyboardInterrupt as error:
            if entries is not None:
                error.add_note("the same command compiles everything again")
            raise
        finally:
            if store is not None:
                shutil.rmtree(store.compiled, ignore_errors=True)
    report.hints = tuple(_hints(report, ours))
    return report


def _command_for(output: Path, compiler: str | None, build_dir: Path | str | None) -> str:
    """Return the command that makes such a corpus, but for what it compiles."""
    given = {"output": output, "compiler": compiler, "build_dir": build_dir}
    options = (word for name, value in given.items() if value is not None for word in (option_key(name), str(value)))
    return shlex.join(("mlgo-corpus", "build", *options))


def _run_build(
    report: BuildReport,
    store: CompileStore,
    drivers: Drivers,
    folder: str,
    ours: str,
    *,
    keep_checks: bool,
    stdout: int | None,
) -> tuple[list[BuildObject], tuple[Compile, ...]]:
    """Run the build; return all objects that it and earlier ones compiled, and all compiles."""
    shims = shims_folder(report.output)
    try:
        make_shims(shims, store.run, drivers, keep_checks=keep_checks)
    except OSError:  # there is no cache to write to
        shims = store.shims
        make_shims(shims, store.run, drivers, keep_checks=keep_checks)
    begin = time.perf_counter()
    store.open_run()
    try:
        environment = build_environment(shims, os.environ)
        report.build_exit_code = run_build(report.command, environment, stdout=stdout)
    finally:
        store.close_run()
        report.build_seconds = time.perf_counter() - begin
    compiles, links, report.counts = store.update(
        lambda driver: drivers.cxx if driver == "c++" else drivers.c, keep_checks=keep_checks
    )
    if compiles:  # else the corpus stays as it was
        report.compile_commands = store.write_compile_commands(compiles)
    known = [(one.path, one.digest) for one in compiles if one.digest is not None]
    uncompiled = find_uncompiled(links, known, folder, store.began_ns)
    report.leftovers, report.unseen = uncompiled.left_over, uncompiled.unseen
    if not report.build_exit_code and (report.unseen or not report.counts.compiles):
        report.advice = advise(report.command, ours, str(shims))
    return list(store.iter_objects(compiles, folder)), compiles


def _compile(
    report: BuildReport,
    store: CompileStore,
    drivers: Drivers,
    folder: str,
    entries: Sequence[CompileCommand],
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> list[BuildObject]:
    """Compile the entries of a database; return the object of each, or why there is none."""
    begin = time.perf_counter()
    shutil.rmtree(store.compiled, ignore_errors=True)  # left by a run that was killed
    store.compiled.mkdir(parents=True)
    made = compile_entries(entries, store.compiled, drivers, folder, jobs=jobs, progress=progress)
    report.build_seconds = time.perf_counter() - begin
    failed = [one.item for one in made if one.item.problem == Reason.COMPILE_FAILED]
    report.counts.failed = len(failed)
    report.problem = failed[0].detail if failed else ""
    compiled = [one.compile for one in made if one.compile is not None]
    report.counts.compiles = len(compiled) + report.counts.failed
    report.left_out = tuple(dict.fromkeys(word for one in made for word in one.left_out))
    report.compile_commands = store.write_compile_commands(compiled)
    return [one.item for one in made]


def _extract(
    run: ExtractionRun,
    header: dict[str, Any],
    objects: Sequence[BuildObject],
    progress: Callable[[int, int], None] | None,
) -> None:
    begin = time.perf_counter()
    total = len(objects)
    try:
        run.extract(iter(objects), (lambda done: progress(done, total)) if progress is not None else lambda _: None)
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


def _database_hints(report: BuildReport) -> Iterator[str]:
    counts = report.counts
    if counts.failed:
        yield (
            f"{counts.failed} of {counted(counts.compiles, 'command')} failed, such as {report.problem}; if a file is "
            "missing that a build makes, build first"
        )
    elif not counts.compiles:
        yield "the database has no command that compiles C or C++"
    if report.left_out:
        more = " ..." if len(report.left_out) > _SHOWN else ""
        shown = " ".join(report.left_out[:_SHOWN])
        yield f"left out of the commands, because clang lacks them or they are for LTO: {shown}{more}"


def _hints(report: BuildReport, ours: str) -> Iterator[str]:
    counts = report.counts
    extract = report.extract
    if report.build_exit_code:
        kept = "; what it compiled until then is in the corpus, and the same command goes on" if extract else ""
        yield f"the build failed (exit code {report.build_exit_code}){kept}"
    elif not report.command:
        yield from _database_hints(report)
    elif counts.compiles == 0 and not (counts.gone and extract is None):  # else it was make clean, or the like
        was = "the build compiled nothing that could be seen" if not counts.checks else "only checks were compiled"
        if report.advice is not None:
            yield f"{was}: {report.advice.why}; this compiles it: {report.advice.command}"
        elif counts.checks and extract is None:
            both = shlex.join(("sh", "-c", f"{shlex.join(report.command)} && make"))
            yield f"{was}: if this only configures, put the build behind it, such as: mlgo-corpus build ... -- {both}"
        else:
            yield (
                f"{was}: was it up to date (clean it first), or does it call a compiler by its path? With a "
                f"compile_commands.json of it, this needs no build: {ours} {option_key('from')} compile_commands.json"
            )
    if report.lost_links is not None:
        yield f"{report.lost_links}; the record has this build's links only: clean, and build again, for all"
    if left := len(report.leftovers):
        were = "object was" if left == 1 else "objects were"
        such = os.path.relpath(report.leftovers[0])
        yield (
            f"{left} {were} linked or archived that an earlier build left, such as {such}: the corpus lacks "
            f"{'it' if left == 1 else 'them'}; clean first (make clean), and build again"
        )
    if unseen := len(report.unseen):
        were, them = ("object was", "it") if unseen == 1 else ("objects were", "them")
        how = f" This compiles all: {report.advice.command}" if report.advice is not None else ""
        yield (
            f"{unseen} {were} linked or archived that no compile made that could be seen, such as "
            f"{os.path.relpath(report.unseen[0])}: the corpus lacks {them}. Is a compiler called by its path?{how}"
        )
    if lost := len(counts.lost):
        which, them = os.path.relpath(counts.lost[0]), "it" if lost == 1 else "them"
        yield (
            f"{counted(lost, 'object')} could not be copied after the compile, such as {which}, and the build has "
            f"deleted {them}: the corpus lacks {them}; is the disk full?"
        )
    if counts.replaced:
        were = "object of an earlier build was" if counts.replaced == 1 else "objects of earlier builds were"
        yield (
            f"{counts.replaced} {were} made anew by something else since: the corpus has what was compiled before; "
            "clean first (make clean), and build again"
        )
    if counts.gone:
        are = "object of an earlier build is" if counts.gone == 1 else "objects of earlier builds are"
        so = "no longer in the corpus" if extract is not None else "the corpus is as it was"
        yield f"{counts.gone} {are} gone, and {so}"
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
