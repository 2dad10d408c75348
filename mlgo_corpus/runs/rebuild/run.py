"""A rebuild certificate under way: the compilers, the workers, the rows in order, what they add up to."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus.compilers.find import COMPILER_VARIABLE
from mlgo_corpus.compilers.probe import probe_compiler, probe_toolchains
from mlgo_corpus.corpus.certificate import (
    BAD,
    CERTIFICATE_KIND,
    Outcome,
    RebuildRow,
    read_certificate,
    write_certificate,
)
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.verify import ModuleLookup
from mlgo_corpus.engine.choice import HERE, EngineChoice
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.atomic import remove, writing
from mlgo_corpus.files.folder import work_folder
from mlgo_corpus.runs.over import Over
from mlgo_corpus.runs.rebuild.module import RebuildCompiler, RebuildItem, RebuildJob, RebuildSettings
from mlgo_corpus.runs.report import Report

_PROBLEMS = 10


@dataclass(slots=True)
class RebuildReport(Report):
    """The sums over a certificate's rows.

    Attributes:
        output: the certificate.
        modules: modules in it.
        outcomes: modules by outcome.
        same_bytes: modules of which every byte of the object came again.
        reasons: modules that fail, or have no object, by reason.
        compilers: modules by what compiled them.
        other_version: modules compiled by another LLVM than the one that made them.
        object_text_size, rebuilt_text_size: bytes of text of the objects that were compared.
        resumed: modules that an earlier, interrupted run had done.
        problems: the first modules that are bad: module, outcome, detail.
        notes: the first modules of the other outcomes that need a word: module, outcome, detail.
        seconds: how long it took.
    """

    output: Path
    modules: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    same_bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    compilers: dict[str, int] = field(default_factory=dict)
    other_version: int = 0
    object_text_size: int = 0
    rebuilt_text_size: int = 0
    resumed: int = 0
    problems: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[tuple[str, str, str], ...] = ()
    seconds: float = 0.0
    _properties: ClassVar = ("bad", "compared")

    @property
    def bad(self) -> int:
        """How many modules differ or fail."""
        return sum(self.outcomes.get(outcome, 0) for outcome in BAD)

    @property
    def compared(self) -> int:
        """How many modules were compared with their object."""
        return self.modules - sum(self.outcomes.get(outcome, 0) for outcome in (Outcome.FAILS, Outcome.NO_OBJECT))

    @property
    def exit_code(self) -> int:
        """0 if every object that was compared came again, 1 if one did not, or none was compared."""
        return 1 if self.bad or (self.modules and not self.compared) else 0

    def see(self, row: RebuildRow) -> None:
        """Count a row."""
        self.modules += 1
        self.outcomes[row.outcome] = self.outcomes.get(row.outcome, 0) + 1
        if row.outcome in (Outcome.FAILS, Outcome.NO_OBJECT):
            self.reasons[row.reason] = self.reasons.get(row.reason, 0) + 1
        else:
            self.same_bytes += row.object_sha256 == row.rebuilt_sha256
            self.object_text_size += row.object_text_size or 0
            self.rebuilt_text_size += row.rebuilt_text_size or 0
        if row.compiler is not None:
            self.compilers[row.compiler] = self.compilers.get(row.compiler, 0) + 1
            self.other_version += row.same_version is False
        told = (row.module, row.outcome, f"{row.reason}: {row.detail}" if row.reason != "ok" else row.detail)
        if row.outcome in BAD and len(self.problems) < _PROBLEMS:
            self.problems += (told,)
        elif row.outcome in (Outcome.CODE_IDENTICAL, Outcome.NO_OBJECT):
            seen = Counter(outcome for _, outcome, _ in self.notes)
            if not seen[row.outcome]:
                self.notes += (told,)


def read_report(path: Path) -> RebuildReport:
    """Sum up a certificate that is there.

    Raises:
        CorpusError: it is none.
    """
    report = RebuildReport(path)
    for row in read_certificate(path):
        report.see(row)
    report.resumed = report.modules
    return report


def rebuild_compilers(named: str | None, *, cache: Path, jobs: int) -> tuple[RebuildCompiler, ...]:
    """Find the compilers that may rebuild a corpus.

    Args:
        named: the only one to take; by default what `COMPILER_VARIABLE` names, else all that are found.
        cache: where it is known what compilers can do.
        jobs: how many compilers to look at side by side.

    Raises:
        UsageError: there is none.
    """
    named = named or os.environ.get(COMPILER_VARIABLE) or None
    if named is not None:
        found = [probe_compiler(named, cache=cache)]
    else:
        found = list(probe_toolchains(cache=cache, jobs=jobs))
        # One that we built is not the one that made a corpus, whatever its version.
        found.sort(key=lambda one: one.origin == "built")
    compilers = []
    for one in found:
        if one.problem is None and one.version is not None:
            version = tuple(int(number) for number in one.version.split("."))
            compilers.append(RebuildCompiler(one.cc1, version, one.vendor or "", one.identity))
    if not compilers:
        raise UsageError(
            "no clang found to rebuild with: name one with `compiler`, or see 'mlgo-corpus toolchain list'"
        )
    return tuple(compilers)


def certify(
    corpus: Corpus,
    names: Sequence[str],
    output: Path,
    settings: RebuildSettings,
    about: dict[str, Any],
    *,
    jobs: int | None,
    progress: Callable[[int, int, int], None] | None,
    engine: EngineChoice = HERE,
) -> RebuildReport:
    """Rebuild modules, and write the certificate.

    Args:
        corpus: where they are.
        names: which of them.
        output: the certificate's file.
        settings: how they are rebuilt; its work folder is made here, and removed when the certificate is whole.
        about: what tells this certificate from another: for its metadata, and for going on with an interrupted one.
        jobs: how many compilers to run at once.
        progress: is told (modules done, of them bad, modules in all).
        engine: where the compilers run.

    Raises:
        UsageError: another run makes the same certificate.
        MlgoCorpusError: the certificate cannot be written.
    """
    started = time.perf_counter()
    report = RebuildReport(output)
    key = {**about, "build_dirs": [os.path.abspath(one) for one in settings.build_dirs]}
    busy = f"{output}: another mlgo-corpus is making it"
    with writing(output, kept=True), work_folder(settings.work, key, busy):
        over = Over(
            RebuildJob(settings),
            partial(_items, corpus, names),
            len(names),
            jobs=jobs,
            engine=engine,
            needs=(*corpus.on_this_machine(), *settings.build_dirs),
        )

        def rows() -> Iterator[RebuildRow]:
            for row in over.outcomes():
                report.see(row)
                if progress is not None:
                    progress(report.modules, report.bad, len(names))
                yield row

        metadata = {**about, "kind": CERTIFICATE_KIND, "outcomes": report.outcomes}
        write_certificate(output, rows(), metadata)
        report.resumed = over.resumed
        with suppress(OSError):
            remove(settings.work)
    report.seconds = time.perf_counter() - started
    return report


def _items(corpus: Corpus, names: Sequence[str]) -> Iterator[RebuildItem]:
    lookup = ModuleLookup(corpus)
    for number, (name, module) in enumerate(zip(names, corpus.modules(names), strict=True)):
        row = lookup.find(name)
        if row is None:  # upstream's tools name a module after its object
            yield RebuildItem(number, module, name, None, None)
        else:
            yield RebuildItem(number, module, row.source, row.member, row.bitcode_sha256)
