"""Conversions that are killed or interrupted at any moment: the same command then ends like an undisturbed one."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus import convert_logs
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.tables import BatchTable
from mlgo_corpus.runs.datasets import convert as logconversion
from tests.conftest import PACKAGE_ROOT
from tests.runs.datasets.test_logs import copies, data_of, restored, tree
from tests.runs.datasets.test_logs_bad_input import finals
from tests.runs.extract.test_incremental import in_child

pytestmark = pytest.mark.whole

TASK_BYTES = 100_000

# The command line, with many small tasks that take their time.
DRIVER = """
import sys, time
from mlgo_corpus.runs.datasets import convert as logconversion
from mlgo_corpus.files.tables import BatchTable
logconversion.TASK_BYTES = int(sys.argv.pop(1))
seconds = float(sys.argv.pop(1))
real = BatchTable.commit
def commit(self):
    time.sleep(seconds)
    real(self)
BatchTable.commit = commit
from mlgo_corpus.cli.main import main
main()
"""


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Logs for about thirty tasks."""
    monkeypatch.setattr("mlgo_corpus.runs.datasets.convert.TASK_BYTES", TASK_BYTES)
    monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)
    return copies(tmp_path / "logs", 60)


@pytest.fixture
def expected(logs: list[Path], tmp_path: Path) -> dict[str, bytes]:
    """What an undisturbed run makes of them."""
    convert_logs(logs, tmp_path / "fresh/d")
    convert_logs(logs, tmp_path / "fresh/d.parquet")
    assert len(list((tmp_path / "fresh/d/observations").iterdir())) > 15
    return tree(tmp_path / "fresh")


def only(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    """Give the files of one of the two datasets."""
    return {path: data for path, data in files.items() if path.startswith("d/") == (name == "d")}


def start(arguments: list[str | Path], task_bytes: int = TASK_BYTES, seconds: float = 0.0) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", DRIVER, str(task_bytes), str(seconds), "logs-to-parquet", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def check_finals(output: Path, expected: dict[str, bytes]) -> None:
    """Compare what is there under final names: all of it is whole, and the last file tells that nothing is missing."""
    there = {str(path.relative_to(output)): path.read_bytes() for path in finals(output)}
    assert there.items() <= expected.items()
    for whole, name in (("d/dataset.json", "d"), ("d.parquet", "d.parquet")):
        if whole in there:
            assert only(expected, name).keys() <= there.keys()


def test_a_cluster_that_is_gone_costs_no_work(
    logs: list[Path], expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is converted stays; where nothing is, nothing is left."""

    def gone(*_: Any, **__: Any) -> Any:
        raise UsageError("no cluster answers")

    def convert_without() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(logconversion, "parallel_map", gone)
            with pytest.raises(UsageError, match="no cluster"):
                convert_logs(logs, tmp_path / "out/d")

    def stop(finished: int, _: int) -> None:
        if finished > 3:
            raise KeyboardInterrupt

    def results() -> set[str]:
        return {path.name for path in (tmp_path / "out/d/.mlgo-corpus").glob("*.json")}

    convert_without()
    assert not (tmp_path / "out").exists()
    with pytest.raises(KeyboardInterrupt):
        convert_logs(logs, tmp_path / "out/d", progress=stop)
    there = results()
    assert len(there) > 1  # the key, and the result of a task at least
    convert_without()
    assert results() == there
    convert_logs(logs, tmp_path / "out/d")
    assert tree(tmp_path / "out") == only(expected, "d")


@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_killed_at_any_moment(logs: list[Path], expected: dict[str, bytes], tmp_path: Path, name: str) -> None:
    output = tmp_path / "out" / name
    output.parent.mkdir()
    started = time.monotonic()
    assert in_child(lambda: convert_logs(logs, tmp_path / "timed" / name, jobs=2)) == 0
    duration = time.monotonic() - started
    rng = random.Random(11)
    killed = 0
    for _ in range(100):
        if killed == 5:
            break
        child = os.fork()
        if child == 0:
            try:
                convert_logs(logs, output, jobs=2)
            finally:
                os._exit(0)
        time.sleep(rng.random() * duration)
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        check_finals(tmp_path / "out", expected)
        if rng.random() < 0.4:
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            output.parent.mkdir(exist_ok=True)
    assert killed == 5
    convert_logs(logs, output, jobs=2)
    assert tree(tmp_path / "out") == {
        key: data for key, data in expected.items() if key.startswith(f"{name[0]}{name[1:2] or '/'}")
    }
    assert restored(output, tmp_path / "back") == data_of(logs)


def test_a_command_killed_at_any_moment(logs: list[Path], expected: dict[str, bytes], tmp_path: Path) -> None:
    rng = random.Random(3)
    killed = 0
    for _ in range(4):
        with start([tmp_path / "logs", "-o", tmp_path / "out/d", "--jobs", "2"], seconds=0.01) as process:
            deadline = time.monotonic() + 30
            while not (tmp_path / "out/d/.mlgo-corpus").exists() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            time.sleep(rng.random() * 0.2)
            process.kill()
            process.communicate()
        killed += process.returncode == -signal.SIGKILL
        check_finals(tmp_path / "out", expected)
    assert killed >= 1
    convert_logs(tmp_path / "logs", tmp_path / "out/d")
    assert tree(tmp_path / "out") == only(expected, "d")


def dying_at(where: Any, method: str, call: int, work: Callable[[], object], *, only: str = "") -> int:
    """Do some work in a child that dies at the given call, of those whose last argument has ``only`` in it."""

    def child() -> None:
        calls = count(1)
        real = getattr(where, method)

        def dying(*args: Any, **options: Any) -> Any:
            if only in str(args[-1]) and next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        setattr(where, method, dying)
        work()

    return in_child(child)


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Logs for three files; everything is done in one process."""
    monkeypatch.setattr("mlgo_corpus.dataset.writer.ROW_GROUP_BYTES", 50_000)
    return copies(tmp_path / "logs", 6)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_killed_between_two_moves(few: list[Path], tmp_path: Path, name: str, older: bool) -> None:
    """Also where another dataset, with more files, is being replaced: what is there says it is whole only if it is."""
    convert_logs(few, tmp_path / "fresh" / name)
    convert_logs(few, tmp_path / "older" / name, compression="none", **({"rows_per_file": 300} if name == "d" else {}))
    new, old = tree(tmp_path / "fresh"), tree(tmp_path / "older")
    outcomes = []
    for call in range(1, 40):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if older:
            shutil.copytree(tmp_path / "older", tmp_path / "out")
        died = dying_at(Path, "replace", call, lambda: convert_logs(few, tmp_path / "out" / name, force=older, jobs=1))
        there = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in finals(tmp_path / "out")}
        if "d/dataset.json" in there or "d.parquet" in there:
            assert there in (new, old)
        assert all(data in (new.get(path), old.get(path)) for path, data in there.items())
        outcomes.append("new" if there == new else "old" if there == old else "between" if there else "none")
        if older and there == old:
            with pytest.raises(UsageError, match="made from other inputs or with other options; `force` replaces it"):
                convert_logs(few, tmp_path / "out" / name)
            convert_logs(few, tmp_path / "out" / name, force=True)
        else:
            convert_logs(few, tmp_path / "out" / name)
        assert tree(tmp_path / "out") == new
        if died == 0:
            break
    assert outcomes == sorted(outcomes, key=["none", "old", "between", "new"].index)
    assert outcomes.count("between") >= (4 if name == "d" else 2)
    assert died == 0


@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_a_file_that_cannot_be_moved(
    few: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    convert_logs(few, tmp_path / "fresh" / name)
    real = Path.replace
    for call in range(1, 40):
        calls = count(1)

        def replace(self: Path, target: Path, call: int = call, calls: Iterator[int] = calls) -> Path:
            if next(calls) == call:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))
            return real(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            try:
                convert_logs(few, tmp_path / "out" / name, jobs=1)
            except UsageError as error:
                message = str(error)
                assert message.endswith("cannot write there: Input/output error")
            except MlgoCorpusError as error:
                message = str(error)
                assert message.startswith(f"cannot write {tmp_path}/out")
                assert message.endswith(": Input/output error")
            else:
                break
        check_finals(tmp_path / "out", tree(tmp_path / "fresh"))
        convert_logs(few, tmp_path / "out" / name)
        assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
        shutil.rmtree(tmp_path / "out")
    assert call > 8


def test_killed_while_it_tidies_up(few: list[Path], tmp_path: Path) -> None:
    def convert_but(removed: str) -> int:
        def tidy(folder: Path, **_: Any) -> None:
            for name in os.listdir(folder):
                if removed in name:
                    os.unlink(folder / name)
            os.kill(os.getpid(), signal.SIGKILL)

        def work() -> None:
            shutil.rmtree = tidy  # type: ignore[assignment]
            convert_logs(few, tmp_path / "out/d")

        return in_child(work)

    convert_logs(few, tmp_path / "fresh/d")
    for removed in ("moves.json", "key.json", "task", "nothing"):
        assert convert_but(removed) == -signal.SIGKILL
        assert (tmp_path / "out/d/.mlgo-corpus").exists()
        assert convert_logs(few, tmp_path / "out/d").unchanged
        assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
        assert not (tmp_path / "out/d/.mlgo-corpus").exists()
        shutil.rmtree(tmp_path / "out")


def test_what_was_done_is_not_done_again(
    logs: list[Path], expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out/d"
    assert dying_at(logconversion.LogConversion, "_finish", 1, lambda: convert_logs(logs, output)) == -signal.SIGKILL
    results = sorted(output.glob(".mlgo-corpus/task-*.json"))
    assert len(results) > 15
    results[3].unlink()
    next(iter(output.glob(".mlgo-corpus/task-*-00007-00000.parquet"))).unlink()
    results[9].write_bytes(results[9].read_bytes()[:-1])
    results[10].write_bytes(b'[[], [["a"]]]')
    done: list[str] = []
    real = logconversion.convert_task

    def convert_task(task: logconversion.LogTask, *args: Any) -> logconversion.TaskResult:
        done.append(task.name[-2:])
        return real(task, *args)

    monkeypatch.setattr(logconversion, "convert_task", convert_task)
    monkeypatch.setattr(logconversion, "parallel_map", lambda function, tasks, **_: map(function, tasks))
    told: list[tuple[int, int]] = []
    convert_logs(logs, output, progress=lambda *step: told.append(step))
    assert done == ["03", "07", "09", "10"]
    assert told[-1] == (sum(path.stat().st_size for path in logs),) * 2
    assert tree(tmp_path / "out") == only(expected, "d")


@pytest.mark.parametrize("change", ["options", "logs", "force"])
def test_what_was_done_for_others_is_not_used(
    logs: list[Path], expected: dict[str, bytes], tmp_path: Path, change: str
) -> None:
    options: dict[str, Any] = {"compression": "snappy"} if change == "options" else {}
    assert (
        dying_at(logconversion.LogConversion, "_finish", 1, lambda: convert_logs(logs, tmp_path / "out/d"))
        == -signal.SIGKILL
    )
    if change == "logs":
        logs[0].write_bytes(logs[1].read_bytes())
    if change == "force":  # it makes everything again, so that nothing has to be believed
        for path in (tmp_path / "out/d/.mlgo-corpus").glob("task-*"):
            path.write_bytes(b"junk")
    convert_logs(logs, tmp_path / "out/d", force=change == "force", **options)
    convert_logs(logs, tmp_path / "again/d", **options)
    assert tree(tmp_path / "out") == tree(tmp_path / "again")


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_workers_that_outlive_their_parent_spoil_nothing(
    logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """They go on until their task is done: in the same folder, and with the same names if the request is the same."""
    ready = tmp_path / "ready"
    real = BatchTable.commit

    def commit_slowly(self: BatchTable) -> None:
        (ready / str(os.getpid())).touch()
        time.sleep(0.4)
        real(self)

    ready.mkdir()
    output = tmp_path / "out/d"
    child = os.fork()
    if child == 0:
        try:
            BatchTable.commit = commit_slowly  # type: ignore[method-assign]
            convert_logs(logs, output, jobs=2)
        finally:
            os._exit(0)
    while len(list(ready.iterdir())) < 2:
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    workers = [path.name for path in ready.iterdir()]
    assert all(Path(f"/proc/{worker}").exists() for worker in workers)

    def commit_more_slowly(self: BatchTable) -> None:
        """Be at the same files when the others commit theirs; with other options, be done with those already."""
        slow = ("-00000-", "-00001-") if compression == "zstd" else ("-00010-",)
        if any(number in self.path.name for number in slow):
            time.sleep(0.6)
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(BatchTable, "commit", commit_more_slowly)
        convert_logs(logs, output, compression=compression, jobs=2)
    while any(Path(f"/proc/{worker}/fd").exists() and os.listdir(f"/proc/{worker}/fd") for worker in workers):
        time.sleep(0.01)
    convert_logs(logs, tmp_path / "fresh/d", compression=compression)
    assert convert_logs(logs, output, compression=compression).unchanged
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_an_interrupt_just_after_work_was_given_to_a_thread(
    logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the thread is at, no file is closed under its hands, and none is left."""
    given = interrupted = 0
    at_work: set[BatchTable] = set()
    disturbed: list[BatchTable] = []
    submit, commit, abandon = ThreadPoolExecutor.submit, BatchTable.commit, BatchTable.abandon

    def submit_and_interrupt(*args: Any) -> Any:
        nonlocal given
        future = submit(*args)
        given += 1
        if given == interrupted:
            while not (at_work or future.done()):
                time.sleep(0.001)
            raise KeyboardInterrupt
        return future

    def slow_commit(table: BatchTable) -> None:
        at_work.add(table)
        time.sleep(0.1)
        commit(table)
        at_work.remove(table)

    def noted_abandon(table: BatchTable) -> None:
        if table in at_work:
            disturbed.append(table)
        else:
            abandon(table)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_and_interrupt)
    monkeypatch.setattr(BatchTable, "commit", slow_commit)
    monkeypatch.setattr(BatchTable, "abandon", noted_abandon)
    monkeypatch.setattr("mlgo_corpus.dataset.writer.ROW_GROUP_BYTES", 200_000)
    for number in count(1):
        given, interrupted = 0, number
        try:
            convert_logs(logs, tmp_path / "out/d.parquet", jobs=2)
        except KeyboardInterrupt:
            assert (disturbed, finals(tmp_path / "out")) == ([], [])
        else:
            break
    assert interrupted > 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("name", "task_bytes"), [("d", TASK_BYTES), ("d.parquet", 1 << 30)])
def test_a_signal(
    logs: list[Path], expected: dict[str, bytes], tmp_path: Path, name: str, task_bytes: int, number: signal.Signals
) -> None:
    """With workers, and with threads."""
    output = tmp_path / "out" / name
    with start([tmp_path / "logs", "-o", output, "--jobs", "2"], task_bytes, 0.2) as process:
        deadline = time.monotonic() + 30
        while not list((tmp_path / "out").rglob("*task-*.parquet*")) and time.monotonic() < deadline:
            time.sleep(0.002)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert (out, err) == (
        "",
        "mlgo-corpus: interrupted; finished work is kept, and the same command continues from there\n",
    )
    assert bool(children) == (name == "d")
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert finals(tmp_path / "out") == []
    convert_logs(tmp_path / "logs", output)
    assert tree(tmp_path / "out") == only(expected, name)


def test_a_worker_that_dies(logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    real = logconversion.open_log

    def open_log(path: str) -> Any:
        if path.endswith("/030.log"):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path)

    monkeypatch.setattr(logconversion, "open_log", open_log)
    monkeypatch.setattr("mlgo_corpus.runs.datasets.convert.TASK_BYTES", 1)
    report = convert_logs(logs, tmp_path / "out", jobs=2)
    assert report.counts == {"ok": 59, "worker_died": 1}
    (row,) = [row for row in pq.read_table(tmp_path / "out/modules.parquet").to_pylist() if row["status"] == "failed"]
    assert (row["module"], row["detail"]) == ("030", "the worker process ended by SIGKILL")
    assert restored(tmp_path / "out", tmp_path / "back") == data_of(path for path in logs if path.name != "030.log")
    assert not (tmp_path / "out/.mlgo-corpus").exists()
