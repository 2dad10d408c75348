"""The facts of a dataset of decisions for a page, read in one pass over its tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.groups import UNOPTIMISED
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.calls import CALL_COLUMNS
from mlgo_corpus.dataset.folder import SEARCH_TABLES, DatasetPaths
from mlgo_corpus.dataset.observations import KEY_COLUMNS, column_names
from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files.columns import floats_of, iter_ahead, iter_columns, texts_of
from mlgo_corpus.files.folder import read_note
from mlgo_corpus.files.parquet import is_readable
from mlgo_corpus.files.tables import blamed, read_metadata, read_parquet
from mlgo_corpus.formats.logs.events import LogHeader, parse_header
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, TASKS, task_name
from mlgo_corpus.view import words
from mlgo_corpus.view.aggregate import Correlation, Distribution, numbers_of, scaled

NUMBERS: Final = (
    "observations", "contexts", "wall_s", "cpu_s", "max_rss_bytes", "text_size", "code_size", "baseline_text_size",
    "baseline_code_size", "baseline_cpu_s", "baseline_max_rss_bytes", "reward", "faithful", "dropped_bytes",
)  # fmt: skip
"""The columns of numbers of a table of modules; missing columns are NaN."""

MASK: Final = "mask"
"""The feature of evictions that says which places may be chosen."""

_CALLEE = "callee"
# Callees beyond this number, the rarest ones, may be forgotten to bound the memory.
_MOST_CALLEES = 100_000
_UNFAITHFUL = "unfaithful_because"
_TEXTS = ("module", "status", "reason", "detail", "stderr_tail", "header", "opt_level", _UNFAITHFUL)
_EXAMPLES = 4
# Numbers read at a time, at least one row: tensors have hundreds per row. More take memory and are no faster.
_NUMBERS_AT_A_TIME = 1 << 22
_DEFAULT = f"{INLINING}_default"
# The tasks whose decisions are numbers that have an order: an eviction's is the place of a register.
_ORDERED = (INLINING, PRIORITY)

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Failure:
    """The number of modules that failed for one reason, and the first of them: name, detail, end of stderr."""

    modules: int = 0
    examples: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass(slots=True)
class DatasetFacts:
    """A dataset's numbers.

    Attributes:
        shown: the dataset's folder, file or URL.
        about: the content of ``dataset.json``, or the metadata of its tables; may be empty.
        header: the logs' header, or None.
        task: LLVM's name of the task, or None.
        names: the modules' names.
        levels: the optimisation levels of the modules' commands; empty text where it is unknown.
        unfaithful: by module, why an object of the default policy is not the baseline's, where that is recorded.
        reasons: the number of modules by (reason, status).
        numbers: `NUMBERS`, each of shape (modules,).
        failures: the failed modules by reason.
        observations: the number of rows of observations.
        features: the distribution of each column of numbers, in order; for a tensor, of all its elements.
        relations: the correlation of each feature with the decision, where decisions are numbers that have an order.
        widths: the number of elements of each column.
        masked: columns in which only the elements that an eviction may choose are counted.
        skipped: columns without numbers.
        decision: the column of the decision, or None.
        score: the column of the score, or None.
        agreement: of inlining decisions, (those equal to LLVM's heuristic, those for which it is recorded).
        otherwise: of inlining decisions that are not the heuristic's, how often each callee was inlined (1) or not (0).
    """

    shown: str
    about: dict[str, Any]
    header: LogHeader | None = None
    task: str | None = None
    names: list[str] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    unfaithful: dict[str, str] = field(default_factory=dict)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=lambda: defaultdict(Failure))
    observations: int = 0
    features: dict[str, Distribution] = field(default_factory=dict)
    relations: dict[str, Correlation] = field(default_factory=lambda: defaultdict(Correlation))
    widths: dict[str, int] = field(default_factory=dict)
    masked: set[str] = field(default_factory=set)
    skipped: list[str] = field(default_factory=list)
    decision: str | None = None
    score: str | None = None
    agreement: tuple[int, int] = (0, 0)
    otherwise: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """The number of modules that failed."""
        return sum(count for (_, status), count in self.reasons.items() if status != STATUS_OK)

    @property
    def measure(self) -> str:
        """The size that rewards are computed from: ``text_size`` or ``code_size``."""
        return "code_size" if self.about.get("measure") == "code_size" else "text_size"

    @property
    def has_sizes(self) -> bool:
        """Whether any module has a size and a baseline."""
        return bool(self.sized.any())

    @property
    def sized(self) -> NDArray[np.bool_]:
        """For each module, whether it has a size and a baseline, in a run that did not fail."""
        known = np.isfinite(self.numbers[self.measure]) & np.isfinite(self.numbers[f"baseline_{self.measure}"])
        known &= (self.numbers[self.measure] >= 0) & (self.numbers[f"baseline_{self.measure}"] >= 0)
        return np.asarray(known & np.isfinite(self.numbers["reward"]))

    @property
    def decided(self) -> NDArray[np.bool_]:
        """For each module, whether it has sizes, and the compiler had something to decide: only there can they differ.

        All figures about sizes are of these modules; the others would dilute every percentage.
        """
        return np.asarray(self.sized & (self.numbers["observations"] > 0))

    @property
    def unoptimised(self) -> int:
        """The number of modules without a decision whose command is at -O0."""
        levels = np.array(self.levels) == UNOPTIMISED
        return int((levels & ~(self.numbers["observations"] > 0)).sum())


def read_dataset_facts(path: Path, progress: Progress | None = None) -> DatasetFacts:
    """Read the facts of a dataset.

    Raises:
        CorpusError: a table is missing or damaged, or rows are missing.
        UsageError: the path cannot be inspected.
    """
    paths = DatasetPaths.of(path)
    facts = DatasetFacts(str(path), _about(paths))
    with blamed(paths.modules):
        _read_modules(paths.modules, facts)
    _find_roles(facts)
    files = paths.parts()
    for number, file in enumerate(files):
        _read_observations(file, facts, progress, number, len(files))
    expected = np.nansum(facts.numbers["observations"])
    if facts.observations < expected:
        what = f"there are {facts.observations} rows of observations, {paths.modules.name} says {expected:.0f}"
        raise CorpusError(f"{path}: its tables contradict each other: {what}")
    for table in () if paths.single else (paths.root / name for name in SEARCH_TABLES):
        if table.is_file():
            read_metadata(table)  # nothing of it is shown, but a damaged one is told
    return facts


def _about(paths: DatasetPaths) -> dict[str, Any]:
    """Return the dataset's description; that of a single file is in its tables."""
    if paths.single:
        said = read_metadata(paths.modules) if paths.modules.is_file() else {}
        key = said.pop("key", None)
        return {**(key if isinstance(key, dict) else {}), **said, **read_metadata(paths.root)}
    said = read_note(paths.whole)
    return said if isinstance(said, dict) else {}


def _read_modules(path: Path, facts: DatasetFacts) -> None:
    parts: dict[str, list[NDArray[np.float64]]] = {name: [np.zeros(0)] for name in NUMBERS}
    for columns in iter_columns(path, (*_TEXTS, *NUMBERS), needed=("module", "status", "reason")):
        names = [name or "" for name in texts_of(columns["module"])]
        facts.names += names
        levels = texts_of(columns["opt_level"]) if "opt_level" in columns else [None] * len(names)
        facts.levels += [level or "" for level in levels]
        for name in NUMBERS:
            found = floats_of(columns[name]) if name in columns else np.full(len(names), np.nan)
            parts[name].append(found)
        status, reason = (texts_of(columns[name]) for name in ("status", "reason"))
        facts.reasons.update(zip((one or "" for one in reason), (one or "" for one in status), strict=True))
        for row in (number for number, word in enumerate(status) if word != STATUS_OK):
            _add_failure(facts.failures[reason[row] or ""], names[row], columns, row)
        if _UNFAITHFUL in columns:
            why = zip(names, texts_of(columns[_UNFAITHFUL]), strict=True)
            facts.unfaithful.update((name, because) for name, because in why if because)
        if facts.header is None and "header" in columns:
            facts.header = _first_header(columns["header"])
    facts.numbers = {name: np.concatenate(values) for name, values in parts.items()}


def _add_failure(failure: Failure, name: str, columns: dict[str, Any], row: int) -> None:
    failure.modules += 1
    if len(failure.examples) < _EXAMPLES:
        said = (columns[key][row].as_py() if key in columns else None for key in ("detail", "stderr_tail"))
        detail, tail = (str(text) if text else "" for text in said)
        failure.examples.append((name, words.shown(detail, 400), words.shown_lines(tail)))


def _first_header(column: Any) -> LogHeader | None:
    lines = column.drop_null()
    try:
        return parse_header(str(lines[0].as_py()).encode("utf-8", "surrogateescape")) if len(lines) else None
    except FormatError:  # the observations can be read without it
        return None


def _find_roles(facts: DatasetFacts) -> None:
    """Set the task, and the columns of the decision and the score."""
    if facts.header is None:
        facts.task = facts.about.get("task") if isinstance(facts.about.get("task"), str) else None
        facts.decision = next((task.decision for task in TASKS if task.name == facts.task), None)
        return
    header = facts.header
    facts.task = task_name(header)
    names = column_names(header)
    if header.features:
        facts.decision = names[len(header.features) - 1]
    if header.score is not None:
        facts.score = names[-1]


def _read_observations(path: Path, facts: DatasetFacts, progress: Progress | None, number: int, files: int) -> None:
    with read_parquet(path) as file:
        schema = file.schema_arrow
        facts.skipped += [
            field.name for field in schema if not is_readable(field.type) and field.name not in facts.skipped
        ]
        names = [name for name in schema.names if name not in (*KEY_COLUMNS, *CALL_COLUMNS, *facts.skipped)]
        joint = [facts.decision, _DEFAULT] if {facts.decision, _DEFAULT} <= set(names) else []
        total = file.metadata.num_rows
        done = 0
        for rows, columns in _iter_numbers(file, names, facts):
            if rows and joint:
                _add_agreement(facts, columns, joint)
            if facts.task in _ORDERED:
                _add_relations(facts, columns, rows)
            done += rows
            if progress is not None:
                progress(number * 1000 + 1000 * done // max(total, 1), files * 1000)
        facts.observations += total
        if joint and _CALLEE in schema.names:
            _count_otherwise(file, facts, [_CALLEE, *map(str, joint)])


def _count_otherwise(file: Any, facts: DatasetFacts, names: Sequence[str]) -> None:
    """Count the callees of decisions that are not LLVM's heuristic's, in bounded memory."""
    import pyarrow.compute as pc

    for batch in file.iter_batches(columns=list(names), batch_size=_NUMBERS_AT_A_TIME // len(names)):
        callee, mine, theirs = (batch.column(batch.schema.get_field_index(name)) for name in names)
        other = pc.not_equal(mine, theirs)
        callees, decisions = callee.filter(other).to_pylist(), mine.filter(other).to_pylist()
        facts.otherwise.update(zip(callees, decisions, strict=True))
        if len(facts.otherwise) > 2 * _MOST_CALLEES:
            facts.otherwise = Counter(dict(facts.otherwise.most_common(_MOST_CALLEES)))


def _iter_numbers(file: Any, names: Sequence[str], facts: DatasetFacts) -> Iterator[tuple[int, dict[str, Any]]]:
    """Add a file's columns to their distributions, and yield the rows and the numbers of each batch."""
    import pyarrow as pa

    widths = {}
    for name in names:
        kind = file.schema_arrow.field(name).type
        widths[name] = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    rows = max(1, _NUMBERS_AT_A_TIME // max(1, sum(widths.values())))
    for batch in iter_ahead(file.iter_batches(batch_size=rows, columns=list(names))):
        found = {}
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        chosen = _places(facts, columns.get(MASK), widths.get(MASK, 1))
        for name, column in columns.items():
            values = numbers_of(column)
            if values is None:
                if name not in facts.skipped:
                    facts.skipped.append(name)
                continue
            facts.widths[name] = widths[name]
            if chosen is not None and name != MASK and len(values[0]) == len(batch) * widths[MASK] and not values[1]:
                facts.masked.add(name)
                values = (values[0].take(chosen), 0)
            facts.features.setdefault(name, Distribution()).add(*values)
            found[name] = values
        yield len(batch), found


def _places(facts: DatasetFacts, mask: Any, width: int) -> NDArray[np.intp] | None:
    """Return the elements of an eviction's tensors that may be chosen; others are 0 and have no meaning."""
    if facts.task != EVICTION or mask is None or width == 1:
        return None
    found = numbers_of(mask)
    return None if found is None or found[1] else np.flatnonzero(found[0])


def _add_relations(facts: DatasetFacts, columns: dict[str, Any], rows: int) -> None:
    if facts.decision not in columns:
        return
    decision, nulls = columns[str(facts.decision)]
    if nulls:
        return
    decided = scaled(decision)
    for name, (values, missing) in columns.items():
        if name not in (facts.decision, facts.score) and not missing and len(values) == rows:
            facts.relations[name].add(scaled(values), decided)


def _add_agreement(facts: DatasetFacts, columns: dict[str, Any], joint: Sequence[str | None]) -> None:
    (mine, nulls), (theirs, more) = (columns.get(name or "", (np.zeros(0), 1)) for name in joint)
    if not nulls and not more and len(mine) == len(theirs):
        same, known = facts.agreement
        facts.agreement = (same + int((mine == theirs).sum()), known + len(mine))
