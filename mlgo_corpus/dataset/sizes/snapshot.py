"""What a snapshot of a module holds: its functions' features and sizes, column by column, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.formats.ir.features import Properties
from mlgo_corpus.formats.objects.symbols import Label


@dataclass(frozen=True, slots=True)
class Context:
    """What a module's functions have in common, and each one's own circumstances, by position.

    Attributes:
        triple: the module's target.
        data_layout: of that target.
        level: the command's optimisation level: ``0`` to ``3``, ``s``, ``z``.
        linkage: of each function, as it is printed; ``external`` where nothing is.
        comdat, section: their names, empty for none.
        attributes: of each function, its attributes with their values; ``target-cpu`` is among them.
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
        names: as they are in the IR.
        properties: LLVM's function properties; None without opt.
        ir2native: the IR2Native vectors, int32; None without opt, or if they were not asked for.
        context: linkage, attributes and so on.
        labels: the native sizes.
        digests: of the bodies, see `body_digest`: functions with equal ones belong into one split.
    """

    names: tuple[str, ...]
    properties: Properties | None
    ir2native: NDArray[np.int32] | None
    context: Context
    labels: tuple[Label, ...]
    digests: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class ModuleSnapshot:
    """What came of one run.

    Attributes:
        module: the module's name in its corpus.
        reason: how it ended.
        detail: one line for a person: what went wrong; empty if nothing did.
        functions: of the snapshot; None of a failed run.
        faithful: whether the object equals the plain replay's, byte for byte; None if that was not looked at.
        object_sha256: hex digest of the object; empty of a failed run.
        text_size, code_size: of the object, see `measure_object`.
        cpu_s: seconds of processor time that clang and opt took, without verification.
        replay_cpu_s: what the plain replay took; None if that was not done.
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
