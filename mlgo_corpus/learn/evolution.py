"""Evolution strategies: CMA-ES moves a policy's numbers to where real compiles are small.

A step is a generation: each candidate compiles the same few modules, and what counts is the sum of their bytes against
that by LLVM's own decisions. The strategy itself is the package ``cma`` (Hansen, arXiv 1604.00772).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mlgo_corpus.errors import UsageError
from mlgo_corpus.learn.shapes import Shape, Turns
from mlgo_corpus.policies.models import Doubles

# How much a candidate's scores differ from the mean's at first, as a share of these.
_FIRST_CHANGE: Final = 0.7
_TRIED: Final = 16
# Generations that a budget should suffice for, and the modules of one at least.
_GENERATIONS: Final = 20
_FEWEST_MODULES: Final = 4


def need_cma() -> Any:
    """Import the library.

    Raises:
        UsageError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it would like to draw
            import cma
    except ImportError as error:
        raise UsageError(f"evolution strategies need cma: pip install 'mlgo-corpus[learn]' ({error})") from None
    return cma


class Evolution:
    """A strategy under way.

    Args:
        shape: of the model.
        numbers: to begin with.
        prepared: inputs of decisions, to measure changes with.
        modules: how many there are.
        compiles: how many are at hand.
        seed: of the candidates, and of the choice of modules.

    Attributes:
        numbers: the mean of the candidates so far.
        library: the name and version of what made them.
    """

    def __init__(
        self, shape: Shape, numbers: Doubles, prepared: Doubles, modules: int, compiles: int, seed: int
    ) -> None:
        cma = need_cma()
        self.library = f"cma {cma.__version__}"
        generator = np.random.default_rng(seed)
        scores = shape.scores(numbers, prepared)
        # The distance of the scores from 0 is the change that turns decisions around.
        spread = float(np.sqrt((scores**2).mean())) or 1.0
        self._generator = generator
        self._strategy = cma.CMAEvolutionStrategy(
            numbers,
            _first_step(shape, numbers, prepared, generator) * spread * _FIRST_CHANGE,
            {"seed": math.nan, "randn": self._normal, "verbose": -9, "verb_log": 0, "verb_disp": 0},
        )
        self.numbers: Doubles = numbers
        population = int(self._strategy.popsize)
        wanted = compiles // (population * _GENERATIONS)
        self._modules = Turns(modules, max(wanted, _FEWEST_MODULES), seed)
        self.compiles_of_step = population * self._modules.count
        self._asked: list[Doubles] = []

    def ask(self) -> tuple[list[Doubles], list[int]]:
        """Return the candidates of the next generation, and the modules that each of them compiles."""
        self._asked = self._strategy.ask()
        return self._asked, next(self._modules)

    def tell(self, changes: Sequence[float]) -> None:
        """Learn what the candidates made of the modules, against LLVM's own decisions: less is better."""
        self._strategy.tell(self._asked, list(changes))
        self.numbers = np.array(self._strategy.mean, np.float64)

    def _normal(self, *shape: int) -> Doubles:
        return self._generator.standard_normal(shape)


def _first_step(shape: Shape, numbers: Doubles, prepared: Doubles, generator: np.random.Generator) -> float:
    """Return the deviation of the numbers that changes scores by 1 on average."""
    plain = shape.scores(numbers, prepared)
    small = 1e-3
    changes = [
        float((shape.scores(numbers + small * generator.standard_normal(len(numbers)), prepared) - plain).std())
        for _ in range(_TRIED)
    ]
    return small / (float(np.mean(changes)) or 1.0)
