"""Learned policies, each a folder that can be sent, compared, and compiled: what it decides, and by which numbers.

::

    inlining-1.0/
      policy.json     what it is, UTF-8 JSON of at most 1 MiB
      model.npz       the model's numbers; a rule has none
      metrics.json    what was measured of it, as any JSON; may be missing
      README.md       a card for people; may be missing

``policy.json`` is an object. Keys that are not here are ignored::

    {
     "format": 1,
     "name": "inlining-1.0",           TASK-MAJOR.MINOR: the major number changes with the features, the minor with the
                                       numbers; letters, digits, and "._+-"
     "task": "inlining",               or "regalloc-eviction", "regalloc-priority"
     "kind": "rule",                   or "trees", "mlp"
     "features": [                     LLVM's names, types and shapes; found in a compiler's header by their names
      {"name": "cost_estimate", "type": "int64_t", "shape": [1]}
     ],
     "decision": {"threshold": 0.0},   inlining only
     "languages": ["C++"],             it decides in modules of these only; all others are compiled as without it.
                                       Not there, or empty: in all
     "rule": {"bias": 30.0, "weights": [-1.0]},          a rule only: its numbers
     "training": {}, "licence": "..."  for people: what it was trained on and with
    }

A rule can be written with an editor. ``model.npz`` is a ZIP archive, as ``numpy.savez`` writes it: uncompressed members
``NAME.npy`` with arrays of little-endian doubles (``<f8``) or 32-bit integers (``<i4``). Of ``trees``: ``bias``,
``roots``, ``feature``, ``threshold``, ``children``, ``leaves``, ``nan_as_zero``. Of ``mlp``: ``squares``,
``weights_0``, ``bias_0``, ``weights_1``, ...; for the input of number N that is normalised, ``edges_N`` or
``scaling_N`` (mean, scale). `mlgo_corpus.policies.models` says what they mean.

How it decides. Each feature is converted to double once, and the model makes a score of them:

- inlining: inline if the score is greater than the threshold (never for NaN). Each feature is one number.
- eviction: there is a feature ``mask`` of one number per candidate, and features of as many numbers or of one, which
  belongs to all candidates. The candidate with the highest score whose mask is not 0 is evicted, the first of equals; a
  score that is NaN counts as minus infinity. If no mask is set, the decision is 0.
- priority: the score, as a number of single precision. Each feature is one number.

A policy comes from anywhere: sizes, types, indices and numbers are checked, and nothing in it is executed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files.arrays import as_table
from mlgo_corpus.files.folder import folder_with
from mlgo_corpus.files.text import counted
from mlgo_corpus.formats.commands.languages import LANGUAGES
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, TASKS
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
    save_artefact,
)
from mlgo_corpus.policies.keyed import find_dataset, is_simple
from mlgo_corpus.policies.models import Doubles, Model, Network, Rule, Trees, model_of

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_CANDIDATES: Final = 1024

MASK: Final = "mask"
"""The feature that says which candidates may be evicted."""

_KINDS: Final = (Rule.kind, Trees.kind, Network.kind)
_TYPES: Final = ("int64_t", "float")


@dataclass(frozen=True, eq=False)
class LearnedPolicy:
    """A learned policy; see the module's docstring.

    It decides in live sessions as any policy does (`mlgo_corpus.policies.policy`).

    Args:
        name: ``TASK-MAJOR.MINOR``.
        task: of LLVM's tasks.
        features: what the model's inputs are made of, in their order.
        model: what gives the score.
        threshold: inlining only: the score above which a call is inlined.
        languages: in whose modules it decides, of `mlgo_corpus.formats.commands.languages`; in all if empty.
        training: for people: what it was trained on and with; any JSON.
        licence: for people.
        metrics: for people: what was measured of it; any JSON.
        card: for people: the text of its ``README.md``.

    Raises:
        FormatError: something of it is not as the format says.
    """

    name: str
    task: str
    features: tuple[TensorSpec, ...]
    model: Model
    threshold: float = 0.0
    languages: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    card: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "threshold", float(self.threshold))
        object.__setattr__(self, "languages", tuple(self.languages))
        check_name(self.name)
        check_licence(self.licence)
        _check_task(self.task)
        check_feature_specs(self.features, _TYPES)
        if unknown := [language for language in self.languages if language not in LANGUAGES]:
            raise FormatError(f"languages: expected some of {', '.join(LANGUAGES)}, found {shown(unknown[0])}")
        if not math.isfinite(self.threshold):
            raise FormatError(f"decision: expected a finite threshold, found {self.threshold}")
        self._check_counts()
        self.model.check(len(self.features))

    def __repr__(self) -> str:
        limit = f", threshold {self.threshold:g}" if self.task == INLINING else ""
        inputs = counted(len(self.features), "feature")
        return f"<LearnedPolicy {self.name}: {self.task}, {self.kind}: {self.model.described()}, {inputs}{limit}>"

    def _check_counts(self) -> None:
        """Check how many numbers each feature has."""
        if self.task == EVICTION:
            if MASK not in {spec.name for spec in self.features}:
                raise FormatError(f"features: {EVICTION} needs {MASK}, which says what may be evicted")
            if not 1 < self.candidates <= _MAX_CANDIDATES:
                raise FormatError(f"features: {MASK}: expected 2 to {_MAX_CANDIDATES} numbers, found {self.candidates}")
        for spec in self.features:
            if spec.element_count not in (1, self.candidates):
                expected = "one number" if self.candidates == 1 else f"one number or {self.candidates}"
                raise FormatError(f"features: {spec.name}: expected {expected}, found {spec.element_count}")

    def __eq__(self, other: object) -> bool:
        """Return True for a policy of the same name that decides by the same."""
        return self.digest == other.digest if isinstance(other, LearnedPolicy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def candidates(self) -> int:
        """How many candidates are scored for one decision: 1, except for eviction."""
        if self.task != EVICTION:
            return 1
        return next(spec.element_count for spec in self.features if spec.name == MASK)

    @property
    def kind(self) -> str:
        """The kind of its model."""
        return self.model.kind

    @property
    def decision_type(self) -> str:
        """LLVM's type of its decision: ``float`` for a priority, else ``int64_t``."""
        return "float" if self.task == PRIORITY else "int64_t"

    def advise(self, observation: np.void) -> Any:
        """Return the decision of one observation of a live session."""
        if self.candidates == 1:
            inputs = np.array([[observation[spec.name].item() for spec in self.features]], np.float64)
            return self._decisions(self.model.scores(inputs), ())[0]
        return self.decide(np.asarray(observation).reshape(1))[0]

    def decide(self, observations: Any) -> NDArray[Any]:
        """Return the decisions of many observations.

        Args:
            observations: by the features' names, an array with an entry per observation: a dictionary of arrays, a
                structured array, an Arrow table or record batch, or a data frame of pandas or polars. Features that
                are not the policy's are ignored. A missing number of a feature of type ``float`` is NaN.

        Returns:
            An array of int64 (inlining: 0 or 1; eviction: the candidate's index), or of float32 (priority).

        Raises:
            UsageError: a feature is missing, has too few numbers, or something else than numbers.
        """
        if not isinstance(observations, np.ndarray | Mapping):
            table = as_table(observations, [spec.name for spec in self.features])
            there = [spec for spec in self.features if spec.name in table.schema.names]
            observations = {spec.name: _numbers_in(table, spec) for spec in there}
        names = observations.dtype.names or () if isinstance(observations, np.ndarray) else tuple(observations)
        missing = [spec.name for spec in self.features if spec.name not in names]
        if missing:
            raise UsageError(f"the policy {self.name} needs the feature {missing[0]!r}, which is not there")
        with np.errstate(invalid="ignore"):  # a number that is no whole one of 64 bits is an error, not a warning
            columns = {spec.name: _numbers_of(observations[spec.name], spec) for spec in self.features}
        count = len(columns[self.features[0].name])
        for spec in self.features:
            if columns[spec.name].size != count * spec.element_count:
                raise UsageError(
                    f"{spec.name}: expected {spec.element_count} for each of {count} observations, found "
                    f"{columns[spec.name].size} numbers"
                )
        mask = columns[MASK].reshape(count, self.candidates) if self.task == EVICTION else ()
        return self._decisions(self._scores(columns, count), mask)

    def _scores(self, observations: Mapping[str, NDArray[Any]], count: int) -> Doubles:
        """Return the scores of so many observations, one for each candidate."""
        columns = []
        for spec in self.features:
            values = observations[spec.name].astype(np.float64).reshape(count, spec.element_count)
            columns.append(np.broadcast_to(values, (count, self.candidates)).reshape(-1))
        return self.model.scores(np.column_stack(columns))

    def _decisions(self, scores: Doubles, mask: Any) -> NDArray[Any]:
        """Return the decisions that scores mean; ``mask`` is that of eviction."""
        decisions: NDArray[Any]
        scores = scores.reshape(-1, self.candidates)
        if self.task == INLINING:
            decisions = (scores[:, 0] > self.threshold).astype(np.int64)
        elif self.task == EVICTION:
            allowed = np.asarray(mask) != 0
            scores = np.where(np.isnan(scores), -np.inf, scores)
            # A candidate whose score is minus infinity comes before one that is not allowed.
            best = np.where(allowed, scores, -np.inf).max(axis=1, keepdims=True)
            decisions = np.argmax(allowed & (scores == best), axis=1).astype(np.int64)
        else:
            with np.errstate(all="ignore"):
                decisions = scores[:, 0].astype(np.float32)
        return decisions

    @cached_property
    def digest(self) -> str:
        """A digest of all that it decides by, and of its name."""
        known = [self.name, self.task, self.kind, self.threshold, [spec.as_json() for spec in self.features]]
        known += [self.languages] if self.languages else []
        return digest_of(known, self.model.arrays())

    def as_json(self) -> dict[str, Any]:
        """Return ``policy.json`` as plain values."""
        own: dict[str, Any] = {"decision": {"threshold": self.threshold} if self.task == INLINING else {}}
        if self.languages:
            own["languages"] = list(self.languages)
        if isinstance(self.model, Rule):
            own["rule"] = {"bias": self.model.bias, "weights": list(self.model.weights)}
        return common_json(self, own)

    def save(self, folder: Path | str, *, force: bool = False) -> None:
        """Write the policy as a folder, whole or not at all; the same policy gives the same bytes.

        Args:
            folder: the folder to write.
            force: replace a policy that is there.

        Raises:
            UsageError: something is there, or the folder cannot be written.
        """
        arrays = {} if isinstance(self.model, Rule) else self.model.arrays()
        save_artefact(folder, self.as_json(), arrays, metrics=self.metrics, card=self.card, force=force)


def load_policy(folder: Path | str) -> LearnedPolicy:
    """Read a learned policy; everything in it is checked.

    Args:
        folder: its folder, or the name of a policy that comes with the package.

    Raises:
        UsageError: there is no such folder, or a file cannot be read.
        FormatError: a file is not as the format says, or damaged; the error names the file.
    """
    place = folder if Path(folder).exists() else find_policy(str(folder)) or folder
    notes = Notes.of(place, "policy")
    with notes.at(POLICY_NAME):
        fields = _fields_of(notes.value)
    kind, inputs = notes.value["kind"], len(fields["features"])
    if kind == Rule.kind:
        with notes.at(POLICY_NAME):
            fields["model"] = _rule_of(notes.value, inputs)
    else:
        with notes.at(MODEL_NAME):
            fields["model"] = model_of(kind, notes.arrays(), inputs)
    with notes.at(POLICY_NAME):
        return LearnedPolicy(**fields, metrics=notes.metrics, card=notes.card)


def _numbers_in(table: pa.Table | pa.RecordBatch, spec: TensorSpec) -> NDArray[Any]:
    """Return a feature's column of a table, which has a number or a list of numbers in each row.

    Raises:
        UsageError: it has not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(table.schema.names.index(spec.name))
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    shape: tuple[int, ...] = (len(column),)
    if pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = pc.list_value_length(column)
        if column.null_count or pc.any(pc.not_equal(lengths, spec.element_count)).as_py():
            raise UsageError(f"{spec.name}: expected {spec.element_count} numbers in each row, found others")
        column, shape = column.flatten(), (len(column), spec.element_count)
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise UsageError(f"{spec.name}: expected numbers, found {column.type}")
    if column.null_count and spec.type != "float":
        raise UsageError(f"{spec.name}: expected a whole number in each row, found null")
    found: NDArray[Any] = column.to_numpy(zero_copy_only=False)  # of float, with NaN for null, if there is any
    return found.reshape(shape)


def _numbers_of(values: Any, spec: TensorSpec) -> NDArray[Any]:
    """Return a feature's numbers as an array of its type.

    Raises:
        UsageError: one is none, is missing, or is not of that type.
    """
    expected = "numbers" if spec.type == "float" else "whole numbers of 64 bits"
    try:
        found: NDArray[Any] = np.asarray(values)
        if found.dtype.kind not in "biufO" or not found.ndim:
            raise TypeError
        made = found.astype(spec.dtype, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{spec.name}: expected {expected}, found something else, or none") from None
    if spec.type != "float" and not np.can_cast(found.dtype, spec.dtype) and (wrong := made != found).any():
        raise UsageError(f"{spec.name}: expected {expected}, found {shown(found[wrong].tolist()[0])}")
    return made


def _check_task(task: Any) -> None:
    if task == NATIVE_SIZE:
        raise FormatError(
            "a model of native size, which decides nothing: mlgo-corpus policy show shows it, and ir2native takes it"
        )
    if task not in (names := [task.name for task in TASKS]):
        raise FormatError(f"task: expected one of {', '.join(names)}, found {shown(task)}")


def find_policy(text: str) -> Path | None:
    """Return the folder of the learned policy that a policy's name means, absolute; None if it is none.

    It is a folder with a ``policy.json``, or the name of a policy that comes with the package. A simple name is itself,
    even if there is a folder of that name, and a folder that is a dataset, too, is that.
    """
    if is_simple(text) or find_dataset(text) is not None:
        return None
    if (folder := folder_with(text, POLICY_NAME)) is not None:
        return folder
    known = known_policies().get(text)
    return None if known is None else known.absolute()


def named_policy(text: str | Path) -> tuple[Path, LearnedPolicy]:
    """Return the folder of a policy, and what it holds.

    Args:
        text: its folder, or the name of one that comes with the package.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    folder = find_policy(str(text))
    if folder is None and not Path(text).exists() and known_policies():
        if is_simple(str(text)) or (":" in str(text) and "/" not in str(text)):
            what = "not a learned policy, and no other goes into a compiler"
            raise UsageError(f"{text}: {what}: write a rule (docs/policies.md), or train one")
        raise UsageError(f"{text}: no such policy; expected a folder, or one of {', '.join(known_policies())}")
    folder = folder or Path(text)
    if folder.is_file():
        raise UsageError(f"{text}: expected a policy's folder, found a file")
    try:
        return folder, load_policy(folder)
    except FormatError as error:
        raise UsageError(str(error)) from None


def known_policies() -> dict[str, Path]:
    """Return the folders of the learned policies that come with the package, by their names."""
    home = Path(__file__).parents[1] / "data" / "policies"
    return {path.parent.name: path.parent for path in sorted(home.glob(f"*/{POLICY_NAME}"))}


def _fields_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `LearnedPolicy` that ``policy.json`` has."""
    fields = common_fields(value)
    _check_task(fields["task"])
    if value.get("kind") not in _KINDS:
        raise FormatError(f"kind: expected one of {', '.join(_KINDS)}, found {shown(value.get('kind'))}")
    if fields["task"] == INLINING:
        fields["threshold"] = number_of(object_of(value, "decision").get("threshold"), "decision: threshold")
    languages = value.get("languages", [])
    if not isinstance(languages, list) or not all(isinstance(language, str) for language in languages):
        raise FormatError(f"languages: expected a list of texts, found {shown(languages)}")
    fields["languages"] = tuple(languages)
    return fields


def _rule_of(value: Mapping[str, Any], inputs: int) -> Rule:
    found = object_of(value, "rule")
    weights = found.get("weights")
    if not isinstance(weights, list):
        raise FormatError(f"rule: weights: expected a list, found {shown(weights)}")
    rule = Rule(
        number_of(found.get("bias", 0), "rule: bias"),
        tuple(number_of(weight, "rule: weights") for weight in weights),
    )
    rule.check(inputs)
    return rule
