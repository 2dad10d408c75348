"""Statistics of streamed columns in bounded memory: counts, extremes, quantiles, distances.

A `Distribution` keeps each value's sign, exponent and first `MANTISSA_BITS` bits of the fraction, and counts them. So
whole numbers below 512 are exact, and others are exact to within 0.4 %. Quantiles and histograms have the same
precision and need no second pass, and two distributions can be merged and compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.files import arrays

if TYPE_CHECKING:
    import pyarrow as pa

MANTISSA_BITS: Final = 8
"""The bits of a value's fraction that are kept; 1 / 2**8 is the relative error."""

DRIFT_LIMIT: Final = 0.1
"""The Kolmogorov-Smirnov distance from which two distributions count as different."""

_FLOAT_SHIFT = np.uint32(23 - MANTISSA_BITS)
_DOUBLE_SHIFT = np.uint64(52 - MANTISSA_BITS)
# Counting in an array of all numbers in a range is faster than sorting, unless the range is larger by this factor.
_SPARSE = 4
_SMALL_RANGE = 1 << 16
_PENDING_LIMIT = 1 << 18
# The most different values that have a bar each in a histogram, and the most whole values, within a range.
_EACH_VALUE = 8
_EACH_WHOLE, _WHOLE_RANGE = 40, 48.0
_BARS = 24
# From this ratio of the largest value to the median of nonzero values, bars are equally wide in logarithms.
_SKEWED = 30.0
# The least unit of such bars, as a fraction of the largest value.
_LEAST_UNIT = 1e-12

_Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: ``count`` values from ``low`` to ``high``.

    If all values are whole, both ends belong to the bar, and a bar of one value has it as both ends. Else ``high``
    belongs to the next bar, if there is one.
    """

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """The bars of a distribution, and their scale: ``values`` (one each), ``linear`` or ``log``."""

    scale: str
    bars: tuple[Bar, ...]


class Distribution:
    """Statistics of a column's values.

    Attributes:
        count: the number of all values, including nulls and NaNs.
        nulls: the number of nulls.
        nans: the number of NaNs.
        infinities: the number of infinite values.
        zeros: the number of zeros.
        total: the sum of the finite values.
        min: the least finite value; NaN if there is none.
        max: the largest finite value; NaN if there is none.
    """

    def __init__(self) -> None:
        self.count = self.nulls = self.nans = self.infinities = self.zeros = 0
        self.total = 0.0
        self.min = self.max = math.nan
        self._values: _Floats = np.zeros(0)
        self._counts: Counts = np.zeros(0, np.int64)
        self._pending: list[tuple[_Floats, Counts]] = []
        self._pending_length = 0

    def add(self, values: NDArray[Any], nulls: int = 0) -> None:
        """Add values of any shape, of truth values, integers or floats, and a number of nulls."""
        values = values.reshape(-1)
        self.count += len(values) + nulls
        self.nulls += nulls
        if not len(values):
            return
        self.zeros += len(values) - int(np.count_nonzero(values))
        if values.dtype.kind == "f":
            values = self._finite(values)
            if not len(values):
                return
        low, high = values.min(), values.max()
        self.min = float(np.fmin(self.min, float(low)))
        self.max = float(np.fmax(self.max, float(high)))
        with np.errstate(over="ignore", invalid="ignore"):
            self.total += float(values.sum(dtype=np.float64))
        self._merge(*_counted(values, low, high))

    def _finite(self, values: NDArray[Any]) -> NDArray[Any]:
        finite = np.isfinite(values)
        if finite.all():
            return values
        nans = int(np.isnan(values).sum())
        self.nans += nans
        self.infinities += len(values) - int(finite.sum()) - nans
        return np.asarray(values[finite])

    def _merge(self, values: _Floats, counts: Counts) -> None:
        self._pending.append((values, counts))
        self._pending_length += len(values)
        if self._pending_length > _PENDING_LIMIT:
            self._settle()

    def _settle(self) -> None:
        if not self._pending:
            return
        values = np.concatenate([self._values, *(part for part, _ in self._pending)])
        counts = np.concatenate([self._counts, *(part for _, part in self._pending)])
        self._values, places = np.unique(values, return_inverse=True)
        sums = np.zeros(len(self._values), np.int64)
        np.add.at(sums, places.reshape(-1), counts)
        self._counts = sums
        self._pending.clear()
        self._pending_length = 0

    @property
    def finite(self) -> int:
        """The number of finite values."""
        return self.count - self.nulls - self.nans - self.infinities

    @property
    def mean(self) -> float:
        """The mean of the finite values; NaN if there is none."""
        return self.total / self.finite if self.finite else math.nan

    @property
    def is_constant(self) -> bool:
        """Whether all values are the same finite number."""
        return self.finite == self.count > 0 and self.min == self.max

    def steps(self) -> tuple[_Floats, Counts]:
        """Return the distinct values, to `MANTISSA_BITS`, ascending, and their counts."""
        self._settle()
        return self._values, self._counts

    def quantile(self, at: float) -> float:
        """Return a quantile of the finite values, such as 0.5, to within 0.4 %; NaN if there are none."""
        values, counts = self.steps()
        if not len(values):
            return math.nan
        sums = np.cumsum(counts)
        place = int(np.searchsorted(sums, min(max(math.ceil(at * int(sums[-1])), 1), int(sums[-1]))))
        return self._within(float(values[place]))

    def most_common(self) -> tuple[float, float]:
        """Return the most frequent value, and its share of all; values less than 0.4 % apart count as one."""
        values, counts = self.steps()
        if not len(values):
            return math.nan, 0.0
        place = int(np.argmax(counts))
        return self._within(float(values[place])), int(counts[place]) / self.count

    def _within(self, value: float) -> float:
        return min(max(value, self.min), self.max)

    def histogram(self, bars: int = _BARS) -> Histogram:
        """Return the bars of the finite values: one for each value if they are few, else of equal width."""
        values, counts = self.steps()
        if not len(values):
            return Histogram("values", ())
        if _have_a_bar_each(values):
            lows = np.clip(values, self.min, self.max)
            highs = lows.copy()
            lows[0], highs[-1] = self.min, self.max  # these are exact
            ends = zip(lows.tolist(), highs.tolist(), counts.tolist(), strict=True)
            return Histogram("values", tuple(Bar(low, high, count) for low, high, count in ends))
        edges, scale = self._edges(values, counts, bars)
        lows, highs = edges[:-1], edges[1:]
        if (values == np.floor(values)).all():
            lows = np.unique(np.floor(lows))
            highs = np.append(lows[1:] - 1, self.max)
        places = np.maximum(np.searchsorted(lows, values, side="right") - 1, 0)
        heights = np.bincount(places, counts, minlength=len(lows)).astype(np.int64)
        ends = zip(lows.tolist(), highs.tolist(), heights.tolist(), strict=True)
        return Histogram(scale, tuple(Bar(low, high, count) for low, high, count in ends))

    def _edges(self, values: _Floats, counts: Counts, bars: int) -> tuple[_Floats, str]:
        sizes = np.abs(values[values != 0])
        order = np.argsort(sizes)
        sums = np.cumsum(counts[values != 0][order])
        middle = float(sizes[order][np.searchsorted(sums, 0.5 * sums[-1])])
        if sizes[order[-1]] <= _SKEWED * middle and self.max - self.min < math.inf:
            with np.errstate(over="ignore"):  # only at the end, which numpy sets
                return np.linspace(self.min, self.max, bars + 1), "linear"
        # asinh is linear around 0 and a logarithm further out, of either sign.
        unit = max(float(sizes[order][np.searchsorted(sums, 0.05 * sums[-1])]), float(sizes[order[-1]]) * _LEAST_UNIT)
        low_end, high_end = (math.asinh(end / unit) for end in (self.min, self.max))
        with np.errstate(over="ignore"):  # only at the ends, which are set below
            edges = np.sinh(np.linspace(low_end, high_end, bars + 1)) * unit
        edges[0], edges[-1] = self.min, self.max
        return np.maximum.accumulate(edges), "log"

    def drift(self, other: Distribution) -> float:
        """Return the Kolmogorov-Smirnov distance, from 0 to 1: the largest gap of the cumulative distributions.

        Return NaN if one of them has no finite value.
        """
        (mine, my_counts), (theirs, their_counts) = self.steps(), other.steps()
        if not len(mine) or not len(theirs):
            return math.nan
        at = np.union1d(mine, theirs)

        def shares(values: _Floats, counts: Counts) -> _Floats:
            sums = np.concatenate([[0], np.cumsum(counts)])
            return np.asarray(sums[np.searchsorted(values, at, side="right")] / sums[-1], np.float64)

        return float(np.abs(shares(mine, my_counts) - shares(theirs, their_counts)).max())

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as plain values; NaN and infinity become None."""
        quantiles = {f"p{round(100 * at)}": self.quantile(at) for at in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)}
        numbers = {"min": self.min, **quantiles, "max": self.max, "mean": self.mean}
        counts = {name: getattr(self, name) for name in ("count", "nulls", "nans", "infinities", "zeros")}
        return {**counts, **{name: value if math.isfinite(value) else None for name, value in numbers.items()}}


def _have_a_bar_each(values: _Floats) -> bool:
    """Return True if a histogram can show each of some ascending values with a bar of its own."""
    whole = bool((values == np.floor(values)).all()) and float(values[-1]) - float(values[0]) <= _WHOLE_RANGE
    return len(values) <= _EACH_VALUE or (whole and len(values) <= _EACH_WHOLE)


def _counted(values: NDArray[Any], low: Any, high: Any) -> tuple[_Floats, Counts]:
    """Return the distinct values, to `MANTISSA_BITS`, and their counts; all values are finite."""
    kind = values.dtype.kind
    if kind == "b":
        ones = int(np.count_nonzero(values))
        both = np.array([len(values) - ones, ones], np.int64)
        return np.flatnonzero(both).astype(np.float64), both[both > 0]
    if kind in "iu" and int(high) - int(low) < _SMALL_RANGE:
        if values.dtype.itemsize < 8:  # a difference of values of a small type may not fit into it
            values = values.astype(np.int64)
        heights = np.bincount((values - values.dtype.type(low)).astype(np.intp, copy=False))
        there = np.flatnonzero(heights)
        return _cut((there.astype(values.dtype) + values.dtype.type(low)).astype(np.float64)), heights[there]
    if values.dtype == np.float32:
        keys, counts = _tally(np.ascontiguousarray(values).view(np.uint32) >> _FLOAT_SHIFT)
        return (keys.astype(np.uint32) << _FLOAT_SHIFT).view(np.float32).astype(np.float64), counts
    keys, counts = _tally(np.ascontiguousarray(values, np.float64).view(np.uint64) >> _DOUBLE_SHIFT)
    return (keys.astype(np.uint64) << _DOUBLE_SHIFT).view(np.float64), counts


def _tally(keys: NDArray[Any]) -> tuple[NDArray[Any], Counts]:
    """Return the distinct keys and their counts; count in an array of their range, unless that is far larger."""
    low, high = int(keys.min()), int(keys.max())
    if high - low > _SPARSE * len(keys) + _SMALL_RANGE:
        found, counts = np.unique(keys, return_counts=True)
        return found, counts.astype(np.int64)
    bins = np.bincount((keys - keys.dtype.type(low)).astype(np.intp))
    there = np.flatnonzero(bins)
    return there + low, bins[there].astype(np.int64)


def _cut(values: _Floats) -> _Floats:
    """Return values without the bits that are not kept."""
    kept = (values.view(np.uint64) >> _DOUBLE_SHIFT) << _DOUBLE_SHIFT
    return kept.view(np.float64)


def numbers_of(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[Any], int] | None:
    """Return a column's numbers, or the elements of its lists, and the number of nulls; None for other types."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = numbers_of(column.flatten())
        return None if inner is None else (inner[0], inner[1] + column.null_count)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    nulls = column.null_count
    present = column.drop_null() if nulls else column
    is_truth = pa.types.is_boolean(kind)
    values = arrays.numbers_in(present.cast(pa.int8()) if is_truth else present)
    values = values.astype(np.bool_) if is_truth else values
    return values.astype(np.float32) if values.dtype == np.float16 else values, nulls


def scaled(column: NDArray[Any]) -> _Floats:
    """Return a column as a correlation counts it, asinh(x): linear around 0, a logarithm further out."""
    return np.arcsinh(column.astype(np.float64))


class Correlation:
    """Pearson's correlation of two columns in one pass, each as `scaled` gives it."""

    def __init__(self) -> None:
        self._sums = np.zeros(6)

    def add(self, first: _Floats, second: _Floats) -> None:
        """Add rows; those with a number that is not finite are left out."""
        finite = np.isfinite(first) & np.isfinite(second)
        x, y = (first, second) if finite.all() else (first[finite], second[finite])
        self._sums += (len(x), x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum())

    @property
    def value(self) -> float:
        """The correlation, from -1 to 1; NaN without rows, or if a column is constant."""
        if not self._sums[0]:
            return math.nan
        x, y, xx, yy, xy = self._sums[1:] / self._sums[0]
        spread = (xx - x * x) * (yy - y * y)
        known = min(xx - x * x, yy - y * y) > 1e-12
        return float(np.clip((xy - x * y) / math.sqrt(spread), -1.0, 1.0)) if known else math.nan


class LogCorrelations:
    """Pearson's correlation of log(1 + x) of many columns with the logarithm of a label, in one pass.

    Negative values count as 0, because the columns are counts.
    """

    def __init__(self, columns: int) -> None:
        self._rows = 0
        self._sums = np.zeros((5, columns))

    def add(self, columns: Sequence[NDArray[Any]], label: NDArray[Any]) -> None:
        """Add rows: the columns' values, and the label's, which must be more than 0."""
        if not len(label):
            return
        y = np.log(label.astype(np.float64))
        for number, column in enumerate(columns):
            x = np.log1p(np.maximum(np.nan_to_num(column.astype(np.float64), posinf=0.0), 0.0))
            self._sums[:, number] += (x.sum(), (x * x).sum(), (x * y).sum(), y.sum(), (y * y).sum())
        self._rows += len(y)

    def result(self) -> _Floats:
        """Return the correlation of each column; NaN for a constant one."""
        if not self._rows:
            return np.full(self._sums.shape[1], np.nan)
        x, xx, xy, y, yy = self._sums / self._rows
        spread_x, spread_y = np.maximum(xx - x * x, 0), np.maximum(yy - y * y, 0)
        known = (spread_x > 1e-12) & (spread_y > 1e-12)
        return np.where(known, (xy - x * y) / np.sqrt(np.where(known, spread_x * spread_y, 1.0)), np.nan)
