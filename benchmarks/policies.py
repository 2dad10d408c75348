"""What a learned policy's decision takes, and whether all that decide by it decide alike, to the bit.

    python benchmarks/policies.py [LOG or DATASET...] [--policy POLICY] [--rounds 5]

The observations are those of training logs and of datasets, by default the logs of inlining in tests/data; with each go
200 of numbers that are hard: NaN, infinities, the least and the greatest. Without a policy: a rule, 300 trees of 31
leaves, and a network of 76-40-40-20, all with random numbers, whose thresholds and edges are values that compilers
sent; a call is inlined if its score is above the median of all, which one of them has.

Shown are microseconds of a decision: by numpy, many at once and one; by the shared object, as a session of Python's
asks it; and in C. The best of some rounds counts, because a machine has other things to do. Each decision is compared:
that of the C, which development mode and the native host of sessions are made of; that of the class for LLVM, by both
its ways; and that of the shared object.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.policies

from mlgo_corpus import LearnedPolicy, compile_policy, read_log
from mlgo_corpus.dataset.observations import column_names
from mlgo_corpus.dataset.rows import column_values, open_rows
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import INLINING, TASKS, Task
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.compiled import LIBRARY_NAME, CompiledPolicy
from mlgo_corpus.policies.embedded import model_header, model_name
from mlgo_corpus.policies.learned import named_policy
from mlgo_corpus.policies.models import Network, Quantiles, Rule, Trees
from tests.policies.samples import columns_of, dtype_of, extremes

LOGS = Path(__file__).parents[1] / "tests" / "data" / "training-logs"
WIDTHS = (40, 40, 20, 1)
HARD = 200

# Reads observations, and decides about each, again and again; the best round counts. Writes the decisions: by the
# functions of policy.h, by a model's Run(), and by its operator().
DRIVER = """\
#include "policy.h"
#include "@model@.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
int main(int, char **argv) {
  const long rows = std::atol(argv[1]), repeats = std::atol(argv[2]);
  const int count = mlgo_policy_feature_count();
  std::vector<std::size_t> starts(1, 0);
  for (int i = 0; i < count; ++i)
    starts.push_back(starts[i] + mlgo_policy_feature_size(i) * (mlgo_policy_feature_type(i)[0] == 'i' ? 8 : 4));
  std::vector<char> data(rows * starts[count]);
  if (std::fread(data.data(), 1, data.size(), stdin) != data.size())
    return 1;
  llvm::@model@ model;
  using Decision = decltype(model());
  std::vector<Decision> found(rows), run(rows), called(rows);
  std::vector<const void *> features(count);
  double best = 1e9;
  for (long repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    for (long row = 0; row < rows; ++row) {
      for (int i = 0; i < count; ++i)
        features[i] = data.data() + row * starts[count] + starts[i];
      mlgo_policy_decide(features.data(), &found[row]);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = took.count() / rows < best ? took.count() / rows : best;
  }
  for (long row = 0; row < rows; ++row) {
    const char *at = data.data() + row * starts[count];
    for (int i = 0; i < count; ++i)
      std::memcpy(model.arg_data(model.LookupArgIndex(std::string("feed_") + mlgo_policy_feature_name(i))),
                  at + starts[i], starts[i + 1] - starts[i]);
    model.Run();
    std::memcpy(&run[row], model.result_data(model.LookupResultIndex("fetch_@decision@")), sizeof(Decision));
    for (int i = 0; i < count; ++i) {
      char *place = model.reflectionMap[mlgo_policy_feature_name(i)];
      std::memset(place, 0, starts[i + 1] - starts[i]);
      std::memcpy(place, at + starts[i], starts[i + 1] - starts[i]);
    }
    called[row] = model();
  }
  for (const auto &decisions : {found, run, called})
    std::fwrite(decisions.data(), sizeof(Decision), rows, stdout);
  std::fprintf(stderr, "%.9f\\n", best);
}
"""


def read(path: Path) -> tuple[LogHeader, dict[str, Any]]:
    """Return the header of a log or of a dataset, and its columns."""
    if not path.is_dir():
        log = read_log(path)
        return log.header, log.to_numpy()
    rows = open_rows(path)
    names = column_names(rows.header)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    last = max((after for _, after in rows.ranges()), default=0)
    for _, batch in rows.iter_batches(list(names), 0, last):
        for name, spec in zip(names, rows.header.columns, strict=True):
            values = column_values(batch, name, spec.element_count)
            columns[name].append(values.reshape(-1, *(() if spec.is_scalar else spec.shape)))
    return rows.header, {name: np.concatenate(pieces) for name, pieces in columns.items()}


def observations(paths: list[Path]) -> Iterator[tuple[Task, tuple[TensorSpec, ...], Any]]:
    """Yield each task of which there are observations, with its features, and all observations as records."""
    for task in TASKS:
        found = [read(path) for path in paths]
        found = [(header, columns) for header, columns in found if task.decision in columns]
        if not found:
            continue
        left_out = ("inlining_default", task.decision)
        features = tuple(spec for spec in found[0][0].features if spec.name not in left_out)
        records = np.empty(sum(len(columns[task.decision]) for _, columns in found), dtype_of(features))
        for spec in features:
            records[spec.name] = np.concatenate([columns[spec.name] for _, columns in found])
        yield task, features, records


def forest(inputs: int, at: Any, draw: np.random.Generator, *, trees: int = 300, leaves: int = 31) -> Trees:
    """Return trees of random shape."""
    roots: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    children: list[list[int]] = []
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
    leaf = draw.normal(size=count)
    first, second, third = (np.array(values, np.int32) for values in (roots, feature, children))
    return Trees(0.0, first, second, np.array(threshold), third, leaf)


def network(inputs: int, at: Any, draw: np.random.Generator) -> Network:
    """Return a network of the size of ml-compiler-opt's."""
    quantiles = tuple(Quantiles(np.sort(draw.choice(at[:, number], 999))) for number in range(inputs))
    sizes = (2 * inputs, *WIDTHS)
    layers = tuple((draw.normal(size=pair), draw.normal(size=pair[1])) for pair in zip(sizes, WIDTHS, strict=False))
    return Network(quantiles, layers, squares=True)


def policies(task: Task, features: tuple[TensorSpec, ...], records: Any) -> Iterator[LearnedPolicy]:
    """Yield a policy of each kind."""
    draw = np.random.default_rng(0)
    at = columns_of(features, records)
    count = len(features)
    for model in (Rule(0.0, tuple(draw.normal(size=count))), forest(count, at, draw), network(count, at, draw)):
        scores = np.sort(model.scores(at)) if task.name == INLINING else np.zeros(1)
        threshold = float(scores[len(scores) // 2])
        yield LearnedPolicy(f"{task.name}-1.0", task.name, features, model, threshold=threshold)


def best(rounds: int, work: Callable[[], float]) -> float:
    """Return the least of what some rounds give."""
    return min(work() for _ in range(rounds))


def seconds(work: Callable[[], Any]) -> float:
    """Return how long something takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def without_others(policy: LearnedPolicy, records: Any) -> Any:
    """Return observations of the policy's features only, without gaps, as `DRIVER` reads them."""
    rows = np.empty(len(records), dtype_of(policy.features))
    for spec in policy.features:
        rows[spec.name] = records[spec.name]
    return rows


def build_driver(policy: LearnedPolicy, folder: Path) -> Path:
    """Compile `DRIVER` with the files of ``policy compile``; return the program."""
    model, task = model_name(policy.task), next(task for task in TASKS if task.name == policy.task)
    (folder / f"{model}.h").write_text(model_header(policy))
    text = DRIVER.replace("@model@", model).replace("@decision@", task.decision)
    (folder / "driver.cpp").write_text(text)
    c = ("cc", "-std=c99", "-O2", "-ffp-contract=off", "-c", "policy.c")
    subprocess.run(c, cwd=folder, check=True)
    subprocess.run(("c++", "-std=c++17", "-O2", "driver.cpp", "policy.o", "-o", "driver"), cwd=folder, check=True)
    return folder / "driver"


def measure(policy: LearnedPolicy, records: Any, rounds: int, folder: Path) -> None:
    """Print the figures of one policy; end if two decide differently."""
    policy.save(folder / "policy", force=True)
    took = compile_policy(folder / "policy", folder / "out", force=True).seconds
    driver = build_driver(policy, folder / "out")
    records = without_others(policy, records)
    repeats = max(1, 20_000 // len(records))
    many = np.tile(records, repeats)
    few = records[:100]
    fast = CompiledPolicy(policy, folder / "out" / LIBRARY_NAME)

    def in_c(asked: Any) -> tuple[Any, float]:
        argv = (str(driver), str(len(asked)), str(repeats))
        done = subprocess.run(argv, input=asked.tobytes(), capture_output=True, check=True)
        found = np.frombuffer(done.stdout, "<f4" if policy.decision_type == "float" else "<i8")
        return found.reshape(3, len(asked)), float(done.stderr)

    hard = np.concatenate([records, extremes(policy.features, HARD, 1)])
    expected = policy.decide(hard)
    for found in (*in_c(hard)[0], np.array([fast.advise(record) for record in hard], expected.dtype)):
        np.testing.assert_array_equal(found, expected)  # NaN is NaN
    figures = (
        best(rounds, lambda: seconds(lambda: policy.decide(many)) / len(many)),
        best(rounds, lambda: seconds(lambda: [policy.advise(record) for record in few]) / len(few)),
        best(rounds, lambda: seconds(lambda: [fast.advise(record) for record in few]) / len(few)),
        best(rounds, lambda: in_c(records)[1]),
    )
    shown = "".join(f"{figure * 1e6:>12.2f}" for figure in figures)
    print(f"{policy.kind:<8}{policy.model.described():<40}{took:>10.2f}{shown}{len(hard):>12}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("observations", nargs="*", type=Path)
    parser.add_argument("--policy")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    columns = ("numpy, many", "numpy, one", "from Python", "in C", "alike")
    with tempfile.TemporaryDirectory() as name:
        for task, features, records in observations(arguments.observations or sorted(LOGS.glob("inlining.*.log"))):
            given = [named_policy(arguments.policy)[1]] if arguments.policy else policies(task, features, records)
            print(f"{task.name}: {len(records)} observations, and {HARD} hard ones; microseconds a decision")
            print(f"{'kind':<8}{'model':<40}{'compile s':>10}" + "".join(f"{name:>12}" for name in columns))
            for number, policy in enumerate(given):
                if policy.task == task.name:
                    # A library that is loaded would be taken for another in its place.
                    folder = Path(name) / f"{task.name}-{number}"
                    folder.mkdir()
                    measure(policy, records, arguments.rounds, folder)


if __name__ == "__main__":
    main()
