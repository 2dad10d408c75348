"""The rounds of a search for small products: in each, a module knows which functions other objects hold.

A function that several objects of a project hold, such as an inline function of C++, is linked once. Whether an object
should hold it, or inline it everywhere, depends on the others. At first a byte of it counts its share: it is one of as
many as there are in the plain objects. That is wrong wherever one object keeps what another one gives up, so a search
stops up to twice to find out what every object holds then. What is kept by others costs an object next to nothing, what
it alone holds costs it every byte.

What is linked has more of a function than the object does: entries in tables, which count as its bytes do. Of the text
of gflags' library, 43 % are names, symbols, and stubs for calls.

A linker that folds keeps one of all functions that are alike, whatever their names
(`mlgo_corpus.formats.objects.folding`). For such a linker a byte counts the mean of what it counts for one that folds
and for one that does not.

Measured on yaml-cpp with 100 compiles of each module: the products are 11.7 % smaller instead of 10.6 %, with gc and
folding by the linker 6.7 % instead of 5.6 %. All rounds begin with the same rules, which is better than with flips.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.dataset.flips import FlipRow
from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.formats.bitcode.functions import function_names
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.logs.keys import Key
from mlgo_corpus.formats.objects.folding import folding_classes
from mlgo_corpus.formats.objects.footprints import Exports, linked_footprints, names_by_symbol
from mlgo_corpus.formats.objects.symbols import WEAK, parse_symbols
from mlgo_corpus.runs.search.climb import Outcome

# The weight of a byte of a function that others keep: little, since they might give it up, too. 0.05 is worse.
_KEPT_ANYWAY: Final = 0.3
# For a linker that folds, how much of what a byte counts is what it counts after folding. Ninja, searched with 25
# compiles from a policy's decisions: with 0 its product is 12.1 % smaller, and 4.7 % when it is folded; with 0.5, it is
# 11.1 and 5.0 %; with 1, 10.1 and 4.5 %.
_FOLDED: Final = 0.5
# With a learned policy and its thresholds, ninja's search has 97 % of what it finds with 25 compiles after 8.
_FEWEST: Final = 8
# Where every byte counts, a short search is better without rounds: the objects of double-conversion are 7.5 % smaller
# after 25 compiles, and 6.6 % with rounds; after 50 they are 7.2 %, and 9.3 % with rounds; after 100 8.8 and 9.4 %.
_FEWEST_FOR_TEXT: Final = 48

MEASURE: Final = 3
"""The version of what `linked_size` counts: what was measured by another one is not gone on with."""

Digests = NDArray[np.uint64]
"""Functions by a digest of their names, and by one of their classes; an array of shape (2, n)."""


def round_budgets(budget: int, *, linked: bool = True) -> tuple[int, ...]:
    """Return the compiles of each round: two short ones, and one that is as long as both, if there are enough.

    Args:
        budget: all compiles of a module.
        linked: whether what other objects hold counts, which a round finds out for the next one.
    """
    if budget < (2 * _FEWEST if linked else _FEWEST_FOR_TEXT):
        return (budget,)
    half = budget // 2
    if half < 2 * _FEWEST:
        return (budget - half, half)
    return (half // 2, half - half // 2, budget - half)


def _digest(linked_with: str, name: str) -> int:
    """Return a digest of a function's name, or of its class, in what its module is linked with."""
    data = f"{linked_with}\0{name}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def mergeable_functions(
    data: Buffer, functions: Collection[str], names: Mapping[str, str], *, folded: bool
) -> dict[str, int | None]:
    """Return those of an object's functions that others may hold, too, and a linker keeps once, each with its class.

    The class is the number of those that are alike; None if the function is not folded, or the linker does not fold.

    Args:
        data: the object.
        functions: those that count, by their names.
        names: the functions' names by their symbols.
        folded: whether the linker folds.
    """
    classes = folding_classes(data) if folded else {}
    weak = (symbol.name for symbol in parse_symbols(data) if symbol.is_code and symbol.binding == WEAK)
    named = ((names.get(symbol, symbol), symbol) for symbol in weak)
    return {name: classes.get(symbol) for name, symbol in named if name in functions}


def functions_in(module: Module) -> tuple[str, ...]:
    """Return the names of a module's functions; none if its bitcode cannot be read."""
    try:
        return function_names(module.bitcode())
    except (CorpusError, FormatError):
        return ()


def digests_of(functions: Mapping[str, int | None], linked_with: str) -> Digests:
    """Return the digests of functions' names, and of their classes."""
    rows = sorted(
        (_digest(linked_with, name), _digest(linked_with, name if number is None else f"\0{number}"))
        for name, number in functions.items()
    )
    return np.array(rows, np.uint64).reshape(-1, 2).T


@lru_cache(maxsize=4)
def _counts_at(path: Path) -> dict[int, tuple[int, int]]:
    """Read how many objects hold a function, and how many hold one like it; once in each process."""
    digests, counts, copies = np.load(path)
    return dict(zip(digests.tolist(), zip(counts.tolist(), copies.tolist(), strict=True), strict=True))


def write_counts(path: Path, held: Iterable[Digests]) -> None:
    """Write how often some objects hold each function, and functions of its class, as an array of shape (3, n).

    Where the function's bodies differ, the class with the most counts.
    """
    names, classes = np.concatenate([np.empty((2, 0), np.uint64), *held], axis=1)
    _, which, copies = np.unique(classes, return_inverse=True, return_counts=True)
    digests, of, counts = np.unique(names, return_inverse=True, return_counts=True)
    most = np.zeros(len(digests), np.int64)
    np.maximum.at(most, of, copies[which])
    _write_array(path, np.stack([digests, counts.astype(np.uint64), most.astype(np.uint64)]))
    _counts_at.cache_clear()  # there may have been others


def write_held(path: Path, held: Digests) -> None:
    """Write which functions an object holds."""
    _write_array(path, held)


def _write_array(path: Path, array: NDArray[np.uint64]) -> None:
    data = io.BytesIO()
    np.save(data, array)
    write_atomically(path, data.getvalue())


class Weights:
    """What a byte of a module's functions counts.

    Args:
        counts: the file that `write_counts` made of all objects; None to count every byte.
        own: the functions that this module's object was counted with.
        linked_with: the name of those that the module is linked with.
        kept: whether the counted objects are those of an earlier round, and not the plain ones.
        folded: whether the linker keeps one of all functions that are alike.
    """

    def __init__(
        self, counts: Path | None, own: Digests, linked_with: str, *, kept: bool, folded: bool = False
    ) -> None:
        self._counts = {} if counts is None else _counts_at(counts)
        names, classes = own.tolist()
        self._own = dict(zip(names, classes, strict=True))
        self._copies = Counter(classes)
        self._linked_with = linked_with
        self._share = _KEPT_ANYWAY if kept else 1.0
        self._folded = _FOLDED if folded else 0.0

    def __call__(self, name: str) -> float:
        """Return what a byte of a function counts: less the more other objects hold it, or one that is like it."""
        if not self._counts:
            return 1.0
        digest = _digest(self._linked_with, name)
        held, copies = self._counts.get(digest, (0, 0))
        own = self._own.get(digest)
        mine = 0 if own is None else self._copies[own]
        merged = self._weight(held - (own is not None), 1)
        return (1 - self._folded) * merged + self._folded * self._weight(copies - mine, max(1, mine))

    def _weight(self, others: int, mine: int) -> float:
        """Return what a byte counts of which others hold so many copies, and this object so many."""
        return 1 / mine if others <= 0 else self._share / (others + mine)


def weighted_size(
    text_size: int, sizes: Mapping[str, int], entries: Mapping[str, int], weight: Callable[[str], float]
) -> float:
    """Return the bytes of an object's text and of its entries in what is linked, those of each function weighted."""
    text = text_size - sum(size * (1.0 - weight(name)) for name, size in sizes.items())
    return text + sum(size * weight(name) for name, size in entries.items())


def linked_size(
    data: Buffer, text_size: int, functions: Iterable[str], weight: Callable[[str], float], *, exports: Exports
) -> float:
    """Return what an object adds to what is linked, in bytes of text.

    Args:
        data: the object.
        text_size: bytes of its text.
        functions: the functions' names in the IR.
        weight: what a byte of a function counts.
        exports: what is exported of what it is linked into.

    Raises:
        FormatError: the object is damaged.
    """
    sizes, entries = linked_footprints(data, names_by_symbol(data, functions), exports=exports)
    return weighted_size(text_size, sizes, entries, weight)


class SoFar(NamedTuple):
    """What a module's earlier rounds found.

    Attributes:
        plan: the best decisions, in their order.
        flips: those that were tried, and each one's places and decisions.
        curve: (compiles so far, objective) whenever something better was found.
        compiles: how many there were.
        baseline_text_size: bytes of text with the decisions that the search began with.
        baseline_objective: the objective with them.
        wall_s: seconds that it took.
        kept: how many of the best decisions are other than those of the policy that the search began with.
        text_size: bytes of text of the best compile.
        objective: that of the best compile.
        header: the line of the compiler's header.
        untried: the policies that could not be tried, and why, one a line.
    """

    plan: tuple[tuple[Key, int], ...] = ()
    flips: tuple[tuple[FlipRow, tuple[tuple[str, str, int, int], ...]], ...] = ()
    curve: tuple[tuple[int, float], ...] = ()
    compiles: int = 0
    baseline_text_size: int = 0
    baseline_objective: float = 0.0
    wall_s: float = 0.0
    kept: int = 0
    text_size: int = 0
    objective: float = 0.0
    header: str = ""
    untried: str = ""

    def write(self, path: Path) -> None:
        """Write it to a file, as JSON; bytes are text of the same characters."""
        plan = [(features.decode("latin-1"), number, decided) for (features, number), decided in self.plan]
        flips = [((*row[:-1], row.tensors.decode("latin-1")), places) for row, places in self.flips]
        write_atomically(path, json.dumps((plan, flips, *self[2:])).encode("ascii"))

    @classmethod
    def read(cls, path: Path) -> SoFar:
        """Read what `write` wrote."""
        plan, flips, curve, *plain = json.loads(path.read_text("ascii"))
        return cls(
            tuple(((features.encode("latin-1"), number), decided) for features, number, decided in plan),
            tuple(
                (FlipRow._make((*row, tensors.encode("latin-1"))), tuple(map(tuple, places)))
                for (*row, tensors), places in flips
            ),
            tuple((count, objective) for count, objective in curve),
            *plain,
        )


class Unweighed(NamedTuple):
    """The outcome of a compile, before anything in it is weighed; a later round that asks for the same reads it.

    Attributes:
        calls: each decision's caller, callee, the start policy's decision at that state, and the decision.
        tensors: each decision's features, as the compiler sent them, all of one size.
        sizes: bytes of each function.
        text_size: bytes of the object's text.
        mergeable: as `mergeable_functions` returns them.
        entries: bytes of each function in tables of what is linked.
    """

    calls: tuple[tuple[str, str, int, int], ...]
    tensors: tuple[bytes, ...]
    sizes: Mapping[str, int]
    text_size: int
    mergeable: Mapping[str, int | None]
    entries: Mapping[str, int]

    @classmethod
    def of(cls, outcome: Outcome) -> Unweighed:
        """Return an outcome without what depends on weights."""
        calls = tuple((one.caller, one.callee, one.base, one.decided) for one in outcome.decisions)
        tensors = tuple(one.tensors for one in outcome.decisions)
        return cls(calls, tensors, outcome.sizes, outcome.text_size, outcome.mergeable, outcome.entries)

    def write(self, path: Path) -> None:
        """Write it to a file: a line of JSON, and the tensors."""
        names = {name: number for number, name in enumerate(dict.fromkeys(chain(*(call[:2] for call in self.calls))))}
        calls = [(names[caller], names[callee], *decided) for caller, callee, *decided in self.calls]
        head = json.dumps((list(names), calls, *self[2:])).encode("ascii")
        write_atomically(path, zlib.compress(b"\n".join((head, b"".join(self.tensors))), 1))

    @classmethod
    def read(cls, path: Path) -> Unweighed:
        """Read what `write` wrote."""
        head, _, data = zlib.decompress(path.read_bytes()).partition(b"\n")
        names, calls, *plain = json.loads(head)
        size = len(data) // max(1, len(calls))
        return cls(
            tuple((names[caller], names[callee], base, decided) for caller, callee, base, decided in calls),
            tuple(data[number * size : (number + 1) * size] for number in range(len(calls))),
            *plain,
        )
