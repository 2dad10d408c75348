"""Policies that decide as an earlier compile did: a dataset's decisions, found again by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.folder import DATASET_NAME, DatasetPaths
from mlgo_corpus.dataset.observations import column_names, rows_of_batch
from mlgo_corpus.dataset.rows import DatasetRows, open_rows
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.folder import folder_with, read_note
from mlgo_corpus.files.names import unescaped_name
from mlgo_corpus.files.regular import digest_of_file
from mlgo_corpus.files.text import name_hash, os_reason, printable, several
from mlgo_corpus.formats.commands.languages import C_FAMILY_ENDINGS
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.keys import Key, key_maker, stable_features
from mlgo_corpus.formats.logs.tasks import EVICTION, GROWTH_LIMIT, INLINING, PRIORITY, PROJECT_FEATURES, task_name
from mlgo_corpus.formats.logs.tensors import TensorSpec

NAMES: Final = {
    INLINING: ("default", "never", "always", "random:P"),
    EVICTION: ("first", "random"),
    PRIORITY: ("first", "random"),
}
"""The names of the policies that come with the package, for each task; ``P`` is a probability."""

_KEY_COLUMNS: Final = ("module", "context", "observation")

# As a command of a dataset has it, which may be anybody's.
_GROWTH: Final = re.compile(rf"-?{GROWTH_LIMIT}=([0-9]{{1,20}}(?:\.[0-9]{{0,20}})?(?:e[0-9]{{1,2}})?)")


class KeyedPolicy:
    """Decide by key; another policy decides what has no key here.

    Args:
        decisions: by key.
        otherwise: decides the others.
        keyed_by: the features that keys are made of, by default all stable ones.

    Attributes:
        unmet: the numbers of the observations that had no key, in this session.
    """

    def __init__(
        self, decisions: Mapping[Key, int], otherwise: Any, keyed_by: Collection[TensorSpec] | None = None
    ) -> None:
        self.features = tuple(several(getattr(otherwise, "features", None) or ()))
        self.unmet: list[int] = []
        self._decisions = decisions
        self._otherwise = otherwise
        self._count = 0
        self._key: Callable[[bytes], Key] | None = None
        self._keyed_by = keyed_by

    def reset(self, header: LogHeader, module: str) -> None:
        """Begin a session."""
        self._key = key_maker(header, self._keyed_by)
        self._count = 0
        self.unmet = []
        reset = getattr(self._otherwise, "reset", None)
        if reset is not None:
            reset(header, module)

    def advise(self, observation: np.void) -> Any:
        """Return the decision of the observation's key."""
        if self._key is None:
            raise AssertionError("a session begins with reset")
        decision = self._decisions.get(self._key(observation.tobytes()))
        if decision is None:
            self.unmet.append(self._count)
            decision = self._otherwise.advise(observation)
        self._count += 1
        return decision


class DatasetPolicy(KeyedPolicy):
    """Decide as a dataset of inlining decisions has it, module by module.

    Args:
        path: the dataset's folder.
        otherwise: decides what the dataset has no decision for.

    Raises:
        UsageError: there is no such dataset.
    """

    def __init__(self, path: Path, otherwise: Any) -> None:
        super().__init__({}, otherwise)
        self._path = path
        _open(path, _stamp(path))

    def reset(self, header: LogHeader, module: str) -> None:
        """Begin a session with the module's decisions.

        Raises:
            UsageError: the compiler does not send the features that the dataset has.
            CorpusError: the dataset cannot be read.
        """
        rows, places = _open(self._path, _stamp(self._path))
        mine, theirs = _keyed_features(rows.header), stable_features(header)
        if mine != tuple(spec for spec in theirs if spec in mine):  # an extended clang sends some besides
            which = ", ".join(spec.name for spec in mine if spec not in theirs) or "the same in another order"
            raise UsageError(f"the dataset's decisions have features that this compiler does not send: {which}")
        self._keyed_by = mine
        self._decisions = _decisions_of(rows, places.get(module))
        super().reset(header, module)


def is_simple(text: str) -> bool:
    """Return True if a policy's name is one of `NAMES`, even if there is a folder of that name: ``./never`` is that."""
    name, colon, _ = text.partition(":")
    return any(text in names for names in NAMES.values()) or (name == "random" and bool(colon))


def find_dataset(text: str) -> Path | None:
    """Return the folder of the dataset that a policy's name means, absolute; None if it is no folder of a dataset."""
    return None if is_simple(text) else folder_with(text, DATASET_NAME)


def dataset_note(path: Path) -> Mapping[str, Any]:
    """Return what a dataset says of itself, which may be anything; nothing if it cannot be read."""
    note = read_note(path / DATASET_NAME)
    return note if isinstance(note, dict) else {}


def dataset_features(path: Path) -> tuple[str, ...]:
    """Return the names of the features that a dataset's decisions have.

    Raises:
        UsageError: there is no such dataset, or one of another task.
    """
    return tuple(spec.name for spec in _keyed_features(_open(path, _stamp(path))[0].header))


def _keyed_features(header: LogHeader) -> tuple[TensorSpec, ...]:
    """Return the features that a dataset's decisions are found again by: none that other modules change."""
    return tuple(spec for spec in stable_features(header) if spec.name not in PROJECT_FEATURES)


def growth_options(options: Iterable[str], replayed: Path | None = None) -> tuple[str, ...]:
    """Return the option that lets a module grow by inlining as far as a policy decides.

    MLInlineAdvisor asks nothing more, and inlines nothing, once a module has doubled, which LLVM's own heuristic does
    not: what a policy decides first would end what it is asked. The limit stays where a command has one of its own; a
    replay has that of the dataset's compiles.

    Args:
        options: the command's.
        replayed: the folder of the dataset whose decisions are replayed.
    """
    if any(GROWTH_LIMIT in option for option in options):
        return ()
    if replayed is None:
        return (f"{GROWTH_LIMIT}=1e9",)
    words = dataset_note(replayed).get("argv")
    found = [_GROWTH.fullmatch(str(word)) for word in words] if isinstance(words, list) else []
    return tuple(f"{GROWTH_LIMIT}={one[1]}" for one in found if one is not None)[-1:]


@dataclass(frozen=True, slots=True)
class DecisionTable:
    """The decisions of a dataset, for a program that looks them up without Python.

    ``data`` is a digest of what follows, 16 letters, and words of 64 bits of this machine: the number of modules and
    that of decisions; of each module the hash of its path (FNV-1a), its first decision and how many it has, sorted by
    hash; the decisions. One is the hash of its key, with the decision in place of the lowest bit; those of a module are
    sorted. To hash a key is to `_stir` the words of its features, each filled up with zeros, and at last its number
    among equals.

    Attributes:
        features: that keys are made of, in their order.
        digest: the letters that ``data`` begins with.
        data: what the program reads.
        modules: the names of those that have decisions.
        decisions: how many there are.
        left_out: how many modules are not in it, because no object has their name: members of archives, and sources
            that one command compiled and linked.
    """

    features: tuple[str, ...]
    digest: str
    data: bytes
    modules: tuple[str, ...]
    decisions: int
    left_out: int


def decision_table(path: Path, unkeyed: Collection[str] = ()) -> DecisionTable:
    """Return the decisions of a dataset of inlining as a table.

    Args:
        path: its folder.
        unkeyed: features that keys are not made of.

    Raises:
        UsageError: there is no such dataset, or one of another task.
        CorpusError: it cannot be read.
    """
    rows, places = _open(path, _stamp(path))
    header, decision = rows.header, rows.header.features[-1]
    keyed = [spec for spec in _keyed_features(header) if spec.name not in unkeyed]
    spans = [(header.places[spec.name].start, spec.nbytes) for spec in keyed]
    copies: dict[str, list[str]] = {}
    for name, module in _duplicates(path):
        if name not in places:
            copies.setdefault(module, []).append(name)
    first, index, parts = 0, [], []
    names = {module: [name for name in (module, *copies.get(module, ())) if _is_of_object(name)] for module in places}
    modules = tuple(module for module, its in names.items() if its)
    root = _build_folder(name for its in names.values() for name in its)
    for module in modules:
        place = places[module]
        tensors = np.concatenate(list(_iter_tensors(rows, place)))
        hashes = _hashes_of_keys(tensors, spans)
        parts.append(np.sort(hashes & ~np.uint64(1) | _decisions_in(tensors, decision).astype(np.uint64)))
        here = (*names[module], *(name[len(root) :] for name in names[module] if root))
        paths = {path for name in here for path in (name, unescaped_name(name))}  # the file may have the %XX
        index += [(name_hash(path), first, len(hashes)) for path in paths]
        first += len(hashes)
    head = np.array([len(index), first], np.uint64)
    data = np.concatenate([head, np.array(sorted(index), np.uint64).reshape(-1), *parts]).tobytes()
    digest = blake2b(data, digest_size=8).hexdigest()
    features = tuple(spec.name for spec in keyed)
    return DecisionTable(features, digest, digest.encode() + data, modules, first, len(places) - len(modules))


def _build_folder(names: Iterable[str]) -> str:
    """Return the folder that all objects are in, with a slash, if it may have another name in the next build; else "".

    So it may if each has a folder without it, too, as a file's name alone tells too little, and none is another's name.
    """
    every = {*names}
    root = next(iter(every), "").partition("/")[0] + "/"
    if not every or not all(name.startswith(root) for name in every):
        return ""
    left = {name.removeprefix(root) for name in every}
    return root if all("/" in name for name in left) and not left & every else ""


def _is_of_object(module: str) -> bool:
    """Return False if a module is named after a member of an archive, or after a source within what is linked."""
    folder, _, name = module.rpartition("/")
    return not folder.endswith((".a", ".lib")) and not (folder and name.rpartition(".")[2] in C_FAMILY_ENDINGS)


def _duplicates(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names that a corpus left out for those of modules that are the same, as a dataset tells them."""
    said = dataset_note(path).get("duplicates")
    for name, module in said.items() if isinstance(said, dict) else ():
        if isinstance(module, str) and printable(name) == name:  # others are no names that a command could have
            yield name, module


def _decisions_in(tensors: NDArray[np.uint8], decision: TensorSpec) -> NDArray[Any]:
    return np.ascontiguousarray(tensors[:, tensors.shape[1] - decision.nbytes :]).view(decision.dtype)[:, 0]


def _iter_tensors(rows: DatasetRows, place: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    """Yield a module's observations as bytes, of shape (n, bytes)."""
    header = rows.header
    for _, batch in rows.iter_batches((*_KEY_COLUMNS, *column_names(header)), *place):
        tensors, _ = rows_of_batch(header, batch)
        yield np.frombuffer(tensors.tobytes(), np.uint8).reshape(-1, header.tensor_bytes)


def _hashes_of_keys(tensors: NDArray[np.uint8], spans: Sequence[tuple[int, int]]) -> NDArray[np.uint64]:
    hashes = np.zeros(len(tensors), np.uint64)
    for start, size in spans:
        words = np.zeros((len(tensors), -(-size // 8) * 8), np.uint8)
        words[:, :size] = tensors[:, start : start + size]
        for word in words.view(np.uint64).T:
            hashes = _stir(hashes, word)
    order = np.argsort(hashes, kind="stable")
    begins = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order][:1]))
    numbers = np.empty(len(hashes), np.uint64)
    numbers[order] = np.arange(len(hashes)) - np.repeat(begins, np.diff(begins, append=len(hashes)))
    return _stir(hashes, numbers)


def _stir(hashes: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    hashes = (hashes ^ words) * np.uint64(0x9E3779B97F4A7C15)
    return hashes ^ hashes >> np.uint64(32)


def dataset_digest(path: Path) -> str:
    """Return a digest of what a dataset decides: of its table of modules, which tells their objects.

    Raises:
        CorpusError: it cannot be read.
    """
    place = DatasetPaths.of(path).modules
    try:
        return digest_of_file(place)
    except OSError as error:
        raise CorpusError(f"{place}: {os_reason(error)}") from error


def _stamp(path: Path) -> int:
    try:
        return (path / DATASET_NAME).stat().st_mtime_ns
    except OSError as error:
        raise UsageError("the dataset is gone", option="policy", value=path) from error


@lru_cache(maxsize=2)
def _open(path: Path, _: int) -> tuple[DatasetRows, dict[str, tuple[int, int]]]:
    rows = open_rows(path, may_be_empty=True)
    if (task := task_name(rows.header)) != INLINING:
        raise UsageError(
            f"expected a dataset of {INLINING}, found {task or 'another task'}", option="policy", value=path
        )
    return rows, {item.module: (item.first, item.first + item.rows) for item in rows.modules}


def _decisions_of(rows: DatasetRows, place: tuple[int, int] | None) -> dict[Key, int]:
    """Return a module's decisions by key."""
    if place is None:
        return {}
    header = rows.header
    key, decision = key_maker(header, _keyed_features(header)), header.features[-1]
    found: dict[Key, int] = {}
    for tensors in _iter_tensors(rows, place):
        size, data = header.tensor_bytes, tensors.tobytes()
        for number, value in enumerate(_decisions_in(tensors, decision).tolist()):
            found[key(data[number * size : number * size + size])] = int(value)
    return found
