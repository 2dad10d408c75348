"""Arrays made from buffers equal those that pyarrow makes of the same values."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.files import arrays

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)
LISTS = pa.list_(pa.field("element", pa.string()))


def check(made: pa.Array, kind: pa.DataType, values: Any) -> None:
    made.validate(full=True)
    assert made.type == kind
    assert made.equals(pa.array(values, kind))
    assert made.null_count == sum(value is None for value in values)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers(values: list[int | None]) -> None:
    check(arrays.numbers_or_null(pa.int64(), values), pa.int64(), values)


@given(st.lists(st.none() | st.floats(allow_nan=False)))
def test_floats(values: list[float | None]) -> None:
    check(arrays.numbers_or_null(pa.float64(), values), pa.float64(), values)


@given(st.lists(st.none() | st.booleans()))
def test_truth_values(values: list[bool | None]) -> None:
    check(arrays.numbers_or_null(pa.bool_(), values), pa.bool_(), values)


@given(st.lists(st.none() | TEXT))
def test_text(values: list[str | None]) -> None:
    check(arrays.texts(pa.string(), values), pa.string(), values)


@given(st.lists(st.none() | st.binary(max_size=9)))
def test_bytes(values: list[bytes | None]) -> None:
    check(arrays.texts(pa.binary(), values), pa.binary(), values)


@given(st.lists(st.none() | st.lists(TEXT, max_size=3)))
def test_lists_of_text(values: list[list[str] | None]) -> None:
    check(arrays.lists_of_text(LISTS, values), LISTS, values)


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.booleans())))
def test_numbers_with_a_mask(pairs: list[tuple[int, bool]]) -> None:
    values = np.array([number for number, _ in pairs], np.int32)
    valid = np.array([there for _, there in pairs], np.bool_)
    expected = [number if there else None for number, there in pairs]
    check(arrays.numbers(pa.int32(), values, valid), pa.int32(), expected)
    check(arrays.numbers(pa.int32(), values), pa.int32(), values.tolist())


def test_numbers_that_do_not_lie_side_by_side_are_copied() -> None:
    made = arrays.numbers(pa.int64(), np.arange(10, dtype=np.int64)[::3])
    assert made.to_pylist() == [0, 3, 6, 9]


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        arrays.texts(pa.string(), ["\udc80"])


def test_no_table_of_ours_imports_pandas() -> None:
    code = (
        "import sys, tempfile, pathlib\n"
        "from mlgo_corpus.dataset.tracetable import TraceRow, write_trace_rows, read_trace_rows\n"
        "path = pathlib.Path(tempfile.mkdtemp(), 'm')\n"
        "write_trace_rows(path, [TraceRow('a', 'ok', 'ok', '', argv=('x',), reward=0.5, faithful=True)], {'key': 1})\n"
        "assert read_trace_rows(path)[0].argv == ('x',)\n"
        "print('pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
