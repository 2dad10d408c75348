"""A build as its shims recorded it: every compile, and the objects that the build itself no longer has.

::

    CORPUS/.mlgo-corpus/build/
      shims/            the programs that stand in for compilers (`mlgo_corpus.runs.builds.shims`), if not in the cache
      run/              while a build runs: a record of each compile, with a copy of its object beside it, and of each
                        link and archive
      left-N/           the same of a build that has ended; the next `CompileStore.update` reads and removes it
      objects/ab/abcd…  objects that were deleted or changed after their compile, under the SHA-256 of their content
      began             its time is that at which the first of these builds began
      compiled/         while the commands of a compilation database are compiled and extracted: their objects
      compiles.jsonl    all compiles whose objects exist, of this build and of earlier ones
      pending.jsonl     links that are not yet recorded in the corpus, after an interruption

A compile replaces those that earlier builds made under the same path. Within one build, compiles of one path are all
kept if their contents differ. A compile of an earlier build is remembered as long as its object exists.

`CompileStore.update` writes the state; an interruption between its steps loses nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlgo_corpus.builds.inputs import BuildObject
from mlgo_corpus.builds.leftovers import Link
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files.atomic import FileStamp, temporary_for, write_atomically
from mlgo_corpus.files.names import STATE_FOLDER
from mlgo_corpus.files.regular import MAX_LIST_BYTES, MAX_NOTE_BYTES, read_file, read_regular
from mlgo_corpus.formats.commands.buildfiles import COMPILE_COMMANDS_NAME, parse_response_file
from mlgo_corpus.formats.commands.driverline import named_output, usual_object
from mlgo_corpus.formats.commands.linkwords import Role, output_of, read_link
from mlgo_corpus.formats.commands.shimrecord import CompileRecord, parse_compile_record

_STATE = "compiles.jsonl"
_LINKS = "pending.jsonl"
_OBJECTS = "objects"
_SHIMS = "shims"
_COMPILED = "compiled"
_RUN = "run"
_LEFT = "left-"
_CHECKS = "checks"
_BEGAN = "began"
_RECORD = re.compile(r"[0-9]+-*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST_RECORD = 64 << 20  # Linux gives a command line a few megabytes


@dataclass(frozen=True, slots=True)
class Compile:
    """One object (or program, where a command linked as well) and the compile that made it.

    Attributes:
        directory: where the compiler ran.
        arguments: its command, the compiler itself first.
        sources: the object's sources, as the command names them.
        output: the object, as the command names it.
        links: whether the object is a program.
        order: grows with the time of the compile.
        digest: the SHA-256 of the object; None if the compile failed.
        stamp: the stamp of the object in the build when it was last found to have that content.
        kept: whether the object is in our own folder.
        replaced: whether something that was not seen has written another file to the object's path since, such as a
            build with another compiler.
    """

    directory: str
    arguments: tuple[str, ...]
    sources: tuple[str, ...]
    output: str
    links: bool
    order: int
    digest: str | None
    stamp: FileStamp | None = None
    kept: bool = False
    replaced: bool = False

    @property
    def path(self) -> str:
        """The path at which the build wrote the object."""
        return os.path.normpath(os.path.join(self.directory, self.output))


@dataclass(slots=True)
class CompileCounts:
    """Counts of a build.

    Attributes:
        compiles: commands that compiled, without ``checks``.
        failed: commands that failed, or whose object was not found after them.
        lost: the paths of the latter objects.
        checks: commands by which configure and similar programs test the compiler.
        kept: objects that exist only in our folder.
        kept_bytes: their size.
        gone: objects of earlier builds that no longer exist.
        replaced: objects of earlier builds in whose place another file is.
    """

    compiles: int = 0
    failed: int = 0
    lost: tuple[str, ...] = ()
    checks: int = 0
    kept: int = 0
    kept_bytes: int = 0
    gone: int = 0
    replaced: int = 0


class CompileStore:
    """The folder described above. The caller holds the corpus's lock.

    Args:
        corpus: the corpus's folder.
        force: forget all earlier builds.

    Raises:
        UsageError: the folder cannot be used.
    """

    def __init__(self, corpus: Path, *, force: bool = False) -> None:
        self._corpus = corpus
        self.folder = corpus.absolute() / STATE_FOLDER / "build"
        # The store writes and deletes files in these folders, and an untrusted corpus may have links in their place.
        own = (self.folder.parent, self.folder, *(self.folder / name for name in (_OBJECTS, _RUN, _COMPILED, _SHIMS)))
        for path in (*own, *self.folder.glob(f"{_LEFT}*"), *self.folder.glob(f"{_OBJECTS}/*")):
            if path.is_symlink():
                raise UsageError(f"{path}: a symbolic link, expected a folder of the corpus's own; delete it")
        if force:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def shims(self) -> Path:
        """The folder for the shims."""
        return self.folder / _SHIMS

    @property
    def run(self) -> Path:
        """The folder into which shims write records as long as it exists."""
        return self.folder / _RUN

    @property
    def began_ns(self) -> int:
        """When the first build began whose objects are known, in nanoseconds; 0 if that is unknown."""
        stamp = FileStamp.of(str(self.folder / _BEGAN))
        return 0 if stamp is None else stamp.mtime_ns

    def open_run(self) -> None:
        """Begin recording."""
        self.close_run()  # left by a build that was killed together with this program
        self.run.mkdir(parents=True)
        if not self.holds_objects():
            (self.folder / _BEGAN).touch()

    def close_run(self) -> None:
        """End recording."""
        if self.run.is_dir():
            numbers = [int(path.name.removeprefix(_LEFT)) for path in self._left()]
            self.run.rename(self.folder / f"{_LEFT}{max(numbers, default=0) + 1}")

    @property
    def compiled(self) -> Path:
        """The folder for the objects of a compilation database's commands."""
        return self.folder / _COMPILED

    def holds_objects(self) -> bool:
        """Return True if an earlier build left objects, or records that no `update` has read."""
        records = (path.name for folder in (self.run, *self._left()) for path in folder.glob("*"))
        return any(map(_RECORD.fullmatch, records)) or any(one.digest is not None for one in self._load())

    def _left(self) -> list[Path]:
        found = [path for path in self.folder.glob(f"{_LEFT}*") if path.name.removeprefix(_LEFT).isdigit()]
        return sorted(found, key=lambda path: int(path.name.removeprefix(_LEFT)))

    def update(
        self, program_of: Callable[[str], tuple[str, ...]], *, keep_checks: bool = False
    ) -> tuple[tuple[Compile, ...], tuple[Link, ...], CompileCounts]:
        """Read and remove the new records; return all compiles whose objects exist, those that failed, and new links.

        Args:
            program_of: returns the words that run the ``c`` or the ``c++`` driver.
            keep_checks: also keep compiles that look like a test of the compiler.
        """
        counts = CompileCounts()
        known = {(one.path, one.digest): one for one in self._load()}
        folders = self._left()
        copies: dict[str, Path] = {}
        links: list[Link] = []
        for folder in folders:
            with suppress(OSError):
                counts.checks += (folder / _CHECKS).stat().st_size
            new = list(self._read_run(folder, program_of, counts, copies, links, keep_checks=keep_checks))
            made = {one.path for one in new if one.digest is not None}
            known = {key: one for key, one in known.items() if key[0] not in made and one.digest is not None}
            known |= {(one.path, one.digest): one for one in sorted(new, key=lambda one: one.order)}
            known = {key: one for key, one in known.items() if one.digest is not None or one.path not in made}
        compiles = self._settle(known.values(), copies, counts)
        lines = (json.dumps(_as_json(one), separators=(",", ":")) + "\n" for one in compiles)
        if links:
            told = (json.dumps(asdict(one)) + "\n" for one in (*self.pending_links(), *links))
            write_atomically(self.folder / _LINKS, "".join(told).encode())
        if folders or (self.folder / _STATE).exists():
            write_atomically(self.folder / _STATE, "".join(lines).encode())
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._sweep({one.digest for one in compiles if one.kept})
        return compiles, tuple(links), counts

    def pending_links(self) -> tuple[Link, ...]:
        """Return the links of this build, and those of interrupted ones, that `forget_links` was not called for."""
        found = []
        with suppress(FileNotFoundError):
            for line in read_regular(self.folder / _LINKS, MAX_LIST_BYTES).splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    value = json.loads(line)
                    words = tuple(map(str, value["words"]))
                    found.append(Link(str(value["directory"]), words, int(value["order"]), int(value["status"])))
        return tuple(found)

    def forget_links(self) -> None:
        """Forget the links: they are recorded in the corpus."""
        (self.folder / _LINKS).unlink(missing_ok=True)

    def write_compile_commands(self, compiles: Sequence[Compile]) -> Path | None:
        """Write the compilation database beside the manifest; remove it and return None if nothing was compiled."""
        path = self._corpus / COMPILE_COMMANDS_NAME
        if not compiles:
            path.unlink(missing_ok=True)
            return None
        made = {one.path for one in compiles if one.digest is not None}
        entries = [
            {"directory": one.directory, "arguments": one.arguments, "file": source, "output": one.output}
            for one in compiles
            if one.digest is not None or one.path not in made
            for source in one.sources
        ]
        write_atomically(path, json.dumps(entries, indent=1).encode() + b"\n")
        return path

    def iter_objects(self, compiles: Iterable[Compile], build_dir: str) -> Iterator[BuildObject]:
        """Yield the objects, each with the path of its content; programs last, as they may repeat modules."""
        folder = build_dir.rstrip("/") + "/"
        for one in compiles:
            if one.digest is not None:
                path = str(self._kept_path(one.digest)) if one.kept else one.path
                yield BuildObject(path, one.path.removeprefix(folder), one.directory, replaced=one.replaced)

    def _kept_path(self, digest: str) -> Path:
        return kept_object(self._corpus, digest)

    def _read_run(
        self,
        folder: Path,
        program_of: Callable[[str], tuple[str, ...]],
        counts: CompileCounts,
        copies: dict[str, Path],
        links: list[Link],
        *,
        keep_checks: bool,
    ) -> Iterator[Compile]:
        checks: list[list[Compile]] = []
        compiled: set[str] = set()
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if not _RECORD.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
            try:
                if status.st_size > _LARGEST_RECORD:
                    raise FormatError("a record beyond reason")
                record = parse_compile_record(read_regular(Path(entry.path), _LARGEST_RECORD))
            except FormatError:  # a compile that was killed together with its make
                counts.failed += 1
                continue
            words = _expanded(record, entry.path)
            if record.links or not record.compiles:
                command = (record.driver, *words)
                links.append(Link(os.path.realpath(record.directory), command, status.st_mtime_ns, record.status))
            if not record.compiles:
                continue
            arguments = (*program_of(record.driver), *words)
            made = list(self._of_record(record, arguments, entry.path, status.st_mtime_ns, copies))
            if not keep_checks and made and all(map(_looks_like_check, made)):
                checks.append(made)
                continue
            counts.compiles += 1
            lost = () if record.status else tuple(one.path for one in made if one.digest is None)
            counts.lost += lost
            counts.failed += record.status != 0 or bool(lost)
            compiled.update(one.path for one in made)
            yield from made
        taken = set(_iter_taken(links)) if checks else set()
        digests = {_digest_of(path) for path in taken - compiled}
        for made in checks:
            if any(one.path in taken or (one.digest is not None and one.digest in digests) for one in made):
                counts.compiles += 1
                yield from made
            else:
                counts.checks += 1

    def _of_record(
        self, record: CompileRecord, arguments: tuple[str, ...], path: str, order: int, copies: dict[str, Path]
    ) -> Iterator[Compile]:
        directory = os.path.realpath(record.directory)
        if record.responses:
            record = _with_sources(record, arguments[1:])
        for index, (named, number) in enumerate(record.objects):
            output, digest = named, None
            if record.status == 0:
                copy = Path(f"{path}.{number}")
                if number and (digest := _digest_of(str(copy))) is not None:
                    copies.setdefault(digest, copy)
                else:  # the shim could not copy it, or did not find its name in a parameter file
                    output = named_output(arguments) or named
                    place = os.path.join(directory, output)
                    digest = _digest_of(place)
                    if digest is None and os.path.lexists(place):  # such as /dev/null
                        continue
            several = len(record.objects) == len(record.sources)
            sources = record.sources[index : index + 1] if several else record.sources
            yield Compile(directory, arguments, sources, output, record.links, order, digest)

    def _settle(self, known: Iterable[Compile], copies: dict[str, Path], counts: CompileCounts) -> tuple[Compile, ...]:
        """Find where each object is, and keep those that the build no longer has."""
        settled: list[Compile] = []
        for one in known:
            if one.digest is None:
                settled.append(one)
                continue
            stamp = FileStamp.of(one.path)
            found = one.digest if stamp is not None and stamp == one.stamp else _digest_of(one.path)
            if found == one.digest:
                settled.append(replace(one, stamp=stamp, kept=False))
            elif one.digest in copies or self._kept_path(one.digest).is_file():
                self._keep(one.digest, copies.get(one.digest))
                counts.kept += 1
                counts.kept_bytes += self._kept_path(one.digest).stat().st_size
                settled.append(replace(one, stamp=None, kept=True))
            elif found is not None:  # there is no other copy, but what was extracted from it
                counts.replaced += 1
                settled.append(replace(one, replaced=True))
            else:
                counts.gone += 1
        # If one path had several contents, the last comes first and gets the plain name.
        return tuple(sorted(settled, key=lambda one: (one.links, os.fsencode(one.path), -one.order)))

    def _keep(self, digest: str, copy: Path | None) -> None:
        path = self._kept_path(digest)
        if not path.is_file() and copy is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(copy, path)  # not moved: until the state is written, the record still needs it
            except OSError:  # a file system without links
                temporary = temporary_for(path)
                shutil.copyfile(copy, temporary)
                temporary.replace(path)

    def _sweep(self, wanted: set[str | None]) -> None:
        """Delete kept objects that no compile refers to."""
        for path in self.folder.glob(f"{_OBJECTS}/*/*"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    path.parent.rmdir()

    def _load(self) -> Iterator[Compile]:
        try:
            lines = read_regular(self.folder / _STATE, MAX_LIST_BYTES).splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                yield _parse(json.loads(line))


def kept_object(corpus: Path, digest: str) -> Path:
    """Return the path of an object that a build no longer has, if the corpus keeps it."""
    return corpus.absolute() / STATE_FOLDER / "build" / _OBJECTS / digest[:2] / digest


def _expanded(record: CompileRecord, path: str) -> tuple[str, ...]:
    """Return a record's arguments with the parameter files that were copied beside it replaced by their words."""
    words: dict[str, tuple[str, ...]] = {}
    for word, number in record.responses:
        with suppress(OSError):
            words[word] = parse_response_file(read_regular(Path(f"{path}.{number}"), MAX_NOTE_BYTES))
    return record.expanded(words)


def _with_sources(record: CompileRecord, arguments: Sequence[str]) -> CompileRecord:
    """Return a record with what all words say is compiled: the shim has split those of parameter files roughly."""
    sources = tuple(word.path or "" for word in read_link(arguments) if word.role is Role.SOURCE)
    if not sources or sources == record.sources:
        return record
    objects = record.objects
    if not record.links and named_output(arguments) is None:
        objects = tuple((usual_object(source), "") for source in sources)
    return replace(record, sources=sources, objects=objects)


def _looks_like_check(one: Compile) -> bool:
    """Return True for a test of the compiler: source and object are deleted, from a folder that still exists.

    A source that is not a file, such as the ``/dev/null`` of kbuild's tests, is as good as deleted. Meson deletes the
    folder, too, as wheels' builds do, but its names tell a test: ``testfile.cpp`` becomes ``output.obj``.
    """
    if os.path.lexists(one.path) or not one.sources:
        return False
    for source in one.sources:
        folder, name = os.path.split(os.path.join(one.directory, source))
        is_of_meson = name.startswith("testfile.") and os.path.basename(one.output) == "output.obj"
        if os.path.isfile(os.path.join(folder, name)) or not (is_of_meson or os.path.isdir(folder)):
            return False
    return True


def _iter_taken(links: Iterable[Link]) -> Iterator[str]:
    """Yield the paths that went into programs, libraries and archives which the build has at its end."""
    for link in links:
        words = link.read()
        output = output_of(link.driver, words)
        if output and not link.status and os.path.lexists(os.path.join(link.directory, output)):
            for word in words:
                if word.role is Role.INPUT:
                    yield os.path.normpath(os.path.join(link.directory, word.path or ""))


def _digest_of(path: str) -> str | None:
    """Return the digest of a regular file; None if it does not exist or cannot be read."""
    try:
        return sha256(read_file(path)).hexdigest()
    except (OSError, ValueError):
        return None


def _as_json(one: Compile) -> dict[str, Any]:
    return {
        "directory": one.directory,
        "arguments": one.arguments,
        "sources": one.sources,
        "output": one.output,
        "links": one.links,
        "order": one.order,
        "digest": one.digest,
        "stamp": one.stamp and astuple(one.stamp),
    }


def _parse(record: dict[str, Any]) -> Compile:
    """Return the compile in a line of the state.

    Raises:
        ValueError, KeyError, TypeError: the line is malformed.
    """
    digest, stamp = record["digest"], record["stamp"]
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise ValueError(digest)
    return Compile(
        directory=str(record["directory"]),
        arguments=tuple(map(str, record["arguments"])),
        sources=tuple(map(str, record["sources"])),
        output=str(record["output"]),
        links=bool(record["links"]),
        order=int(record["order"]),
        digest=digest,
        stamp=None if stamp is None else FileStamp(*map(int, stamp)),
    )
