from __future__ import annotations

import io
import json
import pickle
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.logs import events as traininglog
from mlgo_corpus.formats.logs.events import (
    MAX_HEADER_BYTES,
    MAX_LINE_BYTES,
    Context,
    LogHeader,
    LogReader,
    LogWriter,
    Observation,
    Readable,
    encode_context,
    parse_header,
    read_header,
)
from mlgo_corpus.formats.logs.tensors import ELEMENT_TYPES, MAX_TENSOR_BYTES, TensorSpec
from tests.conftest import DATA

LOGS = sorted((DATA / "training-logs").glob("*.log"))
by_name = pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)

Event = Context | Observation | LogHeader
Failure = tuple[type[FormatError], str, int | None]

LARGEST = 2**63 - 1


class Reading(NamedTuple):
    """What a reader gave: events, the error after them if any, and where the last whole event ended."""

    events: list[Event]
    failure: Failure | None
    offset: int


def failure_of(error: FormatError) -> Failure:
    return type(error), error.message, error.offset


def plain_events(data: bytes | Readable) -> Reading:
    """Read a log with the plain reader."""
    events: list[Event] = []
    offset = 0
    try:
        reader = LogReader(io.BytesIO(data) if isinstance(data, bytes) else data)
        offset = reader.offset
        for event in reader:
            events.append(event)
            offset = reader.offset
    except FormatError as error:
        return Reading(events, failure_of(error), offset)
    return Reading(events, None, offset)


def spec(name: str = "x", kind: str = "int64_t", shape: Sequence[int] = (1,)) -> TensorSpec:
    return TensorSpec(name, kind, tuple(shape))


def spelled(event: Event, colon: bytes = b":") -> bytes:
    """Write an event in the most direct way."""
    if isinstance(event, LogHeader):
        return event.line + b"\n"
    if isinstance(event, Context):
        return event.line
    number = str(event.number).encode()
    text = b'{"observation"' + colon + number + b"}\n" + event.tensors + b"\n"
    if event.score is not None:
        text += b'{"outcome"' + colon + number + b"}\n" + event.score + b"\n"
    return text


def make_log(header: LogHeader, *events: Event, colon: bytes = b":") -> bytes:
    return header.line + b"\n" + b"".join(spelled(event, colon) for event in events)


def context(name: str) -> Context:
    """Give a context as LLVM writes it, for names that need no escapes."""
    return Context(name, b'{"context":"' + name.encode() + b'"}\n')


SIZES = dict(zip(ELEMENT_TYPES, (4, 8, 1, 1, 2, 2, 4, 4, 8, 8), strict=True))


def reference_events(data: bytes) -> list[Event]:
    """Read a log that is in order, in another way than the readers do."""
    line, _, rest = data.partition(b"\n")
    header = json.loads(line)

    def size(item: dict[str, Any]) -> int:
        count = SIZES[item["type"]]
        for dimension in item["shape"]:
            count *= dimension
        return count

    length = sum(map(size, header["features"]))
    events: list[Event] = []
    while rest:
        line, _, rest = rest.partition(b"\n")
        ((key, value),) = json.loads(line).items()
        if key == "context":
            events.append(Context(value, line + b"\n"))
            continue
        assert key == "observation"
        tensors, newline, rest, score = rest[:length], rest[length : length + 1], rest[length + 1 :], None
        assert newline == b"\n"
        if header.get("score"):
            line, _, rest = rest.partition(b"\n")
            assert json.loads(line) == {"outcome": value}
            end = size(header["score"])
            score, newline, rest = rest[:end], rest[end : end + 1], rest[end + 1 :]
            assert newline == b"\n"
        events.append(Observation(value, tensors, score))
    return events


# Names and tensors that are likely to be mistaken for something else.
ODD_NAMES = ["", "x", 'a"b', "a\\b", "\x00\x01\x1f\x7f", "\t\n\r", "é\u2028\ufffe\U0001f600", '"}\n{"context":"', "/"]
LURES = [b"\n", b"\0", b'{"observation":0}\n', b'\n{"outcome":0}\n', b'{"context":"f"}\n', b'{"features":[]}\n']

names = st.text(max_size=5) | st.sampled_from(ODD_NAMES)
specs = st.builds(
    TensorSpec,
    names,
    st.sampled_from(list(ELEMENT_TYPES)),
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
    st.integers(-1, 3),
)
headers = st.builds(LogHeader, st.lists(specs, max_size=4).map(tuple), st.none() | specs, st.none() | specs)


def tensors_of(size: int) -> st.SearchStrategy[bytes]:
    lures = st.sampled_from(LURES).map(lambda lure: (lure * (size // len(lure) + 1))[:size])
    return lures | st.binary(min_size=size, max_size=size)


def context_lines(name: str) -> st.SearchStrategy[bytes]:
    ascii_only, whole = json.dumps(name), json.dumps(name, ensure_ascii=False)
    others = [f'{{"context": {ascii_only}}}\n', f' {{ "context" :\t{whole}}} \r\n', f'{{"\\u0063ontext":{whole}}}\n']
    return st.sampled_from([encode_context(name)] * 4 + [line.encode() for line in others])


@st.composite
def logs(draw: st.DrawFn) -> tuple[LogHeader, list[Event], bytes]:
    """Give a header, events and a separator."""
    header = draw(headers)
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            name = draw(names)
            events.append(Context(name, draw(context_lines(name))))
        else:
            first = draw(st.sampled_from([0, 0, 7, 98, 998, 9999, 10**18 - 3, LARGEST - 9]))
            for number in range(first, first + draw(st.integers(1, 6))):
                score = None if header.score is None else draw(tensors_of(header.score_bytes))
                events.append(Observation(number, draw(tensors_of(header.tensor_bytes)), score))
    return header, events, draw(st.sampled_from([b":", b": "]))


# A header with everything, and its two observations, for messages and offsets.
SCORED = LogHeader((spec("callee_users"), spec("mask", "int8_t", (1, 3))), spec("reward", "float"))
TENSORS, SCORE = b"\n2345678abc", b"wxyz"
SCORED_LOG = make_log(SCORED, context("f"), Observation(0, TENSORS, SCORE), Observation(1, TENSORS, SCORE))
START = len(SCORED.line) + 1
FIRST = START + len(b'{"context":"f"}\n')
SECOND = FIRST + (SCORED_LOG[FIRST:].index(b'{"observation":1}'))


def refused(data: bytes) -> Failure:
    """Give the error of the plain reader, which has to survive pickling."""
    failure = plain_events(data).failure
    assert failure is not None
    kind, message, offset = failure
    copy = pickle.loads(pickle.dumps(kind(message, offset=offset, path=Path("a.log"))))
    assert str(copy) == f"a.log: byte {offset}: {message}"
    assert "\n" not in message
    return failure


def test_all_real_logs_are_there() -> None:
    assert len(LOGS) == 18


@by_name
def test_events_of_real_logs_are_as_a_second_reader_has_them(path: Path) -> None:
    data = path.read_bytes()
    assert plain_events(data) == Reading(reference_events(data), None, len(data))


@by_name
def test_real_logs_written_again_are_the_same(path: Path) -> None:
    data = path.read_bytes()
    output = io.BytesIO()
    reader = LogReader(io.BytesIO(data))
    writer = LogWriter(output, reader.header)
    for event in reader:
        assert not isinstance(event, LogHeader)
        writer.write_event(event)
    assert output.getvalue() == data


@by_name
def test_a_header_made_of_its_specs_has_llvms_spelling(path: Path) -> None:
    line = path.read_bytes().partition(b"\n")[0]
    header = parse_header(line)
    assert header.line == line
    made = LogHeader(header.features, header.score, header.advice)
    assert made.line == line
    assert made == header
    assert hash(made) == hash(header)


@by_name
def test_contexts_of_real_logs_are_spelled_as_written(path: Path) -> None:
    for event in plain_events(path.read_bytes()).events:
        if isinstance(event, Context):
            assert encode_context(event.name) == event.line


@pytest.mark.parametrize(
    ("name", "features", "tensor_bytes", "score", "contexts", "observations"),
    [
        ("inlining.lvm", 40, 320, None, 1, 84),
        ("inlining.linit", 40, 320, None, 1, 0),
        ("regalloc-eviction.lvm", 22, 3444, spec("reward", "float"), 24, 161),
        ("regalloc-eviction.lapi", 22, 3444, spec("reward", "float"), 92, 0),
        ("regalloc-eviction.lopcodes", 22, 3444, spec("reward", "float"), 0, 0),
        ("regalloc-priority.lvm", 4, 24, spec("reward", "float"), 24, 1689),
    ],
)
def test_what_real_logs_hold(
    name: str, features: int, tensor_bytes: int, score: TensorSpec | None, contexts: int, observations: int
) -> None:
    data = (DATA / "training-logs" / f"{name}.log").read_bytes()
    header = LogReader(io.BytesIO(data)).header
    assert (len(header.features), header.tensor_bytes, header.score) == (features, tensor_bytes, score)
    events = plain_events(data).events
    assert sum(isinstance(event, Context) for event in events) == contexts
    assert sum(isinstance(event, Observation) for event in events) == observations


def test_values_of_the_priority_advisor() -> None:
    data = (DATA / "training-logs" / "regalloc-priority.lzio.log").read_bytes()
    first, second = plain_events(data).events[:2]
    assert first == context("luaZ_fill")
    assert isinstance(second, Observation)
    values = np.frombuffer(second.tensors, [("ints", "<i8", 2), ("floats", "<f4", 2)])[0]
    assert (values["ints"].tolist(), values["floats"].tolist()) == ([0, 0], [0.0, 3758096896.0])
    assert second.score == bytes(4)


def test_columns_and_sizes_of_a_header() -> None:
    assert SCORED.columns == (*SCORED.features, SCORED.score)
    assert (SCORED.tensor_bytes, SCORED.score_bytes) == (11, 4)
    plain = LogHeader(SCORED.features)
    assert plain.columns == SCORED.features
    assert plain.score_bytes == 0


def test_a_header_is_what_it_means() -> None:
    spaced = parse_header(json.dumps(json.loads(SCORED.line)).encode())
    assert b'{"name": "mask"' in spaced.line
    assert spaced == SCORED
    assert hash(spaced) == hash(SCORED)
    assert spaced != LogHeader(SCORED.features)


def test_unknown_keys_and_null_are_passed_over() -> None:
    line = b'{"version":3,"score":null,"features":[],"advice":null}'
    assert parse_header(line) == LogHeader(())
    assert parse_header(line).line == line


def test_advice_takes_no_bytes() -> None:
    header = LogHeader((spec(),), advice=spec("decision", "float"))
    assert header.line.endswith(b',"shape":[1]}],"advice":{"name":"decision","type":"float","port":0,"shape":[1]}}')
    assert parse_header(header.line).advice == spec("decision", "float")
    assert (header.columns, header.tensor_bytes, header.score_bytes) == ((spec(),), 8, 0)


@given(headers)
def test_every_header_comes_back_from_its_line(header: LogHeader) -> None:
    assert parse_header(header.line) == header
    assert read_header(io.BytesIO(header.line + b"\n")).line == header.line
    assert b"\n" not in header.line
    assert json.loads(header.line)["features"] == [item.as_json() for item in header.features]


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (SCORED, None),
        (LogHeader(SCORED.features, SCORED.score, line=b"{}"), None),
        (
            LogHeader((spec("callee_users"), spec("mask", "int8_t", (3,))), SCORED.score),
            "feature 1 is 'mask' int8_t [1, 3] in the first and 'mask' int8_t [3] in the second",
        ),
        (
            LogHeader((spec("callee_users"),), SCORED.score),
            "feature 1 is 'mask' int8_t [1, 3] in the first and missing in the second",
        ),
        (
            LogHeader((*SCORED.features, spec("more")), SCORED.score),
            "feature 2 is missing in the first and 'more' int64_t [1] in the second",
        ),
        (LogHeader(SCORED.features), "score is 'reward' float [1] in the first and missing in the second"),
        (
            LogHeader(SCORED.features, SCORED.score, spec("a")),
            "advice is missing in the first and 'a' int64_t [1] in the second",
        ),
    ],
)
def test_difference_of_headers(other: LogHeader, difference: str | None) -> None:
    assert SCORED.difference(other) == difference


def test_difference_of_headers_with_many_features() -> None:
    first, second = (LogHeader(tuple(spec(f"x{n}") for n in [*range(20_000), last])) for last in (1, 2))
    assert first.difference(second) == (
        "feature 20000 is 'x1' int64_t [1] in the first and 'x2' int64_t [1] in the second"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]\n", "expected a log's header with a list of features, found '[]'"),
        (b"{}\n", "expected a log's header with a list of features, found '{}'"),
        (b"3\n", "expected a log's header with a list of features, found '3'"),
        (b'{"context":"f"}\n', """expected a log's header with a list of features, found '{"context":"f"}'"""),
        (b'{"features":{}}\n', """expected a log's header with a list of features, found '{"features":{}}'"""),
        (b"\n", "expected a log's header in JSON, found ''"),
        (b"\x7fELF\x02\x01\n", r"expected a log's header in JSON, found '\x7fELF\x02\x01'"),
        (b'{"features":[}\n', """expected a log's header in JSON, found '{"features":[}'"""),
        (b'{"features":[]}{}\n', """expected a log's header in JSON, found '{"features":[]}{}'"""),
        (
            b'\xef\xbb\xbf{"features":[]}\n',
            r"""expected a log's header in JSON, found '\xef\xbb\xbf{"features":[]}'""",
        ),
        (b'{"features":["\xff"]}\n', r"""expected a log's header in JSON, found '{"features":["\xff"]}'"""),
        (b"[" * 100_000 + b"\n", f"expected a log's header in JSON, found '{'[' * 55}..."),
        (b'{"features":[' + b"9" * 5000 + b"]}\n", """expected a log's header in JSON, found '{"features":["""),
        (b'{"features":[5]}\n', "feature 0: expected an object with name, type, port and shape, found 5"),
        (b'{"features":[],"score":5}\n', "score: expected an object with name, type, port and shape, found 5"),
        (b'{"features":[],"score":0}\n', "score: expected an object with name, type, port and shape, found 0"),
        (b'{"features":[],"advice":[]}\n', "advice: expected an object with name, type, port and shape, found []"),
        (
            b'{"features":[{"name":"x","type":"int64_t","port":0,"shape":[1099511627776]}]}\n',
            "tensor 'x': a shape of [1099511627776] means more than 64 MiB",
        ),
        (
            b'{"features":[{"name":"\\ud800","type":"int64_t","port":0,"shape":[1]}]}\n',
            r"tensor '\ud800': the name is not Unicode text",
        ),
        (
            b'{"features":[{"name":"\xf0\x9f\x98\x80","type":"int64_t","port":0}]}\n',
            r"feature 0 '\U0001f600': expected a list for shape, found None",
        ),
        (b"a log", "expected a log's header, found 'a log'"),
        (b"\0" * 500, "expected a log's header, found '" + r"\x00" * 13 + r"\x0..."),
    ],
)
def test_what_is_no_header_is_refused(data: bytes, message: str) -> None:
    kind, found, offset = refused(data)
    assert (kind, offset) == (FormatError, 0)
    assert found == message or (message.endswith("[") and found.startswith(message))


@pytest.mark.parametrize("depth", [10, 300, *range(900, 1000, 7), 20_000, 400_000])
def test_values_nested_at_any_depth(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    kind, message, offset = refused(b'{"features":[' + nested + b"]}\n")
    assert (kind, offset) == (FormatError, 0)
    assert message.startswith(("feature 0: expected an object", "expected a log's header in JSON"))


def test_tensors_that_are_too_large_together() -> None:
    half = spec("x", "int8_t", (MAX_TENSOR_BYTES // 2,))
    assert LogHeader((half, half), half).tensor_bytes == MAX_TENSOR_BYTES
    message = f"an observation of {MAX_TENSOR_BYTES + 1} bytes, expected at most {MAX_TENSOR_BYTES}"
    with pytest.raises(FormatError, match=f"^{message}$"):
        LogHeader((half, half, spec("y", "int8_t")))


def test_a_million_features() -> None:
    features = b'{"name":"x","type":"int8_t","port":0,"shape":[1]},' * 1_000_000
    data = b'{"features":[' + features[:-1] + b"]}\n"
    message = f"reading the log's header, found a line of more than {MAX_HEADER_BYTES} bytes"
    assert refused(data) == (FormatError, message, 0)


def test_thousands_of_features() -> None:
    header = LogHeader(tuple(spec(f"f{n}", "int8_t") for n in range(15_000)))
    assert len(header.line) < MAX_HEADER_BYTES
    data = make_log(header, Observation(0, bytes(15_000), None))
    assert plain_events(data).events == [Observation(0, bytes(15_000), None)]
    kind, message, offset = refused(data[:-3])
    assert (kind, message) == (TruncatedError, "reading 'f14998' of observation 0, expected 1 byte, got 0")
    assert offset == len(data) - 3


def test_the_longest_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traininglog, "MAX_HEADER_BYTES", 1000)
    line = b'{"features":[]}'.ljust(999)  # and a newline
    assert read_header(io.BytesIO(line + b"\n")).line == line
    message = "reading the log's header, found a line of more than 1000 bytes"
    assert refused(line + b" \n") == (FormatError, message, 0)
    assert refused(line + b" " * 9000) == (FormatError, message, 0)
    second = make_log(LogHeader(()), LogHeader((), line=line))
    assert plain_events(second).events == [LogHeader(())]
    kind, message, offset = refused(make_log(LogHeader(()), LogHeader((), line=line + b" ")))
    assert (kind, offset) == (FormatError, 16)
    assert message.startswith("""expected {"context":NAME} or {"observation":NUMBER}, found '{"features":[]}  """)


def test_a_header_alone() -> None:
    assert plain_events(SCORED.line + b"\n") == Reading([], None, START)


def test_an_observation_before_any_context() -> None:
    event = Observation(3, bytes(8), None)
    assert plain_events(make_log(LogHeader((spec(),)), event, context(""))).events == [event, context("")]


def test_contexts_without_observations_and_one_that_comes_back() -> None:
    header = LogHeader((spec("x", "uint8_t"),))
    events = [
        *map(context, ["", "f", "g", "f"]),
        Observation(0, b"a", None),
        context("g"),
        Observation(0, b"b", None),
        context("f"),
        Observation(1, b"c", None),
        context("h"),
    ]
    assert plain_events(make_log(header, *events)).events == events


@pytest.mark.parametrize("score", [None, spec("reward", "double", (2,))])
def test_no_features(score: TensorSpec | None) -> None:
    header = LogHeader((), score)
    last = None if score is None else b"\n" * 16
    events = [Observation(0, b"", last), context("f"), Observation(0, b"", last), Observation(1, b"", last)]
    data = make_log(header, *events)
    assert data.startswith(header.line + b'\n{"observation":0}\n\n' + (b"" if score is None else b'{"outcome":0}\n'))
    assert plain_events(data) == Reading(events, None, len(data))


@pytest.mark.parametrize("colon", [b":", b": "])
def test_two_spellings(colon: bytes) -> None:
    events = [context("f"), Observation(0, TENSORS, SCORE), Observation(1, TENSORS, SCORE)]
    reader = LogReader(io.BytesIO(make_log(SCORED, *events, colon=colon)))
    assert reader.separator is None
    assert reader.read_event() == events[0]
    assert reader.separator is None
    assert [*reader] == events[1:]
    assert reader.separator == colon


@pytest.mark.parametrize(("colon", "other"), [(":", ": "), (": ", ":")])
def test_one_spelling_throughout_a_log(colon: str, other: str) -> None:
    header = LogHeader((spec("x", "int8_t"),))
    first, second = (f'{{"observation"{separator}{n}}}\na\n'.encode() for n, separator in enumerate((colon, other)))
    data = header.line + b"\n" + first + second
    expected = f'expected {{"context"{colon}NAME}} or {{"observation"{colon}NUMBER}}'
    found = repr(second[: second.index(b"\n") + 1])[1:]
    assert plain_events(data).events == [Observation(0, b"a", None)]
    assert refused(data) == (FormatError, f"{expected}, found {found}", len(header.line + first) + 1)


def test_one_spelling_throughout_an_observation() -> None:
    data = SCORED_LOG.replace(b'{"outcome":0}', b'{"outcome": 0}')
    message = r"""expected '{"outcome":0}\n', found '{"outcome": 0}\n'"""
    assert refused(data) == (FormatError, message, FIRST + len(b'{"observation":0}\n') + 12)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b'{"context":"f"}\n', "f"),
        (b'{"context": "f"}\n', "f"),
        (b'  { "context"\t:  "f" }  \r\n', "f"),
        (b'{"context":"\xc3\xa9\xf0\x9f\x98\x80"}\n', "é\U0001f600"),
        (rb'{"context":"\u00e9\ud83d\ude00\/\"\\\u000a"}' + b"\n", 'é\U0001f600/"\\\n'),
        (rb'{"\u0063ontext":"f"}' + b"\n", "f"),
        (b'{"context":"a","context":"b"}\n', "b"),
        (b'{"context":"\x7f"}\n', "\x7f"),
        (rb'{"context":"\"}\n{\"observation\":0}\n"}' + b"\n", '"}\n{"observation":0}\n'),
    ],
)
def test_contexts_keep_their_line(line: bytes, name: str) -> None:
    events = [Context(name, line), Observation(0, TENSORS, SCORE)]
    assert plain_events(make_log(SCORED, *events)).events == events


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"null\n", r"'null\n'"),
        (b'"context"\n', r"""'"context"\n'"""),
        (b'["context"]\n', r"""'["context"]\n'"""),
        (b"{}\n", r"'{}\n'"),
        (b'{"context":7}\n', r"""'{"context":7}\n'"""),
        (b'{"context":null}\n', r"""'{"context":null}\n'"""),
        (b'{"context":"f","x":1}\n', r"""'{"context":"f","x":1}\n'"""),
        (b'{"Context":"f"}\n', r"""'{"Context":"f"}\n'"""),
        (b'{"outcome":0}\n', r"""'{"outcome":0}\n'"""),
        (b'{"observation":0 }\n', r"""'{"observation":0 }\n'"""),
        (b'{"observation":  0}\n', r"""'{"observation":  0}\n'"""),
        (b'{"observation":0}\r\n', r"""'{"observation":0}\r\n'"""),
        (b' {"observation":0}\n', r"""' {"observation":0}\n'"""),
        (b'{"observation":0,"context":"f"}\n', r"""'{"observation":0,"context":"f"}\n'"""),
        (b'{"observation":-1}\n', r"""'{"observation":-1}\n'"""),
        (b'{"observation":-0}\n', r"""'{"observation":-0}\n'"""),
        (b'{"observation":1.0}\n', r"""'{"observation":1.0}\n'"""),
        (b'{"observation":1e3}\n', r"""'{"observation":1e3}\n'"""),
        (b'{"observation":true}\n', r"""'{"observation":true}\n'"""),
        (b'{"observation":"0"}\n', r"""'{"observation":"0"}\n'"""),
        (b'{"observation":9223372036854775808}\n', r"""'{"observation":9223372036854775808}\n'"""),
        (b'{"observation": 9223372036854775808}\n', r"""'{"observation": 9223372036854775808}\n'"""),
        (b'{"observation":10000000000000000000}\n', r"""'{"observation":10000000000000000000}\n'"""),
        (b'{"observation":' + b"1" * 50 + b"}\n", '\'{"observation":' + "1" * 40 + "..."),
    ],
)
def test_other_lines_are_refused(line: bytes, found: str) -> None:
    message = f'expected {{"context":NAME}} or {{"observation":NUMBER}}, found {found}'
    assert refused(make_log(SCORED) + line) == (FormatError, message, START)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"\n", "''"),
        (b"tensor\n", "'tensor'"),
        (b'{"observation":}\n', """'{"observation":}'"""),
        (b'{"observation":00}\n', """'{"observation":00}'"""),
        (b'{"observation":01}\n', """'{"observation":01}'"""),
        (b'{"observation":+1}\n', """'{"observation":+1}'"""),
        (b'{"context":f}\n', """'{"context":f}'"""),
        (b'{"context":"\xff"}\n', r"""'{"context":"\xff"}'"""),
        (b'{"context":"a\tb"}\n', r"""'{"context":"a\tb"}'"""),
        (b'{"context":"\\x"}\n', r"""'{"context":"\\x"}'"""),
        (b"[" * 200_000 + b"\n", f"'{'[' * 55}..."),
    ],
)
def test_lines_that_are_not_json_are_refused(line: bytes, found: str) -> None:
    assert refused(make_log(SCORED) + line) == (FormatError, f"expected an event in JSON, found {found}", START)


def test_a_context_that_is_no_text_is_refused() -> None:
    data = make_log(SCORED) + rb'{"context":"a\ud800"}' + b"\n"
    assert refused(data) == (FormatError, r"the context's name 'a\ud800' is not Unicode text", START)


@pytest.mark.parametrize("number", [9, 10, 10**17, 10**18 - 1, 10**18, LARGEST - 1, LARGEST])
@pytest.mark.parametrize("colon", [b":", b": "])
def test_numbers_of_observations_are_taken_as_they_are(number: int, colon: bytes) -> None:
    events = [Observation(n, TENSORS, SCORE) for n in (number, 0, number, number)]
    assert plain_events(make_log(SCORED, *events, colon=colon)).events == events


def test_a_second_header() -> None:
    second = LogHeader((spec("y", "uint16_t"),), advice=spec("z"))
    first_part = make_log(SCORED, context("f"), Observation(0, TENSORS, SCORE))
    # The second log has the other spelling, and its header one of its own.
    line = json.dumps(json.loads(second.line)).encode()
    event = Observation(0, b"ab", None)
    second_part = make_log(LogHeader(second.features, None, second.advice, line), event, colon=b": ")
    reader = LogReader(io.BytesIO(first_part + second_part))
    assert reader.read_event() == context("f")
    assert reader.read_event() == Observation(0, TENSORS, SCORE)
    assert (reader.header, reader.offset, reader.separator) == (SCORED, len(first_part), b":")
    header = reader.read_event()
    assert header == second
    assert reader.header is header
    assert reader.header.line == line
    assert (reader.offset, reader.separator) == (len(first_part) + len(line) + 1, None)
    assert reader.read_event() == event
    assert reader.separator == b": "
    assert reader.read_event() is None
    assert reader.read_event() is None


def test_a_second_header_that_is_none() -> None:
    data = make_log(SCORED, context("f")) + b'{"features":[{"name":"x"}]}\n'
    message = "feature 0: expected text for name and type, found 'x' and None"
    assert refused(data) == (FormatError, message, FIRST)


@pytest.mark.parametrize("first", [8, 97, 996, 9_995])
def test_runs_of_numbers(first: int) -> None:
    events = [Observation(n, b"%08d" % n, None) for n in range(first, first + 10)]
    data = make_log(LogHeader((spec(),)), *events)
    assert plain_events(data) == Reading(events, None, len(data))


@pytest.mark.parametrize(
    ("cut", "offset", "message"),
    [
        (0, 0, "the log is empty"),
        (1, 0, "reading the log's header, expected a line, got 1 byte"),
        (START - 1, 0, f"reading the log's header, expected a line, got {START - 1} bytes"),
        (START + 4, START, """reading an event, expected a newline, found 4 bytes without one: '{"co'"""),
        (
            FIRST + 17,
            FIRST,
            """reading an event, expected a newline, found 17 bytes without one: '{"observation":0}'""",
        ),
        (FIRST + 18, FIRST + 18, "reading 'callee_users' of observation 0, expected 8 bytes, got 0"),
        (FIRST + 21, FIRST + 18, "reading 'callee_users' of observation 0, expected 8 bytes, got 3"),
        (FIRST + 26, FIRST + 26, "reading 'mask' of observation 0, expected 3 bytes, got 0"),
        (FIRST + 28, FIRST + 26, "reading 'mask' of observation 0, expected 3 bytes, got 2"),
        (
            FIRST + 29,
            FIRST + 29,
            "expected a newline after the tensors of observation 0, found the end of the log",
        ),
        (FIRST + 30, FIRST + 30, r"""expected '{"outcome":0}\n', found the end of the log"""),
        (
            FIRST + 35,
            FIRST + 30,
            """reading the outcome of observation 0, expected a newline, found 5 bytes without one: '{"out'""",
        ),
        (FIRST + 44, FIRST + 44, "reading 'reward' of the score of observation 0, expected 4 bytes, got 0"),
        (FIRST + 47, FIRST + 44, "reading 'reward' of the score of observation 0, expected 4 bytes, got 3"),
        (FIRST + 48, FIRST + 48, "expected a newline after the score of observation 0, found the end of the log"),
        (SECOND + 21, SECOND + 18, "reading 'callee_users' of observation 1, expected 8 bytes, got 3"),
    ],
)
def test_messages_of_truncated_logs(cut: int, offset: int, message: str) -> None:
    assert refused(SCORED_LOG[:cut]) == (TruncatedError, message, offset)


def test_truncated_logs_give_what_is_whole() -> None:
    ends = [START, FIRST, SECOND, len(SCORED_LOG)]
    events = plain_events(SCORED_LOG).events
    for cut in range(START, len(SCORED_LOG) + 1):
        whole = sum(end <= cut for end in ends) - 1
        reading = plain_events(SCORED_LOG[:cut])
        assert reading.events == events[:whole]
        assert reading.offset == ends[whole]
        assert (reading.failure is None) == (cut in ends)


@pytest.mark.parametrize(
    ("offset", "damage", "message"),
    [
        (FIRST + 29, b"x", "expected a newline after the tensors of observation 0, found 'x'"),
        (FIRST + 29, b"\r", r"expected a newline after the tensors of observation 0, found '\r'"),
        (FIRST + 30, b'{"outcome":1}', r"""expected '{"outcome":0}\n', found '{"outcome":1}\n'"""),
        (FIRST + 30, b'{"outcome" 0}', r"""expected '{"outcome":0}\n', found '{"outcome" 0}\n'"""),
        (FIRST + 48, b"\0", r"expected a newline after the score of observation 0, found '\x00'"),
        (SECOND, b"\n{", "expected an event in JSON, found ''"),
    ],
)
def test_messages_of_damaged_logs(offset: int, damage: bytes, message: str) -> None:
    data = SCORED_LOG[:offset] + damage + SCORED_LOG[offset + len(damage) :]
    assert refused(data) == (FormatError, message, offset)


def test_any_byte_may_be_in_a_tensor() -> None:
    for offset in [*range(FIRST + 18, FIRST + 29), *range(FIRST + 44, FIRST + 48)]:
        for byte in range(256):
            data = bytearray(SCORED_LOG)
            data[offset] = byte
            assert len(plain_events(bytes(data)).events) == 3


@pytest.mark.parametrize("purpose", ["an event", "the outcome of observation 0"])
def test_long_lines(purpose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traininglog, "MAX_LINE_BYTES", 5000)
    start = START if purpose == "an event" else FIRST + 30
    message = f"reading {purpose}, found a line of more than 5000 bytes"
    assert refused(SCORED_LOG[:start] + b"a" * 5000) == (FormatError, message, start)
    assert refused(SCORED_LOG[:start] + b"a" * 5000 + b"\n") == (FormatError, message, start)
    assert refused(SCORED_LOG[:start] + b"a" * 4999)[0] is TruncatedError


def test_the_longest_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traininglog, "MAX_LINE_BYTES", 5000)
    longest = "a" * (5000 - len('{"context":""}\n'))
    assert plain_events(make_log(SCORED, context(longest))).events == [context(longest)]
    message = "reading an event, found a line of more than 5000 bytes"
    assert refused(make_log(SCORED, context(longest + "a"))) == (FormatError, message, START)


def test_a_line_of_more_than_the_limit_is_not_read_to_its_end() -> None:
    class Endless(io.BytesIO):
        taken = 0

        def readline(self, limit: int | None = -1, /) -> bytes:
            line = super().readline(limit)
            if not line:
                assert limit is not None
                line = b"a" * limit
                self.taken += limit
            return line

    stream = Endless(SCORED.line + b"\n")
    message = f"reading an event, found a line of more than {MAX_LINE_BYTES} bytes"
    assert plain_events(stream) == Reading([], (FormatError, message, START), START)
    assert stream.taken == MAX_LINE_BYTES


@pytest.mark.parametrize("line", [rb'{"context":"%b"}', rb' { "context" : "\"%b\\" }', b'{"context":"\xc3\xa9%b\x7f"}'])
def test_contexts_that_are_longer_than_a_header(line: bytes) -> None:
    line = line % (b"[{," * (MAX_HEADER_BYTES // 2)) + b"\n"
    event = Context(json.loads(line)["context"], line)
    assert plain_events(make_log(SCORED, event)).events == [event]


@pytest.mark.parametrize(
    "line",
    [
        b'{"features":[[]' + b",[]" * MAX_HEADER_BYTES + b"]}",
        b'{"context":"f","x":["' + b"a" * MAX_HEADER_BYTES + b'"]}',
        b'{"context":"' + b"a" * MAX_HEADER_BYTES,
        b'{"context":"' + b'\\"' * MAX_HEADER_BYTES + b"}",
        b"[" + b" " * MAX_HEADER_BYTES + b"]",
    ],
    ids=["header", "object", "open", "escapes", "list"],
)
def test_other_long_lines_are_not_parsed(line: bytes) -> None:
    data = make_log(SCORED) + line + b"\n"
    tracemalloc.start()
    try:
        kind, message, offset = refused(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (kind, offset) == (FormatError, START)
    assert message.startswith('expected {"context":NAME} or {"observation":NUMBER}, found ')
    # The log twice: in the stream, which is made of it, and as a line.
    assert peak < 2 * len(data) + (1 << 20)


class ShortReads(io.BytesIO):
    """A stream that gives fewer bytes than it is asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(3, size or 0))


def test_short_reads() -> None:
    for cut in range(START, len(SCORED_LOG) + 1):
        assert plain_events(ShortReads(SCORED_LOG[:cut])) == plain_events(SCORED_LOG[:cut])


def test_a_large_header_of_a_small_file_takes_no_memory(tmp_path: Path) -> None:
    header = LogHeader((spec("x", "int8_t", (8,)), spec("y", "int8_t", (MAX_TENSOR_BYTES - 8,))))
    data = header.line + b'\n{"observation":0}\n' + bytes(108)
    path = tmp_path / "a.log"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with path.open("rb") as stream:
            failure = plain_events(stream).failure
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = f"reading 'y' of observation 0, expected {MAX_TENSOR_BYTES - 8} bytes, got 100"
    assert failure == (TruncatedError, message, len(data) - 100)
    assert peak < 4 << 20


def test_tensors_that_are_larger_than_one_read() -> None:
    size = (3 << 20) + 5
    event = Observation(0, bytes(range(256)) * (size // 256) + bytes(5), None)
    assert len(event.tensors) == size
    assert plain_events(make_log(LogHeader((spec("x", "uint8_t", (size,)),)), event)).events == [event]


def test_errors_of_the_stream_are_passed_on() -> None:
    class Damaged(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            raise FormatError("the gzip stream is damaged")

    reading = plain_events(Damaged(SCORED_LOG))
    assert reading == Reading([context("f")], (FormatError, "the gzip stream is damaged", None), FIRST)


def written(header: LogHeader, *calls: tuple[Any, ...], separator: bytes = b":") -> bytes:
    """Give what observations without their contexts are written as, without the header."""
    output = io.BytesIO()
    writer = LogWriter(output, header, separator=separator)
    for call in calls:
        writer.write_observation(*call)
    assert output.getvalue().startswith(header.line + b"\n")
    return output.getvalue()[len(header.line) + 1 :]


def tensor(item: TensorSpec, value: Any) -> bytes:
    text = written(LogHeader((item,)), ([value],))
    return text.removeprefix(b'{"observation":0}\n').removesuffix(b"\n")


def problem(header: LogHeader, *call: Any, **options: Any) -> str:
    """Give the message of a ValueError, which leaves the log as it was."""
    output = io.BytesIO()
    writer = LogWriter(output, header)
    with pytest.raises(ValueError, match=r"\w") as caught:
        writer.write_observation(*call, **options)
    assert output.getvalue() == header.line + b"\n"
    return str(caught.value)


@given(logs())
@settings(max_examples=150, deadline=None)
def test_every_log_comes_back(log: tuple[LogHeader, list[Event], bytes]) -> None:
    header, events, separator = log
    output = io.BytesIO()
    writer = LogWriter(output, header, separator=separator)
    for event in events:
        assert not isinstance(event, LogHeader)
        writer.write_event(event)
    data = output.getvalue()
    assert data == make_log(header, *events, colon=separator)
    assert plain_events(data) == Reading(events, None, len(data))
    assert LogReader(io.BytesIO(data)).header == header


@given(st.lists(names))
def test_every_context_comes_back(contexts: list[str]) -> None:
    output = io.BytesIO()
    writer = LogWriter(output, SCORED)
    for name in contexts:
        writer.write_context(name)
    events = plain_events(output.getvalue()).events
    assert events == [Context(name, encode_context(name)) for name in contexts]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("", b'{"context":""}\n'),
        ("_ZN3foo3barEv", b'{"context":"_ZN3foo3barEv"}\n'),
        ('"\\/', rb'{"context":"\"\\/"}' + b"\n"),
        ("\t\n\r\b\f\x00\x1f\x7f", rb'{"context":"\t\n\r\u0008\u000c\u0000\u001f' + b'\x7f"}\n'),
        ("é\u2028\U0001f600", b'{"context":"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80"}\n'),
    ],
)
def test_contexts_are_spelled_as_llvm_does(name: str, line: bytes) -> None:
    assert encode_context(name) == line
    assert encode_context(name, b": ") == line.replace(b":", b": ", 1)


def test_names_that_are_no_text() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        encode_context("\ud800")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\ud800", r"expected text for a context's name, got 'a\\ud800'"),
        (None, "expected text for a context's name, got None"),
        (b"f", "expected text for a context's name, got b'f'"),
        ("a" * 4986, "a context's line of 5001 bytes, expected at most 5000"),
        ("é" * 2493, "a context's line of 5001 bytes, expected at most 5000"),
    ],
    ids=["surrogate", "none", "bytes", "long", "bytes of characters"],
)
def test_contexts_that_no_reader_takes(name: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traininglog, "MAX_LINE_BYTES", 5000)
    output = io.BytesIO()
    writer = LogWriter(output, LogHeader(()))
    writer.write_context("f")
    writer.write_observation([])
    with pytest.raises(ValueError, match=f"^{message}$"):
        writer.write_context(name)
    writer.write_observation([])  # still of the context before
    longest = "a" * 4985
    writer.write_context(longest)
    assert plain_events(output.getvalue()).events == [
        context("f"),
        Observation(0, b"", None),
        Observation(1, b"", None),
        context(longest),
    ]


def test_headers_that_no_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traininglog, "MAX_HEADER_BYTES", 1000)
    output = io.BytesIO()
    with pytest.raises(ValueError, match=r"^a header of 1000 bytes, expected less than 1000$"):
        LogWriter(output, LogHeader((), line=b'{"features":[]}'.ljust(1000)))
    assert output.getvalue() == b""
    header = LogHeader((), line=b'{"features":[]}'.ljust(999))
    LogWriter(output, header)
    assert LogReader(io.BytesIO(output.getvalue())).header.line == header.line


def test_observations_are_counted_in_each_context() -> None:
    output = io.BytesIO()
    writer = LogWriter(output, LogHeader((spec("x", "uint8_t"),)))
    writer.write_observation([1])
    for name in ("f", "g", "f"):
        writer.write_context(name)
        writer.write_observation({"x": 2})
        writer.write_observation({"x": 3})
    writer.write_observation([4], number=9)
    writer.write_observation([5])
    writer.write_event(Observation(98, b"\6", None))
    writer.write_observation([7])
    writer.write_event(context("g"))
    writer.write_observation([8])
    found = [event.name if isinstance(event, Context) else event[:2] for event in plain_events(output.getvalue())[0]]
    assert found == [
        (0, b"\1"),
        *("f", (0, b"\2"), (1, b"\3")),
        *("g", (0, b"\2"), (1, b"\3")),
        *("f", (2, b"\2"), (3, b"\3"), (9, b"\4"), (10, b"\5"), (98, b"\6"), (99, b"\7")),
        *("g", (2, b"\x08")),
    ]


def test_a_mapping_or_values_in_order() -> None:
    header = LogHeader((spec("a", "int16_t"), spec("b", "uint8_t", (2, 2)), spec("a", "int8_t")), spec("r", "float"))
    expected = b'{"observation":%d}\n\xfe\xff\1\2\3\4\xfe\n{"outcome":%d}\n\0\0\0\x3f\n'
    for values in (
        {"b": [[1, 2], [3, 4]], "a": -2},
        [-2, [1, 2, 3, 4], -2],
        (np.int64(-2), np.array([[1, 3], [2, 4]]).T, np.array([[-2]], np.int8)),
    ):
        assert written(header, (values, 0.5), (values, np.float16(0.5))) == expected % (0, 0) + expected % (1, 1)


def test_no_features_and_a_score() -> None:
    header = LogHeader((), spec("r", "int8_t"))
    assert written(header, ({}, 1), ([], -1)) == (
        b'{"observation":0}\n\n{"outcome":0}\n\1\n{"observation":1}\n\n{"outcome":1}\n\xff\n'
    )


def test_the_other_spelling() -> None:
    header = LogHeader((), spec("r", "int8_t"))
    assert written(header, ({}, 1), separator=b": ") == b'{"observation": 0}\n\n{"outcome": 0}\n\1\n'


@pytest.mark.parametrize("kind", [kind for kind in ELEMENT_TYPES if "int" in kind])
def test_the_limits_of_integers(kind: str) -> None:
    bits = 8 * SIZES[kind]
    low, high = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    pair = spec("x", kind, (2,))
    expected = b"".join(value.to_bytes(bits // 8, "little", signed=low < 0) for value in (low, high))
    assert tensor(pair, [low, high]) == expected
    assert tensor(pair, np.array([low, high], ELEMENT_TYPES[kind])) == expected
    assert tensor(pair, np.array([low, high], ELEMENT_TYPES[kind].newbyteorder())) == expected
    for value in ([low - 1, 0], [0, high + 1], [low, 2**200], [-(2**200), high]):
        assert problem(LogHeader((pair,)), [value]) == f"x: a value does not fit into {kind}"


def test_bools_are_numbers() -> None:
    assert tensor(spec("x", "int16_t", (2,)), [True, False]) == b"\1\0\0\0"
    assert tensor(spec("x", "float"), np.array(True)) == b"\0\0\x80\x3f"


@pytest.mark.parametrize("kind", ["uint8_t", "int64_t"])
@pytest.mark.parametrize("value", [1.0, 1.5, [2.0], np.array([3.0]), "1", b"1", None, 1j, [None], [[1], [2, 3]], {}])
def test_what_is_no_integer(kind: str, value: Any) -> None:
    assert problem(LogHeader((spec("x", kind),)), [value]) == f"x: expected whole numbers for {kind}"


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("value", ["1", b"1", None, 1j, [np.complex64(1)], [None], [[1.0], [2.0, 3.0]], {}])
def test_what_is_no_number(kind: str, value: Any) -> None:
    assert problem(LogHeader((spec("x", kind),)), [value]) == f"x: expected numbers for {kind}"


def test_integers_beyond_numpys() -> None:
    assert tensor(spec("x", "double", (2,)), [2**64, -1]) == np.array([2.0**64, -1.0]).tobytes()
    assert tensor(spec("x", "float"), 10**30) == np.float32(1e30).tobytes()
    assert problem(LogHeader((spec("x", "double"),)), [10**400]) == "x: a value does not fit into double"
    assert problem(LogHeader((spec("x", "float"),)), [10**50]) == "x: a value does not fit into float"


def test_floats_that_are_too_large() -> None:
    limit = float(np.finfo(np.float32).max)
    assert tensor(spec("x", "float", (2,)), [limit, -limit]) == np.array([limit, -limit], np.float32).tobytes()
    for value in (3.5e38, -1e300, np.array([1e39])):
        assert problem(LogHeader((spec("x", "float"),)), [value]) == "x: a value does not fit into float"
    infinite = [float("inf"), float("-inf")]
    assert tensor(spec("x", "float", (2,)), infinite) == bytes.fromhex("0000807f000080ff")
    assert tensor(spec("x", "double"), 1e300) == np.float64(1e300).tobytes()
    # Too small is no error, and neither is rounding.
    assert tensor(spec("x", "float", (2,)), [1e-300, 0.1]) == np.array([0, 0.1], np.float32).tobytes()


def test_nans_keep_their_payload() -> None:
    single = np.array([0x7FC12345, 0xFF800001, 0x7F800001], np.uint32)
    double = np.array([0x7FF8123456789ABC, 0xFFF0000000000001], np.uint64)
    assert tensor(spec("x", "float", (3,)), single.view(np.float32)) == single.tobytes()
    assert tensor(spec("x", "double", (2,)), double.view(np.float64)) == double.tobytes()
    # Converted they become quiet ones, without a warning.
    converted = np.frombuffer(tensor(spec("x", "float", (2,)), double.view(np.float64)), np.float32)
    assert np.isnan(converted).all()


@pytest.mark.parametrize(
    ("values", "score", "message"),
    [
        ({"a": 1}, None, "no value for feature 'b'"),
        ({"a": 1, "b": [1, 2], "c": 3}, None, "the header has no feature 'c'"),
        ({"a": 1, "c": 3}, None, "the header has no feature 'c'"),
        ({}, None, "no value for feature 'a'"),
        ([1], None, "expected a value for each of 2 features, got 1"),
        ([1, [1, 2], 3], None, "expected a value for each of 2 features, got 3"),
        ([1, [1, 2]], 1.0, "the header has no score"),
        ([1, 2], None, "b: expected 2 elements, got 1"),
        ([1, [1, 2, 3]], None, "b: expected 2 elements, got 3"),
        ([[], [1, 2]], None, "a: expected 1 elements, got 0"),
        ([[1, 2], [1, 2]], None, "a: expected 1 elements, got 2"),
    ],
)
def test_values_that_do_not_fit_the_header(values: Any, score: Any, message: str) -> None:
    header = LogHeader((spec("a"), spec("b", "uint8_t", (1, 2))))
    assert problem(header, values, score) == message


def test_scores_that_do_not_fit_the_header() -> None:
    header = LogHeader((), spec("reward", "float", (2,)))
    assert problem(header, []) == "expected a score"
    assert problem(header, [], 0.5) == "reward: expected 2 elements, got 1"
    assert problem(header, [], "ab") == "reward: expected numbers for float"


def test_numbers_that_no_observation_has() -> None:
    header = LogHeader((spec("x", "uint8_t"),))
    limits = f"expected an observation's number from 0 to {LARGEST}"
    assert problem(header, [1], number=-1) == f"{limits}, got -1"
    assert problem(header, [1], number=LARGEST + 1) == f"{limits}, got {LARGEST + 1}"
    writer = LogWriter(io.BytesIO(), header)
    writer.write_observation([1], number=LARGEST)
    with pytest.raises(ValueError, match=f"{limits}, got {LARGEST + 1}"):
        writer.write_observation([1])


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Observation(0, bytes(10), SCORE), "expected tensors of 11 bytes, got 10"),
        (Observation(0, bytes(12), SCORE), "expected tensors of 11 bytes, got 12"),
        (Observation(0, TENSORS, None), "expected a score"),
        (Observation(0, TENSORS, b"abc"), "expected a score of 4 bytes, got 3"),
        (Observation(-1, TENSORS, SCORE), f"expected an observation's number from 0 to {LARGEST}, got -1"),
    ],
)
def test_events_that_do_not_fit_the_header(event: Observation, message: str) -> None:
    output = io.BytesIO()
    writer = LogWriter(output, SCORED)
    with pytest.raises(ValueError, match=f"^{message}$"):
        writer.write_event(event)
    writer.write_observation([1, [2, 3, 4]], 0.0)
    events = plain_events(output.getvalue()).events
    assert events == [Observation(0, b"\1" + bytes(7) + b"\2\3\4", bytes(4))]


def test_a_score_where_there_is_none() -> None:
    with pytest.raises(ValueError, match=r"^the header has no score$"):
        LogWriter(io.BytesIO(), LogHeader(())).write_event(Observation(0, b"", b""))
