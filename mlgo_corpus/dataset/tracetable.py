"""``modules.parquet`` of a dataset made by running a compiler over a corpus: one row per module run.

============================  =========================================================================
column                        meaning
============================  =========================================================================
``module``                    the module's name in its corpus
``status``                    ``ok`` (its decisions are in the dataset) or ``failed``
``reason``                    a word of `RunReason`
``detail``                    one line for a person: what went wrong; empty if nothing did
``exit_code``                 the compiler's exit code; null if it did not exit by itself
``signal``                    the number of the signal that ended it; null if none did
``stderr_tail``               the end of what it wrote to stderr, at most 2 KB; null if it did not run
``wall_s``                    seconds it took
``cpu_s``                     seconds of processor time it took, with its children
``max_rss_bytes``             the most memory it had at once
``contexts``                  contexts in the dataset, also those without observations
``observations``              observations in the dataset: its decisions
``text_size``                 bytes of the object's code and read-only data: ``text`` as llvm-size prints it
``code_size``                 bytes of the object's executable sections
``object_sha256``             hex digest of the object
``baseline_text_size``        as ``text_size``, of the object that the same compiler makes by its own heuristics
``baseline_code_size``        as ``code_size``, of that object
``baseline_object_sha256``    as ``object_sha256``, of that object
``baseline_wall_s``           as ``wall_s``, of the baseline's run
``baseline_cpu_s``            as ``cpu_s``, of the baseline's run
``baseline_max_rss_bytes``    as ``max_rss_bytes``, of the baseline's run
``reward``                    how much smaller the object is than the baseline's, 1 - (size + e) / (baseline + e);
                              null of a failed run; dataset.json says of which size, and what e is
``faithful``                  whether the object equals the baseline's, byte for byte; null of a failed run
``argv``                      the command that was run
``bitcode_bytes``             bytes of the module's bitcode
``bitcode_sha256``            hex digest of the bitcode
``log_bytes``                 bytes of the module's training log
``dropped_bytes``             what was left out after the log's last whole event; else 0
``header``                    the log's first line, verbatim; null if there is no log of the module in the dataset
``separator``                 what stands between an event's key and its value in the log: ``:`` or ``: ``
``opt_level``                 the level of the command that was run: ``0`` to ``3``, ``s`` or ``z``; sizes of different
                              levels are not comparable; null if there is no command
``project``                   the corpus, of those that the corpus was combined of, that the module is from; null if
                              it was not combined
``split``                     the module's side in the corpus's split: ``train``, ``validation`` or ``test``; null if
                              the corpus is not split
``unfaithful_because``        why an object of the default policy is not the baseline's: ``recursion`` (the heuristic
                              inlined a function's call of itself, about which LLVM never asks), ``not_asked`` (it
                              inlined a call about which LLVM did not ask: one in code that cannot be reached) or
                              ``unknown``; null if it is the baseline's, or another policy decided
``unmet``                     where the policy is a dataset, or what a search found: decisions that it does not have,
                              which LLVM's heuristic made; ``detail`` names the first of them; null with any other
                              policy
============================  =========================================================================

Rows that have a header are in the order of their observations; the others may be anywhere among them. Unknown values
are null, except ``contexts`` and ``observations``, which are 0 then. An older table may lack the last four columns:
a reader takes them as null.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.logtable import LogRow
from mlgo_corpus.dataset.reasons import RunReason, run_status
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.tables import Kind, iter_rows, write_rows
from mlgo_corpus.files.text import storable

TRACE_KIND: Final = "trace"
"""The value of ``kind`` in ``dataset.json`` for such a dataset."""

REWARD_EPSILON: Final = 0.01
"""Bytes that ml-compiler-opt adds to both sizes (``inlining_runner.py``), only to avoid a division by 0."""

SPEED_LEVELS: Final = ("1", "2", "3")
"""The optimisation levels at which LLVM's heuristics aim at speed, while the reward is about size."""

# How much of stderr is kept: its end, where compilers say why they stop.
_STDERR_BYTES: Final = 2048


class TraceRow(NamedTuple):
    """One row; fields as the module's docstring describes them, in the file's order."""

    module: str
    status: str
    reason: str
    detail: str
    exit_code: int | None = None
    signal: int | None = None
    stderr_tail: str | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    max_rss_bytes: int | None = None
    contexts: int = 0
    observations: int = 0
    text_size: int | None = None
    code_size: int | None = None
    object_sha256: str | None = None
    baseline_text_size: int | None = None
    baseline_code_size: int | None = None
    baseline_object_sha256: str | None = None
    baseline_wall_s: float | None = None
    baseline_cpu_s: float | None = None
    baseline_max_rss_bytes: int | None = None
    reward: float | None = None
    faithful: bool | None = None
    argv: tuple[str, ...] | None = None
    bitcode_bytes: int | None = None
    bitcode_sha256: str | None = None
    log_bytes: int | None = None
    dropped_bytes: int | None = None
    header: str | None = None
    separator: str | None = None
    opt_level: str | None = None
    project: str | None = None
    split: str | None = None
    unfaithful_because: str | None = None
    unmet: int | None = None

    def with_log(self, log: LogRow) -> TraceRow:
        """Return the row with the outcome of converting its log; a log that is not in the dataset makes it a failure.

        A run that has failed already keeps its reason; its log must not be in the dataset.
        """
        if log.status == STATUS_OK:
            return self._replace(
                contexts=log.contexts,
                observations=log.observations,
                log_bytes=log.log_bytes,
                dropped_bytes=log.dropped_bytes,
                header=log.header,
                separator=log.separator,
            )
        row = self._replace(log_bytes=log.log_bytes)
        if self.status != STATUS_OK:
            return row
        return row.failed(RunReason.UNREADABLE_LOG, f"its log is {log.reason}: {log.detail}")

    def with_shared_text(self) -> TraceRow:
        """Return the row with text that rows have in common shared: most of a command's 200 options are the same."""
        argv = None if self.argv is None else tuple(map(sys.intern, self.argv))
        return self._replace(argv=argv, header=None if self.header is None else sys.intern(self.header))

    def failed(self, reason: RunReason, detail: str) -> TraceRow:
        """Make a failure of it: what a dataset tells only of runs that are in it goes."""
        return self._replace(
            status=run_status(reason),
            reason=reason.value,
            detail=detail,
            contexts=0,
            observations=0,
            reward=None,
            faithful=None,
            unfaithful_because=None,
            unmet=None,
        )


KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(
        (
            "exit_code", "signal", "max_rss_bytes", "contexts", "observations", "text_size", "code_size",
            "baseline_text_size", "baseline_code_size", "baseline_max_rss_bytes", "bitcode_bytes", "log_bytes",
            "dropped_bytes", "unmet",
        ),
        Kind.INTEGER,
    ),
    **dict.fromkeys(("wall_s", "cpu_s", "baseline_wall_s", "baseline_cpu_s", "reward"), Kind.FLOAT),
    "faithful": Kind.BOOLEAN,
    "argv": Kind.TEXTS,
    "module": Kind.LABEL,
}  # fmt: skip
"""The columns that are not text."""

_REQUIRED = frozenset({"module", "status", "reason", "detail", "contexts", "observations"})
_LATER = frozenset({"opt_level", "project", "split", "unmet"})


def reward(size: float | None, baseline: float | None, *, epsilon: float = REWARD_EPSILON) -> float | None:
    """Return how much smaller an object is than the baseline's: 0.1 for a tenth, negative if it is larger.

    This is ml-compiler-opt's ``1 - (size + epsilon) / (baseline + epsilon)``; None if one of the sizes is not known.

    Raises:
        ValueError: a size is less than 0, or there would be a division by 0.
    """
    if size is None or baseline is None:
        return None
    if size < 0 or baseline < 0 or epsilon < 0 or baseline + epsilon == 0:
        raise ValueError(f"no reward for a size of {size}, a baseline of {baseline} and an epsilon of {epsilon}")
    return 1.0 - (size + epsilon) / (baseline + epsilon)


# Escape sequences that colour a terminal's text or move its cursor, and other characters that do not print.
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def stderr_tail(data: bytes) -> str:
    r"""Return the end of what a program wrote to stderr, as text that can be stored and shown.

    Colours are removed. Bytes that are not text, and characters that do not print, except newlines and tabs, are
    written as ``\xNN``.
    """
    end = data[-_STDERR_BYTES:]
    if len(data) > _STDERR_BYTES:
        end = end.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a character that was cut
    text = ESCAPES.sub("", end.decode("utf-8", "backslashreplace").replace("\r\n", "\n"))
    text = _UNPRINTABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return text.encode()[-_STDERR_BYTES:].decode("utf-8", "ignore")  # escaped text is up to four times as long


def write_trace_rows(path: Path, rows: Iterable[TraceRow], metadata: Mapping[str, Any]) -> None:
    """Write the table; ``metadata`` goes into its schema as JSON, and must contain the dataset's ``key``.

    Names and commands that are not Unicode are escaped (`printable`).
    """
    stored = ([storable(value) for value in row] for row in rows)
    write_rows(path, TraceRow._fields, KINDS, stored, metadata, meanings=plain_columns(__doc__))


def read_trace_rows(path: Path) -> tuple[TraceRow, ...]:
    """Read the table.

    Raises:
        CorpusError: the file is not a table of traces.
    """
    return tuple(row.with_shared_text() for row in iter_trace_rows(path))


def iter_trace_rows(path: Path) -> Iterator[TraceRow]:
    """Yield the table's rows, in memory that does not grow with their number.

    Raises:
        CorpusError: it is none.
    """
    rows = iter_rows(path, TraceRow._fields, KINDS, what="traces", required=_REQUIRED, optional=_LATER)
    return map(TraceRow._make, rows)
