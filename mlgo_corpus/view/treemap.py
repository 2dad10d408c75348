"""Rectangles whose areas are sizes (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class _Rectangle(NamedTuple):
    """A rectangle: its left and upper edge, its width and height."""

    x: float
    y: float
    width: float
    height: float


def squarify(sizes: Sequence[float], width: float, height: float) -> list[_Rectangle]:
    """Divide a rectangle among sizes, so that the parts are nearly squares.

    Args:
        sizes: more than 0, descending.
        width: the whole rectangle's width.
        height: the whole rectangle's height.
    """
    total = sum(sizes)
    areas = [size / total * width * height for size in sizes] if total else []
    free = _Rectangle(0.0, 0.0, width, height)
    made: list[_Rectangle] = []
    first = 0
    while first < len(areas):
        side = min(free.width, free.height)
        after = first + 1
        worst = _worst(areas[first:after], side)
        while after < len(areas) and (further := _worst(areas[first : after + 1], side)) <= worst:
            after, worst = after + 1, further
        made += _row(areas[first:after], free)
        free = _rest(sum(areas[first:after]), free)
        first = after
    return made


def _worst(row: Sequence[float], side: float) -> float:
    """Return the largest aspect ratio of the rectangles in a row along a side."""
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))


def _row(row: Sequence[float], free: _Rectangle) -> list[_Rectangle]:
    deep = sum(row) / max(min(free.width, free.height), 1e-12)
    made = []
    at = 0.0
    for area in row:
        along = area / max(deep, 1e-12)
        made.append(
            _Rectangle(free.x, free.y + at, deep, along)
            if free.width >= free.height
            else _Rectangle(free.x + at, free.y, along, deep)
        )
        at += along
    return made


def _rest(area: float, free: _Rectangle) -> _Rectangle:
    deep = area / max(min(free.width, free.height), 1e-12)
    if free.width >= free.height:
        return _Rectangle(free.x + deep, free.y, max(free.width - deep, 0.0), free.height)
    return _Rectangle(free.x, free.y + deep, free.width, max(free.height - deep, 0.0))
