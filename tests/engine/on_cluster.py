"""What `shared/test_workers.py` runs on a cluster of several nodes on this machine: ``on_cluster.py SCENARIO...``.

All scenarios have the same cluster, one after the other, but ``alone``, which starts its own. Printed is one JSON
object: what each scenario found, or how it failed. Nothing here asserts: the tests do, on what is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from mlgo_corpus import SharedWorkers
from mlgo_corpus.compilers.process import run_tool
from tests.engine import ray_start

STORE = 100 << 20
CPUS = 2
NODE = {"include_log_monitor": False, "setup_worker_path": ray_start.__file__}


class Found(dict[str, Any]):
    """What a scenario found; told as it goes, for those who look for what went wrong."""

    def __setitem__(self, name: str, value: Any) -> None:
        sys.stderr.write(f"{name}: {value}\n")
        super().__setitem__(name, value)


class Echo:
    """A worker object that does as it is told. It is defined in the script, so it goes to the hosts by value."""

    def __init__(self, value: Any = None, megabytes: int = 0) -> None:
        if value == "raise":
            raise ValueError("no such value")
        if value == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        self.value = value
        self.data = np.ones(megabytes << 17)
        self.itself = self  # a cycle: nothing but the collector frees it
        self.met = threading.Barrier(2)
        self.stopped = threading.Event()

    def get(self) -> Any:
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def rss(self) -> int:
        return int(open("/proc/self/statm").read().split()[1]) * 4096

    def meet(self) -> int:
        """Ends if two calls run at the same time."""
        return self.met.wait(300)

    def wait(self, gate: str) -> bool:
        """Ends when somebody makes a file of this name."""
        return until(lambda: os.path.exists(gate))

    def fail(self, text: str) -> None:
        raise KeyError(text)

    def generator(self) -> Any:
        return (number for number in range(3))

    def compile(self) -> None:
        """Stands in nothing for a compiler: it is a program, started as compilers are."""
        run_tool(("sleep", "4321"), timeout=300, stop=self.stopped)

    def stop(self) -> None:
        self.stopped.set()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Give a cluster of two nodes, of two CPUs each."""
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": CPUS,
            "object_store_memory": STORE,
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "no_monitor": True,  # it would scale the cluster
            **NODE,
        },
    )
    try:
        add_node(made)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def add_node(made: Cluster) -> None:
    made.add_node(num_cpus=CPUS, object_store_memory=STORE, **NODE)


def told(work: Callable[[], Any]) -> list[str]:
    """Give an exception's type, text, notes and cause."""
    try:
        found = work()
    except BaseException as error:
        cause = error.__cause__
        return [type(error).__name__, str(error), "\n".join(getattr(error, "__notes__", ())), repr(cause)]
    return ["nothing", repr(found), "", ""]


def tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def until(condition: Callable[[], Any], seconds: float = 600) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def sleepers() -> int:
    return subprocess.run(("pgrep", "-fc", "^sleep 4321"), capture_output=True, check=False, text=True).stdout.strip()


def calls(made: Cluster) -> dict[str, Any]:
    found = Found()
    with SharedWorkers(2, address=made.address, timeout=600) as shared:
        found["repr"] = repr(shared.create(Echo))
        with shared.create(Echo, {"a": [1, 2]}) as echo:
            found["get"] = echo.call("get").result(600)
            # Two calls of one object run at the same time: each waits for the other.
            found["meet"] = sorted(call.result(600) for call in [echo.call("meet"), echo.call("meet")])
            found["fail"] = told(echo.call("fail", "a\nb").result)
            found["generator"] = told(echo.call("generator").result)
            found["no method"] = told(echo.call("nothing").result)
            found["unpicklable argument"] = told(lambda: echo.call("get", threading.Lock()))
            late = echo.call("wait", "first")
            found["timeout"] = told(lambda: late.result(0.05))
            open("first", "x").close()
            late.result(600)  # its host is idle again
        found["constructor"] = told(lambda: shared.create(Echo, "raise"))
        found["unpicklable worker"] = told(lambda: shared.create(Echo, threading.Lock()))
        found["weight"] = told(lambda: shared.create(Echo, weight=0))
        found["released"] = told(echo.call("get").result)
        found["released twice"] = told(echo.release)

        # Both hosts have one object of the same weight by now. Of a host with calls, however many, none gets another.
        first = shared.create(Echo, {"b": 1})
        waiting = [first.call("wait", "second") for _ in range(9)]
        until(lambda: any((host.running, host.waiting) == (2, 2) for host in shared.hosts()))
        found["busy host"] = first.hosts
        found["placed"] = [worker.hosts for worker in [shared.create(Echo) for _ in range(3)]]

        def states() -> list[tuple[int, int, int]]:
            return sorted((host.slots, host.running, host.waiting) for host in shared.hosts())

        until(lambda: states() == [(2, 0, 0), (2, 2, 2)])
        found["states"] = states()
        found["at once"] = first.call_now("get").result(600)  # all slots wait, and so do seven calls
        found["cancelled"] = [call.cancel() for call in waiting]
        found["cancelled again"] = [call.cancel() for call in waiting]
        first.release()
        found["at once, released"] = told(first.call_now("get").result)
        running = [call for call in waiting if not call.cancelled()]
        found["running when released"] = [call.done() for call in running]
    found["closed"] = [told(lambda call=call: call.result(600))[:2] for call in running]
    found["create after close"] = told(lambda: shared.create(Echo))
    return found


def weights(made: Cluster) -> dict[str, Any]:
    found = Found()
    with SharedWorkers(2, address=made.address, timeout=600, threads_per_host=2, cpus_per_host=1) as shared:
        heavy = shared.create(Echo, weight=5.0)
        light = [shared.create(Echo) for _ in range(3)]
        found["idle"] = [heavy.hosts, *(worker.hosts for worker in light)]
        waiting = [heavy.call("wait", "gate"), light[0].call("wait", "gate"), light[0].call("wait", "gate")]
        until(lambda: sum(host.running for host in shared.hosts()) == 3)
        found["loaded"] = shared.create(Echo).hosts  # beside two light calls rather than beside a heavy one
        light[0].release()
        open("gate", "x").close()
        found["released while it ran"] = [call.result(600) for call in waiting]

        everywhere = shared.create_everywhere(Echo, megabytes=200)
        found["everywhere"] = everywhere.hosts
        found["objects"] = [host.objects for host in shared.hosts()]
        pids = {call.result(600) for call in [everywhere.call("pid") for _ in range(8)]}
        found["pids"] = pids == {host.pid for host in shared.hosts()}
        probe = {worker.hosts: worker for worker in [heavy, *light[1:]]}
        large = [worker.call("rss").result(600) for worker in probe.values()]
        everywhere.release()
        small = [worker.call("rss").result(600) for worker in probe.values()]
        found["freed"] = [(a - b) >> 20 for a, b in zip(large, small, strict=True)]
    return found


def deaths(made: Cluster) -> dict[str, Any]:
    """A third node comes, and one goes: nothing can be done on this cluster afterwards."""
    found = Found()
    add_node(made)
    until(lambda: sleepers() == "0")
    last = next(iter(made.worker_nodes))
    with SharedWorkers(address=made.address, timeout=600, threads_per_host=1, cpus_per_host=CPUS) as shared:
        workers = [shared.create(Echo, number) for number in range(3)]
        found["hosts"] = [worker.hosts for worker in workers]
        lasting = shared.create(Echo, "lasting", recreate=True)
        found["lasting"] = lasting.hosts
        pids = {host.name: host.pid for host in shared.hosts()}
        (died,) = lasting.hosts
        with_it = next(worker for worker in workers if worker.hosts == (died,))
        compiling = lasting.call("compile")
        waiting = [with_it.call("get") for _ in range(4)]
        found["compiler began"] = until(lambda: sleepers() == "1")
        os.kill(pids[died], signal.SIGKILL)
        found["under way"] = told(lambda: compiling.result(600))
        found["died"] = died
        found["compiler left"] = not until(lambda: sleepers() == "0")
        found["waiting"] = [told(lambda call=call: call.result(600))[0] for call in waiting]
        found["afterwards"] = told(lambda: with_it.call("get").result(600))
        found["recreated"] = [lasting.call("get").result(600), lasting.hosts != (died,)]
        others = [worker for worker in workers if worker is not with_it]
        found["others"] = [worker.call("get").result(600) for worker in others]
        found["alive"] = sorted((host.alive, host.name == died) for host in shared.hosts())
        found["released dead"] = told(with_it.release)

        # One that kills its hosts gets no third one, and the last is left to the others.
        everywhere = shared.create_everywhere(Echo, "all")
        killer = shared.create(Echo, recreate=True)
        (second,) = killer.hosts
        found["killed"] = told(lambda: killer.call("die").result(600))[:2]
        found["second"] = second
        until(lambda: not next(host for host in shared.hosts() if host.name == second).alive)
        found["elsewhere"] = everywhere.call("get").result(600)
        found["poison"] = told(lambda: shared.create(Echo, "die"))[0]
        found["none left"] = told(lambda: shared.create(Echo))
        found["none left for all"] = told(lambda: everywhere.call("get").result(600))[0]
    with SharedWorkers(3, address=made.address, timeout=600) as shared:
        worker = shared.create_everywhere(Echo, "all")
        made.remove_node(last)
        until(lambda: not all(host.alive for host in shared.hosts()))
        found["nodes"] = sorted(host.alive for host in shared.hosts())
        found["after a node"] = [worker.call("get").result(600) for _ in range(4)]
    found["no room"] = told(lambda: SharedWorkers(9, address=made.address, timeout=3))
    ray.shutdown()
    found["no address"] = told(lambda: SharedWorkers(1, address="127.0.0.1:9"))
    return found


def drivers(made: Cluster) -> dict[str, Any]:
    found = Found()
    found["nobody"] = told(lambda: SharedWorkers.attach("ours", address=made.address))
    shared = SharedWorkers(2, address=made.address, timeout=600, name="ours", lease=15.0)
    ours = shared.create(Echo, "ours")
    pids = [host.pid for host in shared.hosts()]
    found["taken"] = told(lambda: SharedWorkers(1, name="ours"))
    argv = (sys.executable, __file__, "driver", made.address)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        found["other"] = json.loads(other.stdout.readline())
        found["together"] = [[host.drivers, host.objects] for host in shared.hosts()]
        until(lambda: sleepers() == "1")
        other.kill()
    found["freed"] = until(lambda: [host.drivers for host in shared.hosts()] == [1, 1])
    found["objects"] = sorted(host.objects for host in shared.hosts())
    found["ours"] = ours.call("get").result(600)
    found["rss"] = ours.call("rss").result(600) >> 20
    # Whoever started the hosts may leave: they live until the last driver has left, or is dead.
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        json.loads(other.stdout.readline())
        shared.close()
        ray.init(made.address, include_dashboard=False, log_to_driver=False)
        with SharedWorkers.attach("ours") as again:
            found["again"] = [host.pid for host in again.hosts()] == pids
            found["drivers"] = [host.drivers for host in again.hosts()]
        until(lambda: sleepers() == "1")
        found["left to the other"] = [os.path.exists(f"/proc/{pid}") for pid in pids]
        other.kill()
    found["ended"] = until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    found["compilers left"] = not until(lambda: sleepers() == "0")
    found["gone"] = told(lambda: SharedWorkers.attach("ours"))
    # Frozen for longer than its lease, a driver has lost its objects, and is told so.
    with SharedWorkers(1, name="theirs", timeout=600, lease=10.0) as shared:
        frozen = subprocess.Popen((*argv, "theirs"), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        with frozen:
            json.loads(frozen.stdout.readline())
            frozen.send_signal(signal.SIGSTOP)
            until(lambda: shared.hosts()[0].drivers == 1)
            frozen.send_signal(signal.SIGCONT)
            frozen.stdin.write("\n")
            frozen.stdin.flush()
            found["frozen"] = json.loads(frozen.stdout.readline())
            frozen.kill()
    found["last left"] = until(lambda: not ray.util.list_named_actors(all_namespaces=True))
    return found


def alone() -> dict[str, Any]:
    """Start a cluster without an address, on a machine that others can reach."""
    subprocess.run(("ip", "address", "add", "192.0.2.1/32", "dev", "lo"), check=True)
    subprocess.run(("ip", "route", "add", "default", "dev", "lo", "src", "192.0.2.1"), check=True)
    with SharedWorkers(2, cpus_per_host=1, threads_per_host=1, timeout=600) as shared:
        worker = shared.create_everywhere(Echo, "here")
        found = {"get": [worker.call("get").result(600) for _ in range(4)], "listening": list(listening())}
    return {**found, "environment": [name for name in os.environ if name.startswith("RAY_ENABLE")]}


def listening() -> Iterator[str]:
    """Give the addresses on which processes of this namespace listen, as /proc/net has them."""
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as lines:
            fields = [line.split() for line in lines][1:]
        yield from (local.partition(":")[0] for _, local, _, state, *_ in fields if state == "0A")


def driver() -> dict[str, Any]:
    """Be another driver, until it is killed."""
    name = sys.argv[3] if len(sys.argv) > 3 else "ours"
    shared = SharedWorkers.attach(name, address=sys.argv[2])
    workers = [shared.create(Echo, "theirs", megabytes=50) for _ in range(4)]
    values = [worker.call("get").result(600) for worker in workers]
    tell([values, sorted(host.drivers for host in shared.hosts())])
    if name == "theirs":
        sys.stdin.readline()
        tell(told(lambda: workers[0].call("get").result(600)))
    workers[0].call("compile")
    time.sleep(600)
    return {}


def example(made: Cluster, script: str, *arguments: str) -> Any:
    """Run an example on this cluster, which prints JSON on its last line."""
    argv = (sys.executable, script, *arguments, "--address", made.address, "--json")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr[-5000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(scenarios: dict[str, list[str]]) -> dict[str, Any]:
    """Run scenarios, or examples with their words; one that fails does not keep the others from it."""
    seen: dict[str, Any] = {}
    with cluster() as made:
        for name, words in scenarios.items():
            try:
                seen[name] = example(made, *words) if words else globals()[name](made)
            except Exception:
                seen[name] = traceback.format_exc()
            ray.shutdown()
    return seen


if __name__ == "__main__":
    apart = {"alone": alone, "driver": driver}
    tell(apart[sys.argv[1]]() if sys.argv[1] in apart else main(json.loads(sys.argv[1])))
