"""``mlgo-corpus split`` and ``mlgo-corpus dedup``: divide a corpus without leaks, and find redundant modules."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.combine import Copy, Link, Reference, placing
from mlgo_corpus.cli.console import (
    begins_again,
    finish,
    out,
    plain,
    progress_bar,
    show_failures,
    show_hints,
    table,
    verb,
)
from mlgo_corpus.cli.options import JsonOutput, jobs_option
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.dedup import DedupReport
    from mlgo_corpus.split import SplitReport

_SHOWN = 5


class _Weigh(StrEnum):
    """What can be weighed, as the option takes it; importing it from the library would make the help slow."""

    FUNCTIONS = "functions"
    BITCODE = "bitcode"
    MODULES = "modules"


@verb
@begins_again()
def split(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="The corpus: a folder, a packed corpus, or its URL.")],
    fractions: Annotated[
        str, typer.Option(metavar="TRAIN,VALIDATION,TEST", help="The shares of the three sides.")
    ] = "0.8,0.1,0.1",
    weigh: Annotated[
        _Weigh,
        typer.Option(help="What the sides get their shares of; functions are closest to decisions."),
    ] = _Weigh.FUNCTIONS,
    by_project: Annotated[
        bool,
        typer.Option(
            "--by-project",
            help="Keep together the modules of each of the corpora that CORPUS was combined of, instead of those that "
            "share bodies.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the division.")] = 0,
    max_component: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="The largest share of the modules in one group; to keep to it, the most common bodies are ignored, as "
            "few as possible.",
        ),
    ] = None,
    min_instructions: Annotated[int, typer.Option(min=0, help="Ignore function bodies with fewer instructions.")] = 8,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write three corpora to DIR (train, validation, test), and leave CORPUS as it is.",
        ),
    ] = None,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    jobs: Annotated[int | None, jobs_option("How many processes read modules.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another split.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Divide a corpus into train, validation and test so that nothing leaks.

    Modules that share a function's body, under whatever name, are on the same side, directly or through other modules;
    with --by-project, those of one project. Writes corpus_description.train.json and so on into the corpus, each of
    which every verb accepts as a corpus, and the column split of modules.parquet.
    """
    from mlgo_corpus.corpus.split.sides import parse_fractions
    from mlgo_corpus.split import split_corpus

    with progress_bar("reading functions") as progress:
        report = split_corpus(
            corpus,
            fractions=parse_fractions(fractions),
            weigh=weigh.value,
            by_project=by_project,
            seed=seed,
            max_component=max_component,
            min_instructions=min_instructions,
            output=output,
            placing=placing(link, copy, reference),
            jobs=jobs,
            force=force,
            progress=progress,
        )
    finish(report, _show_split, as_json=json_output)


def _show_split(report: SplitReport) -> None:
    """Print how a corpus was divided, and what leaks."""
    console = out()
    total = sum(report.modules.values())
    there = ", as before" if report.unchanged else ""
    but = " but those that were ignored" if report.ignored_bodies else ""
    groups = f"{counted(report.groups, 'group')} that have no function in common{but}"
    if report.by_project:
        groups = counted(report.groups, "project")
    console.print(
        f"[bold]{plain(str(report.corpus))}[/bold]: {counted(total, 'module')} in {groups}, "
        f"in {report.seconds:.2f} s{there}"
    )
    rows = table("side", "modules", "bitcode", "functions", f"of all {report.weigh}", "wanted")
    weighed = report.amounts[report.weigh]
    for (side, weight), wanted in zip(weighed.items(), report.fractions, strict=True):
        size = human_bytes(report.bitcode_bytes[side])
        share = f"{weight / (sum(weighed.values()) or 1):.1%}"
        rows.add_row(side, str(report.modules[side]), size, str(report.functions[side]), share, f"{wanted:.1%}")
    console.print(rows)
    bodies = f"{report.bodies} bodies of at least {counted(report.min_instructions, 'instruction')}"
    console.print(
        f"of {bodies}, {report.shared_bodies} are in several modules; "
        f"the largest {'project' if report.by_project else 'group'} has {counted(report.largest_group, 'module')}"
    )
    if report.limit is not None:
        console.print(
            f"{report.ignored_bodies} bodies were ignored, as more than {counted(report.limit, 'module')} have them"
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
    show_failures(report.problems[:_SHOWN], len(report.problems))
    show_hints(report.hints)


@verb
@begins_again()
def dedup(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="The corpus: a folder, a packed corpus, or its URL; not changed.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="CORPUS", help="The corpus to write, without the duplicates.", show_default="none"
        ),
    ] = None,
    near: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="Also drop modules with this share of their instructions in functions of a kept module, such as 0.95.",
        ),
    ] = None,
    ignore_commands: Annotated[
        bool,
        typer.Option(
            "--ignore-commands", help="Treat modules with the same bitcode as duplicates, whatever their commands."
        ),
    ] = False,
    min_instructions: Annotated[
        int, typer.Option(min=0, help="With --near: functions with fewer instructions count as not shared.")
    ] = 8,
    link: Link = False,
    copy: Copy = False,
    reference: Reference = False,
    jobs: Annotated[int | None, jobs_option("How many processes read modules.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another corpus.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Find redundant modules, and make a corpus without them.

    A module is redundant if an earlier one has the same bitcode and command; with --near, also if it is nearly
    contained in a larger one, or if an earlier one has the same source and functions, as libtool's do.
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
    finish(report, partial(_show_dedup, near=near is not None), as_json=json_output)


def _show_dedup(report: DedupReport, *, near: bool) -> None:
    """Print which modules were dropped, and why."""
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
        console.print(f"{plain(str(report.output))}: {counted(report.kept, 'module')} left")
    show_failures(report.problems[:_SHOWN], len(report.problems))
    show_hints(report.hints)
