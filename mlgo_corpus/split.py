"""The split stage: divide modules into train, validation and test so that sides share no function bodies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus import __version__
from mlgo_corpus.compilers.limits import check_count, real_number, whole_number
from mlgo_corpus.corpus.assemble import Placing, check_inputs, digest_of_request, is_whole, local_output, new_corpus
from mlgo_corpus.corpus.folder import Corpus, manifest_bytes
from mlgo_corpus.corpus.groups import ModuleLabels, projects_of
from mlgo_corpus.corpus.modules import (
    STATUS_OK,
    ModuleRow,
    read_module_columns,
    rewrite_split,
    write_module_rows,
)
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import known_links, links_bytes
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
from mlgo_corpus.corpus.split.sides import SIDES, WEIGHTS, FarSide, check_fractions, far_sides
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.folder import whole_files
from mlgo_corpus.files.names import MANIFEST_STEM, MODULES_NAME
from mlgo_corpus.files.regular import MAX_LIST_BYTES, read_regular
from mlgo_corpus.files.tables import read_metadata
from mlgo_corpus.files.text import printable
from mlgo_corpus.runs.functions.run import read_corpus_functions
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SplitReport(Report):
    """The result of a split.

    Attributes:
        corpus: the corpus that was divided.
        output: the folder of the three corpora, or None if the split is in the corpus's own table and manifests.
        weigh: what the sides were to get their fractions of: ``functions``, ``bitcode`` or ``modules``.
        projects: number of corpora that it was combined of; 0 if it was not.
        by_project: whether the modules of each of these were kept together, and not those that share bodies.
        modules: number of modules on each side: ``train``, ``validation``, ``test``.
        functions: number of functions on each side, as ``functions.parquet`` has them.
        bitcode_bytes: bytes of bitcode on each side.
        fractions: the requested fractions.
        groups: number of groups of modules that belong together; most groups have a single module.
        largest_group: number of modules in the largest group.
        heaviest: the share of what is weighed that is in the group that has most of it.
        bodies: number of distinct bodies with at least ``min_instructions`` instructions.
        shared_bodies: number of these bodies that several modules have.
        limit: bodies that more modules than this have were ignored; None if none were.
        ignored_bodies: number of ignored bodies.
        leakage: the leakage of this split: 0 unless bodies were ignored, or it is by project.
        random_leakage: the leakage of a random division of the modules with the same seed.
        min_instructions: the minimum size of a body that counts.
        problems: modules that cannot be read and are on no side: name and reason.
        unchanged: True if everything existed already.
        seconds: how long it took.
    """

    corpus: Path | str
    output: Path | None
    weigh: str
    projects: int
    by_project: bool
    modules: dict[str, int]
    functions: dict[str, int]
    bitcode_bytes: dict[str, int]
    fractions: tuple[float, float, float]
    groups: int
    largest_group: int
    heaviest: float
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

    _properties: ClassVar = ("hints", "exit_code")

    @property
    def exit_code(self) -> int:
        """1 if a module cannot be read, else 0."""
        return 1 if self.problems else 0

    @property
    def hints(self) -> tuple[str, ...]:
        """Advice for the user."""
        return tuple(_hints(self))

    @property
    def amounts(self) -> dict[str, dict[str, int]]:
        """What each side has, by what can be weighed."""
        return {"functions": self.functions, "bitcode": self.bitcode_bytes, "modules": self.modules}

    @property
    def far(self) -> tuple[FarSide, ...]:
        """The sides that are far from the requested fractions of what was weighed."""
        return far_sides([*self.amounts[self.weigh].values()], self.fractions)

    @property
    def off(self) -> bool:
        """True if the sides are far from the requested fractions."""
        return bool(self.far)

    @property
    def hardly(self) -> dict[str, tuple[FarSide, ...]]:
        """The sides that have next to nothing of something else that can be weighed, by what it is."""
        found = {
            name: far_sides([*sides.values()], self.fractions, hardly=True)
            for name, sides in self.amounts.items()
            if name != self.weigh
        }
        return {name: sides for name, sides in found.items() if sides}


def _hints(report: SplitReport) -> Iterator[str]:
    """Yield what is not as requested, and what helps."""
    if report.off:
        least = min(wanted for wanted in report.fractions if wanted)
        what = "project" if report.by_project else "group"
        why = f"one {what} has {report.heaviest:.0%} of the {report.weigh}: " if report.heaviest > least else ""
        remedy = "with `force`, `max_component` 0.1 ignores the most common bodies, `min_instructions` small ones"
        if report.by_project:
            remedy = "a project is on one side, so only more projects can be divided better"
        elif report.largest_group == 1:
            remedy = "no module shares a body with another, so only a larger corpus can be divided better"
        elif report.projects > 1:
            remedy += ", and `by_project` divides by what was combined"
        yield f"the shares are not as requested; {why}{remedy}"
    if report.ignored_bodies and report.leakage.functions > report.random_leakage.functions / 2:
        yield (
            "what was ignored leaks: more than half as many functions as in a random split are train's, too; "
            "a larger `max_component` ignores fewer"
        )
    for name, sides in report.hardly.items() if not report.off else ():
        found = ", ".join(f"{one.side} has {one.share:.1%} of the {name}, not {one.wanted:.1%}" for one in sides)
        yield f"{found}: `weigh` {name} divides by {name} instead of {report.weigh}"


def split_corpus(
    corpus: Path | str,
    *,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    weigh: str = "functions",
    by_project: bool = False,
    seed: int = 0,
    max_component: float | None = None,
    min_instructions: int = MIN_INSTRUCTIONS,
    output: Path | str | None = None,
    placing: Placing | str = Placing.LINK,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SplitReport:
    """Divide a corpus's modules into train, validation and test without leakage.

    Modules that share a function body belong together, whatever the function's name, and so do modules that are
    connected through others. Each such group goes to one side as a whole, or each project (`by_project`).

    The corpus gets a manifest per side, ``corpus_description.train.json`` and so on, each of which can be opened as
    a corpus. The column ``split`` of ``modules.parquet`` holds the side of each module.

    Args:
        corpus: its folder; with ``output`` also the URL of a packed one.
        fractions: what each side is to get.
        weigh: of what: ``functions``, of which decisions are made; ``bitcode``, in bytes; or ``modules``.
        by_project: keep together the modules of each corpus that it was combined of, instead of those that share
            bodies: what projects have in common, such as templates of a library, is on several sides.
        seed: seed for the order in which groups of about equal weight are assigned, and for the side of the light ones.
        max_component: the largest share of the modules that a group may have; if one is larger, ignore the bodies that
            most modules have, as few of them as possible.
        min_instructions: ignore bodies with fewer instructions.
        output: make three corpora, ``train``, ``validation`` and ``test``, in this folder instead.
        placing: how files get to ``output``, see `Placing`.
        jobs: processes that read modules; by default the CPUs this process may use.
        force: replace another split.
        progress: called with (modules read, modules in all).

    Raises:
        UsageError: the request cannot be carried out; nothing was written, except perhaps ``functions.parquet``.
        CorpusError: it is not a corpus, or its table is damaged.
        MlgoCorpusError: the split cannot be written.
    """
    started = time.perf_counter()
    output = None if output is None else local_output(output)
    placing = Placing(placing)
    seed, min_instructions = whole_number("seed", seed), whole_number("min_instructions", min_instructions)
    max_component = real_number("max_component", max_component)
    wanted = check_fractions(fractions)
    if weigh not in WEIGHTS:
        raise UsageError(f"expected one of {', '.join(WEIGHTS)}", option="weigh", value=weigh)
    if max_component is not None and not 0 < max_component <= 1:
        raise UsageError("expected more than 0, and at most 1", option="max_component", value=f"{max_component:g}")
    if by_project and max_component is not None:
        raise UsageError(
            "`by_project` keeps no groups that share bodies", option="max_component", value=f"{max_component:g}"
        )
    check_count("min_instructions", min_instructions, least=0)
    check_count("seed", seed, least=0)
    check_count("jobs", jobs)
    opened = open_corpus(corpus)
    if len(opened) == 0:
        raise UsageError(f"{opened.location}: has no modules")
    projects = projects_of(opened)
    if by_project and not projects:
        raise UsageError(f"{opened.location}: was not combined of several corpora, by which it could be divided")
    if output is not None:
        check_inputs(output, [opened], placing)
    elif opened.packed:
        raise UsageError(
            f"{opened.location}: is packed and cannot be changed: `output` makes a corpus of each side; "
            "or divide the corpus before it is packed"
        )
    elif Path(corpus).name.startswith(MANIFEST_STEM):
        raise UsageError(f"{corpus}: is one side of a split; name the corpus's folder, or `output` for a split of it")
    listed = list(dict.fromkeys(opened.names))  # a manifest may name a module twice
    columns, problems = read_corpus_functions(opened, listed, jobs=jobs or available_cpus(), progress=progress)
    defined = np.bincount(columns.modules, minlength=len(listed))
    columns = columns.of_at_least(min_instructions)
    unreadable = frozenset(name for name, _ in problems)
    readable = np.array([printable(name) not in unreadable for name in listed], np.bool_)
    if not readable.any():
        raise MlgoCorpusError(f"{opened.location}: no module can be read: {problems[0][0]}: {problems[0][1]}")
    number = np.cumsum(readable) - 1  # a module's number among the readable ones
    count = int(readable.sum())
    functions = number[columns.modules]
    sharing = find_sharing(functions, columns.hashes)
    limit = None if max_component is None else find_limit(count, sharing, max_component)
    names = [name for name, there in zip(listed, readable.tolist(), strict=True) if there]
    if by_project:
        project_of = ModuleLabels(frozenset(projects)).project
        labels = np.unique([project_of(name) or "" for name in names], return_inverse=True)[1]
    else:
        labels = connected_components(count, *sharing.edges(limit))
    defined = defined[readable]
    weights = defined if weigh == "functions" else np.ones(count)
    if weigh == "bitcode":
        found = opened.sizes(names)
        weights = np.array([found[name] for name in names], np.float64)
    sides = divide(labels, wanted, seed, weights)
    at_random = divide(np.arange(count), wanted, seed, weights)
    sizes = np.bincount(labels)
    counts = np.bincount(functions, minlength=count)
    split = dict(zip(map(printable, names), sides.tolist(), strict=True))
    options = {"fractions": list(wanted), "weigh": weigh, "seed": seed, "max_component": max_component}
    options |= {"min_instructions": min_instructions, **({"by_project": True} if by_project else {})}
    write = _Split(opened, names, sides, split, options)
    written = write.in_place(force=force) if output is None else write.as_corpora(output, placing, force=force)
    return SplitReport(
        corpus=opened.shown,
        output=output,
        weigh=weigh,
        projects=len(projects),
        by_project=by_project,
        modules={name: int((sides == side).sum()) for side, name in enumerate(SIDES)},
        functions={name: int(defined[sides == side].sum()) for side, name in enumerate(SIDES)},
        bitcode_bytes=written.bitcode_bytes,
        fractions=wanted,
        groups=int((sizes > 0).sum()),
        largest_group=int(sizes.max()),
        heaviest=float(np.bincount(labels, weights).max() / max(weights.sum(), 1)),
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
    """The result of writing a split: bytes by side, whether all existed already, modules whose files cannot be read."""

    bitcode_bytes: dict[str, int]
    unchanged: bool
    problems: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Split:
    """A division of a corpus, to be written."""

    corpus: Corpus
    names: Sequence[str]
    sides: NDArray[np.int8]
    split: dict[str, int]
    options: dict[str, Any]

    def side(self, module: str, status: str) -> str | None:
        """Return the side of a row's module; None if it is on none."""
        number = self.split.get(module) if status == STATUS_OK else None
        return None if number is None else SIDES[number]

    def rows(self, sizes: dict[str, int]) -> Iterator[ModuleRow]:
        """Yield the corpus's rows with their sides, and add up the bytes of each side in ``sizes``."""
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
        with writing(self.corpus.location), whole_files(folder / MODULES_NAME) as files:
            there = {path: read_regular(path, MAX_LIST_BYTES) for path in wanted if path.is_file()}
            if there and there != wanted and not force:
                raise UsageError(f"{self.corpus.location}: has another split already; `force` replaces it")
            for path in there:  # the sides of two splits overlap, so no old one may remain
                files.remove(path)
            self._write_column(folder / MODULES_NAME, files.make(folder / MODULES_NAME), sizes)
            for path, data in wanted.items():
                files.make(path).write_bytes(data)
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

        rewrite_split(table, target, sides, {**read_metadata(table), "split": self.options})

    def _covers(self, table: Path) -> bool:
        """Return True if a table has a row for each module; an edited manifest may name more modules."""
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
        links = known_links(self.corpus)
        requests = {
            name: digest_of_request(
                "split",
                name,
                str(placing),
                self.options,
                [tuple(row) for row in own],
                *map(links_bytes, filter(None, [links])),
            )
            for name, own in rows.items()
        }
        due = [name for name in SIDES if not is_whole(output / name, requests[name], force=force)]
        for name in due:
            with new_corpus(output / name, placing, request=requests[name], force=force) as made:
                for row in rows[name]:
                    made.add(row, known[row.module], self.corpus[known[row.module]])
                made.take_links(links)
                made.finish(
                    has_thinlto=self.corpus.has_thinlto,
                    override=self.corpus.global_command_override,
                    about={
                        "made_by": "split",
                        "request": requests[name],
                        "split": self.options,
                        "corpora": list(projects_of(self.corpus)),
                    },
                )
            problems += made.failed
        return _Written(sizes, not due, tuple(problems))
