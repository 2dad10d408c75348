"""Run fuzzers: ``python -m tests.fuzz [NAME...] --seconds N --seed S``. The exit code is 1 if they find something.

A finding is told with the command that makes its input again; ``--number`` is that one input.
"""

# ruff: noqa: T201 - a program of its own, which prints

from __future__ import annotations

import argparse
import importlib
import random
import sys
import tempfile
import time
from pathlib import Path

from .driver import NAMES, fuzz

# They run compilers by the thousand, and count no inputs.
OF_COMMANDS = ("cc1_words", "cc1_canaries")


def main() -> int:
    known = (*NAMES, *OF_COMMANDS)
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="for so long each, 20 by default")
    parser.add_argument("--seed", type=int, help="whose inputs; another one each time by default")
    parser.add_argument("--number", type=int, help="only the input of this number")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where inputs with findings are kept")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no fuzzer is called {unknown[0]}: there are {', '.join(known)}")
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    numbers = range(1 << 62) if given.number is None else range(given.number, given.number + 1)
    work = given.keep or Path(tempfile.mkdtemp(prefix="mlgo-corpus-fuzz-"))
    found = 0
    for name in given.names or known:
        print(f"{name}: seed {seed}", flush=True)
        if name in OF_COMMANDS:
            found += importlib.import_module(f".{name}", __package__).main(given.seconds, seed)
            continue
        started = time.monotonic()
        outcome = fuzz(name, seed, work.resolve(), numbers, seconds=given.seconds if given.number is None else None)
        for finding in outcome.findings:
            print(f"\n{finding}\n")
        seconds = time.monotonic() - started
        print(f"{name}: {outcome.inputs} inputs in {seconds:.0f} s, {len(outcome.findings)} findings", flush=True)
        found += len(outcome.findings)
    if not found and given.keep is None:
        work.rmdir()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
