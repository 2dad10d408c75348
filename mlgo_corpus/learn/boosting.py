"""Gradient boosting by LightGBM: trees that tell how likely a better decision is to inline.

The same examples and options give the same trees, with the same version of the library: it runs in one thread, which
is fast enough for millions of decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from mlgo_corpus.errors import UsageError
from mlgo_corpus.learn.examples import Examples
from mlgo_corpus.policies.boosting import trees_of_lightgbm
from mlgo_corpus.policies.models import Trees

_ALWAYS: Final = {
    "lambda_l2": 1.0,
    "use_missing": False,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
# Each tree sees some of the examples and features only, others each time, so that their sum depends less on chance. Of
# few examples, each tree sees all.
_PART_FOR_EACH_TREE: Final = {"bagging_fraction": 0.4, "bagging_freq": 1, "feature_fraction": 0.5}
_PART_OF_FEW: Final = {"feature_fraction": 0.8}
_FEW: Final = 1000
_USUAL_RATE: Final = 0.05
LEAST_IN_LEAF: Final = 150
"""Examples in a leaf, at least; of few examples, a hundredth."""
# The learning rate, summed over the trees.
_MOST_LEARNT: Final = 9.0


@dataclass(frozen=True, slots=True)
class BoostingOptions:
    """The size of a model, and how it is fitted.

    Attributes:
        trees: how many.
        leaves: of each tree, at most.
        rate: the learning rate: less for many trees, which are to learn more evenly, and no more.
        seed: of the choice of examples and features for each tree.
    """

    trees: int = 120
    leaves: int = 15
    rate: float = _USUAL_RATE
    seed: int = 0

    @classmethod
    def of(cls, trees: int, leaves: int, seed: int) -> BoostingOptions:
        """Return the options for a model of this size."""
        return cls(trees, leaves, rate=min(_USUAL_RATE, round(_MOST_LEARNT / trees, 4)), seed=seed)


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
    need_lightgbm()
    if len(set(examples.decisions.tolist())) < 2:
        raise UsageError("all decisions of the datasets are the same: there is nothing to learn")
    names = [spec.name for spec in examples.features]
    parameters = {
        "objective": "binary",
        "num_leaves": options.leaves,
        "learning_rate": options.rate,
        "min_data_in_leaf": least_in_leaf(LEAST_IN_LEAF, len(examples.decisions)),
        **(_PART_FOR_EACH_TREE if len(examples.decisions) >= _FEW else _PART_OF_FEW),
        "seed": options.seed,
    }
    told = None if progress is None else (lambda done: progress(done, options.trees, ""))
    booster = boosted(parameters, examples.inputs, examples.decisions, examples.weights, names, options.trees, told)
    return Fitted(
        trees_of_lightgbm(booster.dump_model(), examples.features), shares_of_loss(booster, names), library_name()
    )


def least_in_leaf(wanted: int, count: int) -> int:
    """Return how many of so many examples a leaf has at least: of few, a hundredth."""
    return max(1, min(wanted, count // 100))


def boosted(
    parameters: Mapping[str, Any],
    inputs: NDArray[Any],
    labels: NDArray[Any],
    weights: NDArray[Any],
    names: Sequence[str],
    trees: int,
    progress: Callable[[int], None] | None,
) -> Any:
    """Return a booster of LightGBM that is fitted in one thread, and is the same each time.

    Args:
        parameters: of LightGBM, besides those that all fits have.
        inputs: of shape (n, inputs).
        labels: of shape (n,).
        weights: of shape (n,).
        names: of the inputs.
        trees: how many trees it has.
        progress: called with the trees that are done.

    Raises:
        UsageError: the library is missing, or cannot learn from this.
    """
    lightgbm = need_lightgbm()

    def told(environment: Any) -> None:
        if progress is not None:
            progress(environment.iteration + 1)

    data = lightgbm.Dataset(inputs, labels, weight=weights, feature_name=list(names))
    try:
        return lightgbm.train({**_ALWAYS, **parameters}, data, trees, callbacks=[told])
    except lightgbm.basic.LightGBMError as error:
        raise UsageError(f"LightGBM cannot learn from this: {' '.join(str(error).split())}") from None


def shares_of_loss(booster: Any, names: Sequence[str]) -> dict[str, float]:
    """Return of each input the share of the loss that its splits save; most first."""
    gains = booster.feature_importance("gain")
    total = float(gains.sum()) or 1.0
    ranked = sorted(zip(names, gains.tolist(), strict=True), key=lambda item: (-item[1], item[0]))
    return {name: round(gain / total, 4) for name, gain in ranked if gain > 0}


def library_name() -> str:
    """Return the name and version of the library."""
    return f"LightGBM {need_lightgbm().__version__}"
