"""How long a program runs that a policy made smaller: linked again for each policy, and timed in turn.

    python benchmarks/running.py CORPUS PROGRAM [--policy POLICY]... [--rounds 15] [--folder FOLDER] -- ARGUMENTS...

CORPUS is of a build whose tree is still there, as `relink` needs it. PROGRAM is the end of the name of one of its
products, or another program, which uses shared libraries of the build. It runs where the benchmark was started, and has
to print the same and end alike whoever decided. Timed is the processor time of a run; shown are medians, and the median
of the ratios to LLVM's own decisions, pair by pair, with a 95 % interval. What is made stays in FOLDER for the next
time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from mlgo_corpus import relink_corpus, trace_corpus


def main() -> None:
    """Print the table."""
    words = sys.argv[1:]
    own, arguments = words, []
    if "--" in words:
        own, arguments = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("program")
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--compiler", default="clang")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(own)
    with tempfile.TemporaryDirectory() as name:
        folder = (given.folder or Path(name)).absolute()
        ways = {}
        for policy in ("default", *given.policy):
            ways[policy] = linked(given.corpus, policy, given.compiler, folder / Path(policy).name)
        commands = {policy: command(made, given.program) for policy, made in ways.items()}
        seconds = {policy: np.zeros(given.rounds) for policy in ways}
        expected = run(*commands["default"], arguments)[1]  # and what it reads is in memory now
        for number in range(given.rounds):
            for policy in list(ways) if number % 2 == 0 else reversed(ways):
                seconds[policy][number], shown = run(*commands[policy], arguments)
                if shown != expected:
                    sys.exit(f"{policy}: the program does not do what it does by default")
    chance = np.random.default_rng(0).integers(0, given.rounds, (2000, given.rounds))
    print(f"{given.program}: median processor time of {given.rounds} runs")
    for policy, took in seconds.items():
        ratios = took / seconds["default"]
        low, high = np.quantile(np.median(ratios[chance], axis=1), (0.025, 0.975))
        print(f"{policy:14} {np.median(took):8.3f} s  {np.median(ratios):.3f} ({low:.3f} to {high:.3f})")


def linked(corpus: Path, policy: str, compiler: str, folder: Path) -> Path:
    """Link a build's products again, of objects for which a policy decides, and return their folder."""
    products = folder / "linked" / "products"
    if not products.is_dir():
        objects = folder / "objects"
        trace_corpus(corpus, folder / "trace", policy=policy, compiler=compiler, keep_objects=objects, force=True)
        relink_corpus(corpus, folder / "linked", objects=objects, force=True)
    return products


def command(products: Path, program: str) -> tuple[Path, dict[str, str]]:
    """Return the path of a program, and an environment in which it finds the products that are shared libraries."""
    files = [path for path in sorted(products.rglob("*")) if path.is_file()]
    links = products.parent / "libraries"
    links.mkdir(exist_ok=True)
    for path in files:
        stem, so, versions = path.name.partition(".so")
        parts = versions.split(".")  # libz.so.1.2 is also looked for as libz.so.1 and as libz.so
        for count in range(1, len(parts) + 1) if so else ():
            link = links / (stem + so + ".".join(parts[:count]))
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    found = [path for path in files if path.as_posix().endswith(f"/{program.lstrip('/')}")]
    place = found[0] if len(found) == 1 else Path(program).absolute()
    if not place.is_file():
        sys.exit(f"{program}: expected the end of the name of one product, or a program, found {len(found)} products")
    return place, {**os.environ, "LD_LIBRARY_PATH": str(links)}


def run(program: Path, environment: dict[str, str], arguments: list[str]) -> tuple[float, tuple[int, bytes]]:
    """Run a program, and return its processor time, its exit code and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        (program, *arguments), env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, (done.returncode, done.stdout)


if __name__ == "__main__":
    main()
