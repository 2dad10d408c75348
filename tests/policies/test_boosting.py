"""Trees of LightGBM: as the library's own predictions, where it is installed, and what cannot be taken over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.boosting import trees_of_lightgbm

FEATURES = (TensorSpec("a"), TensorSpec("b", "float"), TensorSpec("c", "float"))


def node(split: int, threshold: float, left: Any, right: Any, **more: Any) -> dict[str, Any]:
    plain = {"decision_type": "<=", "missing_type": "None", "default_left": True}
    return {
        "split_feature": split, "threshold": threshold, "left_child": left, "right_child": right, **plain, **more
    }  # fmt: skip


def leaf(value: float) -> dict[str, Any]:
    return {"leaf_value": value}


def dump(*structures: Any, **more: Any) -> dict[str, Any]:
    infos = [{"tree_structure": structure} for structure in structures]
    return {"feature_names": ["c", "a", "b"], "tree_info": infos, "num_tree_per_iteration": 1, **more}


def test_a_dump_becomes_trees() -> None:
    tree = node(1, 4.5, leaf(1.0), node(0, -1.0, leaf(2.0), leaf(3.0)))
    trees = trees_of_lightgbm(dump(tree, leaf(0.25)), FEATURES)
    assert trees.described() == "2 trees, 4 leaves, 2 levels"
    assert trees.nan_as_zero == (2,)  # of those compared, the one that is not whole
    rows = np.array([[4.0, 0, 9], [5.0, 0, -1], [5.0, 0, 0], [5.0, 0, math.nan]])
    assert trees.scores(rows).tolist() == [1.25, 2.25, 3.25, 3.25]


def test_missing_values_may_go_right() -> None:
    tree = node(0, -1.0, leaf(2.0), leaf(3.0), missing_type="NaN", default_left=False)
    trees = trees_of_lightgbm(dump(tree), FEATURES)
    assert trees.nan_as_zero == ()
    assert trees.scores(np.array([[0, 0, math.nan], [0, 0, -2.0]])).tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({}, "it has no feature_names or tree_info"),
        ([], "it has no feature_names or tree_info"),
        (dump(leaf(1), num_tree_per_iteration=3), "found several classes or an average"),
        (dump(leaf(1), average_output=True), "found several classes or an average"),
        (dump(None), "tree_structure: expected an object, found None"),
        (dump(leaf(math.inf)), "leaf_value: expected a finite number, found inf"),
        (dump(leaf(10**400)), "leaf_value: expected a finite number, found 1000"),
        (dump({"leaf_value": 1, "leaf_coeff": [1.0]}), "found linear trees"),
        (dump(node(7, 1, leaf(1), leaf(2))), "split_feature: expected one of 3 features, found 7"),
        (dump(node(0, 1, leaf(1), None)), "right_child: expected an object, found None"),
        (dump(node(0, 1, leaf(1), leaf(2), decision_type="==")), "expected numeric splits by <=, found '=='"),
        (dump(node(0, 1, leaf(1), leaf(2), missing_type="Zero")), "'c': the model sends missing values"),
        (dump(node(0, 1, leaf(1), leaf(2), missing_type="NaN")), "train it with use_missing=False"),
        (dump(node(0, 1, node(0, 0, leaf(1), leaf(2)), leaf(2), missing_type="NaN", default_left=False)), "disagree"),
        ({**dump(node(0, 1, leaf(1), leaf(2))), "feature_names": ["x"]}, "compares 'x', which is not one of the feat"),
    ],
)
def test_what_a_policy_cannot_be_is_refused(model: Any, said: str) -> None:
    with pytest.raises(FormatError) as caught:
        trees_of_lightgbm(model, FEATURES)
    assert said in str(caught.value)


def test_scores_are_the_librarys_own() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(2000, 3)) * 50
    inputs[:, 0] = np.round(inputs[:, 0])
    wanted = inputs[:, 0] * inputs[:, 1] > inputs[:, 2]
    settings = {"objective": "binary", "num_leaves": 31, "verbose": -1, "num_threads": 1, "use_missing": False}
    names = [spec.name for spec in FEATURES]
    booster = lightgbm.train(settings, lightgbm.Dataset(inputs, wanted, feature_name=names), 20)
    trees = trees_of_lightgbm(booster.dump_model(), FEATURES)
    inputs[::7, 1] = np.nan
    inputs[::11, 2] = np.inf
    assert trees.scores(inputs).tolist() == booster.predict(inputs, raw_score=True).tolist()
