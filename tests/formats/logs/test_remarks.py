"""LLVM's remarks about inlining, and the first call on which two compiles differ."""

from __future__ import annotations

import pytest

from mlgo_corpus.formats.logs.remarks import Call, iter_calls, why_unfaithful

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
