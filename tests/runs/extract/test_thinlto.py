"""ThinLTO corpora from real links with lld, local and distributed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgo_corpus import Corpus, extract_corpus
from tests.conftest import EMBED, Llvm, run_checked
from tests.runs.extract.test_extract import SOURCES, dump_section, files, rows

Compile = Callable[..., Path]


@pytest.fixture
def local_build(llvm: Llvm, compile_c: Compile, tmp_path: Path) -> Path:
    """What a ThinLTO link leaves when it is told to keep its imported modules and its indexes."""
    for name, text in SOURCES.items():
        compile_c(llvm, text, "-O2", "-flto=thin", name=name, output=f"build/sub/{Path(name).stem}.o")
    link = [llvm.clang, f"-B{llvm.lld_folder}", "-fuse-ld=lld", "-flto=thin", "-O2", "-Wl,--lto-O2"]
    keep = ["-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files"]
    objects = [f"sub/{Path(name).stem}.o" for name in SOURCES]
    run_checked(*link, *keep, *objects, "-o", "app", cwd=tmp_path / "build")
    (tmp_path / "build/link.txt").write_text(" ".join(["clang", *link[2:], *objects, "-o", "app"]))
    return tmp_path / "build"


def test_local_thinlto_is_what_upstream_makes(llvm: Llvm, local_build: Path, tmp_path: Path) -> None:
    report = extract_corpus([local_build], tmp_path / "corpus", thinlto="local")
    manifest = json.loads((tmp_path / "corpus/corpus_description.json").read_text())
    names = ["sub/one.o", "sub/three.o", "sub/two.o"]
    assert manifest == {"global_command_override": ["<UNSPECIFIED>"], "has_thinlto": True, "modules": names}
    assert list(manifest) == ["global_command_override", "has_thinlto", "modules"]
    expected = {}
    for name in names:
        expected[f"{name}.bc"] = (local_build / f"{name}.3.import.bc").read_bytes()
        expected[f"{name}.thinlto.bc"] = (local_build / f"{name}.thinlto.bc").read_bytes()
    found = files(tmp_path / "corpus")
    assert {name: data for name, data in found.items() if name.endswith(".bc")} == expected
    assert not [name for name in found if name.endswith(".cmd")]
    assert report.exit_code == 0
    assert [(row["cmd_origin"], row["target_triple"]) for row in rows(tmp_path / "corpus")] == [
        ("override", "x86_64-pc-linux-gnu")
    ] * 3
    again = extract_corpus([local_build], tmp_path / "corpus", thinlto="local")
    assert again.unchanged == 3


def test_local_thinlto_with_the_link_command_can_be_compiled(llvm: Llvm, local_build: Path, tmp_path: Path) -> None:
    tokens = (local_build / "link.txt").read_text().split()
    extract_corpus([local_build], tmp_path / "corpus", thinlto="local", thinlto_link_command=tokens)
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.global_command_override is not None
    assert corpus.global_command_override[:3] == ("-cc1", "-triple", "x86_64-pc-linux-gnu")
    for module in corpus:
        argv = [*module.command(), "-x", "ir", str(module.bitcode_path), f"-fthinlto-index={module.thinlto_index_path}"]
        target = tmp_path / "again.o"
        run_checked(llvm.clang, *argv, "-mllvm", "-thinlto-assume-merged", "-o", str(target))
        symbol = {"one": "one", "two": "two", "three": "main"}[Path(module.name).stem]
        assert f" T {symbol}\n" in run_checked(llvm.nm, str(target))


def test_a_missing_index_is_a_row(llvm22: Llvm, tmp_path: Path, local_build: Path) -> None:
    (local_build / "sub/two.o.thinlto.bc").unlink()
    (local_build / "sub/one.o.thinlto.bc").write_text("root:x:0:0")
    report = extract_corpus([local_build], tmp_path / "corpus", thinlto="local")
    assert report.exit_code == 1
    assert Corpus.open(tmp_path / "corpus").names == ("sub/three.o",)
    found = {row["module"]: (row["reason"], row["detail"]) for row in rows(tmp_path / "corpus")}
    assert found["sub/two.o"][0] == found["sub/one.o"][0] == "missing_thinlto_index"
    assert "No such file" in found["sub/two.o"][1]
    assert "expected a ThinLTO index, which is bitcode" in found["sub/one.o"][1]
    assert not (tmp_path / "corpus/sub/one.o.bc").exists()


def test_distributed_thinlto(llvm: Llvm, local_build: Path, tmp_path: Path) -> None:
    (local_build / "native").mkdir()
    entries = []
    for name in SOURCES:
        stem = Path(name).stem
        index = f"sub/{stem}.o.thinlto.bc"
        embed = ["-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"]  # with -fembed-bitcode=all, clang 22 crashes
        if stem == "three":  # how build systems say that nothing is imported: an ordinary compile
            (local_build / "empty.thinlto.bc").touch()
            index, embed = "empty.thinlto.bc", list(EMBED)
        backend = [llvm.clang, "-O2", "-x", "ir", f"sub/{stem}.o", f"-fthinlto-index={index}", *embed]
        run_checked(*backend, "-c", "-o", f"native/{stem}.o", cwd=local_build)
        arguments = ["clang", "-c", f"sub/{stem}.o", "-o", f"native/{stem}.o"]
        entries.append({"directory": str(local_build), "file": name, "arguments": arguments})
    database = local_build / "compile_commands.json"
    database.write_text(json.dumps(entries))
    report = extract_corpus([database], tmp_path / "corpus", thinlto="distributed")
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.has_thinlto
    assert corpus.global_command_override is None
    assert corpus.names == ("native/one.o", "native/two.o", "native/three.o")
    assert report.exit_code == 0
    for module in corpus:
        assert module.thinlto_index_path is not None
        stem = Path(module.name).stem
        index_file = local_build / f"sub/{stem}.o.thinlto.bc"
        assert module.thinlto_index_path.read_bytes() == (b"" if stem == "three" else index_file.read_bytes())
        assert module.bitcode() == dump_section(llvm, local_build / f"native/{stem}.o", ".llvmbc")
    # A changed index is noticed although its object is the same.
    shutil.copy(local_build / "sub/two.o.thinlto.bc", local_build / "sub/one.o.thinlto.bc")
    report = extract_corpus([database], tmp_path / "corpus", thinlto="distributed")
    assert report.unchanged == 2
    one, two = (corpus[f"native/{stem}.o"].thinlto_index_path for stem in ("one", "two"))
    assert one is not None
    assert two is not None
    assert one.read_bytes() == two.read_bytes()


def test_distributed_needs_an_index(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    compile_c(llvm22, SOURCES["one.c"], "-O2", "-Xclang", "-fembed-bitcode=all", output="out/one.o")
    report = extract_corpus([tmp_path / "out"], tmp_path / "corpus", thinlto="distributed")
    (row,) = rows(tmp_path / "corpus")
    assert (row["reason"], row["detail"]) == ("missing_thinlto_index", "the command has no -fthinlto-index=")
    assert report.modules == 0
