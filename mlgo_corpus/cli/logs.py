"""``mlgo-corpus logs-to-parquet`` and ``parquet-to-logs``: convert training logs to tables and back."""

from __future__ import annotations

from enum import StrEnum
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
    show_how_to_read,
    sql_text,
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
    engine_choice,
    jobs_option,
    with_workers,
)
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.logs import LogsReport, RestoreReport


class _Compression(StrEnum):
    """The values of ``--compression``."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    BROTLI = "brotli"
    NONE = "none"


@verb
def logs_to_parquet(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG", help="Training logs, also .gz or .zst; folders of them; '*' patterns; - for stdin."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="DATASET", help="The folder to write, or a single FILE.parquet, or an s3:// URL."
        ),
    ],
    compression: Annotated[_Compression, typer.Option(help="The compression of the observations.")] = _Compression.ZSTD,
    rows_per_file: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The most rows per file.", show_default="32 MiB of rows")
    ] = None,
    context_regex: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Keep only contexts (functions) whose name matches.")
    ] = None,
    group_by_header: Annotated[
        bool, typer.Option("--group-by-header", help="Write a dataset for each kind of log found.")
    ] = False,
    allow_truncated: Annotated[
        bool, typer.Option("--allow-truncated", help="Keep the whole observations of damaged logs.")
    ] = False,
    jobs: Annotated[int | None, jobs_option("How many worker processes to run.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    retries: Retries = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a dataset made from other logs or options.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Convert training logs to Parquet: one row per decision, one column per feature.

    The input is what the compiler writes with -training-log=FILE; the output opens in pandas, polars, DuckDB and
    Hugging Face datasets. Nothing is lost: parquet-to-logs restores the logs byte for byte.
    """
    from mlgo_corpus.logs import convert_logs

    chosen = engine_choice(engine, ray_address, retries)
    with stdout_is_ours(), progress_bar("converting", unit="B") as progress:
        report = convert_logs(
            inputs,
            output,
            compression=compression,
            rows_per_file=rows_per_file,
            context_regex=context_regex,
            group_by_header=group_by_header,
            allow_truncated=allow_truncated,
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=with_workers(progress, chosen),
        )
    finish(report, _show, as_json=json_output, engine=chosen)


@verb
@begins_again()
def parquet_to_logs(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="A dataset from logs-to-parquet, or its s3:// URL.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder to write the logs to.")],
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Restore the training logs that a dataset was made from, byte for byte."""
    from mlgo_corpus.logs import restore_logs

    with progress_bar("restoring") as progress:
        report = restore_logs(dataset, output, force=force, progress=progress)
    finish(report, _show_restored, as_json=json_output)


def _show_restored(report: RestoreReport) -> None:
    from mlgo_corpus.files.text import printable

    out().print(
        f"{printable(str(report.output))}: {counted(report.logs, 'log')}, "
        f"{counted(report.observations, 'observation')}, {human_bytes(report.log_bytes)} in {report.seconds:.2f} s",
        markup=False,
    )
    show_hints(report.hints)


def _show(report: LogsReport) -> None:
    from mlgo_corpus.dataset.folder import rows_place
    from mlgo_corpus.files.text import printable

    console = out()
    rows = table("dataset", "logs", "contexts", "observations", "log", "Parquet", "files")
    for group in report.groups or (report,):
        sizes = (human_bytes(group.log_bytes), human_bytes(group.parquet_bytes))
        numbers = (str(group.converted), str(group.contexts), str(group.observations), *sizes, str(group.files))
        name = Path(group.output).name if report.groups else str(group.output)
        rows.add_row(plain(printable(name)), *numbers)
    console.print(rows)
    if report.unchanged:
        console.print("the dataset exists already, made from the same logs; --force makes it again")
    else:
        rate = f" ({human_bytes(report.log_bytes / report.seconds)}/s)" if report.seconds > 1 else ""
        console.print(f"in {report.seconds:.2f} s{rate}")
    show_failures(report.problems, report.failed + report.damaged, "modules.parquet")
    if report.damaged:
        err().print(
            f"{counted(report.damaged, 'damaged log')}: whole observations kept, {human_bytes(report.dropped_bytes)} "
            "dropped",
            markup=False,
        )
    show_hints(report.hints)
    for group in report.groups or (report,):
        show_how_to_read(example_query(group), rows_place(group.output))


def example_query(report: LogsReport) -> str:
    """Return a query over the dataset that DuckDB runs as it is."""
    from mlgo_corpus.dataset.folder import rows_pattern

    files = sql_text(rows_pattern(report.output))
    return f"SELECT module, count(*) FROM {files} GROUP BY module ORDER BY 2 DESC"  # noqa: S608 - shown, not run
