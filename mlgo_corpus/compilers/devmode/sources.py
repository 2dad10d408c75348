"""The few files of LLVM's sources that implement development mode, taken from a tarball or a tree.

LLVM's code for development mode is in files that test ``LLVM_HAVE_TFLITE`` (``lib/Analysis``, ``lib/CodeGen``). They
are compiled anew, with the headers beside them, and with the ``main`` of clang, opt and llc: about 40 of the 160 000
files of a source package are kept.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, cast

from mlgo_corpus.compilers.devmode.record import Embedded
from mlgo_corpus.errors import FormatError, UsageError

_CONDITION = b"LLVM_HAVE_TFLITE"
# The prefix of the macros under which LLVM embeds a model, in release mode.
_EMBEDDED = b"LLVM_HAVE_TF_AOT_"

ANALYSIS = "llvm/lib/Analysis"
CODEGEN = "llvm/lib/CodeGen"
OPT = "llvm/tools/opt"
LLC = "llvm/tools/llc"
DRIVER = "clang/tools/driver"
_FOLDERS = (ANALYSIS, CODEGEN, OPT, LLC, DRIVER)

# The files with LLVM's version: since LLVM 19, and before.
_VERSION_FILES = ("cmake/Modules/LLVMVersion.cmake", "llvm/CMakeLists.txt")

# LLVM's own TFModelEvaluator, which model_evaluator.cpp replaces.
_REPLACED = "TFLiteUtils.cpp"

# Files of the supported LLVMs; other LLVMs lack one of them.
_DEVELOPMENT = (
    f"{ANALYSIS}/DevelopmentModeInlineAdvisor.cpp",
    f"{ANALYSIS}/InlineSizeEstimatorAnalysis.cpp",
    f"{ANALYSIS}/ModelUnderTrainingRunner.cpp",
    f"{CODEGEN}/MLRegAllocEvictAdvisor.cpp",
)
_TOOLS = (
    f"{OPT}/opt.cpp",
    f"{LLC}/llc.cpp",
    f"{DRIVER}/driver.cpp",
    f"{DRIVER}/cc1_main.cpp",
)

# LLVM's largest source file is 4 MB.
MAX_FILE_BYTES = 32 << 20

_XZ_MAGIC = b"\xfd7zXZ\0"
_GZIP_MAGIC = b"\x1f\x8b"

# tarfile keeps every member in memory unless its list is cleared; a source package has 160 000.
_MEMBERS_REMEMBERED = 4096
_CHUNK = 1 << 20


def required_files(embedded: Embedded | None) -> tuple[str, ...]:
    """Return the files without which no tools can be made: of development mode, or with a model."""
    return (*(_DEVELOPMENT if embedded is None else (embedded.source,)), *_TOOLS)


def is_wanted(path: str) -> bool:
    """Return True if a file may be needed, judged by its name in LLVM's tree only."""
    folder, _, name = path.rpartition("/")
    return path in _VERSION_FILES or (folder in _FOLDERS and name.endswith((".cpp", ".h", ".def")))


def is_kept(path: str, data: bytes) -> bool:
    """Return True if a wanted file is needed: of LLVM's libraries, only files that test the condition, and headers."""
    folder, _, name = path.rpartition("/")
    if folder not in (ANALYSIS, CODEGEN) or not name.endswith(".cpp"):
        return True
    return (_CONDITION in data or _EMBEDDED in data) and name != _REPLACED


def unpack(archive: Path, target: Path, progress: Callable[[int, int], None]) -> int:
    """Write the needed files of an LLVM tree's tarball (.tar.xz, .tar.gz, .tar) under ``target``; return their number.

    Only regular files with exactly the names wanted are written, so that none is written elsewhere. ``progress`` is
    called with the bytes read of the archive, and their total.

    Raises:
        FormatError: it is not such an archive, or is incomplete.
        OSError: it cannot be read, or ``target`` cannot be written.
    """
    kept = 0
    # Unbuffered, so that its position is also that of a child process that reads it.
    with archive.open("rb", buffering=0) as file:
        total = archive.stat().st_size
        try:
            with _decompressed(file) as stream:
                for path, data in _iter_wanted(stream, lambda: progress(min(file.tell(), total), total)):
                    kept += _write(target, path, data)
        except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(
                f"not a complete .tar.xz or .tar.gz of LLVM's sources: {error or 'it ends early'}", path=archive
            ) from None
    progress(total, total)
    return kept


def copy_tree(tree: Path, target: Path) -> int:
    """Copy the needed files of an LLVM tree to ``target``; return their number.

    Raises:
        OSError: a file cannot be read or written.
    """
    kept = 0
    for path in (*_VERSION_FILES, *(f"{folder}/*" for folder in _FOLDERS)):
        for file in sorted(tree.glob(path)):
            name = file.relative_to(tree).as_posix()
            if is_wanted(name) and file.is_file():
                kept += _write(target, name, file.read_bytes())
    return kept


def _read_version(folder: Path, name: Path) -> str:
    """Return LLVM's version from the kept files of a tree; ``name`` is the tree's name for errors.

    Raises:
        UsageError: they do not have it.
    """
    for path in _VERSION_FILES:
        with suppress(OSError):
            version = parse_version((folder / path).read_text(encoding="utf-8", errors="replace"))
            if version is not None:
                return version
    raise UsageError(
        f"{name}: not LLVM's sources: expected LLVM's version in {_VERSION_FILES[0]} or {_VERSION_FILES[1]}:"
        " name the folder that holds llvm and clang, or a tarball of it"
    )


def parse_version(text: str) -> str | None:
    """Return LLVM's version from the text of one of `_VERSION_FILES`; None if it has none."""
    found = dict(re.findall(r"set\(LLVM_VERSION_(MAJOR|MINOR|PATCH) (\d+)\)", text))
    numbers = [found.get(part) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(number for number in numbers if number) if all(numbers) else None


def check_sources(
    folder: Path, name: Path, *, version: str, llvm_config: str, embedded: Embedded | None = None
) -> None:
    """Check that the kept files of a tree have the version of the libraries, and that none is missing.

    Raises:
        UsageError: they have another version, or some are missing.
    """
    found = _read_version(folder, name)
    if found != version:
        raise UsageError(
            f"{name}: the sources are LLVM {found}, {llvm_config} is LLVM {version}:"
            " name sources of that version, or another `llvm_config`"
        )
    missing = [path for path in required_files(embedded) if not (folder / path).is_file()]
    if missing:
        condition, last = (_CONDITION, 21) if embedded is None else (_EMBEDDED, 22)
        raise UsageError(
            f"{name}: LLVM {found} cannot be built here: no {', '.join(missing)} that tests {condition.decode()},"
            f" which LLVM 16 to {last} have"
        )


def digest_files(folder: Path) -> str:
    """Return one sha256 of the names and contents of all kept files of a tree."""
    digest = hashlib.sha256()
    for path in (*_VERSION_FILES, *(f"{folder}/*" for folder in _FOLDERS)):
        for file in sorted(folder.glob(path)):
            name = file.relative_to(folder).as_posix()
            digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _write(target: Path, path: str, data: bytes) -> int:
    if not is_kept(path, data):
        return 0
    file = target / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return 1


def _iter_wanted(stream: IO[bytes], progress: Callable[[], None]) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted files of a tar stream, in its order; read no further than is needed."""
    left = {*_FOLDERS}
    tops = {folder.partition("/")[0] for folder in _FOLDERS} | {"cmake"}
    version_found = False
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
        for number, member in enumerate(tar):
            if number % _MEMBERS_REMEMBERED == 0:
                tar.members = []  # type: ignore[attr-defined]  # as tarfile's own iteration over a stream advises
                progress()
            path = _path_in_tree(member.name)
            if not left and version_found and path.partition("/")[0] not in tops:
                return  # a tarball of a tree keeps folders together, so nothing wanted follows
            if not is_wanted(path) or not member.isreg():
                continue
            if member.size > MAX_FILE_BYTES:
                raise tarfile.ReadError(f"{member.name} has {member.size} bytes, expected at most {MAX_FILE_BYTES}")
            content = tar.extractfile(member)
            if content is not None:
                data = content.read()
                left.discard(path.rpartition("/")[0])
                # Both files may be there, one without the version.
                if path in _VERSION_FILES and parse_version(data.decode(errors="replace")) is not None:
                    version_found = True
                yield path, data
    # tarfile accepts a stream that ends between two members; reading to the end lets the decompressor raise.
    while stream.read(_CHUNK):
        pass


def _path_in_tree(name: str) -> str:
    """Remove the folder that a tarball has around the tree, if any; keep the rest of the name."""
    parts = PurePosixPath(name).parts
    if parts and parts[0] not in ("llvm", "clang", "cmake"):
        parts = parts[1:]
    return "/".join(parts)


@contextmanager
def _decompressed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield an archive's contents as a stream; errors of the compression are raised when all of it was read."""
    magic = file.read(len(_XZ_MAGIC))
    file.seek(0)
    xz = shutil.which("xz")
    if magic == _XZ_MAGIC and xz is not None:
        with _piped(xz, file) as stream:
            yield stream
    elif magic == _XZ_MAGIC:
        with lzma.open(file) as stream:
            yield stream
    elif magic.startswith(_GZIP_MAGIC):
        with gzip.open(file) as stream:
            yield cast("IO[bytes]", stream)
    else:
        yield file


@contextmanager
def _piped(xz: str, file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Decompress with all processors: a large .xz, such as Debian's, has many blocks. Python's lzma uses one."""
    process = subprocess.Popen(
        [xz, "--decompress", "--stdout", "--threads=0"],
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    stream, errors = process.stdout, process.stderr
    if stream is None or errors is None:
        raise ValueError("no pipes")  # for the type checker: they were requested
    try:
        try:
            yield stream
        except tarfile.TarError as error:
            # If xz failed, its error is the cause, and it ends at once.
            if stream.read(1) == b"" and process.wait() != 0:
                raise lzma.LZMAError(_last_line(errors)) from error
            raise
        # If all was read, nothing is left; else the reader stopped early, and xz is about to write more.
        if stream.read(1) == b"" and process.wait() != 0:
            raise lzma.LZMAError(_last_line(errors))
    finally:
        process.kill()
        stream.close()
        process.wait()
        errors.close()


def _last_line(stderr: IO[bytes]) -> str:
    lines = stderr.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "xz failed"
