"""The pack stage: pack a corpus into Parquet files of bounded size, and unpack it again, byte for byte."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus import __version__
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.assemble import check_apart
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.modules import STATUS_OK, read_module_columns
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.packed.card import packed_card
from mlgo_corpus.corpus.packed.convert import (
    PART_BYTES,
    GroupTask,
    PartTask,
    write_modules,
    write_part,
)
from mlgo_corpus.corpus.packed.corpus import (
    CARD_NAME,
    DATA_FOLDER,
    PACKED_FORMAT,
    PACKED_KIND,
    PackedCorpus,
    is_packed,
    read_description,
)
from mlgo_corpus.corpus.packed.place import (
    check_corpus_place,
    check_place,
    copy_others,
    file_digest,
    has_files,
    is_still,
    is_unpacked,
    known_files,
    manifest_of,
    other_files,
)
from mlgo_corpus.corpus.packed.rows import PACKED_NAME
from mlgo_corpus.corpus.select import corpus_digest
from mlgo_corpus.engine.choice import Lost, available_cpus
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files.atomic import write_atomically, writing
from mlgo_corpus.files.folder import recover, whole_folder
from mlgo_corpus.files.names import MODULES_NAME
from mlgo_corpus.files.remote import Place, RemotePath, parse_place
from mlgo_corpus.files.text import printable
from mlgo_corpus.runs.datasets.publish import MARKER, check_no_strangers, staging_folder, uploading
from mlgo_corpus.runs.report import Report

# A task may take as long as a slow network needs.
_LIMIT_S = 24 * 3600.0
_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class PackReport(Report):
    """The result of packing or unpacking.

    Attributes:
        output: the folder or the URL.
        modules: number of modules of the corpus; ``lacking`` of them lack a file.
        bitcode_bytes: bytes of bitcode; ``command_bytes`` of commands, ``index_bytes`` of ThinLTO indexes.
        parquet_bytes: bytes of the ``files`` files of rows.
        unchanged: True if it existed already, made of the same corpus.
        problems: the first modules that lack a file: name and reason.
        seconds: how long it took.
    """

    _properties: ClassVar = ("exit_code",)

    output: Path | str
    modules: int
    lacking: int
    bitcode_bytes: int
    command_bytes: int
    index_bytes: int
    parquet_bytes: int
    files: int
    unchanged: bool
    problems: tuple[tuple[str, str], ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 if a module lacks a file, else 0."""
        return 1 if self.lacking else 0


def pack_corpus(
    corpus: Path | str,
    output: Path | str,
    *,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PackReport:
    """Pack a corpus: one row per module, in Parquet files that Hugging Face ``datasets`` loads.

    `unpack_corpus` restores the folder, except for the state that the next extraction needs, which is not packed.

    Args:
        corpus: the corpus's folder, or the manifest of one side of a split.
        output: the folder to make, or an ``s3://`` or ``gs://`` URL.
        jobs: worker processes; by default the CPUs this process may use.
        force: replace another packed corpus.
        cache: the folder for files that are to be uploaded to a URL; the user's cache by default.
        progress: called with (modules done, modules in all).

    Raises:
        UsageError: something else is in the output's place, or there are no modules; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: the files cannot be written.
    """
    started = time.perf_counter()
    place = parse_place(output)
    jobs = _checked_jobs(jobs)
    opened = open_corpus(corpus)
    if opened.packed:
        raise UsageError(f"{opened.location}: is packed already")
    if not len(opened):
        raise UsageError(f"{opened.location}: has no modules")
    packing = _Packing(opened, manifest_of(opened, corpus), jobs, progress)
    if isinstance(place, Path):
        recover(place)
        check_apart(place, [opened])
    there = read_description(place) if is_packed(place) else None
    if there is not None and there.get("key") == packing.key and not force and has_files(place, there):
        return _report_of(place, there, started)
    if there is not None and not force:
        raise UsageError(f"{place}: holds another packed corpus, or an incomplete one; `force` replaces it")
    if isinstance(place, RemotePath):
        return _pack_to(place, packing, there, cache, started)
    check_place(place, there)
    with writing(place), whole_folder(place, replace=lambda: is_still(place, there)) as folder:
        about = packing.run(folder, None)
        write_atomically(folder / PACKED_NAME, _json(about))
    return _report_of(place, read_description(place), started, unchanged=False)


def _pack_to(
    place: RemotePath, packing: _Packing, there: dict[str, Any] | None, cache: Path | str | None, started: float
) -> PackReport:
    """Pack to a URL; each worker keeps one file at a time on this machine."""
    if there is None:
        check_no_strangers(place, "packed corpus")
    elif strangers := sorted(set(place.files()) - known_files(there) - {MARKER}):
        raise UsageError(f"{place}: holds {strangers[0]}, which is not of the packed corpus; name another folder")
    with writing(place), staging_folder(place, cache) as folder:
        shutil.rmtree(folder)
        folder.mkdir()
        with uploading(place, (PACKED_NAME,), folder) as kept:
            about = packing.run(folder, place)
            for name in (*packing.others, CARD_NAME):
                (place / name).upload(folder / name)
            kept |= {*packing.others, CARD_NAME, *(file["name"] for file in about["files"])}
            write_atomically(folder / PACKED_NAME, _json(about))
        shutil.rmtree(folder, ignore_errors=True)
    return _report_of(place, read_description(place), started, unchanged=False)


class _Packing:
    """The packing of a corpus into a folder of rows."""

    def __init__(self, corpus: Corpus, manifest: Path, jobs: int, progress: Callable[[int, int], None] | None) -> None:
        self.corpus = corpus
        self.names = tuple(dict.fromkeys(corpus.names))  # a manifest may name a module twice
        self.jobs = jobs
        self.progress = progress
        self.others = other_files(corpus.path, manifest)
        self.digests = {name: file_digest(path) for name, path in self.others.items()}
        self.key = {
            "version": __version__,
            "corpus": corpus_digest(corpus, self.names),
            "others": self.digests,
        }
        self.own_digest = corpus.own_digest()

    def run(self, folder: Path, target: RemotePath | None) -> dict[str, Any]:
        """Write all files but ``corpus.json`` to a folder, upload the parts to ``target``, and return its content."""
        (folder / DATA_FOLDER).mkdir(exist_ok=True)
        tasks = list(self._tasks(folder, target))
        done = 0
        total: Counter[str] = Counter()
        files: list[dict[str, Any]] = []
        problems: list[tuple[str, str]] = []
        parts = parallel_map(write_part, tasks, jobs=self.jobs, limit=_LIMIT_S, weigh=lambda _: 1.0)
        for task, part in zip(tasks, parts, strict=True):
            if isinstance(part, Lost):
                raise MlgoCorpusError(f"cannot write {task.path.name}: {part.detail}")
            files.append(
                {"name": f"{DATA_FOLDER}/{task.path.name}", "bytes": part.size, "row_groups": list(part.row_groups)}
            )
            total.update({name: getattr(part, name) for name in _SUMMED})
            problems += part.problems
            done += len(task.names)
            if self.progress is not None:
                self.progress(done, len(self.names))
        about = {
            "kind": PACKED_KIND,
            "format": PACKED_FORMAT,
            "tool": "mlgo-corpus",
            "version": __version__,
            "modules": len(self.names),
            "lacking": len(problems),
            **{name: total[name] for name in _SUMMED},
            "has_thinlto": self.corpus.has_thinlto,
            "stamped": self.own_digest is None,
            "corpus_digest": self.own_digest,
            "key": self.key,
            "files": files,
            "others": [{"name": name, "sha256": digest} for name, digest in self.digests.items()],
            "problems": [[printable(name), problem] for name, problem in problems[:_PROBLEMS]],
        }
        write_atomically(folder / CARD_NAME, packed_card(about, self.others).encode())
        for name, path in self.others.items():
            shutil.copyfile(path, folder / name)
        return about

    def _tasks(self, folder: Path, target: RemotePath | None) -> Iterator[PartTask]:
        """Divide the modules into files by their bytes alone, so that the same corpus gives the same files."""
        rows = self._rows()
        sizes = self.corpus.sizes(self.names)
        first = size = number = 0
        for after, name in enumerate(self.names, 1):
            size += sizes[name]
            if size < PART_BYTES and after < len(self.names):
                continue
            part = f"part-{number:05d}.parquet"
            yield PartTask(
                root=self.corpus.path,
                names=self.names[first:after],
                rows=None if rows is None else rows[first:after],
                has_thinlto=self.corpus.has_thinlto,
                override=self.corpus.global_command_override,
                stamped=self.own_digest is None,
                path=folder.absolute() / DATA_FOLDER / part,
                upload=None if target is None else target / DATA_FOLDER / part,
                linked=self.corpus.linked,
            )
            first, size, number = after, 0, number + 1

    def _rows(self) -> tuple[int, ...] | None:
        """Return the number of each module's row in the table of modules, -1 for none; None without a usable table."""
        path = self.corpus.path / MODULES_NAME
        if MODULES_NAME not in self.others:
            return None
        try:
            table = read_module_columns(path, ["module", "status"])
        except CorpusError:  # damaged: pack the table as it is, and make the rows from the modules
            return None
        modules, statuses = (table[name].to_pylist() for name in ("module", "status"))
        known: dict[str, int] = {}
        for row, (module, status) in enumerate(zip(modules, statuses, strict=True)):
            if status == STATUS_OK and module is not None:
                known.setdefault(module, row)
        return tuple(known.get(printable(name), -1) for name in self.names)


def unpack_corpus(
    packed: Path | str,
    output: Path | str,
    *,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PackReport:
    """Restore the folder of a packed corpus, byte for byte.

    Args:
        packed: the packed corpus: a folder, or an ``s3://`` or ``gs://`` URL.
        output: the folder to make.
        jobs: worker processes; by default the CPUs this process may use.
        force: replace another corpus.
        progress: called with (modules done, modules in all).

    Raises:
        UsageError: there is no packed corpus, or something else is in the output's place; nothing was written.
        CorpusError: the packed corpus is damaged.
        MlgoCorpusError: the files cannot be written.
    """
    started = time.perf_counter()
    place = parse_place(output)
    jobs = _checked_jobs(jobs)
    if isinstance(place, RemotePath):
        raise UsageError(f"{place}: a corpus cannot be unpacked to a URL; name a folder")
    source = parse_place(packed)
    if not is_packed(source):
        if isinstance(source, RemotePath):
            source.check_bucket()
        raise UsageError(f"{source}: not a packed corpus: it has no {PACKED_NAME} of one")
    opened = PackedCorpus(source)
    check_apart(place, [opened])
    recover(place)
    if not force and is_unpacked(place, opened.description["others"]):
        return _report_of(place, opened.description, started)
    check_corpus_place(place, force=force)
    with writing(place), whole_folder(place, replace=lambda: check_corpus_place(place, force=force)) as folder:
        copy_others(opened, folder)
        total, lacking = _write_all(opened, folder, jobs, progress)
        told = _report_of(place, opened.description, started)
        if any(total[name] != getattr(told, name) for name in _SUMMED) or lacking != told.lacking:
            raise CorpusError(f"{opened.location}: its files contradict each other: {PACKED_NAME} has other sizes")
    return _report_of(place, opened.description, started, unchanged=False)


_SUMMED = ("bitcode_bytes", "command_bytes", "index_bytes")


def _write_all(
    opened: PackedCorpus, folder: Path, jobs: int, progress: Callable[[int, int], None] | None
) -> tuple[Counter[str], int]:
    """Write the files of all modules; return the bytes written and the number of modules that lack a file."""
    names = tuple(dict.fromkeys(opened.names))
    tasks = []
    first = 0
    for file in opened.files:
        for number, rows in enumerate(file.row_groups):
            part = names[first : first + rows]
            tasks.append(
                GroupTask(opened.place / file.name, number, part, folder.absolute(), opened.description["stamped"])
            )
            first += rows
    total: Counter[str] = Counter()
    lacking = done = 0
    results = parallel_map(write_modules, tasks, jobs=jobs, limit=_LIMIT_S, weigh=lambda _: 1.0)
    for task, written in zip(tasks, results, strict=True):
        if isinstance(written, Lost):
            raise CorpusError(f"{task.file}: row group {task.number} cannot be read: {written.detail}")
        total.update({name: getattr(written, name) for name in _SUMMED})
        lacking += written.lacking
        done += len(task.names)
        if progress is not None:
            progress(done, len(names))
    return total, lacking


def _checked_jobs(jobs: int | None) -> int:
    check_count("jobs", jobs)
    return jobs or available_cpus()


def _json(about: dict[str, Any]) -> bytes:
    return (json.dumps(about, indent=2) + "\n").encode()


def _report_of(place: Place, about: dict[str, Any], started: float, *, unchanged: bool = True) -> PackReport:
    def number(name: str) -> int:
        value = about.get(name)
        return value if isinstance(value, int) else 0

    listed = about.get("problems")
    problems = listed if isinstance(listed, list) else []
    return PackReport(
        output=place if isinstance(place, Path) else str(place),
        modules=number("modules"),
        lacking=number("lacking"),
        bitcode_bytes=number("bitcode_bytes"),
        command_bytes=number("command_bytes"),
        index_bytes=number("index_bytes"),
        parquet_bytes=sum(file.size for file in about["files"]),
        files=len(about["files"]),
        unchanged=unchanged,
        problems=tuple((str(item[0]), str(item[1])) for item in problems if isinstance(item, list) and len(item) == 2),
        seconds=time.perf_counter() - started,
    )
