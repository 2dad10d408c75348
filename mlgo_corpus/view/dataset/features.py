"""The distributions of features: a small chart of each, and what is odd about them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from mlgo_corpus.view import figures, words
from mlgo_corpus.view.aggregate import Distribution, Histogram
from mlgo_corpus.view.blocks import CallOut, FeatureCard, SmallBar

MOST_COMMON_LIMIT: Final = 0.99
"""The share of one value from which a feature is called out."""

OUTLIER_FACTOR: Final = 100.0
"""How many times the 99th percentile of sizes a value is to be called an outlier."""

_BOX = (100.0, 40.0)
# A bar of a few among millions is to be seen, too.
_LEAST_HEIGHT = 0.8
_NAMED = 8


class Oddity(NamedTuple):
    """Something odd about a feature: a word of `_KINDS`, and what it is of this one."""

    kind: str
    text: str


class _Kind(NamedTuple):
    told: str
    advice: str
    grave: bool


_KINDS: Final[dict[str, _Kind]] = {
    "nan": _Kind(
        "not a number (NaN) here and there",
        "One NaN makes a whole batch's loss NaN: replace them (with 0, say) before training, and again when the model "
        "is used.",
        grave=True,
    ),
    "infinite": _Kind(
        "infinite here and there", "Clip them before training, and again when the model is used.", grave=True
    ),
    "null": _Kind("missing here and there", "Fill them in, or leave those rows out.", grave=True),
    "zero": _Kind(
        "0 everywhere",
        "They tell a model nothing: leave them out, or add modules in which they vary. If you expected values, ask "
        "whether this compiler computes them.",
        grave=False,
    ),
    "constant": _Kind(
        "the same number everywhere", "They tell a model nothing: leave them out, or add modules that differ.", False
    ),
    "one value": _Kind(
        "almost always the same number (more than 99 %)",
        "A model sees too few other cases to learn from them: add modules in which they vary, or do without.",
        grave=False,
    ),
    "outlier": _Kind(
        "of a few huge values (more than 100 times the 99th percentile)",
        "They crowd all others into one corner of the scale: take the logarithm or clip before normalising.",
        grave=False,
    ),
}


def oddities(found: Distribution) -> list[Oddity]:
    """Tell what is odd about a feature's distribution; nothing of one without values."""
    if not found.count:
        return []
    odd = []
    for kind, number in (("nan", found.nans), ("infinite", found.infinities), ("null", found.nulls)):
        if number:
            name = {"nan": "NaN", "infinite": "infinite", "null": "missing"}[kind]
            odd.append(Oddity(kind, f"{words.percent(number / found.count)} {name}"))
    if found.is_constant:
        zero = found.min == 0
        return [
            *odd,
            Oddity("zero", "0 everywhere") if zero else Oddity("constant", f"always {words.number(found.min)}"),
        ]
    value, share = found.most_common()
    if share > MOST_COMMON_LIMIT:
        odd.append(Oddity("one value", f"{words.percent(share)} are {words.number(value)}"))
    largest = max(abs(found.min), abs(found.max))
    usual = max(abs(found.quantile(0.99)), abs(found.quantile(0.01)))
    if usual and largest > OUTLIER_FACTOR * usual:
        odd.append(Oddity("outlier", f"the largest is {words.number(largest / usual, 2)} times the 99th percentile"))
    return odd


def call_outs(features: Mapping[str, Distribution]) -> list[CallOut]:
    """Tell of all odd features, those of a kind together."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name, found in features.items():
        for oddity in oddities(found):
            by_kind[oddity.kind].append(name)
    made = []
    for kind, about in _KINDS.items():
        if names := by_kind.get(kind):
            listed = ", ".join(words.shown(name, 60) for name in names[:_NAMED])
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            verb = "is" if len(names) == 1 else "are"
            made.append(
                CallOut(
                    f"{words.counted(len(names), 'feature')} {verb} {about.told}: {listed}{more}.",
                    about.advice,
                    about.grave,
                )
            )
    return made


def feature_cards(
    features: Mapping[str, Distribution],
    meaning: Callable[[str], str | None],
    widths: Mapping[str, int],
    special: Mapping[str, str],
) -> tuple[FeatureCard, ...]:
    """Draw each feature; those named in ``special`` say what else they are, such as ``decision``."""
    return tuple(
        _card(name, found, meaning(name) or "", widths.get(name, 1), special.get(name, ""))
        for name, found in features.items()
    )


def _card(name: str, found: Distribution, meaning: str, width: int, special: str) -> FeatureCard:
    odd = oddities(found)
    histogram = found.histogram()
    facts = [
        ("min", words.number(found.min)),
        ("median", words.number(found.quantile(0.5))),
        ("p95", words.number(found.quantile(0.95))),
        ("max", words.number(found.max)),
        ("zeros", words.percent(found.zeros / found.count) if found.count else "–"),
    ]
    scale = {"log": "logarithmic scale"}.get(histogram.scale, "")
    notes = [note for note in (special, f"{width} places" if width > 1 else "", scale) if note]
    low, high = (words.number(found.min), words.number(found.max)) if histogram.bars else ("", "")
    return FeatureCard(
        name=words.shown(name, 80),
        meaning=meaning,
        scale=", ".join(notes),
        bars=_bars(histogram),
        ends=(low, high),
        facts=tuple(facts),
        flags=tuple(oddity.text for oddity in odd),
        grave=any(_KINDS[oddity.kind].grave for oddity in odd),
    )


def _bars(histogram: Histogram) -> tuple[SmallBar, ...]:
    bars = histogram.bars
    if not bars:
        return ()
    width, height = _BOX
    most = max(bar.count for bar in bars)
    total = sum(bar.count for bar in bars)
    # Of few values each has its place, so that two bars of a wide range are not taken for neighbours' noise.
    step = width / max(len(bars), 4)
    made = []
    for number, bar in enumerate(bars):
        if bar.count:
            tall = max(bar.count / most * height, _LEAST_HEIGHT)
            tip = f"{figures.span(bar)}: {words.count(bar.count)} ({words.percent(bar.count / total)})"
            made.append(SmallBar(number * step + step * 0.06, step * 0.88, tall, tip))
    return tuple(made)


def rank(features: Mapping[str, Distribution], scores: Sequence[float], most: int) -> dict[str, Distribution]:
    """Give the features with the largest scores, whatever their sign."""
    ordered = sorted(
        zip(features, scores, strict=True), key=lambda item: (-abs(item[1]) if math.isfinite(item[1]) else 1.0, item[0])
    )
    return {name: features[name] for name, _ in ordered[:most]}
