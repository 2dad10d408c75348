"""Group modules that share function bodies, and divide the groups between sides.

All data is in arrays: a million modules with ten functions each take seconds, and some tens of bytes for each function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_Integers = NDArray[np.int64]

MIN_INSTRUCTIONS: Final = 8
"""Bodies of fewer instructions also occur in unrelated programs: they are no evidence of a common origin."""


@dataclass(frozen=True, slots=True)
class _Sharing:
    """The bodies that several modules have: for each such body, the modules in ascending order, body after body.

    Attributes:
        modules: of shape (n,): the modules' numbers.
        body: of shape (n,): the body's number, ascending from 0.
        copies: of shape (n,): the number of the module's functions that have the body.
        spread: of shape (shared bodies,): the number of modules that have the body; at least 2.
        bodies: the number of different bodies, shared or not.
    """

    modules: _Integers
    body: _Integers
    copies: _Integers
    spread: _Integers
    bodies: int

    def edges(self, at_most: int | None = None) -> tuple[_Integers, _Integers]:
        """Return pairs of modules that connect all modules of each body that no more than ``at_most`` modules have."""
        same = self.body[1:] == self.body[:-1]
        if at_most is not None:
            same &= self.spread[self.body[1:]] <= at_most
        return self.modules[:-1][same], self.modules[1:][same]


def find_sharing(modules: NDArray[np.integer], hashes: NDArray[np.uint64]) -> _Sharing:
    """Find the bodies that several modules have.

    Args:
        modules: of shape (n,): each function's module, ascending.
        hashes: of shape (n,): each function's body.
    """
    order = np.argsort(hashes, kind="stable")  # so modules stay ascending for each body
    hashes, modules = hashes[order], modules[order]
    is_body = _changes(hashes)
    pairs = np.flatnonzero(is_body | _changes(modules))
    copies = np.diff(np.append(pairs, len(hashes)))
    starts = np.flatnonzero(is_body[pairs])
    spread = np.diff(np.append(starts, len(pairs)))
    several = spread > 1
    kept = np.repeat(several, spread)
    spread = spread[several]
    body = np.repeat(np.arange(len(spread)), spread)
    return _Sharing(modules[pairs][kept].astype(np.int64), body, copies[kept], spread, len(starts))


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each value whether it differs from the one before it."""
    changes = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def connected_components(count: int, left: _Integers, right: _Integers) -> _Integers:
    """Return for each of ``count`` nodes the least node it is connected with, by edges from ``left`` to ``right``."""
    label = np.arange(count)
    while len(left):
        left, right = label[left], label[right]
        apart = left != right
        left, right = left[apart], right[apart]
        np.minimum.at(label, np.maximum(left, right), np.minimum(left, right))
        while True:  # to each node's root
            further = label[label]
            if np.array_equal(further, label):
                break
            label = further
    return label


def largest_share(labels: _Integers) -> float:
    """Return the share of the nodes that are in the largest component."""
    return float(np.bincount(labels).max() / len(labels)) if len(labels) else 0.0


def find_limit(count: int, sharing: _Sharing, most: float) -> int | None:
    """Return how many modules a body may connect, at most, so that no component exceeds a share of the modules.

    Return None if all bodies may connect, 1 if none may.

    Args:
        count: the number of modules.
        sharing: the bodies that the modules share.
        most: the largest share of the modules that a component may have.
    """
    most = max(most, 1 / count)  # a component has at least one module
    if largest_share(connected_components(count, *sharing.edges())) <= most:
        return None
    spreads = np.unique(sharing.spread)
    low, high = (
        0,
        len(spreads) - 1,
    )  # all spreads before ``low`` together stay within ``most``, up to ``high`` they do not
    while low < high:
        middle = (low + high) // 2
        if largest_share(connected_components(count, *sharing.edges(int(spreads[middle])))) <= most:
            low = middle + 1
        else:
            high = middle
    return int(spreads[low - 1]) if low else 1


# A group with more than this share of what its side is to get goes where most is lacking, which is seldom a small side.
_MOST_OF_A_SIDE = 0.25


def divide(
    labels: _Integers, fractions: Sequence[float], seed: int, weights: NDArray[np.number] | None = None
) -> NDArray[np.int8]:
    """Return the side of each node, such that a component is on one side and the sides get their fractions.

    Components come by weight, the heaviest first. A component that is a small part of a side with room for it goes to
    such a side by chance, so that each side gets components of all weights; any other goes to the side that lacks the
    most. The seed decides the order of components of about equal weight, and the chances.

    Args:
        labels: each node's component.
        fractions: the fraction of the weights that each side gets.
        seed: another seed divides in another way.
        weights: each node's weight; by default all are equal.
    """
    count = len(labels)
    if weights is None or not weights.any():
        weights = np.ones(count)
    sizes = np.bincount(labels, weights, minlength=count)
    roots = np.flatnonzero(np.bincount(labels, minlength=count))
    sizes = sizes[roots]
    generator = np.random.default_rng(seed)
    order = np.lexsort((generator.random(len(roots)), -np.frexp(sizes)[1]))
    shares = np.asarray(fractions, np.float64) / float(sum(fractions)) * float(sizes.sum())
    lacking = shares.tolist()
    small = (_MOST_OF_A_SIDE * shares).tolist()
    wanted = [side for side, share in enumerate(lacking) if share > 0]
    sides = np.zeros(len(roots), np.int8)
    chances = generator.random(len(roots)).tolist()
    for place, size, chance in zip(order.tolist(), sizes[order].tolist(), chances, strict=True):
        room = [side for side in wanted if size <= lacking[side] and size <= small[side]]
        if room:
            left = chance * sum(lacking[side] for side in room)
            side = room[-1]  # should rounding leave something of the sum
            for candidate in room[:-1]:
                left -= lacking[candidate]
                if left < 0:
                    side = candidate
                    break
        else:
            side = max(wanted, key=lacking.__getitem__)
        sides[place] = side
        lacking[side] -= size
    side_of = np.zeros(count, np.int8)
    side_of[roots] = sides
    return np.asarray(side_of[labels], np.int8)


@dataclass(frozen=True, slots=True)
class Leakage:
    """The shares of held-out modules and functions that also occur in train.

    Attributes:
        modules: share of the modules not in train that have a body which a module in train has.
        functions: share of the functions not in train whose body a module in train has.
    """

    modules: float
    functions: float


def measure_leakage(sharing: _Sharing, functions: _Integers, sides: NDArray[np.int8]) -> Leakage:
    """Measure the leakage of a division.

    Args:
        sharing: the bodies that modules share.
        functions: each module's number of functions.
        sides: each module's side; 0 is train.
    """
    held = sides != 0
    outside = int(held.sum())
    inside = int(functions[held].sum())
    in_train = np.bincount(sharing.body, sides[sharing.modules] == 0, minlength=len(sharing.spread)) > 0
    leaking = in_train[sharing.body] & held[sharing.modules]
    modules = np.zeros(len(sides), np.bool_)
    modules[sharing.modules[leaking]] = True
    seen = int(sharing.copies[leaking].sum())
    return Leakage(int(modules.sum()) / outside if outside else 0.0, seen / inside if inside else 0.0)
