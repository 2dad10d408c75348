"""All products of a corpus linked again: what waits for what, the rows, what they add up to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus.compilers.compile import row_detail, run_folder
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.corpus.products import LinkKind, LinkRecord, modules_of, parts_of, product_links
from mlgo_corpus.dataset.reasons import RunReason, run_status
from mlgo_corpus.engine.threads import in_threads
from mlgo_corpus.errors import FormatError
from mlgo_corpus.files.names import NameRegistry, safe_module_name
from mlgo_corpus.files.regular import read_file
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.objects.objfile import measure_object
from mlgo_corpus.runs.links.module import NO_LONGER_THERE, Linked, LinkSettings, ProductLink, Store, why_os
from mlgo_corpus.runs.links.table import PRODUCTS_FOLDER, ProductRow
from mlgo_corpus.runs.report import Report

_PROBLEMS = 10
# No build links a library of a library of ... more often.
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class RelinkReport(Report):
    """The sums over the products of a relink.

    Attributes:
        corpus: what was linked again.
        output: the folder of the products and of the table of them.
        compiler: the version line of the compiler whose linker was run.
        products: programs and shared libraries that the build linked.
        linked: of them, those that were linked again.
        compared: of them, those with the original's digest.
        identical: of them, those that equal the original, byte for byte.
        reasons: products by reason.
        text_size, original_text_size: bytes of text of the products of which both are known.
        modules: modules in the products.
        replaced: of them, those whose object was replaced.
        missing: of them, those whose object is the build's own.
        missing_modules: the first of these.
        rows: the table's rows.
        problems: the first products that failed: product, reason, detail.
        hints: advice for the user.
        seconds: how long it took.
    """

    _properties: ClassVar = ("failed", "exit_code")

    corpus: Path | str
    output: Path
    compiler: str
    products: int
    linked: int
    compared: int
    identical: int
    reasons: dict[str, int]
    text_size: int
    original_text_size: int
    modules: int
    replaced: int
    missing: int
    missing_modules: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    problems: tuple[tuple[str, str, str], ...]
    hints: tuple[str, ...]
    seconds: float

    @property
    def failed(self) -> int:
        """How many products could not be linked."""
        return self.products - self.linked

    @property
    def exit_code(self) -> int:
        """0 if there are products, and all were linked again, else 1."""
        return 1 if self.failed or not self.products else 0


@dataclass(slots=True)
class _Original:
    """What the build's own product is."""

    sha256: str | None = None
    text_size: int | None = None
    code_size: int | None = None
    origin: str | None = None
    problem: str = ""


@dataclass(slots=True)
class _Outputs:
    """What was linked again, by the digest of what the build had linked: with other objects, and with its own."""

    other: dict[str, Linked] = field(default_factory=dict)
    own: dict[str, Linked] = field(default_factory=dict)


class Relink:
    """The links of a corpus's products.

    Args:
        records: all links of the corpus's builds.
        settings: those of each link; the work folder exists and is empty.
        result: the folder for the products, which exists.
        jobs: how many linkers to run at once.
        progress: called with (products done, of them failed, products in all).
    """

    def __init__(
        self,
        records: Sequence[LinkRecord],
        settings: LinkSettings,
        result: Path,
        *,
        jobs: int,
        progress: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self._settings = settings
        self._result = result
        self._jobs = jobs
        self._progress = progress
        self._products = product_links(records)
        self._made = {one.sha256: one for one in records if one.sha256 is not None and one.kind != LinkKind.ARCHIVE}
        self._parts = parts_of(records)
        self._steps = [one for one in records if one.kind != LinkKind.ARCHIVE]
        self._store = Store(settings)
        self._outputs = _Outputs()
        self._stop = threading.Event()
        self._names = NameRegistry()
        self._paths = {one.name: self._names.claim(safe_module_name(one.name)) for one in self._products}

    def run(self) -> list[ProductRow]:
        """Link everything; return the products' rows in the order of the build.

        Raises:
            OSError: a product cannot be put into its place.
        """
        rows: dict[str, ProductRow] = {}
        failed = 0
        for level in _levels(self._steps, self._made):
            for index, row in in_threads(self._row, level, jobs=self._jobs, stop=self._stop):
                name = level[index].name
                if name in self._paths:
                    rows[name] = row
                    failed += row.reason != RunReason.OK
                    if self._progress is not None:
                        self._progress(len(rows), failed, len(self._products))
        return [rows[one.name] for one in self._products]

    def _row(self, record: LinkRecord) -> ProductRow:
        settings = self._settings
        modules = modules_of(record, self._parts)
        row = ProductRow(printable(record.name), record.kind, "", "", "", modules=len(modules), replaced=0, missing=0)
        original = self._recorded(record)
        # Sizes are compared of products that the same linker made with the same options.
        alike = not settings.flags and record.compiler == settings.vendor
        if settings.objects is not None and not (alike and original.origin == "build"):
            original = self._linked_original(record, original if alike else _Original())
        row = row._replace(
            original_sha256=original.sha256,
            original_text_size=original.text_size,
            original_code_size=original.code_size,
            original_from=original.origin,
        )
        with run_folder(self._settings.work) as folder:
            link = self._link(record, folder, self._outputs.other, replace=True)
            try:
                done = link.run()
                place = self._keep(record, done)
            except (RunFailure, OSError, ValueError) as error:
                failure = error if isinstance(error, RunFailure) else why_os(error)
                return self._counted(row, link)._replace(
                    status=run_status(failure.reason), reason=failure.reason.value, detail=row_detail(failure.detail)
                )
        lone = original.problem and original.text_size is None
        return self._counted(row, link)._replace(
            status=run_status(RunReason.OK),
            reason=RunReason.OK.value,
            detail=row_detail(f"the build's own objects cannot be linked: {original.problem}") if lone else "",
            path=place,
            text_size=done.text_size,
            code_size=done.code_size,
            sha256=done.sha256,
            identical=None if original.sha256 is None else done.sha256 == original.sha256,
        )

    def _counted(self, row: ProductRow, link: ProductLink) -> ProductRow:
        linked = link.linked
        return row._replace(
            replaced=len(linked.replaced),
            missing=len(linked.missing),
            missing_modules=tuple(linked.missing),
            dropped=tuple(linked.dropped),
            **link.ended,
        )

    def _link(self, record: LinkRecord, folder: Path, outputs: Mapping[str, Linked], *, replace: bool) -> ProductLink:
        return ProductLink(
            record, self._settings, self._store, self._made, outputs, folder, replace=replace, stop=self._stop
        )

    def _recorded(self, record: LinkRecord) -> _Original:
        """Return what the build's product is: by its file, if that is unchanged, or by what was recorded."""
        if record.sha256 is None:
            return _Original()
        try:
            data = read_file(record.output)
            if sha256(data).hexdigest() == record.sha256:
                sizes = measure_object(data)
                return _Original(record.sha256, sizes.text_size, sizes.code_size, "build")
        except (OSError, ValueError, FormatError):
            pass
        return _Original(record.sha256, record.text_size, record.code_size, "record")

    def _linked_original(self, record: LinkRecord, recorded: _Original) -> _Original:
        """Link the build's own objects; without success, return what is known."""
        try:
            with run_folder(self._settings.work) as folder:
                done = self._link(record, folder, self._outputs.own, replace=False).run()
                if record.sha256 is not None:
                    self._outputs.own[record.sha256] = self._stored(done)
        except (RunFailure, OSError, ValueError) as error:
            failure = error if isinstance(error, RunFailure) else why_os(error)
            return replace(recorded, problem=f"{failure.reason.value}: {failure.detail}")
        return _Original(done.sha256, done.text_size, done.code_size, "link")

    def _stored(self, done: Linked) -> Linked:
        """Return a product that other links take, with a copy of it."""
        return replace(done, path=self._store.put(read_file(str(done.path))))

    def _keep(self, record: LinkRecord, done: Linked) -> str | None:
        """Move a product to its place; return that, relative to the result."""
        if record.sha256 is not None and record.kind != LinkKind.PROGRAM:
            self._outputs.other[record.sha256] = self._stored(done)
        name = self._paths.get(record.name)
        if name is None:
            return None
        place = self._result / PRODUCTS_FOLDER / name
        place.parent.mkdir(parents=True, exist_ok=True)
        done.path.replace(place)
        return f"{PRODUCTS_FOLDER}/{name}"


def _levels(steps: Sequence[LinkRecord], made: Mapping[str, LinkRecord]) -> list[list[LinkRecord]]:
    """Group links so that each takes only outputs of links in groups before its own."""
    level: dict[str, int] = {}

    def needs(record: LinkRecord) -> list[LinkRecord]:
        digests = [item.sha256 for item in record.inputs]
        digests += [member.sha256 for item in record.inputs for member in item.members]
        found = [made[digest] for digest in digests if digest is not None and digest in made]
        return [one for one in found if one.name != record.name]

    # Usually one pass: a build links what is needed first. A record of another order, or a circle, ends, too.
    for _ in range(min(len(steps), _DEEPEST)):
        before = dict(level)
        for record in steps:
            level[record.name] = max((level.get(one.name, 0) + 1 for one in needs(record)), default=0)
        if level == before:
            break
    groups: dict[int, list[LinkRecord]] = {}
    for record in steps:
        groups.setdefault(level[record.name], []).append(record)
    return [groups[key] for key in sorted(groups)]


def is_of_the_tree(reason: str, detail: str) -> bool:
    """Return whether a link failed because the build's tree is not as it was, which another build mends."""
    return reason == RunReason.CHANGED_FILE or (reason == RunReason.MISSING_FILE and NO_LONGER_THERE in detail)


TREE_HINT = "the build's tree is not as the build left it: build it again (mlgo-corpus build), then repeat this"


def sum_up(
    rows: Sequence[ProductRow],
    records: Sequence[LinkRecord],
    *,
    corpus: Path | str,
    output: Path,
    compiler: str,
    seconds: float,
) -> RelinkReport:
    """Return the report of a relink's rows, and of the links that they are of."""
    builders = [one for one in dict.fromkeys(record.compiler for record in records) if one != compiler]
    hints = [f"the build was linked by {', '.join(builders)}: name it with `compiler`"] if builders else []
    if not rows:
        hints.append("no command of the build that was seen linked a program or a shared library")
    if any(is_of_the_tree(row.reason, row.detail) for row in rows):
        hints.append(TREE_HINT)
    done = [row for row in rows if row.reason == RunReason.OK]
    sized = [row for row in done if row.text_size is not None and row.original_text_size is not None]
    missing = dict.fromkeys(name for row in rows for name in row.missing_modules)
    return RelinkReport(
        corpus=corpus,
        output=output,
        compiler=compiler,
        products=len(rows),
        linked=len(done),
        compared=sum(row.identical is not None for row in done),
        identical=sum(row.identical is True for row in done),
        reasons=dict(Counter(row.reason for row in rows)),
        text_size=sum(row.text_size or 0 for row in sized),
        original_text_size=sum(row.original_text_size or 0 for row in sized),
        modules=sum(row.modules for row in done),
        replaced=sum(row.replaced for row in done),
        missing=sum(row.missing for row in done),
        missing_modules=tuple(missing)[:_PROBLEMS],
        rows=tuple(row._asdict() for row in rows),
        problems=tuple((row.product, row.reason, row.detail) for row in rows if row.reason != RunReason.OK)[:_PROBLEMS],
        hints=tuple(hints),
        seconds=seconds,
    )
