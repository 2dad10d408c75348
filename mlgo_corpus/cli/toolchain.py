"""``mlgo-corpus toolchain``: list compilers, build one that writes training logs, and put a policy into one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mlgo_corpus.cli.console import EXIT_FAILED, begins_again, err, out, plain, print_json, progress_bar, table, verb
from mlgo_corpus.cli.options import JsonOutput, compiler_option, jobs_option
from mlgo_corpus.files.text import counted, visible

if TYPE_CHECKING:
    from rich.console import Console

    from mlgo_corpus.compilers.devmode.build import Released
    from mlgo_corpus.compilers.native.wrapped import Wrapped
    from mlgo_corpus.compilers.probe import Toolchain
    from mlgo_corpus.files.remote import Place
    from mlgo_corpus.toolchain import BuildReport, ExtendReport
    from mlgo_corpus.wrap import WrapReport

# Wide enough for the table's other columns and a short path.
_LEAST_WIDTH: Final = 80


class _Mode(StrEnum):
    """The values of ``--mode``."""

    DEVELOPMENT = "development"
    RELEASE = "release"


toolchain_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List the compilers on this machine, build one that writes training logs, and put a policy into one.",
)


@toolchain_app.command("list", short_help="List the compilers found, and what each can do.")
@verb
def _list_command(
    compiler: Annotated[
        str | None,
        compiler_option("A compiler to list first: a program, a command or a toolchain's folder."),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Probe every compiler again, ignoring cached results.")
    ] = False,
    jobs: Annotated[int | None, jobs_option("How many compilers to probe at once.")] = None,
    json_output: JsonOutput = False,
) -> None:
    """List the compilers found, and what each can do: probed on ten lines of C, not guessed from the version.

    The candidates are --compiler, $MLGO_CORPUS_COMPILER, results of 'toolchain build', clang and clang-N on PATH and
    where packages install LLVM, and ziglang from pip. Compilers with a policy inside, from 'toolchain wrap' and from
    'toolchain build --mode release', are listed apart. The exit code is 1 if no compiler works.
    """
    from mlgo_corpus.toolchain import list_released, list_toolchains
    from mlgo_corpus.wrap import list_wrapped

    found = list_toolchains(compiler, jobs=jobs, refresh=refresh)
    wrapped, released = list_wrapped(), list_released()
    if json_output:
        lists = {"wrapped": [*map(asdict, wrapped)], "released": [*map(asdict, released)]}
        print_json({"toolchains": [toolchain.as_json() for toolchain in found], **lists})
    else:
        show_toolchains(found, out())
        _show_with_policy(wrapped, released)
    working = [toolchain for toolchain in found if toolchain.problem is None]
    if not working or (compiler is not None and found[0].problem is not None):
        raise typer.Exit(EXIT_FAILED)


def show_toolchains(found: Sequence[Toolchain], console: Console) -> None:
    """Print the compilers, and what each can do."""
    working = [toolchain for toolchain in found if toolchain.problem is None]
    if working:
        rows = table("compiler", "LLVM", "embeds", "logs", "interactive", "tools", "reads", left=7)
        for column in rows.columns[1:]:
            column.no_wrap = True
        for toolchain in working:
            rows.add_row(
                plain(command_of(toolchain)),
                toolchain.version or "-",
                "yes" if toolchain.embeds_bitcode else "no",
                _tasks(toolchain.training_logs),
                _tasks(toolchain.interactive),
                " ".join(name for name in ("opt", "llc") if getattr(toolchain, name) is not None) or "-",
                _versions(toolchain.reads_bitcode),
            )
        # A narrower terminal breaks the lines: better than a table without the compilers' names.
        console.width = max(console.width, _LEAST_WIDTH)
        console.print(rows)
    for toolchain in found:
        if toolchain.problem is not None:
            err().print(f"cannot use {plain(command_of(toolchain))}: {plain(toolchain.problem)}")
    if not working:
        what = "can be used" if found else "was found"
        hint = f"no compiler {what}: install clang, or pip install ziglang, or name one with --compiler"
        console.print(hint, soft_wrap=False)
    elif not any(toolchain.training_logs for toolchain in working):
        hint = "hint: none of these writes training logs; 'mlgo-corpus toolchain build' makes one that does"
        console.print(hint, soft_wrap=False)


def _show_with_policy(wrapped: Sequence[Wrapped], released: Sequence[Released]) -> None:
    """Print the clangs with a policy inside: around another one, or linked in."""
    from mlgo_corpus.formats.logs.tasks import find_task

    if not wrapped and not released:
        return
    rows = table("with a policy", "policy", "LLVM", "asks", left=4)
    for column in rows.columns[1:]:
        column.no_wrap = True
    for one in wrapped:
        asks = "at -O1 and above" if one.always else "at -Os and -Oz"
        if one.has_found:
            asks = f"what was found at -O1 and above, else {asks}"
        keeps = ", keeps the smaller object" if one.keep_smaller else ""
        there = "" if Path(one.compiler[0]).exists() else "its clang is gone; "
        rows.add_row(plain(str(one.clang)), plain(one.policy), visible(one.version), there + asks + keeps)
    for made in released:
        asks = "at -Os and -Oz" if made.default_on else f"with -mllvm {find_task(made.task).advisor}=release"
        rows.add_row(plain(str(made.clang)), plain(made.policy), visible(made.version), f"linked in, {asks}")
    console = out()
    console.width = max(console.width, _LEAST_WIDTH)
    console.print()
    console.print(rows)


def command_of(toolchain: Toolchain) -> str:
    """Return the command to type: zig's clang is deep in a folder of Python packages."""
    if toolchain.origin == "ziglang":
        return "python -m ziglang cc"
    return visible(shlex.join(toolchain.driver))


def _tasks(names: Sequence[str]) -> str:
    from mlgo_corpus.formats.logs.tasks import TASKS

    if len(names) == len(TASKS):
        return "all"
    return " ".join(task.short_name for task in TASKS if task.name in names) or "-"


def _versions(versions: Sequence[int]) -> str:
    """Write versions as ranges: ``17-20 22``."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and runs[-1][1] == version - 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or "-"


@toolchain_app.command("build", short_help="Build clang, opt and llc that write training logs.")
@verb
def _build_command(
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="The folder to write.", show_default="a folder in the cache"
        ),
    ] = None,
    llvm_config: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM", help="The llvm-config of the LLVM to build from.", show_default="llvm-config-19"
        ),
    ] = None,
    llvm_source: Annotated[
        str,
        typer.Option(metavar="DIR", help="LLVM's sources of the same version: a folder, an archive, or apt."),
    ] = "apt",
    install: Annotated[bool, typer.Option("--install", help="Install missing packages.")] = False,
    mode: Annotated[
        _Mode, typer.Option(help="What to build: one that writes training logs, or one with a policy linked in.")
    ] = _Mode.DEVELOPMENT,
    policy: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="With --mode release: the policy's folder, or its name in 'policy list'."),
    ] = None,
    default_on: Annotated[
        bool, typer.Option("--default-on", help="With --mode release: let clang use the policy at -Os and -Oz.")
    ] = False,
    jobs: Annotated[int | None, jobs_option("How many compilers to run at once.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace other contents of the folder.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Build a development-mode clang, opt and llc, which write training logs, in about a minute.

    Compiles twenty files of LLVM's sources, links them with the static libraries of an installed LLVM, and tests the
    result. After an interruption, the same command continues where it stopped. With --mode release, the tools decide by
    a learned policy instead, where the option -mllvm -enable-ml-inliner=release says so.
    """
    from mlgo_corpus.toolchain import build_toolchain

    with _phases() as progress:
        report = build_toolchain(
            output,
            llvm_config=llvm_config,
            llvm_source=None if llvm_source == "apt" else Path(llvm_source),
            install=install,
            mode=mode.value,
            policy=policy,
            default_on=default_on,
            jobs=jobs,
            force=force,
            progress=progress,
        )
    if json_output:
        print_json(report.as_json())
    else:
        _show_build(report, policy)


@toolchain_app.command("wrap", short_help="Put a policy into a stock clang.")
@verb
@begins_again()
def _wrap_command(
    policy: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="A learned policy, by its folder or its name; or a search's folder, whose decisions are made again.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    otherwise: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="The learned policy that decides what a search has not seen, or default: LLVM.",
            show_default="the one that the search tried",
        ),
    ] = None,
    compiler: Annotated[
        str | None,
        compiler_option("The clang to wrap.", show_default="clang on PATH, else the newest"),
    ] = None,
    always: Annotated[
        bool, typer.Option("--always", help="Ask the policy at every level of optimisation, not only -Os and -Oz.")
    ] = False,
    keep_smaller: Annotated[
        bool,
        typer.Option("--keep-smaller", help="Compile each object plainly, too, and keep the smaller one."),
    ] = False,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS", help="The project's corpus, for a policy that asks how many modules have a function."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another wrapped clang.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Put a policy into a stock clang, in seconds: make CC=DIR/bin/clang uses it.

    DIR/bin/clang and clang++ pass everything on to the clang that they wrap. Where code is optimised for size, they
    have it ask the policy. If anything goes wrong with that, they say so in a line and compile without it.
    """
    from mlgo_corpus.files.remote import parse_place
    from mlgo_corpus.wrap import wrap_toolchain

    report = wrap_toolchain(
        policy,
        output,
        otherwise=otherwise,
        compiler=compiler,
        corpus=corpus,
        always=always,
        keep_smaller=keep_smaller,
        force=force,
    )
    if json_output:
        print_json(report.as_json())
    else:
        _show_wrap(report, parse_place(output))


@toolchain_app.command("extend", short_help="Make a clang that tells policies more of each call.")
@verb
@begins_again()
def _extend_command(
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    compiler: Annotated[
        str | None,
        compiler_option("The clang to extend.", show_default="clang on PATH, else the newest"),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS",
            help="The corpus of a project: of this one, it also tells how many modules have a function.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another one.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Make a clang that tells policies who the functions of each call are: --compiler DIR takes it.

    It is a stock clang with a plugin, which is compiled in seconds with LLVM's headers (apt-get install llvm-22-dev).
    """
    from mlgo_corpus.files.remote import parse_place
    from mlgo_corpus.toolchain import extend_toolchain

    report = extend_toolchain(output, compiler=compiler, corpus=corpus, force=force)
    if json_output:
        print_json(report.as_json())
    else:
        _show_extend(report, parse_place(output))


def _show_extend(report: ExtendReport, output: Place) -> None:
    extended = report.extended
    console = out()
    console.print(
        f"{plain(str(output / 'bin' / 'clang'))}: clang {extended.version} that tells "
        f"{len(extended.features)} features more, made in {report.seconds:.1f} s"
    )
    console.print(f"use it: --compiler {plain(shlex.quote(str(output)))}, also of toolchain wrap")


def _show_wrap(report: WrapReport, output: Place) -> None:
    wrapped = report.wrapped
    # Once for this shell, and once for that which make runs.
    program, double = (plain(shlex.quote(shlex.quote(f"{wrapped.clang}{end}"))) for end in ("", "++"))
    console = out()
    console.print(
        f"{plain(str(output / 'bin' / 'clang'))}: clang {wrapped.version} with {plain(wrapped.policy)} inside, "
        f"made in {report.seconds:.1f} s"
    )
    levels = "every level but -O0" if wrapped.always else "-Os and -Oz (CMake: -DCMAKE_BUILD_TYPE=MinSizeRel)"
    languages = "" if report.languages is None else f"in {plain(' and '.join(report.languages))}, "
    where = f"{languages}at {levels}"
    if report.otherwise:
        had, such = (
            counted(report.decisions, "decision"),
            "".join(f", such as {plain(it)}" for it in report.modules[:1]),
        )
        of = counted(len(report.modules), "module")
        console.print(f"{had} of {of} are made again where objects have the same path{such}")
        if report.left_out:
            console.print(
                f"not those of {counted(report.left_out, 'module')}: members of archives, and sources that were "
                "compiled and linked at once, have no object's path"
            )
        rest = "LLVM" if report.otherwise == "default" else f"{plain(report.otherwise)}, {where}"
        when = f"all else is decided by {rest}; nothing is decided with -flto"
    else:
        when = f"the policy decides {where}, and not with -flto; all else is as by the clang inside"
    console.print(f"use it: make CC={program} CXX={double}")
    console.print(f"with CMake, in a new folder: cmake -DCMAKE_C_COMPILER={program} -DCMAKE_CXX_COMPILER={double}")
    if wrapped.keep_smaller:
        when += "; a line that makes another file than one object is compiled plainly"
    console.print(when)


@contextmanager
def _phases() -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar per phase; without a terminal, a line when a phase begins."""
    with ExitStack() as bars:
        current = ""
        update: Callable[[int, int], None]

        def progress(phase: str, done: int, total: int) -> None:
            nonlocal current, update
            if phase != current:
                bars.close()
                update = bars.enter_context(progress_bar(phase))
                current = phase
                if sys.stderr is not None and not sys.stderr.isatty():
                    sys.stderr.write(f"{phase} ...\n")
            update(done, total)

        yield progress


def _show_build(report: BuildReport, policy: str | None) -> None:
    console = out()
    rows = table("phase", "seconds", "")
    rows.columns[2].justify = "left"
    for name, seconds, detail in report.phases:
        rows.add_row(name, f"{seconds:.1f}", plain(detail))
    console.print(rows)
    toolchain = report.toolchain
    if policy is not None:
        where, name = map(plain, (str(report.output), policy))
        console.print(f"{where}: clang, opt and llc {toolchain.version} with {name} in {report.seconds:.1f} s")
        return
    logs = " and ".join(filter(None, (", ".join(toolchain.training_logs[:-1]), *toolchain.training_logs[-1:])))
    console.print(
        f"{plain(str(report.output))}: clang, opt and llc {toolchain.version} in {report.seconds:.1f} s; "
        f"training logs of {logs} were made and read"
    )
    console.print(f"use it: mlgo-corpus toolchain list, or {plain(str(report.output / 'bin' / 'clang'))}")
