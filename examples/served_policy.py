"""Serve a policy from elsewhere: a model in a Ray actor decides for many compilers at once, in batches.

    pip install 'mlgo-corpus[ray]'
    python examples/served_policy.py CORPUS --compiler clang-22

A model that is large, or on a GPU, or still being trained, cannot be in every process that runs a session. Here it is
in one process, and decides inlining for all of them. The session stays beside the compiler, in a host of
`SharedWorkers`; only a decision's features and the decision cross the network.

A compiler waits for each decision. So a batch consists of what several compilers ask at the same time: the model waits
until all of them have asked, or for a millisecond, and answers them together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import ray

from mlgo_corpus import SharedWorkers, Tracer

NAMESPACE = "served-policy-example"
FEATURES = ("callee_basic_block_count", "callsite_height", "node_count", "callee_users", "cost_estimate")


WEIGHTS = np.array([-1.0, -0.5, 0.0, -2.0, -0.2])


def decide_all(rows: np.ndarray) -> list[int]:
    """Decide for all rows of a matrix at once, with a linear model in place of yours."""
    return (rows @ WEIGHTS > -20.0).astype(int).tolist()


def row_of(observation: np.void) -> np.ndarray:
    """Return the model's input for an observation."""
    return np.array([observation[name] for name in FEATURES], np.float64)


class Model:
    """Collects the questions of compilers, and answers them together."""

    def __init__(self, most: int, wait_s: float = 0.001) -> None:
        self.most = most
        self.wait_s = wait_s
        self.waiting: list[tuple[bytes, asyncio.Future]] = []
        self.batches = self.decisions = 0

    def answer(self, batch: list[tuple[bytes, asyncio.Future]]) -> None:
        """Decide for a batch."""
        rows = np.frombuffer(b"".join(row for row, _ in batch), np.float64).reshape(len(batch), -1)
        self.batches += 1
        self.decisions += len(batch)
        for (_, future), decision in zip(batch, decide_all(rows), strict=True):
            future.set_result(decision)

    def flush(self, batch: list[tuple[bytes, asyncio.Future]]) -> None:
        """Decide for a batch, unless that is already done."""
        if batch is self.waiting:
            self.waiting = []
            self.answer(batch)

    async def decide(self, row: bytes) -> int:
        """Decide on one compiler's features, together with other current questions."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.waiting.append((row, future))
        if len(self.waiting) >= self.most:
            self.flush(self.waiting)
        elif len(self.waiting) == 1:
            loop.call_later(self.wait_s, self.flush, self.waiting)
        return await future

    async def counts(self) -> tuple[int, int]:
        """Return the numbers of batches and decisions."""
        return self.batches, self.decisions


class Served:
    """The policy, which asks the model. Hosts get it by value; it finds the model by name."""

    features = FEATURES

    def __init__(self, model: str) -> None:
        self.name = model

    def reset(self, header, module: str) -> None:  # noqa: ARG002 - it is the same for all
        """Find the model."""
        self.model = ray.get_actor(self.name, namespace=NAMESPACE)

    def advise(self, observation: np.void) -> int:
        """Ask."""
        return ray.get(self.model.decide.remote(row_of(observation).tobytes()))


class Local:
    """The same policy, with a model small enough for the host itself."""

    features = FEATURES

    def reset(self, header, module: str) -> None:
        """Do nothing."""

    def advise(self, observation: np.void) -> int:
        """Decide."""
        return decide_all(row_of(observation)[np.newaxis])[0]


def measure(compilers: int, modules: int, options: argparse.Namespace, cache: str) -> dict[str, float]:
    """Trace the corpus with several compilers at a time."""
    name = f"model for {compilers}"
    model = ray.remote(Model).options(name=name, namespace=NAMESPACE, num_cpus=0, max_concurrency=1000)
    model = model.remote(compilers)
    with SharedWorkers(hosts=1, threads_per_host=compilers, cpus_per_host=1) as shared:
        tracer = shared.create(Tracer, options.corpus.absolute(), options.compiler, policy=Local, cache=cache)
        names = tracer.call("names").result()[:modules]
        run(tracer, names, "never")  # plain compiles are cached from here on
        local, local_s = run(tracer, names, Local())
        rows, seconds = run(tracer, names, Served(name))
        tracer.release()
    batches, decisions = ray.get(model.counts.remote())
    ray.kill(model)
    if [row.object_sha256 for row in rows] != [row.object_sha256 for row in local]:
        raise SystemExit("the served model did not decide as the local one does")
    return {
        "compilers": compilers,
        "decisions": decisions,
        "seconds": seconds,
        "per_second": decisions / seconds,
        "batch": decisions / batches,
        "local_per_second": decisions / local_s,
        "observations": sum(row.observations for row in rows),
        "text_size": sum(row.text_size for row in rows),
    }


def run(tracer, names: list[str], policy: object) -> tuple[list, float]:
    """Trace modules with a policy; return their rows and the seconds."""
    begin = time.perf_counter()
    calls = [tracer.call("trace", name, policy=policy) for name in names]
    rows = [call.result(timeout=600).row for call in calls]
    failed = [f"{row.module}: {row.detail}" for row in rows if row.status != "ok"]
    if failed:
        raise SystemExit(f"{len(failed)} modules failed: {failed[0]}")
    return rows, time.perf_counter() - begin


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--compiler", help="a clang on the hosts (default: the best one found there)")
    parser.add_argument("--address", help="of a Ray cluster (default: the one of this machine, or one made here)")
    parser.add_argument("--compilers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--modules", type=int, default=34, help="how many modules to trace")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ray.init(options.address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as cache:
        rows = [measure(compilers, options.modules, options, cache) for compilers in options.compilers]
    ray.shutdown()
    if options.json:
        print(json.dumps(rows))
        return
    print("compilers  decisions  seconds  decisions/s  mean batch  decisions/s without a server")
    line = "{compilers:9} {decisions:10} {seconds:8.1f} {per_second:12.0f} {batch:11.1f} {local_per_second:29.0f}"
    for row in rows:
        print(line.format(**row))


if __name__ == "__main__":
    main()
