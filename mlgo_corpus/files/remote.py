"""Files behind ``s3://`` and ``gs://`` URLs, read and written through pyarrow's filesystems.

``file://`` is a local path. A filesystem's options are in the URL's query (``s3://bucket/corpus?region=eu-west-1``,
``?endpoint_override=http://127.0.0.1:5000``, ``?anonymous=true``) and in the environment (``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_PROFILE``, ...; for Google ``GOOGLE_APPLICATION_CREDENTIALS``).

An object there is complete or absent, never half written. There is no renaming, so the file that marks a result as
complete is written last.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from mlgo_corpus.errors import CorpusError, UsageError

_SCHEMES: Final = ("s3", "gs", "file")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# The options in the query of a URL.
_OPTIONS = {
    "s3": frozenset({"region", "endpoint_override", "scheme", "anonymous"}),
    "gs": frozenset({"endpoint_override", "scheme", "anonymous", "project_id"}),
}
_CONNECT_S = 10.0
# Without receiving a byte; an endpoint that does not answer is asked three times.
_REQUEST_S = 20.0
_RETRY_S = 15.0
_BLOCK_BYTES = 4 << 20
# The most bytes of a file that is read whole. The manifest of a million modules with long names is half of that.
_SMALL_BYTES = 256 << 20
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; ?anonymous=true for a public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to the file of a key; ?anonymous=true for a public bucket",
}

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A place behind a URL; it is small when pickled, and each process connects by itself.

    Attributes:
        scheme: ``s3`` or ``gs``.
        key: the bucket and the path in it.
        query: the part of the URL after ``?``; it is not shown.
    """

    scheme: str
    key: str
    query: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.scheme, f"{self.key}/{name}", self.query)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return RemotePath(self.scheme, self.key.rpartition("/")[0], self.query)

    def with_name(self, name: str) -> RemotePath:
        """Return another file of the same folder."""
        return self.parent / name

    def read_bytes(self) -> bytes:
        """Read a small file.

        Raises:
            FileNotFoundError: it does not exist.
            CorpusError: it cannot be read, or is larger than any such file.
        """
        with self.open() as file:
            size = self._tried(lambda _: int(file.size()))
            if size > _SMALL_BYTES:
                raise CorpusError(f"{self}: expected at most {_SMALL_BYTES} bytes, found {size}; is it the right file?")
            return self._tried(lambda _: bytes(file.read(size)))

    def open(self) -> Any:
        """Open a file for random access, as a ``pyarrow.NativeFile``.

        Raises:
            FileNotFoundError: it does not exist.
            CorpusError: it cannot be read.
        """
        return self._tried(lambda filesystem: filesystem.open_input_file(self.key))

    def is_file(self) -> bool:
        """Return True if a file exists here.

        Raises:
            CorpusError: the server cannot be asked.
        """
        return bool(self._tried(lambda filesystem: filesystem.get_file_info(self.key)).is_file)

    def check_bucket(self) -> None:
        """Check that the bucket exists.

        Raises:
            CorpusError: it does not, or the server cannot be asked.
        """
        bucket = self.key.partition("/")[0]
        if self._tried(lambda filesystem: filesystem.get_file_info(bucket)).type.name == "NotFound":
            raise CorpusError(f"{self}: {_no_bucket(bucket)}")

    def files(self) -> dict[str, int]:
        """Return the files below this folder, each with its size in bytes; none if there is no such folder.

        Raises:
            CorpusError: the server cannot be asked.
        """
        from pyarrow.fs import FileSelector

        selector = FileSelector(self.key, recursive=True, allow_not_found=True)
        found = self._tried(lambda filesystem: filesystem.get_file_info(selector))
        return {info.path.removeprefix(f"{self.key}/"): info.size for info in found if info.is_file}

    def upload(self, path: Path) -> None:
        """Copy a local file here; an existing file stays until all of it has arrived.

        Raises:
            CorpusError: it cannot be written.
            OSError: the local file cannot be read.
        """
        with path.open("rb") as source:
            self._tried(lambda filesystem: _send(filesystem, source, self.key))

    def download(self, path: Path) -> None:
        """Copy this file to a local path.

        Raises:
            FileNotFoundError: it does not exist.
            CorpusError: it cannot be read.
            OSError: the local file cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as target, self.open() as source:
            while block := self._tried(lambda _: source.read(_BLOCK_BYTES)):
                target.write(block)

    def unlink(self) -> None:
        """Delete this file if it exists.

        Raises:
            CorpusError: it cannot be deleted.
        """
        if self.is_file():
            self._tried(lambda filesystem: filesystem.delete_file(self.key))

    def _tried(self, work: Callable[[Any], _Done]) -> _Done:
        try:
            return work(_filesystem(self.scheme, self.query))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CorpusError(f"{self}: {_explained(self, error)}") from error


Place = Path | RemotePath
"""A local path, or a place behind a URL."""


def is_url(text: Path | str) -> bool:
    """Return True for a URL; a `Path` is never one."""
    return isinstance(text, str) and _URL.match(text) is not None


def parse_place(text: Path | str) -> Place:
    """Return the place that a path or a URL names.

    Raises:
        UsageError: it is a URL of an unknown kind, or without a bucket, or with an unknown option in its query, or with
            characters that have to be quoted; or it is neither a path nor text.
    """
    if not isinstance(text, str | Path):
        raise UsageError(f"expected a path or a URL, found {text if text is None else f'a {type(text).__name__}'}")
    if isinstance(text, Path) or (match := _URL.match(text)) is None:
        return Path(text)
    scheme = match[1].lower()
    if scheme not in _SCHEMES:
        raise UsageError(f"{text}: expected a path, or a URL of {', '.join(f'{name}://' for name in _SCHEMES)}")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"{text}: not a URL: {error}") from None
    # `urlsplit` drops some control characters, and cuts what is behind a number sign: another place would be meant.
    if _CONTROL.search(text) or _CONTROL.search(unquote(parts.path)):
        raise UsageError(f"{text!r}: a URL cannot have control characters")
    if "#" in text:
        raise UsageError(f"{text}: a URL has %23 for #")
    if scheme == "file":
        if "?" in text:
            raise UsageError(f"{text}: a file's URL has %3F for ?")
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"{text}: expected file:///PATH, a path on this machine")
        return Path(unquote(parts.path))
    key = "/".join(part for part in f"{parts.netloc}/{unquote(parts.path)}".split("/") if part)
    if not parts.netloc or "@" in parts.netloc or ".." in key.split("/"):
        raise UsageError(f"{text}: expected {scheme}://BUCKET/PATH")
    known = _OPTIONS[scheme]
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            raise UsageError(f"{scheme}://{key}: {name} is unknown; expected ?{', ?'.join(sorted(known))}")
    return RemotePath(scheme, key, parts.query)


def output_here(output: Path | str, what: str, instead: str) -> Path:
    """Return the place of an output that can only be made on this machine.

    Raises:
        UsageError: it is a URL; the message says that ``what`` cannot be written there, and to name ``instead``.
    """
    place = parse_place(output)
    if isinstance(place, RemotePath):
        raise UsageError(f"{place}: {what} cannot be written to a URL; name {instead}")
    return place


def in_use() -> bool:
    """Return True if this process has connected: then a fork of it must not share its threads and sockets."""
    return _filesystem.cache_info().currsize > 0


def download_all(place: RemotePath, path: Path) -> None:
    """Download a file, or all files below a folder.

    Raises:
        CorpusError: there is neither, or it cannot be read.
    """
    if place.is_file():
        place.download(path)
        return
    files = place.files()
    if not files:
        raise CorpusError(f"{place}: no such file or folder")
    for name in files:
        if name.startswith("/") or ".." in name.split("/"):
            raise CorpusError(f"{place}: {name} would leave the folder")
        (place / name).download(path / name)


def _send(filesystem: Any, source: Any, key: str) -> None:
    target = filesystem.open_output_stream(key)
    try:
        shutil.copyfileobj(source, target, _BLOCK_BYTES)
    except BaseException:
        # A stream cannot be given up: its end makes an object of what has arrived, unless that fails, too.
        with suppress(OSError):
            target.close()
            filesystem.delete_file(key)
        raise
    target.close()


@lru_cache(maxsize=8)
def _filesystem(scheme: str, query: str) -> Any:
    from pyarrow import fs

    options: dict[str, Any] = dict(parse_qsl(query))
    if "anonymous" in options:
        options["anonymous"] = options["anonymous"].lower() in ("1", "true", "yes")
    endpoint = options.pop("endpoint_override", None)
    if endpoint is not None:
        match = _URL.match(endpoint)
        if match is not None:
            options.setdefault("scheme", match[1])
        options["endpoint_override"] = _URL.sub("", endpoint).rstrip("/")
    kind = getattr(fs, {"s3": "S3FileSystem", "gs": "GcsFileSystem"}[scheme], None)
    if kind is None:
        raise UsageError(f"{scheme}://: this pyarrow was built without it; pip install pyarrow installs another")
    if scheme == "s3":
        options |= {"connect_timeout": _CONNECT_S, "request_timeout": _REQUEST_S}
    else:
        options["retry_time_limit"] = timedelta(seconds=_RETRY_S)
    try:
        return kind(**options)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{scheme}://: {_one_line(error)}") from error


def _explained(place: RemotePath, error: OSError) -> str:
    """Return the cause of an error and what to do, on one line, which Arrow's errors are not."""
    said = _one_line(error)
    bucket = place.key.partition("/")[0]
    if re.search(r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist", said, re.IGNORECASE):
        return _no_bucket(bucket)
    if re.search(
        r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE_DOES_NOT_MATCH|credential|HTTP status 40[13]"
        r"|HTTP response code: 40[13]|UNAUTHENTICATED|PERMISSION_DENIED",
        said,
        re.IGNORECASE,
    ):
        return f"access is refused: {_CREDENTIALS[place.scheme]}"
    if re.search(
        r"NETWORK_CONNECTION|resolve host|Couldn't connect|Failed to connect|timed? ?out|UNAVAILABLE",
        said,
        re.IGNORECASE,
    ):
        return "no connection; is the network up, and is ?endpoint_override right?"
    return said


def _no_bucket(bucket: str) -> str:
    return f"there is no bucket {bucket}; create it, or name another"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
