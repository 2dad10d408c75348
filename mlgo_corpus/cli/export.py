"""``mlgo-corpus export``: a dataset in the files that trainers read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mlgo_corpus.cli.console import err, out, plain, print_json, progress_bar, table, verb
from mlgo_corpus.cli.options import JsonOutput, jobs_option, module_filter_option
from mlgo_corpus.files.text import counted, human_bytes


class ExportFormat(StrEnum):
    """The values of ``--format``."""

    TFRECORD = "tfrecord"


class RewardChoice(StrEnum):
    """The values of ``--reward``."""

    AUTO = "auto"
    SIZE = "size"
    LOGGED = "logged"
    ZERO = "zero"
    NONE = "none"


@verb
def export(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="What trace or logs-to-parquet made; or its s3:// URL.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to make; with --shards, the folder.")
    ],
    format: Annotated[ExportFormat, typer.Option(help="The kind of file.")] = ExportFormat.TFRECORD,  # noqa: A002, ARG001
    reward: Annotated[
        RewardChoice,
        typer.Option(
            help="The reward: of the module's size, the last one logged, 0, or none.", show_default="what the task has"
        ),
    ] = RewardChoice.AUTO,
    min_steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Leave out sequences of fewer steps; trainers drop them anyway.")
    ] = 3,
    shards: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Make a folder of N files.", show_default="one file")
    ] = None,
    module_filter: Annotated[str | None, module_filter_option("Export")] = None,
    modules_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Export modules named in a file, one a line, or in a corpus's manifest."),
    ] = None,
    jobs: Annotated[int | None, jobs_option("Worker processes.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Write a dataset as the TFRecords that ml-compiler-opt's trainers read, without TensorFlow.

    One SequenceExample per module and context, one list per feature, and the reward at each step.
    """
    from mlgo_corpus.export import export_tfrecord

    with progress_bar("exporting") as progress:
        report = export_tfrecord(
            dataset,
            output,
            reward=reward.value,
            min_steps=min_steps,
            shards=shards,
            module_filter=module_filter,
            modules_file=modules_file,
            jobs=jobs,
            force=force,
            progress=progress,
        )
    if json_output:
        print_json(report.as_json())
        raise typer.Exit(report.exit_code)
    console = out()
    rows = table("output", "sequences", "steps", "bytes", "files", "too short")
    numbers = (report.sequences, report.steps, human_bytes(report.output_bytes), report.files, report.too_short)
    rows.add_row(plain(str(report.output)), *map(str, numbers))
    console.print(rows)
    rate = f" ({human_bytes(report.output_bytes / report.seconds)}/s)" if report.seconds > 1 else ""
    console.print(f"reward: {report.reward}; in {report.seconds:.2f} s{rate}")
    if report.missing:
        err().print(f"hint: of {counted(report.missing, 'module')} the dataset has nothing, because their runs failed")
    if report.no_reward:
        err().print(
            f"{counted(report.no_reward, 'sequence')} not written: no reward is known of their modules; "
            "modules.parquet tells why"
        )
    if report.too_large:
        err().print(f"{counted(report.too_large, 'sequence')} not written: protobuf takes no message of 2 GiB")
    raise typer.Exit(report.exit_code)
