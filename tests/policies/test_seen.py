"""What a policy was trained on, kept in bounded space, and found again."""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.policies.seen import Seen, own_bodies

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


def test_bitcode_that_could_not_be_read_is_known_by_its_digest() -> None:
    digests = [sha256(bytes([number])).hexdigest() for number in range(3)]
    seen = through_json(Seen.of([], [], 8, digests[:1]).joined(Seen.of([], [], 8, digests[1:2])))
    counts = np.array([10], np.int32)
    assert [seen.share(HASHES[:1], counts, digest) for digest in (*digests, None)] == [1, 1, 0, 0]
    assert "bitcode" not in Seen.of([], [], 8).as_json()
    many = [f"{number:012x}" for number in range(1 << 16)]
    halves = Seen.of([], [], 8, many[::2]).joined(Seen.of([], [], 8, many[1::2]))
    for known in (Seen.of([], [], 8, many), halves, Seen.of([], [], 8, [*many, f"{1 << 16:012x}"])):
        assert through_json(known).bitcode.tolist() == list(range(1 << 16))
    assert len(json.dumps(known.as_json())) < 600_000  # `policy.json` may have a megabyte


def test_a_body_of_several_projects_tells_of_none() -> None:
    library = set(range(40))
    one, other, small = library | set(range(100, 160)), library | set(range(200, 260)), library | set(range(300, 330))
    own = (one | other) - library
    assert own_bodies([one, other]) == own
    assert own_bodies([one, other, small]) == own | set(range(300, 330))
    # The same project twice, its next version, and one corpus of all: still what the project alone has.
    version = one - {100, 101, 102} | {170, 171}
    assert own_bodies([one, set(one)]) == one
    assert own_bodies([one, other, version, set(one)]) == own | {170, 171}
    assert own_bodies([one, one | other, other]) == one | other
    assert own_bodies([one, set()]) == one
    assert own_bodies([]) == set()


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
