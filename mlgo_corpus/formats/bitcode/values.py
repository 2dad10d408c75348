"""Digests of the types, constants and global values that the numbers in a bitcode module's records refer to.

Types and constants are written as references into tables whose order depends on everything else in the module.
A reference is replaced by a digest of 64 bits of the content that it refers to:

- A type's digest is made of its structure; a named struct's of its fields, not of its name (what a function does
  depends on the layout, and a name may get a suffix in another module).
- A constant's digest is made of its type, its kind, and its operands' digests.
- A global value inside a constant has no content here. A constant is represented by a digest in which global values
  are numbered by their first use in it, and by the list of these, so that the function can number them in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.bitcode.records import ENTER, Record

_NUMENTRY = 1
_VOID, _LABEL, _POINTER, _METADATA, _STRUCT_NAME, _FUNCTION, _OPAQUE_POINTER, _TARGET = 2, 5, 8, 16, 19, 21, 25, 26
# The number of operands before the types that a type is made of. Types not listed are made of numbers only.
_NUMBERS_BEFORE_TYPES: Final = {11: 1, 12: 1, 18: 1, 20: 1, 21: 1}  # ARRAY, VECTOR, STRUCT_ANON, STRUCT_NAMED, FUNCTION
_PASSES = 8  # over types that refer to later ones, which LLVM has not written since pointers became opaque

_SETTYPE, _NULL, _INTEGER, _GEP_OLD, _INBOUNDS_GEP, _RANGE_GEP, _GEP = 1, 2, 4, 12, 20, 31, 32
_INBOUNDS = 1
# The operands of constants: n is a number, T a type, c a constant. The part after a star is repeated.
_CONSTANTS: Final = {
    7: "*c",  # AGGREGATE
    10: "ncc*n",  # CE_BINOP
    11: "nTc*n",  # CE_CAST
    13: "ccc",  # CE_SELECT
    14: "TcTc",  # CE_EXTRACTELT
    15: "ccTc",  # CE_INSERTELT
    16: "ccc",  # CE_SHUFFLEVEC
    17: "Tccn",  # CE_CMP
    19: "Tccc",  # CE_SHUFVEC_EX
    21: "Tcn",  # BLOCKADDRESS
    24: "Tn*Tc",  # CE_GEP_WITH_INRANGE_INDEX_OLD
    25: "nc*n",  # CE_UNOP
    27: "Tc",  # DSO_LOCAL_EQUIVALENT
    29: "Tc",  # NO_CFI_VALUE
    30: "T*n",  # INLINEASM
    32: "Tn*Tc",  # CE_GEP
    33: "*c",  # PTRAUTH
    34: "*c",  # PTRAUTH2
}

# The most references to global values while a module's constants are digested, repeated ones included. Far above
# anything real: few constants in functions have any.
_MAX_GLOBALS = 1 << 22


def digest(*content: object) -> int:
    """Return 64 bits of BLAKE2b of numbers, and of tuples and lists of them."""
    return int.from_bytes(blake2b(repr(content).encode(), digest_size=8).digest(), "little")


# The types and small constants of different modules are mostly the same, and a look-up takes a fifth of the time.
_kept_digest = lru_cache(maxsize=1 << 14)(digest)
_LARGE = 16  # content of this many parts or more rarely occurs twice


def _digest_of(content: Sequence[object]) -> int:
    return _kept_digest(*content) if len(content) < _LARGE else digest(*content)


def gep_flags(flags: int) -> int:
    """Return the flags of a getelementptr as LLVM has them from version 19 on: ``inbounds`` also sets ``nusw``."""
    return flags | (flags & _INBOUNDS) << 1


class Signature(NamedTuple):
    """The parts of a function type that reading a call requires.

    ``special`` are the positions of parameters that are labels or metadata, whose arguments are not values.
    """

    returns: bool
    parameters: tuple[int, ...]
    special: frozenset[int]


class Types:
    """A module's types: their digests, and the signatures of those that are functions."""

    def __init__(self) -> None:
        self.digests: list[int] = []
        self.signatures: dict[int, Signature] = {}
        self._rows: list[tuple[int, list[int], int]] = []

    def read(self, records: Iterable[Record]) -> None:
        """Read the types of a module's only TYPE block."""
        if self._rows:
            raise FormatError("a second table of types, expected one")
        rows: list[tuple[int, list[int], int]] = []
        name: list[int] = []
        for code, values in records:
            if code == _STRUCT_NAME:
                name = values
            elif code == _TARGET:  # the only type whose name is part of its meaning
                types = values[0] if values else 0
                rows.append(
                    (code, [*name, *values[1 + types :], *values[1 : 1 + types]], len(name + values) - 1 - types)
                )
            elif code == _POINTER:  # from before LLVM 15; the type it pointed to does not matter
                rows.append((_OPAQUE_POINTER, values[1:] or [0], 1))
            elif code not in (_NUMENTRY, ENTER):
                rows.append((code, values, _NUMBERS_BEFORE_TYPES.get(code, len(values))))
        self._rows = rows
        found: list[int | None] = [None] * len(rows)
        waiting: Sequence[int] = range(len(rows))
        for _ in range(_PASSES):
            late = [number for number in waiting if not self._make(number, found)]
            if not late:
                break
            waiting = late[::-1]
        self.digests += [digest("cycle", row) if made is None else made for made, row in zip(found, rows, strict=True)]

    def _make(self, number: int, found: list[int | None]) -> bool:
        code, values, first = self._rows[number]
        if max(values[first:], default=0) >= len(found):
            raise FormatError(f"type {number} is made of type {max(values[first:])}, but there are {len(found)}")
        parts = [found[value] for value in values[first:]]
        if None in parts:
            return False
        found[number] = _digest_of([code, *values[:first], *parts])
        if code == _FUNCTION and len(values) > 1:
            special = [
                position for position, value in enumerate(values[2:]) if self._rows[value][0] in (_LABEL, _METADATA)
            ]
            returns = self._rows[values[1]][0] != _VOID
            self.signatures[number] = Signature(returns, tuple(values[2:]), frozenset(special))
        return True


class _Constant(NamedTuple):
    """A constant's content, and the numbers of the global values in it, in the order of their first use."""

    digest: int
    globals: tuple[int, ...]


# A constant's type, its code and its operands.
_Row = tuple[int, int, Sequence[int]]


class Values:
    """The values of a module that are not instructions, by their numbers.

    First come the global values, then the constants of the module; these are kept. After them come the arguments and
    constants of the function that is being read.
    """

    def __init__(self, types: Types) -> None:
        self._types = types
        self.names: list[int] = []
        self.spaces: list[int] = []
        self._rows: list[_Row] = []
        self._kept: dict[int, _Constant] = {}
        self._local: dict[int, _Constant] = {}
        self._base = 0
        self._parameters: Sequence[int] = ()
        self._work = 0

    def __len__(self) -> int:
        return len(self._rows) + len(self._parameters)

    def add_global(self, name_digest: int, space: int) -> None:
        """Add a global value: the digest of its name if that matters, else 0, and its address space."""
        self.names.append(name_digest)
        self.spaces.append(space)
        self._rows.append((0, _NULL, ()))
        self._base = len(self._rows)

    def add_constants(self, records: Iterable[Record]) -> None:
        """Add the constants of a CONSTANTS block."""
        current = 0
        add = self._rows.append
        for code, values in records:
            if code == _SETTYPE:
                if not values or values[0] >= len(self._types.digests):
                    raise FormatError(f"constants of type {values}, but there are {len(self._types.digests)}")
                current = values[0]
            elif code != ENTER:
                add((current, code, values))

    def keep(self) -> None:
        """Keep everything added so far as the module's own."""
        self._base = len(self._rows)

    def begin_function(self, parameters: Sequence[int]) -> None:
        """Forget the values of the last function, and add the arguments of the next one."""
        del self._rows[self._base :]
        self._local = {}
        self._parameters = parameters  # not one row for each: a few bits can encode a function of many parameters

    def argument_type(self, number: int) -> int | None:
        """Return the digest of an argument's type, or None if the value is not an argument."""
        place = number - self._base
        return self._types.digests[self._parameters[place]] if 0 <= place < len(self._parameters) else None

    def spend(self, count: int) -> None:
        """Count references of constants to global values.

        Raises:
            FormatError: there are more than any real module's constants have.
        """
        self._work += count
        if self._work > _MAX_GLOBALS:
            raise FormatError(f"constants that name more than {_MAX_GLOBALS} global values")

    def constant(self, number: int) -> _Constant:
        """Return a constant's content. Without recursion, because constants may be nested to any depth.

        Raises:
            FormatError: a constant contains itself, or a value that is not a constant.
        """
        stack = [number]
        begun: set[int] = set()
        while stack:
            number = stack[-1]
            found = self._find(number)
            if found is None:
                content, children = self._split(number)
                missing = [child for child in children if self._find(child) is None]
                if missing:
                    if number in begun:
                        raise FormatError(f"value {number} is a constant that contains itself")
                    begun.add(number)
                    stack += missing
                    continue
                found = self._join(content, children)
                (self._kept if number < self._base else self._local)[number] = found
            stack.pop()
        return found  # type: ignore[return-value] # the stack was not empty

    def _find(self, number: int) -> _Constant | None:
        if number < len(self.names):
            name = self.names[number]
            return _Constant(name, ()) if name else _Constant(0, (number,))
        return (self._kept if number < self._base else self._local).get(number)

    def _split(self, number: int) -> tuple[list[object], list[int]]:
        """Return a constant's own content, and the numbers of the constants in it."""
        if self.argument_type(number) is not None:
            raise FormatError(f"value {number} is an argument, expected a constant")
        local = number >= self._base
        kind, code, values = self._rows[number - len(self._parameters) if local else number]
        types = self._types.digests
        layout = _CONSTANTS.get(code, "*n")
        # Different versions' encodings of the same constant are made equal.
        if code in (_GEP_OLD, _INBOUNDS_GEP) and len(values) % 2:
            values = [values[0], _INBOUNDS if code == _INBOUNDS_GEP else 0, *values[1:]]
            code = _GEP
        elif code == _INTEGER and values == [0]:
            code, values, layout = _NULL, (), ""
        if code in (_GEP, _RANGE_GEP) and len(values) > 2:
            values = [values[0], gep_flags(values[1]), *values[2:]]
            layout = "Tn*Tc"
            if code == _RANGE_GEP:
                # A range follows the flags: a width, and two numbers, or two numbers' lengths and their words.
                words = 3
                if values[2] > 64 and len(values) > 3:
                    words = 2 + (values[3] & 0xFFFFFFFF) + (values[3] >> 32)
                layout = "Tn" + "n" * min(words, len(values)) + "*Tc"
        content: list[object] = [types[kind], code, len(values)]
        children: list[int] = []
        head, _, tail = layout.partition("*")
        signs = head + tail * (-(-(len(values) - len(head)) // len(tail)) if tail else 0)
        limit = len(self) if local else self._base
        for sign, value in zip(signs, values, strict=False):
            if sign == "n":
                content.append(value)
            elif sign == "T":
                if value >= len(types):
                    raise FormatError(f"a constant refers to type {value}, but there are {len(types)}")
                content.append(types[value])
            elif value >= limit:
                raise FormatError(f"a constant refers to value {value}, but there are {limit}")
            else:
                children.append(value)
        return content, children

    def _join(self, content: list[object], children: list[int]) -> _Constant:
        places: dict[int, int] = {}
        for child in children:
            part = self._find(child)
            if part is None:  # cannot happen: it was found a moment ago
                raise FormatError(f"value {child} is not a constant")
            content.append(part.digest)
            if part.globals:
                self.spend(len(part.globals))
                content.append(tuple([places.setdefault(used, len(places)) for used in part.globals]))
        return _Constant(_digest_of(content), tuple(places))
