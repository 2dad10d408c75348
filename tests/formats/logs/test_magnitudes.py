"""Numbers counted by sign and power of two, against Python's own arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.formats.logs.magnitudes import Bin, Magnitudes, merged


def counted(*parts: np.ndarray) -> tuple[Bin, ...]:
    found = Magnitudes()
    for part in parts:
        found.add(part)
    return found.bins()


def test_integers() -> None:
    bins = counted(np.array([-5, -4, -1, 0, 0, 1, 2, 3, 8], np.int64))
    assert bins == (
        Bin(-8, -4, 2),
        Bin(-4, -2, 0),
        Bin(-2, -1, 1),
        Bin(0, 0, 2),
        Bin(1, 2, 1),
        Bin(2, 4, 2),
        Bin(4, 8, 0),
        Bin(8, 16, 1),
    )


def test_the_ends_of_the_types() -> None:
    assert counted(np.array([2**63 - 1], np.int64)) == (Bin(2.0**62, 2.0**63, 1),)
    assert counted(np.array([-(2**63)], np.int64)) == (Bin(-(2.0**64), -(2.0**63), 1),)
    assert counted(np.array([2**64 - 1], np.uint64)) == (Bin(2.0**63, 2.0**64, 1),)
    assert counted(np.array([-128, 127], np.int8)) == (Bin(-256, -128, 1), Bin(64, 128, 1))
    smallest, largest = 5e-324, 1.7976931348623157e308
    assert counted(np.array([smallest])) == (Bin(smallest, 2 * smallest, 1),)
    assert counted(np.array([largest])) == (Bin(2.0**1023, math.inf, 1),)
    low, *_, high = counted(np.array([-math.inf, math.inf, math.nan, 1.0]))
    assert (low, high) == (Bin(-math.inf, -math.inf, 1), Bin(math.inf, math.inf, 1))


def test_of_nothing_there_is_nothing() -> None:
    assert counted() == counted(np.array([], np.int64)) == counted(np.array([math.nan, math.nan])) == ()
    assert merged([], 5) == []


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64])
@given(data=st.data())
def test_every_value_is_in_its_bin(dtype: type, data: st.DataObject) -> None:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        numbers = st.floats(width=kind.itemsize * 8)  # type: ignore[arg-type]
    else:
        numbers = st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))  # type: ignore[assignment]
    values = data.draw(st.lists(numbers, max_size=20))
    cut = data.draw(st.integers(0, len(values)))
    bins = counted(np.array(values[:cut], kind), np.array(values[cut:], kind))
    expected: Counter[tuple[float, float]] = Counter()
    for value in np.array(values, kind).tolist():
        if math.isnan(value):
            continue
        if value == 0 or math.isinf(value):
            expected[(value + 0.0, value + 0.0)] += 1
            continue
        near = 1 << (abs(value).bit_length() - 1) if isinstance(value, int) else 2.0 ** (math.frexp(value)[1] - 1)
        far = near * 2
        expected[(near, far) if value > 0 else (-far, -near)] += 1
    assert {(one.low, one.high): one.number for one in bins if one.number} == expected
    edges = [(one.low, one.high) for one in bins]
    assert edges == sorted(edges)
    for before, after in pairwise(bins):
        assert before.high == after.low or 0 in (before.low, after.low) or before.high < 0 < after.low


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 20))
def test_merging_loses_nothing(counts: list[int], most: int) -> None:
    groups = merged(counts, most)
    assert len(groups) <= most
    assert sum(groups) == sum(counts)
