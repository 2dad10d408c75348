"""A tracer makes of each module what a trace of the corpus makes of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus import LearnedPolicy, TensorSpec, Tracer, extract_corpus, read_log, trace_corpus
from mlgo_corpus.dataset.tracetable import TraceRow, read_trace_rows
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.policies.models import Rule
from tests.conftest import Llvm, unpack

NAMES = ("lua/lapi.o", "lua/lctype.o", "lua/ltable.o")
TIMES = ("wall_s", "cpu_s", "max_rss_bytes", "baseline_wall_s", "baseline_cpu_s", "baseline_max_rss_bytes")


class Cheap:
    """Inlines what is cheap."""

    features = ("cost_estimate",)

    def reset(self, header: Any, module: str) -> None:  # noqa: ARG002 - any will do
        self.asked = 0

    def advise(self, observation: np.void) -> bool:
        self.asked += 1
        return bool(observation["cost_estimate"] < 10)


@pytest.fixture(scope="module")
def corpus(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lua")
    unpack("lua-clang22", folder / "objects")
    extract_corpus([folder / "objects"], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture(scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of the compiler and of plain compiles, for all tests here."""
    return known(tmp_path_factory.mktemp("cache"), Llvm(22).clang)


def stable(row: TraceRow) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in TIMES}


def test_rows_are_those_of_a_dataset(llvm22: Llvm, corpus: Path, cache: Path, tmp_path: Path) -> None:
    filters = {"module_filter": r"/(lapi|lctype|ltable)\.o$", "policy": "never", "cache": cache}
    trace_corpus(corpus, tmp_path / "dataset", compiler=llvm22.clang, keep_logs=tmp_path / "logs", **filters)
    expected = {row.module: row for row in read_trace_rows(tmp_path / "dataset" / "modules.parquet")}
    work = tmp_path / "work"
    work.mkdir()
    with Tracer(corpus, llvm22.clang, policy="never", work=work, cache=cache) as tracer:
        assert set(NAMES) <= set(tracer.names())
        with ThreadPoolExecutor(2) as pool:
            traced = list(pool.map(lambda name: tracer.trace(name, log=True), NAMES))
        (own,) = work.iterdir()
        left = [path.name for path in own.iterdir()]
        assert [name.partition("-")[0] for name in left] == ["header"]  # that of all logs; nothing of a run is left
    assert list(work.iterdir()) == []
    for name, one in zip(NAMES, traced, strict=True):
        # What the log holds is counted where the dataset is made.
        left_out = {"contexts", "log_bytes", "log_sha256", "header", "separator", "dropped_bytes"}
        ours, theirs = stable(one.row), stable(expected[name])
        assert {key: ours[key] for key in ours.keys() - left_out} == {
            key: theirs[key] for key in ours.keys() - left_out
        }
        log = tmp_path / "logs" / f"{name}.log"
        assert one.log == (log.read_bytes() if log.exists() else None)


def test_policies_by_value(llvm22: Llvm, corpus: Path, cache: Path) -> None:
    with Tracer(corpus, llvm22.clang, policy=Cheap, cache=cache) as tracer:
        by_class = tracer.trace("lua/ltable.o", log=True)
        one = Cheap()
        by_object = tracer.trace("lua/ltable.o", policy=one, log=True)
        assert by_class.log == by_object.log
        assert one.asked == by_object.row.observations  # it is the object itself that was asked
        assert by_class.log is not None
        values = read_log(by_class.log).to_numpy()
        assert (values["inlining_decision"] == (values["cost_estimate"] < 10)).all()
        assert len(values["cost_estimate"]) == by_class.row.observations > 0
        never = tracer.trace("lua/ltable.o", policy="never").row
        assert (never.status, never.observations > 0) == ("ok", True)
        assert never.text_size != by_class.row.text_size
        broken = tracer.trace("lua/ltable.o", policy=(broken_policy := lambda: 1 // 0)).row
        assert (broken.status, broken.reason) == ("failed", "policy_error")
        name = "test_policies_by_value.<locals>.<lambda>"
        line = broken_policy.__code__.co_firstlineno
        what = f"ZeroDivisionError: integer division or modulo by zero (test_tracer.py, line {line})"
        assert broken.detail == f"policy {name}: {what}"
        none = tracer.trace("lua/ltable.o", policy=dict).row
        expected = "expected a function of an observation, or an object with a method advise; found a dict"
        assert none.detail == f"policy dict: {expected}"


def test_a_function_is_a_policy(llvm22: Llvm, corpus: Path, cache: Path) -> None:
    with Tracer(corpus, llvm22.clang, policy=Cheap, cache=cache) as tracer:
        by_class = tracer.trace("lua/ltable.o", log=True)
        by_function = tracer.trace("lua/ltable.o", policy=lambda seen: seen["cost_estimate"] < 10, log=True)
        assert by_function.log == by_class.log
        failed = tracer.trace("lua/ltable.o", policy=fails)
    line = fails.__code__.co_firstlineno + 1
    what = f"LookupError: no weight for it (test_tracer.py, line {line})"
    assert (failed.row.reason, failed.row.detail) == ("policy_error", f"the policy failed: {what}")
    assert failed.traceback.splitlines()[1:3] == [
        f'  File "{__file__}", line {line}, in fails',
        '    raise LookupError("no weight for it")',
    ]
    assert "mlgo_corpus/policies" not in failed.traceback
    assert by_class.traceback == ""


def fails(seen: np.void) -> bool:
    raise LookupError("no weight for it")


def test_observations_are_a_record_batch(llvm22: Llvm, corpus: Path, cache: Path) -> None:
    with Tracer(corpus, llvm22.clang, cache=cache) as tracer:
        traced = tracer.trace("lua/ltable.o", policy=Cheap, log=True)
        nothing = tracer.trace("lua/lopcodes.o", log=True)
        without = tracer.trace("lua/ltable.o")
    batch = traced.observations
    assert batch is not None
    assert batch.num_rows == traced.row.observations > 0
    assert batch.schema.names[:3] == ["module", "context", "observation"]
    assert set(batch.column("module").to_pylist()) == {"lua/ltable.o"}
    costs = batch.column("cost_estimate").to_numpy()
    assert ((costs < 10) == batch.column("inlining_decision").to_numpy()).all()
    assert (nothing.row.status, nothing.row.observations) == ("ok", 0)
    assert nothing.observations is None or nothing.observations.num_rows == 0
    with pytest.raises(UsageError, match="which was not asked for: trace with log=True"):
        _ = without.observations


class Alone(Cheap):
    """Notes each run's module, and that no other thread asks meanwhile."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def reset(self, header: Any, module: str) -> None:
        super().reset(header, module)
        self.thread = threading.get_ident()
        self.seen.append(module)

    def advise(self, observation: np.void) -> bool:
        time.sleep(0.001)
        if threading.get_ident() != self.thread:
            raise RuntimeError("two runs at a time")
        return super().advise(observation)


ONE = Alone()


def test_a_map_is_in_order_and_in_parallel(llvm22: Llvm, corpus: Path, cache: Path) -> None:
    threads = set()

    def cheap(seen: np.void) -> bool:
        threads.add(threading.get_ident())
        return bool(seen["cost_estimate"] < 10)

    names = ("lua/ltable.o", "lua/lapi.o", "lua/ltable.o", "lua/lctype.o")
    with Tracer(corpus, llvm22.clang, cache=cache) as tracer:
        mapped = list(tracer.map(names, cheap, jobs=2, log=True))
        assert [one.row.module for one in mapped] == list(names)
        assert {one.row.status for one in mapped} == {"ok"}
        assert mapped[0].log == mapped[2].log == tracer.trace("lua/ltable.o", policy=Cheap, log=True).log
        assert len(threads) == 2
        one = Alone()
        assert {traced.row.reason for traced in tracer.map(names[:3], one, jobs=3)} == {"ok"}
        assert sorted(one.seen) == sorted(names[:3])
        by_name = f"{__name__}:ONE"
        assert {traced.row.reason for traced in tracer.map(names[:3], by_name, jobs=3)} == {"ok"}
        assert sorted(ONE.seen) == sorted(names[:3])
        with pytest.raises(CorpusError, match=r"^x: "):
            list(tracer.map(["x"]))
        for wrong in ({"policy": 3}, {"jobs": 0}):
            with pytest.raises(UsageError):
                tracer.map(names, **wrong)


def test_a_map_that_is_left_ends_its_compilers(llvm22: Llvm, corpus: Path, cache: Path) -> None:
    entered = threading.Event()

    def slow(seen: np.void) -> int:
        entered.set()
        time.sleep(0.2)
        return 0

    with Tracer(corpus, llvm22.clang, cache=cache, timeout=600) as tracer:
        mapped = tracer.map(["lua/lctype.o", "lua/lapi.o", "lua/lvm.o"], slow, jobs=2)
        assert next(mapped).row.module == "lua/lctype.o"
        assert entered.wait(60)
        begin = time.monotonic()
        mapped.close()
        assert time.monotonic() - begin < 20  # it would be half a minute
        assert tracer.trace("lua/lctype.o").row.status == "ok"


class Endless(Cheap):
    def advise(self, observation: np.void) -> bool:
        while True:
            super().advise(observation)


def test_a_policy_that_never_decides_is_ended_in_a_thread(llvm22: Llvm, corpus: Path, cache: Path) -> None:
    with Tracer(corpus, llvm22.clang, cache=cache, policy=Endless(), timeout=1) as tracer:
        with ThreadPoolExecutor(1) as pool:
            row = pool.submit(tracer.trace, "lua/ltable.o").result().row
        assert (row.reason, row.detail) == ("timeout", "the policy did not decide within 1 seconds")
        assert tracer.trace("lua/ltable.o", policy="never").row.status == "ok"


def test_what_cannot_be_traced_is_told(llvm22: Llvm, corpus: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="task x: expected one of inlining, "):
        Tracer(corpus, llvm22.clang, task="x")
    with pytest.raises(UsageError, match="not a policy for inlining"):
        Tracer(corpus, llvm22.clang, policy="x", cache=cache)
    with pytest.raises(CorpusError):
        Tracer(tmp_path / "nothing", llvm22.clang, cache=cache)
    with Tracer(corpus, llvm22.clang, cache=cache) as tracer:
        with pytest.raises(CorpusError, match=r"^x: "):
            tracer.trace("x")
        with pytest.raises(CorpusError, match=r"^x: "):
            tracer.trace(replace(tracer.corpus["lua/ltable.o"], name="x"))
        with pytest.raises(
            UsageError, match="policy: expected a name, a function, or an object with a method advise; found a int"
        ):
            tracer.trace("lua/ltable.o", policy=3)
        with pytest.raises(UsageError, match="policy neverr: not a policy for inlining"):
            tracer.trace("lua/ltable.o", policy="neverr")
        begun = tracer.map(["lua/ltable.o"] * 9, "never", jobs=1)
        assert next(begun).row.status == "ok"
        tracer.stop()
        row = tracer.trace("lua/ltable.o", policy="never").row
        assert (row.status, row.signal) == ("failed", 15)
    for late in (lambda: tracer.trace("lua/ltable.o"), lambda: tracer.map("lua/ltable.o"), lambda: list(begun)):
        with pytest.raises(UsageError, match="the tracer is closed"):
            late()


def test_a_path_or_a_single_name_will_do(
    llvm22: Llvm, corpus: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LearnedPolicy("none-1.0", "inlining", (TensorSpec("cost_estimate"),), Rule(-1.0, (0.0,))).save(tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    with Tracer(os.path.relpath(corpus), llvm22.clang, policy=Path("none"), cache=cache) as tracer:
        monkeypatch.chdir("/")  # paths are of the folder in which they were named
        (one,) = tracer.map("lua/ltable.o")
        module = tracer.corpus["lua/ltable.o"]
        (again,) = tracer.map(module)
        assert tracer.trace(module).row.text_size == again.row.text_size == one.row.text_size
        assert one.row.status == "ok"
        assert one.row.text_size == tracer.trace("lua/ltable.o", policy="never").row.text_size
