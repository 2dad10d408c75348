"""Meanings of a training log's columns: the features, decisions and scores of LLVM's three learned tasks.

Taken from the source of LLVM 19.1.7, and checked against the headers that LLVM 19 and 22 write: the features of 19 to
22 are the same, except for the two embeddings that 22 adds on request; 17 and 18 lack one or three of them.

- inlining: ``llvm/Analysis/InlineModelFeatureMaps.h`` names the features; ``InlineCostFeaturesAnalyzer`` in
  ``lib/Analysis/InlineCost.cpp`` computes the first 25, and ``MLInlineAdvisor::getAdviceImpl`` in
  ``lib/Analysis/MLInlineAdvisor.cpp`` the others. Where the one-line descriptions in the header contradict the
  computation, this module describes the computation.
  In interactive mode, LLVM 17 to 20 look up the input that receives the heuristic's decision in the wrong one of two
  lists, and so overwrite ``callee_basic_block_count``; 21 and 22 do not (`mlgo_corpus.policies.conversation` repairs
  it).
- eviction: ``lib/CodeGen/MLRegAllocEvictAdvisor.cpp``; priority: ``lib/CodeGen/MLRegAllocPriorityAdvisor.cpp``; the
  score of both: ``lib/CodeGen/RegAllocScore.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY

_INLINING = {
    "sroa_savings": "what of the callee's cost goes away because stack variables of the caller that are passed to it "
    "can be split into registers (SROA); in the inliner's units: 5 for an instruction, 25 for a call",
    "sroa_losses": "the same for those stack variables that cannot be split, as the callee's code shows",
    "load_elimination": "loads of the callee that repeat an earlier one; set back to 1 where a store or a call "
    "ends the search for them",
    "call_penalty": "25 for each call that the callee makes, and for each floating-point operation that the target has "
    "to call a library for",
    "call_argument_setup": "5 for each argument of the callee's calls through function pointers that stay unknown",
    "load_relative_intrinsic": "15 for each llvm.load.relative in the callee",
    "lowered_call_arg_setup": "5 for each argument of the callee's calls to known functions",
    "indirect_call_penalty": "always 0: nothing in LLVM adds to it",
    "jump_table_penalty": "for each switch of the callee that becomes a jump table 5 * (its entries + 2)",
    "case_cluster_penalty": "10 for each cluster of cases in the callee's switches that have no jump table and at most "
    "3 clusters; one less where the default cannot be reached",
    "switch_default_dest_penalty": "10 for each of the callee's switches that becomes a jump table and whose default "
    "can be reached; LLVM 17 and 18 do not have it",
    "switch_penalty": "10 for each expected comparison in the callee's switches of more than 3 clusters without a jump "
    "table",
    "unsimplified_common_instructions": "5 for each instruction of the callee that inlining here does not simplify "
    "away",
    "num_loops": "25 for each outermost loop of the callee that is not dead, if the caller is to be of minimal size "
    "(minsize, -Oz); else 0",
    "dead_blocks": "basic blocks of the callee that cannot be reached with the arguments given here",
    "simplified_instructions": "instructions of the callee that are gone when it is inlined here",
    "constant_args": "parameters of the callee whose arguments are constants here",
    "constant_offset_ptr_args": "parameters of the callee whose arguments are a pointer plus a constant, 0 included",
    "callsite_cost": "what the call costs now and inlining saves, as a negative number: 5 for it and 5 for each "
    "argument (more for one passed by value), and 25 for a call",
    "cold_cc_penalty": "1 if the callee has the calling convention for cold functions, else 0",
    "last_call_to_static_bonus": "1 if this is the only call of a function that nothing outside the module can call, "
    "so that the function goes when it is inlined; else 0",
    "is_multiple_blocks": "1 if the callee has a branch that the arguments given here do not decide, else 0",
    "nested_inlines": "calls of the callee through function pointers that become known here, and whose target the "
    "inliner could then take in as well",
    "nested_inline_cost_estimate": "what those targets cost in all, in the inliner's units",
    "threshold": "what is left of a threshold that begins at 5 and the target's bonuses: each block of the callee that "
    "the arguments given here do not lead out of takes some of it, and so does a lack of vector instructions. Not the "
    "heuristic's",
    "callee_basic_block_count": "basic blocks of the callee; 0, because it is not known, in traces of live sessions "
    "with LLVM 17 to 20, which write the heuristic's decision over it",
    "callsite_height": "the longest chain of calls from the caller down to a function without calls, before any "
    "inlining; 0 for such a function",
    "node_count": "functions defined in the module at this moment",
    "nr_ctant_params": "arguments of this call that are constants, also the variable ones",
    "cost_estimate": "what the heuristic says inlining costs, in the inliner's units, with all bonuses: less than 0 "
    "means that code gets smaller, about -15000 that the callee goes away with its only call",
    "edge_count": "direct calls in the module to functions that are defined in it, at this moment",
    "caller_users": "uses of the caller in the module, and 1 more if it is visible outside",
    "caller_conditionally_executed_blocks": "targets of the caller's conditional branches and switches, a block as "
    "often as it is one",
    "caller_basic_block_count": "basic blocks of the caller",
    "callee_conditionally_executed_blocks": "targets of the callee's conditional branches and switches, a block as "
    "often as it is one",
    "callee_users": "uses of the callee in the module, and 1 more if it is visible outside",
    "is_callee_avail_external": "1 if the callee is a copy of a function that lives in another module "
    "(available_externally) and is dropped later, else 0",
    "is_caller_avail_external": "1 if the caller is such a copy, else 0",
    "callee_embedding": "the callee as a vector (IR2Vec); only in LLVM 22 and later, with "
    "-ml-inliner-ir2vec-vocab-file",
    "caller_embedding": "the caller as a vector (IR2Vec); only in LLVM 22 and later, with "
    "-ml-inliner-ir2vec-vocab-file",
    "inlining_default": "what LLVM's heuristic would do: 1 to inline, 0 not to",
    "inlining_decision": "the decision: 1 to inline the callee here, 0 not to",
    "delta_size": "the score: by how many bytes the caller and the callee together grow by this decision, as a model "
    "of native size estimates: 0 if the call was not inlined, or inlining failed; 2147483647 if the module is too "
    "large after it; only where the compiler was given one",
}

# The meaning of a place in an eviction's tensors; stated once, with the mask.
_PLACES = (
    "Places 0 to 31 are the physical registers that could be freed, in the order in which the allocator tries them, "
    "and 32 is the live range that seeks a register"
)
_BY_MAX = "divided by the largest of the 33 (so 0 to 1)"
_OF_RANGES = "of the live ranges that are in this register"

_EVICTION = {
    "mask": f"1 if this place may be chosen, else 0, and then all other features are 0 there. {_PLACES}",
    "is_free": "1 if no live range is in the way in this register, else 0",
    "nr_urgent": f"how many {_OF_RANGES} may be evicted only because the seeker cannot be spilled; {_BY_MAX}",
    "nr_broken_hints": f"how many {_OF_RANGES} have it as their preferred one and would lose it; {_BY_MAX}",
    "is_hint": "1 if this is a register that the seeking live range prefers, else 0",
    "is_local": f"how many {_OF_RANGES} lie within one basic block, if the seeker does so, too; else 0",
    "nr_rematerializable": f"how many {_OF_RANGES} can be computed again instead of being kept; {_BY_MAX}",
    "nr_defs_and_uses": f"operands {_OF_RANGES}: how often they are written and read; {_BY_MAX}",
    "weighed_reads_by_max": f"instructions that only read one {_OF_RANGES}, each times its block's frequency; "
    f"{_BY_MAX}",
    "weighed_writes_by_max": f"instructions that only write one {_OF_RANGES}, each times its block's frequency; "
    f"{_BY_MAX}",
    "weighed_read_writes_by_max": f"instructions that read and write one {_OF_RANGES}, each times its block's "
    f"frequency; {_BY_MAX}",
    "weighed_indvars_by_max": f"writes to one {_OF_RANGES} that look like those to a loop's counter (in a block that "
    f"leaves a loop, and live after it), each times its block's frequency; {_BY_MAX}",
    "hint_weights_by_max": f"copies that would go away if one {_OF_RANGES} got the register that it prefers, each "
    f"times its block's frequency; {_BY_MAX}",
    "start_bb_freq_by_max": f"the frequency of the block where the first {_OF_RANGES} begins; {_BY_MAX}",
    "end_bb_freq_by_max": f"the frequency of the block where the last {_OF_RANGES} ends; {_BY_MAX}",
    "hottest_bb_freq_by_max": f"the highest frequency of a block that uses one {_OF_RANGES}; {_BY_MAX}",
    "liverange_size": f"the distance from the first beginning to the last end {_OF_RANGES}, in slots of the function's "
    f"instructions; {_BY_MAX}",
    "use_def_density": f"the largest spill weight {_OF_RANGES}; {_BY_MAX}. That of one that cannot be spilled is "
    "infinite: then it is NaN in its place and 0 in the others",
    "max_stage": f"the largest stage {_OF_RANGES}: 0 new, 1 assign, 2 split, 3 split again, 4 spill, 5 in memory, "
    "6 done",
    "min_stage": f"the smallest stage {_OF_RANGES}; 0 if there is none",
    "progress": "live ranges that wait for a register, divided by how many virtual registers the function had at the "
    "beginning; more than 1 where live ranges were split",
    "instructions": "opcodes of the first 300 instructions that the live ranges at hand cover; 0 for none, and for an "
    "opcode of 17716 and more. Only with -regalloc-enable-development-features",
    "instructions_mapping": "33 times 300: 1 where the live ranges of a place cover an instruction of instructions, "
    "else 0. Only with -regalloc-enable-development-features",
    "mbb_frequencies": "frequencies, relative to the function's entry, of the first 100 basic blocks that the live "
    "ranges cover. Only with -regalloc-enable-development-features",
    "mbb_mapping": "for each of instructions its block's place in mbb_frequencies. Only with "
    "-regalloc-enable-development-features",
    "index_to_evict": "the decision: from 0 to 31, the place of the register whose live ranges are evicted; 32 to "
    "evict none, so that the seeker is split or spilled",
}

_UNSET = "0 in logs of development mode without a model, which does not set it (LLVM 19)"

_PRIORITY = {
    "li_size": f"the live range's size: the sum of its segments' lengths in slots of the function's instructions; "
    f"{_UNSET}",
    "stage": f"the live range's stage: 0 new, 1 assign, 2 split, 3 split again, 4 spill, 5 in memory, 6 done; {_UNSET}",
    "weight": f"the live range's spill weight: its uses by frequency, divided by its size; {_UNSET}",
    "priority": "the decision: the live range with the highest one is allocated next. The heuristic's is a number of "
    "32 bits: 31 is set but for ranges that wait to be split or are in memory, 30 if a register is preferred, 29 to 24 "
    "tell global ranges and register classes, and the rest is a size or a distance",
}

_REGALLOC_SCORE = {
    "reward": "the score of the whole function, with its last observation; 0 before. The lower the better: the sum "
    "over all instructions of their block's frequency, relative to the function's entry, times 0.2 for a copy, 4 for a "
    "load, 1 for a store, 5 for both, 0.2 for a cheap value computed again and 1 for an expensive one",
}

MEANINGS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        INLINING: MappingProxyType(_INLINING),
        EVICTION: MappingProxyType({**_EVICTION, **_REGALLOC_SCORE}),
        PRIORITY: MappingProxyType({**_PRIORITY, **_REGALLOC_SCORE}),
    }
)
"""The meanings of features, decisions and scores, by task and by name: plain text, no markup."""


_LINKAGES = (
    "0 if it is private to its file, 1 if it is dropped where it is not used (as inline functions and templates are), "
    "2 if weak otherwise, 3 if visible outside, 4 for a copy of another module's (available_externally)"
)
_COPIES = "how many of the modules that are linked with each other have a definition of it; 1 if no other can have it"
_LIBRARY = "1 if its name is the C++ standard library's, by its mangling, else 0"
EXTENDED_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "callee_linkage": f"the callee: {_LINKAGES}",
        "caller_linkage": f"the caller: {_LINKAGES}",
        "callee_library": f"the callee: {_LIBRARY}",
        "caller_library": f"the caller: {_LIBRARY}",
        "callee_kind": "1 if the callee is a constructor, 2 if it is a destructor, 0 for any other function",
        "callee_arguments": "parameters of the callee",
        "callee_address_taken": "1 if something other than a call uses the callee, else 0",
        "calls_in_caller": "calls of the callee in the caller at this moment",
        "callee_asked": "decisions about calls of the callee before this one in the module",
        "callee_inlined": "how many of the decisions before, about calls of the callee, were to inline",
        "callee_copies": f"the callee: {_COPIES}",
        "caller_copies": f"the caller: {_COPIES}",
    }
)
"""The meanings of the features of inlining that only an extended clang tells."""


def describe(task: str | None, name: str) -> str | None:
    """Return the meaning of a feature, a decision or a score of one of LLVM's tasks; None if it is unknown."""
    found = MEANINGS.get(task or "", {}).get(name)
    return EXTENDED_MEANINGS.get(name) if found is None and task == INLINING else found
