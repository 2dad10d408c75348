"""Traces that are killed or interrupted at any moment: nothing runs on, and the same command ends as if undisturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import extract_corpus
from mlgo_corpus.compilers.compile import ModuleCompiles
from mlgo_corpus.compilers.probe import probe_compiler
from mlgo_corpus.dataset.folder import DatasetFolder
from mlgo_corpus.dataset.tracetable import read_trace_rows
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.runs import over
from mlgo_corpus.runs.datasets import convert as logconversion
from mlgo_corpus.trace import trace_corpus
from tests.conftest import EMBED, PACKAGE_ROOT, Llvm, run_checked
from tests.forked import Running, server_for, start
from tests.handmade import files, put
from tests.processes import alive, every_process, state_of
from tests.runs.extract.test_incremental import in_child
from tests.runs.journals import change, kept
from tests.runs.trace.test_bad_input import (
    cache_of,
    check_failed,
    check_good,
    fake,
    make_corpus,
    module,
    nothing_is_left,
    plain,
    processes,
    run,
    traced,
)

pytestmark = pytest.mark.whole

server_for({**os.environ, "PYTHONPATH": PACKAGE_ROOT})  # before tests look for processes that others leave

__all__ = ["fake", "nothing_is_left"]  # fixtures

TIMES = frozenset({"wall_s", "cpu_s", "max_rss_bytes", "baseline_wall_s", "baseline_cpu_s", "baseline_max_rss_bytes"})

# What somebody's own script does.
DRIVER = """
import sys
from mlgo_corpus.trace import trace_corpus
from pathlib import Path
corpus, output, compiler, cache = sys.argv[1:]
trace_corpus(corpus, output, compiler=compiler, via="interactive", jobs=2, cache=Path(cache))
"""


class Tool:
    """A trace in a process of its own, and in a session of its own, so that its workers can be found."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                work()
                code = 0
            finally:
                os._exit(code)

    def workers(self) -> list[int]:
        """List its worker processes: a compiler is one of its session for a moment, before it has its own."""
        before = set(session_of(self.pid))
        time.sleep(0.05)
        return [pid for pid in session_of(self.pid) if pid != self.pid and pid in before]

    def end(self, number: int = signal.SIGKILL) -> int:
        """Kill it and check that all that it started ends; give its exit code, negative for the signal."""
        os.kill(self.pid, number)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def session_of(session: int) -> list[int]:
    """List the processes of a session that are alive."""
    return [pid for pid in every_process() if state_of(pid)[3:4] == [str(session)] and alive(pid)]


def all_end(folder: Path, *sessions: int, seconds: float = 5.0) -> bool:
    """Wait until no process is left that has to do with a folder, or is in one of the sessions."""
    end = time.monotonic() + seconds
    while (left := processes(folder) + [str(pid) for session in sessions for pid in session_of(session)]) and (
        time.monotonic() < end
    ):
        time.sleep(0.02)
    assert not left, left
    return True


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)
    return found


def finished(output: Path) -> set[str]:
    """Name the modules whose run is whole in the work folder."""
    rows = [record[0] for record in kept(output / ".mlgo-corpus").values()]
    return {name for name, status, *_ in rows if status == "ok"}


def without_times(output: Path) -> list[dict[str, Any]]:
    rows = read_trace_rows(output / "modules.parquet")
    return [{name: value for name, value in row._asdict().items() if name not in TIMES} for row in rows]


def table(output: Path, name: str = "observations") -> Any:
    return pq.read_table(output / name)


def check_same(output: Path, expected: Path) -> None:
    """Compare two datasets, but for the seconds and bytes that compiles took."""
    assert without_times(output) == without_times(expected)
    assert table(output).equals(table(expected))
    assert table(output, "contexts.parquet").equals(table(expected, "contexts.parquet"))
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))


@pytest.fixture(scope="module")
def clang(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what clang 22 can do, and ``corpus``: fifteen small modules that ask for some hundred decisions."""
    folder = tmp_path_factory.mktemp("clang")
    rng = random.Random(5)
    for number in range(15):
        functions = []
        for index in range(rng.randrange(20, 60)):
            calls = " + ".join(f"f{rng.randrange(index)}(x + {k})" for k in range(3)) if index else "x"
            functions.append(
                f"static int f{index}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {index}; return {calls}; }}"
            )
        text = "\n".join([*functions, f"int g{number}(int x) {{ return f{len(functions) - 1}(x); }}"])
        (folder / f"m{number:02}.c").write_text(text)
        run_checked(llvm22.clang, "-Oz", *EMBED, "-c", f"m{number:02}.c", "-o", f"m{number:02}.o", cwd=folder)
    extract_corpus([folder], folder / "corpus")
    assert "inlining" in probe_compiler(llvm22.clang, cache=folder).interactive
    return folder


def test_killed_at_twenty_moments(clang: Path, llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "corpus").symlink_to(clang / "corpus")
    cache = cache_of(tmp_path, clang / "clang")

    def work(output: str = "out", into: Path = cache) -> None:
        trace_corpus(
            tmp_path / "corpus", tmp_path / output, compiler=llvm22.clang, via="interactive", jobs=2, cache=into
        )

    assert in_child(lambda: work("fresh")) == 0
    rng = random.Random(17)
    killed = 0
    for _ in range(20):
        tool = Tool(work)
        goal = rng.randrange(15)
        wait_for(lambda goal=goal: len(finished(tmp_path / "out")) >= goal or (tmp_path / "out/dataset.json").exists())
        time.sleep(rng.random() * 0.1)
        before = finished(tmp_path / "out")
        code = tool.end()
        killed += code == -signal.SIGKILL
        all_end(tmp_path, tool.pid)
        assert before <= finished(tmp_path / "out") or (tmp_path / "out/dataset.json").exists()
        if code == 0:
            check_same(tmp_path / "out", tmp_path / "fresh")
            subprocess.run(("rm", "-r", str(tmp_path / "out")), check=True)
    assert killed >= 10
    work()
    check_same(tmp_path / "out", tmp_path / "fresh")
    assert len(table(tmp_path / "out")) > 200

    def left() -> list[Path]:
        """Those of runs that were killed while they looked at the compiler: who is about to end may have one locked."""
        with scratch_folder(tmp_path / "tmp"):
            pass
        return list((tmp_path / "tmp").glob("mlgo-scratch-*"))

    wait_for(lambda: not left())


def test_what_is_done_is_not_run_again(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CLANG_STATE", str(tmp_path))
    names = [f"m{number}" for number in range(10)]
    # The last one waits, so that no run is done before it is killed.
    wait = module(traced(wait=str(tmp_path / "go")))
    make_corpus(tmp_path / "corpus", {**dict.fromkeys(names, module(traced(pause=0.03))), names[-1]: wait})
    compiles = tmp_path / "compiles"
    cache_of(tmp_path, fake)
    for least in (2, 5, 8):
        tool = Tool(lambda: run(tmp_path, fake))
        wait_for(lambda least=least: len(finished(tmp_path / "out")) >= least)
        tool.end()
        all_end(tmp_path, tool.pid)
        done = finished(tmp_path / "out")
        assert least <= len(done) < 10
        before = len(compiles.read_text().splitlines())
    (tmp_path / "go").touch()
    report, rows = run(tmp_path, fake)
    again = compiles.read_text().splitlines()[before:]
    assert sorted(line.removeprefix("traced ") for line in again if line.startswith("traced")) == sorted(
        f"{name}.bc" for name in names if name not in done
    )
    assert len([line for line in again if line.startswith("plain")]) <= len(names) - len(done)
    assert report.resumed == len(done)
    for row in rows.values():
        check_good(row)
    # And what is whole is not made again.
    before = len(compiles.read_text().splitlines())
    assert run(tmp_path, fake)[0].unchanged
    assert len(compiles.read_text().splitlines()) == before


def test_a_worker_is_killed(tmp_path: Path, fake: Path) -> None:
    """Its compiler ends with it, and its module is run again by another."""
    make_corpus(tmp_path / "corpus", dict.fromkeys("abcdef", module(traced(pause=0.15))))
    tool = Tool(lambda: run(tmp_path, fake))
    for _ in range(2):
        wait_for(lambda: processes(tmp_path))
        os.kill(wait_for(tool.workers)[0], signal.SIGKILL)
        time.sleep(0.2)
    assert os.waitstatus_to_exitcode(os.waitpid(tool.pid, 0)[1]) == 0
    rows = read_trace_rows(tmp_path / "out/modules.parquet")
    assert [row.module for row in rows] == list("abcdef")
    for row in rows:
        check_good(row)


def test_a_worker_is_killed_each_time(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModuleCompiles.options

    def options(self: ModuleCompiles, programs: Sequence[str]) -> Any:
        if self.module.name == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, programs)

    monkeypatch.setattr(ModuleCompiles, "options", options)
    make_corpus(tmp_path / "corpus", dict.fromkeys("abcd", module()))
    report, rows = run(tmp_path, fake)
    assert report.counts == {"ok": 3, "worker_died": 1}
    check_failed(rows["b"])
    assert rows["b"].detail == "the worker process ended by SIGKILL"
    for name in "acd":
        check_good(rows[name])


@pytest.mark.parametrize("stage", [plain, traced])
def test_a_compiler_is_killed(tmp_path: Path, fake: Path, stage: Callable[..., Any]) -> None:
    make_corpus(tmp_path / "corpus", {"a": module(stage(pause=1.0)), "b": module(), "c": module()})
    tool = Tool(lambda: run(tmp_path, fake))
    marker = os.fsencode("/a.bc")
    found = wait_for(lambda: [line for line in processes(tmp_path) if marker.decode() in line])
    if stage is traced:
        wait_for(lambda: [line for line in processes(tmp_path) if "/a.bc" in line and "channel-base" in line])
        found = [line for line in processes(tmp_path) if "/a.bc" in line]
    time.sleep(0.05)
    os.kill(int(found[0].partition(":")[0]), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(tool.pid, 0)[1]) == 0
    rows = {row.module: row for row in read_trace_rows(tmp_path / "out/modules.parquet")}
    check_failed(rows["a"])
    assert (rows["a"].reason, rows["a"].signal, rows["a"].exit_code) == ("signal", 9, None)
    check_good(rows["b"])
    check_good(rows["c"])


def start_cli(tmp_path: Path, fake: Path) -> Running | subprocess.Popen[str]:
    folders = (tmp_path / "corpus", "-o", tmp_path / "out")
    words = ("trace", *folders, "--compiler", fake, "--via", "interactive", "-j", "2")
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "MLGO_CORPUS_CACHE": str(cache_of(tmp_path, fake))}
    return start(*words, env=env, stdout=True, stderr=True, session=True)


@pytest.mark.parametrize(
    ("stage", "number"), [(plain, signal.SIGINT), (traced, signal.SIGINT), (traced, signal.SIGTERM)]
)
def test_a_signal(tmp_path: Path, fake: Path, stage: Callable[..., Any], number: signal.Signals) -> None:
    """It ends at once, whatever the compilers are at; what is whole is kept."""
    stuck = module(stage(hang="stubborn"))
    make_corpus(tmp_path / "corpus", {"a": module(), "b": stuck, "c": stuck})
    with start_cli(tmp_path, fake) as process:
        wait_for(lambda: finished(tmp_path / "out") == {"a"} and len(processes(tmp_path)) >= 2)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)  # the compilers would go on for minutes
    assert process.returncode == 128 + number
    assert (out, err) == (
        "",
        "mlgo-corpus: interrupted; finished work is kept, and the same command continues from there\n",
    )
    all_end(tmp_path, process.pid)
    assert finished(tmp_path / "out") == {"a"}
    assert not (tmp_path / "out/dataset.json").exists()
    for name in "bc":
        path = tmp_path / f"corpus/{name}.bc"
        status = path.stat()
        data = module()
        path.write_bytes(data + b" " * (status.st_size - len(data)))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    report, rows = run(tmp_path, fake)
    assert report.resumed == 1
    for row in rows.values():
        check_good(row)


def test_ctrl_c_in_a_script(tmp_path: Path, fake: Path) -> None:
    make_corpus(tmp_path / "corpus", {"a": module(), "b": module(traced(hang="stubborn"))})
    words = (tmp_path / "corpus", tmp_path / "out", fake, cache_of(tmp_path, fake))
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    with start(*words, env=env, code=DRIVER, stderr=True, session=True) as process:
        wait_for(lambda: finished(tmp_path / "out") == {"a"} and len(processes(tmp_path)) >= 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert err.rstrip().endswith("KeyboardInterrupt")
    all_end(tmp_path, process.pid)
    tidy(tmp_path)


def tidy(tmp_path: Path) -> None:
    subprocess.run(("rm", "-rf", str(tmp_path / "out")), check=True)


@pytest.fixture
def six(tmp_path: Path, fake: Path) -> Path:
    """A corpus of six modules, and what an undisturbed run makes of it in ``fresh``."""
    modules = {name: module(decisions=20 + index) for index, name in enumerate("abcde")}
    make_corpus(tmp_path / "corpus", {**modules, "f": module(traced(exit=1))})
    run(tmp_path, fake)
    (tmp_path / "out").rename(tmp_path / "fresh")
    return tmp_path / "fresh"


def dies_at(target: Any, name: str, call: int, work: Callable[[], object]) -> int:
    """Do some work in a child that dies when a function is called for the given time, or after the last call."""

    def child() -> None:
        calls = count(1)
        real = getattr(target, name)

        def dying(*args: Any, **options: Any) -> Any:
            if os.getpid() == own and next(calls) == call:
                os.kill(own, signal.SIGKILL)
            return real(*args, **options)

        own = os.getpid()  # and not a worker
        setattr(target, name, dying)
        work()

    return in_child(child)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (logconversion, "convert_task"),
        (logconversion, "keep_result"),
        (logconversion.LogConversion, "_finish"),
        (logconversion, "publish_dataset"),
        (logconversion, "_merge_contexts"),
        (DatasetFolder, "_move"),
        (DatasetFolder, "finish"),
    ],
)
def test_killed_while_the_dataset_is_made(six: Path, tmp_path: Path, fake: Path, target: Any, name: str) -> None:
    assert dies_at(target, name, 1, lambda: run(tmp_path, fake)) == -signal.SIGKILL
    assert finished(tmp_path / "out") == set("abcde")
    assert not (tmp_path / "out/dataset.json").exists()
    report, _ = run(tmp_path, fake)
    assert report.resumed == 5 or report.unchanged
    check_same(tmp_path / "out", six)


def test_a_cluster_that_is_gone_costs_no_work(
    six: Path, tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done stays, whether the engine fails at once or later; where nothing is done, nothing is left."""

    def gone(*_: Any, **__: Any) -> Any:
        raise UsageError("no cluster answers")

    with monkeypatch.context() as patched:
        patched.setattr(over, "parallel_map", gone)
        with pytest.raises(UsageError, match="no cluster"):
            run(tmp_path, fake)
        assert not (tmp_path / "out").exists()
    assert dies_at(logconversion, "publish_dataset", 1, lambda: run(tmp_path, fake, jobs=1)) == -signal.SIGKILL
    for journal in (tmp_path / "out/.mlgo-corpus").glob("rows-*.jsonl"):
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-2]))
    done = finished(tmp_path / "out")
    assert len(done) == 4
    with monkeypatch.context() as patched:
        patched.setattr(over, "parallel_map", gone)
        with pytest.raises(UsageError, match="no cluster"):
            run(tmp_path, fake)
    assert finished(tmp_path / "out") == done
    assert run(tmp_path, fake)[0].resumed == len(done)
    check_same(tmp_path / "out", six)


def test_killed_at_each_move(six: Path, tmp_path: Path, fake: Path) -> None:
    """Also those into the work folder."""
    for call in range(1, 60):
        code = dies_at(Path, "replace", call, lambda: run(tmp_path, fake, jobs=1))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        if (tmp_path / "out/dataset.json").exists():
            check_same(tmp_path / "out", six) if not (tmp_path / "out/.mlgo-corpus").exists() else None
        run(tmp_path, fake)
        check_same(tmp_path / "out", six)
        tidy(tmp_path)
    assert call > 8


@pytest.mark.parametrize("damage", ["row", "half a row", "other row", "log", "half a log", "empty log", "deep"])
def test_what_is_damaged_is_run_again(
    six: Path, tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("FAKE_CLANG_STATE", str(tmp_path))
    assert dies_at(logconversion, "convert_task", 1, lambda: run(tmp_path, fake)) == -signal.SIGKILL
    work = tmp_path / "out/.mlgo-corpus"
    log = work / "run-0000002.log"
    match damage:
        case "row":
            change(work, 2, None)
        case "half a row":
            change(work, 2, json.dumps(kept(work)[2]).encode()[:-20])
        case "other row":
            change(work, 2, json.dumps(kept(work)[1]).encode())
        case "deep":
            change(work, 2, b"[" * 100_000)
        case "log":
            log.unlink()
        case "half a log":
            log.write_bytes(log.read_bytes()[:-20])
        case "empty log":
            log.write_bytes(b"")
    (tmp_path / "compiles").unlink()
    report, _ = run(tmp_path, fake)
    assert report.resumed == 4
    assert sorted((tmp_path / "compiles").read_text().splitlines()) == ["traced c.bc", "traced f.bc"]
    check_same(tmp_path / "out", six)


def test_other_files_in_the_work_folder(six: Path, tmp_path: Path, fake: Path) -> None:
    """What a killed run left behind does not get into the dataset, nor stay."""
    assert dies_at(logconversion, "convert_task", 1, lambda: run(tmp_path, fake)) == -signal.SIGKILL
    work = tmp_path / "out/.mlgo-corpus"
    (work / "tmp-0000001-abcdefgh").mkdir()
    os.mkfifo(work / "tmp-0000001-abcdefgh/channel.in")
    (work / "rows-other.jsonl").write_text("99 []\n1 []\njunk")
    run(tmp_path, fake)
    check_same(tmp_path / "out", six)


def test_two_at_once(tmp_path: Path, fake: Path) -> None:
    make_corpus(tmp_path / "corpus", {"a": module(), "b": module(traced(wait=str(tmp_path / "go")))})
    tool = Tool(lambda: run(tmp_path, fake))
    wait_for(lambda: finished(tmp_path / "out"))
    message = f"^{tmp_path}/out: another mlgo-corpus is writing this dataset; wait for it$"
    with pytest.raises(UsageError, match=message):
        run(tmp_path, fake)
    with pytest.raises(UsageError, match=message):
        run(tmp_path, fake, force=True)
    with pytest.raises(UsageError, match="begun in another way: policy was 'default', is 'never'"):
        run(tmp_path, fake, policy="never")
    with pytest.raises(UsageError, match=r"begun in another way: modules were 2 of 2, are 1 \(`sample`, "):
        run(tmp_path, fake, sample="1")
    (tmp_path / "corpus/a.bc").rename(tmp_path / "a.bc")
    (tmp_path / "corpus/a.bc").write_bytes(module(plain(say="other")))
    with pytest.raises(UsageError, match=r"begun in another way: corpus was [0-9a-f]{8}, is [0-9a-f]{8}; "):
        run(tmp_path, fake)
    (tmp_path / "a.bc").rename(tmp_path / "corpus/a.bc")
    (tmp_path / "go").touch()
    assert os.waitstatus_to_exitcode(os.waitpid(tool.pid, 0)[1]) == 0
    assert run(tmp_path, fake)[0].unchanged
    for row in read_trace_rows(tmp_path / "out/modules.parquet"):
        check_good(row)


def test_copies_that_are_asked_for_later(six: Path, tmp_path: Path, fake: Path) -> None:
    """A run that is resumed with another wish for copies makes them, too."""
    assert dies_at(logconversion, "convert_task", 1, lambda: run(tmp_path, fake)) == -signal.SIGKILL
    report, _ = run(tmp_path, fake, keep_logs=tmp_path / "logs", keep_objects=tmp_path / "objects")
    assert report.resumed == 0
    assert sorted(os.listdir(tmp_path / "logs")) == [f"{name}.log" for name in "abcde"]
    assert sorted(os.listdir(tmp_path / "objects")) == list("abcde")
    check_same(tmp_path / "out", six)


def test_copies_of_a_module_below_another(tmp_path: Path, fake: Path) -> None:
    """A file cannot be called as a folder: copies of some have other names, the same in each run."""
    make_corpus(tmp_path / "corpus", dict.fromkeys(("a", "a/b", "a.o", "c.log/d", "c", "e", "e.log"), module(traced())))
    kept = {"keep_logs": tmp_path / "logs", "keep_objects": tmp_path / "objects"}
    assert dies_at(logconversion, "convert_task", 1, lambda: run(tmp_path, fake, **kept)) == -signal.SIGKILL
    report, _ = run(tmp_path, fake, **kept)
    assert (report.counts, report.resumed) == ({"ok": 7}, 7)
    objects = ["a.o", "a.o.o", "a/b", "c", "c.log/d", "e", "e.log.o"]
    logs = ["a.log", "a.o.log", "a/b.log", "c.log.log", "c.log/d.log", "e.log", "e.log.log"]
    assert sorted(files(tmp_path / "objects")) == objects
    assert sorted(files(tmp_path / "logs")) == logs
    again, _ = run(tmp_path, fake, **kept)
    assert (again.unchanged, again.hints) == (True, ())
    (tmp_path / "objects/a.o.o").unlink()
    again, _ = run(tmp_path, fake, **kept)
    assert again.hints == (
        "1 module has no copy where copies are to be kept: the dataset was there already; `force` makes it again",
    )
    shutil.rmtree(tmp_path / "objects")
    run(tmp_path, fake, modules_file=put(tmp_path / "one", b"a\n"), keep_objects=tmp_path / "objects", force=True)
    assert sorted(files(tmp_path / "objects")) == ["a.o.o"]


def test_a_worker_that_cannot_write(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, no workers and no compilers are left, and the same command goes on."""
    make_corpus(tmp_path / "corpus", {"a": module(), "b": module(), "c": module(traced(hang=""))})
    real = over._Journal.add

    def failing(journal: over._Journal, number: int, record: Any) -> over.Place:
        if number == 1:
            wait_for(lambda: 0 in kept(tmp_path / "out/.mlgo-corpus"))  # of the other worker
            raise OSError(5, "Input/output error", str(journal._path))
        return real(journal, number, record)

    with monkeypatch.context() as patch:
        patch.setattr(over._Journal, "add", failing)
        with pytest.raises(MlgoCorpusError, match=r"^cannot write \S*/rows-\w+.jsonl: Input/output error$"):
            run(tmp_path, fake)
    all_end(tmp_path)
    assert finished(tmp_path / "out") == {"a"}
    tidy(tmp_path)
