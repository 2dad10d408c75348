"""Every string of a clang that may be an option, against our parser: how many words does it take?

    python tests/fuzz/cc1_words.py --seconds 60 --seed 1

Words that no clang knows are reported, but for those that an option took as its value. A string is tried with each
prefix, and where it is an option, with a letter more.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlgo_corpus.formats.commands.options import parse_cc1
from tests.fuzz.cc1_canaries import SPELLINGS, find_compilers

# What makes clang answer in another way whatever else is on the line, or keeps it from telling of unknown words.
_ANSWERS = re.compile(r"print-|help|^-+verify|^-+version|^-+[WR]|^-+v$")
# It begins with a byte that `re` looks for quickly.
_WORD = re.compile(rb"\0[-/]{1,2}(\w[\w+.-]{0,60}=?)(?=\0)", re.ASCII)
_UNKNOWN = re.compile(r"unknown argument:? '(.*?)'(?:$|; did you mean)", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BATCH = 1000


def unknown_words(clang: Sequence[str], words: Iterable[str]) -> set[str]:
    """Ask a clang which words of a command it does not know. In a folder of its own: some make files even so."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*clang, "-cc1", *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    return set(_UNKNOWN.findall(_COLOUR.sub("", done.stderr.decode("utf-8", "replace"))))


def strings(program: Path) -> list[str]:
    """Find what is between NULs in a clang and its library, begins as an option does, and looks like one."""
    ldd = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    files = [program.resolve(), *map(Path, re.findall(r"=> (\S*/libclang-cpp\S*) ", ldd))]
    found = {word.decode("ascii") for path in files for word in _WORD.findall(path.read_bytes())}
    return sorted(found - {spelling.lstrip("-/") for spelling in SPELLINGS})


def differences(clang: Sequence[str], bases: Iterable[str], *, seconds: float = 600) -> list[str]:
    """Find the words which our parser and a clang that knows them disagree on."""
    end = time.monotonic() + seconds
    names = [f"{prefix}{base}" for base in bases for prefix in ("-", "--", "/")]
    rest = [(name, True) for name in names if not _ANSWERS.search(name)]
    wrong = []
    while rest and time.monotonic() < end:
        batch, rest = rest[:_BATCH], rest[_BATCH:]
        words = [word for at, (name, _) in enumerate(batch) for word in (name, f"-zz{at}", f"-zy{at}")]
        unknown = unknown_words(clang, words)
        if len(unknown) < len(batch):
            raise RuntimeError(f"expected reports of at least {len(batch)} unknown words, found {len(unknown)}")
        for at, (name, is_whole) in enumerate(batch):
            if name in unknown:
                continue
            option = parse_cc1([name, f"-zz{at}", f"-zy{at}"])[0]
            taken = 2 - sum(word in unknown for word in (f"-zz{at}", f"-zy{at}"))
            if not option.is_known or len(option.words) != 1 + taken:
                wrong.append(name)
            if is_whole and name[0] != "/":
                rest.append((f"{name}q", False))
    return wrong


def table_bases() -> list[str]:
    """Give the names of all options that we know, without their prefixes."""
    return sorted({spelling.lstrip("-/") for spelling in SPELLINGS})


def main(seconds: float = 60, seed: int | None = None) -> int:
    """Share the time among the compilers; return how many words differed."""
    seed = random.randrange(2**32) if seed is None else seed
    compilers = find_compilers()
    found = 0
    for name, clang in compilers.items():
        others = strings(Path(clang[0]))
        random.Random(seed).shuffle(others)
        wrong = differences(clang, [*table_bases(), *others], seconds=seconds / len(compilers))
        print(f"cc1_words: {name}: seed {seed}, {len(wrong)} differ: {' '.join(wrong[:20])}")  # noqa: T201
        found += len(wrong)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare how clang and our parser read cc1 options.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    sys.exit(bool(main(arguments.seconds, arguments.seed)))
