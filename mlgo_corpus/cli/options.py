"""Options that several verbs share, with the same names and help.

An alias is a complete option. A function takes the wording that depends on the verb, and returns what goes into the
option's `Annotated`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from mlgo_corpus.errors import UsageError

if TYPE_CHECKING:
    from mlgo_corpus.cli.console import Update
    from mlgo_corpus.engine.choice import EngineChoice

AddFlags = Annotated[
    list[str] | None,
    typer.Option("--add-flag", metavar="FLAG", help="An option to add to every command; repeatable."),
]
DeleteFlags = Annotated[
    list[str] | None,
    typer.Option("--delete-flag", metavar="FLAG", help="An option to remove from every command; repeatable."),
]
ReplaceFlags = Annotated[
    list[str] | None,
    typer.Option(
        "--replace-flag", metavar="FLAG=VALUE", help="A new value for an option of every command; repeatable."
    ),
]
TrustCorpus = Annotated[
    bool,
    typer.Option(
        "--trust-corpus",
        help="Run any command, without confining the compiler and without default limits: for a corpus of your own.",
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def _complete_compiler(incomplete: str) -> list[str]:
    """List the compilers whose name or path starts with ``incomplete``, for shell completion; run none of them."""
    from mlgo_corpus.compilers.find import find_compilers, short_name

    found = [candidate.words[0] for candidate in find_compilers() if candidate.origin != "ziglang"]
    words = dict.fromkeys((*(short_name(path) for path in found), *found))
    return [word for word in words if word.startswith(incomplete)]


def compiler_option(help: str, *, metavar: str = "PATH", show_default: str | bool = True) -> Any:  # noqa: A002
    """Return ``--compiler`` with this help text."""
    return typer.Option(metavar=metavar, help=help, show_default=show_default, autocompletion=_complete_compiler)


class EngineKind(StrEnum):
    """The values of ``--engine``."""

    LOCAL = "local"
    RAY = "ray"


Engine = Annotated[EngineKind, typer.Option(help="Where to run: on this machine, or on a Ray cluster.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The address of the Ray cluster.",
        show_default="$RAY_ADDRESS, or this machine's cluster",
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="How often to retry work that killed its worker process.",
        show_default="1; on a cluster 2",
    ),
]

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def jobs_option(what: str) -> Any:
    """Return ``--jobs``; ``what`` is its help text: what runs in parallel."""
    return typer.Option("--jobs", "-j", min=1, help=what, show_default="all CPUs")


def memory_limit_option(what: str) -> Any:
    """Return ``--memory-limit`` for one ``what``; `parse_size` reads its value."""
    return typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help=f"The memory limit of one {what}, such as 2G. A file that it writes is limited to 2G.",
        show_default="the machine's, shared among its CPUs, at least 4G",
    )


def sample_option(do: str) -> Any:
    """Return ``--sample``; ``do`` is what the verb does to the modules."""
    return typer.Option(
        "--sample", metavar="N|FRACTION", help=f"{do} a sample of modules, of all sizes: 100, 0.1 or 10%."
    )


def module_filter_option(do: str) -> Any:
    """Return ``--module-filter``; ``do`` is what the verb does to the modules."""
    return typer.Option("--module-filter", metavar="REGEX", help=f"{do} only modules whose name matches.")


def modules_file_option(do: str) -> Any:
    """Return ``--modules-file``; ``do`` is what the verb does to the modules."""
    return typer.Option(
        "--modules-file", metavar="FILE", help=f"{do} only the modules listed in this file, one per line."
    )


def parse_size(text: str | None) -> int | None:
    """Return the bytes of a ``--memory-limit`` such as ``500M`` or ``2G``, in powers of 1024; None if not given.

    Raises:
        UsageError: the text is not a size.
    """
    if text is None:
        return None
    match = _MEMORY.fullmatch(text.strip())
    size = 0.0 if match is None else float(match[1]) * _UNITS[match[2].upper()]
    if not 1 <= size < math.inf:
        raise UsageError("expected a size such as 500M or 2G", option="memory_limit", value=text)
    return int(size)


def engine_choice(kind: EngineKind, address: str | None, retries: int | None) -> EngineChoice:
    """Return the engine that the options choose.

    Raises:
        UsageError: the options contradict each other.
    """
    from mlgo_corpus.engine.choice import EngineChoice

    return EngineChoice(kind.value, address, retries)


def with_workers(progress: Update, engine: EngineChoice) -> Update:
    """Add a cluster's figures to the progress: workers, queued items, and items done per second."""
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


def refuse(context: typer.Context, because: str, *names: str) -> None:
    """Refuse parameters that would do nothing, also with their default values; the first that was typed is named.

    Raises:
        UsageError: one was typed.
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(because, option=name)


_Filled = TypeVar("_Filled")


def filled(kind: type[_Filled], given: Mapping[str, Any], **values: Any) -> _Filled:
    """Make a value object of a verb's arguments that have the names of its fields.

    Args:
        kind: a dataclass, such as `mlgo_corpus.compilers.limits.Limits`: a field that it gets needs only an option.
        given: the verb's ``locals()``.
        values: fields that are made of arguments of another type.
    """
    names = {item.name for item in fields(cast(Any, kind))}
    return kind(**{**{name: value for name, value in given.items() if name in names}, **values})
