"""Get the needed files of LLVM's sources into a cache: from apt, from a tarball, or from a tree.

In the cache, a folder of sources gets its name when it is complete, with a note of where they came from. The tarball
that apt fetched is removed then: 2 MB of its 164 are needed.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlgo_corpus.compilers.devmode import apt, sources
from mlgo_corpus.compilers.devmode.installed import Installed, source_package
from mlgo_corpus.compilers.devmode.record import ALREADY_THERE, Record, Request
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import counted

_SOURCE_NAME = "source.json"


@dataclass(frozen=True, slots=True)
class Source:
    """The kept files of LLVM's sources, and where they came from.

    ``origin`` has ``files_sha256``, and either ``path`` (of a tree), or ``file`` and ``sha256`` (of a tarball);
    Debian's also has ``package`` and ``version``.
    """

    folder: Path
    origin: Mapping[str, str]


def provide_source(request: Request, record: Record, installed: Installed, work: Path) -> Source:
    """Get the sources of an installed LLVM into the folder ``work``, whose lock is held.

    Raises:
        UsageError: there are none, or they do not fit.
        ToolError: apt failed.
        FormatError: a tarball is damaged.
        OSError: they cannot be read or written.
    """
    given = request.llvm_source
    if given is None:
        return _fetched(request, record, installed, work)
    if given.is_dir():
        return _copied(given, request, record, installed, work)
    if not given.is_file():
        message = "no such file or folder; expected a tree of LLVM's sources, or a tarball"
        raise UsageError(message, option="llvm_source", value=given)
    with record.phase("sources") as detail:
        origin = {"file": given.name, "sha256": apt.sha256_of(given)}
        detail.append(given.name)
    return _unpacked(given, work / f"source-{origin['sha256'][:16]}", origin, request, record, installed)


def is_made_of(origin: Mapping[str, str], llvm_source: Path | None) -> bool:
    """Return True if ``origin`` describes the sources in ``llvm_source``; without the latter, any are right.

    Raises:
        OSError: the sources cannot be read.
    """
    if llvm_source is None:
        return True
    if llvm_source.is_file():
        return origin.get("sha256") == apt.sha256_of(llvm_source)
    # Compare the files, not their path: a tree may be edited.
    with scratch_folder() as scratch:
        sources.copy_tree(llvm_source, scratch)
        return origin.get("files_sha256") == sources.digest_files(scratch)


@contextmanager
def part_folder(part: Path) -> Iterator[Path]:
    """Yield an empty folder for incomplete files; remove what is left of it in the end.

    The caller holds a lock, so that an existing folder was left by a killed build.
    """
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _copied(tree: Path, request: Request, record: Record, installed: Installed, work: Path) -> Source:
    with record.phase("unpack") as detail, part_folder(work / "source.part") as part:
        kept = sources.copy_tree(tree, part)
        detail.append(counted(kept, "file"))
        _check(part, tree, installed, request)
        return _keep(part, work / f"source-{sources.digest_files(part)[:16]}", {"path": str(tree)})


def _fetched(request: Request, record: Record, installed: Installed, work: Path) -> Source:
    name, version = source_package(installed)
    folder = work / ("source-" + re.sub(r"[^-\w.+~]", "_", version))
    found = _find(folder, request)
    if found is not None:
        with record.phase("sources") as detail:
            detail.append(ALREADY_THERE)
        return found
    downloads = work / "apt"
    with record.phase("sources") as detail:
        request.progress("sources", 0, 1)
        fetched = apt.fetch_source(name, version, downloads, request.counter("sources"))
        record.fetched_bytes = fetched.fetched_bytes
        detail.append(f"{name} {fetched.version}")
        detail.append(f"{fetched.fetched_bytes / 1e6:.0f} MB fetched" if fetched.fetched_bytes else ALREADY_THERE)
    origin = {"package": name, "version": fetched.version, "file": fetched.tarball.name, "sha256": fetched.sha256}
    source = _unpacked(fetched.tarball, folder, origin, request, record, installed)
    shutil.rmtree(downloads, ignore_errors=True)
    return source


def _unpacked(
    archive: Path, folder: Path, origin: dict[str, str], request: Request, record: Record, installed: Installed
) -> Source:
    with record.phase("unpack") as detail:
        found = _find(folder, request)
        if found is not None:
            detail.append(ALREADY_THERE)
            # The same archive may have another name now.
            return Source(folder, {**found.origin, **origin})
        with part_folder(folder.with_name("source.part")) as part:
            kept = sources.unpack(archive, part, request.counter("unpack"))
            detail.append(counted(kept, "file"))
            _check(part, archive, installed, request)
            return _keep(part, folder, origin)


def _check(part: Path, name: Path, installed: Installed, request: Request) -> None:
    llvm_config = installed.llvm_config.name
    sources.check_sources(part, name, version=installed.version, llvm_config=llvm_config, embedded=request.embedded)


def _keep(part: Path, folder: Path, origin: Mapping[str, str]) -> Source:
    origin = {**origin, "files_sha256": sources.digest_files(part)}
    (part / _SOURCE_NAME).write_text(json.dumps(origin), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    return Source(folder, origin)


def _find(folder: Path, request: Request) -> Source | None:
    """Return the sources in a folder if they are complete and unchanged.

    Those that were kept for another mode, or by an older version of this package, may lack files.
    """
    if not all((folder / path).is_file() for path in sources.required_files(request.embedded)):
        return None
    try:
        origin = json.loads((folder / _SOURCE_NAME).read_bytes())
        return Source(folder, origin) if origin["files_sha256"] == sources.digest_files(folder) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
