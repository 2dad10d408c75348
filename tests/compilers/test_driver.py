"""Driver's lines: which cc1 line a real clang makes of them, and that it can do nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_corpus.compilers import driver
from mlgo_corpus.compilers.driver import cc1_line
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.compilers.walls import standing
from tests.conftest import Llvm

LINE = ("-fPIC", "--target=x86_64-unknown-linux-gnu", "-O2", '-DX="a b"', "-c")
pytestmark = pytest.mark.llvm


def cc1(llvm: Llvm) -> tuple[str, ...]:
    return (str(Path(llvm.clang).resolve()),)


def test_the_line_of_a_clang(llvm: Llvm) -> None:
    made = cc1_line(LINE, cc1(llvm), trusted=False)
    assert made[:3] == ("-cc1", "-triple", "x86_64-unknown-linux-gnu")
    assert {"-emit-obj", "-O2", "-vectorize-loops"} <= set(made)
    assert made[made.index("-mrelocation-model") + 1] == "pic"
    assert "-fdebug-compilation-dir=." in made  # the same line in any folder
    assert cc1_line(LINE, cc1(llvm), trusted=True)[:3] == made[:3]


@pytest.mark.parametrize(
    ("line", "trusted", "reason", "detail"),
    [
        ("-fno-such-flag", False, "unknown_option", "clang: error: unknown argument: '-fno-such-flag'"),
        ("-fplugin=x.so", False, "refused_option", "-fplugin=x.so: it is not among the options of clang's driver"),
        ("-O2 -fembed-bitcode", True, "refused_option", "one object by one compile, found 2 commands"),
    ],
)
def test_lines_that_make_none(llvm22: Llvm, line: str, reason: str, detail: str, *, trusted: bool) -> None:
    with pytest.raises(RunFailure) as caught:
        cc1_line(tuple(line.split()), cc1(llvm22), trusted=trusted)
    assert caught.value.reason == reason
    assert detail in caught.value.detail


@pytest.mark.parametrize("listed", [True, False])
def test_a_driver_that_would_run_a_program(
    llvm22: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, listed: bool
) -> None:
    """Clang runs this one even with -###. It is not given the option; if it were, the walls would stop it."""
    canary = tmp_path / "canary"
    canary.write_text(f"#!/bin/sh\n: > {tmp_path}/ran\necho gfx90a\n")
    canary.chmod(0o755)
    (tmp_path / "a.hip").write_text("")
    line = (f"--offload-arch-tool={canary}", "--offload-arch=native", "-nogpulib", "-nogpuinc")
    expected = "refused_option"
    if not listed:
        if not standing().landlock:
            pytest.skip("this kernel has no Landlock")
        monkeypatch.setattr(driver, "driver_words", tuple)
        line += ("-x", "hip", str(tmp_path / "a.hip"))
        expected = "compiler_error"
    with pytest.raises(RunFailure) as caught:
        cc1_line(line, cc1(llvm22), trusted=False)
    assert caught.value.reason == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.hip", "canary"]
