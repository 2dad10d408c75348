"""Features of functions: the vector of LLVM's IR2Native model, and LLVM's own function properties.

The IR2Native vector (``lib/Analysis/InlineSizeEstimatorAnalysis.cpp``, in LLVM up to 21) is int32:

===========  =====  ==================================================================================================
0 to 8           9  ``initial_size``: the sum of the target's code-size costs of all instructions; ``blocks``;
                    ``calls`` (``call``, ``invoke``, ``callbr``); ``is_local``, ``is_linkonce_odr``, ``is_linkonce``
                    (either kind); ``loops`` and ``max_loop_depth``, both of outermost loops only, so the depth is 0
                    or 1; ``max_dom_tree_level``, of reachable blocks
9 to 76         68  how often each opcode is there, by its number (``llvm/IR/Instruction.def``); number 0 is none's
77 to 213      137  how often one opcode follows another, of 137 pairs that were chosen once
===========  =====  ==================================================================================================

An instruction follows the one printed before it, also across blocks; the first follows opcode 0. Debug information and
pseudo probes are left out. Opcodes have had these numbers from LLVM 11 to 21. LLVM 22 has one more, ``ptrtoaddr``, and
no such analysis: there the vector is what LLVM 21 would have given, with ``ptrtoaddr`` under number 0.

LLVM's function properties (``lib/Analysis/FunctionPropertiesAnalysis.cpp``) are what ``print<func-properties>`` prints
with ``-enable-detailed-function-properties`` (LLVM 18 and later). They count reachable blocks only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.ir.text import Function, control_flow, opcodes


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OPCODES: Final = _words(
    """
    none ret br switch indirectbr invoke resume unreachable cleanupret catchret catchswitch callbr
    fneg add fadd sub fsub mul fmul udiv sdiv fdiv urem srem frem shl lshr ashr and or xor
    alloca load store getelementptr fence cmpxchg atomicrmw
    trunc zext sext fptoui fptosi uitofp sitofp fptrunc fpext ptrtoint inttoptr bitcast addrspacecast
    cleanuppad catchpad icmp fcmp phi call select userop1 userop2 va_arg
    extractelement insertelement shufflevector extractvalue insertvalue landingpad freeze
    """
)
"""The printed names of opcodes, by their numbers in LLVM 11 to 21."""

# An opcode of LLVM 22 without a place in the vector.
_LATER = ("ptrtoaddr",)
_NUMBERS = {name: number for number, name in enumerate(OPCODES)} | dict.fromkeys(_LATER, 0)
_CALLS = [_NUMBERS[name] for name in ("call", "invoke", "callbr")]

# ImportantInstructionSuccessions of InlineSizeEstimatorAnalysis.cpp: the first opcode, and those that follow it.
_SUCCESSIONS = {
    1: (1, 4, 5, 7, 8, 9, 11, 12, 13, 14, 18, 20, 22, *range(24, 35), 39, 40, 42, 45),
    2: (1, 2, 13, 28, 29, 32, 33, 34, 38, 48, 49, 53, 55, 56),
    13: (2, 13, 26, 33, 34, 56),
    15: (27,),
    28: (2, 48, 53),
    29: (2, 33, 56),
    31: (31, 33, 34, 49),
    32: (1, 2, 13, 15, 28, 29, 32, 33, 34, 39, 40, 48, 49, 53, 56),
    33: (1, 2, 32, 33, 34, 49, 53, 56),
    34: (1, 2, 32, 33, 34, 49, 53, 56),
    38: (34,),
    39: (57,),
    40: (34,),
    47: (15, 49),
    48: (2, 34, 56),
    49: (1, 2, 28, 32, 33, 34, 39, 49, 56),
    53: (1, 2, 28, 34, 53, 57),
    55: (1, 28, 34, 53, 55, 56),
    56: (1, 2, 7, 13, 32, 33, 34, 49, 53, 56, 64),
    57: (34, 56, 57),
    64: (1, 64),
    65: (1, 65),
}
PAIRS: Final = tuple((first, second) for first, seconds in _SUCCESSIONS.items() for second in seconds)
"""The pairs of opcode numbers that the vector counts, in its order."""

NAMED: Final = (
    *("initial_size", "blocks", "calls", "is_local", "is_linkonce_odr", "is_linkonce"),
    *("loops", "max_loop_depth", "max_dom_tree_level"),
)
"""The vector's first features."""

IR2NATIVE_NAMES: Final = (
    *NAMED,
    *(f"opcode_{name}" for name in OPCODES),
    *(f"pair_{OPCODES[first]}_{OPCODES[second]}" for first, second in PAIRS),
)
"""The names of the vector's features, in order."""

_PAIR_PLACES = np.full((len(OPCODES), len(OPCODES)), len(PAIRS), np.int64)
for _place, _pair in enumerate(PAIRS):
    _PAIR_PLACES[_pair] = _place


def ir2native_vectors(
    functions: Sequence[Function], sizes: NDArray[np.int64], loops: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Compute the IR2Native vector of each function: one row per function, `IR2NATIVE_NAMES` wide.

    Args:
        functions: as `parse_module` returns them.
        sizes: each function's sum of code-size costs.
        loops: each function's number of outermost loops.

    Raises:
        FormatError: an opcode is unknown.
    """
    rows = np.zeros((len(functions), len(IR2NATIVE_NAMES)), np.int32)
    if not functions:
        return rows
    sequences = [opcodes(function.body) for function in functions]
    try:
        ids = np.array([_NUMBERS[name] for sequence in sequences for name in sequence], np.int64)
    except KeyError as unknown:
        raise FormatError(f"{unknown.args[0]!r} is not an opcode of LLVM 17 to 22") from None
    lengths = np.array([len(sequence) for sequence in sequences])
    owner = np.repeat(np.arange(len(functions)), lengths)
    before = np.concatenate(([0], ids[:-1])) if len(ids) else ids
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    before[starts] = 0
    histogram = _counts(owner, ids, len(functions), len(OPCODES))
    pairs = _counts(owner, _PAIR_PLACES[before, ids], len(functions), len(PAIRS) + 1)[:, :-1]
    flows = [control_flow(function.body) for function in functions]
    linkages = [function.linkage for function in functions]
    rows[:, 0] = sizes
    rows[:, 1] = [len(flow) for flow in flows]
    rows[:, 2] = histogram[:, _CALLS].sum(axis=1)
    rows[:, 3] = [linkage in ("internal", "private") for linkage in linkages]
    rows[:, 4] = [linkage == "linkonce_odr" for linkage in linkages]
    rows[:, 5] = [linkage in ("linkonce", "linkonce_odr") for linkage in linkages]
    rows[:, 6] = loops
    rows[:, 7] = loops > 0
    rows[:, 8] = [max(dominator_levels(flow)) for flow in flows]
    rows[:, len(NAMED) : len(NAMED) + len(OPCODES)] = histogram
    rows[:, len(NAMED) + len(OPCODES) :] = pairs
    return rows


def _counts(owner: NDArray[np.int64], values: NDArray[np.int64], rows: int, columns: int) -> NDArray[np.int64]:
    return np.bincount(owner * columns + values, minlength=rows * columns).reshape(rows, columns)


def dominator_levels(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return each block's depth in the dominator tree: 0 for the entry (block 0), -1 for an unreachable block.

    The algorithm is Cooper's, Harvey's and Kennedy's ("A Simple, Fast Dominance Algorithm", 2001).
    """
    size = len(successors)
    order = _postorder(successors)
    number = [-1] * size
    for position, block in enumerate(order):
        number[block] = position
    # By number in postorder, so that a walk up the tree only compares numbers; the entry has the largest.
    predecessors: list[list[int]] = [[] for _ in order]
    for position, block in enumerate(order):
        for successor in successors[block]:
            predecessors[number[successor]].append(position)
    entry = len(order) - 1
    dominator = [-1] * len(order)
    dominator[entry] = entry
    changed = True
    while changed:
        changed = False
        for block in range(entry - 1, -1, -1):
            new = -1
            for other in predecessors[block]:
                if dominator[other] < 0:
                    continue
                if new < 0:
                    new = other
                    continue
                while new != other:
                    while new < other:
                        new = dominator[new]
                    while other < new:
                        other = dominator[other]
            if dominator[block] != new:
                dominator[block] = new
                changed = True
    depth = [0] * len(order)
    for block in range(entry - 1, -1, -1):
        depth[block] = depth[dominator[block]] + 1
    return [depth[position] if position >= 0 else -1 for position in number]


def _postorder(successors: Sequence[Sequence[int]]) -> list[int]:
    order = []
    seen = bytearray(len(successors))
    seen[0] = 1
    stack = [(0, iter(successors[0]))]
    while stack:
        block, rest = stack[-1]
        for successor in rest:
            if not seen[successor]:
                seen[successor] = 1
                stack.append((successor, iter(successors[successor])))
                break
        else:
            order.append(block)
            stack.pop()
    return order


# --- LLVM's printed analyses


@dataclass(frozen=True, slots=True)
class Properties:
    """LLVM's function properties: the features' names, and a row of int64 per function."""

    names: tuple[str, ...]
    values: NDArray[np.int64]


NO_PROPERTIES: Final = Properties((), np.zeros((0, 0), np.int64))
"""The properties of a module without functions."""

# A name may have any character, also a newline.
_PROPERTIES_HEAD = re.compile(r"^Printing analysis results of CFA for function '(?s:.*?)':\n", re.MULTILINE)
_PROPERTY = re.compile(r"^(\w+): (-?\d+)$", re.MULTILINE)
_COSTS_HEAD = re.compile(r"^Printing analysis 'Cost Model Analysis' for function '(?s:.*?)':\n", re.MULTILINE)
_COST = re.compile(r"^Cost Model: (?:Found an estimated cost of (-?\d+)|Invalid cost)", re.MULTILINE)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """Write ``ConstantFPOperandCount`` as ``constant_fp_operand_count``."""
    return _WORDS.sub("_", name).lower()


def parse_properties(text: str) -> Properties:
    """Read the output of ``print<func-properties>``, one row per function in the order of printing.

    Raises:
        FormatError: functions have different properties.
    """
    blocks = [_PROPERTY.findall(block) for block in _PROPERTIES_HEAD.split(text)[1:]]
    if not blocks:
        return NO_PROPERTIES
    names = [name for name, _ in blocks[0]]
    if any([name for name, _ in block] != names for block in blocks):
        raise FormatError("functions have different properties")
    values = np.array([[int(value) for _, value in block] for block in blocks], np.int64)
    return Properties(tuple(snake_case(name) for name in names), values.reshape(len(blocks), len(names)))


def parse_costs(text: str) -> tuple[int, ...]:
    """Add up the costs that ``print<cost-model>`` printed, per function in the order of printing.

    A cost that the target calls invalid is left out, because LLVM's own sum with it is undefined.
    """
    blocks = _COSTS_HEAD.split(text)[1:]
    return tuple(sum(int(cost) for cost in _COST.findall(block) if cost) for block in blocks)
