from __future__ import annotations

import io
import json
import random
import struct
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.dataset import observations
from mlgo_corpus.dataset.observations import (
    KEY_COLUMNS,
    ObservationBuilder,
    column_names,
    cut_rows,
    iter_runs,
    observation_schema,
    rows_of_batch,
)
from mlgo_corpus.formats.logs.blocks import BlockReader, Contexts, Rows
from mlgo_corpus.formats.logs.events import Context, LogHeader, Observation
from mlgo_corpus.formats.logs.tensors import MAX_TENSOR_BYTES, TensorSpec
from tests.conftest import DATA
from tests.formats.logs.test_events import LARGEST, LOGS, headers, make_log, plain_events, spec
from tests.formats.logs.test_tensors import TYPES

pytestmark = pytest.mark.whole

# Every type as a single element and as many, in an order that makes groups of one, two and three columns.
EVERYTHING = LogHeader(
    (
        *(spec(f"one_{kind}", kind, (1,) * (1 + index % 3)) for index, kind in enumerate(TYPES)),
        spec("again", "uint64_t"),
        *(spec(f"many_{kind}", kind, (1, 2 + index)) for index, kind in enumerate(TYPES)),
        *(spec(f"three_{number}", "float", ()) for number in range(3)),
        spec("other", "int8_t", (2, 3)),
    ),
    spec("reward", "float"),
)
SOME_HEADERS = {
    "everything": EVERYTHING,
    "no score": LogHeader(EVERYTHING.features),
    "scores": LogHeader((spec("x", "float"),), spec("reward", "float", (3,))),
    "byte": LogHeader((spec("x", "int8_t"),)),
    "nothing": LogHeader(()),
    "score alone": LogHeader((), spec("reward", "double")),
    "large": LogHeader((spec("x", "int64_t", (100, 100)), spec("y", "int8_t"))),
}
by_header = pytest.mark.parametrize("header", SOME_HEADERS.values(), ids=SOME_HEADERS)


class Row(NamedTuple):
    """A row as it has to come out of a table: each value in the bytes that it had in the log."""

    module: str
    context: str | None
    number: int
    values: tuple[bytes, ...]


def expected_row(header: LogHeader, module: str, context: str | None, event: Observation) -> Row:
    """Cut an observation's bytes into its columns."""
    data = event.tensors + (event.score or b"")
    values = []
    for item in header.columns:
        size = struct.calcsize(f"={item.element_count}{TYPES[item.type][0]}")
        values.append(data[:size])
        data = data[size:]
    assert not data
    return Row(module, context, event.number, tuple(values))


def rows_in(header: LogHeader, batch: pa.RecordBatch) -> list[Row]:
    """Read a batch's rows the slow way: value by value, and back to bytes."""
    batch.validate(full=True)
    assert batch.schema.equals(observation_schema(header), check_metadata=True)
    keys = [batch.column(index).to_pylist() for index in range(3)]
    columns = []
    for item, column in zip(header.columns, batch.columns[3:], strict=True):
        letter, element = TYPES[item.type]
        many = item.element_count > 1
        assert (column.type.value_type if many else column.type) == element
        assert column.null_count == 0
        if item.type in ("float", "double"):  # by their bits: Python's floats do not keep a NaN's
            flat = (column.flatten() if many else column).to_numpy().tobytes()
            size = item.nbytes
            columns.append([flat[at : at + size] for at in range(0, len(flat), size)])
        else:
            values = column.to_pylist()
            columns.append([struct.pack(f"={item.element_count}{letter}", *(v if many else [v])) for v in values])
    rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
    return [Row(*key, values) for *key, values in zip(*keys, rows, strict=True)]


def events_for(header: LogHeader, seed: int, contexts: int = 12) -> list[Context | Observation]:
    """Make contexts and observations; runs of all lengths, and some gaps."""
    maker = random.Random(seed)
    events: list[Context | Observation] = []
    numbers: dict[str | None, int] = {}
    name = None
    for index in range(contexts):
        if index or maker.random() < 0.7:
            name = maker.choice("fghijk")
            events.append(Context(name, b'{"context":"%b"}\n' % name.encode()))
        count = (
            maker.choice([0, 0, 1, 2, 3, 10, 47, 48, 60]) if header.tensor_bytes < 10_000 else maker.choice([0, 1, 2])
        )
        for _ in range(count):
            number = numbers.get(name, 0)
            score = None if header.score is None else maker.randbytes(header.score_bytes)
            events.append(Observation(number, maker.randbytes(header.tensor_bytes), score))
            numbers[name] = number + (1 if maker.random() < 0.98 else 5)
    return events


def expected_rows(header: LogHeader, module: str, events: Sequence[Context | Observation]) -> list[Row]:
    rows, name = [], None
    for event in events:
        if isinstance(event, Context):
            name = event.name
        else:
            rows.append(expected_row(header, module, name, event))
    return rows


def add_log(builder: ObservationBuilder, module: str, data: bytes) -> Iterator[pa.RecordBatch]:
    """Add a log's blocks to a builder; yield the batches that come of it."""
    builder.begin_module(module)
    for block in BlockReader(io.BytesIO(data)):
        if isinstance(block, Contexts):
            builder.begin_context(block.names[-1])
        else:
            yield from builder.extend(block)


def make_rows(header: LogHeader, number: int, count: int) -> Rows:
    """Make a block of observations whose bytes are all different."""
    maker = random.Random(number)

    def records(size: int) -> Any:
        data = maker.randbytes(size * count)
        return np.frombuffer(data, f"V{size}") if data else np.empty(count, f"V{size}")

    return Rows(number, records(header.tensor_bytes), None if header.score is None else records(header.score_bytes))


def rows_of(header: LogHeader, module: str, context: str | None, *blocks: Rows) -> list[Row]:
    """Give the rows that blocks have to become."""
    rows = []
    for block in blocks:
        for index in range(len(block.tensors)):
            score = None if block.scores is None else block.scores[index].tobytes()
            event = Observation(block.number + index, block.tensors[index].tobytes(), score)
            rows.append(expected_row(header, module, context, event))
    return rows


def all_rows(header: LogHeader, batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in rows_in(header, batch)]


# Names and schema.


@pytest.mark.parametrize(
    ("features", "score", "names"),
    [
        (["a", "b"], "reward", ["a", "b", "reward"]),
        (["a", "a", "a"], None, ["a", "a_2", "a_3"]),
        (["a", "reward"], "reward", ["a", "reward", "reward_2"]),
        (["module", "context", "observation"], "module", ["module_2", "context_2", "observation_2", "module_3"]),
        (["a_2", "a", "a"], None, ["a_2", "a", "a_3"]),
        (["a", "a", "a_2", "a_2"], None, ["a", "a_2", "a_2_2", "a_2_3"]),
        (["a", "a_3", "a", "a"], "a", ["a", "a_3", "a_2", "a_4", "a_5"]),
        (["", "", "module_2", "module"], None, ["", "_2", "module_2", "module_3"]),
        (["A", "a", "é", "\n"], None, ["A", "a", "é", "\n"]),
    ],
)
def test_names_of_columns(features: list[str], score: str | None, names: list[str]) -> None:
    header = LogHeader(tuple(map(spec, features)), None if score is None else spec(score))
    assert list(column_names(header)) == names
    assert observation_schema(header).names == [*KEY_COLUMNS, *names]


@given(st.lists(st.sampled_from(["a", "a_2", "a_3", "a_2_2", "module", "module_2", "_2", ""]), max_size=12))
def test_names_of_columns_are_different(features: list[str]) -> None:
    names = column_names(LogHeader(tuple(map(spec, features))))
    assert len({*KEY_COLUMNS, *names}) == 3 + len(features)
    for name, feature in zip(names, features, strict=True):
        assert name == feature or name.removeprefix(feature)[:1] == "_"


def test_names_of_many_columns() -> None:
    names = column_names(LogHeader((spec("x", "int8_t"),) * 50_000))
    assert names[:3] == ("x", "x_2", "x_3")
    assert names[-1] == "x_50000"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("shape", "metadata"),
    [
        ((), None),
        ((1,), None),
        ((1, 1), None),
        ((1, 33), {b"shape": b"[1,33]"}),
        ((4,), {b"shape": b"[4]"}),
        ((2, 1, 3), {b"shape": b"[2,1,3]"}),
    ],
)
def test_schema_of_a_feature(kind: str, shape: tuple[int, ...], metadata: dict[bytes, bytes] | None) -> None:
    item = TensorSpec("x", kind, shape)
    schema = observation_schema(LogHeader((item,)))
    field = schema.field("x")
    element = TYPES[kind][1]
    count = item.element_count
    assert field.type == (element if count == 1 else pa.list_(pa.field("element", element, nullable=False), count))
    assert field.metadata == metadata
    assert not field.nullable
    assert schema.metadata is None


def test_schema_of_the_keys() -> None:
    schema = observation_schema(LogHeader(()), {"module": "a", "n": [1]})
    text = pa.dictionary(pa.int32(), pa.string())
    assert schema.names == ["module", "context", "observation"]
    assert schema.types == [text, text, pa.int64()]
    assert [field.nullable for field in schema] == [False, True, False]
    assert json.loads(schema.metadata[b"mlgo_corpus"]) == {"module": "a", "n": [1]}


# Columns.


@by_header
@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 50, 100, 100_000])
def test_columns_of_logs(header: LogHeader, capacity: int) -> None:
    builder = ObservationBuilder(header, capacity)
    batches: list[pa.RecordBatch] = []
    expected: list[Row] = []
    for module in ("a", "b/c"):
        events = events_for(header, len(expected) + capacity)
        batches += add_log(builder, module, make_log(header, *events))
        expected += expected_rows(header, module, events)
    assert len(expected) > 10
    assert builder.rows <= capacity
    assert builder.room == capacity - builder.rows
    batches.append(builder.take())
    assert [batch.num_rows for batch in batches[:-1]] == [capacity] * (len(batches) - 1)
    assert all_rows(header, batches) == expected
    assert (builder.rows, builder.room) == (0, capacity)


@given(headers, st.integers(0, 1 << 30), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_columns_of_any_header(header: LogHeader, seed: int, capacity: int) -> None:
    events = events_for(header, seed, 6)
    builder = ObservationBuilder(header, capacity)
    batches = [*add_log(builder, "m", make_log(header, *events)), builder.take()]
    assert all_rows(header, batches) == expected_rows(header, "m", events)
    for batch in batches:
        assert observations_in(header, batch) == [row.values for row in rows_in(header, batch)]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_columns_of_real_logs(path: Any) -> None:
    data = path.read_bytes()
    events = [event for event in plain_events(data).events if not isinstance(event, LogHeader)]
    header = BlockReader(io.BytesIO(data)).header
    builder = ObservationBuilder(header, 100)
    batches = [*add_log(builder, "m", data), builder.take()]
    assert all_rows(header, batches) == expected_rows(header, "m", events)


def test_values_of_the_priority_advisor() -> None:
    data = (DATA / "training-logs" / "regalloc-priority.lzio.log").read_bytes()
    builder = ObservationBuilder(BlockReader(io.BytesIO(data)).header, 100)
    assert list(add_log(builder, "lzio", data)) == []
    batch = builder.take()
    assert batch.schema.names == [*KEY_COLUMNS, "li_size", "stage", "weight", "priority", "reward"]
    assert batch.slice(0, 2).to_pylist() == [
        {
            "module": "lzio",
            "context": "luaZ_fill",
            "observation": number,
            "li_size": 0,
            "stage": 0,
            "weight": 0.0,
            "priority": priority,
            "reward": 0.0,
        }
        for number, priority in enumerate([3758096896.0, 3221225728.0])
    ]
    assert batch.num_rows == 21
    assert batch.column("context").dictionary.to_pylist() == ["luaZ_fill", "luaZ_init", "luaZ_read"]


def test_elements_of_a_tensor_are_row_major() -> None:
    header = LogHeader((spec("x", "int16_t", (2, 3)), spec("y", "uint8_t")))
    builder = ObservationBuilder(header, 2)
    builder.begin_module("m")
    builder.append(Rows(4, np.frombuffer(struct.pack("=6hB", 1, 2, 3, -4, 5, 6, 255), "V13"), None))
    assert builder.take().to_pylist() == [
        {"module": "m", "context": None, "observation": 4, "x": [1, 2, 3, -4, 5, 6], "y": 255}
    ]


def test_columns_begin_where_arrow_likes_it() -> None:
    builder = ObservationBuilder(EVERYTHING, 5)
    builder.begin_module("m")
    builder.append(make_rows(EVERYTHING, 0, 5))
    batch = builder.take()
    first = batch.column("one_float").buffers()[1]
    addresses = {name: batch.column(name).buffers()[-1].address for name in batch.schema.names[3:]}
    assert addresses["one_float"] == first.address
    # Groups of columns are aligned with each other; within a group they follow each other.
    assert all((address - first.address) % 4 == 0 for name, address in addresses.items() if "float" in name)
    assert addresses["three_1"] - addresses["three_0"] == 5 * 4


# Rows, one block after the other.


@by_header
@pytest.mark.parametrize("counts", [[1] * 70, [47, 48, 49], [48, 1, 48, 1], [1, 100, 2], [0, 3, 0], [300]])
def test_blocks_of_every_size(header: LogHeader, counts: list[int]) -> None:
    builder = ObservationBuilder(header, 300)
    builder.begin_module("m")
    blocks = [make_rows(header, 10 * index, count) for index, count in enumerate(counts)]
    for block in blocks:
        builder.append(block)
    assert rows_in(header, builder.take()) == rows_of(header, "m", None, *blocks)


@pytest.mark.parametrize("stage", [0, 1, 100, 4000])
def test_stages_of_every_size(stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "_STAGE_BYTES", stage)
    for header in SOME_HEADERS.values():
        events = events_for(header, stage)
        builder = ObservationBuilder(header, 90)
        batches = [*add_log(builder, "m", make_log(header, *events)), builder.take()]
        assert all_rows(header, batches) == expected_rows(header, "m", events)


def test_numbers_up_to_the_largest() -> None:
    header = SOME_HEADERS["byte"]
    builder = ObservationBuilder(header, 100)
    builder.begin_module("m")
    for number, count in [(LARGEST, 1), (0, 2), (LARGEST - 59, 60), (10**18, 1)]:
        builder.append(make_rows(header, number, count))
    found = builder.take().column("observation").to_pylist()
    assert found == [LARGEST, 0, 1, *range(LARGEST - 59, LARGEST + 1), 10**18]


def test_extend_with_more_than_there_is_room_for() -> None:
    header = SOME_HEADERS["everything"]
    block = make_rows(header, 5, 100)
    builder = ObservationBuilder(header, 30)
    builder.begin_module("m")
    builder.append(make_rows(header, 0, 3))
    batches = list(builder.extend(block))
    assert [batch.num_rows for batch in batches] == [30, 30, 30]
    assert builder.rows == 13
    found = all_rows(header, [*batches, builder.take()])
    assert found == rows_of(header, "m", None, make_rows(header, 0, 3), block)


def test_a_full_builder_waits_for_the_next_row() -> None:
    header = SOME_HEADERS["byte"]
    builder = ObservationBuilder(header, 30)
    builder.begin_module("m")
    assert list(builder.extend(make_rows(header, 0, 30))) == []
    assert builder.room == 0
    assert [batch.num_rows for batch in builder.extend(make_rows(header, 30, 1))] == [30]
    assert builder.rows == 1


@by_header
def test_batches_do_not_change_afterwards(header: LogHeader) -> None:
    builder = ObservationBuilder(header, 10)
    builder.begin_module("m")
    blocks = [make_rows(header, number, 10) for number in range(0, 50, 10)]
    batches = []
    for block in blocks:
        builder.append(block)
        batches.append(builder.take())
    for block, batch in zip(blocks, batches, strict=True):
        assert rows_in(header, batch) == rows_of(header, "m", None, block)


# Taking a part, and taking back.


@by_header
@pytest.mark.parametrize("taken", [0, 1, 5, 11, 12, 29, 30])
def test_take_leaves_the_others(header: LogHeader, taken: int) -> None:
    events: list[Context | Observation] = []
    for name, count in [("f", 12), ("g", 0), ("h", 8), ("f", 10)]:
        events.append(Context(name, b'{"context":"%b"}\n' % name.encode()))
        maker = random.Random(name + str(len(events)))
        for number in range(count):
            score = None if header.score is None else maker.randbytes(header.score_bytes)
            events.append(Observation(number, maker.randbytes(header.tensor_bytes), score))
    expected = expected_rows(header, "m", events)
    builder = ObservationBuilder(header, 64)
    assert list(add_log(builder, "m", make_log(header, *events))) == []
    first = builder.take(taken)
    assert rows_in(header, first) == expected[:taken]
    assert (builder.rows, builder.room) == (30 - taken, 34 + taken)
    # What is added now is of the context that was begun last, and then of the next module.
    more = make_rows(header, 100, 3)
    builder.append(more)
    builder.begin_module("n")
    builder.append(more)
    second = builder.take()
    assert rows_in(header, second) == [
        *expected[taken:],
        *rows_of(header, "m", "f", more),
        *rows_of(header, "n", None, more),
    ]
    assert rows_in(header, first) == expected[:taken]


def test_take_again_and_again() -> None:
    header = SOME_HEADERS["everything"]
    events = events_for(header, 3, 30)
    expected = expected_rows(header, "m", events)
    builder = ObservationBuilder(header, 1000)
    assert list(add_log(builder, "m", make_log(header, *events))) == []
    found: list[Row] = []
    for count in (0, 1, 1, 40, 0, 3):
        found += rows_in(header, builder.take(count))
    assert len(expected) > len(found) == 45
    found += rows_in(header, builder.take())
    assert found == expected
    assert builder.take().num_rows == 0


def test_take_of_nothing() -> None:
    for header in SOME_HEADERS.values():
        builder = ObservationBuilder(header, 5)
        assert rows_in(header, builder.take()) == []
        builder.begin_module("m")
        builder.begin_context("f")
        assert rows_in(header, builder.take()) == []
        builder.append(make_rows(header, 0, 1))
        assert [row[:3] for row in rows_in(header, builder.take())] == [("m", "f", 0)]


@by_header
@pytest.mark.parametrize("kept", [0, 1, 20, 60])
def test_drop_after(header: LogHeader, kept: int) -> None:
    builder = ObservationBuilder(header, 300)
    good, bad, after = make_rows(header, 0, kept), make_rows(header, 7, 55), make_rows(header, 90, 3)
    builder.begin_module("a")
    builder.begin_context("f")
    builder.append(good)
    for module, name in (("b", "g"), ("d", "f"), ("e", "h")):
        builder.begin_module(module)
        builder.begin_context(name)
        builder.append(cut_rows(bad, 0, 50))
        builder.append(cut_rows(bad, 50, 55))
        if kept == 0:
            break
    builder.drop_after(kept)
    assert (builder.rows, builder.room) == (kept, 300 - kept)
    builder.begin_module("c")
    builder.append(after)
    batch = builder.take()
    assert rows_in(header, batch) == [*rows_of(header, "a", "f", good), *rows_of(header, "c", None, after)]
    assert batch.column("module").dictionary.to_pylist() == (["a", "c"] if kept else ["c"])
    assert batch.column("context").dictionary.to_pylist() == (["f"] if kept else [])


def test_drop_after_some_were_taken() -> None:
    header = SOME_HEADERS["byte"]
    builder = ObservationBuilder(header, 100)
    builder.begin_module("a")
    builder.begin_context("f")
    builder.append(make_rows(header, 0, 10))
    builder.begin_module("b")
    builder.begin_context("g")
    builder.append(make_rows(header, 0, 20))
    builder.take(15)  # five of the second module's are gone, 15 are here
    builder.begin_module("c")
    builder.begin_context("h")
    builder.append(make_rows(header, 50, 5))
    builder.drop_after(15)
    builder.begin_module("d")
    builder.append(make_rows(header, 70, 2))
    found = [row[:3] for row in rows_in(header, builder.take())]
    assert found == [*(("b", "g", number) for number in range(5, 20)), ("d", None, 70), ("d", None, 71)]


# Labels.


def test_labels_are_dictionaries_of_what_is_there() -> None:
    header = SOME_HEADERS["byte"]
    builder = ObservationBuilder(header, 100)
    for module, contexts in [("a", ["f", "g", "f"]), ("b", [None, "empty", "é"]), ("c", []), ("a", ["g"])]:
        builder.begin_module(module)
        for name in contexts:
            if name is not None:
                builder.begin_context(name)
            if name != "empty":
                builder.append(make_rows(header, 0, 2))
    batch = builder.take()
    assert batch.column("module").dictionary.to_pylist() == ["a", "b"]
    assert batch.column("context").dictionary.to_pylist() == ["f", "g", "é"]
    assert batch.column("module").indices.to_pylist() == [0] * 6 + [1] * 4 + [0] * 2
    assert batch.column("context").indices.to_pylist() == [0, 0, 1, 1, 0, 0, None, None, 2, 2, 1, 1]
    assert batch.column("context").null_count == 2
    assert batch.column("module").null_count == 0


def test_a_context_goes_on_in_the_next_batch_and_a_module_ends_it() -> None:
    header = SOME_HEADERS["byte"]
    builder = ObservationBuilder(header, 4)
    builder.begin_module("a")
    builder.begin_context("f")
    batches = list(builder.extend(make_rows(header, 0, 10)))
    builder.begin_module("b")
    batches += [*builder.extend(make_rows(header, 0, 4)), builder.take()]
    found = [row[:3] for batch in batches for row in rows_in(header, batch)]
    assert found == [*(("a", "f", n) for n in range(10)), *(("b", None, n) for n in range(4))]


# Memory.


def test_a_builder_takes_memory_with_its_first_row() -> None:
    header = LogHeader((spec("x", "int8_t", (MAX_TENSOR_BYTES,)),), spec("y", "int8_t", (MAX_TENSOR_BYTES,)))
    observation_schema(header)  # imports pyarrow
    tracemalloc.start()
    try:
        builder = ObservationBuilder(header, 3)
        builder.begin_module("m")
        assert builder.take().num_rows == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


# And back.


def observations_in(header: LogHeader, batch: pa.RecordBatch) -> list[tuple[bytes, ...]]:
    """Give what `rows_of_batch` makes of a batch, cut into columns."""
    tensors, scores = rows_of_batch(header, batch)
    assert len(tensors) == batch.num_rows
    assert (scores is None) == (header.score is None)
    assert tensors.itemsize == header.tensor_bytes
    found = []
    for index in range(len(tensors)):
        score = None if scores is None else scores[index].tobytes()
        found.append(expected_row(header, "", None, Observation(0, tensors[index].tobytes(), score)).values)
    return found


@by_header
@pytest.mark.parametrize(("first", "count"), [(0, 100), (0, 0), (50, 0), (100, 0), (0, 1), (99, 1), (13, 57)])
def test_rows_come_back_from_a_batch(header: LogHeader, first: int, count: int) -> None:
    block = make_rows(header, 0, 100)
    builder = ObservationBuilder(header, 100)
    builder.begin_module("m")
    builder.append(block)
    batch = builder.take().slice(first, count)
    expected = [row.values for row in rows_of(header, "m", None, block)]
    assert observations_in(header, batch) == expected[first : first + count]


@pytest.mark.parametrize(
    ("numbers", "runs"),
    [
        ([], []),
        ([5], [(0, 1)]),
        ([0, 1, 2], [(0, 3)]),
        ([0, 1, 3, 4, 5, 5, 4], [(0, 2), (2, 5), (5, 6), (6, 7)]),
        ([7, 8, 0, 1], [(0, 2), (2, 4)]),
        ([LARGEST - 1, LARGEST, 0, LARGEST], [(0, 2), (2, 3), (3, 4)]),
    ],
)
def test_runs(numbers: list[int], runs: list[tuple[int, int]]) -> None:
    assert list(iter_runs(np.array(numbers, np.int64))) == runs


@given(st.lists(st.integers(0, 6) | st.integers(0, LARGEST), max_size=30))
def test_runs_of_any_numbers(numbers: list[int]) -> None:
    runs = list(iter_runs(np.array(numbers, np.int64)))
    assert [number for first, after in runs for number in numbers[first:after]] == numbers
    for first, after in runs:
        assert numbers[first:after] == list(range(numbers[first], numbers[first] + after - first))
    for (_, after), (first, _) in pairwise(runs):
        assert after == first
        assert numbers[first] != numbers[first - 1] + 1


def test_a_part_of_a_block() -> None:
    header = SOME_HEADERS["scores"]
    block = make_rows(header, 40, 10)
    part = cut_rows(block, 3, 7)
    assert part.number == 43
    assert part.scores is not None
    assert block.scores is not None
    assert part.tensors.tobytes() == block.tensors[3:7].tobytes()
    assert part.scores.tobytes() == block.scores[3:7].tobytes()
    assert cut_rows(make_rows(SOME_HEADERS["byte"], 0, 5), 1, 2).scores is None
