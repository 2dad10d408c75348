"""Learned policies as shared objects: compiled by a C compiler that is there, kept in the cache, and loaded.

A decision takes microseconds this way, and a hundred times as long with numpy. Both decide alike, so that it does not
matter which one a machine can do.

Measured with the policy that comes with the package, on yaml-cpp: session, decision and log take 19 us of this process
for a decision, of which the calls of the system that no host can do without are 4; the compiler takes 280 to 560. So a
trace that was answered by a program in C (`mlgo_corpus.compilers.native`) instead would gain 3 to 5 % at most.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_corpus.compilers.find import find_compilers, newest_first
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies import source
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.sizes import source as size_source
from mlgo_corpus.policies.sizes.model import SizeModel
from mlgo_corpus.policies.sizes.source import model_c
from mlgo_corpus.policies.source import ABI, policy_source

_C_FLAGS: Final = ("-std=c99", "-O2", "-ffp-contract=off")

LIBRARY_NAME: Final = "policy.so"
"""The shared object of a policy, in a folder for compilers."""

SOURCE_NAMES: Final = ("policy.c", "policy.h")
"""The files of a policy's source."""

_SHARED_FLAGS: Final = ("-fPIC", "-shared")
_COMPILE_TIMEOUT_S: Final = 120.0
_POLICIES_FOLDER: Final = "policies"


class CompiledPolicy:
    """A policy whose decisions its shared object makes; it decides as the `LearnedPolicy` does.

    Args:
        policy: what the object was made from.
        library: the shared object.

    Attributes:
        features: the policy's.
        function: the address of ``mlgo_policy_decide``.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, policy: LearnedPolicy, library: Path) -> None:
        self.features: tuple[TensorSpec, ...] = policy.features
        loaded = ctypes.CDLL(str(library))
        loaded.mlgo_policy_digest.restype = ctypes.c_char_p
        if loaded.mlgo_policy_abi() != ABI or loaded.mlgo_policy_digest() != policy.digest.encode():
            raise OSError(f"{library}: another policy's")
        self._decide = loaded.mlgo_policy_decide
        self._decide.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._decide.restype = None
        self.function = ctypes.cast(self._decide, ctypes.c_void_p).value
        self._dtype: np.dtype[Any] | None = None
        self._tensors = ctypes.create_string_buffer(0)
        self._size = 0
        self._pointers = (ctypes.c_void_p * len(policy.features))()
        self._decision = ctypes.c_float() if policy.decision_type == "float" else ctypes.c_int64()
        self._answer = ctypes.byref(self._decision)

    def advise(self, observation: np.void) -> Any:
        """Return the decision of one observation."""
        if observation.dtype is not self._dtype:
            self._place(observation.dtype)
        ctypes.memmove(self._tensors, observation.tobytes(), self._size)
        self._decide(self._pointers, self._answer)
        return self._decision.value

    def _place(self, dtype: np.dtype[Any]) -> None:
        """Point to the features of observations of a type."""
        self._size = dtype.itemsize
        self._tensors = ctypes.create_string_buffer(self._size)
        begin, fields = ctypes.addressof(self._tensors), dict(dtype.fields or {})
        for number, spec in enumerate(self.features):
            element, start = fields[spec.name][:2]
            if (element.base, element.itemsize) != (spec.dtype, spec.nbytes):
                raise UsageError(f"{spec.name}: expected {spec.type}{list(spec.shape)}, found {element}")
            self._pointers[number] = begin + start
        self._dtype = dtype


def c_source(policy: LearnedPolicy | SizeModel) -> tuple[str, str]:
    """Return the texts of ``policy.c`` and ``policy.h`` for a policy, or for a model of native size."""
    return model_c(policy) if isinstance(policy, SizeModel) else policy_source(policy)


def build_library(policy: LearnedPolicy | SizeModel, library: Path) -> tuple[str, ...]:
    """Compile a policy to a shared object; return the command without its files.

    Raises:
        UsageError: there is no C compiler, or none that can do it.
        OSError: the object cannot be written.
    """
    return _compile(c_source(policy), library)


def _compile(source: tuple[str, str], library: Path) -> tuple[str, ...]:
    """Compile the texts of ``policy.c`` and ``policy.h``; see `build_library`."""
    failure = "none was found"
    with scratch_folder() as scratch:
        for name, text in zip(SOURCE_NAMES, source, strict=True):
            (scratch / name).write_text(text, encoding="ascii")
        for compiler in _iter_compilers():
            flags = (*compiler, *_C_FLAGS, *_SHARED_FLAGS)
            try:
                run_tool((*flags, SOURCE_NAMES[0], "-o", LIBRARY_NAME), cwd=scratch, timeout=_COMPILE_TIMEOUT_S)
            except ToolError as error:
                failure = str(error)
                continue
            write_atomically(library, (scratch / LIBRARY_NAME).read_bytes())
            return flags
    raise UsageError(f"a C compiler is needed, such as cc or clang: {failure}")


def cached_library(policy: LearnedPolicy | SizeModel, cache: Path | None = None) -> Path:
    """Return the policy's shared object in the cache; it is made if it is not there.

    Raises:
        UsageError: there is no C compiler.
        OSError: the cache cannot be written.
    """
    made_of = Path(source.__file__).read_bytes() + Path(size_source.__file__).read_bytes() + policy.digest.encode()
    return _cached(policy.name, made_of, lambda: c_source(policy), cache)


def cached_source(name: str, texts: tuple[str, str]) -> Path:
    """Return the shared object of the texts of a ``policy.c`` and ``policy.h``, as `cached_library` does of a policy.

    Raises:
        UsageError: there is no C compiler.
        OSError: the cache cannot be written.
    """
    return _cached(name, "\0".join(texts).encode(), lambda: texts, None)


def _cached(name: str, made_of: bytes, texts: Callable[[], tuple[str, str]], cache: Path | None) -> Path:
    digest = sha256(made_of)
    digest.update(repr((_C_FLAGS, _SHARED_FLAGS, platform.system(), platform.machine())).encode())
    folder = cache_folder(cache) / _POLICIES_FOLDER
    library = folder / f"{name}-{digest.hexdigest()[:32]}.so"
    if not library.is_file() or not library.stat().st_size:  # a machine that went down can leave it empty
        folder.mkdir(parents=True, exist_ok=True)
        _compile(texts(), library)
    return library


def fastest(policy: LearnedPolicy) -> LearnedPolicy | CompiledPolicy:
    """Return the policy compiled, or as it is where there is no C compiler or no cache."""
    try:
        return CompiledPolicy(policy, cached_library(policy))
    except (OSError, UsageError):  # or the cache is on a file system from which nothing may be run
        return policy


def _iter_compilers() -> Iterator[tuple[str, ...]]:
    """Yield the words of C compilers, the likeliest first."""
    for name in ("cc", "gcc", "clang"):
        if (found := shutil.which(name)) is not None:
            yield (found,)
    for candidate in newest_first(find_compilers(environment={"PATH": os.environ.get("PATH", "")})):
        # zig's clang is only the half of a compiler: its driver knows where the headers are.
        yield (*candidate.words[:-1], "cc") if candidate.origin == "ziglang" else candidate.words
