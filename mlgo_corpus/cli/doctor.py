"""``mlgo-corpus doctor``: what is installed, what is missing, and what to do; also ``--version``."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Annotated

from mlgo_corpus import __version__
from mlgo_corpus.cli.console import finish, out, plain, table, verb
from mlgo_corpus.cli.options import JsonOutput, compiler_option
from mlgo_corpus.cli.toolchain import command_of, show_toolchains
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted

if TYPE_CHECKING:
    from mlgo_corpus.doctor import Diagnosis

# Its text is for people, who paste it into a message: in a pipe, too.
_PIPED_WIDTH = 80
_COLOURS = {"ready": "green", "limited": "yellow", "missing": "yellow", "broken": "red"}


@verb
def doctor(
    compiler: Annotated[
        str | None,
        compiler_option("A compiler to list first: a program, a command or a toolchain's folder."),
    ] = None,
    json_output: JsonOutput = False,
) -> None:
    """Check what is installed, what each verb lacks, and how to fix it.

    The check imports packages, writes to folders and runs compilers. The exit code is 1 if something is broken; things
    that are merely not installed do not count.
    """
    from mlgo_corpus.doctor import diagnose

    found = diagnose(compiler)
    finish(found, _show, as_json=json_output)


@verb
def show_version() -> None:
    """Print the versions of this package, Python, the main libraries and the compilers found."""
    from importlib.metadata import version

    from mlgo_corpus.toolchain import list_toolchains

    console = out()
    console.print(f"mlgo-corpus {__version__}")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pyarrow", "lief"))
    console.print(f"Python {platform.python_version()}, {libraries}")
    try:
        found = list_toolchains()
    except UsageError as error:  # MLGO_CORPUS_COMPILER names no compiler
        console.print(f"no compiler: {plain(str(error))}")
        return
    for toolchain in found:
        if toolchain.problem is None:
            console.print(f"clang {toolchain.version}: {plain(command_of(toolchain))}")
    if all(toolchain.problem for toolchain in found):
        console.print("no compiler found: mlgo-corpus doctor says what to do")


def _show(found: Diagnosis) -> None:
    from mlgo_corpus.doctor import State

    console = out(_PIPED_WIDTH)
    console.print(f"mlgo-corpus {__version__}")
    rows = table("", "", "", left=3)
    group = None
    for finding in found.findings:
        if group is not None and finding.group != group:
            rows.add_section()
        group = finding.group
        remedy = f"\n-> {plain(finding.remedy)}" if finding.remedy else ""
        colour = _COLOURS[finding.state]
        rows.add_row(plain(finding.name), f"[{colour}]{finding.state}[/{colour}]", plain(finding.found) + remedy)
    rows.show_header = False
    console.print(rows)
    console.print()
    if found.toolchains:
        show_toolchains(found.toolchains, console)
    broken = sum(finding.state == State.BROKEN for finding in found.findings)
    missing = sum(finding.state in (State.MISSING, State.LIMITED) for finding in found.findings)
    if broken:
        console.print(f"{counted(broken, 'thing')} broken: see above")
    elif missing:
        console.print(f"nothing is broken; {counted(missing, 'thing')} can be added, see the arrows")
    else:
        console.print("everything is ready")
