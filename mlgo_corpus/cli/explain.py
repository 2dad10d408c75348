"""``mlgo-corpus explain``: show what one file holds, and what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import EXIT_FAILED, out, plain, print_json, table, verb
from mlgo_corpus.cli.options import JsonOutput
from mlgo_corpus.files.text import human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.explain import ExplainedModule, Explanation

# A command line has some ninety options; this much shows the compiler and the language.
_COMMAND_SHOWN = 300
_MODULES_SHOWN = 20


@verb
def explain(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An object file, an archive, a linked binary or a bitcode file.")
    ],
    bitcode_section: Annotated[
        str | None, typer.Option(metavar="NAME", help="The section that holds the bitcode (Mach-O: SEGMENT,section).")
    ] = None,
    cmd_section: Annotated[str | None, typer.Option(metavar="NAME", help="The section that holds the command.")] = None,
    json_output: JsonOutput = False,
) -> None:
    """Show what one file holds, what it lacks for a corpus, and how to fix that."""
    from mlgo_corpus.builds.objects import SectionNames
    from mlgo_corpus.explain import explain_file

    found = explain_file(file, names=SectionNames.of(bitcode_section, cmd_section))
    if json_output:
        print_json(found.as_json())
    else:
        _show(found)
    if not any(item.status == "ok" for item in found.modules):
        raise typer.Exit(EXIT_FAILED)


def _show(found: Explanation) -> None:
    console = out()
    console.print(f"[bold]{plain(str(found.path))}[/bold]: {plain(found.kind)}, {human_bytes(found.size)}")
    embedded = [(name, size) for name, size in found.sections if "llvm" in name.lower()]
    if found.sections:
        listed = ", ".join(f"{plain(name)} {human_bytes(size)}" for name, size in embedded)
        console.print(f"{len(found.sections)} sections; LLVM's own: {listed or 'none'}")
    if len(found.modules) == 1:
        _show_module(found.modules[0])
    else:
        _show_modules(found.modules)
    for advice in found.advice:
        console.print(f"-> {plain(advice)}")


def _show_module(item: ExplainedModule) -> None:
    """Show a file's only module, one line for each known property."""
    command = item.command or ""
    known = (
        ("reason", item.reason),
        ("detail", item.detail),
        ("bitcode", "" if item.bitcode_bytes is None else human_bytes(item.bitcode_bytes)),
        ("producer", item.producer),
        ("triple", item.target_triple),
        ("source", item.source_filename),
        ("opt level", item.opt_level),
        ("command", command if len(command) <= _COMMAND_SHOWN else f"{command[:_COMMAND_SHOWN]} ..."),
        ("options", "" if item.options is None else str(item.options)),
    )
    for name, value in known:
        if value:
            out().print(f"  {name + ':':10} {plain(value)}")


def _show_modules(modules: tuple[ExplainedModule, ...]) -> None:
    """Show the modules of an archive or a linked binary, one row each."""
    console = out()
    for name, values in (
        ("producer", {item.producer for item in modules if item.producer}),
        ("triple", {item.target_triple for item in modules if item.target_triple}),
    ):
        if values:
            console.print(f"  {name + ':':10} {plain(', '.join(sorted(values)))}")
    rows = table("member", "reason", "-O", "bitcode", "options", left=3)
    for item in modules[:_MODULES_SHOWN]:
        rows.add_row(
            plain(item.member or "-"),
            item.reason,
            plain(item.opt_level or "-"),
            "-" if item.bitcode_bytes is None else human_bytes(item.bitcode_bytes),
            "-" if item.options is None else str(item.options),
        )
    console.print(rows)
    if len(modules) > _MODULES_SHOWN:
        console.print(f"and {len(modules) - _MODULES_SHOWN} more; --json lists them all")
    for detail in dict.fromkeys(item.detail for item in modules if item.detail):
        console.print(f"  {plain(detail)}")
