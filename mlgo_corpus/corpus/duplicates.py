"""Find modules that add nothing: equal ones, twins, and those whose functions are nearly all in another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.functions import FunctionColumns


class Duplicate(NamedTuple):
    """A module to drop, the one kept instead, and the share of its instructions that the kept one has, too."""

    module: str
    kept: str
    share: float
    exact: bool


def find_equal(contents: Iterable[tuple[str, str | None]]) -> list[Duplicate]:
    """Find modules with the content of an earlier one, from pairs of a name and a key of the content.

    A module of unknown content, None, equals no other.
    """
    first: dict[str, str] = {}
    found = []
    for module, content in contents:
        if content is not None and (kept := first.setdefault(content, module)) != module:
            found.append(Duplicate(module, kept, 1.0, exact=True))
    return found


def find_twins(names: Sequence[str], sources: Sequence[str | None], columns: FunctionColumns) -> list[Duplicate]:
    """Find modules of one source that have the same functions as an earlier one, in the same order.

    A build may compile a source for a shared and again for a static library, as libtool does: with ``-fPIC -DPIC`` and
    without, which changes the bitcode but rarely a function. Functions of any size count, as the sources are the same.

    Args:
        names: the modules' names, by number.
        sources: the name of each module's main file; None if it is not known.
        columns: the modules' functions. A module without functions equals no other.
    """
    starts = np.searchsorted(columns.modules, np.arange(len(names) + 1)).tolist()
    keys = (
        None
        if source is None or start == stop
        else f"{blake2b(columns.hashes[start:stop].tobytes(), digest_size=16).hexdigest()}{source}"
        for source, (start, stop) in zip(sources, pairwise(starts), strict=True)
    )
    return [one._replace(exact=False) for one in find_equal(zip(names, keys, strict=True))]


def find_near(names: Sequence[str], columns: FunctionColumns, threshold: float, least: int = 0) -> list[Duplicate]:
    """Find modules that have at least a share ``threshold`` of their instructions in bodies of one kept module.

    The modules with most instructions come first, so that the smaller one of two is dropped. A module without
    functions is kept. The result is in the modules' order.

    To be a candidate, a kept module must share one of the module's rarest bodies, those which together have more than
    ``1 - threshold`` of the instructions: without any of them it cannot reach the threshold. So a body that is
    everywhere costs next to nothing.

    Args:
        names: the modules' names, by number.
        columns: the modules' functions.
        threshold: more than 0, and at most 1.
        least: bodies of fewer instructions count as not shared, even if other modules have them.
    """
    totals = np.bincount(columns.modules, columns.instructions, minlength=len(names))
    columns = columns.of_at_least(least)
    if not len(columns.modules):
        return []
    modules, bodies, weights = _distinct(columns)
    spread = np.bincount(bodies)
    starts = np.searchsorted(modules, np.arange(len(names) + 1))
    holders: defaultdict[int, list[int]] = defaultdict(list)
    own: dict[int, frozenset[int]] = {}
    found: dict[int, Duplicate] = {}
    for module in np.lexsort((np.arange(len(names)), -totals)).tolist():
        start, stop = starts[module], starts[module + 1]
        if start == stop:
            continue
        rare_first = start + np.lexsort((bodies[start:stop], spread[bodies[start:stop]]))
        kept, shared = _best(bodies[rare_first], weights[rare_first], float(totals[module]), threshold, holders, own)
        if kept is not None and shared >= threshold * totals[module] * (1 - 1e-12):
            share = float(shared / totals[module])
            found[module] = Duplicate(names[module], names[kept], share, exact=False)
            continue
        several = [body for body in bodies[start:stop].tolist() if spread[body] > 1]
        if several:
            own[module] = frozenset(several)
            for body in several:
                holders[body].append(module)
    return [found[module] for module in sorted(found)]


def _distinct(columns: FunctionColumns) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return each module's distinct bodies as numbers, each with the instructions of all its functions that have it."""
    _, bodies = np.unique(columns.hashes, return_inverse=True)
    width = int(bodies.max()) + 1
    keys, place = np.unique(columns.modules.astype(np.int64) * width + bodies, return_inverse=True)
    weights = np.bincount(place, columns.instructions).astype(np.float64)
    return keys // width, keys % width, weights


def _best(
    bodies: NDArray[np.int64],
    weights: NDArray[np.float64],
    total: float,
    threshold: float,
    holders: dict[int, list[int]],
    own: dict[int, frozenset[int]],
) -> tuple[int | None, float]:
    """Return the kept module that shares most (of several, the earliest kept); ``bodies`` has the rarest first."""
    candidates: dict[int, None] = {}
    passed = 0.0
    for body, weight in zip(bodies.tolist(), weights.tolist(), strict=True):
        candidates.update(dict.fromkeys(holders.get(body, ())))
        passed += weight
        if passed > (1 - threshold) * total:
            break
    best: int | None = None
    most = 0.0
    pairs = list(zip(bodies.tolist(), weights.tolist(), strict=True)) if candidates else []
    for candidate in candidates:
        has = own[candidate]
        shared = sum(weight for body, weight in pairs if body in has)
        if shared > most:
            best, most = candidate, shared
    return best, most
