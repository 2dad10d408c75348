"""Compare environments with a bare live session: ``python benchmarks/environments.py CORPUS``.

All of them compile the same modules by the same commands, and decide the same, 1 for each call:

- *bare*: `InteractiveSession`, an answer for each observation, and nothing else: what no environment can beat;
- *bare, with names*: the same compiler also writes its remarks, which tell the calls' names;
- *InliningEnv*: reset and step until the end, with the reward; ``names=False`` is without those remarks;
- *linked*: the same with ``reward="linked"``;
- *2 in SyncVectorEnv*, *2 in AsyncVectorEnv*: two environments at a time, in one process, and in a process for each;
  each compiles half of the modules;
- *2 in threads*: the same without a vector: none waits for the other.

A compiler's work hides what an environment adds to it. So the second table is without: the small C program of
``benchmarks/interactive.py`` asks as fast as it can, a session answers a constant, and an environment takes steps.

Rounds take turns; medians count. A corpus is what ``mlgo-corpus build`` makes; by default Lua's objects from the tests.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import interactive
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from mlgo_corpus import InliningEnv, InteractiveSession, Tracer, environments, extract_corpus
from mlgo_corpus.compilers.compile import Compiled, ModuleCompiles, run_folder
from mlgo_corpus.formats.logs.flat import FlatFeatures
from mlgo_corpus.formats.logs.remarks import decision_options
from mlgo_corpus.formats.logs.tasks import INLINING, find_task, for_clang
from mlgo_corpus.runs.trace.episode import Episode, EpisodeOutcome
from mlgo_corpus.runs.trace.tracer import settings_of

LUA = Path(__file__).parents[1] / "tests" / "data" / "lua-clang22.tar.gz"


def bare(tracer: Tracer, modules: list[str], *, names: bool) -> int:
    """Answer each question of a compiler."""
    settings, count = settings_of(tracer), 0
    for name in modules:
        with run_folder(settings.work) as folder:
            compiles = ModuleCompiles(tracer.corpus[name], folder, settings.edits, settings.limits)
            compiles.place()
            options = compiles.options(settings.cc1)
            extra = for_clang(find_task(INLINING).channel_options("channel"))
            remarks = (*decision_options(settings.major), "remarks") if names else ()
            argv = (*settings.cc1, *compiles.command(options, *extra, *remarks))
            with InteractiveSession(argv, folder / "channel", **compiles.keywords()) as session:
                for _ in session:
                    session.advise(1)
                    count += 1
    return count


def single(env: InliningEnv, modules: list[str]) -> int:
    """Run an episode of each module."""
    count = 0
    for name in modules:
        env.reset(options={"module": name})
        ended = False
        while not ended:
            _, _, terminated, truncated, _ = env.step(1)
            count += 1
            ended = terminated or truncated
    return count


class InOrder(gymnasium.Wrapper):
    """Takes modules in their order."""

    def __init__(self, make: Callable[[], InliningEnv], modules: list[str]) -> None:
        super().__init__(make())
        self.modules = itertools.cycle(modules)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin with the next one."""
        return self.env.reset(seed=seed, options={**(options or {}), "module": next(self.modules)})


def vector(envs: Any, modules: list[str]) -> int:
    """Run as many episodes, in all environments at once, as there are modules."""
    envs.reset()
    actions = np.ones(envs.num_envs, np.int64)
    episodes = count = 0
    begins = np.zeros(envs.num_envs, bool)
    while episodes < len(modules):
        _, _, terminated, truncated, _ = envs.step(actions)
        count += int((~begins).sum())  # where an episode begins, nothing was decided
        begins = terminated | truncated
        episodes += int(begins.sum())
    return count


def threads(envs: Sequence[InliningEnv], halves: Sequence[list[str]]) -> int:
    """Run an episode of each module, in a thread for each environment."""
    with ThreadPoolExecutor(len(envs)) as pool:
        return sum(pool.map(single, envs, halves))


def compare_with_peer(env: InliningEnv, module: str, rounds: int, folder: Path) -> None:
    """Let an environment and a session answer a program that does nothing but ask."""
    (folder / "peer.c").write_text(interactive.PEER)
    subprocess.run(("cc", "-O2", "-o", str(folder / "peer"), str(folder / "peer.c")), check=True)
    case = interactive.make_case("inlining", folder / "peer", 20_000, folder)

    class PeerEpisode(Episode):
        def _prepared(self) -> InteractiveSession:
            base = self._compiles.folder / "channel"
            return InteractiveSession(case.command(base), base, timeout=600)

        def _end(self) -> None:
            compiled = Compiled(1, 1, "")
            self.outcome = EpisodeOutcome(compiled, b"", compiled, ())

    environments.Episode = PeerEpisode  # type: ignore[attr-defined] # where it is looked up
    env._header, env._flat = case.header, FlatFeatures(case.header, None)
    hosts = {"session": lambda: interactive.ours_constant(case), "InliningEnv": lambda: single(env, [module])}
    show(hosts, rounds, "session")


def decided(tracer: Tracer) -> list[str]:
    """List the modules that have something to decide."""
    return [one.row.module for one in tracer.map(tracer.names(), "always") if one.row.observations]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--compiler", default="clang-22")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modules", type=int, help="how many to compile in a round; at least 2")
    options = parser.parse_args()
    if options.modules is not None and options.modules < 2:
        parser.error("--modules: expected at least 2: two environments are measured at once")
    with tempfile.TemporaryDirectory() as name:
        corpus = options.corpus
        if corpus is None:
            with tarfile.open(LUA) as tar:
                tar.extractall(Path(name) / "objects", filter="data")
            corpus = Path(name) / "corpus"
            extract_corpus([Path(name) / "objects"], corpus)
        measure(corpus, options, Path(name) / "cache")


def measure(corpus: Path, options: argparse.Namespace, cache: Path) -> None:
    """Let the hosts take turns, and print their medians."""
    compiler, rounds = options.compiler, options.rounds
    make = partial(InliningEnv, corpus, compiler, cache=cache)
    with (
        Tracer(corpus, compiler, cache=cache, policy="always") as tracer,
        closing(make()) as env,
        closing(make(names=False)) as nameless,
        closing(make(reward="linked")) as linked,
    ):
        modules = decided(tracer)[: options.modules]
        halves = [modules[half::2] for half in (0, 1)]
        makes = [partial(InOrder, make, half) for half in halves]
        in_turn, at_once = SyncVectorEnv(makes), AsyncVectorEnv(makes)
        single(linked, modules)  # compiles plainly what is remembered from here on
        hosts: dict[str, Callable[[], int]] = {
            "bare": lambda: bare(tracer, modules, names=False),
            "bare, with names": lambda: bare(tracer, modules, names=True),
            "InliningEnv": lambda: single(env, modules),
            "names=False": lambda: single(nameless, modules),
            "linked": lambda: single(linked, modules),
            "2 in SyncVectorEnv": lambda: vector(in_turn, modules),
            "2 in AsyncVectorEnv": lambda: vector(at_once, modules),
            "2 in threads": lambda: threads((env, nameless), halves),
        }
        print(f"{len(modules)} modules, {rounds} rounds")
        show(hosts, rounds, "bare")
        in_turn.close()
        at_once.close()
        compare_with_peer(nameless, modules[0], rounds, cache)


def show(hosts: dict[str, Callable[[], int]], rounds: int, usual: str) -> None:
    """Let hosts take turns, and print their medians, each as a share of one of them."""
    rates: dict[str, list[float]] = {name: [] for name in hosts}
    for _ in range(rounds):
        for name, host in hosts.items():
            begin = time.perf_counter()
            count = host()
            rates[name].append(count / (time.perf_counter() - begin))
    print(f"{'host':<22}{'decisions/s':>12}{'of ' + usual:>12}")
    for name, found in rates.items():
        share = statistics.median(found) / statistics.median(rates[usual])
        print(f"{name:<22}{statistics.median(found):>12,.0f}{share:>12.0%}")


if __name__ == "__main__":
    main()
