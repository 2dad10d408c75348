"""One thing done to every module of a corpus, resumably.

A stage says in a `Job` what is done to one module. `Over` gives the modules to workers, yields the outcomes in the
modules' order, and knows after an interruption which of them need not be made again.

Outcomes are kept in the work folder, in journals: files ``rows-*.jsonl``, one for each worker process, with a line
``NUMBER JSON`` for each module. A worker writes the line when all that the outcome speaks of is whole, so that neither
its own death nor the driver's loses it; a torn last line does not count. The driver holds 17 bytes for each
module, and no outcome.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar
from uuid import uuid4

import numpy as np

from mlgo_corpus.compilers.compile import RUN_PREFIX
from mlgo_corpus.compilers.confinement import try_walls
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.engine.choice import HERE, EngineChoice, Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.files.folder import WORK_JOURNALS
from mlgo_corpus.files.regular import open_regular

# Seconds beyond the programs' own limits for reading, compressing and a busy machine.
_SLACK_S = 120.0
# A line has one module's command and what its compiler said.
_LONGEST_LINE = 64 << 20


class _Item(Protocol):
    """One module to work on, and its number among those of the run."""

    @property
    def number(self) -> int:
        """Its place among them, from 0."""


Item = TypeVar("Item", bound=_Item)
Outcome = TypeVar("Outcome")
_In = TypeVar("_In", bound=_Item, contravariant=True)


class Job(Protocol[_In, Outcome]):
    """A stage's work on one module; it is pickled, and runs in workers.

    An outcome is something that JSON can hold, with lists for tuples.
    """

    @property
    def work(self) -> Path:
        """The folder for work under way, absolute."""

    @property
    def limit_s(self) -> float:
        """Seconds that all programs of one module may take together."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that it runs."""

    @property
    def trusted(self) -> bool:
        """Whether these run without walls."""

    def run(self, item: _In) -> Outcome:
        """Do it. What goes wrong with the module is in the outcome.

        Raises:
            OSError: the work folder cannot be written; the whole run ends.
        """

    def lost(self, item: _In, lost: Lost) -> Outcome:
        """Return the outcome for a module whose worker died."""

    def outcome(self, record: Any) -> Outcome:
        """Return the outcome that JSON held.

        Raises:
            ValueError, TypeError: it is none.
        """

    def is_whole(self, item: _In, outcome: Outcome) -> bool:
        """Return True if an outcome need not be made again, and all that it speaks of is there."""


class Over(Generic[Item, Outcome]):
    """A job done to every module.

    Args:
        job: what is done.
        items: returns an iterator over the items, the same each time; their numbers count from 0.
        count: the number of items.
        jobs: the number of workers; None for one on each CPU.
        engine: where the workers run.
        needs: what has to be there besides the job's work folder and programs, absolute paths.

    Attributes:
        resumed: how many outcomes an earlier, interrupted run had made.
    """

    def __init__(
        self,
        job: Job[Item, Outcome],
        items: Callable[[], Iterator[Item]],
        count: int,
        *,
        jobs: int | None,
        engine: EngineChoice = HERE,
        needs: Sequence[Path | str] = (),
    ) -> None:
        self.resumed = 0
        self._job = job
        self._items = items
        self._count = count
        self._jobs = jobs
        self._engine = engine
        self._needs = needs
        self._index = _Index(job.work, count)
        self._known = np.zeros(count, np.bool_)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield each module's outcome in order: the one that is known already, or the one made now.

        Raises:
            OSError: the work folder cannot be written.
        """
        job = self._job
        for left_behind in job.work.glob(f"{RUN_PREFIX}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        if self._index.load():
            for item in self._items():
                self._known[item.number] = self._find(item) is not None
        self.resumed = int(self._known.sum())
        if not job.trusted and self.resumed < self._count:
            try_walls(job.programs)
        made = parallel_map(
            partial(_do, job),
            (item for item in self._items() if not self._known[item.number]),
            jobs=self._jobs,
            limit=job.limit_s + _SLACK_S,
            weigh=lambda _: 1.0,
            long_items=True,
            engine=self._engine,
            needs=(job.work, *self._needs, *job.programs),
        )
        try:
            for item in self._items():
                if self._known[item.number]:
                    yield self._kept(item)
                    continue
                result = next(made)
                if isinstance(result, Lost):
                    outcome = job.lost(item, result)
                    place = _keep(job, item.number, outcome)
                else:
                    outcome, place = result
                self._index.put(item.number, place)
                yield outcome
            for _ in made:
                raise AssertionError("as many results as items")
        finally:
            if (written := _WRITTEN.pop((os.getpid(), job.work), None)) is not None:
                written.close()

    def again(self) -> Iterator[Outcome]:
        """Yield the same outcomes once more, from the journals."""
        return map(self._kept, self._items())

    def _find(self, item: Item) -> Outcome | None:
        """Return what an earlier run kept of an item, if it need not be made again."""
        with suppress(OSError, ValueError, TypeError, RecursionError):
            outcome = self._kept(item)
            return outcome if self._job.is_whole(item, outcome) else None
        return None

    def _kept(self, item: Item) -> Outcome:
        return self._job.outcome(json.loads(self._index.read(item.number)))


def lost_reason(lost: Lost) -> RunReason:
    """Return the reason in the row of a module whose worker died."""
    return RunReason.TIMEOUT if lost.timed_out else RunReason.WORKER_DIED


Place = tuple[str, int, int]
"""Where an outcome's JSON is: the journal's name, the first byte, and how many there are."""


def _do(job: Job[Item, Outcome], item: Item) -> tuple[Outcome, Place]:
    outcome = job.run(item)
    return outcome, _keep(job, item.number, outcome)


class _Journal:
    """A journal that this process writes."""

    def __init__(self, work: Path) -> None:
        self._path = work / WORK_JOURNALS.replace("*", uuid4().hex)
        self._file: IO[bytes] = open(self._path, "xb", buffering=0)  # noqa: SIM115 - closed at the end of the run, or with the process
        self._size = 0

    def is_there(self) -> bool:
        """Return False if the file was removed, as at the end of another run in the same folder."""
        return os.fstat(self._file.fileno()).st_nlink > 0

    def add(self, number: int, outcome: Any) -> Place:
        """Add a line.

        Raises:
            OSError: it cannot be written.
        """
        head = b"%d " % number
        line = head + json.dumps(outcome).encode() + b"\n"
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error
        place = (self._path.name, self._size + len(head), len(line) - len(head) - 1)
        self._size += len(line)
        return place

    def close(self) -> None:
        self._file.close()


# The journals of this process, by their work folders; a fork has its own.
_WRITTEN: dict[tuple[int, Path], _Journal] = {}


def _keep(job: Job[Any, Outcome], number: int, outcome: Outcome) -> Place:
    key = (os.getpid(), job.work)
    journal = _WRITTEN.get(key)
    if journal is None or not journal.is_there():
        if journal is not None:
            journal.close()
        journal = _WRITTEN[key] = _Journal(job.work)
    try:
        return journal.add(number, outcome)
    except OSError:
        _WRITTEN.pop(key).close()  # what comes after a torn line would be lost with it
        raise


class _Index:
    """Where each outcome is in the journals of a work folder."""

    def __init__(self, work: Path, count: int) -> None:
        self._work = work
        self._names: dict[str, int] = {}
        self._journal = np.full(count, -1, np.int32)
        self._first = np.zeros(count, np.int64)
        self._size = np.zeros(count, np.int32)

    def load(self) -> bool:
        """Find the outcomes of earlier runs, the latest of each module; return True if there are any."""
        found = [(path, os.lstat(path)) for path in self._work.glob(WORK_JOURNALS)]
        journals = [(status.st_mtime_ns, path) for path, status in found if stat.S_ISREG(status.st_mode)]
        for _, path in sorted(journals):
            first = 0
            with open_regular(path) as file:
                for line in iter(partial(file.readline, _LONGEST_LINE), b""):
                    head, space, rest = line.partition(b" ")
                    if space and head.isdigit() and int(head) < len(self._journal) and rest.endswith(b"\n"):
                        self.put(int(head), (path.name, first + len(head) + 1, len(rest) - 1))
                    first += len(line)
        return bool(journals)

    def put(self, number: int, place: Place) -> None:
        """Note where an outcome is."""
        name, first, size = place
        self._journal[number] = self._names.setdefault(name, len(self._names))
        self._first[number] = first
        self._size[number] = size

    def read(self, number: int) -> bytes:
        """Read an outcome's JSON.

        Raises:
            ValueError: there is none.
            OSError: it cannot be read.
        """
        journal = int(self._journal[number])
        if journal < 0:
            raise ValueError("no outcome")
        with open(self._work / list(self._names)[journal], "rb", buffering=0) as file:
            return os.pread(file.fileno(), int(self._size[number]), int(self._first[number]))
