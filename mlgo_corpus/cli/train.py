"""``mlgo-corpus train``: a policy that learns from what searches found."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import (
    err,
    in_options,
    out,
    plain,
    print_json,
    progress_bar,
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
    with_workers,
    worker_figures,
)
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.train import TrainReport

_FEATURES_SHOWN = 5


class _Algorithm(StrEnum):
    """The values of ``--algorithm``."""

    IMITATION = "imitation"


@verb
def train(
    data: Annotated[
        list[Path],
        typer.Argument(metavar="DATA...", help="Datasets of searches, one for each project; traces serve, too."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="POLICY", help="The folder to write.")],
    algorithm: Annotated[
        _Algorithm, typer.Option(help="How to learn: by imitation of the best decisions found.")
    ] = _Algorithm.IMITATION,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus",
            metavar="CORPUS",
            help="A corpus to search further, from the policy's own decisions, and to learn from that; repeatable.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="How often to search each --corpus.")] = 1,
    budget: Annotated[
        int, typer.Option(min=1, metavar="COMPILES", help="The most compiles of each module in a round.")
    ] = 25,
    validation: Annotated[
        list[str] | None,
        typer.Option(
            "--validation", metavar="CORPUS", help="A corpus to tune the threshold on, not one of DATA; repeatable."
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
    name: Annotated[str, typer.Option(metavar="NAME", help="The policy's name.")] = "inlining-0.1",
    trees: Annotated[int, typer.Option(min=1, metavar="N", help="How many trees the model has.")] = 120,
    leaves: Annotated[int, typer.Option(min=2, metavar="N", help="How many leaves a tree has at most.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the features that each tree may use.")] = 0,
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
    force: Annotated[bool, typer.Option("--force", help="Start over, and replace a policy that is there.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Train a policy for inlining on the best decisions that searches found, weighted by what each is worth in bytes.

    The policy is a folder that --policy of the other verbs takes. The same data and options give the same bytes.
    """
    from mlgo_corpus.train import train_policy

    chosen = engine_choice(engine, ray_address, None)
    with stdout_is_ours(), progress_bar("training") as bar:
        progress = with_workers(bar, chosen)
        report = train_policy(
            data,
            output,
            algorithm=algorithm.value,
            corpora=corpus or (),
            rounds=rounds,
            budget=budget,
            validation=validation or (),
            threshold=threshold,
            languages=language or (),
            name=name,
            trees=trees,
            leaves=leaves,
            seed=seed,
            compiler=compiler,
            trust_corpus=trust_corpus,
            timeout=timeout,
            memory_limit=parse_size(memory_limit),
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=lambda what, done, total, note: progress(done, total, f"{what}{': ' if note else ''}{note}"),
        )
    if json_output:
        hints = list(map(in_options, report.hints))
        print_json({**report.as_json(), "hints": hints, **worker_figures(chosen), "exit_code": 0})
    else:
        _show_report(report)


def _show_report(report: TrainReport) -> None:
    console = out()
    console.print(
        f"[bold]{plain(str(report.output))}[/bold]: {plain(report.name)}, {report.model}, "
        f"{human_bytes(report.bytes)}, in {report.seconds:.2f} s"
    )
    rows = table("learned from", "modules", "decisions", "inlined", "flips", "worth known")
    for one in report.data:
        counts = str(one.modules), str(one.decisions), f"{100 * one.inlined:.0f} %", str(one.flips)
        rows.add_row(plain(one.name), *counts, f"{100 * one.known:.0f} %")
    console.print(rows)
    features = [f"{name} {100 * share:.0f} %" for name, share in report.importance.items()][:_FEATURES_SHOWN]
    console.print(f"{counted(len(report.features), 'feature')}, most of the loss saved by {', '.join(features)}")
    if report.validation:
        tried = table("threshold", "change of each validation corpus", "score")
        for point in report.validation:
            changes = ", ".join(f"{100 * change:+.2f} %" for change in point.changes)
            tried.add_row(f"{point.probability:g}", changes, f"{100 * point.score:+.2f} %")
        console.print(tried)
    where = f", in {' and '.join(report.languages)}" if report.languages else ""
    console.print(f"inlines what is better inlined with a probability of more than {report.probability:g}{where}")
    for hint in report.hints:
        err().print(f"hint: {plain(in_options(hint))}")
