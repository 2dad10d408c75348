"""``mlgo-corpus report``: make one HTML page on corpora, datasets, tables, policies and evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import begins_again, out, plain, print_json, progress_bar, table, verb
from mlgo_corpus.cli.options import JsonOutput
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.report import ReportSummary

_SHOWN = 12


@verb
@begins_again()
def report(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Corpora (also packed), datasets of decisions, tables of functions, or their URLs; policies, outputs "
            "of 'evaluate'.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = "report.html",
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The page's title.", show_default="the names of the inputs")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing page.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Make one HTML page that shows what is in a corpus, a dataset or a policy, and points out what is odd.

    The page is self-contained: it needs no network and no other file. Two datasets of one task, two tables or two
    corpora are also compared.
    """
    from mlgo_corpus.report import report_page

    with progress_bar("reading") as progress:
        summary = report_page(paths, output, title=title, force=force, progress=progress)
    if json_output:
        print_json(summary.as_json())
    else:
        _show_summary(summary)


def _show_summary(summary: ReportSummary) -> None:
    """Print where the page is, and what it points out."""
    console = out()
    console.print(
        f"[bold]{plain(str(summary.output))}[/bold]: {counted(len(summary.sections), 'section')}, "
        f"{human_bytes(summary.page_bytes)}, in {summary.seconds:.1f} s; open it in a browser"
    )
    rows = table("about", "what", "notes", "to check", left=2)
    for section in summary.sections:
        called = section["call_outs"]
        grave = sum(one["grave"] for one in called)
        rows.add_row(plain(section["label"]), section["kind"], str(len(called)), str(grave))
    console.print(rows)
    shown = [(section["label"], one) for section in summary.sections for one in section["call_outs"] if one["grave"]]
    for label, one in shown[:_SHOWN]:
        console.print(f"check {plain(label)}: {plain(one['text'])}")
    if len(shown) > _SHOWN:
        console.print(f"... and {len(shown) - _SHOWN} more on the page")
