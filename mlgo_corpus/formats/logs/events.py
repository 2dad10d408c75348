r"""Training logs, which LLVM's development mode writes with ``-training-log=FILE`` and similar options, event by event.

This is the format (llvm/lib/Analysis/TrainingLogger.cpp writes it). A log is a line of JSON and then events, each a
line of JSON that may be followed by raw bytes::

    log          header event*
    header       {"features":[SPEC,...]} with optional "score":SPEC and "advice":SPEC, then "\n"
    event        context | observation
    context      {"context":"NAME"}\n
    observation  {"observation":N}\n TENSORS \n [outcome]
    outcome      {"outcome":N}\n SCORE \n                      after every observation if the header has a score

``TENSORS`` are the features' tensors in the header's order and ``SCORE`` is the score's tensor, without padding and in
the byte order of the host (`mlgo_corpus.formats.logs.tensors` describes SPEC). Their length follows from the header
alone: a tensor's bytes may be anything, newlines and whole events included. ``advice`` describes the tensor that a
compiler in interactive mode reads back; a log does not contain it.

A context is the function under compilation for register allocation, and the empty name for inlining. ``N`` counts a
context's observations from 0, and continues when a context's name occurs again. The outcome's number repeats the
observation's.

A log of one feature, a byte per line here::

    {"features":[{"name":"x","type":"int16_t","port":0,"shape":[1]}]}\n
    {"context":"f"}\n
    {"observation":0}\n
    0a 00                        the tensor: the number 10, of which one byte is a newline
    \n
    {"context":"g"}\n            a context without observations, at the end

What a reader may not assume:

- that there is an observation: a log may be only a header, or end with a context; runs of contexts are common;
- that a context's name occurs only once, or that it occurs before the first observation;
- that the spacing of a JSON line is LLVM's: the header is written in other ways too, and Python's ``json.dumps`` puts
  a space after the colon of an event. An event is read in these two spellings, one of them throughout a log, because
  they can be reproduced byte for byte;
- that ``N`` is consecutive: logs that were cut or joined have other numbers. A reader accepts any;
- that there is only one header: a compiler that opens its channel twice writes a second one, and so does ``cat``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, zip_longest
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.logs.tensors import MAX_TENSOR_BYTES, TensorSpec, is_text, parse_spec, shown

MAX_LINE_BYTES: Final = 16 << 20
"""The longest line that is accepted, its newline included: some mangled names of functions have a megabyte."""

MAX_HEADER_BYTES: Final = 1 << 20
"""The longest header that is accepted, with its newline: parsed JSON takes up to 40 times its length. LLVM's: 3 KB."""

_OBSERVATION = re.compile(rb'\{"observation":( ?)(0|[1-9][0-9]{0,18})\}\n')
# Among lines longer than a header, JSON is parsed only in those that are an object of two strings: {"context":"NAME"}.
_LONG_CONTEXT = re.compile(rb'\s*\{\s*"[^"\\]{0,99}"\s*:\s*"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*\}\s*')
_MAX_NUMBER = (1 << 63) - 1
# The most bytes requested at once: a file allocates memory for the whole request, however few bytes it has.
_READ_BYTES = 1 << 20


class Readable(Protocol):
    """A source of a log: a file, a pipe, a socket's file. ``read`` may return fewer bytes than requested."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""

    def readline(self, limit: int, /) -> bytes:
        """Return bytes up to and including a newline, at most ``limit``; none at the end."""


class Writable(Protocol):
    """A destination for a log."""

    def write(self, data: bytes, /) -> Any:
        """Write all of ``data``."""


class Context(NamedTuple):
    """The beginning of a context; ``line`` is its line as read, because names can be spelled in several ways."""

    name: str
    line: bytes


class Observation(NamedTuple):
    """One observation: its number, the features' tensors in the header's order, the score's tensor or None."""

    number: int
    tensors: bytes
    score: bytes | None


@dataclass(frozen=True)
class LogHeader:
    """A log's header: its features in order, its score and advice if any, and its line.

    ``line`` is verbatim, without its newline. Two headers are equal if they mean the same, in whatever spelling.
    """

    features: tuple[TensorSpec, ...]
    score: TensorSpec | None = None
    advice: TensorSpec | None = None
    line: bytes = field(default=b"", compare=False)
    tensor_bytes: int = field(init=False, compare=False)
    score_bytes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "tensor_bytes", sum(spec.nbytes for spec in self.features))
        object.__setattr__(self, "score_bytes", 0 if self.score is None else self.score.nbytes)
        if self.tensor_bytes > MAX_TENSOR_BYTES:
            raise FormatError(f"an observation of {self.tensor_bytes} bytes, expected at most {MAX_TENSOR_BYTES}")
        if not self.line:
            object.__setattr__(self, "line", _encode_header(self))

    @property
    def columns(self) -> tuple[TensorSpec, ...]:
        """The features, and the score after them if there is one."""
        return self.features if self.score is None else (*self.features, self.score)

    @property
    def offsets(self) -> tuple[int, ...]:
        """How many bytes of an observation precede each feature."""
        return (0, *accumulate(spec.nbytes for spec in self.features))[:-1]

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each feature is in the bytes of an observation, by its name."""
        starts = zip(self.features, self.offsets, strict=True)
        return {spec.name: slice(start, start + spec.nbytes) for spec, start in starts}

    def difference(self, other: LogHeader) -> str | None:
        """Describe the first difference to another header: ``feature 2 is ... in the first and ...``; None if equal."""
        for index, (mine, theirs) in enumerate(zip_longest(self.features, other.features)):
            if mine != theirs:
                return f"feature {index} is {_described(mine)} in the first and {_described(theirs)} in the second"
        for name in ("score", "advice"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {_described(mine)} in the first and {_described(theirs)} in the second"
        return None


# The logs of one build share a few headers, and parsing JSON of 3 KB takes longer than reading a small log.
@lru_cache(maxsize=16)
def parse_header(line: bytes) -> LogHeader:
    """Make a header from its line, without the newline.

    Raises:
        FormatError: the line is not JSON, or not a header.
    """
    value = _parse_json(line, "a log's header")
    if not isinstance(value, dict) or not isinstance(value.get("features"), list):
        raise FormatError(f"expected a log's header with a list of features, found {_excerpt(line)}")
    features = [parse_spec(item, f"feature {index}") for index, item in enumerate(value["features"])]
    score, advice = (None if value.get(name) is None else parse_spec(value[name], name) for name in ("score", "advice"))
    return LogHeader(tuple(features), score, advice, line)


def read_header(stream: Readable) -> LogHeader:
    """Read a log's first line.

    Raises:
        FormatError: the line is not a header; a TruncatedError if it ends without a newline.
    """
    line = stream.readline(MAX_HEADER_BYTES)
    if not line.endswith(b"\n"):
        if len(line) >= MAX_HEADER_BYTES:
            raise FormatError(f"reading the log's header, found a line of more than {MAX_HEADER_BYTES} bytes", offset=0)
        if line and not line.lstrip().startswith(b"{"):
            raise FormatError(f"expected a log's header, found {_excerpt(line)}", offset=0)
        if not line:
            raise TruncatedError("the log is empty", offset=0)
        raise TruncatedError(f"reading the log's header, expected a line, got {_count(len(line))}", offset=0)
    try:
        return parse_header(line[:-1])
    except FormatError as error:
        raise type(error)(error.message, offset=0) from None


class LogReader:
    """Reader of a log, event by event: for pipes, and the reference for every faster one.

    Args:
        stream: open for reading bytes.

    Attributes:
        header: the header that was read last.
        offset: the number of bytes read; between events, where the next one begins.
        separator: the bytes between an event's key and its value, ``b":"`` or ``b": "``; None before they are known.

    Raises:
        FormatError: the stream does not begin with a header.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.header = read_header(stream)
        self.offset = len(self.header.line) + 1
        self.separator: bytes | None = None

    def __iter__(self) -> Iterator[Context | Observation | LogHeader]:
        """Yield the events up to the end."""
        while (event := self.read_event()) is not None:
            yield event

    def read_event(self) -> Context | Observation | LogHeader | None:
        """Read the next event: a context, an observation with its outcome, or a further header; None at the end.

        Raises:
            FormatError: the log is invalid; has the offset. The reader cannot be used after that.
        """
        start = self.offset
        line = self._read_line("an event")
        if not line:
            return None
        match = _OBSERVATION.fullmatch(line)
        if match is None or int(match[2]) > _MAX_NUMBER or not self._agrees(b":" + match[1]):
            return self._other_event(line, start)
        return self._observation(int(match[2]))

    def _observation(self, number: int) -> Observation:
        header = self.header
        tensors = self._read_tensors(header.features, header.tensor_bytes, f"observation {number}")
        self._read_newline(f"the tensors of observation {number}")
        score = None
        if header.score is not None:
            self._read_outcome(number)
            score = self._read_tensors((header.score,), header.score_bytes, f"the score of observation {number}")
            self._read_newline(f"the score of observation {number}")
        return Observation(number, tensors, score)

    def _read_outcome(self, number: int) -> None:
        start = self.offset
        line = self._read_line(f"the outcome of observation {number}")
        expected = b'{"outcome"%b%d}\n' % (self.separator or b":", number)
        if not line:
            raise TruncatedError(f"expected {_excerpt(expected)}, found the end of the log", offset=start)
        if line != expected:
            raise FormatError(f"expected {_excerpt(expected)}, found {_excerpt(line)}", offset=start)

    def _agrees(self, separator: bytes) -> bool:
        if self.separator is None:
            self.separator = separator
        return self.separator == separator

    def _other_event(self, line: bytes, start: int) -> Context | LogHeader:
        """Make an event of a line that is not an observation."""
        value = None
        try:
            if len(line) <= MAX_HEADER_BYTES or _LONG_CONTEXT.fullmatch(line):
                value = _parse_json(line[:-1], "an event")
            if isinstance(value, dict) and isinstance(value.get("features"), list):
                self.header = parse_header(line[:-1])
                self.separator = None
                return self.header
        except FormatError as error:
            raise type(error)(error.message, offset=start) from None
        if isinstance(value, dict) and list(value) == ["context"] and isinstance(value["context"], str):
            name = value["context"]
            if not is_text(name):
                raise FormatError(f"the context's name {shown(name)} is not Unicode text", offset=start)
            return Context(name, line)
        separator = ":" if self.separator is None else self.separator.decode()
        raise FormatError(
            f'expected {{"context"{separator}NAME}} or {{"observation"{separator}NUMBER}}, found {_excerpt(line)}',
            offset=start,
        )

    def _read_line(self, purpose: str) -> bytes:
        """Read a line with its newline, or nothing at the end."""
        line = self._stream.readline(MAX_LINE_BYTES)
        if line and not line.endswith(b"\n"):
            if len(line) >= MAX_LINE_BYTES:
                message = f"reading {purpose}, found a line of more than {MAX_LINE_BYTES} bytes"
                raise FormatError(message, offset=self.offset)
            found = f"{len(line)} bytes without one: {_excerpt(line)}"
            raise TruncatedError(f"reading {purpose}, expected a newline, found {found}", offset=self.offset)
        self.offset += len(line)
        return line

    def _read_tensors(self, specs: Sequence[TensorSpec], size: int, what: str) -> bytes:
        data = self._read(size)
        if len(data) == size:
            self.offset += size
            return data
        at = 0
        for spec in specs:
            got = len(data) - at
            if got < spec.nbytes:
                raise TruncatedError(
                    f"reading {shown(spec.name)} of {what}, expected {_count(spec.nbytes)}, got {got}",
                    offset=self.offset + at,
                )
            at += spec.nbytes
        raise AssertionError("the tensors are as large as their sum")

    def _read_newline(self, after: str) -> None:
        byte = self._read(1)
        if byte != b"\n":
            kind = FormatError if byte else TruncatedError
            found = _excerpt(byte) if byte else "the end of the log"
            raise kind(f"expected a newline after {after}, found {found}", offset=self.offset)
        self.offset += 1

    def _read(self, size: int) -> bytes:
        data = self._stream.read(min(size, _READ_BYTES))
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and (data := self._stream.read(min(missing, _READ_BYTES))):
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)


class LogWriter:
    """Writer of a log, byte for byte as LLVM writes it, event by event.

    Args:
        stream: the destination.
        header: its line is written unchanged.
        separator: the bytes between an event's key and its value; LLVM's are ``b":"``.

    Raises:
        ValueError: the header is longer than a reader accepts.
    """

    def __init__(self, stream: Writable, header: LogHeader, *, separator: bytes = b":") -> None:
        if len(header.line) >= MAX_HEADER_BYTES:
            raise ValueError(f"a header of {len(header.line)} bytes, expected less than {MAX_HEADER_BYTES}")
        self.header = header
        self.separator = separator
        self._stream: Any = stream
        self._numbers: dict[str | None, int] = {}
        self._context: str | None = None
        stream.write(header.line + b"\n")

    def write_context(self, name: str) -> None:
        """Begin a context, or return to one.

        Raises:
            ValueError: the name is not text, or longer than a reader accepts.
        """
        if not isinstance(name, str) or not is_text(name):
            raise ValueError(f"expected text for a context's name, got {shown(name)}")
        line = encode_context(name, self.separator)
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a context's line of {len(line)} bytes, expected at most {MAX_LINE_BYTES}")
        self._stream.write(line)
        self._context = name

    def write_observation(
        self, values: Mapping[str, Any] | Sequence[Any], score: Any = None, *, number: int | None = None
    ) -> None:
        """Write an observation: a value for each feature, by name or in order, and the score if there is one.

        A value is a number, or nested sequences or an array with the tensor's number of elements. Without a
        ``number`` observations are counted within their context, as LLVM does.

        Raises:
            ValueError: a feature has no value, a value does not fit its tensor, a score is missing or unexpected, or
                the number is out of range. Nothing was written.
        """
        features = self.header.features
        if isinstance(values, Mapping):
            names = {spec.name for spec in features}
            if unknown := [name for name in values if name not in names]:
                raise ValueError(f"the header has no feature {unknown[0]!r}")
            if missing := [spec.name for spec in features if spec.name not in values]:
                raise ValueError(f"no value for feature {missing[0]!r}")
            values = [values[spec.name] for spec in features]
        if len(values) != len(features):
            raise ValueError(f"expected a value for each of {len(features)} features, got {len(values)}")
        self._check_score(score)
        tensors = b"".join(_encode_tensor(spec, value) for spec, value in zip(features, values, strict=True))
        last = None if self.header.score is None else _encode_tensor(self.header.score, score)
        if number is None:
            number = self._numbers.get(self._context, 0)
        self.write_event(Observation(number, tensors, last))

    def write_event(self, event: Context | Observation) -> None:
        """Write an event as it was read; for a context, its line is written, not its name.

        Raises:
            ValueError: an observation does not fit the header, or its number is out of range.
        """
        if isinstance(event, Context):
            self._context = event.name
            self._stream.write(event.line)
            return
        number = event.number
        self._check_observations(number, number, len(event.tensors), event.score, len(event.score or b""))
        self._numbers[self._context] = number + 1
        pieces = [b'{"observation"%b%d}\n' % (self.separator, number), event.tensors, b"\n"]
        if event.score is not None:
            pieces += [b'{"outcome"%b%d}\n' % (self.separator, number), event.score, b"\n"]
        self._stream.write(b"".join(pieces))

    def _check_score(self, score: Any) -> None:
        if (score is None) != (self.header.score is None):
            raise ValueError("the header has no score" if self.header.score is None else "expected a score")

    def _check_observations(self, first: int, last: int, tensor_bytes: int, score: Any, score_bytes: int) -> None:
        """Check that a reader accepts observations ``first`` to ``last`` with tensors and scores of these sizes."""
        header = self.header
        if tensor_bytes != header.tensor_bytes:
            raise ValueError(f"expected tensors of {_count(header.tensor_bytes)}, got {tensor_bytes}")
        self._check_score(score)
        if score_bytes != header.score_bytes:
            raise ValueError(f"expected a score of {_count(header.score_bytes)}, got {score_bytes}")
        if first < 0 or last > _MAX_NUMBER:
            found = first if first < 0 else last
            raise ValueError(f"expected an observation's number from 0 to {_MAX_NUMBER}, got {found}")


def encode_context(name: str, separator: bytes = b":") -> bytes:
    """Return a context's line as LLVM writes it, with its newline."""
    return b'{"context"%b%b}\n' % (separator, _quote(name).encode())


def _encode_tensor(spec: TensorSpec, value: Any) -> bytes:
    array = _array_of_numbers(spec, value)
    if array.size != spec.element_count:
        raise ValueError(f"{spec.name}: expected {spec.element_count} elements, got {array.size}")
    if spec.dtype.kind in "iu":
        limits = np.iinfo(spec.dtype)
        fits = limits.min <= int(array.min()) and int(array.max()) <= limits.max
        stored = array.astype(spec.dtype) if fits else array
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # invalid: a signalling NaN, which becomes a quiet one
            stored = array.astype(spec.dtype)
        fits = bool((np.isinf(stored) == np.isinf(array)).all())
    if not fits:
        raise _misfit(spec)
    return stored.tobytes()


def _array_of_numbers(spec: TensorSpec, value: Any) -> NDArray[Any]:
    """Make an array of a number or of numbers; integers that numpy has no type for stay Python's."""
    whole = spec.dtype.kind in "iu"
    problem = ValueError(f"{spec.name}: expected {'whole ' if whole else ''}numbers for {spec.type}")
    try:
        array = np.asarray(value)
    except ValueError:  # sequences of different lengths
        raise problem from None
    if array.dtype.kind in ("iub" if whole else "iubf"):
        return array
    # numpy turns [0, 1 << 63] into floating-point numbers, and 1 << 64 into an object: it has no type for all integers.
    objects = np.asarray(value, object)
    expected = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if not all(isinstance(item, expected) for item in objects.flat):
        raise problem
    if whole:
        return objects
    try:
        return objects.astype(np.float64)
    except OverflowError:
        raise _misfit(spec) from None


def _misfit(spec: TensorSpec) -> ValueError:
    return ValueError(f"{spec.name}: a value does not fit into {spec.type}")


def _encode_header(header: LogHeader) -> bytes:
    features = ",".join(map(_encode_spec, header.features))
    others = "".join(
        f',"{name}":{_encode_spec(spec)}'
        for name, spec in (("score", header.score), ("advice", header.advice))
        if spec is not None
    )
    return f'{{"features":[{features}]{others}}}'.encode()


def _encode_spec(spec: TensorSpec) -> str:
    shape = ",".join(map(str, spec.shape))
    return f'{{"name":{_quote(spec.name)},"type":"{spec.type}","port":{spec.port},"shape":[{shape}]}}'


_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _quote(text: str) -> str:
    """Write a JSON string as LLVM does (llvm/lib/Support/JSON.cpp): only the needed escapes, in lower case."""
    escaped = _ESCAPED.sub(lambda match: _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}", text)
    return f'"{escaped}"'


def _parse_json(line: bytes, what: str) -> Any:
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):  # a ValueError also for bytes that are not UTF-8
        raise FormatError(f"expected {what} in JSON, found {_excerpt(line)}") from None


def _described(spec: TensorSpec | None) -> str:
    return "missing" if spec is None else f"{spec}"


def _excerpt(data: bytes) -> str:
    return shown(data[:61])[1:]


def _count(number: int) -> str:
    return f"{number} byte{'' if number == 1 else 's'}"
