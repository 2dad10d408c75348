"""Learn a small inlining policy in environments, by evolution, and save it as a policy that `mlgo-corpus` can use.

    pip install 'mlgo-corpus[rl]' cma
    python examples/evolve_policy.py CORPUS --output policy --test OTHER_CORPUS

The policy is a network of one layer: each feature becomes the share of observations that have no more of it, and a
call is inlined if a weighted sum of these is above 0. CMA-ES (the package `cma`) draws a dozen of such weights at a
time, all modules are compiled by each of them, in one environment for each CPU, and the bytes of text that result say
where to draw next. For rewards that come once an episode, and so few numbers to learn, that needs fewer compiles than a
gradient does, and no framework.

What was learned goes into a folder, as docs/policies.md and the module `mlgo_corpus.policies.learned` describe it, and
`mlgo_corpus.evaluate_corpus` measures it against LLVM's own decisions, on other code if there is some.
"""

from __future__ import annotations

import argparse
import json
import queue
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import numpy as np

from mlgo_corpus import InliningEnv, ModuleChoice, evaluate_corpus

with warnings.catch_warnings():  # that it cannot draw plots
    warnings.simplefilter("ignore")
    import cma

FEATURES = (
    "cost_estimate",
    "callee_users",
    "callee_basic_block_count",
    "caller_basic_block_count",
    "nr_ctant_params",
)
# It begins with: inline what costs less. LLVM's own limit at -Oz is 5.
COST = 30


class Policy:
    """Inlines if a weighted sum of features, each as a share of its quantiles, and a bias is above 0."""

    def __init__(self, edges: list[np.ndarray], bias: float, weights: np.ndarray) -> None:
        self.edges, self.bias, self.weights = edges, bias, weights

    def decide(self, observation: np.ndarray) -> int:
        """Return 1 to inline."""
        pairs = zip(self.edges, observation, strict=True)
        shares = [edges.searchsorted(value, side="right") / len(edges) for edges, value in pairs]
        return int(self.bias + self.weights @ shares > 0)

    def save(self, folder: Path, training: dict[str, object]) -> None:
        """Write it as a policy that `mlgo-corpus` reads."""
        policy = {
            "format": 1,
            "name": "inlining-0.1-evolved",
            "task": "inlining",
            "kind": "mlp",
            "features": [{"name": name, "type": "int64_t", "shape": [1]} for name in FEATURES],
            "decision": {"threshold": 0.0},
            "training": training,
        }
        arrays = {f"edges_{number}": edges for number, edges in enumerate(self.edges)}
        arrays |= {"weights_0": self.weights[:, None], "bias_0": np.array([self.bias])}
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "model.npz", squares=np.zeros(1, np.int32), **arrays)
        (folder / "policy.json").write_text(json.dumps(policy, indent=1) + "\n")


def compile_module(env: InliningEnv, module: str, decide: Callable[[np.ndarray], int]) -> tuple[int, int]:
    """Compile a module by a policy; return its bytes, and those by LLVM's own decisions."""
    observation, info = env.reset(options={"module": module})
    terminated = truncated = False
    while not terminated and not truncated:
        observation, _, terminated, truncated, info = env.step(decide(observation))
    # If the compiler failed, it is as if nothing were gained.
    return (0, 0) if truncated else (info["text_size"], info["baseline_text_size"])


class Compiles:
    """Environments for several compiles at a time."""

    def __init__(self, stack: ExitStack, make: partial[InliningEnv], jobs: int) -> None:
        self.envs: queue.SimpleQueue[InliningEnv] = queue.SimpleQueue()
        for _ in range(jobs):
            self.envs.put(stack.enter_context(closing(make())))
        self.pool = stack.enter_context(ThreadPoolExecutor(jobs))
        self.count = 0

    def one(self, module: str, policy: Policy) -> tuple[int, int]:
        """Compile in an environment that is free."""
        env = self.envs.get()
        try:
            return compile_module(env, module, policy.decide)
        finally:
            self.envs.put(env)

    def all(self, modules: list[str], policies: list[Policy]) -> list[float]:
        """Return the bytes of all modules by each of some policies, as a share of those by LLVM's own decisions."""
        self.count += len(policies) * len(modules)
        begun = [[self.pool.submit(self.one, module, policy) for module in modules] for policy in policies]
        sizes = [np.array([one.result() for one in of_policy]).sum(axis=0) for of_policy in begun]
        return [float(size / baseline) for size, baseline in sizes]


def modules_to_decide(env: InliningEnv, count: int) -> list[str]:
    """Draw some modules that have something to decide."""
    found: dict[str, None] = {}
    for attempt in range(20 * count):
        _, info = env.reset(seed=attempt)
        found[info["module"]] = None
        if len(found) == count:
            break
    return sorted(found)


def main() -> None:
    """Learn, save, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="a folder for the policy")
    parser.add_argument("--test", type=Path, help="another corpus, to evaluate the policy on (default: the same)")
    parser.add_argument("--compiler", help="a clang (default: the best one found)")
    parser.add_argument("--modules", type=int, default=12, help="how many to learn from")
    parser.add_argument("--filter", help="learn from modules in whose names this regular expression is found")
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--population", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin = time.perf_counter()
    choice = ModuleChoice(module_filter=options.filter)
    make = partial(InliningEnv, options.corpus, options.compiler, features=FEATURES, names=False, choice=choice)
    with ExitStack() as stack:
        compiles = Compiles(stack, make, options.jobs)
        env = compiles.envs.get()
        modules = modules_to_decide(env, options.modules)
        seen: list[np.ndarray] = []
        for module in modules:  # once, to see how large features are
            compile_module(env, module, lambda observation: seen.append(observation) or int(observation[0] < COST))
        compiles.envs.put(env)
        edges = [np.unique(np.quantile(column, np.linspace(0, 1, 101))) for column in np.transpose(seen)]
        start = np.zeros(1 + len(FEATURES))
        start[:2] = edges[0].searchsorted(COST, side="right") / len(edges[0]), -1
        strategy = cma.CMAEvolutionStrategy(
            start, 0.2, {"popsize": options.population, "seed": options.seed, "verbose": -9}
        )
        policies = [Policy(edges, start[0], start[1:])]
        shares = compiles.all(modules, policies)
        best, best_share = policies[0], shares[0]
        for generation in range(options.generations):
            points = strategy.ask()
            policies = [Policy(edges, point[0], point[1:]) for point in points]
            shares = compiles.all(modules, policies)
            strategy.tell(points, shares)
            if min(shares) < best_share:
                best_share = min(shares)
                best = policies[shares.index(best_share)]
            print(f"generation {generation + 1}: {100 * (best_share - 1):+.2f} % after {compiles.count} compiles")
    training = {"modules": modules, "compiles": compiles.count, "text": best_share}
    best.save(options.output, training)
    print(f"{options.output}: learned from {len(modules)} modules in {time.perf_counter() - begin:.0f} s")
    test = options.test or options.corpus
    evaluation = options.output.with_name(f"{options.output.name}-evaluation")
    report = evaluate_corpus(test, evaluation, policies=[str(options.output)], compiler=options.compiler, force=True)
    objects = report.policies[0].objects
    print(f"{test}: {100 * (objects.change or 0.0):+.2f} % of {objects.baseline} bytes in {objects.modules} modules")


if __name__ == "__main__":
    main()
