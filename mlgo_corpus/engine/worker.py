"""The worker's side of the engine: a loop that runs tasks and answers, until its input ends.

A message is its length (8 bytes, little-endian) and a pickle. A task is ``(function, items, limit)``; its
answer is the list of ``function(item)``, or the exception that one of them raised. Before each item the worker sets
an alarm of ``limit`` seconds that it does not catch: a native parser in an endless loop ends with its process, and
no worker outlives its work even if the parent has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import struct
import sys
from typing import Any

from mlgo_corpus.engine.signals import ASKING_TO_END

_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1


def read_message(descriptor: int) -> Any:
    """Read one message.

    Raises:
        EOFError: the other side closed the pipe, or died while writing.
    """
    (length,) = _LENGTH.unpack(_read_exactly(descriptor, _LENGTH.size))
    return pickle.loads(_read_exactly(descriptor, length))  # noqa: S301 - from our own parent or child, over a pipe


def encode_message(message: Any) -> bytes:
    """Encode a message for a pipe."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def write_message(descriptor: int, encoded: bytes) -> None:
    """Write a whole encoded message.

    Raises:
        BrokenPipeError: the other side closed the pipe.
    """
    view = memoryview(encoded)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_exactly(descriptor: int, size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(descriptor, min(size, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def end_with(parent: int) -> None:
    """Make the kernel end this process when its parent ends, for whatever reason (Linux: PR_SET_PDEATHSIG).

    A worker itself notices only between two items that its parent has ended; an item may take minutes.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def serve(requests: int, replies: int) -> None:
    """Answer tasks until ``requests`` ends. Ignore Ctrl-C: the parent handles it, and ends its workers itself.

    Signals that the parent ignores, as under ``nohup``, stay ignored; the parent's handlers are removed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in ASKING_TO_END:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    while True:
        try:
            function, items, limit = read_message(requests)
        except EOFError:
            return
        try:
            answer: Any = []
            for item in items:
                signal.setitimer(signal.ITIMER_REAL, limit)
                answer.append(function(item))
        except Exception as error:  # it is raised again on the parent's side
            answer = error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            write_message(replies, encode_message(answer))
        except BrokenPipeError:
            return


if __name__ == "__main__":
    end_with(int(sys.argv[3]))
    serve(int(sys.argv[1]), int(sys.argv[2]))
