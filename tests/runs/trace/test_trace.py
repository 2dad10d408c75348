"""Traces with real compilers: what is in the dataset, against plain compiles, LLVM's own logs and LLVM's own tools."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import (
    Corpus,
    LearnedPolicy,
    Tracer,
    extract_corpus,
    ir2native_table,
    read_log,
    restore_logs,
    verify_corpus,
)
from mlgo_corpus.compilers.session import InteractiveSession
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.dataset.tracetable import TraceRow, read_trace_rows
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.policies.policy import import_from_here
from mlgo_corpus.runs.trace.run import LevelSizes, TraceReport
from mlgo_corpus.trace import trace_corpus
from tests.conftest import DATA, EMBED, LLVM_VERSIONS, Llvm, run_checked, unpack
from tests.handmade import put
from tests.policies.samples import columns_of, policy_of, random_trees, real_observations
from tests.runs.extract.test_extract import SOURCES

TASKS = ("inlining", "regalloc-eviction", "regalloc-priority")
LOGGED = ("lapi", "linit", "lopcodes", "ltable", "lvm", "lzio")
SIX = rf"/({'|'.join(LOGGED)})\.o$"
FEW = r"/(lapi|lctype|ltable)\.o$"  # in lctype nothing is to be decided
ONE = r"/ltable\.o$"
TIMES = ("wall_s", "cpu_s", "max_rss_bytes", "baseline_wall_s", "baseline_cpu_s", "baseline_max_rss_bytes")

Compile = Callable[..., Path]
Trace = Callable[..., TraceReport]


@pytest.fixture(scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known(tmp_path_factory.mktemp("cache"), *(Llvm(version).clang for version in LLVM_VERSIONS))


@pytest.fixture(autouse=True)
def usual_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLGO_CORPUS_COMPILER", raising=False)


@pytest.fixture(scope="module")
def lua22(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lua_corpus(22, tmp_path_factory.mktemp("lua22"))


@pytest.fixture(scope="module")
def lua19(llvm19: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lua_corpus(19, tmp_path_factory.mktemp("lua19"))


def lua_corpus(version: int, folder: Path) -> Path:
    unpack(f"lua-clang{version}", folder / "objects")
    extract_corpus([folder / "objects"], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture
def trace22(llvm22: Llvm, lua22: Path, cache: Path, tmp_path: Path) -> Trace:
    """Trace modules of Lua with clang 22, into ``dataset`` in the test's folder."""
    return tracer(llvm22.clang, lua22, cache, tmp_path, module_filter=FEW)


@pytest.fixture
def trace19(devmode: Path, lua19: Path, cache: Path, tmp_path: Path) -> Trace:
    """The same with clang 19 in development mode."""
    return tracer(str(devmode), lua19, cache, tmp_path, module_filter=SIX)


def tracer(compiler: str, corpus: Path, cache: Path, folder: Path, **usual: Any) -> Trace:
    def trace(output: str = "dataset", **options: Any) -> TraceReport:
        where = options.pop("corpus", corpus)
        return trace_corpus(where, folder / output, **{"compiler": compiler, "cache": cache, **usual, **options})

    return trace


def test_a_corpus_newer_than_the_only_compiler_that_writes_logs(devmode: Path, lua22: Path, tmp_path: Path) -> None:
    trace = tracer(str(devmode), lua22, tmp_path / "cache", tmp_path, module_filter="lzio")
    with pytest.raises(MlgoCorpusError, match=r"build the corpus with 'mlgo-corpus build --compiler clang-19'$"):
        trace(task="regalloc-eviction")


def rows(dataset: Path) -> dict[str, TraceRow]:
    return {row.module: row for row in read_trace_rows(dataset / "modules.parquet")}


def observations(dataset: Path) -> Any:
    return pq.read_table(sorted((dataset / "observations").glob("*.parquet")))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stable(dataset: Path) -> tuple[dict[str, bytes], Any]:
    """Give a dataset's files as bytes, but of the table of modules what does not depend on the clock."""
    found = files(dataset)
    del found["modules.parquet"]
    table = pq.read_table(dataset / "modules.parquet")
    return found, (table.schema.metadata, table.drop_columns(list(TIMES)).to_pylist())


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def words(row: TraceRow) -> str:
    return shlex.join(row.argv or ())


# --- by a learned policy


def test_a_learned_policy_decides_live_as_in_development_mode(
    llvm19: Llvm, trace19: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))
    features, records = real_observations("inlining")
    features = tuple(spec for spec in features if spec.name != "inlining_default")
    columns = columns_of(features, records)
    model = random_trees(len(features), np.random.default_rng(8), trees=40, at=columns)
    policy = policy_of("inlining", features, model, threshold=float(np.median(model.scores(columns))))
    policy.save(tmp_path / "inlining-1.0")
    options = {"policy": str(tmp_path / "inlining-1.0"), "module_filter": FEW}
    live = trace19("live", compiler=llvm19.clang, keep_objects=str(tmp_path / "live-objects"), **options)
    logged = trace19("logged", via="training-log", keep_objects=tmp_path / "logged-objects", **options)
    assert (live.via, logged.via, live.failed, logged.failed) == ("interactive", "training-log", 0, 0)
    assert live.faithful < live.traced  # it decides otherwise than LLVM's heuristic
    assert files(tmp_path / "live-objects") == files(tmp_path / "logged-objects")
    found, expected = observations(tmp_path / "live"), observations(tmp_path / "logged")
    names = [*(spec.name for spec in features), "inlining_decision", "module"]
    assert found.select(names).to_pylist() == expected.select(names).to_pylist()
    assert {"inlining_default"} == set(expected.column_names) - set(found.column_names)
    assert "callee_basic_block_count" in live.caveats[0]
    decided = policy.decide({spec.name: found[spec.name].to_numpy() for spec in features})
    assert found["inlining_decision"].to_pylist() == decided.tolist()
    assert 0 < sum(decided) < len(decided)
    policy_of("inlining", features, model, threshold=1e9).save(tmp_path / "inlining-1.0", force=True)
    with pytest.raises(UsageError, match="live: made in another way"):
        trace19("live", compiler=llvm19.clang, **options)


def test_a_policy_for_another_language_leaves_a_module_as_it_is(trace22: Trace, tmp_path: Path) -> None:
    reports = []
    for name, languages in (("cxx", ("C++",)), ("both", ("C", "C++"))):
        policy = policy_of("inlining", (TensorSpec("cost_estimate"),), Rule(0.0, (0.0,)))  # never
        replace(policy, languages=languages).save(tmp_path / f"policy-{name}")
        options = {"policy": str(tmp_path / f"policy-{name}"), "module_filter": ONE}
        reports.append(trace22(name, keep_objects=tmp_path / f"objects-{name}", **options))
    cxx, both = reports
    assert (cxx.traced, cxx.failed, cxx.observations, cxx.faithful) == (1, 0, 0, 1)
    assert cxx.text_size == cxx.baseline_text_size == both.baseline_text_size < both.text_size
    assert both.observations > 0
    (row,) = rows(tmp_path / "cxx").values()
    (copy,) = files(tmp_path / "objects-cxx").values()
    assert sha256(copy).hexdigest() == row.object_sha256 == row.baseline_object_sha256


def test_a_learned_policys_object_decides_as_the_policy_does_by_name(
    llvm19: Llvm, lua19: Path, cache: Path, tmp_path: Path
) -> None:
    rule = Rule(7.5, (-1.0,))
    blocks = LearnedPolicy("inlining-1.0", "inlining", (TensorSpec("callee_basic_block_count"),), rule)
    for policy, observations in ((blocks, 82), (replace(blocks, languages=("C++",)), 0)):
        policy.save(tmp_path / "inlining-1.0", force=True)
        with (
            Tracer(lua19, llvm19.clang, policy=str(tmp_path / "inlining-1.0"), cache=cache) as by_name,
            Tracer(lua19, llvm19.clang, policy=policy, cache=cache) as by_object,
        ):
            traced = [
                by_name.trace("lua/ltable.o", log=True),
                by_object.trace("lua/ltable.o", log=True),
                by_name.trace("lua/ltable.o", policy=policy, log=True),
            ]
        assert len({(one.row.object_sha256, one.log) for one in traced}) == 1
        assert {one.row.observations for one in traced} == {observations}


def test_a_damaged_module_does_not_keep_others_from_being_left_as_they_are(
    lua22: Path, llvm22: Llvm, cache: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(lua22, corpus)
    names = json.loads((corpus / "corpus_description.json").read_bytes())["modules"][:2]
    (corpus / "modules.parquet").unlink(missing_ok=True)
    put(corpus / "corpus_description.json", json.dumps({"has_thinlto": False, "modules": names}).encode())
    put(corpus / f"{names[0]}.bc", b"BC")
    policy = policy_of("inlining", (TensorSpec("cost_estimate"),), Rule(0.0, (0.0,)))
    replace(policy, languages=("C++",)).save(tmp_path / "policy")
    options = {"policy": str(tmp_path / "policy"), "compiler": llvm22.clang, "cache": cache}
    report = trace_corpus(corpus, tmp_path / "d", **options)  # type: ignore[arg-type]
    assert (report.traced, report.failed, report.observations, report.exit_code) == (1, 1, 0, 1)
    assert {name: row.status for name, row in rows(tmp_path / "d").items()} == {names[0]: "failed", names[1]: "ok"}


def test_a_learned_policy_needs_a_compiler_that_sends_its_features(trace22: Trace, tmp_path: Path) -> None:
    features = (TensorSpec("cost_estimate"), TensorSpec("cookies"))
    policy_of("inlining", features, Rule(0.0, (1.0, 1.0))).save(tmp_path / "policy")
    with pytest.raises(MlgoCorpusError, match="needs the feature 'cookies', which this compiler does not send"):
        trace22(policy=str(tmp_path / "policy"), module_filter=ONE)


# --- by LLVM's own heuristic, which leaves the object as it is


def test_llvm_22_does_as_without_us(llvm22: Llvm, lua22: Path, cache: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, int, int]] = []
    report = trace_corpus(
        lua22,
        tmp_path / "d",
        compiler=llvm22.clang,
        via="interactive",
        keep_objects=tmp_path / "objects",
        cache=cache,
        progress=lambda *state: seen.append(state),
    )
    found = rows(tmp_path / "d")
    corpus = Corpus.open(lua22)
    assert tuple(found) == corpus.names
    assert report.counts == {"ok": 34}
    assert (report.modules, report.traced, report.faithful, report.failed) == (34, 34, 34, 0)
    assert (report.via, report.task, report.policy, report.caveats) == ("interactive", "inlining", "default", ())
    assert "clang version 22" in report.compiler
    assert seen[-1] == (34, 0, report.observations, 34)
    assert [state[0] for state in seen] == list(range(1, 35))

    plain = tmp_path / "plain.o"
    for module in corpus:
        bitcode = str(module.bitcode_path)
        command = [word for word in module.command() if not word.startswith("-fembed-bitcode")]
        run_checked(llvm22.clang, *command, "-x", "ir", bitcode, "-o", str(plain), cwd=tmp_path)
        row = found[module.name]
        assert (
            row.object_sha256
            == row.baseline_object_sha256
            == digest(plain)
            == digest(tmp_path / "objects" / row.module)
        )
        assert row.faithful is True
        assert row.reward == 0.0
        assert row.bitcode_sha256 == digest(module.bitcode_path)
        assert row.bitcode_bytes == module.bitcode_path.stat().st_size

    printed = run_checked(llvm22.size, *found, cwd=tmp_path / "objects").splitlines()[1:]
    text = {line.split()[-1]: int(line.split()[0]) for line in printed}
    assert text == {name: row.text_size for name, row in found.items()}
    assert text == {name: row.baseline_text_size for name, row in found.items()}
    assert report.text_size == report.baseline_text_size == sum(text.values()) == 194_114

    decided = [row for row in found.values() if row.observations]
    sizes = sum(row.text_size or 0 for row in decided)
    assert {row.opt_level for row in found.values()} == {"z"}
    assert report.levels == (LevelSizes("z", len(decided), 2528, sizes, sizes),)
    assert (report.undecided, report.undecided_text_size) == (34 - len(decided), 194_114 - sizes)

    table = observations(tmp_path / "d")
    assert table.num_rows == report.observations == sum(row.observations for row in found.values()) == 2528
    assert table["inlining_default"] == table["inlining_decision"]
    assert set(table["inlining_decision"].to_pylist()) == {0, 1}
    assert min(table["callee_basic_block_count"].to_pylist()) > 0
    about = json.loads((tmp_path / "d" / "dataset.json").read_text())
    expected = {"kind": "trace", "task": "inlining", "via": "interactive", "policy": "default", "modules": 34}
    assert {name: about[name] for name in expected} == expected
    assert (about["measure"], about["epsilon"], about["corpus"]) == ("text_size", 0.01, "corpus")
    assert about["argv"][:2] == ["clang", "-cc1"]
    assert "lua/lapi.o.bc" in about["argv"]
    assert str(tmp_path) not in (tmp_path / "d" / "README.md").read_text() + json.dumps(about)


def test_llvm_19_tells_the_decision_in_another_features_place(
    llvm19: Llvm, trace19: Trace, lua19: Path, cache: Path, tmp_path: Path
) -> None:
    stock = tracer(llvm19.clang, lua19, cache, tmp_path)("stock", module_filter=SIX)
    assert (stock.via, stock.counts, stock.faithful) == ("interactive", {"ok": 6}, 6)
    assert len(stock.caveats) == 1
    assert "callee_basic_block_count" in (tmp_path / "stock" / "README.md").read_text().rpartition("## Caveats")[2]
    found = observations(tmp_path / "stock")
    assert found["inlining_default"] == found["inlining_decision"]
    assert set(found["callee_basic_block_count"].to_pylist()) == {0}

    logged = trace19("logged")
    assert (logged.via, logged.counts, logged.faithful, logged.caveats) == ("training-log", {"ok": 6}, 6, ())
    expected = observations(tmp_path / "logged")
    assert set(expected["inlining_decision"].to_pylist()) == {0, 1}
    assert min(expected["callee_basic_block_count"].to_pylist()) > 0
    name = "callee_basic_block_count"
    assert found.drop_columns([name]).to_pylist() == expected.drop_columns([name]).to_pylist()
    ours = rows(tmp_path / "stock")
    assert all(ours[name].object_sha256 == row.object_sha256 for name, row in rows(tmp_path / "logged").items())


# --- by training logs


@pytest.mark.parametrize("task", TASKS)
def test_the_dataset_of_a_development_mode_compiler_is_its_logs(trace19: Trace, task: str, tmp_path: Path) -> None:
    report = trace19(task=task, keep_logs=str(tmp_path / "logs"))
    assert (report.via, report.counts, report.faithful, report.caveats) == ("training-log", {"ok": 6}, 6, ())
    table = observations(tmp_path / "dataset")
    restore_logs(tmp_path / "dataset", tmp_path / "again")
    found = rows(tmp_path / "dataset")
    for name in LOGGED:
        original = DATA / "training-logs" / f"{task}.{name}.log"
        log = read_log(original)
        assert (tmp_path / "logs" / f"lua/{name}.o.log").read_bytes() == original.read_bytes()
        assert (tmp_path / "again" / f"lua/{name}.o.log").read_bytes() == original.read_bytes()
        here = [at for at, module in enumerate(table["module"].to_pylist()) if module == f"lua/{name}.o"]
        mine = table.take(pa.array(here, pa.int64()))
        expected = {feature: values for feature, values in log.to_numpy().items() if feature in mine.column_names}
        assert len(expected) >= 4
        for feature, values in expected.items():
            found_values = np.array(mine[feature].to_pylist(), values.dtype).reshape(values.shape)
            assert found_values.tobytes() == values.tobytes()  # some are NaN
        names = [context.name for context in log for _ in context.numbers]
        assert mine["context"].to_pylist() == names
        row = found[f"lua/{name}.o"]
        assert row.observations == len(here) == len(names)
        assert row.log_bytes == original.stat().st_size
        assert row.contexts == len(list(log))


def test_inlining_is_the_same_either_way(trace19: Trace, tmp_path: Path) -> None:
    trace19("log", via="training-log")
    trace19("live", via="interactive")
    one, two = observations(tmp_path / "log"), observations(tmp_path / "live")
    assert one.schema.equals(two.schema, check_metadata=True)
    # But for what LLVM 19 does not tell.
    assert set(two["callee_basic_block_count"].to_pylist()) == {0}
    names = [name for name in one.column_names if name != "callee_basic_block_count"]
    assert one.select(names).to_pylist() == two.select(names).to_pylist()
    contexts = [pq.read_table(tmp_path / name / "contexts.parquet") for name in ("log", "live")]
    assert contexts[0].equals(contexts[1], check_metadata=True)
    tables = [pq.read_table(tmp_path / name / "modules.parquet") for name in ("log", "live")]
    assert tables[0].schema.equals(tables[1].schema)
    same = ["module", "header", "log_bytes", "text_size", "reward", "faithful", "observations", "object_sha256"]
    assert tables[0].select(same).to_pylist() == tables[1].select(same).to_pylist()
    assert "-training-log=training.log" in words(rows(tmp_path / "log")["lua/lapi.o"])


@pytest.mark.parametrize("task", TASKS[1:])
def test_register_allocation_has_the_same_columns_but_for_the_reward(trace19: Trace, task: str, tmp_path: Path) -> None:
    trace19("log", task=task, module_filter=ONE)
    report = trace19("live", task=task, policy="first", module_filter=ONE)
    assert report.via == "interactive"
    assert report.caveats == (
        "The compiler's own score (reward in training logs) is not told in a live session, so there is no such column.",
    )
    one, two = observations(tmp_path / "log"), observations(tmp_path / "live")
    assert one.column_names[-1] == "reward"
    assert one.drop_columns(["reward"]).schema.equals(two.schema)
    fields = zip(one.drop_columns(["reward"]).schema, two.schema, strict=True)
    assert all(a.equals(b, check_metadata=True) for a, b in fields)
    assert set(one["context"].to_pylist()) & set(two["context"].to_pylist())


# --- by policies


@pytest.mark.parametrize(("policy", "decision"), [("never", 0), ("always", 1)])
def test_always_and_never(trace22: Trace, tmp_path: Path, policy: str, decision: int) -> None:
    report = trace22(policy=policy)
    table = observations(tmp_path / "dataset")
    assert set(table["inlining_decision"].to_pylist()) == {decision}
    assert 0 < sum(table["inlining_default"].to_pylist()) < table.num_rows
    assert report.faithful == 1  # lctype, where nothing is to be decided
    row = rows(tmp_path / "dataset")["lua/lapi.o"]
    assert row.text_size
    assert row.baseline_text_size
    assert row.reward == 1 - (row.text_size + 0.01) / (row.baseline_text_size + 0.01) != 0
    assert row.object_sha256 != row.baseline_object_sha256


@pytest.mark.parametrize("task", TASKS[1:])
@pytest.mark.parametrize("policy", ["first", "random"])
def test_register_allocation_by_a_policy(trace22: Trace, tmp_path: Path, task: str, policy: str) -> None:
    report = trace22(task=task, policy=policy)
    assert report.counts == {"ok": 3}
    table = observations(tmp_path / "dataset")
    assert table.num_rows == report.observations > 0
    if task == "regalloc-priority":
        values = table["priority"].to_pylist()
        assert set(values) == {0.0} if policy == "first" else 0 <= min(values) < max(values) < 2**24
        return
    for mask, index in zip(table["mask"].to_pylist(), table["index_to_evict"].to_pylist(), strict=True):
        assert mask[index] == 1
        assert policy == "random" or index == mask.index(1)


def test_random_depends_on_the_seed_and_on_nothing_else(trace22: Trace, tmp_path: Path) -> None:
    trace22("one", policy="random", seed=7, jobs=1)
    trace22("three", policy="random", seed=7, jobs=3)
    trace22("other", policy="random", seed=8)
    assert stable(tmp_path / "one") == stable(tmp_path / "three")
    decisions = [observations(tmp_path / name)["inlining_decision"].to_pylist() for name in ("one", "other")]
    assert decisions[0] != decisions[1]
    assert 0.3 < sum(decisions[0]) / len(decisions[0]) < 0.7
    trace22("rare", policy="random:0.05", seed=7)
    rare = observations(tmp_path / "rare")["inlining_decision"].to_pylist()
    assert sum(rare) / len(rare) < 0.15


POLICIES = """
import pathlib

class Small:
    features = ("callee_basic_block_count", "inlining_default")
    def reset(self, header, module):
        self.names = tuple(spec.name for spec in header.features)
        self.module = module
    def advise(self, observation):
        assert observation.dtype.names == self.names
        assert self.module.startswith("lua/")
        assert observation["inlining_default"] in (0, 1)
        assert len({int(observation[name]) for name in self.names}) > 1
        return observation["callee_basic_block_count"] < 4

def make():
    return Small()

instance = Small()

class Missing(Small):
    features = ("callee_basic_block_count", "moon_phase")

class Raises(Small):
    def advise(self, observation):
        raise RuntimeError("no idea\\nat all")

class RaisesOurs(Small):
    def advise(self, observation):
        from mlgo_corpus.errors import FormatError
        raise FormatError("no log")

class BadReset(Small):
    def reset(self, header, module):
        raise KeyError(module)

class Text(Small):
    def advise(self, observation):
        return "yes"

class Seven(Small):
    def advise(self, observation):
        return 7

class NotAPolicy:
    pass

def fails():
    raise OSError("no weights")
"""


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file of policies in the current folder: its module's name."""
    name = f"policies_{sha256(str(tmp_path).encode()).hexdigest()[:8]}"
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / f"{name}.py").write_text(POLICIES)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    import_from_here(f"{name}:Small")
    yield name
    sys.modules.pop(name, None)


def test_a_policy_of_ones_own(trace22: Trace, policies: str, tmp_path: Path) -> None:
    for attribute in ("Small", "make", "instance"):
        report = trace22(attribute, policy=f"{policies}:{attribute}")
        assert report.counts == {"ok": 3}, report.problems
        table = observations(tmp_path / attribute)
        blocks = table["callee_basic_block_count"].to_pylist()
        assert table["inlining_decision"].to_pylist() == [int(count < 4) for count in blocks]
    assert observations(tmp_path / "Small").equals(observations(tmp_path / "make"))
    assert json.loads((tmp_path / "make" / "dataset.json").read_text())["policy"] == f"{policies}:make"


def test_a_policy_whose_library_has_threads(
    trace22: Trace, policies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are started in this process, and a fork of it would wait for them for ever."""
    monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)
    Path(f"{policies}_threads.py").write_text(
        "import lightgbm\n"
        "import numpy as np\n"
        "inputs = np.arange(4000.0).reshape(-1, 4) % 97\n"
        "how = {'verbosity': -1, 'num_threads': 2}\n"
        "booster = lightgbm.train(how, lightgbm.Dataset(inputs, inputs[:, 0] > 40), 3)\n"
        "def advise(observation):\n"
        "    blocks = float(observation['callee_basic_block_count'])\n"
        "    return int(booster.predict(np.array([[40.0 * blocks, 1.0, 2.0, 3.0]]), num_threads=2)[0] > 0.5)\n"
    )
    report = trace22(policy=f"{policies}_threads:advise", module_filter=ONE, timeout=20.0)
    assert (report.counts, set(observations(tmp_path / "dataset")["inlining_decision"].to_pylist())) == (
        {"ok": 1},
        {0, 1},
    ), report.problems


@pytest.mark.parametrize(
    ("attribute", "detail"),
    [
        ("Missing", "the policy needs the feature 'moon_phase', which this compiler does not send"),
        ("Raises", "the policy failed: RuntimeError: no idea (POLICIES.py, line N)"),
        ("RaisesOurs", "the policy failed: FormatError: no log (POLICIES.py, line N)"),
        ("BadReset", "the policy failed: KeyError: 'lua/ltable.o' (POLICIES.py, line N)"),
        (
            "Text",
            "the policy returned an invalid decision: inlining_decision: expected a whole number that fits into "
            "int64_t as advice, got 'yes'",
        ),
        ("Seven", "the policy returned an invalid decision: inlining_decision 7"),
    ],
)
def test_a_policy_that_cannot(trace22: Trace, policies: str, tmp_path: Path, attribute: str, detail: str) -> None:
    message = re.escape(f"not one of 1 module could be traced (policy_error 1): lua/ltable.o: {detail}")
    message = message.replace("POLICIES", policies).replace(r"line\ N", r"line\ \d+")
    with pytest.raises(MlgoCorpusError) as caught:
        trace22(policy=f"{policies}:{attribute}", module_filter=ONE)
    assert re.fullmatch(message, str(caught.value))
    assert not (tmp_path / "dataset").exists()


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("NotAPolicy", "expected a function of .* or an object with a method advise; found a NotAPolicy"),
        ("fails", r"OSError: no weights \(policies_[0-9a-f]+\.py, line \d+\)\nTraceback (?s:.*)"),
        ("nothing", "AttributeError: module .* has no attribute 'nothing'"),
    ],
)
def test_a_policy_that_is_none(trace22: Trace, policies: str, tmp_path: Path, attribute: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^policy {policies}:{attribute}: {message}$"):
        trace22(policy=f"{policies}:{attribute}")
    assert not (tmp_path / "dataset").exists()


def test_an_eviction_that_is_not_possible(
    trace22: Trace, policies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "class Far(Small):\n    features = ()\n    def advise(self, observation):\n        return 33\n"
    more += "class Masked(Far):\n    def advise(self, observation):\n        return int(observation['mask'].argmin())\n"
    Path(f"{policies}.py").write_text(POLICIES + more)
    for name, what in (("Far", "index_to_evict 33"), ("Masked", r"index_to_evict \d+")):
        with pytest.raises(MlgoCorpusError, match=rf"lua/ltable\.o: the policy returned an invalid decision: {what}$"):
            trace22(task="regalloc-eviction", policy=f"{policies}:{name}", module_filter=ONE)


def test_a_policy_that_was_edited_is_another(trace22: Trace, policies: str, tmp_path: Path) -> None:
    policy = f"{policies}:Small"
    trace22(policy=policy, module_filter=ONE)
    assert trace22(policy=policy, module_filter=ONE).unchanged
    Path(f"{policies}.py").write_text(POLICIES.replace("< 4", "< 5"))
    with pytest.raises(UsageError, match=r"made in another way: policy code was [0-9a-f]{8}, is [0-9a-f]{8}; `force`"):
        trace22(policy=policy, module_filter=ONE)


# --- rows


def test_the_command_of_a_row_can_be_run_by_hand(trace22: Trace, tmp_path: Path) -> None:
    trace22(policy="always")
    for name, row in rows(tmp_path / "dataset").items():
        folder = tmp_path / "by-hand" / name
        folder.mkdir(parents=True)
        assert row.argv is not None
        with InteractiveSession(row.argv, folder / "channel", timeout=300, cwd=folder) as session:
            for _ in session:
                session.advise(1)
        assert digest(folder / "module.o") == row.object_sha256
        added = re.compile(
            r"-enable-ml-inliner|-inliner-interactive|-opt-record-|inline-ml\Z|remarks\Z|bitstream\Z|-remarks-section"
        )
        plain = [word for word in row.argv if not added.match(word)]
        plain = [
            word
            for at, word in enumerate(plain)
            if word != "-mllvm" or plain[at + 1 : at + 2] not in ([], ["-mllvm"], ["-o"])
        ]
        run_checked(*plain, cwd=folder)
        assert digest(folder / "module.o") == row.baseline_object_sha256


def test_the_command_that_writes_a_log_can_be_run_by_hand(trace19: Trace, tmp_path: Path) -> None:
    trace19(task="regalloc-priority", module_filter=ONE, keep_logs=tmp_path / "logs")
    (row,) = rows(tmp_path / "dataset").values()
    folder = tmp_path / "by-hand"
    folder.mkdir()
    run_checked(*(row.argv or ()), cwd=folder)
    assert digest(folder / "module.o") == row.object_sha256
    assert (folder / "training.log").read_bytes() == (tmp_path / "logs/lua/ltable.o.log").read_bytes()


def test_decisions_are_named_as_the_compiler_names_them(
    llvm22: Llvm, devmode: Path, lua22: Path, lua19: Path, cache: Path, tmp_path: Path
) -> None:
    """The remarks tell all features: each row has those of the call that it names, and the source's line."""
    for number, (compiler, corpus, policy) in enumerate(
        ((llvm22.clang, lua22, "always"), (str(devmode), lua19, "default"), (str(devmode), lua19, "random:0.5"))
    ):
        trace = tracer(compiler, corpus, cache, tmp_path, module_filter=ONE, policy=policy)
        trace(output=f"d{number}", add_flags=["-debug-info-kind=line-tables-only"])
        (row,) = rows(tmp_path / f"d{number}").values()
        table = observations(tmp_path / f"d{number}")
        folder = tmp_path / f"by-hand-{number}"
        folder.mkdir()
        argv = ["yaml" if word == "bitstream" else word for word in row.argv or ()]
        if policy == "default":
            run_checked(*argv, cwd=folder)
        else:
            with InteractiveSession(argv, folder / "channel", timeout=300, cwd=folder) as session:
                for decision in table["inlining_decision"].to_pylist():
                    next(session)
                    session.advise(decision)
                assert next(session, None) is None
        documents = (folder / "remarks").read_text().split("--- !")[1:]
        found = []
        for document in documents:
            if "Name:            ForceStop" not in document:
                told = dict(re.findall(r"^(?:  - )?(\w+): +'?(.*?)'?$", document, re.MULTILINE))
                found.append({"caller": told["Function"], "callee": told["Callee"], **told})
        names = [name for name in table.schema.names[3:-5] if name in found[0]]
        assert len(names) > 30
        moved = {"callee_basic_block_count", "inlining_default"} if compiler != llvm22.clang else set()
        for name in ("caller", "callee", *(set(names) - moved)):
            assert [str(value) for value in table[name].to_pylist()] == [told[name] for told in found]
        decided = ["true" if value else "false" for value in table["inlining_decision"].to_pylist()]
        assert decided == [told["ShouldInline"] for told in found]
        assert table.num_rows == row.observations > 20


def test_no_names(trace22: Trace, tmp_path: Path) -> None:
    trace22(module_filter=ONE, names=False)
    assert not {"caller", "line"} & set(observations(tmp_path / "dataset").schema.names)
    (row,) = rows(tmp_path / "dataset").values()
    assert "-opt-record-file" not in (row.argv or ())
    with pytest.raises(UsageError, match="names"):
        trace22(module_filter=ONE)


def test_what_a_row_tells(trace22: Trace, tmp_path: Path) -> None:
    report = trace22()
    peaks: list[int | None] = []
    for row in rows(tmp_path / "dataset").values():
        assert (row.status, row.reason, row.detail, row.exit_code, row.signal, row.stderr_tail) == (
            "ok",
            "ok",
            "",
            0,
            None,
            "",
        )
        for cpu, wall, memory in (
            (row.cpu_s, row.wall_s, row.max_rss_bytes),
            (row.baseline_cpu_s, row.baseline_wall_s, row.baseline_max_rss_bytes),
        ):
            assert None not in (cpu, wall)
            assert 0 < cpu < 60
            assert 0 < wall < 60
            assert memory is None or 10 << 20 < memory < 2 << 30
            peaks.append(memory)
        assert row.code_size is not None
        assert 0 <= row.code_size < (row.text_size or 0)
        assert row.contexts == 1
        assert row.dropped_bytes == 0
    # That of a short compile is not known if this process has had more, and the compile was not seen while it ran.
    assert peaks.count(None) < len(peaks) / 2
    by_size = sorted(rows(tmp_path / "dataset").values(), key=lambda row: -(row.wall_s or 0))
    assert report.slowest == tuple((row.module, row.wall_s, row.observations) for row in by_size)
    assert json.loads(json.dumps(report.as_json()))["output"] == str(tmp_path / "dataset")


# --- the command, edited


def test_flags(trace22: Trace, tmp_path: Path) -> None:
    report = trace22(
        add_flags=("-mllvm -inline-threshold=77",),
        delete_flags=("-faddrsig", "-vectorize-slp"),
        replace_flags=("-O=3", "-tune-cpu=haswell"),
        module_filter=ONE,
    )
    assert (report.counts, report.faithful) == ({"ok": 1}, 1)
    (row,) = rows(tmp_path / "dataset").values()
    found = words(row)
    assert " -mllvm -inline-threshold=77 " in found
    assert " -O3 " in found
    assert "-Oz" not in found
    assert "-tune-cpu haswell" in found
    assert "-faddrsig" not in found
    assert "-vectorize-slp" not in found
    trace22("plain", module_filter=ONE)
    (plain,) = rows(tmp_path / "plain").values()
    assert (row.text_size or 0) > (plain.text_size or 0) > 0
    assert row.baseline_text_size == row.text_size  # the plain compile has the same flags


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add_flags": ("a.c",)}, "expected one option of clang -cc1, found 'a.c'"),
        ({"replace_flags": ("-O3",)}, "expected NAME=VALUE to replace an option's value, found '-O3'"),
        (
            {"delete_flags": ("-O",), "replace_flags": ("-O=z",)},
            "replace_flags -O=z: `delete_flags`=-O takes this option out before it is replaced; give one of the two",
        ),
        ({"task": "eviction"}, "task eviction: expected one of inlining, regalloc-eviction, regalloc-priority"),
        ({"via": "log"}, "via log: expected one of auto, training-log, interactive"),
        ({"timeout": 0}, "timeout 0: expected seconds, more than 0"),
        ({"jobs": 0}, "jobs 0: expected at least 1"),
        ({"retries": -1}, "retries -1: expected at least 0"),
        ({"memory_limit": 0}, "memory_limit 0: expected at least 1"),
        ({"policy": "first"}, "policy first: not a policy for inlining: expected one of default, never, always"),
        ({"module_filter": "nothing"}, ": no module is left"),
        ({"sample": "0"}, "sample 0: expected a number of modules, or a fraction"),
        ({"via": "training-log"}, "training logs of inlining need a compiler made by 'mlgo-corpus toolchain build'"),
        ({"task": "regalloc-priority"}, "with any other compiler, name a `policy`: first, random or module:attribute"),
        ({"compiler": "no-such-clang"}, "no-such-clang: no such program"),
    ],
)
def test_what_cannot_be_asked_for(trace22: Trace, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        trace22(**options)
    assert not (tmp_path / "dataset").exists()


def test_an_output_that_is_no_folder(trace22: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a trace is a folder: name one without \.parquet"):
        trace22("dataset.parquet")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"keep_objects .*/file: expected a folder, found a file"):
        trace22(keep_objects=tmp_path / "file")
    assert not (tmp_path / "dataset").exists()


# --- corpora of other kinds


Hand = Callable[..., Path]

BODY = "static int g(int x) { return x * x + 1; }\nint f(int x) { return g(x) + g(x + 1); }\n"


@pytest.fixture
def by_hand(compile_c: Compile, tmp_path: Path) -> Hand:
    """Make a corpus of some text, with an edited command: ``by_hand(llvm, "f.c", add=("-w",))``."""

    def make(
        llvm: Llvm, *names: str, add: tuple[str, ...] = (), folder: str = "hand", flags: tuple[str, ...] = ()
    ) -> Path:
        for name in names:
            compile_c(llvm, BODY, "-O2", *EMBED, *flags, name=f"{folder}-objects/{name}")
        extract_corpus([tmp_path / f"{folder}-objects"], tmp_path / folder, jobs=1)
        for path in (tmp_path / folder).glob("*.cmd"):
            path.write_bytes(path.read_bytes().rstrip(b"\0") + b"".join(b"\0" + word.encode() for word in add))
        return tmp_path / folder

    return make


def spoil(corpus: Path, name: str, *add: str) -> None:
    path = corpus / f"{name}.cmd"
    path.write_bytes(path.read_bytes().rstrip(b"\0") + b"".join(b"\0" + word.encode() for word in add))


def test_commands_that_are_not_run(llvm22: Llvm, by_hand: Hand, trace22: Trace, tmp_path: Path) -> None:
    corpus = by_hand(llvm22, "good.c", "load.c", "profile.c", "none.c", "gone.c", "text.c", "odd.c")
    spoil(corpus, "load.o", "-fpass-plugin=/nowhere/evil.so")
    spoil(corpus, "profile.o", "-fprofile-instrument-use-path=/nowhere/a.profdata")
    spoil(corpus, "odd.o", "-fpreserve-vec3-type")  # LLVM 19 had it
    (corpus / "none.o.cmd").unlink()
    (corpus / "gone.o.bc").unlink()
    (corpus / "text.o.bc").write_bytes(b"define void @f() { ret void }")
    report = trace22(corpus=corpus, module_filter=None)
    found = {row.module: (row.reason, row.detail) for row in rows(tmp_path / "dataset").values()}
    why = "it loads code into the compiler; `trust_corpus` runs it"
    assert found == {
        "good.o": ("ok", ""),
        "load.o": ("refused_option", f"-fpass-plugin=/nowhere/evil.so: {why}"),
        "profile.o": (
            "missing_file",
            "-fprofile-instrument-use-path= names /nowhere/a.profdata, which is not there",
        ),
        "none.o": ("no_command", "cannot read none.o.cmd: No such file or directory"),
        "gone.o": ("missing_file", "cannot read gone.o.bc: No such file or directory"),
        "text.o": ("unreadable_bitcode", "expected bitcode, found other data"),
        "odd.o": ("unknown_option", "the plain compile: error: unknown argument: '-fpreserve-vec3-type'"),
    }
    assert (report.traced, report.failed) == (1, 6)
    assert len(report.problems) == 5
    for row in rows(tmp_path / "dataset").values():
        if row.status == "failed":
            assert (row.reward, row.faithful, row.observations, row.contexts, row.header) == (None, None, 0, 0, None)
    assert rows(tmp_path / "dataset")["odd.o"].exit_code == 1
    assert "unknown argument" in str(rows(tmp_path / "dataset")["odd.o"].stderr_tail)

    # With a corpus that is trusted, clang says itself what it thinks of the plugin.
    trace22("trusted", corpus=corpus, module_filter=None, trust_corpus=True)
    row = rows(tmp_path / "trusted")["load.o"]
    assert row.reason == "compiler_error"
    assert "evil.so" in row.detail


def test_an_option_that_is_trusted_has_its_effect(llvm22: Llvm, by_hand: Hand, trace22: Trace, tmp_path: Path) -> None:
    corpus = by_hand(llvm22, "a.c", add=("-mllvm", "-view-edge-bundles-not", "-mllvm", "-orderfile-write=/x/y"))
    path = corpus / "a.o.cmd"
    path.write_bytes(path.read_bytes().replace(b"\0-mllvm\0-view-edge-bundles-not\0-mllvm\0-orderfile-write=/x/y", b""))
    spoil(corpus, "a.o", "-mllvm", f"-unknown-to-us={tmp_path}/x")
    with pytest.raises(MlgoCorpusError, match="LLVM 17 to 22 has no such option; `trust_corpus` runs it"):
        trace22(corpus=corpus, module_filter=None)
    with pytest.raises(MlgoCorpusError, match=r"\(unknown_option 1\): a\.o: .*Unknown command line argument"):
        trace22(corpus=corpus, module_filter=None, trust_corpus=True)


def test_nothing_is_written_elsewhere(
    llvm22: Llvm, compile_c: Compile, trace22: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("-O2", "-g", "-gsplit-dwarf", "-MMD", "-MF", "a.d", "-fstack-usage", "--coverage", "-ftime-trace")
    more = ("-fsave-optimization-record", "--serialize-diagnostics", "a.dia")
    compile_c(llvm22, BODY, *flags, *more, *EMBED, name="objects/a.c")
    extract_corpus([tmp_path / "objects"], tmp_path / "corpus", jobs=1)
    for path in (*tmp_path.glob("a.*"), *(tmp_path / "objects").iterdir()):
        path.unlink()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "here")
    before = set(files(tmp_path))
    report = trace22(corpus=tmp_path / "corpus", module_filter=None, keep_objects=tmp_path / "kept")
    assert (report.counts, report.faithful) == ({"ok": 1}, 1)
    new = {path for path in set(files(tmp_path)) - before if not path.startswith(("dataset/", "kept/"))}
    assert new == set()
    assert list((tmp_path / "kept").rglob("*")) == [tmp_path / "kept/a.o"]
    kept = ["README.md", "contexts.parquet", "dataset.json", "modules.parquet", "observations/part-00000.parquet"]
    assert sorted(files(tmp_path / "dataset")) == kept


def test_one_command_for_all(llvm22: Llvm, by_hand: Hand, trace22: Trace, tmp_path: Path) -> None:
    corpus = by_hand(llvm22, "a.c", "b.c")
    for path in corpus.glob("*.cmd"):
        path.unlink()
    command = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-Oz")
    for override in (command, command[1:]):  # ml-compiler-opt's begin with -cc1, LLVM's do not
        write_manifest(corpus / "corpus_description.json", ["a.o", "b.o"], has_thinlto=False, override=override)
        report = trace22(f"d{len(override)}", corpus=corpus, module_filter=None)
        assert (report.counts, report.faithful) == ({"ok": 2}, 2)
        assert " -cc1 -emit-obj -triple x86_64-pc-linux-gnu -Oz -x ir " in words(
            rows(tmp_path / f"d{len(override)}")["a.o"]
        )
    write_manifest(corpus / "corpus_description.json", ["a.o"], has_thinlto=False, override=("<UNSPECIFIED>",))
    with pytest.raises(
        MlgoCorpusError, match=r"\(no_command 1\): a\.o: the corpus's manifest leaves the command to be"
    ):
        trace22("unspecified", corpus=corpus, module_filter=None)


def test_one_line_for_the_driver(llvm22: Llvm, by_hand: Hand, trace22: Trace, cache: Path, tmp_path: Path) -> None:
    """Upstream puts it after clang; the objects are the same."""
    line = ("-fPIC", "--target=x86_64-unknown-linux-gnu", "-O2", "-DUNUSED", "-c")
    corpus = by_hand(llvm22, "a.c", flags=("-fPIC", "--target=x86_64-unknown-linux-gnu"))
    (corpus / "a.o.cmd").unlink()
    (corpus / "modules.parquet").unlink()
    write_manifest(corpus / "corpus_description.json", ["a.o"], has_thinlto=False, override=line)
    run_checked(llvm22.clang, *line, "-x", "ir", corpus / "a.o.bc", "-o", tmp_path / "upstream.o")
    edits = {"delete_flags": ["-O3", "-fmath-errno"]}  # of the cc1 line that clang makes of it
    report = trace22(corpus=corpus, module_filter=None, keep_objects=tmp_path / "kept", **edits)
    assert (report.counts, report.faithful) == ({"ok": 1}, 1)
    assert report.hints == ("`delete_flags`=-O3: no command has this option, nothing was changed",)
    assert (tmp_path / "kept/a.o").read_bytes() == (tmp_path / "upstream.o").read_bytes()
    sizes = ir2native_table(corpus, tmp_path / "sizes", compiler=llvm22.clang, cache=cache, jobs=1)
    assert sizes.counts == {"ok": 1}
    rebuilt = verify_corpus(
        corpus, rebuild=True, build_dirs=[tmp_path / "hand-objects"], compiler=llvm22.clang, jobs=1, cache=cache
    )
    assert (rebuilt.counts, rebuilt.rebuild and rebuilt.rebuild.outcomes) == ({"ok": 1}, {"identical": 1})


RECURSIVE = """
unsigned long first(unsigned *, const char *, unsigned long);
unsigned long self(unsigned *to, const char *from, unsigned long size) {
    unsigned wide;
    if (!from) return self(0, "", 1);
    unsigned long used = first(&wide, from, size);
    if (used <= 4 && to) *to = wide;
    return used;
}
"""


@pytest.mark.parametrize("way", ["interactive", "log"])
def test_an_object_that_no_policy_can_have(
    request: pytest.FixtureRequest, compile_c: Compile, cache: Path, tmp_path: Path, way: str
) -> None:
    """The heuristic inlines a function into itself, about which LLVM asks nobody."""
    llvm: Llvm = request.getfixturevalue("llvm22" if way == "interactive" else "llvm19")
    compiler = llvm.clang if way == "interactive" else str(request.getfixturevalue("devmode"))
    compile_c(llvm, RECURSIVE, "-Os", *EMBED, name="objects/self.c")
    compile_c(llvm, BODY, "-O2", *EMBED, name="objects/usual.c")
    extract_corpus([tmp_path / "objects"], tmp_path / "corpus", jobs=1)
    report = tracer(compiler, tmp_path / "corpus", cache, tmp_path)(keep_logs=tmp_path / "logs")
    assert (report.counts, report.faithful) == ({"ok": 2}, 1)
    found = rows(tmp_path / "dataset")
    assert (found["self.o"].faithful, found["self.o"].unfaithful_because) == (False, "recursion")
    assert (found["usual.o"].faithful, found["usual.o"].unfaithful_because) == (True, None)
    assert (found["self.o"].exit_code, found["self.o"].argv and found["self.o"].argv[-1]) == (0, "module.o")
    assert (tmp_path / "logs/self.o.log").is_file()


def test_a_module_that_the_manifest_names_twice_is_traced_once(
    llvm22: Llvm, by_hand: Hand, trace22: Trace, tmp_path: Path
) -> None:
    corpus = by_hand(llvm22, "a.c")
    write_manifest(corpus / "corpus_description.json", ["a.o", "a.o"], has_thinlto=False, override=None)
    assert trace22(corpus=corpus, module_filter=None).modules == 1


def test_distributed_thinlto(llvm22: Llvm, compile_c: Compile, trace22: Trace, tmp_path: Path) -> None:
    for name, text in SOURCES.items():
        compile_c(llvm22, text, "-O2", "-flto=thin", name=f"build/{name}")
    build = tmp_path / "build"
    stems = [Path(name).stem for name in SOURCES]
    link = [llvm22.clang, f"-B{llvm22.lld_folder}", "-fuse-ld=lld", "-flto=thin", "-O2", "-Wl,--lto-O2"]
    run_checked(*link, "-Wl,--thinlto-emit-index-files", *(f"{stem}.o" for stem in stems), "-o", "app", cwd=build)
    entries = []
    for stem in stems:
        index = f"{stem}.o.thinlto.bc"
        embed = ["-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"]
        if stem == "three":  # nothing is imported: an ordinary compile
            (build / index).write_bytes(b"")
            embed = list(EMBED)
        backend = [llvm22.clang, "-O2", "-x", "ir", f"{stem}.o", f"-fthinlto-index={index}", *embed]
        run_checked(*backend, "-c", "-o", f"native-{stem}.o", cwd=build)
        arguments = ["clang", "-c", f"{stem}.o", "-o", f"native-{stem}.o"]
        entries.append({"directory": str(build), "file": f"{stem}.c", "arguments": arguments})
    (build / "compile_commands.json").write_text(json.dumps(entries))
    extract_corpus([build / "compile_commands.json"], tmp_path / "corpus", thinlto="distributed", jobs=1)
    corpus = tmp_path / "corpus"
    assert Corpus.open(corpus).has_thinlto

    report = trace22(corpus=corpus, module_filter=None, keep_objects=tmp_path / "kept")
    assert (report.counts, report.faithful) == ({"ok": 3}, 3)
    for name, row in rows(tmp_path / "dataset").items():
        assert f"-fthinlto-index={corpus / name}.thinlto.bc" in (row.argv or ())
        symbol = {"one": "one", "two": "two", "three": "main"}[Path(name).stem.removeprefix("native-")]
        assert f" T {symbol}\n" in run_checked(llvm22.nm, tmp_path / "kept" / name)
    # clang makes an empty object where the index is missing.
    (corpus / "native-one.o.thinlto.bc").unlink()
    trace22("again", corpus=corpus, module_filter=None)
    row = rows(tmp_path / "again")["native-one.o"]
    assert (row.reason, row.detail) == (
        "missing_file",
        "cannot read native-one.o.thinlto.bc: No such file or directory",
    )


def test_bitcode_of_a_newer_llvm(llvm19: Llvm, lua19: Path, lua22: Path, cache: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    shutil.copy(lua22 / "lua/lapi.o.bc", corpus / "new.bc")
    shutil.copy(lua19 / "lua/lapi.o.bc", corpus / "old.bc")
    command = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-O2")
    write_manifest(corpus / "corpus_description.json", ["old", "new"], has_thinlto=False, override=command)
    report = trace_corpus(corpus, tmp_path / "d", compiler=llvm19.clang, cache=cache)
    assert report.counts == {"ok": 1, "newer_bitcode": 1}
    row = rows(tmp_path / "d")["new"]
    assert row.detail.startswith("the plain compile: error: Unknown attribute kind")
    assert "Producer: 'LLVM22" in row.detail
    assert row.exit_code == 1


def test_bitcode_that_is_damaged(llvm22: Llvm, lua22: Path, cache: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    whole = (lua22 / "lua/lapi.o.bc").read_bytes()
    places = [len(whole) * at // 16 for at in range(1, 16)]
    (corpus / "whole.bc").write_bytes(whole)
    for at in places:
        (corpus / f"cut{at}.bc").write_bytes(whole[:at])
    flipped = whole[: len(whole) // 3] + bytes(64) + whole[len(whole) // 3 + 64 :]
    (corpus / "flipped.bc").write_bytes(flipped)
    names = ["whole", "flipped", *(f"cut{at}" for at in places)]
    command = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-O2")
    write_manifest(corpus / "corpus_description.json", names, has_thinlto=False, override=command)
    report = trace_corpus(corpus, tmp_path / "d", compiler=llvm22.clang, cache=cache)
    assert report.counts == {"unreadable_bitcode": len(names) - 1, "ok": 1}


# --- which modules, and what is there already


def test_some_of_the_modules(trace22: Trace, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# the two\nlua/lzio.o\n\nlua/lctype.o\n")
    trace22("listed", module_filter=None, modules_file=str(tmp_path / "list"))
    assert list(rows(tmp_path / "listed")) == ["lua/lctype.o", "lua/lzio.o"]
    trace22("both", module_filter="zio", modules_file=tmp_path / "list")
    assert list(rows(tmp_path / "both")) == ["lua/lzio.o"]
    trace22("sample", module_filter="/l[a-l]", sample="25%", seed=3)
    drawn = list(rows(tmp_path / "sample"))
    assert len(drawn) == 4
    assert trace22("sample", module_filter="/l[a-l]", sample="25%", seed=3).unchanged
    with pytest.raises(
        UsageError, match=r": made in another way: modules were 4 of \d+, are 4 others \(`sample`, `seed`"
    ):
        trace22("sample", module_filter="/l[a-l]", sample="25%", seed=4)


def test_the_same_again_does_nothing_and_anything_else_is_refused(llvm19: Llvm, trace22: Trace, tmp_path: Path) -> None:
    first = trace22()
    assert not first.unchanged
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "dataset").rglob("*")}
    again = trace22(jobs=1, timeout=99)
    assert again.unchanged
    skipped = ("unchanged", "seconds")
    assert {**again.as_json(), **dict.fromkeys(skipped)} == {**first.as_json(), **dict.fromkeys(skipped)}
    for options, difference in (
        ({"policy": "always"}, "policy was 'default', is 'always'"),
        ({"add_flags": ("-O1",)}, "add flags was none, is '-O1'"),
        ({"trust_corpus": True}, "trust corpus was False, is True"),
        ({"module_filter": ONE}, r"modules were 3 of \d+, are 1 \(`sample`, .* choose them\)"),
        ({"compiler": llvm19.clang}, r"compiler was 22\.1\.8 \([0-9a-f]{8}\), is 19\.1\.7 \([0-9a-f]{8}\)"),
        ({"task": "regalloc-eviction", "policy": "first"}, "task was 'inlining', is 'regalloc-eviction'; policy was"),
    ):
        with pytest.raises(UsageError, match=rf"/dataset: made in another way: {difference}.*; `force` starts over$"):
            trace22(**options)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "dataset").rglob("*")} == before
    forced = trace22(policy="always", force=True)
    assert (forced.policy, forced.unchanged) == ("always", False)
    assert set(observations(tmp_path / "dataset")["inlining_decision"].to_pylist()) == {1}


def test_plain_compiles_are_remembered(llvm22: Llvm, lua22: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "a.c").touch()
    asked = [llvm22.clang, "-###", "-c", str(tmp_path / "a.c")]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stderr
    real = re.search(r'"(\S+)" "-cc1"', said)
    assert real is not None
    script, log = tmp_path / "clang", tmp_path / "calls"
    script.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" -### "*) {real[1]} "$@" 2>&1 | sed "s|\\"{real[1]}\\"|\\"$0\\"|" >&2; exit;; esac\n'
        f'echo "$*" >> {log}\nexec {real[1]} "$@"\n'
    )
    script.chmod(0o755)

    def compiles(**options: Any) -> tuple[int, int]:
        log.write_text("")
        # The script writes into a file elsewhere: no compiler may, but with a corpus that is trusted.
        usual = {"module_filter": r"/(lctype|linit|lzio)\.o$", "cache": tmp_path / "cache", "trust_corpus": True}
        trace_corpus(lua22, tmp_path / "d", compiler=str(script), force=True, **{**usual, **options})
        calls = [line for line in log.read_text().splitlines() if "module.o" in line]
        live = [line for line in calls if "channel-base=channel" in line]
        return len(calls) - len(live), len(live)

    assert compiles() == (3, 3)
    assert compiles(policy="always") == (0, 3)
    assert compiles(task="regalloc-priority", policy="first") == (0, 3)
    assert compiles(add_flags=("-O1",)) == (3, 3)
    assert compiles(module_filter=r"/(linit|lopcodes|lzio)\.o$") == (1, 3)
    copy = tmp_path / "copy"
    shutil.copytree(lua22, copy)
    assert len(list((tmp_path / "cache" / "baselines").rglob("*.json"))) == 7
    for path in (tmp_path / "cache" / "baselines").rglob("*.json"):
        path.write_text("{")
    assert compiles() == (3, 3)


def test_a_policy_may_make_a_module_grow_unless_a_command_has_a_limit(trace22: Trace, tmp_path: Path) -> None:
    """LLVM asks nothing more once a module has doubled; what is inlined always makes this one eleven times as large."""
    limit = "-mllvm -ml-advisor-size-increase-threshold"

    def asked(output: str, **options: Any) -> tuple[int, int]:
        trace22(output, module_filter="/ldo", **options)
        (row,) = read_trace_rows(tmp_path / output / "modules.parquet")
        return row.observations or 0, row.text_size or 0

    free = asked("free", policy="always")
    limited = asked("limited", policy="always", add_flags=(f"{limit}=2",))
    assert free == asked("large", policy="always", add_flags=(f"{limit}=1000",))
    assert free[0] > 2 * limited[0]
    assert free[1] > 4 * limited[1]
    # A replay is as free as what is replayed.
    assert asked("again", policy=str(tmp_path / "free")) == free
    assert asked("again-limited-so", policy=str(tmp_path / "limited")) == limited
    note = tmp_path / "limited" / "dataset.json"
    about = json.loads(note.read_text())
    about["argv"] = [word for word in about["argv"] if limit.split()[1] not in word]
    note.write_text(json.dumps(about))
    assert asked("again-limited", policy=str(tmp_path / "limited")) == limited


def test_the_result_does_not_depend_on_the_number_of_jobs(trace22: Trace, tmp_path: Path) -> None:
    trace22("one", jobs=1, module_filter="/l([abd]|ct)", policy="always")
    trace22("three", jobs=3, module_filter="/l([abd]|ct)", policy="always")
    assert stable(tmp_path / "one") == stable(tmp_path / "three")


def test_paths_that_are_relative_and_odd(
    llvm22: Llvm, lua22: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "odd, @né 'name'"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shutil.copytree(lua22, "-corpus")
    kept = {"keep_logs": Path("-logs"), "keep_objects": Path("-objects")}
    (folder / "cache").mkdir()
    shutil.copy(cache / "probes.json", "cache")
    options = {"compiler": llvm22.clang, "module_filter": FEW, "cache": Path("cache")}
    report = trace_corpus("-corpus", "-dataset", **options, **kept)
    assert (report.counts, report.faithful) == ({"ok": 3}, 3)
    names = {f"lua/{name}.o" for name in ("lapi", "lctype", "ltable")}
    assert set(files(folder / "-objects")) == names
    assert set(files(folder / "-logs")) == {f"{name}.log" for name in names}
    for name, row in rows(folder / "-dataset").items():
        assert digest(folder / "-objects" / name) == row.object_sha256
        assert (folder / "-logs" / f"{name}.log").stat().st_size == row.log_bytes
    restore_logs(folder / "-dataset", folder / "again")
    assert files(folder / "again") == files(folder / "-logs")
    assert trace_corpus("-corpus", "-dataset", **options).unchanged


# --- who opens it


HUGGING_FACE = """
import sys, datasets
datasets.disable_progress_bars()
loaded = {name: datasets.load_dataset(sys.argv[1], name, split="train", cache_dir=sys.argv[2]) for name in
          ("observations", "contexts", "modules")}
print(*(table.num_rows for table in loaded.values()), loaded["modules"]["faithful"][:])
"""


def test_others_open_it(trace22: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = trace22(policy="always")
    dataset = tmp_path / "dataset"
    expected = report.observations
    frame = pandas.read_parquet(dataset / "observations")
    assert len(frame) == expected
    assert set(frame["inlining_decision"]) == {1}
    modules = polars.read_parquet(dataset / "modules.parquet")
    assert modules["observations"].sum() == expected
    assert modules["argv"].list.first().to_list()[0].endswith("clang")
    card = (dataset / "README.md").read_text()
    queries = re.findall(r"```sql\n(.*?)```", card, re.DOTALL)
    assert len(queries) == 2
    monkeypatch.chdir(dataset)
    results = [duckdb.sql(query).fetchall() for query in queries]
    lapi = rows(dataset)["lua/lapi.o"]
    assert ("lua/lapi.o", lapi.observations, 1.0) in results[0]
    found = ("lua/lapi.o", lapi.observations, lapi.baseline_text_size, lapi.text_size, lapi.reward)
    assert found in results[1]
    command = re.search(r"```sh\n(.*?)\n```", card, re.DOTALL)
    assert command is not None
    assert command[1].startswith("clang -cc1 -emit-obj -triple x86_64-pc-linux-gnu ")
    env = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    argv = [sys.executable, "-c", HUGGING_FACE, str(dataset), str(tmp_path / "hf")]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=3) == [str(expected), "3", "3", "[False, True, False]\n"]
