"""The section of a page on an evaluation: what policies make of a corpus, against LLVM's own decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.folder import read_note
from mlgo_corpus.runs.evaluate.sums import PolicySizes, SizeChange, compared, key_of, relative_change, sum_up
from mlgo_corpus.runs.evaluate.table import (
    EVALUATION_NAME,
    LINKED_NAME,
    NOTE_NAME,
    EvaluationRow,
    iter_evaluation_rows,
    iter_linked_rows,
)
from mlgo_corpus.view import figures, words
from mlgo_corpus.view.blocks import Block, CallOut, Facts, Figure, Heading, Headline, Section, Table

_DRAWN: Final = 8
_WORST: Final = 15
# The ends of the ranges of changes, in percent.
_EDGES: Final = (-20, -10, -5, -2, 0, 2, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class EvaluationFacts:
    """An evaluation's tables.

    Attributes:
        shown: its folder.
        rows: for each policy and module.
        policies: what each policy makes of the corpus.
        about: how it was made; may be empty.
    """

    shown: str
    rows: tuple[EvaluationRow, ...]
    policies: tuple[PolicySizes, ...]
    about: dict[str, Any]


def read_evaluation_facts(folder: Path) -> EvaluationFacts:
    """Read an evaluation.

    Raises:
        CorpusError: a table is missing or damaged.
    """
    note = read_note(folder / NOTE_NAME)
    key = note.get("key") if isinstance(note, dict) else None
    about = key if isinstance(key, dict) else {}
    rows = tuple(iter_evaluation_rows(folder / EVALUATION_NAME))
    linked = tuple(iter_linked_rows(folder / LINKED_NAME))
    if not rows:
        raise CorpusError(f"{folder / EVALUATION_NAME}: has no rows")
    seed = about.get("seed")
    return EvaluationFacts(str(folder), rows, sum_up(rows, linked, seed if isinstance(seed, int) else 0), about)


def evaluation_section(facts: EvaluationFacts, name: str, label: str) -> Section:
    """Return the section of an evaluation; ``name`` is its anchor, ``label`` its name on the page."""
    policies = facts.policies
    count = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    return Section(
        name=name,
        label=label,
        title=f"{label}: {words.counted(policies[0].modules, 'module')} by {count}",
        lead="Text against that by LLVM's own decisions, in bytes. Modules that a policy was trained on are not in the "
        "sums of objects and products.",
        headlines=tuple(_headlines(policies)),
        call_outs=tuple(_call_outs(policies)),
        blocks=(_sums(policies), *_changes(facts, name), *_worst(policies, name)),
        provenance=(_provenance(facts, label),),
        data={"policies": [one.as_json() for one in policies]},
    )


def _headlines(policies: Sequence[PolicySizes]) -> Iterator[Headline]:
    for one in policies[:_DRAWN]:
        yield Headline(words.shown(one.policy, 40), _change(one.objects), _interval(one.objects))


def _call_outs(policies: Sequence[PolicySizes]) -> Iterator[CallOut]:
    for one in policies:
        policy = words.shown(one.policy, 60)
        if one.failed:
            yield CallOut(
                f"{policy}: {words.counted(one.failed, 'module')} could not be measured.",
                "They are in no sum, of any policy." if one.failed < one.modules else "It has no sum.",
                grave=True,
            )
        if partial := max((link.partial for link in one.products), default=0):
            yield CallOut(
                f"{policy}: {words.counted(partial, 'product')} with objects of the build's own.",
                "Their modules were not chosen, not compiled, are not in the corpus, or were joined unseen. "
                "They are in no sum.",
            )
        if (more := one.objects.change or 0.0) > 0:
            yield CallOut(
                f"{policy} makes the objects larger, by {words.percent(more)}.",
                "Do not use it for code like this.",
                grave=True,
            )
        if (larger := one.larger_product) is not None:
            yield CallOut(
                f"{policy} does not make the objects larger, but what is {larger.link} of them, by "
                f"{words.percent(larger.sizes.change or 0.0)}.",
                "What many objects hold is inlined in each of them. A search of this project weighs that.",
                grave=True,
            )
        if one.trained is not None:
            yield CallOut(
                f"{policy} was trained on {words.counted(one.trained.modules, 'module')} of these.",
                "They are in no sum of objects or products but its own."
                if one.objects.modules
                else "That is all of them, which says nothing of others: evaluate a project that it has not seen.",
            )
    if not any(one.objects.modules for one in policies):
        yield CallOut("No module is left to compare.", "Evaluate on a corpus that no policy has seen.", grave=True)


def _sums(policies: Sequence[PolicySizes]) -> Table:
    rows = []
    for one in policies:
        parts = [("objects", one.objects, words.count(one.grew))]
        parts += [(link.link, link.sizes, "") for link in one.products]
        if one.trained is not None:
            parts.append(("trained on", one.trained, ""))
        parts += [(f"{link.link}, trained on", link.trained, "") for link in one.products if link.trained is not None]
        for what, sizes, grew in parts:
            cells = (words.count(sizes.modules), words.count(sizes.size), words.count(sizes.baseline))
            changes = _change(sizes), _interval(sizes), grew
            rows.append((words.shown(one.policy, 80), what, *cells, *changes))
    return Table(
        "Text by policy",
        ("policy", "of", "number", "bytes", "by LLVM", "change", "95 % confidence", "grew"),
        tuple(rows),
        left=2,
    )


def _change(sizes: SizeChange) -> str:
    return "–" if sizes.change is None else words.change(sizes.change)


def _interval(sizes: SizeChange) -> str:
    if sizes.interval is None:
        return ""
    low, high = sizes.interval
    return f"{words.change(low)} to {words.change(high)}"


def _changes(facts: EvaluationFacts, name: str) -> Iterator[Block]:
    """Draw how many modules change by how much."""
    yield Heading(f"{name}-changes", "How modules change")
    modules = compared(facts.rows)
    shown = [row for row in facts.rows if key_of(row) in modules and not row.trained]
    labels = [f"below {_EDGES[0]} %"]
    labels += [f"{low} to {high} %" for low, high in pairwise(_EDGES)]
    labels = [text.replace("-", "−") for text in (*labels, f"above {_EDGES[-1]} %")]
    labels.insert(_EDGES.index(0) + 1, "unchanged")
    for number, one in enumerate(facts.policies[:_DRAWN], 1):
        changes = np.array(
            [
                100 * relative_change(row.text_size, row.baseline_text_size)
                for row in shown
                if row.policy == one.policy and row.text_size is not None and row.baseline_text_size is not None
            ]
        )
        if not len(changes):
            continue
        counts = _counts(changes)
        policy = words.shown(one.policy, 60)
        alt = f"Modules by change of text with {policy}: " + ", ".join(
            f"{text}: {count}" for text, count in zip(labels, counts, strict=True) if count
        )
        bars = [(text, words.counted(count, "module"), count) for text, count in zip(labels, counts, strict=True)]
        yield Figure(
            f"{name}-changes-{number}",
            f"Change of a module's text: {policy}",
            f"The median is {words.change(one.median or 0)}; {words.counted(one.grew, 'module')} grew.",
            alt,
            figures.histogram(bars, alt, x="change", y="modules"),
            Table(
                f"Modules by change: {policy}",
                ("change", "modules"),
                tuple((text, words.count(count)) for text, count in zip(labels, counts, strict=True)),
            ),
            half=True,
        )


def _counts(changes: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    """Return how many changes are in each range; those that are 0 are in one of their own."""
    zero = _EDGES.index(0)
    moved = changes[changes != 0]
    # A change that is an edge belongs to the range that is nearer to 0.
    places = np.where(moved > 0, np.searchsorted(_EDGES, moved, "left"), np.searchsorted(_EDGES, moved, "right"))
    found: list[int] = np.bincount(places, minlength=len(_EDGES) + 1).tolist()
    return [*found[: zero + 1], int((changes == 0).sum()), *found[zero + 1 :]]


def _worst(policies: Sequence[PolicySizes], name: str) -> Iterator[Block]:
    rows = [(one.policy, *worst) for one in policies for worst in one.worst[:_WORST]]
    if not rows:
        return
    yield Heading(f"{name}-worst", "Modules that grew")
    yield Table(
        "Modules that grew most",
        ("policy", "module", "bytes", "by LLVM", "change"),
        tuple(
            (
                words.shown(policy, 80),
                words.shown(module),
                words.count(size),
                words.count(before),
                words.change(relative_change(size, before)),
            )
            for policy, module, size, before in rows
        ),
        left=2,
    )


def _provenance(facts: EvaluationFacts, label: str) -> Facts:
    compiler = facts.about.get("compiler")
    items = [("folder", facts.shown)]
    items += [("mlgo-corpus", str(facts.about["version"]))] if "version" in facts.about else []
    if isinstance(compiler, dict):
        items.append(("compiler", str(compiler.get("version"))))
    return Facts(label, tuple((key, words.shown(value)) for key, value in items))
