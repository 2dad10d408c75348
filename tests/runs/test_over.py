"""One thing done to every module: order, what is known, what is torn, who dies; a simulated job, real workers."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.runs import over
from mlgo_corpus.runs.over import Over
from tests.runs.journals import change, kept


class Item(NamedTuple):
    number: int


@dataclass(frozen=True)
class Job:
    """Squares; a file ``NUMBER`` in the folder of orders says what happens to that item instead."""

    work: Path
    orders: Path
    limit_s: float = 60.0
    programs: tuple[str, ...] = ()
    trusted: bool = True

    def run(self, item: Item) -> tuple[int, str]:
        order = self.orders / str(item.number)
        said = order.read_text() if order.exists() else ""
        if said == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if said == "wait":
            while order.exists():
                time.sleep(0.005)
        if said == "full":
            raise OSError(28, "No space left on device", str(order))
        with (self.orders / "done").open("a") as log:
            log.write(f"{item.number}\n")
        return item.number**2, "bad" if said == "fail" else "ok"

    def lost(self, item: Item, lost: Lost) -> tuple[int, str]:  # noqa: ARG002
        return -1, "lost"

    def outcome(self, record: Any) -> tuple[int, str]:
        square, status = record
        return int(square), str(status)

    def is_whole(self, item: Item, outcome: tuple[int, str]) -> bool:
        return outcome == (item.number**2, "ok")


COUNT = 40
SQUARES = [(number**2, "ok") for number in range(COUNT)]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    for name in ("work", "orders"):
        (tmp_path / name).mkdir()
    return Job(tmp_path / "work", tmp_path / "orders")


def items() -> Iterator[Item]:
    return map(Item, range(COUNT))


def every(job: Job, jobs: int = 2) -> Over[Item, tuple[int, str]]:
    return Over(job, items, COUNT, jobs=jobs)


def done(job: Job) -> list[int]:
    path = job.orders / "done"
    found = sorted(map(int, path.read_text().split())) if path.exists() else []
    path.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("jobs", [1, 3])
def test_in_order_once_and_again(job: Job, jobs: int) -> None:
    made = every(job, jobs)
    assert list(made.outcomes()) == SQUARES
    assert list(made.again()) == SQUARES
    assert (made.resumed, done(job)) == (0, list(range(COUNT)))
    made = every(job, jobs)
    assert list(made.outcomes()) == SQUARES
    assert list(made.again()) == SQUARES
    assert (made.resumed, done(job)) == (COUNT, [])


def test_only_what_is_whole_is_known(job: Job) -> None:
    for number in (3, 17):
        (job.orders / str(number)).write_text("fail")
    made = every(job)
    outcomes = list(made.outcomes())
    assert [number for number, outcome in enumerate(outcomes) if outcome[1] == "bad"] == [3, 17]
    assert list(made.again()) == outcomes
    done(job)
    for number in (3, 17):
        (job.orders / str(number)).unlink()
    made = every(job)
    assert list(made.outcomes()) == SQUARES
    assert list(made.again()) == SQUARES  # the latest of each
    assert (made.resumed, done(job)) == (COUNT - 2, [3, 17])


def test_a_worker_that_dies_loses_its_item_alone(job: Job) -> None:
    (job.orders / "5").write_text("die")
    made = every(job)
    expected = [(-1, "lost") if number == 5 else outcome for number, outcome in enumerate(SQUARES)]
    assert list(made.outcomes()) == expected
    assert list(made.again()) == expected
    (job.orders / "5").unlink()
    done(job)
    assert list(every(job).outcomes()) == SQUARES
    assert done(job) == [5]


@pytest.mark.parametrize("damage", [None, b"[25", b'[26, "ok"]', b"[" * 100_000, b"{}", b"[1, 2, 3]", b"\xff"])
def test_damaged_lines_are_made_again(job: Job, damage: bytes | None) -> None:
    list(every(job).outcomes())
    done(job)
    change(job.work, 5, damage)
    assert list(every(job).outcomes()) == SQUARES
    assert done(job) == [5]


def test_journals_cut_at_every_byte(job: Job) -> None:
    assert list(every(job, 1).outcomes()) == SQUARES
    (journal,) = job.work.glob("rows-*.jsonl")
    data = journal.read_bytes()
    whole = [len(data[:end].splitlines()) for end in range(len(data)) if data[:end].endswith(b"\n")]
    for end in random.Random(3).sample(range(len(data)), 60):
        journal.write_bytes(data[:end])
        index = over._Index(job.work, COUNT)
        assert index.load()
        known = [number for number in range(COUNT) if index._journal[number] >= 0]
        assert len(known) == data[:end].count(b"\n")
        assert [json.loads(index.read(number)) for number in known] == [[*SQUARES[number]] for number in known]
    assert len(whole) == COUNT - 1


def test_what_stands_in_a_journals_place(job: Job, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text('7 [49, "ok"]\n')
    (job.work / "rows-a.jsonl").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(job.work / "rows-b.jsonl")
    (job.work / "rows-c.jsonl").mkdir()
    (job.work / "rows-d.jsonl").write_bytes(b"99 [1]\nx [2]\n-1 [3]\n7\n" + b'8 [64, "ok"]\n')
    (job.work / "tmp-left").mkdir()
    made = every(job)
    assert list(made.outcomes()) == SQUARES
    assert (made.resumed, 8 in done(job)) == (1, False)
    assert not (job.work / "tmp-left").exists()


def test_an_error_ends_it_and_the_next_goes_on(job: Job) -> None:
    (job.orders / "9").write_text("full")
    with pytest.raises(OSError, match="No space left on device"):
        list(every(job).outcomes())
    before, whole = set(done(job)), set(kept(job.work))
    assert whole <= before
    assert len(before - whole) <= 1  # the other worker may be ended after its work, and before it keeps that
    (job.orders / "9").unlink()
    assert list(every(job).outcomes()) == SQUARES
    assert set(done(job)) == set(range(COUNT)) - whole


def test_killed_and_killed_again(job: Job, tmp_path: Path) -> None:
    """What was done before is not done again, however often the driver is killed, and also if it is not yet due."""
    for stop in random.Random(11).sample(range(COUNT), 4):
        change(job.work, stop, None)
        before = set(kept(job.work))
        (job.orders / str(stop)).write_text("wait")
        child = os.fork()
        if not child:
            try:
                list(every(job).outcomes())
            finally:
                os._exit(0)
        while not set(kept(job.work)) >= set(range(COUNT)) - {stop}:
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        (job.orders / str(stop)).unlink()
        assert not before & set(done(job))
    made = every(job)
    assert list(made.outcomes()) == SQUARES
    assert list(made.again()) == SQUARES


def test_the_map_below_abandons_the_rest(tmp_path: Path) -> None:
    first = tmp_path / "first"
    results = parallel_map(partial(_refuse, first), range(9), jobs=2, limit=60, weigh=lambda _: 1.0, long_items=True)
    assert next(results) == 0
    first.touch()
    with pytest.raises(ValueError, match="five"):
        list(results)


def _refuse(first: Path, item: int) -> int:
    if item == 5:
        while not first.exists():  # on a busy machine, the worker of item 0 may be slower
            time.sleep(0.01)
        raise ValueError("five")
    return item
