"""The search for better decisions of one module: which flips are tried together, and which are kept.

A flip is the other decision at one call, or at all calls of one function. What it may change is known beforehand: the
caller, the functions that the caller is inlined into, and the callee, whose last use may go. Flips whose sets of such
functions are disjoint do not disturb each other, so that one compile tries many of them, and the effect of each is the
difference of its functions' bytes. What helps is kept, the next compile confirms it while it tries others, and at the
end one compile has all that is kept.

There is no compiler in here: `climb` is given a function that compiles.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from mlgo_corpus.formats.logs.keys import Key


class Decision(NamedTuple):
    """One decision of a compile.

    Attributes:
        key: its name.
        caller: the function that the call is in.
        callee: the function that it calls.
        base: the decision of the policy that the search began with, at this state.
        decided: the decision.
        tensors: the features, as the compiler sent them.
    """

    key: Key
    caller: str
    callee: str
    base: int
    decided: int
    tensors: bytes


class Outcome(NamedTuple):
    """The outcome of a compile.

    Attributes:
        decisions: in their order.
        sizes: bytes of each function.
        objective: of the whole object; less is better.
        text_size: bytes of the object's text.
    """

    decisions: tuple[Decision, ...]
    sizes: Mapping[str, int]
    objective: float
    text_size: int


class Flip(NamedTuple):
    """One try.

    Attributes:
        changes: the new decision by key; of one call, or of all calls of one function.
        first: the decision whose call it is, or the first of them.
        affected: the functions that it may change.
        alone: whether it is about one call.
    """

    changes: Mapping[Key, int]
    first: Decision
    affected: frozenset[str]
    alone: bool


class Tried(NamedTuple):
    """What came of a flip: in which compile, with how many others, its effect in bytes and on the objective.

    Effects are NaN if the compile failed.
    """

    flip: Flip
    compile: int
    others: int
    text_effect: float
    effect: float


@dataclass(slots=True)
class Found:
    """The outcome of a search.

    Attributes:
        first: the compile with the decisions that the search began with.
        best: the best compile.
        overrides: the decisions of the best compile that differ from its policy's, by key.
        compiles: how many there were.
        tried: the flips, in order.
        curve: (compiles so far, objective) at each compile that was the best so far.
    """

    first: Outcome
    best: Outcome
    overrides: dict[Key, int]
    compiles: int = 1
    tried: list[Tried] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)


_Value = TypeVar("_Value")

Compile = Callable[[Mapping[Key, int]], Outcome]

# Every so many compiles what was kept is compiled alone, so that a mistake cannot go on for long.
_CONFIRM_EVERY: Final = 8
# An effect of less is no effect; weights make fractions of bytes.
_EPSILON: Final = 1e-6


def climb(
    compile_with: Compile,
    budget: int,
    generator: random.Random,
    weight: Callable[[str], float] = lambda _: 1.0,
    over: Callable[[], bool] = lambda: False,
) -> Found:
    """Search.

    Args:
        compile_with: compiles with some decisions other than the policy's.
        budget: how often at most.
        generator: makes the choices.
        weight: what a byte of a function counts in the objective.
        over: whether the time is up.

    Raises:
        Whatever ``compile_with`` raises in its first call; later failures are flips that did not help.
    """
    first = compile_with({})
    found = Found(first, first, {}, curve=[(1, first.objective)])
    _Climb(compile_with, budget, generator, weight, over, found).run()
    return found


class _Climb:
    def __init__(
        self,
        compile_with: Compile,
        budget: int,
        generator: random.Random,
        weight: Callable[[str], float],
        over: Callable[[], bool],
        found: Found,
    ) -> None:
        self._weight = weight
        self._changed = True
        self._compile_with = compile_with
        self._budget = budget
        self._generator = generator
        self._over = over
        self._found = found
        self._kept: dict[Key, int] = {}
        self._view = _View(found.first)
        self._seen: set[tuple[tuple[Key, int], ...]] = set()
        self._unconfirmed = 0

    def run(self) -> None:
        found = self._found
        idle = 0
        turn = 0
        while found.compiles < self._budget - 1 and not self._over():
            if self._unconfirmed >= _CONFIRM_EVERY:
                self._confirm()
                continue
            turn += 1
            flips = self._choose(grouped=turn % 3 == 0)
            if not flips:
                idle += 1
                if idle < 3:
                    continue
                if self._unconfirmed:
                    self._confirm()
                if not self._again():
                    break
                idle = 0
                continue
            idle = 0
            self._try(flips)
        if self._unconfirmed and found.compiles < self._budget:
            self._confirm()

    def _again(self) -> bool:
        """Begin a further pass, in which everything is tried again, if the last one changed anything."""
        changed, self._changed = self._changed, False
        self._seen.clear()
        return changed

    def _compile(self, overrides: Mapping[Key, int]) -> Outcome | None:
        found = self._found
        found.compiles += 1
        try:
            outcome = self._compile_with(overrides)
        except CompileFailedError:
            return None
        if outcome.objective < found.best.objective - _EPSILON:
            found.best, found.overrides = outcome, dict(overrides)
            found.curve.append((found.compiles, outcome.objective))
        return outcome

    def _choose(self, *, grouped: bool) -> list[Flip]:
        """Choose flips that do not disturb each other, of those that were not tried yet."""
        moves = list(self._groups() if grouped else self._singles())
        moves = [move for move in moves if _signature(move[0]) not in self._seen]
        generator = self._generator
        moves.sort(key=lambda move: (move[2] * generator.random(), move[1].key))
        taken: set[str] = set()
        chosen = []
        for changes, first, _, functions in moves:
            affected = self._view.affected(functions)
            if taken.isdisjoint(affected):
                taken |= affected
                chosen.append(Flip(changes, first, frozenset(affected), alone=len(changes) == 1))
                self._seen.add(_signature(changes))
        return chosen

    def _singles(self) -> Iterator[tuple[dict[Key, int], Decision, float, set[tuple[str, str]]]]:
        for decision in self._view:
            yield {decision.key: 1 - decision.decided}, decision, 1.0, {(decision.caller, decision.callee)}

    def _groups(self) -> Iterator[tuple[dict[Key, int], Decision, float, set[tuple[str, str]]]]:
        calls: dict[str, list[Decision]] = defaultdict(list)
        for decision in self._view:
            calls[decision.callee].append(decision)
        for decisions in calls.values():
            for value in (1, 0):
                changes = {one.key: value for one in decisions if one.decided != value}
                if len(changes) > 1 or (changes and len(decisions) > 1):
                    yield changes, decisions[0], 1.0, {(one.caller, one.callee) for one in decisions}

    def _try(self, flips: list[Flip]) -> None:
        overrides = dict(self._kept)
        for flip in flips:
            overrides |= flip.changes
        outcome = self._compile(overrides)
        found = self._found
        if outcome is None:
            failed = float("nan")
            found.tried += [Tried(flip, found.compiles, len(flips) - 1, failed, failed) for flip in flips]
            return
        new = _View(outcome)
        kept: set[str] = set()
        rejected: set[str] = set()
        for flip in flips:
            differences = [
                (new.sizes.get(name, 0) - self._view.sizes.get(name, 0), self._weight(name)) for name in flip.affected
            ]
            text_effect = sum(difference for difference, _ in differences)
            effect = math.fsum(difference * weight for difference, weight in differences)  # in any order
            found.tried.append(Tried(flip, found.compiles, len(flips) - 1, text_effect, effect))
            if effect < -_EPSILON:
                self._kept |= flip.changes
                kept |= flip.affected
                self._changed = True
            else:
                rejected |= flip.affected
        self._view.take(new, but=rejected)
        self._unconfirmed += bool(kept)

    def _confirm(self) -> None:
        """Compile with all that is kept; if the best was better, go on from there."""
        found = self._found
        outcome = self._compile(self._kept)
        self._unconfirmed = 0
        if outcome is None or outcome.objective > found.best.objective + _EPSILON:
            self._kept = dict(found.overrides)
            self._view = _View(found.best)
        else:
            self._view = _View(outcome)


class CompileFailedError(Exception):
    """A compile with these decisions failed."""


def _signature(changes: Mapping[Key, int]) -> tuple[tuple[Key, int], ...]:
    return tuple(sorted(changes.items()))


class _View:
    """What is expected of the compile with all that is kept: each function's decisions and bytes."""

    def __init__(self, outcome: Outcome) -> None:
        self.sizes = dict(outcome.sizes)
        self._decisions: dict[str, list[Decision]] = defaultdict(list)
        for decision in outcome.decisions:
            self._decisions[decision.caller].append(decision)
        self._into: dict[str, set[str]] | None = None

    def __iter__(self) -> Iterator[Decision]:
        for decisions in self._decisions.values():
            yield from decisions

    def take(self, other: _View, *, but: set[str]) -> None:
        """Take everything from another view but some functions."""
        _take(self.sizes, other.sizes, but)
        _take(self._decisions, other._decisions, but)
        self._into = None

    def affected(self, calls: Iterable[tuple[str, str]]) -> set[str]:
        """Return the functions that a change at some calls may change."""
        into = self._inlined_into()
        found: set[str] = set()
        for caller, callee in calls:
            left = [caller]
            while left:
                name = left.pop()
                if name not in found:
                    found.add(name)
                    left.extend(into.get(name, ()))
            found.add(callee)
        return found

    def _inlined_into(self) -> dict[str, set[str]]:
        if self._into is None:
            self._into = defaultdict(set)
            for decision in self:
                if decision.decided:
                    self._into[decision.callee].add(decision.caller)
        return self._into


def _take(mine: dict[str, _Value], others: Mapping[str, _Value], but: set[str]) -> None:
    """Take the values of all names but some, and forget those that the other has not; in an order that is the same."""
    for name in [name for name in mine if name not in but and name not in others]:
        del mine[name]
    for name, value in others.items():
        if name not in but:
            mine[name] = value
