"""The search without a compiler: against every way to decide, and what it promises on the way."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mlgo_corpus.runs.search.climb import (
    CompileFailedError,
    Decision,
    Found,
    Guide,
    Mixed,
    Outcome,
    Plan,
    Rule,
    _Climb,
    _joined,
    _merged,
    _View,
    climb,
    draw_guides,
)
from tests.runs.search.toy import Program, random_program


def search(program: Program, budget: int, seed: int = 0) -> Found:
    generator = random.Random(seed)
    return climb(program.compile_by, budget, generator, guides=draw_guides(budget, generator))


def test_small_programs_are_solved() -> None:
    """Of 100 programs with at most 12 decisions, the best way is found in 95."""
    solved = programs = 0
    for seed in range(400):
        program = random_program(seed, functions=5, calls=5)
        if not 2 <= len(program.compile({}).decisions) <= 12:
            continue
        outcomes = list(program.outcomes())
        if any(len(outcome.decisions) > 12 for outcome in outcomes):
            continue
        found = search(program, 100)
        best = min(outcome.objective for outcome in outcomes)
        assert found.best.objective >= best
        programs += 1
        solved += found.best.objective == best
        if programs == 100:
            break
    assert programs == 100
    assert solved >= 95


@pytest.mark.parametrize("budget", [1, 2, 3, 30])
def test_what_is_found_is_what_its_decisions_give(budget: int) -> None:
    for seed in range(20):
        program = random_program(seed, functions=30, calls=60)
        found = search(program, budget, seed)
        assert found.compiles <= budget
        assert found.best.objective <= found.first.objective
        everything = {decision.key: decision.decided for decision in found.best.decisions}
        assert program.compile(everything) == found.best
        assert [count for count, _ in found.curve] == sorted({count for count, _ in found.curve})
        assert found.curve[0] == (1, found.first.objective)
        assert found.curve[-1][1] == found.best.objective
        assert search(program, budget, seed) == found


def together(parts: list[Program]) -> Program:
    """Make one program of many that have nothing to do with each other."""
    sizes: list[int] = []
    calls: list[tuple[int, ...]] = []
    kept: list[bool] = []
    for part in parts:
        first = len(sizes)
        sizes += part.bytes_of
        calls += [tuple(first + callee for callee in called) for called in part.calls]
        kept += part.kept
    return Program(tuple(sizes), tuple(calls), tuple(kept), [0])


@pytest.mark.parametrize("rule", [Rule(1, 200, 30), Rule(0, 0, 20)])
def test_each_part_is_taken_from_where_it_is_smaller(rule: Rule) -> None:
    """Of a compile by a rule, that has a larger object than the first: its parts that are smaller, one by one."""
    parts = [random_program(seed, functions=6, calls=12) for seed in range(40)]
    program = together(parts)
    ways = [(part.compile({}).objective, part.compile({}, rule).objective) for part in parts]
    assert any(first < other for first, other in ways)
    assert any(first > other for first, other in ways)
    found = climb(program.compile_by, 3, random.Random(1), guides=[rule])
    assert found.compiles == 3
    assert found.best.objective <= sum(map(min, ways))
    assert found.best == program.compile({decision.key: decision.decided for decision in found.best.decisions})


@pytest.mark.parametrize("budget", [2, 3, 4, 5, 6, 13, 24])
def test_a_guide_that_takes_two_compiles_counts_as_two(budget: int) -> None:
    program = together([random_program(seed, functions=6, calls=12) for seed in range(40)])
    taken: list[int] = []

    def compile_by(plan: Plan, guide: Rule | None = None) -> Outcome:
        taken.append(1 if guide is None else 2)
        return program.compile_by(plan, guide)._replace(compiles=taken[-1])

    rules = [Rule(of, at, add) for of in (0, 1) for at in (0, 100, 200) for add in (20, 30)]
    found = climb(compile_by, budget, random.Random(1), guides=rules)
    assert found.compiles == sum(taken) == budget
    assert taken.count(2) == (0 if budget < 3 else (budget // 2 + 1) // 2)
    assert [count for count, _ in found.curve] == sorted({count for count, _ in found.curve})


def test_few_compiles_are_shared_by_rules_and_flips() -> None:
    for budget in (1, 2, 3, 12, 100, 1000):
        rules = draw_guides(budget, random.Random(1))
        assert len(rules) == 6 + min(budget // 5, 10) + budget // 10
        mixed = rules[6 : 6 + min(budget // 5, 10)]
        assert mixed == [Mixed(tuple(rules[:6]), seed) for seed in range(min(budget // 5, 10))]
        assert rules == draw_guides(budget, random.Random(1))
        assert draw_guides(budget, random.Random(1), ["default", "p"]) == ["default", "p", *rules]


def test_many_flips_share_a_compile() -> None:
    """A program of many parts that have nothing to do with each other: each compile tries something in most of them."""
    parts = [random_program(seed, functions=5, calls=6) for seed in range(40)]
    program = together(parts)
    found = search(program, 40)
    alone = sum(search(part, 40).best.objective for part in parts)
    assert max(tried.others for tried in found.tried) > 30
    assert found.best.objective <= 1.01 * alone


def outcome_of(decisions: Sequence[Decision], sizes: dict[str, int]) -> Outcome:
    total = sum(sizes.values())
    return Outcome(tuple(decisions), sizes, float(total), total, float(total), {})


def wanted_of(plan: Plan) -> dict[str, int]:
    return {key[0].decode(): value for key, value in plan if value is not None}


def asked(label: str, caller: str, callee: str, decided: int, worth: float = 1.0, base: int = 0) -> Decision:
    return Decision((label.encode(), 0), caller, callee, base, decided, label.encode(), worth)


def test_a_function_that_another_flip_brings_is_no_effect() -> None:
    """To inline what is in another object brings the function that it calls, in which a flip is tried, too."""

    def compile_with(plan: Plan, _: object) -> Outcome:
        wanted = wanted_of(plan)
        outer, inner = (wanted.get(key, 0) for key in ("outer", "inner"))
        sizes = {"main": 10 + outer} | ({"brought": 50 - inner} if outer else {})
        decisions = [asked("inner", "brought", "leaf", inner), asked("outer", "main", "elsewhere", outer)]
        return outcome_of(decisions, sizes)

    found = climb(compile_with, 2, random.Random(0))
    effects = {tried.flip.calls[0].caller: (tried.others, tried.text_effect) for tried in found.tried}
    assert effects == {"brought": (1, 0), "main": (1, 1)}


def test_a_function_that_is_called_otherwise_since_a_flip_is_its_effect() -> None:
    """What calls a flip's function finds it larger, and does not inline it any more."""

    def compile_with(plan: Plan, _: object) -> Outcome:
        wanted = wanted_of(plan)
        inner, alone = wanted.get("inner", 0), wanted.get("alone", 0)
        sizes = {"leaf": 9, "main": 40 - 3 * inner, "other": 20 + alone} | ({"part": 30} if inner else {})
        decisions = [
            asked("inner", "part", "leaf", inner),
            asked("outer", "main", "part", 1 - inner, 1e-9, base=1 - inner),
            asked("alone", "other", "elsewhere", alone),
        ]
        return outcome_of(decisions, sizes)

    found = climb(compile_with, 2, random.Random(0))
    effects = {tried.flip.calls[0].caller: (tried.others, tried.text_effect) for tried in found.tried}
    assert effects == {"part": (1, 27), "other": (1, 1)}


@pytest.mark.parametrize("seed", range(4))
def test_the_last_call_of_a_function_is_alone_in_what_it_takes_away(seed: int) -> None:
    """Two functions call a third one, which goes if both calls are inlined: neither flip alone saves its bytes."""
    grown = {"a": 30, "b": 20}

    def compile_with(plan: Plan, _: object) -> Outcome:
        wanted = wanted_of(plan)
        decisions = [asked(caller, caller, "leaf", wanted.get(caller, 0)) for caller in grown]
        sizes = {one.caller: 100 + one.decided * grown[one.caller] for one in decisions} | {"leaf": 25}
        if all(one.decided for one in decisions):
            del sizes["leaf"]
        return outcome_of(decisions, sizes)

    found = climb(compile_with, 4, random.Random(seed))
    effects = {tried.flip.decided: tried.text_effect for tried in found.tried}
    both, alone = (("a", "leaf", 0, 1), ("b", "leaf", 0, 1)), {"a": 30, "b": 20}
    assert effects == {both: 25, **{(one,): alone[one[0]] for one in both}}
    assert found.best == found.first


def test_what_only_comes_along_is_an_effect() -> None:
    """To inline what another object holds brings the functions that it calls; what helps elsewhere is kept."""

    def compile_with(plan: Plan, _: object) -> Outcome:
        wanted = wanted_of(plan)
        outer, other = wanted.get("outer", 0), wanted.get("other", 0)
        decisions = [asked("outer", "a", "elsewhere", outer), asked("other", "b", "leaf", other)]
        sizes = {"a": 100 - 30 * outer, "b": 100 - 8 * other}
        if outer:
            decisions[1:1] = [asked("inner", "a", "string", 0, 1e-9), asked("more", "string", "grow", 0, 1e-9)]
            sizes |= {"string": 30, "grow": 10}
        return outcome_of(decisions, sizes)

    found = climb(compile_with, 2, random.Random(0))
    assert {tried.flip.calls[0].caller: tried.text_effect for tried in found.tried} == {"a": 10, "b": -8}
    assert climb(compile_with, 3, random.Random(0)).best.sizes == {"a": 100, "b": 92}


def test_decisions_keep_their_calls_where_others_go() -> None:
    """Of two calls of one function in another one, the first goes with a kept flip, and the second has its number."""

    def compile_with(plan: Plan, _: object) -> Outcome:
        wanted = wanted_of(plan)
        decisions = [asked("g", "f", "g", wanted.get("g", 1), base=1), asked("h", "f", "h", wanted.get("h", 1), base=1)]
        size = 109 if not decisions[0].decided else 160
        for label, where in (("x of g", 0), ("x of h", 1)):
            if decisions[where].decided:
                decisions.append(asked(label, "f", "x", wanted.get(label, 1), base=1))
                size += (50 if where else 0) if decisions[-1].decided else 9
        return outcome_of(decisions, {"f": size})

    begin: Plan = [((name.encode(), 0), int(name != "x of h")) for name in ("g", "h", "x of g", "x of h")]
    plans: list[dict[str, int]] = []

    def keep(plan: Plan, guide: object) -> Outcome:
        plans.append(wanted_of(plan))
        return compile_with(plan, guide)

    found = climb(keep, 3, random.Random(3), begin=begin)
    assert {one.tensors: one.decided for one in found.best.decisions} == {b"g": 0, b"h": 1, b"x of h": 0}
    assert plans[1:] == [{"g": 0, "x of h": 0}, {"g": 0, "x of h": 0}]


def test_guides_that_repeat_a_compile_are_not_followed() -> None:
    program = together([random_program(seed, functions=6, calls=12) for seed in range(4)])
    guides = [Rule(1, 100, limit) for limit in (0, 12, 1, 15, 12, 30)]
    followed: list[object] = []

    def compile_with(plan: Plan, guide: Guide | None) -> Outcome:
        followed.append(guide)
        return program.compile_by(plan, guide)

    def repeats(guide: Guide, outcome: Outcome) -> bool:
        return program.compile_by((), guide).decisions == outcome.decisions

    climb(compile_with, 20, random.Random(1), guides=guides, repeats=repeats)
    rules = [guide for guide in followed if guide is not None]
    outcomes = [program.compile_by((), guide).decisions for guide in [None, *rules]]
    assert len(rules) > 1
    assert len(set(outcomes)) == len(outcomes)
    followed.clear()
    climb(compile_with, 20, random.Random(1), guides=guides, most_guides=2, repeats=repeats)
    assert [guide for guide in followed if guide is not None] == rules[:2]


def test_nothing_to_decide_is_one_compile() -> None:
    found = climb(lambda *_: outcome_of((), {"main": 10}), 20, random.Random(1), guides=[Rule(1, 2, 3)])
    assert (found.compiles, found.tried, found.best) == (1, [], found.first)


def test_compiles_that_fail_are_flips_that_do_not_help() -> None:
    program = random_program(4, functions=20, calls=40)
    hated = program.compile({}).decisions[7]

    def compile_with(plan: Plan, rule: Rule | None) -> Outcome:
        outcome = program.compile_by(plan, rule)
        if any(one.key == hated.key and one.decided != hated.decided for one in outcome.decisions):
            raise CompileFailedError("it crashes")
        return outcome

    found = climb(compile_with, 60, random.Random(1))
    assert hated in found.best.decisions
    assert found.best.objective < found.first.objective
    failed = [tried for tried in found.tried if tried.effect != tried.effect]
    assert failed
    assert all(hated in tried.flip.calls or tried.others for tried in failed)


def test_weights_decide_what_is_kept() -> None:
    """Functions that weigh nothing may grow."""
    program = random_program(5, functions=20, calls=40)
    plain = program.compile({})
    only = max(plain.sizes, key=lambda name: plain.sizes[name])

    def weight(name: str) -> float:
        return float(name == only)

    def compile_with(plan: Plan, rule: Rule | None) -> Outcome:
        outcome = program.compile_by(plan, rule)
        return outcome._replace(objective=float(outcome.sizes.get(only, 0)))

    found = climb(compile_with, 60, random.Random(1), weight=weight)
    assert found.best.sizes.get(only, 0) < plain.sizes[only]
    assert found.best.text_size > plain.text_size


def test_entries_in_what_is_linked_count_and_are_no_text() -> None:
    """To inline the last call of an exported function makes the object larger, and what is linked smaller."""

    def compile_with(plan: Plan, _: object) -> Outcome:
        outer, other = (wanted_of(plan).get(key, 0) for key in ("outer", "other"))
        decisions = [asked("outer", "a", "exported", outer), asked("other", "b", "leaf", other)]
        sizes = {"a": 100 + 50 * outer, "b": 100 + 3 * other} | ({} if outer else {"exported": 30})
        entries = {"a": 40, "b": 40} | ({} if outer else {"exported": 90})
        size = sum(sizes.values()) + sum(entries.values())
        return outcome_of(decisions, sizes)._replace(objective=float(size), measured=float(size), entries=entries)

    found = climb(compile_with, 2, random.Random(0))
    effects = {tried.flip.calls[0].caller: (tried.text_effect, tried.effect) for tried in found.tried}
    assert effects == {"a": (20, -70), "b": (3, 3)}
    assert climb(compile_with, 3, random.Random(0)).best.sizes == {"a": 150, "b": 100}


@pytest.mark.parametrize("saves", [True, False])
def test_a_stub_that_no_call_needs_is_saved_where_a_guide_decides(saves: bool) -> None:
    """An exported function stays where its last call is inlined, but the stub of the call goes; or it comes."""

    def compile_with(plan: Plan, guide: object) -> Outcome:
        inlined = int(saves) if guide else wanted_of(plan).get("only", int(not saves))
        sizes = {"a": 100 + 10 * inlined, "exported": 30}
        entries = {"a": 47, "exported": 48 + 40 * (not inlined)}
        size = float(sum(sizes.values()) + sum(entries.values()))
        decisions = [asked("only", "a", "exported", inlined, base=int(not saves))]
        return outcome_of(decisions, sizes)._replace(objective=size, measured=size, entries=entries)

    views = [_View(compile_with((), guide)) for guide in (None, "other")]
    views[0].take(views[1], {"a", "exported"})
    assert views[0].bytes("exported") == (78 if saves else 118)
    found = climb(compile_with, 3, random.Random(0), guides=["other"], most_guides=1)
    assert found.best.entries["exported"] == 48
    assert found.tried == [] if saves else len(found.tried) == 1


def test_what_is_kept_has_its_entries_when_it_is_confirmed() -> None:
    """A guide makes two functions smaller; in the compile that confirms both, one has a stub more than before."""
    asked_for: list[tuple[int, int]] = []

    def compile_with(plan: Plan, guide: object) -> Outcome:
        wanted = wanted_of(plan)
        one, two = (1, 1) if guide else (wanted.get("one", 0), wanted.get("two", 0))
        asked_for.append((one, two))
        both = one and two and not guide
        decisions = [asked("one", "a", "leaf", one), asked("two", "b", "twig", two)]
        sizes = {"a": 100 - one, "b": 100 - two}
        entries = {"a": 40 + 30 * bool(both), "b": 40}
        size = float(sum(sizes.values()) + sum(entries.values()))
        return outcome_of(decisions, sizes)._replace(objective=size, measured=size, entries=entries)

    climb(compile_with, 4, random.Random(0), guides=["other"])
    assert asked_for == [(0, 0), (1, 1), (1, 1), (0, 1)]  # what made `a` larger is given up


def test_the_time_is_up() -> None:
    program = random_program(3, functions=20, calls=40)
    found = climb(program.compile_by, 60, random.Random(1), over=lambda: program.compiles[0] >= 5)
    assert found.compiles <= 6


@pytest.mark.parametrize("seed", range(20))
def test_sets_are_joined_that_have_something_in_common(seed: int) -> None:
    generator = random.Random(seed)
    names = [str(name) for name in range(40)]
    sets = [frozenset(generator.sample(names, generator.randrange(1, 4))) for _ in range(generator.randrange(20))]
    near = {name: {other for one in sets if name in one for other in one} for name in names}
    expected = set()
    for name in set().union(*sets):
        reached, before = {name}, set()
        while reached != before:
            before, reached = reached, set().union(*(near[one] for one in reached))
        expected.add(frozenset(reached))
    found = _joined(sets)
    assert {frozenset(part) for part in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("seed", range(10))
def test_functions_that_differ_go_with_all_that_they_are_inlined_into(seed: int) -> None:
    program = random_program(seed, functions=20, calls=40)
    one, other = (_View(program.compile_by((), rule)) for rule in (Rule(1, 200, 20), Rule(0, 0, 40)))
    changed = {place[0] for place, _ in one._decided.items() ^ other._decided.items()}
    in_one = one.sizes.keys() ^ other.sizes.keys()
    sets = [one.above(name) | other.above(name) for name in sorted(changed)]
    sets += [frozenset((call.caller, call.callee)) for call in (*one, *other) if call.callee in in_one]
    assert one.parts_apart_from(other) == _joined(sets)
    assert len(changed) > 1


def decisions_of(visits: str, of: str) -> list[Decision]:
    """Return decisions of the functions that are named in the order of their visits: one of ``a``, two of ``b``."""
    named = [(name, number) for name in visits for number in range(1 + (name == "b"))]
    return [Decision((b"%d" % number, 0), name, of, 0, 0, b"", 1.0) for name, number in named]


@pytest.mark.parametrize(
    ("mine", "others", "names", "expected"),
    [
        ("abc", "abc", "b", "aBc"),
        ("abc", "abc", "", "abc"),
        ("abc", "abc", "abc", "ABC"),
        # What one of them does not visit at all.
        ("abcd", "ad", "a", "Abcd"),
        ("ad", "abcd", "bc", "aBCd"),
        ("bcd", "d", "d", "bcD"),
        ("abcd", "ad", "abcd", "AD"),
        # A cycle of calls: b and c are visited again, each in its place.
        ("abcbcd", "abcbcd", "b", "aBcBcd"),
        ("abcbcd", "abcd", "a", "Abcbcd"),
        ("abcbcd", "abcd", "b", "aBccd"),
        ("abcd", "abcbcd", "b", "aBcBd"),
    ],
)
def test_decisions_of_two_compiles_are_in_the_order_of_both(mine: str, others: str, names: str, expected: str) -> None:
    merged = _merged(decisions_of(mine, "mine"), decisions_of(others, "other"), set(names))
    ofs = {name: decisions_of(name.lower(), "other" if name.isupper() else "mine") for name in expected}
    assert merged == [decision for name in expected for decision in ofs[name]]


def order_of_flips(worth: dict[str, float], weight: dict[str, float]) -> list[str]:
    """Return the functions into which calls are flipped, in order: one in a compile, since all are inlined in one."""

    def compile_with(plan: Plan, _: object) -> Outcome:
        wanted = wanted_of(plan)
        flips = [asked(name, name, f"of {name}", wanted.get(name, 0), worth[name]) for name in worth]
        calls = [asked(f"main {name}", "main", name, 1, 1e-9, base=1) for name in worth]
        return outcome_of([*flips, *calls], {"main": 100 + sum(wanted.values())} | dict.fromkeys(worth, 10))

    found = climb(compile_with, 1 + len(worth), random.Random(3), weight=lambda name: weight.get(name, 1.0))
    assert all(tried.others == 0 for tried in found.tried)
    return [tried.flip.calls[0].caller for tried in found.tried]


def test_what_is_expected_to_save_most_is_tried_first() -> None:
    worth = {"a": 0.5, "b": 3.0, "c": 0.1, "d": 2.0, "e": 1.0}
    assert order_of_flips(worth, {}) == ["b", "d", "e", "a", "c"]


def test_what_counts_little_is_tried_late() -> None:
    """What is saved counts as the bytes of the function do, and of those that it is inlined into, in the mean."""
    worth = {"a": 3.0, "b": 2.9, "c": 2.8}
    assert order_of_flips(worth, {"a": 0.1, "c": 0.9}) == ["b", "c", "a"]


def test_what_was_tried_in_vain_comes_late_and_what_helped_comes_first() -> None:
    """Of calls that are expected to save alike, the order is that of what they did at an earlier state."""
    view = [asked(name, name, f"of {name}", 0) for name in ("new", "vain", "lost")]
    first = outcome_of(view, {"new": 10, "vain": 10, "lost": 10})
    climbing = _Climb(lambda *_: first, 9, random.Random(0), lambda _: 1.0, lambda: False, Found(first, first, 1))
    effects = {"vain": 0.0, "lost": -9.0}
    climbing._effects = {((name, f"of {name}", 0, 1),): effect for name, effect in effects.items()}
    assert [flip.calls[0].caller for flip in climbing._choose((one,) for one in view)] == ["lost", "new", "vain"]


def test_what_an_earlier_search_tried_in_vain_comes_late() -> None:
    """Bytes that count in part may have counted otherwise then, so that it is tried again; but after what is new."""
    calls = [asked(name, name, f"of {name}", 0) for name in ("a", "b", "c")]
    first = outcome_of(calls, {"a": 10, "b": 10, "c": 10})
    climbing = _Climb(lambda *_: first, 9, random.Random(0), lambda _: 0.5, lambda: False, Found(first, first, 1))
    climbing.skip([[("a", "of a", 0, 1)], [("c", "of c", 0, 1)], [("gone", "of c", 0, 1)]])
    assert next(iter(climbing._choose((one,) for one in calls))).calls[0].caller == "b"
