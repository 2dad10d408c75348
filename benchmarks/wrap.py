"""What a clang with a policy inside takes, against the clang without: each compile of a build by each, in turn.

    python benchmarks/wrap.py COMPILE_COMMANDS.JSON [--policy POLICY] [--compiler clang-22] [--rounds 3]
        [--release FOLDER]

Without a policy: 300 trees of 31 leaves, of which one decides by the cost and the others make next to no difference, so
that what both compile is nearly the same; ``--save FOLDER`` writes it, to link it in. FOLDER/bin/clang of ``toolchain
build --mode release`` has to be of the same LLVM, and is told to ask its policy. The compile commands are those of the
database; their compiler is replaced, and what they make goes to a temporary folder. Shown are sums of each file's least
times, because a machine has other things to do; processor time has all processes of a compile.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from runtimes import iter_compiles, placed

from mlgo_corpus import LearnedPolicy, wrap_toolchain
from mlgo_corpus.dataset.logs import open_log
from mlgo_corpus.formats.logs.blocks import BlockReader
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.models import Trees

LOGS = Path(__file__).parents[1] / "tests" / "data" / "training-logs"
TREES, LEAVES = 300, 31
_ASKING = ("-mllvm", "-enable-ml-inliner=release", "-mllvm", "-ml-advisor-size-increase-threshold=1e9")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("database", type=Path)
    parser.add_argument("--policy")
    parser.add_argument("--compiler", default="clang")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--release", type=Path)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    if given.save is not None:
        made_up_policy().save(given.save)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = given.policy or folder / "policy"
        if given.policy is None:
            made_up_policy().save(folder / "policy")
        wrapped = wrap_toolchain(policy, folder / "wrapped", compiler=given.compiler, cache=folder).wrapped
        stock = wrapped.compiler[0]
        ways: dict[str, tuple[str, str, tuple[str, ...]]] = {
            "plain": (stock, stock.replace("clang", "clang++", 1), ()),
            "wrapped": (str(wrapped.clang), f"{wrapped.clang}++", ()),
        }
        if given.release is not None:
            clang = given.release.absolute() / "bin" / "clang"
            ways["release mode"] = (str(clang), f"{clang}++", _ASKING)
        sums = np.zeros((len(ways), 2))
        count = 0
        for one in iter_compiles(given.database):
            words = placed(one.words, folder)
            least = np.full((len(ways), 2), np.inf)
            for turn in range(given.rounds):
                order = range(len(ways))
                for which in order if turn % 2 == 0 else reversed(order):
                    c, cxx, options = list(ways.values())[which]
                    took = timed((cxx if one.cxx else c, *words, *options), one.folder)
                    least[which] = np.minimum(least[which], took)
            sums += least
            count += 1
    print(f"{count} compiles by {stock}, without and with {wrapped.policy}")
    print(f"{'':14} {'wall s':>8} {'cpu s':>8} {'wall':>8} {'cpu':>8}")
    for way, (wall, cpu), (wall_ratio, cpu_ratio) in zip(ways, sums, sums / sums[0], strict=True):
        print(f"{way:14} {wall:8.2f} {cpu:8.2f} {wall_ratio:8.3f} {cpu_ratio:8.3f}")


def timed(words: Sequence[str], directory: str) -> tuple[float, float]:
    """Run a compile, and return its wall time and its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(words, cwd=directory, env={**os.environ, "CCACHE_DISABLE": "1"}, check=True)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def made_up_policy() -> LearnedPolicy:
    """Return a policy of many trees that inlines what costs at most 5."""
    with open_log(next(LOGS.glob("inlining.*.log"))) as source:
        names = [spec.name for spec in BlockReader(source).header.features]
    features = tuple(TensorSpec(name) for name in names if not name.startswith("inlining_"))
    draw = np.random.default_rng(3)
    roots, feature, threshold, children = [0], [names.index("cost_estimate")], [5.0], [[~0, ~1]]
    leaves = [1.0, -1.0]
    for _ in range(TREES - 1):
        roots.append(len(feature))
        ends: list[tuple[int, int]] = []
        for _ in range(LEAVES - 1):
            if ends:
                node, side = ends.pop(int(draw.integers(len(ends))))
                children[node][side] = len(feature)
            ends += [(len(feature), 0), (len(feature), 1)]
            feature.append(int(draw.integers(len(features))))
            threshold.append(float(draw.choice([0, 1, 2, 5, 10, 30, 100])) + 0.5)
            children.append([0, 0])
        for node, side in ends:
            children[node][side] = ~len(leaves)
            leaves.append(float(draw.normal()) * 1e-6)
    parts = map(np.array, (roots, feature, threshold, children, leaves))
    trees = Trees(0.0, *parts)  # type: ignore[arg-type] # five arrays
    return LearnedPolicy("inlining-0.1", "inlining", features, trees)


if __name__ == "__main__":
    main()
