"""``mlgo-corpus build``: real builds, compared with the same build done by hand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Corpus, build_corpus
from mlgo_corpus.compilers.find import find_zig
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.buildfiles import parse_compile_commands
from mlgo_corpus.runs.builds.shims import USUAL_COMPILERS
from tests.conftest import DATA, EMBED, PACKAGE_ROOT, Llvm, ignoring, run_checked
from tests.forked import run_cli, start

MAKEFILE = """\
.PHONY: all sub
all: prog twice.o sub
prog: main.o libparts.a
\t$(CC) -o $@ main.o -L. -lparts
libparts.a: gone.o stripped.o
\t$(AR) rcs $@ $^ && rm gone.o
main.o: main.c
\t$(CC) -O2 -g '-DGREETING="hello, world"' -c $< -o $@
gone.o: gone.c
\t$(CC) -O1 -c gone.c
stripped.o: stripped.c
\t$(CC) -O1 -g -c stripped.c
\tstrip -g $@
twice.o: twice.c
\t$(CC) -O0 -c twice.c
\t$(CC) -O3 -c twice.c
sub:
\t$(MAKE) -C sub
"""
SUB_MAKEFILE = """\
all: twice.o together asm.o
twice.o: ../twice.c
\tgcc -O2 -c $< -o $@
together: one.c two.cc
\tg++ -O1 -x c one.c -x c++ two.cc -o $@
asm.o: asm.S
\tcc -c asm.S
"""
SOURCES = {
    "Makefile": MAKEFILE,
    "main.c": "int gone(int), stripped(int);\n"
    "int main(int count, char **words) { return gone(count) + stripped(GREETING[0]); }\n",
    "gone.c": "int gone(int x) { return x * 3; }\n",
    "stripped.c": "int stripped(int x) { return x - 1; }\n",
    "twice.c": "static int half(int x) { return x / 2; }\nint twice(int x) { return 4 * half(x); }\n",
    "sub/Makefile": SUB_MAKEFILE,
    "sub/one.c": "int two(int); int main(void) { return two(1); }\n",
    "sub/two.cc": 'extern "C" int two(int x) { return x + 2; }\n',
    "sub/asm.S": ".globl nothing\nnothing:\n",
}


def write(folder: Path, sources: dict[str, str]) -> None:
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probed: Path) -> None:
    shutil.copytree(probed, tmp_path / "cache")
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def command(*words: str | Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "mlgo_corpus.cli.main", "build", *map(str, words))


def environment() -> dict[str, str]:
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    return {
        name: value for name, value in env.items() if name not in ("CC", "CXX", "MAKEFLAGS", "MLGO_CORPUS_COMPILER")
    }


def build(folder: Path, llvm: Llvm, *words: str | Path, corpus: str = "../corpus") -> subprocess.CompletedProcess[str]:
    options = ("--output", corpus, "--compiler", llvm.clang, *words)
    return run_cli("build", *options, cwd=folder, env=environment(), timeout=240)


def build_json(folder: Path, llvm: Llvm, *words: str | Path, status: int = 0) -> dict[str, Any]:
    done = build(folder, llvm, "--json", *words)
    assert done.returncode == status, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def rows(corpus: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(corpus / "modules.parquet").to_pylist()
    return found


def contents(corpus: Path) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    return {module.name: (module.bitcode(), module.command()) for module in Corpus.open(corpus)}


def embedded(llvm: Llvm, item: Path, tmp_path: Path) -> bytes:
    """What llvm-objcopy finds in an object."""
    section = tmp_path / "section.bc"
    run_checked(llvm.objcopy, f"--dump-section=.llvmbc={section}", item, tmp_path / "rest.o")
    return section.read_bytes()


def test_a_makefile_that_deletes_strips_and_overwrites(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, SOURCES)
    report = build_json(work, llvm22, "--", "make", "-j4")
    assert (report["build_exit_code"], report["compiles"], report["failed_compiles"], report["checks"]) == (0, 8, 0, 0)
    assert report["leftovers"] == []
    corpus = tmp_path / "corpus"
    found = contents(corpus)
    assert set(found) == {
        "main.o", "gone.o", "stripped.o", "twice.o", "twice~2.o", "sub/twice.o", "sub/together/one.c",
        "sub/together/two.cc",
    }  # fmt: skip
    assert {(row["source"], row["reason"]) for row in rows(corpus) if row["status"] != "ok"} == {
        ("sub/asm.o", "no_bitcode")
    }
    # Only what the build no longer has is kept: deleted, stripped, overwritten.
    assert report["kept_objects"] == 3
    assert len(list((corpus / ".mlgo-corpus" / "build" / "objects").glob("*/*"))) == 3
    assert not (work / "gone.o").exists()

    by_hand = {
        "main.o": ("main.c", "-O2", "-g", '-DGREETING="hello, world"'),
        "gone.o": ("gone.c", "-O1"),
        "stripped.o": ("stripped.c", "-O1", "-g"),
        "twice.o": ("twice.c", "-O3"),
        "twice~2.o": ("twice.c", "-O0"),
    }
    for name, (source, *flags) in by_hand.items():
        run_checked(llvm22.clang, *EMBED, *flags, "-c", source, "-o", tmp_path / "by-hand.o", cwd=work)
        assert embedded(llvm22, tmp_path / "by-hand.o", tmp_path) == found[name][0], name
    run_checked(llvm22.clang, *EMBED, "-O2", "-c", "../twice.c", "-o", tmp_path / "by-hand.o", cwd=work / "sub")
    assert embedded(llvm22, tmp_path / "by-hand.o", tmp_path) == found["sub/twice.o"][0]
    assert '-DGREETING="hello, world"' not in found["main.o"][1]
    assert 'GREETING="hello, world"' in found["main.o"][1]


def test_the_compilation_database(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, SOURCES)
    report = build_json(work, llvm22, "--", "make")
    path = work / report["compile_commands"]
    assert path.samefile(tmp_path / "corpus" / "compile_commands.json")
    entries = json.loads(path.read_text())
    main = next(entry for entry in entries if entry["output"] == "main.o")
    greeting = '-DGREETING="hello, world"'
    assert main == {
        "directory": str(work),
        "arguments": [llvm22.clang, "-O2", "-g", greeting, "-c", "main.c", "-o", "main.o"],
        "file": "main.c",
        "output": "main.o",
    }
    assert sorted((entry["file"], entry["output"]) for entry in entries) == [
        ("../twice.c", "twice.o"), ("asm.S", "asm.o"), ("gone.c", "gone.o"), ("main.c", "main.o"),
        ("one.c", "together"), ("stripped.c", "stripped.o"), ("twice.c", "twice.o"), ("twice.c", "twice.o"),
        ("two.cc", "together"),
    ]  # fmt: skip
    drivers = {entry["file"]: entry["arguments"][0] for entry in entries}
    assert drivers["one.c"] == drivers["two.cc"] == llvm22.clangxx
    # As other tools read it: every command makes its object again.
    for entry, command in zip(entries, parse_compile_commands(path.read_bytes()), strict=True):
        assert (command.problem, command.output) == (None, entry["output"])
        (Path(entry["directory"]) / entry["output"]).unlink(missing_ok=True)
        run_checked(*entry["arguments"], cwd=Path(entry["directory"]))
        assert (Path(entry["directory"]) / entry["output"]).exists()


def test_a_failed_build_gives_its_exit_code_and_what_it_compiled(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {**SOURCES, "gone.c": "int gone(int x) { return y; }\n"})
    done = build(work, llvm22, "--", "make", "-k", "-j2")
    assert done.returncode == 2  # make's
    assert "use of undeclared identifier 'y'" in done.stderr
    assert "1 of them failed" in done.stdout
    assert "hint: the build failed (exit code 2); what it compiled until then is in the corpus" in done.stderr
    assert {"main.o", "stripped.o", "sub/twice.o"} <= set(Corpus.open(tmp_path / "corpus").names)
    failed = [entry for entry in json.loads((tmp_path / "corpus" / "compile_commands.json").read_text())
              if entry["output"] == "gone.o"]  # fmt: skip
    assert [entry["arguments"][1:] for entry in failed] == [["-O1", "-c", "gone.c"]]

    write(work, {"gone.c": SOURCES["gone.c"]})
    assert build(work, llvm22, "--", "make").returncode == 0
    assert "gone.o" in Corpus.open(tmp_path / "corpus").names
    entries = json.loads((tmp_path / "corpus" / "compile_commands.json").read_text())
    assert [entry["output"] for entry in entries].count("gone.o") == 1


def test_a_build_that_compiled_nothing_does_not_block_the_next(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"sub/a.c": "int a(void) { return 1; }\n", "sub/wrong.c": "int a(void) { return x; }\n"})
    assert build(work, llvm22, "--", "make").returncode == 2  # the wrong folder
    assert build(work / "sub", llvm22, "--", "cc", "-c", "wrong.c", corpus="../../corpus").returncode == 1
    assert build(work, llvm22, "--keep-checks", "--", "true").returncode == 1
    report = build_json(work, llvm22, "--build-dir", "sub", "--", "cc", "-c", "sub/a.c", "-o", "sub/a.o")
    assert report["extract"]["modules"] == 1
    entries = json.loads((tmp_path / "corpus" / "compile_commands.json").read_text())
    assert [entry["output"] for entry in entries] == ["sub/a.o"]
    # Now there is something to lose.
    refused = build(work, llvm22, "--", "touch", "ran")
    assert "was extracted from other inputs, or with another --build-dir; name another --output" in refused.stderr
    assert (refused.returncode, (work / "ran").exists()) == (2, False)


def test_objects_that_an_ended_build_left_are_not_forgotten(llvm22: Llvm, work: Path) -> None:
    write(work, {"first.c": "int first(void) { return 1; }\n"})
    script = "cc -c first.c; kill -TERM $PPID; sleep 600"
    assert build(work, llvm22, "--", "sh", "-c", script).returncode == 128 + signal.SIGTERM
    assert build(work, llvm22, "--keep-checks", "--", "true").returncode == 2
    assert build_json(work, llvm22, "--", "true")["extract"]["modules"] == 1


def test_a_partial_rebuild_brings_the_corpus_up_to_date(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, SOURCES)
    build_json(work, llvm22, "--", "make")
    before = contents(tmp_path / "corpus")

    write(work, {"stripped.c": "int stripped(int x) { return x - 10; }\n"})
    past = time.time() - 5
    for name in ("main.o", "libparts.a", "stripped.o"):
        os.utime(work / name, (past, past))
    os.utime(work / "main.c", (past - 5, past - 5))
    report = build_json(work, llvm22, "--", "make", "stripped.o")
    assert (report["compiles"], report["extract"]["objects"]) == (1, 8)
    after = contents(tmp_path / "corpus")
    assert {name for name in before if before[name] != after[name]} == {"stripped.o"}
    assert set(before) == set(after)

    # The same as from nothing, and as many times as one likes.
    fresh = tmp_path / "fresh"
    assert build(work, llvm22, "--", "make", "-B", corpus=str(fresh)).returncode == 0
    assert contents(fresh) == after
    for name in ("modules.parquet", "corpus_description.json", "compile_commands.json"):
        assert (fresh / name).read_bytes() == (tmp_path / "corpus" / name).read_bytes(), name


def test_what_is_deleted_between_builds_leaves_the_corpus(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, SOURCES)
    build_json(work, llvm22, "--", "make")
    (work / "main.o").unlink()
    done = build(work, llvm22, "--", "true")
    assert done.returncode == 0
    assert "1 object of an earlier build is gone, and no longer in the corpus" in done.stderr
    assert "main.o" not in Corpus.open(tmp_path / "corpus").names
    assert "gone.o" in Corpus.open(tmp_path / "corpus").names  # kept since its compile
    report = build_json(work, llvm22, "--force", "--", "cc", "-c", "main.c", '-DGREETING="x"')
    assert report["extract"]["modules"] == 1
    assert Corpus.open(tmp_path / "corpus").names == ("main.o",)


def test_a_tree_that_is_partly_up_to_date(llvm22: Llvm, work: Path, gcc: str) -> None:
    makefile = "CFLAGS = -Oz\nOBJECTS = one.o two.o three.o\nprog: main.o libparts.a ; cc -o $@ main.o -L. -lparts\n"
    write(work, {"Makefile": makefile + "libparts.a: $(OBJECTS) ; ar rcs $@ $?\n"})
    for name in ("one", "two", "three"):
        write(work, {f"{name}.c": f"int {name}(void) {{ return 1; }}\n"})
    write(work, {"main.c": "int main(void) { return 0; }\n"})
    run_checked("make", f"CC={gcc}", cwd=work)
    past = time.time() - 5
    for path in work.iterdir():
        os.utime(path, (past, past))
    (work / "main.c").touch()
    done = build(work, llvm22, "--", "make")
    assert done.returncode == 0
    lack = "the corpus lacks them; clean first (make clean), and build again"
    assert done.stderr == (
        f"hint: 3 objects were linked or archived that an earlier build left, such as libparts.a(one.o): {lack}\n"
    )
    (work / "one.c").touch()
    report = build_json(work, llvm22, "--", "make")
    assert report["extract"]["modules"] == 2
    assert [os.path.basename(name) for name in report["leftovers"]] == ["libparts.a(two.o)", "libparts.a(three.o)"]
    assert build_json(work, llvm22, "--", "make", "-B")["leftovers"] == []
    (work / "one.c").touch()
    assert build_json(work, llvm22, "--", "make")["leftovers"] == []  # the corpus has the others


TWO = {
    "Makefile": "CFLAGS = -Oz\nprog: one.o two.o\n\t$(CC) -o $@ $^\nclean: ; rm -f *.o prog\n",
    "one.c": "int two(void);\nint main(void) { return two(); }\n",
    "two.c": "int two(void) { return 0; }\n",
}


def test_what_another_compiler_makes_anew_stays_as_it_was(llvm22: Llvm, work: Path, tmp_path: Path, gcc: str) -> None:
    write(work, TWO)
    build_json(work, llvm22, "--", "make")
    before = contents(tmp_path / "corpus")
    run_checked("make", "-B", f"CC={gcc}", cwd=work)
    done = build(work, llvm22, "--", "make")
    assert done.returncode == 0
    assert (
        "hint: 2 objects of earlier builds were made anew by something else since: the corpus has what was compiled "
        "before; clean first (make clean), and build again\n" in done.stderr
    )
    assert contents(tmp_path / "corpus") == before
    write(work, {"two.c": "int two(void) { return 3; }\n"})
    report = build_json(work, llvm22, "--", "make", "CC=cc", "-W", "two.c")
    assert (report["compiles"], report["replaced_objects"], report["extract"]["unchanged"]) == (1, 1, 1)
    after = contents(tmp_path / "corpus")
    assert {name for name in before if before[name] != after[name]} == {"two.o"}
    run_checked(llvm22.clang, "-O1", *EMBED, "-c", "one.c", cwd=work)
    assert build_json(work, llvm22, "--", "true")["extract"]["unchanged"] == 2
    (tmp_path / "corpus" / "one.o.bc").write_bytes(b"")  # what another compiler made is not taken for it
    assert build_json(work, llvm22, "--", "true", status=1)["extract"]["counts"] == {"ok": 1, "missing": 1}
    report = build_json(work, llvm22, "--", "make", "-B")
    assert (report["replaced_objects"], report["hints"]) == (0, [])
    assert contents(tmp_path / "corpus") == after


def test_a_parameter_file_with_a_backslash_in_quotes(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"one.c": "char one[] = TEXT;\n", "flags.rsp": r'-Oz "-DTEXT=\"a b\"" -c one.c -o "one.o"' + "\n"})
    assert build_json(work, llvm22, "--", "cc", "@flags.rsp")["extract"]["counts"] == {"ok": 1}
    assert Corpus.open(tmp_path / "corpus").names == ("one.o",)


def test_what_is_gone_is_told_as_it_is(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, TWO)
    build_json(work, llvm22, "--", "make")
    before = contents(tmp_path / "corpus")
    done = build(work, llvm22, "--", "make", "clean")
    assert "hint: 2 objects of earlier builds are gone, and the corpus is as it was\n" in done.stderr
    assert "compiles it" not in done.stderr
    assert contents(tmp_path / "corpus") == before
    assert json.loads((tmp_path / "corpus" / "compile_commands.json").read_text())


def test_objects_of_a_compiler_that_is_called_by_its_path(llvm22: Llvm, work: Path, gcc: str) -> None:
    write(work, {**TWO, "Makefile": f"CXX = {gcc}\n{TWO['Makefile']}two.o: two.c\n\t$(CXX) $(CFLAGS) -c two.c\n"})
    done = build(work, llvm22, "--", "make")
    assert done.returncode == 0
    assert (
        "hint: 1 object was linked or archived that no compile made that could be seen, such as two.o: the corpus "
        "lacks it. Is a compiler called by its path? This compiles all: "
        f"mlgo-corpus build --output ../corpus --compiler {llvm22.clang} -- sh -c "
        "'make clean && make CC=cc CXX=c++'\n" in done.stderr
    )
    (work / "a.s").write_text('.ident "clang version 22"\n')
    made = "cc -c a.s && cc -flto -c two.c && cc -flto -fuse-ld=lld -fPIC -shared two.o a.o -o lib.so && rm two.o"
    assert build_json(work, llvm22, "--", "sh", "-c", made)["unseen"] == []
    report = build_json(work, llvm22, "--", "make", "CXX=cc", "-B")
    assert (report["unseen"], report["extract"]["modules"], report["hints"]) == ([], 2, [])


def test_a_build_in_a_folder_that_is_deleted_afterwards(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    script = "mkdir temporary && cd temporary && cp ../../*.c . && cc -c one.c && cc -c two.c && rm -r ../temporary"
    write(tmp_path, {"one.c": "int one(void) { return 1; }\n", "two.c": "int two(void) { return 2; }\n"})
    report = build_json(work, llvm22, "--", "sh", "-c", script)
    assert (report["kept_objects"], report["checks"]) == (2, 0)
    assert Corpus.open(tmp_path / "corpus").names == ("temporary/one.o", "temporary/two.o")


def test_what_meson_tries_in_a_folder_of_its_own_is_a_check(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    tried = "mkdir ../tried && cp one.cpp ../tried/testfile.cpp && cd ../tried"
    compiled = "c++ $PWD/testfile.cpp -o $PWD/output.obj -c -std=c++20 && rm -r ../tried"
    write(work, {"one.cpp": "int one(void) { return 1; }\n"})
    report = build_json(work, llvm22, "--", "sh", "-c", f"({tried} && {compiled}) && c++ -c one.cpp")
    assert (report["compiles"], report["checks"]) == (1, 1)
    assert Corpus.open(tmp_path / "corpus").names == ("one.o",)


def test_a_command_that_only_configures(llvm22: Llvm, work: Path) -> None:
    write(work, {"configure": "echo 'int main(void) { return 0; }' >conftest.c; cc -c conftest.c; rm conftest.*\n"})
    done = build(work, llvm22, "--", "sh", "./configure")
    assert done.returncode == 1
    assert done.stderr == (
        "hint: only checks were compiled: if this only configures, put the build behind it, such as: "
        "mlgo-corpus build ... -- sh -c 'sh ./configure && make'\n"
    )


def test_what_goes_into_a_product_is_no_check(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    script = (
        "cp one.c y.tab.c; cc -c y.tab.c; rm y.tab.c; mv y.tab.o one.o; cp two.c p.c; cc -c p.c; ar rc libp.a p.o; "
        "rm p.c p.o; cc -c conftest_util.c; cc -shared one.o conftest_util.o libp.a -o lib.so"
    )
    write(work, {f"{name}.c": f"int {name}(void) {{ return 1; }}\n" for name in ("one", "two", "conftest_util")})
    report = build_json(work, llvm22, "--", "sh", "-c", script)
    assert (report["compiles"], report["checks"], report["unseen"]) == (3, 0, [])
    assert Corpus.open(tmp_path / "corpus").names == ("conftest_util.o", "p.o", "y.tab.o")
    assert (report["links"], report["lost_links"]) == (2, None)
    (tmp_path / "corpus/links.jsonl").write_text("{}\n")
    report = build_json(work, llvm22, "--", "sh", "-c", "cc -c one.c && cc -shared one.o -o other.so")
    assert (report["links"], report["hints"][0]) == (
        1,
        "../corpus/links.jsonl: line 1: expected a record of links, mlgo-links-2; the record has this build's links "
        "only: clean, and build again, for all",
    )


def test_a_build_within_a_build(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"one.c": "int one(void) { return 1; }\n", "two.c": "int two(void) { return 2; }\n"})
    inner = f"{sys.executable} -m mlgo_corpus.cli.main build --json --output ../inner -- make one.o"
    report = build_json(work, llvm22, "--", "sh", "-c", f"{inner} >../inner.json && cc -c two.c")
    assert (report["compiles"], report["failed_compiles"]) == (2, 0)
    assert json.loads((tmp_path / "inner.json").read_text())["compiles"] == 1
    assert contents(tmp_path / "corpus").keys() == {"one.o", "two.o"}
    assert contents(tmp_path / "inner") == {"one.o": contents(tmp_path / "corpus")["one.o"]}


def test_an_object_on_stdout_is_none_that_was_lost(llvm22: Llvm, work: Path) -> None:
    write(work, {"one.c": "int one(void) { return 1; }\n", "two.c": "int two(void) { return 2; }\n"})
    report = build_json(work, llvm22, "--", "sh", "-c", "cc -O1 -c one.c -o - >one.o; cc -O1 -c two.c")
    assert (report["compiles"], report["failed_compiles"], report["hints"]) == (1, 0, [])


def test_words_of_a_parameter_file_that_a_shell_cannot_split(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"my file.c": "int x = sizeof(X);\n", "d i r/s p.c": "int y = sizeof(X);\n"})
    write(
        work, {"one": '-c "my file.c" -DX="\\"a\\"" -O2\n', "two": '-c "d i r/s p.c" -DX="\\"a\\"" -o "d i r/s p.o"\n'}
    )
    report = build_json(
        work, llvm22, "--", "sh", "-c", "cc @one; cc @two; : >none; cc -x c @none -DX=3 -c 'my file.c' -o 3.o"
    )
    assert (report["compiles"], report["checks"], report["failed_compiles"]) == (3, 0, 0)
    entries = json.loads((tmp_path / "corpus" / "compile_commands.json").read_text())
    found = {entry["output"]: entry["file"] for entry in entries}
    assert found == {"my file.o": "my file.c", "d i r/s p.o": "d i r/s p.c", "3.o": "my file.c"}


def test_what_a_hand_made_configure_tries_is_left_out(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    kbuild = "cc -c -x c /dev/null -o zx.o; rm zx.o"
    script = (
        "echo 'int main(void) { return 0; }' >ztest1.c; cc -c ztest1.c; cc ztest1.c -o ztest1; rm ztest1*; "
        f"{kbuild}; cc -c real.c"
    )
    write(work, {"real.c": "int real(void) { return 1; }\n"})
    report = build_json(work, llvm22, "--", "sh", "-c", script)
    assert (report["compiles"], report["checks"], report["extract"]["modules"]) == (1, 3, 1)
    refused = build(work, llvm22, "--keep-checks", "--", "sh", "-c", script)
    assert refused.returncode == 2
    assert "was extracted without --keep-checks" in refused.stderr
    report = build_json(work, llvm22, "--force", "--keep-checks", "--", "sh", "-c", script)
    assert (report["compiles"], report["checks"], report["extract"]["modules"]) == (4, 0, 4)


def unpacked_autotools(folder: Path) -> Path:
    with tarfile.open(DATA / "autotools.tar.xz") as tar:
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, **options)  # noqa: S202 - the project's own archive
    return folder / "shapes-1.0"


def test_configure_and_libtool(llvm22: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIG_SHELL", "/bin/sh")  # often quicker to start than what configure would look for
    project = unpacked_autotools(tmp_path)
    script = "./configure -C >configure.log && make -j2 >make.log && ./shapes"
    done = build(project, llvm22, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4.00 3.14 8\n")
    checks = re.search(r"(\d+) checks of the compiler left out", done.stdout)
    assert checks is not None
    assert int(checks[1]) > 30
    found = contents(tmp_path / "corpus")
    # libtool compiles what goes into a library twice.
    assert set(found) == {"lib/.libs/square.o", "lib/.libs/circle.o", "lib/square.o", "lib/circle.o", "src/main.o"}

    # What configure found out is what it finds without us, and what it makes of it is the same, byte for byte.
    (tmp_path / "by-hand").mkdir()
    by_hand = unpacked_autotools(tmp_path / "by-hand")
    tools = (f"CC={llvm22.clang}", f"CXX={llvm22.clangxx}", f"AR={llvm22.ar}", f"NM={llvm22.nm}")
    run_checked("./configure", *tools, cwd=by_hand)
    flags = f"-g -O2 {' '.join(EMBED)}"
    run_checked("make", f"CFLAGS={flags}", f"CXXFLAGS={flags} -ffile-compilation-dir={project}", cwd=by_hand)
    assert (project / "config.h").read_text() == (by_hand / "config.h").read_text()
    for name in found:
        ours, theirs = tmp_path / "ours.ll", tmp_path / "theirs.ll"
        (tmp_path / "ours.bc").write_bytes(found[name][0])
        (tmp_path / "theirs.bc").write_bytes(embedded(llvm22, by_hand / name, tmp_path))
        for text in (ours, theirs):
            run_checked(llvm22.dis, text.with_suffix(".bc"), "-o", text)
        plain = [
            re.sub(r'directory: "[^"]*"|; ModuleID.*', "", path.read_text()).replace(str(by_hand), str(project))
            for path in (ours, theirs)
        ]
        assert plain[0] == plain[1], name

    # Makefiles remember the shims; outside of a build those are the compiler, and in the next one they record again.
    # They are not in the corpus: it may move.
    (project / "src" / "main.o").unlink()
    (tmp_path / "corpus").rename(tmp_path / "moved")
    run_checked("make", cwd=project)
    (tmp_path / "moved").rename(tmp_path / "corpus")
    assert "llvmbc" not in run_checked(llvm22.readelf, "-S", project / "src" / "main.o")
    (project / "src" / "main.o").unlink()
    again = build_json(project, llvm22, "--", "make")
    assert (again["compiles"], again["leftovers"]) == (1, [])
    assert contents(tmp_path / "corpus") == found


def find_tool(name: str) -> str:
    """Find what the ``dev`` extra brings, or the system's."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or pytest.skip(f"{name} is not installed")


CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.16)
project(shapes C CXX)
include(CheckIncludeFile)
include(CheckCSourceCompiles)
check_include_file(unistd.h HAVE_UNISTD_H)
check_c_source_compiles("int main(void) { return undeclared; }" HAVE_UNDECLARED)
add_library(parts STATIC "lib/the square.c" lib/circle.cc)
target_compile_definitions(parts PRIVATE "NAME=\\"a b\\"")
add_executable(shapes main.c)
target_link_libraries(shapes parts)
"""
CMAKE_SOURCES = {
    "CMakeLists.txt": CMAKE_LISTS,
    "lib/the square.c": "int square(int side) { return side * side + (int)sizeof(NAME); }\n",
    "lib/circle.cc": 'extern "C" int circle(int radius) { return 3 * radius * radius; }\n',
    "main.c": "int square(int), circle(int); int main(void) { return square(2) + circle(1) == 11 ? 0 : 1; }\n",
}


def without_dependencies(words: list[str]) -> list[str]:
    rest = iter(words)
    return [word for word in rest if word != "-MD" and (word not in ("-MT", "-MF") or not next(rest))]


@pytest.mark.parametrize("generator", ["Unix Makefiles", "Ninja"])
def test_cmake(llvm22: Llvm, work: Path, tmp_path: Path, generator: str) -> None:
    cmake = find_tool("cmake")
    program = find_tool("ninja" if generator == "Ninja" else "make")
    write(work, CMAKE_SOURCES)
    options = f"-DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_MAKE_PROGRAM='{program}'"
    configure = f"'{cmake}' -G '{generator}' -B b {options} . && '{cmake}' --build b -j 2"
    done = build(work, llvm22, "--", "sh", "-c", f"{configure} && b/shapes")
    assert done.returncode == 0, done.stdout + done.stderr
    found = contents(tmp_path / "corpus")
    parts = "b/CMakeFiles/parts.dir/lib"
    assert sorted(found) == [f"{parts}/circle.cc.o", f"{parts}/the_square.c.o", "b/CMakeFiles/shapes.dir/main.c.o"]
    assert " checks of the compiler left out" in done.stdout
    # CMake's own record of its commands, without the options for dependencies, and ours.
    theirs = {
        (entry["directory"], entry["file"], *shlex.split(entry["command"])[1:])
        for entry in json.loads((work / "b" / "compile_commands.json").read_text())
    }
    ours = {
        (entry["directory"], entry["file"], *without_dependencies(entry["arguments"][1:]))
        for entry in json.loads((tmp_path / "corpus" / "compile_commands.json").read_text())
    }
    assert ours == theirs

    idle = build(work, llvm22, "--", cmake, "--build", "b")
    assert idle.returncode == 0
    again = f"mlgo-corpus build --output ../corpus --compiler {llvm22.clang} -- cmake --build b --clean-first"
    nothing = "hint: the build compiled nothing that could be seen"
    assert idle.stderr == f"{nothing}: it was up to date; this compiles it: {again}\n"
    assert contents(tmp_path / "corpus") == found
    # What was configured under us does not need the corpus.
    (tmp_path / "corpus").rename(tmp_path / "moved")
    run_checked(cmake, "--build", "b", "--clean-first", cwd=work)
    # Its compiler is that of the build that runs, not the one that it was configured with.
    program = tmp_path / "clang-of-ours"
    program.write_text(f'#!/bin/sh\nexec {llvm22.clang} "$@" -O1\n')
    program.chmod(0o755)
    argv = ("--output", "../other", "--compiler", program, "--", cmake, "--build", "b", "--clean-first")
    assert run_cli("build", *argv, cwd=work, env=environment(), timeout=240).returncode == 0
    made = contents(tmp_path / "other")
    assert sorted(made) == sorted(found)
    assert "-O1" in made["b/CMakeFiles/shapes.dir/main.c.o"][1]


def test_a_cmake_tree_that_was_configured_before(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    cmake = find_tool("cmake")
    write(work, CMAKE_SOURCES)
    run_checked(cmake, "-B", "b", f"-DCMAKE_MAKE_PROGRAM={find_tool('make')}", "-DCMAKE_BUILD_TYPE=Release", cwd=work)
    done = build(work, llvm22, "--", cmake, "--build", "b")
    assert (done.returncode, (work / "b" / "shapes").exists()) == (1, True)
    said = re.fullmatch(
        r"hint: .*: b/CMakeCache.txt names /\S+, which is called by its path; this compiles it: (.*)\n", done.stderr
    )
    assert said is not None
    configure, ours = said[1].split(" && ")
    assert ours == f"mlgo-corpus build --output ../corpus --compiler {llvm22.clang} --from b/compile_commands.json"
    run_checked(*shlex.split(configure), cwd=work)
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    report = build_json(work, llvm22, "--from", "b/compile_commands.json")
    assert (report["compiles"], report["failed_compiles"], report["extract"]["counts"]) == (3, 0, {"ok": 3})
    parts = "b/CMakeFiles/parts.dir/lib"
    found = contents(tmp_path / "corpus")
    assert sorted(found) == [f"{parts}/circle.cc.o", f"{parts}/the_square.c.o", "b/CMakeFiles/shapes.dir/main.c.o"]
    assert "-O3" in found["b/CMakeFiles/shapes.dir/main.c.o"][1]
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "corpus" / ".mlgo-corpus" / "build" / "compiled").exists()


def test_a_database_of_gcc(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(
        work,
        {
            "a.c": "static int twice(int x) { return 2 * x; }\nint a(int x) { return twice(x) + NUMBER; }\n",
            "more/b.cc": 'extern "C" int b(int x) { return x + 2; }\n',
            "loose.c": "int loose(int x) { int unused; return undeclared(x); }\n",
            "bad.c": '#include "generated.h"\n',
            "words": "-DNUMBER=3 -fno-gcse -O2\n",
            "t.S": "nothing:\n",
            "all.rsp": "-O1 -DNUMBER=7 -c ./a.c -o all.o\n",
        },
    )
    commands = {
        "a.o": "ccache gcc @words -fipa-pta -mpreferred-stack-boundary=4 -MD -MF a.d -c a.c -o a.o",
        "more/b.o": "g++ -Os -flto=auto -c more/b.cc -o more/b.o",
        "loose.o": "gcc -O1 -Wall -Werror -c loose.c -o loose.o",
        "bad.o": "gcc -c bad.c -o bad.o",
        "t.o": "gcc -c t.S -o t.o",
        "prog": "gcc -O1 a.c loose.c -DNUMBER=4 -o prog -lm",
        "arm.o": "aarch64-linux-gnu-gcc -O2 -c a.c -DNUMBER=5 -o arm.o",
        "more/there.o": "cd more && gcc -O2 -c ../a.c -DNUMBER=6 -o there.o && :",
        "all.o": "gcc @all.rsp",
        "gone.o": "gcc -O2 @gone.rsp -c a.c -o gone.o",
        "a.i": "gcc -E a.c -o a.i",
    }
    entries = [
        {
            "directory": ".",
            "file": next(
                (word.removeprefix("../") for word in text.split() if word.endswith((".c", ".cc", ".S"))), "wrong.c"
            ),
            "command": text,
        }
        for text in commands.values()
    ]
    write(work, {"compile_commands.json": json.dumps(entries)})
    before = sorted(work.rglob("*"))
    done = build(work, llvm22, "--from", ".", "--jobs", "2")
    assert done.returncode == 1
    assert "9 compiles by " in done.stdout
    assert done.stderr == (
        "hint: 2 of 9 commands failed, such as bad.c:1:10: fatal error: 'generated.h' file not found; if a file is "
        "missing that a build makes, build first\n"
        "hint: left out of the commands, because clang lacks them or they are for LTO: -fipa-pta "
        "-mpreferred-stack-boundary=4 -fno-gcse -flto=auto\n"
    )
    corpus = tmp_path / "corpus"
    assert {row["source"]: (row["status"], row["reason"], row["detail"]) for row in rows(corpus)} == {
        "a.o": ("ok", "dropped_options", "compiled without -fipa-pta -mpreferred-stack-boundary=4 -fno-gcse"),
        "more/b.o": ("ok", "dropped_options", "compiled without -flto=auto"),
        "loose.o": ("ok", "ok", ""),
        "bad.o": ("failed", "compile_failed", "bad.c:1:10: fatal error: 'generated.h' file not found"),
        "t.o": ("skipped", "no_bitcode", "assembly: not compiled"),
        "prog": ("ok", "ok", ""),
        "arm.o": ("ok", "ok", ""),
        "more/there.o": ("ok", "ok", ""),
        "all.o": ("ok", "ok", ""),
        "gone.o": ("failed", "compile_failed", "the file with its arguments cannot be read: gone.rsp"),
        "a.c": ("skipped", "no_output", "the command has -E, which makes no object"),
    }
    assert sorted(work.rglob("*")) == before
    triples = {row["source"]: row["target_triple"] for row in rows(corpus) if row["status"] == "ok"}
    assert triples["arm.o"] == "aarch64-unknown-linux-gnu"
    found = contents(corpus)
    by_hand = ("-DNUMBER=3", "-O2", "-c", "a.c", "-o", tmp_path / "by-hand.o")
    run_checked(llvm22.clang, *EMBED, *by_hand, cwd=work)
    assert embedded(llvm22, tmp_path / "by-hand.o", tmp_path) == found["a.o"][0]
    again = {entry["output"]: entry for entry in json.loads((corpus / "compile_commands.json").read_text())}
    assert set(again) == {"a.o", "more/b.o", "loose.o", "prog", "arm.o", f"{work}/more/there.o", "all.o"}
    there = again[f"{work}/more/there.o"]
    assert (there["directory"], there["file"]) == (f"{work}/more", "../a.c")
    assert there["arguments"][1:-1] == ["-O2", "../a.c", "-DNUMBER=6", "-c", "-o"]
    assert (again["all.o"]["file"], again["all.o"]["arguments"][1:3]) == ("./a.c", ["-O1", "-DNUMBER=7"])
    assert again["more/b.o"] == {
        "directory": str(work),
        "arguments": [llvm22.clangxx, "-Os", "more/b.cc", "-c", "-o", "more/b.o"],
        "file": "more/b.cc",
        "output": "more/b.o",
    }

    write(work, {"generated.h": "int bad(void) { return 1; }\n", "compile_commands.json": json.dumps(entries[3:4])})
    report = build_json(work, llvm22, "--from", ".")
    assert (report["extract"]["modules"], Corpus.open(corpus).names) == (1, ("bad.o",))


def test_an_interrupted_compile_of_a_database(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    os.mkfifo(work / "endless.h")
    write(work, {"a.c": '#include "endless.h"\n', "db.json": '[{"directory":".","file":"a.c","command":"cc -c a.c"}]'})
    words = ("build", "-o", "../corpus", "--compiler", llvm22.clang, "--from", "db.json")
    with (
        start(*words, cwd=work, env=environment(), stderr=True) as process,
        (work / "endless.h").open("w"),  # the compiler has opened it
    ):
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert said == "mlgo-corpus: interrupted; the same command compiles everything again\n"
    assert not (tmp_path / "corpus" / ".mlgo-corpus" / "build" / "compiled").exists()


def test_a_cache_that_cannot_be_written(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("a file")
    write(work, {"a.c": "int a(void) { return 1; }\n"})
    assert build_json(work, llvm22, "--", "cc", "-c", "a.c")["extract"]["modules"] == 1
    assert (tmp_path / "corpus" / ".mlgo-corpus" / "build" / "shims" / "cc").exists()


def test_a_compiler_called_by_its_path_is_hinted_at(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"a.c": "int a;\n"})
    done = build(work, llvm22, "--build-dir", ".", "--", llvm22.clang, "-c", "a.c")
    assert done.returncode == 1
    ours = f"mlgo-corpus build --output ../corpus --compiler {llvm22.clang} --build-dir ."
    assert (
        "does it call a compiler by its path? With a compile_commands.json of it, this needs no build: "
        f"{ours} --from compile_commands.json\n"
    ) in done.stderr
    write(work, {"Makefile": "all: ;\n"})
    done = build(work, llvm22, "--build-dir", ".", "--", "make", "-n")
    assert f"this compiles it: {ours} -- sh -c 'make clean && make -n CC=cc CXX=c++'" in done.stderr
    done = build(work, llvm22, "--build-dir", "none", "--", "make", "-n")
    assert done.returncode == 2
    assert "found none; if the build makes it, make it first: mkdir -p none" in done.stderr
    assert not (tmp_path / "corpus" / "corpus_description.json").exists()


def test_streams_and_usage(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"a.c": "int a(void) { return 1; }\n"})
    script = "echo to stdout; echo to stderr >&2; cat; cc -c a.c"
    done = subprocess.run(
        command("-o", "../corpus", "--compiler", llvm22.clang, "--json", "--", "sh", "-c", script),
        cwd=work, env=environment(), input="through stdin\n", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(done.stdout)["extract"]["modules"] == 1
    assert done.stderr == "to stdout\nto stderr\nthrough stdin\n"
    (hint,) = json.loads(done.stdout)["hints"]
    assert hint.startswith("1 of 1 module is compiled at -O0 (optnone): nothing to decide; build with -DCMAKE_BUILD_")
    plain = build(work, llvm22, "--", "sh", "-c", "echo to stdout; cc -c a.c")
    assert plain.stdout.startswith("to stdout\n1 compile by ")
    assert plain.stderr == f"hint: {hint}\n"
    assert build(work, llvm22, "--", "cc", "-O1", "-c", "a.c").stderr == ""


def test_options_behind_the_command_are_its_own(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"a.c": "int a(void) { return 1; }\n"})
    done = build(work, llvm22, "sh", "-c", 'echo "$@"; cc -c a.c', "sh", "-j8", "--force")  # without --
    assert done.stdout.startswith("-j8 --force\n")


def test_what_a_program_holds_once_more_is_left_out(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"a.c": "int b(void); int main(void) { return b(); }\n", "b.c": "int b(void) { return 1; }\n"})
    report = build_json(work, llvm22, "--", "sh", "-c", "cc -c b.c && cc a.c b.o -o prog")
    assert report["extract"]["counts"] == {"ok": 2, "duplicate": 1}
    assert Corpus.open(tmp_path / "corpus").names == ("b.o", "prog/a.c")


def test_a_build_has_the_usual_compilers_where_the_machine_has_none(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"a.c": "int b(void) { return 1; }\n"})
    missing = next((name for name in USUAL_COMPILERS if shutil.which(name) is None), "clang")
    assert build_json(work, llvm22, "--", missing, "-c", "a.c")["extract"]["counts"] == {"ok": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--", "no-such-program"), "no-such-program: no such program; name the build's command behind --"),
        (("--compiler", "/no/clang", "--", "true"), "--compiler /no/clang: /no/clang: no such program"),
        (("--compiler", "/bin/true", "--", "true"), "not a clang"),
        (("--build-dir", "missing", "--", "true"), "missing: expected the folder"),
        (
            (),
            "a build's command behind --, such as -- make -j8, or a compilation database with --from, got neither",
        ),
        (("--from", "x.json", "--", "true"), "or a compilation database with --from, got both"),
        (("--from", "x.json", "--keep-checks"), "--keep-checks: only a build that runs has checks, not a database"),
        (("--from", "x.json"), "x.json: No such file or directory"),
        (("--from", "."), "compile_commands.json: No such file or directory"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_runs(work: Path, words: tuple[str, ...], message: str) -> None:
    done = run_cli("build", "-o", "../corpus", *words, cwd=work, env=environment())
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (work.parent / "corpus").exists()


def test_a_single_word_is_no_list_of_letters(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^make -s: no such program; "):
        build_corpus("make -s", tmp_path / "corpus")


def test_a_corpus_of_another_kind_is_refused_before_the_build(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "precious").write_text("x")
    done = build(work, llvm22, "--", "touch", "ran")
    assert done.returncode == 2
    assert "not empty, and no corpus" in done.stderr
    assert not (work / "ran").exists()


def test_names_are_relative_to_the_build_folder(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere/a.c": "int a(void) { return 1; }\n"})
    script = "cd ../elsewhere && cc -c a.c"
    build_json(work, llvm22, "--build-dir", "../elsewhere", "--", "sh", "-c", script)
    assert Corpus.open(tmp_path / "corpus").names == ("a.o",)


def wait_for_group_to_end(group: int) -> bool:
    """What was killed stays in the table of processes until somebody has asked after it."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_build_leaves_no_process_and_is_taken_over(
    llvm22: Llvm, work: Path, tmp_path: Path, number: signal.Signals
) -> None:
    write(work, {"first.c": "int first(void) { return 1; }\n"})
    script = "cc -c first.c; echo $$ >pid; touch compiled; sleep 600; touch over"
    words = ("build", "-o", "../corpus", "--compiler", llvm22.clang, "--", "sh", "-c", script)
    with start(*words, cwd=work, env=environment(), stderr=True, session=True) as process:
        wait_for(work / "compiled")
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert said == "mlgo-corpus: interrupted; finished work is kept, and the same command continues from there\n"
    assert wait_for_group_to_end(int((work / "pid").read_text()))
    assert not (tmp_path / "corpus" / "corpus_description.json").exists()
    report = build_json(work, llvm22, "--", "true")
    assert (report["compiles"], report["extract"]["modules"]) == (1, 1)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_build_goes_on_after_a_signal_that_is_ignored(llvm22: Llvm, work: Path, name: str) -> None:
    write(work, {"first.c": "int first(void) { return 1; }\n"})
    script = "echo $$ >pid; touch began; until [ -e go ]; do sleep 0.02; done; cc -c first.c"
    argv = command("-o", "../corpus", "--compiler", llvm22.clang, "--json", "--", "sh", "-c", script)
    with subprocess.Popen(
        ignoring(name, *argv), cwd=work, env=environment(), stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        wait_for(work / "began")
        for group in (process.pid, int((work / "pid").read_text())):
            os.killpg(group, signal.Signals[f"SIG{name}"])
        (work / "go").touch()
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(said)["extract"]["counts"] == {"ok": 1}


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_killed_at_any_moment_the_next_build_takes_over(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    write(work, {"first.c": "int first(void) { return 1; }\n"})
    assert build(work, llvm22, "--", "sh", "-c", "cc -c first.c; kill -9 $PPID").returncode == -signal.SIGKILL
    assert (tmp_path / "corpus" / ".mlgo-corpus" / "build" / "run").is_dir()
    report = build_json(work, llvm22, "--", "true")
    assert (report["compiles"], report["extract"]["modules"]) == (1, 1)


ENTRY = {"directory": "/", "arguments": [], "sources": [], "output": "x", "links": False, "order": 1, "stamp": None}
STATES = {
    "garbage": b"\xff\x00 no json\n",
    "other json": b"null\n[]\n{}\n",
    "wrong types": json.dumps({**ENTRY, "order": "x", "digest": 5}).encode() + b"\n",
    "a digest that is a path": json.dumps({**ENTRY, "digest": "../../etc/passwd"}).encode() + b"\n",
    "nested absurdly": b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_none_is_passed_over(llvm22: Llvm, work: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "corpus" / ".mlgo-corpus" / "build"
    folder.mkdir(parents=True)
    (folder / "compiles.jsonl").write_bytes(STATES[name])
    write(work, {"a.c": "int a(void) { return 1; }\n"})
    report = build_json(work, llvm22, "--", "cc", "-c", "a.c")
    assert report["extract"]["counts"] == {"ok": 1}


@pytest.mark.parametrize("name", ["build", "build/objects", "build/objects/ab", "build/left-1", "build/compiled"])
def test_a_link_in_place_of_our_folder_is_refused(llvm22: Llvm, work: Path, tmp_path: Path, name: str) -> None:
    """A corpus may be a stranger's."""
    place = tmp_path / "corpus" / ".mlgo-corpus" / name
    place.parent.mkdir(parents=True)
    (tmp_path / "precious" / "ab").mkdir(parents=True)
    (tmp_path / "precious" / "ab" / "cd").touch()
    place.symlink_to(tmp_path / "precious")
    done = build(work, llvm22, "--", "touch", "ran")
    assert done.returncode == 2
    assert "a symbolic link, expected a folder of the corpus's own" in done.stderr
    assert [path.name for path in (tmp_path / "precious").rglob("*")] == ["ab", "cd"]


def test_with_the_compiler_from_pip(llvm22: Llvm, work: Path, tmp_path: Path) -> None:
    if find_zig() is None:
        pytest.skip("ziglang is not installed")
    write(work, {"a.c": "int b(void); int a(void) { return b(); }\n", "b.cc": 'extern "C" int b(void) { return 1; }\n'})
    script = "cc -O2 -c a.c && g++ -O2 -c b.cc && ar rcs libab.a a.o b.o"
    argv = command("-o", "../corpus", "--compiler", f"{sys.executable} -m ziglang cc", "--", "sh", "-c", script)
    done = run_cli(*argv[3:], cwd=work, env=environment(), timeout=240)
    assert done.returncode == 0, done.stderr
    found = contents(tmp_path / "corpus")
    assert set(found) == {"a.o", "b.o"}
    (tmp_path / "a.bc").write_bytes(found["a.o"][0])
    assert "define i32 @a()" in run_checked(llvm22.dis, tmp_path / "a.bc", "-o", "-")
