r"""LLVM's remarks about inlining: which call each decision was about, and why two compiles differ that should not.

``-opt-record-file FILE -opt-record-passes inline`` writes a YAML document for each call that was considered, in order::

    --- !Passed
    Pass:            inline
    Name:            Inlined
    Function:        caller
    Args:
      - Callee:          callee

The kind is ``Passed`` if the call was inlined. The heuristic's pass is ``inline``; of a compile that asks, the calls
asked about have ``inline-ml``: exactly one for each decision, in the order of the decisions (clang 17 to 22). Its
arguments end with the advice, ``ShouldInline: 'true'``, and where there is debug information a line
``DebugLoc: { File: ..., Line: 7, Column: 3 }``, which may be folded, comes before the caller. LLVM quotes names as YAML
does (llvm/lib/Support/YAMLTraits.cpp); none of them holds a newline. LLVM 22 is told to write
decisions as a bitstream (`mlgo_corpus.formats.logs.remarkstream`).

Measured on LLVM 19 and 22 (llvm/lib/Analysis/MLInlineAdvisor.cpp): ``MLInlineAdvisor`` never asks about a function's
call of itself, nor about a call in code that cannot be reached, and inlines neither. The heuristic considers both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.logs.remarkstream import STREAM_MAGIC, STREAM_MAJORS, STREAM_OPTIONS, iter_streamed_calls

REMARK_OPTIONS: Final = ("-opt-record-passes", "inline", "-opt-record-file")
"""The cc1 options that record the remarks of both inliners; the file follows."""

_DECISION = re.compile(
    rb"--- !.*\nPass: +inline-ml\nName: .*\n(?:DebugLoc: (.*(?:\n .*)*)\n)?Function: (.*)\n(?:Hotness: .*\n)?"
    rb"Args:.*\n  - Callee: (.*)"
)
_ADVICE, _END = b"\n  - ShouldInline:", b"\n...\n"
# Each call is passed by, without a decision, once a module has grown too much.
_STOPPED = b"--- !Missed\nPass:            inline-ml\nName:            ForceStop\n"
_PLACE = re.compile(rb"Line:\s+(\d+),\s+Column:\s+(\d+)\s*\}\s*\Z")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPED = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"}
_ESCAPED |= {"N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}


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


class DecidedCall(NamedTuple):
    """The call that a decision of the ML advisor was about.

    Attributes:
        caller: the function that it is in.
        callee: the function that it calls.
        line: of the call in its source; None without debug information.
        column: likewise.
        inlined: the advice.
    """

    caller: str
    callee: str
    line: int | None
    column: int | None
    inlined: bool


def decision_options(major: int) -> tuple[str, ...]:
    """Return the cc1 options that record the decisions of LLVM's ML advisor alone; the file follows."""
    stream = STREAM_OPTIONS if major in STREAM_MAJORS else ()
    return (*stream, "-opt-record-passes", "inline-ml", "-opt-record-file")


def iter_decided_calls(data: bytes) -> Iterator[DecidedCall]:
    """Yield the call of each decision in a file of remarks that was recorded with `decision_options`.

    Raises:
        FormatError: it is not such a file, or is cut off.
    """
    if data.startswith(STREAM_MAGIC):
        yield from map(DecidedCall._make, iter_streamed_calls(data))
        return
    begin, names, at, size = _DECISION.match, _Scalars(), 0, len(data)
    while at < size:
        end = data.find(_END, at)
        if end < 0:
            raise FormatError("expected a remark of the inliner's", offset=at)
        if (remark := begin(data, at, end)) is not None:
            advice = data.rfind(_ADVICE, remark.end(), end)
            if advice < 0:
                raise FormatError("expected a remark about a decision", offset=at)
            place, caller, callee = remark.groups()
            found = None if place is None else _PLACE.search(place)
            yield DecidedCall(
                names[caller],
                names[callee],
                None if found is None else int(found[1]),
                None if found is None else int(found[2]),
                names[data[advice + len(_ADVICE) : end].partition(b"\n")[0]] == "true",
            )
        elif not data.startswith(_STOPPED, at):
            raise FormatError("expected a remark about a decision", offset=at)
        at = end + len(_END)


class _Scalars(dict[bytes, str]):
    """Values of YAML by their bytes, each read once."""

    def __missing__(self, data: bytes) -> str:
        self[data] = value = _scalar(data)
        return value


def _scalar(data: bytes) -> str:
    """Return a plain or quoted value of YAML."""
    text = data.decode("utf-8", "surrogateescape").strip(" ")
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text.startswith('"'):
        return _ESCAPE.sub(lambda match: _unescaped(match[1]), text[1:-1])
    return text


def _unescaped(escape: str) -> str:
    if len(escape) > 1:
        return chr(min(int(escape[1:], 16), 0x10FFFF))
    return _ESCAPED.get(escape, escape)


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
