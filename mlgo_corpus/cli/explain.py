"""``mlgo-corpus explain``: what one file holds, and what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import EXIT_FAILED, human_bytes, out, print_json, table, verb

if TYPE_CHECKING:
    from mlgo_corpus.explain import Explanation

# A command line has some ninety options; this much of it says which compiler and language it is.
_COMMAND_SHOWN = 300
_MODULES_SHOWN = 20


@verb
def explain(
    file: Annotated[Path, typer.Argument(help="An object file, an archive, a linked binary or a bitcode file.")],
    bitcode_section: Annotated[str | None, typer.Option(metavar="NAME", help="The section that holds bitcode.")] = None,
    cmd_section: Annotated[str | None, typer.Option(metavar="NAME", help="The section that holds the command.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Say what one file holds, what it lacks for a corpus, and what to do about it."""
    from mlgo_corpus.explain import explain_file
    from mlgo_corpus.store.objects import SectionNames

    found = explain_file(file, names=SectionNames.of(bitcode_section, cmd_section))
    if json_output:
        print_json(found.as_json())
    else:
        _show(found)
    if not any(item.status == "ok" for item in found.modules):
        raise typer.Exit(EXIT_FAILED)


def _show(found: Explanation) -> None:
    from rich.markup import escape

    console = out()
    console.print(f"[bold]{escape(str(found.path))}[/bold]: {escape(found.kind)}, {human_bytes(found.size)}")
    embedded = [(name, size) for name, size in found.sections if "llvm" in name.lower()]
    if found.sections:
        listed = ", ".join(f"{escape(name)} {human_bytes(size)}" for name, size in embedded)
        console.print(f"{len(found.sections)} sections; LLVM's own: {listed or 'none'}")
    rows = table("member", "reason", "bitcode", "options", "-O", "producer", "triple", "source", left=2)
    for item in found.modules[:_MODULES_SHOWN]:
        rows.add_row(
            escape(item.member or "-"),
            item.reason,
            "-" if item.bitcode_bytes is None else human_bytes(item.bitcode_bytes),
            "-" if item.options is None else str(item.options),
            item.opt_level or "-",
            escape(item.producer or "-"),
            escape(item.target_triple or "-"),
            escape(item.source_filename or "-"),
        )
    console.print(rows)
    if len(found.modules) > _MODULES_SHOWN:
        console.print(f"and {len(found.modules) - _MODULES_SHOWN} more; --json lists them all")
    for detail in dict.fromkeys(item.detail for item in found.modules if item.detail):
        console.print(f"  {escape(detail)}")
    command = next((item.command for item in found.modules if item.command), None)
    if command is not None:
        shown = command if len(command) <= _COMMAND_SHOWN else command[:_COMMAND_SHOWN] + " …"
        console.print(f"command: {escape(shown)}")
    for advice in found.advice:
        console.print(f"→ {escape(advice)}")
