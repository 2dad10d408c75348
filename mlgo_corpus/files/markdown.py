"""Markdown made of text that may hold anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mlgo_corpus.files.text import escaped

# What Markdown may take for markup within a line; an underscore within a word is none.
_MARKUP = re.compile(r"[\\`*\[\]<>|~&#!]|(?<!\w)_|_(?!\w)")
# ... and at its beginning.
_BLOCK = re.compile(r"^(\d*)([-+=:.)])")


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a heading of names."""
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Show text as code, whatever is in it; what does not print is written as an escape."""
    text = escaped(text)
    fence = _fence(text, 1)
    pad = " " if not text or text[0] in "` " or text[-1] in "` " else ""
    code = f"{fence}{pad}{text}{pad}{fence}"
    # In a table, a bar ends the cell even within code, and a backslash before it goes away again.
    return code.replace("|", "\\|") if in_table else code


def markdown_text(text: str) -> str:
    """Show text as it is, whatever is in it, on one line."""
    text = _MARKUP.sub(r"\\\g<0>", escaped(" ".join(text.split())))
    return _BLOCK.sub(r"\1\\\2", text)


def markdown_fenced(text: str, language: str) -> str:
    """Return a block of code, whatever is in it."""
    text = "\n".join(map(escaped, text.split("\n")))
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _fence(text: str, least: int) -> str:
    """Give a run of backticks that is not in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def documented_columns(text: str) -> dict[str, str]:
    """Read the table of columns out of a module's docstring: what each column means."""
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
