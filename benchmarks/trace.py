"""Compare a trace with its compiler commands alone, run by ``xargs -P``.

The modules are Lua and zlib from ``tests/data``, and parts of musl (the sources in the ziglang wheel), compiled here by
clang 19 with embedded bitcode.

- training log: the whole of ``mlgo-corpus trace`` (start, probing from its cache, both compiles of every module, sizes,
  conversion to Parquet) against the same two commands of every module;
- interactive: the same with the default policy and cached plain compiles, against one plain compile of every
  module;
- walls: the same trace with ``--trust-corpus``, which runs compilers without walls and limits; or that of another
  checkout (``--against``): the cost of a change per module.

    benchmarks/trace.py [--modules N] [--rounds N] [--jobs N] [--devmode FOLDER] [--compiler clang-19]
                        [--against FOLDER]
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from mlgo_corpus import extract_corpus
from mlgo_corpus.runs.builds.demo import _all_units

ROOT = Path(__file__).parents[1]


def build(folder: Path, clang: str, count: int) -> Path:
    """Make a corpus of about ``count`` modules."""
    objects = folder / "objects"
    for name in ("lua-clang19", "zlib-clang19"):
        with tarfile.open(ROOT / "tests" / "data" / f"{name}.tar.gz") as tar:
            tar.extractall(objects, filter="data")
    missing = count - len(list(objects.rglob("*.o")))
    for unit in [unit for unit in _all_units() if unit.output.startswith("musl")][: max(0, missing)]:
        target = objects / unit.output
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = [word for word in unit.command[unit.command.index("cc") + 1 :] if word != "-w"]
        argv = (clang, *flags, "-w", "-c", str(unit.source), "-o", str(target))
        subprocess.run(argv, check=False, capture_output=True)
    corpus = folder / "corpus"
    report = extract_corpus([objects], corpus)
    print(f"{report.modules} modules, {report.bitcode_bytes / 1e6:.1f} MB of bitcode")
    return corpus


def run_trace(corpus: Path, output: Path, *options: str, cache: Path, jobs: int, root: Path = ROOT) -> float:
    """Run the whole command, and return its seconds."""
    shutil.rmtree(output, ignore_errors=True)
    argv = (sys.executable, "-m", "mlgo_corpus.cli.main", "trace", str(corpus), "-o", str(output))
    env = {**os.environ, "MLGO_CORPUS_CACHE": str(cache), "PYTHONPATH": str(root)}
    begin = time.perf_counter()
    subprocess.run((*argv, "--jobs", str(jobs), *options), check=True, env=env, capture_output=True)
    return time.perf_counter() - begin


def plain(argv: Sequence[str]) -> list[str]:
    """Remove the options that record the decisions."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "-mllvm":
            value = next(words)
            if not any(part in value for part in ("training-log", "ml-inliner", "advisor=", "interactive")):
                kept += [word, value]
        else:
            kept.append(word)
    return kept


def run_xargs(commands: Sequence[Sequence[str]], folder: Path, jobs: int) -> float:
    """Run commands as a shell user would, and return the seconds; each writes a log and an object of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lines = []
    for number, argv in enumerate(commands):
        words = [word.replace("=training.log", f"={number}.log") for word in argv]
        words[words.index("-o") + 1] = f"{number}.o"
        lines.append(shlex.join(words))
    begin = time.perf_counter()
    subprocess.run(
        ("xargs", "-P", str(jobs), "-d", "\n", "-I{}", "sh", "-c", "exec {}"),
        input="\n".join(lines),
        text=True,
        check=True,
        cwd=folder,
        capture_output=True,
    )
    return time.perf_counter() - begin


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser.add_argument("--devmode", default=f"{cache_home}/mlgo-corpus-tests/devmode-19")
    parser.add_argument("--compiler", default="clang-19")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlgo-bench-") as name:
        folder = Path(name)
        corpus = build(folder, options.compiler, options.modules)
        print(f"{'':34} trace s   xargs s   ratio (medians of {options.rounds}, spread of the ratio)")
        for title, task, compiler, remembered in (
            ("inlining, training log", "inlining", options.devmode, False),
            ("eviction, training log", "regalloc-eviction", options.devmode, False),
            ("priority, training log", "regalloc-priority", options.devmode, False),
            ("inlining, interactive, default", "inlining", options.compiler, True),
        ):
            measure(folder, corpus, title, ("--task", task, "--compiler", compiler), options, remembered=remembered)
        measure_walls(folder, corpus, options)


def measure(
    folder: Path, corpus: Path, title: str, arguments: tuple[str, ...], options: argparse.Namespace, *, remembered: bool
) -> None:
    """Measure one kind of trace against xargs, in turn, and print a row."""
    cache = folder / "cache"
    ours, theirs = [], []
    run_trace(corpus, folder / "out", *arguments, cache=cache, jobs=options.jobs)  # probes, and warms the page cache
    table = pq.read_table(folder / "out" / "modules.parquet").to_pylist()
    traced = [row["argv"] for row in table if row["status"] == "ok"]
    commands = [plain(argv) for argv in traced]
    if not remembered:
        commands = [argv for pair in zip(commands, traced, strict=True) for argv in pair]
    for _ in range(options.rounds):
        if not remembered:
            shutil.rmtree(cache / "baselines", ignore_errors=True)
        ours.append(run_trace(corpus, folder / "out", *arguments, cache=cache, jobs=options.jobs))
        theirs.append(run_xargs(commands, folder / "xargs", options.jobs))
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    print(
        f"{title:34} {statistics.median(ours):7.2f}   {statistics.median(theirs):7.2f}   "
        f"{statistics.median(ratios):5.2f} ({min(ratios):.2f}-{max(ratios):.2f}); {len(commands)} commands"
    )


def measure_walls(folder: Path, corpus: Path, options: argparse.Namespace) -> None:
    """Measure a live trace, which compiles every module twice, against one without walls; print a row."""
    arguments = ("--compiler", options.compiler)
    other = (*arguments, "--trust-corpus") if options.against is None else arguments
    sides: tuple[list[float], list[float]] = ([], [])
    for number in range(options.rounds + 1):
        for times, words, root in zip(sides, (arguments, other), (ROOT, options.against or ROOT), strict=True):
            cache = folder / f"cache-{len(words)}-{root == ROOT}"
            shutil.rmtree(cache / "baselines", ignore_errors=True)
            seconds = run_trace(corpus, folder / "out", *words, cache=cache, jobs=options.jobs, root=root.absolute())
            if number:  # the first run probes the compiler
                times.append(seconds)
    count = pq.read_metadata(folder / "out" / "modules.parquet").num_rows
    more = [(mine - theirs) / count * 1e3 for mine, theirs in zip(*sides, strict=True)]
    medians = [statistics.median(times) for times in sides]
    print(
        f"{'walls, inlining, interactive':34} {medians[0]:7.2f}   {medians[1]:7.2f}   "
        f"{statistics.median(more):+.2f} ms a module ({min(more):+.2f} to {max(more):+.2f}); {count} modules"
    )


if __name__ == "__main__":
    main()
