"""TFLite models, as far as a network of numbers has use of: their tensors, operators and constants.

A model is a FlatBuffer (tensorflow/lite/schema/schema.fbs): tables whose fields are found by their slots, and vectors.
An offset leads forward from where it is stored. Every one is checked against the bytes. Several may lead to one place,
so vectors are views of the bytes, and there is a limit to how many items a list may have.

Older converters know no BUCKETIZE, and write a custom operator ``Bucketize``, whose options are a FlexBuffer: a map
with a list ``boundaries``. It is read from its end, and offsets lead backward.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, UnsupportedError

_IDENTIFIER: Final = b"TFL3"
_VERSION: Final = 3
# Enough for any table of the schema.
_SLOTS: Final = 64
# The usual model has 500 tensors and 250 operators, one of which has 70 inputs.
_MOST_TABLES: Final = 4096
_MOST_NUMBERS: Final = 1024
_LONGEST_NAME: Final = 1000
# Older readers take a code above 127 for this one.
_PLACEHOLDER: Final = 127

# TensorType: the element types with fixed sizes that are read here.
_FLOAT: Final = 0
_TYPES: Final[dict[int, np.dtype[Any]]] = {
    _FLOAT: np.dtype("<f4"),
    2: np.dtype("<i4"),
    4: np.dtype("<i8"),
    6: np.dtype("?"),
}

# BuiltinOperator: the operators by their codes.
_OPERATORS: Final = {
    2: "CONCATENATION",
    9: "FULLY_CONNECTED",
    18: "MUL",
    19: "RELU",
    22: "RESHAPE",
    43: "SQUEEZE",
    53: "CAST",
    55: "MAXIMUM",
    56: "ARG_MAX",
    57: "MINIMUM",
    70: "EXPAND_DIMS",
    147: "BUCKETIZE",
}
_CUSTOM: Final = 32
# ActivationFunctionType, and where it is among an operator's options.
_ACTIVATIONS: Final = {0: "NONE", 1: "RELU"}
# Which of the tables of options (BuiltinOptions) an operator has, where they are read.
_OPTIONS: Final = {"CONCATENATION": 10, "FULLY_CONNECTED": 8, "MUL": 21, "BUCKETIZE": 115}
_ACTIVATION_SLOTS: Final = {"CONCATENATION": 1, "FULLY_CONNECTED": 0, "MUL": 0}


@dataclass(frozen=True, slots=True)
class _TfliteTensor:
    """A tensor: its name, whether its numbers are of single precision, and their values if they are constant."""

    name: str
    is_float: bool
    constant: NDArray[Any] | None


@dataclass(frozen=True, slots=True)
class TfliteOperator:
    """An operator: its name in the schema, the numbers of its tensors, and what its options say.

    ``boundaries`` are those of BUCKETIZE.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    activation: str = "NONE"
    boundaries: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class TfliteModel:
    """A model's only subgraph; the operators are in the order of their execution."""

    tensors: tuple[_TfliteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[TfliteOperator, ...]


def parse_tflite(data: bytes) -> TfliteModel:
    """Read a model.

    Raises:
        UnsupportedError: the bytes are no model of this version, or it has operators that are not read here.
        FormatError: the bytes are damaged.
    """
    if data[4:8] != _IDENTIFIER:
        raise UnsupportedError(f"expected a TFLite model, which has {_IDENTIFIER.decode()} at byte 4")
    try:
        return _parse(memoryview(data))
    except (struct.error, ValueError, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise FormatError(f"not a whole TFLite model: {error}") from None


def _parse(data: memoryview) -> TfliteModel:
    model = _Table(data, struct.unpack_from("<I", data)[0])
    if (version := model.number(0, "I")) != _VERSION:
        raise UnsupportedError(f"expected a TFLite model of version {_VERSION}, found {version}")
    codes = [_operator_name(code) for code in model.tables(1)]
    graphs = model.tables(2)
    if len(graphs) != 1:
        raise UnsupportedError(f"expected one subgraph, found {len(graphs)}")
    (graph,) = graphs
    buffers = model.tables(4)
    tensors = tuple(_tensor(table, buffers) for table in graph.tables(0))
    operators = tuple(_operator(table, codes) for table in graph.tables(3))
    inputs, outputs = graph.numbers(1), graph.numbers(2)
    for numbers in (inputs, outputs, *((*operator.inputs, *operator.outputs) for operator in operators)):
        for number in numbers:
            if not -1 <= number < len(tensors):  # -1: an optional input that is not there
                raise FormatError(f"expected one of {len(tensors)} tensors, found number {number}")
    return TfliteModel(tensors, inputs, outputs, operators)


def _operator_name(code: _Table) -> str:
    old, new = code.number(0, "b"), code.number(3, "i")
    number = new if old == _PLACEHOLDER or new > old else old
    name = code.text(1)
    if number == _CUSTOM and name.upper() == "BUCKETIZE":
        return "BUCKETIZE"
    if number not in _OPERATORS:
        raise UnsupportedError(f"an operator that is not read here: {ascii(name)[:60] if name else f'code {number}'}")
    return _OPERATORS[number]


def _tensor(table: _Table, buffers: list[_Table]) -> _TfliteTensor:
    name, kind = table.text(3), table.number(1, "b")
    values = buffers[table.number(2, "I")].bytes(0)
    if not values:
        return _TfliteTensor(name, kind == _FLOAT, None)
    if kind not in _TYPES:
        raise UnsupportedError(f"{ascii(name)[:60]}: constants of type {kind}, expected float32, int32 or int64")
    return _TfliteTensor(name, kind == _FLOAT, np.frombuffer(values, _TYPES[kind]).reshape(table.numbers(0)))


def _operator(table: _Table, codes: list[str]) -> TfliteOperator:
    name = codes[table.number(0, "I")]
    options = table.table(4) if name in _OPTIONS else None
    if options is not None and (kind := table.number(3, "B")) != _OPTIONS[name]:
        raise FormatError(f"{name}: expected its own options, found those of number {kind}")
    activation, boundaries = "NONE", None
    if options is not None and name in _ACTIVATION_SLOTS:
        number = options.number(_ACTIVATION_SLOTS[name], "b")
        if number not in _ACTIVATIONS:
            raise UnsupportedError(f"{name}: activation function {number}, expected none or relu")
        activation = _ACTIVATIONS[number]
    if options is not None and name == "BUCKETIZE":
        boundaries = np.frombuffer(options.bytes(0, size=4), "<f4")
    elif name == "BUCKETIZE":
        boundaries = _flex_floats(table.bytes(5), b"boundaries")
    return TfliteOperator(name, table.numbers(1), table.numbers(2), activation, boundaries)


# FlexBuffer's types: a map, and a list of floats. The two low bits of a type's byte are the width of its items, as a
# power of two.
_FLEX_MAP: Final = 9
_FLEX_FLOATS: Final = 13
_WIDTHS: Final = "BHIQ"


def _flex_floats(data: memoryview, key: bytes) -> NDArray[np.float32]:
    """Return a list of floats in a FlexBuffer that is a map."""

    def number(place: int, width: int) -> int:
        if not 0 <= place < len(data):
            raise ValueError(f"a FlexBuffer's item at byte {place} of {len(data)}")
        return int(struct.unpack_from(f"<{_WIDTHS[width]}", data, place)[0])

    def target(place: int, width: int) -> int:
        return place - number(place, width)

    root, size = data[-2], data[-1]
    if root >> 2 != _FLEX_MAP:
        raise UnsupportedError("Bucketize: expected a map of options")
    width, end = root & 3, len(data) - 2
    place = target(end - size, size.bit_length() - 1)
    step = 1 << width
    count = number(place - step, width)
    if count > _SLOTS:
        raise ValueError(f"a map of {count} items")
    keys, key_width = target(place - 3 * step, width), number(place - 2 * step, width).bit_length() - 1
    for item in range(count):
        name = target(keys + (item << key_width), key_width)
        if bytes(data[name : name + len(key) + 1]) == key + b"\0":
            kind = number(place + count * step + item, 0)
            values = target(place + item * step, width)
            if kind != _FLEX_FLOATS << 2 | 2:
                raise UnsupportedError(f"Bucketize: boundaries of type {kind}, expected floats of four bytes")
            length = number(values - 4, 2)
            return np.frombuffer(data[values : values + 4 * length], "<f4", length)
    raise UnsupportedError("Bucketize: there are no boundaries among its options")


class _Table:
    """A table at a place in the bytes."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data = data
        self._place = place
        slots = place - struct.unpack_from("<i", data, place)[0]
        if slots < 0:
            raise ValueError(f"a table's slots are at byte {slots}")
        size = struct.unpack_from("<H", data, slots)[0]
        count = min(max(0, size - 4) // 2, _SLOTS)
        self._slots: tuple[int, ...] = struct.unpack_from(f"<{count}H", data, slots + 4)

    def _field(self, slot: int) -> int | None:
        """Return where a field is; None if it has its default value."""
        offset = self._slots[slot] if slot < len(self._slots) else 0
        return self._place + offset if offset else None

    def _target(self, slot: int) -> int | None:
        """Return where a field of another place leads to."""
        place = self._field(slot)
        return None if place is None else place + int(struct.unpack_from("<I", self._data, place)[0])

    def number(self, slot: int, kind: str) -> int:
        place = self._field(slot)
        return 0 if place is None else int(struct.unpack_from(f"<{kind}", self._data, place)[0])

    def text(self, slot: int) -> str:
        data = self.bytes(slot)
        if len(data) > _LONGEST_NAME:
            raise ValueError(f"a name of {len(data)} bytes")
        return str(data, "utf-8", "replace")

    def bytes(self, slot: int, *, size: int = 1) -> memoryview:
        """Return the bytes of a vector of elements of a size."""
        place = self._target(slot)
        if place is None:
            return memoryview(b"")
        begin = place + 4
        end = begin + size * int(struct.unpack_from("<I", self._data, place)[0])
        if end > len(self._data):
            raise ValueError(f"a vector at byte {place} ends at byte {end} of {len(self._data)}")
        return self._data[begin:end]

    def numbers(self, slot: int) -> tuple[int, ...]:
        data = self.bytes(slot, size=4)
        if len(data) > 4 * _MOST_NUMBERS:
            raise ValueError(f"a list of {len(data) // 4} numbers")
        return tuple(np.frombuffer(data, "<i4").tolist())

    def table(self, slot: int) -> _Table | None:
        place = self._target(slot)
        return None if place is None else _Table(self._data, place)

    def tables(self, slot: int) -> list[_Table]:
        place = self._target(slot)
        if place is None:
            return []
        data = self.bytes(slot, size=4)
        if len(data) > 4 * _MOST_TABLES:
            raise ValueError(f"a list of {len(data) // 4} tables")
        offsets = np.frombuffer(data, "<u4").tolist()
        return [_Table(self._data, place + 4 + 4 * number + offset) for number, offset in enumerate(offsets)]
