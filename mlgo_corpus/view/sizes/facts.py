"""The facts of a table of functions and their native sizes for a page, read in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.groups import digest_keys
from mlgo_corpus.corpus.split.sides import expected_leakage
from mlgo_corpus.dataset.folder import DatasetPaths
from mlgo_corpus.dataset.sizes.table import LABEL, PREDICTED, SIZES_FOLDER, SPLIT, VECTOR
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.columns import check_columns, count_texts, floats_of, iter_columns, texts_of
from mlgo_corpus.files.folder import read_note
from mlgo_corpus.files.parquet import is_readable
from mlgo_corpus.files.tables import blamed, read_metadata, read_parquet
from mlgo_corpus.view.aggregate import Distribution, LogCorrelations, numbers_of

_NEEDED = ("module", "function", LABEL)
_TEXTS = ("module", "function", "status", "body_digest", SPLIT)
_ROWS_AT_A_TIME = 1 << 14
_TRAIN = "train"
_DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)


@dataclass(slots=True)
class SizesFacts:
    """A table's numbers.

    Attributes:
        path: the table's folder or file; for one behind a URL, the copy.
        shown: the table's folder, file or URL.
        about: the table's description: how it was made; may be empty.
        rows: the number of functions.
        keys: of shape (rows,): 64 bits of a digest of module and function.
        labels: of shape (rows,): native sizes; NaN if a function has none.
        names: the functions with the largest labels, by row: (module, function).
        label: the distribution of the labels.
        statuses: the number of rows by status.
        splits: the number of rows by side.
        leaking: the number of held-out rows whose body is in training, and of all held-out rows.
        expected: the expected leakage of a random division.
        features: the distribution of each column of numbers.
        correlations: each column's correlation with the label, see `LogCorrelations`.
        module_reasons: the number of modules by (reason, status); empty without ``modules.parquet``.
        failed: the first modules that failed: name, reason, detail.
        code_size: bytes of code of the modules' objects; ``explained_size`` of them are in the table.
        faithful: the number of modules whose object equals the plain compile's, and of those that were compared.
        predicted: of shape (rows,): what a model predicted; empty without one.
        covered: the number of functions whose size is in the model's interval.
    """

    path: Path
    shown: str
    about: dict[str, Any]
    rows: int = 0
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    labels: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    label: Distribution = field(default_factory=Distribution)
    statuses: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    leaking: tuple[int, int] | None = None
    expected: float | None = None
    features: dict[str, Distribution] = field(default_factory=dict)
    correlations: dict[str, float] = field(default_factory=dict)
    module_reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    code_size: float = 0.0
    explained_size: float = 0.0
    faithful: tuple[int, int] = (0, 0)
    predicted: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    covered: int = 0

    @property
    def unlabelled(self) -> int:
        """The number of functions without a native size."""
        return int(np.isnan(self.labels).sum())


def read_sizes_facts(path: Path, progress: Callable[[int, int], None] | None = None) -> SizesFacts:
    """Read the facts of a table of functions.

    Raises:
        CorpusError: a file is missing or damaged.
        UsageError: the path cannot be inspected.
    """
    paths = DatasetPaths.of(path, SIZES_FOLDER)
    facts = SizesFacts(path, str(path), _about(paths))
    files = paths.parts()
    if not files:
        raise CorpusError(f"{path}: has no {SIZES_FOLDER}/part-*.parquet")
    reader = _Reader(facts)
    for number, file in enumerate(files):
        reader.read(file)
        if progress is not None:
            progress(number + 1, len(files))
    reader.finish()
    if paths.modules.is_file():
        with blamed(paths.modules):
            _read_modules(paths.modules, facts)
    return facts


def _about(paths: DatasetPaths) -> dict[str, Any]:
    if paths.single:
        metadata = read_metadata(paths.modules) if paths.modules.is_file() else {}
        key = metadata.pop("key", None)
        said = dict(key) if isinstance(key, dict) else {}
        if isinstance(said.get("compiler"), dict):
            said["compiler_sha256"] = said["compiler"].get("sha256")
            said["compiler"] = said["compiler"].get("version")
        return {**said, **metadata}
    found = read_note(paths.whole)
    return found if isinstance(found, dict) else {}


class _Reader:
    """Reads the table's rows one batch at a time; keeps some 30 bytes of each row, and no text."""

    def __init__(self, facts: SizesFacts) -> None:
        self.facts = facts
        self._features: list[str] | None = None
        self._correlations: LogCorrelations | None = None
        self._keys = [facts.keys]
        self._labels = [facts.labels]
        self._predicted = [facts.predicted]
        self._digests = [np.zeros(0, np.uint64)]
        self._held = [np.zeros(0, np.int8)]

    def read(self, path: Path) -> None:
        """Read a file."""
        with read_parquet(path) as file:
            there = file.schema_arrow.names
            check_columns(path, there, _NEEDED)
            wanted = [field.name for field in file.schema_arrow if field.name != VECTOR and is_readable(field.type)]
            for batch in file.iter_batches(batch_size=_ROWS_AT_A_TIME, columns=wanted):
                self._add(dict(zip(batch.schema.names, batch.columns, strict=True)), len(batch))

    def _add(self, columns: dict[str, Any], rows: int) -> None:
        facts = self.facts
        labels = floats_of(columns[LABEL])
        labels[~(labels >= 0)] = np.nan
        known = np.isfinite(labels)
        facts.label.add(labels[known])
        for name, into in (("status", facts.statuses), (SPLIT, facts.splits)):
            if name in columns:
                count_texts(columns[name], into)
        modules, functions = (texts_of(columns[name]) for name in ("module", "function"))
        self._keys.append(_name_keys(modules, functions))
        self._labels.append(labels)
        if PREDICTED.keys() <= columns.keys():
            size, low, high = (floats_of(columns[name]) for name in PREDICTED)
            self._predicted.append(size)
            facts.covered += int(((low <= labels) & (labels <= high)).sum())
        first = facts.rows
        for at in np.argsort(-np.where(known, labels, -1.0), kind="stable")[:10].tolist():
            facts.names[first + at] = (modules[at] or "", functions[at] or "")
        if SPLIT in columns and "body_digest" in columns:
            sides = texts_of(columns[SPLIT])
            self._held.append(np.array([-1 if side is None else side != _TRAIN for side in sides], np.int8))
            self._digests.append(digest_keys(columns["body_digest"]))
        self._add_features(columns, labels, known & (labels > 0))
        facts.rows += rows

    def _add_features(self, columns: dict[str, Any], labels: NDArray[np.float64], positive: NDArray[np.bool_]) -> None:
        names, values = [], []
        for name, column in columns.items():
            if name in (*_TEXTS, LABEL, "fragments", *PREDICTED):
                continue
            found = numbers_of(column)
            if found is None:
                continue
            self.facts.features.setdefault(name, Distribution()).add(*found)
            names.append(name)
            values.append(found[0][positive] if not found[1] and len(found[0]) == len(positive) else None)
        if self._features is None:
            self._features = names
            self._correlations = LogCorrelations(len(names))
        if self._features == names and self._correlations is not None:
            kept = [np.zeros(int(positive.sum())) if value is None else value for value in values]
            self._correlations.add(kept, labels[positive])

    def finish(self) -> None:
        """Compute the facts that need all rows."""
        facts = self.facts
        facts.keys, facts.labels = np.concatenate(self._keys), np.concatenate(self._labels)
        predicted = np.concatenate(self._predicted)
        if len(predicted) == facts.rows:  # all files have the columns
            facts.predicted = predicted
        ranked = sorted(facts.names, key=lambda at: -np.nan_to_num(facts.labels[at], nan=-1.0))
        facts.names = {at: facts.names[at] for at in ranked[:10]}
        if self._correlations is not None and self._features is not None:
            facts.correlations = dict(zip(self._features, self._correlations.result().tolist(), strict=True))
        digests, held = np.concatenate(self._digests), np.concatenate(self._held)
        if len(digests):
            seen = np.isin(digests[held == 1], digests[held == 0])
            facts.leaking = (int(seen.sum()), len(seen))
            by_module = facts.about.get("split_by") == "module"
            fractions = (float(np.mean(held == 0)),) if by_module else _fractions(facts.about)
            facts.expected = expected_leakage(digests, fractions)


def find_names(facts: SizesFacts, keys: NDArray[np.uint64]) -> dict[int, tuple[str, str]]:
    """Return the names of some keys, (module, function) by key; this reads the table's names again.

    Raises:
        CorpusError: the table is damaged.
    """
    found: dict[int, tuple[str, str]] = {}
    for file in DatasetPaths.of(facts.path, SIZES_FOLDER).parts():
        for columns in iter_columns(file, ("module", "function"), needed=("module", "function")):
            modules, functions = (texts_of(columns[name]) for name in ("module", "function"))
            own = _name_keys(modules, functions)
            for at in np.flatnonzero(np.isin(own, keys)).tolist():
                found[int(own[at])] = (modules[at] or "", functions[at] or "")
    return found


def _fractions(about: dict[str, Any]) -> tuple[float, ...]:
    said = about.get("fractions")
    if (
        isinstance(said, list)
        and len(said) == 3
        and all(isinstance(one, int | float) and 0 <= one <= 1 for one in said)
    ):
        return tuple(map(float, said))
    return _DEFAULT_FRACTIONS


def _name_keys(modules: list[str | None], functions: list[str | None]) -> NDArray[np.uint64]:
    """Return 64 bits of a digest of each row's name."""
    joined = (
        blake2b(f"{module}\0{function}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for module, function in zip(modules, functions, strict=True)
    )
    return np.frombuffer(b"".join(joined), np.uint64)


def _read_modules(path: Path, facts: SizesFacts) -> None:
    wanted = ("module", "status", "reason", "detail", "faithful", "code_size", "explained_size")
    for columns in iter_columns(path, wanted, needed=("module", "status", "reason")):
        names, statuses, reasons = (texts_of(columns[name]) for name in ("module", "status", "reason"))
        facts.module_reasons.update(zip((one or "" for one in reasons), (one or "" for one in statuses), strict=True))
        for name in ("code_size", "explained_size"):
            if name in columns:
                setattr(facts, name, getattr(facts, name) + float(np.nansum(floats_of(columns[name]))))
        if "faithful" in columns:
            faithful = floats_of(columns["faithful"])
            same, known = facts.faithful
            facts.faithful = (same + int(np.nansum(faithful)), known + int(np.isfinite(faithful).sum()))
        for row, status in enumerate(statuses):
            if status != "ok" and len(facts.failed) < 6:
                detail = columns["detail"][row].as_py() if "detail" in columns else ""
                facts.failed.append((names[row] or "", reasons[row] or "", str(detail or "")))
