"""Every column that LLVM writes has a meaning, and no meaning is of a column that there is not."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlgo_corpus import TensorSpec, read_log
from mlgo_corpus.formats.logs.events import LogHeader, parse_header
from mlgo_corpus.formats.logs.meanings import EXTENDED_MEANINGS, MEANINGS, describe
from mlgo_corpus.formats.logs.tasks import EXTENDED_FEATURES, PROJECT_FEATURES, task_name
from tests.conftest import Llvm
from tests.runs.datasets.test_logs import KINDS, real_logs

# What only comes with special options, so that no header at hand has it.
ON_REQUEST = {
    "inlining": {"callee_embedding", "caller_embedding", "delta_size"},
    "regalloc-eviction": {"instructions", "instructions_mapping", "mbb_frequencies", "mbb_mapping"},
    "regalloc-priority": set(),
}

OPTIONS = {
    "inlining": (
        "-enable-ml-inliner=release",
        "-inliner-interactive-channel-base={base}",
        "-inliner-interactive-include-default",
    ),
    "regalloc-eviction": ("-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base={base}"),
    "regalloc-priority": (
        "-regalloc-enable-priority-advisor=release",
        "-regalloc-priority-interactive-channel-base={base}",
    ),
}

SOURCE = """
static int square(int x) { return x * x + 3; }
int sum(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += square(a[i]) + square(i); return s; }
int four(int *a) { return sum(a, 4); }
"""


@pytest.mark.parametrize("task", KINDS)
def test_every_column_of_a_real_log_has_a_meaning_and_the_reverse(task: str) -> None:
    headers = [read_log(path).header for path in real_logs(task)]
    assert headers
    for header in headers:
        assert task_name(header) == task
        names = [spec.name for spec in header.columns]
        assert [name for name in names if describe(task, name) is None] == []
        assert set(MEANINGS[task]) - set(names) == ON_REQUEST[task]


@pytest.mark.parametrize("task", OPTIONS)
def test_every_column_of_an_interactive_session_has_a_meaning(llvm: Llvm, tmp_path: Path, task: str) -> None:
    header = interactive_header(llvm, tmp_path, task)
    assert task_name(header) == task
    assert header.advice is not None
    for spec in (*header.features, header.advice):
        assert describe(task, spec.name), spec.name
    scores = {"reward"} if task != "inlining" else set()
    told_of = set(MEANINGS[task]) - ON_REQUEST[task] - scores
    assert told_of == {spec.name for spec in (*header.features, header.advice)}


def interactive_header(llvm: Llvm, folder: Path, task: str) -> LogHeader:
    """Start a compile, read the first line of its channel, and end it."""
    (folder / "a.c").write_text(SOURCE)
    base = folder / "channel"
    ends = []
    for suffix in ("in", "out"):
        os.mkfifo(f"{base}.{suffix}")
        ends.append(os.open(f"{base}.{suffix}", os.O_RDWR))  # which does not wait for the other side
    options = [part for item in OPTIONS[task] for part in ("-mllvm", item.format(base=base))]
    argv = (llvm.clang, "-O2", "-c", "a.c", "-o", "a.o", *options)
    compiler = subprocess.Popen(argv, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        data = b""
        while b"\n" not in data:
            assert select.select([ends[1]], [], [], 30)[0], "the compiler says nothing"
            data += os.read(ends[1], 1 << 16)
    finally:
        compiler.kill()
        compiler.wait()
        for end in ends:
            os.close(end)
    return parse_header(data.partition(b"\n")[0])


def test_every_feature_of_extended_clangs_has_a_meaning() -> None:
    assert set(EXTENDED_MEANINGS) == {*EXTENDED_FEATURES, *PROJECT_FEATURES}
    assert describe("inlining", "callee_kind") == EXTENDED_MEANINGS["callee_kind"]
    assert describe("regalloc-eviction", "callee_kind") is None


def test_meanings_are_plain_text_on_one_line() -> None:
    for task, meanings in (*MEANINGS.items(), ("extended", EXTENDED_MEANINGS)):
        for name, meaning in meanings.items():
            assert meaning == " ".join(meaning.split()), (task, name)
            assert not set(meaning) & set("`|<>\\"), (task, name)
            assert 20 <= len(meaning) <= 330, (task, name, len(meaning))
            assert not meaning.endswith("."), (task, name)


def test_what_is_not_known() -> None:
    assert describe("inlining", "mask") is None
    assert describe("another", "mask") is None
    assert describe(None, "mask") is None
    assert task_name(LogHeader((TensorSpec("x"),))) is None
    assert task_name(LogHeader(())) is None
    advice = TensorSpec("priority", "float")
    assert task_name(LogHeader((TensorSpec("inlining_decision"),), advice=advice)) == "regalloc-priority"


def test_what_is_said_of_numbers_holds_in_real_logs() -> None:
    """What the meanings promise of values, as far as the logs at hand can show it."""
    for path in real_logs("inlining"):
        values = read_log(path).to_numpy()
        assert not values["indirect_call_penalty"].any()
        for name in ("cold_cc_penalty", "last_call_to_static_bonus", "is_multiple_blocks", "inlining_default"):
            assert set(values[name].tolist()) <= {0, 1}
        for name in ("call_penalty", "num_loops"):
            assert not (values[name] % 25).any()
        for name in ("unsimplified_common_instructions", "lowered_call_arg_setup", "jump_table_penalty"):
            assert not (values[name] % 5).any()
        assert (values["callsite_cost"] <= -30).all()
        assert (values["caller_basic_block_count"] >= 1).all()
        assert (values["callsite_height"] >= 1).all()
    for path in real_logs("regalloc-eviction"):
        values = read_log(path).to_numpy()
        masked = values["mask"] == 0
        for name, array in values.items():
            if array.shape[1:] == (1, 33):
                assert not array[masked].any(), name
                if array.dtype.kind == "f":
                    there = array[~np.isnan(array)]
                    assert name == "use_def_density" or len(there) == array.size, name
                    assert not len(there) or 0 <= there.min() <= there.max() <= 1, name
        rows = range(len(values["index_to_evict"]))
        assert values["mask"][rows, 0, values["index_to_evict"]].all()
    for path in real_logs("regalloc-priority"):
        values = read_log(path).to_numpy()
        assert not any(values[name].any() for name in ("li_size", "stage", "weight"))


def test_headers_are_json_that_names_the_decision_last() -> None:
    for task in KINDS:
        features = json.loads(read_log(real_logs(task)[0]).header.line)["features"]
        assert str(describe(task, features[-1]["name"])).startswith("the decision: ")
