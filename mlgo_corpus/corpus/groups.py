"""Group modules, and find equal ones: columns of a corpus's table as labels and as keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.modules import iter_module_tables
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.names import MODULES_NAME
from mlgo_corpus.files.parquet import texts_of
from mlgo_corpus.files.tables import read_metadata
from mlgo_corpus.files.text import counted, printable
from mlgo_corpus.formats.commands.languages import language_of_name

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

UNOPTIMISED: Final = "0"
"""The optimisation level at which clang marks every function ``optnone``, and a compiler decides nothing."""

REMEDY: Final = (
    "build with -DCMAKE_BUILD_TYPE=MinSizeRel (CMake), -Dbuildtype=minsize (Meson), or CFLAGS=-Oz CXXFLAGS=-Oz (make, "
    "configure)"
)
"""How to build a project so that a compiler has something to decide."""

# A path has at most 4096 bytes; Arrow counts in 64 bits.
_DEEPEST = 4096
_HALF = np.uint64(32)


def unoptimised_hint(count: int, modules: int) -> str:
    """Return the advice for a corpus in which ``count`` of the modules are compiled at -O0."""
    are = "is" if count == 1 else "are"
    return f"{count} of {counted(modules, 'module')} {are} compiled at -O0 (optnone): nothing to decide; {REMEDY}"


def integers(column: pa.ChunkedArray, null: int) -> NDArray[np.int64]:
    """Return a column's numbers, with ``null`` in place of nulls."""
    found = [arrays.integers_of(chunk, null) for chunk in column.chunks if len(chunk)]
    return np.concatenate([np.empty(0, np.int64), *found])


def digest_keys(column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return 64 bits of each hex digest, 0 for null; text that is not a hex digest is hashed."""
    digests = texts_of(column)
    try:
        keys = [0 if text is None else int(text[:16], 16) for text in digests]
        return np.array(keys, np.uint64)
    except (ValueError, OverflowError):
        found = (b"" if text is None else blake2b(text.encode(), digest_size=8).digest() for text in digests)
        return np.array([int.from_bytes(digest, "big") for digest in found], np.uint64)


def command_keys(modules: pa.Table) -> NDArray[np.uint64]:
    """Return `digest_keys` of the commands, rotated by half.

    So equal digests of bitcode and command do not cancel each other out in an XOR of both.
    """
    keys = digest_keys(modules["cmd_sha256"])
    return (keys << _HALF) | (keys >> _HALF)


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
        labels = pc.binary_join(
            pc.list_slice(pc.split_pattern(folders, "/", max_splits=depth), 0, depth), arrays.text("/")
        )
        return pc.if_else(
            pc.equal(folders, arrays.text("")),
            arrays.text("./"),
            pc.binary_join_element_wise(labels, arrays.text(""), arrays.text("/")),
        )
    if by != "language":
        return pc.fill_null(column, arrays.text(UNKNOWN))
    suffixes = pc.replace_substring_regex(pc.fill_null(column, arrays.text("")), r"(?s)^.*\.", ".")
    suffixes = suffixes.combine_chunks().dictionary_encode()
    words = arrays.texts(
        pa.string(),
        [language_of_name(text) or UNKNOWN for text in suffixes.dictionary.to_pylist()],
    )
    named = words.take(suffixes.indices)
    is_rust = pc.match_substring(pc.fill_null(modules["producer"].combine_chunks(), arrays.text("")), "rust")
    return pa.chunked_array(
        [pc.if_else(pc.and_(is_rust, pc.equal(named, arrays.text(UNKNOWN))), arrays.text("Rust"), named)]
    )


def languages_of(corpus: Corpus, names: Collection[str]) -> tuple[str, ...]:
    """Return the languages of some modules, in alphabetic order; `UNKNOWN` is one of them if a module's is not known.

    Only the names of the sources tell, as they do where a policy is asked whether it decides (`language_of_command`).

    Raises:
        CorpusError: the corpus's table is damaged.
    """
    wanted, found = set(map(printable, names)), dict[str, str]()
    if (path := corpus.there / MODULES_NAME).is_file():
        for table in iter_module_tables(path, ("module", "main_file_name")):
            for name, source in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if name in wanted:
                    found[name] = language_of_name(source) or UNKNOWN
    return tuple(sorted({*found.values(), *([UNKNOWN] if len(found) < len(wanted) else [])}))


def projects_of(corpus: Corpus) -> tuple[str, ...]:
    """Return the names of the corpora that a corpus was combined of; its modules' names begin with them.

    Raises:
        CorpusError: its table is damaged.
    """
    path = corpus.there / MODULES_NAME
    named = read_metadata(path).get("corpora") if path.is_file() else None
    return tuple(name for name in named if isinstance(name, str)) if isinstance(named, list) else ()


@dataclass(frozen=True, slots=True)
class ModuleLabels:
    """What a corpus's table says of its modules that other tables repeat.

    Attributes:
        projects: the names of the corpora that it was combined of; each module's name begins with one of them.
        sides: the sides of its split, by the modules' printable names; empty without a split.
        unoptimised: the printable names of the modules that were compiled at -O0.
    """

    projects: frozenset[str] = frozenset()
    sides: Mapping[str, str] = field(default_factory=dict)
    unoptimised: frozenset[str] = frozenset()

    @classmethod
    def of(cls, corpus: Corpus) -> ModuleLabels:
        """Read a corpus's labels; there are none without a table, or if it is damaged."""
        with suppress(CorpusError):
            return cls.read(corpus)
        return cls()

    @classmethod
    def read(cls, corpus: Corpus) -> ModuleLabels:
        """Read a corpus's labels; there are none without a table.

        Raises:
            CorpusError: the table is damaged.
        """
        path = corpus.there / MODULES_NAME
        if not path.is_file():
            return cls()
        sides: dict[str, str] = {}
        unoptimised: set[str] = set()
        for table in iter_module_tables(path, ("module", "split", "opt_level")):
            for name, side, level in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if side is not None:
                    sides[name] = side
                if level == UNOPTIMISED:
                    unoptimised.add(name)
        return cls(frozenset(projects_of(corpus)), sides, frozenset(unoptimised))

    def project(self, module: str) -> str | None:
        """Return the corpus that a module is from, or None."""
        parents = accumulate(printable(module).split("/")[:-1], "{}/{}".format)
        return next((name for name in parents if name in self.projects), None)

    def side(self, module: str) -> str | None:
        """Return a module's side of the split, or None."""
        return self.sides.get(printable(module))

    def is_unoptimised(self, module: str) -> bool:
        """Return True if a module was compiled at -O0, whatever its command was changed to."""
        return printable(module) in self.unoptimised
