"""SequenceExamples: our bytes are those of protobuf's own encoder, and what that writes is read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.records.sequenceexample import (
    SequenceExample,
    encode_floats,
    encode_integers,
    example_header,
    float_step,
    list_header,
    parse_sequence_example,
    varint,
)
from tests.runs.datasets import tensorflow_proto as proto

pytestmark = pytest.mark.whole

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
# Where a varint gets a byte more, and around.
EDGES = sorted({0, *(1 << 7 * k for k in range(1, 9)), *((1 << 7 * k) - 1 for k in range(1, 9)), (1 << 63) - 1})


def ours(columns: dict[str, np.ndarray[Any, Any]]) -> bytes:
    """Encode columns of shape (n, k)."""
    lists = []
    for name, values in sorted(columns.items(), key=lambda item: item[0].encode()):
        steps = encode_floats(values) if values.dtype.kind == "f" else encode_integers(values)
        assert steps.offsets[0] == 0
        assert steps.offsets[-1] == len(steps.data)
        lists.append(list_header(name.encode(), len(steps.data)) + steps.data.tobytes())
    body = b"".join(lists)
    return example_header(len(body)) + body


def theirs(columns: dict[str, np.ndarray[Any, Any]]) -> bytes:
    example = proto.SequenceExample()
    for name, values in columns.items():
        for step in values:
            proto.add_step(example, name, step)
    return proto.encode(example)


def arrays(rows: int, width: int) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    shape = (rows, width)
    small = hnp.arrays("int64", shape, elements=st.integers(0, 300))
    edges = hnp.arrays("int64", shape, elements=st.sampled_from([*EDGES, -1, -(1 << 63)]))
    wide = hnp.arrays("int64", shape, elements=st.integers(-(1 << 63), (1 << 63) - 1))
    narrow = st.sampled_from(INTEGERS[:-1]).flatmap(lambda kind: hnp.arrays(kind, shape))
    unsigned = hnp.arrays("uint64", shape, elements=st.integers(0, (1 << 63) - 1))
    # A NaN's payload is not kept by Python's floats, through which the oracle is told; infinities are.
    singles = hnp.arrays("float32", shape, elements=st.floats(width=32, allow_nan=False))
    doubles = hnp.arrays("float64", shape, elements=st.floats(-1e30, 1e30))
    return st.one_of(small, edges, wide, narrow, unsigned, singles, doubles)


COLUMNS = st.tuples(st.integers(1, 6), st.lists(st.integers(1, 40), min_size=1, max_size=4)).flatmap(
    lambda drawn: st.tuples(*(arrays(drawn[0], width) for width in drawn[1])).flatmap(
        lambda made: st.lists(st.text(max_size=8), min_size=len(made), max_size=len(made), unique=True).map(
            lambda names: dict(zip(names, made, strict=True))
        )
    )
)


@given(COLUMNS)
@settings(max_examples=300)
def test_our_bytes_are_protobufs(columns: dict[str, np.ndarray[Any, Any]]) -> None:
    assert ours(columns) == theirs(columns)


@pytest.mark.parametrize("width", [1, 2, 33, 130])
def test_many_steps_of_all_sizes(width: int) -> None:
    generator = np.random.default_rng(width)
    values = generator.integers(0, 1 << 62, (5000, width)) >> generator.integers(0, 63, (5000, width))
    values[generator.random(values.shape) < 0.1] *= -1
    columns = {"x": values, "f": values.astype(np.float32), "small": values & 127, "two": values & 0x3FFF}
    assert ours(columns) == theirs(columns)


def test_the_example_of_the_format_s_description() -> None:
    steps = encode_integers(np.array([[300], [1]]))
    assert steps.data.tobytes().hex(" ") == "0a 06 1a 04 0a 02 ac 02 0a 05 1a 03 0a 01 01"
    assert steps.offsets.tolist() == [0, 8, 15]


def test_a_float_step_is_a_step_of_floats() -> None:
    for value in (0.0, -0.0, 1.5, 0.1, 1e300, -1e300, float("inf"), float("nan")):
        with np.errstate(over="ignore"):
            column = np.array([[value]], np.float64)
        assert float_step(value) == encode_floats(column).data.tobytes()


def test_the_bits_of_a_nan_are_kept() -> None:
    bits = np.array([[0x7FC12345], [0xFFC00001]], np.uint32)
    data = encode_floats(bits.view(np.float32)).data.tobytes()
    assert data[6:10] == bits[0].tobytes()
    assert data[16:20] == bits[1].tobytes()


def test_numbers_that_no_int64_holds() -> None:
    with pytest.raises(OverflowError, match="9223372036854775808 is no int64"):
        encode_integers(np.array([[1], [1 << 63]], np.uint64))


@pytest.mark.parametrize("kind", [*INTEGERS, "float32", "float64"])
@pytest.mark.parametrize("width", [1, 3])
def test_no_steps(kind: str, width: int) -> None:
    column = np.empty((0, width), kind)
    steps = encode_floats(column) if column.dtype.kind == "f" else encode_integers(column)
    assert (len(steps.data), steps.offsets.tolist()) == (0, [0])


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (1 << 31, "8080808008")]
)
def test_varints(number: int, encoded: str) -> None:
    assert varint(number).hex() == encoded


# The reader


def some_example() -> Any:
    example = proto.SequenceExample()
    proto.add_step(example, "x", np.array([1, -2, 300]))
    proto.add_step(example, "x", np.array([], np.int64))
    proto.add_step(example, "f", np.array([0.5, 2], np.float32))
    example.feature_lists.feature_list["b"].feature.add().bytes_list.value.extend([b"one", b""])
    example.feature_lists.feature_list["nothing"].feature.add()
    _ = example.feature_lists.feature_list["empty"]
    example.context.feature["name"].bytes_list.value.append(b"\xff")
    example.context.feature["size"].int64_list.value.append(1 << 40)
    return example


def listed(example: SequenceExample) -> dict[str, Any]:
    def plain(values: Any) -> Any:
        return values.tolist() if isinstance(values, np.ndarray) else values

    lists = {name: [plain(step) for step in steps] for name, steps in example.feature_lists.items()}
    return {"lists": lists, "context": {name: plain(values) for name, values in example.context.items()}}


def test_what_protobuf_writes_is_read() -> None:
    assert listed(parse_sequence_example(proto.encode(some_example()))) == {
        "lists": {"x": [[1, -2, 300], []], "f": [[0.5, 2.0]], "b": [(b"one", b"")], "nothing": [[]], "empty": []},
        "context": {"name": (b"\xff",), "size": [1 << 40]},
    }


@given(COLUMNS)
def test_what_we_write_is_read(columns: dict[str, np.ndarray[Any, Any]]) -> None:
    found = parse_sequence_example(ours(columns)).arrays()
    assert found.keys() == columns.keys()
    for name, values in columns.items():
        kind = np.float32 if values.dtype.kind == "f" else np.int64
        assert found[name].dtype == kind
        assert found[name].tobytes() == values.astype(kind).tobytes()


def test_arrays_are_of_features_with_steps_of_one_size() -> None:
    assert parse_sequence_example(proto.encode(some_example())).arrays().keys() == {"f", "nothing"}


def test_values_that_are_not_packed() -> None:
    # Int64List.value as two fields of type varint, FloatList.value as two of 32 bits: old writers do that.
    integers = bytes.fromhex("0801" + "08ac02")
    floats = b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(-1).tobytes()

    def wrapped(feature: bytes) -> bytes:
        steps = b"\x0a" + varint(len(feature)) + feature
        body = list_header(b"x", len(steps)) + steps
        return example_header(len(body)) + body

    found = [
        parse_sequence_example(wrapped(kind + varint(len(values)) + values)).feature_lists["x"]
        for kind, values in ((b"\x1a", integers), (b"\x12", floats))
    ]
    assert [[step.tolist() for step in steps if isinstance(step, np.ndarray)] for steps in found] == [
        [[1, 300]],
        [[1.5, -1.0]],
    ]


def test_fields_that_are_not_known_are_passed_over() -> None:
    data = proto.encode(some_example())
    unknown = b"\x98\x06\x07" + b"\xa2\x06\x02hi" + b"\xa9\x06" + b"8" * 8 + b"\xad\x06" + b"4" * 4
    assert listed(parse_sequence_example(unknown + data + unknown)) == listed(parse_sequence_example(data))


def test_a_message_that_ends_anywhere() -> None:
    data = proto.encode(some_example())
    whole = {0}
    for end in range(1, len(data)):
        with suppress(DecodeError):
            proto.SequenceExample().ParseFromString(data[:end])
            whole.add(end)  # between two fields of the message
    for end in range(len(data)):
        if end in whole:
            parse_sequence_example(data[:end])
        else:
            with pytest.raises(TruncatedError):
                parse_sequence_example(data[:end])


def refusal(data: bytes) -> int:
    """Read; give where it is wrong, -1 if nowhere. Anything but a FormatError is a failure."""
    try:
        parse_sequence_example(data)
    except FormatError as error:
        return -1 if error.offset is None else error.offset
    return -1


@given(st.binary(max_size=60))
@settings(max_examples=500)
def test_anything_is_read_or_refused(data: bytes) -> None:
    assert refusal(data) <= len(data)


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_message_is_read_or_refused(drawn: st.DataObject) -> None:
    data = bytearray(proto.encode(some_example()))
    place = drawn.draw(st.integers(0, len(data) - 1))
    data[place] = drawn.draw(st.integers(0, 255))
    assert refusal(bytes(data)) <= len(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x00", "byte 0: reading a field, expected its number and type, found 0"),
        (b"\x13", "byte 0: reading a field, expected its number and type, found 19"),
        (b"\xff" * 10, "byte 0: reading a varint, expected at most 10 bytes"),
        (b"\x12\x03\x0a", "byte 0: reading field 2, expected 3 bytes, got 1"),
        (b"\x12\x02\x08\x01", "byte 3: reading field 1, expected a length, found wire type 0"),
        (b"\x12\x05\x0a\x03\x0a\x01\xff", "byte 6: reading a feature's name, expected UTF-8"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_sequence_example(data)
    assert str(caught.value) == message
