"""Charts as specifications: what their axes are marked with."""

from __future__ import annotations

import pytest

from mlgo_corpus.view import figures


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([0.5, 90_000.0], [0.1, 1, 10, 100, 1000, 10_000, 100_000]),
        ([3.0, 30.0], [1, 2, 5, 10, 20, 50, 100, 200, 500]),
        ([0.031, 0.058], [*(number / 100 for number in range(1, 10)), *(number / 10 for number in range(1, 10))]),
        ([80.0, 80.0], [80, 80]),
        ([0.0], []),
    ],
)
def test_a_logarithmic_axis_has_marks_however_short_it_is(values: list[float], marks: list[float]) -> None:
    points = [(value, value, "", figures.FIRST) for value in values]
    (layer,) = figures.scatter(points, "a chart", x="x", y="y")["layer"]
    assert layer["encoding"]["x"]["axis"]["values"] == pytest.approx(marks)


def test_changes_are_drawn_from_zero() -> None:
    steps = [("a.o", "1 smaller", 100.0, 99.0, figures.GOOD)]
    assert figures.waterfall(steps, "a chart", x="bytes")["encoding"]["x"]["scale"]["zero"]
    points = [(10.0, 5.0, "", figures.BAD), (20.0, 6.0, "", figures.BAD)]
    layers = figures.scatter(points, "a chart", x="x", y="change", log=False)["layer"]
    assert layers[0]["encoding"]["y"]["scale"]["zero"]
