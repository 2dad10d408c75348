"""``mlgo-corpus extract``: from a build to a corpus."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import finish, out, plain, progress_bar, show_hints, stdout_is_ours, table, verb
from mlgo_corpus.cli.options import (
    Engine,
    EngineKind,
    JsonOutput,
    RayAddress,
    Retries,
    engine_choice,
    jobs_option,
    module_filter_option,
    with_workers,
)
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted, human_bytes, os_reason

if TYPE_CHECKING:
    from mlgo_corpus.extract import ExtractReport


class _InputKind(StrEnum):
    """The values of ``--input-type``."""

    COMPILE_COMMANDS = "compile-commands"
    PARAMS = "params"
    AQUERY = "aquery"
    FOLDER = "folder"
    OBJECT = "object"


class _ThinLto(StrEnum):
    """The values of ``--thinlto``."""

    LOCAL = "local"
    DISTRIBUTED = "distributed"


@verb
def extract(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT",
            help="compile_commands.json, a linker's parameter file, Bazel aquery output (jsonproto), a folder, "
            "object files, archives, linked binaries.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="CORPUS", help="The corpus folder to write.")],
    input_type: Annotated[
        _InputKind | None, typer.Option(help="The kind of the inputs, if their content does not show it.")
    ] = None,
    build_dir: Annotated[
        Path | None,
        typer.Option(
            help="The folder that paths in parameter files and aquery output, and sources of a database, "
            "are relative to."
        ),
    ] = None,
    thinlto: Annotated[
        _ThinLto | None,
        typer.Option(
            help="local: collect *.3.import.bc and *.thinlto.bc; distributed: add the index that each command names."
        ),
    ] = None,
    thinlto_link_command: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The link command of a local ThinLTO build, from which to derive one command for all modules.",
        ),
    ] = None,
    command_override: Annotated[
        str | None,
        typer.Option(
            metavar="ARGS",
            help="One command for all modules, quoted as for a shell: '-cc1 ...', or options of clang's driver.",
        ),
    ] = None,
    cmd_filter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX", help="Keep only modules with an option that matches; if repeated, all must match."
        ),
    ] = None,
    module_filter: Annotated[str | None, module_filter_option("Keep")] = None,
    bitcode_section: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The section that holds the bitcode (Mach-O: SEGMENT,section)."),
    ] = None,
    cmd_section: Annotated[str | None, typer.Option(metavar="NAME", help="The section that holds the command.")] = None,
    require_command: Annotated[
        bool, typer.Option("--require-command", help="Leave out modules without a command.")
    ] = False,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Keep only one of several modules with the same bitcode and command.")
    ] = False,
    jobs: Annotated[int | None, jobs_option("How many worker processes to run.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    retries: Retries = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a corpus made from other inputs or options.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Extract the bitcode and the exact command line of every module of a build.

    Build with clang and -Xclang -fembed-bitcode=all, then pass the build's compile_commands.json or its folder. After
    a rebuild, the same command reads only what changed.
    """
    from mlgo_corpus.extract import extract_corpus

    chosen = engine_choice(engine, ray_address, retries)
    with stdout_is_ours(), progress_bar("extracting") as progress:
        report = extract_corpus(
            inputs,
            output,
            input_type=input_type,
            build_dir=build_dir,
            thinlto=thinlto,
            thinlto_link_command=_link_command(thinlto_link_command),
            command_override=command_override,
            cmd_filters=tuple(cmd_filter or ()),
            module_filter=module_filter,
            bitcode_section=bitcode_section,
            cmd_section=cmd_section,
            require_command=require_command,
            dedup=dedup,
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=with_workers(progress, chosen),
        )
    finish(report, show_report, as_json=json_output, engine=chosen)


def show_report(report: ExtractReport) -> None:
    """Print an extraction's report and hints."""
    from mlgo_corpus.builds.objects import Reason
    from mlgo_corpus.corpus.modules import STATUS_FAILED
    from mlgo_corpus.files.text import printable
    from mlgo_corpus.runs.extract.module import status_of

    console = out()
    again = f", {report.unchanged} of them unchanged" if report.unchanged else ""
    console.print(
        f"[bold]{plain(printable(str(report.output)))}[/bold]: {counted(report.modules, 'module')} from "
        f"{counted(report.objects, 'object')}{again} "
        f"in {report.seconds:.2f} s"
    )
    rows = table("reason", "rows", "status")
    for reason, count in report.counts.items():
        rows.add_row(reason, str(count), status_of(Reason(reason)))
    console.print(rows)
    if report.bitcode_found:
        console.print(
            f"{human_bytes(report.bitcode_bytes)} of bitcode, {human_bytes(report.cmd_bytes)} of commands; "
            f"of {human_bytes(report.bitcode_found)} of bitcode found, "
            f"{_accounted(report.bitcode_found, report.bitcode_explained)}"
        )
    for reason, sources in report.examples.items():
        if status_of(Reason(reason)) == STATUS_FAILED:
            more = " ..." if report.counts[reason] > len(sources) else ""
            console.print(f"{reason}: {plain(', '.join(sources))}{more}")
    if report.removed:
        console.print(f"{counted(report.removed, 'module')} of the run before left the corpus")
    show_hints(report.hints)


def _accounted(found: int, explained: int) -> str:
    return "all is accounted for" if found == explained else f"{abs(found - explained)} bytes are not accounted for"


def _link_command(path: Path | None) -> tuple[str, ...] | None:
    from mlgo_corpus.files.regular import read_file
    from mlgo_corpus.formats.commands.buildfiles import parse_response_file

    if path is None:
        return None
    try:
        return parse_response_file(bytes(read_file(str(path))))
    except OSError as error:
        raise UsageError(f"{path}: {os_reason(error)}") from error
