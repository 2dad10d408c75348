"""What flips are expected to save, by their features."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.runs.search.worth import FEATURES, MODEL, expected_savings

SPECS = tuple(TensorSpec(name, port=number) for number, name in enumerate(("unknown", *reversed(FEATURES))))
HEADER = LogHeader(SPECS, None, None)


def observation(**numbers: int) -> bytes:
    """Return an observation, in the order of the header, in which all but some features are 1."""
    return np.array([numbers.get(spec.name, 1) for spec in SPECS], "<i8").tobytes()


def walked(inputs: list[float]) -> float:
    """Return the trees' answer, one node after another."""
    with np.load(MODEL) as arrays:
        total = float(arrays["bias"][0])
        for root in arrays["roots"].tolist():
            node = root
            while node >= 0:
                right = not inputs[arrays["feature"][node]] <= arrays["threshold"][node]
                node = int(arrays["children"][node][int(right)])
            total += float(arrays["leaves"][~node])
    return math.exp(total)


def test_features_are_read_by_name() -> None:
    """Each number is that of the trees for the observation's features, whatever their order, and for its decision."""
    generator = np.random.default_rng(5)
    rows = [dict(zip(FEATURES, generator.integers(-50, 300, len(FEATURES)).tolist(), strict=True)) for _ in range(40)]
    decided = generator.integers(0, 2, len(rows)).tolist()
    found = expected_savings(HEADER, [observation(**row, unknown=7) for row in rows], decided)
    expected = [walked([*map(float, row.values()), float(one)]) for row, one in zip(rows, decided, strict=True)]
    assert found == pytest.approx(expected, rel=1e-12)
    assert len(set(found)) > 20


def test_nothing_is_expected_without_the_features() -> None:
    """A compiler that does not send one of them has its flips in any order."""
    fewer = replace(HEADER, features=SPECS[:-1])
    tensors = [observation()[:-8]] * 3
    assert expected_savings(fewer, tensors, [0, 1, 0]) == [1.0, 1.0, 1.0]
    vectors = replace(HEADER, features=(*SPECS[:-1], replace(SPECS[-1], shape=(2,))))
    assert expected_savings(vectors, [observation() + bytes(8)], [1]) == [1.0]
    assert expected_savings(HEADER, [], []) == []


def test_what_costs_nothing_is_worth_little() -> None:
    """As is known of flips: a small function is best inlined, and a large one the more so the fewer calls it has."""
    usual = {"callsite_height": 2, "caller_basic_block_count": 8, "last_call_to_static_bonus": 0}
    small = {**usual, "cost_estimate": -30, "callee_users": 3, "callee_conditionally_executed_blocks": 0}
    large = {**usual, "cost_estimate": 400, "callee_users": 5, "unsimplified_common_instructions": 80}
    large |= {"callee_conditionally_executed_blocks": 12, "simplified_instructions": 10, "inlining_default": 0}
    only = {**large, "callee_users": 1, "last_call_to_static_bonus": 1}
    out_small, out_large, in_large, in_only = expected_savings(
        HEADER, [observation(**one) for one in (small, large, large, only)], [1, 1, 0, 0]
    )
    assert out_small < 0.5 < out_large
    assert in_large < in_only


def test_every_saving_is_a_number_above_0() -> None:
    numbers = (-(2**63), 0, 2**63 - 1)
    extremes = [dict.fromkeys(FEATURES, 0) | {"cost_estimate": a, "callee_users": b} for a in numbers for b in numbers]
    found = expected_savings(HEADER, [observation(**one) for one in extremes], [0] * len(extremes))
    assert np.isfinite(found).all()
    assert min(found) > 0


def test_the_model_is_small() -> None:
    assert MODEL.stat().st_size < 30_000
