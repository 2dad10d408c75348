"""Training logs in blocks: the same events as from `mlgo_corpus.formats.logs.events`, hundreds at a time.

Observations whose numbers have the same count of digits are equally long, so a run of them is an array of records:
framing, tensors, framing. The framing of each one is compared with the expected one; the tensors are not inspected.
Anything but the next observation of a run (a context, another number, damage) is left to the plain reader, so that
both readers yield the same events and raise the same errors by construction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.logs.events import Context, LogHeader, LogReader, LogWriter, Writable

Array = NDArray[Any]

# The window's first size: data that is read at once stays in the processor's second-level cache until it is in columns.
WINDOW_BYTES: Final = 512 << 10
# A template holds the framing of this many observations, whose numbers differ only in the last three digits.
_TEMPLATE_DIGITS = 3
_TEMPLATE_ROWS: int = 10**_TEMPLATE_DIGITS
# The number of observations, or bytes, to compare first after another event, because contexts may be short. After that
# it is twice the length of the last run, because numbers may have gaps anywhere.
_FIRST_ROWS = 16
_FIRST_BYTES = 16 << 10

_OBSERVATION = re.compile(rb'\{"observation":( ?)(0|[1-9][0-9]{0,17})\}\n')
_CONTEXTS = re.compile(rb'(?:\{"context":"[^"\\\x00-\x1f\x80-\xff]*"\}\n)+')
_CONTEXT_START = b'{"context":"'
_CONTEXT_END = b'"}\n'


class Source(Protocol):
    """A source of blocks: an unbuffered file or pipe, a decompressed stream."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer's beginning; return the number of bytes, 0 at the end."""


class Rows(NamedTuple):
    """Observations ``number``, ``number + 1``, ...: their tensors as a run of equal records of raw bytes.

    ``tensors`` (and ``scores``, if the header has a score) are views of shape ``(n,)`` into the reader's buffer,
    valid until the next block is read.
    """

    number: int
    tensors: Array
    scores: Array | None


class Contexts(NamedTuple):
    """Consecutive contexts.

    ``lines`` are their lines as read; None if all of them are as LLVM writes them.
    """

    names: tuple[str, ...]
    lines: tuple[bytes, ...] | None


class BlockReader:
    """Reader of a log in blocks.

    Attributes:
        header: the log's header.
        offset: the end of the last whole event that was yielded.

    Raises:
        FormatError: the source does not begin with a header.
    """

    def __init__(self, source: Source, window_bytes: int = WINDOW_BYTES) -> None:
        self._window = Window(source, window_bytes)
        self._plain = LogReader(self._window)
        self.header = self._plain.header
        self.offset = self._plain.offset
        self._framings: dict[int, Framing] = {}
        self._wanted: int | None = None  # the number of observations to compare next

    @property
    def separator(self) -> bytes | None:
        """The bytes between an event's key and its value; None before the first observation."""
        return self._plain.separator

    def __iter__(self) -> Iterator[Rows | Contexts]:
        """Yield the log's blocks up to its end.

        Raises:
            FormatError: the log is invalid; raised after all blocks before the place, has its offset.
            UnsupportedError: the log has a second header.
        """
        while (block := self._rows() or self._contexts() or self._plain_event()) is not None:
            yield block

    def _rows(self) -> Rows | None:
        """Return consecutive observations, or None if there are none here."""
        header = self.header
        window = self._window
        wanted, self._wanted = self._wanted, None
        if header.tensor_bytes == 0:
            return None
        window.fill(64)
        match = _OBSERVATION.match(window.data, window.start, window.end)
        if match is None:
            return None
        # Read the match now: it refers to the window's bytes, which change when the window is filled again.
        separator, number, digits = b":" + match[1], int(match[2]), len(match[2])
        if self._plain.separator not in (None, separator):
            return None
        framing = self._framings.get(digits)
        if framing is None:
            framing = self._framings[digits] = Framing(header, separator, digits)
        window.fill(framing.stride)
        there = (window.end - window.start) // framing.stride
        wanted = wanted or framing.first_try
        looked_at = min(wanted, there, framing.rows_from(number))
        if looked_at == 0:
            return None
        records = framing.records(window.data, window.start, looked_at)
        count = framing.count_whole(records, number)
        if count == 0:
            return None
        self._wanted = min(2 * (wanted if count == looked_at else count), _TEMPLATE_ROWS)
        self._plain.separator = separator
        self._advance(count * framing.stride)
        scores = None if header.score is None else records["score"][:count]
        return Rows(number, records["tensors"][:count], scores)

    def _contexts(self) -> Contexts | None:
        """Return the contexts that begin here, if they are as LLVM writes them."""
        window = self._window
        # A window that has grown may hold millions of contexts, or a line that is too long.
        match = _CONTEXTS.match(window.data, window.start, min(window.end, window.start + WINDOW_BYTES))
        if match is None:
            return None
        text = str(
            memoryview(window.data)[window.start + len(_CONTEXT_START) : match.end() - len(_CONTEXT_END)], "ascii"
        )
        self._advance(match.end() - window.start)
        return Contexts(tuple(text.split('"}\n{"context":"')), None)

    def _plain_event(self) -> Rows | Contexts | None:
        """Read one event with the plain reader, which knows every spelling and every error."""
        event = self._plain.read_event()
        if event is None:
            return None
        if isinstance(event, LogHeader):
            raise UnsupportedError("a second header: this is more than one log in one file", offset=self.offset)
        self.offset = self._plain.offset
        if isinstance(event, Context):
            return Contexts((event.name,), (event.line,))
        scores = None if event.score is None else _one_record(event.score)
        return Rows(event.number, _one_record(event.tensors), scores)

    def _advance(self, size: int) -> None:
        self._window.start += size
        self.offset += size
        self._plain.offset = self.offset


class Framing:
    """The framing of the observations whose numbers have ``digits`` digits.

    Attributes:
        record: an observation as a numpy record: framing around the fields ``tensors`` and ``score``.
        stride: the size of one observation in bytes.
        first_try: the number of observations to compare first.
    """

    def __init__(self, header: LogHeader, separator: bytes, digits: int) -> None:
        blank = b"0" * digits
        head = b'{"observation"' + separator + blank + b"}\n"
        middle, end = b"\n", b""
        if header.score is not None:
            middle, end = b'\n{"outcome"' + separator + blank + b"}\n", b"\n"
        sizes = {
            "head": len(head),
            "tensors": header.tensor_bytes,
            "middle": len(middle),
            "score": header.score_bytes,
            "end": len(end),
        }
        self.record = np.dtype([(name, f"V{size}") for name, size in sizes.items() if size])
        self._framed = [name for name in ("head", "middle", "end") if sizes[name]]
        self._frame = np.dtype([(name, self.record[name]) for name in self._framed])
        self.stride = self.record.itemsize
        self.first_try = max(_FIRST_ROWS, _FIRST_BYTES // self.stride)
        self._after: int = 10**digits

        frame = head + middle + end
        rows = min(_TEMPLATE_ROWS, self._after)
        self._template = np.tile(np.frombuffer(frame, np.uint8), (rows, 1))
        # The columns of the numbers' digits in a frame: in its head, and in the outcome's line.
        self._columns = [len(head) - 2 - digits]
        if header.score is not None:
            self._columns.append(len(head) + len(middle) - 2 - digits)
        low = min(digits, _TEMPLATE_DIGITS)
        values = np.arange(rows)
        for place in range(low):
            for column in self._columns:
                self._template[:, column + digits - 1 - place] = values // 10**place % 10 + ord("0")
        self._high = 0
        self._scratch = np.empty(rows, self._frame)

    def rows_from(self, number: int) -> int:
        """Return the number of observations from ``number`` on that one template, and one comparison, can cover."""
        return min(self._after, number - number % _TEMPLATE_ROWS + _TEMPLATE_ROWS) - number

    def records(self, data: Any, start: int, count: int) -> Array:
        """Return ``count`` observations from ``start`` on as a view of records."""
        return np.ndarray((count,), self.record, data, start)

    def count_whole(self, records: Array, number: int) -> int:
        """Count the records, up to the first mismatch, that have the framing of ``number``, ``number + 1``, ..."""
        count = len(records)
        found = self._scratch[:count]
        for name in self._framed:
            found[name] = records[name]
        expected = self._frames(number, count)
        same = found.view(np.uint8).reshape(count, -1) == expected
        if same.all():
            return count
        return int(np.flatnonzero(~same.all(axis=1))[0])

    def fill(self, records: Array, number: int) -> None:
        """Write the framing of observations ``number``, ``number + 1``, ... into records."""
        frames = self._frames(number, len(records)).reshape(-1).view(self._frame)
        for name in self._framed:
            records[name] = frames[name]

    def _frames(self, number: int, count: int) -> NDArray[np.uint8]:
        high, low = divmod(number, _TEMPLATE_ROWS)
        if high != self._high:
            text = np.frombuffer(b"%d" % high, np.uint8)
            for column in self._columns:
                self._template[:, column : column + len(text)] = text
            self._high = high
        return self._template[low : low + count]


class BlockWriter(LogWriter):
    """Writer of a log from blocks of observations."""

    def __init__(self, stream: Writable, header: LogHeader, *, separator: bytes = b":") -> None:
        super().__init__(stream, header, separator=separator)
        self._framings: dict[int, Framing] = {}

    def write_rows(self, rows: Rows) -> None:
        """Write observations ``rows.number``, ``rows.number + 1``, ..., whose tensors are records of raw bytes.

        Raises:
            ValueError: the observations do not fit the header, or their numbers are out of range.
        """
        count = len(rows.tensors)
        if not count:
            return
        score_bytes = 0 if rows.scores is None else rows.scores.itemsize
        last = rows.number + count - 1
        self._check_observations(rows.number, last, rows.tensors.itemsize, rows.scores, score_bytes)
        self._numbers[self._context] = last + 1
        done = 0
        while done < count:
            number = rows.number + done
            digits = len(str(number))
            framing = self._framings.get(digits)
            if framing is None:
                framing = self._framings[digits] = Framing(self.header, self.separator, digits)
            block = slice(done, done + framing.rows_from(number))
            records = np.empty(len(rows.tensors[block]), framing.record)
            framing.fill(records, number)
            if self.header.tensor_bytes:
                records["tensors"] = rows.tensors[block]
            if rows.scores is not None:
                records["score"] = rows.scores[block]
            self._stream.write(records.view(np.uint8).data)
            done += len(records)


def _one_record(data: bytes) -> Array:
    return np.frombuffer(data, f"V{len(data)}") if data else np.empty(1, "V0")


class Window:
    """The part of a source that is in memory: ``data[start:end]``; also a stream for the plain reader."""

    def __init__(self, source: Source, size: int = WINDOW_BYTES) -> None:
        self._source = source
        self.data = bytearray(size)
        self.start = 0
        self.end = 0
        self._ended = False
        self._failure: FormatError | None = None

    def fill(self, size: int) -> None:
        """Fill the window to ``size`` bytes or more; fewer only at the source's end."""
        while self.end - self.start < size and not self._ended:
            if self.start + size > len(self.data):
                self._make_room()
            try:
                got = self._source.readinto(memoryview(self.data)[self.end :])
            except FormatError as error:  # raised later: the bytes before it are valid
                self._failure = error
                got = 0
            self._ended = not got
            self.end += got or 0

    def _make_room(self) -> None:
        """Move the bytes to the front. The window grows with the bytes read, not with a size that a header claims."""
        data, kept = self.data, self.end - self.start
        if kept == len(data):
            data = bytearray(2 * len(data))
        elif self.start == 0:
            return
        data[:kept] = self.data[self.start : self.end]
        self.data, self.start, self.end = data, 0, kept

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes; fewer only at the end."""
        self.fill(size)
        if self.end - self.start < size:
            self._check()
        return self._take(self.start + size)

    def readline(self, limit: int) -> bytes:
        """Return a line with its newline; without one at the limit and at the end."""
        searched = 0
        while True:
            stop = min(self.end, self.start + limit)
            found = self.data.find(b"\n", self.start + searched, stop)
            if found >= 0 or stop - self.start == limit:
                return self._take(found + 1 if found >= 0 else stop)
            searched = stop - self.start
            self.fill(searched + 1)
            if self.end - self.start == searched:
                self._check()
                return self._take(stop)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _take(self, stop: int) -> bytes:
        taken = bytes(memoryview(self.data)[self.start : min(stop, self.end)])
        self.start += len(taken)
        return taken
