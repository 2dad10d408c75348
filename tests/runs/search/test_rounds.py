"""What modules know of each other in a search for small products: what a byte counts, and what a round leaves."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.dataset.flips import FlipRow
from mlgo_corpus.runs.search.climb import climb
from mlgo_corpus.runs.search.rounds import SoFar, Unweighed, Weights, digests_of, round_budgets, write_counts
from tests.runs.search.toy import random_program

# The functions that objects hold, and the class of each: f is like k, of which b.o holds no body that is like others.
HELD: dict[str, dict[str, int | None]] = {
    "a.o": {"f": 1, "g": 2, "h": None, "k": 1},
    "b.o": {"f": None, "g": 2, "l": 4},
    "c.o": {"f": 1, "m": 4, "n": 4},
}


def count(others: int, mine: int, share: float) -> float:
    return share / (others + mine) if others else 1 / mine


@pytest.mark.parametrize("folding", [False, True])
@pytest.mark.parametrize(("kept", "share"), [(False, 1.0), (True, 0.3)])
def test_a_function_counts_less_the_more_others_hold_it_or_one_like_it(
    tmp_path: Path, kept: bool, share: float, folding: bool
) -> None:
    counts = tmp_path / "counts.npy"
    write_counts(counts, [digests_of(functions, "p") for functions in HELD.values()])
    pairs = [(name, name if alike is None else alike) for held in HELD.values() for name, alike in held.items()]
    for module, functions in {**HELD, "new.o": dict[str, int | None]()}.items():
        weights = Weights(counts, digests_of(functions, "p"), "p", kept=kept, folded=folding)
        own = [alike or name for name, alike in functions.items()]
        for name in "fghiklmn":
            mine = own.count(functions[name] or name) if name in functions else 0
            copies = max((sum(other == alike for _, other in pairs) for one, alike in pairs if one == name), default=0)
            folded = count(copies - mine, max(1, mine), share)
            merged = count(sum(name in held for other, held in HELD.items() if other != module), 1, share)
            assert weights(name) == pytest.approx((merged + folded) / 2 if folding else merged), (module, name)
        of_another = Weights(counts, digests_of(functions, "q"), "q", kept=kept, folded=folding)
        assert {of_another(name) for name in "ghi"} == {1.0}
    assert Weights(None, np.empty((2, 0), np.uint64), "p", kept=kept)("f") == 1.0


@given(st.integers(1, 10_000))
def test_rounds_share_the_compiles(budget: int) -> None:
    rounds = round_budgets(budget)
    assert sum(rounds) == budget
    assert min(rounds) >= min(budget, 8)
    assert len(rounds) == (1 if budget < 16 else 2 if budget < 32 else 3)
    assert round_budgets(budget, linked=False) == ((budget,) if budget < 48 else rounds)


NAMES = st.text(st.characters(codec=None), max_size=5)


@given(st.data())
def test_what_a_round_left_is_read_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    row = st.builds(
        FlipRow, *[st.integers(0, 9)] * 2, NAMES, NAMES, *[st.integers(0, 9)] * 3,
        *[st.floats() | st.just(float("nan"))] * 2, st.booleans(), st.binary(max_size=20),
    )  # fmt: skip
    places = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 9), st.integers(0, 1)), max_size=3).map(tuple)
    so_far = SoFar(
        tuple(data.draw(st.lists(st.tuples(st.tuples(st.binary(), st.integers(0, 9)), st.integers(0, 1))))),
        tuple(data.draw(st.lists(st.tuples(row, places), max_size=3))),
        tuple(data.draw(st.lists(st.tuples(st.integers(0, 99), st.floats(allow_nan=False)), max_size=3))),
        *data.draw(st.tuples(st.integers(0, 99), st.integers(0, 99), st.floats(0, 99), st.floats(0, 99))),
    )
    path = tmp_path_factory.getbasetemp() / "so-far.json"
    so_far.write(path)
    assert repr(SoFar.read(path)) == repr(so_far)  # NaN is not equal to itself


@given(st.data())
def test_an_outcome_is_read_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 20))
    call = st.tuples(NAMES, NAMES, *[st.integers(0, 1)] * 2, st.binary(min_size=size, max_size=size))
    calls = data.draw(st.lists(call, max_size=5))
    sizes = data.draw(st.dictionaries(NAMES, st.integers(0), max_size=5))
    mergeable = data.draw(st.dictionaries(NAMES, st.none() | st.integers(0, 9), max_size=5))
    named, tensors = tuple(one[:4] for one in calls), tuple(one[4] for one in calls)
    entries = data.draw(st.dictionaries(NAMES, st.integers(0), max_size=5))
    outcome = Unweighed(named, tensors, sizes, data.draw(st.integers(0)), mergeable, entries)
    path = tmp_path_factory.getbasetemp() / "outcome"
    outcome.write(path)
    read = Unweighed.read(path)
    assert read == outcome
    assert list(read.sizes) == list(sizes)  # searches depend on the order


def test_a_round_begins_with_what_was_found() -> None:
    for seed in range(10):
        program = random_program(seed, functions=20, calls=40)
        first = climb(program.compile_by, 20, random.Random(seed)).best
        begin = [(one.key, one.decided) for one in first.decisions]
        found = climb(program.compile_by, 20, random.Random(seed), begin=begin)
        assert found.first == first
        assert found.best.objective <= first.objective
        assert any(one.decided != one.base for one in found.best.decisions) or first.decisions == found.best.decisions
