"""A live session's conversation: the policy decides, and a log is written as a development-mode compiler would."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.compilers.session import InteractiveSession
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader, encode_context
from mlgo_corpus.formats.logs.tasks import (
    EVICTION,
    INLINING,
    INLINING_DEFAULT,
    TASKS,
    Task,
    needs_plugin,
    needs_project,
)
from mlgo_corpus.policies.artefact import POLICY_NAME
from mlgo_corpus.policies.keyed import dataset_features, find_dataset
from mlgo_corpus.policies.learned import LearnedPolicy, find_policy, load_policy
from mlgo_corpus.policies.own.blame import policy_error
from mlgo_corpus.policies.policy import Policy, begin_session, check_sent

# Until LLVM 21, MLInlineAdvisor took the position of the heuristic's decision among the features from the wrong list:
# it overwrites `callee_basic_block_count`, and `inlining_default` stays 0. Measured on 17.0.6, 18.1.6, 19.1.7, 20.1.2
# (wrong) and 21.1.0, 22.1.8 (right): echoing the feature that holds it gives the plain compile's objects.
MISPLACED_DEFAULT: Final = range(17, 21)
MISPLACED_IN: Final = "callee_basic_block_count"
"""Where they tell it."""
_FAILED: Final = "the policy failed: "
_DECISIONS: Final = {task.name: task.decision for task in TASKS}


def converse(session: InteractiveSession, policy: Policy, module: str, log: Any) -> bytes:
    """Have the policy make every decision, and write the log that a development-mode compiler would.

    Returns:
        The advice of each decision, one after another, as the compiler gets it: of the header's type of advice.

    Raises:
        UsageError: the policy needs a feature that the compiler does not send, failed, or made an invalid decision.
        RunFailure: the compiler began again with other features.
    """
    asked: LogHeader | None = None
    advised = bytearray()
    context: str | None = None
    numbers: dict[str | None, int] = {}
    for observation in session:
        if session.header is not asked:
            asked = _begin(session.header, asked, policy, module, log)
            check = decision_check(asked)
        for name in session.take_contexts():
            log.write(encode_context(name))
            context = name
        decision = decision_of(policy, observation.record)
        try:
            advice = session.advise(decision)
            check(observation.tensors, advice)
        except ValueError as error:
            raise UsageError(f"the policy returned an invalid decision: {error}") from error
        # The log goes on when the compiler begins again with a second header, so its numbers are its own.
        number = numbers.get(context, 0)
        numbers[context] = number + 1
        # Written without `LogWriter`, which would check it: this comes from a reader of the same header.
        log.write(b'{"observation":%d}\n%b%b\n' % (number, observation.tensors, advice))
        advised += advice
    if session.header is not None and asked is None:  # a header, and nothing to decide
        _begin(session.header, None, policy, module, log)
    for name in session.take_contexts():
        log.write(encode_context(name))
    return bytes(advised)


def _begin(header: LogHeader | None, before: LogHeader | None, policy: Policy, module: str, log: Any) -> LogHeader:
    """Begin the policy's session, and the log with the first header; check that a later one is the same."""
    if header is None or header.advice is None:
        raise AssertionError("a session's header has an advice")
    if before is not None and header != before:
        difference = before.difference(header)
        raise RunFailure(RunReason.OTHER_HEADER, f"the compiler asks again, with other features: {difference}")
    begin_with(policy, header, module)
    if before is None:
        log.write(LogHeader((*header.features, header.advice)).line + b"\n")
    return header


def begin_with(policy: Policy, header: LogHeader, module: str) -> None:
    """Check that the compiler sends what a policy needs, and begin the policy's session.

    Raises:
        UsageError: the policy needs a feature that the compiler does not send, or failed.
    """
    try:
        check_sent(policy, header)
        begin_session(policy, header, module)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # a policy may raise anything
        raise policy_error(error, _FAILED) from None


def decision_of(policy: Policy, observation: np.void) -> Any:
    """Return what a policy decides.

    Raises:
        UsageError: the policy failed.
    """
    try:
        return policy.advise(observation)
    except (Exception, SystemExit) as error:  # a policy may raise anything
        raise policy_error(error, _FAILED) from None


def decision_check(header: LogHeader) -> Callable[[bytes, bytes], None]:
    """Return a function that raises ValueError if advice is not a valid decision for an observation's tensors.

    LLVM checks nothing: it takes any number but 0 for 1, and uses an invalid candidate's index outside its arrays
    (``MLEvictAdvisor::tryFindEvictionCandidatePosition``).
    """
    spec = header.advice
    if spec is None:
        raise AssertionError("a session's header has an advice")
    masks = [
        (header.places[item.name].start, item.dtype.itemsize, item.element_count)
        for item in header.features
        if item.name == "mask"
    ]

    def check(tensors: bytes, advice: bytes) -> None:
        (value, *others) = np.frombuffer(advice, spec.dtype).tolist()
        if spec.name == _DECISIONS[INLINING]:
            possible = value in (0, 1)
        elif spec.name == _DECISIONS[EVICTION] and masks:
            ((start, size, count),) = masks
            at = start + value * size
            possible = 0 <= value < count and any(tensors[at : at + size])
        else:
            possible = all(map(math.isfinite, (value, *others)))
        if not possible:
            raise ValueError(f"{spec.name} {value}")

    return check


def asks_default(policy: LearnedPolicy | None, task: Task, major: int) -> bool:
    """Return True if the compiler should send the heuristic's decision, too.

    A learned policy that does not need it gets the feature that those LLVMs would overwrite with it instead, so that it
    decides as it does where it is linked into a compiler.

    Args:
        policy: the learned policy; None for another one.
        task: the session's task.
        major: the major version of the compiler's LLVM.
    """
    if task.name != INLINING or major not in MISPLACED_DEFAULT or policy is None:
        return True
    return needs_default(policy) or MISPLACED_IN not in {spec.name for spec in policy.features}


def decides_in(policy: LearnedPolicy | None, language: str | None) -> bool:
    """Return True if a policy decides in modules of a language; any but a learned one does in all.

    Args:
        policy: the learned policy; None for another one.
        language: of `mlgo_corpus.formats.commands.languages`; None if it is not known.
    """
    return policy is None or not policy.languages or language in policy.languages


def says_more(policy: str | LearnedPolicy) -> bool:
    """Return True if a policy, or the one that is named so, needs features that only an extended clang tells."""
    return needs_plugin(_features_of(policy))


def knows_project(policy: str | LearnedPolicy) -> bool:
    """Return True if one of these features is told by a clang alone that was extended for the module's project."""
    return needs_project(_features_of(policy))


def _features_of(policy: str | LearnedPolicy) -> tuple[str, ...]:
    """Return the names of the features that a policy, or the one that is named so, decides by."""
    if isinstance(policy, str) and (dataset := find_dataset(policy)) is not None:
        return dataset_features(dataset)
    learned = learned_policy(policy) if isinstance(policy, str) else policy
    return () if learned is None else tuple(spec.name for spec in learned.features)


def learned_policy(policy: str) -> LearnedPolicy | None:
    """Return the learned policy that a name means; None if it is another one.

    It is asked for before each module's compile, and read once.
    """
    folder = find_policy(policy)
    return None if folder is None else _read(folder, (folder / POLICY_NAME).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read(folder: Path, _: int) -> LearnedPolicy:
    return load_policy(folder)


def needs_default(policy: LearnedPolicy) -> bool:
    """Return True if a policy is told the heuristic's decision."""
    return INLINING_DEFAULT in {spec.name for spec in policy.features}


def misplaced(task: Task, major: int, header: LogHeader) -> tuple[slice, slice] | None:
    """Return where an observation's tensors have the heuristic's decision, and where they should; None if it is there.

    Args:
        task: the session's task.
        major: the major version of the compiler's LLVM.
        header: the header that the compiler sent.
    """
    if task.name != INLINING or major not in MISPLACED_DEFAULT:
        return None
    wrong, right = header.places.get(MISPLACED_IN), header.places.get(INLINING_DEFAULT)
    return None if wrong is None or right is None else (wrong, right)


def repair_of(task: Task, major: int, header: LogHeader) -> Callable[[bytes], bytes] | None:
    """Return a function that moves the heuristic's decision to the feature that should hold it; None if it is there.

    Parameters are those of `misplaced`.
    """
    if (places := misplaced(task, major, header)) is None:
        return None
    wrong, right = places
    nothing = bytes(wrong.stop - wrong.start)

    def repair(tensors: bytes) -> bytes:
        data = bytearray(tensors)
        data[right] = data[wrong]
        data[wrong] = nothing
        return bytes(data)

    return repair
