"""Trees of LightGBM, from the dictionary that its ``Booster.dump_model()`` returns; the library is not needed here.

The score is what ``Booster.predict(raw_score=True)`` returns, to the bit: the leaves' values already have the learning
rate in them, and the first tree's the average that training began with. A probability ``p`` of a binary model is the
score ``log(p / (1 - p))``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.logs.tensors import TensorSpec, shown
from mlgo_corpus.policies.artefact import number_of
from mlgo_corpus.policies.models import Trees


def trees_of_lightgbm(dump: Mapping[str, Any], features: Sequence[TensorSpec]) -> Trees:
    """Return the trees of a LightGBM model.

    Args:
        dump: the result of ``Booster.dump_model()``.
        features: of the policy; the model's are found in them by name.

    Raises:
        FormatError: the dump is not one of a model with one score, numeric splits and plain leaves, or the model sends
            missing values where a policy cannot.
    """
    names, infos = (dump.get("feature_names"), dump.get("tree_info")) if isinstance(dump, Mapping) else (None, None)
    if not isinstance(names, list) or not isinstance(infos, list):
        raise FormatError("expected a model that LightGBM's dump_model returned: it has no feature_names or tree_info")
    if dump.get("num_tree_per_iteration", 1) != 1 or dump.get("average_output"):
        raise FormatError("expected a boosted model with one score, found several classes or an average")
    places = {spec.name: number for number, spec in enumerate(features)}
    forest = _Forest([places.get(str(name), -1) for name in names], names)
    for info in infos:
        forest.add(_object(info, "tree_structure"))
    zeros = {forest.inputs[split] for split in forest.zero_splits if 0 <= split < len(names)}
    whole = {number for number in zeros if features[number].type == "int64_t"}  # which are never NaN
    return forest.trees(tuple(sorted(zeros - whole)))


class _Forest:
    """The trees so far; nodes and leaves are numbered from a tree's root to the left."""

    def __init__(self, inputs: list[int], names: list[Any]) -> None:
        self.inputs = inputs
        self.names = names
        self.zero_splits: set[int] = set()
        self._nan_splits: set[int] = set()
        self._roots: list[int] = []
        self._features: list[int] = []
        self._thresholds: list[float] = []
        self._children: list[list[int]] = []
        self._leaves: list[float] = []

    def add(self, structure: Mapping[str, Any]) -> None:
        """Add a tree."""
        stack: list[tuple[Mapping[str, Any], int, int]] = [(structure, -1, 0)]
        while stack:
            item, parent, side = stack.pop()
            if "leaf_value" in item:
                place = ~len(self._leaves)
                self._leaves.append(number_of(item["leaf_value"], "leaf_value"))
                if item.get("leaf_coeff"):
                    raise FormatError("expected leaves of one number, found linear trees")
            else:
                place = len(self._features)
                self._features.append(self._split(item))
                self._thresholds.append(number_of(item.get("threshold"), "threshold"))
                self._children.append([0, 0])
                stack += [(_object(item, "right_child"), place, 1), (_object(item, "left_child"), place, 0)]
            if parent < 0:
                self._roots.append(place)
            else:
                self._children[parent][side] = place

    def _split(self, item: Mapping[str, Any]) -> int:
        """Return the input that a node compares."""
        split = item.get("split_feature")
        if not isinstance(split, int) or not 0 <= split < len(self.inputs):
            raise FormatError(f"split_feature: expected one of {len(self.inputs)} features, found {shown(split)}")
        if self.inputs[split] < 0:
            raise FormatError(f"the model compares {shown(self.names[split])}, which is not one of the features")
        if item.get("decision_type") != "<=":
            raise FormatError(f"expected numeric splits by <=, found {shown(item.get('decision_type'))}")
        missing = item.get("missing_type", "None")
        if missing == "None":
            self.zero_splits.add(split)
        elif missing == "NaN" and not item.get("default_left"):
            self._nan_splits.add(split)
        else:
            raise FormatError(
                f"{shown(self.names[split])}: the model sends missing values ({shown(missing)}) where a policy cannot: "
                "train it with use_missing=False"
            )
        return self.inputs[split]

    def trees(self, nan_as_zero: tuple[int, ...]) -> Trees:
        """Return what was added."""
        if both := self.zero_splits & self._nan_splits:
            raise FormatError(f"{shown(self.names[min(both)])}: nodes disagree about missing values")
        return Trees(
            bias=0.0,
            roots=np.array(self._roots, np.int32),
            feature=np.array(self._features, np.int32),
            threshold=np.array(self._thresholds, np.float64),
            children=np.array(self._children, np.int32).reshape(-1, 2),
            leaves=np.array(self._leaves, np.float64),
            nan_as_zero=nan_as_zero,
        )


def _object(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise FormatError(f"{key}: expected an object, found {shown(found)}")
    return found
