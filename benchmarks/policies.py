"""What a learned policy's decision takes: by numpy, many at once and one; by its shared object; and in C.

    python benchmarks/policies.py [LOG...] [--policy FOLDER] [--rounds 5]

Without a policy: a rule, 300 trees of 31 leaves, and a network of 76-40-40-20, all with random numbers, whose
thresholds and edges are values that compilers sent. The observations are those of training logs of inlining, by default
those of tests/data.
The best of some rounds is shown, because a machine has other things to do.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlgo_corpus import LearnedPolicy, compile_policy, load_policy, read_log
from mlgo_corpus.formats.logs.tasks import INLINING
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.compiled import LIBRARY_NAME, CompiledPolicy
from mlgo_corpus.policies.models import Network, Quantiles, Rule, Trees

LOGS = Path(__file__).parents[1] / "tests" / "data" / "training-logs"
WIDTHS = (40, 40, 20, 1)

# Reads rows of int64, and decides about each, again and again; the best round counts.
DRIVER = """\
#include "policy.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv) {
  int count = mlgo_policy_feature_count();
  long rows = atol(argv[1]), repeats = atol(argv[2]), inlined = 0;
  int64_t *data = malloc(rows * count * sizeof *data), decision;
  const void **features = malloc(count * sizeof *features);
  if (fread(data, sizeof *data, rows * count, stdin) != (size_t)(rows * count))
    return 1;
  struct timespec begin, end;
  double best = 1e9;
  for (long repeat = 0; repeat < repeats; ++repeat) {
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long row = 0; row < rows; ++row) {
      for (int i = 0; i < count; ++i)
        features[i] = data + row * count + i;
      mlgo_policy_decide(features, &decision);
      inlined += decision;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double took = (end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9) / rows;
    best = took < best ? took : best;
  }
  printf("%.9f %ld\\n", best, inlined);
  return argc != 3;
}
"""


def observations(logs: list[Path]) -> tuple[tuple[TensorSpec, ...], Any]:
    """Return the features of logs of inlining, and all observations as records."""
    columns: dict[str, list[Any]] = {}
    for path in logs:
        for name, values in read_log(path).to_numpy().items():
            columns.setdefault(name, []).append(values)
    names = [name for name in columns if name not in ("inlining_default", "inlining_decision", "reward")]
    records = np.empty(sum(map(len, columns[names[0]])), [(name, "<i8") for name in names])
    for name in names:
        records[name] = np.concatenate(columns[name])
    return tuple(TensorSpec(name) for name in names), records


def forest(inputs: int, at: Any, draw: np.random.Generator, *, trees: int = 300, leaves: int = 31) -> Trees:
    """Return trees of random shape."""
    roots, feature, threshold, children = [], [], [], []
    count = 0
    for _ in range(trees):
        places = [(-1, 0)]
        roots.append(len(feature))
        for node in range(len(feature), len(feature) + leaves - 1):
            parent, side = places.pop(int(draw.integers(len(places))))
            if parent >= 0:
                children[parent][side] = node
            column = int(draw.integers(inputs))
            feature.append(column)
            threshold.append(float(draw.choice(at[:, column])))
            children.append([0, 0])
            places += [(node, 0), (node, 1)]
        for parent, side in places:
            children[parent][side] = ~count
            count += 1
    numbers = (np.array(values, np.int32) for values in (roots, feature))
    return Trees(0.0, *numbers, np.array(threshold), np.array(children, np.int32), draw.normal(size=count))


def network(inputs: int, at: Any, draw: np.random.Generator) -> Network:
    """Return a network of the size of ml-compiler-opt's."""
    quantiles = tuple(Quantiles(np.sort(draw.choice(at[:, number], 999))) for number in range(inputs))
    sizes = (2 * inputs, *WIDTHS)
    layers = tuple((draw.normal(size=pair), draw.normal(size=pair[1])) for pair in zip(sizes, WIDTHS, strict=False))
    return Network(quantiles, layers, squares=True)


def policies(features: tuple[TensorSpec, ...], records: Any) -> Iterator[LearnedPolicy]:
    """Yield a policy of each kind."""
    draw = np.random.default_rng(0)
    at = np.column_stack([records[spec.name] for spec in features]).astype(np.float64)
    count = len(features)
    for model in (Rule(0.0, tuple(draw.normal(size=count))), forest(count, at, draw), network(count, at, draw)):
        yield LearnedPolicy("inlining-1.0", INLINING, features, model)


def best(rounds: int, work: Callable[[], float]) -> float:
    """Return the least of what some rounds give."""
    return min(work() for _ in range(rounds))


def seconds(work: Callable[[], Any]) -> float:
    """Return how long something takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(policy: LearnedPolicy, records: Any, rounds: int, folder: Path) -> None:
    """Print the figures of one policy."""
    policy.save(folder / "policy", force=True)
    took = compile_policy(folder / "policy", folder / "out", force=True).seconds
    (folder / "out" / "driver.c").write_text(DRIVER)
    flags = ("-O2", "-ffp-contract=off", "-std=gnu99")
    subprocess.run(("cc", *flags, "driver.c", "policy.c", "-o", "driver"), cwd=folder / "out", check=True)
    rows = np.column_stack([records[spec.name] for spec in policy.features]).astype("<i8").tobytes()
    many = np.tile(records, max(1, 20_000 // len(records)))
    few = records[:100]
    fast = CompiledPolicy(policy, folder / "out" / LIBRARY_NAME)

    def in_c() -> float:
        repeats = max(1, 20_000 // len(records))
        argv = (folder / "out" / "driver", str(len(records)), str(repeats))
        return float(subprocess.run(argv, input=rows, stdout=subprocess.PIPE, check=True).stdout.split()[0])

    figures = (
        best(rounds, lambda: seconds(lambda: policy.decide(many)) / len(many)),
        best(rounds, lambda: seconds(lambda: [policy.advise(record) for record in few]) / len(few)),
        best(rounds, lambda: seconds(lambda: [fast.advise(record) for record in few]) / len(few)),
        best(rounds, in_c),
    )
    shown = "".join(f"{figure * 1e6:>12.2f}" for figure in figures)
    print(f"{policy.kind:<8}{policy.model.described():<40}{took:>10.2f}{shown}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    features, records = observations(arguments.logs or sorted(LOGS.glob("inlining.*.log")))
    print(f"{len(records)} observations; microseconds a decision")
    columns = ("numpy, many", "numpy, one", "from Python", "in C")
    print(f"{'kind':<8}{'model':<40}{'compile s':>10}" + "".join(f"{name:>12}" for name in columns))
    with tempfile.TemporaryDirectory() as name:
        for number, policy in enumerate(
            [load_policy(arguments.policy)] if arguments.policy else policies(features, records)
        ):
            folder = Path(name) / str(number)  # a library that is loaded would be taken for another in its place
            folder.mkdir()
            measure(policy, records, arguments.rounds, folder)


if __name__ == "__main__":
    main()
