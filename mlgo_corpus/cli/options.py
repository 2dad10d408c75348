"""Options that several verbs have, so that they are called and explained alike.

An alias is the whole of an option; a function is told what the option is about with its verb, and gives what stands in
its `Annotated`.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import typer

from mlgo_corpus.errors import UsageError

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
    bool, typer.Option("--trust-corpus", help="Run commands also if they could load code or write files.")
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def jobs_option(what: str) -> Any:
    """Give ``--jobs``, of which ``what`` says what is done side by side."""
    return typer.Option("--jobs", "-j", min=1, help=what, show_default="all CPUs")


def memory_limit_option(what: str) -> Any:
    """Give ``--memory-limit`` of one ``what``; `parse_size` reads it."""
    return typer.Option("--memory-limit", metavar="SIZE", help=f"The memory that one {what} may have, such as 2G.")


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
