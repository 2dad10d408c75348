"""The run of an extraction: choose the objects to read, let workers read them, collect the rows in input order.

The parent names the objects and skips unchanged ones; workers read the others and write the modules' files
(`mlgo_corpus.runs.extract.module`); the parent collects the rows in order, so that the result does not depend on the
number of workers.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from mlgo_corpus import __version__
from mlgo_corpus.builds.inputs import BuildObject
from mlgo_corpus.builds.objects import MADE_BY_CLANG, OF_A_DLL, OTHER_SECTION, Reason
from mlgo_corpus.corpus.folder import iter_modules_of, remove_module_files, write_manifest
from mlgo_corpus.corpus.groups import UNOPTIMISED
from mlgo_corpus.corpus.modules import (
    STATUS_FAILED,
    STATUS_OK,
    STATUS_SKIPPED,
    ModuleRow,
    ModuleTableWriter,
)
from mlgo_corpus.corpus.split.files import Split
from mlgo_corpus.engine.choice import HERE, EngineChoice, Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.files.names import (
    MANIFEST_NAME,
    MODULE_SUFFIXES,
    MODULES_NAME,
    STATE_FOLDER,
    NameRegistry,
    safe_module_name,
)
from mlgo_corpus.runs.extract.journal import Entry, Journal
from mlgo_corpus.runs.extract.module import ObjectTask, Settings, extract_object, lost_entry
from mlgo_corpus.runs.report import Report

# The time limit for one object; only a hanging parser or a dead network file system reaches it.
_OBJECT_SECONDS = 120.0
# A chunk of work ends at this many bytes, so that large objects spread over the workers.
_CHUNK_BYTES = 2 << 20
_EXAMPLES = 3
_PERMISSIONS = (Reason.UNREADABLE, Reason.MISSING_THINLTO_INDEX)


@dataclass(slots=True)
class ExtractReport(Report):
    """The result of an extraction. Bytes are counted over all inputs, including those not read again.

    Attributes:
        output: the corpus.
        objects: number of input objects (an archive or a linked binary is one).
        modules: number of modules in the corpus.
        counts: rows by reason.
        examples: the first few sources of each reason that is not ``ok``.
        bitcode_bytes: bytes of bitcode in the corpus.
        cmd_bytes: bytes of commands in the corpus.
        bitcode_found: bytes found in bitcode sections, including those of modules left out.
        bitcode_explained: bytes of these that a row or padding accounts for; equal to ``bitcode_found``.
        duplicates: number of modules with the same bitcode and command as an earlier one.
        without_command: number of modules in the corpus that have no command and are not covered by an override.
        unoptimised: number of modules in the corpus that are compiled at -O0, in which there is nothing to decide.
        failed: number of rows with the status ``failed``.
        unchanged: number of objects not read again.
        removed: number of modules of the previous run that are no longer in the corpus.
        split_removed: True if a split was removed because the corpus has changed.
        seconds: wall time.
        hints: advice for the user, most important first.
    """

    _properties: ClassVar = ("exit_code",)

    output: Path
    objects: int = 0
    modules: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    bitcode_bytes: int = 0
    cmd_bytes: int = 0
    bitcode_found: int = 0
    bitcode_explained: int = 0
    duplicates: int = 0
    without_command: int = 0
    unoptimised: int = 0
    failed: int = 0
    unchanged: int = 0
    removed: int = 0
    split_removed: bool = False
    seconds: float = 0.0
    hints: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 if objects failed or nothing was extracted, else 0."""
        return 1 if self.failed or not self.modules else 0


class _Pending(NamedTuple):
    """An object whose rows are pending: its entry, None while a worker makes it, and that of the previous run.

    ``replaced``: it is not to be read, for another file is in its place.
    """

    task: ObjectTask
    entry: Entry | None
    before: Entry | None
    replaced: bool = False


class ExtractionRun:
    """The parent's side of an extraction."""

    def __init__(
        self,
        output: Path,
        journal: Journal,
        settings: Settings,
        *,
        dedup: bool,
        jobs: int | None,
        engine: EngineChoice = HERE,
        needs: Sequence[Path] = (),
    ) -> None:
        self._output = output
        # For this run alone: a worker that outlives a killed parent finds its folder gone, and cannot write.
        self._scratch = journal.scratch / secrets.token_hex(8)
        self._journal = journal
        self._settings = settings
        self._dedup = dedup
        self._jobs = jobs
        self._engine = engine
        self._needs = needs
        self._table = ModuleTableWriter(output / MODULES_NAME, output / STATE_FOLDER / f"{MODULES_NAME}.tmp")
        self._pending: deque[_Pending] = deque()
        self._modules: list[str] = []
        self._content: dict[int, str | None] = {}
        self._digest = sha256()
        self._counts: Counter[str] = Counter()
        self._visited: set[str] = set()
        self._stale: list[str] = []
        self._lost: set[str] = set(journal.unfinished)
        self._first_triple: str | None = None
        self.report = ExtractReport(output)
        # By the end of the detail that says why.
        self.without_bitcode = Counter[str]()
        self.first_without_bitcode: dict[str, str] = {}
        self.override: Sequence[str] | None = None

    def extract(self, objects: Iterator[BuildObject], progress: Callable[[int], None]) -> None:
        """Write every object's modules into the corpus, and its rows into the table, in order."""
        self._clear_scratch()
        self._scratch.mkdir(parents=True)
        for result in self._read(self._tasks(objects, progress), self._jobs, self._engine):
            task, _, before, _ = self._pending.popleft()  # the first pending one: all before it have been drained
            self._collect(self._entry(task, result), before)
            self._drain(progress)
        self._drain(progress)

    def _read(self, tasks: Iterable[ObjectTask], jobs: int | None, engine: EngineChoice) -> Iterator[Entry | Lost]:
        output, scratch = engine.place(self._output), engine.place(self._scratch)
        return parallel_map(
            partial(extract_object, str(output), str(scratch), self._settings),
            tasks,
            jobs=jobs,
            limit=_OBJECT_SECONDS,
            weigh=_share_of_chunk,
            engine=engine,
            needs=(scratch, *self._needs),
        )

    def _entry(self, task: ObjectTask, result: Entry | Lost) -> Entry:
        if isinstance(result, Entry):
            if result.stamp is None:  # given up midway
                self._lost.add(task.name)
            return result
        self._lost.add(task.name)
        return lost_entry(task, Reason.TIMEOUT if result.timed_out else Reason.WORKER_DIED, result.detail)

    def _tasks(self, objects: Iterator[BuildObject], progress: Callable[[int], None]) -> Iterator[ObjectTask]:
        """Name each object; yield those that must be read, and queue the others as pending at once."""
        registry = NameRegistry()
        for item in objects:
            wanted = safe_module_name(item.name)
            name = registry.claim(wanted)
            what = (
                __version__,
                os.path.abspath(item.path),
                os.path.abspath(item.directory),
                *filter(None, [item.note]),
            )
            identity, renamed = digest_of(what)[:16], name != wanted
            source = item.source or item.name
            task = ObjectTask(item.path, name, source, renamed, item.directory, identity, note=item.note)
            before = self._journal.get(name)
            if item.problem is not None:
                self._pending.append(_Pending(task, lost_entry(task, Reason(item.problem), item.detail), before))
                self._drain(progress)
            elif item.replaced:
                kept = before if before is not None and self._is_extracted(before) else None
                self.report.unchanged += kept is not None
                self._pending.append(_Pending(task, kept or _replaced_entry(task), before, replaced=True))
                self._drain(progress)
            elif before is not None and before.identity == identity and self._is_current(before, item.path):
                self.report.unchanged += 1
                self._pending.append(_Pending(task, before, before))
                self._drain(progress)
            else:
                trusted = before is not None and name not in self._journal.unfinished
                task = task._replace(known=tuple(_digests(before)) if before is not None and trusted else ())
                self._pending.append(_Pending(task, None, before))
                self._journal.issue(name)
                yield task

    def _is_extracted(self, entry: Entry) -> bool:
        """Return True if the files that were made from an object are unchanged."""
        if entry.name in self._journal.unfinished:
            return False
        return all(row.status != STATUS_OK or self._is_whole(row) for row in entry.rows)

    def _is_current(self, entry: Entry, path: str) -> bool:
        """Return True if an object need not be read: it and the files made from it are unchanged."""
        # Permissions may change although the file does not.
        may_be_read_now = any(row.reason in _PERMISSIONS for row in entry.rows)
        return self._is_extracted(entry) and entry.is_current(path) and not may_be_read_now

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

    def _drain(self, progress: Callable[[int], None]) -> None:
        """Collect the pending objects whose entries are known, and flush the journal."""
        while self._pending and (entry := self._pending[0].entry) is not None:
            task, _, before, replaced = self._pending.popleft()
            if self._dedup and self._is_no_duplicate_now(entry):
                self.report.unchanged -= 1
                if replaced:
                    entry = _replaced_entry(task)
                else:
                    self._journal.issue(task.name)
                    (result,) = self._read([task], 1, HERE)
                    entry = self._entry(task, result)
            self._collect(entry, before)
        self._journal.sync()
        progress(self.report.objects)

    def _is_no_duplicate_now(self, entry: Entry) -> bool:
        """Return True if a module was left out as a duplicate of one that is no longer in the corpus."""
        own = set()
        for row in entry.rows:
            key = _content_key(row)
            if row.reason == Reason.DUPLICATE and key not in self._content and key not in own:
                return True
            own.add(key)
        return False

    def _collect(self, entry: Entry, before: Entry | None) -> None:
        rows = tuple(self._without_duplicates(row) for row in entry.rows)
        dropped = entry.modules() - {row.module for row in rows if row.status == STATUS_OK}
        entry = replace(entry, rows=rows, stale=tuple(sorted(dropped)))
        if before is not None:
            self._visited.add(entry.name)
            self._leave_behind(before, entry.modules())
        if entry.name not in self._lost or entry.stamp is not None:  # else it stays unfinished until finish()
            self._journal.add(entry)
        report = self.report
        report.objects += 1
        report.bitcode_found += entry.bitcode_found
        report.bitcode_explained += entry.padding
        for row in rows:
            self._table.append(row)
            self._counts[row.reason] += 1
            named = row.source if row.member is None else f"{row.source}({row.member})"
            if row.reason != Reason.OK and len(shown := report.examples.setdefault(row.reason, [])) < _EXAMPLES:
                shown.append(named)
            report.bitcode_explained += row.bitcode_bytes or 0
            if row.status == STATUS_FAILED:
                report.failed += 1
            elif row.reason == Reason.NO_BITCODE:
                ends = (MADE_BY_CLANG, OTHER_SECTION, OF_A_DLL)
                end = next((end for end in ends if row.detail.endswith(end)), "")
                self.without_bitcode[end] += 1
                self.first_without_bitcode.setdefault(end, named)
            elif row.status == STATUS_OK:
                self._modules.append(row.module)
                report.modules += 1
                report.bitcode_bytes += row.bitcode_bytes or 0
                report.cmd_bytes += row.cmd_bytes or 0
                report.without_command += row.cmd_origin == "none"
                report.unoptimised += row.opt_level == UNOPTIMISED
                self._first_triple = self._first_triple or row.target_triple
                self._digest.update(f"{row.module}\0{row.bitcode_sha256}\0{row.cmd_sha256}\0".encode())

    def _without_duplicates(self, row: ModuleRow) -> ModuleRow:
        if row.status != STATUS_OK and row.reason != Reason.DUPLICATE:
            return row
        key = _content_key(row)
        if key not in self._content:
            self._content[key] = row.module if self._dedup else None
            return row
        self.report.duplicates += 1
        kept = self._content[key]
        if kept is None:
            return row
        if row.status == STATUS_OK:
            self._stale.append(row.module)
        return row._replace(
            status=STATUS_SKIPPED,
            reason=str(Reason.DUPLICATE),
            detail=f"the same bitcode and command as {kept}",
            duplicate_of=kept,
        )

    def finish(self, header: dict[str, Any], override: Callable[[str | None], Sequence[str] | None]) -> None:
        """Publish the table and the manifest, then remove the files of modules that left the corpus.

        Args:
            header: the version, options and inputs, for the table's metadata.
            override: returns the manifest's override for the modules' target triple.
        """
        self.override = override(self._first_triple)
        split = Split.of(self._output)
        about = {"tool": "mlgo-corpus", **header, "inputs": None, "corpus_digest": self._digest.hexdigest()}
        self._table.commit(about)
        write_manifest(
            self._output / MANIFEST_NAME,
            self._modules,
            has_thinlto=self._settings.thinlto is not None,
            override=self.override,
        )
        for name in self._journal.names():
            if name not in self._visited and (entry := self._journal.get(name)) is not None:
                self._leave_behind(entry, frozenset())
        if split is not None:
            self.report.split_removed = not split.keep(about)
        current = set(self._modules)
        for module in self._stale:
            if module not in current:
                remove_module_files(self._output, module)
        for name in self._lost:  # a worker may have written files of any of its modules
            for module in list(iter_modules_of(self._output, name)):
                if module not in current:
                    remove_module_files(self._output, module)
        self._journal.commit()
        self.report.counts = dict(self._counts.most_common())

    def _leave_behind(self, before: Entry, kept: frozenset[str]) -> None:
        """Mark the modules that an object no longer has for removal."""
        self._stale.extend((before.modules() | frozenset(before.stale)) - kept)
        self.report.removed += len(before.modules() - kept)

    def close(self) -> None:
        """Remove temporary files, however the run ended; the next one resumes from the journal."""
        self._table.abandon()
        self._clear_scratch()
        self._journal.close()

    def _clear_scratch(self) -> None:
        folder = self._journal.scratch
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _replaced_entry(task: ObjectTask) -> Entry:
    """Return the entry of an object in whose place another file is, and of which the corpus has nothing."""
    return lost_entry(task, Reason.MISSING, "another file is in its place: clean, and build again")


def _content_key(row: ModuleRow) -> int:
    """Return a 128-bit number that is the same only for modules with the same bitcode and command."""
    return int((row.bitcode_sha256 or "0")[:32], 16) ^ int((row.cmd_sha256 or "0")[:32], 16)


def _digests(entry: Entry) -> Iterator[tuple[str, str | None, str | None]]:
    """Return the digests of the modules written for an object; duplicates are written before they are removed."""
    return (
        (row.module, row.bitcode_sha256, row.cmd_sha256)
        for row in entry.rows
        if row.status == STATUS_OK or row.reason == Reason.DUPLICATE
    )


def _share_of_chunk(task: ObjectTask) -> float:
    try:
        return os.stat(task.path).st_size / _CHUNK_BYTES
    except (OSError, ValueError):
        return 0.0


def digest_of(texts: Iterable[str]) -> str:
    """Return a hex digest of texts, in order."""
    return sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
