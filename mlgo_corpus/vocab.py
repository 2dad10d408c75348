"""The vocabulary stage: write the quantiles with which ml-compiler-opt's models normalise their features.

``FEATURE.buckets`` holds ``numpy.quantile(values, numpy.linspace(0, 1, buckets))``, a number on each line. A model
replaces a value by the share of these numbers that are not above it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus import __version__
from mlgo_corpus.compilers.limits import check_count, real_number, whole_number
from mlgo_corpus.dataset.rows import DatasetRows, named_columns
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files.atomic import write_atomically, writing
from mlgo_corpus.files.folder import recover, replaces_own, whole_folder
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.text import os_reason, several
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, task_name
from mlgo_corpus.formats.logs.tensors import shown
from mlgo_corpus.runs.datasets.publish import chosen_rows
from mlgo_corpus.runs.datasets.vocabularies import Column, find_quantiles
from mlgo_corpus.runs.report import Report

# The default of ml-compiler-opt's ``generate_vocab.py``.
_BUCKETS: Final = 1000
_SUFFIX: Final = ".buckets"
# This file describes how a vocabulary was made, and marks it as ours; readers of ``*.buckets`` ignore it.
_ABOUT_NAME: Final = "vocab.json"

# The features that ml-compiler-opt's models do not normalise, by task (``get_nonnormalized_features`` in
# ``rl/*/config.py``). Models of the priority task normalise nothing; there only the score and the decision are skipped.
SKIPPED: Final = {
    INLINING: ("reward", "inlining_decision", "inlining_default"),
    EVICTION: ("mask", "nr_urgent", "is_hint", "is_local", "is_free", "max_stage", "min_stage", "reward"),
    PRIORITY: ("reward", "priority"),
}

_MOST_BUCKETS = 1_000_000
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class FeatureVocabulary:
    """The quantiles of one feature.

    Attributes:
        feature: its name.
        values: number of finite values; each element of a tensor counts.
        not_finite: number of infinite or NaN values, which are left out.
        distinct: number of distinct values; None if there are more than a million, which are not counted.
        minimum: the least value.
        maximum: the greatest value.
        buckets: number of quantiles in its file.
        duplicates: number of quantiles that are equal to the one before.
    """

    feature: str
    values: int
    not_finite: int
    distinct: int | None
    minimum: float
    maximum: float
    buckets: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class VocabularyReport(Report):
    """The result of writing a vocabulary.

    Attributes:
        output: the folder.
        task: ``inlining``, ``regalloc-eviction`` or ``regalloc-priority``; None for other features.
        features: the features that have a file.
        skipped: the features that a model of the task does not normalise.
        empty: the features without a file because they have no finite value.
        modules: number of modules whose observations were read.
        seconds: how long it took.
    """

    _properties: ClassVar = ("exit_code",)

    output: Path
    task: str | None
    features: tuple[FeatureVocabulary, ...]
    skipped: tuple[str, ...]
    empty: tuple[str, ...]
    modules: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 if a feature has no file because it has no finite value, else 0."""
        return 1 if self.empty else 0


def write_vocabulary(
    dataset: Path | str,
    output: Path | str,
    *,
    buckets: int = _BUCKETS,
    features: Sequence[str] | str | None = None,
    unique: bool = False,
    sample: float | None = None,
    seed: int = 0,
    module_filter: str | None = None,
    modules_file: Path | str | None = None,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> VocabularyReport:
    """Write the quantiles of a dataset's features, as ml-compiler-opt's models read them.

    The quantiles are exact, and memory is bounded. Infinite and NaN values are left out and counted.

    Args:
        dataset: of traces or of logs: its folder, its single file, or its URL.
        output: the folder to make.
        buckets: number of quantiles, from the least value to the greatest.
        features: only these features; by default all but `SKIPPED`, which a model of the task does not normalise.
        unique: leave out quantiles that are equal to the one before; ml-compiler-opt keeps them.
        sample: use only this share of the observations. With m observations left, the rank of quantile q is off by
            about ``sqrt(q * (1 - q) / m)`` of all.
        seed: seed for the sample.
        module_filter: only modules whose name matches this regular expression somewhere.
        modules_file: only modules named in this file, one per line; or in a corpus's manifest, or that of one side of
            its split.
        jobs: worker processes; by default the CPUs this process may use.
        force: replace a folder that holds a vocabulary.
        progress: called with (features done, features in all).

    Raises:
        UsageError: the request cannot be carried out.
        CorpusError: the dataset's tables contradict each other, or cannot be read.
        MlgoCorpusError: the output cannot be written.
    """
    started = time.perf_counter()
    buckets, seed = whole_number("buckets", buckets), whole_number("seed", seed)
    sample = real_number("sample", sample)
    check_count("buckets", buckets, most=_MOST_BUCKETS)
    check_count("jobs", jobs)
    check_count("seed", seed, least=0)
    if sample is not None and not 0 < sample <= 1:
        raise UsageError("expected more than 0, and at most 1", option="sample", value=f"{sample:g}")
    place = output_here(output, "a vocabulary", "a folder")
    with ExitStack() as stack:
        chosen = chosen_rows(dataset, module_filter=module_filter, modules_file=modules_file)
        rows = stack.enter_context(chosen)
        task = task_name(rows.header)
        columns, skipped = _chosen(rows, task, None if features is None else several(features))
        options = {"buckets": buckets, "unique": unique, "sample": sample, "seed": seed}
        replace = replaces_own(place, (_ABOUT_NAME, f"*{_SUFFIX}"), "vocab", force=recover(place) or force)
        folder = stack.enter_context(whole_folder(place, replace=replace))
        made, empty = [], []
        most = max(buckets, 2)  # of at least two quantiles the last is the greatest value
        found = find_quantiles(rows, columns, buckets=most, sample=sample, seed=seed, jobs=jobs or available_cpus())
        for number, (column, quantiles) in enumerate(found, 1):
            name = column.spec.name
            if quantiles is None:
                empty.append(name)
            else:
                edges = quantiles.edges[:buckets]
                repeated = edges[1:] == edges[:-1]
                kept = edges[np.concatenate(([True], ~repeated))] if unique else edges
                _write(folder / f"{name}{_SUFFIX}", kept)
                made.append(
                    FeatureVocabulary(
                        feature=name,
                        values=quantiles.count,
                        not_finite=quantiles.not_finite,
                        distinct=quantiles.distinct,
                        minimum=float(edges[0]),
                        maximum=float(quantiles.edges[-1]),
                        buckets=len(kept),
                        duplicates=int(repeated.sum()),
                    )
                )
            if progress is not None:
                progress(number, len(columns))
        if not made:
            raise UsageError(f"{rows.root}: no feature has a finite value{' in the sample' if sample else ''}")
        about = {
            "tool": "mlgo-corpus",
            "version": __version__,
            "made_by": "vocab",
            "task": task,
            **options,
            "features": [asdict(each) for each in made],
            "skipped": skipped,
            "empty": empty,
            "dataset": rows.key,
        }
        _write_file(folder / _ABOUT_NAME, json.dumps(about, indent=2) + "\n")
    return VocabularyReport(
        output=place,
        task=task,
        features=tuple(made),
        skipped=skipped,
        empty=tuple(empty),
        modules=len(rows.modules),
        seconds=time.perf_counter() - started,
    )


def read_vocabulary(folder: Path | str) -> dict[str, NDArray[np.float64]]:
    """Read the quantiles of each feature from a folder of ``FEATURE.buckets`` files, made by any tool.

    Raises:
        CorpusError: there are no such files, or they cannot be read.
    """
    folder = Path(folder)
    found = {}
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            found[path.name.removesuffix(_SUFFIX)] = np.array(
                [float(line) for line in read_regular(path, MAX_NOTE_BYTES).decode().split()], np.float64
            )
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read: {os_reason(error)}") from error
        except ValueError as error:
            raise CorpusError(f"{path}: expected a number on each line: {error}") from error
    if not found:
        raise CorpusError(f"{folder}: no vocabulary: it has no file FEATURE{_SUFFIX}")
    return found


def _chosen(
    rows: DatasetRows, task: str | None, features: Sequence[str] | None
) -> tuple[list[Column], tuple[str, ...]]:
    """Return the columns of the chosen features, and the names of those that a model of the task does not normalise."""
    header = rows.header
    named = named_columns(header)
    there = {spec.name: Column(spec, named[spec.name]) for spec in header.columns}
    if features:
        if unknown := [name for name in features if name not in there]:
            raise UsageError(f"expected one of {', '.join(there)}", option="features", value=unknown[0])
        skipped: tuple[str, ...] = ()
        wanted = list(dict.fromkeys(features))
    else:
        # A score may have any name, and models never read it.
        left_out = {*SKIPPED.get(task or "", ("reward",)), *(() if header.score is None else (header.score.name,))}
        skipped = tuple(name for name in there if name in left_out)
        wanted = [name for name in there if name not in left_out]
    if not wanted:
        raise UsageError(f"{rows.root}: a model normalises none of its features; `features` names others")
    for name in wanted:
        if not name or name.startswith(".") or not name.isprintable() or set(name) & {"/", "\\"}:
            raise UsageError(f"feature {shown(name)}: cannot be a file's name; `features` chooses others")
        if len(name.encode()) > _LONGEST_NAME:
            raise UsageError(f"feature {shown(name)}: too long for a file's name; `features` chooses others")
    return [there[name] for name in wanted], skipped


def _write(path: Path, edges: NDArray[np.float64]) -> None:
    if not all(map(math.isfinite, edges.tolist())):  # differences of numbers near the largest double are infinite
        raise MlgoCorpusError(f"{path.name}: its values are too large: their quantiles are not finite")
    _write_file(path, "".join(f"{edge!r}\n" for edge in edges.tolist()))


def _write_file(path: Path, text: str) -> None:
    with writing(path):
        write_atomically(path, text.encode())
