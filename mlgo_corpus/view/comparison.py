"""The section of a page that compares two inputs of a kind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.view import figures, words
from mlgo_corpus.view.aggregate import DRIFT_LIMIT, Distribution
from mlgo_corpus.view.blocks import Block, CallOut, Figure, Heading, Headline, Section, Table
from mlgo_corpus.view.corpus.facts import CorpusFacts
from mlgo_corpus.view.dataset.facts import DatasetFacts
from mlgo_corpus.view.dataset.outcomes import change_waterfall, spread_out
from mlgo_corpus.view.sizes.facts import SizesFacts, find_names

_LARGEST: Final = 15
_ACTIONS = 16
_ACTIONS_MOST = 64
_DRIFTS = 20
_QUANTILES: Final = (("5 %", 0.05), ("25 %", 0.25), ("50 %", 0.5), ("75 %", 0.75), ("95 %", 0.95))

Facts = CorpusFacts | DatasetFacts | SizesFacts


class _HasFeatures(Protocol):
    @property
    def features(self) -> dict[str, Distribution]: ...


def compare(before: Facts, after: Facts, name: str, labels: tuple[str, str]) -> Section:
    """Return the section that compares two inputs of a kind; ``labels`` are their names on the page."""
    if isinstance(before, DatasetFacts) and isinstance(after, DatasetFacts):
        return _datasets(before, after, name, labels)
    if isinstance(before, SizesFacts) and isinstance(after, SizesFacts):
        return _tables(before, after, name, labels)
    if isinstance(before, CorpusFacts) and isinstance(after, CorpusFacts):
        return _corpora(before, after, name, labels)
    raise TypeError("two inputs of different kinds")


def _section(name: str, labels: tuple[str, str], lead: str, **parts: Any) -> Section:
    return Section(
        name=name, label=f"{labels[0]} → {labels[1]}", title=f"From {labels[0]} to {labels[1]}", lead=lead, **parts
    )


def _datasets(before: DatasetFacts, after: DatasetFacts, name: str, labels: tuple[str, str]) -> Section:
    blocks: list[Block] = []
    headlines: list[Headline] = []
    called: list[CallOut] = []
    data: dict[str, Any] = {"labels": list(labels), "task": before.task}
    mine, theirs = _in_both(before.names, after.names)
    made, changed = (facts.numbers[facts.measure][places] for facts, places in ((before, mine), (after, theirs)))
    both = np.isfinite(made) & np.isfinite(changed) & (before.decided[mine] | after.decided[theirs])
    made, changed, places = made[both], changed[both], mine[both]
    headlines.append(
        Headline(
            "modules in both",
            words.count(len(mine)),
            f"of {words.count(len(before.names))} and {words.count(len(after.names))}",
        )
    )
    if before.measure != after.measure:
        called.append(CallOut("The two measure size differently.", "Sizes are not compared.", grave=True))
    elif len(made):
        total = float(made.sum())
        share = float(changed.sum()) / total - 1 if total else math.nan
        headlines.append(
            Headline("size", words.change(share), f"{words.size(float(changed.sum()))} after {words.size(total)}")
        )
        smaller, larger = int((changed < made).sum()), int((changed > made).sum())
        headlines.append(Headline("smaller, larger", f"{words.count(smaller)}, {words.count(larger)}", "modules"))
        data["sizes"] = {
            "modules": len(made),
            "before": int(total),
            "after": int(changed.sum()),
            "smaller": smaller,
            "larger": larger,
        }
        names = [before.names[at] for at in places.tolist()]
        blocks += [
            Heading(f"{name}-sizes", "Sizes of the same modules"),
            change_waterfall(f"{name}-waterfall", names, made, changed, labels),
            _size_scatter(f"{name}-scatter", names, made, changed, labels, unit="module"),
        ]
    more = words.change(after.observations / before.observations - 1) if before.observations else "–"
    note = f"{words.count(after.observations)} after {words.count(before.observations)}"
    headlines.append(Headline("decisions", more, note))
    blocks += _actions(before, after, name, labels)
    drift = _drifts(before, after)
    if before.decision is not None:
        drift.pop(before.decision, None)  # the decision has a chart of its own
    data["drift"] = drift
    blocks += _drift_blocks(drift, name)
    called += _drift_call_outs(drift)
    return _section(
        name,
        labels,
        "The same task, recorded twice: with another policy, another compiler, or other modules.",
        headlines=tuple(headlines),
        call_outs=tuple(called),
        blocks=tuple(blocks),
        data=data,
    )


def _in_both(before: Sequence[str], after: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places, in ``before`` and in ``after``, of the names in both; a name's first place counts."""
    place = {name: at for at, name in reversed(list(enumerate(after)))}
    found: dict[int, int] = {}
    seen: set[str] = set()
    for at, name in enumerate(before):
        if name in place and name not in seen:
            found[at] = place[name]
            seen.add(name)
    return np.array(list(found), np.int64), np.array(list(found.values()), np.int64)


def _size_scatter(
    name: str,
    names: Sequence[str] | None,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    labels: tuple[str, str],
    *,
    unit: str,
) -> Figure:
    known = np.flatnonzero((before > 0) & (after > 0))
    ratio = np.divide(after, before, out=np.ones(len(before)), where=before > 0)
    kept = spread_out(known, before, ratio)
    points = [
        (
            float(before[at]),
            100 * (float(ratio[at]) - 1),
            words.shown(names[at]) if names is not None else "",
            figures.GOOD if ratio[at] < 1 else figures.BAD if ratio[at] > 1 else figures.QUIET,
        )
        for at in kept
    ]
    change = ratio[known]
    alt = (
        f"Scatter chart of {words.counted(len(known), unit)}: size in {labels[0]}, and its change in percent in "
        f"{labels[1]}."
    )
    drawn = (
        ""
        if len(kept) == len(known)
        else f" {words.count(len(kept))} of {words.count(len(known))} are shown, including all extremes."
    )
    rows = (
        tuple((text, words.change(float(np.quantile(change, at)) - 1)) for text, at in _QUANTILES)
        if len(change)
        else ()
    )
    return Figure(
        name,
        f"Change by size of the {unit}",
        f"A point is a {unit}: below the line it is smaller in {labels[1]} (green), above it larger (red). Changes of "
        f"large {unit}s matter most for the total.{drawn}",
        alt,
        figures.scatter(points, alt, x=f"bytes in {labels[0]}", y="change in %", log=False, level=True),
        Table("Quantiles of the relative change", ("quantile", "change"), rows),
    )


def _actions(before: DatasetFacts, after: DatasetFacts, name: str, labels: tuple[str, str]) -> Iterator[Block]:
    decision = before.decision
    if decision is None or decision not in before.features or decision not in after.features:
        return
    found = [facts.features[decision] for facts in (before, after)]
    if not all(one.finite for one in found):
        return
    called = words.shown(decision)
    tallies = [dict(zip(*(part.tolist() for part in one.steps()), strict=True)) for one in found]
    if len({*tallies[0], *tallies[1]}) > _ACTIONS_MOST:
        yield Heading(f"{name}-actions", "Balance of decisions")
        rows = ((text, *(words.number(one.quantile(at)) for one in found)) for text, at in _QUANTILES)
        yield Table(f"Quantiles of {called}", ("quantile", *_different(labels)), tuple(rows))
        return
    values = sorted(
        {*tallies[0], *tallies[1]}, key=lambda value: (-sum(tally.get(value, 0) for tally in tallies), value)
    )
    shown = sorted(values[:_ACTIONS])
    bars = [
        (words.number(value), [tally.get(value, 0) / one.finite for tally, one in zip(tallies, found, strict=True)])
        for value in shown
    ]
    if len(values) > len(shown):
        bars.append(("others", [1 - sum(shares[side] for _, shares in bars) for side in (0, 1)]))
    names = _different(labels)
    yield Heading(f"{name}-actions", "Balance of decisions")
    alt = f"Bar chart of the frequency of each value of {called}, in {labels[0]} and in {labels[1]}."
    yield Figure(
        f"{name}-actions-chart",
        "Decisions side by side",
        f"The share of each value of {called} among all decisions.",
        alt,
        figures.pairs(names, bars, alt, x=called, y="share of decisions"),
        Table(
            "Shares of decisions",
            (called, *names),
            tuple((label, *map(words.percent, shares)) for label, shares in bars),
        ),
    )


def _different(labels: tuple[str, str]) -> tuple[str, str]:
    return labels if labels[0] != labels[1] else (f"{labels[0]} (1)", f"{labels[1]} (2)")


def _drifts(before: _HasFeatures, after: _HasFeatures) -> dict[str, float]:
    """Return the distance of each feature's two distributions, largest first; those without values are left out."""
    shared = [name for name in before.features if name in after.features]
    distances = {name: before.features[name].drift(after.features[name]) for name in shared}
    known = {name: distance for name, distance in distances.items() if math.isfinite(distance)}
    return dict(sorted(known.items(), key=lambda item: (-item[1], item[0])))


def _drift_blocks(drift: dict[str, float], name: str) -> Iterator[Block]:
    if not drift:
        return
    yield Heading(
        f"{name}-drift",
        "Drift of features",
        "The Kolmogorov-Smirnov distance: the largest gap between the two cumulative distributions, from 0 (the same) "
        f"to 1 (no overlap). From {DRIFT_LIMIT} on, a model trained on one of the two may not work on the other.",
    )
    shown = list(drift.items())[:_DRIFTS]
    rest = f", the largest {len(shown)} of {len(drift)}" if len(drift) > len(shown) else ""
    yield Table(
        f"Features by drift{rest}",
        ("feature", "distance", "flagged"),
        tuple(
            (words.shown(feature), f"{value:.3f}", "yes" if value >= DRIFT_LIMIT else "") for feature, value in shown
        ),
        shares=tuple(value for _, value in shown),
    )


def _drift_call_outs(drift: dict[str, float]) -> Iterator[CallOut]:
    far = [feature for feature, value in drift.items() if value >= DRIFT_LIMIT]
    if far:
        listed = ", ".join(words.shown(feature, 60) for feature in far[:8])
        more = f" and {len(far) - 8} more" if len(far) > 8 else ""
        yield CallOut(
            f"{words.counted(len(far), 'feature')} {words.be(len(far))} distributed differently (distance of "
            f"{DRIFT_LIMIT} or more): {listed}{more}.",
            "A model trained on one of the two may perform badly on the other: mix them, or train again.",
        )


def _tables(before: SizesFacts, after: SizesFacts, name: str, labels: tuple[str, str]) -> Section:
    _, mine, theirs = np.intersect1d(before.keys, after.keys, return_indices=True)
    old, new = before.labels[mine], after.labels[theirs]
    both = np.isfinite(old) & np.isfinite(new)
    old, new = old[both], new[both]
    delta = new - old
    blocks: list[Block] = []
    headlines = [
        Headline(
            "functions in both", words.count(len(mine)), f"of {words.count(before.rows)} and {words.count(after.rows)}"
        )
    ]
    data: dict[str, Any] = {"labels": list(labels), "functions": len(mine), "both_labelled": len(old)}
    if len(old):
        share = float(new.sum() / old.sum()) - 1 if old.sum() else math.nan
        smaller, larger = int((delta < 0).sum()), int((delta > 0).sum())
        headlines += [
            Headline(
                "size", words.change(share), f"{words.size(float(new.sum()))} after {words.size(float(old.sum()))}"
            ),
            Headline("smaller, larger", f"{words.count(smaller)}, {words.count(larger)}", "functions"),
        ]
        data["sizes"] = {"before": int(old.sum()), "after": int(new.sum()), "smaller": smaller, "larger": larger}
        found = Distribution()
        found.add(delta)
        alt = (
            f"Histogram of the change in bytes of {words.counted(len(delta), 'function')}, from "
            f"{words.number(found.min)} to {words.number(found.max)}."
        )
        quantiles = ((text, words.signed(found.quantile(at))) for text, at in _QUANTILES)
        blocks += [
            Heading(f"{name}-labels", "Labels of the same functions"),
            Figure(
                f"{name}-delta",
                "Change in bytes per function",
                f"Functions of the same name in the same module: {words.count(smaller)} are smaller, "
                f"{words.count(larger)} larger.",
                alt,
                figures.of_histogram(found.histogram(), alt, x="bytes more or less", y="functions"),
                Table("Quantiles of the change", ("quantile", "bytes"), tuple(quantiles)),
            ),
            _size_scatter(f"{name}-scatter", None, old, new, labels, unit="function"),
            _largest_changes(before, before.keys[mine][both], old, new),
        ]
    drift = _drifts(before, after)
    data["drift"] = drift
    blocks += _drift_blocks(drift, name)
    return _section(
        name,
        labels,
        "The same functions, compiled in two ways.",
        headlines=tuple(headlines),
        call_outs=tuple(_drift_call_outs(drift)),
        blocks=tuple(blocks),
        data=data,
    )


def _largest_changes(
    facts: SizesFacts, keys: NDArray[np.uint64], before: NDArray[np.float64], after: NDArray[np.float64]
) -> Table:
    delta = after - before
    order = [at for at in np.argsort(-np.abs(delta), kind="stable")[:_LARGEST].tolist() if delta[at]]
    names = find_names(facts, keys[order])
    rows = tuple(
        (
            words.shown(names[int(keys[at])][1], 80),
            words.shown(names[int(keys[at])][0]),
            words.count(float(before[at])),
            words.count(float(after[at])),
            words.signed(float(delta[at])),
        )
        for at in order
    )
    return Table("The largest changes", ("function", "module", "before", "after", "bytes"), rows, left=2)


def _corpora(before: CorpusFacts, after: CorpusFacts, name: str, labels: tuple[str, str]) -> Section:
    mine, theirs = _in_both(before.names, after.names)
    known = (before.keys[mine] != 0) & (after.keys[theirs] != 0)
    other = np.where(known, before.keys[mine] != after.keys[theirs], before.sizes[mine] != after.sizes[theirs])
    gone = np.setdiff1d(np.arange(len(before.names)), mine)
    new = np.setdiff1d(np.arange(len(after.names)), theirs)
    groups = (
        ("added", len(new), int(after.sizes[new].sum())),
        ("removed", len(gone), int(before.sizes[gone].sum())),
        ("changed", int(other.sum()), int(after.sizes[theirs][other].sum())),
        ("unchanged", int((~other).sum()), int(after.sizes[theirs][~other].sum())),
    )
    blocks: list[Block] = [
        Heading(f"{name}-modules", "Modules"),
        Table(
            "Changes of modules, by their names",
            ("change", "modules", "bitcode"),
            tuple((what, words.count(count), words.size(size)) for what, count, size in groups),
        ),
    ]
    for what, facts, places in (("added", after, new), ("removed", before, gone), ("changed", after, theirs[other])):
        if len(places):
            order = places[np.argsort(-facts.sizes[places], kind="stable")][:_LARGEST].tolist()
            rows = tuple((words.shown(facts.names[at]), words.size(int(facts.sizes[at]))) for at in order)
            blocks.append(Table(f"The largest modules that were {what}", ("module", "bitcode"), rows))
    total, total_after = int(before.sizes.sum()), int(after.sizes.sum())
    change = words.change(total_after / total - 1) if total else "–"
    headlines = [Headline(what, words.count(count), "modules") for what, count, _ in groups]
    headlines.append(Headline("bitcode", change, f"{words.size(total_after)} after {words.size(total)}"))
    data = {"labels": list(labels), **{what: {"modules": count, "bitcode_bytes": size} for what, count, size in groups}}
    return _section(
        name,
        labels,
        "Modules are matched by name; a module is unchanged if its bitcode and its command are.",
        headlines=tuple(headlines),
        call_outs=(),
        blocks=tuple(blocks),
        data=data,
    )
