"""Tables of functions with real compilers: against LLVM's own vectors, llvm-nm and llvm-size, and every way to fail."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Corpus, extract_corpus, ir2native, split_corpus
from mlgo_corpus.compilers import choose as choice
from mlgo_corpus.compilers.choose import choose_optimiser
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.dataset.sizes.table import (
    IR2NATIVE_COLUMNS,
    MODULE_MEANINGS,
    PREDICTED,
    PROPERTIES,
    VECTOR,
    Columns,
    ModuleSizes,
    describe_columns,
    read_module_sizes,
    write_module_sizes,
)
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.formats.commands.replay import neutralise, replay_command
from mlgo_corpus.formats.ir.costs import OPT_OPTIONS
from mlgo_corpus.formats.ir.features import parse_properties
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.ir2native import SizesReport, ir2native_table
from mlgo_corpus.logs import convert_logs
from mlgo_corpus.runs import over
from mlgo_corpus.runs.sizes import rows as sizing
from mlgo_corpus.runs.sizes import run as sizes_run
from mlgo_corpus.runs.sizes.rows import SizedModule, SizingItem, SizingJob
from mlgo_corpus.view.blocks import Table
from mlgo_corpus.view.sizes.facts import read_sizes_facts
from mlgo_corpus.view.sizes.predicted import predicted_blocks, predicted_data
from tests.conftest import DATA, EMBED, LLVM_VERSIONS, PACKAGE_ROOT, Llvm, run_checked, unpack
from tests.forked import run_cli
from tests.policies.sizes.test_model import LLVMS, model
from tests.runs.trace.test_interrupted import Tool, all_end

pytestmark = pytest.mark.whole

REFERENCE = DATA / "ir2native"
MODULE_TIMES = ["cpu_s", "replay_cpu_s"]
SMALL = {
    "one": "int one(int x) { return x * 3 + 1; }",
    "two": "static int h(int x) { return x * x + 7; }\nint two(int x) { return h(x) + h(x + 1); }",
    "loop": "int loop(const int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; }",
    "copy": "int copied(const int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; }",
    "data": "int table[3] = {1, 2, 3};",
    "last": "void g(int);\nvoid last(int x) { switch (x) { case 1: g(2); break; case 9: g(7); default: g(0); } }",
}

Make = Callable[..., SizesReport]


@pytest.fixture(scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known(tmp_path_factory.mktemp("cache"), *(Llvm(version).clang for version in LLVM_VERSIONS))


@pytest.fixture(autouse=True)
def usual_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLGO_CORPUS_COMPILER", raising=False)


def unpacked(names: tuple[str, ...], folder: Path) -> Path:
    for name in names:
        unpack(name, folder / "objects")
    extract_corpus([folder / "objects"], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture(scope="module")
def both19(llvm19: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lua and zlib by clang 19 in one corpus."""
    return unpacked(("lua-clang19", "zlib-clang19"), tmp_path_factory.mktemp("both19"))


@pytest.fixture(scope="module")
def lua22(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(("lua-clang22",), tmp_path_factory.mktemp("lua22"))


@pytest.fixture(scope="module")
def table19(llvm19: Llvm, both19: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("table19") / "table"
    report = ir2native_table(both19, output, compiler=llvm19.clang, vector=True, cache=cache)
    assert report.counts == {"ok": 49}
    assert (report.functions, report.labelled, report.faithful, report.failed) == (972, 972, 49, 0)
    assert report.statuses == {"ok": 972}
    return output


@pytest.fixture(scope="module")
def objects22(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of `SMALL`."""
    folder = tmp_path_factory.mktemp("small")
    for name, text in SMALL.items():
        (folder / f"{name}.c").write_text(text)
        run_checked(llvm22.clang, "-O2", *EMBED, "-c", f"{name}.c", "-o", f"{name}.o", cwd=folder)
    extract_corpus([folder], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture
def small(objects22: Path, tmp_path: Path) -> Path:
    """A copy of that corpus, to be damaged."""
    shutil.copytree(objects22, tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.fixture
def make(llvm22: Llvm, small: Path, cache: Path, tmp_path: Path) -> Make:
    """Make ``table`` of the small corpus with clang 22; nothing may be left but what is whole."""

    def make(output: str = "table", **options: Any) -> SizesReport:
        given = {"compiler": llvm22.clang, "cache": cache, "jobs": 2, **options}
        try:
            return ir2native_table(small, tmp_path / output, **given)
        finally:
            assert not (tmp_path / output / ".mlgo-corpus").exists()
            assert list(tmp_path.glob(".*.mlgo-corpus")) == []

    return make


def read(output: Path) -> Any:
    files = [output] if output.suffix == ".parquet" else sorted((output / "functions").glob("*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in files])


def modules(output: Path) -> dict[str, dict[str, Any]]:
    path = output.with_suffix(".modules.parquet") if output.suffix == ".parquet" else output / "modules.parquet"
    return {row["module"]: row for row in pq.read_table(path).to_pylist()}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stable(output: Path) -> tuple[dict[str, bytes], Any, Any]:
    """Give a table's files as bytes, but of the table of modules what does not depend on the clock."""
    found = files(output)
    del found["modules.parquet"]
    table = pq.read_table(output / "modules.parquet")
    return found, table.schema.metadata, table.drop_columns(MODULE_TIMES).to_pylist()


def ir2native_of(table: Any) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in IR2NATIVE_COLUMNS], axis=1)


# --- the features, against LLVM's own


def test_the_vectors_are_llvm_s_own(table19: Path) -> None:
    table = read(table19)
    known = np.load(REFERENCE / "llvm19_features.npz")
    names = json.loads((REFERENCE / "llvm19_functions.json").read_text())
    keys = list(zip(table["module"].to_pylist(), table["function"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys) == 972
    expected = {
        (module, function): vector
        for module, functions in names.items()
        for function, vector in zip(functions, known[module.replace("/", "__")], strict=True)
    }
    assert expected.keys() == set(keys)
    assert sorted(keys, key=lambda key: key[0]) == sorted(expected, key=lambda key: key[0])  # in a module, in its order
    np.testing.assert_array_equal(ir2native_of(table), np.stack([expected[key] for key in keys]))
    lists = table[VECTOR].combine_chunks()
    assert lists.type == pa.list_(pa.int32(), len(IR2NATIVE_COLUMNS))
    np.testing.assert_array_equal(lists.flatten().to_numpy().reshape(len(keys), -1), ir2native_of(table))


def replayed(llvm: Llvm, corpus: Path, name: str, folder: Path) -> Path:
    module = Corpus.open(corpus)[name]
    command = replay_command(neutralise(module.command()), bitcode=str(module.bitcode_path), output="plain.o")
    run_checked(llvm.clang, *command, cwd=folder)
    return folder / "plain.o"


def test_sizes_are_those_of_the_plain_compile(llvm19: Llvm, both19: Path, table19: Path, tmp_path: Path) -> None:
    table = read(table19)
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for row in table.select(["module", "function", "native_size"]).to_pylist():
        sizes[row["module"]][row["function"]] = row["native_size"]
    explained = 0
    for name, row in modules(table19).items():
        plain = replayed(llvm19, both19, name, tmp_path)
        lines = run_checked(llvm19.nm, "--print-size", "--defined-only", plain).splitlines()
        symbols = {line.split()[3]: int(line.split()[1], 16) for line in lines if re.search(r" [tTwW] \S+$", line)}
        assert symbols == sizes[name], name
        assert row["functions"] == row["labelled"] == len(symbols)
        assert row["explained_size"] == sum(symbols.values())
        berkeley = run_checked(llvm19.size, plain).splitlines()[1].split()
        assert row["text_size"] == int(berkeley[0])
        sections = run_checked(llvm19.size, "-A", plain)
        assert row["code_size"] == sum(map(int, re.findall(r"^\.text\S* +(\d+)", sections, re.MULTILINE)))
        assert row["explained_size"] <= row["code_size"]
        explained += row["explained_size"]
        assert row["faithful"] is True
    assert explained == sum(table["native_size"].to_pylist())


@pytest.mark.parametrize("level", ["s", "2", "3"])
def test_faithful_at_other_levels(
    level: str, llvm: Llvm, both19: Path, lua22: Path, cache: Path, tmp_path: Path
) -> None:
    corpus = both19 if llvm.version == 19 else lua22
    options: dict[str, Any] = {
        "delete_flags": ("-Oz",),
        "add_flags": (f"-O{level}",),
        "sample": "4",
        "seed": int(level, 36),
    }
    report = ir2native_table(corpus, tmp_path / "table", compiler=llvm.clang, cache=cache, **options)
    assert report.counts == {"ok": 4}
    assert report.faithful == 4
    assert 0 < report.explained_size <= report.code_size
    assert set(read(tmp_path / "table")["opt_level"].to_pylist()) == {level}


# --- the split, the snapshot and the columns


def test_equal_bodies_are_on_one_side(table19: Path) -> None:
    table = read(table19)
    sides: dict[str, set[str]] = defaultdict(set)
    for digest, side in zip(table["body_digest"].to_pylist(), table["split"].to_pylist(), strict=True):
        assert re.fullmatch("[0-9a-f]{32,}", digest)
        sides[digest].add(side)
    assert {len(found) for found in sides.values()} == {1}
    assert len(sides) < table.num_rows
    counts = Counter(table["split"].to_pylist())
    assert set(counts) == {"train", "validation", "test"}
    assert 0.74 < counts["train"] / table.num_rows < 0.86


def test_a_row_s_side_does_not_depend_on_others(make: Make, tmp_path: Path) -> None:
    half = (0.5, 0.25, 0.25)
    everything = {}
    for seed in range(4):
        report = make(f"all{seed}", seed=seed, fractions=half, verify=False, features="context")
        assert sum(report.split.values()) == report.functions
        rows = read(tmp_path / f"all{seed}").select(["module", "function", "split"]).to_pylist()
        everything[seed] = {(row["module"], row["function"]): row["split"] for row in rows}
        assert everything[seed]["loop.o", "loop"] == everything[seed]["copy.o", "copied"]
    assert len({tuple(sides.values()) for sides in everything.values()}) > 1
    make("some", seed=2, fractions=half, module_filter="^l", verify=False)
    rows = read(tmp_path / "some").select(["module", "function", "split"]).to_pylist()
    assert len(rows) == 2
    assert all(everything[2][row["module"], row["function"]] == row["split"] for row in rows)


def test_a_corpus_that_has_a_split_decides(make: Make, small: Path, tmp_path: Path) -> None:
    wanted = (0.4, 0.3, 0.3)
    split_corpus(small, fractions=wanted, seed=1, jobs=1)
    sides = {row["module"]: row["split"] for row in pq.read_table(small / "modules.parquet").to_pylist()}
    assert set(sides.values()) == {"train", "validation", "test"}
    report = make(verify=False, features="context")
    rows = read(tmp_path / "table").select(["module", "split"]).to_pylist()
    assert [row["split"] for row in rows] == [sides[row["module"]] for row in rows]
    assert report.split == {
        **dict.fromkeys(("train", "validation", "test"), 0),
        **Counter(row["split"] for row in rows),
    }
    assert (report.split_by, report.leaking) == ("module", 0)
    about = json.loads((tmp_path / "table/dataset.json").read_text())
    assert (about["split_by"], about["fractions"]) == ("module", None)
    assert "- split: `that of the corpus, by module`" in (tmp_path / "table/README.md").read_text()
    with pytest.raises(
        UsageError, match=r"corpus: has a split, which decides for its tables too; leave `fractions` out"
    ):
        make("other", fractions=wanted)
    split_corpus(small, fractions=(0.3, 0.3, 0.4), seed=2, jobs=1, force=True)
    with pytest.raises(UsageError, match=r"fractions was 'of the split [0-9a-f]{8}', is 'of the split [0-9a-f]{8}'"):
        make(verify=False, features="context")


def test_before_and_after_inlining_can_be_joined(make: Make, tmp_path: Path) -> None:
    make("post")
    make("pre", snapshot="pre-inlining")
    post, pre = (
        {(row["module"], row["function"]): row for row in read(tmp_path / name).to_pylist()} for name in ("post", "pre")
    )
    assert set(pre) - set(post) == {("two.o", "h")}
    assert set(post) <= set(pre)
    assert {key: post[key]["native_size"] for key in post} == {key: pre[key]["native_size"] for key in post}
    assert (pre["two.o", "h"]["status"], pre["two.o", "h"]["native_size"]) == ("eliminated", None)
    assert pre["two.o", "two"]["calls"] == 2
    assert post["two.o", "two"]["calls"] == 0


@pytest.mark.parametrize(
    ("features", "vector"),
    [("all", False), ("all", True), ("llvm", False), ("ir2native", True), ("context, llvm", False)],
)
def test_columns_are_as_described(make: Make, tmp_path: Path, features: str, vector: bool) -> None:
    make(features=features, vector=vector, verify=False, module_filter="one")
    names = read(tmp_path / "table").column_names
    described = dict(describe_columns(Columns.of(features, vector=vector)))
    assert names == list(described)
    assert all(described.values())
    schema = pq.read_schema(next((tmp_path / "table/functions").iterdir()))
    assert {field.name: field.metadata[b"meaning"].decode() for field in schema} == described
    schema = pq.read_schema(tmp_path / "table/modules.parquet")
    assert {field.name: field.metadata[b"meaning"].decode() for field in schema} == MODULE_MEANINGS
    card = (tmp_path / "table/README.md").read_text()
    for name, meaning in described.items():
        assert f"| `{name}` | " in card, (name, meaning)


TEMPLATES = """
#include <stddef.h>
namespace shapes { struct Box { int side; int area() const; }; }
template <class T> __attribute__((noinline)) static T twice(T x) { return x + x; }
int shapes::Box::area() const { return twice(side) * twice<long>(side); }
extern "C" int plain(int x) { return x; }
"""


def test_names_of_cxx_are_demangled(
    llvm22: Llvm, compile_c: Callable[..., Path], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_c(llvm22, TEMPLATES, "-O1", *EMBED, name="build/box.cc")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus", jobs=1)

    def names(output: str) -> dict[str, str | None]:
        ir2native_table(tmp_path / "corpus", tmp_path / output, compiler=llvm22.clang, cache=cache, verify=False)
        table = read(tmp_path / output)
        return dict(zip(table["function"].to_pylist(), table["demangled"].to_pylist(), strict=True))

    assert names("table") == {
        "_ZNK6shapes3Box4areaEv": "shapes::Box::area() const",
        "_ZL5twiceIiET_S0_": "int twice<int>(int)",
        "_ZL5twiceIlET_S0_": "long twice<long>(long)",
        "plain": None,
    }
    monkeypatch.setattr(ir2native, "_cxxfilt", lambda _: ("/bin/false",))  # it may fail, and the table is there
    assert set(names("without").values()) == {None}


def test_older_compilers_tell_some_of_the_properties(table19: Path) -> None:
    names = read(table19).column_names
    described = [name for name, _ in describe_columns(Columns.of("all", vector=True))]
    assert [name for name in described if name in names] == names
    assert set(described) - set(names) <= set(PROPERTIES)
    assert len(set(names)) == len(names)


COUNTED = """
@g = global i32 0
declare float @llvm.sqrt.f32(float)
declare void @many(i32, i32, i32, i32, i32)
declare void @four(ptr, i32, i32, i32)
define internal void @inner() {
  ret void
}
define i32 @f(i32 %x, float %a, double %d, ptr %pointer) {
entry:
  call void @inner()
  %s = fadd float %a, 1.0
  %sd = fadd double %d, 2.0
  %z = zext i32 %x to i64
  %i = call i32 %pointer(i32 %x)
  call void asm sideeffect "nop", ""()
  %q = call float @llvm.sqrt.f32(float %s)
  call void @many(i32 1, i32 2, i32 3, i32 4, i32 5)
  call void @four(ptr null, i32 %x, i32 undef, i32 %x)
  %c = icmp eq i32 %x, 3
  br i1 %c, label %loop, label %choice
loop:
  %k = phi i32 [0, %entry], [%n, %loop]
  %n = add i32 %k, 1
  %again = icmp slt i32 %n, 10
  br i1 %again, label %loop, label %choice
choice:
  switch i32 %x, label %out [i32 1, label %one
    i32 2, label %one]
one:
  br label %out
out:
  ret i32 %x
dead:
  %l = load i32, ptr @g
  ret i32 %l
}
"""


def test_the_meanings_of_properties_are_what_llvm_counts(llvm: Llvm, tmp_path: Path) -> None:
    (tmp_path / "m.ll").write_text(COUNTED)
    words = (llvm.tool("opt"), "-passes=print<func-properties>", *OPT_OPTIONS, "m.ll")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    found = parse_properties(done.stderr)
    inner, f = (dict(zip(found.names, row, strict=True)) for row in found.values.tolist())
    assert (inner["uses"], f["uses"]) == (1, 1)  # a call, and that it can be seen from outside
    expected = {
        "basic_block_count": 5,  # without the one that is not reached
        "total_instruction_count": 18,
        "load_inst_count": 0,
        "direct_calls_to_defined_functions": 1,
        "blocks_reached_from_conditional_instruction": 2 + 2 + 3,
        "max_loop_depth": 1,
        "small_basic_blocks": 2,  # entry has 11 instructions, and loop ends with the 15th
        "medium_basic_blocks": 3,  # each has one instruction, and ends with the 16th to the 18th
        "floating_point_instruction_count": 2,  # not that of double
        "integer_instruction_count": 6,
        "cast_instruction_count": 1,
        "constant_fp_operand_count": 2,
        "constant_operand_count": 2,
        "inline_asm_operand_count": 1,
        "intrinsic_count": 1,
        "direct_call_count": 5,
        "indirect_call_count": 1,
        "call_returns_integer_count": 1,
        "call_returns_float_count": 1,
        "call_with_many_arguments_count": 1,
        "call_with_pointer_argument_count": 1,
        "unconditional_branch_count": 1,
        "critical_edge_count": 4 + 3,
        "control_flow_edge_count": 2 + 2 + 3 + 1,
        "constant_int_operand_count": 5 + 1 + 1 + 1 + 1 + (2 if llvm.version == 19 else 0),
    }
    if llvm.version == 22:
        expected |= {"conditional_branch_count": 2, "branch_successor_count": 5, "switch_successor_count": 3}
    assert {name: f[name] for name in expected} == expected


def test_what_llvm_and_its_model_call_by_one_name_is_told_apart(table19: Path) -> None:
    """LLVM's depth counts all loops; the model's input only looks at outermost ones."""
    table = read(table19)
    assert max(table["max_loop_depth"].to_pylist()) > 1
    assert set(table["ir2native_max_loop_depth"].to_pylist()) == {0, 1}


# --- the files


def test_a_single_file_holds_the_same(make: Make, tmp_path: Path) -> None:
    make(vector=True)
    report = make("t.parquet", vector=True)
    assert read(tmp_path / "t.parquet").equals(read(tmp_path / "table"))
    assert sorted(path.name for path in tmp_path.glob("t*")) == ["t.modules.parquet", "t.parquet", "table"]
    again = make("t.parquet", vector=True)
    assert again.unchanged
    assert {**again.as_json(), "unchanged": 0, "seconds": 0} == {**report.as_json(), "unchanged": 0, "seconds": 0}
    with pytest.raises(UsageError, match=r"t\.parquet: made in another way: seed was 0, is 1; `force` starts over"):
        make("t.parquet", vector=True, seed=1)
    assert make("t.parquet", vector=True, seed=1, force=True).unchanged is False
    # Somebody's own file of the name that a trace would take is not in the way.
    (tmp_path / "u.contexts.parquet").write_text("mine")
    make("u.parquet")
    assert (tmp_path / "u.contexts.parquet").read_text() == "mine"


def test_any_number_of_jobs_gives_the_same(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("one", jobs=1)
    make("three", jobs=3)
    assert stable(tmp_path / "one") == stable(tmp_path / "three")
    monkeypatch.setattr(sizes_run, "_ROWS_PER_GROUP", 1)
    monkeypatch.setattr(sizes_run, "_ROWS_PER_FILE", 2)
    report = make("parts")
    assert len(list((tmp_path / "parts/functions").iterdir())) == 3
    assert read(tmp_path / "parts").to_pylist() == read(tmp_path / "one").to_pylist()
    assert Counter(report.split) == Counter(read(tmp_path / "one")["split"].to_pylist())


def test_everybody_reads_it(table19: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = read(table19)
    total = sum(table["native_size"].to_pylist())
    frame = pandas.read_parquet(table19 / "functions")
    assert list(frame.columns) == table.column_names
    assert frame["native_size"].sum() == total
    lazy = polars.read_parquet(table19 / "functions/*.parquet")
    assert lazy.columns == table.column_names
    assert lazy["native_size"].sum() == total
    sql = f"SELECT count(*), sum(native_size), sum(len({VECTOR})) FROM '{table19}/functions/*.parquet'"  # noqa: S608
    assert duckdb.sql(sql).fetchall()[0] == (972, total, 972 * len(IR2NATIVE_COLUMNS))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    code = (
        "import sys, datasets; d = datasets.load_dataset(sys.argv[1], 'functions', split='train');"
        "print(len(d), sum(d['native_size'])); print(len(datasets.load_dataset(sys.argv[1], 'modules', split='train')))"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run((sys.executable, "-c", code, str(table19)), env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["972", str(total), "49"], done.stderr


def test_what_the_card_shows_runs(table19: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = (table19 / "README.md").read_text()
    monkeypatch.chdir(table19)
    (sql,) = re.findall(r"```sql\n(.*?)```", card, re.DOTALL)
    assert sum(row[1] for row in duckdb.sql(sql).fetchall()) == 972
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)  # noqa: S102 - what the card shows
    assert len(scope["train"]) == Counter(read(table19)["split"].to_pylist())["train"]
    for fact in ("Debian clang version 19", "post-inlining", "49, of which 0 failed", "972, of which 972 have"):
        assert fact in card


# --- again, otherwise, and after an interruption


def test_the_same_again_does_nothing_and_anything_else_is_refused(make: Make, llvm19: Llvm, tmp_path: Path) -> None:
    first = make()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "table").rglob("*")}
    again = make(jobs=1, timeout=99)
    skipped = ("unchanged", "seconds")
    assert again.unchanged
    assert {**again.as_json(), **dict.fromkeys(skipped)} == {**first.as_json(), **dict.fromkeys(skipped)}
    for options, difference in (
        ({"features": "llvm"}, "features was 'llvm', 'ir2native', 'context', 'operands', is 'llvm'"),
        ({"vector": True}, "vector was False, is True"),
        ({"snapshot": "pre-inlining"}, "snapshot was 'post-inlining', is 'pre-inlining'"),
        ({"verify": False}, "verify was True, is False"),
        ({"fractions": (1, 0, 0)}, "fractions was 0.8, 0.1, 0.1, is 1.0, 0.0, 0.0"),
        ({"compiler": llvm19.clang}, r"compiler was 22\.\S+ \([0-9a-f]{8}\), is 19\.\S+ \([0-9a-f]{8}\)"),
        ({"module_filter": "^l"}, r"modules were \d+ of \d+, are \d+ \(`sample`, .* choose them\)"),
    ):
        with pytest.raises(UsageError, match=rf"/table: made in another way: {difference}; `force` starts over$"):
            make(**options)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "table").rglob("*")} == before
    assert not make(features="llvm", force=True).unchanged
    assert "blocks" not in read(tmp_path / "table").column_names


def test_a_model_predicts_the_functions_of_a_table(make: Make, tmp_path: Path) -> None:
    found = model((TensorSpec("operands_parameters"), *LLVMS, TensorSpec("opt_level_is_z")))
    found.save(tmp_path / "model")
    plain = make("plain", verify=False)
    report = make(verify=False, model=tmp_path / "model")
    table, expected = read(tmp_path / "table"), read(tmp_path / "plain")
    assert table.column_names == [*expected.column_names, *PREDICTED]
    assert table.drop_columns([*PREDICTED]).equals(expected)
    sizes = found.predict(expected)
    assert [table[name].to_pylist() for name in PREDICTED] == [values.tolist() for values in sizes]
    assert report.functions == plain.functions == len(sizes.size)
    assert table.schema.field("predicted_size").metadata[b"meaning"].startswith(b"the function's bytes as a model")
    with pytest.raises(UsageError, match=r"model was [0-9a-f]{8}, is None"):
        make(verify=False)
    with pytest.raises(UsageError, match="needs the column 'initial_size': add its group to `features`"):
        make("other", features="operands,context", model=tmp_path / "model")
    # The page shows where they part.
    facts = read_sizes_facts(tmp_path / "table")
    shown = predicted_data(facts)
    rows = [row for row in table.to_pylist() if row["native_size"] is not None]
    errors = [abs(row["predicted_size"] - row["native_size"]) / max(row["native_size"], 1) for row in rows]
    assert shown == {
        "functions": len(rows),
        "median_error": pytest.approx(np.median(errors)),
        "covered": sum(row["predicted_low"] <= row["native_size"] <= row["predicted_high"] for row in rows),
        "bytes": sum(row["native_size"] for row in rows),
        "predicted_bytes": pytest.approx(sum(row["predicted_size"] for row in rows)),
    }
    _, by_size, worst = predicted_blocks(facts, "sizes")
    assert isinstance(by_size, Table)
    assert sum(int(row[1]) for row in by_size.rows[:-1]) == int(by_size.rows[-1][1]) == len(rows)
    assert isinstance(worst, Table)
    furthest = max(rows, key=lambda row: abs(row["predicted_size"] - row["native_size"]))
    assert worst.rows[0][:2] == (furthest["function"], furthest["module"])
    assert predicted_data(read_sizes_facts(tmp_path / "plain")) is None
    assert list(predicted_blocks(read_sizes_facts(tmp_path / "plain"), "sizes")) == []


def test_a_table_whose_rows_of_modules_are_damaged_is_told_of(make: Make, tmp_path: Path) -> None:
    make()
    path = tmp_path / "table/modules.parquet"
    rows = tuple(read_module_sizes(path))
    assert [(row.module, row.status) for row in rows] == [(f"{name}.o", "ok") for name in sorted(SMALL)]
    good = path.read_bytes()
    path.write_bytes(good[:4] + bytes(64) + good[68:])  # not its end, which says that it is whole and of what
    with pytest.raises(CorpusError, match=r"^.*/table/modules\.parquet: cannot be read: [^\n]*$"):
        make()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(CorpusError, match=r"modules\.parquet: cannot be read: "):
            list(read_module_sizes(path))


@pytest.mark.parametrize("hole", [{"module": None}, {"reason": None}, {"functions": None}, {"labelled": -1}])
def test_rows_of_modules_without_holes(tmp_path: Path, hole: dict[str, Any]) -> None:
    path = tmp_path / "modules.parquet"
    good = ModuleSizes("a\udcff", "failed", "timeout", "")
    write_module_sizes(path, [good, good, good], {"key": 1})
    assert tuple(read_module_sizes(path)) == (good._replace(module="a%FF"),) * 3
    write_module_sizes(path, [good, good._replace(**hole), good], {"key": 1})
    with pytest.raises(CorpusError, match=r"modules\.parquet: row 1: a value is missing, or less than 0$"):
        list(read_module_sizes(path))
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["cpu_s"]), path)
    with pytest.raises(CorpusError, match=r"modules\.parquet: not a table of sizes: .*: there is no 'cpu_s'$"):
        list(read_module_sizes(path))
    pq.write_table(table.append_column("x", table["module"]), path)
    with pytest.raises(CorpusError, match=r"not a table of sizes: .*: 'x' is none of them$"):
        list(read_module_sizes(path))
    pq.write_table(table.select(table.column_names[::-1]), path)
    with pytest.raises(CorpusError, match=r"not a table of sizes: .*: they are in another order, or there twice$"):
        list(read_module_sizes(path))


def test_tables_of_other_kinds_are_not_mixed(make: Make, tmp_path: Path) -> None:
    logs = sorted(Path(ir2native.__file__).parent.glob("data/training-logs/lua/**/*.log*"))[:1] or [
        DATA / "training-logs"
    ]
    convert_logs(logs, tmp_path / "logs")
    before = files(tmp_path / "logs")
    for force in (False, True):
        with pytest.raises(
            UsageError, match=r"/logs: made from training logs(, and has other tables|, not by ir2native; name)"
        ):
            make("logs", force=force)
    assert files(tmp_path / "logs") == before
    make()
    with pytest.raises(UsageError, match=r"/table: made by ir2native, and has other tables; name another output"):
        convert_logs(logs, tmp_path / "table", force=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match=r"/full: is not empty, and not a dataset: it holds thesis.tex"):
        make("full", force=True)


def test_killed_at_five_moments(lua22: Path, llvm22: Llvm, cache: Path, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)

    def work(output: str = "out") -> None:
        options: dict[str, Any] = {"compiler": llvm22.clang, "cache": cache, "module_filter": r"/l[a-c]"}
        ir2native_table(lua22, tmp_path / output, jobs=2, **options)

    started = time.monotonic()
    work("fresh")
    duration = time.monotonic() - started
    for _ in range(5):
        tool = Tool(work)
        time.sleep(rng.random() * duration * 0.5)
        code = tool.end()
        all_end(tmp_path, tool.pid, seconds=5)
        assert code in (0, -signal.SIGKILL)
    if not (tmp_path / "out/dataset.json").exists() and (tmp_path / "out/.mlgo-corpus/key.json").exists():
        with pytest.raises(UsageError, match="/out: begun in another way: seed was 0, is 5"):
            ir2native_table(
                lua22, tmp_path / "out", seed=5, module_filter=r"/l[a-c]", compiler=llvm22.clang, cache=cache
            )
    work()
    assert stable(tmp_path / "out") == stable(tmp_path / "fresh")


def test_what_is_done_is_not_run_again(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("fresh")

    def interrupt(done: int, *_: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, AssertionError)):
        make(progress=interrupt, jobs=1)
    report = make()
    assert report.resumed >= 3
    assert stable(tmp_path / "table") == stable(tmp_path / "fresh")


# --- what goes wrong


def test_bad_modules_are_rows_with_reasons(make: Make, llvm19: Llvm, small: Path, tmp_path: Path) -> None:
    good = (small / "one.o.bc").read_bytes()
    damaged: dict[str, tuple[bytes | None, bytes | None, str]] = {
        "garbage": (b"no bitcode at all" * 9, None, "unreadable_bitcode"),
        "empty": (b"", None, "unreadable_bitcode"),
        "cut": (good[: len(good) // 2 & ~3], None, "unreadable_bitcode"),
        "missing": (None, None, "missing_file"),
        "uncommanded": (good, b"", "no_command"),
        "loads": (good, b"-load\0/tmp/x.so", "refused_option"),
        "unknown": (good, b"-fno-such-thing", "refused_option"),
    }
    manifest = json.loads((small / "corpus_description.json").read_text())
    command = (small / "one.o.cmd").read_bytes().rstrip(b"\0")
    for name, (data, words, _) in damaged.items():
        if data is not None:
            (small / f"{name}.bc").write_bytes(data)
        if words != b"":
            (small / f"{name}.cmd").write_bytes(command + (b"\0" + words if words else b""))
    manifest["modules"] += list(damaged)
    (small / "corpus_description.json").write_text(json.dumps(manifest))
    report = make()
    found = modules(tmp_path / "table")
    assert {name: found[name]["reason"] for name in damaged} == {name: how[2] for name, how in damaged.items()}
    for name in damaged:
        row = found[name]
        assert row["status"] == "failed"
        assert row["detail"]
        assert "\n" not in row["detail"]
        assert (row["functions"], row["code_size"]) == (0, None)
    assert (report.sized, report.failed, len(report.problems)) == (len(SMALL), len(damaged), 5)
    assert report.functions == read(tmp_path / "table").num_rows == 5
    assert found["data.o"]["functions"] == 0
    with pytest.raises(MlgoCorpusError, match=r"not one of 6 modules has come through \(.*newer_bitcode|unreadable"):
        make("all-bad", compiler=llvm19.clang, module_filter="^(garbage|empty|cut|missing|uncommanded|loads)$")
    assert not (tmp_path / "all-bad").exists()


def test_newer_bitcode(llvm19: Llvm, both19: Path, lua22: Path, cache: Path, tmp_path: Path) -> None:
    """Modules of LLVM 22 whose commands clang 19 would know."""
    shutil.copytree(lua22, tmp_path / "corpus")
    for name in ("lapi", "lzio"):
        shutil.copy(both19 / f"lua/{name}.o.cmd", tmp_path / "corpus/lua")
    options: dict[str, Any] = {"module_filter": r"/(lapi|lzio)\.o$", "cache": cache, "compiler": llvm19.clang}
    with pytest.raises(MlgoCorpusError, match=r"^not one of 2 modules has come .*\(newer_bitcode 2\): lua/lapi.o: "):
        ir2native_table(tmp_path / "corpus", tmp_path / "deep/table", **options)
    with pytest.raises(MlgoCorpusError, match=r"^not one of 2 modules has come .*\(unknown_option 2\): lua/lapi.o: "):
        ir2native_table(lua22, tmp_path / "deep/table", **options)
    assert not (tmp_path / "deep").exists()


def test_no_functions_at_all(make: Make, tmp_path: Path) -> None:
    with pytest.raises(MlgoCorpusError, match=r"^in 1 module there is no function: there is no table to make$"):
        make(module_filter="data")
    assert not (tmp_path / "table").exists()


def test_opt_that_crashes_hangs_and_fails(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "opt"

    def choose(*words: Any, **options: Any) -> Toolchain:
        toolchain = choose_optimiser(*words, **options)
        program.write_text(
            '#!/bin/sh\nfor last; do :; done\ncase "$(grep "^define" "$last")" in\n'
            '*"@one("*) kill -SEGV $$ ;;\n*"@two("*) sleep 77 ;;\n'
            '*"@loop("*) echo "cannot do" >&2; exit 3 ;;\n*"@copied("*) exit 0 ;;\nesac\n'
            f'exec {toolchain.opt} "$@"\n'
        )
        program.chmod(0o755)
        return replace(toolchain, opt=program)

    monkeypatch.setattr(ir2native, "choose_optimiser", choose)
    started = time.monotonic()
    report = make(timeout=2.0)
    assert time.monotonic() - started < 15
    reasons = {name: row["reason"] for name, row in modules(tmp_path / "table").items()}
    assert reasons.pop("copy.o") in ("compiler_error", "missing_file", "unreadable_ir", "no_object")
    assert reasons == {
        "data.o": "ok",
        "last.o": "ok",
        "loop.o": "compiler_error",
        "one.o": "signal",
        "two.o": "timeout",
    }
    assert report.functions == 1
    assert "cannot do" in modules(tmp_path / "table")["loop.o"]["detail"]


def test_a_full_disk(
    llvm22: Llvm, small: Path, small_disk: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says so, also where opt cannot, and the same command goes on when there is room."""
    program = tmp_path / "opt"

    def choose(*words: Any, **options: Any) -> Toolchain:
        toolchain = choose_optimiser(*words, **options)
        program.write_text(f'#!/bin/sh\nyes "" | head -c 1000000 >&2 || exit 1\nexec {toolchain.opt} "$@"\n')
        program.chmod(0o755)
        return replace(toolchain, opt=program)

    monkeypatch.setattr(ir2native, "choose_optimiser", choose)
    output = small_disk / "table"
    options: dict[str, Any] = {"compiler": llvm22.clang, "cache": cache, "jobs": 1}
    with pytest.raises(MlgoCorpusError, match=rf"^cannot write {output}/\S*: No space left on device$"):
        ir2native_table(small, output, **options)
    assert os.listdir(output) == [".mlgo-corpus"]
    subprocess.run(("mount", "-o", "remount,size=8m", str(small_disk)), check=True)
    assert ir2native_table(small, output, **options).counts == {"ok": 6}


_run = SizingJob.run


def dying(job: SizingJob, item: SizingItem) -> SizedModule:
    if item.module.name == "loop.o":
        os.kill(os.getpid(), signal.SIGKILL)
    if item.module.name == "two.o":
        time.sleep(60)
    return _run(job, item)


def test_workers_that_die(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SizingJob, "run", dying)
    monkeypatch.setattr(sizing, "_PROGRAMS", 0)
    monkeypatch.setattr(over, "_SLACK_S", 3.0)
    report = make()
    found = modules(tmp_path / "table")
    assert {name: row["reason"] for name, row in found.items() if row["status"] != "ok"} == {
        "loop.o": "worker_died",
        "two.o": "timeout",
    }
    assert found["loop.o"]["detail"] == "the worker process ended by SIGKILL"
    assert (report.sized, report.failed) == (4, 2)


def toolchain(name: str, major: int, *, opt: bool = True) -> Toolchain:
    place = Path(f"/opt-{major}") if opt else None
    return Toolchain((name,), "PATH", version=f"{major}.1.0", reads_bitcode=(*range(17, major + 1),), opt=place)


@pytest.mark.parametrize(
    ("there", "producer", "message"),
    [
        ((), None, "no clang found that has an opt of its version: install clang-22 and llvm-22 (zig's clang"),
        ((toolchain("zig", 20, opt=False),), None, "has an opt of its version: install clang-20 and llvm-20 (zig's"),
        ((toolchain("zig", 20, opt=False),), 19, "has an opt of its version: install clang-19 and llvm-19 (zig's"),
        ((toolchain("a", 19),), 22, "made by LLVM 22, and opt is installed only for 19: install llvm-22 and clang-22"),
    ],
)
def test_no_opt_no_table(
    monkeypatch: pytest.MonkeyPatch, there: tuple[Toolchain, ...], producer: int | None, message: str
) -> None:
    monkeypatch.setattr(choice, "probe_toolchains", lambda **_: there)
    with pytest.raises(UsageError, match=re.escape(message)):
        choose_optimiser(None, producer=producer)


def test_the_optimiser_that_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "probe_toolchains", lambda **_: (toolchain("new", 22), toolchain("old", 19)))
    assert choose_optimiser(None, producer=19).driver == ("old",)
    assert choose_optimiser(None, producer=20).driver == ("new",)
    assert choose_optimiser(None, producer=None).driver == ("new",)
    monkeypatch.setattr(choice, "probe_compiler", lambda *_, **__: toolchain("zig", 20, opt=False))
    with pytest.raises(UsageError, match=r"^compiler zig: there is no opt of LLVM 20.1.0 for it: install clang-20 and"):
        choose_optimiser("zig", producer=None)
    monkeypatch.setenv("MLGO_CORPUS_COMPILER", "zig")
    with pytest.raises(UsageError, match=r"^MLGO_CORPUS_COMPILER=zig: there is no opt of LLVM 20.1.0"):
        choose_optimiser(None, producer=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ""}, "features : expected all, or some of llvm, ir2native, context"),
        ({"features": "llvm,size"}, "features size: expected all, or some of"),
        ({"features": ["llvm", "size"]}, "features size: expected all, or some of"),
        ({"features": "llvm", "vector": True}, "`vector` requires ir2native in `features`"),
        ({"snapshot": "later"}, "snapshot later: expected one of"),
        ({"fractions": (0.5, 0.5)}, "fractions 0.5,0.5: expected three numbers"),
        ({"fractions": 0.5}, "fractions 0.5: expected three numbers"),
        ({"fractions": (0.5, 0.5, float("nan"))}, "fractions 0.5,0.5,nan: expected three numbers"),
        ({"timeout": 0}, "timeout 0: expected seconds"),
        ({"timeout": float("nan")}, "timeout nan: expected seconds"),
        ({"jobs": 0}, "jobs 0: expected at least 1"),
        ({"replace_flags": ("nothing",)}, "nothing"),
        ({"module_filter": "no such"}, "no module is left"),
    ],
)
def test_bad_requests(make: Make, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        make(**options)
    assert not (tmp_path / "table").exists()


def test_no_corpus(llvm22: Llvm, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError):
        ir2native_table(tmp_path / "none", tmp_path / "table", compiler=llvm22.clang, cache=cache)
    assert list(tmp_path.iterdir()) == []


# --- the command line


def mlgo(folder: Path, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    env["XDG_CACHE_HOME"] = str(cache)
    return run_cli("ir2native", *words, cwd=folder, env=env, timeout=300)


TRANSCRIPT = """\
table: 5 functions of 6 modules, 5 with a native size, in N s
by COMPILER
status   functions
──────────────────
ok               5
6 of 6 objects equal the plain compile's
code: N bytes, N of them of no function in the table, or padding
split: train N, validation N, test N; divided at random, 32.0 % of the test rows would have an equal in train
DuckDB: SELECT function, native_size FROM 'table/functions/*.parquet' ORDER BY native_size DESC LIMIT 10
pandas, polars: read_parquet('table/functions')
"""


def test_the_command_line(small: Path, llvm22: Llvm, tmp_path: Path) -> None:
    usual = ("corpus", "--output", "table", "--compiler", llvm22.clang)
    done = mlgo(tmp_path, tmp_path / "xdg", *usual)
    assert done.returncode == 0, done.stderr
    shown = re.sub(r"\d+\.\d+ s$", "N s", done.stdout, flags=re.MULTILINE)
    shown = re.sub(r"^by .*", "by COMPILER", shown, flags=re.MULTILINE)
    shown = re.sub(r"(code: |bytes, |train |validation |test )\d+", r"\1N", shown)
    assert shown == TRANSCRIPT
    query = " ".join(done.stdout.partition("DuckDB: ")[2].splitlines()[0].split())
    found = duckdb.sql(query.replace("'table/", f"'{tmp_path}/table/")).fetchall()
    assert len(found) == 5
    done = mlgo(tmp_path, tmp_path / "xdg", *usual, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (report["unchanged"], report["functions"], report["failed"], report["exit_code"]) == (True, 5, 0, 0)
    assert "made before in the same way" in " ".join(mlgo(tmp_path, tmp_path / "xdg", *usual).stdout.split())
    (small / "one.o.bc").write_bytes(b"garbage")
    done = mlgo(tmp_path, tmp_path / "xdg", "corpus", "-o", "worse", "--compiler", llvm22.clang)
    assert done.returncode == 1
    assert "one.o: unreadable_bitcode: " in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected CORPUS and --output TABLE, or --describe"),
        (("corpus", "-o", "t", "--features", "x"), "--features x: expected all, or some of"),
        (("corpus", "-o", "t", "--fractions", "1,1,1"), "--fractions 1,1,1: expected three numbers"),
        (("corpus", "-o", "t", "--snapshot", "x"), "--snapshot: 'x' is not one of 'p"),
        (("corpus", "-o", "t", "--timeout", "0"), "timeout 0: expected seconds, more than 0"),
        (("corpus", "-o", "t", "--memory-limit", "x"), "--memory-limit x"),
    ],
)
def test_bad_usage_is_exit_code_2(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = mlgo(tmp_path, tmp_path, *words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_describe(tmp_path: Path) -> None:
    done = mlgo(tmp_path, tmp_path, "--describe", "--json", "--vector")
    assert json.loads(done.stdout) == dict(describe_columns(Columns.of("all", vector=True)))
    done = mlgo(tmp_path, tmp_path, "--describe", "--features", "llvm")
    assert "total_instruction_count: instructions of these blocks, without debug information" in done.stdout
