"""Learned policies: their folders, what is refused, and what they decide by the plainest arithmetic."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import (
    EVICTION,
    EXTENDED_FEATURES,
    INLINING,
    PRIORITY,
    PROJECT_FEATURES,
    TASKS,
    find_task,
)
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies import artefact
from mlgo_corpus.policies.learned import LearnedPolicy, find_policy, known_policies, load_policy, named_policy
from mlgo_corpus.policies.models import Network, Quantiles, Rule, Scaling, Trees
from mlgo_corpus.policies.policy import check_sent, make_policy, policy_digest
from mlgo_corpus.policies.seen import Seen
from tests.policies.samples import dtype_of, policy_of, random_model, real_observations, small_policy

KINDS = ("rule", "trees", "mlp")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_loaded(kind: str, tmp_path: Path) -> None:
    policy = small_policy(kind=kind)
    policy.save(tmp_path / "first")
    policy.save(tmp_path / "second")
    loaded = load_policy(tmp_path / "first")
    assert loaded.as_json() == policy.as_json()
    assert {loaded, policy, pickle.loads(pickle.dumps(policy))} == {policy}
    assert policy not in (replace(policy, name="other-1.0"), replace(policy, threshold=9.0), "other")
    assert (loaded.digest, loaded.card, loaded.training) == (policy.digest, "# A card\n", {"modules": 3})
    loaded.save(tmp_path / "third")
    names = sorted(os.listdir(tmp_path / "first"))
    assert names == ["README.md", *(["model.npz"] if kind != "rule" else []), "policy.json"]
    for name in names:
        assert len({(tmp_path / folder / name).read_bytes() for folder in ("first", "second", "third")}) == 1
    assert sorted(os.listdir(tmp_path)) == ["first", "second", "third"]  # nothing else was left


def test_what_very_many_datasets_were_is_kept(tmp_path: Path) -> None:
    seen = np.random.default_rng(0).integers(1 << 64, size=5000, dtype=np.uint64)
    data = [{"corpus": f"corpus-{number}", "sha256": "0" * 64, "modules": 9, "decisions": 99} for number in range(1000)]
    training = {"data": data, "seen": Seen.of(seen.tolist(), seen[:1100, None], 8).as_json()}
    replace(small_policy(), training=training).save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy").training == training


def test_what_would_not_be_loaded_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "policy"
    small_policy(kind="rule").save(place)
    with pytest.raises(UsageError, match=r"^README\.md of the policy .* would have 1048577 bytes, expected at most "):
        replace(small_policy(), card="x" * 1_048_577).save(place, force=True)
    monkeypatch.setattr(artefact, "_MAX_MODEL_BYTES", 100)
    with pytest.raises(UsageError, match=r"^model\.npz of the policy .* bytes, expected at most 100$"):
        small_policy().save(place, force=True)
    assert load_policy(place).kind == "rule"
    licence: Any = None
    with pytest.raises(FormatError, match=r"^licence: expected text, found None$"):
        replace(small_policy(), licence=licence)


def test_numpy_reads_the_numbers(tmp_path: Path) -> None:
    policy = small_policy()
    policy.save(tmp_path / "policy")
    with np.load(tmp_path / "policy" / "model.npz") as arrays:
        assert arrays["threshold"].tolist() == policy.model.arrays()["threshold"].tolist()


def test_a_policy_is_replaced_only_by_force(tmp_path: Path) -> None:
    place = tmp_path / "policy"
    small_policy().save(place)
    with pytest.raises(UsageError, match=r"policy: is there already; `force` replaces it$"):
        small_policy(kind="rule").save(place)
    small_policy(kind="rule").save(place, force=True)
    assert load_policy(place).kind == "rule"
    (tmp_path / "empty").mkdir()
    small_policy().save(tmp_path / "empty")
    assert load_policy(tmp_path / "empty").name == small_policy().name
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    with pytest.raises(UsageError, match=r"other: is not empty, and has no policy\.json; name another folder$"):
        small_policy().save(tmp_path / "other", force=True)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["mine"]
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write there: (Not a directory|File exists)$"):
        small_policy().save(tmp_path / "file" / "policy")
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "other", "policy"]


def plain_score(model: Any, row: list[float]) -> float:
    """Return a score by Python's own doubles."""
    if isinstance(model, Rule):
        total = model.bias
        for weight, value in zip(model.weights, row, strict=True):
            total += value * weight
        return total
    if isinstance(model, Trees):
        row = [0.0 if number in model.nan_as_zero and math.isnan(value) else value for number, value in enumerate(row)]
        total = model.bias
        for root in model.roots.tolist():
            place = root
            while place >= 0:
                goes_left = row[model.feature[place]] <= model.threshold[place]
                place = int(model.children[place][0 if goes_left else 1])
            total += float(model.leaves[~place])
        return total
    assert isinstance(model, Network)
    values: list[float] = []
    for value, normalise in zip(row, model.inputs, strict=True):
        if isinstance(normalise, Quantiles):
            value = sum(edge <= value for edge in normalise.edges.tolist()) / len(normalise.edges)
        elif isinstance(normalise, Scaling):
            value = (value - normalise.mean) * normalise.scale
        values += [value, value * value] if model.squares else [value]
    for number, (weights, bias) in enumerate(model.layers):
        if number:
            values = [value if value > 0 else 0.0 for value in values]
        totals = bias.tolist()
        for place, value in enumerate(values):
            totals = [total + value * weight for total, weight in zip(totals, weights[place].tolist(), strict=True)]
        values = totals
    return float(values[0])


NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, 5e-324]), st.floats(-50, 50))


@given(st.data(), st.sampled_from(KINDS), st.integers(0, 1000))
@settings(max_examples=60)
def test_scores_are_those_of_plain_arithmetic(data: st.DataObject, kind: str, seed: int) -> None:
    model = random_model(kind, 4, seed)
    rows = data.draw(st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=5))
    found = model.scores(np.array(rows)).tolist()
    for score, row in zip(found, rows, strict=True):
        expected = plain_score(model, row)
        assert score == expected or (math.isnan(score) and math.isnan(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_as_its_rows(kind: str) -> None:
    features, records = real_observations(INLINING)
    policy = policy_of(INLINING, features, random_model(kind, len(features), 5))
    together = policy.decide(records)
    assert set(together.tolist()) <= {0, 1}
    assert together.tolist() == [policy.advise(record) for record in records]
    assert policy.decide(records[:0]).shape == (0,)


def test_the_best_candidate_is_evicted() -> None:
    features = (TensorSpec("mask", "int64_t", (1, 4)), TensorSpec("weight", "float", (1, 4)), TensorSpec("progress"))
    policy = policy_of(EVICTION, features, Rule(0.0, (0.0, 1.0, 0.0)))

    def evicted(mask: list[int], weights: list[float]) -> int:
        record = np.zeros(1, dtype_of(features))
        record["mask"], record["weight"] = mask, weights
        (found,) = policy.decide(record)
        assert policy.advise(record[0]) == found
        return int(found)

    assert evicted([1, 1, 1, 1], [1, 3, 3, 2]) == 1  # the first of the best
    assert evicted([1, 0, 1, 1], [1, 9, 3, 2]) == 2
    assert evicted([0, 0, 0, 7], [1, 3, 3, -math.inf]) == 3
    assert evicted([0, 1, 1, 0], [9, math.nan, -5, 2]) == 2
    assert evicted([0, 1, 1, 0], [9, math.nan, -math.inf, 2]) == 1  # both count as minus infinity
    assert evicted([0, 0, 0, 0], [1, 3, 3, 2]) == 0
    assert policy.decide(np.zeros(0, dtype_of(features))).shape == (0,)


def test_a_priority_is_a_number_of_single_precision() -> None:
    policy = policy_of(PRIORITY, (TensorSpec("weight", "float"),), Rule(0.1, (1.0,)))
    found = policy.decide({"weight": np.array([0.2, 0.5, 3e38], np.float32)})
    assert found.dtype == np.float32
    assert found.tolist() == [np.float32(0.1 + float(np.float32(value))).item() for value in (0.2, 0.5, 3e38)]
    big = policy_of(PRIORITY, (TensorSpec("weight", "float"),), Rule(0.0, (1e300,)))
    assert big.decide({"weight": np.array([1.0], np.float32)}).tolist() == [math.inf]


def test_a_score_at_the_threshold_is_not_inlined() -> None:
    policy = policy_of(INLINING, (TensorSpec("cost"),), Rule(0.0, (1.0,)), threshold=2.0)
    assert policy.decide({"cost": np.array([1, 2, 3])}).tolist() == [0, 0, 1]


def test_a_feature_that_is_missing_is_named() -> None:
    policy = small_policy()
    with pytest.raises(UsageError, match="needs the feature 'callee_users', which is not there"):
        policy.decide({"cost_estimate": np.zeros(3)})
    with pytest.raises(UsageError, match="callee_users: expected 1 for each of 3 observations, found 6 numbers"):
        policy.decide({"cost_estimate": np.zeros(3), "callee_users": np.zeros(6)})


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (np.array([1e30, 2]), "whole numbers of 64 bits, found 1e+30"),
        (np.array([2, 2**63 + 5], np.uint64), "whole numbers of 64 bits, found 9223372036854775813"),
        (pa.array([2, 2**63 + 5], pa.uint64()), "whole numbers of 64 bits, found 9223372036854775813"),
        ([2, 20.9], "whole numbers of 64 bits, found 20.9"),
        (np.array([2, 20.9], object), "whole numbers of 64 bits, found 20.9"),
        ([2, 2**64], "whole numbers of 64 bits, found something else, or none"),
        ([[2], [3, 4]], "whole numbers of 64 bits, found something else, or none"),
        (5, "whole numbers of 64 bits, found something else, or none"),
        ([2j, 3], "whole numbers of 64 bits, found something else, or none"),
    ],
)
def test_what_is_no_whole_number_of_64_bits_is_refused(numbers: Any, said: str) -> None:
    policy = policy_of(INLINING, (TensorSpec("cost"),), Rule(0.0, (1.0,)))
    columns = {"cost": numbers}
    with pytest.raises(UsageError) as caught:
        policy.decide(pa.table(columns) if isinstance(numbers, pa.Array) else columns)
    assert str(caught.value) == f"cost: expected {said}"
    kinds = (np.uint64, np.int8, np.float16, object, bool)
    assert [policy.decide({"cost": np.array([1, 0], kind)}).tolist() for kind in kinds] == [[1, 0]] * 5


def test_tables_and_data_frames_are_decided_as_arrays() -> None:
    features, records = real_observations(INLINING)
    policy = policy_of(INLINING, features, random_model("trees", len(features), 5))
    expected = policy.decide(records).tolist()
    columns = {spec.name: records[spec.name] for spec in features}
    table = pa.table({**columns, "module": pa.array(["m"] * len(records)).dictionary_encode()})
    pandas = pd.DataFrame({**columns, "of anything": [object()] * len(records)})
    frames = [table, table.to_batches()[0], pl.from_arrow(table), pandas, pandas.convert_dtypes(), columns]
    assert all(policy.decide(frame).tolist() == expected for frame in frames)

    features = (TensorSpec("mask", "int64_t", (1, 4)), TensorSpec("weight", "float", (1, 4)), TensorSpec("progress"))
    evict = policy_of(EVICTION, features, Rule(0.0, (0.0, 1.0, 0.0)))
    lists: dict[str, Any] = {"mask": [[1, 1, 1, 1], [1, 0, 1, 1]], "weight": [[1.0, 3, 3, 2], [1.0, 9, 3, 2]]}
    lists["progress"] = [0, 1]
    fixed = pa.table({**lists, "mask": pa.array(lists["mask"], pa.list_(pa.int64(), 4))})
    for frame in (pa.table(lists), fixed, pl.DataFrame(lists), pd.DataFrame(lists)):
        assert evict.decide(frame).tolist() == [1, 2]
    with pytest.raises(UsageError, match=r"^mask: expected 4 numbers in each row, found others$"):
        evict.decide(pa.table({**lists, "mask": [[1, 1, 1], [1, 0, 1, 1, 1]]}))


def test_a_number_that_is_missing_is_named() -> None:
    policy = small_policy()
    cost = {"cost_estimate": [1, 2, 3]}
    for users in ([1, None, 2], [1.0, math.nan, 2.0], [1.0, math.inf, 2.0], ["a", "b", "c"]):
        for make in (pd.DataFrame, pl.DataFrame, pa.table, dict):
            with pytest.raises(UsageError, match=r"^callee_users: expected (a )?(whole )?numbers?"):
                policy.decide(make({**cost, "callee_users": users}))
    with pytest.raises(UsageError, match=r"^callee_users: expected a whole number in each row, found null$"):
        policy.decide(pd.DataFrame({**cost, "callee_users": pd.array([1, pd.NA, 2], "Int64")}))
    with pytest.raises(UsageError, match=r"^callee_users: expected whole numbers of 64 bits, found "):
        policy.decide({**cost, "callee_users": pd.array([1, pd.NA, 2], "Int64")})
    with pytest.raises(UsageError, match="needs the feature 'callee_users', which is not there"):
        policy.decide(pl.DataFrame(cost))
    with pytest.raises(UsageError, match=r"^expected a table of Arrow, pandas or polars, found a int"):
        policy.decide(5)
    weighs = policy_of(PRIORITY, (TensorSpec("weight", "float"),), Rule(0.0, (1.0,)))
    found = [weighs.decide(make({"weight": [1.5, None]})).tolist() for make in (pa.table, pl.DataFrame, pd.DataFrame)]
    assert all(one[0] == 1.5 and math.isnan(one[1]) for one in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_shown_in_a_line(kind: str) -> None:
    features = tuple(TensorSpec(f"f{number}") for number in range(9))
    shown = repr(policy_of(INLINING, features, random_model(kind, 9, 5), threshold=0.25))
    assert len(shown) < 200
    assert f": inlining, {kind}: " in shown
    assert shown.endswith(", 9 features, threshold 0.25>")
    assert all(len(repr(load_policy(folder))) < 200 for folder in known_policies().values())
    assert len(repr(load_policy("inlining-1.0").model)) < 100


# Names


def test_a_folder_is_a_policy_where_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("mlgo_corpus.policies.compiled._iter_compilers", lambda: iter(()))
    inlining, eviction, _ = TASKS
    policy = small_policy(kind="rule")
    policy.save(tmp_path / "policy")
    name = str(tmp_path / "policy")
    assert find_policy(name) == tmp_path / "policy"
    made = make_policy(name, inlining)
    assert isinstance(made, LearnedPolicy)
    assert policy_digest(name) == policy.digest == made.digest
    with pytest.raises(UsageError, match=r"^policy .*: a policy for inlining, expected one for regalloc-eviction$"):
        make_policy(name, eviction)
    (tmp_path / "policy" / "policy.json").write_text("{}")
    for use in (policy_digest, lambda text: make_policy(text, inlining)):
        with pytest.raises(UsageError, match=r"policy\.json: format: expected 1, found None$"):
            use(name)
    (tmp_path / "begun" / ".mlgo-corpus").mkdir(parents=True)
    with pytest.raises(UsageError, match="begun: expected a policy, found what was interrupted: the command that"):
        load_policy(tmp_path / "begun")
    with pytest.raises(UsageError, match="begun: expected a policy, found what was interrupted: the command that"):
        make_policy(str(tmp_path / "begun"), inlining)
    assert find_policy("x\0y") is None
    assert find_policy(str(tmp_path)) is None
    assert all(load_policy(path).name == load_policy(name).name == name for name, path in known_policies().items())


def test_a_compiler_without_a_feature_is_refused() -> None:
    header = LogHeader((TensorSpec("cost_estimate", "float"),), advice=TensorSpec("a"))
    with pytest.raises(UsageError, match=r"needs 'cost_estimate' as int64_t\[1\], this compiler sends float\[1\]"):
        check_sent(small_policy(), header)
    header = LogHeader((TensorSpec("cost_estimate"),), advice=TensorSpec("a"))
    with pytest.raises(UsageError, match="needs the feature 'callee_users', which this compiler does not send"):
        check_sent(small_policy(), header)


# Hostile policies


def is_refused(folder: Path) -> str:
    """Load a policy that has to be refused, and return the line that says why."""
    with pytest.raises(MlgoCorpusError) as caught:
        load_policy(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line
    assert len(line) < 400
    return line


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_cut_anywhere_is_refused(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "policy"
    small_policy(kind=kind).save(place)
    for name in ("policy.json", "model.npz"):
        if not (place / name).exists():
            continue
        whole = (place / name).read_bytes()
        step = 7 if kind == "mlp" else 1  # the same code reads both
        for size in range(0, len(whole) - (name == "policy.json"), step):  # which ends in a newline
            (place / name).write_bytes(whole[:size])
            assert name in is_refused(place)
        (place / name).write_bytes(whole)
        load_policy(place)


@given(st.data())
@settings(max_examples=150)
def test_a_damaged_model_is_refused_or_still_a_model(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.getbasetemp() / "damaged"
    policy = small_policy(kind=data.draw(st.sampled_from(("trees", "mlp"))))
    policy.save(place, force=True)
    whole = bytearray((place / "model.npz").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (place / "model.npz").write_bytes(whole)
    with contextlib.suppress(FormatError):
        load_policy(place)


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(place: Path) -> None:
        value = json.loads((place / "policy.json").read_bytes())
        change(value)
        (place / "policy.json").write_text(json.dumps(value))

    return edit


def with_arrays(**changes: Any) -> Callable[[Path], None]:
    def edit(place: Path) -> None:
        with np.load(place / "model.npz") as archive:
            arrays = dict(archive)
        arrays |= {name: np.array(value) for name, value in changes.items() if value is not None}
        arrays = {name: value for name, value in arrays.items() if changes.get(name, 0) is not None}
        np.savez(place / "model.npz", **arrays)

    return edit


ONE_NODE: dict[str, Any] = {
    "roots": np.int32([0]),
    "feature": np.int32([0]),
    "threshold": np.float64([1]),
    "children": np.int32([[~0, ~1]]),
    "leaves": np.float64([1, 2]),
    "nan_as_zero": np.int32([]),
}
TWO_NODES: dict[str, Any] = {
    **ONE_NODE,
    "feature": np.int32([0, 1]),
    "threshold": np.float64([1, 2]),
    "children": np.int32([[1, ~0], [~1, ~2]]),
    "leaves": np.float64([1, 2, 3]),
}
LINE = 300


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (edited(lambda value: value.update(format=2)), "format 2, expected 1: a newer mlgo-corpus reads it"),
        (edited(lambda value: value.update(format=True)), "format: expected 1, found True"),
        (edited(lambda value: value.update(name='x"; system("id")')), "name: expected letters, digits and"),
        (edited(lambda value: value.update(name="a\nb")), "name: expected letters"),
        (edited(lambda value: value.update(name=["x"])), "name: expected letters"),
        (edited(lambda value: value.update(task="cooking")), "task: expected one of inlining"),
        (edited(lambda value: value.update(task={})), "task: expected one of inlining"),
        (edited(lambda value: value.update(kind="oracle")), "kind: expected one of rule, trees, mlp"),
        (edited(lambda value: value.update(kind=[])), "kind: expected one of rule, trees, mlp"),
        (edited(lambda value: value.update(features=None)), "features: expected a list"),
        (edited(lambda value: value["features"].append(value["features"][0])), "features: two have the same name"),
        (edited(lambda value: value["features"][0].update(name="*/ int x;")), "a name of letters, digits and _"),
        (edited(lambda value: value["features"][0].update(type="double")), "expected one of int64_t, float"),
        (edited(lambda value: value["features"][0].update(shape=[10**12])), "more than 64 MiB"),
        (edited(lambda value: value["features"][0].update(shape=[2])), "expected one number, found 2"),
        (edited(lambda value: value["features"][0].update(shape=["1"])), "dimensions of at least 1"),
        (edited(lambda value: value["features"].clear()), r"features: expected a list of 1 to 1024, found \[\]"),
        (edited(lambda value: value.update(decision={"threshold": "low"})), "decision: threshold: expected a number"),
        (edited(lambda value: value.update(decision={"threshold": 10**400})), "expected a finite number"),
        (edited(lambda value: value.update(decision=3)), "decision: expected an object"),
        (edited(lambda value: value.update(training=[])), "training: expected an object"),
        (edited(lambda value: value.update(licence=3)), "licence: expected text"),
        (edited(lambda value: value.update(task=EVICTION)), f"{EVICTION} needs mask"),
        (lambda place: (place / "policy.json").write_text("[" * 60_000), "nested too deeply"),
        (lambda place: (place / "policy.json").write_text("[1]"), "expected an object, found"),
        (lambda place: (place / "policy.json").write_bytes(b'{"name": "\xff"}'), "byte 10: expected UTF-8"),
        (lambda place: (place / "policy.json").write_text('{"format": NaN}'), "NaN is not a number of JSON"),
        (lambda place: (place / "policy.json").write_text('{"format": 1' + "0" * 5000 + "}"), "not JSON: Exceeds"),
        (lambda place: (place / "policy.json").write_text(" " * 1_050_000), "expected at most 1048576"),
        (lambda place: (place / "metrics.json").write_text("{"), "metrics.json: byte 1: not JSON"),
        (lambda place: (place / "model.npz").unlink(), "model.npz: No such file"),
        (lambda place: np.savez_compressed(place / "model.npz", bias=np.zeros(9)), "an uncompressed array|more bytes"),
        (with_arrays(bias=None), "there is no array bias"),
        (with_arrays(more=[1.0]), "unexpected array more"),
        (with_arrays(bias=[math.nan]), "bias: expected finite numbers"),
        (with_arrays(bias=[1.0, 2.0]), "bias: expected the shape 1, found 2"),
        (with_arrays(bias=[["x"]]), "bias: expected an array of <f8 or <i4"),
        (with_arrays(bias=np.array([print])), "bias: expected an array of <f8 or <i4"),
        (with_arrays(**ONE_NODE), ""),
        (with_arrays(**TWO_NODES), ""),
        (with_arrays(**ONE_NODE | {"roots": np.float64([0.5])}), "roots: expected numbers"),
        (with_arrays(**ONE_NODE | {"feature": np.int32([2])}), "feature: expected a number below 2, found 2"),
        (with_arrays(**ONE_NODE | {"feature": np.int32([-1])}), "feature: expected a number below 2, found -1"),
        (with_arrays(**ONE_NODE | {"nan_as_zero": np.int32([7])}), "nan_as_zero: expected a number below 2"),
        (with_arrays(**ONE_NODE | {"threshold": np.float64([math.inf])}), "threshold: expected finite numbers"),
        (with_arrays(**ONE_NODE | {"leaves": np.float64([1, math.nan])}), "leaves: expected finite numbers"),
        (with_arrays(**ONE_NODE | {"leaves": np.float64([1])}), "leaves: expected 2 of 1 nodes, found 1"),
        (with_arrays(**ONE_NODE | {"children": np.int32([[0, ~0]])}), "node 0 leads to itself, or to a node before"),
        (with_arrays(**ONE_NODE | {"children": np.int32([[2**31 - 1, ~0]])}), "no node or leaf 2147483647 of 1 nodes"),
        (with_arrays(**ONE_NODE | {"children": np.int32([[-(2**31), ~0]])}), "no node or leaf -2147483648"),
        (with_arrays(**ONE_NODE | {"children": np.int32([[~0, ~0]])}), "each node and leaf, found 2 to leaf 0"),
        (with_arrays(**ONE_NODE | {"children": np.int32([~0, ~1])}), "children: expected the shape"),
        (with_arrays(**TWO_NODES | {"children": np.int32([[1, ~0], [0, ~2]])}), "node 1 leads to itself, or to a node"),
        (with_arrays(**TWO_NODES | {"children": np.int32([[~0, ~1], [~1, ~2]])}), "one way to each node and leaf"),
        (with_arrays(**TWO_NODES | {"roots": np.int32([])}), "roots: expected 1 to 65536 trees, found 0"),
        (
            with_arrays(
                roots=np.int32([0]),
                feature=np.zeros(LINE, np.int32),
                threshold=np.zeros(LINE),
                children=np.int32([[n + 1 if n + 1 < LINE else ~LINE, ~n] for n in range(LINE)]),
                leaves=np.zeros(LINE + 1),
            ),
            "at most 256 levels",
        ),
    ],
)  # fmt: skip
def test_a_policy_that_is_not_one_is_refused(edit: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
    place = tmp_path / "policy"
    small_policy().save(place)
    edit(place)
    if said:
        assert re.search(said, is_refused(place))
    else:
        load_policy(place)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (with_arrays(edges_0=np.float64([2, 1])), "edges: expected at least one, sorted"),
        (with_arrays(edges_0=np.float64([math.nan])), "edges: expected finite numbers"),
        (with_arrays(edges_0=np.float64([])), "edges: expected at least one, sorted"),
        (with_arrays(edges_7=np.float64([1])), "unexpected array edges_7"),
        (with_arrays(scaling_1=np.float64([1, math.inf])), "scaling: expected finite numbers"),
        (with_arrays(scaling_1=np.float64([1])), "scaling_1: expected the shape 2, found 1"),
        (with_arrays(squares=np.int32([2])), "squares: expected 0 or 1, found 2"),
        (with_arrays(squares=np.int32([0])), "weights_0: expected 2 rows"),
        (with_arrays(weights_0=None), "there is no array weights_0"),
        (with_arrays(bias_1=np.float64([1, 2])), "weights_1: expected 3 rows"),
        (with_arrays(weights_1=np.zeros((3, 2)), bias_1=np.zeros(2)), "expected one output of the last layer, found 2"),
        (with_arrays(weights_1=np.full((3, 1), math.inf)), "weights_1: expected finite numbers"),
    ],
)
def test_a_network_that_is_none_is_refused(edit: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
    place = tmp_path / "policy"
    small_policy(kind="mlp").save(place)
    edit(place)
    assert said in is_refused(place)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (None, "rule: expected an object, found None"),
        ({}, "rule: weights: expected a list"),
        ({"weights": [1]}, "weights: expected 2, one for each feature, found 1"),
        ({"weights": [1, "2"]}, "rule: weights: expected a number, found '2'"),
        ({"weights": [1, True]}, "rule: weights: expected a number, found True"),
        ({"bias": 10**400, "weights": [1, 2]}, "rule: bias: expected a finite number"),
    ],
)
def test_a_rule_that_is_none_is_refused(rule: Any, said: str, tmp_path: Path) -> None:
    place = tmp_path / "policy"
    small_policy(kind="rule").save(place)
    edited(lambda value: value.update(rule=rule))(place)
    assert said in is_refused(place)


def test_a_small_archive_cannot_claim_much(tmp_path: Path) -> None:
    place = tmp_path / "policy"
    small_policy().save(place)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999, 999999999), }"
    member = b"\x93NUMPY\x01\x00" + len(header + b"\n").to_bytes(2, "little") + header + b"\n"
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("bias.npy", member)
    (place / "model.npz").write_bytes(target.getvalue())
    assert "bias: expected 7999999984000000008 bytes" in is_refused(place)


def test_what_is_for_people_has_to_be_json() -> None:
    policy = policy_of(INLINING, (TensorSpec("cost"),), Rule(0.0, (1.0,)), training={"score": math.nan})
    with pytest.raises(UsageError, match=r"policy\.json of the policy inlining-1\.0 cannot be written as JSON"):
        policy.save(Path("nowhere"))
    with pytest.raises(FormatError, match="decision: expected a finite threshold, found nan"):
        policy_of(INLINING, (TensorSpec("cost"),), Rule(0.0, (1.0,)), threshold=math.nan)


def test_no_policy_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing: no such policy$"):
        load_policy(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"expected a policy, found a folder without policy\.json$"):
        load_policy(tmp_path)
    for name in ("never", "random:0.5", "default", "pol:Cheap", "my.pol:Cheap(3)"):
        with pytest.raises(UsageError) as refused:
            named_policy(name)
        assert str(refused.value) == (
            f"{name}: not a learned policy, and no other goes into a compiler: write a rule (docs/policies.md), or "
            "train one"
        )
    for name in ("s3://bucket/policy", "nothing-1.0"):
        with pytest.raises(UsageError, match=f"^{name}: no such policy; expected a folder, or one of inlining-1.0, "):
            named_policy(name)


def told_more(features: tuple[TensorSpec, ...], records: Any) -> tuple[tuple[TensorSpec, ...], Any]:
    """Add what an extended clang tells: of functions of the module itself, and nothing asked before."""
    names = (*EXTENDED_FEATURES, *PROJECT_FEATURES)
    features += tuple(TensorSpec(name, "int64_t", port=0, shape=(1,)) for name in names)
    told = np.zeros(len(records), dtype_of(features))
    for name in records.dtype.names:
        told[name] = records[name]
    return features, told


def test_policies_that_come_with_the_package() -> None:
    """Each is named as its folder, small, says what it is worth, and decides on what compilers send."""
    known = known_policies()
    assert list(known) == ["inlining-1.0", "inlining-2.0", "inlining-3.0"]
    for name, folder in known.items():
        features, records = real_observations(INLINING)
        policy = load_policy(folder)
        if name != "inlining-1.0":
            features, records = told_more(features, records)
        assert (policy.name, policy.task, policy.licence) == (name, INLINING, "Apache-2.0")
        assert "## Results" in policy.card
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 300_000
        check_sent(make_policy(name, find_task(INLINING)), LogHeader((*features, TensorSpec("inlining_decision"))))
        assert set(policy.decide(records).tolist()) == {0, 1}
