"""Models whose numbers are one vector, as evolution and gradients want them: a linear rule, and a network.

A model is made for the inputs that were seen: a rule weighs standardised features, and is written as one of the
features themselves; a network has one hidden layer, and gets their quantiles.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.policies.models import Doubles, Model, Network, Quantiles, Rule

# Edges of an input's quantiles: the more, the larger the file, and the finer what can be told apart.
_EDGES: Final = 32
# Values beyond these percentiles do not count for an input's scale: a few costs are in the thousands.
_PERCENTILES: Final = (1.0, 99.0)
_DECAY: Final = 1e-4
_CLONING_RATE: Final = 0.02
_CLONING_STEPS: Final = 1000
_BATCH: Final = 1024


class Shape(Protocol):
    """A model without its numbers.

    Attributes:
        size: how many numbers it has.
    """

    @property
    def size(self) -> int:
        """How many numbers it has."""

    def prepared(self, inputs: Doubles) -> Doubles:
        """Return the inputs of many decisions, of shape (n, features), as the other methods want them."""

    def first(self, generator: np.random.Generator) -> Doubles:
        """Return numbers to begin with, of a model that is fitted by gradients."""

    def scores(self, numbers: Doubles, prepared: Doubles) -> Doubles:
        """Return the scores of prepared inputs."""

    def gradient(self, numbers: Doubles, prepared: Doubles, slopes: Doubles) -> Doubles:
        """Return the gradient, by the numbers, of the sum of the scores weighted by ``slopes``."""

    def model(self, numbers: Doubles) -> Model:
        """Return the model with these numbers."""


def informative(inputs: Doubles) -> NDArray[np.intp]:
    """Return the columns whose values differ."""
    return np.flatnonzero((inputs != inputs[:1]).any(axis=0))


def shape_for(inputs: Doubles, neurons: int) -> Shape:
    """Return the shape of a model for inputs like these: a rule without neurons, else a network.

    Args:
        inputs: of shape (n, features).
        neurons: in the hidden layer.
    """
    if neurons:
        quantiles = np.linspace(0.0, 1.0, _EDGES)
        edges = [Quantiles(np.unique(np.quantile(column, quantiles, method="inverted_cdf"))) for column in inputs.T]
        return _NetworkShape(tuple(edges), neurons)
    low, high = np.percentile(inputs, _PERCENTILES, axis=0)
    cut = np.clip(inputs, low, high)
    spread = cut.std(axis=0)
    spread = np.where(spread > 0, spread, inputs.std(axis=0))
    return _RuleShape(cut.mean(axis=0), np.where(spread > 0, spread, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class _RuleShape:
    """A bias, and a weight for each standardised feature."""

    mean: Doubles
    scale: Doubles

    @property
    def size(self) -> int:
        return 1 + len(self.mean)

    def prepared(self, inputs: Doubles) -> Doubles:
        return np.column_stack([np.ones(len(inputs)), (inputs - self.mean) / self.scale])

    def first(self, generator: np.random.Generator) -> Doubles:  # noqa: ARG002 - as good as any
        return np.zeros(self.size)

    def scores(self, numbers: Doubles, prepared: Doubles) -> Doubles:
        found: Doubles = prepared @ numbers
        return found

    def gradient(self, numbers: Doubles, prepared: Doubles, slopes: Doubles) -> Doubles:  # noqa: ARG002 - it is linear
        found: Doubles = slopes @ prepared
        return found

    def model(self, numbers: Doubles) -> Model:
        weights = numbers[1:] / self.scale
        return Rule(float(numbers[0] - weights @ self.mean), tuple(weights.tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class _NetworkShape:
    """One hidden layer over quantiles."""

    inputs: tuple[Quantiles, ...]
    neurons: int

    @property
    def size(self) -> int:
        return (len(self.inputs) + 1) * self.neurons + self.neurons + 1

    def prepared(self, inputs: Doubles) -> Doubles:
        return np.column_stack([normalise(column) for normalise, column in zip(self.inputs, inputs.T, strict=True)])

    def first(self, generator: np.random.Generator) -> Doubles:
        count, neurons = len(self.inputs), self.neurons
        layers = (
            generator.normal(0.0, np.sqrt(2.0 / count), count * neurons),
            np.zeros(neurons),
            generator.normal(0.0, np.sqrt(1.0 / neurons), neurons),
            np.zeros(1),
        )
        return np.concatenate(layers)

    def _layers(self, numbers: Doubles) -> tuple[Doubles, Doubles, Doubles, Doubles]:
        count, neurons = len(self.inputs), self.neurons
        edges = np.cumsum([count * neurons, neurons, neurons])
        hidden, bias, output, last = np.split(numbers, edges)
        return hidden.reshape(count, neurons), bias, output, last

    def scores(self, numbers: Doubles, prepared: Doubles) -> Doubles:
        hidden, bias, output, last = self._layers(numbers)
        found: Doubles = np.maximum(prepared @ hidden + bias, 0.0) @ output + last[0]
        return found

    def gradient(self, numbers: Doubles, prepared: Doubles, slopes: Doubles) -> Doubles:
        hidden, bias, output, _ = self._layers(numbers)
        values = np.maximum(prepared @ hidden + bias, 0.0)
        inner = slopes[:, None] * output * (values > 0)
        parts = ((prepared.T @ inner).ravel(), inner.sum(axis=0), slopes @ values, slopes.sum(keepdims=True))
        return np.concatenate(parts)

    def model(self, numbers: Doubles) -> Model:
        hidden, bias, output, last = self._layers(numbers)
        return Network(self.inputs, ((hidden, bias), (output[:, None], last)))


class Adam:
    """Steps down a gradient, each number at its own pace (Kingma and Ba, 2015).

    Attributes:
        numbers: what is learned.
        state: what the next step depends on, besides the numbers: means of gradients and of their squares, and steps.
    """

    def __init__(self, numbers: Doubles, rate: float) -> None:
        self.numbers = numbers
        self._rate = rate
        self._mean = np.zeros_like(numbers)
        self._square = np.zeros_like(numbers)
        self._steps = 0

    def step(self, gradient: Doubles) -> None:
        """Go down."""
        self._steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean = self._mean / (1 - 0.9**self._steps)
        square = self._square / (1 - 0.999**self._steps)
        self.numbers = self.numbers - self._rate * mean / (np.sqrt(square) + 1e-8)

    @property
    def state(self) -> dict[str, Any]:
        """Return everything, as JSON has it."""
        return {
            "numbers": self.numbers.tolist(),
            "mean": self._mean.tolist(),
            "square": self._square.tolist(),
            "steps": self._steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.numbers = np.array(state["numbers"], np.float64)
        self._mean = np.array(state["mean"], np.float64)
        self._square = np.array(state["square"], np.float64)
        self._steps = int(state["steps"])


def clone(
    shape: Shape, inputs: Doubles, decisions: NDArray[np.int64], weights: Doubles, doubt: float, seed: int
) -> Doubles:
    """Return the numbers of a model that decides much as was decided; it is never very sure.

    Args:
        shape: of the model.
        inputs: of shape (n, features).
        decisions: of shape (n,): 1 to inline.
        weights: what each decision counts.
        doubt: the probability of the other decision that it leaves. A model that is sure explores nothing, and what a
            gradient would teach it has vanished.
        seed: of the beginning, and of the order.
    """
    generator = np.random.default_rng(seed)
    prepared = shape.prepared(inputs)
    wanted = np.where(decisions != 0, 1.0 - doubt, doubt)
    shares = weights / weights.mean()
    adam = Adam(shape.first(generator), _CLONING_RATE)
    for _ in range(_CLONING_STEPS):
        chosen = generator.integers(len(prepared), size=min(_BATCH, len(prepared)))
        some = prepared[chosen]
        likely = probabilities(shape.scores(adam.numbers, some))
        slopes = (likely - wanted[chosen]) * shares[chosen] / len(chosen)
        adam.step(shape.gradient(adam.numbers, some, slopes) + _DECAY * adam.numbers)
    return adam.numbers


def probabilities(scores: Doubles) -> Doubles:
    """Return the probabilities to inline with these scores."""
    found: Doubles = 0.5 * (1.0 + np.tanh(0.5 * scores))
    return found


class Turns(Iterator[list[int]]):
    """Some of the modules at a time, each as often as any other."""

    def __init__(self, modules: int, count: int, seed: int) -> None:
        self.count = min(count, modules)
        self._modules = modules
        self._generator = random.Random(f"turns:{seed}")  # noqa: S311 - an experiment, no secret
        self._left: list[int] = []

    def __next__(self) -> list[int]:
        found: list[int] = []
        while len(found) < self.count:
            if not self._left:
                self._left = self._generator.sample(range(self._modules), self._modules)
            number = self._left.pop()
            if number not in found:
                found.append(number)
        return sorted(found)
