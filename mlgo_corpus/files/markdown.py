"""Markdown made from arbitrary text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mlgo_corpus.files.text import escaped

# Markup within a line; an underscore within a word is not markup.
_MARKUP = re.compile(r"[\\`*\[\]<>|~&#!]|(?<!\w)_|_(?!\w)")
# Markup at the beginning of a line.
_BLOCK = re.compile(r"^(\d*)([-+=:.)])")


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a header row of names."""
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Return any text as inline code; characters that do not print are escaped."""
    text = escaped(text)
    fence = _fence(text, 1)
    pad = " " if not text or text[0] in "` " or text[-1] in "` " else ""
    code = f"{fence}{pad}{text}{pad}{fence}"
    # In a table, a bar ends the cell even within code; a backslash before it prevents that and is not shown.
    return code.replace("|", "\\|") if in_table else code


def markdown_text(text: str) -> str:
    """Return any text as plain text on one line."""
    text = _MARKUP.sub(r"\\\g<0>", escaped(" ".join(text.split())))
    return _BLOCK.sub(r"\1\\\2", text)


def markdown_fenced(text: str, language: str) -> str:
    """Return any text as a block of code."""
    text = "\n".join(map(escaped, text.split("\n")))
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _fence(text: str, least: int) -> str:
    """Return a run of backticks that is not in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def plain_columns(text: str | None) -> dict[str, str]:
    """Return the same as `documented_columns` without markup."""
    return {name: meaning.replace("`", "") for name, meaning in documented_columns(text or "").items()}


def documented_columns(text: str) -> dict[str, str]:
    """Return the meaning of each column, read from the table in a module's docstring."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"``(\w+)`` +(\S.*)", line):
            name = match[1]
            found[name] = match[2]
        elif name and line.startswith(" ") and line.strip():
            found[name] += f" {line.strip()}"
        else:
            name = ""
    return found
