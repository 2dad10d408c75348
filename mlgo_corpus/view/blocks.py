"""The blocks of a page. Their text is plain: the code that writes the page escapes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Headline:
    """A key figure: its name, its value, and a short note."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class CallOut:
    """A finding and the advice on it. ``grave`` findings are likely to spoil training."""

    text: str
    advice: str
    grave: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a caption; all columns except the first ``left`` have numbers.

    ``shares`` adds a column of bars: it has their lengths, from -1 to 1, row by row.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    shares: tuple[float, ...] = ()
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart: a Vega-Lite specification, its title and explanation, and its numbers as a table."""

    kind: ClassVar[str] = "figure"
    name: str
    title: str
    caption: str
    alt: str
    spec: dict[str, Any]
    table: Table
    half: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle of a treemap, in percent of its parent."""

    label: str
    tip: str
    left: float
    top: float
    width: float
    height: float
    hue: int = 0
    tiles: tuple[Tile, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeMap:
    """Nested rectangles of folders, by size."""

    kind: ClassVar[str] = "treemap"
    title: str
    caption: str
    alt: str
    tiles: tuple[Tile, ...]
    table: Table


@dataclass(frozen=True, slots=True)
class SmallBar:
    """A bar of a small chart, in a box of 100 by 40."""

    x: float
    width: float
    height: float
    tip: str


@dataclass(frozen=True, slots=True)
class FeatureCard:
    """One feature: its name, meaning, distribution, and its oddities."""

    name: str
    meaning: str
    scale: str
    bars: tuple[SmallBar, ...]
    ends: tuple[str, str]
    facts: tuple[tuple[str, str], ...]
    flags: tuple[str, ...] = ()
    grave: bool = False


@dataclass(frozen=True, slots=True)
class Features:
    """Small charts side by side."""

    kind: ClassVar[str] = "features"
    title: str
    caption: str
    cards: tuple[FeatureCard, ...]
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """Folded pieces of a program's output, each under a name."""

    kind: ClassVar[str] = "listing"
    title: str
    caption: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, such as the origin of a dataset."""

    kind: ClassVar[str] = "facts"
    title: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a part of a section, which the table of contents lists."""

    kind: ClassVar[str] = "heading"
    name: str
    title: str
    text: str = ""


Block = Table | Figure | TreeMap | Features | Listing | Facts | Heading


@dataclass(frozen=True, slots=True)
class Section:
    """One input, or one comparison; ``data`` has its numbers for programs."""

    name: str
    label: str
    title: str
    lead: str
    headlines: tuple[Headline, ...]
    call_outs: tuple[CallOut, ...]
    blocks: tuple[Block, ...]
    provenance: tuple[Facts, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
