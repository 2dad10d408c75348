"""The section of a page that describes a table of functions and their native sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from mlgo_corpus.dataset.sizes.table import LABEL, Columns, describe_columns
from mlgo_corpus.view import figures, words
from mlgo_corpus.view.blocks import Block, CallOut, Facts, Features, Figure, Heading, Headline, Listing, Section, Table
from mlgo_corpus.view.dataset.features import call_outs, feature_cards, rank
from mlgo_corpus.view.dataset.section import histogram_table
from mlgo_corpus.view.sizes.facts import SizesFacts
from mlgo_corpus.view.sizes.predicted import predicted_blocks, predicted_data

_MEANINGS: Final = {
    "merged": "shares its place with another function",
    "eliminated": "later passes removed it",
    "not_emitted": "its code is in another object",
    "no_symbol": "it may be in the object, but no symbol names it",
}
_SHOWN = 20
_CARDS = 18
_FEW_LABELS = 0.8
_EXPLAINED = 0.95


def sizes_section(facts: SizesFacts, name: str, label: str) -> Section:
    """Return the section of a table; ``name`` is its anchor, ``label`` its name on the page."""
    compiler = f", by {words.shown(facts.about['compiler'])}" if facts.about.get("compiler") else ""
    return Section(
        name=name,
        label=label,
        title=f"{label}: native sizes of {words.counted(facts.rows, 'function')}",
        lead="For models that predict a function's size in bytes: each function after inlining, and its bytes in the "
        f"object{compiler}.",
        headlines=tuple(_headlines(facts)),
        call_outs=tuple(_call_outs(facts)),
        blocks=tuple(_blocks(facts, name)),
        provenance=(_provenance(facts, label),),
        data=_data(facts),
    )


def _headlines(facts: SizesFacts) -> Iterator[Headline]:
    modules = sum(facts.module_reasons.values())
    note = f"of {words.counted(modules, 'module')}" if modules else ""
    yield Headline("functions", words.count(facts.rows), note)
    labelled = facts.rows - facts.unlabelled
    share = labelled / facts.rows if facts.rows else math.nan
    yield Headline("with a size", words.percent(share), words.counted(labelled, "function"))
    if facts.label.count:
        yield Headline(
            "median size",
            words.size(facts.label.quantile(0.5)),
            f"from {words.size(facts.label.min)} to {words.size(facts.label.max)}",
        )
    if facts.code_size:
        yield Headline(
            "code explained",
            words.percent(facts.explained_size / facts.code_size),
            f"of {words.size(facts.code_size)} of machine code",
        )
    if facts.leaking is not None:
        seen, held = facts.leaking
        yield Headline(
            "leakage", words.percent(seen / held if held else 0.0), f"of {words.counted(held, 'held-out row')}"
        )
    if facts.faithful[1]:
        yield Headline(
            "same object",
            f"{words.count(facts.faithful[0])} of {words.count(facts.faithful[1])}",
            "byte for byte the plain compile's",
        )


def _call_outs(facts: SizesFacts) -> Iterator[CallOut]:
    if not facts.rows:
        yield CallOut("This table has no functions.", "See the modules' reasons below.", grave=True)
        return
    labelled = facts.rows - facts.unlabelled
    if labelled < _FEW_LABELS * facts.rows:
        yield CallOut(
            f"Only {words.percent(labelled / facts.rows)} of the functions have a size.",
            "The table of statuses says why; a model cannot be trained on rows without a size.",
            grave=True,
        )
    if facts.leaking is not None and facts.leaking[0]:
        by_module = facts.about.get("split_by") == "module"
        advice = "leave them out by body_digest" if by_module else "split the rows by body_digest"
        why = " The corpus's split lets modules share small bodies." if by_module else ""
        yield CallOut(
            f"{words.counted(facts.leaking[0], 'row')} held out from training: the same body is in training.",
            f"Errors on them look smaller than they are: {advice}.{why}",
            grave=not by_module,
        )
    if facts.code_size and facts.explained_size < _EXPLAINED * facts.code_size:
        yield CallOut(
            f"{words.percent(1 - facts.explained_size / facts.code_size)} of the machine code is in no function of "
            "the table.",
            "Assembly, thunks and padding are not functions of the IR; a large share means that symbols are missing.",
        )
    if facts.faithful[1] > facts.faithful[0]:
        different = facts.faithful[1] - facts.faithful[0]
        yield CallOut(
            f"{words.counted(different, 'object')} {words.be(different)} different from the plain compile's.",
            "Taking the features changed what the compiler did there: do not trust these modules' sizes.",
            grave=True,
        )
    failed = sum(count for (_, status), count in facts.module_reasons.items() if status != "ok")
    if failed:
        yield CallOut(f"{words.counted(failed, 'module')} failed.", "Their functions are not in the table; see below.")
    odd = call_outs(facts.features)
    yield from odd


def _blocks(facts: SizesFacts, name: str) -> Iterator[Block]:
    if facts.label.count:
        yield Heading(f"{name}-label", "The label")
        found = facts.label
        alt = (
            f"Histogram of the native size of {words.counted(found.count, 'function')}: median "
            f"{words.size(found.quantile(0.5))}, 95 % below {words.size(found.quantile(0.95))}, largest "
            f"{words.size(found.max)}."
        )
        yield Figure(
            f"{name}-label-chart",
            "Native size",
            f"Bytes of machine code per function. Half have less than {words.size(found.quantile(0.5))}, the largest "
            f"has {words.size(found.max)}: train on the logarithm, or the largest few dominate the loss.",
            alt,
            figures.of_histogram(found.histogram(), alt, x="bytes of a function", y="functions"),
            _largest(facts),
        )
    yield from predicted_blocks(facts, name)
    yield Heading(f"{name}-status", "Which functions have a size")
    total = max(facts.rows, 1)
    ordered = facts.statuses.most_common()
    yield Table(
        "Functions by status",
        ("status", "what it means", "functions", "share"),
        tuple(
            (
                words.shown(status),
                "its bytes are known" if status == "ok" else _MEANINGS.get(status, ""),
                words.count(count),
                words.percent(count / total),
            )
            for status, count in ordered
        ),
        left=2,
        shares=tuple(count / total for _, count in ordered),
    )
    if facts.splits:
        yield Heading(f"{name}-split", "Split")
        sides = facts.splits.most_common()
        yield Table(
            "Functions by side",
            ("side", "functions", "share"),
            tuple((words.shown(side), words.count(count), words.percent(count / total)) for side, count in sides),
            shares=tuple(count / total for _, count in sides),
        )
        if facts.leaking is not None and facts.expected is not None:
            seen, held = facts.leaking
            yield Table(
                "Leakage: the share of held-out rows whose body is also in training",
                ("split", "share"),
                (
                    ("this one", words.percent(seen / held if held else 0.0)),
                    ("a random one, as expected", words.percent(facts.expected)),
                ),
            )
    known = {column: value for column, value in facts.correlations.items() if math.isfinite(value)}
    if known:
        yield from _correlations(facts, name, known)
    if facts.failed:
        yield Heading(f"{name}-failures", "Failures")
        items = tuple(
            (f"{words.shown(reason)}: {words.shown(module)}", words.shown_lines(detail))
            for module, reason, detail in facts.failed
        )
        yield Listing("Modules that failed", "The first of them; modules.parquet has all.", items)


def _correlations(facts: SizesFacts, name: str, known: dict[str, float]) -> Iterator[Block]:
    yield Heading(f"{name}-features", "Features")
    ordered = sorted(known.items(), key=lambda item: (-abs(item[1]), item[0]))[:_SHOWN]
    meanings = dict(describe_columns(Columns()))
    yield Table(
        "The features that correlate most with size: Pearson’s correlation of log(1 + feature) with log(native_size)",
        ("feature", "meaning", "correlation"),
        tuple(
            (words.shown(column), meanings.get(column, ""), f"{value:+.3f}".replace("-", "−"))
            for column, value in ordered
        ),
        left=2,
        shares=tuple(abs(value) for _, value in ordered),
    )
    chosen = rank({column: facts.features[column] for column in known}, list(known.values()), _CARDS)
    constant = sum(found.is_constant for found in facts.features.values())
    yield Features(
        "Their distributions",
        f"The {words.count(len(chosen))} features that correlate most with size, of "
        f"{words.count(len(facts.features))}; {words.count(constant)} of all are the same number in every row. "
        "Unusual ones are marked.",
        feature_cards(chosen, meanings.get, {}, {}),
    )


def _largest(facts: SizesFacts) -> Table:
    rows = tuple(
        (words.shown(function, 80), words.shown(module), words.count(float(facts.labels[at])))
        for at, (module, function) in facts.names.items()
        if math.isfinite(facts.labels[at])
    )
    return (
        Table("The largest functions", ("function", "module", "bytes"), rows, left=2)
        if rows
        else histogram_table(LABEL, facts.label, "functions")
    )


def _provenance(facts: SizesFacts, label: str) -> Facts:
    about = facts.about
    keys = (
        ("path", facts.shown),
        ("made by", " ".join(str(about[key]) for key in ("tool", "version") if about.get(key))),
        ("compiler", about.get("compiler")),
        ("SHA-256 of the compiler", about.get("compiler_sha256")),
        ("snapshot", about.get("snapshot")),
        ("features", ", ".join(map(str, about["features"])) if isinstance(about.get("features"), list) else None),
        (
            "fractions of the split",
            ", ".join(map(str, about["fractions"])) if isinstance(about.get("fractions"), list) else None,
        ),
        ("split", "that of the corpus, by module" if about.get("split_by") == "module" else None),
        ("seed", about.get("seed")),
        ("corpus", about.get("corpus")),
        ("SHA-256 of the corpus", about.get("corpus_sha256")),
    )
    return Facts(label, tuple((key, words.shown(value, 400)) for key, value in keys if value not in (None, "")))


def _data(facts: SizesFacts) -> dict[str, Any]:
    """Return the numbers of a table as plain values."""
    return {
        "functions": facts.rows,
        "labelled": facts.rows - facts.unlabelled,
        "label": facts.label.as_json(),
        "statuses": dict(facts.statuses.most_common()),
        "predicted": predicted_data(facts),
        "splits": dict(facts.splits.most_common()),
        "leaking": None if facts.leaking is None else {"rows": facts.leaking[0], "held": facts.leaking[1]},
        "expected_leakage": facts.expected,
        "code_size": facts.code_size,
        "explained_size": facts.explained_size,
        "modules": [
            {"reason": reason, "status": status, "modules": n}
            for (reason, status), n in facts.module_reasons.most_common()
        ],
        "correlations": {name: value if math.isfinite(value) else None for name, value in facts.correlations.items()},
        "features": {name: found.as_json() for name, found in facts.features.items()},
    }
