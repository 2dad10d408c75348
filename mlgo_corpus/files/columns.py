"""Read columns of untrusted tables as plain arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files import arrays
from mlgo_corpus.files import parquet as parquetfile
from mlgo_corpus.files.remote import Place
from mlgo_corpus.files.tables import read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

Item = TypeVar("Item")

_ROWS_AT_A_TIME = 1 << 14


def iter_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items, and read the next one in a thread meanwhile: reading Parquet releases the interpreter's lock."""
    with ThreadPoolExecutor(1) as reader:
        upcoming = reader.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = reader.submit(next, items, None)
            yield item


def column_names_of(path: Place) -> tuple[str, ...]:
    """Return the names of a Parquet file's columns.

    Raises:
        CorpusError: the file is not a Parquet file.
    """
    with read_parquet(path) as file:
        return tuple(file.schema_arrow.names)


def check_columns(path: Path, there: Container[str], needed: Iterable[str]) -> None:
    """Check that a table has the columns that are needed.

    Raises:
        CorpusError: one does not exist.
    """
    if (lacking := next((name for name in needed if name not in there), None)) is not None:
        raise CorpusError(f"{path}: expected a column {lacking!r}, found none")


def iter_columns(path: Path, wanted: Sequence[str], needed: Sequence[str] = ()) -> Iterator[dict[str, pa.Array]]:
    """Yield the wanted columns that exist, some thousands of rows at a time.

    Raises:
        CorpusError: the file cannot be read, or a needed column does not exist.
    """
    with read_parquet(path) as file:
        there = set(file.schema_arrow.names)
        check_columns(path, there, needed)
        names = [name for name in wanted if name in there]
        for batch in file.iter_batches(batch_size=_ROWS_AT_A_TIME, columns=names):
            yield {name: batch.column(batch.schema.get_field_index(name)) for name in names}


LARGEST: Final = 1e12
"""The largest number of bytes, seconds or decisions accepted for one module: sums of larger ones would overflow."""


def floats_of(column: pa.Array) -> NDArray[np.float64]:
    """Return a copy of numbers or truth values as floats; null, and numbers beyond `LARGEST`, become NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    cast = pc.cast(column, pa.float64(), safe=False)
    nan = arrays.numbers(pa.float64(), np.array([np.nan]))[0]
    values = arrays.numbers_in(pc.fill_null(cast, nan)).copy()
    values[~(np.abs(values) <= LARGEST)] = np.nan
    return values


def texts_of(column: pa.Array) -> list[str | None]:
    """Return a column's texts, which may be dictionary-encoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return parquetfile.texts_of(column if pa.types.is_dictionary(column.type) else pc.cast(column, pa.string()))


def count_texts(column: pa.Array, into: Counter[str], null: str = "unknown") -> None:
    """Count the texts of a column."""
    into.update(null if text is None else text for text in texts_of(column))
