"""Why a build compiled nothing that was seen, and the command that helps: read from what configured its tree.

A tree that was configured before calls its compiler by the path that was found then (``CMakeCache.txt``,
``build.ninja``, ``config.status``), past the shims, or it is up to date. Its compilation database, which it has or can
write, has the same commands, and can be compiled instead. A makefile takes another compiler from its command line.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.text import option_key
from mlgo_corpus.formats.commands.buildfiles import COMPILE_COMMANDS_NAME

_MAKES = ("make", "gmake")
_CMAKE_COMPILER = re.compile(r"^CMAKE_(?:CXX|C)_COMPILER:\w+=(/.*)$", re.MULTILINE)
_CONFIGURED = re.compile(r'^S\["(CC|CXX)"\]="([^"]*)"$', re.MULTILINE)
# Options of make that say which makefile it reads, with their value in the next word or in the same.
_WHERE = re.compile(r"-[Cf](.*)|--(?:directory|file|makefile)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Advice:
    """Why nothing was compiled, as far as the tree tells, and the command that compiles it."""

    why: str
    command: str


def advise(build: Sequence[str], ours: str, shims: str) -> Advice | None:
    """Look at the tree that a build without compiles was for; return None if nothing is known about it.

    Args:
        build: the build's command, which ran in the current folder.
        ours: the command that makes the corpus, with its options, but for what it compiles.
        shims: the folder of the shims: a tree that names it was configured under them.
    """
    again = f"{ours} --"
    from_database = f"{ours} {option_key('from')}"
    for folder in _folders(build):

        def place(name: str, folder: str = folder) -> str:
            return os.path.normpath(os.path.join(folder, name))

        cache, ninja, status = (_read(place(name)) for name in ("CMakeCache.txt", "build.ninja", "config.status"))
        quoted = shlex.quote(place("."))
        if cache is not None:
            if shims in cache:
                return Advice("it was up to date", f"{again} cmake --build {quoted} --clean-first")
            called = _CMAKE_COMPILER.search(cache)
            why = (
                f"{place('CMakeCache.txt')} names {called[1] if called else 'a compiler'}, which is called by its path"
            )
            write = f"cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON {quoted} && "
        elif ninja is not None:
            if shims in ninja:
                commands = f"ninja -C {quoted} -t clean && ninja -C {quoted}"
                return Advice("it was up to date", f"{again} sh -c {shlex.quote(commands)}")
            why = f"{place('build.ninja')} was up to date, or calls its compiler by a path"
            write = f"ninja -C {quoted} -t compdb > {shlex.quote(place(COMPILE_COMMANDS_NAME))} && "
        elif status is not None and _is_make(build):
            return _advise_make(build, again, dict(_CONFIGURED.findall(status)), shims)
        else:
            continue
        write = "" if os.path.exists(place(COMPILE_COMMANDS_NAME)) else write
        return Advice(why, f"{write}{from_database} {shlex.quote(place(COMPILE_COMMANDS_NAME))}")
    return _advise_make(build, again, {"CC": "/cc", "CXX": "/c++"}, shims) if _is_make(build) else None


def _is_make(build: Sequence[str]) -> bool:
    return os.path.basename(build[0]) in _MAKES


def _advise_make(build: Sequence[str], again: str, configured: dict[str, str], shims: str) -> Advice:
    """Return the advice for make: clean first, and compilers without their paths."""
    where: list[str] = []
    words = iter(build[1:])
    for word in words:
        if match := _WHERE.fullmatch(word):
            where += [word] if any(match.groups()) else [word, next(words, "")]
    names = []
    for variable, value in configured.items():
        program, space, options = value.partition(" ")
        if "/" in program and not program.startswith(shims):
            names.append(f"{variable}={os.path.basename(program)}{space}{options}")
    commands = f"{shlex.join((build[0], *where, 'clean'))} && {shlex.join((*build, *names))}"
    called = "it was up to date" + (", or calls a compiler by its path" if names else "")
    return Advice(called, f"{again} sh -c {shlex.quote(commands)}")


def _folders(build: Sequence[str]) -> Iterator[str]:
    """Yield the folders that a command names, also one for a shell or behind -C, and the current one."""
    for word in build:
        with suppress(ValueError):  # a quote that is not closed
            for inner in dict.fromkeys((word, *shlex.split(word))):
                folder = inner.removeprefix("-C") if not os.path.isdir(inner) else inner
                if folder and os.path.isdir(folder):
                    yield folder
    yield "."


def _read(path: str) -> str | None:
    """Return a file's text; nothing of one that cannot be read or is too large; None if there is no such file."""
    if not os.path.isfile(path):
        return None
    with suppress(OSError):
        return read_regular(Path(path), MAX_NOTE_BYTES).decode("utf-8", "surrogateescape")
    return ""
