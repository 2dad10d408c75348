from __future__ import annotations

import json
import pickle
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.logs.tensors import (
    ELEMENT_TYPES,
    MAX_DIMENSIONS,
    MAX_TENSOR_BYTES,
    TensorSpec,
    is_text,
    parse_spec,
    shown,
)

# Each of LLVM's types with struct's letter for it, and the column's type.
TYPES = {
    "float": ("f", pa.float32()),
    "double": ("d", pa.float64()),
    "int8_t": ("b", pa.int8()),
    "uint8_t": ("B", pa.uint8()),
    "int16_t": ("h", pa.int16()),
    "uint16_t": ("H", pa.uint16()),
    "int32_t": ("i", pa.int32()),
    "uint32_t": ("I", pa.uint32()),
    "int64_t": ("q", pa.int64()),
    "uint64_t": ("Q", pa.uint64()),
}


def spec_json(**changes: Any) -> dict[str, Any]:
    """Give a spec's JSON value with some keys changed, or left out where the change is ``...``."""
    value = {"name": "mask", "type": "int64_t", "port": 0, "shape": [1, 33], **changes}
    return {key: item for key, item in value.items() if item is not ...}


def refusal(value: Any, what: str = "feature 3") -> str:
    """Give the message with which a JSON value is refused."""
    with pytest.raises(FormatError) as caught:
        parse_spec(value, what)
    assert type(caught.value) is FormatError
    assert caught.value.offset is None
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    return caught.value.message


def test_the_types_are_llvms_ten() -> None:
    assert list(ELEMENT_TYPES) == list(TYPES)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("shape", "count"), [((), 1), ((1,), 1), ((1, 1, 1), 1), ((1, 33), 33), ((2, 3, 5), 30)])
def test_sizes_and_types(kind: str, shape: tuple[int, ...], count: int) -> None:
    letter, element = TYPES[kind]
    spec = TensorSpec("x", kind, shape)
    assert spec.element_count == count
    assert spec.dtype == np.dtype(letter)
    assert spec.dtype.isnative
    assert spec.nbytes == struct.calcsize(f"={count}{letter}")
    assert spec.is_scalar == (count == 1)
    expected = element if count == 1 else pa.list_(pa.field("element", element, nullable=False), count)
    assert spec.arrow_type == expected


def test_a_spec_is_a_value() -> None:
    spec = TensorSpec("a", shape=[2, 3])  # type: ignore[arg-type]
    assert spec == TensorSpec("a", "int64_t", (2, 3), 0)
    assert spec.shape == (2, 3)
    assert hash(spec) == hash(TensorSpec("a", "int64_t", (2, 3)))
    assert len({spec, TensorSpec("a", shape=(3, 2)), TensorSpec("a", shape=(2, 3), port=1)}) == 3
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert str(spec) == "'a' int64_t [2, 3]"


def test_a_spec_in_json_has_llvms_order_of_keys() -> None:
    spec = TensorSpec("mask", "int64_t", (1, 33), 2)
    assert json.dumps(spec.as_json()) == '{"name": "mask", "type": "int64_t", "port": 2, "shape": [1, 33]}'
    assert parse_spec(spec.as_json(), "feature 0") == spec


@given(
    st.builds(
        TensorSpec,
        st.text(),
        st.sampled_from(list(TYPES)),
        st.lists(st.integers(1, 9), max_size=5).map(tuple),
        st.integers(-5, 1 << 70),
    )
)
def test_every_spec_comes_back_from_json(spec: TensorSpec) -> None:
    assert parse_spec(json.loads(json.dumps(spec.as_json())), "feature 0") == spec


def test_keys_that_are_not_known_are_passed_over() -> None:
    assert parse_spec(spec_json(dtype="x", Shape=3), "score") == TensorSpec("mask", "int64_t", (1, 33))


HUGE = 1 << 80


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "feature 3: expected an object with name, type, port and shape, found []"),
        (None, "feature 3: expected an object with name, type, port and shape, found None"),
        ("x\n", r"feature 3: expected an object with name, type, port and shape, found 'x\n'"),
        (spec_json(name=...), "feature 3: expected text for name and type, found None and 'int64_t'"),
        (spec_json(name=7), "feature 3: expected text for name and type, found 7 and 'int64_t'"),
        (spec_json(type=...), "feature 3: expected text for name and type, found 'mask' and None"),
        (spec_json(type=["float"]), "feature 3: expected text for name and type, found 'mask' and ['float']"),
        (spec_json(port=...), "feature 3 'mask': expected a whole number for port, found None"),
        (spec_json(port=True), "feature 3 'mask': expected a whole number for port, found True"),
        (spec_json(port=0.0), "feature 3 'mask': expected a whole number for port, found 0.0"),
        (spec_json(port="0"), "feature 3 'mask': expected a whole number for port, found '0'"),
        (spec_json(shape=...), "feature 3 'mask': expected a list for shape, found None"),
        (spec_json(shape=4), "feature 3 'mask': expected a list for shape, found 4"),
        (spec_json(shape={"0": 1}), "feature 3 'mask': expected a list for shape, found {'0': 1}"),
        (spec_json(shape=[0]), "tensor 'mask': expected dimensions of at least 1, found [0]"),
        (
            spec_json(shape=[1, 0, HUGE]),
            f"tensor 'mask': expected dimensions of at least 1, found [1, 0, {HUGE}]",
        ),
        (spec_json(shape=[-1]), "tensor 'mask': expected dimensions of at least 1, found [-1]"),
        (spec_json(shape=[-2, -3]), "tensor 'mask': expected dimensions of at least 1, found [-2, -3]"),
        (spec_json(shape=[True]), "tensor 'mask': expected dimensions of at least 1, found [True]"),
        (spec_json(shape=[1.5]), "tensor 'mask': expected dimensions of at least 1, found [1.5]"),
        (spec_json(shape=[1.0]), "tensor 'mask': expected dimensions of at least 1, found [1.0]"),
        (spec_json(shape=["1"]), "tensor 'mask': expected dimensions of at least 1, found ['1']"),
        (spec_json(shape=[None]), "tensor 'mask': expected dimensions of at least 1, found [None]"),
        (spec_json(shape=[[1]]), "tensor 'mask': expected dimensions of at least 1, found [[1]]"),
        (spec_json(shape=[1 << 40]), "tensor 'mask': a shape of [1099511627776] means more than 64 MiB"),
        (spec_json(shape=[1 << 13, 1 << 11]), "tensor 'mask': a shape of [8192, 2048] means more than 64 MiB"),
        (spec_json(shape=[1] * 32), "tensor 'mask': expected at most 31 dimensions, found 32"),
        (spec_json(name="\ud800"), r"tensor '\ud800': the name is not Unicode text"),
        (spec_json(name="a\udfffb"), r"tensor 'a\udfffb': the name is not Unicode text"),
    ],
)
def test_what_is_no_spec_is_refused(value: Any, message: str) -> None:
    assert refusal(value) == message


@pytest.mark.parametrize("kind", ["int", "int64", "", "Float", "int64_t ", "x" * 100])
def test_unknown_types_are_refused(kind: str) -> None:
    found = shown(kind)
    assert refusal(spec_json(type=kind)) == f"tensor 'mask': unknown type {found}, expected one of {', '.join(TYPES)}"


def test_the_largest_tensor() -> None:
    spec = TensorSpec("x", "double", (1 << 11, 1, 1 << 12))
    assert spec.nbytes == MAX_TENSOR_BYTES == 64 << 20
    assert TensorSpec("x", "int8_t", (64 << 20,)).nbytes == 64 << 20
    with pytest.raises(FormatError, match=r"a shape of \[67108865\] means more than 64 MiB$"):
        TensorSpec("x", "int8_t", ((64 << 20) + 1,))


def test_many_dimensions() -> None:
    spec = TensorSpec("x", "int8_t", (2,) * 16 + (1,) * 15)
    assert len(spec.shape) == MAX_DIMENSIONS
    # What the limit is for: one dimension more, and the values still are an array of any numpy that is supported.
    assert np.zeros(spec.element_count, spec.dtype).reshape(-1, *spec.shape).shape == (1, *spec.shape)


def test_huge_dimensions_are_not_multiplied() -> None:
    # Their product has sixteen million digits, whose multiplication takes minutes.
    digits = 10**4000
    assert refusal(spec_json(shape=[digits] * 4000)) == "tensor 'mask': expected at most 31 dimensions, found 4000"
    assert (
        refusal(spec_json(shape=[digits] * 31)) == f"tensor 'mask': a shape of [1{'0' * 55}... means more than 64 MiB"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        ("\n\x00é\ud800", r"'\n\x00\xe9\ud800'"),
        ("x" * 58, "'" + "x" * 58 + "'"),
        ("x" * 59, "'" + "x" * 56 + "..."),
        (b"\xff", r"b'\xff'"),
        (None, "None"),
    ],
)
def test_what_is_shown_is_short_and_on_one_line(value: object, text: str) -> None:
    assert shown(value) == text
    assert len(text) <= 60


def test_what_has_too_many_digits_is_shown_too() -> None:
    assert shown(10**4299) == "1" + "0" * 56 + "..."
    assert shown(10**5000) == "int that cannot be shown"


def test_what_is_nested_deeply_is_shown_too() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert shown(nested) in ("list that cannot be shown", "[" * 57 + "...")
    assert refusal(spec_json(port=nested)).startswith("feature 3 'mask': expected a whole number for port, found ")
    while nested:  # freed from the outside in: the depth is no concern of the interpreter's
        nested = nested[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", True), ("é\U0001f600\x00\ufffe", True), ("\ud800", False), ("a\udc80", False), ("\ud83d\ude00", False)],
)
def test_is_text(text: str, expected: bool) -> None:
    assert is_text(text) == expected
