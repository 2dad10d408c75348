"""Groups of modules that share bodies, against plain union-find, and what is promised of dividing them."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.corpus.split.components import (
    connected_components,
    divide,
    find_limit,
    find_sharing,
    largest_share,
    measure_leakage,
)

# Few modules and fewer bodies, so that they meet; a body's hash may have all 64 bits.
HASHES = st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 1])
CORPORA = st.lists(st.lists(HASHES, max_size=5), min_size=1, max_size=12)
FRACTIONS = st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (1.0, 0.0, 0.0), (0.34, 0.33, 0.33)])


def arrays(corpus: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    modules = np.array([number for number, bodies in enumerate(corpus) for _ in bodies], np.int32)
    return modules, np.array([body for bodies in corpus for body in bodies], np.uint64)


def plain_groups(corpus: list[list[int]], at_most: int | None = None) -> set[frozenset[int]]:
    """Merge groups one by one, until none has a body of another."""
    spread = defaultdict(set)
    for number, bodies in enumerate(corpus):
        for body in bodies:
            spread[body].add(number)
    groups = [{number} for number in range(len(corpus))]
    for members in spread.values():
        if at_most is None or len(members) <= at_most:
            touched = [group for group in groups if group & members]
            groups = [group for group in groups if not group & members] + [set().union(*touched)]
    return {frozenset(group) for group in groups}


def grouped(labels: np.ndarray) -> set[frozenset[int]]:
    groups = defaultdict(set)
    for number, label in enumerate(labels.tolist()):
        groups[label].add(number)
    return {frozenset(group) for group in groups.values()}


@given(CORPORA, st.none() | st.integers(1, 12))
def test_groups_are_those_of_plain_merging(corpus: list[list[int]], at_most: int | None) -> None:
    labels = connected_components(len(corpus), *find_sharing(*arrays(corpus)).edges(at_most))
    assert grouped(labels) == plain_groups(corpus, at_most)
    assert all(label == min(group) for group in grouped(labels) for label in labels[list(group)])


@given(CORPORA)
def test_sharing_counts_modules_and_copies(corpus: list[list[int]]) -> None:
    sharing = find_sharing(*arrays(corpus))
    wanted = {}
    for number, bodies in enumerate(corpus):
        for body in bodies:
            wanted.setdefault(body, {}).setdefault(number, 0)
            wanted[body][number] += 1
    found = defaultdict(dict)
    for module, body, copies in zip(
        sharing.modules.tolist(), sharing.body.tolist(), sharing.copies.tolist(), strict=True
    ):
        found[body][module] = copies
    assert sorted(found.values(), key=repr) == sorted((one for one in wanted.values() if len(one) > 1), key=repr)
    assert sharing.spread.tolist() == [len(found[body]) for body in range(len(sharing.spread))]
    assert sharing.bodies == len(wanted)


@given(st.integers(1, 60), st.data())
def test_long_chains_are_one_group(count: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(count)))
    left, right = (np.array(side, np.int64) for side in zip(*pairwise(order), strict=True)) if count > 1 else ([], [])
    assert not connected_components(count, np.asarray(left, np.int64), np.asarray(right, np.int64)).any()


@given(CORPORA, FRACTIONS, st.integers(0, 5))
def test_no_group_is_divided(corpus: list[list[int]], fractions: tuple[float, ...], seed: int) -> None:
    sharing = find_sharing(*arrays(corpus))
    labels = connected_components(len(corpus), *sharing.edges())
    sides = divide(labels, fractions, seed)
    for group in plain_groups(corpus):
        assert len({int(sides[module]) for module in group}) == 1
    assert all(fractions[side] > 0 for side in sides.tolist())
    assert np.array_equal(sides, divide(labels, fractions, seed))
    counts = np.array([len(bodies) for bodies in corpus])
    leakage = measure_leakage(sharing, counts, sides)
    assert (leakage.modules, leakage.functions) == (0.0, 0.0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 34, 999])
def test_single_modules_get_their_fractions_exactly(count: int) -> None:
    sides = divide(np.arange(count), (0.8, 0.1, 0.1), 0)
    counts = np.bincount(sides, minlength=3)
    assert counts.sum() == count
    assert all(abs(found - wanted * count) < 1 for found, wanted in zip(counts, (0.8, 0.1, 0.1), strict=True))


def test_seeds_divide_otherwise() -> None:
    drawn = {divide(np.arange(50), (0.8, 0.1, 0.1), seed).tobytes() for seed in range(10)}
    assert len(drawn) == 10


WEIGHTS = st.lists(st.integers(0, 40), min_size=1, max_size=80)


@given(WEIGHTS, FRACTIONS, st.integers(0, 3))
def test_no_side_is_further_off_than_the_heaviest_node(
    weights: list[int], fractions: tuple[float, ...], seed: int
) -> None:
    sides = divide(np.arange(len(weights)), fractions, seed, np.array(weights))
    own = np.bincount(sides, weights, minlength=3)
    for found, wanted in zip(own.tolist(), fractions, strict=True):
        assert found <= wanted * sum(weights) + max(weights) + 1e-9
        assert wanted or not found
    assert np.array_equal(sides, divide(np.arange(len(weights)), fractions, seed, np.array(weights)))


def test_weights_decide_and_light_nodes_are_on_every_side() -> None:
    weights = np.random.default_rng(1).lognormal(2.5, 1.3, 400)
    sides = divide(np.arange(400), (0.8, 0.1, 0.1), 0, weights)
    shares = np.bincount(sides, weights) / weights.sum()
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.002)
    for side in (1, 2):
        assert weights[sides == side].max() < 0.25 * 0.1 * weights.sum()
        assert np.median(weights[sides == side]) == pytest.approx(np.median(weights), rel=0.6)


def test_large_groups_go_where_most_is_lacking() -> None:
    labels = np.array([0] * 70 + [70] * 9 + [79] * 9 + list(range(88, 100)))
    sides = divide(labels, (0.8, 0.1, 0.1), 0)
    assert set(sides[:70]) == {0}
    assert np.bincount(sides).tolist() == [80, 10, 10]


@given(CORPORA, FRACTIONS, st.integers(0, 3))
def test_leakage_is_what_a_plain_count_finds(corpus: list[list[int]], fractions: tuple[float, ...], seed: int) -> None:
    sides = divide(np.arange(len(corpus)), fractions, seed)
    train = {body for bodies, side in zip(corpus, sides, strict=True) if side == 0 for body in bodies}
    held = [bodies for bodies, side in zip(corpus, sides, strict=True) if side != 0]
    functions = [body for bodies in held for body in bodies]
    leakage = measure_leakage(find_sharing(*arrays(corpus)), np.array([len(bodies) for bodies in corpus]), sides)
    assert leakage.modules == (sum(bool(train & set(bodies)) for bodies in held) / len(held) if held else 0.0)
    assert leakage.functions == (sum(body in train for body in functions) / len(functions) if functions else 0.0)


@given(CORPORA, st.sampled_from([0.2, 0.34, 0.5, 0.9, 1.0]))
def test_the_limit_is_the_highest_that_keeps_groups_small(corpus: list[list[int]], most: float) -> None:
    sharing = find_sharing(*arrays(corpus))

    def largest(at_most: int | None) -> float:
        return max(map(len, plain_groups(corpus, at_most))) / len(corpus)

    limit = find_limit(len(corpus), sharing, most)
    most = max(most, 1 / len(corpus))
    if limit is None:
        assert largest(None) <= most
    else:
        assert largest(limit) <= most
        higher = [spread for spread in sharing.spread.tolist() if spread > limit]
        assert higher
        assert largest(min(higher)) > most
    assert largest_share(connected_components(len(corpus), *sharing.edges(limit))) == largest(limit)
