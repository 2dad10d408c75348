"""Signals that ask a program to end, taken as Ctrl-C is: what cleans up after the one cleans up after the others."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ASKING_TO_END: Final = (signal.SIGTERM, signal.SIGHUP)
"""What ``kill``, batch systems and containers send, and a terminal that is closed."""


class AskedToEndError(KeyboardInterrupt):
    """A signal other than Ctrl-C's; ``number`` is which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def signal_of(error: BaseException) -> int:
    """Give the signal behind an interrupt: SIGINT, unless it was another one."""
    return error.number if isinstance(error, AskedToEndError) else signal.SIGINT


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Raise `AskedToEndError` in the block for the first such signal; the next ones do not disturb the cleaning up.

    What somebody else has a handler for, or has ignored as ``nohup`` does, is left to them. Other threads than the main
    one get no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for one in ours:
            signal.signal(one, signal.SIG_IGN)
        raise AskedToEndError(number)

    ours = [one for one in ASKING_TO_END if signal.getsignal(one) is signal.SIG_DFL]
    for one in ours:
        signal.signal(one, interrupt)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)
