"""The layout of treemaps: areas are sizes, and nothing lies on anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.view.treemap import squarify

SIZES = st.lists(st.floats(1, 1e6), min_size=1, max_size=60).map(lambda sizes: sorted(sizes, reverse=True))


@given(SIZES, st.floats(1, 300), st.floats(1, 300))
def test_areas_are_sizes_within_the_whole(sizes: list[float], width: float, height: float) -> None:
    made = squarify(sizes, width, height)
    assert len(made) == len(sizes)
    scale = width * height / sum(sizes)
    for size, one in zip(sizes, made, strict=True):
        assert one.width * one.height == pytest.approx(size * scale, rel=1e-6)
        assert min(one.x, one.y) >= -1e-6
        assert one.x + one.width <= width * (1 + 1e-6)
        assert one.y + one.height <= height * (1 + 1e-6)


@given(SIZES)
def test_nothing_lies_on_anything_else(sizes: list[float]) -> None:
    made = squarify(sizes, 200, 100)
    for number, one in enumerate(made):
        for other in made[:number]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(across, down) < 1e-6 * 200


def test_the_example_of_the_paper() -> None:
    # Bruls, Huizing, van Wijk: 6, 6, 4, 3, 2, 2, 1 in a rectangle of 6 by 4.
    made = squarify([6, 6, 4, 3, 2, 2, 1], 6, 4)
    assert [(round(one.width, 4), round(one.height, 4)) for one in made[:4]] == [
        (3, 2),
        (3, 2),
        (1.7143, 2.3333),
        (1.2857, 2.3333),
    ]


def test_nothing_is_divided_among_nothing() -> None:
    assert squarify([], 1, 1) == []
