"""Pipelines of LLVM passes as text: where inlining begins and ends, and how a compiler shows the module there.

``clang -cc1 COMMAND -x ir M.bc -mllvm -print-pipeline-passes`` prints the pipeline of this very command and stops; what
``opt -passes='default<Oz>'`` prints is a little different. ``opt -passes=TEXT`` runs such a text::

    pipeline := element ("," element)*
    element  := name ["<" options ">"] ["(" pipeline ")"]        function<eager-inv>(sroa<modify-cfg>,early-cse<>)

The snapshot's place
--------------------
Features are taken right after the last element of the top level in which functions are inlined (`find_point`):
``cgscc(devirt<4>(inline,...))`` from -O1 on, ``always-inline`` at -O0. Without such an element
(``-disable-llvm-passes``, as in what the driver's ``-fembed-bitcode`` leaves) nothing is ever inlined, and the snapshot
is the module as it was given.
`PRE_INLINING` is right before the first such element.

How it is taken
---------------
The compile that makes the object prints the snapshot itself: ``-mllvm -print-before=PASS``, or ``-print-after=PASS``,
prints the whole module to stderr where PASS is a module pass. So the pass must stand right behind the inlining
(``deadargelim`` at all levels of LLVM 17 to 22 that inline) or be it (``always-inline``), and printing changes nothing.

To give the text to ``opt -passes=`` is another way, and not exact: LLVM does not print all options of its passes, which
then get their defaults. Of LLVM 19.1.7 and 22.1.8 these are the inliner's threshold (250 at -O3, 50 at -Os, 5 at -Oz,
else 225), ``loop-unroll-full``'s level and whether only marked loops are unrolled (-O1), ``ipsccp``'s specialisation
of functions, ``coro-split``'s smaller frames, and that the first ``vector-combine`` only does early folds, which no
text can say. The objects of all modules of Lua and zlib came out the same from -Os to -O3, those of sqlite did not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.commands.options import parse_cc1

POST_INLINING: Final = "post-inlining"
PRE_INLINING: Final = "pre-inlining"
SNAPSHOTS: Final = (POST_INLINING, PRE_INLINING)
BEFORE: Final = "before"
AFTER: Final = "after"

# llvm/lib/Passes/PassRegistry.def: what inlines, whether by heuristic, by advice or by attribute.
_INLINERS = frozenset(
    {"inline", "module-inline", "always-inline", "inliner-wrapper", "inliner-wrapper-no-mandatory-first"}
    | {"scc-oz-module-inliner"}
)
# Their names stand for what prepares or forgets analyses, which nothing is printed at.
_NO_PASSES = frozenset({"require", "invalidate"})

_NAME = re.compile(r"[\w:.+-]+(?: [\w:.+-]+)*")
_PASS = re.compile(r"(?:^|[(,])([\w:.+-]+)")
_OPTIONS = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a pipeline's top level: its text, and the names of all passes in it, in order."""

    text: str
    passes: tuple[str, ...]

    @property
    def inlines(self) -> bool:
        """Whether functions may be inlined in it."""
        return not _INLINERS.isdisjoint(self.passes)

    @property
    def name(self) -> str:
        """Its own name, without options and passes inside."""
        return self.passes[0]

    @property
    def is_module_pass(self) -> bool:
        """Whether it is one pass over a module, which a compiler can print the module before or after."""
        return len(self.passes) == 1 and "(" not in self.text and self.name not in _NO_PASSES


@dataclass(frozen=True, slots=True)
class Point:
    """Where a snapshot is printed.

    Attributes:
        where: `BEFORE` or `AFTER`.
        name: of the pass.
        earlier: how often the pass runs before that, each time printing the module too.
    """

    where: str
    name: str
    earlier: int = 0

    @property
    def option(self) -> str:
        """LLVM's option that prints it."""
        return f"-print-{self.where}={self.name}"


def parse_pipeline(text: str) -> tuple[Element, ...]:
    """Split a pipeline's text into the elements of its top level.

    Raises:
        FormatError: brackets that do not match, or an empty element.
    """
    text = text.strip()
    if not text:
        return ()
    elements = []
    expected: list[str] = []
    begin = 0
    for place, sign in enumerate(text):
        if sign in "(<":
            expected.append(")" if sign == "(" else ">")
        elif sign in ")>":
            if not expected or expected.pop() != sign:
                raise FormatError(f"{sign!r} closes nothing in a pipeline's text", offset=place)
        elif sign == "," and not expected:
            elements.append(_element(text, begin, place))
            begin = place + 1
    if expected:
        raise FormatError(f"a pipeline's text ends before {expected[-1]!r}", offset=len(text))
    return (*elements, _element(text, begin, len(text)))


def _element(text: str, begin: int, end: int) -> Element:
    element = text[begin:end]
    if not _NAME.match(element):
        raise FormatError(f"expected a pass's name, found {element[:20]!r}", offset=begin)
    bare = element
    while (shorter := _OPTIONS.sub("", bare)) != bare:
        bare = shorter
    return Element(element, tuple(_PASS.findall(bare)))


def find_point(elements: Sequence[Element], snapshot: str = POST_INLINING) -> Point | None:
    """Find the pass at which a compiler can print the snapshot, see the module's docstring.

    Returns:
        None where nothing is inlined: the snapshot is the module as it was given.

    Raises:
        UnsupportedError: there is inlining, but no module pass stands right at the snapshot's place.
    """
    inlining = [position for position, element in enumerate(elements) if element.inlines]
    if not inlining:
        return None
    if snapshot == PRE_INLINING:
        choices = ((inlining[0], BEFORE), (inlining[0] - 1, AFTER))
    else:
        choices = ((inlining[-1], AFTER), (inlining[-1] + 1, BEFORE))
    for position, where in choices:
        if 0 <= position < len(elements) and elements[position].is_module_pass:
            name = elements[position].name
            return Point(where, name, sum(element.passes.count(name) for element in elements[:position]))
    raise UnsupportedError(f"no module pass stands right at the place of a {snapshot} snapshot")


_DUMP = re.compile(r"^; \*\*\* IR Dump (?:Before|After) .*$", re.MULTILINE)


def find_dump(text: str, point: Point) -> str:
    """Take the snapshot out of what the compiler printed.

    Raises:
        FormatError: it is not there.
    """
    heads = list(_DUMP.finditer(text))
    if point.earlier >= len(heads):
        raise FormatError(f"expected dump {point.earlier + 1} of {point.name}, found {len(heads)} dumps")
    end = heads[point.earlier + 1].start() if point.earlier + 1 < len(heads) else len(text)
    return text[heads[point.earlier].end() : end]


_LEVELS = {"": "2", "4": "3", "fast": "3", "g": "1"}


def optimisation_level(options: Sequence[str]) -> str:
    """Give a command's level: ``0``, ``1``, ``2``, ``3``, ``s`` or ``z``; without ``-O`` it is ``0``."""
    level = "0"
    for option in parse_cc1(options):
        if option.name in ("-O", "-O="):
            value = "".join(option.values)
            level = _LEVELS.get(value, value)
        elif option.name == "-Ofast":
            level = "3"
    return level
