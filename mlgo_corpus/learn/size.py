"""Gradient boosting by LightGBM for native sizes: the logarithm of a function's bytes, and the ends of an interval.

Functions with equal bodies count together as one. The ends of the interval are quantiles, each shifted so that the
functions of the side ``validation`` are outside of it as often as they should be. The same functions and options give
the same trees, with the same version of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.learn.boosting import need_lightgbm
from mlgo_corpus.policies.boosting import trees_of_lightgbm
from mlgo_corpus.policies.models import Doubles, Trees

# With fewer functions to shift an end by, it stays where the quantile is.
_LEAST_TO_SHIFT: Final = 100


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """The size of a model, and how it is fitted.

    Attributes:
        trees: how many, for the size; half of them for each end of the interval.
        leaves: of each tree, at most.
        rate: the learning rate.
        least_in_leaf: functions in a leaf, at least; of few functions, a hundredth.
        share: of the features that each tree may use.
        coverage: of the interval.
        seed: of the choice of features for each tree.
    """

    trees: int = 600
    leaves: int = 15
    rate: float = 0.04
    least_in_leaf: int = 10
    share: float = 0.3
    coverage: float = 0.9
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FittedSizes:
    """A model.

    Attributes:
        model: gives the logarithm of the size; ``low`` and ``high`` the ends of the interval.
        importance: of each input, the share of the loss that its splits save; most first.
        library: the name and version of what fitted it.
    """

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
        held: the inputs and sizes of functions that are not among them, to shift the interval by.
        options: how to fit.
        progress: called with (trees done, in all, of what).

    Raises:
        UsageError: the library is missing, or cannot learn from this.
    """
    lightgbm = need_lightgbm()
    _, place, counts = np.unique(bodies, return_inverse=True, return_counts=True)
    logs = np.log(np.maximum(sizes, 1.0))
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
            "min_data_in_leaf": max(1, min(options.least_in_leaf, len(sizes) // 100)),
            "feature_fraction": options.share,
            "lambda_l2": 1.0,
            "use_missing": False,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "seed": options.seed,
            "verbose": -1,
        }
        before = sum(len(trees.roots) for trees in found)

        def told(environment: Any, before: int = before, what: str = "sizes" if alpha is None else "interval") -> None:
            if progress is not None:
                progress(min(before + environment.iteration + 1, total), total, what)

        # A data set keeps parameters of its own, so that each model has one.
        data = lightgbm.Dataset(inputs, logs, weight=1.0 / counts[place], feature_name=list(names))
        try:
            booster = lightgbm.train(parameters, data, rounds, callbacks=[told])
        except lightgbm.basic.LightGBMError as error:
            raise UsageError(f"LightGBM cannot learn from this: {' '.join(str(error).split())}") from None
        if alpha is None:
            importance = _importance(booster, names)
        found.append(trees_of_lightgbm(booster.dump_model(), features))
    model, low, high = found
    if len(held[1]) >= _LEAST_TO_SHIFT:
        away = np.log(np.maximum(held[1], 1.0))
        low = _shifted(low, float(np.quantile(away - low.scores(held[0]), ends[0])))
        high = _shifted(high, float(np.quantile(away - high.scores(held[0]), ends[1])))
    return FittedSizes(model, low, high, importance, f"LightGBM {lightgbm.__version__}")


def _shifted(trees: Trees, by: float) -> Trees:
    return replace(trees, bias=trees.bias + by)


def _importance(booster: Any, names: Sequence[str]) -> dict[str, float]:
    gains = booster.feature_importance("gain")
    total = float(gains.sum()) or 1.0
    ranked = sorted(zip(names, gains.tolist(), strict=True), key=lambda item: (-item[1], item[0]))
    return {name: round(gain / total, 4) for name, gain in ranked if gain > 0}
