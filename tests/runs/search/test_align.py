"""Alignments of planned decisions with those of another compile."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.runs.search import align
from mlgo_corpus.runs.search.align import Alignment

FEATURES = 20
HEIGHT = 7
NAMES = ["callsite_height" if number == HEIGHT else f"feature_{number}" for number in range(FEATURES)]
HEADER = LogHeader(tuple(map(TensorSpec, NAMES)), advice=TensorSpec("inlining_decision"))

Row = tuple[int, ...]


def packed(row: Sequence[int]) -> bytes:
    return struct.pack(f"={FEATURES}q", *row)


def found(planned: Sequence[Row], asked: Sequence[Row], *, short_cut: bool = True) -> list[int | None]:
    alignment = Alignment(HEADER, [packed(row) for row in planned])
    answers = []
    for row in asked:
        alignment._sure = alignment._sure and short_cut
        answers.append(alignment.find(packed(row)))
    return answers


def rows(generator: random.Random, count: int) -> list[Row]:
    """Return decisions of functions with some calls each; features are small, so that many are equal by chance."""
    made: list[Row] = []
    while len(made) < count:
        height, common = generator.randrange(30), [generator.randrange(4) for _ in range(FEATURES // 2)]
        for _ in range(generator.randrange(1, 5)):
            row = [*common, *(generator.randrange(4) for _ in range(FEATURES // 2))]
            row[HEIGHT] = height
            made.append(tuple(row))
    return made[:count]


def changed(generator: random.Random, row: Row, count: int) -> Row:
    """Return a decision with some other features, of the same function."""
    others = generator.sample([place for place in range(FEATURES) if place != HEIGHT], count)
    return tuple(value + 100 if place in others else value for place, value in enumerate(row))


def plain(planned: Sequence[Row], asked: Sequence[Row]) -> list[int | None]:
    """Return the end of the best alignment up to each decision, of all alignments."""
    worth = [0.0] + [float("-inf")] * len(planned)
    answers: list[int | None] = []
    for row in asked:
        new = [value - align._NEW for value in worth]
        paired = [float("-inf")] * (len(planned) + 1)
        for place, other in enumerate(planned):
            if other[HEIGHT] == row[HEIGHT]:
                equal = sum(one == two for one, two in zip(row, other, strict=True)) / FEATURES
                alike = (equal - align._UNLIKE) / (1 - align._UNLIKE)
                paired[place + 1] = alike + max(
                    worth[begin] - align._SKIPPED * (place - begin) for begin in range(place + 1)
                )
        worth = [max(both) for both in zip(new, paired, strict=True)]
        best = max(range(len(worth)), key=worth.__getitem__)
        answers.append(best - 1 if paired[best] >= new[best] else None)
    return answers


def test_what_is_as_planned_is_found() -> None:
    planned = rows(random.Random(1), 500)
    assert found(planned, planned) == list(range(500))
    assert found([planned[0]] * 300, [planned[0]] * 300) == list(range(300))
    assert found(planned, []) == []
    assert found([], planned[:3]) == [None] * 3


@given(seed=st.integers(0, 10_000), count=st.integers(1, 40))
@settings(max_examples=60)
def test_each_answer_is_the_end_of_the_best_alignment(seed: int, count: int) -> None:
    generator = random.Random(seed)
    planned = rows(generator, count)
    asked: list[Row] = []
    for row in planned:
        if generator.random() < 0.9:
            asked.append(changed(generator, row, generator.choice((0, 0, 0, 1, 4, 9))))
        if generator.random() < 0.1:
            asked += rows(generator, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(align, "_BEHIND", 10**9)
        assert found(planned, asked, short_cut=False) == plain(planned, asked)


def test_a_long_plan_is_followed_through_changes() -> None:
    """Dozens of flips: some calls are gone, some are new, and the features of many are others."""
    generator = random.Random(2)
    planned = rows(generator, 3000)
    asked: list[tuple[Row, int | None]] = []
    for place, row in enumerate(planned):
        chance = generator.random()
        if chance < 0.03:
            asked += ((new, None) for new in rows(generator, generator.randrange(1, 4)))
        if chance > 0.03:
            asked.append((changed(generator, row, 2 if chance < 0.2 else 0), place))
    right = [one == place for one, (_, place) in zip(found(planned, [row for row, _ in asked]), asked, strict=True)]
    assert sum(right) > 0.98 * len(asked)
    assert all(right[-20:]) or sum(right[-200:]) > 190  # what was taken for another one does not lead astray


def test_equal_features_far_ahead_do_not_lead_astray() -> None:
    """A call that is planned further on, as well, is not that one."""
    planned = rows(random.Random(3), 100)
    planned[40] = planned[5]
    missing = [*planned[:5], *planned[6:]]
    assert found(planned, missing) == [*range(5), *range(6, 100)]
    twice = [*planned[:3], planned[40], *planned[3:]]
    assert found(planned, twice)[4:] == list(range(3, 100))


def test_features_of_other_sizes() -> None:
    """A compiler with features that are no words of eight bytes is aligned by bytes."""
    specs = (TensorSpec("one", "float", (3,)), TensorSpec("callsite_height"))
    alignment = Alignment(LogHeader(specs, advice=HEADER.advice), [b"a" * 20, b"b" * 20, b"c" * 20])
    assert [alignment.find(one * 20) for one in (b"a", b"c", b"d")] == [0, 2, None]
