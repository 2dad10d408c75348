"""``mlgo-corpus verify``: check a corpus, and rebuild its modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import (
    begins_again,
    err,
    finish,
    out,
    plain,
    progress_bar,
    show_failures,
    show_hints,
    stdout_is_ours,
    table,
    verb,
)
from mlgo_corpus.cli.options import (
    Engine,
    EngineKind,
    JsonOutput,
    RayAddress,
    Retries,
    TrustCorpus,
    compiler_option,
    engine_choice,
    jobs_option,
    memory_limit_option,
    module_filter_option,
    modules_file_option,
    parse_size,
    refuse,
    sample_option,
    with_workers,
)
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.runs.rebuild.run import RebuildReport
    from mlgo_corpus.verify import VerifyReport

# A rate is meaningful only for longer runs.
_LONG_ENOUGH_S = 0.5


@verb
@begins_again()
def verify(
    context: typer.Context,
    corpus: Annotated[
        str,
        typer.Argument(metavar="CORPUS", help="The corpus: a folder, a manifest in it, a packed corpus, or its URL."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The Parquet file to write, one row per module; with --rebuild, rebuild.parquet in CORPUS by default.",
        ),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Compile every module again, and compare it with the object that it was extracted from."
        ),
    ] = False,
    build_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="A folder with the build's objects; repeatable.", show_default="the current folder"
        ),
    ] = None,
    compiler: Annotated[
        str | None,
        compiler_option("The clang to rebuild with.", show_default="each module's own version"),
    ] = None,
    trust_corpus: TrustCorpus = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The time limit of one compile.")] = 300.0,
    memory_limit: Annotated[str | None, memory_limit_option("compile")] = None,
    sample: Annotated[str | None, sample_option("Check")] = None,
    seed: Annotated[int, typer.Option(help="Seed for --sample.")] = 0,
    module_filter: Annotated[str | None, module_filter_option("Check")] = None,
    modules_file: Annotated[Path | None, modules_file_option("Check")] = None,
    jobs: Annotated[int | None, jobs_option("How many modules to process at once.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    retries: Retries = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Check that every file of a corpus exists, is whole, and matches the corpus's own table.

    Bitcode is read to its end, and the file itself shows which LLVM can read it: no LLVM is needed. Corpora made by
    upstream's tools have no table; their files are checked on their own.

    With --rebuild, every module is compiled with its own command, and its object compared with the one in the build.
    After an interruption, the same command continues where it stopped.
    """
    from mlgo_corpus.verify import verify_corpus

    if not rebuild:
        of_compiles = "build_dir", "compiler", "trust_corpus", "timeout", "memory_limit"
        refuse(context, "requires --rebuild", *of_compiles, "engine", "ray_address", "retries")
    chosen = engine_choice(engine, ray_address, retries)
    with stdout_is_ours(), progress_bar("checking") as progress:
        rebuilding = with_workers(progress, chosen)
        report = verify_corpus(
            corpus,
            output=output,
            rebuild=rebuild,
            build_dirs=tuple(build_dir or ()),
            compiler=compiler,
            trust_corpus=trust_corpus,
            timeout=timeout,
            memory_limit=parse_size(memory_limit),
            sample=sample,
            seed=seed,
            module_filter=module_filter,
            modules_file=modules_file,
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=lambda done, failed, total: progress(done, total, f"{failed} failed" if failed else ""),
            rebuild_progress=lambda done, bad, total: rebuilding(
                done, total, "rebuilt" + (f", {bad} bad" if bad else "")
            ),
        )
    finish(report, show_report, as_json=json_output, engine=chosen)


def show_report(report: VerifyReport) -> None:
    """Print a check's report, and that of a rebuild."""
    from mlgo_corpus.corpus.verify import VerifyReason, status_of

    console = out()
    compared = "" if report.has_table else ", without a table to compare them with"
    rate = ""
    if report.seconds >= _LONG_ENOUGH_S:
        rate = f" ({human_bytes((report.bitcode_bytes + report.cmd_bytes) / report.seconds)}/s)"
    console.print(
        f"[bold]{plain(str(report.corpus))}[/bold]: checked {counted(report.modules, 'module')}, "
        f"{human_bytes(report.bitcode_bytes)} of bitcode, {human_bytes(report.cmd_bytes)} of commands{compared}, "
        f"in {report.seconds:.2f} s{rate}"
    )
    rows = table("reason", "rows", "status")
    for reason, count in report.counts.items():
        rows.add_row(reason, str(count), status_of(VerifyReason(reason)))
    console.print(rows)
    made = ", ".join(f"{plain(name or 'no producer named')} ({count})" for name, count in report.producers.items())
    if made:
        reads = "" if report.readable_by is None else f": LLVM {report.readable_by} and newer read all of it"
        console.print(f"bitcode of {made}{reads}")
    place = "--output FILE.parquet" if report.output is None or report.rebuild is not None else report.output
    show_failures(report.problems, report.failed + report.warnings, place)
    if report.rebuild is not None:
        show_certificate(report.rebuild)


def show_certificate(report: RebuildReport) -> None:
    """Print a rebuild's report and hints."""
    from mlgo_corpus.verify import rebuild_hints

    console = out()
    kept = f", {report.resumed} of them by an earlier run" if report.resumed else ""
    console.print(
        f"[bold]{plain(str(report.output))}[/bold]: rebuilt {counted(report.modules, 'module')}{kept} "
        f"in {report.seconds:.2f} s"
    )
    rows = table("outcome", "modules")
    for outcome, count in report.outcomes.items():
        rows.add_row(outcome, str(count))
    console.print(rows)
    for vendor, count in report.compilers.items():
        console.print(f"{counted(count, 'module')} by {plain(vendor)}")
    if report.compared:
        console.print(f"every byte came again in {report.same_bytes} of {counted(report.compared, 'compared object')}")
    show_failures((*report.problems, *report.notes), report.bad + len(report.notes), report.output)
    if report.modules and not report.compared:
        err().print("nothing was compared")
    show_hints(rebuild_hints(report))
