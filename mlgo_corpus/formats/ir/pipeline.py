"""Pipelines of LLVM passes as text: where inlining begins and ends, and how a compiler can print the module there.

``clang -cc1 COMMAND -x ir M.bc -mllvm -print-pipeline-passes`` prints the pipeline of this very command and stops; the
text that ``opt -passes='default<Oz>'`` prints is slightly different. ``opt -passes=TEXT`` runs such a text::

    pipeline := element ("," element)*
    element  := name ["<" options ">"] ["(" pipeline ")"]        function<eager-inv>(sroa<modify-cfg>,early-cse<>)

The snapshot's place
--------------------
Features are taken right after the last element of the top level in which functions are inlined (`find_point`):
``cgscc(devirt<4>(inline,...))`` from -O1 on, ``always-inline`` at -O0. Without such an element
(``-disable-llvm-passes``, as in commands that the driver's ``-fembed-bitcode`` embeds) nothing is inlined, and the
snapshot is the input module. `PRE_INLINING` is right before the first such element.

How it is taken
---------------
The compile that makes the object prints the snapshot itself: ``-mllvm -print-before=PASS``, or ``-print-after=PASS``,
prints the whole module to stderr if PASS is a module pass. So the pass must come right after the inlining
(``deadargelim`` at all levels of LLVM 17 to 22 that inline) or be the inlining (``always-inline``). Printing does not
change the compile.

Passing the text to ``opt -passes=`` is another way, and not exact: LLVM does not print all options of its passes, which
then get their defaults. In LLVM 19.1.7 and 22.1.8 these are the inliner's threshold (250 at -O3, 50 at -Os, 5 at -Oz,
else 225), ``loop-unroll-full``'s level and whether only marked loops are unrolled (-O1), ``ipsccp``'s specialisation
of functions, ``coro-split``'s smaller frames, and that the first ``vector-combine`` only does early folds, which no
text can express. From -Os to -O3, the objects of all modules of Lua and zlib were the same, those of sqlite were not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mlgo_corpus.errors import FormatError, UnsupportedError

POST_INLINING: Final = "post-inlining"
PRE_INLINING: Final = "pre-inlining"
SNAPSHOTS: Final = (POST_INLINING, PRE_INLINING)
BEFORE: Final = "before"
AFTER: Final = "after"

# llvm/lib/Passes/PassRegistry.def: the passes that inline, by heuristic, by advice or by attribute.
_INLINERS = frozenset(
    {"inline", "module-inline", "always-inline", "inliner-wrapper", "inliner-wrapper-no-mandatory-first"}
    | {"scc-oz-module-inliner"}
)
# Names of elements that only compute or invalidate analyses; the compiler prints nothing at these.
_NO_PASSES = frozenset({"require", "invalidate"})

_NAME = re.compile(r"[\w:.+-]+(?: [\w:.+-]+)*")
_PASS = re.compile(r"(?:^|[(,])([\w:.+-]+)")
_OPTIONS = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of a pipeline's top level: its text, and the names of all passes in it, in order."""

    text: str
    passes: tuple[str, ...]

    @property
    def inlines(self) -> bool:
        """Whether the element may inline functions."""
        return not _INLINERS.isdisjoint(self.passes)

    @property
    def name(self) -> str:
        """The element's own name, without options and passes inside."""
        return self.passes[0]

    @property
    def is_module_pass(self) -> bool:
        """Whether it is a single module pass, before or after which a compiler can print the module."""
        return len(self.passes) == 1 and "(" not in self.text and self.name not in _NO_PASSES


@dataclass(frozen=True, slots=True)
class Point:
    """The place at which a snapshot is printed.

    Attributes:
        where: `BEFORE` or `AFTER`.
        name: of the pass.
        earlier: the number of earlier runs of the pass, at each of which the module is printed too.
    """

    where: str
    name: str
    earlier: int = 0

    @property
    def option(self) -> str:
        """LLVM's option that prints the snapshot."""
        return f"-print-{self.where}={self.name}"


def parse_pipeline(text: str) -> tuple[_Element, ...]:
    """Split a pipeline's text into the elements of its top level.

    Raises:
        FormatError: brackets do not match, or an element is empty.
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
                raise FormatError(f"unmatched {sign!r} in a pipeline's text", offset=place)
        elif sign == "," and not expected:
            elements.append(_element(text, begin, place))
            begin = place + 1
    if expected:
        raise FormatError(f"a pipeline's text ends before {expected[-1]!r}", offset=len(text))
    return (*elements, _element(text, begin, len(text)))


def _element(text: str, begin: int, end: int) -> _Element:
    element = text[begin:end]
    if not _NAME.match(element):
        raise FormatError(f"expected a pass's name, found {element[:20]!r}", offset=begin)
    bare = element
    while (shorter := _OPTIONS.sub("", bare)) != bare:
        bare = shorter
    return _Element(element, tuple(_PASS.findall(bare)))


def find_point(elements: Sequence[_Element], snapshot: str = POST_INLINING) -> Point | None:
    """Find the pass at which a compiler can print the snapshot, see the module's docstring.

    Returns:
        None if nothing is inlined: the snapshot is the input module.

    Raises:
        UnsupportedError: there is inlining, but no module pass directly at the snapshot's place.
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
    raise UnsupportedError(f"the pipeline has no module pass directly at the place of a {snapshot} snapshot")


_DUMP = re.compile(r"^; \*\*\* IR Dump (?:Before|After) .*$", re.MULTILINE)


def find_dump(text: str, point: Point) -> str:
    """Return the snapshot in a compiler's output.

    Raises:
        FormatError: the output does not have it.
    """
    heads = list(_DUMP.finditer(text))
    if point.earlier >= len(heads):
        raise FormatError(f"expected dump {point.earlier + 1} of {point.name}, found {len(heads)} dumps")
    end = heads[point.earlier + 1].start() if point.earlier + 1 < len(heads) else len(text)
    return text[heads[point.earlier].end() : end]
