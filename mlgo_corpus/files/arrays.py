"""Arrow arrays made from their buffers, and read from them.

pyarrow's own ``pa.array``, ``pa.scalar`` (with all that takes a Python value) and ``to_numpy`` import pandas wherever
that is installed: a quarter of a second in every process that writes or reads a table of ten rows. The layout of the
buffers is in Arrow's specification ("Columnar Format").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


def numbers(kind: pa.DataType, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array of numbers without copying them; ``valid`` marks those that are not null (default: all)."""
    import pyarrow as pa

    data = pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))
    return pa.Array.from_buffers(kind, len(values), [_bits(valid), data])


def numbers_or_null(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return an array of int64, float64 or truth values, of which any may be None."""
    import pyarrow as pa

    there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if pa.types.is_boolean(kind):
        truths = np.fromiter((bool(value) for value in values), np.bool_, len(values))
        return pa.Array.from_buffers(kind, len(values), [_bits(there), pa.py_buffer(_packed(truths))])
    width = np.float64 if pa.types.is_floating(kind) else np.int64
    kept = np.array([0 if value is None else value for value in values], width)
    return numbers(kind, kept, there)


def texts(kind: pa.DataType, values: Sequence[str | bytes | None]) -> pa.Array:
    """Return an array of text or bytes, of which any may be None.

    Raises:
        UnicodeEncodeError: text that cannot be UTF-8.
    """
    import pyarrow as pa

    encoded = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    offsets = np.fromiter(accumulate(map(len, encoded), initial=0), np.int64, len(values) + 1)
    if offsets[-1] > np.iinfo(np.int32).max:
        return pa.array(values, kind)  # it splits what is too long for one array into chunks, or raises
    there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    buffers = [_bits(there), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def large_binaries(values: Sequence[bytes | None]) -> pa.Array:
    """Return an array of bytes, of which any may be None; together they may exceed 2 GiB."""
    import pyarrow as pa

    there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    offsets = np.fromiter(accumulate((len(value or b"") for value in values), initial=0), np.int64, len(values) + 1)
    data = values[0] if len(values) == 1 else b"".join(value or b"" for value in values)
    buffers = [_bits(there), pa.py_buffer(offsets), pa.py_buffer(data or b"")]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def lists_of_text(kind: pa.DataType, values: Sequence[Sequence[str] | None]) -> pa.Array:
    """Return an array of lists of text, of which any may be None."""
    import pyarrow as pa

    there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    offsets = np.fromiter(accumulate((len(value or ()) for value in values), initial=0), np.int32, len(values) + 1)
    elements = texts(kind.value_type, [text for value in values for text in value or ()])
    buffers = [_bits(there), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[elements])


def text(value: str) -> pa.Scalar:
    """Return a text for functions that take a scalar."""
    import pyarrow as pa

    return texts(pa.string(), [value])[0]


def numbers_in(values: pa.Array) -> NDArray[Any]:
    """Return an array's numbers without copying them.

    Raises:
        ValueError: one is null.
    """
    if values.null_count:
        raise ValueError(f"{values.null_count} of {len(values)} values are missing")
    kind = np.dtype(values.type.to_pandas_dtype())
    if not len(values):
        return np.empty(0, kind)
    return np.frombuffer(values.buffers()[1], kind, values.offset + len(values))[values.offset :]


def integers_of(values: pa.Array, null: int) -> NDArray[np.int64]:
    """Return an integer array's values, with ``null`` in place of nulls."""
    if not len(values):
        return np.empty(0, np.int64)
    validity, data = values.buffers()
    stop = values.offset + len(values)
    found = np.frombuffer(data, values.type.to_pandas_dtype(), stop)[values.offset :].astype(np.int64)
    if not values.null_count or validity is None:
        return found
    there = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[values.offset : stop].astype(np.bool_)
    return np.where(there, found, null)


def lengths_of(values: pa.Array) -> NDArray[np.int64]:
    """Return the length of each text in bytes; any number for a null."""
    import pyarrow as pa

    if not len(values):
        return np.empty(0, np.int64)
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    starts = np.frombuffer(values.buffers()[1], np.int64 if wide else np.int32, values.offset + len(values) + 1)
    return np.diff(starts[values.offset :]).astype(np.int64)


def as_table(frame: Any, wanted: Sequence[str]) -> pa.Table | pa.RecordBatch:
    """Return an Arrow table or record batch as it is, and one of what else ``pyarrow.table`` takes.

    Args:
        frame: a table, a record batch, or a data frame of pandas or polars.
        wanted: the columns that are needed; of a data frame, others are left out.

    Raises:
        UsageError: it is no table.
    """
    import pyarrow as pa

    if isinstance(frame, pa.Table | pa.RecordBatch):
        return frame
    try:
        if hasattr(frame, "columns"):
            there = list(frame.columns)
            frame = frame[[name for name in dict.fromkeys(wanted) if name in there]]
        return pa.table(frame)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        message = f"expected a table of Arrow, pandas or polars, found a {type(frame).__name__}"
        raise UsageError(f"{message}: {error}".splitlines()[0]) from None


def _bits(valid: NDArray[np.bool_] | None) -> pa.Buffer | None:
    import pyarrow as pa

    return None if valid is None or valid.all() else pa.py_buffer(_packed(valid))


def _packed(truths: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(truths, bitorder="little")
