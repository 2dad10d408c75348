"""Measure what ``mlgo-corpus build`` adds to a build, compared with clang and the flag by hand.

The build is musl's sources (from the ziglang wheel) with a plain Makefile: hundreds of small C files that take clang
some tens of milliseconds each, the case in which a shim's overhead is most visible.

    benchmarks/build.py [--files N] [--rounds N] [--jobs N] [--compiler clang-22]
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from mlgo_corpus.runs.builds.demo import _all_units

ROOT = Path(__file__).parents[1]
EMBED = ("-Xclang", "-fembed-bitcode=all")


def write_makefile(folder: Path, count: int) -> int:
    """Write a Makefile for the first ``count`` files, and return their number."""
    units = [unit for unit in _all_units() if unit.output.startswith("musl")][:count]
    lines = [f"all: {' '.join(unit.output for unit in units)}"]
    for unit in units:
        (folder / unit.output).parent.mkdir(parents=True, exist_ok=True)
        flags = [word for word in unit.command[unit.command.index("cc") + 1 :] if word not in ("-w", *EMBED)]
        words = shlex.join((*flags, "-w", "-c", str(unit.source), "-o", unit.output)).replace("$", "$$")
        lines += [f"{unit.output}: {unit.source}", f"\t@$(CC) $(CFLAGS) {words}"]
    (folder / "Makefile").write_text("\n".join(lines) + "\n")
    return len(units)


def seconds(argv: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Run a build from scratch, and return its wall seconds and its CPU seconds."""
    for path in folder.rglob("*.o"):
        path.unlink()
    shutil.rmtree(folder / "corpus", ignore_errors=True)
    return run(argv, folder)


def run(argv: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Run a command, and return its wall seconds and its CPU seconds."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CC": ""}
    before = os.times()
    subprocess.run(argv, cwd=folder, check=True, capture_output=True, env=env)
    after = os.times()
    spent = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    return after.elapsed - before.elapsed, spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compiler", default=shutil.which("clang-22") or "clang")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_makefile(folder, given.files)
        make = ("make", f"-j{given.jobs}")
        mlgo = (sys.executable, "-m", "mlgo_corpus.cli.main")
        ours = (*mlgo, "build", "--output", "corpus", "--compiler", given.compiler, "--", *make, "CC=cc")
        by_hand = (*make, f"CC={given.compiler}", f"CFLAGS={' '.join(EMBED)}")
        extract = (*mlgo, "extract", ".", "--output", "corpus")
        rows: dict[str, list[tuple[float, float]]] = {"by hand": [], "extract": [], "build": []}
        for _ in range(given.rounds):
            rows["by hand"].append(seconds(by_hand, folder))
            rows["extract"].append(run(extract, folder))
            rows["build"].append(seconds(ours, folder))
    print(f"{files} files, {given.compiler}, -j{given.jobs}, median of {given.rounds}")
    print("                                    wall      CPU")
    medians = {name: [statistics.median(one) for one in zip(*values, strict=True)] for name, values in rows.items()}
    both = [sum(pair) for pair in zip(medians["by hand"], medians["extract"], strict=True)]
    for name, values in (
        ("make with the flag by hand", medians["by hand"]),
        ("  and mlgo-corpus extract", both),
        ("mlgo-corpus build", medians["build"]),
    ):
        print(f"{name:<30}{values[0]:8.2f} s {values[1]:6.2f} s")
    ratios = [ours / theirs for ours, theirs in zip(medians["build"], both, strict=True)]
    print(f"{'ratio':<30}{ratios[0]:8.3f}   {ratios[1]:6.3f}")


if __name__ == "__main__":
    main()
