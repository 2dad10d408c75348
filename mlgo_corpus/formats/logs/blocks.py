"""Training logs in blocks: the same events as `mlgo_corpus.formats.logs.events` gives, hundreds at a time.

Observations whose numbers have the same count of digits are equally long, so a run of them is an array of records:
framing, tensors, framing. The framing of each one is compared with what it has to be; the tensors are not looked
at. What is not the next observation of a run (a context, another number, damage) is left to the plain reader, so
that both readers give the same events and the same errors by construction.
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

# The window's first size: what is read at once stays in the processor's second-level cache until it is in columns.
WINDOW_BYTES: Final = 512 << 10
# A template holds the framing of this many observations; of a number's digits all but the last three are the same.
_TEMPLATE_DIGITS = 3
_TEMPLATE_ROWS: int = 10**_TEMPLATE_DIGITS
# So many observations, or bytes, are looked at first after something else than an observation: contexts may be short.
# Then it is twice as many as were in a row the last time, for numbers may have gaps everywhere.
_FIRST_ROWS = 16
_FIRST_BYTES = 16 << 10

_OBSERVATION = re.compile(rb'\{"observation":( ?)(0|[1-9][0-9]{0,17})\}\n')
_CONTEXTS = re.compile(rb'(?:\{"context":"[^"\\\x00-\x1f\x80-\xff]*"\}\n)+')
_CONTEXT_START = b'{"context":"'
_CONTEXT_END = b'"}\n'


class Source(Protocol):
    """What blocks are read from: an unbuffered file or pipe, a decompressed stream."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer's beginning; give the number of bytes, 0 at the end."""


class Rows(NamedTuple):
    """Observations ``number``, ``number + 1``, ...: their tensors as a run of equal records of raw bytes.

    ``tensors`` (and ``scores``, if the header has a score) are views of shape ``(n,)`` into the reader's buffer,
    valid until the next block is asked for.
    """

    number: int
    tensors: Array
    scores: Array | None


class Contexts(NamedTuple):
    """Contexts that begin one after the other.

    ``lines`` are their lines as read; None where all of them are as LLVM writes them.
    """

    names: tuple[str, ...]
    lines: tuple[bytes, ...] | None


class BlockReader:
    """Reads a log from a source in blocks.

    Attributes:
        header: the log's header.
        offset: the end of the last whole event that was given out.

    Raises:
        FormatError: the source does not begin with a header.
    """

    def __init__(self, source: Source, window_bytes: int = WINDOW_BYTES) -> None:
        self._window = Window(source, window_bytes)
        self._plain = LogReader(self._window)
        self.header = self._plain.header
        self.offset = self._plain.offset
        self._framings: dict[int, Framing] = {}
        self._wanted: int | None = None  # how many observations to look at next

    @property
    def separator(self) -> bytes | None:
        """What stands between an event's key and its value; None before the first observation."""
        return self._plain.separator

    def __iter__(self) -> Iterator[Rows | Contexts]:
        """Yield the log's blocks up to its end.

        Raises:
            FormatError: with the offset, after all blocks before it; an UnsupportedError at a second header.
        """
        while (block := self._rows() or self._contexts() or self._plain_event()) is not None:
            yield block

    def _rows(self) -> Rows | None:
        """Give observations that follow each other, or None where there is not a single one."""
        header = self.header
        window = self._window
        wanted, self._wanted = self._wanted, None
        if header.tensor_bytes == 0:
            return None
        window.fill(64)
        match = _OBSERVATION.match(window.data, window.start, window.end)
        if match is None:
            return None
        # Now, because a match refers to the window's bytes, which are others after the window is filled again.
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
        """Give the contexts that begin here, if they are as LLVM writes them."""
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
        """Let the plain reader read one event: it knows every spelling and every error."""
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
        stride: the bytes of one observation.
        first_try: how many observations to compare at first.
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
        # Where the numbers' digits are in a frame: in its head, and in the outcome's line.
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
        """Give how many observations from ``number`` on one comparison, and one template, can cover."""
        return min(self._after, number - number % _TEMPLATE_ROWS + _TEMPLATE_ROWS) - number

    def records(self, data: Any, start: int, count: int) -> Array:
        """Give ``count`` observations from ``start`` on as a view of records."""
        return np.ndarray((count,), self.record, data, start)

    def count_whole(self, records: Array, number: int) -> int:
        """Give how many of the records are framed as observations ``number``, ``number + 1``, ... are."""
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
    """Writes a log from blocks of observations."""

    def __init__(self, stream: Writable, header: LogHeader, *, separator: bytes = b":") -> None:
        super().__init__(stream, header, separator=separator)
        self._framings: dict[int, Framing] = {}

    def write_rows(self, rows: Rows) -> None:
        """Write observations ``rows.number``, ``rows.number + 1``, ..., whose tensors are records of raw bytes.

        Raises:
            ValueError: they are not of this header, or their numbers are not ones that they can have.
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
        """See to it that ``size`` bytes are there; fewer only at the source's end."""
        while self.end - self.start < size and not self._ended:
            if self.start + size > len(self.data):
                self._make_room()
            try:
                got = self._source.readinto(memoryview(self.data)[self.end :])
            except FormatError as error:  # what was read before it counts
                self._failure = error
                got = 0
            self._ended = not got
            self.end += got or 0

    def _make_room(self) -> None:
        """Move what is there to the front. The window grows with that, not with what a header promises."""
        data, kept = self.data, self.end - self.start
        if kept == len(data):
            data = bytearray(2 * len(data))
        elif self.start == 0:
            return
        data[:kept] = self.data[self.start : self.end]
        self.data, self.start, self.end = data, 0, kept

    def read(self, size: int) -> bytes:
        """Give ``size`` bytes; fewer only at the end."""
        self.fill(size)
        if self.end - self.start < size:
            self._check()
        return self._take(self.start + size)

    def readline(self, limit: int) -> bytes:
        """Give a line with its newline; without one at the limit and at the end."""
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
