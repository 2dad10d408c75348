"""The folder that a learned policy is, or a model of native size: its files, read and written alike.

`mlgo_corpus.policies.learned` says what is in them, and `mlgo_corpus.policies.sizes.model` what is different in a model
of native size.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.folder import SEARCH_NAME
from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError, UsageError
from mlgo_corpus.files.folder import write_folder
from mlgo_corpus.files.names import STATE_FOLDER
from mlgo_corpus.files.regular import read_regular
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.logs.tensors import TensorSpec, shown

# The version of the format.
_FORMAT: Final = 1
POLICY_NAME: Final = "policy.json"
MODEL_NAME: Final = "model.npz"
_METRICS_NAME: Final = "metrics.json"
_CARD_NAME: Final = "README.md"

POLICY_FILES: Final = (POLICY_NAME, MODEL_NAME, _METRICS_NAME, _CARD_NAME)
"""The files that the folder of a policy or of a model of size may have."""


NATIVE_SIZE: Final = "native-size"
"""The task of a folder that is no policy, but a model of native size."""

_MAX_MODEL_BYTES: Final = 64 << 20
_MAX_TEXT_BYTES: Final = 1 << 20
_MAX_FEATURES: Final = 1024
# They go into C as they are.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", re.ASCII)
_FEATURE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
# The header of an array in numpy's format 1.0, as numpy writes it.
_HEADER: Final = re.compile(
    rb"\{'descr': '(<f8|<i4)', 'fortran_order': False, 'shape': \((\d{1,9}(?:, \d{1,9}|,))\), \} *\n"
)
INTERRUPTED: Final = "what was interrupted: the command that made it goes on"
_MAGIC: Final = b"\x93NUMPY\x01\x00"
_MEMBER: Final = re.compile(r"[a-z_0-9]{1,60}\.npy", re.ASCII)


def _found_instead(folder: Path, what: str) -> str:
    if (folder / SEARCH_NAME).is_file():
        return f"expected a {what}, found the dataset of a search: 'mlgo-corpus train' learns a policy from it"
    if not folder.is_dir():
        return f"no such {what}"
    if was_interrupted(folder):
        return f"expected a {what}, found {INTERRUPTED}"
    return f"expected a {what}, found a folder without {POLICY_NAME}"


def was_interrupted(folder: Path) -> bool:
    """Return True for a folder in which there is nothing but what a command goes on from."""
    with suppress(OSError, ValueError):  # a name with a NUL is no folder's
        return os.listdir(folder) == [STATE_FOLDER]
    return False


class Notes(NamedTuple):
    """What the files of a folder say, but for the model's arrays.

    Attributes:
        folder: the folder.
        value: ``policy.json``.
        metrics: ``metrics.json``; empty if there is none.
        card: ``README.md``; empty if there is none.
    """

    folder: Path
    value: dict[str, Any]
    metrics: dict[str, Any]
    card: str

    @classmethod
    def of(cls, folder: Path | str, what: str) -> Notes:
        """Read them; ``what`` is expected there: a policy, or a model.

        Raises:
            UsageError: there is no such folder, or a file cannot be read.
            FormatError: a file is not JSON; the error names the file.
        """
        folder = Path(folder)
        if not (folder / POLICY_NAME).is_file():
            raise UsageError(f"{folder}: {_found_instead(folder, what)}")
        value = read_policy_json(folder)
        card = _read(folder / _CARD_NAME, _MAX_TEXT_BYTES, optional=True).decode("utf-8", "replace")
        metrics = _read_object(folder / _METRICS_NAME, optional=True)
        return cls(folder, value, metrics, card)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Read the model's arrays; they take no more memory than their file.

        Raises:
            UsageError: the file cannot be read.
            FormatError: it is not as the format says.
        """
        return _decode_arrays(_read(self.folder / MODEL_NAME, _MAX_MODEL_BYTES))

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Have what goes wrong with the format name one of the files."""
        try:
            yield
        except FormatError as error:
            raise error.at(self.folder / name) from None


def read_policy_json(folder: Path) -> dict[str, Any]:
    """Read ``policy.json``, whatever it is of.

    Raises:
        UsageError: it cannot be read.
        FormatError: it is not an object of JSON.
    """
    return _read_object(folder / POLICY_NAME)


def save_artefact(
    folder: Path | str,
    value: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    metrics: Mapping[str, Any],
    card: str,
    force: bool,
) -> None:
    """Write a folder, whole or not at all.

    Args:
        folder: the folder to write.
        value: of ``policy.json``.
        arrays: of ``model.npz``; without any, there is no such file.
        metrics: of ``metrics.json``, likewise.
        card: of ``README.md``, likewise.
        force: replace one that is there.

    Raises:
        UsageError: something is there, the folder cannot be written, or a file would be larger than is read.
    """
    policy = value["name"]
    files = {POLICY_NAME: _json_note(policy, POLICY_NAME, value)}
    if arrays:
        files[MODEL_NAME] = _encode_arrays(arrays)
    if metrics:
        files[_METRICS_NAME] = _json_note(policy, _METRICS_NAME, dict(metrics))
    if card:
        files[_CARD_NAME] = card.encode("utf-8", "replace")
    for name, data in files.items():
        most = _MAX_MODEL_BYTES if name == MODEL_NAME else _MAX_TEXT_BYTES
        if len(data) > most:
            raise UsageError(f"{name} of the policy {policy} would have {len(data)} bytes, expected at most {most}")
    write_folder(Path(folder), files, known=POLICY_FILES, force=force)


def common_json(made: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``policy.json`` of a policy or model as plain values; ``own`` is what is not the same for all."""
    return {
        "format": _FORMAT,
        "name": made.name,
        "task": made.task,
        "kind": made.kind,
        "features": [{"name": spec.name, "type": spec.type, "shape": list(spec.shape)} for spec in made.features],
        **own,
        "training": dict(made.training),
        "licence": made.licence,
    }


def digest_of(known: Sequence[Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a digest of plain values and of arrays."""
    digest = sha256(json.dumps(known).encode())
    for name, values in sorted(arrays.items()):
        digest.update(f"\0{name} {values.shape}\0".encode())
        digest.update(_as_stored(values).tobytes())
    return digest.hexdigest()


def check_name(name: Any) -> None:
    """Check the name of a policy.

    Raises:
        FormatError: it is none.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FormatError(f"name: expected letters, digits and ._+-, found {shown(name)}")


def check_licence(licence: Any) -> None:
    """Check the licence of a policy.

    Raises:
        FormatError: it is no text.
    """
    if not isinstance(licence, str):
        raise FormatError(f"licence: expected text, found {shown(licence)}")


def check_feature_specs(features: Sequence[TensorSpec], types: Sequence[str]) -> None:
    """Check the number, names and types of features.

    Raises:
        FormatError: something of them is not as the format says.
    """
    if not 1 <= len(features) <= _MAX_FEATURES:
        raise FormatError(f"features: expected 1 to {_MAX_FEATURES}, found {len(features)}")
    for spec in features:
        if not _FEATURE.fullmatch(spec.name):
            raise FormatError(f"features: expected a name of letters, digits and _, found {shown(spec.name)}")
        if spec.type not in types:
            raise FormatError(f"features: {spec.name}: expected one of {', '.join(types)}, found {spec.type}")
    if len({spec.name for spec in features}) != len(features):
        raise FormatError("features: two have the same name")


def _json_note(policy: str, name: str, value: Any) -> bytes:
    """Return the bytes of a file of JSON in a policy's folder.

    Raises:
        UsageError: the value is not JSON.
    """
    try:
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} of the policy {policy} cannot be written as JSON: {error}") from None


def _read(path: Path, most: int, *, optional: bool = False) -> bytes:
    """Read a file of a policy's folder; nothing if it is optional and not there."""
    try:
        return read_regular(path, most)
    except FileNotFoundError as error:
        if optional:
            return b""
        raise UsageError(f"{path}: {os_reason(error)}") from error
    except OSError as error:
        raise UsageError(f"{path}: {os_reason(error)}") from error


def _read_object(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """Read a file that is an object of JSON; an empty one if it is optional and not there."""
    data = _read(path, _MAX_TEXT_BYTES, optional=optional)
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


def common_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``policy.json`` says of any kind and task: name, task, features, training, licence.

    Raises:
        FormatError: something of it is not as the format says.
    """
    version = value.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FormatError(f"format: expected {_FORMAT}, found {shown(version)}")
    if version > _FORMAT:
        raise UnsupportedError(f"format {shown(version)}, expected {_FORMAT}: a newer mlgo-corpus reads it")
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


def _encode_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of ``model.npz``."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, _as_stored(values), version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, member.getvalue())
    return target.getvalue()


def _as_stored(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array as ``model.npz`` holds it."""
    return np.ascontiguousarray(values, "<f8" if values.dtype.kind == "f" else "<i4")


def _decode_arrays(data: bytes) -> dict[str, NDArray[Any]]:
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
