"""The snapshot of a module: its functions' features and sizes, column by column, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.formats.ir.features import Properties
from mlgo_corpus.formats.objects.symbols import Label


@dataclass(frozen=True, slots=True)
class Context:
    """The values that a module's functions have in common, and those of each function, by position.

    Attributes:
        triple: the module's target.
        data_layout: the target's data layout.
        level: the command's optimisation level: ``0`` to ``3``, ``s``, ``z``.
        linkage: each function's linkage as printed; ``external`` if none is printed.
        comdat, section: each function's names, empty for none.
        attributes: each function's attributes with their values; ``target-cpu`` is among them.
    """

    triple: str
    data_layout: str
    level: str
    linkage: tuple[str, ...]
    comdat: tuple[str, ...]
    section: tuple[str, ...]
    attributes: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class Functions:
    """All functions of a snapshot, in the module's order; every member has one entry per function.

    Attributes:
        names: the names in the IR.
        demangled: the same as the source has them; None for names that are not mangled.
        properties: LLVM's function properties.
        ir2native: the IR2Native vectors, int32; None if they were not requested.
        operands: what `operand_features` counts, int32; None if it was not requested.
        context: linkage, attributes and so on.
        labels: the native sizes.
        digests: the bodies' digests, see `body_digest`: functions with equal ones belong to one side of a split.
    """

    names: tuple[str, ...]
    demangled: tuple[str | None, ...]
    properties: Properties
    ir2native: NDArray[np.int32] | None
    operands: NDArray[np.int32] | None
    context: Context
    labels: tuple[Label, ...]
    digests: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class ModuleSnapshot:
    """The outcome of one run.

    Attributes:
        module: the module's name in its corpus.
        reason: how the run ended.
        detail: one line for a person: what went wrong; empty if nothing did.
        functions: the snapshot's functions; None for a failed run.
        faithful: whether the object equals the plain replay's, byte for byte; None if they were not compared.
        object_sha256: hex digest of the object; empty for a failed run.
        text_size, code_size: the object's sizes, see `measure_object`.
        cpu_s: seconds of processor time that clang and opt took, without verification.
        replay_cpu_s: seconds of processor time of the plain replay; None if there was none.
    """

    module: str
    reason: RunReason
    detail: str = ""
    functions: Functions | None = None
    faithful: bool | None = None
    object_sha256: str = ""
    text_size: int = 0
    code_size: int = 0
    cpu_s: float = 0.0
    replay_cpu_s: float | None = None
