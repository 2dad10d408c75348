"""One module compiled by a policy that is being trained: what came of it in bytes, and its decisions where wanted."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.errors import FormatError
from mlgo_corpus.files.regular import MAX_MODULE_BYTES, read_regular
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.formats.objects.footprints import Exports
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.policy import Policy, make_policy
from mlgo_corpus.runs.over import lost_reason
from mlgo_corpus.runs.rollouts.decide import Candidate
from mlgo_corpus.runs.search.rounds import Weights, functions_in, linked_size
from mlgo_corpus.runs.trace.module import TraceItem, TraceJob, TraceSettings

# Not `default`, whose objects a trace explains where they differ from the plain compile's.
_CALLED: Final = "training"


class RolloutItem(NamedTuple):
    """One compile.

    Attributes:
        number: among those of a step.
        module: what is compiled.
        linked_with: the name of the modules that it is linked with.
        exports: what is exported of it.
        held: the file of the functions that the module's plain object holds and others may hold, too; None if unknown.
        policy: who decides; None for LLVM's own decisions.
        drawn: the seed of random decisions; None for the policy's own.
    """

    number: int
    module: Module
    linked_with: str
    exports: Exports
    held: Path | None = None
    policy: LearnedPolicy | None = None
    drawn: str | None = None


class Rollout(NamedTuple):
    """The outcome of one compile.

    Attributes:
        reason: a word of `RunReason`; the numbers count only if it is ``ok``.
        detail: one line for a person: what went wrong.
        text_size: bytes of the object's text; ``baseline_text_size`` of the plain compile's.
        objective: what is made small: the same, or what is linked of it.
        decisions: how many there were.
        wall_s: seconds that the compile took.
        log: the name of the log of the decisions in the step's folder; None if none is wanted, or nothing was decided.
        log_size: its bytes.
    """

    reason: str
    detail: str = ""
    text_size: int = 0
    baseline_text_size: int = 0
    objective: float = 0.0
    decisions: int = 0
    wall_s: float = 0.0
    log: str | None = None
    log_size: int = 0

    @property
    def is_ok(self) -> bool:
        """Whether the compile went well."""
        return self.reason == RunReason.OK.value


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """A compile of one module, as `mlgo_corpus.runs.over` does it to every item of a step.

    Attributes:
        settings: how to trace.
        counts: how many objects hold each function, see `mlgo_corpus.runs.search.rounds`; None to count every byte.
        logs: whether the logs of the decisions are wanted.
    """

    settings: TraceSettings
    counts: Path | None = None
    logs: bool = False

    @property
    def work(self) -> Path:
        """The folder for work under way."""
        return self.settings.work

    @property
    def limit_s(self) -> float:
        """Seconds that the compiles of one item may take together."""
        return TraceJob(self.settings).limit_s

    @property
    def programs(self) -> tuple[str, ...]:
        """The compiler."""
        return self.settings.cc1[:1]

    @property
    def trusted(self) -> bool:
        """Whether it runs without walls."""
        return self.settings.edits.trusted

    def run(self, item: RolloutItem) -> Rollout:
        """Compile; what goes wrong with the module is in the outcome.

        Raises:
            OSError: the work folder cannot be written.
        """
        objects = Path(mkdtemp(prefix="objects-", dir=self.work))
        settings = replace(
            self.settings,
            make=partial(_made, item, self.settings.task),
            policy=_CALLED,
            made=item.policy,
            keep_objects=objects if self.counts else None,
        )
        try:
            traced = TraceJob(settings).run(TraceItem(item.number, item.module))
            row = traced.row
            if row.status != STATUS_OK:
                return Rollout(row.reason, row.detail)
            text_size = row.text_size or 0
            objective = self._weighted(item, objects / item.module.name, text_size) if self.counts else float(text_size)
        finally:
            shutil.rmtree(objects, ignore_errors=True)
        kept = self.logs and traced.log is not None
        if not kept and traced.log is not None:
            (self.work / traced.log).unlink(missing_ok=True)
        return Rollout(
            reason=row.reason,
            text_size=text_size,
            baseline_text_size=row.baseline_text_size or 0,
            objective=objective,
            decisions=traced.decisions,
            wall_s=row.wall_s or 0.0,
            log=traced.log if kept else None,
            log_size=traced.log_size if kept else 0,
        )

    def _weighted(self, item: RolloutItem, place: Path, text_size: int) -> float:
        """Return the bytes of an object, where what other objects hold, too, counts less."""
        own = np.empty((2, 0), np.uint64)
        if item.held is not None:
            own = np.load(item.held)
        weight = Weights(self.counts, own, item.linked_with, kept=False)
        try:
            data = read_regular(place, MAX_MODULE_BYTES)
            return linked_size(data, text_size, functions_in(item.module), weight, exports=item.exports)
        except FormatError:
            return float(text_size)

    def lost(self, item: RolloutItem, lost: Lost) -> Rollout:  # noqa: ARG002 - whatever it was
        """Return the outcome for an item whose worker died."""
        return Rollout(lost_reason(lost).value, lost.detail)

    def outcome(self, record: Any) -> Rollout:
        """Return the outcome that JSON held."""
        return Rollout(*record)

    def is_whole(self, item: RolloutItem, outcome: Rollout) -> bool:  # noqa: ARG002 - of any item
        """Return True if the compile went well, and its log is there."""
        if not outcome.is_ok:
            return False
        return outcome.log is None or (self.work / outcome.log).stat().st_size == outcome.log_size


def _made(item: RolloutItem, task: str) -> Policy:
    if item.policy is None:
        return make_policy("default" if task == INLINING else "first", find_task(task))
    return Candidate(item.policy, item.drawn) if task == INLINING else item.policy
