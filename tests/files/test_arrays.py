"""Arrays made from buffers equal those that pyarrow makes of the same values."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.compilers.probe import PROBE_DATA
from mlgo_corpus.files import arrays
from tests.conftest import DATA
from tests.handmade import corpus

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


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.integers(0, 9))
def test_numbers_are_read_from_any_part(values: list[int], first: int) -> None:
    part = pa.array(values, pa.int32()).slice(min(first, len(values)))
    found = arrays.numbers_in(part)
    assert (found.dtype, found.tolist()) == (np.int32, values[first:])


def test_a_null_is_no_number() -> None:
    with pytest.raises(ValueError, match="1 of 2 values are missing"):
        arrays.numbers_in(pa.array([1, None]))


def test_no_verb_of_tables_imports_pandas(tmp_path: Path) -> None:
    """Pandas is in none of them, though pyarrow would use it: a fifth of a second of each run."""
    corpus(tmp_path / "c", ["a/x", "a/y", "b"])
    for version, name in ((18, "a/x"), (19, "a/y"), (22, "b")):
        shutil.copy(PROBE_DATA / f"llvm-{version}.bc", tmp_path / f"c/{name}.bc")
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copy(DATA / "training-logs/inlining.lzio.log", logs / "m.log")
    verbs = [
        "split c --output s --jobs 1",
        "stats s/train",
        "stats c --by folder",
        "stats c --by language",
        "pack c --output p --jobs 1",
        "split p --output q --jobs 1",
        "pack s/train --output r --jobs 1",
        "logs-to-parquet logs --output d --jobs 1",
        "parquet-to-logs d --output l",
        "vocab d --output v",
        "dump logs/m.log --stats",
        "report s/train d --output r.html",
    ]
    code = (
        "import sys\n"
        "from typer.main import get_command\n"
        "from mlgo_corpus.cli.main import app\n"
        "from mlgo_corpus.dataset.tracetable import TraceRow, write_trace_rows, read_trace_rows\n"
        "from pathlib import Path\n"
        "write_trace_rows(Path('m'), [TraceRow('a', 'ok', 'ok', '', argv=('x',), reward=0.5, faithful=True)], {})\n"
        "assert read_trace_rows(Path('m'))[0].argv == ('x',)\n"
        "command = get_command(app)\n"
        f"for verb in {verbs}:\n"
        "    try:\n"
        "        command(verb.split())\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, (verb, end.code)\n"
        "    assert 'pandas' not in sys.modules, verb\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
