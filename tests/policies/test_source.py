"""Learned policies as C: the same decisions as numpy's, to the bit, and the functions of the shared object."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, TASKS
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies import compiled
from mlgo_corpus.policies.compiled import CompiledPolicy, build_library, cached_library, fastest
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Network, Rule, Trees
from mlgo_corpus.policies.policy import make_policy
from mlgo_corpus.policies.source import policy_source
from tests.policies.samples import (
    columns_of,
    extremes,
    policy_of,
    random_model,
    random_trees,
    real_observations,
    small_policy,
)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def decisions_in_c(library: Path, policy: LearnedPolicy, observations: Any) -> Any:
    """Return the decisions of a shared object, called as its header says: features at any address."""
    loaded = ctypes.CDLL(str(library))
    loaded.mlgo_policy_decide.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    found = np.zeros(len(observations), np.float32 if policy.task == PRIORITY else np.int64)
    columns = [np.ascontiguousarray(observations[spec.name]) for spec in policy.features]
    pointers = (ctypes.c_void_p * len(columns))()
    for number in range(len(observations)):
        for place, column in enumerate(columns):
            pointers[place] = column.ctypes.data + number * (column.nbytes // len(column))
        loaded.mlgo_policy_decide(pointers, found.ctypes.data + number * found.itemsize)
    return found


def assert_equal_decisions(library: Path, policy: LearnedPolicy, observations: Any) -> None:
    expected = policy.decide(observations)
    assert decisions_in_c(library, policy, observations).tobytes() == expected.tobytes() or policy.task == PRIORITY
    np.testing.assert_array_equal(decisions_in_c(library, policy, observations), expected)  # NaN is NaN
    fast = CompiledPolicy(policy, library)
    np.testing.assert_array_equal([fast.advise(record) for record in observations], expected)


@pytest.mark.parametrize("task", [task.name for task in TASKS])
@pytest.mark.parametrize("kind", ["rule", "trees", "mlp"])
def test_c_decides_as_numpy_does_on_what_compilers_sent(task: str, kind: str, tmp_path: Path) -> None:
    features, records = real_observations(task)
    model = random_model(kind, len(features), 6, at=columns_of(features, records))
    policy = policy_of(task, features, model)
    if task == INLINING:  # a threshold that a real score meets
        score = float(np.median(model.scores(columns_of(features, records))))
        policy = policy_of(task, features, model, threshold=score)
    build_library(policy, tmp_path / "policy.so")
    hard = extremes(features, 200, 1)
    assert_equal_decisions(tmp_path / "policy.so", policy, np.concatenate([records, hard]))


@given(st.sampled_from(["rule", "trees", "mlp"]), st.sampled_from([task.name for task in TASKS]), st.integers(0, 999))
@settings(max_examples=12)
def test_c_decides_as_numpy_does(tmp_path_factory: pytest.TempPathFactory, kind: str, task: str, seed: int) -> None:
    features: tuple[TensorSpec, ...] = (TensorSpec("a"), TensorSpec("b", "float"), TensorSpec("c", "float"))
    if task == EVICTION:
        wide = (1, 5)
        features = (TensorSpec("mask", "int64_t", wide), TensorSpec("b", "float", wide), TensorSpec("c", "float"))
    observations = extremes(features, 60, seed)
    policy = policy_of(task, features, random_model(kind, 3, seed, at=columns_of(features, observations)))
    library = tmp_path_factory.mktemp("drawn") / "policy.so"  # one that is loaded would be taken for it
    build_library(policy, library)
    assert_equal_decisions(library, policy, observations)


def test_trees_of_any_size() -> None:
    """Trees of up to 32 and 64 leaves are marked in words of as many bits, larger ones walked."""
    draw = np.random.default_rng(0)
    for leaves, word in ((32, "uint32_t leaves_t"), (64, "uint64_t leaves_t"), (65, "while (node >= 0)")):
        trees = random_trees(2, draw, trees=200, leaves=leaves)
        source, _ = policy_source(policy_of(INLINING, (TensorSpec("a"), TensorSpec("b")), trees))
        assert word in source


def test_large_trees_get_no_marks() -> None:
    """A mark has as many bits as its tree has leaves: those of a small file could fill any memory."""
    leaves = 32768
    trees = random_trees(1, np.random.default_rng(0), trees=1, leaves=leaves)
    policy = policy_of(INLINING, (TensorSpec("a"),), trees)
    tracemalloc.start()
    try:
        source, _ = policy_source(policy)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "while (node >= 0)" in source
    assert peak < 48 << 20


def test_the_functions_tell_what_the_policy_is(tmp_path: Path) -> None:
    policy = small_policy(EVICTION)
    build_library(policy, tmp_path / "policy.so")
    loaded = ctypes.CDLL(str(tmp_path / "policy.so"))
    for name in ("name", "task", "digest", "feature_name", "feature_type", "decision_type"):
        getattr(loaded, f"mlgo_policy_{name}").restype = ctypes.c_char_p
    loaded.mlgo_policy_feature_size.restype = ctypes.c_longlong
    assert loaded.mlgo_policy_abi() == 1
    assert loaded.mlgo_policy_name() == b"regalloc-eviction-1.0"
    assert loaded.mlgo_policy_task() == b"regalloc-eviction"
    assert loaded.mlgo_policy_digest() == policy.digest.encode()
    assert loaded.mlgo_policy_decision_type() == b"int64_t"
    assert loaded.mlgo_policy_feature_count() == 2
    found = [
        (
            loaded.mlgo_policy_feature_name(number),
            loaded.mlgo_policy_feature_type(number),
            loaded.mlgo_policy_feature_size(number),
        )
        for number in range(-1, 3)
    ]
    nothing = (None, None, 0)
    assert found == [nothing, (b"mask", b"int64_t", 33), (b"progress", b"float", 1), nothing]


def test_any_compiler_takes_the_source_without_a_warning(tmp_path: Path) -> None:
    texts = {kind: policy_source(small_policy(kind=kind)) for kind in ("rule", "trees", "mlp")}
    texts["eviction"] = policy_source(small_policy(EVICTION))
    texts["stumps"] = policy_source(
        policy_of(PRIORITY, (TensorSpec("weight", "float"),), random_trees(1, np.random.default_rng(0), leaves=1))
    )
    for kind, (source, header) in texts.items():
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "policy.c").write_text(source)
        (folder / "policy.h").write_text(header)
    (tmp_path / "use.cpp").write_text('#include "rule/policy.h"\nint main() { return mlgo_policy_abi() - 1; }\n')
    strict = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only")
    for compiler in filter(None, map(shutil.which, ("gcc", "clang-22"))):
        sources = [str(tmp_path / kind / "policy.c") for kind in texts]
        subprocess.run((compiler, *strict, *sources), check=True)
        subprocess.run((compiler, "-xc++", "-fsyntax-only", str(tmp_path / "use.cpp")), check=True)


def test_what_is_for_people_is_not_in_the_source() -> None:
    policy = policy_of(
        INLINING, (TensorSpec("cost"),), Rule(0.0, (1.0,)), licence='*/ #error "', training={"*/": "x"}, card="*/"
    )
    source, _ = policy_source(policy)
    assert source.count("*/") == source.count("/*")
    assert "#error" not in source


def test_numbers_are_exact(tmp_path: Path) -> None:
    weights = (0.1, 5e-324, 1.7976931348623157e308, -0.0, 1e22, 123456.0, 1e6, -1 / 3, 2.0**60)
    features = tuple(TensorSpec(f"f{number}") for number in range(len(weights)))
    policy = policy_of(PRIORITY, features, Rule(0.0, weights))
    source, _ = policy_source(policy)
    _, _, after = source.partition("weight[9] = {")
    texts = [word.strip() for word in after.partition("}")[0].split(",") if word.strip()]
    found = [float.fromhex(text) if "x" in text else float(text) for text in texts]
    assert np.array(found).tobytes() == np.array(weights).tobytes()


def test_a_library_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = small_policy()
    library = cached_library(policy, tmp_path)
    made = library.stat().st_mtime_ns
    monkeypatch.setattr(compiled, "_iter_compilers", lambda: iter(()))
    assert cached_library(small_policy(), tmp_path) == library
    assert library.stat().st_mtime_ns == made
    with pytest.raises(UsageError, match=r"^a C compiler is needed, such as cc or clang: none was found$"):
        cached_library(small_policy(kind="rule"), tmp_path)
    monkeypatch.setattr(compiled, "_iter_compilers", lambda: iter([("false",)]))
    with pytest.raises(UsageError, match=r"^a C compiler is needed, such as cc or clang: false .*: exit code 1$"):
        cached_library(small_policy(kind="rule"), tmp_path)
    assert len(list((tmp_path / "policies").iterdir())) == 1


def test_without_a_compiler_numpy_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))
    policy = small_policy()
    policy.save(tmp_path / "policy")
    assert isinstance(make_policy(str(tmp_path / "policy"), TASKS[0]), CompiledPolicy)
    other = small_policy(kind="mlp")
    with pytest.raises(OSError, match="another policy's"):
        CompiledPolicy(other, cached_library(policy))
    third = small_policy(kind="rule")
    cached_library(third).write_bytes(b"no library")
    assert fastest(third) is third
    cached_library(third).write_bytes(b"")
    assert isinstance(fastest(third), CompiledPolicy)
    monkeypatch.setattr(compiled, "_iter_compilers", lambda: iter(()))
    assert fastest(other) is other
    assert isinstance(other.model, Network)
    assert isinstance(policy.model, Trees)


def test_a_feature_of_another_type_is_refused(tmp_path: Path) -> None:
    policy = small_policy()
    fast = CompiledPolicy(policy, cached_library(policy, tmp_path))
    record = np.zeros(1, [("cost_estimate", "<f4"), ("callee_users", "<i8")])[0]
    with pytest.raises(UsageError, match=r"cost_estimate: expected int64_t\[1\], found float32"):
        fast.advise(record)
