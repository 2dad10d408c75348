"""The processes of shared workers on a Ray cluster: start them, and find them again."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, Final

from mlgo_corpus.engine.cluster import import_ray, last_local_cluster, on_loopback, why_unreachable
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import os_reason

# The namespace separates our names from those of others on the cluster.
NAMESPACE: Final = "mlgo-corpus"
_PREFIX = "shared-workers:"
# The number of concurrent answers that must not wait behind calls; calls are queued by the host itself.
_CONTROLS = 100
_MOST_CALLS = 10_000
_NO_RAY = "this needs Ray: pip install 'mlgo-corpus[ray]'"


def connect(address: str | None) -> bool:
    """Join a cluster. Return True if this process was not part of it yet, so that `leave` has to end that.

    Without an address, join the cluster that Ray knows of; if there is none, or for ``local``, start one that only this
    machine can reach.

    Raises:
        UsageError: Ray is not installed, or the cluster cannot be reached.
    """
    ray = import_ray(_NO_RAY)
    if ray.is_initialized():
        return False
    where = "" if address is None else f" at {address}"
    here = last_local_cluster()
    if address is None and not os.environ.get("RAY_ADDRESS") and (here is None or why_unreachable(*here)):
        address = "local"
    try:
        _reach(address)
        with on_loopback() if address == "local" else nullcontext():
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        line = (os_reason(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"no Ray cluster{where}: {line}") from None
    return True


def _reach(address: str | None) -> None:
    """Check that there is a cluster, because Ray itself would try for minutes.

    Raises:
        OSError: there is none.
    """
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal() and "/" not in host and (problem := why_unreachable(host.strip("[]"), int(port))):
        raise OSError(problem)


def leave(ours: bool) -> None:
    """Leave the cluster if `connect` joined it; a cluster that `connect` started ends."""
    if ours:
        import_ray(_NO_RAY).shutdown()


def start_actors(
    kind: type,
    name: str | None,
    count: int | None,
    threads: int | None,
    cpus: int | None,
    *,
    lease: float,
    timeout: float,
    control: str,
) -> dict[str, Any]:
    """Start processes ``kind(name, threads, lease)``, spread over the machines; return their handles by name.

    Args:
        kind: the class of the object in each process.
        name: the name of the group, by which `actor_handles` finds it; with a name the processes outlive this driver.
        count: the number of processes; by default one for each machine.
        threads: the number of calls that each runs at a time; by default one for each of its CPUs.
        cpus: the CPUs of each; by default the number of threads, or else an equal share.
        lease: see `mlgo_corpus.engine.shared.host.Host`.
        timeout: the seconds in which they have to start.
        control: the concurrency group for requests that must not wait.

    Raises:
        UsageError: the cluster has no room for the processes, or the name is taken.
    """
    ray = import_ray(_NO_RAY)
    machines = [cpu for node in ray.nodes() if node["Alive"] and (cpu := int(node["Resources"].get("CPU", 0)))]
    count = len(machines) if count is None else count
    if not machines:
        raise UsageError("the Ray cluster has no machine with CPUs")
    cpus = cpus or threads or max(1, min(min(machines), sum(machines) // count))
    if name is not None and _find(ray, name):
        raise UsageError(f"shared workers {name!r} are there already: attach to them")
    remote = ray.remote(concurrency_groups={control: _CONTROLS})(kind)
    actors = {}
    for number in range(count):
        title = f"host {number}" if name is None else f"{name} host {number}"
        options: dict[str, Any] = {"num_cpus": cpus, "scheduling_strategy": "SPREAD", "max_concurrency": _MOST_CALLS}
        if name is not None:
            options |= {"name": f"{_PREFIX}{name}:{number}", "namespace": NAMESPACE, "lifetime": "detached"}
        try:
            actors[title] = remote.options(**options).remote(title, threads or cpus, lease)
        except ValueError:  # two drivers started them at once
            raise UsageError(f"shared workers {name!r} are there already: attach to them") from None
    refs = [actor.begin.options(concurrency_group=control).remote() for actor in actors.values()]
    ready, _ = ray.wait(refs, num_returns=len(refs), timeout=timeout)
    if len(ready) < len(refs):
        for actor in actors.values():
            ray.kill(actor)
        raise UsageError(
            f"the Ray cluster has no room for {count} hosts of {cpus} CPUs each: {len(ready)} of them started within "
            f"{timeout:g} seconds"
        )
    return actors


def actor_handles(name: str) -> dict[str, Any]:
    """Find the processes that another driver started under a name.

    Raises:
        UsageError: there are none.
    """
    ray = import_ray(_NO_RAY)
    found = {}
    for number, title in _find(ray, name):
        try:
            found[f"{name} host {number}"] = ray.get_actor(title, namespace=NAMESPACE)
        except ValueError:  # it ended meanwhile
            continue
    if not found:
        raise UsageError(f"there are no shared workers {name!r} on this cluster")
    return found


def _find(ray: Any, name: str) -> list[tuple[int, str]]:
    """Return the numbers and the names of the processes of a group, in order."""
    prefix = f"{_PREFIX}{name}:"
    named = [one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if one["namespace"] == NAMESPACE]
    tails = [title.removeprefix(prefix) for title in named if title.startswith(prefix)]
    return sorted((int(tail), prefix + tail) for tail in tails if tail.isdecimal())
