"""The limits of a run: how long a compiler may take, how much memory it may have, how often it is tried again.

The numbers of a request are checked here, too.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex, TypeVar, overload

from mlgo_corpus.errors import UsageError

# Eleven days: a longer timeout is a mistake.
_LONGEST_TIMEOUT_S: Final = 1e6
# The largest value of the system's limits.
_MOST_MEMORY: Final = 1 << 62

_MOST_RETRIES = 100

_Value = TypeVar("_Value", bound=Any)
# The parameters that fields of value objects stand for, where they have another name.
_PARAMETERS: Final = {
    "add": "add_flags",
    "delete": "delete_flags",
    "replace": "replace_flags",
    "trusted": "trust_corpus",
}


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


def check_once(option: str, places: Sequence[Path | str], what: str) -> None:
    """Check that no path is named twice, whatever way it is written.

    Raises:
        UsageError: one is; ``what`` says of what: ``a corpus``.
    """
    if len(set(map(os.path.realpath, places))) != len(places):
        raise UsageError(f"{what} is named twice, and would count twice", option=option)


MOST_COMPILES: Final = 1_000_000
"""The most compiles of one module that may be asked for."""


def check_count(option: str, number: SupportsIndex | None, *, least: int = 1, most: int | None = None) -> None:
    """Check a number that may be left to us.

    Raises:
        UsageError: it is not a whole number, or out of bounds.
    """
    number = whole_number(option, number)
    if number is not None and number < least:
        raise UsageError(f"expected at least {least}", option=option, value=number)
    if number is not None and most is not None and number > most:
        raise UsageError(f"expected at most {most}", option=option, value=number)


@overload
def whole_number(option: str, number: SupportsIndex) -> int: ...


@overload
def whole_number(option: str, number: SupportsIndex | None) -> int | None: ...


def whole_number(option: str, number: SupportsIndex | None) -> int | None:
    """Return a parameter as an int of Python's, which numpy's integers are not; None stays None.

    Raises:
        UsageError: it is not a whole number.
    """
    try:
        return None if number is None else operator.index(number)
    except TypeError:
        raise UsageError("expected a whole number", option=option, value=number) from None


@overload
def real_number(option: str, number: SupportsFloat) -> float: ...


@overload
def real_number(option: str, number: SupportsFloat | None) -> float | None: ...


def real_number(option: str, number: SupportsFloat | None) -> float | None:
    """Return a parameter as a float of Python's, which numpy's numbers are not; None stays None.

    Raises:
        UsageError: it is not a number.
    """
    try:
        return None if number is None else float(number)
    except (TypeError, ValueError):
        raise UsageError("expected a number", option=option, value=number) from None


def given_once(option: str, given: _Value | None, keywords: _Value, **usual: Any) -> _Value:
    """Return a request's value object: the one given, or else the one of its keywords.

    Args:
        option: the parameter that takes the object.
        given: the object, if there is one.
        keywords: the same, of the parameters that it stands for.
        usual: the defaults of parameters that are not the object's own.

    Raises:
        UsageError: there are both an object and such parameters.
    """
    if given is None:
        return keywords
    default = type(keywords)(**usual)
    for one in fields(keywords):
        if getattr(keywords, one.name) != getattr(default, one.name):
            name = _PARAMETERS.get(one.name, one.name)
            raise UsageError(f"expected this or `{name}`, found both", option=option)
    return given
