"""The section of a page that describes a dataset of decisions."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from mlgo_corpus.formats.logs.meanings import describe
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY
from mlgo_corpus.view import figures, words
from mlgo_corpus.view.aggregate import Distribution
from mlgo_corpus.view.blocks import Block, CallOut, Facts, Features, Figure, Heading, Headline, Section, Table
from mlgo_corpus.view.dataset.facts import MASK, DatasetFacts
from mlgo_corpus.view.dataset.features import call_outs, feature_cards
from mlgo_corpus.view.dataset.outcomes import (
    cost_blocks,
    failure_blocks,
    level_sizes,
    outcome_call_outs,
    size_blocks,
)

_TITLES: Final = {
    INLINING: "inlining decisions",
    EVICTION: "eviction decisions of register allocation",
    PRIORITY: "priorities of register allocation",
}
_MEANINGS = {
    INLINING: "For each call: should LLVM inline the called function? 1 is yes, 0 is no.",
    EVICTION: "Which of up to 32 registers should be freed for a value that needs one? 32 means none.",
    PRIORITY: "In which order should values get their registers? The highest priority comes first.",
}
_BUSIEST = 8
_RELATED = 15
# The most characters of a command on the page: its beginning is enough for reading.
_ARGV_CHARACTERS = 6000


def dataset_section(facts: DatasetFacts, name: str, label: str) -> Section:
    """Return the section of a dataset; ``name`` is its anchor, ``label`` its name on the page."""
    return Section(
        name=name,
        label=label,
        title=f"{label}: {_TITLES.get(facts.task or '', 'decisions')}",
        lead=_lead(facts),
        headlines=tuple(_headlines(facts)),
        call_outs=tuple(_call_outs(facts)),
        blocks=tuple(_blocks(facts, name)),
        provenance=(_provenance(facts, label),),
        data=_data(facts),
    )


def _lead(facts: DatasetFacts) -> str:
    about = facts.about
    how = "Recorded while a compiler ran" if about.get("kind") == "trace" or facts.has_sizes else "From training logs"
    policy = about.get("policy")
    by = f" with the policy {words.shown(policy)}" if policy else ""
    compiler = f", by {words.shown(about['compiler'])}" if about.get("compiler") else ""
    meaning = _MEANINGS.get(facts.task or "", "")
    return f"{how}{by}{compiler}. {meaning}".strip()


def _headlines(facts: DatasetFacts) -> Iterator[Headline]:
    yield Headline("decisions", words.count(facts.observations), f"in {words.counted(len(facts.names), 'module')}")
    for level in level_sizes(facts):
        note = f"{words.size(level.made)} against {words.size(level.base)} by the heuristic, in "
        yield Headline(f"size{level.at}", words.change(level.change), note + words.counted(level.modules, "module"))
    if facts.decision in facts.features:
        found = facts.features[str(facts.decision)]
        value, share = found.most_common()
        yield Headline("most common decision", words.number(value), f"{words.percent(share)} of decisions")
    same, known = facts.agreement
    if known:
        yield Headline("as the heuristic", words.percent(same / known), "of decisions are those of LLVM's heuristic")
    faithful = facts.numbers["faithful"]
    if np.isfinite(faithful).any():
        same_objects, all_objects = int(np.nansum(faithful)), int(np.isfinite(faithful).sum())
        yield Headline(
            "same object",
            f"{words.count(same_objects)} of {words.count(all_objects)}",
            "byte for byte the plain compile's",
        )
    yield Headline("failed", words.count(facts.failed), f"of {words.counted(len(facts.names), 'module')}")


def _call_outs(facts: DatasetFacts) -> Iterator[CallOut]:
    if not facts.observations:
        yield CallOut(
            "This dataset has no decisions.",
            "See the failures below; if there are none, the modules gave the compiler nothing to decide, as those of a "
            "build at -O0 do.",
            grave=True,
        )
        return
    decision = None if facts.decision is None else facts.features.get(facts.decision)
    if decision is not None and decision.is_constant:
        on_purpose = facts.about.get("policy") in ("never", "always", "first")
        yield CallOut(
            f"Every decision is {words.number(decision.min)}.",
            "A model cannot learn from decisions that are all the same: trace with another policy, such as random:0.5 "
            "for exploration.",
            grave=not on_purpose,
        )
    score = None if facts.score is None else facts.features.get(facts.score)
    if score is not None and score.is_constant:
        yield CallOut(
            f"{words.shown(facts.score)}, the score in the logs, is always {words.number(score.min)}.",
            "A model learns nothing from it. Use the reward of modules.parquet, which compares object sizes, or check "
            "whether the compiler had what it needs to compute a score.",
            grave=True,
        )
    yield from outcome_call_outs(facts)
    yield from call_outs({name: found for name, found in facts.features.items() if name not in _roles(facts)})
    if facts.skipped:
        names = ", ".join(words.shown(name, 60) for name in facts.skipped[:5])
        yield CallOut(f"Columns without numbers are not shown: {names}.", "Nothing needs to be done.")


def _roles(facts: DatasetFacts) -> dict[str, str]:
    roles = {facts.decision: "the decision", facts.score: "the score"}
    return {name: role for name, role in roles.items() if name is not None}


def _blocks(facts: DatasetFacts, name: str) -> Iterator[Block]:
    yield Heading(f"{name}-decisions", "Decisions")
    yield from _decision_figures(facts, name)
    yield from _otherwise(facts)
    if facts.decided.any():
        yield Heading(f"{name}-sizes", "Outcomes", "Each module is compiled twice: with these decisions, and "
                      "plainly, with LLVM's own heuristic. The plain compile is the baseline. Only modules in which "
                      "the compiler had something to decide are counted here.")  # fmt: skip
        yield from size_blocks(facts, name)
    costs = tuple(cost_blocks(facts, name))
    if costs:
        yield Heading(f"{name}-costs", "Time and memory")
        yield from costs
    if facts.features:
        yield Heading(f"{name}-features", "Features")
        special = _roles(facts)
        yield from _relations(facts)
        masked = f", except those that {MASK} rules out, which are 0" if facts.masked else ""
        yield Features(
            "What the compiler saw",
            "One small chart per column, smallest values on the left; unusual ones are marked (see above). All "
            f"elements of a tensor are counted together{masked}. Quantiles are exact to 0.4 %.",
            feature_cards(facts.features, lambda column: describe(facts.task, column), facts.widths, special),
        )
    failures = tuple(failure_blocks(facts))
    if failures:
        yield Heading(f"{name}-failures", "Failures")
        yield from failures


def _otherwise(facts: DatasetFacts) -> Iterator[Block]:
    """Name the functions whose calls are decided otherwise than by LLVM's heuristic most often."""
    if facts.otherwise:
        totals: Counter[str] = Counter()
        for (callee, _), count in facts.otherwise.items():
            totals[callee] += count
        ordered = sorted(totals.items(), key=lambda item: (-item[1], str(item[0])))[:_RELATED]
        yield Table(
            "The functions whose calls are decided most often otherwise than by LLVM's heuristic",
            ("callee", "inlined, not by the heuristic", "not inlined, but by the heuristic"),
            tuple(
                (words.shown(callee, 120), *(words.count(facts.otherwise[callee, decision]) for decision in (1, 0)))
                for callee, _ in ordered
            ),
            left=1,
        )


def _relations(facts: DatasetFacts) -> Iterator[Block]:
    """Show which features go with the decision."""
    known = {name: value for name, found in facts.relations.items() if math.isfinite(value := found.value)}
    if known:
        ordered = sorted(known.items(), key=lambda item: (-abs(item[1]), item[0]))[:_RELATED]
        yield Table(
            f"The features that go most with {words.shown(facts.decision)}: Pearson's correlation, of asinh of both",
            ("feature", "meaning", "correlation"),
            tuple(
                (words.shown(name), describe(facts.task, name) or "", f"{value:+.3f}".replace("-", "−"))
                for name, value in ordered
            ),
            left=2,
            shares=tuple(abs(value) for _, value in ordered),
        )


def _decision_figures(facts: DatasetFacts, name: str) -> Iterator[Block]:
    """Draw the balance of decisions, and their distribution over modules."""
    found = None if facts.decision is None else facts.features.get(facts.decision)
    if found is not None and found.finite:
        called = words.shown(facts.decision)
        histogram = found.histogram()
        value, share = found.most_common()
        alt = (
            f"Bar chart of {words.counted(found.count, 'decision')}; {words.number(value)} is the most common, with "
            f"{words.percent(share)}."
        )
        yield Figure(
            f"{name}-actions",
            "Balance of decisions",
            f"The number of decisions for each value of {called}. A model that always predicts the most common value "
            f"is right in {words.percent(share)} of cases: a better model must have a higher accuracy.",
            alt,
            figures.of_histogram(histogram, alt, x=called, y="decisions"),
            histogram_table(f"Decisions by {called}", found, "decisions"),
            half=True,
        )
    counts = facts.numbers["observations"]
    counts = counts[np.isfinite(counts)]
    if len(counts) and counts.max() > 0:
        spread = Distribution()
        spread.add(counts.astype(np.int64))
        top = np.argsort(-counts, kind="stable")[: max(1, len(counts) // 10)]
        share = float(counts[top].sum() / counts.sum())
        middle, most = words.number(spread.quantile(0.5)), words.number(spread.max)
        alt = f"Histogram of decisions per module: median {middle}, most {most}."
        yield Figure(
            f"{name}-per-module",
            "Decisions per module",
            f"The busiest tenth of the modules has {words.percent(share)} of all decisions. If that is nearly all, "
            "sample by module when training, or a model learns from a few modules only.",
            alt,
            figures.of_histogram(spread.histogram(), alt, x="decisions in a module", y="modules"),
            _busiest(facts),
            half=True,
        )


def histogram_table(caption: str, found: Distribution, what: str) -> Table:
    """Return a histogram's numbers as a table."""
    rows = []
    for bar in found.histogram().bars:
        rows.append((figures.span(bar), words.count(bar.count), words.percent(bar.count / max(found.count, 1))))
    return Table(caption, ("value", what, "share"), tuple(rows))


def _busiest(facts: DatasetFacts) -> Table:
    counts = np.nan_to_num(facts.numbers["observations"])
    order = np.argsort(-counts, kind="stable")[:_BUSIEST].tolist()
    total = max(float(counts.sum()), 1.0)
    rows = tuple(
        (words.shown(facts.names[at]), words.count(float(counts[at])), words.percent(float(counts[at]) / total))
        for at in order
    )
    return Table("The busiest modules", ("module", "decisions", "share"), rows)


def _provenance(facts: DatasetFacts, label: str) -> Facts:
    """Return a dataset's provenance."""
    about = facts.about
    keys = (
        ("path", facts.shown),
        ("made by", " ".join(str(about[key]) for key in ("tool", "version") if about.get(key))),
        ("kind", about.get("kind")),
        ("task", facts.task),
        ("policy", about.get("policy")),
        ("seen via", about.get("via")),
        ("seed", about.get("seed")),
        ("compiler", about.get("compiler")),
        ("SHA-256 of the compiler", about.get("compiler_sha256")),
        ("corpus", about.get("corpus")),
        ("SHA-256 of the corpus", about.get("corpus_sha256")),
        ("size measured", about.get("measure")),
        ("epsilon of the reward", about.get("epsilon")),
    )
    items = [(key, words.shown(value, 400)) for key, value in keys if value not in (None, "")]
    for caveat in about.get("caveats") or () if isinstance(about.get("caveats"), list) else ():
        items.append(("caveat", words.shown(caveat, 600)))
    if isinstance(about.get("argv"), list):
        items.append(("command of one module", words.shown(shlex.join(map(str, about["argv"])), _ARGV_CHARACTERS)))
    if facts.header is not None:
        line = facts.header.line.decode("utf-8", "backslashreplace")
        items.append(("header of the logs", words.shown(line, _ARGV_CHARACTERS)))
    return Facts(label, tuple(items))


def _data(facts: DatasetFacts) -> dict[str, Any]:
    """Return the numbers of a dataset as plain values."""
    sizes: dict[str, Any] | None = None
    if facts.has_sizes:
        decided, undecided = facts.decided, facts.sized & ~facts.decided
        sizes = {
            "measure": facts.measure,
            "modules": int(decided.sum()),
            "size": int(facts.numbers[facts.measure][decided].sum()),
            "baseline": int(facts.numbers[f"baseline_{facts.measure}"][decided].sum()),
            "levels": [
                {"opt_level": level.level or None, "modules": level.modules, "size": level.made, "baseline": level.base}
                for level in level_sizes(facts)
            ],
            "undecided": {
                "modules": int(undecided.sum()),
                "size": int(facts.numbers[facts.measure][undecided].sum()),
            },
        }
    reward = facts.numbers["reward"]
    rewards = Distribution()
    rewards.add(reward[np.isfinite(reward)])
    faithful = facts.numbers["faithful"]
    return {
        "task": facts.task,
        "policy": facts.about.get("policy"),
        "compiler": facts.about.get("compiler"),
        "modules": len(facts.names),
        "failed": facts.failed,
        "reasons": [
            {"reason": reason, "status": status, "modules": n} for (reason, status), n in facts.reasons.most_common()
        ],
        "observations": facts.observations,
        "decision": facts.decision,
        "score": facts.score,
        "agreement": {"same": facts.agreement[0], "known": facts.agreement[1]},
        "otherwise": [
            {"callee": callee, "decision": decision, "decisions": count}
            for (callee, decision), count in sorted(
                facts.otherwise.items(), key=lambda item: (-item[1], *map(str, item[0]))
            )[:_RELATED]
        ],
        "sizes": sizes,
        "reward": rewards.as_json() if rewards.count else None,
        "faithful": int(np.nansum(faithful)) if np.isfinite(faithful).any() else None,
        "relations": {
            name: value if math.isfinite(value := found.value) else None for name, found in facts.relations.items()
        },
        "features": {name: found.as_json() for name, found in facts.features.items()},
    }
