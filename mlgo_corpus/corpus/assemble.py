"""Assemble a corpus of other corpora's modules: build it beside its place, and move it there when it is complete.

What was there before is removed last, and only if it is a corpus; see `mlgo_corpus.files.folder`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NoReturn

from mlgo_corpus import __version__
from mlgo_corpus.corpus.folder import REFERENCE_MARK, Corpus, Module, write_manifest
from mlgo_corpus.corpus.links import let_leave
from mlgo_corpus.corpus.modules import STATUS_FAILED, ModuleRow, ModuleTableWriter
from mlgo_corpus.corpus.products import LinkRecord, links_among, write_links
from mlgo_corpus.corpus.scan import reason_without
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import create_file, writing
from mlgo_corpus.files.folder import find_stranger, recover, whole_folder
from mlgo_corpus.files.names import (
    BITCODE_SUFFIX,
    COMMAND_SUFFIX,
    LINKS_NAME,
    MANIFEST_NAME,
    MANIFEST_STEM,
    MODULE_SUFFIXES,
    MODULES_NAME,
    STATE_FOLDER,
    TABLE_NAMES,
    THINLTO_INDEX_SUFFIX,
    checked_name,
)
from mlgo_corpus.files.regular import open_regular
from mlgo_corpus.files.remote import RemotePath, parse_place
from mlgo_corpus.files.tables import read_metadata
from mlgo_corpus.files.text import os_reason, printable

# Errors of a file system that has no hard links, is another one, or allows no more of them.
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})


class Placing(StrEnum):
    """How a module's files come into a new corpus.

    Attributes:
        LINK: hard links, which take no room; copies where the file system has none, or is another one.
        COPY: copies.
        REFERENCE: symbolic links, to each corpus's folder or to each file: the originals must stay where they are.

    The modules of a packed corpus have no files: their files are always written, and cannot be referred to.
    """

    LINK = "link"
    COPY = "copy"
    REFERENCE = "reference"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UsageError(f"expected one of {', '.join(cls)}", option="placing", value=value)


class NewCorpus:
    """A corpus under construction; use `new_corpus`.

    Attributes:
        path: the folder in which it is built.
        output: the folder where it will be.
        modules: its modules' names so far.
        failed: modules whose files could not be read, each with the reason.
        copied: the number of files that were copied although links were requested.
    """

    def __init__(self, path: Path, output: Path, placing: Placing) -> None:
        self.path = path
        self.output = output
        self.modules: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.copied = 0
        self._placing = placing
        self._replaces = output.exists()
        # The whole folder is temporary, and a separate name for the unfinished table could be that of a corpus.
        self._table = ModuleTableWriter(path / MODULES_NAME, path / MODULES_NAME)
        self._digest = sha256()
        self._links: dict[str, LinkRecord] | None = None

    def refer(self, name: str, folder: Path) -> None:
        """Make all modules of another corpus's folder available below ``name``."""
        link = self.path / checked_name(name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder.resolve(), target_is_directory=True)

    def add(self, row: ModuleRow, name: str, module: Module, *, referred: bool = False) -> ModuleRow:
        """Add a module under a name, and return its row.

        If the module's files cannot be read, the row says so.

        Args:
            row: the module's row; its name is replaced.
            name: the module's name here.
            module: the module, with the paths of its files.
            referred: whether `refer` made the files available below this name; then they are only checked.

        Raises:
            OSError: the corpus cannot be written.
        """
        row = row._replace(module=printable(name))
        try:
            self._place(module, name, referred=referred)
        except CorpusError as error:
            self.failed.append((row.module, printable(error.message)))
            reason, detail = reason_without(module), printable(error.message)
            return self.add_row(row._replace(status=STATUS_FAILED, reason=str(reason), detail=detail), name)
        self.modules.append(name)
        self._digest.update(f"{row.module}\0{row.bitcode_sha256}\0{row.cmd_sha256}\0".encode())
        self._table.append(row)
        return row

    def add_row(self, row: ModuleRow, name: str) -> ModuleRow:
        """Add the row of something left out of the corpus that would have this name, and return it."""
        row = row._replace(module=printable(name))
        self._table.append(row)
        return row

    def take_links(
        self,
        records: Sequence[LinkRecord] | None,
        folder: str = "",
        same: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take over another corpus's links, of those of its modules that are here, with ``folder`` before each name.

        ``same`` says of modules that are not here which one here is the same.
        """
        if records is not None:
            names = frozenset(map(printable, self.modules))
            self._links = (self._links or {}) | {one.name: one for one in links_among(records, folder, names, same)}

    def finish(self, *, has_thinlto: bool, override: Sequence[str] | None, about: Mapping[str, Any]) -> None:
        """Write the table and the manifest; ``about`` goes into the table's metadata: what it was made from."""
        said = {**about, "failed": len(self.failed), "corpus_digest": self._digest.hexdigest()}
        if self._placing is Placing.REFERENCE:
            let_leave(self.path / REFERENCE_MARK, self.output)
        if self._links is not None:
            write_links(self.path / LINKS_NAME, self._links.values())
        self._table.commit({"tool": "mlgo-corpus", "version": __version__, **said})
        write_manifest(self.path / MANIFEST_NAME, self.modules, has_thinlto=has_thinlto, override=override)

    def abandon(self) -> None:
        """Remove the unfinished table."""
        self._table.abandon()

    def _place(self, module: Module, name: str, *, referred: bool) -> None:
        """Place a module's files, all or none; its bitcode is required, and its index in a ThinLTO corpus."""
        target = self.path / checked_name(name)
        if module.packed:
            self._write(module, target)
            return
        module.check_links()
        placed: list[Path] = []
        try:
            for path, suffix in (
                (module.bitcode_path, BITCODE_SUFFIX),
                (module.command_path, COMMAND_SUFFIX),
                (module.thinlto_index_path, THINLTO_INDEX_SUFFIX),
            ):
                if path is None:
                    continue
                if not _is_file(path):
                    if suffix == COMMAND_SUFFIX:  # modules without one are ordinary
                        continue
                    raise CorpusError(f"cannot read {path.name}: {_why_no_file(path)}", name)
                if self._replaces and self._placing is Placing.REFERENCE and path.resolve().is_relative_to(self.output):
                    raise UsageError(f"{self.output}: {path} is in it, and would be gone; `link` or `copy` keeps it")
                if not referred:
                    self._place_file(path, target.with_name(target.name + suffix))
                    placed.append(target.with_name(target.name + suffix))
        except CorpusError:
            for item in placed:
                item.unlink()
            raise

    def _write(self, module: Module, target: Path) -> None:
        """Write the files of a packed module, all or none."""
        contents = {BITCODE_SUFFIX: module.bitcode()}
        try:
            contents[COMMAND_SUFFIX] = module.own_command()
        except CorpusError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # modules without one are ordinary
                raise
        if module.has_thinlto:
            contents[THINLTO_INDEX_SUFFIX] = module.thinlto_index()
        placed: list[Path] = []
        try:
            for suffix, data in contents.items():
                path = target.with_name(target.name + suffix)
                with _made_in_place(path), create_file(path) as file:
                    placed.append(path)
                    file.write(data)
        except CorpusError:
            for item in placed:
                item.unlink()
            raise

    def _place_file(self, path: Path, target: Path) -> None:
        with _made_in_place(target):
            if self._placing is Placing.REFERENCE:
                target.symlink_to(path.resolve())
            elif self._placing is Placing.COPY or not self._link(path, target):
                self._copy(path, target)

    def _link(self, path: Path, target: Path) -> bool:
        """Make a hard link, to the target of a symbolic link; return whether that is possible."""
        try:
            os.link(path.resolve() if path.is_symlink() else path, target)
        except FileNotFoundError as error:
            raise CorpusError(f"cannot read {path.name}: {os_reason(error)}") from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        return True

    def _copy(self, path: Path, target: Path) -> None:
        try:
            source = open_regular(path)
        except OSError as error:
            raise CorpusError(f"cannot read {path.name}: {os_reason(error)}") from error
        try:
            with source, create_file(target) as file:
                while chunk := _read(source, path.name):
                    file.write(chunk)
        except CorpusError:
            target.unlink()
            raise
        self.copied += self._placing is Placing.LINK


@contextmanager
def _made_in_place(target: Path) -> Iterator[None]:
    """Make a file's folder, so that the block can make the file.

    Raises:
        CorpusError: the file cannot be made.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            raise CorpusError(f"{target.name} is a file of another module")
        yield
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise CorpusError("a file is in the place of its folder") from error
        if error.errno == errno.ENAMETOOLONG:
            raise CorpusError(f"cannot make {target.name}: {os_reason(error)}") from error
        raise


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _why_no_file(path: Path) -> str:
    try:
        path.stat()
    except OSError as error:
        return os_reason(error)
    return "not a file"


def _read(source: IO[bytes], name: str) -> bytes:
    try:
        return source.read(1 << 20)
    except OSError as error:
        raise CorpusError(f"cannot read {name}: {os_reason(error)}") from error


@contextmanager
def new_corpus(output: Path, placing: Placing, *, request: str, force: bool) -> Iterator[NewCorpus]:
    """Make a corpus in the block, which must call `NewCorpus.finish` before it ends.

    With the ``request`` and ``force`` that `is_whole` was called with, it is called again when no other process can
    make one in the same place. What is there is replaced.

    Raises:
        UsageError: it cannot be made there, or another process makes it at the same time, or has just made it.
        MlgoCorpusError: it cannot be written.
    """

    def may_replace() -> bool:
        if is_whole(output, request, force=force):
            raise UsageError(f"{output}: another mlgo-corpus has just made it")
        return True

    with writing(output), whole_folder(output, replace=may_replace) as folder:
        made = NewCorpus(folder, output.resolve(), placing)
        try:
            yield made
        except BaseException:
            made.abandon()
            raise


def digest_of_request(*parts: object) -> str:
    """Return a digest that tells one request from any other, by its parts' representations."""
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


def is_whole(output: Path, request: str, *, force: bool) -> bool:
    """Return whether the same request has made a corpus there already; replacing anything else needs ``force``.

    A corpus that lacks modules because their files could not be read is not whole, and is made again. What a killed
    run left in the way is removed.

    Raises:
        UsageError: something else is there.
    """
    recover(output)
    if not output.exists() and not output.is_symlink():
        return False
    if not output.is_dir():
        found = "a file" if output.exists() else "a link to nothing"
        raise UsageError(f"{output}: expected a folder, found {found}")
    try:
        if not (output / MANIFEST_NAME).is_file():
            if any(output.iterdir()):
                raise UsageError(f"{output}: is not a corpus, and not empty; name another folder")
            return False
    except OSError as error:
        raise UsageError(f"{error.filename or output}: {os_reason(error)}") from error
    with suppress(CorpusError):
        said = read_metadata(output / MODULES_NAME)
        if said.get("request") == request:
            return not force and not said.get("failed")
    check_replaceable(output, force=force)
    return False


def check_replaceable(output: Path, *, force: bool) -> None:
    """Check that the corpus in a folder may be replaced by another: with ``force``, and if nothing else is lost.

    Raises:
        UsageError: it may not.
    """
    if (output / STATE_FOLDER / "lock").exists():
        raise UsageError(f"{output}: is a corpus that extract keeps up to date; name another folder")
    if not force:
        raise UsageError(f"{output}: a corpus of other inputs or options is there; `force` replaces it")
    stranger = find_stranger(output, _FilesOfACorpus(output), below=frozenset({STATE_FOLDER}))
    if stranger is not None:
        raise UsageError(f"{output}: {stranger} is not part of the corpus, and would be lost; name another folder")


class _FilesOfACorpus:
    """The paths in a folder that belong to a corpus, judged by name, and links, which hold no data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, path: object) -> bool:
        name = str(path)
        if name.endswith(MODULE_SUFFIXES) or name in (*TABLE_NAMES, LINKS_NAME):
            return True
        is_manifest = "/" not in name and name.startswith(MANIFEST_STEM) and name.endswith(".json")
        return is_manifest or (self._folder / name).is_symlink()


def local_output(output: Path | str) -> Path:
    """Return the folder of a new corpus.

    Raises:
        UsageError: the place is behind a URL.
    """
    place = parse_place(output)
    if isinstance(place, RemotePath):
        raise UsageError(f"{place}: a corpus of many files is not made behind a URL; name a folder")
    return place


def check_inputs(output: Path, corpora: Iterable[Corpus], placing: Placing) -> None:
    """Check that an output passes `check_apart`, and that no packed corpus is to be referred to.

    Raises:
        UsageError: the output does not, or one is.
    """
    opened = list(corpora)
    check_apart(output, opened)
    for corpus in opened:
        if placing is Placing.REFERENCE and corpus.packed:
            raise UsageError(f"{corpus.location}: is packed, with no files to refer to; `copy` or `link` writes them")


def check_apart(output: Path, inputs: Iterable[Corpus | Path]) -> None:
    """Check that an output is not one of the inputs, nor in one, nor around one; inputs behind a URL never overlap.

    Raises:
        UsageError: it is.
    """
    for item in inputs:
        path = item.place if isinstance(item, Corpus) else item
        if isinstance(path, RemotePath):
            continue
        try:
            place, source = output.resolve(), path.resolve()
        except (OSError, RuntimeError) as error:
            raise UsageError(os_reason(error), option="output", value=output) from error
        if place == source:
            raise UsageError("is the input itself; name another folder", option="output", value=output)
        if place.is_relative_to(source) or source.is_relative_to(place):
            raise UsageError(f"overlaps {path}; name a folder apart from it", option="output", value=output)
