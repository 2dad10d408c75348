"""The code of policies of one's own: up to date when a run begins, and identified by a digest.

A process imports a module once. In a notebook, a file may be edited between two runs, and a function be defined anew:
`refresh` loads the file again, and `file_digest` and `object_digest` are of the code that decides. The modules that a
policy's module imports are neither loaded again nor in its file's digest.
"""

from __future__ import annotations

import copyreg
import dis
import importlib
import importlib.util
import secrets
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from mlgo_corpus.files.atomic import FileStamp

_PACKAGE: Final = __name__.partition(".")[0]
_PYC_HEADER_BYTES: Final = 16
# Where the types of functions of C are: a name is all that there is of such a function.
_OF_C: Final = ("builtins", "numpy")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The file that a module was loaded from.

    Attributes:
        stamp: the file's stamp; None if the module was loaded from another version of the file.
        digest: of the file's content.
    """

    stamp: FileStamp | None
    digest: str


_loaded: Final[WeakKeyDictionary[ModuleType, _Loaded]] = WeakKeyDictionary()
_reloading: Final = threading.Lock()


def note_loaded(module: Any) -> None:
    """Remember the file that a module was loaded from, if this is the first time that the module is met."""
    path = _file_of(module)
    if path is None or module in _loaded:
        return
    stamp = FileStamp.of(path)
    with suppress(OSError, ValueError):
        digest = sha256(Path(path).read_bytes()).hexdigest()
        if stamp is not None and _compiled_from_another(path, stamp):
            stamp = None
        _loaded[module] = _Loaded(stamp, digest)


def refresh(module: Any) -> None:
    """Load a module again if its file is another than the one that it was loaded from.

    Neither ``__main__`` nor modules of this package are loaded again.

    Raises:
        Exception: whatever the module raises; then the next call tries again.
    """
    path = _file_of(module)
    if path is None or not path.endswith(".py") or getattr(module, "__spec__", None) is None:
        return
    if module.__name__ == "__main__" or module.__name__.partition(".")[0] == _PACKAGE:
        return
    with _reloading:
        note_loaded(module)
        stamp, known = FileStamp.of(path), _loaded.get(module)
        if stamp is None or known is None or known.stamp == stamp:
            return
        # Compiled code is known by its source's size and by whole seconds, which an edit may leave as they were.
        with suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(path)).unlink()
        _loaded[module] = _Loaded(None, known.digest)
        importlib.invalidate_caches()
        importlib.reload(module)
        _loaded[module] = _Loaded(stamp, sha256(Path(path).read_bytes()).hexdigest())


def file_digest(module: Any) -> str | None:
    """Return the digest of the file that a module was loaded from; None if it has none."""
    note_loaded(module)
    known = _loaded.get(module) if isinstance(module, ModuleType) else None
    return None if known is None or _file_of(module) is None else known.digest


def object_digest(found: Any) -> str:
    """Return the digest of an object's code and values, and of what the code names in its own module.

    The place of the code, such as the cell of a notebook, does not matter. If something cannot be identified, the
    digest is random, and equal to no other.
    """
    try:
        return _Digest().of(found)
    except Exception:  # objects may raise anything
        return secrets.token_hex(32)


def _file_of(module: Any) -> str | None:
    """Return the file that a module is loaded from; None if there is none, or if a prompt may change the module."""
    path = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not isinstance(path, str):
        return None
    at_prompt = module.__name__ == "__main__" and (hasattr(sys, "ps1") or bool(sys.flags.interactive))
    return None if at_prompt else path


def _compiled_from_another(path: str, stamp: FileStamp) -> bool:
    """Return True if the compiled code that was left of a source is of another version of it."""
    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            header = file.read(_PYC_HEADER_BYTES)
    except (OSError, NotImplementedError):
        return False
    flags, time, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if len(header) < _PYC_HEADER_BYTES or header[:4] != importlib.util.MAGIC_NUMBER or flags:
        return False
    mask = (1 << 32) - 1
    return (time, size) != (stamp.mtime_ns // 10**9 & mask, stamp.size & mask)


class _Digest:
    """A digest under construction."""

    def __init__(self) -> None:
        self._hash = sha256()
        # Objects met so far, by identity; they are held so that no other gets the identity.
        self._met: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any) -> str:
        """Return the digest of a value."""
        self._add(value)
        return self._hash.hexdigest()

    def _say(self, *words: object) -> None:
        self._hash.update(f"{words!r}\0".encode("utf-8", "surrogatepass"))

    def _add(self, value: Any) -> None:
        """Add a value.

        Raises:
            Exception: it cannot be identified.
        """
        kind = type(value)
        if value is None or value is Ellipsis or kind in (bool, int, float, complex, str, bytes):
            self._say(kind.__name__, value)
        elif kind in (tuple, list):
            self._add_all(kind.__name__, value)
        elif kind in (set, frozenset):
            self._add_all(kind.__name__, sorted(_Digest().of(item) for item in value))
        elif kind is dict:
            self._add_all("dict", [part for item in value.items() for part in item])
        elif id(value) in self._met:
            self._say("again", self._met[id(value)][0])
        else:
            self._met[id(value)] = (len(self._met), value)
            self._add_object(value)

    def _add_all(self, what: str, values: Iterable[Any]) -> None:
        values = list(values)
        self._say(what, len(values))
        for value in values:
            self._add(value)

    def _add_object(self, value: Any) -> None:
        if isinstance(value, CodeType):
            self._add_code(value)
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, ModuleType):
            self._say("module", value.__name__, file_digest(value))
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, staticmethod | classmethod):
            self._add_all(type(value).__name__, [value.__func__])
        elif isinstance(value, cached_property):
            self._add_all("cached_property", [value.func])
        elif isinstance(value, property):
            self._add_all("property", [value.fget, value.fset, value.fdel])
        else:
            self._add_made(value)

    def _add_made(self, value: Any) -> None:
        """Add an object as it is pickled: what makes it, of what, and its state."""
        reduce = copyreg.dispatch_table.get(type(value))
        made: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(made, tuple):
            maker, arguments, state, items, pairs, *_ = made + (None,) * 5
            self._add_all("object", [maker, arguments, state, list(items or ()), list(pairs or ())])
        elif hasattr(value, "__wrapped__"):  # a function that remembers its results
            self._add_all("wrapped", [value.__wrapped__])
        elif type(value).__module__ in _OF_C:
            self._say("name", getattr(value, "__module__", None), made)
        else:
            raise TypeError(made)

    def _add_code(self, code: CodeType) -> None:
        """Add code without its place: file, lines, and the name of what it is in."""
        self._say("code", code.co_name, code.co_code, code.co_exceptiontable, code.co_flags, code.co_argcount)
        self._say(code.co_posonlyargcount, code.co_kwonlyargcount, code.co_names, code.co_varnames)
        self._say(code.co_freevars, code.co_cellvars)
        self._add_all("constants", code.co_consts)

    def _add_function(self, function: FunctionType) -> None:
        self._add(function.__code__)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        self._add_all("function", [function.__defaults__, function.__kwdefaults__, cells, vars(function)])
        if not self._is_elsewhere(function):
            for name in sorted(set(_global_names(function.__code__))):
                if name in function.__globals__:
                    self._say("global", name)
                    self._add(function.__globals__[name])

    def _add_class(self, found: type) -> None:
        self._say("class", found.__qualname__)
        if self._is_elsewhere(found):
            return
        self._add_all("bases", found.__bases__)
        self._add_all("members", [part for item in _members(vars(found)) for part in item])

    def _is_elsewhere(self, value: Any) -> bool:
        """Return True for a function or class of a module of which a file or a name says enough, and add these."""
        name = value.__module__
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is None or (_file_of(module) is None and getattr(module, "__spec__", None) is None):
            return False
        if module.__name__ == "__main__" and _file_of(module) is None:
            return False
        self._say("elsewhere", name, value.__qualname__, file_digest(module))
        return True


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the global names that code reads, and the code in it."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _members(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a class consists of, by name, without what Python adds to it."""
    for name, value in sorted(namespace.items()):
        made = name.startswith("__") and name.endswith("__") and not isinstance(value, FunctionType)
        if not made and name != "_abc_impl" and not isinstance(value, MemberDescriptorType | GetSetDescriptorType):
            yield name, value
