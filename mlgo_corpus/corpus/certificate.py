"""The rebuild certificate: whether each module of a corpus compiles again to the object it was extracted from.

============================  =========================================================================
column                        meaning
============================  =========================================================================
``module``                    the module's name
``outcome``                   a word of `Outcome`
``reason``                    why it fails or has no object; ``ok`` if it was compared
``detail``                    one line for a person
``section``                   the first section that is different: of ``differs``, the first that makes the code so
``offset``                    bytes into that section; null where the section is only in one of the objects
``source``                    the object's path relative to the build
``member``                    what the object is inside that file
``producer``                  what made the bitcode
``compiler``                  what compiled it again
``same_version``              whether both are of the same LLVM, in all three numbers
``object_sha256``             hex digest of the build's object
``rebuilt_sha256``            hex digest of the rebuilt one; the same if every byte is
``object_text_size``          bytes of the object's code and read-only data, as llvm-size prints ``text``
``rebuilt_text_size``         likewise, of the rebuilt one
``exit_code``                 the compiler's; null if it did not exit by itself
``signal``                    the number of the signal that ended it
``stderr_tail``               the end of what it wrote to stderr
``wall_s``                    seconds it took
``cpu_s``                     seconds of processor time
``argv``                      the command that was run
============================  =========================================================================

Rows are kept in a folder beside the file as they are made (`mlgo_corpus.runs.over`), so that an interrupted run goes
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.tables import Kind, iter_rows, write_table
from mlgo_corpus.files.text import storable

CERTIFICATE_KIND: Final = "rebuild"


class Outcome(StrEnum):
    """The outcome of compiling a module again.

    Attributes:
        IDENTICAL: the same object: every byte (``rebuilt_sha256`` is ``object_sha256``), or every section, relocation
            and symbol but for the embedded bitcode and command.
        CODE_IDENTICAL: the executable sections are the same, and what relocates them; something else is not.
        DIFFERS: the code is different.
        FAILS: there is no rebuilt object.
        NO_OBJECT: it was compiled, and there is no original to compare the object with.
    """

    IDENTICAL = "identical"
    CODE_IDENTICAL = "code_identical"
    DIFFERS = "differs"
    FAILS = "fails"
    NO_OBJECT = "no_object"


BAD: Final = frozenset({Outcome.DIFFERS.value, Outcome.FAILS.value})
"""The outcomes that make a certificate a bad one."""


class RebuildRow(NamedTuple):
    """One row; fields as the module's docstring describes them, in the file's order."""

    module: str
    outcome: str
    reason: str
    detail: str = ""
    section: str | None = None
    offset: int | None = None
    source: str | None = None
    member: str | None = None
    producer: str | None = None
    compiler: str | None = None
    same_version: bool | None = None
    object_sha256: str | None = None
    rebuilt_sha256: str | None = None
    object_text_size: int | None = None
    rebuilt_text_size: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    stderr_tail: str | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    argv: tuple[str, ...] | None = None


_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(
        ("offset", "object_text_size", "rebuilt_text_size", "exit_code", "signal"),
        Kind.INTEGER,
    ),
    **dict.fromkeys(("wall_s", "cpu_s"), Kind.FLOAT),
    "same_version": Kind.BOOLEAN,
    "argv": Kind.TEXTS,
}


def write_certificate(path: Path, rows: Iterable[RebuildRow], about: Mapping[str, Any]) -> None:
    """Write the rows as they come; the file gets its name when it is complete. ``about`` is read after the last row."""
    stored = ([storable(value) for value in row] for row in rows)
    write_table(path, RebuildRow._fields, _KINDS, stored, about, meanings=plain_columns(__doc__))


def read_certificate(path: Path) -> Iterator[RebuildRow]:
    """Yield the rows of a certificate.

    Raises:
        CorpusError: the file is not a certificate.
    """
    required = ("module", "outcome", "reason", "detail")
    return map(RebuildRow._make, iter_rows(path, RebuildRow._fields, _KINDS, what="rebuilt modules", required=required))
