"""The engine with real processes: order, crashes, hangs, errors, and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mlgo_corpus.engine import pool as engine
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.engine.map import parallel_map
from tests.conftest import PACKAGE_ROOT
from tests.processes import children, dies

pytestmark = pytest.mark.whole


def double(item: int) -> int:
    return item * 2


def slow_first(item: int) -> int:
    time.sleep(0.2 if item == 0 else 0)
    return item


def die_on_seven(item: int) -> int:
    if item == 7:
        os.kill(os.getpid(), signal.SIGSEGV)
    return item


def die_once(item: tuple[int, str]) -> int:
    number, marker = item
    if number == 7 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def hang_on_three(item: int) -> int:
    if item == 3:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        while True:
            time.sleep(1)
    return item


def exit_quietly(item: int) -> int:
    if item == 2:
        os._exit(0)
    return item


def refuse(item: int) -> int:
    if item == 5:
        raise ValueError("five")
    return item


def pid(_: int) -> int:
    time.sleep(0.01)
    return os.getpid()


def big(item: int) -> bytes:
    return bytes([item % 256]) * 3_000_000


def tripled(item: bytes) -> bytes:
    return item * 3


@pytest.fixture(params=["fork", "spawn"])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(engine, "_may_fork", lambda: request.param == "fork")
    if request.param == "spawn":
        monkeypatch.setenv("PYTHONPATH", PACKAGE_ROOT)
        monkeypatch.syspath_prepend(PACKAGE_ROOT)
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_child_is_left() -> object:
    before = children()
    yield
    assert children() == before


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1000])
def test_results_come_in_the_order_of_the_items(jobs: int, count: int) -> None:
    assert list(parallel_map(double, range(count), jobs=jobs, limit=600)) == [2 * item for item in range(count)]


def test_new_interpreters_work_as_forks_do(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing that lies in the current folder is taken for one of Python's modules."""
    (tmp_path / "pickle.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert list(parallel_map(double, range(100), jobs=2, limit=600)) == [2 * item for item in range(100)]


def test_a_slow_item_does_not_change_the_order() -> None:
    results = parallel_map(slow_first, range(50), jobs=2, limit=600, weigh=lambda _: 1)
    assert list(results) == list(range(50))


def test_the_item_that_kills_its_worker_is_lost_and_no_other(start: str) -> None:
    results = list(parallel_map(die_on_seven, range(100), jobs=2, limit=600))
    assert results[7] == Lost(False, "the worker process ended by SIGSEGV")
    assert results[:7] + results[8:] == [item for item in range(100) if item != 7]


def test_a_worker_killed_from_outside_costs_nothing(tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "died")) for number in range(100)]
    assert list(parallel_map(die_once, items, jobs=2, limit=600)) == list(range(100))


def test_a_hang_ends_at_the_limit(start: str) -> None:
    began = time.monotonic()
    results = list(parallel_map(hang_on_three, range(5), jobs=2, limit=5))
    assert results == [0, 1, 2, Lost(True, "not done after 5 seconds"), 4]
    assert time.monotonic() - began < 300


def test_a_worker_that_leaves_is_a_lost_item() -> None:
    results = list(parallel_map(exit_quietly, range(4), jobs=1, limit=600))
    assert results == [0, 1, Lost(False, "the worker process ended by itself"), 3]


def test_an_exception_comes_out(start: str) -> None:
    with pytest.raises(ValueError, match=r"^five$"):
        list(parallel_map(refuse, range(100), jobs=2, limit=600))


def test_large_results_pass_whole() -> None:
    assert list(parallel_map(big, range(40), jobs=2, limit=600)) == [big(item) for item in range(40)]


@pytest.mark.parametrize("size", [100, 1_000, 40_000, 1_000_000])
def test_large_items_and_large_results_do_not_wait_for_each_other(size: int) -> None:
    items = [bytes([number % 256]) * size for number in range(150)]
    assert list(parallel_map(tripled, items, jobs=2, limit=600)) == [item * 3 for item in items]


def test_what_lies_at_hand_of_a_dying_worker_is_not_lost() -> None:
    results = list(parallel_map(die_on_seven, range(20), jobs=1, limit=600, weigh=lambda _: 0.5))
    assert results == [*range(7), Lost(False, "the worker process ended by SIGSEGV"), *range(8, 20)]


def test_closing_early_ends_the_workers() -> None:
    results = parallel_map(pid, range(10_000), jobs=2, limit=600)
    first = next(results)
    assert isinstance(first, int)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_items_are_taken_only_a_little_ahead() -> None:
    taken = 0

    def items() -> object:
        nonlocal taken
        for item in range(100_000):
            taken = item
            yield item

    results = parallel_map(double, items(), jobs=2, limit=600)
    for _ in range(100):
        next(results)
    assert taken < 1000
    results.close()


def test_workers_killed_at_random_moments_lose_nothing() -> None:
    others = children()  # which other tests have started
    rng = random.Random(1)
    kills = 0
    stop = threading.Event()

    def killer() -> None:
        nonlocal kills
        while kills < 6 and not stop.wait(0.2 + rng.random() / 2):
            for child in sorted(children() - others)[:1]:
                with suppress(ProcessLookupError):  # it was reaped meanwhile
                    os.kill(child, signal.SIGKILL)
                    kills += 1

    def items() -> Iterator[int]:
        for item in range(3_000_000):
            if item >= 3000 and kills >= 2:
                return
            nonlocal taken
            taken += 1
            yield item

    taken = 0
    generator = parallel_map(slow_double, items(), jobs=2, limit=600)
    results = [next(generator)]  # the first workers are forked before there is a second thread
    thread = threading.Thread(target=killer)
    thread.start()
    try:
        results.extend(generator)
    finally:
        stop.set()
        thread.join()
    assert kills >= 2
    assert len(results) == taken >= 3000
    wrong = [item for at, item in enumerate(results) if item != at * 2]
    # An item is given up only if its worker was killed twice while it held that item alone.
    assert all(isinstance(item, Lost) for item in wrong)
    assert len(wrong) <= kills // 2


def slow_double(item: int) -> int:
    time.sleep(0.002)
    return item * 2


@pytest.mark.parametrize("seconds", [0.05, 600])
def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path, seconds: float) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, sys, time\n"
        "from mlgo_corpus.engine.map import parallel_map\n"
        "def work(item):\n"
        "    os.write(1, b'%d\\n' % os.getpid())\n"
        f"    time.sleep({seconds})\n"
        "if __name__ == '__main__':\n"
        "    list(parallel_map(work, range(100000), jobs=2, limit=900, weigh=lambda _: 1))\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers: set[int] = set()
        while len(workers) < 2:
            workers.add(int(parent.stdout.readline()))
        parent.kill()
        parent.stdout.read()
    assert all(dies(worker) for worker in workers)


def first_waits_for_all(item: tuple[int, str]) -> int:
    number, folder = item
    if number:
        Path(folder, str(number)).touch()
        return number
    end = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < 49:  # all others, by the other worker
        if time.monotonic() > end:
            return -1
        time.sleep(0.01)
    return 0


def test_a_long_item_does_not_hold_up_the_others(tmp_path: Path) -> None:
    items = [(number, str(tmp_path)) for number in range(50)]
    results = parallel_map(first_waits_for_all, items, jobs=2, limit=120, weigh=lambda _: 1, long_items=True)
    assert list(results) == list(range(50))


def told(item: int, lost: Lost) -> int:
    assert lost.detail == "the worker process ended by SIGSEGV"
    return -item
