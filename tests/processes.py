"""Which processes there are, by ``/proc``: each may end between any two looks at it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def every_process() -> list[int]:
    """List the processes of this machine, also those that ended and were not waited for."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def told_of(pid: int, name: str) -> bytes:
    """Give what a file of a process holds, ``cmdline`` for example; nothing where the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def state_of(pid: int) -> list[str]:
    """Give the words of a process's ``stat`` after its name: state, parent, group, session; none where it is gone."""
    return told_of(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not reaped by its (foreign) parent does not."""
    return bool(state := state_of(pid)) and state[0] not in "ZX"


def dies(pid: int) -> bool:
    """Whether a process is dead soon: a signal that was sent takes effect after the call that sent it."""
    end = time.monotonic() + 300
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


def children() -> set[int]:
    """Return the processes that this one has started, also those that ended and were not waited for."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):  # a thread that ended meanwhile
            found |= {int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()}
    return found
