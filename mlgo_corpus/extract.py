"""The extract stage: from what a build left on disk to a corpus.

The parent enumerates the objects, names them, and skips those that have not changed; workers read them and write the
modules' files (`mlgo_corpus.store.extraction`); the parent collects the rows in the inputs' order, so that the result
is the same whatever the number of workers.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mlgo_corpus import __version__
from mlgo_corpus.errors import FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.formats.linkline import override_from_link_line
from mlgo_corpus.run.engine import Lost, available_cpus, parallel_map
from mlgo_corpus.store.build import BuildObject, InputType, iter_build_objects, iter_thinlto_local
from mlgo_corpus.store.corpus import (
    MANIFEST_NAME,
    MODULE_SUFFIXES,
    MODULES_NAME,
    STATE_FOLDER,
    UNSPECIFIED_OVERRIDE,
    NameRegistry,
    remove_module_files,
    safe_module_name,
    write_manifest,
)
from mlgo_corpus.store.extraction import ObjectTask, Settings, extract_object, lost_entry
from mlgo_corpus.store.journal import Entry, Journal, open_journal
from mlgo_corpus.store.moduletable import (
    STATUS_FAILED,
    STATUS_OK,
    STATUS_SKIPPED,
    ModuleRow,
    ModuleTableWriter,
)
from mlgo_corpus.store.objects import Reason, SectionNames

Text = TypeVar("Text", bound=str | Path)

# One object may take this long; only a parser that hangs or a dead network file system does.
_OBJECT_SECONDS = 120.0
# A chunk of work ends at this many bytes, so that large objects spread over the workers.
_CHUNK_BYTES = 2 << 20


@dataclass(slots=True)
class ExtractReport:
    """What an extraction did. Bytes are counted over all inputs, whether they were read again or not.

    Attributes:
        output: the corpus.
        objects: input objects (an archive or a linked binary is one).
        modules: modules in the corpus.
        counts: rows by reason.
        bitcode_bytes: in the corpus.
        cmd_bytes: in the corpus.
        bitcode_found: bytes met in bitcode sections, also of modules left out.
        bitcode_explained: those of them that a row or padding accounts for; equal to ``bitcode_found``.
        duplicates: modules with the same bitcode and command as an earlier one.
        without_command: modules in the corpus that neither have a command nor are covered by an override.
        failed: rows with the status ``failed``.
        unchanged: objects not read again.
        removed: modules that left the corpus because their objects did.
        seconds: wall time.
        hints: what a user may want to do about the result, most important first.
    """

    output: Path
    objects: int = 0
    modules: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    bitcode_bytes: int = 0
    cmd_bytes: int = 0
    bitcode_found: int = 0
    bitcode_explained: int = 0
    duplicates: int = 0
    without_command: int = 0
    failed: int = 0
    unchanged: int = 0
    removed: int = 0
    seconds: float = 0.0
    hints: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: all done; 1: some objects failed, or nothing was extracted."""
        return 1 if self.failed or not self.modules else 0

    def as_json(self) -> dict[str, Any]:
        """Give the report as plain values."""
        return {**asdict(self), "output": str(self.output), "exit_code": self.exit_code}


def extract_corpus(
    inputs: Sequence[Path | str],
    output: Path | str,
    *,
    input_type: InputType | str | None = None,
    build_dir: Path | str | None = None,
    thinlto: str | None = None,
    thinlto_link_command: Sequence[str] | None = None,
    command_override: Sequence[str] | None = None,
    cmd_filters: Sequence[str] = (),
    module_filter: str | None = None,
    bitcode_section: str | None = None,
    cmd_section: str | None = None,
    require_command: bool = False,
    dedup: bool = False,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractReport:
    """Extract the bitcode and commands that a build embedded in its objects into a corpus.

    Args:
        inputs: compile_commands.json files, linker parameter files, Bazel aquery output, folders, objects, archives,
            linked binaries, in any mixture.
        output: the corpus; made, or brought up to date if it was made from the same inputs with the same options.
        input_type: what the inputs are, where their content does not tell.
        build_dir: what paths in linker parameter files and aquery output are relative to.
        thinlto: ``local`` or ``distributed``, as LLVM's extract_ir means them.
        thinlto_link_command: the tokens of the link command of a local ThinLTO build, to derive its override from.
        command_override: one command for all modules, for the manifest's ``global_command_override``.
        cmd_filters: regular expressions; each must be found in some option of a module's command.
        module_filter: a regular expression to be found in the module's name.
        bitcode_section: the section to look in instead of the usual ones.
        cmd_section: likewise for commands.
        require_command: leave out modules that have no command.
        dedup: keep one of the modules whose bitcode and command are the same.
        jobs: worker processes; by default the CPUs this process may use.
        force: replace a corpus that was made from other inputs or with other options.
        progress: is told (objects done, objects in all).

    Raises:
        UsageError: the inputs or options cannot be used; nothing was written.
        MlgoCorpusError: the corpus cannot be written.
    """
    started = time.perf_counter()
    output = Path(output)
    paths = [Path(item) for item in _several(inputs)]
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: expected at least 1")
    settings = Settings(
        names=SectionNames.of(bitcode_section, cmd_section),
        thinlto=_choice("--thinlto", thinlto, ("local", "distributed")),
        cmd_filters=tuple(_regex("--cmd-filter", item) for item in _several(cmd_filters)),
        module_filter=None if module_filter is None else _regex("--module-filter", module_filter),
        require_command=require_command,
        overridden=thinlto == "local" or command_override is not None,
    )
    override = _Override(thinlto, thinlto_link_command, command_override)
    chosen = _choice("--input-type", input_type, tuple(InputType))
    kind = None if chosen is None else InputType(chosen)

    def objects() -> Iterator[BuildObject]:
        if thinlto == "local":
            return iter_thinlto_local(paths, exclude=output)
        build_path = None if build_dir is None else Path(build_dir)
        return iter_build_objects(paths, input_type=kind, exclude=output, build_dir=build_path)

    try:
        found = objects()  # looks at every input before anything is written
        first = next(found, None)
        if first is None:
            raise UsageError(_nothing_to_read(paths, thinlto))
        # Listing the objects twice is cheap, holding millions of them would not be.
        total = 0 if progress is None else sum(1 for _ in objects())
        named = (*paths, *(() if build_dir is None else (build_dir,)))
        options = {**asdict(settings), "dedup": dedup, "input_type": kind, **asdict(override)}
        inputs_digest = _digest(os.path.abspath(item) for item in named)
    except FormatError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(_os_error(error)) from error

    header = {"version": __version__, "options": options, "inputs": inputs_digest}
    journal = open_journal(output, header, force=force)
    run = _Run(output, journal, settings, dedup=dedup, jobs=jobs or available_cpus())
    try:
        run.extract(
            chain([first], found), (lambda done: progress(done, total)) if progress is not None else lambda _: None
        )
        run.finish(header, override)
    except OSError as error:
        raise MlgoCorpusError(f"{_os_error(error)}; what is whole is kept, and the same command goes on") from error
    finally:
        run.close()
    report = run.report
    report.seconds = time.perf_counter() - started
    report.hints = tuple(_hints(report, run.no_bitcode_details))
    return report


@dataclass(frozen=True, slots=True)
class _Override:
    """Where the manifest's ``global_command_override`` comes from, if there is one.

    Raises:
        UsageError: the options contradict each other, or the link command is none.
    """

    thinlto: str | None
    link_command: Sequence[str] | None
    given: Sequence[str] | None

    def __post_init__(self) -> None:
        if self.link_command is None:
            return
        if self.thinlto != "local" or self.given is not None:
            raise UsageError("--thinlto-link-command belongs to --thinlto local, and not with --command-override")
        try:  # with any triple: whether it is a link command must not turn out at the end
            override_from_link_line(self.link_command, "x86_64-unknown-linux-gnu")
        except FormatError as error:
            raise UsageError(f"--thinlto-link-command: {error}") from error

    def for_triple(self, triple: str | None) -> Sequence[str] | None:
        """Give the override of a corpus whose modules have this target triple."""
        if self.given is not None:
            return self.given
        if self.thinlto != "local":
            return None
        if self.link_command is None or triple is None:
            return UNSPECIFIED_OVERRIDE
        return override_from_link_line(self.link_command, triple)


def _several(values: Iterable[Text] | Text) -> list[Text]:
    """Take one value for a list of one: a string would otherwise be a list of characters."""
    return [values] if isinstance(values, str | Path) else list(values)


def _choice(option: str, value: str | None, choices: Sequence[str]) -> str | None:
    if value is not None and value not in choices:
        raise UsageError(f"{option} {value}: expected {' or '.join(choices)}")
    return value


def _regex(option: str, pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{option} {pattern}: not a regular expression: {error}") from error
    return pattern


def _os_error(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


class _Pending(NamedTuple):
    """An object whose rows are due: its entry, None while a worker makes it, and the entry of the run before."""

    entry: Entry | None
    before: Entry | None


class _Run:
    """One extraction under way: the parent's side of it."""

    def __init__(self, output: Path, journal: Journal, settings: Settings, *, dedup: bool, jobs: int) -> None:
        self._output = output
        self._journal = journal
        self._settings = settings
        self._dedup = dedup
        self._jobs = jobs
        self._table = ModuleTableWriter(output / MODULES_NAME, output / STATE_FOLDER / f"{MODULES_NAME}.tmp")
        self._pending: deque[_Pending] = deque()
        self._modules: list[str] = []
        self._content: dict[int, str | None] = {}
        self._digest = sha256()
        self._counts: Counter[str] = Counter()
        self._visited: set[str] = set()
        self._stale: list[str] = []
        self._lost: list[str] = []
        self._first_triple: str | None = None
        self.report = ExtractReport(output)
        self.no_bitcode_details: Counter[str] = Counter()

    def extract(self, objects: Iterator[BuildObject], progress: Callable[[int], None]) -> None:
        """Bring every object's modules into the corpus, and its rows into the table, in order."""
        scratch = self._journal.scratch
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        work = partial(extract_object, str(self._output), str(scratch), self._settings)
        tasks = self._tasks(objects)
        issued: deque[ObjectTask] = deque()

        def remembered() -> Iterator[ObjectTask]:
            for task in tasks:
                issued.append(task)
                yield task

        for result in parallel_map(work, remembered(), jobs=self._jobs, limit=_OBJECT_SECONDS, weigh=_share_of_chunk):
            task = issued.popleft()
            self._drain()
            before = self._pending.popleft().before
            if isinstance(result, Lost):
                self._lost.append(task.name)
                result = lost_entry(task, Reason.TIMEOUT if result.timed_out else Reason.WORKER_DIED, result.detail)
            self._collect(result, before)
            self._drain()
            self._journal.sync()
            progress(self.report.objects)
        self._drain()
        progress(self.report.objects)

    def _tasks(self, objects: Iterator[BuildObject]) -> Iterator[ObjectTask]:
        """Name each object and yield it if it must be read; what needs no reading goes straight to the pending."""
        registry = NameRegistry()
        for item in objects:
            wanted = safe_module_name(item.name)
            name = registry.claim(wanted)
            identity = _digest((__version__, os.path.abspath(item.path), os.path.abspath(item.directory)))[:16]
            task = ObjectTask(item.path, name, item.source or item.name, name != wanted, item.directory, identity)
            before = self._journal.get(name)
            if item.problem is not None:
                self._pending.append(_Pending(lost_entry(task, Reason(item.problem), item.detail), before))
            elif before is not None and before.identity == identity and self._is_current(before, item):
                self.report.unchanged += 1
                self._pending.append(_Pending(before, before))
            else:
                self._pending.append(_Pending(None, before))
                yield task._replace(known=() if before is None else tuple(_digests(before)))

    def _is_current(self, entry: Entry, item: BuildObject) -> bool:
        """Tell whether an object need not be read: it is as it was, and so are the files made from it."""
        if not entry.is_current(item.path):
            return False
        for row in entry.rows:
            if row.reason in (Reason.DUPLICATE, Reason.UNREADABLE):  # which may change although the file does not
                return False
            if row.status == STATUS_OK and not self._is_whole(row):
                return False
        return True

    def _is_whole(self, row: ModuleRow) -> bool:
        path = os.path.join(self._output, row.module)
        try:
            if os.stat(path + MODULE_SUFFIXES[0]).st_size != row.bitcode_bytes:
                return False
            if row.cmd_bytes is not None and os.stat(path + MODULE_SUFFIXES[1]).st_size != row.cmd_bytes:
                return False
            return self._settings.thinlto is None or os.path.exists(path + MODULE_SUFFIXES[2])
        except OSError:
            return False

    def _drain(self) -> None:
        """Collect what is due and needed no reading."""
        while self._pending and (entry := self._pending[0].entry) is not None:
            self._collect(entry, self._pending.popleft().before)

    def _collect(self, entry: Entry, before: Entry | None) -> None:
        rows = tuple(self._without_duplicates(row) for row in entry.rows)
        entry = replace(entry, rows=rows, stale=())
        if before is not None:
            self._visited.add(entry.name)
            self._leave_behind(before, entry.modules())
        self._journal.add(entry)
        report = self.report
        report.objects += 1
        report.bitcode_found += entry.bitcode_found
        report.bitcode_explained += entry.padding
        for row in rows:
            self._table.append(row)
            self._counts[row.reason] += 1
            report.bitcode_explained += row.bitcode_bytes or 0
            if row.status == STATUS_FAILED:
                report.failed += 1
            elif row.reason == Reason.NO_BITCODE:
                self.no_bitcode_details[row.detail] += 1
            elif row.status == STATUS_OK:
                self._modules.append(row.module)
                report.modules += 1
                report.bitcode_bytes += row.bitcode_bytes or 0
                report.cmd_bytes += row.cmd_bytes or 0
                report.without_command += row.cmd_origin == "none"
                self._first_triple = self._first_triple or row.target_triple
                self._digest.update(f"{row.module}\0{row.bitcode_sha256}\0{row.cmd_sha256}\0".encode())

    def _without_duplicates(self, row: ModuleRow) -> ModuleRow:
        if row.status != STATUS_OK or row.bitcode_sha256 is None:
            return row
        # 128 bits are more than enough to tell modules of one corpus apart, in half the memory of a digest.
        key = int(row.bitcode_sha256[:32], 16) ^ int((row.cmd_sha256 or "0")[:32], 16)
        if key not in self._content:
            self._content[key] = row.module if self._dedup else None
            return row
        self.report.duplicates += 1
        kept = self._content[key]
        if kept is None:
            return row
        self._stale.append(row.module)
        return row._replace(
            status=STATUS_SKIPPED,
            reason=str(Reason.DUPLICATE),
            detail=f"the same bitcode and command as {kept}",
            duplicate_of=kept,
        )

    def finish(self, header: dict[str, Any], override: _Override) -> None:
        """Publish the table and the manifest, then take away what is no longer in the corpus."""
        self._table.commit({"tool": "mlgo-corpus", **header, "inputs": None, "corpus_digest": self._digest.hexdigest()})
        write_manifest(
            self._output / MANIFEST_NAME,
            self._modules,
            has_thinlto=self._settings.thinlto is not None,
            override=override.for_triple(self._first_triple),
        )
        for name in self._journal.names():
            if name not in self._visited and (entry := self._journal.get(name)) is not None:
                self._leave_behind(entry, frozenset())
        current = set(self._modules)
        for module in self._stale:
            if module not in current:
                remove_module_files(self._output, module)
        for name in self._lost:  # its worker may have written any of its modules before it died
            remove_module_files(self._output, name)
            if not (self._output / name).is_symlink():
                shutil.rmtree(self._output / name, ignore_errors=True)
        self._journal.commit()
        self.report.counts = dict(self._counts.most_common())

    def _leave_behind(self, before: Entry, kept: frozenset[str]) -> None:
        """Mark the modules that an object had, and no longer has, for removal."""
        self._stale.extend((before.modules() | frozenset(before.stale)) - kept)
        self.report.removed += len(before.modules() - kept)

    def close(self) -> None:
        """Leave nothing half-written, however the run ended; what the journal holds lets the next one go on."""
        self._table.abandon()
        shutil.rmtree(self._journal.scratch, ignore_errors=True)
        self._journal.close()


def _digests(entry: Entry) -> Iterator[tuple[str, str | None, str | None]]:
    return ((row.module, row.bitcode_sha256, row.cmd_sha256) for row in entry.rows if row.bitcode_sha256 is not None)


def _share_of_chunk(task: ObjectTask) -> float:
    try:
        return os.stat(task.path).st_size / _CHUNK_BYTES
    except (OSError, ValueError):
        return 0.0


def _digest(texts: Iterable[str]) -> str:
    return sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()


def _nothing_to_read(paths: Sequence[Path], thinlto: str | None) -> str:
    where = ", ".join(map(str, paths))
    if thinlto == "local":
        return (
            f"{where}: no *.3.import.bc files; link with lld and -Wl,--save-temps=import -Wl,--thinlto-emit-index-files"
        )
    return f"{where}: no object files; build first, or name the folder the build writes to"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"


def _hints(report: ExtractReport, no_bitcode: Counter[str]) -> Iterator[str]:
    """Say what the counts mean and what to do about it."""
    counts = Counter(report.counts)

    def many(reason: Reason) -> bool:
        return counts[reason] > report.modules

    if many(Reason.NO_BITCODE):
        detail = no_bitcode.most_common(1)[0][0]
        yield (
            f"{_count(counts[Reason.NO_BITCODE], 'object')} without bitcode ({detail}): compile with clang and "
            "-Xclang -fembed-bitcode=all (in CFLAGS and CXXFLAGS), then extract again"
        )
    if many(Reason.MISSING):
        yield (
            f"{_count(counts[Reason.MISSING], 'object')} not there: run the build first (paths in parameter files and "
            "aquery output are relative to --build-dir)"
        )
    if counts[Reason.POST_OPT_IR]:
        yield (
            f"{_count(counts[Reason.POST_OPT_IR], 'module')} optimised IR with a truncated command: compile with "
            "-Xclang -fembed-bitcode=all, not with -fembed-bitcode"
        )
    if report.without_command:
        yield (
            f"{_count(report.without_command, 'module')} without a command, and trainers refuse a corpus with such "
            "modules: --command-override 'ARGS' gives one for all, --require-command leaves them out"
        )
    if report.modules == 0 and counts[Reason.FILTERED]:
        yield f"the filters left out all of the modules that were found ({counts[Reason.FILTERED]})"
    if report.duplicates and not counts[Reason.DUPLICATE]:
        yield (
            f"{_count(report.duplicates, 'module')} the same as another, such as an object and its copy in an archive: "
            "--dedup keeps one of each"
        )
    if report.failed:
        yield "mlgo-corpus explain OBJECT says more about a single file"
