"""A corpus made of other corpora's modules: put together beside its place, and moved there when it is whole.

Until then it is ``.NAME.tmp`` beside the folder it will be, so that a kill leaves nothing under the final name; the
next run takes what is left there away. What was there before is taken away last, and only if it is a corpus.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlgo_corpus import __version__
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError, os_reason
from mlgo_corpus.store.corpus import (
    BITCODE_SUFFIX,
    COMMAND_SUFFIX,
    MANIFEST_NAME,
    MODULES_NAME,
    STATE_FOLDER,
    THINLTO_INDEX_SUFFIX,
    Corpus,
    Module,
    checked_name,
    create_file,
    write_manifest,
)
from mlgo_corpus.store.moduletable import (
    STATUS_FAILED,
    ModuleRow,
    ModuleTableWriter,
    printable,
    read_module_metadata,
)
from mlgo_corpus.store.objects import Reason


class Placing(StrEnum):
    """How a module's files come into a new corpus.

    Attributes:
        LINK: hard links, which take no room; copies where the file system has none, or is another one.
        COPY: copies.
        REFERENCE: symbolic links, to each corpus's folder or to each file: the originals must stay where they are.
    """

    LINK = "link"
    COPY = "copy"
    REFERENCE = "reference"


class NewCorpus:
    """A corpus under construction; use `new_corpus`.

    Attributes:
        path: where it is until it is whole.
        modules: its modules' names so far.
        failed: modules whose files could not be had.
        copied: files that were copied although links were asked for.
    """

    def __init__(self, path: Path, placing: Placing) -> None:
        self.path = path
        self.modules: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.copied = 0
        self._placing = placing
        self._table = ModuleTableWriter(path / MODULES_NAME, path / f".{MODULES_NAME}.tmp")
        self._digest = sha256()

    def refer(self, name: str, folder: Path) -> None:
        """Make all modules of another corpus's folder available below ``name``."""
        link = self.path / checked_name(name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder.resolve(), target_is_directory=True)

    def add(self, row: ModuleRow, name: str, module: Module | None) -> ModuleRow:
        """Add a module under a name, and give its row; without a module its files are there already.

        A module whose files cannot be had becomes a row that says so.

        Raises:
            OSError: the corpus cannot be written.
        """
        row = row._replace(module=printable(name))
        if module is not None:
            try:
                self._place(module, name)
            except CorpusError as error:
                self.failed.append((row.module, error.message))
                detail = printable(error.message)
                return self.add_row(row._replace(status=STATUS_FAILED, reason=str(Reason.MISSING), detail=detail), name)
        self.modules.append(name)
        self._digest.update(f"{row.module}\0{row.bitcode_sha256}\0{row.cmd_sha256}\0".encode())
        self._table.append(row)
        return row

    def add_row(self, row: ModuleRow, name: str) -> ModuleRow:
        """Add the row of something that is not in the corpus, and would have this name, and give it."""
        row = row._replace(module=printable(name))
        self._table.append(row)
        return row

    def finish(self, *, has_thinlto: bool, override: Sequence[str] | None, about: Mapping[str, Any]) -> None:
        """Write the table and the manifest; ``about`` says in the table's metadata what it was made from."""
        digest = self._digest.hexdigest()
        self._table.commit({"tool": "mlgo-corpus", "version": __version__, **about, "corpus_digest": digest})
        write_manifest(self.path / MANIFEST_NAME, self.modules, has_thinlto=has_thinlto, override=override)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._table.abandon()

    def _place(self, module: Module, name: str) -> None:
        """Bring a module's files, as far as it has them, and its bitcode at least."""
        target = self.path / checked_name(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise CorpusError("a file stands where its folder has to be", name) from error
        for path, suffix, needed in (
            (module.bitcode_path, BITCODE_SUFFIX, True),
            (module.command_path, COMMAND_SUFFIX, module.override is None),
            (module.thinlto_index_path, THINLTO_INDEX_SUFFIX, True),
        ):
            if path is None:
                continue
            try:
                regular = path.is_file()
            except OSError:
                regular = False
            if regular:
                self._place_file(path, target.with_name(target.name + suffix))
            elif needed and suffix != COMMAND_SUFFIX:  # modules without a command are ordinary
                raise CorpusError(f"cannot read {path.name}: not a file", name)

    def _place_file(self, path: Path, target: Path) -> None:
        if self._placing is Placing.REFERENCE:
            target.symlink_to(path.resolve())
            return
        if self._placing is Placing.LINK:
            try:
                os.link(path, target)
                return
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                    raise
                self.copied += 1
        try:
            source = path.open("rb")
        except OSError as error:
            raise CorpusError(f"cannot read {path.name}: {os_reason(error)}") from error
        with source, create_file(target) as file:
            shutil.copyfileobj(source, file, 1 << 20)


@contextmanager
def new_corpus(output: Path, placing: Placing) -> Iterator[NewCorpus]:
    """Make a corpus in the block, whose `NewCorpus.finish` must have been called when it ends.

    Raises:
        UsageError: another process makes it at the same time.
        MlgoCorpusError: it cannot be written.
    """
    output = Path(os.path.abspath(output))
    staging = output.with_name(f".{output.name}.tmp")
    lock = None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(output.with_name(f".{output.name}.lock"), output)
        before = _before(output)
        if before.exists() and not output.exists():  # of a run that was killed as it changed the two
            before.replace(output)
        _remove(staging)
        staging.mkdir()
        made = NewCorpus(staging, placing)
        try:
            yield made
        except BaseException:
            made.abandon()
            raise
        _publish(staging, output)
    except OSError as error:
        raise MlgoCorpusError(f"cannot write {error.filename or output}: {os_reason(error)}") from error
    finally:
        if lock is not None:
            with suppress(OSError):
                _remove(staging)
            with suppress(OSError):
                output.with_name(f".{output.name}.lock").unlink()
            os.close(lock)


def _lock(path: Path, output: Path) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"{output}: another process is making it") from error
    return descriptor


def _before(output: Path) -> Path:
    return output.with_name(f".{output.name}.old")


def _publish(staging: Path, output: Path) -> None:
    before = _before(output)
    _remove(before)
    if output.exists():
        output.replace(before)
    staging.replace(output)
    _remove(before)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def digest_of_request(*parts: object) -> str:
    """Tell one request from any other, by its parts' representations."""
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


def is_whole(output: Path, request: str, *, force: bool) -> bool:
    """Tell whether a corpus is there already, made by the same request; anything else needs ``force``.

    Raises:
        UsageError: something else is there.
    """
    if not output.exists() and not output.is_symlink():
        return False
    if not output.is_dir():
        raise UsageError(f"{output}: expected a folder, found a file")
    if not (output / MANIFEST_NAME).is_file():
        if any(output.iterdir()):
            raise UsageError(f"{output}: is no corpus, and not empty; name another folder")
        return False
    with suppress(CorpusError):
        if read_module_metadata(output / MODULES_NAME).get("request") == request:
            return not force
    if not force:
        raise UsageError(f"{output}: a corpus made otherwise is there; --force replaces it")
    if (output / STATE_FOLDER / "lock").exists():
        raise UsageError(f"{output}: is a corpus that extract keeps up to date; name another folder")
    return False


def check_apart(output: Path, inputs: Iterable[Corpus]) -> None:
    """Refuse an output that is one of the inputs, or in one, or around one.

    Raises:
        UsageError: it is.
    """
    place = output.resolve()
    for corpus in inputs:
        source = corpus.path.resolve()
        if place == source or place.is_relative_to(source) or source.is_relative_to(place):
            raise UsageError(f"--output {output}: overlaps {corpus.path}; name a folder apart from it")
