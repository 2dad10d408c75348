"""The threshold of a policy, tuned on corpora that it was not trained on: real sizes, compiled by each candidate.

A lower threshold inlines more. What it saves in objects may be lost again in what is linked of them, where copies of a
function are one, and the linker folds what is alike: so all three count.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.engine.choice import EngineChoice
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.runs.evaluate.run import Evaluation, contenders
from mlgo_corpus.runs.evaluate.sums import PolicySizes, sum_up
from mlgo_corpus.runs.report import Report
from mlgo_corpus.runs.trace.corpus import TraceRequest

CANDIDATES: Final = (0.65, 0.5, 0.35, 0.25, 0.15)
"""Probabilities above which a call is inlined, in the order in which they are tried."""

# A corpus that grows counts so much more than one that shrinks: nobody wants to pay for other people's savings.
_GROWTH_COUNTS: Final = 4.0
# Scores that differ by less than this share of the best one count as equal: another training seed changes more.
_CHANCE: Final = 0.01
# Tuning ends after so many candidates that are no better than the best before them.
_PATIENCE: Final = 2


@dataclass(frozen=True, slots=True)
class Tried(Report):
    """What a threshold makes of the validation corpora.

    Attributes:
        probability: above which a call is inlined.
        changes: of each corpus's text, against LLVM's own decisions: -0.1 for a tenth less. The mean of the changes of
            its objects, of the products linked of them, and of these with gc-sections and icf; of what there is.
    """

    _properties: ClassVar = ("score",)

    probability: float
    changes: tuple[float, ...]

    @property
    def score(self) -> float:
        """The mean of the changes, in which growth counts several times; less is better."""
        return score_of(self.changes)


def score_of(changes: Sequence[float]) -> float:
    """Return the mean of changes, in which growth counts several times; less is better."""
    return sum(change * (_GROWTH_COUNTS if change > 0 else 1) for change in changes) / len(changes)


def best_of(tried: Sequence[Tried]) -> Tried:
    """Return that of the thresholds which is next to one half, of those as good as the best but for what may be chance.

    One half is what training says: its examples weigh what they are worth, so that there both decisions cost the same.
    """
    best = min(one.score for one in tried)
    enough = best + _CHANCE * abs(best)
    alike = (one for one in tried if one.score <= enough)
    return min(alike, key=lambda one: (abs(one.probability - 0.5), -one.probability))


def threshold_of(probability: float) -> float:
    """Return the score above which a call is inlined with more than this probability.

    Raises:
        UsageError: it is no probability.
    """
    if not 0 < probability < 1:
        raise UsageError("expected more than 0, and less than 1", option="threshold", value=f"{probability:g}")
    return math.log(probability / (1 - probability))


def tune(
    policy: LearnedPolicy,
    corpora: Sequence[Path | str],
    request: TraceRequest,
    work: Path,
    progress: Callable[[int, int, str], None] | None = None,
    **how: Any,
) -> tuple[tuple[Tried, ...], tuple[str, ...]]:
    """Compile corpora with several thresholds; return what each makes of them, in order, and advice for the user.

    Args:
        policy: whose threshold is tuned.
        corpora: what to compile.
        request: how to trace, whatever the policy.
        work: an empty folder.
        progress: called with (thresholds done, at most so many, what is known).
        how: ``jobs``, ``cache`` and ``engine`` of a trace.

    Raises:
        UsageError, MlgoCorpusError: a corpus cannot be compiled.
    """
    tried: list[Tried] = []
    hints: list[str] = []
    evaluations = [_evaluation_of(corpus, request, work / "sizes", **how) for corpus in corpora]
    for number, probability in enumerate(CANDIDATES):
        folder = work / f"{number}" / policy.name
        replace(policy, threshold=threshold_of(probability), metrics={}, card="").save(folder)
        changes = []
        for corpus, evaluation in zip(corpora, evaluations, strict=True):
            found = _sizes_of(str(folder), evaluation, request, work / "sizes")
            if not (found.objects.modules or found.trained):
                raise UsageError("no module of it could be measured", option="validation", value=corpus)
            changes.append(_change(found))
            if not number:  # what a policy was trained on is the same at each threshold
                hints += _known(corpus, found)
                hints += [f"{corpus}: {hint}" for hint in evaluation.hints]
        tried.append(Tried(probability, tuple(changes)))
        if progress is not None:
            progress(number + 1, len(CANDIDATES), f"{probability:g}: {100 * tried[-1].score:+.2f} %")
        best = min(range(len(tried)), key=lambda at: tried[at].score)
        if len(tried) - 1 - best >= _PATIENCE:
            break
    for place, corpus in enumerate(corpora):
        if not any(one.changes[place] for one in tried):
            hints.append(f"{corpus}: the policy changes nothing in it, and it tells nothing of a threshold")
    return tuple(tried), tuple(hints)


def _evaluation_of(
    corpus: Path | str, request: TraceRequest, work: Path, *, engine: EngineChoice, **how: Any
) -> Evaluation:
    opened = open_corpus(engine.place(corpus))
    chosen = request.choice.select(opened)
    return Evaluation(
        opened, chosen, corpus, work, compiler=request.compiler, link=True, engine=engine, progress=None, **how
    )


def _sizes_of(policy: str, evaluation: Evaluation, request: TraceRequest, work: Path) -> PolicySizes:
    work.mkdir()
    evaluation.run(contenders([policy], request))
    shutil.rmtree(work, ignore_errors=True)
    (found,) = sum_up(evaluation.rows, evaluation.linked, request.seed)
    return found


def _change(found: PolicySizes) -> float:
    """Return what a policy changes in a corpus, see `Tried`."""
    objects = found.objects if found.objects.modules or found.trained is None else found.trained
    sizes = [objects, *(one.sizes for one in found.products)]
    changes = [one.change for one in sizes if one.change is not None]
    return sum(changes) / len(changes) if changes else 0.0


def _known(corpus: Path | str, found: PolicySizes) -> Iterator[str]:
    """Yield what there is to say if the policy was trained on modules of a corpus."""
    if found.trained is None:
        return
    known, others = found.trained.modules, found.objects.modules
    if others:
        yield f"{corpus}: {known} of {counted(known + others, 'module')} are in the data, and are left out of tuning"
    else:
        yield f"{corpus}: all that it has is in the data: tune on a project that the policy does not know"
