"""One trace of a corpus: which modules must run, the workers, the dataset, and the report on it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlgo_corpus.compilers.choose import INTERACTIVE
from mlgo_corpus.compilers.confinement import try_walls
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.folder import DatasetFolder
from mlgo_corpus.dataset.logs import HeaderReader, LogFile, log_name
from mlgo_corpus.dataset.tracetable import (
    REWARD_EPSILON,
    TRACE_KIND,
    TraceReason,
    TraceRow,
    status_of,
    write_trace_rows,
)
from mlgo_corpus.dataset.writer import WriteOptions
from mlgo_corpus.engine.choice import EngineChoice, Lost
from mlgo_corpus.engine.map import resumed_map
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.names import BITCODE_SUFFIX, THINLTO_INDEX_SUFFIX
from mlgo_corpus.files.text import counted, os_reason, printable
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import INLINING
from mlgo_corpus.policies.conversation import MISPLACED_DEFAULT
from mlgo_corpus.runs.datasets.convert import ConvertedLogs, convert_logs_into
from mlgo_corpus.runs.trace.module import TracedModule, TraceItem, TraceSettings, has_copies, read_traced, trace_module

# Of an item's time, what is not the compiler's: reading, compressing, a busy machine.
_SLACK_S = 120.0
_SLOWEST = 5
_REMEDIES = {
    TraceReason.TIMEOUT: "a longer --timeout gives them time; with a dataset that is whole, add --force",
    TraceReason.MEMORY_LIMIT: "a higher --memory-limit gives them room; with a dataset that is whole, add --force",
    TraceReason.NEWER_BITCODE: "--compiler names a clang of the corpus's LLVM or newer",
    TraceReason.UNKNOWN_OPTION: "--delete-flag takes an option out of every command, --compiler names another clang",
}
_MISPLACED = (
    "This LLVM (17 to 20) tells the heuristic's decision in the place of callee_basic_block_count. It was put into "
    "inlining_default, where it belongs; callee_basic_block_count is 0 because it is not known."
)
_NO_SCORE = (
    "The compiler's own score (reward in training logs) is not told in a live session, so there is no such column."
)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What a trace did.

    Attributes:
        output: the dataset, or its URL.
        task: whose decisions.
        via: how they were seen: ``training-log`` or ``interactive``.
        policy: who decided.
        compiler: its version line.
        modules: modules chosen; of them ``traced`` are in the dataset.
        counts: modules by reason.
        observations: decisions in the dataset, in ``contexts`` contexts.
        text_size: bytes of all objects' text; ``baseline_text_size`` of the plain compiles' objects.
        faithful: modules whose object equals the plain compile's.
        resumed: modules that an earlier, interrupted run had done.
        unchanged: whether the dataset was there already, made in the same way.
        problems: the first failed modules: name, reason and detail.
        slowest: the modules that took longest: name, seconds, decisions.
        caveats: what a user of the dataset has to know.
        hints: what was asked for and had no effect, and what helps against failures.
        seconds: how long it took.
    """

    output: Path | str
    task: str
    via: str
    policy: str
    compiler: str
    modules: int
    traced: int
    counts: dict[str, int]
    observations: int
    contexts: int
    text_size: int
    baseline_text_size: int
    faithful: int
    resumed: int
    unchanged: bool
    problems: tuple[tuple[str, str, str], ...]
    slowest: tuple[tuple[str, float, int], ...]
    caveats: tuple[str, ...]
    hints: tuple[str, ...]
    seconds: float

    @property
    def failed(self) -> int:
        """How many modules are not in the dataset."""
        return self.modules - self.traced

    def as_json(self) -> dict[str, Any]:
        """Give the report as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "output": str(self.output), "failed": self.failed}


def _lost(item: TraceItem, lost: Lost) -> TracedModule:
    """Say of a module that its worker died."""
    reason = TraceReason.TIMEOUT if lost.timed_out else TraceReason.WORKER_DIED
    return TracedModule(TraceRow(item.module.name, status_of(reason), reason.value, lost.detail), None, 0)


class _NothingTracedError(MlgoCorpusError):
    """No module is left to make a dataset of; nothing of the trace is kept, so that the next one begins anew."""


class Trace:
    """One trace under way."""

    def __init__(
        self,
        folder: DatasetFolder,
        settings: TraceSettings,
        toolchain: Toolchain,
        corpus: Corpus,
        names: Sequence[str],
        jobs: int | None,
        engine: EngineChoice,
        progress: Callable[[int, int, int, int], None] | None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.toolchain = toolchain
        self.corpus = corpus
        self.names = names
        self.jobs = jobs
        self.engine = engine
        self.progress = progress
        self.resumed = 0

    def run(self) -> tuple[TraceRow, ...]:
        """Run what is not done yet, make the dataset, and give its rows."""
        self.folder.begin()
        work = self.settings.work
        for left_behind in work.glob("tmp-*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        try:
            traced = list(self._traced())
        except OSError as error:
            raise MlgoCorpusError(f"cannot write {error.filename or work}: {os_reason(error)}") from error
        try:
            return self._finish(traced)
        except (UsageError, _NothingTracedError):
            self.folder.discard()
            raise

    def _traced(self) -> Iterator[TracedModule]:
        """Give what came of each module, in order."""
        items = [TraceItem(number, self.corpus[name]) for number, name in enumerate(self.names)]
        known = [self._known(item) for item in items]
        self.resumed = sum(one is not None for one in known)
        if not self.settings.trusted and self.resumed < len(items):
            try_walls((self.settings.cc1[0],))
        made = resumed_map(
            partial(trace_module, self.settings),
            items,
            known,
            jobs=self.jobs,
            limit=2 * self.settings.timeout * (self.settings.retries + 1) + _SLACK_S,
            lost=_lost,
            engine=self.engine,
            needs=(self.settings.work, *self.corpus.on_this_machine(), self.settings.cc1[0]),
        )
        failed = decisions = 0
        for finished, outcome in enumerate(made, 1):
            failed += outcome.row.status != STATUS_OK
            decisions += outcome.decisions
            if self.progress is not None:
                self.progress(finished, failed, decisions, len(items))
            yield outcome._replace(row=outcome.row.with_shared_text())

    def _known(self, item: TraceItem) -> TracedModule | None:
        """Give what an earlier run kept; not of a failure, which may be over by now: a full disk, a busy machine."""
        known = read_traced(self.settings, item.number, item.module.name)
        if known is None or known.row.status != STATUS_OK:
            return None
        return known._replace(row=known.row.with_shared_text())

    def _finish(self, traced: Sequence[TracedModule]) -> tuple[TraceRow, ...]:
        """Make a dataset of the runs' logs and rows."""
        traced, header = self._same_header(traced)
        logs = [self._log_file(run) for run in traced if run.log is not None]
        if header is None:
            raise _NothingTracedError(self._nothing(traced))
        converted = convert_logs_into(
            self.folder,
            logs,
            header,
            (),
            options=WriteOptions("zstd", None, None, single=False),
            allow_truncated=False,
            jobs=self.jobs,
            engine=self.engine,
            progress=lambda _: None,
        )
        rows = tuple(self._rows(traced, converted))
        about = self._about(rows, header)
        converted.finish(about, lambda path, metadata: write_trace_rows(path, rows, metadata))
        return rows

    def _same_header(self, traced: Sequence[TracedModule]) -> tuple[list[TracedModule], LogHeader | None]:
        """Make runs whose log has other features than most into failures."""
        headers = HeaderReader()
        by_run = [None if run.log is None else headers.read(str(self.settings.work / run.log)) for run in traced]
        counts = Counter(header for header in by_run if header is not None)
        if not counts:
            return list(traced), None
        usual = counts.most_common(1)[0][0]
        same = []
        for run, header in zip(traced, by_run, strict=True):
            if header is None or header == usual:
                same.append(run)
                continue
            detail = f"other features than the other modules: {usual.difference(header)}"
            same.append(TracedModule(run.row.failed(TraceReason.OTHER_HEADER, detail), None, 0))
        return same, usual

    def _log_file(self, run: TracedModule) -> LogFile:
        path = self.settings.work / str(run.log)
        return LogFile(str(path), log_name(run.row.module), printable(run.row.module), path.stat().st_size)

    def _rows(self, traced: Sequence[TracedModule], converted: ConvertedLogs) -> Iterator[TraceRow]:
        logs = iter(converted.rows)  # in the runs' order; names may be the same once they are printable
        for run in traced:
            yield run.row if run.log is None else run.row.with_log(next(logs))

    def _nothing(self, traced: Sequence[TracedModule]) -> str:
        failed = [run.row for run in traced if run.row.status != STATUS_OK]
        if not failed:
            return (
                f"in {counted(len(traced), 'module')} the compiler found nothing to decide: there is no dataset to make"
            )
        counts = Counter(row.reason for row in failed)
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
        remedies = [remedy for reason, remedy in _REMEDIES.items() if counts[reason]]
        first = f"{failed[0].module}: {failed[0].detail}"
        return (
            f"not one of {counted(len(traced), 'module')} could be traced ({reasons}): {'; '.join((first, *remedies))}"
        )

    def _about(self, rows: Sequence[TraceRow], header: LogHeader) -> dict[str, Any]:
        ok = [row for row in rows if row.status == STATUS_OK]
        return {
            "kind": TRACE_KIND,
            "task": self.settings.task,
            "via": self.settings.via,
            "policy": self.settings.policy,
            "seed": self.settings.seed,
            "compiler": self.toolchain.vendor,
            "compiler_sha256": self.settings.compiler_id,
            "argv": self._example(ok),
            "corpus": self.corpus.path.name,
            "corpus_sha256": self.folder.key["corpus"],
            "measure": "text_size",
            "epsilon": REWARD_EPSILON,
            "modules": len(rows),
            "failed": len(rows) - len(ok),
            "contexts": sum(row.contexts for row in ok),
            "observations": sum(row.observations for row in ok),
            "faithful": sum(bool(row.faithful) for row in ok),
            "caveats": list(self.caveats()),
            "header": header.line.decode(),
        }

    def _example(self, rows: Sequence[TraceRow]) -> list[str] | None:
        """Give the command of the first module, without what this machine calls the compiler and the module."""
        row = next((row for row in rows if row.argv), None)
        if row is None or row.argv is None:
            return None
        module = self.corpus[row.module]
        bitcode, index = module.name + BITCODE_SUFFIX, module.name + THINLTO_INDEX_SUFFIX
        names = {f"{module.location}/{bitcode}": bitcode}
        names[f"-fthinlto-index={module.location}/{index}"] = f"-fthinlto-index={index}"
        return [names.get(word, word) for word in (Path(row.argv[0]).name, *row.argv[1:])]

    def caveats(self) -> tuple[str, ...]:
        """Say what a user of the dataset has to know."""
        if self.settings.via != INTERACTIVE:
            return ()
        if self.settings.task != INLINING:
            return (_NO_SCORE,)
        return (_MISPLACED,) if self.settings.major in MISPLACED_DEFAULT else ()

    def report(self, rows: Sequence[TraceRow], hints: Sequence[str], seconds: float) -> TraceReport:
        """Sum up."""
        ok = [row for row in rows if row.status == STATUS_OK]
        slowest = sorted((row for row in rows if row.wall_s), key=lambda row: -(row.wall_s or 0))[:_SLOWEST]
        failed = [row for row in rows if row.status != STATUS_OK]
        return TraceReport(
            output=self.folder.paths.root,
            task=self.settings.task,
            via=self.settings.via,
            policy=self.settings.policy,
            compiler=self.toolchain.vendor or "",
            modules=len(rows),
            traced=len(ok),
            counts=dict(Counter(str(row.reason) for row in rows).most_common()),
            observations=sum(row.observations for row in ok),
            contexts=sum(row.contexts for row in ok),
            text_size=sum(row.text_size or 0 for row in ok),
            baseline_text_size=sum(row.baseline_text_size or 0 for row in ok),
            faithful=sum(bool(row.faithful) for row in ok),
            resumed=self.resumed,
            unchanged=self.folder.is_whole,
            problems=tuple((row.module, str(row.reason), row.detail) for row in failed[:_SLOWEST]),
            slowest=tuple((row.module, row.wall_s or 0.0, row.observations) for row in slowest),
            caveats=self.caveats(),
            hints=(*hints, *self._hints(ok, failed)),
            seconds=seconds,
        )

    def _hints(self, ok: Sequence[TraceRow], failed: Sequence[TraceRow]) -> Iterator[str]:
        if self.folder.is_whole and (bare := sum(not has_copies(self.settings, row) for row in ok)):
            have = "1 module has" if bare == 1 else f"{bare} modules have"
            yield f"{have} no copy where copies are to be kept: the dataset was there already; --force makes it again"
        counts = Counter(row.reason for row in failed)
        for reason, remedy in _REMEDIES.items():
            if count := counts[reason]:
                yield f"{reason} of {count} module{'' if count == 1 else 's'}: {remedy}"
