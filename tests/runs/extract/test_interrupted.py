"""Extractions that are interrupted at the worst moment: the next one ends like a fresh one all the same."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from mlgo_corpus import extract_corpus
from mlgo_corpus.runs.extract.journal import Journal
from mlgo_corpus.runs.extract.run import ExtractionRun
from tests.conftest import EMBED, Llvm, run_checked
from tests.runs.extract.test_extract import files
from tests.runs.extract.test_incremental import check, killed_at, put, real_objects, tree

pytestmark = pytest.mark.whole


def test_a_duplicate_that_was_kept_for_a_moment(tmp_path: Path) -> None:
    build, corpus = tmp_path / "b", tmp_path / "corpus"
    one, other = real_objects()[:2]
    for name, data in (("a.o", one), ("b.o", one), ("z.o", other)):
        put(build / name, data)
    extract_corpus([build], corpus, dedup=True)
    extract_corpus([build], corpus, dedup=True)
    (build / "a.o").rename(tmp_path / "aside.o")
    assert killed_at(ExtractionRun, "finish", 1, [build], corpus, dedup=True) == -signal.SIGKILL
    assert (corpus / "b.o.bc").exists()
    (tmp_path / "aside.o").rename(build / "a.o")
    check([build], corpus, dedup=True)
    assert not (corpus / "b.o.bc").exists()


def test_force_takes_away_what_an_interrupted_run_wrote(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    for number, data in enumerate(real_objects()):
        put(tmp_path / f"b/{number}.o", data)
    put(tmp_path / "d/only.o", real_objects()[0])
    assert killed_at(Journal, "add", 1, [tmp_path / "b"], corpus) == -signal.SIGKILL
    assert list(corpus.glob("*.bc"))
    extract_corpus([tmp_path / "d"], corpus, force=True)
    extract_corpus([tmp_path / "d"], tmp_path / "fresh")
    assert tree(corpus) == tree(tmp_path / "fresh")


def test_what_was_not_written_is_not_taken_for_written(llvm22: Llvm, tmp_path: Path) -> None:
    corpus, index = tmp_path / "corpus", tmp_path / "x.thinlto.bc"

    def build(number: int) -> None:
        """Compile a version of the source whose bitcode has the size of the others'."""
        (tmp_path / "x.c").write_text(f"int f(int a) {{ return a + {number}; }}\n")
        run_checked(llvm22.clang, "-O2", *EMBED, "-c", "x.c", "-o", "b/x.o", cwd=tmp_path)
        command = tmp_path / "command"
        copy = tmp_path / "copy.o"
        run_checked(llvm22.objcopy, f"--dump-section=.llvmcmd={command}", "b/x.o", str(copy), cwd=tmp_path)
        command.write_bytes(command.read_bytes() + f"-fthinlto-index={index}\0".encode())
        run_checked(llvm22.objcopy, f"--update-section=.llvmcmd={command}", "b/x.o", cwd=tmp_path)

    (tmp_path / "b").mkdir()
    run_checked(llvm22.clang, "-c", "-x", "c", os.devnull, "-flto=thin", "-o", str(index))
    build(1)
    extract_corpus([tmp_path / "b"], corpus, thinlto="distributed")
    size = (corpus / "x.o.bc").stat().st_size
    build(2)
    index.rename(tmp_path / "aside")
    assert killed_at(ExtractionRun, "finish", 1, [tmp_path / "b"], corpus, thinlto="distributed") == -signal.SIGKILL
    (tmp_path / "aside").rename(index)
    extract_corpus([tmp_path / "b"], corpus, thinlto="distributed")
    assert (corpus / "x.o.bc").stat().st_size == size
    extract_corpus([tmp_path / "b"], tmp_path / "fresh", thinlto="distributed")
    assert files(corpus) == files(tmp_path / "fresh")


def test_unchanged_objects_are_progress_too(tmp_path: Path) -> None:
    for number in range(50):
        put(tmp_path / f"b/{number:02}.o", real_objects()[0])
    extract_corpus([tmp_path / "b"], tmp_path / "corpus")
    seen: list[tuple[int, int]] = []
    extract_corpus([tmp_path / "b"], tmp_path / "corpus", progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in dict.fromkeys(seen)] == list(range(1, 51))
    shutil.rmtree(tmp_path / "corpus")


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({"cmd_filters": ["-cc1", "a b|-"]}, {}, "was extracted with `cmd_filter` -cc1 'a b|-';"),
        ({}, {"command_override": ["-cc1"]}, "was extracted without `command_override`;"),
        ({"command_override": ["-cc1"]}, {"command_override": ["-O2"]}, "was extracted with `command_override` -cc1;"),
        ({"dedup": True}, {}, "was extracted with `dedup`;"),
        ({"module_filter": "o"}, {"module_filter": "x"}, "was extracted with `module_filter` o;"),
    ],
)  # fmt: skip
def test_other_options_are_named_as_they_were_given(
    tmp_path: Path, before: dict[str, object], now: dict[str, object], message: str
) -> None:
    from mlgo_corpus.errors import UsageError

    put(tmp_path / "b/a.o", real_objects()[0])
    extract_corpus([tmp_path / "b"], tmp_path / "corpus", **before)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^.*/corpus: ") as caught:
        extract_corpus([tmp_path / "b"], tmp_path / "corpus", **now)  # type: ignore[arg-type]
    assert message in str(caught.value)
