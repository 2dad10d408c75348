"""What an evaluation's rows add up to: changes in bytes, with bootstrap intervals."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.runs.evaluate.table import EvaluationRow, LinkedRow
from mlgo_corpus.runs.report import Report

_DRAWS: Final = 1000
_PERCENTILES: Final = (2.5, 97.5)
_WORST: Final = 10


@dataclass(frozen=True, slots=True)
class SizeChange(Report):
    """Bytes of text by a policy, against those by LLVM's own decisions.

    Attributes:
        modules: how many modules or products were added up.
        size: their bytes.
        baseline: their bytes by LLVM's own decisions.
        interval: the change, with 95 % confidence, if other modules like these were measured: bootstrap percentiles;
            None for less than two.
        by_project: the same by projects, whose modules are alike; None for less than two.
    """

    _properties: ClassVar = ("change",)

    modules: int
    size: int
    baseline: int
    interval: tuple[float, float] | None = None
    by_project: tuple[float, float] | None = None

    @property
    def change(self) -> float | None:
        """The change: -0.1 for a tenth less; None if there is nothing to compare with."""
        return self.size / self.baseline - 1 if self.baseline else None


@dataclass(frozen=True, slots=True)
class _LinkedSizes(Report):
    """What was linked of a policy's objects.

    Attributes:
        link: ``linked``, as the build did, or ``folded``: by lld, with gc-sections and icf=all.
        products: how many there are.
        failed: of them, those that could not be linked.
        partial: of them, those that hold objects of the build's own, see ``missing`` in `LINKED_COLUMNS`: in no sum.
        sizes: the sum over those that all policies have, and none was trained on.
        trained: the sum over those that it was trained on; None without any.
    """

    link: str
    products: int
    failed: int
    partial: int
    sizes: SizeChange
    trained: SizeChange | None


@dataclass(frozen=True, slots=True)
class PolicySizes(Report):
    """What a policy makes of a corpus.

    Attributes:
        policy: its name.
        modules: chosen modules.
        failed: of them, those that it could not be measured on.
        objects: the headline: modules that all policies were measured on, and none was trained on. A policy that was
            trained on all of them, or measured on none, has no headline, and takes none from others.
        grew: of these, those that are larger than by LLVM's own decisions.
        median: the median of their changes; None without any.
        worst: the modules that grew most, by their share, as (module, bytes, bytes by LLVM's own decisions).
        trained: the modules that this policy was trained on; None without any.
        most_shared: of the headline's modules, the greatest share of one that the policy was trained on.
        cpu_s: seconds of processor time of the headline's compiles; ``baseline_cpu_s`` of the plain ones.
        products: what was linked.
    """

    policy: str
    modules: int
    failed: int
    objects: SizeChange
    grew: int
    median: float | None
    worst: tuple[tuple[str, int, int], ...]
    trained: SizeChange | None
    most_shared: float
    cpu_s: float
    baseline_cpu_s: float
    products: tuple[_LinkedSizes, ...]

    @property
    def larger_product(self) -> _LinkedSizes | None:
        """What grew most of what was linked; None if nothing grew, or the objects did, too.

        So it is if some modules are not in the headline: they may be what makes a product grow.
        """
        grew = [link for link in self.products if (link.sizes.change or 0.0) > 0]
        if self.objects.modules < self.modules or (self.objects.change or 0.0) > 0:
            return None
        return max(grew, key=lambda link: link.sizes.change or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class EvaluationReport(Report):
    """The outcome of an evaluation.

    Attributes:
        corpus: what was compiled.
        output: the folder of the tables.
        compiler: its version line.
        modules: modules chosen.
        policies: what each makes of them, in the order asked for.
        unchanged: whether the evaluation was there already, made in the same way.
        problems: the first failures, as (module or product, reason, detail).
        hints: advice for the user.
        seconds: how long it took.
    """

    _properties: ClassVar = ("failed", "exit_code")

    corpus: Path | str
    output: Path
    compiler: str
    modules: int
    policies: tuple[PolicySizes, ...]
    unchanged: bool
    problems: tuple[tuple[str, str, str], ...]
    hints: tuple[str, ...]
    seconds: float

    @property
    def failed(self) -> int:
        """How many modules and products could not be measured, of all policies."""
        return sum(one.failed + sum(link.failed for link in one.products) for one in self.policies)


def sum_up(rows: Sequence[EvaluationRow], linked: Sequence[LinkedRow], seed: int) -> tuple[PolicySizes, ...]:
    """Add up what was measured, policy by policy.

    Args:
        rows: of all policies and modules.
        linked: of all policies and products.
        seed: of the bootstrap.
    """
    policies = tuple(dict.fromkeys(row.policy for row in rows))
    modules, products = compared(rows), compared(linked)
    return tuple(_of_policy(policy, rows, linked, modules, products, seed) for policy in policies)


def compared(rows: Sequence[EvaluationRow] | Sequence[LinkedRow]) -> set[tuple[str, ...]]:
    """Return the keys of the rows that policies are compared by, see `PolicySizes`: of modules, or of products.

    Of a policy's rows, those count that have such a key, were measured, and that it was not trained on.
    """
    common = measured_by_all(rows)
    policies = {row.policy for row in rows if _is_whole(row)}
    seen = [{key_of(row) for row in rows if row.trained and row.policy == policy} for policy in policies]
    return common.difference(*(keys for keys in seen if not common <= keys))


def measured_by_all(rows: Sequence[EvaluationRow] | Sequence[LinkedRow]) -> set[tuple[str, ...]]:
    """Return the keys of the rows that all policies were measured on, but for those that fail everywhere."""
    policies = {row.policy for row in rows if _is_whole(row)}
    counts = Counter(key_of(row) for row in rows if _is_whole(row))
    return {key for key, count in counts.items() if count == len(policies)}


def key_of(row: EvaluationRow | LinkedRow) -> tuple[str, ...]:
    """Return what a row is of: a module, or a product by its link."""
    return (row.module,) if isinstance(row, EvaluationRow) else (row.link, row.product)


def relative_change(size: int, before: int) -> float:
    """Return the change of one module, which may have no text: 0 if it still has none."""
    return (size - before) / max(before, 1)


def _is_measured(row: EvaluationRow | LinkedRow) -> bool:
    return row.status == STATUS_OK and row.text_size is not None and row.baseline_text_size is not None


def _is_whole(row: EvaluationRow | LinkedRow) -> bool:
    """Return True if a row was measured, and all that was measured is the policy's."""
    return _is_measured(row) and not (isinstance(row, LinkedRow) and row.missing)


def _of_policy(
    policy: str,
    rows: Sequence[EvaluationRow],
    linked: Sequence[LinkedRow],
    modules: set[tuple[str, ...]],
    products: set[tuple[str, ...]],
    seed: int,
) -> PolicySizes:
    own = [row for row in rows if row.policy == policy]
    headline = [row for row in own if key_of(row) in modules and not row.trained and _is_measured(row)]
    seen = [row for row in own if row.trained and _is_measured(row)]
    pairs = [(row.module, row.text_size or 0, row.baseline_text_size or 0) for row in headline]
    changes = [relative_change(size, before) for _, size, before in pairs]
    grew = sorted((pair for pair in pairs if pair[1] > pair[2]), key=lambda pair: -pair[1] / max(pair[2], 1))
    links = [row for row in linked if row.policy == policy]
    return PolicySizes(
        policy=policy,
        modules=len(own),
        failed=sum(not _is_measured(row) for row in own),
        objects=_sizes_of(headline, seed),
        grew=len(grew),
        median=statistics.median(changes) if changes else None,
        worst=tuple(grew[:_WORST]),
        trained=_sizes_of(seen, seed) if seen else None,
        most_shared=max((row.trained_share for row in headline), default=0.0),
        cpu_s=sum(row.cpu_s or 0 for row in headline),
        baseline_cpu_s=sum(row.baseline_cpu_s or 0 for row in headline),
        products=tuple(
            _linked([row for row in links if row.link == link], products, seed)
            for link in dict.fromkeys(row.link for row in links)
        ),
    )


def _sizes_of(rows: Sequence[EvaluationRow] | Sequence[LinkedRow], seed: int) -> SizeChange:
    sizes = np.array([row.text_size or 0 for row in rows], np.int64)
    before = np.array([row.baseline_text_size or 0 for row in rows], np.int64)
    projects = [row.project or "" for row in rows if isinstance(row, EvaluationRow)]
    return SizeChange(
        len(rows),
        int(sizes.sum()),
        int(before.sum()),
        _interval(sizes, before, np.arange(len(rows)), seed),
        _interval(sizes, before, np.unique(np.array(projects, np.str_), return_inverse=True)[1], seed),
    )


def _linked(rows: Sequence[LinkedRow], products: set[tuple[str, ...]], seed: int) -> _LinkedSizes:
    done = [row for row in rows if _is_whole(row)]
    done.sort(key=lambda row: row.product)  # builds link in any order; intervals are the same
    seen = [row for row in done if row.trained]
    return _LinkedSizes(
        rows[0].link,
        len(rows),
        sum(not _is_measured(row) for row in rows),
        sum(bool(row.missing) for row in rows),
        _sizes_of([row for row in done if key_of(row) in products and not row.trained], seed),
        _sizes_of(seen, seed) if seen else None,
    )


def _interval(
    sizes: np.ndarray[tuple[int], np.dtype[np.int64]],
    before: np.ndarray[tuple[int], np.dtype[np.int64]],
    groups: np.ndarray[tuple[int], np.dtype[np.int64]],
    seed: int,
) -> tuple[float, float] | None:
    """Return bootstrap percentiles of the change of the sum, if whole groups are drawn; None for less than two."""
    count = int(groups.max()) + 1 if len(groups) else 0
    if count < 2 or not before.sum():
        return None
    size, plain = np.bincount(groups, sizes, count), np.bincount(groups, before, count)
    generator = np.random.default_rng(abs(seed))
    changes = []
    for _ in range(_DRAWS):
        drawn = generator.integers(count, size=count)
        if total := plain[drawn].sum():
            changes.append(size[drawn].sum() / total - 1)
    low, high = np.percentile(changes, _PERCENTILES)
    return float(low), float(high)
