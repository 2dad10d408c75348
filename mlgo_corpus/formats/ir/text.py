r"""LLVM's textual IR, as its own printer writes it: the functions of a module and their contents.

The printer's output (``lib/IR/AsmWriter.cpp``, LLVM 17 to 22) is much narrower than what the parser accepts, and is
read here by its layout:

========================================  ==========================================================================
``define … {`` to ``}``                   a function with a body, each in the first column
``12:``, ``for.body:``, ``"a b":``        in the first column, a basic block; the first has no line if it has no name
two blanks, then no blank or ``]``        an instruction's first line: ``%name = opcode …`` or ``opcode …``
more blanks                               its further lines (``switch``, ``landingpad``, ``invoke``), and the debug
                                          records of LLVM 19 (``#dbg_value(…)``), which are no instructions
``label %name``                           outside quotes, a successor of the block (``phi`` names blocks without it)
``call … @llvm.dbg.value(``               debug information as an instruction, and ``@llvm.pseudoprobe``: both are left
                                          out as `BasicBlock::instructionsWithoutDebug` leaves them out
========================================  ==========================================================================

Quoted names and strings contain no quotes and no line breaks: those are written ``\22`` and ``\0A``.

All text is read as Latin-1, so that any bytes are valid; names are decoded from UTF-8.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Final

from mlgo_corpus.errors import FormatError

ENCODING: Final = "latin-1"

IDENTIFIER: Final = r'(?:"[^"]*"|[-\w$.]+)'
"""A name, quoted or not, after its ``%``, ``@`` or ``$``."""

_FUNCTION = re.compile(r"^define ([^\n]*) \{\n(.*?)^\}$", re.MULTILINE | re.DOTALL)
# The opcode of an instruction that is not debug information; a call may have a marker in the opcode's place.
_OPCODE = re.compile(
    rf"^  (?:%{IDENTIFIER} = )?"
    r"(?!(?:tail )?call void @llvm\.(?:dbg\.(?:declare|value|label|assign)|pseudoprobe)\()(\w+)",
    re.MULTILINE,
)
_MARKERS = {"tail": "call", "musttail": "call", "notail": "call"}
# A block, or a line that has successors. Quoted strings before or between them are skipped.
_BLOCK = re.compile(rf"^({IDENTIFIER}):", re.MULTILINE)
_SUCCESSOR = re.compile(rf'\blabel %({IDENTIFIER})|"[^"]*"')
_ATTRIBUTES = re.compile(r"^attributes #(\d+) = \{ (.*) \}$", re.MULTILINE)
_ATTRIBUTE = re.compile(r'"((?:[^"])*)"(?:="([^"]*)")?|([a-z_]+)(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|=\d+)?')
_TRIPLE = re.compile(r'^target triple = "([^"]*)"$', re.MULTILINE)
_LAYOUT = re.compile(r'^target datalayout = "([^"]*)"$', re.MULTILINE)
_NAME = re.compile(rf"@({IDENTIFIER})\(")
_PARENTHESES = re.compile(r'[()]|"[^"]*"')
_GROUP = re.compile(r"(?<!\S)#(\d+)")
_SECTION = re.compile(r'\bsection "([^"]*)"')
_COMDAT = re.compile(rf"\bcomdat(?:\(\$({IDENTIFIER})\))?(?![\w-])")
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2})")
_STRINGS = re.compile(r'"[^"]*"')

LINKAGES: Final = (
    *("external", "available_externally", "linkonce", "linkonce_odr", "weak", "weak_odr"),
    *("appending", "internal", "private", "extern_weak", "common"),
)
"""The printed names of llvm/IR/GlobalValue.h's kinds of linkage."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function with a body.

    Attributes:
        name: as in memory, without quotes.
        header: its first line, without ``define`` and the brace.
        body: the lines between the braces.
        linkage: one of `LINKAGES`.
        comdat: the comdat's name, empty for none.
        section: the section's name, empty for none.
        attributes: the number of its attribute group, None for none.
    """

    name: str
    header: str
    body: str
    linkage: str
    comdat: str
    section: str
    attributes: int | None


@dataclass(frozen=True, slots=True)
class Module:
    """A module's functions with bodies, and the properties of the whole module.

    Attributes:
        functions: in the module's order.
        attributes: for each group, the attributes' names with their values; the value is empty if there is none.
        triple, data_layout: of the target.
        preamble: all lines outside of functions before the metadata: types, globals, declarations, attribute groups.
    """

    functions: tuple[Function, ...]
    attributes: dict[int, dict[str, str]]
    triple: str
    data_layout: str
    preamble: str


def parse_module(text: str) -> Module:
    """Find the functions of a module's text.

    Raises:
        FormatError: a function's first line cannot be read.
    """
    functions = []
    outside = []
    end = 0
    for found in _FUNCTION.finditer(text):
        functions.append(_function(found))
        outside.append(text[end : found.start()])
        end = found.end()
    outside.append(text[end:])
    preamble = "".join(outside)
    # Metadata is at the end, or on lines of its own: no other line begins with an exclamation mark.
    preamble = re.sub(r"^!.*\n", "", preamble, flags=re.MULTILINE)
    triple, layout = _TRIPLE.search(preamble), _LAYOUT.search(preamble)
    return Module(
        tuple(functions),
        {int(number): parse_attributes(words) for number, words in _ATTRIBUTES.findall(preamble)},
        triple[1] if triple else "",
        layout[1] if layout else "",
        preamble,
    )


def _function(found: re.Match[str]) -> Function:
    header, body = found.groups()
    name = _NAME.search(header)
    if name is None:
        raise FormatError(f"expected a function's name in {header[:80]!r}", offset=found.start())
    depth = 0
    tail = ""
    for sign in _PARENTHESES.finditer(header, name.end() - 1):
        depth += {"(": 1, ")": -1}.get(sign[0], 0)
        if depth == 0:
            tail = header[sign.end() :]
            break
    else:
        raise FormatError(f"the arguments of {name[1]} do not end", offset=found.start())
    first = header.split(" ", 1)[0]
    group, section = _GROUP.search(tail), _SECTION.search(tail)
    comdat = _COMDAT.search(_STRINGS.sub("", tail)) and _COMDAT.search(tail)
    unquoted = unquote(name[1])
    return Function(
        unquoted,
        header,
        body,
        first if first in LINKAGES else "external",
        "" if not comdat else unquote(comdat[1]) if comdat[1] else unquoted,
        unquote(f'"{section[1]}"') if section else "",
        int(group[1]) if group else None,
    )


def parse_attributes(words: str) -> dict[str, str]:
    """Read the attributes of a group: ``noinline``, ``memory(none)``, ``"target-cpu"="x86-64"``."""
    found = {}
    for text, value, name in _ATTRIBUTE.findall(words):
        found[unquote(f'"{text}"') if text else name] = unquote(f'"{value}"') if text else ""
    return found


def unquote(name: str) -> str:
    """Return a name as in memory; bytes that are not UTF-8 become lone surrogates, as in Python's file names."""
    if name[:1] == '"':
        name = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), name[1:-1])
    return name if name.isascii() else name.encode(ENCODING).decode("utf-8", "surrogateescape")


def opcodes(body: str) -> list[str]:
    """List the opcodes of a function's instructions, in order, without debug information."""
    return [_MARKERS.get(word, word) for word in _OPCODE.findall(body)]


def control_flow(body: str) -> list[list[int]]:
    """Return the successors of each basic block, by position; the first block is the entry.

    A successor that is named twice is listed twice.

    Raises:
        FormatError: a successor does not exist.
    """
    found = list(_BLOCK.finditer(body))
    numbers = {match[1]: number for number, match in enumerate(found)}
    begins = [match.end() for match in found]
    if not found or found[0].start() > 0:  # the first block's name is not printed, and nothing can branch to it
        numbers = {name: number + 1 for name, number in numbers.items()}
        begins.insert(0, 0)
    ends = [match.start() for match in found[len(found) - len(begins) + 1 :]] + [len(body)]
    try:
        return [
            [numbers[name] for name in _SUCCESSOR.findall(body, begin, end) if name]
            for begin, end in zip(begins, ends, strict=True)
        ]
    except KeyError as missing:
        raise FormatError(f"a branch to block {missing.args[0]}, which does not exist") from None


# --- digests of bodies

_ATTACHMENTS = re.compile(r"(?:, ![\w.]+ ![0-9]+)+$", re.MULTILINE)
DEBUG_LINES: Final = re.compile(
    r"^    #dbg_.*\n|^  (?:tail )?call void @llvm\.(?:dbg\.\w+|pseudoprobe)\(.*\n", re.MULTILINE
)
_COMMENT = re.compile(r" +; preds = .*$|^; <label>.*$", re.MULTILINE)
_NAMES = re.compile(rf'(^{IDENTIFIER}(?=:))|"[^"]*"|@llvm\.[\w.]+|[%@]{IDENTIFIER}| ?[!#]\w+', re.MULTILINE)


def body_digest(function: Function) -> bytes:
    """Return a digest of a function's body that does not depend on names: SHA-256 of its instructions' text.

    Debug information, all metadata and attributes are left out. Each name (of values, blocks, types and globals) is
    replaced by the number of its first use, except for the names of intrinsics. So two functions with the same digest
    have the same instructions, and belong on the same side of a split.
    """
    text = _COMMENT.sub("", _ATTACHMENTS.sub("", DEBUG_LINES.sub("", function.body)))
    numbers: defaultdict[str, str] = defaultdict(map(str, count()).__next__)

    def renamed(match: re.Match[str]) -> str:
        name = match[0]
        if match[1] is not None:
            return numbers["%" + name]
        if name[0] in " !#":
            return ""
        return name if name[0] == '"' or name.startswith("@llvm.") else name[0] + numbers[name]

    return sha256(_NAMES.sub(renamed, text).encode(ENCODING)).digest()
