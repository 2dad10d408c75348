"""Run two experiments that compile and train in turns, each on its own hosts, then both on the same hosts.

    pip install 'mlgo-corpus[ray]'
    python examples/shared_cluster.py CORPUS --compiler clang-22
    python examples/shared_cluster.py CORPUS --address ray-head:6379

Each experiment traces the same modules with its own policy, round after round, and trains on the result before it
traces again. Training is a sleep here, in place of a GPU elsewhere that is busy for as long as the compilers were.
While an experiment trains, its hosts are idle; shared hosts work for the other experiment.

Apart, the experiments run one after the other, as if each had its own machines, so that they do not compete for CPUs on
a small machine. The result is the number of modules traced per host hour.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlgo_corpus import SharedWorkers, Tracer

POLICIES = ("never", "random:0.5")


def trace_all(worker, names: list[str], policy: str) -> int:
    """Run the compile phase of an experiment, and return the number of decisions."""
    calls = [worker.call("trace", name, policy=policy) for name in names]
    return sum(call.result(timeout=600).row.observations for call in calls)


class Experiment:
    """Traces all modules in each round, then trains."""

    def __init__(self, cluster: str, corpus: Path, compiler: str | None, policy: str, cache: str) -> None:
        self.shared = SharedWorkers.attach(cluster)
        self.policy = policy
        self.worker = self.shared.create_everywhere(Tracer, corpus, compiler, policy=policy, cache=cache)

    def run(self, names: list[str], rounds: int, training_s: float) -> int:
        """Run all rounds; return the number of decisions."""
        decisions = 0
        for _ in range(rounds):
            decisions += trace_all(self.worker, names, self.policy)
            time.sleep(training_s)
        return decisions

    def close(self) -> None:
        """Leave the hosts."""
        self.worker.release()
        self.shared.close()


def measure(shared: SharedWorkers, work) -> dict[str, float]:
    """Run ``work()``, and return what the hosts did meanwhile."""
    before, begin = shared.hosts(), time.perf_counter()
    decisions = work()
    seconds = time.perf_counter() - begin
    after = shared.hosts()
    slots = sum(host.slots for host in after)
    busy = sum(host.busy_s for host in after) - sum(host.busy_s for host in before)
    return {"hosts": len(after), "seconds": seconds, "busy": busy / (slots * seconds), "decisions": decisions}


def main() -> None:
    """Run the experiments apart and together, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--compiler", help="a clang on the hosts (default: the best one found there)")
    parser.add_argument("--address", help="of a Ray cluster (default: the one of this machine, or one made here)")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--modules", type=int, default=12, help="how many modules to trace in a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    name = f"shared-cluster-example-{time.time_ns()}"
    with (
        tempfile.TemporaryDirectory() as cache,
        SharedWorkers(options.hosts, address=options.address, threads_per_host=1, name=name) as shared,
    ):
        experiments = [
            Experiment(name, options.corpus.absolute(), options.compiler, policy, cache) for policy in POLICIES
        ]
        with shared.create(Tracer, options.corpus.absolute(), options.compiler, cache=cache) as tracer:
            names = list(tracer.call("names").result())
        names = names[:: max(1, len(names) // options.modules)][: options.modules]

        for experiment in experiments:  # plain compiles are cached from here on
            experiment.run(names, 1, 0.0)
        begin = time.perf_counter()
        for experiment in experiments:
            experiment.run(names, 1, 0.0)
        training_s = (time.perf_counter() - begin) / len(experiments)

        apart = [
            measure(shared, lambda experiment=experiment: experiment.run(names, options.rounds, training_s))
            for experiment in experiments
        ]

        def both() -> int:
            with ThreadPoolExecutor(len(experiments)) as pool:
                return sum(pool.map(lambda experiment: experiment.run(names, options.rounds, training_s), experiments))

        together = measure(shared, both)
        for experiment in experiments:
            experiment.close()

    traced = len(names) * options.rounds
    rows = [(f"apart: {policy}", traced, row) for policy, row in zip(POLICIES, apart, strict=True)]
    rows.append(("together", traced * len(POLICIES), together))
    per_host = [3600 * modules / (row["hosts"] * row["seconds"]) for _, modules, row in rows]
    all_apart = 3600 * traced * len(POLICIES) / sum(row["hosts"] * row["seconds"] for row in apart)
    gain = per_host[-1] / all_apart
    if options.json:
        measured = {title: {**row, "modules": modules} for title, modules, row in rows}
        print(json.dumps({"training_s": training_s, "gain": gain, "threads": threading.active_count(), **measured}))
        return
    print(f"{len(names)} modules a round, {options.rounds} rounds, training for {training_s:.1f} s after each")
    print(f"{'':18} hosts  seconds  modules  busy   modules per host and hour")
    for (title, modules, row), rate in zip(rows, per_host, strict=True):
        busy = f"{row['busy']:.0%}"
        print(f"{title:18} {row['hosts']:5} {row['seconds']:8.1f} {modules:8} {busy:>5} {rate:12.0f}")
    print(f"sharing hosts gives {gain:.2f} times the throughput per host")


if __name__ == "__main__":
    main()
