"""Models of native size: a function's features to its bytes, with an interval; evaluated by numpy alone.

The folder is that of a policy (`mlgo_corpus.policies.learned`), with ``"task": "native-size"`` and ``"kind": "trees"``;
the name begins as one likes. Its features are those of a table of functions (`mlgo_corpus.policies.sizes.inputs`), of
type ``int32_t`` or ``int64_t``; a feature of several numbers is as many inputs. ``decision`` is
``{"coverage": 0.9}``: the share of functions whose size the interval is meant to hold. ``model.npz`` has ``base_bias``
and ``base_weights``, the numbers of a rule, and the arrays of three models of trees: the size's, and with the prefixes
``low_`` and ``high_`` those of the interval's ends.

The size is the sum of the rule, in bytes, times ``exp`` of the trees' score: what instructions take adds up, and the
trees say what that misses. It is a number of single precision. Every runtime takes the same steps, in IEEE doubles. A
sum that is NaN or less than 1 is 1, one above 2 to the power of 30 is that; a score that is NaN or less than -20 is
-20, one above 20 is 20. ``k`` is the nearest integer to ``score * log2(e)``, ``r = (score - k * A) - k * B`` with the
two parts ``A``, ``B`` of log(2); ``exp`` is the polynomial of Taylor of degree 13 of ``r``, by Horner's rule, times 2
to the power of ``k``; and the sum is multiplied by that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.sizes.table import IR2NATIVE_COLUMNS, VECTOR, read_functions
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files.arrays import as_table
from mlgo_corpus.formats.logs.tensors import TensorSpec, shown
from mlgo_corpus.policies.artefact import (
    MODEL_NAME,
    NATIVE_SIZE,
    POLICY_NAME,
    Notes,
    check_feature_specs,
    check_licence,
    check_name,
    common_fields,
    common_json,
    digest_of,
    number_of,
    object_of,
    read_policy_json,
    save_artefact,
)
from mlgo_corpus.policies.models import Doubles, Rule, Trees, model_of
from mlgo_corpus.policies.sizes.inputs import columns_of, inputs_of, names_of

LARGEST_BASE: Final = float(1 << 30)
LARGEST_SCORE: Final = 20.0
SHIFT: Final = 30
"""More than the power of 2 in the least exp, so that a shifted 1 is one."""

ROUNDING: Final = 6755399441055744.0
"""What, added to a small double and taken away again, rounds it to the nearest integer."""

LOG2E: Final = 1.4426950408889634
LN2_PARTS: Final = (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33"))
"""The parts A, of 32 bits, and B of log(2)."""

TAYLOR: Final = tuple(1 / math.factorial(number) for number in range(14))
"""The coefficients of exp."""

_TYPES: Final = ("int32_t", "int64_t")
_BASE: Final = "base_"
_ENDS: Final = ("low_", "high_")


class PredictedSizes(NamedTuple):
    """The sizes of functions, in bytes, each an array of single precision.

    Attributes:
        size: the size.
        low: the low end of the interval, at most the size.
        high: its high end.
    """

    size: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]


def _sizes_of(base: Doubles, scores: Doubles) -> NDArray[np.float32]:
    """Return the sizes that a rule's sums and scores mean: see the module's docstring."""
    with np.errstate(all="ignore"):
        bytes_ = np.minimum(np.where(base > 1, base, 1.0), LARGEST_BASE)
        score = np.minimum(np.where(scores > -LARGEST_SCORE, scores, -LARGEST_SCORE), LARGEST_SCORE)
        power = (score * LOG2E + ROUNDING) - ROUNDING
        rest = (score - power * LN2_PARTS[0]) - power * LN2_PARTS[1]
        total = np.full(score.shape, TAYLOR[-1])
        for coefficient in reversed(TAYLOR[:-1]):
            total = total * rest + coefficient
        doubled = np.left_shift(1, power.astype(np.int64) + SHIFT).astype(np.float64) * 0.5**SHIFT
        return (bytes_ * (total * doubled)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class SizeModel:
    """A model of native size; see the module's docstring.

    Args:
        name: of the model.
        features: what its inputs are made of, in their order.
        base: the rule that gives a size to start from.
        model: what gives the logarithm of what to multiply that by.
        low: what gives the same for the low end of the interval; ``high`` for the high end.
        coverage: the share of functions whose size the interval is meant to hold.
        training: for people: what it was trained on and with; any JSON.
        licence: for people.
        metrics: for people: what was measured of it; any JSON.
        card: for people: the text of its ``README.md``.

    Raises:
        FormatError: something of it is not as the format says.
    """

    name: str
    features: tuple[TensorSpec, ...]
    base: Rule
    model: Trees
    low: Trees
    high: Trees
    coverage: float = 0.9
    training: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    card: str = ""
    task: ClassVar[str] = NATIVE_SIZE
    kind: ClassVar[str] = Trees.kind
    decision_type: ClassVar[str] = "float"

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        check_name(self.name)
        check_licence(self.licence)
        _check_inputs(self.features)
        if not 0 < self.coverage < 1:
            raise FormatError(f"decision: expected a coverage between 0 and 1, found {self.coverage:g}")
        for model in (self.base, self.model, self.low, self.high):
            model.check(self.inputs)

    def __repr__(self) -> str:
        return f"<SizeModel {self.name}: {self.described()} of {self.inputs} inputs, coverage {self.coverage:g}>"

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return len(names_of(self.features))

    @property
    def is_llvms(self) -> bool:
        """Whether its input is LLVM's own vector, so that a development-mode compiler can evaluate it."""
        return [spec.name for spec in self.features] == [VECTOR]

    @classmethod
    def load(cls, folder: Path | str) -> SizeModel:
        """Read a model from its folder; everything in it is checked.

        Raises:
            UsageError: there is no such folder, or a file cannot be read.
            FormatError: a file is not as the format says, or damaged; the error names the file.
        """
        notes = Notes.of(folder, "model")
        with notes.at(POLICY_NAME):
            if notes.value.get("task") != NATIVE_SIZE:
                raise FormatError(f"task: expected {NATIVE_SIZE}, found {shown(notes.value.get('task'))}")
            if notes.value.get("kind") != Trees.kind:
                raise FormatError(f"kind: expected {Trees.kind}, found {shown(notes.value.get('kind'))}")
            fields = common_fields(notes.value)
            fields.pop("task")
            _check_inputs(fields["features"])
            coverage = number_of(object_of(notes.value, "decision").get("coverage"), "decision: coverage")
        with notes.at(MODEL_NAME):
            models = _models_of(notes.arrays(), fields["features"])
        with notes.at(POLICY_NAME):
            return cls(**fields, **models, coverage=coverage, metrics=notes.metrics, card=notes.card)

    def predict(self, table: Any) -> PredictedSizes:
        """Predict the size of each function of a table.

        Args:
            table: the path of a table of ``mlgo-corpus ir2native``, an Arrow table or record batch, or a data frame of
                pandas or polars.

        Raises:
            UsageError: it is no table, or a column is missing, or is not of numbers.
            CorpusError: the table cannot be read.
        """
        if isinstance(table, str | Path):
            table = read_functions(Path(table))
        else:
            table = as_table(table, (*columns_of(self.features), VECTOR))
        return self.sizes(inputs_of(table, self.features))

    def sizes(self, inputs: Doubles) -> PredictedSizes:
        """Return the sizes of functions of which the inputs are rows."""
        base = self.base.scores(inputs)
        size, low, high = (_sizes_of(base, model.scores(inputs)) for model in (self.model, self.low, self.high))
        return PredictedSizes(size, np.minimum(low, size), np.maximum(high, size))

    @cached_property
    def digest(self) -> str:
        """A digest of all that it predicts by, and of its name."""
        known = [self.name, self.task, self.coverage, [spec.as_json() for spec in self.features]]
        return digest_of(known, self._arrays())

    def described(self) -> str:
        """Return its size in words."""
        return self.model.described()

    def as_json(self) -> dict[str, Any]:
        """Return ``policy.json`` as plain values."""
        return common_json(self, {"decision": {"coverage": self.coverage}})

    def save(self, folder: Path | str, *, force: bool = False) -> None:
        """Write the model as a folder, whole or not at all; equal models give equal bytes.

        Raises:
            UsageError: something is there and ``force`` is not set, or the folder cannot be written.
        """
        save_artefact(folder, self.as_json(), self._arrays(), metrics=self.metrics, card=self.card, force=force)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        found = {f"{_BASE}{name}": values for name, values in self.base.arrays().items()}
        found |= self.model.arrays()
        for prefix, model in zip(_ENDS, (self.low, self.high), strict=True):
            found |= {f"{prefix}{name}": values for name, values in model.arrays().items()}
        return found


def _check_inputs(features: tuple[TensorSpec, ...]) -> None:
    check_feature_specs(features, _TYPES)
    for spec in features:
        expected = len(IR2NATIVE_COLUMNS) if spec.name == VECTOR else 1
        if spec.element_count != expected:
            raise FormatError(f"features: {spec.name}: expected {expected} numbers, found {spec.element_count}")


def _models_of(arrays: Mapping[str, NDArray[Any]], features: tuple[TensorSpec, ...]) -> dict[str, Any]:
    """Return the three models that the arrays of a file are."""
    found: dict[str, Any] = {}
    parts: dict[str, dict[str, NDArray[Any]]] = {"model": {}, "low": {}, "high": {}}
    rule: dict[str, NDArray[Any]] = {}
    for name in ("bias", "weights"):
        values = arrays.get(f"{_BASE}{name}")
        if values is None or values.dtype.kind != "f" or values.ndim != 1:
            raise FormatError(f"{_BASE}{name}: expected numbers in one dimension")
        rule[name] = values
    if len(rule["bias"]) != 1:
        raise FormatError(f"{_BASE}bias: expected one number, found {len(rule['bias'])}")
    found["base"] = Rule(float(rule["bias"][0]), tuple(rule["weights"].tolist()))
    for name, values in arrays.items():
        if name.removeprefix(_BASE) in rule and name.startswith(_BASE):
            continue
        end = next((prefix for prefix in _ENDS if name.startswith(prefix)), "")
        parts[end.rstrip("_") or "model"][name.removeprefix(end)] = values
    for part, own in parts.items():
        found[part] = model_of(Trees.kind, own, len(names_of(features)))
    return found


def is_size_model(folder: Path | str) -> bool:
    """Return True if a folder has a ``policy.json`` that says it is a model of native size."""
    try:
        return read_policy_json(Path(folder)).get("task") == NATIVE_SIZE
    except (UsageError, FormatError, ValueError):
        return False
