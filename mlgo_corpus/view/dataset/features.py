"""The distributions of features: a small chart of each, and their oddities."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from mlgo_corpus.view import figures, words
from mlgo_corpus.view.aggregate import Distribution, Histogram
from mlgo_corpus.view.blocks import CallOut, FeatureCard, SmallBar

# The share of one value from which a feature is called out.
_MOST_COMMON_LIMIT: Final = 0.99

# A value is an outlier from this multiple of the 99th percentile of sizes.
_OUTLIER_FACTOR: Final = 100.0

_BOX = (100.0, 40.0)
# The least height of a bar, so that a few values among millions are visible.
_LEAST_HEIGHT = 0.8
_NAMED = 8


class _Oddity(NamedTuple):
    """An oddity of a feature: a key of `_KINDS`, and a text for this feature."""

    kind: str
    text: str


class _Kind(NamedTuple):
    told: str
    advice: str
    grave: bool


_KINDS: Final[dict[str, _Kind]] = {
    "nan": _Kind(
        "sometimes not a number (NaN)",
        "One NaN makes a whole batch's loss NaN: replace them (for example with 0) before training, and again when the "
        "model is used.",
        grave=True,
    ),
    "infinite": _Kind("sometimes infinite", "Clip them before training, and again when the model is used.", grave=True),
    "null": _Kind("sometimes missing", "Fill them in, or leave those rows out.", grave=True),
    "zero": _Kind(
        "always 0",
        "A model learns nothing from them: leave them out, or add modules in which they vary. If you expected values, "
        "check whether this compiler computes them.",
        grave=False,
    ),
    "constant": _Kind(
        "always the same number",
        "A model learns nothing from them: leave them out, or add modules in which they vary.",
        False,
    ),
    "one value": _Kind(
        "almost always the same number (more than 99 %)",
        "A model sees too few other cases to learn from them: add modules in which they vary, or leave them out.",
        grave=False,
    ),
    "outlier": _Kind(
        "dominated by a few huge values (more than 100 times the 99th percentile)",
        "Huge values leave little of the scale to all others: take the logarithm or clip before normalising.",
        grave=False,
    ),
}


def _oddities(found: Distribution) -> list[_Oddity]:
    """Return the oddities of a feature's distribution; none for one without values."""
    if not found.count:
        return []
    odd = []
    for kind, number in (("nan", found.nans), ("infinite", found.infinities), ("null", found.nulls)):
        if number:
            name = {"nan": "NaN", "infinite": "infinite", "null": "missing"}[kind]
            odd.append(_Oddity(kind, f"{words.percent(number / found.count)} {name}"))
    if found.is_constant:
        zero = found.min == 0
        return [
            *odd,
            _Oddity("zero", "always 0") if zero else _Oddity("constant", f"always {words.number(found.min)}"),
        ]
    value, share = found.most_common()
    if share > _MOST_COMMON_LIMIT:
        odd.append(_Oddity("one value", f"{words.percent(share)} are {words.number(value)}"))
    largest = max(abs(found.min), abs(found.max))
    usual = max(abs(found.quantile(0.99)), abs(found.quantile(0.01)))
    if usual and largest > _OUTLIER_FACTOR * usual:
        odd.append(_Oddity("outlier", f"the largest is {words.number(largest / usual, 2)} times the 99th percentile"))
    return odd


def call_outs(features: Mapping[str, Distribution]) -> list[CallOut]:
    """Return a call-out for each kind of oddity, with the features that have it."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name, found in features.items():
        for oddity in _oddities(found):
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
    """Return a card for each feature; ``special`` has the roles of some, such as ``the decision``."""
    return tuple(
        _card(name, found, meaning(name) or "", widths.get(name, 1), special.get(name, ""))
        for name, found in features.items()
    )


def _card(name: str, found: Distribution, meaning: str, width: int, special: str) -> FeatureCard:
    odd = _oddities(found)
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
    # Few bars get a quarter of the width each at most, so that two bars do not fill the whole box.
    step = width / max(len(bars), 4)
    made = []
    for number, bar in enumerate(bars):
        if bar.count:
            tall = max(bar.count / most * height, _LEAST_HEIGHT)
            tip = f"{figures.span(bar)}: {words.count(bar.count)} ({words.percent(bar.count / total)})"
            made.append(SmallBar(number * step + step * 0.06, step * 0.88, tall, tip))
    return tuple(made)


def rank(features: Mapping[str, Distribution], scores: Sequence[float], most: int) -> dict[str, Distribution]:
    """Return the features with the largest absolute scores."""
    ordered = sorted(
        zip(features, scores, strict=True), key=lambda item: (-abs(item[1]) if math.isfinite(item[1]) else 1.0, item[0])
    )
    return {name: features[name] for name, _ in ordered[:most]}
