"""A module's text, reduced to the parts that the target's costs of its instructions depend on.

``print<cost-model>`` (``lib/Analysis/CostModel.cpp``) prints each instruction separately, with its cost. For each one
the printer renumbers all unnamed values of the function and, if it meets metadata or attributes of a call, all of
the module's; and it inspects every global for its comdat. So it is quadratic: for an amalgamation of 193 000
instructions in 2 471 functions with 4 300 globals opt takes 21 s if only values have names, and 5 s with these modules.

Here the same costs come from several small modules. Each holds some of the functions, whole, and the other symbols
that these name, reduced:

- another function is its first line with ``unreachable`` for a body: so it keeps its linkage, which costs depend on;
- a global variable has ``zeroinitializer``;
- there is no metadata, no comdat, no debug information, and no attribute at calls except those that could matter.

opt's ``instnamer`` names the values. The costs are the same because they are computed from opcodes, types, operands and
users of an instruction, the function's attributes and the target (``TargetTransformInfoImplBase::getInstructionCost``),
all of which are kept; tests compare them with those of the whole module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mlgo_corpus.formats.ir.text import DEBUG_LINES, IDENTIFIER, Function, Module
from mlgo_corpus.formats.words import word_set

_PRINT_PROPERTIES = "print<func-properties>"
_PRINT_COSTS = "print<cost-model>"

OPT_OPTIONS: Final = (
    *("-enable-detailed-function-properties", "-cost-kind=code-size"),
    *("-disable-verify", "-disable-output"),
)
"""opt's options for these modules. The verifier is disabled, because it may reject a module without its metadata."""

# The most instructions times globals in a module: the printer handles 200 million in a second, and opt takes 20 ms to
# start.
_WORK_PER_MODULE = 8_000_000
_MOST_MODULES = 16

_GLOBAL = re.compile(rf"^@({IDENTIFIER}) = (.*)$", re.MULTILINE)
_DECLARATION = re.compile(rf"^declare (?:![\w.]+ !\d+ )*(.*@({IDENTIFIER})\(.*)$", re.MULTILINE)
_DECLARED = re.compile(r"^declare (?:![\w.]+ !\d+ )+", re.MULTILINE)
# The first characters of lines with types, globals, declarations, groups of attributes and the target.
_WHOLE = frozenset("%@dat")
_NAMED = re.compile(rf'@({IDENTIFIER})|"[^"]*"')
_KEPT_LINES = re.compile(r"^(?:target |%|attributes #).*$", re.MULTILINE)
_ATTACHMENTS = re.compile(r"(?:,? ![\w.]+ ![0-9]+)+(?= \{$|$)", re.MULTILINE)
_METADATA_OPERAND = re.compile(r"\bmetadata !(?:[0-9]+|DIArgList\([^()]*\)|DIExpression\([^()]*\))")
_COMDAT = re.compile(rf",? comdat(?:\(\${IDENTIFIER}\))?(?=[ ,]|$)")
_VARIABLE = re.compile(r"(?:[^\"]*? )?(?:global|constant) ")
_TRAILER = re.compile(
    r'(?:, (?:section "[^"]*"|partition "[^"]*"|align \d+|code_model "[^"]*"|no_sanitize\w*|\w*sanitize\w*))*$'
)
_CALL_GROUP = re.compile(r"\) #(\d+)(?=$| \[|\n)", re.MULTILINE)


# Attributes of calls that no target's costs depend on.
_HARMLESS = word_set(
    """
    nounwind noreturn willreturn nocallback nofree nosync memory cold hot mustprogress noinline alwaysinline nomerge
    builtin allockind allocsize alloc-family returns_twice convergent noduplicate speculatable nobuiltin
    nocreateundeforpoison readnone readonly
    """
)


@dataclass(frozen=True, slots=True)
class _AnalysisRun:
    """A module to run opt on, for properties or costs of its functions.

    Attributes:
        passes: the passes to run, for ``-passes=``.
        text: the module.
        properties: whether the passes print all functions' properties.
        costs: the positions of the functions whose costs the passes print, before any others'.
    """

    passes: str
    text: str
    properties: bool
    costs: tuple[int, ...]


def analysis_runs(module: Module, *, costs: bool = True) -> Iterator[_AnalysisRun]:
    """Yield modules that together yield all functions' properties and, if ``costs`` is true, costs.

    The first is always the one for the properties; for a small module it is also the one for the costs.
    """
    if not module.functions:
        return
    source = _Source(module)
    everything = tuple(range(len(module.functions)))
    lines = [function.body.count("\n") for function in module.functions]
    count = 1 + sum(lines) * source.globals // _WORK_PER_MODULE
    if not costs or count == 1:
        passes = (
            f"function(instnamer,{_PRINT_PROPERTIES},{_PRINT_COSTS})" if costs else f"function({_PRINT_PROPERTIES})"
        )
        yield _AnalysisRun(passes, source.whole(), properties=True, costs=everything if costs else ())
        return
    yield _AnalysisRun(f"function({_PRINT_PROPERTIES})", source.whole(), properties=True, costs=())
    passes = f"function(instnamer,{_PRINT_COSTS})"
    share = sum(lines) / min(count, _MOST_MODULES)
    chunk: list[int] = []
    size = 0
    for number, length in enumerate(lines):
        chunk.append(number)
        size += length
        if size >= share:
            yield _AnalysisRun(passes, source.text(chunk), properties=False, costs=tuple(chunk))
            chunk, size = [], 0
    if chunk:
        yield _AnalysisRun(passes, source.text(chunk), properties=False, costs=tuple(chunk))


class _Source:
    """The text that modules are made of: the definition or declaration of each name."""

    def __init__(self, module: Module) -> None:
        self._functions = module.functions
        self._preamble = module.preamble
        self._kept = "\n".join(_KEPT_LINES.findall(module.preamble))
        self._harmless = {group for group, names in module.attributes.items() if _HARMLESS.issuperset(names)}
        self._texts: dict[str, str] = {}
        for name, rest in _GLOBAL.findall(module.preamble):
            self._texts[name] = f"@{name} = {_without_value(_COMDAT.sub('', _ATTACHMENTS.sub('', rest)))}"
        for header, name in _DECLARATION.findall(module.preamble):
            self._texts[name] = f"declare {_ATTACHMENTS.sub('', header)}"
        self._headers = [_COMDAT.sub("", _ATTACHMENTS.sub("", f.header + " {")) for f in module.functions]
        self._own = {_name_in(function): number for number, function in enumerate(module.functions)}
        for name, number in self._own.items():
            self._texts[name] = f"define {self._headers[number]}\n  unreachable\n}}"
        self.globals = len(self._texts)

    def text(self, numbers: Sequence[int]) -> str:
        """Return a module with some of the functions, and the symbols that they name."""
        parts = [f"define {self._headers[n]}\n{self._body(self._functions[n])}}}" for n in numbers]
        chosen = set(numbers)
        found: set[str] = set()
        others = []
        new = _names(parts)
        while new:
            found |= new
            texts = [self._texts[name] for name in new if name in self._texts and self._own.get(name) not in chosen]
            others += texts
            new = _names(texts) - found
        return "\n".join([self._kept, *parts, *sorted(others), ""])

    def whole(self) -> str:
        """Return the whole module without metadata, comdats and attributes at calls that do not matter."""
        own = [f"define {header}\n{self._body(f)}}}" for header, f in zip(self._headers, self._functions, strict=True)]
        lines = (_COMDAT.sub("", line) if line[:1] == "@" else line for line in self._preamble.split("\n"))
        preamble = _ATTACHMENTS.sub(
            "", _DECLARED.sub("declare ", "\n".join(line for line in lines if line[:1] in _WHOLE))
        )
        return "\n".join([preamble, *own, ""])

    def _body(self, function: Function) -> str:
        body = _ATTACHMENTS.sub("", DEBUG_LINES.sub("", function.body))
        if "metadata !" in body:
            body = _METADATA_OPERAND.sub("metadata !{}", body)
        return _CALL_GROUP.sub(lambda group: ")" if int(group[1]) in self._harmless else group[0], body)


def _name_in(function: Function) -> str:
    found = re.search(rf"@({IDENTIFIER})\(", function.header)
    return found[1] if found else ""


def _names(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in _NAMED.findall(text)} - {""}


def _without_value(rest: str) -> str:
    """Return the text after ``@name =`` without a variable's initial value; an alias is unchanged."""
    variable = _VARIABLE.match(rest)
    if variable is None or re.match(r"external |extern_weak ", rest):
        return rest
    trailer = _TRAILER.search(rest)
    end = _type_end(rest, variable.end())
    return f"{rest[:end]} zeroinitializer{trailer[0] if trailer else ''}"


def _type_end(text: str, begin: int) -> int:
    """Find the end of the type that begins at ``begin``: a blank or comma outside brackets and quotes."""
    depth = 0
    place = begin
    while place < len(text):
        sign = text[place]
        if sign == '"':
            place = text.index('"', place + 1)
        elif sign in "[{(<":
            depth += 1
        elif sign in "]})>":
            depth -= 1
        elif sign in " ," and depth == 0 and not text.startswith(" addrspace(", place):
            return place
        place += 1
    return len(text)
