"""The table of a corpus's modules: its own ``modules.parquet``, or one made by reading every module.

A corpus of LLVM's mlgo-utils or of ml-compiler-opt has no table. The modules' files contain all that a table would,
except what was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from mlgo_corpus.builds.objects import Reason
from mlgo_corpus.corpus.folder import Corpus, Module
from mlgo_corpus.corpus.modules import (
    INTEGER_FIELDS,
    STATUS_FAILED,
    STATUS_OK,
    ModuleRow,
    iter_module_rows,
    iter_module_tables,
)
from mlgo_corpus.corpus.packed.rows import METADATA_COLUMNS
from mlgo_corpus.errors import CorpusError, FormatError, TruncatedError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.names import MODULES_NAME, is_name
from mlgo_corpus.files.text import printable, storable
from mlgo_corpus.formats.bitcode.functions import count_functions
from mlgo_corpus.formats.bitcode.headers import is_bitcode, read_module_header
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.embedded import CommandFacts, read_facts, split_options

if TYPE_CHECKING:
    import pyarrow as pa

_SCANNED_AT_A_TIME = 4096
_PACKED_COLUMNS = ("bitcode_bytes", "cmd_bytes", *METADATA_COLUMNS)


def iter_rows(corpus: Corpus) -> Iterator[ModuleRow]:
    """Yield the rows of a corpus's table, also of what was left out; without a table, a row made from each module.

    Each module comes once, however often the manifest or the table names it.

    Raises:
        CorpusError: the table is damaged.
    """
    path = corpus.there / MODULES_NAME
    missing = {printable(name): name for name in corpus.names}
    if path.is_file():
        for row in iter_module_rows(path):
            if row.status != STATUS_OK or missing.pop(row.module, None) is not None:
                yield row
    # The corpus has no table, or its manifest was edited.
    yield from _scan_modules(corpus, tuple(missing.values()))


def iter_duplicates(corpus: Corpus) -> Iterator[tuple[str, str]]:
    """Yield what was left out as the same as a module: the name that it would have had, and the module's.

    Raises:
        CorpusError: the table is damaged.
    """
    path = corpus.there / MODULES_NAME
    if path.is_file():
        for table in iter_module_tables(path, ("module", "duplicate_of")):
            names, kept = (table[name].to_pylist() for name in ("module", "duplicate_of"))
            yield from ((name, module) for name, module in zip(names, kept, strict=True) if module is not None)


def iter_tables(corpus: Corpus, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of `iter_rows` as tables of some thousands; ``module`` and ``status`` are always columns.

    Raises:
        CorpusError: the table is damaged.
    """
    import pyarrow as pa

    path = corpus.there / MODULES_NAME
    wanted = tuple(dict.fromkeys(("module", "status", *columns)))
    missing = {printable(name): name for name in corpus.names}
    if path.is_file():
        for table in iter_module_tables(path, wanted):
            named = zip(table["module"].to_pylist(), table["status"].to_pylist(), strict=True)
            kept = [status != STATUS_OK or missing.pop(name, None) is not None for name, status in named]
            yield table if all(kept) else table.filter(arrays.numbers_or_null(pa.bool_(), kept))
    chunks = _chunks(missing.values())
    for names in chunks if missing or path.is_file() else ([],):  # there is no table, or the manifest was edited
        rows = list(_scan_modules(corpus, names))
        kinds = [pa.int64() if name in INTEGER_FIELDS else pa.string() for name in wanted]
        made = []
        for name, kind in zip(wanted, kinds, strict=True):
            values = [getattr(row, name) for row in rows]
            made.append((arrays.numbers_or_null if name in INTEGER_FIELDS else arrays.texts)(kind, values))
        yield pa.Table.from_arrays(made, names=list(wanted))


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while chunk := list(islice(rest, _SCANNED_AT_A_TIME)):
        yield chunk


def _scan_modules(corpus: Corpus, names: Sequence[str]) -> Iterator[ModuleRow]:
    """Yield the rows that `scan_module` makes; those of a packed corpus were made when it was packed.

    Raises:
        CorpusError: a packed corpus is damaged.
    """
    columns = ("module", *_PACKED_COLUMNS)
    for name, (found, *values) in zip(names, corpus.iter_values(names, columns), strict=True):
        known = dict(zip(_PACKED_COLUMNS, values, strict=True))
        if known["source"] is None or known["reason"] is None:  # it could not be read when packed, or has no row
            yield scan_module(corpus[name])
        elif found != printable(name):
            raise CorpusError(f"{corpus.location}: its row has another module", name)
        else:
            yield ModuleRow(module=found, status=STATUS_OK, detail="", **known)


def scan_module(module: Module) -> ModuleRow:
    """Read a module's files, and return the row that extract would have written; a failed one if they are damaged.

    ``source`` is the module's own name.
    """
    name = printable(module.name)
    try:
        data = module.bitcode()
    except CorpusError as error:
        return ModuleRow(name, name, None, STATUS_FAILED, str(reason_without(module)), printable(error.message))
    row = ModuleRow(
        module=name,
        source=name,
        member=None,
        status=STATUS_OK,
        reason=str(Reason.OK),
        detail="",
        bitcode_bytes=len(data),
        bitcode_sha256=sha256(data).hexdigest(),
    )
    if not is_bitcode(data):
        detail = "expected bitcode, found other data" if data else "expected bitcode, found an empty file"
        return row._replace(status=STATUS_FAILED, reason=str(Reason.MALFORMED), detail=detail)
    try:
        header = read_module_header(data)
    except FormatError as error:
        detail = printable(str(error.at(None)))
        reason = Reason.TRUNCATED if isinstance(error, TruncatedError) else Reason.MALFORMED
        return row._replace(status=STATUS_FAILED, reason=str(reason), detail=detail)
    own, facts = _own_command(module)
    overridden = module.override is not None
    triple = (facts.target_triple if facts else None) or header.target_triple
    return row._replace(
        reason=str(Reason.OK if own is not None or overridden else Reason.NO_COMMAND),
        cmd_bytes=None if own is None else len(own),
        cmd_sha256=None if own is None else sha256(own).hexdigest(),
        cmd_origin="override" if overridden else "none" if own is None else "embedded",
        target_triple=storable(triple),
        producer=storable(header.producer),
        ir_stage=None if facts is None else "post-opt" if facts.embeds_post_opt else "pre-opt",
        opt_level=storable(facts.opt_level if facts else None),
        main_file_name=storable(facts.main_file_name if facts else None),
        functions=functions_of(data),
    )


def reason_without(module: Module) -> Reason:
    """Return why a module's files could not be read: they are not there, or are unreadable."""
    return Reason.MISSING if not is_name(module.name) or module.is_missing() else Reason.UNREADABLE


def _own_command(module: Module) -> tuple[bytes | None, CommandFacts | None]:
    try:
        command = module.own_command()
    except CorpusError:
        return None, None
    return command, read_facts(split_options(command))


def functions_of(data: Buffer) -> int | None:
    """Return the number of functions that a module defines; None if its bitcode does not say without being read."""
    try:
        return count_functions(data)
    except FormatError:
        return None
