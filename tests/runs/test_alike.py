"""What the stages that run a compiler over a corpus share is the same in each: limits, edits, choices, reasons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus import (
    CommandEdits,
    Corpus,
    Limits,
    ModuleChoice,
    Tracer,
    evaluate_corpus,
    ir2native_table,
    search_corpus,
    split_corpus,
    trace_corpus,
    verify_corpus,
)
from mlgo_corpus.dataset.reasons import RELINK_REASONS, SIZES_REASONS, TRACE_REASONS, RunReason
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


@pytest.mark.parametrize(
    ("option", "objects", "keywords", "named"),
    [
        ("choice", {"choice": ModuleChoice(sample="2")}, {"module_filter": "a"}, "module_filter"),
        ("choice", {"choice": ModuleChoice()}, {"sample": 2}, "sample"),
        ("edits", {"edits": CommandEdits()}, {"add_flags": "-O1"}, "add_flags"),
        ("edits", {"edits": CommandEdits()}, {"trust_corpus": True}, "trust_corpus"),
        ("limits", {"limits": Limits()}, {"timeout": 77}, "timeout"),
    ],
)
def test_an_object_and_its_keywords_are_too_much(
    corpus: Path, tmp_path: Path, option: str, objects: Any, keywords: Any, named: str
) -> None:
    stages = [trace_corpus, ir2native_table, search_corpus, partial(evaluate_corpus, policies="never")]
    for run in stages:
        found = refused(partial(run, corpus, tmp_path / "out"), **objects, **keywords)
        assert found == (option, None, f"expected this or `{named}`, found both")
    # A seed is not the choice's alone.
    wrong = ModuleChoice(sample="0")
    assert refused(partial(trace_corpus, corpus, tmp_path / "out"), choice=wrong, seed=3)[0] == "sample"


def test_numbers_and_texts_of_other_types(editing: Run, corpus: Path, tmp_path: Path) -> None:
    for number in (np.float64(0.0), 0, np.int64(0)):
        assert refused(editing, sample=number)[0] == "sample"
    assert refused(editing, seed=1.5) == ("seed", "1.5", "expected a whole number")
    assert refused(editing, seed=np.int64(3), sample=np.int32(2), compiler=Path("no-such-clang"))[2].startswith(
        "no-such"
    )
    assert refused(editing, add_flags="x=y")[:2] == ("add_flags", "x=y")
    assert CommandEdits.of("-O1", "-g", "-x=y", trusted=False) == CommandEdits(("-O1",), ("-g",), ("-x=y",))
    for wrong, said in ((None, "None"), (Corpus.open(corpus), "a Corpus, of which `path` is the folder"), (5, "5")):
        for run in (trace_corpus, ir2native_table, search_corpus, verify_corpus, split_corpus):
            output = {} if run in (verify_corpus, split_corpus) else {"output": tmp_path / "out"}
            found = refused(partial(run, wrong, **output))
            assert found == ("corpus", None, f"expected the folder of a corpus, or a URL, found {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


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
    stages = (TRACE_REASONS, SIZES_REASONS, RELINK_REASONS)
    for reasons in stages:
        # A relink has none: linkers run in threads.
        of_workers = {RunReason.WORKER_DIED} if reasons is not RELINK_REASONS else set()
        assert {RunReason.OK, RunReason.TIMEOUT, RunReason.DISK_FULL} | of_workers <= set(reasons)
        assert list(reasons) == [reason for reason in RunReason if reason in reasons]
    assert set().union(*stages) == set(RunReason) - {RunReason.WRONG_HASH}  # which only a rebuild has
