"""Dropping superfluous modules of real corpora: exact copies, and modules whose code is all in another."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Corpus, dedup_corpus, extract_corpus, split_corpus
from mlgo_corpus.corpus.duplicates import Duplicate
from mlgo_corpus.errors import CorpusError, UsageError
from tests.cli.test_cli import mlgo
from tests.conftest import EMBED, Llvm, unpack

PART = "int part(const int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] * i; return s; }\n"
SOURCES = {
    "whole.c": PART + "int g;\nint more(int x) { return x * x + g; }",
    "part.c": "struct unused { int a; };\n" + PART.replace("part", "renamed"),
    "other.c": "int other(int x) { while (x > 9) x = x / 3 - 1; return x; }",
}


@pytest.fixture
def corpus(compile_c: Callable[..., Path], llvm22: Llvm, tmp_path: Path) -> Path:
    """Three modules, a copy of one, and a copy of its bitcode with another command."""
    for name, text in SOURCES.items():
        compile_c(llvm22, text, "-O1", *EMBED, name=name)
    made = tmp_path / "made"
    extract_corpus([tmp_path], made)
    for copy, command in (("copy.o", None), ("flags.o", b"-cc1\0-O3\0")):
        shutil.copy(made / "other.o.bc", made / f"{copy}.bc")
        shutil.copy(made / "other.o.cmd", made / f"{copy}.cmd")
        if command is not None:
            (made / f"{copy}.cmd").write_bytes(command)
    manifest = json.loads((made / "corpus_description.json").read_text())
    manifest["modules"] += ["copy.o", "flags.o"]
    (made / "corpus_description.json").write_text(json.dumps(manifest))
    return made


def test_equal_bitcode_and_command_is_one_too_many(corpus: Path) -> None:
    report = dedup_corpus(corpus)
    assert report.dropped == (Duplicate("copy.o", "other.o", 1.0, exact=True),)
    assert (report.modules, report.kept, report.output) == (5, 4, None)
    assert report.dropped_bytes == (corpus / "other.o.bc").stat().st_size
    assert report.bitcode_bytes == sum(path.stat().st_size for path in corpus.glob("*.bc"))
    assert not (corpus / "functions.parquet").exists()
    report = dedup_corpus(corpus, ignore_commands=True)
    assert [one.module for one in report.dropped] == ["copy.o", "flags.o"]


def test_near_duplicates_go_by_bodies_whatever_their_names(corpus: Path) -> None:
    report = dedup_corpus(corpus, near=0.95)
    assert report.dropped == (
        Duplicate("copy.o", "other.o", 1.0, exact=True),
        Duplicate("part.o", "whole.o", 1.0, exact=False),
        Duplicate("flags.o", "other.o", 1.0, exact=False),
    )
    assert dedup_corpus(corpus, near=0.95, min_instructions=1000).dropped == report.dropped[:1]


def test_small_functions_make_no_module_superfluous(
    compile_c: Callable[..., Path], llvm22: Llvm, tmp_path: Path
) -> None:
    for name in ("a.c", "b.c"):
        compile_c(llvm22, f"int {name[0]}_one(void) {{ return 1; }}\nchar pad_{name[0]};", "-O1", *EMBED, name=name)
    extract_corpus([tmp_path], tmp_path / "small")
    assert dedup_corpus(tmp_path / "small", near=0.5).dropped == ()
    assert len(dedup_corpus(tmp_path / "small", near=0.5, min_instructions=0).dropped) == 1


def test_the_new_corpus_has_the_others_and_rows_of_all(corpus: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()}
    report = dedup_corpus(corpus, tmp_path / "out", near=0.95)
    made = Corpus.open(tmp_path / "out")
    assert made.names == ("other.o", "whole.o")
    for module in made:
        assert module.bitcode() == (corpus / f"{module.name}.bc").read_bytes()
        assert module.command_path.read_bytes() == (corpus / f"{module.name}.cmd").read_bytes()
    rows = {row["module"]: row for row in pq.read_table(tmp_path / "out/modules.parquet").to_pylist()}
    assert {name: (row["status"], row["reason"], row["duplicate_of"]) for name, row in rows.items()} == {
        "other.o": ("ok", "ok", None),
        "whole.o": ("ok", "ok", None),
        "part.o": ("skipped", "duplicate", "whole.o"),
        "copy.o": ("skipped", "duplicate", "other.o"),
        "flags.o": ("skipped", "duplicate", "other.o"),
    }
    assert rows["part.o"]["detail"] == "at least 100.0 % of its instructions are in functions of whole.o, too"
    assert report.kept == 2
    assert {path: path.read_bytes() for path in before} == before
    assert dedup_corpus(corpus, tmp_path / "out", near=0.95).unchanged
    with pytest.raises(UsageError, match="`force` replaces it"):
        dedup_corpus(corpus, tmp_path / "out", near=0.5)


def test_what_equals_a_dropped_module_is_dropped_for_what_that_was(corpus: Path) -> None:
    for suffix in ("bc", "cmd"):
        shutil.copy(corpus / f"part.o.{suffix}", corpus / f"again.o.{suffix}")
    manifest = json.loads((corpus / "corpus_description.json").read_text())
    manifest["modules"].append("again.o")
    (corpus / "corpus_description.json").write_text(json.dumps(manifest))
    dropped = {one.module: one for one in dedup_corpus(corpus, near=0.95).dropped}
    assert dropped["again.o"] == Duplicate("again.o", "whole.o", 1.0, exact=True)
    assert dropped["part.o"].kept == "whole.o"


def test_two_llvms_of_one_source_are_near(tmp_path: Path, llvm22: Llvm) -> None:
    unpack("lua-clang22", tmp_path / "objects")
    extract_corpus([tmp_path / "objects"], tmp_path / "corpus")
    assert dedup_corpus(tmp_path / "corpus", near=0.9).dropped == ()


@pytest.mark.parametrize("is_cut", [False, True])
def test_no_module_is_dropped_for_one_that_is_not_there(
    compile_c: Callable[..., Path], llvm22: Llvm, tmp_path: Path, *, is_cut: bool
) -> None:
    for name in "abc":
        shutil.copy(compile_c(llvm22, PART, "-O1", *EMBED, name="part.c"), tmp_path / f"{name}.o")
    (tmp_path / "part.o").unlink()
    made = tmp_path / "made"
    extract_corpus([tmp_path], made)
    assert [one.module for one in dedup_corpus(made).dropped] == ["b.o", "c.o"]
    if is_cut:
        os.truncate(made / "a.o.bc", 100)
    else:
        (made / "a.o.bc").unlink()
    report = dedup_corpus(made, tmp_path / "new")
    assert report.dropped == (Duplicate("c.o", "b.o", 1.0, exact=True),)
    assert (tmp_path / "new/b.o.bc").read_bytes() == (made / "b.o.bc").read_bytes()


def test_a_module_that_is_listed_twice_is_one(corpus: Path, tmp_path: Path) -> None:
    manifest = json.loads((corpus / "corpus_description.json").read_text())
    dropped = dedup_corpus(corpus, near=0.95).dropped
    functions = sum(split_corpus(corpus).functions.values())
    manifest["modules"] = [name for name in manifest["modules"] for _ in range(2)]
    (corpus / "corpus_description.json").write_text(json.dumps(manifest))
    assert dedup_corpus(corpus, near=0.95).dropped == dropped
    report = split_corpus(corpus, fractions=(0.4, 0.3, 0.3), force=True)
    assert sum(report.functions.values()) == functions == 6
    sides = [json.loads(path.read_text())["modules"] for path in corpus.glob("corpus_description.*.json")]
    assert sorted(name for side in sides for name in side) == sorted(set(manifest["modules"]))
    assert sum(report.modules.values()) == len(set(manifest["modules"]))


def test_what_cannot_be_read_is_kept_and_told(corpus: Path) -> None:
    (corpus / "part.o.bc").write_bytes((corpus / "part.o.bc").read_bytes()[:200])
    report = dedup_corpus(corpus, near=0.9)
    assert [name for name, _ in report.problems] == ["part.o"]
    assert "part.o" not in {one.module for one in report.dropped}
    done = mlgo("dedup", corpus, "--near", "0.9", "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["dropped"] == [one._asdict() for one in report.dropped]


@pytest.mark.parametrize("near", [None, 0.9])
def test_what_a_corpus_without_a_table_lacks_is_told(corpus: Path, tmp_path: Path, near: float | None) -> None:
    (corpus / "modules.parquet").unlink()
    (corpus / "other.o.bc").unlink()
    (corpus / "part.o.bc").write_bytes(b"no bitcode")
    report = dedup_corpus(corpus, tmp_path / "out", near=near)
    assert (report.exit_code, report.modules) == (1, 3)
    assert sorted(report.problems)[0] == ("other.o", "cannot read other.o.bc: No such file or directory")
    assert sorted(name for name, _ in report.problems) == ["other.o", "part.o"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--near", "0"), "--near 0: expected more than 0, and at most 1"),
        (("--near", "1.1"), "--near 1.1: expected more than 0"),
        (("--output", "{corpus}"), "is the input itself; name another folder"),
        (("--copy", "--reference"), "--copy and --reference: expected one of them"),
    ],
)
def test_bad_requests_are_told(corpus: Path, arguments: tuple[str, ...], message: str) -> None:
    done = mlgo("dedup", corpus, *(text.format(corpus=corpus) for text in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_no_corpus_is_told(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="not a corpus"):
        dedup_corpus(tmp_path)


def test_a_dry_run_says_so(corpus: Path) -> None:
    done = mlgo("dedup", corpus, "--near", "0.9")
    assert done.returncode == 0
    assert "copy.o = other.o" in done.stdout
    assert "part.o 100.0% in whole.o" in done.stdout
    assert "nothing was written: --output CORPUS makes a corpus without them" in done.stdout


def test_libtool_s_twins_are_near_and_told_of_otherwise(
    compile_c: Callable[..., Path], llvm22: Llvm, tmp_path: Path
) -> None:
    # Too small to count between modules of different sources.
    text = "extern int g; int get(void) { return g; }\n"
    for flags, output in ((("-fPIC", "-DPIC"), "b/lib/.libs/a.o"), ((), "b/lib/a.o"), ((), "b/other/a.o")):
        source = text if "lib" in output else text.replace("return g", "return g + 1")
        compile_c(llvm22, source, "-O2", *flags, *EMBED, name="a.c", output=output)
    compile_c(llvm22, text, "-O2", *EMBED, name="b.c", output="b/lib/b.o")
    made = tmp_path / "corpus"
    extract_corpus([tmp_path / "b"], made, jobs=1)
    assert (made / "lib/a.o.bc").read_bytes() != (made / "lib/.libs/a.o.bc").read_bytes()
    report = dedup_corpus(made, jobs=1)
    assert (report.dropped, report.libtool) == ((), 1)
    report = dedup_corpus(made, tmp_path / "once", near=1, jobs=1)
    assert report.dropped == (Duplicate("lib/a.o", "lib/.libs/a.o", 1.0, exact=False),)
    assert (report.kept, report.libtool) == (3, 0)
    assert Corpus.open(tmp_path / "once").names == ("lib/.libs/a.o", "lib/b.o", "other/a.o")
    done = mlgo("dedup", made)
    assert "hint: libtool compiled the source of 1 module twice" in done.stderr
    assert "--near 1 finds such modules" in done.stderr


def test_a_module_that_cannot_be_read_has_no_source_to_compare(corpus: Path) -> None:
    (corpus / "modules.parquet").unlink()
    (corpus / "part.o.bc").write_bytes(b"no bitcode")
    report = dedup_corpus(corpus, near=0.95)
    assert [name for name, _ in report.problems] == ["part.o"]
    assert [one.module for one in report.dropped] == ["copy.o", "flags.o"]
