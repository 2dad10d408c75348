"""Follow only those links in a corpus that stay in it.

A corpus may come from anybody. A link that leads out of it would put a file of this machine into a corpus that is
packed, combined or split from it, and then published. So a file that resolves outside of its corpus's folder is not
read; the folder itself may be a link. Hard links cannot be told from files.

Two kinds of links lead out and are followed all the same. A corpus made by ``combine --reference`` consists of them: it
has a mark that only this user's key makes (`let_leave`), valid for its place alone. And a download from Hugging Face
has its files in ``blobs``, beside ``snapshots``.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import AnyStr, Final

from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.atomic import temporary_for

_CACHE_VARIABLE: Final = "MLGO_CORPUS_CACHE"
_LEADS_OUT: Final = "a link leads out of the corpus"

_KEY_NAME = "reference.key"
_KEY_BYTES = 32


def cache_folder(named: Path | str | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for files that can be made again.

    It is what a caller names, or ``$MLGO_CORPUS_CACHE``, or ``mlgo-corpus`` in the user's cache.
    """
    if named is not None:
        return Path(named)
    if told := environment.get(_CACHE_VARIABLE):
        return Path(told).absolute()
    usual = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(usual).absolute() / "mlgo-corpus"


def open_inside(root: AnyStr, path: AnyStr, *, linked: bool) -> int:
    """Open a file of a corpus for reading, without waiting for a writer, and return its descriptor.

    Args:
        root: the corpus's folder.
        path: the file, below it.
        linked: whether links may lead out of it.

    Raises:
        OSError: it is not there, or cannot be read, or a link leads out of the corpus.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    if linked:
        return os.open(path, flags)
    _check_folder(root, os.path.dirname(path))
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        check_link(root, path)
        return os.open(path, flags)


def check_link(root: AnyStr, path: AnyStr) -> None:
    """Check that a path in the folder ``root`` does not resolve outside of it.

    Raises:
        OSError: it does.
    """
    if not os.path.islink(path):
        _check_folder(root, os.path.dirname(path))
    elif not _is_inside(root, path):
        raise OSError(errno.ELOOP, _LEADS_OUT)


def check_inside(root: Path, *names: str) -> None:
    """Check that no manifest, table or other file of a corpus is a link that leads out of it.

    Raises:
        CorpusError: one is.
    """
    for name in names:
        try:
            check_link(str(root), str(root / name))
        except OSError as error:
            message = f"{root / name}: {error.strerror}, and is not followed; replace it by a copy"
            raise CorpusError(message) from None


def _check_folder(root: AnyStr, folder: AnyStr) -> None:
    if folder != root:
        _check_known_folder("" if os.path.isabs(root) else os.getcwd(), root, folder)


@lru_cache(maxsize=4096)  # keeps only folders that are inside: exceptions are not cached
def _check_known_folder(_where: str, root: str | bytes, folder: str | bytes) -> None:
    if not _is_inside(root, folder):
        raise OSError(errno.ELOOP, _LEADS_OUT)


def _is_inside(root: str | bytes, path: str | bytes) -> bool:
    base, real = os.path.realpath(os.fsdecode(root)), os.path.realpath(os.fsdecode(path))
    if f"{real}/".startswith(f"{base.rstrip('/')}/"):
        return True
    download, snapshots, _ = f"{base}/".rpartition("/snapshots/")
    return bool(snapshots) and real.startswith(f"{download}/blobs/")


def let_leave(mark: Path, root: Path) -> None:
    """Mark the corpus at ``root`` as this user's, so that its links are followed wherever they lead.

    Raises:
        OSError: the mark or the user's key cannot be written.
    """
    place = cache_folder() / _KEY_NAME
    if _read_key(place) is None:
        place.parent.mkdir(parents=True, exist_ok=True)
        part = temporary_for(place)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(part, place)  # if two processes make a key at once, the first one's stays
        except FileExistsError:
            pass
        finally:
            part.unlink()
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(_signature(_read_key(place) or b"", root))


def may_leave(mark: Path, root: Path) -> bool:
    """Return True if this user made the corpus at ``root``, of links."""
    try:
        descriptor = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        said = file.read(128)
    key = _read_key(cache_folder() / _KEY_NAME)
    return key is not None and hmac.compare_digest(said, _signature(key, root).encode())


def _read_key(place: Path) -> bytes | None:
    with suppress(OSError):
        key = place.read_bytes()
        return key if len(key) == _KEY_BYTES else None
    return None


def _signature(key: bytes, root: Path) -> str:
    return hmac.digest(key, os.fsencode(os.path.realpath(root)), "sha256").hex()
