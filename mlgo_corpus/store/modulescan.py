"""The table of a corpus's modules: its own ``modules.parquet``, or one made by reading every module.

A corpus of LLVM's mlgo-utils or of ml-compiler-opt has no table; all that it would say is in the modules' files, but
for what was left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.formats.bitcode import is_bitcode, read_module_header
from mlgo_corpus.formats.cmdline import CommandFacts, read_facts, split_options
from mlgo_corpus.store.corpus import MODULES_NAME, Corpus, Module
from mlgo_corpus.store.extraction import functions_of
from mlgo_corpus.store.moduletable import (
    INTEGER_FIELDS,
    STATUS_FAILED,
    STATUS_OK,
    ModuleRow,
    iter_module_rows,
    printable,
    read_module_columns,
)
from mlgo_corpus.store.objects import Reason

if TYPE_CHECKING:
    import pyarrow as pa

    from mlgo_corpus.formats.bitcode import ModuleHeader


def iter_rows(corpus: Corpus) -> Iterator[ModuleRow]:
    """Give the rows of a corpus's table, also of what was left out; where it has none, one of each module's files.

    Raises:
        CorpusError: the table is damaged.
    """
    path = corpus.path / MODULES_NAME
    if not path.is_file():
        yield from map(scan_module, corpus)
        return
    wanted = frozenset(map(printable, corpus.names))
    seen = set()
    for row in iter_module_rows(path):
        if row.status != STATUS_OK:
            yield row
        elif row.module in wanted:
            seen.add(row.module)
            yield row
    for module in corpus:  # a manifest that somebody edited
        if printable(module.name) not in seen:
            yield scan_module(module)


def read_rows_as_columns(corpus: Corpus, columns: Sequence[str]) -> pa.Table:
    """Give the same rows as `iter_rows`, as columns: a million in a second where the corpus has a table.

    Raises:
        CorpusError: the table is damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    path = corpus.path / MODULES_NAME
    wanted = tuple(dict.fromkeys(("module", "status", *columns)))
    rest: Sequence[str] = corpus.names
    tables = []
    if path.is_file():
        table = read_module_columns(path, wanted)
        names = pa.array(map(printable, corpus.names), pa.string())
        there = pc.equal(table["status"], STATUS_OK)
        table = table.filter(pc.or_(pc.invert(there), pc.is_in(table["module"], value_set=names)))
        tables.append(table)
        if pc.sum(pc.equal(table["status"], STATUS_OK)).as_py() == len(rest):
            rest = ()
        else:  # a manifest that somebody edited
            known = frozenset(table.filter(pc.equal(table["status"], STATUS_OK))["module"].to_pylist())
            rest = [name for name in corpus.names if printable(name) not in known]
    if rest or not tables:
        rows = [scan_module(corpus[name]) for name in rest]
        kinds = [pa.int64() if name in INTEGER_FIELDS else pa.string() for name in wanted]
        arrays = [
            pa.array([getattr(row, name) for row in rows], kind) for name, kind in zip(wanted, kinds, strict=True)
        ]
        tables.append(pa.Table.from_arrays(arrays, names=list(wanted)))
    return pa.concat_tables(tables)


def scan_module(module: Module) -> ModuleRow:
    """Read a module's files, and give the row that an extraction would have written; a failed one if they are damaged.

    ``source`` is the module's own name.
    """
    name = printable(module.name)
    try:
        data = module.bitcode()
    except CorpusError as error:
        return ModuleRow(name, name, None, STATUS_FAILED, str(Reason.MISSING), printable(error.message))
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
        detail = "expected bitcode, found other data"
        return row._replace(status=STATUS_FAILED, reason=str(Reason.MALFORMED), detail=detail)
    try:
        header: ModuleHeader | None = read_module_header(data)
    except FormatError as error:
        detail = printable(str(error.at(None)))
        return row._replace(status=STATUS_FAILED, reason=str(Reason.MALFORMED), detail=detail)
    own, facts = _own_command(module)
    overridden = module.override is not None
    triple = (facts.target_triple if facts else None) or (header.target_triple if header else None)
    return row._replace(
        reason=str(Reason.OK if own is not None or overridden else Reason.NO_COMMAND),
        cmd_bytes=None if own is None else len(own),
        cmd_sha256=None if own is None else sha256(own).hexdigest(),
        cmd_origin="override" if overridden else "none" if own is None else "embedded",
        target_triple=_printable(triple),
        producer=_printable(header.producer if header else None),
        ir_stage=None if facts is None else "post-opt" if facts.embeds_post_opt else "pre-opt",
        opt_level=_printable(facts.opt_level if facts else None),
        main_file_name=_printable(facts.main_file_name if facts else None),
        functions=functions_of(data),
    )


def _own_command(module: Module) -> tuple[bytes | None, CommandFacts | None]:
    try:
        command = module.own_command()
    except CorpusError:
        return None, None
    return command, read_facts(split_options(command))


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)
