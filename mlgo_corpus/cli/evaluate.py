"""``mlgo-corpus evaluate``: what policies make of a corpus, against LLVM's own decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import (
    finish,
    out,
    percent_change,
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
from mlgo_corpus.files.text import counted

if TYPE_CHECKING:
    from mlgo_corpus.runs.evaluate.sums import EvaluationReport, PolicySizes, SizeChange

_WORST_SHOWN = 3


@verb
def evaluate(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="The corpus: a folder, a packed corpus, or its s3:// URL.")
    ],
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy",
            metavar="NAME",
            help="A policy, as for 'trace': a learned policy's folder, a search's dataset, never, ...; repeatable.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder for the tables.")],
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Also link the build's products of the objects.")
    ] = True,
    compiler: Annotated[
        str | None,
        compiler_option("The clang to run.", show_default="the best one in 'toolchain list'"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for random policies, --sample, and the intervals.")] = 0,
    add_flag: AddFlags = None,
    delete_flag: DeleteFlags = None,
    replace_flag: ReplaceFlags = None,
    trust_corpus: TrustCorpus = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The time limit of one compile.")] = 60.0,
    memory_limit: Annotated[str | None, memory_limit_option("compile")] = None,
    sample: Annotated[str | None, sample_option("Compile")] = None,
    module_filter: Annotated[str | None, module_filter_option("Compile")] = None,
    modules_file: Annotated[Path | None, modules_file_option("Compile")] = None,
    jobs: Annotated[int | None, jobs_option("How many compilers to run at once.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start over, replacing an evaluation made with other options.")
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Measure what policies make of a corpus, against LLVM's own decisions: objects, and what is linked of them.

    Modules that a learned policy was trained on are found by their functions, and left out of the headline. After an
    interruption, the same command continues where it stopped.

    The exit code is 1 if a module or a product could not be measured.
    """
    from mlgo_corpus.compilers.command import CommandEdits
    from mlgo_corpus.compilers.limits import Limits
    from mlgo_corpus.corpus.select import ModuleChoice
    from mlgo_corpus.evaluate import evaluate_corpus
    from mlgo_corpus.policies.policy import import_from_here

    limits = filled(Limits, locals(), memory_limit=parse_size(memory_limit))
    choice = filled(ModuleChoice, locals())
    chosen = engine_choice(engine, ray_address, None)
    import_from_here(*policy)
    with stdout_is_ours(), progress_bar("evaluating") as bar:
        progress = with_workers(bar, chosen)
        report = evaluate_corpus(
            corpus,
            output,
            policies=policy,
            link=link,
            compiler=compiler,
            seed=seed,
            edits=CommandEdits.of(add_flag or (), delete_flag or (), replace_flag or (), trusted=trust_corpus),
            limits=limits,
            choice=choice,
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=lambda done, failed, total, name: progress(
                done, total, name + (f", {failed} failed" if failed else "")
            ),
        )
    finish(report, _show_report, as_json=json_output, engine=chosen)


def _show_report(report: EvaluationReport) -> None:
    console = out()
    again = ", made before in the same way" if report.unchanged else ""
    console.print(
        f"[bold]{plain(str(report.output))}[/bold]: {counted(report.modules, 'module')} by "
        f"{len(report.policies)} {'policy' if len(report.policies) == 1 else 'policies'}{again} "
        f"in {report.seconds:.2f} s"
    )
    console.print(plain(f"text against the decisions of {report.compiler}, in bytes"))
    rows = table("policy", "of", "number", "text", "default", "change", "95 %", left=2)
    rows.collapse_padding = True  # so that it fits into 80 columns
    for one in report.policies:
        its = [("objects", one.objects), *((link.link, link.sizes) for link in one.products)]
        if one.trained is not None:
            known = [(f"{link.link}, trained on", link.trained) for link in one.products if link.trained is not None]
            # Where it was trained on all, the others are none.
            its = [*(its if one.objects.modules else ()), ("trained on", one.trained), *known]
        for number, (of, sizes) in enumerate(its):
            rows.add_row("" if number else plain(one.policy), of, *_cells(sizes))
    console.print(rows)
    for one in report.policies:
        _show_policy(one)
    show_failures(report.problems, report.failed, "evaluation.parquet and products.parquet")
    show_hints(report.hints)
    place = f"{report.output}/evaluation.parquet"
    show_how_to_read(query_of_objects(report.policies, place), place)


def query_of_objects(policies: Sequence[PolicySizes], place: str) -> str:
    """Return the query that sums up the same modules as the headline, of the table in ``place``.

    Where all policies were trained on all modules, there is no headline, and the query is of all.
    """
    table = sql_text(place)
    known = [one for one in policies if one.trained is not None]
    failing = [one for one in policies if one.failed]
    has_headline = any(one.objects.modules for one in policies)
    # Who was trained on all, or fails everywhere, takes nothing from the others.
    some = [one for one in known if one.objects.modules]
    partly = [one for one in failing if one.failed < one.modules]
    left_out = [
        *_condition("trained", known, some),
        *_condition("text_size + baseline_text_size IS NULL", failing, partly),
    ]
    where = ["NOT trained"] if has_headline and len(some) < len(known) else []
    if left_out:
        where.append(f"module NOT IN (SELECT module FROM {table} WHERE {' OR '.join(left_out)})")  # noqa: S608 - shown
    only = f" WHERE {' AND '.join(where)}" if where else ""
    return f"SELECT policy, sum(text_size) FROM {table}{only} GROUP BY policy"  # noqa: S608 - shown


def _condition(what: str, have: Sequence[PolicySizes], wanted: Sequence[PolicySizes]) -> Iterator[str]:
    """Yield the condition that holds for the wanted ones of those policies that have rows of a kind."""
    if wanted:
        names = ", ".join(sql_text(one.policy) for one in wanted)
        yield what if len(wanted) == len(have) else f"{what} AND policy IN ({names})"


def _show_policy(one: PolicySizes) -> None:
    console = out()
    name = plain(one.policy)
    if one.median is not None:
        of = counted(one.objects.modules, "module")
        console.print(f"{name}: {one.grew} of {of} grew; the median is {100 * one.median:+.2f} %")
    for module, size, before in one.worst[:_WORST_SHOWN]:
        console.print(f"{name}: grew {percent_change(size, before)}, {size - before} bytes: {plain(module)}")
    if by := one.objects.by_project:
        console.print(f"{name}: {_interval(by)} of objects, if whole projects are drawn")
    if one.trained is not None:
        others = f"; of the others, on at most {100 * one.most_shared:.0f} % of one" if one.objects.modules else ""
        console.print(
            f"{name}: trained on {counted(one.trained.modules, 'module')}, which are not in the headline{others}"
        )
    if one.baseline_cpu_s:
        console.print(
            f"{name}: compiles took {one.cpu_s:.1f} s of processor time with live decisions, "
            f"{one.baseline_cpu_s:.1f} s without"
        )


def _cells(sizes: SizeChange) -> tuple[str, str, str, str, str]:
    change = percent_change(sizes.size, sizes.baseline)
    between = "-" if sizes.interval is None else _interval(sizes.interval)
    return str(sizes.modules), str(sizes.size), str(sizes.baseline), change, between


def _interval(ends: tuple[float, float]) -> str:
    return f"{100 * ends[0]:+.2f} to {100 * ends[1]:+.2f} %"
