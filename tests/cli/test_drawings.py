"""Bars and columns made of characters: their lengths and heights say what they should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.cli.console import bar, sparkline


def test_bars_have_eighths() -> None:
    assert [bar(part, 16, 2) for part in (0, 0.01, 1, 2, 8, 9, 15, 16)] == ["", "▏", "▏", "▎", "█", "█▏", "█▉", "██"]
    assert bar(1, 0, 5) == bar(-1, 5, 5) == ""


@given(st.floats(0, 1e9), st.floats(1e-3, 1e9), st.integers(1, 60))
def test_a_bar_is_as_long_as_its_part(part: float, most: float, width: int) -> None:
    part = min(part, most)
    drawn = bar(part, most, width)
    assert (len(drawn) == 0) == (part == 0)
    assert len(drawn) <= width
    eighths = sum(8 if letter == "█" else " ▏▎▍▌▋▊▉".index(letter) for letter in drawn)
    assert abs(eighths / 8 - width * part / most) <= 1 / 8


def test_columns_are_as_high_as_their_numbers() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7, 8]) == " ▁▂▃▄▅▆▇█"
    assert sparkline([0, 1, 10_000]) == " ▁█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "
