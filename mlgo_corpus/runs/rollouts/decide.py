"""A learned policy as a trainer wants it: at hand at once, and able to draw its decisions at random.

A candidate decides in a few modules and is forgotten, so that it is not worth a C compiler's time, and numpy takes a
millisecond for a decision of a network. This takes some 30 microseconds, and gives the same score to the bit: the sums
are taken in the order of `mlgo_corpus.policies.models`.
"""

from __future__ import annotations

import math
import random
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Doubles, Network, Quantiles, Rule, Scaling

_PACKED: Final = {"int64_t": "q", "float": "f"}
# Beyond it, the exponential overflows, and the probability is 1 or 0 to the last bit.
_SURE: Final = 700.0


class Candidate:
    """A rule or a network for inlining; it decides as the `LearnedPolicy` does, or draws by its probabilities.

    The probability to inline is ``1 / (1 + exp(threshold - score))``.

    Args:
        policy: the policy.
        drawn: the seed of random decisions; None to inline what the policy inlines.
    """

    def __init__(self, policy: LearnedPolicy, drawn: str | None = None) -> None:
        self.features = policy.features
        self._score = _score_of(policy)
        self._threshold = policy.threshold
        self._drawn = drawn
        self._generator = random.Random()  # noqa: S311 - an experiment, no secret
        self._inputs: Callable[[bytes], Sequence[float]] = lambda _: ()

    def reset(self, header: LogHeader, module: str) -> None:  # noqa: ARG002 - of any module
        """Begin a session."""
        if self._drawn is not None:
            self._generator.seed(self._drawn)
        self._inputs = _reader(header, [spec.name for spec in self.features])

    def advise(self, observation: np.void) -> Any:
        """Return the decision."""
        margin = self._score(self._inputs(observation.tobytes())) - self._threshold
        if self._drawn is None:
            return int(margin > 0)
        return int(self._generator.random() < probability(margin))


def probability(margin: float) -> float:
    """Return the probability to inline with a score that is so much above the threshold."""
    if abs(margin) > _SURE:
        return float(margin > 0)
    return 1.0 / (1.0 + math.exp(-margin))


def _reader(header: LogHeader, names: Sequence[str]) -> Callable[[bytes], Sequence[float]]:
    """Return a function that reads features, one number each, from an observation."""
    places = {spec.name: number for number, spec in enumerate(header.features)}
    form = "=" + "".join(
        _PACKED[spec.type] if spec.type in _PACKED and spec.element_count == 1 else f"{spec.nbytes}s"
        for spec in header.features
    )
    unpack = struct.Struct(form).unpack
    wanted = [places[name] for name in names]
    if len(wanted) == 1:
        return lambda data: (unpack(data)[wanted[0]],)
    take = itemgetter(*wanted)
    return lambda data: take(unpack(data))


def _score_of(policy: LearnedPolicy) -> Callable[[Sequence[float]], float]:
    model = policy.model
    if isinstance(model, Rule):
        return _score_of_rule(model)
    if isinstance(model, Network):
        return _score_of_network(model)
    raise UsageError(f"expected a rule or a network to train, found {model.kind}")


def _score_of_rule(rule: Rule) -> Callable[[Sequence[float]], float]:
    bias, weights = rule.bias, rule.weights

    def score(inputs: Sequence[float]) -> float:
        total = bias
        for value, weight in zip(inputs, weights, strict=True):
            total += float(value) * weight
        return total

    return score


def _score_of_network(network: Network) -> Callable[[Sequence[float]], float]:
    normalise = [_normalise_of(one) for one in network.inputs]
    layers = [(np.array(weights), np.array(bias)[None, :]) for weights, bias in network.layers]
    squares = network.squares

    def score(inputs: Sequence[float]) -> float:
        found = [one(float(value)) for one, value in zip(normalise, inputs, strict=True)]
        if squares:
            found = [part for value in found for part in (value, value * value)]
        values: Doubles = np.array(found)
        for number, (weights, bias) in enumerate(layers):
            if number:
                values = np.where(values > 0, values, 0.0)
            values = np.add.accumulate(np.concatenate((bias, values[:, None] * weights)))[-1]
        return float(values[0])

    return score


def _normalise_of(normalise: Quantiles | Scaling | None) -> Callable[[float], float]:
    if isinstance(normalise, Quantiles):
        edges = normalise.edges.tolist()
        count = float(len(edges))
        return lambda value: bisect_right(edges, value) / count
    if normalise is not None:
        mean, scale = normalise.mean, normalise.scale
        return lambda value: (value - mean) * scale
    return lambda value: value
