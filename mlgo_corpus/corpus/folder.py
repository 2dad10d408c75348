"""A corpus on disk: its modules, its manifest, and every path inside it.

::

    corpus/
      corpus_description.json   the manifest, exactly as LLVM's mlgo-utils and ml-compiler-opt write and read it
      lua/lvm.o.bc              a module's bitcode; its name is ``lua/lvm.o``
      lua/lvm.o.cmd             its cc1 options, separated by NUL
      lua/lvm.o.thinlto.bc      its ThinLTO index, in a ThinLTO corpus
      modules.parquet           one row per input object or member, also for those left out
      functions.parquet         one row per function, where that was asked for
      rebuild.parquet           what compiling every module again gave, where that was asked for
      links.jsonl               how the build linked, if ``build`` made the corpus
      compile_commands.json     the same build's commands
      .mlgo-corpus/             what the next ``extract`` needs to know; without it, that one starts over

Modules, manifests and names may come from anybody: a name that would leave the folder is refused when it is read,
and mapped inside when it is written.

Links are followed if they stay in the corpus (`mlgo_corpus.corpus.links`).

A corpus may also be packed (`mlgo_corpus.corpus.packed.corpus`): then its modules are rows, and all else is the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus.corpus.links import check_link, may_leave, open_inside
from mlgo_corpus.errors import CorpusError, MlgoCorpusError
from mlgo_corpus.files.atomic import file_stamp, write_atomically
from mlgo_corpus.files.folder import walk
from mlgo_corpus.files.names import (
    BITCODE_SUFFIX,
    COMMAND_SUFFIX,
    MODULE_SUFFIXES,
    MODULES_NAME,
    STATE_FOLDER,
    THINLTO_INDEX_SUFFIX,
    checked_name,
)
from mlgo_corpus.files.regular import (
    MAX_LIST_BYTES,
    MAX_MODULE_BYTES,
    MAX_NOTE_BYTES,
    as_regular,
    read_open,
    read_regular,
)
from mlgo_corpus.files.remote import Place
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.bitcode.headers import read_producer
from mlgo_corpus.formats.commands.embedded import decode_options, split_options

REFERENCE_MARK = f"{STATE_FOLDER}/reference"


# The override that extract_ir writes for a local ThinLTO corpus; the user has to fill it in.
UNSPECIFIED_OVERRIDE = ("<UNSPECIFIED>",)


@dataclass(frozen=True, slots=True)
class Module:
    """One module of a corpus. It holds paths, not bytes, so that it pickles small and reads late.

    A file is not read if a link leads out of the corpus, unless links may (``linked``). Call `check_links` before using
    a path instead.
    """

    root: Path
    name: str
    has_thinlto: bool = False
    override: tuple[str, ...] | None = None
    linked: bool = False

    @property
    def packed(self) -> bool:
        """Whether the module is a row of a packed corpus, and has no files."""
        return False

    @property
    def location(self) -> str:
        """The corpus's name in a table's row: its absolute path, or its URL."""
        return str(self.root.absolute())

    def on_disk(self, folder: Path) -> Module:  # noqa: ARG002 - it is there already
        """Return the module with its files on disk: itself, or one whose files are written into ``folder``.

        Raises:
            CorpusError: the files cannot be read.
            OSError: the files cannot be written.
        """
        self.check_links()
        return self

    def check_links(self) -> None:
        """Check that the module's paths do not lead out of the corpus.

        Raises:
            CorpusError: one does.
        """
        for suffix in () if self.linked else MODULE_SUFFIXES:
            path = self._path(suffix)
            try:
                check_link(str(self.root), str(path))
            except OSError as error:
                raise CorpusError(f"cannot read {path.name}: {error.strerror}", self.name) from error

    @property
    def bitcode_path(self) -> Path:
        """The path of the module's bitcode."""
        return self._path(BITCODE_SUFFIX)

    @property
    def command_path(self) -> Path:
        """The path of the module's own command; in a corpus with an override the file may not exist."""
        return self._path(COMMAND_SUFFIX)

    @property
    def thinlto_index_path(self) -> Path | None:
        """The path of the module's ThinLTO index; None in a corpus without ThinLTO."""
        return self._path(THINLTO_INDEX_SUFFIX) if self.has_thinlto else None

    def bitcode(self) -> bytes:
        """Read the bitcode.

        Raises:
            CorpusError: the file is missing or cannot be read.
        """
        return self._read(self.bitcode_path, MAX_MODULE_BYTES)

    def command(self) -> tuple[str, ...]:
        """Return the options the module is compiled with: the corpus's override, else its own, which are cc1's.

        The override may be a line for clang's driver, see `mlgo_corpus.formats.commands.driver`.

        Options are text in which bytes that are not UTF-8 are kept (`os.fsencode` restores them).

        Raises:
            CorpusError: there is no override and the module has no command.
        """
        if self.override is not None:
            return self.override
        return decode_options(split_options(self.own_command()))

    def own_command(self) -> bytes:
        """Read the module's own command byte for byte, whether the corpus has an override or not.

        Raises:
            CorpusError: the file is missing or cannot be read.
        """
        return self._read(self.command_path, MAX_NOTE_BYTES)

    def thinlto_index(self) -> bytes:
        """Read the module's ThinLTO index, which may be empty.

        Raises:
            CorpusError: the file is missing or cannot be read, or the corpus is one without ThinLTO.
        """
        path = self.thinlto_index_path
        if path is None:
            raise CorpusError("the corpus is one without ThinLTO", self.name)
        return self._read(path, MAX_MODULE_BYTES)

    def is_missing(self) -> bool:
        """Return True if a file that the module must have is not there, and False if it only cannot be read."""
        paths = (self.bitcode_path, self.thinlto_index_path)
        return not all(path is None or os.path.exists(path) for path in paths)

    def _read(self, path: Path, most: int) -> bytes:
        try:
            with as_regular(open_inside(str(self.root), str(path), linked=self.linked), path) as file:
                return read_open(file, most)
        except OSError as error:
            raise CorpusError(f"cannot read {path.name}: {error.strerror}", self.name) from error

    def _path(self, suffix: str) -> Path:
        return self.root / (checked_name(self.name) + suffix)


class Corpus:
    """A corpus folder opened for reading: the manifest's settings, and its modules in order.

    Attributes:
        path: the folder, absolute; for a corpus behind a URL only its name is meaningful.
        place: the folder as it was named, or the place behind the URL.
        location: the path or the URL, to be shown.
        names: the modules' names, in the manifest's order.
        has_thinlto: whether modules have a ThinLTO index.
        global_command_override: one command for all modules instead of their own, or None.
        linked: whether links may lead out of the corpus, because this user made it of such links.
        packed: whether its modules are rows, not files; nothing is written into a packed corpus.
    """

    # Set by `mlgo_corpus.corpus.open`, which knows all kinds of corpora.
    open: ClassVar[Callable[[Path | str], Corpus]]
    packed: ClassVar[bool] = False

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path.absolute()  # modules are read late, by then perhaps from another working directory
        self.place: Place = path
        self.location = str(path)
        self.names: tuple[str, ...] = tuple(manifest["modules"])
        self.has_thinlto: bool = manifest["has_thinlto"]
        override = manifest.get("global_command_override")
        self.global_command_override = None if override is None else tuple(override)
        self._known: frozenset[str] | None = None
        self.linked = may_leave(path / REFERENCE_MARK, path)

    @property
    def there(self) -> Place:
        """The place that its files are read from, whatever the working directory is by then."""
        return self.path if isinstance(self.place, Path) else self.place

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Module]:
        return (self._module(name) for name in self.names)

    def __contains__(self, item: object) -> bool:
        """Return True for a module of the corpus, and for the name of one."""
        if self._known is None:
            self._known = frozenset(self.names)
        return (item.name if isinstance(item, Module) else item) in self._known

    def __getitem__(self, item: Module | str) -> Module:
        """Return the module of a name; a module of the corpus is itself one."""
        name = item.name if isinstance(item, Module) else item
        if name not in self:
            raise KeyError(name)
        return self._module(name)

    def modules(self, names: Iterable[str]) -> Iterator[Module]:
        """Yield modules by names that are the corpus's, without looking whether they are."""
        return map(self._module, names)

    def __repr__(self) -> str:
        return f"Corpus({self.location!r}, modules={len(self.names)})"

    def on_this_machine(self) -> tuple[Path, ...]:
        """Return the paths that a worker on another machine must find; none for a corpus behind a URL."""
        return (self.path,)

    def _module(self, name: str) -> Module:
        return Module(self.path, name, self.has_thinlto, self.global_command_override, self.linked)

    @property
    def name(self) -> str:
        """The name of the corpus's folder."""
        return os.path.basename(os.path.normpath(self.path))

    @property
    def shown(self) -> Path | str:
        """The corpus's path or URL, as a report shows it."""
        return self.place if isinstance(self.place, Path) else self.location

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Return the size of some modules' bitcode in bytes; 0 for a module whose bitcode is not there."""
        found = {}
        for name in names:
            try:
                found[name] = os.stat(self[name].bitcode_path).st_size
            except (OSError, CorpusError):
                found[name] = 0
        return found

    def iter_producers(self, names: Sequence[str]) -> Iterator[str | None]:
        """Yield the producer of each of some modules, from their bitcode; None if it names none."""
        for name in names:
            try:
                yield read_producer(self[name].bitcode())
            except MlgoCorpusError:
                yield None

    def iter_values(self, names: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield columns of some modules' rows; nulls if there are no rows, as in a folder.

        Raises:
            CorpusError: a file of rows is damaged.
        """
        return repeat((None,) * len(columns), len(names))

    def about(self) -> dict[str, Any]:
        """Return the corpus's metadata: how it was made; empty if it has none."""
        from mlgo_corpus.files.tables import read_metadata

        try:
            return read_metadata(self.path / MODULES_NAME)
        except CorpusError:  # a corpus of other tools has no such table, or it is damaged
            return {}

    def recorded_digests(self) -> dict[str, str]:
        """Return the SHA-256 of manifests and tables by their names, if the corpus records them."""
        return {}

    def own_digest(self) -> str | None:
        """Return the digest of all that was extracted, from the metadata of `MODULES_NAME`, or None."""
        digest = self.about().get("corpus_digest")
        return digest if isinstance(digest, str) else None

    def iter_stamps(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield a stamp of each of some modules' files, which tells them from other files: their sizes and times."""
        for name in names:
            said = b""
            try:
                for path in (self[name].bitcode_path, self[name].command_path):
                    status = os.stat(path)
                    said += file_stamp(status.st_size, status.st_mtime_ns)
            except (OSError, CorpusError) as error:  # the module's row will report it
                said += os_reason(error).encode("utf-8", "backslashreplace")
            yield said


def read_manifest(path: Place) -> dict[str, Any]:
    """Read and check a ``corpus_description.json``; unknown keys are kept.

    One without ``has_thinlto``, which mlgo-utils combines too, is of modules without ThinLTO indexes.

    Raises:
        CorpusError: it is missing, not JSON, or a key has the wrong type.
    """
    try:
        manifest = json.loads(read_regular(path, MAX_LIST_BYTES))
    except FileNotFoundError as error:
        folder = path.parent
        what = ""
        if isinstance(folder, Path):
            if not folder.exists():
                raise CorpusError(f"{folder}: not a corpus: there is no such folder") from error
            if (folder / "dataset.json").exists():
                what = "; it is a dataset, which mlgo-corpus report describes"
        raise CorpusError(f"{folder}: not a corpus: it has no {path.name}{what}") from error
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: not JSON: {error}") from error
    if not isinstance(manifest, dict):
        raise CorpusError(f"{path}: expected a JSON object, found {type(manifest).__name__}")
    if not isinstance(manifest.setdefault("has_thinlto", False), bool):
        raise CorpusError(f"{path}: expected true or false under 'has_thinlto'")
    for key, needed in (("modules", True), ("global_command_override", False)):
        value = manifest.get(key)
        if value is None and not needed:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise CorpusError(f"{path}: expected a list of strings under {key!r}")
    return manifest


def write_manifest(path: Path, modules: Sequence[str], *, has_thinlto: bool, override: Sequence[str] | None) -> None:
    """Write a manifest, whole or not at all; see `manifest_bytes`."""
    write_atomically(path, manifest_bytes(modules, has_thinlto=has_thinlto, override=override))


def manifest_bytes(modules: Sequence[str], *, has_thinlto: bool, override: Sequence[str] | None) -> bytes:
    """Return a manifest byte for byte as upstream's ``json.dump(…, indent=2)`` writes it."""
    manifest: dict[str, Any] = {}
    if override is not None:
        manifest["global_command_override"] = list(override)
    manifest["has_thinlto"] = has_thinlto
    manifest["modules"] = list(modules)
    return json.dumps(manifest, indent=2).encode("ascii")


def remove_module_files(root: Path, name: str) -> None:
    """Delete a module's files, and the folders that this leaves empty.

    Raises:
        CorpusError: the name leaves the corpus folder.
    """
    path = root / checked_name(name)
    folders = [folder for folder in path.parents if root in folder.parents]
    if any(folder.is_symlink() for folder in folders):  # the files behind a link are not the corpus's
        return
    for suffix in MODULE_SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            break


def iter_modules_of(root: Path, name: str) -> Iterator[str]:
    """Yield the modules on disk of one object: its own name, and those of its members below it."""
    yield name
    below = root / checked_name(name)
    if any(folder.is_symlink() for folder in (below, *below.parents) if root in folder.parents):
        return
    for folder, _, files in walk(below):  # links are not entered
        for file in sorted(files):
            module = os.path.relpath(os.path.join(folder, file), root)
            for suffix in sorted(MODULE_SUFFIXES, key=len, reverse=True):
                if module.endswith(suffix):
                    yield module.removesuffix(suffix)
                    break
