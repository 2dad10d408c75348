"""The facts of a corpus for a page, from its tables; if it has them, no module is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.functions import read_function_columns
from mlgo_corpus.corpus.groups import command_keys, digest_keys, group_labels, integers, is_again
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.scan import iter_tables
from mlgo_corpus.corpus.split.components import Leakage, find_sharing, measure_leakage
from mlgo_corpus.corpus.split.files import names_a_side
from mlgo_corpus.corpus.split.sides import SIDES, FarSide, check_fractions, far_sides
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.columns import LARGEST, count_texts, iter_columns, texts_of
from mlgo_corpus.files.names import CERTIFICATE_NAME, FUNCTIONS_NAME, MANIFEST_STEM
from mlgo_corpus.files.tables import blamed, read_metadata
from mlgo_corpus.files.text import printable
from mlgo_corpus.view.aggregate import Distribution

GROUPED: Final = ("opt-level", "language", "triple", "producer")
"""The properties by which the modules of a corpus are counted."""

_COLUMNS = (
    "reason", "bitcode_bytes", "cmd_bytes", "bitcode_sha256", "cmd_sha256", "functions", "split", "opt_level",
    "main_file_name", "target_triple", "producer",
)  # fmt: skip
_EXAMPLES = 6
# The depth and the number of folders that are counted separately: a treemap shows some tens.
_FOLDER_DEPTH = 2
_FOLDERS = 100_000


@dataclass(slots=True)
class Group:
    """The number of modules of one label, and their bytes of bitcode."""

    modules: int = 0
    size: int = 0


@dataclass(slots=True)
class _Certificate:
    """The results of compiling every module again.

    Attributes:
        outcomes: the number of modules by outcome.
        bad: the first modules that are different or failed: name, outcome, detail.
        about: the table's metadata: how it was made.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[str, str, str]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class CorpusFacts:
    """A corpus's numbers.

    Attributes:
        shown: the corpus's path or URL.
        about: the metadata of its table, or ``corpus.json``: how it was made.
        packed: whether it is packed.
        names: the modules' names.
        sizes: of shape (modules,): bytes of bitcode.
        keys: of shape (modules,): 64 bits of the digests of bitcode and command; 0 if they are not known.
        functions: the number of functions that modules define; None if it is known of no module.
        cmd_bytes: bytes of commands.
        reasons: the number of the table's rows by (reason, status).
        left_out: bytes of bitcode of rows that are not in the corpus, by reason.
        groups: for each of `GROUPED`, modules by label.
        folders: modules by folder.
        splits: modules by side.
        functions_by_side: functions by side, as far as they are known.
        far: the sides that are far from what was asked for, by what is counted: what the split weighed, or what a side
            has next to nothing of. Of a corpus that was divided, not of one of its sides.
        leakage: the sides' leakage; None without sides or without a table of functions.
        certificate: the results of rebuilding, or None.
        has_thinlto: whether modules have ThinLTO indexes.
    """

    shown: str
    about: dict[str, Any]
    packed: bool
    has_thinlto: bool
    names: list[str] = field(default_factory=list)
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    functions: int | None = None
    cmd_bytes: int = 0
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    groups: dict[str, dict[str, Group]] = field(default_factory=lambda: {by: defaultdict(Group) for by in GROUPED})
    folders: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))
    splits: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))
    functions_by_side: Counter[str] = field(default_factory=Counter)
    far: dict[str, tuple[FarSide, ...]] = field(default_factory=dict)
    leakage: Leakage | None = None
    certificate: _Certificate | None = None

    @property
    def again(self) -> NDArray[np.bool_]:
        """For each module, whether it has the bitcode and the command of an earlier one."""
        return np.asarray((self.keys != 0) & is_again(self.keys))

    @property
    def distribution(self) -> Distribution:
        """The distribution of the sizes."""
        found = Distribution()
        found.add(self.sizes)
        return found


def read_corpus_facts(place: str | Path) -> CorpusFacts:
    """Read the facts of a corpus.

    Raises:
        CorpusError: it is not a corpus, or a table is damaged.
        UsageError: the URL is of an unknown kind.
    """
    corpus = open_corpus(place)
    facts = CorpusFacts(corpus.location, corpus.about(), corpus.packed, corpus.has_thinlto)
    sizes, keys = [facts.sizes], [facts.keys]
    sides: dict[str, str] = {}
    for table in iter_tables(corpus, _COLUMNS):
        _add_rows(facts, table, sizes, keys, sides)
    facts.sizes, facts.keys = np.concatenate(sizes), np.concatenate(keys)
    facts.leakage = _leakage(corpus, sides)
    if not names_a_side(place):
        facts.far = _far(corpus, facts)
    facts.certificate = _certificate(corpus)
    return facts


def _add_rows(
    facts: CorpusFacts,
    table: Any,
    sizes: list[NDArray[np.int64]],
    keys: list[NDArray[np.uint64]],
    sides: dict[str, str],
) -> None:
    import pyarrow.compute as pc

    reasons, statuses = (pc.fill_null(table[name], arrays.text("unknown")).to_pylist() for name in ("reason", "status"))
    facts.reasons.update(zip(reasons, statuses, strict=True))
    for reason, status, size in zip(reasons, statuses, integers(table["bitcode_bytes"], 0).tolist(), strict=True):
        if status != STATUS_OK:
            facts.left_out[reason] += size
    modules = table.filter(pc.equal(table["status"], arrays.text(STATUS_OK)))  # null is not
    own = np.clip(integers(modules["bitcode_bytes"], 0), 0, int(LARGEST))
    sizes.append(own)
    bitcode = digest_keys(modules["bitcode_sha256"])
    keys.append(np.where(bitcode != 0, bitcode ^ command_keys(modules), np.uint64(0)))
    names = modules["module"].to_pylist()
    facts.names += names
    known = modules["functions"].drop_null()
    if len(known):
        facts.functions = (facts.functions or 0) + int(pc.sum(known).as_py())
    facts.cmd_bytes += int(integers(modules["cmd_bytes"], 0).sum())
    for by in GROUPED:
        _add_groups(facts.groups[by], group_labels(modules, by, 1), own)
    _add_groups(facts.folders, group_labels(modules, "folder", _FOLDER_DEPTH), own)
    split = modules["split"].to_pylist()
    for name, side, size, functions in zip(
        names, split, own.tolist(), integers(modules["functions"], 0).tolist(), strict=True
    ):
        if side is not None:
            sides[name] = side
            facts.splits[side].modules += 1
            facts.splits[side].size += size
            facts.functions_by_side[side] += functions


def _add_groups(groups: dict[str, Group], labels: Any, sizes: NDArray[np.int64]) -> None:
    encoded = labels.combine_chunks().dictionary_encode()
    codes = arrays.numbers_in(encoded.indices)
    counts, totals = np.bincount(codes), np.bincount(codes, sizes)
    for label, count, total in zip(encoded.dictionary.to_pylist(), counts.tolist(), totals.tolist(), strict=False):
        group = groups[label if label in groups or len(groups) < _FOLDERS else "other"]
        group.modules += count
        group.size += int(total)


def _leakage(corpus: Corpus, sides: dict[str, str]) -> Leakage | None:
    """Measure a split's leakage, from the table of functions that splitting left."""
    path = corpus.place / FUNCTIONS_NAME
    if not sides or not path.is_file():
        return None
    at_least = 8
    with suppress(TypeError, ValueError, OverflowError):  # of infinity
        at_least = int((_split_options(corpus) or {}).get("min_instructions", at_least))
    columns = read_function_columns(path, corpus.names).of_at_least(at_least)
    side_of = np.array(
        [SIDES.index(side) if (side := sides.get(printable(name), "")) in SIDES else 0 for name in corpus.names],
        np.int8,
    )
    counts = np.bincount(columns.modules, minlength=len(corpus.names))
    return measure_leakage(find_sharing(columns.modules, columns.hashes), counts, side_of)


def _far(corpus: Corpus, facts: CorpusFacts) -> dict[str, tuple[FarSide, ...]]:
    """Return the sides of a divided corpus that are far from what was asked for, by what is counted."""
    options = _split_options(corpus) or {}
    try:
        fractions = check_fractions(options["fractions"], "")
    except (KeyError, TypeError, UsageError):
        return {}
    if not all((corpus.place / f"{MANIFEST_STEM}{side}.json").is_file() for side in SIDES):
        return {}  # it is one of three corpora that a split made
    amounts = {
        "functions": [facts.functions_by_side[side] for side in SIDES],
        "bitcode": [facts.splits[side].size if side in facts.splits else 0 for side in SIDES],
        "modules": [facts.splits[side].modules if side in facts.splits else 0 for side in SIDES],
    }
    weighed = options.get("weigh", "modules")
    found = {name: far_sides(sides, fractions, hardly=name != weighed) for name, sides in amounts.items() if any(sides)}
    return {name: sides for name, sides in found.items() if sides}


def _split_options(corpus: Corpus) -> dict[str, Any] | None:
    said = corpus.about().get("split")
    return said if isinstance(said, dict) else None


def _certificate(corpus: Corpus) -> _Certificate | None:
    path = corpus.place / CERTIFICATE_NAME
    if not isinstance(path, Path) or not path.is_file():
        return None
    found = _Certificate(about=read_metadata(path))
    with blamed(path):
        _read_outcomes(path, found)
    return found


def _read_outcomes(path: Path, found: _Certificate) -> None:
    for columns in iter_columns(path, ("module", "outcome", "detail"), needed=("module", "outcome")):
        count_texts(columns["outcome"], found.outcomes)
        outcomes = texts_of(columns["outcome"])
        for row, outcome in enumerate(outcomes):
            if outcome in ("differs", "fails") and len(found.bad) < _EXAMPLES:
                detail = columns["detail"][row].as_py() if "detail" in columns else ""
                found.bad.append((str(columns["module"][row].as_py()), outcome, str(detail or "")))
