"""Clangs that make a dataset's decisions again, against traces that replay the same dataset."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from mlgo_corpus.cli.main import app
from mlgo_corpus.dataset.rows import open_rows
from mlgo_corpus.errors import UsageError
from mlgo_corpus.extract import extract_corpus
from mlgo_corpus.formats.logs.keys import key_maker, stable_features
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.keyed import _build_folder, decision_table
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.trace import trace_corpus
from mlgo_corpus.wrap import wrap_toolchain
from tests.conftest import EMBED, Llvm, run_checked

# Calls of equal features in many functions: only their numbers tell them apart.
TEMPLATE = """\
%(extern)sint sink(int);
static int small(int a) { return sink(a) + sink(a + 1); }
static int large(int a, int b) { return small(a) * small(b) - small(a - b) * sink(a ^ b) + sink(b); }
%(functions)s
int all%(name)s(int a) { return %(calls)s; }
"""
FUNCTION = "int one%(name)s%(i)d(int a) { return small(a) + large(a, %(i)d) + small(%(i)d) * large(%(i)d, a); }"
SOURCES = ("lib/a.cpp", "lib/b.c", "app/a.cpp", "new.cpp")
KNOWN = SOURCES[:-1]
AGAIN = "lib/same\n\udce9.o"  # the corpus names it lib/same%0A%E9.o
LEVELS = {"app/a.cpp": "-O2"}  # at which no policy is asked about what is new


FRESH = """
static int fresh(int a) { return sink(a + 3) - sink(a * 5); }
int later(int a) { return fresh(a) + fresh(fresh(a)) * (a > 3 ? fresh(a + 1) : fresh(9)); }
"""


def text_of(name: str) -> str:
    """Return a source of C++ or C."""
    stem = "".join(letter for letter in name if letter.isalnum())
    extern = 'extern "C" ' if name.endswith("cpp") else ""
    functions = "\n".join(FUNCTION % {"name": stem, "i": i} for i in range(12))
    calls = " + ".join(f"one{stem}{i}(a) - small({i})" for i in range(12))
    return TEMPLATE % {"extern": extern, "functions": functions, "calls": calls, "name": stem}


def object_of(source: str) -> str:
    return str(Path(source).with_suffix(".o"))


def compile_with(folder: Path, program: Path | str, source: str, output: str, level: str = "-Oz") -> bytes:
    """Compile a source, and return its text."""
    words = (str(program), level, "-c", source, "-o", output)
    said = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stderr
    assert said == ""
    return code(folder / output)


def code(path: Path) -> bytes:
    text = path.with_suffix(".text")
    run_checked("llvm-objcopy-22", "--dump-section", f".text={text}", path, path.with_suffix(".same"))
    return text.read_bytes()


class Made(NamedTuple):
    """A tree of sources, what a random policy decided in three of them, and a clang that decides so."""

    llvm: Llvm
    tree: Path
    cache: Path
    dataset: Path
    wrapped: Path

    def replayed(self, tree: Path, source: str, folder: Path) -> bytes:
        """Return the text of the object that a trace makes of a source as it is now by the dataset."""
        objects = folder / "objects"
        extracted = folder / "replayed"
        run_checked(self.by(source), "-Oz", *EMBED, "-c", source, "-o", object_of(source), cwd=tree)
        extract_corpus([tree], extracted, jobs=1, force=True)
        how = {"compiler": self.llvm.clang, "jobs": 1, "cache": self.cache, "keep_objects": objects}
        trace_corpus(extracted, folder / "again", policy=str(self.dataset), force=True, **how)  # type: ignore[arg-type]
        return code(objects / object_of(source))

    def by(self, source: str) -> str:
        return self.llvm.clangxx if source.endswith("cpp") else self.llvm.clang


@pytest.fixture(scope="module", params=[19, 22])
def made(request: pytest.FixtureRequest, probed: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    llvm = Llvm(request.param)
    folder = tmp_path_factory.mktemp("found")
    tree, cache = folder / "tree", shutil.copytree(probed, folder / "cache")
    for source in SOURCES:
        (tree / source).parent.mkdir(parents=True, exist_ok=True)
        (tree / source).write_text(text_of(source))
    for source in KNOWN:
        by = llvm.clangxx if source.endswith("cpp") else llvm.clang
        run_checked(by, LEVELS.get(source, "-Oz"), *EMBED, "-c", source, "-o", object_of(source), cwd=tree)
    run_checked(llvm.clang, "-Oz", *EMBED, "-c", "lib/b.c", "-o", AGAIN, cwd=tree)  # of which the corpus has one
    extract_corpus([tree], folder / "corpus", dedup=True, jobs=1)
    (tree / AGAIN).unlink()
    options = {"policy": "random:0.5", "compiler": llvm.clang, "jobs": 1, "cache": cache}
    trace_corpus(folder / "corpus", folder / "dataset", keep_objects=folder / "objects", **options)  # type: ignore[arg-type]
    report = wrap_toolchain(folder / "dataset", folder / "wrapped", compiler=llvm.clang, cache=cache)
    assert report.wrapped.policy == "dataset, else default"
    decisions = sum(item.rows for item in open_rows(folder / "dataset").modules)
    assert (len(report.modules), report.decisions, report.languages) == (3, decisions, None)
    return Made(llvm, tree, cache, folder / "dataset", report.wrapped.output)


def test_known_modules_get_their_decisions_wherever_they_are_compiled(made: Made, tmp_path: Path) -> None:
    names = {"lib/a.cpp": "a.cpp", "lib/b.c": "b.c", "app/a.cpp": "../app/./a.cpp"}
    tree = shutil.copytree(made.tree, tmp_path / "some" / "tree")
    seen = set()
    for source, name in names.items():
        wanted = code(made.dataset.parent / "objects" / object_of(source))
        program = made.wrapped / "bin" / ("clang++" if source.endswith("cpp") else "clang")
        level = LEVELS.get(source, "-Oz")
        assert compile_with(tree / "lib", program, name, "other.o", level) != wanted
        assert compile_with(tree / "lib", program, name, str(tree / object_of(source)), level) == wanted
        assert compile_with(tree / "lib", program, name, f"../lib/..//{object_of(source)}", level) == wanted
        assert compile_with(tree, made.by(source), source, "plain.o", level) != wanted
        beside = [program, level, "-fstack-usage", "-c", source, "-o", object_of(source)]  # makes more than an object
        subprocess.run(beside, cwd=tree, check=True, capture_output=True)
        assert code(tree / object_of(source)) == wanted
        seen.add(wanted)
    assert len(seen) == len(names)
    wanted = code(made.dataset.parent / "objects" / "lib" / "b.o")
    assert compile_with(tree, made.wrapped / "bin" / "clang", "lib/b.c", AGAIN) == wanted


def test_a_build_folder_may_have_another_name(llvm22: Llvm, probed: Path, tmp_path: Path) -> None:
    for names, root in (
        (("build/lib/a.o", "build/app/a.o"), "build/"),
        (("build/lib/a.o", "build/a.o"), ""),  # too little is left
        (("build/lib/a.o", "built/app/a.o"), ""),
        (("b/b/lib/a.o", "b/lib/a.o"), ""),  # which of them is c/b/lib/a.o?
        (("a.o",), ""),
        ((), ""),
    ):
        assert _build_folder(names) == root
    (tmp_path / "a.c").write_text(text_of("a.c"))
    for name in ("build", "other"):
        (tmp_path / name / "app").mkdir(parents=True)
    run_checked(llvm22.clang, "-Oz", *EMBED, "-c", "a.c", "-o", "build/app/a.o", cwd=tmp_path)
    extract_corpus([tmp_path], tmp_path / "corpus", jobs=1)
    how: dict[str, Any] = {"compiler": llvm22.clang, "cache": shutil.copytree(probed, tmp_path / "cache")}
    traced = {**how, "policy": "random:0.5", "jobs": 1, "keep_objects": tmp_path / "objects"}
    trace_corpus(tmp_path / "corpus", tmp_path / "dataset", **traced)
    wrapped = wrap_toolchain(tmp_path / "dataset", tmp_path / "wrapped", **how).wrapped.clang
    wanted = code(tmp_path / "objects/build/app/a.o")
    assert compile_with(tmp_path, wrapped, "a.c", "a.o") != wanted
    for name in ("build", "other"):
        assert compile_with(tmp_path, wrapped, "a.c", f"{name}/app/a.o") == wanted


def test_what_is_new_is_decided_otherwise(made: Made, tmp_path: Path) -> None:
    tree = shutil.copytree(made.tree, tmp_path / "tree")
    for source, program in (("lib/a.cpp", "clang++"), ("lib/b.c", "clang")):
        (tree / source).write_text(text_of(source) + FRESH)
        wanted = made.replayed(tree, source, tmp_path)
        found = compile_with(tree, made.wrapped / "bin" / program, source, object_of(source))
        assert found == wanted
        assert found != compile_with(tree, made.by(source), source, "plain.o")
    plain = compile_with(tree, made.llvm.clangxx, "new.cpp", "plain.o")
    assert compile_with(tree, made.wrapped / "bin" / "clang++", "new.cpp", "new.o") == plain


def test_a_learned_policy_decides_otherwise_in_its_languages(made: Made, tmp_path: Path) -> None:
    always = LearnedPolicy(
        "always-1.0", "inlining", (TensorSpec("cost_estimate"),), Rule(1.0, (0.0,)), languages=("C++",)
    )
    always.save(tmp_path / "always")
    how = {"compiler": made.llvm.clang, "cache": made.cache}
    both = wrap_toolchain(made.dataset, tmp_path / "both", otherwise=tmp_path / "always", **how).wrapped  # type: ignore[arg-type]
    assert both.policy == "dataset, else always-1.0"
    alone = wrap_toolchain(tmp_path / "always", tmp_path / "alone", **how).wrapped.clang  # type: ignore[arg-type]
    tree = shutil.copytree(made.tree, tmp_path / "tree")
    for source in KNOWN:
        program = both.output / "bin" / ("clang++" if source.endswith("cpp") else "clang")
        wanted = code(made.dataset.parent / "objects" / object_of(source))
        assert compile_with(tree, program, source, object_of(source), LEVELS.get(source, "-Oz")) == wanted
    (tree / "new.c").write_text(text_of("new.c"))
    by_policy = compile_with(tree, alone.with_name("clang++"), "new.cpp", "new.o")
    plain = compile_with(tree, made.llvm.clangxx, "new.cpp", "new.o")
    assert compile_with(tree, both.clang.with_name("clang++"), "new.cpp", "new.o") == by_policy != plain
    plain = compile_with(tree, made.llvm.clang, "new.c", "new.o")
    assert compile_with(tree, both.clang, "new.c", "new.o") == plain
    # What is new in C, in a module that is known, is LLVM's.
    (tree / "lib/b.c").write_text(text_of("lib/b.c") + FRESH)
    assert compile_with(tree, both.clang, "lib/b.c", "lib/b.o") == made.replayed(tree, "lib/b.c", tmp_path)


def test_damaged_decisions_give_plain_objects(made: Made, tmp_path: Path) -> None:
    moved = shutil.copytree(made.wrapped, tmp_path / "moved", symlinks=True)
    tree = shutil.copytree(made.tree, tmp_path / "tree")
    program, source = moved / "bin" / "clang++", "lib/a.cpp"
    wanted = compile_with(tree, program, source, "lib/a.o")
    assert wanted == code(made.dataset.parent / "objects" / "lib/a.o")
    plain = compile_with(tree, made.llvm.clangxx, source, "plain.o")
    table = moved / "decisions.bin"
    whole = table.read_bytes()
    # Around each word of the beginning, and of the last ones.
    ends = (len(whole) - distance for distance in (17, 16, 15, 9, 8, 7, 1))
    sizes = {0, 1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, *ends, *random.Random(1).sample(range(len(whole)), 4)}
    objects = set()
    for data in (None, *(whole[:size] for size in sorted(sizes)), whole + bytes(8), b"x" + whole[1:]):
        table.unlink(missing_ok=True)
        if data is not None:
            table.write_bytes(data)
        words = (program, "-Oz", "-c", source, "-o", "lib/a.o")
        done = subprocess.run(words, cwd=tree, check=True, capture_output=True, text=True)
        said = "its decisions, decisions.bin, cannot be read; compiled without it"
        assert done.stderr == f"mlgo-corpus: policy dataset, else default: {said}\n"
        objects.add((tree / "lib/a.o").read_bytes())
    assert len(objects) == 1
    assert code(tree / "lib/a.o") == plain
    # Wrong places of decisions, and wrong decisions.
    modules, _ = struct.unpack_from("=QQ", whole, 16)
    for at in range(32, 32 + 24 * modules, 8):
        table.write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
        subprocess.run(words, cwd=tree, check=True, capture_output=True)
    begin = 32 + 24 * modules
    others = (word ^ 1 for (word,) in struct.iter_unpack("=Q", whole[begin:]))
    table.write_bytes(whole[:begin] + b"".join(struct.pack("=Q", word) for word in others))
    assert compile_with(tree, program, source, "lib/a.o") not in (wanted, plain)


def test_what_has_no_object_of_its_own_is_told(made: Made, tmp_path: Path) -> None:
    """A member of an archive, and a source that is compiled and linked at once, are never met again."""
    objects = tmp_path / "objects"
    objects.mkdir()
    run_checked("ar", "rc", objects / "libx.a", object_of("lib/a.cpp"), cwd=made.tree)
    dataset, said = tmp_path / "dataset", []
    for code in (2, 0):
        if not code:
            shutil.copy(made.tree / "lib/b.o", objects)
        extract_corpus([objects], tmp_path / "corpus", jobs=1, force=True)
        how = {"policy": "random:0.5", "compiler": made.llvm.clang, "jobs": 1, "cache": made.cache, "force": True}
        trace_corpus(tmp_path / "corpus", dataset, **how)  # type: ignore[arg-type]
        words = [
            "toolchain",
            "wrap",
            "--policy",
            dataset,
            "--compiler",
            made.llvm.clang,
            "--output",
            tmp_path / "clang",
        ]
        result = CliRunner().invoke(app, [str(word) for word in words], env={"MLGO_CORPUS_CACHE": str(made.cache)})
        assert result.exit_code == code
        said.append(" ".join(result.output.split()))
    assert "no object has the name of one of its modules" in said[0]
    rows = {item.module: item.rows for item in open_rows(dataset).modules}
    assert set(rows) == {"b.o", "libx.a/a.o"}
    of = f"{rows['b.o']} decisions of 1 module"
    assert (
        f"{of} are made again where objects have the same path, such as b.o not those of 1 module: members" in said[1]
    )
    assert "all else is decided by LLVM; nothing is decided with -flto" in said[1]


def test_the_table_has_the_keys_of_replays(made: Made) -> None:
    def stir(found: int, word: int) -> int:
        found = (found ^ word) * 0x9E3779B97F4A7C15 % (1 << 64)
        return found ^ found >> 32

    rows = open_rows(made.dataset)
    header = rows.header
    features = tuple(spec for spec in stable_features(header) if spec.name != "caller_conditionally_executed_blocks")
    table = decision_table(made.dataset, ["caller_conditionally_executed_blocks"])
    assert table.features == tuple(spec.name for spec in features)
    assert (len(table.modules), table.decisions) == (3, sum(item.rows for item in rows.modules))
    words = struct.unpack(f"={len(table.data) // 8}Q", table.data)
    paths = len(table.modules) + 2  # two of them are those of an object that is the same, with %XX and without
    assert (table.data[:16], words[2:4]) == (table.digest.encode(), (paths, table.decisions))
    index = [words[at : at + 3] for at in range(4, 4 + 3 * paths, 3)]
    assert index == sorted(index)
    names = [spec.name for spec in header.features]
    found = []
    for item in rows.modules:
        key, wanted = key_maker(header, features), []
        for _, batch in rows.iter_batches(names, item.first, item.first + item.rows):
            for row in batch.to_pylist():
                stable, number = key(struct.pack(f"={len(names)}q", *row.values()))
                hashed = 0
                for (word,) in struct.iter_unpack("=Q", stable):
                    hashed = stir(hashed, word)
                wanted.append(stir(hashed, number) & ~1 | row["inlining_decision"])
        found.append(sorted(wanted))
    begin, places = 4 + 3 * paths, {entry[1:] for entry in index}
    assert sorted(found) == sorted(list(words[begin + first : begin + first + count]) for first, count in places)


def test_a_dataset_that_says_nonsense_of_itself(made: Made, tmp_path: Path) -> None:
    dataset = shutil.copytree(made.dataset, tmp_path / "dataset")
    note = json.loads((dataset / "dataset.json").read_text())
    argv = ["-ml-advisor-size-increase-threshold=1.2.3", "-mllvm", "-ml-advisor-size-increase-threshold=.", 7]
    for said in (
        {"also": 5, "start": [1], "policy": None},
        {"argv": argv},
        {"argv": 3},
        {"duplicates": {"\ud800": "lib/b.o", "a": 5}},
    ):
        (dataset / "dataset.json").write_text(json.dumps({**note, **said}))
        wrapped = wrap_toolchain(
            dataset, tmp_path / "clang", compiler=made.llvm.clang, cache=made.cache, force=True
        ).wrapped
        compile_with(made.tree, wrapped.clang, "lib/b.c", "lib/b.o")
    for compiler in (None, 3):
        (dataset / "dataset.json").write_text(json.dumps({**note, "compiler": compiler}))
        with pytest.raises(UsageError, match="found with"):
            wrap_toolchain(dataset, tmp_path / "no", compiler=made.llvm.clang, cache=made.cache)


def test_what_cannot_be_wrapped(made: Made, llvm19: Llvm, llvm22: Llvm, tmp_path: Path) -> None:
    other = llvm22 if made.llvm.version == 19 else llvm19
    for policy, otherwise, compiler, said in (
        (
            made.dataset,
            None,
            other,
            f"found with .* {made.llvm.version}.*, and LLVM {other.version}.* asks other questions",
        ),
        (made.dataset, "never", made.llvm, "never: not a learned policy, and no other goes into"),
        ("inlining-1.0", "default", made.llvm, "only a dataset leaves something to decide"),
    ):
        with pytest.raises(UsageError, match=said):
            wrap_toolchain(policy, tmp_path / "no", otherwise=otherwise, compiler=compiler.clang, cache=made.cache)
        assert not (tmp_path / "no").exists()
