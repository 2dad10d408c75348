"""``functions.parquet`` of a corpus: one row per function that a module defines, modules in the manifest's order.

==================  =========================================================================================
column              meaning
==================  =========================================================================================
``module``          the module's name
``bitcode_sha256``  hex digest of the bitcode that was read: a module that changes is read again
``function``        the function's name in the module
``linkage``         LLVM's word: ``external``, ``internal``, ``linkonce_odr``, …
``instructions``    instructions in its body, without those of debug information
``body_hash``       64 bits that equal bodies share whatever things are called, see `formats.bitcode.functions`
==================  =========================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.parquet import texts_of
from mlgo_corpus.files.remote import Place
from mlgo_corpus.files.tables import METADATA_KEY, BatchTable, read_metadata, read_parquet, with_meanings
from mlgo_corpus.files.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_PER_GROUP = 1 << 17


class ModuleFunctions(NamedTuple):
    """The functions of one module, column by column; small to pickle.

    Attributes:
        module: the module's name.
        bitcode_sha256: hex digest of the module's bitcode.
        names: the functions' names.
        linkages: the functions' linkages.
        instructions: of shape (n,).
        hashes: of shape (n,).
        problem: why the module cannot be read and has no functions here; else empty.
    """

    module: str
    bitcode_sha256: str
    names: tuple[str, ...] = ()
    linkages: tuple[str, ...] = ()
    instructions: NDArray[np.int32] = np.zeros(0, np.int32)
    hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FunctionColumns:
    """The columns of all functions of a corpus that comparing its modules needs.

    Attributes:
        modules: of shape (n,): each function's module, as its number in the manifest; ascending.
        hashes: of shape (n,): each function's body hash.
        instructions: of shape (n,).
    """

    modules: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    instructions: NDArray[np.int32]

    def of_at_least(self, instructions: int) -> FunctionColumns:
        """Return the functions that have at least this number of instructions."""
        return self._some(self.instructions >= instructions)

    def without(self, modules: NDArray[np.bool_]) -> FunctionColumns:
        """Return the functions of other modules than these, which are marked by number."""
        return self._some(~modules[self.modules])

    def by_module(self, count: int) -> list[FunctionColumns]:
        """Return the functions of each of ``count`` modules, in their order."""
        edges = np.searchsorted(self.modules, np.arange(count + 1)).tolist()
        return [
            FunctionColumns(self.modules[own], self.hashes[own], self.instructions[own])
            for own in map(slice, edges[:-1], edges[1:])
        ]

    def _some(self, kept: NDArray[np.bool_]) -> FunctionColumns:
        return FunctionColumns(self.modules[kept], self.hashes[kept], self.instructions[kept])


def function_schema() -> pa.Schema:
    """Return the table's schema."""
    import pyarrow as pa

    label = pa.dictionary(pa.int32(), pa.string())
    fields = [
        ("module", label),
        ("bitcode_sha256", label),
        ("function", pa.string()),
        ("linkage", label),
        ("instructions", pa.int32()),
        ("body_hash", pa.uint64()),
    ]
    return with_meanings(pa.schema(fields), plain_columns(__doc__))


class FunctionTableWriter:
    """Writes modules' functions to a file that gets its name when it is complete."""

    def __init__(self, path: Path) -> None:
        self._table = BatchTable(path, function_schema())
        self._waiting: list[ModuleFunctions] = []
        self._rows = 0

    def append(self, made: ModuleFunctions) -> None:
        """Add a module's functions; write a row group when enough rows are waiting."""
        if made.names:
            self._waiting.append(made)
            self._rows += len(made.names)
            if self._rows >= _ROWS_PER_GROUP:
                self._flush()

    def commit(self, about: dict[str, Any]) -> None:
        """Write the remaining rows and ``about``, what the table was made from, and give the file its name."""
        self._flush()
        self._table.say({METADATA_KEY: json.dumps(about, sort_keys=True)})
        self._table.commit()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._table.abandon()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        schema = function_schema()
        counts = [len(made.names) for made in self._waiting]

        def labels(values: Sequence[str], repeats: Sequence[int]) -> pa.Array:
            known: dict[str, int] = {}
            codes = np.array([known.setdefault(value, len(known)) for value in values], np.int32)
            return pa.DictionaryArray.from_arrays(
                arrays.numbers(pa.int32(), np.repeat(codes, repeats)), arrays.texts(pa.string(), list(known))
            )

        each = [1] * self._rows
        columns = [
            labels([printable(made.module) for made in self._waiting], counts),
            labels([made.bitcode_sha256 for made in self._waiting], counts),
            arrays.texts(pa.string(), [printable(name) for made in self._waiting for name in made.names]),
            labels([word for made in self._waiting for word in made.linkages], each),
            arrays.numbers(pa.int32(), np.concatenate([made.instructions for made in self._waiting])),
            arrays.numbers(pa.uint64(), np.concatenate([made.hashes for made in self._waiting])),
        ]
        self._table.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        self._waiting.clear()
        self._rows = 0


def read_function_metadata(path: Place) -> dict[str, Any]:
    """Return a table's metadata; empty if there is no table, or it cannot be read."""
    try:
        return read_metadata(path)
    except CorpusError:
        return {}


def iter_known(path: Place) -> Iterator[ModuleFunctions]:
    """Yield the functions in a table, module by module, in its order.

    Raises:
        CorpusError: the table is damaged.
    """
    with read_parquet(path) as file:
        for number in range(file.metadata.num_row_groups):
            yield from _modules_of(file.read_row_group(number))


def _modules_of(group: pa.Table) -> Iterator[ModuleFunctions]:
    if not group.num_rows:
        return
    columns = [texts_of(group[name]) for name in ("module", "bitcode_sha256", "function", "linkage")]
    instructions = group["instructions"].to_numpy()
    hashes = group["body_hash"].to_numpy()
    names = np.array(columns[0], object)
    starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    for start, stop in pairwise(starts):
        yield ModuleFunctions(
            columns[0][start],
            columns[1][start],
            tuple(columns[2][start:stop]),
            tuple(columns[3][start:stop]),
            instructions[start:stop].astype(np.int32),
            hashes[start:stop].astype(np.uint64),
        )


def read_function_columns(path: Place, names: Sequence[str]) -> FunctionColumns:
    """Read the columns that comparing needs, of these modules' functions; modules are numbered in this order.

    Raises:
        CorpusError: the table is damaged.
    """
    number_of = {printable(name): number for number, name in enumerate(names)}
    parts: list[tuple[NDArray[np.int32], NDArray[np.uint64], NDArray[np.int32]]] = []
    with read_parquet(path) as file:
        for batch in file.iter_batches(columns=["module", "body_hash", "instructions"]):
            labels = batch.column("module")
            own = np.array([number_of.get(name, -1) for name in labels.dictionary.to_pylist()], np.int32)
            modules = own[arrays.numbers_in(labels.indices)]
            kept = modules >= 0
            parts.append(
                (
                    modules[kept],
                    arrays.numbers_in(batch.column("body_hash"))[kept],
                    arrays.numbers_in(batch.column("instructions"))[kept],
                )
            )
    if not parts:
        return FunctionColumns(np.zeros(0, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.int32))
    modules, hashes, instructions = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(modules) and (np.diff(modules) < 0).any():
        order = np.argsort(modules, kind="stable")
        modules, hashes, instructions = modules[order], hashes[order], instructions[order]
    return FunctionColumns(modules, hashes, instructions)
