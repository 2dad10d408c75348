"""Who answers a compiler's questions in a search: the plan, where it has the decision, and what decides elsewhere.

`Follower` is the plain way, in Python. `NativeFollower` does the same in C (``follow.c``), which is compiled once and
kept in the cache: a decision takes microseconds, and a hundred between two turns of a compiler in Python. It is taken
where a C compiler is there and all that decides is native, too: LLVM's own decision, a rule, a compiled policy, or a
mixture of these.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_corpus.compilers.session import Answered, LiveObservation
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.keys import stable_features, stable_part
from mlgo_corpus.formats.logs.tasks import INLINING_DEFAULT
from mlgo_corpus.policies.compiled import CompiledPolicy, cached_source
from mlgo_corpus.policies.conversation import decision_of
from mlgo_corpus.policies.policy import Policy
from mlgo_corpus.runs.search.align import Alignment
from mlgo_corpus.runs.search.climb import Plan, Rule

_SOURCE: Final = Path(__file__).with_name("follow.c")
_CHUNK: Final = 1 << 16
_NUMBER: Final = "int64_t"
# Room is made for many questions at once; LLVM's have 300 bytes.
_MOST_BYTES: Final = 4096
_OF_CALLEE: Final = ("callee_basic_block_count", "callee_conditionally_executed_blocks")
_64_BITS: Final = (1 << 64) - 1
# Room for so many questions more than are planned, and how much more where that does not do.
_ROOM: Final = 1 << 10


class _Decided(NamedTuple):
    """One answer: the decision without the plan, the decision, and the question."""

    base: int
    decision: int
    tensors: bytes


def _reader_at(place: int) -> Callable[[bytes], int]:
    read = struct.Struct(f"={place}xq").unpack_from
    return lambda tensors: int(read(tensors)[0])


class ByDefault:
    """LLVM's own decision.

    Raises:
        UsageError: the compiler does not send it.
    """

    def __init__(self, header: LogHeader) -> None:
        if (place := header.places.get(INLINING_DEFAULT)) is None:
            raise UsageError(f"this compiler does not send {INLINING_DEFAULT!r}")
        self.place = place.start
        self._read = _reader_at(place.start)

    def decide(self, observation: LiveObservation) -> int:
        """Return the decision."""
        return self._read(observation.tensors)


class ByRule:
    """A rule over what a call costs.

    Raises:
        UsageError: the compiler does not send that.
    """

    def __init__(self, rule: Rule, header: LogHeader) -> None:
        cost, users = (header.places.get(name) for name in ("cost_estimate", "callee_users"))
        if cost is None or users is None:
            raise UsageError("this compiler does not send what a call costs")
        self.places = cost.start, users.start
        self._readers = _reader_at(cost.start), _reader_at(users.start)
        self.rule = rule

    def decide(self, observation: LiveObservation) -> int:
        """Return the decision."""
        cost, users = (read(observation.tensors) for read in self._readers)
        return self.rule.decides(cost, users)


class ByPolicy:
    """A policy, whose session has begun.

    Raises:
        UsageError: it fails.
    """

    def __init__(self, policy: Policy, header: LogHeader) -> None:
        self.policy = policy
        self.header = header

    def decide(self, observation: LiveObservation) -> int:
        """Return the decision."""
        return int(decision_of(self.policy, observation.record) != 0)


SingleDecider = ByDefault | ByRule | ByPolicy


class ByMixture:
    """For each callee one of several deciders, drawn by a hash of what the compiler tells of it.

    Raises:
        UsageError: the compiler does not send that.
    """

    def __init__(self, among: Sequence[SingleDecider], seed: int, header: LogHeader) -> None:
        try:
            self.places = tuple(header.places[name].start for name in _OF_CALLEE)
        except KeyError:
            raise UsageError("this compiler does not send what a callee is") from None
        self._readers = tuple(map(_reader_at, self.places))
        self.among = tuple(among)
        self.seed = seed

    def decide(self, observation: LiveObservation) -> int:
        """Return the decision."""
        drawn = self.seed
        for read in self._readers:
            drawn = _scrambled(drawn ^ read(observation.tensors) & _64_BITS)
        return self.among[drawn % len(self.among)].decide(observation)


def _scrambled(number: int) -> int:
    """Return 64 bits that depend on all 64 bits of a number: a step of the generator SplitMix64."""
    number = number + 0x9E3779B97F4A7C15 & _64_BITS
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _64_BITS
    return number ^ number >> 31


Decider = SingleDecider | ByMixture


class Follower:
    """Answers by a plan, and keeps what was asked and decided.

    Args:
        header: the compiler's.
        plan: the keys of decisions in their order, and the decisions; None for what is decided as if not planned.
        base: decides without a plan.
        guide: decides what the plan does not; the base does if it is None.
    """

    def __init__(self, header: LogHeader, plan: Plan, base: Decider, guide: Decider | None) -> None:
        self._plan = plan
        self._base = base
        self._guide = guide
        self._features_of = stable_part(header)
        self._place = Alignment(header, [features for (features, _), _ in plan])
        self._decided: list[_Decided] = []

    def decide(self, observation: LiveObservation) -> int:
        """Return the decision about a question."""
        base = self._base.decide(observation)
        found = self._place.find(self._features_of(observation.tensors))
        decision = None if found is None else self._plan[found][1]
        if decision is None:
            decision = base if self._guide is None else self._guide.decide(observation)
        self._decided.append(_Decided(base, decision, observation.tensors))
        return decision

    def decided(self) -> list[_Decided]:
        """Return what was asked and decided, in order."""
        return self._decided


class _NativeDecider(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("policy", "offsets", "features")),
        *((name, ctypes.c_int64) for name in ("count", "decision", "cost", "users", "most_users", "few", "many")),
        *((name, ctypes.c_void_p) for name in ("among", "callee")),
        *((name, ctypes.c_int64) for name in ("ways", "told")),
        ("seed", ctypes.c_uint64),
    )


class _NativeState(ctypes.Structure):
    _fields_ = (
        *((name, _NativeDecider) for name in ("base", "guide")),
        *((name, ctypes.c_int64) for name in ("guided", "tensors", "wrong", "right", "words", "height")),
        *((name, ctypes.c_void_p) for name in ("places", "asked")),
        ("planned", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("rows", "plan")),
        *((name, ctypes.c_int64) for name in ("window", "behind")),
        *(
            (name, ctypes.c_double)
            for name in ("share", "unlike", "height_counts", "skipped", "taken_for_new", "never")
        ),
        *((name, ctypes.c_void_p) for name in ("worth", "best", "paired")),
        *((name, ctypes.c_int64) for name in ("known", "first", "next", "sure")),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("kept", "bases", "decided")),
        *((name, ctypes.c_int64) for name in ("capacity", "count", "left", "used", "unsent")),
    )


class _Polled(ctypes.Structure):
    _fields_ = (("descriptor", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


_POLLIN: Final = 1


class NativeFollower:
    """Does what `Follower` does, in C, and answers questions by itself.

    Args:
        library: of ``follow.c``.
        header: the compiler's; its features are whole numbers of eight bytes.
        plan: as for `Follower`; so are ``base`` and ``guide``, both of which are native.
        misplaced: where the heuristic's decision is in what the compiler sends, and where it should be.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        header: LogHeader,
        plan: Plan,
        base: Decider,
        guide: Decider | None,
        misplaced: tuple[slice, slice] | None,
    ) -> None:
        self._library = library
        self._tensors = header.tensor_bytes
        alignment = Alignment(header, [features for (features, _), _ in plan])
        self._state = state = _NativeState(**alignment.constants())
        self._arrays: dict[str, Any] = {}
        state.base = self._native(base)
        if guide is not None:
            state.guide, state.guided = self._native(guide), 1
        wrong, right = misplaced or (slice(0, 0), slice(0, 0))
        state.tensors, state.wrong, state.right = self._tensors, wrong.start, right.start
        stable = set(stable_features(header))
        places = [header.places[spec.name].start for spec in header.features if spec in stable]
        state.words, state.planned = len(places), len(plan)
        self._keep("places", np.array(places, np.int64))
        self._keep("asked", np.empty(len(places), np.uint64))
        self._keep("rows", alignment.rows)
        self._keep("plan", np.array([-1 if planned is None else planned for _, planned in plan], np.int8))
        self._keep("worth", np.zeros(state.window + 1))
        self._keep("best", np.empty(state.window + 1))
        self._keep("paired", np.empty(state.window + 1))
        state.known, state.sure = 1, 1
        state.size = _CHUNK
        self._keep("data", np.empty(_CHUNK, np.uint8))
        self._enlarge(len(plan) + _ROOM)

    def decide(self, observation: LiveObservation) -> int:
        """Return the decision about a question."""
        if self._state.count == self._state.capacity:
            self._enlarge(2 * self._state.capacity)
        return int(self._library.follow_decide(ctypes.byref(self._state), observation.tensors))

    def answer(
        self, channel: tuple[int, int], others: Sequence[int], number: int, separator: bytes, seconds: float
    ) -> Answered:
        """Answer questions; see `mlgo_corpus.compilers.session.Answerer`."""
        state = self._state
        if state.count == state.capacity:
            self._enlarge(2 * state.capacity)
        questions, advice = channel
        polled = (_Polled * (1 + len(others)))(*(_Polled(one, _POLLIN, 0) for one in (questions, *others)))
        count = self._library.follow_answer(
            ctypes.byref(state), advice, polled, len(others), number, separator, seconds
        )
        rest = self._arrays["data"][: state.left].tobytes()
        unsent = self._arrays["decided"][state.count - 1 :][:1].tobytes() if state.unsent else b""
        return Answered(count, state.used, rest, unsent)

    def decided(self) -> list[_Decided]:
        """Return what was asked and decided, in order."""
        count, size = self._state.count, self._tensors
        kept = self._arrays["kept"][: count * size].tobytes()
        bases, decisions = (self._arrays[name][:count].tolist() for name in ("bases", "decided"))
        questions = (kept[at * size : (at + 1) * size] for at in range(count))
        return list(map(_Decided, bases, decisions, questions))

    def _native(self, decider: Decider) -> _NativeDecider:
        if isinstance(decider, ByDefault):
            return _NativeDecider(decision=decider.place)
        if isinstance(decider, ByRule):
            (cost, users), rule = decider.places, decider.rule
            return _NativeDecider(
                decision=-1, cost=cost, users=users, most_users=rule.users, few=rule.few, many=rule.many
            )
        if isinstance(decider, ByMixture):
            among = (_NativeDecider * len(decider.among))(*map(self._native, decider.among))
            callee = np.array(decider.places, np.int64)
            self._arrays[f"mixture {len(self._arrays)}"] = (among, callee)
            return _NativeDecider(
                among=ctypes.addressof(among),
                callee=callee.ctypes.data,
                ways=len(among),
                told=len(callee),
                seed=decider.seed,
            )
        policy = decider.policy
        if not isinstance(policy, CompiledPolicy):
            raise TypeError("expected a compiled policy")
        places = decider.header.places
        offsets = np.array([places[spec.name].start for spec in policy.features], np.int64)
        pointers = np.empty(len(offsets), np.uintp)
        self._arrays[f"policy {len(self._arrays)}"] = (policy, offsets, pointers)
        return _NativeDecider(
            policy=policy.function, offsets=offsets.ctypes.data, features=pointers.ctypes.data, count=len(offsets)
        )

    def _keep(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._arrays[name] = array
        setattr(self._state, name, array.ctypes.data)

    def _enlarge(self, capacity: int) -> None:
        before, count = self._arrays, self._state.count
        for name, width, dtype in (("kept", self._tensors, np.uint8), ("bases", 1, np.int64), ("decided", 1, np.int64)):
            larger = np.empty(capacity * width, dtype)
            if count:
                larger[: count * width] = before[name][: count * width]
            self._keep(name, larger)
        self._state.capacity = capacity


def make_follower(
    header: LogHeader,
    plan: Plan,
    base: Decider,
    guide: Decider | None,
    misplaced: tuple[slice, slice] | None,
) -> Follower | NativeFollower:
    """Return what answers by a plan: in C if it can be."""
    deciding = chain.from_iterable(one.among if isinstance(one, ByMixture) else (one,) for one in (base, guide))
    native = _is_native(header) and all(
        isinstance(one.policy, CompiledPolicy) for one in deciding if isinstance(one, ByPolicy)
    )
    library = native_library() if native and all(planned in (None, 0, 1) for _, planned in plan) else None
    if library is None:
        return Follower(header, plan, base, guide)
    return NativeFollower(library, header, plan, base, guide, misplaced)


def _is_native(header: LogHeader) -> bool:
    """Return True if all that is read and sent in C is a whole number, as clang has it, and a question is not large."""
    numbers = {*stable_features(header), *(spec for spec in header.features if spec.name == INLINING_DEFAULT)}
    advice = header.advice
    return (
        advice is not None
        and all(spec.type == _NUMBER and spec.is_scalar for spec in (*numbers, advice))
        and header.tensor_bytes <= _MOST_BYTES
    )


@cache
def native_library() -> ctypes.CDLL | None:
    """Return ``follow.c`` compiled; None where there is no C compiler or no cache."""
    try:
        library = ctypes.CDLL(str(cached_source("follow", (_SOURCE.read_text(), ""))))
    except (OSError, UsageError):  # or the cache is on a file system from which nothing may be run
        return None
    library.follow_decide.restype = library.follow_answer.restype = ctypes.c_int64
    library.follow_decide.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    library.follow_answer.argtypes = (
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p),
        ctypes.c_double,
    )
    return library
