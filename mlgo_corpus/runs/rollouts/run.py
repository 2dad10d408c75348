"""Corpora whose modules are compiled step by step by policies that are being trained."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.compilers.choose import INTERACTIVE, choose_compiler
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.corpus.folder import Corpus, Module
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import LinkedModules
from mlgo_corpus.corpus.select import ModuleChoice, choice_key, newest_producer
from mlgo_corpus.dataset.logs import open_log
from mlgo_corpus.engine.choice import EngineChoice, available_cpus
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.logs.blocks import BlockReader, Rows
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.formats.objects.footprints import Exports
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.runs.over import Over
from mlgo_corpus.runs.rollouts.module import Rollout, RolloutItem, RolloutJob
from mlgo_corpus.runs.search.module import SearchItem, SearchSettings, SurveyJob
from mlgo_corpus.runs.search.rounds import MEASURE, write_counts
from mlgo_corpus.runs.trace.baseline import BASELINES_FOLDER
from mlgo_corpus.runs.trace.module import TraceSettings

_POLICY: Final = "training"

SURVEY: Final = "plain"
"""The step of LLVM's own decisions."""

Columns = dict[str, NDArray[Any]]
"""An array for each feature, by its name, with a number for each decision."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """How to compile, and whose decisions are learned."""

    compiler: str | None = None
    edits: CommandEdits = field(default_factory=CommandEdits)
    limits: Limits = field(default_factory=Limits)
    task: str = INLINING


class Attempt(NamedTuple):
    """A compile that is asked for.

    Attributes:
        place: the module's number.
        policy: who decides; None for LLVM's own decisions.
        drawn: the seed of random decisions; None for the policy's own.
    """

    place: int
    policy: LearnedPolicy | None = None
    drawn: str | None = None


class _Place(NamedTuple):
    """A module of one of the corpora."""

    corpus: int
    module: Module
    linked_with: str
    exports: Exports


class Rollouts:
    """The modules of some corpora, and a compiler for them.

    Args:
        corpora: the corpora; modules are numbered in their order.
        request: how to compile.
        work: a folder for this alone, which is there.
        linked: whether a function that several objects hold counts less, where a corpus has a record of links.
        jobs, cache, engine: as of `mlgo_corpus.trace_corpus`.

    Attributes:
        corpora: the opened corpora.
        places: the modules.
        linked: whether functions are weighed.
        toolchain: the compiler.

    Raises:
        UsageError: there is no compiler for this.
        CorpusError: there is no such corpus.
    """

    def __init__(
        self,
        corpora: Sequence[Path | str],
        request: RolloutRequest,
        work: Path,
        *,
        linked: bool,
        jobs: int | None,
        cache: Path,
        engine: EngineChoice,
    ) -> None:
        self.corpora: list[Corpus] = [open_corpus(engine.place(one)) for one in corpora]
        everything = ModuleChoice()
        self._chosen = [everything.select(one) for one in self.corpora]
        linked = linked and request.task == INLINING  # no other decision moves code between functions
        links = [LinkedModules.read(one) if linked else LinkedModules() for one in self.corpora]
        self.linked = any(one.products for one in links)
        by_corpus = zip(self.corpora, self._chosen, links, strict=True)
        self.places = [
            _Place(number, module, f"{number}:{its.group(module.name)}", its.exports(module.name))
            for number, (corpus, chosen, its) in enumerate(by_corpus)
            for module in corpus.modules(chosen)
        ]
        producers = [newest_producer(one, chosen) for one, chosen in zip(self.corpora, self._chosen, strict=True)]
        self.toolchain, _ = choose_compiler(
            request.compiler,
            find_task(request.task),
            _POLICY,
            INTERACTIVE,
            producer=max((one for one in producers if one is not None), default=None),
            cache=cache,
            jobs=jobs or available_cpus(),
        )
        self._work = work.absolute()
        self._jobs = jobs
        self._engine = engine
        self._settings = TraceSettings(
            cc1=self.toolchain.cc1,
            compiler_id=self.toolchain.identity,
            major=self.toolchain.major or 0,
            task=request.task,
            via=INTERACTIVE,
            policy=_POLICY,
            seed=0,
            work=self._work,
            baselines=(cache / BASELINES_FOLDER).absolute(),
            edits=request.edits,
            limits=request.limits,
            names=False,
        )
        self._held: dict[int, Path] = {}
        self._counts: Path | None = None

    @property
    def jobs(self) -> int:
        """The compilers that run at a time."""
        return self._jobs or self._engine.status.workers or available_cpus()

    def key(self) -> dict[str, Any]:
        """Return what the outcomes depend on, besides the policies."""
        settings = self._settings
        return {
            "compiler": {"version": self.toolchain.version, "sha256": settings.compiler_id},
            "corpora": [choice_key(one, chosen) for one, chosen in zip(self.corpora, self._chosen, strict=True)],
            "linked": self.linked and MEASURE,
            "task": self._settings.task,
            **settings.edits.key(),
        }

    def name_of(self, place: int) -> str:
        """Return a module's name."""
        return printable(self.places[place].module.name)

    def survey(self, progress: Callable[[int, int], None] | None = None) -> list[Rollout]:
        """Compile each module plainly, and keep logs of decisions; what is done is not done again.

        The decisions are LLVM's own, where the compiler tells them (of inlining). Else they are the first possible
        ones, and the objective is that of the plain compile all the same.
        """
        if self.linked:
            self._count()
        attempts = [Attempt(place) for place in range(len(self.places))]
        found = self.step(SURVEY, attempts, logs=True, progress=progress)
        if self._settings.task == INLINING:
            return found
        return [
            one._replace(objective=float(one.baseline_text_size), text_size=one.baseline_text_size) for one in found
        ]

    def step(
        self,
        name: str,
        attempts: Sequence[Attempt],
        *,
        logs: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Rollout]:
        """Compile; after an interruption, what was done is not done again.

        Args:
            name: of the step, a folder of work.
            attempts: the compiles.
            logs: whether the logs of the decisions are wanted, see `records`.
            progress: called with (compiles done, compiles in all).

        Raises:
            OSError: the work folder cannot be written.
        """
        work = self._work / name
        work.mkdir(parents=True, exist_ok=True)
        job = RolloutJob(replace(self._settings, work=work), self._counts, logs=logs)

        def items() -> Iterator[RolloutItem]:
            for number, (place, policy, drawn) in enumerate(attempts):
                where = self.places[place]
                held = self._held.get(place)
                yield RolloutItem(number, where.module, where.linked_with, where.exports, held, policy, drawn)

        over = Over(job, items, len(attempts), jobs=self._jobs, engine=self._engine, needs=self._needs())
        found = []
        for done, outcome in enumerate(over.outcomes(), 1):
            found.append(outcome)
            if progress is not None:
                progress(done, len(attempts))
        return found

    def decisions(self, name: str, rollouts: Sequence[Rollout]) -> Iterator[Columns]:
        """Yield the decisions of a step's rollouts that have a log: an array for each feature, and for the decision.

        A feature of one number has an array of shape (n,), another of (n, numbers).
        """
        for one in rollouts:
            if one.log is not None:
                yield _read_columns(self._work / name / one.log)

    def header(self, name: str, rollouts: Sequence[Rollout]) -> LogHeader | None:
        """Return the header of a step's logs; None if nothing was decided."""
        for one in rollouts:
            if one.log is not None:
                with open_log(self._work / name / one.log) as source:
                    return BlockReader(source).header
        return None

    def forget(self, name: str) -> None:
        """Remove what a step left."""
        shutil.rmtree(self._work / name, ignore_errors=True)

    def _needs(self) -> tuple[Path | str, ...]:
        return tuple(path for one in self.corpora for path in one.on_this_machine())

    def _count(self) -> None:
        """Find out which functions the plain objects hold, and how many of them hold each."""
        trace = self._settings
        settings = SearchSettings(trace, "default", (1,), None, 0, linked=True)
        job = SurveyJob(settings)
        job.work.mkdir(parents=True, exist_ok=True)

        def items() -> Iterator[SearchItem]:
            for number, place in enumerate(self.places):
                yield SearchItem(number, place.module, place.linked_with)

        over = Over(job, items, len(self.places), jobs=self._jobs, engine=self._engine, needs=self._needs())
        for number, outcome in enumerate(over.outcomes()):
            if outcome.held:
                self._held[number] = job.work / outcome.held
        self._counts = job.work / "counts.npy"
        write_counts(self._counts, map(np.load, self._held.values()))


def _read_columns(path: Path) -> Columns:
    """Return the features of a log, and its decisions, column by column."""
    with open_log(path) as source:
        reader = BlockReader(source)
        header = reader.header
        rows = [block.tensors.copy() for block in reader if isinstance(block, Rows)]
    tensors = np.concatenate([np.empty(0, f"V{header.tensor_bytes}"), *rows])
    found, size = {}, header.tensor_bytes
    for spec, start in zip(header.features, header.offsets, strict=True):
        shape = () if spec.element_count == 1 else (spec.element_count,)
        form: Any = {"names": ["one"], "formats": [(spec.dtype, shape)], "offsets": [start], "itemsize": size}
        found[spec.name] = tensors.view(np.dtype(form))["one"]
    return found
