"""The columns of a dataset of inlining decisions that tell which call each decision was about.

==========  ==========================================================================================
column      meaning
==========  ==========================================================================================
``caller``  the function that the call is in: its name in the module's IR
``callee``  the function that is called: its name in the IR; with the module it is a key of
            functions.parquet, and of the table of native sizes, where it has no row if nothing is left of it
``line``    the call's line in its source; null without debug information
``column``  the call's column there; null without debug information
==========  ==========================================================================================

They follow the features and the score. A dataset has all four or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from mlgo_corpus.files import arrays
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.tables import with_meanings
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.logs.remarks import DecidedCall

if TYPE_CHECKING:
    import pyarrow as pa

CALL_COLUMNS: Final = ("caller", "callee", "line", "column")
"""The columns' names, in their order."""


def call_fields() -> list[pa.Field]:
    """Return the columns' fields, without their meanings."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    kinds = (text, text, pa.int32(), pa.int32())
    return [
        pa.field(name, kind, nullable=name in ("line", "column"))
        for name, kind in zip(CALL_COLUMNS, kinds, strict=True)
    ]


def call_meanings() -> dict[str, str]:
    """Return the columns' meanings."""
    return plain_columns(__doc__)


def call_batch(calls: Iterable[DecidedCall]) -> pa.RecordBatch:
    """Return the columns of some decisions; names that are not Unicode are escaped."""
    import pyarrow as pa

    kept = list(calls)
    places = ([call.line for call in kept], [call.column for call in kept])
    numbers = (np.array([-1 if one is None else one for one in values], np.int64).astype(np.int32) for values in places)
    return pa.RecordBatch.from_arrays(
        [
            encoded_names([call.caller for call in kept]),
            encoded_names([call.callee for call in kept]),
            *(arrays.numbers(pa.int32(), each, each >= 0) for each in numbers),
        ],
        schema=pa.schema(call_fields()),
    )


def encoded_names(names: Sequence[str]) -> pa.DictionaryArray:
    """Return a column of names, dictionary-encoded in the order of their first occurrence; see `call_batch`."""
    import pyarrow as pa

    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    indices = np.array([codes[name] for name in names], np.int32)
    texts = arrays.texts(pa.string(), list(map(printable, codes)))
    return pa.DictionaryArray.from_arrays(arrays.numbers(pa.int32(), indices), texts)


def with_calls(batch: pa.RecordBatch, calls: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of observations with the columns of their calls."""
    import pyarrow as pa

    told = with_meanings(calls.schema, call_meanings())
    schema = pa.schema([*batch.schema, *told], batch.schema.metadata)
    return pa.RecordBatch.from_arrays([*batch.columns, *calls.columns], schema=schema)


class Calls:
    """The columns of consecutive rows, from one batch for each module's log; as `Labels` is for one column."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._batches: list[pa.RecordBatch] = []
        self._used: list[int] = []

    def begin(self, batch: pa.RecordBatch, row: int) -> None:
        """Take the columns of the rows from ``row`` on from the beginning of a batch."""
        self.drop_after(row)
        self._starts.append(row)
        self._batches.append(batch)
        self._used.append(0)

    def drop_after(self, row: int) -> None:
        """Discard all but the first ``row`` rows."""
        while self._starts and self._starts[-1] >= row:
            for values in (self._starts, self._batches, self._used):
                values.pop()

    def keep_from(self, row: int) -> None:
        """Discard the rows before ``row``; the batch of that row is kept."""
        last = 0
        while last + 1 < len(self._starts) and self._starts[last + 1] <= row:
            last += 1
        if self._starts:
            self._used[last] += max(0, row - self._starts[last])
        self._starts = [max(0, start - row) for start in self._starts[last:]]
        self._batches, self._used = self._batches[last:], self._used[last:]

    def arrays(self, rows: int, there: int) -> list[pa.Array]:
        """Return the columns' first ``rows`` rows of ``there`` rows."""
        import pyarrow as pa

        pieces = []
        for start, end, batch, used in zip(
            self._starts, [*self._starts[1:], there], self._batches, self._used, strict=False
        ):
            if (count := min(end, rows) - start) > 0:
                pieces.append(batch.slice(used, count))
        if not pieces:
            pieces = [call_batch(())]
        table = pa.Table.from_batches(pieces).unify_dictionaries().combine_chunks()
        return [column.chunk(0) for column in table.columns]
