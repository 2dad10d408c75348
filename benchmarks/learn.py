"""Compare ways to learn inlining at equal compiles: imitation of a search, BC-Max, evolution, policy gradients.

Each compiles the modules of the training corpora so often on average, and what it learned is evaluated on corpora that
it has not seen. BC-Max (arXiv 2403.19462) is a baseline for this comparison: in rounds, each module is compiled by
decisions drawn from the policy, the best trajectory so far is kept (the first round also has LLVM's own, and those of
two simple rules), and a network is fitted to the kept ones by cross-entropy. The compiles that draw a curve are not
counted.

    benchmarks/learn.py --train CORPUS ... --test CORPUS ... --work FOLDER [--budget 60] [--seed 0] [--compiler clang]

A folder that is there goes on: what is done is not done again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from mlgo_corpus import EvaluationReport, LearnedPolicy, TensorSpec, evaluate_corpus, search_corpus, train_policy
from mlgo_corpus.cli.console import percent_change
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.engine.choice import HERE
from mlgo_corpus.learn.shapes import clone, informative, shape_for
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.runs.rollouts.run import SURVEY, Attempt, Columns, RolloutRequest, Rollouts

EPISODES = 8
NEURONS = 16
NOT_INPUTS = ("node_count", "edge_count", "inlining_default", "inlining_decision")
DOUBT = 0.15


def rule(cost: float) -> LearnedPolicy:
    """Return a policy that inlines what is estimated to cost less."""
    return LearnedPolicy("rule-1.0", "inlining", (TensorSpec("cost_estimate"),), Rule(cost, (-1.0,)))


def bc_max(corpora: list[str], output: Path, budget: int, seed: int, compiler: str) -> int:
    """Train by BC-Max; return how many compiles it took."""
    work = output.with_name(f"{output.name}.rollouts")
    how: dict[str, Any] = {"linked": True, "jobs": None, "cache": cache_folder(), "engine": HERE}
    rollouts = Rollouts(corpora, RolloutRequest(compiler), work, **how)
    plain = rollouts.survey()
    places = [place for place, one in enumerate(plain) if one.is_ok and one.decisions]
    best: dict[int, tuple[float, Columns]] = {}

    def keep(name: str, attempts: list[Attempt], outcomes: list[Any]) -> None:
        logs = rollouts.decisions(name, outcomes)
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            columns = next(logs) if outcome.log is not None else None
            if columns is None or not outcome.is_ok:
                continue
            if attempt.place not in best or outcome.objective < best[attempt.place][0]:
                best[attempt.place] = (outcome.objective, columns)

    keep(SURVEY, [Attempt(place) for place in range(len(plain))], plain)
    names = [name for name in next(iter(best.values()))[1] if name not in NOT_INPUTS]
    first = np.concatenate([matrix(columns, names) for _, columns in best.values()])
    names = [names[number] for number in informative(first)]
    shape = shape_for(np.concatenate([matrix(columns, names) for _, columns in best.values()]), NEURONS)
    features = tuple(TensorSpec(name) for name in names)
    compiles, number = len(places), 0
    while True:
        inputs = np.concatenate([matrix(columns, names) for _, columns in best.values()])
        decisions = np.concatenate([columns["inlining_decision"] for _, columns in best.values()])
        numbers = clone(shape, inputs, decisions, np.ones(len(decisions)), DOUBT, seed)
        policy = LearnedPolicy("bcmax-1.0", "inlining", features, shape.model(numbers))
        attempts = [Attempt(place, policy, f"{seed}:{number}:{place}:{n}") for place in places for n in range(EPISODES)]
        if not number:
            attempts += [Attempt(place, rule(cost)) for place in places for cost in (0.0, 30.0)]
        if compiles + len(attempts) > budget * len(places):
            break
        keep(f"round-{number}", attempts, rollouts.step(f"round-{number}", attempts, logs=True))
        compiles += len(attempts)
        number += 1
    policy.save(output)
    return compiles


def matrix(columns: Columns, names: list[str]) -> Any:
    """Return some features of many decisions."""
    return np.column_stack([columns[name].astype(np.float64) for name in names])


def main() -> None:
    """Train, evaluate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--test", nargs="+", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=60, help="compiles of each module; es and pg want at least 18")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiler", default="clang")
    options = parser.parse_args()
    work = options.work / f"budget-{options.budget}-seed-{options.seed}"
    usual = {"compiler": options.compiler, "seed": options.seed}
    work.mkdir(parents=True, exist_ok=True)
    compiles: dict[str, int] = {}
    for name in ("imitation", "bcmax", "es", "pg"):
        output, begin = work / name, time.perf_counter()
        if (output / "policy.json").exists():  # by an earlier run
            continue
        if name == "imitation":
            found = [work / f"found-{number}" for number in range(len(options.train))]
            done = [
                search_corpus(corpus, place, budget=options.budget, also=(), **usual)
                for corpus, place in zip(options.train, found, strict=True)
            ]
            train_policy(found, output, seed=options.seed)
            compiles[name] = sum(one.compiles for one in done)
        elif name == "bcmax":
            compiles[name] = bc_max(options.train, output, options.budget, options.seed, options.compiler)
        else:
            report = train_policy(
                (), output, algorithm=name, corpora=options.train, budget=options.budget, announce=print, **usual
            )
            compiles[name] = report.compiles
        print(f"{name}: {compiles[name]} compiles, {time.perf_counter() - begin:.0f} s", flush=True)
    policies = [str(work / name) for name in ("imitation", "bcmax", "es", "pg")]
    for number, corpus in enumerate(options.test):
        show(evaluate_corpus(corpus, work / f"sizes-{number}", policies=policies, **usual))


def show(report: EvaluationReport) -> None:
    """Print what policies make of a corpus."""
    print(report.corpus)
    for one in report.policies:
        parts = [("objects", one.objects), *((link.link, link.sizes) for link in one.products)]
        changes = ", ".join(f"{what} {percent_change(sizes.size, sizes.baseline)}" for what, sizes in parts)
        print(f"  {one.policy:12} {changes}; {one.grew} of {one.objects.modules} grew")


if __name__ == "__main__":
    main()
