"""A policy as LLVM takes its models: a C++ header to compile into LLVM, and what development mode reads.

LLVM includes ``InlinerSizeModel.h`` or ``RegAllocEvictModel.h`` if ``LLVM_HAVE_TF_AOT_INLINERSIZEMODEL`` or
``LLVM_HAVE_TF_AOT_REGALLOCEVICTMODEL`` is defined, and uses the class of that name. Two of its templates may: that of
release mode (``ReleaseModeModelRunner``: ``LookupArgIndex``, ``LookupResultIndex``, ``arg_data``, ``result_data``,
``Run``) and that for models made by MLIR's EmitC (``EmitCModelRunner``: ``reflectionMap``, ``operator()``). The class
here has the members of both. All else is in a namespace of its own, so that two policies can be in one file.

A feature that a policy has and LLVM does not is never written: it stays 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, find_task
from mlgo_corpus.policies.compiled import LIBRARY_NAME, cached_library, cached_source
from mlgo_corpus.policies.learned import LearnedPolicy, load_policy
from mlgo_corpus.policies.sizes.model import SizeModel
from mlgo_corpus.policies.source import HEADER, decide_source, filled

OUTPUT_SPEC_NAME: Final = "output_spec.json"
"""What development mode reads in the folder of a model (llvm/lib/Analysis/ModelUnderTrainingRunner.cpp)."""

# LLVM 22 and older have none for priorities: `MLRegAllocPriorityAdvisor.cpp` names the model that does nothing.
_MODELS: Final = {INLINING: "InlinerSizeModel", EVICTION: "RegAllocEvictModel", PRIORITY: "RegAllocPriorityModel"}

_HEADER: Final = """\
// The policy @name@ as a model of LLVM's, made by mlgo-corpus.
#ifndef LLVM_@guard@_H
#define LLVM_@guard@_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

namespace llvm {
namespace mlgo_policy_@model@ {

@source@
} // namespace mlgo_policy_@model@

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

class @model@ {
  alignas(8) char Inputs[@bytes@] = {};
  alignas(8) @type@ Decision[1] = {};
  static constexpr std::size_t Starts[] = {@starts@};

  void *input(int Index) { return Inputs + Starts[Index]; }

public:
  // The features, by their names.
  std::map<std::string, char *> reflectionMap;

  @model@() {
    for (int I = 0; I < mlgo_policy_@model@::FEATURES; ++I)
      reflectionMap[mlgo_policy_@model@::feature_name[I]] = Inputs + Starts[I];
  }
  @model@(const @model@ &) = delete;
  @model@ &operator=(const @model@ &) = delete;

  // -1 for what the policy does not ask for.
  int LookupArgIndex(const std::string &Name) const {
    const std::string Prefix = "feed_";
    if (Name.compare(0, Prefix.size(), Prefix) != 0)
      return -1;
    for (int I = 0; I < mlgo_policy_@model@::FEATURES; ++I)
      if (Name.compare(Prefix.size(), std::string::npos, mlgo_policy_@model@::feature_name[I]) == 0)
        return I;
    return -1;
  }
  int LookupResultIndex(const std::string &Name) const { return Name == "fetch_@decision@" ? 0 : -1; }
  void *arg_data(int Index) { return input(Index); }
  void *result_data(int) { return Decision; }

  void Run() {
    const void *Features[mlgo_policy_@model@::FEATURES];
    for (int I = 0; I < mlgo_policy_@model@::FEATURES; ++I)
      Features[I] = input(I);
    mlgo_policy_@model@::decide(Features, Decision);
  }

  char *getBufferForName(const std::string &Name) const {
    auto Found = reflectionMap.find(Name);
    return Found == reflectionMap.end() ? nullptr : Found->second;
  }
  @type@ operator()() {
    Run();
    return Decision[0];
  }
};

} // namespace llvm

#endif
"""

_DECISIONS_NAME: Final = "decisions"
_REPLAY: Final = f"""\
/* Decides as an earlier compile did: each decision is the next byte of a file. */
#include "policy.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

int mlgo_policy_abi(void) {{ return MLGO_POLICY_ABI; }}
const char *mlgo_policy_name(void) {{ return "replay"; }}
const char *mlgo_policy_task(void) {{ return "{INLINING}"; }}
const char *mlgo_policy_digest(void) {{ return ""; }}
int mlgo_policy_feature_count(void) {{ return 0; }}
const char *mlgo_policy_feature_name(int index) {{ (void)index; return NULL; }}
const char *mlgo_policy_feature_type(int index) {{ (void)index; return NULL; }}
long long mlgo_policy_feature_size(int index) {{ (void)index; return 0; }}
const char *mlgo_policy_decision_type(void) {{ return "int64_t"; }}

void mlgo_policy_decide(const void *const *features, void *decision) {{
  static FILE *file;
  (void)features;
  if (file == NULL)
    file = fopen("{_DECISIONS_NAME}", "rb");
  int byte = file == NULL ? EOF : getc(file);
  int64_t answer = byte == 1;
  memcpy(decision, &answer, sizeof answer);
}}
"""


def model_name(task: str) -> str:
    """Return the name of LLVM's class for the model of a task; its header has the same."""
    return _MODELS[task]


def model_header(policy: LearnedPolicy) -> str:
    """Return the text of the header: C++17."""
    model = model_name(policy.task)
    starts, end = [], 0
    for spec in policy.features:
        starts.append(end)
        end += -(-spec.nbytes // 8) * 8
    values = {
        "name": policy.name,
        "guard": model.upper(),
        "model": model,
        "bytes": str(end),
        "starts": ", ".join(map(str, starts)),
        "decision": find_task(policy.task).decision,
        "type": "float" if policy.decision_type == "float" else "int64_t",
        "source": decide_source(policy, "static void decide"),
    }
    return filled(_HEADER, values)


def place_model(policy: str, folder: Path) -> None:
    """Make the folder of a learned policy that development mode reads.

    Args:
        policy: the folder of the policy, or its name in the package.
        folder: the folder to make.

    Raises:
        UsageError: there is no such policy, or it cannot be compiled.
        OSError: the folder cannot be written.
    """
    try:
        found = load_policy(policy)
    except FormatError as error:
        raise UsageError(str(error)) from None
    _place(cached_library(found), folder, output_spec(found))


def place_replay(decisions: Sequence[bool], folder: Path) -> None:
    """Make the folder of a policy that decides on inlining as an earlier compile did, which development mode reads.

    Args:
        decisions: the decisions, in their order; when there are no more, nothing is inlined.
        folder: the folder to make. The compiler has to run in the one around it, which gets the decisions.

    Raises:
        UsageError: there is no C compiler.
        OSError: the folder cannot be written.
    """
    _place(cached_source("replay", (_REPLAY, HEADER)), folder, _output_spec(INLINING, "int64_t"))
    (folder.parent / _DECISIONS_NAME).write_bytes(bytes(decisions))


def place_size_model(model: str, folder: Path) -> None:
    """Make the folder of a model of native size that development mode reads.

    Args:
        model: the model's folder.
        folder: the folder to make.

    Raises:
        UsageError: there is no such model, it takes other inputs than LLVM's vector, or it cannot be compiled.
        OSError: the folder cannot be written.
    """
    _place(cached_library(vector_model(model)), folder)


def _place(library: Path, folder: Path, spec: str | None = None) -> None:
    found = library.read_bytes()
    folder.mkdir()
    (folder / LIBRARY_NAME).write_bytes(found)
    if spec is not None:
        (folder / OUTPUT_SPEC_NAME).write_text(spec, encoding="utf-8")


def vector_model(model: str | Path) -> SizeModel:
    """Return the model of native size in a folder, which takes LLVM's own vector.

    Raises:
        UsageError: there is no such model, or it takes other inputs.
    """
    try:
        found = SizeModel.load(model)
    except FormatError as error:
        raise UsageError(str(error)) from None
    if not found.is_llvms:
        raise UsageError(
            f"{model}: the compiler evaluates models of LLVM's own numbers only: train one of the group ir2native"
        )
    return found


def output_spec(policy: LearnedPolicy) -> str:
    """Return the text of ``output_spec.json``."""
    return _output_spec(policy.task, policy.decision_type)


def _output_spec(task: str, kind: str) -> str:
    decision = find_task(task).decision
    spec = {"name": decision, "port": 0, "type": kind, "shape": [1]}
    return json.dumps([{"logging_name": decision, "tensor_spec": spec}]) + "\n"
