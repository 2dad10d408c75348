"""Divide rows into train, validation and test so that equal rows are never on two sides.

A row's group is a digest of its content. A hash of the digest and a seed alone decides a group's side: it does not
change when rows are added or removed, and takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import UsageError

SIDES: Final = ("train", "validation", "test")
"""The names of the sides, in the order of their fractions."""

# The finaliser of MurmurHash3 (Appleby, public domain): any bit of the input changes half of the output's.
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


WEIGHTS: Final = ("functions", "bitcode", "modules")
"""What a corpus's sides can get their fractions of. Of these, functions are closest to decisions: modules vary in size,
and bitcode has debug information."""


class FarSide(NamedTuple):
    """A side that has another share than it was to get."""

    side: str
    share: float
    wanted: float


def far_sides(amounts: Sequence[float], fractions: Sequence[float], *, hardly: bool = False) -> tuple[FarSide, ...]:
    """Return the sides whose share is more than five points off, or less than half of what was wanted.

    Args:
        amounts: what each side has.
        fractions: what each was to get of it.
        hardly: only sides that have less than a quarter of what was wanted.
    """
    total = sum(amounts) or 1
    found = (
        FarSide(side, amount / total, wanted) for side, amount, wanted in zip(SIDES, amounts, fractions, strict=True)
    )
    if hardly:
        return tuple(one for one in found if one.share < one.wanted / 4)
    return tuple(one for one in found if abs(one.share - one.wanted) > 0.05 or one.share < one.wanted / 2)


def parse_fractions(text: str) -> tuple[float, float, float]:
    """Read the fractions of train, validation and test: ``0.8,0.1,0.1``.

    Raises:
        UsageError: they are not three numbers from 0 to 1 whose sum is 1.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    return check_fractions(numbers, text)


def check_fractions(fractions: Iterable[float] | float, shown: object = None) -> tuple[float, float, float]:
    """Return valid fractions as a tuple; ``shown`` is their text in an error. They may be as on the command line.

    Raises:
        UsageError: they are not three numbers from 0 to 1 whose sum is 1.
    """
    if isinstance(fractions, str):
        return parse_fractions(fractions)
    numbers = list(fractions) if isinstance(fractions, Iterable) else [fractions]
    if len(numbers) != 3 or not all(0 <= number <= 1 for number in numbers) or abs(sum(numbers) - 1) > 1e-6:
        shown = ",".join(map(str, numbers)) if shown is None else shown
        raise UsageError("expected three numbers whose sum is 1, such as 0.8,0.1,0.1", option="fractions", value=shown)
    train, validation, test = map(float, numbers)
    return train, validation, test


def assign_sides(digests: NDArray[np.uint64], fractions: Sequence[float], seed: int) -> NDArray[np.int32]:
    """Return the number of each row's side, which depends on its group alone.

    Args:
        digests: of shape (n,): 64 bits of each row's digest.
        fractions: the fraction of the groups that goes to each side.
        seed: another seed divides the groups in another way.
    """
    mixed = digests ^ np.uint64(_mix(np.uint64((seed + 1) % 2**64)))
    # A float64 holds 53 bits exactly and stays below 1, so a side whose fraction is 0 gets nothing.
    uniform = (_mix(mixed) >> np.uint64(11)).astype(np.float64) / 2.0**53
    sums = np.cumsum(np.asarray(fractions, np.float64))
    edges = sums[:-1] / sums[-1]
    return np.searchsorted(edges, uniform, side="right").astype(np.int32)


def expected_leakage(digests: NDArray[np.uint64], fractions: Sequence[float]) -> float:
    """Return the share of test rows that would have an equal row in train if rows were divided one by one.

    This is the expected value for a random division: a row of ``c`` equal ones has one of the others in train with
    probability ``1 - (1 - train) ** (c - 1)``.
    """
    if not len(digests):
        return 0.0
    _, counts = np.unique(digests, return_counts=True)
    others = 1.0 - (1.0 - fractions[0]) ** (counts - 1)
    return float((counts * others).sum() / counts.sum())


def _mix(values: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        mixed = np.asarray(values, np.uint64)
        mixed = (mixed ^ (mixed >> _SHIFT)) * _FIRST
        mixed = (mixed ^ (mixed >> _SHIFT)) * _SECOND
        return np.asarray(mixed ^ (mixed >> _SHIFT), np.uint64)
