#!/usr/bin/env python3
"""Write mlgo_corpus/formats/cc1table.py: which cc1 options take the next word as a value.

    python scripts/make_cc1_options.py SOURCE... --output mlgo_corpus/formats/cc1table.py

A SOURCE is a header ``clang/Driver/Options.inc`` (the package libclang-19-dev has it), or a clang, or a zig, which has
a clang inside. The table is the union of all sources; the script prints how many options each has.

How a clang is asked: every string in the program and its libclang-cpp that may be an option's name is put on a cc1
command line, followed by two words that no clang knows. Clang reports each unknown word but those that the option took
as its value. A name with a letter more that is not reported is that of an option whose value is joined. As some words
are unknown, clang compiles nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

KINDS = ("SEPARATE", "JOINED_OR_SEPARATE", "JOINED_AND_SEPARATE", "JOINED", "LONGER")
# A linker lets strings that end alike share their bytes, so a name may be the end of a longer string. What begins
# with one of the letters left out is that option with a value in the same word, and some words after -W would silence
# the reports that the asking needs.
_NAME = re.compile(rb"(?=(-(?:[A-Za-z0-9]|(?![DIORUW])[A-Za-z0-9][A-Za-z0-9_+.-]{1,60}=?))\0)")
_UNKNOWN = re.compile(r"unknown argument:? '(.*?)'(?:$|; did you mean)", re.MULTILINE)
# Flags to which clang answers in another way, whatever else is on the line.
_ANSWERS = re.compile(r"print-|help|^-verify")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BATCH = 1000
# By whether a longer word takes the next word, and whether the name alone does.
_JOINED_KINDS = {
    (False, False): "JOINED",
    (False, True): "JOINED_OR_SEPARATE",
    (True, True): "JOINED_AND_SEPARATE",
}
Table = dict[str, set[str]]  # kind: names


def read_header(path: Path) -> Table:
    """Read the options that cc1 sees from ``OPTION(prefixes, "name", id, kind, group, alias, arguments, ...``."""
    text = path.read_text()
    text = text[: text.index("#endif // OPTION\n")]
    table: Table = {kind: set() for kind in KINDS}
    names = []
    for entry in text.split("\nOPTION(")[1:]:
        found = re.match(r'\w+, "([^"]*)", \w+, (\w+), ', entry)
        if found is None or not re.search(r"\bCC1Option\b", entry):
            continue
        name, kind = found[1], re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[2]).upper()
        if kind in ("MULTI_ARG", "REMAINING_ARGS"):
            raise SystemExit(f"{path}: {name} takes several words, which the parser does not know of")
        _add(table, "JOINED" if kind == "COMMA_JOINED" else kind, name)
        names.append(name)
    listed = set().union(*table.values())
    table["LONGER"] = {n for n in names if n not in listed and n[1] not in "DORUW" and _is_begun(n, table)}
    return table


def ask_clang(program: Path) -> Table:
    """Find the kinds of a clang's options by giving it words it does not know."""
    program = program.resolve()
    command = (str(program), "clang") if program.name == "zig" else (str(program),)
    names = sorted({name for library in _libraries(program) for name in _iter_names(library)})
    known = [name for name, is_known, _ in _try_each(command, names) if is_known]
    longer = {word[:-1]: taken for word, is_known, taken in _try_each(command, [f"{n}q" for n in known]) if is_known}
    takes_next = {name: taken for name, _, taken in _try_each(command, known)}
    if several := [name for name, taken in takes_next.items() if taken > 1]:
        raise SystemExit(f"{program}: {several} take two words, which the parser does not know of")
    table: Table = {kind: set() for kind in KINDS}
    prefixes: set[str] = set()
    for name in known:  # in order, so an option comes before those that begin as it does
        # What is said of a longer word says nothing of this name where an option that begins it explains it.
        begun = any(name[:end] in prefixes for end in range(2, len(name)))
        if name in longer and not begun:
            prefixes.add(name)
            _add(table, _JOINED_KINDS[bool(longer[name]), bool(takes_next[name])], name)
        elif takes_next[name] and not any(name.startswith(prefix) for prefix in table["JOINED_AND_SEPARATE"]):
            _add(table, "SEPARATE", name)
    return table


def _try_each(command: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, bool, int]]:
    """Give each name, whether clang knows it, and how many of the two words after it were its value."""
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        words = [word for index, name in enumerate(batch) for word in (name, f"-zz{index}", f"-zy{index}")]
        with tempfile.TemporaryDirectory() as folder:  # some options make a file of their name even so
            done = subprocess.run(
                [*command, "-cc1", *words],
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=300,
            )
        unknown = set(_UNKNOWN.findall(_COLOUR.sub("", done.stderr)))  # -fcolor-diagnostics is among the names
        if len(unknown) < len(batch):
            raise SystemExit(f"{command[0]}: expected reports of unknown words, found: {done.stderr[:300]}")
        for index, name in enumerate(batch):
            yield name, name not in unknown, 2 - len({f"-zz{index}", f"-zy{index}"} & unknown)


def _libraries(program: Path) -> tuple[Path, ...]:
    return (program, *sorted(program.parent.parent.glob("lib/libclang-cpp.so*")))


def _iter_names(path: Path) -> Iterator[str]:
    for match in _NAME.finditer(path.read_bytes()):
        if not _ANSWERS.search(name := match[1].decode("ascii")):
            yield name


def _add(table: Table, kind: str, name: str) -> None:
    # A name that ends in = says by itself that its value is joined.
    if kind in KINDS and not (kind == "JOINED" and name.endswith("=")):
        table[kind].add(name)


def render(table: Table, sources: Sequence[str]) -> str:
    """Write the table as a Python module."""
    docstring = textwrap.fill(f"The union over {', '.join(sources)}.", 120)
    parts = [
        f'''"""Which cc1 options take a value, and how; made by scripts/make_cc1_options.py, not by hand.

{docstring}
Options without a value, and those whose name ends in ``=``, are not listed.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())

'''
    ]
    comments = {
        "SEPARATE": "The value is the next word.",
        "JOINED_OR_SEPARATE": "The value is the rest of the word, or the next word where nothing is left.",
        "JOINED_AND_SEPARATE": "There are two values, the rest of the word and the next word.",
        "JOINED": "The value is the rest of the word.",
        "LONGER": "Others, which begin as one with a joined value does.",
    }
    for kind in KINDS:
        words = textwrap.fill(
            " ".join(sorted(table[kind])),
            116,
            break_long_words=False,
            break_on_hyphens=False,
            initial_indent="    ",
            subsequent_indent="    ",
        )
        parts.append(f'# {comments[kind]}\n{kind} = _words(\n    """\n{words}\n    """\n)\n')
    return "\n".join(parts)


def main() -> None:
    """Read the sources, write the table."""
    parser = argparse.ArgumentParser(description="Write the table of cc1 options that take a value.")
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path("mlgo_corpus/formats/cc1table.py"))
    arguments = parser.parse_args()
    union: Table = {kind: set() for kind in KINDS}
    titles: list[str] = []
    for source in sorted(arguments.sources, key=lambda source: source.suffix != ".inc"):
        table = read_header(source) if source.suffix == ".inc" else ask_clang(source)
        # A header knows of which kind an option is, answers leave doubts: it comes first, and its kinds stay.
        known = set().union(*union.values())
        for kind in KINDS:
            union[kind] |= {name for name in table[kind] - known if kind != "JOINED" or not _is_begun(name, union)}
        titles.append(_title(source))
        print(f"{titles[-1]}: {', '.join(f'{len(table[kind])} {kind}' for kind in KINDS)}")  # noqa: T201
    arguments.output.write_text(render(union, titles))


def _is_begun(name: str, table: Table) -> bool:
    prefixes = table["JOINED"] | table["JOINED_OR_SEPARATE"]
    return any(name[:end] in prefixes for end in range(2, len(name)))


def _title(source: Path) -> str:
    if source.suffix == ".inc":
        return "the Options.inc of LLVM 19"
    command = (str(source), "clang") if source.name == "zig" else (str(source),)
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"clang version (\d+\.\d+\.\d+)", version)
    return f"clang {found[1] if found else '?'}"


if __name__ == "__main__":
    main()
