"""The outcomes of a dataset's decisions: sizes, rewards, time and memory, failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.groups import REMEDY
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.tracetable import SPEED_LEVELS
from mlgo_corpus.formats.logs.remarks import UnfaithfulBecause
from mlgo_corpus.formats.logs.tasks import INLINING
from mlgo_corpus.view import figures, words
from mlgo_corpus.view.aggregate import Distribution
from mlgo_corpus.view.blocks import Block, CallOut, Figure, Listing, Table
from mlgo_corpus.view.dataset.facts import DatasetFacts

# The most points of a chart; of more modules, it shows the extremes and some of the others.
_POINTS: Final = 600

_STEPS = 12
_SLOWEST = 8
# The most reasons of failures: a table of others may have any number.
_MOST_REASONS = 20
_MANY_FAILED = 0.05
_MANY_UNOPTIMISED = 0.5
# The most optimisation levels that are told apart; clang has six.
_LEVELS = 8
# The most modules named in a call-out.
_NAMED = 6
# A module is called out if it takes this multiple of the median module's time, and at least this number of seconds.
_SLOW_FACTOR = 20.0
_SLOW_SECONDS = 5.0
_UNKNOWN_WHY = "Recording changed what the compiler did there: do not train on these modules before you know why."
_NOT_ASKED = (
    "LLVM asks no policy about a function's call of itself (recursion) or a call in code that cannot be reached "
    "(not_asked), and inlines neither; its heuristic does. The recorded decisions are the heuristic's, but not all of "
    "them, and rewards of these modules have another baseline than any policy can reach."
)


@dataclass(frozen=True, slots=True)
class _LevelSizes:
    """The modules of one optimisation level that had something to decide: their number, and bytes of their objects."""

    level: str
    modules: int
    observations: int
    made: int
    base: int

    @property
    def at(self) -> str:
        """The level in a title: `` at -Oz``; empty if it is unknown."""
        return f" at -O{words.shown(self.level, 20)}" if self.level else ""

    @property
    def change(self) -> float:
        """The relative change of the sum of sizes."""
        return self.made / self.base - 1 if self.base else math.nan


def level_sizes(facts: DatasetFacts) -> list[_LevelSizes]:
    """Return the sums of sizes by optimisation level, most modules first."""
    levels, decided = np.array(facts.levels), facts.decided
    keys = ("observations", facts.measure, f"baseline_{facts.measure}")
    found = []
    for level, count in Counter(levels[decided].tolist()).most_common(_LEVELS):
        places = decided & (levels == level)
        found.append(_LevelSizes(level, count, *(int(facts.numbers[key][places].sum()) for key in keys)))
    return found


def outcome_call_outs(facts: DatasetFacts) -> Iterator[CallOut]:
    """Yield call-outs on sizes, rewards and failures."""
    total = len(facts.names)
    if facts.failed:
        share = facts.failed / total
        yield CallOut(
            f"{words.counted(facts.failed, 'module')} of {words.count(total)} failed ({words.percent(share)}).",
            "They are not in the table of observations. The reasons are below, with the compiler's messages.",
            grave=share > _MANY_FAILED,
        )
    if unoptimised := facts.unoptimised:
        yield CallOut(
            f"{words.counted(unoptimised, 'module')} of {words.count(total)} {words.be(unoptimised)} compiled at -O0: "
            "the compiler has nothing to decide there.",
            f"No figure about sizes counts them: {REMEDY}.",
            grave=unoptimised > _MANY_UNOPTIMISED * total,
        )
    for_speed = [level for level in level_sizes(facts) if level.level in SPEED_LEVELS]
    if for_speed and facts.task == INLINING and facts.about.get("policy") != "default":
        modules = words.counted(sum(level.modules for level in for_speed), "module")
        listed = ", ".join(f"-O{level.level}" for level in for_speed)
        yield CallOut(
            f"In {modules} ({listed}) LLVM's heuristic inlines for speed, and the reward is about size.",
            "A policy that inlines less looks better there than it is: compare policies at -Oz or -Os, or level by "
            "level.",
        )
    reward = facts.numbers["reward"]
    reward = reward[np.isfinite(reward)]
    if len(reward) and not reward.any():
        default = facts.about.get("policy") in (None, "default")
        why = (
            "This is expected: the default policy decides as the baseline does. To learn from rewards, trace with "
            "another policy."
            if default
            else "This policy changes no object: check that the compiler follows its decisions."
        )
        yield CallOut("The reward is always 0.", why, grave=not default)
    faithful = facts.numbers["faithful"]
    known = np.isfinite(faithful)
    if facts.about.get("policy") == "default" and known.any() and not faithful[known].all():
        places = np.flatnonzero(known & (faithful == 0))
        different = len(places)
        because = {name: facts.unfaithful.get(name) for name in (facts.names[place] for place in places)}
        listed = ", ".join(
            words.shown(name) + (f" ({words.shown(why)})" if why else "")
            for name, why in list(because.items())[:_NAMED]
        )
        more = f" and {words.count(different - _NAMED)} more" if different > _NAMED else ""
        known_why = set(because.values()) <= {UnfaithfulBecause.RECURSION.value, UnfaithfulBecause.NOT_ASKED.value}
        yield CallOut(
            f"{words.counted(different, 'object')} of the default policy {words.be(different)} different from the "
            f"baseline's: {listed}{more}.",
            _NOT_ASKED if known_why else _UNKNOWN_WHY,
            grave=not known_why,
        )
    slow = facts.numbers["cpu_s"]
    slow = slow[np.isfinite(slow)]
    if len(slow) > 1 and slow.max() > max(_SLOW_FACTOR * float(np.median(slow)), _SLOW_SECONDS):
        yield CallOut(
            f"One module takes {words.seconds(float(slow.max()))} of processor time, the median one "
            f"{words.seconds(float(np.median(slow)))}.",
            "It decides how long a run takes: start with the largest modules, or leave it out.",
        )


def size_blocks(facts: DatasetFacts, name: str) -> Iterator[Block]:
    """Draw sizes against the baseline, and rewards."""
    decided = facts.decided
    made, base = (facts.numbers[key][decided] for key in (facts.measure, f"baseline_{facts.measure}"))
    names = [one for one, there in zip(facts.names, decided.tolist(), strict=True) if there]
    levels = level_sizes(facts)
    if len(levels) > 1:
        yield Table(
            "Sizes by optimisation level",
            ("level", "modules", "decisions", "baseline", "these decisions", "change"),
            tuple(
                (
                    words.shown(f"-O{level.level}", 20) if level.level else "unknown",
                    words.count(level.modules),
                    words.count(level.observations),
                    words.count(level.base),
                    words.count(level.made),
                    words.change(level.change),
                )
                for level in levels
            ),
        )
    if not (made != base).any():
        total = words.count(float(base.sum()))
        yield Table(
            "Sizes in bytes: every object is as large as the baseline's", ("of", "bytes"), (("all modules", total),)
        )
        return
    yield change_waterfall(f"{name}-waterfall", names, base, made, ("the plain compile", "these decisions"))
    reward = facts.numbers["reward"][decided]
    found = Distribution()
    found.add(reward)
    histogram = found.histogram()
    better, worse = int((reward > 0).sum()), int((reward < 0).sum())
    alt = (
        f"Histogram of the reward of {words.counted(len(reward), 'module')}: {words.count(better)} are smaller, "
        f"{words.count(worse)} larger, from {words.number(found.min)} to {words.number(found.max)}."
    )
    yield Figure(
        f"{name}-reward",
        "Reward per module",
        f"1 − size ∕ baseline: 0.1 is a tenth smaller, −1 twice as large. {words.count(better)} modules got smaller, "
        f"{words.count(worse)} larger, {words.count(len(reward) - better - worse)} stayed the same.",
        alt,
        figures.of_histogram(histogram, alt, x="reward", y="modules", write=lambda value: words.number(value, 2)),
        Table(
            "Quantiles of the reward",
            ("quantile", "reward"),
            tuple(
                (text, words.number(found.quantile(at)))
                for text, at in (("5 %", 0.05), ("25 %", 0.25), ("50 %", 0.5), ("75 %", 0.75), ("95 %", 0.95))
            ),
        ),
    )


def change_waterfall(
    name: str, names: list[str], before: NDArray[np.float64], after: NDArray[np.float64], sides: tuple[str, str]
) -> Figure:
    """Draw which modules make the total larger or smaller.

    Args:
        name: the figure's anchor.
        names: the modules' names.
        before: the modules' sizes before, of shape (modules,).
        after: the modules' sizes after, of shape (modules,).
        sides: names for what made the sizes before and after.
    """
    delta = after - before
    order = np.argsort(-np.abs(delta), kind="stable")
    shown = [at for at in order[:_STEPS].tolist() if delta[at]]
    rest = np.delete(delta, shown)
    steps: list[tuple[str, str, float, float, str]] = []
    at = 0.0
    for label, tip, change in (
        *(
            (
                words.short(names[one]),
                f"{words.shown(names[one])}: {words.signed(float(delta[one]))}",
                float(delta[one]),
            )
            for one in shown
        ),
        (f"{words.count(int((rest < 0).sum()))} others smaller", "", float(rest[rest < 0].sum())),
        (f"{words.count(int((rest > 0).sum()))} others larger", "", float(rest[rest > 0].sum())),
    ):
        if change:
            told = tip or words.signed(change)
            steps.append((label, told, at, at + change, figures.GOOD if change < 0 else figures.BAD))
            at += change
    total = float(delta.sum())
    steps.append(("all modules", words.signed(total), 0.0, total, figures.QUIET))
    smaller, larger = int((delta < 0).sum()), int((delta > 0).sum())
    share = total / float(before.sum()) if before.sum() else 0.0
    alt = (
        f"Waterfall chart from {sides[0]} to {sides[1]}: {words.count(smaller)} modules are smaller, "
        f"{words.count(larger)} larger, in all {words.signed(total)} bytes, {words.change(share)}."
    )
    rows = tuple(
        (
            words.shown(names[one]),
            words.count(float(before[one])),
            words.count(float(after[one])),
            words.signed(float(delta[one])),
            words.change(float(delta[one] / before[one])) if before[one] else "–",
        )
        for one in shown
    )
    total_row = (
        "all modules",
        words.count(float(before.sum())),
        words.count(float(after.sum())),
        words.signed(total),
        words.change(share),
    )
    return Figure(
        name,
        "Where bytes are won and lost",
        f"Each bar starts where the one above ends: green makes the total smaller, red larger. From {sides[0]} to "
        f"{sides[1]}, in bytes; the last bar is the total ({words.change(share)}).",
        alt,
        figures.waterfall(steps, alt, x="bytes, cumulative"),
        Table(
            f"The largest changes, from {sides[0]} to {sides[1]}",
            ("module", "before", "after", "bytes", "change"),
            (*rows, total_row),
        ),
    )


def cost_blocks(facts: DatasetFacts, name: str) -> Iterator[Block]:
    """Draw the time and memory of compiling, if they are known."""
    cpu, memory = facts.numbers["cpu_s"], facts.numbers["max_rss_bytes"]
    known = (cpu > 0) & (memory > 0)  # False for NaN
    if not known.any():
        return
    places = np.flatnonzero(known)
    kept = spread_out(places, cpu, memory)
    base = facts.numbers["baseline_cpu_s"]
    points = [(float(cpu[at]), float(memory[at]) / 1e6, words.shown(facts.names[at]), figures.FIRST) for at in kept]
    slowest = places[np.argsort(-cpu[places], kind="stable")][:_SLOWEST].tolist()
    rows = tuple(
        (
            words.shown(facts.names[at]),
            words.seconds(float(cpu[at])),
            f"{float(cpu[at] / base[at]):.1f}×" if np.isfinite(base[at]) and base[at] > 0 else "–",
            words.size(float(memory[at])),
            words.count(float(np.nan_to_num(facts.numbers["observations"][at]))),
        )
        for at in slowest
    )
    both = places[base[places] > 0]  # False for NaN
    total, total_base = float(cpu[places].sum()), float(base[both].sum())
    ratio = f" ({float(cpu[both].sum()) / total_base:.1f} times the plain compile's)" if total_base else ""
    most = words.seconds(float(cpu[places].max()))
    alt = f"Scatter chart of time and memory of {words.counted(len(places), 'module')}; the slowest takes {most}."
    yield Figure(
        f"{name}-costs-chart",
        "Time and memory of compiling",
        f"A point is a module; both scales are logarithmic. In all {words.seconds(total)} of processor time{ratio}. "
        "Outliers at the upper right decide how long a run takes, and how many modules fit into memory at once."
        + (
            ""
            if len(kept) == len(places)
            else f" {words.count(len(kept))} of {words.count(len(places))} modules are shown, including all extremes."
        ),
        alt,
        figures.scatter(points, alt, x="processor time in seconds", y="peak memory in MB"),
        Table("The slowest modules", ("module", "time", "of plain", "memory", "decisions"), rows),
    )


def spread_out(places: NDArray[np.intp], *by: NDArray[np.float64]) -> list[int]:
    """Return at most `_POINTS` of some places: the extremes by each measure, and others evenly between them."""
    if len(places) <= _POINTS:
        return list(places.tolist())
    chosen: dict[int, None] = {}
    each = _POINTS // (3 * len(by))
    for values in by:
        order = places[np.argsort(values[places], kind="stable")]
        chosen.update(dict.fromkeys([*order[:each].tolist(), *order[-each:].tolist()]))
        evenly = order[np.linspace(0, len(order) - 1, each).astype(np.intp)]
        chosen.update(dict.fromkeys(evenly.tolist()))
    return list(chosen)[:_POINTS]


def failure_blocks(facts: DatasetFacts) -> Iterator[Block]:
    """Yield a table of failures by reason, and the compiler's messages."""
    if not facts.failed:
        return
    total = max(len(facts.names), 1)
    counts = [
        (words.shown(reason), count) for (reason, status), count in facts.reasons.most_common() if status != STATUS_OK
    ]
    failed, rest = counts[:_MOST_REASONS], counts[_MOST_REASONS:]
    if rest:
        failed.append((words.counted(len(rest), "other"), sum(count for _, count in rest)))
    yield Table(
        "Modules that failed, by reason",
        ("reason", "modules", "share"),
        tuple((reason, words.count(count), words.percent(count / total)) for reason, count in failed),
        shares=tuple(count / total for _, count in failed),
    )
    items = [
        (
            f"{words.shown(reason)}: {words.shown(module)}",
            "\n".join(filter(None, (detail, tail))),
        )
        for reason, failure in islice(facts.failures.items(), _MOST_REASONS)
        for module, detail, tail in failure.examples
    ]
    yield Listing(
        "The compiler's messages",
        "The end of stderr of the first modules of each reason; modules.parquet has them all.",
        tuple(items),
    )
