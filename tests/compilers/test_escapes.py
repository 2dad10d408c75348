"""Corpora that would run programs and overwrite files: what each verb does with them, however a command comes to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import extract_corpus, ir2native_table, pack_corpus, trace_corpus, verify_corpus
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.errors import MlgoCorpusError
from tests.conftest import EMBED, Llvm, run_checked
from tests.fuzz.cc1_canaries import find_compilers, fly

COMMAND = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-Oz")
# Where a compiler takes -main-file-name for a value, what follows are options.
ESCAPES = {
    "program": ("-validator-version", "-main-file-name", "-mllvm", "-exec-on-ir-change={}"),
    "library": ("--include", "-main-file-name", "-fpass-plugin={}"),
    "slash": ("/validator-version", "-main-file-name", "-load", "{}"),
    "unknown": ("--no-such-option", "-main-file-name", "-stats-file={}"),
    "file": ("--include", "-main-file-name", "-stats-file={}"),
}
REFUSED = {
    "program": "-mllvm -exec-on-ir-change={}: it runs a program; `trust_corpus` runs it",
    "library": "-fpass-plugin={}: it loads code into the compiler; `trust_corpus` runs it",
    "slash": "-load {}: it loads code into the compiler; `trust_corpus` runs it",
    "unknown": "--no-such-option: clang -cc1 17 to 22 has no such option; `trust_corpus` runs it",
}
pytestmark = pytest.mark.llvm


@pytest.fixture(scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this file's own: what is known of compilers stays for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = known(tmp_path_factory.mktemp("cache"), Llvm(22).clang)
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def words(escape: str, canary: Path) -> tuple[str, ...]:
    return (*COMMAND, *(word.format(canary) for word in ESCAPES[escape]))


def by_manifest(llvm: Llvm, build: Path, corpus: Path, canary: Path) -> None:
    """One command for all modules."""
    corpus.mkdir()
    (corpus / "program.bc").write_bytes((build / "a.bc").read_bytes())
    override = words("program", canary)
    write_manifest(corpus / "corpus_description.json", ["program"], has_thinlto=False, override=override)


def by_files(llvm: Llvm, build: Path, corpus: Path, canary: Path) -> None:
    corpus.mkdir()
    for escape in ESCAPES:
        (corpus / f"{escape}.bc").write_bytes((build / "a.bc").read_bytes())
        (corpus / f"{escape}.cmd").write_text("\0".join(words(escape, canary)))
    write_manifest(corpus / "corpus_description.json", list(ESCAPES), has_thinlto=False, override=None)


def by_packed_files(llvm: Llvm, build: Path, corpus: Path, canary: Path) -> None:
    by_files(llvm, build, corpus.with_name("loose"), canary)
    pack_corpus(corpus.with_name("loose"), corpus)


def by_objects(llvm: Llvm, build: Path, corpus: Path, canary: Path) -> None:
    objects = build / "objects"
    objects.mkdir()
    for escape in ESCAPES:
        command = build / "command"
        command.write_text("\0".join((*words(escape, canary), "")))
        run_checked(llvm.objcopy, f"--update-section=.llvmcmd={command}", build / "a.o", objects / escape)
    extract_corpus([objects], corpus)


@pytest.mark.parametrize("make", [by_manifest, by_files, by_packed_files, by_objects])
def test_commands_that_would_escape(
    llvm22: Llvm,
    cache: Path,
    make: Callable[[Llvm, Path, Path, Path], None],
    compile_c: Callable[..., Path],
    tmp_path: Path,
) -> None:
    canary = tmp_path / "cage" / "canary"
    canary.parent.mkdir()
    program = f"#!/bin/sh\n: > {canary}.ran\n"
    canary.write_text(program)
    canary.chmod(0o755)
    target = compile_c(llvm22, "int f(int x) { return x * 3; }", "-Oz", *EMBED)
    run_checked(llvm22.objcopy, f"--dump-section=.llvmbc={tmp_path / 'a.bc'}", target, tmp_path / "unused.o")
    corpus = tmp_path / "corpus"
    make(llvm22, tmp_path, corpus, canary)
    options: dict[str, Any] = {"compiler": llvm22.clang, "cache": cache, "jobs": 1}
    work = [
        lambda: trace_corpus(corpus, tmp_path / "trace", **options),
        lambda: ir2native_table(corpus, tmp_path / "sizes", **options),
    ]
    for run, output in zip(work, ("trace", "sizes"), strict=True):
        if make is by_manifest:  # there is nothing else in it
            with pytest.raises(MlgoCorpusError, match=re.escape(REFUSED["program"].format(canary))):
                run()
        else:
            run()
            check_refused(tmp_path / output, canary)
    builds = [tmp_path / "objects"] if make is by_objects else [tmp_path]
    report = verify_corpus(corpus, output=tmp_path / "verified", rebuild=True, build_dirs=builds, **options)
    assert report.exit_code == 1
    assert [path.name for path in canary.parent.iterdir()] == ["canary"]
    assert canary.read_text() == program


@pytest.mark.parametrize(
    "line",
    [
        "-O2 -fplugin={}",
        "-O2 -Xclang -load -Xclang {}",
        "-O2 -Xclang -fpass-plugin={}",
        "-O2 -mllvm -exec-on-ir-change={}",
        "-O2 -wrapper {}",
        "-O2 -B{}",
        "-O2 -fno-integrated-as -ccc-gcc-name {}",
        "-O2 --config={}",
        "-O2 @{}",
        "-O2 -Xclang @{}",
        "-O2 -fproc-stat-report={}",
    ],
)
def test_driver_lines_that_would_escape(llvm22: Llvm, cache: Path, tmp_path: Path, line: str) -> None:
    canary = tmp_path / "cage" / "canary"
    canary.parent.mkdir()
    program = f"-O2\n: > {canary}.ran\n"
    canary.write_text(program)
    canary.chmod(0o755)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.bc").write_bytes(b"BC\xc0\xde" + bytes(60))
    override = line.format(canary).split()
    write_manifest(corpus / "corpus_description.json", ["a"], has_thinlto=False, override=override)
    options: dict[str, Any] = {"compiler": llvm22.clang, "cache": cache, "jobs": 1}
    with pytest.raises(MlgoCorpusError, match=r"\(refused_option 1\): a: .*; `trust_corpus` runs it$"):
        trace_corpus(corpus, tmp_path / "trace", **options)
    report = verify_corpus(corpus, output=tmp_path / "verified", **options)
    assert report.counts["refused_option"] == 1
    assert [path.name for path in canary.parent.iterdir()] == ["canary"]
    assert canary.read_text() == program


def test_a_driver_line_writes_nowhere_else(
    llvm22: Llvm, cache: Path, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    compile_c(llvm22, "int f(int x) { return x * 3; }", "-Oz", *EMBED, output="build/a.o")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus")
    names = ("object", "depend", "database")
    line = ["-O2", "-o", f"{tmp_path}/object", "-MD", "-MF", f"{tmp_path}/depend", "-MJ", f"{tmp_path}/database", "-c"]
    manifest = tmp_path / "corpus/corpus_description.json"
    write_manifest(manifest, ["a.o"], has_thinlto=False, override=line)
    ir2native_table(tmp_path / "corpus", tmp_path / "sizes", compiler=llvm22.clang, cache=cache, jobs=1)
    assert [name for name in names if (tmp_path / name).exists()] == []


def check_refused(dataset: Path, canary: Path) -> None:
    rows = pq.read_table(dataset / "modules.parquet").to_pylist()
    for row in rows:
        escape = Path(row["module"]).name
        if escape == "file":  # what would be written is left out
            assert row["status"] == "ok", row
        else:
            assert (row["reason"], row["detail"]) == ("refused_option", REFUSED[escape].format(canary))
    assert rows


@pytest.mark.parametrize("name", ["clang-19", "clang-22", "zig"])
def test_options_with_canaries_as_values(name: str) -> None:
    """Some of what make fuzz tries."""
    if name not in (compilers := find_compilers()):
        pytest.skip(f"{name} is not installed")
    outcome = fly(compilers[name], seconds=600, seed=1, at_most=30)
    assert outcome.escapes == ()
    assert outcome.ran + outcome.refused == 30
    assert outcome.ran > 5
