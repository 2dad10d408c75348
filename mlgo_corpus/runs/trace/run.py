"""One trace of a corpus: which modules must run, the workers, the dataset, and the report on it."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import islice, starmap
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus.compilers.choose import INTERACTIVE, TRAINING_LOG, build_with
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.groups import UNOPTIMISED, ModuleLabels, languages_of, unoptimised_hint
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.corpus.scan import iter_duplicates
from mlgo_corpus.corpus.select import newest_producer
from mlgo_corpus.dataset.folder import DatasetFolder
from mlgo_corpus.dataset.logs import LogFile, log_name
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.tracetable import REWARD_EPSILON, SPEED_LEVELS, TRACE_KIND, TraceRow, write_trace_rows
from mlgo_corpus.dataset.writer import WriteOptions
from mlgo_corpus.engine.choice import EngineChoice
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.names import BITCODE_SUFFIX, THINLTO_INDEX_SUFFIX
from mlgo_corpus.files.text import counted, printable
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import INLINING
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.conversation import MISPLACED_DEFAULT, asks_default
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.policy import is_own_code
from mlgo_corpus.runs.datasets.convert import LogConversion
from mlgo_corpus.runs.over import Job, Over
from mlgo_corpus.runs.report import Report
from mlgo_corpus.runs.trace.module import (
    TracedModule,
    TraceItem,
    TraceJob,
    TraceSettings,
    calls_of,
    has_copies,
    header_of,
)

_SLOWEST = 5
# The most duplicates in dataset.json: it must stay smaller than the largest note that is read.
_MOST_DUPLICATES = 100_000
# A policy that has failed in so many modules, and decided in none, would fail in all of them.
_POLICY_FAILURES = 5
_REMEDIES = {
    RunReason.TIMEOUT: "a longer `timeout` gives them time; with a dataset that is whole, add `force`",
    RunReason.MEMORY_LIMIT: "a higher `memory_limit` gives them room; with a dataset that is whole, add `force`",
    RunReason.NEWER_BITCODE: "",
    RunReason.UNKNOWN_OPTION: "`delete_flags` takes an option out of every command, ",
}
# The end of the advice for the reasons that another compiler would remove.
_COMPILERS = {
    RunReason.NEWER_BITCODE: "`compiler` names a clang of the corpus's LLVM or newer",
    RunReason.UNKNOWN_OPTION: "`compiler` names another clang",
}
_MISPLACED = (
    "This LLVM (17 to 20) tells the heuristic's decision in the place of callee_basic_block_count. It was put into "
    "inlining_default, where it belongs; callee_basic_block_count is 0 because it is not known."
)
_LEFT_OUT = (
    "This LLVM (17 to 20) cannot send both the heuristic's decision and callee_basic_block_count. The policy needs the "
    "latter, so that there is no inlining_default."
)
_NO_SCORE = (
    "The compiler's own score (reward in training logs) is not told in a live session, so there is no such column."
)


@dataclass(frozen=True, slots=True)
class LevelSizes:
    """The modules of one optimisation level that had something to decide, and what became of their sizes.

    Attributes:
        opt_level: the level, see ``opt_level`` of `mlgo_corpus.dataset.tracetable`; None if it is unknown.
        modules: their number.
        observations: their decisions.
        text_size: bytes of their objects' text; ``baseline_text_size`` of the plain compiles' objects.
    """

    opt_level: str | None
    modules: int
    observations: int
    text_size: int
    baseline_text_size: int


@dataclass(frozen=True, slots=True)
class TraceReport(Report):
    """The outcome of a trace.

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
        levels: the same of the modules that had something to decide, by optimisation level, most modules first.
        undecided: modules that had nothing to decide, with ``undecided_text_size`` bytes of text.
        faithful: modules whose object equals the plain compile's.
        resumed: modules that an earlier, interrupted run had done.
        unchanged: whether the dataset was there already, made in the same way.
        problems: the first failed modules: name, reason and detail.
        slowest: the modules that took longest: name, seconds, decisions.
        caveats: what a user of the dataset has to know.
        hints: what was asked for and had no effect, and what helps against failures.
        seconds: how long it took.
        policy_traceback: of the first exception that the policy raised in this run; empty if it raised none.
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
    levels: tuple[LevelSizes, ...]
    undecided: int
    undecided_text_size: int
    faithful: int
    resumed: int
    unchanged: bool
    problems: tuple[tuple[str, str, str], ...]
    slowest: tuple[tuple[str, float, int], ...]
    caveats: tuple[str, ...]
    hints: tuple[str, ...]
    seconds: float
    policy_traceback: str = ""
    _properties: ClassVar = ("failed", "exit_code")

    @property
    def failed(self) -> int:
        """How many modules are not in the dataset."""
        return self.modules - self.traced


class NothingTracedError(MlgoCorpusError):
    """No module is left to make a dataset of; nothing of the trace is kept, so that the next one begins anew.

    Attributes:
        of_policy: whether the policy failed, so that another one may do better.
    """

    of_policy = False


class _Totals:
    """The sums over a trace's rows, counted as they come."""

    def __init__(self, labels: ModuleLabels) -> None:
        self.modules = 0
        self.ok = 0
        self.reasons: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.faithful = 0
        self.bare = 0
        self.undecided = 0
        self.unoptimised = 0
        self.split_anew = 0
        self.failed: list[TraceRow] = []
        self.example: TraceRow | None = None
        self._labels = labels
        self._levels: dict[str | None, Counter[str]] = defaultdict(Counter)
        self._slowest: list[tuple[float, int, str, int]] = []

    def see(self, row: TraceRow, settings: TraceSettings | None = None) -> TraceRow:
        """Count a row; with settings, compare one of a dataset that was there with what is wanted now."""
        self.modules += 1
        self.reasons[row.reason] += 1
        if row.wall_s:
            slow = (row.wall_s, -self.modules, row.module, row.observations)
            (heapq.heappush if len(self._slowest) < _SLOWEST else heapq.heappushpop)(self._slowest, slow)
        if row.status != STATUS_OK:
            if len(self.failed) < _SLOWEST:
                self.failed.append(row)
            return row
        self.ok += 1
        for name in ("contexts", "observations", "unmet", "text_size", "baseline_text_size"):
            self.sums[name] += getattr(row, name) or 0
        if row.observations:
            if self.example is None and row.argv:
                self.example = row
            level = self._levels[row.opt_level]
            level["modules"] += 1
            for name in ("observations", "text_size", "baseline_text_size"):
                level[name] += getattr(row, name) or 0
        else:
            self.undecided += 1
            self.sums["undecided_text_size"] += row.text_size or 0
            self.unoptimised += row.opt_level == UNOPTIMISED or self._labels.is_unoptimised(row.module)
        self.faithful += bool(row.faithful)
        if settings is not None:
            self.bare += not has_copies(settings, row)
            self.split_anew += row.split != self._labels.side(row.module)
        return row

    @property
    def levels(self) -> tuple[LevelSizes, ...]:
        """The sums of the modules that had something to decide, by optimisation level, most modules first."""
        ranked = sorted(self._levels.items(), key=lambda item: (-item[1]["modules"], item[0] or ""))
        return tuple(LevelSizes(level, **sums) for level, sums in ranked)

    @property
    def slowest(self) -> tuple[tuple[str, float, int], ...]:
        """The modules that took longest."""
        return tuple((module, wall_s, count) for wall_s, _, module, count in sorted(self._slowest, reverse=True))


class Trace:
    """One trace under way."""

    copies_remedy = "`force` makes it again"

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
        job: Job[Any, TracedModule] | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.toolchain = toolchain
        self.corpus = corpus
        self.names = names
        self.jobs = jobs
        self.engine = engine
        self.progress = progress
        self.labels = ModuleLabels.of(corpus)
        self.totals = _Totals(self.labels)
        self.traceback = ""
        self._policy_failed = False
        self._over: Over[Any, TracedModule] = Over(
            job or TraceJob(settings),
            self.items,
            len(names),
            jobs=jobs,
            engine=self.engine_of_policies,
            needs=corpus.on_this_machine(),
        )
        self._header = lru_cache(partial(header_of, settings.work))

    def run(self) -> None:
        """Run what is not done yet, and make the dataset."""
        self.folder.begin()
        try:
            with writing(self.settings.work):
                usual = self._trace() or self._unasked()
            if usual is None:
                raise self._nothing_traced(self._nothing())
            self._finish(usual)
        except NothingTracedError:
            self.folder.discard()
            raise
        except UsageError:  # such as a cluster that is gone, also in the middle of a run
            self.folder.discard_unless_begun()
            raise

    def read(self, rows: Iterable[TraceRow]) -> None:
        """Count the rows of a dataset that is there."""
        for row in rows:
            self.totals.see(row, self.settings)

    def items(self) -> Iterator[Any]:
        """Yield the modules to run."""
        return starmap(TraceItem, enumerate(self.corpus.modules(self.names)))

    def _trace(self) -> LogHeader | None:
        """Run the modules; return the header that most of the logs have, None without logs."""
        failed = decisions = failed_policies = 0
        headers: Counter[LogHeader] = Counter()
        for finished, outcome in enumerate(self._over.outcomes(), 1):
            failed += outcome.row.status != STATUS_OK
            decisions += self.progress_of(outcome)
            if outcome.row.reason == RunReason.POLICY_ERROR:
                failed_policies += 1
                self._policy_failed = True
                self.traceback = self.traceback or outcome.traceback
                if failed_policies == _POLICY_FAILURES and not decisions and not self._over.resumed:
                    raise self._useless_policy(outcome.row, finished)
            if outcome.header is not None:
                headers[self._header(outcome.header)] += 1
            if self.progress is not None:
                self.progress(finished, failed, decisions, len(self.names))
        return headers.most_common(1)[0][0] if headers else None

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies that workers run."""
        return (self.settings.policy,)

    @property
    def engine_of_policies(self) -> EngineChoice:
        """Where policies run."""
        return replace(self.engine, may_fork=self.engine.may_fork and not any(map(is_own_code, self.policies)))

    @cached_property
    def _with_languages(self) -> LearnedPolicy | None:
        """The policy, if it decides in some languages only."""
        policy = self.settings.learned
        return policy if policy is not None and policy.languages else None

    def _unasked(self) -> LogHeader | None:
        """Return the header of a dataset without decisions, where the policy decides in other languages only.

        Its objects and sizes are of use all the same. None if all modules failed, or it decides in all.
        """
        policy = self._with_languages
        if policy is None or not any(run.row.status == STATUS_OK for run in self._over.again()):
            return None
        decision = TensorSpec(self.settings.the_task.decision, policy.decision_type)
        return LogHeader((*policy.features, decision))

    def progress_of(self, outcome: TracedModule) -> int:
        """Return what a module adds to the number that progress shows: its decisions."""
        return outcome.decisions

    def tables(self, header: LogHeader) -> list[tuple[Path, Path]]:  # noqa: ARG002 - a stage on top needs it
        """Make further tables; return each one's path and its place in the dataset."""
        return []

    def _nothing_traced(self, message: str) -> NothingTracedError:
        """Return the error, with the traceback of the policy that is to blame, if one is."""
        error = NothingTracedError(message)
        error.of_policy = self._policy_failed
        if self.traceback:
            error.add_note(self.traceback)
        return error

    def _useless_policy(self, row: TraceRow, finished: int) -> NothingTracedError:
        return self._nothing_traced(
            f"stopped after {finished} of {counted(len(self.names), 'module')}, because the policy failed in all "
            f"{_POLICY_FAILURES} that asked it: {row.module}: {row.detail}"
        )

    def traced(self, usual: LogHeader) -> Iterator[TracedModule]:
        """Yield the outcomes again; runs whose log has other features than most are failures."""
        for outcome in self._over.again():
            header = None if outcome.header is None else self._header(outcome.header)
            if header is None or header == usual:
                yield outcome
            else:
                detail = f"other features than the other modules: {usual.difference(header)}"
                yield TracedModule(outcome.row.failed(RunReason.OTHER_HEADER, detail))

    def _finish(self, usual: LogHeader) -> None:
        """Make a dataset of the runs' logs and rows."""
        conversion = LogConversion(
            self.folder,
            usual,
            options=WriteOptions("zstd", None, None, single=False),
            allow_truncated=False,
            jobs=self.jobs,
            engine=self.engine,
            with_calls=self.settings.with_calls,
        )
        rows = map(self.totals.see, map(self._labelled, self._rows(usual, conversion)))
        with writing(self.settings.work):
            write_trace_rows(conversion.modules, rows, conversion.metadata)
        conversion.finish(self.about(usual), tables=self.tables(usual))

    def _rows(self, usual: LogHeader, conversion: LogConversion) -> Iterator[TraceRow]:
        logs = conversion.rows(lambda: map(self._log_file, filter(lambda run: run.log is not None, self.traced(usual))))
        for run in self.traced(usual):  # the logs are in the runs' order; names may be equal once they are printable
            yield run.row if run.log is None else run.row.with_log(next(logs))
        for _ in logs:
            raise AssertionError("a row for each log")

    def _labelled(self, row: TraceRow) -> TraceRow:
        return row._replace(project=self.labels.project(row.module), split=self.labels.side(row.module))

    def _log_file(self, run: TracedModule) -> LogFile:
        path = self.settings.work / str(run.log)
        calls = str(calls_of(self.settings.work, path.name)) if self.settings.with_calls else None
        return LogFile(str(path), log_name(run.row.module), printable(run.row.module), run.log_size, calls)

    def _nothing(self) -> str:
        totals = _Totals(self.labels)
        for outcome in self._over.again():
            totals.see(outcome.row)
        modules = counted(totals.modules, "module")
        if not totals.failed:
            why = (unoptimised_hint(totals.unoptimised, totals.modules),) if totals.unoptimised else ()
            what = f"in {modules} the compiler found nothing to decide: there is no dataset to make"
            return "; ".join((what, *why))
        counts = Counter({reason: count for reason, count in totals.reasons.items() if reason != RunReason.OK})
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
        remedies = dict.fromkeys(self._remedy(reason) for reason in _REMEDIES if counts[reason])
        first = f"{totals.failed[0].module}: {totals.failed[0].detail}"
        return f"not one of {modules} could be traced ({reasons}): {'; '.join((first, *remedies))}"

    def about(self, header: LogHeader) -> dict[str, Any]:
        """Return the content of ``dataset.json``."""
        totals = self.totals
        return {
            "kind": TRACE_KIND,
            "task": self.settings.task,
            "via": self.settings.via,
            "policy": self.settings.policy,
            "seed": self.settings.seed,
            "names": self.settings.with_calls,
            "compiler": self.toolchain.vendor,
            "compiler_sha256": self.settings.compiler_id,
            "argv": self._example(),
            "corpus": self.corpus.name,
            "corpus_sha256": self.folder.key["corpus"],
            "measure": "text_size",
            "epsilon": REWARD_EPSILON,
            "modules": totals.modules,
            "failed": totals.modules - totals.ok,
            "contexts": totals.sums["contexts"],
            "observations": totals.sums["observations"],
            "faithful": totals.faithful,
            "caveats": list(self.caveats()),
            "header": header.line.decode(),
            "duplicates": self._duplicates(),
        }

    def _duplicates(self) -> dict[str, str]:
        """Return the modules that are the same as others, by the names that the corpus left out."""
        if not (found := dict(islice(iter_duplicates(self.corpus), _MOST_DUPLICATES))):
            return {}
        traced = frozenset(self.names)
        return {name: module for name, module in found.items() if module in traced}

    def _example(self) -> list[str] | None:
        """Return the command of the first module with decisions, without this machine's names in it."""
        row = self.totals.example
        if row is None or row.argv is None:
            return None
        (module,) = self.corpus.modules((row.module,))  # a look-up by name would hold a set of all names
        bitcode, index = module.name + BITCODE_SUFFIX, module.name + THINLTO_INDEX_SUFFIX
        names = {f"{module.location}/{bitcode}": bitcode}
        names[f"-fthinlto-index={module.location}/{index}"] = f"-fthinlto-index={index}"
        return [names.get(word, word) for word in (Path(row.argv[0]).name, *row.argv[1:])]

    def caveats(self) -> tuple[str, ...]:
        """Return what a user of the dataset has to know."""
        if self.settings.via != INTERACTIVE:
            return ()
        if self.settings.task != INLINING:
            return (_NO_SCORE,)
        settings = self.settings
        if settings.major not in MISPLACED_DEFAULT:
            return ()
        return (_MISPLACED if asks_default(settings.learned, settings.the_task, settings.major) else _LEFT_OUT,)

    def report(self, hints: Sequence[str], seconds: float) -> TraceReport:
        """Sum up."""
        totals = self.totals
        return TraceReport(
            output=self.folder.paths.root,
            task=self.settings.task,
            via=self.settings.via,
            policy=self.settings.policy,
            compiler=self.toolchain.vendor or "",
            modules=totals.modules,
            traced=totals.ok,
            counts={str(reason): count for reason, count in totals.reasons.most_common()},
            observations=totals.sums["observations"],
            contexts=totals.sums["contexts"],
            text_size=totals.sums["text_size"],
            baseline_text_size=totals.sums["baseline_text_size"],
            levels=totals.levels,
            undecided=totals.undecided,
            undecided_text_size=totals.sums["undecided_text_size"],
            faithful=totals.faithful,
            resumed=self._over.resumed,
            unchanged=self.folder.is_whole,
            problems=tuple((row.module, str(row.reason), row.detail) for row in totals.failed),
            slowest=totals.slowest,
            caveats=self.caveats(),
            hints=(*hints, *self._hints()),
            seconds=seconds,
            policy_traceback=self.traceback,
        )

    def _hints(self) -> Iterator[str]:
        totals = self.totals
        if totals.unoptimised:
            yield unoptimised_hint(totals.unoptimised, totals.modules)
        for_speed = [level for level in totals.levels if level.opt_level in SPEED_LEVELS]
        if for_speed and self.settings.task == INLINING and self.settings.policy != "default":
            modules = counted(sum(level.modules for level in for_speed), "module")
            listed = ", ".join(f"-O{level.opt_level}" for level in for_speed)
            yield (
                f"reward is about size, and in {modules} ({listed}) LLVM's heuristic inlines for speed: a policy that "
                "inlines less looks better than it is; compare policies at -Oz or -Os"
            )
            if self.settings.learned is not None:
                yield (
                    f"in {modules} ({listed}) a wrapped clang does not ask the policy: build at -Oz or -Os, or wrap "
                    "with `always`"
                )
        if self._with_languages is not None and totals.undecided > totals.unoptimised:
            decided = self._with_languages.languages
            if not {*languages_of(self.corpus, self.names)} <= {*decided}:
                languages = " and ".join(decided)
                yield f"the policy decides in {languages} only: modules of other languages are compiled as without it"
        if unmet := totals.sums["unmet"]:
            most = ": it is of another build, or another compiler" if 2 * unmet > totals.sums["observations"] else ""
            yield (
                f"{unmet} of {counted(totals.sums['observations'], 'decision')} were not in the policy's dataset, and "
                f"were LLVM's own{most}"
            )
        if totals.split_anew:
            yield "the corpus was split after this dataset was made: `force` makes it again, with the new sides"
        if bare := self.totals.bare:
            have = "1 module has" if bare == 1 else f"{bare} modules have"
            yield f"{have} no copy where copies are to be kept: the dataset was there already; {self.copies_remedy}"
        for reason in _REMEDIES:
            if count := self.totals.reasons[reason]:
                yield f"{reason} of {counted(count, 'module')}: {self._remedy(reason)}"

    def _remedy(self, reason: RunReason) -> str:
        """Return what helps; a newer compiler is no help where only a development-mode one writes training logs."""
        another = _COMPILERS.get(reason, "")
        if another and self.settings.via == TRAINING_LOG:
            producer = newest_producer(self.corpus, self.names) or 0
            another = build_with(self.settings.major) if producer > self.settings.major else another
        return _REMEDIES[reason] + another
