"""Options that several verbs have, so that they are called and explained alike.

An alias is the whole of an option; a function is told what the option is about with its verb, and gives what stands in
its `Annotated`.
"""

from __future__ import annotations

import math
import re
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlgo_corpus.errors import UsageError

if TYPE_CHECKING:
    from mlgo_corpus.cli.console import Update
    from mlgo_corpus.engine.choice import EngineChoice

AddFlags = Annotated[
    list[str] | None,
    typer.Option("--add-flag", metavar="FLAG", help="Add an option to every command; repeat for more."),
]
DeleteFlags = Annotated[
    list[str] | None, typer.Option("--delete-flag", metavar="FLAG", help="Take an option out of every command.")
]
ReplaceFlags = Annotated[
    list[str] | None,
    typer.Option("--replace-flag", metavar="FLAG=VALUE", help="Give an option of every command another value."),
]
TrustCorpus = Annotated[
    bool,
    typer.Option(
        "--trust-corpus",
        help="Run any command, without walls around the compiler and without default limits: for a corpus of your own.",
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def complete_compiler(incomplete: str) -> list[str]:
    """List the compilers whose names or paths begin so, for a shell that completes ``--compiler``; none is run."""
    from mlgo_corpus.compilers.find import find_compilers, short_name

    found = [candidate.words[0] for candidate in find_compilers() if candidate.origin != "ziglang"]
    words = dict.fromkeys((*(short_name(path) for path in found), *found))
    return [word for word in words if word.startswith(incomplete)]


def compiler_option(help: str, *, metavar: str = "PATH", show_default: str | bool = True) -> Any:  # noqa: A002
    """Make ``--compiler``; ``help`` says what it is for."""
    return typer.Option(metavar=metavar, help=help, show_default=show_default, autocompletion=complete_compiler)


class EngineKind(StrEnum):
    """The values of ``--engine``."""

    LOCAL = "local"
    RAY = "ray"


Engine = Annotated[EngineKind, typer.Option(help="Who works: this machine, or a Ray cluster.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="The Ray cluster.", show_default="what RAY_ADDRESS says, or this machine's cluster"
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Try again what took its worker process down.",
        show_default="1; on a cluster 2",
    ),
]

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def jobs_option(what: str) -> Any:
    """Give ``--jobs``, of which ``what`` says what is done side by side."""
    return typer.Option("--jobs", "-j", min=1, help=what, show_default="all CPUs")


def memory_limit_option(what: str) -> Any:
    """Give ``--memory-limit`` of one ``what``; `parse_size` reads it."""
    return typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help=f"The memory that one {what} may have, such as 2G. It may write 2G into one file.",
        show_default="the machine's, shared among its CPUs, at least 4G",
    )


def sample_option(do: str) -> Any:
    """Give ``--sample``, where ``do`` is what is done to the modules."""
    return typer.Option("--sample", metavar="N|FRACTION", help=f"{do} so many modules, of all sizes: 100, 0.1 or 10%.")


def module_filter_option(do: str) -> Any:
    """Give ``--module-filter``, where ``do`` is what is done to the modules."""
    return typer.Option("--module-filter", metavar="REGEX", help=f"{do} modules whose name matches.")


def modules_file_option(do: str) -> Any:
    """Give ``--modules-file``, where ``do`` is what is done to the modules."""
    return typer.Option(
        "--modules-file", metavar="FILE", help=f"{do} the modules that are named in a file, one a line."
    )


def parse_size(text: str | None) -> int | None:
    """Read a ``--memory-limit`` as people write it: ``500M``, ``2G``, in powers of 1024; None is none.

    Raises:
        UsageError: it is no number of bytes.
    """
    if text is None:
        return None
    match = _MEMORY.fullmatch(text.strip())
    size = 0.0 if match is None else float(match[1]) * _UNITS[match[2].upper()]
    if not 1 <= size < math.inf:
        raise UsageError(f"--memory-limit {text}: expected a size such as 500M or 2G")
    return int(size)


def engine_choice(kind: EngineKind, address: str | None, retries: int | None) -> EngineChoice:
    """Put the engine's options together.

    Raises:
        UsageError: they do not go together.
    """
    from mlgo_corpus.engine.choice import EngineChoice

    return EngineChoice(kind.value, address, retries)


def with_workers(progress: Update, engine: EngineChoice) -> Update:
    """Let progress tell of a cluster, too: its workers, what is under way, and how much is done in a second."""
    if engine.kind == EngineKind.LOCAL:
        return progress
    began = time.monotonic()
    first: int | None = None

    def update(done: int, total: int, note: str = "", /) -> None:
        nonlocal first
        first = done if first is None else first
        workers = engine.status.workers
        rate = (done - first) / max(time.monotonic() - began, 1e-3)
        told = f"{workers} worker{'' if workers == 1 else 's'}, {engine.status.under_way} queued, {rate:.1f}/s"
        progress(done, total, f"{note}, {told}" if note else told)

    return update


def worker_figures(engine: EngineChoice) -> dict[str, Any]:
    """Give what the workers of a cluster did, for a result in JSON; nothing of this machine's."""
    if engine.kind == EngineKind.LOCAL:
        return {}
    figures = engine.status.figures
    return {
        "workers": [
            {"host": one.host, "pid": one.pid, "items": one.items, "seconds": round(one.seconds, 3)} for one in figures
        ]
    }
