"""``mlgo-corpus ir2native``: make a table of per-function features and native sizes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import (
    finish,
    out,
    plain,
    print_json,
    progress_bar,
    show_failures,
    show_how_to_read,
    sql_text,
    stdout_is_ours,
    table,
    verb,
)
from mlgo_corpus.cli.options import (
    AddFlags,
    DeleteFlags,
    Engine,
    EngineKind,
    JsonOutput,
    RayAddress,
    ReplaceFlags,
    Retries,
    TrustCorpus,
    compiler_option,
    engine_choice,
    filled,
    jobs_option,
    memory_limit_option,
    module_filter_option,
    modules_file_option,
    parse_size,
    sample_option,
    with_workers,
)
from mlgo_corpus.errors import UsageError

if TYPE_CHECKING:
    from mlgo_corpus.ir2native import SizesReport


class _Snapshot(StrEnum):
    """The values of ``--snapshot``."""

    POST = "post-inlining"
    PRE = "pre-inlining"


@verb
def ir2native(
    corpus: Annotated[
        str | None, typer.Argument(metavar="CORPUS", help="The corpus: a folder, a packed corpus, or its s3:// URL.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="TABLE", help="The folder to write, or a FILE.parquet, or an s3:// URL."
        ),
    ] = None,
    features: Annotated[
        str,
        typer.Option(
            metavar="GROUPS",
            help="The groups of features: all, or a list from llvm, ir2native, context, operands: llvm,context.",
        ),
    ] = "all",
    vector: Annotated[
        bool, typer.Option("--vector", help="Also add the IR2Native features as one list column.")
    ] = False,
    snapshot: Annotated[
        _Snapshot, typer.Option(help="When to take the features: after the last inlining, or before any.")
    ] = _Snapshot.POST,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Also compile every module plainly, and compare the objects.")
    ] = True,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="A model of native size, as train makes it of such tables: adds its predictions."
        ),
    ] = None,
    fractions: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="The shares of train, validation and test, for a corpus without a split of its own.",
            show_default="0.8,0.1,0.1",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the split and for --sample.")] = 0,
    compiler: Annotated[
        str | None,
        compiler_option("The clang to run; an opt of the same version is required.", show_default="the best found"),
    ] = None,
    add_flag: AddFlags = None,
    delete_flag: DeleteFlags = None,
    replace_flag: ReplaceFlags = None,
    trust_corpus: TrustCorpus = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The time limit of one program.")] = 300.0,
    memory_limit: Annotated[str | None, memory_limit_option("program")] = None,
    sample: Annotated[str | None, sample_option("Use")] = None,
    module_filter: Annotated[str | None, module_filter_option("Use")] = None,
    modules_file: Annotated[Path | None, modules_file_option("Use")] = None,
    describe: Annotated[bool, typer.Option("--describe", help="Print the meaning of every column, and exit.")] = False,
    jobs: Annotated[int | None, jobs_option("How many modules to process at once.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    retries: Retries = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start over, replacing a table made with other options.")
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Make a table of functions: their features after the last inlining, and their bytes in the object.

    For supervised models of native size, such as LLVM's IR2Native. Each module's own command decides the pipeline; one
    run yields both the features and the object with the sizes. Requires opt besides clang.
    """
    from mlgo_corpus.compilers.command import CommandEdits
    from mlgo_corpus.compilers.limits import Limits
    from mlgo_corpus.corpus.select import ModuleChoice
    from mlgo_corpus.corpus.split.sides import parse_fractions
    from mlgo_corpus.dataset.sizes.table import Columns, describe_columns
    from mlgo_corpus.ir2native import ir2native_table

    columns = Columns.of(features, vector=vector, predicted=model is not None)
    if describe:
        meanings = dict(describe_columns(columns))
        if json_output:
            print_json(meanings)
        else:
            for name, meaning in meanings.items():
                out().print(f"{name}: {meaning}", markup=False)
        return
    if corpus is None or output is None:
        raise UsageError("expected CORPUS and --output TABLE, or --describe")
    limits = filled(Limits, locals(), memory_limit=parse_size(memory_limit), retries=0)
    choice = filled(ModuleChoice, locals())
    chosen = engine_choice(engine, ray_address, retries)
    with stdout_is_ours(), progress_bar("compiling") as bar:
        progress = with_workers(bar, chosen)
        report = ir2native_table(
            corpus,
            output,
            features=features,
            vector=vector,
            snapshot=snapshot.value,
            verify=verify,
            model=model,
            fractions=None if fractions is None else parse_fractions(fractions),
            seed=seed,
            compiler=compiler,
            edits=CommandEdits.of(add_flag or (), delete_flag or (), replace_flag or (), trusted=trust_corpus),
            limits=limits,
            choice=choice,
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=lambda done, failed, functions, total: progress(
                done, total, f"{functions} functions" + (f", {failed} failed" if failed else "")
            ),
        )
    finish(report, show_report, as_json=json_output, engine=chosen)


def show_report(report: SizesReport) -> None:
    """Print a table's report, and a query to start with."""
    from mlgo_corpus.dataset.folder import rows_place
    from mlgo_corpus.dataset.sizes.table import SIZES_FOLDER
    from mlgo_corpus.files.text import counted, printable

    console = out()
    name = plain(printable(str(report.output)))
    again = ", made before in the same way" if report.unchanged else ""
    kept = f", {report.resumed} of them by an earlier run" if report.resumed else ""
    console.print(
        f"[bold]{name}[/bold]: {counted(report.functions, 'function')} of {counted(report.sized, 'module')}"
        f"{kept}{again}, {report.labelled} with a native size, in {report.seconds:.2f} s"
    )
    console.print(plain(f"by {report.compiler}"))
    rows = table("status", "functions")
    for status, count in report.statuses.items():
        rows.add_row(status, str(count))
    console.print(rows)
    if report.faithful is not None:
        console.print(f"{report.faithful} of {report.sized} objects equal the plain compile's")
    if report.code_size:
        rest = report.code_size - report.explained_size
        console.print(f"code: {report.code_size} bytes, {rest} of them of no function in the table, or padding")
    sides = ", ".join(f"{side} {count}" for side, count in report.split.items())
    random = f"divided at random, {100 * report.leakage:.1f} % of the test rows would have an equal in train"
    if report.split_by == "module":
        console.print(
            f"split of the corpus: {sides}; {100 * report.leaking:.1f} % of the test rows have an equal in train"
        )
        console.print(random)
    else:
        console.print(f"split: {sides}; {random}")
    show_failures(report.problems, report.failed, "modules.parquet")
    show_how_to_read(example_query(report), rows_place(report.output, SIZES_FOLDER))


def example_query(report: SizesReport) -> str:
    """Return a query over the table that DuckDB runs as it is."""
    from mlgo_corpus.dataset.folder import rows_pattern
    from mlgo_corpus.dataset.sizes.table import SIZES_FOLDER

    files = sql_text(rows_pattern(report.output, SIZES_FOLDER))
    return f"SELECT function, native_size FROM {files} ORDER BY native_size DESC LIMIT 10"  # noqa: S608 - shown
