"""Charts as Vega-Lite specifications: plain dictionaries that need nothing to be fetched.

Colours are the page's own (``var(--a)``), so that charts follow it in dark mode and in print. Foreign text is only in
``data`` and in titles of axes, where nothing is evaluated, and in ``labelExpr`` as JSON strings. Titles of fields are
different: Vega-Lite pastes them into the expressions of tooltips and descriptions, and escapes only quotes; see
`_harmless`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from mlgo_corpus.view import words
from mlgo_corpus.view.aggregate import Bar, Histogram

Spec = dict[str, Any]
Rows = Sequence[dict[str, Any]]

GOOD: Final = "var(--good)"
BAD: Final = "var(--bad)"
FIRST: Final = "var(--a)"
SECOND: Final = "var(--b)"
QUIET: Final = "var(--quiet)"

_HEIGHT = 220
_ROW = 24
_TICKS = 6
# Formats of an axis's numbers: 50k, or in full.
_SHORT = "format(datum.value, '~s')"
_PLAIN = "format(datum.value, '~g')"
# A logarithmic axis that spans fewer powers of ten than this is also marked at 2 and 5 times them, and a short one at
# more multiples.
_DECADES = 3
_FACTORS = ((1,), (1, 2, 5), range(1, 10), [tenths / 10 for tenths in range(10, 100)])
# Counts have no fractional marks: '~s' would write 0.5 as 500m.
_WHOLE = f"datum.value % 1 ? '' : {_SHORT}"

CONFIG: Final[Spec] = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 150,
        "labelOverlap": "greedy",
        "labelSeparation": 6,
    },
    "legend": {"labelColor": "var(--soft)", "titleColor": "var(--soft)", "orient": "top", "labelFontSize": 12},
    "text": {"fill": "var(--ink)", "fontSize": 12},
    "bar": {"fill": FIRST},
    "point": {"fill": FIRST, "stroke": None, "filled": True, "size": 36},
    "rule": {"stroke": "var(--soft)"},
}
"""The configuration that all charts share; the page passes it to Vega."""


def _spec(alt: str, rows: Rows, height: int, **rest: Any) -> Spec:
    return {
        "description": alt,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": list(rows)},
        **rest,
    }


def _tips(*fields: tuple[str, str]) -> list[Spec]:
    return [{"field": name, "type": "nominal", "title": _harmless(title)} for name, title in fields]


def _harmless(title: str) -> str:
    """Return a title without characters that have a meaning in an expression."""
    return re.sub(r"[^\w %(),./:-]", "_", title)


def _titled(title: str, axis: Spec) -> Spec:
    """Return a field's harmless title, and its axis with the original title, which is not evaluated there."""
    return {"title": _harmless(title), "axis": {**axis, "title": title}}


def histogram(
    bars: Sequence[tuple[str, str, float]], alt: str, *, x: str, y: str, edges: Sequence[str] | None = None
) -> Spec:
    """Draw bars side by side.

    Args:
        bars: the label, the tooltip and the height of each bar.
        alt: the chart's description.
        x: the horizontal axis's title.
        y: the vertical axis's title.
        edges: the labels between the bars, one more than bars; without them each bar has its own label.
    """
    rows = [
        {"i": number, "j": number + 1, "label": label, "tip": tip, "n": height}
        for number, (label, tip, height) in enumerate(bars)
    ]
    height: Spec = {"field": "n", "type": "quantitative", **_titled(y, {"tickCount": 4, "labelExpr": _WHOLE})}
    shared: Spec = {"y": height, "tooltip": _tips(("label", x), ("tip", y))}
    if edges is None:
        across: Spec = {"field": "label", "type": "ordinal", "sort": None, **_titled(x, {"labelAngle": 0})}
        mark: Spec = {"type": "bar", "width": {"expr": "min(72, bandwidth('x') * 0.92)"}}
        return _spec(alt, rows, _HEIGHT, mark=mark, encoding={"x": across, **shared})
    step = max(1, -(-len(bars) // _TICKS))
    values = list(range(0, len(bars) + 1, step))
    axis = {"values": values, "grid": False, "labelExpr": f"{json.dumps(list(edges))}[datum.value]"}
    across = {"field": "i", "type": "quantitative", **_titled(x, axis)}
    across["scale"] = {"domain": [0, len(bars)], "nice": False}
    mark = {"type": "rect", "stroke": "var(--paper)", "strokeWidth": 1, "fill": FIRST}
    spans = {"x": across, "x2": {"field": "j"}, "y2": {"datum": 0}}
    return _spec(alt, rows, _HEIGHT, mark=mark, encoding={**spans, **shared})


def span(bar: Bar, write: Any = words.number) -> str:
    """Return the range of a bar's values as text."""
    return str(write(bar.low)) if bar.low == bar.high else f"{write(bar.low)} to {write(bar.high)}"


def of_histogram(found: Histogram, alt: str, *, x: str, y: str, write: Any = words.number) -> Spec:
    """Draw the histogram of a distribution."""
    total = sum(bar.count for bar in found.bars) or 1

    def tip(count: int) -> str:
        return f"{words.count(count)} ({words.percent(count / total)})"

    if found.scale == "values":
        return histogram([(span(bar, write), tip(bar.count), bar.count) for bar in found.bars], alt, x=x, y=y)
    edges = [write(bar.low) for bar in found.bars] + [write(found.bars[-1].high)]
    bars = [(span(bar, write), tip(bar.count), bar.count) for bar in found.bars]
    if found.scale == "log":
        x = f"{x} (ranges grow away from 0)"
    return histogram(bars, alt, x=x, y=y, edges=edges)


def waterfall(steps: Sequence[tuple[str, str, float, float, str]], alt: str, *, x: str) -> Spec:
    """Draw how one number becomes another, step by step from top to bottom.

    Args:
        steps: the label, the tooltip, the beginning, the end and the colour of each bar.
        alt: the chart's description.
        x: the horizontal axis's title.
    """
    rows = [
        {"k": f"{number:03d}", "label": label, "tip": tip, "from": low, "to": high, "colour": colour}
        for number, (label, tip, low, high, colour) in enumerate(steps)
    ]
    labels = json.dumps({row["k"]: row["label"] for row in rows})
    colours = sorted({step[4] for step in steps})
    encoding = {
        "y": {"field": "k", "type": "ordinal", "title": None, "axis": {"labelExpr": f"{labels}[datum.value]"}},
        "x": {
            "field": "from",
            "type": "quantitative",
            "scale": {"zero": True},
            **_titled(x, {"labelExpr": _WHOLE, "tickCount": 5}),
        },
        "x2": {"field": "to"},
        "color": {
            "field": "colour",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": colours, "range": colours},
        },
        "tooltip": _tips(("label", "module"), ("tip", "bytes")),
    }
    # A bar of length 0, such as an unchanged total, becomes a line.
    mark = {"type": "bar", "height": {"band": 0.72}, "minBandSize": 2}
    return _spec(alt, rows, _ROW * len(rows), mark=mark, encoding=encoding)


def scatter(
    points: Sequence[tuple[float, float, str, str]],
    alt: str,
    *,
    x: str,
    y: str,
    log: bool = True,
    level: bool = False,
) -> Spec:
    """Draw points.

    Args:
        points: each point's place, name (or empty) and colour.
        alt: the chart's description.
        x: the horizontal axis's title.
        y: the vertical axis's title.
        log: whether both axes are logarithmic; else only the horizontal one is.
        level: draw the line at 0.
    """
    rows = [
        {"x": left, "y": up, "name": name, "tx": words.number(left), "ty": words.number(up), "colour": colour}
        for left, up, name, colour in points
    ]
    colours = sorted({point[3] for point in points})

    def axis(name: str, title: str, *, is_log: bool) -> Spec:
        scale: Spec = {"type": "log", "nice": False} if is_log else {"nice": True, "zero": True}
        values = [point[0] if name == "x" else point[1] for point in points]
        ticks: Spec = {"values": _round_numbers(values)} if is_log else {"tickCount": 5}
        return {
            "field": name,
            "type": "quantitative",
            "scale": {**scale, "padding": 10},
            **_titled(title, {"labelExpr": _SHORT if large else _PLAIN, **ticks, "gridOpacity": 0.6}),
        }

    large = max((max(abs(point[0]), abs(point[1])) for point in points), default=0) >= 1000
    across, up = axis("x", x, is_log=True), axis("y", y, is_log=log)
    colour = {"field": "colour", "type": "nominal", "legend": None, "scale": {"domain": colours, "range": colours}}
    tips = _tips(*([("name", "module")] if any(point[2] for point in points) else []), ("tx", x), ("ty", y))
    encoding = {"x": across, "y": up, "color": colour, "tooltip": tips}
    layers: list[Spec] = []
    if level:
        layers.append({"mark": {"type": "rule", "stroke": QUIET}, "encoding": {"y": {"datum": 0}}})
    layers.append({"mark": {"type": "point", "opacity": 0.7}, "encoding": encoding})
    return _spec(alt, rows, 300, layer=layers)


def _round_numbers(values: Sequence[float]) -> list[float]:
    """Return the marks of a logarithmic axis: powers of ten, and as many of their multiples as it takes to see some.

    By default, Vega marks 8 and 20 and leaves out 10.
    """
    there = [value for value in values if value > 0 and math.isfinite(value)]
    if not there:
        return []
    low, high = math.log10(min(there)), math.log10(max(there))
    powers = range(math.floor(low), math.ceil(high) + 1)
    marks: list[float] = []
    for factors in _FACTORS[high - low < _DECADES :]:
        marks = [float(f"{factor}e{power}") for power in powers for factor in factors]
        if sum(min(there) <= mark <= max(there) for mark in marks) > 1:
            return marks
    return [float(f"{end:.3g}") for end in (min(there), max(there))]


def lines(points: Sequence[tuple[str, float, float]], alt: str, *, x: str, y: str) -> Spec:
    """Draw a line for each series, with 0 in view.

    Args:
        points: the series, the place and the height of each point; heights are shares.
        alt: the chart's description.
        x: the horizontal axis's title.
        y: the vertical axis's title.
    """
    rows = [{"of": of, "x": place, "y": height, "tip": words.change(height)} for of, place, height in points]
    series = list(dict.fromkeys(row["of"] for row in rows))
    colours = [(FIRST, SECOND, GOOD, BAD, QUIET)[number % 5] for number in range(len(series))]
    encoding = {
        "x": {"field": "x", "type": "quantitative", "scale": {"zero": False}, **_titled(x, {"tickCount": 6})},
        "y": {"field": "y", "type": "quantitative", "scale": {"zero": True}, **_titled(y, {"format": "%"})},
        "color": {"field": "of", "type": "nominal", "title": None, "scale": {"domain": series, "range": colours}},
        "tooltip": _tips(("of", "corpus"), ("x", x), ("tip", y)),
    }
    layers: list[Spec] = [
        {"mark": {"type": "rule", "stroke": QUIET}, "encoding": {"y": {"datum": 0}}},
        {"mark": {"type": "line", "point": {"filled": True}}, "encoding": encoding},
    ]
    return _spec(alt, rows, _HEIGHT, layer=layers)


def pairs(groups: Sequence[str], bars: Sequence[tuple[str, Sequence[float]]], alt: str, *, x: str, y: str) -> Spec:
    """Draw bars of several groups side by side, as shares of each group.

    Args:
        groups: the groups' names.
        bars: a label, and the share of each group.
        alt: the chart's description.
        x: the horizontal axis's title.
        y: the vertical axis's title.
    """
    rows = [
        {"label": label, "group": group, "share": share, "tip": words.percent(share)}
        for label, shares in bars
        for group, share in zip(groups, shares, strict=True)
    ]
    encoding = {
        "x": {"field": "label", "type": "ordinal", "sort": None, **_titled(x, {"labelAngle": 0})},
        "xOffset": {"field": "group", "sort": list(groups)},
        "y": {"field": "share", "type": "quantitative", **_titled(y, {"format": "%", "tickCount": 4})},
        "color": {
            "field": "group",
            "title": None,
            "sort": list(groups),
            "scale": {"domain": list(groups), "range": [FIRST, SECOND]},
        },
        "tooltip": _tips(("label", x), ("group", "of"), ("tip", y)),
    }
    return _spec(alt, rows, _HEIGHT, mark={"type": "bar"}, encoding=encoding)
