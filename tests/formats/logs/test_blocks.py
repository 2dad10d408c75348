from __future__ import annotations

import io
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.logs import blocks as logblocks
from mlgo_corpus.formats.logs import events as traininglog
from mlgo_corpus.formats.logs.blocks import WINDOW_BYTES, BlockReader, BlockWriter, Contexts, Rows, Source, Window
from mlgo_corpus.formats.logs.events import Context, LogHeader, LogReader, Observation, encode_context
from mlgo_corpus.formats.logs.tensors import MAX_TENSOR_BYTES, TensorSpec
from tests.conftest import DATA
from tests.formats.logs.test_events import (
    FIRST,
    LARGEST,
    LOGS,
    SCORE,
    SCORED,
    SCORED_LOG,
    START,
    TENSORS,
    Event,
    Reading,
    by_name,
    context,
    failure_of,
    logs,
    make_log,
    plain_events,
    spec,
)

pytestmark = pytest.mark.whole

Block = Rows | Contexts

BYTE = LogHeader((spec("x", "uint8_t"),))


class Trickle:
    """A source that gives few bytes at a time, and at its end an error if there is one."""

    def __init__(self, data: bytes, sizes: Callable[[], int] = lambda: 1, error: FormatError | None = None) -> None:
        self.stream = io.BytesIO(data)
        self.sizes = sizes
        self.error = error

    def readinto(self, buffer: memoryview, /) -> int:
        got = self.stream.readinto(buffer[: self.sizes()])
        if not got and self.error is not None:
            raise self.error
        return got


def events_of(block: Block, header: LogHeader) -> Iterator[Event]:
    """Yield a block's events as the plain reader gives them."""
    if isinstance(block, Contexts):
        lines = map(encode_context, block.names) if block.lines is None else block.lines
        yield from map(Context, block.names, lines)
        return
    assert (block.scores is None) == (header.score is None)
    count = len(block.tensors)
    assert count > 0
    assert block.tensors.shape == (count,)
    assert block.tensors.itemsize == header.tensor_bytes
    for index in range(count):
        score = None if block.scores is None else block.scores[index].tobytes()
        yield Observation(block.number + index, block.tensors[index].tobytes(), score)


def fast_events(data: bytes | Source, window: int = WINDOW_BYTES) -> Reading:
    """Read a log in blocks, through a window of this size at first."""
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    events: list[Event] = []
    reader: BlockReader | None = None
    failure = None
    try:
        reader = BlockReader(source, window)
        for block in reader:
            events.extend(events_of(block, reader.header))
    except FormatError as error:
        failure = failure_of(error)
    return Reading(events, failure, 0 if reader is None else reader.offset)


def expected_events(data: bytes) -> Reading:
    """Read a log with the plain reader up to a second header, which the fast one refuses."""
    events: list[Event] = []
    offset = 0
    try:
        reader = LogReader(io.BytesIO(data))
        offset = reader.offset
        while (event := reader.read_event()) is not None:
            if isinstance(event, LogHeader):
                message = "a second header: this is more than one log in one file"
                return Reading(events, (UnsupportedError, message, offset), offset)
            events.append(event)
            offset = reader.offset
    except FormatError as error:
        return Reading(events, failure_of(error), offset)
    return Reading(events, None, offset)


def blocks_of(data: bytes) -> list[tuple[str, int]]:
    """Give what blocks a log comes in: their kinds and sizes."""
    return [
        ("contexts", len(block.names)) if isinstance(block, Contexts) else ("rows", len(block.tensors))
        for block in BlockReader(io.BytesIO(data))
    ]


def observations(header: LogHeader, numbers: Sequence[int]) -> list[Event]:
    """Make observations whose bytes are all different."""
    maker = random.Random(repr(numbers[:1]))
    return [
        Observation(
            number, maker.randbytes(header.tensor_bytes), maker.randbytes(header.score_bytes) if header.score else None
        )
        for number in numbers
    ]


def real(name: str, size: int | None = None) -> bytes:
    return (DATA / "training-logs" / f"{name}.log").read_bytes()[:size]


# Small logs of each kind; the cuts end in the middle of an observation.
SMALL = {
    "inlining.linit": real("inlining.linit"),
    "inlining.lzio": real("inlining.lzio"),
    "regalloc-eviction.lzio": real("regalloc-eviction.lzio"),
    "regalloc-eviction.ltable": real("regalloc-eviction.ltable", 1528 + 2000),
    "regalloc-priority.linit": real("regalloc-priority.linit"),
    "regalloc-priority.lzio": real("regalloc-priority.lzio", 1200),
    "scored": SCORED_LOG,
}


# Real logs, and others that are in order.


@by_name
def test_real_logs_are_as_the_plain_reader_has_them(path: Path) -> None:
    data = path.read_bytes()
    plain = plain_events(data)
    assert fast_events(data) == plain
    assert plain == Reading(plain.events, None, len(data))


@by_name
def test_real_logs_through_small_windows(path: Path) -> None:
    data = path.read_bytes()[:20_000]
    plain = expected_events(data)
    for window in (1, 100, 3000):
        assert fast_events(data, window) == plain


@by_name
def test_real_logs_written_in_blocks_are_the_same(path: Path) -> None:
    data = path.read_bytes()
    assert rewritten(data) == data


def rewritten(data: bytes) -> bytes:
    """Write a log's blocks again."""
    output = io.BytesIO()
    reader = BlockReader(io.BytesIO(data))
    writer: BlockWriter | None = None
    waiting: list[Block] = []
    for block in reader:
        if writer is None and reader.separator is None:
            waiting.append(block)  # contexts, before it is known how observations are spelled
            continue
        if writer is None:
            writer = BlockWriter(output, reader.header, separator=reader.separator or b"")
            for item in waiting:
                write_block(writer, item)
        write_block(writer, block)
    if writer is None:
        writer = BlockWriter(output, reader.header)
        for item in waiting:
            write_block(writer, item)
    return output.getvalue()


def write_block(writer: BlockWriter, block: Block) -> None:
    if isinstance(block, Rows):
        writer.write_rows(block)
        return
    lines = map(encode_context, block.names) if block.lines is None else block.lines
    for name, line in zip(block.names, lines, strict=True):
        writer.write_event(Context(name, line))


@given(logs(), st.sampled_from([1, 7, 64, 500, WINDOW_BYTES]))
@settings(max_examples=200, deadline=None)
def test_every_log_comes_back(log: tuple[LogHeader, list[Event], bytes], window: int) -> None:
    header, events, colon = log
    data = make_log(header, *events, colon=colon)
    assert fast_events(data, window) == Reading(events, None, len(data))
    assert BlockReader(io.BytesIO(data)).header.line == header.line
    assert rewritten(data) == data


def test_a_header_alone() -> None:
    reader = BlockReader(io.BytesIO(make_log(SCORED)))
    assert (reader.header, reader.header.line, reader.offset) == (SCORED, SCORED.line, START)
    assert list(reader) == []
    assert reader.separator is None


@pytest.mark.parametrize("score", [None, spec("reward", "double", (2,))])
def test_no_features(score: TensorSpec | None) -> None:
    header = LogHeader((), score)
    last = None if score is None else b"\n" * 16
    events = [Observation(0, b"", last), context("f"), *(Observation(n, b"", last) for n in range(12))]
    data = make_log(header, *events)
    assert fast_events(data) == Reading(events, None, len(data))
    assert rewritten(data) == data
    for block in BlockReader(io.BytesIO(data)):
        if isinstance(block, Rows):
            assert (block.tensors.shape, block.tensors.itemsize) == ((1,), 0)


@pytest.mark.parametrize("colon", [b":", b": "])
@pytest.mark.parametrize(
    "header", [BYTE, SCORED, LogHeader((spec(),), spec("r", "int8_t", (5,)))], ids=lambda h: str(h.score)
)
def test_runs_across_every_count_of_digits(header: LogHeader, colon: bytes) -> None:
    events = observations(header, range(10_050))
    data = make_log(header, context("f"), *events, colon=colon)
    assert fast_events(data) == Reading([context("f"), *events], None, len(data))
    assert rewritten(data) == data
    # Blocks end where the window, a template of a thousand numbers, or a count of digits ends: they are few.
    sizes = [size for kind, size in blocks_of(data) if kind == "rows"]
    assert sum(sizes) == 10_050
    assert len(sizes) < 40


@pytest.mark.parametrize("first", [0, 8, 98, 998])
def test_one_spelling_throughout_a_log(first: int) -> None:
    for header in (BYTE, SCORED):
        events = observations(header, range(first, first + 6))
        for place in range(1, 6):
            data = make_log(header, *events[:place])
            end = len(data)
            data += make_log(header, *events[place:], colon=b": ")[len(header.line) + 1 :]
            plain = expected_events(data)
            assert (plain.events, plain.offset) == (events[:place], end)
            assert fast_events(data) == plain


@pytest.mark.parametrize("first", [5, 95, 995, 9_995, 99_995, 10**12 - 5, 10**17 - 5, 10**18 - 5, LARGEST - 9])
@pytest.mark.parametrize("colon", [b":", b": "])
def test_runs_that_begin_anywhere(first: int, colon: bytes) -> None:
    events = observations(SCORED, range(first, first + 10))
    data = make_log(SCORED, *events, colon=colon)
    assert fast_events(data) == Reading(events, None, len(data))
    assert rewritten(data) == data


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 0, 0, 1, 0],
        [3, 2, 1, 0],
        [*range(10), *range(12, 20), *range(5)],
        [*range(1990, 2005), *range(990, 1010), *range(3990, 4001), 12_345, 1000, 0],
        [*range(0, 3000, 2)],
        [n for n in range(600) if n % 7],
        [LARGEST, LARGEST, 0, LARGEST - 1, LARGEST],
    ],
    ids=["same", "back", "cut", "thousands", "halves", "sevenths", "largest"],
)
def test_numbers_with_gaps_and_from_the_start_again(numbers: list[int]) -> None:
    for header in (BYTE, SCORED):
        events = observations(header, numbers)
        data = make_log(header, *events)
        assert fast_events(data) == Reading(events, None, len(data))
        assert rewritten(data) == data


def test_no_more_is_looked_at_than_is_likely_to_be_in_a_row() -> None:
    class Counting(logblocks.Framing):
        looked_at = 0

        def count_whole(self, records: logblocks.Array, number: int) -> int:
            type(self).looked_at += len(records)
            return super().count_whole(records, number)

    data = make_log(BYTE, *observations(BYTE, range(0, 6000, 2)))
    with mock.patch.object(logblocks, "Framing", Counting):
        assert len(fast_events(data).events) == 3000
        assert Counting.looked_at < 3 * 3000
        Counting.looked_at = 0
        runs = [context("f"), *observations(BYTE, [0])] * 1000
        assert len(fast_events(make_log(BYTE, *runs)).events) == 2000
        assert Counting.looked_at < 1000 * 1000


def test_the_largest_number_and_the_next() -> None:
    data = make_log(BYTE, Observation(LARGEST, b"a", None))
    assert fast_events(data).events == [Observation(LARGEST, b"a", None)]
    for refused in (b"9223372036854775808", b"01", b"00", b"-1", b"+1", b"1.0", b"18446744073709551616"):
        damaged = data.replace(b"%d" % LARGEST, refused)
        assert fast_events(damaged) == plain_events(damaged)
        assert fast_events(damaged).failure is not None


def test_contexts_come_in_one_block_where_they_are_as_llvm_writes_them() -> None:
    names = ["", "f", "\x7f~ !", "}", "a:b", "f"]
    unusual = [
        Context("f", b'{"context": "f"}\n'),
        Context("é", b'{"context":"\xc3\xa9"}\n'),
        Context('"', b'{"context":"\\""}\n'),
        Context("A", b'{"context":"\\u0041"}\n'),
    ]
    data = make_log(BYTE, *map(context, names), *unusual, *map(context, names), *observations(BYTE, range(3)))
    blocks = [block for block in BlockReader(io.BytesIO(data)) if isinstance(block, Contexts)]
    assert blocks == [
        Contexts(tuple(names), None),
        *(Contexts((item.name,), (item.line,)) for item in unusual),
        Contexts(tuple(names), None),
    ]
    assert blocks_of(data)[-1] == ("rows", 3)


def test_many_contexts() -> None:
    events = [context(f"f{n}") for n in range(100_000)]
    data = make_log(BYTE, *events)
    assert len(data) > 3 * WINDOW_BYTES
    assert fast_events(data) == Reading(events, None, len(data))
    assert len(blocks_of(data)) < 20


def test_contexts_of_a_large_window_are_not_taken_at_once() -> None:
    size = 4 * WINDOW_BYTES
    header = LogHeader((spec("x", "uint8_t", (size,)),))
    events = [Observation(0, bytes(size), None), *(context("f") for _ in range(200_000))]
    data = make_log(header, *events)
    assert fast_events(data) == Reading(events, None, len(data))
    assert all(kind == "rows" or size <= WINDOW_BYTES // 16 for kind, size in blocks_of(data))


def test_a_context_of_any_length() -> None:
    for length in (WINDOW_BYTES - 30, WINDOW_BYTES, 3 * WINDOW_BYTES):
        events = [context("a" * length), *observations(BYTE, range(2)), context("b" * length)]
        data = make_log(BYTE, *events)
        assert fast_events(data) == Reading(events, None, len(data))


@pytest.mark.parametrize("length", [4998, 4999, 5000, 5001, 20_000])
def test_the_longest_line(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traininglog, "MAX_LINE_BYTES", 5000)
    monkeypatch.setattr(logblocks, "WINDOW_BYTES", 4000)
    data = make_log(BYTE, context("f"), context("a" * (length - len('{"context":""}'))), context("g"))
    assert fast_events(data) == plain_events(data)
    assert (fast_events(data).failure is None) == (length < 5000)
    assert fast_events(data[:-20]) == plain_events(data[:-20])


@pytest.mark.parametrize("colon", [b":", b": "])
def test_the_first_observation_at_the_end_of_the_window(colon: bytes) -> None:
    events = [context("f"), *observations(SCORED, range(3))]
    data = make_log(SCORED, *events, colon=colon)
    for window in range(1, len(data) + 2):
        assert fast_events(data, window) == Reading(events, None, len(data))
    for distance in range(1, 40):
        fill = WINDOW_BYTES - distance - len(make_log(SCORED, context("")))
        long = [context("a" * fill), *observations(SCORED, range(3))]
        data = make_log(SCORED, *long, colon=colon)
        assert data.index(b'{"obs') == WINDOW_BYTES - distance
        assert fast_events(data) == Reading(long, None, len(data))


# Views.


def test_rows_are_views_of_the_window() -> None:
    data = make_log(SCORED, *observations(SCORED, range(10)))
    (block,) = BlockReader(io.BytesIO(data))
    assert isinstance(block, Rows)
    assert block.scores is not None
    assert not block.tensors.flags.owndata
    assert np.shares_memory(block.tensors, block.scores) or block.tensors.base is not None
    stride = len(b'{"observation":0}\n') + 11 + 1 + len(b'{"outcome":0}\n') + 4 + 1
    assert block.tensors.strides == block.scores.strides == (stride,)


def test_separator_is_known_after_the_first_observation() -> None:
    reader = BlockReader(io.BytesIO(make_log(SCORED, context("f"), Observation(0, TENSORS, SCORE), colon=b": ")))
    assert reader.separator is None
    known = []
    for _ in reader:
        known.append(reader.separator)
    assert known == [None, b": "]


# Damage.


@pytest.mark.parametrize("name", SMALL)
def test_truncation_at_every_offset(name: str) -> None:
    data = SMALL[name]
    for cut in range(len(data) + 1):
        assert fast_events(data[:cut]) == expected_events(data[:cut]), cut


@pytest.mark.parametrize(
    ("cut", "offset", "message"),
    [
        (5, 0, "reading the log's header, expected a line, got 5 bytes"),
        (START + 4, START, """reading an event, expected a newline, found 4 bytes without one: '{"co'"""),
        (FIRST + 21, FIRST + 18, "reading 'callee_users' of observation 0, expected 8 bytes, got 3"),
        (FIRST + 28, FIRST + 26, "reading 'mask' of observation 0, expected 3 bytes, got 2"),
        (FIRST + 29, FIRST + 29, "expected a newline after the tensors of observation 0, found the end of the log"),
        (FIRST + 30, FIRST + 30, r"""expected '{"outcome":0}\n', found the end of the log"""),
        (FIRST + 47, FIRST + 44, "reading 'reward' of the score of observation 0, expected 4 bytes, got 3"),
    ],
)
def test_messages_of_truncated_logs(cut: int, offset: int, message: str) -> None:
    reading = fast_events(SCORED_LOG[:cut])
    assert reading.failure == (TruncatedError, message, offset)
    assert reading.offset == (0 if cut < START else START if cut < FIRST else FIRST)


def test_truncation_within_a_long_run() -> None:
    header = LogHeader((spec("callee_users"),))
    events = observations(header, range(1500))
    data = make_log(header, *events)
    start = len(make_log(header, *events[:1204]))
    reading = fast_events(data[: start + len(b'{"observation":1204}\n') + 3])
    message = "reading 'callee_users' of observation 1204, expected 8 bytes, got 3"
    assert reading == Reading(events[:1204], (TruncatedError, message, start + 21), start)


@pytest.mark.parametrize("place", [0, 1, 9, 10, 15, 16, 17, 99, 100, 499, 999, 1000, 1023, 1199])
@pytest.mark.parametrize("part", ["head", "newline", "outcome", "end"])
def test_damage_anywhere_in_a_run(place: int, part: str) -> None:
    events = observations(SCORED, range(1200))
    start = len(make_log(SCORED, *events[:place]))
    digits = len(str(place))
    at = {"head": 4, "newline": 17 + digits + 11, "outcome": 29 + digits + digits + 10, "end": 0}[part]
    data = bytearray(make_log(SCORED, *events))
    at = len(make_log(SCORED, *events[: place + 1])) - 1 if part == "end" else start + at
    data[at] ^= 1
    plain = plain_events(bytes(data))
    assert plain.events == events[:place]
    assert plain.failure is not None
    assert fast_events(bytes(data)) == plain


def test_a_second_header() -> None:
    first = make_log(SCORED, context("f"), Observation(0, TENSORS, SCORE))
    message = "a second header: this is more than one log in one file"
    for second in (SCORED_LOG, make_log(BYTE), b'{"features": [], "x": 1}\n'):
        reading = fast_events(first + second)
        assert reading == Reading(
            [context("f"), Observation(0, TENSORS, SCORE)], (UnsupportedError, message, len(first)), len(first)
        )
    assert fast_events(first + b'{"features":[3]}\n').failure == (
        FormatError,
        "feature 0: expected an object with name, type, port and shape, found 3",
        len(first),
    )


@st.composite
def damages(draw: st.DrawFn, data: bytes) -> bytes:
    """Change, add or take away a few bytes, most of them where lines begin and end."""
    for _ in range(draw(st.integers(1, 3))):
        if not data:
            break
        places = [at for at in range(len(data)) if data[at : at + 1] in (b"\n", b"{", b":", b"}")]
        at = draw(st.integers(0, len(data) - 1) | st.sampled_from(places or [0]))
        kind = draw(st.integers(0, 2))
        if kind == 0:
            data = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
        elif kind == 1:
            added = draw(st.binary(max_size=5) | st.sampled_from([b"\n", b" ", b"0", b"1", b'{"context":"f"}\n']))
            data = data[:at] + added + data[at:]
        else:
            data = data[:at] + data[at + draw(st.integers(1, 40)) :]
    return data


windows = st.sampled_from([1, 40, 900, WINDOW_BYTES])


@given(st.data(), logs(), windows)
@settings(max_examples=400, deadline=None)
def test_damage_in_any_log(data: st.DataObject, log: tuple[LogHeader, list[Event], bytes], window: int) -> None:
    header, events, colon = log
    damaged = data.draw(damages(make_log(header, *events, colon=colon)))
    assert fast_events(damaged, window) == expected_events(damaged)


@given(st.data(), st.sampled_from([*SMALL, "regalloc-priority.ltable", "regalloc-eviction.lapi"]), windows)
@settings(max_examples=400, deadline=None)
def test_damage_in_real_logs(data: st.DataObject, name: str, window: int) -> None:
    whole = SMALL.get(name) or real(name, 6000)
    start = data.draw(st.sampled_from([0, whole.index(b"\n") + 1]))  # damage to a header hides what comes after it
    damaged = whole[:start] + data.draw(damages(whole[start:]))
    assert fast_events(damaged, window) == expected_events(damaged)


@given(st.binary(max_size=200) | st.text(alphabet='{}[]":,0123 featuresnmtypo\\', max_size=60).map(str.encode))
@example(b"")
@example(b"\n")
def test_anything_is_read_or_refused(data: bytes) -> None:
    for log in (data, SCORED.line + b"\n" + data, LogHeader(()).line + b"\n" + data):
        assert fast_events(log) == expected_events(log)


# Sources.


@pytest.mark.parametrize("path", [path for path in LOGS if path.stat().st_size < 30_000], ids=lambda path: path.stem)
def test_a_byte_at_a_time(path: Path) -> None:
    data = path.read_bytes()
    assert fast_events(Trickle(data)) == plain_events(data)
    cut = data[: len(data) * 2 // 3]
    assert fast_events(Trickle(cut)) == expected_events(cut)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["regalloc-priority.lvm", "regalloc-eviction.ltable", "inlining.lvm"])
def test_short_reads(name: str, seed: int) -> None:
    maker = random.Random(seed)
    data = real(name)[: maker.randrange(1000, 120_000)]
    largest = maker.choice([10, 500, 40_000])
    source = Trickle(data, lambda: maker.randint(1, largest))
    assert fast_events(source, maker.choice([64, 5000, WINDOW_BYTES])) == expected_events(data)


@pytest.mark.parametrize("kind", [FormatError, TruncatedError])
@pytest.mark.parametrize("window", [64, WINDOW_BYTES])
def test_an_error_of_the_source_comes_after_the_whole_events_before_it(kind: type[FormatError], window: int) -> None:
    error = kind("the gzip stream is damaged")
    ends = {expected_events(SCORED_LOG[:cut]).offset for cut in range(len(SCORED_LOG) + 1)}
    assert len(ends) == 5
    for cut in range(len(SCORED_LOG) + 1):
        for size in (1, 1000):
            reading = fast_events(Trickle(SCORED_LOG[:cut], lambda size=size: size, error), window)  # type: ignore[misc]
            plain = expected_events(SCORED_LOG[:cut])
            assert reading == Reading(plain.events, (kind, "the gzip stream is damaged", None), plain.offset)


def test_an_error_within_a_long_run() -> None:
    events = observations(SCORED, range(3000))
    data = make_log(SCORED, *events)
    reading = fast_events(Trickle(data[:-1], lambda: 10_000, FormatError("broken")))
    assert reading.events == events[:-1]
    assert reading.failure == (FormatError, "broken", None)
    assert reading.offset == len(make_log(SCORED, *events[:-1]))


def test_a_source_is_not_read_after_its_end() -> None:
    class Once(Trickle):
        ended = False

        def readinto(self, buffer: memoryview, /) -> int:
            assert not self.ended
            got = super().readinto(buffer)
            self.ended = not got
            return got

    for cut in range(START, len(SCORED_LOG) + 1):
        assert fast_events(Once(SCORED_LOG[:cut], lambda: 50)) == expected_events(SCORED_LOG[:cut])


def test_a_large_header_of_a_small_file_takes_no_memory(tmp_path: Path) -> None:
    half = MAX_TENSOR_BYTES // 2
    header = LogHeader((spec("x", "int8_t", (half,)), spec("y", "int8_t", (half,))), spec("r", "int8_t", (2 * half,)))
    path = tmp_path / "a.log"
    path.write_bytes(header.line + b'\n{"observation":0}\n' + bytes(100))
    tracemalloc.start()
    try:
        with path.open("rb", buffering=0) as source:
            failure = fast_events(source).failure
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = f"reading 'x' of observation 0, expected {half} bytes, got 100"
    assert failure == (TruncatedError, message, len(header.line) + 19)
    assert peak < 4 * WINDOW_BYTES


def test_the_window_grows_with_what_is_there(tmp_path: Path) -> None:
    header = LogHeader((spec("x", "int8_t", (MAX_TENSOR_BYTES,)),))
    there = 5 << 20
    path = tmp_path / "a.log"
    path.write_bytes(header.line + b'\n{"observation":0}\n' + bytes(there))
    tracemalloc.start()
    try:
        with path.open("rb", buffering=0) as source:
            failure = fast_events(source).failure
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = f"reading 'x' of observation 0, expected {MAX_TENSOR_BYTES} bytes, got {there}"
    assert failure == (TruncatedError, message, len(header.line) + 19)
    assert peak < 4 * there


@pytest.mark.parametrize("size", [WINDOW_BYTES // 2, WINDOW_BYTES, 3 * WINDOW_BYTES])
def test_observations_that_are_larger_than_the_window(size: int) -> None:
    header = LogHeader((spec("x", "uint8_t", (size,)),), spec("y", "float"))
    events = [*observations(header, range(3)), context("f"), *observations(header, range(2))]
    data = make_log(header, *events)
    for sizes in (lambda: 1 << 30, lambda: 50_000):
        assert fast_events(Trickle(data, sizes)) == Reading(events, None, len(data))
    assert rewritten(data) == data


def test_what_is_in_the_window_is_moved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(bytearray):
        moved = 0

        def __setitem__(self, key: Any, value: Any) -> None:
            Counting.moved += len(value)
            super().__setitem__(key, value)

    monkeypatch.setattr(logblocks, "bytearray", Counting, raising=False)
    header = LogHeader((spec("x", "uint8_t", (4 << 20,)),))
    data = make_log(header, *observations(header, range(3)))
    assert len(fast_events(Trickle(data, lambda: 4096)).events) == 3
    assert 0 < Counting.moved < 2 * len(data)


# The window as a stream.


@given(st.binary(max_size=60), st.integers(1, 9), st.integers(1, 9), st.lists(st.integers(0, 30), max_size=9))
def test_a_window_is_a_stream(data: bytes, size: int, chunk: int, asked: list[int]) -> None:
    window, stream = Window(Trickle(data, lambda: chunk), size), io.BytesIO(data)
    for index, count in enumerate(asked):
        if index % 2:
            assert window.read(count) == stream.read(count)
        else:
            assert window.readline(count + 1) == stream.readline(count + 1)


def test_a_window_gives_what_it_has_before_an_error() -> None:
    window = Window(Trickle(b"a\nbc", lambda: 1, FormatError("broken")), 2)
    assert window.readline(10) == b"a\n"
    assert window.read(1) == b"b"
    with pytest.raises(FormatError, match=r"^broken$"):
        window.readline(10)
    with pytest.raises(FormatError, match=r"^broken$"):
        window.read(2)
    assert window.read(1) == b"c"
    with pytest.raises(FormatError, match=r"^broken$"):
        window.readline(10)


# Writing.


def rows(number: int, count: int, header: LogHeader) -> Rows:
    made = observations(header, range(number, number + count))
    tensors = np.frombuffer(b"".join(item.tensors for item in made), f"V{header.tensor_bytes}")
    scores = None
    if header.score is not None:
        scores = np.frombuffer(b"".join(item.score or b"" for item in made), f"V{header.score_bytes}")
    return Rows(number, tensors, scores)


@pytest.mark.parametrize(
    "header", [BYTE, SCORED, LogHeader((spec("x", "double", (40,)),))], ids=["byte", "scored", "large"]
)
@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 10_200), (8, 3), (995, 2010), (10**18 - 2, 4), (LARGEST, 1)])
@pytest.mark.parametrize("colon", [b":", b": "])
def test_rows_are_written_as_their_observations(header: LogHeader, first: int, count: int, colon: bytes) -> None:
    output = io.BytesIO()
    BlockWriter(output, header, separator=colon).write_rows(rows(first, count, header))
    assert output.getvalue() == make_log(header, *observations(header, range(first, first + count)), colon=colon)


def test_rows_count() -> None:
    output = io.BytesIO()
    writer = BlockWriter(output, BYTE)
    writer.write_context("f")
    writer.write_rows(rows(0, 3, BYTE))
    writer.write_observation([1])
    writer.write_context("g")
    writer.write_observation([2])
    writer.write_rows(rows(7, 2, BYTE)._replace(tensors=np.empty(0, "V1")))
    writer.write_observation([3])
    writer.write_context("f")
    writer.write_rows(rows(20, 2, BYTE))
    writer.write_observation([4])
    numbers = [
        event.name if isinstance(event, Context) else event[0] for event in plain_events(output.getvalue()).events
    ]
    assert numbers == ["f", 0, 1, 2, 3, "g", 0, 1, "f", 20, 21, 22]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (rows(0, 2, SCORED)._replace(scores=None), "expected a score"),
        (rows(0, 2, BYTE), "expected tensors of 11 bytes, got 1"),
        (rows(0, 2, SCORED)._replace(scores=np.empty(2, "V8")), "expected a score of 4 bytes, got 8"),
        (rows(0, 2, SCORED)._replace(number=-1), f"expected an observation's number from 0 to {LARGEST}, got -1"),
        (
            rows(0, 2, SCORED)._replace(number=LARGEST),
            f"expected an observation's number from 0 to {LARGEST}, got {LARGEST + 1}",
        ),
    ],
)
def test_rows_that_do_not_fit_the_header(block: Rows, message: str) -> None:
    output = io.BytesIO()
    writer = BlockWriter(output, SCORED)
    with pytest.raises(ValueError, match=f"^{message}$"):
        writer.write_rows(block)
    assert output.getvalue() == SCORED.line + b"\n"


def test_a_score_where_there_is_none() -> None:
    with pytest.raises(ValueError, match=r"^the header has no score$"):
        BlockWriter(io.BytesIO(), BYTE).write_rows(rows(0, 2, BYTE)._replace(scores=np.empty(2, "V4")))
