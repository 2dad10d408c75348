"""``mlgo-corpus stats``: show what is in a corpus."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import bar, begins_again, draws_blocks, out, plain, print_json, show_hints, table, verb
from mlgo_corpus.cli.options import JsonOutput, refuse
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.stats import CorpusStats

_BAR = 32
_GROUPS_SHOWN = 20


class _GroupedBy(StrEnum):
    """The values of ``--by``."""

    FOLDER = "folder"
    OPT_LEVEL = "opt-level"
    TRIPLE = "triple"
    PRODUCER = "producer"
    LANGUAGE = "language"


@verb
@begins_again()
def stats(
    context: typer.Context,
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="The corpus: a folder, a packed corpus, or its URL.")],
    by: Annotated[_GroupedBy | None, typer.Option(help="Also sum up the modules by this property.")] = None,
    depth: Annotated[
        int, typer.Option(min=1, help="With --by folder: how many leading folders of a module's name to group by.")
    ] = 1,
    json_output: JsonOutput = False,
) -> None:
    """Show what is in a corpus: modules, bytes, functions, sizes, duplicates, what was left out and why.

    The figures come from modules.parquet; only a corpus without that file is read in full.
    """
    from mlgo_corpus.stats import corpus_stats

    if by is not _GroupedBy.FOLDER:
        refuse(context, "requires --by folder", "depth")
    found = corpus_stats(corpus, by=by, depth=depth)
    if json_output:
        print_json(found.as_json())
    else:
        show_stats(found)


def show_stats(found: CorpusStats) -> None:
    """Print what is in a corpus."""
    console = out()
    console.print(f"[bold]{plain(str(found.corpus))}[/bold]: {counted(found.modules, 'module')}{_functions(found)}")
    console.print(f"{human_bytes(found.bitcode_bytes)} of bitcode, {human_bytes(found.cmd_bytes)} of commands")
    if found.has_thinlto or found.override is not None:
        command = "" if found.override is None else f"one command for all: {plain(shlex.join(found.override))}"
        console.print(
            ", ".join(text for text in ("with ThinLTO indexes" if found.has_thinlto else "", command) if text)
        )
    if found.duplicates:
        console.print(
            f"{counted(found.duplicates, 'module')} the same as an earlier one ({human_bytes(found.duplicate_bytes)})"
        )
    if found.splits:
        console.print("split: " + ", ".join(f"{plain(name)} {count}" for name, count in found.splits.items()))
    rows = table("reason", "rows", "status")
    for reason, status, count in found.reasons:
        rows.add_row(plain(reason), str(count), plain(status))
    console.print(rows)
    if found.histogram:
        console.print(
            "a module's bitcode: " + ", ".join(f"{name} {human_bytes(size)}" for name, size in found.sizes.items())
        )
        bars = table("from", "modules", "", left=0)
        most = max(count for _, count in found.histogram)
        draws = draws_blocks(console)
        for size, count in found.histogram:
            bars.add_row(
                human_bytes(size), str(count), bar(count, most, _BAR) if draws else "#" * -(-count * _BAR // most)
            )
        bars.columns[-1].justify = "left"
        console.print(bars)
        console.print("largest: " + ", ".join(f"{plain(name)} {human_bytes(size)}" for name, size in found.largest))
    if found.by is not None:
        groups = table(found.by, "modules", "bitcode", "functions", "duplicates")
        for group in found.groups[:_GROUPS_SHOWN]:
            functions = "" if group.functions is None else str(group.functions)
            groups.add_row(
                plain(group.label),
                str(group.modules),
                human_bytes(group.bitcode_bytes),
                functions,
                str(group.duplicates),
            )
        console.print(groups)
        if len(found.groups) > _GROUPS_SHOWN:
            console.print(f"... and {len(found.groups) - _GROUPS_SHOWN} more; --json has all")
    if not found.from_table:
        console.print("(there is no modules.parquet: every module was read; mlgo-corpus make writes one)")
    show_hints(found.hints)


def _functions(found: CorpusStats) -> str:
    if found.functions is None:
        return ""
    unknown = f" (not known of {counted(found.functions_unknown, 'module')})" if found.functions_unknown else ""
    return f", {counted(found.functions, 'function')}{unknown}"
