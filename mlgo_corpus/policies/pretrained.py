"""Models of ml-compiler-opt as policies: its inlining model, converted to TFLite, without TensorFlow.

Such a model takes each feature to its quantile (BUCKETIZE counts the edges that are at most the value), times a
constant, and its square, through dense layers with relu, and decides by the greater of two outputs (ARG_MAX). The
operators are followed from the inputs to the decision; a model in which they do anything else is refused.

TFLite computes in single precision, a policy in double, from the same weights; the two outputs become one, their
difference. So scores differ in the seventh digit, and decisions where the two outputs agree in as many.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.logs.tasks import INLINING
from mlgo_corpus.formats.logs.tensors import TensorSpec, shown
from mlgo_corpus.formats.records.tflite import TfliteModel, TfliteOperator, parse_tflite
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Network, Quantiles

# How many numbers may be on the way: the usual model has 40 000, mostly edges.
_MOST_NUMBERS: Final = 1 << 22
# The prefixes and the suffix that converters add to a feature's name.
_AROUND: Final = re.compile(r"^(?:serving_default_|action_)+|:\d+$")
# A factor this near to one over the number of edges is meant as such, and was rounded to single precision.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class _Element:
    """One number of a tensor: a feature; or how many edges are below it, times a factor, to a power."""

    feature: str
    edges: tuple[float, ...] = ()
    factor: float = 1.0
    power: int = 1

    @property
    def whole(self) -> bool:
        """Whether it is a feature or a count as it is: a whole number."""
        return (self.factor, self.power) == (1.0, 1)


@dataclass(slots=True)
class _Layers:
    """The output of dense layers; ``inputs`` are those of the first, ``rectified`` tells of relu after the last."""

    inputs: list[_Element]
    layers: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = field(default_factory=list)
    rectified: bool = False


class _Decision:
    """The number of the greater of two outputs."""

    def __init__(self, layers: _Layers) -> None:
        self.layers = layers


def policy_of_tflite(data: bytes, name: str) -> LearnedPolicy:
    """Make a policy of ml-compiler-opt's inlining model.

    Args:
        data: the content of its ``model.tflite``.
        name: the policy's name.

    Raises:
        FormatError: the bytes are no TFLite model, or one that does something else than the module's docstring says.
    """
    model = parse_tflite(data)
    found = _Walk(model).decision()
    names = list(dict.fromkeys(element.feature for element in found.inputs))
    features = tuple(TensorSpec(feature) for feature in names)
    return LearnedPolicy(name, INLINING, features, _network(found, names), training={"made from": "a TFLite model"})


class _Walk:
    """Follows the operators of a model."""

    def __init__(self, model: TfliteModel) -> None:
        self._model = model
        self._values: dict[int, Any] = {}
        self._left = _MOST_NUMBERS
        for number in model.inputs:
            feature = model.tensors[number].name
            while (plain := _AROUND.sub("", feature)) != feature:
                feature = plain
            self._values[number] = [_Element(feature)]

    def decision(self) -> _Layers:
        """Return the layers that decide."""
        for operator in self._model.operators:
            value = self._apply(operator, [self._value(number) for number in operator.inputs])
            for number in operator.outputs:
                self._values[number] = value
        decisions = [self._values.get(number) for number in self._model.outputs]
        if len(decisions) != 1 or not isinstance(decisions[0], _Decision):
            raise UnsupportedError("expected a model with one output, a decision by ARG_MAX")
        return decisions[0].layers

    def _spend(self, count: int) -> None:
        """Count numbers that are kept: a small file can name the same ones again and again."""
        self._left -= count
        if self._left < 0:
            raise UnsupportedError(f"expected a model of at most {_MOST_NUMBERS} numbers, found more")

    def _value(self, number: int) -> Any:
        if number < 0:
            return None
        constant = self._model.tensors[number].constant
        return self._values.get(number) if constant is None else constant

    def _apply(self, operator: TfliteOperator, inputs: list[Any]) -> Any:
        """Return what an operator makes of its inputs; None of what the decision must not depend on."""
        first = inputs[0] if inputs else None
        second = inputs[1] if len(inputs) > 1 else None
        made: Any = None
        if operator.name in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS"):
            made = first  # of an array of one row, as all are here
        elif operator.name == "CAST":
            made = _cast(first, to_float=all(self._model.tensors[number].is_float for number in operator.outputs))
        elif operator.name == "BUCKETIZE" and operator.boundaries is not None and isinstance(first, list):
            self._spend(len(operator.boundaries))
            edges = tuple(map(float, operator.boundaries))
            made = [_counted(element, edges) for element in first]
        elif operator.name == "MUL":
            made = _product(first, second)
            self._spend(len(made or ()))
        elif operator.name == "CONCATENATION" and all(isinstance(value, list) for value in inputs):
            self._spend(sum(map(len, inputs)))
            made = [element for value in inputs for element in value]
        elif operator.name == "FULLY_CONNECTED" and isinstance(second, np.ndarray):
            self._spend(second.size)
            biased = len(inputs) > 2 and operator.inputs[2] >= 0
            made = _layer(first, second, inputs[2] if biased else np.zeros(second.shape[:1]))
        elif operator.name == "RELU":
            made = _rectified(first)
        elif operator.name == "ARG_MAX" and isinstance(first, _Layers):
            made = _Decision(first)
        elif operator.name in ("MINIMUM", "MAXIMUM"):
            made = _limited(operator.name, first, second)
        if made is not None and operator.activation == "RELU":
            made = _rectified(made)
        return made


def _cast(value: Any, *, to_float: bool) -> Any:
    whole = isinstance(value, _Decision) or (isinstance(value, list) and all(element.whole for element in value))
    if value is not None and not to_float and not whole:
        raise UnsupportedError("CAST: expected float numbers, or whole ones of whole ones")
    return value


def _counted(element: _Element, edges: tuple[float, ...]) -> _Element:
    if element.edges or not element.whole:
        raise UnsupportedError(f"{shown(element.feature)}: BUCKETIZE of what is no feature")
    return _Element(element.feature, edges)


def _product(first: Any, second: Any) -> list[_Element] | None:
    """Return elements times a constant, or squared."""
    if isinstance(first, np.ndarray):
        first, second = second, first
    if not isinstance(first, list):
        return None
    if isinstance(second, np.ndarray) and second.size == 1:
        if any(element.power != 1 for element in first):
            raise UnsupportedError("MUL: expected a square as it is, found it times a constant")
        factor = float(second.reshape(-1)[0])
        return [_Element(one.feature, one.edges, one.factor * factor) for one in first]
    if first == second and all(element.power == 1 for element in first):
        return [_Element(one.feature, one.edges, one.factor, 2) for one in first]
    return None


def _layer(first: Any, weights: NDArray[Any], bias: Any) -> _Layers | None:
    if weights.ndim != 2 or weights.dtype.kind != "f" or not isinstance(bias, np.ndarray):
        raise UnsupportedError("FULLY_CONNECTED: expected float weights in two dimensions and a constant bias")
    made, added = weights.astype(np.float64).T, bias.astype(np.float64).reshape(-1)
    if isinstance(first, list):
        return _Layers(first, [(made, added)])
    if isinstance(first, _Layers) and first.rectified:
        return _Layers(first.inputs, [*first.layers, (made, added)])
    return None


def _rectified(value: Any) -> _Layers | None:
    return _Layers(value.inputs, value.layers, rectified=True) if isinstance(value, _Layers) else None


def _limited(name: str, first: Any, second: Any) -> Any:
    """Return what a limit makes of a value: a decision is 0 or 1 anyway, and at least 0 is relu."""
    if isinstance(first, np.ndarray):
        first, second = second, first
    if not isinstance(second, np.ndarray) or second.size != 1:
        return None
    limit = float(second.reshape(-1)[0])
    if isinstance(first, _Decision) and (limit >= 1 if name == "MINIMUM" else limit <= 0):
        return first
    return _rectified(first) if name == "MAXIMUM" and limit == 0 else None


def _network(found: _Layers, names: list[str]) -> Network:
    """Return the layers as a model of which each input is a quantile, followed by its square."""
    edges: dict[str, tuple[float, ...]] = {}
    for element in found.inputs:
        if not element.edges or edges.setdefault(element.feature, element.edges) != element.edges:
            raise UnsupportedError(f"{shown(element.feature)}: expected quantiles of one set of edges")
    (first, bias), *others = found.layers
    if len(first) != len(found.inputs) or found.rectified:
        raise FormatError(f"expected {len(found.inputs)} inputs of the first layer, found {len(first)}")
    weights = np.zeros((2 * len(names), first.shape[1]))
    for row, element in zip(first, found.inputs, strict=True):
        scale = element.factor * len(element.edges)
        scale = 1.0 if abs(scale - 1) < _ROUNDING else scale
        weights[2 * names.index(element.feature) + element.power - 1] += row * scale**element.power
    layers = [(weights, bias), *others]
    last, added = layers[-1]
    if last.shape[1] != 2 or added.shape != (2,):
        raise UnsupportedError(f"expected two outputs of the last layer, found {last.shape[1]}")
    layers[-1] = (last[:, 1:] - last[:, :1], added[1:] - added[:1])
    return Network(tuple(Quantiles(np.array(edges[name])) for name in names), tuple(layers), squares=True)
