"""Shells complete verbs, options and values: asked as bash, zsh and fish ask, bash itself too."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PACKAGE_ROOT

pytestmark = pytest.mark.whole


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with mlgo-corpus and two programs that call themselves compilers: completing runs neither."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "mlgo-corpus").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlgo_corpus.cli.main "$@"\n')
    for name in ("clang", "clang-22"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


@functools.cache
def bash_script() -> str:
    """Give the script that is installed for bash, which is always the same."""
    return subprocess.run(
        [sys.executable, "-m", "mlgo_corpus.cli.main"],
        env={**os.environ, "PYTHONPATH": PACKAGE_ROOT, "_MLGO_CORPUS_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout


def ask_bash(tools: Path, line: str, cwd: Path) -> list[str]:
    """Complete the last word of a line by the script that is installed for bash."""
    words = line.split(" ")
    script = (
        f"{bash_script()}\n"
        f"COMP_WORDS=({' '.join(shlex.quote(word) for word in words)})\n"
        f"COMP_CWORD={len(words) - 1}\n"
        '"$(complete -p mlgo-corpus | sed -E "s/.*-F ([^ ]+).*/\\1/")" mlgo-corpus\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    env = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": PACKAGE_ROOT, "MLGO_CORPUS_COMPILER": ""}
    done = subprocess.run(
        ["bash", "-c", script], env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mlgo-corpus st", ["stats"]),
        ("mlgo-corpus un", ["unpack"]),
        ("mlgo-corpus toolchain ", ["list", "build", "wrap", "extend"]),
        ("mlgo-corpus stats --by o", ["opt-level"]),
        ("mlgo-corpus trace corpus --task regalloc-", ["regalloc-eviction", "regalloc-priority"]),
        ("mlgo-corpus trace corpus --policy ran", ["random:0.5", "random"]),
        ("mlgo-corpus verify --reb", ["--rebuild"]),
    ],
)
def test_verbs_options_and_values(tools: Path, tmp_path: Path, line: str, found: list[str]) -> None:
    assert ask_bash(tools, line, tmp_path) == found


def test_compilers_are_listed_and_not_run(tools: Path, tmp_path: Path) -> None:
    for verb in ("trace", "verify", "build", "ir2native", "toolchain list", "doctor"):
        found = ask_bash(tools, f"mlgo-corpus {verb} --compiler clang", tmp_path)
        assert found[:2] == ["clang", "clang-22"], verb
    assert ask_bash(tools, f"mlgo-corpus trace --compiler {tools}/clang-", tmp_path) == [f"{tools}/clang-22"]
    assert not (tmp_path / "ran").exists()


def test_what_a_verb_has_no_words_for_is_left_to_the_shell(tools: Path, tmp_path: Path) -> None:
    """Which completes the names of files then: that is what ``-o default`` asks for."""
    (tmp_path / "corpus").mkdir()
    assert ask_bash(tools, "mlgo-corpus stats cor", tmp_path) == []
    for shell, words in (
        ("bash", "complete -o default"),
        ("zsh", "#compdef mlgo-corpus"),
        ("fish", "--command mlgo-corpus"),
    ):
        done = subprocess.run(
            [tools / "mlgo-corpus"],
            env={**os.environ, "PYTHONPATH": PACKAGE_ROOT, "_MLGO_CORPUS_COMPLETE": f"source_{shell}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, shell
        assert words in done.stdout, done.stdout
