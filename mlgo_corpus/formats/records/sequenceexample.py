r"""SequenceExample: steps of named features, as TensorFlow's protocol buffer of that name holds them.

The messages (tensorflow/core/example/{example,feature}.proto); of the first one, ml-compiler-opt's traces use only the
second field::

    SequenceExample  1: Features context      2: FeatureLists feature_lists
    FeatureLists     1: map<string, FeatureList> feature_list
    FeatureList      1: repeated Feature feature                      one for each step
    Feature          oneof 1: BytesList  2: FloatList  3: Int64List   the step's tensor, flattened row-major
    FloatList        1: repeated float value (packed)
    Int64List        1: repeated int64 value (packed)
    Features         1: map<string, Feature> feature

In bytes, a step of an int64 feature whose value is 300, with lengths and numbers as base-128 varints::

    0a 06           FeatureList.feature, 6 bytes
    1a 04           Feature.int64_list, 4 bytes
    0a 02           Int64List.value, packed, 2 bytes
    ac 02           300; a negative number takes ten bytes

and a step of a float feature: ``0a 08 12 06 0a 04`` and the float, little-endian. A list is the entry of a map: ``0a``,
its length, ``0a`` with the key, ``12`` with the steps. The order of a map's entries is free; here they are sorted by
the bytes of their keys, which protobuf calls deterministic. So the bytes are equal to those of its own encoders.

`encode_integers` and `encode_floats` encode a column of any number of steps in numpy, without Python code for each
step; a list of steps is a slice of the result. `parse_sequence_example` is the plain reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, TruncatedError

MAX_MESSAGE_BYTES: Final = (1 << 31) - 1
"""The largest message that protobuf's readers accept."""

# Keys of fields: their number, and wire type 2, which has a length.
_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"
_FLOAT_LIST, _INT64_LIST = _FIELD_2, _FIELD_3

# Values below this are encoded in one or two bytes.
_SMALL = 1 << 14
_SCALAR_HEADER_BYTES = 6


@dataclass(frozen=True, slots=True)
class Steps:
    """The encoded steps of one feature: ``data``, and the offsets at which each step begins and the last one ends."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]


@lru_cache(maxsize=1 << 14)
def varint(number: int) -> bytes:
    """Encode a number of at least 0."""
    if number < 128:
        return bytes((number,))
    encoded = bytearray()
    while number >= 128:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@lru_cache(maxsize=4096)
def _step_header(kind: bytes, size: int) -> bytes:
    """Return the bytes that precede the ``size`` bytes of a step's values."""
    values = _FIELD_1 + varint(size)
    inner = kind + varint(len(values) + size)
    return _FIELD_1 + varint(len(inner) + len(values) + size) + inner + values


def list_header(key: bytes, size: int) -> bytes:
    """Return the bytes that precede the ``size`` bytes of a list's steps; ``key`` is the list's name."""
    encoded = varint(size)
    name = _entry_key(key)
    return b"".join((_FIELD_1, varint(len(name) + len(encoded) + size), name, encoded))


@lru_cache(maxsize=1 << 10)
def _entry_key(key: bytes) -> bytes:
    return b"".join((_FIELD_1, varint(len(key)), key, _FIELD_2))


def example_header(size: int) -> bytes:
    """Return the bytes that precede the ``size`` bytes of all lists."""
    return _FIELD_2 + varint(size)


def float_step(value: float) -> bytes:
    """Encode a step of one float; a value too large for float32 becomes infinite."""
    with np.errstate(over="ignore"):
        return _step_header(_FLOAT_LIST, 4) + np.float32(value).tobytes()


def encode_floats(values: NDArray[np.floating[Any]]) -> Steps:
    """Encode steps of shape (n, k), k at least 1; float64 is rounded to float32, too large numbers to infinity."""
    count, width = values.shape
    header = _step_header(_FLOAT_LIST, 4 * width)
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values, "<f4")
    size = len(header) + 4 * width
    record = np.dtype([("header", f"V{len(header)}"), ("values", f"V{4 * width}")])
    steps = np.empty(count, record)
    steps["header"] = np.void(header)
    steps["values"] = numbers.view(f"V{4 * width}").reshape(count)
    return Steps(steps.view(np.uint8), np.arange(count + 1, dtype=np.int64) * size)


def encode_integers(values: NDArray[np.integer[Any]]) -> Steps:
    """Encode steps of shape (n, k), k at least 1.

    Raises:
        OverflowError: a number does not fit int64: a uint64 of 2**63 or more.
    """
    count, width = values.shape
    largest = int(values.max()) if count else 0
    if largest >= 1 << 63:
        raise OverflowError(f"{largest} is no int64")
    numbers = np.ascontiguousarray(values, np.int64).view(np.uint64)
    most = int(numbers.max()) if count else 0
    if most < 128:  # the most frequent case by far
        header = _step_header(_INT64_LIST, width)
        steps = np.empty((count, len(header) + width), np.uint8)
        steps[:, : len(header)] = np.frombuffer(header, np.uint8)
        steps[:, len(header) :] = numbers
        return Steps(steps.reshape(-1), np.arange(count + 1, dtype=np.int64) * steps.shape[1])
    return _encode_scalars(numbers[:, 0], most) if width == 1 else _encode_tensors(numbers, most)


def _varint_sizes(numbers: NDArray[np.uint64], most: int) -> NDArray[np.uint8]:
    sizes = np.ones(numbers.shape, np.uint8)
    for bits in range(7, most.bit_length(), 7):
        sizes += numbers >= np.uint64(1 << bits)
    return sizes


def _offsets(sizes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _varints(numbers: NDArray[np.uint64], size: int) -> NDArray[np.uint8]:
    """Encode numbers of one size, of shape (n,), as (n, size)."""
    encoded = np.empty((len(numbers), size), np.uint8)
    for index in range(size):
        encoded[:, index] = numbers >> np.uint64(7 * index)
    encoded[:, :-1] |= np.uint8(128)
    encoded[:, -1] &= np.uint8(127)
    return encoded


@lru_cache(maxsize=1)
def _small_steps() -> NDArray[np.uint64]:
    """Return the steps of all numbers below 2**14, in eight bytes each.

    Steps of seven bytes are followed by the byte with which the next step begins, so that it may be written twice.
    """
    numbers = np.arange(_SMALL, dtype=np.uint64)
    steps = np.empty((_SMALL, 8), np.uint8)
    for size, part in ((1, slice(0, 128)), (2, slice(128, _SMALL))):
        header = _step_header(_INT64_LIST, size)
        steps[part, : len(header)] = np.frombuffer(header, np.uint8)
        steps[part, len(header) : len(header) + size] = _varints(numbers[part], size)
    steps[:128, 7] = _FIELD_1[0]
    return steps.view(np.uint64).reshape(_SMALL)


def _encode_scalars(numbers: NDArray[np.uint64], most: int) -> Steps:
    sizes = _varint_sizes(numbers, most)
    offsets = _offsets(sizes)
    offsets += np.arange(0, _SCALAR_HEADER_BYTES * len(offsets), _SCALAR_HEADER_BYTES, dtype=np.int64)
    data = np.empty(int(offsets[-1]) + 1, np.uint8)  # one more byte, for the eighth of the last step
    starts = offsets[:-1]
    if most < _SMALL:
        _at(data, 8, np.uint64)[starts] = _small_steps()[numbers]
        return Steps(data[:-1], offsets)
    small = np.flatnonzero(sizes <= 2)
    if len(small):
        _at(data, 8, np.uint64)[starts[small]] = _small_steps()[numbers[small]]
    for size in range(3, int(sizes.max()) + 1):
        rows = np.flatnonzero(sizes == size)
        if len(rows):
            header = _step_header(_INT64_LIST, size)
            steps = np.empty((len(rows), len(header) + size), np.uint8)
            steps[:, : len(header)] = np.frombuffer(header, np.uint8)
            steps[:, len(header) :] = _varints(numbers[rows], size)
            _put(data[:-1], starts[rows], steps)
    return Steps(data[:-1], offsets)


def _encode_tensors(numbers: NDArray[np.uint64], most: int) -> Steps:
    sizes = _varint_sizes(numbers, most)
    payloads = sizes.sum(axis=1, dtype=np.int64)
    kinds, which = np.unique(payloads, return_inverse=True)
    headers = [_step_header(_INT64_LIST, size) for size in kinds.tolist()]
    header_sizes = np.array([len(header) for header in headers], np.int64)[which]
    offsets = _offsets(header_sizes + payloads)
    data = np.empty(int(offsets[-1]), np.uint8)
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(len(kinds) + 1)).tolist()
    for header, first, after in zip(headers, edges[:-1], edges[1:], strict=True):
        rows = order[first:after]
        _put(data, offsets[rows], np.broadcast_to(np.frombuffer(header, np.uint8), (len(rows), len(header))))
    ends = np.cumsum(sizes, axis=1, dtype=np.int64)
    starts = (ends - sizes + (offsets[:-1] + header_sizes)[:, None]).reshape(-1)
    flat, flat_sizes = numbers.reshape(-1), sizes.reshape(-1)
    for size in range(1, int(sizes.max()) + 1):
        places = np.flatnonzero(flat_sizes == size)
        if len(places):
            _put(data, starts[places], _varints(flat[places], size))
    return Steps(data, offsets)


def _at(data: NDArray[np.uint8], size: int, kind: Any) -> NDArray[Any]:
    """Return a view of bytes as overlapping items of ``size`` bytes, one of which begins at each byte."""
    return np.ndarray((len(data) - size + 1,), kind, data.data, 0, (1,))


def _put(data: NDArray[np.uint8], places: NDArray[np.int64], pieces: NDArray[np.uint8]) -> None:
    """Write pieces of one size, of shape (n, size), to places in ``data`` that do not overlap."""
    size = pieces.shape[1]
    item = np.dtype(f"V{size}")
    _at(data, size, item)[places] = np.ascontiguousarray(pieces).view(item).reshape(len(places))


Values = NDArray[Any] | tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SequenceExample:
    """The contents of a message.

    Attributes:
        feature_lists: each feature's steps: float32 or int64 values, of shape (k,), or a tuple of bytes.
        context: the values of each feature that does not change.
    """

    feature_lists: dict[str, tuple[Values, ...]] = field(default_factory=dict)
    context: dict[str, Values] = field(default_factory=dict)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the features whose steps all have the same number of values, as arrays of shape (steps, k)."""
        found = {}
        for name, steps in self.feature_lists.items():
            if all(isinstance(step, np.ndarray) for step in steps) and len({len(step) for step in steps}) == 1:
                found[name] = np.stack([np.asarray(step) for step in steps])
        return found


def parse_sequence_example(data: bytes) -> SequenceExample:
    """Read a message; unknown fields are skipped, as protobuf's readers do.

    Raises:
        FormatError: the data is not such a message; has the offset.
    """
    example = SequenceExample()
    for number, part, _ in _fields(data, 0, len(data)):
        if number == 1:
            for _, entry, _ in _wanted(data, part, 1):
                key, value = _entry(data, entry)
                example.context[key] = _feature(data, value)
        elif number == 2:
            for _, entry, _ in _wanted(data, part, 1):
                key, value = _entry(data, entry)
                steps = () if value is None else tuple(_feature(data, step) for _, step, _ in _wanted(data, value, 1))
                example.feature_lists[key] = steps
    return example


_Part = tuple[int, int]


def _entry(data: bytes, part: _Part) -> tuple[str, _Part | None]:
    key, value = "", None
    for number, inner, _ in _fields(data, *part):
        if number == 1:
            try:
                key = data[slice(*inner)].decode()
            except UnicodeDecodeError:
                raise FormatError("reading a feature's name, expected UTF-8", offset=inner[0]) from None
        elif number == 2:
            value = inner
    return key, value


def _feature(data: bytes, part: _Part | None) -> Values:
    values: Values = np.empty(0, np.float32)
    for number, inner, _ in () if part is None else _fields(data, *part):
        if number == 1:
            values = tuple(data[slice(*each)] for _, each, _ in _wanted(data, inner, 1))
        elif number == 2:
            values = _floats(data, inner)
        elif number == 3:
            values = np.array(list(_integers(data, inner)), np.uint64).view(np.int64)
    return values


def _floats(data: bytes, part: _Part) -> NDArray[np.float32]:
    found = b""
    for _, (first, after), wire in _fields(data, *part, numbers=(1,)):
        if wire not in (2, 5) or (after - first) % 4:
            raise FormatError(f"reading floats, expected multiples of 4 bytes, found {after - first}", offset=first)
        found += data[first:after]
    return np.frombuffer(found, "<f4").astype(np.float32)


def _integers(data: bytes, part: _Part) -> Iterator[int]:
    for _, (first, after), wire in _fields(data, *part, numbers=(1,)):
        if wire not in (0, 2):
            raise FormatError(f"reading integers, expected varints, found wire type {wire}", offset=first)
        while first < after:
            number, first = _varint(data, first, after)
            yield number


def _wanted(data: bytes, part: _Part, number: int) -> Iterator[tuple[int, _Part, int]]:
    for field_number, inner, wire in _fields(data, *part, numbers=(number,)):
        if wire != 2:
            raise FormatError(f"reading field {number}, expected a length, found wire type {wire}", offset=inner[0])
        yield field_number, inner, wire


def _fields(
    data: bytes, offset: int, end: int, numbers: Sequence[int] | None = None
) -> Iterator[tuple[int, _Part, int]]:
    """Yield each field's number, its value's place, and its wire type; by default only fields that have a length."""
    while offset < end:
        start = offset
        tag, offset = _varint(data, offset, end)
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in (0, 1, 2, 5):
            raise FormatError(f"reading a field, expected its number and type, found {tag}", offset=start)
        if wire == 0:
            _, after = _varint(data, offset, end)
        elif wire == 2:
            size, offset = _varint(data, offset, end)
            after = offset + size
        else:
            after = offset + {1: 8, 5: 4}[wire]
        if after > end:
            raise TruncatedError(
                f"reading field {number}, expected {after - offset} bytes, got {end - offset}", offset=start
            )
        if wire == 2 if numbers is None else number in numbers:
            yield number, (offset, after), wire
        offset = after


def _varint(data: bytes, offset: int, end: int) -> tuple[int, int]:
    number = shift = 0
    for at in range(offset, min(end, offset + 10)):
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number & ((1 << 64) - 1), at + 1
        shift += 7
    if end - offset >= 10:
        raise FormatError("reading a varint, expected at most 10 bytes", offset=offset)
    raise TruncatedError("reading a varint, expected more bytes, got the end", offset=offset)
