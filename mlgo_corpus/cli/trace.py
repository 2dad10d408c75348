"""``mlgo-corpus trace``: run a compiler over a corpus, and record a dataset of its decisions."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import (
    EXIT_FAILED,
    err,
    finish,
    out,
    percent_change,
    plain,
    progress_bar,
    show_failures,
    show_hints,
    show_how_to_read,
    show_lines,
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
from mlgo_corpus.files.text import counted

if TYPE_CHECKING:
    from mlgo_corpus.runs.search.run import SearchReport
    from mlgo_corpus.runs.trace.run import TraceReport


class _TaskName(StrEnum):
    """The values of ``--task``."""

    INLINING = "inlining"
    EVICTION = "regalloc-eviction"
    PRIORITY = "regalloc-priority"


class _Via(StrEnum):
    """The values of ``--via``."""

    AUTO = "auto"
    TRAINING_LOG = "training-log"
    INTERACTIVE = "interactive"


def _complete_policy(incomplete: str) -> list[str]:
    from mlgo_corpus.policies.keyed import NAMES

    names = dict.fromkeys(name.replace(":P", ":0.5") for names in NAMES.values() for name in names)
    return [name for name in names if name.startswith(incomplete)]


@verb
def trace(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="The corpus: a folder, a packed corpus, or its s3:// URL.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DATASET", help="The folder to write, or an s3:// URL.")
    ],
    task: Annotated[_TaskName, typer.Option(help="The optimisation whose decisions to record.")] = _TaskName.INLINING,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=_complete_policy,
            help="The policy that decides: default; never, always or random:P (inlining); first or random (register "
            "allocation); or your own, as module:attribute or module:attribute(3).",
        ),
    ] = "default",
    via: Annotated[
        _Via, typer.Option(help="How to record the decisions: from the compiler's training log, or in a live session.")
    ] = _Via.AUTO,
    compiler: Annotated[
        str | None,
        compiler_option("The clang to run.", show_default="the best one in 'toolchain list'"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for random policies and for --sample.")] = 0,
    add_flag: AddFlags = None,
    delete_flag: DeleteFlags = None,
    replace_flag: ReplaceFlags = None,
    trust_corpus: TrustCorpus = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The time limit of one compile.")] = 60.0,
    memory_limit: Annotated[str | None, memory_limit_option("compile")] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="How often to retry a compile that crashed or timed out, and work that killed its worker process.",
            show_default="compiles 0; workers 1, on a cluster 2",
        ),
    ] = None,
    sample: Annotated[str | None, sample_option("Trace")] = None,
    module_filter: Annotated[str | None, module_filter_option("Trace")] = None,
    modules_file: Annotated[Path | None, modules_file_option("Trace")] = None,
    names: Annotated[
        bool,
        typer.Option(
            "--names/--no-names", help="Record the caller, callee, line and column of each call decided about."
        ),
    ] = True,
    verify_default: Annotated[
        bool,
        typer.Option("--verify-default", help="Exit with 1 unless every object equals that of the plain compile."),
    ] = False,
    keep_logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the training logs to this folder, as MODULE.log.")
    ] = None,
    keep_objects: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write the objects to this folder, as MODULE; as MODULE.o if MODULE is also a folder of modules.",
        ),
    ] = None,
    ir2native_model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="A model of native size, trained with --features ir2native: a development-mode compiler scores each "
            "decision by it, in the column delta_size.",
        ),
    ] = None,
    jobs: Annotated[int | None, jobs_option("How many compilers to run at once.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start over, replacing a dataset made with other options.")
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Run a compiler over a corpus, and record its decisions and the sizes they lead to.

    Every module is compiled twice with its own command: plainly, and with its decisions logged (by a development-mode
    clang, see 'toolchain build') or made by a policy (in a live session with any clang since LLVM 17). After an
    interruption, the same command continues where it stopped.
    """
    from mlgo_corpus.compilers.command import CommandEdits
    from mlgo_corpus.compilers.limits import Limits
    from mlgo_corpus.corpus.select import ModuleChoice
    from mlgo_corpus.policies.policy import import_from_here
    from mlgo_corpus.trace import trace_corpus

    if verify_default and policy != "default":
        raise UsageError(f"--verify-default: requires --policy default, found {policy}")
    limits = filled(Limits, locals(), memory_limit=parse_size(memory_limit), retries=retries or 0)
    choice = filled(ModuleChoice, locals())
    chosen = engine_choice(engine, ray_address, retries)
    import_from_here(policy)
    with stdout_is_ours(), progress_bar("tracing") as bar:
        progress = with_workers(bar, chosen)
        report = trace_corpus(
            corpus,
            output,
            task=task.value,
            via=via.value,
            policy=policy,
            compiler=compiler,
            seed=seed,
            edits=CommandEdits.of(add_flag or (), delete_flag or (), replace_flag or (), trusted=trust_corpus),
            limits=limits,
            names=names,
            choice=choice,
            keep_logs=keep_logs,
            keep_objects=keep_objects,
            ir2native_model=ir2native_model,
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=lambda done, failed, decisions, total: progress(
                done, total, f"{decisions} decisions" + (f", {failed} failed" if failed else "")
            ),
        )
    unfaithful = report.traced - report.faithful if verify_default else 0

    def show(report: TraceReport) -> None:
        show_report(report)
        if unfaithful:
            err().print(_unfaithful(report), markup=False)

    exit_code = EXIT_FAILED if unfaithful else report.exit_code
    finish(report, show, as_json=json_output, engine=chosen, exit_code=exit_code)


def show_report(report: TraceReport) -> None:
    """Print a trace's report, its hints, and a query to start with."""
    from mlgo_corpus.dataset.folder import rows_place
    from mlgo_corpus.files.text import printable
    from mlgo_corpus.policies.policy import policy_name

    console = out()
    name = plain(printable(str(report.output)))
    again = ", made before in the same way" if report.unchanged else ""
    kept = f", {report.resumed} of them by an earlier run" if report.resumed else ""
    policy = policy_name(report.policy)
    asked = counted(report.observations, f"{report.task} decision")
    console.print(
        f"[bold]{name}[/bold]: {asked} of {counted(report.traced, 'module')}{kept}{again} in {report.seconds:.2f} s"
    )
    console.print(
        plain(f"by {report.compiler}, policy {policy}, seen in {_WAYS.get(report.via, report.via)}"),
    )
    rows = table("reason", "modules")
    for reason, count in report.counts.items():
        rows.add_row(reason, str(count))
    console.print(rows)
    equal = f"{report.faithful} of {counted(report.traced, 'object')} {_equal(report.traced)} the plain compile's"
    console.print("\n".join((*size_lines(report), equal)))
    if report.modules > len(report.slowest) > 0:  # few modules: modules.parquet is enough
        slow = table("slowest modules", "seconds", "decisions")
        for module, seconds, decisions in report.slowest:
            slow.add_row(plain(printable(module)), f"{seconds:.2f}", str(decisions))
        console.print(slow)
    show_lines(report.policy_traceback)
    show_failures(report.problems, report.failed, "modules.parquet")
    for caveat in report.caveats:
        err().print(f"note: {caveat}", markup=False)
    show_hints(report.hints)
    show_how_to_read(example_query(report), rows_place(report.output))


def size_lines(report: TraceReport | SearchReport) -> Iterator[str]:
    """Yield a line for the sizes at each optimisation level, and one for what they do not count."""
    for level in report.levels:
        at = "" if level.opt_level is None else f" at -O{level.opt_level}"
        size, plain_size = level.text_size, level.baseline_text_size
        change = f" ({percent_change(size, plain_size)})" if plain_size else ""
        modules = counted(level.modules, "module")
        yield f"text: {size} bytes, {plain_size} by the plain compile{change} in {modules}{at}"
    if report.undecided:
        modules = counted(report.undecided, "module")
        above = ", not counted above" if report.levels else ""
        yield f"nothing to decide: {report.undecided_text_size} bytes of text in {modules}{above}"


_WAYS = {"training-log": "its training logs", "interactive": "live sessions"}


def example_query(report: TraceReport) -> str:
    """Return a query over the dataset that DuckDB runs as it is."""
    table = sql_text(f"{report.output}/modules.parquet")
    return f"SELECT module, observations, text_size, reward FROM {table} ORDER BY reward DESC"  # noqa: S608 - shown


def _unfaithful(report: TraceReport) -> str:
    differ = f"{report.traced - report.faithful} of {counted(report.traced, 'object')} differ from the plain compile's"
    return f"{differ}: LLVM's own heuristic did not decide there; in modules.parquet, unfaithful_because says why"


def _equal(number: int) -> str:
    return "equals" if number == 1 else "equal"
