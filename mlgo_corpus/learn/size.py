"""Gradient boosting by LightGBM for native sizes: of the logarithm of what a sum of weighted features misses.

The sum comes first: what instructions take adds up, so that no weight is negative. The weights have the least squares
of the relative errors. Trees are fitted to the rest, for the size and for the ends of an interval; these are quantiles,
each shifted so that the functions of the side ``validation`` are outside of it as often as they should be.

Functions with equal bodies count together as one. The same functions and options give the same model, with the same
version of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.learn.boosting import boosted, least_in_leaf, library_name, shares_of_loss
from mlgo_corpus.policies.boosting import trees_of_lightgbm
from mlgo_corpus.policies.models import Doubles, Rule, Trees

ENOUGH_HELD: Final = 100
"""With fewer functions that are held back, an interval may well hold less than it is to hold."""

LEAST_IN_LEAF: Final = 5
"""Functions in a leaf, at least; of few functions, a hundredth."""

FEATURES_OF_TREE: Final = 0.6
FUNCTIONS_OF_TREE: Final = 0.7
"""The shares of the features and functions that each tree may use."""

# An error of a byte counts alike in all functions that are smaller.
_SMALL: Final = 8.0
# The penalty of a squared weight, in squared relative errors: it keeps features of few functions from fitting these
# functions' errors. And the number of passes over all weights.
_RIDGE: Final = 0.001
_ROUNDS: Final = 120


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """The size of a model, and how it is fitted.

    Attributes:
        trees: how many, for the size; half of them for each end of the interval.
        leaves: of each tree, at most.
        rate: the learning rate.
        coverage: of the interval.
        seed: of the choice of features and functions for each tree.
    """

    trees: int = 800
    leaves: int = 31
    rate: float = 0.03
    coverage: float = 0.9
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FittedSizes:
    """A model.

    Attributes:
        base: gives the sum of weighted features.
        model: gives the logarithm of what to multiply it by; ``low`` and ``high`` for the ends of the interval.
        importance: of each input, the share of the loss that its splits save; most first.
        library: the name and version of what fitted it.
    """

    base: Rule
    model: Trees
    low: Trees
    high: Trees
    importance: dict[str, float]
    library: str


def fit_sizes(
    inputs: Doubles,
    names: Sequence[str],
    sizes: Doubles,
    bodies: NDArray[Any],
    held: tuple[Doubles, Doubles],
    options: SizeOptions,
    progress: Callable[[int, int, str], None] | None = None,
) -> FittedSizes:
    """Fit trees to functions.

    Args:
        inputs: of shape (functions, inputs).
        names: of the inputs.
        sizes: in bytes.
        bodies: what is equal for functions with equal bodies.
        held: the inputs and sizes of functions that are not among them, each body once, to shift the interval by.
        options: how to fit.
        progress: called with (trees done, in all, of what).

    Raises:
        UsageError: the library is missing, or cannot learn from this.
    """
    _, place, counts = np.unique(bodies, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[place]
    base = _fit_base(inputs, sizes, weights)
    logs = _rest(base, inputs, sizes)
    features = [TensorSpec(name) for name in names]
    ends = ((1 - options.coverage) / 2, (1 + options.coverage) / 2)
    total = 2 * options.trees
    found: list[Trees] = []
    importance: dict[str, float] = {}
    for alpha in (None, *ends):
        rounds = options.trees if alpha is None else max(1, options.trees // 2)
        goal = {"objective": "l2"} if alpha is None else {"objective": "quantile", "alpha": alpha}
        parameters = {
            **goal,
            "num_leaves": options.leaves,
            "learning_rate": options.rate,
            "min_data_in_leaf": least_in_leaf(LEAST_IN_LEAF, len(sizes)),
            "feature_fraction": FEATURES_OF_TREE,
            "bagging_fraction": FUNCTIONS_OF_TREE,
            "bagging_freq": 1,
            "seed": options.seed,
        }
        before = sum(len(trees.roots) for trees in found)

        def told(done: int, before: int = before, what: str = "sizes" if alpha is None else "interval") -> None:
            if progress is not None:
                progress(min(before + done, total), total, what)

        booster = boosted(parameters, inputs, logs, weights, names, rounds, told)
        if alpha is None:
            importance = shares_of_loss(booster, names)
        found.append(trees_of_lightgbm(booster.dump_model(), features))
    model, low, high = found
    if len(held[1]):
        away = _rest(base, *held)
        # Ranks among n + 1: with few functions, those among n make the interval too narrow for the next function.
        method: Any = "linear" if len(away) >= ENOUGH_HELD else "weibull"
        low = _shifted(low, float(np.quantile(away - low.scores(held[0]), ends[0], method=method)))
        high = _shifted(high, float(np.quantile(away - high.scores(held[0]), ends[1], method=method)))
    return FittedSizes(base, model, low, high, importance, library_name())


def _rest(base: Rule, inputs: Doubles, sizes: Doubles) -> Doubles:
    """Return the logarithm of what sums are to be multiplied by."""
    logs: Doubles = np.log(np.maximum(sizes, 1.0)) - np.log(np.maximum(base.scores(inputs), 1.0))
    return logs


def _fit_base(inputs: Doubles, sizes: Doubles, weights: Doubles) -> Rule:
    """Fit weights that are not negative, by coordinate descent."""
    columns = np.column_stack([np.ones(len(sizes)), inputs])
    scale = np.sqrt(weights) / np.maximum(sizes, _SMALL)
    columns, goal = columns * scale[:, None], sizes * scale
    lengths = np.sqrt((columns**2).sum(axis=0))
    lengths[lengths == 0] = 1.0
    columns /= lengths
    products = columns.T @ columns
    products[np.diag_indices_from(products)] += _RIDGE + _RIDGE / lengths**2
    wanted = columns.T @ goal
    found = np.zeros(len(wanted))
    for _ in range(_ROUNDS):
        for place in range(len(found)):
            step = (wanted[place] - products[place] @ found) / products[place, place]
            found[place] = max(0.0, found[place] + step)
    found /= lengths
    return Rule(float(found[0]), tuple(found[1:].tolist()))


def _shifted(trees: Trees, by: float) -> Trees:
    return replace(trees, bias=trees.bias + by)
