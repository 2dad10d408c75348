"""What an extraction remembers, so that the next one reads only what changed, and an interrupted one goes on.

``.mlgo-corpus/extract.jsonl`` in the corpus: a header line (settings), then one line per object with its size and
time of change, the files it refers to, and its rows. A running extraction appends to ``extract.jsonl.new`` and
renames it at the end; after a kill both are there and the newer one wins line by line. A torn last line is ignored.
Before an object is given to a worker, a line says so: without a later one of its rows, what the worker may have written
is not trusted, and taken away by the next run that completes.
Without the folder the next extraction cannot tell what is its own, and wants ``--force`` to start over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from mlgo_corpus.corpus.folder import iter_modules_of, read_manifest, remove_module_files
from mlgo_corpus.corpus.modules import INTEGER_FIELDS, REQUIRED_FIELDS, STATUS_OK, ModuleRow
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import FileStamp, create_file
from mlgo_corpus.files.lock import open_locked
from mlgo_corpus.files.names import MANIFEST_NAME, MODULES_NAME, STATE_FOLDER, checked_name
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, open_regular
from mlgo_corpus.files.text import option_key

_JOURNAL = "extract.jsonl"
_RUNNING = "extract.jsonl.new"
_LOCK = "lock"
_INTERRUPTED = "interrupted"
SCRATCH = "tmp"


@dataclass(frozen=True, slots=True)
class Entry:
    """What reading one object gave.

    Attributes:
        name: the object's own module name, unique in the corpus: the key.
        identity: a digest of where the object is, what its command's paths are relative to, and this tool's version;
            an entry of another identity speaks of another object, or was made by other rules.
        stamp: of the object when it was read; None where there was nothing to read.
        companions: other files that were read for it (members of a thin archive, ThinLTO indexes), as paths
            relative to the object's folder, with their stamps.
        rows: its rows, in order.
        bitcode_found: bytes in its bitcode sections.
        padding: those of them that belong to no module: wrappers and alignment.
        stale: modules that the object had and no longer has, whose files may still be there.
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
        """Give the modules that the object put into the corpus."""
        return frozenset(row.module for row in self.rows if row.status == STATUS_OK)

    def is_current(self, path: str) -> bool:
        """Tell whether the object at ``path`` and all it refers to are as they were."""
        if self.stamp is None or FileStamp.of(path) != self.stamp:
            return False
        folder = os.path.dirname(path)
        return all(FileStamp.of(os.path.join(folder, name)) == stamp for name, stamp in self.companions)


class Journal:
    """The state of one corpus's extraction; open it for the length of the run, which also locks the corpus.

    Attributes:
        header: the settings of the run that is remembered.
        unfinished: objects that were given to a worker and of which nothing was recorded: a run was interrupted, the
            worker died, or the object was not there. What may lie on disk for them is not trusted.

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
        """A folder on the corpus's own file system for files that have no name yet."""
        return self._folder / SCRATCH

    def names(self) -> tuple[str, ...]:
        """Give the objects that are remembered."""
        return tuple(self._lines)

    def get(self, name: str) -> Entry | None:
        """Give what is remembered of an object."""
        line = self._lines.get(name)
        return None if line is None else _parse_entry(line, name)

    def forget(self) -> None:
        """Start from nothing."""
        self._lines.clear()
        self.unfinished.clear()
        self.header = None
        for name in (_JOURNAL, _RUNNING):
            (self._folder / name).unlink(missing_ok=True)

    def begin(self, header: Mapping[str, Any]) -> None:
        """Start a run's own record. What an interrupted run left is carried over first."""
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
        """Record that an object is about to be given to a worker; at once, for the worker may outlive us."""
        assert self._output is not None  # noqa: S101 - begin() comes first
        self._output.write(_issue_line(name))
        self._output.flush()

    def add(self, entry: Entry) -> None:
        """Append an object to the run's own record."""
        assert self._output is not None  # noqa: S101 - begin() comes first
        self._output.write(_entry_line(entry))

    def sync(self) -> None:
        """Hand what was added to the operating system, where it survives our death."""
        if self._output is not None:
            self._output.flush()

    def commit(self) -> None:
        """The run is complete: its record replaces the one before."""
        assert self._output is not None  # noqa: S101 - begin() comes first
        self._output.close()
        (self._folder / _RUNNING).replace(self._folder / _JOURNAL)

    def close(self) -> None:
        """Release the corpus; a record that was not committed stays for the next run."""
        if self._output is not None:
            with contextlib.suppress(OSError):  # a full disk was reported when it was met
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
                # What an interrupted run took away from an object is still there: only finishing removes files.
                self._lines[name] = _with_stale(self._lines.get(name), line, name) if interrupted else line


def open_journal(output: Path, header: dict[str, Any], *, force: bool) -> Journal:
    """Open the corpus's journal once it is certain that this run may write there.

    Raises:
        UsageError: something else is there, or a corpus of other inputs or options.
    """
    try:
        _refuse_others(output, force=force)
        journal = Journal(output)
    except OSError as error:
        raise UsageError(f"{output}: cannot write there: {error.strerror}") from error
    try:
        if force:
            _clear(output, journal)
        elif journal.header is not None and (difference := _difference(journal.header, header)):
            raise UsageError(
                f"{output}: was extracted {difference}; name another `output`, or add `force` to replace it"
            )
        journal.begin(header)
    except BaseException:
        journal.close()
        raise
    return journal


def _refuse_others(output: Path, *, force: bool) -> None:
    """Refuse to write where something else is."""
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output}: not a folder; name another `output`")
    ours = (output / STATE_FOLDER).is_dir()
    if not ours and not force and output.is_dir() and any(output.iterdir()):
        what = f"a corpus without {STATE_FOLDER}" if (output / MANIFEST_NAME).exists() else "not empty, and no corpus"
        raise UsageError(f"{output}: {what}; name another `output`, or add `force` to write there all the same")


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Say how the run before differed, if one cannot bring the other's corpus up to date."""
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


def _clear(output: Path, journal: Journal) -> None:
    """Take away a corpus: the files that its journal and its manifest name, and nothing else."""
    entries = [entry for name in journal.names() if (entry := journal.get(name))]
    modules = {module for entry in entries for module in (*entry.modules(), *entry.stale)}
    for name in journal.unfinished:
        modules.update(iter_modules_of(output, name))
    with contextlib.suppress(CorpusError):
        modules.update(read_manifest(output / MANIFEST_NAME)["modules"])
    for name in modules:
        with contextlib.suppress(CorpusError):
            remove_module_files(output, name)
    journal.forget()
    for name in (MANIFEST_NAME, MODULES_NAME):
        (output / name).unlink(missing_ok=True)


def _line(record: object) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _parse_entry(line: bytes, name: str) -> Entry | None:
    """Read a line; None if it is not one, or speaks of modules that are not below its object's name."""
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
    return (
        entry if all(item == name or (item.startswith(f"{name}/") and _stays_inside(item)) for item in named) else None
    )


def _row(*values: Any) -> ModuleRow:
    row = ModuleRow(*values)
    for field, value in zip(ModuleRow._fields, row, strict=True):
        wanted: Any = int if field in INTEGER_FIELDS else str
        if type(value) is not wanted and (value is not None or field in REQUIRED_FIELDS):
            raise TypeError(field)
    return row


def _with_stale(before: bytes | None, line: bytes, name: str) -> bytes:
    """Give an interrupted run's line for an object, with what the run before it had and it has not."""
    was, entry = None if before is None else _parse_entry(before, name), _parse_entry(line, name)
    if was is None or entry is None:
        return line
    stale = (was.modules() | set(was.stale) | set(entry.stale)) - entry.modules()
    return _entry_line(replace(entry, stale=tuple(sorted(stale)))) if stale else line


_ISSUED = b',"issued":true}\n'


def _issue_line(name: str) -> bytes:
    return b'{"name":' + json.dumps(name).encode() + _ISSUED


def _stays_inside(name: str) -> bool:
    try:
        checked_name(name)
    except CorpusError:
        return False
    return True


def _loads(line: bytes) -> Any:
    """Read JSON of which nothing is certain.

    Raises:
        ValueError: it is none, or nested absurdly.
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
            "stamp": _numbers(entry.stamp),
            "companions": [(path, _numbers(stamp)) for path, stamp in entry.companions],
            "rows": entry.rows,
            "bitcode_found": entry.bitcode_found,
            "padding": entry.padding,
            "stale": entry.stale,
        }
    )


def _name_of(line: bytes) -> str | None:
    """Read the key alone: it comes first, so that a large journal is not decoded to be indexed."""
    prefix = b'{"name":"'
    if not line.startswith(prefix):
        return None
    try:
        name, _ = json.JSONDecoder().raw_decode(line.decode("ascii"), len(prefix) - 1)
    except ValueError:
        return None
    return name if isinstance(name, str) and _stays_inside(name) else None


def _numbers(stamp: FileStamp | None) -> tuple[int, int] | None:
    return None if stamp is None else (stamp.size, stamp.mtime_ns)


def _stamp(numbers: Any) -> FileStamp | None:
    return None if numbers is None else FileStamp(*numbers)
