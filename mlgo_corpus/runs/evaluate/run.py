"""One evaluation: each policy's trace, the products of its objects, what it was trained on, and the tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.functions import FunctionColumns
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK
from mlgo_corpus.corpus.products import LinkRecord, known_links, modules_of, parts_of, product_links
from mlgo_corpus.dataset.folder import DatasetPaths
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.tracetable import TraceRow, iter_trace_rows
from mlgo_corpus.engine.choice import EngineChoice, available_cpus
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files.text import counted, printable
from mlgo_corpus.policies.learned import find_policy, load_policy
from mlgo_corpus.policies.policy import policy_name, policy_text
from mlgo_corpus.policies.seen import TRAINED_SHARE, Seen
from mlgo_corpus.runs.evaluate.table import EvaluationRow, LinkedRow
from mlgo_corpus.runs.functions.run import read_corpus_functions
from mlgo_corpus.runs.links.corpus import run_relink
from mlgo_corpus.runs.links.table import ProductRow
from mlgo_corpus.runs.trace.corpus import TraceRequest, run_trace
from mlgo_corpus.runs.trace.run import NothingTracedError

_LINKS: Final[Mapping[str, tuple[str, ...]]] = {
    "linked": (),
    "folded": ("-fuse-ld=lld", "-Wl,--gc-sections,--icf=all"),
}
_LINK_TIMEOUT_S: Final = 600.0
_PLAIN: Final = "plain"
"""The folder of what stands for the build's own objects where these are not to be had, or compiled otherwise."""


@dataclass(frozen=True, slots=True)
class _Contender:
    """A policy to evaluate.

    Attributes:
        label: its name in tables.
        request: how to trace with it.
        seen: what it was trained on, if it says so.
    """

    label: str
    request: TraceRequest
    seen: Seen | None

    @property
    def folder(self) -> str:
        """The name of its folder of work."""
        return sha256(self.request.policy.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def contenders(policies: Sequence[Path | str], request: TraceRequest) -> tuple[_Contender, ...]:
    """Return the policies to evaluate, each once.

    Args:
        policies: their names, as a trace takes them.
        request: what else a trace is asked for.

    Raises:
        UsageError: one cannot be made, or there is none.
    """
    if not policies:
        raise UsageError("expected at least one policy", option="policies")
    checked = (replace(request, policy=policy_text(policy)).check() for policy in policies)
    requests = list({one.policy: one for one in checked}.values())
    short = [policy_name(one.policy) for one in requests]
    labels = [name if short.count(name) == 1 else one.policy for name, one in zip(short, requests, strict=True)]
    return tuple(_Contender(label, one, _seen_by(one.policy)) for label, one in zip(labels, requests, strict=True))


def _seen_by(policy: str) -> Seen | None:
    if (home := find_policy(policy)) is None:
        return None
    try:
        return Seen.of_training(load_policy(home).training)
    except FormatError as error:
        raise UsageError(str(error), option="policy", value=policy) from None


class Evaluation:
    """One evaluation under way.

    Args:
        corpus: what to compile.
        chosen: the names of the modules.
        source: the corpus as the user named it.
        work: the folder for traces and products.
        compiler: the clang's command, the same for all policies; None for the best one found.
        link: whether to link products, if the corpus has records of them.
        jobs, cache, engine: as of `mlgo_corpus.trace_corpus`.
        progress: called with (compiles done, of them failed, compiles in all, the policy's name).
    """

    def __init__(
        self,
        corpus: Corpus,
        chosen: Sequence[str],
        source: Path | str,
        work: Path,
        *,
        compiler: str | None,
        link: bool,
        jobs: int | None,
        cache: Path,
        engine: EngineChoice,
        progress: Callable[[int, int, int, str], None] | None,
    ) -> None:
        self.rows: list[EvaluationRow] = []
        self.linked: list[LinkedRow] = []
        self.hints: dict[str, None] = {}
        self._said: dict[str, Sequence[str]] = {}
        self._plain: dict[str, dict[str, int | None]] = {}
        self._corpus = corpus
        self._chosen = chosen
        self._source = source
        self._work = work
        self._compiler = compiler
        self._jobs = jobs
        self._cache = cache
        self._engine = engine
        self._progress = progress
        self._functions: FunctionColumns | None = None
        self._records: tuple[LinkRecord, ...] = ()
        if link:
            self._records = known_links(corpus) or ()

    def run(self, policies: Sequence[_Contender]) -> None:
        """Measure all policies; rows are of the last call.

        One that fails in all modules has them as failures, if another one can be measured.

        Raises:
            UsageError, MlgoCorpusError: one cannot be measured.
            OSError: the work folder cannot be written.
        """
        self.rows, self.linked, self._said = [], [], {}
        failed: list[tuple[str, NothingTracedError]] = []
        for number, policy in enumerate(policies):
            try:
                self._measure(policy, number, len(policies))
            except NothingTracedError as error:
                failed.append((policy.label, error))
                if not error.of_policy or len(failed) == len(policies):
                    label, first = failed[0]
                    if len(policies) > 1:
                        first.args = (f"{label}: {first}",)
                    raise first from None
                self.rows += [_failed_row(policy.label, printable(name), str(error)) for name in self._chosen]
        for hint in dict.fromkeys(hint for hints in self._said.values() for hint in hints):
            labels = [label for label, hints in self._said.items() if hint in hints]
            whose = [""] if len(labels) == len(policies) else [f"{label}: " for label in labels]
            self.hints |= dict.fromkeys(f"{one}{hint}" for one in whose)

    def _measure(self, policy: _Contender, number: int, count: int) -> None:
        folder = self._work / policy.folder
        total = len(self._chosen)

        def progress(done: int, failed: int, _decisions: int, _total: int) -> None:
            if self._progress is not None:
                self._progress(number * total + done, failed, count * total, policy.label)

        report = run_trace(
            self._source,
            folder / "dataset",
            replace(policy.request, compiler=self._compiler, keep_objects=folder / "objects"),
            jobs=self._jobs,
            cache=self._cache,
            engine=self._engine,
            progress=progress,
        )
        self._said[policy.label] = report.hints
        shares = self._shares(policy.seen)
        traced = iter_trace_rows(DatasetPaths.of(folder / "dataset").modules)
        own = [_row_of(policy.label, row, shares(row)) for row in traced]
        self.rows += own
        if not product_links(self._records) or not report.traced:
            return
        built_by = dict.fromkeys(one.compiler for one in product_links(self._records))
        edits = policy.request.edits
        otherwise = [*built_by] != [report.compiler] or bool(edits.add or edits.delete or edits.replace)
        for link, flags in _LINKS.items():
            rows = self._products(folder, link, flags, trusted=edits.trusted)
            if any(row.text_size is not None and (otherwise or row.original_text_size is None) for row in rows):
                if link not in self._plain:  # the same for all policies
                    self._plain[link] = self._plain_products(policy.request, link, flags)
                rows = [
                    self._against(row, self._plain[link]) if otherwise or not row.original_text_size else row
                    for row in rows
                ]
            linked = list(self._linked_rows(own, link, rows))
            self.linked += linked
        if partial := sum(bool(row.missing) for row in linked):  # the same for all links
            said = (
                f"{partial} of {counted(len(linked), 'product')} not compared, as objects in them are the build's own: "
                "their modules were not chosen, not compiled, are not in this corpus, or were joined unseen"
            )
            self._said[policy.label] = (*report.hints, said)

    def _products(self, folder: Path, link: str, flags: Sequence[str], *, trusted: bool) -> list[ProductRow]:
        """Link the products of the objects in a folder."""
        products = run_relink(
            self._source,
            folder / link,
            objects=folder / "objects",
            ld_flags=flags,
            compiler=None,
            trust_corpus=trusted,
            limits=Limits(_LINK_TIMEOUT_S),
            jobs=self._jobs,
            force=True,
            progress=None,
        )
        shutil.rmtree(folder / link, ignore_errors=True)
        return [ProductRow(**row) for row in products.rows]

    def _plain_products(self, request: TraceRequest, link: str, flags: Sequence[str]) -> dict[str, int | None]:
        """Return the text of the products of plain compiles' objects.

        The build's own are compiled otherwise, or gone, or were never there: a driver that compiles and links in one
        step removes them.
        """
        folder = self._work / _PLAIN
        request = replace(request, policy="default", compiler=self._compiler, keep_objects=folder / "objects")
        how: dict[str, Any] = {"jobs": self._jobs, "cache": self._cache, "engine": self._engine}
        run_trace(self._source, folder / "dataset", request, **how)
        return {
            row.product: row.text_size for row in self._products(folder, link, flags, trusted=request.edits.trusted)
        }

    @staticmethod
    def _against(row: ProductRow, plain: Mapping[str, int | None]) -> ProductRow:
        """Return a product's row with the size of the plainly compiled product, and no word of the missing one."""
        size = plain.get(row.product)
        return row if size is None or row.text_size is None else row._replace(original_text_size=size, detail="")

    def _shares(self, seen: Seen | None) -> Callable[[TraceRow], float]:
        """Return a function that tells how much of a row's module a policy was trained on."""
        if seen is None:
            return lambda _: 0.0
        if self._functions is None:
            self._functions, _ = read_corpus_functions(self._corpus, self._chosen, jobs=self._jobs or available_cpus())
        functions = self._functions.by_module(len(self._chosen))
        place = {printable(name): number for number, name in enumerate(self._chosen)}

        def share(row: TraceRow) -> float:
            own = functions[place[row.module]]
            return seen.share(own.hashes, own.instructions, row.bitcode_sha256)

        return share

    def _linked_rows(self, own: Sequence[EvaluationRow], link: str, rows: Sequence[ProductRow]) -> Iterator[LinkedRow]:
        """Yield the rows of products; ``own`` are those of the same policy's modules."""
        parts = parts_of(self._records)
        trained = {row.module for row in own if row.trained}
        measured = {row.module for row in own if row.status == STATUS_OK}
        # Whoever decides: products have the build's objects of these, as before.
        impossible = {row.module for row in own if row.status != STATUS_OK and row.baseline_text_size is None}
        for row, record in zip(rows, product_links(self._records), strict=True):
            modules = [printable(name) for name in modules_of(record, parts, taken=True)]
            seen = sum(name in trained for name in modules)
            accounted = measured | impossible if measured.intersection(modules) else measured
            accounted = accounted.difference(measured.intersection(map(printable, row.missing_modules)))
            yield LinkedRow(
                policy=own[0].policy,
                link=link,
                product=row.product,
                kind=row.kind,
                status=row.status,
                reason=row.reason,
                detail=row.detail,
                modules=len(modules),
                trained_modules=seen,
                trained=seen > 0 and seen >= TRAINED_SHARE * len(modules),
                text_size=row.text_size,
                baseline_text_size=row.original_text_size,
                missing=record.absent + sum(name not in accounted for name in modules),
            )


def _failed_row(policy: str, module: str, detail: str) -> EvaluationRow:
    nothing = dict.fromkeys(EvaluationRow._fields)
    return EvaluationRow._make(nothing.values())._replace(
        policy=policy, module=module, status=STATUS_FAILED, reason=RunReason.POLICY_ERROR, detail=detail,
        trained_share=0.0, trained=False, observations=0,
    )  # fmt: skip


def _row_of(policy: str, row: TraceRow, share: float) -> EvaluationRow:
    return EvaluationRow(
        policy=policy,
        trained_share=share,
        trained=share >= TRAINED_SHARE,
        **{name: getattr(row, name) for name in EvaluationRow._fields if name in TraceRow._fields},
    )
