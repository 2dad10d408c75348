"""The journal of an extraction: lets the next one read only what changed, and resumes an interrupted one.

``.mlgo-corpus/extract.jsonl`` in the corpus: a header line (settings), then one line per object with its stamp (size,
times of modification and of change), the files it refers to, and its rows. A running extraction appends to
``extract.jsonl.new`` and renames it at the end; after a kill both exist, and the newer one wins line by line. A torn
last line is ignored.
Before an object is given to a worker, a line records that. If no line with its rows follows, the files that the worker
may have written are not trusted, and the next run that completes removes them.
Without the folder the next extraction cannot recognise its own files, and needs ``force`` to start over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from mlgo_corpus.builds.compiles import CompileStore
from mlgo_corpus.corpus.folder import iter_modules_of, read_manifest, remove_module_files
from mlgo_corpus.corpus.modules import INTEGER_FIELDS, REQUIRED_FIELDS, STATUS_OK, ModuleRow
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import FileStamp, create_file
from mlgo_corpus.files.lock import open_locked
from mlgo_corpus.files.names import BITCODE_SUFFIX, MANIFEST_NAME, MODULES_NAME, STATE_FOLDER, is_name
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, open_regular
from mlgo_corpus.files.text import option_key

_JOURNAL = "extract.jsonl"
_RUNNING = "extract.jsonl.new"
_LOCK = "lock"
_INTERRUPTED = "interrupted"
_SCRATCH = "tmp"


@dataclass(frozen=True, slots=True)
class Entry:
    """The result of reading one object.

    Attributes:
        name: the object's own module name, unique in the corpus: the key.
        identity: a digest of the object's path, the folder that its command's paths are relative to, and this tool's
            version; an entry with another identity describes another object, or was made by other rules.
        stamp: the stamp of the object when it was read; None if there was nothing to read.
        companions: other files that were read for it (members of a thin archive, ThinLTO indexes), as paths
            relative to the object's folder, with their stamps.
        rows: its rows, in order.
        bitcode_found: bytes in its bitcode sections.
        padding: bytes of these that belong to no module: wrappers and alignment.
        stale: modules that the object no longer has, but whose files may still exist.
    """

    name: str
    identity: str
    stamp: FileStamp | None
    companions: tuple[tuple[str, FileStamp | None], ...]
    rows: tuple[ModuleRow, ...]
    bitcode_found: int
    padding: int
    stale: tuple[str, ...] = ()

    def modules(self) -> frozenset[str]:
        """Return the modules that the object put into the corpus."""
        return frozenset(row.module for row in self.rows if row.status == STATUS_OK)

    def is_current(self, path: str) -> bool:
        """Return True if the object at ``path`` and all files it refers to are unchanged."""
        if self.stamp is None or FileStamp.of(path) != self.stamp:
            return False
        folder = os.path.dirname(path)
        return all(FileStamp.of(os.path.join(folder, name)) == stamp for name, stamp in self.companions)


class Journal:
    """The state of a corpus's extraction. It is open during the run, and locks the corpus meanwhile.

    Attributes:
        header: the settings of the recorded run.
        unfinished: objects that were given to a worker and have no recorded result: a run was interrupted, the worker
            died, or the object did not exist. Files that may exist for them are not trusted.

    Raises:
        UsageError: another extraction holds the corpus.
    """

    def __init__(self, corpus: Path) -> None:
        self._folder = corpus / STATE_FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._folder.is_symlink():
            raise UsageError(f"{self._folder}: a symbolic link, expected a folder of the corpus's own; delete it")
        busy = f"{corpus}: another mlgo-corpus is writing to this corpus"
        self._lock = os.fdopen(open_locked(self._folder / _LOCK, busy), "w")
        self._lines: dict[str, bytes] = {}
        self.header: dict[str, Any] | None = None
        self.unfinished: set[str] = set()
        for name in (_JOURNAL, _RUNNING):
            self._load(self._folder / name)
        self._output: IO[bytes] | None = None

    @property
    def scratch(self) -> Path:
        """The folder for temporary files, on the corpus's own file system."""
        return self._folder / _SCRATCH

    def names(self) -> tuple[str, ...]:
        """Return the names of the recorded objects."""
        return tuple(self._lines)

    def get(self, name: str) -> Entry | None:
        """Return the recorded entry of an object, or None."""
        line = self._lines.get(name)
        return None if line is None else _parse_entry(line, name)

    def forget(self) -> None:
        """Remove all records."""
        self._lines.clear()
        self.unfinished.clear()
        self.header = None
        for name in (_JOURNAL, _RUNNING):
            (self._folder / name).unlink(missing_ok=True)

    def begin(self, header: Mapping[str, Any]) -> None:
        """Start the record of this run, after merging that of an interrupted run into the old one."""
        running = self._folder / _RUNNING
        if running.exists():
            temporary = running.with_suffix(".merged")
            with create_file(temporary) as output:
                output.write(_line({**header, _INTERRUPTED: True}))
                output.writelines(self._lines.values())
                output.writelines(map(_issue_line, sorted(self.unfinished)))
            temporary.replace(self._folder / _JOURNAL)
        self._output = create_file(running)
        self._output.write(_line(header))

    def issue(self, name: str) -> None:
        """Record, unbuffered, that an object is about to be given to a worker, which may outlive us."""
        assert self._output is not None  # noqa: S101 - begin() comes first
        self._output.write(_issue_line(name))
        self._output.flush()

    def add(self, entry: Entry) -> None:
        """Append an object to the record of this run."""
        assert self._output is not None  # noqa: S101 - begin() comes first
        self._output.write(_entry_line(entry))

    def sync(self) -> None:
        """Flush the record to the operating system, so that it survives our death."""
        if self._output is not None:
            self._output.flush()

    def commit(self) -> None:
        """Complete the run: its record replaces the previous one."""
        assert self._output is not None  # noqa: S101 - begin() comes first
        self._output.close()
        (self._folder / _RUNNING).replace(self._folder / _JOURNAL)

    def close(self) -> None:
        """Unlock the corpus; a record that was not committed stays for the next run."""
        if self._output is not None:
            with contextlib.suppress(OSError):  # a full disk has been reported already
                self._output.close()
        self._lock.close()

    def _load(self, path: Path) -> None:
        if not path.is_file():
            return
        interrupted = path.name == _RUNNING
        with open_regular(path) as lines:
            for number, line in enumerate(iter(partial(lines.readline, MAX_NOTE_BYTES), b"")):
                if not line.endswith(b"\n"):
                    break
                if number == 0:
                    header = None
                    with contextlib.suppress(ValueError):
                        header = _loads(line)
                    self.header = header if isinstance(header, dict) else None
                    interrupted = interrupted or (self.header or {}).get(_INTERRUPTED) is True
                    continue
                name = _name_of(line)
                if name is None:
                    continue
                if line.endswith(_ISSUED):
                    self.unfinished.add(name)
                    continue
                self.unfinished.discard(name)
                # Modules that an object lost in an interrupted run still have files: only `finish` removes them.
                self._lines[name] = _with_stale(self._lines.get(name), line, name) if interrupted else line


def open_journal(output: Path, header: dict[str, Any], *, force: bool) -> Journal:
    """Open the corpus's journal, after checking that this run may write there.

    Raises:
        UsageError: the folder holds something else, or modules of other inputs or options.
    """
    try:
        _refuse_others(output, force=force)
        journal = Journal(output)
    except OSError as error:
        raise UsageError(f"{output}: cannot write there: {error.strerror}") from error
    try:
        difference = None if journal.header is None else _difference(journal.header, header)
        if difference is not None and not force and _holds_something(output, journal):
            raise UsageError(
                f"{output}: was extracted {difference}; name another `output`, or add `force` to replace it"
            )
        if force or difference is not None:
            _clear(output, journal)
        journal.begin(header)
    except BaseException:
        journal.close()
        raise
    return journal


def _refuse_others(output: Path, *, force: bool) -> None:
    """Raise if the output holds something other than a corpus."""
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output}: not a folder; name another `output`")
    ours = (output / STATE_FOLDER).is_dir()
    if not ours and not force and output.is_dir() and any(output.iterdir()):
        what = f"a corpus without {STATE_FOLDER}" if (output / MANIFEST_NAME).exists() else "not empty, and no corpus"
        raise UsageError(f"{output}: {what}; name another `output`, or add `force` to write there all the same")


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Describe how the previous run differed, or return None if this run can update its corpus."""
    if before.get("inputs") != now["inputs"]:
        return "from other inputs, or with another `build_dir`"
    options = json.loads(json.dumps(now["options"]))
    for option, value in before.get("options", {}).items():
        if options.get(option) == value:
            continue
        parameter = f"`{option.removeprefix('--').replace('-', '_')}`"
        if value in (None, False, []):
            return f"without {parameter}"
        if value is True or option == option_key("thinlto_link_command"):
            return f"with {'another ' if value is not True else ''}{parameter}"
        return f"with {parameter} {shlex.join(value) if isinstance(value, list) else value}"
    return None


def _modules_of(output: Path, journal: Journal) -> set[str]:
    """Return the modules that a corpus's journal and its manifest name, and those that an interrupted run left."""
    entries = [entry for name in journal.names() if (entry := journal.get(name))]
    modules = {module for entry in entries for module in (*entry.modules(), *entry.stale)}
    for name in journal.unfinished:
        modules.update(iter_modules_of(output, name))
    with contextlib.suppress(CorpusError):
        modules.update(read_manifest(output / MANIFEST_NAME)["modules"])
    return modules


def _holds_something(output: Path, journal: Journal) -> bool:
    """Return True if a run in another way would lose something: modules, or objects of a build."""
    modules = _modules_of(output, journal)  # also of objects whose extraction was interrupted: they may have none
    if any(os.path.lexists(output / f"{name}{BITCODE_SUFFIX}") for name in modules):
        return True
    return CompileStore(output).holds_objects()


def _clear(output: Path, journal: Journal) -> None:
    """Remove a corpus: only the files that its journal and its manifest name."""
    for name in _modules_of(output, journal):
        with contextlib.suppress(CorpusError):
            remove_module_files(output, name)
    journal.forget()
    for name in (MANIFEST_NAME, MODULES_NAME):
        (output / name).unlink(missing_ok=True)


def _line(record: object) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _parse_entry(line: bytes, name: str) -> Entry | None:
    """Parse a line; return None if it is invalid, or names modules that are not below its object's name."""
    try:
        record = _loads(line)
        entry = Entry(
            name=name,
            identity=str(record["identity"]),
            stamp=_stamp(record["stamp"]),
            companions=tuple((str(path), _stamp(stamp)) for path, stamp in record["companions"]),
            rows=tuple(_row(*row) for row in record["rows"]),
            bitcode_found=int(record["bitcode_found"]),
            padding=int(record["padding"]),
            stale=tuple(map(str, record["stale"])),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    named = (*(row.module for row in entry.rows), *entry.stale)
    return entry if all(item == name or (item.startswith(f"{name}/") and is_name(item)) for item in named) else None


def _row(*values: Any) -> ModuleRow:
    row = ModuleRow(*values)
    for field, value in zip(ModuleRow._fields, row, strict=True):
        wanted: Any = int if field in INTEGER_FIELDS else str
        if type(value) is not wanted and (value is not None or field in REQUIRED_FIELDS):
            raise TypeError(field)
    return row


def _with_stale(before: bytes | None, line: bytes, name: str) -> bytes:
    """Return an interrupted run's line for an object, with the modules that only the run before had added as stale."""
    was, entry = None if before is None else _parse_entry(before, name), _parse_entry(line, name)
    if was is None or entry is None:
        return line
    stale = (was.modules() | set(was.stale) | set(entry.stale)) - entry.modules()
    return _entry_line(replace(entry, stale=tuple(sorted(stale)))) if stale else line


_ISSUED = b',"issued":true}\n'


def _issue_line(name: str) -> bytes:
    return b'{"name":' + json.dumps(name).encode() + _ISSUED


def _loads(line: bytes) -> Any:
    """Parse untrusted JSON.

    Raises:
        ValueError: it is invalid, or nested too deeply.
    """
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _entry_line(entry: Entry) -> bytes:
    return _line(
        {
            "name": entry.name,
            "identity": entry.identity,
            "stamp": entry.stamp and astuple(entry.stamp),
            "companions": [(path, stamp and astuple(stamp)) for path, stamp in entry.companions],
            "rows": entry.rows,
            "bitcode_found": entry.bitcode_found,
            "padding": entry.padding,
            "stale": entry.stale,
        }
    )


def _name_of(line: bytes) -> str | None:
    """Return the key of a line. It comes first, so that a large journal is indexed without decoding it."""
    prefix = b'{"name":"'
    if not line.startswith(prefix):
        return None
    try:
        name, _ = json.JSONDecoder().raw_decode(line.decode("ascii"), len(prefix) - 1)
    except ValueError:
        return None
    return name if isinstance(name, str) and is_name(name) else None


def _stamp(numbers: Any) -> FileStamp | None:
    return None if numbers is None else FileStamp(*numbers)
