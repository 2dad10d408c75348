"""Development mode with a model of native size: each decision's ``delta_size`` is what plain arithmetic makes of it.

The arithmetic needs what LLVM asked the model, in order, and for which function: a compile that writes the vectors down
instead of evaluating them, and prints which function an analysis runs on and what was inlined.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Corpus, EvictionEnv, InliningEnv, SizeModel, extract_corpus, trace_corpus
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.formats.logs.tasks import for_clang
from mlgo_corpus.policies.compiled import build_library
from mlgo_corpus.policies.models import Rule
from tests.conftest import Llvm, unpack
from tests.policies.samples import small_policy
from tests.policies.sizes.test_model import LLVMS, MIXED, model

pytestmark = pytest.mark.llvm

NAMES = ("ltable", "ldebug", "linit")
DEVELOPMENT = ("-enable-ml-inliner=development", "-training-log=log")
RUNNING = "Running analysis: InlineSizeEstimatorAnalysis on "
INT_MAX = 2**31 - 1
# More decisions have a name and two functions, in order; those of a module that has stopped are none.
REMARK = re.compile(
    r"^--- !.*\nPass: +inline-ml\nName: +(\w+)\n(?:DebugLoc: .*(?:\n .*)*\n)?Function: +(.*)\nArgs:.*\n"
    r"  - Callee: +(.*)",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lua")
    unpack("lua-clang19", folder)
    extract_corpus([folder / f"lua/{name}.o" for name in NAMES], folder / "corpus")
    return folder / "corpus"


@pytest.fixture(scope="module")
def size_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose sizes are those of functions: some bytes for each unit of cost, times what random trees say."""
    folder = tmp_path_factory.mktemp("model") / "sizes"
    found = model(LLVMS)
    tame = replace(found.model, leaves=np.clip(found.model.leaves, -0.4, 0.4), bias=0.0)
    replace(found, base=Rule(4.25, (3.7, 0.4, *(0.0,) * 212)), model=tame).save(folder)
    return folder


def compile_module(clang: Path, corpus: Path, name: str, folder: Path, *options: str) -> str:
    """Compile one module; return what the compiler printed."""
    (module,) = (module for module in Corpus.open(corpus) if Path(module.name).stem == name)
    command = [word for word in module.command() if not word.startswith("-fembed-bitcode")]
    words = (str(clang), *command, "-x", "ir", str(module.bitcode_path), *options, "-o", "out.o")
    done = subprocess.run(words, capture_output=True, cwd=folder, timeout=300, check=False)
    printed = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        raise RuntimeError(printed)
    return printed


def deltas_by_hand(clang: Path, corpus: Path, name: str, folder: Path, found: SizeModel) -> Iterator[int]:
    """Yield what each decision of a module changes, from the estimates of the functions before and after it."""
    folder.mkdir()
    printed = compile_module(
        clang,
        corpus,
        name,
        folder,
        *for_clang((*DEVELOPMENT, "-ml-inliner-ir2native-model=vectors")),
        *("-fdebug-pass-manager", "-Rpass=inline-ml", "-Rpass-missed=inline-ml"),
        *("-opt-record-passes", "inline-ml", "-opt-record-file", "remarks.yaml"),
    )
    rows = [line.split(",") for line in (folder / "vectors").read_text().splitlines()[1:]]
    sizes = iter([int(size) for size in found.sizes(np.array(rows, np.float64)).size])
    known: dict[str, int] = {}
    before: dict[str, int] | None = None
    inlined: list[tuple[str, dict[str, int]]] = []
    for line in printed.splitlines():
        if line.endswith("[-Rpass=inline-ml]"):
            before = dict(known)
        elif line.startswith(RUNNING):
            function = line.removeprefix(RUNNING)
            known[function] = next(sizes)
            if before is not None:  # the caller, right after something was inlined into it
                inlined.append((function, before))
                before["after"], before = known[function], None
    assert next(sizes, None) is None
    of_inlined = iter(inlined)
    for what, caller, callee in REMARK.findall((folder / "remarks.yaml").read_text()):
        if what.startswith("InliningSuccess"):
            function, estimates = next(of_inlined)
            assert function == caller
            is_gone = what == "InliningSuccessWithCalleeDeleted"
            yield estimates["after"] - estimates[caller] - is_gone * estimates[callee]
        else:
            yield 0
    assert next(of_inlined, None) is None


def test_delta_size_is_what_the_estimates_make_it(
    devmode: Path, corpus: Path, size_model: Path, tmp_path: Path
) -> None:
    clang = devmode / "bin" / "clang"
    report = trace_corpus(
        corpus, tmp_path / "traced", ir2native_model=size_model, compiler=str(clang), cache=tmp_path / "cache"
    )
    assert (report.failed, report.faithful, report.via) == (0, 3, "training-log")
    table = pq.read_table(tmp_path / "traced" / "observations")
    found = SizeModel.load(size_model)
    expected: list[int] = []
    for name in dict.fromkeys(Path(module).stem for module in table["module"].to_pylist()):
        expected += deltas_by_hand(clang, corpus, name, tmp_path / name, found)
    assert table["delta_size"].to_pylist() == expected
    assert sum(delta != 0 for delta in expected) > 20
    assert min(expected) < 0 < max(expected)
    again = trace_corpus(
        corpus, tmp_path / "traced", ir2native_model=size_model, compiler=str(clang), cache=tmp_path / "cache"
    )
    assert again.unchanged
    with pytest.raises(UsageError, match="ir2native model was"):
        trace_corpus(corpus, tmp_path / "traced", compiler=str(clang), cache=tmp_path / "cache", via="training-log")


def test_the_decision_that_makes_a_module_too_large_has_no_size(
    devmode: Path, corpus: Path, size_model: Path, tmp_path: Path
) -> None:
    clang = devmode / "bin" / "clang"
    limit = "-ml-advisor-size-increase-threshold=1"
    report = trace_corpus(
        corpus,
        tmp_path / "traced",
        ir2native_model=size_model,
        compiler=str(clang),
        add_flags=[f"-mllvm {limit}"],
        trust_corpus=True,
        cache=tmp_path / "cache",
    )
    assert report.failed == 0
    table = pq.read_table(tmp_path / "traced" / "observations").to_pylist()
    for name in ("ltable", "ldebug"):
        rows = [row for row in table if Path(row["module"]).stem == name]
        # What makes the module larger than it was is the last decision.
        assert rows[-1]["inlining_decision"] == 1
        assert [row["delta_size"] for row in rows].index(INT_MAX) == len(rows) - 1


def test_an_environment_tells_the_scores_of_its_episodes(
    devmode: Path, corpus: Path, size_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("gymnasium")
    clang = str(devmode / "bin" / "clang")
    small_policy().save(tmp_path / "policy")
    how = {"policy": str(tmp_path / "policy"), "ir2native_model": size_model, "module_filter": "ltable|linit"}
    trace_corpus(corpus, tmp_path / "traced", compiler=clang, cache=tmp_path / "cache", **how)
    rows = pq.read_table(tmp_path / "traced" / "observations").to_pylist()
    modules = list(dict.fromkeys(row["module"] for row in rows))
    options = {"reward": "delta_size", "size_model": size_model, "cache": tmp_path / "cache"}
    with closing(InliningEnv(corpus, clang, **options)) as env:
        for module in modules:
            mine = [row for row in rows if row["module"] == module]
            env.reset(options={"module": module})
            for row in mine:
                _, reward, terminated, _, info = env.step(row["inlining_decision"])
            expected = [row["delta_size"] for row in mine]
            assert terminated
            assert info["delta_size"] == tuple(expected)
            assert reward == -sum(delta for delta in expected if delta != INT_MAX)
    assert sum(row["delta_size"] != 0 for row in rows) > 10


def test_environments_say_what_scores_need(devmode: Path, llvm19: Llvm, corpus: Path, size_model: Path) -> None:
    pytest.importorskip("gymnasium")
    clang = str(devmode / "bin" / "clang")
    with pytest.raises(UsageError, match=r"^reward delta_size: it needs a `size_model`"):
        InliningEnv(corpus, clang, reward="delta_size")
    with pytest.raises(UsageError, match=r"^size_model .*: it is for the reward delta_size only$"):
        InliningEnv(corpus, clang, size_model=size_model)
    with pytest.raises(UsageError, match=r"^reward delta_size: LLVM estimates sizes for inlining only$"):
        EvictionEnv(corpus, clang, reward="delta_size", size_model=size_model)
    with pytest.raises(UsageError, match=r"^compiler .*: training logs of inlining need a compiler"):
        InliningEnv(corpus, str(llvm19.clang), reward="delta_size", size_model=size_model)


def test_other_models_are_refused(devmode: Path, corpus: Path, size_model: Path, tmp_path: Path) -> None:
    clang = str(devmode / "bin" / "clang")
    how = {"compiler": clang, "cache": tmp_path / "cache"}
    model(MIXED).save(tmp_path / "mixed")
    with pytest.raises(UsageError, match="models of LLVM's own numbers only"):
        InliningEnv(corpus, clang, reward="delta_size", size_model=tmp_path / "mixed")
    with pytest.raises(UsageError, match="models of LLVM's own numbers only"):
        trace_corpus(corpus, tmp_path / "traced", ir2native_model=tmp_path / "mixed", **how)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is for inlining"):
        trace_corpus(corpus, tmp_path / "traced", ir2native_model=size_model, task="regalloc-eviction", **how)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs a training log"):
        trace_corpus(corpus, tmp_path / "traced", ir2native_model=size_model, via="interactive", **how)  # type: ignore[arg-type]
    (tmp_path / "mixed" / "policy.json").write_text("[")
    with pytest.raises(MlgoCorpusError, match="not JSON"):
        trace_corpus(corpus, tmp_path / "traced", ir2native_model=tmp_path / "mixed", **how)  # type: ignore[arg-type]


def test_the_compiler_refuses_what_takes_other_inputs(devmode: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    options = for_clang((*DEVELOPMENT, "-ml-inliner-ir2native-model=model"))
    with pytest.raises(RuntimeError, match=r"cannot load the policy: model/policy\.so"):
        compile_module(devmode / "bin" / "clang", corpus, "ltable", tmp_path, *options)
    for policy in (model(MIXED), small_policy()):
        build_library(policy, tmp_path / "model" / "policy.so")
        with pytest.raises(RuntimeError, match="does not take the 214 numbers of this compiler"):
            compile_module(devmode / "bin" / "clang", corpus, "ltable", tmp_path, *options)
