"""What an extraction remembers, so that the next one reads only what changed, and an interrupted one goes on.

``.mlgo-corpus/extract.jsonl`` in the corpus: a header line (settings), then one line per object with its size and
time of change, the files it refers to, and its rows. A running extraction appends to ``extract.jsonl.new`` and
renames it at the end; after a kill both are there and the newer one wins line by line. A torn last line is ignored.
Without the folder the next extraction cannot tell what is its own, and wants ``--force`` to start over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.store.corpus import (
    MANIFEST_NAME,
    MODULES_NAME,
    STATE_FOLDER,
    read_manifest,
    remove_module_files,
)
from mlgo_corpus.store.moduletable import ModuleRow

_JOURNAL = "extract.jsonl"
_RUNNING = "extract.jsonl.new"
_LOCK = "lock"
SCRATCH = "tmp"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file's identity at the time it was read; equal stamps mean an unchanged file."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> FileStamp | None:
        """Stamp a file; None if it cannot be seen."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Entry:
    """What reading one object gave.

    Attributes:
        name: the object's own module name, unique in the corpus: the key.
        stamp: of the object when it was read; None where there was nothing to read.
        companions: other files that were read for it (members of a thin archive, ThinLTO indexes), as paths
            relative to the object's folder, with their stamps.
        rows: its rows, in order.
        bitcode_found: bytes in its bitcode sections.
        padding: those of them that belong to no module: wrappers and alignment.
    """

    name: str
    stamp: FileStamp | None
    companions: tuple[tuple[str, FileStamp | None], ...]
    rows: tuple[ModuleRow, ...]
    bitcode_found: int
    padding: int

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
        is_current: whether that run was this version's, so that it would give the same again.

    Raises:
        UsageError: another extraction holds the corpus.
    """

    def __init__(self, corpus: Path) -> None:
        self._folder = corpus / STATE_FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self._folder / _LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise UsageError(f"{corpus}: another mlgo-corpus is writing to this corpus; wait for it") from error
        self._lines: dict[str, bytes] = {}
        self.header: dict[str, Any] | None = None
        self.is_current = False
        for name in (_JOURNAL, _RUNNING):
            self._load(self._folder / name)
        self._output: IO[bytes] | None = None

    @property
    def scratch(self) -> Path:
        """A folder on the corpus's own file system for files that have no name yet."""
        return self._folder / SCRATCH

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def names(self) -> tuple[str, ...]:
        """Give the objects that are remembered."""
        return tuple(self._lines)

    def get(self, name: str) -> Entry | None:
        """Give what is remembered of an object."""
        line = self._lines.get(name)
        if line is None:
            return None
        try:
            record = json.loads(line)
            return Entry(
                name=record["name"],
                stamp=_stamp(record["stamp"]),
                companions=tuple((path, _stamp(stamp)) for path, stamp in record["companions"]),
                rows=tuple(ModuleRow(*row) for row in record["rows"]),
                bitcode_found=record["bitcode_found"],
                padding=record["padding"],
            )
        except (ValueError, KeyError, TypeError):
            return None

    def forget(self) -> None:
        """Start from nothing."""
        self._lines.clear()
        self.header = None
        for name in (_JOURNAL, _RUNNING):
            (self._folder / name).unlink(missing_ok=True)

    def begin(self, header: Mapping[str, Any]) -> None:
        """Start a run's own record. What an interrupted run left is carried over first."""
        running = self._folder / _RUNNING
        if running.exists():
            temporary = running.with_suffix(".merged")
            with temporary.open("wb") as output:
                output.write(_line(header))
                output.writelines(self._lines.values())
            temporary.replace(self._folder / _JOURNAL)
        self._output = running.open("wb")
        self._output.write(_line(header))

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
        if not path.exists():
            return
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                if not line.endswith(b"\n"):
                    break
                if number == 0:
                    with contextlib.suppress(ValueError):
                        self.header = json.loads(line)
                    continue
                name = _name_of(line)
                if name is not None:
                    self._lines[name] = line


def open_journal(output: Path, header: dict[str, Any], *, force: bool) -> Journal:
    """Open the corpus's journal once it is certain that this run may write there.

    Raises:
        UsageError: something else is there, or a corpus of other inputs or options.
    """
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output}: not a folder; name another --output")
    ours = (output / STATE_FOLDER).is_dir()
    if not ours and not force and output.is_dir() and any(output.iterdir()):
        what = "a corpus made by another tool" if (output / MANIFEST_NAME).exists() else "not empty"
        raise UsageError(f"{output}: {what}; name another --output, or add --force to write there all the same")
    try:
        journal = Journal(output)
    except OSError as error:
        raise UsageError(f"{output}: cannot write there: {error.strerror}") from error
    try:
        if force:
            _clear(output, journal)
        elif journal.header is not None and (difference := _difference(journal.header, header)):
            raise UsageError(
                f"{output}: extracted before with {difference}; name another --output, or add --force to replace it"
            )
        journal.is_current = journal.header is not None and journal.header.get("version") == header["version"]
        journal.begin(header)
    except BaseException:
        journal.close()
        raise
    return journal


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Say what sets two runs apart, so that one cannot bring the other's corpus up to date."""
    if before.get("inputs") != now["inputs"]:
        return "other inputs"
    options = json.loads(json.dumps(now["options"]))
    for name, value in before.get("options", {}).items():
        if options.get(name) != value:
            return f"another {name.replace('_', '-')} ({json.dumps(value)}, now {json.dumps(options.get(name))})"
    return None


def _clear(output: Path, journal: Journal) -> None:
    """Take away a corpus: the files that its journal and its manifest name, and nothing else."""
    modules = {row.module for name in journal.names() if (entry := journal.get(name)) for row in entry.rows}
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


def _entry_line(entry: Entry) -> bytes:
    return _line(
        {
            "name": entry.name,
            "stamp": _numbers(entry.stamp),
            "companions": [(path, _numbers(stamp)) for path, stamp in entry.companions],
            "rows": entry.rows,
            "bitcode_found": entry.bitcode_found,
            "padding": entry.padding,
        }
    )


def _name_of(line: bytes) -> str | None:
    """Read the key alone: it comes first, so that a large journal is not decoded to be indexed."""
    prefix = b'{"name":'
    if not line.startswith(prefix):
        return None
    try:
        name, _ = json.JSONDecoder().raw_decode(line.decode("ascii"), len(prefix))
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def _numbers(stamp: FileStamp | None) -> tuple[int, int] | None:
    return None if stamp is None else (stamp.size, stamp.mtime_ns)


def _stamp(numbers: Any) -> FileStamp | None:
    return None if numbers is None else FileStamp(*numbers)
