"""Answers by a plan: what is written in C against what is written in Python, and what comes over the channel."""

from __future__ import annotations

import fcntl
import os
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.compilers.session import Answered, LiveObservation
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.keys import stable_part
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.compiled import CompiledPolicy
from mlgo_corpus.policies.conversation import misplaced, repair_of
from mlgo_corpus.policies.policy import make_policy
from mlgo_corpus.runs.search import follow
from mlgo_corpus.runs.search.climb import Plan
from mlgo_corpus.runs.search.climb import Rule as CostRule
from mlgo_corpus.runs.search.follow import (
    ByDefault,
    ByMixture,
    ByPolicy,
    ByRule,
    Decider,
    Follower,
    NativeFollower,
    make_follower,
)
from tests.policies.samples import small_policy

NAMES = (
    *("cost_estimate", "callee_users", "callee_basic_block_count", "callsite_height", "node_count"),
    *("caller_users", "callee_conditionally_executed_blocks", "dead_blocks", "threshold", "inlining_default"),
)
HEADER = LogHeader(tuple(map(TensorSpec, NAMES)), advice=TensorSpec("inlining_decision"))
TASK = find_task(INLINING)


def question(row: tuple[int, ...]) -> bytes:
    return struct.pack(f"={len(NAMES)}q", *row)


def live(number: int, tensors: bytes) -> LiveObservation:
    return LiveObservation(None, number, tensors, np.dtype([(name, "<i8") for name in NAMES]))


def message(number: int, row: tuple[int, ...], separator: bytes = b":") -> bytes:
    return b'{"observation"%b%d}\n%b\n' % (separator, number, question(row))


ROW = (*range(len(NAMES) - 1), 1)
MESSAGE = message(7, ROW)


def rows(generator: random.Random, count: int) -> list[tuple[int, ...]]:
    """Return questions whose features are small, so that many are equal; a height is that of some in a row."""
    made = []
    while len(made) < count:
        height = generator.randrange(3)
        for _ in range(generator.randrange(1, 6)):
            row = [generator.randrange(-1, 3) for _ in NAMES]
            row[NAMES.index("callsite_height")], row[-1] = height, generator.randrange(2)
            made.append(tuple(row))
    return made[:count]


def planned(generator: random.Random, some: list[tuple[int, ...]]) -> Plan:
    part = stable_part(HEADER)
    return [((part(question(row)), 0), generator.choice((0, 1, None))) for row in some]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> CompiledPolicy:
    folder = tmp_path_factory.mktemp("policy") / "small"
    small_policy().save(folder)
    made = make_policy(str(folder), TASK)
    assert isinstance(made, CompiledPolicy)
    return made


def both(plan: Plan, base: Decider, guide: Decider | None) -> tuple[Follower, NativeFollower]:
    native = make_follower(HEADER, plan, base, guide, None)
    assert isinstance(native, NativeFollower)
    return Follower(HEADER, plan, base, guide), native


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32), kinds=st.tuples(*2 * [st.sampled_from(["default", "rule", "policy", "mixture", None])])
)
def test_c_and_python_answer_alike(policy: CompiledPolicy, seed: int, kinds: tuple[str | None, str | None]) -> None:
    """Calls are gone, new or changed, in plans that are shorter than the window and longer."""
    generator = random.Random(seed)
    some = rows(generator, generator.choice((0, 1, 5, 47, 48, 49, 300)))
    asked = [row for row in some for _ in range(generator.choice((0, 1, 1, 1, 1, 2)))]
    asked = [(*row[:-2], 9, row[-1]) if generator.random() < 0.2 else row for row in asked]
    for _ in range(generator.randrange(30)):
        asked.insert(generator.randrange(len(asked) + 1), rows(generator, 1)[0])
    deciders: dict[str | None, Decider | None] = {
        "default": ByDefault(HEADER),
        "rule": ByRule(CostRule(0, 1, 2), HEADER),
        "policy": ByPolicy(policy, HEADER),
        None: None,
    }
    among = [ByDefault(HEADER), ByRule(CostRule(0, 1, 2), HEADER), ByPolicy(policy, HEADER)]
    deciders["mixture"] = ByMixture(among[: generator.randrange(1, 4)], generator.randrange(2**64), HEADER)
    plan = planned(generator, some)
    plain, native = both(plan, deciders[kinds[0]] or ByDefault(HEADER), deciders[kinds[1]])
    observations = [live(number, question(row)) for number, row in enumerate(asked)]
    assert [native.decide(one) for one in observations] == [plain.decide(one) for one in observations]
    assert native.decided() == plain.decided()


def test_what_c_cannot_decide_is_decided_in_python(policy: CompiledPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    base = ByDefault(HEADER)
    odd = LogHeader((*HEADER.features, TensorSpec("odd", "float")), advice=HEADER.advice)
    for header, guide in ((HEADER, ByPolicy(SimpleNamespace(advise=lambda _: 1), HEADER)), (odd, None)):
        assert isinstance(make_follower(header, [], base, guide, None), Follower)
    native, plain = ByPolicy(policy, HEADER), ByPolicy(SimpleNamespace(advise=lambda _: 1), HEADER)
    assert isinstance(make_follower(HEADER, [], base, native, None), NativeFollower)
    assert isinstance(make_follower(HEADER, [], base, ByMixture([base, native], 1, HEADER), None), NativeFollower)
    assert isinstance(make_follower(HEADER, [], base, ByMixture([base, plain], 1, HEADER), None), Follower)
    key = stable_part(HEADER)(question(ROW)), 0
    for plan in ([(key, 128)], [(key, -3)]):
        assert isinstance(make_follower(HEADER, plan, base, None, None), Follower)
    for name, kind, shape in (("inlining_default", "int8_t", (1,)), ("node_count", "float", (2000,))):
        wide = LogHeader(
            tuple(TensorSpec(name, kind, shape) if spec.name == name else spec for spec in HEADER.features),
            advice=HEADER.advice,
        )
        assert isinstance(make_follower(wide, [], base, None, None), Follower)
    for advice in (TensorSpec("inlining_decision", "double"), TensorSpec("inlining_decision", "int32_t", (2,))):
        assert isinstance(make_follower(LogHeader(HEADER.features, advice=advice), [], base, None, None), Follower)
    monkeypatch.setattr(follow, "native_library", lambda: None)
    assert isinstance(make_follower(HEADER, [], base, None, None), Follower)


def test_a_mixture_decides_a_callee_s_calls_alike() -> None:
    """Which of its deciders does so depends on the callee and the seed alone, and each has its share."""
    never, always = (ByRule(CostRule(0, limit, limit), HEADER) for limit in (-9, 9))
    mixtures = [ByMixture([never, always, always, always], seed, HEADER) for seed in range(2)]
    told = [NAMES.index(name) for name in NAMES if name.startswith("callee_")]
    drawn, generator = [], random.Random(1)
    for callee in range(2000):
        decided = []
        for _ in range(2):
            row = [generator.randrange(-1, 3) for _ in NAMES]
            for place in told:
                row[place] = callee * place
            decided.append([mixture.decide(live(0, question(tuple(row)))) for mixture in mixtures])
        assert decided[0] == decided[1]
        drawn.append(decided[0])
    assert all(1430 < total < 1570 for total in map(sum, zip(*drawn, strict=True)))
    assert 650 < sum(one != other for one, other in drawn) < 850
    with pytest.raises(UsageError, match="does not send what a callee is"):
        ByMixture([never], 1, LogHeader(HEADER.features[:3], advice=HEADER.advice))


class Channel:
    """Both ends of a channel, and a follower that answers."""

    def __init__(self, follower: NativeFollower) -> None:
        self.questions, self._ask = os.pipe()
        self._advice, self.advice = os.pipe()
        self.other, self.ready = os.pipe()
        self._follower = follower
        for one in (self.questions, self.advice, self._advice):
            os.set_blocking(one, False)

    def answer(self, data: bytes, *, number: int = 0, separator: bytes = b":", seconds: float = 0.02) -> Answered:
        os.write(self._ask, data)
        return self._follower.answer((self.questions, self.advice), [self.other], number, separator, seconds)

    def sent(self) -> list[int]:
        try:
            data = os.read(self._advice, 1 << 16)
        except BlockingIOError:
            return []
        return list(struct.unpack(f"={len(data) // 8}q", data))

    def close(self) -> None:
        for one in (self.questions, self._ask, self._advice, self.advice, self.other, self.ready):
            os.close(one)


@contextmanager
def channel(plan: Plan = (), misplaced_default: Any = None) -> Iterator[tuple[Channel, NativeFollower]]:
    follower = make_follower(HEADER, plan, ByDefault(HEADER), None, misplaced_default)
    assert isinstance(follower, NativeFollower)
    opened = Channel(follower)
    try:
        yield opened, follower
    finally:
        opened.close()


@pytest.mark.parametrize("separator", [b":", b": "])
def test_the_next_question_is_answered(separator: bytes) -> None:
    with channel() as (opened, follower):
        data = message(41, ROW, separator)
        assert opened.answer(data, number=41, separator=separator) == Answered(1, len(data))
        assert opened.sent() == [1]
        assert [one.tensors for one in follower.decided()] == [question(ROW)]


def test_a_question_that_is_cut_at_any_byte_is_left() -> None:
    with channel() as (opened, follower):
        for size in range(len(MESSAGE)):
            assert opened.answer(MESSAGE[:size], number=7, seconds=0.002) == Answered(0, 0, MESSAGE[:size])
        assert opened.sent() == []
        assert follower.decided() == []


@pytest.mark.parametrize(
    "data",
    [
        *(message(8, ROW), message(7, ROW, b": "), MESSAGE + b"{", MESSAGE + MESSAGE, MESSAGE[:-1] + b" "),
        *(b'{"context":"f"}\n', b'{"features":[]}\n', b"\0" * len(MESSAGE), b'{"observation":07}\n'),
    ],
)
def test_what_is_not_the_next_question_is_left(data: bytes) -> None:
    with channel() as (opened, follower):
        assert opened.answer(data, number=7, seconds=60) == Answered(0, 0, data)
        assert opened.sent() == []
        assert follower.decided() == []


def test_what_else_is_ready_ends_it_at_once() -> None:
    with channel() as (opened, _):
        os.write(opened.ready, b"x")
        assert opened.answer(MESSAGE, number=7, seconds=60) == Answered(0)
        assert os.read(opened.questions, 1 << 16) == MESSAGE


def test_a_compiler_that_reads_no_advice_gets_it_later() -> None:
    with channel() as (opened, follower):
        fcntl.fcntl(opened.advice, fcntl.F_SETPIPE_SZ, 4096)
        full = os.write(opened.advice, bytes(1 << 16))
        answered = opened.answer(MESSAGE, number=7)
        assert answered == Answered(1, len(MESSAGE), unsent=struct.pack("=q", 1))
        assert opened.sent() == [0] * (full // 8)
        assert len(follower.decided()) == 1


def test_there_is_room_for_any_number_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_ROOM", 3)
    asked = rows(random.Random(2), 50)
    with channel() as (opened, follower):
        for number, row in enumerate(asked):
            data = message(number, row)
            if number % 2:
                assert opened.answer(data, number=number) == Answered(1, len(data))
            else:
                follower.decide(live(number, question(row)))
        decided = [(row[-1], row[-1], question(row)) for row in asked]
        assert follower.decided() == decided
        assert opened.sent() == [decision for decision, *_ in decided[1::2]]


def test_llvm_s_own_decision_is_moved_where_it_belongs() -> None:
    place = misplaced(TASK, 19, HEADER)
    repair = repair_of(TASK, 19, HEADER)
    assert place is not None
    assert repair is not None
    row = (*ROW[:2], 1, *ROW[3:-1], 0)
    with channel(misplaced_default=place) as (opened, follower):
        assert opened.answer(message(0, row)).questions == 1
        assert follower.decided() == [(1, 1, repair(question(row)))]
        assert follower.decide(live(1, question(row))) == 0  # a session has moved it already
