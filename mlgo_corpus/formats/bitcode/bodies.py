"""The body of one function in bitcode: its number of instructions, and a hash of what they do.

Each instruction is a record. The meaning of its operands depends on its code, and is listed in `_INSTRUCTIONS`;
instructions with an order of operands of their own have a branch in `FunctionReader.read`.

A value is written relative to the number that the next instruction's value will have. For the values of instructions
this relative number does not depend on the rest of the module, so it is hashed itself. Any other number refers to a
global value, an argument or a constant: its digest or its number by first use is hashed (`Values`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.bitcode.records import ENTER, Abbreviation, Block, Record, iter_records
from mlgo_corpus.formats.bitcode.values import Signature, Types, Values, digest, gep_flags

CONSTANTS_BLOCK_ID: Final = 11
BUNDLE_TAGS_BLOCK_ID: Final = 21
SYNC_SCOPES_BLOCK_ID: Final = 26

# DECLAREBLOCKS, locations, users of block addresses, debug records: they are not instructions.
_NO_INSTRUCTIONS: Final = frozenset((ENTER, 1, 33, 35, 60, 61, 62, 63, 64, 65, 66))
_BINOP, _CAST, _RET, _BR, _SWITCH, _INVOKE, _UNREACHABLE, _PHI, _ALLOCA, _LOAD = 2, 3, 10, 11, 12, 13, 15, 16, 19, 20
_CMP2, _CALL, _GEP, _STORE, _OPERAND_BUNDLE, _CALLBR = 28, 34, 43, 44, 55, 57

# The operands of instructions: V is a value, followed by its type where it is defined later, v a value without type,
# T a type, n a number, s a synchronisation scope. The part after a star is repeated.
_INSTRUCTIONS: Final = {
    _BINOP: "Vv*n",
    _CAST: "VT*n",
    6: "VV",  # EXTRACTELT
    7: "VvV",  # INSERTELT
    8: "VvV",  # SHUFFLEVEC
    9: "Vv*n",  # CMP
    _RET: "*V",
    _BR: "nnv",
    _UNREACHABLE: "*n",
    _LOAD: "VT*n",
    23: "TvT",  # VAARG
    26: "V*n",  # EXTRACTVAL
    27: "VV*n",  # INSERTVAL
    _CMP2: "Vv*n",
    29: "VvV*n",  # VSELECT
    31: "Tv*n",  # INDIRECTBR
    36: "ns",  # FENCE
    38: "Vvnnns*n",  # ATOMICRMW_OLD
    39: "V",  # RESUME
    41: "VTnnns",  # LOADATOMIC
    _GEP: "nT*V",
    _STORE: "VV*n",
    45: "VVnnns",  # STOREATOMIC
    46: "VVvnns*n",  # CMPXCHG
    47: "Tnn*nV",  # LANDINGPAD
    48: "v*n",  # CLEANUPRET
    49: "v*n",  # CATCHRET
    50: "vn*V",  # CATCHPAD
    51: "vn*V",  # CLEANUPPAD
    52: "v*n",  # CATCHSWITCH
    56: "V*n",  # UNOP
    58: "V",  # FREEZE
    59: "VVnnns*n",  # ATOMICRMW
}
_UNKNOWN: Final = ("", "n")
_LAYOUTS: Final = {code: layout.partition("*")[::2] for code, layout in _INSTRUCTIONS.items()}
# These define no value. For calls this depends on the type. Unknown codes are assumed to define none.
_NO_VALUE: Final = frozenset((_RET, _BR, _SWITCH, _UNREACHABLE, 31, 36, 39, _STORE, 45, 48, 49))
_VALUE: Final = (frozenset(_INSTRUCTIONS) | {_PHI, _ALLOCA}) - _NO_VALUE

_EXPLICIT_TYPE: Final = {_CALL: 15, _INVOKE: 13, _CALLBR: 15}
_FMF = 17

# The token of a value that is not an earlier instruction is above all relative numbers.
_NUMBERED = 1 << 40
_FORWARD = 1 << 41
_MASK32 = (1 << 32) - 1
_METADATA_OPERAND = 0x80000000  # precedes the number of metadata in an operand bundle


class FunctionReader:
    """Reader of the functions of one module, whose types and values are known.

    Attributes:
        values: the module's.
        skipped: the numbers of the functions whose calls are not counted, because they are debug information.
        abbreviations: those of BLOCKINFO, by block id.
        lists: the blocks with the names of operand bundles' tags and of synchronisation scopes, by block id.
    """

    def __init__(self, data: bytes, origin: int, types: Types, values: Values) -> None:
        self._data = data
        self._origin = origin
        self._types = types
        self.values = values
        self.skipped: set[int] = set()
        self.abbreviations: dict[int, list[Abbreviation]] = {}
        self.lists: dict[int, Block] = {}
        self._names: dict[int, list[int]] = {}

    def records(self, block: Block) -> Iterator[Record]:
        """Yield the records of a block."""
        return iter_records(self._data, block, [*self.abbreviations.get(block.block_id, ())], self._origin)

    def read(self, block: Block, kind: int) -> tuple[int, int]:
        """Return the number of instructions of a function of type ``kind``, and the hash of its body.

        Raises:
            FormatError: the body is invalid; has no offset where a record is at fault.
        """
        signature = self._types.signatures.get(kind)
        if signature is None:
            raise FormatError(f"a function of type {kind}, which is not a function type")
        try:
            return self._read(block, signature.parameters)
        except IndexError:
            message = "an instruction lacks operands, or refers to a type that does not exist"
            raise FormatError(message) from None
        except OverflowError:
            message = "an instruction with a code of more than 32 bits, or an operand of more than 64"
            raise FormatError(message) from None

    def _read(self, block: Block, parameters: Sequence[int]) -> tuple[int, int]:
        values = self.values
        values.begin_function(parameters)
        types = self._types.digests
        first = next_value = len(values)
        local = 0  # the number of values that instructions have defined
        instructions = 0
        out: list[int] = []
        append = out.append
        tokens: dict[int, int] = {}
        numbered: list[int] = []
        known = tokens.get

        def find(relative: int) -> int:
            """Return the token of a value that is not the result of an earlier instruction."""
            number = next_value - relative & _MASK32
            if number >= first:
                return _FORWARD | relative & _MASK32
            return known(number) or self._make_token(number, tokens, numbered)

        for code, record in self.records(block):
            if code in _NO_INSTRUCTIONS:
                if code == ENTER and record[0] == CONSTANTS_BLOCK_ID:
                    if local:
                        raise FormatError("a block of constants after instructions", offset=record[2])
                    values.add_constants(self.records(Block(*record)))
                    first = next_value = len(values)
                continue
            instructions += 1
            append(code << 32 | len(record))
            # Frequent codes come first, then those whose operands have an order of their own.
            if code == _LOAD and len(record) == 4:
                pointer, kind, alignment, volatile = record
                append(pointer if 0 < pointer <= local else known(next_value - pointer) or find(pointer))
                out += (types[kind], alignment, volatile)
                local += 1
                next_value += 1
            elif code == _STORE and len(record) == 4:
                pointer, value, alignment, volatile = record
                append(pointer if 0 < pointer <= local else known(next_value - pointer) or find(pointer))
                append(value if 0 < value <= local else known(next_value - value) or find(value))
                out += (alignment, volatile)
            elif code in (_CALL, _INVOKE, _CALLBR):
                signature = self._read_call(code, record, out, find, local, next_value)
                if signature is None:
                    instructions -= 1
                    out.pop()
                elif signature.returns:
                    local += 1
                    next_value += 1
            elif code == _BR and len(record) == 1:
                append(record[0])
            elif code == _PHI:
                append(types[record[0]])
                for index in range(1, len(record) - 1, 2):
                    value = record[index]
                    value = -(value >> 1) if value & 1 else value >> 1
                    append(value if 0 < value <= local else find(value))
                    append(record[index + 1])
                if not len(record) % 2:
                    append(record[-1])
                local += 1
                next_value += 1
            elif code == _ALLOCA:
                # The number of elements is a value that is not relative here.
                out += (types[record[0]], types[record[1]], find(next_value - record[2]))
                out += record[3:]
                local += 1
                next_value += 1
            elif code == _SWITCH:
                out += (types[record[0]], record[1] if 0 < record[1] <= local else find(record[1]))
                out += record[2:3]
                for index in range(3, len(record) - 1, 2):
                    out += (find(next_value - record[index]), record[index + 1])
            elif code == _OPERAND_BUNDLE:
                instructions -= 1
                append(self._name(BUNDLE_TAGS_BLOCK_ID, record[0]))
                _read_values(record, 1, out, find, local, next_value)
            else:
                signs, repeated = _LAYOUTS.get(code, _UNKNOWN)
                if code == _GEP and record:
                    record[0] = gep_flags(record[0])
                index = 0
                size = len(record)
                while True:
                    for sign in signs:
                        value = record[index]
                        index += 1
                        if sign == "V":
                            if 0 < value <= local:
                                append(value)
                            else:
                                append(known(next_value - value) or find(value))
                                if not 0 < value <= next_value:
                                    index += 1  # the type of a value that is defined later
                        elif sign == "n":
                            append(value)
                        elif sign == "v":
                            append(value if 0 < value <= local else known(next_value - value) or find(value))
                        elif sign == "T":
                            append(types[value])
                        else:
                            append(self._name(SYNC_SCOPES_BLOCK_ID, value))
                    if index >= size or not repeated:
                        break
                    signs = repeated
                if code in _VALUE:
                    local += 1
                    next_value += 1
        out += numbered
        packed = array("Q", out)
        if sys.byteorder == "big":
            packed.byteswap()
        return instructions, int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")

    def _name(self, block_id: int, number: int) -> int:
        """Return the digest of a name in one of `lists`, or the number itself if it has no name."""
        if block_id not in self._names:
            block = self.lists.get(block_id)
            records = [] if block is None else self.records(block)
            self._names[block_id] = [digest(name) for code, name in records if code != ENTER]
        names = self._names[block_id]
        return names[number] if number < len(names) else number

    def _make_token(self, number: int, tokens: dict[int, int], numbered: list[int]) -> int:
        values = self.values
        if number < len(values.names):
            token = values.names[number]
            content = values.spaces[number]
        else:
            kind = values.argument_type(number)
            token = 0
            if kind is None:
                token, used = values.constant(number)
                if used:
                    values.spend(len(used))
                    parts = [tokens.get(each) or self._make_token(each, tokens, numbered) for each in used]
                    token = digest(token, parts)
            else:
                content = kind
        if not token:
            token = _NUMBERED + len(numbered)
            numbered.append(content)
        tokens[number] = token
        return token

    def _read_call(
        self, code: int, record: list[int], out: list[int], find: Callable[[int], int], local: int, next_value: int
    ) -> Signature | None:
        """Hash a call of any kind; return None, and hash nothing, if it is debug information."""
        convention = record[1]
        if not convention >> _EXPLICIT_TYPE[code] & 1:
            raise UnsupportedError("a call without its function's type, as LLVM wrote it before version 4")
        # Between the convention and the type are floating-point flags, or blocks.
        if code == _CALL:
            index = 2 + (convention >> _FMF & 1)
        elif code == _INVOKE:
            index = 4
        else:
            index = 4 + record[3]
        kind, callee = record[index], record[index + 1]
        if next_value - callee in self.skipped:
            return None
        signature = self._types.signatures.get(kind)
        if signature is None:
            raise FormatError(f"a call of type {kind}, which is not a function type")
        append = out.append
        out += record[1:index]
        append(self._types.digests[kind])
        append(callee if 0 < callee <= local else find(callee))
        index += 2 if 0 < callee <= next_value else 3
        after = index + len(signature.parameters)
        arguments = record[index:after]
        if len(arguments) != len(signature.parameters):
            raise FormatError(f"a call with {len(arguments)} arguments, expected {len(signature.parameters)}")
        if signature.special:
            # Metadata is not hashed, and a label is the number of a block.
            for position, value in enumerate(arguments):
                if position not in signature.special:
                    append(value if 0 < value <= local else find(value))
                else:
                    append(0)
        else:
            out += [value if 0 < value <= local else find(value) for value in arguments]
        _read_values(record, after, out, find, local, next_value)
        return signature


def _read_values(
    record: list[int], index: int, out: list[int], find: Callable[[int], int], local: int, next_value: int
) -> None:
    """Hash the rest of a record: values, with their types where they are defined later."""
    while index < len(record):
        value = record[index]
        if value == _METADATA_OPERAND:
            out.append(0)
        else:
            out.append(value if 0 < value <= local else find(value))
        index += 1 if 0 < value <= next_value else 2
