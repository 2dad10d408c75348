"""Learned policies, each a folder that can be sent, compared, and compiled: what it decides, and by which numbers.

::

    inlining-1.0/
      policy.json     what it is, UTF-8 JSON of at most 64 KiB
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

import io
import json
import math
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError, UsageError
from mlgo_corpus.files.atomic import write_folder
from mlgo_corpus.files.regular import read_regular
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.commands.languages import LANGUAGES
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, TASKS
from mlgo_corpus.formats.logs.tensors import TensorSpec, shown
from mlgo_corpus.policies.models import Doubles, Model, Network, Rule, Trees, model_of

# The version of the format above.
FORMAT: Final = 1
POLICY_NAME: Final = "policy.json"
MODEL_NAME: Final = "model.npz"
METRICS_NAME: Final = "metrics.json"
CARD_NAME: Final = "README.md"

MAX_POLICY_BYTES: Final = 64 << 10
MAX_MODEL_BYTES: Final = 64 << 20
MAX_TEXT_BYTES: Final = 1 << 20
_MAX_FEATURES: Final = 1024
_MAX_CANDIDATES: Final = 1024

MASK: Final = "mask"
"""The feature that says which candidates may be evicted."""

_KINDS: Final = (Rule.kind, Trees.kind, Network.kind)
_TYPES: Final = ("int64_t", "float")
# They go into C as they are.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", re.ASCII)
_FEATURE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
# The header of an array in numpy's format 1.0, as numpy writes it.
_HEADER: Final = re.compile(
    rb"\{'descr': '(<f8|<i4)', 'fortran_order': False, 'shape': \((\d{1,9}(?:, \d{1,9}|,))\), \} *\n"
)
_MAGIC: Final = b"\x93NUMPY\x01\x00"
_MEMBER: Final = re.compile(r"[a-z_0-9]{1,60}\.npy", re.ASCII)


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
        _check_task(self.task)
        if not 1 <= len(self.features) <= _MAX_FEATURES:
            raise FormatError(f"features: expected 1 to {_MAX_FEATURES}, found {len(self.features)}")
        for spec in self.features:
            if not _FEATURE.fullmatch(spec.name):
                raise FormatError(f"features: expected a name of letters, digits and _, found {shown(spec.name)}")
            if spec.type not in _TYPES:
                raise FormatError(f"features: {spec.name}: expected one of {', '.join(_TYPES)}, found {spec.type}")
        if len({spec.name for spec in self.features}) != len(self.features):
            raise FormatError("features: two have the same name")
        if unknown := [language for language in self.languages if language not in LANGUAGES]:
            raise FormatError(f"languages: expected some of {', '.join(LANGUAGES)}, found {shown(unknown[0])}")
        if not math.isfinite(self.threshold):
            raise FormatError(f"decision: expected a finite threshold, found {self.threshold}")
        self._check_counts()
        self.model.check(len(self.features))

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

    def decide(self, observations: NDArray[Any] | Mapping[str, Any]) -> NDArray[Any]:
        """Return the decisions of many observations.

        Args:
            observations: by the features' names, an array with an entry per observation: a dictionary of arrays, or a
                structured array. Features that are not the policy's are ignored.

        Returns:
            An array of int64 (inlining: 0 or 1; eviction: the candidate's index), or of float32 (priority).

        Raises:
            UsageError: a feature is missing, or has too few numbers.
        """
        names = observations.dtype.names or () if isinstance(observations, np.ndarray) else tuple(observations)
        missing = [spec.name for spec in self.features if spec.name not in names]
        if missing:
            raise UsageError(f"the policy {self.name} needs the feature {missing[0]!r}, which is not there")
        columns = {spec.name: np.asarray(observations[spec.name]) for spec in self.features}
        count = len(columns[self.features[0].name])
        for spec in self.features:
            if columns[spec.name].size != count * spec.element_count:
                raise UsageError(
                    f"{spec.name}: expected {spec.element_count} for each of {count} observations, found "
                    f"{columns[spec.name].size} numbers"
                )
        mask = np.asarray(columns[MASK]).reshape(count, -1) if self.task == EVICTION else ()
        return self._decisions(self._scores(columns, count), mask)

    def _scores(self, observations: Mapping[str, Any], count: int) -> Doubles:
        """Return the scores of so many observations, one for each candidate."""
        columns = []
        for spec in self.features:
            values = np.asarray(observations[spec.name], spec.dtype).astype(np.float64).reshape(count, -1)
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
        digest = sha256()
        known = [self.name, self.task, self.kind, self.threshold, [spec.as_json() for spec in self.features]]
        known += [self.languages] if self.languages else []
        digest.update(json.dumps(known).encode())
        for name, values in sorted(self.model.arrays().items()):
            digest.update(f"\0{name} {values.shape}\0".encode())
            digest.update(as_stored(values).tobytes())
        return digest.hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return ``policy.json`` as plain values."""
        features = [{"name": spec.name, "type": spec.type, "shape": list(spec.shape)} for spec in self.features]
        value: dict[str, Any] = {
            "format": FORMAT,
            "name": self.name,
            "task": self.task,
            "kind": self.kind,
            "features": features,
            "decision": {"threshold": self.threshold} if self.task == INLINING else {},
        }
        if self.languages:
            value["languages"] = list(self.languages)
        if isinstance(self.model, Rule):
            value["rule"] = {"bias": self.model.bias, "weights": list(self.model.weights)}
        return {**value, "training": dict(self.training), "licence": self.licence}

    def save(self, folder: Path | str, *, force: bool = False) -> None:
        """Write the policy as a folder, whole or not at all; equal policies give equal bytes.

        Args:
            folder: the folder to write.
            force: replace a policy that is there.

        Raises:
            UsageError: something is there, or the folder cannot be written.
        """
        write_folder(Path(folder), self._files(), known_by=POLICY_NAME, force=force)

    def _files(self) -> dict[str, bytes]:
        files = {POLICY_NAME: json_note(self.name, POLICY_NAME, self.as_json(), MAX_POLICY_BYTES)}
        if not isinstance(self.model, Rule):
            files[MODEL_NAME] = encode_arrays(self.model.arrays())
        if self.metrics:
            files[METRICS_NAME] = json_note(self.name, METRICS_NAME, dict(self.metrics), MAX_TEXT_BYTES)
        if self.card:
            files[CARD_NAME] = self.card.encode("utf-8", "replace")
        return files


def load_policy(folder: Path | str) -> LearnedPolicy:
    """Read a learned policy from its folder; everything in it is checked.

    Raises:
        UsageError: there is no such folder, or a file cannot be read.
        FormatError: a file is not as the format says, or damaged; the error names the file.
    """
    folder = Path(folder)
    if not (folder / POLICY_NAME).is_file():
        what = f"expected a policy, found a folder without {POLICY_NAME}" if folder.is_dir() else "no such policy"
        raise UsageError(f"{folder}: {what}")
    value = read_object(folder / POLICY_NAME, MAX_POLICY_BYTES)
    card = read_artefact(folder / CARD_NAME, MAX_TEXT_BYTES, optional=True).decode("utf-8", "replace")
    metrics = read_object(folder / METRICS_NAME, MAX_TEXT_BYTES, optional=True)
    try:
        fields = _fields_of(value)
    except FormatError as error:
        raise error.at(folder / POLICY_NAME) from None
    is_rule = value["kind"] == Rule.kind
    inputs = len(fields["features"])
    try:
        if is_rule:
            fields["model"] = _rule_of(value, inputs)
        else:
            data = read_artefact(folder / MODEL_NAME, MAX_MODEL_BYTES)
            fields["model"] = model_of(value["kind"], decode_arrays(data), inputs)
    except FormatError as error:
        raise error.at(folder / (POLICY_NAME if is_rule else MODEL_NAME)) from None
    try:
        return LearnedPolicy(**fields, metrics=metrics, card=card)
    except FormatError as error:
        raise error.at(folder / POLICY_NAME) from None


def _check_task(task: Any) -> None:
    if task not in (names := [task.name for task in TASKS]):
        raise FormatError(f"task: expected one of {', '.join(names)}, found {shown(task)}")


def check_name(name: Any) -> None:
    """Check the name of a policy.

    Raises:
        FormatError: it is none.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FormatError(f"name: expected letters, digits and ._+-, found {shown(name)}")


def find_policy(text: str) -> Path | None:
    """Return the folder of the learned policy that a policy's name means, absolute; None if it is none.

    It is a folder with a ``policy.json``, or the name of a policy that comes with the package.
    """
    path = Path(text)
    try:
        if (path / POLICY_NAME).is_file():
            return path.absolute()
    except (OSError, ValueError):  # a name that no file can have
        return None
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
        raise UsageError(f"{text}: no such policy; expected a folder, or one of {', '.join(known_policies())}")
    folder = folder or Path(text)
    try:
        return folder, load_policy(folder)
    except FormatError as error:
        raise UsageError(str(error)) from None


def known_policies() -> dict[str, Path]:
    """Return the folders of the learned policies that come with the package, by their names."""
    home = Path(__file__).parents[1] / "data" / "policies"
    return {path.parent.name: path.parent for path in sorted(home.glob(f"*/{POLICY_NAME}"))}


def json_note(policy: str, name: str, value: Any, most: int) -> bytes:
    """Return the bytes of a file of JSON in a policy's folder.

    Raises:
        UsageError: the value is not JSON, or takes more bytes than ``most``.
    """
    try:
        data = (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} of the policy {policy} cannot be written as JSON: {error}") from None
    if len(data) > most:
        raise UsageError(f"{name} of the policy {policy} would have {len(data)} bytes, expected at most {most}")
    return data


def read_artefact(path: Path, most: int, *, optional: bool = False) -> bytes:
    """Read a file of a policy's folder; nothing if it is optional and not there."""
    try:
        return read_regular(path, most)
    except FileNotFoundError as error:
        if optional:
            return b""
        raise UsageError(f"{path}: {os_reason(error)}") from error
    except OSError as error:
        raise UsageError(f"{path}: {os_reason(error)}") from error


def read_object(path: Path, most: int, *, optional: bool = False) -> dict[str, Any]:
    """Read a file that is an object of JSON; an empty one if it is optional and not there."""
    data = read_artefact(path, most, optional=optional)
    if optional and not data:
        return {}
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise FormatError("expected UTF-8", offset=error.start, path=path) from None
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {error.msg}", offset=error.pos, path=path) from None
    except RecursionError:
        raise FormatError("not JSON: nested too deeply", path=path) from None
    except ValueError as error:  # NaN, or an integer of too many digits
        raise FormatError(f"not JSON: {str(error).partition(';')[0]}", path=path) from None
    if not isinstance(value, dict):
        raise FormatError(f"expected an object, found {shown(value)}", path=path)
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


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


def common_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``policy.json`` says of any kind and task: name, task, features, training, licence.

    Raises:
        FormatError: something of it is not as the format says.
    """
    version = value.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FormatError(f"format: expected {FORMAT}, found {shown(version)}")
    if version > FORMAT:
        raise UnsupportedError(f"format {shown(version)}, expected {FORMAT}: a newer mlgo-corpus reads it")
    features = value.get("features")
    if not isinstance(features, list) or not 1 <= len(features) <= _MAX_FEATURES:
        raise FormatError(f"features: expected a list of 1 to {_MAX_FEATURES}, found {shown(features)}")
    fields = {
        "name": value.get("name"),
        "task": value.get("task"),
        "features": tuple(_feature_of(number, item) for number, item in enumerate(features)),
        "training": object_of(value, "training"),
        "licence": value.get("licence", ""),
    }
    object_of(value, "decision")
    if not isinstance(fields["licence"], str):
        raise FormatError(f"licence: expected text, found {shown(fields['licence'])}")
    return fields


def object_of(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an object that is the value of a key; an empty one if there is none."""
    found = value.get(key, {})
    if not isinstance(found, dict):
        raise FormatError(f"{key}: expected an object, found {shown(found)}")
    return found


def _feature_of(number: int, value: Any) -> TensorSpec:
    if not isinstance(value, dict):
        raise FormatError(f"features: {number}: expected an object, found {shown(value)}")
    name, kind, shape = value.get("name"), value.get("type"), value.get("shape")
    if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(shape, list):
        raise FormatError(f"features: {number}: expected name and type as text, and shape as a list")
    return TensorSpec(name, kind, tuple(shape))


def number_of(value: Any, what: str) -> float:
    """Return a finite number of a JSON value."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise FormatError(f"{what}: expected a number, found {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FormatError(f"{what}: expected a finite number, found {shown(value)}")
    return number


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


def encode_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of ``model.npz``."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, as_stored(values), version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, member.getvalue())
    return target.getvalue()


def as_stored(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array as ``model.npz`` holds it."""
    return np.ascontiguousarray(values, "<f8" if values.dtype.kind == "f" else "<i4")


def decode_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays in the bytes of a ``model.npz``; they take no more memory than those bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > len(data):
                raise FormatError("expected uncompressed arrays, found more bytes in them than in the file")
            for member in members:
                name = member.filename.removesuffix(".npy")
                if not _MEMBER.fullmatch(member.filename) or name in arrays:
                    raise FormatError(f"unexpected member {shown(member.filename)}")
                if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                    raise UnsupportedError(f"{name}: expected an uncompressed array, as numpy.savez writes it")
                arrays[name] = _decode_array(name, archive.read(member))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise FormatError(f"not a whole archive of arrays: {str(error)[:100]}") from None
    except (OverflowError, IndexError, TypeError, MemoryError) as error:  # nonsense that the library took for numbers
        raise FormatError(f"not a whole archive of arrays: {type(error).__name__}") from None
    return arrays


def _decode_array(name: str, data: bytes) -> NDArray[Any]:
    start = len(_MAGIC) + 2
    size = int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data[start : start + size]) if data.startswith(_MAGIC) else None
    if header is None:
        raise FormatError(f"{name}: expected an array of <f8 or <i4 in numpy's format 1.0")
    shape = tuple(int(number) for number in header[2].decode().split(",") if number.strip())
    dtype = np.dtype(header[1].decode())
    expected, found = math.prod(shape) * dtype.itemsize, len(data) - start - size
    if expected != found:
        kind = TruncatedError if found < expected else FormatError
        raise kind(f"{name}: expected {expected} bytes for the shape {list(shape)}, found {found}")
    return np.frombuffer(data, dtype, offset=start + size).reshape(shape).astype(dtype.newbyteorder("="))
