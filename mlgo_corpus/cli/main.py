"""The ``mlgo-corpus`` command: its verbs, grouped by what they are for."""

from __future__ import annotations

import copy
import gc
import io
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_name

from mlgo_corpus.cli.build import build
from mlgo_corpus.cli.combine import combine, make
from mlgo_corpus.cli.console import EXIT_FAILED, EXIT_READER_LEFT, complain, complain_of_system, reader_left
from mlgo_corpus.cli.demo import demo
from mlgo_corpus.cli.doctor import doctor, show_version
from mlgo_corpus.cli.dump import dump
from mlgo_corpus.cli.evaluate import evaluate
from mlgo_corpus.cli.explain import explain
from mlgo_corpus.cli.export import export
from mlgo_corpus.cli.extract import extract
from mlgo_corpus.cli.ir2native import ir2native
from mlgo_corpus.cli.logs import logs_to_parquet, parquet_to_logs
from mlgo_corpus.cli.pack import pack, unpack
from mlgo_corpus.cli.policy import policy_app
from mlgo_corpus.cli.relink import relink
from mlgo_corpus.cli.report import report
from mlgo_corpus.cli.search import search
from mlgo_corpus.cli.split import dedup, split
from mlgo_corpus.cli.stats import stats
from mlgo_corpus.cli.toolchain import toolchain_app
from mlgo_corpus.cli.trace import trace
from mlgo_corpus.cli.train import train
from mlgo_corpus.cli.verify import verify
from mlgo_corpus.cli.vocab import vocab

# How many objects are made before a search for reference cycles. Python's 700 has the collector search 225 times while
# a verb imports what it needs: a tenth of a short run. Cycles hold little memory here.
_OBJECTS_PER_COLLECTION = 200_000

# The beginning of typer's message about a bad value; the reason follows.
_BAD_VALUE = re.compile(r"^Invalid value for '?([^':]+)'?(?: / '[^']*')*: (?:Value error, )?")


class _GroupedVerbs(TyperGroup):
    """Verbs that the help lists under headings, in the order of their registration.

    A verb's heading is its ``rich_help_panel``, which plain help would ignore. Errors on the command line look like
    those of the verbs.
    """

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line; exit in the end unless ``standalone_mode`` is False."""
        run: Any = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            sys.exit(run(*args, standalone_mode=False, **extra))
        except SystemExit as error:
            if reader_left(error):
                sys.exit(EXIT_READER_LEFT)
            raise
        except OSError as error:  # the help's; verbs catch their own
            complain_of_system(error)
            sys.exit(EXIT_FAILED)
        except Exception as error:
            if not hasattr(error, "format_message"):  # as click's errors have, of which typer may have its own copy
                raise
            _show_usage_error(error)
            sys.exit(2)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs of each heading, with all columns aligned."""
        names = self.list_commands(ctx)
        width = max(map(len, names))
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            command = self.commands[name]
            text = command.get_short_help_str(formatter.width - width - 6)
            groups.setdefault(str(getattr(command, "rich_help_panel", "")), []).append((name.ljust(width), text))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def _show_usage_error(error: Any) -> None:
    message = error.format_message()
    if "\n" in message:  # the help, where a verb is missing
        error.show()
        return
    bad = _BAD_VALUE.match(message)
    option, reason = ("", message) if bad is None else (f"{bad[1]}: ", message[bad.end() :])
    context = getattr(error, "ctx", None)
    where = "" if context is None else f"; see '{context.command_path} --help'"
    complain(f"{option}{reason[:1].lower()}{reason[1:].removesuffix('.')}{where}")


# Plain help: with rich's, --help alone would take 150 ms.
app = typer.Typer(
    name="mlgo-corpus",
    cls=_GroupedVerbs,
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


_DATA = "Get data"
app.command(rich_help_panel=_DATA, short_help="Try it: build, extract, record decisions, convert a log.")(demo)
app.command(
    rich_help_panel=_DATA,
    short_help="Run a build, and extract a corpus from it.",
    context_settings={"allow_interspersed_args": False},  # the build's command follows
)(build)
app.command(rich_help_panel=_DATA, short_help="Extract a corpus from a build's objects.")(extract)
app.command(rich_help_panel=_DATA, short_help="Make a corpus from loose bitcode files.")(make)
app.command(rich_help_panel=_DATA, short_help="Combine several corpora into one.")(combine)

_LOOK = "Look at it"
app.command(rich_help_panel=_LOOK, short_help="Show what one object, archive or binary holds.")(explain)
app.command(rich_help_panel=_LOOK, short_help="Show what is in a corpus.")(stats)
app.command(rich_help_panel=_LOOK, short_help="Make an HTML page on corpora, datasets and tables.")(report)
app.command(rich_help_panel=_LOOK, short_help="Print a training log, or its statistics.")(dump)

_CHANGE = "Check or change a corpus"
app.command(rich_help_panel=_CHANGE, short_help="Check every file; compile every module again.")(verify)
app.command(rich_help_panel=_CHANGE, short_help="Divide a corpus for training, without leaks.")(split)
app.command(rich_help_panel=_CHANGE, short_help="Find redundant modules, and leave them out.")(dedup)
app.command(rich_help_panel=_CHANGE, short_help="Pack a corpus into a few Parquet files.")(pack)
app.command(rich_help_panel=_CHANGE, short_help="Restore the folder of a packed corpus.")(unpack)

_RUN = "Run a compiler on a corpus"
app.command(rich_help_panel=_RUN, short_help="Record a compiler's decisions and their native sizes.")(trace)
app.command(rich_help_panel=_RUN, short_help="Find better inlining decisions than the compiler's.")(search)
app.command(rich_help_panel=_RUN, short_help="Make a table of functions: features, native sizes.")(ir2native)
app.command(rich_help_panel=_RUN, short_help="Link a build's products again, with other objects.")(relink)
app.command(rich_help_panel=_RUN, short_help="Measure policies: objects and linked products.")(evaluate)

_LEARN = "Prepare for training, and train"
app.command(rich_help_panel=_LEARN, short_help="Train a policy on what searches found.")(train)
app.command(rich_help_panel=_LEARN, short_help="Convert training logs to Parquet.")(logs_to_parquet)
app.command(rich_help_panel=_LEARN, short_help="Convert a dataset back to training logs.")(parquet_to_logs)
app.command(rich_help_panel=_LEARN, short_help="Write TFRecords for ml-compiler-opt's trainers.")(export)
app.command(rich_help_panel=_LEARN, short_help="Write the quantiles of features for its models.")(vocab)

_USE = "Use a policy"
app.add_typer(
    policy_app,
    name="policy",
    rich_help_panel=_USE,
    short_help="Show a learned policy, or write it as C and for LLVM.",
)

_SETUP = "Set up"
app.command(rich_help_panel=_SETUP, short_help="Check what is installed, and what is missing.")(doctor)
app.add_typer(
    toolchain_app,
    name="toolchain",
    rich_help_panel=_SETUP,
    short_help="List compilers, or build one that writes training logs.",
)


def _with_one(verb: str) -> typer.Typer:
    """Return the application with one of its verbs only, or, if it has no such verb, as it is.

    To make the options of all verbs would take 40 ms, a sixth of a short run.
    """
    commands = [
        one for one in app.registered_commands if one.callback and get_command_name(one.callback.__name__) == verb
    ]
    groups = [one for one in app.registered_groups if one.name == verb]
    if not commands and not groups:
        return app
    narrow = copy.copy(app)
    narrow.registered_commands, narrow.registered_groups = commands, groups
    return narrow


def main() -> None:
    """Run the command line."""
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may have what its encoding does not
        sys.stdout.reconfigure(errors="backslashreplace")
    _with_one("".join(sys.argv[1:2]))(prog_name="mlgo-corpus")


if __name__ == "__main__":
    main()
