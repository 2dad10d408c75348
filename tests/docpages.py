"""README.md and the pages in docs/, as tests see them: their blocks of code, the commands in these, and running them.

What a fence of a page says is what becomes of the block, in the page's order and in a folder of the page's own:

- ``console``: each ``$ command`` is run, and prints the lines below it, numbers apart; a line that ends in a backslash
  goes on in the next, and a line of three dots stands for any lines;
- ``sh``: the block is run, and has to do well; ``in=NAME`` runs it in a new copy of the project of that name below, and
  ``needs=NAME`` only where there is such a program;
- ``python``: it is run; one that begins with ``# name.py`` is put into that file first;
- ``pycon``: a session of Python, which prints what is shown, likewise; it goes on in the next block of the page;
- anything else is not looked at.

The folder has a few C files, a training log, and on its PATH clang 22 as ``clang`` and ``clang++``, its ``llvm-ar``,
``mlgo-corpus`` and ``python``. Where a command leaves the shell, folder and variables, is where the next one begins.
"""

from __future__ import annotations

import doctest
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import typer.main

from mlgo_corpus.cli.demo import TRAINING_LOGS
from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers.probe import probe_compiler
from tests.conftest import DATA, LLVM_VERSIONS, ROOT, Llvm
from tests.forked import shell_words

DOCS = ROOT / "docs"
LANGUAGES = {"console", "sh", "python", "pycon", "text"}

# Numbers depend on the machine and on the compiler's path; everything else has to be as shown.
_NUMBER = re.compile(r"\d+(\.\d+)?")
_FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", "(", ")", ";;", "|&"})


def pages() -> list[str]:
    """Name the pages, relative to the repository."""
    return [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *sorted(path.relative_to(ROOT).as_posix() for path in DOCS.glob("*.md")),
    ]


def page_text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Give a page without its blocks of code."""
    return _FENCE.sub("", text)


class Block(NamedTuple):
    """A block of code: the fence's first word and what else it says, what is in it, and the line it begins at."""

    language: str
    about: dict[str, str]
    text: str
    line: int


def iter_blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        body = re.sub(f"^{match[1]}", "", match[4], flags=re.MULTILINE)
        language, *about = match[3].split() or [""]
        pairs = dict(word.split("=", 1) for word in about)
        yield Block(language, pairs, body, text.count("\n", 0, match.start()) + 1)


def transcript(block: str) -> list[tuple[str, list[str]]]:
    """Give the commands of a console block, each with the lines it is said to print."""
    found: list[tuple[str, list[str]]] = []
    goes_on = False
    for line in block.splitlines():
        if goes_on:
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
        goes_on = line.endswith("\\") and (goes_on or line.startswith("$ "))
    return found


def comparable(text: str) -> list[str]:
    """Give the lines of a transcript without what no two runs have in common."""
    lines = [" ".join(_NUMBER.sub("N", line).split()) for line in text.splitlines()]
    # A rate is shown only of what took a while, as it may on a busy machine.
    return [re.sub("─+", "─", re.sub(r" \(N .?B/s\)", "", line)) for line in lines]


def fits(shown: str, expected: str) -> bool:
    """Tell whether a program printed what a page shows."""
    printed = comparable(shown)
    wanted: list[list[str]] = [[], *([] for line in expected.splitlines() if line == "...")]
    part = 0
    for line in expected.splitlines():
        if line == "...":
            part += 1
        else:
            wanted[part] += comparable(line)
    first, *rest = wanted
    if not rest:
        return printed == first
    if printed[: len(first)] != first:
        return False
    place = len(first)
    for lines in rest:  # each after any number of lines, the last at the end
        places = [at for at in range(place, len(printed) - len(lines) + 1) if printed[at : at + len(lines)] == lines]
        if not places:
            return False
        place = (places[-1] if lines is rest[-1] else places[0]) + len(lines)
    return place == len(printed)


def shell_commands(block: Block) -> str:
    """Give what a shell would run of a block, outputs and the text of here-documents left out."""
    text = block.text
    if block.language == "console":
        text = "\n".join(command for command, _ in transcript(text))
    return re.sub(r"<<'?(\w+)'?(.*?)\n.*?^\1$", r"\2", text, flags=re.DOTALL | re.MULTILINE)


def mlgo_corpus_commands(text: str) -> Iterator[list[str]]:
    """Give the arguments of every ``mlgo-corpus`` that a piece of shell runs."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if word in _OPERATORS:
                while command and re.match(r"\w+=", command[0]):
                    del command[0]
                if command and command[0] in ("mlgo-corpus", ".venv/bin/mlgo-corpus"):
                    yield _without_redirections(command[1:])
                command = []
            else:
                command.append(word)


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if set(word) <= set("<>&"):
            next(rest, None)
            if kept and kept[-1].isdigit():  # 2>&1
                kept.pop()
        else:
            kept.append(word)
    return kept


@lru_cache(maxsize=1)
def command_line() -> Any:
    """Give the command line as click has it."""
    return typer.main.get_command(app)


def check_arguments(arguments: list[str]) -> None:
    """Let the command line's own parser read arguments, and do nothing.

    Raises:
        click.UsageError: there is no such verb or option, or one is missing.
    """
    command = command_line()
    name, *rest = arguments
    if name in ("--version", "--help", "-h", "--install-completion", "--show-completion"):
        return
    while hasattr(command, "commands"):
        assert name in command.commands, f"there is no verb {name}"
        command = command.commands[name]
        if hasattr(command, "commands"):
            name, *rest = rest
    if not {"--help", "-h"} & set(rest):
        command.make_context(name, rest)


def verb_options() -> dict[str, set[str]]:
    """Give all verbs as they are typed, each with its options."""

    def walk(command: Any, prefix: str) -> Iterator[tuple[str, set[str]]]:
        for name, sub in command.commands.items():
            if hasattr(sub, "commands"):
                yield from walk(sub, f"{prefix}{name} ")
            else:
                yield (
                    f"{prefix}{name}",
                    {option for one in sub.params for option in (*one.opts, *one.secondary_opts) if option[0] == "-"},
                )

    return dict(walk(command_line(), ""))


# What a slow machine has to show of work that is under way.
_PROGRESS = re.compile(r"^[a-z]+ing[a-z ]*: \d[\w. ]* of \d[\w. ]*(, [^\n]*)?\n", re.MULTILINE)


def prepare_compilers(llvm: Llvm, folder: Path, known: Callable[..., Path]) -> None:
    """Fill a folder with the compilers of all pages, in ``bin``, and with what is found out about them, in ``cache``.

    Where several processes want the folder, the first one fills it.
    """
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        (folder / "bin").mkdir(parents=True)
        for name, program in (
            ("clang", llvm.clang),
            ("clang++", llvm.clangxx),
            ("llvm-ar", llvm.ar),
            ("ld.lld", llvm.tool("ld.lld")),
        ):
            (folder / "bin" / name).symlink_to(program or "")
        known(folder / "cache", *(Llvm(version).clang for version in LLVM_VERSIONS))
        probe_compiler(str(folder / "bin" / "clang"), cache=folder / "cache")


class Shell:
    """A shell whose commands begin where the last one ended, in a folder prepared for a page."""

    def __init__(self, compilers: Path, folder: Path) -> None:
        self._state = folder / "state"
        self._session: list[str] = []  # what was typed at Python's prompt
        self.work = folder / "work"
        self.work.mkdir()
        tools = folder / "tools"
        tools.mkdir()
        _write_sources(self.work)
        self._env = {
            **{name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "AR", "CFLAGS")},
            "PATH": f"{tools}:{compilers / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "LC_ALL": "C.UTF-8",
            "CONFIG_SHELL": "/bin/sh",  # the quicker one, where configure would look for bash
            "MLGO_CORPUS_CACHE": str(shutil.copytree(compilers / "cache", folder / "cache")),
        }
        # A server of other tests will do, where it writes UTF-8 without being told.
        as_others = {name: value for name, value in self._env.items() if name != "LC_ALL"}
        words_of_ours = shell_words(as_others if sys.getfilesystemencoding() == "utf-8" else self._env)
        for name, words in (("mlgo-corpus", words_of_ours), ("python", [sys.executable])):
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (tools / name).chmod(0o755)

    def run(self, command: str, *, strict: bool, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run commands where the last ones ended; ``strict``: stop at the first that fails."""
        # What is exported, the folder and the last exit code are kept for the next shell.
        keep = f'code=$?; {{ export -p; printf "cd %q\\n(exit $code)\\n" "$PWD"; }} >{self._state}'
        script = f"trap '{keep}' EXIT\n"
        if self._state.exists():
            script += f". {self._state}\n"
        script += f"{'set -euo pipefail' if strict else ''}\n{command}\n"
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.work,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def run_block(self, block: Block) -> None:
        """Do with a block what its fence says.

        Raises:
            AssertionError: it fails, or prints something else than is shown.
        """
        if block.language == "console":
            for command, expected in transcript(block.text):
                done = self.run(command, strict=False)
                shown = done.stdout + _PROGRESS.sub("", done.stderr)
                assert fits(shown, "\n".join(expected)), f"{command}\n{shown}"
            return
        if block.language == "pycon":
            self._run_session(block.text)
            return
        if block.language == "sh":
            if shutil.which(block.about.get("needs", "sh"), path=self._env["PATH"]) is None:
                return
            text = block.text
            if project := block.about.get("in"):
                folder = self.work / f"project-{block.line}" / project
                write_project(project, folder)
                text = f"cd {folder}\n{text}\ncd {self.work}"
            done = self.run(text, strict=True)
        elif block.language == "python":
            named = re.match(r"# (\w+\.py)\n", block.text)
            if named:
                self.run(f"cat >{named[1]} <<'END-OF-FILE'\n{block.text}\nEND-OF-FILE", strict=True)
            done = self.run(f"python - <<'END-OF-FILE'\n{block.text}\nEND-OF-FILE", strict=True)
        else:
            return
        assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"

    def _run_session(self, text: str) -> None:
        """Run a session of Python again from its beginning, and compare what its new part prints."""
        examples = doctest.DocTestParser().get_examples(text)
        mark = "--- what comes next is new"
        script = [f"exec(compile({one.source!r}, '<page>', 'single'))" for one in examples]
        before = len(self._session)
        self._session += script
        lines = [*self._session[:before]]
        for line in script:
            lines += [f"print({mark!r}, flush=True)", line]
        done = self.run("python - <<'END-OF-FILE'\n" + "\n".join(lines) + "\nEND-OF-FILE", strict=True)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        shown = done.stdout.split(f"{mark}\n")[1:]
        for example, printed in zip(examples, shown, strict=True):
            assert fits(printed.rstrip(), example.want.rstrip()), f"{example.source}\n{printed}"


def _write_sources(work: Path) -> None:
    write_project("make", work)
    for place in ("logs", TRAINING_LOGS.relative_to(ROOT)):
        shutil.copytree(TRAINING_LOGS, work / place)
    for name in ("Makefile", "cube.c", "main.c"):  # what README.md begins with
        (work / "examples" / "cube").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "examples" / "cube" / name, work / "examples" / "cube" / name)


def write_project(name: str, folder: Path) -> None:
    """Put one of the projects that recipes work on into a folder."""
    if name == "autotools":
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xf", DATA / "autotools.tar.xz", "-C", folder.parent], check=True)
        (folder.parent / "shapes-1.0").rename(folder)
        return
    for path, text in _PROJECTS[name].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def _small(name: str) -> str:
    of = f"static int {name}_of(int x) {{ return x * x; }}\n"  # something to inline
    return f"{of}int {name}(int x) {{ return {name}_of(x) + {name}_of(x + 1); }}\n"


_PROJECTS = {
    "make": {
        **{f"{name}.c": _small(name) for name in ("square", "cube", "plain")},
        "main.c": "int cube(int x);\nint main(int count, char **words) { return cube(count); }\n",
        "Makefile": "CFLAGS = -Oz\n"
        "prog: main.o libcube.a ; $(CC) -o $@ main.o -L. -lcube\n"
        "libcube.a: cube.o ; $(AR) rcs $@ $< && rm $<\n"
        "clean: ; rm -f prog *.o *.a\n",
    },
    "cmake": {
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(shapes C)\n"
        "set(CMAKE_BUILD_TYPE Release)\nadd_library(shapes STATIC square.c twice.c)\n"
        "add_executable(prog main.c)\ntarget_link_libraries(prog shapes)\n",
        "square.c": _small("square"),
        "twice.c": _small("twice"),
        "main.c": "int square(int), twice(int);\nint main(int count, char **words) { return square(twice(count)); }\n",
    },
    "meson": {
        "meson.build": "project('shapes', 'c')\nexecutable('prog', 'main.c', 'cube.c')\n",
        "cube.c": _small("cube"),
        "main.c": "int cube(int x);\nint main(int count, char **words) { return cube(count); }\n",
    },
    "thinlto": {
        "one.c": "int two(int x);\nint one(int x) { return two(x) + 1; }\nint main(void) { return one(1); }\n",
        "two.c": "int two(int x) { return x * 2; }\n",
    },
    "rust": {
        "Cargo.toml": '[package]\nname = "shapes"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/main.rs": "fn square(x: usize) -> usize { x * x }\n"
        'fn main() { println!("{}", square(std::env::args().count())); }\n',
    },
}
