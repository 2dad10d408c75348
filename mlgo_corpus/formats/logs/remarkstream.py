"""LLVM 22's remarks in its bitstream, which cost a compiler less than YAML.

The remark of a decision tells all features, each a text: LLVM takes 30 to 71 us to write them as YAML, and 9
to 36 us as a bitstream, of which a reader can skip what it does not want. Before LLVM 22 the strings are in a section
that ELF files do not have, and clang crashes (measured on 19).

The file is the magic ``RMRK``, then blocks, each a word with its id, its length in words, and as many words: block 0
with the abbreviations of records, meta blocks, of which the last has the table of strings, and a remark block for each
remark, in order (llvm/lib/Remarks/BitstreamRemarkSerializer.cpp)::

    header               4 bits: 4   type: 3 bits, name: vbr6, pass: vbr6, function: vbr8
    debug location       4 bits: 5   file: vbr7, line: 32 bits, column: 32 bits; where there is one
    hotness              4 bits: 6   vbr8; where there is a profile
    argument with place  4 bits: 7   key: vbr7, value: vbr7, file: vbr7, line: 32 bits, column: 32 bits
    argument             4 bits: 8   key: vbr7, value: vbr7

Names and texts are indices of strings. The callee is the first argument. The name of a remark tells the advice, which
its last argument repeats (llvm/lib/Analysis/MLInlineAdvisor.cpp).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError

STREAM_MAGIC: Final = b"RMRK"
STREAM_MAJORS: Final = (22,)
"""LLVM's major versions whose bitstreams of remarks are read here."""
STREAM_OPTIONS: Final = ("-opt-record-format", "bitstream", "-mllvm", "-remarks-section=false")
"""The cc1 options for such a file; without the last, LLVM warns that an ELF file has no section for the strings."""

# The magic, the abbreviations, and the meta block with the version: if they are others, the rest may be, too.
_BEGINNING_BYTES = 308
_BEGINNING = "8cb772bed61b0dbe6f20705dc550f5493a12b59dff93852480242460dfaa8e0d"
# The first words of blocks: ENTER_SUBBLOCK, the block's id, and the width of the abbreviation ids in it.
_REMARK_BLOCK: Final = int.from_bytes((1 | 9 << 2 | 4 << 10).to_bytes(4, "little"), sys.byteorder)
_META_BLOCK: Final = 1 | 8 << 2 | 3 << 10
_STRINGS = 6  # the abbreviation of the table, in a meta block
_HEADER, _PLACE, _HOTNESS = 4, 5, 6
_ARGUMENTS = (7, 8)
_ADVICE: Final = {
    "InliningSuccess": True,
    "InliningSuccessWithCalleeDeleted": True,
    "InliningAttemptedAndUnsuccessful": True,
    "IniningNotAttempted": False,  # as LLVM spells it
}
# Each call is passed by, without a decision, once a module has grown too much.
_STOPPED = "ForceStop"

_Call = tuple[str, str, int | None, int | None, bool]


def iter_streamed_calls(data: bytes) -> Iterator[_Call]:
    """Yield caller, callee, line, column and advice of each decision in such a file.

    Raises:
        FormatError: it is another file, or is cut off.
    """
    if sha256(data[:_BEGINNING_BYTES]).hexdigest() != _BEGINNING:
        raise FormatError("expected LLVM 22's bitstream of remarks", offset=0)
    starts, strings = _read_blocks(data)
    fields = _read_fields(data, starts)
    for start, known, name, passed, caller, placed, line, column, key, callee in zip(starts, *fields, strict=True):
        try:
            if not known or strings[passed] != "inline-ml":
                raise LookupError
            if (advice := strings[name]) == _STOPPED:
                continue
            if strings[key] != "Callee":
                raise LookupError
            place = (line, column) if placed else (None, None)
            yield strings[caller], strings[callee], *place, _ADVICE[advice]
        except LookupError:
            raise FormatError("expected a remark about a decision", offset=start) from None


def _read_blocks(data: bytes) -> tuple[list[int], list[str]]:
    """Return where the bodies of remarks begin, and the table of strings, each of which ends with a zero."""
    words = memoryview(data[: len(data) & ~3]).cast("I")
    starts, at, end = [], _BEGINNING_BYTES // 4, len(words)
    while at + 1 < end and words[at] == _REMARK_BLOCK:
        starts.append(4 * at + 8)
        at += 2 + words[at + 1]
    at *= 4
    head, length = (int.from_bytes(data[start : start + 4], "little") for start in (at, at + 4))
    bits = int.from_bytes(data[at + 8 : at + 16], "little")
    if head != _META_BLOCK or bits & 7 != _STRINGS or at + 8 + 4 * length != len(data):
        raise FormatError("expected a whole remark", offset=min(at, len(data)))
    # A blob: its size in chunks of 6 bits, and its bytes from the next word on.
    size, read = 0, 3
    while (chunk := bits >> read & 0x3F) & 0x20:
        size |= (chunk & 0x1F) << (read - 3) // 6 * 5
        read += 6
    size |= chunk << (read - 3) // 6 * 5
    begin = at + 8 + (read + 6 + 31) // 32 * 4
    if begin + size > len(data):
        raise FormatError("expected a whole table of strings", offset=at)
    return starts, data[begin : begin + size].decode("utf-8", "surrogateescape").split("\0")[:-1]


def _read_fields(data: bytes, starts: list[int]) -> list[list[Any]]:
    """Return of each remark what `iter_streamed_calls` looks at, which is nonsense where a remark is none."""
    bits = _Bits(data, starts)
    known = bits.fixed(4) == _HEADER
    bits.fixed(3)
    name, passed, caller = bits.vbr(6), bits.vbr(6), bits.vbr(8)
    placed = bits.follows(_PLACE)
    bits.vbr(7, placed)
    line, column = bits.fixed(32, placed), bits.fixed(32, placed)
    bits.vbr(8, bits.follows(_HOTNESS))
    item = bits.fixed(4)
    key, callee = bits.vbr(7), bits.vbr(7)
    known &= (item == _ARGUMENTS[0]) | (item == _ARGUMENTS[1])
    return [field.tolist() for field in (known, name, passed, caller, placed, line, column, key, callee)]


class _Bits:
    """Bits of many places at once: each read is of shape ``(n,)``. What is past the end is 0."""

    def __init__(self, data: bytes, starts: list[int]) -> None:
        # The eight bytes from each byte on: 56 bits or more, wherever in the byte a number begins.
        self._windows = np.ndarray((len(data),), "<u8", data + bytes(8), strides=(1,))
        self._at = 8 * np.array(starts, np.int64)

    def _window(self) -> NDArray[np.uint64]:
        at = np.minimum(self._at, 8 * len(self._windows) - 1)
        window: NDArray[np.uint64] = self._windows[at >> 3] >> (at & 7).astype(np.uint64)
        return window

    def follows(self, item: int) -> NDArray[np.bool_]:
        """Return where this item comes next, and go past its four bits there."""
        found: NDArray[np.bool_] = self._window() & np.uint64(0xF) == item
        self._at += 4 * found
        return found

    def fixed(self, width: int, where: NDArray[np.bool_] | bool = True) -> NDArray[np.uint64]:
        """Read numbers of ``width`` bits, and go past them, where asked."""
        found = self._window() & np.uint64((1 << width) - 1)
        self._at += width * where
        return found

    def vbr(self, width: int, where: NDArray[np.bool_] | bool = True) -> NDArray[np.uint64]:
        """Read numbers in chunks of ``width`` bits, 49 bits of each at most, and go past them, where asked."""
        window, top, low = self._window(), np.uint64(width - 1), np.uint64((1 << width - 1) - 1)
        found, more, chunks = window & low, window >> top & np.uint64(1), np.ones(len(window), np.int64)
        for chunk in range(1, 56 // width):
            if not more.any():
                break
            window >>= np.uint64(width)
            found += more * ((window & low) << np.uint64(chunk * (width - 1)))
            chunks += more.astype(np.int64)
            more &= window >> top
        self._at += width * chunks * where
        return found
