"""``mlgo-corpus verify``: whether a corpus is what it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import err, human_bytes, out, print_json, progress_bar, table, verb
from mlgo_corpus.errors import CorpusError, UsageError

if TYPE_CHECKING:
    from mlgo_corpus.verify import VerifyReport

# A rate says something only of what took a while.
_LONG_ENOUGH_S = 0.5


@verb
def verify(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="A corpus's folder, or a manifest in it.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A Parquet file for the rows, one of each module."),
    ] = None,
    sample: Annotated[
        str | None, typer.Option(metavar="N|FRACTION", help="Check so many modules, of all sizes: 100, 0.1 or 10%.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    module_filter: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Check modules whose name matches.")
    ] = None,
    modules_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check the modules that are named in a file, one a line.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Modules at a time.", show_default="all CPUs")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Check that every file of a corpus is there, whole, and what the corpus's own table says.

    Bitcode is walked to its end, and which LLVM reads it is told from the file itself: no LLVM is needed. Corpora made
    by upstream's tools have no table, and are checked for what their files tell.
    """
    from mlgo_corpus.verify import verify_corpus

    try:
        with progress_bar("checking") as progress:
            report = verify_corpus(
                corpus,
                output=output,
                sample=sample,
                seed=seed,
                module_filter=module_filter,
                modules_file=modules_file,
                jobs=jobs,
                force=force,
                progress=lambda done, failed, total: progress(done, total, f"{failed} failed" if failed else ""),
            )
    except CorpusError as error:  # nothing was written
        raise UsageError(str(error)) from error
    if json_output:
        print_json(report.as_json())
    else:
        show_report(report)
    raise typer.Exit(report.exit_code)


def show_report(report: VerifyReport) -> None:
    """Print what was found."""
    from rich.markup import escape

    from mlgo_corpus.store.moduletable import printable
    from mlgo_corpus.store.verification import VerifyReason, status_of

    console = out()
    compared = "" if report.has_table else ", without a table to compare them with"
    rate = ""
    if report.seconds >= _LONG_ENOUGH_S:
        rate = f" ({human_bytes((report.bitcode_bytes + report.cmd_bytes) / report.seconds)}/s)"
    console.print(
        f"[bold]{escape(printable(str(report.corpus)))}[/bold]: checked {_count(report.modules, 'module')}, "
        f"{human_bytes(report.bitcode_bytes)} of bitcode, {human_bytes(report.cmd_bytes)} of commands{compared}, "
        f"in {report.seconds:.2f} s{rate}"
    )
    rows = table("reason", "rows", "status")
    for reason, count in report.counts.items():
        rows.add_row(reason, str(count), status_of(VerifyReason(reason)))
    console.print(rows)
    made = ", ".join(f"{escape(name or 'no producer named')} ({count})" for name, count in report.producers.items())
    if made:
        reads = "" if report.readable_by is None else f": LLVM {report.readable_by} and newer read all of it"
        console.print(f"bitcode of {made}{reads}")
    for module, reason, detail in report.problems:
        err().print(f"{module}: {reason}: {detail}", markup=False)
    rest = report.failed + report.warnings - len(report.problems)
    if rest > 0:
        err().print(f"and {rest} more; {report.output or '--output FILE.parquet'} has them all", markup=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
