"""The stats stage: what is in a corpus, from its table alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import UsageError
from mlgo_corpus.store.corpus import MODULES_NAME, Corpus
from mlgo_corpus.store.modulescan import read_rows_as_columns
from mlgo_corpus.store.moduletable import STATUS_OK
from mlgo_corpus.store.packed import PackedCorpus

if TYPE_CHECKING:
    import pyarrow as pa

GROUPS: Final = ("folder", "opt-level", "triple", "producer", "language")
"""What modules can be grouped by."""

_COLUMN_OF = {
    "folder": "module",
    "opt-level": "opt_level",
    "triple": "target_triple",
    "producer": "producer",
    "language": "main_file_name",
}
_LANGUAGES = {
    "c": "C",
    "i": "C",
    "cc": "C++",
    "cp": "C++",
    "cpp": "C++",
    "cxx": "C++",
    "c++": "C++",
    "C": "C++",
    "ii": "C++",
    "m": "Objective-C",
    "mm": "Objective-C++",
    "cu": "CUDA",
    "hip": "HIP",
    "cl": "OpenCL",
    "f90": "Fortran",
    "swift": "Swift",
    "rs": "Rust",
    "zig": "Zig",
    "s": "assembly",
    "S": "assembly",
    "ll": "LLVM IR",
    "bc": "LLVM IR",
}
_QUANTILES = {"least": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "most": 1.0}
_LARGEST = 5
# A path has at most 4096 bytes; Arrow counts in 64 bits.
_DEEPEST = 4096
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Group:
    """The modules of one folder, optimisation level, target, producer or language."""

    label: str
    modules: int
    bitcode_bytes: int
    functions: int | None
    duplicates: int


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """What is in a corpus.

    Attributes:
        corpus: its folder or URL.
        modules: modules in it.
        bitcode_bytes: of their bitcode.
        cmd_bytes: of their commands.
        functions: that they define, as far as it is known; None where it is known of none.
        functions_unknown: modules of which it is not known.
        reasons: what became of all rows of the table: (reason, status, rows), most first.
        sizes: quantiles of a module's bytes of bitcode: ``least``, ``p25``, ``median``, ``p75``, ``p95``, ``most``.
        histogram: modules by size: (bytes, modules), of at least so many bytes and less than twice as many.
        largest: the largest modules: name and bytes.
        duplicates: modules with the bitcode and command of an earlier one, and their ``duplicate_bytes``.
        same_bitcode: modules with the bitcode of an earlier one, whatever their command.
        splits: modules by side of a split; empty where there is none.
        has_thinlto: whether modules have ThinLTO indexes.
        override: the command for all modules, or None.
        by: what ``groups`` are of, most bytes first; None without groups.
        groups: see `Group`.
        from_table: whether there was a table, as a packed corpus is one; else every module was read.
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
    splits: dict[str, int]
    has_thinlto: bool
    override: tuple[str, ...] | None
    by: str | None
    groups: tuple[Group, ...]
    from_table: bool
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Give the numbers as plain values."""
        return {**asdict(self), "corpus": str(self.corpus)}


def corpus_stats(corpus: Path | str, *, by: str | None = None, depth: int = 1) -> CorpusStats:
    """Sum up a corpus: modules, bytes, functions, sizes, duplicates, and what was left out and why.

    Everything is read from ``modules.parquet``, or from the columns of a packed corpus, and no module is; a folder
    that has no table is read whole.

    Args:
        corpus: its folder, or the URL of a packed one.
        by: group the modules by one of `GROUPS`.
        depth: so many folders of a module's name make a group, for ``by="folder"``.

    Raises:
        UsageError: there is nothing to group by under this name.
        CorpusError: it is no corpus, or its table is damaged.
    """
    import pyarrow.compute as pc

    started = time.perf_counter()
    if by is not None and by not in GROUPS:
        raise UsageError(f"--by {by}: expected one of {', '.join(GROUPS)}")
    if depth < 1:
        raise UsageError(f"--depth {depth}: expected at least 1")
    opened = Corpus.open(corpus)
    columns = ["module", "status", "reason", "bitcode_bytes", "cmd_bytes", "bitcode_sha256", "cmd_sha256"]
    columns += ["functions", "split", *(["producer", _COLUMN_OF[by]] if by is not None else [])]
    rows = read_rows_as_columns(opened, columns)
    for name in ("reason", "status"):  # a table of others may leave them empty
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.fill_null(rows[name], _UNKNOWN))
    reasons = rows.group_by(["reason", "status"]).aggregate([([], "count_all")]).to_pylist()
    modules = rows.filter(pc.equal(rows["status"], STATUS_OK))
    sizes = _integers(modules["bitcode_bytes"])
    functions = modules["functions"]
    bitcode, command = _codes(modules["bitcode_sha256"]), _codes(modules["cmd_sha256"])
    known = np.asarray(modules["bitcode_sha256"].is_valid().to_numpy(), np.bool_)
    again = known & _is_again(bitcode * (int(command.max(initial=0)) + 1) + command)
    order = np.argsort(-sizes, kind="stable")[:_LARGEST]
    splits = modules["split"].value_counts().to_pylist()
    return CorpusStats(
        corpus=opened.shown,
        modules=len(modules),
        bitcode_bytes=int(sizes.sum()),
        cmd_bytes=int(_integers(modules["cmd_bytes"]).sum()),
        functions=_sum_or_none(functions),
        functions_unknown=functions.null_count,
        reasons=tuple(
            (one["reason"], one["status"], one["count_all"])
            for one in sorted(reasons, key=lambda one: (-one["count_all"], one["reason"], one["status"]))
        ),
        sizes={name: int(np.quantile(sizes, at, method="lower")) for name, at in _QUANTILES.items()}
        if len(sizes)
        else {},
        histogram=_histogram(sizes),
        largest=tuple((modules["module"][at].as_py(), int(sizes[at])) for at in order.tolist()),
        duplicates=int(again.sum()),
        duplicate_bytes=int(sizes[again].sum()),
        same_bitcode=int((known & _is_again(bitcode)).sum()),
        splits={one["values"]: one["counts"] for one in splits if one["values"] is not None},
        has_thinlto=opened.has_thinlto,
        override=opened.global_command_override,
        by=by,
        groups=() if by is None else _groups(modules, _labels(modules, by, depth), sizes, again),
        from_table=isinstance(opened, PackedCorpus) or (opened.path / MODULES_NAME).is_file(),
        seconds=time.perf_counter() - started,
    )


def _integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Give a column's numbers, with 0 for null."""
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(column, 0).to_numpy(), np.int64)


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Number the different values of a column of text; null is one of them."""
    import pyarrow.compute as pc

    encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)


def _is_again(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell of each key whether it was there before."""
    again = np.ones(len(keys), np.bool_)
    again[np.unique(keys, return_index=True)[1]] = False
    return again


def _sum_or_none(column: pa.ChunkedArray) -> int | None:
    import pyarrow.compute as pc

    total = pc.sum(column).as_py()
    return None if total is None else int(total)


def _histogram(sizes: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    if not len(sizes):
        return ()
    levels = np.frexp(np.maximum(sizes, 1))[1] - 1
    first, last = int(levels.min()), int(levels.max())
    counts = np.bincount(levels - first, minlength=last - first + 1)
    return tuple((1 << (first + step), int(count)) for step, count in enumerate(counts))


def _labels(modules: pa.Table, by: str, depth: int) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = modules[_COLUMN_OF[by]]
    if by == "folder":
        depth = min(depth, _DEEPEST)
        folders = pc.replace_substring_regex(column, r"(?s)/?[^/]*$", "")
        labels = pc.binary_join(pc.list_slice(pc.split_pattern(folders, "/", max_splits=depth), 0, depth), "/")
        return pc.if_else(pc.equal(folders, ""), "./", pc.binary_join_element_wise(labels, "", "/"))
    if by != "language":
        return pc.fill_null(column, _UNKNOWN)
    suffixes = pc.replace_substring_regex(pc.fill_null(column, ""), r"(?s)^(?:.*\.|[^.]*$)", "")
    suffixes = suffixes.combine_chunks().dictionary_encode()
    words = pa.array(
        [_LANGUAGES.get(text, _LANGUAGES.get(text.lower(), _UNKNOWN)) for text in suffixes.dictionary.to_pylist()],
        pa.string(),
    )
    named = words.take(suffixes.indices)
    is_rust = pc.fill_null(pc.match_substring(modules["producer"].combine_chunks(), "rust"), False)
    return pa.chunked_array([pc.if_else(pc.and_(is_rust, pc.equal(named, _UNKNOWN)), "Rust", named)])


def _groups(
    modules: pa.Table, labels: pa.ChunkedArray, sizes: NDArray[np.int64], again: NDArray[np.bool_]
) -> tuple[Group, ...]:
    encoded = labels.combine_chunks().dictionary_encode()
    names: Sequence[str] = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    functions = _integers(modules["functions"])
    known = np.asarray(modules["functions"].is_valid().to_numpy(), np.float64)

    def total(weights: Any = None) -> list[int]:
        return list(map(int, np.bincount(codes, weights, minlength=len(names))))

    columns = zip(names, total(), total(sizes), total(functions), total(known), total(again), strict=True)
    groups = [
        Group(label, count, size, defined if of else None, copies)
        for label, count, size, defined, of, copies in columns
    ]
    return tuple(sorted(groups, key=lambda group: (-group.bitcode_bytes, group.label)))
