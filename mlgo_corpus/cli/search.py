"""``mlgo-corpus search``: find better inlining decisions than the compiler's."""

from __future__ import annotations

import shlex
from enum import StrEnum
from functools import partial
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
from mlgo_corpus.cli.trace import size_lines
from mlgo_corpus.files.text import counted, human_bytes

if TYPE_CHECKING:
    from mlgo_corpus.runs.search.run import SearchReport


class _Objective(StrEnum):
    """The values of ``--objective``."""

    TEXT = "text"
    LINKED = "linked"
    FOLDED = "folded"


@verb
def search(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="The corpus: a folder, a packed corpus, or its s3:// URL.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DATASET", help="The folder to write, or an s3:// URL.")
    ],
    budget: Annotated[int, typer.Option(min=1, metavar="COMPILES", help="The most compiles of each module.")] = 100,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="The most seconds of each module's search.", show_default="no limit"),
    ] = None,
    objective: Annotated[
        _Objective | None,
        typer.Option(
            help="What to make small: the text of each object, or of what is linked, where a function that several "
            "objects hold is kept once, and what a linker adds of each counts; or for a linker that folds, too, what "
            "is alike.",
            show_default="linked, if the corpus's build linked anything",
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="The policy whose decisions to begin with, as for 'trace'; also the dataset of another search.",
        ),
    ] = "default",
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="A policy to try, too, a learned one also with other thresholds; 'default' is LLVM's own. Repeatable.",
            show_default="default and inlining-1.0",
        ),
    ] = None,
    compiler: Annotated[
        str | None,
        compiler_option("The clang to run.", show_default="the best one in 'toolchain list'"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the search's choices and for --sample.")] = 0,
    add_flag: AddFlags = None,
    delete_flag: DeleteFlags = None,
    replace_flag: ReplaceFlags = None,
    trust_corpus: TrustCorpus = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The time limit of one compile.")] = 60.0,
    memory_limit: Annotated[str | None, memory_limit_option("compile")] = None,
    sample: Annotated[str | None, sample_option("Search")] = None,
    module_filter: Annotated[str | None, module_filter_option("Search")] = None,
    modules_file: Annotated[Path | None, modules_file_option("Search")] = None,
    keep_objects: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write the best objects to this folder, named after their modules."),
    ] = None,
    jobs: Annotated[int | None, jobs_option("How many compilers to run at once.")] = None,
    engine: Engine = EngineKind.LOCAL,
    ray_address: RayAddress = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start over, replacing a dataset made with other options.")
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Find inlining decisions that make each module of a corpus smaller than the compiler's own make it.

    Every module is compiled again and again with other decisions, many of them tried in one compile. The dataset has
    the best decisions found, which 'trace --policy DATASET' repeats exactly, and in flips.parquet the effect in bytes
    of each one that was tried. After an interruption, the same command continues where it stopped.
    """
    from mlgo_corpus.compilers.command import CommandEdits
    from mlgo_corpus.compilers.limits import Limits
    from mlgo_corpus.corpus.select import ModuleChoice
    from mlgo_corpus.policies.policy import import_from_here
    from mlgo_corpus.runs.search.corpus import ALSO
    from mlgo_corpus.search import search_corpus

    limits = filled(Limits, locals(), memory_limit=parse_size(memory_limit))
    choice = filled(ModuleChoice, locals())
    chosen = engine_choice(engine, ray_address, None)
    import_from_here(start, *(also or ()))
    with stdout_is_ours(), progress_bar("searching") as bar:
        progress = with_workers(bar, chosen)
        report = search_corpus(
            corpus,
            output,
            budget=budget,
            time_limit=time_limit,
            objective=None if objective is None else objective.value,
            start=start,
            also=also or ALSO,
            compiler=compiler,
            seed=seed,
            edits=CommandEdits.of(add_flag or (), delete_flag or (), replace_flag or (), trusted=trust_corpus),
            limits=limits,
            choice=choice,
            keep_objects=keep_objects,
            jobs=jobs,
            force=force,
            engine=chosen,
            progress=lambda done, failed, saved, total: progress(
                done, total, f"{human_bytes(max(0, saved))} saved" + (f", {failed} failed" if failed else "")
            ),
        )
    finish(report, partial(show_report, objects=keep_objects), as_json=json_output, engine=chosen)


def show_report(report: SearchReport, objects: Path | None = None) -> None:
    """Print a search's report, its hints, and a query to start with; ``objects`` is where its objects are, if kept."""
    from mlgo_corpus.dataset.folder import SEARCH_NAME, rows_place
    from mlgo_corpus.files.text import printable
    from mlgo_corpus.policies.conversation import knows_project
    from mlgo_corpus.policies.policy import policy_name
    from mlgo_corpus.wrap import policy_of_the_rest

    console = out()
    name = plain(printable(str(report.output)))
    again = ", made before in the same way" if report.unchanged else ""
    kept = f", {report.resumed} of these by an earlier run" if report.resumed else ""
    console.print(
        f"[bold]{name}[/bold]: {report.flips} flips tried in {counted(report.compiles, 'compile')} of "
        f"{counted(report.searched, 'module')}{kept}{again} in {report.seconds:.2f} s"
    )
    start, *also = map(policy_name, (report.start, *report.also))
    policies = f"policies {', '.join((start, *also))}" if also else f"policy {start}"
    console.print(plain(f"by {report.compiler}, from {policies}, objective {report.objective}"))
    rows = table("reason", "modules")
    for reason, count in report.counts.items():
        rows.add_row(reason, str(count))
    console.print(rows)
    console.print("\n".join(size_lines(report)))
    if report.start_objective:
        since = plain(printable(f"change from {start}"))
        found = table("compiles of each module", f"objective ({report.objective})", since)
        for compiles, objective in report.after:
            found.add_row(str(compiles), f"{objective:.0f}", percent_change(objective, report.start_objective))
        console.print(found)
        sizes = [round(objective) for _, objective in report.after]  # as the table shows them
        if sizes != sorted(sizes, reverse=True):
            console.print(
                "later rounds know which functions all objects keep, and weigh otherwise: what is linked may be "
                "smaller where this is not"
            )
    whose = "LLVM's own" if report.start == "default" else f"those of {start}"
    if report.decisions:
        changed = f"{report.kept} of {counted(report.decisions, 'decision')} are other than {whose}"
        console.print(plain(printable(changed)))
    show_failures(report.problems, report.failed, "modules.parquet")
    show_hints(report.hints)
    if not report.decisions:  # what follows would lead nowhere
        return
    # Not of flips.parquet: its effects do not add up to what was saved.
    searches = sql_text(f"{report.output}/{SEARCH_NAME}")
    query = f"SELECT module, baseline_objective - objective AS saved FROM {searches} ORDER BY 2 DESC"  # noqa: S608 - shown
    show_how_to_read(query, rows_place(report.output))
    corpus, dataset = (plain(shlex.quote(printable(str(place)))) for place in (report.corpus, report.output))
    if objects is None:
        console.print(
            f"its objects, which relink makes the products of: mlgo-corpus trace {corpus} --policy {dataset} "
            "--keep-objects OBJECTS -o TRACED"
        )
    else:
        kept_in = plain(shlex.quote(printable(str(objects))))
        console.print(f"the products of its objects: mlgo-corpus relink {corpus} --objects {kept_in} -o RELINKED")
    project = f" --corpus {corpus}" if knows_project(policy_of_the_rest(Path(report.output))) else ""
    console.print(
        f"a clang that makes them in a build: mlgo-corpus toolchain wrap --policy {dataset}{project} -o CLANG"
    )
    console.print(f"learn a policy from it: mlgo-corpus train {dataset} -o POLICY")
