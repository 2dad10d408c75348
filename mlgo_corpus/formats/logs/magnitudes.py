"""Histograms of numbers: a count for each sign and power of two, in one pass, without knowing the range.

Most numbers that a compiler counts have a long tail: bins of equal width would show one full bin and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# For a double, 2**(exponent - 1) <= |value| < 2**exponent, and the smallest is 2**-1074. Infinity comes after these.
_LOWEST: Final = -1073
_INFINITE: Final = 1025
_SIDE: Final = _INFINITE - _LOWEST + 1
_ZERO: Final = _SIDE


def _bounds() -> NDArray[np.float64]:
    """Return the bounds nearer to 0, and those farther from it, of the positive bins by their distance from zero's."""
    with np.errstate(over="ignore"):
        powers = np.ldexp(1.0, np.arange(_LOWEST - 1, _INFINITE))  # the last is infinite
    return np.array([[0.0, *powers[:-1], np.inf], [0.0, *powers[1:], np.inf]])


_BOUNDS: Final = _bounds()


class Bin(NamedTuple):
    """A number of values from ``low`` to ``high``; of these bounds, the one nearer to 0 is included.

    Zero and each infinity have bins of their own, in which ``low`` and ``high`` are the same.
    """

    low: float
    high: float
    number: int


class Magnitudes:
    """Counts numbers by sign and power of two; NaN is not counted."""

    def __init__(self) -> None:
        self._counts = np.zeros(2 * _SIDE + 1, np.int64)

    def add(self, values: NDArray[Any]) -> None:
        """Count numbers of any type."""
        if values.dtype.kind == "f":
            values = values[~np.isnan(values)]
            exponents = np.frexp(values)[1]
            exponents[np.isinf(values)] = _INFINITE
        else:
            exponents = _bit_lengths(values)
        places = np.where(values == 0, 0, exponents - _LOWEST + 1)
        places = np.where(values < 0, _ZERO - places, _ZERO + places)
        self._counts += np.bincount(places, minlength=len(self._counts))

    def bins(self) -> tuple[Bin, ...]:
        """Return the bins from the lowest to the highest one that are not empty, with empty ones between them.

        Between the bins nearest to 0 on either side, only 0 itself has a bin.
        """
        found = np.flatnonzero(self._counts)
        if not len(found):
            return ()
        sides = (found[found < _ZERO], found[found == _ZERO], found[found > _ZERO])
        places = np.concatenate([np.arange(side[0], side[-1] + 1) for side in sides if len(side)])
        near, far = _BOUNDS[:, np.abs(places - _ZERO)]
        is_negative = places < _ZERO
        lows = np.where(is_negative, -far, near).tolist()
        highs = np.where(is_negative, -near, far).tolist()
        return tuple(map(Bin, lows, highs, self._counts[places].tolist()))


def _bit_lengths(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the exact lengths of the magnitudes of integers, in bits, although large doubles may be rounded up."""
    magnitudes = values.astype(np.uint64)
    if values.dtype.kind == "i":
        magnitudes = np.where(values < 0, np.uint64(0) - magnitudes, magnitudes)
    lengths = np.minimum(np.frexp(magnitudes.astype(np.float64))[1], 64)
    shifts = np.maximum(lengths - 1, 0).astype(np.uint64)
    rounded_up = (magnitudes >> shifts == 0) & (lengths > 0)
    found: NDArray[np.int64] = lengths.astype(np.int64) - rounded_up
    return found


def merged(numbers: Sequence[int], most: int) -> list[int]:
    """Add up groups of neighbours of the size that yields at most ``most`` sums; the last group may be smaller."""
    each = -(-len(numbers) // most) or 1
    return [sum(numbers[first : first + each]) for first in range(0, len(numbers), each)]
