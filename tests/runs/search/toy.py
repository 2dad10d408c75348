"""A toy inliner, for searches without a compiler: programs of a few functions, and every way to inline in them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mlgo_corpus.formats.logs.keys import Key
from mlgo_corpus.runs.search.climb import Decision, Mixed, Outcome, Plan, Rule

CALL_BYTES = 9


@dataclass(frozen=True)
class Program:
    """Functions by number; each calls some of higher numbers. Those that are not kept go with their last call."""

    bytes_of: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...]
    kept: tuple[bool, ...]
    compiles: list[int]

    def compile(self, overrides: Mapping[Key, int], guide: Rule | Mixed | None = None) -> Outcome:
        """Inline from the leaves up; without an override a callee of less than 12 bytes is inlined, or by a rule."""
        self.compiles[0] += 1
        sizes: dict[int, int] = {}
        left: dict[int, list[tuple[int, bytes]]] = {}
        decisions = []
        for caller in reversed(range(len(self.calls))):
            size, rest = self.bytes_of[caller], []
            work = [(callee, b"%d.%d" % (caller, number)) for number, callee in enumerate(self.calls[caller])]
            while work:
                callee, path = work.pop(0)
                key = (path, 0)
                base = int(sizes[callee] < 12)
                rule = guide.among[(callee + guide.seed) % len(guide.among)] if isinstance(guide, Mixed) else guide
                other = rule.decides(sizes[callee], self.uses(callee)) if isinstance(rule, Rule) else base
                decided = overrides.get(key, other)
                decisions.append(Decision(key, f"f{caller}", f"f{callee}", base, decided, path, 1.0))
                if decided:
                    # A function that is inlined twice shrinks a little more the larger the caller is already.
                    size += sizes[callee] - min(sizes[callee], size % 7)
                    work += [(inner, path + b"/" + inner_path) for inner, inner_path in left[callee]]
                else:
                    size += CALL_BYTES
                    rest.append((callee, path))
            sizes[caller], left[caller] = size, rest
        used = {callee for rest in left.values() for callee, _ in rest}
        there = {f"f{number}": size for number, size in sizes.items() if self.kept[number] or number in used}
        total = sum(there.values())
        return Outcome(tuple(decisions), there, float(total), total, float(total), {})

    def uses(self, function: int) -> int:
        """Count the calls of a function."""
        return sum(callees.count(function) for callees in self.calls)

    def compile_by(self, plan: Plan, rule: Rule | Mixed | None = None) -> Outcome:
        """Inline by a plan, and a rule."""
        return self.compile({key: value for key, value in plan if value is not None}, rule)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcome of every way to decide."""
        waiting: list[dict[Key, int]] = [{}]
        while waiting:
            forced = waiting.pop()
            outcome = self.compile(forced)
            yield outcome
            for number, decision in enumerate(outcome.decisions[len(forced) :], len(forced)):
                first = {one.key: one.decided for one in outcome.decisions[:number]}
                waiting.append({**first, decision.key: 1 - decision.decided})


def random_program(seed: int, functions: int, calls: int) -> Program:
    """Make a program; the first function is kept."""
    generator = random.Random(seed)
    called: list[list[int]] = [[] for _ in range(functions)]
    for _ in range(calls):
        caller = generator.randrange(functions - 1)
        called[caller].append(generator.randrange(caller + 1, functions))
    return Program(
        tuple(generator.randrange(2, 60) for _ in range(functions)),
        tuple(map(tuple, called)),
        tuple(number == 0 or generator.random() < 0.3 for number in range(functions)),
        [0],
    )
