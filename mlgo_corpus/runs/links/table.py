"""``products.parquet`` of a relink: one row per program and shared library that a build linked.

============================  =========================================================================
column                        meaning
============================  =========================================================================
``product``                   its path relative to the build
``kind``                      ``program``, ``shared`` (a library) or ``relocatable`` (``-r``)
``status``                    ``ok`` (it was linked again) or ``failed``
``reason``                    a word of `RunReason`
``detail``                    one line for a person: what went wrong; empty if nothing did
``path``                      the relinked product, relative to the folder of this table; null if there is none
``text_size``                 bytes of its code and read-only data: ``text`` as llvm-size prints it
``original_text_size``        as ``text_size``, of the product linked of the build's own objects
``code_size``                 bytes of its executable sections
``original_code_size``        as ``code_size``, of the product linked of the build's own objects
``sha256``                    hex digest of the relinked product
``original_sha256``           as ``sha256``, of the product linked of the build's own objects
``original_from``             what the original's numbers are of: ``build`` (the file that the build left), ``link`` (it
                              was linked again of the build's own objects) or ``record`` (that file is gone or changed;
                              the numbers were recorded when the build ended)
``identical``                 whether the relinked product equals the original, byte for byte
``modules``                   modules of the corpus that the link can take, also as members of archives
``replaced``                  of them, those whose object came from the folder of objects
``missing``                   of them, those for which the build's own object was linked: there is none there, or
                              something unseen joined it with others (``ld -r`` by its path)
``missing_modules``           the names of the missing ones
``dropped``                   options that the command was run without, because they only write by-products
``exit_code``                 the linker's exit code; null if it did not exit by itself
``signal``                    the number of the signal that ended it; null if none did
``stderr_tail``               the end of what it wrote to stderr, at most 2 KB; null if it did not run
``wall_s``                    seconds it took
``cpu_s``                     seconds of processor time it took
``argv``                      the linker's command; paths are those of the build
============================  =========================================================================

Numbers of products that failed are null, except those of the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.tables import Kind, iter_rows, write_rows
from mlgo_corpus.files.text import storable

PRODUCTS_NAME: Final = "products.parquet"
"""The name of the table in the folder of a relink."""

PRODUCTS_FOLDER: Final = "products"
"""The name of the folder for what was linked, in the same folder."""

RELINK_KIND: Final = "relink"
"""The value of ``kind`` in the table's metadata."""


class ProductRow(NamedTuple):
    """One row; fields as the module's docstring describes them, in the file's order."""

    product: str
    kind: str
    status: str
    reason: str
    detail: str
    path: str | None = None
    text_size: int | None = None
    original_text_size: int | None = None
    code_size: int | None = None
    original_code_size: int | None = None
    sha256: str | None = None
    original_sha256: str | None = None
    original_from: str | None = None
    identical: bool | None = None
    modules: int = 0
    replaced: int = 0
    missing: int = 0
    missing_modules: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    stderr_tail: str | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    argv: tuple[str, ...] | None = None


_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(
        (
            "text_size", "original_text_size", "code_size", "original_code_size", "modules", "replaced", "missing",
            "exit_code", "signal",
        ),
        Kind.INTEGER,
    ),
    **dict.fromkeys(("wall_s", "cpu_s"), Kind.FLOAT),
    **dict.fromkeys(("missing_modules", "dropped", "argv"), Kind.TEXTS),
    "identical": Kind.BOOLEAN,
}  # fmt: skip
_REQUIRED = frozenset({"product", "kind", "status", "reason", "detail"})


def write_product_rows(path: Path, rows: Iterable[ProductRow], metadata: Mapping[str, Any]) -> None:
    """Write the table; ``metadata`` goes into its schema as JSON. Names that are not Unicode are escaped."""
    stored = ([storable(value) for value in row] for row in rows)
    write_rows(path, ProductRow._fields, _KINDS, stored, metadata, meanings=plain_columns(__doc__))


def iter_product_rows(path: Path) -> Iterator[ProductRow]:
    """Yield the table's rows.

    Raises:
        CorpusError: it is none.
    """
    rows = iter_rows(path, ProductRow._fields, _KINDS, what="products", required=_REQUIRED)
    return map(ProductRow._make, rows)
