"""Make the table that a model of native size learns from: features of every function after inlining, and its bytes."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import choose_optimiser, compiler_identity
from mlgo_corpus.compilers.confinement import try_walls
from mlgo_corpus.compilers.find import built_toolchains, cache_folder
from mlgo_corpus.compilers.limits import check_count, check_timeout
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import corpus_digest, newest_producer, select_modules
from mlgo_corpus.corpus.split.sides import SIDES, assign_sides, check_fractions, expected_leakage
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, refuse_difference
from mlgo_corpus.dataset.sizes.card import sizes_card
from mlgo_corpus.dataset.sizes.table import (
    SIZES_FOLDER,
    SIZES_KIND,
    Columns,
    ModuleSizes,
    read_module_sizes,
    with_split,
    write_module_sizes,
)
from mlgo_corpus.engine.choice import HERE, EngineChoice, Lost, available_cpus
from mlgo_corpus.engine.map import resumed_map
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.tables import BatchTable, open_parquet, read_parquet
from mlgo_corpus.files.text import counted, os_reason
from mlgo_corpus.formats.commands.edit import edit_command
from mlgo_corpus.formats.ir.pipeline import POST_INLINING, SNAPSHOTS
from mlgo_corpus.runs.datasets.publish import to_urls
from mlgo_corpus.runs.sizes.module import SnapshotSettings
from mlgo_corpus.runs.sizes.rows import SizedModule, SizingItem, SizingSettings, read_sized, size_module

if TYPE_CHECKING:
    import pyarrow as pa

# A module takes five programs at most, and costs may be asked for in sixteen.
_PROGRAMS = 21
_SLACK_S = 120.0
_ROWS_PER_FILE = 1 << 18
# Rows of some small modules are written together.
_ROWS_PER_GROUP = 1 << 14
_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class SizesReport:
    """What was made.

    Attributes:
        output: the table.
        compiler: its version line.
        modules: modules chosen; of them ``sized`` are in the table.
        counts: modules by reason.
        functions: rows; of them ``labelled`` have a native size.
        statuses: rows by status.
        faithful: modules whose object equals the plain replay's; None if that was not looked at.
        code_size: bytes of the objects' executable sections; ``explained_size`` of them are the labelled functions'.
        split: rows by side.
        leakage: the share of test rows that would have an equal row in train, were rows divided at random.
        cpu_s: processor time of clang and opt; ``replay_cpu_s`` of the plain replays, None where none was done.
        resumed: modules that an earlier, interrupted run had done.
        unchanged: whether the table was there already, made in the same way.
        problems: the first failed modules: name, reason and detail.
        seconds: how long it took.
    """

    output: Path | str
    compiler: str
    modules: int
    sized: int
    counts: dict[str, int]
    functions: int
    labelled: int
    statuses: dict[str, int]
    faithful: int | None
    code_size: int
    explained_size: int
    split: dict[str, int]
    leakage: float
    cpu_s: float
    replay_cpu_s: float | None
    resumed: int
    unchanged: bool
    problems: tuple[tuple[str, str, str], ...]
    seconds: float

    @property
    def failed(self) -> int:
        """How many modules are not in the table."""
        return self.modules - self.sized

    def as_json(self) -> dict[str, Any]:
        """Give the report as plain values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**values, "output": str(self.output), "failed": self.failed}


@to_urls
def ir2native_table(
    corpus: Path | str,
    output: Path | str,
    *,
    features: str = "all",
    vector: bool = False,
    snapshot: str = POST_INLINING,
    verify: bool = True,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    compiler: str | None = None,
    add_flags: Sequence[str] = (),
    delete_flags: Sequence[str] = (),
    replace_flags: Sequence[str] = (),
    trust_corpus: bool = False,
    timeout: float = 300.0,
    memory_limit: int | None = None,
    sample: str | None = None,
    module_filter: str | None = None,
    modules_file: Path | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | None = None,
    engine: EngineChoice = HERE,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> SizesReport:
    """Take the features of every function of a corpus after inlining, compile on, and take the functions' sizes.

    Called again after an interruption, it goes on: modules that are done are not run again.

    Args:
        corpus: the corpus's folder; a packed one may be behind a URL.
        output: the table: a folder, or a single file if it is called ``*.parquet``; or an ``s3://`` or ``gs://`` URL.
        features: ``all``, or some of ``llvm``, ``ir2native``, ``context`` with commas in between.
        vector: add the IR2Native features as one list column, too.
        snapshot: ``post-inlining``: features are taken after the last inlining; or ``pre-inlining``: before any.
        verify: compile each module plainly too, and compare the objects.
        fractions: of train, validation and test.
        seed: of the split and of the sample.
        compiler: a clang that has an opt of the same version; by default the best one found on this machine.
        add_flags: options to add to each command; see `mlgo_corpus.formats.commands.edit` for how they are named.
        delete_flags: options to take out of each command.
        replace_flags: ``NAME=VALUE``: options that get another value.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        timeout: seconds that each program may take.
        memory_limit: bytes of address space that each may have; by default the machine's memory, shared among
            its CPUs, at least 4 GiB.
        sample: take only so many modules, or this fraction of them, of all sizes.
        module_filter: take only modules in whose names this regular expression is found.
        modules_file: take only the modules whose names are in this file.
        jobs: modules at a time; by default the CPUs this process may use, or the cluster's.
        force: start over, and replace a table that was made otherwise.
        cache: where it is known what compilers can do; the user's cache by default.
        engine: where the compilers run: on this machine, or on a cluster.
        progress: is told (modules done, of them failed, functions, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one function was found, or the table cannot be written.
    """
    started = time.perf_counter()
    output = Path(output)
    cache = cache_folder() if cache is None else cache
    check_count("jobs", jobs)
    columns = Columns.of(features, vector=vector)
    if snapshot not in SNAPSHOTS:
        raise UsageError(f"--snapshot {snapshot}: expected one of {', '.join(SNAPSHOTS)}")
    fractions = check_fractions(fractions, ",".join(map(str, fractions)))
    check_timeout(timeout)
    edit_command(("-cc1",), add=add_flags, delete=delete_flags, replace=replace_flags)  # raises for what is no option
    opened = open_corpus(engine.place(corpus))
    names = select_modules(opened, name_regex=module_filter, modules_file=modules_file, sample=sample, seed=seed)
    toolchain = choose_optimiser(
        compiler,
        producer=newest_producer(opened, names),
        built=built_toolchains(cache),
        cache=cache,
        jobs=jobs or available_cpus(),
    )
    key = {
        "version": __version__,
        "features": list(columns.groups),
        "vector": vector,
        "snapshot": snapshot,
        "verify": verify,
        "fractions": list(fractions),
        "seed": seed,
        "compiler": {"version": toolchain.version, "sha256": compiler_identity(toolchain)},
        "add_flags": list(add_flags),
        "delete_flags": list(delete_flags),
        "replace_flags": list(replace_flags),
        "trust_corpus": trust_corpus,
        "corpus": corpus_digest(opened, names),
    }
    if not force:
        refuse_difference(DatasetPaths.of(output, SIZES_FOLDER), key)
    folder = DatasetFolder(output, key, force=force, rows=SIZES_FOLDER)
    settings = SizingSettings(
        SnapshotSettings(
            cc1=toolchain.cc1,
            opt=(str(toolchain.opt),),
            snapshot=snapshot,
            ir2native=columns.wants_vectors,
            verify=verify,
            add=tuple(add_flags),
            delete=tuple(delete_flags),
            replace=tuple(replace_flags),
            trusted=trust_corpus,
            timeout=timeout,
            memory_limit=memory_limit,
        ),
        columns,
        folder.paths.work.absolute(),
    )
    made = _Table(folder, settings, toolchain, opened, names, jobs, fractions, seed, engine, progress)
    try:
        rows = read_module_sizes(folder.paths.modules) if folder.is_whole else made.run()
    finally:
        folder.close()
    return made.report(rows, time.perf_counter() - started)


class _Table:
    """One table under way."""

    def __init__(
        self,
        folder: DatasetFolder,
        settings: SizingSettings,
        toolchain: Toolchain,
        corpus: Corpus,
        names: Sequence[str],
        jobs: int | None,
        fractions: tuple[float, float, float],
        seed: int,
        engine: EngineChoice,
        progress: Callable[[int, int, int, int], None] | None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.toolchain = toolchain
        self.corpus = corpus
        self.names = names
        self.jobs = jobs
        self.fractions = fractions
        self.seed = seed
        self.engine = engine
        self.progress = progress
        self.resumed = 0

    def run(self) -> tuple[ModuleSizes, ...]:
        """Run what is not done yet, put the table together, and give a row for each module."""
        self.folder.begin()
        work = self.settings.work
        for left_behind in work.glob("mlgo-snapshot-*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        try:
            sized = list(self._sized())
            rows = tuple(one.row for one in sized)
            if not any(one.part for one in sized):
                self.folder.discard()
                raise MlgoCorpusError(self._nothing(rows))
            self._finish(sized, rows)
        except OSError as error:
            raise MlgoCorpusError(f"cannot write {error.filename or work}: {os_reason(error)}") from error
        return rows

    def _sized(self) -> Iterator[SizedModule]:
        items = [SizingItem(number, self.corpus[name]) for number, name in enumerate(self.names)]
        known = [read_sized(self.settings.work, item.number, item.module.name) for item in items]
        self.resumed = sum(one is not None for one in known)
        if not self.settings.snapshot.trusted and self.resumed < len(items):
            try_walls((self.toolchain.cc1[0], str(self.toolchain.opt)))
        made = resumed_map(
            partial(size_module, self.settings),
            items,
            known,
            jobs=self.jobs,
            limit=_PROGRAMS * self.settings.snapshot.timeout + _SLACK_S,
            lost=_lost,
            engine=self.engine,
            needs=(self.settings.work, *self.corpus.on_this_machine(), self.toolchain.cc1[0], str(self.toolchain.opt)),
        )
        failed = functions = 0
        for finished, outcome in enumerate(made, 1):
            failed += outcome.row.status != STATUS_OK
            functions += outcome.row.functions
            if self.progress is not None:
                self.progress(finished, failed, functions, len(items))
            yield outcome

    def _nothing(self, rows: Sequence[ModuleSizes]) -> str:
        failed = [row for row in rows if row.status != STATUS_OK]
        if not failed:
            return f"in {counted(len(rows), 'module')} there is no function: there is no table to make"
        reasons = ", ".join(
            f"{reason} {count}" for reason, count in Counter(row.reason for row in failed).most_common()
        )
        first = f"{failed[0].module}: {failed[0].detail}"
        return f"not one of {counted(len(rows), 'module')} has come through ({reasons}): {first}"

    def _finish(self, sized: Sequence[SizedModule], rows: Sequence[ModuleSizes]) -> None:
        """Put the table together: the rows of all modules in order, each with its side."""
        paths = self.folder.paths
        work = paths.work
        files = self._write_rows([one.part for one in sized if one.part is not None])
        moves = [(work / name, paths.part(number, len(files))) for number, (name, _) in enumerate(files)]
        modules = work / "modules.parquet"
        write_module_sizes(modules, rows, {"tool": "mlgo-corpus", "version": __version__, "key": self.folder.key})
        tables = [(modules, paths.modules)]
        if paths.single:
            self.folder.finish([*tables, *moves])
            return
        properties = next((one.properties for one in sized if one.properties), ())
        ok = [row for row in rows if row.status == STATUS_OK]
        about = {
            "tool": "mlgo-corpus",
            "version": __version__,
            "kind": SIZES_KIND,
            "compiler": self.toolchain.vendor,
            "compiler_sha256": self.folder.key["compiler"]["sha256"],
            "snapshot": self.settings.snapshot.snapshot,
            "features": list(self.settings.columns.groups),
            "fractions": list(self.fractions),
            "seed": self.seed,
            "corpus": self.corpus.path.name,
            "corpus_sha256": self.folder.key["corpus"],
            "modules": len(rows),
            "failed": len(rows) - len(ok),
            "functions": sum(row.functions for row in ok),
            "labelled": sum(row.labelled for row in ok),
            "files": [
                {"name": str(place.relative_to(paths.folder)), "rows": count}
                for (_, place), (_, count) in zip(moves, files, strict=True)
            ],
        }
        card = sizes_card(about, self.settings.columns, properties)
        texts = [(work / "README.md", paths.card, card)]
        texts.append((work / "dataset.json", paths.whole, json.dumps(about, indent=2) + "\n"))
        for path, _, text in texts:
            write_atomically(path, text.encode())
        self.folder.finish([*moves, *tables, *((path, place) for path, place, _ in texts)])

    def _write_rows(self, parts: Sequence[str]) -> list[tuple[str, int]]:
        """Write the files of rows; give their names in the work folder and how many rows each has."""
        files: list[tuple[str, int]] = []
        writer: BatchTable | None = None
        count = 0
        try:
            for batch in self._batches(parts):
                if writer is None:
                    name = f"rows-{len(files):05d}.parquet"
                    writer, count = BatchTable(self.folder.paths.work / name, batch.schema), 0
                writer.write(batch)
                count += len(batch)
                if count >= _ROWS_PER_FILE and not self.folder.paths.single:
                    writer.commit()
                    writer = None
                    files.append((name, count))
            if writer is not None:
                writer.commit()
                files.append((name, count))
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise
        return files

    def _batches(self, parts: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Give the rows with their sides, in order, some thousands at a time."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for part in parts:
            with open_parquet(self.settings.work / part) as file:
                table = file.read()
            waiting += table.to_batches()
            rows += table.num_rows
            if rows >= _ROWS_PER_GROUP:
                yield self._divided(waiting)
                waiting, rows = [], 0
        if waiting:
            yield self._divided(waiting)

    def _divided(self, batches: Sequence[Any]) -> pa.RecordBatch:
        import pyarrow as pa

        [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
        sides = assign_sides(read_digests(batch.column("body_digest")), self.fractions, self.seed)
        return with_split(batch, [SIDES[side] for side in sides.tolist()])

    def report(self, rows: Sequence[ModuleSizes], seconds: float) -> SizesReport:
        """Sum up."""
        ok = [row for row in rows if row.status == STATUS_OK]
        failed = [row for row in rows if row.status != STATUS_OK]
        statuses, split, digests = _read_back(self.folder.paths)
        verified = [row for row in ok if row.replay_cpu_s is not None]
        return SizesReport(
            output=self.folder.paths.root,
            compiler=self.toolchain.vendor or "",
            modules=len(rows),
            sized=len(ok),
            counts=dict(Counter(row.reason for row in rows).most_common()),
            functions=sum(row.functions for row in ok),
            labelled=sum(row.labelled for row in ok),
            statuses=statuses,
            faithful=sum(bool(row.faithful) for row in ok) if self.settings.snapshot.verify else None,
            code_size=sum(row.code_size or 0 for row in ok),
            explained_size=sum(row.explained_size or 0 for row in ok),
            split=split,
            leakage=expected_leakage(digests, self.fractions),
            cpu_s=sum(row.cpu_s or 0.0 for row in rows),
            replay_cpu_s=sum(row.replay_cpu_s or 0.0 for row in verified) if verified else None,
            resumed=self.resumed,
            unchanged=self.folder.is_whole,
            problems=tuple((row.module, row.reason, row.detail) for row in failed[:_PROBLEMS]),
            seconds=seconds,
        )


def _lost(item: SizingItem, lost: Lost) -> SizedModule:
    """Say of a module that its worker died."""
    reason = "timeout" if lost.timed_out else "worker_died"
    return SizedModule(ModuleSizes(item.module.name, STATUS_FAILED, reason, lost.detail), None, ())


def read_digests(column: pa.Array) -> NDArray[np.uint64]:
    """Give the first 64 bits of each body's digest."""
    return np.array([int(text[:16], 16) for text in column.to_pylist()], np.uint64)


def _read_back(paths: DatasetPaths) -> tuple[dict[str, int], dict[str, int], NDArray[np.uint64]]:
    """Count the table's rows by status and by side, and give their digests."""
    statuses: Counter[str] = Counter()
    sides: Counter[str] = Counter()
    digests = [np.zeros(0, np.uint64)]
    for path in paths.parts():
        with read_parquet(path) as file:
            for batch in file.iter_batches(columns=["status", "split", "body_digest"]):
                statuses.update(batch.column("status").to_pylist())
                sides.update(batch.column("split").to_pylist())
                digests.append(read_digests(batch.column("body_digest")))
    return dict(statuses.most_common()), {side: sides[side] for side in SIDES}, np.concatenate(digests)
