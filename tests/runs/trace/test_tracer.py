"""A tracer makes of each module what a trace of the corpus makes of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus import Tracer, extract_corpus, read_log, trace_corpus
from mlgo_corpus.dataset.tracetable import TraceRow, read_trace_rows
from mlgo_corpus.errors import CorpusError, UsageError
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


def stable(row: TraceRow) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in TIMES}


def test_rows_are_those_of_a_dataset(llvm22: Llvm, corpus: Path, tmp_path: Path) -> None:
    filters = {"module_filter": r"/(lapi|lctype|ltable)\.o$", "policy": "never", "cache": tmp_path}
    trace_corpus(corpus, tmp_path / "dataset", compiler=llvm22.clang, keep_logs=tmp_path / "logs", **filters)
    expected = {row.module: row for row in read_trace_rows(tmp_path / "dataset" / "modules.parquet")}
    work = tmp_path / "work"
    work.mkdir()
    with Tracer(corpus, llvm22.clang, policy="never", work=work, cache=tmp_path) as tracer:
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


def test_policies_by_value(llvm22: Llvm, corpus: Path, tmp_path: Path) -> None:
    with Tracer(corpus, llvm22.clang, policy=Cheap, cache=tmp_path) as tracer:
        by_class = tracer.trace("lua/ltable.o", log=True)
        one = Cheap()
        by_object = tracer.trace("lua/ltable.o", policy=one, log=True)
        assert by_class.log == by_object.log
        assert not hasattr(one, "asked")  # each run has its own
        path = tmp_path / "a.log"
        assert by_class.log is not None
        path.write_bytes(by_class.log)
        values = read_log(path).to_numpy()
        assert (values["inlining_decision"] == (values["cost_estimate"] < 10)).all()
        assert len(values["cost_estimate"]) == by_class.row.observations > 0
        never = tracer.trace("lua/ltable.o", policy="never").row
        assert (never.status, never.observations > 0) == ("ok", True)
        assert never.text_size != by_class.row.text_size
        broken = tracer.trace("lua/ltable.o", policy=lambda: 1 // 0).row
        assert (broken.status, broken.reason) == ("failed", "policy_error")
        name = "test_policies_by_value.<locals>.<lambda>"
        assert broken.detail == f"policy {name}: ZeroDivisionError: integer division or modulo by zero"
        none = tracer.trace("lua/ltable.o", policy=dict).row
        assert none.detail == "policy dict: a dict has no methods reset and advise"


class Endless(Cheap):
    def advise(self, observation: np.void) -> bool:
        while True:
            super().advise(observation)


def test_a_policy_that_never_decides_is_ended_in_a_thread(llvm22: Llvm, corpus: Path, tmp_path: Path) -> None:
    with Tracer(corpus, llvm22.clang, cache=tmp_path, policy=Endless(), timeout=1) as tracer:
        with ThreadPoolExecutor(1) as pool:
            row = pool.submit(tracer.trace, "lua/ltable.o").result().row
        assert (row.reason, row.detail) == ("timeout", "the policy did not decide within 1 seconds")
        assert tracer.trace("lua/ltable.o", policy="never").row.status == "ok"


def test_what_cannot_be_traced_is_told(llvm22: Llvm, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="task x: expected one of inlining, "):
        Tracer(corpus, llvm22.clang, task="x")
    with pytest.raises(UsageError, match="not a policy for inlining"):
        Tracer(corpus, llvm22.clang, policy="x", cache=tmp_path)
    with pytest.raises(CorpusError):
        Tracer(tmp_path / "nothing", llvm22.clang, cache=tmp_path)
    with Tracer(corpus, llvm22.clang, cache=tmp_path) as tracer:
        with pytest.raises(CorpusError, match=r"^x: "):
            tracer.trace("x")
        with pytest.raises(UsageError, match="policy: a int is neither a name"):
            tracer.trace("lua/ltable.o", policy=3)
        tracer.stop()
        row = tracer.trace("lua/ltable.o", policy="never").row
        assert (row.status, row.signal) == ("failed", 15)
