"""Policies, which decide in a live session, and their names.

A policy is a function of an observation::

    def small(observation):                 # a numpy record: a field for each feature, under LLVM's name
        return observation["cost_estimate"] < 100

or any object with a method ``advise``; no base class is needed, and the rest is optional::

    class Small:
        features = ("cost_estimate",)       # those it needs, so that a compiler without them is refused

        def reset(self, header, module):    # a session begins: its LogHeader, and the module's name
            ...

        def advise(self, observation):
            return observation["cost_estimate"] < 100

The value that it returns is the decision: 0 or 1 for inlining, an index into the candidates for eviction, a number for
priority. Features that a newer compiler sends besides those a policy needs are present and harmless: LLVM adds features
at the end and never changes the meaning of one (llvm/docs/MLGO.rst).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import several
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, INLINING_DEFAULT, PRIORITY, Task, lacking
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.artefact import INTERRUPTED, was_interrupted
from mlgo_corpus.policies.compiled import fastest
from mlgo_corpus.policies.keyed import NAMES, DatasetPolicy, dataset_digest, find_dataset
from mlgo_corpus.policies.learned import LearnedPolicy, find_policy, known_policies, named_policy
from mlgo_corpus.policies.overtime import Overtime, end_after
from mlgo_corpus.policies.own.blame import policy_error
from mlgo_corpus.policies.own.code import file_digest, note_loaded, object_digest, refresh

# Random priorities: as many as a float can hold each whole number of.
_PRIORITIES: Final = 1 << 24


@runtime_checkable
class Policy(Protocol):
    """An object that decides; see the module's docstring. `begin_session` calls its method ``reset``, if it has one."""

    def advise(self, observation: np.void) -> Any:
        """Return the decision: a number that fits the header's advice."""


@dataclass(slots=True)
class DefaultPolicy:
    """Decide as LLVM's own heuristic would: the compiler sends its decision with each observation."""

    features: tuple[str, ...] = (INLINING_DEFAULT,)

    def advise(self, observation: np.void) -> Any:
        """Return ``inlining_default``."""
        return observation[INLINING_DEFAULT]


@dataclass(slots=True)
class _ConstantPolicy:
    """Decide the same every time."""

    value: int
    features: tuple[str, ...] = ()

    def advise(self, observation: np.void) -> Any:  # noqa: ARG002 - it does not matter
        """Return the value."""
        return self.value


@dataclass(slots=True)
class _FunctionPolicy:
    """Decide as a function of the observation does."""

    advise: Callable[[np.void], Any]
    features: Any


@dataclass(slots=True)
class _FirstPolicy:
    """Evict the first candidate that may be evicted."""

    features: tuple[str, ...] = ("mask",)

    def advise(self, observation: np.void) -> Any:
        """Return the index of the first candidate whose ``mask`` is not 0."""
        return int(np.argmax(observation["mask"]))


@dataclass(slots=True)
class _RandomPolicy:
    """Decide at random; a module gets the same decisions from the same seed, wherever and whenever it runs.

    Inlining: 1 with the probability given. Eviction: any candidate that may be evicted. Priority: any whole
    number below 2^24; LLVM cuts off what is behind the point (``MLPriorityAdvisor::getPriority``).
    """

    task: str
    probability: float
    seed: int
    features: tuple[str, ...] = ()
    generator: random.Random = field(default_factory=random.Random)

    def reset(self, header: LogHeader, module: str) -> None:  # noqa: ARG002 - any header will do
        """Start the module's own random sequence."""
        self.generator = random.Random(f"{self.seed}:{module}")  # noqa: S311 - an experiment, no secret

    def advise(self, observation: np.void) -> Any:
        """Draw a decision."""
        if self.task == EVICTION:
            allowed = np.flatnonzero(observation["mask"])
            return int(self.generator.choice(allowed)) if len(allowed) else 0
        draw = self.generator.random()
        return float(int(draw * _PRIORITIES)) if self.task == PRIORITY else int(draw < self.probability)


def make_policy(text: str, task: Task, *, seed: int = 0, moved: float = 0.0) -> Policy:
    """Make the policy that ``text`` names: ``default``, ``random:0.3``, ``package.module:Attribute(3)``, ...

    A folder of a dataset means the decisions in it, see `mlgo_corpus.policies.keyed`; that of a learned policy, or the
    name of one that comes with the package, means this policy, see `mlgo_corpus.policies.learned`.
    A module's attribute is a policy, or a class or function that makes one: with the arguments in the name, which are
    Python literals, or without any.

    Args:
        text: the name.
        task: of LLVM's tasks.
        seed: of decisions at random.
        moved: what is added to the threshold of a learned policy, of which `is_learned` tells.

    Raises:
        UsageError: the name is not one of a policy for this task; the message lists those names.
    """
    name, colon, rest = text.partition(":")
    if task.name == INLINING and (dataset := find_dataset(text)) is not None:
        return DatasetPolicy(dataset, DefaultPolicy())
    if text == "default" and task.name == INLINING:
        return DefaultPolicy()
    if text in ("never", "always") and task.name == INLINING:
        return _ConstantPolicy(int(text == "always"))
    if text == "first" and task.name == EVICTION:
        return _FirstPolicy()
    if text == "first" and task.name == PRIORITY:
        return _ConstantPolicy(0)
    if name == "random" and (not colon or task.name == INLINING):
        probability = _probability(rest) if colon else 0.5
        features = ("mask",) if task.name == EVICTION else ()
        return _RandomPolicy(task.name, probability, seed, features)
    if find_policy(text) is not None:
        learned = _learned(text, task)
        return fastest(replace(learned, threshold=learned.threshold + moved))
    if _has_attribute(text):
        return _import_policy(text, name, rest)
    if was_interrupted(Path(text)):
        raise UsageError(f"expected a policy, found {INTERRUPTED}", option="policy", value=text)
    also = ("a dataset's folder", "a policy's folder") if task.name == INLINING else ("a policy's folder",)
    known = (name for name in known_policies() if name.startswith(f"{task.name}-"))
    names = ", ".join((*NAMES[task.name], *known, "module:attribute", *also))
    why = "the compiler does not send its heuristic's decision; " if text == "default" else ""
    message = f"not a policy for {task.name}: {why}expected one of {names}"
    raise UsageError(message, option="policy", value=text)


def _learned(text: str, task: Task) -> LearnedPolicy:
    _, policy = named_policy(text)
    if policy.task != task.name:
        raise UsageError(f"a policy for {policy.task}, expected one for {task.name}", option="policy", value=text)
    return policy


def is_learned(text: str) -> bool:
    """Return True if a policy's name means a learned policy."""
    return find_policy(text) is not None


def policy_text(policy: object, option: str = "policy") -> str:
    """Return a policy's name as text: who compiles a corpus has worker processes, which make the policy by its name.

    The module of ``module:attribute`` is loaded again if its file was edited since: a run has one version of it, from
    its beginning.

    Raises:
        UsageError: it is no name, but perhaps a policy itself; or its module cannot be loaded again.
    """
    if isinstance(policy, str | Path):
        text = str(policy)
        try:
            refresh(_module_of(text))
        except (Exception, SystemExit) as error:  # a module may raise anything
            raise policy_error(error, option=option, value=text) from None
        return text
    found = getattr(policy, "__qualname__", type(policy).__qualname__)
    raise UsageError(f"expected a name, such as module:attribute, found {found}; a Tracer takes objects", option=option)


def policy_folder(text: str) -> Path | None:
    """Return the folder that a policy's name means, absolute: a dataset's or a learned policy's; None for neither."""
    return find_dataset(text) or find_policy(text)


def policy_name(text: str) -> str:
    """Return the name of a policy without the path of its folder."""
    return text if (folder := policy_folder(text)) is None else folder.name


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError("expected a probability from 0 to 1", option="policy", value=f"random:{text}")
    return value


def _import_policy(text: str, module: str, attribute: str) -> Policy:
    if module.endswith(".py") or "/" in module:
        name = module.rpartition("/")[2].removesuffix(".py")
        message = f"expected a module, not a file: {name}:{attribute}, in the file's folder"
        raise UsageError(message, option="policy", value=text)

    name, arguments, named = _parse_call(text, attribute)

    def find() -> Any:
        found = _find(module, name)
        return found if name == attribute and decides(found) else found(*arguments, **named)

    return checked_policy(find, text)


def _find(module: str, attribute: str) -> Any:
    found: Any = importlib.import_module(module)
    note_loaded(found)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def named_object(text: str) -> Policy | None:
    """Return the policy object that ``module:attribute`` names, which is the same in each run; None for anything else.

    Functions are not meant: they hold nothing from one observation to the next.
    """
    module, _, attribute = text.partition(":")
    try:
        found = _find(module, attribute)
    except (Exception, SystemExit):  # the run has the same, and a row for it
        return None
    return found if isinstance(found, Policy) and not isinstance(found, type) else None


def _parse_call(text: str, attribute: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return an attribute's name, and the arguments after it; nothing is evaluated but literals."""
    name, bracket, rest = attribute.partition("(")
    if not bracket:
        return name, (), {}
    try:
        call = ast.parse(f"_({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        named = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords if item.arg}
        if len(named) != len(call.keywords):
            raise ValueError
        return name, tuple(map(ast.literal_eval, call.args)), named
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        message = "expected numbers, quoted text and other literals as arguments, such as (3, name='x')"
        raise UsageError(message, option="policy", value=text) from None


def decides(found: Any) -> bool:
    """Return True for a policy: an object with a method ``advise``, or a function of an observation.

    A function without required arguments makes one.
    """
    if isinstance(found, type):
        return False
    if isinstance(found, Policy):
        return True
    try:
        signature = inspect.signature(found)
    except (ValueError, TypeError):  # nothing to call, or a function of C that does not tell
        return False
    return not _accepts(signature) and _accepts(signature, None)


def _accepts(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def checked_policy(make: Callable[[], Any], text: str) -> Policy:
    """Make a policy, and check that it is one; ``text`` is its name for errors.

    Raises:
        UsageError: it cannot be made, or is not a policy.
    """
    try:
        found = make()
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise policy_error(error, option="policy", value=text) from None
    if not decides(found):
        kind = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        message = f"expected a function of an observation, or an object with a method advise; found {kind}"
        raise UsageError(message, option="policy", value=text)
    return found if isinstance(found, Policy) else _FunctionPolicy(found, getattr(found, "features", ()))


def begin_session(policy: Policy, header: LogHeader, module: str) -> None:
    """Call the policy's ``reset``, if it has one, at the beginning of a session."""
    reset = getattr(policy, "reset", None)
    if reset is not None:
        reset(header, module)


def try_policy(text: str, task: Task, *, seed: int, timeout: float) -> None:
    """Check that a policy can be made.

    Raises:
        UsageError: it cannot be made, or takes longer than ``timeout`` seconds.
    """
    try:
        end_after(time.monotonic() + timeout, lambda: make_policy(text, task, seed=seed))
    except Overtime:
        message = f"it was not made within {timeout:g} seconds"
        raise UsageError(message, option="policy", value=text) from None


def policy_digest(text: str) -> str | None:
    """Return the digest of a dataset, a learned policy, or the file of ``module:attribute``; None for a simple policy.

    Of a module without a file, such as that of a notebook, it is the digest of the attribute itself.

    Raises:
        UsageError: a learned policy cannot be read.
    """
    if (dataset := find_dataset(text)) is not None:
        return dataset_digest(dataset)
    if (folder := find_policy(text)) is not None:
        return named_policy(folder)[1].digest
    module = _module_of(text)
    if module is None or (digest := file_digest(module)) is not None:
        return None if module is None else digest
    try:
        name, _, _ = _parse_call(text, text.partition(":")[2])
        found = _find(module.__name__, name)
    except (Exception, SystemExit):  # the run has the same, and a row for it
        return None
    return object_digest(found)


def _module_of(text: str) -> Any:
    """Return the module of ``module:attribute``, if it is imported; None for any other policy."""
    return sys.modules.get(text.partition(":")[0]) if _has_attribute(text) else None


def import_from_here(*policies: str) -> None:
    """Make modules in the current folder importable for policies named ``module:attribute``, as ``python -m`` does.

    Without such a policy they are not: in a folder of anybody's, a file may have the name of one of Python's modules.
    """
    if "" not in sys.path and any(map(is_own_code, policies)):
        sys.path.insert(0, "")


def is_own_code(text: str) -> bool:
    """Return True if a policy's name means the user's own Python, ``module:attribute``."""
    return _has_attribute(text) and policy_folder(text) is None


def _has_attribute(text: str) -> bool:
    """Return True for ``module:attribute``; ``random:P`` is no such name."""
    name, colon, _ = text.partition(":")
    return bool(colon) and name != "random"


def check_sent(policy: Policy, header: LogHeader) -> None:
    """Check that the compiler sends the features that a policy needs.

    Raises:
        UsageError: it does not; the message names the feature.
    """
    there = {spec.name: spec for spec in header.features}
    item: str | TensorSpec
    for item in several(getattr(policy, "features", None) or ()):
        name = item.name if isinstance(item, TensorSpec) else str(item)
        if name not in there:
            raise UsageError(f"the policy {lacking(name)}")
        if isinstance(item, TensorSpec) and (item.type, item.shape) != (there[name].type, there[name].shape):
            sent = there[name]
            raise UsageError(
                f"the policy needs {name!r} as {item.type}{list(item.shape)}, this compiler sends "
                f"{sent.type}{list(sent.shape)}"
            )
