"""The verify stage: whether a corpus is what it says it is."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from mlgo_corpus import __version__
from mlgo_corpus.builds.objects import SectionNames
from mlgo_corpus.builds.originals import OriginalReason
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits, check_count
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import ModuleChoice, corpus_digest
from mlgo_corpus.corpus.split.files import names_a_side
from mlgo_corpus.corpus.verify import (
    STATUS_WARNING,
    Check,
    ModuleLookup,
    VerifyReason,
    VerifyRow,
    check_module,
    iter_checks,
    iter_folder_rows,
    problem_row,
    write_verify_rows,
)
from mlgo_corpus.engine.choice import HERE, EngineChoice, Lost, available_cpus
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.folder import check_file
from mlgo_corpus.files.names import CERTIFICATE_NAME, MODULES_NAME
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.tables import read_metadata
from mlgo_corpus.files.text import counted, option_key, several
from mlgo_corpus.runs.rebuild.module import RebuildSettings
from mlgo_corpus.runs.rebuild.run import RebuildReport, certify, rebuild_compilers
from mlgo_corpus.runs.report import Report

# Reading and hashing a module takes milliseconds; a file system may hang.
_LIMIT_S = 600.0
# Bytes of bitcode that are worth a round trip to a worker.
_CHUNK_BYTES = 8 << 20
_PROBLEMS = 10
_VERIFY_KIND: Final = "verify"

# Modules without an object to compare with: what helps, by reason.
_NO_OBJECT = {
    OriginalReason.OBJECT_MISSING: "`build_dirs` names the folder that their paths are relative to; with `force`",
    OriginalReason.OBJECT_UNREADABLE: "the build's file is damaged or cannot be read: compile it again",
    OriginalReason.OBJECT_CHANGED: "the build was compiled anew since: extract it again, and verify the new corpus",
    OriginalReason.LINKED: "a linked file does not contain its modules' objects: extract those to compare them",
    OriginalReason.BITCODE_ONLY: "an LTO build compiles its modules together: none has an object of its own",
}


@dataclass(slots=True)
class VerifyReport(Report):
    """The outcome of a verification.

    Attributes:
        corpus: what was checked.
        modules: modules checked.
        counts: rows by reason; a row that is not about a module counts, too.
        failed: rows that say that something is wrong, ``warnings`` that something may be.
        producers: modules by what made their bitcode; empty text for those that do not say.
        readable_by: the least major version of LLVM that is sure to read all of them, None if that is not known.
        bitcode_bytes, cmd_bytes: bytes found.
        has_table: whether there was a table to compare the files with.
        problems: the first of them, failures first: module, reason, detail.
        output: the file with all rows, None if none was asked for.
        rebuild: what came of compiling the modules again, None if that was not asked for.
        seconds: how long the checks took.
    """

    corpus: Path | str
    modules: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    warnings: int = 0
    producers: dict[str, int] = field(default_factory=dict)
    readable_by: int | None = None
    bitcode_bytes: int = 0
    cmd_bytes: int = 0
    has_table: bool = False
    problems: tuple[tuple[str, str, str], ...] = ()
    output: Path | None = None
    rebuild: RebuildReport | None = None
    seconds: float = 0.0
    _properties: ClassVar = ("hints", "exit_code")

    @property
    def exit_code(self) -> int:
        """0 if nothing is wrong, and what was asked for was compared, else 1."""
        return 1 if self.failed or (self.rebuild is not None and self.rebuild.exit_code) else 0

    @property
    def hints(self) -> tuple[str, ...]:
        """Advice on the rebuild."""
        return () if self.rebuild is None else rebuild_hints(self.rebuild)


def rebuild_hints(report: RebuildReport) -> tuple[str, ...]:
    """Return what helps against modules that are not the same, or could not be compared."""
    hints = [
        f"{counted(report.reasons[reason], 'module')} not compared, {reason}: {why}"
        for reason, why in _NO_OBJECT.items()
        if reason in report.reasons
    ]
    if report.other_version and report.bad:
        found = f"{counted(report.other_version, 'module')} made by an LLVM that is not here"
        hints.insert(0, f"{found}: `compiler` names the clang that made them")
    return tuple(hints)


def verify_corpus(
    corpus: Path | str,
    *,
    output: Path | str | None = None,
    rebuild: bool = False,
    build_dirs: Sequence[Path | str] | Path | str = (),
    compiler: str | None = None,
    trust_corpus: bool = False,
    timeout: float = 300.0,
    memory_limit: int | None = None,
    sample: str | None = None,
    module_filter: str | None = None,
    modules_file: Path | str | None = None,
    seed: int = 0,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    engine: EngineChoice = HERE,
    progress: Callable[[int, int, int], None] | None = None,
    rebuild_progress: Callable[[int, int, int], None] | None = None,
) -> VerifyReport:
    """Check that every file of a corpus is there and is what the corpus's table says; compile it again if asked to.

    A rebuild that is interrupted goes on when it is called again: modules that came out the same are not compiled
    again.

    Args:
        corpus: the corpus's folder, or a manifest in it, or the URL of a packed corpus.
        output: a Parquet file for the rows, one of each module; with ``rebuild``, for the certificate, which by default
            is ``rebuild.parquet`` in the corpus; nothing is added to a packed one.
        rebuild: compile each module with its own command, and compare with the object it was extracted from.
        build_dirs: the folders of the builds that the objects are in; by default the current one.
        compiler: the clang to rebuild with; by default each module's own version if it is found, else the next newer.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one compile may have; by default the machine's memory, shared among
            its CPUs, at least 4 GiB.
        sample: check only so many modules, or this fraction of them, of all sizes.
        module_filter: check only modules in whose names this regular expression is found.
        modules_file: check only the modules whose names are in this file.
        seed: seed for the sample.
        jobs: worker processes; by default the CPUs this process may use.
        force: replace a file that is there.
        cache: folder with cached compiler probes; the user's cache by default.
        engine: where modules are compiled again: on this machine, or on a cluster. The checks are done on this one.
        progress: called with (modules done, of them failed, modules in all).
        rebuild_progress: likewise, of the rebuild.

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: the output cannot be written.
    """
    started = time.perf_counter()
    output = None if output is None else output_here(output, "a table", "a file")
    check_count("jobs", jobs)
    choice = ModuleChoice(sample, module_filter, modules_file, seed)
    limits = Limits(timeout, memory_limit)
    limits.check()
    rebuild_jobs, jobs = jobs, jobs or available_cpus()
    opened = open_corpus(corpus)
    names = choice.select(opened)
    settings = None
    if rebuild:
        if output is None:
            if opened.packed:
                raise UsageError(f"{opened.location}: is packed, and stays as it is; name another file with `output`")
            output = Path(opened.location, CERTIFICATE_NAME)
        _check_output(output, opened, force=force)
        settings = RebuildSettings(
            compilers=rebuild_compilers(compiler, cache=cache_folder(cache), jobs=jobs),
            build_dirs=tuple(map(_build_dir, several(build_dirs) or (".",))),
            work=output.absolute().with_name(f".{output.name}.work"),
            names=_section_names(opened),
            edits=CommandEdits(trusted=trust_corpus),
            limits=limits,
        )
    elif output is not None:
        _check_output(output, opened, force=force)
    everything = choice.is_all
    verification = _Verification(opened, names, jobs, progress)
    rows = verification.rows(everything=everything, whole=everything and not names_a_side(corpus))
    about: dict[str, Any] = {
        "tool": "mlgo-corpus",
        "version": __version__,
        "corpus_sha256": corpus_digest(opened, names),
    }
    if output is None or settings is not None:
        for row in rows:
            verification.see(row)
    else:
        with writing(output):
            write_verify_rows(output, rows, {**about, "kind": _VERIFY_KIND}, verification.see)
    report = verification.report(output, time.perf_counter() - started)
    if settings is not None and output is not None:
        about["trust_corpus"] = trust_corpus
        about["compilers"] = [{"version": one.vendor, "sha256": one.identity} for one in settings.compilers]
        placed = opened if engine.place(corpus) == corpus else open_corpus(engine.place(corpus))
        report.rebuild = certify(
            placed, names, output, settings, about, jobs=rebuild_jobs, progress=rebuild_progress, engine=engine
        )
    return report


def _build_dir(path: Path | str) -> str:
    if not os.path.isdir(path):
        found = "a file" if os.path.exists(path) else "none"
        raise UsageError(f"expected the build's folder, found {found}", option="build_dirs", value=path)
    return os.path.abspath(path)


def _section_names(corpus: Corpus) -> SectionNames:
    """Return the sections that the corpus was extracted from, as its table names them."""
    try:
        options = read_metadata(corpus.place / MODULES_NAME).get("options")
    except CorpusError:
        options = None
    known = options if isinstance(options, dict) else {}
    given = [known.get(option_key(option)) for option in ("bitcode_section", "cmd_section")]
    return SectionNames.of(*(name if isinstance(name, str) else None for name in given))


def _check_output(path: Path, corpus: Corpus, *, force: bool) -> None:
    """Refuse a file that cannot be made, or is there already, or is of the corpus, or would be in a packed one."""
    packed = corpus.place if corpus.packed else None
    if isinstance(packed, Path) and path.resolve().is_relative_to(packed.resolve()):
        detail = f"is in {packed}, which is packed and stays as it is; name another place"
        raise UsageError(detail, option="output", value=path)
    if path.is_dir():
        raise UsageError(f"{path}: expected a Parquet file to write, found a folder")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    place = corpus.place
    inputs = [place] if isinstance(place, Path) and path.name != CERTIFICATE_NAME else []
    check_file(path, inputs, "name a Parquet file", force=force)


class _Verification:
    """One verification under way: it makes the rows, and counts them as they are seen."""

    def __init__(
        self,
        corpus: Corpus,
        names: Sequence[str],
        jobs: int,
        progress: Callable[[int, int, int], None] | None,
    ) -> None:
        self._corpus = corpus
        self._names = names
        self._jobs = jobs
        self._progress = progress
        self._lookup = ModuleLookup(corpus)
        self._checked = 0
        self._reasons: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._producers: Counter[str] = Counter()
        self._readable_by: set[int | None] = set()
        self._bytes = [0, 0]
        self._problems: dict[str, list[tuple[str, str, str]]] = {STATUS_FAILED: [], STATUS_WARNING: []}

    def rows(self, *, everything: bool, whole: bool) -> Iterator[VerifyRow]:
        """Check, and yield a row for each module, in order, and then for what else is wrong."""
        made = parallel_map(
            check_module,
            iter_checks(self._corpus, self._names, self._lookup),
            jobs=self._jobs,
            limit=_LIMIT_S,
            weigh=_weight,
        )
        failed = 0
        for name, row in zip(self._names, made, strict=True):
            if isinstance(row, Lost):
                row = problem_row(name, VerifyReason.WORKER_DIED, row.detail)
            self._checked += 1
            self._producers[row.producer or ""] += row.bitcode_bytes is not None
            if row.bitcode_bytes is not None:
                self._readable_by.add(row.readable_by)
            failed += row.status == STATUS_FAILED
            if self._progress is not None:
                self._progress(self._checked, failed, len(self._names))
            yield row
        if everything:
            listed = Counter(self._corpus.names)
            for name, times in listed.items():
                if times > 1:
                    yield problem_row(name, VerifyReason.LISTED_TWICE, f"the manifest names it {times} times")
        yield from iter_folder_rows(self._corpus, self._lookup, whole=whole)

    def see(self, row: VerifyRow) -> None:
        """Count a row."""
        self._reasons[row.reason] += 1
        self._statuses[row.status] += 1
        self._bytes[0] += row.bitcode_bytes or 0
        self._bytes[1] += row.cmd_bytes or 0
        if row.status != STATUS_OK and len(known := self._problems[row.status]) < _PROBLEMS:
            known.append((row.module, row.reason, row.detail))

    def report(self, output: Path | None, seconds: float) -> VerifyReport:
        """Sum up."""
        majors = [major for major in self._readable_by if major is not None]
        known = bool(majors) and None not in self._readable_by
        return VerifyReport(
            corpus=self._corpus.shown,
            modules=self._checked,
            counts=dict(self._reasons.most_common()),
            failed=self._statuses[STATUS_FAILED],
            warnings=self._statuses[STATUS_WARNING],
            producers={name: count for name, count in self._producers.most_common() if count},
            readable_by=max(majors) if known else None,
            bitcode_bytes=self._bytes[0],
            cmd_bytes=self._bytes[1],
            has_table=self._lookup.exists,
            problems=tuple((self._problems[STATUS_FAILED] + self._problems[STATUS_WARNING])[:_PROBLEMS]),
            output=output,
            seconds=seconds,
        )


def _weight(check: Check) -> float:
    """Return a module's share of a chunk; without a table its size is unknown until it is read."""
    size = None if check.expected is None else check.expected.bitcode_bytes
    return 0.0 if size is None else size / _CHUNK_BYTES
