"""Write the parts of ``formats.md`` that come from the code: columns, reasons, grammar.

Each part is between ``<!-- NAME -->`` and ``<!-- end -->``, so that the page can be read without being built. A test
compares them with the code; ``python docs/_ext/columns.py`` updates them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from mlgo_corpus.builds import originals
from mlgo_corpus.corpus import certificate
from mlgo_corpus.corpus import functions as functiontable
from mlgo_corpus.corpus import modules as moduletable
from mlgo_corpus.corpus import verify as verification
from mlgo_corpus.corpus.packed import corpus as packed
from mlgo_corpus.dataset import calls, flips, logtable, tracetable
from mlgo_corpus.dataset.reasons import RELINK_REASONS, SIZES_REASONS, TRACE_REASONS, RunReason
from mlgo_corpus.dataset.sizes import table as sizestable
from mlgo_corpus.files.markdown import documented_columns
from mlgo_corpus.files.tables import Kind
from mlgo_corpus.formats.logs import events as traininglog
from mlgo_corpus.formats.logs.meanings import MEANINGS
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY
from mlgo_corpus.formats.objects import symbols
from mlgo_corpus.runs.evaluate import table as evaluationtable
from mlgo_corpus.runs.links import table as producttable

PAGE = Path(__file__).parents[1] / "formats.md"

_TYPES = {
    Kind.TEXT: "string",
    Kind.LABEL: "string",
    Kind.INTEGER: "int64",
    Kind.FLOAT: "double",
    Kind.BOOLEAN: "bool",
    Kind.TEXTS: "list of string",
}
_FUNCTION_TYPES = {"instructions": "int32", "body_hash": "uint64"}
_FLIP_TYPES = {
    **dict.fromkeys(("compile", "others", "calls"), "int32"),
    **dict.fromkeys(("base", "tried"), "int8"),
    **dict.fromkeys(("text_effect", "effect"), "double"),
    "kept": "bool",
}
_PACKED_TYPES = {
    "bitcode": "binary",
    "command": "list of string",
    "command_bytes": "binary",
    "thinlto_index": "binary",
    **dict.fromkeys(("bitcode_bytes", "cmd_bytes", "bitcode_mtime_ns", "command_mtime_ns"), "int64"),
}


def table(first: str, rows: Iterable[tuple[str, ...]], *others: str) -> str:
    """Return a table in Markdown."""
    lines = [(first, *others), ("---",) * (1 + len(others)), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def said(text: str) -> str:
    """Return a docstring's text as Markdown."""
    text = re.sub(r"a word of `[\w.]+`", "one of the words below", " ".join(text.split()))
    return re.sub(r"`+([^`]+)`+", r"`\1`", text).replace("|", r"\|").rstrip(".")


def columns(text: str | None, fields: Iterable[str], types: Mapping[str, str]) -> str:
    """Return the table of columns in a module's docstring, with their types."""
    meanings = documented_columns(text or "")
    rows = [(f"`{name}`", types.get(name, "string"), said(meanings[name])) for name in fields]
    return table("column", rows, "type", "meaning")


def row_columns(text: str | None, fields: Iterable[str], kinds: Mapping[str, Kind]) -> str:
    """Return the same for a table of rows."""
    return columns(text, fields, {name: _TYPES[kind] for name, kind in kinds.items()})


def words(vocabulary: type[StrEnum], first: str = "reason", only: Collection[str] | None = None) -> str:
    """Return a table of a vocabulary's words, or of some of them, with what its docstring says of them."""
    found = {match[1]: match[2] for match in _ATTRIBUTE.finditer(inspect.getdoc(vocabulary) or "")}
    return table(
        first, ((f"`{word}`", said(found[word.name])) for word in vocabulary if only is None or word in only), "meaning"
    )


_ATTRIBUTE = re.compile(r"^    (\w+): ((?:.|\n {8})*)", re.MULTILINE)


def features(task: str) -> str:
    """Return the meanings of the columns of a task's observations."""
    return table("column", ((f"`{name}`", said(text)) for name, text in MEANINGS[task].items()), "meaning")


def grammar() -> str:
    """Return the grammar of training logs, and its example."""
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", traininglog.__doc__ or "")
    block = re.sub(r"^    ", "", blocks[0].rstrip("\n"), flags=re.MULTILINE)
    return f"```text\n{block}\n```"


def verify_reasons() -> str:
    """Return the reasons of ``verify`` with their status."""
    lines = words(verification.VerifyReason).splitlines()
    status = [verification.status_of(reason) for reason in verification.VerifyReason]
    return "\n".join(
        [
            "| reason | status | meaning |",
            "| --- | --- | --- |",
            *(line.replace(" | ", f" | {one} | ", 1) for line, one in zip(lines[2:], status, strict=True)),
        ]
    )


def sizes(group: str) -> str:
    """Return the columns of a group of the table of functions."""
    chosen = () if group == "always" else (group,)
    found = list(sizestable.describe_columns(sizestable.Columns(chosen)))
    if chosen:
        always = {name for name, _ in sizestable.describe_columns(sizestable.Columns(()))}
        found = [(name, text) for name, text in found if name not in always]
    rows = [(f"`{name}`", said(text)) for name, text in found]
    return table("column", rows, "meaning")


def parts() -> Iterator[tuple[str, str]]:
    """Yield the parts of the page, by name."""
    yield "grammar", grammar()
    yield (
        "corpus-modules",
        columns(moduletable.__doc__, moduletable.ModuleRow._fields, dict.fromkeys(moduletable.INTEGER_FIELDS, "int64")),
    )
    names = documented_columns(functiontable.__doc__ or "")
    yield "corpus-functions", columns(functiontable.__doc__, names, _FUNCTION_TYPES)
    yield "verify", row_columns(verification.__doc__, verification.VerifyRow._fields, verification._KINDS)
    yield "verify-reasons", verify_reasons()
    yield "rebuild", row_columns(certificate.__doc__, certificate.RebuildRow._fields, certificate._KINDS)
    yield "outcomes", words(certificate.Outcome, "outcome")
    yield "original-reasons", words(originals.OriginalReason)
    yield "packed", columns(packed.__doc__, documented_columns(packed.__doc__ or ""), _PACKED_TYPES)
    for task in (INLINING, EVICTION, PRIORITY):
        yield task, features(task)
    yield "log-modules", row_columns(logtable.__doc__, logtable.LogRow._fields, logtable.KINDS)
    yield "trace-modules", row_columns(tracetable.__doc__, tracetable.TraceRow._fields, tracetable.KINDS)
    yield "trace-reasons", words(RunReason, only=TRACE_REASONS)
    yield "calls", columns(calls.__doc__, calls.CALL_COLUMNS, dict.fromkeys(("line", "column"), "int32"))
    yield "flips", columns(flips.__doc__, documented_columns(flips.__doc__ or ""), _FLIP_TYPES)
    yield "searches", row_columns(flips.SEARCH_COLUMNS, flips.SearchRow._fields, flips._KINDS)
    yield "products", row_columns(producttable.__doc__, producttable.ProductRow._fields, producttable._KINDS)
    evaluation = evaluationtable.EvaluationRow._fields
    yield "evaluation", row_columns(evaluationtable.__doc__, evaluation, evaluationtable._KINDS)
    linked = evaluationtable.LinkedRow._fields
    yield "evaluation-products", row_columns(evaluationtable.LINKED_COLUMNS, linked, evaluationtable._LINKED_KINDS)
    yield "relink-reasons", words(RunReason, only=RELINK_REASONS)
    yield "sizes-always", sizes("always")
    yield "sizes-context", sizes("context")
    yield "sizes-llvm", sizes("llvm")
    yield "sizes-operands", sizes("operands")
    predicted = [(f"`{name}`", said(text)) for name, text in sizestable.PREDICTED.items()]
    yield "sizes-predicted", table("column", predicted, "meaning")
    yield "sizes-status", words(symbols.LabelStatus, "status")
    rows = (
        (f"`{name}`", _TYPES[sizestable.MODULE_KINDS.get(name, Kind.TEXT)], said(sizestable.MODULE_MEANINGS[name]))
        for name in sizestable.ModuleSizes._fields
    )
    yield "sizes-modules", table("column", rows, "type", "meaning")
    yield "sizes-reasons", words(RunReason, only=SIZES_REASONS)


def rewritten(text: str) -> str:
    """Return the page with its parts updated from the code.

    Raises:
        ValueError: the page has no place for a part.
    """
    for name, part in parts():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->\n")
        if not end:
            raise ValueError(f"{PAGE.name} has no <!-- {name} --> with an <!-- end -->")
        text = f"{before}{begin}\n{part}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
