"""LLVM's remarks about inlining, and why two compiles of one module differ that should decide alike.

``-opt-record-file FILE -opt-record-passes inline`` writes a YAML document for each call that was considered, in order::

    --- !Passed
    Pass:            inline
    Name:            Inlined
    Function:        caller
    Args:
      - Callee:          callee

The kind is ``Passed`` if the call was inlined. The heuristic's pass is ``inline``; of a compile that asks, the calls
asked about have ``inline-ml``. Only these lines are read here, as text: names that YAML quotes are equal in both.

Measured on LLVM 19 and 22 (llvm/lib/Analysis/MLInlineAdvisor.cpp): ``MLInlineAdvisor`` never asks about a function's
call of itself, nor about a call in code that cannot be reached, and inlines neither. The heuristic considers both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

REMARK_OPTIONS: Final = ("-opt-record-passes", "inline", "-opt-record-file")
"""The cc1 options that record these remarks; the file follows."""


class UnfaithfulBecause(StrEnum):
    """Why an object of the default policy is not the plain compile's.

    Attributes:
        RECURSION: the heuristic inlined a function's call of itself, about which LLVM never asks a policy.
        NOT_ASKED: the heuristic inlined a call about which LLVM did not ask: one in code that cannot be reached.
        UNKNOWN: the decisions differ in another way, or the task is not inlining, or the two compiles that find it
            out failed.
    """

    RECURSION = "recursion"
    NOT_ASKED = "not_asked"
    UNKNOWN = "unknown"


class Call(NamedTuple):
    """A call that an inliner considered, and whether it inlined it."""

    caller: str
    callee: str
    inlined: bool


def iter_calls(lines: Iterable[str]) -> Iterator[Call]:
    """Yield the calls in a file of remarks."""
    inlined: bool | None = None
    caller = ""
    for line in lines:
        if line.startswith("--- !"):
            inlined = line.startswith("--- !Passed")
        elif line.startswith("Function:"):
            caller = line.partition(":")[2].strip()
        elif inlined is not None and line.startswith("  - Callee:"):
            yield Call(caller, line.partition(":")[2].strip(), inlined)
            inlined = None


def why_unfaithful(plain: Iterable[Call], asked: Iterable[Call]) -> UnfaithfulBecause:
    """Find the first call that the heuristic inlined and a compile that echoes its decisions did not.

    Args:
        plain: the calls of the plain compile.
        asked: those of the compile that asked; a call that it did not ask about is not among them.
    """
    others = iter(asked)
    for call in plain:
        if not call.inlined:
            continue
        declined = set()
        for other in others:
            if other.inlined:
                break
            declined.add(other)
        else:
            other = None
        if other == call:
            continue
        if call.caller == call.callee:
            return UnfaithfulBecause.RECURSION
        return UnfaithfulBecause.UNKNOWN if call._replace(inlined=False) in declined else UnfaithfulBecause.NOT_ASKED
    return UnfaithfulBecause.UNKNOWN
