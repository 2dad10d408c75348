"""``modules.parquet``: one row per input object or member, also for those that were left out.

========================  ===========================================================================
column                    meaning
========================  ===========================================================================
``module``                the module's name in the corpus; for a row left out, the one it would have had
``source``                the object's path, relative to the build
``member``                archive member, fat slice or main file inside a linked binary; null if none
``status``                ``ok`` (in the corpus), ``skipped`` or ``failed``
``reason``                a word of `mlgo_corpus.store.objects.Reason`
``detail``                one line for a person
``bitcode_bytes``         bytes of bitcode, also of modules left out; null where none was found
``cmd_bytes``             bytes of the embedded command; null where there is none
``bitcode_sha256``        hex digest of the bitcode; null unless the module was read whole
``cmd_sha256``            hex digest of the command
``cmd_origin``            ``embedded``, ``override`` (the corpus's) or ``none``
``target_triple``         from the command, else from the bitcode
``producer``              from the bitcode's identification block, such as ``LLVM19.1.7``
``ir_stage``              ``pre-opt`` or ``post-opt``
``opt_level``             ``0`` to ``3``, ``s`` or ``z``
``main_file_name``        the command's ``-main-file-name``
``duplicate_of``          the module kept instead of this one
========================  ===========================================================================
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mlgo_corpus.store.corpus import create_file

STATUS_OK = "ok"
STATUS_SKIPPED = "skipped"
STATUS_FAILED = "failed"

# Rows are buffered up to this many; at about a kilobyte each that bounds memory, whatever the corpus's size.
_ROWS_PER_GROUP = 4096


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


INTEGER_FIELDS = frozenset({"bitcode_bytes", "cmd_bytes"})
REQUIRED_FIELDS = frozenset({"module", "source", "status", "reason", "detail"})


class ModuleTableWriter:
    """Writes rows to a Parquet file that appears under its name only when it is whole."""

    def __init__(self, path: Path, temporary: Path) -> None:
        self._path = path
        self._temporary = temporary
        self._rows: list[ModuleRow] = []
        self._writer: Any = None
        self._file: Any = None

    def append(self, row: ModuleRow) -> None:
        """Add a row; now and then this writes a row group."""
        self._rows.append(row)
        if len(self._rows) == _ROWS_PER_GROUP:
            self._flush()

    def commit(self, metadata: Mapping[str, Any]) -> None:
        """Write what is left and give the file its name; ``metadata`` goes into the schema as JSON."""
        self._flush()
        self._writer.add_key_value_metadata({"mlgo_corpus": json.dumps(metadata, sort_keys=True)})
        self._writer.close()
        self._file.close()
        self._temporary.replace(self._path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._writer is not None:
            with contextlib.suppress(OSError, ValueError):  # a full disk was reported when it was met
                self._writer.close()
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema(
            [(name, pa.int64() if name in INTEGER_FIELDS else pa.string()) for name in ModuleRow._fields]
        )
        if self._writer is None:
            # Without a stored Arrow schema, whose metadata would be fixed now and hide what commit() adds.
            self._file = create_file(self._temporary)
            self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", store_schema=False)
        if not self._rows and self._writer is not None:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        self._rows.clear()


def printable(text: str) -> str:
    """Make text storable: bytes that are not UTF-8 (surrogates) are written ``%XX``."""
    if text.isascii():
        return text
    return "".join(
        f"%{ord(character) & 0xFF:02X}" if "\ud800" <= character <= "\udfff" else character for character in text
    )
