"""Checks of the numbers that a caller sets for a run, with one wording for errors."""

from __future__ import annotations

from typing import Final

from mlgo_corpus.errors import UsageError

# Eleven days: a longer timeout is a mistake.
_LONGEST_TIMEOUT_S: Final = 1e6
# The largest limit that the system accepts.
_MOST_MEMORY: Final = 1 << 62


def check_count(option: str, number: int | None, *, least: int = 1, most: int | None = None) -> None:
    """Check a number; None stands for the default.

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
        UsageError: it is out of bounds.
    """
    if not 0 < seconds < _LONGEST_TIMEOUT_S:
        expected = f"expected seconds, more than 0 and less than {_LONGEST_TIMEOUT_S:.0f}"
        raise UsageError(expected, option="timeout", value=f"{seconds:g}")


def check_memory_limit(size: int | None) -> None:
    """Check ``memory_limit``, in bytes.

    Raises:
        UsageError: it is out of bounds.
    """
    check_count("memory_limit", size, most=_MOST_MEMORY)
