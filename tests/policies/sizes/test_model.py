"""Models of native size: by numpy, by a walk of trees in plain Python, and by C; and every way not to be one."""

from __future__ import annotations

import ctypes
import io
import json
import math
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from mlgo_corpus import SizeModel, compile_policy, load_policy, show_policy
from mlgo_corpus.cli.main import app
from mlgo_corpus.dataset.sizes.table import IR2NATIVE_COLUMNS, VECTOR
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.compiled import build_library
from mlgo_corpus.policies.embedded import vector_model
from mlgo_corpus.policies.models import Rule, Trees
from mlgo_corpus.policies.sizes.inputs import choose_features, columns_of, inputs_of, names_of
from tests.policies.samples import random_trees

WIDTH = len(IR2NATIVE_COLUMNS)
LLVMS = (TensorSpec(VECTOR, "int32_t", (WIDTH,)),)
# One has the name of an array in a policy's C.
MIXED = (TensorSpec("blocks"), *LLVMS, TensorSpec("feature_is_float"), TensorSpec("linkage_is_internal"))


def model(features: tuple[TensorSpec, ...] = LLVMS, seed: int = 0) -> SizeModel:
    """Return a model of random numbers."""
    draw = np.random.default_rng(seed)
    inputs = len(names_of(features))
    weights = np.where(draw.random(inputs) < 0.2, draw.random(inputs), 0.0)
    trees = [random_trees(inputs, draw, trees=5) for _ in range(3)]
    return SizeModel("sizes-0.1", features, Rule(4.25, tuple(weights.tolist())), *trees)


def vectors(count: int, seed: int = 1) -> Any:
    """Return inputs as functions have them, and some that none has."""
    draw = np.random.default_rng(seed)
    made = draw.integers(0, 9, (count, WIDTH)).astype(np.float64)
    made[: count // 4] = draw.choice([0, 1, 1000, 2**31 - 1, -(2**31)], (count // 4, WIDTH))
    return made


def walked(trees: Trees, row: Any) -> float:
    """Return the score of a row, from node to node."""
    total = trees.bias
    for root in trees.roots.tolist():
        place = root
        while place >= 0:
            goes_left = row[trees.feature[place]] <= trees.threshold[place]
            place = int(trees.children[place][0 if goes_left else 1])
        total += trees.leaves[~place]
    return float(total)


def size_by_hand(found: SizeModel, trees: Trees, row: Any) -> float:
    base = found.base.bias + math.fsum(weight * value for weight, value in zip(found.base.weights, row, strict=True))
    return min(max(base, 1.0), 2.0**30) * math.exp(min(max(walked(trees, row), -20.0), 20.0))


def test_sizes_are_the_base_times_exp_of_the_score() -> None:
    found, rows = model(), vectors(200)
    sizes = found.sizes(rows)
    assert {values.dtype for values in sizes} == {np.dtype(np.float32)}
    expected = [size_by_hand(found, found.model, row) for row in rows]
    np.testing.assert_allclose(sizes.size, expected, rtol=2e-7)
    low = [min(size_by_hand(found, found.low, row), size) for row, size in zip(rows, expected, strict=True)]
    high = [max(size_by_hand(found, found.high, row), size) for row, size in zip(rows, expected, strict=True)]
    np.testing.assert_allclose(sizes.low, low, rtol=2e-7)
    np.testing.assert_allclose(sizes.high, high, rtol=2e-7)


@pytest.mark.parametrize(
    ("base", "leaf", "size"),
    [
        (100.0, 0.0, 100.0),
        (100.0, math.log(2.5), 250.0),
        (100.0, -1.0, 100 * math.exp(-1)),
        (-5.0, 0.0, 1.0),
        (1e300, 0.0, 2.0**30),
        (1.0, 1e300, math.exp(20)),
        (1.0, -1e300, math.exp(-20)),
        (3.0, 1e-18, 3.0),
    ],
)
def test_bases_and_scores_are_cut(base: float, leaf: float, size: float) -> None:
    trees = Trees(0.0, np.array([-1]), np.empty(0), np.empty(0), np.empty((0, 2)), np.array([leaf]))
    found = SizeModel("cut-1.0", LLVMS, Rule(base, (0.0,) * WIDTH), trees, trees, trees)
    assert found.sizes(np.zeros((1, WIDTH))).size.tolist() == [np.float32(size)]


def sizes_in_c(library: Path, found: SizeModel, rows: Any) -> Any:
    """Return the sizes of a shared object, called as its header says."""
    loaded = ctypes.CDLL(str(library))
    loaded.mlgo_policy_feature_size.restype = ctypes.c_longlong
    loaded.mlgo_policy_feature_type.restype = ctypes.c_char_p
    loaded.mlgo_policy_task.restype = loaded.mlgo_policy_digest.restype = ctypes.c_char_p
    assert loaded.mlgo_policy_task() == b"native-size"
    assert loaded.mlgo_policy_digest().decode() == found.digest
    types = [loaded.mlgo_policy_feature_type(place).decode() for place in range(loaded.mlgo_policy_feature_count())]
    counts = [loaded.mlgo_policy_feature_size(place) for place in range(len(types))]
    assert [(spec.type, spec.element_count) for spec in found.features] == list(zip(types, counts, strict=True))
    sizes = np.empty(len(rows), np.float32)
    for number, row in enumerate(rows):
        parts = np.split(row, np.cumsum(counts)[:-1])
        tensors = [part.astype(spec.dtype).tobytes() for part, spec in zip(parts, found.features, strict=True)]
        pointers = (ctypes.c_char_p * len(tensors))(*tensors)
        size = ctypes.c_float()
        loaded.mlgo_policy_decide(pointers, ctypes.byref(size))
        sizes[number] = size.value
    return sizes


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("features", [LLVMS, MIXED], ids=["vector", "columns"])
def test_c_gives_the_same_sizes_to_the_bit(features: tuple[TensorSpec, ...], tmp_path: Path) -> None:
    found = model(features)
    rows = vectors(400)
    rows = np.column_stack([rows, rows[:, :3]]) if features is MIXED else rows
    build_library(found, tmp_path / "model.so")
    assert sizes_in_c(tmp_path / "model.so", found, rows).tobytes() == found.sizes(rows).size.tobytes()


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = replace(model(MIXED), metrics={"measured": [1]}, card="# A card\n", coverage=0.8, licence="MIT")
    found.save(tmp_path / "model")
    read = SizeModel.load(tmp_path / "model")
    assert (read.as_json(), read.metrics, read.card) == (found.as_json(), found.metrics, found.card)
    assert (read.digest, read.coverage) == (found.digest, 0.8)
    rows = np.column_stack([vectors(9), vectors(9)[:, :3]])
    assert all((one == other).all() for one, other in zip(read.sizes(rows), found.sizes(rows), strict=True))
    read.save(tmp_path / "again")
    for path in (tmp_path / "model").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    assert replace(found, name="other-1.0").digest != found.digest
    assert replace(found, low=found.high).digest != found.digest


def note(folder: Path, **changes: Any) -> None:
    path = folder / "policy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def arrays(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with np.load(folder / "model.npz") as archive:
        found = dict(archive)
    change(found)
    np.savez(folder / "model.npz", **found)


def feature(name: str, kind: str = "int64_t", count: int = 1) -> dict[str, Any]:
    return {"name": name, "type": kind, "shape": [count]}


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "policy": (lambda at: note(at, task="inlining"), "task: expected native-size, found 'inlining'"),
    "no task": (lambda at: note(at, task=None), "task: expected native-size, found None"),
    "rule": (lambda at: note(at, kind="rule"), "kind: expected trees, found 'rule'"),
    "newer": (lambda at: note(at, format=2), "format 2, expected 1"),
    "coverage": (lambda at: note(at, decision={"coverage": 1.5}), "expected a coverage between 0 and 1, found 1.5"),
    "no coverage": (lambda at: note(at, decision={}), "decision: coverage: expected a number"),
    "name": (lambda at: note(at, name='x"; evil('), "name: expected letters, digits"),
    "width": (lambda at: note(at, features=[feature(VECTOR, "int32_t", 3)]), f"expected {WIDTH} numbers, found 3"),
    "type": (
        lambda at: note(at, features=[feature("blocks", "float")]),
        "expected one of int32_t, int64_t, found float",
    ),
    "feature": (lambda at: note(at, features=[feature('"]; int x["')]), "expected a name of letters, digits and _"),
    "twice": (lambda at: note(at, features=[feature("blocks")] * 2), "two have the same name"),
    "inputs": (lambda at: note(at, features=[feature("blocks")]), "expected a number below 1, found"),
    "not json": (lambda at: (at / "policy.json").write_text("{"), "not JSON"),
    "not zip": (lambda at: (at / "model.npz").write_bytes(b"PK"), "not a whole archive of arrays"),
    "no base": (lambda at: arrays(at, lambda found: found.pop("base_weights")), "base_weights: expected numbers"),
    "two biases": (
        lambda at: arrays(at, lambda found: found.update(base_bias=np.zeros(2))),
        "base_bias: expected one number, found 2",
    ),
    "weights": (
        lambda at: arrays(at, lambda found: found.update(base_weights=np.zeros(3))),
        f"weights: expected {WIDTH}, one for each feature, found 3",
    ),
    "infinite": (
        lambda at: arrays(at, lambda found: found.update(base_weights=np.full(WIDTH, np.inf))),
        "weights: expected finite numbers",
    ),
    "no low": (lambda at: arrays(at, lambda found: found.pop("low_roots")), "there is no array roots"),
    "more": (lambda at: arrays(at, lambda found: found.update(evil=np.zeros(2))), "unexpected array evil"),
    "circle": (
        lambda at: arrays(at, lambda found: found["high_children"].fill(0)),
        "children: node 0 leads to itself, or to a node before it",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_model_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    model().save(tmp_path / "model")
    change, said = HOSTILE[what]
    change(tmp_path / "model")
    with pytest.raises(FormatError) as caught:
        SizeModel.load(tmp_path / "model")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "model") in str(caught.value)


def test_an_archive_that_unpacks_to_more_than_it_is_refused(tmp_path: Path) -> None:
    model().save(tmp_path / "model")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("roots.npy", bytes(1 << 20))
    (tmp_path / "model" / "model.npz").write_bytes(target.getvalue())
    with pytest.raises(FormatError, match="expected uncompressed arrays"):
        SizeModel.load(tmp_path / "model")


def test_a_model_and_a_policy_are_not_taken_for_each_other(tmp_path: Path) -> None:
    model().save(tmp_path / "model")
    with pytest.raises(FormatError, match=r"policy\.json: a model of native size, which decides nothing: "):
        load_policy(tmp_path / "model")
    with pytest.raises(UsageError, match="no such model"):
        SizeModel.load(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"a folder without policy\.json"):
        SizeModel.load(tmp_path)
    model(MIXED).save(tmp_path / "mixed")
    with pytest.raises(UsageError, match="models of LLVM's own numbers only"):
        vector_model(tmp_path / "mixed")
    assert vector_model(tmp_path / "model").is_llvms


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_verb_policy_shows_and_compiles_models(tmp_path: Path) -> None:
    found = model()
    found.save(tmp_path / "model")
    facts = show_policy(tmp_path / "model")
    assert (facts.task, facts.kind, facts.threshold, facts.digest) == ("native-size", "trees", None, found.digest)
    assert compile_policy(tmp_path / "model", str(tmp_path / "made")).files == ("policy.c", "policy.h", "policy.so")
    shown = CliRunner().invoke(app, ["policy", "show", str(tmp_path / "model")])
    assert (shown.exit_code, "trees for native-size" in shown.stdout) == (0, True)


def table(count: int = 4) -> pa.Table:
    columns: dict[str, Any] = {name: pa.array(range(place, place + count), pa.int32()) for place, name in NUMBERED}
    columns["linkage"] = pa.array(["internal", "external", None, "internal"][:count]).dictionary_encode()
    columns["comdat"] = pa.array([None, "x", None, None][:count])
    columns["target_triple"] = pa.array(["x86_64-pc-linux-gnu", "aarch64-linux-gnu", "evil name", None][:count])
    columns["minsize"] = pa.array([True, False, True, False][:count])
    columns["opt_level"] = pa.array(["z", "z", "2", "z"][:count])
    return pa.table(columns)


NUMBERED = [*enumerate(IR2NATIVE_COLUMNS)]


def test_inputs_are_what_the_features_names_say() -> None:
    features = (*LLVMS, *map(TensorSpec, ("minsize", "has_comdat", "linkage_is_internal", "target_is_x86_64")))
    features = (*features, TensorSpec("opt_level_is_z"))
    found = inputs_of(table(), features)
    assert found[:, :WIDTH].tolist() == [[place + row for place in range(WIDTH)] for row in range(4)]
    assert found[:, WIDTH:].T.tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1], [1, 0, 0, 0], [1, 1, 0, 1]]
    assert names_of(features)[WIDTH - 1 : WIDTH + 1] == (IR2NATIVE_COLUMNS[-1], "minsize")
    assert columns_of(features)[WIDTH:] == ("minsize", "comdat", "linkage", "target_triple", "opt_level")
    rows = [[place + row for place in range(WIDTH)] for row in range(4)]
    for kind in (pa.list_(pa.int32()), pa.list_(pa.int32(), WIDTH)):
        alone = pa.table({VECTOR: pa.array(rows, kind)})
        assert inputs_of(alone, LLVMS).tolist() == rows
        assert inputs_of(alone.slice(1, 2), LLVMS).tolist() == rows[1:3]
    assert inputs_of(table(0), features).shape == (0, WIDTH + 5)


def test_features_are_chosen_from_what_all_tables_have() -> None:
    found = {spec.name for spec in choose_features([table()], ["ir2native", "context"])}
    assert {VECTOR, "minsize", "has_comdat", "linkage_is_internal", "linkage_is_external", "opt_level_is_2"} <= found
    assert {name for name in found if name.startswith("target")} == {"target_is_x86_64", "target_is_aarch64"}
    with pytest.raises(UsageError, match="does not have the features of llvm"):
        choose_features([table()], ["llvm"])


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (None, "needs the column 'blocks', which the table does not have"),
        (pa.array(["1"]), "needs numbers in the column 'blocks', found string"),
        (pa.array([None], pa.int32()), "needs a number in each row of the column 'blocks', found null"),
    ],
)
def test_columns_that_are_no_numbers_are_refused(column: Any, said: str) -> None:
    found = pa.table({"other": [1]} if column is None else {"blocks": column})
    with pytest.raises(UsageError, match=said):
        inputs_of(found, [TensorSpec("blocks")])


@pytest.mark.parametrize(
    "column",
    [pa.array([1]), pa.array([[1, 2]]), pa.array([[1.5] * WIDTH]), pa.array([None, [1] * WIDTH]), pa.array(["x"])],
)
def test_vectors_that_are_none_are_refused(column: Any) -> None:
    with pytest.raises(UsageError, match=VECTOR):
        inputs_of(pa.table({VECTOR: column}), LLVMS)
