"""Quantiles of more numbers than fit into memory, exactly as ``numpy.quantile`` interpolates them.

The b quantiles of n numbers depend on at most 2 b of the numbers: those at certain ranks of their order. They are found
in passes over the numbers, which come in batches:

1. Count each different number. Features of a compiler have few, whatever n is; if there are at most
   `DISTINCT_NUMBERS`, or at most `HELD_NUMBERS` numbers in all, this is enough.
2. Otherwise draw a sample.
3. Count the numbers equal to each of its members, and between two of them. This determines the numbers at some ranks,
   and between which two members the others lie.
4. Gather the numbers in those gaps (some 1000 of 65 536 gaps are needed) and sort them. If they are too many, this
   takes several passes, or the whole procedure again for a single gap.

No number is approximated. _Numbers that are not finite are left out and counted: a single one makes every result of
``numpy.quantile`` NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

DISTINCT_NUMBERS: Final = 1 << 20
"""The most different numbers that are counted: 16 bytes each, and several times that while counts are merged."""

GATHERED_NUMBERS: Final = 1 << 23
"""The most numbers that are gathered in one pass."""

HELD_NUMBERS: Final = 1 << 23
"""The most floating-point numbers that are held and sorted at once, which is faster than counting in batches."""

_SAMPLE = 1 << 16
# Counts are merged when at least this many numbers are new: sorting few at a time is slow.
_FEWEST_NEW = 1 << 16
# A range of integers is counted with an array if it is at most this many times as large as their number.
_DENSE = 4

_Numbers = NDArray[Any]
Batches = Callable[[], Iterable[_Numbers]]
"""Yields the same batches of numbers of one type, of shape (n,), each time it is called."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles, and facts about the numbers.

    Attributes:
        edges: the quantiles, float64, at even steps from the least number to the greatest.
        count: the number of finite numbers.
        not_finite: the number of others.
        distinct: the number of different finite numbers; None if there are too many to count.
        passes: how often the numbers were read.
    """

    edges: NDArray[np.float64]
    count: int
    not_finite: int
    distinct: int | None
    passes: int


class Tally(NamedTuple):
    """Different numbers in ascending order, and how often each occurs."""

    numbers: _Numbers
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, batch: _Numbers) -> Tally:
        """Count the numbers of a batch."""
        if batch.dtype.kind == "i" and len(batch):
            least = int(batch.min())
            span = int(batch.max()) - least + 1
            if span <= _DENSE * len(batch):
                counts = np.bincount(batch - batch.dtype.type(least) if least else batch)
                there = np.flatnonzero(counts)
                return cls(there.astype(batch.dtype) + batch.dtype.type(least), counts[there])
        numbers, counts = np.unique(batch, return_counts=True)
        return cls(numbers, counts)

    @classmethod
    def merged(cls, tallies: list[Tally]) -> Tally:
        """Merge several tallies into one."""
        numbers = np.concatenate([tally.numbers for tally in tallies])
        counts = np.concatenate([tally.counts for tally in tallies])
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        first = np.ones(len(numbers), np.bool_)
        np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        return cls(numbers[starts], np.add.reduceat(counts[order], starts) if len(starts) else counts)


def quantiles(batches: Batches, buckets: int, *, at_most: int | None = None) -> Quantiles | None:
    """Return ``numpy.quantile(numbers, numpy.linspace(0, 1, buckets))`` of all finite numbers; None if there are none.

    The numbers are int64, float32 or float64. A zero is never negative. ``at_most`` is an upper bound on their number,
    if known.
    """
    tally, not_finite = _count(batches, at_most is not None and at_most <= HELD_NUMBERS)
    if tally is not None:
        count = int(tally.counts.sum())
        if not count:
            return None
        ends = np.cumsum(tally.counts)
        ranks, places = _ranks(count, buckets)
        found = tally.numbers[np.searchsorted(ends, ranks, side="right")]
        return Quantiles(_interpolated(found, places, count, buckets), count, not_finite, len(tally.numbers), 1)
    selection = _Selection(batches)
    sample, count, not_finite = selection.sample()
    ranks, places = _ranks(count, buckets)
    found = selection.select(ranks, sample)
    return Quantiles(_interpolated(found, places, count, buckets), count, not_finite, None, 1 + selection.passes)


def _finite(batch: _Numbers) -> _Numbers:
    if batch.dtype.kind != "f":
        return batch
    finite = np.isfinite(batch)
    numbers: _Numbers = batch if finite.all() else batch[finite]
    positive: _Numbers = numbers + numbers.dtype.type(0)  # -0.0 + 0 is 0.0
    return positive


def _count(batches: Batches, few: bool) -> tuple[Tally | None, int]:
    """Return a count of each number, or None if there are too many, and how many are not finite."""
    tally: Tally | None = None
    held: list[_Numbers] = []
    fresh: list[Tally] = []
    waiting = not_finite = 0
    for batch in batches():
        numbers = _finite(batch)
        not_finite += len(batch) - len(numbers)
        if few and numbers.dtype.kind == "f":
            held.append(numbers)
            continue
        fresh.append(Tally.of(numbers))
        waiting += len(fresh[-1].numbers)
        if waiting > max(_FEWEST_NEW, 0 if tally is None else len(tally.numbers)):
            tally = Tally.merged(fresh if tally is None else [tally, *fresh])
            fresh, waiting = [], 0
            if len(tally.numbers) > DISTINCT_NUMBERS:
                return None, 0
    if held:
        return Tally.of(np.concatenate(held)), not_finite
    if tally is None and not fresh:
        return Tally(np.empty(0), np.empty(0, np.int64)), 0
    tally = Tally.merged(fresh if tally is None else [tally, *fresh])
    return (None, 0) if len(tally.numbers) > DISTINCT_NUMBERS else (tally, not_finite)


def _ranks(count: int, buckets: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the ranks that are needed, in ascending order, and the position among them of each of ``_neighbours``."""
    before, after, _ = _neighbours(count, buckets)
    ranks, places = np.unique(np.concatenate((before, after)) % count, return_inverse=True)
    return ranks, places.reshape(-1)


def _neighbours(count: int, buckets: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the ranks around each quantile (-1 is the last), and its position between them, as numpy does."""
    virtual = (count - 1) * np.linspace(0, 1, buckets)
    before = np.floor(virtual)
    after = before + 1
    above = virtual >= count - 1
    before[above] = after[above] = -1
    return before.astype(np.int64), after.astype(np.int64), virtual - before


def _interpolated(found: _Numbers, places: NDArray[np.intp], count: int, buckets: int) -> NDArray[np.float64]:
    """Interpolate between the numbers at the ranks, with exactly the operations of ``numpy.quantile``."""
    _, _, gamma = _neighbours(count, buckets)
    before, after = found[places[:buckets]], found[places[buckets:]]
    with np.errstate(over="ignore", invalid="ignore"):
        difference = after - before
        edges = before + difference * gamma
        return np.where(gamma >= 0.5, after - difference * (1 - gamma), edges).astype(np.float64)


class _Selection:
    """Finds the numbers at given ranks, in several passes."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.passes = 0

    def _read(self) -> Iterator[_Numbers]:
        self.passes += 1
        for batch in self._batches():
            yield _finite(batch)

    def sample(self) -> tuple[_Numbers, int, int]:
        """Return a sample in ascending order without repetitions, and how many numbers are finite and not finite."""
        self.passes += 1
        kept: list[_Numbers] = []
        count = not_finite = size = offset = 0
        step = 1
        for batch in self._batches():
            numbers = _finite(batch)
            not_finite += len(batch) - len(numbers)
            count += len(numbers)
            part = numbers[offset::step]
            offset = (offset - len(numbers)) % step
            size += len(part)
            kept.append(part.copy())
            while size > 2 * _SAMPLE:
                kept = [np.concatenate(kept)[::2]]
                size = len(kept[0])
                step *= 2
        return np.unique(np.concatenate(kept)), count, not_finite

    def select(self, ranks: NDArray[np.int64], sample: _Numbers) -> _Numbers:
        """Return the numbers at these ranks, which are in ascending order."""
        counts = self._count_around(sample)
        ends = np.cumsum(counts)
        homes = np.searchsorted(ends, ranks, side="right")
        found = np.empty(len(ranks), sample.dtype)
        is_member = homes % 2 == 1
        found[is_member] = sample[homes[is_member] // 2]
        group: list[int] = []
        gathered = 0
        for home in np.unique(homes[~is_member]).tolist():
            if counts[home] > GATHERED_NUMBERS:
                wanted = homes == home
                found[wanted] = self._select_within(sample, home, ranks[wanted] - (ends[home] - counts[home]))
                continue
            if gathered + counts[home] > GATHERED_NUMBERS:
                self._gather(sample, group, ranks, homes, ends - counts, found)
                group, gathered = [], 0
            group.append(home)
            gathered += int(counts[home])
        if group:
            self._gather(sample, group, ranks, homes, ends - counts, found)
        return found

    def _count_around(self, sample: _Numbers) -> NDArray[np.int64]:
        """Count the numbers below the sample, equal to its first member, between that and the next, and so on."""
        counts = np.zeros(2 * len(sample) + 1, np.int64)
        for batch in self._read():
            ordered = np.sort(batch)
            edges = np.zeros(len(counts) + 1, np.int64)
            edges[1:-1:2] = np.searchsorted(ordered, sample, side="left")
            edges[2:-1:2] = np.searchsorted(ordered, sample, side="right")
            edges[-1] = len(ordered)
            counts += np.diff(edges)
        return counts

    def _gather(
        self,
        sample: _Numbers,
        homes: list[int],
        ranks: NDArray[np.int64],
        home_of: NDArray[np.intp],
        firsts: NDArray[np.int64],
        found: _Numbers,
    ) -> None:
        """Write the numbers at the ranks that lie in the gaps ``homes`` into ``found``."""
        kept: list[_Numbers] = []
        for batch in self._read():
            ordered = np.sort(batch)
            kept += [ordered[self._within(ordered, sample, home)] for home in homes]
        numbers = np.sort(np.concatenate(kept))
        for home in homes:
            wanted = home_of == home
            begin = self._within(numbers, sample, home).start
            found[wanted] = numbers[begin + ranks[wanted] - firsts[home]]

    def _select_within(self, sample: _Numbers, home: int, ranks: NDArray[np.int64]) -> _Numbers:
        """Return the numbers at some ranks of a single gap, which holds too many to gather."""

        def within() -> Iterator[_Numbers]:
            for batch in self._batches():
                ordered = np.sort(_finite(batch))
                yield ordered[self._within(ordered, sample, home)]

        inner = _Selection(within)
        members, _, _ = inner.sample()
        found = inner.select(ranks, members)
        self.passes += inner.passes
        return found

    @staticmethod
    def _within(ordered: _Numbers, sample: _Numbers, home: int) -> slice:
        """Return the slice of ordered numbers that lies in a gap."""
        gap = home // 2
        first = 0 if gap == 0 else int(np.searchsorted(ordered, sample[gap - 1], side="right"))
        after = len(ordered) if gap == len(sample) else int(np.searchsorted(ordered, sample[gap], side="left"))
        return slice(first, after)
