"""``mlgo-corpus build``: run any build with compilers that embed bitcode, and extract its corpus."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import finish, out, progress_bar, show_hints, verb
from mlgo_corpus.cli.options import compiler_option, jobs_option
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.build import BuildReport
    from mlgo_corpus.cli.console import Update


@verb
def build(
    output: Annotated[str, typer.Option("--output", "-o", metavar="CORPUS", help="The corpus folder to write.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND...", help="The build's command, after --: -- make -j8.", show_default=False),
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Instead of running a build, compile every command of this compile_commands.json, also one of gcc's.",
        ),
    ] = None,
    compiler: Annotated[
        str | None,
        compiler_option(
            "The clang to build with.",
            show_default="$MLGO_CORPUS_COMPILER, a clang that $CC names, or the newest found",
        ),
    ] = None,
    build_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder that module names are relative to.", show_default="the current folder"
        ),
    ] = None,
    keep_checks: Annotated[
        bool,
        typer.Option(
            "--keep-checks", help="Keep the test programs that configure and CMake compile to probe the compiler."
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        jobs_option("How many processes extract, or compile the commands of --from, at once."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is in the corpus folder.")] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object; the build's output goes to stderr.")
    ] = False,
) -> None:
    """Run a build with a clang that embeds bitcode, and extract a corpus from what it compiles.

    mlgo-corpus build --output corpus -- make -j8

    With --from, no build runs: every command of a compilation database is compiled, in any tree, and changes nothing
    there.

    The exit code is the build's own if it fails; else 1 if an object could not be extracted or no module was found.
    """
    from mlgo_corpus.build import build_corpus

    bars: dict[str, Update] = {}
    with ExitStack() as shown:

        def show(what: str, done: int, total: int) -> None:  # no bar while the build uses the terminal
            if what not in bars:
                shown.close()
                bars[what] = shown.enter_context(progress_bar(what))
            bars[what](done, total)

        report = build_corpus(
            command or (),
            output,
            database=database,
            compiler=compiler,
            build_dir=build_dir,
            keep_checks=keep_checks,
            jobs=jobs,
            force=force,
            stdout=2 if json_output else None,
            progress=partial(show, "extracting"),
            compiling=partial(show, "compiling"),
        )
    finish(report, show_report, as_json=json_output)


def show_report(report: BuildReport) -> None:
    """Print a build's report and that of its extraction."""
    from mlgo_corpus.cli.extract import show_report as show_extraction

    counts = report.counts
    said = [f"{counted(counts.compiles, 'compile')} by {report.vendor}"]
    if counts.failed:
        said.append(f"{counts.failed} of them failed")
    if counts.checks:
        said.append(f"{counted(counts.checks, 'check')} of the compiler left out (--keep-checks)")
    if counts.kept:
        kept = counted(counts.kept, "object")
        verb_ = "is" if counts.kept == 1 else "are"
        said.append(f"{kept} that the build deleted or changed {verb_} kept ({human_bytes(counts.kept_bytes)})")
    console = out()
    console.print("; ".join(said), markup=False)
    if report.compile_commands is not None:
        console.print(f"commands: {report.compile_commands}", markup=False)
    if report.extract is not None:
        show_extraction(report.extract)
    show_hints(report.hints)
