"""An end to Python code that is not ours and does not return: a policy that thinks for ever.

A thread of its own waits for the deadline. In the main thread, which all worker processes work in, it then sends a
signal, which also ends a sleep or a wait. Python delivers signals to the main thread only; any other thread gets the
exception between two bytecodes, so not while it is in a call that does not return. Where neither helps (code in C that
keeps the interpreter, code that catches everything), a worker process is killed by its own limit
(`mlgo_corpus.engine.worker`), and a thread stays.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")

# Nobody else's: of a timer that counts processor time, and that we do not set.
_SIGNAL = signal.SIGVTALRM


class Overtime(BaseException):
    """The deadline has passed; no ``except Exception`` on the way keeps it."""


def end_after(deadline: float, work: Callable[[], _Result]) -> _Result:
    """Return what ``work`` returns, or end it at a deadline of ``time.monotonic``.

    Raises:
        Overtime: the deadline has passed.
        Exception: what ``work`` raised.
    """
    watch = _Watch(deadline)
    before: Any = None
    if watch.by_signal:
        before = signal.signal(_SIGNAL, watch.interrupt)
    try:
        watch.start()
        try:
            return work()
        finally:
            watch.end()
    finally:
        if watch.by_signal:
            signal.signal(_SIGNAL, signal.SIG_DFL if before is None else before)


class _Watch(threading.Thread):
    """Interrupts the thread that made it, once, unless `end` comes first."""

    def __init__(self, deadline: float) -> None:
        super().__init__(name="overtime", daemon=True)
        self.by_signal = threading.current_thread() is threading.main_thread()
        self._target = threading.get_ident()
        self._deadline = deadline
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._armed = True
        self._fired = False

    def run(self) -> None:
        """Wait for the deadline."""
        if self._ended.wait(max(0.0, self._deadline - time.monotonic())):
            return
        with self._lock:
            if not self._armed:
                return
            self._fired = True
            if self.by_signal:
                signal.pthread_kill(self._target, _SIGNAL)
            else:
                self._raise_there(Overtime)

    def interrupt(self, *_: Any) -> None:
        """Handle the signal, which may come too late."""
        if self._armed:
            self._armed = False
            raise Overtime

    def end(self) -> None:
        """Let it interrupt no more."""
        self._armed = False
        self._ended.set()
        with self._lock:
            if self._fired and not self.by_signal:
                self._raise_there(None)  # takes back what is not raised yet

    def _raise_there(self, kind: type[BaseException] | None) -> None:
        value = None if kind is None else ctypes.py_object(kind)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._target), value)
