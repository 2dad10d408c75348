"""The section of a page on a learned policy: how it learned, what it goes by, and where it decides otherwise than LLVM.

It is drawn from ``metrics.json``, which is any JSON from anywhere: what is not as training writes it is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mlgo_corpus.files.columns import LARGEST
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.view import figures, words
from mlgo_corpus.view.blocks import Block, CallOut, Facts, Figure, Heading, Headline, Section, Table

_FEATURES: Final = 15
_RANGES: Final = 64
_POINTS: Final = 1000
_CORPORA: Final = 12
_MODULES: Final = 20
_FACTS: Final = 12
_LINKAGE: Final = "callee_linkage"
_BY: Final = {
    "callee_basic_block_count": "the callee's basic blocks",
    "cost_estimate": "the estimated cost",
    "callee_users": "the callee's uses",
    "caller_users": "the caller's uses",
    "callsite_height": "the call site's height in the call graph",
    "is_callee_avail_external": "whether the callee is defined elsewhere",
    _LINKAGE: "the callee's linkage",
}


class _Curve(NamedTuple):
    """A change of each corpus at several places.

    Attributes:
        corpora: their names.
        points: the places, and the changes there.
        best: the number of the point that was kept.
        across: what the places are.
        seen: whether it learned from these corpora.
        measure: the changes are of the text of these.
    """

    corpora: tuple[str, ...]
    points: tuple[tuple[float, tuple[float, ...]], ...]
    best: int
    across: str
    seen: bool
    measure: str


def policy_section(policy: LearnedPolicy, name: str, label: str) -> Section:
    """Return the section of a policy; ``name`` is its anchor, ``label`` its name on the page."""
    metrics, training = policy.metrics, policy.training
    curve = _curve_of(metrics) or _thresholds_of(metrics)
    importance = _importance_of(metrics)
    differences = _object(metrics.get("differences"))
    worst = _worst_of(metrics)
    algorithm = words.shown(training.get("algorithm", "unknown"), 60)
    return Section(
        name=name,
        label=label,
        title=f"{label}: {words.shown(policy.name)}, a policy for {policy.task}",
        lead=f"A learned policy: {policy.kind}, {policy.model.described()}; learned by {algorithm}.",
        headlines=tuple(_headlines(policy, curve, differences)),
        call_outs=tuple(_call_outs(policy, curve, worst)),
        blocks=(
            *_curve_blocks(curve, name),
            *_importance_blocks(importance, name),
            *_difference_blocks(differences, name),
            *_worst_blocks(worst, name),
        ),
        provenance=(_provenance(policy, label),),
        data={
            "name": policy.name,
            "digest": policy.digest,
            "curve": None if curve is None else curve._asdict(),
            "importance": importance,
            "differences": differences,
            "worst": worst,
        },
    )


def _headlines(policy: LearnedPolicy, curve: _Curve | None, differences: Mapping[str, Any]) -> Iterator[Headline]:
    yield Headline("features", words.count(len(policy.features)))
    if curve is not None:
        place, changes = curve.points[curve.best]
        mean = sum(changes) / len(changes)
        what = "of the corpora it learned from" if curve.seen else "of the validation corpora"
        yield Headline(curve.measure, words.change(mean), f"{what}, on average")
        yield Headline(curve.across, words.number(place), "kept, of those that were tried")
    shares = [_number(differences.get(key)) for key in ("llvm", "policy", "differ")]
    if None not in shares:
        llvm, own, differ = (share or 0.0 for share in shares)
        yield Headline("inlined", words.percent(own), f"by LLVM: {words.percent(llvm)}")
        yield Headline("decides otherwise", words.percent(differ), "than LLVM, of the decisions in training")


def _call_outs(policy: LearnedPolicy, curve: _Curve | None, worst: Sequence[tuple[str, int, int]]) -> Iterator[CallOut]:
    if not policy.metrics:
        yield CallOut("Nothing was measured of this policy.", "An evaluation tells what it is worth.")
    elif curve is None:
        yield CallOut("No validation corpus was compiled in training.", "An evaluation tells what it is worth.")
    elif curve.seen:
        yield CallOut(
            "The curve is of the corpora that it learned from.", "On others, it may be worth less: evaluate it on one."
        )
    if curve is not None:
        for corpus, change in zip(curve.corpora, curve.points[curve.best][1], strict=True):
            if change > 0:
                text = f"{words.shown(corpus, 80)} grows by {words.percent(change)}."
                yield CallOut(text, "Code of its kind is missing in training, or this is no policy for it.", grave=True)
    if worst:
        module, size, before = worst[0]
        text = f"One module grows by {words.percent(size / max(1, before) - 1)}: {words.shown(module, 120)}."
        yield CallOut(text, "The table below has the others.")


def _curve_blocks(curve: _Curve | None, name: str) -> Iterator[Block]:
    if curve is None:
        return
    yield Heading(f"{name}-curve", "How it learned")
    rows = [
        (corpus, place, change)
        for place, changes in curve.points
        for corpus, change in zip(curve.corpora, changes, strict=True)
    ]
    best, changes = curve.points[curve.best]
    alt = (
        f"Change of the text of the {curve.measure} of {words.count(len(curve.corpora))} "
        f"{'corpus' if len(curve.corpora) == 1 else 'corpora'} against LLVM's own decisions, by {curve.across}: "
        f"at {words.number(best)}, which was kept, "
        f"{', '.join(map(words.change, changes))}."
    )
    yield Figure(
        f"{name}-curve-chart",
        f"Size by {curve.across}",
        f"Text of the {curve.measure}, against LLVM's own decisions: below 0 is smaller.",
        alt,
        figures.lines(rows, alt, x=curve.across, y="change of text"),
        Table(
            f"Change by {curve.across}",
            (curve.across, *(words.shown(corpus, 40) for corpus in curve.corpora), "kept"),
            tuple(
                (words.number(place), *map(words.change, changes), "yes" if number == curve.best else "")
                for number, (place, changes) in enumerate(curve.points)
            ),
        ),
    )


def _importance_blocks(importance: Mapping[str, float], name: str) -> Iterator[Block]:
    if not importance:
        return
    yield Heading(f"{name}-importance", "What it goes by")
    shown = list(importance.items())[:_FEATURES]
    yield Table(
        "Features by importance",
        ("feature", "share"),
        tuple((words.shown(feature, 80), words.percent(share)) for feature, share in shown),
        shares=tuple(share for _, share in shown),
    )


def _difference_blocks(differences: Mapping[str, Any], name: str) -> Iterator[Block]:
    found = [(feature, _ranges_of(value)) for feature, value in _object(differences.get("by")).items()]
    found = [(feature, ranges) for feature, ranges in found if ranges and feature in _BY]
    if not found:
        return
    yield Heading(
        f"{name}-differences", "Where it decides otherwise than LLVM", "Of the decisions that training came to."
    )
    for feature, ranges in found:
        alt = f"Share of calls that are inlined, by {_BY[feature]}: " + "; ".join(
            f"{text}: LLVM {words.percent(llvm)}, the policy {words.percent(own)}" for text, _, llvm, own, _ in ranges
        )
        yield Figure(
            f"{name}-by-{feature.replace('_', '-')}",
            f"By {_BY[feature]}",
            f"{feature}." if feature == _LINKAGE else f"{feature}, in ranges that hold about as many decisions each.",
            alt,
            figures.pairs(
                ("LLVM", "this policy"),
                [(text, (llvm, own)) for text, _, llvm, own, _ in ranges],
                alt,
                x=feature,
                y="inlined",
            ),
            Table(
                f"Decisions by {feature}",
                (feature, "decisions", "LLVM inlines", "the policy inlines", "they differ"),
                tuple(
                    (text, words.count(decisions), *map(words.percent, shares)) for text, decisions, *shares in ranges
                ),
            ),
            half=True,
        )


def _worst_blocks(worst: Sequence[tuple[str, int, int]], name: str) -> Iterator[Block]:
    if not worst:
        return
    yield Heading(f"{name}-worst", "Modules that grew")
    yield Table(
        "Modules that grew most, of those that training watched",
        ("module", "bytes", "by LLVM", "change"),
        tuple(
            (words.shown(module), words.count(size), words.count(before), words.change(size / max(1, before) - 1))
            for module, size, before in worst
        ),
    )


def _provenance(policy: LearnedPolicy, label: str) -> Facts:
    training = policy.training
    items = [("name", policy.name), ("digest", policy.digest)]
    items += [(key, str(training[key])) for key in ("tool", "version", "algorithm", "library") if key in training]
    items += [(f"option {key}", str(value)) for key, value in list(_object(training.get("options")).items())[:_FACTS]]
    for one in _list(training.get("data"))[:_FACTS]:
        about = _object(one)
        items.append(
            (
                "learned from",
                f"{about.get('corpus')}: {about.get('modules')} modules, {about.get('decisions')} decisions",
            )
        )
    return Facts(label, tuple((words.shown(key, 60), words.shown(value)) for key, value in items))


# Readers of metrics.json: a value of another type than expected counts as missing.


def _curve_of(metrics: Mapping[str, Any]) -> _Curve | None:
    """Return the curve of a policy that was trained on compiles."""
    curve = _object(metrics.get("curve"))
    points = [(_object(one).get("compiles"), _object(one).get("changes")) for one in _list(curve.get("points"))]
    seen, measure = curve.get("validation") is not True, words.shown(curve.get("measure", "objects"), 40)
    return _checked(curve.get("corpora"), points, curve.get("best"), "compiles", seen=seen, measure=measure)


def _thresholds_of(metrics: Mapping[str, Any]) -> _Curve | None:
    """Return what thresholds made of the validation corpora."""
    validation = _object(metrics.get("validation"))
    tried = sorted(
        (
            (probability, _object(one).get("changes"))
            for one in _list(validation.get("tried"))
            if (probability := _number(_object(one).get("probability"))) is not None
        ),
        key=lambda item: item[0],
    )
    kept = _number(metrics.get("probability"))
    best = next((number for number, (probability, _) in enumerate(tried) if probability == kept), None)
    return _checked(validation.get("corpora"), tried, best, "threshold", seen=False, measure="objects and products")


def _checked(
    names: Any, points: Sequence[tuple[Any, Any]], best: Any, across: str, *, seen: bool, measure: str
) -> _Curve | None:
    corpora = tuple(words.shown(name, 80) for name in _list(names))
    found = []
    for place, changes in points[:_POINTS]:
        numbers = [_number(change) for change in _list(changes)]
        if _number(place) is None or None in numbers or len(numbers) != len(corpora):
            return None
        found.append((float(place), tuple(number or 0.0 for number in numbers)))
    if not found or not 1 <= len(corpora) <= _CORPORA or len(set(corpora)) < len(corpora):
        return None
    if not isinstance(best, int) or not 0 <= best < len(found):
        return None
    return _Curve(corpora, tuple(found), best, across, seen, measure)


def _importance_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    shares = {name: _number(share) for name, share in _object(metrics.get("importance")).items()}
    return {name: share for name, share in shares.items() if share is not None and 0 <= share <= 1}


def _ranges_of(value: Any) -> list[tuple[str, float, float, float, float]]:
    """Return ranges as (values, decisions, inlined by LLVM, by the policy, different)."""
    found = []
    for one in _list(value)[:_RANGES]:
        about = _object(one)
        row = [_number(about.get(key)) for key in ("decisions", "llvm", "policy", "differ")]
        low, high, kind = _number(about.get("low")), _number(about.get("high")), about.get("value")
        if None in row or ((low is None or high is None) and not isinstance(kind, str)):
            return []
        label = words.shown(kind, 40) if isinstance(kind, str) else _range(low or 0.0, high or 0.0)
        decisions, llvm, own, differ = (number or 0.0 for number in row)
        found.append((label, decisions, llvm, own, differ))
    return found


def _worst_of(metrics: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    found = []
    for one in _list(metrics.get("worst"))[:_MODULES]:
        match one:
            case [str(module), int(size), int(before)] if LARGEST >= size > before >= 0:
                found.append((module, size, before))
    return found


def _range(low: float, high: float) -> str:
    return words.number(low) if low == high else f"{words.number(low)} to {words.number(high)}"


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
