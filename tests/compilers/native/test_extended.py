"""Clangs that say more with each question, against the clang that they extend, and against what they say by names."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from mlgo_corpus.build import build_corpus
from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers.choose import choose_for_build
from mlgo_corpus.compilers.find import Compiler
from mlgo_corpus.compilers.native import extended, wrapped
from mlgo_corpus.compilers.native.wrapped import Asking, PolicyCode, StockClang, wrap_clang
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.dataset.rows import open_rows
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.evaluate import evaluate_corpus
from mlgo_corpus.extract import extract_corpus
from mlgo_corpus.files.text import name_hash
from mlgo_corpus.formats.logs.tasks import EXTENDED_FEATURES
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.keyed import DatasetPolicy
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.policies.source import policy_source
from mlgo_corpus.runs.functions import copies
from mlgo_corpus.search import search_corpus
from mlgo_corpus.toolchain import extend_toolchain
from mlgo_corpus.trace import trace_corpus
from mlgo_corpus.wrap import wrap_toolchain
from tests.conftest import EMBED, Llvm, run_checked

# A function of each linkage, kind and place, some called often.
CODE = """\
extern int sink(int);
namespace std {
struct box { int v; box(int n) : v(sink(n) + sink(n * 2)) {} ~box() { sink(v); sink(v + 1); sink(v ^ 2); } };
template <class T> int turned(T n) { return sink(n * 3) + sink(n * 5); }
}
static int local(int a, int b) { return sink(a) * sink(b) - sink(a - b) * sink(a ^ b); }
inline int shared(int a) { return sink(a + 1) * sink(a + 2); }
template <class T> int made(T a) { return sink(a + 3) * sink(a + 4); }
template int made<long>(long);
extern inline __attribute__((gnu_inline)) int elsewhere(int a) { return sink(a) + sink(a + 7); }
int outside(int a) { return local(a, 1) + local(2, a) + shared(a) + shared(a + 1); }
typedef int (*taken)(int);
taken give() { return &shared; }
int all(int a) {
  std::box one(a), two(a + 1);
  return outside(a) + made(a) + made(long(a)) + std::turned(a) + shared(a);
}
int more(int a) { return local(a, a) + elsewhere(a) + std::turned(a) + all(a) + made(a) + made(long(a)); }
"""
LINKAGES = {
    "local": 0,
    "box": 1,
    "turned": 1,
    "shared": 1,
    "made<int>": 1,
    "made<long>": 2,
    "elsewhere": 4,
    "outside": 3,
    "all": 3,
    "more": 3,
}


class Traced(NamedTuple):
    """Rows of the observations, and the bytes of the object."""

    rows: list[dict[str, Any]]
    columns: list[str]
    object: bytes


@pytest.fixture(scope="module")
def told(llvm19: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an extended clang, in a path with a blank."""
    output = tmp_path_factory.mktemp("an extended") / "clang"
    return extend_toolchain(output, compiler=llvm19.clang).extended.output


@pytest.fixture
def compiled(told: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that compile a plugin: the one of `told` is taken, rather than the same compiled for ten seconds."""
    commands: list[tuple[str, ...]] = []
    run_tool = extended.run_tool

    def run_or_copy(argv: tuple[str, ...], **how: Any) -> Any:
        if str(extended._SOURCE) not in argv:
            return run_tool(argv, **how)
        commands.append(argv)
        return shutil.copyfile(told / extended.PLUGIN_NAME, argv[-1])

    monkeypatch.setattr(extended, "run_tool", run_or_copy)
    return commands


@pytest.fixture(scope="module")
def corpus(llvm19: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.cpp").write_text(CODE)
    run_checked(llvm19.clangxx, "-Oz", *EMBED, "-c", "a.cpp", "-o", "a.o", cwd=folder)
    extract_corpus([folder], folder / "corpus", jobs=1)
    return folder / "corpus"


def traced(corpus: Path, folder: Path, compiler: str, policy: str, cache: Path) -> Traced:
    options: dict[str, Any] = {"compiler": compiler, "jobs": 1, "cache": cache, "keep_objects": folder / "objects"}
    trace_corpus(corpus, folder / "traced", policy=policy, **options)
    table = ds.dataset(folder / "traced" / "observations").to_table()  # type: ignore[no-untyped-call]
    return Traced(table.to_pylist(), table.column_names, (folder / "objects" / "a.o").read_bytes())


@pytest.mark.parametrize("policy", ["default", "always"])
def test_it_asks_what_the_stock_clang_asks_and_says_more(
    llvm19: Llvm, told: Path, corpus: Path, policy: str, probed: Path, tmp_path: Path
) -> None:
    cache = shutil.copytree(probed, tmp_path / "cache")
    plain = traced(corpus, tmp_path / "plain", llvm19.clang, policy, cache)
    more = traced(corpus, tmp_path / "more", str(told), policy, cache)
    assert more.object == plain.object
    added = [name for name in more.columns if name not in plain.columns]
    assert tuple(added) == tuple(json.loads((told / "extended.json").read_text())["features"]) == EXTENDED_FEATURES
    assert [{name: row[name] for name in plain.columns} for row in more.rows] == plain.rows
    assert len(plain.rows) > 10
    said = run_checked(
        "llvm-cxxfilt-19", *(row[name] for row in more.rows for name in ("callee", "caller"))
    ).splitlines()
    seen, yes = Counter[str](), Counter[str]()
    for row, callee, caller in zip(more.rows, said[::2], said[1::2], strict=True):
        for name, function in (("callee", callee), ("caller", caller)):
            assert row[f"{name}_library"] == ("std::" in function)
            linkage = next(value for key, value in LINKAGES.items() if key in function.partition("(")[0])
            assert row[f"{name}_linkage"] == linkage, function
        assert row["callee_kind"] == (2 if "~box" in callee else callee.startswith("std::box::box"))
        assert row["callee_arguments"] == (2 if "local" in callee or "::box(" in callee else 1)
        assert row["callee_address_taken"] == callee.startswith("shared")
        assert (row["callee_asked"], row["callee_inlined"]) == (seen[row["callee"]], yes[row["callee"]])
        seen[row["callee"]] += 1
        yes[row["callee"]] += row["inlining_decision"]
    # Of the two calls in `outside`, the first was answered already when there is a question about the second.
    calls = [row["calls_in_caller"] for row, callee, caller in zip(more.rows, said[::2], said[1::2], strict=True)
             if callee.startswith("local") and caller.startswith("outside")]  # fmt: skip
    assert calls == ([2, 1] if policy == "always" else [2, 2])
    # What a stock clang decided is found again by the extended one's questions, and not the other way round.
    datasets = [tmp_path / name / "traced" for name in ("plain", "more")]
    again = traced(corpus, tmp_path / "again", str(told), str(datasets[0]), cache)
    assert again.object == plain.object
    assert [{name: row[name] for name in plain.columns} for row in again.rows] == plain.rows
    with pytest.raises(UsageError, match="does not send: callee_linkage, caller_linkage, callee_library"):
        DatasetPolicy(datasets[1], None).reset(open_rows(datasets[0]).header, "a.o")


def compile_with(program: Path, folder: Path, output: Path, source: str = "a.cpp") -> str:
    """Compile a source for size, and return what was said."""
    words = (str(program), "-Oz", "-c", source, "-o", str(output))
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stderr


def code(llvm: Llvm, path: Path) -> bytes:
    """Return the text of an object."""
    text = path.with_suffix(".text")
    run_checked(llvm.objcopy, "--dump-section", f".text={text}", path, path.with_suffix(".same"))
    return text.read_bytes()


def test_a_policy_of_its_features_goes_into_stock_clangs_and_extended_ones(
    llvm19: Llvm, told: Path, corpus: Path, probed: Path, tmp_path: Path, compiled: list[tuple[str, ...]]
) -> None:
    cache = shutil.copytree(probed, tmp_path / "cache")
    # Inline what has a name of the library, and nothing else.
    feature = TensorSpec("callee_library", "int64_t", port=0, shape=(1,))
    LearnedPolicy("inlining-2.0", "inlining", (feature,), Rule(-0.5, (1.0,))).save(tmp_path / "policy")
    policy = str(tmp_path / "policy")
    found = traced(corpus, tmp_path / "found", str(told), policy, cache)
    assert {row["inlining_decision"] for row in found.rows if row["callee_library"]} == {1}
    assert {row["inlining_decision"] for row in found.rows if not row["callee_library"]} == {0}
    (tmp_path / "kept.o").write_bytes(found.object)
    kept = code(llvm19, tmp_path / "kept.o")
    for compiler in (str(told), llvm19.clang):
        made = wrap_toolchain(policy, tmp_path / "wrapped", compiler=compiler, force=True, cache=cache).wrapped
        compile_with(made.clang, corpus.parent, tmp_path / "by.o")
        assert code(llvm19, tmp_path / "by.o") == kept
        assert made.compiler == (llvm19.clang,)  # so that it works without the extended clang's folder
    # The stock clang's plugin is in the folder, which may be moved.
    moved = (tmp_path / "wrapped").rename(tmp_path / "moved")
    assert compile_with(moved / "bin" / "clang", corpus.parent, tmp_path / "by.o") == ""
    assert code(llvm19, tmp_path / "by.o") == kept
    compile_with(Path(llvm19.clang), corpus.parent, tmp_path / "plain.o")
    assert code(llvm19, tmp_path / "plain.o") != kept
    for damage in (lambda plugin: plugin.write_bytes(b"no plugin"), Path.unlink):
        damage(moved / "advisor.so")
        assert "compiled without it" in compile_with(moved / "bin" / "clang", corpus.parent, tmp_path / "by.o")
        assert (tmp_path / "by.o").read_bytes() == (tmp_path / "plain.o").read_bytes()
    # A stock clang is extended where that is needed, once.
    assert traced(corpus, tmp_path / "stock", llvm19.clang, policy, cache) == found
    (made_here,) = (cache / "extended").glob("*/bin/clang")
    made_at = made_here.stat().st_mtime_ns
    assert traced(corpus, tmp_path / "replayed", llvm19.clang, str(tmp_path / "found" / "traced"), cache) == found
    assert made_here.stat().st_mtime_ns == made_at
    assert len(compiled) == 1
    evaluated = evaluate_corpus(
        corpus, tmp_path / "evaluated", policies=["never", policy], compiler=llvm19.clang, jobs=1, cache=cache
    )
    assert [one.objects.modules for one in evaluated.policies] == [1, 1]
    with pytest.raises(UsageError, match=f"has a policy inside already; name the clang behind it, {llvm19.clang}"):
        extend_toolchain(tmp_path / "again", compiler=str(moved))
    with pytest.raises(UsageError, match="has a plugin already"):
        extend_toolchain(tmp_path / "again", compiler=str(told))
    with pytest.raises(UsageError, match="build with the clang behind it"):
        build_corpus(["true"], tmp_path / "again", compiler=str(told))
    assert not (tmp_path / "again").exists()


SHARED = """\
extern int sink(int);
inline int everywhere(int a) { return sink(a + 1) * sink(a + 2); }
inline int twice(int a) { return sink(a + 3) * sink(a + 4) + everywhere(a); }
inline int once(int a) { return sink(a + 5) * sink(a + 6) + everywhere(a); }
static int mine(int a) { return sink(a + 7) * sink(a + 8) + everywhere(a); }
int start(int a) { return sink(a); }
"""
MODULES = {
    "one": "int one(int a) { return everywhere(a) + everywhere(a + 1) + mine(a) + mine(-a); }",
    "two": "int two(int a) { return everywhere(a) + everywhere(a + 1) + twice(a) + twice(-a) + mine(a) + mine(-a); }",
    "three": "int three(int a) { return twice(a) + twice(-a) + once(a) + once(-a) + everywhere(a) + everywhere(-a); }",
}


def copies_in(table: bytes) -> dict[int, int]:
    """Return the copies in a table, by the hashes of names."""
    count, *words = np.frombuffer(table, np.uint64).tolist()
    assert len(words) == 2 * count
    assert words[::2] == sorted(words[::2])
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.fixture(scope="module")
def project(llvm19: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of three modules that have functions in common."""
    folder = tmp_path_factory.mktemp("project")
    for name, code in MODULES.items():
        (folder / f"{name}.cpp").write_text(f"{SHARED}{code}\n")
        run_checked(llvm19.clangxx, "-Oz", *EMBED, "-c", f"{name}.cpp", "-o", f"{name}.o", cwd=folder)
    extract_corpus([folder], folder / "corpus", jobs=1)
    return folder / "corpus"


def test_copies_are_those_of_one_product(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere, twice = name_hash("_Z10everywherei"), name_hash("_Z5twicei")
    assert copies_in(copies.project_copies(open_corpus(project), jobs=1)) == {everywhere: 3, twice: 2}
    # Of a side of a split, the whole project counts.
    side = project / "corpus_description.test.json"
    whole = json.loads((project / "corpus_description.json").read_text())
    side.write_text(json.dumps({**whole, "modules": ["one.o"]}))
    assert len(open_corpus(side)) == 1
    assert copies_in(copies.project_copies(open_corpus(side), jobs=1)) == {everywhere: 3, twice: 2}
    side.unlink()
    groups = {"one.o": "a program", "two.o": "a program", "three.o": "another"}
    monkeypatch.setattr(copies.LinkedModules, "group", lambda _, module: groups[module])
    assert copies_in(copies.project_copies(open_corpus(project), jobs=1)) == {everywhere: 2}


def test_copies_of_a_corpus_that_cannot_be_read(project: Path, tmp_path: Path) -> None:
    corpus = shutil.copytree(project, tmp_path / "corpus", ignore=shutil.ignore_patterns("*.parquet"))
    places = sorted(corpus.rglob("*.bc"))
    places[0].write_bytes(b"none")
    assert len(copies_in(copies.project_copies(open_corpus(corpus), jobs=1))) == 2
    for place in places[1:]:
        place.write_bytes(b"none")
    with pytest.raises(CorpusError, match=r"corpus: not one module can be read: \w+\.o: "):
        copies.project_copies(open_corpus(corpus), jobs=1)


def test_a_policy_can_know_how_many_modules_of_the_project_have_a_function(
    llvm19: Llvm, told: Path, project: Path, probed: Path, tmp_path: Path, compiled: list[tuple[str, ...]]
) -> None:
    cache = shutil.copytree(probed, tmp_path / "cache")
    # Inline what one module alone has, and what is private, which each of them has.
    feature = TensorSpec("callee_copies", "int64_t", port=0, shape=(1,))
    LearnedPolicy("inlining-3.0", "inlining", (feature,), Rule(1.5, (-1.0,))).save(tmp_path / "policy")
    policy = str(tmp_path / "policy")
    options: dict[str, Any] = {"compiler": llvm19.clang, "jobs": 1, "cache": cache}
    trace_corpus(project, tmp_path / "traced", policy=policy, keep_objects=tmp_path / "objects", **options)
    rows = ds.dataset(tmp_path / "traced" / "observations").to_table().to_pylist()  # type: ignore[no-untyped-call]
    held = {"_Z10everywherei": 3, "_Z5twicei": 2, "_Z4oncei": 1, "_ZL4minei": 1}
    held |= dict.fromkeys(("_Z3onei", "_Z3twoi", "_Z5threei"), 1)
    assert {row["callee"] for row in rows} == {*list(held)[:4]}
    for row in rows:
        assert (row["callee_copies"], row["caller_copies"]) == (held[row["callee"]], held[row["caller"]])
        assert row["inlining_decision"] == (row["callee"] in ("_Z4oncei", "_ZL4minei"))
    assert {row["caller_copies"] for row in rows} == {1, 2}
    # A clang that was extended for no project cannot be asked.
    with pytest.raises(
        UsageError, match=r"^compiler .*: the policy needs the feature 'callee_copies', which this comp"
    ):
        search_corpus(
            project, tmp_path / "found", also=[policy], **{**options, "compiler": str(told / "bin" / "clang")}
        )
    # What is missing in the cache is made again.
    for place in (cache / "extended").glob("*/copies.bin"):
        place.unlink()
    # The plugin was compiled once, and the one for the project is a copy.
    assert len(compiled) == 1
    evaluated = evaluate_corpus(project, tmp_path / "evaluated", policies=["inlining-1.0", policy], **options)
    assert [one.objects.modules for one in evaluated.policies] == [3, 3]
    places = sorted((cache / "extended").glob("*/bin/clang"))
    assert [(place.parent.parent / "copies.bin").exists() for place in places].count(True) == len(places) - 1 == 1
    # The same object comes from a wrapped clang that was made for the project, and of another one's decisions.
    told_of = {"compiler": llvm19.clang, "corpus": project, "cache": cache}
    with pytest.raises(UsageError, match=r"^corpus: inlining-3.0 decides by what the whole project has: name its"):
        wrap_toolchain(policy, tmp_path / "wrapped", compiler=llvm19.clang, cache=cache)
    with pytest.raises(UsageError, match=r"^corpus .*: inlining-1.0 asks nothing of a corpus$"):
        wrap_toolchain("inlining-1.0", tmp_path / "wrapped", **told_of)
    # Who decides besides a dataset need not be known to who names that.
    left = "what traced does not decide is left to"
    with pytest.raises(UsageError, match=rf"^corpus: {left} inlining-3.0, which decides by what the whole project has"):
        wrap_toolchain(tmp_path / "traced", tmp_path / "wrapped", compiler=llvm19.clang, cache=cache)
    remedy = "leave it out, or name inlining-3.0 with `otherwise`"
    with pytest.raises(UsageError, match=f"{left} default, which asks nothing of a corpus: {remedy}$"):
        wrap_toolchain(tmp_path / "traced", tmp_path / "wrapped", otherwise="default", **told_of)
    made = wrap_toolchain(policy, tmp_path / "wrapped", **told_of).wrapped
    replays = wrap_toolchain(tmp_path / "traced", tmp_path / "replays", **told_of).wrapped
    for name in MODULES:
        (tmp_path / "kept.o").write_bytes((tmp_path / "objects" / f"{name}.o").read_bytes())
        for clang in (made.clang, replays.clang):
            by = tmp_path / f"{name}.o"  # the module's name, by which its decisions are found
            compile_with(clang, project.parent, by, f"{name}.cpp")
            assert code(llvm19, by) == code(llvm19, tmp_path / "kept.o"), name
        # What a search found is found again, whatever other modules have by then.
        (tmp_path / "replays" / "copies.bin").write_bytes(bytes(8))
    # With a damaged table the plugin would tell nothing of the project, and wait for a FIFO.
    whole = (tmp_path / "wrapped" / "copies.bin").read_bytes()
    assert len(whole) == 8 + 2 * 16
    # Caches of objects know a compiler by its program, which has the table's digest.
    assert sha256(whole).hexdigest().encode() in made.clang.read_bytes()
    table = tmp_path / "wrapped" / "copies.bin"
    unread = "its table of the project's functions, copies.bin, cannot be read; compiled without it\n"
    for damaged in (whole[:-1], whole[:8], whole[:7], b"", b"\xff" * len(whole), None):
        table.unlink()
        if damaged is not None:
            table.write_bytes(damaged)
        said = compile_with(made.clang, project.parent, tmp_path / "by.o", "one.cpp")
        assert said == f"mlgo-corpus: policy inlining-3.0: {unread}"
    os.mkfifo(table)
    assert compile_with(made.clang, project.parent, tmp_path / "by.o", "one.cpp").endswith(unread)
    made_for = "a clang of `mlgo-corpus toolchain extend`, made for the project's corpus, does"
    with pytest.raises(MlgoCorpusError, match=f"'callee_copies', which this compiler does not send; {made_for}"):
        trace_corpus(project, tmp_path / "again", policy=policy, **{**options, "compiler": str(told)})


def test_who_needs_an_extended_clang_at_the_same_time_makes_it_once(
    llvm19: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def make(output: Path, compiler: Compiler, copies: None, *, plugin: None, force: bool) -> extended.Extended:
        assert force
        made.append(output)
        (output / "bin").mkdir(parents=True)
        (output / "bin" / "clang").touch()
        (output / "advisor.so").touch()
        about = {"made_by": "toolchain extend", "compiler": list(compiler.driver), "version": "19", "features": ["one"]}
        (output / "extended.json").write_text(json.dumps(about))
        return extended.Extended(output, compiler.driver, "19", ("one",))

    monkeypatch.setattr(extended, "extend_clang", make)
    compiler = choose_for_build(llvm19.clang)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: extended.cached_extended(compiler, tmp_path), range(8)))
    assert found == [extended.Extended(made[0], compiler.driver, "19", ("one",))] * 8
    assert len(made) == 1
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be made in .*; set MLGO_CORPUS_CACHE to another folder"):
        extended.cached_extended(compiler, tmp_path / "file")


def test_a_plugin_that_cannot_be_loaded_costs_the_policy_alone(
    llvm22: Llvm, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """clang 22 fails of it before it asks anything."""
    monkeypatch.setattr(wrapped, "_try", lambda *_: None)
    policy = LearnedPolicy("inlining-2.0", "inlining", (TensorSpec("cost_estimate"),), Rule(0.0, (1.0,)))
    decides = PolicyCode(policy.name, policy.task, policy.digest, *policy_source(policy))
    drivers = (llvm22.clang,), (llvm22.clangxx,)
    stock = StockClang(*drivers, "22", misplaced_default=False, make_plugin=lambda: {"advisor.so": b"none"})
    clang = wrap_clang(tmp_path / "wrapped", decides, stock, Asking(), force=False).clang
    assert "compiled without it" in compile_with(clang, corpus.parent, tmp_path / "by.o")
    assert compile_with(Path(llvm22.clang), corpus.parent, tmp_path / "plain.o") == ""
    assert (tmp_path / "by.o").read_bytes() == (tmp_path / "plain.o").read_bytes()
    wrong = subprocess.run(
        (clang, "-Oz", "-c", "wrong.cpp", "-o", tmp_path / "wrong.o"), cwd=corpus.parent, check=False
    )
    assert wrong.returncode == 1


@pytest.mark.parametrize(
    "line",
    [
        *("-Oz -c a.cpp -o a.o", "-O0 -c a.cpp -o a.o", "-O2 -c a.cpp b.cpp", "-Oz -S a.cpp -o a.o", "-E a.cpp -o a.o"),
        *("-Oz -shared -fPIC a.cpp b.cpp -o a.o", "-Oz a.o -shared -o b.o", "-Oz -c wrong.cpp -o a.o", "-c s.s -o a.o"),
    ],
)
def test_without_a_session_it_is_the_stock_clang(llvm19: Llvm, told: Path, tmp_path: Path, line: str) -> None:
    found = []
    for program in (llvm19.clangxx, told / "bin" / "clang++"):
        folder = tmp_path / "work"  # of the same name: it may be in the objects
        folder.mkdir()
        (folder / "a.cpp").write_text(CODE)
        (folder / "b.cpp").write_text("int b(int a) { return a * 3; }\n")
        (folder / "wrong.cpp").write_text("this is no C++\n")
        (folder / "s.s").write_text(".globl s\ns: ret\n")
        if " a.o " in line:
            run_checked(llvm19.clangxx, "-Oz", "-fPIC", "-c", "a.cpp", "-o", "a.o", cwd=folder)
        done = subprocess.run((program, *line.split()), cwd=folder, capture_output=True, check=False)
        made = {path.name: path.read_bytes() for path in folder.iterdir()}
        found.append((done.returncode, done.stdout, done.stderr, made))
        shutil.rmtree(folder)
    assert found[0] == found[1]


def test_the_verb(llvm19: Llvm, told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("mine")
    command = ["toolchain", "extend", "--compiler", llvm19.clang, "--output"]
    done = runner.invoke(app, [*command, str(other), "--force"])
    assert done.exit_code == 2
    assert os.listdir(other) == ["mine"]
    monkeypatch.setattr(extended, "_include_folders", lambda *_: [tmp_path])
    done = runner.invoke(app, [*command, str(tmp_path / "made")])
    assert done.exit_code == 2
    assert "apt-get install llvm-19-dev" in " ".join(done.stderr.split())
    assert not (tmp_path / "made").exists()
    monkeypatch.undo()
    # A plugin that adds nothing is no extension.
    monkeypatch.setattr(extended, "_SOURCE", tmp_path / "empty.cpp")
    (tmp_path / "empty.cpp").write_text("")
    done = runner.invoke(app, [*command, str(tmp_path / "made")])
    assert done.exit_code == 2
    assert "cannot be extended" in done.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "expected"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)]
)
def test_names_are_hashed_as_fnv_1a_has_it(name: str, expected: int) -> None:
    """Its authors' test vectors."""
    assert name_hash(name) == expected


def test_a_full_disk_is_told_of_the_output(llvm22: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    policy = LearnedPolicy("inlining-2.0", "inlining", (TensorSpec("cost_estimate"),), Rule(0.0, (1.0,)))
    decides = PolicyCode(policy.name, policy.task, policy.digest, *policy_source(policy))
    drivers = (llvm22.clang,), (llvm22.clangxx,)
    stock = StockClang(*drivers, "22", misplaced_default=False, make_plugin=lambda: {"advisor.so": b"none"})
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match=rf"^{tmp_path}: no space left on the disk"):
        wrap_clang(tmp_path / "wrapped", decides, stock, Asking(), force=False)
    assert not list(tmp_path.iterdir())
