"""The quantiles of a dataset's features; workers find them in parallel, each reading the columns of its features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.rows import DatasetRows, column_values
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import CorpusError, MlgoCorpusError
from mlgo_corpus.files.quantiles import Quantiles, quantiles
from mlgo_corpus.formats.logs.tensors import TensorSpec

# Sorting many values at a time makes the passes fast.
_VALUES_AT_A_TIME: Final = 1 << 19
_LIMIT_S = 24 * 3600.0


class Column(NamedTuple):
    """A feature and its column."""

    spec: TensorSpec
    column: str


@dataclass(frozen=True, slots=True)
class _FeatureTask:
    """A worker's task; ``sample`` is the share of observations to use, None for all."""

    rows: DatasetRows
    column: Column
    buckets: int
    sample: float | None
    seed: int

    def batches(self) -> Iterator[NDArray[Any]]:
        """Yield the feature's values in batches: integers as int64, tensors element by element.

        Raises:
            CorpusError: they cannot be read.
        """
        spec, column = self.column
        generator = np.random.default_rng(self.seed)  # every pass draws the same sample
        batch_rows = max(1, _VALUES_AT_A_TIME // spec.element_count)
        for first, after in self.rows.ranges():
            for _, batch in self.rows.iter_batches([column], first, after, batch_rows=batch_rows):
                values = column_values(batch, column, spec.element_count)
                if self.sample is not None:
                    values = values[generator.random(len(values)) < self.sample]
                if values.dtype == np.uint64 and len(values) and int(values.max()) >= 1 << 63:
                    said = f"{int(values.max())} is no int64; trainers read only int64; `features` chooses others"
                    raise CorpusError(f"observations: column {column}: {said}")
                flat = values.reshape(-1)
                yield flat if flat.dtype.kind == "f" else flat.astype(np.int64, copy=False)


def find_quantiles(
    rows: DatasetRows, columns: Sequence[Column], *, buckets: int, sample: float | None, seed: int, jobs: int
) -> Iterator[tuple[Column, Quantiles | None]]:
    """Yield the quantiles of each column, in order; None for a feature without finite values.

    Raises:
        CorpusError: the dataset cannot be read.
        MlgoCorpusError: a worker died.
    """
    told = replace(rows, key=None)
    tasks = [_FeatureTask(told, column, buckets, sample, seed) for column in columns]
    if jobs == 1 or len(tasks) == 1:
        for task in tasks:
            yield task.column, _find_of_feature(task)
        return
    results = parallel_map(_find_of_feature, tasks, jobs=jobs, limit=_LIMIT_S, weigh=lambda _: 1.0, long_items=True)
    for task, result in zip(tasks, results, strict=True):
        if isinstance(result, Lost):
            raise MlgoCorpusError(f"{rows.root}: {task.column.column}: a worker was lost: {result.detail}")
        yield task.column, result


def _find_of_feature(task: _FeatureTask) -> Quantiles | None:
    """Find the quantiles of a feature.

    Raises:
        CorpusError: the dataset cannot be read.
    """
    rows = sum(after - first for first, after in task.rows.ranges())
    return quantiles(task.batches, task.buckets, at_most=rows * task.column.spec.element_count)
