"""How a module's run ended: one vocabulary for every stage that runs a compiler over a corpus."""

from __future__ import annotations

from enum import StrEnum

from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK


class RunReason(StrEnum):
    """How a module's run ended.

    The first is of modules whose run is whole, the others are failures: those before the compiler ran, how it ended,
    what came of it, and what is not the module's fault. Each stage has those of them that its documentation names.

    Attributes:
        OK: the run is whole, and what it found is in the dataset; there may be nothing.
        MISSING_FILE: a file of the corpus that the run needs is not there: the bitcode, the command or the index.
        UNREADABLE_BITCODE: the file is not bitcode, or is damaged.
        WRONG_HASH: the bitcode is not what was extracted: its hash is not the one in the corpus's table.
        NEWER_BITCODE: the bitcode is of another LLVM than the compiler's, most often of a newer one, which it cannot
            read (``Unknown attribute kind``, ``Invalid record``).
        NO_COMMAND: the corpus has no command for the module, and none was given.
        REFUSED_OPTION: the command has an option that may run other code, write files or do something else than
            compile, or that clang 17 to 22 do not know; with a corpus that is trusted it would be run.
        UNKNOWN_OPTION: the compiler does not know an option: the module's command is of another version, or the
            compiler cannot do what was asked for (``Unknown command line argument``).
        COMPILER_ERROR: the compiler ended with another error; ``stderr_tail`` has it.
        SIGNAL: the compiler crashed, or somebody killed it; ``signal`` has the number.
        TIMEOUT: the compiler took longer than it may, and was killed; or the policy did not decide in that time.
        MEMORY_LIMIT: the compiler took more memory than it may.
        PROTOCOL_ERROR: an interactive compiler did not keep to the protocol: it ended within an event, say.
        POLICY_ERROR: the policy failed, or returned an invalid decision.
        NO_OBJECT: the compiler did well but left no object that can be measured.
        NO_PIPELINE: the compiler printed no pipeline, or one that cannot be read.
        NO_SNAPSHOT: there is inlining, but no pass at which the compiler could print the module right then.
        UNREADABLE_IR: what was printed of the module cannot be read, or does not fit together.
        NO_LOG: the compiler did well but wrote no log although it was to.
        OTHER_HEADER: the log has other features than those of the other modules: another compiler's.
        UNREADABLE_LOG: the log cannot be read; ``detail`` says at which byte it breaks its format.
        NO_NAMES: the compiler's remarks do not name one call for each decision; without names the module can be had.
        CHANGED_FILE: a file that a link reads is not the one that the build linked.
        NO_OBJECT_OF_SOURCE: the command that links compiles, too, and there is no object to link instead of a source.
        LINKER_ERROR: the linker ended with an error, or cannot be run; ``stderr_tail`` has what it said.
        DISK_FULL: what the run writes did not fit.
        WORKER_DIED: the process that looked after the run died.
    """

    OK = "ok"
    MISSING_FILE = "missing_file"
    UNREADABLE_BITCODE = "unreadable_bitcode"
    WRONG_HASH = "wrong_hash"
    NEWER_BITCODE = "newer_bitcode"
    NO_COMMAND = "no_command"
    REFUSED_OPTION = "refused_option"
    UNKNOWN_OPTION = "unknown_option"
    COMPILER_ERROR = "compiler_error"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    MEMORY_LIMIT = "memory_limit"
    PROTOCOL_ERROR = "protocol_error"
    POLICY_ERROR = "policy_error"
    NO_OBJECT = "no_object"
    NO_PIPELINE = "no_pipeline"
    NO_SNAPSHOT = "no_snapshot"
    UNREADABLE_IR = "unreadable_ir"
    NO_LOG = "no_log"
    OTHER_HEADER = "other_header"
    UNREADABLE_LOG = "unreadable_log"
    NO_NAMES = "no_names"
    CHANGED_FILE = "changed_file"
    NO_OBJECT_OF_SOURCE = "no_object_of_source"
    LINKER_ERROR = "linker_error"
    DISK_FULL = "disk_full"
    WORKER_DIED = "worker_died"


# The reasons that every stage has.
_COMMON = frozenset(
    {
        RunReason.OK, RunReason.MISSING_FILE, RunReason.UNREADABLE_BITCODE, RunReason.NEWER_BITCODE,
        RunReason.NO_COMMAND, RunReason.REFUSED_OPTION, RunReason.UNKNOWN_OPTION, RunReason.COMPILER_ERROR,
        RunReason.SIGNAL, RunReason.TIMEOUT, RunReason.MEMORY_LIMIT, RunReason.NO_OBJECT, RunReason.DISK_FULL,
        RunReason.WORKER_DIED,
    }
)  # fmt: skip


def _and(*more: RunReason) -> tuple[RunReason, ...]:
    """Return the common reasons and some more, in the order of the vocabulary."""
    return tuple(reason for reason in RunReason if reason in _COMMON or reason in more)


TRACE_REASONS = _and(
    RunReason.PROTOCOL_ERROR,
    RunReason.POLICY_ERROR,
    RunReason.NO_LOG,
    RunReason.OTHER_HEADER,
    RunReason.UNREADABLE_LOG,
    RunReason.NO_NAMES,
)
"""The reasons in ``modules.parquet`` of a trace."""

SIZES_REASONS = _and(RunReason.NO_PIPELINE, RunReason.NO_SNAPSHOT, RunReason.UNREADABLE_IR)
"""The reasons in ``modules.parquet`` of a table of functions."""

RELINK_REASONS = (
    RunReason.OK,
    RunReason.MISSING_FILE,
    RunReason.REFUSED_OPTION,
    RunReason.UNKNOWN_OPTION,
    RunReason.SIGNAL,
    RunReason.TIMEOUT,
    RunReason.MEMORY_LIMIT,
    RunReason.NO_OBJECT,
    RunReason.CHANGED_FILE,
    RunReason.NO_OBJECT_OF_SOURCE,
    RunReason.LINKER_ERROR,
    RunReason.DISK_FULL,
)
"""The reasons in ``products.parquet`` of a relink."""


def run_status(reason: RunReason) -> str:
    """Return the status that goes with a reason: ``ok`` or ``failed``."""
    return STATUS_OK if reason is RunReason.OK else STATUS_FAILED
