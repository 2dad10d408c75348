"""One table of functions and their native sizes: the workers, the table, and the report on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus import __version__
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.corpus.split.rows import RowDivision
from mlgo_corpus.corpus.split.sides import SIDES, expected_leakage
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths
from mlgo_corpus.dataset.sizes.card import sizes_card
from mlgo_corpus.dataset.sizes.table import (
    PREDICTED,
    SIZES_KIND,
    ModuleSizes,
    describe_columns,
    with_split,
    write_module_sizes,
)
from mlgo_corpus.engine.choice import EngineChoice
from mlgo_corpus.errors import MlgoCorpusError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.tables import BatchTable, read_batch, read_parquet
from mlgo_corpus.files.text import counted
from mlgo_corpus.policies.sizes.model import SizeModel
from mlgo_corpus.runs.datasets.convert import publish_dataset
from mlgo_corpus.runs.over import Over
from mlgo_corpus.runs.report import Report
from mlgo_corpus.runs.sizes.rows import SizedModule, SizingItem, SizingJob

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_PER_FILE = 1 << 18
# Rows of some small modules are written together.
_ROWS_PER_GROUP = 1 << 14
_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class SizesReport(Report):
    """The outcome of making a table of functions.

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
        split_by: ``module`` if the corpus's split decides for each function's module, else ``body``.
        leaking: the share of test rows that have an equal row in train; 0 if bodies decide.
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
    split_by: str
    leaking: float
    leakage: float
    cpu_s: float
    replay_cpu_s: float | None
    resumed: int
    unchanged: bool
    problems: tuple[tuple[str, str, str], ...]
    seconds: float
    _properties: ClassVar = ("failed", "exit_code")

    @property
    def failed(self) -> int:
        """How many modules are not in the table."""
        return self.modules - self.sized


class _Totals:
    """The sums over the modules' rows, counted as they come."""

    def __init__(self) -> None:
        self.modules = 0
        self.ok = 0
        self.parts = 0
        self.reasons: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.cpu_s = 0.0
        self.replay_cpu_s: float | None = None
        self.faithful = 0
        self.failed: list[ModuleSizes] = []
        self.properties: tuple[str, ...] = ()

    def see(self, row: ModuleSizes) -> ModuleSizes:
        """Count a row."""
        self.modules += 1
        self.reasons[row.reason] += 1
        self.cpu_s += row.cpu_s or 0.0
        if row.status != STATUS_OK:
            if len(self.failed) < _PROBLEMS:
                self.failed.append(row)
            return row
        self.ok += 1
        for name in ("functions", "labelled", "code_size", "explained_size"):
            self.sums[name] += getattr(row, name) or 0
        self.faithful += bool(row.faithful)
        if row.replay_cpu_s is not None:
            self.replay_cpu_s = (self.replay_cpu_s or 0.0) + row.replay_cpu_s
        return row


class SizesTable:
    """One table under way."""

    def __init__(
        self,
        folder: DatasetFolder,
        job: SizingJob,
        toolchain: Toolchain,
        corpus: Corpus,
        names: Sequence[str],
        jobs: int | None,
        division: RowDivision,
        engine: EngineChoice,
        progress: Callable[[int, int, int, int], None] | None,
        model: SizeModel | None = None,
    ) -> None:
        self.model = model
        self.folder = folder
        self.job = job
        self.toolchain = toolchain
        self.corpus = corpus
        self.names = names
        self.division = division
        self.progress = progress
        self.totals = _Totals()
        self._over = Over(job, self._items, len(names), jobs=jobs, engine=engine, needs=corpus.on_this_machine())

    def run(self) -> None:
        """Run what is not done yet, and put the table together."""
        self.folder.begin()
        with writing(self.job.work):
            for outcome in self._over.outcomes():
                self._see(outcome)
            if not self.totals.parts:
                self.folder.discard()
                raise MlgoCorpusError(self._nothing())
            self._finish()

    def read(self, rows: Iterable[ModuleSizes]) -> None:
        """Count the rows of a table that is there."""
        for row in rows:
            self.totals.see(row)

    def _items(self) -> Iterator[SizingItem]:
        return starmap(SizingItem, enumerate(self.corpus.modules(self.names)))

    def _see(self, outcome: SizedModule) -> None:
        totals = self.totals
        totals.see(outcome.row)
        totals.parts += outcome.part is not None
        totals.properties = totals.properties or outcome.properties
        if self.progress is not None:
            failed = totals.modules - totals.ok
            self.progress(totals.modules, failed, totals.sums["functions"], len(self.names))

    def _nothing(self) -> str:
        totals = self.totals
        modules = counted(totals.modules, "module")
        if not totals.failed:
            return f"in {modules} there is no function: there is no table to make"
        counts = Counter({reason: count for reason, count in totals.reasons.items() if reason != "ok"})
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
        first = f"{totals.failed[0].module}: {totals.failed[0].detail}"
        return f"not one of {modules} has come through ({reasons}): {first}"

    def _finish(self) -> None:
        """Put the table together: the rows of all modules in order, each with its side."""
        paths = self.folder.paths
        work = paths.work
        files = self._write_rows(outcome.part for outcome in self._over.again() if outcome.part is not None)
        moves = [(work / name, paths.part(number, len(files))) for number, (name, _) in enumerate(files)]
        modules = work / "modules.parquet"
        rows = (outcome.row for outcome in self._over.again())
        write_module_sizes(modules, rows, {"tool": "mlgo-corpus", "version": __version__, "key": self.folder.key})
        totals = self.totals
        about = {
            "tool": "mlgo-corpus",
            "version": __version__,
            "kind": SIZES_KIND,
            "compiler": self.toolchain.vendor,
            "compiler_sha256": self.folder.key["compiler"]["sha256"],
            "snapshot": self.job.settings.snapshot,
            **({} if self.model is None else {"model": self.model.name}),
            "features": list(self.job.columns.groups),
            "split_by": self.division.by,
            "fractions": None if self.division.modules else list(self.division.fractions),
            "seed": self.division.seed,
            "corpus": self.corpus.name,
            "corpus_sha256": self.folder.key["corpus"],
            "modules": totals.modules,
            "failed": totals.modules - totals.ok,
            "functions": totals.sums["functions"],
            "labelled": totals.sums["labelled"],
            "files": [
                {"name": str(place.relative_to(paths.folder)), "rows": count}
                for (_, place), (_, count) in zip(moves, files, strict=True)
            ],
        }
        card = sizes_card(about, self.job.columns, totals.properties)
        publish_dataset(self.folder, moves, [(modules, paths.modules)], about, card)

    def _write_rows(self, parts: Iterable[str]) -> list[tuple[str, int]]:
        """Write the files of rows; return their names in the work folder and how many rows each has."""
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

    def _batches(self, parts: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with their sides, in order, some thousands at a time."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for part in parts:
            waiting.append(read_batch(self.job.work / part))
            rows += len(waiting[-1])
            if rows >= _ROWS_PER_GROUP:
                yield self._divided(waiting)
                waiting, rows = [], 0
        if waiting:
            yield self._divided(waiting)

    def _divided(self, batches: Sequence[Any]) -> pa.RecordBatch:
        import pyarrow as pa

        [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
        modules, digests = batch.column("module").to_pylist(), _read_digests(batch.column("body_digest"))
        meanings = dict(describe_columns(self.job.columns, self.totals.properties))
        predicted: dict[str, pa.Array] = {}
        if self.model is not None:
            sizes = self.model.predict(batch)
            predicted = {name: pa.array(values) for name, values in zip(PREDICTED, sizes, strict=True)}
        return with_split(batch, self.division.sides(modules, digests), meanings, predicted)

    def report(self, seconds: float) -> SizesReport:
        """Sum up."""
        totals = self.totals
        statuses, sides, digests = _read_back(self.folder.paths)
        split = {side: int((sides == number).sum()) for number, side in enumerate(SIDES)}
        train = split["train"] / max(sum(split.values()), 1) if self.division.modules else self.division.fractions[0]
        test = sides == SIDES.index("test")
        return SizesReport(
            output=self.folder.paths.root,
            compiler=self.toolchain.vendor or "",
            modules=totals.modules,
            sized=totals.ok,
            counts=dict(totals.reasons.most_common()),
            functions=totals.sums["functions"],
            labelled=totals.sums["labelled"],
            statuses=statuses,
            faithful=totals.faithful if self.job.settings.verify else None,
            code_size=totals.sums["code_size"],
            explained_size=totals.sums["explained_size"],
            split=split,
            split_by=self.division.by,
            leaking=float(np.isin(digests[test], digests[sides == 0]).mean()) if test.any() else 0.0,
            leakage=expected_leakage(digests, (train,)),
            cpu_s=totals.cpu_s,
            replay_cpu_s=totals.replay_cpu_s,
            resumed=self._over.resumed,
            unchanged=self.folder.is_whole,
            problems=tuple((row.module, row.reason, row.detail) for row in totals.failed),
            seconds=seconds,
        )


def _read_digests(column: pa.Array) -> NDArray[np.uint64]:
    """Return the first 64 bits of each body's digest."""
    return np.array([int(text[:16], 16) for text in column.to_pylist()], np.uint64)


def _read_back(paths: DatasetPaths) -> tuple[dict[str, int], NDArray[np.int8], NDArray[np.uint64]]:
    """Count the table's rows by status; return them and each row's side, by number or -1, and digest."""
    statuses: Counter[str] = Counter()
    numbers = {side: number for number, side in enumerate(SIDES)}
    sides = [np.zeros(0, np.int8)]
    digests = [np.zeros(0, np.uint64)]
    for path in paths.parts():
        with read_parquet(path) as file:
            for batch in file.iter_batches(columns=["status", "split", "body_digest"]):
                statuses.update(batch.column("status").to_pylist())
                sides.append(np.array([numbers.get(side, -1) for side in batch.column("split").to_pylist()], np.int8))
                digests.append(_read_digests(batch.column("body_digest")))
    return dict(statuses.most_common()), np.concatenate(sides), np.concatenate(digests)
