"""``mlgo-corpus relink`` on the command line: its table, its JSON, its errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlgo_corpus import build_corpus
from mlgo_corpus.cli.main import app
from tests.conftest import Llvm


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm22: Llvm, known: Callable[..., Path]) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "one.c").write_text("int one(int x) { return x * 3; }\n")
    (work / "main.c").write_text(
        "int one(int); int main(int count, char **words) { (void)words; return one(count); }\n"
    )
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(known(tmp_path / "cache", llvm22.clang)))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.chdir(work)
    script = "cc -c one.c main.c; for name in prog twin; do cc -o $name main.o one.o; done; cc -o gone main.o one.o "
    script += "-Wl,-plugin,x.so || :"
    build_corpus(("sh", "-c", script), tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    return tmp_path / "corpus"


@pytest.mark.usefixtures("plain_terminal")
def test_what_is_shown(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    shutil.copy(tmp_path / "work" / "one.o", tmp_path / "objects")
    words = ["relink", str(corpus), "--objects", str(tmp_path / "objects"), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["prog", "program"] in [line[:2] for line in lines]
    assert [line[-4:] for line in lines if line[:1] == ["prog"]] == [["1", "of", "2", "yes"]]
    assert [line[-1] for line in lines if line[:1] == ["gone"]] == ["refused_option"]
    assert "2 of 2 products identical to the original" in done.stdout
    assert (
        "gone: refused_option: -Wl,-plugin: it would load code into the linker; --trust-corpus runs it" in done.stderr
    )
    said = "linked as built: 1 module without another object, or joined by something unseen or not repeated: main.o"
    assert said in done.stderr

    again = CliRunner().invoke(app, [*words, "--json", "--force"])
    report = json.loads(again.stdout)
    assert (again.exit_code, report["exit_code"], report["products"], report["linked"], report["failed"]) == (
        1,
        1,
        3,
        2,
        1,
    )
    assert (report["modules"], report["replaced"], report["missing"], report["missing_modules"]) == (
        4,
        2,
        2,
        ["main.o"],
    )
    assert report["text_size"] == report["original_text_size"] == 2 * report["rows"][0]["text_size"]


def test_errors_are_one_line(corpus: Path, tmp_path: Path) -> None:
    for words, said in (
        (("--objects", str(tmp_path / "none")), "--objects"),
        (("--timeout", "0"), "--timeout"),
        (("--compiler", "no-such-clang"), "no-such-clang"),
    ):
        done = CliRunner().invoke(app, ["relink", str(corpus), "--output", str(tmp_path / "out"), *words])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
    (corpus / "links.jsonl").unlink()
    done = CliRunner().invoke(app, ["relink", str(corpus), "--output", str(tmp_path / "out")])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "build it again" in done.stderr
    assert not (tmp_path / "out").exists()
