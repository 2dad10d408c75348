r"""A live session with a compiler, which asks for each decision over one FIFO, and reads the advice from another.

The other side is LLVM's ``InteractiveModelRunner`` (llvm/lib/Analysis/InteractiveModelRunner.cpp), which any stock
clang, opt or llc from LLVM 17 on has. Its options name the channel's BASE::

    -enable-ml-inliner=release -inliner-interactive-channel-base=BASE -inliner-interactive-include-default
    -regalloc-enable-advisor=release -regalloc-evict-interactive-channel-base=BASE
    -regalloc-enable-priority-advisor=release -regalloc-priority-interactive-channel-base=BASE

The compiler opens BASE.in for reading and then BASE.out for writing. It writes a training log
(`mlgo_corpus.formats.logs.events`) to BASE.out, whose header has an ``advice`` and no score. After each observation the
compiler waits until it has read the advice, one tensor of raw bytes, from BASE.in::

    with temporary_channel() as base:
        argv = ("clang", "-c", "a.c", "-o", "a.o", "-mllvm", f"-inliner-interactive-channel-base={base}", ...)
        with InteractiveSession(argv, base, timeout=60) as session:
            for observation in session:
                session.advise(observation.record["inlining_default"])
        print(session.result.usage)

Compilers do the following:

- never open the channel, if there is nothing to decide. The session ends without an observation, and has no header;
- open it again in the same compile: a second header follows, with the same features or others, and numbers restart;
- name hundreds of contexts (functions) without an observation;
- spin at full speed for ever if BASE.in is closed while they wait. So both FIFOs stay open here, in both directions,
  from before the compiler is started until after it is dead.
"""

from __future__ import annotations

import errno
import io
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import numpy as np

from mlgo_corpus.compilers.process import PIPE_CAPACITY, POLL_S, Child, ToolResult
from mlgo_corpus.compilers.walls import Walls
from mlgo_corpus.errors import FormatError, ProtocolError, UsageError
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import is_disk_full, os_reason
from mlgo_corpus.formats.logs.events import Context, LogHeader, LogReader, Observation
from mlgo_corpus.formats.logs.tensors import TensorSpec, shown

# The most bytes of a read: the capacity of a FIFO, 64 KiB by default.
_CHUNK = 1 << 16
# How often a compiler is waited for that had not asked again, before that is looked for first.
_WAITS = 15
# The struct module's names of the element types; for one number, it is much faster than numpy.
_PACKED: Final[Mapping[str, str]] = {
    "float": "f",
    "double": "d",
    "int8_t": "b",
    "uint8_t": "B",
    "int16_t": "h",
    "uint16_t": "H",
    "int32_t": "i",
    "uint32_t": "I",
    "int64_t": "q",
    "uint64_t": "Q",
}
_NEWLINE = 10
_NUMBERS = (int, float, np.integer, np.floating)


@contextmanager
def temporary_channel() -> Iterator[Path]:
    """Yield the base of a channel in a new folder that only this user may enter; remove the folder afterwards."""
    with scratch_folder() as folder:
        yield folder / "channel"


class LiveObservation:
    """An observation that the compiler asks advice for.

    Attributes:
        context: for register allocation, the function under compilation; empty for inlining, None if none was named.
        number: its number within its context, from 0.
        tensors: the features' tensors in the header's order, as received.
    """

    __slots__ = ("_dtype", "_record", "context", "number", "tensors")

    def __init__(self, context: str | None, number: int, tensors: bytes, dtype: np.dtype[np.void]) -> None:
        self.context = context
        self.number = number
        self.tensors = tensors
        self._dtype = dtype
        self._record: np.void | None = None

    @property
    def record(self) -> np.void:
        """A read-only view of the tensors: ``record["mask"]`` is a number, or an array in the feature's shape."""
        record = self._record
        if record is None:
            record = self._record = np.ndarray((1,), self._dtype, self.tensors)[0]
        return record

    def __repr__(self) -> str:
        return f"LiveObservation(context={self.context!r}, number={self.number}, record={self.record})"


class Answered(NamedTuple):
    """What an `Answerer` did.

    Attributes:
        questions: how many were answered.
        consumed: their bytes.
        rest: bytes that were read and not used.
        unsent: the last advice, if it could not be sent.
    """

    questions: int
    consumed: int = 0
    rest: bytes = b""
    unsent: bytes = b""


class Answerer(Protocol):
    """Gives advice in native code, for as long as what comes is the usual next question."""

    def answer(
        self, channel: tuple[int, int], others: Sequence[int], number: int, separator: bytes, seconds: float
    ) -> Answered:
        """Answer questions until something else comes, one of the others is ready, or a time is over.

        Args:
            channel: the descriptors of the questions and of the advice, which never block.
            others: descriptors that the caller has to look at when they are ready.
            number: the number of the next question.
            separator: the text between its key and its number.
            seconds: for how long at most; there may be none.
        """


class InteractiveSession:
    """One run of a compiler that asks for advice; entering the context starts it, leaving it ends it.

    Iteration yields the observations; call `advise` once for each before the next. The iteration ends when the compiler
    has ended successfully. Leaving early kills the compiler. A session runs once, in one thread at a time; any number
    of sessions may run at once.

    Args:
        argv: the compiler's whole command, which names ``base`` itself.
        base: the base of the channel's paths: ``base``.in and ``base``.out are made and removed here; they must not
            exist.
        timeout: the seconds until the compiler is ended, including the time that the caller takes to advise.
        cwd: the folder it runs in (default: ours).
        env: its whole environment (default: ours).
        memory_limit: the address space in bytes that it may have (Linux).
        file_limit: the size in bytes of a file that it may write (Linux).
        walls: its other rights; see `run_tool`.
        stop: an event by which another thread ends the session.
        repair: given a header, returns a function that corrects an observation's tensors, or None if they need no
            correction.

    Attributes:
        header: the current header, None before the first.

    Raises:
        UsageError: (on entering) the FIFOs exist or cannot be made.
        ToolError: the compiler could not be started, failed, ran past its deadline (return code None), was stopped,
            or wrote too much to stdout, as with `run_tool`.
        ProtocolError: its output is not an interactive session, although it did not fail.
    """

    def __init__(
        self,
        argv: Sequence[str],
        base: Path,
        *,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        memory_limit: int | None = None,
        file_limit: int | None = None,
        walls: Walls | None = None,
        stop: threading.Event | None = None,
        repair: Callable[[LogHeader], Callable[[bytes], bytes] | None] | None = None,
    ) -> None:
        self.header: LogHeader | None = None
        self._make_repair = repair
        self._repair: Callable[[bytes], bytes] | None = None
        self._named: list[str] = []
        self._base = base
        self._timeout = timeout
        self._stop = stop
        self._child = Child(argv, cwd=cwd, env=env, memory_limit=memory_limit, file_limit=file_limit, walls=walls)
        self._result: ToolResult | None = None
        self._reader: LogReader | None = None
        self._context: str | None = None
        self._counts: dict[str | None, int] = {}
        self._waiting = False
        self._over = False

    @property
    def result(self) -> ToolResult:
        """The compiler's output and usage, once the iteration has ended."""
        if self._result is None:
            raise RuntimeError("the compiler has not ended yet, or not with success")
        return self._result

    @property
    def contexts(self) -> Mapping[str | None, int]:
        """The contexts since the current header, in order of appearance, and how many observations each had."""
        return MappingProxyType(self._counts)

    def extend(self, seconds: float) -> None:
        """Move the deadline, as for time that the caller took to advise and that is not to count."""
        self._stream.deadline += seconds

    def take_contexts(self) -> tuple[str, ...]:
        """Return the contexts that were named since the last call, in order, with repetitions."""
        named, self._named = tuple(self._named), []
        return named

    def __enter__(self) -> InteractiveSession:
        with ExitStack() as stack:
            self._advice = stack.enter_context(_fifo(Path(f"{self._base}.in")))
            self._requests = stack.enter_context(_fifo(Path(f"{self._base}.out")))
            stack.enter_context(self._child)
            deadline = time.monotonic() + self._timeout
            self._child.watch(self._requests, select.POLLIN)
            self._stream = _Stream(self._child, self._requests, deadline, self._stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over = True
        self._waiting = False
        self._stack.__exit__(*error)

    def __iter__(self) -> Iterator[LiveObservation]:
        return self

    def __next__(self) -> LiveObservation:
        if self._waiting:
            raise RuntimeError("advise on the last observation before asking for the next")
        if self._over:
            if self._result is not None:
                raise StopIteration
            raise RuntimeError("the session is over")
        self._over = True  # unless the next observation comes
        observation = None
        if self._stream.fill():
            observation = self._expected_observation() or self._plain_observation()
        if observation is None:
            self._end()
            raise StopIteration
        self._waiting = True
        self._over = False
        return observation

    def advise(self, value: Any) -> bytes:
        """Send the advice for the last observation.

        Args:
            value: the advice as bytes, or one number for each of its elements: an int, a float, or a scalar, array or
                sequence of numpy's or Python's. Whole numbers are converted to floating-point advice, and
                floating-point numbers to integers only if they are whole.

        Returns:
            The tensor that was sent.

        Raises:
            ValueError: the value does not fit the header's advice; nothing was sent.
            RuntimeError: no observation waits for advice.
            ToolError: the deadline passed before the compiler read the advice.
        """
        if not self._waiting:
            raise RuntimeError("no observation waits for advice")
        try:
            data = self._pack(value) if isinstance(value, _NUMBERS) else encode_advice(self._advice_spec, value)
        except (struct.error, OverflowError):  # the slow way explains errors, and accepts 1.0 for 1
            data = encode_advice(self._advice_spec, value)
        try:
            sent = os.write(self._advice, data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._send_rest(data[sent:])
        self._waiting = False
        return data

    def hand_over(self, answerer: Answerer) -> None:
        """Have another answer the questions that follow, until something else comes, which the iteration then yields.

        Raises:
            RuntimeError: an observation waits for advice.
            ToolError: as with `advise`.
        """
        if self._waiting:
            raise RuntimeError("advise on the last observation before handing over")
        reader, stream, child = self._reader, self._stream, self._child
        if reader is None or reader.separator is None or stream.has_more():
            return
        while child.wait(stream.deadline, self._stop):
            others, wake = child.awaited()
            number = self._counts.get(self._context, 0)
            channel = (self._requests, self._advice)
            found = answerer.answer(
                channel, others, number, reader.separator, min(wake, stream.deadline) - time.monotonic()
            )
            reader.offset += found.consumed
            if found.questions:
                self._counts[self._context] = number + found.questions
            if found.unsent:
                self._send_rest(found.unsent)
            if found.rest:
                stream.put_back(found.rest)
                return

    def _send_rest(self, data: bytes) -> None:
        """Send what did not fit into the FIFO; if the compiler ends meanwhile, the next read raises the reason."""
        child = self._child
        child.watch(self._advice, select.POLLOUT)
        while data and child.wait(self._stream.deadline, self._stop):
            with suppress(BlockingIOError):
                data = data[os.write(self._advice, data) :]
        child.watch(self._requests, select.POLLIN)

    def _expected_observation(self) -> LiveObservation | None:
        """Return the next observation if it has the expected spelling and number, and nothing is before or after it."""
        reader, stream = self._reader, self._stream
        if reader is None or reader.separator is None:
            return None
        number = self._counts.get(self._context, 0)
        line = b'{"observation"%b%d}\n' % (reader.separator, number)
        size = len(line) + self._tensor_bytes + 1
        data = stream.data
        if not data.startswith(line) or (len(data) < size and not stream.extend(size)):
            return None
        data = stream.data
        if len(data) != size or data[-1] != _NEWLINE:
            return None
        stream.at = size
        reader.offset += size
        self._counts[self._context] = number + 1
        return self._observation(number, data[len(line) : -1])

    def _plain_observation(self) -> LiveObservation | None:
        """Read events up to the next observation; None at the end."""
        try:
            if self._reader is None:
                self._reader = LogReader(self._stream)
                self._use_header(self._reader.header)
            while (event := self._reader.read_event()) is not None:
                if isinstance(event, Context):
                    self._context = event.name
                    self._named.append(event.name)
                    self._counts.setdefault(event.name, 0)
                elif isinstance(event, LogHeader):
                    self._use_header(event)
                else:
                    return self._checked(event)
        except FormatError as error:
            self._broken(str(error.at(Path(f"{self._base}.out"))))
        return None

    def _checked(self, event: Observation) -> LiveObservation:
        where = f"observation {event.number}" + (f" of {self._context!a}" if self._context is not None else "")
        number = self._counts.get(self._context, 0)
        if event.number != number:
            self._broken(f"expected observation {number}, found {where}")
        if self._stream.ended:
            self._broken(f"ended before it read the advice for {where}")
        if left := len(self._stream.data) - self._stream.at:
            self._broken(f"expected it to wait for the advice for {where}, found {left} more bytes")
        self._counts[self._context] = number + 1
        return self._observation(number, event.tensors)

    def _observation(self, number: int, tensors: bytes) -> LiveObservation:
        if self._repair is not None:
            tensors = self._repair(tensors)
        return LiveObservation(self._context, number, tensors, self._dtype)

    def _use_header(self, header: LogHeader) -> None:
        if header.advice is None:
            self._broken("expected a header with an advice, found one without")
        if header.score is not None:
            self._broken("expected a header without a score, found one with a score")
        self._check_advice_was_read()
        try:
            self._dtype = record_dtype(header)
        except ValueError as error:  # two features of one name
            self._broken(f"invalid features in the header: {error}")
        self._tensor_bytes = header.tensor_bytes
        self._repair = None if self._make_repair is None else self._make_repair(header)
        self._advice_spec = header.advice
        self._pack: Callable[[Any], bytes] = struct.Struct(
            f"={header.advice.element_count}{_PACKED[header.advice.type]}"
        ).pack
        self._context = None
        self._counts = {}
        self.header = header

    def _check_advice_was_read(self) -> None:
        """Check that no advice is left unread: it would become the answer to another observation."""
        with suppress(BlockingIOError):
            left = len(os.read(self._advice, _CHUNK))
            self._broken(f"did not read the advice for its last observation: {left} bytes are left")

    def _end(self) -> None:
        """Reap a compiler that has ended, and set the result."""
        self._child.close()
        result = self._child.result()
        self._check_advice_was_read()
        self._result = result

    def _broken(self, message: str) -> NoReturn:
        """End the compiler and raise the error that it broke the protocol."""
        child = self._child
        child.close()
        raise ProtocolError(message, child.argv, child.stderr_text(), child.usage)


class _Stream:
    """The compiler's output to its FIFO, as a stream that ends when the compiler has ended.

    Attributes:
        data: the buffer of bytes that were read.
        at: the position of the next event in it.
        ended: whether the compiler has ended, so that no more bytes will come.
        deadline: until when to wait for them, of ``time.monotonic``.
    """

    def __init__(self, child: Child, descriptor: int, deadline: float, stop: threading.Event | None) -> None:
        self.data = b""
        self.at = 0
        self.ended = False
        # If the FIFO is empty, this returns None, but os.read raises, which takes twice the time.
        self._read_into = io.FileIO(descriptor, closefd=False).readinto
        self._chunk = memoryview(bytearray(_CHUNK))
        self._look = 0.0
        self._waits = 0
        self._left = PIPE_CAPACITY
        self._put_back = b""
        self._child = child
        self.deadline = deadline
        self._stop = stop

    def _take(self) -> bytes:
        """Return what there is; none if there is nothing."""
        # Room of a chunk for each of these few bytes would be most of the cost.
        size = self._read_into(self._chunk)
        return bytes(self._chunk[:size]) if size else b""

    def has_more(self) -> bool:
        """Return True if there are bytes that are not read yet."""
        return self.at < len(self.data) or bool(self._put_back)

    def put_back(self, data: bytes) -> None:
        """Have the next refill begin with bytes that were read elsewhere."""
        self._put_back = data

    def fill(self) -> bool:
        """Refill the buffer, all of which is used; return False at the end.

        Raises:
            ToolError: the compiler has failed, or `Child.wait` raised it.
        """
        # A fast compiler has already asked again, so that waiting first would waste a call; with a slow one, looking
        # first does. But its pipes, its end and the deadline must be checked regularly, even if it always asks at once.
        data, self._put_back = self._put_back, b""
        if data:
            pass
        elif self._waits:
            self._waits -= 1
        elif time.monotonic() < self._look and not (data := self._take()):
            self._waits = _WAITS
        self.data = data or self._awaited()
        self.at = 0
        return bool(self.data)

    def extend(self, size: int) -> bool:
        """Add to the buffer until it has ``size`` bytes or more; return False if that is too many, or at the end."""
        if size > _CHUNK:
            return False
        while len(self.data) - self.at < size:
            chunk = self._awaited()
            if not chunk:
                return False
            self.data, self.at = self.data[self.at :] + chunk, 0
        return True

    def _awaited(self) -> bytes:
        """Wait for more bytes and return them; none at the end."""
        if not self.ended:
            while self._child.wait(self.deadline, self._stop):
                if chunk := self._take():
                    self._look = time.monotonic() + POLL_S
                    return chunk
            self.ended = True
            self._child.close()
            self._child.result()  # raises if it failed: then nothing else matters
        # Stop after the most that the FIFO can have held when the compiler ended, even if another process writes to it.
        self._left -= _CHUNK
        return self._take() if self._left >= 0 else b""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, at least one; none at the end."""
        if self.at >= len(self.data) and not self.fill():
            return b""
        piece = self.data[self.at : self.at + size]
        self.at += len(piece)
        return piece

    def readline(self, limit: int, /) -> bytes:
        """Return bytes up to and including a newline, at most ``limit``."""
        pieces = []
        while limit and (self.at < len(self.data) or self.fill()):
            stop = self.data.find(b"\n", self.at, self.at + limit) + 1
            piece = self.read(stop - self.at if stop else limit)
            pieces.append(piece)
            limit -= len(piece)
            if stop:
                break
        return b"".join(pieces)


@contextmanager
def _fifo(path: Path) -> Iterator[int]:
    """Make a FIFO, yield a descriptor that keeps both of its ends open and never blocks, and remove it afterwards."""
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        raise UsageError(f"{path}: exists already; a session makes its FIFOs itself") from None
    except OSError as error:
        if is_disk_full(error) or error.errno == errno.EIO:  # the disk's fault, not the folder's
            raise
        raise UsageError(f"{path}: cannot make a FIFO: {os_reason(error)}") from None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    finally:
        with suppress(OSError):
            path.unlink()


def record_dtype(header: LogHeader) -> np.dtype[np.void]:
    """Return the type of an observation's tensors as one packed record, a field per feature.

    Raises:
        ValueError: two features have the same name.
    """
    return np.dtype(
        {
            "names": [spec.name for spec in header.features],
            "formats": [spec.dtype if spec.is_scalar else (spec.dtype, spec.shape) for spec in header.features],
        }
    )


def encode_advice(spec: TensorSpec, value: Any) -> bytes:
    """Return advice as the bytes that the compiler reads: those of one tensor.

    Raises:
        ValueError: ``value`` does not fit the spec; see `InteractiveSession.advise`.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        if len(data := bytes(value)) != spec.nbytes:
            raise ValueError(f"{spec.name}: expected {spec.nbytes} bytes of advice, got {len(data)}")
        return data
    array = np.asarray(value, object)
    if array.size != spec.element_count:
        raise ValueError(f"{spec.name}: expected advice of {spec.element_count} elements, got {array.size}")
    convert = _whole if spec.dtype.kind in "iu" else _floating
    numbers = [convert(spec, item) for item in array.flat]
    return np.array(numbers, spec.dtype).tobytes()


def _whole(spec: TensorSpec, item: Any) -> int:
    limits = np.iinfo(spec.dtype)
    if isinstance(item, (*_NUMBERS, np.bool_)):
        with suppress(ValueError, OverflowError):  # NaN, infinity
            number = int(item)
            if number == item and limits.min <= number <= limits.max:
                return number
    raise ValueError(f"{spec.name}: expected a whole number that fits into {spec.type} as advice, got {shown(item)}")


def _floating(spec: TensorSpec, item: Any) -> float:
    if isinstance(item, (*_NUMBERS, np.bool_)):
        with suppress(OverflowError), np.errstate(over="ignore"):
            number = float(item)
            if np.isinf(spec.dtype.type(number)) == np.isinf(number):
                return number
    raise ValueError(f"{spec.name}: expected a number that fits into {spec.type} as advice, got {shown(item)}")
