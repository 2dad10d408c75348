"""Gradient boosting by LightGBM: trees that tell how likely a better decision is to inline.

The same examples and options give the same trees, with the same version of the library: it runs in one thread, which
is fast enough for millions of decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlgo_corpus.errors import UsageError
from mlgo_corpus.learn.examples import Examples
from mlgo_corpus.policies.boosting import trees_of_lightgbm
from mlgo_corpus.policies.models import Trees


@dataclass(frozen=True, slots=True)
class BoostingOptions:
    """The size of a model, and how it is fitted.

    Attributes:
        trees: how many.
        leaves: of each tree, at most.
        rate: the learning rate.
        least_in_leaf: examples in a leaf, at least; of few examples, a hundredth.
        seed: of the choice of features for each tree.
    """

    trees: int = 120
    leaves: int = 15
    rate: float = 0.05
    least_in_leaf: int = 60
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model.

    Attributes:
        trees: its trees; the score is the logarithm of the odds.
        importance: of each feature, the share of the loss that its splits save; most first.
        library: the name and version of what fitted it.
    """

    trees: Trees
    importance: dict[str, float]
    library: str


def need_lightgbm() -> Any:
    """Import the library.

    Raises:
        UsageError: it is not installed, or cannot be loaded.
    """
    try:
        import lightgbm
    except ImportError as error:
        raise UsageError(f"training needs LightGBM: pip install 'mlgo-corpus[learn]' ({error})") from None
    except OSError as error:  # its library needs OpenMP's, which small images lack
        first = str(error).partition("\n")[0]
        raise UsageError(f"LightGBM cannot be loaded: apt-get install libgomp1 ({first})") from None
    return lightgbm


def fit_trees(
    examples: Examples, options: BoostingOptions, progress: Callable[[int, int, str], None] | None = None
) -> Fitted:
    """Fit trees to examples.

    Raises:
        UsageError: the library is missing, or all decisions are the same.
    """
    lightgbm = need_lightgbm()
    if len(set(examples.decisions.tolist())) < 2:
        raise UsageError("all decisions of the datasets are the same: there is nothing to learn")
    names = [spec.name for spec in examples.features]
    parameters = {
        "objective": "binary",
        "num_leaves": options.leaves,
        "learning_rate": options.rate,
        "min_data_in_leaf": max(1, min(options.least_in_leaf, len(examples.decisions) // 100)),
        "feature_fraction": 0.8,
        "lambda_l2": 1.0,
        "use_missing": False,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": options.seed,
        "verbose": -1,
    }

    def told(environment: Any) -> None:
        if progress is not None:
            progress(environment.iteration + 1, options.trees, "")

    data = lightgbm.Dataset(examples.inputs, examples.decisions, weight=examples.weights, feature_name=names)
    try:
        booster = lightgbm.train(parameters, data, options.trees, callbacks=[told])
    except lightgbm.basic.LightGBMError as error:
        raise UsageError(f"LightGBM cannot learn from this: {' '.join(str(error).split())}") from None
    gains = booster.feature_importance("gain")
    total = float(gains.sum()) or 1.0
    ranked = sorted(zip(names, gains.tolist(), strict=True), key=lambda item: (-item[1], item[0]))
    return Fitted(
        trees_of_lightgbm(booster.dump_model(), examples.features),
        {name: round(gain / total, 4) for name, gain in ranked if gain > 0},
        f"LightGBM {lightgbm.__version__}",
    )
