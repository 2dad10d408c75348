"""Compare the Ray engine with the local one on the same modules: time, overhead per task, the driver's memory.

The modules are Lua's from ``tests/data``, several copies of each, compiled again by ``verify --rebuild`` with 1 and 2
workers. Local and Ray take turns; the result is the median of the rounds' ratios: Ray to local, and two workers to one.
Ray's seconds include connecting, starting its workers, and stopping them.

A cluster of one machine with two CPUs is started in a network namespace of its own, with the loopback device only.

    benchmarks/engine.py [--modules N] [--rounds N] [--tasks N] [--compiler clang-22]
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mlgo_corpus import EngineChoice, extract_corpus, verify_corpus
from mlgo_corpus.engine.map import parallel_map

ROOT = Path(__file__).parents[1]
NAMESPACE = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "-")


def build(folder: Path, count: int) -> Path:
    """Make a corpus of ``count`` modules, with their objects in the folder."""
    with tarfile.open(ROOT / "tests" / "data" / "lua-clang22.tar.gz") as tar:
        tar.extractall(folder / "once", filter="data")
    objects = folder / "objects"
    originals = sorted((folder / "once").rglob("*.o"))
    for number in range(count):
        place = objects / str(number // len(originals)) / originals[number % len(originals)].name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(originals[number % len(originals)], place)
    report = extract_corpus([objects], folder / "corpus")
    print(f"{report.modules} modules, {report.bitcode_bytes / 1e6:.1f} MB of bitcode; load {os.getloadavg()[0]:.1f}")
    return folder / "corpus"


def no_operation(item: int) -> int:
    """Do nothing."""
    return item


def rebuild(folder: Path, corpus: Path, compiler: str, jobs: int, engine: EngineChoice) -> float:
    """Compile all modules again, and return the seconds."""
    certificate = folder / "rebuild.parquet"
    began = time.perf_counter()
    report = verify_corpus(
        corpus, output=certificate, rebuild=True, build_dirs=[folder / "objects"], compiler=compiler, jobs=jobs,
        engine=engine, force=True, cache=folder / "cache",
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if report.rebuild is None or report.rebuild.bad:
        sys.exit(f"a module is not what it was: {report.rebuild}")
    certificate.unlink()
    return seconds


def throughput(folder: Path, options: argparse.Namespace, ray: EngineChoice) -> None:
    """Print the time of the same work on both engines."""
    corpus = build(folder, options.modules)
    kinds: dict[str, Callable[[], float]] = {
        f"{name}, {jobs}": partial(rebuild, folder, corpus, options.compiler, jobs, engine)
        for jobs in (1, 2)
        for name, engine in (("local", EngineChoice()), ("ray", ray))
    }
    kinds["local, 2"]()  # probes the compiler, warms the page cache
    seen: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, run in kinds.items():
            seen[name].append(run())
    for name, seconds in seen.items():
        middle = statistics.median(seconds)
        print(f"{name:10} {middle:7.2f} s  {options.modules / middle:6.1f} modules/s  ({_spread(seconds)})")
    for text, first, second in (
        ("ray to local, 1 worker", "ray, 1", "local, 1"),
        ("ray to local, 2 workers", "ray, 2", "local, 2"),
        ("local, 1 worker to 2", "local, 1", "local, 2"),
        ("ray, 1 worker to 2", "ray, 1", "ray, 2"),
    ):
        ratios = [one / other for one, other in zip(seen[first], seen[second], strict=True)]
        print(f"{text:24} {statistics.median(ratios):5.2f}  ({_spread(ratios)})")


def _spread(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def _weight(weight: float, _: int) -> float:
    return weight


def overhead(options: argparse.Namespace, ray: EngineChoice) -> None:
    """Print the cost of an empty task, one at a time and in chunks, and the driver's memory meanwhile."""
    for name, engine in (("local", EngineChoice()), ("ray", ray)):
        for text, weight, count in (("alone", 1.0, options.tasks // 10), ("in chunks", 0.0, options.tasks)):
            weigh = partial(_weight, weight)
            results = parallel_map(no_operation, range(count), jobs=2, limit=60, engine=engine, weigh=weigh)
            for _ in range(1000):  # the workers have started
                next(results)
            began, first = time.perf_counter(), _memory()
            for _ in results:
                pass
            each = (time.perf_counter() - began) / (count - 1000)
            grown = (_memory() - first) / 1e6
            print(f"{name:6} {text:10} {each * 1e6:7.1f} us a task, {count} tasks; the driver grew by {grown:.1f} MB")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--compiler", default="clang-22")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tasks < 20_000:
        parser.error("--tasks: expected at least 20000: the first thousand of a tenth of them are not measured")
    if not options.inside:
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}"}
        os.execvp("unshare", (*NAMESPACE, sys.executable, __file__, *sys.argv[1:], "--inside"))  # noqa: S606 - itself
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 100 << 20, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    ray = EngineChoice("ray", cluster.address)
    try:
        overhead(options, ray)
        with tempfile.TemporaryDirectory(prefix="mlgo-bench-") as name:
            throughput(Path(name), options, ray)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
