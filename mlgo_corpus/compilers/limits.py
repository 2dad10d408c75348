"""The numbers that a caller sets for a run: what is sensible, and one wording for what is not."""

from __future__ import annotations

from typing import Final

from mlgo_corpus.errors import UsageError

LONGEST_TIMEOUT_S: Final = 1e6
"""Eleven days: whoever means more means something else."""

MOST_MEMORY: Final = 1 << 62
"""What fits into the system's limits."""


def check_count(option: str, number: int | None, *, least: int = 1, most: int | None = None) -> None:
    """Check a number that may be left to us.

    Raises:
        UsageError: it is out of bounds.
    """
    if number is not None and number < least:
        raise UsageError(f"expected at least {least}", option=option, value=number)
    if number is not None and most is not None and number > most:
        raise UsageError(f"expected at most {most}", option=option, value=number)


def check_timeout(seconds: float) -> None:
    """Check ``timeout``.

    Raises:
        UsageError: it is no time that a program could have.
    """
    if not 0 < seconds < LONGEST_TIMEOUT_S:
        expected = f"expected seconds, more than 0 and less than {LONGEST_TIMEOUT_S:.0f}"
        raise UsageError(expected, option="timeout", value=f"{seconds:g}")


def check_memory_limit(size: int | None) -> None:
    """Check ``memory_limit``, in bytes.

    Raises:
        UsageError: it is nothing that a system could set.
    """
    check_count("memory_limit", size, most=MOST_MEMORY)
