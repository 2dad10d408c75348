"""What a policy was trained on, kept in bounded space, and found again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.policies.seen import Seen

GENERATOR = np.random.default_rng(0)
HASHES = GENERATOR.integers(1 << 64, size=100_000, dtype=np.uint64)
MODULES = [HASHES[300:303], HASHES[400:401]]


def through_json(seen: Seen) -> Seen:
    found = Seen.of_training({"seen": json.loads(json.dumps(seen.as_json()))})
    assert found is not None
    return found


def test_a_share_is_that_of_instructions() -> None:
    seen = through_json(Seen.of(HASHES[:100].tolist(), MODULES, 8))
    counts = np.array([10, 30, 7, 60], np.int32)
    hashes = np.array([HASHES[0], HASHES[1], HASHES[2], HASHES[200]])
    assert seen.share(hashes, counts) == pytest.approx(0.4)
    assert seen.share(hashes[3:], counts[3:]) == 0
    assert seen.share(hashes[:0], counts[:0]) == 0


def test_a_module_is_known_by_all_its_bodies_in_any_order() -> None:
    seen = through_json(Seen.of(HASHES[:100].tolist(), MODULES, 8))
    counts = np.array([10, 3, 60], np.int32)
    assert seen.share(HASHES[[302, 300, 301]], counts) == 1
    assert seen.share(HASHES[[302, 300, 303]], counts) == 0
    assert seen.share(HASHES[300:302], counts[:2]) == 0
    assert seen.share(HASHES[400:401], counts[:1]) == 1
    assert seen.share(HASHES[400:401], np.array([7])) == 0  # one without a body that counts is known by nothing


def test_of_very_much_a_part_is_kept_that_tells_as_much() -> None:
    seen = Seen.of(HASHES.tolist(), HASHES[:5000, None], 8)
    assert len(json.dumps(seen.as_json())) < 45_000
    ones = np.ones(2000, np.int32) * 9
    other = GENERATOR.integers(1 << 64, size=1000, dtype=np.uint64)
    half = np.concatenate([HASHES[:1000], other])
    assert through_json(seen).share(half, ones) == pytest.approx(0.5, abs=0.1)


def test_a_policy_that_says_nothing_has_seen_nothing_known() -> None:
    assert Seen.of_training({"by": "hand"}) is None


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"below": 1, "least_instructions": 8, "bodies": "?"},
        {"below": 1, "least_instructions": 8, "bodies": "YWI="},
        {"below": -1, "least_instructions": 8},
        {"below": 1, "least_instructions": True},
        {"below": 1, "least_instructions": 8, "bodies": 3},
    ],
)
def test_nonsense_is_refused(value: object) -> None:
    with pytest.raises(FormatError, match="training: seen"):
        Seen.of_training({"seen": value})
