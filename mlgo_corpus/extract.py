"""The extract stage: make a corpus from the files that a build left on disk.

This module checks the request before anything is written, and turns the result into hints;
`mlgo_corpus.runs.extract.run` does the work.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from mlgo_corpus import __version__
from mlgo_corpus.builds.inputs import BuildObject, InputType, iter_build_objects, iter_thinlto_local
from mlgo_corpus.builds.objects import MADE_BY_CLANG, OTHER_SECTION, Reason, SectionNames
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.assemble import local_output
from mlgo_corpus.corpus.folder import UNSPECIFIED_OVERRIDE
from mlgo_corpus.corpus.groups import unoptimised_hint
from mlgo_corpus.engine.choice import HERE, EngineChoice
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.text import command_words, option_key, os_reason, several
from mlgo_corpus.formats.commands.linkline import override_from_link_line
from mlgo_corpus.runs.extract.journal import open_journal
from mlgo_corpus.runs.extract.module import Settings
from mlgo_corpus.runs.extract.run import ExtractionRun, ExtractReport, digest_of

__all__ = ["ExtractReport", "extract_corpus"]


def extract_corpus(
    inputs: Sequence[Path | str] | Path | str,
    output: Path | str,
    *,
    input_type: InputType | str | None = None,
    build_dir: Path | str | None = None,
    thinlto: str | None = None,
    thinlto_link_command: Sequence[str] | str | None = None,
    command_override: Sequence[str] | str | None = None,
    cmd_filters: Sequence[str] | str = (),
    module_filter: str | None = None,
    bitcode_section: str | None = None,
    cmd_section: str | None = None,
    require_command: bool = False,
    dedup: bool = False,
    jobs: int | None = None,
    force: bool = False,
    engine: EngineChoice = HERE,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractReport:
    """Extract the bitcode and commands that a build embedded in its objects into a corpus.

    Args:
        inputs: compile_commands.json files, linker parameter files, Bazel aquery output, folders, objects, archives,
            linked binaries, in any mixture.
        output: the corpus; made, or updated if it was made from the same inputs with the same options.
        input_type: the type of the inputs, if their content does not show it.
        build_dir: the folder that paths in linker parameter files and aquery output are relative to, and the
            ``source`` of objects of a compilation database (its own folder by default).
        thinlto: ``local`` or ``distributed``, as LLVM's extract_ir means them.
        thinlto_link_command: the link command of a local ThinLTO build, from which the override is derived: its words,
            or one string, quoted as for a shell.
        command_override: one command for all modules, for the manifest's ``global_command_override``, likewise.
        cmd_filters: regular expressions; each must match some option of a module's command.
        module_filter: a regular expression that must match somewhere in the module's name.
        bitcode_section: the section that holds bitcode, instead of the usual ones.
        cmd_section: the section that holds commands, instead of the usual ones.
        require_command: leave out modules that have no command.
        dedup: keep one of several modules with the same bitcode and command.
        jobs: worker processes; by default the CPUs this process may use, or the cluster's.
        force: replace a corpus that was made from other inputs or with other options.
        engine: where objects are read: on this machine or on a cluster.
        progress: called with (objects done, objects in all).

    Raises:
        UsageError: the inputs or options cannot be used; nothing was written.
        MlgoCorpusError: the corpus cannot be written.
    """
    started = time.perf_counter()
    output = local_output(output)
    paths = [Path(item) for item in several(inputs)]
    if not paths:
        raise UsageError("expected inputs, found none")
    check_count("jobs", jobs)
    settings = Settings(
        names=SectionNames.of(bitcode_section, cmd_section),
        thinlto=_choice("thinlto", thinlto, ("local", "distributed")),
        cmd_filters=tuple(_regex("cmd_filters", item) for item in several(cmd_filters)),
        module_filter=None if module_filter is None else _regex("module_filter", module_filter),
        require_command=require_command,
        overridden=thinlto == "local" or command_override is not None,
    )
    override = _Override(
        thinlto,
        None if thinlto_link_command is None else command_words(thinlto_link_command, "thinlto_link_command"),
        None if command_override is None else command_words(command_override, "command_override"),
    )
    chosen = _choice("input_type", input_type, tuple(InputType))
    kind = None if chosen is None else InputType(chosen)

    def objects() -> Iterator[BuildObject]:
        if thinlto == "local":
            return iter_thinlto_local(paths, exclude=output)
        build_path = None if build_dir is None else Path(build_dir)
        return iter_build_objects(paths, input_type=kind, exclude=output, build_dir=build_path)

    try:
        found = objects()  # checks every input before anything is written
        first = next(found, None)
        if first is None:
            raise UsageError(_nothing_to_read(paths, thinlto))
        # Listing the objects twice is cheap; keeping millions of them in memory is not.
        total = 0 if progress is None else sum(1 for _ in objects())
        named = (*paths, *(() if build_dir is None else (build_dir,)))
        given = {
            "input_type": kind,
            "thinlto": thinlto,
            "thinlto_link_command": override.link_command,
            "command_override": override.given,
            "cmd_filter": settings.cmd_filters,
            "module_filter": module_filter,
            "bitcode_section": bitcode_section,
            "cmd_section": cmd_section,
            "require_command": require_command,
            "dedup": dedup,
        }
        options = {option_key(name): value for name, value in given.items()}
        inputs_digest = digest_of(os.path.abspath(item) for item in named)
    except FormatError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(_os_error(error)) from error

    header = {"version": __version__, "options": options, "inputs": inputs_digest}
    journal = open_journal(output, header, force=force)
    needs = [Path(os.path.abspath(item)) for item in named]
    if not all(os.path.isabs(item) for item in named):
        needs.append(Path.cwd())
    run = ExtractionRun(output, journal, settings, dedup=dedup, jobs=jobs, engine=engine, needs=needs)
    with writing(output, kept=True), closing(run):
        run.extract(
            chain([first], found), (lambda done: progress(done, total)) if progress is not None else lambda _: None
        )
        run.finish(header, override.for_triple)
    report = run.report
    report.seconds = time.perf_counter() - started
    report.hints = tuple(_hints(run))
    return report


@dataclass(frozen=True, slots=True)
class _Override:
    """The source of the manifest's ``global_command_override``, if there is one.

    Raises:
        UsageError: the options contradict each other, or the link command is invalid.
    """

    thinlto: str | None
    link_command: Sequence[str] | None
    given: Sequence[str] | None

    def __post_init__(self) -> None:
        if self.link_command is None:
            return
        if self.thinlto != "local" or self.given is not None:
            raise UsageError(
                "requires `thinlto` local, and cannot be combined with `command_override`",
                option="thinlto_link_command",
            )
        try:  # with any triple: an invalid link command must be reported before the work
            override_from_link_line(self.link_command, "x86_64-unknown-linux-gnu")
        except FormatError as error:
            raise UsageError(str(error), option="thinlto_link_command") from error

    def for_triple(self, triple: str | None) -> Sequence[str] | None:
        """Return the override of a corpus whose modules have this target triple."""
        if self.given is not None:
            return self.given
        if self.thinlto != "local":
            return None
        if self.link_command is None or triple is None:
            return UNSPECIFIED_OVERRIDE
        return override_from_link_line(self.link_command, triple)


def _choice(option: str, value: str | None, choices: Sequence[str]) -> str | None:
    if value is not None and value not in choices:
        raise UsageError(f"expected {' or '.join(choices)}", option=option, value=value)
    return value


def _regex(option: str, pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"not a regular expression: {error}", option=option, value=pattern) from error
    return pattern


def _os_error(error: OSError) -> str:
    return f"{error.filename}: {os_reason(error)}" if error.filename else os_reason(error)


def _nothing_to_read(paths: Sequence[Path], thinlto: str | None) -> str:
    where = ", ".join(map(str, paths))
    if thinlto == "local":
        return (
            f"{where}: no *.3.import.bc files; link with lld and -Wl,--save-temps=import -Wl,--thinlto-emit-index-files"
        )
    return f"{where}: no object files; build first, or name the folder the build writes to"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"


def _hints(run: ExtractionRun) -> Iterator[str]:
    """Yield advice that follows from the counts."""
    report = run.report
    counts = Counter(report.counts)

    def many(reason: Reason) -> bool:
        return counts[reason] > report.modules

    flag = "-Xclang -fembed-bitcode=all"
    without, first = run.without_bitcode, run.first_without_bitcode
    if without[OTHER_SECTION]:
        yield (
            f"{_count(without[OTHER_SECTION], 'object')} without that section, such as {first[OTHER_SECTION]}, but "
            "with bitcode in the usual one: leave out `bitcode_section`"
        )
    if without[MADE_BY_CLANG]:
        yield (
            f"{_count(without[MADE_BY_CLANG], 'object')} made by clang without bitcode, such as "
            f"{first[MADE_BY_CLANG]}: put {flag} into CFLAGS and CXXFLAGS, build and extract again; or clean, and "
            "put 'mlgo-corpus build' before the build's command"
        )
    elif without[""] > report.modules:
        yield (
            f"{_count(without[''], 'object')} without bitcode, such as {first['']}: clean, and put 'mlgo-corpus build' "
            f"before the build's command, for clang to compile; or compile with clang and {flag}, then extract again"
        )
    if run.override == UNSPECIFIED_OVERRIDE:
        yield (
            "the corpus has no command yet (its global_command_override is <UNSPECIFIED>): "
            "`thinlto_link_command` derives one from the link, `command_override` sets one"
        )
    if many(Reason.MISSING):
        yield (
            f"{_count(counts[Reason.MISSING], 'object')} not there, such as {report.examples[Reason.MISSING][0]}: run "
            "the build first (what parameter files and aquery output name is relative to `build_dir`)"
        )
    if counts[Reason.POST_OPT_IR]:
        yield (
            f"{_count(counts[Reason.POST_OPT_IR], 'module')} optimised IR with a truncated command: compile with "
            "-Xclang -fembed-bitcode=all, not with -fembed-bitcode"
        )
    if report.without_command:
        yield (
            f"{_count(report.without_command, 'module')} without a command, and trainers refuse a corpus with such "
            "modules: `command_override` sets one for all, `require_command` leaves them out"
        )
    if report.unoptimised:
        yield unoptimised_hint(report.unoptimised, report.modules)
    if report.split_removed:
        yield "the corpus has changed, so its split was removed: mlgo-corpus split makes a new one"
    if report.modules == 0 and counts[Reason.FILTERED]:
        yield f"the filters left out all of the modules that were found ({counts[Reason.FILTERED]})"
    if report.duplicates and not counts[Reason.DUPLICATE]:
        yield (
            f"{_count(report.duplicates, 'module')} the same as another, such as an object and its copy in an archive: "
            "`dedup` keeps one of each"
        )
    if any(counts[reason] for reason in (Reason.TRUNCATED, Reason.MALFORMED, Reason.UNPAIRED_COMMAND)):
        yield "mlgo-corpus explain OBJECT says more about a single file"
