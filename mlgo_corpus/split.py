"""The split stage: train, validation and test, such that modules which share function bodies are on one side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus import __version__
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.assemble import Placing, check_inputs, digest_of_request, is_whole, local_output, new_corpus
from mlgo_corpus.corpus.folder import Corpus, manifest_bytes
from mlgo_corpus.corpus.modules import (
    STATUS_OK,
    ModuleRow,
    read_module_columns,
    read_module_metadata,
    rewrite_column,
    write_module_rows,
)
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.scan import iter_rows
from mlgo_corpus.corpus.split.components import (
    MIN_INSTRUCTIONS,
    Leakage,
    connected_components,
    divide,
    find_limit,
    find_sharing,
    measure_leakage,
)
from mlgo_corpus.corpus.split.files import side_manifest
from mlgo_corpus.corpus.split.sides import SIDES, check_fractions
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.folder import whole_files
from mlgo_corpus.files.names import MANIFEST_STEM, MODULES_NAME
from mlgo_corpus.files.regular import MAX_LIST_BYTES, read_regular
from mlgo_corpus.files.text import os_reason, printable
from mlgo_corpus.runs.functions.run import read_corpus_functions
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:
    import pyarrow as pa

# How far a side may be from its fraction before it is worth a word.
_WORTH_A_WORD = 0.05


@dataclass(frozen=True, slots=True)
class SplitReport(Report):
    """What a split did.

    Attributes:
        corpus: the corpus that was divided.
        output: the folder of the three corpora, or None if the corpus's own table and manifests say who is where.
        modules: modules on each side: ``train``, ``validation``, ``test``.
        bitcode_bytes: likewise.
        fractions: those wanted.
        groups: of modules that belong together; most have a single one.
        largest_group: modules in the largest.
        bodies: different bodies of at least ``min_instructions`` instructions.
        shared_bodies: those of them that several modules have.
        limit: bodies that more modules than this have did not count; None if all counted.
        ignored_bodies: how many those are.
        leakage: what this split lets through: 0 unless bodies were ignored.
        random_leakage: what dividing the modules at random, by the same seed, would have let through.
        min_instructions: of a body that counts.
        problems: modules that cannot be read and are on no side: name and why.
        unchanged: whether everything was there already.
        seconds: how long it took.
    """

    corpus: Path | str
    output: Path | None
    modules: dict[str, int]
    bitcode_bytes: dict[str, int]
    fractions: tuple[float, float, float]
    groups: int
    largest_group: int
    bodies: int
    shared_bodies: int
    limit: int | None
    ignored_bodies: int
    leakage: Leakage
    random_leakage: Leakage
    min_instructions: int
    problems: tuple[tuple[str, str], ...]
    unchanged: bool
    seconds: float

    @property
    def off(self) -> bool:
        """Whether the sides are far from the fractions that were wanted."""
        total = sum(self.modules.values())
        return any(
            abs(count / total - wanted) > _WORTH_A_WORD
            for count, wanted in zip(self.modules.values(), self.fractions, strict=True)
        )


def split_corpus(
    corpus: Path | str,
    *,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    max_component: float | None = None,
    min_instructions: int = MIN_INSTRUCTIONS,
    output: Path | str | None = None,
    placing: Placing | str = Placing.LINK,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SplitReport:
    """Divide a corpus's modules into train, validation and test so that nothing leaks.

    Modules that share a function's body, whatever the function is called, belong together, and so do those that are
    connected through others. Such a group goes to one side as a whole.

    The corpus gets a manifest per side, ``corpus_description.train.json`` and so on, each of which can be opened as
    a corpus, and ``modules.parquet`` says of each module which side it is on in its column ``split``.

    Args:
        corpus: its folder; with ``output`` also the URL of a packed one.
        fractions: of the modules on each side.
        seed: of the order in which groups of equal size are dealt out.
        max_component: if a group would have more than this share of the modules, the bodies that most modules have do
            not count, as few of them as possible.
        min_instructions: bodies of fewer do not count.
        output: instead make three corpora, ``train``, ``validation`` and ``test``, in this folder.
        placing: how files come to ``output``, see `Placing`.
        jobs: processes that read modules; by default the CPUs this process may use.
        force: replace another split.
        progress: is told (modules read, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written but ``functions.parquet``.
        CorpusError: it is no corpus, or its table is damaged.
        MlgoCorpusError: the split cannot be written.
    """
    started = time.perf_counter()
    output = None if output is None else local_output(output)
    placing = Placing(placing)
    wanted = check_fractions(fractions, ",".join(map(str, fractions)))
    if max_component is not None and not 0 < max_component <= 1:
        raise UsageError("expected more than 0, and at most 1", option="max_component", value=f"{max_component:g}")
    check_count("min_instructions", min_instructions, least=0)
    check_count("seed", seed, least=0)
    opened = open_corpus(corpus)
    if len(opened) == 0:
        raise UsageError(f"{opened.location}: has no modules")
    if output is not None:
        check_inputs(output, [opened], placing)
    elif opened.packed:
        raise UsageError(
            f"{opened.location}: is packed, and stays as it is: `output` makes a corpus of each side; "
            "or divide the corpus before it is packed"
        )
    elif Path(corpus).name.startswith(MANIFEST_STEM):
        raise UsageError(f"{corpus}: is one side of a split; name the corpus's folder, or `output` for a split of it")
    columns, problems = read_corpus_functions(opened, opened.names, jobs=jobs or available_cpus(), progress=progress)
    columns = columns.of_at_least(min_instructions)
    unreadable = frozenset(name for name, _ in problems)
    readable = np.array([printable(name) not in unreadable for name in opened.names], np.bool_)
    if not readable.any():
        raise MlgoCorpusError(f"{opened.location}: not one module can be read: {problems[0][0]}: {problems[0][1]}")
    number = np.cumsum(readable) - 1  # of a module among those that can be read
    count = int(readable.sum())
    functions = number[columns.modules]
    sharing = find_sharing(functions, columns.hashes)
    limit = None if max_component is None else find_limit(count, sharing, max_component)
    labels = connected_components(count, *sharing.edges(limit))
    sides = divide(labels, wanted, seed)
    at_random = divide(np.arange(count), wanted, seed)
    sizes = np.bincount(labels)
    counts = np.bincount(functions, minlength=count)
    names = [name for name, there in zip(opened.names, readable.tolist(), strict=True) if there]
    split = dict(zip(map(printable, names), sides.tolist(), strict=True))
    options = {"fractions": list(wanted), "seed": seed, "max_component": max_component}
    options["min_instructions"] = min_instructions
    write = _Split(opened, names, sides, split, options)
    written = write.in_place(force=force) if output is None else write.as_corpora(output, placing, force=force)
    return SplitReport(
        corpus=opened.shown,
        output=output,
        modules={name: int((sides == side).sum()) for side, name in enumerate(SIDES)},
        bitcode_bytes=written.bitcode_bytes,
        fractions=wanted,
        groups=int((sizes > 0).sum()),
        largest_group=int(sizes.max()),
        bodies=sharing.bodies,
        shared_bodies=len(sharing.spread),
        limit=limit,
        ignored_bodies=0 if limit is None else int((sharing.spread > limit).sum()),
        leakage=measure_leakage(sharing, counts, sides),
        random_leakage=measure_leakage(sharing, counts, at_random),
        min_instructions=min_instructions,
        problems=(*problems, *written.problems),
        unchanged=written.unchanged,
        seconds=time.perf_counter() - started,
    )


class _Written(NamedTuple):
    """What was written of a split: bytes by side, whether all of it was there, modules whose files could not be had."""

    bitcode_bytes: dict[str, int]
    unchanged: bool
    problems: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Split:
    """A division of a corpus that is to be written."""

    corpus: Corpus
    names: Sequence[str]
    sides: NDArray[np.int8]
    split: dict[str, int]
    options: dict[str, Any]

    def side(self, module: str, status: str) -> str | None:
        """Give the side of a row's module; None if it is on none."""
        number = self.split.get(module) if status == STATUS_OK else None
        return None if number is None else SIDES[number]

    def rows(self, sizes: dict[str, int]) -> Iterator[ModuleRow]:
        """Give the corpus's rows with their sides, and sum up the sides' bytes."""
        for row in iter_rows(self.corpus):
            name = self.side(row.module, row.status)
            if name is not None:
                sizes[name] += row.bitcode_bytes or 0
            yield row._replace(split=name)

    def in_place(self, *, force: bool) -> _Written:
        """Write a manifest per side and the table's column."""
        folder = self.corpus.path
        wanted = {
            side_manifest(folder, name): manifest_bytes(
                [module for module, on in zip(self.names, self.sides.tolist(), strict=True) if on == side],
                has_thinlto=self.corpus.has_thinlto,
                override=self.corpus.global_command_override,
            )
            for side, name in enumerate(SIDES)
        }
        sizes = dict.fromkeys(SIDES, 0)
        try:
            with whole_files(folder / MODULES_NAME) as files:
                there = {path: read_regular(path, MAX_LIST_BYTES) for path in wanted if path.is_file()}
                if there and there != wanted and not force:
                    raise UsageError(f"{folder}: has been split otherwise; `force` divides it anew")
                for path in there:  # sides of two splits have modules in common
                    files.remove(path)
                self._write_column(folder / MODULES_NAME, files.make(folder / MODULES_NAME), sizes)
                for path, data in wanted.items():
                    files.make(path).write_bytes(data)
        except OSError as error:
            raise MlgoCorpusError(f"cannot write {error.filename or folder}: {os_reason(error)}") from error
        return _Written(sizes, there == wanted, ())

    def _write_column(self, table: Path, target: Path, sizes: dict[str, int]) -> None:
        if not table.is_file() or not self._covers(table):
            about = {"tool": "mlgo-corpus", "version": __version__, "made_by": "split", "split": self.options}
            write_module_rows(target, target, self.rows(sizes), about)
            return

        def sides(group: pa.Table) -> list[str | None]:
            given: list[str | None] = []
            columns = (group[name].to_pylist() for name in ("module", "status", "bitcode_bytes"))
            for module, status, size in zip(*columns, strict=True):
                given.append(name := self.side(module, status))
                if name is not None:
                    sizes[name] += size or 0
            return given

        rewrite_column(table, target, "split", sides, {**read_module_metadata(table), "split": self.options})

    def _covers(self, table: Path) -> bool:
        """Tell whether a table has a row of each module; a manifest that somebody edited may have more."""
        rows = read_module_columns(table, ("module", "status"))
        there = {
            name
            for name, status in zip(*(column.to_pylist() for column in rows.columns), strict=True)
            if status == STATUS_OK
        }
        return there.issuperset(self.split)

    def as_corpora(self, output: Path, placing: Placing, *, force: bool) -> _Written:
        """Make a corpus per side."""
        sizes = dict.fromkeys(SIDES, 0)
        rows: dict[str, list[ModuleRow]] = {name: [] for name in SIDES}
        for row in self.rows(sizes):
            if row.split is not None:
                rows[row.split].append(row)
        known = {printable(name): name for name in self.names}
        problems: list[tuple[str, str]] = []
        requests = {
            name: digest_of_request("split", name, str(placing), self.options, [tuple(row) for row in own])
            for name, own in rows.items()
        }
        due = [name for name in SIDES if not is_whole(output / name, requests[name], force=force)]
        for name in due:
            with new_corpus(output / name, placing, request=requests[name], force=force) as made:
                for row in rows[name]:
                    made.add(row, known[row.module], self.corpus[known[row.module]])
                made.finish(
                    has_thinlto=self.corpus.has_thinlto,
                    override=self.corpus.global_command_override,
                    about={"made_by": "split", "request": requests[name], "split": self.options},
                )
            problems += made.failed
        return _Written(sizes, not due, tuple(problems))
