"""The ``mlgo-corpus`` command: its verbs, in the order a newcomer meets them."""

from __future__ import annotations

from typing import Annotated

import typer

from mlgo_corpus.cli.build import build
from mlgo_corpus.cli.combine import combine, make
from mlgo_corpus.cli.demo import demo
from mlgo_corpus.cli.doctor import show_version
from mlgo_corpus.cli.dump import dump
from mlgo_corpus.cli.explain import explain
from mlgo_corpus.cli.export import export
from mlgo_corpus.cli.extract import extract
from mlgo_corpus.cli.ir2native import ir2native
from mlgo_corpus.cli.logs import logs_to_parquet, parquet_to_logs
from mlgo_corpus.cli.pack import pack, unpack
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


app.command()(demo)
app.command(context_settings={"allow_interspersed_args": False})(build)  # what follows is the build's command
app.command()(extract)
app.command()(explain)
app.command()(stats)
app.command()(combine)
app.command()(make)
app.command()(split)
app.command()(dedup)
app.command()(verify)
app.command()(pack)
app.command()(unpack)
app.command()(trace)
app.command()(ir2native)
app.command()(logs_to_parquet)
app.command()(parquet_to_logs)
app.command(short_help="Write a dataset as trainers read it.")(export)
app.command()(export)
app.command()(vocab)
app.command()(dump)
app.add_typer(toolchain_app, name="toolchain")
