"""``mlgo-corpus split`` and ``mlgo-corpus dedup``: which modules belong together, and which are superfluous."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.combine import Copy, Link, Reference, placing
from mlgo_corpus.cli.console import EXIT_FAILED, err, out, plain, print_json, progress_bar, table, verb
from mlgo_corpus.cli.options import JsonOutput, jobs_option
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.dedup import DedupReport
    from mlgo_corpus.split import SplitReport

_SHOWN = 5


@verb
def split(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="A corpus folder, or a packed corpus or its URL.")],
    fractions: Annotated[
        str, typer.Option(metavar="TRAIN,VALIDATION,TEST", help="The share of the modules on each side.")
    ] = "0.8,0.1,0.1",
    seed: Annotated[int, typer.Option(min=0, help="Other seeds divide otherwise.")] = 0,
    max_component: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="If modules that hang together would be more than this share: bodies that most modules have do not "
            "count, as few as possible.",
        ),
    ] = None,
    min_instructions: Annotated[int, typer.Option(min=0, help="Bodies of fewer instructions do not count.")] = 8,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Make three corpora in DIR, train, validation and test; leave CORPUS."
        ),
    ] = None,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    jobs: Annotated[int | None, jobs_option("Processes that read modules.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another split.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Divide a corpus into train, validation and test so that nothing leaks.

    Modules that share a function's body, whatever it is called, are on one side, and so is what hangs together with
    them. Writes corpus_description.train.json and so on into the corpus, each of them a corpus for every verb, and the
    column split of modules.parquet.
    """
    from mlgo_corpus.corpus.split.sides import parse_fractions
    from mlgo_corpus.split import split_corpus

    with progress_bar("reading functions") as progress:
        report = split_corpus(
            corpus,
            fractions=parse_fractions(fractions),
            seed=seed,
            max_component=max_component,
            min_instructions=min_instructions,
            output=output,
            placing=placing(link, copy, reference),
            jobs=jobs,
            force=force,
            progress=progress,
        )
    if json_output:
        print_json(report.as_json())
    else:
        show_split(report)
    raise typer.Exit(EXIT_FAILED if report.problems else 0)


def show_split(report: SplitReport) -> None:
    """Print how a corpus was divided, and what that lets through."""
    console = out()
    total = sum(report.modules.values())
    there = ", as before" if report.unchanged else ""
    console.print(
        f"[bold]{plain(str(report.corpus))}[/bold]: {counted(total, 'module')} in {counted(report.groups, 'group')} "
        f"that have no function in common, in {report.seconds:.2f} s{there}"
    )
    rows = table("side", "modules", "share", "wanted", "bitcode")
    for (side, modules), wanted in zip(report.modules.items(), report.fractions, strict=True):
        size = human_bytes(report.bitcode_bytes[side])
        rows.add_row(side, str(modules), f"{modules / total:.1%}", f"{wanted:.1%}", size)
    console.print(rows)
    bodies = f"{report.bodies} bodies of at least {counted(report.min_instructions, 'instruction')}"
    console.print(
        f"of {bodies}, {report.shared_bodies} are in several modules; "
        f"the largest group has {counted(report.largest_group, 'module')}"
    )
    if report.limit is not None:
        console.print(
            f"{report.ignored_bodies} bodies did not count, as more than {counted(report.limit, 'module')} have them"
        )
    leaks = table("modules not in train that share a body with train", "modules", "functions")
    leaks.add_row("this split", *(f"{value:.1%}" for value in (report.leakage.modules, report.leakage.functions)))
    leaks.add_row(
        "a random one", *(f"{value:.1%}" for value in (report.random_leakage.modules, report.random_leakage.functions))
    )
    console.print(leaks)
    if report.output is None:
        console.print(f"each side is a corpus: {plain(f'{report.corpus}/corpus_description.train.json')}")
    else:
        console.print(f"each side is a corpus: {plain(str(report.output / 'train'))}")
    _show_problems(report.problems)
    if report.off:
        share = report.largest_group / total
        why = f"one group has {share:.0%} of the modules: " if share > max(report.fractions) else ""
        err().print(
            f"[yellow]hint:[/yellow] the sides are not what was wanted; {why}--max-component 0.1 lets bodies that most "
            "modules have not count, --min-instructions small ones"
        )


@verb
def dedup(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="A corpus folder, or a packed corpus or its URL; it is not changed.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="CORPUS", help="A corpus without the duplicates.", show_default="none"),
    ] = None,
    near: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="Also drop modules of whose instructions this share is in functions of a kept module, such as 0.95.",
        ),
    ] = None,
    ignore_commands: Annotated[
        bool,
        typer.Option("--ignore-commands", help="Modules of the same bitcode are the same, whatever their commands."),
    ] = False,
    min_instructions: Annotated[
        int, typer.Option(min=0, help="With --near: functions of fewer instructions are not compared.")
    ] = 8,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    jobs: Annotated[int | None, jobs_option("Processes that read modules.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another corpus.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Find modules that another one makes superfluous, and make a corpus without them.

    The same bitcode and command as an earlier module; with --near, also those nearly contained in a larger one.
    """
    from mlgo_corpus.dedup import dedup_corpus

    with progress_bar("reading functions") as progress:
        report = dedup_corpus(
            corpus,
            output,
            near=near,
            ignore_commands=ignore_commands,
            min_instructions=min_instructions,
            placing=placing(link, copy, reference),
            jobs=jobs,
            force=force,
            progress=progress,
        )
    if json_output:
        print_json(report.as_json())
    else:
        show_dedup(report, near=near is not None)
    raise typer.Exit(EXIT_FAILED if report.problems else 0)


def show_dedup(report: DedupReport, *, near: bool) -> None:
    """Print what was dropped and why."""
    console = out()
    there = ", as before" if report.unchanged else ""
    console.print(
        f"[bold]{plain(str(report.corpus))}[/bold]: {counted(report.modules, 'module')}, of which "
        f"{len(report.dropped)} ({human_bytes(report.dropped_bytes)} of {human_bytes(report.bitcode_bytes)}) "
        f"are superfluous, in {report.seconds:.2f} s{there}"
    )
    rows = table("why", "modules")
    rows.add_row("the same as another", str(sum(one.exact for one in report.dropped)))
    if near:
        rows.add_row("nearly contained in another", str(sum(not one.exact for one in report.dropped)))
    console.print(rows)
    for one in report.dropped[:_SHOWN]:
        how = "=" if one.exact else f"{one.share:.1%} in"
        console.print(f"  {plain(one.module)} {how} {plain(one.kept)}")
    if len(report.dropped) > _SHOWN:
        console.print(f"  ... and {len(report.dropped) - _SHOWN} more; --json has all")
    if report.output is None:
        console.print("nothing was written: --output CORPUS makes a corpus without them")
    else:
        console.print(f"{plain(str(report.output))}: the {counted(report.kept, 'module')} that are left")
    _show_problems(report.problems)


def _show_problems(problems: tuple[tuple[str, str], ...]) -> None:
    for name, why in problems[:_SHOWN]:
        err().print(f"[red]failed:[/red] {plain(name)}: {plain(why)}")
    if len(problems) > _SHOWN:
        err().print(f"... and {len(problems) - _SHOWN} more")
