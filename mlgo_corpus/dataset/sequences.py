"""Write the sequences of a dataset, one for each module and context, as TFRecords of SequenceExamples.

A sequence's steps are its observations in their order, also if a context comes back later in its module. Rows are read
in batches, and each batch is encoded column by column. A sequence that spans several batches keeps its pieces until its
last row is read, and moves large ones to files. So memory is bounded whatever the length of a sequence.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np

from mlgo_corpus.dataset.rows import DatasetRows, ModuleRows, column_values, named_columns
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.formats.records.sequenceexample import (
    MAX_MESSAGE_BYTES,
    Steps,
    encode_floats,
    encode_integers,
    example_header,
    float_step,
    list_header,
)
from mlgo_corpus.formats.records.tfrecord import FRAME_BYTES, extend_crc, record_footer, record_header

REWARD_NAME: Final = "reward"
"""The list that trainers read the reward from; a log's own column of this name is left out."""

# The most memory for the pieces of all sequences together.
_HELD_BYTES = 64 << 20
_COPY_BYTES = 4 << 20
# The number of equal steps that are written at a time.
_EQUAL_STEPS = 1 << 16


@dataclass(frozen=True, slots=True)
class RewardRule:
    """The source of the reward, which is the same at each step of a sequence.

    Attributes:
        of_run: use the reward of the module's run.
        logged: use the last score of the sequence.
        constant: use this number. If all three are unset, no list of rewards is written.
    """

    of_run: bool = False
    logged: bool = False
    constant: float | None = None


@dataclass(slots=True)
class SequenceCounts:
    """The numbers of sequences written and left out.

    Attributes:
        sequences: sequences written, of ``steps`` steps, in ``bytes`` bytes.
        too_short: sequences with too few steps.
        no_reward: sequences of modules whose reward is not known.
        too_large: sequences larger than protobuf's readers accept.
    """

    sequences: int = 0
    steps: int = 0
    bytes: int = 0
    too_short: int = 0
    no_reward: int = 0
    too_large: int = 0

    def add(self, other: SequenceCounts) -> None:
        """Add the numbers of another object."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Column(NamedTuple):
    """A list of the message: its name in UTF-8, and the column that it is made from."""

    key: bytes
    column: str
    spec: TensorSpec

    def encode(self, batch: Any) -> Steps:
        values = column_values(batch, self.column, self.spec.element_count)
        if values.dtype.kind == "f":
            return encode_floats(values)
        try:
            return encode_integers(values)
        except OverflowError as error:
            raise CorpusError(f"observations: column {self.column}: {error}; trainers read only int64") from error


@dataclass(slots=True)
class _Sequence:
    """A sequence to be written; ``pieces`` are its encoded parts so far, for each column."""

    reward: float | None
    steps: int = 0
    last_row: int = 0
    sizes: list[int] = field(default_factory=list)
    pieces: list[list[bytes]] = field(default_factory=list)
    files: list[IO[bytes]] | None = None
    held: int = 0
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True
        self.close()

    def close(self) -> None:
        for file in self.files or ():
            file.close()
        self.pieces, self.files, self.held = [], None, 0


class _Piece(NamedTuple):
    """Consecutive rows, and the sequence that they belong to."""

    first: int
    after: int
    sequence: _Sequence


def write_sequences(
    rows: DatasetRows,
    modules: Sequence[ModuleRows],
    file: IO[bytes],
    *,
    rule: RewardRule,
    min_steps: int,
    spill: Path,
    progress: Callable[[int], None] = lambda _: None,
) -> SequenceCounts:
    """Write the sequences of some modules, whose rows are consecutive, in the order of their last rows.

    ``spill`` is a folder for files without names; ``progress`` is called with the number of rows read.

    Raises:
        CorpusError: the dataset's tables contradict each other, or cannot be read.
        OSError: something cannot be written.
    """
    counts = SequenceCounts()
    pieces = _plan(rows, modules, rule, min_steps, counts)
    writer = _Writer(rows, file, rule, spill, counts)
    try:
        writer.write(modules[0].first, modules[-1].first + modules[-1].rows, pieces, progress)
    finally:
        writer.close()
    return counts


def _plan(
    rows: DatasetRows, modules: Sequence[ModuleRows], rule: RewardRule, min_steps: int, counts: SequenceCounts
) -> list[_Piece]:
    """Return the rows of each sequence to be written, as pieces in the order of the rows."""
    pieces: list[_Piece] = []
    wanted = iter(modules)
    module, end = None, modules[0].first
    of_module: dict[str | None, _Sequence] = {}
    every: list[_Sequence] = []
    for run in rows.iter_runs(modules[0].first, modules[-1].first + modules[-1].rows):
        if run.first == end:
            module = next(wanted)
            end += module.rows
            of_module = {}
        if module is None or run.module != module.module or run.after > end:
            raise rows.contradiction(f"row {run.first} is of {run.module}, but not according to modules.parquet")
        sequence = of_module.get(run.context)
        if sequence is None:
            sequence = of_module[run.context] = _Sequence(module.reward if rule.of_run else rule.constant)
            every.append(sequence)
        sequence.steps += run.after - run.first
        sequence.last_row = run.after - 1
        if pieces and pieces[-1].sequence is sequence and pieces[-1].after == run.first:
            pieces[-1] = pieces[-1]._replace(after=run.after)
        else:
            pieces.append(_Piece(run.first, run.after, sequence))
    for sequence in every:
        if sequence.steps < min_steps:
            counts.too_short += 1
            sequence.dropped = True
        elif rule.of_run and sequence.reward is None:
            counts.no_reward += 1
            sequence.dropped = True
    return [piece for piece in pieces if not piece.sequence.dropped]


class _Writer:
    """Encodes batches of rows and writes the sequences that are complete."""

    def __init__(
        self, rows: DatasetRows, file: IO[bytes], rule: RewardRule, spill: Path, counts: SequenceCounts
    ) -> None:
        header = rows.header
        columns = named_columns(header)
        self._rows = rows
        self._file = file
        self._rule = rule
        self._spill = spill
        self._counts = counts
        self._columns = sorted(
            _Column(spec.name.encode(), columns[spec.name], spec) for spec in header.columns if spec.name != REWARD_NAME
        )
        self._reward_key = REWARD_NAME.encode()
        self._has_reward = rule != RewardRule()
        # The position of the list of rewards among the lists.
        self._reward_at = sum(column.key < self._reward_key for column in self._columns)
        self._score = columns[header.score.name] if rule.logged and header.score is not None else None
        self._score_width = 1 if header.score is None else header.score.element_count
        self._open: list[_Sequence] = []

    def write(self, first: int, after: int, pieces: Sequence[_Piece], progress: Callable[[int], None]) -> None:
        names = [column.column for column in self._columns]
        if self._score is not None and self._score not in names:
            names.append(self._score)
        waiting = iter(pieces)
        piece = next(waiting, None)
        for begin, batch in self._rows.iter_batches(names, first, after):
            end = begin + batch.num_rows
            within: list[_Piece] = []
            while piece is not None and piece.first < end:
                within.append(piece._replace(first=max(begin, piece.first), after=min(end, piece.after)))
                if piece.after > end:
                    break
                piece = next(waiting, None)
            if within:
                self._write_batch(begin, batch, within)
            progress(batch.num_rows)

    def close(self) -> None:
        for sequence in self._open:
            sequence.close()

    def _write_batch(self, begin: int, batch: Any, pieces: Sequence[_Piece]) -> None:
        encoded = [column.encode(batch) for column in self._columns]
        if self._score is not None:
            scores = column_values(batch, self._score, self._score_width)[:, 0]
            for piece in pieces:
                if piece.after - 1 == piece.sequence.last_row:
                    piece.sequence.reward = float(scores[piece.sequence.last_row - begin])
        data = [steps.data.data for steps in encoded]
        firsts = np.array([piece.first - begin for piece in pieces])
        afters = np.array([piece.after - begin for piece in pieces])
        starts = zip(*(steps.offsets[firsts].tolist() for steps in encoded), strict=True)
        stops = zip(*(steps.offsets[afters].tolist() for steps in encoded), strict=True)
        bounds = zip(starts, stops, strict=True) if encoded else (((), ()) for _ in pieces)
        for piece, (start, stop) in zip(pieces, bounds, strict=True):
            sequence = piece.sequence
            if sequence.dropped:
                continue
            views = [part[a:b] for part, a, b in zip(data, start, stop, strict=True)]
            is_whole = piece.after - 1 == sequence.last_row
            if is_whole and not sequence.pieces:
                self._write_whole(sequence, views)
            else:
                self._keep(sequence, views)
                if is_whole:
                    self._write_pieces(sequence)

    def _write_whole(self, sequence: _Sequence, views: Sequence[memoryview]) -> None:
        parts: list[bytes | memoryview] = []
        for column, view in zip(self._columns, views, strict=True):
            parts += (list_header(column.key, len(view)), view)
        if self._has_reward:
            parts[2 * self._reward_at : 2 * self._reward_at] = [self._reward_header(sequence), *self._rewards(sequence)]
        size = sum(map(len, parts))
        header = example_header(size)
        if self._fits(sequence, len(header) + size):
            data = b"".join((header, *parts))
            for part in (record_header(len(data)), data, record_footer(extend_crc(0, data))):
                self._file.write(part)

    def _keep(self, sequence: _Sequence, views: Sequence[memoryview]) -> None:
        """Keep the encoded part of a sequence until the rest is read."""
        if not sequence.pieces:
            sequence.pieces = [[] for _ in views]
            sequence.sizes = [0] * len(views)
            self._open.append(sequence)
        for index, view in enumerate(views):
            sequence.pieces[index].append(bytes(view))
            sequence.sizes[index] += len(view)
            sequence.held += len(view)
        if sum(sequence.sizes) > MAX_MESSAGE_BYTES:
            self._counts.too_large += 1
            self._forget(sequence)
        while sum(each.held for each in self._open) > _HELD_BYTES:
            self._to_files(max(self._open, key=lambda each: each.held))

    def _to_files(self, sequence: _Sequence) -> None:
        if sequence.files is None:
            sequence.files = [self._unnamed_file() for _ in sequence.sizes]
        for file, pieces in zip(sequence.files, sequence.pieces, strict=True):
            file.writelines(pieces)
            pieces.clear()
        sequence.held = 0

    def _unnamed_file(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=self._spill)

    def _forget(self, sequence: _Sequence) -> None:
        sequence.drop()
        self._open.remove(sequence)

    def _write_pieces(self, sequence: _Sequence) -> None:
        if sequence.dropped:
            return
        headers = [list_header(column.key, size) for column, size in zip(self._columns, sequence.sizes, strict=True)]
        size = sum(map(len, headers)) + sum(sequence.sizes)
        if self._has_reward:
            size += len(self._reward_header(sequence)) + len(float_step(0)) * sequence.steps
        header = example_header(size)
        if self._fits(sequence, len(header) + size):
            self._file.write(record_header(len(header) + size))
            crc = extend_crc(0, header)
            self._file.write(header)
            for part in self._parts(sequence, headers):
                crc = extend_crc(crc, part)
                self._file.write(part)
            self._file.write(record_footer(crc))
        self._forget(sequence)

    def _parts(self, sequence: _Sequence, headers: Sequence[bytes]) -> Iterator[bytes]:
        for index in range(len(headers) + 1):
            if index == self._reward_at and self._has_reward:
                yield self._reward_header(sequence)
                yield from self._rewards(sequence)
            if index < len(headers):
                yield headers[index]
                if sequence.files is not None:
                    sequence.files[index].seek(0)
                    while block := sequence.files[index].read(_COPY_BYTES):
                        yield block
                yield from sequence.pieces[index]

    def _fits(self, sequence: _Sequence, size: int) -> bool:
        if size > MAX_MESSAGE_BYTES:
            self._counts.too_large += 1
            return False
        self._counts.sequences += 1
        self._counts.steps += sequence.steps
        self._counts.bytes += size + FRAME_BYTES
        return True

    def _reward_header(self, sequence: _Sequence) -> bytes:
        return list_header(self._reward_key, len(float_step(0)) * sequence.steps)

    def _rewards(self, sequence: _Sequence) -> Iterator[bytes]:
        step = float_step(sequence.reward or 0.0)
        whole, rest = divmod(sequence.steps, _EQUAL_STEPS)
        for _ in range(whole):
            yield step * _EQUAL_STEPS
        yield step * rest


def append_file(part: Path, target: Path) -> None:
    """Append a file to another one, and delete it.

    Raises:
        OSError: the other file cannot be written.
    """
    with part.open("rb") as source, target.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        if not _send(source.fileno(), file.fileno()):
            shutil.copyfileobj(source, file, _COPY_BYTES)
    part.unlink()


def _send(source: int, target: int) -> bool:
    """Copy a file within the kernel; return False, with nothing copied, if the system cannot do that."""
    left = size = os.fstat(source).st_size
    while left:
        try:
            sent = os.sendfile(target, source, None, left)
        except OSError as error:
            if left == size and error.errno in (errno.EINVAL, errno.ENOSYS, errno.ENOTSOCK):
                return False
            raise
        if not sent:
            raise OSError(errno.EIO, "ends early")
        left -= sent
    return True
