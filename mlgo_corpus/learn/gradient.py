"""Policy gradients for a small network, as in MLGO (arXiv 2101.04808): a module's bytes reward all its decisions.

A step compiles a few modules several times each, with decisions drawn by the policy's probabilities. An episode's
reward is what its object saves, as a share of the module's bytes by LLVM's own decisions; what its module's other
episodes save on average is taken off, for the modules differ more than the decisions do. The surrogate is that of
proximal policy optimisation (arXiv 1707.06347), so that a batch is good for several steps of the optimiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.learn.shapes import Adam, Shape, Turns, probabilities
from mlgo_corpus.policies.models import Doubles

_EPISODES: Final = 6
_MODULES: Final = 8
_PASSES: Final = 8
# A fifth of it is calmer, and learned less: -0.6 % instead of -2.0 % of a project that it has not seen (docs/learn.md).
_RATE: Final = 0.05
# How far a decision's probability may move from that by which it was drawn, in one step.
_CLIP: Final = 0.3
# The weight of the entropy, which keeps probabilities away from 0 and 1 while decisions make no difference.
_ENTROPY: Final = 0.003
_LEAST: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Episode:
    """A compile with drawn decisions.

    Attributes:
        module: its module's number.
        change: of its bytes, against LLVM's own decisions.
        prepared: the inputs of its decisions.
        decisions: of shape (n,): 1 to inline.
    """

    module: int
    change: float
    prepared: Doubles
    decisions: NDArray[np.int64]


class Gradient:
    """A policy that learns from episodes.

    Args:
        shape: of the model.
        numbers: to begin with.
        modules: how many there are.
        seed: of the choice of modules, and part of the seed of each episode's decisions.
    """

    def __init__(self, shape: Shape, numbers: Doubles, modules: int, seed: int) -> None:
        self._shape = shape
        self._adam = Adam(numbers, _RATE)
        self._turns = Turns(modules, _MODULES, seed)
        self._seed = seed
        self.compiles_of_step = _EPISODES * self._turns.count

    @property
    def numbers(self) -> Doubles:
        """The policy's numbers."""
        return self._adam.numbers

    def ask(self, step: int) -> list[tuple[int, str]]:
        """Return the episodes of the next step: each one's module, and the seed of its decisions."""
        chosen = next(self._turns)
        return [(module, f"{self._seed}:{step}:{module}:{number}") for module in chosen for number in range(_EPISODES)]

    def tell(self, episodes: Sequence[Episode]) -> None:
        """Learn from the episodes of a step."""
        batch = [one for one in episodes if len(one.decisions)]
        gains = _advantages([one.module for one in batch], np.array([-one.change for one in batch]))
        if not batch or not gains.any():
            return
        prepared = np.concatenate([one.prepared for one in batch])
        decisions = np.concatenate([one.decisions for one in batch])
        counts = [len(one.decisions) for one in batch]
        gain = np.repeat(gains, counts)
        share = 1.0 / len(decisions)
        drawn = self._likely(prepared, decisions)
        for _ in range(_PASSES):
            scores = self._shape.scores(self.numbers, prepared)
            likely = probabilities(scores)
            of_decision = np.where(decisions != 0, likely, 1 - likely)
            ratio = of_decision / drawn
            clipped = ((ratio > 1 + _CLIP) & (gain > 0)) | ((ratio < 1 - _CLIP) & (gain < 0))
            # The derivatives of the surrogate, ratio * gain, and of the entropy by the score.
            slopes = np.where(clipped, 0.0, ratio * gain) * (decisions - likely)
            slopes += _ENTROPY * -scores * likely * (1 - likely)
            self._adam.step(-self._shape.gradient(self.numbers, prepared, slopes * share))

    def _likely(self, prepared: Doubles, decisions: NDArray[np.int64]) -> Doubles:
        likely = probabilities(self._shape.scores(self.numbers, prepared))
        found: Doubles = np.maximum(np.where(decisions != 0, likely, 1 - likely), _LEAST)
        return found

    @property
    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on, besides the turns of the modules."""
        return self._adam.state

    def restore(self, state: dict[str, Any]) -> None:
        """Continue after a step that was asked for."""
        self._adam.restore(state)


def _advantages(modules: Sequence[int], rewards: Doubles) -> Doubles:
    """Return how much better each episode is than its module's others, in deviations of the whole step."""
    places = np.unique(np.array(modules, np.int64), return_inverse=True)[1]
    counts = np.bincount(places)
    means = np.bincount(places, rewards) / np.maximum(counts, 1)
    # The mean of a module's k episodes contains the episode itself; against the mean of the others, the difference is
    # k / (k - 1) times as large.
    found = (rewards - means[places]) * (counts / np.maximum(counts - 1, 1))[places]
    spread = float(found.std())
    return found / spread if spread > 0 else np.zeros_like(found)
