"""A training log in memory: columns for tables, arrays in their tensors' shapes, contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.logs import LogSource, module_name, open_log
from mlgo_corpus.dataset.observations import (
    KEY_COLUMNS,
    ObservationBuilder,
    column_names,
    observation_schema,
)
from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.logs.blocks import BlockReader, Contexts, Rows
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tensors import TensorSpec

if TYPE_CHECKING:
    import pyarrow as pa

# Large enough that a batch's columns are worth their overhead, small enough to stay in a processor's cache for long.
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class LogContext:
    """The place of one context's observations: rows ``first_row`` to ``first_row + count`` of the log.

    ``name`` is None for observations before the first context; ``count`` may be 0.
    """

    name: str | None
    first_row: int
    count: int


@dataclass(frozen=True, slots=True)
class ContextObservations:
    """One context's observations: its name, their numbers in the log, and an array for each column."""

    name: str | None
    numbers: NDArray[np.int64]
    values: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.numbers)


class TrainingLog:
    """A whole log in memory; ``for context in log`` yields each context with its observations.

    Attributes:
        module: the log's module: the file's name without ``.log``.
        header: the log's header.
        damage: the damage after the last whole observation, if the log was read in spite of it; else None.
    """

    def __init__(
        self,
        module: str,
        header: LogHeader,
        starts: tuple[list[str | None], list[int]],
        batches: Sequence[pa.RecordBatch],
        damage: FormatError | None,
    ) -> None:
        self.module = module
        self.header = header
        self._starts = starts
        self.damage = damage
        self._batches = batches

    @cached_property
    def contexts(self) -> tuple[LogContext, ...]:
        """The contexts in order, also those without observations."""
        names, first_rows = self._starts
        ends = [*first_rows[1:], len(self)]
        return tuple(
            LogContext(name, first, after - first) for name, first, after in zip(names, first_rows, ends, strict=False)
        )

    @property
    def features(self) -> tuple[TensorSpec, ...]:
        """The features, in the header's order; the decision is the last one."""
        return self.header.features

    @property
    def score(self) -> TensorSpec | None:
        """The score, or None."""
        return self.header.score

    @property
    def advice(self) -> TensorSpec | None:
        """The header's advice, or None: development mode's logs have none."""
        return self.header.advice

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def __repr__(self) -> str:
        return f"TrainingLog({self.module!r}, contexts={len(self.contexts)}, observations={len(self)})"

    def __iter__(self) -> Iterator[ContextObservations]:
        """Yield each context with its observations; the arrays are views."""
        numbers = self._numbers
        for context in self.contexts:
            rows = slice(context.first_row, context.first_row + context.count)
            values = {name: array[rows] for name, array in self._arrays.items()}
            yield ContextObservations(context.name, numbers[rows], values)

    def to_arrow(self) -> pa.Table:
        """Return the log as a table: the columns of `mlgo_corpus.dataset.observations`. Nothing is copied."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, observation_schema(self.header))

    def to_batch(self) -> pa.RecordBatch:
        """Return the log as a single record batch; a log of more than 32 MiB is copied."""
        import pyarrow as pa

        if len(self._batches) == 1:
            return self._batches[0]
        columns = self.to_arrow().unify_dictionaries().combine_chunks()
        (batch,) = columns.to_batches() or [pa.RecordBatch.from_pylist([], columns.schema)]
        return batch

    def to_numpy(self) -> dict[str, NDArray[Any]]:
        """Return an array for each feature and the score, by the table's column names.

        A tensor of one element becomes an array of shape ``(observations,)``, a larger one has shape
        ``(observations, *shape)``; the element types are the tensors' own.
        """
        return dict(self._arrays)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        numbers: NDArray[np.int64] = self.to_arrow().column("observation").to_numpy()
        return numbers

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {}
        for index, (name, spec) in enumerate(zip(column_names(self.header), self.header.columns, strict=True)):
            pieces = [batch.column(len(KEY_COLUMNS) + index) for batch in self._batches]
            flat = [
                (piece if spec.is_scalar else piece.flatten()).to_numpy(zero_copy_only=True) for piece in pieces
            ] or [np.empty(0, spec.dtype)]
            joined = flat[0] if len(flat) == 1 else np.concatenate(flat)
            arrays[name] = joined if spec.is_scalar else joined.reshape(-1, *spec.shape)
        return arrays


def read_log(path: LogSource, *, allow_truncated: bool = False, module: str | None = None) -> TrainingLog:
    """Read a training log into memory, decompressing gzip and zstd.

    Args:
        path: the log's path, ``-`` for standard input; its bytes; or a binary stream, which stays open.
        allow_truncated: return the whole observations before the damage of a damaged log, and set ``damage``.
        module: the module's name in tables; by default that in a dataset of the file alone, for bytes nothing.

    Raises:
        FormatError: the log is damaged, or is none; the message has the place.
        OSError: the log cannot be read.
        TypeError: it is an object of another kind.
    """
    name = path if isinstance(path, str | Path) else getattr(path, "name", None)
    place = Path(name) if isinstance(name, str | Path) else None
    if module is None:
        module = "" if place is None else module_name(place.name)
    try:
        with open_log(path) as source:
            reader = BlockReader(source)
            loaded = _Loader(module, reader.header)
            damage = None
            try:
                for block in reader:
                    loaded.add(block)
            except FormatError as error:
                if not allow_truncated:
                    raise
                damage = error.at(place)
            return loaded.finish(damage)
    except FormatError as error:
        raise error.at(place) from None


class _Loader:
    """Turns blocks into batches."""

    def __init__(self, module: str, header: LogHeader) -> None:
        self._module = module
        self._header = header
        capacity = max(1, _BATCH_BYTES // max(1, header.tensor_bytes + header.score_bytes))
        self._builder = ObservationBuilder(header, capacity)
        self._builder.begin_module(module)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._names: list[str | None] = []
        self._first_rows: list[int] = []

    def add(self, block: Rows | Contexts) -> None:
        if isinstance(block, Contexts):
            self._begin(block.names)
            self._builder.begin_context(block.names[-1])
            return
        if not self._names:
            self._begin((None,))
        self._rows += len(block.tensors)
        self._batches.extend(self._builder.extend(block))

    def _begin(self, names: tuple[str | None, ...]) -> None:
        self._names.extend(names)
        self._first_rows.extend([self._rows] * len(names))

    def finish(self, damage: FormatError | None) -> TrainingLog:
        if self._builder.rows:
            self._batches.append(self._builder.take())
        starts = (self._names, self._first_rows)
        return TrainingLog(self._module, self._header, starts, self._batches, damage)
