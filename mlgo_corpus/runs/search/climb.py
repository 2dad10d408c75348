"""The search for better decisions of one module: which flips are tried together, and which are kept.

The first compiles each follow another policy, or a simple rule, for all decisions. The functions that come out
differently fall into sets that do not disturb each other, and each set is taken from where it is smaller.

A flip is the other decision at one call, at all calls of one function that are decided alike, or at two calls that are
near each other. What it may change is known beforehand: the callers, the functions that these are inlined into, and
callees whose last use may go. Flips whose sets of such functions are disjoint do not disturb each other, so that one
compile tries many of them, and the effect of each is the difference of its functions' bytes. What helps is kept; the
next compile confirms it while it tries others, and from time to time one compile has what is kept and nothing else.

There is no compiler in here: `climb` is given a function that compiles.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, cycle, groupby
from types import MappingProxyType
from typing import Final, NamedTuple

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
        worth: what the other decision is expected to save, in bytes of text.
    """

    key: Key
    caller: str
    callee: str
    base: int
    decided: int
    tensors: bytes
    worth: float


class Outcome(NamedTuple):
    """The outcome of a compile.

    Attributes:
        decisions: in their order.
        sizes: bytes of each function.
        objective: of the whole object; less is better.
        text_size: bytes of the object's text.
        measured: the objective as it is reported; searches of one module may differ in their objectives.
        mergeable: the functions that other objects may hold, too, and the class of those that each one is like.
        compiles: how many it took: none where an earlier round had it, two where a policy was asked by itself first.
        entries: bytes of each function in tables of what is linked, which count as its own do, but are no text here.
    """

    decisions: tuple[Decision, ...]
    sizes: Mapping[str, int]
    objective: float
    text_size: int
    measured: float
    mergeable: Mapping[str, int | None]
    compiles: int = 1
    entries: Mapping[str, int] = MappingProxyType({})

    def bytes(self, name: str) -> int:
        """Return the bytes of a function, and of its entries in tables of what is linked."""
        return self.sizes.get(name, 0) + self.entries.get(name, 0)


Place = tuple[str, str, int]
"""A call: its caller, its callee, and its number among the calls of this one in that one."""

DecidedPlace = tuple[str, str, int, int]
"""A place, and what is decided there."""


class _Flip(NamedTuple):
    """One try.

    Attributes:
        calls: the calls that are decided otherwise.
        decided: their places, and what is tried there.
        affected: the functions that it may change.
    """

    calls: tuple[Decision, ...]
    decided: tuple[DecidedPlace, ...]
    affected: frozenset[str]

    @property
    def callees(self) -> frozenset[str]:
        """The functions that are called."""
        return frozenset(call.callee for call in self.calls)

    @property
    def changes(self) -> dict[Place, int]:
        """What is tried, by place."""
        return {(caller, callee, number): value for caller, callee, number, value in self.decided}


class _Tried(NamedTuple):
    """What came of a flip: in which compile, with how many others, its effect in bytes and on the objective.

    Effects are NaN if the compile failed.
    """

    flip: _Flip
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
        compiles: how many there were that count.
        tried: the flips, in order.
        curve: (compiles so far, measured) at each compile that was the best so far.
    """

    first: Outcome
    best: Outcome
    compiles: int
    tried: list[_Tried] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)

    def test(self) -> Callable[[Iterable[DecidedPlace]], bool]:
        """Return a function that tests whether the best compile has some decisions."""
        best = _View(self.best)
        return lambda decided: all(
            best.decided((caller, callee, number)) == value for caller, callee, number, value in decided
        )


Plan = Sequence[tuple[Key, int | None]]
"""The decisions that are expected, in their order, each with what is to be decided; None: what the policy decides."""


class Rule(NamedTuple):
    """Inline where LLVM's estimate of a call's cost is less than a limit.

    Attributes:
        users: how many uses of the callee are few.
        few: the limit for callees with few uses.
        many: that for all others.
    """

    users: int
    few: int
    many: int

    def decides(self, cost: int, users: int) -> int:
        """Return the decision about a call: its estimated cost, and the uses of its callee."""
        return int(cost < (self.few if users <= self.users else self.many))


class Moved(NamedTuple):
    """A learned policy that inlines less readily than it has learned to, or more.

    Attributes:
        policy: its name.
        by: what is added to its threshold.
    """

    policy: str
    by: float


SingleGuide = Rule | Moved | str
"""A rule, or a policy by its name."""


class Mixed(NamedTuple):
    """For each callee one of several guides, drawn by a hash of what a compiler tells of it.

    Attributes:
        among: these.
        seed: of the hash.
    """

    among: tuple[SingleGuide, ...]
    seed: int


Guide = SingleGuide | Mixed
"""What decides where nothing is planned."""

# Measured on leveldb and yaml-cpp at -Oz: six compiles by these save more than thirty that begin with flips.
_FIRST_RULES: Final = (
    Rule(1, 200, 30),
    Rule(1, 1000, 60),
    Rule(2, 200, 15),
    Rule(2, 100, 30),
    Rule(4, 60, 10),
    Rule(3, 1000, 0),
)
# Offsets to a learned policy's threshold, in log odds: each part of a module has a best threshold of its own. With 25
# compiles the products of ninja and hunspell are 14.5 and 6.0 % smaller, and 13.1 and 5.3 % without these offsets.
_MOVES: Final = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
# A mixture draws from these offsets, as the best threshold differs from callee to callee.
_MIXED_MOVES: Final = (0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5)
# One mixture of policies, and one of rules, for so many compiles; and the most, as flips find more in the end.
_MIXED_EVERY: Final = 5
_MOST_MIXED: Final = 10

Compile = Callable[[Plan, Guide | None], Outcome]
"""Compile by a plan; what it does not say is decided by a guide, or else by the policy that the search began with."""

# Every so many compiles what was kept is compiled alone, so that a mistake cannot go on for long.
_CONFIRM_EVERY: Final = 8
# The expected gain of a group, as a multiple of the mean of its calls': of 2 509 groups in the searches that
# `mlgo_corpus.runs.search.worth` learned from.
_GROUPS_WORTH: Final = 1.5
# The expected gain of what was tried at another state: in vain, as a multiple of a first try's; or of what helped and
# was lost again, as a multiple of what it saved then. Of 31 589 flips in leveldb and yaml-cpp with 100 compiles.
_WORTH_AFTER_NOTHING: Final = 0.3
_WORTH_AFTER_GAIN: Final = 0.4
# An effect of less is no effect; weights make fractions of bytes.
_EPSILON: Final = 1e-6


def draw_guides(
    budget: int, generator: random.Random, policies: Sequence[str] = (), learned: Sequence[str] = ()
) -> list[Guide]:
    """Return what to try within a budget of compiles: policies, rules that are good everywhere, mixtures, random rules.

    Args:
        budget: all compiles of a module.
        generator: draws the rules at random.
        policies: what to try as it is.
        learned: the learned policies that are tried with other thresholds, and in mixtures of these.
    """
    drawn = (
        Rule(
            generator.choice((1, 2, 3, 4, 6, 10)),
            generator.choice((60, 100, 200, 400, 100_000)),
            generator.choice((-15, 0, 10, 20, 30, 45, 60)),
        )
        for _ in range(budget // 10)
    )
    moved = (Moved(policy, by) for by in _MOVES for policy in learned)
    seeds = range(min(budget // _MIXED_EVERY, _MOST_MIXED))
    mixed_rules = (Mixed(_FIRST_RULES, seed) for seed in seeds)
    of_policy = [tuple(Moved(policy, by) for by in _MIXED_MOVES) for policy in learned]
    mixed = (Mixed(among, seed) for seed, among in zip(seeds, cycle(of_policy), strict=False))
    return [*policies, *mixed, *moved, *_FIRST_RULES, *mixed_rules, *drawn]


def climb(
    compile_with: Compile,
    budget: int,
    generator: random.Random,
    *,
    weight: Callable[[str], float] = lambda _: 1.0,
    over: Callable[[], bool] = lambda: False,
    guides: Iterable[Guide] = (),
    begin: Plan = (),
    tried: Iterable[Sequence[DecidedPlace]] = (),
    most_guides: int | None = None,
    repeats: Callable[[Guide, Outcome], bool] = lambda *_: False,
) -> Found:
    """Search.

    Args:
        compile_with: compiles.
        budget: how often at most.
        generator: makes the choices.
        weight: what a byte of a function counts in the objective.
        over: whether the time is up.
        guides: the first compiles follow one each, for all decisions, but for those that would repeat another one.
        begin: the decisions to begin with, which are kept but for those that something better is found for.
        tried: what an earlier search tried in vain. It is tried again only where bytes do not count in full, because
            their weight may have changed since.
        most_guides: how many are followed at most, each counted as its compiles if those are more; by default half of
            the budget.
        repeats: whether a guide is known to decide all that an outcome has as that did, and so would repeat it.

    Raises:
        Whatever ``compile_with`` raises in its first call; later failures are flips that did not help.
    """
    first = compile_with(begin, None)
    found = Found(first, first, first.compiles, curve=[(first.compiles, first.measured)])
    climbing = _Climb(compile_with, budget, generator, weight, over, found)
    climbing.skip(tried)
    if first.decisions:
        climbing.follow(guides, budget // 2 if most_guides is None else most_guides, repeats)
        climbing.run()
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
        self._compile_with = compile_with
        self._budget = budget
        self._generator = generator
        self._over = over
        self._found = found
        self._view = _View(found.first)
        # The last compile that had what was kept and nothing else, and the functions of each change kept since.
        self._base = found.first
        self._since: list[frozenset[str]] = []
        self._seen: dict[tuple[tuple[DecidedPlace, ...], bytes], frozenset[str]] = {}
        self._effects: dict[tuple[DecidedPlace, ...], float] = {}  # at the last state at which each was tried
        self._touched: set[str] = set()
        self._failed: list[list[_Flip]] = []
        self._unconfirmed = 0

    def skip(self, tried: Iterable[Sequence[DecidedPlace]]) -> None:
        """Take flips as tried, where every byte counts."""
        view = self._view
        calls_at, left = {view.place(call): call for call in view}, view.calls_left()
        for places in tried:
            there = [(calls_at.get((caller, callee, number)), value) for caller, callee, number, value in places]
            calls = tuple(call for call, value in there if call is not None and call.decided != value)
            if len(calls) == len(places):
                signature = self._signature(calls)
                self._effects[signature] = 0.0
                affected = view.affected(calls, left)
                if all(self._weight(name) == 1.0 for name in affected):
                    self._seen[signature, calls[0].key[0]] = frozenset(affected)

    def follow(self, guides: Iterable[Guide], most: int, repeats: Callable[[Guide, Outcome], bool]) -> None:
        """Try guides, within the budget, and confirm what is kept of them."""
        found = self._found
        followed = [found.first]
        left = most
        for guide in guides:
            if left <= 0 or found.compiles >= self._budget - 1 or self._over():
                break
            if not any(repeats(guide, outcome) for outcome in followed):
                before = found.compiles
                if (outcome := self._try_guide(guide)) is not None:
                    followed.append(outcome)
                left -= max(1, found.compiles - before)
        if self._unconfirmed and found.compiles < self._budget:
            self._confirm()

    def run(self) -> None:
        """Try single calls and groups until none is left that was not tried, then pairs, within the budget."""
        found = self._found
        while found.compiles < self._budget - bool(self._unconfirmed) and not self._over():
            if self._failed:
                self._try(self._failed.pop())
                continue
            if self._unconfirmed >= _CONFIRM_EVERY:
                self._confirm()
                continue
            flips = self._choose(chain(self._view.singles(), self._view.groups()))
            if not flips:
                if self._unconfirmed:
                    self._confirm()
                    continue
                if self._touched:  # at other states the same flips have other effects
                    touched, self._touched = self._touched, set()
                    self._seen = {flip: where for flip, where in self._seen.items() if touched.isdisjoint(where)}
                    continue
                flips = self._choose(self._view.pairs(self._generator))
                if not flips:
                    break
            self._try(flips)
        if self._unconfirmed and found.compiles < self._budget:
            self._confirm()

    def _compile(self, wanted: dict[Place, int], guide: Guide | None = None) -> Outcome | None:
        """Compile with some decisions by place, and all others by the policy, or all by a guide; None if that fails."""
        found = self._found
        view = self._view
        try:
            plan = [(one.key, wanted.get(view.place(one))) for one in view] if guide is None else ()
            outcome = self._compile_with(plan, guide)
        except CompileFailedError:
            found.compiles += 1
            return None
        found.compiles += outcome.compiles
        if outcome.objective < found.best.objective - _EPSILON:
            found.best = outcome
            found.curve.append((found.compiles, outcome.measured))
        return outcome

    def _choose(self, moves: Iterable[tuple[Decision, ...]]) -> list[_Flip]:
        """Choose flips that do not disturb each other, of those that were not tried yet."""
        # A call with other features is another one: what did not help there may help now.
        signed = (((self._signature(calls), calls[0].key[0]), calls) for calls in moves)
        weight = cache(self._mean_weight)  # of callers, while the view is as it is
        ranked = [
            (self._rank(calls, signature[0], weight(calls[0].caller)), signature, calls)
            for signature, calls in signed
            if signature not in self._seen
        ]
        ranked.sort(key=lambda move: move[:2])
        changed: set[str] = set()
        called: set[str] = set()
        before = self._view.calls_left()
        left = before.copy()
        chosen = []
        for _, signature, calls in ranked:
            callees = {call.callee for call in calls}
            # A call whose callee changes has another key.
            if not changed.isdisjoint(callees):
                continue
            affected = self._view.affected(calls, left)
            # The last call of a function takes that away: no effect of this flip, if another takes another call.
            moved = any(left.get(callee, 0) != before.get(callee, 0) for callee in callees)
            if moved and affected != self._view.affected(calls, before):
                continue
            if changed.isdisjoint(affected) and called.isdisjoint(affected - callees):
                changed |= affected
                called |= callees
                chosen.append(_Flip(tuple(calls), signature[0], frozenset(affected)))
                self._seen[signature] = chosen[-1].affected
                for call in calls:
                    left[call.callee] += 1 if call.decided else -1
        return chosen

    def _signature(self, calls: Sequence[Decision]) -> tuple[DecidedPlace, ...]:
        """Return the other decisions at some calls."""
        return tuple(sorted((*self._view.place(call), 1 - call.decided) for call in calls))

    def _rank(
        self, calls: Sequence[Decision], signature: tuple[DecidedPlace, ...], weight: float
    ) -> tuple[float, float]:
        """Return what comes first, the least: what is expected to save most; equal ones are drawn."""
        gain = sum(call.worth for call in calls) / len(calls) * (1.0 if len(calls) == 1 else _GROUPS_WORTH) * weight
        if (effect := self._effects.get(signature)) is not None:
            gain = -effect * _WORTH_AFTER_GAIN if effect < -_EPSILON else gain * _WORTH_AFTER_NOTHING
        return -gain, self._generator.random()

    def _mean_weight(self, name: str) -> float:
        """Return what a byte of a function counts, in the mean of its copies: where it is, and where it is inlined."""
        above = self._view.above(name)
        return math.fsum(map(self._weight, above)) / len(above)

    def _try_guide(self, guide: Guide) -> Outcome | None:
        """Compile with all decisions by a guide, and keep them in those parts of the module that get smaller.

        Returns:
            The outcome; None if the compile failed.
        """
        outcome = self._compile({}, guide)
        if outcome is None:
            return None
        new, mine = _View(outcome), self._view
        kept: set[str] = set()
        for part in new.parts_apart_from(mine):
            effect = math.fsum((new.bytes(one) - mine.bytes(one)) * self._weight(one) for one in part)
            if effect < -_EPSILON:
                self._since.append(frozenset(part))
                self._unconfirmed = 1
                kept |= part
        mine.take(new, kept)
        return outcome

    def _try(self, flips: list[_Flip]) -> None:
        wanted = self._view.kept()
        for flip in flips:
            wanted |= flip.changes
        outcome = self._compile(wanted)
        found = self._found
        if outcome is None:
            failed = float("nan")
            found.tried += [_Tried(flip, found.compiles, len(flips) - 1, failed, failed) for flip in flips]
            if len(flips) > 1:  # one of them is to blame
                half = len(flips) // 2
                self._failed += [flips[half:], flips[:half]]
            return
        new = _View(outcome)
        in_one = new.sizes.keys() ^ self._view.sizes.keys()
        moved = new.decided_otherwise(self._view)
        brought = _brought(new, self._view, flips)
        kept: set[str] = set()
        for flip, others in zip(flips, brought, strict=True):
            if not any(new.decided(place) == value for place, value in flip.changes.items()):  # the calls were not met
                continue
            names = flip.affected
            if len(flips) > 1:  # one that is new or gone, though nothing here calls it otherwise, is so by another flip
                called = flip.callees.union(*(moved.get(name, ()) for name in flip.affected))
                names = frozenset(name for name in names if name not in in_one or name in called)
            both, old = names | others, self._view
            text_effect = sum(new.sizes.get(name, 0) - old.sizes.get(name, 0) for name in both)
            # `fsum` gives the same in any order.
            effect = math.fsum((new.bytes(name) - old.bytes(name)) * self._weight(name) for name in both)
            found.tried.append(_Tried(flip, found.compiles, len(flips) - 1, text_effect, effect))
            self._effects[flip.decided] = effect
            if effect < -_EPSILON:
                self._since.append(flip.affected | others)
                kept |= self._since[-1]
        self._view.take(new, kept)
        self._touched |= kept
        self._unconfirmed += bool(kept)

    def _confirm(self) -> None:
        """Compile with all that is kept, and give up what did not help after all; what is left is confirmed later."""
        found = self._found
        outcome = self._compile(self._view.kept())
        self._unconfirmed = 0
        harmful = set[str]() if outcome is None else self._harmful(outcome)
        if outcome is not None and outcome.objective < self._base.objective - _EPSILON and not harmful:
            self._base, self._view = outcome, _View(outcome)
        elif outcome is not None and harmful and any(map(harmful.isdisjoint, self._since)):
            self._view = _View(outcome)
            self._view.take(_View(self._base), harmful)
            self._unconfirmed = 1
        else:  # begin again with the best, which may have been a try
            self._base, self._view = found.best, _View(found.best)
        self._since = [names for names in self._since if self._unconfirmed and harmful.isdisjoint(names)]

    def _harmful(self, outcome: Outcome) -> set[str]:
        """Return the functions of those changes kept since the last confirmation that made them larger, together."""
        parts = _joined(self._since)
        return {
            name
            for part in parts
            if math.fsum((outcome.bytes(one) - self._base.bytes(one)) * self._weight(one) for one in part) > _EPSILON
            for name in part
        }


class CompileFailedError(Exception):
    """A compile with these decisions failed."""


class _View:
    """What is expected of the compile with all that is kept: each function's decisions and bytes."""

    def __init__(self, outcome: Outcome) -> None:
        self.sizes = dict(outcome.sizes)
        self._entries = dict(outcome.entries)
        self._all: Sequence[Decision] = outcome.decisions
        self._decisions = _by_caller(self._all)
        self._places: dict[int, Place] = {}
        self._decided: dict[Place, int] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for decision in outcome.decisions:
            call = (decision.caller, decision.callee)
            self._places[id(decision)] = place = (*call, counts[call])
            self._decided[place] = decision.decided
            counts[call] += 1
        self._into: dict[str, set[str]] | None = None
        self._above: dict[str, frozenset[str]] = {}

    def __iter__(self) -> Iterator[Decision]:
        """Yield the decisions in the order in which the compiler is expected to ask for them."""
        return iter(self._all)

    def bytes(self, name: str) -> int:
        """Return the bytes of a function, and of its entries in tables of what is linked."""
        return self.sizes.get(name, 0) + self._entries.get(name, 0)

    def place(self, decision: Decision) -> Place:
        """Return the place of a decision's call."""
        return self._places[id(decision)]

    def decided(self, place: Place) -> int | None:
        """Return the decision at a place; None if there is no such call."""
        return self._decided.get(place)

    def singles(self) -> Iterator[tuple[Decision, ...]]:
        """Yield each call."""
        for decision in self:
            yield (decision,)

    def groups(self) -> Iterator[tuple[Decision, ...]]:
        """Yield all calls of a function that are not inlined, and all that are."""
        calls: dict[str, tuple[list[Decision], list[Decision]]] = {}
        for decision in self:
            calls.setdefault(decision.callee, ([], []))[decision.decided].append(decision)
        for alike in calls.values():
            yield from (tuple(decisions) for decisions in alike if len(decisions) > 1)

    def pairs(self, generator: random.Random) -> Iterator[tuple[Decision, ...]]:
        """Yield each call with another one that has to do with it: in its caller, or in the function that it calls."""
        for decision in self:
            near = [*self._decisions[decision.caller], *self._decisions.get(decision.callee, ())]
            other = near[generator.randrange(len(near))]
            if other is not decision:
                yield (decision, other)

    def kept(self) -> dict[Place, int]:
        """Return the decisions that are not those of the policy that the search began with, by place."""
        return {self.place(one): one.decided for one in self if one.decided != one.base}

    def parts_apart_from(self, other: _View) -> list[set[str]]:
        """Return the functions that differ from another view's, in sets that do not disturb each other."""
        changed = sorted({caller for (caller, _, _), _ in self._decided.items() ^ other._decided.items()})
        # Callers decide whether a function is there, and whether it has a stub.
        in_one = self.sizes.keys() ^ other.sizes.keys()
        in_one |= {name for name, _ in self._entries.items() ^ other._entries.items()}
        together = [frozenset((name,)) for name in changed]
        together += chain(self._inlined_from(changed), other._inlined_from(changed))
        together += (frozenset((call.caller, call.callee)) for call in chain(self, other) if call.callee in in_one)
        return _joined(together)

    def decided_otherwise(self, other: _View) -> dict[str, set[str]]:
        """Return, by callers, the callees of the calls that another view has, too, and decides otherwise."""
        found: dict[str, set[str]] = {}
        for place, decided in self._decided.items():
            if other._decided.get(place, decided) != decided:
                found.setdefault(place[0], set()).add(place[1])
        return found

    def calls_left(self) -> Counter[str]:
        """Return how many calls of each function are not inlined."""
        return Counter(decision.callee for decision in self if not decision.decided)

    def take(self, other: _View, names: Set[str]) -> None:
        """Take some functions from another view."""
        self.sizes = _taken(self.sizes, other.sizes, names)
        self._entries = _taken(self._entries, other._entries, names)
        self._all = _merged(self._all, other._all, names)
        self._decisions = _by_caller(self._all)
        self._places |= other._places
        places = {id(decision) for decision in self}
        self._places = {key: place for key, place in self._places.items() if key in places}
        self._decided = {self._places[id(decision)]: decision.decided for decision in self}
        self._into = None
        self._above.clear()

    def affected(self, calls: Sequence[Decision], left: Mapping[str, int]) -> set[str]:
        """Return the functions that the other decisions at some calls may change.

        Args:
            calls: which.
            left: how many calls of each function would not be inlined without them.
        """
        found: set[str] = set()
        inlined: dict[str, int] = {}
        for call in calls:
            found |= self.above(call.caller)
            inlined[call.callee] = inlined.get(call.callee, 0) + 1 - call.decided
        for callee, count in inlined.items():
            if left.get(callee, 0) <= count:  # the last one that is not inlined goes, or the first one comes
                found.add(callee)
        return found

    def above(self, name: str) -> frozenset[str]:
        """Return a function and those that it is inlined into."""
        if (known := self._above.get(name)) is not None:
            return known
        into = self._inlined_into()
        found: set[str] = set()
        rest = [name]
        while rest:
            one = rest.pop()
            if one not in found:
                found.add(one)
                rest.extend(into.get(one, ()))
        self._above[name] = made = frozenset(found)
        return made

    def _inlined_from(self, names: Iterable[str]) -> Iterator[frozenset[str]]:
        """Yield each function that is inlined with the one that it is inlined into, from some functions upwards.

        The functions above each of them, as sets, would have the square of what is one long chain.
        """
        into = self._inlined_into()
        rest = list(names)
        seen = set(rest)
        while rest:
            one = rest.pop()
            for above in into.get(one, ()):
                yield frozenset((one, above))
                if above not in seen:
                    seen.add(above)
                    rest.append(above)

    def _inlined_into(self) -> dict[str, set[str]]:
        if self._into is None:
            self._into = defaultdict(set)
            for decision in self:
                if decision.decided:
                    self._into[decision.callee].add(decision.caller)
        return self._into


def _brought(new: _View, old: _View, flips: Sequence[_Flip]) -> list[set[str]]:
    """Return for each flip the functions that come or go with it, though it does not call them otherwise.

    To inline what another object holds brings what that calls. What goes may have needed all flips that have to do with
    it, and is none's if there are several.
    """
    others = (new.sizes.keys() ^ old.sizes.keys()).difference(*(flip.affected for flip in flips))
    called: defaultdict[str, set[str]] = defaultdict(set)
    for call in chain(new, old):
        if call.callee in others:
            called[call.caller].add(call.callee)
    found = []
    for flip in flips:
        names: set[str] = set()
        rest = [name for name in flip.affected if name in called]
        while rest:
            more = called.get(rest.pop(), set()) - names
            names |= more
            rest += more
        found.append(names)
    owners = Counter(chain.from_iterable(found))
    return [{name for name in names if name in new.sizes or owners[name] == 1} for names in found]


def _joined(sets: Iterable[frozenset[str]]) -> list[set[str]]:
    """Return the unions of those sets, none of them empty, that have something in common."""
    found = list(sets)
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while (next_above := above.setdefault(name, name)) != name:
            above[name] = name = above[next_above]
        return name

    for first, *others in found:
        for other in others:
            above[top(other)] = top(first)
    parts: dict[str, set[str]] = {}
    for one in found:
        parts.setdefault(top(next(iter(one))), set()).update(one)
    return list(parts.values())


def _taken(mine: dict[str, int], others: dict[str, int], names: Set[str]) -> dict[str, int]:
    """Return mine, with the others' values of some names."""
    kept = {name: value for name, value in mine.items() if name not in names}
    return kept | {name: value for name, value in others.items() if name in names}


def _by_caller(decisions: Iterable[Decision]) -> dict[str, list[Decision]]:
    found: dict[str, list[Decision]] = {}
    for decision in decisions:
        found.setdefault(decision.caller, []).append(decision)
    return found


def _merged(mine: Iterable[Decision], others: Iterable[Decision], names: Set[str]) -> list[Decision]:
    """Return my decisions with the others' in some functions, in an order that both have.

    The compiler comes to a function of a cycle of calls several times: each visit has its own place. A visit of mine
    that the others have not comes after the one that it came after in mine.
    """
    visits, other_visits = _visits(mine), _visits(others)
    merged: list[Decision] = []
    after: dict[tuple[str, int] | None, list[Decision]] = {}
    last = None
    for visit, decisions in visits.items():
        if visit in other_visits:
            last = visit
        elif visit[0] not in names:
            after.setdefault(last, []).extend(decisions)
    merged += after.get(None, ())
    for visit, decisions in other_visits.items():
        merged += decisions if visit[0] in names else visits.get(visit, ())
        merged += after.get(visit, ())
    return merged


def _visits(decisions: Iterable[Decision]) -> dict[tuple[str, int], list[Decision]]:
    """Return the decisions of each visit of a function, by the function and the number of the visit."""
    found: dict[tuple[str, int], list[Decision]] = {}
    counts: Counter[str] = Counter()
    for caller, visited in groupby(decisions, key=lambda decision: decision.caller):
        found[caller, counts[caller]] = list(visited)
        counts[caller] += 1
    return found
