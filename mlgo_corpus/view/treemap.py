"""Rectangles whose areas are sizes (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Rectangle(NamedTuple):
    """Where a rectangle is: its left and upper edge, its width and height."""

    x: float
    y: float
    width: float
    height: float


def squarify(sizes: Sequence[float], width: float, height: float) -> list[Rectangle]:
    """Divide a rectangle among sizes, so that the parts are near to squares.

    Args:
        sizes: more than 0, descending.
        width: of the whole.
        height: of the whole.
    """
    total = sum(sizes)
    areas = [size / total * width * height for size in sizes] if total else []
    free = Rectangle(0.0, 0.0, width, height)
    made: list[Rectangle] = []
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
    """Give the largest ratio of two sides in a row along a side."""
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))


def _row(row: Sequence[float], free: Rectangle) -> list[Rectangle]:
    deep = sum(row) / max(min(free.width, free.height), 1e-12)
    made = []
    at = 0.0
    for area in row:
        along = area / max(deep, 1e-12)
        made.append(
            Rectangle(free.x, free.y + at, deep, along)
            if free.width >= free.height
            else Rectangle(free.x + at, free.y, along, deep)
        )
        at += along
    return made


def _rest(area: float, free: Rectangle) -> Rectangle:
    deep = area / max(min(free.width, free.height), 1e-12)
    if free.width >= free.height:
        return Rectangle(free.x + deep, free.y, max(free.width - deep, 0.0), free.height)
    return Rectangle(free.x, free.y + deep, free.width, max(free.height - deep, 0.0))
