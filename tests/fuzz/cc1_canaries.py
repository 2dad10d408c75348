"""Every option of clang -cc1 and of LLVM with a canary's path as its value, through the whole replay.

    python tests/fuzz/cc1_canaries.py --seconds 60 --seed 1

A canary is a program, a library, or a path where nothing is. Each option is put on the command of a small module, in
all ways that a value is written. What a replay does not refuse is run by the real compiler. No canary may have changed,
appeared or run afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgo_corpus.formats.commands import cc1table, llvmtable
from mlgo_corpus.formats.commands.replay import refused_options, replay_command

SPELLINGS = sorted(
    cc1table.FLAG | cc1table.SEPARATE | cc1table.JOINED | cc1table.JOINED_OR_SEPARATE | cc1table.JOINED_AND_SEPARATE
)
LLVM_NAMES = sorted(llvmtable.OPTIONAL | llvmtable.REQUIRED | llvmtable.DIFFERS)
BASE = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-O1")
_CODE = "int h(int); int f(int x) { for (int i = 0; i < x; i++) x += h(i); return x; }\n"
_LIBRARY = 'int creat(const char *, int);\n__attribute__((constructor)) static void f(void) { creat("%s", 0600); }\n'


@dataclass(frozen=True)
class Outcome:
    """What came of a run of `fly`: how many commands ran and were refused, and the words that touched a canary."""

    ran: int
    refused: int
    escapes: tuple[tuple[str, ...], ...]


def iter_words(canaries: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each option in each way in which it might take a canary for its value; a flag, or a number, takes none."""
    for spelling in SPELLINGS:
        for canary in canaries[: 1 if spelling in cc1table.FLAG else None]:
            yield (spelling, canary)
            yield (spelling + canary,)
            yield (f"{spelling}={canary}",)
    for name in LLVM_NAMES:
        yield ("-mllvm", f"-{name}")
        if name not in llvmtable.TEXT:  # LLVM stops at a value that is none
            yield ("-mllvm", f"--{name}=1")
            continue
        for canary in canaries:
            yield ("-mllvm", f"-{name}={canary}")
            yield ("-mllvm", f"--{name}", "-mllvm", canary)


def fly(clang: Sequence[str], *, seconds: float, seed: int, at_most: int | None = None) -> Outcome:
    """Run a random sample of all words with a compiler, until the time is over or all, or ``at_most``, have run."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="canaries-") as top:
        cage = Path(top, "cage")
        cage.mkdir()
        canaries = _make_canaries(clang, cage)
        Path(top, "m.c").write_text(_CODE)
        subprocess.run(
            [*clang, *BASE[:-2], "-emit-llvm-bc", "-O1", "-x", "c", "m.c", "-o", "m.bc"], cwd=top, check=True
        )
        trials = list(iter_words(canaries))
        random.Random(seed).shuffle(trials)
        before = _look(cage)
        ran = refused = 0
        escapes = []
        for words in trials[:at_most]:
            if time.monotonic() > end:
                break
            options = (*BASE, *words)
            if refused_options(options):
                refused += 1
                continue
            run = Path(top, "run")
            run.mkdir()
            command = replay_command(options, bitcode=str(Path(top, "m.bc")), output="m.o")
            _run([*clang, *command], run)
            ran += 1
            if (after := _look(cage)) != before:
                escapes.append(words)
                before = after
            shutil.rmtree(run)
        strays = set(os.listdir(top)) - {"cage", "m.c", "m.bc", "cache"}
        return Outcome(ran, refused, (*escapes, *((stray,) for stray in strays)))


def _make_canaries(clang: Sequence[str], cage: Path) -> tuple[str, ...]:
    program, library, absent = cage / "program", cage / "library.so", cage / "absent"
    program.write_text(f"#!/bin/sh\n: > {cage / 'ran'}\n")
    program.chmod(0o755)
    if len(clang) > 1:  # zig's clang is a static program, which loads nothing
        library.touch()
    else:
        source = (_LIBRARY % (cage / "loaded")).encode()
        subprocess.run([*clang, "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, check=True)
    return str(program), str(library), str(absent)


def _run(command: Sequence[str], folder: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(folder), "LLVM_DISABLE_SYMBOLIZATION": "1"}
    # Some limits make LLVM go on for ever, as every replay's deadline knows.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
        )


def _look(cage: Path) -> dict[str, tuple[int, int]]:
    return {name.name: (name.stat().st_size, name.stat().st_mtime_ns) for name in cage.iterdir()}


def find_compilers() -> dict[str, tuple[str, ...]]:
    """Find the clangs of this machine, and zig's."""
    found = {name: (path,) for name in ("clang-19", "clang-22") if (path := shutil.which(name))}
    try:
        import ziglang
    except ImportError:
        return found
    return {**found, "zig": (str(Path(ziglang.__file__).with_name("zig")), "clang")}


def main(seconds: float = 60, seed: int | None = None) -> int:
    """Share the time among the compilers; return how many words escaped."""
    seed = random.randrange(2**32) if seed is None else seed
    compilers = find_compilers()
    escaped = 0
    for name, clang in compilers.items():
        outcome = fly(clang, seconds=seconds / len(compilers), seed=seed)
        print(f"cc1_canaries: {name}: seed {seed}, {outcome.ran} ran, {outcome.refused} refused")  # noqa: T201
        for words in outcome.escapes:
            print(f"cc1_canaries: {name}: escaped: {' '.join(words)}")  # noqa: T201
        escaped += len(outcome.escapes)
    return escaped


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Look for options with which a replay touches what is not its own.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    sys.exit(bool(main(arguments.seconds, arguments.seed)))
