"""What decides how many bytes instructions take, counted by hand, and text that nobody would print."""

from __future__ import annotations

import random
import re

import pytest

from mlgo_corpus.formats.ir.operands import OPERAND_MEANINGS, OPERAND_NAMES, operand_features
from mlgo_corpus.formats.ir.text import parse_module
from tests.conftest import Llvm

LOOP = """\
define dso_local i64 @f(ptr noundef captures(none) %0, i32 noundef %1) local_unnamed_addr #0 {
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 208
  %4 = tail call i32 @llvm.smax.i32(i32 %1, i32 0)
  br label %5

5:                                                ; preds = %21, %2
  %6 = phi i64 [ 0, %2 ], [ %18, %21 ]
  %7 = phi i32 [ 0, %2 ], [ %22, %21 ]
  %8 = icmp eq i32 %7, %4
  br i1 %8, label %9, label %13

9:                                                ; preds = %5
  %10 = load i32, ptr %0, align 8, !tbaa !9
  %11 = sext i32 %10 to i64
  %12 = add nsw i64 %6, %11
  ret i64 %12

13:                                               ; preds = %5
  %14 = load i32, ptr @g, align 4, !tbaa !5
  %15 = mul nuw nsw i32 %7, 7
  %16 = tail call i32 @ext(i32 noundef %7, i32 noundef 1000, i32 noundef 0, i32 noundef %1, ptr nonnull @g, i32 3) #7
  %17 = sext i32 %16 to i64
  %18 = add nsw i64 %6, %17
  %19 = icmp sgt i64 %18, 300
  br i1 %19, label %20, label %21

20:                                               ; preds = %13
  store i64 5, ptr %3, align 8, !tbaa !12
  br label %21

21:                                               ; preds = %13, %20
  %22 = add nuw i32 %7, 1
  br label %5, !llvm.loop !13
}
"""
SWITCH = """\
define i32 @s(i32 %x, ...) {
  switch i32 %x, label %5 [
    i32 1, label %6
    i32 2, label %2
  ]

2:                                                ; preds = %0
  br label %6

5:                                                ; preds = %0
  br label %6

6:                                                ; preds = %5, %2, %0
  %7 = phi i32 [ 100000, %5 ], [ 5000000000, %2 ], [ -1, %0 ]
  ret i32 %7
}
"""
FORWARD = """\
define void @w(ptr sret(%S) align 8 %r, i64 %a, double noundef %b) {
  %s = alloca [16 x i32], align 16
  call void @llvm.lifetime.start.p0(ptr nonnull %s)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(64) %s, i8 0, i64 64, i1 false)
  %i = getelementptr inbounds [4 x double], ptr %r, i64 0, i64 %a
  store double 2.500000e+00, ptr %i, align 8
  call void %a(ptr sret(%S) align 8 %r, i64 %a, ptr %s)
  tail call void @h(ptr %r, i64 -200, i64 %a)
  ret void
}
"""


def counts(text: str) -> dict[str, int]:
    """Return what the one function of a module has, without zeros."""
    (row,) = operand_features(parse_module(text).functions)
    return {name.removeprefix("operands_"): int(count) for name, count in zip(OPERAND_NAMES, row, strict=True) if count}


def test_a_loop_with_a_call() -> None:
    assert counts(LOOP) == {
        "parameters": 2,
        "returns_value": 1,
        "real_calls": 1,
        "frame_calls": 1,
        "results": 1,
        "other_intrinsics": 1,
        "arguments": 6,
        "argument_values": 2,
        "argument_addresses": 1,
        "arguments_of_parameters": 1,
        "argument_word": 1,
        "argument_zero": 1,
        "argument_byte": 1,
        "offset_word": 1,
        "access_word": 1,
        "access_plain": 1,
        "global_accesses": 1,
        "phi_i64": 1,
        "phi_i32": 1,
        "phi_values": 4,
        "phi_zero": 2,
        "casts_other": 2,
        "jumps": 1,
        "load_i32": 2,
        "store_i64": 1,
        "store_byte": 1,
        "compare_i32": 1,
        "compare_i64": 1,
        "compare_word": 1,
        "arithmetic_i64": 2,
        "arithmetic_i32": 2,
        "arithmetic_byte": 2,
        "multiplications_by_constants": 1,
        # Across the call: the parameters, the address, the maximum, and the two phis.
        "values_across_calls": 6,
        "most_across_calls": 6,
        "sum_across_calls": 6,
        "most_values": 7,
    }


def test_a_switch_and_constants_of_all_sizes() -> None:
    assert counts(SWITCH) == {
        "parameters": 1,
        "varargs": 1,
        "returns_value": 1,
        "switch_cases": 2,
        "jumps": 1,
        "most_values": 1,
        "phi_i32": 1,
        "phi_values": 3,
        "phi_word": 1,
        "phi_wide": 1,
        "phi_byte": 1,
    }


def test_arguments_in_place_memory_returned_and_stack_slots() -> None:
    assert counts(FORWARD) == {
        "parameters": 3,
        "returns_memory": 1,
        "float_parameters": 1,
        "free_intrinsics": 1,
        "copies_small": 1,
        "real_calls": 2,
        "indirect_calls": 1,
        "tail_calls": 1,
        "frame_calls": 1,
        "arguments": 6,
        "argument_values": 5,
        "arguments_in_place": 3,
        "arguments_of_parameters": 1,
        "argument_word": 1,
        "stack_slots": 1,
        "stack_bytes": 64,
        "float_constants": 1,
        "index_other": 1,
        "access_index": 1,
        "store_fp": 1,
        # The place of the result, and the number, across the first call; the former also to the end.
        "values_across_calls": 2,
        "most_across_calls": 2,
        "sum_across_calls": 3,
        "most_values": 3,
    }


@pytest.mark.llvm
def test_names_do_not_matter(llvm22: Llvm) -> None:
    named = LOOP.replace("%5", "%loop").replace("\n5:", "\nloop:").replace("%16", '%"a result"')
    assert counts(named) == counts(LOOP)


def test_each_feature_has_a_meaning() -> None:
    assert set(OPERAND_MEANINGS) == set(OPERAND_NAMES)
    assert all(OPERAND_MEANINGS.values())
    assert len(set(OPERAND_MEANINGS.values())) == len(OPERAND_NAMES)


def test_text_that_nobody_would_print_is_counted_all_the_same() -> None:
    draw = random.Random(0)
    words = [*re.findall(r"\S+|\n", LOOP + SWITCH + FORWARD), "9" * 30, "[", "(", '"', "%", "@", "i0"]
    for _ in range(300):
        body = " ".join(draw.choice(words) for _ in range(60)).replace("\n ", "\n  ")
        features = operand_features(parse_module(f"define void @x() {{\n  {body}\n}}\n").functions)
        assert (features >= 0).all()
