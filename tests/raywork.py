"""What the Ray engine's tests map over items: by name, in a module of its own, so that worker processes find it."""

from __future__ import annotations

import os
import signal
import time


def double(item: int) -> int:
    return item * 2


def die_on_seven(item: int) -> int:
    if item == 7:
        os.kill(os.getpid(), signal.SIGSEGV)
    return item


def hang_on_three(item: int) -> int:
    if item == 3:
        while True:
            sum(range(1000))
    return item


def refuse(item: int) -> int:
    if item == 5:
        raise ValueError("five")
    return item


def slow_double(item: int) -> int:
    time.sleep(0.05)
    return item * 2


def no_operation(item: int) -> None:
    pass
