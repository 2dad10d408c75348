"""A plan's decisions, found again among those that another compile asks for.

The inliner visits functions in an order of their own, whatever is decided: the decisions of a function follow each
other, and functions keep their order. After a decision that was tried some calls are gone, others are new, and others
have features of their own: a caller has other blocks, or a callee. So the two sequences are aligned, as texts are that
differ in places: a pair of decisions is worth the more features are equal, and what is left out on either side costs.
What comes has to be answered at once, so that each answer is the end of the best alignment up to there.

Measured on seven modules of leveldb, yaml-cpp and ninja, each with three sets of dozens of flips: 98 % of 28 513
decisions that were there before are found, in 4 µs each. By equal features alone it was 65 %: others that look the same
lead astray, and all that follow are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.keys import stable_features

# How many planned decisions are looked at, from this many before the last one that was found.
_WINDOW: Final = 48
_BEHIND: Final = 16
# The share of equal features at which two decisions are no more alike than any two; equal ones are worth 1.
_UNLIKE: Final = 0.7
# The cost of a planned decision that is left out, and of one that is taken for new.
_SKIPPED: Final = 0.15
_NEW: Final = 0.2
_NEVER: Final = -1e9
# How many other features the height counts as, so that functions of other heights are never paired.
_HEIGHT_COUNTS: Final = 1024
_BEGIN: Final = np.zeros(1)
_SKIPPED_UP_TO: Final = _SKIPPED * np.arange(_WINDOW)
# How far a function is from the bottom of the call graph, as it was at first: all its calls have the same.
_HEIGHT: Final = "callsite_height"


class Alignment:
    """The place in a sequence of planned decisions.

    Args:
        header: the compiler's.
        planned: the stable features of the planned decisions, in their order.

    Attributes:
        rows: these features, a row for each decision: words of eight bytes, as all of LLVM's features are, else bytes.
    """

    def __init__(self, header: LogHeader, planned: Sequence[bytes]) -> None:
        specs = stable_features(header)
        sizes = [spec.nbytes for spec in specs]
        starts = np.cumsum([0, *sizes])
        self._word = 8 if all(size % 8 == 0 for size in sizes) else 1
        self._words = int(starts[-1]) // self._word
        self._share = 1.0 / (max(1, self._words) * (1.0 - _UNLIKE))
        self._unlike = _UNLIKE / (1.0 - _UNLIKE)
        # Whole numbers, so that their sum is the same on every machine.
        self._counts = np.ones(self._words)
        names = [spec.name for spec in specs]
        self._height = int(starts[names.index(_HEIGHT)]) // self._word if _HEIGHT in names else None
        if self._height is not None:
            self._counts[self._height] += _HEIGHT_COUNTS
            self._unlike += _HEIGHT_COUNTS * self._share
        # Arrays for what each question computes: to make them takes longer than to fill them.
        self._equal = np.empty((_WINDOW, self._words))
        self._best = np.empty(_WINDOW + 1)
        self._planned = planned
        self.rows = self._read(b"".join(planned)).reshape(len(planned), self._words)
        # The best alignments so far: the worth of the best one after which the planned decision `_first + n` is next.
        self._worth = _BEGIN
        self._first = 0
        self._next = 0
        # Whether the last decision was just what was planned: then there is no doubt where one is.
        self._sure = True

    def constants(self) -> dict[str, float]:
        """Return the numbers that `find` computes with, for ``follow.c``, by their names there."""
        return {
            "window": _WINDOW, "behind": _BEHIND, "share": self._share, "unlike": self._unlike,
            "height": -1 if self._height is None else self._height, "height_counts": _HEIGHT_COUNTS,
            "skipped": _SKIPPED, "taken_for_new": _NEW, "never": _NEVER,
        }  # fmt: skip

    def _read(self, features: bytes) -> NDArray[np.generic]:
        return np.frombuffer(features, np.uint64 if self._word == 8 else np.uint8)

    def find(self, features: bytes) -> int | None:
        """Return which planned decision the next one with these stable features is; None if it is a new one."""
        at = self._next
        if self._sure and at < len(self._planned) and self._planned[at] == features:
            self._next = self._first = at + 1
            self._worth = _BEGIN
            return at
        first, alike = self._first, self._alike(features)
        count = len(alike)
        if not count:
            return None
        worth = self._best[: count + 1]
        worth.fill(_NEVER)
        worth[: len(self._worth)] = self._worth
        skipped = _SKIPPED_UP_TO[:count]
        # The end of an alignment is a pair, or a decision that is taken for new.
        paired = worth[:-1] + skipped
        np.maximum.accumulate(paired, out=paired)
        paired -= skipped
        paired += alike
        worth -= _NEW
        best = worth
        np.maximum(best[1:], paired, out=best[1:])
        place = int(best.argmax())
        answer = first + place - 1 if place and paired[place - 1] == best[place] else None
        self._next = first + place
        self._sure = answer is not None and self._planned[answer] == features
        behind = max(0, place - _BEHIND)
        self._worth, self._first = best[behind:] - best[place], first + behind
        return answer

    def _alike(self, features: bytes) -> NDArray[np.float64]:
        """Return what it is worth to take a decision for each of those in the window."""
        rows = self.rows[self._first : self._first + _WINDOW]
        alike = np.equal(rows, self._read(features), out=self._equal[: len(rows)]) @ self._counts
        alike *= self._share
        alike -= self._unlike
        return np.asarray(alike, np.float64)
