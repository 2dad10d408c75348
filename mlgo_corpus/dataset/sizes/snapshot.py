"""What a snapshot of a module holds: its functions' features and sizes, column by column, and how the run ended."""

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
        OK: it is whole.
        MISSING_FILE: a file of the corpus that the run needs is not there: the bitcode, the command or the index.
        UNREADABLE_BITCODE: what should be bitcode is none, or damaged.
        NEWER_BITCODE: the bitcode is of another LLVM than the compiler's, which cannot read it.
        NO_COMMAND: the corpus has no command for the module, and none was given.
        REFUSED_OPTION: the command has an option that a replay must not run.
        UNKNOWN_OPTION: clang or opt does not know an option of the command.
        NO_PIPELINE: the compiler printed no pipeline, or one that cannot be read.
        NO_SNAPSHOT: there is inlining, but no pass at which the compiler could print the module right then.
        UNREADABLE_IR: what was printed of the module cannot be read, or does not fit together.
        COMPILER_ERROR: clang or opt ended with another error.
        SIGNAL: clang or opt crashed, or somebody killed it.
        TIMEOUT: clang or opt took longer than it may.
        MEMORY_LIMIT: clang or opt took more memory than it may.
        NO_OBJECT: the compiler did well but left no object whose symbols can be read.
        DISK_FULL: what the run writes did not fit.
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
    reason: SnapshotReason
    detail: str = ""
    functions: Functions | None = None
    faithful: bool | None = None
    object_sha256: str = ""
    text_size: int = 0
    code_size: int = 0
    cpu_s: float = 0.0
    replay_cpu_s: float | None = None
