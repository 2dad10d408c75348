"""The report stage: make one HTML page about corpora, datasets, tables of functions, policies and evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgo_corpus import __version__
from mlgo_corpus.dataset.folder import DatasetPaths
from mlgo_corpus.errors import CorpusError, FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.files.folder import check_file, finish_moves, whole_files
from mlgo_corpus.files.names import distinct_names
from mlgo_corpus.files.remote import output_here, parse_place
from mlgo_corpus.files.text import os_reason, several
from mlgo_corpus.policies.learned import LearnedPolicy, known_policies, load_policy
from mlgo_corpus.runs.datasets.publish import local_dataset
from mlgo_corpus.runs.report import Report
from mlgo_corpus.view.blocks import Section
from mlgo_corpus.view.comparison import compare
from mlgo_corpus.view.corpus.facts import CorpusFacts, read_corpus_facts
from mlgo_corpus.view.corpus.section import corpus_section
from mlgo_corpus.view.dataset.facts import DatasetFacts, read_dataset_facts
from mlgo_corpus.view.dataset.section import dataset_section
from mlgo_corpus.view.evaluation import EvaluationFacts, evaluation_section, read_evaluation_facts
from mlgo_corpus.view.inputs import Kind, find_kind
from mlgo_corpus.view.page import Page, check_libraries, render
from mlgo_corpus.view.policy import policy_section
from mlgo_corpus.view.sizes.facts import SizesFacts, read_sizes_facts
from mlgo_corpus.view.sizes.section import sizes_section
from mlgo_corpus.view.words import plain, shown

_NAMED = 4
# The generator that the template names in the head of every page.
_MARK = b'content="mlgo-corpus '

_Compared = CorpusFacts | DatasetFacts | SizesFacts
_Known = _Compared | LearnedPolicy | EvaluationFacts


@dataclass(frozen=True, slots=True)
class ReportSummary(Report):
    """The content of a page, and its place.

    Attributes:
        output: the page.
        title: its title.
        call_outs: number of things called out; ``grave`` of them are likely to spoil training.
        page_bytes: the page's size.
        sections: for each input and comparison: ``kind``, ``label``, ``path`` (of an input), ``call_outs`` and
            ``data``, the numbers that the section shows.
        seconds: how long it took.
    """

    output: Path
    title: str
    call_outs: int
    grave: int
    page_bytes: int
    sections: tuple[dict[str, Any], ...]
    seconds: float


def report_page(
    paths: Sequence[Path | str] | Path | str,
    output: Path | str = "report.html",
    *,
    title: str | None = None,
    force: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> ReportSummary:
    """Make one HTML page about corpora, datasets of decisions, tables of functions, policies and evaluations.

    The page needs no other files. Tables are read in one pass and summed up, so that neither memory nor the page grow
    with the number of decisions; a table of functions takes some 30 bytes of memory per row meanwhile. Two corpora,
    datasets or tables of the same kind and task are also compared.

    Args:
        paths: the inputs: folders, packed corpora, single Parquet files, and URLs of these. A dataset or table behind
            a URL is downloaded, and the copy deleted afterwards. Policies that come with the package are known by name.
        output: the page; it appears when it is complete.
        title: the title of the page; by default the names of the inputs.
        force: replace an existing page.
        progress: called with (thousandths done, thousandths in all, the input's label).

    Raises:
        UsageError: a path holds none of these, or a damaged one, or the page may not be written there, or a library is
            missing; nothing was written.
        MlgoCorpusError: the page cannot be written.
    """
    started = time.perf_counter()
    output = output_here(output, "a page", "a file")
    paths = several(paths)
    if not paths:
        raise UsageError("expected at least one corpus, dataset or table to report on")
    untold = output in finish_moves(output)
    instead = f"name the file to write, such as {output / 'report.html'}"
    check_file(output, _files(paths), instead, mark=_MARK, force=force or untold)
    check_libraries()
    paths = [_named(path) for path in paths]
    kinds = [find_kind(path) for path in paths]
    places = [str(parse_place(path)) for path in paths]  # without the query of a URL
    labels = [shown(label, 80) for label in distinct_names(paths)]
    known: list[_Known] = []
    sections: list[Section] = []
    told: list[dict[str, Any]] = []
    with ExitStack() as copies:
        for number, (path, kind, label) in enumerate(zip(paths, kinds, labels, strict=True)):
            known.append(_read(path, kind, copies, _scaled(progress, number, len(paths), label)))
        for number, (place, kind, facts, label) in enumerate(zip(places, kinds, known, labels, strict=True), 1):
            section = _section(facts, f"input-{number}", label)
            sections.append(section)
            told.append({"kind": kind.value, "path": place, **_told(section)})
        for number, (first, second) in enumerate(_pairs(known), 1):
            before, after = known[first], known[second]
            if isinstance(before, LearnedPolicy | EvaluationFacts) or isinstance(
                after, LearnedPolicy | EvaluationFacts
            ):
                raise AssertionError("policies and evaluations are not compared")
            compared = compare(before, after, f"comparison-{number}", (labels[first], labels[second]))
            sections.append(compared)
            told.append({"kind": "comparison", **_told(compared)})
    title = shown(title if title is not None else _title(labels), 200)
    text = render(Page(title, f"mlgo-corpus {__version__}", tuple(sections)))
    try:
        with whole_files(output) as files:
            files.make(output).write_bytes(text)
    except OSError as error:
        raise MlgoCorpusError(f"cannot write {output}: {os_reason(error)}") from error
    called = [one for section in sections for one in section.call_outs]
    return ReportSummary(
        output=output,
        title=title,
        call_outs=len(called),
        grave=sum(one.grave for one in called),
        page_bytes=len(text),
        sections=tuple(told),
        seconds=time.perf_counter() - started,
    )


def _named(path: Path | str) -> Path | str:
    """Return the folder of a policy that comes with the package, if a path is its name; else the path."""
    if isinstance(path, str) and not Path(path).exists() and path in (known := known_policies()):
        return known[path]
    return path


def _files(paths: Sequence[Path | str]) -> Iterator[Path]:
    """Yield the local files and folders that are read."""
    for place in map(parse_place, paths):
        if isinstance(place, Path):
            files = DatasetPaths.of(place)
            yield from (place, files.modules, files.contexts)
            if place.suffix == ".json":  # the manifest of one side of a split: its corpus is the folder
                yield place.parent


def _title(labels: Sequence[str]) -> str:
    rest = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return ", ".join(labels[:_NAMED]) + rest


def _scaled(
    progress: Callable[[int, int, str], None] | None, number: int, inputs: int, label: str
) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(number * 1000 + 1000 * done // max(total, 1), inputs * 1000, label)


def _read(path: Path | str, kind: Kind, copies: ExitStack, progress: Callable[[int, int], None] | None) -> _Known:
    """Read the facts that a page shows about an input; ``copies`` owns the local copy of one behind a URL."""
    try:
        if kind is Kind.CORPUS:
            return read_corpus_facts(path)
        if kind is Kind.POLICY:
            return load_policy(path)
        if kind is Kind.EVALUATION:
            return read_evaluation_facts(Path(path))
        facts: DatasetFacts | SizesFacts
        local = copies.enter_context(local_dataset(path))
        facts = (read_sizes_facts if kind is Kind.SIZES else read_dataset_facts)(local, progress)
        facts.shown = str(parse_place(path))
        return facts
    except (CorpusError, FormatError) as error:  # nothing was written
        raise UsageError(str(error)) from error


def _section(facts: _Known, name: str, label: str) -> Section:
    if isinstance(facts, CorpusFacts):
        return corpus_section(facts, name, label)
    if isinstance(facts, SizesFacts):
        return sizes_section(facts, name, label)
    if isinstance(facts, LearnedPolicy):
        return policy_section(facts, name, label)
    if isinstance(facts, EvaluationFacts):
        return evaluation_section(facts, name, label)
    return dataset_section(facts, name, label)


def _pairs(known: Sequence[_Known]) -> list[tuple[int, int]]:
    """Pair each input with the first one of its kind and task."""
    first: dict[tuple[type[_Known], str | None], int] = {}
    made = []
    for number, facts in enumerate(known):
        if isinstance(facts, LearnedPolicy | EvaluationFacts):
            continue
        before = first.setdefault((type(facts), facts.task if isinstance(facts, DatasetFacts) else None), number)
        if before != number:
            made.append((before, number))
    return made


def _told(section: Section) -> dict[str, Any]:
    called = [{"text": plain(one.text), "advice": plain(one.advice), "grave": one.grave} for one in section.call_outs]
    return {"label": section.label, "call_outs": called, "data": section.data}
