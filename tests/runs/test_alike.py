"""What the stages that run a compiler over a corpus share is the same in each: limits, edits, choices, reasons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus import CommandEdits, Limits, ModuleChoice, Tracer, ir2native_table, trace_corpus, verify_corpus
from mlgo_corpus.dataset.reasons import REASONS, RunReason
from mlgo_corpus.errors import UsageError
from tests import handmade

Run = Callable[..., Any]


def rebuild(corpus: Path, output: Path, **options: Any) -> Any:
    return verify_corpus(corpus, output=output.with_suffix(".parquet"), rebuild=True, **options)


STAGES = {"trace": trace_corpus, "ir2native": ir2native_table, "rebuild": rebuild}
EDITING = ("trace", "ir2native")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return handmade.corpus(tmp_path / "corpus", {"a.o": handmade.bitcode(), "b.o": handmade.bitcode()})


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, corpus: Path, tmp_path: Path) -> Run:
    return lambda **options: STAGES[request.param](corpus, tmp_path / "out", **options)


@pytest.fixture(params=EDITING)
def editing(request: pytest.FixtureRequest, corpus: Path, tmp_path: Path) -> Run:
    return lambda **options: STAGES[request.param](corpus, tmp_path / "out", **options)


def refused(run: Run, **options: Any) -> tuple[str | None, str | None, str]:
    with pytest.raises(UsageError) as caught:
        run(**options)
    return caught.value.option, caught.value.value, caught.value.message


@pytest.mark.parametrize(
    ("options", "option", "value", "message"),
    [
        ({"timeout": 0.0}, "timeout", "0", "expected seconds, more than 0 and less than 1000000"),
        ({"timeout": 1e9}, "timeout", "1e+09", "expected seconds, more than 0 and less than 1000000"),
        ({"timeout": float("nan")}, "timeout", "nan", "expected seconds, more than 0 and less than 1000000"),
        ({"memory_limit": 0}, "memory_limit", "0", "expected at least 1"),
        ({"memory_limit": 1 << 63}, "memory_limit", str(1 << 63), f"expected at most {1 << 62}"),
        ({"jobs": 0}, "jobs", "0", "expected at least 1"),
        ({"sample": "0"}, "sample", "0", "expected a number of modules, or a fraction such as 0.1 or 10%"),
        (
            {"module_filter": "("},
            "module_filter",
            "(",
            "not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        ({"modules_file": Path("/is/not/there")}, "modules_file", "/is/not/there", "No such file or directory"),
    ],
)
def test_every_stage_checks(stage: Run, options: Any, option: str, value: str, message: str, tmp_path: Path) -> None:
    assert refused(stage, **options) == (option, value, message)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.parametrize("kind", ["add", "delete", "replace"])
def test_an_edit_that_is_no_option_is_named(editing: Run, kind: str) -> None:
    option, value, message = refused(editing, **{f"{kind}_flags": ("x=y",)})
    assert (option, value) == (f"{kind}_flags", "x=y")
    assert "x" in message


def test_objects_say_what_keywords_say(editing: Run) -> None:
    assert refused(editing, limits=Limits(timeout=0.0)) == refused(editing, timeout=0.0)
    assert refused(editing, choice=ModuleChoice(sample="0")) == refused(editing, sample="0")
    assert refused(editing, edits=CommandEdits(add=("x",))) == refused(editing, add_flags=("x",))


def test_a_task_that_there_is_not_is_told_alike(corpus: Path, tmp_path: Path) -> None:
    traced = refused(lambda: trace_corpus(corpus, tmp_path / "out", task="none"))
    assert traced == refused(lambda: Tracer(corpus, task="none"))
    assert traced == ("task", "none", "expected one of inlining, regalloc-eviction, regalloc-priority")


def test_edits_are_part_of_the_key_and_limits_are_not() -> None:
    edits = CommandEdits.of(["-O1"], ["-g"], ["-x=y"], trusted=True)
    assert edits.key() == {
        "add_flags": ["-O1"],
        "delete_flags": ["-g"],
        "replace_flags": ["-x=y"],
        "trust_corpus": True,
    }
    assert not hasattr(Limits(), "key")


def test_every_stage_has_the_reasons_of_a_worker(tmp_path: Path) -> None:
    for stage, reasons in REASONS.items():
        of_workers = {RunReason.WORKER_DIED} if stage != "relink" else set()  # it has none: linkers run in threads
        assert {RunReason.OK, RunReason.TIMEOUT, RunReason.DISK_FULL} | of_workers <= set(reasons)
        assert list(reasons) == [reason for reason in RunReason if reason in reasons]
    assert set().union(*REASONS.values()) == set(RunReason)
