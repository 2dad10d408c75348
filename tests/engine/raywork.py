"""What the Ray engine's tests map over items: by name, in a module of its own, so that worker processes find it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from mlgo_corpus.compilers.process import tied_to_us

NAP = b"86399"
"""What a program is called with that stands for a compiler; it sleeps so many seconds."""


def double(item: int) -> int:
    return item * 2


def large(item: int) -> bytes:
    return bytes([item]) * 3_000_000


def die_on_seven(item: int) -> int:
    if item == 7:
        os.kill(os.getpid(), signal.SIGSEGV)
    return item


def hang_on_three(item: int) -> int:
    while item == 3:
        time.sleep(1)
    return item


def refuse(item: int) -> int:
    if item == 5:
        raise ValueError("five")
    return item


def no_operation(item: int) -> None:
    pass


def nap(item: int) -> int:
    if item:
        subprocess.run(tied_to_us(("sleep", NAP.decode())), check=False)
    return item


def nap_once(item: tuple[int, str]) -> int:
    """Run a program that does not end, where this was not tried before."""
    number, mark = item
    if number == 0 and not Path(mark).exists():
        napping = subprocess.Popen(tied_to_us(("sleep", NAP.decode())))
        Path(f"{mark}.tmp").write_text(str(napping.pid))
        Path(f"{mark}.tmp").rename(mark)
        napping.wait()
    return number


def mark(item: tuple[int, str]) -> int:
    """Leave a file, as runs of a compiler do: under a name of its own, then under the item's."""
    number, folder = item
    time.sleep(0.15)
    part = Path(folder).parent / f".{number}.{os.getpid()}.tmp"
    part.touch()
    part.rename(Path(folder) / str(number))
    return number


def die_on_bad_machine(item: tuple[int, str]) -> int:
    """Die on the machine that was the first to look; a machine here is a worker process's grandparent.

    Nothing is done before three machines are at work, for with one alone there is no other to do it.
    """
    number, place = item
    with open(f"/proc/{os.getppid()}/status") as status:
        (machine,) = (line.split()[1] for line in status if line.startswith("PPid:"))
    Path(f"{place}-works-{machine}").touch()
    while len(list(Path(place).parent.glob(f"{Path(place).name}-works-*"))) < 3:
        time.sleep(0.02)
    Path(f"{place}.{os.getpid()}").write_text(machine)
    with suppress(FileExistsError):  # the file is there when what it says is
        os.link(f"{place}.{os.getpid()}", place)
    if Path(place).read_text() == machine:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return number
