"""``modules.parquet``: one row per input object or member, also for those that were left out.

========================  ===========================================================================
column                    meaning
========================  ===========================================================================
``module``                the module's name in the corpus; for a row left out, the one it would have had
``source``                the object's path, relative to the build (``--build-dir``, or the folder of a
                          compilation database); absolute outside it
``member``                archive member, fat slice or main file inside a linked binary; null if none
``status``                ``ok`` (in the corpus), ``skipped`` or ``failed``
``reason``                a word of `mlgo_corpus.builds.objects.Reason`
``detail``                one line for a person
``bitcode_bytes``         bytes of bitcode, also of modules left out; null where none was found
``cmd_bytes``             bytes of the embedded command; null where there is none
``bitcode_sha256``        hex digest of the bitcode; null unless the module was read whole
``cmd_sha256``            hex digest of the command
``cmd_origin``            ``embedded``, ``override`` (the corpus's) or ``none``
``target_triple``         from the command, else from the bitcode
``producer``              from the bitcode's identification block, such as ``LLVM19.1.7``
``ir_stage``              ``pre-opt`` or ``post-opt``
``opt_level``             the command's level: ``0`` (also without ``-O``, as in clang) to ``3``, ``s`` or ``z``
``main_file_name``        the command's ``-main-file-name``
``duplicate_of``          the module kept instead of this one
``functions``             functions that the module emits (not ``available_externally``); null where its bitcode does
                          not say without being read
``split``                 ``train``, ``validation`` or ``test``; null until ``mlgo-corpus split`` says so
========================  ===========================================================================

A corpus may well have a million rows: they are read as columns, and changed a row group at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.atomic import create_file
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.remote import Place
from mlgo_corpus.files.tables import (
    Kind,
    RowTable,
    blamed,
    file_metadata,
    fill,
    open_parquet,
    with_meanings,
)

if TYPE_CHECKING:
    import pyarrow as pa

STATUS_OK = "ok"
STATUS_SKIPPED = "skipped"
STATUS_FAILED = "failed"


class ModuleRow(NamedTuple):
    """One row; fields as the module's docstring describes them, in the file's order."""

    module: str
    source: str
    member: str | None
    status: str
    reason: str
    detail: str
    bitcode_bytes: int | None = None
    cmd_bytes: int | None = None
    bitcode_sha256: str | None = None
    cmd_sha256: str | None = None
    cmd_origin: str | None = None
    target_triple: str | None = None
    producer: str | None = None
    ir_stage: str | None = None
    opt_level: str | None = None
    main_file_name: str | None = None
    duplicate_of: str | None = None
    functions: int | None = None
    split: str | None = None


INTEGER_FIELDS = frozenset({"bitcode_bytes", "cmd_bytes", "functions"})
REQUIRED_FIELDS = frozenset({"module", "source", "status", "reason", "detail"})


class ModuleTableWriter(RowTable):
    """Writes rows to a Parquet file that gets its name only when it is complete."""

    def __init__(self, path: Path, temporary: Path) -> None:
        kinds = dict.fromkeys(INTEGER_FIELDS, Kind.INTEGER)
        super().__init__(path, temporary, ModuleRow._fields, kinds, plain_columns(__doc__))


def read_module_columns(path: Place, columns: Sequence[str] = ModuleRow._fields) -> pa.Table:
    """Read columns of a ``modules.parquet``; a column that an older file lacks is all null.

    Raises:
        CorpusError: it is missing, damaged, or no such table.
    """
    import pyarrow as pa

    return pa.concat_tables(iter_module_tables(path, columns)) if columns else pa.table({})


def iter_module_rows(path: Place) -> Iterator[ModuleRow]:
    """Yield the rows of a ``modules.parquet`` one by one, in bounded memory.

    Raises:
        CorpusError: it is missing, damaged, or no such table.
    """
    for group in iter_module_tables(path, ModuleRow._fields):
        yield from map(ModuleRow._make, zip(*(column.to_pylist() for column in group.columns), strict=True))


def rewrite_split(
    path: Path, target: Path, give: Callable[[pa.Table], Sequence[str | None]], metadata: Mapping[str, Any]
) -> None:
    """Write a copy of a ``modules.parquet`` in which the modules are on other sides.

    Args:
        path: the table.
        target: the new table, another file.
        give: returns the sides for some of the rows, which it gets with all their columns.
        metadata: the new table's metadata: how it was made.

    Raises:
        CorpusError: it is missing, damaged, or no such table.
        OSError: it cannot be written.
    """
    import pyarrow.parquet as pq

    names = ModuleRow._fields
    with create_file(target) as file:
        writer = None
        for group in iter_module_tables(path, names):
            values = arrays.texts(group.schema.field("split").type, give(group))
            group = group.set_column(names.index("split"), "split", values)
            if writer is None:  # without a stored Arrow schema, like `RowTable`
                writer = pq.ParquetWriter(file, group.schema, compression="zstd", store_schema=False)
            writer.write_table(group)
        if writer is not None:
            schema = with_meanings(group.schema, plain_columns(__doc__))
            writer.add_key_value_metadata(file_metadata(schema, metadata))
            writer.close()


def write_module_rows(path: Path, temporary: Path, rows: Iterable[ModuleRow], metadata: Mapping[str, Any]) -> None:
    """Write a ``modules.parquet`` that gets its name when it is complete.

    Raises:
        OSError: it cannot be written.
    """
    fill(ModuleTableWriter(path, temporary), rows, metadata)


def iter_module_tables(path: Place, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield a ``modules.parquet`` as tables of some thousands of rows; at least one, which may be empty.

    Raises:
        CorpusError: it is missing, damaged, or no such table.
    """
    import pyarrow as pa

    with blamed(path, missing="there is no such table"), open_parquet(path) as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        if lacking := sorted(_REQUIRED_COLUMNS & set(columns) - set(there)):
            raise CorpusError(f"{path}: expected a table of modules, found none: it has no column {lacking[0]!r}")
        batches = file.iter_batches(columns=there or ["module"], batch_size=_ROWS_AT_A_TIME, expand=True)
        for batch in chain([next(batches, None)], batches):
            made = []
            for name in columns:
                kind = pa.int64() if name in INTEGER_FIELDS else pa.string()
                found = batch is not None and name in there
                made.append(batch.column(name).cast(kind) if found else pa.nulls(len(batch or ()), kind))
            yield pa.Table.from_arrays(made, names=list(columns))


_ROWS_AT_A_TIME = 4096
_REQUIRED_COLUMNS = frozenset({"module", "status"})
