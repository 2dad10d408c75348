"""Which compiler a trace takes, and by which way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus.compilers import choose as choice
from mlgo_corpus.compilers.choose import choose_compiler, choose_for_build, ways_of
from mlgo_corpus.compilers.find import Candidate
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.tasks import TASKS
from tests.conftest import Llvm

INLINING, EVICTION, PRIORITY = TASKS
NAMES = tuple(task.name for task in TASKS)


def toolchain(name: str, major: int, *, logs: bool = False, live: bool = True, **more: Any) -> Toolchain:
    return Toolchain(
        driver=(name,),
        origin="PATH",
        version=f"{major}.1.0",
        training_logs=NAMES if logs else (),
        interactive=NAMES if live else (),
        reads_bitcode=tuple(range(17, min(major, 22) + 1)),
        **more,
    )


STOCK19, STOCK22 = toolchain("stock19", 19), toolchain("stock22", 22)
DEV19 = toolchain("dev19", 19, logs=True)
OLD = toolchain("old", 16, live=False)
BROKEN = Toolchain(("broken",), "PATH", problem="does not run")


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLGO_CORPUS_COMPILER", raising=False)


def choose(
    monkeypatch: pytest.MonkeyPatch,
    *there: Toolchain,
    task: Any = INLINING,
    policy: str = "default",
    via: str = "auto",
    producer: int | None = None,
) -> tuple[str, str]:
    monkeypatch.setattr(choice, "probe_toolchains", lambda **_: there)
    found, way = choose_compiler(None, task, policy, via, producer=producer)
    return found.driver[0], way


def test_ways() -> None:
    assert ways_of(DEV19, INLINING, "default") == ("training-log", "interactive")
    assert ways_of(DEV19, EVICTION, "default") == ("training-log",)
    assert ways_of(DEV19, EVICTION, "first") == ("interactive",)
    assert ways_of(STOCK22, INLINING, "default") == ("interactive",)
    assert ways_of(STOCK22, PRIORITY, "default") == ()
    assert ways_of(OLD, INLINING, "never") == ()


def test_the_best_one(monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_them = (BROKEN, OLD, STOCK22, STOCK19, DEV19)
    assert choose(monkeypatch, *all_of_them) == ("dev19", "training-log")
    assert choose(monkeypatch, *all_of_them, producer=19) == ("dev19", "training-log")
    # The compiler that writes logs cannot read this.
    assert choose(monkeypatch, *all_of_them, producer=22) == ("stock22", "interactive")
    assert choose(monkeypatch, *all_of_them, policy="never") == ("stock22", "interactive")
    assert choose(monkeypatch, *all_of_them, policy="never", producer=19) == ("stock19", "interactive")
    assert choose(monkeypatch, *all_of_them, via="interactive", producer=22) == ("stock22", "interactive")
    assert choose(monkeypatch, *all_of_them, task=EVICTION) == ("dev19", "training-log")


@pytest.mark.parametrize("producer", [9, 16, 17])
def test_llvm_reads_what_older_ones_wrote(monkeypatch: pytest.MonkeyPatch, producer: int) -> None:
    assert choose(monkeypatch, STOCK22, STOCK19, producer=producer) == ("stock22", "interactive")


def test_llvms_that_came_after_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    new = toolchain("new", 25)
    assert choose(monkeypatch, STOCK22, new, producer=25) == ("new", "interactive")
    assert choose(monkeypatch, STOCK22, new, producer=24) == ("new", "interactive")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"producer": 23},
            "the corpus is made by LLVM 23, and the compilers that can show its decisions read only bitcode of "
            "17, 18, 19, 20, 21, 22: name a newer one with `compiler`",
        ),
        (
            {"task": EVICTION},
            "no compiler found for this: regalloc-eviction by the default policy needs a compiler made by 'mlgo-corpus "
            "toolchain build'; with any other compiler, name a `policy`: first, random or module:attribute; see "
            "'mlgo-corpus toolchain list'",
        ),
        (
            {"task": EVICTION, "producer": 22},
            "no compiler found for this: regalloc-eviction by the default policy needs a compiler made by 'mlgo-corpus "
            "toolchain build', which reads no corpus of LLVM 22: build the corpus with 'mlgo-corpus build --compiler "
            "clang-19'; with any other compiler, name a `policy`: first, random or module:attribute; see 'mlgo-corpus "
            "toolchain list'",
        ),
        (
            {"via": "training-log"},
            "no compiler found for this: training logs of inlining need a compiler made by 'mlgo-corpus toolchain "
            "build'; see 'mlgo-corpus toolchain list'",
        ),
        (
            {"via": "training-log", "policy": "never"},
            "no compiler found for this: a training log shows the default policy's decisions, not those of 'never': "
            "`via` interactive does; see 'mlgo-corpus toolchain list'",
        ),
    ],
)
def test_none_that_can(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose(monkeypatch, STOCK22, STOCK19, OLD, BROKEN, **options)
    assert str(caught.value) == message


def test_no_newer_compiler_writes_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The development-mode compiler is older than the clang that a build takes by itself."""
    reads = (
        "the corpus is made by LLVM 22, and the compilers that can show its decisions read only bitcode of 17, 18, 19: "
    )
    remedy = "build the corpus with 'mlgo-corpus build --compiler clang-19'"
    with pytest.raises(UsageError) as caught:
        choose(monkeypatch, STOCK22, STOCK19, DEV19, task=EVICTION, producer=22)
    assert str(caught.value) == f"{reads}{remedy}, or name a `policy`: first, random or module:attribute"
    with pytest.raises(UsageError) as caught:
        choose(monkeypatch, STOCK22, STOCK19, DEV19, via="training-log", producer=22)
    assert str(caught.value) == reads + remedy
    assert choose(monkeypatch, STOCK22, STOCK19, DEV19, task=EVICTION, producer=19) == ("dev19", "training-log")


def test_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UsageError, match="inlining needs a clang of LLVM 17 or newer; see 'mlgo-corpus toolchain list'"
    ):
        choose(monkeypatch, BROKEN, OLD)


def test_the_one_that_is_named(llvm19: Llvm, llvm22: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose_named(named: str | None, task: Any = INLINING) -> tuple[str | None, str]:
        found, way = choose_compiler(named, task, "default", "auto", producer=22, cache=tmp_path)
        return found.version, way

    version, way = choose_named(llvm19.clang)  # although another would read the corpus: the user knows
    assert str(version).startswith("19.")
    assert way == "interactive"
    monkeypatch.setenv("MLGO_CORPUS_COMPILER", llvm19.clang)
    assert choose_named(None) == (version, "interactive")
    assert str(choose_named(llvm22.clang)[0]).startswith("22.")
    with pytest.raises(UsageError, match=rf"^MLGO_CORPUS_COMPILER={llvm19.clang}: regalloc-priority by the default"):
        choose_named(None, PRIORITY)
    with pytest.raises(UsageError, match=rf"^compiler {llvm22.clang}: regalloc-eviction by the default policy needs"):
        choose_named(llvm22.clang, EVICTION)
    with pytest.raises(UsageError, match="no-such-clang: no such program"):
        choose_named("no-such-clang")


def test_a_build_takes_the_newest_compiler_that_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One on PATH before one where package managers keep them, which are all called clang; zig's last."""
    monkeypatch.setenv("PATH", str(tmp_path))
    places = ("/usr/lib/llvm-19/bin/clang", "/usr/lib/llvm-22/bin/clang", "/opt/homebrew/opt/llvm@9/bin/clang")
    there = [Candidate((str(tmp_path / "clang-18"),), "PATH"), *(Candidate((place,), "PATH") for place in places)]
    there.insert(0, Candidate(("zig", "clang"), "ziglang"))
    tried: list[str] = []

    def refuse(candidate: Candidate) -> Any:
        tried.append(candidate.words[0])
        raise UsageError("does not run")

    monkeypatch.setattr(choice, "find_compilers", lambda: there)
    monkeypatch.setattr(choice, "identify", refuse)
    with pytest.raises(UsageError, match="no clang found"):
        choose_for_build(None)
    assert tried == [str(tmp_path / "clang-18"), places[1], places[0], places[2], "zig"]
