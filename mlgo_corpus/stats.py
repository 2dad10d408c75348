"""The stats stage: sum up a corpus from its table alone."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.groups import (
    COLUMN_OF,
    GROUPS,
    UNKNOWN,
    UNOPTIMISED,
    command_keys,
    digest_keys,
    group_labels,
    integers,
    is_again,
    unoptimised_hint,
)
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.scan import iter_tables
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.names import MODULES_NAME
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:
    import pyarrow as pa

_QUANTILES = {"least": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "most": 1.0}
_LARGEST = 5
_COLUMNS = (
    "reason", "bitcode_bytes", "cmd_bytes", "bitcode_sha256", "cmd_sha256", "functions", "opt_level", "split",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The modules of one folder, optimisation level, target, producer or language."""

    label: str
    modules: int
    bitcode_bytes: int
    functions: int | None
    duplicates: int


@dataclass(frozen=True, slots=True)
class CorpusStats(Report):
    """The figures of a corpus.

    Attributes:
        corpus: its folder or URL.
        modules: number of modules.
        bitcode_bytes: bytes of their bitcode.
        cmd_bytes: bytes of their commands.
        functions: number of functions that they emit, as far as known; None if it is known for no module.
        functions_unknown: number of modules whose number of functions is unknown.
        reasons: rows of the table by outcome: (reason, status, rows), most frequent first.
        sizes: quantiles of a module's bytes of bitcode: ``least``, ``p25``, ``median``, ``p75``, ``p95``, ``most``;
            ``p95`` is the size of the module that at least 95 % of all modules are no larger than.
        histogram: modules by size: (bytes, modules), for sizes of at least these bytes and less than twice as many.
        largest: the largest modules: name and bytes.
        duplicates: number of modules with the bitcode and command of an earlier one; they have ``duplicate_bytes``.
        same_bitcode: number of modules with the bitcode of an earlier one, whatever their command.
        unoptimised: number of modules compiled at -O0, in which there is nothing to decide.
        splits: modules by side of a split; empty without a split.
        has_thinlto: True if modules have ThinLTO indexes.
        override: the command for all modules, or None.
        by: the property that ``groups`` are made by; None without groups.
        groups: the groups, most bytes first, see `Group`.
        from_table: True if there was a table, also for packed corpora; else every module was read.
        hints: advice for the user.
        seconds: how long it took.
    """

    corpus: Path | str
    modules: int
    bitcode_bytes: int
    cmd_bytes: int
    functions: int | None
    functions_unknown: int
    reasons: tuple[tuple[str, str, int], ...]
    sizes: dict[str, int]
    histogram: tuple[tuple[int, int], ...]
    largest: tuple[tuple[str, int], ...]
    duplicates: int
    duplicate_bytes: int
    same_bitcode: int
    unoptimised: int
    splits: dict[str, int]
    has_thinlto: bool
    override: tuple[str, ...] | None
    by: str | None
    groups: tuple[Group, ...]
    from_table: bool
    hints: tuple[str, ...]
    seconds: float


def corpus_stats(corpus: Path | str, *, by: str | None = None, depth: int = 1) -> CorpusStats:
    """Sum up a corpus: modules, bytes, functions, sizes, duplicates, and what was left out and why.

    Only ``modules.parquet``, or the columns of a packed corpus, are read, and no modules. In a folder without a table,
    every module is read.

    Args:
        corpus: its folder, or the URL of a packed one.
        by: group the modules by one of `GROUPS`.
        depth: how many leading folders of a module's name define a group, for ``by="folder"``.

    Raises:
        UsageError: ``by`` is not one of `GROUPS`.
        CorpusError: it is not a corpus, or its table is damaged.
    """
    started = time.perf_counter()
    if by is not None and by not in GROUPS:
        raise UsageError(f"expected one of {', '.join(GROUPS)}", option="by", value=by)
    check_count("depth", depth)
    opened = open_corpus(corpus)
    tally = _Tally(by, depth)
    for table in iter_tables(opened, [*_COLUMNS, *(["producer", COLUMN_OF[by]] if by is not None else [])]):
        tally.add(table)
    sizes, functions = np.concatenate(tally.sizes), np.concatenate(tally.functions)
    bitcode = np.concatenate(tally.bitcode)
    known = bitcode != 0
    again = known & is_again(bitcode ^ np.concatenate(tally.command))
    has_functions = functions >= 0
    return CorpusStats(
        corpus=opened.shown,
        modules=len(sizes),
        bitcode_bytes=int(sizes.sum()),
        cmd_bytes=tally.cmd_bytes,
        functions=int(functions[has_functions].sum()) if has_functions.any() else None,
        functions_unknown=int((~has_functions).sum()),
        reasons=tuple(
            (*words, count) for words, count in sorted(tally.reasons.items(), key=lambda one: (-one[1], one[0]))
        ),
        sizes={name: int(np.quantile(sizes, at, method="inverted_cdf")) for name, at in _QUANTILES.items()}
        if len(sizes)
        else {},
        histogram=_histogram(sizes),
        largest=tuple((name, size) for size, _, name in tally.largest),
        duplicates=int(again.sum()),
        duplicate_bytes=int(sizes[again].sum()),
        same_bitcode=int((known & is_again(bitcode)).sum()),
        unoptimised=tally.unoptimised,
        splits=dict(tally.splits.most_common()),
        has_thinlto=opened.has_thinlto,
        override=opened.global_command_override,
        by=by,
        groups=tally.groups(sizes, functions, again) if by is not None else (),
        from_table=opened.packed or (opened.path / MODULES_NAME).is_file(),
        hints=(unoptimised_hint(tally.unoptimised, len(sizes)),) if tally.unoptimised else (),
        seconds=time.perf_counter() - started,
    )


class _Tally:
    """Accumulates a corpus's rows: keeps some tens of bytes for each module, and no text."""

    def __init__(self, by: str | None, depth: int) -> None:
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.splits: Counter[str] = Counter()
        self.cmd_bytes = self.unoptimised = 0
        self.sizes = [np.zeros(0, np.int64)]
        self.functions = [np.zeros(0, np.int64)]
        self.bitcode = [np.zeros(0, np.uint64)]
        self.command = [np.zeros(0, np.uint64)]
        self.largest: list[tuple[int, int, str]] = []
        self._by = by
        self._depth = depth
        self._labels: dict[str, int] = {}
        self._codes = [np.zeros(0, np.int64)]
        self._modules = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows, including those of modules that are not in the corpus."""
        import pyarrow.compute as pc

        words = (pc.fill_null(rows[name], arrays.text(UNKNOWN)).to_pylist() for name in ("reason", "status"))
        self.reasons.update(zip(*words, strict=True))
        modules = rows.filter(pc.equal(rows["status"], arrays.text(STATUS_OK)))  # null is not
        sizes = integers(modules["bitcode_bytes"], 0)
        self.sizes.append(sizes)
        self.functions.append(integers(modules["functions"], -1))
        self.bitcode.append(digest_keys(modules["bitcode_sha256"]))
        self.command.append(command_keys(modules))
        self.cmd_bytes += int(integers(modules["cmd_bytes"], 0).sum())
        self.unoptimised += pc.sum(pc.equal(modules["opt_level"], arrays.text(UNOPTIMISED))).as_py() or 0
        self.splits.update(side for side in modules["split"].drop_null().to_pylist())
        for at in np.argsort(-sizes, kind="stable")[:_LARGEST].tolist():
            self.largest.append((int(sizes[at]), -(self._modules + at), modules["module"][at].as_py()))
        self.largest = sorted(self.largest, reverse=True)[:_LARGEST]
        self._modules += len(sizes)
        if self._by is not None:
            encoded = group_labels(modules, self._by, self._depth).combine_chunks().dictionary_encode()
            names = encoded.dictionary.to_pylist()
            own = np.array([self._labels.setdefault(name, len(self._labels)) for name in names], np.int64)
            self._codes.append(own[arrays.numbers_in(encoded.indices)])

    def groups(
        self, sizes: NDArray[np.int64], functions: NDArray[np.int64], again: NDArray[np.bool_]
    ) -> tuple[Group, ...]:
        """Return the sums by label, most bytes first."""
        codes = np.concatenate(self._codes)

        def total(weights: Any = None) -> list[int]:
            return list(map(int, np.bincount(codes, weights, minlength=len(self._labels))))

        known = functions >= 0
        totals = (total(), total(sizes), total(np.where(known, functions, 0)), total(known), total(again))
        groups = [
            Group(label, count, size, defined if of else None, copies)
            for label, count, size, defined, of, copies in zip(self._labels, *totals, strict=True)
        ]
        return tuple(sorted(groups, key=lambda group: (-group.bitcode_bytes, group.label)))


def _histogram(sizes: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    if not len(sizes):
        return ()
    levels = np.frexp(np.maximum(sizes, 1))[1] - 1
    first, last = int(levels.min()), int(levels.max())
    counts = np.bincount(levels - first, minlength=last - first + 1)
    return tuple((1 << (first + step), int(count)) for step, count in enumerate(counts))
