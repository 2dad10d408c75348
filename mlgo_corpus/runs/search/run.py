"""One search over a corpus: which functions are shared, the modules' searches, the dataset, and the report on it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.products import LinkedModules
from mlgo_corpus.dataset.flips import SearchRow, flip_schema, iter_search_rows, write_search_rows
from mlgo_corpus.dataset.folder import FLIPS_NAME, SEARCH_NAME, DatasetFolder
from mlgo_corpus.dataset.tracetable import TraceRow
from mlgo_corpus.engine.choice import EngineChoice
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.tables import BatchTable, file_metadata, read_batch
from mlgo_corpus.files.text import counted
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.policies.policy import policy_name
from mlgo_corpus.runs.over import Over
from mlgo_corpus.runs.report import Report
from mlgo_corpus.runs.search.module import RoundJob, SearchItem, SearchJob, SearchSettings, SurveyJob, flips_of
from mlgo_corpus.runs.search.rounds import write_counts
from mlgo_corpus.runs.trace.module import TracedModule
from mlgo_corpus.runs.trace.run import LevelSizes, Trace

TEXT: Final = "text"
LINKED: Final = "linked"
FOLDED: Final = "folded"
OBJECTIVES: Final = (TEXT, LINKED, FOLDED)
"""What is made small: each object's text, or what a linker keeps of all of them, without folding or with it."""

# The numbers of compiles after which a report tells what was found.
_AFTER = (10, 25, 50, 100, 200, 400, 800)


@dataclass(frozen=True, slots=True)
class SearchReport(Report):
    """The outcome of a search.

    Attributes:
        corpus: its path or URL.
        output: the dataset, or its URL.
        objective: ``text``, ``linked`` or ``folded``.
        start: the policy whose decisions the search began with.
        also: the policies whose decisions were tried, too.
        compiler: its version line.
        modules: modules chosen; of them ``searched`` are in the dataset.
        counts: modules by reason.
        decisions: in the dataset.
        compiles: of all modules' searches.
        flips: how many were tried.
        kept: decisions that are other than the start policy's.
        text_size: bytes of all objects' text; ``baseline_text_size`` of the plain compiles' objects.
        levels: the same of the modules that had something to decide, by optimisation level, most modules first.
        undecided: modules that had nothing to decide, with ``undecided_text_size`` bytes of text.
        objective_size: the objective of all modules that were searched; ``start_objective`` with the start policy's
            decisions.
        after: the objective of all modules after so many compiles of each, as (compiles, bytes).
        resumed: modules that an earlier, interrupted run had done.
        unchanged: whether the dataset was there already, made in the same way.
        problems: the first failed modules: name, reason and detail.
        hints: what was asked for and had no effect, and what helps against failures.
        seconds: how long it took.
    """

    corpus: Path | str
    output: Path | str
    objective: str
    start: str
    also: tuple[str, ...]
    compiler: str
    modules: int
    searched: int
    counts: dict[str, int]
    decisions: int
    compiles: int
    flips: int
    kept: int
    text_size: int
    baseline_text_size: int
    levels: tuple[LevelSizes, ...]
    undecided: int
    undecided_text_size: int
    objective_size: float
    start_objective: float
    after: tuple[tuple[int, float], ...]
    resumed: int
    unchanged: bool
    problems: tuple[tuple[str, str, str], ...]
    hints: tuple[str, ...]
    seconds: float
    _properties: ClassVar = ("failed", "exit_code")

    @property
    def failed(self) -> int:
        """How many modules are not in the dataset."""
        return self.modules - self.searched


class _Sums:
    """The sums over the modules' searches, counted as they come."""

    def __init__(self) -> None:
        self.compiles = self.flips = self.kept = self.most = 0
        self.objective = self.start_objective = 0.0
        self._after = dict.fromkeys(_AFTER, 0.0)
        self.untried = Counter[str]()

    def add(self, row: SearchRow) -> SearchRow:
        """Count a row, and return it."""
        self.compiles += row.compiles
        self.flips += row.flips
        self.kept += row.kept
        self.most = max(self.most, row.compiles)
        self.objective += row.objective
        self.start_objective += row.baseline_objective
        self.untried.update((row.untried or "").splitlines())
        curve = [_point(point) for point in row.found_after.split()]
        for compiles in _AFTER:
            # The last, not the least: what a later round weighs otherwise may seem larger than what it replaced.
            self._after[compiles] += [row.objective, *(size for count, size in curve if count <= compiles)][-1]
        return row

    def hints(self) -> Iterator[str]:
        """Yield which policies could not be tried, and why."""
        for what, count in self.untried.items():
            yield f"in {counted(count, 'module')} a policy could not be tried: {what}"

    def after(self) -> tuple[tuple[int, float], ...]:
        """Return what the objective was after so many compiles of each module."""
        return (
            *((count, size) for count, size in self._after.items() if count < self.most),
            (self.most, self.objective),
        )


class Search(Trace):
    """One search under way: a trace of what each module's search finds."""

    copies_remedy = "a trace with this dataset as its policy makes them"

    def __init__(
        self,
        folder: DatasetFolder,
        settings: SearchSettings,
        objective: str,
        toolchain: Toolchain,
        corpus: Corpus,
        linked: LinkedModules,
        names: Sequence[str],
        jobs: int | None,
        engine: EngineChoice,
        progress: Callable[[int, int, int, int], None] | None,
    ) -> None:
        self.search = settings
        self.objective = objective
        self._also = tuple(map(policy_name, settings.also))
        self.sums = _Sums()
        self._linked = linked
        self._shown = progress
        self._saved_before: list[int] = []
        super().__init__(
            folder,
            settings.trace,
            toolchain,
            corpus,
            names,
            jobs,
            engine,
            lambda finished, failed, saved, _: self._show(len(settings.budgets), finished, failed, saved),
            job=SearchJob(settings),
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies that workers run."""
        return (self.search.start, *self.search.also)

    def run(self) -> None:
        """Search, and make the dataset."""
        search = self.search
        self.folder.begin()
        with writing(self.settings.work):
            if search.linked:
                self._count(SurveyJob(search), 0, self.corpus.names)
            for number in range(len(search.budgets) - 1):
                self._count(RoundJob(search, number), number + 1, self.names)
        super().run()

    def read(self, rows: Any) -> None:
        """Count the rows of a dataset that is there."""
        super().read(rows)
        for row in iter_search_rows(self.folder.paths.folder / SEARCH_NAME):
            self.sums.add(row)

    def items(self) -> Iterator[SearchItem]:
        """Yield the modules to search."""
        return self._items(self.names)

    def _items(self, names: Sequence[str]) -> Iterator[SearchItem]:
        for number, module in enumerate(self.corpus.modules(names)):
            name = module.name
            yield SearchItem(number, module, self._linked.group(name), self._linked.exports(name))

    def progress_of(self, outcome: TracedModule) -> int:
        """Return the bytes that a module's search saved."""
        return _saved(outcome.row)

    def tables(self, header: LogHeader) -> list[tuple[Path, Path]]:
        """Make the tables of the flips and of the searches."""
        paths = self.folder.paths
        flips, searches = paths.work / FLIPS_NAME, paths.work / SEARCH_NAME
        live = LogHeader(header.features[:-1], advice=header.features[-1])
        schema = flip_schema(live)
        table = BatchTable(flips, schema)
        try:
            for outcome in self.traced(header):
                if outcome.more is not None and outcome.log is not None:
                    batch = read_batch(flips_of(paths.work, outcome.log))
                    if batch.num_rows:
                        table.write(batch)
            table.say(file_metadata(schema, {"tool": "mlgo-corpus", "kind": "flips", "key": self.folder.key}))
            table.commit()
        except BaseException:
            table.abandon()
            raise
        rows = (self.sums.add(outcome.more) for outcome in self.traced(header) if outcome.more is not None)
        write_search_rows(searches, rows, {"tool": "mlgo-corpus", "kind": "search", "key": self.folder.key})
        return [(flips, paths.folder / FLIPS_NAME), (searches, paths.folder / SEARCH_NAME)]

    def about(self, header: LogHeader) -> dict[str, Any]:
        """Return the content of ``dataset.json``."""
        search = self.search
        return {
            **super().about(header),
            "start": search.start,
            "also": list(self._also),
            "objective": self.objective,
            "budget": sum(search.budgets),
            "seed": search.seed,
        }

    def searched(self, hints: Sequence[str], seconds: float) -> SearchReport:
        """Sum up."""
        traced = self.report(hints, seconds)
        sums = self.sums
        return SearchReport(
            corpus=self.corpus.shown,
            output=traced.output,
            objective=self.objective,
            start=self.search.start,
            also=self._also,
            compiler=traced.compiler,
            modules=traced.modules,
            searched=traced.traced,
            counts=traced.counts,
            decisions=traced.observations,
            compiles=sums.compiles,
            flips=sums.flips,
            kept=sums.kept,
            text_size=traced.text_size,
            baseline_text_size=traced.baseline_text_size,
            levels=traced.levels,
            undecided=traced.undecided,
            undecided_text_size=traced.undecided_text_size,
            objective_size=sums.objective,
            start_objective=sums.start_objective,
            after=sums.after(),
            resumed=traced.resumed,
            unchanged=traced.unchanged,
            problems=traced.problems,
            hints=(*traced.hints, *sums.hints()),
            seconds=seconds,
        )

    def _count(self, job: SurveyJob | RoundJob, number: int, names: Sequence[str]) -> None:
        """Run what comes before a round, and count how many objects hold each function then."""
        place = self.search.counts(number)
        if place.exists():
            return
        with suppress(FileExistsError):
            os.mkdir(job.work)
        over = Over(
            job,
            lambda: self._items(names),
            len(names),
            jobs=self.jobs,
            engine=self.engine_of_policies,
            needs=self.corpus.on_this_machine(),
        )
        saved: list[int] = []
        for outcome in over.outcomes():
            saved.append(outcome.saved)
            self._show(number, len(saved) * len(self.names) // len(names), 0, sum(saved))
        self._saved_before = saved
        # A module may not be chosen, or have no result in this round: then an earlier round's file counts.
        every = dict.fromkeys(self.corpus.names)
        held = (self.search.held(number, name, self._linked.group(name)) for name in every)
        write_counts(place, (np.load(known) for known in held if known is not None))

    def _show(self, number: int, finished: int, failed: int, saved: int) -> None:
        """Show progress; in a round that has a share of the compiles, a module counts that share.

        Before the first round, 0, each is compiled once, if the objective is what is linked. What a module saved in the
        round before counts until its own turn.
        """
        shares = (int(self.search.linked), *self.search.budgets)
        saved += sum(self._saved_before[finished:])
        done = sum(shares[:number]) * len(self.names) + shares[number] * finished
        if self._shown is not None:
            self._shown(done // sum(shares), failed, saved, len(self.names))


def _saved(row: TraceRow) -> int:
    return (row.baseline_text_size or 0) - (row.text_size or 0)


def _point(text: str) -> tuple[int, float]:
    count, _, objective = text.partition(":")
    return int(count), float(objective)
