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

from pathlib import Path
from typing import NamedTuple

from mlgo_corpus.store.tables import Kind, RowTable

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


INTEGER_FIELDS = frozenset({"bitcode_bytes", "cmd_bytes"})
REQUIRED_FIELDS = frozenset({"module", "source", "status", "reason", "detail"})


class ModuleTableWriter(RowTable):
    """Writes rows to a Parquet file that appears under its name only when it is whole."""

    def __init__(self, path: Path, temporary: Path) -> None:
        super().__init__(path, temporary, ModuleRow._fields, dict.fromkeys(INTEGER_FIELDS, Kind.INTEGER))


def printable(text: str) -> str:
    """Make text storable: bytes that are not UTF-8 (surrogates) are written ``%XX``."""
    if text.isascii():
        return text
    return "".join(
        f"%{ord(character) & 0xFF:02X}" if "\ud800" <= character <= "\udfff" else character for character in text
    )
