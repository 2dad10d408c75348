"""The columns of calls: batches of several modules beside the rows of observations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.dataset.calls import CALL_COLUMNS, call_batch
from mlgo_corpus.dataset.observations import ObservationBuilder, is_observation_schema, observation_schema
from mlgo_corpus.files.tables import read_batch, write_batch
from mlgo_corpus.formats.logs.blocks import Rows
from mlgo_corpus.formats.logs.events import parse_header
from mlgo_corpus.formats.logs.remarks import DecidedCall

HEADER = parse_header(b'{"features":[{"name":"caller","type":"int64_t","port":0,"shape":[1]}]}\n')

CALLS = st.lists(
    st.builds(
        DecidedCall,
        st.sampled_from(["f", "g", "\udcff"]),
        st.sampled_from(["f", "h", "\u00e9"]),
        st.sampled_from([None, 0, 7]),
        st.sampled_from([None, 1]),
        st.booleans(),
    ),
    max_size=6,
)


def shown(call: DecidedCall) -> dict[str, Any]:
    escaped = {"\udcff": "%FF"}
    names = {name: escaped.get(value, value) for name, value in zip(("caller", "callee"), call, strict=False)}
    return {**names, "line": call.line, "column": call.column}


def rows(count: int) -> Rows:
    return Rows(0, np.arange(count, dtype=np.int64).view("V8"), None)


@given(st.lists(st.tuples(CALLS, st.integers(0, 3)), max_size=6), st.integers(1, 5))
def test_rows_keep_their_calls(modules: list[tuple[list[DecidedCall], int]], capacity: int) -> None:
    """Whole modules, modules that are dropped again (kind 0), and batches that end in the middle of one."""
    schema = observation_schema(HEADER, with_calls=True)
    builder = ObservationBuilder(HEADER, 6 * capacity, schema)
    expected: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []

    def take(count: int | None = None) -> None:
        batch = builder.take(count)
        assert batch.schema == schema
        found.extend(batch.select(list(CALL_COLUMNS)).to_pylist())

    for number, (calls, kind) in enumerate(modules):
        if builder.room < len(calls):
            take(builder.rows // 2)
            take()
        before = builder.rows
        builder.begin_module(f"m{number}", call_batch(calls))
        builder.append(rows(len(calls)))
        if kind:
            expected += map(shown, calls)
        else:
            builder.drop_after(before)
    take()
    assert found == expected


def test_a_table_with_calls_is_one_of_observations(tmp_path: Path) -> None:
    names = observation_schema(HEADER, with_calls=True).names
    assert names == ["module", "context", "observation", "caller_2", *CALL_COLUMNS]
    assert is_observation_schema(observation_schema(HEADER), HEADER)
    assert is_observation_schema(observation_schema(HEADER, with_calls=True), HEADER)
    assert not is_observation_schema(observation_schema(HEADER, with_calls=True).remove(4), HEADER)
    batch = call_batch([DecidedCall("f", "g", 3, None, inlined=True)])
    write_batch(tmp_path / "calls", batch)
    assert read_batch(tmp_path / "calls").equals(batch)
