"""Quantiles in passes: bit for bit those of numpy.quantile on all numbers at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlgo_corpus.files import quantiles as module
from mlgo_corpus.files.quantiles import Quantiles, Tally, quantiles

pytestmark = pytest.mark.whole

Numbers = np.ndarray[Any, Any]


def batches_of(numbers: Numbers, size: int) -> module.Batches:
    return lambda: (numbers[first : first + size] for first in range(0, len(numbers), size))


def check(found: Quantiles | None, numbers: Numbers, buckets: int) -> Quantiles:
    finite = numbers[np.isfinite(numbers)]
    assert found is not None
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.quantile(finite, np.linspace(0, 1, buckets)) + 0.0
    assert found.edges.dtype == np.float64
    assert (found.edges + 0.0).tobytes() == wanted.astype(np.float64).tobytes()
    assert (found.count, found.not_finite) == (len(finite), len(numbers) - len(finite))
    return found


def shrunk(patch: pytest.MonkeyPatch, distinct: int, sample: int) -> None:
    patch.setattr(module, "DISTINCT_NUMBERS", distinct)
    patch.setattr(module, "GATHERED_NUMBERS", distinct)
    patch.setattr(module, "_SAMPLE", sample)
    patch.setattr(module, "_FEWEST_NEW", 4)


ARRAYS = st.one_of(
    hnp.arrays("int64", st.integers(1, 60), elements=st.integers(-5, 5)),
    hnp.arrays("int64", st.integers(1, 60), elements=st.integers(-(1 << 63), (1 << 63) - 1)),
    hnp.arrays("int64", st.integers(1, 60), elements=st.integers((1 << 53) - 3, (1 << 53) + 9)),
    hnp.arrays("float32", st.integers(1, 60)).filter(lambda drawn: bool(np.isfinite(drawn).any())),
    hnp.arrays("float64", st.integers(1, 60)).filter(lambda drawn: bool(np.isfinite(drawn).any())),
    hnp.arrays("float64", st.integers(1, 60), elements=st.floats(-1, 1)),
)


@given(ARRAYS, st.integers(1, 30), st.integers(1, 70), st.sampled_from([1 << 20, 20, 5, 1]), st.integers(1, 20))
@settings(max_examples=600, deadline=None)
def test_any_numbers(numbers: Numbers, buckets: int, size: int, distinct: int, sample: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shrunk(patch, distinct, sample)
        found = check(quantiles(batches_of(numbers, size), buckets), numbers, buckets)
    finite = numbers[np.isfinite(numbers)]
    if len(np.unique(finite)) > distinct:
        assert found.distinct is None
        assert found.passes >= 3
    else:
        assert (found.distinct, found.passes) == (len(np.unique(finite)), 1)


@given(ARRAYS, st.integers(1, 30), st.integers(1, 70))
def test_numbers_of_which_few_are_announced(numbers: Numbers, buckets: int, size: int) -> None:
    found = check(quantiles(batches_of(numbers, size), buckets, at_most=len(numbers)), numbers, buckets)
    assert (found.distinct, found.passes) == (len(np.unique(numbers[np.isfinite(numbers)])), 1)


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "few", "heavy", "ordered", "float32"])
def test_many_numbers(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    generator = np.random.default_rng(1)
    count = 300_000
    numbers = {
        "uniform": lambda: generator.random(count),
        "lognormal": lambda: generator.lognormal(0, 5, count),
        "few": lambda: generator.integers(0, 50, count),
        "heavy": lambda: np.where(generator.random(count) < 0.9, 0.0, generator.random(count)),
        "ordered": lambda: np.arange(count) ** 2,
        "float32": lambda: generator.normal(size=count).astype(np.float32),
    }[kind]()
    everything = check(quantiles(batches_of(numbers, 7000), 1000), numbers, 1000)
    assert everything.passes == 1
    shrunk(monkeypatch, 20_000, 1000)
    found = check(quantiles(batches_of(numbers, 7000), 1000), numbers, 1000)
    assert (found.distinct is None) == (kind != "few")
    # All gaps are wanted here; they are gathered 20 000 numbers at a time.
    assert found.passes <= 3 + 1 + count // 20_000 * 2


def test_what_is_gathered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    shrunk(monkeypatch, 500, 64)
    gathered = []
    real = np.concatenate

    def watched(arrays: Any, *rest: Any) -> Any:
        made = real(arrays, *rest)
        gathered.append(len(made))
        return made

    numbers = np.random.default_rng(0).random(20_000)
    monkeypatch.setattr(module.np, "concatenate", watched)
    found = quantiles(batches_of(numbers, 100), 100)
    monkeypatch.undo()
    check(found, numbers, 100)
    assert max(gathered) <= 1200  # counts, and what is new to them


@pytest.mark.parametrize(
    "numbers", [np.empty(0), np.empty(0, np.int64), np.full(9, np.nan), np.array([np.inf, -np.inf])]
)
def test_no_numbers(numbers: Numbers) -> None:
    for at_most in (None, 10):
        assert quantiles(batches_of(numbers, 4), 10, at_most=at_most) is None


def test_constants() -> None:
    for constant in (np.int64(7), np.float32(0.1), np.float64(-3)):
        numbers = np.full(1000, constant)
        found = check(quantiles(batches_of(numbers, 10), 1000), numbers, 1000)
        assert found.edges.tolist() == [float(constant)] * 1000
        assert found.distinct == 1


def test_numbers_that_are_not_finite_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.array([3, np.nan, 1, np.inf, 2, -np.inf, np.nan])
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.quantile(numbers, [0.5, 1.0])).all()  # why
    found = quantiles(batches_of(numbers, 2), 3)
    assert found is not None
    assert (found.edges.tolist(), found.count, found.not_finite) == ([1.0, 2.0, 3.0], 3, 4)
    shrunk(monkeypatch, 1, 1)
    again = quantiles(batches_of(numbers, 2), 3)
    assert again is not None
    assert (again.edges.tolist(), again.count, again.not_finite) == ([1.0, 2.0, 3.0], 3, 4)


def test_zeros_are_not_negative() -> None:
    found = quantiles(batches_of(np.array([-0.0, 0.0, -0.0]), 1), 2)
    assert found is not None
    assert [str(edge) for edge in found.edges.tolist()] == ["0.0", "0.0"]


@given(hnp.arrays("int64", st.integers(0, 50), elements=st.integers(-30, 30)), st.integers(1, 50))
def test_tallies(numbers: Numbers, size: int) -> None:
    tallies = [Tally.of(numbers[first : first + size]) for first in range(0, len(numbers), size)]
    merged = Tally.merged(tallies) if tallies else Tally.of(numbers)
    wanted, counts = np.unique(numbers, return_counts=True)
    assert (merged.numbers.tolist(), merged.counts.tolist()) == (wanted.tolist(), counts.tolist())
    assert merged.numbers.dtype == np.int64
