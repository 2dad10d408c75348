"""The dump stage: show a training log as LLVM's text, as JSON, as statistics, or observation by observation.

`open_selection` opens a log, or a part of it. Each of the other functions reads the selection once, in blocks, so that
a log may be larger than memory. They do not fail on a damaged log: they process what is intact before the damage, which
`Selection.damage` describes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.logs import open_log
from mlgo_corpus.dataset.observations import KEY_COLUMNS, ObservationBuilder, column_names, cut_rows
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.logs.blocks import BlockReader, Contexts, Rows
from mlgo_corpus.formats.logs.events import LogHeader, Writable
from mlgo_corpus.formats.logs.magnitudes import Bin, Magnitudes
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:
    import pyarrow as pa

# At most this many distinct values of a column are counted; each takes 4 or 8 bytes.
DISTINCT_LIMIT: Final = 100_000

# The most text that is made at a time. An element takes up to 24 bytes (-2.2250738585072014e-308) and a comma.
_BATCH_TEXT = 24 << 20
_ELEMENT_BYTES = 25
# An observation that takes more than that is written in pieces of this many elements.
_WIDE_ELEMENTS = 1 << 16
# Between these bounds, Arrow and Python spell non-integers alike, and Arrow is five times as fast. Outside of them,
# their rules for exponents differ.
_SPELLED_ALIKE = (1e-3, 1e6)
# Statistics are computed over batches of this many bytes of observations and this many values. A batch should have more
# values than the distinct ones known so far, with which it is merged.
_BATCH_BYTES = 32 << 20
_BATCH_VALUES = 1 << 18

Array = NDArray[Any]


class Selection:
    """The requested part of a log; it can be read once.

    Attributes:
        header: the log's header.
        damage: after reading, what is wrong with the log, with its path; None if it is intact.
        missing: the requested names for which no context was found.
        stopped: True if reading stopped at the limit; the rest of the log was not read.
    """

    def __init__(self, reader: BlockReader, path: Path, limit: int | None, contexts: Sequence[str]) -> None:
        self.header = reader.header
        self.damage: FormatError | None = None
        self.missing = dict.fromkeys(contexts)
        self.stopped = False
        self._reader = reader
        self._path = path
        self._limit = limit
        self._names = frozenset(contexts)

    @property
    def offset(self) -> int:
        """The number of decompressed bytes of the log that have been read as whole events."""
        return self._reader.offset

    def __iter__(self) -> Iterator[Rows | Contexts]:
        """Yield blocks as `mlgo_corpus.formats.logs.blocks.BlockReader` does; a block is valid until the next one."""
        try:
            yield from self._selected()
        except FormatError as error:
            self.damage = error.at(self._path)

    def _selected(self) -> Iterator[Rows | Contexts]:
        left = self._limit
        wanted = not self._names
        if left == 0:
            self.stopped = True
            return
        for block in self._reader:
            if isinstance(block, Contexts):
                names = block.names
                if self._names:
                    wanted = names[-1] in self._names
                    names = tuple(name for name in names if name in self._names)
                    for name in names:
                        self.missing.pop(name, None)
                if names:
                    yield Contexts(names, None)
            elif wanted:
                rows = block if left is None else cut_rows(block, 0, left)
                yield rows
                if left is not None:
                    left -= len(rows.tensors)
                    if left == 0:
                        self.stopped = True
                        return


@contextmanager
def open_selection(path: Path | str, *, limit: int | None = None, contexts: Sequence[str] = ()) -> Iterator[Selection]:
    """Open a log, or a part of it, for reading; decompress ``.gz`` and ``.zst``.

    Args:
        path: the log; ``-`` for standard input.
        limit: the maximum number of observations.
        contexts: the names of the contexts; by default all, and the observations before the first one.

    Raises:
        UsageError: the log cannot be opened.
        FormatError: it does not begin like a log.
    """
    path = Path(path)
    with ExitStack() as stack:
        try:
            source = stack.enter_context(open_log(path))
        except OSError as error:
            raise UsageError(f"{path}: {os_reason(error)}") from None
        try:
            reader = BlockReader(source)
        except FormatError as error:
            raise error.at(path) from None
        yield Selection(reader, path, limit, contexts)


def write_text(selection: Selection, stream: Writable) -> None:
    """Write the log as LLVM's reader prints it, byte for byte (llvm/lib/Analysis/models/log_reader.py).

    A context without observations, on which that reader fails, is printed like any other.
    """
    columns = [(f"\n{spec.name}: ", "") for spec in selection.header.columns]
    writer = _ObservationWriter(selection.header, stream, "observation: ", columns, "\n")
    last = None
    for block in selection:
        if isinstance(block, Rows):
            writer.add(block)
            continue
        for name in block.names:
            if name != last:
                writer.insert(f"context: {name}\n")
                last = name
    writer.flush()


def write_json(selection: Selection, stream: Writable) -> None:
    """Write the log as one JSON object, an observation per line.

    It has the keys ``header``, ``contexts`` and ``damage`` (null, or what is wrong with the log after the last
    observation). Values have the names of the columns in tables; a tensor of one element is a number, a larger one a
    flat list. Numbers that JSON cannot express are text: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
    """
    header = selection.header
    columns = []
    before = ', "values": {'
    for name, spec in zip(column_names(header), header.columns, strict=True):
        opening, closing = ("", "") if spec.is_scalar else ("[", "]")
        columns.append((f"{before}{json.dumps(name)}: {opening}", closing))
        before = ", "
    closing = "}}" if columns else f"{before}}}}}"
    writer = _ObservationWriter(header, stream, ',\n{"observation": ', columns, closing, json_numbers=True)
    writer.insert(f'{{"header": {json.dumps(_header_json(header))},\n"contexts": [')
    before, in_context = "\n", False
    for block in selection:
        names: tuple[str | None, ...] = ()
        if isinstance(block, Contexts):
            names = block.names
        elif not in_context:
            names = (None,)
        for context in names:
            # The first observation of a context has no comma before it.
            writer.insert(f'{before}{{"context": {json.dumps(context)}, "observations": [', skip=len(","))
            before, in_context = "]},\n", True
        if isinstance(block, Rows):
            writer.add(block)
    damage = None if selection.damage is None else str(selection.damage)
    writer.insert(f'{"]}" if in_context else ""}],\n"damage": {json.dumps(damage)}}}\n')
    writer.flush()


def _header_json(header: LogHeader) -> dict[str, Any]:
    return {
        "features": [spec.as_json() for spec in header.features],
        "score": None if header.score is None else header.score.as_json(),
        "advice": None if header.advice is None else header.advice.as_json(),
    }


class SingleObservation(NamedTuple):
    """An observation with its context's name (None before the first one) and a flat array for each column."""

    context: str | None
    number: int
    values: tuple[Array, ...]


def iter_observations(selection: Selection) -> Iterator[SingleObservation]:
    """Yield the observations one by one; meant for a few of them."""
    header = selection.header
    offsets = (*header.offsets, header.tensor_bytes)
    context = None
    for block in selection:
        if isinstance(block, Contexts):
            context = block.names[-1]
            continue
        for index in range(len(block.tensors)):
            data = block.tensors[index].tobytes()
            if block.scores is not None:  # the last column, after the tensors
                data += block.scores[index].tobytes()
            columns = zip(header.columns, offsets, strict=False)
            values = [np.frombuffer(data, spec.dtype, spec.element_count, offset) for spec, offset in columns]
            yield SingleObservation(context, block.number + index, tuple(values))


class _ObservationWriter:
    """Writes observations as text, many at a time, with Arrow's kernels, and other text between them.

    Args:
        header: the features of an observation.
        stream: where to write.
        opening: the text before an observation's number.
        columns: for each column the text before and after its elements, which are separated by commas.
        closing: the text at an observation's end.
        json_numbers: write numbers that JSON cannot express as quoted text.
    """

    def __init__(
        self,
        header: LogHeader,
        stream: Writable,
        opening: str,
        columns: Sequence[tuple[str, str]],
        closing: str,
        *,
        json_numbers: bool = False,
    ) -> None:
        self._columns = tuple(zip(header.columns, columns, strict=True))
        self._opening, self._closing, self._json_numbers = opening, closing, json_numbers
        self._write: Callable[[Any], Any] = stream.write
        literals = sum(len(before.encode()) + len(after) for before, after in columns)
        size = literals + _ELEMENT_BYTES * sum(spec.element_count for spec in header.columns)
        self._is_wide = size > _BATCH_TEXT
        self._builder = ObservationBuilder(header, max(1, _BATCH_TEXT // max(1, size)))
        self._builder.begin_module("")  # any name: only the values are used
        # Texts to be written between rows of the builder: the row that follows, the text, and the number of bytes to
        # omit from that row. `_skip` is the number of bytes to omit from the first row.
        self._inserted: list[tuple[int, bytes, int]] = []
        self._inserted_bytes = 0
        self._skip = 0

    def insert(self, text: str, *, skip: int = 0) -> None:
        """Write text before the next observation, and omit the first ``skip`` bytes of that observation."""
        data = text.encode()
        if not self._builder.rows:
            self._write(data)
            self._skip = skip
            return
        self._inserted.append((self._builder.rows, data, skip))
        self._inserted_bytes += len(data)
        if self._inserted_bytes > _BATCH_TEXT:
            self.flush()

    def add(self, rows: Rows) -> None:
        """Write observations."""
        while len(rows.tensors):
            if not self._builder.room:
                self.flush()
            room = self._builder.room
            self._builder.append(cut_rows(rows, 0, room))
            rows = cut_rows(rows, room, len(rows.tensors))

    def flush(self) -> None:
        """Write everything that is buffered."""
        rows = self._builder.rows
        if not rows:
            return
        _, _, numbers, *columns = self._builder.take().columns
        if self._is_wide:
            self._write_wide(numbers[0].as_py(), columns)
            starts, text, at = np.zeros(rows + 1, np.int32), memoryview(b""), 0
        else:
            starts, text = self._joined(numbers, columns)
            at = self._skip
        self._skip = 0
        for row, inserted, skip in self._inserted:
            start = int(starts[row])
            self._write(text[at:start])
            self._write(inserted)
            at = max(at, start + skip)
            self._skip = skip if row == rows else 0
        self._write(text[at:])
        self._inserted.clear()
        self._inserted_bytes = 0

    def _joined(self, numbers: pa.Array, columns: Sequence[pa.Array]) -> tuple[NDArray[np.int32], memoryview]:
        """Return the offsets at which the rows' texts begin, and where the last one ends, and the text."""
        import pyarrow as pa
        from pyarrow import compute

        pieces = [self._opening, numbers.cast(pa.string())]
        for (spec, (before, after)), column in zip(self._columns, columns, strict=True):
            if spec.is_scalar:
                text = self._spelled(column)
            else:
                ends = np.arange(0, len(column.flatten()) + 1, spec.element_count, dtype=np.int32)
                text = compute.binary_join(pa.ListArray.from_arrays(ends, self._spelled(column.flatten())), ",")
            pieces += [before, text, after]
        _, offsets, data = compute.binary_join_element_wise(*pieces, self._closing, "").buffers()
        starts = np.frombuffer(offsets, np.int32)
        return starts, memoryview(data)[: starts[len(numbers)]]

    def _write_wide(self, number: int, columns: Sequence[pa.Array]) -> None:
        """Write one row in pieces, so that its text is never in memory as a whole."""
        self._write(f"{self._opening}{number}".encode()[self._skip :])
        for (spec, (before, after)), column in zip(self._columns, columns, strict=True):
            elements = column if spec.is_scalar else column.flatten()
            for first in range(0, spec.element_count, _WIDE_ELEMENTS):
                self._write(b"," if first else before.encode())
                piece = self._spelled(elements.slice(first, _WIDE_ELEMENTS))
                self._write(",".join(piece.to_pylist()).encode())
            self._write(after.encode())
        self._write(self._closing.encode())

    def _spelled(self, values: pa.Array) -> pa.Array:
        """Spell each value as Python does; a float is as precise as a double."""
        import pyarrow as pa
        from pyarrow import compute

        if not pa.types.is_floating(values.type):
            return values.cast(pa.string())
        # Each distinct value, compared bit for bit, is spelled once.
        bits = pa.int32() if values.type.bit_width == 32 else pa.int64()
        encoded = values.view(bits).dictionary_encode()
        with np.errstate(invalid="ignore"):  # signalling NaNs need no distinction
            different = encoded.dictionary.view(values.type).to_numpy().astype(np.float64)
        low, high = _SPELLED_ALIKE
        sizes = np.abs(different)
        hard = ~((sizes > low) & (sizes < high) & (different != np.trunc(different)))
        rest = different[hard].tolist()
        spelled = [json.dumps(_json_number(value)) if self._json_numbers else str(value) for value in rest]
        spellings = pa.array(different).cast(pa.string())
        spellings = compute.replace_with_mask(spellings, pa.array(hard), pa.array(spelled, pa.string()))
        return spellings.take(encoded.indices)


def _json_number(value: float | None) -> float | str | None:
    """Return a number for JSON: ``NaN``, ``Infinity`` and ``-Infinity`` as text, which float() accepts."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@dataclass(frozen=True, slots=True)
class ColumnStatistics(Report):
    """Statistics of a feature, or of the score, over all elements of all observations.

    Attributes:
        name: LLVM's name.
        type: LLVM's name of the element type.
        shape: the shape of the tensor.
        is_score: True if it is the score.
        values: number of elements, ``nans`` of them NaN.
        min, max, mean: of the elements that are not NaN; None if there are none.
        distinct: number of distinct values, NaN counted as one; None if more than `DISTINCT_LIMIT`.
        zeros: number of elements that are 0.
        spread: number of elements by sign and power of two, see `mlgo_corpus.formats.logs.magnitudes`.
    """

    _properties: ClassVar = ("is_constant",)

    name: str
    type: str
    shape: tuple[int, ...]
    is_score: bool
    values: int
    nans: int
    min: float | None
    max: float | None
    mean: float | None
    distinct: int | None
    zeros: int
    spread: tuple[Bin, ...]

    @property
    def is_constant(self) -> bool:
        """True if there are several elements and all are the same."""
        return self.distinct == 1 and self.values > 1

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as plain values; more distinct values than are counted are ``">100000"``."""
        numbers = {name: _json_number(getattr(self, name)) for name in ("min", "max", "mean")}
        distinct = f">{DISTINCT_LIMIT}" if self.distinct is None else self.distinct
        spread = [
            {"from": _json_number(one.low), "to": _json_number(one.high), "values": one.number}
            for one in self.spread
            if one.number
        ]
        return {**Report.as_json(self), **numbers, "distinct": distinct, "spread": spread}


@dataclass(frozen=True, slots=True)
class LogStatistics(Report):
    """Statistics of a log, or of a part of it.

    Attributes:
        header: the log's header.
        log_bytes: decompressed bytes of the log, up to any damage; None if it was not read to its end.
        contexts: number of times that a context begins; ``empty_contexts`` of them are without observations.
        observations: number of observations.
        columns: the features in the header's order, and the score.
    """

    header: LogHeader
    log_bytes: int | None
    contexts: int
    empty_contexts: int
    observations: int
    columns: tuple[ColumnStatistics, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as plain values."""
        return {**Report.as_json(self), "header": _header_json(self.header)}


def log_statistics(selection: Selection, *, progress: Callable[[int], None] | None = None) -> LogStatistics:
    """Compute the statistics of a log; ``progress`` is called with the number of bytes read."""
    header = selection.header
    tallies = tuple(map(_Tally, header.columns))
    capacity = max(1, _BATCH_BYTES // max(1, header.tensor_bytes + header.score_bytes))
    builder = ObservationBuilder(header, capacity)
    builder.begin_module("")  # any name: only the values are used
    contexts = empty = observations = 0
    is_empty = False
    for block in selection:
        if isinstance(block, Contexts):
            contexts += len(block.names)
            empty += len(block.names)
            is_empty = True
            continue
        empty -= is_empty
        is_empty = False
        observations += len(block.tensors)
        for batch in builder.extend(block):
            _add(tallies, batch)
        if progress is not None:
            progress(selection.offset)
    if builder.rows:
        _add(tallies, builder.take())
    columns = tuple(tally.statistics(is_score=index == len(header.features)) for index, tally in enumerate(tallies))
    log_bytes = None if selection.stopped else selection.offset
    return LogStatistics(header, log_bytes, contexts, empty, observations, columns)


def _add(tallies: Sequence[_Tally], batch: pa.RecordBatch) -> None:
    for tally, column in zip(tallies, batch.columns[len(KEY_COLUMNS) :], strict=True):
        elements = arrays.numbers_in(column if tally.spec.is_scalar else column.flatten())
        for first in range(0, len(elements), _BATCH_VALUES):
            tally.add(elements[first : first + _BATCH_VALUES])


class _Tally:
    """Accumulates the statistics of a column."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self._values = self._nans = self._zeros = 0
        self._total: float = 0
        self._min: float | None = None
        self._max: float | None = None
        self._distinct: pa.Array | None = None
        self._counts_distinct = True
        self._magnitudes = Magnitudes()

    def add(self, values: Array) -> None:
        """Add one or more values."""
        self._values += len(values)
        if values.dtype.kind == "f":
            are_nan = np.isnan(values)
            nans = int(np.count_nonzero(are_nan))
            if nans:
                self._nans += nans
                values = values[~are_nan]
        if not len(values):
            return
        low, high = values.min().item(), values.max().item()
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)
        self._total += _sum(values, max(abs(low), abs(high)))
        self._zeros += len(values) - int(np.count_nonzero(values))
        self._magnitudes.add(values)
        if self._counts_distinct:
            self._add_distinct(values)

    def _add_distinct(self, values: Array) -> None:
        import pyarrow as pa

        if values.dtype.kind == "f":
            values = values + values.dtype.type(0)  # turn -0.0, which Arrow distinguishes, into 0.0
        found = arrays.numbers(pa.from_numpy_dtype(values.dtype), values).unique()
        if self._distinct is not None:
            found = pa.concat_arrays([self._distinct, found]).unique()
        self._distinct = found
        if len(found) > DISTINCT_LIMIT:
            self._distinct, self._counts_distinct = None, False

    def statistics(self, *, is_score: bool) -> ColumnStatistics:
        """Return the statistics of the added values."""
        numbers = self._values - self._nans
        distinct = (0 if self._distinct is None else len(self._distinct)) + (self._nans > 0)
        return ColumnStatistics(
            name=self.spec.name,
            type=self.spec.type,
            shape=self.spec.shape,
            is_score=is_score,
            values=self._values,
            nans=self._nans,
            min=self._min,
            max=self._max,
            mean=self._total / numbers if numbers else None,
            distinct=distinct if self._counts_distinct and distinct <= DISTINCT_LIMIT else None,
            zeros=self._zeros,
            spread=self._magnitudes.bins(),
        )


def _sum(values: Array, largest: float) -> float:
    """Return the sum of values, ``largest`` being the largest magnitude: exact for integers, a double for others."""
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):  # infinities of both signs
            return float(values.sum(dtype=np.float64))
    if largest * len(values) < 1 << 63:
        return int(values.sum(dtype=np.int64))
    whole: list[int] = values.tolist()
    return sum(whole)
