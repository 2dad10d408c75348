"""The log that a live session leaves, with a compiler that does as it is told."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus import read_log
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.compilers.session import InteractiveSession
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.formats.logs.events import LogHeader, parse_header
from mlgo_corpus.formats.logs.tasks import TASKS
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.conversation import converse, decision_check, repair_of
from tests.conftest import ROOT
from tests.fake_compiler import HEADER, context, observation

FAKE = ROOT / "tests" / "fake_compiler.py"
INLINING, EVICTION, PRIORITY = TASKS


class Counting:
    """A policy that decides 0, 1, 2, ... in each session."""

    features: tuple[str, ...] = ("x",)

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.seen: list[int] = []

    def reset(self, header: LogHeader, module: str) -> None:
        assert [spec.name for spec in header.features] == ["x", "v"]
        self.modules.append(module)

    def advise(self, observation: Any) -> int:
        self.seen.append(int(observation["x"]))
        return len(self.seen) - 1


def talk(folder: Path, mode: str, argument: object = "", policy: Any = None) -> tuple[int, bytes]:
    argv = (sys.executable, "-I", "-S", str(FAKE), str(folder / "ch"), str(folder / "pid"), mode, str(argument))
    log = io.BytesIO()
    with InteractiveSession(argv, folder / "ch", timeout=300) as session:
        advised = converse(session, policy or Counting(), "m.o", log)
    return len(advised) // 8, log.getvalue()


def told(number: int, decision: int, numbered: int | None = None) -> bytes:
    """Give an observation as it is in the log: with the decision, and with the log's number."""
    tensors = observation(number)[18:-1]
    shown = number if numbered is None else numbered
    return b'{"observation":%d}\n%b%b\n' % (shown, tensors, decision.to_bytes(8, sys.byteorder))


def header_of(log: bytes) -> LogHeader:
    return parse_header(log.partition(b"\n")[0])


def test_a_session_becomes_a_log(tmp_path: Path) -> None:
    policy = Counting()
    count, log = talk(tmp_path, "proper", 3, policy)
    header = header_of(log)
    asked = parse_header(HEADER)
    assert asked.advice is not None
    assert header.features == (*asked.features, asked.advice)
    assert (header.advice, header.score) == (None, None)
    assert log == header.line + b"\n" + told(0, 0) + told(1, 1) + told(2, 2)
    assert count == 3
    assert policy.seen == [0, 10, 20]
    assert policy.modules == ["m.o"]


def test_contexts_come_back_and_stay_empty(tmp_path: Path) -> None:
    count, log = talk(tmp_path, "contexts")
    empty = b"".join(context(f"h{index}") for index in range(200))
    body = context("f") + told(0, 0) + told(1, 1) + context("g") + told(0, 2) + told(1, 3) + empty
    body += context("f") + told(2, 4) + told(3, 5) + context("g") + told(2, 6) + told(3, 7) + context("end")
    assert count == 8
    assert log.partition(b"\n")[2] == body
    (tmp_path / "m.log").write_bytes(log)
    found = read_log(tmp_path / "m.log")
    assert found.to_numpy()["a"].tolist() == list(range(8))
    assert len(list(found)) == 205


def test_a_channel_that_is_opened_again_goes_on_in_the_log(tmp_path: Path) -> None:
    count, log = talk(tmp_path, "twice", "same")
    body = context("f") + told(0, 0) + told(1, 1) + told(0, 2, 2) + told(1, 3, 3)
    assert count == 4
    assert log.partition(b"\n")[2] == body
    (tmp_path / "m.log").write_bytes(log)
    assert read_log(tmp_path / "m.log").to_numpy()["x"].tolist() == [0, 10, 0, 10]


def test_a_channel_with_other_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFailure, match=r"the compiler asks again, with other features: feature 0 is 'x' ") as caught:
        talk(tmp_path, "twice", "another")
    assert caught.value.reason is RunReason.OTHER_HEADER


class Failing(Counting):
    def advise(self, observation: Any) -> int:
        if len(self.seen) == 1:
            raise FormatError("no such weights\nat all")
        return super().advise(observation)


def test_a_policy_that_fails_ends_the_session(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^the policy failed: FormatError: no such weights \(test_conversation\.py, line \d+\)\n"
    ):
        talk(tmp_path, "proper", 3, Failing())
    policy = Failing()
    policy.features = ("x", "y")
    with pytest.raises(UsageError, match=r"^the policy needs the feature 'y', which this compiler does not send$"):
        talk(tmp_path, "proper", 3, policy)
    assert policy.modules == []


@pytest.mark.parametrize(("mode", "argument", "log"), [("silent", 0, False), ("proper", 0, True)])
def test_nothing_to_decide(tmp_path: Path, mode: str, argument: int, log: bool) -> None:
    count, found = talk(tmp_path, mode, argument)
    assert count == 0
    assert found == (header_of(found).line + b"\n" if log else b"")


# --- what cannot be decided


def asked(name: str, kind: str, *features: TensorSpec) -> LogHeader:
    return LogHeader(features, advice=TensorSpec(name, kind, (1,)))


def test_inlining_is_yes_or_no() -> None:
    check = decision_check(asked("inlining_decision", "int64_t"))
    for value in (0, 1):
        check(b"", np.int64(value).tobytes())
    for value in (2, -1, 1 << 40):
        with pytest.raises(ValueError, match=f"^inlining_decision {value}$"):
            check(b"", np.int64(value).tobytes())


def test_an_eviction_is_of_a_candidate() -> None:
    features = (
        TensorSpec("weight", "float", (3,)),
        TensorSpec("mask", "int64_t", (1, 4)),
        TensorSpec("x", "int8_t", (9,)),
    )
    check = decision_check(asked("index_to_evict", "int64_t", *features))
    tensors = b"\1" * 12 + np.array([0, 1, 0, 1]).tobytes() + b"\1" * 9
    for value in (1, 3):
        check(tensors, np.int64(value).tobytes())
    for value in (0, 2, 4, -1, -3, 1 << 62):
        with pytest.raises(ValueError, match=f"^index_to_evict {value}$"):
            check(tensors, np.int64(value).tobytes())


def test_a_priority_is_a_number() -> None:
    check = decision_check(asked("priority", "float"))
    for value in (0.0, -2.5, 1e30):
        check(b"", np.float32(value).tobytes())
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match=r"^priority (nan|inf|-inf)$"):
            check(b"", np.float32(value).tobytes())


# --- LLVM 17 to 20

FEATURES = tuple(
    TensorSpec(name, "int64_t", (1,)) for name in ("a", "callee_basic_block_count", "b", "inlining_default")
)


@pytest.mark.parametrize("major", range(15, 25))
def test_the_default_is_put_in_its_place(major: int) -> None:
    header = asked("inlining_decision", "int64_t", *FEATURES)
    repair = repair_of(INLINING, major, header)
    if major not in (17, 18, 19, 20):
        assert repair is None
        return
    assert repair is not None
    for default in (0, 1):
        found = np.frombuffer(repair(np.array([7, default, 8, 0]).tobytes()), np.int64)
        assert found.tolist() == [7, 0, 8, default]


def test_there_may_be_nothing_to_repair() -> None:
    assert repair_of(INLINING, 19, asked("inlining_decision", "int64_t", *FEATURES[:-1])) is None
    assert repair_of(INLINING, 19, asked("inlining_decision", "int64_t", FEATURES[0], FEATURES[3])) is None
    assert repair_of(EVICTION, 19, asked("index_to_evict", "int64_t", *FEATURES)) is None
