"""A learned policy as C99: ``policy.c`` and ``policy.h``, which need nothing but a compiler.

They decide as `mlgo_corpus.policies.models` does, to the bit, if they are compiled for IEEE doubles without
contraction, as by ``cc -O2 -ffp-contract=off``; the pragmas in them ask for that, too. They hold no state, take no
memory, and call nothing but memcpy, so that any number of threads may decide.

Names in a policy are letters, digits and a few signs, so that they can stand in C. No other text of it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.learned import MASK, LearnedPolicy
from mlgo_corpus.policies.models import Model, Network, Quantiles, Rule, Scaling, Trees

ABI: Final = 1
"""The version of the functions in ``policy.h``."""

HEADER: Final = f"""\
/* A learned policy: who decides in place of a heuristic of LLVM's. Made by mlgo-corpus. */
#ifndef MLGO_POLICY_H
#define MLGO_POLICY_H

#define MLGO_POLICY_ABI {ABI}

#ifdef __cplusplus
extern "C" {{
#endif

/* MLGO_POLICY_ABI of the header that the policy was compiled with. */
int mlgo_policy_abi(void);
/* TASK-MAJOR.MINOR */
const char *mlgo_policy_name(void);
/* "inlining", "regalloc-eviction" or "regalloc-priority"; "native-size" for a model of the size of a function */
const char *mlgo_policy_task(void);
/* What identifies all that the policy decides by: 64 hexadecimal digits. */
const char *mlgo_policy_digest(void);
int mlgo_policy_feature_count(void);
/* As LLVM names it; NULL for an index out of range. */
const char *mlgo_policy_feature_name(int index);
/* "int64_t" or "float", of a size's model also "int32_t"; NULL for an index out of range. */
const char *mlgo_policy_feature_type(int index);
/* The number of elements: 1, or one for each candidate; 0 for an index out of range. */
long long mlgo_policy_feature_size(int index);
/* "int64_t" (inlining: 0 or 1; eviction: the candidate) or "float" (priority; a function's bytes) */
const char *mlgo_policy_decision_type(void);
/* Decides: features[i] points to the elements of feature i, decision to one element; no alignment is needed. */
void mlgo_policy_decide(const void *const *features, void *decision);

#ifdef __cplusplus
}}
#endif

#endif
"""

_BEGIN: Final = """\
/* The policy @name@, made by mlgo-corpus. Compile it with -O2 -ffp-contract=off. */
#include "policy.h"

#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

"""

_ABOUT: Final = """
int mlgo_policy_abi(void) { return MLGO_POLICY_ABI; }
const char *mlgo_policy_name(void) { return "@name@"; }
const char *mlgo_policy_task(void) { return "@task@"; }
const char *mlgo_policy_digest(void) { return "@digest@"; }
int mlgo_policy_feature_count(void) { return FEATURES; }
const char *mlgo_policy_feature_name(int index) {
  return index < 0 || index >= FEATURES ? 0 : feature_name[index];
}
const char *mlgo_policy_feature_type(int index) {
  return index < 0 || index >= FEATURES ? 0 : feature_type[index];
}
long long mlgo_policy_feature_size(int index) {
  return index < 0 || index >= FEATURES ? 0 : feature_size[index];
}
const char *mlgo_policy_decision_type(void) { return "@type@"; }
"""

_LOAD: Final = """
static double element(const void *const *features, int feature, int index) {
  if (feature_is_float[feature]) {
    float value;
    memcpy(&value, (const char *)features[feature] + (size_t)index * sizeof value, sizeof value);
    return value;
  }
  int64_t value;
  memcpy(&value, (const char *)features[feature] + (size_t)index * sizeof value, sizeof value);
  return (double)value;
}
"""

_INLINING: Final = """
@declared@(const void *const *features, void *decision) {
  double x[FEATURES];
  for (int i = 0; i < FEATURES; ++i)
    x[i] = element(features, i, 0);
  int64_t answer = score(x) > @threshold@;
  memcpy(decision, &answer, sizeof answer);
}
"""

_PRIORITY: Final = """
@declared@(const void *const *features, void *decision) {
  double x[FEATURES];
  for (int i = 0; i < FEATURES; ++i)
    x[i] = element(features, i, 0);
  float answer = (float)score(x);
  memcpy(decision, &answer, sizeof answer);
}
"""

_EVICTION: Final = """
/* A score that is NaN is less than any number; the first of the best is taken. */
@declared@(const void *const *features, void *decision) {
  int64_t answer = -1;
  double best = 0.0;
  for (int candidate = 0; candidate < CANDIDATES; ++candidate) {
    if (element(features, MASK, candidate) == 0.0)
      continue;
    double x[FEATURES];
    for (int i = 0; i < FEATURES; ++i)
      x[i] = element(features, i, feature_size[i] == 1 ? 0 : candidate);
    double found = score(x);
    if (found != found)
      found = -1e308 * 10.0;
    if (answer < 0 || found > best) {
      answer = candidate;
      best = found;
    }
  }
  if (answer < 0)
    answer = 0;
  memcpy(decision, &answer, sizeof answer);
}
"""

# Trees of few leaves: Lucchese et al., "QuickScorer" (SIGIR 2015). Walking from node to node waits for memory and for
# mispredicted branches at each step: it takes four times as long.
_MARKED_TREES: Final = """
/* Each tree has a bit for each of its leaves, the leftmost the lowest. A node whose input is greater than its
   threshold, or NaN, clears those of its left side. Then the lowest that is left is that of the leaf where a walk
   would end. The nodes are sorted by feature and threshold, so that those to visit come first. */
static int lowest(leaves_t bits) {
#if defined(__GNUC__)
  return @ctz@(bits);
#else
  int place = 0;
  while (!(bits & 1)) {
    bits >>= 1;
    ++place;
  }
  return place;
#endif
}

static double score(double *x) {
@zeros@  leaves_t left[TREES];
  memset(left, 255, sizeof left);
  for (int i = 0; i < INPUTS; ++i) {
    int node = begin[i], end = begin[i + 1];
    for (; node + 8 <= end && !(x[i] <= threshold[node + 7]); node += 8) {
@eight@    }
    for (; node < end && !(x[i] <= threshold[node]); ++node)
      left[tree[node]] &= mask[node];
  }
  double total = @bias@;
  for (int i = 0; i < TREES; ++i)
    total += leaf[root[i] + lowest(left[i])];
  return total;
}
"""

_WALKED_TREES: Final = """
/* A child is the number of a node, or ~leaf. NaN goes right. */
static double score(double *x) {
@zeros@  double total = @bias@;
  for (int i = 0; i < TREES; ++i) {
    int node = root[i];
    while (node >= 0)
      node = child[2 * node + !(x[feature[node]] <= threshold[node])];
    total += leaf[~node];
  }
  return total;
}
"""

# The bits of a word, and what fits on any thread's stack.
_MOST_MARKED_LEAVES: Final = 64
_MOST_MARKED_TREES: Final = 4096

# The most columns of a line of C.
_WIDTH: Final = 110

_LAYER: Final = """
static void layer(const double *in, int ins, double *out, int outs, const double *weight, const double *bias) {
  for (int j = 0; j < outs; ++j)
    out[j] = bias[j];
  for (int i = 0; i < ins; ++i)
    for (int j = 0; j < outs; ++j) {
      double product = in[i] * weight[i * outs + j];
      out[j] += product;
    }
}

static void relu(double *values, int count) {
  for (int i = 0; i < count; ++i)
    values[i] = values[i] > 0.0 ? values[i] : 0.0;
}
"""

_QUANTILE: Final = """
/* How many of the sorted edges are at most x: none if x is NaN. */
static double quantile(double x, const double *edge, int count) {
  int first = 0, last = count;
  while (first < last) {
    int middle = first + (last - first) / 2;
    if (edge[middle] <= x)
      first = middle + 1;
    else
      last = middle;
  }
  return (double)first / (double)count;
}
"""


def policy_source(policy: LearnedPolicy) -> tuple[str, str]:
    """Return the texts of ``policy.c`` and ``policy.h``."""
    about = {"name": policy.name, "task": policy.task, "digest": policy.digest, "type": policy.decision_type}
    begin, end = about_source(about)
    return "".join((begin, decide_source(policy, "void mlgo_policy_decide"), end)), HEADER


def decide_source(policy: LearnedPolicy, declared: str) -> str:
    """Return the part of the source that decides: C99 that is C++17, too, with names that can stand in any namespace.

    Args:
        policy: the policy.
        declared: what is before the parameters of the function that decides.
    """
    count = str(len(policy.features))
    constants = {"FEATURES": count, "INPUTS": count, "CANDIDATES": str(policy.candidates)}
    if policy.task == EVICTION:
        constants["MASK"] = str([spec.name for spec in policy.features].index(MASK))
    if isinstance(policy.model, Trees):
        constants["TREES"] = str(len(policy.model.roots))
    decide = {INLINING: _INLINING, EVICTION: _EVICTION}.get(policy.task, _PRIORITY)
    return "".join(
        (
            enumerated(constants),
            *feature_tables(policy.features),
            c_table("unsigned char", "feature_is_float", [str(int(spec.type == "float")) for spec in policy.features]),
            *model_source(policy.model, len(policy.features)),
            _LOAD,
            filled(decide, {"declared": declared, "threshold": c_double(policy.threshold)}),
        )
    )


def about_source(about: dict[str, str]) -> tuple[str, str]:
    """Return the beginning and the end of ``policy.c``: the values are name, task, digest and type."""
    return filled(_BEGIN, about), filled(_ABOUT, about)


def enumerated(constants: Mapping[str, str]) -> str:
    """Return the definition of constants."""
    return f"enum {{ {', '.join(f'{name} = {value}' for name, value in constants.items())} }};\n\n"


def filled(text: str, values: dict[str, str]) -> str:
    """Return a text in which ``@NAME@`` is replaced by the value of each name."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def feature_tables(features: Sequence[TensorSpec]) -> Iterator[str]:
    """Yield the arrays of the features' names, types and sizes."""
    names = ",\n".join(f'  "{spec.name}"' for spec in features)
    yield f"static const char *const feature_name[FEATURES] = {{\n{names}}};\n"
    yield c_table("char *const", "feature_type", [f'"{spec.type}"' for spec in features])
    yield c_table("short", "feature_size", [str(spec.element_count) for spec in features])


def model_source(model: Model, inputs: int) -> Iterator[str]:
    """Yield the parts of the source that make a score of INPUTS doubles."""
    if isinstance(model, Rule):
        yield from _rule(model)
    elif isinstance(model, Trees):
        yield from _trees(model, inputs)
    elif isinstance(model, Network):
        yield from _network(model)
    else:
        raise TypeError(f"no C is known for a {type(model).__name__}")


def _rule(rule: Rule) -> Iterator[str]:
    yield c_table("double", "weight", map(c_double, rule.weights))
    yield "\nstatic double score(const double *x) {\n"
    yield f"  double total = {c_double(rule.bias)};\n"
    yield "  for (int i = 0; i < INPUTS; ++i) {\n    double product = x[i] * weight[i];\n    total += product;\n  }\n"
    yield "  return total;\n}\n"


def _trees(trees: Trees, features: int) -> Iterator[str]:
    zeros = "".join(f"  if (x[{number}] != x[{number}])\n    x[{number}] = 0.0;\n" for number in trees.nan_as_zero)
    marks = _Marks(trees)
    if marks.most_leaves > _MOST_MARKED_LEAVES or len(trees.roots) > _MOST_MARKED_TREES:
        yield c_table("int", "root", map(str, trees.roots.tolist()))
        yield c_table("short", "feature", map(str, trees.feature.tolist()))
        yield c_table("double", "threshold", map(c_double, trees.threshold.tolist()))
        yield c_table("int", "child", map(str, trees.children.ravel().tolist()))
        yield c_table("double", "leaf", map(c_double, trees.leaves.tolist()))
        yield filled(_WALKED_TREES, {"zeros": zeros, "bias": c_double(trees.bias)})
        return
    bits, ctz = (32, "__builtin_ctz") if marks.most_leaves <= 32 else (64, "__builtin_ctzll")
    order = np.lexsort((trees.threshold, trees.feature))
    begin = np.searchsorted(trees.feature[order], np.arange(features + 1))
    yield f"typedef uint{bits}_t leaves_t;\n"
    yield c_table("int", "begin", map(str, begin.tolist()))
    yield c_table("double", "threshold", map(c_double, trees.threshold[order].tolist()))
    yield c_table("short", "tree", (str(marks.trees[node]) for node in order.tolist()))
    eight = "".join(f"      left[tree[node + {number}]] &= mask[node + {number}];\n" for number in range(8))
    yield c_table("leaves_t", "mask", (hex(~marks.left[node] & (1 << bits) - 1) for node in order.tolist()))
    yield c_table("int", "root", map(str, marks.first_leaf))
    yield c_table("double", "leaf", map(c_double, trees.leaves[marks.leaves].tolist()))
    yield filled(_MARKED_TREES, {"zeros": zeros, "bias": c_double(trees.bias), "ctz": ctz, "eight": eight})


class _Marks:
    """The leaves of trees in their order from the left, and what each node has on its left side.

    Attributes:
        trees: the tree of each node.
        left: of each node, a bit for each leaf of the tree that is below its left child, the leftmost the lowest.
        leaves: the numbers of all leaves, tree by tree.
        first_leaf: of each tree, the place of its first one in ``leaves``.
        most_leaves: the number of leaves of the tree that has most.
    """

    def __init__(self, trees: Trees) -> None:
        self.trees = [0] * len(trees.feature)
        self.left = [0] * len(trees.feature)
        self.leaves: list[int] = []
        self.first_leaf: list[int] = []
        self.most_leaves = 0
        children = trees.children.tolist()
        for number, root in enumerate(trees.roots.tolist()):
            self.first_leaf.append(len(self.leaves))
            self._walk(number, root, children)
            self.most_leaves = max(self.most_leaves, len(self.leaves) - self.first_leaf[-1])

    def _walk(self, number: int, root: int, children: Sequence[Sequence[int]]) -> None:
        stack = [(root, -1)]  # a place, and the node whose left side ends before it
        first = self.first_leaf[-1]
        begins: dict[int, int] = {}
        while stack:
            place, ended = stack.pop()
            if ended >= 0:
                self.left[ended] = (1 << len(self.leaves) - first) - (1 << begins.pop(ended) - first)
            if place < 0:
                self.leaves.append(~place)
                if len(self.leaves) - first > _MOST_MARKED_LEAVES:
                    return  # nothing of it is used, and as many bits for each node may be gigabytes
            else:
                self.trees[place] = number
                begins[place] = len(self.leaves)
                stack += [(children[place][1], place), (children[place][0], -1)]


def _network(network: Network) -> Iterator[str]:
    yield _LAYER
    if any(isinstance(normalise, Quantiles) for normalise in network.inputs):
        yield _QUANTILE
    body = []
    step = 1 + network.squares
    for number, normalise in enumerate(network.inputs):
        value = f"x[{number}]"
        if isinstance(normalise, Quantiles):
            yield c_table("double", f"edge_{number}", map(c_double, normalise.edges.tolist()))
            value = f"quantile({value}, edge_{number}, {len(normalise.edges)})"
        elif isinstance(normalise, Scaling):
            value = f"({value} - {c_double(normalise.mean)}) * {c_double(normalise.scale)}"
        place = number * step
        body.append(f"  in[{place}] = {value};\n")
        if network.squares:
            body.append(f"  in[{place + 1}] = in[{place}] * in[{place}];\n")
    widths = [len(network.layers[0][0]), *(len(bias) for _, bias in network.layers)]
    before = "in"
    for number, (weights, bias) in enumerate(network.layers):
        yield c_table("double", f"weight_{number}", map(c_double, weights.ravel().tolist()))
        yield c_table("double", f"bias_{number}", map(c_double, bias.tolist()))
        if number:
            body.append(f"  relu({before}, {widths[number]});\n")
        after = f"out_{number}"
        body.append(f"  double {after}[{widths[number + 1]}];\n")
        sizes = f"{before}, {widths[number]}, {after}, {widths[number + 1]}"
        body.append(f"  layer({sizes}, weight_{number}, bias_{number});\n")
        before = after
    yield f"\nstatic double score(const double *x) {{\n  double in[{widths[0]}];\n"
    yield from body
    yield f"  return {before}[0];\n}}\n"


def c_table(kind: str, name: str, values: Iterable[str]) -> str:
    """Return the definition of an array of constants; an empty one has a 0, as C wants."""
    items = list(values) or ["0"]
    return f"static const {kind} {name}[{len(items)}] = {{\n{_lines(items)}}};\n"


def _lines(items: Sequence[str]) -> str:
    lines: list[str] = []
    line = " "
    for item in items:
        if len(line) + len(item) + 2 > _WIDTH:
            lines.append(line)
            line = " "
        line += f" {item},"
    return "\n".join([*lines, line])


def c_double(value: Any) -> str:
    """Return a finite double as C writes it, exactly."""
    number = float(value)
    return repr(number) if number == int(number) and abs(number) < 1e6 else _hexadecimal(number)


def _hexadecimal(number: float) -> str:
    mantissa, exponent = number.hex().split("p")
    return f"{mantissa.rstrip('0').removesuffix('.')}p{exponent}" if "." in mantissa else f"{mantissa}p{exponent}"
