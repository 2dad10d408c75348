"""The snapshot of a module: its functions' features and sizes, column by column, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.formats.ir.features import Properties
from mlgo_corpus.formats.objects.symbols import Label


class SnapshotReason(StrEnum):
    """How a module's run ended.

    Attributes:
        OK: the run is complete.
        MISSING_FILE: a file of the corpus that the run needs is not there: the bitcode, the command or the index.
        UNREADABLE_BITCODE: the file is not bitcode, or is damaged.
        NEWER_BITCODE: the bitcode is of another LLVM than the compiler's, which cannot read it.
        NO_COMMAND: the corpus has no command for the module, and none was given.
        REFUSED_OPTION: the command has an option that a replay must not run.
        UNKNOWN_OPTION: clang or opt does not know an option of the command.
        NO_PIPELINE: the compiler printed no pipeline, or one that cannot be read.
        NO_SNAPSHOT: the pipeline inlines, but right then has no pass at which the compiler could print the module.
        UNREADABLE_IR: the printed module cannot be read, or contradicts itself.
        COMPILER_ERROR: clang or opt ended with another error.
        SIGNAL: clang or opt crashed or was killed.
        TIMEOUT: clang or opt exceeded its time limit.
        MEMORY_LIMIT: clang or opt exceeded its memory limit.
        NO_OBJECT: the compiler succeeded but left no object whose symbols can be read.
        DISK_FULL: the run's output did not fit on the disk.
    """

    OK = "ok"
    MISSING_FILE = "missing_file"
    UNREADABLE_BITCODE = "unreadable_bitcode"
    NEWER_BITCODE = "newer_bitcode"
    NO_COMMAND = "no_command"
    REFUSED_OPTION = "refused_option"
    UNKNOWN_OPTION = "unknown_option"
    NO_PIPELINE = "no_pipeline"
    NO_SNAPSHOT = "no_snapshot"
    UNREADABLE_IR = "unreadable_ir"
    COMPILER_ERROR = "compiler_error"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    MEMORY_LIMIT = "memory_limit"
    NO_OBJECT = "no_object"
    DISK_FULL = "disk_full"


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
        properties: LLVM's function properties; None without opt.
        ir2native: the IR2Native vectors, int32; None without opt, or if they were not requested.
        context: linkage, attributes and so on.
        labels: the native sizes.
        digests: the bodies' digests, see `body_digest`: functions with equal ones belong to one side of a split.
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
    reason: SnapshotReason
    detail: str = ""
    functions: Functions | None = None
    faithful: bool | None = None
    object_sha256: str = ""
    text_size: int = 0
    code_size: int = 0
    cpu_s: float = 0.0
    replay_cpu_s: float | None = None
