"""``mlgo-corpus vocab``: write the quantiles by which a model normalises features."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgo_corpus.cli.console import begins_again, err, finish, out, plain, progress_bar, table, verb
from mlgo_corpus.cli.options import JsonOutput, jobs_option, module_filter_option
from mlgo_corpus.files.text import counted, visible

if TYPE_CHECKING:
    from mlgo_corpus.vocab import VocabularyReport


@verb
@begins_again()
def vocab(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="A dataset from trace or logs-to-parquet, or its s3:// URL.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    buckets: Annotated[int, typer.Option(min=1, metavar="N", help="The number of quantiles per feature.")] = 1000,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this feature; repeatable.",
            show_default="all features that models normalise",
        ),
    ] = None,
    unique: Annotated[bool, typer.Option("--unique", help="Write equal quantiles only once.")] = False,
    sample: Annotated[
        float | None,
        typer.Option(metavar="FRACTION", help="The share of the observations to read.", show_default="all"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed for --sample.")] = 0,
    module_filter: Annotated[str | None, module_filter_option("Read")] = None,
    modules_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read only the modules listed in this file, one per line, or in this corpus manifest."
        ),
    ] = None,
    jobs: Annotated[int | None, jobs_option("How many worker processes to run.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing vocabulary.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Write each feature's quantiles as ml-compiler-opt's models read them: FEATURE.buckets.

    They equal those of numpy.quantile exactly, in bounded memory.
    """
    from mlgo_corpus.vocab import write_vocabulary

    with progress_bar("reading features") as progress:
        report = write_vocabulary(
            dataset,
            output,
            buckets=buckets,
            features=feature,
            unique=unique,
            sample=sample,
            seed=seed,
            module_filter=module_filter,
            modules_file=modules_file,
            jobs=jobs,
            force=force,
            progress=progress,
        )
    finish(report, partial(_show_report, buckets=buckets), as_json=json_output)


def _show_report(report: VocabularyReport, *, buckets: int) -> None:
    rows = table("feature", "values", "distinct", "least", "greatest", "duplicates")
    for each in report.features:
        distinct = "many" if each.distinct is None else str(each.distinct)
        share = f"{100 * each.duplicates / buckets:.0f} %"
        rows.add_row(plain(each.feature), str(each.values), distinct, f"{each.minimum:g}", f"{each.maximum:g}", share)
    console = out()
    console.print(rows)
    written = f"{counted(len(report.features), 'feature')} of {counted(report.modules, 'module')}"
    console.print(f"{plain(str(report.output))}: {written} in {report.seconds:.2f} s")
    if report.skipped:
        err().print(f"not normalised by a model: {visible(', '.join(report.skipped))}", markup=False)
    for each in report.features:
        if each.not_finite:
            text = f"{each.feature}: {counted(each.not_finite, 'value')} infinite or NaN, left out"
            err().print(visible(text), markup=False)
    for name in report.empty:
        err().print(f"{visible(name)}: no finite value, so there is no file", markup=False)
