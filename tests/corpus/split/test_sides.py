"""Dividing rows so that what is equal is on one side, whatever else there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.corpus.split.sides import (
    SIDES,
    FarSide,
    assign_sides,
    check_fractions,
    expected_leakage,
    far_sides,
    parse_fractions,
)
from mlgo_corpus.errors import UsageError

DIGESTS = st.lists(st.integers(0, 2**64 - 1), max_size=60).map(lambda numbers: np.array(numbers, np.uint64))
SEEDS = st.integers(-(2**70), 2**70)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[float, float, float]:
    first, second = sorted(draw(st.tuples(st.integers(0, 1000), st.integers(0, 1000))))
    return first / 1000, (second - first) / 1000, (1000 - second) / 1000


@given(digests=DIGESTS, fractions=divisions(), seed=SEEDS, choice=st.randoms(use_true_random=False))
def test_a_row_s_side_is_its_own_affair(
    digests: np.ndarray, fractions: tuple[float, float, float], seed: int, choice: object
) -> None:
    sides = assign_sides(digests, fractions, seed)
    assert sides.shape == digests.shape
    known = dict(zip(digests.tolist(), sides.tolist(), strict=True))
    assert [known[digest] for digest in digests.tolist()] == sides.tolist()
    order = list(range(len(digests)))
    choice.shuffle(order)  # type: ignore[attr-defined]
    some = order[: len(order) // 2]
    assert assign_sides(digests[some], fractions, seed).tolist() == sides[some].tolist()


@given(digests=DIGESTS, fractions=divisions(), seed=SEEDS)
def test_a_side_of_nothing_gets_nothing(digests: np.ndarray, fractions: tuple[float, float, float], seed: int) -> None:
    sides = set(assign_sides(digests, fractions, seed).tolist())
    assert sides <= {number for number, fraction in enumerate(fractions) if fraction > 0}


def test_a_side_of_nothing_gets_nothing_where_a_sum_is_rounded() -> None:
    digests = np.random.default_rng(1).integers(0, 2**64, 2_000_000, np.uint64, endpoint=False)
    assert set(assign_sides(digests, (0.333333, 0.666666, 0.0), 0).tolist()) == {0, 1}


@pytest.mark.parametrize("digests", ["random", "counted", "high"])
@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.0, 0.3, 0.7)])
def test_fractions_are_kept(digests: str, fractions: tuple[float, float, float]) -> None:
    """Also where the digests are no random numbers."""
    count = 100_000
    numbers = {
        "random": np.random.default_rng(3).integers(0, 2**64, count, np.uint64, endpoint=False),
        "counted": np.arange(count, dtype=np.uint64),
        "high": np.arange(count, dtype=np.uint64) << np.uint64(40),
    }[digests]
    shares = np.bincount(assign_sides(numbers, fractions, 7), minlength=3) / count
    np.testing.assert_allclose(shares, fractions, atol=0.008)


@pytest.mark.parametrize("seed", [-1, 1, 2**64 - 1, 12345])
def test_seeds_divide_independently(seed: int) -> None:
    digests = np.arange(20_000, dtype=np.uint64)
    first = assign_sides(digests, (0.5, 0.0, 0.5), 0)
    other = assign_sides(digests, (0.5, 0.0, 0.5), seed)
    assert abs((first == other).mean() - 0.5) < 0.02


def test_sides_stay_what_they_are() -> None:
    """Tables made by one version and by the next are divided in the same way."""
    sides = assign_sides(np.arange(24, dtype=np.uint64), (0.5, 0.25, 0.25), 0)
    assert "".join(SIDES[side][1] for side in sides.tolist()) == STAYS


STAYS = "rerrrrreeareaaeaeeeaarra"


@pytest.mark.parametrize(
    ("text", "fractions"),
    [("0.8,0.1,0.1", (0.8, 0.1, 0.1)), ("1,0,0", (1.0, 0.0, 0.0)), (" .5, .25 ,.25", (0.5, 0.25, 0.25))],
)
def test_fractions_are_read(text: str, fractions: tuple[float, float, float]) -> None:
    assert parse_fractions(text) == fractions


@pytest.mark.parametrize(
    "text", ["", "1", "0.5,0.5", "0.5,0.5,0.5", "-0.1,0.6,0.5", "nan,0.5,0.5", "inf,0,0", "a,b,c", "0.7,0.1,0.1,0.1"]
)
def test_what_is_no_division_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^fractions.*: expected three numbers whose sum is 1"):
        parse_fractions(text)


def test_numbers_are_checked_as_texts_are() -> None:
    assert check_fractions((1, 0, 0), "") == (1.0, 0.0, 0.0)
    assert check_fractions("0.8,0.1,0.1", "0,.,8") == (0.8, 0.1, 0.1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^fractions 0\.8,0\.1: expected three numbers"):
        check_fractions("0.8,0.1", "0,.,8")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^fractions 1,1,1: expected three numbers"):
        check_fractions((1, 1, 1), "1,1,1")


@pytest.mark.parametrize("train", [0.0, 0.5, 0.8, 1.0])
def test_leakage_is_what_a_random_division_leaks(train: float) -> None:
    rng = np.random.default_rng(11)
    digests = np.repeat(np.arange(400, dtype=np.uint64), rng.geometric(0.4, 400))
    fractions = (train, 0.0, 1 - train)
    expected = expected_leakage(digests, fractions)
    leaked = tested = 0
    for _ in range(400):
        in_train = rng.random(len(digests)) < train
        # Each row in turn is the one that is tested; the others are divided.
        others = np.bincount(digests.astype(np.int64), weights=in_train)[digests.astype(np.int64)] - in_train
        leaked += int((others > 0).sum())
        tested += len(digests)
    assert expected == pytest.approx(leaked / tested, abs=0.01)


def test_leakage_of_few() -> None:
    none = np.zeros(0, np.uint64)
    assert expected_leakage(none, (0.8, 0.1, 0.1)) == 0.0
    assert assign_sides(none, (0.8, 0.1, 0.1), 0).tolist() == []
    assert expected_leakage(np.arange(5, dtype=np.uint64), (0.8, 0.1, 0.1)) == 0.0
    assert expected_leakage(np.array([1, 1], np.uint64), (0.8, 0.1, 0.1)) == pytest.approx(0.8)


def test_sides_that_are_far_from_what_was_asked_for() -> None:
    wanted = (0.8, 0.1, 0.1)
    assert far_sides([80, 10, 10], wanted) == ()
    assert far_sides([84, 6, 10], wanted) == ()
    assert far_sides([996, 3, 1], wanted) == (
        FarSide("train", 0.996, 0.8),
        FarSide("validation", 0.003, 0.1),
        FarSide("test", 0.001, 0.1),
    )
    assert far_sides([96, 2, 2], (0.92, 0.04, 0.04)) == ()
    assert [one.side for one in far_sides([97, 1, 2], (0.92, 0.04, 0.04))] == ["validation"]
    assert [one.side for one in far_sides([93, 2, 5], wanted, hardly=True)] == ["validation"]
    assert [one.side for one in far_sides([0, 0, 0], wanted)] == ["train", "validation", "test"]
    assert far_sides([5, 0, 0], (1, 0, 0)) == ()
