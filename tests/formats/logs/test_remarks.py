"""LLVM's remarks about inlining, and the first call on which two compiles differ."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


# Of one compile by clang 22, with quoted names, and calls that are passed by as the module has grown too much.
RECORDED = Path(__file__).parents[2] / "data" / "remarks"
STREAM = (RECORDED / "bitstream").read_bytes()


def test_a_bitstream_tells_what_yaml_tells() -> None:
    text = (RECORDED / "yaml").read_bytes()
    told = list(iter_decided_calls(STREAM))
    assert told == list(iter_decided_calls(text))
    assert (len(told), text.count(b"ForceStop")) == (7, 1)
    assert told[1] == DecidedCall("many", "one", 8, 36, inlined=False)
    assert told[2] == DecidedCall("many", 'it\'s "a\\b" \xe9: - {x}', 8, 45, inlined=True)


def test_a_bitstream_that_is_cut_off_or_damaged() -> None:
    for size in range(1, len(STREAM)):
        with pytest.raises(FormatError):
            list(iter_decided_calls(STREAM[:size]))
    rng = random.Random(5)
    for _ in range(2000):
        damaged = bytearray(STREAM)
        for _ in range(rng.choice((1, 1, 8))):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 255, rng.randrange(256)))
        with contextlib.suppress(FormatError):
            assert len(list(iter_decided_calls(bytes(damaged)))) <= 9


class Bits:
    """A writer of bits, the plain way: a number is a text of zeros and ones, the lowest bit first."""

    def __init__(self) -> None:
        self.text = ""

    def fixed(self, value: int, width: int) -> None:
        self.text += format(value, f"0{width}b")[::-1]

    def vbr(self, value: int, width: int) -> None:
        while value >> width - 1:
            self.fixed(value & (1 << width - 1) - 1 | 1 << width - 1, width)
            value >>= width - 1
        self.fixed(value, width)

    def words(self) -> bytes:
        text = self.text + "0" * (-len(self.text) % 32)
        return b"".join(int(text[at : at + 8][::-1], 2).to_bytes(1, "little") for at in range(0, len(text), 8))


def block(number: int, width: int, body: bytes) -> bytes:
    return (1 | number << 2 | width << 10).to_bytes(4, "little") + (len(body) // 4).to_bytes(4, "little") + body


NAMES = {
    "InliningSuccess": True,
    "InliningSuccessWithCalleeDeleted": True,
    "InliningAttemptedAndUnsuccessful": True,
    "IniningNotAttempted": False,
}
PLACES = st.none() | st.tuples(*3 * [st.integers(0, (1 << 32) - 1)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(NAMES)),
            st.integers(0, 40_000),
            st.integers(0, 40_000),
            PLACES,
            st.none() | st.integers(0, (1 << 49) - 1),
            PLACES,
            st.integers(0, 3),
        )
    ),
    st.integers(0, 40_000),
)
def test_any_bitstream(remarks: list[tuple[str, int, int, object, int | None, object, int]], first: int) -> None:
    """Indices of any size, with and without places and a profile, and arguments of any length after the callee."""
    strings = [*(f"f{number}" for number in range(40_001)), "inline-ml", "Callee", "x" * 40, *NAMES]
    strings = [*strings[first:], *strings[:first]]
    at = {text: index for index, text in enumerate(strings)}
    data, expected = STREAM[:308], []
    for name, caller, callee, place, hotness, callee_place, more in remarks:
        bits = Bits()
        bits.fixed(4, 4)
        bits.fixed(1, 3)
        for text, width in ((name, 6), ("inline-ml", 6), (f"f{caller}", 8)):
            bits.vbr(at[text], width)
        if place is not None:
            bits.fixed(5, 4)
            bits.vbr(place[0], 7)
            bits.fixed(place[1], 32)
            bits.fixed(place[2], 32)
        if hotness is not None:
            bits.fixed(6, 4)
            bits.vbr(hotness, 8)
        bits.fixed(8 if callee_place is None else 7, 4)
        bits.vbr(at["Callee"], 7)
        bits.vbr(at[f"f{callee}"], 7)
        if callee_place is not None:
            bits.vbr(callee_place[0], 7)
            bits.fixed(callee_place[1], 32)
            bits.fixed(callee_place[2], 32)
        for _ in range(more):
            bits.fixed(8, 4)
            bits.vbr(at["x" * 40], 7)
            bits.vbr(at["Callee"], 7)
        bits.fixed(0, 4)
        data += block(9, 4, bits.words())
        line, column = (None, None) if place is None else place[1:]
        expected.append(DecidedCall(f"f{caller}", f"f{callee}", line, column, inlined=NAMES[name]))
    blob = b"".join(text.encode() + b"\0" for text in strings)
    bits = Bits()
    bits.fixed(6, 3)
    bits.vbr(len(blob), 6)
    data += block(8, 3, bits.words() + blob + bytes(-len(blob) % 4 + 4))
    assert list(iter_decided_calls(data)) == expected
