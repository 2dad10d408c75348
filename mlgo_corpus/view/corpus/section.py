"""The section of a page that describes a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from mlgo_corpus.corpus.groups import REMEDY, UNOPTIMISED
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.view import figures, words
from mlgo_corpus.view.blocks import Block, CallOut, Facts, Figure, Heading, Headline, Section, Table, Tile, TreeMap
from mlgo_corpus.view.corpus.facts import GROUPED, CorpusFacts, Group
from mlgo_corpus.view.treemap import squarify

_LABELS = {"opt-level": "optimisation level", "language": "language", "triple": "target", "producer": "made by"}
_LARGEST_FOLDERS: Final = 20
_TILES: Final = 150
_ROWS = 10
_HUES = 6
# A treemap is twice as wide as it is high.
_ASPECT = 2.0
_UNBALANCED = 0.5
_MANY_AGAIN = 0.05
_MANY_UNOPTIMISED = 0.5


def corpus_section(facts: CorpusFacts, name: str, label: str) -> Section:
    """Return the section of a corpus; ``name`` is its anchor, ``label`` its name on the page."""
    return Section(
        name=name,
        label=label,
        title=f"{label}: a corpus of {words.counted(len(facts.names), 'module')}",
        lead="Modules of real builds: the bitcode that the compiler's front end made from each source file, and the "
        "exact command that compiles it further. Decisions are traced, and sizes measured, by running these commands.",
        headlines=tuple(_headlines(facts)),
        call_outs=tuple(_call_outs(facts)),
        blocks=tuple(_blocks(facts, name)),
        provenance=(_provenance(facts, label),),
        data=_data(facts),
    )


def _headlines(facts: CorpusFacts) -> Iterator[Headline]:
    yield Headline("modules", words.count(len(facts.names)), "packed" if facts.packed else "in a folder")
    yield Headline("bitcode", words.size(int(facts.sizes.sum())), f"and {words.size(facts.cmd_bytes)} of commands")
    if facts.functions is not None:
        yield Headline("functions", words.count(facts.functions), "defined in these modules")
    again = facts.again
    size = words.size(int(facts.sizes[again].sum()))
    yield Headline("duplicates", words.count(int(again.sum())), f"same bitcode and command as another; {size}")
    left_out = sum(count for (_, status), count in facts.reasons.items() if status != STATUS_OK)
    yield Headline("left out", words.count(left_out), "objects that did not become modules")
    if facts.certificate is not None:
        outcomes = facts.certificate.outcomes
        without = outcomes["no_object"]
        good = outcomes["identical"] + outcomes["code_identical"]
        note = "compile to the same code again"
        if without:
            note += f"; {words.count(without)} more had no object to compare with"
        yield Headline("rebuild", f"{words.count(good)} of {words.count(sum(outcomes.values()) - without)}", note)


def _call_outs(facts: CorpusFacts) -> Iterator[CallOut]:
    total = len(facts.names)
    if not total:
        yield CallOut("This corpus has no modules.", "See below what was left out, and why.", grave=True)
        return
    unoptimised = facts.groups["opt-level"].get(UNOPTIMISED, Group()).modules
    if unoptimised:
        yield CallOut(
            f"{words.counted(unoptimised, 'module')} of {words.count(total)} {words.be(unoptimised)} compiled at -O0: "
            "the compiler has nothing to decide there.",
            f"They add nothing to learn from: {REMEDY}.",
            grave=unoptimised > _MANY_UNOPTIMISED * total,
        )
    again = int(facts.again.sum())
    if again > _MANY_AGAIN * total:
        yield CallOut(
            f"{words.counted(again, 'module')} ({words.percent(again / total)}) {words.be(again)} the same as an "
            "earlier one.",
            "Duplicates count double in training, and leak into the test set of a random split: mlgo-corpus dedup "
            "removes them.",
        )
    if facts.certificate is not None and facts.certificate.bad:
        outcomes = facts.certificate.outcomes
        bad = outcomes["differs"] + outcomes["fails"]
        yield CallOut(
            f"{words.counted(bad, 'module')} cannot be rebuilt as in the original build.",
            "Traces of such modules differ from what the build did: see the rebuild certificate below.",
            grave=True,
        )
    if facts.certificate is not None and set(facts.certificate.outcomes) == {"no_object"}:
        yield CallOut(
            "The rebuild certificate compared nothing: no module's object was found in the build.",
            "Name the build's folder to mlgo-corpus verify; the objects must be those that were extracted.",
        )
    if facts.leakage is not None and facts.leakage.modules > 0:
        yield CallOut(
            f"{words.percent(facts.leakage.modules)} of the modules held out from training share a function with "
            "training.",
            "Results on them look better than they are: split again with no limit on the size of components, or a "
            "larger one.",
            grave=True,
        )
    for what, sides in facts.far.items():
        found = ", ".join(
            f"{one.side} has {words.percent(one.share)} of the {what}, not {words.percent(one.wanted)}" for one in sides
        )
        yield CallOut(
            f"The split is far from what was asked for: {found}.",
            f"Results on a side with little in it vary by chance: mlgo-corpus split can weigh {what}, and a larger "
            "corpus divides better.",
            grave=True,
        )
        break  # the other counts say the same
    if not facts.splits:
        yield CallOut(
            "The corpus is not split into train, validation and test.",
            "mlgo-corpus split divides it so that no function is on two sides.",
        )
    largest = int(facts.sizes.max(initial=0))
    if total > 1 and largest > _UNBALANCED * int(facts.sizes.sum()):
        yield CallOut(
            f"One module has {words.percent(largest / int(facts.sizes.sum()))} of all bitcode.",
            "Most decisions will come from it: sample by module, or weight modules equally.",
        )


def _blocks(facts: CorpusFacts, name: str) -> Iterator[Block]:
    if len(facts.names):
        yield Heading(f"{name}-modules", "Modules")
        yield _treemap(facts)
        found = facts.distribution
        median, high = (int(one) for one in np.quantile(facts.sizes, (0.5, 0.95), method="inverted_cdf"))
        alt = (
            f"Histogram of {words.counted(found.count, 'module')} by size: from {words.size(found.min)} to "
            f"{words.size(found.max)}, median {words.size(median)}."
        )
        yield Figure(
            f"{name}-sizes",
            "Sizes of modules",
            f"Bytes of bitcode. Half of the modules have {words.size(median)} or less, 5 % {words.size(high)} or more.",
            alt,
            figures.of_histogram(found.histogram(), alt, x="bitcode of a module", y="modules", write=words.size),
            _largest(facts),
        )
    left_out = [(key, count) for key, count in facts.reasons.most_common() if key[1] != STATUS_OK]
    if left_out:
        yield Heading(f"{name}-left-out", "What was left out")
        rows = sum(facts.reasons.values())
        yield Table(
            "Objects of the build that are not in the corpus, by reason",
            ("reason", "status", "objects", "bitcode"),
            tuple(
                (words.shown(reason), words.shown(status), words.count(count), words.size(facts.left_out[reason]))
                for (reason, status), count in left_out
            ),
            left=2,
            shares=tuple(count / rows for _, count in left_out),
        )
    if len(facts.names):
        yield Heading(f"{name}-kinds", "Kinds of modules", "A model learns what its corpus has: for another target or "
                      "optimisation level it needs modules of that kind.")  # fmt: skip
        for by in GROUPED:
            yield _group_table(_LABELS[by], facts.groups[by], int(facts.sizes.sum()))
    if facts.splits:
        yield Heading(f"{name}-split", "Split")
        yield _group_table("side", facts.splits, int(facts.sizes.sum()), order=("train", "validation", "test"))
        if facts.leakage is not None:
            yield Table(
                "Leakage: the share of held-out modules and functions that training has seen",
                ("of", "share"),
                (
                    ("modules that share a function's body", words.percent(facts.leakage.modules)),
                    ("functions whose body is in training", words.percent(facts.leakage.functions)),
                ),
            )
    if facts.certificate is not None:
        yield Heading(f"{name}-rebuild", "Rebuild certificate", "Each module was compiled again with its command, and "
                      "the object compared with the build's. Identical means that nothing is missing.")  # fmt: skip
        yield from _certificate(facts)


def _certificate(facts: CorpusFacts) -> Iterator[Block]:
    found = facts.certificate
    if found is None:
        return
    total = max(sum(found.outcomes.values()), 1)
    ordered = found.outcomes.most_common()
    yield Table(
        "Modules by outcome",
        ("outcome", "modules", "share"),
        tuple((words.shown(outcome), words.count(count), words.percent(count / total)) for outcome, count in ordered),
        shares=tuple(count / total for _, count in ordered),
    )
    if found.bad:
        rows = tuple((words.shown(module), outcome, words.shown(detail, 200)) for module, outcome, detail in found.bad)
        yield Table("The first modules that are different", ("module", "outcome", "why"), rows, left=3)


def _group_table(by: str, groups: dict[str, Group], total: int, order: tuple[str, ...] = ()) -> Table:
    ranked = sorted(groups.items(), key=lambda item: (-item[1].modules, item[0]))
    if order:
        ranked.sort(key=lambda item: order.index(item[0]) if item[0] in order else len(order))
    shown, rest = ranked[:_ROWS], ranked[_ROWS:]
    rows = [(words.shown(label), group) for label, group in shown]
    if rest:
        others = Group(sum(group.modules for _, group in rest), sum(group.size for _, group in rest))
        rows.append((f"{words.count(len(rest))} others", others))
    modules = max(sum(group.modules for group in groups.values()), 1)
    return Table(
        f"By {by}" if by != "made by" else "By the compiler that made the bitcode",
        (by, "bitcode", "of all", "modules", "of all"),
        tuple(
            (
                label,
                words.size(group.size),
                words.percent(group.size / max(total, 1)),
                words.count(group.modules),
                words.percent(group.modules / modules),
            )
            for label, group in rows
        ),
        shares=tuple(group.modules / modules for _, group in rows),
    )


def _largest(facts: CorpusFacts) -> Table:
    order = np.argsort(-facts.sizes, kind="stable")[:_ROWS].tolist()
    total = max(int(facts.sizes.sum()), 1)
    rows = tuple(
        (words.shown(facts.names[at]), words.size(int(facts.sizes[at])), words.percent(int(facts.sizes[at]) / total))
        for at in order
    )
    return Table("The largest modules", ("module", "bitcode", "share"), rows)


def _treemap(facts: CorpusFacts) -> TreeMap:
    """Draw the largest folders, and in them the largest modules; the others are one rectangle each time."""
    ranked = sorted(facts.folders.items(), key=lambda item: (-item[1].size, item[0]))
    shown = [(label, group) for label, group in ranked[:_LARGEST_FOLDERS] if group.size]
    rest = ranked[_LARGEST_FOLDERS:]
    total = max(int(facts.sizes.sum()), 1)
    members: dict[str, list[int]] = {label: [] for label, _ in shown}
    for at in np.argsort(-facts.sizes, kind="stable")[:_TILES].tolist():
        folder = _folder_of(facts.names[at])
        if folder in members:
            members[folder].append(at)
    parts = [(label, group, members[label]) for label, group in shown]
    if others := sum(group.size for _, group in rest):
        parts.append(
            (f"{words.count(len(rest))} other folders", Group(sum(group.modules for _, group in rest), others), [])
        )
        parts.sort(key=lambda part: -part[1].size)
    places = squarify([float(group.size) for _, group, _ in parts], 100.0 * _ASPECT, 100.0)
    tiles = []
    for number, ((label, group, inside), place) in enumerate(zip(parts, places, strict=True)):
        share = f"{words.size(group.size)} ({words.percent(group.size / total)})"
        tip = f"{words.shown(label)}: {words.counted(group.modules, 'module')}, {share}"
        inner = _inner_tiles(facts, group, inside, place.width, place.height)
        tiles.append(
            Tile(words.shown(label, 60), tip, place.x / _ASPECT, place.y, place.width / _ASPECT, place.height,
                 number % _HUES, inner)
        )  # fmt: skip
    rows = tuple(
        (words.shown(label), words.count(group.modules), words.size(group.size), words.percent(group.size / total))
        for label, group, _ in parts
    )
    return TreeMap(
        "Where the bitcode is",
        "Areas are bytes of bitcode: folders, and the largest modules in them. If a few rectangles fill the picture, a "
        "model learns mostly from those.",
        f"Treemap of {words.counted(len(facts.names), 'module')} in {words.counted(len(facts.folders), 'folder')}; "
        f"the largest folder is {words.shown(parts[0][0])} with {words.percent(parts[0][1].size / total)} of it."
        if parts
        else "Treemap without any bytes.",
        tuple(tiles),
        Table("Folders", ("folder", "modules", "bitcode", "share"), rows),
    )


def _inner_tiles(facts: CorpusFacts, group: Group, inside: list[int], width: float, height: float) -> tuple[Tile, ...]:
    sizes = [(int(facts.sizes[at]), words.short(facts.names[at], 40), words.shown(facts.names[at])) for at in inside]
    sizes = [item for item in sizes if item[0]]
    rest = group.size - sum(size for size, _, _ in sizes)
    if rest > 0:
        others = f"{words.count(group.modules - len(inside))} others"
        sizes.append((rest, others, others))
        sizes.sort(key=lambda item: -item[0])
    if not sizes or width <= 0 or height <= 0:
        return ()
    places = squarify([float(size) for size, _, _ in sizes], width, height)
    return tuple(
        Tile(label, f"{full}: {words.size(size)}", 100 * place.x / width, 100 * place.y / height,
             100 * place.width / width, 100 * place.height / height)
        for (size, label, full), place in zip(sizes, places, strict=True)
    )  # fmt: skip


def _folder_of(name: str) -> str:
    """Return a module's label by folder, as `group_labels` does."""
    folders = name.rpartition("/")[0].split("/")[:2] if "/" in name else []
    return "/".join(folders) + "/" if folders else "./"


def _provenance(facts: CorpusFacts, label: str) -> Facts:
    about = facts.about
    items = [("path", words.shown(facts.shown, 400))]
    made = " ".join(str(about[key]) for key in ("tool", "version") if about.get(key))
    for key, value in (
        ("made by", made),
        ("digest of the corpus", about.get("corpus_digest") or about.get("corpus_sha256")),
        ("inputs", about.get("inputs")),
        ("options of extract", about.get("options")),
        ("split", about.get("split")),
        ("compilers of the rebuild", facts.certificate.about.get("compilers") if facts.certificate else None),
    ):
        if _is_said(value) and (told := _plain(value)):
            items.append((key, words.shown(told, 1000)))
    return Facts(label, tuple(items))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if _is_said(item))
    return ", ".join(map(_plain, value)) if isinstance(value, list) else str(value)


def _is_said(value: Any) -> bool:
    return value is not None and value is not False and value not in ("", [], {})


def _data(facts: CorpusFacts) -> dict[str, Any]:
    """Return the numbers of a corpus as plain values."""
    again = facts.again
    groups = {
        by: {label: {"modules": group.modules, "bitcode_bytes": group.size} for label, group in found.items()}
        for by, found in (*facts.groups.items(), ("split", facts.splits))
    }
    return {
        "modules": len(facts.names),
        "bitcode_bytes": int(facts.sizes.sum()),
        "cmd_bytes": facts.cmd_bytes,
        "functions": facts.functions,
        "duplicates": int(again.sum()),
        "duplicate_bytes": int(facts.sizes[again].sum()),
        "reasons": [
            {"reason": reason, "status": status, "rows": n} for (reason, status), n in facts.reasons.most_common()
        ],
        "sizes": facts.distribution.as_json(),
        "by": groups,
        "leakage": None
        if facts.leakage is None
        else {"modules": facts.leakage.modules, "functions": facts.leakage.functions},
        "rebuild": None if facts.certificate is None else dict(facts.certificate.outcomes),
    }
