"""Statistics of columns in passing, against numpy over the whole column, and against DuckDB."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn
from numpy.typing import NDArray

from mlgo_corpus.view.aggregate import MANTISSA_BITS, Correlation, Distribution, LogCorrelations, numbers_of, scaled

ERROR = 2.0**-MANTISSA_BITS

TYPES = (np.bool_, np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.float32, np.float64)
ANY = st.sampled_from(TYPES).flatmap(lambda kind: stn.arrays(kind, st.integers(0, 60)))


def distribution(*parts: NDArray[Any]) -> Distribution:
    found = Distribution()
    for part in parts:
        found.add(part)
    return found


def finite(values: NDArray[Any]) -> NDArray[np.float64]:
    values = values.astype(np.float64)
    return values[np.isfinite(values)]


@given(ANY)
@settings(deadline=None)
def test_counts_and_extremes_are_exact(values: NDArray[Any]) -> None:
    found = distribution(values)
    numbers = values.astype(np.float64)
    assert found.count == len(values)
    assert found.zeros == (numbers == 0).sum()
    assert found.nans == np.isnan(numbers).sum()
    assert found.infinities == np.isinf(numbers).sum()
    kept = finite(values)
    if len(kept):
        assert (found.min, found.max) == (kept.min(), kept.max())
        with np.errstate(over="ignore"):
            assert found.mean == pytest.approx(kept.mean(), rel=1e-6, abs=1e-300)
    else:
        assert math.isnan(found.min)
        assert math.isnan(found.mean)


@given(ANY, st.floats(0, 1))
@settings(deadline=None)
def test_a_quantile_is_as_exact_as_said(values: NDArray[Any], at: float) -> None:
    kept = finite(values)
    said = distribution(values).quantile(at)
    if not len(kept):
        assert math.isnan(said)
        return
    exact = float(np.quantile(kept, at, method="inverted_cdf"))
    # Of numbers so small that their type has no full precision for them, it has no more either.
    least = float(np.finfo(values.dtype).tiny) if values.dtype.kind == "f" else 0.0
    assert abs(said - exact) <= ERROR * abs(exact) + least


def test_the_largest_numbers_of_each_type() -> None:
    """What is near them is counted by its distance from the least one, which may not fit where it is added back."""
    for kind in ("uint64", "int64", "uint8", "int8"):
        most, least = (int(end) for end in (np.iinfo(kind).max, np.iinfo(kind).min))
        found = distribution(np.array([most, most, most - 1], kind), np.array([least], kind))
        assert (found.min, found.max, found.finite) == (float(least), float(most), 4), kind
        values, counts = found.steps()
        assert counts.sum() == 4
        assert values[0] <= values[-1]
        assert values[-1] == pytest.approx(most, rel=0.004)


@given(ANY, st.integers(0, 60))
@settings(deadline=None)
def test_parts_make_the_same_as_the_whole(values: NDArray[Any], cut: int) -> None:
    whole, parts = distribution(values), distribution(values[:cut], values[cut:])
    for mine, theirs in zip(whole.steps(), parts.steps(), strict=True):
        assert mine.tolist() == theirs.tolist()
    assert whole.count == parts.count
    assert whole.histogram() == parts.histogram()


@given(ANY)
@example(np.array([4.0, 0.125, 3.0, 0.0, 1.0, 2.0, 0.5, 0.25, *[np.finfo(np.float64).max] * 8]))
@settings(deadline=None)
def test_a_histogram_has_all_finite_values_in_order(values: NDArray[Any]) -> None:
    found = distribution(values)
    bars = found.histogram().bars
    assert sum(bar.count for bar in bars) == found.finite
    for one, after in pairwise(bars):
        assert one.low <= one.high <= after.low
    if bars:
        assert (bars[0].low, bars[-1].high) == (found.min, found.max)


def test_whole_numbers_below_512_are_counted_one_by_one() -> None:
    random = np.random.default_rng(0)
    for values in (random.integers(-511, 512, 50_000), random.integers(-511, 512, 50_000).astype(np.float32)):
        steps, counts = distribution(values).steps()
        exact = np.unique(values, return_counts=True)
        assert steps.tolist() == exact[0].tolist()
        assert counts.tolist() == exact[1].tolist()


@pytest.mark.parametrize("rows", [1_000, 300_000])
def test_both_ways_to_count_doubles_count_alike(rows: int) -> None:
    values = np.random.default_rng(1).lognormal(0, 5, rows)
    steps, counts = distribution(values).steps()
    assert counts.sum() == rows
    exact = np.quantile(values, [0.1, 0.5, 0.9], method="inverted_cdf")
    assert [distribution(values).quantile(at) for at in (0.1, 0.5, 0.9)] == pytest.approx(exact, rel=ERROR)
    assert (np.diff(steps) > 0).all()


def test_a_histogram_of_whole_numbers_is_what_duckdb_counts() -> None:
    values = np.random.default_rng(2).geometric(0.01, 5_000)
    observed = pa.table({"x": values})
    bars = distribution(values).histogram().bars
    for bar in bars:
        query = "SELECT count(*) FROM observed WHERE x BETWEEN $1 AND $2"
        (count,) = duckdb.execute(query, [int(bar.low), int(bar.high)]).fetchone() or (None,)
        # Above 512 a value may be counted with a neighbour, 0.4 % away.
        assert bar.count == count if bar.high < 512 else abs(bar.count - (count or 0)) <= 25
    assert observed.num_rows == sum(bar.count for bar in bars)


def test_the_scale_fits_the_values() -> None:
    assert distribution(np.array([0, 1, 1, 2])).histogram().scale == "values"
    assert distribution(np.arange(1000)).histogram().scale == "linear"
    assert distribution(2.0 ** np.arange(40)).histogram().scale == "log"
    assert distribution(np.linspace(-1, 0, 20)).histogram().scale == "linear"


def test_the_most_common_value_and_constants() -> None:
    found = distribution(np.array([7] * 99 + [0]))
    assert found.most_common() == (7.0, 0.99)
    assert not found.is_constant
    assert distribution(np.full(5, -3.25)).is_constant
    assert not distribution(np.array([1.0, 1.0, np.nan])).is_constant
    assert distribution(np.zeros(0)).most_common()[1] == 0
    # Values that the histogram cannot tell apart are not constant for that.
    assert not distribution(np.array([1000.0, 1000.001])).is_constant


@given(st.lists(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 20), min_size=1))
def test_drift_is_the_kolmogorov_smirnov_distance(mine: list[int], theirs: list[int]) -> None:
    said = distribution(np.array(mine)).drift(distribution(np.array(theirs)))
    gaps = [
        abs(sum(x <= at for x in mine) / len(mine) - sum(x <= at for x in theirs) / len(theirs)) for at in range(21)
    ]
    assert said == pytest.approx(max(gaps))


def test_drift_of_nothing_is_not_known() -> None:
    assert math.isnan(distribution(np.zeros(0)).drift(distribution(np.ones(1))))


def test_correlations_are_those_of_numpy() -> None:
    random = np.random.default_rng(3)
    label = random.integers(1, 1000, 500)
    columns = [label * 2 + random.integers(0, 50, 500), random.integers(0, 9, 500), np.full(500, 4), -label]
    found = LogCorrelations(4)
    for part in (slice(0, 100), slice(100, 500)):
        found.add([column[part] for column in columns], label[part])
    exact = [np.corrcoef(np.log1p(column), np.log(label))[0, 1] for column in columns[:2]]
    assert found.result()[:2].tolist() == pytest.approx(exact)
    assert np.isnan(found.result()[2:]).all()  # one is constant, the other less than 0 everywhere
    assert np.isnan(LogCorrelations(1).result()).all()


def test_a_correlation_of_any_numbers_is_that_of_numpy() -> None:
    random = np.random.default_rng(4)
    feature = random.normal(0, 1000, 500)
    decision = (feature + random.normal(0, 500, 500) < 0).astype(np.int64)
    found = Correlation()
    for part in (slice(0, 100), slice(100, 500)):
        found.add(scaled(feature[part]), scaled(decision[part]))
    found.add(scaled(np.array([math.nan, math.inf, 3.0])), scaled(np.array([1, 0, math.nan])))  # rows that do not count
    assert found.value == pytest.approx(np.corrcoef(np.arcsinh(feature), decision)[0, 1])
    assert found.value < -0.5
    constant = Correlation()
    constant.add(np.full(5, 1e9), np.arange(5.0))
    assert math.isnan(constant.value)
    assert math.isnan(Correlation().value)


def test_numbers_of_columns_of_all_kinds() -> None:
    def told(column: pa.Array) -> tuple[list[Any], int] | None:
        found = numbers_of(column)
        return None if found is None else (found[0].tolist(), found[1])

    assert told(pa.array([1, None, 3], pa.int32())) == ([1, 3], 1)
    assert told(pa.array([True, False])) == ([True, False], 0)
    assert told(pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))) == ([1.0, 2.0, 3.0, 4.0], 0)
    assert told(pa.array([[1], None], pa.list_(pa.int64()))) == ([1], 1)
    assert told(pa.chunked_array([[1], [2]])) == ([1, 2], 0)
    assert told(pa.array([1.5, None], pa.float16())) == ([1.5], 1)
    assert told(pa.array(["x"])) is None
    assert told(pa.array([["x"]])) is None
