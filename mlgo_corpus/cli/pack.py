"""``mlgo-corpus pack`` and ``unpack``: convert a corpus to Parquet files and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import begins_again, finish, out, plain, progress_bar, show_failures, verb
from mlgo_corpus.cli.options import JsonOutput, jobs_option
from mlgo_corpus.files.text import human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.pack import PackReport

# Text, not a path: Path turns s3:// into s3:/.
_Output = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder to write, or an s3:// URL.")]
_Jobs = Annotated[int | None, jobs_option("How many worker processes to run.")]


@verb
@begins_again()
def pack(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="The corpus folder.")],
    output: _Output,
    jobs: _Jobs = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another packed corpus.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Pack a corpus into Parquet files: one row per module, with its bitcode and its command.

    For corpora of a million small files, for object storage, and for Hugging Face datasets. trace and ir2native read
    packed corpora directly; unpack restores the corpus byte for byte.
    """
    from mlgo_corpus.pack import pack_corpus

    with progress_bar("packing") as progress:
        report = pack_corpus(corpus, output, jobs=jobs, force=force, progress=progress)
    finish(report, _show_packed, as_json=json_output)


@verb
@begins_again()
def unpack(
    packed: Annotated[str, typer.Argument(metavar="PACKED", help="A packed corpus: a folder or an s3:// URL.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="CORPUS", help="The corpus folder to write.")],
    jobs: _Jobs = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another corpus.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Restore the folder of a packed corpus, byte for byte."""
    from mlgo_corpus.pack import unpack_corpus

    with progress_bar("unpacking") as progress:
        report = unpack_corpus(packed, output, jobs=jobs, force=force, progress=progress)
    finish(report, _show_unpacked, as_json=json_output)


def _show_packed(report: PackReport) -> None:
    again = ", packed before" if report.unchanged else ""
    files = f"{report.files} file{'' if report.files == 1 else 's'}"
    _show(report.output, report.modules, f"{again}, {human_bytes(report.bitcode_bytes)} of bitcode", report.seconds)
    out().print(f"{human_bytes(report.parquet_bytes)} of Parquet in {files}")
    show_failures(report.problems, report.lacking, "the column problem")


def _show_unpacked(report: PackReport) -> None:
    again = ", unpacked before" if report.unchanged else ""
    _show(report.output, report.modules, f"{again}, {human_bytes(report.bitcode_bytes)} of bitcode", report.seconds)
    show_failures(report.problems, report.lacking, "the column problem")


def _show(output: object, modules: int, rest: str, seconds: float) -> None:
    from mlgo_corpus.files.text import printable

    name = plain(printable(str(output)))
    count = f"{modules} module{'' if modules == 1 else 's'}"
    out().print(f"[bold]{name}[/bold]: {count}{rest} in {seconds:.2f} s")
