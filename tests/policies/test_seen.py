"""What a policy was trained on, kept in bounded space, and found again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.policies.seen import Seen

GENERATOR = np.random.default_rng(0)
HASHES = GENERATOR.integers(1 << 64, size=100_000, dtype=np.uint64)
DIGESTS = ["ab" * 32, "0123456789abcdef" * 4]


def through_json(seen: Seen) -> Seen:
    found = Seen.of_training({"seen": json.loads(json.dumps(seen.as_json()))})
    assert found is not None
    return found


def test_a_share_is_that_of_instructions() -> None:
    seen = through_json(Seen.of(HASHES[:100].tolist(), DIGESTS, 8))
    counts = np.array([10, 30, 7, 60], np.int32)
    hashes = np.array([HASHES[0], HASHES[1], HASHES[2], HASHES[200]])
    assert seen.share(hashes, counts, None) == pytest.approx(0.4)
    assert seen.share(hashes[3:], counts[3:], "ff" * 32) == 0
    assert seen.share(hashes[:0], counts[:0], None) == 0
    assert [seen.share(hashes[3:], counts[3:], digest) for digest in DIGESTS] == [1, 1]


def test_of_very_much_a_part_is_kept_that_tells_as_much() -> None:
    seen = Seen.of(HASHES.tolist(), [f"{number:064x}" for number in range(5000)], 8)
    assert len(json.dumps(seen.as_json())) < 45_000
    ones = np.ones(2000, np.int32) * 9
    other = GENERATOR.integers(1 << 64, size=1000, dtype=np.uint64)
    half = np.concatenate([HASHES[:1000], other])
    assert through_json(seen).share(half, ones, None) == pytest.approx(0.5, abs=0.1)


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
