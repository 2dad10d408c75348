"""Compare the cost of the table of functions with the plain replay, and with one process per function.

Three methods on the same modules, one after the other on one core, in seconds from start to end: programs behind walls
are not children of the command, so its processor time does not hold theirs.

- ``mlgo-corpus ir2native --no-verify``: features and sizes of all functions;
- plain: every module's own command on its own bitcode, once;
- the usual method: for each function ``llvm-extract``, then ``opt -passes=print<func-properties>``, on a sample of
  functions; it yields neither the IR2Native vector nor sizes.

The modules are Lua and zlib from ``tests/data`` and, if a path is given, a large one such as SQLite's amalgamation.

    benchmarks/ir2native.py [--rounds N] [--large FILE.c] [--functions N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from mlgo_corpus import Corpus, extract_corpus
from mlgo_corpus.formats.commands.replay import replay_command

ROOT = Path(__file__).parents[1]
LLVM = 19


def build(folder: Path, large: Path | None) -> dict[str, Path]:
    """Make the corpora: one of ordinary modules, one of the large one."""
    objects = folder / "objects"
    for name in ("lua-clang19", "zlib-clang19"):
        with tarfile.open(ROOT / "tests" / "data" / f"{name}.tar.gz") as tar:
            tar.extractall(objects, filter="data")
    corpora = {"Lua and zlib": folder / "corpus"}
    extract_corpus([objects], corpora["Lua and zlib"])
    if large is not None:
        alone = folder / "large"
        alone.mkdir()
        flags = ("-Oz", "-w", "-Xclang", "-fembed-bitcode=all", "-c")
        subprocess.run((f"clang-{LLVM}", *flags, str(large), "-o", str(alone / "large.o")), check=True)
        corpora[large.name] = folder / "large-corpus"
        extract_corpus([alone], corpora[large.name])
    return corpora


def seconds_of(work: Callable[[], None]) -> float:
    """Return how long ``work`` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def table(corpus: Path, output: Path, cache: Path) -> float:
    """Make the table, and return the time."""
    argv = (sys.executable, "-m", "mlgo_corpus.cli.main", "ir2native", str(corpus), "--output", str(output))
    env = {**os.environ, "MLGO_CORPUS_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    options = ("--no-verify", "--force", "--compiler", f"clang-{LLVM}", "--jobs", "1")
    return seconds_of(lambda: run((*argv, *options), env=env))


def replays(corpus: Path, folder: Path) -> float:
    """Compile every module plainly."""

    def work() -> None:
        for module in Corpus.open(corpus):
            command = replay_command(
                module.command(), bitcode=str(module.bitcode_path.absolute()), output=str(folder / "m.o")
            )
            run((f"clang-{LLVM}", *command))

    return seconds_of(work)


def one_by_one(corpus: Path, functions: Sequence[tuple[str, str]], folder: Path) -> float:
    """Extract each function into a module of its own and print its properties; return the total time."""

    def work() -> None:
        modules = {module.name: module for module in Corpus.open(corpus)}
        for module, function in functions:
            extracted = str(folder / "f.bc")
            run((f"llvm-extract-{LLVM}", f"-func={function}", str(modules[module].bitcode_path), "-o", extracted))
            run((f"opt-{LLVM}", "-passes=print<func-properties>", "-disable-output", extracted))

    return seconds_of(work)


def run(argv: Sequence[str], env: dict[str, str] | None = None) -> None:
    """Run a program that must succeed."""
    subprocess.run(argv, check=True, env=env, capture_output=True)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", type=Path)
    parser.add_argument("--functions", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlgo-bench-") as name:
        folder = Path(name)
        for title, corpus in build(folder, options.large).items():
            output, cache = folder / "out.parquet", folder / "cache"
            table(corpus, output, cache)  # probes the compilers, and warms the page cache
            rows = pq.read_table(output, columns=["module", "function"]).to_pylist()
            ours = [table(corpus, output, cache) for _ in range(options.rounds)]
            plain = [replays(corpus, folder) for _ in range(options.rounds)]
            step = max(1, len(rows) // options.functions)
            sample = [(row["module"], row["function"]) for row in rows[::step]]
            begin = time.perf_counter()
            single = one_by_one(corpus, sample, folder) / len(sample)
            mine, replay = statistics.median(ours), statistics.median(plain)
            print(
                f"{title}: {len(rows)} functions; seconds: table {mine:.2f} "
                f"({min(ours):.2f}-{max(ours):.2f}), plain replay {replay:.2f} ({min(plain):.2f}-{max(plain):.2f}): "
                f"{mine / replay:.2f} times; a function: {1e3 * mine / len(rows):.2f} ms, "
                f"one by one {1e3 * single:.1f} ms ({len(sample)} functions in {time.perf_counter() - begin:.0f} s): "
                f"{single / (mine / len(rows)):.0f} times"
            )


if __name__ == "__main__":
    main()
