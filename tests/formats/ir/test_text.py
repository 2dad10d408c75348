"""Textual IR and features of it, by hand-made functions; `test_snapshot` compares with LLVM's own numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.ir.features import (
    IR2NATIVE_NAMES,
    OPCODES,
    PAIRS,
    dominator_levels,
    ir2native_vectors,
    parse_costs,
    parse_properties,
    snake_case,
)
from mlgo_corpus.formats.ir.text import body_digest, control_flow, opcodes, parse_attributes, parse_module, unquote

TEXT = r"""; ModuleID = 'a.bc'
source_filename = "a.c"
target datalayout = "e-m:e-i64:64"
target triple = "x86_64-pc-linux-gnu"

@s = private constant [9 x i8] c"} define\00"

; Function Attrs: nounwind
HEADER
    #dbg_value(i32 %0, !19, !DIExpression(), !24)
  %3 = tail call i32 asm sideeffect "jmp label %9", "=r,r"(i32 %1) #3, !dbg !26
  %"q = x" = musttail call i32 @g(i32 %3)
  call void @llvm.dbg.value(metadata i32 %0, metadata !19, metadata !DIExpression()), !dbg !5
  tail call void @llvm.dbg.declare(metadata ptr %0, metadata !19, metadata !DIExpression())
  call void @llvm.pseudoprobe(i64 1, i64 1, i32 0, i64 -1)
  notail call void @llvm.assume(i1 true) [ "align"(ptr %0, i64 8) ]
  switch i32 %3, label %"x y" [
    i32 1, label %4
    i32 7, label %4
  ], !dbg !47

4:                                                ; preds = %2, %2
  %5 = invoke i32 @g(i32 %3)
          to label %6 unwind label %7, !dbg !5

"x y":                                            ; preds = %2
  %c = cmpxchg ptr %0, i32 1, i32 2 seq_cst seq_cst, align 4
  br i1 undef, label %6, label %"x y", !llvm.loop !56

6:                                                ; preds = %4, %"x y"
  %p = phi i32 [ %5, %4 ], [ 0, %"x y" ]
  ret i32 %p

7:                                                ; preds = %4
  %8 = landingpad { ptr, i32 }
          cleanup
          catch ptr null
  resume { ptr, i32 } %8

9:                                                ; No predecessors!
  br label %9
}

define void @e() {
entry:
  ret void
}

attributes #0 = { nounwind memory(argmem: readwrite) uwtable(sync) "x"="a b" "y" allocsize(0) align=4 }
attributes #1 = { optsize }

!0 = !{!"define void @no() {"}
"""
TEXT = TEXT.replace(
    "HEADER",
    r'define internal fastcc range(i32 0, 2) i32 @"a\22b(\C3\A9"(ptr byval(%"struct.x(") align 8 %0, i32 %1)'
    r' unnamed_addr #1 section "s.x" comdat($c) align 2 personality ptr @p !dbg !13 {',
)


def test_functions_of_a_module() -> None:
    module = parse_module(TEXT)
    first, second = module.functions
    assert first.name == 'a"b(é'
    assert (first.linkage, first.comdat, first.section, first.attributes) == ("internal", "c", "s.x", 1)
    assert (second.name, second.linkage, second.comdat, second.attributes) == ("e", "external", "", None)
    assert module.triple == "x86_64-pc-linux-gnu"
    assert module.attributes[1] == {"optsize": ""}
    assert list(module.attributes[0]) == ["nounwind", "memory", "uwtable", "x", "y", "allocsize", "align"]
    assert module.attributes[0]["x"] == "a b"
    assert parse_module("").functions == ()


def test_opcodes_are_those_of_instructions_only() -> None:
    first, second = parse_module(TEXT).functions
    assert opcodes(first.body) == (
        "call call call switch invoke cmpxchg br phi ret landingpad resume br".split()  # noqa: SIM905
    )
    assert opcodes(second.body) == ["ret"]


def test_control_flow_of_blocks_with_and_without_names() -> None:
    first, second = parse_module(TEXT).functions
    assert control_flow(first.body) == [[2, 1, 1], [3, 4], [3, 2], [], [], [5]]
    assert control_flow(second.body) == [[]]
    assert dominator_levels(control_flow(first.body)) == [0, 1, 1, 1, 2, -1]
    with pytest.raises(FormatError, match="block 9"):
        control_flow("  br label %9\n")


def test_the_vector_of_a_function() -> None:
    functions = parse_module(TEXT).functions
    rows = ir2native_vectors(functions, np.array([17, 1]), np.array([2, 0]))
    assert rows.shape == (2, 214)
    assert rows.dtype == np.int32
    row = dict(zip(IR2NATIVE_NAMES, rows[0].tolist(), strict=True))
    present = {name: value for name, value in row.items() if value}
    assert present == {
        "initial_size": 17, "blocks": 6, "calls": 4, "is_local": 1, "loops": 2, "max_loop_depth": 1,
        "max_dom_tree_level": 2, "opcode_call": 3, "opcode_switch": 1, "opcode_invoke": 1, "opcode_cmpxchg": 1,
        "opcode_br": 2, "opcode_phi": 1, "opcode_ret": 1, "opcode_landingpad": 1, "opcode_resume": 1,
        "pair_call_call": 2, "pair_br_phi": 1, "pair_phi_ret": 1,
    }  # fmt: skip
    assert rows[1, :9].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0]
    with pytest.raises(FormatError, match="'frob' is not an opcode"):
        ir2native_vectors(parse_module("define void @f() {\n  frob\n}\n").functions, np.zeros(1, int), np.zeros(1, int))


def test_the_names_of_the_vector() -> None:
    assert len(IR2NATIVE_NAMES) == len(set(IR2NATIVE_NAMES)) == 214
    assert (OPCODES.index("freeze"), OPCODES.index("icmp"), OPCODES.index("trunc")) == (67, 53, 38)
    assert len(PAIRS) == 137
    assert list(PAIRS) == sorted(PAIRS)


def test_pairs_and_opcodes_are_those_of_the_source(devmode: Path) -> None:
    sources = sorted((devmode.parent / "devmode-build").glob("*/source-*/llvm"))
    if not sources:
        pytest.skip("the development-mode compiler's sources are gone")
    text = (sources[0] / "lib/Analysis/InlineSizeEstimatorAnalysis.cpp").read_text()
    table = text[text.index("ImportantInstructionSuccessions{") : text.index("// We have: 9")]
    assert tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+), +(\d+)\}", table)) == PAIRS
    for place in ("/usr/include/llvm-19", "/usr/lib/llvm-19/include"):
        if (path := Path(place) / "llvm/IR/Instruction.def").is_file():
            classes = re.findall(r"^HANDLE_\w+ *\( *(\d+), (\w+)", path.read_text(), re.MULTILINE)
            printed = {"AtomicCmpXchg": "cmpxchg", "VAArg": "va_arg"}
            assert {int(n): printed.get(name, name.lower()) for n, name in classes} == dict(enumerate(OPCODES[1:], 1))


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=8, max_size=8))
def test_dominators_are_those_of_the_definition(successors: list[list[int]]) -> None:
    def reached(without: int | None) -> set[int]:
        seen: set[int] = set()
        stack = [0] if without != 0 else []
        while stack:
            block = stack.pop()
            if block not in seen and block != without:
                seen.add(block)
                stack += successors[block]
        return seen

    alive = reached(None)
    # A block's depth is the number of blocks without which it cannot be reached, itself not counted.
    expected = [
        sum(block not in reached(other) for other in alive if other != block) if block in alive else -1
        for block in range(8)
    ]
    assert dominator_levels(successors) == expected


def test_digests_ignore_names_and_debug_information() -> None:
    def digest(body: str) -> bytes:
        return body_digest(parse_module(f"define void @f(i32 %0) {{\n{body}}}\n").functions[0])

    plain = digest(
        "  %2 = add i32 %0, 1\n  call void @g(i32 %2) #1, !dbg !1\n  br label %3\n\n3:      ; preds = %1\n  ret void\n"
    )
    other = digest(
        "    #dbg_value(i32 %0, !1, !DIExpression(), !2)\n  %x = add i32 %a, 1, !dbg !7\n  call void @h(i32 %x)\n"
        '  br label %"b c"\n\n"b c":     ; preds = %y\n  ret void, !dbg !3\n'
    )
    assert plain == other
    assert plain != digest("  %2 = add i32 %0, 2\n  call void @g(i32 %2)\n  br label %3\n\n3:\n  ret void\n")
    assert digest('  call void asm "x %0", ""()\n') != digest('  call void asm "x %1", ""()\n')
    assert digest("  call void @llvm.trap()\n") != digest("  call void @llvm.debugtrap()\n")


def test_attributes_and_names() -> None:
    assert parse_attributes('noinline "k"="v=\\22 }" memory(none)') == {"noinline": "", "k": 'v=" }', "memory": ""}
    assert unquote("a.b") == "a.b"
    assert unquote(r'"a\22\FF"') == 'a"\udcff'


def test_what_llvm_prints_of_functions() -> None:
    text = (
        "Printing analysis results of CFA for function 'f':\nBasicBlockCount: 9\nTopLevelLoopCount: 1\n\n"
        "Printing analysis 'Cost Model Analysis' for function 'f':\n"
        "Cost Model: Found an estimated cost of 2 for instruction:   %smax = call i32 @f(i32 0)\n"
        "Cost Model: Invalid cost for instruction:   ret void\n"
        "Printing analysis results of CFA for function 'g':\nBasicBlockCount: 1\nTopLevelLoopCount: 0\n\n"
        "Printing analysis 'Cost Model Analysis' for function 'g':\n"
        "Cost Model: Found an estimated cost of 1 for instruction:   ret void\n"
    )
    properties = parse_properties(text)
    assert properties.names == ("basic_block_count", "top_level_loop_count")
    assert properties.values.tolist() == [[9, 1], [1, 0]]
    assert parse_costs(text) == (2, 1)
    named = text.replace("'g'", "'it's\n\ng'")  # a name may have any character
    assert (parse_properties(named).values.tolist(), parse_costs(named)) == ([[9, 1], [1, 0]], (2, 1))
    assert snake_case("ConstantFPOperandCount") == "constant_fp_operand_count"
    with pytest.raises(FormatError, match="different properties"):
        parse_properties(text.replace("TopLevelLoopCount: 0\n", ""))
