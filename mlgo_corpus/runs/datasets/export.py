"""The work of an export, in shares that workers process in parallel: each is a run of modules, and becomes a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from mlgo_corpus.dataset.rows import DatasetRows, ModuleRows
from mlgo_corpus.dataset.sequences import RewardRule, SequenceCounts, write_sequences
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import MlgoCorpusError
from mlgo_corpus.files.atomic import writing

# Bytes of observations in a share. A row group of 32 MiB with rows of two shares is read by both.
_SHARE_BYTES = 128 << 20
# Seconds that one share may take: a module may be of any size.
_LIMIT_S = 24 * 3600.0


class Share(NamedTuple):
    """Modules with adjacent rows, and the number of the output file for their sequences."""

    shard: int
    modules: tuple[ModuleRows, ...]

    @property
    def rows(self) -> int:
        """The number of their rows."""
        return sum(module.rows for module in self.modules)


@dataclass(frozen=True, slots=True)
class ShareTask:
    """A worker's task; ``adds`` means that the file may hold other shares already.

    When a share is retried because its worker died, its file is started again.
    """

    rows: DatasetRows
    share: Share
    path: Path
    rule: RewardRule
    min_steps: int
    adds: bool


def make_shares(rows: DatasetRows, shards: int) -> tuple[Share, ...]:
    """Divide modules among shards, in order and with about the same number of rows each, and shards into shares."""
    header = rows.header
    most = max(1, _SHARE_BYTES // max(1, header.tensor_bytes + header.score_bytes))
    total = sum(module.rows for module in rows.modules)
    shares: list[Share] = []
    gathered: list[ModuleRows] = []
    shard = before = 0
    for number, module in enumerate(rows.modules):
        # A shard begins where its part of the rows begins, but no shard may be left without a module.
        due = before * shards >= total * (shard + 1) or len(rows.modules) - number == shards - shard - 1
        next_shard = shard + (number > 0 and due and shard < shards - 1)
        if gathered and (
            next_shard != shard
            or gathered[-1].first + gathered[-1].rows != module.first
            or sum(each.rows for each in gathered) + module.rows > most
        ):
            shares.append(Share(shard, tuple(gathered)))
            gathered = []
        shard = next_shard
        gathered.append(module)
        before += module.rows
    return (*shares, Share(shard, tuple(gathered)))


def write_shares(
    rows: DatasetRows,
    shares: Sequence[Share],
    work: Path,
    *,
    rule: RewardRule,
    min_steps: int,
    jobs: int,
    progress: Callable[[int], None],
) -> Iterator[tuple[Share, Path, SequenceCounts]]:
    """Write the shares' files to a folder; yield each share with its file and its counts, in order.

    ``progress`` is called with the number of rows read.

    Raises:
        CorpusError: the dataset cannot be read.
        MlgoCorpusError: something cannot be written, or a worker died.
    """
    told = replace(rows, modules=(), key=None)
    alone = jobs == 1 or len(shares) == 1
    tasks = [
        # Written one after the other, the shares of a shard go to one file, which need not be joined.
        ShareTask(
            told,
            share,
            work / (f"shard-{share.shard:05d}" if alone else f"share-{number:05d}"),
            rule,
            min_steps,
            adds=alone,
        )
        for number, share in enumerate(shares)
    ]
    if alone:
        for task in tasks:
            yield task.share, task.path, write_share(task, progress)
        return
    results = parallel_map(write_share, tasks, jobs=jobs, limit=_LIMIT_S, weigh=lambda _: 1.0, long_items=True)
    for task, result in zip(tasks, results, strict=True):
        if isinstance(result, Lost):
            raise MlgoCorpusError(f"{rows.root}: a worker was lost: {result.detail}")
        progress(task.share.rows)
        yield task.share, task.path, result


def write_share(task: ShareTask, progress: Callable[[int], None] = lambda _: None) -> SequenceCounts:
    """Write a share's file.

    Raises:
        CorpusError: the dataset cannot be read.
        MlgoCorpusError: the file cannot be written.
    """
    with writing(task.path), task.path.open("ab" if task.adds else "wb") as file:
        return write_sequences(
            task.rows,
            task.share.modules,
            file,
            rule=task.rule,
            min_steps=task.min_steps,
            spill=task.path.parent,
            progress=progress,
        )
