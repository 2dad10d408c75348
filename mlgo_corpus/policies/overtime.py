"""A deadline for Python code that is not ours and may not return, such as a policy.

A separate thread waits for the deadline. If the code runs in the main thread, as in all worker processes, it then sends
a signal, which also ends a sleep or a wait. Python delivers signals to the main thread only; any other thread gets the
exception between two bytecodes, so not during a call that does not return. If neither helps (C code that holds the
interpreter lock, code that catches everything), a worker process is killed by its own limit
(`mlgo_corpus.engine.worker`), and a thread goes on.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")

# Unused otherwise: the signal of a timer of processor time, which nothing here sets.
_SIGNAL = signal.SIGVTALRM


class Overtime(BaseException):
    """The deadline has passed; ``except Exception`` does not catch it."""


def end_after(deadline: float, work: Callable[[], _Result]) -> _Result:
    """Return the result of ``work``, or end it at a deadline on the clock ``time.monotonic``.

    Raises:
        Overtime: the deadline has passed.
        Exception: whatever ``work`` raises.
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
        """Handle the signal, which may arrive after the end."""
        if self._armed:
            self._armed = False
            raise Overtime

    def end(self) -> None:
        """Stop interrupting."""
        self._armed = False
        self._ended.set()
        with self._lock:
            if self._fired and not self.by_signal:
                self._raise_there(None)  # cancels an exception that is not raised yet

    def _raise_there(self, kind: type[BaseException] | None) -> None:
        value = None if kind is None else ctypes.py_object(kind)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._target), value)
