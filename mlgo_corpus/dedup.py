"""The dedup stage: find modules that duplicate another one, and leave them out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from mlgo_corpus.builds.objects import Reason
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.assemble import Placing, check_inputs, digest_of_request, is_whole, local_output, new_corpus
from mlgo_corpus.corpus.duplicates import Duplicate, find_equal, find_near, find_twins
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.groups import projects_of
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK, STATUS_SKIPPED, ModuleRow
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import LinkRecord, known_links, links_bytes
from mlgo_corpus.corpus.scan import iter_rows, iter_tables
from mlgo_corpus.corpus.split.components import MIN_INSTRUCTIONS
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted, printable
from mlgo_corpus.runs.functions.run import read_corpus_functions
from mlgo_corpus.runs.report import Report

# The folder of libtool's objects for shared libraries, in a module's name; those for static ones are beside it.
_LIBTOOL_SHARED: Final = re.compile(r"(?<![^/])\.libs/(?=[^/]*$)")


@dataclass(frozen=True, slots=True)
class DedupReport(Report):
    """The duplicates that were found.

    Attributes:
        corpus: the corpus that was read.
        output: the corpus without duplicates, or None if none was made.
        modules: number of modules before.
        kept: number of modules left.
        bitcode_bytes: bytes of bitcode of all modules.
        dropped_bytes: bytes of bitcode of the dropped modules.
        dropped: the dropped modules, exact duplicates first, see `Duplicate`.
        problems: modules that cannot be read, and so were not compared or are not in the output: name and reason.
        unchanged: True if the output existed already.
        seconds: how long it took.
        libtool: without ``near``, the number of kept modules whose source libtool compiled twice, ``a/.libs/b.o``
            beside ``a/b.o``; they have other bitcode, but usually the same functions.
    """

    corpus: Path | str
    output: Path | None
    modules: int
    kept: int
    bitcode_bytes: int
    dropped_bytes: int
    dropped: tuple[Duplicate, ...]
    problems: tuple[tuple[str, str], ...]
    unchanged: bool
    seconds: float
    libtool: int = 0

    _properties: ClassVar = ("hints", "exit_code")

    @property
    def exit_code(self) -> int:
        """1 if a module cannot be read, else 0."""
        return 1 if self.problems else 0

    @property
    def hints(self) -> tuple[str, ...]:
        """Advice for the user."""
        if not self.libtool:
            return ()
        return (
            f"libtool compiled the source of {counted(self.libtool, 'module')} twice, for a shared and a static "
            "library; the bitcode differs, the functions rarely: `near` 1 finds such modules",
        )

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; each dropped module is a dictionary."""
        return {**Report.as_json(self), "dropped": [one._asdict() for one in self.dropped]}


def dedup_corpus(
    corpus: Path | str,
    output: Path | str | None = None,
    *,
    near: float | None = None,
    ignore_commands: bool = False,
    min_instructions: int = MIN_INSTRUCTIONS,
    placing: Placing | str = Placing.LINK,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> DedupReport:
    """Find modules that equal an earlier one and, on request, those nearly contained in a larger one.

    Args:
        corpus: its folder, or the URL of a packed one; it is not changed.
        output: a corpus without them; by default none is made.
        near: also drop modules that have at least this share of their instructions in functions whose bodies a kept
            module has too (see `mlgo_corpus.formats.bitcode.functions`), and those of one source that have the same
            functions as an earlier one, such as libtool's.
        ignore_commands: compare modules by their bitcode alone, without their commands.
        min_instructions: functions with fewer instructions count as not shared for ``near`` between modules of
            different sources: unrelated modules share them.
        placing: how files get to ``output``, see `Placing`.
        jobs: processes that read modules; by default the CPUs this process may use.
        force: replace another corpus at ``output``.
        progress: called with (modules read, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands.
        CorpusError: it is not a corpus, or its table is damaged.
        MlgoCorpusError: the output cannot be written.
    """
    started = time.perf_counter()
    output = None if output is None else local_output(output)
    placing = Placing(placing)
    if near is not None and not 0 < near <= 1:
        raise UsageError("expected more than 0, and at most 1", option="near", value=f"{near:g}")
    check_count("min_instructions", min_instructions, least=0)
    opened = open_corpus(corpus)
    if len(opened) == 0:
        raise UsageError(f"{opened.location}: has no modules")
    if output is not None:
        check_inputs(output, [opened], placing)
    names, sizes, contents, sources, problems = _modules(opened, commands=not ignore_commands)
    contents = _of_whole(opened, names, sizes, contents)
    found = find_equal(zip(names, contents, strict=True))
    if near is not None:
        equal = frozenset(one.module for one in found)
        others = [name for name in dict.fromkeys(opened.names) if printable(name) not in equal]
        columns, unread = read_corpus_functions(opened, others, jobs=jobs or available_cpus(), progress=progress)
        problems |= {printable(name): why for name, why in unread}
        shown = [printable(name) for name in others]
        source_of = dict(zip(names, sources, strict=True))
        twins = find_twins(shown, [source_of.get(name) for name in shown], columns)
        twin = frozenset(one.module for one in twins)
        columns = columns.without(np.array([name in twin for name in shown], np.bool_))
        nearly = find_near(shown, columns, near, min_instructions)
        # A module that equals a dropped one names the module that this one was dropped for.
        for dropped_for in (twins, nearly):
            gone = {one.module: one.kept for one in dropped_for}
            found = [one._replace(kept=gone.get(one.kept, one.kept)) for one in found] + dropped_for
    dropped = frozenset(one.module for one in found)
    unchanged = False
    if output is not None:
        options = [str(placing), near, ignore_commands, min_instructions]
        links = known_links(opened)
        request = digest_of_request("dedup", options, [names, contents], *map(links_bytes, filter(None, [links])))
        unchanged = is_whole(output, request, force=force)
        if not unchanged:
            duplicates = {one.module: one for one in found}
            problems |= dict(_write(opened, output, placing, duplicates, links, request, force=force))
    return DedupReport(
        corpus=opened.shown,
        output=output,
        modules=len(names),
        kept=len(names) - len(found),
        bitcode_bytes=sum(sizes),
        dropped_bytes=sum(size for name, size in zip(names, sizes, strict=True) if name in dropped),
        dropped=tuple(found),
        problems=tuple(problems.items()),
        unchanged=unchanged,
        seconds=time.perf_counter() - started,
        libtool=0 if near is not None else _made_by_libtool(name for name in names if name not in dropped),
    )


def _made_by_libtool(names: Iterable[str]) -> int:
    """Return the number of objects for a shared library beside which libtool left one for a static library."""
    there = frozenset(names)
    return sum(_LIBTOOL_SHARED.search(name) is not None and _LIBTOOL_SHARED.sub("", name) in there for name in there)


def _modules(
    opened: Corpus, *, commands: bool
) -> tuple[list[str], list[int], list[str | None], list[str | None], dict[str, str]]:
    """Return facts on the modules, and those of the manifest that cannot be read, each with the reason.

    The facts are their names, their bytes of bitcode, keys that are equal if the modules are, and their sources.
    """
    names: list[str] = []
    sizes: list[int] = []
    contents: list[str | None] = []
    sources: list[str | None] = []
    failed: dict[str, str] = {}
    for table in iter_tables(opened, ("detail", "bitcode_bytes", "bitcode_sha256", "cmd_sha256", "main_file_name")):
        columns = (
            table[name].to_pylist() for name in ("module", "status", "detail", "bitcode_bytes", "main_file_name")
        )
        digests = (table[name].to_pylist() for name in ("bitcode_sha256", "cmd_sha256"))
        for name, status, detail, size, source, bitcode, command in zip(*columns, *digests, strict=True):
            if status == STATUS_OK:
                names.append(name)
                sizes.append(size or 0)
                sources.append(source)
                contents.append(bitcode if bitcode is None or not commands else _both(bitcode, command))
            elif status == STATUS_FAILED:
                failed[name] = detail
    # A table also has what failed before there was a module; that is no news.
    expected = frozenset(map(printable, opened.names)).difference(names)
    return names, sizes, contents, sources, {name: why for name, why in failed.items() if name in expected}


def _of_whole(
    opened: Corpus, names: Sequence[str], sizes: Sequence[int], contents: Sequence[str | None]
) -> list[str | None]:
    """Return the keys, without those of modules whose bitcode is not there or cut short: no other is dropped for it."""
    known = {printable(name): name for name in opened.names}
    there = opened.sizes(list(known.values()))
    return [
        content if not size or there.get(known.get(name, name), size) == size else None
        for name, size, content in zip(names, sizes, contents, strict=True)
    ]


def _both(bitcode: str, command: str | None) -> str:
    """Return a key for two digests that has the length of one, to save memory for millions of modules."""
    return f"{bitcode[:32]}{(command or 'none')[:32]}"


def _write(
    opened: Corpus,
    output: Path,
    placing: Placing,
    dropped: dict[str, Duplicate],
    links: Sequence[LinkRecord] | None,
    request: str,
    *,
    force: bool,
) -> tuple[tuple[str, str], ...]:
    """Make the corpus; return the modules whose files could not be read."""
    known = {printable(name): name for name in opened.names}
    with new_corpus(output, placing, request=request, force=force) as made:
        for row in iter_rows(opened):
            row = row._replace(split=None)
            duplicate = dropped.get(row.module) if row.status == STATUS_OK else None
            if row.status != STATUS_OK:
                made.add_row(row, row.module)
            elif duplicate is not None:
                made.add_row(_dropped(row, duplicate), row.module)
            else:
                made.add(row, known[row.module], opened[known[row.module]])
        # Links of a dropped module get the one that was kept for it.
        made.take_links(links, same={one.module: one.kept for one in dropped.values() if one.exact})
        made.finish(
            has_thinlto=opened.has_thinlto,
            override=opened.global_command_override,
            about={"made_by": "dedup", "request": request, "corpora": list(projects_of(opened))},
        )
    return tuple(made.failed)


def _dropped(row: ModuleRow, duplicate: Duplicate) -> ModuleRow:
    if duplicate.exact:
        detail = f"the same as {duplicate.kept}"
    else:
        detail = f"at least {100 * duplicate.share:.1f} % of its instructions are in functions of {duplicate.kept}, too"
    return row._replace(status=STATUS_SKIPPED, reason=str(Reason.DUPLICATE), detail=detail, duplicate_of=duplicate.kept)
