"""Equal and nearly equal modules, against comparing every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.corpus.duplicates import Duplicate, find_equal, find_near, find_twins
from mlgo_corpus.corpus.functions import FunctionColumns

MODULES = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=6), min_size=1, max_size=9)


def columns(modules: list[list[tuple[int, int]]]) -> FunctionColumns:
    rows = [(number, body, size) for number, functions in enumerate(modules) for body, size in functions]
    made = np.array(rows, np.int64).reshape(-1, 3)
    return FunctionColumns(made[:, 0].astype(np.int32), made[:, 1].astype(np.uint64), made[:, 2].astype(np.int32))


def plain_near(modules: list[list[tuple[int, int]]], threshold: float, least: int) -> dict[int, float]:
    """Compare each module, from the largest on, with all that are kept; give the dropped ones' shares."""
    totals = [sum(size for _, size in functions) for functions in modules]
    counted = [[one for one in functions if one[1] >= least] for functions in modules]
    kept: list[int] = []
    dropped = {}
    for module in sorted(range(len(modules)), key=lambda number: (-totals[number], number)):
        if not totals[module]:
            continue
        shares = [
            sum(size for body, size in counted[module] if body in {other for other, _ in counted[one]}) / totals[module]
            for one in kept
        ]
        if max(shares, default=0.0) >= threshold * (1 - 1e-12):
            dropped[module] = max(shares)
        else:
            kept.append(module)
    return dropped


@given(MODULES, st.sampled_from([0.01, 0.3, 0.5, 0.75, 0.9, 1.0]), st.sampled_from([0, 5, 30]))
def test_near_duplicates_are_those_of_comparing_all_pairs(
    modules: list[list[tuple[int, int]]], threshold: float, least: int
) -> None:
    names = [f"m{number}" for number in range(len(modules))]
    found = find_near(names, columns(modules), threshold, least)
    wanted = plain_near(modules, threshold, least)
    assert [one.module for one in found] == [names[number] for number in sorted(wanted)]
    for one in found:
        assert one.share == pytest.approx(wanted[names.index(one.module)])
        assert one.kept not in {other.module for other in found}
        assert not one.exact


def test_a_part_of_a_larger_module_is_dropped_and_not_the_larger_one() -> None:
    modules = [[(1, 10), (2, 10)], [(1, 10), (2, 10), (3, 80)], [(1, 10), (4, 10)]]
    [one] = find_near(["part", "whole", "half"], columns(modules), 0.9)
    assert one == Duplicate("part", "whole", 1.0, exact=False)
    assert {one.module for one in find_near(["part", "whole", "half"], columns(modules), 0.5)} == {"part", "half"}


def test_a_module_without_functions_is_kept() -> None:
    assert find_near(["a", "b"], columns([[], []]), 0.5) == []
    assert find_near(["a", "b"], columns([[], [(1, 3)]]), 0.5) == []


def test_the_first_of_equal_modules_is_kept_and_unknown_content_equals_nothing() -> None:
    contents = [("a", "x"), ("b", None), ("c", "x"), ("d", None), ("e", "y"), ("f", "x")]
    assert find_equal(contents) == [
        Duplicate("c", "a", 1.0, exact=True),
        Duplicate("f", "a", 1.0, exact=True),
    ]


def test_twins_have_one_source_and_the_same_functions_in_order() -> None:
    modules = [[(1, 2), (2, 9)], [(1, 2), (2, 9)], [(2, 9), (1, 2)], [(1, 2), (2, 9)], [], [], [(1, 2), (2, 9)]]
    sources = ["a.c", "b.c", "a.c", "a.c", "c.c", "c.c", None]
    names = list("stuvwxy")
    assert find_twins(names, sources, columns(modules)) == [Duplicate("v", "s", 1.0, exact=False)]
    rest = columns(modules).without(np.array([name == "v" for name in names]))
    assert sorted(set(rest.modules.tolist())) == [0, 1, 2, 6]
