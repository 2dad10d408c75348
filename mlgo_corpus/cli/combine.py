"""``mlgo-corpus combine`` and ``mlgo-corpus make``: corpora from other corpora, and from loose bitcode files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from mlgo_corpus.cli.console import EXIT_FAILED, err, out, plain, print_json, progress_bar, verb
from mlgo_corpus.cli.options import JsonOutput
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted

Link = Annotated[
    bool,
    typer.Option("--link", help="Hard links to the modules' files (the default); copies where that is impossible."),
]
Copy = Annotated[bool, typer.Option("--copy", help="Copies of the modules' files.")]
Reference = Annotated[
    bool, typer.Option("--reference", help="Symbolic links: no files, and the originals have to stay in their place.")
]


def placing(link: bool, copy: bool, reference: bool) -> str:
    """Give the way that was chosen for files to come into a new corpus.

    Raises:
        UsageError: more than one was.
    """
    chosen = [name for name, given in (("link", link), ("copy", copy), ("reference", reference)) if given]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]}: expected one of them")
    return chosen[0] if chosen else "link"


@verb
def combine(
    corpora: Annotated[
        list[str] | None,
        typer.Argument(metavar="CORPUS", help="Corpora, or NAME=CORPUS to say what its modules' folder is called."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="CORPUS", help="The corpus folder to make.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Instead: write DIR's manifest for all corpora that are folders in DIR, as LLVM's tool does.",
        ),
    ] = None,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    force: Annotated[bool, typer.Option("--force", help="Replace another corpus, or another manifest.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Make one corpus of several.

    A module's name gets the name of its corpus in front. Corpora that say different things of all their modules
    (ThinLTO, a command for all) cannot be one, and it is said which says what.
    """
    from mlgo_corpus.combine import combine_corpora, combine_in_place

    if root is not None:
        if corpora or output is not None or link or copy or reference:
            raise UsageError("--root DIR: stands alone; without it: mlgo-corpus combine CORPUS... --output DIR")
        report = combine_in_place(root, force=force)
    elif not corpora or output is None:
        raise UsageError("expected CORPUS... --output DIR, or --root DIR")
    else:
        how = placing(link, copy, reference)
        with progress_bar("combining") as progress:
            report = combine_corpora(corpora, output, placing=how, force=force, progress=progress)
    if json_output:
        print_json(report.as_json())
    else:
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
        for name, why in report.failed[:5]:
            err().print(f"[red]failed:[/red] {plain(name)}: {plain(why)}")
        if len(report.failed) > 5:
            err().print(f"... and {len(report.failed) - 5} more")
        if report.copied:
            err().print(f"[yellow]hint:[/yellow] {counted(report.copied, 'file')} could not be linked and were copied")
    raise typer.Exit(EXIT_FAILED if report.failed else 0)


@verb
def make(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with *.bc files in it or below it.")],
    default_args: Annotated[
        str | None,
        typer.Option(metavar="ARGS", help="The command of all modules, quoted as for a shell: '-cc1 -O2 ...'."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="CORPUS", help="The corpus folder to make.", show_default="DIR itself"),
    ] = None,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    force: Annotated[bool, typer.Option("--force", help="Replace another corpus, or another manifest.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Make a corpus of loose bitcode files.

    A module is called after its file. NAME.thinlto.bc is the ThinLTO index of NAME.bc, NAME.cmd its own command.
    """
    from mlgo_corpus.make import make_corpus

    try:
        arguments = None if default_args is None else shlex.split(default_args)
    except ValueError as error:
        raise UsageError(f"--default-args: cannot be split as a shell would: {error}") from error
    how = placing(link, copy, reference)
    if output is None and (link or copy or reference):
        raise UsageError(f"--{how}: is of --output, which is not given")
    with progress_bar("reading") as progress:
        report = make_corpus(folder, output, default_args=arguments, placing=how, force=force, progress=progress)
    if json_output:
        print_json(report.as_json())
    else:
        there = ", as before" if report.unchanged else ""
        with_index = " with ThinLTO indexes" if report.has_thinlto else ""
        out().print(
            f"[bold]{plain(str(report.output))}[/bold]: {counted(report.modules, 'module')}{with_index} "
            f"in {report.seconds:.2f} s{there}"
        )
        for name, reason, detail in report.failed[:5]:
            err().print(f"[red]{reason}:[/red] {plain(name)}: {plain(detail)}")
        if len(report.failed) > 5:
            err().print(f"... and {len(report.failed) - 5} more")
        if report.without_command:
            err().print(
                f"[yellow]hint:[/yellow] {counted(report.without_command, 'module')} without a command, and trainers "
                "refuse a corpus with such modules: --default-args gives one for all"
            )
    raise typer.Exit(EXIT_FAILED if report.failed else 0)
