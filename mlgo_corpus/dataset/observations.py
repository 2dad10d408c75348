"""Observations as a table: one row per observation, columns in Arrow's memory layout.

The columns are ``module`` and ``context`` (dictionary-encoded text; a null context for observations before the first
context), ``observation`` (int64, its number in the log), the features in the header's order under LLVM's names, and
the score. A tensor of one element is a column of its own type; a larger one is a fixed-size list of its elements,
row-major, with its shape in the field's metadata: ``{"shape": "[1,33]"}``. Columns with a known meaning have it there,
too, under ``meaning``. Of inlining, the columns of `mlgo_corpus.dataset.calls` may follow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.calls import CALL_COLUMNS, Calls, call_fields, call_meanings
from mlgo_corpus.files import arrays
from mlgo_corpus.files.tables import with_meanings
from mlgo_corpus.formats.logs.blocks import Rows
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.meanings import describe
from mlgo_corpus.formats.logs.tasks import task_name
from mlgo_corpus.formats.logs.tensors import TensorSpec

if TYPE_CHECKING:
    import pyarrow as pa

KEY_MEANINGS: Final = {
    "module": "the module; the same name as in the table of modules",
    "context": "what was compiled: the function for register allocation; empty for inlining",
    "observation": "the decision's number in its context",
}
"""The meanings of the columns that every table of observations begins with."""

KEY_COLUMNS: Final = tuple(KEY_MEANINGS)

# Memory in which observations are gathered row by row before they are transposed: a part of the processor's
# second-level cache.
_STAGE_BYTES = 256 << 10
# A block of at least this number of rows is transposed directly.
_DIRECT_ROWS = 48

# The alignment that Arrow recommends for its buffers.
_ALIGNMENT = 64

Array = NDArray[Any]


def column_names(header: LogHeader) -> tuple[str, ...]:
    """Return the names of the columns of a header's features and score.

    They are LLVM's names. A name that is taken, by an earlier column or by one of `KEY_COLUMNS` or `CALL_COLUMNS`,
    gets a number: ``observation_2``.
    """
    taken = {*KEY_COLUMNS, *CALL_COLUMNS}
    numbers: dict[str, int] = {}  # the last number that each name got: many features may have one name
    names = []
    for spec in header.columns:
        name = spec.name
        while name in taken:
            numbers[spec.name] = number = numbers.get(spec.name, 1) + 1
            name = f"{spec.name}_{number}"
        taken.add(name)
        names.append(name)
    return tuple(names)


def observation_schema(
    header: LogHeader, metadata: dict[str, Any] | None = None, *, with_calls: bool = False
) -> pa.Schema:
    """Return the table's schema.

    Args:
        header: of the logs.
        metadata: goes into it as JSON under ``mlgo_corpus``.
        with_calls: whether it has the columns of `mlgo_corpus.dataset.calls`.
    """
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field("module", text, nullable=False),
        pa.field("context", text),
        pa.field("observation", pa.int64(), nullable=False),
    ]
    for name, spec in zip(column_names(header), header.columns, strict=True):
        shape = None if spec.is_scalar else {"shape": json.dumps(spec.shape, separators=(",", ":"))}
        fields.append(pa.field(name, spec.arrow_type, nullable=False, metadata=shape))
    fields += call_fields() if with_calls else ()
    schema = pa.schema(fields, None if metadata is None else {"mlgo_corpus": json.dumps(metadata)})
    task = task_name(header)
    said = ((name, describe(task, spec.name)) for name, spec in zip(column_names(header), header.columns, strict=True))
    meanings = {name: meaning for name, meaning in said if meaning is not None}
    return with_meanings(schema, {**KEY_MEANINGS, **meanings, **(call_meanings() if with_calls else {})})


def is_observation_schema(schema: pa.Schema, header: LogHeader) -> bool:
    """Return True if a table has a header's columns, with or without those of calls."""
    with_calls = tuple(schema.names[-len(CALL_COLUMNS) :]) == CALL_COLUMNS
    return bool(schema.equals(observation_schema(header, with_calls=with_calls)))


@dataclass(frozen=True, slots=True)
class _Group:
    """Adjacent columns of an observation that have one type: they are transposed together.

    ``of_score`` is True if they are in the score, False if in the tensors; ``offset`` is where they begin there.
    ``width`` is the number of columns, of one element each; 0 for a single column of larger tensors, which are copied
    whole.
    """

    of_score: bool
    offset: int
    width: int
    dtype: np.dtype[Any]

    def shape(self, rows: int) -> tuple[int, ...]:
        return (self.width, rows) if self.width else (rows,)

    def values(self, tensors: Array, scores: Array | None) -> Array:
        """Return a view of observations as this group's values: (rows, width), or (rows,) for larger tensors."""
        part = scores if self.of_score else tensors
        assert part is not None  # noqa: S101 - a header with a score comes with scores
        kind = np.dtype((self.dtype, (self.width,))) if self.width else self.dtype
        return part.getfield(kind, self.offset)


def _groups(header: LogHeader) -> tuple[_Group, ...]:
    groups = []
    offset = 0
    places = [(spec, index == len(header.features)) for index, spec in enumerate(header.columns)]
    for _, run in groupby(enumerate(places), lambda item: _group_key(item[0], *item[1])):
        members = [place for _, place in run]
        spec, of_score = members[0]
        if spec.is_scalar:
            group = _Group(of_score, 0 if of_score else offset, len(members), spec.dtype)
        else:
            group = _Group(of_score, 0 if of_score else offset, 0, np.dtype(f"V{spec.nbytes}"))
        groups.append(group)
        offset += sum(spec.nbytes for spec, _ in members)
    return tuple(groups)


def _group_key(index: int, spec: TensorSpec, of_score: bool) -> tuple[bool, str, int]:
    return (of_score, spec.type, -1 if spec.is_scalar else index)


def _allocate(groups: Sequence[_Group], rows: int) -> tuple[Array, ...]:
    """Allocate the columns' memory in one piece: large pieces come in large pages, which are a third faster to fill."""
    sizes = [int(np.prod(group.shape(rows))) * group.dtype.itemsize for group in groups]
    padded = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
    memory = np.empty(sum(padded), np.uint8)
    offsets = [0, *accumulate(padded)]
    return tuple(
        np.ndarray(group.shape(rows), group.dtype, memory.data, offset)
        if size
        else np.empty(group.shape(0), group.dtype)
        for group, size, offset in zip(groups, sizes, offsets, strict=False)
    )


class ObservationBuilder:
    """Collects observations into columns, up to ``capacity`` rows at a time.

    Rows come in blocks of raw bytes (`mlgo_corpus.formats.logs.blocks.Rows`); call `begin_module` and `begin_context`
    where modules and contexts begin. `take` returns the first rows as a record batch, without copying columns again.
    """

    def __init__(self, header: LogHeader, capacity: int, schema: pa.Schema | None = None) -> None:
        self.header = header
        self.capacity = capacity
        self.rows = 0
        self.schema = observation_schema(header) if schema is None else schema
        self._groups = _groups(header)
        self._columns: tuple[Array, ...] | None = None
        self._numbers: Array = np.empty(0, np.int64)
        self._stage_rows = min(capacity, max(1, _STAGE_BYTES // max(1, header.tensor_bytes + header.score_bytes)))
        self._direct_rows = min(_DIRECT_ROWS, self._stage_rows)
        self._staged = 0
        self._modules = Labels()
        self._contexts = Labels()
        self._calls = Calls() if self.schema.names[-1] == CALL_COLUMNS[-1] else None

    @cached_property
    def _stage(self) -> Array:
        return np.empty(self._stage_rows, f"V{self.header.tensor_bytes}")

    @cached_property
    def _score_stage(self) -> Array | None:
        return None if self.header.score is None else np.empty(self._stage_rows, f"V{self.header.score_bytes}")

    @property
    def room(self) -> int:
        """The number of rows that still fit."""
        return self.capacity - self.rows

    def begin_module(self, name: str, calls: pa.RecordBatch | None = None) -> None:
        """Set the module of the next rows, which have no context yet, and the columns of their calls."""
        self._modules.begin(name, self.rows)
        self._contexts.begin(None, self.rows)
        if self._calls is not None and calls is not None:
            self._calls.begin(calls, self.rows)

    def begin_context(self, name: str) -> None:
        """Set the context of the next rows."""
        self._contexts.begin(name, self.rows)

    def append(self, rows: Rows) -> None:
        """Add rows; there must be room for them."""
        count = len(rows.tensors)
        if self._columns is None:
            self._columns = self._make_columns()
        self._numbers[self.rows : self.rows + count] = rows.number + np.arange(count, dtype=np.int64)
        if count >= self._direct_rows or count > self._stage_rows - self._staged:
            self._transpose()
        if count >= self._direct_rows:
            self._copy(rows.tensors, rows.scores, self.rows)
        else:
            staged = slice(self._staged, self._staged + count)
            if self.header.tensor_bytes:
                self._stage[staged] = rows.tensors
            if self._score_stage is not None:
                self._score_stage[staged] = rows.scores
            self._staged += count
        self.rows += count

    def extend(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Add any number of rows, and yield a batch whenever the builder is full."""
        while len(rows.tensors) > (room := self.room):
            if room:
                self.append(cut_rows(rows, 0, room))
                rows = cut_rows(rows, room, len(rows.tensors))
            yield self.take()
        self.append(rows)

    def drop_after(self, rows: int) -> None:
        """Discard all but the first ``rows`` rows; the next call must begin a module."""
        self._transpose()
        self.rows = rows
        self._modules.drop_after(rows)
        self._contexts.drop_after(rows)
        if self._calls is not None:
            self._calls.drop_after(rows)

    def take(self, rows: int | None = None) -> pa.RecordBatch:
        """Return the first ``rows`` rows, by default all, as a record batch; the others stay."""
        import pyarrow as pa

        self._transpose()
        rows = self.rows if rows is None else rows
        arrays = [self._modules.array(rows, self.rows), self._contexts.array(rows, self.rows)]
        arrays.append(_plain_array(pa.int64(), self._numbers[:rows], rows))
        fields = iter(self.schema)
        for _ in KEY_COLUMNS:
            next(fields)
        columns = _allocate(self._groups, 0) if self._columns is None else self._columns
        for group, column in zip(self._groups, columns, strict=True):
            for values in column if group.width else (column,):
                arrays.append(_array(next(fields).type, values[:rows], rows))
        if self._calls is not None:
            arrays += self._calls.arrays(rows, self.rows)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._keep_from(rows)
        return batch

    def _keep_from(self, first: int) -> None:
        kept = self.rows - first
        old, numbers = self._columns, self._numbers
        self._columns = None
        if kept and old is not None:
            self._columns = self._make_columns()
            self._numbers[:kept] = numbers[first : self.rows]
            for column, source in zip(self._columns, old, strict=True):
                column[..., :kept] = source[..., first : self.rows]
        self._modules.keep_from(first)
        self._contexts.keep_from(first)
        if self._calls is not None:
            self._calls.keep_from(first)
        self.rows = kept

    def _make_columns(self) -> tuple[Array, ...]:
        self._numbers = np.empty(self.capacity, np.int64)
        return _allocate(self._groups, self.capacity)

    def _transpose(self) -> None:
        """Transpose the staged rows into columns."""
        count = self._staged
        if count:
            scores = None if self._score_stage is None else self._score_stage[:count]
            self._copy(self._stage[:count], scores, self.rows - count)
            self._staged = 0

    def _copy(self, tensors: Array, scores: Array | None, first: int) -> None:
        after = first + len(tensors)
        for group, column in zip(self._groups, self._columns or (), strict=True):
            column[..., first:after] = group.values(tensors, scores).T


def cut_rows(rows: Rows, first: int, after: int) -> Rows:
    """Return observations ``first`` to ``after`` of a block."""
    scores = None if rows.scores is None else rows.scores[first:after]
    return Rows(rows.number + first, rows.tensors[first:after], scores)


class Labels:
    """A column of text with few changes: the rows at which it changes, and the new values."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._names: list[str | None] = []

    def begin(self, name: str | None, row: int) -> None:
        """Set the column's value from ``row`` on."""
        if self._starts and self._starts[-1] == row:
            self._names[-1] = name
        else:
            self._starts.append(row)
            self._names.append(name)

    def drop_after(self, row: int) -> None:
        """Discard all but the first ``row`` rows."""
        while self._starts and self._starts[-1] >= row:
            self._starts.pop()
            self._names.pop()

    def array(self, rows: int, there: int) -> pa.DictionaryArray:
        """Return the column's first ``rows`` rows of ``there`` rows."""
        import pyarrow as pa

        ends = np.minimum(np.array([*self._starts[1:], there], np.int64)[: len(self._starts)], rows)
        lengths = ends - np.minimum(np.array(self._starts, np.int64), rows)
        used = [name for name, length in zip(self._names, lengths.tolist(), strict=True) if length]
        codes = {name: code for code, name in enumerate(dict.fromkeys(name for name in used if name is not None))}
        indices = np.repeat(
            np.array([-1 if name is None else codes[name] for name in used], np.int32), lengths[lengths > 0]
        )
        return pa.DictionaryArray.from_arrays(
            arrays.numbers(pa.int32(), indices, indices >= 0), arrays.texts(pa.string(), list(codes))
        )

    def keep_from(self, row: int) -> None:
        """Discard the rows before ``row``; the label of that row is kept."""
        last = 0
        while last + 1 < len(self._starts) and self._starts[last + 1] <= row:
            last += 1
        self._starts = [max(0, start - row) for start in self._starts[last:]]
        self._names = self._names[last:]


def _array(kind: pa.DataType, values: Array, rows: int) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_fixed_size_list(kind):
        return _plain_array(kind, values, rows)
    elements = _plain_array(kind.value_type, values, rows * kind.list_size)
    return pa.FixedSizeListArray.from_arrays(elements, type=kind)


def _plain_array(kind: pa.DataType, values: Array, length: int) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(values.view(np.uint8))])


def rows_of_batch(header: LogHeader, batch: pa.RecordBatch) -> tuple[Array, Array | None]:
    """Turn a batch's columns back into observations: records of raw bytes, and the scores' records or None.

    The batch has the columns of `observation_schema`, without those of calls; the inverse of `ObservationBuilder`.
    """
    rows = batch.num_rows
    parts = [("tensors", header.tensor_bytes), ("score", header.score_bytes)]
    record = np.dtype([(name, f"V{size}") for name, size in parts if size])
    records = np.empty(rows, record)
    offset = 0
    for spec, column in zip(header.columns, batch.columns[len(KEY_COLUMNS) :], strict=True):
        values = column if spec.is_scalar else column.flatten()
        flat = arrays.numbers_in(values)
        kind = np.dtype(f"V{spec.nbytes}")
        if rows:
            np.ndarray((rows,), kind, records.data, offset, records.strides)[:] = flat.view(kind)
        offset += spec.nbytes
    tensors = records["tensors"] if header.tensor_bytes else np.empty(rows, "V0")
    return tensors, records["score"] if header.score is not None else None


def iter_runs(numbers: Array) -> Iterator[tuple[int, int]]:
    """Yield (first, after) of each run of consecutive numbers."""
    if not len(numbers):
        return
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    yield from zip([0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True)
