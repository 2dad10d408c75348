"""Features of functions that tell how many bytes their instructions take: operands, constants, values across calls.

An opcode does not tell the length of the machine code. On x86-64, a constant takes no byte, one, four or eight; so does
an offset; a 64-bit operation needs a prefix; an argument that is a constant or an address needs an instruction of its
own; and values that are alive across a call need registers that the function has to save.

The text is read line by line, as `mlgo_corpus.formats.ir.text` describes it. Values are alive from the line that
defines them to the last that uses them, and to the end of a loop that they come into: an estimate, in the order of the
text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.formats.ir.text import IDENTIFIER, Function

_KINDS: Final = {
    "i1": "bits",
    "i8": "bytes",
    "i16": "of 16 bits",
    "i32": "of 32 bits",
    "i64": "of 64 bits",
    "ptr": "pointers",
    "fp": "floating-point numbers",
    "other": "vectors, aggregates or other integers",
}
_OPERATIONS: Final = {
    "load": "loads",
    "store": "stores",
    "arithmetic": "arithmetic instructions",
    "compare": "comparisons",
    "phi": "phi instructions",
    "select": "select instructions",
}
_CONSTANTS: Final = {
    "zero": "0, null or false",
    "byte": "a constant that fits into a signed byte",
    "word": "a constant that fits into 32 bits, and not into a byte",
    "wide": "a constant of more bits",
}
_CONSTANT_PLACES: Final = {
    "arithmetic": "arithmetic instructions with",
    "compare": "comparisons with",
    "store": "stores of",
    "argument": "arguments of calls that are",
    "phi": "values of phi instructions that are",
    "select": "operands of select instructions that are",
    "return": "returns of",
}

_NAMED: Final = {
    "parameters": "the function's parameters",
    "varargs": "1 if it takes any number of arguments",
    "returns_value": "1 if it returns a value",
    "returns_memory": "1 if its result is written where a parameter says (sret), which it has to return, too",
    "float_parameters": "those of its parameters that are floating-point numbers",
    "real_calls": "calls that are a call in the machine code, too, as far as one can tell",
    "indirect_calls": "those of them through a pointer",
    "tail_calls": "those of them that are marked so, right before a return",
    "frame_calls": "those of them that are no such tail calls",
    "arguments": "the arguments of all these calls",
    "argument_values": "those of them that are values of the function",
    "arguments_in_place": "those of them that are the function's own parameters, and in the same place",
    "arguments_of_parameters": "those of them that are its parameters in another place",
    "argument_addresses": "those of them that are addresses of globals or functions",
    "many_arguments": "those of them beyond a call's sixth",
    "results": "calls of which the result has a name",
    "free_intrinsics": "calls of intrinsics that make no code: lifetimes, assumptions",
    "copies_small": "memory intrinsics for a constant length of at most 128 bytes",
    "copies_other": "memory intrinsics for other lengths",
    "other_intrinsics": "calls of other intrinsics",
    "inline_assembly": "characters of inline assembly",
    "offset_zero": "addresses that are another one",
    "offset_byte": "addresses that are another one and a constant that fits into a signed byte",
    "offset_word": "addresses that are another one and a larger constant",
    "offset_field": "addresses by a structure's field",
    "index_scaled": "addresses by a variable index of elements of 1, 2, 4 or 8 bytes",
    "index_other": "addresses by a variable index of other elements",
    "access_plain": "loads and stores by an address as it is",
    "access_byte": "loads and stores by an address and a constant that fits into a signed byte",
    "access_word": "loads and stores by an address and a larger constant",
    "access_index": "loads and stores by an address and a variable index",
    "access_stack": "loads and stores of stack slots",
    "global_accesses": "loads and stores of globals",
    "addresses_taken": "addresses with an offset that not only loads and stores use",
    "loads_used_once": "loads of which one arithmetic instruction or comparison uses the value, and nothing else",
    "compare_values": "comparisons that not only branches use",
    "global_values": "globals in other places, but calls",
    "stores_of_globals": "stores of the addresses of globals",
    "float_constants": "floating-point constants other than 0",
    "stack_slots": "alloca instructions",
    "stack_bytes": "bytes of them, as far as their types tell",
    "phi_values": "values of all phi instructions",
    "switch_cases": "cases of all switches",
    "casts_free": "casts that make no code as a rule: trunc, zext from 32 bits",
    "casts_of_bits": "zext and sext of a bit",
    "casts_other": "other casts of integers",
    "shifts_by_values": "shifts that are not by a constant",
    "multiplications_by_constants": "multiplications by a constant",
    "divisions_by_constants": "divisions by a constant",
    "jumps": "branches that do not lead to the next block",
    "values_across_calls": "values that are alive across at least one call",
    "most_across_calls": "the most of them across one call",
    "sum_across_calls": "their number, summed over all calls",
    "most_values": "the most values that are alive at once",
}

_MEANINGS: Final = {
    **_NAMED,
    **{
        f"{operation}_{kind}": f"{what} of {'numbers ' + of if of.startswith('of') else of}"
        for operation, what in _OPERATIONS.items()
        for kind, of in _KINDS.items()
    },
    **{
        f"{place}_{size}": f"{where} {what}"
        for place, where in _CONSTANT_PLACES.items()
        for size, what in _CONSTANTS.items()
    },
}
OPERAND_NAMES: Final = tuple(f"operands_{name}" for name in _MEANINGS)
"""The names of the features."""

OPERAND_MEANINGS: Final = dict(zip(OPERAND_NAMES, _MEANINGS.values(), strict=True))
"""What each of them counts."""

_LINE = re.compile(rf"  (?:(%{IDENTIFIER}) = )?((?:tail |musttail |notail )?)([a-z]\w*) ?(.*)")
_TYPE = re.compile(r"(?<![\w.%@])(?:i\d+|ptr|float|double|half|bfloat|x86_fp80|fp128|<|\{|\[)(?![\w.])|<|\{|\[")
_VALUE = re.compile(rf"%{IDENTIFIER}")
_GLOBAL = re.compile(rf"@{IDENTIFIER}")
_CALLEE = re.compile(rf"(?<![\w.])([@%]{IDENTIFIER}|asm)(?= ?\(| \w| \")")
_INTEGER = re.compile(r"(?<![\w.%@$-])(-?\d+|true|false|null|zeroinitializer)(?![\w.])")
_FLOAT = re.compile(r"(?<![\w.%@])(?:-?\d+\.\d+e[+-]\d+|0x[0-9A-F]+|f0x[0-9A-F]+)(?![\w.])")
_PHI_VALUE = re.compile(r"\[ ([^,\]]*),")
_LENGTH = re.compile(r", i(?:32|64) (\d+),")
_LABEL = re.compile(rf"label %({IDENTIFIER})")
_BLOCK = re.compile(rf"({IDENTIFIER}):")
_ARRAY = re.compile(r"\[(\d{1,9}) x (i\d{1,4}|ptr|float|double)\]")
_ALIGNED = re.compile(r"align (\d{1,5})")
_ARGUMENT = re.compile(
    r"(?:i\d+|ptr|float|double|half|x86_fp80|<[^<>]*>|\{[^{}]*\}|\[[^\[\]]*\])"
    r"(?: [a-z]\w*(?:\([^()]*\))?| \d+(?=[ ,])){0,16}? "
    rf"(?:(?P<number>-?\d+|true|false|null)(?=[,)])|(?P<value>%{IDENTIFIER})(?=[,)])"
    rf"|(?P<address>@{IDENTIFIER}(?=[,)])|getelementptr(?= ))|(?P<other>[^\s()]+)(?=[,)]))"
)

_BINARY = frozenset(
    [
        "add",
        "sub",
        "mul",
        "udiv",
        "sdiv",
        "urem",
        "srem",
        "shl",
        "lshr",
        "ashr",
        "and",
        "or",
        "xor",
        "fadd",
        "fsub",
        "fmul",
        "fdiv",
        "frem",
        "fneg",
    ]
)
_CASTS = frozenset(
    [
        "trunc",
        "zext",
        "sext",
        "fptoui",
        "fptosi",
        "uitofp",
        "sitofp",
        "fptrunc",
        "fpext",
        "ptrtoint",
        "inttoptr",
        "bitcast",
    ]
)
_FREE = ("llvm.lifetime.", "llvm.assume", "llvm.dbg.", "llvm.invariant.", "llvm.sideeffect", "llvm.donothing")
_FREE_TOO = ("llvm.experimental.noalias", "llvm.pseudoprobe", "llvm.expect", "llvm.launder", "llvm.strip")
_COPIES = ("llvm.memcpy", "llvm.memmove", "llvm.memset")
_WIDTHS = {"ptr": 8, "double": 8, "float": 4}
_FLOATS = frozenset(("float", "double", "half", "bfloat", "x86_fp80", "fp128"))
_SCALES = frozenset(("i8", "i16", "i32", "i64", "ptr", "float", "double"))
_SMALL_COPY: Final = 128
_MOST: Final = (1 << 31) - 1
_PARAMETER = re.compile(rf"(?<!\()(%{IDENTIFIER})(?=[,)]|$)")
_FLOAT_PARAMETER = re.compile(r"\b(?:float|double|half)(?: [a-z]+)* %")
_CONDITION = re.compile(rf"i1 (%{IDENTIFIER}),")


def operand_features(functions: Sequence[Function]) -> NDArray[np.int32]:
    """Compute the features of each function: one row per function, `OPERAND_NAMES` wide."""
    rows = np.zeros((len(functions), len(OPERAND_NAMES)), np.int32)
    for number, function in enumerate(functions):
        counts = _Reader().read(function)
        rows[number] = [min(counts[name], _MOST) for name in _MEANINGS]
    return rows


class _Reader:
    """Counts what one function has."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._defined: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._slots: set[str] = set()
        self._parameters: dict[str, int] = {}
        self._returned = ""
        self._uses: Counter[str] = Counter()
        self._by_memory: Counter[str] = Counter()
        self._by_branch: Counter[str] = Counter()
        self._by_arithmetic: Counter[str] = Counter()
        self._offsets: dict[str, str] = {}
        self._loads: list[str] = []
        self._compares: list[str] = []
        self._pointers: list[str] = []
        self._calls: list[int] = []
        self._blocks: dict[str, int] = {}
        self._branches: list[tuple[int, list[str]]] = []

    def read(self, function: Function) -> Counter[str]:
        """Read a function."""
        counts = self.counts
        self._signature(function.header)
        lines = function.body.split("\n")
        in_switch = False
        tail = False
        for at, line in enumerate(lines):
            if not line.startswith("  "):
                if block := _BLOCK.match(line):
                    self._blocks[block[1]] = at
                continue
            text = line.partition(", !")[0]
            values = _VALUE.findall(text)
            for value in values:
                self._used[value] = at
            self._uses.update(values)
            found = _LINE.match(text)
            if found is None or line.startswith("   "):
                in_switch = in_switch and "]" not in line
                counts["switch_cases"] += in_switch and "label" in line
                labels = _LABEL.findall(text)
                if labels and self._branches:
                    self._branches[-1][1].extend(labels)
                continue
            name, marker, opcode, rest = found.groups()
            if name is not None:
                self._defined[name] = at
                self._uses[name] -= 1
            if opcode == "ret" and self._returned:
                self._used[self._returned] = at
            counts["tail_calls"] += tail and opcode == "ret"
            in_switch = opcode == "switch" and "]" not in rest
            tail = False
            if opcode in ("call", "invoke", "callbr"):
                tail = self._call(at, rest, named=name is not None) and marker != ""
            else:
                self._instruction(opcode, rest, name)
                if opcode == "br":
                    self._by_branch.update(_CONDITION.findall(rest))
                elif opcode in _BINARY or opcode == "icmp":
                    self._by_arithmetic.update(values if name is None else values[1:])
                if name is not None and opcode == "load":
                    self._loads.append(name)
                elif name is not None and opcode in ("icmp", "fcmp"):
                    self._compares.append(name)
            if opcode in ("br", "switch", "invoke"):
                self._branches.append((at, _LABEL.findall(text)))
        counts["frame_calls"] = counts["real_calls"] - counts["tail_calls"]
        self._accesses()
        self._alive(len(lines))
        return counts

    def _signature(self, header: str) -> None:
        start = header.find("(", header.find("@"))
        inside = header[start + 1 : header.rfind(")")] if start >= 0 else ""
        parameters = _PARAMETER.findall(inside)
        self._defined |= dict.fromkeys(parameters, -1)
        self.counts["parameters"] = len(parameters)
        self.counts["varargs"] = int("..." in inside)
        self._parameters = {name: place for place, name in enumerate(parameters)}
        self._returned = parameters[0] if parameters and " sret(" in inside else ""
        self.counts["returns_memory"] = int(self._returned != "")
        self.counts["float_parameters"] = len(_FLOAT_PARAMETER.findall(inside))
        self.counts["returns_value"] = int(" void @" not in f" {header[: start + 1]}")

    def _instruction(self, opcode: str, rest: str, name: str | None) -> None:
        counts = self.counts
        if opcode in _BINARY:
            self._typed("arithmetic", rest)
            last = rest.rpartition(", ")[2]
            is_constant = self._constant("arithmetic", last)
            counts["shifts_by_values"] += opcode in ("shl", "lshr", "ashr") and not is_constant
            counts["multiplications_by_constants"] += opcode == "mul" and is_constant
            counts["divisions_by_constants"] += opcode[1:] in ("div", "rem") and opcode[0] != "f" and is_constant
            self._floats(rest)
        elif opcode == "load":
            self._typed("load", rest)
            self._pointers.append(rest.partition(", ptr ")[2].partition(",")[0])
        elif opcode == "store":
            self._typed("store", rest)
            value, _, place = rest.partition(", ptr ")
            self._constant("store", value.rpartition(" ")[2])
            self._pointers.append(place.partition(",")[0])
            counts["stores_of_globals"] += "@" in value
            self._floats(value)
        elif opcode in ("icmp", "fcmp"):
            self._typed("compare", rest)
            self._constant("compare", rest.rpartition(", ")[2])
            counts["global_values"] += "@" in rest
            self._floats(rest)
        elif opcode == "getelementptr":
            kind = self._address(rest)
            if name is not None:
                self._offsets[name] = kind
        elif opcode == "phi":
            self._typed("phi", rest)
            for value in _PHI_VALUE.findall(rest):
                counts["phi_values"] += 1
                self._constant("phi", value)
            counts["global_values"] += len(_GLOBAL.findall(rest))
            self._floats(rest)
        elif opcode == "select":
            chosen = rest.partition(", ")[2]
            self._typed("select", chosen)
            for part in chosen.split(", "):
                self._constant("select", part.rpartition(" ")[2])
            counts["global_values"] += len(_GLOBAL.findall(rest))
            self._floats(rest)
        elif opcode in _CASTS:
            self._cast(opcode, rest)
        elif opcode == "alloca":
            self._slot(rest)
            if name is not None:
                self._slots.add(name)
        elif opcode == "ret":
            self._constant("return", rest.rpartition(" ")[2])
            counts["global_values"] += "@" in rest
            self._floats(rest)

    def _typed(self, operation: str, rest: str) -> None:
        found = _TYPE.search(rest)
        kind = "other" if found is None else found[0]
        if kind in _FLOATS:
            kind = "fp"
        self.counts[f"{operation}_{kind if kind in _KINDS else 'other'}"] += 1

    def _constant(self, place: str, text: str) -> bool:
        """Count a constant; return False if it is none."""
        if not _INTEGER.fullmatch(text):
            return False
        if text in ("0", "null", "false", "zeroinitializer"):
            size = "zero"
        elif text == "true":
            size = "byte"
        elif len(text) > 19:
            size = "wide"
        else:
            number = int(text)
            fits = -(1 << 31) <= number < 1 << 32
            size = "byte" if -128 <= number < 128 else "word" if fits else "wide"
        self.counts[f"{place}_{size}"] += 1
        return True

    def _floats(self, text: str) -> None:
        self.counts["float_constants"] += sum(
            found not in ("0.000000e+00", "0x0000000000000000") for found in _FLOAT.findall(text)
        )

    def _accesses(self) -> None:
        """Count by what address memory is read and written, and what becomes of values."""
        counts = self.counts
        for pointer in self._pointers:
            if pointer in self._offsets:
                self._by_memory[pointer] += 1
                kind = self._offsets[pointer]
            elif "@" in pointer:
                kind = "global"
            else:
                kind = "stack" if pointer in self._slots else "plain"
            counts["global_accesses" if kind == "global" else f"access_{kind}"] += 1
        counts["addresses_taken"] = sum(self._uses[name] > self._by_memory[name] for name in self._offsets)
        counts["compare_values"] = sum(self._uses[name] > self._by_branch[name] for name in self._compares)
        counts["loads_used_once"] = sum(self._uses[name] == self._by_arithmetic[name] == 1 for name in self._loads)

    def _address(self, rest: str) -> str:
        """Count an address; return its kind."""
        counts = self.counts
        counts["global_values"] += "@" in rest
        element, _, places = rest.partition(", ptr ")
        indices = places.split(", ")[1:]
        kind = element.rpartition(" ")[2]
        last = indices[-1].rpartition(" ")[2] if indices else ""
        if len(indices) == 1 and kind == "i8" and _INTEGER.fullmatch(last):
            is_small = len(last) < 6 and -128 <= int(last) < 128
            counts["offset_zero" if last == "0" else "offset_byte" if is_small else "offset_word"] += 1
            return "global" if "@" in rest else "byte" if is_small else "word"
        if all("%" not in index for index in indices):
            counts["offset_field"] += 1
            return "byte"
        counts["index_scaled" if kind in _SCALES or "x i8]" in element else "index_other"] += 1
        return "index"

    def _cast(self, opcode: str, rest: str) -> None:
        source = _TYPE.search(rest)
        kind = "" if source is None else source[0]
        if opcode == "trunc" or (opcode == "zext" and kind == "i32") or opcode in ("ptrtoint", "inttoptr", "bitcast"):
            self.counts["casts_free"] += 1
        else:
            self.counts["casts_of_bits" if kind == "i1" else "casts_other"] += 1

    def _slot(self, rest: str) -> None:
        self.counts["stack_slots"] += 1
        array, aligned = _ARRAY.match(rest), _ALIGNED.search(rest)
        if array is not None:
            width = _WIDTHS.get(array[2]) or -(-int(array[2][1:]) // 8)
            self.counts["stack_bytes"] += int(array[1]) * width
        elif aligned is not None:
            self.counts["stack_bytes"] += int(aligned[1])

    def _call(self, at: int, rest: str, *, named: bool) -> bool:
        """Count a call; return True if it is one in the machine code, too."""
        counts = self.counts
        found = _CALLEE.search(rest)
        callee = "" if found is None else found[1]
        if callee == "asm":
            counts["inline_assembly"] += len(rest)
            return False
        plain = callee[1:].strip('"')
        inside = rest[found.end() :] if found is not None else ""
        if plain.startswith("llvm."):
            if plain.startswith(_FREE) or plain.startswith(_FREE_TOO):
                counts["free_intrinsics"] += 1
                return False
            if not plain.startswith(_COPIES):
                counts["other_intrinsics"] += 1
                self._floats(inside)
                return False
            length = _LENGTH.search(inside)
            is_small = length is not None and len(length[1]) < 6 and int(length[1]) <= _SMALL_COPY
            counts["copies_small" if is_small else "copies_other"] += 1
            counts["global_values"] += "@" in inside
            if is_small:
                return False
        counts["real_calls"] += 1
        counts["indirect_calls"] += callee.startswith("%")
        counts["results"] += named
        self._calls.append(at)
        arguments = 0
        for argument in _ARGUMENT.finditer(inside):
            arguments += 1
            if argument["number"] is not None:
                self._constant("argument", argument["number"])
            value = argument["value"]
            counts["argument_values"] += value is not None
            if value in self._parameters:
                is_there = self._parameters[value] == arguments - 1
                counts["arguments_in_place" if is_there else "arguments_of_parameters"] += 1
            counts["argument_addresses"] += argument["address"] is not None
        counts["arguments"] += arguments
        counts["many_arguments"] += max(0, arguments - 6)
        self._floats(inside)
        return True

    def _alive(self, lines: int) -> None:
        """Count the values that are alive across calls, and at once."""
        counts = self.counts
        starts = sorted(self._blocks.values())
        for at, labels in self._branches:
            places = [self._blocks.get(label, -1) for label in labels]
            following = bisect_left(starts, at)
            counts["jumps"] += following == len(starts) or starts[following] not in places
        names = [name for name in self._defined if name not in self._slots]
        if not names:
            return
        begin = np.array([self._defined[name] for name in names])
        end = np.array([max(self._used.get(name, -1), self._defined[name]) for name in names])
        for head, back in sorted(self._loops(), reverse=True):
            end = np.where((begin < head) & (end >= head) & (end < back), back, end)
        events = np.zeros(lines + 2, np.int64)
        np.add.at(events, begin + 1, 1)
        np.add.at(events, end + 1, -1)
        alive = np.cumsum(events)  # at a line: defined before it, and used in it or after it
        counts["most_values"] = int(alive.max())
        if not self._calls:
            return
        calls = np.array(self._calls)
        first = np.searchsorted(calls, begin, side="right")
        across = np.maximum(np.searchsorted(calls, end) - first, 0)
        counts["values_across_calls"] = int((across > 0).sum())
        counts["sum_across_calls"] = int(across.sum())
        crossing = np.zeros(len(calls) + 1, np.int64)
        np.add.at(crossing, first, across > 0)
        np.add.at(crossing, first + across, -(across > 0).astype(np.int64))
        counts["most_across_calls"] = int(np.cumsum(crossing).max())

    def _loops(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last line of what a branch back makes a loop."""
        last: dict[int, int] = {}
        for at, labels in self._branches:
            for label in labels:
                head = self._blocks.get(label, at)
                if head < at:
                    last[head] = max(last.get(head, 0), at)
        yield from last.items()
