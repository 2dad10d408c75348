"""A few inputs of each fuzzer, the same each time (``make fuzz`` runs others, for longer), and what fuzzers found."""

from __future__ import annotations

from pathlib import Path

import handmade
import pytest
from fuzz.driver import fuzz
from test_archive import write_gnu
from test_cli import mlgo

# So many inputs take a second or two.
INPUTS = {"objects": 10, "logs": 15, "corpora": 6}

NAME = "a\x1b[31m[/red]\nb"
SHOWN = "a\\x1b[31m[/red]\\nb"


@pytest.mark.parametrize("name", INPUTS)
def test_fuzzer(name: str, tmp_path: Path) -> None:
    outcome = fuzz(name, 1, tmp_path, range(INPUTS[name]))
    assert "\n\n".join(map(str, outcome.findings)) == ""
    assert outcome.inputs == INPUTS[name]
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_with_a_module_is_told_on_one_line(tmp_path: Path) -> None:
    """A name in a manifest could move the cursor, and be taken for markup that is none."""
    corpus = handmade.corpus(tmp_path / "corpus", {NAME: b"damaged", "good": handmade.bitcode()})
    told = {
        verb: mlgo(*verb.split(), corpus).stderr.splitlines()
        for verb in ("verify --jobs=1", "dedup --near=0.5 --jobs=1")
    }
    assert told == {}


def test_members_of_an_archive_are_told_on_one_line(tmp_path: Path) -> None:
    path = handmade.put(tmp_path / "x.a", write_gnu([(NAME, b"damaged"), ("b", handmade.bitcode())], terminator=b"/\n"))
    done = mlgo("explain", path)
    assert done.stdout == ""
