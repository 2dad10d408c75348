"""The policy stage: what a learned policy is, and what compilers take of it.

The stage behind ``mlgo-corpus policy``. A policy is a folder (`mlgo_corpus.policies.learned`). `compile_policy` makes
of it a source in C, a shared object, and a header for LLVM (`mlgo_corpus.policies.source`, ``compiled``, ``embedded``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files.folder import write_folder
from mlgo_corpus.files.regular import read_regular
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.artefact import check_name
from mlgo_corpus.policies.compiled import LIBRARY_NAME, SOURCE_NAMES, build_library, c_source
from mlgo_corpus.policies.embedded import OUTPUT_SPEC_NAME, model_header, model_name, output_spec
from mlgo_corpus.policies.learned import LearnedPolicy, known_policies, load_policy, named_policy
from mlgo_corpus.policies.pretrained import policy_of_tflite
from mlgo_corpus.policies.sizes.model import SizeModel, is_size_model
from mlgo_corpus.runs.report import Report

_TFLITE_NAME: Final = "model.tflite"
# Such models have some 200 kB.
_MAX_TFLITE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class PolicyFacts(Report):
    """What a learned policy is.

    Attributes:
        path: its folder.
        name: ``TASK-MAJOR.MINOR``.
        task: ``inlining``, ``regalloc-eviction``, ``regalloc-priority``, or ``native-size`` of a model of native size.
        kind: ``rule``, ``trees`` or ``mlp``.
        size: of its model, in words.
        threshold: inlining: the score above which a call is inlined; else None.
        languages: in whose modules it decides; in all if empty.
        features: what it decides by.
        digest: what identifies all that it decides by.
        training: what it was trained on and with.
        licence: its licence.
        metrics: what was measured of it.
        card: the text of its card.
    """

    path: Path
    name: str
    task: str
    kind: str
    size: str
    threshold: float | None
    languages: tuple[str, ...]
    features: tuple[TensorSpec, ...]
    digest: str
    training: Mapping[str, Any]
    licence: str
    metrics: Mapping[str, Any]
    card: str


@dataclass(frozen=True, slots=True)
class PolicyBuild(Report):
    """The result of `compile_policy`.

    Attributes:
        output: the folder.
        name: the policy's.
        task: the policy's.
        files: the names of the files in the folder.
        command: what compiled the shared object, without its files.
        seconds: how long it took.
    """

    output: Path
    name: str
    task: str
    files: tuple[str, ...]
    command: tuple[str, ...]
    seconds: float


def show_policy(policy: str | Path) -> PolicyFacts:
    """Return what a policy is.

    Args:
        policy: its folder, or the name of one that comes with the package.

    Raises:
        UsageError: there is no such policy, or it is damaged.
    """
    return _facts(*_named(policy))


def list_policies() -> tuple[PolicyFacts, ...]:
    """Return the policies that come with the package."""
    return tuple(_facts(folder, load_policy(folder)) for folder in known_policies().values())


def compile_policy(policy: str | Path, output: Path | str, *, force: bool = False) -> PolicyBuild:
    """Make of a policy what compilers take: C, a shared object, and LLVM's header.

    Args:
        policy: its folder, or the name of one that comes with the package.
        output: the folder to write.
        force: replace such a folder.

    Raises:
        UsageError: there is no such policy, or it is damaged; there is no C compiler, or something at ``output``.
    """
    started, output = time.monotonic(), output_here(output, "a compiled policy", "a folder")
    _, found = _named(policy)
    files = {name: text.encode() for name, text in zip(SOURCE_NAMES, c_source(found), strict=True)}
    with scratch_folder() as scratch:
        try:
            command = build_library(found, scratch / LIBRARY_NAME)
            files[LIBRARY_NAME] = (scratch / LIBRARY_NAME).read_bytes()
        except OSError as error:
            raise UsageError(f"{scratch}: {os_reason(error)}") from error
    if isinstance(found, LearnedPolicy):  # LLVM embeds no model of native size, and asks for no specification of one
        files[f"{model_name(found.task)}.h"] = model_header(found).encode()
        files[OUTPUT_SPEC_NAME] = output_spec(found).encode()
    known = (*reversed(SOURCE_NAMES), LIBRARY_NAME, "*Model.h", OUTPUT_SPEC_NAME)
    write_folder(output, files, known=known, force=force)
    return PolicyBuild(output, found.name, found.task, tuple(files), command, time.monotonic() - started)


def import_policy(model: Path | str, output: Path | str, *, force: bool = False) -> PolicyFacts:
    """Make a policy of ml-compiler-opt's inlining model.

    Args:
        model: its ``model.tflite``, or the folder of the saved model that has it.
        output: the folder to write; its name is the policy's.
        force: replace a policy that is there.

    Raises:
        UsageError: the model cannot be read, is none of that kind, or something is at ``output``, or its name is none
            of a policy.
    """
    model, output = Path(model), output_here(output, "a policy", "a folder")
    try:
        check_name(output.name)
    except FormatError as error:
        raise UsageError(str(error).removeprefix("name: "), option="output") from None
    path = model / _TFLITE_NAME if model.is_dir() else model
    try:
        found = policy_of_tflite(read_regular(path, _MAX_TFLITE_BYTES), output.name)
    except OSError as error:
        raise UsageError(f"{path}: {os_reason(error)}") from error
    except FormatError as error:
        raise UsageError(str(error.at(path))) from None
    found.save(output, force=force)
    return _facts(output, found)


def _named(policy: str | Path) -> tuple[Path, LearnedPolicy | SizeModel]:
    """Return the folder of a policy or of a model of native size, and what it holds.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    if not is_size_model(policy):
        return named_policy(policy)
    try:
        return Path(policy), SizeModel.load(policy)
    except FormatError as error:
        raise UsageError(str(error)) from None


def _facts(folder: Path, policy: LearnedPolicy | SizeModel) -> PolicyFacts:
    return PolicyFacts(
        path=folder,
        name=policy.name,
        task=policy.task,
        kind=policy.model.kind,
        size=policy.model.described(),
        languages=policy.languages if isinstance(policy, LearnedPolicy) else (),
        threshold=policy.as_json()["decision"].get("threshold"),
        features=policy.features,
        digest=policy.digest,
        training=policy.training,
        licence=policy.licence,
        metrics=policy.metrics,
        card=policy.card,
    )
