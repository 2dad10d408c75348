"""Policies by name: those of ours, those of somebody's module, and what each needs."""

from __future__ import annotations

import importlib
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import TASKS, Task
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.keyed import find_dataset
from mlgo_corpus.policies.learned import find_policy
from mlgo_corpus.policies.own.blame import traceback_of
from mlgo_corpus.policies.policy import (
    Policy,
    begin_session,
    check_sent,
    checked_policy,
    import_from_here,
    is_learned,
    make_policy,
    policy_digest,
    policy_folder,
    policy_text,
)

INLINING, EVICTION, PRIORITY = TASKS
HEADER = LogHeader(
    (TensorSpec("mask", "int64_t", (1, 33)), TensorSpec("inlining_default", "int64_t", (1,))),
    advice=TensorSpec("a", "int64_t", (1,)),
)


def record(**values: Any) -> Any:
    dtype = [("inlining_default", "<i8"), ("mask", "<i8", (1, 33))]
    found = np.zeros(1, dtype)[0]
    for name, value in values.items():
        found[name] = value
    return found


def mask(*allowed: int) -> Any:
    return np.isin(np.arange(33), allowed).astype(np.int64).reshape(1, 33)


def decide(text: str, task: Task, observation: Any, *, seed: int = 0, module: str = "m", count: int = 1) -> list[Any]:
    policy = make_policy(text, task, seed=seed)
    assert isinstance(policy, Policy)
    begin_session(policy, HEADER, module)
    return [policy.advise(observation) for _ in range(count)]


def test_the_simple_ones() -> None:
    for default in (0, 1):
        assert decide("default", INLINING, record(inlining_default=default)) == [default]
        assert decide("never", INLINING, record(inlining_default=default)) == [0]
        assert decide("always", INLINING, record(inlining_default=default)) == [1]
    assert decide("first", EVICTION, record(mask=mask(7, 9, 32))) == [7]
    assert decide("first", EVICTION, record(mask=mask(32))) == [32]
    assert decide("first", PRIORITY, record()) == [0]


def test_random_inlining() -> None:
    assert set(decide("random:0", INLINING, record(), count=200)) == {0}
    assert set(decide("random:1", INLINING, record(), count=200)) == {1}
    for text, share in (("random", 0.5), ("random:0.5", 0.5), ("random:0.1", 0.1)):
        found = decide(text, INLINING, record(), count=2000)
        assert set(found) == {0, 1}
        assert sum(found) / 2000 == pytest.approx(share, abs=0.04)


def test_random_register_allocation() -> None:
    counts = Counter(decide("random", EVICTION, record(mask=mask(3, 8, 30)), count=3000))
    assert set(counts) == {3, 8, 30}
    assert min(counts.values()) > 900
    values = decide("random", PRIORITY, record(), count=2000)
    assert all(value == int(value) and 0 <= value < 2**24 for value in values)  # LLVM cuts off all else
    assert {int(value) >> 20 for value in values} == set(range(16))
    assert {int(value) % 16 for value in values} == set(range(16))


@pytest.mark.parametrize("task", TASKS)
def test_random_is_the_modules_and_the_seeds(task: Task) -> None:
    observation = record(mask=mask(*range(33)))

    def draw(seed: int, module: str) -> list[Any]:
        return decide("random", task, observation, seed=seed, module=module, count=50)

    assert draw(1, "a.o") == draw(1, "a.o")
    assert draw(1, "a.o") != draw(2, "a.o")
    assert draw(1, "a.o") != draw(1, "b.o")
    assert draw(1, "1:a") != draw(11, "a")
    # A session begun again is the same again.
    policy = make_policy("random", task, seed=1)
    begin_session(policy, HEADER, "a.o")
    first = [policy.advise(observation) for _ in range(50)]
    begin_session(policy, HEADER, "a.o")
    assert [policy.advise(observation) for _ in range(50)] == first == draw(1, "a.o")


@pytest.mark.parametrize(
    ("text", "task", "message"),
    [
        (
            "first",
            INLINING,
            "expected one of default, never, always, random:P, inlining-1.0, inlining-2.0, inlining-3.0, "
            "module:attribute",
        ),
        ("", INLINING, "policy : not a policy for inlining"),
        ("never", EVICTION, "not a policy for regalloc-eviction: expected one of first, random, module:attribute"),
        ("random:0.5", EVICTION, "not a policy for regalloc-eviction: expected one of first, random, module:attribute"),
        ("default", PRIORITY, "the compiler does not send its heuristic's decision; expected one of first, random"),
        ("random:2", INLINING, "policy random:2: expected a probability from 0 to 1"),
        ("random:-0.1", INLINING, "policy random:-0.1: expected a probability from 0 to 1"),
        ("random:nan", INLINING, "policy random:nan: expected a probability from 0 to 1"),
        ("random:", INLINING, "policy random:: expected a probability from 0 to 1"),
        ("no_such_module_at_all:Policy", INLINING, "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        (":Policy", INLINING, "policy :Policy: ValueError: Empty module name"),
        ("os:", INLINING, "policy os:: AttributeError: module 'os' has no attribute ''"),
        (
            "os:getcwd",
            INLINING,
            "policy os:getcwd: expected a function of an observation, or an object with a method advise; found a str",
        ),
        ("os:path.join(1, *[2])", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:f(a=1, a=2)", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:f(**{'a': 1})", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:f(__import__('os'))", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:f(1)(2)", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:f(1).g", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:f(1", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:f({[]: 1})", INLINING, "expected numbers, quoted text and other literals as arguments, such as"),
        ("os:sep", INLINING, "policy os:sep: TypeError: 'str' object is not callable"),
    ],
)
def test_names_that_are_none(text: str, task: Task, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_policy(text, task)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("find", "file"), [(find_dataset, "dataset.json"), (find_policy, "policy.json")])
def test_a_folder_takes_no_name_of_a_policy(
    find: Callable[[str], Path | None], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("never", "default", "first", "random", "random:0.3", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
        assert find(f"./{name}") == policy_folder(f"./{name}") == tmp_path / name
        assert find(name) == policy_folder(name) == (tmp_path / name if name == "mine" else None)
        assert is_learned(name) == (name == "mine" and find is find_policy)
    (tmp_path / "mine" / "dataset.json").write_text("{}")
    assert (find_dataset("mine"), find_policy("mine")) == (tmp_path / "mine", None)
    assert (find_dataset(f"m:Make('{'x' * 300}')"), find_dataset("a\0b")) == (None, None)


def test_a_file_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [item for item in sys.path if item])
    text = "class P:\n    class Q:\n        def reset(self, h, m): pass\n        def advise(self, o): return 5\n"
    (tmp_path / "mine_for_test_policies.py").write_text(text)
    try:
        import_from_here("default", "random:0.3", "inlining-1.0", "no-policy")
        assert "" not in sys.path  # nobody's own module is wanted
        import_from_here("default", "mine_for_test_policies:P.Q")
        import_from_here("mine_for_test_policies:P.Q")
        assert sys.path.count("") == 1
        assert policy_digest("mine_for_test_policies:P.Q") is None  # not imported yet
        assert decide("mine_for_test_policies:P.Q", EVICTION, record()) == [5]
        before = policy_digest("mine_for_test_policies:P.Q")
        (tmp_path / "mine_for_test_policies.py").write_text(text.replace("5", "6"))
        assert decide("mine_for_test_policies:P.Q", EVICTION, record()) == [5]  # a run has one version
        assert policy_digest("mine_for_test_policies:P.Q") == before
        assert policy_text("mine_for_test_policies:P.Q") == "mine_for_test_policies:P.Q"
        assert decide("mine_for_test_policies:P.Q", EVICTION, record()) == [6]
        after = policy_digest("mine_for_test_policies:P.Q")
    finally:
        sys.modules.pop("mine_for_test_policies", None)
    assert before is not None
    assert after is not None
    assert before != after
    assert [policy_digest(text) for text in ("default", "random:0.5", "first", "sys:x")] == [None] * 4


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (("mask",), None),
        ("mask", None),
        ((), None),
        (None, None),
        ((TensorSpec("mask", "int64_t", (1, 33)), "inlining_default"), None),
        ("moon", "the policy needs the feature 'moon', which this compiler does not send"),
        (("mask", "moon"), "the policy needs the feature 'moon', which this compiler does not send"),
        (
            (TensorSpec("mask", "float", (1, 33)),),
            "the policy needs 'mask' as float[1, 33], this compiler sends int64_t[1, 33]",
        ),
        (
            (TensorSpec("mask", "int64_t", (33,)),),
            "the policy needs 'mask' as int64_t[33], this compiler sends int64_t[1, 33]",
        ),
    ],
)
def test_features_that_a_policy_needs(features: Any, message: str | None) -> None:
    policy: Any = make_policy("never", INLINING)
    policy.features = features
    if message is None:
        check_sent(policy, HEADER)
        return
    with pytest.raises(UsageError) as caught:
        check_sent(policy, HEADER)
    assert str(caught.value) == message


def test_a_policy_needs_to_say_nothing_of_features() -> None:
    class Bare:
        def reset(self, header: LogHeader, module: str) -> None: ...

        def advise(self, observation: Any) -> Any:
            return observation["inlining_default"]

    check_sent(Bare(), HEADER)


MINE = """
import numpy as np

class Limit:
    def __init__(self, limit=0, *, scale=1):
        self.limit = limit * scale
    def advise(self, observation):
        return int(observation["inlining_default"] < self.limit)

def limited(limit):
    return lambda observation: int(observation["inlining_default"] < limit)

def inverted(observation):
    return 1 - observation["inlining_default"]

inverted.features = ("inlining_default",)
five = Limit(5)
number = 3

def broken():
    return np.zeros((1, 2)) @ np.zeros(3)

def unnamed():
    raise FileNotFoundError("caf\\udce9.txt")

class Mute(Exception):
    def __str__(self):
        raise self

def mute():
    raise Mute
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of policies, which can be imported."""
    name = "mine_for_test_policies"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("attribute", "decisions"),
    [
        ("Limit", [0, 0]),
        ("Limit(4)", [1, 0]),
        ("Limit(2, scale=2)", [1, 0]),
        ("Limit(limit=-1)", [0, 0]),
        ("limited(9)", [1, 1]),
        ("five", [1, 0]),
        ("inverted", [-2, -6]),
    ],
)
def test_functions_objects_and_arguments(mine: str, attribute: str, decisions: list[int]) -> None:
    for default, decision in zip((3, 7), decisions, strict=True):
        assert decide(f"{mine}:{attribute}", INLINING, record(inlining_default=default)) == [decision]


def test_a_function_may_name_its_features(mine: str) -> None:
    policy: Any = make_policy(f"{mine}:inverted", INLINING)
    assert policy.features == ("inlining_default",)


def test_the_place_in_the_policy_s_file_is_named(mine: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        make_policy(f"{mine}:broken", INLINING)
    assert str(caught.value).startswith(f"policy {mine}:broken: ValueError: matmul")
    assert str(caught.value).endswith(f" ({mine}.py, line 21)")
    lines = traceback_of(caught.value).splitlines()
    place = f'  File "{tmp_path / mine}.py", line 21, in broken'
    assert lines[:2] == ["Traceback (most recent call last):", place]
    (tmp_path / "needs_another.py").write_text("\nimport no_such_module_at_all\n")
    with pytest.raises(UsageError, match=r"No module named 'no_such_module_at_all' \(needs_another\.py, line 2\)\n"):
        make_policy("needs_another:P", INLINING)
    with pytest.raises(UsageError, match=r"No module named 'no_such_module_at_all'$") as caught:
        make_policy("no_such_module_at_all:P", INLINING)
    assert traceback_of(caught.value) == ""  # nothing of it is the policy's


def test_an_exception_that_cannot_be_shown_is_told_as_any_other(mine: str) -> None:
    for name, said in (
        ("unnamed", f"FileNotFoundError: caf%E9.txt ({mine}.py, line 24)"),
        ("mute", f"Mute: <exception str() failed> ({mine}.py, line 31)"),
    ):
        with pytest.raises(UsageError) as caught:
            make_policy(f"{mine}:{name}", INLINING)
        assert str(caught.value) == f"policy {mine}:{name}: {said}"
        assert traceback_of(caught.value).encode().startswith(b"Traceback")


def test_what_is_no_policy_is_told() -> None:
    class OnlyResets:
        def reset(self, _header: object, _module: str) -> None: ...

    expected = "policy x: expected a function of an observation, or an object with a method advise; found"
    for made, found in ((OnlyResets(), "a OnlyResets"), (OnlyResets, "the class OnlyResets"), (print, "a builtin_")):
        with pytest.raises(UsageError, match=f"^{expected} {found}"):
            checked_policy(lambda made=made: made, "x")


def test_an_edited_module_is_loaded_again_when_a_run_begins(
    mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text, file = f"{mine}:five", tmp_path / f"{mine}.py"
    module = importlib.import_module(mine)  # by somebody else, and edited before we see it
    file.write_text(MINE.replace("Limit(5)", "Limit(50)"))
    assert decide(text, INLINING, record(inlining_default=7)) == [0]
    policy_text(text)
    assert decide(text, INLINING, record(inlining_default=7)) == [1]
    five = module.five
    assert policy_text(text) == text
    assert module.five is five  # nothing has changed
    file.write_text("number = 1 +\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"^start {text}: SyntaxError: invalid syntax .*line 1\)$"):
            policy_text(text, "start")
    file.write_text(MINE)
    policy_text(text)
    assert decide(text, INLINING, record(inlining_default=7)) == [0]
    file.unlink()
    policy_text(text)
    before = sys.modules["mlgo_corpus.policies.policy"].make_policy
    policy_text("mlgo_corpus.policies.policy:make_policy")
    policy_text("__main__:main")
    assert sys.modules["mlgo_corpus.policies.policy"].make_policy is before


CELL = """
from functools import cache
import numpy as np
from numpy import exp

limit = 3
weights = np.arange(5000)

class Base:
    def __init__(self, scale=1):
        self.scale = scale

class Policy(Base):
    @property
    def limit(self):
        return limit * self.scale
    def advise(self, observation):
        return int(observation["inlining_default"] < self.limit)

def helper(value, *, more=0):
    return [item for item in (value, more) if item in {1, 2, 3}]

def function(observation):
    return helper(observation["inlining_default"])

def made(by):
    return lambda observation: by

def weighted(observation):
    return weights[7]

@cache
def scaled(value):
    return np.int64(value * int('scale: 5'[-1]) * limit)

def remembered(observation):
    return abs(exp(scaled(observation["inlining_default"])))

two = Policy(2)
by_nine = made(9)
lines = (line for line in ())
def odd(observation):
    return lines
"""


@pytest.mark.parametrize(
    ("attribute", "old", "new"),
    [
        ("Policy", "limit = 3", "limit = 4"),
        ("Policy", "< self.limit", "<= self.limit"),
        ("Policy(2)", "self.scale = scale", "self.scale = scale + 1"),
        ("Policy", "limit * self.scale", "limit + self.scale"),
        ("two", "Policy(2)", "Policy(3)"),
        ("two", "limit = 3", "limit = 3.0"),
        ("function", "{1, 2, 3}", "{1, 2, 4}"),
        ("function", "more=0", "more=1"),
        ("function", "import numpy as np\n", "import numpy as np\ndef len(x): return 1\n"),
        ("by_nine", "made(9)", "made(10)"),
        ("remembered", "scale: 5", "scale: 6"),
        ("remembered", "limit = 3", "limit = 5"),
        ("weighted", "np.arange(5000)", "np.append(np.arange(4999), 1)"),
    ],
)
def test_a_module_without_a_file_is_known_by_its_code(
    monkeypatch: pytest.MonkeyPatch, attribute: str, old: str, new: str
) -> None:
    name = "cells_for_test_policies"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)

    def digest(code: str, cell: str) -> str | None:
        exec(compile(code, cell, "exec"), vars(module))  # noqa: S102 - as a notebook does
        return policy_digest(f"{name}:{attribute}")

    first = digest(CELL, "<cell 1>")
    assert first is not None
    assert digest(f"\n\n{CELL}", "<cell 2>") == first
    changed = digest(CELL.replace(old, new), "<cell 2>")
    assert (changed == first) is ("def len" in new)  # which this policy does not call
    assert digest(CELL, "<cell 3>") == first
    assert policy_digest(f"{name}:odd") != policy_digest(f"{name}:odd")  # it cannot be identified
    assert policy_digest(f"{name}:nothing") is None
