"""The limits of a run: how long a compiler may take, how much memory it may have, how often it is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mlgo_corpus.errors import UsageError

# Eleven days: a longer timeout is a mistake.
_LONGEST_TIMEOUT_S: Final = 1e6
# The largest value of the system's limits.
_MOST_MEMORY: Final = 1 << 62

_MOST_RETRIES = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a compile. None is part of a run's key: the next run tries again what a limit ended.

    Attributes:
        timeout: seconds that one program may take.
        memory_limit: bytes of address space that it may have; by default the machine's memory, shared among its CPUs,
            at least 4 GiB.
        retries: how often a compile is tried again that crashed or took too long.
    """

    timeout: float = 60.0
    memory_limit: int | None = None
    retries: int = 0

    def check(self) -> None:
        """Check every limit.

        Raises:
            UsageError: one is out of bounds.
        """
        if not 0 < self.timeout < _LONGEST_TIMEOUT_S:
            expected = f"expected seconds, more than 0 and less than {_LONGEST_TIMEOUT_S:.0f}"
            raise UsageError(expected, option="timeout", value=f"{self.timeout:g}")
        check_count("memory_limit", self.memory_limit, most=_MOST_MEMORY)
        check_count("retries", self.retries, least=0, most=_MOST_RETRIES)


def check_count(option: str, number: int | None, *, least: int = 1, most: int | None = None) -> None:
    """Check a number that may be left to us.

    Raises:
        UsageError: it is out of bounds.
    """
    if number is not None and number < least:
        raise UsageError(f"expected at least {least}", option=option, value=number)
    if number is not None and most is not None and number > most:
        raise UsageError(f"expected at most {most}", option=option, value=number)
