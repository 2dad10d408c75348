"""Extract one object into a corpus: read it, name its modules, filter them, write their files, return its rows.

This runs in worker processes. It needs only its arguments. The files it writes appear under their names only when they
are complete, and running it twice leaves the same files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from mlgo_corpus.builds.objects import Embedded, Reason, SectionNames, Tally, read_object
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK, STATUS_SKIPPED, ModuleRow
from mlgo_corpus.corpus.scan import functions_of
from mlgo_corpus.errors import FormatError, MlgoCorpusError
from mlgo_corpus.files.atomic import FileStamp
from mlgo_corpus.files.names import (
    BITCODE_SUFFIX,
    COMMAND_SUFFIX,
    IMPORTED_SUFFIX,
    THINLTO_INDEX_SUFFIX,
    NameRegistry,
    safe_module_name,
)
from mlgo_corpus.files.regular import read_file
from mlgo_corpus.files.text import option_key, os_reason, printable, storable
from mlgo_corpus.formats.bitcode import headers as bitcode
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.embedded import CommandFacts, decode_options, split_options
from mlgo_corpus.runs.extract.journal import Entry

_STATUS = {
    Reason.OK: STATUS_OK,
    Reason.RENAMED: STATUS_OK,
    Reason.POST_OPT_IR: STATUS_OK,
    Reason.RAW_LTO: STATUS_OK,
    Reason.NO_COMMAND: STATUS_OK,
    Reason.DROPPED_OPTIONS: STATUS_OK,
    Reason.NO_BITCODE: STATUS_SKIPPED,
    Reason.FILTERED: STATUS_SKIPPED,
    Reason.DUPLICATE: STATUS_SKIPPED,
    Reason.NO_OUTPUT: STATUS_SKIPPED,
}


def status_of(reason: Reason) -> str:
    """Return the status of a reason."""
    return _STATUS.get(reason, STATUS_FAILED)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that, with the inputs, determine the result of an extraction.

    Attributes:
        names: the sections to look in.
        thinlto: ``local``, ``distributed`` or None.
        cmd_filters: regular expressions; a module is kept if each of them matches some option of its command.
        module_filter: a regular expression that must match somewhere in the module's name.
        require_command: leave out modules that have no command of their own.
        overridden: the corpus has one command for all modules.
    """

    names: SectionNames = field(default_factory=SectionNames)
    thinlto: str | None = None
    cmd_filters: tuple[str, ...] = ()
    module_filter: str | None = None
    require_command: bool = False
    overridden: bool = False


class ObjectTask(NamedTuple):
    """One object to extract.

    Attributes:
        path: the path to open.
        name: its module name, unique in the corpus; its members' names go below it.
        source: its path relative to the build.
        renamed: True if another object had the name it asked for.
        directory: the folder that paths in its command are relative to.
        identity: a digest that is the same for the same object in another run, see `Entry`.
        known: modules that the corpus holds already: name, digests of bitcode and command (None for no command).
        note: what was different when it was compiled, for the detail of its modules.
    """

    path: str
    name: str
    source: str
    renamed: bool
    directory: str
    identity: str = ""
    known: tuple[tuple[str, str | None, str | None], ...] = ()
    note: str = ""


def extract_object(corpus: str, scratch: str, settings: Settings, task: ObjectTask) -> Entry:
    """Extract one object into ``corpus``; problems with the object become rows, not exceptions.

    Raises:
        MlgoCorpusError: the corpus cannot be written (a full disk, a missing permission).
    """
    job = _Job(corpus, scratch, settings, task)
    try:
        rows = tuple(job.rows())
    except MlgoCorpusError:
        raise
    except Exception as error:  # a defect of ours may cost one object, not the run
        detail = f"a defect of mlgo-corpus, please report it: {type(error).__name__}: {error}"
        return lost_entry(task, Reason.MALFORMED, " ".join(detail.split()))
    return Entry(
        task.name, task.identity, job.stamp, tuple(job.companions), rows, job.tally.bitcode_found, job.tally.padding
    )


def lost_entry(task: ObjectTask, reason: Reason, detail: str) -> Entry:
    """Return the entry of an object that could not be examined and must be read again."""
    return Entry(task.name, task.identity, None, (), (failed_row(task.name, task.source, reason, detail),), 0, 0)


def failed_row(name: str, source: str, reason: Reason, detail: str) -> ModuleRow:
    """Return the row of an object that could not be read at all."""
    return ModuleRow(name, printable(source), None, status_of(reason), str(reason), printable(detail))


class _Job:
    def __init__(self, corpus: str, scratch: str, settings: Settings, task: ObjectTask) -> None:
        self._corpus = corpus
        # On a cluster, two workers may have the same number.
        self._scratch = os.path.join(scratch, f"{os.getpid()}-{secrets.token_hex(8)}")
        self._settings = settings
        self._task = task
        self._names: NameRegistry | None = None
        self._known = {name: (bitcode_sha, cmd_sha) for name, bitcode_sha, cmd_sha in task.known}
        self.stamp: FileStamp | None = None
        self.companions: list[tuple[str, FileStamp | None]] = []
        self.tally = Tally()

    def rows(self) -> Iterator[ModuleRow]:
        task = self._task
        self.stamp = FileStamp.of(task.path)
        try:
            data = read_file(task.path)
        except FileNotFoundError:
            yield failed_row(task.name, task.source, Reason.MISSING, "there is no such file: was it built?")
            return
        except (OSError, ValueError) as error:
            yield failed_row(task.name, task.source, Reason.UNREADABLE, os_reason(error))
            return
        if self._settings.thinlto == "local":
            found = self._read_imported(data)
        else:
            found = read_object(data, self.tally, names=self._settings.names, open_member=self._open_companion)
        for item in found:
            yield self._row(item)

    def _read_imported(self, data: Buffer) -> Iterator[Embedded]:
        """Yield the module of a ``.3.import.bc`` file, which is the file itself."""
        self.tally.bitcode_found += len(data)
        if bitcode.is_bitcode(data):
            yield Embedded(None, Reason.OK, memoryview(data))
        else:
            detail = "byte 0: expected bitcode"
            yield Embedded(None, Reason.MALFORMED, detail=detail, lost_bytes=len(data))

    def _open_companion(self, name: str) -> Buffer:
        """Read a file that the object refers to, relative to the object's folder, and record it as a companion."""
        path = os.path.join(os.path.dirname(self._task.path), name)
        self._remember(path)
        return read_file(path)

    def _remember(self, path: str) -> None:
        folder = os.path.dirname(self._task.path)
        self.companions.append((os.path.relpath(path, folder or "."), FileStamp.of(path)))

    def _module_name(self, member: str | None) -> str:
        """Return the object's own name, or one below it for a member; repeated names of members are numbered."""
        if member is None:
            return self._task.name
        if self._names is None:
            self._names = NameRegistry()
        return self._names.claim(f"{self._task.name}/{safe_module_name(member)}")

    def _row(self, item: Embedded) -> ModuleRow:
        task = self._task
        name = self._module_name(item.member)
        reason, detail = item.reason, item.detail
        if reason is Reason.OK and (task.renamed or (item.member and not name.endswith("/" + item.member))):
            reason, detail = Reason.RENAMED, "the name it asked for was taken, or is not one for a file"
        if task.note and reason in (Reason.OK, Reason.RENAMED):
            reason = Reason.DROPPED_OPTIONS if reason is Reason.OK else reason
            detail = "; ".join(filter(None, (detail, task.note)))
        row = ModuleRow(
            module=name,
            source=printable(task.source),
            member=None if item.member is None else printable(item.member),
            status=status_of(reason),
            reason=str(reason),
            detail=printable(detail),
            bitcode_bytes=item.lost_bytes or None,
        )
        if item.bitcode is None:
            return row
        settings = self._settings
        facts, header = _facts(item)
        own_command = item.command is not None
        row = row._replace(
            bitcode_bytes=len(item.bitcode),
            cmd_bytes=len(item.command) if item.command is not None else None,
            bitcode_sha256=sha256(item.bitcode).hexdigest(),
            cmd_sha256=sha256(item.command).hexdigest() if item.command is not None else None,
            cmd_origin="override" if settings.overridden else "embedded" if own_command else "none",
            target_triple=storable((facts.target_triple if facts else None) or header.target_triple),
            producer=storable(header.producer),
            ir_stage="post-opt" if reason is Reason.POST_OPT_IR else "pre-opt" if own_command else None,
            opt_level=storable(facts.opt_level if facts else None),
            main_file_name=storable(facts.main_file_name if facts else None),
            functions=functions_of(item.bitcode),
        )
        if (left_out := self._left_out(name, item)) is not None:
            return row._replace(status=STATUS_SKIPPED, reason=str(Reason.FILTERED), detail=left_out)
        if settings.require_command and not own_command and not settings.overridden:
            left_out = f"{option_key('require_command')}: {detail}"
            return row._replace(status=STATUS_SKIPPED, reason=str(Reason.FILTERED), detail=left_out)
        if settings.thinlto is not None:
            try:
                index = self._thinlto_index(facts)
            except (OSError, ValueError, FormatError) as error:
                return row._replace(
                    status=STATUS_FAILED,
                    reason=str(Reason.MISSING_THINLTO_INDEX),
                    detail=printable(str(error)),
                )
            self._write(name + THINLTO_INDEX_SUFFIX, index)
        if self._known.get(name) == (row.bitcode_sha256, row.cmd_sha256) and self._is_written(name, item):
            return row
        self._write(name + BITCODE_SUFFIX, item.bitcode)
        if item.command is not None:
            self._write(name + COMMAND_SUFFIX, item.command)
        else:  # left by another module that had this name
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._corpus, name + COMMAND_SUFFIX))
        return row

    def _left_out(self, name: str, item: Embedded) -> str | None:
        """Return the filter that excludes a module, or None."""
        pattern = self._settings.module_filter
        if pattern is not None and not _compiled(pattern).search(name):
            return f"{option_key('module_filter')} {pattern}"
        if self._settings.cmd_filters:
            options = decode_options(split_options(item.command or b""))
            for pattern in self._settings.cmd_filters:
                if not any(map(_compiled(pattern).search, options)):
                    return f"{option_key('cmd_filter')} {pattern}: found in no option"
        return None

    def _thinlto_index(self, facts: CommandFacts | None) -> Buffer:
        """Read the module's index. The command is untrusted: only bitcode or an empty file is accepted."""
        task = self._task
        if self._settings.thinlto == "local":
            path = task.path.removesuffix(IMPORTED_SUFFIX) + THINLTO_INDEX_SUFFIX
        elif facts is None or facts.thinlto_index is None:
            raise FormatError("the command has no -fthinlto-index=")
        elif facts.thinlto_index in ("", os.devnull):
            return b""  # by convention of build systems: compile without importing
        else:
            path = os.path.join(task.directory, facts.thinlto_index)
        self._remember(path)
        index = read_file(path)
        if len(index) and not bitcode.is_bitcode(index):
            raise FormatError(f"expected a ThinLTO index, which is bitcode: {path}")
        return index

    def _is_written(self, name: str, item: Embedded) -> bool:
        path = os.path.join(self._corpus, name)
        try:
            if os.stat(path + BITCODE_SUFFIX).st_size != len(item.bitcode or b""):
                return False
            if item.command is None:
                return not os.path.exists(path + COMMAND_SUFFIX)
            return os.stat(path + COMMAND_SUFFIX).st_size == len(item.command)
        except OSError:
            return False

    def _write(self, name: str, data: Buffer) -> None:
        path = os.path.join(self._corpus, name)
        try:
            folder, _, _ = name.rpartition("/")
            _ensure_folder(self._corpus, folder)
            descriptor = os.open(self._scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            finally:
                os.close(descriptor)
            os.replace(self._scratch, path)
        except OSError as error:
            raise MlgoCorpusError(
                f"cannot write {path}: {os_reason(error)}; what is whole is kept, and the same command goes on"
            ) from error


def _facts(item: Embedded) -> tuple[CommandFacts | None, bitcode.ModuleHeader]:
    """Return the facts of the command, and the module's header; the slow full header only if there is no command."""
    assert item.bitcode is not None  # noqa: S101 - the caller has checked
    try:
        if item.facts is None:
            return None, bitcode.read_module_header(item.bitcode)
        return item.facts, bitcode.ModuleHeader(bitcode.read_producer(item.bitcode), None, None)
    except FormatError:
        return item.facts, bitcode.ModuleHeader(None, None, None)


@lru_cache(maxsize=4096)
def _ensure_folder(corpus: str, folder: str) -> None:
    """Make a folder of the corpus. A symbolic link in its place could lead outside, and is refused.

    Raises:
        OSError: it cannot be made.
    """
    if not folder:
        return
    parent, _, _ = folder.rpartition("/")
    _ensure_folder(corpus, parent)
    path = os.path.join(corpus, folder)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    if os.path.islink(path):
        raise OSError(errno.ELOOP, "a symbolic link stands where the corpus needs a folder")


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
