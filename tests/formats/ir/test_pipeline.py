"""Pipelines' text: its elements, and the pass at which the compiler shows the snapshot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.ir.pipeline import (
    AFTER,
    BEFORE,
    PRE_INLINING,
    Point,
    find_dump,
    find_point,
    parse_pipeline,
)

# As clang 19 prints it at -Oz, with most function passes left out.
OZ = (
    "annotation2metadata,function<eager-inv>(sroa<modify-cfg>,early-cse<>),ipsccp,globalopt,always-inline,"
    "require<globals-aa>,function(invalidate<aa>),require<profile-summary>,cgscc(devirt<4>(inline,"
    "function-attrs<skip-non-recursive-function-attrs>,function<eager-inv;no-rerun>(partially-inline-libcalls,"
    "licm<no-allowspeculation>),coro-split)),deadargelim,globalopt,globaldce,function(annotation-remarks)"
)
O0 = "function(ee-instrument<>),always-inline,coro-cond(coro-early,cgscc(coro-split),globaldce),function(x)"
PGO = "globalopt,cgscc(inline<only-mandatory>,inline,function<eager-inv>(sroa)),globaldce,pgo-instr-gen," + OZ


def test_elements_are_split_at_the_top_level_only() -> None:
    elements = parse_pipeline("a,b<c;d=1>(e,f<g>(h)),i<>")
    assert [element.text for element in elements] == ["a", "b<c;d=1>(e,f<g>(h))", "i<>"]
    assert [element.passes for element in elements] == [("a",), ("b", "e", "f", "h"), ("i",)]
    assert [element.is_module_pass for element in elements] == [True, False, True]
    assert parse_pipeline(" \n") == ()


@pytest.mark.parametrize("text", ["a(b", "a)b", "a<b)", "a,,b", ",", "a,(b)", "a>"])
def test_what_is_no_pipeline_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_pipeline(text)


@given(st.text("ab,()<>;-", max_size=30))
def test_elements_join_to_the_text(text: str) -> None:
    try:
        elements = parse_pipeline(text)
    except FormatError:
        return
    assert ",".join(element.text for element in elements) == text


def test_inlining_ends_behind_the_last_element_that_inlines() -> None:
    assert find_point(parse_pipeline(OZ)) == Point(BEFORE, "deadargelim")
    assert find_point(parse_pipeline(PGO)) == Point(BEFORE, "deadargelim")
    assert find_point(parse_pipeline(O0)) == Point(AFTER, "always-inline")


def test_the_snapshot_before_inlining() -> None:
    assert find_point(parse_pipeline(OZ), PRE_INLINING) == Point(BEFORE, "always-inline")
    assert find_point(parse_pipeline(O0), PRE_INLINING) == Point(BEFORE, "always-inline")
    assert find_point(parse_pipeline(PGO), PRE_INLINING) == Point(AFTER, "globalopt")


def test_a_pass_that_also_runs_before_is_counted() -> None:
    assert find_point(parse_pipeline("globalopt,a,cgscc(inline),globalopt,b")) == Point(BEFORE, "globalopt", 1)


def test_without_inlining_there_is_no_point() -> None:
    assert find_point(parse_pipeline("")) is None
    assert find_point(parse_pipeline("globalopt,function(partially-inline-libcalls)")) is None


def test_inlining_without_a_module_pass_behind_it_is_told() -> None:
    with pytest.raises(UnsupportedError, match="no module pass directly at the place"):
        find_point(parse_pipeline("a,cgscc(inline),function(b),c"))


def test_the_dump_that_is_meant_is_found() -> None:
    text = "warning: x\n; *** IR Dump Before A on [module] ***\none\n; *** IR Dump Before A on [module] ***\ntwo\n"
    assert find_dump(text, Point(BEFORE, "a", 0)) == "\none\n"
    assert find_dump(text, Point(BEFORE, "a", 1)) == "\ntwo\n"
    with pytest.raises(FormatError, match="found 2 dumps"):
        find_dump(text, Point(BEFORE, "a", 2))
