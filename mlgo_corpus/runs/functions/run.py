"""Make a corpus's table of functions: workers read every module once, and again only if it changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlgo_corpus import __version__
from mlgo_corpus.corpus.folder import Corpus, Module
from mlgo_corpus.corpus.functions import (
    FunctionColumns,
    FunctionTableWriter,
    ModuleFunctions,
    iter_known,
    read_function_columns,
    read_function_metadata,
)
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.select import corpus_digest
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.folder import finish_moves, whole_files
from mlgo_corpus.files.names import FUNCTIONS_NAME
from mlgo_corpus.files.remote import Place, RemotePath
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.bitcode.functions import read_functions

_MODULE_SECONDS = 600.0
# Increased whenever the hash of bodies changes: tables with another number are made again.
_RULES = 1
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _FunctionIndex:
    """A corpus's table of functions.

    Attributes:
        path: its place, which may be at the URL of a packed corpus.
        read: number of modules that were read for it now.
        problems: modules that cannot be read: name and reason.
    """

    path: Place
    read: int
    problems: tuple[tuple[str, str], ...]


def read_corpus_functions(
    corpus: Corpus, names: Sequence[str], *, jobs: int, progress: Callable[[int, int], None] | None = None
) -> tuple[FunctionColumns, tuple[tuple[str, str], ...]]:
    """Return the functions of some of a corpus's modules, numbered in this order, and the modules that cannot be read.

    Args:
        corpus: the corpus; its `function_index` is made if there is none.
        names: the names of modules.
        jobs: processes that read modules.
        progress: called with (modules read, modules in all).

    Raises:
        MlgoCorpusError: the table of functions cannot be written, or is damaged.
    """
    with _function_index(corpus, jobs, progress) as index:
        return read_function_columns(index.path, names), index.problems


def iter_corpus_functions(corpus: Corpus, *, jobs: int) -> Iterator[ModuleFunctions]:
    """Yield the functions of each of a corpus's modules that has some, by printable names.

    Args:
        corpus: the corpus; its `function_index` is made if there is none.
        jobs: processes that read modules.

    Raises:
        CorpusError: not one module can be read.
        MlgoCorpusError: the table of functions cannot be written, or is damaged.
    """
    with _function_index(corpus, jobs, None) as index:
        if 0 < len(corpus) == len(index.problems):
            name, why = index.problems[0]
            raise CorpusError(f"{corpus.location}: not one module can be read: {printable(name)}: {why}")
        yield from iter_known(index.path)


@contextmanager
def _function_index(corpus: Corpus, jobs: int, progress: Callable[[int, int], None] | None) -> Iterator[_FunctionIndex]:
    """Yield `function_index`; what cannot be written is an error of this package."""
    with writing(corpus.location), function_index(corpus, jobs=jobs, progress=progress) as index:
        yield index


@contextmanager
def function_index(
    corpus: Corpus, *, jobs: int, progress: Callable[[int, int], None] | None = None
) -> Iterator[_FunctionIndex]:
    """Yield a corpus's table of functions, which is valid inside the block; make it if there is none.

    The table is kept in the corpus's folder as ``functions.parquet``, or in the user's cache for a packed corpus, which
    is never changed. If that place cannot be written, the table is a temporary file.

    Raises:
        OSError: it cannot be written anywhere.
    """
    place = corpus.path / FUNCTIONS_NAME
    there: tuple[Place, ...] = (place,)
    if corpus.packed:
        place = _cached(corpus)
        there = (corpus.place / FUNCTIONS_NAME, place)
    finish_moves(place)
    digest = corpus_digest(corpus, corpus.names)
    known: Place | None = None
    for path in there:
        about = read_function_metadata(path)
        if about.get("rules") == _RULES:
            if about.get("corpus") == digest:
                yield _FunctionIndex(path, 0, tuple((name, why) for name, why in about.get("problems", ())))
                return
            known = path
    with ExitStack() as stack:
        if not os.access(place.parent, os.W_OK):
            place = stack.enter_context(scratch_folder()) / FUNCTIONS_NAME
        with whole_files(place) as files:
            index = _make(corpus, files.make(place), known, digest, jobs, progress)
        yield replace(index, path=place)


def _cached(corpus: Corpus) -> Path:
    """Return the place of a packed corpus's table in the user's cache; make its folder if possible."""
    where = corpus.location if isinstance(corpus.place, RemotePath) else os.path.realpath(corpus.place)
    folder = cache_folder() / "functions"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{sha256(os.fsencode(where)).hexdigest()[:32]}.parquet"


def _make(
    corpus: Corpus,
    place: Path,
    known: Place | None,
    digest: str,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> _FunctionIndex:
    old = {} if known is None else _read_known(known)
    read = 0
    problems: list[tuple[str, str]] = []
    table = FunctionTableWriter(place)
    try:
        names = tuple(dict.fromkeys(corpus.names))  # a manifest may name a module twice
        sizes = corpus.sizes(names)
        items = (
            _Item(module, before.bitcode_sha256 if (before := _of(old, module)) else None, sizes[module.name])
            for module in corpus.modules(names)
        )
        made = parallel_map(_index_module, items, jobs=jobs, limit=_MODULE_SECONDS, weigh=_share_of_chunk)
        for done, (module, found) in enumerate(zip(corpus.modules(names), made, strict=True), 1):
            if isinstance(found, Lost):
                problems.append((printable(module.name), found.detail))
            elif found is None:
                table.append(old[printable(module.name)])
            else:
                read += 1
                table.append(found)
                if found.problem:
                    problems.append((found.module, found.problem))
            if progress is not None:
                progress(done, len(names))
        table.commit(
            {"tool": "mlgo-corpus", "version": __version__, "rules": _RULES, "corpus": digest, "problems": problems}
        )
    except BaseException:
        table.abandon()
        raise
    return _FunctionIndex(place, read, tuple(problems))


def _read_known(path: Place) -> dict[str, ModuleFunctions]:
    try:
        return {made.module: made for made in iter_known(path)}
    except CorpusError:  # damaged: make it again
        return {}


def _of(known: dict[str, ModuleFunctions], module: Module) -> ModuleFunctions | None:
    return known.get(printable(module.name))


class _Item(NamedTuple):
    """A module to be read, the digest of its bitcode in the old table, and its bytes."""

    module: Module
    known: str | None
    size: int


def _index_module(item: _Item) -> ModuleFunctions | None:
    """Read a module's functions; return None if its bitcode equals that of the old table."""
    module, known, _ = item
    name = printable(module.name)
    try:
        data = module.bitcode()
    except CorpusError as error:
        return ModuleFunctions(name, "", problem=printable(error.message))
    digest = sha256(data).hexdigest()
    if digest == known:
        return None
    try:
        functions = read_functions(data)
    except FormatError as error:
        return ModuleFunctions(name, digest, problem=printable(str(error.at(None))))
    return ModuleFunctions(
        name,
        digest,
        tuple(printable(function.name) for function in functions),
        tuple(function.linkage for function in functions),
        np.array([function.instructions for function in functions], np.int32),
        np.array([function.body_hash for function in functions], np.uint64),
    )


def _share_of_chunk(item: _Item) -> float:
    return item.size / _CHUNK_BYTES
