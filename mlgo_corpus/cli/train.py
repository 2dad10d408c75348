"""``mlgo-corpus train``: a policy that learns from what searches found."""

from __future__ import annotations

from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlgo_corpus.cli.console import (
    begins_again,
    err,
    finish,
    out,
    plain,
    progress_bar,
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
    TrustCorpus,
    compiler_option,
    engine_choice,
    jobs_option,
    memory_limit_option,
    parse_size,
    refuse,
    with_workers,
)
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.size_model import SizeModelReport
    from mlgo_corpus.train import TrainReport

_FEATURES_SHOWN = 5


class _Algorithm(StrEnum):
    """The values of ``--algorithm``."""

    IMITATION = "imitation"
    EVOLUTION = "es"
    GRADIENT = "pg"


class _Task(StrEnum):
    """The values of ``--task``."""

    INLINING = "inlining"
    EVICTION = "regalloc-eviction"


@verb
def train(
    context: typer.Context,
    output: Annotated[str, typer.Option("--output", "-o", metavar="POLICY", help="The folder to write.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATA...", help="Datasets of searches, one for each project, or of traces; or tables of ir2native."
        ),
    ] = None,
    task: Annotated[
        _Task, typer.Option(help="Whose decisions the policy makes; of eviction, es alone learns.")
    ] = _Task.INLINING,
    algorithm: Annotated[
        _Algorithm,
        typer.Option(
            help="How to learn: by imitation of the best decisions found, or by evolution strategies or policy "
            "gradients on the real sizes of each --corpus."
        ),
    ] = _Algorithm.IMITATION,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus",
            metavar="CORPUS",
            help="A corpus to search further, from the policy's own decisions, and to learn from that; for es and pg, "
            "a corpus to compile; repeatable.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="How often to search each --corpus.")] = 1,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="COMPILES",
            help="The most compiles of each module in a round; for es and pg, in all, on average.",
            show_default="25; 200 for es and pg",
        ),
    ] = None,
    validation: Annotated[
        list[str] | None,
        typer.Option(
            "--validation",
            metavar="CORPUS",
            help="A corpus to tune the threshold on, or to stop es and pg by, not one of DATA; of tables, one to "
            "measure on. Repeatable.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Inline what is better inlined with more than this probability.", show_default="0.5"
        ),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LANGUAGE",
            help="Learn from modules of this language only, and decide in no others: C++, C, ...; repeatable.",
            show_default="those of DATA",
        ),
    ] = None,
    features: Annotated[
        str,
        typer.Option(metavar="GROUPS", help="Of tables: the groups of features to use, such as llvm,context."),
    ] = "all",
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The policy's name.", show_default="a versioned output's; TASK-0.1; native-size-0.1"
        ),
    ] = None,
    trees: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many trees the model has.", show_default="120; of tables, 800"),
    ] = None,
    leaves: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="How many leaves a tree has at most.", show_default="15; of tables, 31"),
    ] = None,
    neurons: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="The neurons of a network for es and pg; 0 for a rule.",
            show_default="4 for es, 16 for pg, 0 for eviction",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed for the examples and features of each tree, and for es and pg.")
    ] = 0,
    compiler: Annotated[
        str | None,
        compiler_option("The clang for --corpus and --validation.", show_default="the best one in 'toolchain list'"),
    ] = None,
    trust_corpus: TrustCorpus = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The time limit of one compile.")] = 60.0,
    memory_limit: Annotated[str | None, memory_limit_option("compile")] = None,
    jobs: Annotated[int | None, jobs_option("How many compilers to run at once.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a policy that is there, and searches made otherwise.")
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Train a policy for inlining on the best decisions that searches found, weighted by what each is worth in bytes.

    The policy is a folder that --policy of the other verbs takes. The same data and options give the same bytes.

    Of tables of ir2native, a model of native size is trained instead: a folder that --model of ir2native takes.
    """
    from mlgo_corpus.size_model import is_table
    from mlgo_corpus.train import train_policy

    of_compiles = "compiler", "trust_corpus", "memory_limit", "timeout", "engine", "ray_address"
    of_policies = "task", "algorithm", "corpus", "budget", "threshold", "language", "jobs", "rounds", "neurons"
    tables = list(map(is_table, data or ()))
    if any(tables):
        if not all(tables):
            raise UsageError("expected datasets of decisions or tables of functions, found both")
        refuse(context, "a model of native size has none", *of_policies, *of_compiles)
        wanted = {"name": name, "trees": trees, "leaves": leaves}
        _train_sizes(
            data or [],
            output,
            validation=validation or (),
            features=features,
            seed=seed,
            force=force,
            json_output=json_output,
            **{key: value for key, value in wanted.items() if value is not None},
        )
        return
    refuse(context, "requires tables of functions", "features")
    if algorithm is not _Algorithm.IMITATION:
        refuse(context, f"{algorithm.value} has none", "rounds", "trees", "leaves")
    else:
        refuse(context, "imitation has none", "neurons")
        if not corpus:
            refuse(context, "requires --corpus", "rounds")
        if not corpus and not validation:
            refuse(context, "requires --corpus or --validation: nothing else is compiled", *of_compiles)
    chosen = engine_choice(engine, ray_address, None)
    kept = nullcontext() if corpus else begins_again()
    with kept, stdout_is_ours(), progress_bar("training") as bar:
        progress = with_workers(bar, chosen)
        report = train_policy(
            data or (),
            output,
            task=task.value,
            algorithm=algorithm.value,
            corpora=corpus or (),
            rounds=rounds,
            budget=budget,
            validation=validation or (),
            threshold=threshold,
            languages=language or (),
            name=name,
            trees=trees or 120,
            leaves=leaves or 15,
            neurons=neurons,
            seed=seed,
            compiler=compiler,
            trust_corpus=trust_corpus,
            timeout=timeout,
            memory_limit=parse_size(memory_limit),
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=lambda what, done, total, note: progress(done, total, f"{what}{': ' if note else ''}{note}"),
            announce=lambda line: err().print(plain(line)),
        )
    finish(report, _show_report, as_json=json_output, engine=chosen)


def _show_report(report: TrainReport) -> None:
    console = out()
    console.print(
        f"[bold]{plain(str(report.output))}[/bold]: {plain(report.name)}, {report.model}, "
        f"{human_bytes(report.bytes)}, in {report.seconds:.2f} s"
    )
    decided = "inlined" if report.task == _Task.INLINING else "not the first"
    rows = table("learned from", "modules", "decisions", decided, "flips", "worth known")
    for one in report.data:
        counts = str(one.modules), str(one.decisions), f"{100 * one.inlined:.0f} %", str(one.flips)
        rows.add_row(plain(one.name), *counts, f"{100 * one.known:.0f} %")
    console.print(rows)
    features = [f"{name} {100 * share:.0f} %" for name, share in report.importance.items()][:_FEATURES_SHOWN]
    most = "it goes most by" if report.curve else "most of the loss saved by"
    told = f", {most} {', '.join(features)}" if features else ""
    console.print(f"{counted(len(report.features), 'feature')}{told}")
    if report.curve:
        _show_curve(report)
        return
    if report.validation:
        tried = table("threshold", f"change of the {report.measure} of each validation corpus", "score")
        for point in report.validation:
            changes = ", ".join(f"{100 * change:+.2f} %" for change in point.changes)
            tried.add_row(f"{point.probability:g}", changes, f"{100 * point.score:+.2f} %")
        console.print(tried)
    where = f", in {' and '.join(report.languages)}" if report.languages else ""
    console.print(f"inlines what is better inlined with a probability of more than {report.probability:g}{where}")
    show_hints(report.hints)


def _show_curve(report: TrainReport) -> None:
    best = min(report.curve, key=lambda point: point.score)
    rows = table("compiles", f"change of the {report.measure} of each corpus", "score", "")
    for point in report.curve:
        changes = ", ".join(f"{100 * change:+.2f} %" for change in point.changes)
        rows.add_row(str(point.compiles), changes, f"{100 * point.score:+.2f} %", "kept" if point is best else "")
    out().print(rows)
    show_hints(report.hints)


def _train_sizes(data: list[Path], output: str, *, json_output: bool, **options: Any) -> None:
    from mlgo_corpus.size_model import train_size_model

    with begins_again(), stdout_is_ours(), progress_bar("training") as bar:
        report = train_size_model(
            data, output, progress=lambda what, done, total, note: bar(done, total, f"{what}: {note}"), **options
        )
    finish(report, _show_sizes, as_json=json_output)


def _show_sizes(report: SizeModelReport) -> None:
    console = out()
    console.print(
        f"[bold]{plain(str(report.output))}[/bold]: {plain(report.name)}, {report.model}, "
        f"{human_bytes(report.bytes)}, in {report.seconds:.2f} s"
    )
    named = ", ".join(f"{plain(name)} {count}" for name, count in report.tables)
    console.print(
        f"learned from {counted(report.functions, 'function')} of {named}, by {report.inputs} numbers of each"
    )
    if report.measured:
        rows = table("measured on", "functions", "model", "median error", "R² of log", "in interval")
        for one in report.measured:
            for name, errors in (("this one", one.errors), *one.baselines.items()):
                covered = "" if errors.covered is None else f"{100 * errors.covered:.0f} %"
                figures = f"{100 * errors.median:.1f} %", "" if errors.r2 is None else f"{errors.r2:.3f}", covered
                rows.add_row(plain(one.name), str(errors.functions), name, *figures)
        console.print(rows)
    show_hints(report.hints)
