"""Snapshots of real modules: LLVM's own vectors, properties and sizes are the oracles."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.open import Corpus
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.sizes.snapshot import Functions
from mlgo_corpus.extract import extract_corpus
from mlgo_corpus.formats.ir.features import parse_properties
from mlgo_corpus.formats.ir.pipeline import PRE_INLINING
from mlgo_corpus.formats.objects.symbols import LabelStatus
from mlgo_corpus.runs.sizes.module import SnapshotSettings, snapshot_module
from tests.conftest import DATA, EMBED, Llvm, run_checked, unpack

VECTORS = np.load(DATA / "ir2native" / "llvm19_features.npz")
NAMES = json.loads((DATA / "ir2native" / "llvm19_functions.json").read_text())

CODE = """
#include <stdexcept>
#include <string>
struct Base { virtual ~Base() {} virtual int f(int) = 0; };
struct Derived : Base { std::string s; int f(int x) override { if (x > 3) throw std::runtime_error("%5 label %x" + s);
  return x; } };
static void *jump(int x) { static void *t[] = {&&a, &&b}; goto *t[x & 1]; a: return t[0]; b: return t[1]; }
int g(Base *b, int n) { try { return b->f(n); } catch (std::exception const &e) { return e.what()[0] + !jump(n); } }
double v(double *a, float *b, int n) { double s = 0; for (int i = 0; i < n; i++) { s += a[i] * b[i];
  for (int j = 0; j < i; j++) s -= a[j]; } return s; }
extern "C" int asms(int x) { int r; asm goto("test %0,%0; jz %l1" :: "r"(x) :: out);
  asm("movl %1,%0 # label %%99" : "=r"(r) : "r"(x)); return r; out: return 1; }
int atom(int *p) { int e = 1; return __atomic_fetch_add(p, 1, 5) + __atomic_compare_exchange_n(p, &e, 2, 0, 5, 5); }
int choose(int x) { switch (x) { case 1: return 7; case 900: return 8; case -3: return 3; case 77: return x; }
  return 0; }
Base *make() { return new Derived(); }
"""


def settings_of(llvm: Llvm, **changes: Any) -> SnapshotSettings:
    edits = {name: changes.pop(name) for name in ("add", "delete", "replace") if name in changes}
    settings = SnapshotSettings((llvm.clang,), (llvm.tool("opt"),), edits=CommandEdits(**edits))
    if "timeout" in changes:
        changes["limits"] = Limits(changes.pop("timeout"))
    return replace(settings, **changes)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Corpus]]:
    folder = tmp_path_factory.mktemp("corpora")
    for project in ("lua", "zlib"):
        unpack(f"{project}-clang19", folder / "build")
        build = folder / "build"
        extract_corpus([build], folder / project, jobs=1)
        shutil.rmtree(build)
    yield {project: Corpus.open(folder / project) for project in ("lua", "zlib")}
    shutil.rmtree(folder, ignore_errors=True)


def reference_name(project: str, module: Module) -> str:
    return f"{project}/{Path(module.name).name}"


@pytest.mark.parametrize("project", ["lua", "zlib"])
def test_vectors_and_sizes_are_those_of_llvm(llvm19: Llvm, corpora: dict[str, Corpus], project: str) -> None:
    """Of some modules of each build; `test_ir2native` has the tables of all."""
    chosen = list(corpora[project])[::8]
    for module in chosen:
        snapshot = snapshot_module(settings_of(llvm19), module)
        assert snapshot.reason is RunReason.OK, snapshot.detail
        assert snapshot.faithful
        functions = snapshot.functions
        assert functions is not None
        name = reference_name(project, module)
        assert list(functions.names) == NAMES[name]
        np.testing.assert_array_equal(functions.ir2native, VECTORS[name.replace("/", "__")])
        assert {label.status for label in functions.labels} <= {LabelStatus.OK}
    assert len(corpora[project]) == len([name for name in NAMES if name.startswith(project)])


@pytest.mark.parametrize("level", ["0", "1", "s", "2", "3", "z"])
def test_objects_are_those_of_the_plain_command(llvm: Llvm, corpora: dict[str, Corpus], level: str) -> None:
    module = next(module for module in corpora["lua"] if module.name.endswith("lstring.o"))
    snapshot = snapshot_module(settings_of(llvm, replace=(f"-O={level}",)), module)
    assert snapshot.faithful
    assert snapshot.functions is not None
    assert snapshot.functions.context.level == level


def extracted(path: Path, llvm: Llvm) -> Module:
    dumps = [f"--dump-section=.llvmbc={path}.bc", f"--dump-section=.llvmcmd={path}.cmd"]
    run_checked(llvm.objcopy, *dumps, path, f"{path}.bare")
    return Module(path.parent, path.name)


FLAGS = [
    ("-Oz",), ("-O2", "-g"), ("-O3", "-mavx2", "-ffunction-sections"), ("-O0",), ("-O2", "-fprofile-generate"),
    ("-O2", "-Xclang", "-fmerge-functions"), ("-Os", "-fno-exceptions", "-U__EXCEPTIONS"),
]  # fmt: skip


@pytest.mark.parametrize("flags", FLAGS[:6], ids=" ".join)
def test_features_are_those_of_the_whole_module(
    llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path, flags: tuple[str, ...]
) -> None:
    path = compile_c(llvm, CODE, *flags, "-std=c++20", *EMBED, name="a.cpp")
    module = extracted(path, llvm)
    snapshot = snapshot_module(settings_of(llvm), module)
    assert snapshot.reason is RunReason.OK, snapshot.detail
    assert snapshot.faithful
    functions = snapshot.functions
    assert functions is not None
    check_against_whole(llvm, module, functions, tmp_path)
    printed = run_checked(llvm.nm, "--print-size", path)
    sizes = {name: int(size, 16) for size, name in re.findall(r"^\w+ (\w+) [tTwWuV] (\S+)$", printed, re.MULTILINE)}
    for name, label in zip(functions.names, functions.labels, strict=True):
        assert label.size == sizes.get(name)
        assert (label.status is LabelStatus.ELIMINATED) == (name not in sizes)


def check_against_whole(llvm: Llvm, module: Module, functions: Functions, folder: Path) -> None:
    """Compare with what opt says of the module that clang prints, untouched; costs instruction by instruction."""
    options = [word.decode() for word in module.command_path.read_bytes().rstrip(b"\0").split(b"\0")]
    level = functions.context.level
    point = "-print-after=always-inline" if level == "0" else "-print-before=deadargelim"
    kept = [word for word in options if not word.startswith("-fembed-bitcode")]
    argv = (llvm.clang, *kept, "-x", "ir", str(module.bitcode_path), "-mllvm", point, "-o", str(folder / "again.o"))
    text = subprocess.run(argv, capture_output=True, check=True, encoding="latin-1").stderr
    whole = folder / "whole.ll"
    whole.write_text(text, "latin-1")
    argv = (
        *(llvm.tool("opt"), "-passes=function(print<func-properties>)", "-enable-detailed-function-properties"),
        *("-disable-output", str(whole)),
    )
    properties = parse_properties(subprocess.run(argv, capture_output=True, check=True, text=True).stderr)
    assert functions.properties.names == properties.names
    np.testing.assert_array_equal(functions.properties.values, properties.values)
    argv = (
        *(llvm.tool("opt"), "-passes=function(print<cost-model>)", "-cost-kind=code-size"),
        *("-disable-output", str(whole)),
    )
    costs: list[int] = []
    for line in subprocess.run(argv, capture_output=True, check=True, text=True).stderr.splitlines():
        if line.startswith("Printing analysis 'Cost"):
            costs.append(0)
        elif found := re.match(r"Cost Model: Found an estimated cost of (\d+) ", line):
            costs[-1] += int(found[1])
    assert functions.ir2native is not None
    assert functions.ir2native[:, 0].tolist() == costs


def test_vectors_are_those_of_a_development_mode_compiler(
    llvm19: Llvm, devmode: Path, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    module = extracted(compile_c(llvm19, CODE, "-O2", "-std=c++20", *EMBED, name="a.cpp"), llvm19)
    functions = snapshot_module(settings_of(llvm19), module).functions
    assert functions is not None
    check_against_whole(llvm19, module, functions, tmp_path)
    argv = (
        *(str(devmode / "bin" / "opt"), "-passes=function(print<inliner-size-estimator>)", "-disable-output"),
        *(f"-ml-inliner-ir2native-model={tmp_path}/rows", "-ml-inliner-ir2native-number-rows"),
        str(tmp_path / "whole.ll"),
    )
    said = subprocess.run(argv, capture_output=True, check=True, text=True).stderr
    order = [int(row) for row in re.findall(r"size estimate for .*: (\d+)$", said, re.MULTILINE)]
    rows = [[int(cell) for cell in line.split(",")] for line in (tmp_path / "rows").read_text().splitlines()[1:]]
    np.testing.assert_array_equal(functions.ir2native, np.array(rows, np.int32)[order])


def test_a_module_in_several_parts_has_the_same_costs(
    llvm: Llvm, compile_c: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = extracted(compile_c(llvm, CODE, "-O2", "-std=c++20", *EMBED, name="a.cpp"), llvm)
    once = snapshot_module(settings_of(llvm), module).functions
    monkeypatch.setattr("mlgo_corpus.formats.ir.costs._WORK_PER_MODULE", 1)
    parts = snapshot_module(settings_of(llvm), module).functions
    assert once is not None
    assert parts is not None
    np.testing.assert_array_equal(once.ir2native, parts.ir2native)


def test_before_inlining_there_is_more(llvm: Llvm, compile_c: Callable[..., Path]) -> None:
    code = "static int a(int x) { return x / 3; } int b(int x) { return a(x) + a(x + 1); }"
    module = extracted(compile_c(llvm, code, "-O2", *EMBED), llvm)
    after = snapshot_module(settings_of(llvm), module).functions
    before = snapshot_module(settings_of(llvm, snapshot=PRE_INLINING), module)
    assert before.faithful
    assert before.functions is not None
    assert after is not None
    assert set(before.functions.names) == {"a", "b"}
    assert after.names == ("b",)
    status = dict(zip(before.functions.names, (label.status for label in before.functions.labels), strict=True))
    assert status == {"a": LabelStatus.ELIMINATED, "b": LabelStatus.OK}


def test_without_passes_the_snapshot_is_the_module_as_given(llvm: Llvm, compile_c: Callable[..., Path]) -> None:
    code = "static int a(int x) { return x / 3; } int b(int x) { return a(x) + a(x + 1); }"
    module = extracted(compile_c(llvm, code, "-O1", *EMBED), llvm)
    # The commands that the driver's -fembed-bitcode embeds have no -main-file-name.
    for delete in ((), ("-main-file-name",)):
        snapshot = snapshot_module(settings_of(llvm, add=("-disable-llvm-passes",), delete=delete), module)
        assert snapshot.reason is RunReason.OK, snapshot.detail
        assert snapshot.faithful
        assert snapshot.functions is not None
        assert sorted(snapshot.functions.names) == ["a", "b"]


def test_context_and_without_vectors(llvm: Llvm, compile_c: Callable[..., Path]) -> None:
    code = """static __attribute__((noinline,cold)) int a(int x) { return x / 3; }
    __attribute__((section("my"))) int b(int x) { return a(x); }"""
    module = extracted(compile_c(llvm, code, "-Oz", *EMBED), llvm)
    snapshot = snapshot_module(settings_of(llvm, ir2native=False, verify=False), module)
    functions = snapshot.functions
    assert functions is not None
    assert (functions.ir2native, snapshot.faithful) == (None, None)
    at = functions.names.index("a")
    context = functions.context
    assert (context.linkage[at], context.section[1 - at], context.level) == ("internal", "my", "z")
    assert {"noinline", "cold", "minsize"} <= context.attributes[at].keys()
    assert context.attributes[at]["target-cpu"] == "x86-64"


def test_failures_have_reasons(llvm19: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> None:
    module = extracted(compile_c(llvm19, "int f(void) { return 1; }", "-O2", *EMBED), llvm19)

    def reason(settings: SnapshotSettings, module: Module = module) -> RunReason:
        snapshot = snapshot_module(settings, module)
        assert snapshot.functions is None
        assert snapshot.detail
        return snapshot.reason

    assert reason(settings_of(llvm19, timeout=0.0)) is RunReason.TIMEOUT
    assert reason(settings_of(llvm19, add=("-mllvm -acc-reassoc",))) is RunReason.UNKNOWN_OPTION  # LLVM 22 has it
    assert reason(settings_of(llvm19, add=("-load x.so",))) is RunReason.REFUSED_OPTION
    assert reason(settings_of(llvm19), Module(tmp_path, "none")) is RunReason.MISSING_FILE
    wrong = SnapshotSettings((llvm19.clang,), ("no-such-opt",))
    assert reason(wrong) is RunReason.COMPILER_ERROR
    (tmp_path / "text.bc").write_text("int main() {}")
    assert reason(settings_of(llvm19), Module(tmp_path, "text")) is RunReason.UNREADABLE_BITCODE
    shutil.copy(module.bitcode_path, tmp_path / "bare.bc")
    assert reason(settings_of(llvm19), Module(tmp_path, "bare")) is RunReason.NO_COMMAND
