"""LLVM's remarks about inlining, and the first call on which two compiles differ."""

from __future__ import annotations

import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.logs.remarks import Call, DecidedCall, iter_calls, iter_decided_calls, why_unfaithful

REMARKS = """--- !Missed
Pass:            inline
Name:            NoDefinition
Function:        f
Args:
  - Callee:          puts
  - String:          ' will not be inlined into '
  - Caller:          f
...
--- !Passed
Pass:            inline-ml
Name:            InliningSuccess
DebugLoc:        { File: '- Callee: x', Line: 3, Column: 2 }
Function:        'f$1'
Args:
  - String:          '''
  - Callee:          g
  - cost_estimate:   '-20'
...
"""


def test_the_calls_in_a_file() -> None:
    assert list(iter_calls(REMARKS.splitlines())) == [
        Call("f", "puts", inlined=False),
        Call("'f$1'", "g", inlined=True),
    ]
    for stop in range(len(REMARKS)):  # a file that ends early
        assert len(list(iter_calls(REMARKS[:stop].splitlines()))) <= 2


def calls(text: str) -> list[Call]:
    """Make calls of ``caller>callee``, or ``caller/callee`` for one that was not inlined."""
    return [Call(word[0], word[2], inlined=word[1] == ">") for word in text.split()]


@pytest.mark.parametrize(
    ("plain", "asked", "why"),
    [
        ("f>f", "", "recursion"),
        ("f/p f>g f>f f>h", "f/p f>g f>h", "recursion"),
        ("f>g f>h f>i", "f>g f>i", "not_asked"),
        ("f>g f>h", "f>g", "not_asked"),
        ("f>g f>h f>i", "f>g f/h f>i", "unknown"),  # asked, and another answer
        ("f>g", "f>g", "unknown"),
        ("f>g", "f>g f>h", "unknown"),
        ("", "", "unknown"),
        ("f>h g>g", "g>g", "not_asked"),  # the first one counts
    ],
)
def test_the_first_difference(plain: str, asked: str, why: str) -> None:
    assert why_unfaithful(calls(plain), calls(asked)) == why


# As clang writes them: a place that is folded, a file whose name looks like one, names that YAML has to quote.
DECISIONS = rb"""--- !Passed
Pass:            inline-ml
Name:            InliningSuccess
DebugLoc:        { File: '/usr/lib/gcc/x86_64-linux-gnu/12/../../../../include/c++/12/bits/allocator.h', 
                   Line: 156, Column: 7 }
Function:        _ZNSaIcEC2Ev
Args:
  - Callee:          'it''s.1'
  - cost_estimate:   '-35'
  - ShouldInline:    'true'
...
--- !Missed
Pass:            inline-ml
Name:            ForceStop
Function:        f
Args:
  - String:          'Won''t attempt inlining because module size grew too much.'
...
--- !Missed
Pass:            inline-ml
Name:            InliningNotAttempted
DebugLoc:        { File: 'Line: 1, Column: 2 }', Line: 30, Column: 4 }
Function:        "a\\b\x01\"\u00e9"
Args:
  - Callee:          "  - ShouldInline:    'true'"
  - cost_estimate:   '12'
  - ShouldInline:    'false'
...
--- !Missed
Pass:            inline-ml
Name:            InliningNotAttempted
Function:        f
Args:
  - Callee:          g
  - ShouldInline:    'false'
...
"""  # noqa: W291 - a blank at the end of a line, as LLVM has it


def test_the_call_of_each_decision() -> None:
    expected = [
        DecidedCall("_ZNSaIcEC2Ev", "it's.1", 156, 7, inlined=True),
        DecidedCall('a\\b\x01"\xe9', "  - ShouldInline:    'true'", 30, 4, inlined=False),
        DecidedCall("f", "g", None, None, inlined=False),
    ]
    assert list(iter_decided_calls(DECISIONS)) == expected
    ends = {0}
    while (end := DECISIONS.find(b"\n...\n", max(ends))) >= 0:
        ends.add(end + 5)
    for size in range(len(DECISIONS)):
        if size in ends:
            assert list(iter_decided_calls(DECISIONS[:size])) == expected[: DECISIONS[:size].count(b"\n  - Should")]
        else:
            with pytest.raises(FormatError):
                list(iter_decided_calls(DECISIONS[:size]))
