"""The inputs of a model of native size, taken from a table of functions.

A feature of such a model is one of these:

- ``ir2native_vector``: the numbers that LLVM's IR2Native model takes, in its order: the list column of that name, or
  the columns of the group ``ir2native``;
- the name of a column of numbers or truth values;
- ``has_COLUMN``: 1 if a column of text is not null;
- ``COLUMN_is_VALUE``: 1 if a column of text has this value: ``linkage_is_internal``, ``opt_level_is_z``;
  ``target_is_x86_64`` is about the first part of ``target_triple``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.sizes.table import ATTRIBUTES, IR2NATIVE_COLUMNS, PROPERTIES, VECTOR
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.parquet import texts_of
from mlgo_corpus.formats.ir.operands import OPERAND_NAMES
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.models import Doubles

if TYPE_CHECKING:
    import pyarrow as pa

_VECTOR_SPEC: Final = TensorSpec(VECTOR, "int32_t", (len(IR2NATIVE_COLUMNS),))

_TARGET: Final = "target_triple"
_VALUES: Final = {"linkage": "linkage", "opt_level": "opt_level", "target": _TARGET}
_PRESENT: Final = ("comdat", "section")
# The values that can be part of a feature's name. Others, such as that of an unknown target, do not become features.
_WORD: Final = re.compile(r"[A-Za-z0-9_]{1,40}", re.ASCII)
# More different values than these are no categories.
_MOST_VALUES: Final = 32


def columns_of(features: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the columns of a table that features are taken from; of the vector, its group's."""
    found: list[str] = []
    for spec in features:
        if spec.name == VECTOR:
            found += IR2NATIVE_COLUMNS
        else:
            found.append(_source_of(spec.name)[0])
    return tuple(dict.fromkeys(found))


def names_of(features: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the names of a model's inputs: of the vector, those of its numbers."""
    return tuple(name for spec in features for name in (IR2NATIVE_COLUMNS if spec.name == VECTOR else (spec.name,)))


def choose_features(tables: Sequence[pa.Table], groups: Iterable[str]) -> tuple[TensorSpec, ...]:
    """Return the features that a model of some tables can have: those of the groups that all tables have.

    Raises:
        UsageError: a table does not have a group at all.
    """
    there = set.intersection(*(set(table.schema.names) for table in tables))
    found: list[TensorSpec] = []
    for group in groups:
        if group == "ir2native":
            own = [_VECTOR_SPEC] if VECTOR in there or there.issuperset(IR2NATIVE_COLUMNS) else []
        elif group in ("llvm", "operands"):
            names = PROPERTIES if group == "llvm" else OPERAND_NAMES
            own = [TensorSpec(name) for name in names if name in there]
        else:
            own = [TensorSpec(name) for name in _context_features(tables, there)]
        if not own:
            raise UsageError(f"a table does not have the features of {group}", option="features", value=group)
        found += own
    return tuple(found)


def _context_features(tables: Sequence[pa.Table], there: set[str]) -> list[str]:
    names = [name for name in ATTRIBUTES if name in there]
    names += [f"has_{column}" for column in _PRESENT if column in there]
    for prefix, column in _VALUES.items():
        if column in there:
            values = {_word(column, text) for table in tables for text in set(texts_of(table.column(column)))}
            known = sorted(value for value in values if value is not None)
            names += [f"{prefix}_is_{value}" for value in known[:_MOST_VALUES]]
    return names


def inputs_of(table: pa.Table | pa.RecordBatch, features: Sequence[TensorSpec]) -> Doubles:
    """Return the inputs of each row of a table.

    Raises:
        UsageError: a column is missing, or is not of numbers.
    """
    if not table.num_rows:
        return np.empty((0, len(names_of(features))))
    return np.column_stack([_values(table, spec) for spec in features])


def _values(table: pa.Table | pa.RecordBatch, spec: TensorSpec) -> NDArray[Any]:
    there = table.schema.names
    if spec.name == VECTOR:
        if VECTOR in there:
            return _vectors(table.column(there.index(VECTOR)))
        return np.column_stack([_numbers(table, name) for name in IR2NATIVE_COLUMNS])
    column, value = _source_of(spec.name)
    if value is None:
        return _numbers(table, column)
    texts = texts_of(_column(table, column))
    if not value:
        return np.array([text is not None for text in texts], np.float64)
    return np.array([_word(column, text) == value for text in texts], np.float64)


def _source_of(name: str) -> tuple[str, str | None]:
    """Return the column of a feature, and what it is asked for: a value, empty for any; None for its numbers."""
    prefix, is_value, value = name.partition("_is_")
    if is_value and prefix in _VALUES:
        return _VALUES[prefix], value
    if name.startswith("has_") and name[4:] in _PRESENT:
        return name[4:], ""
    return name, None


def _word(column: str, text: Any) -> str | None:
    """Return a value as it stands in a feature's name; None if it cannot."""
    if not isinstance(text, str):
        return None
    word = text.partition("-")[0] if column == _TARGET else text
    return word if _WORD.fullmatch(word) else None


def _column(table: pa.Table | pa.RecordBatch, name: str) -> Any:
    if name not in table.schema.names:
        raise UsageError(f"the model needs the column {name!r}, which the table does not have")
    return table.column(table.schema.names.index(name))


def _numbers(table: pa.Table | pa.RecordBatch, name: str) -> Doubles:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _column(table, name)
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise UsageError(f"the model needs numbers in the column {name!r}, found {column.type}")
    if column.null_count:
        raise UsageError(f"the model needs a number in each row of the column {name!r}, found null")
    return np.asarray(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy(), np.float64
    )


def _vectors(column: Any) -> Doubles:
    import pyarrow as pa

    width = len(IR2NATIVE_COLUMNS)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    values = column.flatten() if is_list else None
    if values is None or not pa.types.is_integer(values.type) or column.null_count or values.null_count:
        raise UsageError(f"the model needs lists of {width} integers in the column {VECTOR!r}, found {kind}")
    if len(values) != width * len(column):
        raise UsageError(f"the model needs {width} numbers in each row of the column {VECTOR!r}, found others")
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64).reshape(-1, width)
