"""Learned policies and observations for tests: small models of each kind, and what real compilers sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.recfunctions import repack_fields

from mlgo_corpus.dataset.logs import open_log
from mlgo_corpus.formats.logs.blocks import BlockReader, Rows
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, TASKS
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Model, Network, Quantiles, Rule, Scaling, Trees
from tests.conftest import DATA

DECISIONS = {task.name: task.decision for task in TASKS}


def real_observations(task: str) -> tuple[tuple[TensorSpec, ...], Any]:
    """Return the features of a task, without the decision, and all that the logs have of them as records."""
    records = []
    features: tuple[TensorSpec, ...] = ()
    for path in sorted((DATA / "training-logs").glob(f"{task}.*.log")):
        with open_log(Path(path)) as source:
            reader = BlockReader(source)
            features = reader.header.features
            dtype = dtype_of(features)
            records += [np.frombuffer(block.tensors.tobytes(), dtype) for block in reader if isinstance(block, Rows)]
    kept = tuple(spec for spec in features if spec.name != DECISIONS[task])
    return kept, repack_fields(np.concatenate(records)[[spec.name for spec in kept]])


def dtype_of(features: tuple[TensorSpec, ...]) -> np.dtype[Any]:
    """Return the type of observations, as sessions have it: a feature of one number is a number."""
    return np.dtype([(spec.name, spec.dtype, () if spec.is_scalar else spec.shape) for spec in features])


def extremes(features: tuple[TensorSpec, ...], count: int, seed: int) -> Any:
    """Return observations of numbers that are hard: the least and greatest, NaN, infinities, zeros, many equals."""
    draw = np.random.default_rng(seed)
    made = np.zeros(count, dtype_of(features))
    whole = [0, 1, -1, 2, 2**53 + 1, 2**63 - 1, -(2**63), 100]
    real = [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 3.4e38, 1e-45, -1.5, 0.1]
    for spec in features:
        values = draw.choice(whole if spec.type == "int64_t" else real, made[spec.name].shape)
        made[spec.name] = draw.integers(0, 2, made[spec.name].shape) if spec.name == "mask" else values
    return made


def random_trees(inputs: int, draw: np.random.Generator, *, trees: int = 8, leaves: int = 31, at: Any = None) -> Trees:
    """Return trees of random shape; thresholds are numbers of the array ``at``, a column for each input, so that ties
    are common."""
    roots, feature, threshold, children = [], [], [], []
    count = 0
    for _ in range(trees):
        size = int(draw.integers(1, leaves + 1))
        first = len(feature)
        # Each split replaces a leaf by a node after all others.
        places: list[tuple[int, int]] = [(-1, 0)]
        for node in range(first, first + size - 1):
            parent, side = places.pop(int(draw.integers(len(places))))
            if parent >= 0:
                children[parent][side] = node
            column = int(draw.integers(inputs))
            feature.append(column)
            threshold.append(float(draw.normal()) if at is None else float(draw.choice(at[:, column])))
            children.append([0, 0])
            places += [(node, 0), (node, 1)]
        roots.append(first if size > 1 else ~count)
        for parent, side in places:
            if parent >= 0:
                children[parent][side] = ~count
            count += 1
    numbers = {"feature": feature, "children": children, "roots": roots}
    return Trees(
        bias=float(draw.normal()),
        threshold=np.array(threshold),
        leaves=draw.normal(size=count) * 10.0 ** draw.integers(-3, 4, size=count),
        nan_as_zero=tuple(np.flatnonzero(draw.random(inputs) < 0.3).tolist()),
        **{name: np.array(values, np.int32) for name, values in numbers.items()},
    )


def random_network(inputs: int, draw: np.random.Generator, *, squares: bool = False, at: Any = None) -> Network:
    """Return a network of two layers; some inputs are normalised."""
    normalised: list[Quantiles | Scaling | None] = []
    for number in range(inputs):
        kind = draw.integers(3)
        values = draw.normal(size=20) if at is None else draw.choice(at[:, number], 20)
        normalised.append((None, Quantiles(np.sort(values)), Scaling(float(draw.normal()), 0.3))[kind])
    width = inputs * (1 + squares)
    layers = ((draw.normal(size=(width, 5)), draw.normal(size=5)), (draw.normal(size=(5, 1)), draw.normal(size=1)))
    return Network(tuple(normalised), layers, squares)


def random_rule(inputs: int, draw: np.random.Generator) -> Rule:
    """Return a rule of random weights."""
    return Rule(float(draw.normal()), tuple(draw.normal(size=inputs).tolist()))


def random_model(kind: str, inputs: int, seed: int, at: Any = None) -> Model:
    """Return a model of a kind."""
    draw = np.random.default_rng(seed)
    if kind == "rule":
        return random_rule(inputs, draw)
    if kind == "trees":
        return random_trees(inputs, draw, leaves=int(draw.choice([1, 8, 31, 40, 90])), at=at)
    return random_network(inputs, draw, squares=bool(seed % 2), at=at)


def policy_of(task: str, features: tuple[TensorSpec, ...], model: Model, **more: Any) -> LearnedPolicy:
    """Return a policy."""
    return LearnedPolicy(f"{task}-1.0", task, features, model, **more)


def columns_of(policy_features: tuple[TensorSpec, ...], observations: Any) -> Any:
    """Return the finite numbers of each feature as a column, for thresholds and edges that real values meet."""
    columns = []
    for spec in policy_features:
        values = np.asarray(observations[spec.name]).reshape(len(observations), -1)[:, 0].astype(float)
        columns.append(np.where(np.isfinite(values), values, 0.0))
    return np.column_stack(columns)


def small_policy(task: str = INLINING, kind: str = "trees") -> LearnedPolicy:
    """Return a small policy of a kind."""
    features: tuple[TensorSpec, ...] = (TensorSpec("cost_estimate"), TensorSpec("callee_users"))
    if task == EVICTION:
        features = (TensorSpec("mask", "int64_t", (1, 33)), TensorSpec("progress", "float", (1,)))
    draw = np.random.default_rng(3)
    models: dict[str, Model] = {
        "rule": Rule(30.0, (-1.0, 0.5)),
        "trees": random_trees(2, draw, trees=2, leaves=4),
        "mlp": Network(
            (Quantiles(np.array([0.0, 1.0, 1.0, 9.0])), Scaling(3.0, 0.25)),
            ((draw.normal(size=(4, 3)), draw.normal(size=3)), (draw.normal(size=(3, 1)), draw.normal(size=1))),
            squares=True,
        ),
    }
    return policy_of(task, features, models[kind], training={"modules": 3}, licence="Apache-2.0", card="# A card\n")
