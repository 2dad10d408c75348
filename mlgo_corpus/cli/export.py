"""``mlgo-corpus export``: write a dataset in the format that trainers read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import begins_again, err, finish, out, plain, progress_bar, show_hints, table, verb
from mlgo_corpus.cli.options import JsonOutput, jobs_option, module_filter_option
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.export import ExportReport


class _ExportFormat(StrEnum):
    """The values of ``--format``."""

    TFRECORD = "tfrecord"


class _RewardChoice(StrEnum):
    """The values of ``--reward``."""

    AUTO = "auto"
    SIZE = "size"
    LOGGED = "logged"
    ZERO = "zero"
    NONE = "none"


@verb
@begins_again()
def export(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="A dataset from trace or logs-to-parquet, or its s3:// URL.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file to write; with --shards, the folder.")
    ],
    format: Annotated[_ExportFormat, typer.Option(help="The file format.")] = _ExportFormat.TFRECORD,  # noqa: A002, ARG001
    reward: Annotated[
        _RewardChoice,
        typer.Option(
            help="The reward: from the module's size, the last logged, 0, or none.", show_default="depends on the task"
        ),
    ] = _RewardChoice.AUTO,
    min_steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Leave out sequences with fewer steps; trainers drop them anyway.")
    ] = 3,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Write a folder of N files, or of one for each module with observations if these are fewer.",
            show_default="one file",
        ),
    ] = None,
    module_filter: Annotated[str | None, module_filter_option("Export")] = None,
    modules_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Export only the modules listed in this file, one per line, or in this corpus manifest.",
        ),
    ] = None,
    jobs: Annotated[int | None, jobs_option("How many worker processes to run.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Write a dataset as TFRecords for ml-compiler-opt's trainers, without TensorFlow.

    There is one SequenceExample per module and context, with one list per feature and the reward of each step.
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
    finish(report, _show_report, as_json=json_output)


def _show_report(report: ExportReport) -> None:
    console = out()
    rows = table("output", "sequences", "steps", "bytes", "files", "too short")
    numbers = (report.sequences, report.steps, human_bytes(report.output_bytes), report.files, report.too_short)
    rows.add_row(plain(str(report.output)), *map(str, numbers))
    console.print(rows)
    rate = f" ({human_bytes(report.output_bytes / report.seconds)}/s)" if report.seconds > 1 else ""
    console.print(f"reward: {report.reward}; in {report.seconds:.2f} s{rate}")
    if report.no_reward:
        err().print(
            f"{counted(report.no_reward, 'sequence')} not written: the reward of their modules is unknown; "
            "see modules.parquet for the reason"
        )
    if report.too_large:
        err().print(f"{counted(report.too_large, 'sequence')} not written: a protobuf message must be below 2 GiB")
    show_hints(report.hints)
