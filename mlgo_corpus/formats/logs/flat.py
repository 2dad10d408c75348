"""An observation as one array of finite doubles, which is what learners take: the features one after the other.

Whole numbers up to 2^53 are exact. NaN is 0: LLVM divides by the largest of all candidates, which may be infinite.
Infinity is the largest number of single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tensors import TensorSpec

Numbers = NDArray[np.float64]
"""Features as doubles, of shape (n,)."""

_LARGEST: Final = float(np.finfo(np.float32).max)


class FlatFeatures:
    """The layout of such an array.

    Args:
        header: the compiler's.
        names: the features, in their order; None for all.

    Attributes:
        features: the features' specs.
        places: where each is in the array.
        low, high: the range of each number.

    Raises:
        UsageError: the compiler does not send a feature, or one is named twice.
    """

    def __init__(self, header: LogHeader, names: Sequence[str] | None) -> None:
        sent = {spec.name: spec for spec in header.features}
        names = tuple(sent if names is None else names)
        if unknown := [name for name in names if name not in sent]:
            there = ", ".join(sent)
            raise UsageError(f"this compiler sends no {unknown[0]!r}, but {there}", option="features")
        if not names or len(set(names)) != len(names):
            raise UsageError("expected one or more, each once", option="features")
        self.features: tuple[TensorSpec, ...] = tuple(sent[name] for name in names)
        self.places = _places(self.features)
        self.low, self.high = self.nothing(), self.nothing()
        for spec in self.features:
            limits = np.iinfo(spec.dtype) if spec.dtype.kind in "iu" else None
            self.low[self.places[spec.name]] = -_LARGEST if limits is None else limits.min
            self.high[self.places[spec.name]] = _LARGEST if limits is None else limits.max
        take = None
        if names != tuple(sent):
            places = _places(header.features)
            take = np.concatenate([np.arange(places[name].start, places[name].stop) for name in names])
        self.read = _reader(header, take)

    def nothing(self) -> Numbers:
        """Return the array of an observation that there is not: zeros."""
        return np.zeros(sum(spec.element_count for spec in self.features))


def _places(features: Sequence[TensorSpec]) -> dict[str, slice]:
    places, at = {}, 0
    for spec in features:
        places[spec.name] = slice(at, at + spec.element_count)
        at += spec.element_count
    return places


def _reader(header: LogHeader, take: NDArray[np.intp] | None) -> Callable[[bytes], Numbers]:
    """Return a function that makes an array of tensors: of all their numbers, or of those with some places."""
    # Neighbours of one type are read together: their type, number, place in the bytes and in the array.
    runs: list[tuple[np.dtype[Any], int, int, int]] = []
    total = 0
    for spec, offset in zip(header.features, header.offsets, strict=True):
        if runs and runs[-1][0] == spec.dtype:
            kind, count, first, place = runs.pop()
            runs.append((kind, count + spec.element_count, first, place))
        else:
            runs.append((spec.dtype, spec.element_count, offset, total))
        total += spec.element_count
    whole = runs[0][0]
    if len(runs) == 1 and whole.kind in "iu":  # as of inlining
        if take is None:
            return lambda tensors: np.frombuffer(tensors, whole, total).astype(np.float64)
        return lambda tensors: np.frombuffer(tensors, whole, total)[take].astype(np.float64)

    def read(tensors: bytes) -> Numbers:
        numbers = np.empty(total)
        for kind, count, offset, place in runs:
            numbers[place : place + count] = np.frombuffer(tensors, kind, count, offset)
        if take is not None:
            numbers = numbers[take]
        if not np.isfinite(numbers).all():
            np.nan_to_num(numbers, copy=False, posinf=_LARGEST, neginf=-_LARGEST)
        return numbers

    return read
