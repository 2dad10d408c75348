"""Numbers and names as a page writes them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.view import words


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.count(1234567), "1 234 567"),
        (words.count(-1234), "−1 234"),
        (words.counted(1, "module"), "1 module"),
        (words.counted(0, "module"), "0 modules"),
        (words.size(999), "999 B"),
        (words.size(999_999), "1.0 MB"),
        (words.size(-1500), "−1.5 kB"),
        (words.size(7e15), "7000.0 TB"),
        (words.signed(5), "+5"),
        (words.signed(0), "0"),
        (words.percent(0), "0.0 %"),
        (words.percent(1e-9), "<0.1 %"),
        (words.percent(0.99999), ">99.9 %"),
        (words.percent(1), "100.0 %"),
        (words.percent(math.nan), "–"),
        (words.change(-0.5), "−50.00 %"),
        (words.number(3.0), "3"),
        (words.number(0.12345), "0.123"),
        (words.number(123456.7), "123 457"),
        (words.number(-1e30), "−1e+30"),
        (words.number(math.inf), "∞"),
        (words.seconds(0.0123), "0.0123 s"),
        (words.seconds(600), "10.0 min"),
        (words.seconds(1e5), "27.8 h"),
    ],
)
def test_numbers(said: str, expected: str) -> None:
    assert words.plain(said) == expected


@given(st.text())
def test_a_name_is_one_line_that_prints(name: str) -> None:
    said = words.shown(name)
    assert said.isprintable()
    assert len(said) <= 300
    if name.isprintable() and len(name) <= 300:
        assert said == name


def test_the_end_of_a_long_name_stays() -> None:
    said = words.shown("a" * 500 + "/the_end.o", 40)
    assert len(said) == 40
    assert said.endswith("/the_end.o")


def test_what_turns_text_around_or_ends_lines_is_escaped() -> None:
    assert words.shown("a\u202eb\nc\x1b[31m") == "a\\u202eb\\nc\\x1b[31m"
    assert words.shown_lines("one\ttab\x07\ntwo") == "one     tab\\x07\ntwo"
    assert words.short("a/b/c.o") == "c.o"
    assert words.short("///") == "///"


def test_of_a_very_long_text_the_ends_stay() -> None:
    text = "\x07" + "a" * 10_000_000 + "\x08"
    assert words.shown(text, 30) == "\\x07aaaaaa…" + "a" * 15 + "\\x08"
    lines = "\n".join(map(str, range(100_000)))
    assert words.shown_lines(lines).splitlines() == [str(number) for number in range(99_940, 100_000)]
    assert len(words.shown_lines("x" * 10_000_000)) == 400
