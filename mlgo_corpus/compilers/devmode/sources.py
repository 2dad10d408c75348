"""The few files of LLVM's sources that development mode is in, out of a tarball or a tree.

LLVM's code for development mode stands in files that test ``LLVM_HAVE_TFLITE`` (``lib/Analysis``, ``lib/CodeGen``).
They are compiled anew, with the headers beside them, and with the ``main`` of clang, opt and llc: about 40 of the
160 000 files of a source package are kept.
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

from mlgo_corpus.errors import FormatError, UsageError

CONDITION = b"LLVM_HAVE_TFLITE"

ANALYSIS = "llvm/lib/Analysis"
CODEGEN = "llvm/lib/CodeGen"
OPT = "llvm/tools/opt"
LLC = "llvm/tools/llc"
DRIVER = "clang/tools/driver"
FOLDERS = (ANALYSIS, CODEGEN, OPT, LLC, DRIVER)

# Where the version stands: since LLVM 19, and before.
VERSION_FILES = ("cmake/Modules/LLVMVersion.cmake", "llvm/CMakeLists.txt")

# LLVM's own TFModelEvaluator, which model_evaluator.cpp stands for.
REPLACED = "TFLiteUtils.cpp"

# Without one of these it is another LLVM than those that the rest is written for (LLVM 16 to 21).
REQUIRED = (
    f"{ANALYSIS}/DevelopmentModeInlineAdvisor.cpp",
    f"{ANALYSIS}/InlineSizeEstimatorAnalysis.cpp",
    f"{ANALYSIS}/ModelUnderTrainingRunner.cpp",
    f"{CODEGEN}/MLRegAllocEvictAdvisor.cpp",
    f"{OPT}/opt.cpp",
    f"{LLC}/llc.cpp",
    f"{DRIVER}/driver.cpp",
    f"{DRIVER}/cc1_main.cpp",
)

# LLVM's largest source file has 4 MB.
MAX_FILE_BYTES = 32 << 20

_XZ_MAGIC = b"\xfd7zXZ\0"
_GZIP_MAGIC = b"\x1f\x8b"

# tarfile remembers every member unless told to forget; a source package has 160 000.
_MEMBERS_REMEMBERED = 4096
_CHUNK = 1 << 20


def is_wanted(path: str) -> bool:
    """Tell whether a file, named as in LLVM's tree, may be needed: by its name only."""
    folder, _, name = path.rpartition("/")
    return path in VERSION_FILES or (folder in FOLDERS and name.endswith((".cpp", ".h", ".def")))


def is_kept(path: str, data: bytes) -> bool:
    """Tell whether a wanted file is needed: of LLVM's libraries, only what tests the condition, and headers."""
    folder, _, name = path.rpartition("/")
    if folder not in (ANALYSIS, CODEGEN) or not name.endswith(".cpp"):
        return True
    return CONDITION in data and name != REPLACED


def unpack(archive: Path, target: Path, progress: Callable[[int, int], None]) -> int:
    """Write the needed files of an LLVM tree's tarball (.tar.xz, .tar.gz, .tar) under ``target``; give their number.

    Only regular files with the very names that are wanted are written, so nothing lands elsewhere. ``progress`` is
    called with the bytes read of the archive, and of all.

    Raises:
        FormatError: it is not such an archive, or not a whole one.
        OSError: it cannot be read, or ``target`` not be written.
    """
    kept = 0
    # Without a buffer, its position is also that of a child that reads it.
    with archive.open("rb", buffering=0) as file:
        total = archive.stat().st_size
        try:
            with _decompressed(file) as stream:
                for path, data in _iter_wanted(stream, lambda: progress(min(file.tell(), total), total)):
                    kept += _write(target, path, data)
        except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(
                f"not a whole .tar.xz or .tar.gz of LLVM's sources: {error or 'it ends early'}", path=archive
            ) from None
    progress(total, total)
    return kept


def copy_tree(tree: Path, target: Path) -> int:
    """Copy the needed files of an LLVM tree to ``target``; give their number.

    Raises:
        OSError: a file cannot be read or written.
    """
    kept = 0
    for path in (*VERSION_FILES, *(f"{folder}/*" for folder in FOLDERS)):
        for file in sorted(tree.glob(path)):
            name = file.relative_to(tree).as_posix()
            if is_wanted(name) and file.is_file():
                kept += _write(target, name, file.read_bytes())
    return kept


def read_version(folder: Path, name: Path) -> str:
    """Read LLVM's version from what was kept of a tree; ``name`` is what to call it.

    Raises:
        UsageError: it does not say.
    """
    for path in VERSION_FILES:
        with suppress(OSError):
            version = parse_version((folder / path).read_text(encoding="utf-8", errors="replace"))
            if version is not None:
                return version
    raise UsageError(
        f"{name}: no LLVM sources: expected LLVM's version in {VERSION_FILES[0]} or {VERSION_FILES[1]}:"
        " give the folder that holds llvm and clang, or a tarball of it"
    )


def parse_version(text: str) -> str | None:
    """Find LLVM's version in one of `VERSION_FILES`."""
    found = dict(re.findall(r"set\(LLVM_VERSION_(MAJOR|MINOR|PATCH) (\d+)\)", text))
    numbers = [found.get(part) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(number for number in numbers if number) if all(numbers) else None


def check_sources(folder: Path, name: Path, *, version: str, llvm_config: str) -> None:
    """Check that what was kept of a tree has the version of the libraries, and all that is needed.

    Raises:
        UsageError: it has another version, or files are missing.
    """
    found = read_version(folder, name)
    if found != version:
        raise UsageError(
            f"{name}: the sources are LLVM {found}, {llvm_config} is LLVM {version}:"
            " give sources of that version, or name another --llvm-config"
        )
    missing = [path for path in REQUIRED if not (folder / path).is_file()]
    if missing:
        raise UsageError(
            f"{name}: LLVM {found} cannot be built here: no {', '.join(missing)} that tests {CONDITION.decode()},"
            " which LLVM 16 to 21 have"
        )


def digest_files(folder: Path) -> str:
    """Give one sha256 for the names and contents of all files that were kept of a tree."""
    digest = hashlib.sha256()
    for path in (*VERSION_FILES, *(f"{folder}/*" for folder in FOLDERS)):
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
    left = {*FOLDERS}
    tops = {folder.partition("/")[0] for folder in FOLDERS} | {"cmake"}
    version_found = False
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
        for number, member in enumerate(tar):
            if number % _MEMBERS_REMEMBERED == 0:
                tar.members = []  # type: ignore[attr-defined]  # as tarfile's own iteration over a stream advises
                progress()
            path = _path_in_tree(member.name)
            if not left and version_found and path.partition("/")[0] not in tops:
                return  # a tarball of a tree keeps a folder together, so nothing wanted follows
            if not is_wanted(path) or not member.isreg():
                continue
            if member.size > MAX_FILE_BYTES:
                raise tarfile.ReadError(f"{member.name} has {member.size} bytes, expected at most {MAX_FILE_BYTES}")
            content = tar.extractfile(member)
            if content is not None:
                left.discard(path.rpartition("/")[0])
                version_found |= path in VERSION_FILES
                yield path, content.read()
    # tarfile is content with a stream that ends between two members; what decompresses it is not.
    while stream.read(_CHUNK):
        pass


def _path_in_tree(name: str) -> str:
    """Take off the one folder that tarballs of a tree have around it; keep whatever else is in the name."""
    parts = PurePosixPath(name).parts
    if parts and parts[0] not in ("llvm", "clang", "cmake"):
        parts = parts[1:]
    return "/".join(parts)


@contextmanager
def _decompressed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Give an archive's contents as a stream; what is wrong with the compression is raised when it was all read."""
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
        raise ValueError("no pipes")  # for the type checker: they were asked for
    try:
        try:
            yield stream
        except tarfile.TarError as error:
            # What xz says is the cause, if it failed, and then it ends at once.
            if stream.read(1) == b"" and process.wait() != 0:
                raise lzma.LZMAError(_last_line(errors)) from error
            raise
        # Nothing is left where all was read; else the reader had enough, and xz is about to write more.
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
