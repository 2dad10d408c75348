"""Datasets and tables to report on, written with pyarrow and the package's own tables of modules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlgo_corpus.dataset.sizes.table import ModuleSizes, write_module_sizes
from mlgo_corpus.dataset.tracetable import TraceRow, reward, write_trace_rows
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.runs.evaluate.table import EvaluationRow, LinkedRow, write_evaluation_rows, write_linked_rows

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}\u202e\u2028&amp;"
"""A name that ends scripts, attributes and templates, and turns text around."""


def header(features: Sequence[str], decision: str, score: str | None = None, kind: str = "int64_t") -> str:
    """Give a log's first line."""

    def spec(name: str, kind: str = kind) -> dict[str, Any]:
        return {"name": name, "port": 0, "type": kind, "shape": [1]}

    said: dict[str, Any] = {"features": [*map(spec, features), spec(decision)]}
    if score is not None:
        said["score"] = spec(score, "float")
    return json.dumps(said)


def trace_row(module: str, size: int | None, baseline: int | None = 1000, **other: Any) -> TraceRow:
    """Give the row of a module's run."""
    return TraceRow(
        module, "ok", "ok", "", exit_code=0, text_size=size, baseline_text_size=baseline, code_size=size,
        baseline_code_size=baseline, reward=reward(size, baseline), faithful=size == baseline, cpu_s=0.5, wall_s=0.5,
        max_rss_bytes=80_000_000, baseline_cpu_s=0.25, contexts=1,
    )._replace(**other)  # fmt: skip


def trace(
    folder: Path,
    columns: Mapping[str, Any],
    rows: Sequence[TraceRow],
    *,
    decision: str = "inlining_decision",
    score: str | None = None,
    **about: Any,
) -> Path:
    """Write a dataset: ``columns`` are its observations', without the keys; the decision is one of them."""
    features = [name for name in columns if name not in (decision, score)]
    line = header(features, decision, score)
    said = {"tool": "mlgo-corpus", "version": "0.1.0", "kind": "trace", "task": "inlining", "measure": "text_size"}
    (folder / "observations").mkdir(parents=True)
    (folder / "dataset.json").write_text(json.dumps({**said, "header": line, **about}))
    write_trace_rows(
        folder / "modules.parquet", [row._replace(header=line) for row in rows], {"key": {"task": "inlining"}}
    )
    ordered = [*features, decision, *([score] if score else [])]
    made = {name: pa.array(columns[name]) for name in ordered}
    count = len(next(iter(made.values())))
    keys = {
        "module": pa.array(["m"] * count).dictionary_encode(),
        "context": pa.array([""] * count).dictionary_encode(),
        "observation": pa.array(range(count), pa.int64()),
    }
    pq.write_table(pa.table({**keys, **made}), folder / "observations" / "part-00000.parquet")
    (folder / "contexts.parquet").write_bytes(b"")
    return folder


def plain_trace(folder: Path, sizes: Mapping[str, int], seed: int = 0, count: int = 200, **about: Any) -> Path:
    """Write a dataset of ordinary numbers."""
    random = np.random.default_rng(seed)
    columns = {
        "cost_estimate": random.integers(-50, 500, count),
        "callee_users": random.geometric(0.1, count),
        "inlining_default": random.integers(0, 2, count),
        "inlining_decision": random.integers(0, 2, count),
    }
    rows = [trace_row(name, size, observations=count // len(sizes)) for name, size in sizes.items()]
    return trace(folder, columns, rows, **{"policy": "random:0.5", **about})


def sizes(folder: Path, columns: Mapping[str, Any], **about: Any) -> Path:
    """Write a table of functions; ``module``, ``function`` and ``native_size`` are among the columns."""
    said = {"tool": "mlgo-corpus", "version": "0.1.0", "kind": "ir2native", "compiler": "clang 22"}
    (folder / "functions").mkdir(parents=True)
    (folder / "dataset.json").write_text(json.dumps({**said, **about}))
    pq.write_table(pa.table(dict(columns)), folder / "functions" / "part-00000.parquet")
    modules = [ModuleSizes("m", "ok", "ok", "", 3, 2, faithful=True, code_size=100, explained_size=90)]
    modules.append(ModuleSizes("n", "failed", "timeout", "not done after 3 seconds"))
    write_module_sizes(folder / "modules.parquet", modules, {"key": {"snapshot": "post-inlining"}})
    return folder


def function_columns(count: int, seed: int = 0) -> dict[str, Any]:
    """Give columns of functions: bodies that come twice, and every tenth without a size."""
    random = np.random.default_rng(seed)
    instructions = random.geometric(0.05, count)
    native = (instructions * 4 + random.integers(0, 8, count)).astype(object)
    native[::10] = None
    return {
        "module": [f"m{at % 7}" for at in range(count)],
        "function": [f"f{at}" for at in range(count)],
        "total_instruction_count": instructions,
        "constant": np.zeros(count, np.int32),
        "optsize": random.integers(0, 2, count).astype(bool),
        "native_size": pa.array(native.tolist(), pa.int64()),
        "status": ["eliminated" if size is None else "ok" for size in native],
        "body_digest": [f"{at // 2:016x}" for at in range(count)],
        "split": [("train", "train", "test")[at // 2 % 3] for at in range(count)],
    }


def policy(folder: Path, corpora: Sequence[str], points: Sequence[Sequence[float]], best: int, **metrics: Any) -> Path:
    """Write a policy with a curve: a point for each 100 compiles, with the change of each corpus."""
    curve = {
        "corpora": list(corpora),
        "validation": True,
        "points": [{"compiles": 100 * number, "changes": list(changes)} for number, changes in enumerate(points)],
        "best": best,
    }
    rule = Rule(30.0, (-1.0, 0.5))
    features = (TensorSpec("cost_estimate"), TensorSpec("callee_users"))
    LearnedPolicy("drawn-1.0", "inlining", features, rule, metrics={"curve": curve, **metrics}).save(folder)
    return folder


def difference(low: float, high: float, decisions: int, llvm: float, own: float, differ: float) -> dict[str, float]:
    """Give a range of a feature as a policy's metrics have it."""
    names = ("low", "high", "decisions", "llvm", "policy", "differ")
    return dict(zip(names, (low, high, decisions, llvm, own, differ), strict=True))


def evaluation(folder: Path, sizes: Mapping[str, Mapping[str, tuple[int, int]]], trained: str = "") -> Path:
    """Write an evaluation: for each policy and module the bytes, and those by LLVM; one module may be trained on."""
    rows = [
        EvaluationRow(
            name, module, "ok", "ok", "", None, float(module == trained), module == trained, 9, size, before, size,
            before, None, 0.5, 0.4,
        )
        for name, modules in sizes.items()
        for module, (size, before) in modules.items()
    ]  # fmt: skip
    linked = [
        LinkedRow(name, "linked", "lib.so", "shared", "ok", "ok", "", 2, 0, False, 900 + 10 * number, 1000)
        for number, name in enumerate(sizes)
    ]
    folder.mkdir(parents=True)
    about = {"tool": "mlgo-corpus", "kind": "evaluation", "key": {"seed": 0, "compiler": {"version": "clang 22"}}}
    write_evaluation_rows(folder / "evaluation.parquet", rows, about)
    write_linked_rows(folder / "products.parquet", linked, about)
    (folder / "evaluation.json").write_text(json.dumps(about))
    return folder
