"""What all verbs have in common on the terminal: errors, colours, progress, and a reader that leaves."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlgo_corpus.cli import console
from mlgo_corpus.cli.main import app
from mlgo_corpus.files.text import human_bytes, human_seconds
from tests.conftest import PACKAGE_ROOT, ROOT

LOG = ROOT / "tests" / "data" / "training-logs" / "inlining.lvm.log"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trace", "missing argument 'CORPUS'; see 'mlgo-corpus trace --help'"),
        ("trace c", "missing option '--output' / '-o'; see 'mlgo-corpus trace --help'"),
        ("trace c -o d --frob", "no such option: --frob"),
        ("trace c -o d --task x", "--task: 'x' is not one of 'inlining', 'regalloc-eviction', 'regalloc-priority'"),
        ("trace c -o d --jobs x", "--jobs: "),
        ("trace c -o d --jobs 0", "--jobs: "),
        ("frob", "no such command 'frob'; see 'mlgo-corpus --help'"),
        ("toolchain frob", "no such command 'frob'; see 'mlgo-corpus toolchain --help'"),
        ("pack c d -o e", "got unexpected extra argument"),
        ("dump x --table --stats", "--table: not together with --stats"),
        ("stats x --depth 1", "--depth: requires --by folder"),
        ("train x -o y --timeout 60", "--timeout: requires --corpus or --validation: nothing else is compiled"),
        ("verify x --timeout 300", "--timeout: requires --rebuild"),
    ],
)
def test_errors_have_one_style(words: str, message: str) -> None:
    done = CliRunner().invoke(app, words.split(), prog_name="mlgo-corpus")
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"mlgo-corpus: error: {message}")
    assert "Value error" not in line


@pytest.mark.parametrize("words", [[], ["toolchain"]])
def test_without_a_verb_there_is_the_help(words: list[str]) -> None:
    done = CliRunner().invoke(app, words, prog_name="mlgo-corpus")
    assert done.exit_code == 2
    assert done.output.startswith(" ".join(["Usage: mlgo-corpus", *words]))


@pytest.mark.parametrize("words", ["--help", "trace --help", "--version", f"dump {LOG}", f"dump --table {LOG}"])
def test_a_reader_that_leaves_ends_it_quietly(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "mlgo_corpus.cli.main", *words.split()]
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    try:
        done = subprocess.run(
            argv, stdout=writing, stderr=subprocess.PIPE, text=True, env=env, timeout=300, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_what_an_encoding_does_not_have_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "日.log").symlink_to(LOG)
    argv = [sys.executable, "-m", "mlgo_corpus.cli.main", "dump", "--stats", "日.log"]
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("\\u65e5.log: inlining, 84 observations")


@pytest.mark.parametrize(("no_color", "shown"), [("", "\x1b[1mbold\x1b[0m\n"), ("1", "bold\n")])
def test_no_color_is_not_even_bold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_color: str, shown: str
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm-256color"), ("NO_COLOR", no_color)):
        monkeypatch.setenv(name, value)
    for stream in (console.out(), console.err()):
        stream.print("[bold]bold[/bold]")
    assert capsys.readouterr() == (shown, shown)


def test_lines_of_progress_tell_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.progress_bar("tracing") as update:
        for seconds, done, note in (
            (1, 300, ""),  # an earlier run had done these
            (10, 310, "7 decisions"),
            (15, 312, ""),
            (20, 320, ""),
            (30, 330, ""),
            (40, 340, ""),
            (50, 940, ""),
            (61, 940, ""),
        ):
            now = float(seconds)
            update(done, 1000, note)
    assert capsys.readouterr().err.splitlines() == [
        "tracing: 310 of 1000, 7 decisions",
        "tracing: 320 of 1000, 11 min left",
        "tracing: 330 of 1000, 11 min left",
        "tracing: 340 of 1000, 11 min left",
        "tracing: 940 of 1000, 3 s left",
        "tracing: 940 of 1000, 3 s left",
    ]


def test_times_for_people() -> None:
    said = [human_seconds(seconds) for seconds in (0, 59, 59.7, 60, 3540, 3590, 7380, 400_000)]
    assert said == ["0 s", "59 s", "1 min", "1 min", "59 min", "1 h 0 min", "2 h 3 min", "111 h 7 min"]


def test_bytes_for_people() -> None:
    sizes = (0, 999, 1000, 1049, 999_949, 999_960, 1e9, 999_960e6, 2e15)
    said = ["0 B", "999 B", "1.0 kB", "1.0 kB", "999.9 kB", "1.0 MB", "1.0 GB", "1.0 TB", "2000.0 TB"]
    assert list(map(human_bytes, sizes)) == said


def test_a_width_of_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    done = CliRunner().invoke(app, ["dump", str(LOG), "--stats"])
    monkeypatch.delenv("COLUMNS")
    assert done.exit_code == 0
    assert done.stdout.split() == CliRunner().invoke(app, ["dump", str(LOG), "--stats"]).stdout.split() != []


@pytest.mark.parametrize("columns", ["5", "40"])
def test_a_narrow_terminal_shows_every_name(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    made = console.table("module", "what", "a long title", "another one", left=2)
    made.add_row("abcdefgh", "ij", "1", "2")
    shown = console.out()
    with shown.capture() as capture:
        shown.print(made)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-1].split() == ["abcdefgh", "ij", "1", "2"]


def test_json_has_no_numbers_that_json_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": [math.nan, 1.5], "b": {"c": (-math.inf, Path("x"))}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": {"c": [None, "x"]}}


@pytest.mark.parametrize("words", [["--help"], ["toolchain", "wrap", "--help"]])
def test_a_full_disk_behind_the_help_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mlgo_corpus.cli.main", *words],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"mlgo-corpus: error: No space left on device\n")
