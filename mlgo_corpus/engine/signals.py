"""Signals that ask a program to end, handled like Ctrl-C, so that the same code cleans up after all of them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ASKING_TO_END: Final = (signal.SIGTERM, signal.SIGHUP)
"""The signals that ``kill``, batch systems, containers and a closed terminal send."""


class AskedToEndError(KeyboardInterrupt):
    """The process got a signal other than Ctrl-C's; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def signal_of(error: BaseException) -> int:
    """Return the signal that caused an interrupt: SIGINT, unless it was another one."""
    return error.number if isinstance(error, AskedToEndError) else signal.SIGINT


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Raise `AskedToEndError` in the block for the first such signal; ignore further ones during the cleanup.

    Signals that already have a handler, or are ignored as under ``nohup``, are left alone. Threads other than the main
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
