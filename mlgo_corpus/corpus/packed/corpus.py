"""A packed corpus: the folder of a corpus whose modules are rows of Parquet files, not files of their own.

::

    packed/
      corpus_description.json   the corpus's manifest, byte for byte; those of the sides of a split, too
      data/part-00000.parquet   one row per module, in the manifest's order (`packed.rows.packed_schema`)
      modules.parquet           the corpus's own table, also of what was left out, where it has one
      functions.parquet         the same; and rebuild.parquet
      links.jsonl               the same: how the build linked
      README.md                 what it is, for people and for Hugging Face ``datasets``
      corpus.json               what the files hold; written last: where it is, the packed corpus is whole

========================  ===========================================================================
column                    meaning
========================  ===========================================================================
``module``                the module's name in the corpus
``bitcode``               its bitcode; null if there is none, and then ``problem`` says why
``command``               its cc1 options; null if it has no command of its own
``command_bytes``         the file of its command where that is not ``command`` with a NUL after each option
``thinlto_index``         its ThinLTO index; null if it has none
``problem``               why a file of the module could not be packed; null if all is there
``bitcode_bytes``         bytes of bitcode
``cmd_bytes``             bytes of the command's file
``bitcode_mtime_ns``      when the files were changed, in a corpus that no digest of its own tells from others
``command_mtime_ns``      the same of the command
========================  ===========================================================================

The other columns are those of ``modules.parquet`` (`mlgo_corpus.corpus.modules`).

A row group holds a few megabytes of bitcode (`packed.rows.ROW_GROUP_BYTES`), or one module that is larger. A reader
that takes the modules in order decodes each row group once. ``corpus.json`` has the number of rows of each, so that a
module's place is known without reading the files. Nothing read here is trusted: names, numbers and sizes are checked.
"""

from __future__ import annotations

import errno
import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Final

from mlgo_corpus.corpus.folder import Corpus, Module, read_manifest
from mlgo_corpus.corpus.links import check_inside
from mlgo_corpus.corpus.packed.rows import (
    MISSING,
    PACKED_NAME,
    GroupReader,
    join_command,
    missing_file,
    read_content,
    value_of,
)
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.atomic import create_file, file_stamp
from mlgo_corpus.files.names import (
    BITCODE_SUFFIX,
    COMMAND_SUFFIX,
    LINKS_NAME,
    MANIFEST_NAME,
    MANIFEST_STEM,
    TABLE_NAMES,
    THINLTO_INDEX_SUFFIX,
    checked_name,
)
from mlgo_corpus.files.regular import MAX_LIST_BYTES, read_regular
from mlgo_corpus.files.remote import Place, RemotePath
from mlgo_corpus.files.text import os_reason, printable

PACKED_KIND: Final = "packed-corpus"
PACKED_FORMAT: Final = 1
DATA_FOLDER: Final = "data"
CARD_NAME: Final = "README.md"

_FILE_NAME = re.compile(rf"{DATA_FOLDER}/part-[0-9]{{5,}}\.parquet")
_MANIFEST_OF_SIDE = re.compile(rf"{re.escape(MANIFEST_STEM)}[^/]*\.json")


def is_packed(place: Place) -> bool:
    """Return whether this is the folder of a packed corpus, whole or damaged.

    Raises:
        CorpusError: the place behind a URL cannot be read.
    """
    try:
        said = json.loads(read_regular(place / PACKED_NAME, MAX_LIST_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("kind") == PACKED_KIND


@dataclass(frozen=True, slots=True)
class _PackedFile:
    """One file of rows: its name in the folder, its size in bytes, and the number of rows of each row group."""

    name: str
    size: int
    row_groups: tuple[int, ...]


def read_description(place: Place) -> dict[str, Any]:
    """Read and check ``corpus.json``; ``files`` become objects with ``name``, ``size`` and ``row_groups``.

    Raises:
        CorpusError: it is missing or not valid.
    """
    path = place / PACKED_NAME
    try:
        said = json.loads(read_regular(path, MAX_LIST_BYTES))
    except FileNotFoundError as error:
        raise CorpusError(f"{place}: not a packed corpus: it has no {PACKED_NAME}") from error
    except OSError as error:
        raise CorpusError(f"{path}: {os_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: not JSON: {error}") from error
    if not isinstance(said, dict) or said.get("kind") != PACKED_KIND:
        raise CorpusError(f"{path}: does not describe a packed corpus")
    if said.get("format") != PACKED_FORMAT:
        raise CorpusError(f"{path}: expected format {PACKED_FORMAT}, found {str(said.get('format'))[:20]}")
    files = said.get("files")
    try:
        if not isinstance(files, list):
            raise TypeError
        said["files"] = tuple(
            _PackedFile(_file_name(item["name"]), _count(item["bytes"]), tuple(map(_count, item["row_groups"])))
            for item in files
        )
        if not all(isinstance(said.get(key), bool) for key in ("stamped",)):
            raise TypeError
        if not isinstance(said.get("corpus_digest"), str | None):
            raise TypeError
        said["others"] = {_other_name(item["name"]): str(item["sha256"]) for item in said["others"]}
    except (TypeError, KeyError, ValueError):
        raise CorpusError(f"{path}: expected files, their rows and a digest, found something else") from None
    return said


def _file_name(name: Any) -> str:
    if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
        raise ValueError(name)
    return name


def _other_name(name: Any) -> str:
    """Return a name if `pack` writes such a file; any other, such as ``.envrc``, might do harm where it is unpacked."""
    if name in (MANIFEST_NAME, *TABLE_NAMES, LINKS_NAME):
        return str(name)
    if not isinstance(name, str) or not _MANIFEST_OF_SIDE.fullmatch(name) or not name.isprintable():
        raise ValueError(name)
    return name


def _count(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
        raise ValueError(number)
    return number


@dataclass(frozen=True, slots=True)
class _RowPlace:
    """A module's place: the file, the row group, the group's number of rows, and the module's row in it."""

    file: Place
    group: int
    rows: int
    row: int


@dataclass(frozen=True, slots=True)
class _PackedModule(Module):
    """One module of a packed corpus, which reads its row on demand; it pickles small.

    Attributes:
        root: the folder that its files would be in; for a corpus behind a URL, see ``shown``.
        place: the module's row; None if it has none.
        shown: the corpus's path or URL.
    """

    place: _RowPlace | None = None
    shown: str = ""

    @property
    def packed(self) -> bool:
        """Whether the module is a row of a packed corpus: True."""
        return True

    @property
    def location(self) -> str:
        """The corpus's absolute path, or its URL."""
        return self.shown

    def bitcode(self) -> bytes:
        """Read the bitcode.

        Raises:
            CorpusError: the module has none, or it cannot be read.
        """
        data, problem = self._values("bitcode", "problem")
        if data is None:
            raise self._lacks(self.name + BITCODE_SUFFIX, problem, problem)
        return bytes(data)

    def own_command(self) -> bytes:
        """Read the module's own command, byte for byte as it was in its file.

        Raises:
            CorpusError: the module has none, or it cannot be read.
        """
        command = self._own_command()
        if command is None:
            raise self._lacks(self.name + COMMAND_SUFFIX, *self._values("problem"))
        return command

    def thinlto_index(self) -> bytes:
        """Read the module's ThinLTO index, which may be empty.

        Raises:
            CorpusError: the module has none, or it cannot be read.
        """
        data, problem = self._values("thinlto_index", "problem")
        if data is None:
            raise self._lacks(self.name + THINLTO_INDEX_SUFFIX, problem)
        return bytes(data)

    def is_missing(self) -> bool:
        """Return True if a required file was missing when the corpus was packed, and not only unreadable."""
        try:
            self.bitcode()
            if self.has_thinlto:
                self.thinlto_index()
        except CorpusError as error:
            return isinstance(error.__cause__, FileNotFoundError) or self.place is None
        return False

    def on_disk(self, folder: Path) -> Module:
        """Write the module's files into ``folder``, under the names that they have in a corpus.

        Raises:
            CorpusError: the module has no bitcode, or its row cannot be read.
            OSError: a file cannot be written.
        """
        module = Module(folder, self.name, self.has_thinlto, self.override, linked=True)  # the folder is ours
        path = module.bitcode_path
        path.parent.mkdir(parents=True, exist_ok=True)
        files: list[tuple[Path, Any]] = [(path, self.bitcode()), (module.command_path, self._own_command())]
        if module.thinlto_index_path is not None:
            files.append((module.thinlto_index_path, self._values("thinlto_index")[0]))
        for path, data in files:
            if data is not None:
                with create_file(path) as file:
                    file.write(data)
        return module

    def _lacks(self, file: str, problem: str | None, otherwise: str | None = None) -> CorpusError:
        """Return the error for a file that is not there; the row's problem may be that of another file of the module.

        If the file was missing when the corpus was packed, the error has the same cause as that of `Module`.
        """
        said = missing_file(file)
        if problem is not None and problem.startswith(printable(said).removesuffix(MISSING)):
            otherwise = problem
        error = CorpusError(otherwise or said, self.name)
        if error.message.endswith(MISSING):
            error.__cause__ = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return error

    def _own_command(self) -> bytes | None:
        return join_command(*self._values("command", "command_bytes"))

    def _values(self, *columns: str) -> tuple[Any, ...]:
        if self.place is None:
            raise CorpusError("is not in the packed corpus", self.name)
        try:
            group = read_content(self.place.file, self.place.group, self.place.rows)
        except CorpusError as error:
            raise CorpusError(str(error), self.name) from error
        row = self.place.row
        if group["module"][row].as_py() != printable(self.name):
            raise CorpusError(f"{self.place.file}: its row has another module", self.name)
        checked_name(self.name)
        return tuple(value_of(group[column], row) for column in columns)


class PackedCorpus(Corpus):
    """A packed corpus opened for reading: a `Corpus` whose modules are rows.

    Args:
        place: the folder.
        manifest_name: the manifest to read: of all modules, or of one side of a split.

    Attributes:
        description: the content of ``corpus.json``.

    Raises:
        CorpusError: the corpus is damaged.
    """

    packed: ClassVar[bool] = True

    def __init__(self, place: Place, manifest_name: str = MANIFEST_NAME) -> None:
        self.description = read_description(place)
        if isinstance(place, Path):
            check_inside(place, *self.description["others"], *(file.name for file in self.description["files"]))
        manifest = read_manifest(place / manifest_name)
        # For a corpus behind a URL only the path's name is meaningful; nothing exists at this path.
        super().__init__(
            Path("/", place.scheme, *place.key.split("/")) if isinstance(place, RemotePath) else place, manifest
        )
        self.location = str(place)
        self.place = place
        all_names = self.names if manifest_name == MANIFEST_NAME else read_manifest(place / MANIFEST_NAME)["modules"]
        self.files: tuple[_PackedFile, ...] = self.description["files"]
        # The first row of each row group, counted over all files.
        sizes = [rows for file in self.files for rows in file.row_groups]
        self._starts = [0, *accumulate(sizes)]
        self._groups = [
            (path, number)
            for path, count in ((self.there / file.name, len(file.row_groups)) for file in self.files)
            for number in range(count)
        ]
        self._positions = {name: number for number, name in enumerate(dict.fromkeys(all_names))}
        if self._starts[-1] != len(self._positions):
            raise CorpusError(
                f"{place}: its files contradict each other: {PACKED_NAME} has {self._starts[-1]} modules, "
                f"{MANIFEST_NAME} has {len(self._positions)}"
            )
        self._shown = str(self.there)

    def on_this_machine(self) -> tuple[Path, ...]:
        """Return the folder, unless it is behind a URL."""
        return () if isinstance(self.place, RemotePath) else super().on_this_machine()

    def about(self) -> dict[str, Any]:
        """Return the content of ``corpus.json``."""
        return dict(self.description)

    def recorded_digests(self) -> dict[str, str]:
        """Return the SHA-256 of the manifests and tables that were packed, by their names."""
        return dict(self.description["others"])

    def _module(self, name: str) -> _PackedModule:
        position = self._positions.get(name)
        place = None
        if position is not None:
            group = bisect_right(self._starts, position) - 1
            file, number = self._groups[group]
            first = self._starts[group]
            place = _RowPlace(file, number, self._starts[group + 1] - first, position - first)
        override = self.global_command_override
        return _PackedModule(self.path, name, self.has_thinlto, override, place=place, shown=self._shown)

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Return the size of some modules' bitcode in bytes; 0 for a module whose bitcode is not there."""
        return {
            name: size or 0 for name, (size,) in zip(names, self.iter_values(names, ["bitcode_bytes"]), strict=True)
        }

    def iter_producers(self, names: Sequence[str]) -> Iterator[str | None]:
        """Return the producer of each of some modules; None if the bitcode named none."""
        return (producer for (producer,) in self.iter_values(names, ["producer"]))

    def own_digest(self) -> str | None:
        """Return the digest that the corpus recorded before it was packed, or None."""
        return self.description["corpus_digest"]  # type: ignore[no-any-return]  # checked when it was read

    def iter_stamps(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield a stamp of each of some modules' files: the sizes and times that they had when they were packed."""
        missing = MISSING.encode()
        columns = ["bitcode_bytes", "bitcode_mtime_ns", "cmd_bytes", "command_mtime_ns"]
        for size, mtime, command_size, command_mtime in self.iter_values(names, columns):
            if size is None or mtime is None:
                yield missing
            elif command_size is None or command_mtime is None:
                yield file_stamp(size, mtime) + missing
            else:
                yield file_stamp(size, mtime) + file_stamp(command_size, command_mtime)

    def iter_values(self, names: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of some modules; nulls for a module that is not there.

        Raises:
            CorpusError: a file is damaged.
        """
        nulls = (None,) * len(columns)
        last = -1
        values: list[tuple[Any, ...]] = []
        groups = GroupReader(columns)
        try:
            for name in names:
                position = self._positions.get(name)
                if position is None:
                    yield nulls
                    continue
                group = bisect_right(self._starts, position) - 1
                if group != last:
                    file, number = self._groups[group]
                    rows = self._starts[group + 1] - self._starts[group]
                    table = groups.read(file, number, rows)
                    last, values = group, list(zip(*(column.to_pylist() for column in table.columns), strict=True))
                yield values[position - self._starts[group]]
        finally:
            groups.close()


def command_files(module: str) -> tuple[str, str, str]:
    """Return the names of a module's files: bitcode, command and index."""
    return module + BITCODE_SUFFIX, module + COMMAND_SUFFIX, module + THINLTO_INDEX_SUFFIX
