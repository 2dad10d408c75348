"""Languages by endings and by clang's names, compared with clang itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlgo_corpus.formats.commands.languages import (
    CLANG_NAMES,
    ENDINGS,
    clang_names,
    language_of_command,
    language_of_name,
)
from tests.conftest import Llvm


@pytest.mark.llvm
def test_clang_agrees(llvm22: Llvm, tmp_path: Path) -> None:
    endings = [ending for ending, language in ENDINGS.items() if language in CLANG_NAMES.values()]
    for ending in endings:
        (tmp_path / f"a.{ending}").touch()
    names = [f"a.{ending}" for ending in endings]
    done = subprocess.run(
        [llvm22.clang, "-###", "-S", *names], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if '"-cc1"' in line and '"-x"' in line]
    # A module of C++ is compiled by two commands, of which the first has the source.
    said: dict[str, str] = {}
    for line in lines:
        words = line.replace('"', "").split()
        said.setdefault(words[-1], CLANG_NAMES[words[words.index("-x") + 1]])
    assert {name: said[name] for name in names} == {f"a.{ending}": ENDINGS[ending] for ending in endings}


def test_a_command_tells_by_the_name_of_its_source() -> None:
    assert language_of_command(("-cc1", "-main-file-name", "a.b.cc", "-x", "ir", "x.bc")) == "C++"
    assert language_of_command(("-cc1", "-main-file-name", "a.c")) == "C"
    assert language_of_command(("-main-file-name", "a.c", "-main-file-name", "b.cc")) == "C++"  # as in clang
    assert language_of_command(("-main-file-name", "cc")) is None
    assert language_of_command(("-main-file-name",)) is None
    assert language_of_command(("-o", "a.cc")) is None


def test_names() -> None:
    assert [language_of_name(name) for name in ("a.C", "a.c", "a.CPP", "a.b.Cpp", "a.RS", "a.h", "a.", "c", None)] == [
        "C++",
        "C",
        "C++",
        "C++",
        "Rust",
        None,
        None,
        None,
        None,
    ]
    assert clang_names(("C",)) == ("c", "cpp-output")
    assert clang_names(()) == tuple(CLANG_NAMES)
