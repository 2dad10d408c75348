"""``mlgo-corpus relink``: link a build's products again, with other objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import (
    begins_again,
    err,
    finish,
    in_options,
    out,
    percent_change,
    plain,
    progress_bar,
    show_hints,
    stdout_is_ours,
    table,
    verb,
)
from mlgo_corpus.cli.options import JsonOutput, compiler_option, jobs_option
from mlgo_corpus.files.text import counted

if TYPE_CHECKING:
    from mlgo_corpus.runs.links.run import RelinkReport

_SHOWN = 40


@verb
@begins_again()
def relink(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="A corpus that 'mlgo-corpus build' made.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="DIR", help="The folder for the products, and a table of them."),
    ],
    objects: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Other objects, such as those of trace --keep-objects.",
            show_default="the build's own, as a check",
        ),
    ] = None,
    ld_flag: Annotated[
        list[str] | None,
        typer.Option("--ld-flag", metavar="FLAG", help="An option to add to every link; repeatable."),
    ] = None,
    compiler: Annotated[
        str | None, compiler_option("The clang to link with.", show_default="the build's, if it is found")
    ] = None,
    trust_corpus: Annotated[
        bool,
        typer.Option(
            "--trust-corpus",
            help="Link with any option, without confining the linker: for a corpus of your own.",
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The time limit of one link.")] = 600.0,
    jobs: Annotated[int | None, jobs_option("How many linkers to run at once.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier relink.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Link the programs and shared libraries of a build again, with other objects, and report their sizes.

    With the build's own objects, the products should come out the same, byte for byte.

    The exit code is 1 if a product could not be linked, or there is none.
    """
    from mlgo_corpus.relink import relink_corpus

    with stdout_is_ours(), progress_bar("linking") as progress:
        report = relink_corpus(
            corpus,
            output,
            objects=objects,
            ld_flags=tuple(ld_flag or ()),
            compiler=compiler,
            trust_corpus=trust_corpus,
            timeout=timeout,
            jobs=jobs,
            force=force,
            progress=lambda done, failed, total: progress(done, total, f"{failed} failed" if failed else ""),
        )
    finish(report, _show_report, as_json=json_output)


def _show_report(report: RelinkReport) -> None:
    console = out()
    console.print(
        f"[bold]{plain(str(report.output))}[/bold]: linked {report.linked} of {counted(report.products, 'product')} "
        f"in {report.seconds:.2f} s by the linker of {plain(report.compiler)}"
    )
    rows = table("product", "kind", "text", "original", "change", "objects", "identical", left=2)
    for row in report.rows[:_SHOWN]:
        size, original = row["text_size"], row["original_text_size"]
        rows.add_row(
            plain(str(row["product"])),
            str(row["kind"]),
            "-" if size is None else str(size),
            "-" if original is None else str(original),
            _change(size, original),
            f"{row['replaced']} of {row['modules']}",
            {None: "-", True: "yes", False: "no"}[row["identical"]] if row["reason"] == "ok" else str(row["reason"]),
        )
    console.print(rows)
    if len(report.rows) > _SHOWN:
        console.print(f"and {len(report.rows) - _SHOWN} more; products.parquet has them all")
    if report.original_text_size:
        console.print(
            f"text: {report.text_size} bytes, {report.original_text_size} in the originals "
            f"({_change(report.text_size, report.original_text_size)})"
        )
    if report.compared:
        console.print(f"{report.identical} of {counted(report.compared, 'product')} identical to the original")
    for product, reason, detail in report.problems:
        err().print(f"{plain(product)}: {reason}: {plain(in_options(detail))}")
    if report.missing:
        names = ", ".join(map(plain, report.missing_modules))
        distinct = {name for row in report.rows for name in row["missing_modules"]}
        why = "without another object, or joined by something unseen or not repeated"
        err().print(f"linked as built: {counted(len(distinct), 'module')} {why}: {names}")
    show_hints(report.hints)


def _change(size: object, original: object) -> str:
    return percent_change(size, original) if isinstance(size, int) and isinstance(original, int) else "-"
