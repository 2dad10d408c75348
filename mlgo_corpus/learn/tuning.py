"""The threshold of a policy, tuned on corpora that it was not trained on: real objects, compiled by each candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from mlgo_corpus.errors import UsageError
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.runs.report import Report
from mlgo_corpus.runs.trace.corpus import TraceRequest, run_trace

CANDIDATES: Final = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2)
"""Probabilities above which a call is inlined, in the order in which they are tried."""

# A corpus that grows counts so much more than one that shrinks: nobody wants to pay for other people's savings.
_GROWTH_COUNTS: Final = 4.0
# Tuning ends after so many candidates that are no better than the best before them.
_PATIENCE: Final = 2


@dataclass(frozen=True, slots=True)
class Tried(Report):
    """What a threshold makes of the validation corpora.

    Attributes:
        probability: above which a call is inlined.
        changes: of each corpus's text, against LLVM's own decisions: -0.1 for a tenth less.
    """

    _properties: ClassVar = ("score",)

    probability: float
    changes: tuple[float, ...]

    @property
    def score(self) -> float:
        """The mean of the changes, in which growth counts several times; less is better."""
        return sum(change * (_GROWTH_COUNTS if change > 0 else 1) for change in self.changes) / len(self.changes)


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
) -> tuple[Tried, ...]:
    """Compile corpora with several thresholds; return what each makes of them, in order.

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
    for number, probability in enumerate(CANDIDATES):
        folder = work / f"policy-{number}"
        replace(policy, threshold=threshold_of(probability), metrics={}, card="").save(folder)
        changes = []
        for place, corpus in enumerate(corpora):
            report = run_trace(corpus, work / f"{number}-{place}", replace(request, policy=str(folder)), **how)
            changes.append(report.text_size / report.baseline_text_size - 1 if report.baseline_text_size else 0.0)
        tried.append(Tried(probability, tuple(changes)))
        if progress is not None:
            progress(number + 1, len(CANDIDATES), f"{probability:g}: {100 * tried[-1].score:+.2f} %")
        best = min(range(len(tried)), key=lambda at: tried[at].score)
        if len(tried) - 1 - best >= _PATIENCE:
            break
    return tuple(tried)
