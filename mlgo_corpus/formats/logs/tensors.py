"""TensorSpec: a tensor's name, element type and shape, as LLVM describes its models' inputs and outputs.

In JSON a spec is ``{"name":"mask","type":"int64_t","port":0,"shape":[1,33]}`` (llvm/lib/Analysis/TensorSpec.cpp).
``port`` distinguishes several outputs of one TensorFlow operation; it does not affect the bytes. A tensor's values
are stored row-major in the byte order of the machine that wrote them, without padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mlgo_corpus.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

ELEMENT_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int8_t": np.dtype(np.int8),
    "uint8_t": np.dtype(np.uint8),
    "int16_t": np.dtype(np.int16),
    "uint16_t": np.dtype(np.uint16),
    "int32_t": np.dtype(np.int32),
    "uint32_t": np.dtype(np.uint32),
    "int64_t": np.dtype(np.int64),
    "uint64_t": np.dtype(np.uint64),
}
"""LLVM's element types (``SUPPORTED_TENSOR_TYPES`` of llvm/Analysis/TensorSpec.h) and numpy's types for them."""

MAX_TENSOR_BYTES: Final = 64 << 20
"""The largest tensor that is accepted. LLVM's largest has a few kilobytes."""

MAX_DIMENSIONS: Final = 31
"""The most dimensions that are accepted. LLVM has two; arrays of numpy 1 have 32, and one is for the observations."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: ``name``, ``type`` (a key of `ELEMENT_TYPES`), ``shape`` (dimensions of at least 1), ``port``.

    Raises:
        FormatError: the name is not Unicode text, the type is unknown, a dimension is less than 1, there are more
            than `MAX_DIMENSIONS` dimensions, or the tensor is larger than `MAX_TENSOR_BYTES`.
    """

    name: str
    type: str = "int64_t"
    shape: tuple[int, ...] = (1,)
    port: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        what = f"tensor {shown(self.name)}"
        if not is_text(self.name):
            raise FormatError(f"{what}: the name is not Unicode text")
        if self.type not in ELEMENT_TYPES:
            raise FormatError(f"{what}: unknown type {shown(self.type)}, expected one of {', '.join(ELEMENT_TYPES)}")
        if len(self.shape) > MAX_DIMENSIONS:
            raise FormatError(f"{what}: expected at most {MAX_DIMENSIONS} dimensions, found {len(self.shape)}")
        for dimension in self.shape:
            if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
                raise FormatError(f"{what}: expected dimensions of at least 1, found {shown(list(self.shape))}")
        if self.nbytes > MAX_TENSOR_BYTES:
            raise FormatError(
                f"{what}: a shape of {shown(list(self.shape))} means more than {MAX_TENSOR_BYTES >> 20} MiB"
            )

    @property
    def element_count(self) -> int:
        """The number of elements: the product of the dimensions, 1 for an empty shape."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of one element, for numpy."""
        return ELEMENT_TYPES[self.type]

    @property
    def nbytes(self) -> int:
        """The size of the tensor in bytes."""
        return self.element_count * self.dtype.itemsize

    @property
    def is_scalar(self) -> bool:
        """Whether the tensor has one element, whatever its shape: then its column in a table is not a list."""
        return self.element_count == 1

    @property
    def arrow_type(self) -> pa.DataType:
        """The column's type in a table: the element's own, or a fixed-size list of it (row-major)."""
        import pyarrow as pa

        element = pa.from_numpy_dtype(self.dtype)
        if self.is_scalar:
            return element
        return pa.list_(pa.field("element", element, nullable=False), self.element_count)

    def as_json(self) -> dict[str, Any]:
        """Return the spec as JSON values, keys in LLVM's order."""
        return {"name": self.name, "type": self.type, "port": self.port, "shape": list(self.shape)}

    def __str__(self) -> str:
        return f"{shown(self.name)} {self.type} {list(self.shape)}"


def parse_spec(value: Any, what: str) -> TensorSpec:
    """Make a spec from its JSON value; ``what`` names it in errors. Unknown keys are ignored.

    Raises:
        FormatError: the value is not a spec, or `TensorSpec` does not accept it.
    """
    if not isinstance(value, dict):
        raise FormatError(f"{what}: expected an object with name, type, port and shape, found {shown(value)}")
    name, kind, port, shape = (value.get(key) for key in ("name", "type", "port", "shape"))
    if not isinstance(name, str) or not isinstance(kind, str):
        raise FormatError(f"{what}: expected text for name and type, found {shown(name)} and {shown(kind)}")
    if not isinstance(port, int) or isinstance(port, bool):
        raise FormatError(f"{what} {shown(name)}: expected a whole number for port, found {shown(port)}")
    if not isinstance(shape, list):
        raise FormatError(f"{what} {shown(name)}: expected a list for shape, found {shown(shape)}")
    return TensorSpec(name, kind, tuple(shape), port)


def is_text(value: str) -> bool:
    """Return True if a string can be encoded in UTF-8: strings from JSON can contain lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """Format an untrusted value for an error message: on one line, quoted, and shortened."""
    try:
        text = ascii(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return f"{type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."
