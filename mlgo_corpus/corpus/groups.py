"""Group modules, and find equal ones: columns of a corpus's table as labels and as keys."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.files.parquet import texts_of

if TYPE_CHECKING:
    import pyarrow as pa

GROUPS: Final = ("folder", "opt-level", "triple", "producer", "language")
"""The properties that modules can be grouped by."""


COLUMN_OF: Final = {
    "folder": "module",
    "opt-level": "opt_level",
    "triple": "target_triple",
    "producer": "producer",
    "language": "main_file_name",
}
"""The column that each of `GROUPS` comes from."""

UNKNOWN: Final = "unknown"
"""The label of null."""

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
# A path has at most 4096 bytes; Arrow counts in 64 bits.
_DEEPEST = 4096


def integers(column: pa.ChunkedArray, null: int) -> NDArray[np.int64]:
    """Return a column's numbers, with ``null`` in place of nulls."""
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(column, null).to_numpy(), np.int64)


def digest_keys(column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return 64 bits of each hex digest, 0 for null; text that is not a hex digest is hashed."""
    digests = texts_of(column)
    try:
        keys = [0 if text is None else int(text[:16], 16) for text in digests]
        return np.array(keys, np.uint64)
    except (ValueError, OverflowError):
        found = (b"" if text is None else blake2b(text.encode(), digest_size=8).digest() for text in digests)
        return np.array([int.from_bytes(digest, "big") for digest in found], np.uint64)


def is_again(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return for each key whether an earlier key equals it."""
    again = np.ones(len(keys), np.bool_)
    again[np.unique(keys, return_index=True)[1]] = False
    return again


def group_labels(modules: pa.Table, by: str, depth: int) -> pa.ChunkedArray:
    """Return each module's label in the grouping ``by``; ``folder`` takes the first ``depth`` folders of its name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = modules[COLUMN_OF[by]]
    if by == "folder":
        depth = min(depth, _DEEPEST)
        folders = pc.replace_substring_regex(column, r"(?s)/?[^/]*$", "")
        labels = pc.binary_join(pc.list_slice(pc.split_pattern(folders, "/", max_splits=depth), 0, depth), "/")
        return pc.if_else(pc.equal(folders, ""), "./", pc.binary_join_element_wise(labels, "", "/"))
    if by != "language":
        return pc.fill_null(column, UNKNOWN)
    suffixes = pc.replace_substring_regex(pc.fill_null(column, ""), r"(?s)^(?:.*\.|[^.]*$)", "")
    suffixes = suffixes.combine_chunks().dictionary_encode()
    words = pa.array(
        [_LANGUAGES.get(text, _LANGUAGES.get(text.lower(), UNKNOWN)) for text in suffixes.dictionary.to_pylist()],
        pa.string(),
    )
    named = words.take(suffixes.indices)
    is_rust = pc.fill_null(pc.match_substring(modules["producer"].combine_chunks(), "rust"), False)
    return pa.chunked_array([pc.if_else(pc.and_(is_rust, pc.equal(named, UNKNOWN)), "Rust", named)])
