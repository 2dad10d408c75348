"""``mlgo-corpus combine`` and ``mlgo-corpus make``: corpora from other corpora, and from loose bitcode files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import begins_again, finish, out, plain, progress_bar, show_failures, show_hints, verb
from mlgo_corpus.cli.options import JsonOutput
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted

if TYPE_CHECKING:
    from mlgo_corpus.combine import CombineReport
    from mlgo_corpus.make import MakeReport

_FAILED_SHOWN = 5

Link = Annotated[
    bool,
    typer.Option("--link", help="Hard-link the modules' files (the default); copy those that cannot be linked."),
]
Copy = Annotated[bool, typer.Option("--copy", help="Copy the modules' files.")]
Reference = Annotated[
    bool, typer.Option("--reference", help="Link the modules' files symbolically: the originals must stay in place.")
]


def placing(link: bool, copy: bool, reference: bool) -> str:
    """Return the chosen way to place files in a new corpus.

    Raises:
        UsageError: more than one was chosen.
    """
    chosen = [name for name, given in (("link", link), ("copy", copy), ("reference", reference)) if given]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]}: expected one of them")
    return chosen[0] if chosen else "link"


@verb
@begins_again()
def combine(
    corpora: Annotated[
        list[str] | None,
        typer.Argument(metavar="CORPUS", help="The corpora; NAME=CORPUS sets the name of its folder."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="CORPUS", help="The corpus folder to write.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Combine in place, as LLVM's tool does: write a manifest in DIR for all corpora in folders of DIR.",
        ),
    ] = None,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    force: Annotated[bool, typer.Option("--force", help="Replace another corpus or manifest.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Combine several corpora into one.

    Each module's name is prefixed with the name of its corpus. Corpora whose settings for all modules differ (ThinLTO,
    one command for all) cannot be combined; the error names the setting and the corpora.
    """
    from mlgo_corpus.combine import combine_corpora, combine_in_place

    if root is not None:
        if corpora or output is not None or link or copy or reference:
            raise UsageError("--root DIR: expected alone; without it: mlgo-corpus combine CORPUS... --output DIR")
        report = combine_in_place(root, force=force)
    elif not corpora or output is None:
        raise UsageError("expected CORPUS... --output DIR, or --root DIR")
    else:
        how = placing(link, copy, reference)
        with progress_bar("combining") as progress:
            report = combine_corpora(corpora, output, placing=how, force=force, progress=progress)
    finish(report, _show_combined, as_json=json_output)


def _show_combined(report: CombineReport) -> None:
    console = out()
    there = ", as before" if report.unchanged else ""
    corpora_of = "1 corpus" if len(report.corpora) == 1 else f"{len(report.corpora)} corpora"
    console.print(
        f"[bold]{plain(str(report.output))}[/bold]: {counted(report.modules, 'module')} of {corpora_of} "
        f"in {report.seconds:.2f} s{there}"
    )
    for name, count in report.corpora:
        console.print(f"  {plain(name)}/ {counted(count, 'module')}")
    if report.left_out:
        console.print(f"{counted(report.left_out, 'row')} of what the corpora had left out came along")
    show_failures(report.failed[:_FAILED_SHOWN], len(report.failed))
    show_hints(report.hints)


@verb
@begins_again()
def make(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder with the *.bc files, searched recursively.")
    ],
    default_args: Annotated[
        str | None,
        typer.Option(
            metavar="ARGS",
            help="One command for all modules, quoted as for a shell: '-cc1 ...', or options of clang's driver.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="CORPUS", help="The corpus folder to write.", show_default="DIR itself"),
    ] = None,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    force: Annotated[bool, typer.Option("--force", help="Replace another corpus or manifest.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Make a corpus from loose bitcode files.

    A module is named after its file. NAME.thinlto.bc is the ThinLTO index of NAME.bc, NAME.cmd its own command.
    """
    from mlgo_corpus.make import make_corpus

    how = placing(link, copy, reference)
    if output is None and (link or copy or reference):
        raise UsageError(f"--{how}: requires --output")
    with progress_bar("reading") as progress:
        report = make_corpus(folder, output, default_args=default_args, placing=how, force=force, progress=progress)
    finish(report, _show_made, as_json=json_output)


def _show_made(report: MakeReport) -> None:
    there = ", as before" if report.unchanged else ""
    with_index = " with ThinLTO indexes" if report.has_thinlto else ""
    out().print(
        f"[bold]{plain(str(report.output))}[/bold]: {counted(report.modules, 'module')}{with_index} "
        f"in {report.seconds:.2f} s{there}"
    )
    show_failures(report.failed[:_FAILED_SHOWN], len(report.failed))
    show_hints(report.hints)
