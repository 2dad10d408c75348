"""The export stage: write a dataset's decisions as the files that trainers read.

The files are those of ml-compiler-opt: TFRecords of SequenceExamples (`mlgo_corpus.formats.records.tfrecord`,
`mlgo_corpus.formats.records.sequenceexample`), written without TensorFlow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from mlgo_corpus import __version__
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.dataset.folder import DatasetPaths
from mlgo_corpus.dataset.rows import DatasetRows, named_columns
from mlgo_corpus.dataset.sequences import REWARD_NAME, RewardRule, SequenceCounts, append_file
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import CorpusError, FormatError, UsageError
from mlgo_corpus.files.atomic import write_atomically, writing
from mlgo_corpus.files.folder import check_file, finish_moves, recover, replaces_own, whole_files, whole_folder
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.text import counted, os_reason
from mlgo_corpus.formats.logs.tasks import INLINING, task_name
from mlgo_corpus.formats.records.sequenceexample import SequenceExample, parse_sequence_example
from mlgo_corpus.formats.records.tfrecord import read_records
from mlgo_corpus.runs.datasets.export import make_shares, write_shares
from mlgo_corpus.runs.datasets.publish import chosen_rows
from mlgo_corpus.runs.report import Report

# ml-compiler-opt's readers drop shorter sequences (``data_reader.py``).
_MIN_STEPS: Final = 3
# This file in a folder of TFRecords describes it, and marks it as ours.
_ABOUT_NAME: Final = "export.json"

_MOST_SHARDS = 10_000


class Reward(StrEnum):
    """The reward at each step of a sequence.

    Attributes:
        AUTO: ``SIZE`` for inlining, ``LOGGED`` for the other tasks.
        SIZE: the reward of the module's run: by how much its object is smaller than the baseline's.
        LOGGED: the last score in the log's context.
        ZERO: 0, as in the default traces of ml-compiler-opt itself, whose policy is the baseline.
        NONE: no list of rewards, which ml-compiler-opt's readers require.
    """

    AUTO = "auto"
    SIZE = "size"
    LOGGED = "logged"
    ZERO = "zero"
    NONE = "none"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UsageError(f"expected one of {', '.join(cls)}", option="reward", value=value)


@dataclass(frozen=True, slots=True)
class ExportReport(Report):
    """The result of an export.

    Attributes:
        output: the file, or the folder of ``files`` files.
        task: ``inlining``, ``regalloc-eviction`` or ``regalloc-priority``; None for other features.
        reward: a value of `Reward`, never ``auto``.
        modules: number of selected modules; ``missing`` others are not in the dataset because their runs failed.
        sequences: number of sequences written, with ``steps`` steps in all.
        output_bytes: bytes of the files.
        too_short: number of sequences not written because they have fewer than ``min_steps`` steps.
        no_reward: number of sequences not written because the reward of their module is unknown.
        too_large: number of sequences not written because protobuf's readers reject messages of 2 GiB.
        min_steps: the minimum number of steps of a sequence.
        hints: advice for the user.
        seconds: how long it took.
    """

    _properties: ClassVar = ("exit_code",)

    output: Path
    files: int
    task: str | None
    reward: str
    modules: int
    missing: int
    sequences: int
    steps: int
    output_bytes: int
    too_short: int
    no_reward: int
    too_large: int
    min_steps: int
    hints: tuple[str, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 if a sequence was not written for lack of a reward or for its size, else 0."""
        return 1 if self.no_reward or self.too_large else 0


def export_tfrecord(
    dataset: Path | str,
    output: Path | str,
    *,
    reward: Reward | str = Reward.AUTO,
    min_steps: int = _MIN_STEPS,
    shards: int | None = None,
    module_filter: str | None = None,
    modules_file: Path | str | None = None,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Write a dataset's decisions as the TFRecords that ml-compiler-opt's trainers read.

    Each context of each module becomes a SequenceExample. It has a list for each feature, under LLVM's name, and one
    called ``reward``. The bytes depend only on the dataset and the options.

    Args:
        dataset: of traces or of logs: its folder, its single file, or its URL.
        output: the file; with ``shards`` the folder.
        reward: the kind of reward, see `Reward`.
        min_steps: leave out shorter sequences, as ml-compiler-opt's readers do.
        shards: write a folder of this many files, or of one for each module with observations if these are fewer.
        module_filter: only modules whose name matches this regular expression somewhere.
        modules_file: only modules named in this file, one per line; or in a corpus's manifest, or that of one side of
            its split.
        jobs: worker processes; by default the CPUs this process may use.
        force: replace the file, or a folder that an export made.
        progress: called with (rows done, rows in all).

    Raises:
        UsageError: the request cannot be carried out as it stands, or nothing would be in the output.
        CorpusError: the dataset's tables contradict each other, or cannot be read.
        MlgoCorpusError: the output cannot be written.
    """
    started = time.perf_counter()
    reward = Reward(reward)
    check_count("min_steps", min_steps)
    check_count("jobs", jobs)
    check_count("shards", shards, most=_MOST_SHARDS)
    place = output_here(output, "an export", "a file or a folder")
    with chosen_rows(dataset, module_filter=module_filter, modules_file=modules_file) as rows:
        named_columns(rows.header)
        chosen = _chosen(rows, reward)
        rule = RewardRule(
            of_run=chosen is Reward.SIZE,
            logged=chosen is Reward.LOGGED,
            constant=0.0 if chosen is Reward.ZERO else None,
        )
        count = 1 if shards is None else min(shards, len(rows.modules))
        made = _Export(rows, rule, min_steps, jobs or available_cpus(), progress)
        if shards is None:
            counts = made.to_file(place, force=force)
        else:
            options = {"reward": chosen.value, "min_steps": min_steps, "module_filter": module_filter}
            counts = made.to_folder(place, count, options, force=force)
    return ExportReport(
        output=place,
        files=count,
        task=task_name(rows.header),
        reward=chosen.value,
        modules=len(rows.modules),
        missing=rows.missing,
        sequences=counts.sequences,
        steps=counts.steps,
        output_bytes=counts.bytes,
        too_short=counts.too_short,
        no_reward=counts.no_reward,
        too_large=counts.too_large,
        min_steps=min_steps,
        hints=tuple(_hints(rows.missing, count, shards or 1)),
        seconds=time.perf_counter() - started,
    )


def _hints(missing: int, files: int, shards: int) -> Iterator[str]:
    """Yield why there is less than requested."""
    if missing:
        yield f"the dataset has no data of {counted(missing, 'module')}, because their runs failed"
    if files < shards:
        yield f"{counted(files, 'file')} instead of {shards}: a module is in one file, and no more have decisions"


def read_tfrecord(path: Path | str) -> Iterator[SequenceExample]:
    """Yield the SequenceExamples of a TFRecord file that is not compressed.

    Raises:
        FormatError: it is not such a file, or is damaged; the records before the damage are yielded.
        CorpusError: it cannot be read.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            for number, data in enumerate(read_records(file)):
                try:
                    example = parse_sequence_example(data)
                except FormatError as error:
                    raise type(error)(f"record {number}: {error}") from error
                yield example
    except FormatError as error:
        raise error.at(path) from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {os_reason(error)}") from error


def _chosen(rows: DatasetRows, reward: Reward) -> Reward:
    """Return the kind of reward, with ``auto`` resolved.

    Raises:
        UsageError: the dataset does not have that reward.
    """
    header = rows.header
    if not any(spec.name != REWARD_NAME for spec in header.features):
        raise UsageError(f"{rows.root}: its logs have no features")
    others = "`reward` zero writes 0, which is enough to imitate decisions; `reward` none leaves it out"
    if reward is Reward.AUTO:
        reward = Reward.SIZE if task_name(header) == INLINING or header.score is None else Reward.LOGGED
    if reward is Reward.SIZE and not rows.has_rewards:
        raise UsageError(f"{rows.root}: made from training logs, which have no sizes; use a trace, or: {others}")
    if reward is Reward.LOGGED and header.score is None:
        raise UsageError(f"{rows.root}: its logs have no score; {others}")
    return reward


@dataclass(frozen=True, slots=True)
class _Export:
    """An export to one file or to a folder of files."""

    rows: DatasetRows
    rule: RewardRule
    min_steps: int
    jobs: int
    progress: Callable[[int, int], None] | None

    def to_file(self, output: Path, *, force: bool) -> SequenceCounts:
        paths = DatasetPaths.of(self.rows.root)
        inputs = (paths.root, paths.modules, paths.contexts)
        untold = output in finish_moves(output)
        check_file(output, inputs, "name a file, or set `shards` for a folder of files", force=force or untold)
        with whole_files(output) as files:
            return self._write(files.folder, [files.make(output)])

    def to_folder(self, output: Path, count: int, options: dict[str, Any], *, force: bool) -> SequenceCounts:
        names = [f"traces-{number:05d}-of-{count:05d}.tfrecord" for number in range(count)]
        replace = replaces_own(output, (_ABOUT_NAME, "traces-*.tfrecord"), "export", force=recover(output) or force)
        with whole_folder(output, replace=replace) as folder:
            counts = self._write(folder, [folder / name for name in names])
            about = {
                "tool": "mlgo-corpus",
                "version": __version__,
                "made_by": "export",
                **options,
                "header": self.rows.line.decode(),
                "dataset": self.rows.key,
                **asdict(counts),
                "files": names,
            }
            write_atomically(folder / _ABOUT_NAME, (json.dumps(about, indent=2) + "\n").encode())
        return counts

    def _write(self, work: Path, files: Sequence[Path]) -> SequenceCounts:
        shares = make_shares(self.rows, len(files))
        total = sum(share.rows for share in shares)
        done = 0

        def tell(count: int) -> None:
            nonlocal done
            done += count
            if self.progress is not None:
                self.progress(done, total)

        counts = SequenceCounts()
        parts: list[Path | None] = [None] * len(files)
        written = write_shares(
            self.rows, shares, work, rule=self.rule, min_steps=self.min_steps, jobs=self.jobs, progress=tell
        )
        with writing(work):
            for share, path, of_share in written:
                counts.add(of_share)
                if (begun := parts[share.shard]) is None:
                    parts[share.shard] = path
                elif begun != path:
                    append_file(path, begun)
            if not counts.sequences:
                raise UsageError(f"{self.rows.root}: {_nothing_left(counts, self.min_steps)}")
            for part, file in zip(parts, files, strict=True):
                if part is not None:
                    part.replace(file)
        return counts


def _nothing_left(counts: SequenceCounts, min_steps: int) -> str:
    if counts.no_reward:
        return f"the reward of {counts.no_reward} sequences is unknown; `reward` zero writes 0"
    if counts.too_large:
        return f"{counts.too_large} sequences are larger than 2 GiB, the most that readers accept"
    return f"all {counts.too_short} sequences have fewer than {min_steps} steps; `min_steps` 1 keeps them"
