"""Examples to learn inlining from: the decisions of datasets, each with its features and with what it is worth.

A search's dataset has the best decisions that it found, and in ``flips.parquet`` the effect in bytes of what it tried.
A decision is worth the mean effect, as the objective weighs it, of the flips at its state; one that was not tried is
worth what decisions are worth on the whole. Few bytes are as good as none, and many are one decision all the same, so
that both ends are cut. Decisions that several modules have count together as one: a function that many objects hold is
linked once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.groups import UNKNOWN
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.packed.corpus import is_packed
from mlgo_corpus.corpus.split.components import MIN_INSTRUCTIONS
from mlgo_corpus.dataset.calls import CALL_COLUMNS
from mlgo_corpus.dataset.folder import DATASET_NAME, FLIPS_NAME, DatasetPaths
from mlgo_corpus.dataset.rows import DatasetRows, column_values, open_rows
from mlgo_corpus.dataset.tracetable import iter_trace_rows
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import CorpusError, FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.files.columns import check_columns
from mlgo_corpus.files.folder import read_note
from mlgo_corpus.files.names import BITCODE_SUFFIX
from mlgo_corpus.files.regular import read_regular
from mlgo_corpus.files.remote import parse_place
from mlgo_corpus.files.tables import read_parquet
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.bitcode.functions import read_functions
from mlgo_corpus.formats.commands.languages import language_of_command
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.keys import stable_features
from mlgo_corpus.formats.logs.tasks import INLINING, INLINING_DEFAULT, needs_plugin, task_name
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.seen import Seen, own_bodies

# Features of the module's size, not of the call; and LLVM's own decision, which it makes only for policies that ask.
_NOT_LEARNED: Final = frozenset({"node_count", "edge_count", INLINING_DEFAULT})
_NUMBERS: Final = ("int64_t", "float")

_USUAL_WORTH: Final = 8.0
_LEAST_WORTH, _MOST_WORTH = 2.0, 32.0
_MAX_BITCODE: Final = 1 << 30
_MODULE_SECONDS: Final = 600.0


Linkages = Mapping[str, Mapping[str, str]]
"""The linkage of each function, of each module."""


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What one dataset gave.

    Attributes:
        name: the corpus that it is of.
        digest: of the examples.
        modules: that have decisions.
        decisions: how many.
        flips: how many were tried with success.
        known: the share of the decisions that were tried.
        inlined: the share of the decisions that are to inline.
        bodies_known: modules whose functions are known, so that they are found again in other corpora.
        languages: of the modules; "unknown" for those whose commands do not tell.
    """

    name: str
    digest: str
    modules: int
    decisions: int
    flips: int
    known: float
    inlined: float
    bodies_known: int
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Examples:
    """Decisions to learn.

    Attributes:
        features: the names and types of the columns of ``inputs``.
        inputs: of shape (n, features).
        decisions: of shape (n,): 1 to inline.
        weights: of shape (n,).
        data: what each dataset gave.
        seen: what it was made of.
        linkages: of each dataset that `open_datasets` returns: of each module whose bitcode is known, the linkage of
            each function.

    A policy that learns from them knows ``languages``, and no others; () if it is not known which these are.
    """

    features: tuple[TensorSpec, ...]
    inputs: NDArray[np.float64]
    decisions: NDArray[np.int64]
    weights: NDArray[np.float64]
    data: tuple[DataFacts, ...]
    seen: Seen
    linkages: tuple[Linkages, ...] = ()

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the modules, in alphabetic order."""
        return languages_known(self.data)


def languages_known(data: Sequence[DataFacts]) -> tuple[str, ...]:
    """Return the languages of all data, in alphabetic order; () if one is not known."""
    found = {language for one in data for language in one.languages}
    return () if UNKNOWN in found else tuple(sorted(found))


def read_examples(datasets: Sequence[Path], *, jobs: int, languages: Collection[str] = ()) -> Examples:
    """Read the examples of several datasets; each corpus is a project of its own.

    Args:
        datasets: their folders.
        languages: leave out modules of other languages; none if empty.
        jobs: processes that read the modules' bitcode.

    Raises:
        UsageError: one is no dataset of inlining, or they have no decisions or features in common.
        CorpusError: one cannot be read.
    """
    opened = open_datasets(datasets, languages)
    if not opened:
        where, option = (" in these languages", "language") if languages else ("", "data")
        raise UsageError(f"the datasets have no decisions{where}", option=option)
    features = _common_features(opened)
    parts = [_Part(rows, features) for rows in opened]
    bodies = defaultdict[str, set[int]](set)  # of each corpus: two searches of one have the same
    unread: list[str] = []
    modules: list[NDArray[np.uint64]] = []
    facts = []
    linkages: list[Linkages] = []
    for part in parts:
        items = _bitcode(part.rows)
        read = _read_functions(items, jobs)
        for item in items:
            if (functions := read.get(item.module)) is None:
                unread.append(item.sha256)
            else:
                bodies[item.corpus].update(functions.hashes)
        modules += [functions.all_hashes for functions in read.values() if functions.hashes]
        facts.append(part.facts(len(read)))
        linkages.append({module: functions.linkages for module, functions in read.items()})
    return Examples(
        features,
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.decisions for part in parts]),
        np.concatenate([part.weights for part in parts]),
        tuple(facts),
        Seen.of(own_bodies(bodies.values()), modules, MIN_INSTRUCTIONS, unread),
        tuple(linkages),
    )


def open_datasets(datasets: Iterable[Path], languages: Collection[str] = ()) -> list[DatasetRows]:
    """Return the rows of datasets, without modules of other languages, and without datasets that have no others.

    Raises:
        UsageError: one is no dataset of inlining.
        CorpusError: one cannot be read.
    """
    return [rows for path in datasets if (rows := _open(path, languages)).modules]


def _open(path: Path, languages: Collection[str]) -> DatasetRows:
    rows = open_rows(path)
    if (task := task_name(rows.header)) != INLINING:
        raise UsageError(f"{path}: expected decisions of {INLINING}, found {task or 'another task'}")
    if not languages:
        return rows
    chosen = [item for item, language in zip(rows.modules, _languages(rows), strict=True) if language in languages]
    return replace(rows, modules=tuple(chosen))


def _languages(rows: DatasetRows) -> list[str]:
    """Return the language of each module of a dataset; `UNKNOWN` where its command does not tell."""
    table = DatasetPaths.of(rows.root).modules
    found = iter_trace_rows(table) if rows.has_rewards else ()
    known = {row.module: language_of_command(row.argv or ()) for row in found}
    return [known.get(item.module) or UNKNOWN for item in rows.modules]


def _common_features(opened: Sequence[DatasetRows]) -> tuple[TensorSpec, ...]:
    """Return the features that a policy can use in all datasets, in the order of the first."""
    usable = [learnable(rows.header) for rows in opened]
    found = tuple(spec for name, spec in usable[0].items() if all(other.get(name) == spec for other in usable))
    if not found:
        raise UsageError("the datasets have no features in common")
    return found


def need_plugin(datasets: Iterable[Path]) -> bool:
    """Return True if what is learned from these datasets will need features that only an extended clang tells.

    Raises:
        CorpusError: one cannot be read.
    """
    return all(needs_plugin(learnable(open_rows(path).header)) for path in datasets)


def has_decisions(dataset: Path) -> bool:
    """Return True if there was something to decide in a dataset's project.

    Raises:
        UsageError: it is no dataset.
    """
    return bool(open_rows(dataset, may_be_empty=True).modules)


def learnable(header: LogHeader) -> dict[str, TensorSpec]:
    """Return the features of a log of inlining that a policy can learn from, by their names."""
    return {
        spec.name: TensorSpec(spec.name, spec.type, (1,))
        for spec in header.features[:-1]
        if spec.element_count == 1 and spec.type in _NUMBERS and spec.name not in _NOT_LEARNED
    }


class _Part:
    """The examples of one dataset."""

    def __init__(self, rows: DatasetRows, features: Sequence[TensorSpec]) -> None:
        self.rows = rows
        known, self._flips = _read_worth(rows)
        inputs, decisions, found, keys = [], [], list[float](), list[bytes]()
        decision = rows.header.features[-1].name
        for batch in _batches(rows):
            inputs.append(_matrix(batch, [spec.name for spec in features]))
            decided = column_values(batch, decision, 1)[:, 0]
            if (others := decided[~np.isin(decided, (0, 1))]).size:
                raise CorpusError(f"{rows.root}: column {decision}: expected 0 or 1, found {others[0]}")
            decisions.append(decided.astype(np.int64))
            for module, key in zip(_text(batch, "module"), _keys(batch, rows), strict=True):
                found.append(known.get(_with_module(key, module), np.nan))
                keys.append(key)
        self.inputs = np.concatenate(inputs)
        self.decisions = np.concatenate(decisions)
        worth, counts = np.array(found), Counter(keys)
        self._known = ~np.isnan(worth)
        copies = np.array([counts[key] for key in keys], np.float64)
        cut = np.clip(np.nan_to_num(worth, nan=_USUAL_WORTH), _LEAST_WORTH, _MOST_WORTH)
        self.weights = cut / _USUAL_WORTH / copies

    def facts(self, bodies_known: int) -> DataFacts:
        """Return what is told of the dataset."""
        note = read_note(self.rows.root / DATASET_NAME)
        corpus = note.get("corpus") if isinstance(note, dict) else None
        return DataFacts(
            name=corpus if isinstance(corpus, str) else self.rows.root.name,
            digest=sha256(b"".join(map(bytes, (self.inputs, self.decisions, self.weights)))).hexdigest(),
            modules=len(self.rows.modules),
            decisions=len(self.decisions),
            flips=self._flips,
            known=float(self._known.mean()),
            inlined=float(self.decisions.mean()),
            bodies_known=bodies_known,
            languages=tuple(sorted(set(_languages(self.rows)))),
        )


def _batches(rows: DatasetRows) -> Iterator[Any]:
    names = [spec.name for spec in rows.header.features]
    for first, after in rows.ranges():
        for _, batch in rows.iter_batches(["module", *names, *call_columns(rows)], first, after):
            yield batch


def call_columns(rows: DatasetRows) -> list[str]:
    """Return the columns of a dataset that name a decision's functions, ``caller`` and ``callee``; it may have none."""
    with read_parquet(rows.parts[0].path) as file:
        there = set(file.schema_arrow.names)
    return [name for name in CALL_COLUMNS[:2] if name in there]


def _matrix(batch: Any, names: Sequence[str]) -> NDArray[np.float64]:
    return np.column_stack([column_values(batch, name, 1)[:, 0].astype(np.float64) for name in names])


def _text(batch: Any, name: str) -> list[str]:
    at = batch.schema.get_field_index(name)
    return [""] * batch.num_rows if at < 0 else [str(value) for value in batch.column(at).to_pylist()]


def _state_names(rows: DatasetRows) -> list[str]:
    return [spec.name for spec in stable_features(rows.header) if spec.element_count == 1]


def _keys(batch: Any, rows: DatasetRows) -> Iterator[bytes]:
    """Yield what names the states of a batch: caller, callee, and the features that other decisions do not change."""
    states = np.ascontiguousarray(_matrix(batch, _state_names(rows)))
    for caller, callee, state in zip(_text(batch, "caller"), _text(batch, "callee"), states, strict=True):
        yield blake2b(f"{caller}\0{callee}\0".encode("utf-8", "replace") + state.tobytes(), digest_size=12).digest()


def _with_module(key: bytes, module: str) -> bytes:
    return key + module.encode("utf-8", "replace")


def _read_worth(rows: DatasetRows) -> tuple[dict[bytes, float], int]:
    """Return what the flips of a search tell of states, in bytes, and the number of flips; nothing without flips."""
    path = rows.root / FLIPS_NAME
    if not path.is_file():
        return {}, 0
    found = defaultdict[bytes, list[float]](list)
    needed = ("module", "effect", "calls", *_state_names(rows))
    with read_parquet(path) as file:
        schema = file.schema_arrow
        check_columns(path, schema.names, needed)
        if (kind := str(schema.field("effect").type)) not in ("double", "float"):
            raise CorpusError(f"{path}: column effect: expected numbers, found {kind}")
        for batch in file.iter_batches():
            effects = batch.column(batch.schema.get_field_index("effect")).to_pylist()
            calls = column_values(batch, "calls", 1)[:, 0].tolist()
            named = zip(_text(batch, "module"), _keys(batch, rows), effects, calls, strict=True)
            for module, key, effect, count in named:
                if effect is not None and math.isfinite(effect):
                    found[_with_module(key, module)].append(abs(effect) / max(1, count))
    return {key: sum(values) / len(values) for key, values in found.items()}, sum(map(len, found.values()))


class _Bitcode(NamedTuple):
    """A module's bitcode: its module, where it was, and its digest; in a packed corpus it is a row's."""

    module: str
    path: str | None
    sha256: str
    packed: Module | None = None

    @property
    def corpus(self) -> str:
        """The folder, or the URL, of the corpus that it is of."""
        return (self.path or "").removesuffix(f"{self.module}{BITCODE_SUFFIX}").rstrip("/")

    def read(self) -> bytes:
        """Read it.

        Raises:
            OSError, CorpusError: it is not there, or cannot be read.
        """
        return self.packed.bitcode() if self.packed else read_regular(Path(self.path or ""), _MAX_BITCODE)


class _Functions(NamedTuple):
    """The functions of a module: hashes of the bodies that count, and of all, and the linkage of each by its name."""

    hashes: list[int]
    all_hashes: NDArray[np.uint64]
    linkages: dict[str, str]


def _bitcode(rows: DatasetRows) -> list[_Bitcode]:
    """Return the bitcode of the modules, where the dataset's commands say that it was."""
    table = DatasetPaths.of(rows.root).modules
    chosen = {item.module for item in rows.modules}
    found = [row for row in iter_trace_rows(table) if row.module in chosen] if rows.has_rewards else []
    items = [_Bitcode(row.module, _place_of(row.argv or ()), row.bitcode_sha256) for row in found if row.bitcode_sha256]
    packed = {place: _packed_modules(place) for place in {item.corpus for item in items}}
    return [item._replace(packed=packed[item.corpus].get(item.module)) for item in items]


def _packed_modules(place: str) -> dict[str, Module]:
    """Return the modules of a packed corpus by their printable names; none if there is no such corpus."""
    try:
        corpus = open_corpus(place) if is_packed(parse_place(place)) else ()
    except MlgoCorpusError:
        return {}
    return {printable(module.name): module for module in corpus}


def _read_functions(items: Sequence[_Bitcode], jobs: int) -> dict[str, _Functions]:
    """Return the functions of each module whose bitcode is still there, and the same."""
    read = parallel_map(_functions_of, items, jobs=jobs, limit=_MODULE_SECONDS, weigh=lambda _: 1.0)
    return {item.module: one for item, one in zip(items, read, strict=True) if isinstance(one, _Functions)}


def _place_of(argv: Sequence[str]) -> str | None:
    return next((word for word in reversed(argv) if word.endswith(BITCODE_SUFFIX)), None)


def _functions_of(item: _Bitcode) -> _Functions | None:
    """Return a module's functions; None if its bitcode is not there, or another one."""
    try:
        data = item.read()
        if sha256(data).hexdigest() != item.sha256:
            return None
        functions = read_functions(data)
    except (OSError, CorpusError, FormatError, ValueError):
        return None
    hashes = [one.body_hash for one in functions if one.instructions >= MIN_INSTRUCTIONS]
    all_hashes = np.array([one.body_hash for one in functions], np.uint64)
    return _Functions(hashes, all_hashes, {one.name: one.linkage for one in functions})
