"""A few inputs of each fuzzer, the same each time (``make fuzz`` runs others, for longer), and what fuzzers found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import handmade
from tests.conftest import ROOT
from tests.formats.objects.test_archive import write_gnu
from tests.fuzz.driver import NAMES, fuzz
from tests.fuzz.verbs import run_verb

pytestmark = pytest.mark.whole

# So many inputs take a second or so.
INPUTS = {"objects": 5, "logs": 8, "corpora": 4, "names": 3, "sessions": 8, "kills": 2}

# What moves a cursor, ends a line, and is markup for the library that prints tables.
NAME = "a\x1b[31m[/red]\nb"
SHOWN = "a\\x1b[31m[/red]\\nb"


@pytest.mark.parametrize("name", NAMES)
def test_fuzzer(name: str, tmp_path: Path) -> None:
    outcome = fuzz(name, 1, tmp_path, range(INPUTS[name]))
    assert "\n\n".join(map(str, outcome.findings)) == ""
    assert outcome.inputs == INPUTS[name]
    assert list(tmp_path.iterdir()) == []


BROKEN = """
import os, signal, time

def prepare(folder):
    (folder / "seed").write_text("x")

def check(prepared, rng, folder):
    (folder / "input").write_text((prepared / "seed").read_text() + str(rng.random()))
    number = int(os.environ["FUZZ_BREAKS"])
    if number == 1:
        raise ValueError("it does not hold")
    if number == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 3:
        time.sleep(600)
    if number == 4:
        print("said")
    if number == 5 and os.fork() == 0:
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("breaks", "told"),
    [
        (0, None),
        (1, "ValueError: it does not hold"),
        (2, "the process ended with -11: Fatal Python error: Segmentation fault"),
        (3, "not done after 1 seconds"),
        (4, "AssertionError: this was said: said"),
        (5, "AssertionError: there are processes left: "),
    ],
)
def test_whatever_goes_wrong_is_a_finding(
    breaks: int, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setattr("tests.fuzz.__path__", [*sys.modules["tests.fuzz"].__path__, str(tmp_path)])
    monkeypatch.setattr("tests.fuzz.driver.SECONDS_PER_INPUT", 1.0)
    monkeypatch.setenv("FUZZ_BREAKS", str(breaks))
    work = tmp_path / "work"
    outcome = fuzz("broken", 7, work, range(3, 5))
    assert outcome.inputs == 2
    if told is None:
        assert outcome.findings == ()
        assert os.listdir(work) == []
        return
    first, second = outcome.findings
    assert (first.number, second.number, first.seed) == (3, 4, 7)
    assert told in first.text
    assert str(first).startswith("python -m tests.fuzz broken --seed 7 --number 3\n")
    assert sorted(os.listdir(work)) == ["broken-7-3", "broken-7-4"]
    assert (first.folder / "input").read_bytes() != (second.folder / "input").read_bytes()
    assert (first.folder / "input").read_text() == (
        fuzz("broken", 7, work, range(3, 4)).findings[0].folder / "input"
    ).read_text()


def test_the_command(tmp_path: Path) -> None:
    argv = (sys.executable, "-m", "tests.fuzz", "sessions", "--seed", "3", "--number", "0", "--keep", str(tmp_path))
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == "sessions: seed 3"
    assert second.startswith("sessions: 1 inputs in ")
    assert second.endswith(" s, 0 findings")


# What fuzzers found.


@pytest.mark.parametrize("verb", [("verify", "--jobs=1"), ("dedup", "--near=0.5", "--jobs=1")])
def test_what_is_wrong_with_a_module_is_told_on_one_line(verb: tuple[str, ...], tmp_path: Path) -> None:
    corpus = handmade.corpus(tmp_path / "corpus", {NAME: b"damaged"})
    done = run_verb(*verb, corpus)
    assert done.code == 1
    (line,) = done.stderr.splitlines()
    assert f"{SHOWN}: " in line


def test_members_of_an_archive_are_told_on_one_line(tmp_path: Path) -> None:
    path = handmade.put(tmp_path / "x.a", write_gnu([(NAME, b"damaged"), ("b", handmade.bitcode())], terminator=b"\0"))
    lines = run_verb("explain", path).stdout.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("a\\x1b")] == [[SHOWN, "unsupported_format"]]
    run_verb("extract", path, "--jobs=1", "--output", tmp_path / "corpus")
