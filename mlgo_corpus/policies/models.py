"""The models of learned policies: from the inputs of a decision, numbers in double precision, to a score.

Every runtime (this one is the measure of the others) computes the same score to the bit. Arithmetic is that of IEEE 754
doubles, rounded to nearest, without fused multiply-add, and sums are taken in a fixed order:

- `Rule`: ``bias + weights[0] * x[0] + weights[1] * x[1] + ...``, from the left.
- `Trees`: the bias, then one leaf of each tree, in the order of the trees. A node goes left if
  ``x[feature] <= threshold``, else right; so NaN goes right, unless the model takes it for 0 in that input.
- `Network`: each input is normalised or not, and perhaps followed by its square; then come dense layers. An output is
  its bias, then the products of the inputs and their weights, in the order of the inputs. Between layers,
  ``v if v > 0 else 0``. The last layer has one output.

A model checks what it is made of, which may come from a file that is not trusted, and raises a `FormatError` without
a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError
from mlgo_corpus.files.text import counted

Doubles = NDArray[np.float64]
_Indices = NDArray[np.int32]

# The most decisions on the way to a leaf. Trees of learning libraries have some ten, at most 63 with 64 leaves.
_MAX_LEVELS: Final = 256
_MAX_TREES: Final = 1 << 16
_MAX_LAYERS: Final = 16
_MAX_WIDTH: Final = 4096

# The numbers in one step of a batch: few enough to stay in a processor's cache.
_NUMBERS_AT_ONCE: Final = 1 << 16


class Model(Protocol):
    """What gives a score.

    Attributes:
        kind: ``rule``, ``trees`` or ``mlp``.
    """

    kind: ClassVar[str]

    def check(self, inputs: int) -> None:
        """Check that the model is one of so many inputs.

        Raises:
            FormatError: it is not.
        """

    def scores(self, inputs: Doubles) -> Doubles:
        """Return the score of each row of ``inputs``."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the numbers of the model by the names that they have in a file."""

    def described(self) -> str:
        """Return its size in words: ``2 weights``."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A sum of weighted inputs.

    Raises:
        FormatError: a number is not finite.
    """

    bias: float
    weights: tuple[float, ...]
    kind: ClassVar[str] = "rule"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bias", float(self.bias))
        object.__setattr__(self, "weights", tuple(map(float, self.weights)))
        _check_finite("bias", self.bias)
        _check_finite("weights", self.weights)

    def __repr__(self) -> str:
        return f"<Rule: {self.described()}>"

    def check(self, inputs: int) -> None:
        """Check that there is a weight for each input."""
        if len(self.weights) != inputs:
            raise FormatError(f"weights: expected {inputs}, one for each feature, found {len(self.weights)}")

    def scores(self, inputs: Doubles) -> Doubles:
        """Return the score of each row."""
        total = np.full(len(inputs), self.bias)
        with np.errstate(all="ignore"):
            for number, weight in enumerate(self.weights):
                total = total + inputs[:, number] * weight
        return total

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the numbers; a rule's file has them as text instead."""
        return {"bias": _doubles(self.bias), "weights": _doubles(*self.weights)}

    def described(self) -> str:
        """Return its size in words."""
        return counted(sum(weight != 0 for weight in self.weights), "weight")


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """A sum of decision trees, the first at ``roots[0]``.

    A number of ``roots`` and ``children`` is that of a node, or ``~leaf`` for a leaf. A node's children come after it,
    and each node and leaf has one place in one tree, so that there are no cycles and every way ends.

    Args:
        bias: what the sum starts from.
        roots: of each tree.
        feature: of each node, the number of the input to compare.
        threshold: of each node.
        children: of each node, where it goes if the input is at most the threshold, and where if not.
        leaves: the number that each leaf adds.
        nan_as_zero: the inputs in which NaN is taken for 0.

    Raises:
        FormatError: this is not so.
    """

    bias: float
    roots: _Indices
    feature: _Indices
    threshold: Doubles
    children: _Indices
    leaves: Doubles
    nan_as_zero: tuple[int, ...] = ()
    levels: int = field(init=False)
    _table: tuple[_Indices, Doubles, _Indices, Doubles] = field(init=False, repr=False)
    kind: ClassVar[str] = "trees"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bias", float(self.bias))
        for name, shape in (("roots", (-1,)), ("feature", (-1,)), ("children", (-1, 2))):
            object.__setattr__(self, name, _array(name, getattr(self, name), np.int32, shape))
        for name in ("threshold", "leaves"):
            object.__setattr__(self, name, _array(name, getattr(self, name), np.float64, (-1,)))
        _check_finite("bias", self.bias)
        _check_finite("threshold", self.threshold)
        _check_finite("leaves", self.leaves)
        nodes, trees = len(self.feature), len(self.roots)
        if not 1 <= trees <= _MAX_TREES:
            raise FormatError(f"roots: expected 1 to {_MAX_TREES} trees, found {trees}")
        for name, found in (("threshold", len(self.threshold)), ("children", len(self.children))):
            if found != nodes:
                raise FormatError(f"{name}: expected {nodes}, one for each node, found {found}")
        if len(self.leaves) != nodes + trees:
            raise FormatError(f"leaves: expected {nodes + trees} of {nodes} nodes, found {len(self.leaves)}")
        self._check_places(nodes)
        object.__setattr__(self, "levels", self._count_levels())
        object.__setattr__(self, "_table", self._with_leaves())

    def _check_places(self, nodes: int) -> None:
        """Check that each node and leaf has one place, below what comes before it."""
        places = np.concatenate([self.roots, self.children.ravel()]).astype(np.int64)
        outside = np.flatnonzero((places >= nodes) | (places < -len(self.leaves)))
        if len(outside):
            raise FormatError(f"children: there is no node or leaf {places[outside[0]]} of {nodes} nodes")
        below = self.children.astype(np.int64)
        back = np.flatnonzero(((below >= 0) & (below <= np.arange(nodes)[:, None])).any(axis=1))
        if len(back):
            raise FormatError(f"children: node {back[0]} leads to itself, or to a node before it")
        used = np.bincount(np.where(places >= 0, places, nodes + ~places), minlength=nodes + len(self.leaves))
        wrong = np.flatnonzero(used != 1)
        if len(wrong):
            what = f"node {wrong[0]}" if wrong[0] < nodes else f"leaf {wrong[0] - nodes}"
            raise FormatError(f"children: expected one way to each node and leaf, found {used[wrong[0]]} to {what}")

    def _count_levels(self) -> int:
        level, count = self.roots[self.roots >= 0], 0
        while len(level):
            count += 1
            if count > _MAX_LEVELS:
                raise FormatError(f"children: expected trees of at most {_MAX_LEVELS} levels, found more")
            below = self.children[level].ravel()
            level = below[below >= 0]
        return count

    def _with_leaves(self) -> tuple[_Indices, Doubles, _Indices, Doubles]:
        """Return feature, threshold, children and value of the nodes and of the leaves, which lead to themselves."""
        nodes, leaves = len(self.feature), len(self.leaves)
        itself = np.arange(nodes, nodes + leaves, dtype=np.int32)
        below = np.where(self.children >= 0, self.children, nodes + ~self.children)
        return (
            np.concatenate([self.feature, np.zeros(leaves, np.int32)]),
            np.concatenate([self.threshold, np.zeros(leaves)]),
            np.concatenate([below.astype(np.int32), np.stack([itself, itself], axis=1)]),
            np.concatenate([np.zeros(nodes), self.leaves]),
        )

    def __repr__(self) -> str:
        return f"<Trees: {self.described()}>"

    def check(self, inputs: int) -> None:
        """Check that each node compares one of the inputs."""
        for name, numbers in (("feature", self.feature), ("nan_as_zero", _integers(*self.nan_as_zero))):
            wrong = np.flatnonzero((numbers < 0) | (numbers >= inputs))
            if len(wrong):
                raise FormatError(f"{name}: expected a number below {inputs}, found {numbers[wrong[0]]}")

    def scores(self, inputs: Doubles) -> Doubles:
        """Return the score of each row."""
        if self.nan_as_zero:
            inputs = inputs.copy()
            for number in self.nan_as_zero:
                inputs[np.isnan(inputs[:, number]), number] = 0.0
        return _by_parts(self._part, inputs, len(self.roots))

    def _part(self, inputs: Doubles) -> Doubles:
        feature, threshold, children, value = self._table
        roots = np.where(self.roots >= 0, self.roots, len(self.feature) + ~self.roots)
        places = np.repeat(roots[None, :], len(inputs), axis=0).ravel()
        rows = np.repeat(np.arange(len(inputs)) * inputs.shape[1], len(roots))
        numbers, below = inputs.ravel(), children.ravel()
        for _ in range(self.levels):
            goes_right = ~(numbers.take(rows + feature.take(places)) <= threshold.take(places))
            places = below.take(2 * places + goes_right)
        added = value.take(places).reshape(len(inputs), len(roots))
        with np.errstate(all="ignore"):
            return np.add.accumulate(np.column_stack([np.full(len(inputs), self.bias), added]), axis=1)[:, -1]

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the numbers."""
        return {
            "bias": _doubles(self.bias),
            "roots": self.roots,
            "feature": self.feature,
            "threshold": self.threshold,
            "children": self.children,
            "leaves": self.leaves,
            "nan_as_zero": _integers(*self.nan_as_zero),
        }

    def described(self) -> str:
        """Return its size in words."""
        sizes = (counted(len(self.roots), "tree"), f"{len(self.leaves)} leaves", counted(self.levels, "level"))
        return ", ".join(sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """Normalise an input to the share of sorted ``edges`` that are at most the input; for NaN, 0.

    Raises:
        FormatError: there is no edge, an edge is not finite, or they are not sorted.
    """

    edges: Doubles = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", _array("edges", self.edges, np.float64, (-1,)))
        _check_finite("edges", self.edges)
        if not len(self.edges) or (np.diff(self.edges) < 0).any():
            raise FormatError("edges: expected at least one, sorted")

    def __call__(self, values: Doubles) -> Doubles:
        """Return the normalised values."""
        count = np.searchsorted(self.edges, values, side="right")
        normalised: Doubles = np.where(np.isnan(values), 0, count) / float(len(self.edges))
        return normalised


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Normalise an input to ``(input - mean) * scale``.

    Raises:
        FormatError: a number is not finite.
    """

    mean: float
    scale: float

    def __post_init__(self) -> None:
        _check_finite("scaling", (self.mean, self.scale))

    def __call__(self, values: Doubles) -> Doubles:
        """Return the normalised values."""
        return (values - self.mean) * self.scale


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Dense layers over normalised inputs.

    Args:
        inputs: how each input is normalised; None for one that is taken as it is.
        layers: the weights, an array of shape (inputs, outputs), and the biases of each layer.
        squares: whether each normalised input is followed by its square.

    Raises:
        FormatError: the layers do not fit each other, or a number is not finite.
    """

    inputs: tuple[Quantiles | Scaling | None, ...]
    layers: tuple[tuple[Doubles, Doubles], ...]
    squares: bool = False
    kind: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        layers = []
        if not 1 <= len(self.layers) <= _MAX_LAYERS:
            raise FormatError(f"layers: expected 1 to {_MAX_LAYERS}, found {len(self.layers)}")
        for number, (weights, bias) in enumerate(self.layers):
            layers.append(
                (
                    _array(f"weights_{number}", weights, np.float64, (-1, -1)),
                    _array(f"bias_{number}", bias, np.float64, (-1,)),
                )
            )
        object.__setattr__(self, "layers", tuple(layers))
        object.__setattr__(self, "inputs", tuple(self.inputs))
        widths = [len(self.inputs) * (1 + self.squares)]
        for number, (weights, bias) in enumerate(layers):
            _check_finite(f"weights_{number}", weights)
            _check_finite(f"bias_{number}", bias)
            rows, columns = weights.shape
            if rows != widths[-1] or columns != len(bias) or not 1 <= columns <= _MAX_WIDTH:
                raise FormatError(
                    f"weights_{number}: expected {widths[-1]} rows, and as many columns as bias_{number} has numbers "
                    f"(1 to {_MAX_WIDTH}), found {rows} by {columns} and {len(bias)}"
                )
            widths.append(columns)
        if widths[-1] != 1:
            raise FormatError(f"weights_{len(layers) - 1}: expected one output of the last layer, found {widths[-1]}")

    def __repr__(self) -> str:
        return f"<Network: {self.described()}>"

    def check(self, inputs: int) -> None:
        """Check the number of inputs."""
        if len(self.inputs) != inputs:
            raise FormatError(f"inputs: expected {inputs}, one for each feature, found {len(self.inputs)}")

    def scores(self, inputs: Doubles) -> Doubles:
        """Return the score of each row."""
        return _by_parts(self._part, inputs, max(weights.shape[1] for weights, _ in self.layers))

    def _part(self, inputs: Doubles) -> Doubles:
        with np.errstate(all="ignore"):
            values = self._normalised(inputs)
            for number, (weights, bias) in enumerate(self.layers):
                if number:
                    values = np.where(values > 0, values, 0.0)
                total = np.repeat(bias[None, :], len(inputs), axis=0)
                for place in range(len(weights)):
                    total += values[:, place : place + 1] * weights[place]
                values = total
        return values[:, 0]

    def _normalised(self, inputs: Doubles) -> Doubles:
        columns = []
        for number, normalise in enumerate(self.inputs):
            column = inputs[:, number] if normalise is None else normalise(inputs[:, number])
            columns += [column, column * column] if self.squares else [column]
        return np.column_stack(columns)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the numbers."""
        found: dict[str, NDArray[Any]] = {"squares": _integers(self.squares)}
        for number, normalise in enumerate(self.inputs):
            if isinstance(normalise, Quantiles):
                found[f"edges_{number}"] = normalise.edges
            elif normalise is not None:
                found[f"scaling_{number}"] = _doubles(normalise.mean, normalise.scale)
        for number, (weights, bias) in enumerate(self.layers):
            found |= {f"weights_{number}": weights, f"bias_{number}": bias}
        return found

    def described(self) -> str:
        """Return its size in words."""
        widths = [len(self.layers[0][0]), *(len(bias) for _, bias in self.layers)]
        return f"layers of {', '.join(map(str, widths))}"


def model_of(kind: str, arrays: Mapping[str, NDArray[Any]], inputs: int) -> Trees | Network:
    """Make the model that `Model.arrays` gave the numbers of.

    Raises:
        FormatError: the arrays are not those of a model of this kind.
    """
    take = _Arrays(arrays)
    model: Trees | Network
    if kind == Trees.kind:
        (bias,) = take("bias", (1,)).tolist()
        named = {name: take(name, (-1,)) for name in ("roots", "feature", "threshold", "leaves", "nan_as_zero")}
        zeros = tuple(_array("nan_as_zero", named.pop("nan_as_zero"), np.int32, (-1,)).tolist())
        model = Trees(bias, **named, children=take("children", (-1, 2)), nan_as_zero=zeros)
    else:
        (squares,) = take("squares", (1,)).tolist()
        if squares not in (0, 1):
            raise FormatError(f"squares: expected 0 or 1, found {squares}")
        model = Network(tuple(take.normalisations(inputs)), tuple(take.layers()), bool(squares))
    take.finish()
    model.check(inputs)
    return model


class _Arrays:
    """The arrays of a file, each of which is taken once."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._left = dict(arrays)

    def __call__(self, name: str, shape: Sequence[int]) -> NDArray[Any]:
        if name not in self._left:
            raise FormatError(f"there is no array {name}")
        found = self._left.pop(name)
        if len(found.shape) != len(shape) or any(
            want not in (-1, is_there) for want, is_there in zip(shape, found.shape, strict=True)
        ):
            raise FormatError(f"{name}: expected the shape {_shape(shape)}, found {_shape(found.shape)}")
        return found

    def normalisations(self, inputs: int) -> Iterator[Quantiles | Scaling | None]:
        for number in range(inputs):
            if f"edges_{number}" in self._left:
                yield Quantiles(self(f"edges_{number}", (-1,)))
            elif f"scaling_{number}" in self._left:
                yield Scaling(*self(f"scaling_{number}", (2,)).tolist())
            else:
                yield None

    def layers(self) -> Iterator[tuple[Doubles, Doubles]]:
        number = 0
        while not number or f"weights_{number}" in self._left:
            yield self(f"weights_{number}", (-1, -1)), self(f"bias_{number}", (-1,))
            number += 1

    def finish(self) -> None:
        """Check that nothing is left."""
        if self._left:
            raise FormatError(f"unexpected array {min(self._left)}")


def _shape(shape: Sequence[int]) -> str:
    return " by ".join("any" if size < 0 else str(size) for size in shape) or "of one number"


def _array(name: str, values: Any, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of the type and of so many dimensions, which nobody can change."""
    given = np.asarray(values)
    if not given.size:
        given = given.reshape([max(0, size) for size in shape]).astype(dtype)
    if given.dtype.kind not in ("iu" if dtype is np.int32 else "iuf") or given.ndim != len(shape):
        raise FormatError(f"{name}: expected numbers in {len(shape)} dimensions, found {given.dtype}, {given.ndim}")
    with np.errstate(all="ignore"):
        made: NDArray[Any] = np.array(given, dtype, order="C")
    if dtype is np.int32 and (made != given).any():
        raise FormatError(f"{name}: expected numbers of 32 bits")
    made.flags.writeable = False
    return made


def _doubles(*values: float) -> Doubles:
    return np.array(values, np.float64)


def _integers(*values: int) -> _Indices:
    return np.array(values, np.int32)


def _check_finite(name: str, values: Any) -> None:
    if not np.isfinite(values).all():
        raise FormatError(f"{name}: expected finite numbers")


def _by_parts(work: Callable[[Doubles], Doubles], inputs: Doubles, width: int) -> Doubles:
    """Return what ``work`` returns for the rows, taken so many at a time that ``width`` numbers of each fit."""
    step = max(1, _NUMBERS_AT_ONCE // max(1, width))
    edges = [*range(0, len(inputs), step), len(inputs)]
    inputs = np.ascontiguousarray(inputs)
    return np.concatenate([np.empty(0), *(work(inputs[first:last]) for first, last in pairwise(edges))])
