"""The ``mlgo-corpus`` command: its verbs, in the order a newcomer meets them."""

from __future__ import annotations

from typing import Annotated

import typer

from mlgo_corpus.cli.build import build
from mlgo_corpus.cli.combine import combine, make
from mlgo_corpus.cli.demo import demo
from mlgo_corpus.cli.doctor import doctor, show_version
from mlgo_corpus.cli.dump import dump
from mlgo_corpus.cli.explain import explain
from mlgo_corpus.cli.export import export
from mlgo_corpus.cli.extract import extract
from mlgo_corpus.cli.ir2native import ir2native
from mlgo_corpus.cli.logs import logs_to_parquet, parquet_to_logs
from mlgo_corpus.cli.pack import pack, unpack
from mlgo_corpus.cli.report import report
from mlgo_corpus.cli.split import dedup, split
from mlgo_corpus.cli.stats import stats
from mlgo_corpus.cli.toolchain import toolchain_app
from mlgo_corpus.cli.trace import trace
from mlgo_corpus.cli.verify import verify
from mlgo_corpus.cli.vocab import vocab

# Plain help: with rich's, --help alone would take 150 ms.
app = typer.Typer(
    name="mlgo-corpus",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Turn real builds into datasets for machine-learning-guided compiler optimisation (MLGO).",
    epilog="Start with 'mlgo-corpus demo', or put 'mlgo-corpus build --output corpus --' before your build's command.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        show_version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # its callback does the work
        bool,
        typer.Option(
            "--version",
            help="Show the version, and those of the compilers found.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass


app.command(short_help="See it work: a build, a corpus, decisions, a table.")(demo)
app.command(
    short_help="Run a build, and extract a corpus from it.", context_settings={"allow_interspersed_args": False}
)(build)  # the build's command follows
app.command(short_help="Extract a corpus from what a build made.")(extract)
app.command(short_help="Say what one object, archive or binary holds.")(explain)
app.command(short_help="Say what is in a corpus.")(stats)
app.command(short_help="Make one corpus of several.")(combine)
app.command(short_help="Make a corpus of loose bitcode files.")(make)
app.command(short_help="Divide a corpus for training, without leaks.")(split)
app.command(short_help="Find modules that add nothing, and leave them out.")(dedup)
app.command(short_help="Check every file; compile every module again.")(verify)
app.command(short_help="Pack a corpus into a few Parquet files.")(pack)
app.command(short_help="Make the folder of a packed corpus again.")(unpack)
app.command(short_help="Gather a compiler's decisions, and native sizes.")(trace)
app.command(short_help="Make a table of functions: features, native size.")(ir2native)
app.command(short_help="Make a page to look at, of any of these.")(report)
app.command(short_help="Convert training logs to Parquet.")(logs_to_parquet)
app.command(short_help="Convert a dataset back to training logs.")(parquet_to_logs)
app.command(short_help="Write TFRecords for ml-compiler-opt's trainers.")(export)
app.command(short_help="Write the quantiles of features, for its models.")(vocab)
app.command(short_help="Print a training log, or statistics of it.")(dump)
app.command(short_help="Say what is installed, and what is missing.")(doctor)
app.add_typer(toolchain_app, name="toolchain", short_help="List compilers, or build one that writes training logs.")


def main() -> None:
    """Run the command line."""
    app(prog_name="mlgo-corpus")


if __name__ == "__main__":
    main()
