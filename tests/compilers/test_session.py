from __future__ import annotations

import os
import pickle
import random
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus.compilers import process
from mlgo_corpus.compilers import session as interactive
from mlgo_corpus.compilers.session import (
    Answered,
    InteractiveSession,
    LiveObservation,
    encode_advice,
    temporary_channel,
)
from mlgo_corpus.errors import ProtocolError, ToolError, Usage, UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tensors import TensorSpec
from tests.conftest import ROOT, Llvm
from tests.fake_compiler import HEADER, context, observation
from tests.processes import alive, children, dies

FAKE = ROOT / "tests" / "fake_compiler.py"

pytestmark = pytest.mark.whole


def fake(folder: Path, mode: str, argument: object = "") -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(FAKE), str(folder / "ch"), str(folder / "pid"), mode, str(argument))


def session(folder: Path, mode: str, argument: object = "", **options: Any) -> InteractiveSession:
    return InteractiveSession(fake(folder, mode, argument), folder / "ch", **{"timeout": 300.0, **options})


def advise_all(live: InteractiveSession, value: Any = 7) -> list[LiveObservation]:
    observations = []
    for item in live:
        observations.append(item)
        live.advise(value)
    return observations


def run(folder: Path, mode: str, argument: object = "", **options: Any) -> list[LiveObservation]:
    with session(folder, mode, argument, **options) as live:
        return advise_all(live)


def pid_in(path: Path) -> int:
    end = time.monotonic() + 300
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.005)
    return int(path.read_text())


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """After each test: no child, no descriptor, no FIFO."""
    before, descriptors = children(), set(os.listdir("/dev/fd"))
    yield
    assert children() <= before
    assert set(os.listdir("/dev/fd")) == descriptors
    assert not [path for path in tmp_path.rglob("*") if path.is_fifo()]
    pid_file = tmp_path / "pid"
    assert not pid_file.exists() or not alive(int(pid_file.read_text()))


@pytest.fixture(params=["pidfd", "naps"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that tells when a process ends, and one that does not."""
    if request.param == "naps":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


# What goes well.


@pytest.mark.usefixtures("system")
def test_observations_come_and_advice_goes(tmp_path: Path) -> None:
    with session(tmp_path, "proper", 5) as live:
        assert live.header is None
        found = []
        for item in live:
            assert live.header is not None
            found.append((item.context, item.number, item.record["x"], item.record["v"].tolist(), item.tensors))
            live.advise(100 + item.number)
    assert found == [(None, n, 10 * n, [1, 2, 3], observation(n)[18:-1]) for n in range(5)]
    assert live.result.stdout == b"100 101 102 103 104\n"
    assert live.result.argv == fake(tmp_path, "proper", 5)
    assert live.result.usage.wall_s > 0
    assert live.result.usage.cpu_s > 0
    assert live.contexts == {None: 5}
    assert list(live) == []


def test_a_record_is_a_view_of_what_was_received(tmp_path: Path) -> None:
    with session(tmp_path, "proper", 1) as live:
        item = next(live)
        assert item.record is item.record
        assert item.record.dtype.names == ("x", "v")
        assert item.record.dtype["v"].shape == (3,)
        assert item.record.tobytes() == item.tensors
        assert np.shares_memory(item.record["v"], np.frombuffer(item.tensors, np.uint8))
        with pytest.raises(ValueError, match="read-only"):
            item.record["v"][0] = 5
        assert repr(item).startswith("LiveObservation(context=None, number=0, record=(0, [1.")
        live.advise(1)
        assert list(live) == []


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(("mode", "count"), [("spaced", 3), ("pieces", 3), ("reopen", 2), ("only_in", 0)])
def test_other_ways_to_do_it_right(tmp_path: Path, mode: str, count: int) -> None:
    assert [item.number for item in run(tmp_path, mode)] == list(range(count))


def test_a_compiler_that_decides_nothing_never_opens_the_channel(tmp_path: Path) -> None:
    with session(tmp_path, "silent", 0) as live:
        assert advise_all(live) == []
    assert live.header is None
    assert live.contexts == {}
    assert live.result.stdout == b"compiled\n"


def test_contexts_without_observations_and_contexts_that_come_back(tmp_path: Path) -> None:
    with session(tmp_path, "contexts") as live:
        found = [(item.context, item.number) for item in advise_all(live)]
    assert found == [*(("f", 0), ("f", 1), ("g", 0), ("g", 1)), *(("f", 2), ("f", 3), ("g", 2), ("g", 3))]
    assert list(live.contexts) == ["f", "g", *(f"h{index}" for index in range(200)), "end"]
    assert live.contexts["f"] == 4
    assert live.contexts["end"] == 0


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("second", ["same", "another"])
def test_the_channel_may_be_opened_twice(tmp_path: Path, second: str) -> None:
    found = []
    with session(tmp_path, "twice", second) as live:
        for item in live:
            assert live.header is not None
            assert live.header.advice is not None
            found.append((item.context, item.number, item.record.dtype.names, live.header.advice.type))
            live.advise(3)
    same = [("f", number, ("x", "v"), "int64_t") for number in range(2)]
    again = [(None, number, ("x", "v"), "int64_t") for number in range(2)]
    other = [(None, number, ("w",), "float") for number in range(2)]
    assert found == same + (again if second == "same" else other)
    assert live.result.stdout == (b"3 3\n3 3\n" if second == "same" else b"3 3\n3.0\n3.0\n")


def test_floods_are_read_while_the_session_goes_on(tmp_path: Path) -> None:
    with session(tmp_path, "flood", "stderr") as live:
        assert len(advise_all(live)) == 4
    assert live.result.stderr.endswith("x\nthe end\n")
    assert len(live.result.stderr) == process.STDERR_TAIL


def test_advice_larger_than_a_fifo(tmp_path: Path) -> None:
    with session(tmp_path, "big_advice", "slowly") as live:
        advise_all(live, np.zeros(100_000))
    assert live.result.stdout == b"800000\n"


def test_a_process_that_the_compiler_leaves_is_killed_and_delays_nothing(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert len(run(tmp_path, "grandchild", tmp_path / "grandchild")) == 1
    assert time.monotonic() - begin < 300
    assert dies(pid_in(tmp_path / "grandchild"))


def converse(count: int) -> bytes:
    with temporary_channel() as base:
        argv = (*fake(base.parent, "proper", count)[:4], str(base), str(base.parent / "pid"), "proper", str(count))
        with InteractiveSession(argv, base, timeout=300) as live:
            advise_all(live, count)
        return live.result.stdout


def test_many_sessions_at_once_in_threads() -> None:
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(converse, range(12))) == [b" ".join([b"%d" % n] * n) + b"\n" for n in range(12)]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_sessions_in_forked_workers() -> None:
    with get_context("fork").Pool(2) as pool:
        assert pool.map(converse, [3, 4]) == [b"3 3 3\n", b"4 4 4 4\n"]
        pool.close()
        pool.join()


class Sevens:
    """Answers 7 to the usual next question."""

    def __init__(self) -> None:
        self.questions = 0

    def answer(
        self, channel: tuple[int, int], others: Sequence[int], number: int, separator: bytes, seconds: float
    ) -> Answered:
        done, consumed, until = 0, 0, time.monotonic() + seconds
        while True:
            left = max(0.0, until - time.monotonic())
            ready = select.select([channel[0], *others], [], [], left)[0]
            if ready != [channel[0]]:
                return Answered(done, consumed)
            data = os.read(channel[0], 1 << 16)
            expected = observation(number + done, separator)
            if len(data) != len(expected) or not data.startswith(expected[:18]) or not data.endswith(b"\n"):
                return Answered(done, consumed, data)
            os.write(channel[1], struct.pack("=q", 7))
            done, consumed, self.questions = done + 1, consumed + len(data), self.questions + 1


def outcome(folder: Path, mode: str, argument: object, answerer: Sevens | None) -> tuple[object, ...]:
    """Return how a session ended, and what it said of its questions."""
    live = session(folder, mode, argument)
    yielded = 0
    try:
        with live:
            for _ in live:
                yielded += 1
                live.advise(7)
                if answerer is not None:
                    live.hand_over(answerer)
            return live.result.stdout, yielded, dict(live.contexts)
    except (ProtocolError, ToolError) as error:
        return type(error), str(error), yielded, dict(live.contexts)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    ("mode", "argument"),
    [
        *(("proper", 5), ("spaced", ""), ("pieces", ""), ("reopen", ""), ("contexts", ""), ("twice", "same")),
        *(("twice", "another"), ("flood", "stderr"), ("failing", 3), ("signalled", 2), ("numbers", "0,1,3")),
        ("cut", f"{len(HEADER + context('f') + observation(0) + observation(1)) - 1},0"),
    ],
)
def test_handing_over_changes_nothing_but_who_answers(tmp_path: Path, mode: str, argument: object) -> None:
    answerer = Sevens()
    *plain, questions, contexts = outcome(tmp_path, mode, argument, None)
    *handed, yielded, named = outcome(tmp_path, mode, argument, answerer)
    assert (handed, named) == (plain, contexts)
    assert isinstance(questions, int)
    assert yielded == questions - answerer.questions
    if mode in ("proper", "spaced"):
        assert yielded == 1


def test_handing_over_again_loses_nothing(tmp_path: Path) -> None:
    """What was put back comes before what the channel has."""
    with session(tmp_path, "pieces") as live:
        for item in live:
            live.advise(item.number)
            for _ in range(3):
                live.hand_over(Sevens())
    assert live.contexts == {None: 3}


def test_handing_over_with_a_question_open_is_refused(tmp_path: Path) -> None:
    with session(tmp_path, "proper", 2) as live:
        next(live)
        with pytest.raises(RuntimeError, match="advise on the last observation"):
            live.hand_over(Sevens())


# What a compiler does wrong.


def test_a_failure_without_a_decision(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"exit code 1: error: no such thing$") as caught:
        run(tmp_path, "silent", 1)
    assert isinstance(caught.value.usage, Usage)


@pytest.mark.usefixtures("system")
def test_a_failure_after_all_decisions(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"exit code 3: error: after all$") as caught:
        run(tmp_path, "failing", 3)
    assert caught.value.returncode == 3
    assert caught.value.usage is not None
    assert caught.value.usage.cpu_s > 0


def test_a_signal(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"ended by signal 9$") as caught:
        run(tmp_path, "signalled", 2)
    assert caught.value.returncode == -signal.SIGKILL


LOG = HEADER + context("f") + observation(0) + observation(1)
FIRST = len(HEADER + context("f") + observation(0))
CUTS = [1, len(HEADER) - 1, len(HEADER) + 5, FIRST - 30, FIRST - 3, FIRST - 1, FIRST + 1, FIRST + 20, len(LOG) - 1]


@pytest.mark.parametrize("size", CUTS)
def test_a_message_cut_short_is_told_by_what_was_being_read(tmp_path: Path, size: int) -> None:
    with pytest.raises(ProtocolError, match=rf": {tmp_path}/ch\.out: byte \d+: .*expected ") as caught:
        run(tmp_path, "cut", f"{size},0")
    assert caught.value.usage is not None
    assert any(word in caught.value.message for word in ("header", "event", "observation"))


@pytest.mark.parametrize("size", [0, *CUTS])
def test_a_failure_explains_a_message_cut_short(tmp_path: Path, size: int) -> None:
    with pytest.raises(ToolError, match=r"exit code 5$"):
        run(tmp_path, "cut", f"{size},5")


class EndedChild:
    """A compiler that has ended with success; its advice goes nowhere."""

    argv = ("cc",)
    usage = None

    def close(self) -> None: ...

    def result(self) -> None: ...

    def stderr_text(self) -> str:
        return ""


def ends_after(data: bytes, folder: Path) -> tuple[list[int], ProtocolError | None]:
    """Give the observations and the error of a session in which ``data`` comes byte by byte and then the end."""
    pieces = iter([data[at : at + 1] for at in range(len(data))])
    live = InteractiveSession(("cc",), folder / "ch", timeout=1)
    live._child = EndedChild()  # type: ignore[assignment]
    live._advice, other = os.pipe()
    os.set_blocking(live._advice, False)
    live._stream = interactive._Stream(live._child, live._advice, 0.0, None)
    live._stream._awaited = lambda: next(pieces, b"")  # type: ignore[method-assign]
    found = []
    try:
        for item in live:
            found.append(item.number)
            live._waiting = False
    except ProtocolError as error:
        return found, error
    finally:
        os.close(live._advice)
        os.close(other)
    return found, None


@pytest.mark.parametrize("size", range(len(LOG) + 1))
def test_every_offset_at_which_a_compiler_can_end(tmp_path: Path, size: int) -> None:
    found, error = ends_after(LOG[:size], tmp_path)
    assert found == list(range((size >= FIRST) + (size >= len(LOG))))
    whole = (0, len(HEADER), len(HEADER + context("f")), FIRST, len(LOG))
    assert (error is None) == (size in whole)
    if error is not None:
        event = max(offset for offset in whole if offset < size)
        offset = int(error.message.partition("ch.out: byte ")[2].partition(":")[0])
        assert event <= offset <= size


def raw(data: bytes) -> str:
    return data.hex()


NO_ADVICE = b'{"features":[{"name":"x","type":"int64_t","port":0,"shape":[1]}]}\n'
SCORED = HEADER.replace(b'"advice"', b'"score":{"name":"s","type":"float","port":0,"shape":[1]},"advice"')


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"garbage\n", "byte 0: expected a log's header in JSON, found 'garbage'"),
        (b"[]\n", "byte 0: expected a log's header with a list of features"),
        (NO_ADVICE, "expected a header with an advice, found one without"),
        (SCORED, "expected a header without a score, found one with a score"),
        (HEADER.replace(b'"v"', b'"x"'), "invalid features in the header: name already used"),
        (HEADER + b"warning: odd\n", "expected an event in JSON, found 'warning: odd'"),
        (HEADER + observation(0)[:-1] + b"{", "expected a newline after the tensors of observation 0, found '{'"),
        (HEADER + observation(3), "expected observation 0, found observation 3"),
        (HEADER + context("f") + observation(1), "expected observation 0, found observation 1 of 'f'"),
        (HEADER + observation(0) + b"{", "wait for the advice for observation 0, found 1 more bytes"),
        (HEADER + NO_ADVICE, "expected a header with an advice, found one without"),
    ],
)
def test_what_is_no_session_is_told(tmp_path: Path, data: bytes, message: str) -> None:
    begin = time.monotonic()
    with pytest.raises(ProtocolError, match=message) as caught:
        run(tmp_path, "raw", raw(data))
    assert time.monotonic() - begin < 300
    assert caught.value.argv == fake(tmp_path, "raw", raw(data))


@pytest.mark.parametrize(("numbers", "wrong"), [("0,1,3", "2, found observation 3"), ("0,0", "1, found observation 0")])
def test_numbers_must_count(tmp_path: Path, numbers: str, wrong: str) -> None:
    with pytest.raises(ProtocolError, match=f"expected observation {wrong}$"):
        run(tmp_path, "numbers", numbers)


@pytest.mark.parametrize("how", ["exit", "reopen"])
def test_advice_that_is_not_read_is_noticed(tmp_path: Path, how: str) -> None:
    with pytest.raises(ProtocolError, match="did not read the advice for its last observation"):
        run(tmp_path, "deaf", how)


def test_two_questions_at_once(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=r"wait for the advice for observation 0, found \d+ more bytes"):
        run(tmp_path, "impatient")


def test_a_question_and_no_wait(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="advice for"):
        run(tmp_path, "after_the_last")


def test_an_endless_line(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="reading an event, found a line of more than 16777216 bytes"):
        run(tmp_path, "long_line")


def test_a_flood_on_stdout_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STDOUT_LIMIT", 1 << 20)
    with pytest.raises(ToolError, match="more than 1048576 bytes on stdout"):
        run(tmp_path, "flood", "stdout")


# Deadlines, and leaving early.


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("size", [0, 10, len(HEADER), len(HEADER) + 8, len(HEADER + observation(0)) - 1])
def test_hanging_at_any_point_ends_at_the_deadline(tmp_path: Path, size: int) -> None:
    begin = time.monotonic()
    with pytest.raises(ToolError, match=r"did not finish in time(: stuck)?$") as caught:
        run(tmp_path, "hang", size, timeout=0.7)
    assert caught.value.returncode is None
    assert caught.value.usage is not None
    assert 0.7 <= time.monotonic() - begin < 300


@pytest.mark.parametrize(("mode", "size"), [("hang_unopened", ""), ("hang", len(HEADER + observation(0)))])
def test_hanging_before_the_channel_and_after_the_advice(tmp_path: Path, mode: str, size: object) -> None:
    with pytest.raises(ToolError, match="did not finish in time"):
        run(tmp_path, mode, size, timeout=0.7)


def test_the_deadline_counts_while_decisions_flow(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="did not finish in time"):
        run(tmp_path, "proper", 1 << 40, timeout=0.7)


def test_the_deadline_can_be_moved(tmp_path: Path) -> None:
    with session(tmp_path, "proper", 5, timeout=0.0) as live:
        live.extend(60)
        assert len(advise_all(live)) == 5


@pytest.mark.parametrize(
    ("how", "timeout", "message"),
    [("never", 1.5, "did not finish in time"), ("die", 300, "exit code 1: error: enough")],
)
def test_advice_that_does_not_fit_waits_no_longer_than_the_deadline(
    tmp_path: Path, how: str, timeout: float, message: str
) -> None:
    with pytest.raises(ToolError, match=message), session(tmp_path, "big_advice", how, timeout=timeout) as live:
        advise_all(live, np.zeros(100_000))


def test_ignoring_sigterm_does_not_help(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(ToolError, match="did not finish in time"):
        run(tmp_path, "stubborn", timeout=0.7)
    assert time.monotonic() - begin < 300


def test_another_thread_may_stop_a_session(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.4, stop.set).start()
    with pytest.raises(ToolError, match="stopped"):
        run(tmp_path, "hang", len(HEADER), stop=stop)


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_leaving_early_ends_the_compiler(tmp_path: Path, asked: int) -> None:
    begin = time.monotonic()
    with session(tmp_path, "proper", 1000) as live:
        for _ in range(asked):
            next(live)
            live.advise(1)
    assert time.monotonic() - begin < 300
    with pytest.raises(RuntimeError, match="has not ended yet, or not with success"):
        _ = live.result
    with pytest.raises(RuntimeError, match="the session is over"):
        next(live)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_an_error_of_the_host_ends_the_compiler(tmp_path: Path, error: type[BaseException]) -> None:
    def host() -> None:
        with session(tmp_path, "proper", 1000) as live:
            next(live)
            raise error

    with pytest.raises(error):
        host()


def test_ctrl_c_while_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, wait = threading.Event(), process.Child.wait

    def wait_and_tell(self: process.Child, *limits: Any) -> bool:
        waits.set()
        return wait(self, *limits)

    monkeypatch.setattr(process.Child, "wait", wait_and_tell)

    def interrupt() -> None:
        pid_in(tmp_path / "pid")
        waits.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "hang", len(HEADER))
    thread.join()


def test_after_an_error_the_session_is_over(tmp_path: Path) -> None:
    with session(tmp_path, "failing", 0) as live:
        with pytest.raises(ToolError):
            next(live)
        with pytest.raises(RuntimeError, match="the session is over"):
            next(live)


@pytest.mark.parametrize("seed", range(20))
def test_a_compiler_killed_at_any_moment(tmp_path: Path, seed: int) -> None:
    delay = random.Random(seed).uniform(0, 0.15)

    def kill() -> None:
        pid = pid_in(tmp_path / "pid")
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(ToolError, match=r"ended by signal 9$") as caught:
        run(tmp_path, "proper", 1 << 40)
    thread.join()
    assert caught.value.returncode == -signal.SIGKILL
    assert caught.value.usage is not None
    assert caught.value.usage.wall_s < 300


# What a host does wrong, and what the system refuses.


def test_advice_must_come_before_the_next_question(tmp_path: Path) -> None:
    with session(tmp_path, "proper", 2) as live:
        with pytest.raises(RuntimeError, match="no observation waits for advice"):
            live.advise(1)
        next(live)
        with pytest.raises(RuntimeError, match="advise on the last observation before asking for the next"):
            next(live)
        live.advise(1)
        with pytest.raises(RuntimeError, match="no observation waits for advice"):
            live.advise(1)
        next(live)
        with pytest.raises(ValueError, match="expected a whole number"):
            live.advise(0.5)
        live.advise(5)
        assert list(live) == []
    assert live.result.stdout == b"1 5\n"


WHOLE, NUMBER, BYTE = TensorSpec("a", "int64_t"), TensorSpec("a", "float"), TensorSpec("a", "uint8_t", (2,))


@pytest.mark.parametrize(
    ("spec", "value", "stored"),
    [
        (WHOLE, 5, [5]),
        (WHOLE, -1.0, [-1]),
        (WHOLE, True, [1]),
        (WHOLE, np.bool_(True), [1]),
        (WHOLE, np.int8(-3), [-3]),
        (WHOLE, np.float32(4), [4]),
        (WHOLE, np.array([[6]]), [6]),
        (WHOLE, [7], [7]),
        (WHOLE, (1 << 63) - 1, [(1 << 63) - 1]),
        (WHOLE, np.int64(9).tobytes(), [9]),
        (NUMBER, 5, [5]),
        (NUMBER, 0.5, [0.5]),
        (NUMBER, np.float64("inf"), [np.inf]),
        (NUMBER, np.array([2.5]), [2.5]),
        (BYTE, [0, 255], [0, 255]),
        (BYTE, np.array([1.0, 2.0]), [1, 2]),
        (BYTE, memoryview(b"\1\2"), [1, 2]),
    ],
)
def test_advice_is_converted(spec: TensorSpec, value: Any, stored: list[Any]) -> None:
    assert np.frombuffer(encode_advice(spec, value), spec.dtype).tolist() == stored


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        (WHOLE, 0.5, r"a: expected a whole number that fits into int64_t as advice, got 0\.5"),
        (WHOLE, float("nan"), "whole number"),
        (WHOLE, float("inf"), "whole number"),
        (WHOLE, 1 << 63, "fits into int64_t"),
        (WHOLE, np.uint64(1 << 63), "fits into int64_t"),
        (WHOLE, None, "got None"),
        (WHOLE, "1", "got '1'"),
        (WHOLE, 1j, "whole number"),
        (WHOLE, [1, 2], "expected advice of 1 elements, got 2"),
        (WHOLE, [], "expected advice of 1 elements, got 0"),
        (WHOLE, b"1234567", "expected 8 bytes of advice, got 7"),
        (NUMBER, 1e300, r"a: expected a number that fits into float as advice, got 1e\+300"),
        (NUMBER, 1 << 2000, "fits into float"),
        (NUMBER, "x", "got 'x'"),
        (NUMBER, np.complex64(1j), "expected a number"),
        (BYTE, [1, 256], "fits into uint8_t"),
        (BYTE, 1, "expected advice of 2 elements, got 1"),
    ],
)
def test_advice_that_does_not_fit_is_refused(spec: TensorSpec, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_advice(spec, value)


@pytest.mark.parametrize("end", ["in", "out"])
def test_a_channel_that_exists_is_not_touched(tmp_path: Path, end: str) -> None:
    taken = tmp_path / f"ch.{end}"
    taken.write_text("mine")
    with pytest.raises(UsageError, match=rf"ch\.{end}: exists already; a session makes its FIFOs itself"):
        run(tmp_path, "proper", 1)
    assert taken.read_text() == "mine"
    assert not (tmp_path / "pid").exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("x" * 300, "File name too long"), ("no/ch", "No such file or directory")]
)
def test_fifos_that_cannot_be_made_are_one_line(tmp_path: Path, name: str, reason: str) -> None:
    live = InteractiveSession(("true",), tmp_path / name, timeout=5)
    with pytest.raises(UsageError, match=f"cannot make a FIFO: {reason}$"), live:
        pass


def test_a_missing_compiler_is_one_line(tmp_path: Path) -> None:
    live = InteractiveSession(("no-such-clang",), tmp_path / "ch", timeout=5)
    with pytest.raises(ToolError, match="exit code 127: no-such-clang: No such file or directory"), live:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limit")
def test_the_memory_limit_holds(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="error: out of memory"):
        run(tmp_path, "hungry", 1 << 30, memory_limit=512 << 20)
    (tmp_path / "pid").unlink()
    assert len(run(tmp_path, "hungry", 32 << 20, memory_limit=512 << 20)) == 1


def test_protocol_errors_survive_pickling() -> None:
    error = ProtocolError("expected this", ("cc", "a b.c"), "warned\nfailed\n", Usage(1.0, 0.5, 1 << 20))
    again = pickle.loads(pickle.dumps(error))
    assert (again.argv, again.message, again.stderr, again.usage) == (
        error.argv,
        error.message,
        error.stderr,
        error.usage,
    )
    assert str(again) == "cc 'a b.c': expected this: failed"


def test_a_temporary_channel_leaves_nothing() -> None:
    with temporary_channel() as base:
        assert base.parent.stat().st_mode & 0o777 == 0o700
    assert not base.parent.exists()


# Real compilers.

CODE = "\n".join(
    [
        "extern int out[];",
        "static int f(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * x ^ (s >> 3); return s; }",
        "static int g(int x) { return f(x) + f(x + 1) * 3; }",
        "int h(int x) { return g(x) * g(x - 1) + f(3); }",
        "int k(int x) { out[x] = h(x); return g(x + 7); }",
        "double e(double *a, double *b) {",
        *(f"  double v{i} = a[{i}] * b[{i * 7 % 40}];" for i in range(40)),
        *(f"  a[{i}] = v{i} * v{i * 13 % 40} + v{(i * 29 + 3) % 40} * v{(i * 31 + 5) % 40};" for i in range(40)),
        "  return " + " + ".join(f"v{i}" for i in range(40)) + "; }",
    ]
)
INLINING = ("-enable-ml-inliner=release", "-inliner-interactive-include-default", "-inliner-interactive-channel-base=")
EVICTION = ("-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base=")
PRIORITY = ("-regalloc-enable-priority-advisor=release", "-regalloc-priority-interactive-channel-base=")


def compile_live(
    llvm: Llvm, folder: Path, options: tuple[str, ...], advice: Callable[[np.void], Any], name: str = "live.o"
) -> tuple[InteractiveSession, list[LiveObservation]]:
    (folder / "a.c").write_text(CODE)
    argv = [llvm.clang, "-O2", "-c", "a.c", "-o", name]
    observations = []
    with temporary_channel() as base:
        for option in options:
            argv += ["-mllvm", f"{option}{base}" if option.endswith("=") else option]
        with InteractiveSession(argv, base, timeout=300, cwd=folder) as live:
            for item in live:
                observations.append(item)
                live.advise(advice(item.record))
    return live, observations


def test_the_default_advice_gives_the_plain_object(
    llvm22: Llvm, tmp_path: Path, compile_c: Callable[..., Path]
) -> None:
    plain = compile_c(llvm22, CODE, "-O2")
    live, found = compile_live(llvm22, tmp_path, INLINING, lambda record: record["inlining_default"])
    assert (tmp_path / "live.o").read_bytes() == plain.read_bytes()
    assert len(found) > 3
    assert live.header is not None
    assert live.header.features[-1].name == "inlining_default"
    assert live.contexts == {"": len(found)}
    peak = live.result.usage.max_rss_bytes  # not known where no sample met the compile
    assert peak is None or peak > 20 << 20


def test_never_inlining_is_another_object(llvm: Llvm, tmp_path: Path, compile_c: Callable[..., Path]) -> None:
    plain = compile_c(llvm, CODE, "-O2")
    _, found = compile_live(llvm, tmp_path, INLINING, lambda _: 0)
    assert {len(item.tensors) for item in found} == {39 * 8}
    assert (tmp_path / "live.o").read_bytes() != plain.read_bytes()


def test_eviction_takes_an_index(llvm: Llvm, tmp_path: Path) -> None:
    live, found = compile_live(llvm, tmp_path, EVICTION, lambda record: record["mask"].ravel().nonzero()[0][0])
    assert found
    assert found[0].record["mask"].shape == (1, 33)
    assert {item.context for item in found} == {"e"}
    assert list(live.contexts) == [name for name in live.contexts if name in ("f", "g", "h", "k", "e")]
    assert (tmp_path / "live.o").exists()


def test_priorities_are_floats(llvm: Llvm, tmp_path: Path) -> None:
    live, found = compile_live(llvm, tmp_path, PRIORITY, lambda record: record["li_size"])
    assert live.header is not None
    assert live.header.advice == TensorSpec("priority", "float")
    assert found[0].record.dtype.names == ("li_size", "stage", "weight")
    assert len({item.context for item in found}) > 1


def test_a_compile_error_is_the_compilers(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return x; }")
    argv = (llvm22.clang, "-c", "a.c", "-o", "a.o", "-mllvm", f"{INLINING[2]}{tmp_path / 'ch'}")
    live = InteractiveSession(argv, tmp_path / "ch", timeout=300, cwd=tmp_path)
    with pytest.raises(ToolError, match=r"exit code 1: 1 error generated\.$"), live:
        advise_all(live)


# Contexts, what was sent, and tensors that are put right.


def test_contexts_are_taken_once_and_in_order(tmp_path: Path) -> None:
    taken = []
    with session(tmp_path, "contexts") as live:
        assert live.take_contexts() == ()
        for _ in live:
            taken.append(live.take_contexts())
            assert live.take_contexts() == ()
            live.advise(1)
        taken.append(live.take_contexts())
    others = tuple(f"h{index}" for index in range(200))
    assert taken == [("f",), (), ("g",), (), (*others, "f"), (), ("g",), (), ("end",)]
    assert live.take_contexts() == ()


def test_a_context_that_comes_with_a_second_header_is_taken_too(tmp_path: Path) -> None:
    taken = []
    with session(tmp_path, "twice", "same") as live:
        for _ in live:
            taken.append(live.take_contexts())
            live.advise(1)
    assert taken == [("f",), (), (), ()]


@pytest.mark.parametrize("value", [7, 7.0, np.int64(7), [7], np.array([[7]]), b"\7" + bytes(7), True])
def test_advise_gives_what_was_sent(tmp_path: Path, value: Any) -> None:
    with session(tmp_path, "proper", 1) as live:
        next(live)
        sent = live.advise(value)
        assert list(live) == []
    assert sent == int((value is not True and 7) or 1).to_bytes(8, sys.byteorder)
    assert live.result.stdout == b"1\n" if value is True else b"7\n"


def test_tensors_are_put_right_before_anybody_sees_them(tmp_path: Path) -> None:
    headers = []

    def make(header: LogHeader) -> Callable[[bytes], bytes]:
        headers.append([spec.name for spec in header.features])
        return lambda tensors: np.int64(5).tobytes() + tensors[8:]

    with session(tmp_path, "spaced", repair=make) as live:  # which is read in both ways, the quick and the plain one
        found = [(item.record["x"], item.record["v"].tolist(), item.tensors[:8]) for item in advise_all(live)]
    assert found == [(5, [1, 2, 3], np.int64(5).tobytes())] * 3
    assert headers == [["x", "v"]]


def test_each_header_has_its_own_repair(tmp_path: Path) -> None:
    def make(header: LogHeader) -> Callable[[bytes], bytes] | None:
        if header.features[0].name == "w":
            return lambda tensors: np.float32(2.5).tobytes() + tensors[4:]
        return None

    with session(tmp_path, "twice", "another", repair=make) as live:
        found = [item.tensors for item in advise_all(live)]
    assert [len(tensors) for tensors in found] == [20, 20, 4, 4]
    assert found[2:] == [np.float32(2.5).tobytes()] * 2
    assert found[0] == observation(0)[18:-1]
