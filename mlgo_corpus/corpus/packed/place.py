"""Check the place of a packed corpus or of an unpacked one, and copy the files that are not of modules."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlgo_corpus.corpus.assemble import check_replaceable
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.links import check_inside
from mlgo_corpus.corpus.packed.corpus import (
    CARD_NAME,
    PackedCorpus,
    is_packed,
    read_description,
)
from mlgo_corpus.corpus.packed.rows import PACKED_NAME
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.folder import find_stranger
from mlgo_corpus.files.names import LINKS_NAME, MANIFEST_NAME, MANIFEST_STEM, TABLE_NAMES
from mlgo_corpus.files.regular import digest_of_file
from mlgo_corpus.files.remote import Place, RemotePath, parse_place
from mlgo_corpus.files.text import os_reason


def manifest_of(corpus: Corpus, named: Path | str) -> Path:
    """Return the path of the manifest that was opened: the folder's own, or ``named`` if that is a manifest."""
    place = parse_place(named)
    is_file = isinstance(place, Path) and place.name.startswith(MANIFEST_STEM) and place.is_file()
    return corpus.path / (place.name if is_file else MANIFEST_NAME)


def other_files(folder: Path, manifest: Path) -> dict[str, Path]:
    """Return the corpus's files that are not of modules: each name in the packed folder, and the file's path.

    For one side of a split, the other sides' manifests are left out: their modules are not there.
    """
    found = {MANIFEST_NAME: manifest}
    if manifest.name == MANIFEST_NAME:
        found |= {path.name: path for path in sorted(folder.glob(f"{MANIFEST_STEM}*.json")) if path.is_file()}
    found |= {name: folder / name for name in (*TABLE_NAMES, LINKS_NAME) if (folder / name).is_file()}
    check_inside(folder, *(path.name for path in found.values()))
    return {name: path for name, path in found.items() if name.isprintable()}


def file_digest(path: Place) -> str:
    """Return the SHA-256 of a file's bytes, as hex digits.

    Raises:
        CorpusError: the file cannot be read.
    """
    try:
        return sha256(path.read_bytes()).hexdigest() if isinstance(path, RemotePath) else digest_of_file(path)
    except OSError as error:
        raise CorpusError(f"{path}: {os_reason(error)}") from error


def copy_others(packed: PackedCorpus, folder: Path) -> None:
    """Copy the files that are not of modules.

    Raises:
        CorpusError: one is missing, or not what was packed.
        OSError: one cannot be written.
    """
    others = packed.description["others"]
    if MANIFEST_NAME not in others:
        raise CorpusError(f"{packed.location}: {PACKED_NAME} does not list {MANIFEST_NAME}")
    for name, digest in others.items():
        path = packed.place / name
        try:
            if isinstance(path, RemotePath):
                path.download(folder / name)
            else:
                shutil.copyfile(path, folder / name)
        except FileNotFoundError as error:
            raise CorpusError(f"{path}: is missing; the packed corpus is not whole") from error
        if file_digest(folder / name) != digest:
            raise CorpusError(f"{path}: is not what was packed: its SHA-256 is another")


def has_files(place: Place, about: dict[str, Any]) -> bool:
    """Return whether the files of a packed corpus are there, the files of rows with the sizes that they had."""
    wanted = {file.name: file.size for file in about["files"]}
    others = (*about["others"], CARD_NAME)
    if isinstance(place, RemotePath):
        there = place.files()
        return all(there.get(name) == size for name, size in wanted.items()) and all(name in there for name in others)
    try:
        sizes = all((place / name).stat().st_size == size for name, size in wanted.items())
    except OSError:
        return False
    return sizes and all((place / name).is_file() for name in others)


def check_place(output: Path, there: dict[str, Any] | None) -> None:
    """Check that the place of a packed corpus has no other files; those of the packed corpus ``there`` may be replaced.

    Raises:
        UsageError: it has.
    """
    if there is not None:
        stranger = find_stranger(output, known_files(there))
        if stranger is not None:
            raise UsageError(f"{output}: {stranger} is not part of the packed corpus; name another folder")
        return
    _check_empty(output, "packed corpus")


def is_still(output: Path, there: dict[str, Any] | None) -> bool:
    """Return whether a packed corpus is there that may be replaced; it must be the one that was seen before, ``there``.

    Raises:
        UsageError: something else is there.
    """
    if (read_description(output) if is_packed(output) else None) != there:
        raise UsageError(f"{output}: another mlgo-corpus has just made it")
    check_place(output, there)
    return there is not None


def known_files(about: dict[str, Any]) -> frozenset[str]:
    """Return the names of all files of a packed corpus."""
    return frozenset({PACKED_NAME, CARD_NAME, *about["others"], *(file.name for file in about["files"])})


def _check_empty(output: Path, what: str) -> None:
    try:
        held = next(iter(sorted(path.name for path in output.iterdir())), None) if output.exists() else None
    except NotADirectoryError:
        raise UsageError(f"{output}: expected a folder, found a file") from None
    except OSError as error:
        raise UsageError(f"{output}: {os_reason(error)}") from error
    if held is not None:
        raise UsageError(f"{output}: is not empty, and not a {what}: it holds {held}; name another folder")


def is_unpacked(output: Path, others: dict[str, str]) -> bool:
    """Return whether a folder is this corpus, by its manifests and tables: it gets its name when it is complete."""
    try:
        return all(file_digest(output / name) == digest for name, digest in others.items())
    except CorpusError:
        return False


def check_corpus_place(output: Path, *, force: bool) -> bool:
    """Return whether a corpus is there that may be replaced.

    Raises:
        UsageError: something else is there.
    """
    if not (output / MANIFEST_NAME).is_file():
        _check_empty(output, "corpus")
        return False
    check_replaceable(output, force=force)
    return True
