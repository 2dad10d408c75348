"""README.md and the pages in docs/, as tests see them: their blocks of code, the commands in these, and running them.

What a fence of a page says is what becomes of the block, in the page's order and in a folder of the page's own:

- ``console``: each ``$ command`` is run, and prints the lines below it, numbers apart; a line that ends in a backslash
  goes on in the next;
- ``sh``: the block is run, and has to do well;
- ``python``: it is run; one that begins with ``# name.py`` is put into that file first;
- ``sql``: DuckDB runs it;
- anything else is not looked at.

The folder has a few C files, a training log, and on its PATH clang 22 as ``clang`` and ``clang++``, its ``llvm-ar``,
``mlgo-corpus`` and ``python``. Where a command leaves the shell, folder and variables, is where the next one begins.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer.main
from conftest import Llvm

from mlgo_corpus.cli.demo import TRAINING_LOGS
from mlgo_corpus.cli.main import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LANGUAGES = {"console", "sh", "python", "sql", "text", "json", "make", "cmake"}

# Numbers depend on the machine and on the compiler's path; everything else has to be as shown.
_NUMBER = re.compile(r"\d+(\.\d+)?")
_FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", "(", ")", ";;", "|&"})


def pages() -> list[str]:
    """Name the pages, relative to the repository."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in DOCS.glob("*.md"))]


def page_text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Give a page without its blocks of code."""
    return _FENCE.sub("", text)


class Block(NamedTuple):
    """A block of code: the fence's first word, what is in it, and the line it begins at."""

    language: str
    text: str
    line: int


def iter_blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        body = re.sub(f"^{match[1]}", "", match[4], flags=re.MULTILINE)
        yield Block(match[3].strip(), body, text.count("\n", 0, match.start()) + 1)


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
        else:
            kept.append(word)
    return kept


def check_arguments(arguments: list[str]) -> None:
    """Let the command line's own parser read arguments, and do nothing.

    Raises:
        click.UsageError: there is no such verb or option, or one is missing.
    """
    command: Any = typer.main.get_command(app)
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

    return dict(walk(typer.main.get_command(app), ""))


class Shell:
    """A shell whose commands begin where the last one ended, in a folder prepared for a page."""

    def __init__(self, llvm: Llvm, folder: Path) -> None:
        self._state = folder / "state"
        self.work = folder / "work"
        self.work.mkdir()
        tools = folder / "tools"
        tools.mkdir()
        for name, program in (("clang", llvm.clang), ("clang++", llvm.clangxx), ("llvm-ar", llvm.tool("llvm-ar"))):
            (tools / name).symlink_to(program or "")
        for name, module in (("mlgo-corpus", "-m mlgo_corpus.cli.main"), ("python", "")):
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (tools / name).chmod(0o755)
        _write_sources(self.work)
        self._env = {
            **{name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "AR", "CFLAGS")},
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "LC_ALL": "C.UTF-8",
            "MLGO_CORPUS_CACHE": str(folder / "cache"),
        }

    def run(self, command: str, *, strict: bool, timeout: float = 120) -> subprocess.CompletedProcess[str]:
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
                shown = done.stdout + done.stderr
                assert comparable(shown) == comparable("\n".join(expected)), f"{command}\n{shown}"
            return
        if block.language == "sh":
            done = self.run(block.text, strict=True)
        elif block.language == "python":
            named = re.match(r"# (\w+\.py)\n", block.text)
            if named:
                self.run(f"cat >{named[1]} <<'END-OF-FILE'\n{block.text}\nEND-OF-FILE", strict=True)
            done = self.run(f"python - <<'END-OF-FILE'\n{block.text}\nEND-OF-FILE", strict=True)
        elif block.language == "sql":
            code = (
                f"import duckdb\nfor query in {block.text!r}.split(';'):\n  if query.strip(): print(duckdb.sql(query))"
            )
            done = self.run(f"python - <<'END-OF-FILE'\n{code}\nEND-OF-FILE", strict=True)
        else:
            return
        assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"


def _write_sources(work: Path) -> None:
    for name in ("square", "cube", "plain"):
        of = f"static int {name}_of(int x) {{ return x * x; }}\n"  # something to inline
        (work / f"{name}.c").write_text(f"{of}int {name}(int x) {{ return {name}_of(x) + {name}_of(x + 1); }}\n")
    (work / "main.c").write_text("int cube(int x);\nint main(int count, char **words) { return cube(count); }\n")
    (work / "Makefile").write_text(
        "CFLAGS = -Oz\n"
        "prog: main.o libcube.a ; $(CC) -o $@ main.o -L. -lcube\n"
        "libcube.a: cube.o ; $(AR) rcs $@ $< && rm $<\n"
        "clean: ; rm -f prog *.o *.a\n"
    )
    shutil.copytree(TRAINING_LOGS, work / "logs")
