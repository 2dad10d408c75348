"""What `test_rayengine` does with a Ray cluster: ``ray_scenarios.py FOLDER...``, in a network namespace.

All scenarios have one cluster of three machines, which are all this one; each has a folder of its name. What they saw,
or how they failed, is printed as one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from mlgo_corpus.engine.choice import EngineChoice, Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import MlgoCorpusError
from tests.engine import ray_start, raywork
from tests.forked import load_also, run_cli, start
from tests.processes import dies, every_process, told_of
from tests.runs.journals import kept

SEED = int(os.environ.get("MLGO_CORPUS_RAY_SEED", "0"))
NODE = {
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "node_ip_address": "127.0.0.1",
    "include_log_monitor": False,
    "setup_worker_path": ray_start.__file__,
}
ROUNDS = 3 * int(os.environ.get("MLGO_CORPUS_RAY_ROUNDS", "1"))


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Give a cluster of three machines; its processes are ended by their numbers."""
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "no_monitor": True})
    try:
        for _ in range(2):
            made.add_node(**NODE)
        yield made
    finally:
        import ray

        ray.shutdown()
        made.shutdown()


def plain(results: Any) -> list[Any]:
    """Give results as JSON can hold them."""
    return [["lost", one.timed_out, one.detail] if isinstance(one, Lost) else one for one in results]


def words_here() -> Iterator[tuple[int, bytes]]:
    """Give each process of this namespace and its words."""
    mine = os.readlink("/proc/self/ns/net")
    for pid in every_process():
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/net") == mine:
                yield pid, told_of(pid, "cmdline")


def worker_processes() -> list[int]:
    """Find the worker processes of this namespace's actors, and what they started: no process of ours is one."""
    return [pid for pid, words in words_here() if b"mlgo_corpus.engine.worker" in words or raywork.NAP in words]


def gone_within(seconds: float) -> list[int]:
    """Wait until no worker process is left; give those that are."""
    end = time.monotonic() + seconds
    while (left := worker_processes()) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def basics(made: Cluster, _: Path) -> dict[str, Any]:
    """The cases of the local engine's tests, by the same function on both."""
    ray = EngineChoice("ray", made.address)

    def both(function: Callable[[Any], Any], items: Any, **options: Any) -> list[list[Any]]:
        options = {"limit": 600, "jobs": 1, **options}
        return [plain(parallel_map(function, items, engine=engine, **options)) for engine in (ray, EngineChoice())]

    found: dict[str, Any] = {
        "order": both(raywork.double, range(1000), jobs=2),
        "one_by_one": both(raywork.double, range(50), weigh=lambda _: 1.0, long_items=True, jobs=2),
        "crash": both(raywork.die_on_seven, range(40), jobs=2),
        "crash_alone": both(raywork.die_on_seven, range(12), weigh=lambda _: 1.0),
        "hang": both(raywork.hang_on_three, range(6), limit=5),
        "large": [[len(one) for one in made] for made in both(raywork.large, range(6))],
        "none": both(raywork.double, []),
        "by_value": plain(parallel_map(lambda item: item + 1, range(40), jobs=1, limit=600, engine=ray)),
        "figures": [[one.host, one.items] for one in ray.status.figures[:2]],
    }
    for name, options in (
        ("refused", {"function": raywork.refuse}),
        ("needs", {"function": raywork.double, "needs": ["/is/not/there"]}),
    ):
        try:
            list(parallel_map(items=range(40), jobs=1, limit=600, engine=ray, **options))
        except (ValueError, MlgoCorpusError) as error:
            found[name] = [type(error).__name__, str(error)]
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    results = parallel_map(raywork.nap, range(10), jobs=2, limit=600, weigh=lambda _: 1.0, engine=ray)
    closer = threading.Timer(3.0, lambda: None)
    closer.start()
    found["first"] = next(results)
    os.kill(os.getpid(), signal.SIGTERM)
    found["asked"] = asked  # Ray's own handler would have ended this process
    signal.signal(signal.SIGTERM, before)
    found["running"] = len(worker_processes()) > 0
    results.close()  # type: ignore[attr-defined]
    found["left"] = gone_within(300)
    return found


def kills(made: Cluster, folder: Path) -> dict[str, Any]:
    """Workers, worker processes and machines killed when a random number of items is done, in some rounds."""
    chance = random.Random(SEED)
    rounds = []
    for number in range(ROUNDS):
        marks = folder / str(number)
        marks.mkdir()
        ray = EngineChoice("ray", made.address, retries=5)
        items = [(item, str(marks)) for item in range(60)]
        kind = ("actor", "process", "machine")[number % 3]
        over = threading.Event()
        killer = threading.Thread(target=strike_after, args=(chance.randrange(40), marks, made, kind, chance, over))
        killer.start()
        results = list(parallel_map(raywork.mark, items, jobs=3, limit=600, weigh=lambda _: 1.0, engine=ray))
        over.set()
        killer.join()
        files = sorted(int(path.name) for path in marks.iterdir())
        rounds.append([kind, plain(results) == list(range(60)), files == list(range(60)), gone_within(300)])
        if kind == "machine":
            made.add_node(**NODE)
    return {"rounds": rounds}


def strike_after(
    done: int, marks: Path, made: Cluster, kind: str, chance: random.Random, over: threading.Event
) -> None:
    """Kill something when so many items are done, or are about to be, unless all are before anybody looks."""
    while not over.is_set():
        if len(os.listdir(marks)) >= done and worker_processes():
            strike(made, kind, chance)
            return
        time.sleep(0.01)


def strike(made: Cluster, kind: str, chance: random.Random) -> None:
    """Kill something of a cluster's."""
    if kind == "machine":
        made.remove_node(chance.choice(made.list_all_nodes()[1:]), allow_graceful=False)
        return
    found = [
        pid
        for pid, words in words_here()
        if (words.startswith(b"ray::_Actor") if kind == "actor" else b"mlgo_corpus.engine.worker" in words)
    ]
    if found:
        os.kill(chance.choice(found), signal.SIGKILL)


def no_compiler_is_left(made: Cluster, folder: Path) -> dict[str, Any]:
    """An actor is killed while a program of its worker process runs: all of it is gone, and the item is done again."""
    found: dict[str, Any] = {}
    for kind in ("actor", "process"):
        ray = EngineChoice("ray", made.address)
        items = [(number, str(folder / f"{kind}-{number}")) for number in range(2)]
        results = parallel_map(raywork.nap_once, items, jobs=1, limit=600, weigh=lambda _: 1.0, engine=ray)
        thread = threading.Thread(target=lambda: found.__setitem__(kind, list(results)))  # noqa: B023 - joined
        thread.start()
        while not (folder / f"{kind}-0").exists():
            time.sleep(0.02)
        napping = int((folder / f"{kind}-0").read_text())
        strike(made, kind, random.Random(0))
        found[f"{kind}_left"] = not dies(napping)
        thread.join()
    return found


def bad_machine(made: Cluster, folder: Path) -> dict[str, Any]:
    """One of three machines takes every item down: the others do the work."""
    ray = EngineChoice("ray", made.address, retries=2)
    items = [(number, str(folder / "bad")) for number in range(40)]
    results = parallel_map(raywork.die_on_bad_machine, items, jobs=None, limit=600, weigh=lambda _: 1.0, engine=ray)
    return {"same": list(results) == list(range(40)), "figures": sorted(one.items for one in ray.status.figures)}


def verbs(made: Cluster, folder: Path) -> dict[str, Any]:
    """Run commands; those with ``@`` for an engine are run twice, with the output in ``local`` and ``ray``."""
    commands = json.loads((folder / "commands.json").read_text())
    found = []
    for command in commands:
        for engine in ("local", "ray"):
            words = [word.replace("@", engine) for word in command]
            words += [
                "--jobs",
                "2",
                "--engine",
                engine,
                "--json",
                *(("--ray-address", made.address) if engine == "ray" else ()),
            ]
            done = run_cli(*words, cwd=folder, env=os.environ, timeout=600)
            if engine == "ray" and done.returncode == -signal.SIGSEGV:
                # Once in some thousand sessions a thread of Ray's own (worker.io) crashes while Ray shuts down.
                for place in (folder / word for word, given in zip(words, command, strict=False) if "@" in given):
                    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
                done = run_cli(*words, cwd=folder, env=os.environ, timeout=600)
            found.append([done.returncode, done.stdout, done.stderr])
    return {"done": found}


def driver_killed(made: Cluster, folder: Path) -> dict[str, Any]:
    """A driver is killed twice among its modules and once after them, and started again; then it may end.

    A policy of the test's holds one module until there is a file ``go``, so that no driver ends before it is killed.
    """
    commands = json.loads((folder / "commands.json").read_text())
    modules = len(json.loads((folder / "corpus" / "corpus_description.json").read_text())["modules"])
    chance = random.Random(SEED)
    found: dict[str, Any] = {"killed": 0, "left": []}

    def finished() -> int:
        return len(kept(folder / "ray-killed" / ".mlgo-corpus"))

    words = [word.replace("@", "ray") for word in commands[0]]
    words += ["--jobs", "2", "--engine", "ray", "--ray-address", made.address, "--json"]
    for number in range(3):
        enough = min(finished() + chance.randint(0, 4), modules - 1)
        if number == 2:
            (folder / "go").touch()
            enough = modules
        with start(*words, cwd=folder, env=os.environ, stderr=True) as driver:
            while driver.poll() is None and (finished() < enough or not worker_processes()):
                time.sleep(0.01)
            found["killed"] += driver.poll() is None
            driver.kill()
            if driver.wait() > 0:
                found["failed"] = driver.communicate()[1]
        found["left"] += gone_within(300)
    done = run_cli(*words, cwd=folder, env=os.environ, timeout=600)
    found["last"] = [done.returncode, done.stdout, done.stderr]
    return found


def memory(made: Cluster, _: Path) -> dict[str, Any]:
    """Many items that do nothing: the driver's memory after a tenth of them, and after all."""
    ray = EngineChoice("ray", made.address)
    seen = []
    for number, _item in enumerate(parallel_map(raywork.no_operation, range(20_000), jobs=1, limit=600, engine=ray)):
        if number % 2_000 == 1_999:
            seen.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return {"kilobytes": seen}


def main(folders: list[Path]) -> dict[str, Any]:
    """Run the scenarios that folders are named for; one that fails does not keep the others from it."""
    seen: dict[str, Any] = {}
    load_also("ray")
    with cluster() as made:
        for folder in folders:
            try:
                seen[folder.name] = globals()[folder.name](made, folder)
            except Exception:
                seen[folder.name] = traceback.format_exc()
    return seen


if __name__ == "__main__":
    print(json.dumps(main([Path(word) for word in sys.argv[1:]])))  # noqa: T201 - the result
