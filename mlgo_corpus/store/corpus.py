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
      .mlgo-corpus/             what the next ``extract`` needs to know; without it, that one starts over

Modules, manifests and names may come from anybody: a name that would leave the folder is refused when it is read,
and mapped inside when it is written.

Links in it are followed where they stay in it (`mlgo_corpus.store.links`).

A corpus may also be packed (`mlgo_corpus.store.packed`): then its modules are rows, and all else is the same.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from mlgo_corpus.errors import CorpusError, MlgoCorpusError, os_reason
from mlgo_corpus.formats.bitcode import read_producer
from mlgo_corpus.formats.cmdline import decode_options, split_options
from mlgo_corpus.store.links import check_inside, check_link, may_leave, open_inside
from mlgo_corpus.store.regularfile import (
    MAX_LIST_BYTES,
    MAX_MODULE_BYTES,
    MAX_NOTE_BYTES,
    as_regular,
    read_open,
    read_regular,
)
from mlgo_corpus.store.remote import Place, RemotePath, parse_place
from mlgo_corpus.store.wholefolder import finish_moves

MANIFEST_NAME = "corpus_description.json"
MANIFEST_STEM = "corpus_description."
MODULES_NAME = "modules.parquet"
FUNCTIONS_NAME = "functions.parquet"
CERTIFICATE_NAME = "rebuild.parquet"
TABLE_NAMES = (MODULES_NAME, FUNCTIONS_NAME, CERTIFICATE_NAME)
STATE_FOLDER = ".mlgo-corpus"
REFERENCE_MARK = f"{STATE_FOLDER}/reference"

BITCODE_SUFFIX = ".bc"
COMMAND_SUFFIX = ".cmd"
THINLTO_INDEX_SUFFIX = ".thinlto.bc"
MODULE_SUFFIXES = (BITCODE_SUFFIX, COMMAND_SUFFIX, THINLTO_INDEX_SUFFIX)

# What extract_ir writes as the override of a local ThinLTO corpus, for the user to fill in.
UNSPECIFIED_OVERRIDE = ("<UNSPECIFIED>",)


@dataclass(frozen=True, slots=True)
class Module:
    """One module of a corpus. It holds paths, not bytes, so that it pickles small and reads late.

    Its files are read where no link leads out of the corpus, unless links may (``linked``); who takes a path instead
    asks `check_links` first.
    """

    root: Path
    name: str
    has_thinlto: bool = False
    override: tuple[str, ...] | None = None
    linked: bool = False

    @property
    def location(self) -> str:
        """What the corpus is called in a table's row: its absolute path, or its URL."""
        return str(self.root.absolute())

    def on_disk(self, folder: Path) -> Module:  # noqa: ARG002 - it is there already
        """Give the module with its files on disk: this one, or one whose files are made for it in ``folder``.

        Raises:
            CorpusError: they cannot be read.
            OSError: they cannot be written.
        """
        self.check_links()
        return self

    def check_links(self) -> None:
        """Check that the paths of its files do not lead out of the corpus.

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
        """Where the module's bitcode is."""
        return self._path(BITCODE_SUFFIX)

    @property
    def command_path(self) -> Path:
        """Where the module's own command is; a corpus with an override may have none."""
        return self._path(COMMAND_SUFFIX)

    @property
    def thinlto_index_path(self) -> Path | None:
        """Where the module's ThinLTO index is; None in a corpus without ThinLTO."""
        return self._path(THINLTO_INDEX_SUFFIX) if self.has_thinlto else None

    def bitcode(self) -> bytes:
        """Read the bitcode.

        Raises:
            CorpusError: the file is missing or cannot be read.
        """
        return self._read(self.bitcode_path, MAX_MODULE_BYTES)

    def command(self) -> tuple[str, ...]:
        """Give the cc1 options the module is compiled with: the corpus's override, else its own.

        Options are text in which bytes that are not UTF-8 are kept (`os.fsencode` gives them back).

        Raises:
            CorpusError: there is no override and the module has no command.
        """
        if self.override is not None:
            return self.override
        return decode_options(split_options(self.own_command()))

    def own_command(self) -> bytes:
        """Read the module's own command as it lies in its file, whether the corpus has an override or not.

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
            raise CorpusError("a corpus without ThinLTO", self.name)
        return self._read(path, MAX_MODULE_BYTES)

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
        path: the folder; of a corpus behind a URL only its name means something.
        place: the folder, or what is behind the URL.
        location: the path or the URL, to be shown.
        names: the modules' names, in the manifest's order.
        has_thinlto: whether modules have a ThinLTO index.
        global_command_override: one command for all modules instead of their own, or None.
        linked: whether links may lead out of it, as this user made it of such.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.place: Place = path
        self.location = str(path)
        self.names: tuple[str, ...] = tuple(manifest["modules"])
        self.has_thinlto: bool = manifest["has_thinlto"]
        override = manifest.get("global_command_override")
        self.global_command_override = None if override is None else tuple(override)
        self._known: frozenset[str] | None = None
        self.linked = may_leave(path / REFERENCE_MARK, path)

    @classmethod
    def open(cls, path: Path | str) -> Corpus:
        """Open a corpus made by this tool, by LLVM's mlgo-utils or by ml-compiler-opt.

        A manifest may be named instead of its folder: ``corpus/corpus_description.train.json`` is a corpus of the
        modules of one side of a split. A packed corpus may be behind a URL.

        Raises:
            CorpusError: there is no manifest, or it is not one, or the packed corpus is damaged.
            UsageError: the URL is none that is known.
        """
        from mlgo_corpus.store.packed import PackedCorpus, is_packed
        from mlgo_corpus.store.packedrows import PACKED_NAME

        place = parse_place(path)
        manifest = place / MANIFEST_NAME
        named = place.name.startswith(MANIFEST_STEM) and place.name.endswith(".json")
        if named and (isinstance(place, RemotePath) or not place.is_dir()):
            manifest, place = place, place.parent
        if isinstance(place, Path):
            check_inside(place, manifest.name, *TABLE_NAMES, PACKED_NAME)
        if is_packed(place):
            return PackedCorpus(place, manifest.name)
        if isinstance(place, RemotePath):
            place.check_bucket()
            raise CorpusError(f"{place}: not a packed corpus, which mlgo-corpus pack makes")
        finish_moves(place / MODULES_NAME)
        return cls(place, read_manifest(place / manifest.name))

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Module]:
        return (self._module(name) for name in self.names)

    def __getitem__(self, name: str) -> Module:
        if self._known is None:
            self._known = frozenset(self.names)
        if name not in self._known:
            raise KeyError(name)
        return self._module(name)

    def __repr__(self) -> str:
        return f"Corpus({self.location!r}, modules={len(self.names)})"

    def on_this_machine(self) -> tuple[Path, ...]:
        """Give the path that a worker elsewhere has to find; none of a corpus behind a URL."""
        return (self.path.absolute(),)

    def _module(self, name: str) -> Module:
        return Module(self.path, name, self.has_thinlto, self.global_command_override, self.linked)

    @property
    def shown(self) -> Path | str:
        """The corpus as a report tells of it: its path or its URL."""
        return self.place if isinstance(self.place, Path) else self.location

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Give the bytes of some modules' bitcode; 0 for one that is not there."""
        found = {}
        for name in names:
            try:
                found[name] = os.stat(self[name].bitcode_path).st_size
            except (OSError, CorpusError):
                found[name] = 0
        return found

    def iter_producers(self, names: Sequence[str]) -> Iterator[str | None]:
        """Tell which LLVM made each of some modules, as their bitcode says; None where it does not say so."""
        for name in names:
            try:
                yield read_producer(self[name].bitcode())
            except MlgoCorpusError:
                yield None

    def own_digest(self) -> str | None:
        """Give the digest of all that was extracted, as `MODULES_NAME` tells it, or None."""
        from mlgo_corpus.store.tables import read_metadata

        try:
            digest = read_metadata(self.path / MODULES_NAME).get("corpus_digest")
        except CorpusError:  # a corpus of other tools has no such table, or it is damaged
            return None
        return digest if isinstance(digest, str) else None

    def iter_stamps(self, names: Sequence[str]) -> Iterator[bytes]:
        """Tell some modules' files from other files of the same names: by their sizes and times."""
        for name in names:
            said = b""
            try:
                for path in (self[name].bitcode_path, self[name].command_path):
                    status = os.stat(path)
                    said += file_stamp(status.st_size, status.st_mtime_ns)
            except (OSError, CorpusError) as error:  # a row of the module's will tell of it
                said += os_reason(error).encode("utf-8", "backslashreplace")
            yield said


def file_stamp(size: int, mtime_ns: int) -> bytes:
    """Tell a file from another of the same name."""
    return repr((size, mtime_ns)).encode()


def read_manifest(path: Place) -> dict[str, Any]:
    """Read and check a ``corpus_description.json``; unknown keys are kept.

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
                what = "; it is a dataset, of which mlgo-corpus report tells"
        raise CorpusError(f"{folder}: not a corpus: it has no {path.name}{what}") from error
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: not JSON: {error}") from error
    if not isinstance(manifest, dict):
        raise CorpusError(f"{path}: expected a JSON object, found {type(manifest).__name__}")
    if not isinstance(manifest.get("has_thinlto"), bool):
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
    """Give a manifest byte for byte as upstream's ``json.dump(…, indent=2)`` writes it."""
    manifest: dict[str, Any] = {}
    if override is not None:
        manifest["global_command_override"] = list(override)
    manifest["has_thinlto"] = has_thinlto
    manifest["modules"] = list(modules)
    return json.dumps(manifest, indent=2).encode("ascii")


def create_file(path: Path) -> IO[bytes]:
    """Open a new file for writing. What stands in its place, a link perhaps, is taken away and not followed."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file under a temporary name beside its own, then rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with create_file(temporary) as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_module_files(root: Path, name: str) -> None:
    """Delete a module's files, and the folders that this leaves empty.

    Raises:
        CorpusError: the name leaves the corpus folder.
    """
    path = root / checked_name(name)
    folders = [folder for folder in path.parents if root in folder.parents]
    if any(folder.is_symlink() for folder in folders):  # what it leads to is not the corpus's
        return
    for suffix in MODULE_SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            break


def iter_modules_of(root: Path, name: str) -> Iterator[str]:
    """Give the modules that lie on disk for one object: its own name, and those of its members below it."""
    yield name
    below = root / checked_name(name)
    if any(folder.is_symlink() for folder in (below, *below.parents) if root in folder.parents):
        return
    for folder, _, files in os.walk(below):  # which enters no links
        for file in sorted(files):
            module = os.path.relpath(os.path.join(folder, file), root)
            for suffix in sorted(MODULE_SUFFIXES, key=len, reverse=True):
                if module.endswith(suffix):
                    yield module.removesuffix(suffix)
                    break


# Names

# A file name has at most 255 bytes; a module's ends in a suffix, and may be numbered.
_MAX_COMPONENT_BYTES = 255 - len(THINLTO_INDEX_SUFFIX) - len("~1234567")
# A path has at most 4096 bytes: this leaves room for the corpus, an archive's own name and a member's.
_MAX_NAME_BYTES = 1000
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_RESERVED_FOLDERS = frozenset({MANIFEST_NAME, MODULES_NAME, STATE_FOLDER})


def safe_module_name(text: str) -> str:
    """Map an object's path to a module name that stays inside the corpus; equal paths give equal names.

    The path is normalised as text. An absolute path loses its root, a leading ``..`` becomes ``_up``. Control
    characters and bytes that are not UTF-8 are written ``%XX``. A folder whose name would collide with a module's
    file gets a ``_``, and a component too long for a file name ends in a hash of itself.
    """
    parts: list[str] = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part == ".." and parts and parts[-1] != "_up":
            parts.pop()
        else:
            parts.append("_up" if part == ".." else part)
    if not parts:
        parts = ["module"]
    if len(text) > _MAX_NAME_BYTES // 4 and len("/".join(parts).encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES:
        parts = [f"long~{_short_digest('/'.join(parts))}", parts[-1]]
    last = len(parts) - 1
    safe = [_safe_component(part, is_folder=index < last) for index, part in enumerate(parts)]
    if len(safe) > 1 and safe[0] in _RESERVED_FOLDERS:
        safe[0] += "_"
    return "/".join(safe)


def _safe_component(part: str, *, is_folder: bool) -> str:
    if not part.isprintable():
        part = _UNPRINTABLE.sub(_percent, part)
    if part.endswith((BITCODE_SUFFIX, COMMAND_SUFFIX) if is_folder else ".thinlto"):
        part += "_"
    if len(part) > _MAX_COMPONENT_BYTES // 4 and len(part.encode()) > _MAX_COMPONENT_BYTES:
        part = part.encode()[: _MAX_COMPONENT_BYTES - 17].decode("utf-8", "ignore") + "~" + _short_digest(part)
    return part


def _short_digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _percent(match: re.Match[str]) -> str:
    # Python stands a byte that is not UTF-8 for a surrogate in this range; other surrogates come from JSON escapes.
    escaped_byte = "\udc80" <= match[0] <= "\udcff"
    encoded = match[0].encode("utf-8", "surrogateescape" if escaped_byte else "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)


def numbered_name(name: str, number: int) -> str:
    """Give the name that the ``number``-th object called ``name`` gets: ``a/b.o`` becomes ``a/b~2.o``."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    if not stem:  # a name that begins with a dot
        stem, dot, suffix = base, "", ""
    return f"{folder}{slash}{stem}~{number}{dot}{suffix}"


class NameRegistry:
    """Hands out each module name once, and never one that is a folder of another.

    Names are given in the order they are asked for, so that the same inputs always get the same names.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._folders: set[str] = set()
        self._next: dict[str, int] = {}
        self._moved: dict[str, str] = {}

    def claim(self, wanted: str) -> str:
        """Give ``wanted``, or a numbered form of it that is free."""
        while folder := next((folder for folder in _folders(wanted) if folder in self._names), None):
            if folder not in self._moved:
                self._moved[folder] = self._numbered(folder)
            wanted = self._moved[folder] + wanted[len(folder) :]
        name = self._numbered(wanted) if wanted in self._names or wanted in self._folders else wanted
        self._names.add(name)
        self._folders.update(_folders(name))
        return name

    def _numbered(self, name: str) -> str:
        while True:
            number = self._next.get(name, 2)
            self._next[name] = number + 1
            candidate = numbered_name(name, number)
            if candidate not in self._names and candidate not in self._folders:
                return candidate


def _folders(name: str) -> Iterable[str]:
    at = name.find("/")
    while at >= 0:
        yield name[:at]
        at = name.find("/", at + 1)


def checked_name(name: str) -> str:
    """Refuse a name from a manifest that would leave the corpus.

    Raises:
        CorpusError: it is empty, absolute, holds ``..``, a NUL byte or half a character.
    """
    if not name or name.startswith("/") or "\0" in name or ".." in name.split("/"):
        raise CorpusError("this module name leaves the corpus folder", name)
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise CorpusError("this module name is not one that a file can have", name) from error
    return name
